"""ONNX's operators on elements: arithmetic, functions, comparisons, logic, casts, activations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.base.types import bool_, computed, is_floating, is_integer
from staticgrad.bridges.arrays import cast, functions
from staticgrad.bridges.forms import truncated_quotient, truncated_remainder
from staticgrad.bridges.onnx.casts import target
from staticgrad.bridges.onnx.dialect import OnnxScope, converts
from staticgrad.bridges.onnx.program import OnnxNode
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

# -- operators that are functions here ---------------------------------------------------------------------------------

FUNCTIONS = functions(
    Abs="abs", Acos="acos", Acosh="acosh", Asin="asin", Asinh="asinh", Atan="atan", Atanh="atanh", Ceil="ceil",
    Cos="cos", Cosh="cosh", Erf="erf", Exp="exp", Floor="floor", IsNaN="isnan", Log="log", Neg="negative",
    Not="logical_not", Reciprocal="reciprocal", Round="round", Sigmoid="sigmoid", Sign="sign", Sin="sin", Sinh="sinh",
    Sqrt="sqrt", Tan="tan", Tanh="tanh", Softsign="softsign", Relu="relu", Mish="mish", HardSwish="hardswish",
    Add="add", Sub="subtract", Mul="multiply", And="logical_and", Or="logical_or", Xor="logical_xor", Equal="equal",
    Greater="greater", GreaterOrEqual="greater_equal", Less="less", LessOrEqual="less_equal", BitwiseAnd="bitwise_and",
    BitwiseOr="bitwise_or", BitwiseXor="bitwise_xor", BitwiseNot="bitwise_invert", Where="where", Det="det",
)  # fmt: skip


def _entered(function: Callable[..., Tensor]) -> Callable[[OnnxScope, OnnxNode], Tensor]:
    return lambda at, node: function(*at.tensors(node.inputs))


for _name, _function in FUNCTIONS.items():
    converts(_name)(_entered(_function))

WITH_ATTRIBUTES: dict[str, Callable[[Tensor, OnnxNode], Tensor]] = {
    "Elu": lambda x, node: o.elu(x, node.attr("alpha", 1.0)),
    "LeakyRelu": lambda x, node: o.leaky_relu(x, node.attr("alpha", 0.01)),
    "Softplus": lambda x, node: o.logaddexp(x, 0),
    "Gelu": lambda x, node: o.gelu(x, node.attr("approximate", "none")),
    "Selu": lambda x, node: _selu(x, node.attr("alpha", 1.6732632), node.attr("gamma", 1.0507010)),
    "HardSigmoid": lambda x, node: o.clip(x * node.attr("alpha", 0.2) + node.attr("beta", 0.5), 0, 1),
    "ThresholdedRelu": lambda x, node: o.where(x > node.attr("alpha", 1.0), x, 0),
    "Shrink": lambda x, node: _shrunk(x, node.attr("lambd", 0.5), node.attr("bias", 0.0)),
}
for _name, _activation in WITH_ATTRIBUTES.items():
    converts(_name)(functools.partial(lambda f, at, node: f(at.tensor(node.inputs[0]), node), _activation))


def _selu(x: Tensor, alpha: float, gamma: float) -> Tensor:
    return o.where(x > 0, x, o.expm1(o.minimum(x, 0)) * alpha) * gamma


def _shrunk(x: Tensor, border: float, bias: float) -> Tensor:
    y = cast(x, np.float64) if is_integer(x.dtype) else x
    return cast(o.where(y < -border, y + bias, o.where(y > border, y - bias, 0)), x.dtype)


@converts("PRelu")
def prelu(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, slope = at.operands(node)
    return o.where(x < 0, x * slope, x)


@converts("IsInf")
def is_infinite(at: OnnxScope, node: OnnxNode) -> Tensor:
    x = at.tensor(node.inputs[0])
    below, above = node.attr("detect_negative", 1), node.attr("detect_positive", 1)
    found = o.isinf(x)
    if below and above:
        return found
    return o.logical_and(found, x > 0 if above else x < 0) if below or above else o.zeros_like(x, dtype=bool_)


@converts("Clip")
def clip(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, low, high = at.operands(node, 3)
    low = node.attr("min", low) if low is None else low
    high = node.attr("max", high) if high is None else high
    x = x if low is None else o.maximum(x, low)
    return x if high is None else o.minimum(x, high)


@converts("Max", "Min", "Sum", "Mean")
def combined(at: OnnxScope, node: OnnxNode) -> Tensor:
    xs = at.tensors(node.inputs)
    function = {"Max": o.maximum, "Min": o.minimum}.get(node.operator, o.add)
    result = functools.reduce(function, xs)
    return result / len(xs) if node.operator == "Mean" else result


# -- integers ----------------------------------------------------------------------------------------------------------


@converts("Div")
def divide(at: OnnxScope, node: OnnxNode) -> Tensor:
    a, b = at.tensors(node.inputs)
    return o.divide(a, b) if is_floating(a.dtype) else truncated_quotient(a, b)


@converts("Mod")
def modulo(at: OnnxScope, node: OnnxNode) -> Tensor:
    a, b = at.tensors(node.inputs)
    return truncated_remainder(a, b) if node.attr("fmod", 0) else o.remainder(a, b)


@converts("BitShift")
def shift(at: OnnxScope, node: OnnxNode) -> Tensor:
    a, b = at.tensors(node.inputs)
    return o.bitwise_left_shift(a, b) if node.attr("direction") == "LEFT" else o.bitwise_right_shift(a, b)


@converts("Pow")
def power(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, y = at.tensors(node.inputs)
    if x.dtype == y.dtype:
        return o.pow(x, y)
    wide = computed(x.dtype) if is_floating(x.dtype) else np.result_type(x.dtype, y.dtype)
    return cast(o.pow(cast(x, wide), cast(y, wide)), x.dtype)


# -- copies -----------------------------------------------------------------------------------------------------------


@converts("Identity")
def identity(at: OnnxScope, node: OnnxNode) -> Any:
    return at.value(node.inputs[0])


@converts("EyeLike")
def eye_like(at: OnnxScope, node: OnnxNode) -> Tensor:
    x = at.value(node.inputs[0])
    dtype = target(node.attr("dtype")) if node.attr("dtype") else x.dtype
    return o.eye(*x.shape, k=node.attr("k", 0), dtype=dtype)
