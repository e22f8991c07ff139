"""Blocks of rows of a result whose tiles have channels beside each other: where they are written and how they are
brought into their place.

Input: the result's strides, and how far pixels of a scratch block lie apart. Output: where tiles write, in the
result if its channels are contiguous, else in the scratch block; the copy from there, and the call of the epilogue.
"""

from __future__ import annotations

import math

from staticgrad.compiler.emit.convolution.images import ConvolutionWriter
from staticgrad.compiler.emit.convolution.plan import Range
from staticgrad.compiler.emit.llvm import Index, Value
from staticgrad.compiler.emit.machine import PAGE
from staticgrad.compiler.emit.microkernel import Matrix, span
from staticgrad.frozen import frozen


@frozen
class ResultRows:
    """The rows of the result of one image, ``columns`` pixels of ``outputs`` channels each."""

    strides: tuple[int, int, int, int]  # n, o, p, q
    outputs: int
    columns: int
    stored: bool  # the kernel stores its raw result
    pixel: int  # elements from pixel to pixel in the scratch block
    together: bool  # rows that lie behind each other are copied as one run

    @property
    def direct(self) -> bool:
        """Tiles are written into the result."""
        return self.stored and (self.strides[1] == 1 or self.outputs == 1)

    @property
    def raw_strides(self) -> tuple[int, int, int, int]:
        """The strides of the scratch block in which the epilogue finds a result that is not stored."""
        return 0, 1, self.columns * self.pixel, self.pixel

    @property
    def text(self) -> str:
        """The text of the way in which rows get where they belong, behind a semicolon; "" where tiles write there."""
        return "" if self.direct else "; rows of the result by way of scratch memory"

    def elements(self, rows: int) -> int:
        """The elements of a scratch block of so many rows."""
        return 0 if self.direct else rows * self.columns * self.pixel

    def place(self, writer: ConvolutionWriter, tile: Value, number: Index, first: Index) -> tuple[Value, int, int]:
        """The address at which tiles write row 0 of image ``number``, and the strides of rows and pixels there; the
        scratch block at ``tile`` begins with row ``first``."""
        if self.direct:
            return writer.at(writer.result_pointer, (number, self.strides[0])), self.strides[2], self.strides[3]
        row = self.columns * self.pixel
        return writer.at(tile, (first, -row)), row, self.pixel

    def finish(self, writer: ConvolutionWriter, tile: Value, number: Index, rows: Range) -> None:
        """Bring a block of rows where it belongs, and call the epilogue."""
        f, raw, line = writer.f, writer.result, self.columns * self.pixel
        if raw is None:
            raw = writer.at(tile, (rows[0], -line))
        elif not self.direct:
            r_n, r_o, r_p, r_q = self.strides
            to = writer.at(raw, (number, r_n), (rows[0], r_p))
            count = f.sub(rows[1], rows[0])
            crowded = self.outputs > _lines_kept(r_o * writer.dtype.itemsize)
            if self.together and r_p == self.columns * r_q:
                pixels, run = Matrix(tile, 1, self.pixel), f.mul(count, self.columns)
                writer.copy(Matrix(to, r_o, r_q), pixels, self.outputs, run, self.columns, along_source=not crowded)
            else:
                with span(f, 0, count) as p:
                    target = Matrix(writer.at(to, (p, r_p)), r_o, r_q)
                    source = Matrix(writer.at(tile, (p, line)), 1, self.pixel)
                    writer.copy(target, source, self.outputs, self.columns)
        writer.finish(raw, [(number, f.add(number, 1)), (0, self.outputs), rows, (0, self.columns)])


def _lines_kept(stride: int) -> int:
    """The number of lines, ``stride`` bytes apart, that the first cache keeps: eight in a set, in as many sets as they
    reach."""
    return 8 * min(64, PAGE // math.gcd(stride, PAGE))
