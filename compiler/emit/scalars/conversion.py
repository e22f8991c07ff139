"""Conversions of lanes from one dtype to another: NumPy's, with a result for each input."""

from __future__ import annotations

import numpy as np

from staticgrad.base.types import is_short_float
from staticgrad.compiler.emit import elementary
from staticgrad.compiler.emit.elementary.number import Num
from staticgrad.compiler.emit.llvm import value_type
from staticgrad.compiler.emit.scalars.lane import (
    BOOL,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    UINT32,
    UINT64,
    Lane,
    LaneBuilder,
    bits_of,
    is_float,
    is_signed,
)


def cast(b: LaneBuilder, x: Lane, dtype: np.dtype) -> Lane:
    if x.dtype == dtype:
        return x
    if is_short_float(x.dtype):
        widen = elementary.short.widen_float16 if x.dtype == FLOAT16 else elementary.short.widen_bfloat16
        return b.cast(Lane(widen(Num(b.function, x.value)).value, FLOAT32), dtype)
    if is_short_float(dtype):
        odd = dtype == FLOAT16 and x.dtype == FLOAT64
        single = (
            Lane(elementary.short.odd_float(Num(b.function, x.value)).value, FLOAT32) if odd else b.cast(x, FLOAT32)
        )
        shorten = elementary.short.shorten_float16 if dtype == FLOAT16 else elementary.short.shorten_bfloat16
        return Lane(shorten(Num(b.function, single.value)).value, dtype)
    if dtype == BOOL:
        return b.ne(x, b.const(0, x.dtype))
    if is_float(x.dtype):
        return _from_float(b, x, dtype)
    if is_float(dtype):
        op = "sitofp" if is_signed(x.dtype) else "uitofp"
    elif bits_of(dtype) == bits_of(x.dtype):
        return Lane(x.value, dtype)
    elif bits_of(dtype) < bits_of(x.dtype):
        op = "trunc"
    else:
        op = "sext" if is_signed(x.dtype) else "zext"
    return Lane(b.function.cast(op, x.value, value_type(dtype)), dtype)


def _from_float(b: LaneBuilder, x: Lane, dtype: np.dtype) -> Lane:
    if is_float(dtype):
        op = "fpext" if dtype == FLOAT64 else "fptrunc"
        return Lane(b.function.cast(op, x.value, value_type(dtype)), dtype)
    if dtype in (INT32, INT64):
        return _truncated(b, x, dtype)
    if dtype == UINT64:
        # what does not fit int64 is converted less 2**63, which is added back to the bits
        half = b.const(2.0**63, x.dtype)
        low = _truncated(b, x, INT64).value
        high = _truncated(b, b.sub(x, half), INT64).value
        top = b.function.const(-(1 << 63), high.type)
        above = b.ge(x, half).value  # false of NaN
        return Lane(b.function.select(above, b.function.binary("xor", high, top), low), dtype)
    wider = INT64 if dtype == UINT32 else INT32
    return b.cast(_truncated(b, x, wider), dtype)


def _truncated(b: LaneBuilder, x: Lane, dtype: np.dtype) -> Lane:
    """Float to signed integer; the smallest integer where that has no result."""
    bound = 2.0 ** (bits_of(dtype) - 1)
    f = b.function
    if x.dtype == FLOAT32 or dtype == INT64:
        above = f.compare("fcmp oge", x.value, b.const(-bound, x.dtype).value)
    else:
        above = f.compare("fcmp ogt", x.value, b.const(-bound - 1.0, x.dtype).value)
    fits = f.binary("and", above, f.compare("fcmp olt", x.value, b.const(bound, x.dtype).value))
    guarded = f.select(fits, x.value, b.const(0.0, x.dtype).value)
    converted = f.cast("fptosi", guarded, value_type(dtype))
    return Lane(f.select(fits, converted, b.const(-(1 << (bits_of(dtype) - 1)), dtype).value), dtype)
