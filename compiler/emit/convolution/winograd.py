"""Writes ``Winograd``: rows of an image brought into a strip; of each block of its tiles the transforms, the products
with transformed weights, and the transforms back."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.convolution.filtering import grid_of, write_tile, write_transforms
from staticgrad.compiler.emit.convolution.schedule import Chunks, PackingEmitter, each_unit
from staticgrad.compiler.emit.convolution.strips import clear_strip, fill_framed_strip
from staticgrad.compiler.emit.convolution.unstage import finish_unit, place_unit
from staticgrad.compiler.emit.convolution.writer import ConvolutionWriter, Range
from staticgrad.compiler.emit.lanes import vector_parts
from staticgrad.compiler.emit.llvm import Function, Index, Value, memory_type
from staticgrad.compiler.emit.microkernel import TileOperands, by_width, call_tile, fill_zero, row_start, span
from staticgrad.compiler.emit.parallel import divide, quotient
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.plans.convolution.filtering import TAPS, Filtering
from staticgrad.compiler.plans.convolution.winograd import WEIGHT_CHANNELS, Winograd


@frozen
class _TileBlock:
    """Some tiles of a unit, whose rows of tiles begin with ``row``; ``count`` of them from number ``start`` on."""

    row: Index
    start: Index
    count: Index


class WinogradEmitter(PackingEmitter[Winograd]):
    def pack(self, f: Function, kernel: Convolution, weights: Value, packed: Value) -> None:
        pointers = [weights, weights, *[weights] * kernel.store_raw, packed]
        writer = ConvolutionWriter(f, kernel, None, pointers, self.plan.packed)
        self._transform_weights(writer, "buffer")

    def prepare(self, writer: ConvolutionWriter) -> None:
        if self.plan.packs:
            self._transform_weights(writer, "strip")

    def prepare_shared(self, chunks: Chunks) -> None:
        if not self.plan.packs or self.plan.tiling.column_panels == 1:
            self.prepare(chunks.own)
            return
        part, writer = chunks.open("pack")
        self._transform_panel(writer, writer.area("strip"), part.chunk)
        chunks.run(part.f.finish(), self.plan.tiling.column_panels)

    # -- weights ----------------------------------------------------------------------------------------------------

    def _transform_weights(self, writer: ConvolutionWriter, buffer: str) -> None:
        with span(writer.f, 0, self.plan.tiling.column_panels) as panel:
            self._transform_panel(writer, writer.area(buffer), panel)

    def _transform_panel(self, writer: ConvolutionWriter, buffer: Value, panel: Index) -> None:
        """Pack the taps of some channels at a time, the filters of the panel side by side, and transform them; filters
        that the panel lacks are zero."""
        plan = self.plan
        to = writer.at(writer.area("weights"), (panel, plan.panel_elements))
        pack = functools.partial(self._transform_columns, writer, buffer, panel, to)
        by_width(writer.f, plan.tiling, panel, plan.outputs, pack)

    def _transform_columns(
        self, writer: ConvolutionWriter, buffer: Value, panel: Index, to: Value, columns: int
    ) -> None:
        f, plan, w, width = writer.f, self.plan, self.plan.weights, self.plan.tiling.width
        source = writer.at(f.offset(writer.second, w.offset, writer.element), (f.mul(panel, width), w.out))
        most = min(plan.inputs, WEIGHT_CHANNELS)
        if columns < width:
            fill_zero(f, writer.dtype, buffer, TAPS**2 * most * width)
        whole = plan.inputs - plan.inputs % most
        for first, end in ((0, whole), (whole, plan.inputs)):
            if first == end:
                continue
            some = min(most, end - first)
            apart = some * width
            with span(f, first, end, some) as channel:
                taps = (TAPS, TAPS * apart, w.i), (TAPS, apart, w.j)
                channels = (some, width, w.input), (columns, 1, w.out)
                writer.rearrange(buffer, writer.at(source, (channel, w.input)), *taps, *channels)
                how = plan.filtering, writer.dtype, apart, plan.weight_plane
                f.call_leaf("filters", _write_weights, how, buffer, writer.at(to, (channel, width)))

    # -- units ------------------------------------------------------------------------------------------------------

    def work(self, writer: ConvolutionWriter, chunk: Value | None) -> None:
        f, plan, m = writer.f, self.plan, self.plan.filtering.outputs
        clear_strip(plan.strip, writer, writer.area("strip"))
        with each_unit(plan.units, f, chunk) as (number, (index, _)):
            band, part = divide(f, index, plan.parts)
            first = f.mul(band, plan.rows)
            end = f.min(f.add(first, plan.rows), plan.grid[0])
            rows = f.mul(first, m), f.min(f.mul(end, m), plan.size[0])
            framed = f.mul(first, m), f.mul(end, m)
            pixels = fill_framed_strip(plan.strip, writer, number, framed, writer.area("strip"))
            panels = (
                f.mul(part, plan.part_panels),
                f.min(f.mul(f.add(part, 1), plan.part_panels), plan.tiling.column_panels),
            )
            width = plan.tiling.width
            outputs = f.mul(panels[0], width), f.min(f.mul(panels[1], width), plan.outputs)
            to = place_unit(plan.result, writer, number, outputs[0], rows[0])
            tiles = f.mul(f.sub(end, first), plan.grid[1])
            with span(f, 0, tiles, plan.tiles) as start:
                block = _TileBlock(first, start, f.min(plan.tiles, f.sub(tiles, start)))
                self._transform_data(writer, pixels, block)
                self._multiply(writer, panels, block)
                self._transform_back(writer, to, outputs, block)
            finish_unit(plan.result, writer, number, outputs, rows)

    @contextlib.contextmanager
    def _tiles(self, f: Function, block: _TileBlock) -> Iterator[tuple[Index, Index, Index]]:
        """The tiles of a block: their number, and the first row and column of their results."""
        m = self.plan.filtering.outputs
        with span(f, 0, block.count) as tile:
            row, column = divide(f, f.add(block.start, tile), self.plan.grid[1])
            yield tile, f.mul(f.add(block.row, row), m), f.mul(column, m)

    def _transform_data(self, writer: ConvolutionWriter, pixels: Value, block: _TileBlock) -> None:
        f, plan, image = writer.f, self.plan, self.plan.strip.image
        how = plan.filtering.data, writer.dtype, plan.inputs, (image.row, image.pixel), plan.data_plane
        data = writer.area("data")
        with self._tiles(f, block) as (tile, row, column):
            source = writer.at(pixels, (row, image.row), (column, image.pixel))
            f.call_leaf("tile_data", write_tile, how, source, writer.at(data, (tile, plan.data_pitch)))

    def _multiply(self, writer: ConvolutionWriter, panels: Range, block: _TileBlock) -> None:
        f, plan, tiling = writer.f, self.plan, self.plan.tiling
        weights = writer.area("weights") if plan.packs else writer.second
        data, sums = writer.area("data"), writer.area("sums")
        low = min(tiling.heights())
        row_panels = f.min(tiling.row_panels, quotient(f, f.add(block.count, low - 1), low))
        with span(f, 0, plan.filtering.products) as product, span(f, *panels) as panel:
            b = writer.at(weights, (product, plan.weight_plane), (panel, plan.panel_elements))
            to = writer.at(sums, (product, plan.sums_plane), (f.sub(panel, panels[0]), tiling.width))
            source = writer.at(data, (product, plan.data_plane))
            with span(f, 0, row_panels) as row_panel:
                tile = row_start(f, tiling, row_panel)
                a, c = writer.at(source, (tile, plan.data_pitch)), writer.at(to, (tile, plan.sums_pitch))
                at = TileOperands(a, plan.data_pitch, 1, b, tiling.width, c, plan.sums_pitch, plan.inputs)
                call_tile(f, tiling, "rows", row_panel, panel, at)

    def _transform_back(self, writer: ConvolutionWriter, to: Value, outputs: Range, block: _TileBlock) -> None:
        f, plan = writer.f, self.plan
        _, line, pixel = plan.result.written
        lanes = f.target.lanes(writer.dtype)
        rest = plan.outputs % lanes if plan.parts == 1 or plan.outputs % lanes == 0 else None
        how = plan.filtering, writer.dtype, rest, plan.sums_plane, (line, pixel), plan.ragged
        sums, spare, count = writer.area("sums"), writer.area("spare"), f.sub(outputs[1], outputs[0])
        with self._tiles(f, block) as (tile, row, column):
            place = writer.at(to, (outputs[0], 1), (row, line), (column, pixel))
            left = f.sub(plan.size[0], row), f.sub(plan.size[1], column)
            source = writer.at(sums, (tile, plan.sums_pitch))
            f.call_leaf("tile_results", _write_results, how, source, place, spare, *left, count)


# -- transforms -----------------------------------------------------------------------------------------------------


def _write_weights(f: Function, filtering: Filtering, dtype: np.dtype, count: int, plane: int) -> None:
    """The body of ``void @filters(ptr taps, ptr to)``: transform ``count`` filters of one channel each, whose taps lie
    ``count`` elements apart."""
    (source, to), element = f.params, memory_type(dtype)
    parts = vector_parts(f, dtype, count, rest=count % f.target.lanes(dtype))
    read = grid_of(f, source, (TAPS * count, count), element)
    written = grid_of(f, to, (filtering.side * plane, plane), element)
    write_transforms(f, filtering.weights, dtype, parts, read, written)


def _write_results(
    f: Function, filtering: Filtering, dtype: np.dtype, rest: int | None, plane: int, strides: tuple[int, int],
    ragged: bool,
) -> None:  # fmt: skip
    """The body of ``void @results(ptr sums, ptr to, ptr spare, i64 rows, i64 columns, i64 count)``: transform the
    products of a tile back, for ``count`` filters; what lies beside the rows and columns goes to ``spare``."""
    source, to, spare, rows, columns, count = f.params
    element, m = memory_type(dtype), filtering.outputs
    plain = grid_of(f, to, strides, element)
    places = {(i, j): plain(i, j) for i in range(m) for j in range(m)}
    if ragged:
        inside = {
            (left, k): f.compare("icmp sgt", left, f.index(k)) for left in (rows, columns) for k in range(1, m)
        }  # fmt: skip
        for (i, j), place in places.items():
            conditions = [inside[left, k] for left, k in ((rows, i), (columns, j)) if k]
            for condition in conditions:
                place = f.select(condition, place, spare)
            places[i, j] = place
    parts = vector_parts(f, dtype, count, rest=None if f.target.isa.predicated else rest)
    read = grid_of(f, source, (filtering.side * plane, plane), element)
    write_transforms(f, filtering.results, dtype, parts, read, lambda i, j: places[i, j])
