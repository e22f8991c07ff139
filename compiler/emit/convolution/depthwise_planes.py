"""Depthwise convolutions of images that lie in planes, as users hold them, all three directions.

A small plane, whose rows are a vector or two, is read where it lies, and ``small_plane_tile`` does all of it. Another
one is brought into a frame of zeros in the first cache, and ``plane_tile`` does all of it from there, along the pixels
of a row; results go where they belong. Large planes are done in blocks of rows. A few channels of an image are a unit
of work; by weights a unit is some channels of all images, and every weight is summed in the order of images and rows, a
lane at a time, so no sum depends on the number of threads.

The floor is that of memory: each image is read once and the result written once, for two multiply-adds a byte. Copying
into the frame and reading it again costs about as much as the arithmetic, half a cycle a pixel together.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.convolution.images import ConvolutionWriter, Image, is_depthwise, kind_of, seconds_of
from staticgrad.compiler.emit.convolution.plan import Range, Scratch, areas
from staticgrad.compiler.emit.convolution.plane_tile import PlaneTile, call_plane_tile, frame_rows, suits_tiles
from staticgrad.compiler.emit.convolution.prefetch import PrefetchRuns
from staticgrad.compiler.emit.convolution.schedule import ByUnits, Units
from staticgrad.compiler.emit.convolution.small_plane_tile import SmallPlaneTile, call_small_plane_tile, is_small
from staticgrad.compiler.emit.convolution.taps import Taps, forward_geometry, phase_weights, within
from staticgrad.compiler.emit.convolution.unstage import UnitResult
from staticgrad.compiler.emit.llvm import Function, Index, Value, vector
from staticgrad.compiler.emit.microkernel import fill_zero, span
from staticgrad.compiler.emit.nest.reduction import across_lanes
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.chunks import wanted_chunks
from staticgrad.compiler.plans.tiles import round_up, tile_lanes

FRAME_BYTES = 24 << 10  # of a block of rows, beside which the result passes through the first cache
UNIT_BYTES = 32 << 10  # of the result between two epilogues
UNIT_PLANES = 16  # that are a unit by weights, side by side in memory, where that leaves enough units
ENOUGH_UNITS = 16
TOGETHER_BYTES = 16 << 10  # of frames that are filled before they are read: a load that meets stores waits for them


@frozen
class _PlaneFrame:
    """The rows of one plane that a block of rows of the result needs; sizes are elements. Without rows it is none:
    planes are read where they lie."""

    image: Image
    step: int = 0  # rows of the frame from one block to the next
    deals: int = 1  # rows beside each other, to which the pixels of a row are dealt out
    pitch: int = 0  # of each of them
    margins: tuple[int, ...] = ()  # where each of them begins, so that whole vectors of the image are aligned
    rows: int = 0

    def place(self, column: int) -> int:
        """The index of a column of the framed image within its row."""
        beside = column % self.deals
        return beside * self.pitch + self.margins[beside] + column // self.deals

    @property
    def row(self) -> int:
        return self.deals * self.pitch

    @property
    def elements(self) -> int:
        return self.rows * self.row

    @property
    def together(self) -> int:
        """The number of planes that are framed at a time."""
        nbytes = self.elements * self.image.dtype.itemsize
        return max(1, TOGETHER_BYTES // nbytes) if nbytes else UNIT_PLANES

    @property
    def lookahead(self) -> int:
        """The distance, in planes, from a plane to that which is prefetched with it: the one that is framed after all
        planes of the frame."""
        return self.together if self.rows else 2

    def fill(self, writer: ConvolutionWriter, frame: Value, plane: Value, block: Index, ahead: int) -> None:
        """Bring the rows for a block into the frame, whose margins are zero."""
        f, image = writer.f, self.image
        (h0, h1), (w0, w1) = image.inside(0), image.inside(1)
        if w0 >= w1 or h0 >= h1:
            return
        top = f.sub(f.mul(block, self.step), image.offset[0])  # the row of the image on top of the frame
        low, high = within(f, top, 1, image.size[0], self.rows)
        if not isinstance(block, int):  # else they stay as they were cleared
            writer.clear_around(frame, self.row, self.rows, (low, high))
        row = writer.at(frame, (low, self.row))
        first = w0 + image.offset[1]
        to, other = (f.offset(row, self.place(at), writer.element) for at in (first, first + 1))
        source = writer.at(plane, (f.add(top, low), image.strides[2]), (w0, image.strides[3]))
        shape = image.strides[2], f.sub(high, low), w1 - w0
        frame_rows(f, writer.dtype, self.deals, to, other, self.row, source, *shape, ahead)

    @contextlib.contextmanager
    def each(
        self, writer: ConvolutionWriter, frames: Value, planes: Value, channels: Range, block: Index, ahead: int
    ) -> Iterator[tuple[Index, Value]]:
        """Channels of an image, and the frame or plane of each; ``ahead`` is how far behind the first those lie that
        come after all that are framed at a time."""
        f, (_, s_c, s_h, _) = writer.f, self.image.strides
        if self.rows == 0:
            with span(f, *channels) as channel:
                plane = writer.at(planes, (channel, s_c))
                _ask_for(writer, writer.at(plane, (ahead, 1)), self.image.size[0], s_h)
                yield channel, plane
            return
        with span(f, *channels, self.together) as first:
            some = first, f.min(f.add(first, self.together), channels[1])
            with span(f, *some) as channel:
                frame = writer.at(frames, (f.sub(channel, first), self.elements))
                self.fill(writer, frame, writer.at(planes, (channel, s_c)), block, ahead)
            with span(f, *some) as channel:
                yield channel, writer.at(frames, (f.sub(channel, first), self.elements))


def _ask_for(writer: ConvolutionWriter, at: Value, rows: int, row: int) -> None:
    """Prefetch some rows of a plane into the second cache."""
    PrefetchRuns(at, max(1, abs(rows * row) * writer.dtype.itemsize), near=False).ask(writer)


@frozen
class _PhaseTile:
    """A tile for the rows of one vertical phase of a block."""

    tile: PlaneTile | SmallPlaneTile
    origin: int  # row of the frame that row 0 reads first
    first: int  # row of the block

    def call(self, f: Function, x: Value, w: Value, y: Value) -> None:
        """Call the function for the tile."""
        if isinstance(self.tile, PlaneTile):
            call_plane_tile(f, self.tile, x, w, y)
        else:
            call_small_plane_tile(f, self.tile, x, w, y)


def _frame_of(image: Image, geometry: list[tuple[Taps, Taps]], lanes: int, block: int) -> _PlaneFrame:
    """The frame for ``block`` rows of the result."""
    deals, spacing = geometry[0][1].step, geometry[0][0].spacing
    step = geometry[0][0].step * (block // spacing)
    low, high = image.inside(1)
    first = low + image.offset[1]
    margins = [0] * deals
    for column in range(first, first + deals):
        margins[column % deals] = -(column // deals) % lanes
    pitch = (first + deals - 1) // deals + round_up(-(-(high - low) // deals), lanes)
    rows = 0
    for vertical, horizontal in geometry:
        reach = (horizontal.origin + (horizontal.number - 1) * horizontal.dilation) // deals
        pitch = max(pitch, reach + round_up(horizontal.count, lanes))
        count = min(vertical.count, -(-block // spacing))
        rows = max(rows, vertical.origin + (count - 1) * vertical.step + (vertical.number - 1) * vertical.dilation + 1)
    return _PlaneFrame(image, step, deals, round_up(pitch + max(margins), lanes), tuple(margins), max(rows, 1))


def _tiles(
    kernel: Convolution, geometry: list[tuple[Taps, Taps]], frame: _PlaneFrame, block: int, y_row: int, width: int
) -> tuple[_PhaseTile, ...]:
    """A tile for each vertical phase, with the horizontal ones as its phases."""
    found = []
    for vertical in dict.fromkeys(v for v, _ in geometry):
        beside = [(v, h) for v, h in geometry if v == vertical]
        offsets, weights = [], []
        for taps in beside:
            h, w = taps[1], phase_weights(kernel, taps)
            reads = [h.origin + j * h.dilation for j in range(h.number)]
            offsets.append(tuple(map(frame.place, reads)))
            weights.append((w.i, tuple(w.offset + j * w.j for j in range(h.number))))
        rows = min(vertical.count, -(-block // vertical.spacing))
        if rows == 0:
            continue
        kind = kind_of(kernel)
        tile = PlaneTile(kind, kernel.dtype, rows, width, y_row * vertical.spacing, frame.row, vertical.number,
                         vertical.step, vertical.dilation, tuple(offsets), tuple(weights) if kind == "forward" else ()
                         )  # fmt: skip
        found.append(_PhaseTile(tile, vertical.origin, vertical.first))
    return tuple(found)


def _planes_of(
    kernel: Convolution, target: Target, image: Image, geometry: list[tuple[Taps, Taps]], size: tuple[int, int],
    y_row: int,
) -> tuple[_PlaneFrame, tuple[_PhaseTile, ...], int]:  # fmt: skip
    """The form in which planes are read, the tiles, and the number of rows of the result in a block."""
    rows, columns = size
    weights = [] if kind_of(kernel) == "weights" else [phase_weights(kernel, taps) for taps in geometry]
    small = SmallPlaneTile(kind_of(kernel), kernel.dtype, image.size, image.strides[2], image.offset, columns, y_row,
                           tuple(geometry), tuple((w.offset, w.i, w.j) for w in weights))  # fmt: skip
    if is_small(small, target):
        return _PlaneFrame(image), (_PhaseTile(small, 0, 0),), rows
    lanes = tile_lanes(target, kernel.dtype)
    block = _block_rows(kernel, image, geometry, rows, lanes, target.sized(FRAME_BYTES)) if rows else 0
    frame = _frame_of(image, geometry, lanes, block)
    return frame, _tiles(kernel, geometry, frame, block, y_row, columns) if columns else (), block


def _block_rows(
    kernel: Convolution, image: Image, geometry: list[tuple[Taps, Taps]], rows: int, lanes: int, most_bytes: int
) -> int:
    """The rows of a block: those whose frame fits into ``most_bytes``, of sizes that divide ``rows``; all where
    only much smaller ones do."""
    spacing = geometry[0][0].spacing

    def fits(block: int) -> bool:
        return _frame_of(image, geometry, lanes, block).elements * kernel.dtype.itemsize <= most_bytes

    divisors = [block for block in range(rows, 0, -1) if rows % block == 0 and (block % spacing == 0 or block == rows)]
    most = next((block for block in divisors if fits(block)), rows)
    return most if most >= min(rows, 4 * spacing) else rows


@frozen
class DepthwisePlanes(ByUnits):
    """The plan of a kernel of any direction. Units are channels of an image, by weights of all images."""

    kernel: Convolution
    units: Units
    frame: _PlaneFrame
    tiles: tuple[_PhaseTile, ...]
    block: int  # rows of the result, by weights of y
    blocks: int
    result: UnitResult  # by weights the scratch block has all of them
    scratch: Scratch

    @property
    def by_weights(self) -> bool:
        return self.kernel.direction == "weight_grad"

    @property
    def way(self) -> str:
        blocks = f"{self.blocks} blocks of {self.block} rows, {len(self.tiles)} tiles"
        return f"{'weights by ' * self.by_weights}planes: {blocks}; {self.units.text('channels')}"

    def work(self, writer: ConvolutionWriter, chunk: Value | None) -> None:
        f, frames = writer.f, writer.area("frames")
        fill_zero(f, writer.dtype, frames, self.frame.together * self.frame.elements)
        with self.units.each(f, chunk) as (number, channels):
            if self.by_weights:
                self._add_up(writer, frames, channels)
            else:
                with span(f, 0, self.blocks) as block:
                    self._store(writer, frames, number, channels, block)

    def _store(self, writer: ConvolutionWriter, frames: Value, number: Index, channels: Range, block: Index) -> None:
        """Write a block of rows of some channels of an image."""
        f, image, (s_c, s_p, _) = writer.f, self.frame.image, self.result.written
        first = f.mul(block, self.block)
        base = self.result.place(writer, number, channels[0], first)
        planes = writer.at(writer.first, (number, image.strides[0]))
        ahead = image.strides[1] * self.frame.lookahead // self.blocks
        with self.frame.each(writer, frames, planes, channels, block, ahead) as (channel, x):
            w = writer.at(writer.second, (channel, self.kernel.w_strides[0]))
            y = writer.at(base, (channel, s_c), (first, s_p))
            for rows in self.tiles:
                from_ = f.offset(x, rows.origin * self.frame.row, writer.element)
                to = f.offset(y, rows.first * s_p, writer.element)
                rows.call(f, from_, w, to)
        self.result.finish(writer, number, channels, (first, f.add(first, self.block)))

    def _add_up(self, writer: ConvolutionWriter, frames: Value, channels: Range) -> None:
        """Add up the weights of some channels, each in a vector of sums, and store them."""
        f, (kh, kw), lanes = writer.f, self.kernel.kernel, tile_lanes(writer.f.target, writer.dtype)
        sums = writer.area("sums")
        to, (o, _, i, j) = self._weights(writer), self.result.strides if self.result.stored else self.result.block
        fill_zero(f, writer.dtype, sums, self.units.rows * kh * kw * lanes)
        if self.kernel.batch and self.blocks:
            with span(f, 0, self.kernel.batch) as number, span(f, 0, self.blocks) as block:
                self._add(writer, frames, sums, number, channels, block)
        with span(f, *channels) as channel:
            own_sums = writer.at(sums, (f.sub(channel, channels[0]), kh * kw * lanes))
            for number in range(kh * kw):
                total = f.load(vector(writer.element, lanes), f.offset(own_sums, number * lanes, writer.element))
                place = writer.at(to, (channel, o), (number // kw, i), (number % kw, j))
                f.store(across_lanes(f, "sum", writer.dtype, total), place)

    def _weights(self, writer: ConvolutionWriter) -> Value:
        """The address of the weights that the epilogue reads."""
        return writer.area("raw") if writer.result is None else writer.result

    def complete(self, writer: ConvolutionWriter) -> None:
        if self.by_weights:
            kh, kw = self.kernel.kernel
            writer.finish(self._weights(writer), [(0, self.kernel.channels), (0, 1), (0, kh), (0, kw)])

    def _add(
        self, writer: ConvolutionWriter, frames: Value, sums: Value, number: Index, channels: Range, block: Index
    ) -> None:
        """Add the products of one block of some channels of an image to their sums."""
        f, image, frame, (s_n, s_c, s_p, _) = writer.f, self.frame.image, self.frame, self.kernel.y_strides
        if self.blocks > 1:
            ahead, following = frame.step * image.strides[2], self.block * s_p
        elif self.units.rows > frame.together:  # what comes next is mostly the next channel
            ahead, following = image.strides[1] * frame.lookahead, s_c * frame.lookahead
        else:
            ahead, following = image.strides[0], s_n
        planes = writer.at(writer.first, (number, image.strides[0]))
        channel_sums = math.prod(self.kernel.kernel) * tile_lanes(f.target, writer.dtype)
        with frame.each(writer, frames, planes, channels, block, ahead) as (channel, x):
            y = writer.at(writer.second, (number, s_n), (channel, s_c))
            y = writer.at(y, (f.mul(block, self.block), s_p))
            _ask_for(writer, writer.at(y, (following, 1)), self.block, s_p)
            own_sums = writer.at(sums, (f.sub(channel, channels[0]), channel_sums))
            for rows in self.tiles:
                rows.call(f, x, own_sums, y)


def is_planes(kernel: Convolution, target: Target) -> bool:
    """True if a depthwise kernel is done plane by plane: its rows are contiguous, its filters and strides small."""
    if not is_depthwise(kernel) or not kernel.x_strides[3] == kernel.y_strides[3] == 1:
        return False
    if kernel.direction == "input_grad" and kernel.width < kernel.stride[1]:
        return False  # not all phases are there
    taps = kernel.kernel[0] * kernel.kernel[1]
    return kernel.stride[1] <= 2 and taps > 0 and suits_tiles(target, kind_of(kernel), taps)


def planes_plan(kernel: Convolution, target: Target) -> DepthwisePlanes:
    """The plan of a kernel without epilogue, which has no part in it."""
    image, geometry = forward_geometry(kernel)
    channels, taps, stored = kernel.channels, math.prod(kernel.kernel), kernel.store_raw
    by_weights = kernel.direction == "weight_grad"
    _, _, rows, columns = kernel.result_sizes
    y_row = kernel.result_strides[2] if stored else columns
    if by_weights:
        rows, columns, y_row = kernel.out_height, kernel.out_width, kernel.y_strides[2]
    frame, tiles, block = _planes_of(kernel, target, image, geometry, (rows, columns), y_row)
    if by_weights:
        raw = taps, 0, kernel.kernel[1], 1
        result = UnitResult(kernel.w_strides, raw, channels, kernel.kernel[1], stored, stored)
        some = max(frame.together, min(UNIT_PLANES, channels // ENOUGH_UNITS) if block == rows else 0)
        of_unit = areas(kernel.dtype, sums=some * taps * tile_lanes(target, kernel.dtype))
    else:
        result = UnitResult.of_planes(kernel, block)
        plane_bytes = rows * columns * kernel.dtype.itemsize
        some = max(1, min(channels, target.sized(UNIT_BYTES) // plane_bytes)) if block == rows else 1
        of_unit = areas(kernel.dtype, tile=result.elements(some))
    images, wanted = 1 if by_weights else kernel.batch, wanted_chunks(seconds_of(kernel, target), target)
    frames = areas(kernel.dtype, frames=frame.together * frame.elements)
    shared = areas(kernel.dtype, raw=channels * taps) if by_weights and not stored else ()
    units, scratch = Units.of(images, some, channels, wanted), Scratch(shared, (*frames, *of_unit))
    return DepthwisePlanes(kernel, units, frame, tiles, block, rows // block if block else 0, result, scratch)
