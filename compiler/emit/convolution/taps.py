"""The rows of images and results that taps reach, as indices of the function that is written."""

from __future__ import annotations

from staticgrad.compiler.emit.convolution.writer import Range
from staticgrad.compiler.emit.llvm import Function, Index
from staticgrad.compiler.emit.parallel import quotient
from staticgrad.compiler.plans.convolution.images import Image
from staticgrad.compiler.plans.convolution.taps import Taps, all_inside


def phase_rows(f: Function, taps: Taps, block: Range) -> Range:
    """The rows t of a phase that lie in ``block`` of the result; the block starts at a multiple of the spacing."""
    low, high = block
    if taps.spacing == 1:
        return block
    if isinstance(low, int):  # the only block
        return 0, taps.count
    start = quotient(f, low, taps.spacing)
    count = quotient(f, f.add(f.sub(high, low), taps.spacing - 1 - taps.first), taps.spacing)
    return start, f.add(start, count)


def within(f: Function, origin: Index, step: int, size: int, count: Index) -> Range:
    """The t < ``count`` with 0 <= origin + t·step < size, as a range; it is empty where there are none."""

    def first(above: Index) -> Index:  # the first t with t·step >= above
        return f.min(count, quotient(f, f.add(f.max(above, 0), step - 1), step))

    return first(f.sub(0, origin)), first(f.sub(size, origin))


def reached(f: Function, taps: Taps, image: Image, t: Index) -> Range:
    """The taps, a range of their numbers, that read rows in the image for row ``t`` of a phase; it may be empty."""
    if taps.number == 0 or all_inside(taps, image):
        return 0, taps.number
    origin = f.add(f.mul(t, taps.step), taps.origin - image.offset[0])
    return within(f, origin, taps.dilation, image.size[0], taps.number)
