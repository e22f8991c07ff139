"""The results of units brought into their place.

Input: where tiles write a unit (``UnitResult``). Output: its address, in the result or in the scratch block of a
worker; the copy from there, and the call of the epilogue.
"""

from __future__ import annotations

import math

from staticgrad.base.extents import highest, lowest
from staticgrad.compiler.emit.convolution.writer import ConvolutionWriter, Range
from staticgrad.compiler.emit.llvm import Index, Value
from staticgrad.compiler.machine.machine import PAGE
from staticgrad.compiler.plans.convolution.unstage import UnitResult


def place_unit(result: UnitResult, writer: ConvolutionWriter, number: Index, output: Index, row: Index) -> Value:
    """The address at which tiles write the first element of image ``number``; the scratch block, the worker's area
    ``tile``, begins with this output and row."""
    if result.direct:
        return writer.at(writer.result_pointer, (number, result.strides[0]))
    return writer.at(writer.area("tile"), (output, -result.block[1]), (row, -result.block[2]))


def finish_unit(result: UnitResult, writer: ConvolutionWriter, number: Index, outputs: Range, rows: Range) -> None:
    """Bring a unit where it belongs, and call the epilogue."""
    f, raw = writer.f, writer.result
    if raw is None:
        raw = place_unit(result, writer, number, outputs[0], rows[0])
    elif not result.direct:
        (r_n, r_o, r_p, r_q), (_, _, line, pixel) = result.strides, result.block
        crowded = result.outputs > _lines_kept(highest(r_o) * writer.dtype.itemsize)
        to = writer.at(raw, (number, r_n), (rows[0], r_p))
        axes = (f.sub(rows[1], rows[0]), r_p, line), (result.columns, r_q, pixel), (result.outputs, r_o, 1)
        writer.rearrange(to, writer.area("tile"), *axes, least=lowest(result.columns), along_source=not crowded)
    writer.finish(raw, [(number, f.add(number, 1)), outputs, rows, (0, result.columns)])


def _lines_kept(stride: int) -> int:
    """The number of lines, ``stride`` bytes apart, that the first cache keeps: eight in a set, in as many sets as they
    reach."""
    return 8 * min(64, PAGE // math.gcd(stride, PAGE))
