"""Rows that are sorted by partitions: the ranges that are parted, their memory, and the work that they may take."""

from __future__ import annotations

import numpy as np

from staticgrad.base.extents import highest
from staticgrad.compiler.machine.target import Target

IN_REGISTERS = 8  # vectors of a block, which is sorted in registers; two blocks are merged in another eight
DEPTH = 64  # ranges that wait: the shorter part is sorted first, so there are no more than bits in a count
STACK_BYTES = 2 * 8 * DEPTH


def shortest(target: Target, dtype: np.dtype) -> int:
    """The most words of a range that is not partitioned any more."""
    return 2 * IN_REGISTERS * target.lanes(dtype)


def behind(target: Target, dtype: np.dtype) -> int:
    """The words behind a row that are loaded, and stored again, with those of its last range."""
    return target.lanes(dtype) if target.isa.predicated else shortest(target, dtype)


def work(target: Target, dtype: np.dtype, length: int) -> int:
    """The words that partitions of a row of ``length`` may read: more than twice those of most rows."""
    levels = (highest(length) // shortest(target, dtype)).bit_length()
    return length * (2 * levels + 4)
