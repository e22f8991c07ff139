"""Memory of results: what the user has dropped is recycled, so that large results need no fresh memory.

A page that a process touches for the first time is a page fault, and has to be found and zeroed by the operating
system, which takes longer than a kernel takes to fill it. So arrays of ``RECYCLED_FROM`` bytes or more take their
memory from a pool of idle ones.

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
import os
import sys
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from staticgrad.base.addresses import ALIGNMENT, aligned_empty
from staticgrad.base.types import Shape, sizes
from staticgrad.graph.optable import Array
from staticgrad.runtime.parts.descriptors import SET_HANDLER, numpy_api
from staticgrad.runtime.parts.machinery import native_part

RECYCLED_FROM = 1 << 16  # bytes: smaller ones the C library recycles by itself
MOST_IDLE_BYTES = 1 << 29
MOST_IDLE_PART = 16  # no more than this part of the machine's memory is kept idle
PATIENCE = 4096

ABSURD = 1 << 62  # bytes that no memory has
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
    ADVICE = 6  # MADV_HUGEPAGE where the system has it, else 0
    RECORDS = 8


class IdleRecord:
    """The words of an idle block's record."""

    DATA = 0
    CAPACITY = 1
    SINCE = 2


RECORD = 3  # words
MOST_IDLE = 128  # blocks: a taking looks at them one by one


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


class Recycler:
    """The pool of idle blocks and the memory handler that takes from it. There is one in a process, for ever."""

    def __init__(self) -> None:
        module = native_part(__file__, "results")
        self.words = np.zeros(RecyclerWord.RECORDS + RECORD * MOST_IDLE, np.int64)
        self.words[RecyclerWord.LIMIT] = _most_idle_bytes()
        self.words[RecyclerWord.ADVICE] = MADV_HUGEPAGE if sys.platform == "linux" else 0
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
    """A function that makes uninitialised C-contiguous arrays that own their memory; a large one recycles what others
    dropped."""
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
    """A number of bytes that begin at a multiple of 64, for a program to work in; recycled as results are."""
    place = empty((nbytes,), np.dtype(np.uint8))
    return aligned_empty((nbytes,), place.dtype) if place.ctypes.data % ALIGNMENT else place


def trim() -> None:
    """Give the memory of dropped results back to the system."""
    if recycler.cache_info().currsize:
        cast(Any, recycler()).trim()
