"""Writes ``WinogradWeights``: tiles of x and of y brought and transformed for a segment, their products added up, and
complete sums transformed to weights."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import numpy as np

from staticgrad.compiler.emit.convolution.filtering import grid_of, write_tile, write_transforms
from staticgrad.compiler.emit.convolution.planes import Segment
from staticgrad.compiler.emit.convolution.schedule import SegmentsEmitter
from staticgrad.compiler.emit.convolution.strips import clear_strip, fill_framed_strip
from staticgrad.compiler.emit.convolution.weights_store import finish_weights, store_sums, weights_of
from staticgrad.compiler.emit.convolution.writer import ConvolutionWriter, Range
from staticgrad.compiler.emit.lanes import vector_parts
from staticgrad.compiler.emit.llvm import Function, Index, Value, memory_type
from staticgrad.compiler.emit.microkernel import TileOperands, by_width, call_tile, row_start, rows_of, span
from staticgrad.compiler.emit.parallel import divide, quotient
from staticgrad.compiler.plans.convolution.filtering import TAPS, Filtering, transposed
from staticgrad.compiler.plans.convolution.weights_winograd import WinogradWeights


class WinogradWeightsEmitter(SegmentsEmitter[WinogradWeights]):
    def bring(self, writer: ConvolutionWriter, segment: Segment, pieces: Range) -> None:
        """Transform the tiles of some pieces."""
        f, plan, m = writer.f, self.plan, self.plan.filtering.outputs
        high = plan.piece * m
        for of, name in ((plan.x, "x_strip"), (plan.y, "y_strip")):
            clear_strip(of.strip, writer, writer.area(name))
        with span(f, *pieces) as piece:
            place, band = divide(f, piece, plan.bands)
            first = f.add(segment.rows[0], f.mul(band, high))
            image = f.add(segment.images[0], place)
            with self._if_there(f, segment, image, first):
                rows = (
                    first,
                    f.mul(f.min(f.add(quotient(f, first, m), plan.piece), self._tile_rows(f, segment.rows[1])), m),
                )
                before = f.add(
                    f.mul(place, self._tile_rows(f, f.sub(segment.rows[1], segment.rows[0]))), f.mul(band, plan.piece)
                )
                number = f.mul(before, plan.grid[1])
                matrices = plan.filtering.data, transposed(plan.filtering.results)
                for name, matrix in zip(("x", "y"), matrices, strict=True):
                    self._transform(writer, name, matrix, image, rows, number)

    def _tile_rows(self, f: Function, rows: Index) -> Index:
        """The rows of tiles that have ``rows`` rows of pixels."""
        m = self.plan.filtering.outputs
        return quotient(f, f.add(rows, m - 1), m)

    @contextlib.contextmanager
    def _if_there(self, f: Function, segment: Segment, image: Index, first: Index) -> Iterator[None]:
        """Do it if a piece has an image and rows; the last segment may have fewer than others."""
        with contextlib.ExitStack() as conditions:
            for index, end in ((image, segment.images[1]), (first, segment.rows[1])):
                if not (isinstance(index, int) and isinstance(end, int)):
                    conditions.enter_context(f.when(f.compare("icmp slt", f.index(index), f.index(end))))
            yield

    def _transform(
        self, writer: ConvolutionWriter, name: str, matrix: tuple[tuple[float, ...], ...], number: Index, rows: Range,
        first: Index,
    ) -> None:  # fmt: skip
        """Transform the tiles in some rows of an image; ``first`` is the number of the first of them."""
        f, plan, m = writer.f, self.plan, self.plan.filtering.outputs
        of, source = (plan.x, writer.first) if name == "x" else (plan.y, writer.second)
        image = of.strip.image
        pixels = fill_framed_strip(of.strip, writer, number, rows, writer.area(f"{name}_strip"), source)
        pixels = writer.at(pixels, (rows[0], image.row))
        to = writer.at(writer.area(name), (first, of.pitch))
        how = matrix, writer.dtype, image.channels, (image.row, image.pixel), of.plane
        with span(f, 0, quotient(f, f.sub(rows[1], rows[0]), m)) as row, span(f, 0, plan.grid[1]) as column:
            tile = f.add(f.mul(row, plan.grid[1]), column)
            at = writer.at(pixels, (row, m * image.row), (column, m * image.pixel))
            f.call_leaf(f"tile_{name}", write_tile, how, at, writer.at(to, (tile, of.pitch)))

    def add_segment(self, writer: ConvolutionWriter, sums: Value, segment: Segment, later: Index, units: Range) -> None:
        """Add the products of a segment's tiles for some panels of channels."""
        f, plan, tiling = writer.f, self.plan, self.plan.tiling
        x, y = writer.area("x"), writer.area("y")
        rows = self._tile_rows(f, f.sub(segment.rows[1], segment.rows[0]))
        tiles = f.mul(segment.count(f), f.mul(rows, plan.grid[1]))
        with span(f, 0, plan.filtering.products) as product, span(f, 0, tiling.column_panels) as panel:
            to = writer.at(sums, (product, plan.sums_plane), (panel, tiling.m * tiling.width))
            a = writer.at(x, (product, plan.x.plane))
            b = writer.at(y, (product, plan.y.plane), (panel, tiling.width))
            with span(f, *units) as row_panel:
                channel = row_start(f, tiling, row_panel)
                rows_of_a, c = writer.at(a, (channel, 1)), writer.at(to, (channel, tiling.width))
                at = TileOperands(rows_of_a, 1, plan.x.pitch, b, plan.y.pitch, c, tiling.width, tiles, later)
                call_tile(f, tiling, "columns", row_panel, panel, at)

    def finish_units(self, writer: ConvolutionWriter, sums: Value, units: Range) -> None:
        f, plan, tiling = writer.f, self.plan, self.plan.tiling
        channels = rows_of(f, tiling, *units)
        with span(f, 0, tiling.column_panels) as panel:
            at = writer.at(sums, (panel, tiling.m * tiling.width), (channels[0], tiling.width))
            count = f.mul(f.sub(channels[1], channels[0]), tiling.width)
            how = plan.filtering, writer.dtype, plan.sums_plane
            f.call_leaf("filter_sums", _write_sums, how, at, count)
            write = functools.partial(self._store, writer, at, f.mul(panel, tiling.width), channels)
            by_width(f, tiling, panel, plan.kernel.filters, write)
        finish_weights(writer, weights_of(writer)[0], (0, plan.kernel.filters), channels)

    def _store(self, writer: ConvolutionWriter, sums: Value, first: Index, channels: Range, count: int) -> None:
        """Copy the weights of ``count`` filters from number ``first`` on."""
        plane, width = self.plan.sums_plane, self.plan.tiling.width
        strides, least = (1, width, TAPS * plane, plane), max(1, self.plan.tiling.rows - 1)
        store_sums(writer, sums, strides, first, count, channels, least, False)

    def finish(self, writer: ConvolutionWriter, sums: Value) -> None:
        self.finish_units(writer, sums, (0, self.plan.tiling.row_panels))


def _write_sums(f: Function, filtering: Filtering, dtype: np.dtype, plane: int) -> None:
    """The body of ``void @sums(ptr sums, i64 count)``: transform sums over tiles to weights, which take the place of
    the first 3×3 of the n×n."""
    (sums, count), element = f.params, memory_type(dtype)
    read, written = (grid_of(f, sums, (side * plane, plane), element) for side in (filtering.side, TAPS))
    write_transforms(f, transposed(filtering.weights), dtype, vector_parts(f, dtype, count, rest=0), read, written)
