"""Lanes: an element, or one for each lane of a vector, while it is computed, and the builder that computes it."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.base.types import is_short_float
from staticgrad.compiler.emit.llvm import Function, Value
from staticgrad.graph.scalar import ScalarBuilder

BOOL = np.dtype(np.bool_)
INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)
UINT32 = np.dtype(np.uint32)
UINT64 = np.dtype(np.uint64)
FLOAT16 = np.dtype(np.float16)
FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)


@frozen
class Lane:
    """One element (or one for each lane) while it is computed."""

    value: Value
    dtype: np.dtype


class LaneBuilder(ScalarBuilder[Lane], Protocol):
    """The interface of the builder that writes into ``function`` for ``lanes`` elements at a time."""

    @property
    def function(self) -> Function: ...

    @property
    def lanes(self) -> int: ...


def bits_of(dtype: np.dtype) -> int:
    """The bits of an element in a register."""
    return 1 if dtype == BOOL else dtype.itemsize * 8


def is_float(dtype: np.dtype) -> bool:
    return dtype.kind == "f"


def is_signed(dtype: np.dtype) -> bool:
    return dtype.kind == "i"


def literal(value: float | int | bool, dtype: np.dtype) -> float | int | bool:
    """A number as constants of its dtype are written: of a short float the bits."""
    return int(np.array(value, dtype).view(np.uint16)) if is_short_float(dtype) else value
