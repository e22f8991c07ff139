"""ONNX's operators on elements: arithmetic, functions, comparisons, logic, activations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.base.types import bool_, computed, is_floating, is_integer
from staticgrad.bridges.arrays import cast, functions
from staticgrad.bridges.forms import truncated_quotient, truncated_remainder
from staticgrad.bridges.onnx.binding import Value
from staticgrad.bridges.onnx.casts import target
from staticgrad.bridges.onnx.dialect import converts, converts_all
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

FUNCTIONS = functions(
    Abs="abs", Acos="acos", Acosh="acosh", Asin="asin", Asinh="asinh", Atan="atan", Atanh="atanh", Ceil="ceil",
    Cos="cos", Cosh="cosh", Erf="erf", Exp="exp", Floor="floor", IsNaN="isnan", Log="log", Neg="negative",
    Not="logical_not", Reciprocal="reciprocal", Round="round", Sign="sign", Sin="sin", Sinh="sinh", Sqrt="sqrt",
    Tan="tan", Mish="mish", HardSwish="hardswish", Add="add", Sub="subtract", Mul="multiply", And="logical_and",
    Or="logical_or", Xor="logical_xor", Equal="equal", Greater="greater", GreaterOrEqual="greater_equal", Less="less",
    LessOrEqual="less_equal", BitwiseAnd="bitwise_and", BitwiseOr="bitwise_or", BitwiseXor="bitwise_xor",
    BitwiseNot="bitwise_invert", Where="where", Det="det",
)  # fmt: skip
# Recurrent layers have these activations, too, with the same defaults.
ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    **functions(Relu="relu", Sigmoid="sigmoid", Softsign="softsign", Tanh="tanh"),
    "Elu": lambda x, *, alpha=1.0: o.elu(x, alpha),
    "HardSigmoid": lambda x, *, alpha=0.2, beta=0.5: o.clip(x * alpha + beta, 0, 1),
    "LeakyRelu": lambda x, *, alpha=0.01: o.leaky_relu(x, alpha),
    "Softplus": lambda x: o.logaddexp(x, 0),
    "ThresholdedRelu": lambda x, *, alpha=1.0: o.where(x > alpha, x, 0),
}
OTHERS: dict[str, Callable[..., Tensor]] = {
    "BitShift": lambda x, y, *, direction: (
        o.bitwise_left_shift(x, y) if direction == "LEFT" else o.bitwise_right_shift(x, y)
    ),
    "Gelu": lambda x, *, approximate: o.gelu(x, approximate),
    "Mod": lambda x, y, *, fmod: truncated_remainder(x, y) if fmod else o.remainder(x, y),
    "PRelu": lambda x, slope: o.where(x < 0, x * slope, x),
    "Selu": lambda x, *, alpha, gamma: o.elu(x, alpha) * gamma,
    "Div": lambda x, y: o.divide(x, y) if is_floating(x.dtype) else truncated_quotient(x, y),
    "Max": lambda *xs: functools.reduce(o.maximum, xs),
    "Min": lambda *xs: functools.reduce(o.minimum, xs),
    "Sum": lambda *xs: functools.reduce(o.add, xs),
    "Mean": lambda *xs: functools.reduce(o.add, xs) / len(xs),
}
converts_all({**FUNCTIONS, **ACTIVATIONS, **OTHERS})


@converts("Shrink")
def shrink(x: Tensor, *, lambd: float, bias: float) -> Tensor:
    y = cast(x, np.float64) if is_integer(x.dtype) else x
    return cast(o.where(y < -lambd, y + bias, o.where(y > lambd, y - bias, 0)), x.dtype)


@converts("IsInf")
def is_infinite(x: Tensor, *, detect_negative: int, detect_positive: int) -> Tensor:
    if detect_negative and detect_positive:
        return o.isinf(x)
    if not detect_negative and not detect_positive:
        return o.zeros_like(x, dtype=bool_)
    return o.logical_and(o.isinf(x), x > 0 if detect_positive else x < 0)


@converts("Clip")
def clip(x: Tensor, min: Tensor | float | None, max: Tensor | float | None) -> Tensor:
    x = x if min is None else o.maximum(x, min)
    return x if max is None else o.minimum(x, max)


@converts("Pow")
def power(x: Tensor, y: Tensor) -> Tensor:
    if x.dtype == y.dtype:
        return o.pow(x, y)
    wide = computed(x.dtype) if is_floating(x.dtype) else np.result_type(x.dtype, y.dtype)
    return cast(o.pow(cast(x, wide), cast(y, wide)), x.dtype)


@converts("Identity")
def identity(x: Value) -> Any:
    return [x]


@converts("EyeLike")
def eye_like(x: Value, *, dtype: int, k: int) -> Tensor:
    return o.eye(*x.shape, k=k, dtype=target(dtype) if dtype else x.dtype)
