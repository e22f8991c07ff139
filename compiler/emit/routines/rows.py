"""Functions over one or two rows in LLVM IR, written once a module: dot products, updates, rotations, reflections.

They are what level 1 of BLAS is (Lawson et al., ACM TOMS 1979), over neighbouring elements. Input: pointers and a
number of elements known at run time. The order of summation depends on the number and the target alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from staticgrad.compiler.emit.lanes import Lanes, counted, first_lanes, row_strips
from staticgrad.compiler.emit.llvm import INDEX, Function, Index, Value, lanes_of, memory_type, suffix, vector
from staticgrad.compiler.emit.nest.reduction import across_lanes
from staticgrad.compiler.emit.routines.vectors import minus_product
from staticgrad.compiler.emit.square_root import square_root

COPIES = 4  # of a vector that an unrolled loop works on
Columns = Callable[[Function, Sequence[Value], Sequence[Value]], Sequence[Value]]


def dot(f: Function, dtype: np.dtype, x: Value, y: Value, count: Index) -> Value:
    """Σ x[i]·y[i]."""
    element = memory_type(dtype)
    name = f.module.leaf(f"dot.{dtype.name}", ["ptr", "ptr", INDEX], _write_dot, dtype, result=element)
    return f.call(name, element, x, y, f.index(count))


def _write_dot(f: Function, dtype: np.dtype) -> None:
    element, lanes = memory_type(dtype), f.target.lanes(dtype)
    x, y, count = f.params
    type_ = vector(element, lanes)
    zero = f.const(0.0, type_)

    def product(at: Index, piece: Lanes, total: Value) -> Value:
        return f.fma(piece.load(f, f.offset(x, at, element)), piece.load(f, f.offset(y, at, element)), total)

    whole = Lanes(type_)
    wide = f.mul(f.binary("udiv", count, f.index(COPIES * lanes)), COPIES * lanes)
    with counted(f, 0, wide, COPIES * lanes, [zero] * COPIES) as loop:
        loop.next(*(product(f.add(loop.index, c * lanes), whole, t) for c, t in enumerate(loop.carried)))
    a, b, c, d = loop.results
    total = f.binary("fadd", f.binary("fadd", a, b), f.binary("fadd", c, d))
    full = count if f.target.isa.predicated else f.mul(f.binary("udiv", count, f.index(lanes)), lanes)
    with counted(f, wide, full, lanes, [total]) as loop:
        piece = first_lanes(f, dtype, f.sub(count, loop.index)) if f.target.isa.predicated else whole
        loop.next(product(loop.index, piece, loop.carried[0]))
    result = across_lanes(f, "sum", dtype, loop.results[0])
    if not f.target.isa.predicated:
        with counted(f, full, count, 1, [result]) as loop:
            loop.next(product(loop.index, Lanes(element), loop.carried[0]))
        result = loop.results[0]
    f.ret(result)


def _update(
    f: Function, name: str, dtype: np.dtype, rows: Sequence[Value], scalars: Sequence[Value], count: Index,
    columns: Columns,
) -> None:  # fmt: skip
    """Call the function that replaces some rows by ``columns`` of the rows' elements and of scalars: as many of the
    first rows as it gives."""
    known = f.module.shared((name, dtype))
    if known is None:
        element = memory_type(dtype)
        g = f.module.function(
            f.module.unique(f"{name}.{dtype.name}"), ["ptr"] * len(rows) + [element] * len(scalars) + [INDEX]
        )
        pointers, numbers, total = g.params[: len(rows)], g.params[len(rows) : -1], g.params[-1]

        def strip(at: Index, pieces: list[Lanes]) -> None:
            for number, piece in enumerate(pieces):
                places = [g.offset(p, g.add(at, number * g.target.lanes(dtype)), element) for p in pointers]
                loaded = [piece.load(g, place) for place in places]
                results = columns(g, loaded, [g.splat(s, lanes_of(piece.type)) for s in numbers])
                for result, place in zip(results, places, strict=False):
                    piece.store(g, result, place)

        row_strips(g, dtype, 0, total, min(COPIES, g.target.isa.registers // 8), strip)
        known = f.module.share((name, dtype), g.finish())
    f.call(known, "void", *rows, *scalars, f.index(count))


def subtract_multiple(f: Function, dtype: np.dtype, y: Value, x: Value, factor: Value, count: Index) -> None:
    """y −= factor·x."""
    _update(
        f, "subtract_multiple", dtype, (y, x), (factor,), count,
        lambda g, v, s: [minus_product(g, v[0], s[0], v[1])],
    )  # fmt: skip


def subtract_two(
    f: Function, dtype: np.dtype, y: Value, x: tuple[Value, Value], factors: tuple[Value, Value], count: Index
) -> None:
    """y −= factors[0]·x[0] + factors[1]·x[1]."""
    _update(
        f, "subtract_two", dtype, (y, *x), factors, count,
        lambda g, v, s: [minus_product(g, minus_product(g, v[0], s[0], v[1]), s[1], v[2])],
    )  # fmt: skip


def scale(f: Function, dtype: np.dtype, x: Value, factor: Value, count: Index) -> None:
    """x *= factor."""
    _update(f, "scale", dtype, (x,), (factor,), count, lambda g, v, s: [g.binary("fmul", v[0], s[0])])


def scaled_copy(f: Function, dtype: np.dtype, y: Value, x: Value, factor: Value, count: Index) -> None:
    """y = factor·x."""
    _update(f, "scaled_copy", dtype, (y, x), (factor,), count, lambda g, v, s: [g.binary("fmul", v[1], s[0])])


def swap(f: Function, dtype: np.dtype, x: Value, y: Value, count: Index) -> None:
    """Exchange two rows."""
    _update(f, "swap", dtype, (x, y), (), count, lambda g, v, s: [v[1], v[0]])


def fill(f: Function, dtype: np.dtype, x: Value, value: float, count: Index) -> None:
    """x = value."""
    number = f.const(value, memory_type(dtype))
    _update(f, "fill", dtype, (x,), (number,), count, lambda g, v, s: [s[0]])


def rotate(f: Function, dtype: np.dtype, x: Value, y: Value, c: Value, s: Value, count: Index) -> None:
    """x, y = c·x − s·y, s·x + c·y."""

    def turned(g: Function, v: Sequence[Value], a: Sequence[Value]) -> Sequence[Value]:
        (x, y), (c, s) = v, a
        return [minus_product(g, g.binary("fmul", c, x), s, y), g.fma(s, x, g.binary("fmul", c, y))]

    _update(f, "rotate", dtype, (x, y), (c, s), count, turned)


def largest(f: Function, dtype: np.dtype, x: Value, count: Index) -> Value:
    """The element of the largest magnitude, the first of equal ones."""
    element = memory_type(dtype)
    known = f.module.shared(("largest", dtype))
    if known is None:
        g = f.module.function(f.module.unique(f"largest.{dtype.name}"), ["ptr", INDEX], element)
        row, total = g.params
        with counted(g, 0, total, 1, [g.const(0.0, element)]) as loop:
            here = g.load(element, g.offset(row, loop.index, element))
            larger = g.compare("fcmp ogt", magnitude(g, here), magnitude(g, loop.carried[0]))
            loop.next(g.select(larger, here, loop.carried[0]))
        g.ret(loop.results[0])
        known = f.module.share(("largest", dtype), g.finish())
    return f.call(known, element, x, f.index(count))


# -- scalars --------------------------------------------------------------------------------------------------------


def magnitude(f: Function, x: Value) -> Value:
    return f.intrinsic(f"llvm.fabs.{suffix(x.type)}", x.type, x)


def with_sign(f: Function, size: Value, sign: Value) -> Value:
    """The magnitude of ``size`` with the sign of ``sign``."""
    return f.intrinsic(f"llvm.copysign.{suffix(size.type)}", size.type, size, sign)


def negated(f: Function, x: Value) -> Value:
    return f.emit(x.type, f"fneg {x}")


# -- reflections ----------------------------------------------------------------------------------------------------


def reflector(f: Function, dtype: np.dtype, x: Value, count: Index) -> tuple[Value, Value]:
    """Replace a row x by v, with v[0] = 1, such that (1 − tau·v·vᵀ)·x = beta·e₀; returns beta and tau.

    The sign of beta is not that of x[0], and where nothing follows x[0] tau is 0 (LAPACK's larfg).
    """
    element = memory_type(dtype)
    first = f.load(element, x)
    tail, rest = f.offset(x, 1, element), f.sub(count, 1)
    square = dot(f, dtype, tail, tail, rest)
    norm = square_root(f, f.fma(first, first, square))
    beta = negated(f, with_sign(f, norm, first))
    tau = f.binary("fdiv", f.binary("fsub", beta, first), beta)
    one, zero = f.const(1.0, element), f.const(0.0, element)
    nothing = f.compare("fcmp oeq", square, zero)
    divisor = f.select(nothing, one, f.binary("fsub", first, beta))
    scale(f, dtype, tail, f.binary("fdiv", one, divisor), rest)
    f.store(one, x)
    return f.select(nothing, first, beta), f.select(nothing, zero, tau)


def reflect(f: Function, dtype: np.dtype, v: Value, tau: Value, row: Value, count: Index) -> None:
    """row −= tau·(v·row)·v."""
    subtract_multiple(f, dtype, row, v, f.binary("fmul", tau, dot(f, dtype, v, row, count)), count)
