"""ONNX's operators on elements: arithmetic, functions, comparisons, logic, casts, activations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.base.types import bool_, computed, int32, is_floating, is_integer, uint8
from staticgrad.bridges.arrays import cast, functions
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.onnx.dialect import OnnxScope, converts
from staticgrad.bridges.onnx.program import OnnxNode, dtype_for, element_name, short_bits
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
    return o.divide(a, b) if is_floating(a.dtype) else truncated(a, b)


def truncated(a: Tensor, b: Tensor) -> Tensor:
    """The quotient of integers, rounded towards zero."""
    quotient = o.floor_divide(a, b)
    if a.dtype.kind == "u":
        return quotient
    inexact = o.logical_and(o.not_equal(o.remainder(a, b), 0), o.not_equal(a < 0, b < 0))
    return cast(o.where(inexact, quotient + 1, quotient), a.dtype)


@converts("Mod")
def modulo(at: OnnxScope, node: OnnxNode) -> Tensor:
    a, b = at.tensors(node.inputs)
    if not node.attr("fmod", 0) or a.dtype.kind == "u":
        return o.remainder(a, b)
    size = o.remainder(o.abs(a), o.abs(b))  # exact, also of floats
    return o.copysign(size, a) if is_floating(a.dtype) else o.where(a < 0, -size, size)


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


# -- casts, copies -----------------------------------------------------------------------------------------------------


@converts("Cast")
def to_dtype(at: OnnxScope, node: OnnxNode) -> Tensor:
    return shortened(converted(at.tensor(node.inputs[0]), target(node.attr("to"))), node.attr("to"))


def shortened(x: Tensor, elem_type: int) -> Tensor:
    """Integers whose low bits alone are kept, where there are less than eight."""
    bits = short_bits(elem_type)
    if not bits:
        return x
    half = 2 ** (bits - 1) if x.dtype.kind == "i" else 0
    return cast(o.bitwise_and(cast(x, int32) + half, 2**bits - 1) - half, x.dtype)


@converts("CastLike")
def to_dtype_of(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, like = at.tensors(node.inputs)
    return converted(x, like.dtype)


def converted(x: Tensor, dtype: Any) -> Tensor:
    """The tensor in another dtype: floats towards zero, of anything True where it is not 0."""
    return o.not_equal(x, 0) if dtype == bool_ and x.dtype != bool_ else cast(x, dtype)


def target(elem_type: int) -> np.dtype:
    """The dtype that an attribute names."""
    dtype = dtype_for(elem_type)
    if dtype is None:
        raise RefusedError(f"elements of {element_name(elem_type)} are not supported")
    return dtype


@converts("Identity")
def identity(at: OnnxScope, node: OnnxNode) -> Any:
    return at.value(node.inputs[0])


@converts("BitCast")
def same_bits(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, dtype = at.tensor(node.inputs[0]), target(node.attr("to"))
    return o.bitcast(x, dtype)


# -- rounded and clipped to integers -----------------------------------------------------------------------------------


def saturated(x: Tensor, dtype: Any, limits: tuple[int, int] | None = None) -> Tensor:
    """Numbers, rounded to the nearest integer, half to even, and limited, by default to what the dtype has."""
    low, high = limits or (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    return cast(o.clip(o.round(x), float(low), float(high)), dtype)


def along(x: Tensor, like: Tensor, axis: int, block: int = 0) -> Tensor:
    """Parameters of a quantization in the shape of what is quantized: one for all, one for each place along an axis,
    or one for each block of places."""
    if block:
        return o.repeat(x, block, axis=axis)[tuple(slice(0, size) for size in like.shape)]
    if (x.ndim == 1 and like.ndim != 1) or x.size != 1:
        shape: list[Any] = [1] * like.ndim
        shape[axis] = x.shape[0]
        return o.reshape(x, tuple(shape)) if x.ndim == 1 else x
    return o.reshape(x, ())


@converts("QuantizeLinear")
def quantize(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, scale, zero = at.operands(node, 3)
    named = node.attr("output_dtype", 0)
    dtype = target(named) if named else zero.dtype if zero is not None else uint8
    if not is_integer(dtype):
        raise RefusedError(f"a quantization to {dtype.name} is not converted")
    return quantized(x, scale, zero, dtype, node, at.limits(node, dtype))


def quantized(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None,
    dtype: Any,
    node: OnnxNode | None = None,
    limits: tuple[int, int] | None = None,
) -> Tensor:
    """x / scale, rounded half to even, + the zero point, within what the dtype has."""
    axis, block = (1, 0) if node is None else (node.attr("axis", 1), node.attr("block_size", 0))
    axis = axis if -x.ndim <= axis < x.ndim else 0
    wide = o.round(cast(x, np.float32) / along(cast(scale, np.float32), x, axis, block))
    if zero is not None:
        wide = wide + along(cast(zero, np.float32), x, axis, block)
    return saturated(wide, dtype, limits)


@converts("DequantizeLinear")
def dequantize(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, scale, zero = at.operands(node, 3)
    named = node.attr("output_dtype", 0)
    return cast(dequantized(x, scale, zero, node), target(named) if named else scale.dtype)


def dequantized(x: Tensor, scale: Tensor, zero: Tensor | None, node: OnnxNode | None = None) -> Tensor:
    """(x - the zero point) * scale."""
    axis, block = (1, 0) if node is None else (node.attr("axis", 1), node.attr("block_size", 0))
    axis = axis if -x.ndim <= axis < x.ndim else 0
    wide = cast(x, int32)
    if zero is not None:
        wide = wide - along(cast(zero, int32), x, axis, block)
    return cast(wide, np.float32) * along(cast(scale, np.float32), x, axis, block)


@converts("EyeLike")
def eye_like(at: OnnxScope, node: OnnxNode) -> Tensor:
    x = at.value(node.inputs[0])
    dtype = target(node.attr("dtype")) if node.attr("dtype") else x.dtype
    return o.eye(*x.shape, k=node.attr("k", 0), dtype=dtype)
