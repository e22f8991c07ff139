"""Weights of a convolution, packed for the tiles: ``[phase][group][panel][i][j][c][filters of the panel]``.

What is packed are the weights of *phases*, the forward convolutions that a kernel consists of (``taps``).
Where neither filters nor channels are contiguous, but the taps are, a matrix of taps × filters is transposed for each
channel. Phases take every second tap or so: there all taps of a channel are transposed into a small buffer once, of
which each phase copies its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from staticgrad.compiler.emit.convolution.images import ConvolutionWriter, WeightStrides
from staticgrad.compiler.emit.convolution.schedule import Chunks
from staticgrad.compiler.emit.convolution.taps import Taps
from staticgrad.compiler.emit.llvm import Index, Value
from staticgrad.compiler.emit.microkernel import Matrix, Tiling, aligned_bytes, fill_zero, span
from staticgrad.compiler.emit.parallel import divide
from staticgrad.compiler.emit.target import Target
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.frozen import frozen

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

    def buffer_bytes(self, kernel: Convolution) -> int:
        return aligned_bytes(self.buffer, kernel.dtype)

    def pack_all(self, writer: ConvolutionWriter, to: Value, buffer: Value) -> None:
        """All panels of all phases."""
        if self.buffer:
            self._pack_panels(writer, self.phases, to, buffer)
        else:
            for phase in self.phases:
                self._pack_panels(writer, (phase,), to, buffer)

    def worth_sharing(self, kernel: Convolution, target: Target) -> bool:
        """True if panels are packed by several threads: they are many, and those of all phases go together."""
        elements = self.groups * sum(phase.tiling.column_panels * phase.panel_elements for phase in self.phases)
        together = (len(self.phases) == 1 or self.buffer > 0) and self.groups * self.panels > 1
        return together and elements * kernel.dtype.itemsize >= target.sized(SHARED_BYTES)

    def share(self, chunks: Chunks) -> None:
        """All panels, each of them a chunk. Workers have their buffer where they will have their strips."""
        part, writer = chunks.open("pack")
        f, to, width = part.f, writer.area("weights"), self.phases[0].tiling.width
        buffer, whole = writer.area("strip"), self.outputs // width
        group, panel = divide(f, part.chunk, self.panels)
        if whole:
            with span(f, panel, f.min(f.add(panel, 1), whole)) as number:
                self._pack_at(writer, self.phases, to, buffer, group, number, width)
        if whole < self.panels:  # turns for the last panel
            with span(f, whole, f.add(panel, 1)):
                self._pack_at(writer, self.phases, to, buffer, group, whole, self.outputs - whole * width)
        chunks.run(f.finish(), self.groups * self.panels)

    def _pack_panels(self, writer: ConvolutionWriter, phases: Sequence[Phase], to: Value, buffer: Value) -> None:
        f, tiling = writer.f, phases[0].tiling
        whole = self.outputs // tiling.width
        with span(f, 0, self.groups) as group:
            if whole:
                with span(f, 0, whole) as panel:
                    self._pack_at(writer, phases, to, buffer, group, panel, tiling.width)
            if whole < tiling.column_panels:
                self._pack_at(writer, phases, to, buffer, group, whole, self.outputs - whole * tiling.width)

    def _pack_at(
        self, writer: ConvolutionWriter, phases: Sequence[Phase], to: Value, buffer: Value, group: Index, panel: Index,
        columns: int,
    ) -> None:  # fmt: skip
        """One panel of some phases, where it belongs behind ``to``."""
        f, panels = writer.f, phases[0].tiling.column_panels
        places = [
            writer.at(f.offset(to, phase.packed, writer.element),
                      (group, panels * phase.panel_elements), (panel, phase.panel_elements))
            for phase in phases
        ]  # fmt: skip
        self._pack_panel(writer, phases, places, buffer, group, panel, columns)

    def _pack_panel(
        self, writer: ConvolutionWriter, phases: Sequence[Phase], places: Sequence[Value], buffer: Value, group: Index,
        panel: Index, columns: int,
    ) -> None:  # fmt: skip
        if self.buffer:
            self._pack_through(writer, phases, places, buffer, group, panel, columns)
            return
        for phase, at in zip(phases, places, strict=True):
            _pack_phase(writer, phase, at, group, panel, columns)

    def _pack_through(
        self, writer: ConvolutionWriter, phases: Sequence[Phase], places: Sequence[Value], buffer: Value, group: Index,
        panel: Index, columns: int,
    ) -> None:  # fmt: skip
        """One panel of all phases: the taps of a channel are transposed into the buffer, and taken from there."""
        f, width, whole, (kh, kw) = writer.f, phases[0].tiling.width, self.whole, self.kernel
        taps = whole.taps(self.kernel) or 0
        base = writer.at(writer.second, (group, whole.group), (f.mul(panel, width), whole.out))
        if columns < width:
            fill_zero(f, writer.dtype, buffer, self.buffer)
        channels = max(phase.channels for phase in phases)
        with span(f, 0, channels) as c:
            origin = Matrix(writer.at(base, (c, whole.input)), taps, whole.out)
            writer.copy(Matrix(buffer, width, 1), origin, kh * kw, columns)
            for phase, at in zip(phases, places, strict=True):
                if phase.panel_elements == 0:
                    continue
                vertical, horizontal = phase.taps
                line = f.offset(at, f.mul(c, width), writer.element)
                with span(f, 0, phase.kernel[0]) as i:
                    row = f.add(f.mul(i, vertical.stride), vertical.start)
                    source = writer.at(buffer, (f.add(f.mul(row, kw), horizontal.start), width))
                    to = writer.at(line, (i, phase.kernel[1] * phase.channels * width))
                    writer.copy(Matrix(to, phase.channels * width, 1), Matrix(source, horizontal.stride * width, 1),
                                phase.kernel[1], width)  # fmt: skip


def _pack_phase(writer: ConvolutionWriter, phase: Phase, at: Value, group: Index, panel: Index, columns: int) -> None:
    """One panel of one phase, zero where it lacks filters."""
    f, weights = writer.f, phase.weights
    channels, (kh, kw), width = phase.channels, phase.kernel, phase.tiling.width
    if phase.panel_elements == 0:
        return
    taps = weights.taps(phase.kernel)
    by_channel = weights.out != 1 and weights.input != 1 and kh * kw > 1
    if columns < width:
        fill_zero(f, writer.dtype, at, phase.panel_elements)
    source = f.offset(writer.second, weights.offset, writer.element)
    base = writer.at(source, (group, weights.group), (f.mul(panel, width), weights.out))
    if by_channel and taps is not None:  # for each channel, a matrix of taps × filters
        with span(f, 0, channels) as c:
            line, origin = writer.at(at, (c, width)), writer.at(base, (c, weights.input))
            pack_taps(writer, line, channels * width, origin, taps, weights.out, kh * kw, columns)
        return
    with span(f, 0, kh) as i, span(f, 0, kw) as j:
        tap = f.add(f.mul(i, kw), j)
        origin = writer.at(base, (i, weights.i), (j, weights.j))
        target = writer.at(at, (tap, channels * width))
        writer.copy(Matrix(target, width, 1), Matrix(origin, weights.input, weights.out), channels, columns)


def pack_taps(
    writer: ConvolutionWriter, to: Value, row: int, source: Value, taps: int, out: int, count: int, columns: int
) -> None:
    """A matrix of ``count`` taps × filters, which lie ``taps`` and ``out`` elements apart, as rows ``row`` elements
    apart. Flipped taps, whose stride is negative, are read forwards and written backwards."""
    last, step = (count - 1, -row) if taps < 0 else (0, row)
    origin = Matrix(writer.at(source, (last, taps)), abs(taps), out)
    writer.copy(Matrix(writer.at(to, (last, row)), step, 1), origin, count, columns)
