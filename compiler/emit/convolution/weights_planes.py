"""The transpose of a convolution by weights where several taps read each pixel of x: plane by plane, tap by tap.

Rows of tiles are channels (where there are few, channels and taps), columns are filters, terms are output pixels of a
block, blocks of the sum are images; a tile is added up for each tap. What is read of x are copies of its planes moved
by the taps (``planes``), of y the pixels of a panel of filters, packed as ``[panel][image][pixel][filter]``
(or y itself, where that is channels last and few channels read it). Sums lie as ``[panel][c][i][j][filter]``; when a
panel of channels is complete, they are transposed to the weights. So images may be in the layout of users, plane by
plane, or channels last: all that differs is how panels are made.

The work is a sequence of *segments*, some images or a block of rows of one, such that a panel of each operand stays in
the second cache; all taps of a tile read what was brought there. Where there is only one, a tile's sums never leave the
first cache. A kernel that takes long is cut in chunks (``emit.parallel``): where the weights are few, runs of segments,
whose partial sums are added in their order; else the panels of filters that are packed, and then the panels of
channels. So no sum depends on the number of threads.
"""

from __future__ import annotations

import functools
import math

from staticgrad.compiler.emit.convolution.images import ConvolutionWriter
from staticgrad.compiler.emit.convolution.plan import Area, Range, Scratch, areas
from staticgrad.compiler.emit.convolution.planes import Planes, Segment, Segments
from staticgrad.compiler.emit.convolution.prefetch import PrefetchRuns
from staticgrad.compiler.emit.convolution.schedule import Chunks, SumChunks, SumPlan
from staticgrad.compiler.emit.convolution.weights_store import row_major_weights, weights_of
from staticgrad.compiler.emit.llvm import Function, Index, Value, integer
from staticgrad.compiler.emit.machine import LINE
from staticgrad.compiler.emit.microkernel import (
    USUAL_ROWS,
    Matrix,
    TileOperands,
    Tiling,
    aligned_bytes,
    by_width,
    call_tile,
    choose_tiling,
    fill_zero,
    round_up,
    span,
    tile_lanes,
    tiling_cost,
)
from staticgrad.compiler.emit.parallel import divide, unravel
from staticgrad.compiler.emit.target import Target
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.frozen import frozen

SEGMENT_BYTES = 384 << 10  # of a panel of x and one of y, which stay in the second cache
Y_BYTES = 4 << 20  # of all panels of y
MANY_WEIGHTS = 3 << 19  # bytes of all weights: of so many planes are made even of channels that are next to each other
FEW_CHANNELS = 4  # for which y is not worth packing where its filters are next to each other


@frozen
class PlaneWeights(SumPlan):
    """The plan of a kernel; sizes are elements unless said otherwise, of one group."""

    planes: Planes
    channels: int
    filters: int
    unfolded: bool  # rows of tiles are channels and taps
    tiling: Tiling
    y_in_place: bool
    segments: Segments
    sharing: SumChunks  # units are panels of channels of all groups
    scratch: Scratch

    @property
    def pixels(self) -> int:
        """Pixels of a whole segment that an image has."""
        return self.segments.rows * self.planes.kernel.out_width

    @property
    def taps(self) -> int:
        """Sums of a row of tiles."""
        kh, kw = self.planes.kernel.kernel
        return 1 if self.unfolded else kh * kw

    @property
    def y_panel(self) -> int:
        return self.segments.together * self.pixels * self.tiling.width

    @property
    def sum_panel(self) -> int:
        """The sums of all rows of a panel of filters."""
        return self.tiling.m * self.taps * self.tiling.width

    @property
    def kept(self) -> bool:
        """True if the sums of all tiles are kept, because a tile is added to more than once."""
        return self.segments.number > 1 or self.unfolded

    @property
    def way(self) -> str:
        segments = f"{self.segments.number} segments of {self.segments.rows} rows"
        y = "y in place" if self.y_in_place else "y packed"
        return f"weights by planes: {self.tiling.text}; {segments}, {y}{self.sharing.text}"

    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        """The strides of the scratch result."""
        return row_major_weights(kernel)

    def emit_alone(self, writer: ConvolutionWriter) -> None:
        f = writer.f
        x, y, sums = _areas(writer)
        with span(f, 0, self.segments.number) as number:
            segment = self.segments.at(f, number)
            _pack(writer, self, y, segment, (0, _filter_panels(self)))
            _add_panels(writer, self, x, y, sums, number, segment, (0, self.sharing.units))
        self.complete(writer)

    def add(self, writer: ConvolutionWriter, sums: Value, segments: Range, unit: Index) -> None:
        f, x, y = writer.f, writer.area("planes"), writer.area("y")
        with span(f, *segments) as number:
            segment = self.segments.at(f, number)
            _pack(writer, self, y, segment, (0, _filter_panels(self)))
            _add_tiles(writer, self, x, y, sums, f.sub(number, segments[0]), segment, (0, self.sharing.units))

    def finish(self, writer: ConvolutionWriter, sums: Value) -> None:
        _finish(writer, self, sums)

    def bring(self, chunks: Chunks) -> tuple[str, int] | None:
        """Panels of filters are packed, each as a chunk."""
        if self.y_in_place:
            return None
        part, writer = chunks.open("pack")
        f = part.f
        segment = self.segments.at(f, part.table.word(0))
        _pack(writer, self, writer.area("y"), segment, (part.chunk, f.add(part.chunk, 1)))
        return f.finish(), _filter_panels(self)

    def add_units(self, writer: ConvolutionWriter, number: Index, units: Range) -> None:
        _add_panels(writer, self, *_areas(writer), number, self.segments.at(writer.f, number), units)

    def complete(self, writer: ConvolutionWriter) -> None:
        if self.unfolded:
            _finish(writer, self, writer.area("sums"))


def reads_planes(kernel: Convolution, target: Target) -> bool:
    """True if several taps read each pixel of x, and its planes can be copied by vectors: because they are contiguous,
    or the channels of a pixel are. Channels last, turning planes pays where the weights outgrow the second cache, so
    that sums must not be passed through once for each block of rows."""
    pixels = kernel.batch * kernel.out_height * kernel.out_width
    by_row = kernel.x_strides[3] == 1 or kernel.width == 1
    channels = kernel.channels // kernel.groups
    weights = kernel.filters * channels * math.prod(kernel.kernel) * kernel.dtype.itemsize
    by_pixel = kernel.x_strides[1] == 1 and channels >= USUAL_ROWS and weights >= target.sized(MANY_WEIGHTS)
    return kernel.direction == "weight_grad" and kernel.kernel != (1, 1) and (by_row or by_pixel) and pixels > 0


@functools.lru_cache(maxsize=4096)
def plane_weights_plan(kernel: Convolution, target: Target) -> PlaneWeights:
    """The plan of a kernel without epilogue, which has no part in it."""
    channels, filters, size = kernel.channels // kernel.groups, kernel.filters // kernel.groups, kernel.dtype.itemsize
    height, width, (kh, kw) = kernel.out_height, kernel.out_width, kernel.kernel
    unfolded = channels < USUAL_ROWS
    _, s_o, s_p, s_q = kernel.y_strides
    pixels_run = (s_o == 1 or kernel.filters == 1) and (s_p == width * s_q or height == 1)
    lanes = tile_lanes(target, kernel.dtype)
    y_in_place = pixels_run and (target.isa.predicated or filters % lanes == 0) and channels <= FEW_CHANNELS
    columns = filters if y_in_place else round_up(filters, lanes)
    m = channels * (kh * kw if unfolded else 1)
    tiling = choose_tiling(target, kernel.dtype, m, columns, height * width)

    each = 1 if unfolded else Planes.of(kernel, Segments(1, 1, 1, 1), False).each
    panels = (tiling.rows * each + (0 if y_in_place else tiling.width)) * size
    segments = Segments.of(
        kernel, min(target.sized(SEGMENT_BYTES) // panels, target.sized(Y_BYTES) // (kernel.filters * size))
    )
    number = segments.number
    planes = Planes.of(kernel, segments, unfolded)
    taps = 1 if unfolded else kh * kw
    all_sums = kernel.groups * tiling.column_panels * tiling.width * m * taps
    sharing = SumChunks.choose(kernel, target, number, kernel.groups * tiling.row_panels, all_sums * size)
    kept = number > 1 or unfolded
    weights = kernel.filters * channels * kh * kw
    padded = 0 if y_in_place else kernel.groups * tiling.column_panels * tiling.width  # filters
    x, y, raw = areas(
        kernel.dtype,
        planes=tiling.rows * each * planes.pitch,
        y=padded * segments.together * segments.rows * width,
        raw=0 if kernel.store_raw else weights,
    )
    sum_bytes = aligned_bytes(all_sums if kept else tiling.rows * taps * tiling.width, kernel.dtype)
    sums = Area("sums", sum_bytes, max(1, sharing.parts))
    if sharing.part:
        scratch = Scratch((raw, sums), (x, y))
    else:
        scratch = Scratch((raw, y, sums), (x,)) if kept else Scratch((raw, y), (x, sums))
    return PlaneWeights(
        planes=planes,
        channels=channels,
        filters=filters,
        unfolded=unfolded,
        tiling=tiling,
        y_in_place=y_in_place,
        segments=segments,
        sharing=sharing,
        scratch=scratch,
    )


def tile_cycles(kernel: Convolution, target: Target) -> float:
    """The estimated cycles of a pixel in all tiles of a group, with the packing of y."""
    plan, depth = plane_weights_plan(kernel, target), kernel.batch * kernel.out_height * kernel.out_width
    products = plan.taps * tiling_cost(plan.tiling, depth) / depth
    return products + (0.0 if plan.y_in_place else target.machine.packed_y * plan.filters)


def _areas(writer: ConvolutionWriter) -> tuple[Value, Value, Value]:
    """The offsets of the planes, the packed y and the sums of a worker, in bytes; one worker or any number."""
    return writer.area("planes"), writer.area("y"), writer.area("sums")


# -- one segment ------------------------------------------------------------------------------------------------


def _filter_panels(plan: PlaneWeights) -> int:
    """Panels of filters of all groups."""
    return plan.planes.kernel.groups * plan.tiling.column_panels


def _pack(writer: ConvolutionWriter, plan: PlaneWeights, to: Value, segment: Segment, panels: Range) -> None:
    """Pack some panels of y."""
    if plan.y_in_place:
        return
    f, tiling = writer.f, plan.tiling
    with span(f, *panels) as number:
        group, panel = divide(f, number, tiling.column_panels)
        at = writer.at(to, (number, plan.y_panel))
        first = f.add(f.mul(group, plan.filters), f.mul(panel, tiling.width))
        by_width(f, tiling, panel, plan.filters, functools.partial(_pack_panel, writer, plan, at, segment, first))


def _pack_panel(
    writer: ConvolutionWriter, plan: PlaneWeights, to: Value, segment: Segment, first: Index, count: int
) -> None:
    """Pack ``count`` filters from number ``first`` on. What a panel lacks is zero: whole vectors of it are read."""
    f, width, columns = writer.f, plan.tiling.width, writer.kernel.out_width
    s_n, s_o, s_p, s_q = writer.kernel.y_strides
    rows = f.sub(segment.rows[1], segment.rows[0])
    with span(f, *segment.images) as image:
        at = writer.at(to, (f.sub(image, segment.images[0]), plan.pixels * width))
        if count < width:
            fill_zero(f, writer.dtype, at, f.mul(rows, columns * width))
        source = writer.at(writer.second, (image, s_n), (first, s_o), (segment.rows[0], s_p))
        if s_p == columns * s_q:  # one row after the other
            block = plan.segments.rows
            least = columns * min(block, writer.kernel.out_height % block or block)
            writer.copy(Matrix(at, width, 1), Matrix(source, s_q, s_o), f.mul(rows, columns), count, least)
        else:
            with f.loop(0, rows) as row:
                line = writer.at(source, (row.index, s_p))
                place = writer.at(at, (row.index, columns * width))
                writer.copy(Matrix(place, width, 1), Matrix(line, s_q, s_o), columns, count)


def _add_panels(
    writer: ConvolutionWriter,
    plan: PlaneWeights,
    x: Value,
    y: Value,
    sums: Value,
    number: Index,
    segment: Segment,
    units: Range,
) -> None:
    """Add what a segment gives to some panels of channels; the last segment completes them."""
    _add_tiles(writer, plan, x, y, sums, number, segment, units)
    if plan.unfolded or not plan.kept:
        return
    f = writer.f
    with f.when(f.compare("icmp eq", f.index(number), integer(plan.segments.number - 1))), span(f, *units) as unit:
        group, row_panel = divide(f, unit, plan.tiling.row_panels)
        with span(f, 0, plan.tiling.column_panels) as panel:
            at = _sums_at(writer, plan, sums, group, panel, plan.tiling.row_start(f, row_panel))
            _store(writer, plan, at, group, _rows_of(f, plan, row_panel), panel)
        _call_epilogue(writer, plan, group, _rows_of(f, plan, row_panel))


def _rows_of(f: Function, plan: PlaneWeights, row_panel: Index) -> Range:
    return plan.tiling.row_start(f, row_panel), plan.tiling.row_start(f, f.add(row_panel, 1))


def _sums_at(
    writer: ConvolutionWriter, plan: PlaneWeights, sums: Value, group: Index, panel: Index, row: Index
) -> Value:
    """The address of the sums of a row of a panel of filters, where those of all tiles are kept."""
    number = writer.f.add(writer.f.mul(group, plan.tiling.column_panels), panel)
    return writer.at(sums, (number, plan.sum_panel), (row, plan.taps * plan.tiling.width))


def _add_tiles(
    writer: ConvolutionWriter,
    plan: PlaneWeights,
    x: Value,
    y: Value,
    sums: Value,
    later: Index,
    segment: Segment,
    units: Range,
) -> None:
    """Add what a segment gives to the tiles of some panels of channels. The sums begin where ``later`` is 0."""
    f, planes, tiling = writer.f, plan.planes, plan.tiling
    with span(f, *units) as unit:
        group, row_panel = divide(f, unit, tiling.row_panels)
        rows = _rows_of(f, plan, row_panel)
        planes.bring(writer, x, rows, f.mul(group, plan.channels), segment, min(tiling.heights()))
        with span(f, 0, tiling.column_panels) as panel:
            to = _sums_at(writer, plan, sums, group, panel, rows[0]) if plan.kept else sums
            with span(f, 0, plan.taps) as tap:
                if not plan.kept and _spacing(writer) == 1:
                    _fetch_weights(writer, plan, group, rows, panel, tap)
                _add_tile(writer, plan, x, y, to, (group, row_panel, panel, tap), later, segment)
            if not plan.kept:
                _store(writer, plan, to, group, rows, panel)
        if not plan.kept:
            _call_epilogue(writer, plan, group, rows)


def _add_tile(
    writer: ConvolutionWriter, plan: PlaneWeights, x: Value, y: Value, sums: Value,
    tile: tuple[Index, Index, Index, Index], later: Index, segment: Segment,
) -> None:  # fmt: skip
    """Add what a segment gives to one tile: of a group, in a panel of channels and one of filters, for a tap."""
    f, kernel, planes, tiling = writer.f, writer.kernel, plan.planes, plan.tiling
    group, row_panel, panel, tap = tile
    i, j = unravel(f, tap, (0, kernel.kernel[1]))
    a = x if plan.unfolded else writer.at(x, (planes.tap(f, i, j), 1))
    if plan.y_in_place:
        s_n, _, s_p, b_step = kernel.y_strides
        first = f.add(f.mul(group, plan.filters), f.mul(panel, tiling.width))
        b, b_image = writer.at(writer.second, (segment.images[0], s_n), (segment.rows[0], s_p), (first, 1)), s_n
    else:
        number = f.add(f.mul(group, tiling.column_panels), panel)
        b, b_step, b_image = writer.at(y, (number, plan.y_panel)), tiling.width, plan.pixels * tiling.width
    at = TileOperands(
        a, planes.of_row * planes.pitch, 1, b, b_step,
        writer.at(sums, (tap, tiling.width)), plan.taps * tiling.width,
        segment.pixels(f, kernel.out_width), later, segment.count(f), planes.image, b_image,
    )  # fmt: skip
    call_tile(f, tiling, "rows", row_panel, panel, at)


# -- the weights ------------------------------------------------------------------------------------------------


def _finish(writer: ConvolutionWriter, plan: PlaneWeights, sums: Value) -> None:
    """Store all weights and call the epilogue once."""
    f, kernel = writer.f, writer.kernel
    with span(f, 0, kernel.groups) as group, span(f, 0, plan.tiling.column_panels) as panel:
        _store(writer, plan, _sums_at(writer, plan, sums, group, panel, 0), group, (0, plan.tiling.m), panel)
    ranges: list[Range] = [(0, kernel.filters), (0, plan.channels), *((0, taps) for taps in kernel.kernel)]
    writer.finish(weights_of(writer)[0], ranges)


def _call_epilogue(writer: ConvolutionWriter, plan: PlaneWeights, group: Index, rows: Range) -> None:
    """Hand on some channels of all filters of a group."""
    f, first = writer.f, writer.f.mul(group, plan.filters)
    taps: list[Range] = [(0, size) for size in writer.kernel.kernel]
    writer.finish(weights_of(writer)[0], [(first, f.add(first, plan.filters)), rows, *taps])


def _store(writer: ConvolutionWriter, plan: PlaneWeights, sums: Value, group: Index, rows: Range, panel: Index) -> None:
    """Copy the sums of some rows of tiles, in one panel of filters, to the weights."""
    f = writer.f
    first = f.add(f.mul(group, plan.filters), f.mul(panel, plan.tiling.width))
    by_width(f, plan.tiling, panel, plan.filters, functools.partial(_store_panel, writer, plan, sums, first, rows))


def _spacing(writer: ConvolutionWriter) -> int | None:
    """The stride of a filter's weights (c, i, j), if they have one."""
    (kh, kw), (_, c, i, j) = writer.kernel.kernel, weights_of(writer)[1]
    spacing = j if kw > 1 else i
    even = kh == 1 or kw == 1 or i == kw * j
    return spacing if even and c == kh * kw * spacing else None


def _fetch_weights(
    writer: ConvolutionWriter, plan: PlaneWeights, group: Index, rows: Range, panel: Index, tap: Index
) -> None:
    """Prefetch some of the lines that a tile's weights are stored to: those of a filter are far from the next one's."""
    f, size = writer.f, writer.dtype.itemsize
    result, (o, c, _, _) = weights_of(writer)
    share = -(-plan.tiling.width // plan.taps)
    first = f.add(f.mul(panel, plan.tiling.width), f.mul(tap, share))
    start = writer.at(result, (f.add(f.mul(group, plan.filters), first), o), (rows[0], c))
    nbytes = plan.tiling.rows * plan.taps * size + LINE  # which begin anywhere in a line
    PrefetchRuns(start, nbytes, (((0, share), o),), unrolled=True).ask(writer)


def _store_panel(
    writer: ConvolutionWriter, plan: PlaneWeights, sums: Value, first: Index, rows: Range, count: int
) -> None:
    """Copy the sums of ``count`` filters from number ``first`` on: ``[c][i][j][filter]`` to the strides of w."""
    f, (kh, kw), width = writer.f, writer.kernel.kernel, plan.tiling.width
    result, (o, c, i, j) = weights_of(writer)
    to = writer.at(result, (first, o))
    numbers = f.mul(rows[0], plan.taps), f.mul(rows[1], plan.taps)  # of channels and taps
    spacing = _spacing(writer)
    if spacing is not None:
        least = max(1, plan.tiling.rows - 1) * plan.taps
        at = writer.at(to, (numbers[0], spacing))
        writer.copy(Matrix(at, spacing, o), Matrix(sums, width, 1), f.sub(numbers[1], numbers[0]), count, least, False)
        return
    with span(f, *numbers) as number:
        channel, tap_i, tap_j = unravel(f, number, (0, kh, kw))
        source = writer.at(sums, (f.sub(number, numbers[0]), width))
        at = writer.at(to, (channel, c), (tap_i, i), (tap_j, j))
        writer.copy(Matrix(at, 0, o), Matrix(source, 0, 1), 1, count)
