"""The transpose of a convolution by weights where a group has few channels or filters: lanes are pixels.

Tiles of few filters or channels would leave most lanes idle, or take longer to pack than to multiply. Here rows of
tiles are planes of y, read in place, columns are planes of x moved by a tap (``planes``), and terms are
pixels, of which each lane takes every so many (``dot_tile``). The vectors of sums are kept in scratch memory, ``[panel
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

from staticgrad.compiler.emit.convolution.dot_tile import DotTile, dot_tile
from staticgrad.compiler.emit.convolution.images import ConvolutionWriter, seconds_of
from staticgrad.compiler.emit.convolution.plan import Area, Range, Scratch, areas
from staticgrad.compiler.emit.convolution.planes import Planes, Segment, Segments
from staticgrad.compiler.emit.convolution.prefetch import PrefetchRuns
from staticgrad.compiler.emit.convolution.schedule import Chunks, SumChunks, SumPlan, share_of
from staticgrad.compiler.emit.convolution.weights_store import Strides, copy_weights, row_major_weights, weights_of
from staticgrad.compiler.emit.llvm import Function, Index, Value, integer, vector
from staticgrad.compiler.emit.microkernel import aligned_bytes, span, tile_lanes
from staticgrad.compiler.emit.nest.reduction import across_lanes
from staticgrad.compiler.emit.parallel import chunk_range, cut, divide, unravel, wanted_chunks
from staticgrad.compiler.emit.target import Target
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.frozen import frozen

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
        if len(by_kind) == 1:
            return by_kind[0]
        if isinstance(panel, int):
            return by_kind[panel >= self.tall]
        return f.select(f.compare("icmp slt", panel, integer(self.tall)), *by_kind)


@frozen
class DotWeights(SumPlan):
    """The plan of a kernel; sizes are elements unless said otherwise."""

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
        segments = f"{self.segments.number} segments of {self.segments.rows} rows"
        segments += ", the next prefetched" * (self.segments.together == 1)
        return f"weights by dot products of planes: {tile}; {segments}{self.sharing.text}"

    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        """The strides of the scratch result."""
        return row_major_weights(kernel)

    @property
    def words(self) -> int:
        return 0

    def emit_alone(self, writer: ConvolutionWriter) -> None:
        _add_units(writer, self, (0, self.sharing.units))

    def emit_units(self, chunks: Chunks, share: int) -> None:
        part, writer = chunks.open("panels")
        _add_units(writer, self, chunk_range(part.f, part.chunk, share, self.sharing.units))
        chunks.run(part.f.finish(), -(-self.sharing.units // share))

    def add(self, writer: ConvolutionWriter, sums: Value, segments: Range, unit: Index) -> None:
        _add_unit(writer, self, unit, segments, (sums, row_major_weights(writer.kernel)))

    def finish(self, writer: ConvolutionWriter, sums: Value) -> None:
        kernel = writer.kernel
        if writer.result is not None:
            copy_weights(writer, (writer.result, kernel.w_strides), (sums, row_major_weights(kernel)))
        ranges: list[Range] = [(0, kernel.filters), (0, self.channels.count), *((0, taps) for taps in kernel.kernel)]
        writer.finish(sums if writer.result is None else writer.result, ranges)


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
    parts = min(MOST_PARTS, wanted, segments.number) if units < ENOUGH_UNITS else 1
    part = cut(segments.number, parts)[0] if parts > 1 else 0
    sharing = SumChunks(segments.number, units, None if part else share_of(units, wanted), part)
    sum_bytes = aligned_bytes(kernel.filters * kernel.channels // kernel.groups * taps, kernel.dtype)
    vectors = filters.number * filters.size * channels.size * taps * lanes  # sums of a panel, lane by lane
    return DotWeights(
        planes=planes,
        segments=segments,
        lanes=lanes,
        channels=channels,
        filters=filters,
        sharing=sharing,
        scratch=Scratch(
            (Area("sums", sum_bytes, sharing.parts), Area("raw", 0 if sharing.part or kernel.store_raw else sum_bytes)),
            areas(kernel.dtype, planes=channels.size * each * planes.pitch, vectors=vectors),
        ),
    )


def _panels(kernel: Convolution, target: Target) -> tuple[Panels, Panels]:
    """Channels and filters of a group in panels, as many as the registers of a tile hold."""
    registers, temporaries = target.isa.registers, 2 if target.isa.fma else 3
    most = max(1, (math.isqrt(4 * (registers - temporaries) + 1) - 1) // 2)  # as many filters, and sums of all pairs
    channels = Panels.of(kernel.channels // kernel.groups, most)
    most = min(8, (registers - temporaries - channels.size) // channels.size)
    return channels, Panels.of(kernel.filters // kernel.groups, most)


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


def _add_units(writer: ConvolutionWriter, plan: DotWeights, units: Range) -> None:
    """Add up some panels of channels, with all segments."""
    f, kernel = writer.f, writer.kernel
    raw = weights_of(writer)
    with span(f, *units) as unit:
        _add_unit(writer, plan, unit, (0, plan.segments.number), raw)
        group, panel = divide(f, unit, plan.channels.number)
        first, channels = f.mul(group, plan.filters.count), plan.channels.range(f, panel)
        taps: list[Range] = [(0, size) for size in kernel.kernel]
        writer.finish(raw[0], [(first, f.add(first, plan.filters.count)), channels, *taps])


# -- a panel of channels ----------------------------------------------------------------------------------------


def _add_unit(
    writer: ConvolutionWriter, plan: DotWeights, unit: Index, segments: Range, result: tuple[Value, Strides]
) -> None:
    """The sums over some segments of a panel of channels, stored to ``result``."""
    f, planes, taps = writer.f, plan.planes, writer.kernel.kernel[0] * writer.kernel.kernel[1]
    own = writer.area("planes"), writer.area("vectors")
    group, panel = divide(f, unit, plan.channels.number)
    channels = plan.channels.range(f, panel)
    with span(f, *segments) as number:
        segment = plan.segments.at(f, number)
        planes.bring(writer, own[0], channels, f.mul(group, plan.channels.count), segment)
        upcoming = _upcoming(f, plan, unit, number, segments)
        with span(f, 0, plan.filters.number) as rows, span(f, 0, taps) as tap:
            if plan.segments.together == 1:
                _fetch(writer, plan, upcoming, rows, tap)
            to = writer.at(own[1], (f.add(f.mul(rows, taps), tap), plan.tile))
            _add_tile(writer, plan, own[0], to, (group, rows, panel, tap), f.sub(number, segments[0]), segment)
    with span(f, 0, plan.filters.number) as rows, span(f, 0, taps) as tap:
        source = writer.at(own[1], (f.add(f.mul(rows, taps), tap), plan.tile))
        _store_tile(writer, plan, source, result, (group, rows, panel, tap))


def _upcoming(f: Function, plan: DotWeights, unit: Index, number: Index, segments: Range) -> Range:
    """The panel of channels and the segment that come next in a chunk."""
    following, ends = f.add(number, 1), segments[1]
    if isinstance(following, int) and isinstance(ends, int):
        return (f.add(unit, 1), segments[0]) if following == ends else (unit, following)
    last = f.compare("icmp eq", f.index(following), f.index(ends))
    pairs = ((f.add(unit, 1), unit), (segments[0], following))
    next_unit, next_number = (f.select(last, f.index(a), f.index(b)) for a, b in pairs)
    return next_unit, next_number


def _fetch(writer: ConvolutionWriter, plan: DotWeights, upcoming: Range, rows: Index, tap: Index) -> None:
    """Prefetch some of the next segment, which lies in pieces of a few lines that no hardware prefetcher foresees. All
    tiles of a segment together prefetch all of it."""
    f, kernel, size = writer.f, writer.kernel, writer.dtype.itemsize
    taps = kernel.kernel[0] * kernel.kernel[1]
    group, panel = divide(f, upcoming[0], plan.channels.number)
    segment = plan.segments.at(f, upcoming[1])
    image, row = segment.images[0], segment.rows[0]

    s_n, s_o, s_p, _ = kernel.y_strides
    filters = f.add(f.mul(group, plan.filters.count), plan.filters.start(f, rows))
    y = writer.at(writer.second, (image, s_n), (filters, s_o), (row, s_p))
    of_y = ((0, plan.filters.size), s_o)
    PrefetchRuns(y, plan.segments.rows * kernel.out_width * size, (of_y,), near=False, unrolled=True).ask(
        writer, tap, taps
    )
    s_n, s_c, s_h, _ = kernel.x_strides
    channels = f.add(f.mul(group, plan.channels.count), plan.channels.start(f, panel))
    x = writer.at(writer.first, (image, s_n), (channels, s_c), (row, kernel.stride[0] * s_h))
    of_x = ((0, plan.channels.size), s_c)
    PrefetchRuns(x, plan.segments.rows * kernel.stride[0] * s_h * size, (of_x,), near=False, unrolled=True).ask(
        writer, f.add(f.mul(rows, taps), tap), plan.filters.number * taps
    )


def _add_tile(
    writer: ConvolutionWriter, plan: DotWeights, x: Value, to: Value, tile: tuple[Index, Index, Index, Index],
    later: Index,
    segment: Segment,
) -> None:  # fmt: skip
    """Add what a segment gives to a tile: of a group, in a panel of filters and one of channels, for a tap."""
    f, kernel, planes = writer.f, writer.kernel, plan.planes
    group, rows, panel, tap = tile
    s_n, s_o, s_p, _ = kernel.y_strides
    first = f.add(f.mul(group, plan.filters.count), plan.filters.start(f, rows))
    y = writer.at(writer.second, (segment.images[0], s_n), (first, s_o), (segment.rows[0], s_p))
    i, j = unravel(f, tap, (0, kernel.kernel[1]))
    b = writer.at(x, (planes.tap(f, i, j), 1))
    names = [
        [dot_tile(f.module, DotTile(kernel.dtype, height, width)) for width, _ in plan.channels.kinds()]
        for height, _ in plan.filters.kinds()
    ]
    by_rows = [plan.channels.choose(f, panel, [f.symbol(name) for name in row]) for row in names]
    function = plan.filters.choose(f, rows, by_rows)
    pixels = segment.pixels(f, kernel.out_width)
    numbers = (pixels, segment.count(f), s_n, planes.image, later)
    tail = ", ".join(str(f.index(number)) for number in numbers)
    b_row = integer(planes.each * planes.pitch)
    f.line(f"call void {function.text}({y}, {integer(s_o)}, {b}, {b_row}, {to}, {tail})")


def _store_tile(
    writer: ConvolutionWriter, plan: DotWeights, source: Value, result: tuple[Value, Strides],
    tile: tuple[Index, Index, Index, Index],
) -> None:  # fmt: skip
    """Add the lanes of a tile's sums and store them."""
    f, kernel = writer.f, writer.kernel
    group, rows, panel, tap = tile
    base, (o, c, i, j) = result
    tap_i, tap_j = unravel(f, tap, (0, kernel.kernel[1]))
    filters, channels = plan.filters.range(f, rows), plan.channels.range(f, panel)
    wide = f.sub(channels[1], channels[0])
    to = writer.at(base, (f.mul(group, plan.filters.count), o), (tap_i, i), (tap_j, j))
    type_ = vector(writer.element, plan.lanes)
    with span(f, *filters) as row, span(f, *channels) as channel:
        pair = f.add(f.mul(f.sub(row, filters[0]), wide), f.sub(channel, channels[0]))
        vector_sum = f.load(type_, writer.at(source, (pair, plan.lanes)))
        total = across_lanes(f, "sum", writer.dtype, vector_sum)
        f.store(total, writer.at(to, (row, o), (channel, c)))
