"""Cholesky factorisation and triangular systems of one matrix, in LLVM IR.

Both compute some rows of their result at a time: from the rows above comes a matrix product, kept in registers for a
strip of columns, and the remainder is a triangle of a few rows (Golub & Van Loan, Matrix Computations, 3.1 and 4.2).
The Cholesky factor is the upper one, so that all of it is read and written along rows. Where a pivot is not positive,
NaN stands from its row on, in the last pivot too: there it is found, and spread over the rows above.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from staticgrad.compiler.emit.lanes import Lanes, counted, row_strips, strips
from staticgrad.compiler.emit.llvm import Function, Index, Value, memory_type, vector
from staticgrad.compiler.emit.routines.vectors import (
    MatrixView,
    blocks_of,
    load_row,
    minus_product,
    minus_products,
    store_row,
)
from staticgrad.compiler.emit.square_root import square_root
from staticgrad.compiler.kernels.routines import Cholesky, TriangularSolve

ROWS = 4  # of the result at a time


def _strip_vectors(f: Function) -> int:
    """The number of vectors in a strip of columns: sums of ``ROWS`` rows fill half of the registers."""
    return max(1, f.target.isa.registers // (2 * ROWS))


# -- Cholesky -------------------------------------------------------------------------------------------------------


def write_cholesky(f: Function, routine: Cholesky, pointers: Sequence[Value]) -> None:
    """The body of ``void(ptr a, ptr u, ptr scratch)``: the upper U with Uᵀ·U = A; A is read above its diagonal."""
    n, dtype = routine.size, routine.dtype
    a, u = (MatrixView(f, dtype, pointer, n) for pointer in pointers[:2])
    blocks_of(f, n, ROWS, lambda first, rows: _cholesky_rows(f, routine, a, u, first, rows))
    with counted(f, 0, f.min(n, 1)):  # an empty matrix has no pivot
        last = u.load(f.sub(n, 1), f.sub(n, 1))
        with f.when(f.compare("fcmp uno", last, last)):
            _spread_nan(f, routine, u)


def _spread_nan(f: Function, routine: Cholesky, u: MatrixView) -> None:
    """Write NaN on the diagonal and to the right of it."""
    n, nan = routine.size, f.const(float("nan"), memory_type(routine.dtype))
    with counted(f, 0, n) as row, counted(f, row.index, n) as column:
        u.store(nan, row.index, column.index)


def _cholesky_rows(f: Function, routine: Cholesky, a: MatrixView, u: MatrixView, first: Index, rows: int) -> None:
    dtype = routine.dtype
    square = vector(memory_type(dtype), rows)

    def above(k: Index) -> list[Value]:
        row = f.load(square, u.at(k, first))
        return [f.extract(row, i) for i in range(rows)]

    corner = [[f.load(square, a.at(f.add(first, i), first))] for i in range(rows)]
    corner = minus_products(f, corner, 0, first, above, lambda k: [f.load(square, u.at(k, first))])
    triangle, inverses = _factor(f, dtype, [row for (row,) in corner])
    zero = f.const(0.0, memory_type(dtype))
    for i in range(rows):
        for j in range(rows):
            u.store(triangle[i][j] if j >= i else zero, f.add(first, i), f.add(first, j))
        with counted(f, 0, first) as loop:
            u.store(zero, f.add(first, i), loop.index)

    def strip(column: Index, pieces: list[Lanes]) -> None:
        def row_of(matrix: MatrixView, i: Index) -> list[Value]:
            return load_row(matrix, i, column, pieces)

        totals = [row_of(a, f.add(first, i)) for i in range(rows)]
        totals = minus_products(f, totals, 0, first, above, lambda k: row_of(u, k))
        for i in range(rows):
            for v, piece in enumerate(pieces):
                value = totals[i][v]
                for k in range(i):
                    value = minus_product(f, value, piece.splat(f, triangle[k][i]), totals[k][v])
                totals[i][v] = f.binary("fmul", value, piece.splat(f, inverses[i]))
            store_row(u, f.add(first, i), column, pieces, totals[i])

    row_strips(f, dtype, f.add(first, rows), routine.size, _strip_vectors(f), strip)


def _factor(f: Function, dtype: np.dtype, corner: Sequence[Value]) -> tuple[list[list[Value]], list[Value]]:
    """The factor of a small matrix, in scalars, and the inverses of its diagonal."""
    element = memory_type(dtype)
    rows = len(corner)
    u = [[f.extract(row, j) for j in range(rows)] for row in corner]
    inverses: list[Value] = []
    zero, one, nan = (f.const(x, element) for x in (0.0, 1.0, float("nan")))
    for i in range(rows):
        for k in range(i):
            for j in range(i, rows):
                u[i][j] = minus_product(f, u[i][j], u[k][i], u[k][j])
        root = square_root(f, u[i][i])
        u[i][i] = f.select(f.compare("fcmp ogt", u[i][i], zero), root, nan)
        inverses.append(f.binary("fdiv", one, u[i][i]))
        for j in range(i + 1, rows):
            u[i][j] = f.binary("fmul", u[i][j], inverses[i])
    return u, inverses


# -- triangular systems ---------------------------------------------------------------------------------------------


def write_solve(f: Function, routine: TriangularSolve, pointers: Sequence[Value]) -> None:
    """The body of ``void(ptr t, ptr b, ptr x, ptr scratch)``: T·X = B, or Tᵀ·X = B.

    An upper system is a lower one with all indices counted from the end.
    """
    n, width, dtype = routine.size, routine.width, routine.dtype
    t = MatrixView(f, dtype, pointers[0], 1, n) if routine.transposed else MatrixView(f, dtype, pointers[0], n)
    b, x = (MatrixView(f, dtype, pointer, width) for pointer in pointers[1:3])
    if routine.lower == routine.transposed:
        t = t.from_the_end(n, n)
        b, x = (MatrixView(f, dtype, m.at(n - 1, 0), -width) for m in (b, x))
    blocks_of(f, n, ROWS, lambda first, rows: _solve_rows(f, routine, t, b, x, first, rows))


def _solve_rows(
    f: Function, routine: TriangularSolve, t: MatrixView, b: MatrixView, x: MatrixView, first: Index, rows: int
) -> None:
    numbers = [f.add(first, i) for i in range(rows)]
    triangle = [[t.load(i, j) for j in numbers[: a + (not routine.unit)]] for a, i in enumerate(numbers)]

    def strip(column: Index, pieces: list[Lanes]) -> None:
        totals = [load_row(b, i, column, pieces) for i in numbers]
        totals = minus_products(
            f, totals, 0, first, lambda k: [t.load(i, k) for i in numbers],
            lambda k: load_row(x, k, column, pieces),
        )  # fmt: skip
        for i in range(rows):
            for v, piece in enumerate(pieces):
                value = totals[i][v]
                for k in range(i):
                    value = minus_product(f, value, piece.splat(f, triangle[i][k]), totals[k][v])
                totals[i][v] = value if routine.unit else f.binary("fdiv", value, piece.splat(f, triangle[i][i]))
            store_row(x, numbers[i], column, pieces, totals[i])

    strips(f, routine.dtype, routine.width, _strip_vectors(f), strip)
