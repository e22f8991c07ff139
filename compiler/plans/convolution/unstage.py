"""The results of units: whether tiles write them into the result, or into a scratch block of the worker."""

from __future__ import annotations

from staticgrad.base.extents import highest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.plans.convolution.images import Strides


@frozen
class UnitResult:
    """Some outputs and rows of the result of one image, ``columns`` pixels wide."""

    strides: Strides  # of the result
    block: Strides  # of the scratch block, in which an epilogue finds a result that is not stored
    outputs: int  # of all groups
    columns: int
    stored: bool  # the kernel stores its raw result
    direct: bool  # tiles write into the result

    @staticmethod
    def of_pixels(kernel: Convolution, pixel: int, direct: bool | None = None) -> UnitResult:
        """Whole rows, in the scratch block channels last, with pixels ``pixel`` elements apart. Tiles write into a
        result whose channels are contiguous, unless something else is said."""
        (_, outputs, _, columns), strides = kernel.result_sizes, kernel.result_strides
        direct = strides[1] == 1 or outputs == 1 if direct is None else direct
        block = (0, 1, columns * pixel, pixel)
        return UnitResult(strides, block, outputs, columns, kernel.store_raw, kernel.store_raw and direct)

    @staticmethod
    def of_planes(kernel: Convolution, rows: int) -> UnitResult:
        """Some rows of some outputs, in the scratch block plane by plane."""
        (_, outputs, _, columns), stored = kernel.result_sizes, kernel.store_raw
        return UnitResult(kernel.result_strides, (0, rows * columns, columns, 1), outputs, columns, stored, stored)

    @property
    def text(self) -> str:
        """The text of the way in which rows get where they belong, after a semicolon; "" where tiles write there."""
        return "" if self.direct else "; rows of the result by way of scratch memory"

    @property
    def written(self) -> tuple[int, int, int]:
        """The strides of outputs, rows and pixels where tiles write."""
        return (self.strides if self.direct else self.block)[1:]

    def elements(self, count: int) -> int:
        """The elements of a scratch block of that number of rows, or planes."""
        return 0 if self.direct else count * max(map(highest, self.block))
