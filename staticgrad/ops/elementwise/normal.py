"""Functions about the normal distribution, and logarithms and quotients whose limits need care.

``erfcx`` is a polynomial in (x - c)/(x + c) over 1 + 2x, after Shepherd & Laframboise (Math. Comp. 36, 1981); ``ndtri``
has the rational functions of Wichura's AS 241 (Applied Statistics 37, 1988). The others are made of these and of
elementary functions.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import Array, Namespace, Range
from staticgrad.graph.scalar import ScalarBuilder, V
from staticgrad.ops.declare import FLOAT
from staticgrad.ops.elementwise.entry import POSITIVE, binary, binary_cases, scaled, unary
from staticgrad.ops.elementwise.error import normal_distribution, split_square
from staticgrad.ops.elementwise.expressions import Expression, special

E = Expression[Any]
_ROOT_HALF = math.sqrt(0.5)

# (1 + 2x) exp(x²) erfc(x) in powers of (x - 15/4)/(x + 15/4), x from 0 on: interpolation at 26 Chebyshev nodes in 60
# digits, 2^-53.2 of the result.
_CENTER = 3.75
_ERFCX = (
    1.2375126308378275, -0.14024059858554702, 0.0035854154854644583, 0.08227673849015109, -0.10880393014175023,
    0.09230432116019638, -0.05869339858961116, 0.02836227742154398, -0.009746579558275152, 0.0017556258321915355,
    0.0002937136669846131, -0.0002901539781378384, 5.1649093885821704e-05, 2.238390827660038e-05,
    -1.1444134389658475e-05, -9.728413451815077e-07, 1.7516189406943677e-06, -5.827501862768691e-08,
    -2.586489910718322e-07, 2.4301839484503084e-08, 3.866242066283792e-08, -4.396921916762906e-09,
    -5.169080644815932e-09, 5.485084520083625e-10, 4.2433038251096756e-10, -3.7980647235900285e-11,
)  # fmt: skip

# The rational functions of Wichura's AS 241 (Applied Statistics 37, 1988), from the constant coefficient up.
_QUANTILE = {
    "center": (
        (
            3.3871328727963665, 133.14166789178438, 1971.5909503065513, 13731.69376550946, 45921.95393154987,
            67265.7709270087, 33430.57558358813, 2509.0809287301227,
        ),
        (
            1.0, 42.31333070160091, 687.1870074920579, 5394.196021424751, 21213.794301586597, 39307.89580009271,
            28729.085735721943, 5226.495278852854,
        ),
    ),
    "near": (
        (
            1.4234371107496835, 4.630337846156546, 5.769497221460691, 3.6478483247632045, 1.2704582524523684,
            0.2417807251774506, 0.022723844989269184, 0.0007745450142783414,
        ),
        (
            1.0, 2.053191626637759, 1.6763848301838038, 0.6897673349851, 0.14810397642748008, 0.015198666563616457,
            0.0005475938084995345, 1.0507500716444169e-09,
        ),
    ),
    "far": (
        (
            6.657904643501103, 5.463784911164114, 1.7848265399172913, 0.29656057182850487, 0.026532189526576124,
            0.0012426609473880784, 2.7115555687434876e-05, 2.0103343992922881e-07,
        ),
        (
            1.0, 0.599832206555888, 0.1369298809227358, 0.014875361290850615, 0.0007868691311456133,
            1.8463183175100548e-05, 1.421511758316446e-07, 2.0442631033899397e-15,
        ),
    ),
}  # fmt: skip

# -- erfcx and the normal distribution ------------------------------------------------------------------------------


def _grown(x: E) -> E:
    """exp(x²) of numbers up to 30."""
    square, rest = split_square(x)
    grown: E = square.exp() * (1.0 + rest)
    return grown


def _erfcx_of_positive(x: E) -> E:
    few = x.isinf().where(1.0, x)
    value = ((few - _CENTER) / (few + _CENTER)).polynomial(_ERFCX) / (0.5 + few) * 0.5
    return x.isinf().where(0.0, value)


def _scaled_complement(x: E) -> E:
    value = _erfcx_of_positive(abs(x))
    return (x < 0.0).either(lambda: 2.0 * _grown((-x).minimum(30.0).maximum(0.0)) - value, lambda: value)


def _erfcx(attrs: object, enough: float, x: E) -> E:
    return (x < -27.0).where(math.inf, _scaled_complement(x))


def _log_ndtr(attrs: object, enough: float, x: E) -> E:
    def tail() -> E:
        return (_erfcx_of_positive((x * -_ROOT_HALF).maximum(0.0)) * 0.5).log() - x * x * 0.5

    return (x < -1.0).either(tail, lambda: (-(-x).normal()).log1p())


def _quantile(p: E, rest: E, middle: E) -> E:
    """The quantile of ``p``; ``rest`` is 1 - p and ``middle`` p - 1/2, with all their digits."""
    lower = p.minimum(rest)

    def center() -> E:
        r = 0.180625 - middle * middle
        above, below = _QUANTILE["center"]
        return middle * r.polynomial(above) / r.polynomial(below)

    def tails() -> E:
        r = (-lower.log()).sqrt()
        far = r > 5.0
        r = r - far.where(r.const(5.0), 1.6)
        sides = [
            far.where(r.polynomial(one), r.polynomial(other))
            for one, other in zip(_QUANTILE["far"], _QUANTILE["near"], strict=True)
        ]
        value = sides[0] / sides[1]
        return (middle < 0.0).where(-value, value)

    value = (abs(middle) <= 0.425).either(center, tails)
    ends = p.equals(0.0).where(-math.inf, rest.equals(0.0).where(p.const(math.inf), math.nan))
    return ((p > 0.0) & (rest > 0.0)).where(value, ends)


def _ndtri(attrs: object, enough: float, p: E) -> E:
    return _quantile(p, 1.0 - p, p - 0.5)


def _erfcinv(attrs: object, enough: float, x: E) -> E:
    half = x * 0.5
    return _quantile(half, (2.0 - x) * 0.5, half - 0.5) * -_ROOT_HALF


_formula = special(_erfcx)
erfcx = unary(
    "erfcx", "exp(x * x) erfc(x), accurate where erfc(x) is tiny.", _formula.scalar, _formula.arrays, FLOAT,
    scaled(lambda o, y, x: x * y * 2.0 - 2.0 / math.sqrt(math.pi)), Range(-3.0, 6.0), tolerance=20.0,
    example=("sg.erfcx([0.0, 100.0])", "array([1. , 0.0056...], dtype=float32)"),
)  # fmt: skip

_formula = special(_erfcinv)
erfcinv = unary(
    "erfcinv", "The inverse of erfc, accurate for tiny x; infinite at 0 and 2.", _formula.scalar, _formula.arrays,
    FLOAT, scaled(lambda o, y, x: o.exp(y * y) * (-math.sqrt(math.pi) / 2)), Range(0.05, 1.95), tolerance=5.0,
    example=("sg.erfcinv([1.0, 0.5, 1e-30])", "array([-0. , 0.4769..., 8.1486...], dtype=float32)"),
)  # fmt: skip

ndtr = unary(
    "ndtr", "The distribution function of the standard normal distribution.", "normal", normal_distribution, FLOAT,
    scaled(lambda o, y, x: o.gaussian(x) * (1 / math.sqrt(2 * math.pi))), tolerance=5.0,
    example=("sg.ndtr([0.0, 1.96, -40.0])", "array([0.5 , 0.975..., 0. ], dtype=float32)"),
)  # fmt: skip


def _log_ndtr_slope(o: Namespace, x: Tensor) -> Tensor:
    """The density over ndtr(x), both times exp(x²/2) on the left."""
    left = math.sqrt(2 / math.pi) / o.erfcx(o.minimum(x, 0.0) * -_ROOT_HALF)
    return o.where(o.less(x, 0.0), left, o.gaussian(x) * (1 / math.sqrt(2 * math.pi)) / o.ndtr(x))


_formula = special(_log_ndtr)
log_ndtr = unary(
    "log_ndtr", "The logarithm of ndtr(x), accurate where that is tiny or nearly 1.", _formula.scalar, _formula.arrays,
    FLOAT, scaled(lambda o, y, x: _log_ndtr_slope(o, x)), Range(-8.0, 4.0), tolerance=5.0,
    example=("sg.log_ndtr([0.0, -40.0])", "array([-6.931...e-01, -8.046...e+02], dtype=float32)"),
)  # fmt: skip

_formula = special(_ndtri)
ndtri = unary(
    "ndtri", "The quantile of the standard normal distribution, the inverse of ndtr; infinite at 0 and 1.",
    _formula.scalar, _formula.arrays, FLOAT, scaled(lambda o, y, x: o.exp(y * y * 0.5) * math.sqrt(2 * math.pi)),
    Range(0.02, 0.98), tolerance=5.0,
    example=("sg.ndtri([0.5, 0.975, 1e-30])", "array([  0. ,   1.9599..., -11.4640...], dtype=float32)"),
)  # fmt: skip

# -- logarithms with limits -----------------------------------------------------------------------------------------


def _scalar_log1mexp(b: ScalarBuilder[V], attrs: object, x: V) -> V:
    near = b.gt(x, b.const(-math.log(2), x.dtype))
    zero = b.const(0, x.dtype)
    inner = b.select(near, zero, b.neg(b.exp(x)))
    value = b.select(near, b.log(b.neg(b.expm1(x))), b.log1p(inner))
    return b.select(b.gt(x, zero), b.const(math.nan, x.dtype), value)


def _log1mexp(x: Array) -> Array:
    near = x > -math.log(2)
    value = np.where(near, np.log(-np.expm1(x)), np.log1p(-np.exp(np.where(near, -1.0, x))))
    return np.where(x > 0, math.nan, value)


log1mexp = unary(
    "log1mexp", "log(1 - exp(x)) of negative x, accurate near 0 and far from it.", _scalar_log1mexp, _log1mexp, FLOAT,
    scaled(lambda o, y, x: o.negative(o.reciprocal(o.expm1(o.negative(x))))), Range(-5.0, -0.1), tolerance=3.0,
    example=("sg.log1mexp([-1e-10, -1.0, -50.0])",
             "array([-2.302...e+01, -4.586...e-01, -1.928...e-22], dtype=float32)"),
)  # fmt: skip


def _times_log(b: ScalarBuilder[V], logarithm: V, x: V, y: V) -> V:
    nothing = b.logical_and(b.eq(x, b.const(0, x.dtype)), b.logical_not(b.isnan(y)))
    return b.select(nothing, b.const(0, x.dtype), b.mul(x, logarithm))


def _xlogy(x: Array, y: Array) -> Array:
    return np.where((x == 0) & ~np.isnan(y), 0.0, x * np.log(y))


def _xlog1py(x: Array, y: Array) -> Array:
    return np.where((x == 0) & ~np.isnan(y), 0.0, x * np.log1p(y))


def _over(o: Any, x: Any, y: Any) -> Any:
    """x / y, and 0 where both are 0; elsewhere its own derivative by x is 1 / y, at x = 0 too."""
    return x / o.where(o.logical_and(o.equal(x, 0.0), o.equal(y, 0.0)), 1.0, y)


xlogy = binary(
    "xlogy", "x1 * log(x2), and 0 where x1 is 0.",
    lambda b, attrs, x, y: _times_log(b, b.log(y), x, y), _xlogy, FLOAT,
    (scaled(lambda o, z, x, y: o.log(y)), scaled(lambda o, z, x, y: _over(o, x, y))),
    binary_cases(POSITIVE, POSITIVE), tolerance=2.0,
    example=("sg.xlogy([0.0, 2.0], [0.0, 0.5])", "array([ 0. , -1.3862...], dtype=float32)"),
)  # fmt: skip

xlog1py = binary(
    "xlog1py", "x1 * log(1 + x2), and 0 where x1 is 0.",
    lambda b, attrs, x, y: _times_log(b, b.log1p(y), x, y), _xlog1py, FLOAT,
    (scaled(lambda o, z, x, y: o.log1p(y)), scaled(lambda o, z, x, y: _over(o, x, y + 1.0))),
    binary_cases(POSITIVE, Range(-0.8, 3.0)), tolerance=2.0,
    example=("sg.xlog1py([0.0, 2.0], [-1.0, -0.5])", "array([ 0. , -1.3862...], dtype=float32)"),
)  # fmt: skip

# -- sinc -----------------------------------------------------------------------------------------------------------


def _sine_and_cosine(x: E) -> tuple[E, E]:
    """sin(pi x) and cos(pi x)."""
    whole = x.round()
    angle, odd = (x - whole) * math.pi, ~(whole * 0.5).equals((whole * 0.5).round())
    sine, cosine = angle.sin(), angle.cos()
    return odd.where(0.0 - sine, sine), odd.where(-cosine, cosine)


_SERIES = [(-1) ** k * math.pi ** (2 * k) / math.factorial(2 * k + 1) for k in range(13)]  # of sinc, in x²
_SLOPE_SERIES = [2 * k * c for k, c in enumerate(_SERIES)][1:]


def _sinc(attrs: object, enough: float, x: E) -> E:
    near = abs(x) < 0.5
    small, large = near.where(x, 0.0), near.where(1.0, x)
    value = near.where((small * small).polynomial(_SERIES), _sine_and_cosine(large)[0] / (large * math.pi))
    return x.isinf().where(0.0, value)


def _sinc_slope(attrs: object, enough: float, x: E) -> E:
    near = abs(x) < 0.5
    small, large = near.where(x, 0.0), near.where(1.0, x)
    sine, cosine = _sine_and_cosine(large)
    far = (cosine - sine / (large * math.pi)) / large
    return x.isinf().where(0.0, near.where(small * (small * small).polynomial(_SLOPE_SERIES), far))


def _sinc_curve(o: Namespace, y: Tensor, x: Tensor) -> Tensor:
    """-pi² sinc(x) - 2 sinc'(x)/x."""
    at_zero = o.equal(x, 0.0)
    ratio = o.where(at_zero, -(math.pi**2) / 3, y / o.where(at_zero, 1.0, x))
    return o.sinc(x) * -(math.pi**2) - ratio * 2.0


_formula = special(_sinc_slope)
sinc_slope = unary(
    "sinc_slope", "The derivative of sinc.", _formula.scalar, _formula.arrays, FLOAT, scaled(_sinc_curve),
    Range(-4.0, 4.0), tolerance=20.0,
)  # fmt: skip

_formula = special(_sinc)
sinc = unary(
    "sinc", "sin(pi x) / (pi x), and 1 at 0, as NumPy's.", _formula.scalar, _formula.arrays, FLOAT,
    scaled(lambda o, y, x: o.sinc_slope(x)), Range(-4.0, 4.0), tolerance=20.0,
    example=("sg.sinc([0.0, 0.5, 1.0])", "array([1. , 0.6366..., 0. ], dtype=float32)"),
)  # fmt: skip
