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

from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.convolution.images import ConvolutionWriter
from staticgrad.compiler.emit.convolution.plan import Area, Range, Scratch, areas
from staticgrad.compiler.emit.convolution.planes import Planes, Segment, Segments
from staticgrad.compiler.emit.convolution.prefetch import PrefetchRuns
from staticgrad.compiler.emit.convolution.schedule import SegmentSums, SumChunks
from staticgrad.compiler.emit.convolution.weights_store import (
    finish_weights,
    row_major_weights,
    store_sums,
    weights_of,
)
from staticgrad.compiler.emit.llvm import Function, Index, Value
from staticgrad.compiler.emit.microkernel import Matrix, TileOperands, by_width, call_tile, fill_zero, rows_of, span
from staticgrad.compiler.emit.parallel import divide, unravel
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.machine import LINE
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.tiles import (
    USUAL_ROWS,
    Tiling,
    aligned_bytes,
    choose_tiling,
    round_up,
    tile_lanes,
    tiling_cost,
)

SEGMENT_BYTES = 384 << 10  # of a panel of x and one of y, which stay in the second cache
Y_BYTES = 4 << 20  # of all panels of y
MANY_WEIGHTS = 3 << 19  # bytes of all weights from which planes are made even of channels that are next to each other
FEW_CHANNELS = 4  # for which y is not worth packing where its filters are next to each other


@frozen
class PlaneWeights(SegmentSums):
    """The plan of a kernel; sizes are elements unless said otherwise, of one group."""

    kernel: Convolution
    planes: Planes
    unfolded: bool  # rows of tiles are channels and taps
    tiling: Tiling
    y_in_place: bool
    segments: Segments
    sharing: SumChunks  # units are panels of channels of all groups
    scratch: Scratch

    @property
    def filters(self) -> int:
        return self.kernel.of_group[1]

    @property
    def taps(self) -> int:
        """Sums of a row of tiles."""
        return 1 if self.unfolded else math.prod(self.kernel.kernel)

    @property
    def y_panel(self) -> int:
        return self.segments.together * self.pixels * self.tiling.width

    @property
    def kept(self) -> bool:
        """True if the sums of all tiles are kept, because a tile is added to more than once."""
        return self.segments.number != 1 or self.unfolded

    def by_units(self) -> bool:
        return self.kept and not self.unfolded and not self.sharing.part

    @property
    def brought(self) -> int:
        """Panels of filters of all groups."""
        return 0 if self.y_in_place else self.kernel.groups * self.tiling.column_panels

    @property
    def way(self) -> str:
        segments = self.segments.text
        y = "y in place" if self.y_in_place else "y packed"
        return f"weights by planes: {self.tiling.text}; {segments}, {y}{self.sharing.text}"

    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        """The strides of the scratch result."""
        return row_major_weights(kernel)

    def bring(self, writer: ConvolutionWriter, segment: Segment, pieces: Range) -> None:
        """Pack some panels of y."""
        f, tiling = writer.f, self.tiling
        with span(f, *pieces) as number:
            group, panel = divide(f, number, tiling.column_panels)
            at = writer.at(writer.area("y"), (number, self.y_panel))
            first = self._filter(f, group, panel)
            by_width(f, tiling, panel, self.filters, functools.partial(self._pack, writer, at, segment, first))

    def _filter(self, f: Function, group: Index, panel: Index) -> Index:
        """The first filter of a panel of a group."""
        return f.add(f.mul(group, self.filters), f.mul(panel, self.tiling.width))

    def _pack(self, writer: ConvolutionWriter, to: Value, segment: Segment, first: Index, count: int) -> None:
        """Pack ``count`` filters from number ``first`` on. What a panel lacks is zero: whole vectors of it are read."""
        f, width, columns = writer.f, self.tiling.width, self.kernel.out_width
        s_n, s_o, s_p, s_q = self.kernel.y_strides
        rows = f.sub(segment.rows[1], segment.rows[0])
        with span(f, *segment.images) as image:
            at = writer.at(to, (f.sub(image, segment.images[0]), self.pixels * width))
            if count < width:
                fill_zero(f, writer.dtype, at, f.mul(rows, columns * width))
            source = writer.at(writer.second, (image, s_n), (first, s_o), (segment.rows[0], s_p))
            if s_p == columns * s_q:  # one row after the other
                to_pixels, pixels = Matrix(at, width, 1), Matrix(source, s_q, s_o)
                writer.copy(to_pixels, pixels, f.mul(rows, columns), count, self.segments.fewest * columns)
            else:
                with f.loop(0, rows) as row:
                    line = Matrix(writer.at(source, (row.index, s_p)), s_q, s_o)
                    writer.copy(Matrix(writer.at(at, (row.index, columns * width)), width, 1), line, columns, count)

    def add_segment(self, writer: ConvolutionWriter, sums: Value, segment: Segment, later: Index, units: Range) -> None:
        """Add what a segment gives to the tiles of some panels of channels."""
        f, x, tiling = writer.f, writer.area("planes"), self.tiling
        with span(f, *units) as unit:
            group, row_panel = divide(f, unit, tiling.row_panels)
            rows = rows_of(f, tiling, row_panel)
            channel = f.mul(group, self.kernel.of_group[0])
            self.planes.bring(writer, x, rows, channel, segment, min(tiling.heights()))
            with span(f, 0, tiling.column_panels) as panel:
                to = self._sums_at(writer, sums, group, panel, rows[0]) if self.kept else sums
                with span(f, 0, self.taps) as tap:
                    if not self.kept and _spacing(writer) == 1:
                        self._prefetch_weights(writer, group, rows, panel, tap)
                    self._add_tile(writer, x, to, (group, row_panel, panel, tap), later, segment)
                if not self.kept:
                    self._store(writer, to, group, rows, panel)
            if not self.kept:
                self._call_epilogue(writer, group, rows)

    def _sums_at(self, writer: ConvolutionWriter, sums: Value, group: Index, panel: Index, row: Index) -> Value:
        """The address of the sums of a row of a panel of filters, where those of all tiles are kept."""
        f, of_row = writer.f, self.taps * self.tiling.width
        number = f.add(f.mul(group, self.tiling.column_panels), panel)
        return writer.at(sums, (number, self.tiling.m * of_row), (row, of_row))

    def _add_tile(
        self, writer: ConvolutionWriter, x: Value, sums: Value, tile: tuple[Index, Index, Index, Index], later: Index,
        segment: Segment,
    ) -> None:  # fmt: skip
        """Add what a segment gives to one tile: of a group, in a panel of channels and one of filters, for a tap."""
        f, kernel, planes, tiling = writer.f, self.kernel, self.planes, self.tiling
        group, row_panel, panel, tap = tile
        i, j = unravel(f, tap, (0, kernel.kernel[1]))
        a = x if self.unfolded else writer.at(x, (planes.tap(f, i, j), 1))
        if self.y_in_place:
            s_n, _, s_p, b_step = kernel.y_strides
            first = self._filter(f, group, panel)
            b, b_image = writer.at(writer.second, (segment.images[0], s_n), (segment.rows[0], s_p), (first, 1)), s_n
        else:
            number = f.add(f.mul(group, tiling.column_panels), panel)
            b, b_step = writer.at(writer.area("y"), (number, self.y_panel)), tiling.width
            b_image = self.pixels * tiling.width
        at = TileOperands(
            a, planes.of_row * planes.pitch, 1, b, b_step,
            writer.at(sums, (tap, tiling.width)), self.taps * tiling.width,
            segment.pixels(f, kernel.out_width), later, segment.count(f), planes.image, b_image,
        )  # fmt: skip
        call_tile(f, tiling, "rows", row_panel, panel, at)

    def finish_units(self, writer: ConvolutionWriter, sums: Value, units: Range) -> None:
        f, tiling = writer.f, self.tiling
        with span(f, *units) as unit:
            group, row_panel = divide(f, unit, tiling.row_panels)
            rows = rows_of(f, tiling, row_panel)
            with span(f, 0, tiling.column_panels) as panel:
                self._store(writer, self._sums_at(writer, sums, group, panel, rows[0]), group, rows, panel)
            self._call_epilogue(writer, group, rows)

    def finish(self, writer: ConvolutionWriter, sums: Value) -> None:
        if self.by_units():
            self.finish_units(writer, sums, (0, self.sharing.units))
        elif self.kept:
            f, tiling = writer.f, self.tiling
            with span(f, 0, self.kernel.groups) as group, span(f, 0, tiling.column_panels) as panel:
                self._store(writer, self._sums_at(writer, sums, group, panel, 0), group, (0, tiling.m), panel)
            finish_weights(writer, weights_of(writer)[0])

    def _call_epilogue(self, writer: ConvolutionWriter, group: Index, rows: Range) -> None:
        """Hand on some channels of all filters of a group."""
        first = writer.f.mul(group, self.filters)
        finish_weights(writer, weights_of(writer)[0], (first, writer.f.add(first, self.filters)), rows)

    def _store(self, writer: ConvolutionWriter, sums: Value, group: Index, rows: Range, panel: Index) -> None:
        """Copy the sums of some rows of tiles, in one panel of filters, to the weights."""
        first = self._filter(writer.f, group, panel)
        write = functools.partial(self._store_panel, writer, sums, first, rows)
        by_width(writer.f, self.tiling, panel, self.filters, write)

    def _store_panel(self, writer: ConvolutionWriter, sums: Value, first: Index, rows: Range, count: int) -> None:
        """Copy the sums of ``count`` filters from number ``first`` on: ``[c][i][j][filter]`` to the strides of w."""
        (kh, kw), width = self.kernel.kernel, self.tiling.width
        channels = (0, self.kernel.of_group[0]) if self.unfolded else rows
        strides, least = (1, kh * kw * width, kw * width, width), max(1, self.tiling.rows - 1)
        store_sums(writer, sums, strides, first, count, channels, least, False)

    def _prefetch_weights(self, writer: ConvolutionWriter, group: Index, rows: Range, panel: Index, tap: Index) -> None:
        """Prefetch some of the lines that a tile's weights are stored to: those of a filter are far from the next
        one's."""
        f, tiling = writer.f, self.tiling
        result, (o, c, _, _) = weights_of(writer)
        share = -(-tiling.width // self.taps)
        first = f.add(f.mul(panel, tiling.width), f.mul(tap, share))
        start = writer.at(result, (f.add(f.mul(group, self.filters), first), o), (rows[0], c))
        nbytes = tiling.rows * self.taps * writer.dtype.itemsize + LINE  # which begin anywhere in a line
        PrefetchRuns(start, nbytes, (((0, share), o),), unrolled=True).ask(writer)


def _spacing(writer: ConvolutionWriter) -> int | None:
    """The stride of a filter's weights (c, i, j), if they have one."""
    (kh, kw), (_, c, i, j) = writer.kernel.kernel, weights_of(writer)[1]
    spacing = j if kw > 1 else i
    even = kh == 1 or kw == 1 or i == kw * j
    return spacing if even and c == kh * kw * spacing else None


def reads_planes(kernel: Convolution, target: Target) -> bool:
    """True if several taps read each pixel of x, and its planes can be copied by vectors: because they are contiguous,
    or the channels of a pixel are. Channels last, turning planes pays where the weights outgrow the second cache, so
    that sums must not be passed through once for each block of rows."""
    pixels = kernel.batch * kernel.out_height * kernel.out_width
    by_row = kernel.x_strides[3] == 1 or kernel.width == 1
    channels, _ = kernel.of_group
    weights = kernel.filters * channels * math.prod(kernel.kernel) * kernel.dtype.itemsize
    by_pixel = kernel.x_strides[1] == 1 and channels >= USUAL_ROWS and weights >= target.sized(MANY_WEIGHTS)
    return kernel.direction == "weight_grad" and kernel.kernel != (1, 1) and (by_row or by_pixel) and pixels > 0


@functools.lru_cache(maxsize=4096)
def plane_weights_plan(kernel: Convolution, target: Target) -> PlaneWeights:
    """The plan of a kernel without epilogue, which has no part in it."""
    (channels, filters), size = kernel.of_group, kernel.dtype.itemsize
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
    kept = number != 1 or unfolded
    weights = kernel.filters * channels * kh * kw
    padded = 0 if y_in_place else kernel.groups * tiling.column_panels * tiling.width  # filters
    x, y, raw = areas(
        kernel.dtype,
        planes=tiling.rows * each * planes.pitch,
        y=padded * segments.together * segments.rows * width,
        raw=0 if kernel.store_raw else weights,
    )
    sum_bytes = aligned_bytes(all_sums if kept else tiling.rows * taps * tiling.width, kernel.dtype)
    sums = Area("sums", sum_bytes, sharing.places)
    if sharing.part:
        scratch = Scratch((raw, sums), (x, y))
    else:
        scratch = Scratch((raw, y, sums), (x,)) if kept else Scratch((raw, y), (x, sums))
    return PlaneWeights(kernel, planes, unfolded, tiling, y_in_place, segments, sharing, scratch)


def tile_cycles(kernel: Convolution, target: Target) -> float:
    """The estimated cycles of a pixel in all tiles of a group, with the packing of y."""
    plan, depth = plane_weights_plan(kernel, target), kernel.batch * kernel.out_height * kernel.out_width
    products = plan.taps * tiling_cost(plan.tiling, depth) / depth
    return products + (0.0 if plan.y_in_place else target.machine.packed_y * plan.filters)
