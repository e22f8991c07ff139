"""Prefetches while something else is computed, a part at a time.

Operands of convolutions lie in many short pieces of memory, which no hardware prefetcher foresees. So between any two
tiles some lines are prefetched of what the next unit, segment or panel will read: all tiles together prefetch all of
it. Input: addresses, strides and sizes of the pieces, and the part that is prefetched of how many. Output: the loop.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from staticgrad.base.extents import at_most, highest, is_same
from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.convolution.writer import ConvolutionWriter, Range
from staticgrad.compiler.emit.lanes import prefetch
from staticgrad.compiler.emit.llvm import Function, Index, Value
from staticgrad.compiler.emit.microkernel import span
from staticgrad.compiler.emit.parallel import divide
from staticgrad.compiler.machine.machine import LINE

TOGETHER = 4  # lines whose address is computed once


@frozen
class PrefetchRuns:
    """Runs of ``nbytes`` each, from ``base`` on, for all indices of some ranges and their strides in elements; they go
    into the first cache if they are needed ``near`` at hand, else into the second. Where runs are short the lines of
    one are ``unrolled``."""

    base: Value
    nbytes: int
    pieces: tuple[tuple[Range, Index], ...] = ()
    near: bool = True
    unrolled: bool = False

    def ask(self, writer: ConvolutionWriter, part: Index = 0, parts: int = 1) -> None:
        """Ask for one of ``parts`` parts of every run."""
        f, lines = writer.f, -(-self.nbytes // (LINE * parts))
        if at_most(lines, 0):
            return
        start = f.offset(self.base, f.mul(part, lines * LINE), "i8")
        with contextlib.ExitStack() as loops:
            indices = [(loops.enter_context(span(f, *ends)), stride) for ends, stride in self.pieces]
            at = writer.at(start, *indices)
            if self.unrolled:
                for line in range(lines):
                    prefetch(f, f.offset(at, line * LINE, "i8"), near=self.near)
            else:
                with span(f, 0, lines) as number:
                    prefetch(f, f.offset(at, f.mul(number, LINE), "i8"), near=self.near)


@frozen
class PrefetchLines:
    """Memory that will be used: ``count`` pieces, ``stride`` elements apart, of ``lines`` cache lines each."""

    base: Value
    count: int
    stride: int
    lines: int

    @staticmethod
    def of_rows(
        writer: ConvolutionWriter, base: Value, channels: int, rows: int, columns: int, strides: tuple[int, int, int]
    ) -> list[PrefetchLines]:
        """Whole rows of an image (strides c, h, w) that follow each other, in all channels."""
        s_c, s_h, s_w = strides
        if channels * rows == 0:
            return []
        if s_w == 1 and is_same(s_h, columns):
            pieces = (1, 0, channels * rows * s_h) if is_same(s_c, rows * s_h) else (channels, s_c, rows * s_h)
        elif s_c == 1 and is_same(s_w, channels) and is_same(s_h, columns * s_w):
            pieces = (1, 0, rows * s_h)
        else:
            return []
        count, stride, run = pieces
        return [PrefetchLines(base, count, stride, -(-run * writer.dtype.itemsize // LINE))]

    def ask(self, f: Function, element: str, part: Index, parts: int) -> None:
        """Ask for one of ``parts`` parts of all lines."""
        together = min(highest(self.lines), TOGETHER)
        groups = -(-self.lines // together)
        total = self.count * groups
        share = -(-total // parts)
        low = f.mul(part, share)
        if isinstance(low, int) and at_most(total, low):
            return  # shares are rounded up, so that the last parts may be empty
        with f.loop(low, f.min(f.add(low, share), total)) as loop:
            piece, group = divide(f, loop.index, groups)
            at = f.offset(self.base, f.mul(piece, self.stride), element)
            at = f.offset(at, f.mul(group, together * LINE), "i8")
            for line in range(together):
                prefetch(f, f.offset(at, line * LINE, "i8"))


@frozen
class Ahead:
    """Lines that are asked for a part at a time: the parts from number ``first`` on, of ``parts``."""

    lines: Sequence[PrefetchLines]
    first: Index
    parts: int

    def ask(self, writer: ConvolutionWriter, number: Index) -> None:
        """Ask for part ``number`` of these."""
        for lines in self.lines:
            lines.ask(writer.f, writer.element, writer.f.add(self.first, number), self.parts)
