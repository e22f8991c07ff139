"""Convolution forward and its transpose by data with vectors along the pixels of a row: where a group has few outputs,
and where images lie in planes and a group has few inputs, as the first layer of a network.

With fewer filters than a vector has lanes, channels-last tiles would leave most lanes idle; and a result in planes
would have to be transposed, which takes as long as the few terms of a first layer. Here columns of tiles are pixels
along q, rows are filters, terms are taps j, and blocks are pairs (i, c). What is read is a *strip*, the rows of one
image that a block of rows of the result needs, framed with zeros, as ``[group][row][channel][column]``: in this order
the blocks (i, c) of a pixel are evenly spaced. With a stride along the row the strip has a copy of each row for every
tap, ``[group][row][channel][j][q]``, with the pixels that this tap reads; terms are then (i, c, j). Weights are packed
as ``[group][filter][i][c][j]``. A result in planes is written where it belongs, others go through a scratch row.

The floor is that of the arithmetic. The result of a first layer is many times its image, and for 27 terms at two
multiply-adds a cycle the 4 bytes of an element take 0.84 cycles: as long as memory takes them, if it takes them in
order; so of a block of rows some planes are written after each other, not all planes row by row.
"""

from __future__ import annotations

import functools

import numpy as np

from staticgrad.compiler.emit.convolution.images import ConvolutionWriter, Image, WeightStrides, seconds_of
from staticgrad.compiler.emit.convolution.plan import Range, Scratch, areas
from staticgrad.compiler.emit.convolution.plane_tile import frame_rows
from staticgrad.compiler.emit.convolution.schedule import ByUnits, Units
from staticgrad.compiler.emit.convolution.taps import Taps, forward_geometry, phase_weights
from staticgrad.compiler.emit.llvm import Index, Value, integer
from staticgrad.compiler.emit.microkernel import (
    Matrix,
    TileOperands,
    Tiling,
    call_tile,
    choose_tiling,
    fill_zero,
    round_up,
    span,
    tile_lanes,
)
from staticgrad.compiler.emit.parallel import wanted_chunks
from staticgrad.compiler.emit.target import Target
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.frozen import frozen

STRIP_BYTES = 128 << 10  # a strip and its block of the result stay in the second cache
GAIN = 1.4  # of lanes in use, from which on a strip is worth its copying
GAIN_SHORT, SHORT_BYTES = 1.1, 32  # with vectors so short that the arithmetic takes longer beside it
FEW_INPUTS = 8  # of a group: so few that copying them into strips is little beside the result, if that is in planes
LEAST_USE = 0.75  # of lanes then, as a share of those that channels last would use


@frozen
class Planar(ByUnits):
    """The plan of a kernel; sizes are elements unless said otherwise."""

    image: Image
    taps: tuple[Taps, Taps]
    weights: WeightStrides
    groups: int
    channels: int  # of one group
    dealt: bool  # whether the strip has a copy of each row for every tap along it, as the stride there is not one
    outputs: int  # of one group
    tiling: Tiling  # outputs × columns
    columns: int
    pitch: int  # of a row of one channel in the strip
    strip_rows: int  # of a whole block of rows
    result: tuple[int, int, int, int]  # strides n, o, p, q
    tile_pixel: int  # from pixel to pixel in the scratch block that an epilogue reads
    units: Units
    scratch: Scratch

    @property
    def terms(self) -> int:
        return self.taps[0].number * self.taps[1].number * self.channels

    @property
    def copies(self) -> int:
        """The number of copies of each row in the strip."""
        return self.taps[1].number if self.dealt else 1

    @property
    def strip_row(self) -> int:
        return self.channels * self.copies * self.pitch

    @property
    def strip_group(self) -> int:
        return self.strip_rows * self.strip_row

    @property
    def planes(self) -> bool:
        """True if tiles are written where the result, or the epilogue, wants them."""
        return self.result[3] == 1

    @property
    def way(self) -> str:
        copies = f", {self.copies} copies of each" if self.dealt else ""
        return f"outputs as rows: {self.tiling.text}; strips of {self.strip_rows} rows{copies}; {self.units.text()}"

    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        """The strides of the scratch block in which the epilogue finds the result: in planes as the result would be, or
        channels last."""
        if self.planes:
            return 0, self.units.rows * self.columns, self.columns, 1
        return 0, 1, self.columns * self.tile_pixel, self.tile_pixel

    def prepare(self, writer: ConvolutionWriter) -> None:
        """The weights as ``[group][filter][i][c][j]``."""
        f, (kh, kw), source = writer.f, (t.number for t in self.taps), self.weights
        base = f.offset(writer.second, source.offset, writer.element)
        with span(f, 0, self.groups) as group, span(f, 0, self.outputs) as o, span(f, 0, kh) as i:
            number = f.add(f.mul(group, self.outputs), o)
            to = writer.at(writer.area("weights"), (number, self.terms), (i, self.channels * kw))
            origin = writer.at(base, (group, source.group), (o, source.out), (i, source.i))
            writer.copy(Matrix(to, kw, 1), Matrix(origin, source.input, source.j), self.channels, kw)

    def work(self, writer: ConvolutionWriter, chunk: Value | None) -> None:
        f = writer.f
        strip, line, tile = (writer.area(name) for name in ("strip", "line", "tile"))
        fill_zero(f, writer.dtype, strip, self.groups * self.strip_group)
        with self.units.each(f, chunk) as (number, rows):
            self._fill_strip(writer, strip, number, rows)
            raw = writer.result if writer.result is not None else self._block(writer, tile, rows[0])
            if self.planes:
                self._planes(writer, strip, raw, number, rows)
            else:
                with span(f, *rows) as p, span(f, 0, self.groups) as group:
                    self._row(writer, strip, line, raw, number, rows[0], p, group)
            outputs = self.groups * self.outputs
            writer.finish(raw, [(number, f.add(number, 1)), (0, outputs), rows, (0, self.columns)])

    def _block(self, writer: ConvolutionWriter, tile: Value, first: Index) -> Value:
        """The address at which row 0 of the result would be, if row ``first`` is at the start of the scratch block."""
        return writer.at(tile, (first, -self.raw_strides(writer.kernel)[2]))

    def _fill_strip(self, writer: ConvolutionWriter, strip: Value, number: Index, rows: Range) -> None:
        """Copy the rows of image ``number`` that a block of rows needs; rows outside the image are zero."""
        f, vertical, (height, width) = writer.f, self.taps[0], self.image.size
        left = self.image.offset[1] - self.taps[1].origin
        low = max(0, -left)
        count = min(width, self.columns + (self.taps[1].number - 1) * self.taps[1].dilation - left) - low
        if count <= 0 or height == 0:
            return
        base = writer.at(writer.first, (number, self.image.strides[0]))
        spare = writer.at(strip, (self.groups, self.strip_group))  # for pixels that no tap reads
        top = f.add(f.mul(rows[0], vertical.step), vertical.origin - self.image.offset[0])
        reach = (vertical.number - 1) * vertical.dilation + 1
        needed = f.add(f.mul(f.sub(f.sub(rows[1], rows[0]), 1), vertical.step), reach)
        with f.loop(0, needed) as row:
            h = f.add(top, row.index)
            inside, outside, done = (f.label(stem) for stem in ("inside", "outside", "filled"))
            h_value = h if isinstance(h, Value) else integer(h)
            f.branch_if(f.compare("icmp ult", h_value, integer(height)), inside, outside)
            f.block(inside)
            with span(f, 0, self.groups) as group:
                _, s_c, s_h, s_w = self.image.strides
                origin = writer.at(base, (h, s_h), (group, self.channels * s_c))
                to = writer.at(strip, (row.index, self.strip_row), (group, self.strip_group))
                if self.dealt:
                    self._deal_row(writer, to, origin, spare)
                else:
                    to, origin = writer.at(to, (low + left, 1)), writer.at(origin, (low, s_w))
                    writer.copy(Matrix(to, self.pitch, 1), Matrix(origin, s_c, s_w), self.channels, count)
            f.branch(done)
            f.block(outside)
            with span(f, 0, self.groups) as group:
                fill_zero(f, writer.dtype, writer.at(strip, (row.index, self.strip_row), (group, self.strip_group)),
                          self.strip_row)  # fmt: skip
            f.branch(done)
            f.block(done)

    def _deal_row(self, writer: ConvolutionWriter, to: Value, row: Value, spare: Value) -> None:
        """One row of every channel, for each tap the pixels that it reads beside each other: every second one. Two
        taps next to each other read every pixel, so these are dealt out to them by turns."""
        f, taps, (_, width) = writer.f, self.taps[1], self.image.size
        left = self.image.offset[1] - taps.origin
        tap_of = {j * taps.dilation - left: j for j in range(taps.number)}  # by the pixel that q = 0 reads
        name = frame_rows(f.module, writer.dtype, 2)
        for even in sorted({first - first % 2 for first in tap_of}):
            low, skipped = max(0, even), max(0, -even // 2)
            count = min(width - low, 2 * (self.columns - skipped))
            if count <= 0:
                continue
            pair = (tap_of.get(first) for first in (even, even + 1))
            lines = (spare if j is None else writer.at(to, (j, self.pitch), (skipped, 1)) for j in pair)
            _, s_c, s_h, _ = self.image.strides
            integers = map(integer, (self.copies * self.pitch, s_c, self.channels, count, s_h))
            to_row, *rest = integers
            f.call(name, "void", *lines, to_row, writer.at(row, (low, 1)), *rest)

    def _planes(self, writer: ConvolutionWriter, strip: Value, raw: Value, number: Index, rows: Range) -> None:
        """A block of rows, written where it belongs. Some outputs at a time: of each there are rows below each other,
        a longer piece of memory than the rows of all outputs by turns."""
        f, tiling = writer.f, self.tiling
        r = self.result if writer.result is not None else self.raw_strides(writer.kernel)
        with span(f, 0, self.groups) as group, span(f, 0, tiling.row_panels) as row_panel, span(f, *rows) as p:
            o = f.mul(group, self.outputs)
            to = Matrix(writer.at(raw, (number, r[0]), (o, r[1]), (p, r[2])), r[1], 1)
            x = self._line(writer, strip, rows[0], p, group)
            with span(f, 0, tiling.column_panels) as panel:
                self._tile(writer, x, to, group, row_panel, panel)

    def _row(
        self, writer: ConvolutionWriter, strip: Value, line: Value, raw: Value, number: Index, first: Index, p: Index,
        group: Index,
    ) -> None:  # fmt: skip
        """Row ``p`` of the result, all outputs of one group, through a scratch row."""
        f, tiling = writer.f, self.tiling
        r = self.result if writer.result is not None else self.raw_strides(writer.kernel)
        to = Matrix(line, round_up(self.columns, tiling.lanes), 1)
        x = self._line(writer, strip, first, p, group)
        with span(f, 0, tiling.column_panels) as panel, span(f, 0, tiling.row_panels) as row_panel:
            self._tile(writer, x, to, group, row_panel, panel)
        place = writer.at(raw, (number, r[0]), (f.mul(group, self.outputs), r[1]), (p, r[2]))
        writer.copy(Matrix(place, r[3], r[1]), Matrix(to.base, 1, to.row), self.columns, self.outputs)

    def _line(self, writer: ConvolutionWriter, strip: Value, first: Index, p: Index, group: Index) -> Value:
        """The address in the strip at which row ``p`` of the result begins to read, if the strip is for row ``first``
        and more."""
        row = writer.f.mul(writer.f.sub(p, first), self.taps[0].step)
        return writer.at(strip, (group, self.strip_group), (row, self.strip_row))

    def _tile(
        self, writer: ConvolutionWriter, x: Value, to: Matrix, group: Index, row_panel: Index, panel: Index
    ) -> None:
        f, tiling, (vertical, horizontal) = writer.f, self.tiling, self.taps
        w = writer.at(writer.area("weights"), (group, self.outputs * self.terms))
        # Rows i that lie below each other are blocks of one sum; dilated ones are sums of their own.
        runs = 1 if vertical.dilation == 1 else vertical.number
        blocks, kw = vertical.number // runs * self.channels, horizontal.number
        m = tiling.row_start(f, row_panel)
        with span(f, 0, runs) as i:
            a = writer.at(w, (m, self.terms), (i, self.channels * kw))
            b = writer.at(x, (i, vertical.dilation * self.strip_row), (panel, tiling.width))
            c = writer.at(to.base, (m, to.row), (panel, tiling.width))
            at = TileOperands(a, self.terms, 1, b, horizontal.dilation, c, to.row, kw, i, blocks, kw, self.pitch)
            if kw == self.copies:  # one block of all terms
                at = TileOperands(a, self.terms, 1, b, self.pitch, c, to.row, blocks * kw, i)
            call_tile(f, tiling, "rows", row_panel, panel, at)


def _lanes_used(target: Target, dtype: np.dtype, count: int) -> float:
    """The share of lanes in use, of vectors over ``count`` elements."""
    return count / round_up(max(count, 1), tile_lanes(target, dtype))


def is_planar(kernel: Convolution, target: Target) -> bool:
    """True if vectors along pixels use so many more lanes than along channels that they are worth a strip."""
    back = kernel.direction == "input_grad"
    if kernel.direction == "weight_grad" or kernel.dtype.kind != "f" or (back and kernel.stride != (1, 1)):
        return False
    image, result = (kernel.y_strides, kernel.x_strides) if back else (kernel.x_strides, kernel.y_strides)
    planes = image[3] == result[3] == 1
    if kernel.stride[1] > (2 if planes else 1):
        return False
    inputs, outputs = kernel.channels // kernel.groups, kernel.filters // kernel.groups
    if back:
        inputs, outputs = outputs, inputs
    along = _lanes_used(target, kernel.dtype, kernel.width if back else kernel.out_width)
    across = _lanes_used(target, kernel.dtype, outputs)
    # A tile of one vector of outputs loads a pixel for each multiply-add; a result in planes is not transposed.
    short = target.isa.vector_bytes <= SHORT_BYTES and (planes or outputs <= tile_lanes(target, kernel.dtype))
    gain = GAIN_SHORT if short else GAIN
    return along > gain * across or (planes and inputs <= FEW_INPUTS and along > LEAST_USE * across)


@functools.lru_cache(maxsize=4096)
def planar_plan(kernel: Convolution, target: Target) -> Planar:
    """The plan of a kernel without epilogue, which has no part in it."""
    image, (taps,) = forward_geometry(kernel)
    vertical, horizontal = taps
    back, groups, size = kernel.direction == "input_grad", kernel.groups, kernel.dtype.itemsize
    rows, columns = vertical.count, horizontal.count
    inputs, total = (kernel.filters, kernel.channels) if back else (kernel.channels, kernel.filters)
    channels, outputs = inputs // groups, total // groups
    result = kernel.x_strides if back else kernel.y_strides
    tiling = choose_tiling(target, kernel.dtype, outputs, columns, vertical.number * channels * horizontal.number)
    lanes = tiling.lanes
    dealt = horizontal.step > 1
    ends = lanes if dealt else (horizontal.number - 1) * horizontal.dilation
    pitch = round_up(tiling.column_panels * tiling.width + ends, lanes)
    lines = inputs * (horizontal.number if dealt else 1)
    tile_pixel = round_up(total, lanes)

    reach = (vertical.number - 1) * vertical.dilation + 1
    row_bytes = (vertical.step * lines * pitch + columns * total) * size
    most = max(1, (target.sized(STRIP_BYTES) - max(0, reach - vertical.step) * lines * pitch * size) // row_bytes)
    most = max(most, min(rows, 2 * reach))  # what overlaps is copied twice
    wanted = wanted_chunks(seconds_of(kernel, target), target)
    if wanted > 1 and kernel.batch < wanted:
        most = min(most, max(-(-rows * kernel.batch // wanted), reach))
    block = -(-rows // -(-rows // min(most, rows)))
    strip_rows = (block - 1) * vertical.step + reach
    tile = 0 if kernel.store_raw else block * columns * (total if result[3] == 1 else tile_pixel)
    line = 0 if result[3] == 1 else outputs * round_up(columns, lanes)
    weights = groups * outputs * vertical.number * horizontal.number * channels
    own = areas(kernel.dtype, strip=(strip_rows + dealt) * lines * pitch, line=line, tile=tile)
    return Planar(
        image=image,
        taps=taps,
        weights=phase_weights(kernel, taps),
        groups=groups,
        channels=channels,
        dealt=dealt,
        outputs=outputs,
        tiling=tiling,
        columns=columns,
        pitch=pitch,
        strip_rows=strip_rows,
        result=result,
        tile_pixel=tile_pixel,
        units=Units.of(kernel.batch, block, rows, wanted),
        scratch=Scratch(areas(kernel.dtype, weights=weights), own),
    )
