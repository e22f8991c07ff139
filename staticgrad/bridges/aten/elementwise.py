"""Functions of elements: their converters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.base.types import is_floating
from staticgrad.bridges.arrays import cast
from staticgrad.bridges.aten.dialect import AtenCall, converts, dtype_of_torch
from staticgrad.bridges.forms import truncated_quotient, truncated_remainder
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

# Of one operand in the dtype of the result, which is a float.
FLOATING = {
    "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atan": "atan", "atanh": "atanh", "cos": "cos",
    "cosh": "cosh", "digamma": "digamma", "erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "exp": "exp",
    "exp2": "exp2", "expm1": "expm1", "i0": "i0", "lgamma": "lgamma", "log": "log", "log10": "log10",
    "log1p": "log1p", "log2": "log2", "reciprocal": "reciprocal", "rsqrt": "rsqrt", "sigmoid": "sigmoid",
    "sin": "sin", "sinh": "sinh", "sqrt": "sqrt", "tan": "tan", "tanh": "tanh", "special_i0e": "i0e",
    "special_i1": "i1", "special_i1e": "i1e", "special_ndtri": "ndtri", "special_ndtr": "ndtr",
    "special_log_ndtr": "log_ndtr", "special_erfcx": "erfcx", "special_entr": "", "sinc": "sinc", "logit": "",
}  # fmt: skip
# Of one operand, in its dtype or to bool.
PLAIN = {
    "abs": "abs", "neg": "negative", "ceil": "ceil", "floor": "floor", "trunc": "trunc", "fix": "trunc",
    "square": "square", "positive": "positive", "isinf": "isinf", "isnan": "isnan", "isfinite": "isfinite",
    "signbit": "signbit", "bitwise_not": "bitwise_invert", "relu": "relu", "relu6": "relu6", "silu": "silu",
    "mish": "mish", "selu": "selu", "hardsigmoid": "hardsigmoid", "hardswish": "hardswish", "softsign": "softsign",
    "log_sigmoid": "log_sigmoid",
}  # fmt: skip
# Of two operands in the dtype of the result.
ARITHMETIC = {
    "mul": "multiply", "atan2": "atan2", "maximum": "maximum", "minimum": "minimum", "remainder": "remainder",
    "hypot": "hypot", "nextafter": "nextafter",
    "logaddexp": "logaddexp", "copysign": "copysign", "xlogy": "xlogy", "special_xlog1py": "xlog1py",
    "bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor",
    "bitwise_left_shift": "bitwise_left_shift", "bitwise_right_shift": "bitwise_right_shift",
    "__lshift__": "bitwise_left_shift", "__rshift__": "bitwise_right_shift",
    "igamma": "gammainc", "igammac": "gammaincc", "special_gammainc": "gammainc", "special_gammaincc": "gammaincc",
    "floor_divide": "floor_divide",
}  # fmt: skip
COMPARISONS = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
}  # fmt: skip
LOGICAL = {"logical_and": "logical_and", "logical_or": "logical_or", "logical_xor": "logical_xor"}


def _named(name: str) -> Callable[..., Tensor]:
    return lambda *xs: getattr(o, name)(*xs)


def _enter_floating(name: str, function: Callable[..., Tensor]) -> None:
    converts(name)(lambda at, x: function(at.cast(x)))


def _enter_plain(name: str, function: Callable[..., Tensor]) -> None:
    converts(name)(lambda x: function(x))


def _enter_arithmetic(name: str, function: Callable[..., Tensor]) -> None:
    converts(name)(lambda at, x, other: function(at.tensor(x), at.cast(other)))


def _enter_comparison(name: str, function: Callable[..., Tensor]) -> None:
    converts(name)(lambda at, x, other: function(*at.common(x, other)))


def _enter_logical(name: str, function: Callable[..., Tensor]) -> None:
    converts(name)(lambda x, other: function(as_bool(x), as_bool(other)))


for _table, _enter in (
    (FLOATING, _enter_floating),
    (PLAIN, _enter_plain),
    (ARITHMETIC, _enter_arithmetic),
    (COMPARISONS, _enter_comparison),
    (LOGICAL, _enter_logical),
):
    for _key, _name in _table.items():
        if _name:
            _enter(_key, _named(_name))


def as_bool(x: Tensor) -> Tensor:
    return x if x.dtype == np.dtype(bool) else x != 0


@converts("alias", "clone", "lift_fresh_copy", "contiguous", "lift")
def same(at: AtenCall, x: Tensor) -> Any:
    """A new name of a value; one that is known stays so."""
    return at.known(0, "") if at.is_known(0) else o.identity(x)


@converts("detach")
def detach(at: AtenCall, x: Tensor) -> Any:
    return at.known(0, "") if at.is_known(0) else o.stop_gradient(x)


@converts("logical_not")
def logical_not(x: Tensor) -> Tensor:
    return o.logical_not(as_bool(x))


@converts("sign", "sgn")
def sign(x: Tensor) -> Tensor:
    return x if x.dtype == np.dtype(bool) else o.sign(x)


@converts("round")
def round_(x: Tensor, decimals: int = 0) -> Tensor:
    return o.round(x) if decimals == 0 else o.round(x * 10.0**decimals) / 10.0**decimals


@converts("add")
def add(at: AtenCall, x: Any, other: Any, alpha: Any = 1) -> Tensor:
    x, other = at.tensor(x), at.cast(other)
    if x.dtype == np.dtype(bool):
        return o.logical_or(x, other)
    return o.add(x, other if alpha == 1 else other * alpha)


@converts("sub")
def sub(at: AtenCall, x: Any, other: Any, alpha: Any = 1) -> Tensor:
    x, other = at.tensor(x), at.cast(other)
    return o.subtract(x, other if alpha == 1 else other * alpha)


@converts("rsub")
def rsub(at: AtenCall, x: Any, other: Any, alpha: Any = 1) -> Tensor:
    return sub(at, other, x, alpha)


@converts("div", "true_divide")
def div(at: AtenCall, x: Any, other: Any, rounding_mode: str | None = None) -> Tensor:
    x, other = at.tensor(x), at.cast(other)
    if rounding_mode == "floor":
        return o.floor_divide(x, other)
    if rounding_mode is None or is_floating(at.dtype):
        return o.trunc(o.divide(x, other)) if rounding_mode else o.divide(x, other)
    return truncated_quotient(x, at.tensor(other))


@converts("fmod")
def fmod(at: AtenCall, x: Any, other: Any) -> Tensor:
    return truncated_remainder(at.tensor(x), at.tensor(other))


@converts("pow")
def pow_(at: AtenCall, x: Any, exponent: Any) -> Tensor:
    return o.pow(at.tensor(x), at.cast(exponent))


@converts("float_power")
def float_power(at: AtenCall, x: Any, exponent: Any) -> Tensor:
    return o.pow(at.tensor(x), at.cast(exponent))


@converts("fmax")
def fmax(at: AtenCall, x: Any, other: Any) -> Tensor:
    x, other = at.cast(x), at.cast(other)
    return o.where((x >= other) | o.isnan(other), x, other)


@converts("fmin")
def fmin(at: AtenCall, x: Any, other: Any) -> Tensor:
    x, other = at.cast(x), at.cast(other)
    return o.where((x <= other) | o.isnan(other), x, other)


@converts("clamp", "clip")
def clamp(at: AtenCall, x: Any, min: Any = None, max: Any = None) -> Tensor:
    """The derivative by x is 1 at the bounds, too."""
    x, low, high = at.cast(x), at.cast(min), at.cast(max)
    y = x
    if low is not None:
        y = o.where(y < low, low, y)
    return y if high is None else o.where(y > high, high, y)


@converts("clamp_min")
def clamp_min(at: AtenCall, x: Any, min: Any) -> Tensor:
    return clamp(at, x, min)


@converts("clamp_max")
def clamp_max(at: AtenCall, x: Any, max: Any) -> Tensor:
    return clamp(at, x, None, max)


@converts("where")
def where(at: AtenCall, condition: Tensor, x: Any, other: Any) -> Tensor:
    return o.where(as_bool(condition), at.cast(x), at.cast(other))


@converts("masked_fill")
def masked_fill(at: AtenCall, x: Tensor, mask: Tensor, value: Any) -> Tensor:
    return o.where(mask, at.tensor(value), x)


@converts("ldexp")
def ldexp(at: AtenCall, x: Any, other: Any) -> Tensor:
    return at.tensor(x) * o.exp2(at.tensor(other))


@converts("lerp")
def lerp(at: AtenCall, x: Tensor, end: Tensor, weight: Any) -> Tensor:
    return x + at.tensor(weight) * (end - x)


@converts("addcmul")
def addcmul(at: AtenCall, x: Tensor, tensor1: Tensor, tensor2: Tensor, value: Any = 1) -> Tensor:
    product = at.tensor(tensor1) * at.tensor(tensor2)
    return at.tensor(x) + (product if value == 1 else product * value)


@converts("addcdiv")
def addcdiv(at: AtenCall, x: Tensor, tensor1: Tensor, tensor2: Tensor, value: Any = 1) -> Tensor:
    quotient = at.tensor(tensor1) / at.tensor(tensor2)
    return at.tensor(x) + (quotient if value == 1 else quotient * value)


@converts("polygamma", "special_polygamma")
def polygamma(n: int, x: Tensor) -> Tensor:
    return o.polygamma(n, x)


@converts("special_entr")
def entr(at: AtenCall, x: Tensor) -> Tensor:
    x = at.cast(x)
    return o.where(x < 0, -math.inf, -o.xlogy(x, x))


@converts("logit")
def logit(at: AtenCall, x: Tensor, eps: float | None = None) -> Tensor:
    x = at.cast(x) if eps is None else clamp(at, x, eps, 1 - eps)
    return o.log(x) - o.log1p(-x)


@converts("nan_to_num")
def nan_to_num(x: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    if not is_floating(x.dtype):
        return x
    limits = np.finfo(np.float32 if x.dtype.itemsize < 4 else x.dtype)
    x = o.where(o.isnan(x), nan or 0.0, x)
    x = o.where(x == math.inf, float(limits.max) if posinf is None else posinf, x)
    return o.where(x == -math.inf, float(limits.min) if neginf is None else neginf, x)


# -- activations with arguments ----------------------------------------------------------------------------------------


@converts("gelu")
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    return o.gelu(x, approximate)


@converts("leaky_relu")
def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    return o.leaky_relu(x, negative_slope)


@converts("elu")
def elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    if input_scale == 1:
        y = o.elu(x, alpha)
        return y if scale == 1 else y * scale
    return o.where(x > 0, x, o.expm1(o.minimum(x, 0.0) * input_scale) * alpha) * scale


@converts("hardtanh")
def hardtanh(x: Tensor, min_val: float = -1, max_val: float = 1) -> Tensor:
    return o.hardtanh(x, min_val, max_val)


@converts("softplus")
def softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    return o.softplus(x, beta, threshold)


@converts("_prelu_kernel")
def prelu(x: Tensor, weight: Tensor) -> Tensor:
    return o.where(x > 0, x, x * weight)


# -- dtypes ------------------------------------------------------------------------------------------------------------


@converts("_to_copy", "to", "convert_element_type", "type_as")
def to_copy(at: AtenCall, x: Tensor, dtype: Any = None, other: Any = None, copy: bool = False) -> Tensor:
    return cast(x, at.dtype)


@converts("_local_scalar_dense", "item")
def local_scalar(at: AtenCall, x: Tensor) -> Any:
    return np.asarray(at.known(0, "a number of Python")).item()


def numpy_dtype(dtype: Any, default: Any = None) -> Any:
    return default if dtype is None else dtype_of_torch(dtype)
