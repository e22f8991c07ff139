"""Memory of results: what the user has dropped is recycled, so that large results need no fresh memory.

A page that a process touches for the first time has to be found and zeroed by the operating system, which takes longer
than a kernel takes to fill it. So arrays of ``RECYCLED_FROM`` bytes or more take their memory from a pool of idle ones.

    empty(shape, dtype)    a fresh array, as ``numpy.empty``; ``maker(shape, dtype)`` makes them without an argument
    workspace(nbytes)      the same for the arenas of programs
    handler()              the memory handler that makes arrays do so, for compiled entries; None where there is none
    trim()                 give all idle blocks back to the system, as a session does that is closed

The arrays are NumPy's own in every respect: they own their memory, may be resized, and nothing but their owner writes
to it. Their memory comes through a *memory handler* of NumPy (NEP 49), which is in force only while they are made; the
handler goes with the array, so that NumPy gives the memory back to it when the array and all its views are gone.

Idle blocks are bounded in bytes and in number, the one that has lain idle longest goes first, and a block that found no
use for ``PATIENCE`` takings and givings goes as well. The handler's functions are machine code without Python, since
NumPy may call them at any time, also when the interpreter has ended; a thread that finds another one at the pool does
not wait but asks the C library instead. A forked child goes on with the blocks that it has inherited.

    block   ::= room, header (64 bytes: where the block begins, capacity), data (64-byte aligned)
    record  ::= data's address, capacity, when it was given back        of an idle block
"""

from __future__ import annotations

import contextvars
import ctypes
import functools
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from staticgrad.compiler.emit.native import NativeModule, named_words
from staticgrad.compiler.emit.target import GENERIC
from staticgrad.optable import Array
from staticgrad.runtime.state import ALIGNMENT, aligned_empty
from staticgrad.types import Shape, sizes

RECYCLED_FROM = 1 << 16  # bytes: smaller ones the C library recycles by itself
MOST_IDLE_BYTES = 1 << 29
MOST_IDLE_PART = 16  # no more than this part of the machine's memory is kept idle
PATIENCE = 4096

HEADER = 64
PAGE = 1 << 12
HUGE_FROM = 1 << 21  # bytes from which a block asks for huge pages
HUGE_PAGE = 1 << 21
MADV_HUGEPAGE = 14  # Linux


class RecyclerWord:
    """The words of the pool."""

    LOCK = 0
    LIMIT = 1  # most idle bytes
    IDLE = 2  # bytes
    CLOCK = 3  # takings and givings so far
    RECYCLED = 4  # takings that found an idle block, for those who ask
    COUNT = 5  # idle blocks
    RECORDS = 8


class IdleRecord:
    """The words of an idle block's record."""

    DATA = 0
    CAPACITY = 1
    SINCE = 2


RECORD = 3  # words
MOST_IDLE = 128  # blocks: a taking looks at them one by one

_TEXT = """
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
{advice_declaration}

; Memory from the system for so many bytes; null where there is none.
define internal ptr @fresh(i64 %size) {{
  %place = alloca ptr, align 8
  %absurd = icmp ugt i64 %size, {absurd}
  br i1 %absurd, label %none, label %measured
measured:
  %whole_pages = add i64 %size, {page_mask}
  %paged = and i64 %whole_pages, -{page}
  %enough = add i64 %paged, {header}
  %huge = icmp uge i64 %size, {huge_from}
  ; An end that is most of a huge page is one, too, unless an eighth of the block would be wasted.
  %end = add i64 %enough, {huge_mask}
  %whole = and i64 %end, -{huge_page}
  %waste = sub i64 %whole, %size
  %eighth = lshr i64 %size, 3
  %half = icmp ule i64 %eighth, {half_huge}
  %slack = select i1 %half, i64 %eighth, i64 {half_huge}
  %little = icmp ule i64 %waste, %slack
  %rounded = and i1 %huge, %little
  %total = select i1 %rounded, i64 %whole, i64 %enough
  %capacity = sub i64 %total, {header}
  %alignment = select i1 %huge, i64 {huge_page}, i64 {header}
  %failed = call i32 @posix_memalign(ptr %place, i64 %alignment, i64 %total)
  %bad = icmp ne i32 %failed, 0
  br i1 %bad, label %none, label %made
made:
  %begin = load ptr, ptr %place
  br i1 %huge, label %advise, label %ready
advise:
  %advised = and i64 %total, -{huge_page}
  {advice}
  br label %ready
ready:
  %data = getelementptr i8, ptr %begin, i64 {header}
  %capacity_place = getelementptr i64, ptr %begin, i64 1
  store ptr %begin, ptr %begin
  store i64 %capacity, ptr %capacity_place
  ret ptr %data
none:
  ret ptr null
}}

define internal i64 @capacity_of(ptr %data) {{
  %header = getelementptr i8, ptr %data, i64 -{header}
  %place = getelementptr i64, ptr %header, i64 1
  %capacity = load i64, ptr %place
  ret i64 %capacity
}}

define internal void @release(ptr %data) {{
  %header = getelementptr i8, ptr %data, i64 -{header}
  %begin = load ptr, ptr %header
  call void @free(ptr %begin)
  ret void
}}

; Whether the pool is this thread's until it unlocks.
define internal i1 @try_lock(ptr %pool) {{
{places}
  %taken = cmpxchg ptr %LOCK, i64 0, i64 1 acquire monotonic
  %mine = extractvalue {{ i64, i1 }} %taken, 1
  ret i1 %mine
}}

define internal void @unlock(ptr %pool) {{
{places}
  store atomic i64 0, ptr %LOCK release, align 8
  ret void
}}

define internal ptr @record(ptr %pool, i64 %number) {{
{places}
  %at = mul i64 %number, {record}
  %record = getelementptr i64, ptr %RECORDS, i64 %at
  ret ptr %record
}}

; Take an idle block off the records: the last one fills the gap.
define internal ptr @remove(ptr %pool, i64 %number) {{
{places}
  %gap = call ptr @record(ptr %pool, i64 %number)
  %capacity_place = getelementptr i64, ptr %gap, i64 {capacity}
  %data = load ptr, ptr %gap
  %capacity = load i64, ptr %capacity_place
  %idle = load i64, ptr %IDLE
  %less = sub i64 %idle, %capacity
  store i64 %less, ptr %IDLE
  %count = load i64, ptr %COUNT
  %fewer = sub i64 %count, 1
  store i64 %fewer, ptr %COUNT
  %last = call ptr @record(ptr %pool, i64 %fewer)
  %moved = load <{record} x i64>, ptr %last, align 8
  store <{record} x i64> %moved, ptr %gap, align 8
  ret ptr %data
}}

; The idle block that was given back first; there is at least one.
define internal i64 @oldest(ptr %pool) {{
{places}
  %count = load i64, ptr %COUNT
  br label %look
look:
  %i = phi i64 [ 0, %0 ], [ %next, %look ]
  %best = phi i64 [ 0, %0 ], [ %better, %look ]
  %least = phi i64 [ {forever}, %0 ], [ %lesser, %look ]
  %record = call ptr @record(ptr %pool, i64 %i)
  %since_place = getelementptr i64, ptr %record, i64 {since}
  %since = load i64, ptr %since_place
  %older = icmp slt i64 %since, %least
  %better = select i1 %older, i64 %i, i64 %best
  %lesser = select i1 %older, i64 %since, i64 %least
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %look, label %done
done:
  ret i64 %better
}}

; An idle block that holds so many bytes and wastes an eighth at most, else a fresh one.
define ptr @take(ptr %pool, i64 %size) {{
{places}
  %large = icmp uge i64 %size, {recycled_from}
  br i1 %large, label %asking, label %fresh
asking:
  %mine = call i1 @try_lock(ptr %pool)
  br i1 %mine, label %looking, label %fresh
looking:
  %clock = load i64, ptr %CLOCK
  %later = add i64 %clock, 1
  store i64 %later, ptr %CLOCK
  %count = load i64, ptr %COUNT
  %slack = lshr i64 %size, 3
  %allowed = add i64 %slack, {page}
  br label %check
check:
  %i = phi i64 [ %count, %looking ], [ %number, %look ]
  %some = icmp sgt i64 %i, 0
  br i1 %some, label %look, label %none
look:
  %number = sub i64 %i, 1
  %record = call ptr @record(ptr %pool, i64 %number)
  %capacity_place = getelementptr i64, ptr %record, i64 {capacity}
  %capacity = load i64, ptr %capacity_place
  %waste = sub i64 %capacity, %size
  %fits = icmp ule i64 %waste, %allowed
  br i1 %fits, label %found, label %check
found:
  %data = call ptr @remove(ptr %pool, i64 %number)
  %recycled = load i64, ptr %RECYCLED
  %once_more = add i64 %recycled, 1
  store i64 %once_more, ptr %RECYCLED
  call void @unlock(ptr %pool)
  ret ptr %data
none:
  call void @unlock(ptr %pool)
  br label %fresh
fresh:
  %new = call ptr @fresh(i64 %size)
  ret ptr %new
}}

; A block of before, whose owner is gone. NumPy also says how large the array was; the header knows better.
define void @give(ptr %pool, ptr %data, i64 %size) {{
{places}
  %nothing = icmp eq ptr %data, null
  br i1 %nothing, label %end, label %measured
measured:
  %capacity = call i64 @capacity_of(ptr %data)
  %limit = load i64, ptr %LIMIT
  %large = icmp uge i64 %capacity, {recycled_from}
  %allowed = icmp ule i64 %capacity, %limit
  %kept = and i1 %large, %allowed
  br i1 %kept, label %asking, label %releasing
asking:
  %mine = call i1 @try_lock(ptr %pool)
  br i1 %mine, label %counting, label %releasing
counting:
  %clock = load i64, ptr %CLOCK
  %later = add i64 %clock, 1
  store i64 %later, ptr %CLOCK
  br label %check
check:
  %count = load i64, ptr %COUNT
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %look, label %add
look:
  %oldest = call i64 @oldest(ptr %pool)
  %old_record = call ptr @record(ptr %pool, i64 %oldest)
  %old_place = getelementptr i64, ptr %old_record, i64 {since}
  %since = load i64, ptr %old_place
  %age = sub i64 %later, %since
  %useless = icmp sgt i64 %age, {patience}
  %full = icmp eq i64 %count, {most_idle}
  %idle = load i64, ptr %IDLE
  %sum = add i64 %idle, %capacity
  %too_much = icmp ugt i64 %sum, %limit
  %too_many = or i1 %full, %too_much
  %over = or i1 %too_many, %useless
  br i1 %over, label %evict, label %add
evict:
  %evicted = call ptr @remove(ptr %pool, i64 %oldest)
  call void @release(ptr %evicted)
  br label %check
add:
  %record = call ptr @record(ptr %pool, i64 %count)
  %capacity_place = getelementptr i64, ptr %record, i64 {capacity}
  %since_place = getelementptr i64, ptr %record, i64 {since}
  store ptr %data, ptr %record
  store i64 %capacity, ptr %capacity_place
  store i64 %later, ptr %since_place
  %more = add i64 %count, 1
  store i64 %more, ptr %COUNT
  %idle_before = load i64, ptr %IDLE
  %idle_now = add i64 %idle_before, %capacity
  store i64 %idle_now, ptr %IDLE
  call void @unlock(ptr %pool)
  ret void
releasing:
  call void @release(ptr %data)
  ret void
end:
  ret void
}}

define ptr @take_zeroed(ptr %pool, i64 %count, i64 %each) {{
  %product = call {{ i64, i1 }} @llvm.umul.with.overflow.i64(i64 %count, i64 %each)
  %size = extractvalue {{ i64, i1 }} %product, 0
  %overflow = extractvalue {{ i64, i1 }} %product, 1
  br i1 %overflow, label %none, label %taking
taking:
  %data = call ptr @take(ptr %pool, i64 %size)
  %failed = icmp eq ptr %data, null
  br i1 %failed, label %none, label %clear
clear:
  call void @llvm.memset.p0.i64(ptr %data, i8 0, i64 %size, i1 false)
  ret ptr %data
none:
  ret ptr null
}}
declare {{ i64, i1 }} @llvm.umul.with.overflow.i64(i64, i64)

define ptr @resize(ptr %pool, ptr %data, i64 %size) {{
  %nothing = icmp eq ptr %data, null
  br i1 %nothing, label %first, label %measured
first:
  %new = call ptr @take(ptr %pool, i64 %size)
  ret ptr %new
measured:
  %capacity = call i64 @capacity_of(ptr %data)
  %fits = icmp ule i64 %size, %capacity
  br i1 %fits, label %stay, label %move
stay:
  ret ptr %data
move:
  %larger = call ptr @take(ptr %pool, i64 %size)
  %failed = icmp eq ptr %larger, null
  br i1 %failed, label %none, label %copy
copy:
  call void @llvm.memcpy.p0.p0.i64(ptr %larger, ptr %data, i64 %capacity, i1 false)
  call void @give(ptr %pool, ptr %data, i64 %capacity)
  ret ptr %larger
none:
  ret ptr null
}}

; All idle blocks go back to the system, unless another thread is at the pool.
define void @trim(ptr %pool) {{
{places}
  %mine = call i1 @try_lock(ptr %pool)
  br i1 %mine, label %check, label %end
check:
  %count = load i64, ptr %COUNT
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %one, label %done
one:
  %last = sub i64 %count, 1
  %data = call ptr @remove(ptr %pool, i64 %last)
  call void @release(ptr %data)
  br label %check
done:
  call void @unlock(ptr %pool)
  ret void
end:
  ret void
}}
"""


def _text() -> str:
    linux = sys.platform == "linux"
    advice = f"call i32 @madvise(ptr %begin, i64 %advised, i32 {MADV_HUGEPAGE})"
    return _TEXT.format(
        advice_declaration="declare i32 @madvise(ptr, i64, i32)" if linux else "",
        advice=advice if linux else "",
        places=named_words(RecyclerWord, "%pool"),
        absurd=1 << 62,
        page=PAGE,
        page_mask=PAGE - 1,
        header=HEADER,
        huge_from=HUGE_FROM,
        huge_page=HUGE_PAGE,
        huge_mask=HUGE_PAGE - 1,
        half_huge=HUGE_PAGE // 2,
        recycled_from=RECYCLED_FROM,
        record=RECORD,
        capacity=IdleRecord.CAPACITY,
        since=IdleRecord.SINCE,
        forever=2**63 - 1,
        most_idle=MOST_IDLE,
        patience=PATIENCE,
    )


class _Allocator(ctypes.Structure):
    """``PyDataMem_Handler`` with its ``PyDataMemAllocator``, version 1."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


_CAPSULE = b"mem_handler"  # the name that NumPy asks for; capsules hold its address
SET_HANDLER = 304  # PyDataMem_SetHandler in NumPy's table of functions, whose numbers never change


def numpy_api(index: int) -> int:
    """The address of function ``index`` of NumPy's C API."""
    umath = importlib.import_module("numpy._core._multiarray_umath")
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    functions = get(umath._ARRAY_API, None)
    return ctypes.c_void_p.from_address(functions + 8 * index).value or 0


class Recycler:
    """The pool of idle blocks and the memory handler that takes from it. There is one in a process, for ever."""

    def __init__(self) -> None:
        module = NativeModule(_text(), GENERIC)
        self.words = np.zeros(RecyclerWord.RECORDS + RECORD * MOST_IDLE, np.int64)
        self.words[RecyclerWord.LIMIT] = _most_idle_bytes()
        self._address = self.words.ctypes.data
        functions = (module.address(name) for name in ("take", "take_zeroed", "resize", "give"))
        self._allocator = _Allocator(b"staticgrad", 1, self._address, *functions)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self.handler: object = new(ctypes.addressof(self._allocator), _CAPSULE, None)
        set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(numpy_api(SET_HANDLER))
        # NumPy keeps the handler in force in a context variable: it is in this context, and in no other one.
        self._context = contextvars.Context()
        self._context.run(set_handler, self.handler)
        self._trim = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(module.address("trim"))
        self._module = module
        # Arrays may outlive this module and everything else in Python: nothing of this is ever freed.
        keep = ctypes.pythonapi.Py_IncRef
        keep.restype, keep.argtypes = None, [ctypes.py_object]
        for part in (self, module, self.words, self._allocator, self.handler, _CAPSULE):
            keep(part)
        os.register_at_fork(after_in_child=self._start_again)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """An uninitialised array whose memory comes from the pool."""
        return self._context.copy().run(np.empty, shape, dtype)  # in one step; a context is for one thread at a time

    def trim(self) -> None:
        """Give all idle blocks back to the system."""
        self._trim(self._address)

    def _start_again(self) -> None:
        """In a forked child: whoever was at the pool has stayed with the parent, and left it as it may be."""
        if self.words[RecyclerWord.LOCK]:
            self.words[RecyclerWord.IDLE] = self.words[RecyclerWord.COUNT] = self.words[RecyclerWord.LOCK] = 0


def _most_idle_bytes() -> int:
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):  # a system that does not say
        return MOST_IDLE_BYTES
    return min(MOST_IDLE_BYTES, memory // MOST_IDLE_PART)


@functools.cache
def recycler() -> Recycler | None:
    """The process's recycler; None without POSIX memory or CPython's interface, where results are NumPy's own."""
    is_served = sys.implementation.name == "cpython" and os.name == "posix" and hasattr(os, "register_at_fork")
    return Recycler() if is_served and sys.maxsize > 2**62 else None


def handler() -> object | None:
    """The memory handler for arrays that are recycled; None where there is none. It lives as long as the process."""
    found = recycler()
    return None if found is None else found.handler


def maker(shape: Shape, dtype: np.dtype) -> Callable[[], Array]:
    """What makes uninitialised C-contiguous arrays that own their memory; a large one recycles what others dropped."""
    static = sizes(shape)
    nbytes = dtype.itemsize
    for size in static:
        nbytes *= size
    found = recycler() if nbytes >= RECYCLED_FROM else None
    return functools.partial(np.empty if found is None else found.empty, static, dtype)


def empty(shape: Shape, dtype: np.dtype) -> Array:
    """One such array."""
    return maker(shape, dtype)()


def workspace(nbytes: int) -> Array:
    """So many bytes that begin at a multiple of 64, for a program to work in; recycled as results are."""
    place = empty((nbytes,), np.dtype(np.uint8))
    return aligned_empty((nbytes,), place.dtype) if place.ctypes.data % ALIGNMENT else place


def trim() -> None:
    """Give the memory of dropped results back to the system."""
    if recycler.cache_info().currsize:
        cast(Any, recycler()).trim()
