"""Weights of a convolution, packed for the tiles as a ``WeightPacking`` says, by one thread or by several."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from staticgrad.compiler.emit.convolution.schedule import Chunks
from staticgrad.compiler.emit.convolution.writer import ConvolutionWriter
from staticgrad.compiler.emit.llvm import Index, Value
from staticgrad.compiler.emit.microkernel import by_width, fill_zero, span
from staticgrad.compiler.emit.parallel import divide
from staticgrad.compiler.plans.convolution.packing import Phase, WeightPacking


def pack_weights(packing: WeightPacking, writer: ConvolutionWriter) -> None:
    """Pack all panels of all phases into the area ``weights``."""
    f, to, buffer = writer.f, writer.area("weights"), writer.area("buffer")
    for phases in (packing.phases,) if packing.buffer else ((phase,) for phase in packing.phases):
        with span(f, 0, packing.groups) as group, span(f, 0, phases[0].tiling.column_panels) as panel:
            _pack(packing, writer, phases, to, buffer, group, panel)


def share_packing(packing: WeightPacking, chunks: Chunks) -> None:
    """Pack all panels, each of them as a chunk. Workers have their buffer where they will have their strips."""
    part, writer = chunks.open("pack")
    to, buffer = writer.area("weights"), writer.area("strip")
    _pack(packing, writer, packing.phases, to, buffer, *divide(part.f, part.chunk, packing.panels))
    chunks.run(part.f.finish(), packing.groups * packing.panels)


def _pack(
    packing: WeightPacking, writer: ConvolutionWriter, phases: Sequence[Phase], to: Value, buffer: Value, group: Index,
    panel: Index,
) -> None:  # fmt: skip
    """Pack one panel of some phases, where it belongs from ``to`` on; what it lacks of filters is zero."""
    f, tiling = writer.f, phases[0].tiling
    places = [
        writer.at(f.offset(to, phase.packed, writer.element),
                  (group, tiling.column_panels * phase.panel_elements), (panel, phase.panel_elements))
        for phase in phases
    ]  # fmt: skip
    pack = functools.partial(_pack_through, packing) if packing.buffer else _pack_phase
    by_width(f, tiling, panel, packing.outputs, functools.partial(pack, writer, phases, places, buffer, group, panel))


def _pack_through(
    packing: WeightPacking, writer: ConvolutionWriter, phases: Sequence[Phase], places: Sequence[Value], buffer: Value,
    group: Index, panel: Index, columns: int,
) -> None:  # fmt: skip
    """Pack one panel of all phases: the taps of a channel are transposed into the buffer, and taken from there."""
    f, width, whole, (kh, kw) = writer.f, phases[0].tiling.width, packing.whole, packing.kernel
    base = writer.at(writer.second, (group, whole.group), (f.mul(panel, width), whole.out))
    if columns < width:
        fill_zero(f, writer.dtype, buffer, packing.buffer)
    with span(f, 0, max(phase.channels for phase in phases)) as c:
        taps = (kh, kw * width, whole.i), (kw, width, whole.j)
        writer.rearrange(buffer, writer.at(base, (c, whole.input)), *taps, (columns, 1, whole.out))
        for phase, at in zip(phases, places, strict=True):
            if phase.panel_elements == 0:
                continue
            (vertical, horizontal), (rows, beside), tap = phase.taps, phase.kernel, phase.channels * width
            source = f.offset(buffer, (vertical.start * kw + horizontal.start) * width, writer.element)
            down = rows, beside * tap, vertical.stride * kw * width
            across = beside, tap, horizontal.stride * width
            writer.rearrange(f.offset(at, f.mul(c, width), writer.element), source, down, across, (width, 1, 1))


def _pack_phase(
    writer: ConvolutionWriter, phases: Sequence[Phase], places: Sequence[Value], _: Value, group: Index, panel: Index,
    columns: int,
) -> None:  # fmt: skip
    """Pack one panel of the only phase."""
    (phase,), (at,), f = phases, places, writer.f
    weights, channels, (kh, kw), width = phase.weights, phase.channels, phase.kernel, phase.tiling.width
    if phase.panel_elements == 0:
        return
    if columns < width:
        fill_zero(f, writer.dtype, at, phase.panel_elements)
    source = f.offset(writer.second, weights.offset, writer.element)
    source = writer.at(source, (group, weights.group), (f.mul(panel, width), weights.out))
    taps = (kh, kw * channels * width, weights.i), (kw, channels * width, weights.j)
    writer.rearrange(at, source, *taps, (channels, width, weights.input), (columns, 1, weights.out))
