"""The tiles of depthwise convolutions over planes: some rows of one channel, vectors along the pixels of a row.

A ``PlaneTile`` says how the plane that is read lies in its frame and which taps a pixel sums. ``phases`` are the pixels
with equal remainders of a transpose with a stride, each with taps of its own.
"""

from __future__ import annotations

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.convolution.images import Kind

MOST_ROWS = 4  # of the result at a time
MOST_PRODUCTS = 128  # unrolled for one vector of each row
MOST_TAPS = 64


@frozen
class PlaneTile:
    """``rows`` × ``width`` pixels of the result; offsets and strides in elements."""

    kind: Kind
    dtype: np.dtype
    rows: int
    width: int
    y_row: int
    x_row: int  # from one row of the frame to the next
    taps: int  # filter rows
    step: int  # rows of the frame from one row of the result to the next
    dilation: int  # from one filter row to the next
    phases: tuple[tuple[int, ...], ...]  # where the taps of a filter row read, for pixels q·phases + number
    weights: tuple[tuple[int, tuple[int, ...]], ...]  # for each phase, of forward: between filter rows, of its taps

    @property
    def together(self) -> int:
        """Rows of the result at a time."""
        taps = max(1, self.taps * sum(map(len, self.phases)))
        return max(1, min(MOST_ROWS, self.rows, MOST_PRODUCTS // taps))


def suits_tiles(target: Target, kind: Kind, taps: int) -> bool:
    """True if that number of taps can be unrolled, and their sums kept in registers."""
    return taps <= (target.isa.registers - MOST_ROWS - 2 if kind == "weights" else MOST_TAPS)
