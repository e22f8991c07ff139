"""A compiled program, loaded: machine code, the table of pointers it is called with, and its planned memory.

Comes in: a Binary and the state of a session. Goes out: a ``NativeRunner``, which runs it on arrays of exactly the
types it was compiled for. Each call takes a frame (pointer table and arena) from a pool, so several threads may call.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from staticgrad import config
from staticgrad.compiler.binary import Binary
from staticgrad.compiler.program import (
    POISON,
    CallbackSlot,
    ConstantSlot,
    FeedSlot,
    FetchSlot,
    GradSlot,
    Interface,
    KeySlot,
    PreparedSlot,
    Program,
    StateSlot,
    VersionSlot,
)
from staticgrad.errors import NumericsError, StaticGradError
from staticgrad.optable import Array
from staticgrad.runtime.entry import ArraySpec, EntrySpec, make_entry
from staticgrad.runtime.results import maker, workspace
from staticgrad.runtime.state import Store, aligned_empty
from staticgrad.types import TensorType, sizes

if TYPE_CHECKING:
    from staticgrad.runtime.kept import Kept

# Programs that take a few microseconds keep the interpreter's lock: releasing it would not pay. The rates are those of
# a fast core with its operands in cache, since what is kept short by mistake holds up other threads only briefly.
FLOPS_PER_SECOND = 1.5e11
BYTES_PER_SECOND = 3e10
KEEP_LOCK_BELOW = 8e-6
IDLE_FRAMES = 2  # of a program; what more calls at once need is recycled by other programs as well

_Main = Callable[[int, int, int], int]
_RELEASING = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_KEEPING = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))

_DATA_OFFSET = object.__basicsize__  # of the data pointer in an array object, checked below


def _data_by_interface(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _data_by_field(array: Array) -> int:
    return ctypes.c_void_p.from_address(id(array) + _DATA_OFFSET).value or 0


def _choose_data_address() -> Callable[[Array], int]:
    probe = np.zeros(3)[1:]
    return _data_by_field if _data_by_field(probe) == _data_by_interface(probe) else _data_by_interface


data_address = _choose_data_address()


def estimated_seconds(interface: Interface) -> float:
    """A rough lower bound of a call's time on one core."""
    return max(interface.flops / FLOPS_PER_SECOND, interface.bytes / BYTES_PER_SECOND)


class Frame:
    """What one call in flight owns: the pointer table, the arena, the key of the random ops, the key of those that
    repeat what another run drew, and the versions of the variables from which the arena is prepared."""

    __slots__ = ("again", "arena", "arena_address", "key", "prepared", "table", "table_address")

    def __init__(self, slots: int, arena_bytes: int, prepared: int = 0) -> None:
        self.table: Any = (ctypes.c_void_p * (slots + 1))()  # the last is for feeds that the program does not read
        self.table_address = ctypes.addressof(self.table)
        self.arena = workspace(arena_bytes)
        self.arena_address = data_address(self.arena)
        self.key = np.zeros(2, np.int64)
        self.again = np.zeros(2, np.int64)
        self.prepared = np.full(prepared, -1, np.int64)


class NativeRunner:
    """Runs one program. ``run(arrays, outs)`` gives an array for each fetched tensor."""

    def __init__(self, binary: Binary, store: Store) -> None:
        self.interface = interface = binary.interface
        self.store = store
        self._binary = binary
        callbacks = any(isinstance(slot, CallbackSlot) for slot in interface.slots)
        self._is_late = any(isinstance(slot, CallbackSlot) and slot.late for slot in interface.slots)
        self.keeps_lock = not callbacks and estimated_seconds(interface) < KEEP_LOCK_BELOW
        prototype = _KEEPING if self.keeps_lock else _RELEASING
        self.main_address = binary.code.address("main")
        self._main: _Main = prototype(self.main_address)
        self.pool = _pool_address(interface.workers)
        self._failure = threading.local()
        self._frames: deque[Frame] = deque()
        self._poison = config.get("MEMORY") == "poison"
        self._sort_slots(interface)
        self._enter = self._choose_lock(callbacks)

    @property
    def program(self) -> Program:
        """The program with its plan, costs and texts; compiled now if it was loaded from what was kept."""
        return self._binary.program

    def ticks(self) -> Array:
        """Of a timed program: the processor's clock before the first step of the last call and after each, int64."""
        address = ctypes.CFUNCTYPE(ctypes.c_void_p)(self._binary.code.address("ticks"))()
        words = (ctypes.c_int64 * (len(self.program.costs) + 1)).from_address(address or 0)
        return np.array(words, np.int64)

    def _sort_slots(self, interface: Interface) -> None:
        self._feeds: list[tuple[int, int]] = []
        self._fetches: list[tuple[int, int]] = []
        self._keys: list[int] = []
        self._repeated_keys: list[int] = []
        self._gradients: list[tuple[int, GradSlot]] = []
        self._fixed: list[tuple[int, int]] = []
        self._kept_alive: list[object] = []
        self._prepared: tuple[int, int] | None = None  # the slot's position, and how many versions
        types: dict[int, TensorType] = {}
        self.store.initialize(slot.name for slot in interface.slots if isinstance(slot, StateSlot | VersionSlot))
        for position, slot in enumerate(interface.slots):
            if isinstance(slot, FeedSlot):
                self._feeds.append((position, slot.index))
            elif isinstance(slot, FetchSlot):
                self._fetches.append((position, slot.index))
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
            else:
                self._fixed.append((position, self._callback(slot)))
        self.types = tuple(types[index] for index in range(len(types)))
        self._fresh = [maker(t.shape, t.dtype) for t in self.types]
        self.written = tuple(s.name for s in interface.slots if isinstance(s, StateSlot) and s.written)

    def _state_array(self, slot: StateSlot) -> Array:
        array = self.store.array(slot.name)
        if array.shape != slot.type.shape or array.dtype != slot.type.dtype:
            raise StaticGradError(f"variable {slot.name!r}: the program expects {slot.type}")
        return array

    def _constant(self, value: Array) -> Array:
        array = aligned_empty(value.shape, value.dtype)
        array[...] = value
        self._kept_alive.append(array)
        return array

    def _callback(self, slot: CallbackSlot) -> int:
        from staticgrad.interpreter import call_function

        in_views = [_viewer(t) for t in slot.inputs]
        out_views = [_viewer(t) for t in slot.outputs]

        def call(operands: Any) -> int:
            try:
                inputs = [view(operands[i]) for i, view in enumerate(in_views)]
                results = call_function(slot.function, inputs, slot.outputs, slot.source)
                for i, (view, result) in enumerate(zip(out_views, results, strict=True), len(in_views)):
                    view(operands[i])[...] = result
                return 0
            except BaseException as error:  # it crosses compiled code as a status, and is raised again after it
                if slot.late:
                    self._failure.__dict__.setdefault("late", error)
                    return 0
                self._failure.error = error
                return 1

        wrapper = _CALLBACK(call)
        self._kept_alive.append(wrapper)
        return ctypes.cast(wrapper, ctypes.c_void_p).value or 0

    def _choose_lock(self, callbacks: bool) -> Callable[[], contextlib.AbstractContextManager[None]]:
        lock = self.store.lock
        reads = any(isinstance(slot, StateSlot) for slot in self.interface.slots)
        if self.written or self._gradients or (callbacks and reads):
            return lock.exclusive
        if not reads:
            return contextlib.nullcontext
        return lock.brief if self.keeps_lock else lock.shared

    # -- calls --------------------------------------------------------------------------------------------------------

    def run(
        self, arrays: Sequence[Array], outs: Sequence[Array | None] | None = None, kept: Kept | None = None
    ) -> list[Array]:
        """Run once. ``arrays`` are C-contiguous, aligned and of the compiled types; ``outs`` likewise, or None.

        ``kept`` is given for a tape's programs; one that uses up kept values (``Interface.borrows``) runs in its block.
        What a late callback raised is raised after the run, by who keeps the tape where there is one.
        """
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = self._new_frame()
        try:
            if outs is None:
                results = [make() for make in self._fresh]
            else:
                results = [make() if out is None else out for make, out in zip(self._fresh, outs, strict=True)]
            table = frame.table
            for position, index in self._feeds:
                table[position] = data_address(arrays[index])
            for position, index in self._fetches:
                table[position] = data_address(results[index])
            if self._poison:
                frame.arena.fill(POISON)
            arena = frame.arena_address
            if kept is not None and self._repeated_keys:
                self._repeat_draws(frame, kept.run_number)
            if kept is not None and self.interface.borrows:
                arena = data_address(kept.block.memory)
            if self._keys:
                number = self._draw(frame, arena)
                if kept is not None and kept.run_number < 0:
                    kept.run_number = number
            else:
                self._call(frame, arena)
            if self._is_late:
                self._raise_late(kept)
            return results
        finally:
            if len(self._frames) < IDLE_FRAMES:
                self._frames.append(frame)

    def _raise_late(self, kept: Kept | None) -> None:
        late: BaseException | None = self._failure.__dict__.pop("late", None)
        if kept is not None:
            kept.late = late
        elif late is not None:
            raise late

    def _repeat_draws(self, frame: Frame, run_number: int) -> None:
        """Let draws that are repeated see the run number of the tape's forward."""
        frame.again[:] = self.store.seed, run_number
        for position in self._repeated_keys:
            frame.table[position] = data_address(frame.again)

    def _draw(self, frame: Frame, arena: int) -> int:
        """Run with the next run number, which it gives back if it fails."""
        store = self.store
        number = store.take_run_number()
        frame.key[:] = store.seed, number
        try:
            self._call(frame, arena)
        except BaseException:
            store.return_run_number(number)
            raise
        return number

    def _call(self, frame: Frame, arena: int) -> None:
        """Call the program with the session's lock, and count what it has written."""
        with self._enter():
            fresh = self._bind_gradients(frame) if self._gradients else None
            status = self._main(frame.table_address, arena, self.pool)
            if status:
                raise self._error(status, frame)
            if self.written:
                self.store.written(self.written)
            if fresh:
                self.store.keep_gradients(fresh)

    def _bind_gradients(self, frame: Frame) -> dict[str, Array]:
        """Let the program add to the sums so far; gives those that are new."""
        new: dict[str, Array] = {}
        for position, slot in self._gradients:
            array, fresh = self.store.gradient_memory(slot.key, slot.type)
            if fresh:
                new[slot.key] = array
            frame.table[position] = data_address(array)
        return new

    def _new_frame(self) -> Frame:
        position, count = self._prepared or (0, 0)
        frame = Frame(len(self.interface.slots), 0 if self.interface.borrows else self.interface.arena_bytes, count)
        if count:
            frame.table[position] = data_address(frame.prepared)
        for position, address in self._fixed:
            frame.table[position] = address
        for position in (*self._keys, *self._repeated_keys):
            frame.table[position] = data_address(frame.key)
        return frame

    def _error(self, status: int, frame: Frame) -> BaseException:
        self._failure.__dict__.pop("late", None)  # what ended the run says more
        if not 0 < status <= len(self.interface.checks):
            return StaticGradError(f"the program ended with the unknown status {status}")
        offset = self.interface.checks[status - 1].offset
        extremes = frame.arena[offset : offset + 16].copy()
        check = self.program.checks[status - 1]
        if check.kind == "bounds":
            from staticgrad.interpreter import bounds_error

            smallest, largest = map(int, extremes.view(np.int64))
            return bounds_error(check.message, check.size, smallest, largest, check.source, check.wraps)
        if check.kind == "callback":
            error = self._failure.__dict__.pop("error", None)
            return error if error is not None else StaticGradError(check.message, source=check.source)
        if check.kind == "numerics":
            return NumericsError(check.message, source=check.source)
        return StaticGradError(f"assertion failed: {check.message}", source=check.source)

    # -- the fast entry -----------------------------------------------------------------------------------------------

    def entry(
        self, feeds: Sequence[TensorType], places: Sequence[int], single: bool, slow: Callable[..., Any]
    ) -> Callable[..., Any] | None:
        """A function ``f(*arrays, out=None)`` in machine code that calls ``slow`` where it does not know what to do.

        Args:
            feeds: the types of the arrays of a call.
            places: for each result the number of the fetched tensor, -1 for an op.
            single: whether the result is one array rather than a list.
        """
        if self._poison or self._gradients or self._is_late:
            return None
        store, frame = self.store, self._new_frame()
        stateful = self._enter is not contextlib.nullcontext
        waits = stateful and not self.keeps_lock  # for the session's lock, which only Python code can do
        feed_slots = {index: position for position, index in self._feeds}
        fetch_slots = {index: position for position, index in self._fetches}

        def fail(status: int) -> None:
            raise self._error(status, frame)

        entry = make_entry(
            EntrySpec(
                main=self.main_address,
                table=frame.table_address,
                arena=frame.arena_address,
                pool=self.pool,
                releases=not self.keeps_lock,
                gate=data_address(store.lock.gate) if (stateful or self._keys) and not waits else 0,
                closed=data_address(store.closed),
                random=data_address(store.random) if self._keys else 0,
                key=data_address(frame.key),
                feeds=[ArraySpec(feed_slots.get(i, len(self.interface.slots)), t) for i, t in enumerate(feeds)],
                leaves=[ArraySpec(fetch_slots[p], self.types[p]) if p >= 0 else ArraySpec(0, None) for p in places],
                single=single,
                writes=data_address(store.write_count),
                versions=[data_address(store.version_word(key)) for key in self.written],
                slow=_missed if waits else slow,
                fail=fail,
                kept=(self, frame),
            )
        )
        return _with_lock(entry, self._enter, slow) if waits and entry is not None else entry

    def assembly(self) -> str:
        return self._binary.assembly()


def _pool_address(threads: int) -> int:
    if threads < 2:
        return 0
    from staticgrad.runtime.threads import pool_address

    return pool_address(threads)


_MISSED = object()


def _missed(*arrays: Any, out: Any = None) -> object:
    return _MISSED


def _with_lock(
    entry: Callable[..., Any], enter: Callable[[], contextlib.AbstractContextManager[None]], slow: Callable[..., Any]
) -> Callable[..., Any]:
    """``entry`` with the session's lock held; ``slow``, which may compile, without it."""

    def locked(*arrays: Any, out: Any = None) -> Any:
        with enter():
            result = entry(*arrays) if out is None else entry(*arrays, out=out)
        if result is not _MISSED:
            return result
        return slow(*arrays) if out is None else slow(*arrays, out=out)

    return locked


def _viewer(type_: TensorType) -> Callable[[int | None], Array]:
    """An array over the memory at an address, as a function of the address."""
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
