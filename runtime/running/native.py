"""A compiled program, loaded: it runs on arrays of exactly the types that it was compiled for.

Input: a Binary and the state of a session. Output: a ``NativeRunner``. Each call takes a frame (pointer table and
arena) of those that wait, so several threads may call. Arguments, frames, how it is called and functions in machine
code are values of their own (``arguments``, ``frames``, ``calling``, ``entries``); here is what happens in a run.
"""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from staticgrad.base.addresses import data_address
from staticgrad.base.errors import SourceLine
from staticgrad.base.extents import at_sizes, open_sizes, sizer
from staticgrad.base.types import TensorType
from staticgrad.compiler.binary import Binary
from staticgrad.compiler.program.program import POISON, KernelCost, Program
from staticgrad.compiler.program.slots import INTERRUPTED
from staticgrad.graph.optable import Array
from staticgrad.runtime.parts.descriptors import Nest
from staticgrad.runtime.parts.entry_words import EntryWord
from staticgrad.runtime.parts.locks import at_once
from staticgrad.runtime.parts.results import maker
from staticgrad.runtime.running.arguments import Arguments, arguments_of
from staticgrad.runtime.running.calling import calling_of
from staticgrad.runtime.running.entries import Arrays, Ended, Entries, FastEntry
from staticgrad.runtime.running.frames import IDLE_FRAMES, CallFrame, Frames
from staticgrad.runtime.running.state import SessionState

if TYPE_CHECKING:
    from staticgrad.compiler.native.tiers import TieredCode
    from staticgrad.runtime.running.kept import TapeContext

_in_flight: list[object] = []  # the memory of runs that ended before all that they had started


class NativeRunner:
    """Runs one program. ``run(arrays, outs)`` gives an array for each fetched tensor."""

    def __init__(self, binary: Binary, store: SessionState) -> None:
        self.interface = interface = binary.interface
        self.store = store
        self._binary = binary
        self._arguments = arguments = arguments_of(interface.slots, store)
        self.calling = calling_of(binary, arguments)
        number = _meet_other_ranks(binary, arguments, store)
        self.frames = Frames(arguments, self.calling, 0 if interface.borrows else interface.arena_bytes, number)
        self._entries = Entries(binary, store, arguments, self.calling, self.frames)
        self._numbers: tuple[int, ...] = ()  # the open sizes
        self.types = arguments.types
        self._types_at = sizer(self.types)
        self._fresh = [] if open_sizes(self.types) else [maker(t.shape, t.dtype) for t in self.types]
        self._gradients = arguments.gradients
        self._has_open_gradients = bool(open_sizes(tuple([slot for _, slot in self._gradients])))
        self._is_plain = self.calling.is_stepwise  # calls go through Python

    def at(self, numbers: tuple[int, ...]) -> NativeRunner:
        """The runner of the same program for these open sizes, of which it may have but a few: frames and code are
        shared."""
        runner = copy.copy(self)
        runner._numbers = numbers[: self._arguments.sizes[1]]
        runner.types = self._types_at(numbers)
        makers = {id(t): maker(t.shape, t.dtype) for t in {id(t): t for t in runner.types}.values()}
        runner._fresh = [makers[id(t)] for t in runner.types]
        if self._has_open_gradients:
            runner._gradients = [(position, at_sizes(slot, numbers)) for position, slot in self._gradients]
        return runner

    # -- what it says of the program ----------------------------------------------------------------------------------

    @property
    def arena_bytes(self) -> int:
        return self.interface.arena_bytes

    @property
    def may_be_interrupted(self) -> bool:
        return self.interface.polls

    @property
    def may_fail(self) -> bool:
        return bool(self.interface.checks)

    @property
    def program(self) -> Program:
        """The program with its plan, costs and texts; compiled now if it was loaded from what was kept."""
        return self._binary.program

    @property
    def costs(self) -> tuple[KernelCost, ...]:
        """The cost of each step at the open sizes of this runner."""
        return at_sizes(self.program.costs, self._numbers)

    def ticks(self) -> Array:
        """The processor's clock before the first step of the last call of a timed program and after each, int64."""
        address = ctypes.CFUNCTYPE(ctypes.c_void_p)(self._binary.code.address("ticks"))()
        words = (ctypes.c_int64 * (len(self.program.costs) + 1)).from_address(address or 0)
        return np.array(words, np.int64)

    @property
    def tiers(self) -> TieredCode | None:
        """The program's code, if that is quick at first."""
        return self._binary.tiers

    @property
    def was_kept(self) -> bool:
        """True if the program was found on disk."""
        return self._binary.was_kept

    def assembly(self) -> str:
        return self._binary.assembly()

    # -- runs ---------------------------------------------------------------------------------------------------------

    def run(
        self, arrays: Sequence[Array], outs: Sequence[Array | None] | None = None, tape: TapeContext | None = None
    ) -> list[Array]:
        """Run once. ``arrays`` are C-contiguous, aligned and of the compiled types; ``outs`` likewise, or None.

        ``tape`` is given for a tape's programs; one that residuals are donated to (``Interface.borrows``) runs in its
        block.
        What a late callback raised is raised after the run, by who keeps the tape where there is one.
        """
        frames, arguments, calling = self.frames, self._arguments, self.calling
        try:
            frame = frames.pop()
        except IndexError:
            frame = frames.new()
        results: list[Array] = []
        try:
            if outs is None:
                results = [make() for make in self._fresh]
            else:
                results = [make() if out is None else out for make, out in zip(self._fresh, outs, strict=True)]
            table = frame.table
            frame.sizes[:] = self._numbers
            for position, index in arguments.feeds:
                table[position] = data_address(arrays[index])
            for position, index in arguments.fetches:
                table[position] = data_address(results[index])
            if calling.poisons:
                frame.arena.fill(POISON)
            arena = frame.arena_address
            if tape is not None:
                if arguments.repeated_keys:
                    self._repeat_draws(frame, tape.run_number)
                if calling.borrows:
                    arena = data_address(tape.block.memory)
            self._call(frame, arena, tape)
            if tape is not None and arguments.keys and tape.run_number < 0:
                tape.run_number = int(frame.key[1])
            if calling.is_late:
                self._raise_late(frame, tape)
            return results
        except BaseException:
            if calling.is_late:
                frame.take_late()
            if calling.starts:  # MPI may still write into the memory of what was started
                _in_flight.append((frame, arrays, results, tape))
                frame = frames.new()
            raise
        finally:
            if len(frames) < IDLE_FRAMES:
                frames.append(frame)

    @staticmethod
    def _raise_late(frame: CallFrame, tape: TapeContext | None) -> None:
        late = frame.take_late()
        if tape is not None:
            tape.late = late
        elif late is not None:
            raise late

    def _repeat_draws(self, frame: CallFrame, run_number: int) -> None:
        """Let draws that are repeated see the run number of the tape's forward."""
        frame.again[:] = self.store.seed, run_number
        for position in self._arguments.repeated_keys:
            frame.table[position] = data_address(frame.again)

    def _call(self, frame: CallFrame, arena: int, tape: TapeContext | None) -> None:
        """Call the program with the session's lock, after ``tape.first``. What it changes is counted, and ``tape.then``
        called, in one step with it."""
        first = (tape.first,) if tape is not None and tape.first is not None else ()
        then = (tape.then,) if tape is not None and tape.then is not None else ()
        if frame.call is None and not self._is_plain:
            frame.call = self._entries.call(frame)
            self._is_plain = frame.call is None
        if frame.call is None:
            return self._call_plainly(frame, arena, first, then)
        call, words = frame.call
        words[EntryWord.ARENA] = arena
        steps = (*first, call, *then)
        try:
            if self._gradients:
                self.store.lock.exclusive(self._call_with_gradients, frame, at_once, *steps)
            else:
                at_once(*steps)
        except Ended as ended:
            from staticgrad.runtime.running.failures import error_of

            raise error_of(self._binary, ended.status, frame) from None

    def _call_with_gradients(self, frame: CallFrame, function: Callable[..., Any], *arguments: Any) -> None:
        """Let the program add to the sums so far, or to new ones, which are there when it has run."""
        marks = frame.call[1].marks if frame.call is not None else None
        there = []
        for number, (position, slot) in enumerate(self._gradients):
            memory = self.store.gradient_memory(slot.key, slot.type)
            there.append(memory.there)
            frame.table[position] = data_address(memory.array)
            if marks is not None:
                marks[number] = data_address(memory.there)
        function(*arguments)
        if marks is None:
            for word in there:
                word[0] = 1

    def _call_plainly(
        self, frame: CallFrame, arena: int, first: Sequence[Callable[[], object]], then: Sequence[Callable[[], object]]
    ) -> None:
        """The same from Python: an exception may come between what changes."""
        store, lock, kind, draws = self.store, self.store.lock, self.calling.hold, bool(self._arguments.keys)
        hold: Callable[..., object] = _apply
        if kind is not None:
            hold = (lock.brief, lock.shared, lock.exclusive)[kind]
        number = store.take_run_number() if draws else 0
        frame.key[:] = store.seed, number
        try:
            hold(self._call_with_gradients, frame, self._call_main, frame, arena, first)
        except BaseException:
            if draws:
                store.return_run_number(number)
            raise
        for step in then:
            step()

    def _call_main(self, frame: CallFrame, arena: int, first: Sequence[Callable[[], object]]) -> None:
        context, calling = frame.context, self.calling
        for step in first:
            step()
        if context is not None:
            context.begin()
        status = calling.main(frame.table_address, arena, calling.pool if context is None else context.address)
        if status == INTERRUPTED and context is not None:
            context.raise_it()
        if status:
            from staticgrad.runtime.running.failures import error_of

            raise error_of(self._binary, status, frame)
        self.store.count_writes(self._arguments.written)

    # -- the fast entry -----------------------------------------------------------------------------------------------

    def entry(
        self,
        feeds: Sequence[TensorType],
        places: Sequence[int],
        single: bool,
        slow: Callable[..., Any],
        nest: Nest = None,
    ) -> FastEntry | None:
        """A function ``f(*arrays, out=None)`` in machine code that calls ``slow`` where it does not know what to do;
        None where there can be none.

        Args:
            feeds: the types of the arrays of a call.
            places: for each result the number of the fetched tensor, -1 for an op.
            single: whether the result is one array rather than a list, or what ``nest`` says.
        """
        return self._entries.fast(self._arrays(feeds, places), self._numbers, single, slow, nest)

    def pointing(self, entry: FastEntry, feeds: Sequence[TensorType], places: Sequence[int]) -> Callable[[], bool]:
        """A function that lets an entry of this program take arrays of these types, at these open sizes; it gives False
        while the entry is in use."""
        return entry.pointing(self._arrays(feeds, places), self._numbers)

    def _arrays(self, feeds: Sequence[TensorType], places: Sequence[int]) -> Arrays:
        return self._entries.arrays(feeds, self.types, places)


def _meet_other_ranks(binary: Binary, arguments: Arguments, store: SessionState) -> int:
    """Agree with the other ranks before the first run: the program's number among those that they compute together."""
    if not arguments.collectives:
        return 0
    from staticgrad.runtime.running.mpi import prepare_run

    def source_of(place: int) -> SourceLine | None:
        sources = [check.source for check in binary.program.checks if check.kind == "collective"]
        return sources[place] if place < len(sources) else None

    slots = [slot for _, slot in arguments.collectives]
    return prepare_run(slots, binary.collectives, store, arguments.variables, source_of)


def _apply(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)
