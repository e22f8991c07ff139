"""What routines are written with: strips of vectors over rows, and functions over two rows (dot products and updates).

Comes in: a function under construction and a float or integer dtype. Goes out: IR. Tails are masked where the target
masks, else done one element at a time. The order of summation depends on lengths and the target alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from staticgrad.compiler.emit.llvm import CountedLoop, Function, Index, Value, integer, lanes_of, memory_type, vector
from staticgrad.compiler.emit.nest.reduction import combine
from staticgrad.frozen import frozen

Body = Callable[[Function, Sequence[Value], Sequence[Value]], Sequence[Value]]


@contextlib.contextmanager
def counted(
    f: Function, start: Index, stop: Index, step: int = 1, carry: Sequence[Value] = ()
) -> Iterator[CountedLoop]:
    """``Function.loop`` over a range that may be empty though it is constant."""
    with f.loop(f.index(start), f.index(stop), step, carry) as loop:
        yield loop


@frozen
class Lanes:
    """Some neighbouring elements: of type ``type``, those where ``mask`` holds (all without one)."""

    type: str
    mask: Value | None = None

    def load(self, f: Function, pointer: Value) -> Value:
        return f.load(self.type, pointer) if self.mask is None else f.masked_load(self.type, pointer, self.mask)

    def store(self, f: Function, value: Value, pointer: Value) -> None:
        if self.mask is None:
            f.store(value, pointer)
        else:
            f.masked_store(value, pointer, self.mask)

    def splat(self, f: Function, scalar: Value) -> Value:
        return f.splat(scalar, lanes_of(self.type))


def first_lanes(f: Function, dtype: np.dtype, count: Index) -> Lanes:
    """A masked vector of the first ``count`` elements."""
    lanes = f.target.lanes(dtype)
    numbers = f.lane_numbers(vector("i64", lanes))
    return Lanes(vector(memory_type(dtype), lanes), f.compare("icmp slt", numbers, f.splat(f.index(count), lanes)))


def strips(f: Function, dtype: np.dtype, width: int, most: int, write: Callable[[Index, list[Lanes]], None]) -> None:
    """Call ``write(first, lanes)`` for strips of up to ``most`` neighbouring vectors that cover ``width`` elements."""
    lanes = f.target.lanes(dtype)
    whole = Lanes(vector(memory_type(dtype), lanes))
    full = width // (most * lanes)
    if full:
        with counted(f, 0, full * most * lanes, most * lanes) as loop:
            write(loop.index, [whole] * most)
    at = full * most * lanes
    vectors, rest = divmod(width - at, lanes)
    if rest and f.target.isa.predicated:
        write(at, [whole] * vectors + [first_lanes(f, dtype, rest)])
    elif vectors:
        write(at, [whole] * vectors)
    if rest and not f.target.isa.predicated:
        with counted(f, at + vectors * lanes, width) as loop:
            write(loop.index, [Lanes(memory_type(dtype))])


def sum_lanes(f: Function, dtype: np.dtype, value: Value) -> Value:
    """The sum of a vector's elements: halves first, then halves of those."""
    lanes = lanes_of(value.type)
    while lanes > 2:
        lanes //= 2
        low, high = (f.shuffle(value, None, range(start, start + lanes)) for start in (0, lanes))
        value = combine(f, "sum", dtype, low, high)
    return combine(f, "sum", dtype, f.extract(value, 0), f.extract(value, 1)) if lanes == 2 else value


# -- rows of matrices -----------------------------------------------------------------------------------------------


@frozen
class MatrixView:
    """A matrix in memory: element (i, j) lies ``i·row + j·column`` elements behind ``base``."""

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
    whole, rest = n - n % size, n % size
    if whole:
        with counted(f, 0, whole, size) as loop:
            write(loop.index, size)
    if rest:
        write(whole, rest)


def row_strips(
    f: Function, dtype: np.dtype, start: Index, stop: Index, most: int, write: Callable[[Index, list[Lanes]], None]
) -> None:
    """``strips`` over a range known at run time: blocks of ``most`` vectors, then one at a time, then the rest."""
    lanes = f.target.lanes(dtype)
    element = memory_type(dtype)
    whole = Lanes(vector(element, lanes))
    block = most * lanes

    def end_of(size: int) -> Index:
        """Up to where blocks of ``size`` fill the range."""
        return f.add(start, f.mul(_floor(f, f.sub(stop, start), size), size))

    at: Index = start
    if most > 1:
        middle = end_of(block)
        with counted(f, at, middle, block) as loop:
            write(loop.index, [whole] * most)
        at = middle
    if f.target.isa.predicated:
        with counted(f, at, stop, lanes) as loop:
            write(loop.index, [first_lanes(f, dtype, f.sub(stop, loop.index))])
        return
    last = end_of(lanes)
    with counted(f, at, last, lanes) as loop:
        write(loop.index, [whole])
    with counted(f, last, stop) as loop:
        write(loop.index, [Lanes(element)])


def _floor(f: Function, number: Index, by: int) -> Index:
    """``number // by`` for a number that is not negative."""
    return number // by if isinstance(number, int) else f.binary("udiv", number, integer(by))


def minus_product(f: Function, total: Value, a: Value, b: Value) -> Value:
    """total − a·b of floats, rounded once where the target fuses."""
    if f.target.isa.fma:
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
