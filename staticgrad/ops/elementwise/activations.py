"""Activations, which ``staticgrad.nn`` exports: names, arguments and defaults are PyTorch's.

Where a function has a kink, its derivative there is PyTorch's as well: 0 for ``relu`` at 0 and for ``hardtanh`` at its
ends.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import number
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import Array, Case, Namespace, Range, public
from staticgrad.graph.scalar import ScalarBuilder, V
from staticgrad.ops.declare import FLOAT, NUMERIC, accepted, declare, refuse_in_place, shown_as
from staticgrad.ops.elementwise.arithmetic import abs, add, divide, minimum, multiply
from staticgrad.ops.elementwise.copies import rounded_once
from staticgrad.ops.elementwise.elementary import exp
from staticgrad.ops.elementwise.entry import AWAY_FROM_ZERO, WIDE, Rule, elementwise, scaled, unary, unary_cases
from staticgrad.ops.elementwise.error import normal_distribution


def _reference_sigmoid(x: Array) -> Array:
    decay = np.exp(-np.absolute(x))
    return np.where(x >= 0, 1 / (1 + decay), decay / (1 + decay))


def _reference_silu(x: Array) -> Array:
    half = np.exp(-np.absolute(x) / 2)
    return np.asarray(np.where(x >= 0, x / (1 + half * half), x * half * half / (1 + half * half)))


sigmoid = unary(
    "sigmoid", "The logistic function 1 / (1 + exp(-x)).", "sigmoid", _reference_sigmoid, FLOAT,
    scaled(lambda o, y, x: y * (1.0 - y)), WIDE, activation=True,
    example=("sg.nn.sigmoid([0.0, 1.0, -1000.0])", "array([0.5 , 0.7310..., 0. ], dtype=float32)"),
)  # fmt: skip


ACTIVATIONS = (
    "relu", "relu6", "leaky_relu", "elu", "selu", "gelu", "silu", "mish", "softplus", "softsign", "hardtanh",
    "hardsigmoid", "hardswish", "log_sigmoid",
)  # fmt: skip

relu = unary(
    "relu", "max(input, 0); its derivative at 0 is 0.",
    lambda b, attrs, x: b.maximum(x, b.const(0, x.dtype)), lambda x: np.maximum(x, 0), NUMERIC,
    lambda o, t, y, x: o.where(o.less_equal(y, 0), 0, t), AWAY_FROM_ZERO, activation=True,
    example=("sg.nn.relu([-1.0, 0.0, 2.0])", "array([0., 0., 2.], dtype=float32)"),
)  # fmt: skip


@frozen
class HardtanhAttributes:
    """The interval that values are limited to."""

    min_val: float
    max_val: float


def _between(a: HardtanhAttributes) -> Sequence[Rule]:
    def rule(o: Namespace, t: Tensor, y: Tensor, x: Tensor) -> Tensor:
        return o.where(o.logical_or(o.less_equal(x, a.min_val), o.greater_equal(x, a.max_val)), 0, t)

    return (rule,)


HARDTANH = elementwise(
    "hardtanh",
    "The values limited to an interval, with derivative 0 at its ends.",
    lambda b, a, x: b.minimum(b.maximum(x, b.const(a.min_val, x.dtype)), b.const(a.max_val, x.dtype)),
    lambda a, x: np.clip(x, a.min_val, a.max_val),
    FLOAT,
    _between,
    (
        *unary_cases(Range(-1.8, 1.8, kinks=(-1.0, 1.0)), [HardtanhAttributes(-1.0, 1.0)]),
        Case(((2, 7),), HardtanhAttributes(0.0, 6.0), (Range(-3.0, 9.0, kinks=(0.0, 6.0)),)),
    ),
)


@public
def hardtanh(input: TensorLike, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """The values limited to [min_val, max_val]; the derivative is 0 from the ends outwards.

    Example:
        >>> sg.Session().run(sg.nn.hardtanh([-2.0, 0.5, 2.0]))
        array([-1. ,  0.5,  1. ], dtype=float32)
    """
    refuse_in_place("hardtanh", inplace)
    attrs = HardtanhAttributes(number(min_val, "hardtanh: min_val"), number(max_val, "hardtanh: max_val"))
    return declare(HARDTANH, accepted("hardtanh", FLOAT, input), attrs)


@public
def relu6(input: TensorLike, inplace: bool = False) -> Tensor:
    """min(max(input, 0), 6).

    Example:
        >>> sg.Session().run(sg.nn.relu6([-1.0, 3.0, 8.0]))
        array([0., 3., 6.], dtype=float32)
    """
    refuse_in_place("relu6", inplace)
    return hardtanh(input, 0.0, 6.0)


@frozen
class LeakyReluAttributes:
    """The slope below zero."""

    negative_slope: float


LEAKY_RELU = elementwise(
    "leaky_relu",
    "x above zero, negative_slope * x elsewhere.",
    lambda b, a, x: b.select(b.gt(x, b.const(0, x.dtype)), x, b.mul(x, b.const(a.negative_slope, x.dtype))),
    lambda a, x: np.where(x > 0, x, a.negative_slope * x),
    FLOAT,
    lambda a: (lambda o, t, y, x: o.where(o.greater(x, 0), t, t * a.negative_slope),),
    unary_cases(AWAY_FROM_ZERO, [LeakyReluAttributes(0.01), LeakyReluAttributes(0.3)]),
)


@public
def leaky_relu(input: TensorLike, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """``input`` above zero, ``negative_slope * input`` elsewhere (also for the derivative at 0).

    Example:
        >>> sg.Session().run(sg.nn.leaky_relu([-1.0, 0.0, 2.0], 0.25))
        array([-0.25,  0.  ,  2.  ], dtype=float32)
    """
    refuse_in_place("leaky_relu", inplace)
    attrs = LeakyReluAttributes(number(negative_slope, "leaky_relu: negative_slope"))
    return declare(LEAKY_RELU, accepted("leaky_relu", FLOAT, input), attrs)


@frozen
class EluAttributes:
    """``scale`` times the function, whose limit for -infinity is ``-alpha``."""

    alpha: float
    scale: float = 1.0


def _scalar_elu(b: ScalarBuilder[V], a: EluAttributes, x: V) -> V:
    zero = b.const(0, x.dtype)
    below = b.mul(b.const(a.alpha * a.scale, x.dtype), b.expm1(b.minimum(x, zero)))
    above = x if a.scale == 1.0 else b.mul(b.const(a.scale, x.dtype), x)
    return b.select(b.gt(x, zero), above, below)


def _slope_of_elu(a: EluAttributes, o: Namespace, y: Tensor, x: Tensor) -> Tensor:
    """At 0, where the derivative of the slope jumps, the slope is a constant, so its derivative is 0."""
    below = y + a.alpha * a.scale
    return o.where(o.greater(x, 0), a.scale, o.where(o.equal(x, 0), a.alpha * a.scale, below))


ELU = elementwise(
    "elu",
    "x above zero, alpha * (exp(x) - 1) elsewhere, times a scale.",
    _scalar_elu,
    lambda a, x: a.scale * np.where(x > 0, x, a.alpha * np.expm1(x)),
    FLOAT,
    lambda a: (scaled(functools.partial(_slope_of_elu, a)),),
    unary_cases(AWAY_FROM_ZERO, [EluAttributes(1.0), EluAttributes(0.7)]),
)


@public
def elu(input: TensorLike, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """``input`` above zero, ``alpha * (exp(input) - 1)`` elsewhere (Clevert et al., arXiv:1511.07289).

    Example:
        >>> sg.Session().run(sg.nn.elu([-1.0, 0.0, 2.0])).round(3)
        array([-0.632,  0.   ,  2.   ], dtype=float32)
    """
    refuse_in_place("elu", inplace)
    return declare(ELU, accepted("elu", FLOAT, input), EluAttributes(number(alpha, "elu: alpha")))


@public
def selu(input: TensorLike, inplace: bool = False) -> Tensor:
    """The scaled ELU whose constants keep mean 0 and variance 1 (Klambauer et al., arXiv:1706.02515).

    Example:
        >>> sg.Session().run(sg.nn.selu([-1.0, 0.0, 1.0])).round(3)
        array([-1.111,  0.   ,  1.051], dtype=float32)
    """
    refuse_in_place("selu", inplace)
    attrs = EluAttributes(alpha=1.6732632423543772848, scale=1.0507009873554804934)
    return declare(ELU, accepted("selu", FLOAT, input), attrs)


@frozen
class GeluAttributes:
    """The attributes of a GELU: ``approximate`` says whether the normal distribution function is replaced by its
    approximation with tanh."""

    approximate: str


_GELU_CUBE = 0.044715
_GELU_SCALE = math.sqrt(2 / math.pi)


def _scalar_gelu(b: ScalarBuilder[V], a: GeluAttributes, x: V) -> V:
    def const(value: float) -> V:
        return b.const(value, x.dtype)

    if a.approximate == "tanh":  # (1 + tanh(u)) / 2 is sigmoid(2u), which keeps its digits where it is tiny
        slope = b.fma(const(2 * _GELU_SCALE * _GELU_CUBE), b.mul(x, x), const(2 * _GELU_SCALE))
        return b.mul(x, b.sigmoid(b.mul(x, slope)))
    return b.mul(x, b.normal(x))


def _reference_gelu(a: GeluAttributes, x: Array) -> Array:
    if a.approximate == "tanh":
        return np.asarray(x * _reference_sigmoid(2 * _GELU_SCALE * (x + _GELU_CUBE * x**3)))
    return np.asarray(x * normal_distribution(x))


def _gelu_rules(a: GeluAttributes) -> Sequence[Rule]:
    def exact(o: Namespace, y: Tensor, x: Tensor) -> Tensor:
        return o.ndtr(x) + x * (o.gaussian(x) * (1 / math.sqrt(2 * math.pi)))

    def approximate(o: Namespace, y: Tensor, x: Tensor) -> Tensor:
        square = x * x
        gate = o.sigmoid(x * (square * (2 * _GELU_SCALE * _GELU_CUBE) + 2 * _GELU_SCALE))
        inner = x * (square * (6 * _GELU_SCALE * _GELU_CUBE) + 2 * _GELU_SCALE)
        return gate + o.multiply_no_nan(inner, gate * (1.0 - gate))

    return (scaled(approximate if a.approximate == "tanh" else exact),)


GELU = elementwise(
    "gelu",
    "x times the probability that a standard normal variable is below x.",
    _scalar_gelu,
    _reference_gelu,
    FLOAT,
    _gelu_rules,
    unary_cases(WIDE, [GeluAttributes("none"), GeluAttributes("tanh")]),
    tolerance=2.0,
)


def check_approximate(approximate: str, what: str) -> None:
    """Refuse an approximation that there is none of.

    Raises:
        GraphError: it is neither ``"none"`` nor ``"tanh"``.
    """
    if approximate not in ("none", "tanh"):
        raise GraphError(f"{what}: approximate={approximate!r}: expected 'none' or 'tanh'")


@public
def gelu(input: TensorLike, approximate: str = "none") -> Tensor:
    """``input`` times the standard normal distribution function of it (Hendrycks and Gimpel, arXiv:1606.08415).

    Tiny results on the left have all their digits, unless they are denormal (errors of 30 units of the least one).
    Those of the approximation are as good as the rounding of the argument u of its x/2·(1 + tanh(u)) allows: 6·abs(u)
    units in the last place there.

    Args:
        approximate: ``"none"``, or ``"tanh"`` for the approximation with a hyperbolic tangent.

    Raises:
        GraphError: another value of ``approximate``.

    Example:
        >>> sg.Session().run(sg.nn.gelu([-1.0, 0.0, 1.0])).round(4)
        array([-0.1587,  0.    ,  0.8413], dtype=float32)
        >>> sg.Session().run(sg.nn.gelu([-1.0, 0.0, 1.0], approximate="tanh")).round(4)
        array([-0.1588,  0.    ,  0.8412], dtype=float32)
    """
    check_approximate(approximate, "gelu")
    return declare(GELU, accepted("gelu", FLOAT, input), GeluAttributes(approximate))


silu = unary(
    "silu", "input * sigmoid(input).", "silu",
    lambda x: _reference_silu(x), FLOAT, scaled(lambda o, y, x: _silu_slope(o, x)), WIDE, activation=True,
    example=("sg.nn.silu([0.0, 1.0, -1.0])", "array([ 0. , 0.7310..., -0.2689...], dtype=float32)"),
)  # fmt: skip


def _silu_slope(o: Namespace, x: Tensor) -> Tensor:
    gate = o.sigmoid(x)
    return gate * (x * (1.0 - gate) + 1.0)


@frozen
class SoftplusAttributes:
    """log(1 + exp(beta x)) / beta, and x where beta x is above the threshold."""

    beta: float
    threshold: float


_LINEAR = 40.0  # from here on log(1 + exp(x)) is x, in float64 too


def _scalar_softplus(b: ScalarBuilder[V], a: SoftplusAttributes, x: V) -> V:
    scaled_x = x if a.beta == 1.0 else b.mul(b.const(a.beta, x.dtype), x)
    soft = b.log1p(b.exp(scaled_x))
    soft = soft if a.beta == 1.0 else b.div(soft, b.const(a.beta, x.dtype))
    return b.select(b.gt(scaled_x, b.const(min(a.threshold, _LINEAR), x.dtype)), x, soft)


def _softplus_rules(a: SoftplusAttributes) -> Sequence[Rule]:
    def slope(o: Namespace, y: Tensor, x: Tensor) -> Tensor:
        inner = x if a.beta == 1.0 else x * a.beta
        return o.where(o.greater(inner, a.threshold), 1, o.sigmoid(inner))

    return (scaled(slope),)


SOFTPLUS = elementwise(
    "softplus",
    "log(1 + exp(beta x)) / beta, linear where beta x is above a threshold.",
    _scalar_softplus,
    lambda a, x: np.where(a.beta * x > a.threshold, x, np.logaddexp(0, a.beta * x) / a.beta),
    FLOAT,
    _softplus_rules,
    unary_cases(WIDE, [SoftplusAttributes(1.0, 20.0), SoftplusAttributes(2.0, 5.0)]),
    tolerance=2.0,
)


@public
def softplus(input: TensorLike, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """``log(1 + exp(beta * input)) / beta``, and ``input`` where ``beta * input > threshold``.

    In float64 the step at the default threshold, exp(-20) = 2e-9, is to be seen; with one of 40 there is none.

    Example:
        >>> sg.Session().run(sg.nn.softplus([-1.0, 0.0, 30.0])).round(3)
        array([ 0.313,  0.693, 30.   ], dtype=float32)
    """
    attrs = SoftplusAttributes(number(beta, "softplus: beta"), number(threshold, "softplus: threshold"))
    return declare(SOFTPLUS, accepted("softplus", FLOAT, input), attrs)


def _scalar_log_sigmoid(b: ScalarBuilder[V], x: V) -> V:
    return b.select(b.lt(x, b.const(-_LINEAR, x.dtype)), x, b.neg(b.log1p(b.exp(b.neg(x)))))


log_sigmoid: Callable[[TensorLike], Tensor] = unary(
    "log_sigmoid", "log(sigmoid(input)), without overflow.", lambda b, attrs, x: _scalar_log_sigmoid(b, x),
    lambda x: -np.logaddexp(0, -x), FLOAT, scaled(lambda o, y, x: o.sigmoid(o.negative(x))), WIDE, tolerance=2.0,
    activation=True,
    example=("sg.nn.log_sigmoid([0.0, -1000.0])", "array([-6.931...e-01, -1.000...e+03], dtype=float32)"),
)  # fmt: skip


def _scalar_hardsigmoid(b: ScalarBuilder[V], x: V) -> V:
    """(x + 3) / 6, limited: the sum is exact where it is small."""
    shifted = b.mul(b.add(x, b.const(3, x.dtype)), b.const(1 / 6, x.dtype))
    return b.minimum(b.maximum(shifted, b.const(0, x.dtype)), b.const(1, x.dtype))


_HARD = Range(-5.0, 5.0, kinks=(-3.0, 3.0))

hardsigmoid = unary(
    "hardsigmoid", "input / 6 + 1/2, limited to [0, 1].", lambda b, attrs, x: _scalar_hardsigmoid(b, x),
    lambda x: np.clip((x + 3) / 6, 0, 1), FLOAT,
    lambda o, t, y, x: o.where(o.logical_and(o.greater(x, -3), o.less(x, 3)), t * (1 / 6), 0), _HARD, tolerance=2.0,
    activation=True,
    example=("sg.nn.hardsigmoid([-4.0, 0.0, 4.0])", "array([0. , 0.5, 1. ], dtype=float32)"),
)  # fmt: skip

hardswish = unary(
    "hardswish", "input * hardsigmoid(input).", lambda b, attrs, x: b.mul(x, _scalar_hardsigmoid(b, x)),
    lambda x: x * np.clip((x + 3) / 6, 0, 1), FLOAT,
    scaled(lambda o, y, x: o.where(o.less_equal(x, -3), 0, o.where(o.greater_equal(x, 3), 1, x * (1 / 3) + 0.5))),
    _HARD, tolerance=2.0, activation=True,
    example=("sg.nn.hardswish([-4.0, 0.0, 4.0])", "array([-0.,  0.,  4.], dtype=float32)"),
)  # fmt: skip


@public
@shown_as("MishBackward0")
def mish(input: TensorLike, inplace: bool = False) -> Tensor:
    """``input * tanh(softplus(input))`` (Misra, arXiv:1908.08681).

    Example:
        >>> sg.Session().run(sg.nn.mish([-1.0, 0.0, 1.0])).round(3)
        array([-0.303,  0.   ,  0.865], dtype=float32)
    """
    refuse_in_place("mish", inplace)
    x = accepted("mish", FLOAT, input)[0]
    return rounded_once(_mish, x)


def _mish(x: Tensor) -> Tensor:
    """silu(x)·(1 + w/(w·(w + 2) + 2)) with w = exp(x): no factor is denormal where the result is not."""
    w = exp(minimum(x, 40.0))
    return multiply(silu(x), add(divide(w, add(multiply(w, add(w, 2.0)), 2.0)), 1.0))


@public
def softsign(input: TensorLike) -> Tensor:
    """``input / (1 + |input|)``.

    Example:
        >>> sg.Session().run(sg.nn.softsign([-1.0, 0.0, 3.0]))
        array([-0.5 ,  0.  ,  0.75], dtype=float32)
    """
    x = accepted("softsign", FLOAT, input)[0]
    return rounded_once(lambda x: divide(x, add(abs(x), 1.0)), x)
