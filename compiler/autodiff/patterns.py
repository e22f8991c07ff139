"""Patterns: which elements of a tensor depend on which of ``width`` sources, as values without a graph.

    Pattern ::= a row of a table for each element of a tensor; the rows of the table in CSR form, row 0 empty

Elements that depend on the same sources share a row: repeating or moving elements moves the numbers of rows and touches
none of the sources, and an element that depends on nothing has row 0. Four functions make patterns of others, and every
rule of ``sparsity.py`` is one of them: ``taken`` moves elements, ``joined`` unites two tensors of one shape element by
element, ``grouped`` unites elements given by pairs, ``Pattern.only`` leaves elements out. NumPy does all of it over
whole arrays; no function has a loop over elements.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.graph.optable import Array

FLAGS = 1 << 26  # cells of a table of flags, a byte each, that serves in the place of sorting
COMPACTED = 4  # rows for each element: a table from which rows are dropped that none refers to


@frozen(eq=False)
class Pattern:
    """The sources on which each element depends: those of element e are ``indices[indptr[r] : indptr[r + 1]]``, in
    ascending order, with ``r = rows[e]``."""

    rows: Array
    indptr: Array
    indices: Array
    width: int

    @property
    def size(self) -> int:
        return len(self.rows)

    @property
    def counts(self) -> Array:
        """The number of sources of each row of the table."""
        return np.diff(self.indptr)

    def only(self, chosen: Array) -> Pattern:
        """The pattern without the elements that are not ``chosen``, which depend on nothing then."""
        return self if chosen.all() else Pattern(np.where(chosen, self.rows, 0), self.indptr, self.indices, self.width)

    def pairs(self) -> tuple[Array, Array]:
        """The number of each element once for each of its sources, and these, in CSR order."""
        return _spread(self.rows, self.indptr, self.indices)

    @property
    def dependent(self) -> bool:
        """True if some element depends on a source."""
        return bool(self.rows.any()) and bool(self.counts[self.rows].any())


def identity(width: int) -> Pattern:
    """The pattern of the sources themselves."""
    numbers = np.arange(width)
    return Pattern(numbers + 1, np.concatenate([[0], np.arange(width + 1)]), numbers, width)


def from_pairs(elements: Array, sources: Array, size: int, width: int) -> Pattern:
    """The pattern of ``size`` elements that depend on sources as pairs say, which may repeat and have no order."""
    keys = _distinct(elements, sources, size, width)
    found, indices = np.divmod(keys, max(width, 1))
    counts = np.bincount(found, minlength=size)
    indptr = np.concatenate([[0, 0], np.cumsum(counts)])
    return Pattern(np.where(counts > 0, np.arange(1, size + 1), 0), indptr, indices, width)


def taken(pattern: Pattern, numbers: Array) -> Pattern:
    """The pattern of a tensor whose elements are those with these ``numbers`` of another one; -1 is no element."""
    numbers = numbers.ravel()
    if len(numbers) and numbers.min() < 0:
        rows = np.where(numbers < 0, 0, pattern.rows[numbers] if pattern.size else 0)
    else:
        rows = pattern.rows[numbers]
    return _compact(Pattern(rows, pattern.indptr, pattern.indices, pattern.width))


def chained(patterns: Sequence[Pattern | None], sizes: Sequence[int]) -> Pattern | None:
    """The pattern of tensors one after the other; None stands for one that depends on nothing."""
    known = [p for p in patterns if p is not None]
    if not known:
        return None
    table = _Table(known)
    rows = [np.zeros(n, np.int64) if p is None else table.rows_of(p) for p, n in zip(patterns, sizes, strict=True)]
    return table.pattern(np.concatenate(rows))


def joined(p: Pattern | None, q: Pattern | None) -> Pattern | None:
    """The pattern of a tensor whose elements depend on what those of two tensors of its size do."""
    if p is None or q is None:
        return q if p is None else p
    if p is q:
        return p
    table = _Table([p, q])
    a, b = table.rows_of(p), table.rows_of(q)
    both = (a != b) & (a > 0) & (b > 0)
    rows = np.where(b > 0, b, a)
    if both.any():
        a, b = a[both], b[both]
        height = len(table.indptr) - 1
        keys = a * height + b
        fewer = min(len(p.indptr), len(q.indptr)) * 4 < len(keys)  # rows that many elements share
        if fewer:
            keys, places = np.unique(keys, return_inverse=True)
            a, b = np.divmod(keys, height)
        else:
            places = np.arange(len(keys))
        groups = np.arange(len(a))
        made = _grouped_rows(np.concatenate([groups, groups]), np.concatenate([a, b]), len(a), table)
        whole = table.and_those_of(made)
        rows[both] = whole.rows_of(made)[places]
        return whole.pattern(rows)
    return table.pattern(rows)


def grouped(pattern: Pattern, results: Array, operands: Array, size: int) -> Pattern:
    """The pattern of a tensor of ``size`` elements, each of which depends on all elements of the operand with which it
    is in a pair: ``results[k]`` is the number of an element, ``operands[k]`` that of one of the operand."""
    rows = pattern.rows[operands.ravel()]
    return _grouped_rows(results.ravel(), rows, size, _Table([pattern]))


def dense(pattern: Pattern, size: int) -> Pattern:
    """The pattern of ``size`` elements that depend on all that ``pattern`` has."""
    one = grouped(pattern, np.zeros(pattern.size, np.int64), np.arange(pattern.size), 1)
    return taken(one, np.zeros(size, np.int64))


def same(p: Pattern | None, q: Pattern | None) -> bool:
    """True if two patterns of tensors of one size are equal."""
    if p is None or q is None:
        return (p is None or not p.dependent) and (q is None or not q.dependent)
    return all(np.array_equal(a, b) for a, b in zip(p.pairs(), q.pairs(), strict=True))


# -- tables of rows ---------------------------------------------------------------------------------------------------


class _Table:
    """The tables of some patterns one after the other, each table once, with one empty row in front."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self.width = patterns[0].width
        self._first: dict[int, int] = {}  # by the identity of a table, the number before that of its row 1
        self._parts: list[Pattern] = []
        height = 0
        for p in patterns:
            if id(p.indptr) not in self._first:
                self._first[id(p.indptr)] = height
                self._parts.append(p)
                height += len(p.indptr) - 2
        if len(self._parts) == 1:
            self.indptr, self.indices = patterns[0].indptr, patterns[0].indices
            return
        starts = np.cumsum([0, *(len(p.indices) for p in self._parts)])
        self.indptr = np.concatenate(
            [[0], *(p.indptr[1:-1] + n for p, n in zip(self._parts, starts, strict=False)), starts[-1:]]
        )
        self.indices = np.concatenate([p.indices for p in self._parts])

    def rows_of(self, pattern: Pattern) -> Array:
        first = self._first[id(pattern.indptr)]
        return np.where(pattern.rows > 0, pattern.rows + first, 0) if first else pattern.rows

    def pattern(self, rows: Array) -> Pattern:
        return _compact(Pattern(rows, self.indptr, self.indices, self.width))

    def and_those_of(self, other: Pattern) -> _Table:
        """This table and, behind it, another one."""
        return _Table([Pattern(other.rows, self.indptr, self.indices, self.width), other])


def _compact(pattern: Pattern) -> Pattern:
    """The pattern without rows of its table that no element has, where these are many."""
    if len(pattern.indptr) <= COMPACTED * pattern.size + 16:
        return pattern
    used, rows = np.unique(np.concatenate([[0], pattern.rows]), return_inverse=True)
    _, indices = _spread(used, pattern.indptr, pattern.indices)
    indptr = np.concatenate([[0], np.cumsum(pattern.counts[used])])
    return Pattern(rows[1:], indptr, indices, pattern.width)


def _spread(rows: Array, indptr: Array, indices: Array) -> tuple[Array, Array]:
    """The number of each of ``rows`` once for each source of that row of the table, and the sources."""
    counts = np.diff(indptr)[rows]
    elements = np.repeat(np.arange(len(rows)), counts)
    ends = np.cumsum(counts)
    places = np.arange(len(elements)) + np.repeat(indptr[rows] - ends + counts, counts)
    return elements, indices[places]


def _grouped_rows(groups: Array, rows: Array, size: int, table: _Table) -> Pattern:
    """The pattern of ``size`` elements, of which ``groups[k]`` depends on what row ``rows[k]`` of a table has."""
    some = rows > 0
    if not some.all():
        groups, rows = groups[some], rows[some]
    height = len(table.indptr) - 1
    if len(rows) > 2 * height or len(rows) > 2 * size:  # then pairs repeat, or rows are long
        groups, rows = np.divmod(_distinct(groups, rows, size, height), height)
    found, sources = _spread(rows, table.indptr, table.indices)
    return from_pairs(groups[found], sources, size, table.width)


def _distinct(first: Array, second: Array, height: int, width: int) -> Array:
    """The keys ``first * width + second`` in ascending order, each once."""
    keys = first * width + second
    cells = height * width
    if cells <= FLAGS and cells <= 16 * len(keys):
        flags = np.zeros(cells, bool)
        flags[keys] = True
        return np.flatnonzero(flags)
    keys.sort()
    if len(keys) > 1:
        first_of_kind = np.concatenate([[True], keys[1:] != keys[:-1]])
        if not first_of_kind.all():
            keys = keys[first_of_kind]
    return keys
