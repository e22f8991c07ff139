"""Writes ``WeightGrad``: blocks of rows of images copied or packed, and added to the tiles of the result.

What comes next is prefetched in the meantime. In chunks, first the images are copied or a block of them is packed, then
the tiles of the result are chunks, each over all that was brought, and at the end the filters that are stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from staticgrad.base.extents import is_same
from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.convolution.panels import pack_pixels
from staticgrad.compiler.emit.convolution.prefetch import PrefetchRuns
from staticgrad.compiler.emit.convolution.schedule import Chunks, SumEmitter
from staticgrad.compiler.emit.convolution.weights_store import STORE_FILTERS, finish_weights, store_sums
from staticgrad.compiler.emit.convolution.writer import ConvolutionWriter, Range
from staticgrad.compiler.emit.llvm import Index, Value, integer
from staticgrad.compiler.emit.microkernel import TileOperands, call_tile, fill_zero, row_start, span
from staticgrad.compiler.emit.parallel import chunk_range, divide, unravel
from staticgrad.compiler.plans.convolution.images import Image
from staticgrad.compiler.plans.convolution.weights import WeightGrad

WORTH_STORING = 1 << 15  # weights: fewer are stored by one thread


@frozen
class _PixelBlock:
    """A block of rows of some images, from ``row`` on; the sum begins with image ``first``."""

    images: Range
    row: Index
    first: Index


class WeightGradEmitter(SumEmitter[WeightGrad]):
    def sums(self, writer: ConvolutionWriter) -> Value:
        return writer.result_pointer if self.plan.direct else writer.area("sums")

    def _sides(self, writer: ConvolutionWriter) -> tuple[tuple[Image, Value, Value], ...]:
        """For x and y how they are read, where they lie, and where copies go."""
        return (self.plan.image, writer.first, writer.area("frames")), (self.plan.y, writer.second, writer.area("y"))

    def _places(self, writer: ConvolutionWriter, start: Index) -> list[Value]:
        """The addresses at which image ``start`` of x and y is read, the first of those that are taken together."""
        return [
            writer.at(source, (start, image.strides[0])) if image.in_place else to
            for image, source, to in self._sides(writer)
        ]

    # -- loops --------------------------------------------------------------------------------------------------

    def add(self, writer: ConvolutionWriter, sums: Value, segments: Range, unit: Index) -> None:
        f, plan = writer.f, self.plan
        (low, high), kernel, height = segments, plan.kernel, plan.kernel.out_height
        if 0 in (kernel.batch, height, kernel.out_width):
            with span(f, 0, math.prod(kernel.kernel) * kernel.of_group[0]) as number:
                tap = unravel(f, number, (0, kernel.kernel[1], kernel.of_group[0]))
                _, c, i, j = plan.strides
                fill_zero(f, writer.dtype, writer.at(sums, *zip(tap, (i, j, c))), kernel.filters)
            return
        self._clear(writer, 0, f.min(plan.together, kernel.batch))
        with span(f, low, high, plan.together) as start:
            images = (start, f.min(f.add(start, plan.together), high))
            self._copy(writer, start, images)
            places = self._places(writer, start)
            with span(f, 0, height, plan.rows) as row:
                if plan.packed:
                    with span(f, *images) as number:
                        self._pack(writer, start, number, row, 0, f.min(plan.rows, f.sub(height, row)))
                self._add_tiles(writer, sums, places, (0, math.prod(plan.grid)), _PixelBlock(images, row, low))

    def finish(self, writer: ConvolutionWriter, sums: Value) -> None:
        if writer.result is not None and not self.plan.direct:
            store_sums(writer, self.sums(writer), self.plan.strides, 0, self.plan.kernel.filters)
        finish_weights(writer, self.sums(writer))

    @property
    def words(self) -> int:
        """The images that are worked on, from and to, and their first row."""
        return 3

    def emit_units(self, chunks: Chunks, share: int) -> None:
        """Copy the images that are taken together, an image a chunk; then add to the tiles of the result."""
        plan = self.plan
        f, kernel, table = chunks.f, plan.kernel, chunks.table
        copy = None if plan.image.in_place and plan.y.in_place else self._copy_part(chunks)
        pack = self._pack_part(chunks) if plan.packed else None
        tiles = self._tiles_part(chunks, share)
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
                chunks.run(tiles, -(-plan.sharing.units // share))
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
        image, local = divide(f, part.chunk, f.min(self.plan.rows, self.plan.kernel.out_height))
        self._pack(writer, start, f.add(start, image), block, local, 1)
        return f.finish()

    def _tiles_part(self, chunks: Chunks, share: int) -> str:
        """A chunk: some tiles of the result."""
        plan = self.plan
        part, writer = chunks.open("tiles")
        f, start, end, height = part.f, part.table.word(0), part.table.word(1), plan.kernel.out_height
        places, sums = self._places(writer, start), self.sums(writer)
        tiles = chunk_range(f, part.chunk, share, plan.sharing.units)
        with span(f, part.table.word(2), height, height if plan.packed else plan.rows) as row:
            self._add_tiles(writer, sums, places, tiles, _PixelBlock((start, end), row, 0))
        return f.finish()

    def _store_part(self, chunks: Chunks) -> str:
        """A chunk: some filters, stored and handed to the epilogue."""
        part, writer = chunks.open("store")
        f, (whole, rest) = part.f, divmod(self.plan.kernel.filters, STORE_FILTERS)

        def store(first: Index, count: int) -> None:
            sums = self.sums(writer)
            if writer.result is not None and not self.plan.direct:
                store_sums(writer, writer.at(sums, (first, 1)), self.plan.strides, first, count)
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
        f, plan = writer.f, self.plan
        (vertical, horizontal), image, row = plan.kernel.stride, plan.image, plan.packed_row
        to = writer.at(writer.area("frames"), (f.sub(number, start), plan.rows * row), (local, row))
        source = writer.at(writer.first, (number, image.strides[0]), (f.add(block, local), vertical * image.row))
        pixel, width = horizontal * image.pixel, plan.kernel.out_width
        if is_same(vertical * image.row, width * pixel):  # one row after the other
            pack_pixels(f, plan.tiling, to, plan.packed_panel, source, pixel, f.mul(rows, width))
            return
        with f.loop(0, rows) as loop:
            line = writer.at(source, (loop.index, vertical * image.row))
            pack_pixels(f, plan.tiling, writer.at(to, (loop.index, row)), plan.packed_panel, line, pixel, width)

    # -- tiles --------------------------------------------------------------------------------------------------

    def _add_tiles(
        self, writer: ConvolutionWriter, sums: Value, places: Sequence[Value], tiles: Range, block: _PixelBlock
    ) -> None:
        """Add what a block of rows of some images gives to some tiles of the result."""
        f, plan, kernel = writer.f, self.plan, self.plan.kernel
        in_place = plan.image.in_place and kernel.stride == (1, 1), plan.y.in_place
        with span(f, *tiles) as number:
            for image, place, ahead in zip((plan.image, plan.y), places, in_place, strict=True):
                if ahead:
                    self._prefetch(writer, writer.at(place, (block.row, image.row)), image, number)
            self._add_tile(writer, sums, places, unravel(f, number, plan.grid), block)

    def _prefetch(self, writer: ConvolutionWriter, place: Value, image: Image, number: Index) -> None:
        """Prefetch some of what follows the block that starts at ``place``: tiles read it column by column, in steps
        that no hardware prefetcher foresees. All tiles together prefetch as much as a block is."""
        block = (
            image.pitch * self.plan.together if self.plan.together > 1 else image.row * self.plan.rows
        )  # 0: a row without others
        following = PrefetchRuns(writer.at(place, (1, block)), block * writer.dtype.itemsize)
        following.ask(writer, number, math.prod(self.plan.grid))

    def _add_tile(
        self, writer: ConvolutionWriter, sums: Value, places: Sequence[Value], tile: Sequence[Index], block: _PixelBlock
    ) -> None:
        """Add what a block of rows of images gives to one tile: of a group, for a tap (i, j), in a column panel, a row
        panel."""
        f, plan = writer.f, self.plan
        kernel, image, tiling, row = plan.kernel, plan.image, plan.tiling, block.row
        group, i, j, panel, row_panel = tile
        outputs = kernel.filters // image.groups
        o, c, i_stride, j_stride = plan.strides
        # Rows of tiles are runs of (j, c), or of c alone.
        pixels, packed = places[0], writer.area("frames") if plan.packed else None
        a_base = writer.at(pixels, (group, image.group)) if image.groups > 1 else pixels
        a_tap = writer.at(a_base, (i, kernel.dilation[0] * image.row), (j, kernel.dilation[1] * image.pixel))
        x_row, x_pixel = kernel.stride[0] * image.row, kernel.stride[1] * image.pixel
        if packed is not None:
            x_row, x_pixel = plan.packed_row, tiling.rows
        b = writer.at(places[1], (group, outputs), (panel, tiling.width))
        c_panel = writer.at(sums, (group, outputs * o), (i, i_stride), (j, j_stride), (panel, tiling.width))
        m = row_start(f, tiling, row_panel)
        with span(f, *block.images) as number:
            local = f.sub(number, block.images[0])
            rows = f.min(plan.rows, f.sub(kernel.out_height, row))
            if packed is None:
                a = writer.at(a_tap, (m, 1), (local, image.pitch), (row, x_row))
            else:
                a = writer.at(packed, (row_panel, plan.packed_panel), (local, plan.rows * x_row))
            at = TileOperands(
                a, 1, x_pixel, writer.at(b, (local, plan.y.pitch), (row, plan.y.row)), plan.y.pixel,
                writer.at(c_panel, (m, c)), c, kernel.out_width, f.add(f.sub(number, block.first), row), rows, x_row,
                plan.y.row,
            )  # fmt: skip
            call_tile(f, tiling, "columns", row_panel, panel, at)
