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
import functools
from collections.abc import Iterator

from staticgrad.compiler.emit.convolution.images import ConvolutionWriter, Image, is_depthwise, seconds_of
from staticgrad.compiler.emit.convolution.plan import Range, Scratch, areas
from staticgrad.compiler.emit.convolution.plane_tile import Kind, PlaneTile, frame_rows, plane_tile, suits_tiles
from staticgrad.compiler.emit.convolution.prefetch import PrefetchRuns
from staticgrad.compiler.emit.convolution.schedule import ByUnits, Units
from staticgrad.compiler.emit.convolution.small_plane_tile import SmallPlaneTile, is_small, small_plane_tile
from staticgrad.compiler.emit.convolution.taps import Taps, forward_geometry, phase_weights
from staticgrad.compiler.emit.llvm import Function, Index, IRModule, Value, integer, vector
from staticgrad.compiler.emit.microkernel import fill_zero, round_up, span, tile_lanes
from staticgrad.compiler.emit.nest.reduction import across_lanes
from staticgrad.compiler.emit.parallel import wanted_chunks
from staticgrad.compiler.emit.target import Target
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.frozen import frozen

FRAME_BYTES = 24 << 10  # of a block of rows, beside which the result passes through the first cache
UNIT_BYTES = 32 << 10  # of the result between two epilogues
UNIT_PLANES = 16  # that are a unit by weights, side by side in memory, where that leaves enough units
ENOUGH_UNITS = 16
TOGETHER_BYTES = 16 << 10  # of frames that are filled before they are read: a load that meets stores waits for them


@frozen
class _PlaneFrame:
    """The rows of one plane that a block of rows of the result needs; sizes are elements."""

    image: Image
    step: int  # rows of the frame from one block to the next
    deals: int  # rows beside each other, to which the pixels of a row are dealt out
    pitch: int  # of each of them
    margins: tuple[int, ...]  # where each of them begins, so that whole vectors of the image are aligned
    rows: int

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
        return max(1, TOGETHER_BYTES // (self.elements * self.image.dtype.itemsize))

    @property
    def lookahead(self) -> int:
        """The distance, in planes, from a plane to that which is framed after all planes of the frame."""
        return self.together

    def fill(self, writer: ConvolutionWriter, frame: Value, plane: Value, block: Index, ahead: int) -> None:
        """Bring the rows for a block into the frame, whose margins are zero."""
        f, image = writer.f, self.image
        (h0, h1), (w0, w1) = image.inside(0), image.inside(1)
        if w0 >= w1 or h0 >= h1:
            return
        top = f.sub(f.mul(block, self.step), image.offset[0])  # the row of the image on top of the frame
        low = _clamped(f, f.sub(h0, top), self.rows)
        high = _clamped(f, f.sub(h1, top), self.rows)
        if not isinstance(block, int):  # else they stay as they were cleared
            fill_zero(f, writer.dtype, frame, f.mul(low, self.row))
            below = writer.at(frame, (high, self.row))
            fill_zero(f, writer.dtype, below, f.mul(f.sub(self.rows, high), self.row))
        row = writer.at(frame, (low, self.row))
        first = w0 + image.offset[1]
        to, other = (f.offset(row, self.place(at), writer.element) for at in (first, first + 1))
        source = writer.at(plane, (f.add(top, low), image.strides[2]), (w0, image.strides[3]))
        name = frame_rows(f.module, writer.dtype, self.deals)
        integers = (f.index(i) for i in (image.strides[2], f.sub(high, low), w1 - w0))
        source_row, rows, columns = integers
        f.call(name, "void", to, other, integer(self.row), source, source_row, rows, columns, integer(ahead))

    @contextlib.contextmanager
    def each(
        self,
        writer: ConvolutionWriter,
        frames: Value,
        planes: Value,
        channels: Range,
        block: Index,
        ahead: int,
    ) -> Iterator[tuple[Index, Value]]:
        """Channels of an image, and the frame of each; ``ahead`` is how far behind the first those lie that come
        after all that are framed at a time."""
        f = writer.f
        with span(f, *channels, self.together) as first:
            some = first, f.min(f.add(first, self.together), channels[1])
            with span(f, *some) as channel:
                frame = writer.at(frames, (f.sub(channel, first), self.elements))
                self.fill(writer, frame, writer.at(planes, (channel, self.image.strides[1])), block, ahead)
            with span(f, *some) as channel:
                yield channel, writer.at(frames, (f.sub(channel, first), self.elements))


def _clamped(f: Function, index: Index, limit: int) -> Index:
    """``index``, at least 0 and at most ``limit``."""
    index = f.sub(index, f.min(index, 0))
    return f.min(index, limit)


def _ask_for(writer: ConvolutionWriter, at: Value, rows: int, row: int) -> None:
    """Prefetch some rows of a plane into the second cache."""
    PrefetchRuns(at, max(1, abs(rows * row) * writer.dtype.itemsize), near=False).ask(writer)


@frozen
class _Plain:
    """Planes that are read where they lie: a frame that is none."""

    image: Image
    together: int = UNIT_PLANES
    lookahead: int = 2  # so many planes behind one lies that which is prefetched
    step: int = 0
    row: int = 0
    elements: int = 0

    @contextlib.contextmanager
    def each(
        self,
        writer: ConvolutionWriter,
        frames: Value,
        planes: Value,
        channels: Range,
        block: Index,
        ahead: int,
    ) -> Iterator[tuple[Index, Value]]:
        """Channels of an image, and the plane of each; the one ``ahead`` elements behind it is prefetched."""
        with span(writer.f, *channels) as channel:
            plane = writer.at(planes, (channel, self.image.strides[1]))
            _ask_for(writer, writer.at(plane, (ahead, 1)), self.image.size[0], self.image.strides[2])
            yield channel, plane


@frozen
class _PhaseTile:
    """A tile for the rows of one vertical phase of a block."""

    tile: PlaneTile | SmallPlaneTile
    origin: int  # row of the frame that row 0 reads first
    first: int  # row of the block

    def function(self, module: IRModule) -> str:
        tile = self.tile
        return small_plane_tile(module, tile) if isinstance(tile, SmallPlaneTile) else plane_tile(module, tile)


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
        kind: Kind = "weights" if kernel.direction == "weight_grad" else "forward"
        tile = PlaneTile(kind, kernel.dtype, rows, width, y_row * vertical.spacing, frame.row, vertical.number,
                         vertical.step, vertical.dilation, tuple(offsets), tuple(weights) if kind == "forward" else ()
                         )  # fmt: skip
        found.append(_PhaseTile(tile, vertical.origin, vertical.first))
    return tuple(found)


def _small_tile(
    kernel: Convolution, target: Target, image: Image, geometry: list[tuple[Taps, Taps]], columns: int, y_row: int
) -> SmallPlaneTile | None:
    """The tile for a whole plane of the result, if planes are small."""
    kind: Kind = "weights" if kernel.direction == "weight_grad" else "forward"
    weights = [phase_weights(kernel, taps) for taps in geometry] if kind == "forward" else []
    tile = SmallPlaneTile(kind, kernel.dtype, image.size, image.strides[2], image.offset, columns, y_row,
                          tuple(geometry), tuple((w.offset, w.i, w.j) for w in weights))  # fmt: skip
    return tile if is_small(tile, target) else None


def _planes_of(
    kernel: Convolution, target: Target, image: Image, geometry: list[tuple[Taps, Taps]], size: tuple[int, int],
    y_row: int,
) -> tuple[_PlaneFrame | _Plain, tuple[_PhaseTile, ...], int]:  # fmt: skip
    """The form in which planes are read, the tiles, and the number of rows of the result in a block."""
    rows, columns = size
    small = _small_tile(kernel, target, image, geometry, columns, y_row)
    if small is not None:
        return _Plain(image), (_PhaseTile(small, 0, 0),), rows
    lanes = tile_lanes(target, kernel.dtype)
    block = _block_rows(kernel, image, geometry, rows, lanes, target.sized(FRAME_BYTES)) if rows else 0
    frame = _frame_of(image, geometry, lanes, block)
    return frame, _tiles(kernel, geometry, frame, block, y_row, columns) if columns else (), block


def _block_rows(
    kernel: Convolution, image: Image, geometry: list[tuple[Taps, Taps]], rows: int, lanes: int, most_bytes: int
) -> int:
    """The rows of a block: as many as ``most_bytes`` hold of their frame, of sizes that divide ``rows``; all where
    only much smaller ones do."""
    spacing = geometry[0][0].spacing

    def fits(block: int) -> bool:
        return _frame_of(image, geometry, lanes, block).elements * kernel.dtype.itemsize <= most_bytes

    divisors = [block for block in range(rows, 0, -1) if rows % block == 0 and (block % spacing == 0 or block == rows)]
    most = next((block for block in divisors if fits(block)), rows)
    return most if most >= min(rows, 4 * spacing) else rows


@frozen
class DepthwisePlanes(ByUnits):
    """Forward or by data. Units are channels of an image."""

    units: Units
    frame: _PlaneFrame | _Plain
    tiles: tuple[_PhaseTile, ...]
    block: int  # rows of the result
    blocks: int
    columns: int
    result: tuple[int, int, int, int]
    filter: int  # from channel to channel of the weights
    scratch: Scratch

    @property
    def way(self) -> str:
        return (
            f"planes: {self.blocks} blocks of {self.block} rows, {len(self.tiles)} tiles; {self.units.text('channels')}"
        )

    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        """The strides of the scratch block in which the epilogue finds the result."""
        return 0, self.block * self.columns, self.columns, 1

    def work(self, writer: ConvolutionWriter, chunk: Value | None) -> None:
        f = writer.f
        frame, scratch = writer.area("frames"), writer.area("tile")
        fill_zero(f, writer.dtype, frame, self.frame.together * self.frame.elements)
        with self.units.each(f, chunk) as (number, channels), span(f, 0, self.blocks) as block:
            first = f.mul(block, self.block)
            strides = (0, self.block * self.columns, self.columns, 1)
            if writer.result is not None:
                base = raw = writer.at(writer.result, (number, self.result[0]))
                strides = self.result
            else:
                base = raw = writer.at(scratch, (channels[0], -strides[1]), (first, -strides[2]))
            planes = writer.at(writer.first, (number, self.frame.image.strides[0]))
            ahead = self.frame.image.strides[1] * self.frame.lookahead // self.blocks
            with self.frame.each(writer, frame, planes, channels, block, ahead) as (channel, x):
                w = writer.at(writer.second, (channel, self.filter))
                y = writer.at(base, (channel, strides[1]), (first, strides[2]))
                for rows in self.tiles:
                    from_ = f.offset(x, rows.origin * self.frame.row, writer.element)
                    to = f.offset(y, rows.first * strides[2], writer.element)
                    f.call(rows.function(f.module), "void", from_, w, to)
            if writer.result is not None:
                raw = writer.result
            ranges = [(number, f.add(number, 1)), channels, (first, f.add(first, self.block)), (0, self.columns)]
            writer.finish(raw, ranges)


@frozen
class DepthwisePlanesWeights(ByUnits):
    """The plan of the transpose by weights. Units are channels of all images."""

    units: Units
    images: int
    frame: _PlaneFrame | _Plain
    tiles: tuple[_PhaseTile, ...]
    block: int
    blocks: int
    given: tuple[int, int, int, int]  # strides of y
    taps: tuple[int, int]
    result: tuple[int, int, int]  # strides o, i, j
    sums: int  # elements of the sums of a channel, a vector for each tap
    scratch: Scratch

    @property
    def way(self) -> str:
        blocks = f"{self.blocks} blocks of {self.block} rows, {len(self.tiles)} tiles"
        return f"weights by planes: {blocks}; {self.units.text('channels')}"

    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        """The strides of the scratch result."""
        return self.taps[0] * self.taps[1], 0, self.taps[1], 1

    def work(self, writer: ConvolutionWriter, chunk: Value | None) -> None:
        f, (kh, kw) = writer.f, self.taps
        lanes = tile_lanes(f.target, writer.dtype)
        frame, sums = writer.area("frames"), writer.area("sums")
        fill_zero(f, writer.dtype, frame, self.frame.together * self.frame.elements)
        to, strides = writer.area("raw"), (kh * kw, kw, 1)
        if writer.result is not None:
            to, strides = writer.result, self.result
        with self.units.each(f, chunk) as (_, channels):
            fill_zero(f, writer.dtype, sums, self.units.rows * self.sums)
            if self.images and self.blocks:
                with span(f, 0, self.images) as number, span(f, 0, self.blocks) as block:
                    self._planes(writer, frame, sums, number, channels, block)
            with span(f, *channels) as channel:
                own_sums = writer.at(sums, (f.sub(channel, channels[0]), self.sums))
                for number in range(kh * kw):
                    i, j = divmod(number, kw)
                    total = f.load(vector(writer.element, lanes), f.offset(own_sums, number * lanes, writer.element))
                    place = writer.at(to, (channel, strides[0]), (i, strides[1]), (j, strides[2]))
                    f.store(across_lanes(f, "sum", writer.dtype, total), place)

    def _planes(
        self,
        writer: ConvolutionWriter,
        frame: Value,
        sums: Value,
        number: Index,
        channels: Range,
        block: Index,
    ) -> None:
        """Add the products of one block of some channels of an image to their sums."""
        f, image = writer.f, self.frame.image
        planes = writer.at(writer.first, (number, image.strides[0]))
        if self.blocks > 1:
            ahead, following = self.frame.step * image.strides[2], self.block * self.given[2]
        elif self.units.rows > self.frame.together:  # what comes next is mostly the next channel
            ahead, following = image.strides[1] * self.frame.lookahead, self.given[1] * self.frame.lookahead
        else:
            ahead, following = image.strides[0], self.given[0]
        with self.frame.each(writer, frame, planes, channels, block, ahead) as (channel, x):
            y = writer.at(writer.second, (number, self.given[0]), (channel, self.given[1]))
            y = writer.at(y, (f.mul(block, self.block), self.given[2]))
            _ask_for(writer, writer.at(y, (following, 1)), self.block, self.given[2])
            own_sums = writer.at(sums, (f.sub(channel, channels[0]), self.sums))
            for rows in self.tiles:
                f.call(rows.function(f.module), "void", x, own_sums, y)

    def complete(self, writer: ConvolutionWriter) -> None:
        kh, kw = self.taps
        raw = writer.area("raw") if writer.result is None else writer.result
        writer.finish(raw, [(0, writer.kernel.channels), (0, 1), (0, kh), (0, kw)])


def is_planes(kernel: Convolution, target: Target) -> bool:
    """True if a depthwise kernel is done plane by plane: its rows are contiguous, its filters and strides small."""
    if not is_depthwise(kernel) or not kernel.x_strides[3] == kernel.y_strides[3] == 1:
        return False
    kind: Kind = "weights" if kernel.direction == "weight_grad" else "forward"
    if kernel.direction == "input_grad" and kernel.width < kernel.stride[1]:
        return False  # not all phases are there
    taps = kernel.kernel[0] * kernel.kernel[1]
    return kernel.stride[1] <= 2 and taps > 0 and suits_tiles(target, kind, taps)


@functools.lru_cache(maxsize=4096)
def planes_plan(kernel: Convolution, target: Target) -> DepthwisePlanes:
    """The plan of a kernel forward or by data, without epilogue, which has no part in it."""
    image, geometry = forward_geometry(kernel)
    back, channels = kernel.direction == "input_grad", kernel.channels
    rows, columns = (kernel.height, kernel.width) if back else (kernel.out_height, kernel.out_width)
    result = kernel.x_strides if back else kernel.y_strides
    y_row = result[2] if kernel.store_raw else columns
    frame, tiles, block = _planes_of(kernel, target, image, geometry, (rows, columns), y_row)
    some = (
        1
        if block < rows
        else max(1, min(channels, target.sized(UNIT_BYTES) // (rows * columns * kernel.dtype.itemsize)))
    )
    tile = 0 if kernel.store_raw else some * block * columns
    return DepthwisePlanes(
        units=Units.of(kernel.batch, some, channels, wanted_chunks(seconds_of(kernel, target), target)),
        frame=frame,
        tiles=tiles,
        block=block,
        blocks=rows // block,
        columns=columns,
        result=result,
        filter=kernel.w_strides[0],
        scratch=Scratch(own=areas(kernel.dtype, frames=frame.together * frame.elements, tile=tile)),
    )


@functools.lru_cache(maxsize=4096)
def planes_weights_plan(kernel: Convolution, target: Target) -> DepthwisePlanesWeights:
    """The plan of a kernel by weights, without epilogue, which has no part in it."""
    image, geometry = forward_geometry(kernel)
    rows, columns, channels = kernel.out_height, kernel.out_width, kernel.channels
    lanes, taps = tile_lanes(target, kernel.dtype), kernel.kernel[0] * kernel.kernel[1]
    frame, tiles, block = _planes_of(kernel, target, image, geometry, (rows, columns), kernel.y_strides[2])
    some = frame.together
    if block == rows:
        some = max(some, min(UNIT_PLANES, channels // ENOUGH_UNITS))
    o, _, i, j = kernel.w_strides
    return DepthwisePlanesWeights(
        units=Units.of(1, some, channels, wanted_chunks(seconds_of(kernel, target), target)),
        images=kernel.batch,
        frame=frame,
        tiles=tiles,
        block=block,
        blocks=rows // block if block else 0,
        given=kernel.y_strides,
        taps=kernel.kernel,
        result=(o, i, j),
        sums=taps * lanes,
        scratch=Scratch(
            areas(kernel.dtype, raw=0 if kernel.store_raw else channels * taps),
            areas(kernel.dtype, frames=frame.together * frame.elements, sums=some * taps * lanes),
        ),
    )
