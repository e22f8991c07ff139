"""Convolutions with one tap, of images that lie in planes: forward and by data they are products of matrices.

A pixel of the result depends on that pixel alone, and both images hold the pixels of a channel as one row of memory:

    forward      Y[n] (filters × pixels)  = W · X[n] (channels × pixels)
    input_grad   X[n] (channels × pixels) = Wᵀ · Y[n] (filters × pixels)

Neither image is brought into another order. Columns of tiles are pixels. The unit of work is a block of whole rows of
an image, which an epilogue finds in the caches, by a part of the outputs where there are too few blocks for the
threads. In a unit the pixels are taken a *panel* at a time, as wide as a tile: its rows, which lie a plane apart, are
copied next to each other and stay in the first cache while all outputs of the panel are computed. What is read of an
image is too scattered for the machine to foresee: so between two tiles the lines of the next panel are asked for.

The floor is that of the arithmetic, two multiply-adds a cycle, and for fewer than about 32 channels or filters that of
memory: each image once. Where an image has so few pixels that a vector along them would be mostly idle, products along
channels are faster, and ``convolution_forward`` does them.
"""

from __future__ import annotations

import functools

from staticgrad.compiler.emit.convolution_images import ByUnits, Units, Weights, Writer, seconds_of
from staticgrad.compiler.emit.convolution_taps import forward_geometry, phase_weights
from staticgrad.compiler.emit.llvm import Index, Value
from staticgrad.compiler.emit.microkernel import (
    Layout,
    Matrix,
    TileOperands,
    Tiling,
    aligned_bytes,
    call_tile,
    choose_tiling,
    prefetch,
    round_up,
    span,
    tile_lanes,
)
from staticgrad.compiler.emit.parallel import cut, divide, wanted_chunks
from staticgrad.compiler.emit.target import Target
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.frozen import frozen

BLOCK_BYTES = 256 << 10  # of the pixels and results of a unit: they stay in the second cache
PANEL_BYTES = 48 << 10  # of a panel of pixels in one pass over the channels
PAGE = 4096
LEAST_USE = 0.85  # of the lanes along pixels, for being worth it
LEAST_PART = 64  # outputs of a part at least: each part packs the pixels again


@frozen
class Products(ByUnits):
    """The plan of a kernel; sizes are elements unless said otherwise."""

    units: Units  # rows are parts of the outputs of blocks
    groups: int
    terms: int  # channels that are summed, of one group
    outputs: int  # of one group
    pixels: int  # of a block
    rows: int  # of a block
    columns: int  # of the image
    blocks: int  # of an image
    parts: int  # of the outputs of one group
    part_panels: int  # row panels of a part
    source: tuple[int, int]  # strides n, c of the image that is read
    result: tuple[int, int]
    weights: Weights
    packed: bool  # weights are copied, inputs beside each other
    layout: Layout
    tiling: Tiling  # outputs × pixels
    depth: int  # terms of one pass
    shared_bytes: int
    panel_bytes: int
    own_bytes: int

    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        """Of the scratch block in which the epilogue finds the result."""
        return 0, self.pixels, self.columns, 1

    @property
    def packed_row(self) -> int:
        """From output to output of packed weights: an odd number of cache lines."""
        line = max(1, 64 // self.tiling.dtype.itemsize)
        return (-(-self.terms // line) | 1) * line

    def prepare(self, writer: Writer) -> None:
        if not self.packed:
            return
        f, w = writer.f, self.weights
        with span(f, 0, self.groups) as group:
            to = writer.at(writer.area(0), (group, self.outputs * self.packed_row))
            source = writer.at(f.offset(writer.second, w.offset, writer.element), (group, w.group))
            writer.copy(Matrix(to, self.packed_row, 1), Matrix(source, w.out, w.input), self.outputs, self.terms)

    def work(self, writer: Writer, chunk: Value | None, own: Index) -> None:
        f = writer.f
        panel = writer.area(own)
        with self.units.each(f, chunk) as (number, (unit, _)):
            rest, part = divide(f, unit, self.parts)
            group, block = divide(f, rest, self.blocks)
            self._unit(writer, panel, number, group, block, part)

    def _unit(self, writer: Writer, panel: Value, number: Index, group: Index, block: Index, part: Index) -> None:
        f, tiling = writer.f, self.tiling
        first = f.mul(block, self.pixels)
        panels = f.mul(part, self.part_panels), f.min(f.mul(f.add(part, 1), self.part_panels), tiling.row_panels)
        low, high = (tiling.row_start(f, p) for p in panels)
        x = writer.at(writer.first, (number, self.source[0]), (group, self.terms * self.source[1]), (first, 1))
        if writer.result is not None:
            c_row = self.result[1]
            c = writer.at(writer.result, (number, self.result[0]), (group, self.outputs * c_row), (first, 1))
            raw = writer.result
        else:
            c_row, scratch = self.pixels, f.offset(panel, self.panel_bytes, "i8")
            c = writer.at(scratch, (low, -c_row))
            raw = writer.at(c, (group, -self.outputs * c_row), (first, -1))
        with span(f, 0, tiling.column_panels) as column, span(f, 0, self.terms, self.depth) as start:
            self._pass(writer, panel, x, c, c_row, group, column, start, panels)
        o = f.mul(group, self.outputs)
        rows = f.mul(block, self.rows)
        ranges = [(number, f.add(number, 1)), (f.add(o, low), f.add(o, high)), (rows, f.add(rows, self.rows))]
        writer.finish(raw, [*ranges, (0, self.columns)])

    def _pass(
        self, writer: Writer, panel: Value, x: Value, c: Value, c_row: int, group: Index, column: Index, start: Index,
        panels: tuple[Index, Index],
    ) -> None:  # fmt: skip
        """Some terms of all outputs of a part, for one panel of pixels."""
        f, tiling, (a_base, a_row, a_step) = writer.f, self.tiling, self._a(writer, group)
        depth = f.min(self.depth, f.sub(self.terms, start))
        source = writer.at(x, (start, self.source[1]), (column, tiling.width))
        width = f.min(tiling.width, f.sub(tiling.n, f.mul(column, tiling.width)))
        writer.copy(Matrix(panel, tiling.width, 1), Matrix(source, self.source[1], 1), depth, width)
        lines = -(-self.depth // self.part_panels)
        with span(f, *panels) as row_panel:
            m = tiling.row_start(f, row_panel)
            ahead = writer.at(source, (f.mul(f.sub(row_panel, panels[0]), lines), self.source[1]), (tiling.width, 1))
            self._fetch(writer, ahead, lines)
            a = writer.at(a_base, (m, a_row), (start, a_step))
            at = TileOperands(a, a_row, a_step, panel, tiling.width, writer.at(c, (m, c_row), (column, tiling.width)),
                              c_row, depth, start)  # fmt: skip
            call_tile(f, tiling, self.layout, row_panel, column, at)

    def _a(self, writer: Writer, group: Index) -> tuple[Value, int, int]:
        """The weights of a group, and their strides."""
        if self.packed:
            return writer.at(writer.area(0), (group, self.outputs * self.packed_row)), self.packed_row, 1
        base = writer.f.offset(writer.second, self.weights.offset, writer.element)
        return writer.at(base, (group, self.weights.group)), self.weights.out, self.weights.input

    def _fetch(self, writer: Writer, at: Value, channels: int) -> None:
        """Ask for the pixels of a panel, of some channels."""
        f, line = writer.f, max(1, 64 // writer.dtype.itemsize)
        with span(f, 0, channels) as channel:
            row = writer.at(at, (channel, self.source[1]))
            for first in range(0, self.tiling.width, line):
                prefetch(f, f.offset(row, first, writer.element))


def is_product(kernel: Convolution, target: Target) -> bool:
    """Whether a kernel is a product of planes, with lanes enough in use."""
    if kernel.direction == "weight_grad" or kernel.kernel != (1, 1):
        return False
    if kernel.stride != (1, 1) or kernel.padding != (0, 0):
        return False
    planes = kernel.x_strides[3] == kernel.y_strides[3] == 1
    planes = planes and kernel.x_strides[2] == kernel.y_strides[2] == kernel.width
    pixels = kernel.height * kernel.width
    used = pixels / round_up(pixels, tile_lanes(target, kernel.dtype))
    return planes and kernel.channels > 0 and kernel.filters > 0 and used >= LEAST_USE


@functools.lru_cache(maxsize=4096)
def product_plan(kernel: Convolution, target: Target) -> Products:
    """The plan of a kernel without epilogue, which has no part in it."""
    back, size = kernel.direction == "input_grad", kernel.dtype.itemsize
    _, (taps,) = forward_geometry(kernel)
    inputs, total = (kernel.filters, kernel.channels) if back else (kernel.channels, kernel.filters)
    groups, terms, outputs = kernel.groups, inputs // kernel.groups, total // kernel.groups
    weights = phase_weights(kernel, taps)
    wanted = wanted_chunks(seconds_of(kernel, target))
    rows = _block_rows(kernel, (terms + outputs) * size)
    pixels, blocks = rows * kernel.width, kernel.height // rows
    tiling = choose_tiling(target, kernel.dtype, outputs, pixels, terms)
    apart = kernel.batch * groups * blocks
    parts = max(1, min(-(-wanted // apart), outputs // LEAST_PART))
    part_panels = -(-tiling.row_panels // parts)
    parts = -(-tiling.row_panels // part_panels)
    layout: Layout = "rows" if weights.input == 1 else "columns"
    step = weights.out if layout == "rows" else weights.input
    packed = 1 not in (weights.input, weights.out) or (step * size % PAGE == 0 and min(terms, outputs) * size > 512)
    depth = -(-terms // -(-terms * tiling.width * size // PANEL_BYTES))
    panel_bytes = aligned_bytes(depth * tiling.width, kernel.dtype)
    scratch = 0 if kernel.store_raw else min(outputs, part_panels * tiling.rows) * pixels
    line = max(1, 64 // size)
    weight_bytes = groups * outputs * (-(-terms // line) | 1) * line
    units = kernel.batch * groups * blocks * parts
    return Products(
        units=Units(kernel.batch, 1, groups * blocks * parts,
                    cut(units, wanted)[0] if wanted > 1 and units > 1 else None),
        groups=groups,
        terms=terms,
        outputs=outputs,
        pixels=pixels,
        rows=rows,
        columns=kernel.width,
        blocks=blocks,
        parts=parts,
        part_panels=part_panels,
        source=(kernel.y_strides if back else kernel.x_strides)[:2],
        result=(kernel.x_strides if back else kernel.y_strides)[:2],
        weights=weights,
        packed=packed,
        layout="rows" if packed else layout,
        tiling=tiling,
        depth=depth,
        shared_bytes=aligned_bytes(weight_bytes, kernel.dtype) if packed else 0,
        panel_bytes=panel_bytes,
        own_bytes=panel_bytes + aligned_bytes(scratch, kernel.dtype),
    )  # fmt: skip


def _block_rows(kernel: Convolution, pixel_bytes: int) -> int:
    """The rows of a block: a divisor of the image's height, so that all blocks are alike."""
    divisors = [rows for rows in range(1, kernel.height + 1) if kernel.height % rows == 0]
    return max(rows for rows in divisors if rows == 1 or rows * kernel.width * pixel_bytes <= BLOCK_BYTES)
