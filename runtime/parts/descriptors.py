"""Descriptors of fast entries, and the Python functions that they make of machine code. NumPy is all that they need.

Input: an ``EntrySpec``, and the machine code of ``entry_text`` as an ``EntryRuntime``: of this process (``entry``), or
of the file of a program. Output: a function of Python and its descriptor. Fields of Python's objects are probed here.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import itertools
import math
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from staticgrad.base.addresses import aligned_empty
from staticgrad.base.frozen import frozen
from staticgrad.base.types import TensorType, sizes
from staticgrad.runtime.parts import foreign
from staticgrad.runtime.parts.entry_words import (
    API,
    AS_LIST,
    AS_TUPLE,
    DATA,
    DICT_USED,
    DIMS,
    DTYPE,
    FLAGS,
    LIST_ITEMS,
    LIST_SIZE,
    NDIM,
    RECORD,
    TUPLE_ITEM,
    TUPLE_SIZE,
    TYPE,
    WRITABLE,
    EntryWord,
    Field,
)
from staticgrad.runtime.parts.vectorcall import IS_FREE_THREADED, MethodDef, function_of, interpreter_address, is_known

MOST_LEAVES = 256  # the result objects of a call lie on the stack until the list takes them, as do addresses
MOST_GIVEN = 2048
READ_YET = 16  # sizes whose records are kept for calls that have begun with them
MOST_LISTED = 4096  # bytes of a feed that is read from a list
NEW_FROM_DESCR, SET_HANDLER = 94, 304  # places in NumPy's table of functions, which never change
METH_FASTCALL_KEYWORDS = 0x0080 | 0x0002
_OUT = sys.intern("out")
_BYTE = np.dtype(np.uint8)


# -- what is relied on ------------------------------------------------------------------------------------------------


def layout_is_known() -> bool:
    """True if the fields lie where this module expects them. An address that was read is followed only where its
    surroundings are as they should be: another layout shall be found out, not run into."""
    parts = _arrays_are_known, _tuples_are_known, _lists_are_known, _dicts_are_known
    return is_known() and all(known() for known in parts)


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _int(address: int) -> int:
    return ctypes.c_int.from_address(address).value


def _arrays_are_known() -> bool:
    array = np.zeros((5, 7), np.float32)[1:]
    frozen = np.zeros((3, 3))[:, ::2]
    frozen.flags.writeable = False
    at = id(array)
    fields = (_word(at + TYPE), _word(at + DATA), _int(at + NDIM), _word(at + DTYPE))
    if fields != (id(np.ndarray), array.__array_interface__["data"][0], 2, id(array.dtype)):
        return False
    flags = (_int(at + FLAGS) & 0x0507, _int(id(frozen) + FLAGS) & 0x0507)
    dims, strides = _word(at + DIMS), _word(at + DIMS + 8)
    if flags != (WRITABLE, 0x0100) or strides != dims + 16:  # NumPy allocates strides after dims
        return False
    return [_word(dims), _word(dims + 8)] == [4, 7]


def _tuples_are_known() -> bool:
    pair = ("first", None)
    return (_word(id(pair) + TUPLE_SIZE), _word(id(pair) + TUPLE_ITEM)) == (2, id(pair[0]))


def _lists_are_known() -> bool:
    items = ["first", None]
    has_fields = list.__basicsize__ == LIST_ITEMS + 16 and _word(id(items) + LIST_SIZE) == 2
    return has_fields and _word(_word(id(items) + LIST_ITEMS)) == id(items[0])


def _dicts_are_known() -> bool:
    items = dict[str, None]()
    seen = [_word(id(items) + DICT_USED)]
    for key in ("first", "second"):
        items[key] = None
        seen.append(_word(id(items) + DICT_USED))
    del items["first"]
    return [*seen, _word(id(items) + DICT_USED)] == [0, 1, 2, 1]


# -- what entries share -----------------------------------------------------------------------------------------------


class EntryFunctions(Protocol):
    """The loaded machine code of ``entry_text``."""

    def address(self, name: str) -> int: ...


def numpy_api(index: int) -> int:
    """The address of function ``index`` of NumPy's C API."""
    umath = importlib.import_module("numpy._core._multiarray_umath")
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    functions = get(umath._ARRAY_API, None)
    return ctypes.c_void_p.from_address(functions + 8 * index).value or 0


class EntryRuntime:
    """The objects that entries have in common, which live as long as the process.

    Attributes:
        forward: the address of the function by which objects are called (``vectorcall``).
        fence: lets others see what was written before, before anything that follows is read.
        locks: the addresses of the functions that take and give a session's lock; zeros where no entry takes one.
        handler: the memory handler with which a result of that many bytes is made; None for NumPy's own.
    """

    def __init__(
        self,
        code: EntryFunctions,
        locks: tuple[int, int] = (0, 0),
        handler: Callable[[int], object | None] = lambda nbytes: None,
    ) -> None:
        self.code = code
        self.locks = locks
        self.handler = handler
        self.definition = MethodDef(b"executable", code.address("enter"), METH_FASTCALL_KEYWORDS, None)
        self.fence: Callable[[], None] = ctypes.CFUNCTYPE(None)(code.address("order"))
        self.forward = code.address("forward")
        objects = {"PyArray_Type": np.ndarray, "PyList_Type": list, "PyDict_Type": dict, "Py_None": None, "out": _OUT}
        addresses = {name: id(value) for name, value in objects.items()}
        addresses["PyArray_NewFromDescr"] = numpy_api(NEW_FROM_DESCR)
        addresses["PyDataMem_SetHandler"] = numpy_api(SET_HANDLER)
        addresses["known"], addresses["TUPLE_ITEM"] = foreign.known_address(), TUPLE_ITEM
        for name in API:
            if name not in addresses:
                addresses[name] = interpreter_address(name)
        self.api = np.array([addresses[name] for name in API], np.uint64)


# -- making entries ---------------------------------------------------------------------------------------------------


Nest = tuple[Any, ...] | type[tuple[Any, ...]] | None  # of several results: the keys of a dict, a tuple, or a list


class Descriptor(np.ndarray[Any, np.dtype[np.uint64]]):
    """The words, the addresses of the words that are set to 1 after a run, and everything that must live as long as the
    entry does."""

    marks: np.ndarray[Any, np.dtype[np.uint64]]
    kept: tuple[object, ...]
    arrays: deque[object]  # the records of the latest sizes that it was pointed at, some of which a call may yet read


@frozen
class ArraySpec:
    """An array of a call: where its address goes and its type; an op has no type."""

    slot: int
    type: TensorType | None


@frozen
class EntrySpec:
    """The data of an entry. Addresses are those of memory that ``kept`` keeps alive; 0 says: not needed.

    ``main`` is called with ``table``, ``arena``, ``pool`` and ``state``; ``gates`` are addresses of words that are 0
    while a call may go on.
    """

    main: int
    table: int
    arena: int
    pool: int
    releases: bool
    gates: tuple[int, int]
    closed: int
    random: int
    key: int
    feeds: Sequence[ArraySpec]
    leaves: Sequence[ArraySpec]
    single: bool
    writes: int
    versions: Sequence[int]
    lock: int
    kind: int
    writing: int
    marks: int
    interrupts: tuple[int, int]  # the functions BEGIN and RAISE
    slow: Callable[..., Any]
    fail: Callable[[int], Any]
    kept: tuple[object, ...]
    state: int = 0
    nest: Nest = None


def entry_of(spec: EntrySpec, runtime: EntryRuntime) -> tuple[Callable[..., Any], Descriptor] | None:
    """A Python function for ``spec`` and its descriptor; None where a call is too large, or machine code cannot take
    the session's lock."""
    acquire, release = runtime.locks
    if len(spec.leaves) > MOST_LEAVES or len(spec.feeds) > MOST_GIVEN or (spec.lock and not acquire):
        return None
    feeds, feed_dims = feed_records(spec.feeds)
    leaves, leaf_dims = leaf_records(spec.leaves, runtime.handler)
    versions = np.array(list(spec.versions) or [0], np.uint64)
    marks = np.zeros(max(spec.marks, 1), np.uint64)
    words = np.zeros(EntryWord.FIRST_API + len(API), np.uint64).view(Descriptor)
    values = {
        EntryWord.MAIN: spec.main, EntryWord.TABLE: spec.table, EntryWord.ARENA: spec.arena,
        EntryWord.RELEASES: int(spec.releases), EntryWord.GATE: spec.gates[0],
        EntryWord.OTHER_GATE: spec.gates[1], EntryWord.CLOSED: spec.closed,
        EntryWord.RANDOM: spec.random, EntryWord.KEY: spec.key, EntryWord.FEEDS: len(spec.feeds),
        EntryWord.FEED_RECORDS: feeds.ctypes.data, EntryWord.LEAVES: len(spec.leaves),
        EntryWord.LEAF_RECORDS: leaves.ctypes.data, EntryWord.SINGLE: int(spec.single), EntryWord.WRITES: spec.writes,
        EntryWord.VERSIONS: len(spec.versions), EntryWord.VERSION_ADDRESSES: versions.ctypes.data,
        EntryWord.SLOW: id(spec.slow), EntryWord.FAIL: id(spec.fail), EntryWord.POOL: spec.pool,
        EntryWord.LOCK: spec.lock, EntryWord.KIND: spec.kind, EntryWord.ACQUIRE: acquire, EntryWord.RELEASE: release,
        EntryWord.WRITING: spec.writing, EntryWord.MARKS: spec.marks, EntryWord.MARK_ADDRESSES: marks.ctypes.data,
        EntryWord.BEGIN: spec.interrupts[0], EntryWord.RAISE: spec.interrupts[1],
        EntryWord.STATE: spec.state, EntryWord.NEST: _nest_word(spec.nest),
        EntryWord.GUARDED: int(bool(spec.lock or spec.marks or spec.interrupts[0])),
    }  # fmt: skip
    for word, value in values.items():
        words[word] = value
    words[EntryWord.FIRST_API :] = runtime.api
    words.marks, words.arrays = marks, deque(maxlen=READ_YET)
    words.kept = (spec, feeds, feed_dims, leaves, leaf_dims, versions, runtime)
    return function_of(runtime.definition, words, None), words


_Words = np.ndarray[Any, np.dtype[np.int64]]


@functools.cache
def _own_dtype(dtype: np.dtype) -> np.dtype:
    """The object that arrays of a dtype have."""
    return np.dtype(dtype.name)


def _nest_word(nest: Nest) -> int:
    return AS_LIST if nest is None else AS_TUPLE if nest is tuple else id(nest)


def feed_records(specs: Sequence[ArraySpec]) -> tuple[_Words, object]:
    """The records of arrays that an entry is given, and what they point to."""
    records, kept, nbytes = _records(specs)
    listed = [0 if spec.type is None or not spec.type.shape else int(n) for spec, n in zip(specs, nbytes)]
    rooms = [-(-n // 64) * 64 if 0 < n <= MOST_LISTED and not IS_FREE_THREADED else 0 for n in listed]
    memory = aligned_empty((sum(rooms),), _BYTE)
    begins = memory.ctypes.data + np.cumsum([0, *rooms[:-1]])
    for record, room, begin in zip(records, rooms, begins):
        record[Field.LISTED] = begin if room else 0
    return records, (kept, memory)


def leaf_records(specs: Sequence[ArraySpec], handler: Callable[[int], object | None]) -> tuple[_Words, object]:
    """The records of arrays that an entry makes, and what they point to."""
    records, kept, nbytes = _records(specs)
    handlers = [handler(int(n)) for n in nbytes]
    for record, spec, found in zip(records, specs, handlers):
        record[Field.HANDLER] = 0 if found is None or spec.type is None else id(found)
    return records, (kept, handlers)


def _records(specs: Sequence[ArraySpec]) -> tuple[_Words, object, list[int]]:
    """The records of arrays, what they point to, and their bytes."""
    shapes = [() if spec.type is None else sizes(spec.type.shape) for spec in specs]
    dims = np.array([*itertools.chain.from_iterable(shapes), 0], np.int64)
    records = np.zeros((max(len(specs), 1), RECORD), np.int64)
    kept: list[object] = [dims]
    lengths = [0] * len(specs)
    at = int(dims.ctypes.data)
    for number, (spec, shape) in enumerate(zip(specs, shapes, strict=True)):
        if spec.type is None:
            continue
        dtype = _own_dtype(spec.type.dtype)
        lengths[number] = nbytes = math.prod(shape) * dtype.itemsize
        kept.append(dtype)
        records[number, : Field.ELEMENT + 1] = (
            spec.slot,
            id(dtype),
            len(shape),
            at,
            nbytes,
            0,
            foreign.element_word(dtype),
        )
        at += dims.itemsize * len(shape)
    return records, kept, lengths
