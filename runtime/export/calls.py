"""Calls of the entries of a loaded program: through Python, with any kind of arrays, and in machine code.

Input: an entry's interface and the address of its function, later the values of a call. Output: results in the nest of
the fetches. Calls in machine code are those of executables (``runtime.parts.entry_text``); the code comes with the
program's file, so that NumPy is all that they need. What they do not know, and runs that find the state in use, go
through Python.

The state is guarded by ``StateLock``. Programs that take a few microseconds keep the interpreter while they run, so
that no other thread can meet them: they only look whether one is in the state. All others that touch it are called
through Python, which notes them.
"""

from __future__ import annotations

import ctypes
import functools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from staticgrad.base import config
from staticgrad.base.addresses import aligned_empty, data_address
from staticgrad.base.boundary import end_at_user
from staticgrad.base.errors import (
    BoundsError,
    FeedError,
    FormatError,
    NumericsError,
    StaticGradError,
    out_of_range,
)
from staticgrad.base.types import sizes
from staticgrad.graph.optable import Array
from staticgrad.runtime.export.interface import EXTREMES, Entry
from staticgrad.runtime.export.sharing import StateLock
from staticgrad.runtime.parts.descriptors import ArraySpec, EntryRuntime, EntrySpec, Nest, entry_of
from staticgrad.runtime.parts.vectorcall import IS_FREE_THREADED
from staticgrad.runtime.running.binding import Argument, as_array, check_out
from staticgrad.runtime.running.fetches import filled, flatten_like, packer

_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4)
_BYTE, _ARRAY = np.dtype(np.uint8), np.ndarray
_OPEN = np.zeros(1, np.int64)  # of programs without a state: the word that says whether it is torn


class ProgramFrame:
    """The memory of one call in flight: the addresses of its arrays, and its workspace."""

    __slots__ = ("addresses", "inputs", "outputs", "workspace")

    def __init__(self, feeds: int, results: int, workspace_bytes: int) -> None:
        self.inputs: Any = (ctypes.c_void_p * feeds)()
        self.outputs: Any = (ctypes.c_void_p * results)()
        self.workspace = aligned_empty((workspace_bytes,), _BYTE)
        places = ctypes.addressof(self.inputs), ctypes.addressof(self.outputs), data_address(self.workspace)
        self.addresses: tuple[int, int, int] = places


class EntryCode:
    """An entry's function and what its calls need, made once."""

    def __init__(self, entry: Entry, address: int) -> None:
        self.entry = entry
        self.uses_state, self.writes_state = entry.uses_state, entry.writes_state
        self.address = address
        self.function: Callable[[int, int, int, int], int] = _FUNCTION(address)
        self.feeds = [Argument(x.name, x.type) for x in entry.feeds]
        self.ready = tuple((x.dtype, sizes(x.shape)) for x in self.feeds)  # arrays of these are read as they are
        self.results = [Argument(x.name, x.type) for x in entry.results]
        self.fetches = _nest(entry.structure, self.results)
        self.pack = packer(self.fetches)
        self.fresh = [functools.partial(np.empty, sizes(x.shape), x.dtype) for x in self.results]
        self.frames: deque[ProgramFrame] = deque()
        self.most_idle = config.available_cores()

    def new_frame(self) -> ProgramFrame:
        return ProgramFrame(len(self.feeds), len(self.results), self.entry.workspace_bytes)

    def error(self, status: int, workspace: Array) -> StaticGradError:
        """The exception of a call that ended with a status other than 0."""
        if not 0 < status <= len(self.entry.checks):
            return StaticGradError(f"{self.entry.name}: the program ended with the unknown status {status}")
        check = self.entry.checks[status - 1]
        declared = f"\n  declared at {check.source}" if check.source else ""
        if check.kind == "bounds":
            low, high = workspace[check.offset : check.offset + EXTREMES].copy().view(np.int64).tolist()
            return BoundsError(out_of_range(check.message, check.size, low, high, check.wraps) + declared)
        if check.kind == "numerics":
            return NumericsError(check.message + declared)
        return StaticGradError(f"assertion failed: {check.message}{declared}")


def _nest(structure: Any, leaves: Sequence[Argument]) -> Any:
    """The nest of fetches that an interface describes, of arguments."""
    match structure:
        case None:
            return None
        case int():
            return leaves[structure]
        case ["list", *parts]:
            return [_nest(part, leaves) for part in parts]
        case ["tuple", *parts]:
            return tuple([_nest(part, leaves) for part in parts])
        case [_, keys, *parts]:
            return {key: _nest(part, leaves) for key, part in zip(keys, parts, strict=True)}
    raise FormatError("no nest of results")


class EntryCalls:
    """The calls of an entry with a state of its own, at an address, which its lock guards and ``kept`` keeps alive."""

    def __init__(self, code: EntryCode, lock: StateLock, state: int, kept: object) -> None:
        self.code = code
        self._lock = lock
        self._state = state
        self._kept = kept

    def run(self, *values: Any, out: Any = None) -> Any:
        """The results for what is fed, in the nest of the fetches, through Python."""
        code = self.code
        try:
            if len(values) != len(code.ready):
                raise self._wrong_number(values)
            if out is not None:
                return self._call_into(out, list(map(as_array, code.feeds, values)))
            for value, (dtype, shape) in zip(values, code.ready):
                if type(value) is not _ARRAY or value.dtype is not dtype or value.shape != shape:
                    break
                if not value.flags.carray:
                    break
            else:
                return code.pack(self.run_ready(values, [make() for make in code.fresh]))
            arrays = list(map(as_array, code.feeds, values))
            return code.pack(self.run_ready(arrays, [make() for make in code.fresh]))
        except Exception as error:
            end_at_user(error)
            raise

    def _call_into(self, out: Any, arrays: Sequence[Array]) -> Any:
        code = self.code
        outs = flatten_like(code.fetches, out, "out")
        check_out(outs, [x.type for x in code.results], code.results, arrays)
        results = [make() if given is None else given for make, given in zip(code.fresh, outs, strict=True)]
        return filled(code.fetches, out, iter(self.run_ready(arrays, results)))

    def run_ready(self, arrays: Sequence[Array], results: list[Array]) -> list[Array]:
        """Call the function with arrays that it can read and write; returns ``results``."""
        code = self.code
        try:
            frame = code.frames.pop()
        except IndexError:
            frame = code.new_frame()
        try:
            inputs, outputs = frame.inputs, frame.outputs
            for place, array in enumerate(arrays):
                inputs[place] = data_address(array)
            for place, array in enumerate(results):
                outputs[place] = data_address(array)
            ins, outs, workspace = frame.addresses
            if not code.uses_state:
                status = code.function(ins, outs, workspace, 0)
            elif code.writes_state:
                with self._lock.writers:
                    try:
                        self._lock.begin_writing(frame)
                        status = code.function(ins, outs, workspace, self._state)
                    finally:
                        self._lock.end_writing(frame)
            else:
                try:
                    self._lock.begin_reading(frame)
                    status = code.function(ins, outs, workspace, self._state)
                finally:
                    self._lock.end_reading(frame)
            if status:
                raise code.error(status, frame.workspace)
        finally:
            if len(code.frames) < code.most_idle:
                code.frames.append(frame)
        return results

    def _wrong_number(self, values: Sequence[Any]) -> FeedError:
        code = self.code
        names = ", ".join(x.name for x in code.feeds)
        in_order = f"it is called with arrays in the order of its feeds, {code.entry.name}({names})"
        if len(values) == 1 and isinstance(values[0], Mapping):
            return FeedError(f"expected arrays, actual a dict: {in_order}")
        quoted = ", ".join(repr(x.name) for x in self.code.feeds) or "none"
        return FeedError(f"expected {len(self.code.ready)} arrays (for {quoted}), actual {len(values)}: {in_order}")

    # -- in machine code ----------------------------------------------------------------------------------------------

    def fast(self, runtime: EntryRuntime) -> Callable[..., Any] | None:
        """A function ``f(*arrays, out=None)`` that does the same as ``run``, mostly in machine code; None where there
        is none."""
        code = self.code
        if code.uses_state and (IS_FREE_THREADED or not code.entry.is_brief):
            return None
        structure, numbers = code.entry.structure, range(len(code.results))
        if structure == 0:
            return self._entry(runtime, numbers, True, self.run)
        match structure:
            case ["list" | "tuple" as kind, *parts] if not any(map(_is_nest, parts)):
                return self._entry(runtime, parts, False, self.run, tuple if kind == "tuple" else None)
            case ["dict", keys, *parts] if not any(map(_is_nest, parts)):
                return self._entry(runtime, parts, False, self.run, tuple(keys))
        missed = object()
        entry = self._entry(runtime, numbers, False, lambda *values, out=None: missed)
        return None if entry is None else self._packed(entry, missed)

    def _packed(self, entry: Callable[..., Any], missed: object) -> Callable[..., Any]:
        """A function that puts the results of an entry, a list, into the nest; ``missed`` stands for none."""
        run, pack = self.run, self.code.pack

        def packed(*values: Any, out: Any = None) -> Any:
            try:
                if out is None:
                    results = entry(*values)
                    if results is not missed:
                        return pack(results)
                return run(*values, out=out)
            except Exception as error:
                end_at_user(error)
                raise

        return packed

    def _entry(
        self,
        runtime: EntryRuntime,
        places: Sequence[int | None],
        is_single: bool,
        slow: Callable[..., Any],
        nest: Nest = None,
    ) -> Callable[..., Any] | None:
        """The function in machine code, with a frame of its own; ``places`` has the number of each result, None for an
        op."""
        code, lock, feeds = self.code, self._lock, len(self.code.feeds)
        table = np.zeros(feeds + len(code.results) + 1, np.uint64)
        workspace = aligned_empty((code.entry.workspace_bytes,), _BYTE)

        def fail(status: int) -> None:
            try:
                raise code.error(status, workspace)
            except StaticGradError as error:
                end_at_user(error)
                raise

        spec = EntrySpec(
            main=code.address,
            table=table.ctypes.data,
            arena=table.ctypes.data + table.itemsize * feeds,
            pool=data_address(workspace),
            releases=not code.entry.is_brief,
            gates=lock.gates(writes=code.writes_state) if code.uses_state else (0, 0),
            closed=data_address(lock.torn if code.uses_state else _OPEN),
            random=0,
            key=0,
            feeds=[ArraySpec(number, x.type) for number, x in enumerate(code.feeds)],
            leaves=[ArraySpec(0, None) if n is None else ArraySpec(feeds + n, code.results[n].type) for n in places],
            single=is_single,
            writes=0,
            versions=(),
            lock=0,
            kind=0,
            writing=0,
            marks=0,
            interrupts=(0, 0),
            slow=slow,
            fail=fail,
            kept=(self._kept, code, lock, table, workspace),
            state=self._state if code.uses_state else 0,
            nest=nest,
        )
        made = entry_of(spec, runtime)
        return None if made is None else made[0]


def _is_nest(part: Any) -> bool:
    return part is not None and not isinstance(part, int)
