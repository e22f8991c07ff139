"""The tiles of depthwise convolutions over small planes, whose rows fit a vector or two: all pixels of one channel."""

from __future__ import annotations

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.convolution.images import Kind
from staticgrad.compiler.plans.convolution.taps import Taps
from staticgrad.compiler.plans.tiles import tile_lanes

MOST_PRODUCTS = 160  # unrolled


@frozen
class SmallPlaneTile:
    """A plane of the result; strides in elements."""

    kind: Kind
    dtype: np.dtype
    size: tuple[int, int]  # of the plane that is read
    x_row: int
    offset: tuple[int, int]  # where it stands in the frame of the taps
    width: int  # of the result
    y_row: int
    phases: tuple[tuple[Taps, Taps], ...]
    weights: tuple[tuple[int, int, int], ...]  # for each phase, of forward: where tap (0, 0) is, and strides

    def rows(self) -> dict[Taps, list[int]]:
        """The vertical phases, and the numbers of those that make a row of each."""
        found: dict[Taps, list[int]] = {}
        for number, (vertical, _) in enumerate(self.phases):
            found.setdefault(vertical, []).append(number)
        return found

    @property
    def pitch(self) -> int:
        """Lanes of a row of a phase."""
        return row_lanes(max(horizontal.count for _, horizontal in self.phases))


def row_lanes(size: int) -> int:
    """The least power of two, at least 2, that is not below ``size``."""
    return max(2, 1 << (size - 1).bit_length())


def is_small(tile: SmallPlaneTile, target: Target) -> bool:
    """True if the rows of a phase fit a vector, those that it reads two, and all products can be unrolled."""
    lanes, pitch, width = tile_lanes(target, tile.dtype), tile.pitch, tile.size[1]
    if not target.isa.masked_loads or pitch > lanes or row_lanes(width) > 2 * pitch or tile.width == 0:
        return False
    vectors = (-(-vertical.count // (lanes // pitch)) for vertical, _ in tile.phases)
    taps = (vertical.number * horizontal.number for vertical, horizontal in tile.phases)
    return sum(a * b for a, b in zip(vectors, taps, strict=True)) <= MOST_PRODUCTS
