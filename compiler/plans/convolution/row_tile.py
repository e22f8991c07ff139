"""The tiles of depthwise convolutions over rows: some pixels of one row, all channels.

Accumulators are the pixels (forward) or the taps of one filter row (weights).
"""

from __future__ import annotations

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.convolution.images import Kind

MOST_PIXELS = 8  # of a tile: two vectors a cycle with a latency of four cycles


@frozen
class RowTile:
    """Pixels next to each other in a row of the result."""

    kind: Kind
    dtype: np.dtype
    taps: int
    step: int  # pixels of x from one pixel of y to the next
    dilation: int
    reach: tuple[tuple[int, int], ...]  # for each pixel the taps [low, high) that lie inside the image
    vectors: int  # of channels at a time
    ragged: bool  # channels are not whole vectors

    @property
    def pixels(self) -> int:
        return len(self.reach)

    def columns(self) -> dict[int, list[tuple[int, int]]]:
        """For each pixel of x that is read, the pixels of y and taps that meet there."""
        found: dict[int, list[tuple[int, int]]] = {}
        for t, (low, high) in enumerate(self.reach):
            for j in range(low, high):
                found.setdefault(t * self.step + j * self.dilation, []).append((t, j))
        return dict(sorted(found.items()))


def most_pixels(target: Target, taps: int) -> int:
    """The greatest number of pixels that one tile can take in the registers, with one vector of channels.

    Forward these are accumulators, beside the weights of a filter row and one element of x; by weights it is the
    other way round.
    """
    return max(2, min(MOST_PIXELS, target.isa.registers - 2 - taps))


def vectors_at_once(target: Target, kind: str, pixels: int, taps: int, whole: int) -> int:
    """The number of vectors of channels to take at a time, so that there are enough chains of sums; it divides
    ``whole``."""
    chains = pixels if kind == "forward" else taps
    vectors = 1
    while 2 * vectors * chains <= MOST_PIXELS and (pixels + taps) * 2 * vectors + 2 <= target.isa.registers:
        vectors *= 2
    while whole % vectors:
        vectors //= 2
    return max(1, vectors)
