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

import contextlib
import functools

from staticgrad.base.extents import highest, is_open
from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.convolution.images import ConvolutionWriter, seconds_of
from staticgrad.compiler.emit.convolution.plan import Area, Range, Scratch, areas
from staticgrad.compiler.emit.convolution.planes import Planes, Segment, Segments
from staticgrad.compiler.emit.convolution.prefetch import PrefetchRuns
from staticgrad.compiler.emit.convolution.schedule import SegmentSums, SumChunks
from staticgrad.compiler.emit.convolution.weights_store import finish_weights, store_sums
from staticgrad.compiler.emit.llvm import Function, Index, Value
from staticgrad.compiler.emit.microkernel import Matrix, TileOperands, by_width, call_tile, row_start, rows_of, span
from staticgrad.compiler.emit.parallel import unravel
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.chunks import wanted_chunks
from staticgrad.compiler.plans.tiles import Tiling, aligned_bytes, choose_tiling, tiling_cost

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
class WeightProducts(SegmentSums):
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
    def strides(self) -> tuple[int, int]:
        """The strides of sums, from filter to filter and channel to channel."""
        if self.in_place:
            return self.kernel.w_strides[0], self.kernel.w_strides[1]
        return (1, self.kernel.filters) if self.swapped else (self.kernel.of_group[0], 1)

    @property
    def way(self) -> str:
        segments = self.segments.text
        segments += ", the next prefetched" * (self.segments.number != 1)
        turned = " of the transpose" * self.swapped
        return f"weights of one tap, planes as matrices: {self.tiling.text}{turned}; {segments}{self.sharing.text}"

    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        """The strides of the scratch result."""
        return *self.strides, 1, 1

    def sums(self, writer: ConvolutionWriter) -> Value:
        return writer.result_pointer if self.in_place else writer.area("sums")

    def add_segment(self, writer: ConvolutionWriter, sums: Value, segment: Segment, later: Index, units: Range) -> None:
        f, tiling, panel = writer.f, self.tiling, writer.area("panel")
        with span(f, *units) as unit:
            group, column, part = self._place(f, unit)
            first = f.mul(column, tiling.width)
            pack = functools.partial(self._pack, writer, panel, segment, group, first)
            by_width(f, tiling, column, tiling.n, pack)
            rows = self._row_panels(f, part)
            with span(f, *rows) as row:
                if self.segments.number != 1:
                    with self._when_more(f, segment):
                        self._prefetch(writer, segment, group, row, column, f.sub(row, rows[0]))
                self._tile(writer, sums, segment, later, panel, group, row, column)

    def _when_more(self, f: Function, segment: Segment) -> contextlib.AbstractContextManager[None]:
        """Leave out what is for the next segment where there may be a single one, and this is the last."""
        if not is_open(self.segments.number):
            return contextlib.nullcontext()
        return f.when(f.compare("icmp slt", f.index(f.add(segment.number, 1)), f.index(self.segments.number)))

    def _place(self, f: Function, unit: Index) -> list[Index]:
        """The group, the panel of columns and the part of the rows of a unit."""
        return unravel(f, unit, (0, self.tiling.column_panels, self.row_parts))

    def _row_panels(self, f: Function, part: Index) -> Range:
        low = f.mul(part, self.part_panels)
        return low, f.min(f.add(low, self.part_panels), self.tiling.row_panels)

    def _pack(
        self, writer: ConvolutionWriter, panel: Value, segment: Segment, group: Index, first: Index, count: int
    ) -> None:
        """Transpose the pixels of ``count`` planes of a panel of columns, from number ``first`` of a group on."""
        f, width, side, columns = writer.f, self.tiling.width, self.columns, self.kernel.out_width
        of_group = f.mul(group, side.count)
        if self.planes is None:
            source, image, plane = side.at(writer, segment, f.add(of_group, first)), side.image, side.plane
        else:
            source, image, plane = writer.area("planes"), self.planes.image, self.planes.pitch
            self.planes.bring(writer, source, (first, f.add(first, count)), of_group, segment)
        with span(f, 0, segment.count(f)) as number:
            to = Matrix(writer.at(panel, (number, self.pixels * width)), width, 1)
            pixels = Matrix(writer.at(source, (number, image)), 1, plane)
            writer.copy(to, pixels, segment.pixels(f, columns), count, self.segments.fewest * columns)

    def _tile(
        self, writer: ConvolutionWriter, sums: Value, segment: Segment, later: Index, panel: Value, group: Index,
        row: Index, column: Index,
    ) -> None:  # fmt: skip
        f, tiling, side = writer.f, self.tiling, self.rows
        c_row, c_column = self.strides[::-1] if self.swapped else self.strides
        first, of_group = row_start(f, tiling, row), f.mul(group, self.kernel.of_group[1])
        to = writer.at(sums, (of_group, self.strides[0]), (first, c_row), (f.mul(column, tiling.width), c_column))
        a = side.at(writer, segment, f.add(f.mul(group, side.count), first))
        pixels, count = segment.pixels(f, self.kernel.out_width), segment.count(f)
        at = TileOperands(a, side.plane, 1, panel, tiling.width, to, c_row, pixels, later, count, side.image,
                          self.pixels * tiling.width)  # fmt: skip
        call_tile(f, tiling, "rows", row, column, at)

    def _prefetch(
        self, writer: ConvolutionWriter, segment: Segment, group: Index, row: Index, column: Index, place: Index
    ) -> None:
        """Prefetch some of the next segment: all tiles together prefetch all of it. ``place`` is that of the tile in
        its unit."""
        f, tiling = writer.f, self.tiling
        following = self.segments.at(f, f.add(segment.number, 1))

        def ask(side: Side, plane: Index, planes: int, part: Index, parts: int) -> None:
            nbytes = max(1, self.segments.rows * abs(side.row) * writer.dtype.itemsize)
            pieces = ((0, self.segments.together), side.image), ((0, planes), side.plane)
            at = side.at(writer, following, f.add(f.mul(group, side.count), plane))
            PrefetchRuns(at, nbytes, pieces, near=False).ask(writer, part, parts)

        ask(self.rows, row_start(f, tiling, row), tiling.rows, column, tiling.column_panels)
        share = -(-tiling.width // self.part_panels)
        ask(self.columns, f.add(f.mul(column, tiling.width), f.mul(place, share)), share, 0, 1)

    def finish(self, writer: ConvolutionWriter, sums: Value) -> None:
        self._finish(writer, sums, (0, self.kernel.filters), (0, self.kernel.of_group[0]))

    def finish_units(self, writer: ConvolutionWriter, sums: Value, units: Range) -> None:
        f, tiling = writer.f, self.tiling
        with span(f, *units) as unit:
            group, column, part = self._place(f, unit)
            rows = rows_of(f, tiling, *self._row_panels(f, part))
            first = f.mul(column, tiling.width)
            columns: Range = (first, f.min(f.add(first, tiling.width), tiling.n))
            (low, high), channels = (columns, rows) if self.swapped else (rows, columns)
            of_group = f.mul(group, self.kernel.of_group[1])
            self._finish(writer, sums, (f.add(of_group, low), f.add(of_group, high)), channels)

    def _finish(self, writer: ConvolutionWriter, sums: Value, filters: Range, channels: Range) -> None:
        """Bring some weights into their place and hand them on."""
        if writer.result is not None and not self.in_place:
            strides = *self.strides, 1, 1
            at = writer.at(sums, (filters[0], strides[0]), (channels[0], strides[1]))
            least = min(self.tiling.heights()[-1], (self.tiling.n - 1) % self.tiling.width + 1)
            count = writer.f.sub(filters[1], filters[0])
            store_sums(writer, at, strides, filters[0], count, channels, least)
        finish_weights(writer, sums, filters, channels)


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
    (channels, filters), size = kernel.of_group, kernel.dtype.itemsize
    x, y = Side(0, channels, s_n, s_c, down * s_h), Side(1, filters, *kernel.y_strides[:3])
    whole = kernel.stride == (1, 1) and kernel.padding == (0, 0) and s_h == kernel.width

    fewest, most = target.sized(FEWEST_PIXELS), target.sized(MOST_PIXELS)

    def way(rows: Side, columns: Side) -> tuple[float, bool, Side, Side, Segments, Tiling]:
        segments = Segments.of(kernel, min(most, max(fewest, target.sized(SEGMENT_BYTES) // (rows.count * size))))
        pixels = segments.together * segments.rows * kernel.out_width
        tiling = choose_tiling(target, kernel.dtype, rows.count, columns.count, pixels)
        machine = target.machine
        turned = machine.moved_weight * channels * filters * (kernel.w_strides[rows is y] != 1)
        all_pixels = highest(kernel.batch) * kernel.out_height * kernel.out_width
        cycles = tiling_cost(tiling, pixels) / pixels + machine.packed_column * columns.count + turned / all_pixels
        return cycles, rows is x, rows, columns, segments, tiling

    ways = [way(y, x), way(x, y)] if whole else [way(y, x)]
    _, swapped, rows, columns, segments, tiling = min(ways, key=lambda found: found[0])
    pixels = segments.together * segments.rows * kernel.out_width
    planes = None if whole else Planes.of(kernel, segments, False)
    sum_bytes = aligned_bytes(kernel.filters * channels, kernel.dtype)
    wanted = wanted_chunks(seconds_of(kernel, target) / highest(segments.number), target)
    panels = kernel.groups * tiling.column_panels
    row_parts = max(1, min(-(-min(wanted, ENOUGH_UNITS) // panels), rows.count // target.sized(FEWEST_ROWS)))
    part_panels = -(-tiling.row_panels // row_parts)
    row_parts = -(-tiling.row_panels // part_panels)
    sharing = SumChunks.choose(kernel, target, segments.number, panels * row_parts, sum_bytes)
    in_place = kernel.store_raw and kernel.w_strides[0 if swapped else 1] == 1 and not sharing.part
    plane = 0 if planes is None else planes.pitch
    own = areas(kernel.dtype, planes=tiling.width * plane, panel=pixels * tiling.width)
    scratch = Scratch((Area("sums", 0 if in_place else sum_bytes, sharing.places),), own)
    return WeightProducts(kernel, swapped, rows, columns, segments, planes, tiling, row_parts, part_panels, in_place,
                          sharing, scratch)  # fmt: skip
