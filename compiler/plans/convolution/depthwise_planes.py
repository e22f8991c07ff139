"""Depthwise convolutions of images that lie in planes, as users hold them, all three directions.

A small plane, whose rows are a vector or two, is read where it lies, and ``small_plane_tile`` does all of it. Another
one is brought into a frame of zeros in the first cache, and ``plane_tile`` does all of it from there, along the pixels
of a row; results go where they belong. Large planes are done in blocks of rows. A few channels of an image are a unit
of work; by weights a unit is some channels of all images, and every weight is summed in the order of images and rows, a
lane at a time, so no sum depends on the number of threads.

The floor is that of memory: each image is read once and the result written once, for two multiply-adds a byte. Copying
into the frame and reading it again costs about as much as the arithmetic, half a cycle a pixel together.
"""

from __future__ import annotations

import math

from staticgrad.base.extents import largest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.chunks import wanted_chunks
from staticgrad.compiler.plans.convolution.costs import multiply_add_cycles, seconds_of
from staticgrad.compiler.plans.convolution.images import Image, has_open_images, is_depthwise, kind_of
from staticgrad.compiler.plans.convolution.plan import Scratch, areas
from staticgrad.compiler.plans.convolution.plane_tile import PlaneTile, suits_tiles
from staticgrad.compiler.plans.convolution.schedule import ByUnits, Units
from staticgrad.compiler.plans.convolution.small_plane_tile import SmallPlaneTile, is_small, row_lanes
from staticgrad.compiler.plans.convolution.taps import Taps, forward_geometry, phase_weights
from staticgrad.compiler.plans.convolution.unstage import UnitResult
from staticgrad.compiler.plans.tiles import round_up, tile_lanes

FRAMED = 0.06  # cycles a byte of planes, copied and read again
FRAME_BYTES = 24 << 10  # of a block of rows, beside which the result passes through the first cache
UNIT_BYTES = 32 << 10  # of the result between two epilogues
UNIT_PLANES = 16  # that are a unit by weights, side by side in memory, where that leaves enough units
ENOUGH_UNITS = 16
TOGETHER_BYTES = 16 << 10  # of frames that are filled before they are read: a load that meets stores waits for them


@frozen
class PlaneFrame:
    """The rows of one plane that a block of rows of the result needs; sizes are elements. Without rows it is none:
    planes are read where they lie."""

    image: Image
    step: int = 0  # rows of the frame from one block to the next
    deals: int = 1  # rows beside each other, to which the pixels of a row are dealt out
    pitch: int = 0  # of each of them
    margins: tuple[int, ...] = ()  # where each of them begins, so that whole vectors of the image are aligned
    rows: int = 0

    def place(self, column: int) -> int:
        """The index of a column of the framed image within its row."""
        beside = column % self.deals
        return beside * self.pitch + self.margins[beside] + column // self.deals

    @property
    def row(self) -> int:
        return self.deals * self.pitch

    @property
    def elements(self) -> int:
        return self.rows * self.row

    @property
    def together(self) -> int:
        """The number of planes that are framed at a time."""
        nbytes = self.elements * self.image.dtype.itemsize
        return max(1, TOGETHER_BYTES // nbytes) if nbytes else UNIT_PLANES

    @property
    def lookahead(self) -> int:
        """The distance, in planes, from a plane to that which is prefetched with it: the one that is framed after all
        planes of the frame."""
        return self.together if self.rows else 2


@frozen
class PhaseTile:
    """A tile for the rows of one vertical phase of a block."""

    tile: PlaneTile | SmallPlaneTile
    origin: int  # row of the frame that row 0 reads first
    first: int  # row of the block


def _frame_of(image: Image, geometry: list[tuple[Taps, Taps]], lanes: int, block: int) -> PlaneFrame:
    """The frame for ``block`` rows of the result."""
    deals, spacing = geometry[0][1].step, geometry[0][0].spacing
    step = geometry[0][0].step * (block // spacing)
    low, high = image.inside(1)
    first = low + image.offset[1]
    margins = [0] * deals
    for column in range(first, first + deals):
        margins[column % deals] = -(column // deals) % lanes
    pitch = (first + deals - 1) // deals + round_up(-(-(high - low) // deals), lanes)
    rows = 0
    for vertical, horizontal in geometry:
        reach = (horizontal.origin + (horizontal.number - 1) * horizontal.dilation) // deals
        pitch = max(pitch, reach + round_up(horizontal.count, lanes))
        count = min(vertical.count, -(-block // spacing))
        rows = max(rows, vertical.origin + (count - 1) * vertical.step + (vertical.number - 1) * vertical.dilation + 1)
    return PlaneFrame(image, step, deals, round_up(pitch + max(margins), lanes), tuple(margins), max(rows, 1))


def _tiles(
    kernel: Convolution, geometry: list[tuple[Taps, Taps]], frame: PlaneFrame, block: int, y_row: int, width: int
) -> tuple[PhaseTile, ...]:
    """A tile for each vertical phase, with the horizontal ones as its phases."""
    found = []
    for vertical in dict.fromkeys(v for v, _ in geometry):
        beside = [(v, h) for v, h in geometry if v == vertical]
        offsets, weights = [], []
        for taps in beside:
            h, w = taps[1], phase_weights(kernel, taps)
            reads = [h.origin + j * h.dilation for j in range(h.number)]
            offsets.append(tuple(map(frame.place, reads)))
            weights.append((w.i, tuple(w.offset + j * w.j for j in range(h.number))))
        rows = min(vertical.count, -(-block // vertical.spacing))
        if rows == 0:
            continue
        kind = kind_of(kernel)
        tile = PlaneTile(kind, kernel.dtype, rows, width, y_row * vertical.spacing, frame.row, vertical.number,
                         vertical.step, vertical.dilation, tuple(offsets), tuple(weights) if kind == "forward" else ()
                         )  # fmt: skip
        found.append(PhaseTile(tile, vertical.origin, vertical.first))
    return tuple(found)


def _planes_of(
    kernel: Convolution, target: Target, image: Image, geometry: list[tuple[Taps, Taps]], size: tuple[int, int],
    y_row: int,
) -> tuple[PlaneFrame, tuple[PhaseTile, ...], int]:  # fmt: skip
    """The form in which planes are read, the tiles, and the number of rows of the result in a block."""
    rows, columns = size
    weights = [] if kind_of(kernel) == "weights" else [phase_weights(kernel, taps) for taps in geometry]
    small = SmallPlaneTile(kind_of(kernel), kernel.dtype, image.size, image.strides[2], image.offset, columns, y_row,
                           tuple(geometry), tuple((w.offset, w.i, w.j) for w in weights))  # fmt: skip
    if is_small(small, target):
        return PlaneFrame(image), (PhaseTile(small, 0, 0),), rows
    lanes = tile_lanes(target, kernel.dtype)
    block = _block_rows(kernel, image, geometry, rows, lanes, target.sized(FRAME_BYTES)) if rows else 0
    frame = _frame_of(image, geometry, lanes, block)
    return frame, _tiles(kernel, geometry, frame, block, y_row, columns) if columns else (), block


def _block_rows(
    kernel: Convolution, image: Image, geometry: list[tuple[Taps, Taps]], rows: int, lanes: int, most_bytes: int
) -> int:
    """The rows of a block: those whose frame fits into ``most_bytes``, of sizes that divide ``rows``; all where
    only much smaller ones do."""
    spacing = geometry[0][0].spacing

    def fits(block: int) -> bool:
        return _frame_of(image, geometry, lanes, block).elements * kernel.dtype.itemsize <= most_bytes

    divisors = [block for block in range(rows, 0, -1) if rows % block == 0 and (block % spacing == 0 or block == rows)]
    most = next((block for block in divisors if fits(block)), rows)
    return most if most >= min(rows, 4 * spacing) else rows


@frozen
class DepthwisePlanes(ByUnits):
    """The plan of a kernel of any direction. Units are channels of an image, by weights of all images."""

    kernel: Convolution
    units: Units
    frame: PlaneFrame
    tiles: tuple[PhaseTile, ...]
    block: int  # rows of the result, by weights of y
    blocks: int
    result: UnitResult  # by weights the scratch block has all of them
    scratch: Scratch

    @staticmethod
    def make(kernel: Convolution, target: Target) -> DepthwisePlanes | None:
        suits = not has_open_images(kernel) and is_planes(largest(kernel), target)
        return planes_plan(kernel, target) if suits else None

    def cycles(self, kernel: Convolution, target: Target) -> float:
        """Lanes are the pixels of a row, or of several rows that share a vector; other planes are framed."""
        columns = kernel.width if kernel.direction == "input_grad" else kernel.out_width
        image, lanes = self.frame.image, tile_lanes(target, kernel.dtype)
        if not self.frame.rows:
            return kernel.flops / (4 * lanes) * row_lanes(columns) / columns
        framed = kernel.batch * image.channels * image.size[0] * image.size[1]
        return multiply_add_cycles(kernel, target, columns) + FRAMED * framed * kernel.dtype.itemsize

    @property
    def by_weights(self) -> bool:
        return self.kernel.direction == "weight_grad"

    @property
    def way(self) -> str:
        blocks = f"{self.blocks} blocks of {self.block} rows, {len(self.tiles)} tiles"
        return f"{'weights by ' * self.by_weights}planes: {blocks}; {self.units.text('channels')}"


def is_planes(kernel: Convolution, target: Target) -> bool:
    """True if a depthwise kernel is done plane by plane: its rows are contiguous, its filters and strides small."""
    if not is_depthwise(kernel) or not kernel.x_strides[3] == kernel.y_strides[3] == 1:
        return False
    if kernel.direction == "input_grad" and kernel.width < kernel.stride[1]:
        return False  # not all phases are there
    taps = kernel.kernel[0] * kernel.kernel[1]
    return kernel.stride[1] <= 2 and taps > 0 and suits_tiles(target, kind_of(kernel), taps)


def planes_plan(kernel: Convolution, target: Target) -> DepthwisePlanes:
    """The plan of a kernel without epilogue, which has no part in it."""
    image, geometry = forward_geometry(kernel)
    channels, taps, stored = kernel.channels, math.prod(kernel.kernel), kernel.store_raw
    by_weights = kernel.direction == "weight_grad"
    _, _, rows, columns = kernel.result_sizes
    y_row = kernel.result_strides[2] if stored else columns
    if by_weights:
        rows, columns, y_row = kernel.out_height, kernel.out_width, kernel.y_strides[2]
    frame, tiles, block = _planes_of(kernel, target, image, geometry, (rows, columns), y_row)
    if by_weights:
        raw = taps, 0, kernel.kernel[1], 1
        result = UnitResult(kernel.w_strides, raw, channels, kernel.kernel[1], stored, stored)
        some = max(frame.together, min(UNIT_PLANES, channels // ENOUGH_UNITS) if block == rows else 0)
        of_unit = areas(kernel.dtype, sums=some * taps * tile_lanes(target, kernel.dtype))
    else:
        result = UnitResult.of_planes(kernel, block)
        plane_bytes = rows * columns * kernel.dtype.itemsize
        some = max(1, min(channels, target.sized(UNIT_BYTES) // plane_bytes)) if block == rows else 1
        of_unit = areas(kernel.dtype, tile=result.elements(some))
    images, wanted = 1 if by_weights else kernel.batch, wanted_chunks(seconds_of(kernel, target), target)
    frames = areas(kernel.dtype, frames=frame.together * frame.elements)
    shared = areas(kernel.dtype, raw=channels * taps) if by_weights and not stored else ()
    units, scratch = Units.of(images, some, channels, wanted), Scratch(shared, (*frames, *of_unit))
    return DepthwisePlanes(kernel, units, frame, tiles, block, rows // block if block else 0, result, scratch)
