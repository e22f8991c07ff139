"""Weights of a convolution, packed for the tiles: ``[phase][group][panel][i][j][c][filters of the panel]``.

What is packed are the weights of *phases*, the forward convolutions that a kernel consists of (``taps``).
Where neither filters nor channels are contiguous, but the taps are, a matrix of taps × filters is transposed for each
channel. Phases take every second tap or so: there all taps of a channel are transposed into a small buffer once, of
which each phase copies its own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.convolution.images import ConvolutionWriter, WeightStrides
from staticgrad.compiler.emit.convolution.schedule import Chunks
from staticgrad.compiler.emit.convolution.taps import Taps
from staticgrad.compiler.emit.llvm import Index, Value
from staticgrad.compiler.emit.microkernel import by_width, fill_zero, span
from staticgrad.compiler.emit.parallel import divide
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.tiles import Tiling

SHARED_BYTES = 256 << 10  # of packed weights: fewer are packed before another thread is awake


@frozen
class Phase:
    """A forward convolution for the pixels of a result with one remainder along each axis."""

    taps: tuple[Taps, Taps]
    kernel: tuple[int, int]
    channels: int  # that one tap sums over; 0 if no tap reaches the phase: its pixels are zero
    weights: WeightStrides
    run: bool  # the taps of a filter row and their channels are contiguous
    tiling: Tiling
    tap_rows: int  # filter rows of one pass
    left: int  # taps of a row that the first pixel of a row leaves out
    right: int  # and the last one
    packed: int  # where its packed weights start, in elements; without other panels, where those of a panel do

    @property
    def panel_elements(self) -> int:
        return self.kernel[0] * self.kernel[1] * self.channels * self.tiling.width


@frozen
class WeightPacking:
    """The packed layout of the weights of all phases."""

    phases: tuple[Phase, ...]
    groups: int
    outputs: int  # of one group
    whole: WeightStrides  # with all taps of the kernel
    kernel: tuple[int, int]
    buffer: int  # elements of the buffer through which phases are packed; 0 where each is packed by itself

    @staticmethod
    def choose(kernel: Convolution, phases: tuple[Phase, ...], groups: int, outputs: int) -> WeightPacking:
        """The packing of the weights of ``kernel``."""
        o, c, i, j = kernel.w_strides
        back = kernel.direction == "input_grad"
        whole = WeightStrides(0, kernel.filters // kernel.groups * o, c if back else o, o if back else c, i, j)
        alike = len({phase.tiling.width for phase in phases}) == 1
        apart = any(phase.weights.taps(phase.kernel) is None for phase in phases if phase.panel_elements)
        regular = whole.taps(kernel.kernel) is not None and whole.out != 1 and whole.input != 1
        width = phases[0].tiling.width if alike and apart and regular else 0
        return WeightPacking(phases, groups, outputs, whole, kernel.kernel, kernel.kernel[0] * kernel.kernel[1] * width)

    @property
    def panels(self) -> int:
        """The number of column panels of one group; the same for phases whose tilings are alike."""
        return self.phases[0].tiling.column_panels

    def pack_all(self, writer: ConvolutionWriter) -> None:
        """Pack all panels of all phases into the area ``weights``."""
        f, to, buffer = writer.f, writer.area("weights"), writer.area("buffer")
        for phases in (self.phases,) if self.buffer else ((phase,) for phase in self.phases):
            with span(f, 0, self.groups) as group, span(f, 0, phases[0].tiling.column_panels) as panel:
                self._pack(writer, phases, to, buffer, group, panel)

    def worth_sharing(self, kernel: Convolution, target: Target) -> bool:
        """True if panels are packed by several threads: they are many, and those of all phases go together."""
        elements = self.groups * sum(phase.tiling.column_panels * phase.panel_elements for phase in self.phases)
        together = (len(self.phases) == 1 or self.buffer > 0) and self.groups * self.panels > 1
        return together and elements * kernel.dtype.itemsize >= target.sized(SHARED_BYTES)

    def share(self, chunks: Chunks) -> None:
        """Pack all panels, each of them as a chunk. Workers have their buffer where they will have their strips."""
        part, writer = chunks.open("pack")
        to, buffer = writer.area("weights"), writer.area("strip")
        self._pack(writer, self.phases, to, buffer, *divide(part.f, part.chunk, self.panels))
        chunks.run(part.f.finish(), self.groups * self.panels)

    def _pack(
        self, writer: ConvolutionWriter, phases: Sequence[Phase], to: Value, buffer: Value, group: Index, panel: Index
    ) -> None:
        """Pack one panel of some phases, where it belongs behind ``to``; what it lacks of filters is zero."""
        f, tiling = writer.f, phases[0].tiling
        places = [
            writer.at(f.offset(to, phase.packed, writer.element),
                      (group, tiling.column_panels * phase.panel_elements), (panel, phase.panel_elements))
            for phase in phases
        ]  # fmt: skip
        pack = self._pack_through if self.buffer else _pack_phase
        by_width(f, tiling, panel, self.outputs, functools.partial(pack, writer, phases, places, buffer, group, panel))

    def _pack_through(
        self, writer: ConvolutionWriter, phases: Sequence[Phase], places: Sequence[Value], buffer: Value, group: Index,
        panel: Index, columns: int,
    ) -> None:  # fmt: skip
        """Pack one panel of all phases: the taps of a channel are transposed into the buffer, and taken from there."""
        f, width, whole, (kh, kw) = writer.f, phases[0].tiling.width, self.whole, self.kernel
        base = writer.at(writer.second, (group, whole.group), (f.mul(panel, width), whole.out))
        if columns < width:
            fill_zero(f, writer.dtype, buffer, self.buffer)
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
