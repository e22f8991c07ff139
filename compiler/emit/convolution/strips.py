"""Strips of framed images: the rows that a block of rows of a result needs, and what the next block will need.

Input: an image tensor in any order of axes, and a range of rows. Output: these rows channels last, as
``[group][row][column][channel]``, framed left and right with zeros. Rows above and below the image are left as they
are: no tap that would read one is computed. Images that have this form in the caller's memory are read where they lie.

Images as users hold them, in planes, are scattered: the rows of a block are as many pieces of memory as there are
channels. While a block is computed, the lines of the next one are prefetched, a few between any two tiles, so that
bringing images into this form and results out of it costs what it costs from the second cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from staticgrad.base.extents import is_open, is_same
from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.convolution.images import ConvolutionWriter, Image
from staticgrad.compiler.emit.convolution.plan import Range
from staticgrad.compiler.emit.convolution.prefetch import PrefetchLines
from staticgrad.compiler.emit.convolution.taps import Taps
from staticgrad.compiler.emit.llvm import Function, Index, Value
from staticgrad.compiler.emit.microkernel import fill_zero, span
from staticgrad.compiler.emit.parallel import quotient


@frozen
class Strip:
    """The rows of ``image`` that a block of rows of a result reads: for the block from row ``p`` on these begin at row
    ``first + p / spacing · step`` of the frame."""

    image: Image
    first: int
    step: int
    spacing: int
    reach: int  # rows that one row of the result, or one of each phase, needs
    rows: int  # that a whole block needs

    @staticmethod
    def choose(image: Image, vertical: Sequence[Taps], block: int) -> Strip:
        """The strip for blocks of ``block`` rows of a result that consists of these phases."""
        reaching = [taps for taps in vertical if taps.number > 0]
        first = min((taps.origin for taps in reaching), default=0)
        last = max((taps.origin + (taps.number - 1) * taps.dilation for taps in reaching), default=0)
        step, spacing, reach = vertical[0].step, vertical[0].spacing, last - first + 1
        return Strip(image, first, step, spacing, reach, (-(-block // spacing) - 1) * step + reach)

    @property
    def group(self) -> int:
        """Elements from group to group."""
        return self.rows * self.image.row

    @property
    def elements(self) -> int:
        return 0 if self.image.in_place else self.image.groups * self.group

    def frame_rows(self, f: Function, block: Range) -> Range:
        """The rows of the frame that a block reads, whether they are in the image or not."""
        low = quotient(f, block[0], self.spacing)
        end = quotient(f, f.add(block[1], self.spacing - 1), self.spacing)
        return (
            f.add(f.mul(low, self.step), self.first),
            f.add(f.mul(f.sub(end, 1), self.step), self.first + self.reach),
        )

    def clear(self, writer: ConvolutionWriter, to: Value) -> None:
        """Zero what lies left and right of the image: no block writes there."""
        f, image = writer.f, self.image
        w0, w1 = image.inside(1)
        left, right = w0 + image.offset[1], w1 + image.offset[1]
        if image.in_place or (left == 0 and is_same(right, image.width)):
            return
        with span(f, 0, image.groups * self.rows) as row:
            at = writer.at(to, (row, image.row))
            fill_zero(f, writer.dtype, at, left * image.pixel)
            fill_zero(f, writer.dtype, writer.at(at, (right, image.pixel)), (image.width - right) * image.pixel)

    def fill(self, writer: ConvolutionWriter, number: Index, block: Range, to: Value) -> Value:
        """Bring the rows that a block reads of image ``number`` into the strip; where row 0 of the frame would be."""
        f, image = writer.f, self.image
        base = writer.at(writer.first, (number, image.strides[0]))
        if image.in_place:
            return base
        low, high = self.frame_rows(f, block)
        origin = writer.at(to, (low, -image.row))
        offset = image.offset[0]
        rows = f.max(f.sub(low, offset), 0), f.min(f.sub(high, offset), image.size[0])
        writer.frame_rows(image, base, origin, self.group, rows)
        return origin

    def ahead(self, writer: ConvolutionWriter, number: Index, block: Range) -> list[PrefetchLines]:
        """The memory that ``fill`` will read for a block, where it is one piece or one for each channel."""
        f, image = writer.f, self.image
        if image.in_place:
            return []
        shared = max(0, self.reach - self.step)  # rows that the block above prefetches as well
        low = f.sub(self.frame_rows(f, block)[0], image.offset[0])
        row = f.max(f.add(low, f.min(block[0], shared)), 0)
        base = writer.at(writer.first, (number, image.strides[0]), (row, image.strides[2]))
        rows = self.rows - shared
        rows = rows if is_open(image.size[0]) else min(rows, image.size[0])
        return PrefetchLines.of_rows(
            writer, base, image.groups * image.channels, rows, image.size[1], image.strides[1:]
        )
