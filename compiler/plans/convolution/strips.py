"""Strips of framed images: the rows that a block of rows of a result needs.

A strip has these rows channels last, as ``[group][row][column][channel]``, framed left and right with zeros. Rows above
and below the image are left as they are: no tap that would read one is computed. Images that have this form in the
caller's memory are read where they lie.
"""

from __future__ import annotations

from collections.abc import Sequence

from staticgrad.base.frozen import frozen
from staticgrad.compiler.plans.convolution.images import Image
from staticgrad.compiler.plans.convolution.taps import Taps


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
