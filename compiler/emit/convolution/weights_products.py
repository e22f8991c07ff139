"""The transpose by weights of a convolution with one tap, of images that lie in planes: a sum of products of matrices.

    W (filters × channels) = Σ_n Y[n] (filters × pixels) · X[n]ᵀ (pixels × channels)

Rows of tiles are filters, whose planes are read in place, columns are channels, whose pixels are transposed a panel at
a time; blocks of the sum are images. Weights as users hold them have channels next to each other, so that tiles add up
in the result itself.

The work is a sequence of *segments*, some images or a block of rows of one, so that y stays in the caches while all
panels of channels pass by. A segment is many short pieces of memory, which no hardware prefetcher foresees: so between
two tiles some lines of the next one are prefetched. A kernel that takes long is cut in chunks (``emit.parallel``):
where the weights are few, runs of segments, whose partial sums are added in their order; else the panels of channels,
by parts of the filters where there are few panels. So no sum depends on the number of threads.
"""

from __future__ import annotations

import functools

from staticgrad.compiler.emit.convolution.images import ConvolutionWriter, seconds_of
from staticgrad.compiler.emit.convolution.plan import Area, Range, Scratch, areas
from staticgrad.compiler.emit.convolution.planes import Planes, Segment, Segments
from staticgrad.compiler.emit.convolution.prefetch import PrefetchRuns
from staticgrad.compiler.emit.convolution.schedule import SumChunks, SumPlan
from staticgrad.compiler.emit.llvm import Index, Value, integer
from staticgrad.compiler.emit.microkernel import (
    Matrix,
    TileOperands,
    Tiling,
    aligned_bytes,
    by_width,
    call_tile,
    choose_tiling,
    span,
    tiling_cost,
)
from staticgrad.compiler.emit.parallel import unravel, wanted_chunks
from staticgrad.compiler.emit.target import Target
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.frozen import frozen

SEGMENT_BYTES = 512 << 10  # of y in a segment
FEWEST_PIXELS, MOST_PIXELS = 256, 1024  # of a segment, about
ENOUGH_UNITS = 8  # of a segment, so that threads have work of their own
FEWEST_ROWS = 128  # filters of a part: each part packs the pixels again


@frozen
class Side:
    """One of the images, as rows or columns of the product."""

    number: int  # of the kernel's operands
    count: int  # planes of a group
    image: int  # strides
    plane: int
    row: int  # from one row of the result's pixels to the next

    def at(self, writer: ConvolutionWriter, segment: Segment, plane: Index) -> Value:
        """The first pixel of a segment in a plane."""
        base = writer.second if self.number else writer.first
        return writer.at(base, (segment.images[0], self.image), (plane, self.plane), (segment.rows[0], self.row))


@frozen
class WeightProducts(SumPlan):
    """The plan of a kernel; sizes are elements unless said otherwise."""

    kernel: Convolution
    swapped: bool  # rows of tiles are channels
    rows: Side
    columns: Side
    segments: Segments
    planes: Planes | None  # of a panel of columns, where the tap does not read whole planes
    tiling: Tiling  # of a group
    row_parts: int
    part_panels: int  # row panels of a part
    in_place: bool  # tiles add up in the result
    sharing: SumChunks  # units are parts of the rows of the panels of columns of all groups
    scratch: Scratch

    @property
    def outputs(self) -> int:
        """Filters of a group."""
        return self.kernel.filters // self.kernel.groups

    @property
    def channels(self) -> int:
        """The number of channels of a group."""
        return self.kernel.channels // self.kernel.groups

    @property
    def sum_strides(self) -> tuple[int, int]:
        """The strides of sums in scratch memory, from filter to filter and channel to channel."""
        return (1, self.kernel.filters) if self.swapped else (self.channels, 1)

    @property
    def pixels(self) -> int:
        """Pixels of a whole segment that an image has."""
        return self.segments.rows * self.kernel.out_width

    @property
    def way(self) -> str:
        segments = f"{self.segments.number} segments of {self.segments.rows} rows"
        segments += ", the next prefetched" * (self.segments.number > 1)
        turned = " of the transpose" * self.swapped
        return f"weights of one tap, planes as matrices: {self.tiling.text}{turned}; {segments}{self.sharing.text}"

    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        """The strides of the scratch result."""
        return *self.sum_strides, 1, 1

    def emit_alone(self, writer: ConvolutionWriter) -> None:
        sums = _sums(writer, self)
        with span(writer.f, 0, self.segments.number) as number:
            _SegmentSums(writer, self, sums, number, number).add((0, self.sharing.units))
        self.finish(writer, sums[0])

    def add(self, writer: ConvolutionWriter, sums: Value, segments: Range, unit: Index) -> None:
        with span(writer.f, *segments) as number:
            later = writer.f.sub(number, segments[0])
            _SegmentSums(writer, self, (sums, self.sum_strides), number, later).add((0, self.sharing.units))

    def finish(self, writer: ConvolutionWriter, sums: Value) -> None:
        _finish(writer, self, sums, (0, writer.kernel.filters), (0, self.channels))

    def add_units(self, writer: ConvolutionWriter, number: Index, units: Range) -> None:
        f, sums = writer.f, _sums(writer, self)
        _SegmentSums(writer, self, sums, number, number).add(units)
        last = f.compare("icmp eq", f.index(number), integer(self.segments.number - 1))
        with f.when(last), span(f, *units) as unit:
            _finish_unit(writer, self, sums[0], unit)


def is_weight_product(kernel: Convolution) -> bool:
    """True if a kernel is a product of planes: those of y are contiguous, those of x at least along rows."""
    _, _, s_p, s_q = kernel.y_strides
    by_plane = s_q == 1 and (s_p == kernel.out_width or kernel.out_height == 1)
    pixels = kernel.batch * kernel.out_height * kernel.out_width
    one_tap = kernel.direction == "weight_grad" and kernel.kernel == (1, 1)
    return one_tap and by_plane and kernel.x_strides[3] == 1 and pixels > 0


@functools.lru_cache(maxsize=4096)
def weight_product_plan(kernel: Convolution, target: Target) -> WeightProducts:
    """The plan of a kernel without epilogue, which has no part in it."""
    (s_n, s_c, s_h, _), (down, _) = kernel.x_strides, kernel.stride
    channels, filters, size = kernel.channels // kernel.groups, kernel.filters // kernel.groups, kernel.dtype.itemsize
    x, y = Side(0, channels, s_n, s_c, down * s_h), Side(1, filters, *kernel.y_strides[:3])
    whole = kernel.stride == (1, 1) and kernel.padding == (0, 0) and s_h == kernel.width

    fewest, most = target.sized(FEWEST_PIXELS), target.sized(MOST_PIXELS)

    def way(rows: Side, columns: Side) -> tuple[float, bool, Side, Side, Segments, Tiling]:
        segments = Segments.of(kernel, min(most, max(fewest, target.sized(SEGMENT_BYTES) // (rows.count * size))))
        pixels = segments.together * segments.rows * kernel.out_width
        tiling = choose_tiling(target, kernel.dtype, rows.count, columns.count, pixels)
        machine = target.machine
        turned = machine.moved_weight * channels * filters * (kernel.w_strides[rows is y] != 1)
        all_pixels = kernel.batch * kernel.out_height * kernel.out_width
        cycles = tiling_cost(tiling, pixels) / pixels + machine.packed_column * columns.count + turned / all_pixels
        return cycles, rows is x, rows, columns, segments, tiling

    ways = [way(y, x), way(x, y)] if whole else [way(y, x)]
    _, swapped, rows, columns, segments, tiling = min(ways, key=lambda found: found[0])
    pixels = segments.together * segments.rows * kernel.out_width
    planes = None if whole else Planes.of(kernel, segments, False)
    sum_bytes = aligned_bytes(kernel.filters * channels, kernel.dtype)
    wanted = wanted_chunks(seconds_of(kernel, target) / segments.number, target)
    panels = kernel.groups * tiling.column_panels
    row_parts = max(1, min(-(-min(wanted, ENOUGH_UNITS) // panels), rows.count // target.sized(FEWEST_ROWS)))
    part_panels = -(-tiling.row_panels // row_parts)
    row_parts = -(-tiling.row_panels // part_panels)
    sharing = SumChunks.choose(kernel, target, segments.number, panels * row_parts, sum_bytes)
    in_place = kernel.store_raw and kernel.w_strides[0 if swapped else 1] == 1 and not sharing.part
    plane = 0 if planes is None else planes.pitch
    own = areas(kernel.dtype, planes=tiling.width * plane, panel=pixels * tiling.width)
    return WeightProducts(
        kernel=kernel,
        swapped=swapped,
        rows=rows,
        columns=columns,
        segments=segments,
        planes=planes,
        tiling=tiling,
        row_parts=row_parts,
        part_panels=part_panels,
        in_place=in_place,
        sharing=sharing,
        scratch=Scratch((Area("sums", 0 if in_place else sum_bytes, max(1, sharing.parts)),), own),
    )


# -- the weights -------------------------------------------------------------------------------------------------------


def _sums(writer: ConvolutionWriter, plan: WeightProducts) -> tuple[Value, tuple[int, int]]:
    """The address at which tiles add up, and its strides of filters and channels."""
    if writer.result is not None and plan.in_place:
        return writer.result, (writer.kernel.w_strides[0], writer.kernel.w_strides[1])
    return writer.area("sums"), plan.sum_strides


def _finish_unit(writer: ConvolutionWriter, plan: WeightProducts, sums: Value, unit: Index) -> None:
    """Hand on the weights of a unit."""
    f, tiling = writer.f, plan.tiling
    group, column, part = unravel(f, unit, (0, tiling.column_panels, plan.row_parts))
    panels = (f.mul(part, plan.part_panels), f.min(f.mul(f.add(part, 1), plan.part_panels), tiling.row_panels))
    rows: Range = (tiling.row_start(f, panels[0]), tiling.row_start(f, panels[1]))
    first = f.mul(column, tiling.width)
    columns: Range = (first, f.min(f.add(first, tiling.width), tiling.n))
    filters, channels = (columns, rows) if plan.swapped else (rows, columns)
    of_group = f.mul(group, plan.outputs)
    _finish(writer, plan, sums, (f.add(of_group, filters[0]), f.add(of_group, filters[1])), channels)


def _finish(writer: ConvolutionWriter, plan: WeightProducts, sums: Value, filters: Range, channels: Range) -> None:
    """Bring some weights into their place and hand them on."""
    f, result = writer.f, writer.result
    if result is not None and not plan.in_place:
        (o, c), (sum_o, sum_c) = writer.kernel.w_strides[:2], plan.sum_strides
        to = Matrix(writer.at(result, (filters[0], o), (channels[0], c)), o, c)
        source = Matrix(writer.at(sums, (filters[0], sum_o), (channels[0], sum_c)), sum_o, sum_c)
        least = min(plan.tiling.heights()[-1], (plan.tiling.n - 1) % plan.tiling.width + 1)
        writer.copy(to, source, f.sub(filters[1], filters[0]), f.sub(channels[1], channels[0]), least)
    writer.finish(sums if result is None else result, [filters, channels, (0, 1), (0, 1)])


# -- one segment ------------------------------------------------------------------------------------------------


@frozen
class _SegmentSums:
    """The writer of the products that a segment adds to the weights; sums begin where ``later`` is 0."""

    writer: ConvolutionWriter
    plan: WeightProducts
    sums: tuple[Value, tuple[int, int]]
    number: Index
    later: Index

    def add(self, units: Range) -> None:
        """Add to some units."""
        f, plan, tiling = self.writer.f, self.plan, self.plan.tiling
        panel = self.writer.area("panel")
        with span(f, *units) as unit:
            group, column, part = unravel(f, unit, (0, tiling.column_panels, plan.row_parts))
            self._pack(panel, group, column)
            low = f.mul(part, plan.part_panels)
            with span(f, low, f.min(f.add(low, plan.part_panels), tiling.row_panels)) as row:
                if plan.segments.number > 1:
                    self._fetch(group, row, column, f.sub(row, low))
                self._tile(panel, group, row, column)

    @property
    def segment(self) -> Segment:
        return self.plan.segments.at(self.writer.f, self.number)

    def _pack(self, panel: Value, group: Index, column: Index) -> None:
        """Transpose the pixels of a panel of columns."""
        f, tiling = self.writer.f, self.plan.tiling
        first = f.mul(column, tiling.width)
        by_width(f, tiling, column, tiling.n, functools.partial(self._pack_some, panel, group, first))

    def _pack_some(self, panel: Value, group: Index, first: Index, count: int) -> None:
        """Transpose the pixels of ``count`` planes from number ``first`` of a group on."""
        f, writer, plan, segment = self.writer.f, self.writer, self.plan, self.segment
        width, side = plan.tiling.width, plan.columns
        of_group = f.mul(group, side.count)
        if plan.planes is None:
            source, image, plane = side.at(writer, segment, f.add(of_group, first)), side.image, side.plane
        else:
            source, image, plane = writer.area("planes"), plan.planes.image, plan.planes.pitch
            plan.planes.bring(writer, source, (first, f.add(first, count)), of_group, segment)
        height, block = plan.kernel.out_height, plan.segments.rows
        least = plan.kernel.out_width * min(block, height % block or block)
        with span(f, 0, segment.count(f)) as number:
            to = Matrix(writer.at(panel, (number, plan.pixels * width)), width, 1)
            pixels = Matrix(writer.at(source, (number, image)), 1, plane)
            writer.copy(to, pixels, segment.pixels(f, plan.kernel.out_width), count, least)

    def _tile(self, panel: Value, group: Index, row: Index, column: Index) -> None:
        f, writer, plan, tiling, segment = self.writer.f, self.writer, self.plan, self.plan.tiling, self.segment
        side, (base, strides) = plan.rows, self.sums
        c_row, c_column = strides[::-1] if plan.swapped else strides
        first, of_group = tiling.row_start(f, row), f.mul(group, plan.outputs)
        to = writer.at(base, (of_group, strides[0]), (first, c_row), (f.mul(column, tiling.width), c_column))
        a = side.at(writer, segment, f.add(f.mul(group, side.count), first))
        pixels, count = segment.pixels(f, plan.kernel.out_width), segment.count(f)
        at = TileOperands(a, side.plane, 1, panel, tiling.width, to, c_row, pixels, self.later,
                          count, side.image, plan.pixels * tiling.width)  # fmt: skip
        call_tile(f, tiling, "rows", row, column, at)

    def _fetch(self, group: Index, row: Index, column: Index, place: Index) -> None:
        """Prefetch some of the next segment: all tiles together prefetch all of it. ``place`` is that of the tile in
        its unit."""
        f, plan, tiling = self.writer.f, self.plan, self.plan.tiling
        segment = plan.segments.at(f, f.add(self.number, 1))
        first = f.add(f.mul(group, plan.rows.count), tiling.row_start(f, row))
        self._ask(plan.rows, segment, first, tiling.rows, column, tiling.column_panels)
        share = -(-tiling.width // plan.part_panels)
        first = f.add(f.mul(group, plan.columns.count), f.add(f.mul(column, tiling.width), f.mul(place, share)))
        self._ask(plan.columns, segment, first, share, 0, 1)

    def _ask(self, side: Side, segment: Segment, plane: Index, planes: int, part: Index, parts: int) -> None:
        """Prefetch a part of the pixels of some planes."""
        writer, segments = self.writer, self.plan.segments
        nbytes = max(1, segments.rows * abs(side.row) * writer.dtype.itemsize)
        pieces = ((0, segments.together), side.image), ((0, planes), side.plane)
        PrefetchRuns(side.at(writer, segment, plane), nbytes, pieces, near=False).ask(writer, part, parts)
