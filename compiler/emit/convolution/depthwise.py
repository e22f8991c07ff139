"""Writes ``Depthwise`` and ``DepthwiseWeights``: packed weights, and the tiles of a block of rows."""

from __future__ import annotations

from staticgrad.compiler.emit.convolution.row_tile import call_row_tile
from staticgrad.compiler.emit.convolution.schedule import SumEmitter, UnitsEmitter, each_unit, unit_at
from staticgrad.compiler.emit.convolution.taps import phase_rows, reached
from staticgrad.compiler.emit.convolution.unstage import finish_unit, place_unit
from staticgrad.compiler.emit.convolution.weights_store import finish_weights, store_sums
from staticgrad.compiler.emit.convolution.writer import ConvolutionWriter, Range
from staticgrad.compiler.emit.llvm import Index, Value
from staticgrad.compiler.emit.microkernel import fill_zero, span
from staticgrad.compiler.plans.convolution.depthwise import Depthwise, DepthwisePhase, DepthwiseWeights


def _pack(phase: DepthwisePhase, writer: ConvolutionWriter) -> None:
    """Pack the weights as ``[i][j][channel]``, into the area ``weights``."""
    channels, w, (kh, kw) = writer.kernel.channels, phase.weights, (taps.number for taps in phase.taps)
    to = writer.f.offset(writer.area("weights"), phase.packed, writer.element)
    source = writer.f.offset(writer.second, w.offset, writer.element)
    writer.rearrange(to, source, (kh, kw * channels, w.i), (kw, channels, w.j), (channels, 1, w.out))


def _write_rows(
    phase: DepthwisePhase, writer: ConvolutionWriter, pixels: Value, weights: Value, y: Value, strides: tuple[int, int],
    block: Range,
) -> None:  # fmt: skip
    """Write all tiles of a block of rows; ``y`` is where row 0, pixel 0 of the result is, by weights of y, and
    ``strides`` are those of its rows and pixels."""
    f, (vertical, horizontal), image, places = writer.f, phase.taps, phase.image, phase.places
    channels, x_row = writer.kernel.channels, vertical.dilation * places.row
    y = f.offset(y, vertical.first * strides[0] + horizontal.first * strides[1], writer.element)
    y_row, y_pixel = vertical.spacing * strides[0], horizontal.spacing * strides[1]
    rows = phase_rows(f, vertical, block)
    with span(f, 0, channels, phase.block) as channel, span(f, *rows) as p:
        first = f.add(f.mul(p, vertical.step), vertical.origin - image.offset[0])
        low, high = reached(f, vertical, image, p)
        count = f.sub(high, low)
        top = writer.at(pixels, (first, places.row), (low, x_row), (channel, 1))
        w = writer.at(weights, (low, horizontal.number * channels), (channel, 1))
        line = writer.at(y, (p, y_row), (channel, 1))
        for run in phase.segments:
            with span(f, 0, run.count) as number:
                q = f.add(f.mul(number, run.tile.pixels), run.start)
                column = f.add(f.mul(q, horizontal.step), horizontal.origin - image.offset[1])
                x, at = writer.at(top, (column, places.pixel)), writer.at(line, (q, y_pixel))
                some = f.min(phase.block, f.sub(channels, channel))
                operands = (x, x_row, places.pixel, w, channels, at, y_pixel, count, some)
                call_row_tile(f, run.tile, *operands)


class DepthwiseEmitter(UnitsEmitter[Depthwise]):
    def prepare(self, writer: ConvolutionWriter) -> None:
        for phase in self.plan.phases:
            _pack(phase, writer)

    def work(self, writer: ConvolutionWriter, chunk: Value | None) -> None:
        f, plan, packed, copy = writer.f, self.plan, writer.area("weights"), writer.area("image")
        with each_unit(plan.units, f, chunk) as (number, rows):
            pixels = writer.frame(plan.phases[0].places, writer.first, number, copy)
            to = place_unit(plan.result, writer, number, 0, rows[0])
            for phase in plan.phases:
                weights = f.offset(packed, phase.packed, writer.element)
                _write_rows(phase, writer, pixels, weights, to, plan.result.written[1:], rows)
            finish_unit(plan.result, writer, number, (0, plan.result.outputs), rows)


class DepthwiseWeightsEmitter(SumEmitter[DepthwiseWeights]):
    def add(self, writer: ConvolutionWriter, sums: Value, segments: Range, unit: Index) -> None:
        f, plan, x_copy, y_copy, places = writer.f, self.plan, writer.area("x"), writer.area("y"), self.plan.y_places
        fill_zero(f, writer.dtype, sums, plan.part)
        if plan.units.count == 0:
            return
        with span(f, *segments) as unit:
            number, rows = unit_at(plan.units, f, unit)
            x = writer.frame(plan.phase.places, writer.first, number, x_copy)
            y = writer.frame(places, writer.second, number, y_copy)
            _write_rows(plan.phase, writer, x, sums, y, (places.row, places.pixel), rows)

    def finish(self, writer: ConvolutionWriter, sums: Value) -> None:
        if writer.result is not None:
            store_sums(writer, sums, self.plan.raw_strides(writer.kernel), 0, writer.kernel.filters)
        finish_weights(writer, sums)
