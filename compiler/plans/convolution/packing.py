"""Weights of a convolution, packed for the tiles: ``[phase][group][panel][i][j][c][filters of the panel]``.

What is packed are the weights of *phases*, the forward convolutions that a kernel consists of (``taps``).
Where neither filters nor channels are contiguous, but the taps are, a matrix of taps × filters is transposed for each
channel. Phases take every second tap or so: there all taps of a channel are transposed into a small buffer once, of
which each phase copies its own.
"""

from __future__ import annotations

from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.convolution.images import WeightStrides
from staticgrad.compiler.plans.convolution.taps import Taps
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

    def worth_sharing(self, kernel: Convolution, target: Target) -> bool:
        """True if panels are packed by several threads: they are many, and those of all phases go together."""
        elements = self.groups * sum(phase.tiling.column_panels * phase.panel_elements for phase in self.phases)
        together = (len(self.phases) == 1 or self.buffer > 0) and self.groups * self.panels > 1
        return together and elements * kernel.dtype.itemsize >= target.sized(SHARED_BYTES)
