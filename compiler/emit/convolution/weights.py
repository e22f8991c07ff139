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

from staticgrad.base.extents import highest, is_same
from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.convolution.images import ConvolutionWriter, Image, is_run, seconds_of, x_image
from staticgrad.compiler.emit.convolution.panels import pack_pixels
from staticgrad.compiler.emit.convolution.plan import Area, Range, Scratch, areas
from staticgrad.compiler.emit.convolution.prefetch import PrefetchRuns
from staticgrad.compiler.emit.convolution.schedule import Chunks, SumChunks, SumPlan, share_of
from staticgrad.compiler.emit.convolution.weights_store import STORE_FILTERS, finish_weights, store_sums
from staticgrad.compiler.emit.llvm import Index, Value, integer
from staticgrad.compiler.emit.microkernel import TileOperands, call_tile, fill_zero, row_start, span
from staticgrad.compiler.emit.parallel import chunk_range, divide, unravel
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.chunks import wanted_chunks
from staticgrad.compiler.plans.tiles import Tiling, aligned_bytes, choose_tiling, round_up

IMAGES_BYTES = 1 << 20  # of images that are multiplied into the weights' gradient at a time
BLOCK_BYTES = 256 << 10  # of a block of rows of one image, where one is larger than that
BLOCK_PIXELS = 256  # at least: the result is read and written for each block
WORTH_STORING = 1 << 15  # weights: fewer are stored by one thread
PART_PIXELS = 512  # of such a chunk at least: its weights are cleared and added in the end


@frozen
class _PixelBlock:
    """A block of rows of some images, from ``row`` on; the sum begins with image ``first``."""

    images: Range
    row: Index
    first: Index


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

    def sums(self, writer: ConvolutionWriter) -> Value:
        return writer.result_pointer if self.direct else writer.area("sums")

    def _sides(self, writer: ConvolutionWriter) -> tuple[tuple[Image, Value, Value], ...]:
        """For x and y how they are read, where they lie, and where copies go."""
        return (self.image, writer.first, writer.area("frames")), (self.y, writer.second, writer.area("y"))

    def _places(self, writer: ConvolutionWriter, start: Index) -> list[Value]:
        """The addresses at which image ``start`` of x and y is read, the first of those that are taken together."""
        return [
            writer.at(source, (start, image.strides[0])) if image.in_place else to
            for image, source, to in self._sides(writer)
        ]

    # -- loops --------------------------------------------------------------------------------------------------

    def add(self, writer: ConvolutionWriter, sums: Value, segments: Range, unit: Index) -> None:
        f, (low, high), kernel, height = writer.f, segments, self.kernel, self.kernel.out_height
        if 0 in (kernel.batch, height, kernel.out_width):
            with span(f, 0, math.prod(kernel.kernel) * kernel.of_group[0]) as number:
                tap = unravel(f, number, (0, kernel.kernel[1], kernel.of_group[0]))
                _, c, i, j = self.strides
                fill_zero(f, writer.dtype, writer.at(sums, *zip(tap, (i, j, c))), kernel.filters)
            return
        self._clear(writer, 0, f.min(self.together, kernel.batch))
        with span(f, low, high, self.together) as start:
            images = (start, f.min(f.add(start, self.together), high))
            self._copy(writer, start, images)
            places = self._places(writer, start)
            with span(f, 0, height, self.rows) as row:
                if self.packed:
                    with span(f, *images) as number:
                        self._pack(writer, start, number, row, 0, f.min(self.rows, f.sub(height, row)))
                self._add_tiles(writer, sums, places, (0, math.prod(self.grid)), _PixelBlock(images, row, low))

    def finish(self, writer: ConvolutionWriter, sums: Value) -> None:
        if writer.result is not None and not self.direct:
            store_sums(writer, self.sums(writer), self.strides, 0, self.kernel.filters)
        finish_weights(writer, self.sums(writer))

    @property
    def words(self) -> int:
        """The images that are worked on, from and to, and their first row."""
        return 3

    def emit_units(self, chunks: Chunks, share: int) -> None:
        """Copy the images that are taken together, an image a chunk; then add to the tiles of the result."""
        f, kernel, table = chunks.f, self.kernel, chunks.table
        copy = None if self.image.in_place and self.y.in_place else self._copy_part(chunks)
        pack = self._pack_part(chunks) if self.packed else None
        tiles = self._tiles_part(chunks, share)
        with span(f, 0, kernel.batch, self.together) as start:
            end = f.min(f.add(start, self.together), kernel.batch)
            table.set_word(0, start)
            table.set_word(1, end)
            if copy is not None:
                chunks.run(copy, f.sub(end, start))
            with span(f, 0, kernel.out_height, kernel.out_height if pack is None else self.rows) as row:
                table.set_word(2, row)
                if pack is not None:
                    # Several images have one block each, of all their rows.
                    chunks.run(pack, f.mul(f.sub(end, start), f.min(self.rows, f.sub(kernel.out_height, row))))
                chunks.run(tiles, -(-self.sharing.units // share))
        weights = kernel.filters * kernel.of_group[0] * math.prod(kernel.kernel)
        if weights < f.target.sized(WORTH_STORING) or kernel.filters < 2 * STORE_FILTERS:
            self.finish(chunks.own, self.sums(chunks.own))
        else:
            chunks.run(self._store_part(chunks), -(-kernel.filters // STORE_FILTERS))

    def _copy_part(self, chunks: Chunks) -> str:
        """A chunk: one image of x and y, brought into the form that is read."""
        part, writer = chunks.open("copy")
        f, start = part.f, part.table.word(0)
        with f.when(f.compare("icmp eq", start, integer(0))):
            self._clear(writer, part.chunk, 1)
        number = f.add(start, part.chunk)
        self._copy(writer, start, (number, f.add(number, 1)))
        return f.finish()

    def _pack_part(self, chunks: Chunks) -> str:
        """A chunk: one row of a block, packed for the tiles."""
        part, writer = chunks.open("pack")
        f, start, block = part.f, part.table.word(0), part.table.word(2)
        image, local = divide(f, part.chunk, f.min(self.rows, self.kernel.out_height))
        self._pack(writer, start, f.add(start, image), block, local, 1)
        return f.finish()

    def _tiles_part(self, chunks: Chunks, share: int) -> str:
        """A chunk: some tiles of the result."""
        part, writer = chunks.open("tiles")
        f, start, end, height = part.f, part.table.word(0), part.table.word(1), self.kernel.out_height
        places, sums = self._places(writer, start), self.sums(writer)
        tiles = chunk_range(f, part.chunk, share, self.sharing.units)
        with span(f, part.table.word(2), height, height if self.packed else self.rows) as row:
            self._add_tiles(writer, sums, places, tiles, _PixelBlock((start, end), row, 0))
        return f.finish()

    def _store_part(self, chunks: Chunks) -> str:
        """A chunk: some filters, stored and handed to the epilogue."""
        part, writer = chunks.open("store")
        f, (whole, rest) = part.f, divmod(self.kernel.filters, STORE_FILTERS)

        def store(first: Index, count: int) -> None:
            sums = self.sums(writer)
            if writer.result is not None and not self.direct:
                store_sums(writer, writer.at(sums, (first, 1)), self.strides, first, count)
            finish_weights(writer, sums, (first, f.add(first, count)))

        if rest == 0:
            store(f.mul(part.chunk, STORE_FILTERS), STORE_FILTERS)
        else:
            with f.when(f.compare("icmp eq", part.chunk, integer(whole))):
                store(whole * STORE_FILTERS, rest)
            with f.when(f.compare("icmp slt", part.chunk, integer(whole))):
                store(f.mul(part.chunk, STORE_FILTERS), STORE_FILTERS)
        return f.finish()

    # -- operands -----------------------------------------------------------------------------------------------

    def _clear(self, writer: ConvolutionWriter, first: Index, count: Index) -> None:
        """Zero what copies of some images have besides these."""
        for image, _, to in self._sides(writer):
            writer.clear_frame(image, writer.at(to, (first, image.pitch)), count)

    def _copy(self, writer: ConvolutionWriter, start: Index, images: Range) -> None:
        """Bring some images of x and y into the form that is read, ``start`` being the first of those taken
        together."""
        f = writer.f
        for image, source, to in self._sides(writer):
            if not image.in_place:
                with span(f, *images) as number:
                    writer.frame(image, source, number, writer.at(to, (f.sub(number, start), image.pitch)))

    def _pack(
        self, writer: ConvolutionWriter, start: Index, number: Index, block: Index, local: Index, rows: Index
    ) -> None:
        """Pack some rows of an image for the tiles: those from number ``local`` on of the block that begins with row
        ``block``; the first of the images that are taken together is ``start``."""
        f, (vertical, horizontal), image, row = writer.f, self.kernel.stride, self.image, self.packed_row
        to = writer.at(writer.area("frames"), (f.sub(number, start), self.rows * row), (local, row))
        source = writer.at(writer.first, (number, image.strides[0]), (f.add(block, local), vertical * image.row))
        pixel, width = horizontal * image.pixel, self.kernel.out_width
        if is_same(vertical * image.row, width * pixel):  # one row after the other
            pack_pixels(f, self.tiling, to, self.packed_panel, source, pixel, f.mul(rows, width))
            return
        with f.loop(0, rows) as loop:
            line = writer.at(source, (loop.index, vertical * image.row))
            pack_pixels(f, self.tiling, writer.at(to, (loop.index, row)), self.packed_panel, line, pixel, width)

    # -- tiles --------------------------------------------------------------------------------------------------

    def _add_tiles(
        self, writer: ConvolutionWriter, sums: Value, places: Sequence[Value], tiles: Range, block: _PixelBlock
    ) -> None:
        """Add what a block of rows of some images gives to some tiles of the result."""
        f, kernel = writer.f, self.kernel
        in_place = self.image.in_place and kernel.stride == (1, 1), self.y.in_place
        with span(f, *tiles) as number:
            for image, place, ahead in zip((self.image, self.y), places, in_place, strict=True):
                if ahead:
                    self._prefetch(writer, writer.at(place, (block.row, image.row)), image, number)
            self._add_tile(writer, sums, places, unravel(f, number, self.grid), block)

    def _prefetch(self, writer: ConvolutionWriter, place: Value, image: Image, number: Index) -> None:
        """Prefetch some of what follows the block that starts at ``place``: tiles read it column by column, in steps
        that no hardware prefetcher foresees. All tiles together prefetch as much as a block is."""
        block = image.pitch * self.together if self.together > 1 else image.row * self.rows  # 0: a row without others
        following = PrefetchRuns(writer.at(place, (1, block)), block * writer.dtype.itemsize)
        following.ask(writer, number, math.prod(self.grid))

    def _add_tile(
        self, writer: ConvolutionWriter, sums: Value, places: Sequence[Value], tile: Sequence[Index], block: _PixelBlock
    ) -> None:
        """Add what a block of rows of images gives to one tile: of a group, for a tap (i, j), in a column panel, a row
        panel."""
        f, kernel, image, tiling, row = writer.f, self.kernel, self.image, self.tiling, block.row
        group, i, j, panel, row_panel = tile
        outputs = kernel.filters // image.groups
        o, c, i_stride, j_stride = self.strides
        # Rows of tiles are runs of (j, c), or of c alone.
        pixels, packed = places[0], writer.area("frames") if self.packed else None
        a_base = writer.at(pixels, (group, image.group)) if image.groups > 1 else pixels
        a_tap = writer.at(a_base, (i, kernel.dilation[0] * image.row), (j, kernel.dilation[1] * image.pixel))
        x_row, x_pixel = kernel.stride[0] * image.row, kernel.stride[1] * image.pixel
        if packed is not None:
            x_row, x_pixel = self.packed_row, tiling.rows
        b = writer.at(places[1], (group, outputs), (panel, tiling.width))
        c_panel = writer.at(sums, (group, outputs * o), (i, i_stride), (j, j_stride), (panel, tiling.width))
        m = row_start(f, tiling, row_panel)
        with span(f, *block.images) as number:
            local = f.sub(number, block.images[0])
            rows = f.min(self.rows, f.sub(kernel.out_height, row))
            if packed is None:
                a = writer.at(a_tap, (m, 1), (local, image.pitch), (row, x_row))
            else:
                a = writer.at(packed, (row_panel, self.packed_panel), (local, self.rows * x_row))
            at = TileOperands(
                a, 1, x_pixel, writer.at(b, (local, self.y.pitch), (row, self.y.row)), self.y.pixel,
                writer.at(c_panel, (m, c)), c, kernel.out_width, f.add(f.sub(number, block.first), row), rows, x_row,
                self.y.row,
            )  # fmt: skip
            call_tile(f, tiling, "columns", row_panel, panel, at)


@functools.lru_cache(maxsize=4096)
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
