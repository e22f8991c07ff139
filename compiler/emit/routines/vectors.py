"""The building blocks of routines: strips of vectors over rows, and functions over two rows (dot products and updates).

Input: a function under construction and a float or integer dtype. Output: IR.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from staticgrad.base.extents import is_open
from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.lanes import Lanes, counted
from staticgrad.compiler.emit.llvm import Function, Index, Value, element_of, integer, lanes_of, memory_type

Body = Callable[[Function, Sequence[Value], Sequence[Value]], Sequence[Value]]


@frozen
class MatrixView:
    """A matrix in memory: element (i, j) lies ``i·row + j·column`` elements from ``base``."""

    f: Function
    dtype: np.dtype
    base: Value
    row: int
    column: int = 1

    def at(self, i: Index, j: Index) -> Value:
        f = self.f
        return f.offset(self.base, f.add(f.mul(i, self.row), f.mul(j, self.column)), memory_type(self.dtype))

    def load(self, i: Index, j: Index) -> Value:
        return self.f.load(memory_type(self.dtype), self.at(i, j))

    def store(self, value: Value, i: Index, j: Index) -> None:
        self.f.store(value, self.at(i, j))

    def from_the_end(self, rows: int, columns: int) -> MatrixView:
        """The same elements, both indices counted from the end."""
        return MatrixView(self.f, self.dtype, self.at(rows - 1, columns - 1), -self.row, -self.column)


def load_row(matrix: MatrixView, i: Index, column: Index, pieces: Sequence[Lanes]) -> list[Value]:
    """The vectors ``pieces`` of row ``i`` from ``column`` on."""
    f, lanes = matrix.f, matrix.f.target.lanes(matrix.dtype)
    return [piece.load(f, matrix.at(i, f.add(column, v * lanes))) for v, piece in enumerate(pieces)]


def store_row(matrix: MatrixView, i: Index, column: Index, pieces: Sequence[Lanes], values: Sequence[Value]) -> None:
    """Write what ``load_row`` reads."""
    f, lanes = matrix.f, matrix.f.target.lanes(matrix.dtype)
    for v, (piece, value) in enumerate(zip(pieces, values, strict=True)):
        piece.store(f, value, matrix.at(i, f.add(column, v * lanes)))


def blocks_of(f: Function, n: int, size: int, write: Callable[[Index, int], None]) -> None:
    """``write(first, count)`` for blocks of ``size`` of ``n`` things, in order; the last may be smaller."""
    if is_open(n):
        end = f.index(n // size * size)
        with counted(f, 0, end, size) as loop:
            write(loop.index, size)
        for count in range(1, size):
            with f.when(f.compare("icmp eq", f.index(n % size), integer(count))):
                write(end, count)
        return
    whole, rest = n - n % size, n % size
    if whole:
        with counted(f, 0, whole, size) as loop:
            write(loop.index, size)
    if rest:
        write(whole, rest)


def minus_product(f: Function, total: Value, a: Value, b: Value) -> Value:
    """total − a·b of floats, rounded once where the target fuses."""
    if f.target.isa.fuses(element_of(total.type)):
        return f.fma(f.emit(a.type, f"fneg {a}"), b, total)
    return f.binary("fsub", total, f.binary("fmul", a, b))


def minus_products(
    f: Function,
    totals: Sequence[Sequence[Value]],
    start: Index,
    stop: Index,
    factors: Callable[[Index], Sequence[Value]],
    rows: Callable[[Index], Sequence[Value]],
) -> list[list[Value]]:
    """totals[a][v] − Σ_k factors(k)[a]·rows(k)[v]: a block of a matrix product, kept in registers.

    Args:
        totals: one row of vectors for each factor.
        factors: the scalars of turn ``k``.
        rows: the vectors of turn ``k``.
    """
    width = len(totals[0])
    with counted(f, start, stop, carry=[x for row in totals for x in row]) as loop:
        scalars, vectors = factors(loop.index), rows(loop.index)
        loop.next(
            *(
                minus_product(f, loop.carried[a * width + v], f.splat(scalar, lanes_of(x.type)), x)
                for a, scalar in enumerate(scalars)
                for v, x in enumerate(vectors)
            )
        )
    return [loop.results[a * width : (a + 1) * width] for a in range(len(totals))]
