"""Running sums of many short columns that lie one after the other: how many of them are run as one."""

from __future__ import annotations

import math

from staticgrad.base.extents import highest, is_open
from staticgrad.compiler.kernels.routines import Cumulation
from staticgrad.compiler.machine.target import Target

# Vectors up to which columns are run together, in groups that fill about that number of vectors.
LONGEST_TOGETHER = 4
FEWEST_TOGETHER, MOST_TOGETHER = 4, 32


def run_together(routine: Cumulation, target: Target) -> int:
    """The number of short columns that are run together, one after the other; 0 where each is run alone."""
    lanes = target.lanes(routine.dtype)
    if (
        routine.kind == "recurrence"
        or routine.width != 1
        or lanes == 1
        or not 1 < highest(routine.length) <= LONGEST_TOGETHER * lanes
    ):
        return 0
    if is_open(routine.length):
        return lanes if routine.dtype.itemsize >= 4 else 0
    columns = lanes // math.gcd(lanes, routine.length)
    while columns * routine.length < FEWEST_TOGETHER * lanes:
        columns *= 2
    return columns if columns * routine.length <= MOST_TOGETHER * lanes else 0
