"""The transpose of a convolution by weights where a group has few channels or filters: lanes are pixels.

Tiles of few filters or channels would leave most lanes idle, or take longer to pack than to multiply. Here rows of
tiles are planes of y, read in place, columns are planes of x moved by a tap (``planes``), and terms are
pixels, which the lanes take by turns (``dot_tile``). The vectors of sums are kept in scratch memory, ``[panel
of filters][tap][filter][channel][lane]``, and their lanes are added when all images are done.

The work is a sequence of *segments*, some images or a block of rows of one, such that the planes of a panel of channels
and some filters stay in the first cache. A chunk (``emit.parallel``) is a panel of channels of one group with all
segments; where there are few of these panels, a run of segments, with partial sums of its own that are added in their
order. So no sum depends on the number of threads.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from staticgrad.base.extents import highest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.convolution.dot_tile import DotTile, dot_tile
from staticgrad.compiler.emit.convolution.images import ConvolutionWriter, seconds_of
from staticgrad.compiler.emit.convolution.plan import Area, Range, Scratch, areas
from staticgrad.compiler.emit.convolution.planes import Planes, Segment, Segments
from staticgrad.compiler.emit.convolution.prefetch import PrefetchRuns
from staticgrad.compiler.emit.convolution.schedule import Chunks, SumChunks, SumPlan, share_of
from staticgrad.compiler.emit.convolution.weights_store import (
    Strides,
    finish_weights,
    row_major_weights,
    store_sums,
    weights_of,
)
from staticgrad.compiler.emit.llvm import Function, Index, Value, vector
from staticgrad.compiler.emit.microkernel import choose_below, span
from staticgrad.compiler.emit.nest.reduction import across_lanes
from staticgrad.compiler.emit.parallel import chunk_range, divide, unravel
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.chunks import cut, wanted_chunks
from staticgrad.compiler.plans.tiles import aligned_bytes, tile_lanes

TILE_BYTES = 36 << 10  # of the planes of a tile in a segment, which stay in the first cache
ENOUGH_UNITS = 8  # panels of channels, so that threads have work of their own
MOST_PARTS = 8  # sums that are added in the end


@frozen
class Panels:
    """``count`` in ``number`` panels of ``size``, or one less from number ``tall`` on."""

    count: int
    size: int

    @staticmethod
    def of(count: int, most: int) -> Panels:
        return Panels(count, -(-count // -(-count // most)))

    @property
    def number(self) -> int:
        return -(-self.count // self.size)

    @property
    def tall(self) -> int:
        return self.count - self.number * (self.size - 1)

    def start(self, f: Function, panel: Index) -> Index:
        return f.add(f.mul(panel, self.size - 1), f.min(panel, self.tall))

    def range(self, f: Function, panel: Index) -> Range:
        return self.start(f, panel), self.start(f, f.add(panel, 1))

    def kinds(self) -> tuple[tuple[int, int], ...]:
        """The sizes that occur, and how often."""
        found = ((self.size, self.tall), (self.size - 1, self.number - self.tall))
        return tuple(kind for kind in found if kind[1])

    def choose(self, f: Function, panel: Index, by_kind: Sequence[Value]) -> Value:
        """The value for the kind of a panel."""
        return by_kind[0] if len(by_kind) == 1 else choose_below(f, panel, self.tall, *by_kind)


@frozen
class DotWeights(SumPlan):
    """The plan of a kernel; sizes are elements unless said otherwise."""

    kernel: Convolution
    planes: Planes
    segments: Segments
    lanes: int
    channels: Panels  # of a group
    filters: Panels
    sharing: SumChunks  # units are panels of channels of all groups, with all segments, or each with runs of them
    scratch: Scratch

    @property
    def apart(self) -> int:
        return self.sharing.units

    @property
    def tile(self) -> int:
        """The sums of the largest tile, lane by lane."""
        return self.filters.size * self.channels.size * self.lanes

    @property
    def way(self) -> str:
        tile = f"tiles {self.filters.size}x{self.channels.size}"
        segments = self.segments.text
        segments += ", the next prefetched" * (self.segments.together == 1)
        return f"weights by dot products of planes: {tile}; {segments}{self.sharing.text}"

    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        """The strides of the scratch result."""
        return row_major_weights(kernel)

    def emit_alone(self, writer: ConvolutionWriter) -> None:
        self._add_units(writer, (0, self.sharing.units))

    def emit_units(self, chunks: Chunks, share: int) -> None:
        part, writer = chunks.open("panels")
        self._add_units(writer, chunk_range(part.f, part.chunk, share, self.sharing.units))
        chunks.run(part.f.finish(), -(-self.sharing.units // share))

    def _add_units(self, writer: ConvolutionWriter, units: Range) -> None:
        """Add up some panels of channels, with all segments."""
        f, result = writer.f, weights_of(writer)
        with span(f, *units) as unit:
            self._add_unit(writer, result, (0, self.segments.number), unit)
            group, panel = divide(f, unit, self.channels.number)
            first, channels = f.mul(group, self.filters.count), self.channels.range(f, panel)
            finish_weights(writer, result[0], (first, f.add(first, self.filters.count)), channels)

    def add(self, writer: ConvolutionWriter, sums: Value, segments: Range, unit: Index) -> None:
        self._add_unit(writer, (sums, row_major_weights(self.kernel)), segments, unit)

    def _add_unit(self, writer: ConvolutionWriter, result: tuple[Value, Strides], segments: Range, unit: Index) -> None:
        """The sums over some segments of a panel of channels, stored to ``result``."""
        f, planes, taps = writer.f, writer.area("planes"), math.prod(self.kernel.kernel)
        vectors = writer.area("vectors")
        group, panel = divide(f, unit, self.channels.number)
        channels = self.channels.range(f, panel)

        def sums_of(rows: Index, tap: Index) -> Value:
            return writer.at(vectors, (f.add(f.mul(rows, taps), tap), self.tile))

        with span(f, *segments) as number:
            segment = self.segments.at(f, number)
            self.planes.bring(writer, planes, channels, f.mul(group, self.channels.count), segment)
            upcoming = self._upcoming(f, unit, number, segments)
            with span(f, 0, self.filters.number) as rows, span(f, 0, taps) as tap:
                if self.segments.together == 1:
                    self._prefetch(writer, upcoming, rows, tap)
                later = f.sub(number, segments[0])
                self._add_tile(writer, planes, sums_of(rows, tap), (group, rows, panel, tap), later, segment)
        with span(f, 0, self.filters.number) as rows, span(f, 0, taps) as tap:
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
        f, kernel, taps, count = writer.f, self.kernel, math.prod(self.kernel.kernel), self.segments.rows
        group, panel = divide(f, upcoming[0], self.channels.number)
        segment = self.segments.at(f, upcoming[1])

        def ask(base: Value, of: Panels, panel: Index, strides: tuple[int, int, int], run: int, part: Index,
                parts: int) -> None:  # fmt: skip
            first = f.add(f.mul(group, of.count), of.start(f, panel))
            s_n, s_plane, s_row = strides
            at = writer.at(base, (segment.images[0], s_n), (first, s_plane), (segment.rows[0], s_row))
            runs = PrefetchRuns(at, count * run * writer.dtype.itemsize, (((0, of.size), s_plane),), False, True)
            runs.ask(writer, part, parts)

        ask(writer.second, self.filters, rows, kernel.y_strides[:3], kernel.out_width, tap, taps)
        s_n, s_c, s_h, _ = kernel.x_strides
        down = kernel.stride[0] * s_h
        part = f.add(f.mul(rows, taps), tap)
        ask(writer.first, self.channels, panel, (s_n, s_c, down), down, part, self.filters.number * taps)

    def _add_tile(
        self, writer: ConvolutionWriter, x: Value, to: Value, tile: tuple[Index, Index, Index, Index], later: Index,
        segment: Segment,
    ) -> None:  # fmt: skip
        """Add what a segment gives to a tile: of a group, in a panel of filters and one of channels, for a tap."""
        f, kernel, planes = writer.f, self.kernel, self.planes
        group, rows, panel, tap = tile
        s_n, s_o, s_p, _ = kernel.y_strides
        first = f.add(f.mul(group, self.filters.count), self.filters.start(f, rows))
        y = writer.at(writer.second, (segment.images[0], s_n), (first, s_o), (segment.rows[0], s_p))
        b = writer.at(x, (planes.tap(f, *unravel(f, tap, (0, kernel.kernel[1]))), 1))
        names = [
            [dot_tile(f.module, DotTile(kernel.dtype, height, width)) for width, _ in self.channels.kinds()]
            for height, _ in self.filters.kinds()
        ]
        by_rows = [self.channels.choose(f, panel, [f.symbol(name) for name in row]) for row in names]
        function = self.filters.choose(f, rows, by_rows)
        f.call(function, "void", y, s_o, b, planes.each * planes.pitch, to, segment.pixels(f, kernel.out_width),
               segment.count(f), s_n, planes.image, later)  # fmt: skip

    def _store_tile(
        self, writer: ConvolutionWriter, source: Value, result: tuple[Value, Strides],
        tile: tuple[Index, Index, Index, Index],
    ) -> None:  # fmt: skip
        """Add the lanes of a tile's sums and store them."""
        f, (group, rows, panel, tap), (base, (o, c, i, j)) = writer.f, tile, result
        tap_i, tap_j = unravel(f, tap, (0, self.kernel.kernel[1]))
        filters, channels = self.filters.range(f, rows), self.channels.range(f, panel)
        wide = f.sub(channels[1], channels[0])
        to = writer.at(base, (f.mul(group, self.filters.count), o), (tap_i, i), (tap_j, j))
        type_ = vector(writer.element, self.lanes)
        with span(f, *filters) as row, span(f, *channels) as channel:
            pair = f.add(f.mul(f.sub(row, filters[0]), wide), f.sub(channel, channels[0]))
            vector_sum = f.load(type_, writer.at(source, (pair, self.lanes)))
            total = across_lanes(f, "sum", writer.dtype, vector_sum)
            f.store(total, writer.at(to, (row, o), (channel, c)))

    def finish(self, writer: ConvolutionWriter, sums: Value) -> None:
        if writer.result is not None:
            store_sums(writer, sums, row_major_weights(self.kernel), 0, self.kernel.filters)
        finish_weights(writer, sums)


@functools.lru_cache(maxsize=4096)
def dot_weights_plan(kernel: Convolution, target: Target) -> DotWeights:
    """The plan of a kernel without epilogue, which has no part in it."""
    lanes, size, taps = tile_lanes(target, kernel.dtype), kernel.dtype.itemsize, kernel.kernel[0] * kernel.kernel[1]
    channels, filters = _panels(kernel, target)
    each = Planes.of(kernel, Segments(1, 1, 1, 1), False).each
    segments = Segments.of(kernel, target.sized(TILE_BYTES) // size // (channels.size * each + filters.size))
    planes = Planes.of(kernel, segments, False)
    units = kernel.groups * channels.number
    wanted = wanted_chunks(seconds_of(kernel, target), target)
    number = highest(segments.number)
    parts = min(MOST_PARTS, wanted, number) if units < ENOUGH_UNITS else 1
    part = cut(number, parts)[0] if parts > 1 else 0
    sharing = SumChunks(segments.number, units, None if part else share_of(units, wanted), part)
    sum_bytes = aligned_bytes(kernel.filters * kernel.channels // kernel.groups * taps, kernel.dtype)
    vectors = filters.number * filters.size * channels.size * taps * lanes  # sums of a panel, lane by lane
    scratch = Scratch(
        (
            Area("sums", sum_bytes, highest(sharing.parts)),
            Area("raw", 0 if sharing.part or kernel.store_raw else sum_bytes),
        ),
        areas(kernel.dtype, planes=channels.size * each * planes.pitch, vectors=vectors),
    )
    return DotWeights(kernel, planes, segments, lanes, channels, filters, sharing, scratch)


def _panels(kernel: Convolution, target: Target) -> tuple[Panels, Panels]:
    """Channels and filters of a group in panels that fit the registers of a tile."""
    registers, temporaries = target.isa.registers, 2 if target.isa.fma else 3
    most = max(1, (math.isqrt(4 * (registers - temporaries) + 1) - 1) // 2)  # as many filters, and sums of all pairs
    channels = Panels.of(kernel.of_group[0], most)
    most = min(8, (registers - temporaries - channels.size) // channels.size)
    return channels, Panels.of(kernel.of_group[1], most)


def dots_pay(kernel: Convolution, target: Target, tile_cycles: float) -> bool:
    """True if tiles of dots take less time than ``tile_cycles`` for each pixel of a group."""
    _, _, s_p, s_q = kernel.y_strides
    by_plane = s_q == 1 and (s_p == kernel.out_width or kernel.out_height == 1)
    return kernel.dtype.kind == "f" and by_plane and _dot_cycles(kernel, target) < tile_cycles


def _dot_cycles(kernel: Convolution, target: Target) -> float:
    """The estimated cycles of a pixel in all tiles of a group: multiply-adds, two a cycle with a latency of four, or
    loads, two a cycle, half of which meet two lines; and for each segment the sums, which are read and written."""
    plan = dot_weights_plan(kernel, target)
    pixels = plan.segments.rows * kernel.out_width
    steps = -(-pixels // plan.lanes) / pixels
    cycles = 0.0
    for columns, panels in plan.channels.kinds():
        for rows, more in plan.filters.kinds():
            step = max(rows * columns / 2, 4.0, 0.75 * (rows + columns))
            cycles += panels * more * (step * steps + (1.5 * rows * columns + 20) / (pixels * plan.segments.together))
    return cycles * kernel.kernel[0] * kernel.kernel[1]
