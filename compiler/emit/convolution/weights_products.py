"""Writes ``WeightProducts``: panels of columns transposed for a segment, and tiles added up.

A segment is many short pieces of memory, which no hardware prefetcher foresees: so between two tiles some lines of the
next one are prefetched.
"""

from __future__ import annotations

import contextlib
import functools

from staticgrad.base.extents import is_open
from staticgrad.compiler.emit.convolution.planes import Segment, bring_planes, segment_at
from staticgrad.compiler.emit.convolution.prefetch import PrefetchRuns
from staticgrad.compiler.emit.convolution.schedule import SegmentsEmitter
from staticgrad.compiler.emit.convolution.weights_store import finish_weights, store_sums
from staticgrad.compiler.emit.convolution.writer import ConvolutionWriter, Range
from staticgrad.compiler.emit.llvm import Function, Index, Value
from staticgrad.compiler.emit.microkernel import Matrix, TileOperands, by_width, call_tile, row_start, rows_of, span
from staticgrad.compiler.emit.parallel import unravel
from staticgrad.compiler.plans.convolution.weights_products import Side, WeightProducts


def _pixels_at(side: Side, writer: ConvolutionWriter, segment: Segment, plane: Index) -> Value:
    """The first pixel of a segment in a plane."""
    base = writer.second if side.number else writer.first
    return writer.at(base, (segment.images[0], side.image), (plane, side.plane), (segment.rows[0], side.row))


class WeightProductsEmitter(SegmentsEmitter[WeightProducts]):
    def sums(self, writer: ConvolutionWriter) -> Value:
        return writer.result_pointer if self.plan.in_place else writer.area("sums")

    def add_segment(self, writer: ConvolutionWriter, sums: Value, segment: Segment, later: Index, units: Range) -> None:
        f, tiling, panel = writer.f, self.plan.tiling, writer.area("panel")
        with span(f, *units) as unit:
            group, column, part = self._place(f, unit)
            first = f.mul(column, tiling.width)
            pack = functools.partial(self._pack, writer, panel, segment, group, first)
            by_width(f, tiling, column, tiling.n, pack)
            rows = self._row_panels(f, part)
            with span(f, *rows) as row:
                if self.plan.segments.number != 1:
                    with self._when_more(f, segment):
                        self._prefetch(writer, segment, group, row, column, f.sub(row, rows[0]))
                self._tile(writer, sums, segment, later, panel, group, row, column)

    def _when_more(self, f: Function, segment: Segment) -> contextlib.AbstractContextManager[None]:
        """Leave out what is for the next segment where there may be a single one, and this is the last."""
        if not is_open(self.plan.segments.number):
            return contextlib.nullcontext()
        return f.when(f.compare("icmp slt", f.index(f.add(segment.number, 1)), f.index(self.plan.segments.number)))

    def _place(self, f: Function, unit: Index) -> list[Index]:
        """The group, the panel of columns and the part of the rows of a unit."""
        return unravel(f, unit, (0, self.plan.tiling.column_panels, self.plan.row_parts))

    def _row_panels(self, f: Function, part: Index) -> Range:
        low = f.mul(part, self.plan.part_panels)
        return low, f.min(f.add(low, self.plan.part_panels), self.plan.tiling.row_panels)

    def _pack(
        self, writer: ConvolutionWriter, panel: Value, segment: Segment, group: Index, first: Index, count: int
    ) -> None:
        """Transpose the pixels of ``count`` planes of a panel of columns, from number ``first`` of a group on."""
        f, plan = writer.f, self.plan
        width, side, columns = plan.tiling.width, plan.columns, plan.kernel.out_width
        of_group = f.mul(group, side.count)
        if plan.planes is None:
            source, image, plane = _pixels_at(side, writer, segment, f.add(of_group, first)), side.image, side.plane
        else:
            source, image, plane = writer.area("planes"), plan.planes.image, plan.planes.pitch
            bring_planes(plan.planes, writer, source, (first, f.add(first, count)), of_group, segment)
        with span(f, 0, segment.count(f)) as number:
            to = Matrix(writer.at(panel, (number, plan.pixels * width)), width, 1)
            pixels = Matrix(writer.at(source, (number, image)), 1, plane)
            writer.copy(to, pixels, segment.pixels(f, columns), count, plan.segments.fewest * columns)

    def _tile(
        self, writer: ConvolutionWriter, sums: Value, segment: Segment, later: Index, panel: Value, group: Index,
        row: Index, column: Index,
    ) -> None:  # fmt: skip
        f, plan, tiling, side = writer.f, self.plan, self.plan.tiling, self.plan.rows
        c_row, c_column = plan.strides[::-1] if plan.swapped else plan.strides
        first, of_group = row_start(f, tiling, row), f.mul(group, plan.kernel.of_group[1])
        to = writer.at(sums, (of_group, plan.strides[0]), (first, c_row), (f.mul(column, tiling.width), c_column))
        a = _pixels_at(side, writer, segment, f.add(f.mul(group, side.count), first))
        pixels, count = segment.pixels(f, plan.kernel.out_width), segment.count(f)
        at = TileOperands(a, side.plane, 1, panel, tiling.width, to, c_row, pixels, later, count, side.image,
                          plan.pixels * tiling.width)  # fmt: skip
        call_tile(f, tiling, "rows", row, column, at)

    def _prefetch(
        self, writer: ConvolutionWriter, segment: Segment, group: Index, row: Index, column: Index, place: Index
    ) -> None:
        """Prefetch some of the next segment: all tiles together prefetch all of it. ``place`` is that of the tile in
        its unit."""
        f, plan, tiling = writer.f, self.plan, self.plan.tiling
        following = segment_at(plan.segments, f, f.add(segment.number, 1))

        def ask(side: Side, plane: Index, planes: int, part: Index, parts: int) -> None:
            nbytes = max(1, plan.segments.rows * abs(side.row) * writer.dtype.itemsize)
            pieces = ((0, plan.segments.together), side.image), ((0, planes), side.plane)
            at = _pixels_at(side, writer, following, f.add(f.mul(group, side.count), plane))
            PrefetchRuns(at, nbytes, pieces, near=False).ask(writer, part, parts)

        ask(plan.rows, row_start(f, tiling, row), tiling.rows, column, tiling.column_panels)
        share = -(-tiling.width // plan.part_panels)
        ask(plan.columns, f.add(f.mul(column, tiling.width), f.mul(place, share)), share, 0, 1)

    def finish(self, writer: ConvolutionWriter, sums: Value) -> None:
        self._finish(writer, sums, (0, self.plan.kernel.filters), (0, self.plan.kernel.of_group[0]))

    def finish_units(self, writer: ConvolutionWriter, sums: Value, units: Range) -> None:
        f, tiling = writer.f, self.plan.tiling
        with span(f, *units) as unit:
            group, column, part = self._place(f, unit)
            rows = rows_of(f, tiling, *self._row_panels(f, part))
            first = f.mul(column, tiling.width)
            columns: Range = (first, f.min(f.add(first, tiling.width), tiling.n))
            (low, high), channels = (columns, rows) if self.plan.swapped else (rows, columns)
            of_group = f.mul(group, self.plan.kernel.of_group[1])
            self._finish(writer, sums, (f.add(of_group, low), f.add(of_group, high)), channels)

    def _finish(self, writer: ConvolutionWriter, sums: Value, filters: Range, channels: Range) -> None:
        """Bring some weights into their place and hand them on."""
        if writer.result is not None and not self.plan.in_place:
            strides = *self.plan.strides, 1, 1
            at = writer.at(sums, (filters[0], strides[0]), (channels[0], strides[1]))
            least = min(self.plan.tiling.heights()[-1], (self.plan.tiling.n - 1) % self.plan.tiling.width + 1)
            count = writer.f.sub(filters[1], filters[0])
            store_sums(writer, at, strides, filters[0], count, channels, least)
        finish_weights(writer, sums, filters, channels)
