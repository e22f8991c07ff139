"""Convolution forward and its transpose by data with vectors along the pixels of a row: where a group has few outputs,
and where images lie in planes and a group has few inputs, as the first layer of a network.

With fewer filters than a vector has lanes, channels-last tiles would leave most lanes idle; and a result in planes
would have to be transposed, which takes as long as the few terms of a first layer. Here columns of tiles are pixels
along q, rows are filters, terms are taps j, and blocks are pairs (i, c). What is read is a *strip*, the rows of one
image that a block of rows of the result needs, framed with zeros, as ``[group][row][channel][column]``: in this order
the blocks (i, c) of a pixel are evenly spaced. With a stride along the row the strip has a copy of each row for every
tap, ``[group][row][channel][j][q]``, with the pixels that this tap reads; terms are then (i, c, j). Weights are packed
as ``[group][filter][i][c][j]``. A result in planes is written where it belongs, others go through a scratch row.

The floor is that of the arithmetic. The result of a first layer is many times its image, and for 27 terms at two
multiply-adds a cycle the 4 bytes of an element take 0.84 cycles: as long as memory takes them, if it takes them in
order; so of a block of rows some planes are written after each other, not all planes row by row.
"""

from __future__ import annotations

import numpy as np

from staticgrad.base.extents import highest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.chunks import wanted_chunks
from staticgrad.compiler.plans.convolution.images import Image, WeightStrides, seconds_of
from staticgrad.compiler.plans.convolution.plan import Scratch, areas
from staticgrad.compiler.plans.convolution.schedule import ByUnits, Units
from staticgrad.compiler.plans.convolution.taps import Taps, forward_geometry, phase_weights
from staticgrad.compiler.plans.convolution.unstage import UnitResult
from staticgrad.compiler.plans.tiles import Tiling, choose_tiling, opened, round_up, tile_lanes

STRIP_BYTES = 128 << 10  # a strip and its block of the result stay in the second cache
GAIN = 1.4  # of lanes in use, from which on a strip is worth its copying
GAIN_SHORT, SHORT_BYTES = 1.1, 32  # with vectors so short that the arithmetic takes longer beside it
FEW_INPUTS = 8  # of a group: so few that copying them into strips is little beside the result, if that is in planes
LEAST_USE = 0.75  # of lanes then, as a share of those that channels last would use


@frozen
class Planar(ByUnits):
    """The plan of a kernel; sizes are elements unless said otherwise."""

    image: Image
    taps: tuple[Taps, Taps]
    weights: WeightStrides
    dealt: bool  # whether the strip has a copy of each row for every tap along it, as the stride there is not one
    tiling: Tiling  # outputs of a group × columns
    pitch: int  # of a row of one channel in the strip
    strip_rows: int  # of a whole block of rows
    result: UnitResult
    units: Units
    scratch: Scratch

    @property
    def terms(self) -> int:
        return self.taps[0].number * self.taps[1].number * self.image.channels

    @property
    def copies(self) -> int:
        """The number of copies of each row in the strip."""
        return self.taps[1].number if self.dealt else 1

    @property
    def strip_row(self) -> int:
        return self.image.channels * self.copies * self.pitch

    @property
    def strip_group(self) -> int:
        return self.strip_rows * self.strip_row

    @property
    def planes(self) -> bool:
        """True if tiles are written where the result, or the epilogue, wants them."""
        return self.result.strides[3] == 1

    @property
    def way(self) -> str:
        copies = f", {self.copies} copies of each" if self.dealt else ""
        return f"outputs as rows: {self.tiling.text}; strips of {self.strip_rows} rows{copies}; {self.units.text()}"


def _lanes_used(target: Target, dtype: np.dtype, count: int) -> float:
    """The share of lanes in use, of vectors over ``count`` elements."""
    return count / round_up(max(count, 1), tile_lanes(target, dtype))


def is_planar(kernel: Convolution, target: Target) -> bool:
    """True if vectors along pixels use so many more lanes than along channels that they are worth a strip."""
    back = kernel.direction == "input_grad"
    if kernel.direction == "weight_grad" or kernel.dtype.kind != "f" or (back and kernel.stride != (1, 1)):
        return False
    planes = kernel.x_strides[3] == kernel.y_strides[3] == 1
    if kernel.stride[1] > (2 if planes else 1):
        return False
    (_, total, _, columns), groups = kernel.result_sizes, kernel.groups
    inputs, outputs = (kernel.filters if back else kernel.channels) // groups, total // groups
    along, across = (_lanes_used(target, kernel.dtype, count) for count in (columns, outputs))
    # A tile of one vector of outputs loads a pixel for each multiply-add; a result in planes is not transposed.
    short = target.isa.vector_bytes <= SHORT_BYTES and (planes or outputs <= tile_lanes(target, kernel.dtype))
    gain = GAIN_SHORT if short else GAIN
    return along > gain * across or (planes and inputs <= FEW_INPUTS and along > LEAST_USE * across)


def planar_plan(kernel: Convolution, target: Target) -> Planar:
    """The plan of a kernel without epilogue, which has no part in it."""
    image, (taps,) = forward_geometry(kernel)
    (vertical, horizontal), size = taps, kernel.dtype.itemsize
    batch, total, rows, columns = kernel.result_sizes
    inputs, outputs = image.groups * image.channels, total // image.groups
    terms = vertical.number * image.channels * horizontal.number
    tiling = opened(choose_tiling(target, kernel.dtype, outputs, highest(columns), terms), outputs, columns)
    lanes, dealt, planes = tiling.lanes, horizontal.step > 1, kernel.result_strides[3] == 1
    ends = lanes if dealt else (horizontal.number - 1) * horizontal.dilation
    pitch = round_up(tiling.column_panels * tiling.width + ends, lanes)
    lines = inputs * (horizontal.number if dealt else 1)

    reach = (vertical.number - 1) * vertical.dilation + 1
    high, line_bytes = highest(rows), lines * highest(pitch) * size
    row_bytes = vertical.step * line_bytes + highest(columns) * total * size
    most = max(1, (target.sized(STRIP_BYTES) - max(0, reach - vertical.step) * line_bytes) // row_bytes)
    most = max(most, min(high, 2 * reach))  # what overlaps is copied twice
    wanted = wanted_chunks(seconds_of(kernel, target), target)
    if wanted > 1 and highest(batch) < wanted:
        most = min(most, max(-(-high * highest(batch) // wanted), reach))
    block = -(-high // -(-high // min(most, high)))
    strip_rows = (block - 1) * vertical.step + reach
    by_pixels = UnitResult.of_pixels(kernel, round_up(total, lanes), direct=True)
    result = UnitResult.of_planes(kernel, block) if planes else by_pixels
    own = areas(
        kernel.dtype,
        strip=(strip_rows + dealt) * lines * pitch,
        line=0 if planes else outputs * round_up(columns, lanes),
        tile=result.elements(total if planes else block),
    )
    units, scratch = Units.of(batch, block, rows, wanted), Scratch(areas(kernel.dtype, weights=total * terms), own)
    weights = phase_weights(kernel, taps)
    return Planar(image, taps, weights, dealt, tiling, pitch, strip_rows, result, units, scratch)
