"""The transforms of minimal filtering algorithms: straight-line code for P·X·Pᵀ of a small matrix of vectors.

Input: the coefficients of P, and what loads an element of X. Output: each element of the result, handed to what stores
it. Elements are vectors along channels or filters, so each lane is a transform of its own.

A column of P·X·Pᵀ needs few of the registers at a time, so columns are computed one after the other, and read the
elements of X that they need, once more where another column needs them too. Two rows of P that differ in the signs of
some entries are computed together, as a sum and a difference (the *butterfly* of fast transforms); so are two columns.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from staticgrad.compiler.emit.lanes import Lanes, VectorPart, vector_parts
from staticgrad.compiler.emit.llvm import Function, Index, Value, memory_type
from staticgrad.compiler.plans.convolution.filtering import Coefficients
from staticgrad.compiler.plans.tiles import round_up

Load = Callable[[int, int], Value]
Store = Callable[[int, int, Value], None]
Place = Callable[[int, int], Value]  # the address of an element, of the first of all transforms


def write_transforms(
    f: Function, matrix: Coefficients, dtype: np.dtype, parts: Sequence[VectorPart], read: Place, written: Place
) -> None:
    """Transform side by side what lies side by side at these addresses, in the turns of ``parts``."""
    element = memory_type(dtype)
    for part in parts:
        with part.turns() as (loop, some):
            write_transform(
                f,
                matrix,
                functools.partial(_load, f, some, read, loop.index, element),
                functools.partial(_store, f, some, written, loop.index, element),
            )


def _load(f: Function, some: Lanes, place: Place, index: Index, element: str, i: int, j: int) -> Value:
    return some.load(f, f.offset(place(i, j), index, element))


def _store(f: Function, some: Lanes, place: Place, index: Index, element: str, i: int, j: int, value: Value) -> None:
    some.store(f, value, f.offset(place(i, j), index, element))


def grid_of(f: Function, base: Value, strides: tuple[int, int], element: str) -> Place:
    """The places of elements that lie in rows and columns with these strides."""
    return lambda i, j: f.offset(base, i * strides[0] + j * strides[1], element)


def write_tile(
    f: Function, matrix: Coefficients, dtype: np.dtype, channels: int, strides: tuple[int, int], plane: int
) -> None:
    """The body of ``void @tile(ptr tile, ptr to)``: a tile of an image whose channels are contiguous, and may be read
    by whole vectors; elements of the transform lie ``plane`` apart."""
    (source, to), element = f.params, memory_type(dtype)
    parts = vector_parts(f, dtype, round_up(channels, f.target.lanes(dtype)), rest=0)
    places = grid_of(f, source, strides, element), grid_of(f, to, (len(matrix) * plane, plane), element)
    write_transforms(f, matrix, dtype, parts, *places)


def write_transform(f: Function, matrix: Coefficients, load: Load, store: Store) -> None:
    """Store the elements of P·X·Pᵀ, where ``load(i, j)`` is an element of X. Where two columns of P differ in the signs
    of some entries, all of X is loaded before anything is stored."""
    for group in _groups(matrix):
        along = [_apply(f, matrix, group, _Row(load, i)) for i in range(len(matrix[0]))]
        for place, column in enumerate(group):
            values = [row[place] for row in along]
            for rows in _groups(matrix):
                for row, value in zip(rows, _apply(f, matrix, rows, values.__getitem__), strict=True):
                    store(row, column, value)


class _Row:
    """A row of X, whose elements are loaded when they are first asked for."""

    def __init__(self, load: Load, row: int) -> None:
        self.load, self.row = load, row
        self.loaded: dict[int, Value] = {}

    def __call__(self, column: int) -> Value:
        if column not in self.loaded:
            self.loaded[column] = self.load(self.row, column)
        return self.loaded[column]


def _groups(matrix: Coefficients) -> list[tuple[int, ...]]:
    """The rows that are computed together: all where columns are, two whose entries differ in signs, or one."""
    if _column_pairs(matrix):
        return [tuple(range(len(matrix)))]
    groups: list[tuple[int, ...]] = []
    for row in range(len(matrix)):
        if groups and len(groups[-1]) == 1 and _split(matrix[groups[-1][0]], matrix[row]) is not None:
            groups[-1] = (groups[-1][0], row)
        else:
            groups.append((row,))
    return groups


def _split(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[list[int], list[int]] | None:
    """The places where two rows are equal, and those where they differ in sign, if they have no other ones, and some of
    both."""
    places = [place for place, pair in enumerate(zip(a, b, strict=True)) if any(pair)]
    same = [place for place in places if a[place] == b[place]]
    opposite = [place for place in places if a[place] == -b[place]]
    return (same, opposite) if same and opposite and len(same) + len(opposite) == len(places) else None


def _column_pairs(matrix: Coefficients) -> list[tuple[int, int]]:
    """The pairs of neighbouring columns that are equal but for signs."""
    columns = list(zip(*matrix, strict=True))
    return [(c, c + 1) for c in range(len(columns) - 1) if _split(columns[c], columns[c + 1]) is not None]


def _apply(f: Function, matrix: Coefficients, rows: tuple[int, ...], x: Callable[[int], Value]) -> list[Value]:
    """Some rows of P·x, those of a group."""
    pairs = _column_pairs(matrix)
    if pairs:
        return _from_pairs(f, matrix, pairs, x)
    if len(rows) == 1:
        return [_combined(f, enumerate(matrix[rows[0]]), x)]
    first, second = (matrix[row] for row in rows)
    split = _split(first, second)
    assert split is not None
    (even, scale), (odd, factor) = (_scaled(f, [(place, first[place]) for place in places], x) for places in split)
    if scale != 1:
        even = f.binary("fmul", even, f.const(scale, even.type))
    if factor == 1:
        return [f.binary("fadd", even, odd), f.binary("fsub", even, odd)]
    return [f.fma(f.const(sign * factor, even.type), odd, even) for sign in (1, -1)]


def _from_pairs(
    f: Function, matrix: Coefficients, pairs: list[tuple[int, int]], x: Callable[[int], Value]
) -> list[Value]:
    """All rows of P·x, from sums and differences of the elements of x that belong to pairs of columns."""
    values: dict[int, tuple[Value, Value]] = {}
    for first, second in pairs:
        a, b = x(first), x(second)
        values[first] = f.binary("fadd", a, b), f.binary("fsub", a, b)
    seconds = {second for _, second in pairs}
    results = []
    for row in matrix:
        terms: list[tuple[float, Value]] = []
        for place, coefficient in enumerate(row):
            if place in values and coefficient:
                terms.append((coefficient, values[place][coefficient != row[place + 1]]))
            elif place not in seconds and coefficient:
                terms.append((coefficient, x(place)))
        results.append(_sum(f, terms))
    return results


def _scaled(f: Function, terms: list[tuple[int, float]], x: Callable[[int], Value]) -> tuple[Value, float]:
    """A sum of multiples, without the factor that all of them have in common."""
    sizes = {abs(coefficient) for _, coefficient in terms}
    (size,) = sizes if len(sizes) == 1 else (1.0,)
    return _combined(f, [(place, coefficient / size) for place, coefficient in terms], x), size


def _combined(f: Function, terms: Iterable[tuple[int, float]], x: Callable[[int], Value]) -> Value:
    return _sum(f, [(coefficient, x(place)) for place, coefficient in terms if coefficient])


def _sum(f: Function, terms: list[tuple[float, Value]]) -> Value:
    """Σ coefficient·value, beginning with a value that is taken as it is, if there is one."""
    terms = sorted(terms, key=lambda term: (term[0] != 1, abs(term[0]) != 1))
    coefficient, total = terms[0]
    if coefficient != 1:
        total = f.binary("fmul", total, f.const(coefficient, total.type))
    for coefficient, value in terms[1:]:
        if abs(coefficient) == 1:
            total = f.binary("fadd" if coefficient == 1 else "fsub", total, value)
        else:
            total = f.fma(f.const(coefficient, value.type), value, total)
    return total
