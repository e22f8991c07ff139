"""Writes ``ForwardPlan``: the rows of a unit brought into a strip, its tiles, the result brought into its place.

The lines that the next unit reads and writes are prefetched between the tiles.
"""

from __future__ import annotations

import math
from dataclasses import replace

from staticgrad.compiler.emit.convolution.bordered_tile import call_bordered_tile
from staticgrad.compiler.emit.convolution.packing import pack_weights, share_packing
from staticgrad.compiler.emit.convolution.prefetch import Ahead, PrefetchLines
from staticgrad.compiler.emit.convolution.schedule import Chunks, PackingEmitter, unit_at, unit_numbers
from staticgrad.compiler.emit.convolution.strips import clear_strip, fill_strip, strip_ahead
from staticgrad.compiler.emit.convolution.taps import phase_rows, reached
from staticgrad.compiler.emit.convolution.unstage import finish_unit, place_unit
from staticgrad.compiler.emit.convolution.writer import ConvolutionWriter, Range
from staticgrad.compiler.emit.llvm import Function, Index, Value
from staticgrad.compiler.emit.microkernel import TileOperands, call_tile, row_start, span
from staticgrad.compiler.emit.parallel import quotient
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.plans.convolution.forward import ForwardPlan
from staticgrad.compiler.plans.convolution.packing import Phase


class ForwardEmitter(PackingEmitter[ForwardPlan]):
    def pack(self, f: Function, kernel: Convolution, weights: Value, packed: Value) -> None:
        pointers = [weights, weights, *[weights] * kernel.store_raw, packed]
        pack_weights(self.plan.packing, ConvolutionWriter(f, kernel, None, pointers, self.plan.packed))

    def prepare(self, writer: ConvolutionWriter) -> None:
        if self.plan.packs:
            pack_weights(self.plan.packing, writer)

    def prepare_shared(self, chunks: Chunks) -> None:
        if self.plan.packs and self.plan.packing.worth_sharing(chunks.kernel, chunks.f.target):
            share_packing(self.plan.packing, chunks)
        else:
            self.prepare(chunks.own)

    def work(self, writer: ConvolutionWriter, chunk: Value | None) -> None:
        f, plan, outputs = writer.f, self.plan, self.plan.result.outputs
        strip = writer.area("strip")
        clear_strip(plan.strip, writer, strip)
        with unit_numbers(plan.units, f, chunk) as unit:
            number, rows = unit_at(plan.units, f, unit)
            pixels = fill_strip(plan.strip, writer, number, rows, strip)
            lines, before = self._next_lines(writer, f.add(unit, 1)), 0
            to = place_unit(plan.result, writer, number, 0, rows[0])
            with span(f, 0, plan.image.groups) as group:
                for phase in plan.packing.phases:
                    first = f.add(f.mul(group, plan.unit_tiles), before)
                    ahead = Ahead(lines, first, plan.image.groups * plan.unit_tiles)
                    self._rows(writer, phase, pixels, to, group, rows, ahead)
                    before += math.prod(plan.counts(phase))
            finish_unit(plan.result, writer, number, (0, outputs), rows)

    def _next_lines(self, writer: ConvolutionWriter, unit: Index) -> list[PrefetchLines]:
        """The memory that the next unit reads and writes."""
        plan = self.plan
        if plan.units.count == 1:
            return []
        number, rows = unit_at(plan.units, writer.f, unit)
        lines = strip_ahead(plan.strip, writer, number, rows)
        if writer.result is not None and not plan.result.direct:
            strides, columns = plan.result.strides, plan.result.columns
            base = writer.at(writer.result, (number, strides[0]), (rows[0], strides[2]))
            lines += PrefetchLines.of_rows(writer, base, plan.result.outputs, plan.units.rows, columns, strides[1:])
        return lines

    def _rows(
        self, writer: ConvolutionWriter, phase: Phase, pixels: Value, to: Value, group: Index, block: Range,
        ahead: Ahead,
    ) -> None:  # fmt: skip
        """All filters of one group for the pixels of one phase in the output rows of ``block``."""
        f, plan, image, tiling = writer.f, self.plan, self.plan.image, phase.tiling
        (kh, kw), channels, (vertical, horizontal) = phase.kernel, phase.channels, phase.taps
        rows = (0, 1) if plan.flat else phase_rows(f, vertical, block)
        _, c_row, c_pixel = plan.result.written
        c_base = writer.at(to, (group, plan.packing.outputs))
        c_base = f.offset(c_base, vertical.first * c_row + horizontal.first * c_pixel, writer.element)
        c_stride, a_stride = horizontal.spacing * c_pixel, horizontal.step * image.pixel
        a_base = writer.at(pixels, (group, plan.strip.group))
        a_base = f.offset(a_base, vertical.origin * image.row + horizontal.origin * image.pixel, writer.element)
        weights = f.offset(writer.area("weights") if plan.packs else writer.second, phase.packed, writer.element)
        b_base = writer.at(weights, (group, tiling.column_panels * phase.panel_elements))
        _, passes, height, length = plan.counts(phase)
        with span(f, 0, tiling.column_panels) as panel, span(f, 0, kh, phase.tap_rows) as i:
            b_panel = writer.at(b_base, (panel, phase.panel_elements))
            c_panel = writer.at(c_base, (panel, tiling.width))
            with span(f, *rows) as p:
                low, high = reached(f, vertical, image, p)
                first = f.max(i, low)
                blocks = f.max(f.sub(f.min(f.add(i, phase.tap_rows), high), first), 0)
                line = f.add(
                    f.mul(f.add(f.mul(panel, passes), quotient(f, i, phase.tap_rows)), height), f.sub(p, rows[0])
                )
                a_taps = writer.at(a_base, (first, vertical.dilation * image.row))
                b = writer.at(b_panel, (first, kw * channels * tiling.width))
                a_line = writer.at(a_taps, (p, vertical.step * image.row))
                c_line = writer.at(c_panel, (p, vertical.spacing * c_row))
                with span(f, 0, tiling.row_panels) as q_panel:
                    ahead.ask(writer, f.add(f.mul(line, length), q_panel))
                    q = row_start(f, tiling, q_panel)
                    a, c = writer.at(a_line, (q, a_stride)), writer.at(c_line, (q, c_stride))
                    at = TileOperands(a, a_stride, 1, b, tiling.width, c, c_stride, kw * channels, i, blocks)
                    self._tile(f, phase, q_panel, panel, at)

    def _tile(self, f: Function, phase: Phase, q_panel: Index, panel: Index, at: TileOperands) -> None:
        """One tile, of some filter rows, the blocks of ``at``."""
        tiling, channels, kw = phase.tiling, phase.channels, phase.kernel[1]
        row, tap = (
            taps.dilation * apart
            for taps, apart in zip(phase.taps, (self.plan.image.row, self.plan.image.pixel), strict=True)
        )
        if phase.left + phase.right:
            at = replace(at, depth=channels, a_block=row)
            call_bordered_tile(f, tiling, q_panel, panel, at, tap, kw, (phase.left, phase.right))
        elif phase.run:
            at = replace(at, a_block=row, b_block=kw * channels * tiling.width)
            call_tile(f, tiling, "rows", q_panel, panel, at)
        else:  # the only filter row of a pass, tap by tap
            at = replace(at, depth=channels, blocks=f.mul(at.blocks, kw), a_block=tap, b_block=channels * tiling.width)
            call_tile(f, tiling, "rows", q_panel, panel, at)
