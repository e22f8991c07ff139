"""Writes ``Planar``: the rows of an image that a block needs brought into a strip, and the block's tiles."""

from __future__ import annotations

from staticgrad.base.extents import is_open
from staticgrad.compiler.emit.convolution.plane_tile import frame_rows
from staticgrad.compiler.emit.convolution.schedule import UnitsEmitter, each_unit
from staticgrad.compiler.emit.convolution.taps import reached, within
from staticgrad.compiler.emit.convolution.unstage import finish_unit, place_unit
from staticgrad.compiler.emit.convolution.writer import ConvolutionWriter, Range
from staticgrad.compiler.emit.lanes import counted
from staticgrad.compiler.emit.llvm import Function, Index, Value
from staticgrad.compiler.emit.microkernel import Matrix, TileOperands, call_tile, fill_zero, row_start, span
from staticgrad.compiler.plans.convolution.planar import Planar
from staticgrad.compiler.plans.tiles import round_up


class PlanarEmitter(UnitsEmitter[Planar]):
    def prepare(self, writer: ConvolutionWriter) -> None:
        """Pack the weights as ``[group][filter][i][c][j]``."""
        (kh, kw), w, terms = (t.number for t in self.plan.taps), self.plan.weights, self.plan.terms
        groups, outputs, channels = self.plan.image.groups, self.plan.tiling.m, self.plan.image.channels
        source = writer.f.offset(writer.second, w.offset, writer.element)
        filters = (groups, outputs * terms, w.group), (outputs, terms, w.out)
        taps = (kh, channels * kw, w.i), (channels, kw, w.input), (kw, 1, w.j)
        writer.rearrange(writer.area("weights"), source, *filters, *taps)

    def work(self, writer: ConvolutionWriter, chunk: Value | None) -> None:
        f, plan, groups = writer.f, self.plan, self.plan.image.groups
        strip, line = writer.area("strip"), writer.area("line")
        fill_zero(f, writer.dtype, strip, groups * plan.strip_group)
        with each_unit(plan.units, f, chunk) as (number, rows):
            self._fill_strip(writer, strip, number, rows)
            to = place_unit(plan.result, writer, number, 0, rows[0])
            if plan.planes:
                self._planes(writer, strip, to, rows)
            else:
                with span(f, *rows) as p, span(f, 0, groups) as group:
                    self._row(writer, strip, line, to, rows[0], p, group)
            finish_unit(plan.result, writer, number, (0, plan.result.outputs), rows)

    def _fill_strip(self, writer: ConvolutionWriter, strip: Value, number: Index, block: Range) -> None:
        """Copy the rows of image ``number`` that a block of rows needs; rows outside the image are zero."""
        f, plan, image, (vertical, horizontal) = writer.f, self.plan, self.plan.image, self.plan.taps
        left = image.offset[1] - horizontal.origin
        low = max(0, -left)
        count = min(image.size[1], plan.tiling.n + (horizontal.number - 1) * horizontal.dilation - left) - low
        if count <= 0 or image.size[0] == 0:
            return
        s_n, s_c, s_h, s_w = image.strides
        spare = writer.at(strip, (image.groups, plan.strip_group))  # for pixels that no tap reads
        top = f.add(f.mul(block[0], vertical.step), vertical.origin - image.offset[0])
        reach = (vertical.number - 1) * vertical.dilation + 1
        needed = f.add(f.mul(f.sub(f.sub(block[1], block[0]), 1), vertical.step), reach)
        inside = within(f, top, 1, image.size[0], needed)
        base = writer.at(writer.first, (number, s_n), (top, s_h))
        with span(f, 0, image.groups) as group:
            to = writer.at(strip, (group, plan.strip_group))
            writer.clear_around(to, plan.strip_row, needed, inside)
            with counted(f, *inside) as row:
                line = writer.at(to, (row.index, plan.strip_row))
                origin = writer.at(base, (row.index, s_h), (group, image.channels * s_c))
                if plan.dealt:
                    self._deal_row(writer, line, origin, spare)
                else:
                    pixels = Matrix(writer.at(origin, (low, s_w)), s_c, s_w)
                    to_pixels = Matrix(writer.at(line, (low + left, 1)), plan.pitch, 1)
                    writer.copy(to_pixels, pixels, image.channels, count, asks=is_open(count))

    def _deal_row(self, writer: ConvolutionWriter, to: Value, row: Value, spare: Value) -> None:
        """One row of every channel, for each tap the pixels that it reads beside each other: every second one. Two
        taps next to each other read every pixel, so these are dealt out to them by turns."""
        f, plan = writer.f, self.plan
        taps, (_, width), (_, s_c, s_h, _) = plan.taps[1], plan.image.size, plan.image.strides
        left = plan.image.offset[1] - taps.origin
        tap_of = {j * taps.dilation - left: j for j in range(taps.number)}  # by the pixel that q = 0 reads
        for even in sorted({first - first % 2 for first in tap_of}):
            low, skipped = max(0, even), max(0, -even // 2)
            count = min(width - low, 2 * (plan.tiling.n - skipped))
            if count > 0:
                pair = (tap_of.get(first) for first in (even, even + 1))
                lines = (spare if j is None else writer.at(to, (j, plan.pitch), (skipped, 1)) for j in pair)
                shape = s_c, plan.image.channels, count, s_h
                to_row, source = plan.copies * plan.pitch, writer.at(row, (low, 1))
                frame_rows(f, writer.dtype, 2, *lines, to_row, source, *shape)

    def _planes(self, writer: ConvolutionWriter, strip: Value, to: Value, rows: Range) -> None:
        """A block of rows, written where it belongs. Some outputs at a time: of each there are rows below each other,
        a longer piece of memory than the rows of all outputs by turns."""
        f, tiling, (s_o, s_p, _) = writer.f, self.plan.tiling, self.plan.result.written
        groups = self.plan.image.groups
        with span(f, 0, groups) as group, span(f, 0, tiling.row_panels) as row_panel, span(f, *rows) as p:
            place = Matrix(writer.at(to, (f.mul(group, tiling.m), s_o), (p, s_p)), s_o, 1)
            x, reads = self._line(writer, strip, rows[0], p, group), self._reads(f, p)
            with span(f, 0, tiling.column_panels) as panel:
                self._tile(writer, x, reads, place, group, row_panel, panel)

    def _row(
        self, writer: ConvolutionWriter, strip: Value, line: Value, to: Value, first: Index, p: Index, group: Index
    ) -> None:
        """Row ``p`` of the result, all outputs of one group, through a scratch row."""
        f, tiling, (s_o, s_p, s_q) = writer.f, self.plan.tiling, self.plan.result.written
        row = Matrix(line, round_up(tiling.n, tiling.lanes), 1)
        x, reads = self._line(writer, strip, first, p, group), self._reads(f, p)
        with span(f, 0, tiling.column_panels) as panel, span(f, 0, tiling.row_panels) as row_panel:
            self._tile(writer, x, reads, row, group, row_panel, panel)
        place = writer.at(to, (f.mul(group, tiling.m), s_o), (p, s_p))
        writer.copy(Matrix(place, s_q, s_o), Matrix(line, 1, row.row), tiling.n, tiling.m, asks=is_open(tiling.n))

    def _line(self, writer: ConvolutionWriter, strip: Value, first: Index, p: Index, group: Index) -> Value:
        """The address in the strip at which row ``p`` of the result begins to read, if the strip is for row ``first``
        and more."""
        row = writer.f.mul(writer.f.sub(p, first), self.plan.taps[0].step)
        return writer.at(strip, (group, self.plan.strip_group), (row, self.plan.strip_row))

    def _reads(self, f: Function, p: Index) -> Range:
        """The vertical taps of row ``p`` that lie below each other in the image, the only ones that are summed: a
        gradient by the images of a convolution without padding meets half of its taps outside. Dilated ones are all
        summed, outside they read rows of zeros."""
        vertical = self.plan.taps[0]
        return reached(f, vertical, self.plan.image, p) if vertical.dilation == 1 else (0, vertical.number)

    def _tile(
        self, writer: ConvolutionWriter, x: Value, reads: Range, to: Matrix, group: Index, row_panel: Index,
        panel: Index,
    ) -> None:  # fmt: skip
        f, plan, tiling, (vertical, horizontal) = writer.f, self.plan, self.plan.tiling, self.plan.taps
        w = writer.at(writer.area("weights"), (group, tiling.m * plan.terms))
        # Rows i that lie below each other are blocks of one sum; dilated ones are sums of their own.
        runs = 1 if vertical.dilation == 1 else vertical.number
        first, together = (reads[0], f.sub(reads[1], reads[0])) if runs == 1 else (0, 1)
        blocks, kw = f.mul(together, plan.image.channels), horizontal.number
        m = row_start(f, tiling, row_panel)
        with span(f, 0, runs) as run:
            i = f.add(first, run)
            a = writer.at(w, (m, plan.terms), (i, plan.image.channels * kw))
            b = writer.at(x, (i, f.mul(vertical.dilation, plan.strip_row)), (panel, tiling.width))
            c = writer.at(to.base, (m, to.row), (panel, tiling.width))
            at = TileOperands(a, plan.terms, 1, b, horizontal.dilation, c, to.row, kw, run, blocks, kw, plan.pitch)
            if kw == plan.copies:  # one block of all terms
                at = TileOperands(a, plan.terms, 1, b, plan.pitch, c, to.row, f.mul(blocks, kw), run)
            call_tile(f, tiling, "rows", row_panel, panel, at)
