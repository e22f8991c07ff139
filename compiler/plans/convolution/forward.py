"""Convolution forward and its transpose by data: batch-reduce products of framed images with packed weights.

* ``forward``: rows of tiles are pixels along q, columns are filters, terms are runs of (j, c), blocks are filter rows
  i. Weights are packed as ``[group][panel][i][j][c][filters]``.
* ``input_grad``: the same with the weights flipped and transposed, of a framed y. With strides above one the pixels
  of x fall into stride × stride *phases* by their remainders; each is a forward convolution of its own, of stride one
  and with the taps that reach that phase (no zeros are multiplied).

The unit of work is a block of rows of the result of one image, which stays in the second cache: the rows that it reads
are brought into a strip (``strips``); of the taps above or below the image none is computed; tiles are written to the
result where its channels are contiguous, else to a scratch block, which is transposed into the result from there; then
the epilogue is called.

The floor is that of the arithmetic, two multiply-adds a cycle. Images in planes cost two transposes more, about
0.02 + 0.06 ns an element (float32, AVX-512) if both sides are in the second cache: with 64 channels and filters of
3×3 that is 2 % of the time, less with more. Lanes along the pixels would need none, but leave 3 to 12 % of the lanes
idle at the ends of rows and cannot leave out taps.

A kernel that takes long is cut in chunks of units; before that, panels of weights where these are many. Images of a
range of heights and widths have blocks and tiles of the greatest; taps beside the image are then not left out but
multiplied by zeros.
"""

from __future__ import annotations

import math

from staticgrad.base.extents import highest, is_open, is_same
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.chunks import wanted_chunks
from staticgrad.compiler.plans.convolution.costs import has_short_vectors, multiply_add_cycles, seconds_of, turning
from staticgrad.compiler.plans.convolution.images import (
    ALIAS,
    Image,
    are_planes,
    inputs_and_outputs,
    is_depthwise,
    is_run,
)
from staticgrad.compiler.plans.convolution.packing import Phase, WeightPacking
from staticgrad.compiler.plans.convolution.plan import Area, Scratch, areas
from staticgrad.compiler.plans.convolution.schedule import PackingPlan, Units
from staticgrad.compiler.plans.convolution.strips import Strip
from staticgrad.compiler.plans.convolution.taps import Taps, all_inside, beside, forward_geometry, phase_weights
from staticgrad.compiler.plans.convolution.unstage import UnitResult
from staticgrad.compiler.plans.tiles import Tiling, choose_tiling, opened, round_up, tile_lanes

ROW_BLOCK_BYTES = 192 << 10  # of the result between two epilogues
PANEL_BYTES = 256 << 10  # of packed weights that one pass over a block of rows uses
WORTH_LEAVING = 0.005  # of the taps of a row: what leaving out is worth, in larger code
LEAST_TERMS = 8  # channels of a tap: where taps are left out each is a loop, which costs more if it turns seldom
FEW_INPUTS = 8  # of a group, up to which turning the result takes about as long as the arithmetic
TURNED = 1.4 / 0.75  # cycles for each of the multiply-adds then
TURNED_SHORT = 1.1 / 0.75  # the same with short vectors
ROW_BLOCKS = 16  # of all images at least, where the work is shared


@frozen
class ForwardPlan(PackingPlan):
    """Phases over one framed image: what both ``forward`` (one phase) and ``input_grad`` are."""

    strip: Strip
    packing: WeightPacking
    units: Units  # blocks of rows, a multiple of the phases' spacing
    flat: bool  # rows are one run of pixels: a single row to the tiles
    result: UnitResult
    packed: Scratch  # packed weights, with the buffer through which they are packed
    scratch: Scratch  # that of ``packed`` only where the kernel itself packs its weights

    @staticmethod
    def make(kernel: Convolution, target: Target) -> ForwardPlan | None:
        return None if kernel.direction == "weight_grad" or is_depthwise(kernel) else forward_plan(kernel, target)

    def cycles(self, kernel: Convolution, target: Target) -> float:
        """Lanes are the outputs of a group; bringing images in planes into another form takes a part of the time, and
        as long as the multiply-adds where these are of few inputs."""
        inputs, outputs = inputs_and_outputs(kernel)
        turned = turning(kernel, target)
        if inputs <= FEW_INPUTS and are_planes(kernel):
            turned *= TURNED_SHORT if has_short_vectors(target) else TURNED
        return turned * multiply_add_cycles(kernel, target, outputs)

    @property
    def image(self) -> Image:
        return self.strip.image

    @property
    def way(self) -> str:
        tiles = " + ".join(phase.tiling.text for phase in self.packing.phases)
        flat = ", rows as one run" if self.flat else ""
        weights = "weights packed" if self.packs else "weights given packed"
        images = "images in place" if self.image.in_place else f"strips of {self.strip.rows} rows"
        reads_ahead = not self.image.in_place or (self.result.stored and not self.result.direct)
        ahead = ", the next prefetched" * (reads_ahead and self.units.count != 1)
        return f"rows of pixels: {tiles}{flat}; {weights}, {images}{self.result.text}; {self.units.text()}{ahead}"

    def counts(self, phase: Phase) -> tuple[int, int, int, int]:
        """The numbers of panels, passes over their taps, rows of a unit and tiles of a row in a phase, for one
        group."""
        rows = 1 if self.flat else -(-self.units.rows // phase.taps[0].spacing)
        return phase.tiling.column_panels, -(-phase.kernel[0] // phase.tap_rows), rows, phase.tiling.row_panels

    @property
    def unit_tiles(self) -> int:
        """The number of tiles of a unit, for one group."""
        return sum(math.prod(self.counts(phase)) for phase in self.packing.phases)


def _left_out(horizontal: Taps, image: Image, tiling: Tiling) -> tuple[int, int]:
    """The taps that the first and the last pixel of a row leave out: none where that is not worth larger tiles."""
    if is_open(horizontal.count):
        return 0, 0
    left, right = beside(horizontal, image)
    if image.channels < LEAST_TERMS and is_run(image, horizontal.number, horizontal.dilation):
        return 0, 0
    worth = left + right >= WORTH_LEAVING * horizontal.number * horizontal.count
    return (left, right) if left + right and worth and min(tiling.heights()) > 1 else (0, 0)


def forward_plan(kernel: Convolution, target: Target) -> ForwardPlan:
    """The plan of a kernel without epilogue, which has no part in it."""
    image, geometry = forward_geometry(kernel)
    (batch, total, rows, columns), size = kernel.result_sizes, kernel.dtype.itemsize
    outputs, lanes = total // image.groups, tile_lanes(target, kernel.dtype)
    # A line more than its channels where those of pixels would fall into few sets of the cache.
    result = UnitResult.of_pixels(kernel, round_up(total, lanes) + (lanes if total * size % ALIAS == 0 else 0))
    flat = kernel.kernel == (1, 1) and len(geometry) == 1
    flat = flat and (not result.direct or is_same(kernel.result_strides[2], columns * kernel.result_strides[3]))
    flat = flat and is_same(geometry[0][0].step * image.row, columns * geometry[0][1].step * image.pixel)
    flat = flat and all_inside(geometry[0][0], image)
    phases: list[Phase] = []
    packed = 0
    for taps in geometry:
        reached = taps[0].number > 0 and taps[1].number > 0
        channels = image.channels if reached else 0
        taken = (taps[0].number, taps[1].number) if reached else (1, 1)
        run, terms = is_run(image, taken[1], taps[1].dilation), taken[1] * channels
        pixels = rows * columns if flat else taps[1].count
        tiling = choose_tiling(target, kernel.dtype, highest(pixels), outputs, terms * taken[0])
        tiling = opened(tiling, pixels, outputs)
        most = max(1, target.sized(PANEL_BYTES) // max(1, terms * tiling.width * size))
        left, right = (0, 0) if flat else _left_out(taps[1], image, tiling)
        tap_rows = min(taken[0], most) if run or left + right else 1
        phase = Phase(taps, taken, channels, phase_weights(kernel, taps), run, tiling, tap_rows, left, right, packed)
        phases.append(phase)
        packed += image.groups * tiling.column_panels * phase.panel_elements
    packing = WeightPacking.choose(kernel, tuple(phases), image.groups, outputs)
    high, wide = highest(rows), highest(columns)
    most = max(1, target.sized(ROW_BLOCK_BYTES) // (wide * total * size), -(-target.sized(64) // wide))
    wanted = wanted_chunks(seconds_of(kernel, target), target)
    if wanted > 1:
        most = min(most, -(-high * highest(batch) // ROW_BLOCKS))
    block = rows if flat else min(high, round_up(-(-high // -(-high // most)), geometry[0][0].spacing))
    strip = Strip.choose(image, [vertical for vertical, _ in geometry], block)
    weights, buffer = areas(kernel.dtype, weights=packed, buffer=packing.buffer)
    strips, tile = areas(kernel.dtype, strip=strip.elements, tile=result.elements(block))
    # Workers that pack weights have their buffer where the strip is later.
    own = strips, Area("tile", max(tile.nbytes, buffer.nbytes - strips.nbytes))
    units, packed_weights = Units.of(batch, block, rows, wanted), (weights, buffer)
    scratch = Scratch(packed_weights if kernel.packed is None else (), own)
    return ForwardPlan(strip, packing, units, flat, result, Scratch(packed_weights), scratch)
