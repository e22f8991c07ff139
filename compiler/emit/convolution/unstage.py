"""The results of units: where tiles write them, and how they are brought into their place.

Input: the result's strides, and those of a scratch block. Output: where tiles write, in the result or in the scratch
block of a worker; the copy from there, and the call of the epilogue.
"""

from __future__ import annotations

import math

from staticgrad.base.extents import highest, lowest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.convolution.images import ConvolutionWriter
from staticgrad.compiler.emit.convolution.plan import Range
from staticgrad.compiler.emit.llvm import Index, Value
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.machine import PAGE

Strides = tuple[int, int, int, int]  # n, o, p, q


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
        """The text of the way in which rows get where they belong, behind a semicolon; "" where tiles write there."""
        return "" if self.direct else "; rows of the result by way of scratch memory"

    @property
    def written(self) -> tuple[int, int, int]:
        """The strides of outputs, rows and pixels where tiles write."""
        return (self.strides if self.direct else self.block)[1:]

    def elements(self, count: int) -> int:
        """The elements of a scratch block of that number of rows, or planes."""
        return 0 if self.direct else count * max(map(highest, self.block))

    def place(self, writer: ConvolutionWriter, number: Index, output: Index, row: Index) -> Value:
        """The address at which tiles write the first element of image ``number``; the scratch block, the worker's area
        ``tile``, begins with this output and row."""
        if self.direct:
            return writer.at(writer.result_pointer, (number, self.strides[0]))
        return writer.at(writer.area("tile"), (output, -self.block[1]), (row, -self.block[2]))

    def finish(self, writer: ConvolutionWriter, number: Index, outputs: Range, rows: Range) -> None:
        """Bring a unit where it belongs, and call the epilogue."""
        f, raw = writer.f, writer.result
        if raw is None:
            raw = self.place(writer, number, outputs[0], rows[0])
        elif not self.direct:
            (r_n, r_o, r_p, r_q), (_, _, line, pixel) = self.strides, self.block
            crowded = self.outputs > _lines_kept(highest(r_o) * writer.dtype.itemsize)
            to = writer.at(raw, (number, r_n), (rows[0], r_p))
            axes = (f.sub(rows[1], rows[0]), r_p, line), (self.columns, r_q, pixel), (self.outputs, r_o, 1)
            writer.rearrange(to, writer.area("tile"), *axes, least=lowest(self.columns), along_source=not crowded)
        writer.finish(raw, [(number, f.add(number, 1)), outputs, rows, (0, self.columns)])


def _lines_kept(stride: int) -> int:
    """The number of lines, ``stride`` bytes apart, that the first cache keeps: eight in a set, in as many sets as they
    reach."""
    return 8 * min(64, PAGE // math.gcd(stride, PAGE))
