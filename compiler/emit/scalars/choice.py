"""Values that comparisons choose: signs, and the smaller or larger of two."""

from __future__ import annotations

from collections.abc import Callable

from staticgrad.compiler.emit.llvm import suffix
from staticgrad.compiler.emit.scalars.lane import BOOL, Lane, LaneBuilder, is_float, is_signed


def sign(b: LaneBuilder, x: Lane) -> Lane:
    """-1, 0 or 1; NaN for NaN."""
    if x.dtype == BOOL:
        return x
    zero, one = b.const(0, x.dtype), b.const(1, x.dtype)
    rest = b.add(x, zero)  # 0 for -0, NaN for NaN
    if is_float(x.dtype) or is_signed(x.dtype):
        rest = b.select(b.lt(x, zero), b.const(-1, x.dtype), rest)
    return b.select(b.gt(x, zero), one, rest)


def minimum(b: LaneBuilder, x: Lane, y: Lane) -> Lane:
    """The smaller one; NaN if either is."""
    return _extreme(b, b.lt, "min", "and", x, y)


def maximum(b: LaneBuilder, x: Lane, y: Lane) -> Lane:
    """The larger one; NaN if either is."""
    return _extreme(b, b.gt, "max", "or", x, y)


def _extreme(b: LaneBuilder, better: Callable[[Lane, Lane], Lane], name: str, boolean: str, x: Lane, y: Lane) -> Lane:
    if is_float(x.dtype) and b.function.target.isa.extremes:
        return Lane(b.function.extreme(name, x.value, y.value), x.dtype)
    if is_float(x.dtype):
        # the comparison is false for NaN and so gives y: only x = NaN is left to be put right
        chosen = b.select(better(x, y), x, y)
        return b.select(b.isnan(x), x, chosen)
    if x.dtype == BOOL:
        return Lane(b.function.binary(boolean, x.value, y.value), x.dtype)
    prefix = "s" if is_signed(x.dtype) else "u"
    whole = f"llvm.{prefix}{name}.{suffix(x.value.type)}"
    return Lane(b.function.intrinsic(whole, x.value.type, x.value, y.value), x.dtype)
