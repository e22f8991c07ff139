"""The fast entry: a Python function in machine code that checks arrays, makes results and calls a program.

Calling a small program through ctypes costs more than running it. So one function is made, once in a process, with
CPython's own calling convention (``METH_FASTCALL | METH_KEYWORDS``). It is driven by a *descriptor*, a table of 64-bit
words that is its ``self``: what arrays to expect, where their addresses go, what to allocate, what to call. Numbers
of Python and tensors of other frameworks are read where they lie (``foreign``). Whatever is not exactly as
expected — another shape, a list, an array to be cast, a lock that is held, a closed session — is left to the
executable's ``slow`` path in Python, which converts it or raises.

A descriptor's memory is one call's at a time: ``busy`` says that it is in use, and a second call goes the slow way,
which has memory of its own. Programs that touch state take the session's lock (``locks``); those that keep the GIL look
whether it is free (its gate is zero) instead; where there is no GIL, all take it. What else than variables a run
changes (their versions, the run number, which gradients are there) is changed here, so that no exception comes between.

It reads fields of array, list and tuple objects directly. Their offsets are not asked for by version: they are probed
on real objects, once in a process, and where one differs (another interpreter, a layout to come) there is no fast
entry, and every call goes the way through Python.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.base.types import TensorType, sizes
from staticgrad.compiler.machine.target import Target, current_target
from staticgrad.compiler.native.module import NativeModule
from staticgrad.runtime.parts import foreign, results
from staticgrad.runtime.parts.entry_words import (
    API,
    DATA,
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
)
from staticgrad.runtime.parts.locks import addresses
from staticgrad.runtime.parts.machinery import once
from staticgrad.runtime.parts.vectorcall import IS_FREE_THREADED, MethodDef, function_of, interpreter_address, is_known

READ_YET = 16  # sizes whose records are kept for calls that have begun with them
_UNKNOWN = np.zeros((256, RECORD), np.int64)  # records that no array has, for the feeds of a sized entry
_UNKNOWN_ADDRESS = _UNKNOWN.ctypes.data
MOST_LEAVES = 256  # the result objects of a call lie on the stack until the list takes them, as do addresses
MOST_GIVEN = 2048


def layout_is_known() -> bool:
    """True if the fields lie where this module expects them. An address that was read is followed only where its
    surroundings are as they should be: another layout shall be found out, not run into."""
    return is_known() and _arrays_are_known() and _tuples_are_known() and _lists_are_known()


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


# -- making entries -------------------------------------------------------------------------------------------------


METH_FASTCALL_KEYWORDS = 0x0080 | 0x0002
_OUT = sys.intern("out")


@frozen
class _EntryRuntime:
    """The objects that all entries of a process share."""

    module: NativeModule
    definition: MethodDef
    fence: Callable[[], None]
    api: np.ndarray[Any, np.dtype[np.uint64]]


NEW_FROM_DESCR = 94  # PyArray_NewFromDescr


def _text(target: Target) -> str:
    from staticgrad.runtime.parts import entry_text

    return entry_text.text(target)


def _key() -> str:
    """The name under which machine code of the entry is kept: it differs by interpreter."""
    return f"entry for {sys.implementation.cache_tag}{' without the GIL' * IS_FREE_THREADED}"


@once
def _machinery() -> _EntryRuntime | None:
    if not layout_is_known():
        return None
    objects = {"PyArray_Type": np.ndarray, "PyList_Type": list, "Py_None": None, "out": _OUT}
    addresses = {name: id(value) for name, value in objects.items()}
    addresses["PyArray_NewFromDescr"] = results.numpy_api(NEW_FROM_DESCR)
    addresses["known"] = foreign.known_address()
    addresses["PyDataMem_SetHandler"] = results.numpy_api(results.SET_HANDLER)
    for name in API:
        if name not in addresses:
            addresses[name] = interpreter_address(name)
    target = current_target()
    native = NativeModule(functools.partial(_text, target), target, key=_key())
    definition = MethodDef(b"executable", native.address("enter"), METH_FASTCALL_KEYWORDS, None)
    fence = ctypes.CFUNCTYPE(None)(native.address("order"))
    return _EntryRuntime(native, definition, fence, np.array([addresses[name] for name in API], np.uint64))


def order() -> None:
    """Let others see what was written before, before anything that follows is read."""
    machinery = _machinery()
    if machinery is not None:  # else nothing is called in machine code
        machinery.fence()


def forward_address() -> int:
    """The address of the function by which objects are called (``vectorcall``); 0 where there are no entries
    either."""
    machinery = _machinery()
    return 0 if machinery is None else machinery.module.address("forward")


class Descriptor(np.ndarray[Any, np.dtype[np.uint64]]):
    """The words, the addresses of the words that are set to 1 after a run, and everything that must live as long as the
    entry does."""

    marks: np.ndarray[Any, np.dtype[np.uint64]]
    kept: tuple[object, ...]
    arrays: deque[Records]  # of the latest sizes that it was pointed at, some of which a call may yet read


@frozen
class ArraySpec:
    """An array of a call: where its address goes and its type; an op has no type."""

    slot: int
    type: TensorType | None


@frozen
class EntrySpec:
    """The data of an entry. Addresses are those of memory that ``kept`` keeps alive; 0 says: not needed."""

    main: int
    table: int
    arena: int
    pool: int
    releases: bool
    gate: int
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


def make_entry(spec: EntrySpec) -> tuple[Callable[..., Any], Descriptor] | None:
    """A Python function for ``spec`` and its descriptor; None where this Python or NumPy has another layout, a call is
    too large, or machine code cannot take the session's lock."""
    machinery = _machinery()
    acquire, release = addresses()
    too_large = len(spec.leaves) > MOST_LEAVES or len(spec.feeds) > MOST_GIVEN
    if machinery is None or too_large or (spec.lock and not acquire):
        return None
    feeds, feed_dims = _records(spec.feeds, made=False)
    leaves, leaf_dims = _records(spec.leaves, made=True)
    versions = np.array(list(spec.versions) or [0], np.uint64)
    marks = np.zeros(max(spec.marks, 1), np.uint64)
    words = np.zeros(EntryWord.FIRST_API + len(API), np.uint64).view(Descriptor)
    values = {
        EntryWord.MAIN: spec.main, EntryWord.TABLE: spec.table, EntryWord.ARENA: spec.arena,
        EntryWord.RELEASES: int(spec.releases), EntryWord.GATE: spec.gate, EntryWord.CLOSED: spec.closed,
        EntryWord.RANDOM: spec.random, EntryWord.KEY: spec.key, EntryWord.FEEDS: len(spec.feeds),
        EntryWord.FEED_RECORDS: feeds.ctypes.data, EntryWord.LEAVES: len(spec.leaves),
        EntryWord.LEAF_RECORDS: leaves.ctypes.data, EntryWord.SINGLE: int(spec.single), EntryWord.WRITES: spec.writes,
        EntryWord.VERSIONS: len(spec.versions), EntryWord.VERSION_ADDRESSES: versions.ctypes.data,
        EntryWord.SLOW: id(spec.slow), EntryWord.FAIL: id(spec.fail), EntryWord.POOL: spec.pool,
        EntryWord.LOCK: spec.lock, EntryWord.KIND: spec.kind, EntryWord.ACQUIRE: acquire, EntryWord.RELEASE: release,
        EntryWord.WRITING: spec.writing, EntryWord.MARKS: spec.marks, EntryWord.MARK_ADDRESSES: marks.ctypes.data,
        EntryWord.BEGIN: spec.interrupts[0], EntryWord.RAISE: spec.interrupts[1],
        EntryWord.GUARDED: int(bool(spec.lock or spec.marks or spec.interrupts[0])),
    }  # fmt: skip
    for word, value in values.items():
        words[word] = value
    words[EntryWord.FIRST_API :] = machinery.api
    words.marks, words.arrays = marks, deque(maxlen=READ_YET)
    words.kept = (spec, feeds, feed_dims, leaves, leaf_dims, versions, machinery)
    return function_of(machinery.definition, words, None), words


def closed(words: Descriptor) -> bool:
    """Let an entry know no arrays, so that every call goes the slow way; False, and it stays as it is, where one is
    running. Each step is one to other threads, and a call says that it runs before it looks at the word for the feeds:
    of the two at least one sees the other."""
    before = words[EntryWord.FEED_RECORDS]
    words[EntryWord.FEED_RECORDS] = _UNKNOWN_ADDRESS
    if IS_FREE_THREADED:
        order()
    if words[EntryWord.BUSY]:
        words[EntryWord.FEED_RECORDS] = before
        return False
    return True


class Records:
    """The records of the arrays of a call, and their addresses."""

    __slots__ = ("feeds", "kept", "leaves")

    def __init__(self, feeds: Sequence[ArraySpec], leaves: Sequence[ArraySpec]) -> None:
        (given, given_dims), (made, made_dims) = _records(feeds, made=False), _records(leaves, made=True)
        self.feeds, self.leaves = given.ctypes.data, made.ctypes.data
        self.kept = given, given_dims, made, made_dims


def follow(words: Descriptor, other: Descriptor) -> None:
    """Let calls that find ``words`` in use take those of ``other``, a frame for the same arrays."""
    words.kept += (other,)
    words[EntryWord.NEXT] = other.ctypes.data


def open_for(words: Descriptor, records: Records) -> None:
    """Let an entry that was ``closed`` know these arrays, of the number that it was made for."""
    words.arrays.append(records)
    words[EntryWord.LEAF_RECORDS] = records.leaves
    words[EntryWord.FEED_RECORDS] = records.feeds


_Words = np.ndarray[Any, np.dtype[np.int64]]


@functools.cache
def _own_dtype(dtype: np.dtype) -> np.dtype:
    """The object that arrays of a dtype have."""
    return np.dtype(dtype.name)


def _records(specs: Sequence[ArraySpec], *, made: bool) -> tuple[_Words, list[object]]:
    """The records of arrays that the entry is given or makes, and what they point to."""
    shapes = [() if spec.type is None else sizes(spec.type.shape) for spec in specs]
    dims = np.array([*itertools.chain.from_iterable(shapes), 0], np.int64)
    records = np.zeros((max(len(specs), 1), RECORD), np.int64)
    kept: list[object] = [dims]
    at = int(dims.ctypes.data)
    for number, (spec, shape) in enumerate(zip(specs, shapes, strict=True)):
        if spec.type is None:
            continue
        dtype = _own_dtype(spec.type.dtype)
        nbytes = math.prod(shape) * dtype.itemsize
        handler = results.handler() if made and nbytes >= results.RECYCLED_FROM else None
        kept += [dtype, handler]
        element, maker = foreign.element_word(dtype), 0 if handler is None else id(handler)
        records[number] = spec.slot, id(dtype), len(shape), at, nbytes, maker, element
        at += dims.itemsize * len(shape)
    return records, kept
