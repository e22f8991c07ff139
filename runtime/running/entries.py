"""Entries: functions in machine code that call a loaded program.

Input: a loaded program, the state of a session, its arguments and how it is called. Output: ``Entries``, which make
such functions (``runtime.parts.entry``): for runs, with the arrays of a run in a frame already, and for users, with
arrays that the function itself checks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.base.addresses import data_address
from staticgrad.base.errors import StaticGradError
from staticgrad.base.types import TensorType
from staticgrad.compiler.binary import Binary
from staticgrad.runtime.parts.descriptors import ArraySpec, Descriptor, EntrySpec, Nest
from staticgrad.runtime.parts.entry import Records, closed, follow, make_entry, open_for
from staticgrad.runtime.parts.entry_words import EntryWord
from staticgrad.runtime.parts.locks import LockWord
from staticgrad.runtime.parts.vectorcall import IS_FREE_THREADED
from staticgrad.runtime.running.arguments import Arguments
from staticgrad.runtime.running.calling import Calling
from staticgrad.runtime.running.frames import CallFrame, Frames
from staticgrad.runtime.running.state import SessionState

Entry = tuple[Callable[..., Any], Descriptor]
Arrays = tuple[Sequence[ArraySpec], Sequence[ArraySpec]]  # of a call: that are fed, and results


class Ended(Exception):
    """A program ended with a status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class FastEntry:
    """A function in machine code that runs a program, its descriptor, and the memory of its calls. ``lock`` is held
    while it is pointed at other sizes. ``make`` makes another one for the same arrays."""

    __slots__ = ("_chain", "_make", "frame", "function", "lock", "words")

    def __init__(self, made: Entry, frame: CallFrame, make: Callable[[], Entry | None]) -> None:
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

    def pointing(self, arrays: Arrays, numbers: Sequence[int]) -> Callable[[], bool]:
        """``NativeRunner.pointing`` for these arrays, at these open sizes of the program."""
        records, known = Records(*arrays), np.array(numbers, np.int64)
        words, sizes, lock = self.words, self.frame.sizes, self.lock

        def point() -> bool:
            with lock:
                if not closed(words):
                    return False
                sizes[:] = known
                open_for(words, records)
                return True

        return point


class Entries:
    """Makes the functions that call one program."""

    def __init__(
        self, binary: Binary, store: SessionState, arguments: Arguments, calling: Calling, frames: Frames
    ) -> None:
        self._binary = binary
        self._store = store
        self._arguments = arguments
        self._calling = calling
        self._frames = frames
        self._result_slots = {index: position for position, index in arguments.fetches}

    def call(self, frame: CallFrame) -> Entry | None:
        """A function without arguments that calls the program with a frame and raises ``Ended``; None where there can
        be none."""
        return make_entry(self._spec(frame, ((), ()), lock=self._calling.entry_hold, slow=_refuse, fail=_end))

    def fast(
        self, arrays: Arrays, numbers: Sequence[int], single: bool, slow: Callable[..., Any], nest: Nest = None
    ) -> FastEntry | None:
        """``NativeRunner.entry`` for these arrays; ``numbers`` are the open sizes of the program."""
        calling = self._calling
        if self._arguments.gradients or calling.poisons or calling.is_late or calling.is_stepwise or calling.starts:
            return None
        frame, lock = self._frames.new(), None if calling.keeps_lock else calling.hold
        if IS_FREE_THREADED:
            lock = calling.entry_hold

        def make(frame: CallFrame) -> Entry | None:
            def fail(status: int) -> None:
                from staticgrad.runtime.running.failures import error_of

                raise error_of(self._binary, status, frame)

            frame.sizes[:] = numbers
            return make_entry(
                self._spec(frame, arrays, lock=lock, single=single, slow=slow, fail=fail, kept=(self, frame), nest=nest)
            )

        made = make(frame)
        return None if made is None else FastEntry(made, frame, lambda: make(self._frames.new()))

    def arrays(self, feeds: Sequence[TensorType], results: Sequence[TensorType], places: Sequence[int]) -> Arrays:
        """The arrays of a call: those that are fed, and its results, for each the number of the fetched tensor, -1 for
        an op."""
        slots = {index: position for position, index in self._arguments.feeds}
        given = [ArraySpec(slots.get(i, self._arguments.count), t) for i, t in enumerate(feeds)]
        leaves = [ArraySpec(self._result_slots[p], results[p]) if p >= 0 else ArraySpec(0, None) for p in places]
        return given, leaves

    def _spec(
        self,
        frame: CallFrame,
        arrays: Arrays,
        *,
        lock: int | None,
        slow: Callable[..., Any],
        fail: Callable[[int], Any],
        kept: tuple[object, ...] = (),
        single: bool = False,
        nest: Nest = None,
    ) -> EntrySpec:
        """The entry that calls the program with this frame. With ``lock`` it takes the session's lock so; without, it
        goes the slow way where it is held."""
        store, calling, arguments, context = self._store, self._calling, self._arguments, frame.context
        looks = lock is None and calling.entry_hold is not None
        writes = bool(arguments.written or arguments.gradients)
        return EntrySpec(
            main=calling.address,
            table=frame.table_address,
            arena=frame.arena_address,
            pool=calling.pool if context is None else context.address,
            releases=not calling.keeps_lock,
            gates=(data_address(store.lock.words) + 8 * LockWord.GATE if looks else 0, 0),
            closed=data_address(store.closed),
            random=data_address(store.random) if arguments.keys else 0,
            key=data_address(frame.key),
            feeds=arrays[0],
            leaves=arrays[1],
            single=single,
            writes=data_address(store.write_count),
            versions=[data_address(store.version_word(key)) for key in arguments.written],
            lock=0 if lock is None else store.lock.address,
            kind=lock or 0,
            writing=0 if not writes else 1 if context is None else context.committed,
            marks=len(arguments.gradients),
            interrupts=(0, 0) if context is None else context.functions,
            slow=slow,
            fail=fail,
            kept=kept,
            nest=nest,
        )


def _end(status: int) -> None:
    raise Ended(status)


def _refuse(*arrays: Any, out: Any = None) -> Any:
    """The function that a call in machine code comes to whose session is closed."""
    raise StaticGradError("the session is closed")
