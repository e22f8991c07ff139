"""Strips of framed images, filled for a block of rows, and what the next block will need.

Input: a ``Strip``, and a range of rows of the result. Output: the rows of the image that these need, copied into the
strip.

Images as users hold them, in planes, are scattered: the rows of a block are one piece of memory for each of the
channels. While a block is computed, the lines of the next one are prefetched, a few between any two tiles, so that
bringing images into this form and results out of it costs what it costs from the second cache.
"""

from __future__ import annotations

from staticgrad.base.extents import is_open, is_same
from staticgrad.compiler.emit.convolution.prefetch import PrefetchLines
from staticgrad.compiler.emit.convolution.taps import within
from staticgrad.compiler.emit.convolution.writer import ConvolutionWriter, Range
from staticgrad.compiler.emit.llvm import Function, Index, Value
from staticgrad.compiler.emit.microkernel import fill_zero, span
from staticgrad.compiler.emit.parallel import quotient
from staticgrad.compiler.plans.convolution.strips import Strip


def _frame_rows(strip: Strip, f: Function, block: Range) -> Range:
    """The rows of the frame that a block reads, whether they are in the image or not."""
    low = quotient(f, block[0], strip.spacing)
    end = quotient(f, f.add(block[1], strip.spacing - 1), strip.spacing)
    return (
        f.add(f.mul(low, strip.step), strip.first),
        f.add(f.mul(f.sub(end, 1), strip.step), strip.first + strip.reach),
    )


def clear_strip(strip: Strip, writer: ConvolutionWriter, to: Value) -> None:
    """Zero what lies left and right of the image: no block writes there."""
    f, image = writer.f, strip.image
    w0, w1 = image.inside(1)
    left, right = w0 + image.offset[1], w1 + image.offset[1]
    if image.in_place or (left == 0 and is_same(right, image.width)):
        return
    with span(f, 0, image.groups * strip.rows) as row:
        at = writer.at(to, (row, image.row))
        fill_zero(f, writer.dtype, at, left * image.pixel)
        fill_zero(f, writer.dtype, writer.at(at, (right, image.pixel)), (image.width - right) * image.pixel)


def fill_strip(
    strip: Strip, writer: ConvolutionWriter, number: Index, block: Range, to: Value, source: Value | None = None
) -> Value:
    """Bring the rows that a block reads of image ``number`` into the strip; where row 0 of the frame would be. Images
    are the first operand's, unless another ``source`` is named."""
    f, image = writer.f, strip.image
    base = writer.at(writer.first if source is None else source, (number, image.strides[0]))
    if image.in_place:
        return base
    low, high = _frame_rows(strip, f, block)
    origin = writer.at(to, (low, -image.row))
    offset = image.offset[0]
    rows = f.max(f.sub(low, offset), 0), f.min(f.sub(high, offset), image.size[0])
    writer.frame_rows(image, base, origin, strip.group, rows)
    return origin


def fill_framed_strip(
    strip: Strip, writer: ConvolutionWriter, number: Index, block: Range, to: Value, source: Value | None = None
) -> Value:
    """``fill_strip`` with zeros in the rows of the frame that lie above and below the image."""
    f, image = writer.f, strip.image
    if not image.in_place:
        low, high = _frame_rows(strip, f, block)
        needed = f.sub(high, low)
        inside = within(f, f.sub(low, image.offset[0]), 1, image.size[0], needed)
        writer.clear_around(to, image.row, needed, inside)
    return fill_strip(strip, writer, number, block, to, source)


def strip_ahead(strip: Strip, writer: ConvolutionWriter, number: Index, block: Range) -> list[PrefetchLines]:
    """The memory that ``fill`` will read for a block, where it is one piece or one for each channel."""
    f, image = writer.f, strip.image
    if image.in_place:
        return []
    shared = max(0, strip.reach - strip.step)  # rows that the block above prefetches as well
    low = f.sub(_frame_rows(strip, f, block)[0], image.offset[0])
    row = f.max(f.add(low, f.min(block[0], shared)), 0)
    base = writer.at(writer.first, (number, image.strides[0]), (row, image.strides[2]))
    rows = strip.rows - shared
    rows = rows if is_open(image.size[0]) else min(rows, image.size[0])
    return PrefetchLines.of_rows(writer, base, image.groups * image.channels, rows, image.size[1], image.strides[1:])
