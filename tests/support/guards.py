"""Arrays between pages that may not be touched: a read or write beside one ends the process, as it would where the
memory belongs to nothing. Without them such a read is only seen if what it finds reaches a result."""

from __future__ import annotations

import ctypes
import mmap
import random
from typing import Any

import numpy as np

PAGE = mmap.PAGESIZE
NO_ACCESS = 0  # PROT_NONE

_libc = ctypes.CDLL(None, use_errno=True)


def guarded(array: np.ndarray, *, at_end: bool = True) -> np.ndarray:
    """A copy of an array, C-contiguous, whose last byte (``at_end``, else its first) lies beside a page that may not
    be touched. The array keeps the pages alive, which are unmapped with it."""
    array = np.ascontiguousarray(array).reshape(np.shape(array))
    room = -(-max(array.nbytes, 1) // PAGE) * PAGE
    pages = mmap.mmap(-1, room + 2 * PAGE)
    memory = np.frombuffer(pages, np.uint8)
    for page in (0, PAGE + room):
        if _libc.mprotect(ctypes.c_void_p(memory.ctypes.data + page), ctypes.c_size_t(PAGE), NO_ACCESS):
            raise OSError(ctypes.get_errno(), "mprotect")
    first = PAGE + (room - array.nbytes if at_end else 0)
    copy = memory[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def guard(rng: random.Random, arrays: Any) -> Any:
    """Arrays of a list, each between guarded pages, at their end or their start as drawn."""
    return [guarded(array, at_end=rng.random() < 0.7) for array in arrays]
