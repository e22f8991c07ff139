"""Writes ``PlaneWeights``: planes of x and panels of y brought for a segment, and tiles added up for each tap."""

from __future__ import annotations

import functools

from staticgrad.compiler.emit.convolution.planes import Segment, bring_planes, tap_offset
from staticgrad.compiler.emit.convolution.prefetch import PrefetchRuns
from staticgrad.compiler.emit.convolution.schedule import SegmentsEmitter
from staticgrad.compiler.emit.convolution.weights_store import finish_weights, store_sums, weights_of
from staticgrad.compiler.emit.convolution.writer import ConvolutionWriter, Range
from staticgrad.compiler.emit.llvm import Function, Index, Value
from staticgrad.compiler.emit.microkernel import Matrix, TileOperands, by_width, call_tile, fill_zero, rows_of, span
from staticgrad.compiler.emit.parallel import divide, unravel
from staticgrad.compiler.machine.machine import LINE
from staticgrad.compiler.plans.convolution.weights_planes import PlaneWeights


class PlaneWeightsEmitter(SegmentsEmitter[PlaneWeights]):
    def bring(self, writer: ConvolutionWriter, segment: Segment, pieces: Range) -> None:
        """Pack some panels of y."""
        f, tiling = writer.f, self.plan.tiling
        with span(f, *pieces) as number:
            group, panel = divide(f, number, tiling.column_panels)
            at = writer.at(writer.area("y"), (number, self.plan.y_panel))
            first = self._filter(f, group, panel)
            by_width(f, tiling, panel, self.plan.filters, functools.partial(self._pack, writer, at, segment, first))

    def _filter(self, f: Function, group: Index, panel: Index) -> Index:
        """The first filter of a panel of a group."""
        return f.add(f.mul(group, self.plan.filters), f.mul(panel, self.plan.tiling.width))

    def _pack(self, writer: ConvolutionWriter, to: Value, segment: Segment, first: Index, count: int) -> None:
        """Pack ``count`` filters from number ``first`` on. What a panel lacks is zero: whole vectors of it are read."""
        f, plan, width, columns = writer.f, self.plan, self.plan.tiling.width, self.plan.kernel.out_width
        s_n, s_o, s_p, s_q = plan.kernel.y_strides
        rows = f.sub(segment.rows[1], segment.rows[0])
        with span(f, *segment.images) as image:
            at = writer.at(to, (f.sub(image, segment.images[0]), plan.pixels * width))
            if count < width:
                fill_zero(f, writer.dtype, at, f.mul(rows, columns * width))
            source = writer.at(writer.second, (image, s_n), (first, s_o), (segment.rows[0], s_p))
            if s_p == columns * s_q:  # one row after the other
                to_pixels, pixels = Matrix(at, width, 1), Matrix(source, s_q, s_o)
                writer.copy(to_pixels, pixels, f.mul(rows, columns), count, plan.segments.fewest * columns)
            else:
                with f.loop(0, rows) as row:
                    line = Matrix(writer.at(source, (row.index, s_p)), s_q, s_o)
                    writer.copy(Matrix(writer.at(at, (row.index, columns * width)), width, 1), line, columns, count)

    def add_segment(self, writer: ConvolutionWriter, sums: Value, segment: Segment, later: Index, units: Range) -> None:
        """Add what a segment gives to the tiles of some panels of channels."""
        f, plan, x, tiling = writer.f, self.plan, writer.area("planes"), self.plan.tiling
        with span(f, *units) as unit:
            group, row_panel = divide(f, unit, tiling.row_panels)
            rows = rows_of(f, tiling, row_panel)
            channel = f.mul(group, plan.kernel.of_group[0])
            bring_planes(plan.planes, writer, x, rows, channel, segment, min(tiling.heights()))
            with span(f, 0, tiling.column_panels) as panel:
                to = self._sums_at(writer, sums, group, panel, rows[0]) if plan.kept else sums
                with span(f, 0, plan.taps) as tap:
                    if not plan.kept and _spacing(writer) == 1:
                        self._prefetch_weights(writer, group, rows, panel, tap)
                    self._add_tile(writer, x, to, (group, row_panel, panel, tap), later, segment)
                if not plan.kept:
                    self._store(writer, to, group, rows, panel)
            if not plan.kept:
                self._call_epilogue(writer, group, rows)

    def _sums_at(self, writer: ConvolutionWriter, sums: Value, group: Index, panel: Index, row: Index) -> Value:
        """The address of the sums of a row of a panel of filters, where those of all tiles are kept."""
        f, of_row = writer.f, self.plan.taps * self.plan.tiling.width
        number = f.add(f.mul(group, self.plan.tiling.column_panels), panel)
        return writer.at(sums, (number, self.plan.tiling.m * of_row), (row, of_row))

    def _add_tile(
        self, writer: ConvolutionWriter, x: Value, sums: Value, tile: tuple[Index, Index, Index, Index], later: Index,
        segment: Segment,
    ) -> None:  # fmt: skip
        """Add what a segment gives to one tile: of a group, in a panel of channels and one of filters, for a tap."""
        f, plan, kernel, planes, tiling = writer.f, self.plan, self.plan.kernel, self.plan.planes, self.plan.tiling
        group, row_panel, panel, tap = tile
        i, j = unravel(f, tap, (0, kernel.kernel[1]))
        a = x if plan.unfolded else writer.at(x, (tap_offset(planes, f, i, j), 1))
        if plan.y_in_place:
            s_n, _, s_p, b_step = kernel.y_strides
            first = self._filter(f, group, panel)
            b, b_image = writer.at(writer.second, (segment.images[0], s_n), (segment.rows[0], s_p), (first, 1)), s_n
        else:
            number = f.add(f.mul(group, tiling.column_panels), panel)
            b, b_step = writer.at(writer.area("y"), (number, plan.y_panel)), tiling.width
            b_image = plan.pixels * tiling.width
        at = TileOperands(
            a, planes.of_row * planes.pitch, 1, b, b_step,
            writer.at(sums, (tap, tiling.width)), plan.taps * tiling.width,
            segment.pixels(f, kernel.out_width), later, segment.count(f), planes.image, b_image,
        )  # fmt: skip
        call_tile(f, tiling, "rows", row_panel, panel, at)

    def finish_units(self, writer: ConvolutionWriter, sums: Value, units: Range) -> None:
        f, tiling = writer.f, self.plan.tiling
        with span(f, *units) as unit:
            group, row_panel = divide(f, unit, tiling.row_panels)
            rows = rows_of(f, tiling, row_panel)
            with span(f, 0, tiling.column_panels) as panel:
                self._store(writer, self._sums_at(writer, sums, group, panel, rows[0]), group, rows, panel)
            self._call_epilogue(writer, group, rows)

    def finish(self, writer: ConvolutionWriter, sums: Value) -> None:
        if self.plan.by_units():
            self.finish_units(writer, sums, (0, self.plan.sharing.units))
        elif self.plan.kept:
            f, tiling = writer.f, self.plan.tiling
            with span(f, 0, self.plan.kernel.groups) as group, span(f, 0, tiling.column_panels) as panel:
                self._store(writer, self._sums_at(writer, sums, group, panel, 0), group, (0, tiling.m), panel)
            finish_weights(writer, weights_of(writer)[0])

    def _call_epilogue(self, writer: ConvolutionWriter, group: Index, rows: Range) -> None:
        """Hand on some channels of all filters of a group."""
        first = writer.f.mul(group, self.plan.filters)
        finish_weights(writer, weights_of(writer)[0], (first, writer.f.add(first, self.plan.filters)), rows)

    def _store(self, writer: ConvolutionWriter, sums: Value, group: Index, rows: Range, panel: Index) -> None:
        """Copy the sums of some rows of tiles, in one panel of filters, to the weights."""
        first = self._filter(writer.f, group, panel)
        write = functools.partial(self._store_panel, writer, sums, first, rows)
        by_width(writer.f, self.plan.tiling, panel, self.plan.filters, write)

    def _store_panel(self, writer: ConvolutionWriter, sums: Value, first: Index, rows: Range, count: int) -> None:
        """Copy the sums of ``count`` filters from number ``first`` on: ``[c][i][j][filter]`` to the strides of w."""
        (kh, kw), width = self.plan.kernel.kernel, self.plan.tiling.width
        channels = (0, self.plan.kernel.of_group[0]) if self.plan.unfolded else rows
        strides, least = (1, kh * kw * width, kw * width, width), max(1, self.plan.tiling.rows - 1)
        store_sums(writer, sums, strides, first, count, channels, least, False)

    def _prefetch_weights(self, writer: ConvolutionWriter, group: Index, rows: Range, panel: Index, tap: Index) -> None:
        """Prefetch some of the lines that a tile's weights are stored to: those of a filter are far from the next
        one's."""
        f, plan, tiling = writer.f, self.plan, self.plan.tiling
        result, (o, c, _, _) = weights_of(writer)
        share = -(-tiling.width // plan.taps)
        first = f.add(f.mul(panel, tiling.width), f.mul(tap, share))
        start = writer.at(result, (f.add(f.mul(group, plan.filters), first), o), (rows[0], c))
        nbytes = tiling.rows * plan.taps * writer.dtype.itemsize + LINE  # which begin anywhere in a line
        PrefetchRuns(start, nbytes, (((0, share), o),), unrolled=True).ask(writer)


def _spacing(writer: ConvolutionWriter) -> int | None:
    """The stride of a filter's weights (c, i, j), if they have one."""
    (kh, kw), (_, c, i, j) = writer.kernel.kernel, weights_of(writer)[1]
    spacing = j if kw > 1 else i
    even = kh == 1 or kw == 1 or i == kw * j
    return spacing if even and c == kh * kw * spacing else None
