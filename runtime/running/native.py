"""A compiled program, loaded: machine code, the table of pointers it is called with, and its planned memory.

Input: a Binary and the state of a session. Output: a ``NativeRunner``, which runs it on arrays of exactly the
types it was compiled for. Each call takes a frame (pointer table and arena) from a pool, so several threads may call.
"""

from __future__ import annotations

import copy
import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from staticgrad.base import config
from staticgrad.base.addresses import aligned, data_address
from staticgrad.base.errors import NumericsError, SourceLine, StaticGradError
from staticgrad.base.extents import at_sizes, open_sizes, sizer, value_at
from staticgrad.base.types import TensorType, sizes
from staticgrad.compiler.binary import Binary
from staticgrad.compiler.machine.machine import least_seconds
from staticgrad.compiler.program.program import POISON, Interface, KernelCost, Program
from staticgrad.compiler.program.slots import (
    INTERRUPTED,
    CallbackSlot,
    CollectiveSlot,
    ConstantSlot,
    FeedSlot,
    FetchSlot,
    GradSlot,
    KeySlot,
    PreparedSlot,
    SizesSlot,
    StateSlot,
    VersionSlot,
)
from staticgrad.graph.optable import Array
from staticgrad.runtime.parts.entry import (
    ArraySpec,
    Descriptor,
    EntrySpec,
    Records,
    closed,
    follow,
    make_entry,
    open_for,
)
from staticgrad.runtime.parts.entry_words import DRAWS, EntryWord
from staticgrad.runtime.parts.interrupts import Context, callback, interruptible
from staticgrad.runtime.parts.locks import BRIEF, EXCLUSIVE, SHARED, LockWord, at_once
from staticgrad.runtime.parts.results import maker, workspace
from staticgrad.runtime.parts.vectorcall import IS_FREE_THREADED
from staticgrad.runtime.running.state import SessionState

if TYPE_CHECKING:
    from staticgrad.runtime.running.kept import TapeContext

# Programs that take a few microseconds keep the GIL: releasing it would not pay. What is thought short by mistake holds
# up other threads only briefly; what takes an unknown time, such as a loop without a bound, polls.
KEEP_LOCK_BELOW = 8e-6
IDLE_FRAMES = 2  # of a program; what more calls at once need is recycled by other programs as well

_Main = Callable[[int, int, int], int]
_Entry = tuple[Callable[..., Any], Descriptor]
_RELEASING = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_KEEPING = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


def estimated_seconds(interface: Interface) -> float:
    """A rough lower bound of a call's time on one core."""
    return least_seconds(interface.flops, interface.bytes)


_in_flight: list[object] = []  # the memory of runs that ended before all that they had started


class CallFrame:
    """The memory that one call in flight owns: the pointer table, the arena, the key of the random ops, the key of
    those that repeat what another run drew, the open sizes of the call, the versions of the variables from which the
    arena is prepared, the context of a program that can be interrupted, what Python functions of the program have
    raised, and, once it is needed, ``call``: a function in machine code that calls the program with all that, and its
    descriptor."""

    __slots__ = (
        "again", "arena", "arena_address", "call", "callbacks", "collectives", "context", "key", "prepared", "raised",
        "sizes", "table", "table_address",
    )  # fmt: skip

    def __init__(
        self, slots: int, arena_bytes: int, prepared: int = 0, context: Context | None = None, sizes: int = 0
    ) -> None:
        self.context = context
        self.call: tuple[Callable[[], Any], Descriptor] | None = None
        self.table: Any = (ctypes.c_void_p * (slots + 1))()  # the last is for feeds that the program does not read
        self.table_address = ctypes.addressof(self.table)
        self.arena = workspace(arena_bytes)
        self.arena_address = data_address(self.arena)
        self.key = np.zeros(2, np.int64)
        self.again = np.zeros(2, np.int64)
        self.sizes = np.zeros(sizes, np.int64)
        self.prepared = np.full(prepared, -1, np.int64)
        self.raised: list[BaseException] = []
        self.callbacks: list[object] = []  # that the table leads to
        self.collectives: list[Array] = []  # the words of collective operations, likewise

    def take_late(self) -> BaseException | None:
        """The first of what was raised in a run that came to its end; then it is forgotten."""
        stopped = self.context.take() if self.context is not None else None
        raised = [*([] if stopped is None else [stopped]), *self.raised, None]
        self.raised.clear()
        return raised[0]


class FastEntry:
    """A function in machine code that runs a program, its descriptor, and the memory of its calls. ``lock`` is held
    while it is pointed at other sizes. ``make`` makes another one for the same arrays."""

    __slots__ = ("_chain", "_make", "frame", "function", "lock", "words")

    def __init__(
        self, made: tuple[Callable[..., Any], Descriptor], frame: CallFrame, make: Callable[[], _Entry | None]
    ) -> None:
        self.function, self.words = made
        self.frame = frame
        self.lock = threading.Lock()
        self._chain, self._make = [self.words], make

    def widen(self) -> None:
        """Have memory ready for one more call at once, if all that is ready is in use; no more than there are cores."""
        with self.lock:
            if len(self._chain) < (os.cpu_count() or 1) and all(words[EntryWord.BUSY] for words in self._chain):
                made = self._make()
                if made is not None:
                    follow(self._chain[-1], made[1])
                    self._chain.append(made[1])


class NativeRunner:
    """Runs one program. ``run(arrays, outs)`` gives an array for each fetched tensor."""

    def __init__(self, binary: Binary, store: SessionState) -> None:
        self.interface = interface = binary.interface
        self.arena_bytes, self.may_be_interrupted = interface.arena_bytes, interface.polls
        self.may_fail = bool(interface.checks)
        self.store = store
        self._binary = binary
        callbacks = any(isinstance(slot, CallbackSlot) for slot in interface.slots)
        self._is_late = any(isinstance(slot, CallbackSlot) and slot.late for slot in interface.slots)
        collectives = any(isinstance(slot, CollectiveSlot) for slot in interface.slots)
        calls = callbacks or collectives
        self.keeps_lock = not calls and not interface.polls and estimated_seconds(interface) < KEEP_LOCK_BELOW
        prototype = _KEEPING if self.keeps_lock else _RELEASING
        self.main_address = binary.code.address("main")
        self._main: _Main = prototype(self.main_address)
        self._is_stepwise = binary.stepwise is not None
        if binary.stepwise is not None:
            from staticgrad.runtime.running.stepwise import StepwiseMain

            self._main = StepwiseMain(binary.code, interface.slots, binary.stepwise)
        self._is_interruptible = interface.polls and interruptible()
        # A program that polls expects a context in its place.
        self.pool = 0 if interface.polls and not self._is_interruptible else _pool_address(interface.workers)
        self._frames: deque[CallFrame] = deque()
        self._poison = config.get("MEMORY") == "poison"
        self._sort_slots(interface)
        self._starts = any(slot.name == "reduce_start" for _, slot in self._collectives)
        self._number = 0  # among the programs that the ranks compute together
        if collectives:
            self._meet_other_ranks()
        self._kind = self._choose_lock(callbacks)
        self._is_plain = self._is_stepwise  # calls go through Python

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

    def _sort_slots(self, interface: Interface) -> None:
        self._feeds: list[tuple[int, int]] = []
        self._fetches: list[tuple[int, int]] = []
        self._keys: list[int] = []
        self._repeated_keys: list[int] = []
        self._gradients: list[tuple[int, GradSlot]] = []
        self._fetch_slots: dict[int, int] = {}
        self._fixed: list[tuple[int, int]] = []
        self._callbacks: list[tuple[int, CallbackSlot]] = []
        self._collectives: list[tuple[int, CollectiveSlot]] = []
        self._kept_alive: list[object] = []
        self._prepared: tuple[int, int] | None = None  # the slot's position, and how many versions
        self._sizes: tuple[int, int] | None = None  # the slot's position, and how many there are
        self._numbers: tuple[int, ...] = ()  # the open sizes
        types: dict[int, TensorType] = {}
        self.store.initialize(slot.name for slot in interface.slots if isinstance(slot, StateSlot | VersionSlot))
        for position, slot in enumerate(interface.slots):
            if isinstance(slot, FeedSlot):
                self._feeds.append((position, slot.index))
            elif isinstance(slot, FetchSlot):
                self._fetches.append((position, slot.index))
                self._fetch_slots[slot.index] = position
                types[slot.index] = slot.type
            elif isinstance(slot, StateSlot):
                self._fixed.append((position, data_address(self._state_array(slot))))
            elif isinstance(slot, GradSlot):
                self._gradients.append((position, slot))
            elif isinstance(slot, ConstantSlot):
                self._fixed.append((position, data_address(self._constant(slot.value))))
            elif isinstance(slot, KeySlot):
                (self._repeated_keys if slot.again else self._keys).append(position)
            elif isinstance(slot, VersionSlot):
                self._fixed.append((position, data_address(self.store.version_word(slot.name))))
            elif isinstance(slot, PreparedSlot):
                self._prepared = position, slot.count
            elif isinstance(slot, SizesSlot):
                self._sizes = position, 1 + max(size.number for size in slot.sizes)
            elif isinstance(slot, CollectiveSlot):
                self._collectives.append((position, slot))
            else:
                self._callbacks.append((position, slot))
        self.types = tuple(types[index] for index in range(len(types)))
        self._types_at = sizer(self.types)
        self._fresh = [] if open_sizes(self.types) else [maker(t.shape, t.dtype) for t in self.types]
        self._has_open_gradients = bool(open_sizes(tuple([slot for _, slot in self._gradients])))
        self.written = tuple(s.name for s in interface.slots if isinstance(s, StateSlot) and s.written)

    def at(self, numbers: tuple[int, ...]) -> NativeRunner:
        """The runner of the same program for these open sizes, of which it may have but a few: frames and code are
        shared."""
        runner = copy.copy(self)
        runner._numbers = numbers[: self._sizes[1] if self._sizes is not None else 0]
        runner.types = self._types_at(numbers)
        makers = {id(t): maker(t.shape, t.dtype) for t in {id(t): t for t in runner.types}.values()}
        runner._fresh = [makers[id(t)] for t in runner.types]
        if self._has_open_gradients:
            runner._gradients = [(position, at_sizes(slot, numbers)) for position, slot in self._gradients]
        return runner

    def _meet_other_ranks(self) -> None:
        """Agree with the other ranks before the first run."""
        from staticgrad.runtime.running.mpi import prepare_run

        variables = [slot.name for slot in self.interface.slots if isinstance(slot, StateSlot)]

        def source_of(place: int) -> SourceLine | None:
            sources = [check.source for check in self.program.checks if check.kind == "collective"]
            return sources[place] if place < len(sources) else None

        slots = [slot for _, slot in self._collectives]
        self._number = prepare_run(slots, self._binary.collectives, self.store, variables, source_of)

    def _state_array(self, slot: StateSlot) -> Array:
        array = self.store.array(slot.name)
        if array.shape != slot.type.shape or array.dtype != slot.type.dtype:
            raise StaticGradError(f"variable {slot.name!r}: the program expects {slot.type}")
        return array

    def _constant(self, value: Array) -> Array:
        array = aligned(value)
        self._kept_alive.append(array)
        return array

    def _callback(self, slot: CallbackSlot, frame: CallFrame) -> int:
        """The address of the words by which a program calls the function with this frame."""
        from staticgrad.ops.interpreter import call_function

        in_views = [_viewer(t, frame.sizes) for t in slot.inputs]
        out_views = [_viewer(t, frame.sizes) for t in slot.outputs]

        count = len(slot.inputs) + len(slot.outputs)

        def call(address: int) -> int:
            operands = (ctypes.c_void_p * count).from_address(address)
            inputs = [view(operands[i]) for i, view in enumerate(in_views)]
            results = call_function(slot.function, inputs, at_sizes(slot.outputs, frame.sizes.tolist()), slot.source)
            for i, (view, result) in enumerate(zip(out_views, results, strict=True), len(in_views)):
                view(operands[i])[...] = result
            return 0

        context = frame.context if slot.late else None
        address, kept = callback(call, frame.raised.append, int(not slot.late), context)
        frame.callbacks.append(kept)
        return address

    def _choose_lock(self, callbacks: bool) -> int | None:
        """The kind of hold on the session's lock for a run; None where that reads and writes no state."""
        reads = any(isinstance(slot, StateSlot) for slot in self.interface.slots)
        if self.written or self._gradients or (callbacks and reads):
            return EXCLUSIVE
        if not reads:
            return None
        return BRIEF if self.keeps_lock else SHARED

    # -- calls --------------------------------------------------------------------------------------------------------

    def run(
        self, arrays: Sequence[Array], outs: Sequence[Array | None] | None = None, tape: TapeContext | None = None
    ) -> list[Array]:
        """Run once. ``arrays`` are C-contiguous, aligned and of the compiled types; ``outs`` likewise, or None.

        ``tape`` is given for a tape's programs; one that residuals are donated to (``Interface.borrows``) runs in its
        block.
        What a late callback raised is raised after the run, by who keeps the tape where there is one.
        """
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = self._new_frame()
        results: list[Array] = []
        try:
            if outs is None:
                results = [make() for make in self._fresh]
            else:
                results = [make() if out is None else out for make, out in zip(self._fresh, outs, strict=True)]
            table = frame.table
            frame.sizes[:] = self._numbers
            for position, index in self._feeds:
                table[position] = data_address(arrays[index])
            for position, index in self._fetches:
                table[position] = data_address(results[index])
            if self._poison:
                frame.arena.fill(POISON)
            arena = frame.arena_address
            if tape is not None and self._repeated_keys:
                self._repeat_draws(frame, tape.run_number)
            if tape is not None and self.interface.borrows:
                arena = data_address(tape.block.memory)
            self._call(frame, arena, tape)
            if self._keys and tape is not None and tape.run_number < 0:
                tape.run_number = int(frame.key[1])
            if self._is_late:
                self._raise_late(frame, tape)
            return results
        except BaseException:
            if self._starts:  # MPI may still write into the memory of what was started
                _in_flight.append((frame, arrays, results, tape))
                frame = self._new_frame()
            raise
        finally:
            if self._is_late:
                frame.take_late()  # of a run that has ended otherwise
            if len(self._frames) < IDLE_FRAMES:
                self._frames.append(frame)

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
        for position in self._repeated_keys:
            frame.table[position] = data_address(frame.again)

    def _call(self, frame: CallFrame, arena: int, tape: TapeContext | None) -> None:
        """Call the program with the session's lock, after ``tape.first``. What it changes is counted, and ``tape.then``
        called, in one step with it."""
        first = (tape.first,) if tape is not None and tape.first is not None else ()
        then = (tape.then,) if tape is not None and tape.then is not None else ()
        if frame.call is None and not self._is_plain:
            frame.call = self._make_call(frame)
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
        except _Ended as ended:
            raise self._error(ended.status, frame) from None

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

    def _make_call(self, frame: CallFrame) -> tuple[Callable[[], Any], Descriptor] | None:
        return make_entry(self._spec(frame, (), (), lock=self._kind_of_hold(), slow=_refuse, fail=_end))

    def _kind_of_hold(self) -> int | None:
        """The kind of hold on the session's lock during a call, or None."""
        return DRAWS if self._kind is None and self._keys else self._kind

    def _call_plainly(
        self, frame: CallFrame, arena: int, first: Sequence[Callable[[], object]], then: Sequence[Callable[[], object]]
    ) -> None:
        """The same from Python: an exception may come between what changes."""
        store, lock = self.store, self.store.lock
        hold: Callable[..., object] = _apply
        if self._kind is not None:
            hold = (lock.brief, lock.shared, lock.exclusive)[self._kind]
        number = store.take_run_number() if self._keys else 0
        frame.key[:] = store.seed, number
        try:
            hold(self._call_with_gradients, frame, self._call_main, frame, arena, first)
        except BaseException:
            if self._keys:
                store.return_run_number(number)
            raise
        for step in then:
            step()

    def _call_main(self, frame: CallFrame, arena: int, first: Sequence[Callable[[], object]]) -> None:
        context = frame.context
        for step in first:
            step()
        if context is not None:
            context.begin()
        status = self._main(frame.table_address, arena, self.pool if context is None else context.address)
        if status == INTERRUPTED and context is not None:
            context.raise_it()
        if status:
            raise self._error(status, frame)
        self.store.count_writes(self.written)

    def _new_frame(self) -> CallFrame:
        position, count = self._prepared or (0, 0)
        context = Context(self.pool) if self._is_interruptible else None
        nbytes = 0 if self.interface.borrows else self.interface.arena_bytes
        where, sizes = self._sizes or (0, 0)
        frame = CallFrame(len(self.interface.slots), nbytes, count, context, sizes)
        if sizes:
            frame.table[where] = data_address(frame.sizes)
        if count:
            frame.table[position] = data_address(frame.prepared)
        for position, address in self._fixed:
            frame.table[position] = address
        for position, slot in self._callbacks:
            frame.table[position] = self._callback(slot, frame)
        for number, (position, collective) in enumerate(self._collectives):
            from staticgrad.runtime.running.mpi import words_of

            words = words_of(collective, self._number, number, at_once=self._is_stepwise)
            frame.collectives.append(words)
            frame.table[position] = data_address(words)
        for position in (*self._keys, *self._repeated_keys):
            frame.table[position] = data_address(frame.key)
        return frame

    def _error(self, status: int, frame: CallFrame) -> BaseException:
        raised = frame.raised.copy()
        frame.raised.clear()
        if not 0 < status <= len(self.interface.checks):
            return StaticGradError(f"the program ended with the unknown status {status}")
        offset = self.interface.checks[status - 1].offset
        extremes = frame.arena[offset : offset + 16].copy()
        check = self.program.checks[status - 1]
        if check.kind == "bounds":
            from staticgrad.ops.interpreter import bounds_error

            smallest, largest = map(int, extremes.view(np.int64))
            size = value_at(check.size, frame.sizes.tolist())
            return bounds_error(check.message, size, smallest, largest, check.source, check.wraps)
        if check.kind == "collective":
            from staticgrad.runtime.running.mpi import failure

            return StaticGradError(f"{check.message}: {failure(frame.collectives, frame)}", source=check.source)
        if check.kind == "callback":
            return raised[-1] if raised else StaticGradError(check.message, source=check.source)
        if check.kind == "numerics":
            return NumericsError(check.message, source=check.source)
        return StaticGradError(f"assertion failed: {check.message}", source=check.source)

    # -- the fast entry -----------------------------------------------------------------------------------------------

    def entry(
        self, feeds: Sequence[TensorType], places: Sequence[int], single: bool, slow: Callable[..., Any]
    ) -> FastEntry | None:
        """A function ``f(*arrays, out=None)`` in machine code that calls ``slow`` where it does not know what to do.

        Args:
            feeds: the types of the arrays of a call.
            places: for each result the number of the fetched tensor, -1 for an op.
            single: whether the result is one array rather than a list.
        """
        if self._poison or self._gradients or self._is_late or self._is_stepwise or self._starts:
            return None
        given, leaves = self._array_specs(feeds, places)
        frame, lock = self._new_frame(), None if self.keeps_lock else self._kind
        if IS_FREE_THREADED:
            lock = self._kind_of_hold()

        def make(frame: CallFrame) -> _Entry | None:
            def fail(status: int) -> None:
                raise self._error(status, frame)

            frame.sizes[:] = self._numbers
            kept = self, frame
            return make_entry(
                self._spec(frame, given, leaves, lock=lock, single=single, slow=slow, fail=fail, kept=kept)
            )

        made = make(frame)
        return None if made is None else FastEntry(made, frame, lambda: make(self._new_frame()))

    def pointing(self, entry: FastEntry, feeds: Sequence[TensorType], places: Sequence[int]) -> Callable[[], bool]:
        """A function that lets an entry of this program take arrays of these types, at these open sizes; it gives False
        while the entry is in use."""
        records, numbers = Records(*self._array_specs(feeds, places)), np.array(self._numbers, np.int64)
        words, sizes, lock = entry.words, entry.frame.sizes, entry.lock

        def point() -> bool:
            with lock:
                if not closed(words):
                    return False
                sizes[:] = numbers
                open_for(words, records)
                return True

        return point

    def _array_specs(
        self, feeds: Sequence[TensorType], places: Sequence[int]
    ) -> tuple[list[ArraySpec], list[ArraySpec]]:
        """The arrays of a call that are fed, and those of its results."""
        slots = {index: position for position, index in self._feeds}
        given = [ArraySpec(slots.get(i, len(self.interface.slots)), t) for i, t in enumerate(feeds)]
        leaves = [ArraySpec(self._fetch_slots[p], self.types[p]) if p >= 0 else ArraySpec(0, None) for p in places]
        return given, leaves

    def _spec(
        self,
        frame: CallFrame,
        feeds: Sequence[ArraySpec],
        leaves: Sequence[ArraySpec],
        *,
        lock: int | None,
        slow: Callable[..., Any],
        fail: Callable[[int], Any],
        kept: tuple[object, ...] = (),
        single: bool = False,
    ) -> EntrySpec:
        """The entry that calls the program with this frame. With ``lock`` it takes the session's lock so; without, it
        goes the slow way where it is held."""
        store, context = self.store, frame.context
        looks = lock is None and (self._kind is not None or bool(self._keys))
        writes = bool(self.written or self._gradients)
        return EntrySpec(
            main=self.main_address,
            table=frame.table_address,
            arena=frame.arena_address,
            pool=self.pool if context is None else context.address,
            releases=not self.keeps_lock,
            gate=data_address(store.lock.words) + 8 * LockWord.GATE if looks else 0,
            closed=data_address(store.closed),
            random=data_address(store.random) if self._keys else 0,
            key=data_address(frame.key),
            feeds=feeds,
            leaves=leaves,
            single=single,
            writes=data_address(store.write_count),
            versions=[data_address(store.version_word(key)) for key in self.written],
            lock=0 if lock is None else store.lock.address,
            kind=lock or 0,
            writing=0 if not writes else 1 if context is None else context.committed,
            marks=len(self._gradients),
            interrupts=(0, 0) if context is None else context.functions,
            slow=slow,
            fail=fail,
            kept=kept,
        )

    def assembly(self) -> str:
        return self._binary.assembly()


def _pool_address(threads: int) -> int:
    if threads < 2:
        return 0
    from staticgrad.runtime.parts.threads import pool_address

    return pool_address(threads)


class _Ended(Exception):
    """A program ended with a status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def _end(status: int) -> None:
    raise _Ended(status)


def _refuse(*arrays: Any, out: Any = None) -> Any:
    """The function that a call in machine code comes to whose session is closed."""
    raise StaticGradError("the session is closed")


def _apply(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def _viewer(type_: TensorType, numbers: Array) -> Callable[[int | None], Array]:
    """An array over the memory at an address, as a function of the address; ``numbers`` are the open sizes of the run
    in which it is called."""
    if open_sizes(type_):
        return lambda address: _viewer(at_sizes(type_, numbers.tolist()), numbers)(address)
    shape = sizes(type_.shape)
    count = type_.dtype.itemsize
    for size in shape:
        count *= size
    if not count:
        return lambda address: np.empty(shape, type_.dtype)
    kind = ctypes.c_uint8 * count

    def view(address: int | None) -> Array:
        return np.ctypeslib.as_array(kind.from_address(address or 0)).view(type_.dtype).reshape(shape)

    return view
