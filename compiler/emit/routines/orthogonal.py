"""QR factorisation of one matrix by Householder reflections, in LLVM IR (Golub & Van Loan, Matrix Computations, 5.2).

The matrix comes transposed, so that its columns are rows in memory and all work is along rows: a reflection is a dot
product and an update for each row that it meets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from staticgrad.compiler.emit.lanes import counted
from staticgrad.compiler.emit.llvm import Function, Index, Value, memory_type
from staticgrad.compiler.emit.routines import rows
from staticgrad.compiler.emit.routines.vectors import MatrixView
from staticgrad.compiler.kernels.routines import Householder


def write(f: Function, routine: Householder, pointers: Sequence[Value]) -> None:
    """The body of ``void(ptr at, [ptr qt,] ptr rt, ptr scratch)``."""
    dtype, m, n = routine.dtype, routine.rows, routine.columns
    element = memory_type(dtype)
    work = MatrixView(f, dtype, pointers[-1], m)
    taus = f.offset(pointers[-1], n * m, element)
    copy(f, work.base, pointers[0], n * m * dtype.itemsize)
    rt = MatrixView(f, dtype, pointers[-2], n)
    reduce_rows(f, work, taus, n, m, lambda j, beta: rt.store(beta, j, j))
    with counted(f, 0, n) as loop:
        i = loop.index
        copy(f, rt.at(i, 0), work.at(i, 0), f.mul(i, dtype.itemsize))
        right = f.add(i, 1)
        rows.fill(f, dtype, rt.at(i, right), 0.0, f.sub(n, right))
    if routine.full is not None:
        orthogonal_rows(f, work, taus, MatrixView(f, dtype, pointers[1], m), n, m, routine.full)


def copy(f: Function, target: Value, source: Value, nbytes: Index) -> None:
    f.module.declare(f"llvm.memcpy.p0.p0.{f.word}", "void", ["ptr", "ptr", f.word, "i1"])
    f.call(f"llvm.memcpy.p0.p0.{f.word}", "void", target, source, f.index(nbytes), Value("false", "i1"))


def reduce_rows(
    f: Function, work: MatrixView, taus: Value, n: int, m: int, keep: Callable[[Value, Value], None]
) -> None:
    """Reduce the n rows of length m, the columns of a matrix, to those of a triangle: reflection j is left in row j
    from element j on, its factor in ``taus``, and what it leaves on the diagonal goes to ``keep(j, beta)``."""
    dtype = work.dtype
    with counted(f, 0, n) as loop:
        j = loop.index
        count = f.sub(m, j)
        beta, tau = rows.reflector(f, dtype, work.at(j, j), count)
        keep(j, beta)
        f.store(tau, f.offset(taus, j, memory_type(dtype)))
        with counted(f, f.add(j, 1), n) as inner:
            rows.reflect(f, dtype, work.at(j, j), tau, work.at(inner.index, j), count)


def orthogonal_rows(f: Function, work: MatrixView, taus: Value, qt: MatrixView, n: int, m: int, count: int) -> None:
    """The first ``count`` columns of the product of the n reflections, as rows of ``qt``."""
    dtype, element = work.dtype, memory_type(work.dtype)
    with counted(f, 0, count) as loop:
        r = loop.index
        rows.fill(f, dtype, qt.at(r, 0), 0.0, m)
        qt.store(f.const(1.0, element), r, r)
        last = f.min(r, n - 1)
        with counted(f, 0, f.add(last, 1)) as inner:
            i = f.sub(last, inner.index)
            tau = f.load(element, f.offset(taus, i, element))
            rows.reflect(f, dtype, work.at(i, i), tau, qt.at(r, i), f.sub(m, i))
