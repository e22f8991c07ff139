"""Writes ``DepthwisePlanes``: planes framed, or read where they lie, and their tiles."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

from staticgrad.compiler.emit.convolution.plane_tile import call_plane_tile, frame_rows
from staticgrad.compiler.emit.convolution.prefetch import PrefetchRuns
from staticgrad.compiler.emit.convolution.schedule import UnitsEmitter, each_unit
from staticgrad.compiler.emit.convolution.small_plane_tile import call_small_plane_tile
from staticgrad.compiler.emit.convolution.taps import within
from staticgrad.compiler.emit.convolution.unstage import finish_unit, place_unit
from staticgrad.compiler.emit.convolution.writer import ConvolutionWriter, Range
from staticgrad.compiler.emit.llvm import Function, Index, Value, vector
from staticgrad.compiler.emit.microkernel import fill_zero, span
from staticgrad.compiler.emit.nest.reduction import across_lanes
from staticgrad.compiler.plans.convolution.depthwise_planes import DepthwisePlanes, PhaseTile, PlaneFrame
from staticgrad.compiler.plans.convolution.plane_tile import PlaneTile
from staticgrad.compiler.plans.tiles import tile_lanes


def _fill(layout: PlaneFrame, writer: ConvolutionWriter, frame: Value, plane: Value, block: Index, ahead: int) -> None:
    """Bring the rows for a block into the frame, whose margins are zero."""
    f, image = writer.f, layout.image
    (h0, h1), (w0, w1) = image.inside(0), image.inside(1)
    if w0 >= w1 or h0 >= h1:
        return
    top = f.sub(f.mul(block, layout.step), image.offset[0])  # the row of the image on top of the frame
    low, high = within(f, top, 1, image.size[0], layout.rows)
    if not isinstance(block, int):  # else they stay as they were cleared
        writer.clear_around(frame, layout.row, layout.rows, (low, high))
    row = writer.at(frame, (low, layout.row))
    first = w0 + image.offset[1]
    to, other = (f.offset(row, layout.place(at), writer.element) for at in (first, first + 1))
    source = writer.at(plane, (f.add(top, low), image.strides[2]), (w0, image.strides[3]))
    shape = image.strides[2], f.sub(high, low), w1 - w0
    frame_rows(f, writer.dtype, layout.deals, to, other, layout.row, source, *shape, ahead)


@contextlib.contextmanager
def _each(
    layout: PlaneFrame,
    writer: ConvolutionWriter,
    frames: Value,
    planes: Value,
    channels: Range,
    block: Index,
    ahead: int,
) -> Iterator[tuple[Index, Value]]:
    """Channels of an image, and the frame or plane of each; ``ahead`` is how far from the first those lie that
    come after all that are framed at a time."""
    f, (_, s_c, s_h, _) = writer.f, layout.image.strides
    if layout.rows == 0:
        with span(f, *channels) as channel:
            plane = writer.at(planes, (channel, s_c))
            _ask_for(writer, writer.at(plane, (ahead, 1)), layout.image.size[0], s_h)
            yield channel, plane
        return
    with span(f, *channels, layout.together) as first:
        some = first, f.min(f.add(first, layout.together), channels[1])
        with span(f, *some) as channel:
            frame = writer.at(frames, (f.sub(channel, first), layout.elements))
            _fill(layout, writer, frame, writer.at(planes, (channel, s_c)), block, ahead)
        with span(f, *some) as channel:
            yield channel, writer.at(frames, (f.sub(channel, first), layout.elements))


def _ask_for(writer: ConvolutionWriter, at: Value, rows: int, row: int) -> None:
    """Prefetch some rows of a plane into the second cache."""
    PrefetchRuns(at, max(1, abs(rows * row) * writer.dtype.itemsize), near=False).ask(writer)


def _call(phase: PhaseTile, f: Function, x: Value, w: Value, y: Value) -> None:
    """Call the function for the tile."""
    if isinstance(phase.tile, PlaneTile):
        call_plane_tile(f, phase.tile, x, w, y)
    else:
        call_small_plane_tile(f, phase.tile, x, w, y)


class DepthwisePlanesEmitter(UnitsEmitter[DepthwisePlanes]):
    def work(self, writer: ConvolutionWriter, chunk: Value | None) -> None:
        f, plan, frames = writer.f, self.plan, writer.area("frames")
        fill_zero(f, writer.dtype, frames, plan.frame.together * plan.frame.elements)
        with each_unit(plan.units, f, chunk) as (number, channels):
            if plan.by_weights:
                self._add_up(writer, frames, channels)
            else:
                with span(f, 0, plan.blocks) as block:
                    self._store(writer, frames, number, channels, block)

    def _store(self, writer: ConvolutionWriter, frames: Value, number: Index, channels: Range, block: Index) -> None:
        """Write a block of rows of some channels of an image."""
        f, plan, image, (s_c, s_p, _) = writer.f, self.plan, self.plan.frame.image, self.plan.result.written
        first = f.mul(block, plan.block)
        base = place_unit(plan.result, writer, number, channels[0], first)
        planes = writer.at(writer.first, (number, image.strides[0]))
        ahead = image.strides[1] * plan.frame.lookahead // plan.blocks
        with _each(plan.frame, writer, frames, planes, channels, block, ahead) as (channel, x):
            w = writer.at(writer.second, (channel, plan.kernel.w_strides[0]))
            y = writer.at(base, (channel, s_c), (first, s_p))
            for rows in plan.tiles:
                from_ = f.offset(x, rows.origin * plan.frame.row, writer.element)
                to = f.offset(y, rows.first * s_p, writer.element)
                _call(rows, f, from_, w, to)
        finish_unit(plan.result, writer, number, channels, (first, f.add(first, plan.block)))

    def _add_up(self, writer: ConvolutionWriter, frames: Value, channels: Range) -> None:
        """Add up the weights of some channels, each in a vector of sums, and store them."""
        f, plan = writer.f, self.plan
        (kh, kw), lanes = plan.kernel.kernel, tile_lanes(writer.f.target, writer.dtype)
        sums = writer.area("sums")
        to, (o, _, i, j) = self._weights(writer), plan.result.strides if plan.result.stored else plan.result.block
        fill_zero(f, writer.dtype, sums, plan.units.rows * kh * kw * lanes)
        if plan.kernel.batch and plan.blocks:
            with span(f, 0, plan.kernel.batch) as number, span(f, 0, plan.blocks) as block:
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
        if self.plan.by_weights:
            kh, kw = self.plan.kernel.kernel
            writer.finish(self._weights(writer), [(0, self.plan.kernel.channels), (0, 1), (0, kh), (0, kw)])

    def _add(
        self, writer: ConvolutionWriter, frames: Value, sums: Value, number: Index, channels: Range, block: Index
    ) -> None:
        """Add the products of one block of some channels of an image to their sums."""
        f, plan = writer.f, self.plan
        image, frame, (s_n, s_c, s_p, _) = plan.frame.image, plan.frame, plan.kernel.y_strides
        if plan.blocks > 1:
            ahead, following = frame.step * image.strides[2], plan.block * s_p
        elif plan.units.rows > frame.together:  # what comes next is mostly the next channel
            ahead, following = image.strides[1] * frame.lookahead, s_c * frame.lookahead
        else:
            ahead, following = image.strides[0], s_n
        planes = writer.at(writer.first, (number, image.strides[0]))
        channel_sums = math.prod(plan.kernel.kernel) * tile_lanes(f.target, writer.dtype)
        with _each(frame, writer, frames, planes, channels, block, ahead) as (channel, x):
            y = writer.at(writer.second, (number, s_n), (channel, s_c))
            y = writer.at(y, (f.mul(block, plan.block), s_p))
            _ask_for(writer, writer.at(y, (following, 1)), plan.block, s_p)
            own_sums = writer.at(sums, (f.sub(channel, channels[0]), channel_sums))
            for rows in plan.tiles:
                _call(rows, f, x, own_sums, y)
