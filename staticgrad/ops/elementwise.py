"""Ops that compute each element from the elements at the same place: arithmetic, comparisons, functions, choice.

Each entry is one declaration (see ``declare``): how one element is computed, a NumPy oracle that does not share its
code, and for each operand the map ``t -> t * dy/dx``. What holds at ties and kinks: ``maximum`` and ``minimum`` give
half to each of two equal operands, ``abs``, ``sign`` and ``copysign`` have derivative 0 at 0, ``clip`` passes at its
bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.errors import GraphError
from staticgrad.frozen import frozen
from staticgrad.graph import Tensor, graph_of, lift
from staticgrad.ops.declare import (
    ANY,
    BOOL,
    FLOAT,
    INTEGERS,
    INTEGRAL,
    NEGATE,
    NOT_DIFFERENTIABLE,
    NUMERIC,
    PASS,
    Rule,
    accepted,
    binary,
    binary_cases,
    broadcast_types,
    constant_value,
    declare,
    elementwise,
    jvp_of,
    operands,
    publish,
    scaled,
    unary,
    unary_cases,
    vjp_of,
    weighted,
)
from staticgrad.optable import FUNCTIONS, Array, Case, Namespace, NoAttributes, Op, Range, public, register
from staticgrad.types import (
    DTYPES,
    DTypeLike,
    TensorType,
    bool_,
    dtype_of,
    float64,
    is_floating,
)

# -- where tests may sample -----------------------------------------------------------------------------------------

POSITIVE = Range(0.1, 3.0)
AWAY_FROM_ZERO = Range(-3.0, 3.0, kinks=(0.0,), margin=0.3)
WIDE = Range(-6.0, 6.0)
INSIDE_UNIT = Range(-0.9, 0.9)
SMALL_INTEGERS = Range(-2, 2)
BETWEEN_INTEGERS = Range(-2.8, 2.8, kinks=(-2.0, -1.0, 0.0, 1.0, 2.0))
BETWEEN_HALVES = Range(-2.8, 2.8, kinks=(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5))

# -- arithmetic -----------------------------------------------------------------------------------------------------

add = binary("add", "x1 + x2; of bools: or.", "add", np.add, ANY, (PASS, PASS))

subtract = binary("subtract", "x1 - x2.", "sub", np.subtract, NUMERIC, (PASS, NEGATE), grad_name="Sub")

multiply = binary(
    "multiply", "x1 * x2; of bools: and.", "mul", np.multiply, ANY,
    (scaled(lambda o, y, a, b: b), scaled(lambda o, y, a, b: a)), grad_name="Mul",
)  # fmt: skip


def _scalar_zero_wins(b: Any, zero: Any, x: Any, y: Any) -> Any:
    return b.select(zero, b.const(0, x.dtype), b.mul(x, y))


multiply_no_nan = binary(
    "multiply_no_nan",
    "x1 * x2, and 0 where x2 is 0, even if x1 is infinite or NaN there: how a cotangent is multiplied.",
    lambda b, attrs, x, y: _scalar_zero_wins(b, b.eq(y, b.const(0, y.dtype)), x, y),
    lambda x, y: np.where(y == 0, 0, x * y), NUMERIC,
    (lambda o, t, y, a, b: o.multiply_zeros(b, t), scaled(lambda o, y, a, b: a)),
)  # fmt: skip

multiply_zeros = binary(
    "multiply_zeros",
    "x1 * x2, and 0 where either is 0, even if the other is infinite or NaN: products of two cotangents.",
    lambda b, attrs, x, y: _scalar_zero_wins(
        b, b.logical_or(b.eq(x, b.const(0, x.dtype)), b.eq(y, b.const(0, y.dtype))), x, y
    ),
    lambda x, y: np.where((x == 0) | (y == 0), 0, x * y), NUMERIC,
    (lambda o, t, y, a, b: o.multiply_zeros(b, t), lambda o, t, y, a, b: o.multiply_zeros(a, t)),
)  # fmt: skip


def _divide_dividend(o: Namespace, t: Any, y: Any, a: Any, b: Any) -> Any:
    values = constant_value(b)
    if values is not None and np.isfinite(values).all() and (values != 0).all():
        return o.divide(t, b)
    return o.multiply_no_nan(o.reciprocal(b), t)


divide = binary(
    "divide", "x1 / x2, true division.", "div", np.divide, FLOAT,
    (_divide_dividend, scaled(lambda o, y, a, b: o.negative(y * o.reciprocal(b)))),
    binary_cases(Range(), AWAY_FROM_ZERO), grad_name="Div",
)  # fmt: skip

floor_divide = binary(
    "floor_divide", "The largest integer not above x1 / x2; integers divided by zero give 0.",
    "floor_divide", np.floor_divide, NUMERIC, (None, None),
    binary_cases(Range(-7.3, 7.7), Range(0.7, 3.0)),
)  # fmt: skip

remainder = binary(
    "remainder", "x1 - floor_divide(x1, x2) * x2, with the sign of x2; of integers by zero it is 0.",
    "remainder", np.remainder, NUMERIC,
    (PASS, scaled(lambda o, y, a, b: o.negative(o.floor_divide(a, b)))),
    (Case(((3, 4), (3, 4)), ranges=(Range(3.2, 3.8), Range(1.7, 2.4))),
     *binary_cases(Range(0.1, 0.9), Range(1.1, 3.0))),
)  # fmt: skip


def _constant_exponent(exponent: Any) -> float | None:
    """The value of an exponent that is one constant number."""
    value = constant_value(exponent)
    return float(value) if value is not None and value.ndim == 0 else None


def _pow_base(o: Namespace, t: Any, y: Any, x: Any, exponent: Any) -> Any:
    power = _constant_exponent(exponent)
    if power is None:
        slope = o.where(o.equal(exponent, 0), 0, exponent * o.pow(x, exponent - 1))
    elif power == 0:
        return None
    elif power == 1:
        return t
    else:
        slope = x * 2.0 if power == 2 else o.pow(x, power - 1) * power
    return weighted(o, slope, t)


def _pow_exponent(o: Namespace, t: Any, y: Any, x: Any, exponent: Any) -> Any:
    zero = o.logical_and(o.equal(x, 0), o.greater_equal(exponent, 0))
    return weighted(o, o.where(zero, 0, y * o.log(x)), t)


def _reference_pow(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.power(x.astype(np.float64), y.astype(np.float64))
    negative = np.where(x == 1, 1, np.where(x == -1, np.where(y % 2 == 0, 1, -1), 0)) if x.dtype.kind == "i" else x
    return np.where(y < 0, negative, np.power(x, np.maximum(y, 0)))


pow = binary(
    "pow", "x1 to the power x2; integers to a negative power give the truncated value.", "pow", _reference_pow,
    NUMERIC, (_pow_base, _pow_exponent), binary_cases(Range(0.2, 2.0), Range(-2.0, 3.0)), tolerance=2.0,
)  # fmt: skip

negative = unary("negative", "-x.", "neg", np.negative, NUMERIC, NEGATE, grad_name="Neg")

abs = unary(
    "abs", "The absolute value.", "abs", np.absolute, NUMERIC,
    scaled(lambda o, y, x: o.sign(x)), AWAY_FROM_ZERO,
)  # fmt: skip

sign = unary("sign", "-1, 0 or 1; NaN for NaN.", "sign", np.sign, NUMERIC, None, AWAY_FROM_ZERO)

copysign = binary(
    "copysign", "|x1| with the sign of x2, also of zeros and NaNs.", "copysign", np.copysign, FLOAT,
    (scaled(lambda o, y, a, b: o.sign(a) * o.sign(y)), None), binary_cases(AWAY_FROM_ZERO, AWAY_FROM_ZERO),
)  # fmt: skip

signbit = unary(
    "signbit", "Whether the sign of x is negative, also of zeros and NaNs.",
    lambda b, attrs, x: b.lt(b.copysign(b.const(1, x.dtype), x), b.const(0, x.dtype)),
    np.signbit, FLOAT, NOT_DIFFERENTIABLE, result=bool_,
)  # fmt: skip

square = unary(
    "square", "x * x.", lambda b, attrs, x: b.mul(x, x), np.square, NUMERIC,
    scaled(lambda o, y, x: x * 2), grad_name="Pow",
)  # fmt: skip

reciprocal = unary(
    "reciprocal", "1 / x.", lambda b, attrs, x: b.div(b.const(1, x.dtype), x), np.reciprocal, FLOAT,
    scaled(lambda o, y, x: o.negative(y * y)), AWAY_FROM_ZERO,
)  # fmt: skip


@public
def positive(x: Any) -> Tensor:
    """+x: the tensor itself.

    Elementwise. Bools are refused.
    """
    return accepted("positive", NUMERIC, x)[0]


def _at_tie(o: Namespace, loses: Any, ties: Any, t: Any) -> Any:
    return o.where(loses, 0, o.where(ties, t * 0.5, t))


maximum = binary(
    "maximum", "The larger of two; NaN if either is NaN.", "maximum", np.maximum, ANY,
    (lambda o, t, y, a, b: _at_tie(o, o.less(a, b), o.equal(a, b), t),
     lambda o, t, y, a, b: _at_tie(o, o.less(b, a), o.equal(a, b), t)),
    binary_cases(Range(), Range(-1.97, 2.13), distinct=True),
)  # fmt: skip

minimum = binary(
    "minimum", "The smaller of two; NaN if either is NaN.", "minimum", np.minimum, ANY,
    (lambda o, t, y, a, b: _at_tie(o, o.greater(a, b), o.equal(a, b), t),
     lambda o, t, y, a, b: _at_tie(o, o.greater(b, a), o.equal(a, b), t)),
    binary_cases(Range(), Range(-1.97, 2.13), distinct=True),
)  # fmt: skip

# -- exponential and logarithm --------------------------------------------------------------------------------------

exp = unary("exp", "e to the power x.", "exp", np.exp, FLOAT, scaled(lambda o, y, x: y), WIDE)

expm1 = unary("expm1", "exp(x) - 1, accurate near 0.", "expm1", np.expm1, FLOAT, scaled(lambda o, y, x: y + 1.0))

exp2 = unary(
    "exp2", "2 to the power x.", "exp2", np.exp2, FLOAT,
    scaled(lambda o, y, x: y * math.log(2.0)), tolerance=2.0,
)  # fmt: skip

log = unary("log", "The natural logarithm.", "log", np.log, FLOAT, scaled(lambda o, y, x: o.reciprocal(x)), POSITIVE)

log1p = unary(
    "log1p", "log(1 + x), accurate near 0.", "log1p", np.log1p, FLOAT,
    scaled(lambda o, y, x: o.reciprocal(x + 1.0)), Range(-0.8, 3.0),
)  # fmt: skip

log2 = unary(
    "log2", "The logarithm to base 2.", lambda b, attrs, x: b.mul(b.log(x), b.const(1 / math.log(2), x.dtype)),
    np.log2, FLOAT, scaled(lambda o, y, x: o.reciprocal(x) * (1 / math.log(2))), POSITIVE, tolerance=2.0,
)  # fmt: skip

LOG10_E, LOG10_E_REST = 0.4342944819032518, 1.098319650216765e-17  # 1/log(10) in two parts


def _scalar_log10(b: Any, attrs: Any, x: Any) -> Any:
    natural = b.log(x)
    return b.fma(natural, b.const(LOG10_E, x.dtype), b.mul(natural, b.const(LOG10_E_REST, x.dtype)))


log10 = unary(
    "log10", "The logarithm to base 10.", _scalar_log10,
    np.log10, FLOAT, scaled(lambda o, y, x: o.reciprocal(x) * (1 / math.log(10))), POSITIVE, tolerance=2.0,
)  # fmt: skip


def _scalar_logaddexp(b: Any, attrs: Any, x: Any, y: Any) -> Any:
    same = b.eq(x, y)  # also where both are the same infinity
    distance = b.select(same, b.const(0, x.dtype), b.neg(b.abs(b.sub(x, y))))
    return b.add(b.maximum(x, y), b.log1p(b.exp(distance)))


def _softmax_of(first: Any, second: Any, o: Namespace) -> Any:
    return o.sigmoid(o.where(o.equal(first, second), 0, first - second))


logaddexp = binary(
    "logaddexp", "log(exp(x1) + exp(x2)), without overflow.", _scalar_logaddexp, np.logaddexp, FLOAT,
    (scaled(lambda o, y, a, b: _softmax_of(a, b, o)), scaled(lambda o, y, a, b: _softmax_of(b, a, o))), tolerance=2.0,
)  # fmt: skip

sqrt = unary("sqrt", "The square root.", "sqrt", np.sqrt, FLOAT, scaled(lambda o, y, x: 0.5 / y), POSITIVE)

rsqrt = unary(
    "rsqrt", "1 / sqrt(x).", "rsqrt", lambda x: 1 / np.sqrt(x), FLOAT,
    scaled(lambda o, y, x: y * y * y * -0.5), POSITIVE,
)  # fmt: skip

# -- trigonometric and hyperbolic -----------------------------------------------------------------------------------

sin = unary("sin", "The sine of an angle in radians.", "sin", np.sin, FLOAT, scaled(lambda o, y, x: o.cos(x)), WIDE)

cos = unary(
    "cos", "The cosine of an angle in radians.", "cos", np.cos, FLOAT,
    scaled(lambda o, y, x: o.negative(o.sin(x))), WIDE,
)  # fmt: skip

tan = unary(
    "tan", "The tangent of an angle in radians.", "tan", np.tan, FLOAT,
    scaled(lambda o, y, x: y * y + 1.0), Range(-1.2, 1.2),
)  # fmt: skip

asin = unary(
    "asin", "The angle in [-pi/2, pi/2] whose sine is x.", "asin", np.arcsin, FLOAT,
    scaled(lambda o, y, x: o.rsqrt(1.0 - x * x)), INSIDE_UNIT,
)  # fmt: skip

acos = unary(
    "acos", "The angle in [0, pi] whose cosine is x.", "acos", np.arccos, FLOAT,
    scaled(lambda o, y, x: o.negative(o.rsqrt(1.0 - x * x))), INSIDE_UNIT,
)  # fmt: skip

atan = unary(
    "atan", "The angle in [-pi/2, pi/2] whose tangent is x.", "atan", np.arctan, FLOAT,
    scaled(lambda o, y, x: o.reciprocal(x * x + 1.0)), WIDE,
)  # fmt: skip


def _scalar_atan2(b: Any, attrs: Any, y: Any, x: Any) -> Any:
    """The angle of (x, y), from the arc tangent of the smaller coordinate over the larger (IEEE 754's cases)."""
    dtype = x.dtype
    zero, one = b.const(0, dtype), b.const(1, dtype)
    ax, ay = b.abs(x), b.abs(y)
    steep = b.gt(ay, ax)
    low, high = b.select(steep, ax, ay), b.select(steep, ay, ax)
    both = b.logical_or(b.eq(high, zero), b.logical_and(b.isinf(ax), b.isinf(ay)))
    level = b.select(b.eq(high, zero), zero, one)  # both zero: 0; both infinite: 1
    angle = b.atan(b.select(both, level, b.div(low, b.select(both, one, high))))
    angle = b.select(steep, b.sub(b.const(math.pi / 2, dtype), angle), angle)
    leftward = b.lt(b.select(b.eq(x, zero), b.div(one, x), x), zero)  # the sign of -0 counts
    angle = b.select(leftward, b.sub(b.const(math.pi, dtype), angle), angle)
    below = b.lt(b.select(b.eq(y, zero), b.div(one, y), y), zero)
    angle = b.select(below, b.neg(angle), angle)
    return b.select(b.logical_or(b.isnan(x), b.isnan(y)), b.add(x, y), angle)


atan2 = binary(
    "atan2", "The angle in [-pi, pi] of the point (x2, x1).", _scalar_atan2, np.arctan2, FLOAT,
    (scaled(lambda o, z, y, x: x / (x * x + y * y)), scaled(lambda o, z, y, x: o.negative(y / (x * x + y * y)))),
    binary_cases(AWAY_FROM_ZERO, AWAY_FROM_ZERO), tolerance=2.0,
)  # fmt: skip

sinh = unary("sinh", "The hyperbolic sine.", "sinh", np.sinh, FLOAT, scaled(lambda o, y, x: o.cosh(x)))

cosh = unary("cosh", "The hyperbolic cosine.", "cosh", np.cosh, FLOAT, scaled(lambda o, y, x: o.sinh(x)))

tanh = unary("tanh", "The hyperbolic tangent.", "tanh", np.tanh, FLOAT, scaled(lambda o, y, x: 1.0 - y * y))


def _scalar_asinh(b: Any, attrs: Any, x: Any) -> Any:
    """sign(x) log1p(a + a²/(1 + sqrt(1 + a²))) with a = |x|; log(2a) where a² would overflow."""
    a = b.abs(x)
    one = b.const(1, x.dtype)
    large = b.gt(a, b.const(1e10, x.dtype))
    bounded = b.select(large, one, a)
    squared = b.mul(bounded, bounded)
    near = b.log1p(b.add(bounded, b.div(squared, b.add(one, b.sqrt(b.add(one, squared))))))
    far = b.add(b.log(a), b.const(math.log(2), x.dtype))
    result = b.select(large, far, near)
    return b.select(b.lt(x, b.const(0, x.dtype)), b.neg(result), b.select(b.eq(a, b.const(0, x.dtype)), x, result))


def _scalar_acosh(b: Any, attrs: Any, x: Any) -> Any:
    """log1p(t + sqrt(2t + t²)) with t = x - 1; log(2x) where t² would overflow; NaN below 1, the root of t."""
    t = b.sub(x, b.const(1, x.dtype))
    large = b.gt(x, b.const(1e10, x.dtype))
    bounded = b.select(large, b.const(1, x.dtype), t)
    squared = b.add(b.add(bounded, bounded), b.mul(bounded, bounded))
    root = b.sqrt(b.select(b.lt(t, b.const(0, x.dtype)), t, squared))
    near = b.log1p(b.add(bounded, root))
    return b.select(large, b.add(b.log(x), b.const(math.log(2), x.dtype)), near)


def _scalar_atanh(b: Any, attrs: Any, x: Any) -> Any:
    """log1p(2a / (1 - a)) / 2 with the sign of x, a = |x|."""
    a = b.abs(x)
    one = b.const(1, x.dtype)
    half = b.mul(b.const(0.5, x.dtype), b.log1p(b.div(b.add(a, a), b.sub(one, a))))
    return b.select(b.lt(x, b.const(0, x.dtype)), b.neg(half), b.select(b.eq(a, b.const(0, x.dtype)), x, half))


asinh = unary(
    "asinh", "The inverse hyperbolic sine.", _scalar_asinh, np.arcsinh, FLOAT,
    scaled(lambda o, y, x: o.rsqrt(x * x + 1.0)), WIDE, tolerance=2.0,
)  # fmt: skip

acosh = unary(
    "acosh", "The inverse hyperbolic cosine.", _scalar_acosh, np.arccosh, FLOAT,
    scaled(lambda o, y, x: o.rsqrt(x * x - 1.0)), Range(1.2, 5.0), tolerance=2.0,
)  # fmt: skip

atanh = unary(
    "atanh", "The inverse hyperbolic tangent.", _scalar_atanh, np.arctanh, FLOAT,
    scaled(lambda o, y, x: o.reciprocal(1.0 - x * x)), INSIDE_UNIT, tolerance=2.0,
)  # fmt: skip


def _scalar_hypot(b: Any, attrs: Any, x: Any, y: Any) -> Any:
    """The larger times sqrt(1 + ratio²), so that no square overflows."""
    ax, ay = b.abs(x), b.abs(y)
    high, low = b.maximum(ax, ay), b.minimum(ax, ay)
    zero, one = b.const(0, x.dtype), b.const(1, x.dtype)
    plain = b.logical_or(b.eq(high, zero), b.isinf(high))
    ratio = b.div(low, b.select(plain, one, high))
    length = b.select(plain, high, b.mul(high, b.sqrt(b.fma(ratio, ratio, one))))
    infinite = b.logical_or(b.isinf(x), b.isinf(y))
    return b.select(infinite, b.const(math.inf, x.dtype), length)


hypot = binary(
    "hypot", "sqrt(x1² + x2²), without overflow; its gradient at (0, 0) is 0.", _scalar_hypot, np.hypot, FLOAT,
    (scaled(lambda o, y, a, b: o.where(o.equal(y, 0), 0, a / y)),
     scaled(lambda o, y, a, b: o.where(o.equal(y, 0), 0, b / y))),
    binary_cases(AWAY_FROM_ZERO, AWAY_FROM_ZERO), tolerance=2.0,
)  # fmt: skip

# -- special functions ----------------------------------------------------------------------------------------------


def _reference_sigmoid(x: Array) -> Array:
    decay = np.exp(-np.absolute(x))
    return np.where(x >= 0, 1 / (1 + decay), decay / (1 + decay))


def _bell(o: Namespace, x: Any) -> Any:
    """2/sqrt(pi) exp(-x²), the derivative of erf."""
    return o.exp(o.negative(x * x)) * (2.0 / math.sqrt(math.pi))


_math_erf = np.vectorize(math.erf, otypes=[np.float64])
_math_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _exact_erfinv(x: float) -> float:
    """Wichura's quantile of the normal distribution (AS 241), then a step of Newton's method against ``math.erf``."""
    if not -1 < x < 1:
        return math.copysign(math.inf, x) if x in (-1, 1) else math.nan
    if x == 0:
        return x
    import statistics  # slow to import, and only the oracle needs it

    tail = (1 - math.fabs(x)) / 2
    y = -statistics.NormalDist().inv_cdf(tail) / math.sqrt(2)
    missing = math.erf(y) - math.fabs(x) if math.fabs(x) < 0.5 else 2 * tail - math.erfc(y)
    y -= missing * math.sqrt(math.pi) / 2 * math.exp(y * y)
    return math.copysign(y, x)


sigmoid = unary(
    "sigmoid", "1 / (1 + exp(-x)).", "sigmoid", _reference_sigmoid, FLOAT,
    scaled(lambda o, y, x: y * (1.0 - y)), WIDE, activation=True,
)  # fmt: skip

erf = unary("erf", "The error function.", "erf", _math_erf, FLOAT, scaled(lambda o, y, x: _bell(o, x)))

erfc = unary(
    "erfc", "1 - erf(x), accurate where it is tiny.", "erfc", _math_erfc, FLOAT,
    scaled(lambda o, y, x: o.negative(_bell(o, x))),
)  # fmt: skip

erfinv = unary(
    "erfinv", "The inverse of erf; infinite at -1 and 1.", "erfinv",
    np.vectorize(_exact_erfinv, otypes=[np.float64]), FLOAT,
    scaled(lambda o, y, x: o.exp(y * y) * (math.sqrt(math.pi) / 2)), INSIDE_UNIT, tolerance=2.0,
)  # fmt: skip

# -- rounding and classification of floats --------------------------------------------------------------------------


def _rounding(name: str, doc: str, reference: Any, values: Range) -> Callable[[Any], Tensor]:
    """A rounding to integral floats; integers are returned as they are."""
    op = elementwise(name, doc, name, lambda attrs, x: reference(x), FLOAT, (None,), unary_cases(values))

    def function(x: Any) -> Tensor:
        x = accepted(name, NUMERIC, x)[0]
        return declare(op, (x,)) if is_floating(x.dtype) else x

    return publish(function, name, doc, "Elementwise. Integers are returned as they are; bools are refused.")


floor = _rounding("floor", "The largest integer not above x.", np.floor, BETWEEN_INTEGERS)
ceil = _rounding("ceil", "The smallest integer not below x.", np.ceil, BETWEEN_INTEGERS)
trunc = _rounding("trunc", "x without its fraction.", np.trunc, BETWEEN_INTEGERS)
round = _rounding("round", "The nearest integer, halves to the even one.", np.rint, BETWEEN_HALVES)


def _classification(name: str, doc: str, reference: Any, of_integers: bool) -> Callable[[Any], Tensor]:
    op = elementwise(
        name, doc, name, lambda attrs, x: reference(x), FLOAT, None, unary_cases(), result=bool_
    )  # fmt: skip

    def function(x: Any) -> Tensor:
        x = operands(name, x)[0]
        if is_floating(x.dtype):
            return declare(op, (x,))
        return FUNCTIONS.full_like(x, of_integers, dtype=bool_)

    return publish(function, name, doc, f"Elementwise; the result is bool. Of integers and bools: {of_integers}.")


isnan = _classification("isnan", "Whether x is not a number.", np.isnan, False)
isfinite = _classification("isfinite", "Whether x is neither infinite nor NaN.", np.isfinite, True)
isinf = _classification("isinf", "Whether x is an infinity.", np.isinf, False)

# -- comparison, logic, bits ----------------------------------------------------------------------------------------

_TIES = binary_cases(SMALL_INTEGERS, SMALL_INTEGERS)


def _comparison(name: str, doc: str, method: str, reference: Any) -> Callable[[Any, Any], Tensor]:
    return binary(name, doc, method, reference, ANY, None, _TIES, result=bool_)


equal = _comparison("equal", "x1 == x2, as bool.", "eq", np.equal)
not_equal = _comparison("not_equal", "x1 != x2, as bool; true for NaN.", "ne", np.not_equal)
less = _comparison("less", "x1 < x2, as bool.", "lt", np.less)
less_equal = _comparison("less_equal", "x1 <= x2, as bool.", "le", np.less_equal)
greater = _comparison("greater", "x1 > x2, as bool.", "gt", np.greater)
greater_equal = _comparison("greater_equal", "x1 >= x2, as bool.", "ge", np.greater_equal)


def _logic(name: str, doc: str, reference: Any) -> Callable[[Any, Any], Tensor]:
    return binary(name, doc, name, reference, BOOL, None, binary_cases())


logical_and = _logic("logical_and", "Whether both are true.", np.logical_and)
logical_or = _logic("logical_or", "Whether at least one is true.", np.logical_or)
logical_xor = _logic("logical_xor", "Whether exactly one is true.", np.logical_xor)
logical_not = unary("logical_not", "Whether x is false.", "logical_not", np.logical_not, BOOL, NOT_DIFFERENTIABLE)


def _bits(name: str, doc: str, method: str, reference: Any) -> Callable[[Any, Any], Tensor]:
    return binary(name, doc, method, reference, INTEGRAL, None, binary_cases(Range(0, 100), Range(0, 100)))


bitwise_and = _bits("bitwise_and", "The bits that both have.", "bit_and", np.bitwise_and)
bitwise_or = _bits("bitwise_or", "The bits that at least one has.", "bit_or", np.bitwise_or)
bitwise_xor = _bits("bitwise_xor", "The bits that exactly one has.", "bit_xor", np.bitwise_xor)
bitwise_invert = unary(
    "bitwise_invert", "Every bit flipped; of bools: not.", "bit_not", np.invert, INTEGRAL, NOT_DIFFERENTIABLE,
    Range(0, 100),
)  # fmt: skip


def _shifted(shift: Any, x: Array, count: Array) -> Array:
    """NumPy's shift with the counts that C leaves undefined made definite: everything is shifted out."""
    width = x.dtype.itemsize * 8
    out = (count < 0) | (count >= width)
    if shift is np.left_shift:
        return np.where(out, 0, np.left_shift(x, np.where(out, 0, count)))
    return np.right_shift(x, np.where(out, width - 1, count)) if x.dtype.kind == "i" else np.where(
        out, 0, np.right_shift(x, np.where(out, 0, count))
    )  # fmt: skip


def _shift(name: str, doc: str, method: str, shift: Any) -> Callable[[Any, Any], Tensor]:
    return binary(
        name, doc, method, lambda x, count: _shifted(shift, x, count), INTEGERS, None,
        binary_cases(Range(0, 100), Range(0, 40)),
    )  # fmt: skip


bitwise_left_shift = _shift("bitwise_left_shift", "x1 shifted up by x2 bits.", "shift_left", np.left_shift)
bitwise_right_shift = _shift("bitwise_right_shift", "x1 shifted down by x2 bits.", "shift_right", np.right_shift)

# -- choice and copies ----------------------------------------------------------------------------------------------


def _where_type(attrs: NoAttributes, condition: TensorType, x: TensorType, y: TensorType) -> TensorType:
    if condition.dtype != bool_ or x.dtype != y.dtype:
        raise GraphError(f"where: expected a bool and two operands of one dtype\n  actual   {condition}, {x}, {y}")
    return TensorType(broadcast_types((condition, x, y), "where"), x.dtype)


_WHERE_RULES = (
    None,
    lambda o, t, y, condition, a, b: o.where(condition, t, 0),
    lambda o, t, y, condition, a, b: o.where(condition, 0, t),
)

WHERE = register(
    Op(
        "where",
        "The second operand where the condition holds, else the third.",
        infer=_where_type,
        reference=lambda attrs, condition, x, y: np.where(condition, x, y),
        scalar=lambda b, attrs, condition, x, y: b.select(condition, x, y),
        vjp=vjp_of(_WHERE_RULES),
        jvp=jvp_of(_WHERE_RULES),
        dtypes=DTYPES,
        cases=tuple(
            Case(shapes, dtypes=(bool_, None, None))
            for shapes in (
                ((3, 4), (3, 4), (3, 4)), ((3, 1), (4,), ()), ((), (2, 3), (3,)), ((0, 2), (2,), (1,)), ((5,), (), ()),
            )
        ),
    )
)  # fmt: skip


@public
def where(condition: Any, x1: Any, x2: Any) -> Tensor:
    """``x1`` where ``condition`` holds, else ``x2``.

    Elementwise, with NumPy's broadcasting and promotion of ``x1`` and ``x2``; a condition that is no bool is compared
    with zero. The branch that is not chosen contributes exactly 0 to gradients, whatever its derivative is there.
    """
    graph = graph_of((condition, x1, x2))
    with graph:
        chosen = astype(lift(condition, graph), bool_)
        return graph.add(WHERE, (chosen, *operands("where", x1, x2))).outputs[0]


@frozen
class AstypeAttributes:
    """The dtype to convert to."""

    dtype: np.dtype


def _converted(attrs: AstypeAttributes, x: Array) -> Array:
    with np.errstate(all="ignore"):
        return x.astype(attrs.dtype)


_ASTYPE_RULES = (lambda o, t, y, x: o.astype(t, x.dtype if t.dtype == y.dtype else y.dtype),)

ASTYPE = register(
    Op(
        "astype",
        "The values in another dtype.",
        infer=lambda attrs, x: TensorType(x.shape, attrs.dtype),
        reference=_converted,
        scalar=lambda b, attrs, x: b.cast(x, attrs.dtype),
        vjp=vjp_of(_ASTYPE_RULES),
        jvp=jvp_of(_ASTYPE_RULES),
        dtypes=DTYPES,
        cases=tuple(
            Case(((3, 4),), AstypeAttributes(to), (Range(0.0, 9.0),), differentiable=None if to == float64 else ())
            for to in DTYPES
        ),
        grad_name="ToCopy",
    )
)


@public
def astype(x: Any, dtype: DTypeLike) -> Tensor:
    """The tensor in another dtype; the tensor itself where it has it already.

    Floats become integers by truncation, bools by comparison with zero (NaN is True).
    """
    x = lift(x, graph_of((x,)))
    target = dtype_of(dtype)
    return x if x.dtype == target else declare(ASTYPE, (x,), AstypeAttributes(target))


IDENTITY = elementwise(
    "identity", "A copy.", lambda b, attrs, x: x, lambda attrs, x: x, ANY, (PASS,), unary_cases(), grad_name="Clone"
)


@public
def identity(x: Any, *, name: str | None = None) -> Tensor:
    """The same values as a new node: something to name, to feed, or to order with ``sg.control_dependencies``."""
    x = lift(x, graph_of((x,)))
    return graph_of((x,)).add(IDENTITY, (x,), name=name).outputs[0]


STOP_GRADIENT = elementwise(
    "stop_gradient", "The same values, through which no gradient passes.", lambda b, attrs, x: x, lambda attrs, x: x,
    ANY, None, unary_cases(),
)  # fmt: skip


@public
def stop_gradient(x: Any) -> Tensor:
    """The same values; no gradient passes, and the result never requires one. ``x.detach()`` is this."""
    return declare(STOP_GRADIENT, (lift(x, graph_of((x,))),))


CLIP = elementwise(
    "clip",
    "x, limited to [low, high].",
    lambda b, attrs, x, low, high: b.minimum(b.maximum(x, low), high),
    lambda attrs, x, low, high: np.minimum(np.maximum(x, low), high),
    ANY,
    (
        lambda o, t, y, x, low, high: o.where(o.logical_or(o.less(x, low), o.greater(x, high)), 0, t),
        lambda o, t, y, x, low, high: o.where(o.logical_and(o.less(x, low), o.less_equal(low, high)), t, 0),
        lambda o, t, y, x, low, high: o.where(o.logical_or(o.greater(x, high), o.less(high, low)), t, 0),
    ),
    (
        Case(((3, 4), (), ()), ranges=(Range(-2, 2), Range(-1.2, -1.1), Range(1.1, 1.2)), distinct=True),
        Case(((2, 3, 4), (4,), (3, 1)), ranges=(Range(-2, 2), Range(-1, -0.5), Range(0.5, 1)), distinct=True),
        Case(((0,), (), ()), ranges=(Range(), Range(-1, 0), Range(0, 1))),
    ),
    grad_name="Clamp",
)


@public
def clip(x: Any, min: Any = None, max: Any = None) -> Tensor:
    """The values limited to [min, max]; None leaves a side open. Where min > max, the result is max.

    Elementwise; ``min`` and ``max`` broadcast against ``x``. The gradient passes at the bounds themselves.
    """
    bounds = [bound for bound in (min, max) if bound is not None]
    y = operands("clip", x, *bounds)[0]
    if not bounds:
        return y
    low, high = (_limit(y.dtype, -1) if min is None else min), (_limit(y.dtype, 1) if max is None else max)
    return declare(CLIP, operands("clip", y, low, high))


def _limit(dtype: np.dtype, side: int) -> float | int | bool:
    if is_floating(dtype):
        return side * math.inf
    if dtype == bool_:
        return side > 0
    return int(np.iinfo(dtype).max if side > 0 else np.iinfo(dtype).min)


# -- activations: exported by staticgrad.nn, with PyTorch's argument names and defaults -----------------------------

ACTIVATIONS = (
    "relu", "relu6", "leaky_relu", "elu", "selu", "gelu", "silu", "mish", "softplus", "softsign", "hardtanh",
    "hardsigmoid", "hardswish", "log_sigmoid",
)  # fmt: skip

relu = unary(
    "relu", "max(input, 0); its derivative at 0 is 0.",
    lambda b, attrs, x: b.maximum(x, b.const(0, x.dtype)), lambda x: np.maximum(x, 0), NUMERIC,
    lambda o, t, y, x: o.where(o.less_equal(y, 0), 0, t), AWAY_FROM_ZERO, activation=True,
)  # fmt: skip


@frozen
class HardtanhAttributes:
    """The interval that values are limited to."""

    min_val: float
    max_val: float


def _between(a: HardtanhAttributes) -> Sequence[Rule]:
    def rule(o: Namespace, t: Any, y: Any, x: Any) -> Any:
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
def hardtanh(input: Any, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """The values limited to [min_val, max_val]; the derivative is 0 from the ends outwards."""
    return declare(HARDTANH, accepted("hardtanh", FLOAT, input), HardtanhAttributes(float(min_val), float(max_val)))


@public
def relu6(input: Any) -> Tensor:
    """min(max(input, 0), 6)."""
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
def leaky_relu(input: Any, negative_slope: float = 0.01) -> Tensor:
    """``input`` above zero, ``negative_slope * input`` elsewhere (also for the derivative at 0)."""
    return declare(LEAKY_RELU, accepted("leaky_relu", FLOAT, input), LeakyReluAttributes(float(negative_slope)))


@frozen
class EluAttributes:
    """``scale`` times the function, whose limit for -infinity is ``-alpha``."""

    alpha: float
    scale: float = 1.0


def _scalar_elu(b: Any, a: EluAttributes, x: Any) -> Any:
    zero = b.const(0, x.dtype)
    below = b.mul(b.const(a.alpha * a.scale, x.dtype), b.expm1(b.minimum(x, zero)))
    above = x if a.scale == 1.0 else b.mul(b.const(a.scale, x.dtype), x)
    return b.select(b.gt(x, zero), above, below)


ELU = elementwise(
    "elu",
    "x above zero, alpha * (exp(x) - 1) elsewhere, times a scale.",
    _scalar_elu,
    lambda a, x: a.scale * np.where(x > 0, x, a.alpha * np.expm1(x)),
    FLOAT,
    lambda a: (scaled(lambda o, y, x: o.where(o.greater(x, 0), a.scale, y + a.alpha * a.scale)),),
    unary_cases(AWAY_FROM_ZERO, [EluAttributes(1.0), EluAttributes(0.7)]),
)


@public
def elu(input: Any, alpha: float = 1.0) -> Tensor:
    """``input`` above zero, ``alpha * (exp(input) - 1)`` elsewhere (Clevert et al., arXiv:1511.07289)."""
    return declare(ELU, accepted("elu", FLOAT, input), EluAttributes(float(alpha)))


@public
def selu(input: Any) -> Tensor:
    """The scaled ELU whose constants keep mean 0 and variance 1 (Klambauer et al., arXiv:1706.02515)."""
    attrs = EluAttributes(alpha=1.6732632423543772848, scale=1.0507009873554804934)
    return declare(ELU, accepted("selu", FLOAT, input), attrs)


@frozen
class GeluAttributes:
    """Whether the normal distribution function is replaced by its approximation with tanh."""

    approximate: str


_GELU_CUBE = 0.044715
_GELU_SCALE = math.sqrt(2 / math.pi)


def _scalar_gelu(b: Any, a: GeluAttributes, x: Any) -> Any:
    def const(value: float) -> Any:
        return b.const(value, x.dtype)

    if a.approximate == "tanh":
        inner = b.mul(const(_GELU_SCALE), b.fma(b.mul(const(_GELU_CUBE), x), b.mul(x, x), x))
        curve = b.tanh(inner)
    else:
        curve = b.erf(b.mul(x, const(math.sqrt(0.5))))
    return b.mul(b.mul(const(0.5), x), b.add(const(1), curve))


def _reference_gelu(a: GeluAttributes, x: Array) -> Array:
    if a.approximate == "tanh":
        curve = np.tanh(_GELU_SCALE * (x + _GELU_CUBE * x**3))
    else:
        curve = _math_erf(x / math.sqrt(2))
    return np.asarray(0.5 * x * (1 + curve))


def _gelu_rules(a: GeluAttributes) -> Sequence[Rule]:
    def exact(o: Namespace, y: Any, x: Any) -> Any:
        below = o.erf(x * math.sqrt(0.5)) * 0.5 + 0.5
        return below + x * (o.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi)))

    def approximate(o: Namespace, y: Any, x: Any) -> Any:
        curve = o.tanh((x + x * x * x * _GELU_CUBE) * _GELU_SCALE)
        inner = x * x * (3 * _GELU_CUBE * _GELU_SCALE) + _GELU_SCALE
        return (curve + 1.0) * 0.5 + x * 0.5 * (1.0 - curve * curve) * inner

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


@public
def gelu(input: Any, approximate: str = "none") -> Tensor:
    """``input`` times the standard normal distribution function of it (Hendrycks and Gimpel, arXiv:1606.08415).

    Args:
        approximate: ``"none"``, or ``"tanh"`` for the approximation with a hyperbolic tangent.

    Raises:
        GraphError: another value of ``approximate``.
    """
    if approximate not in ("none", "tanh"):
        raise GraphError(f"gelu: approximate is 'none' or 'tanh', not {approximate!r}")
    return declare(GELU, accepted("gelu", FLOAT, input), GeluAttributes(approximate))


silu = unary(
    "silu", "input * sigmoid(input).", lambda b, attrs, x: b.mul(x, b.sigmoid(x)),
    lambda x: x * _reference_sigmoid(x), FLOAT, scaled(lambda o, y, x: _silu_slope(o, x)), WIDE, activation=True,
)  # fmt: skip


def _silu_slope(o: Namespace, x: Any) -> Any:
    gate = o.sigmoid(x)
    return gate * (x * (1.0 - gate) + 1.0)


@frozen
class SoftplusAttributes:
    """log(1 + exp(beta x)) / beta, and x where beta x is above the threshold."""

    beta: float
    threshold: float


def _scalar_softplus(b: Any, a: SoftplusAttributes, x: Any) -> Any:
    scaled_x = x if a.beta == 1.0 else b.mul(b.const(a.beta, x.dtype), x)
    soft = b.add(b.maximum(scaled_x, b.const(0, x.dtype)), b.log1p(b.exp(b.neg(b.abs(scaled_x)))))
    soft = soft if a.beta == 1.0 else b.div(soft, b.const(a.beta, x.dtype))
    return b.select(b.gt(scaled_x, b.const(a.threshold, x.dtype)), x, soft)


def _softplus_rules(a: SoftplusAttributes) -> Sequence[Rule]:
    def slope(o: Namespace, y: Any, x: Any) -> Any:
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
def softplus(input: Any, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """``log(1 + exp(beta * input)) / beta``, and ``input`` where ``beta * input > threshold``."""
    attrs = SoftplusAttributes(float(beta), float(threshold))
    return declare(SOFTPLUS, accepted("softplus", FLOAT, input), attrs)


log_sigmoid = unary(
    "log_sigmoid", "log(sigmoid(input)), without overflow.",
    lambda b, attrs, x: b.sub(b.minimum(x, b.const(0, x.dtype)), b.log1p(b.exp(b.neg(b.abs(x))))),
    lambda x: -np.logaddexp(0, -x), FLOAT, scaled(lambda o, y, x: o.sigmoid(o.negative(x))), WIDE, tolerance=2.0,
    activation=True,
)  # fmt: skip


def _scalar_hardsigmoid(b: Any, x: Any) -> Any:
    shifted = b.fma(x, b.const(1 / 6, x.dtype), b.const(0.5, x.dtype))
    return b.minimum(b.maximum(shifted, b.const(0, x.dtype)), b.const(1, x.dtype))


_HARD = Range(-5.0, 5.0, kinks=(-3.0, 3.0))

hardsigmoid = unary(
    "hardsigmoid", "input / 6 + 1/2, limited to [0, 1].", lambda b, attrs, x: _scalar_hardsigmoid(b, x),
    lambda x: np.clip(x / 6 + 0.5, 0, 1), FLOAT,
    lambda o, t, y, x: o.where(o.logical_and(o.greater(x, -3), o.less(x, 3)), t * (1 / 6), 0), _HARD, tolerance=2.0,
    activation=True,
)  # fmt: skip

hardswish = unary(
    "hardswish", "input * hardsigmoid(input).", lambda b, attrs, x: b.mul(x, _scalar_hardsigmoid(b, x)),
    lambda x: x * np.clip(x / 6 + 0.5, 0, 1), FLOAT,
    scaled(lambda o, y, x: o.where(o.less_equal(x, -3), 0, o.where(o.greater_equal(x, 3), 1, x * (1 / 3) + 0.5))),
    _HARD, tolerance=2.0, activation=True,
)  # fmt: skip


@public
def mish(input: Any) -> Tensor:
    """``input * tanh(softplus(input))`` (Misra, arXiv:1908.08681)."""
    x = accepted("mish", FLOAT, input)[0]
    return multiply(x, tanh(softplus(x)))


@public
def softsign(input: Any) -> Tensor:
    """``input / (1 + |input|)``."""
    x = accepted("softsign", FLOAT, input)[0]
    return divide(x, add(abs(x), 1.0))
