"""Gaussian elimination with partial pivoting of one matrix, in LLVM IR.

Some columns at a time (Golub & Van Loan, Matrix Computations, 3.2 and 3.4): the panel is eliminated element by element,
rows are exchanged whole, and what is right of it is updated by a product of the panel with the rows that are finished.
A column without a pivot leaves a zero on the diagonal of U, and the rest goes on.
"""

from __future__ import annotations

from collections.abc import Sequence

from staticgrad.compiler.emit.lanes import Lanes, counted, row_strips
from staticgrad.compiler.emit.llvm import Function, Index, Value, memory_type, suffix
from staticgrad.compiler.emit.routines.vectors import MatrixView, blocks_of, load_row, minus_product, store_row
from staticgrad.compiler.kernels.routines import Elimination

COLUMNS = 4  # of a panel
MOST_VECTORS = 4


def write(f: Function, routine: Elimination, pointers: Sequence[Value]) -> None:
    """The body of ``void(ptr a, ptr lu, ptr rows, ptr parity, ptr scratch)``."""
    _EliminationWriter(f, routine, pointers).write()


class _EliminationWriter:
    def __init__(self, f: Function, routine: Elimination, pointers: Sequence[Value]) -> None:
        self.f = f
        self.n = routine.size
        self.dtype = routine.dtype
        self.element = memory_type(routine.dtype)
        self.source, result, self.rows, self.parity = pointers[:4]
        self.lu = MatrixView(f, routine.dtype, result, self.n)

    def write(self) -> None:
        f, n = self.f, self.n
        f.module.declare(f"llvm.memcpy.p0.p0.{f.word}", "void", ["ptr", "ptr", f.word, "i1"])
        nbytes = f.index(n * n * self.dtype.itemsize)
        f.call(f"llvm.memcpy.p0.p0.{f.word}", "void", self.lu.base, self.source, nbytes, Value("false", "i1"))
        with counted(f, 0, n) as loop:
            f.store(f.int64(loop.index), f.offset(self.rows, loop.index, "i64"))
        f.store(f.const(1.0, self.element), self.parity)
        blocks_of(f, n, COLUMNS, self._panel)

    def _panel(self, first: Index, columns: int) -> None:
        f = self.f
        for c in range(columns):
            self._eliminate(first, c, columns)
        behind = f.add(first, columns)
        tops = [f.add(first, c) for c in range(columns)]
        small = [[self.lu.load(tops[i], tops[k]) for k in range(i)] for i in range(columns)]

        def finish(column: Index, pieces: list[Lanes]) -> None:
            rows = [load_row(self.lu, i, column, pieces) for i in tops]
            for i in range(1, columns):
                for k in range(i):
                    rows[i] = [
                        minus_product(f, x, p.splat(f, small[i][k]), u)
                        for x, p, u in zip(rows[i], pieces, rows[k], strict=True)
                    ]
                store_row(self.lu, tops[i], column, pieces, rows[i])

        row_strips(f, self.dtype, behind, self.n, 1, finish)
        with counted(f, behind, self.n) as loop:
            factors = [self.lu.load(loop.index, k) for k in tops]

            def update(column: Index, pieces: list[Lanes]) -> None:
                row = load_row(self.lu, loop.index, column, pieces)
                for k, factor in zip(tops, factors, strict=True):
                    done = load_row(self.lu, k, column, pieces)
                    row = [
                        minus_product(f, x, p.splat(f, factor), u) for x, p, u in zip(row, pieces, done, strict=True)
                    ]
                store_row(self.lu, loop.index, column, pieces, row)

            row_strips(f, self.dtype, behind, self.n, MOST_VECTORS, update)

    def _eliminate(self, first: Index, c: int, columns: int) -> None:
        """Column ``first + c``: find the pivot, exchange rows, and subtract within the panel."""
        f, lu = self.f, self.lu
        k = f.add(first, c)
        pivot, size = self._largest(k)
        with f.when(f.compare("icmp ne", pivot, f.index(k))):
            self._exchange(k, pivot)
        right = [f.add(first, j) for j in range(c + 1, columns)]
        divisor = lu.load(k, k)
        empty = f.compare("fcmp oeq", size, f.const(0.0, self.element))
        divisor = f.select(empty, f.const(1.0, self.element), divisor)
        above = [lu.load(k, j) for j in right]
        with counted(f, f.add(k, 1), self.n) as loop:
            factor = f.binary("fdiv", lu.load(loop.index, k), divisor)
            lu.store(factor, loop.index, k)
            for j, x in zip(right, above, strict=True):
                lu.store(minus_product(f, lu.load(loop.index, j), factor, x), loop.index, j)

    def _largest(self, k: Index) -> tuple[Value, Value]:
        """The row from ``k`` on with the largest magnitude in column ``k``, the first of equal ones, and that."""
        f = self.f
        name = f"llvm.fabs.{suffix(self.element)}"

        def magnitude(i: Index) -> Value:
            return f.intrinsic(name, self.element, self.lu.load(i, k))

        with counted(f, f.add(k, 1), self.n, carry=[f.index(k), magnitude(k)]) as loop:
            here = magnitude(loop.index)
            larger = f.compare("fcmp ogt", here, loop.carried[1])
            loop.next(f.select(larger, loop.index, loop.carried[0]), f.select(larger, here, loop.carried[1]))
        return loop.results[0], loop.results[1]

    def _exchange(self, k: Index, pivot: Value) -> None:
        f = self.f

        def swap(column: Index, pieces: list[Lanes]) -> None:
            upper, lower = load_row(self.lu, k, column, pieces), load_row(self.lu, pivot, column, pieces)
            store_row(self.lu, k, column, pieces, lower)
            store_row(self.lu, pivot, column, pieces, upper)

        row_strips(f, self.dtype, 0, self.n, 1, swap)
        places = [f.offset(self.rows, i, "i64") for i in (k, pivot)]
        numbers = [f.load("i64", place) for place in places]
        f.store(numbers[1], places[0])
        f.store(numbers[0], places[1])
        sign = f.load(self.element, self.parity)
        f.store(f.emit(self.element, f"fneg {sign}"), self.parity)
