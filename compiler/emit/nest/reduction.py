"""Reductions of values: the identity of each kind, one step of it, and the fixed tree that ends it.

Input: LLVM values and a ``ReduceKind``; output: the combined LLVM value. The order of the combinations depends on
the number of values only, so the same program gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from staticgrad.compiler.emit.llvm import Function, Value, element_of, lanes_of, suffix
from staticgrad.compiler.kernels.nest import ReduceKind, identity


def combine(f: Function, kind: ReduceKind, dtype: np.dtype, a: Value, b: Value) -> Value:
    """One step: ``a`` is what was gathered so far, ``b`` comes to it (scalars or vectors of one type)."""
    if dtype.kind == "b":
        return f.binary("and" if kind in ("prod", "all", "min") else "or", a, b)
    if kind == "sum":
        return f.binary("fadd" if dtype.kind == "f" else "add", a, b)
    if kind == "prod":
        return f.binary("fmul" if dtype.kind == "f" else "mul", a, b)
    if dtype.kind == "f":
        return _float_extreme(f, kind, a, b)
    sign = "u" if dtype.kind == "u" else "s"
    return f.intrinsic(f"llvm.{sign}{kind}.{suffix(a.type)}", a.type, a, b)


def _float_extreme(f: Function, kind: ReduceKind, a: Value, b: Value) -> Value:
    """NaN if either is, else either of equals. The comparison is the instruction of x86, which gives ``a`` where one of
    both is NaN; so a NaN in ``a`` stays, and what puts one in ``b`` back does not wait for ``a``."""
    if f.target.isa.extremes:
        return f.extreme(kind, a, b)
    return f.select(f.compare("fcmp uno", b, b), b, _better(f, kind, a, b))


def _better(f: Function, kind: ReduceKind, a: Value, b: Value) -> Value:
    return f.select(f.compare("fcmp ogt" if kind == "max" else "fcmp olt", b, a), b, a)


def combine_pair(f: Function, kind: ReduceKind, a: tuple[Value, Value], b: tuple[Value, Value]) -> tuple[Value, Value]:
    """One step each of two accumulators of floating extremes that are combined in the end: where that takes several
    instructions, one comparison finds the NaN of both, which the first accumulator keeps."""
    if f.target.isa.extremes:
        first, second = (f.extreme(kind, old, new) for old, new in zip(a, b, strict=True))
        return first, second
    first, second = (_better(f, kind, old, new) for old, new in zip(a, b, strict=True))
    return f.select(f.compare("fcmp uno", *b), f.const(float("nan"), first.type), first), second


def combine_all(f: Function, kind: ReduceKind, dtype: np.dtype, values: Sequence[Value]) -> Value:
    """Neighbours first, then neighbours of those."""
    level = list(values)
    while len(level) > 1:
        pairs = [combine(f, kind, dtype, a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]


def across_lanes(f: Function, kind: ReduceKind, dtype: np.dtype, value: Value, *shorter: Value) -> Value:
    """Combine the lanes of a vector to a scalar: upper half with lower half, until one is left. Vectors of half the
    lanes, of a quarter, and so on, each once at most, join where that number of lanes is left."""
    lanes, joining = lanes_of(value.type), {lanes_of(v.type): v for v in shorter}
    while lanes > 1:
        lanes //= 2
        if lanes > 1:
            low, high = (f.shuffle(value, None, range(start, start + lanes)) for start in (0, lanes))
        else:
            low, high = f.extract(value, 0), f.extract(value, 1)
        value = combine(f, kind, dtype, low, high)
        if lanes in joining:
            value = combine(f, kind, dtype, value, joining[lanes])
    return value


def across_rows(f: Function, kind: ReduceKind, dtype: np.dtype, values: Sequence[Value]) -> Value:
    """Lane i is what ``across_lanes`` makes of the i-th vector, bit for bit. The number of vectors is a power of two
    and at most that of their lanes: they are halved in pairs, which share a register from then on."""
    level, lanes = list(values), lanes_of(values[0].type)
    width = lanes  # of the part of a register that belongs to one row
    while width > 1:
        low = [i for i in range(lanes_of(level[0].type)) if i % width < width // 2]
        if len(level) > 1:
            low += [lanes + i for i in low]
        width //= 2
        high = [i + width for i in low]
        pairs = list(zip(level[::2], level[1::2], strict=True)) if len(level) > 1 else [(level[0], None)]
        level = [combine(f, kind, dtype, f.shuffle(a, b, low), f.shuffle(a, b, high)) for a, b in pairs]
    return level[0]


def starting(kind: ReduceKind, dtype: np.dtype) -> float | int | bool:
    """The identity of a reduction, which keeps the sign of zeros as well."""
    return -0.0 if kind == "sum" and dtype.kind == "f" else identity(kind, dtype)


def neutral(f: Function, kind: ReduceKind, dtype: np.dtype, type_: str) -> Value:
    """The identity as a literal of a scalar or vector type."""
    value = identity(kind, dtype)
    return f.const(bool(value) if element_of(type_) == "i1" else value, type_)
