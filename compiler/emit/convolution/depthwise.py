"""Depthwise convolutions, all three directions: one channel and one filter a group, nothing to sum over but taps.

Images are read where they lie if their channels are contiguous, and copied channels last if not; none is framed, as
``row_tile`` leaves out the taps that lie outside. A row of the result is cut in tiles of a few pixels; for each
filter rows that lie outside are left out too. Weights are packed as ``[phase][i][j][channel]``.

By weights every chunk of the work (some rows of some images) adds up weights of its own, and these are added in their
order: how many chunks there are depends on the sizes alone, so no sum depends on the number of threads.
"""

from __future__ import annotations

import itertools

from staticgrad.base.extents import highest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.convolution.images import ConvolutionWriter, Image, WeightStrides, kind_of, seconds_of
from staticgrad.compiler.emit.convolution.plan import Area, Range, Scratch, areas
from staticgrad.compiler.emit.convolution.row_tile import RowTile, call_row_tile, most_pixels, vectors_at_once
from staticgrad.compiler.emit.convolution.schedule import ByUnits, SumChunks, SumPlan, Units
from staticgrad.compiler.emit.convolution.taps import Taps, forward_geometry, phase_rows, phase_weights, reached
from staticgrad.compiler.emit.convolution.unstage import UnitResult
from staticgrad.compiler.emit.convolution.weights_store import finish_weights, store_sums
from staticgrad.compiler.emit.llvm import Index, Value
from staticgrad.compiler.emit.microkernel import fill_zero, span
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.chunks import wanted_chunks
from staticgrad.compiler.plans.tiles import aligned_bytes, round_up, tile_lanes

ROW_BLOCK_BYTES = 64 << 10  # of the result between two epilogues, or of a unit of work
CHUNK_PIXELS = 256  # by weights at least: each chunk clears weights of its own, which are added in the end
WEIGHT_BYTES = 12 << 10  # of the weights of a block of channels, which stay in the first cache


@frozen
class _TileRun:
    """``count`` tiles of one kind beside each other, from pixel ``start`` of a phase on."""

    start: int
    count: int
    tile: RowTile


@frozen
class _DepthwisePhase:
    """The tiles, taps and weights of the pixels of a result with one remainder along each axis."""

    image: Image  # as the taps count its pixels
    places: Image  # as it lies where it is read
    taps: tuple[Taps, Taps]
    weights: WeightStrides
    segments: tuple[_TileRun, ...]
    block: int  # channels at a time: whole vectors of which the weights stay in the first cache
    packed: int  # where its packed weights start, in elements

    @staticmethod
    def of(kernel: Convolution, target: Target, image: Image, taps: tuple[Taps, Taps], packed: int) -> _DepthwisePhase:
        """The phase with these taps."""
        places = Image.unframed(kernel.dtype, kernel.channels, image.size, image.strides)
        segments = _segments(kernel, target, taps[1], image) if taps[0].count and taps[1].count else ()
        unit = tile_lanes(target, kernel.dtype) * max((run.tile.vectors for run in segments), default=1)
        weights = max(1, taps[0].number * taps[1].number * kernel.channels * kernel.dtype.itemsize)
        block = round_up(-(-kernel.channels // -(-weights // target.sized(WEIGHT_BYTES))), unit)
        return _DepthwisePhase(image, places, taps, phase_weights(kernel, taps), segments, block, packed)

    def pack(self, writer: ConvolutionWriter) -> None:
        """Pack the weights as ``[i][j][channel]``, into the area ``weights``."""
        channels, w, (kh, kw) = writer.kernel.channels, self.weights, (taps.number for taps in self.taps)
        to = writer.f.offset(writer.area("weights"), self.packed, writer.element)
        source = writer.f.offset(writer.second, w.offset, writer.element)
        writer.rearrange(to, source, (kh, kw * channels, w.i), (kw, channels, w.j), (channels, 1, w.out))

    def write(
        self, writer: ConvolutionWriter, pixels: Value, weights: Value, y: Value, strides: tuple[int, int], block: Range
    ) -> None:
        """Write all tiles of a block of rows; ``y`` is where row 0, pixel 0 of the result is, by weights of y, and
        ``strides`` are those of its rows and pixels."""
        f, (vertical, horizontal), image, places = writer.f, self.taps, self.image, self.places
        channels, x_row = writer.kernel.channels, vertical.dilation * places.row
        y = f.offset(y, vertical.first * strides[0] + horizontal.first * strides[1], writer.element)
        y_row, y_pixel = vertical.spacing * strides[0], horizontal.spacing * strides[1]
        rows = phase_rows(f, vertical, block)
        with span(f, 0, channels, self.block) as channel, span(f, *rows) as p:
            first = f.add(f.mul(p, vertical.step), vertical.origin - image.offset[0])
            low, high = reached(f, vertical, image, p)
            count = f.sub(high, low)
            top = writer.at(pixels, (first, places.row), (low, x_row), (channel, 1))
            w = writer.at(weights, (low, horizontal.number * channels), (channel, 1))
            line = writer.at(y, (p, y_row), (channel, 1))
            for run in self.segments:
                with span(f, 0, run.count) as number:
                    q = f.add(f.mul(number, run.tile.pixels), run.start)
                    column = f.add(f.mul(q, horizontal.step), horizontal.origin - image.offset[1])
                    x, at = writer.at(top, (column, places.pixel)), writer.at(line, (q, y_pixel))
                    some = f.min(self.block, f.sub(channels, channel))
                    operands = (x, x_row, places.pixel, w, channels, at, y_pixel, count, some)
                    call_row_tile(f, run.tile, *operands)


def _segments(kernel: Convolution, target: Target, taps: Taps, image: Image) -> tuple[_TileRun, ...]:
    """Tiles of balanced widths over the pixels of a row."""
    kind = kind_of(kernel)
    tiles = -(-taps.count // most_pixels(target, taps.number))
    most = -(-taps.count // tiles)
    tall = taps.count - tiles * (most - 1)
    lanes, channels = tile_lanes(target, kernel.dtype), kernel.channels
    vectors = vectors_at_once(target, kind, most, taps.number, channels // lanes)
    ragged = channels % (lanes * vectors) != 0

    def reach(t: int) -> tuple[int, int]:
        base = taps.origin - image.offset[1] + t * taps.step
        inside = [u for u in range(taps.number) if 0 <= base + u * taps.dilation < image.size[1]]
        return (inside[0], inside[-1] + 1) if inside else (0, 0)

    def tile(start: int, size: int) -> RowTile:
        pixels = tuple(reach(t) for t in range(start, start + size))
        return RowTile(kind, kernel.dtype, taps.number, taps.step, taps.dilation, pixels, vectors, ragged)

    sizes = [most] * tall + [most - 1] * (tiles - tall)
    found = [(start, tile(start, size)) for start, size in zip(itertools.accumulate(sizes, initial=0), sizes)]
    grouped = (list(some) for _, some in itertools.groupby(found, key=lambda entry: entry[1]))
    return tuple(_TileRun(some[0][0], len(some), some[0][1]) for some in grouped)


def _units(kernel: Convolution, target: Target, rows: int, columns: int, spacing: int, whole: bool) -> Units:
    """``whole`` images are one unit each, as they are copied by who works on them."""
    row_bytes = columns * kernel.channels * kernel.dtype.itemsize
    most = rows if whole else max(1, target.sized(ROW_BLOCK_BYTES) // max(1, row_bytes))
    wanted, batch = wanted_chunks(seconds_of(kernel, target), target), highest(kernel.batch)
    if kernel.direction == "weight_grad":
        wanted = min(wanted, batch * rows * columns // target.sized(CHUNK_PIXELS))
    if wanted > 1 and not whole:
        most = min(most, -(-rows * max(1, batch) // wanted))
    block = max(spacing, round_up(-(-rows // -(-rows // most)), spacing))
    return Units.of(kernel.batch, block, rows, wanted)


# -- forward and by data ----------------------------------------------------------------------------------------


@frozen
class Depthwise(ByUnits):
    """The plan of a kernel forward or by data."""

    phases: tuple[_DepthwisePhase, ...]
    result: UnitResult
    units: Units
    scratch: Scratch

    @property
    def way(self) -> str:
        return f"channels as lanes: {len(self.phases)} phases{self.result.text}; {self.units.text()}"

    def prepare(self, writer: ConvolutionWriter) -> None:
        for phase in self.phases:
            phase.pack(writer)

    def work(self, writer: ConvolutionWriter, chunk: Value | None) -> None:
        f, packed, copy = writer.f, writer.area("weights"), writer.area("image")
        with self.units.each(f, chunk) as (number, rows):
            pixels = writer.frame(self.phases[0].places, writer.first, number, copy)
            to = self.result.place(writer, number, 0, rows[0])
            for phase in self.phases:
                weights = f.offset(packed, phase.packed, writer.element)
                phase.write(writer, pixels, weights, to, self.result.written[1:], rows)
            self.result.finish(writer, number, (0, self.result.outputs), rows)


def depthwise_plan(kernel: Convolution, target: Target) -> Depthwise:
    """The plan of a kernel without epilogue, which has no part in it."""
    image, geometry = forward_geometry(kernel)
    _, channels, rows, columns = kernel.result_sizes
    phases: list[_DepthwisePhase] = []
    packed = 0
    for taps in geometry:
        phases.append(_DepthwisePhase.of(kernel, target, image, taps, packed))
        packed += taps[0].number * taps[1].number * channels
    places = phases[0].places
    units = _units(kernel, target, rows, columns, geometry[0][0].spacing, not places.in_place)
    result = UnitResult.of_pixels(kernel, round_up(channels, tile_lanes(target, kernel.dtype)))
    own = areas(kernel.dtype, image=places.elements, tile=result.elements(min(units.rows, rows)))
    return Depthwise(tuple(phases), result, units, Scratch(areas(kernel.dtype, weights=packed), own))


# -- by weights -------------------------------------------------------------------------------------------------


@frozen
class DepthwiseWeights(SumPlan):
    """The plan of the transpose by weights."""

    phase: _DepthwisePhase
    y_places: Image
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
        f, x_copy, y_copy, places = writer.f, writer.area("x"), writer.area("y"), self.y_places
        fill_zero(f, writer.dtype, sums, self.part)
        if self.units.count == 0:
            return
        with span(f, *segments) as unit:
            number, rows = self.units.at(f, unit)
            x = writer.frame(self.phase.places, writer.first, number, x_copy)
            y = writer.frame(places, writer.second, number, y_copy)
            self.phase.write(writer, x, sums, y, (places.row, places.pixel), rows)

    def finish(self, writer: ConvolutionWriter, sums: Value) -> None:
        if writer.result is not None:
            store_sums(writer, sums, self.raw_strides(writer.kernel), 0, writer.kernel.filters)
        finish_weights(writer, sums)


def depthwise_weights_plan(kernel: Convolution, target: Target) -> DepthwiseWeights:
    """The plan of a kernel without epilogue, which has no part in it."""
    image, (taps,) = forward_geometry(kernel)
    rows, columns = size = kernel.out_height, kernel.out_width
    phase = _DepthwisePhase.of(kernel, target, image, taps, 0)
    y_places = Image.unframed(kernel.dtype, kernel.channels, size, kernel.y_strides)
    whole = not (phase.places.in_place and y_places.in_place)
    units = Units(0, 1, 1, None) if 0 in size else _units(kernel, target, rows, columns, 1, whole)
    part = kernel.kernel[0] * kernel.kernel[1] * kernel.channels
    sharing = SumChunks(units.count, 1, None, units.share or 0)
    sums = Area("sums", aligned_bytes(part, kernel.dtype), sharing.places)
    own = areas(kernel.dtype, x=phase.places.elements, y=y_places.elements)
    return DepthwiseWeights(phase, y_places, units, part, sharing, Scratch((sums,), own))
