"""Convolution forward and its transpose by data where a group has few outputs: vectors run along the pixels of a row.

With fewer filters than a vector has lanes, channels-last tiles would leave most lanes idle. Here columns of tiles are
pixels along q, rows are filters, terms are taps j, and blocks are pairs (i, c). What is read is a *strip*, the rows of
one image that a block of rows of the result needs, framed with zeros, as ``[group][row][channel][column]``: in this
order the blocks (i, c) of a pixel are evenly spaced. Weights are packed as ``[group][filter][i][c][j]``. A result whose
pixels are contiguous is written where it belongs, others go through a scratch row.

Strides along the row would need every second lane; those kernels are left to ``convolution_forward``.
"""

from __future__ import annotations

import functools

import numpy as np

from staticgrad.compiler.emit.convolution_images import ByUnits, Image, Units, Weights, Writer, seconds_of
from staticgrad.compiler.emit.convolution_taps import Taps, forward_geometry, phase_weights
from staticgrad.compiler.emit.llvm import Index, Value, integer
from staticgrad.compiler.emit.microkernel import (
    Matrix,
    TileOperands,
    Tiling,
    aligned_bytes,
    call_tile,
    choose_tiling,
    fill_zero,
    round_up,
    span,
    tile_lanes,
)
from staticgrad.compiler.emit.parallel import cut, wanted_chunks
from staticgrad.compiler.emit.target import Target
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.frozen import frozen

STRIP_BYTES = 128 << 10  # a strip and its block of the result stay in the second cache
GAIN = 1.4  # of lanes in use, from which on a strip is worth its copying


@frozen
class Planar(ByUnits):
    """The plan of a kernel; sizes are elements unless said otherwise."""

    image: Image
    taps: tuple[Taps, Taps]
    weights: Weights
    groups: int
    channels: int  # of one group
    outputs: int  # of one group
    tiling: Tiling  # outputs × columns
    columns: int
    pitch: int  # of a row of one channel in the strip
    strip_rows: int  # of a whole block of rows
    result: tuple[int, int, int, int]  # strides n, o, p, q
    direct: bool  # tiles are written into the result
    tile_pixel: int  # from pixel to pixel in the scratch block that an epilogue reads
    units: Units
    shared_bytes: int  # packed weights
    strip_bytes: int
    line_bytes: int
    own_bytes: int  # a strip, a line and a scratch block

    @property
    def terms(self) -> int:
        return self.taps[0].number * self.taps[1].number * self.channels

    @property
    def strip_row(self) -> int:
        return self.channels * self.pitch

    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        """Of the scratch block in which the epilogue finds the result, channels last."""
        return 0, 1, self.columns * self.tile_pixel, self.tile_pixel

    def prepare(self, writer: Writer) -> None:
        """The weights as ``[group][filter][i][c][j]``."""
        f, (kh, kw), source = writer.f, (t.number for t in self.taps), self.weights
        base = f.offset(writer.second, source.offset, writer.element)
        with span(f, 0, self.groups) as group, span(f, 0, self.outputs) as o, span(f, 0, kh) as i:
            number = f.add(f.mul(group, self.outputs), o)
            to = writer.at(writer.area(0), (number, self.terms), (i, self.channels * kw))
            origin = writer.at(base, (group, source.group), (o, source.out), (i, source.i))
            writer.copy(Matrix(to, kw, 1), Matrix(origin, source.input, source.j), self.channels, kw)

    def work(self, writer: Writer, chunk: Value | None, own: Index) -> None:
        f = writer.f
        strip = writer.area(own)
        line = writer.area(f.add(own, self.strip_bytes))
        tile = writer.area(f.add(own, self.strip_bytes + self.line_bytes))
        fill_zero(f, writer.dtype, strip, self.groups * self.strip_rows * self.strip_row)
        with self.units.each(f, chunk) as (number, rows):
            self._fill_strip(writer, strip, number, rows)
            with span(f, *rows) as p, span(f, 0, self.groups) as group:
                self._row(writer, strip, line, tile, number, rows[0], p, group)
            raw = writer.result if writer.result is not None else self._block(writer, tile, rows[0])
            outputs = self.groups * self.outputs
            writer.finish(raw, [(number, f.add(number, 1)), (0, outputs), rows, (0, self.columns)])

    def _block(self, writer: Writer, tile: Value, first: Index) -> Value:
        """Where row 0 of the result would be, if row ``first`` is at the start of the scratch block."""
        return writer.at(tile, (first, -self.columns * self.tile_pixel))

    def _fill_strip(self, writer: Writer, strip: Value, number: Index, rows: tuple[Index, Index]) -> None:
        """Copy the rows of image ``number`` that a block of rows needs; rows outside the image are zero."""
        f, vertical, (height, width) = writer.f, self.taps[0], self.image.size
        left = self.image.offset[1] - self.taps[1].origin
        low = max(0, -left)
        count = min(width, self.columns + (self.taps[1].number - 1) * self.taps[1].dilation - left) - low
        if count <= 0 or height == 0:
            return
        base = writer.at(writer.first, (number, self.image.strides[0]))
        top = f.add(f.mul(rows[0], vertical.step), vertical.origin - self.image.offset[0])
        reach = (vertical.number - 1) * vertical.dilation + 1
        needed = f.add(f.mul(f.sub(f.sub(rows[1], rows[0]), 1), vertical.step), reach)
        with f.loop(0, needed) as row:
            h = f.add(top, row.index)
            at = writer.at(strip, (row.index, self.strip_row), (low + left, 1))
            inside, outside, done = (f.label(stem) for stem in ("inside", "outside", "filled"))
            h_value = h if isinstance(h, Value) else integer(h)
            f.branch_if(f.compare("icmp ult", h_value, integer(height)), inside, outside)
            f.block(inside)
            with span(f, 0, self.groups) as group:
                _, s_c, s_h, s_w = self.image.strides
                origin = writer.at(base, (h, s_h), (group, self.channels * s_c), (low, s_w))
                to = writer.at(at, (group, self.strip_rows * self.strip_row))
                writer.copy(Matrix(to, self.pitch, 1), Matrix(origin, s_c, s_w), self.channels, count)
            f.branch(done)
            f.block(outside)
            with span(f, 0, self.groups) as group, span(f, 0, self.channels) as c:
                fill_zero(
                    f, writer.dtype, writer.at(at, (group, self.strip_rows * self.strip_row), (c, self.pitch)), count
                )
            f.branch(done)
            f.block(done)

    def _row(
        self,
        writer: Writer,
        strip: Value,
        line: Value,
        tile: Value,
        number: Index,
        first: Index,
        p: Index,
        group: Index,
    ) -> None:
        """Row ``p`` of the result, all outputs of one group."""
        f, (vertical, horizontal), r = writer.f, self.taps, self.result
        in_place = self.direct and writer.result is not None
        o = f.mul(group, self.outputs)
        if in_place:
            to = Matrix(writer.at(writer.result_pointer, (number, r[0]), (o, r[1]), (p, r[2])), r[1], 1)
        else:
            to = Matrix(line, round_up(self.columns, self.tiling.lanes), 1)
        row = f.mul(f.sub(p, first), vertical.step)
        x = writer.at(strip, (group, self.strip_rows * self.strip_row), (row, self.strip_row))
        w = writer.at(writer.area(0), (o, self.terms))
        # Rows i that lie below each other are blocks of one sum; dilated ones are sums of their own.
        runs = 1 if vertical.dilation == 1 else vertical.number
        blocks, kw = vertical.number // runs * self.channels, horizontal.number
        with span(f, 0, self.tiling.column_panels) as panel, span(f, 0, self.tiling.row_panels) as row_panel:
            m = self.tiling.row_start(f, row_panel)
            with span(f, 0, runs) as i:
                a = writer.at(w, (m, self.terms), (i, self.channels * kw))
                b = writer.at(x, (i, vertical.dilation * self.strip_row), (panel, self.tiling.width))
                c = writer.at(to.base, (m, to.row), (panel, self.tiling.width))
                at = TileOperands(a, self.terms, 1, b, horizontal.dilation, c, to.row, kw, i, blocks, kw, self.pitch)
                if kw == 1:  # one block of all terms
                    at = TileOperands(a, self.terms, 1, b, self.pitch, c, to.row, blocks, i)
                call_tile(f, self.tiling, "rows", row_panel, panel, at)
        if not in_place:
            source = Matrix(to.base, 1, to.row)
            if writer.result is not None:
                place = Matrix(writer.at(writer.result, (number, r[0]), (o, r[1]), (p, r[2])), r[3], r[1])
            else:
                pixels = writer.at(self._block(writer, tile, first), (p, self.columns * self.tile_pixel), (o, 1))
                place = Matrix(pixels, self.tile_pixel, 1)
            writer.copy(place, source, self.columns, self.outputs)


def _lanes_used(target: Target, dtype: np.dtype, count: int) -> float:
    """The share of lanes in use, of vectors over ``count`` elements."""
    return count / round_up(max(count, 1), tile_lanes(target, dtype))


def is_planar(kernel: Convolution, target: Target) -> bool:
    """Whether vectors along pixels use so many more lanes than along channels that they are worth a strip."""
    if kernel.direction == "weight_grad" or kernel.stride[1] != 1 or kernel.dtype.kind != "f":
        return False
    if kernel.direction == "input_grad" and kernel.stride[0] != 1:
        return False
    back = kernel.direction == "input_grad"
    outputs = (kernel.channels if back else kernel.filters) // kernel.groups
    pixels = _lanes_used(target, kernel.dtype, kernel.width if back else kernel.out_width)
    return pixels > GAIN * _lanes_used(target, kernel.dtype, outputs)


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
    direct = kernel.store_raw and result[3] == 1
    tiling = choose_tiling(target, kernel.dtype, outputs, columns, vertical.number * channels * horizontal.number)
    lanes = tiling.lanes
    pitch = round_up(tiling.column_panels * tiling.width + (horizontal.number - 1) * horizontal.dilation, lanes)
    tile_pixel = round_up(total, lanes)

    reach = (vertical.number - 1) * vertical.dilation + 1
    row_bytes = (vertical.step * inputs * pitch + columns * total) * size
    most = max(1, (STRIP_BYTES - max(0, reach - vertical.step) * inputs * pitch * size) // row_bytes)
    most = max(most, min(rows, 2 * reach))  # what overlaps is copied twice
    wanted = wanted_chunks(seconds_of(kernel, target))
    if wanted > 1 and kernel.batch < wanted:
        most = min(most, max(-(-rows * kernel.batch // wanted), reach))
    block = -(-rows // -(-rows // min(most, rows)))
    units = kernel.batch * -(-rows // block)
    strip_rows = (block - 1) * vertical.step + reach
    tile = 0 if kernel.store_raw else block * columns * tile_pixel
    line = 0 if direct else outputs * round_up(columns, lanes)
    strip_bytes = aligned_bytes(groups * strip_rows * channels * pitch, kernel.dtype)
    line_bytes = aligned_bytes(line, kernel.dtype)
    return Planar(
        image=image,
        taps=taps,
        weights=phase_weights(kernel, taps),
        groups=groups,
        channels=channels,
        outputs=outputs,
        tiling=tiling,
        columns=columns,
        pitch=pitch,
        strip_rows=strip_rows,
        result=result,
        direct=direct,
        tile_pixel=tile_pixel,
        units=Units(kernel.batch, block, rows, cut(units, wanted)[0] if wanted > 1 and units > 1 else None),
        shared_bytes=aligned_bytes(groups * outputs * vertical.number * horizontal.number * channels, kernel.dtype),
        strip_bytes=strip_bytes,
        line_bytes=line_bytes,
        own_bytes=strip_bytes + line_bytes + aligned_bytes(tile, kernel.dtype),
    )
