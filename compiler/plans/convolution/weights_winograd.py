"""The transpose of a convolution with 3×3 taps and stride 1 by weights, by minimal filtering (``filtering``).

    dw = Gᵀ[Σ (A·dy·Aᵀ) ⊙ (Bᵀ·x·B)]·G        over all tiles of all images

Tiles of x and of y are transformed, and the sums over tiles are n² products of matrices, channels × tiles by tiles ×
filters. Each weight is transformed once, when its sums are complete.

The work is a sequence of *segments*, some images or some rows of tiles of one, whose transformed tiles stay in the
second cache while channels and filters are few:

    bring    pieces of a segment: rows brought into strips, and their tiles transformed to ``x[n²][tile][channel]`` and
             ``y[n²][tile][filter]``
    units    panels of channels: ``sums[n²][panel of filters][channel][filter]`` with all tiles of the segment

A kernel that takes long is cut in chunks as ``weights_planes`` are: runs of segments with sums of their own where these
are few, else pieces and units of one segment after the other. The floor is 1/2.25 of the multiply-adds of the plain
sum, with F(2×2); sums of all tiles are read and written once in a segment, so a segment has many tiles.
"""

from __future__ import annotations

from dataclasses import replace

from staticgrad.base.extents import highest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.convolution.costs import multiply_add_cycles, turning
from staticgrad.compiler.plans.convolution.filtering import TAPS, Filtering
from staticgrad.compiler.plans.convolution.images import Image, Strides, row_major_weights, x_image
from staticgrad.compiler.plans.convolution.plan import Area, Scratch, areas
from staticgrad.compiler.plans.convolution.planes import Segments, odd_lines
from staticgrad.compiler.plans.convolution.schedule import SegmentSums, SumChunks
from staticgrad.compiler.plans.convolution.strips import Strip
from staticgrad.compiler.plans.convolution.winograd import WORTH, fastest, pitch_of, suits_filtering
from staticgrad.compiler.plans.tiles import Tiling, aligned_bytes, choose_tiling, tile_lanes, tiling_cost

SEGMENT_BYTES = 512 << 10  # of the transformed tiles of a segment
LEAST_TILES = 64  # of a segment, so that sums are read seldom
FAR_TILES, FAR_SUMS = 128, 2 << 20  # where the sums have more bytes than ``FAR_SUMS``, and stay in no cache
MOVED_BYTES = 8  # of those sums in a cycle
STRIP_BYTES = 160 << 10


@frozen
class TileImage:
    """An image whose tiles are transformed: the strip that they are read from, and how the transformed ones lie."""

    strip: Strip
    pitch: int  # from tile to tile
    plane: int  # from one of the n² matrices to the next

    @staticmethod
    def of(image: Image, strip: Strip, filtering: Filtering, tiles: int) -> TileImage:
        """The image with this strip, of segments of ``tiles`` tiles."""
        return TileImage(strip, image.apart, odd_lines(tiles * image.apart, image.dtype))


@frozen
class WinogradWeights(SegmentSums):
    """The plan of a kernel; sizes are elements unless said otherwise."""

    filtering: Filtering
    kernel: Convolution
    x: TileImage
    y: TileImage
    grid: tuple[int, int]  # tiles of an image
    tiles: int  # of a segment at most
    piece: int  # rows of tiles of a piece
    tiling: Tiling  # channels × filters
    segments: Segments
    sharing: SumChunks  # units are panels of channels
    scratch: Scratch

    @staticmethod
    def make(kernel: Convolution, target: Target) -> WinogradWeights | None:
        suits = kernel.direction == "weight_grad" and suits_filtering(kernel, target)
        return fastest(winograd_weights_plan, kernel, target) if suits else None

    def cycles(self, kernel: Convolution, target: Target) -> float:
        """Cycles of the products, the transforms, and what images in planes cost."""
        filtering, lanes, batch = self.filtering, tile_lanes(target, kernel.dtype), kernel.batch
        (channels, filters), segments = kernel.of_group, self.segments.number
        inputs, outputs = -(-channels // lanes), -(-filters // lanes)
        tiles = batch * self.grid[0] * self.grid[1]
        products = filtering.products * segments * tiling_cost(self.tiling, -(-tiles // segments))
        transforms = tiles * (inputs * filtering.data_cycles + outputs * filtering.result_cycles)
        moved = batch * kernel.out_height * kernel.out_width * (inputs + outputs)
        weights = channels * (outputs * filtering.weight_cycles + TAPS**2 * filters * target.machine.moved_weight)
        if (sums := self.scratch.find("sums").nbytes) > target.sized(FAR_SUMS):
            weights += segments * sums / MOVED_BYTES
        turned = (turning(kernel, target) - 1) * multiply_add_cycles(kernel, target, filters)
        return WORTH * (products + transforms + moved + weights + turned)

    @property
    def bands(self) -> int:
        """Pieces of an image in a segment."""
        return -(-self.segments.rows // (self.piece * self.filtering.outputs))

    @property
    def brought(self) -> int:
        return self.segments.together * self.bands

    @property
    def sums_plane(self) -> int:
        """Elements from one of the n² matrices of sums to the next."""
        return odd_lines(self.tiling.column_panels * self.tiling.m * self.tiling.width, self.tiling.dtype)

    @property
    def way(self) -> str:
        return (
            f"weights by {self.filtering.text}, {self.grid[0]}x{self.grid[1]} tiles: {self.filtering.products} products"
            f" in {self.tiling.text}; {self.segments.text}, {self.tiles} tiles each{self.sharing.text}"
        )

    def raw_strides(self, kernel: Convolution) -> Strides:
        return row_major_weights(kernel)


def winograd_weights_plan(kernel: Convolution, target: Target, filtering: Filtering) -> WinogradWeights:
    """The plan of a kernel without epilogue, which has no part in it."""
    m, size = filtering.outputs, kernel.dtype.itemsize
    (channels, filters), height, width = kernel.of_group, kernel.out_height, kernel.out_width
    grid = -(-height // m), -(-width // m)
    x, y = _framed(x_image(kernel), grid, m, TAPS - 1, target), _framed(_y_image(kernel), grid, m, 0, target)
    tiling = choose_tiling(target, kernel.dtype, channels, filters, target.sized(LEAST_TILES, 4))
    sum_bytes = filtering.products * odd_lines(tiling.column_panels * tiling.width * channels, kernel.dtype) * size
    least = target.sized(FAR_TILES if sum_bytes > target.sized(FAR_SUMS) else LEAST_TILES, 4)
    segments = _segments(
        kernel, grid, m, max(least, target.sized(SEGMENT_BYTES) // (filtering.products * (x.apart + y.apart) * size))
    )
    rows = -(-segments.rows // m)
    tiles = segments.together * rows * grid[1]
    row_bytes = m * (x.width * x.apart + y.width * y.apart) * size
    piece = -(-rows // -(-rows // max(1, target.sized(STRIP_BYTES) // row_bytes)))
    x_strip = Strip(x, 0, 1, 1, TAPS, piece * m + TAPS - 1)
    y_strip = Strip(y, 0, 1, 1, 1, piece * m)
    images = TileImage.of(x, x_strip, filtering, tiles), TileImage.of(y, y_strip, filtering, tiles)
    sharing = SumChunks.choose(kernel, target, segments.number, tiling.row_panels, sum_bytes)
    strips = areas(kernel.dtype, x_strip=x_strip.elements, y_strip=y_strip.elements)
    tiles_of = areas(
        kernel.dtype, x=filtering.products * images[0].plane, y=filtering.products * images[1].plane
    )  # fmt: skip
    (raw,) = areas(kernel.dtype, raw=0 if kernel.store_raw else filters * channels * TAPS**2)
    sums = Area("sums", aligned_bytes(sum_bytes // size, kernel.dtype), sharing.places)
    if sharing.part:
        scratch = Scratch((raw, sums), (*strips, *tiles_of))
    else:
        scratch = Scratch((raw, sums, *tiles_of), strips)
    return WinogradWeights(filtering, kernel, *images, grid, tiles, piece, tiling, segments, sharing, scratch)


def _y_image(kernel: Convolution) -> Image:
    """y, of which tiles are read side by side."""
    size = kernel.out_height, kernel.out_width
    return Image.unframed(kernel.dtype, kernel.filters, size, kernel.y_strides)


def _framed(image: Image, grid: tuple[int, int], m: int, more: int, target: Target) -> Image:
    """An image whose tiles are whole, and ``more`` pixels larger than those of the result."""
    lanes = tile_lanes(target, image.dtype)
    apart, padded = pitch_of(image.channels, lanes, image.dtype), image.channels % lanes != 0
    return replace(image, height=grid[0] * m + more, width=grid[1] * m + more, apart=apart, padded=padded)


def _segments(kernel: Convolution, grid: tuple[int, int], m: int, most: int) -> Segments:
    """Balanced segments of at most about ``most`` tiles."""
    tiles, batch = grid[0] * grid[1], highest(kernel.batch)
    if tiles <= most:
        together = max(1, -(-batch // max(1, -(-batch // max(1, most // tiles)))))
        return Segments(kernel.batch, kernel.out_height, together, kernel.out_height)
    rows = max(1, most // grid[1])
    return Segments(kernel.batch, kernel.out_height, 1, m * -(-grid[0] // -(-grid[0] // rows)))
