"""The transpose of a convolution by weights over channels-last images, with one tap or few weights: a batch-reduce
product of x and y, summed over pixels and images. Others read planes (``weights_planes``, ``weights_products``).

Rows of tiles are runs of (j, c) for one i, columns are filters, terms are output columns q, blocks are output rows p;
the sum over images is carried in the result, ``[i][j][c][filter]``. Small images are taken several at a time, so that a
tile of the result stays in the first cache over all of them, large ones in blocks of rows, which all tiles find in the
second cache. What comes next is prefetched in the meantime. Where there is one tap and many filters, the pixels of a
block are packed for the tiles first (``panels``).

The epilogue is called once for all weights, or for some filters at a time. A kernel that takes long is cut in chunks
(``emit.parallel``). Where the weights are few, chunks are images, whose partial sums are added in their order. Else
first the images are copied or a block of them is packed, then the tiles of the result are chunks, each over all that
was brought, and at the end the filters that are stored. So no sum depends on the number of threads.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from staticgrad.compiler.emit.convolution.images import ConvolutionWriter, Image, is_run, seconds_of, x_image
from staticgrad.compiler.emit.convolution.panels import pack_pixels
from staticgrad.compiler.emit.convolution.plan import Area, Range, Scratch, areas
from staticgrad.compiler.emit.convolution.prefetch import PrefetchRuns
from staticgrad.compiler.emit.convolution.schedule import MOST_PARTS, Chunks, SumChunks, SumPlan, share_of
from staticgrad.compiler.emit.convolution.weights_store import STORE_FILTERS, store_filters, store_weights
from staticgrad.compiler.emit.llvm import Index, Value, integer
from staticgrad.compiler.emit.microkernel import (
    TileOperands,
    Tiling,
    aligned_bytes,
    call_tile,
    choose_tiling,
    fill_zero,
    round_up,
    span,
)
from staticgrad.compiler.emit.parallel import chunk_range, cut, divide, unravel, wanted_chunks
from staticgrad.compiler.emit.target import Target
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.frozen import frozen

IMAGES_BYTES = 1 << 20  # of images that are multiplied into the weights' gradient at a time
BLOCK_BYTES = 256 << 10  # of a block of rows of one image, where one is larger than that
BLOCK_PIXELS = 256  # at least: the result is read and written for each block
PART_BYTES = 128 << 10  # of weights that a chunk adds up for itself, so that they stay in its caches
PART_PIXELS = 512  # of such a chunk at least: its weights are cleared and added in the end


@frozen
class WeightGrad(SumPlan):
    """The transpose by weights."""

    image: Image
    packed: bool  # x is read in place, and packed for the tiles block by block
    channels: int  # of w
    run: bool
    tiling: Tiling
    y: Image
    direct: bool
    result_row: int  # elements from one (i, j, c) to the next in the scratch result
    together: int  # images at a time
    out_width: int
    rows: int  # of y at a time, so that images larger than the second cache are taken in blocks
    sharing: SumChunks  # units are tiles, segments images
    scratch: Scratch

    @property
    def packed_image(self) -> int:
        """Elements of one image in a row panel of a packed block."""
        return self.rows * self.out_width * self.tiling.rows

    @property
    def packed_panel(self) -> int:
        """Elements of a row panel of a packed block."""
        return self.together * self.packed_image

    @property
    def way(self) -> str:
        images = f"{self.together} images at a time, {self.rows} rows"
        x = ", x packed" if self.packed else "" if self.image.in_place else ", x framed"
        copies = x + ("" if self.y.in_place else ", y copied")
        return f"weights by rows of pixels: {self.tiling.text}; {images}{copies}{self.sharing.text}"

    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        """The strides of the scratch result."""
        row, channels = self.result_row, self.channels
        return 1, row, kernel.kernel[1] * channels * row, channels * row

    @property
    def words(self) -> int:
        """The images that are worked on, from and to, and their first row."""
        return 3

    def emit_alone(self, writer: ConvolutionWriter) -> None:
        kernel, (sums, strides) = writer.kernel, _weights_result(writer, self)
        if 0 in (kernel.batch, kernel.out_height, kernel.out_width):
            _zero_weights(writer, self, sums, strides[1:])
        else:
            self.add(writer, sums, (0, kernel.batch), 0)
        _finish_weights(writer, self)

    def add(self, writer: ConvolutionWriter, sums: Value, segments: Range, unit: Index) -> None:
        f, (low, high) = writer.f, segments
        _clear(writer, self, 0, self.together)
        with span(f, low, high, self.together) as start:
            images = (start, f.min(f.add(start, self.together), high))
            _copy_images(writer, self, start, images)
            _add_blocks(writer, self, sums, images, low)

    def finish(self, writer: ConvolutionWriter, sums: Value) -> None:
        _finish_weights(writer, self)

    def emit_units(self, chunks: Chunks, share: int) -> None:
        _share_weight_grad(chunks, self, share)


@functools.lru_cache(maxsize=4096)
def weight_grad_plan(kernel: Convolution, target: Target) -> WeightGrad:
    """The plan of a kernel without epilogue, which has no part in it."""
    image = x_image(kernel)
    channels = kernel.channels // kernel.groups
    run = is_run(image, kernel.kernel[1], kernel.dilation[1])
    outputs, size = kernel.filters // image.groups, kernel.dtype.itemsize
    m = channels * (kernel.kernel[1] if run else 1)
    depth = max(1, kernel.out_height * kernel.out_width)
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
    pair = max(1, (image.groups * image.height * image.width * image.channels + y_elements) * size)
    together = max(1, min(kernel.batch, target.sized(IMAGES_BYTES) // pair))
    part = _images_of_part(kernel, target, kernel.kernel[0] * kernel.kernel[1] * channels * result_row * size)
    if part:
        direct, together = False, min(together, part)
    height = most = max(1, kernel.out_height)
    if together == 1:
        most = max(
            1, target.sized(BLOCK_BYTES) * most // pair, -(-target.sized(BLOCK_PIXELS) // max(1, kernel.out_width))
        )
    rows = -(-height // -(-height // most))
    result = 0 if direct else kernel.kernel[0] * kernel.kernel[1] * channels * result_row
    taps = kernel.kernel[0] * (1 if run else kernel.kernel[1])
    tiles = image.groups * taps * tiling.column_panels * tiling.row_panels
    packed = _is_packed(kernel, image, rows < kernel.out_height)
    at_once = together * (rows / max(1, kernel.out_height) if packed else 1)  # images between two waits
    wanted = wanted_chunks(seconds_of(kernel, target) * at_once / max(1, kernel.batch), target)
    copy = tiling.row_panels * together * rows * kernel.out_width * tiling.rows if packed else together * image.elements
    copies = areas(kernel.dtype, frames=copy, y=together * y.elements)
    sums = Area("sums", aligned_bytes(result, kernel.dtype), -(-kernel.batch // part) if part else 1)
    return WeightGrad(
        image=image,
        packed=packed,
        channels=channels,
        run=run,
        tiling=tiling,
        y=y,
        direct=direct,
        result_row=result_row,
        together=together,
        out_width=kernel.out_width,
        rows=rows,
        sharing=SumChunks(kernel.batch, tiles, share_of(tiles, wanted), part),
        scratch=Scratch((sums,), copies) if part else Scratch((*copies, sums)),
    )


def _is_packed(kernel: Convolution, image: Image, in_blocks: bool) -> bool:
    """True if tiles read a packed copy of x. With one tap each element of x is packed once for all filters; fewer
    filters pay for it where an image is larger than the second cache, and is not found there by the next tiles."""
    return kernel.kernel == (1, 1) and image.in_place and kernel.filters >= (64 if in_blocks else 128)


def _images_of_part(kernel: Convolution, target: Target, weight_bytes: int) -> int:
    """The number of images of a chunk that adds up weights of its own; 0 where these are too many, or the images too
    few, for that to pay. Threads then share no line of memory but at the end."""
    if (
        weight_bytes > target.sized(PART_BYTES)
        or kernel.dtype.kind != "f"
        or 0 in (kernel.out_height, kernel.out_width)
    ):
        return 0
    pixels = -(-target.sized(PART_PIXELS) // (kernel.out_height * kernel.out_width))
    wanted = min(MOST_PARTS, wanted_chunks(seconds_of(kernel, target), target), kernel.batch // pixels)
    return cut(kernel.batch, wanted)[0] if wanted > 1 else 0


WORTH_STORING = 1 << 15  # weights: fewer are stored by one thread


def _weights_result(writer: ConvolutionWriter, plan: WeightGrad) -> tuple[Value, tuple[int, int, int, int]]:
    """The address at which the tiles add up, and its strides of o, c, i, j."""
    if plan.direct and writer.result is not None:
        return writer.result, writer.kernel.w_strides
    row, channels = plan.result_row, plan.channels
    strides = (1, row, writer.kernel.kernel[1] * channels * row, channels * row)
    return writer.area("sums"), strides


def _share_weight_grad(chunks: Chunks, plan: WeightGrad, share: int) -> None:
    """The images that are taken together are copied in parallel, then the tiles of the result are added to."""
    f, kernel, table = chunks.f, chunks.kernel, chunks.table
    copies = not (plan.image.in_place and plan.y.in_place)
    copy, pack = _copy_part(chunks, plan) if copies else None, _pack_part(chunks, plan) if plan.packed else None
    tiles, count = _tiles_part(chunks, plan, share)
    with span(f, 0, kernel.batch, plan.together) as start:
        end = f.min(f.add(start, plan.together), kernel.batch)
        table.set_word(0, start)
        table.set_word(1, end)
        if copy is not None:
            chunks.run(copy, f.sub(end, start))
        with span(f, 0, kernel.out_height, kernel.out_height if pack is None else plan.rows) as row:
            table.set_word(2, row)
            if pack is not None:
                # Several images have one block each, of all their rows.
                chunks.run(pack, f.mul(f.sub(end, start), f.min(plan.rows, f.sub(kernel.out_height, row))))
            chunks.run(tiles, count)
    weights = kernel.filters * plan.channels * kernel.kernel[0] * kernel.kernel[1]
    if weights < f.target.sized(WORTH_STORING) or kernel.filters < 2 * STORE_FILTERS:
        _finish_weights(chunks.own, plan)
        return
    part, writer = chunks.open("store")
    whole = kernel.filters // STORE_FILTERS
    if kernel.filters % STORE_FILTERS == 0:
        _finish_filters(writer, plan, part.f.mul(part.chunk, STORE_FILTERS), STORE_FILTERS)
    else:
        with part.f.when(part.f.compare("icmp eq", part.chunk, integer(whole))):
            _finish_filters(writer, plan, whole * STORE_FILTERS, kernel.filters % STORE_FILTERS)
        with part.f.when(part.f.compare("icmp slt", part.chunk, integer(whole))):
            _finish_filters(writer, plan, part.f.mul(part.chunk, STORE_FILTERS), STORE_FILTERS)
    chunks.run(part.f.finish(), -(-kernel.filters // STORE_FILTERS))


def _copy_part(chunks: Chunks, plan: WeightGrad) -> str:
    """A chunk: one image of x and y, brought into the form that is read."""
    part, writer = chunks.open("copy")
    f, start = part.f, part.table.word(0)
    with f.when(f.compare("icmp eq", start, integer(0))):
        _clear(writer, plan, part.chunk, 1)
    number = f.add(start, part.chunk)
    _copy_images(writer, plan, start, (number, f.add(number, 1)))
    return f.finish()


def _tiles_part(chunks: Chunks, plan: WeightGrad, share: int) -> tuple[str, int]:
    """A chunk: some tiles of the result. Returns the part and how many chunks there are."""
    part, writer = chunks.open("tiles")
    f, start, end = part.f, part.table.word(0), part.table.word(1)
    height = writer.kernel.out_height
    pixels, y = _image_places(writer, plan, start)
    count = math.prod(_tile_grid(writer.kernel, plan))
    result, _ = _weights_result(writer, plan)
    share_of_tiles = chunk_range(f, part.chunk, share, count)
    with span(f, part.table.word(2), height, height if plan.packed else plan.rows) as row:
        _add_tiles(writer, plan, result, pixels, y, share_of_tiles, (start, end), row, 0)
    return f.finish(), -(-count // share)


def _pack_part(chunks: Chunks, plan: WeightGrad) -> str:
    """A chunk: one row of a block, packed for the tiles."""
    part, writer = chunks.open("pack")
    f, start, block = part.f, part.table.word(0), part.table.word(2)
    image, local = divide(f, part.chunk, plan.rows)
    to = writer.at(writer.area("frames"), (image, plan.packed_image), (local, plan.out_width * plan.tiling.rows))
    _pack_rows(writer, plan, to, f.add(start, image), f.add(block, local), 1)
    return f.finish()


def _pack_rows(writer: ConvolutionWriter, plan: WeightGrad, to: Value, number: Index, row: Index, rows: Index) -> None:
    """Pack some rows of an image; ``to`` is where the first panel has them."""
    f, (vertical, horizontal), image = writer.f, writer.kernel.stride, plan.image
    source = writer.at(writer.first, (number, image.strides[0]), (row, vertical * image.row))
    pixel, width = horizontal * image.pixel, plan.out_width
    if vertical * image.row == width * pixel:  # one row after the other
        pack_pixels(f, plan.tiling, to, plan.packed_panel, source, pixel, f.mul(rows, width))
        return
    with f.loop(0, rows) as loop:
        line = writer.at(source, (loop.index, vertical * image.row))
        at = writer.at(to, (loop.index, width * plan.tiling.rows))
        pack_pixels(f, plan.tiling, at, plan.packed_panel, line, pixel, width)


def _add_blocks(writer: ConvolutionWriter, plan: WeightGrad, result: Value, images: Range, first: Index) -> None:
    """Add what some images give to all tiles of the result, block of rows after block of rows."""
    f, height = writer.f, writer.kernel.out_height
    pixels, y = _image_places(writer, plan, images[0])
    tiles = (0, math.prod(_tile_grid(writer.kernel, plan)))
    with span(f, 0, height, plan.rows) as row:
        if plan.packed:
            with span(f, *images) as number:
                to = writer.at(writer.area("frames"), (f.sub(number, images[0]), plan.packed_image))
                _pack_rows(writer, plan, to, number, row, f.min(plan.rows, f.sub(height, row)))
        _add_tiles(writer, plan, result, pixels, y, tiles, images, row, first)


def _add_tiles(
    writer: ConvolutionWriter, plan: WeightGrad, result: Value, pixels: Value, y: Value,
    tiles: Range, images: Range, row: Index, first: Index,
) -> None:  # fmt: skip
    """Add what a block of rows of some images gives to some tiles of the result. The sum begins with image
    ``first``."""
    f, kernel, grid = writer.f, writer.kernel, _tile_grid(writer.kernel, plan)
    x_row = kernel.stride[0] * plan.image.row
    with span(f, *tiles) as number:
        if plan.image.in_place and kernel.stride == (1, 1):
            _fetch_ahead(writer, plan, writer.at(pixels, (row, x_row)), x_row, plan.image.pitch, number)
        if plan.y.in_place:
            _fetch_ahead(writer, plan, writer.at(y, (row, plan.y.row)), plan.y.row, plan.y.pitch, number)
        source = writer.area("frames") if plan.packed else pixels
        _weight_tile(writer, plan, result, source, y, unravel(f, number, grid), images, row, first)


def _fetch_ahead(
    writer: ConvolutionWriter, plan: WeightGrad, place: Value, row: int, image: int, number: Index
) -> None:
    """Prefetch some of what follows the block that starts at ``place``: tiles read it column by column, in steps that
    no hardware prefetcher foresees. All tiles together prefetch as much as a block is."""
    block = image * plan.together if plan.together > 1 else row * plan.rows  # 0: a single row has no row after it
    following = PrefetchRuns(writer.at(place, (1, block)), block * writer.dtype.itemsize)
    following.ask(writer, number, math.prod(_tile_grid(writer.kernel, plan)))


def _tile_grid(kernel: Convolution, plan: WeightGrad) -> tuple[int, ...]:
    """The numbers of groups, taps i and j, column panels and row panels of the tiles of the result."""
    kh, kw = kernel.kernel
    return plan.image.groups, kh, 1 if plan.run else kw, plan.tiling.column_panels, plan.tiling.row_panels


def _finish_filters(writer: ConvolutionWriter, plan: WeightGrad, first: Index, count: int) -> None:
    """Store some filters, and call the epilogue for them."""
    source, _ = _weights_result(writer, plan)
    if writer.result is not None and not plan.direct:
        store_filters(writer, source, plan.result_row, first, count)
    ranges = [(first, writer.f.add(first, count)), (0, plan.channels), *((0, size) for size in writer.kernel.kernel)]
    writer.finish(source if writer.result is None else writer.result, ranges)


def _finish_weights(writer: ConvolutionWriter, plan: WeightGrad) -> None:
    """Store all filters, and call the epilogue once."""
    source, _ = _weights_result(writer, plan)
    if writer.result is not None and not plan.direct:
        store_weights(writer, source, plan.result_row)
    ranges: list[Range] = [(0, writer.kernel.filters), (0, plan.channels)]
    ranges += [(0, size) for size in writer.kernel.kernel]
    writer.finish(source if writer.result is None else writer.result, ranges)


def _zero_weights(writer: ConvolutionWriter, plan: WeightGrad, result: Value, strides: tuple[int, int, int]) -> None:
    """The sum over nothing."""
    f, (kh, kw) = writer.f, writer.kernel.kernel
    c, i, j = strides
    with span(f, 0, kh) as tap_i, span(f, 0, kw) as tap_j, span(f, 0, plan.channels) as channel:
        row = writer.at(result, (tap_i, i), (tap_j, j), (channel, c))
        fill_zero(f, writer.dtype, row, writer.kernel.filters)


def _sides(writer: ConvolutionWriter, plan: WeightGrad) -> tuple[tuple[Image, Value, Value], ...]:
    """For x and y how they are read, where they lie, and where copies go."""
    return (plan.image, writer.first, writer.area("frames")), (plan.y, writer.second, writer.area("y"))


def _image_places(writer: ConvolutionWriter, plan: WeightGrad, start: Index) -> tuple[Value, Value]:
    """The addresses at which image ``start`` of x and y is read, the first of those that are taken together."""
    pixels, y = (
        writer.at(source, (start, image.strides[0])) if image.in_place else to
        for image, source, to in _sides(writer, plan)
    )
    return pixels, y


def _clear(writer: ConvolutionWriter, plan: WeightGrad, first: Index, count: int) -> None:
    """Zero what copies of some images have besides these."""
    for image, _, to in _sides(writer, plan):
        writer.clear_frame(image, writer.at(to, (first, image.pitch)), count)


def _copy_images(writer: ConvolutionWriter, plan: WeightGrad, start: Index, images: Range) -> None:
    """Bring some images of x and y into the form that is read, ``start`` being the first of those taken together."""
    f = writer.f
    for image, source, to in _sides(writer, plan):
        if not image.in_place:
            with span(f, *images) as number:
                writer.frame(image, source, number, writer.at(to, (f.sub(number, start), image.pitch)))


def _weight_tile(
    writer: ConvolutionWriter, plan: WeightGrad, result: Value, pixels: Value, y: Value, tile: Sequence[Index],
    images: Range, row: Index, first: Index,
) -> None:  # fmt: skip
    """Add what a block of rows of images gives to one tile: of a group, for a tap (i, j), in a column panel, a row
    panel."""
    f, kernel, image, tiling = writer.f, writer.kernel, plan.image, plan.tiling
    group, i, j, panel, row_panel = tile
    outputs = kernel.filters // image.groups
    _, (o, c, i_stride, j_stride) = _weights_result(writer, plan)
    # Rows of tiles are runs of (j, c), or of c alone.
    a_base = writer.at(pixels, (group, image.group)) if image.groups > 1 else pixels
    a_tap = writer.at(a_base, (i, kernel.dilation[0] * image.row), (j, kernel.dilation[1] * image.pixel))
    x_row, x_pixel = kernel.stride[0] * image.row, kernel.stride[1] * image.pixel
    if plan.packed:
        x_row, x_pixel = plan.out_width * tiling.rows, tiling.rows
    b = writer.at(y, (group, outputs), (panel, tiling.width))
    c_panel = writer.at(result, (group, outputs * o), (i, i_stride), (j, j_stride), (panel, tiling.width))
    m = tiling.row_start(f, row_panel)
    with span(f, *images) as number:
        local = f.sub(number, images[0])
        rows = f.min(plan.rows, f.sub(kernel.out_height, row))
        a = writer.at(a_tap, (m, 1), (local, plan.image.pitch), (row, x_row))
        if plan.packed:
            a = writer.at(pixels, (row_panel, plan.packed_panel), (local, plan.packed_image))
        at = TileOperands(
            a, 1, x_pixel,
            writer.at(b, (local, plan.y.pitch), (row, plan.y.row)), plan.y.pixel,
            writer.at(c_panel, (m, c)), c, kernel.out_width, f.add(f.sub(number, first), row), rows, x_row, plan.y.row,
        )  # fmt: skip
        call_tile(f, tiling, "columns", row_panel, panel, at)
