"""Depthwise convolutions, all three directions: one channel and one filter a group, nothing to sum over but taps.

Images are read where they lie if their channels are contiguous, and copied channels last if not; none is framed, as
``row_tile`` leaves out the taps that lie outside. A row of the result is cut in tiles of a few pixels; for each
filter rows that lie outside are left out too. Weights are packed as ``[phase][i][j][channel]``.

By weights every chunk of the work (some rows of some images) adds up weights of its own, and these are added in their
order: how many chunks there are depends on the sizes alone, so no sum depends on the number of threads.
"""

from __future__ import annotations

import functools
import itertools
from typing import Literal

from staticgrad.compiler.emit.convolution.images import ConvolutionWriter, Image, WeightStrides, seconds_of
from staticgrad.compiler.emit.convolution.packing import pack_taps
from staticgrad.compiler.emit.convolution.plan import Area, Range, Scratch, areas
from staticgrad.compiler.emit.convolution.row_tile import RowTile, most_pixels, row_tile, vectors_at_once
from staticgrad.compiler.emit.convolution.schedule import ByUnits, SumChunks, SumPlan, Units
from staticgrad.compiler.emit.convolution.taps import Taps, forward_geometry, phase_rows, phase_weights
from staticgrad.compiler.emit.convolution.unstage import ResultRows
from staticgrad.compiler.emit.convolution.weights_store import finish_weights, store_sums
from staticgrad.compiler.emit.llvm import Function, Index, Value, integer
from staticgrad.compiler.emit.microkernel import Matrix, aligned_bytes, fill_zero, round_up, span, tile_lanes
from staticgrad.compiler.emit.parallel import divide, wanted_chunks
from staticgrad.compiler.emit.target import Target
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.frozen import frozen

ROW_BLOCK_BYTES = 64 << 10  # of the result between two epilogues, or of a unit of work
CHUNK_PIXELS = 256  # by weights at least: each chunk clears weights of its own, which are added in the end
WEIGHT_BYTES = 12 << 10  # of the weights of a block of channels, which stay in the first cache
Kind = Literal["forward", "weights"]


@frozen
class _TileRun:
    """``count`` tiles of one kind beside each other, from pixel ``start`` of a phase on."""

    start: int
    count: int
    tile: RowTile


@frozen
class _DepthwisePhase:
    taps: tuple[Taps, Taps]
    weights: WeightStrides
    segments: tuple[_TileRun, ...]
    packed: int  # where its packed weights start, in elements
    block: int  # channels at a time


def _units(kernel: Convolution, target: Target, rows: int, columns: int, spacing: int, whole: bool) -> Units:
    """``whole`` images are one unit each, as they are copied by who works on them."""
    row_bytes = columns * kernel.channels * kernel.dtype.itemsize
    most = rows if whole else max(1, target.sized(ROW_BLOCK_BYTES) // max(1, row_bytes))
    wanted = wanted_chunks(seconds_of(kernel, target), target)
    if kernel.direction == "weight_grad":
        wanted = min(wanted, kernel.batch * rows * columns // target.sized(CHUNK_PIXELS))
    if wanted > 1 and not whole:
        most = min(most, -(-rows * max(1, kernel.batch) // wanted))
    block = max(spacing, round_up(-(-rows // -(-rows // most)), spacing))
    return Units.of(kernel.batch, block, rows, wanted)


def _segments(
    kernel: Convolution, target: Target, kind: Kind, taps: Taps, width: int, offset: int
) -> tuple[_TileRun, ...]:
    """Tiles of balanced widths over the pixels of a row, whose taps fall into ``width`` pixels from ``-offset`` on."""
    tiles = -(-taps.count // most_pixels(target, taps.number))
    most = -(-taps.count // tiles)
    tall = taps.count - tiles * (most - 1)
    lanes, channels = tile_lanes(target, kernel.dtype), kernel.channels
    vectors = vectors_at_once(target, kind, most, taps.number, channels // lanes)

    def reach(t: int) -> tuple[int, int]:
        base = taps.origin - offset + t * taps.step
        inside = [u for u in range(taps.number) if 0 <= base + u * taps.dilation < width]
        return (inside[0], inside[-1] + 1) if inside else (0, 0)

    sizes, start, found = [most] * tall + [most - 1] * (tiles - tall), 0, []
    for size in sizes:
        pixels = tuple(reach(t) for t in range(start, start + size))
        ragged = channels % (lanes * vectors) != 0
        tile = RowTile(kind, kernel.dtype, taps.number, taps.step, taps.dilation, pixels, vectors, ragged)
        found.append((start, tile))
        start += size
    grouped = (list(some) for _, some in itertools.groupby(found, key=lambda entry: entry[1]))
    return tuple(_TileRun(some[0][0], len(some), some[0][1]) for some in grouped)


def _write_rows(
    writer: ConvolutionWriter, image: Image, phase: _DepthwisePhase, pixels: Value, places: Image,
    weights: Value, y: Value,
    y_row: int, y_pixel: int, rows: Range,
) -> None:  # fmt: skip
    """All tiles of some rows of a phase; ``y`` is row 0, pixel 0 of the phase."""
    f, (vertical, horizontal) = writer.f, phase.taps
    channels, dilation = writer.kernel.channels, vertical.dilation
    with span(f, 0, channels, phase.block) as channel, span(f, *rows) as p:
        first = f.add(f.mul(p, vertical.step), vertical.origin - image.offset[0])
        low, count = _reached_rows(f, vertical, first, image)
        top = writer.at(pixels, (first, places.row), (low, dilation * places.row), (channel, 1))
        w = writer.at(weights, (low, horizontal.number * channels), (channel, 1))
        line = writer.at(y, (p, y_row), (channel, 1))
        for segment in phase.segments:
            name = row_tile(f.module, segment.tile)
            with span(f, 0, segment.count) as number:
                q = f.add(f.mul(number, segment.tile.pixels), segment.start)
                column = f.add(f.mul(q, horizontal.step), horizontal.origin - image.offset[1])
                x = writer.at(top, (column, places.pixel))
                at = writer.at(line, (q, y_pixel))
                row, pixel, tap = (integer(s) for s in (dilation * places.row, places.pixel, channels))
                some = f.min(phase.block, f.sub(channels, channel))
                f.call(name, "void", x, row, pixel, w, tap, at, *(f.index(i) for i in (y_pixel, count, some)))


def _channel_block(kernel: Convolution, target: Target, taps: tuple[Taps, Taps], segments: tuple[_TileRun, ...]) -> int:
    """The number of channels to take at a time: whole vectors of which the weights stay in the first cache."""
    unit = tile_lanes(target, kernel.dtype) * max((segment.tile.vectors for segment in segments), default=1)
    weights = max(1, taps[0].number * taps[1].number * kernel.channels * kernel.dtype.itemsize)
    return round_up(-(-kernel.channels // -(-weights // target.sized(WEIGHT_BYTES))), unit)


def _reached_rows(f: Function, taps: Taps, first: Index, image: Image) -> Range:
    """The first filter row that lies inside the image where row 0 is at ``first``, and how many do (maybe below 1)."""
    height, last = image.size[0], (taps.number - 1) * taps.dilation
    start = taps.origin - image.offset[0]
    if start >= 0 and start + (taps.count - 1) * taps.step + last < height:
        return 0, taps.number

    def rows_before(limit: int) -> Index:
        """The number of filter rows above image row ``limit``."""
        room = f.sub(limit, first)
        room = f.sub(room, f.min(room, 0))
        if taps.dilation > 1:
            room = divide(f, f.add(room, taps.dilation - 1), taps.dilation)[0]
        return f.min(room, taps.number)

    low = rows_before(0)
    return low, f.sub(rows_before(height), low)


# -- forward and by data ----------------------------------------------------------------------------------------


@frozen
class Depthwise(ByUnits):
    """Forward or by data."""

    image: Image
    places: Image
    phases: tuple[_DepthwisePhase, ...]
    result: ResultRows
    units: Units
    scratch: Scratch

    @property
    def way(self) -> str:
        return f"channels as lanes: {len(self.phases)} phases{self.result.text}; {self.units.text()}"

    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        """The strides of the scratch block in which the epilogue finds the result."""
        return self.result.raw_strides

    def prepare(self, writer: ConvolutionWriter) -> None:
        for phase in self.phases:
            _pack_weights(writer, phase, writer.f.offset(writer.area("weights"), phase.packed, writer.element))

    def work(self, writer: ConvolutionWriter, chunk: Value | None) -> None:
        f, packed = writer.f, writer.area("weights")
        copy, tile = writer.area("image"), writer.area("tile")
        with self.units.each(f, chunk) as (number, rows):
            pixels = writer.frame(self.places, writer.first, number, copy)
            for phase in self.phases:
                weights = f.offset(packed, phase.packed, writer.element)
                self._phase(writer, phase, pixels, weights, tile, number, rows)
            self.result.finish(writer, tile, number, rows)

    def _phase(
        self, writer: ConvolutionWriter, phase: _DepthwisePhase, pixels: Value, weights: Value, tile: Value,
        number: Index,
        block: Range,
    ) -> None:  # fmt: skip
        f, (vertical, horizontal) = writer.f, phase.taps
        y, y_row, y_pixel = self.result.place(writer, tile, number, block[0])
        y = f.offset(y, vertical.first * y_row + horizontal.first * y_pixel, writer.element)
        rows = phase_rows(f, vertical, block)
        _write_rows(writer, self.image, phase, pixels, self.places, weights, y, vertical.spacing * y_row,
                    horizontal.spacing * y_pixel, rows)  # fmt: skip


def _pack_weights(writer: ConvolutionWriter, phase: _DepthwisePhase, to: Value) -> None:
    """The weights of a phase as ``[i][j][channel]``."""
    f, channels, weights = writer.f, writer.kernel.channels, phase.weights
    kh, kw = (taps.number for taps in phase.taps)
    if kh * kw == 0:
        return
    source = f.offset(writer.second, weights.offset, writer.element)
    taps = weights.taps((kh, kw))
    if taps is not None:
        pack_taps(writer, to, channels, source, taps, weights.out, kh * kw, channels)
        return
    with span(f, 0, kh) as i, span(f, 0, kw) as j:
        target = Matrix(writer.at(to, (f.add(f.mul(i, kw), j), channels)), channels, 1)
        origin = writer.at(source, (i, weights.i), (j, weights.j))
        writer.copy(target, Matrix(origin, 0, weights.out), 1, channels)


@functools.lru_cache(maxsize=4096)
def depthwise_plan(kernel: Convolution, target: Target) -> Depthwise:
    """The plan of a kernel without epilogue, which has no part in it."""
    image, geometry = forward_geometry(kernel)
    back, channels = kernel.direction == "input_grad", kernel.channels
    rows, columns = (kernel.height, kernel.width) if back else (kernel.out_height, kernel.out_width)
    result = kernel.x_strides if back else kernel.y_strides
    places = Image.unframed(kernel.dtype, channels, image.size, image.strides)
    phases, packed = [], 0
    for vertical, horizontal in geometry:
        segments = _segments(kernel, target, "forward", horizontal, image.size[1], image.offset[1])
        taps = (vertical, horizontal)
        block = _channel_block(kernel, target, taps, segments)
        phases.append(_DepthwisePhase(taps, phase_weights(kernel, taps), segments, packed, block))
        packed += vertical.number * horizontal.number * channels
    units = _units(kernel, target, rows, columns, geometry[0][0].spacing, not places.in_place)
    tile_pixel = round_up(channels, tile_lanes(target, kernel.dtype))
    block_rows = ResultRows(result, channels, columns, kernel.store_raw, tile_pixel, together=False)
    tile = block_rows.elements(min(units.rows, rows))
    return Depthwise(
        image=image,
        places=places,
        phases=tuple(phases),
        result=block_rows,
        units=units,
        scratch=Scratch(areas(kernel.dtype, weights=packed), areas(kernel.dtype, image=places.elements, tile=tile)),
    )


# -- by weights -------------------------------------------------------------------------------------------------


@frozen
class DepthwiseWeights(SumPlan):
    """The plan of the transpose by weights."""

    image: Image
    x_places: Image
    y_places: Image
    phase: _DepthwisePhase
    units: Units
    part: int  # elements of the weights that one chunk adds up
    sharing: SumChunks
    scratch: Scratch

    @property
    def way(self) -> str:
        return f"weights, channels as lanes; {self.units.text()}"

    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        """The strides of the scratch result, ``[i][j][channel]``."""
        return 1, self.part, kernel.kernel[1] * kernel.channels, kernel.channels

    def add(self, writer: ConvolutionWriter, sums: Value, segments: Range, unit: Index) -> None:
        f, x_copy, y_copy = writer.f, writer.area("x"), writer.area("y")
        fill_zero(f, writer.dtype, sums, self.part)
        if self.units.count == 0:
            return
        with span(f, *segments) as unit:
            number, rows = self.units.at(f, unit)
            x = writer.frame(self.x_places, writer.first, number, x_copy)
            y = writer.frame(self.y_places, writer.second, number, y_copy)
            _write_rows(writer, self.image, self.phase, x, self.x_places, sums, y, self.y_places.row,
                        self.y_places.pixel, rows)  # fmt: skip

    def finish(self, writer: ConvolutionWriter, sums: Value) -> None:
        if writer.result is not None:
            store_sums(writer, sums, self.raw_strides(writer.kernel), 0, writer.kernel.filters)
        finish_weights(writer, sums)


@functools.lru_cache(maxsize=4096)
def depthwise_weights_plan(kernel: Convolution, target: Target) -> DepthwiseWeights:
    """The plan of a kernel without epilogue, which has no part in it."""
    image, (taps,) = forward_geometry(kernel)
    channels = kernel.channels
    x_places = Image.unframed(kernel.dtype, channels, image.size, kernel.x_strides)
    y_places = Image.unframed(kernel.dtype, channels, (kernel.out_height, kernel.out_width), kernel.y_strides)
    whole = not (x_places.in_place and y_places.in_place)
    rows, columns = kernel.out_height, kernel.out_width
    empty = rows == 0 or columns == 0
    segments = () if empty else _segments(kernel, target, "weights", taps[1], image.size[1], image.offset[1])
    units = Units(0, 1, 1, None) if empty else _units(kernel, target, rows, columns, 1, whole)
    part = kernel.kernel[0] * kernel.kernel[1] * channels
    sharing = SumChunks(units.count, 1, None, units.share or 0)
    sums = Area("sums", aligned_bytes(part, kernel.dtype), max(1, sharing.parts))
    return DepthwiseWeights(
        image=image,
        x_places=x_places,
        y_places=y_places,
        phase=_DepthwisePhase(
            taps, phase_weights(kernel, taps), segments, 0, _channel_block(kernel, target, taps, segments)
        ),
        units=units,
        part=part,
        sharing=sharing,
        scratch=Scratch((sums,), areas(kernel.dtype, x=x_places.elements, y=y_places.elements)),
    )
