"""Eigenvalues of one symmetric matrix, and singular values of one matrix, in LLVM IR.

Eigenvalues: Householder reflections make the matrix tridiagonal, implicit QL steps make that diagonal (Golub & Van
Loan, Matrix Computations, 8.3; Dubrulle, Martin & Wilkinson, Numerische Mathematik 12, 1968). Singular values: plane
rotations make the columns orthogonal (one-sided Jacobi, Golub & Van Loan 8.6.3); a QR factorisation of those gives left
vectors that are orthonormal whatever the rank. Both work on rows in memory. The matrix is scaled by its largest element
first. Of each vector the element of largest magnitude, the first of equal ones, is positive. What is not finite gives
NaN in the end, and so does what does not converge.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.lanes import counted
from staticgrad.compiler.emit.llvm import Function, Index, Value, integer, memory_type
from staticgrad.compiler.emit.routines import rows
from staticgrad.compiler.emit.routines.orthogonal import orthogonal_rows, reduce_rows
from staticgrad.compiler.emit.routines.vectors import MatrixView
from staticgrad.compiler.emit.square_root import square_root
from staticgrad.compiler.kernels.routines import Singular, Symmetric

STEPS = 60  # of QL for one eigenvalue
SWEEPS = 40


@frozen
class _Vector:
    """Elements in memory that are read and written one by one."""

    f: Function
    dtype: np.dtype
    base: Value

    def at(self, i: Index) -> Value:
        return self.f.offset(self.base, i, memory_type(self.dtype))

    def load(self, i: Index) -> Value:
        return self.f.load(memory_type(self.dtype), self.at(i))

    def store(self, value: Value, i: Index) -> None:
        self.f.store(value, self.at(i))


def _scaled(f: Function, dtype: np.dtype, work: Value, source: Value, count: int) -> Value:
    """Copy a matrix, divided by its largest magnitude; returns that, 1 for a matrix of zeros, NaN where one is."""
    element = memory_type(dtype)
    top = rows.magnitude(f, rows.largest(f, dtype, source, count))
    positive = f.compare("fcmp ogt", top, f.const(0.0, element))
    top = f.select(positive, top, f.const(1.0, element))
    rows.scaled_copy(f, dtype, work, source, f.binary("fdiv", f.const(1.0, element), top), count)
    return top


def _order(
    f: Function, values: _Vector, count: int, matrices: Sequence[tuple[MatrixView, int]], descending: bool
) -> None:
    """Sort values, and the rows of matrices with them, by selection."""
    predicate = "fcmp ogt" if descending else "fcmp olt"
    with counted(f, 0, count) as loop:
        i = loop.index
        with counted(f, f.add(i, 1), count, 1, [i, values.load(i)]) as inner:
            here = values.load(inner.index)
            before = f.compare(predicate, here, inner.carried[1])
            inner.next(f.select(before, inner.index, inner.carried[0]), f.select(before, here, inner.carried[1]))
        place, value = inner.results
        with f.when(f.compare("icmp ne", place, i)):
            values.store(values.load(i), place)
            values.store(value, i)
            for matrix, width in matrices:
                rows.swap(f, matrix.dtype, matrix.at(i, 0), matrix.at(place, 0), width)


def _sign_of(f: Function, dtype: np.dtype, row: Value, width: int) -> Value:
    """±1, with which a row has to be multiplied so that its largest element is positive."""
    return rows.with_sign(f, f.const(1.0, memory_type(dtype)), rows.largest(f, dtype, row, width))


# -- eigenvalues ----------------------------------------------------------------------------------------------------


def write_symmetric(f: Function, routine: Symmetric, pointers: Sequence[Value]) -> None:
    """The body of ``void(ptr a, ptr w, [ptr vt,] ptr scratch)``."""
    _Eigen(f, routine, pointers).write()


class _Eigen:
    def __init__(self, f: Function, routine: Symmetric, pointers: Sequence[Value]) -> None:
        self.f = f
        self.n = routine.size
        self.dtype = routine.dtype
        self.element = memory_type(routine.dtype)
        self.source, scratch = pointers[0], pointers[-1]
        self.values = _Vector(f, routine.dtype, pointers[1])
        self.vt = MatrixView(f, routine.dtype, pointers[2], self.n) if routine.vectors else None
        self.work = MatrixView(f, routine.dtype, scratch, self.n)
        behind = [f.offset(scratch, self.n**2 + i * self.n, self.element) for i in range(4)]
        self.beside, self.taus, self.product, self.other = (_Vector(f, routine.dtype, p) for p in behind)

    def const(self, value: float) -> Value:
        return self.f.const(value, self.element)

    def write(self) -> None:
        f, n = self.f, self.n
        top = _scaled(f, self.dtype, self.work.base, self.source, n * n)
        self._tridiagonal()
        if self.vt is not None:
            self._start_vectors(self.vt)
        with counted(f, 0, n) as loop:
            self._find(loop.index)
        rows.scale(f, self.dtype, self.values.base, top, n)
        _order(f, self.values, n, [(self.vt, n)] if self.vt is not None else [], descending=False)
        if self.vt is not None:
            with counted(f, 0, n) as loop:
                row = self.vt.at(loop.index, 0)
                rows.scale(f, self.dtype, row, _sign_of(f, self.dtype, row, n), n)

    def _tridiagonal(self) -> None:
        """The diagonal to ``values``, what is beside it to ``beside``; reflection k stays in row k from k + 1 on."""
        f, n, work, dtype = self.f, self.n, self.work, self.dtype
        with counted(f, 0, n - 2) as loop:
            k = loop.index
            right = f.add(k, 1)
            count = f.sub(n, right)
            v = work.at(k, right)
            beta, tau = rows.reflector(f, dtype, v, count)
            self.beside.store(beta, k)
            self.taus.store(tau, k)
            product = self.product.at(right)
            with counted(f, right, n) as inner:
                self.product.store(
                    f.binary("fmul", tau, rows.dot(f, dtype, work.at(inner.index, right), v, count)), inner.index
                )
            half = f.binary("fmul", f.binary("fmul", tau, self.const(0.5)), rows.dot(f, dtype, product, v, count))
            rows.subtract_multiple(f, dtype, product, v, half, count)
            with counted(f, right, n) as inner:
                i = inner.index
                factors = (work.load(k, i), self.product.load(i))
                rows.subtract_two(f, dtype, work.at(i, right), (product, v), factors, count)
        with counted(f, 0, n) as loop:
            self.values.store(work.load(loop.index, loop.index), loop.index)
        if n > 1:
            self.beside.store(work.load(n - 2, n - 1), n - 2)
        self.beside.store(self.const(0.0), n - 1)

    def _start_vectors(self, vt: MatrixView) -> None:
        """The product of the reflections, transposed."""
        f, n, dtype = self.f, self.n, self.dtype
        with counted(f, 0, n) as loop:
            r = loop.index
            rows.fill(f, dtype, vt.at(r, 0), 0.0, n)
            vt.store(self.const(1.0), r, r)
            count = f.min(r, max(n - 2, 0))
            with counted(f, 0, count) as inner:
                i = f.sub(f.sub(count, 1), inner.index)
                right = f.add(i, 1)
                rows.reflect(f, dtype, self.work.at(i, right), self.taus.load(i), vt.at(r, right), f.sub(n, right))

    def _block_end(self, low: Value) -> Value:
        """The last row of the block that begins at ``low``: what is beside the diagonal there is nothing."""
        f, d = self.f, self.values
        eps = self.const(float(np.finfo(self.dtype).eps))

        def coupled(carried: Sequence[Value]) -> Value:
            (m,) = carried
            inside = f.compare("icmp slt", m, integer(self.n - 1))
            here = f.select(inside, m, low)  # reads nothing past the end
            after = f.binary("add", here, f.cast("zext", inside, f.word))
            size = f.binary("fadd", rows.magnitude(f, d.load(here)), rows.magnitude(f, d.load(after)))
            large = f.compare("fcmp ogt", rows.magnitude(f, self.beside.load(here)), f.binary("fmul", eps, size))
            return f.binary("and", inside, large)

        with f.repeat([low], coupled) as loop:
            loop.next(f.binary("add", loop.carried[0], integer(1)))
        return loop.results[0]

    def _find(self, low: Value) -> None:
        """QL steps until ``values[low]`` is an eigenvalue."""
        f = self.f
        start = [self._block_end(low), f.index(0)]

        def goes_on(carried: Sequence[Value]) -> Value:
            end, steps = carried
            return f.binary("and", f.compare("icmp ne", end, low), f.compare("icmp slt", steps, integer(STEPS)))

        with f.repeat(start, goes_on) as loop:
            end, steps = loop.carried
            self._step(low, end)
            loop.next(self._block_end(low), f.binary("add", steps, integer(1)))
        end, _ = loop.results
        with f.when(f.compare("icmp ne", end, low)):
            self.values.store(self.const(float("nan")), low)

    def _step(self, low: Value, end: Value) -> None:
        """One implicit QL step on rows ``low`` to ``end`` (steqr of LAPACK)."""
        f, d, e = self.f, self.values, self.beside
        one = self.const(1.0)
        p = d.load(low)
        difference = f.binary("fsub", d.load(f.add(low, 1)), p)
        g = f.binary("fdiv", difference, f.binary("fmul", self.const(2.0), e.load(low)))
        r = square_root(f, f.fma(g, g, one))
        quotient = f.binary("fdiv", e.load(low), f.binary("fadd", g, rows.with_sign(f, r, g)))
        g = f.binary("fadd", f.binary("fsub", d.load(end), p), quotient)
        with counted(f, 0, f.sub(end, low), 1, [g, one, one, self.const(0.0)]) as loop:
            g, s, c, p = loop.carried
            i = f.sub(f.sub(end, 1), loop.index)
            above = f.add(i, 1)
            x, b = f.binary("fmul", s, e.load(i)), f.binary("fmul", c, e.load(i))
            r = square_root(f, f.fma(x, x, f.binary("fmul", g, g)))
            nothing = f.compare("fcmp oeq", r, self.const(0.0))
            divisor = f.select(nothing, one, r)
            s = f.binary("fdiv", x, divisor)
            c = f.select(nothing, one, f.binary("fdiv", g, divisor))
            with f.when(f.compare("icmp sgt", loop.index, integer(0))):
                e.store(r, above)
            g = f.binary("fsub", d.load(above), p)
            r = f.fma(f.binary("fsub", d.load(i), g), s, f.binary("fmul", f.binary("fmul", self.const(2.0), c), b))
            p = f.binary("fmul", s, r)
            d.store(f.binary("fadd", g, p), above)
            if self.vt is not None:
                rows.rotate(f, self.dtype, self.vt.at(i, 0), self.vt.at(above, 0), c, s, self.n)
            loop.next(f.binary("fsub", f.binary("fmul", c, r), b), s, c, p)
        g, _, _, p = loop.results
        d.store(f.binary("fsub", d.load(low), p), low)
        e.store(g, low)


# -- singular values ------------------------------------------------------------------------------------------------


def write_singular(f: Function, routine: Singular, pointers: Sequence[Value]) -> None:
    """The body of ``void(ptr at, [ptr ut,] ptr s, [ptr vt,] ptr scratch)``."""
    _SingularWriter(f, routine, pointers).write()


class _SingularWriter:
    def __init__(self, f: Function, routine: Singular, pointers: Sequence[Value]) -> None:
        self.f = f
        self.m, self.n, self.dtype = routine.rows, routine.columns, routine.dtype
        self.element = memory_type(routine.dtype)
        self.source, scratch = pointers[0], pointers[-1]
        self.values = _Vector(f, routine.dtype, pointers[2 if routine.vectors else 1])
        self.ut = MatrixView(f, routine.dtype, pointers[1], self.m) if routine.vectors else None
        self.vt = MatrixView(f, routine.dtype, pointers[3], self.n) if routine.vectors else None
        self.work = MatrixView(f, routine.dtype, scratch, self.m)
        behind = [f.offset(scratch, self.n * self.m + i * self.n, self.element) for i in range(2)]
        self.squares, self.taus = (_Vector(f, routine.dtype, p) for p in behind)

    def const(self, value: float) -> Value:
        return self.f.const(value, self.element)

    def write(self) -> None:
        f, n = self.f, self.n
        top = _scaled(f, self.dtype, self.work.base, self.source, n * self.m)
        if self.vt is not None:
            with counted(f, 0, n) as loop:
                rows.fill(f, self.dtype, self.vt.at(loop.index, 0), 0.0, n)
                self.vt.store(self.const(1.0), loop.index, loop.index)

        def unfinished(carried: Sequence[Value]) -> Value:
            turned, sweeps = carried
            more = f.compare("icmp slt", sweeps, integer(SWEEPS))
            return f.binary("and", f.compare("icmp ne", turned, integer(0)), more)

        with f.repeat([f.index(1), f.index(0)], unfinished) as loop:
            loop.next(self._sweep(), f.binary("add", loop.carried[1], integer(1)))
        failed = f.compare("icmp ne", loop.results[0], integer(0))
        with counted(f, 0, n) as each:
            row = self.work.at(each.index, 0)
            length = square_root(f, rows.dot(f, self.dtype, row, row, self.m))
            self.values.store(f.select(failed, self.const(float("nan")), length), each.index)
        matrices = [(self.work, self.m)] + ([(self.vt, n)] if self.vt is not None else [])
        _order(f, self.values, n, matrices, descending=True)
        rows.scale(f, self.dtype, self.values.base, top, n)
        if self.ut is not None and self.vt is not None:
            self._vectors(self.ut, self.vt)

    def _sweep(self) -> Value:
        """Rotate every pair of columns once; returns how many were not orthogonal."""
        f, n = self.f, self.n
        with counted(f, 0, n) as loop:
            row = self.work.at(loop.index, 0)
            self.squares.store(rows.dot(f, self.dtype, row, row, self.m), loop.index)
        with counted(f, 0, n - 1, 1, [f.index(0)]) as loop:
            with counted(f, f.add(loop.index, 1), n, 1, [loop.carried[0]]) as inner:
                inner.next(f.binary("add", inner.carried[0], self._pair(loop.index, inner.index)))
            loop.next(inner.results[0])
        return loop.results[0]

    def _pair(self, p: Value, q: Value) -> Value:
        f, dtype = self.f, self.dtype
        a, b = self.squares.load(p), self.squares.load(q)
        x, y = self.work.at(p, 0), self.work.at(q, 0)
        gamma = rows.dot(f, dtype, x, y, self.m)
        tolerance = self.const(float(np.finfo(dtype).eps * np.sqrt(self.m)))
        limit = f.binary("fmul", tolerance, f.binary("fmul", square_root(f, a), square_root(f, b)))
        oblique = f.compare("fcmp ogt", rows.magnitude(f, gamma), limit)
        # A column that is rounding errors beside the other one is zero: turning it would make other errors of it.
        least = self.const(float(np.finfo(dtype).eps) ** 2)
        for low, high in ((a, b), (b, a)):
            oblique = f.binary("and", oblique, f.compare("fcmp ogt", low, f.binary("fmul", least, high)))
        with f.when(oblique):
            one = self.const(1.0)
            zeta = f.binary("fdiv", f.binary("fsub", b, a), f.binary("fmul", self.const(2.0), gamma))
            root = square_root(f, f.fma(zeta, zeta, one))
            t = f.binary("fdiv", rows.with_sign(f, one, zeta), f.binary("fadd", rows.magnitude(f, zeta), root))
            c = f.binary("fdiv", one, square_root(f, f.fma(t, t, one)))
            s = f.binary("fmul", c, t)
            rows.rotate(f, dtype, x, y, c, s, self.m)
            if self.vt is not None:
                rows.rotate(f, dtype, self.vt.at(p, 0), self.vt.at(q, 0), c, s, self.n)
            shift = f.binary("fmul", t, gamma)
            self.squares.store(f.binary("fsub", a, shift), p)
            self.squares.store(f.binary("fadd", b, shift), q)
        return f.cast("zext", oblique, f.word)

    def _vectors(self, ut: MatrixView, vt: MatrixView) -> None:
        """Orthonormal left vectors from the orthogonal columns, and all signs."""
        f, n, m, dtype = self.f, self.n, self.m, self.dtype
        signs = self.squares
        reduce_rows(f, self.work, self.taus.base, n, m, lambda j, beta: signs.store(beta, j))
        orthogonal_rows(f, self.work, self.taus.base, ut, n, m, n)
        with counted(f, 0, n) as loop:
            i = loop.index
            sign = _sign_of(f, dtype, vt.at(i, 0), n)
            rows.scale(f, dtype, vt.at(i, 0), sign, n)
            rows.scale(f, dtype, ut.at(i, 0), rows.with_sign(f, sign, f.binary("fmul", sign, signs.load(i))), m)
