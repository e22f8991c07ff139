"""Programs as custom calls of XLA: one handler in machine code (``xla.c``) for all of them.

Input: C functions of signature ``"slots"``. Output: the address of a handler of XLA's typed FFI (its C interface is
``xla/ffi/api/c_api.h``, which jaxlib carries), and for each program the address of its words, which a call hands over
as its only attribute.

A call has more axes in front than the program where it is batched: all of its results do, and those of its feeds that
differ from call to call. The handler compares dtypes, ranks, sizes and alignments with those of the program, then calls
it once for each element of the batch; a status that is not 0 ends the batch and becomes an error of XLA. XLA's threads
call it, without Python; a program's scratch memory is that of the C function.

In a loop of JAX what a turn hands to the next has to lie where the turn has found it: without more XLA copies each leaf
of the carry, one by one, which takes longer than a small program. So a call is given results in the memory of feeds
(``in_place``); the handler copies such a feed to its stack before the program, which may read it after it has written.
Where something else reads a feed later, XLA gives the call a copy of it.

What XLA knows it may call as long as the process lives, so nothing that was handed out is ever given up.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from staticgrad.base import config
from staticgrad.base.errors import StaticGradError
from staticgrad.base.types import TensorType, sizes
from staticgrad.bridges.derived import Derivable
from staticgrad.compiler.options import CompileOptions
from staticgrad.compiler.program.slots import Check
from staticgrad.runtime.callers.cfunction import CFunction, form_of
from staticgrad.runtime.callers.cfunction_text import NO_MEMORY
from staticgrad.runtime.parts.machinery import native_part
from staticgrad.runtime.running.state import SessionState
from staticgrad.runtime.session.compiler import Compiler

DTYPES = {
    "bool": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint8": 6, "uint16": 7, "uint32": 8, "uint64": 9,
    "float16": 10, "float32": 11, "float64": 12, "bfloat16": 16,
}  # fmt: skip
SUPPORTED = 0  # the major version of the interface whose structures ``xla.c`` has


class ProgramWord:
    """The words of a program."""

    ENTRY = 0  # its C function
    FEEDS = 1
    RESULTS = 2
    RECORDS = 3  # of the feeds, then of the results
    CHECKS = 4
    TEXTS = 5  # what is said where no check has failed, then of each check
    MISMATCH = 6  # what is said of buffers that do not fit
    COPIES = 7  # bytes of the feeds that may lie where results do


class Record:
    """The words of a feed or result."""

    DTYPE = 0
    RANK = 1
    SHAPE = 2  # the address of its sizes
    NBYTES = 3
    MASK = 4  # of the bits of an address that must be 0
    RESULT = 5  # the number of the result that may lie where the feed does, or -1


RECORD = 6  # words
ROOM = 16  # a power of two: copies of feeds lie at multiples of it, in bytes
MOST_COPIED, MOST_COPIES = 512, 4096  # bytes of a feed that is copied, and of all
COMPARED = 8  # results by which it is told which feeds a loop carries
_KEPT: list[object] = []  # for ever: XLA may call what it once knew


def version(header: str) -> tuple[int, int]:
    """Major and minor version of the interface that a text of ``c_api.h`` declares.

    Raises:
        StaticGradError: it has none, or one whose structures are others than those that the handler reads.
    """
    found = [re.search(rf"#define XLA_FFI_API_{part} (\d+)", header) for part in ("MAJOR", "MINOR")]
    major, minor = (-1 if match is None else int(match[1]) for match in found)
    if major != SUPPORTED:
        raise StaticGradError(f"XLA's FFI: expected version {SUPPORTED}.x of its C interface, actual {major}.{minor}")
    return major, minor


def handler(include: str) -> int:
    """The address of the handler, for the XLA whose headers lie in the folder ``include``."""
    major, minor = version((Path(include) / "xla" / "ffi" / "api" / "c_api.h").read_text(encoding="utf-8"))
    module = native_part(__file__, "xla", quick=False, MAJOR=major, MINOR=minor)
    _KEPT.append(module)
    return module.address("handler")


def words_of(
    program: Derivable, name: str, compiler: Compiler, options: CompileOptions, state: SessionState
) -> tuple[CFunction, int]:
    """A program's C function, over the variables of ``state``, and the address of the words by which the handler calls
    it.

    Raises:
        GraphError: it writes variables or calls Python.
        StaticGradError: the reference backend has no machine code.
    """
    if config.get("BACKEND") == "reference":
        raise StaticGradError("the reference backend compiles nothing: there is no function for XLA")
    feeds, results = program.feeds, program.results
    binary = compiler.independent_of(program.region, options)
    places = {x: place for place, x in enumerate(program.region.fetches)}
    typed = list(zip(program.region.feeds, feeds, strict=True))
    form, outputs = form_of("slots", binary.interface, typed, [(x, places[x]) for x in program.tensors])
    function = CFunction(name, binary, state, options.target, form, typed, outputs)
    checks = binary.program.checks if binary.interface.checks else ()  # their texts are not kept
    kept: list[Any] = [function]
    records = np.zeros((len(feeds) + len(results), RECORD), np.int64)
    shared = in_place(program)
    for number, type_ in enumerate((*feeds, *results)):
        record = records[number]
        shape = np.array(sizes(type_.shape), np.int64)
        kept.append(shape)
        record[Record.DTYPE], record[Record.RANK] = DTYPES[type_.dtype.name], type_.ndim
        record[Record.SHAPE], record[Record.NBYTES] = shape.ctypes.data, type_.nbytes
        record[Record.MASK] = type_.dtype.itemsize - 1
        record[Record.RESULT] = shared.get(number, -1)
    said = [f"{name}: there is no memory for the call (status {NO_MEMORY})", *(_said(name, check) for check in checks)]
    listed = f"({', '.join(map(str, feeds))}) -> ({', '.join(map(str, results))})"
    texts = [ctypes.create_string_buffer(text.encode()) for text in (*said, f"{name}: expected buffers {listed}")]
    addresses = np.array([ctypes.addressof(text) for text in texts], np.int64)
    words = np.zeros(ProgramWord.COPIES + 1, np.int64)
    words[ProgramWord.ENTRY] = function.address
    words[ProgramWord.FEEDS], words[ProgramWord.RESULTS] = len(feeds), len(results)
    words[ProgramWord.RECORDS] = records.ctypes.data
    words[ProgramWord.CHECKS], words[ProgramWord.TEXTS] = len(checks), addresses.ctypes.data
    words[ProgramWord.MISMATCH] = addresses[-1]
    words[ProgramWord.COPIES] = sum(map(_room, (feeds[number] for number in shared)))
    _KEPT.append((words, records, addresses, texts, kept))
    return function, int(words.ctypes.data)


def _room(type_: TensorType) -> int:
    return -(-type_.nbytes // ROOM) * ROOM


def in_place(program: Derivable) -> dict[int, int]:
    """The numbers of small feeds whose memory a result may take, and those of these results, of the same types.

    They are those that a loop of JAX most likely carries from turn to turn. Carries are handed over in one order, so
    feeds and results are paired at one distance; of a linear derivative the feeds in which it is linear. Of the
    distances at which most pairs have equal types, the one counts at which results are the fewest ops away from their
    feeds. A wrong guess costs copies, never a result.
    """
    feeds, results = program.feeds, program.results
    first = min(program.linear, default=0)
    kinds: dict[TensorType, int] = {}
    given, made = (
        np.array([kinds.setdefault(t, len(kinds)) if 0 < t.nbytes <= MOST_COPIED else none for t in types])
        for types, none in ((feeds, -1), (results, -2))
    )

    def pairs(shift: int) -> list[tuple[int, int]]:
        low, high = max(0, first - shift), min(len(results), len(feeds) - shift)
        same = np.flatnonzero(given[low + shift : high + shift] == made[low:high]) + low if low < high else ()
        return [(int(n) + shift, int(n)) for n in same]

    found = [pairs(shift) for shift in range(first - len(results) + 1, len(feeds))]
    most = max(map(len, found), default=0)
    found = [each for each in found if len(each) == most > 0]
    if not found:
        return {}
    best = found[0] if len(found) == 1 else min(found, key=_ops_between(program))
    rooms = np.cumsum([_room(feeds[feed]) for feed, _ in best])
    return dict(best[: int(np.searchsorted(rooms, MOST_COPIES, "right"))])


def _ops_between(program: Derivable) -> Callable[[list[tuple[int, int]]], int]:
    """A function of pairs of feeds and results: how many ops lie on the shortest ways between them, of a few."""
    feeds = {x: number for number, x in enumerate(program.region.feeds)}
    far = len(program.region.graph.nodes)

    @functools.cache
    def ops_to(result: int) -> dict[int, int]:
        """The number of ops from each feed to a result."""
        level, seen, ops, found = [program.tensors[result]], {program.tensors[result]}, 0, dict[int, int]()
        while level:
            found |= {feeds[x]: ops for x in level if x in feeds}
            below = dict.fromkeys(y for x in level for y in x.op.inputs if y not in seen)
            seen.update(below)
            level, ops = list(below), ops + 1
        return found

    return lambda pairs: sum(ops_to(result).get(feed, far) for feed, result in pairs[:COMPARED])


def renew(functions: Iterable[CFunction], state: SessionState) -> None:
    """Let C functions take the variables of another state of their session."""
    for function in functions:
        function._state = state
        function.refresh()


def release(functions: Iterable[CFunction]) -> None:
    """Let go of the session's state, of which C functions that can no longer be renewed have their own copies."""
    for function in functions:
        del function._state


def _said(name: str, check: Check) -> str:
    """The text of an error for a check that failed."""
    what = "an index is out of range" if check.kind == "bounds" else "a check failed"
    where = "" if check.source is None else f" ({check.source})"
    return f"{name}: {what}: {check.message}{where}"
