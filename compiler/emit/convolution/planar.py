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

import numpy as np

from staticgrad.base.extents import highest, is_open
from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.convolution.images import ConvolutionWriter, Image, WeightStrides, seconds_of
from staticgrad.compiler.emit.convolution.plan import Range, Scratch, areas
from staticgrad.compiler.emit.convolution.plane_tile import frame_rows
from staticgrad.compiler.emit.convolution.schedule import ByUnits, Units
from staticgrad.compiler.emit.convolution.taps import Taps, forward_geometry, phase_weights, within
from staticgrad.compiler.emit.convolution.unstage import UnitResult
from staticgrad.compiler.emit.lanes import counted
from staticgrad.compiler.emit.llvm import Index, Value
from staticgrad.compiler.emit.microkernel import Matrix, TileOperands, call_tile, fill_zero, row_start, span
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.chunks import wanted_chunks
from staticgrad.compiler.plans.tiles import Tiling, choose_tiling, opened, round_up, tile_lanes

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
    dealt: bool  # whether the strip has a copy of each row for every tap along it, as the stride there is not one
    tiling: Tiling  # outputs of a group × columns
    pitch: int  # of a row of one channel in the strip
    strip_rows: int  # of a whole block of rows
    result: UnitResult
    units: Units
    scratch: Scratch

    @property
    def terms(self) -> int:
        return self.taps[0].number * self.taps[1].number * self.image.channels

    @property
    def copies(self) -> int:
        """The number of copies of each row in the strip."""
        return self.taps[1].number if self.dealt else 1

    @property
    def strip_row(self) -> int:
        return self.image.channels * self.copies * self.pitch

    @property
    def strip_group(self) -> int:
        return self.strip_rows * self.strip_row

    @property
    def planes(self) -> bool:
        """True if tiles are written where the result, or the epilogue, wants them."""
        return self.result.strides[3] == 1

    @property
    def way(self) -> str:
        copies = f", {self.copies} copies of each" if self.dealt else ""
        return f"outputs as rows: {self.tiling.text}; strips of {self.strip_rows} rows{copies}; {self.units.text()}"

    def prepare(self, writer: ConvolutionWriter) -> None:
        """Pack the weights as ``[group][filter][i][c][j]``."""
        (kh, kw), w, terms = (t.number for t in self.taps), self.weights, self.terms
        groups, outputs, channels = self.image.groups, self.tiling.m, self.image.channels
        source = writer.f.offset(writer.second, w.offset, writer.element)
        filters = (groups, outputs * terms, w.group), (outputs, terms, w.out)
        taps = (kh, channels * kw, w.i), (channels, kw, w.input), (kw, 1, w.j)
        writer.rearrange(writer.area("weights"), source, *filters, *taps)

    def work(self, writer: ConvolutionWriter, chunk: Value | None) -> None:
        f, groups = writer.f, self.image.groups
        strip, line = writer.area("strip"), writer.area("line")
        fill_zero(f, writer.dtype, strip, groups * self.strip_group)
        with self.units.each(f, chunk) as (number, rows):
            self._fill_strip(writer, strip, number, rows)
            to = self.result.place(writer, number, 0, rows[0])
            if self.planes:
                self._planes(writer, strip, to, rows)
            else:
                with span(f, *rows) as p, span(f, 0, groups) as group:
                    self._row(writer, strip, line, to, rows[0], p, group)
            self.result.finish(writer, number, (0, self.result.outputs), rows)

    def _fill_strip(self, writer: ConvolutionWriter, strip: Value, number: Index, block: Range) -> None:
        """Copy the rows of image ``number`` that a block of rows needs; rows outside the image are zero."""
        f, image, (vertical, horizontal) = writer.f, self.image, self.taps
        left = image.offset[1] - horizontal.origin
        low = max(0, -left)
        count = min(image.size[1], self.tiling.n + (horizontal.number - 1) * horizontal.dilation - left) - low
        if count <= 0 or image.size[0] == 0:
            return
        s_n, s_c, s_h, s_w = image.strides
        spare = writer.at(strip, (image.groups, self.strip_group))  # for pixels that no tap reads
        top = f.add(f.mul(block[0], vertical.step), vertical.origin - image.offset[0])
        reach = (vertical.number - 1) * vertical.dilation + 1
        needed = f.add(f.mul(f.sub(f.sub(block[1], block[0]), 1), vertical.step), reach)
        inside = within(f, top, 1, image.size[0], needed)
        base = writer.at(writer.first, (number, s_n), (top, s_h))
        with span(f, 0, image.groups) as group:
            to = writer.at(strip, (group, self.strip_group))
            writer.clear_around(to, self.strip_row, needed, inside)
            with counted(f, *inside) as row:
                line = writer.at(to, (row.index, self.strip_row))
                origin = writer.at(base, (row.index, s_h), (group, image.channels * s_c))
                if self.dealt:
                    self._deal_row(writer, line, origin, spare)
                else:
                    pixels = Matrix(writer.at(origin, (low, s_w)), s_c, s_w)
                    to_pixels = Matrix(writer.at(line, (low + left, 1)), self.pitch, 1)
                    writer.copy(to_pixels, pixels, image.channels, count, asks=is_open(count))

    def _deal_row(self, writer: ConvolutionWriter, to: Value, row: Value, spare: Value) -> None:
        """One row of every channel, for each tap the pixels that it reads beside each other: every second one. Two
        taps next to each other read every pixel, so these are dealt out to them by turns."""
        f, taps, (_, width), (_, s_c, s_h, _) = writer.f, self.taps[1], self.image.size, self.image.strides
        left = self.image.offset[1] - taps.origin
        tap_of = {j * taps.dilation - left: j for j in range(taps.number)}  # by the pixel that q = 0 reads
        for even in sorted({first - first % 2 for first in tap_of}):
            low, skipped = max(0, even), max(0, -even // 2)
            count = min(width - low, 2 * (self.tiling.n - skipped))
            if count > 0:
                pair = (tap_of.get(first) for first in (even, even + 1))
                lines = (spare if j is None else writer.at(to, (j, self.pitch), (skipped, 1)) for j in pair)
                shape = s_c, self.image.channels, count, s_h
                to_row, source = self.copies * self.pitch, writer.at(row, (low, 1))
                frame_rows(f, writer.dtype, 2, *lines, to_row, source, *shape)

    def _planes(self, writer: ConvolutionWriter, strip: Value, to: Value, rows: Range) -> None:
        """A block of rows, written where it belongs. Some outputs at a time: of each there are rows below each other,
        a longer piece of memory than the rows of all outputs by turns."""
        f, tiling, (s_o, s_p, _) = writer.f, self.tiling, self.result.written
        with span(f, 0, self.image.groups) as group, span(f, 0, tiling.row_panels) as row_panel, span(f, *rows) as p:
            place = Matrix(writer.at(to, (f.mul(group, tiling.m), s_o), (p, s_p)), s_o, 1)
            x = self._line(writer, strip, rows[0], p, group)
            with span(f, 0, tiling.column_panels) as panel:
                self._tile(writer, x, place, group, row_panel, panel)

    def _row(
        self, writer: ConvolutionWriter, strip: Value, line: Value, to: Value, first: Index, p: Index, group: Index
    ) -> None:
        """Row ``p`` of the result, all outputs of one group, through a scratch row."""
        f, tiling, (s_o, s_p, s_q) = writer.f, self.tiling, self.result.written
        row = Matrix(line, round_up(tiling.n, tiling.lanes), 1)
        x = self._line(writer, strip, first, p, group)
        with span(f, 0, tiling.column_panels) as panel, span(f, 0, tiling.row_panels) as row_panel:
            self._tile(writer, x, row, group, row_panel, panel)
        place = writer.at(to, (f.mul(group, tiling.m), s_o), (p, s_p))
        writer.copy(Matrix(place, s_q, s_o), Matrix(line, 1, row.row), tiling.n, tiling.m, asks=is_open(tiling.n))

    def _line(self, writer: ConvolutionWriter, strip: Value, first: Index, p: Index, group: Index) -> Value:
        """The address in the strip at which row ``p`` of the result begins to read, if the strip is for row ``first``
        and more."""
        row = writer.f.mul(writer.f.sub(p, first), self.taps[0].step)
        return writer.at(strip, (group, self.strip_group), (row, self.strip_row))

    def _tile(
        self, writer: ConvolutionWriter, x: Value, to: Matrix, group: Index, row_panel: Index, panel: Index
    ) -> None:
        f, tiling, (vertical, horizontal) = writer.f, self.tiling, self.taps
        w = writer.at(writer.area("weights"), (group, tiling.m * self.terms))
        # Rows i that lie below each other are blocks of one sum; dilated ones are sums of their own.
        runs = 1 if vertical.dilation == 1 else vertical.number
        blocks, kw = vertical.number // runs * self.image.channels, horizontal.number
        m = row_start(f, tiling, row_panel)
        with span(f, 0, runs) as i:
            a = writer.at(w, (m, self.terms), (i, self.image.channels * kw))
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
    planes = kernel.x_strides[3] == kernel.y_strides[3] == 1
    if kernel.stride[1] > (2 if planes else 1):
        return False
    (_, total, _, columns), groups = kernel.result_sizes, kernel.groups
    inputs, outputs = (kernel.filters if back else kernel.channels) // groups, total // groups
    along, across = (_lanes_used(target, kernel.dtype, count) for count in (columns, outputs))
    # A tile of one vector of outputs loads a pixel for each multiply-add; a result in planes is not transposed.
    short = target.isa.vector_bytes <= SHORT_BYTES and (planes or outputs <= tile_lanes(target, kernel.dtype))
    gain = GAIN_SHORT if short else GAIN
    return along > gain * across or (planes and inputs <= FEW_INPUTS and along > LEAST_USE * across)


def planar_plan(kernel: Convolution, target: Target) -> Planar:
    """The plan of a kernel without epilogue, which has no part in it."""
    image, (taps,) = forward_geometry(kernel)
    (vertical, horizontal), size = taps, kernel.dtype.itemsize
    batch, total, rows, columns = kernel.result_sizes
    inputs, outputs = image.groups * image.channels, total // image.groups
    terms = vertical.number * image.channels * horizontal.number
    tiling = opened(choose_tiling(target, kernel.dtype, outputs, highest(columns), terms), outputs, columns)
    lanes, dealt, planes = tiling.lanes, horizontal.step > 1, kernel.result_strides[3] == 1
    ends = lanes if dealt else (horizontal.number - 1) * horizontal.dilation
    pitch = round_up(tiling.column_panels * tiling.width + ends, lanes)
    lines = inputs * (horizontal.number if dealt else 1)

    reach = (vertical.number - 1) * vertical.dilation + 1
    high, line_bytes = highest(rows), lines * highest(pitch) * size
    row_bytes = vertical.step * line_bytes + highest(columns) * total * size
    most = max(1, (target.sized(STRIP_BYTES) - max(0, reach - vertical.step) * line_bytes) // row_bytes)
    most = max(most, min(high, 2 * reach))  # what overlaps is copied twice
    wanted = wanted_chunks(seconds_of(kernel, target), target)
    if wanted > 1 and highest(batch) < wanted:
        most = min(most, max(-(-high * highest(batch) // wanted), reach))
    block = -(-high // -(-high // min(most, high)))
    strip_rows = (block - 1) * vertical.step + reach
    by_pixels = UnitResult.of_pixels(kernel, round_up(total, lanes), direct=True)
    result = UnitResult.of_planes(kernel, block) if planes else by_pixels
    own = areas(
        kernel.dtype,
        strip=(strip_rows + dealt) * lines * pitch,
        line=0 if planes else outputs * round_up(columns, lanes),
        tile=result.elements(total if planes else block),
    )
    units, scratch = Units.of(batch, block, rows, wanted), Scratch(areas(kernel.dtype, weights=total * terms), own)
    weights = phase_weights(kernel, taps)
    return Planar(image, taps, weights, dealt, tiling, pitch, strip_rows, result, units, scratch)
