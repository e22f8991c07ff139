"""The transpose of a convolution by weights over channels-last images, with one tap or few weights: a batch-reduce
product of x and y, summed over pixels and images. Others read planes (``weights_planes``, ``weights_products``).

Rows of tiles are runs of (j, c) for one i, columns are filters, terms are output columns q, blocks are output rows p;
the sum over images is carried in the result, ``[i][j][c][filter]``. Small images are taken several at a time, so that a
tile of the result stays in the first cache over all of them, large ones in blocks of rows, which all tiles find in the
second cache. Where there is one tap and many filters, the pixels of a block are packed for the tiles first.

The epilogue is called once for all weights, or for some filters at a time. A kernel that takes long is cut in chunks:
where the weights are few, images, whose partial sums are added in their order; else the tiles of the result, each over
all images that are taken together. So no sum depends on the number of threads.
"""

from __future__ import annotations

import math

from staticgrad.base.extents import highest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.chunks import wanted_chunks
from staticgrad.compiler.plans.convolution.costs import seconds_of
from staticgrad.compiler.plans.convolution.images import Image, is_depthwise, is_run, x_image
from staticgrad.compiler.plans.convolution.plan import Area, Scratch, areas
from staticgrad.compiler.plans.convolution.planes import pixels_of, reads_planes
from staticgrad.compiler.plans.convolution.schedule import SumChunks, SumPlan, share_of
from staticgrad.compiler.plans.convolution.weights_products import is_weight_product
from staticgrad.compiler.plans.tiles import Tiling, aligned_bytes, choose_tiling, round_up, tiling_cost

IMAGES_BYTES = 1 << 20  # of images that are multiplied into the weights' gradient at a time
BLOCK_BYTES = 256 << 10  # of a block of rows of one image, where one is larger than that
BLOCK_PIXELS = 256  # at least: the result is read and written for each block
PART_PIXELS = 512  # of such a chunk at least: its weights are cleared and added in the end


@frozen
class WeightGrad(SumPlan):
    """The transpose by weights."""

    kernel: Convolution
    image: Image
    packed: bool  # x is read in place, and packed for the tiles block by block
    run: bool
    tiling: Tiling
    y: Image
    direct: bool
    result_row: int  # elements from one (i, j, c) to the next in the scratch result
    together: int  # images at a time
    rows: int  # of y at a time, so that images larger than the second cache are taken in blocks
    sharing: SumChunks  # units are tiles, segments images
    scratch: Scratch

    @staticmethod
    def make(kernel: Convolution, target: Target) -> WeightGrad | None:
        if kernel.direction != "weight_grad" or is_depthwise(kernel):
            return None
        is_for_others = is_weight_product(kernel) or reads_planes(kernel, target)
        return None if is_for_others else weight_grad_plan(kernel, target)

    def cycles(self, kernel: Convolution, target: Target) -> float:
        """Those of all tiles."""
        depth = max(1, self.together * self.rows * kernel.out_width)
        tiles = self.image.groups * kernel.kernel[0] * (1 if self.run else kernel.kernel[1])
        return tiles * tiling_cost(self.tiling, depth) * pixels_of(kernel) / depth

    @property
    def grid(self) -> tuple[int, ...]:
        """The numbers of groups, taps i and j, column panels and row panels of the tiles of the result."""
        kh, kw = self.kernel.kernel
        return self.image.groups, kh, 1 if self.run else kw, self.tiling.column_panels, self.tiling.row_panels

    @property
    def packed_row(self) -> int:
        """Elements of one row of an image in a row panel of a packed block."""
        return self.kernel.out_width * self.tiling.rows

    @property
    def packed_panel(self) -> int:
        """Elements of a row panel of a packed block."""
        return self.together * self.rows * self.packed_row

    @property
    def strides(self) -> tuple[int, int, int, int]:
        """The strides of o, c, i, j where tiles add up."""
        if self.direct:
            return self.kernel.w_strides
        row, channels = self.result_row, self.kernel.of_group[0]
        return 1, row, self.kernel.kernel[1] * channels * row, channels * row

    @property
    def way(self) -> str:
        images = f"{self.together} images at a time, {self.rows} rows"
        x = ", x packed" if self.packed else "" if self.image.in_place else ", x framed"
        copies = x + ("" if self.y.in_place else ", y copied")
        return f"weights by rows of pixels: {self.tiling.text}; {images}{copies}{self.sharing.text}"

    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        """The strides of the scratch result."""
        return self.strides


def weight_grad_plan(kernel: Convolution, target: Target) -> WeightGrad:
    """The plan of a kernel without epilogue, which has no part in it."""
    image = x_image(kernel)
    channels, _ = kernel.of_group
    run = is_run(image, kernel.kernel[1], kernel.dilation[1])
    outputs, size = kernel.filters // image.groups, kernel.dtype.itemsize
    m = channels * (kernel.kernel[1] if run else 1)
    depth = max(1, highest(kernel.out_height * kernel.out_width))
    tiling = choose_tiling(target, kernel.dtype, m, outputs, depth)
    # Whole vectors of a last panel may be read: the rows of a copy have room for one more vector.
    y = Image.unframed(
        kernel.dtype, kernel.filters, (kernel.out_height, kernel.out_width), kernel.y_strides,
        apart=round_up(kernel.filters + tiling.lanes - 1, tiling.lanes),
        padded=tiling.edge and not target.isa.predicated,
    )  # fmt: skip
    o, c, _, j = kernel.w_strides
    regular = not run or kernel.kernel[1] == 1 or j == channels * c  # rows of tiles have one stride
    direct = kernel.store_raw and (o == 1 or kernel.filters == 1) and regular
    result_row = round_up(kernel.filters, tiling.lanes)
    y_pixels = y.height * y.width
    y_elements = y_pixels * (y.channels if y.in_place else y.pixel)
    pair = max(1, highest(image.groups * image.height * image.width * image.channels + y_elements) * size)
    batch = highest(kernel.batch)
    together = max(1, min(batch, target.sized(IMAGES_BYTES) // pair))
    all_sums = math.prod(kernel.kernel) * channels * result_row
    images = -(-target.sized(PART_PIXELS) // depth)
    part = SumChunks.part_of(kernel, target, kernel.batch, all_sums * size, images)
    if part:
        direct, together = False, min(together, part)
    height = most = max(1, highest(kernel.out_height))
    if together == 1:
        wide = max(1, highest(kernel.out_width))
        most = max(1, target.sized(BLOCK_BYTES) * most // pair, -(-target.sized(BLOCK_PIXELS) // wide))
    rows = -(-height // -(-height // most))
    taps = kernel.kernel[0] * (1 if run else kernel.kernel[1])
    tiles = image.groups * taps * tiling.column_panels * tiling.row_panels
    packed = _is_packed(kernel, image, rows < highest(kernel.out_height))
    at_once = together * (rows / height if packed else 1)  # images between two waits
    wanted = wanted_chunks(seconds_of(kernel, target) * at_once / max(1, batch), target)
    copy = tiling.row_panels * together * rows * kernel.out_width * tiling.rows if packed else together * image.elements
    copies = areas(kernel.dtype, frames=copy, y=together * y.elements)
    sharing = SumChunks(kernel.batch, tiles, share_of(tiles, wanted), part)
    sums = Area("sums", aligned_bytes(0 if direct else all_sums, kernel.dtype), sharing.places)
    scratch = Scratch((sums,), copies) if part else Scratch((*copies, sums))
    return WeightGrad(kernel, image, packed, run, tiling, y, direct, result_row, together, rows, sharing, scratch)


def _is_packed(kernel: Convolution, image: Image, in_blocks: bool) -> bool:
    """True if tiles read a packed copy of x. With one tap each element of x is packed once for all filters; fewer
    filters pay for it where an image is larger than the second cache, and is not found there by the next tiles."""
    return kernel.kernel == (1, 1) and image.in_place and kernel.filters >= (64 if in_blocks else 128)
