"""Functions of elements: their converters."""

from __future__ import annotations

from typing import Any

import numpy as np

from staticgrad.base.types import is_floating
from staticgrad.bridges.arrays import cast
from staticgrad.bridges.aten.dialect import (
    BOOL,
    AtenCall,
    as_bool,
    as_bools,
    as_given,
    converts,
    direct,
    entries,
    in_common,
    in_result,
)  # fmt: skip
from staticgrad.bridges.forms import truncated_quotient, truncated_remainder
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

direct(
    in_result,
    "acos acosh asin asinh atan atanh cos cosh digamma erf erfc erfinv exp exp2 expm1 i0 lgamma log log10 log1p log2"
    " reciprocal rsqrt sigmoid sin sinc sinh sqrt tan tanh special_erfcx=erfcx special_i0e=i0e special_i1=i1"
    " special_i1e=i1e special_log_ndtr=log_ndtr special_ndtr=ndtr special_ndtri=ndtri"
    " atan2 copysign floor_divide float_power=pow hypot igamma=gammainc igammac=gammaincc logaddexp maximum minimum"
    " mul=multiply nextafter pow remainder special_gammainc=gammainc special_gammaincc=gammaincc"
    " special_xlog1py=xlog1py xlogy bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor"
    " __lshift__=bitwise_left_shift __rshift__=bitwise_right_shift",
)
direct(
    as_given,
    "abs bitwise_not=bitwise_invert ceil fix=trunc floor isfinite isinf isnan neg=negative polygamma positive signbit"
    " special_polygamma=polygamma square trunc gelu hardsigmoid hardswish hardtanh leaky_relu log_sigmoid mish relu"
    " relu6 selu silu softplus softsign",
)
direct(in_common, "eq=equal ge=greater_equal gt=greater le=less_equal lt=less ne=not_equal")
direct(as_bools, "logical_and logical_not logical_or logical_xor")


@converts("alias", "clone", "lift_fresh_copy", "contiguous", "lift", "detach")
def same(at: AtenCall, x: Tensor) -> Any:
    """A new name of a value; one that is known stays so."""
    if at.is_known(0):
        return at.known(0, "")
    return o.stop_gradient(x) if at.op == "detach" else o.identity(x)


@converts("add")
def add(at: AtenCall, x: Any, other: Any, alpha: Any) -> Tensor:
    x, other = at.tensor(x), at.cast(other)
    return o.logical_or(x, other) if x.dtype == BOOL else o.add(x, _scaled(other, alpha))


def _scaled(x: Any, factor: Any) -> Any:
    return x if factor == 1 else x * factor


@converts("sub")
def sub(at: AtenCall, x: Any, other: Any, alpha: Any) -> Tensor:
    return o.subtract(at.tensor(x), _scaled(at.cast(other), alpha))


@converts("div", "true_divide")
def div(at: AtenCall, x: Any, other: Any, rounding_mode: str | None) -> Tensor:
    x, other = at.tensor(x), at.cast(other)
    if rounding_mode == "floor":
        return o.floor_divide(x, other)
    if rounding_mode is None or is_floating(at.dtype):
        return o.trunc(o.divide(x, other)) if rounding_mode else o.divide(x, other)
    return truncated_quotient(x, at.tensor(other))


@converts("clamp", "clip")
def clamp(at: AtenCall, x: Any, min: Any, max: Any = None) -> Tensor:
    """The derivative by x is 1 at the bounds, too."""
    y, low, high = at.cast(x), at.cast(min), at.cast(max)
    if low is not None:
        y = o.where(y < low, low, y)
    return y if high is None else o.where(y > high, high, y)


def _extreme(at: AtenCall, x: Any, other: Any) -> Tensor:
    """The greater or the smaller one, where NaN gives way to numbers."""
    x, other = at.cast(x), at.cast(other)
    return o.where((x >= other if at.op == "fmax" else x <= other) | o.isnan(other), x, other)


def _logit(at: AtenCall, x: Tensor, eps: float | None) -> Tensor:
    x = at.cast(x) if eps is None else clamp(at, x, eps, 1 - eps)
    return o.log(x) - o.log1p(-x)


def _elu(x: Tensor, alpha: float, scale: float, input_scale: float) -> Any:
    if input_scale == 1:
        return _scaled(o.elu(x, alpha), scale)
    return o.where(x > 0, x, o.expm1(o.minimum(x, 0.0) * input_scale) * alpha) * scale


entries({
    "sign sgn": lambda x: x if x.dtype == BOOL else o.sign(x),
    "round": lambda x, decimals: o.round(x * 10.0**decimals) / 10.0**decimals if decimals else o.round(x),
    "rsub": lambda at, x, other, alpha: sub(at, other, x, alpha),
    "fmod": lambda at, x, other: truncated_remainder(at.tensor(x), at.tensor(other)),
    "fmax fmin": _extreme,
    "clamp_min": lambda at, x, min: clamp(at, x, min),
    "clamp_max": lambda at, x, max: clamp(at, x, None, max),
    "where": lambda at, condition, x, other: o.where(as_bool(condition), at.cast(x), at.cast(other)),
    "masked_fill": lambda at, x, mask, value: o.where(mask, at.tensor(value), x),
    "ldexp": lambda at, x, other: at.tensor(x) * o.exp2(at.tensor(other)),
    "lerp": lambda at, x, end, weight: x + at.tensor(weight) * (end - x),
    "logit": _logit,
    "elu": _elu,
    "_to_copy to type_as convert_element_type": lambda at, x, other, copy: cast(x, at.dtype),
    "_local_scalar_dense item": lambda at, x: np.asarray(at.known(0, "a number of Python")).item(),
})  # fmt: skip
