"""Elementary functions: exponentials, logarithms and roots, angles, hyperbolic functions and their inverses."""

from __future__ import annotations

import math

import numpy as np

from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import Namespace, Range
from staticgrad.graph.scalar import ScalarBuilder, V
from staticgrad.ops.declare import FLOAT
from staticgrad.ops.elementwise.entry import (
    AWAY_FROM_ZERO,
    INSIDE_UNIT,
    POSITIVE,
    WIDE,
    binary,
    binary_cases,
    scaled,
    unary,
)

# -- exponential and logarithm --------------------------------------------------------------------------------------

exp = unary(
    "exp", "The exponential: e to the power x.", "exp", np.exp, FLOAT, scaled(lambda o, y, x: y), WIDE,
    example=("sg.exp([0.0, 1.0, -sg.inf])", "array([1. , 2.718..., 0. ], dtype=float32)"),
)  # fmt: skip

expm1 = unary(
    "expm1", "exp(x) - 1, accurate near 0.", "expm1", np.expm1, FLOAT, scaled(lambda o, y, x: y + 1.0),
    example=("sg.expm1([0.0, 1e-10])", "array([0.e+00, 1.e-10], dtype=float32)"),
)  # fmt: skip

exp2 = unary(
    "exp2", "2 to the power x.", "exp2", np.exp2, FLOAT,
    scaled(lambda o, y, x: y * math.log(2.0)), tolerance=2.0,
    example=("sg.exp2([0.0, 3.0, -1.0])", "array([1. , 8. , 0.5], dtype=float32)"),
)  # fmt: skip

log = unary(
    "log", "The natural logarithm; -infinity at 0, NaN below.",
    "log", np.log, FLOAT, scaled(lambda o, y, x: o.reciprocal(x)), POSITIVE,
    example=("sg.log([1.0, 0.0, -1.0])", "array([  0., -inf,  nan], dtype=float32)"),
)  # fmt: skip

log1p = unary(
    "log1p", "log(1 + x), accurate near 0.", "log1p", np.log1p, FLOAT,
    scaled(lambda o, y, x: o.reciprocal(x + 1.0)), Range(-0.8, 3.0), grad_name="Log1P",
    example=("sg.log1p([0.0, 1e-10])", "array([0.e+00, 1.e-10], dtype=float32)"),
)  # fmt: skip

log2 = unary(
    "log2", "The logarithm to base 2.", "log2",
    np.log2, FLOAT, scaled(lambda o, y, x: o.reciprocal(x) * (1 / math.log(2))), POSITIVE, tolerance=2.0,
    example=("sg.log2([8.0, 0.5])", "array([ 3., -1.], dtype=float32)"),
)  # fmt: skip

log10 = unary(
    "log10", "The logarithm to base 10.", "log10",
    np.log10, FLOAT, scaled(lambda o, y, x: o.reciprocal(x) * (1 / math.log(10))), POSITIVE, tolerance=2.0,
    example=("sg.log10([100.0, 0.0])", "array([  2., -inf], dtype=float32)"),
)  # fmt: skip


def _scalar_logaddexp(b: ScalarBuilder[V], attrs: object, x: V, y: V) -> V:
    same = b.eq(x, y)  # also where both are the same infinity
    distance = b.select(same, b.const(0, x.dtype), b.neg(b.abs(b.sub(x, y))))
    return b.add(b.maximum(x, y), b.log1p(b.exp(distance)))


def _softmax_of(first: Tensor, second: Tensor, o: Namespace) -> Tensor:
    """The softmax of two values, for the first: for two equal infinities a half, as a constant; other ties are derived
    like all else."""
    same = o.logical_and(o.equal(first, second), o.isinf(first))
    return o.sigmoid(o.where(same, 0, first - second))


logaddexp = binary(
    "logaddexp",
    "log(exp(x1) + exp(x2)), without overflow. Where that is near 0, errors are up to 4 units in the last place of the "
    "larger operand.", _scalar_logaddexp, np.logaddexp, FLOAT,
    (scaled(lambda o, y, a, b: _softmax_of(a, b, o)), scaled(lambda o, y, a, b: _softmax_of(b, a, o))), tolerance=2.0,
    example=("sg.logaddexp([0.0, 1000.0], [0.0, 1000.0])", "array([6.931...e-01, 1.000...e+03], dtype=float32)"),
)  # fmt: skip

sqrt = unary(
    "sqrt", "The square root; NaN below 0.", "sqrt", np.sqrt, FLOAT, scaled(lambda o, y, x: 0.5 / y), POSITIVE,
    example=("sg.sqrt([4.0, 0.25, -1.0])", "array([2. , 0.5, nan], dtype=float32)"),
)  # fmt: skip

rsqrt = unary(
    "rsqrt", "The reciprocal square root, 1 / sqrt(x).", "rsqrt", lambda x: 1 / np.sqrt(x), FLOAT,
    scaled(lambda o, y, x: y * y * y * -0.5), POSITIVE,
    example=("sg.rsqrt([1.0, 4.0, 0.0])", "array([1. , 0.5, inf], dtype=float32)"),
)  # fmt: skip


def _scalar_cbrt(b: ScalarBuilder[V], attrs: object, x: V) -> V:
    """A step of Newton's method from 2^(log2(a) / 3), a = |x|: y - (y - a/y²)/3, whose squares are in range."""
    a, third = b.abs(x), b.const(1 / 3, x.dtype)
    plain = b.logical_or(b.eq(a, b.const(0, x.dtype)), b.logical_not(b.isfinite(a)))
    start = b.exp2(b.mul(b.log2(b.select(plain, b.const(1, x.dtype), a)), third))
    root = b.sub(start, b.mul(b.sub(start, b.div(a, b.mul(start, start))), third))
    return b.select(plain, x, b.copysign(root, x))


cbrt = unary(
    "cbrt", "The cube root, which has the sign of x.", _scalar_cbrt, np.cbrt, FLOAT,
    scaled(lambda o, y, x: o.reciprocal(y * y * 3.0)), AWAY_FROM_ZERO,
    example=("sg.cbrt([27.0, -8.0, 0.0])", "array([ 3., -2.,  0.], dtype=float32)"),
)  # fmt: skip

# -- trigonometric and hyperbolic -----------------------------------------------------------------------------------

sin = unary(
    "sin", "The sine of an angle in radians.", "sin", np.sin, FLOAT, scaled(lambda o, y, x: o.cos(x)), WIDE,
    example=("sg.sin([0.0, sg.pi / 2])", "array([0., 1.], dtype=float32)"),
)  # fmt: skip

cos = unary(
    "cos", "The cosine of an angle in radians.", "cos", np.cos, FLOAT,
    scaled(lambda o, y, x: o.negative(o.sin(x))), WIDE,
    example=("sg.cos([0.0, sg.pi])", "array([ 1., -1.], dtype=float32)"),
)  # fmt: skip

tan = unary(
    "tan", "The tangent of an angle in radians.", "tan", np.tan, FLOAT,
    scaled(lambda o, y, x: y * y + 1.0), Range(-1.2, 1.2),
    example=("sg.tan([0.0, 1.0])", "array([0. , 1.5574...], dtype=float32)"),
)  # fmt: skip

asin = unary(
    "asin", "The angle in [-pi/2, pi/2] whose sine is x; NaN outside of [-1, 1].", "asin", np.arcsin, FLOAT,
    scaled(lambda o, y, x: o.rsqrt((1.0 - x) * (1.0 + x))), INSIDE_UNIT,
    example=("sg.asin([0.0, 1.0, 2.0])", "array([0. , 1.5707..., nan], dtype=float32)"),
)  # fmt: skip

acos = unary(
    "acos", "The angle in [0, pi] whose cosine is x; NaN outside of [-1, 1].", "acos", np.arccos, FLOAT,
    scaled(lambda o, y, x: o.negative(o.rsqrt((1.0 - x) * (1.0 + x)))), INSIDE_UNIT,
    example=("sg.acos([1.0, 0.0, 2.0])", "array([0. , 1.5707..., nan], dtype=float32)"),
)  # fmt: skip

atan = unary(
    "atan", "The angle in [-pi/2, pi/2] whose tangent is x.", "atan", np.arctan, FLOAT,
    scaled(lambda o, y, x: o.reciprocal(x * x + 1.0)), WIDE,
    example=("sg.atan([0.0, 1.0, sg.inf])", "array([0. , 0.7853..., 1.5707...], dtype=float32)"),
)  # fmt: skip


def _over_square(o: Namespace, part: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """part/(x² + y²), by the length: its square may be out of range where the quotient is not."""
    length = o.hypot(x, y)
    origin = o.equal(length, 0)
    there = o.where(origin, 1, length)
    return o.where(origin, 0, part / there / there)


atan2 = binary(
    "atan2", "The angle in [-pi, pi] of the point (x2, x1); its gradient at (0, 0) is 0.", "atan2", np.arctan2, FLOAT,
    (scaled(lambda o, z, y, x: _over_square(o, x, y, x)),
     scaled(lambda o, z, y, x: _over_square(o, o.negative(y), y, x))),
    binary_cases(AWAY_FROM_ZERO, AWAY_FROM_ZERO), tolerance=2.0,
    example=("sg.atan2([1.0, -1.0], [-1.0, -1.0])", "array([ 2.3561..., -2.3561...], dtype=float32)"),
)  # fmt: skip

sinh = unary(
    "sinh", "The hyperbolic sine (exp(x) - exp(-x)) / 2.", "sinh", np.sinh, FLOAT, scaled(lambda o, y, x: o.cosh(x)),
    example=("sg.sinh([0.0, 1.0])", "array([0. , 1.1752...], dtype=float32)"),
)  # fmt: skip

cosh = unary(
    "cosh", "The hyperbolic cosine (exp(x) + exp(-x)) / 2.", "cosh", np.cosh, FLOAT, scaled(lambda o, y, x: o.sinh(x)),
    example=("sg.cosh([0.0, 1.0])", "array([1. , 1.5430...], dtype=float32)"),
)  # fmt: skip

tanh = unary(
    "tanh", "The hyperbolic tangent.", "tanh", np.tanh, FLOAT, scaled(lambda o, y, x: 1.0 - y * y),
    example=("sg.tanh([0.0, 1.0, sg.inf])", "array([0. , 0.7615..., 1. ], dtype=float32)"),
)  # fmt: skip


def _scalar_asinh(b: ScalarBuilder[V], attrs: object, x: V) -> V:
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


def _scalar_acosh(b: ScalarBuilder[V], attrs: object, x: V) -> V:
    """log1p(t + sqrt(2t + t²)) with t = x - 1; log(2x) where t² would overflow; NaN below 1, the root of t."""
    t = b.sub(x, b.const(1, x.dtype))
    large = b.gt(x, b.const(1e10, x.dtype))
    bounded = b.select(large, b.const(1, x.dtype), t)
    squared = b.add(b.add(bounded, bounded), b.mul(bounded, bounded))
    root = b.sqrt(b.select(b.lt(t, b.const(0, x.dtype)), t, squared))
    near = b.log1p(b.add(bounded, root))
    return b.select(large, b.add(b.log(x), b.const(math.log(2), x.dtype)), near)


def _scalar_atanh(b: ScalarBuilder[V], attrs: object, x: V) -> V:
    """log1p(2a / (1 - a)) / 2 with the sign of x, a = |x|."""
    a = b.abs(x)
    one = b.const(1, x.dtype)
    half = b.mul(b.const(0.5, x.dtype), b.log1p(b.div(b.add(a, a), b.sub(one, a))))
    return b.select(b.lt(x, b.const(0, x.dtype)), b.neg(half), b.select(b.eq(a, b.const(0, x.dtype)), x, half))


asinh = unary(
    "asinh", "The number whose hyperbolic sine is x.", _scalar_asinh, np.arcsinh, FLOAT,
    scaled(lambda o, y, x: o.reciprocal(o.hypot(x, 1.0))), WIDE, tolerance=2.0,
    example=("sg.asinh([0.0, 1.0, -1.0])", "array([ 0. , 0.8813..., -0.8813...], dtype=float32)"),
)  # fmt: skip

acosh = unary(
    "acosh", "The number of at least 0 whose hyperbolic cosine is x; NaN for x below 1.",
    _scalar_acosh, np.arccosh, FLOAT,
    scaled(lambda o, y, x: o.reciprocal(o.sqrt(x - 1.0) * o.sqrt(x + 1.0))), Range(1.2, 5.0), tolerance=2.0,
    example=("sg.acosh([1.0, 2.0, 0.5])", "array([0. , 1.3169..., nan], dtype=float32)"),
)  # fmt: skip

atanh = unary(
    "atanh", "The number whose hyperbolic tangent is x; infinite at -1 and 1, NaN outside of them.",
    _scalar_atanh, np.arctanh, FLOAT,
    scaled(lambda o, y, x: o.reciprocal((1.0 - x) * (1.0 + x))), INSIDE_UNIT, tolerance=2.0,
    example=("sg.atanh([0.0, 0.5, 1.0])", "array([0. , 0.5493..., inf], dtype=float32)"),
)  # fmt: skip


def _scalar_hypot(b: ScalarBuilder[V], attrs: object, x: V, y: V) -> V:
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
    example=("sg.hypot([3.0, 3e30], [4.0, 4e30])", "array([5.e+00, 5.e+30], dtype=float32)"),
)  # fmt: skip
