"""Writes ``DotWeights``: planes moved by the taps, vectors of sums, and these added across their lanes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from staticgrad.compiler.emit.convolution.dot_tile import DotTile, dot_tile
from staticgrad.compiler.emit.convolution.planes import Segment, bring_planes, segment_at, tap_offset
from staticgrad.compiler.emit.convolution.prefetch import PrefetchRuns
from staticgrad.compiler.emit.convolution.schedule import Chunks, SumEmitter
from staticgrad.compiler.emit.convolution.weights_store import finish_weights, store_sums, weights_of
from staticgrad.compiler.emit.convolution.writer import ConvolutionWriter, Range
from staticgrad.compiler.emit.llvm import Function, Index, Value, vector
from staticgrad.compiler.emit.microkernel import choose_below, span
from staticgrad.compiler.emit.nest.reduction import across_lanes
from staticgrad.compiler.emit.parallel import chunk_range, divide, unravel
from staticgrad.compiler.plans.convolution.images import Strides, row_major_weights
from staticgrad.compiler.plans.convolution.weights_dots import DotWeights, Panels


def _start(panels: Panels, f: Function, panel: Index) -> Index:
    return f.add(f.mul(panel, panels.size - 1), f.min(panel, panels.tall))


def _range(panels: Panels, f: Function, panel: Index) -> Range:
    return _start(panels, f, panel), _start(panels, f, f.add(panel, 1))


def _choose(panels: Panels, f: Function, panel: Index, by_kind: Sequence[Value]) -> Value:
    """The value for the kind of a panel."""
    return by_kind[0] if len(by_kind) == 1 else choose_below(f, panel, panels.tall, *by_kind)


class DotWeightsEmitter(SumEmitter[DotWeights]):
    @property
    def apart(self) -> int:
        return self.plan.sharing.units

    def emit_alone(self, writer: ConvolutionWriter) -> None:
        self._add_units(writer, (0, self.plan.sharing.units))

    def emit_units(self, chunks: Chunks, share: int) -> None:
        part, writer = chunks.open("panels")
        self._add_units(writer, chunk_range(part.f, part.chunk, share, self.plan.sharing.units))
        chunks.run(part.f.finish(), -(-self.plan.sharing.units // share))

    def _add_units(self, writer: ConvolutionWriter, units: Range) -> None:
        """Add up some panels of channels, with all segments."""
        f, plan, result = writer.f, self.plan, weights_of(writer)
        with span(f, *units) as unit:
            self._add_unit(writer, result, (0, plan.segments.number), unit)
            group, panel = divide(f, unit, plan.channels.number)
            first, channels = f.mul(group, plan.filters.count), _range(plan.channels, f, panel)
            finish_weights(writer, result[0], (first, f.add(first, plan.filters.count)), channels)

    def add(self, writer: ConvolutionWriter, sums: Value, segments: Range, unit: Index) -> None:
        self._add_unit(writer, (sums, row_major_weights(self.plan.kernel)), segments, unit)

    def _add_unit(self, writer: ConvolutionWriter, result: tuple[Value, Strides], segments: Range, unit: Index) -> None:
        """The sums over some segments of a panel of channels, stored to ``result``."""
        f, plan, planes, taps = writer.f, self.plan, writer.area("planes"), math.prod(self.plan.kernel.kernel)
        vectors = writer.area("vectors")
        group, panel = divide(f, unit, plan.channels.number)
        channels = _range(plan.channels, f, panel)

        def sums_of(rows: Index, tap: Index) -> Value:
            return writer.at(vectors, (f.add(f.mul(rows, taps), tap), plan.tile))

        with span(f, *segments) as number:
            segment = segment_at(plan.segments, f, number)
            bring_planes(plan.planes, writer, planes, channels, f.mul(group, plan.channels.count), segment)
            upcoming = self._upcoming(f, unit, number, segments)
            with span(f, 0, plan.filters.number) as rows, span(f, 0, taps) as tap:
                if plan.segments.together == 1:
                    self._prefetch(writer, upcoming, rows, tap)
                later = f.sub(number, segments[0])
                self._add_tile(writer, planes, sums_of(rows, tap), (group, rows, panel, tap), later, segment)
        with span(f, 0, plan.filters.number) as rows, span(f, 0, taps) as tap:
            self._store_tile(writer, sums_of(rows, tap), result, (group, rows, panel, tap))

    def _upcoming(self, f: Function, unit: Index, number: Index, segments: Range) -> Range:
        """The panel of channels and the segment that come next in a chunk."""
        following, ends = f.add(number, 1), segments[1]
        if isinstance(following, int) and isinstance(ends, int):
            return (f.add(unit, 1), segments[0]) if following == ends else (unit, following)
        last = f.compare("icmp eq", f.index(following), f.index(ends))
        pairs = ((f.add(unit, 1), unit), (segments[0], following))
        next_unit, next_number = (f.select(last, f.index(a), f.index(b)) for a, b in pairs)
        return next_unit, next_number

    def _prefetch(self, writer: ConvolutionWriter, upcoming: Range, rows: Index, tap: Index) -> None:
        """Prefetch some of the next segment, which lies in pieces of a few lines that no hardware prefetcher foresees.
        All tiles of a segment together prefetch all of it."""
        f, plan = writer.f, self.plan
        kernel, taps, count = plan.kernel, math.prod(plan.kernel.kernel), plan.segments.rows
        group, panel = divide(f, upcoming[0], plan.channels.number)
        segment = segment_at(plan.segments, f, upcoming[1])

        def ask(base: Value, of: Panels, panel: Index, strides: tuple[int, int, int], run: int, part: Index,
                parts: int) -> None:  # fmt: skip
            first = f.add(f.mul(group, of.count), _start(of, f, panel))
            s_n, s_plane, s_row = strides
            at = writer.at(base, (segment.images[0], s_n), (first, s_plane), (segment.rows[0], s_row))
            runs = PrefetchRuns(at, count * run * writer.dtype.itemsize, (((0, of.size), s_plane),), False, True)
            runs.ask(writer, part, parts)

        ask(writer.second, plan.filters, rows, kernel.y_strides[:3], kernel.out_width, tap, taps)
        s_n, s_c, s_h, _ = kernel.x_strides
        down = kernel.stride[0] * s_h
        part = f.add(f.mul(rows, taps), tap)
        ask(writer.first, plan.channels, panel, (s_n, s_c, down), down, part, plan.filters.number * taps)

    def _add_tile(
        self, writer: ConvolutionWriter, x: Value, to: Value, tile: tuple[Index, Index, Index, Index], later: Index,
        segment: Segment,
    ) -> None:  # fmt: skip
        """Add what a segment gives to a tile: of a group, in a panel of filters and one of channels, for a tap."""
        f, plan, kernel, planes = writer.f, self.plan, self.plan.kernel, self.plan.planes
        group, rows, panel, tap = tile
        s_n, s_o, s_p, _ = kernel.y_strides
        first = f.add(f.mul(group, plan.filters.count), _start(plan.filters, f, rows))
        y = writer.at(writer.second, (segment.images[0], s_n), (first, s_o), (segment.rows[0], s_p))
        b = writer.at(x, (tap_offset(planes, f, *unravel(f, tap, (0, kernel.kernel[1]))), 1))
        names = [
            [dot_tile(f.module, DotTile(kernel.dtype, height, width)) for width, _ in plan.channels.kinds()]
            for height, _ in plan.filters.kinds()
        ]
        by_rows = [_choose(plan.channels, f, panel, [f.symbol(name) for name in row]) for row in names]
        function = _choose(plan.filters, f, rows, by_rows)
        f.call(function, "void", y, s_o, b, planes.each * planes.pitch, to, segment.pixels(f, kernel.out_width),
               segment.count(f), s_n, planes.image, later)  # fmt: skip

    def _store_tile(
        self, writer: ConvolutionWriter, source: Value, result: tuple[Value, Strides],
        tile: tuple[Index, Index, Index, Index],
    ) -> None:  # fmt: skip
        """Add the lanes of a tile's sums and store them."""
        f, plan, (group, rows, panel, tap), (base, (o, c, i, j)) = writer.f, self.plan, tile, result
        tap_i, tap_j = unravel(f, tap, (0, plan.kernel.kernel[1]))
        filters, channels = _range(plan.filters, f, rows), _range(plan.channels, f, panel)
        wide = f.sub(channels[1], channels[0])
        to = writer.at(base, (f.mul(group, plan.filters.count), o), (tap_i, i), (tap_j, j))
        type_ = vector(writer.element, plan.lanes)
        with span(f, *filters) as row, span(f, *channels) as channel:
            pair = f.add(f.mul(f.sub(row, filters[0]), wide), f.sub(channel, channels[0]))
            vector_sum = f.load(type_, writer.at(source, (pair, plan.lanes)))
            total = across_lanes(f, "sum", writer.dtype, vector_sum)
            f.store(total, writer.at(to, (row, o), (channel, c)))

    def finish(self, writer: ConvolutionWriter, sums: Value) -> None:
        if writer.result is not None:
            store_sums(writer, sums, row_major_weights(self.plan.kernel), 0, self.plan.kernel.filters)
        finish_weights(writer, sums)
