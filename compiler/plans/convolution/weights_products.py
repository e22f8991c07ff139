"""The transpose by weights of a convolution with one tap, of images that lie in planes: a sum of products of matrices.

    W (filters × channels) = Σ_n Y[n] (filters × pixels) · X[n]ᵀ (pixels × channels)

Rows of tiles are filters, whose planes are read in place, columns are channels, whose pixels are transposed a panel at
a time; blocks of the sum are images. Weights as users hold them have channels next to each other, so that tiles add up
in the result itself.

The work is a sequence of *segments*, some images or a block of rows of one, so that y stays in the caches while all
panels of channels pass by. A kernel that takes long is cut in chunks: where the weights are few, runs of segments,
whose partial sums are added in their order; else the panels of channels, by parts of the filters where there are few
panels. So no sum depends on the number of threads.
"""

from __future__ import annotations

from staticgrad.base.extents import highest, largest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.chunks import wanted_chunks
from staticgrad.compiler.plans.convolution.costs import seconds_of
from staticgrad.compiler.plans.convolution.images import has_open_images, is_depthwise
from staticgrad.compiler.plans.convolution.plan import Area, Scratch, areas
from staticgrad.compiler.plans.convolution.planes import Planes, Segments, has_y_by_planes, pixels_of
from staticgrad.compiler.plans.convolution.schedule import SegmentSums, SumChunks
from staticgrad.compiler.plans.tiles import Tiling, aligned_bytes, choose_tiling, tiling_cost

SEGMENT_BYTES = 512 << 10  # of y in a segment
FEWEST_PIXELS, MOST_PIXELS = 256, 1024  # of a segment, about
ENOUGH_UNITS = 8  # of a segment, so that threads have work of their own
FEWEST_ROWS = 128  # filters of a part: each part packs the pixels again


@frozen
class Side:
    """One of the images, as rows or columns of the product."""

    number: int  # of the kernel's operands
    count: int  # planes of a group
    image: int  # strides
    plane: int
    row: int  # from one row of the result's pixels to the next


@frozen
class WeightProducts(SegmentSums):
    """The plan of a kernel; sizes are elements unless said otherwise."""

    kernel: Convolution
    swapped: bool  # rows of tiles are channels
    rows: Side
    columns: Side
    segments: Segments
    planes: Planes | None  # of a panel of columns, where the tap does not read whole planes
    tiling: Tiling  # of a group
    row_parts: int
    part_panels: int  # row panels of a part
    in_place: bool  # tiles add up in the result
    sharing: SumChunks  # units are parts of the rows of the panels of columns of all groups
    scratch: Scratch

    @staticmethod
    def make(kernel: Convolution, target: Target) -> WeightProducts | None:
        return weight_product_plan(kernel, target) if is_weight_product(kernel) else None

    def cycles(self, kernel: Convolution, target: Target) -> float:
        pixels = self.segments.together * self.pixels
        return kernel.groups * _cycles(kernel, target, self.rows, self.columns, self.tiling, pixels)

    @property
    def strides(self) -> tuple[int, int]:
        """The strides of sums, from filter to filter and channel to channel."""
        if self.in_place:
            return self.kernel.w_strides[0], self.kernel.w_strides[1]
        return (1, self.kernel.filters) if self.swapped else (self.kernel.of_group[0], 1)

    @property
    def way(self) -> str:
        segments = self.segments.text
        segments += ", the next prefetched" * (self.segments.number != 1)
        turned = " of the transpose" * self.swapped
        return f"weights of one tap, planes as matrices: {self.tiling.text}{turned}; {segments}{self.sharing.text}"

    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        """The strides of the scratch result."""
        return *self.strides, 1, 1


def is_weight_product(kernel: Convolution) -> bool:
    """True if a kernel is a product of planes of known sizes: those of y are contiguous, those of x at least along
    rows."""
    if kernel.direction != "weight_grad" or kernel.kernel != (1, 1) or is_depthwise(kernel) or has_open_images(kernel):
        return False
    kernel = largest(kernel)
    return has_y_by_planes(kernel) and kernel.x_strides[3] == 1 and pixels_of(kernel) > 0


def weight_product_plan(kernel: Convolution, target: Target) -> WeightProducts:
    """The plan of a kernel without epilogue, which has no part in it."""
    (s_n, s_c, s_h, _), (down, _) = kernel.x_strides, kernel.stride
    (channels, filters), size = kernel.of_group, kernel.dtype.itemsize
    x, y = Side(0, channels, s_n, s_c, down * s_h), Side(1, filters, *kernel.y_strides[:3])
    whole = kernel.stride == (1, 1) and kernel.padding == (0, 0) and s_h == kernel.width

    fewest, most = target.sized(FEWEST_PIXELS), target.sized(MOST_PIXELS)

    def way(rows: Side, columns: Side) -> tuple[float, bool, Side, Side, Segments, Tiling]:
        segments = Segments.of(kernel, min(most, max(fewest, target.sized(SEGMENT_BYTES) // (rows.count * size))))
        pixels = segments.together * segments.rows * kernel.out_width
        tiling = choose_tiling(target, kernel.dtype, rows.count, columns.count, pixels)
        cycles = _cycles(kernel, target, rows, columns, tiling, pixels)
        return cycles, rows is x, rows, columns, segments, tiling

    ways = [way(y, x), way(x, y)] if whole else [way(y, x)]
    _, swapped, rows, columns, segments, tiling = min(ways, key=lambda found: found[0])
    pixels = segments.together * segments.rows * kernel.out_width
    planes = None if whole else Planes.of(kernel, segments, False)
    sum_bytes = aligned_bytes(kernel.filters * channels, kernel.dtype)
    wanted = wanted_chunks(seconds_of(kernel, target) / highest(segments.number), target)
    panels = kernel.groups * tiling.column_panels
    row_parts = max(1, min(-(-min(wanted, ENOUGH_UNITS) // panels), rows.count // target.sized(FEWEST_ROWS)))
    part_panels = -(-tiling.row_panels // row_parts)
    row_parts = -(-tiling.row_panels // part_panels)
    sharing = SumChunks.choose(kernel, target, segments.number, panels * row_parts, sum_bytes)
    in_place = kernel.store_raw and kernel.w_strides[0 if swapped else 1] == 1 and not sharing.part
    plane = 0 if planes is None else planes.pitch
    own = areas(kernel.dtype, planes=tiling.width * plane, panel=pixels * tiling.width)
    scratch = Scratch((Area("sums", 0 if in_place else sum_bytes, sharing.places),), own)
    return WeightProducts(kernel, swapped, rows, columns, segments, planes, tiling, row_parts, part_panels, in_place,
                          sharing, scratch)  # fmt: skip


def _cycles(kernel: Convolution, target: Target, rows: Side, columns: Side, tiling: Tiling, pixels: int) -> float:
    """Those of a group: tiles of segments of ``pixels``, columns that are packed, and weights that are brought into
    their place."""
    machine = target.machine
    turned = machine.moved_weight * rows.count * columns.count * (kernel.w_strides[rows.number] != 1)
    pixel = tiling_cost(tiling, pixels) / pixels + machine.packed_column * columns.count
    return highest(kernel.batch) * kernel.out_height * kernel.out_width * pixel + turned
