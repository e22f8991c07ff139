"""Sums in a fixed tree: the parts of a sum come in, in order, its total goes out.

    tree(parts) ::= the part, if it is one | tree(the first 2**k parts) + tree(the rest), 2**k the largest below their
                    number

This is pairwise summation by the number of a part: the error grows with the logarithm of how many there are (Higham,
*The accuracy of floating point summation*, 1993). Which parts come together follows from their numbers alone. A run of
2**k parts that begins at a multiple of 2**k is a subtree: whoever adds up such a run gives a part of a higher level,
and the total has the same bits. ``TreeSum`` holds one partial sum for each bit of the number of parts so far.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from staticgrad.graph.optable import Array


class TreeSum:
    """The sum of what is added, part by part, each of which is a list of arrays that become its own."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[tuple[int, Sequence[Array]]] = []  # levels and partial sums, the first parts first

    def add(self, part: Sequence[Array]) -> None:
        """Add the next part. All are of one level, but for the last one, which may be of fewer leaves."""
        level = 0
        while self._parts and self._parts[-1][0] == level:
            _, before = self._parts.pop()
            part, level = _plus(before, part), level + 1
        self._parts.append((level, part))

    def total(self) -> Sequence[Array]:
        """The sum of all parts, of which there is at least one. Nothing may be added afterwards."""
        _, total = self._parts.pop()
        while self._parts:
            total = _plus(self._parts.pop()[1], total)
        return total


def _plus(before: Sequence[Array], after: Sequence[Array]) -> Sequence[Array]:
    for a, b in zip(before, after, strict=True):
        np.add(a, b, out=a)
    return before
