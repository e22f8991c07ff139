"""Colouring: which columns of a sparse matrix one pass can compute together.

Input: the places of a matrix that may differ from zero, in CSR order. Output: a colour for each column, such that the
sums of the columns of each colour tell every element: no row has two elements in columns of one colour, or, of a
symmetric matrix, one of the two elements that are equal stands alone in its sum (a *star colouring*: every path over
four columns has at least three colours).

Both are greedy: columns in turn get the smallest colour that is free, in their own order, then by falling numbers of
elements if more colours than the least possible were found. Sets of colours are bits of integers, so that the work is
proportional to the elements; a column's number modulo the longest row is tried first, which is best for bands.

The definitions, and that a greedy order finds few colours: A. Gebremedhin, F. Manne and A. Pothen, "What Color Is Your
Jacobian? Graph Coloring for Computing Derivatives", SIAM Review 47 (2005); star colouring by two colours at a time: A.
Gebremedhin, A. Tarafdar, F. Manne and A. Pothen, "New Acyclic and Star Coloring Algorithms with Application to
Computing Hessians", SIAM Journal on Scientific Computing 29 (2007).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.graph.optable import Array


@frozen(eq=False)
class Coloring:
    """A colour of each column, from 0, and their number. The element at place k of the matrix is the one in row
    ``rows[k]`` of the sum of the columns of colour ``reads[k]``, where it stands alone."""

    colors: Array
    count: int
    rows: Array
    reads: Array


def fewest(rows: Array, height: int) -> int:
    """The number of colours that columns need at least: the elements of the longest row."""
    return int(np.bincount(rows, minlength=1).max()) if len(rows) and height else 0


def columns_colored(rows: Array, cols: Array, shape: tuple[int, int]) -> Coloring:
    """Colours of columns of which no two have elements in one row."""
    height, width = shape
    least = fewest(rows, height)
    colors = _by_remainder(rows, cols, height, width, least)
    if colors is None:
        found = []
        by_column = np.lexsort((rows, cols))
        counts = np.bincount(cols, minlength=width)
        indptr, indices = np.concatenate([[0], np.cumsum(counts)]).tolist(), rows[by_column].tolist()
        for order in (range(width), np.argsort(-counts, kind="stable").tolist()):
            found.append(_greedy(order, indptr, indices, height, width))
            if found[-1].max(initial=-1) + 1 == least:
                break
        colors = min(found, key=lambda c: int(c.max(initial=-1)))
    count = int(colors.max(initial=-1)) + 1
    return Coloring(colors, count, rows, colors[cols])


def symmetric_colored(rows: Array, cols: Array, size: int) -> Coloring:
    """Colours of the columns of a symmetric matrix, whose two triangles are both given."""
    plain = columns_colored(rows, cols, (size, size))
    if plain.count <= 3:  # a path over four columns needs three as well
        return plain
    off = rows != cols
    counts = np.bincount(rows[off], minlength=size)
    indptr, indices = np.concatenate([[0], np.cumsum(counts)]).tolist(), cols[off].tolist()
    best = plain
    for order in (range(size), np.argsort(-counts, kind="stable").tolist()):
        if found := _star(order, indptr, indices, size, best.count):
            best = _alone(np.array(found, np.int64), rows, cols)
    return best


def _by_remainder(rows: Array, cols: Array, height: int, width: int, least: int) -> Array | None:
    """The columns' numbers modulo the fewest colours, if these are colours."""
    if not least:
        return np.zeros(width, np.int64)
    colors = np.arange(width) % least
    keys = rows * least + colors[cols]
    if height * least <= 8 * len(keys):
        return colors if np.bincount(keys).max() == 1 else None
    return colors if len(np.unique(keys)) == len(keys) else None


def _greedy(order: Iterable[int], indptr: list[int], indices: list[int], height: int, width: int) -> Array:
    """The smallest colour that no earlier column has with an element in a common row."""
    taken = [0] * height  # the colours of each row, as bits
    colors = [0] * width
    for column in order:
        met = indices[indptr[column] : indptr[column + 1]]
        used = 0
        for row in met:
            used |= taken[row]
        bit = ~used & (used + 1)
        colors[column] = bit.bit_length() - 1
        for row in met:
            taken[row] |= bit
    return np.array(colors, np.int64)


def _star(order: Iterable[int], indptr: list[int], indices: list[int], size: int, most: int) -> list[int]:
    """A star colouring; nothing where it takes ``most`` colours.

    Of each column bits tell which colours its neighbours have (``seen``), which at least two of them have (``twice``),
    and (``barred``) the colours of those neighbours that have another neighbour of its own colour: to give one of these
    to a neighbour would make a path of two colours.
    """
    seen, twice, barred = [0] * size, [0] * size, [0] * size
    bits = [0] * size  # 1 << colour, 0 as long as there is none
    for v in order:
        near = indices[indptr[v] : indptr[v + 1]]
        own, used = twice[v], seen[v]
        for w in near:
            if bit := bits[w]:
                used |= seen[w] if bit & own else barred[w]
        bit = ~used & (used + 1)
        if bit >> (most - 1):
            return []
        bits[v] = bit
        mine = 0
        for w in near:
            if twice[w] & bit:
                mine |= bits[w]
            elif seen[w] & bit:
                twice[w] |= bit
                mine |= bits[w]
                if other := bits[w]:
                    for u in indices[indptr[w] : indptr[w + 1]]:
                        if bits[u] == bit:
                            barred[u] |= other
            else:
                seen[w] |= bit
            if bits[w] & own:
                barred[w] |= bit
        barred[v] |= mine
    return [bit.bit_length() - 1 for bit in bits]


def _alone(colors: Array, rows: Array, cols: Array) -> Coloring:
    """Colours, with the place where each element of a symmetric matrix stands alone: in its own row, or in the row of
    the element that is equal to it."""
    count = int(colors.max()) + 1
    keys = rows * count + colors[cols]
    _, places, times = np.unique(keys, return_inverse=True, return_counts=True)
    here = times[places] == 1
    return Coloring(colors, count, np.where(here, rows, cols), np.where(here, colors[cols], colors[rows]))
