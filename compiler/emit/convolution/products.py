"""Writes ``Products``: planes as matrices, the pixels of a unit strip by strip.

What is read of an image is too scattered for the hardware prefetcher: so between the tiles of a unit the lines of the
next one are prefetched, channel by channel, as they lie in memory, and a few at a time, since a core waits for no
more.
"""

from __future__ import annotations

from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.convolution.planes import Segment, bring_planes
from staticgrad.compiler.emit.convolution.schedule import UnitsEmitter, each_unit
from staticgrad.compiler.emit.convolution.unstage import finish_unit, place_unit
from staticgrad.compiler.emit.convolution.writer import ConvolutionWriter, Range
from staticgrad.compiler.emit.lanes import prefetch
from staticgrad.compiler.emit.llvm import Index, Value
from staticgrad.compiler.emit.microkernel import Matrix, TileOperands, call_tile, choose_below, row_start, span
from staticgrad.compiler.emit.parallel import divide, quotient
from staticgrad.compiler.machine.machine import LINE
from staticgrad.compiler.plans.convolution.products import Products


class ProductsEmitter(UnitsEmitter[Products]):
    def prepare(self, writer: ConvolutionWriter) -> None:
        if self.plan.packed:
            w, m, row = self.plan.weights, self.plan.tiling.m, self.plan.packed_row
            source = writer.f.offset(writer.second, w.offset, writer.element)
            axes = (self.plan.groups, m * row, w.group), (m, row, w.out), (self.plan.terms, 1, w.input)
            writer.rearrange(writer.area("weights"), source, *axes)

    def work(self, writer: ConvolutionWriter, chunk: Value | None) -> None:
        f, plan = writer.f, self.plan
        with each_unit(plan.units, f, chunk) as (number, (unit, _)):
            rest, part = divide(f, unit, plan.parts)
            group, block = divide(f, rest, plan.blocks)
            self._unit(writer, number, group, block, part)

    def _unit(self, writer: ConvolutionWriter, image: Index, group: Index, block: Index, part: Index) -> None:
        """A block of an image, for a part of the outputs of a group."""
        f, plan, tiling = writer.f, self.plan, self.plan.tiling
        panels = f.mul(part, plan.part_panels), f.min(f.mul(f.add(part, 1), plan.part_panels), tiling.row_panels)
        o = f.mul(group, tiling.m)
        low, high = (f.add(o, row_start(f, tiling, p)) for p in panels)
        first = f.mul(block, plan.rows)
        s_o, s_p, _ = plan.result.written
        x, following = self._pixels(writer, writer.area("planes"), image, group, block)
        c = writer.at(place_unit(plan.result, writer, image, low, first), (o, s_o), (first, s_p))
        strips = _Strips(plan, writer, writer.area("panels"), x, following, c, group, panels)
        with span(f, 0, tiling.column_panels, plan.strip) as column, span(f, 0, plan.terms, plan.depth) as start:
            strips.emit(column, start)
        finish_unit(plan.result, writer, image, (low, high), (first, f.add(first, plan.rows)))

    def _pixels(
        self, writer: ConvolutionWriter, to: Value, image: Index, group: Index, block: Index
    ) -> tuple[Value, Value]:
        """The address of the first pixels of a block, which are gathered if need be, and the address in the image of
        the next block's: the planes of the next group or image follow those of the last block."""
        f, plan, (s_n, s_c, s_row) = writer.f, self.plan, self.plan.source
        planes = writer.at(writer.first, (image, s_n), (group, plan.terms * s_c))
        x = writer.at(planes, (block, plan.rows * s_row))
        later, next_planes = writer.at(x, (plan.rows, s_row)), writer.at(planes, (plan.terms, s_c))
        following = choose_below(f, block, plan.blocks - 1, later, next_planes)
        if plan.planes is not None:
            first = f.mul(block, plan.rows)
            segment = Segment((image, f.add(image, 1)), (first, f.add(first, plan.rows)))
            bring_planes(plan.planes, writer, to, (0, plan.terms), f.mul(group, plan.terms), segment)
            x = to
        return x, following


def _operand(plan: Products, writer: ConvolutionWriter, group: Index) -> tuple[Value, int, int]:
    """The weights of a group, and their strides."""
    if plan.packed:
        return writer.at(writer.area("weights"), (group, plan.tiling.m * plan.packed_row)), plan.packed_row, 1
    base = writer.f.offset(writer.second, plan.weights.offset, writer.element)
    return writer.at(base, (group, plan.weights.group)), plan.weights.out, plan.weights.input


@frozen
class _Strips:
    """The values that the strips of a unit share: ``x`` and ``c`` are where its first pixels are read and written,
    ``following`` is where the image has those of the next one."""

    plan: Products
    writer: ConvolutionWriter
    scratch: Value  # panels
    x: Value
    following: Value
    c: Value
    group: Index
    panels: Range  # of rows

    def emit(self, first: Index, start: Index) -> None:
        """The strip that begins with column panel ``first``, its terms from ``start`` on, those of one pass."""
        f, plan, tiling = self.writer.f, self.plan, self.plan.tiling
        end = f.min(f.add(first, plan.strip), tiling.column_panels)
        depth = f.min(plan.depth, f.sub(plan.terms, start))
        if plan.copied:
            with span(f, first, end) as column:
                self._pack(self._panel(first, column), column, start, depth)
        step = f.add(f.mul(quotient(f, first, plan.strip), plan.passes), quotient(f, start, plan.depth))
        turn = f.mul(step, plan.part_panels)
        with span(f, *self.panels) as row_panel:
            now = f.add(turn, f.sub(row_panel, self.panels[0]))
            if not plan.by_tiles:
                self._fetch(now)
            with span(f, first, end) as column:
                if plan.by_tiles:
                    self._fetch(f.add(f.mul(now, plan.strip), f.sub(column, first)))
                self._tile(self._panel(first, column), row_panel, column, start, depth)

    def _fetch(self, turn: Index) -> None:
        """Prefetch some lines of the next unit, in the order of memory: in all turns together all of them. A few at a
        time, without asking where they end, as ``PrefetchLines`` does: this is done before each tile."""
        writer, plan = self.writer, self.plan
        f, line = writer.f, max(1, LINE // writer.dtype.itemsize)
        lines = -(-plan.lines // (plan.turns * (plan.strip if plan.by_tiles else 1)))
        first = f.mul(turn, lines)
        with span(f, first, f.add(first, lines)) as number:
            channel, place = divide(f, number, plan.lines // plan.terms)
            prefetch(f, writer.at(self.following, (channel, plan.source[1]), (place, line)), near=False)

    def _panel(self, first: Index, column: Index) -> Value:
        behind = self.writer.f.sub(column, first) if column is not first else 0
        return self.writer.at(self.scratch, (behind, self.plan.depth * self.plan.tiling.width))

    def _pack(self, panel: Value, column: Index, start: Index, depth: Index) -> None:
        """Pack some terms of a panel of pixels."""
        plan, writer = self.plan, self.writer
        first = writer.f.mul(column, plan.tiling.width)
        width = writer.f.min(plan.tiling.width, writer.f.sub(plan.tiling.n, first))
        source = writer.at(self.x, (start, plan.apart), (first, 1))
        writer.copy(Matrix(panel, plan.tiling.width, 1), Matrix(source, plan.apart, 1), depth, width)

    def _tile(self, panel: Value, row_panel: Index, column: Index, start: Index, depth: Index) -> None:
        f, plan, writer, tiling = self.writer.f, self.plan, self.writer, self.plan.tiling
        (a_base, a_row, a_step), c_row = _operand(plan, writer, self.group), plan.result.written[0]
        m, first = row_start(f, tiling, row_panel), f.mul(column, tiling.width)
        b, b_stride = panel, tiling.width
        if not plan.copied:
            b, b_stride = writer.at(self.x, (start, plan.apart), (first, 1)), plan.apart
        at = TileOperands(writer.at(a_base, (m, a_row), (start, a_step)), a_row, a_step, b, b_stride,
                          writer.at(self.c, (m, c_row), (first, 1)), c_row, depth, start)  # fmt: skip
        call_tile(f, tiling, plan.layout, row_panel, column, at)
