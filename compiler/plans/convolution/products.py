"""Convolutions with one tap, of images that lie in planes: forward and by data they are products of matrices.

A pixel of the result depends on that pixel alone, and both images hold the pixels of a channel as one row of memory:

    forward      Y[n] (filters × pixels)  = W · X[n] (channels × pixels)
    input_grad   X[n] (channels × pixels) = Wᵀ · Y[n] (filters × pixels)

Neither image is brought into another order. Columns of tiles are pixels. The unit of work is a block of whole rows of
an image, which an epilogue finds in the caches, by a part of the outputs where there are too few blocks for the
threads. Forward with a stride the pixels of a unit are gathered first (``planes``). In a unit the pixels are taken a
*strip* at a time, some panels as wide as a tile: rows of the strip, which lie a plane apart, are copied into its panels
and stay in the caches while all outputs are computed, some planes after each other; few outputs read them in place.

The floor is that of the arithmetic, two multiply-adds a cycle, and for fewer than about 64 channels or filters that of
memory: each image once. Where an image has so few pixels that lanes along them would be idle, products along channels
are faster, and ``forward`` does them.
"""

from __future__ import annotations

from staticgrad.base.extents import highest, is_open, is_same, largest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.machine import LINE
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.chunks import wanted_chunks
from staticgrad.compiler.plans.convolution.costs import lanes_used, multiply_add_cycles, seconds_of, turning
from staticgrad.compiler.plans.convolution.images import WeightStrides, are_planes, has_open_images, is_depthwise
from staticgrad.compiler.plans.convolution.plan import Scratch, areas
from staticgrad.compiler.plans.convolution.planes import Planes, Segments, odd_lines
from staticgrad.compiler.plans.convolution.schedule import ByUnits, Units
from staticgrad.compiler.plans.convolution.taps import forward_geometry, phase_weights
from staticgrad.compiler.plans.convolution.unstage import UnitResult
from staticgrad.compiler.plans.tiles import Layout, Tiling, choose_tiling, opened, round_up, tile_lanes

BLOCK_BYTES = 256 << 10  # of the pixels and results of a unit: they stay in the second cache
PANEL_BYTES = 48 << 10  # of a panel in one pass over the terms
FEW_PANELS = 4  # of rows: then copying a panel is not worth it
STRIP_BYTES = 128 << 10  # of packed pixels
TOO_LARGE = 0.97  # how good a unit is that the second cache does not hold
AT_ONCE = 16  # lines of memory that a core has in flight: a prefetch beyond these blocks
ENOUGH_UNITS = 8  # so that threads have work of their own: for more of them outputs are not cut in parts
LEAST_PART = 64  # outputs of a part at least: each part packs the pixels again
LEAST_PART_GATHERED = 256  # where each part gathers them, too


@frozen
class Products(ByUnits):
    """The plan of a kernel; sizes are elements unless said otherwise."""

    units: Units  # rows are parts of the outputs of blocks
    groups: int
    terms: int  # channels that are summed, of one group
    rows: int  # of a block
    blocks: int  # of an image
    parts: int  # of the outputs of one group
    part_panels: int  # row panels of a part
    source: tuple[int, int, int]  # strides n, c of the image that is read, and from one row of the result to the next
    planes: Planes | None  # where the pixels of a block are gathered, if they do not lie side by side
    result: UnitResult
    weights: WeightStrides
    packed: bool  # weights are copied, inputs beside each other
    layout: Layout
    tiling: Tiling  # outputs of a group × pixels of a block
    strip: int  # panels that are packed at a time
    depth: int  # terms of one pass
    copied: bool  # panels are packed, else read in place
    scratch: Scratch

    @staticmethod
    def make(kernel: Convolution, target: Target) -> Products | None:
        suits = is_product(kernel, target) and (not has_open_images(kernel) or are_whole_planes(kernel))
        return product_plan(kernel, target) if suits else None

    def cycles(self, kernel: Convolution, target: Target) -> float:
        """Lanes are the pixels of an image."""
        return multiply_add_cycles(kernel, target, kernel.out_height * kernel.out_width)

    @property
    def way(self) -> str:
        packed = f"{self.strip} panels of {self.depth} terms packed at a time"
        panels = packed if self.copied else "planes read in place"
        weights = "; weights packed" if self.packed else ""
        units = f"{self.units.text()}, the next prefetched"
        return f"one tap, planes as matrices: {self.tiling.text}; {panels}{weights}; {units}"

    @property
    def packed_row(self) -> int:
        """The distance from output to output of packed weights."""
        return odd_lines(self.terms, self.tiling.dtype)

    @property
    def strips(self) -> int:
        """The number of strips of a unit."""
        return -(-self.tiling.column_panels // self.strip)

    @property
    def passes(self) -> int:
        """The number of passes over the terms."""
        return -(-self.terms // self.depth)

    @property
    def turns(self) -> int:
        """Row panels of a unit, in all strips and passes."""
        return self.strips * self.passes * self.part_panels

    @property
    def lines(self) -> int:
        """The number of cache lines of its image that a unit reads."""
        return self.terms * -(-self.rows * abs(self.source[2]) // max(1, LINE // self.tiling.dtype.itemsize))

    @property
    def by_tiles(self) -> bool:
        """True if lines of the next unit are prefetched before each tile."""
        return highest(self.lines) > AT_ONCE * highest(self.turns)

    @property
    def apart(self) -> int:
        """The distance from channel to channel of the pixels that panels are made of."""
        return self.source[1] if self.planes is None else self.planes.pitch


def is_product(kernel: Convolution, target: Target) -> bool:
    """True if a kernel is a product of planes, with lanes enough in use."""
    if kernel.direction == "weight_grad" or kernel.kernel != (1, 1) or is_depthwise(kernel):
        return False
    if 0 in (kernel.channels, kernel.filters) or (_is_gathered(kernel) and kernel.direction != "forward"):
        return False
    kernel = largest(kernel)
    pixels = kernel.out_height * kernel.out_width
    is_used = pixels > 0 and lanes_used(target, kernel.dtype, pixels) * turning(kernel, target) >= 1
    return are_planes(kernel) and kernel.y_strides[2] == kernel.out_width and is_used


def are_whole_planes(kernel: Convolution) -> bool:
    """True if images of open sizes are rows of matrices where they lie."""
    plain = kernel.stride == (1, 1) and kernel.padding == (0, 0)
    strides = (kernel.x_strides, kernel.width), (kernel.y_strides, kernel.out_width)
    return plain and all(is_same(row, width) for (_, _, row, _), width in strides)


def _is_gathered(kernel: Convolution) -> bool:
    """True if pixels of the result belong to some pixels of x only, or to padding."""
    return kernel.stride != (1, 1) or kernel.padding != (0, 0) or kernel.x_strides[2] != kernel.width


def product_plan(kernel: Convolution, target: Target) -> Products:
    """The plan of a kernel without epilogue, which has no part in it."""
    back, size, groups = kernel.direction == "input_grad", kernel.dtype.itemsize, kernel.groups
    _, (taps,) = forward_geometry(kernel)
    batch, total, height, _ = kernel.result_sizes
    terms, outputs = (kernel.filters if back else kernel.channels) // groups, total // groups
    weights = phase_weights(kernel, taps)
    wanted = wanted_chunks(seconds_of(kernel, target), target)
    rows = _block_rows(kernel, target)
    result = UnitResult.of_planes(kernel, rows)
    pixels, blocks = rows * result.columns, height // rows
    s_n, s_c, s_row = (kernel.y_strides if back else kernel.x_strides)[:3]
    planes = Planes.of(kernel, Segments(1, 1, 1, rows), False) if _is_gathered(kernel) else None
    tiling = opened(choose_tiling(target, kernel.dtype, outputs, highest(pixels), terms), outputs, pixels)
    least = target.sized(LEAST_PART if planes is None else LEAST_PART_GATHERED)
    parts = max(1, min(-(-min(wanted, ENOUGH_UNITS) // (highest(batch) * groups * blocks)), outputs // least))
    part_panels = -(-tiling.row_panels // parts)
    parts = -(-tiling.row_panels // part_panels)
    layout: Layout = "rows" if weights.input == 1 else "columns"
    step = weights.out if layout == "rows" else weights.input
    packed = 1 not in (weights.input, weights.out) or (
        step * size % target.machine.page == 0 and min(terms, outputs) * size > target.sized(512)
    )
    copied = tiling.row_panels > FEW_PANELS or (tiling.edge and not target.isa.predicated)
    depth = -(-terms // -(-terms * tiling.width * size // target.sized(PANEL_BYTES))) if copied else terms
    panels = highest(tiling.column_panels)
    strip = min(panels, target.sized(STRIP_BYTES) // (depth * tiling.width * size))
    strip = -(-panels // -(-panels // max(1, strip)))
    own = areas(
        kernel.dtype,
        planes=0 if planes is None else terms * planes.pitch,
        panels=strip * depth * copied * tiling.width,
        tile=result.elements(min(outputs, part_panels * tiling.rows)),
    )
    return Products(
        units=Units.of(batch, 1, groups * blocks * parts, wanted),
        groups=groups,
        terms=terms,
        rows=rows,
        blocks=blocks,
        parts=parts,
        part_panels=part_panels,
        source=(s_n, s_c, s_row * kernel.stride[0]),
        planes=planes,
        result=result,
        weights=weights,
        packed=packed,
        layout="rows" if packed else layout,
        tiling=tiling,
        strip=strip,
        depth=depth,
        copied=copied,
        scratch=Scratch(areas(kernel.dtype, weights=packed * groups * outputs * odd_lines(terms, kernel.dtype)), own),
    )


def _block_rows(kernel: Convolution, target: Target) -> int:
    """The rows of a block: a divisor of the image's height, so that all blocks are alike, that leaves few lanes idle,
    and no more than the caches hold; better too many than idle lanes. All of an image of an open size."""
    if is_open(kernel.out_height) or is_open(kernel.out_width):
        return kernel.out_height
    inputs, outputs = kernel.channels // kernel.groups, kernel.filters // kernel.groups
    row_bytes = (inputs + outputs) * kernel.out_width * kernel.dtype.itemsize
    lanes = tile_lanes(target, kernel.dtype)

    def worth(rows: int) -> tuple[float, int]:
        pixels, fits = rows * kernel.out_width, rows * row_bytes <= target.sized(BLOCK_BYTES)
        return pixels / round_up(pixels, lanes) * (1.0 if fits else TOO_LARGE), rows if fits else -rows

    return max((rows for rows in range(1, kernel.out_height + 1) if kernel.out_height % rows == 0), key=worth)
