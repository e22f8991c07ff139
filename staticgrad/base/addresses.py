"""Memory of arrays: aligned to cache lines; and the address of an array's data."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.base.types import Shape, sizes

ALIGNMENT = 64
_Array = np.ndarray[Any, np.dtype[Any]]


def aligned_empty(shape: Shape, dtype: np.dtype) -> _Array:
    """An uninitialised C-contiguous array whose memory begins at a multiple of 64 bytes."""
    shape = sizes(shape)
    nbytes = dtype.itemsize
    for size in shape:
        nbytes *= size
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes].view(dtype).reshape(shape)


def aligned_copy(value: _Array) -> _Array:
    """A copy of an array in memory of ``aligned_empty``."""
    array = aligned_empty(value.shape, value.dtype)
    array[...] = value
    return array


def aligned(value: _Array) -> _Array:
    """The array itself where its memory is like that of ``aligned_empty``, else a copy that has it."""
    fits = value.flags.c_contiguous and value.ctypes.data % ALIGNMENT == 0
    return value if fits else aligned_copy(value)


_DATA_OFFSET = object.__basicsize__  # of the data pointer in an array object, checked below


def _data_by_interface(array: _Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _data_by_field(array: _Array) -> int:
    return ctypes.c_void_p.from_address(id(array) + _DATA_OFFSET).value or 0


def _choose_data_address() -> Callable[[_Array], int]:
    probe = np.zeros(3)[1:]
    return _data_by_field if _data_by_field(probe) == _data_by_interface(probe) else _data_by_interface


data_address = _choose_data_address()
