"""Loops over arrays that compute scalar code for every element, and the errors of what they give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np

from staticgrad.compiler.emit.llvm import Function, IRModule, Value, memory_type, vector
from staticgrad.compiler.emit.scalars.builder import Scalars
from staticgrad.compiler.emit.scalars.lane import Lane

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


I32, I64, U8, BOOL = (np.dtype(t) for t in (np.int32, np.int64, np.uint8, np.bool_))


FLOATS: tuple[np.dtype, ...] = (F32, F64)


Body = Callable[[Scalars, Sequence[Lane]], Sequence[Lane]]


def load(f: Function, dtype: np.dtype, lanes: int, pointer: Value, index: Value) -> Lane:
    value = f.load(vector(memory_type(dtype), lanes), f.offset(pointer, index, memory_type(dtype)))
    if dtype == BOOL:
        value = f.compare("icmp ne", value, f.const(0, value.type))
    return Lane(value, dtype)


def store(f: Function, lane: Lane, pointer: Value, index: Value) -> None:
    value = f.cast("zext", lane.value, "i8") if lane.dtype == BOOL else lane.value
    f.store(value, f.offset(pointer, index, memory_type(lane.dtype)))


def add_loop(module: IRModule, name: str, dtypes: Sequence[np.dtype], results: int, lanes: int, body: Body) -> None:
    """``name(inputs…, outputs…, length)``: ``body`` for every element."""
    count = len(dtypes)
    f = module.function(name, ["ptr"] * (count + results) + ["i64"], internal=False)
    with f.loop(0, f.params[-1], lanes) as loop:
        builder = Scalars(f, lanes)
        inputs = [load(f, d, lanes, p, loop.index) for d, p in zip(dtypes, f.params[:count], strict=True)]
        for lane, pointer in zip(body(builder, inputs), f.params[count:-1], strict=True):
            store(f, lane, pointer, loop.index)
    f.finish()


def inverse_erf(x: Any) -> Any:
    """By Newton's method on erfc, whose relative precision is good everywhere."""
    if x == 0:
        return x
    rest = 1 - abs(x)
    y = mpmath.sqrt(-mpmath.log(rest * (1 + abs(x)))) if abs(x) > 0.5 else abs(x)
    for _ in range(100):
        step = (mpmath.log(mpmath.erfc(y)) - mpmath.log(rest)) * mpmath.erfc(y) * mpmath.exp(y * y)
        step *= mpmath.sqrt(mpmath.pi) / 2
        y += step
        if abs(step) < y * mpmath.mpf(10) ** -25:
            break
    return mpmath.sign(x) * y


def errors(got: np.ndarray, expected: Sequence[Any], dtype: np.dtype) -> np.ndarray:
    """The distance in units of the last place of the exact value; infinite where an infinity is on one side only."""
    digits, smallest = (24, -149) if dtype == F32 else (53, -1074)
    overflow = mpmath.mpf(2) ** (128 if dtype == F32 else 1024) * (1 - mpmath.mpf(2) ** -(digits + 1))
    result = np.zeros(got.size)
    for i, (value, exact) in enumerate(zip(got, expected, strict=True)):
        if abs(exact) >= overflow:
            result[i] = 0.0 if np.isinf(value) and (value > 0) == (exact > 0) else np.inf
        elif not np.isfinite(value):
            result[i] = np.inf if abs(exact) < overflow * (1 - mpmath.mpf(2) ** (2 - digits)) else 1.0
        else:
            exponent = max(mpmath.frexp(exact)[1] - digits, smallest)
            result[i] = float(abs(mpmath.mpf(float(value)) - exact) / mpmath.mpf(2) ** exponent)
    return result
