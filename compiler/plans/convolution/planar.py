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

from staticgrad.base.extents import highest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.chunks import wanted_chunks
from staticgrad.compiler.plans.convolution.costs import has_short_vectors, multiply_add_cycles, seconds_of, turning
from staticgrad.compiler.plans.convolution.images import (
    Image,
    WeightStrides,
    are_planes,
    has_open_images,
    inputs_and_outputs,
    is_depthwise,
)
from staticgrad.compiler.plans.convolution.plan import Scratch, areas
from staticgrad.compiler.plans.convolution.schedule import ByUnits, Units
from staticgrad.compiler.plans.convolution.taps import Taps, forward_geometry, phase_weights
from staticgrad.compiler.plans.convolution.unstage import UnitResult
from staticgrad.compiler.plans.tiles import Tiling, choose_tiling, opened, round_up, tile_lanes

STRIP_BYTES = 128 << 10  # a strip and its block of the result stay in the second cache
STRIPS = 1.4  # cycles with copies into strips, for each of the multiply-adds
STRIPS_SHORT = 1.1  # the same with short vectors


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

    @staticmethod
    def make(kernel: Convolution, target: Target) -> Planar | None:
        suits = is_planar(kernel) and (kernel.stride[1] == 1 or not has_open_images(kernel))
        return planar_plan(kernel, target) if suits else None

    def cycles(self, kernel: Convolution, target: Target) -> float:
        """Lanes are the pixels of a row; copying into strips takes a part of the time."""
        outputs, lanes = inputs_and_outputs(kernel)[1], tile_lanes(target, kernel.dtype)
        # A tile of one vector of outputs loads a pixel for each multiply-add; a result in planes is not transposed.
        is_short = has_short_vectors(target) and (are_planes(kernel) or outputs <= lanes)
        strips = (STRIPS_SHORT if is_short else STRIPS) * turning(kernel, target)
        return strips * multiply_add_cycles(kernel, target, kernel.result_sizes[3])

    @property
    def way(self) -> str:
        copies = f", {self.copies} copies of each" if self.dealt else ""
        return f"outputs as rows: {self.tiling.text}; strips of {self.strip_rows} rows{copies}; {self.units.text()}"


def is_planar(kernel: Convolution) -> bool:
    """True if strips can be made for a kernel."""
    if kernel.direction == "weight_grad" or kernel.dtype.kind != "f" or is_depthwise(kernel):
        return False
    if kernel.stride[1] == 1:
        return kernel.direction == "forward" or kernel.stride == (1, 1)
    return kernel.direction == "forward" and kernel.stride[1] == 2 and are_planes(kernel)


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
