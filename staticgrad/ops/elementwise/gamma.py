"""The logarithm of the gamma function and its derivatives: ``lgamma``, ``digamma``, ``polygamma``.

Everything is written over the scalar builder, so these functions fuse and need no library. The formulas are those of
the NIST Digital Library of Mathematical Functions: 5.5.1 and 5.5.3 (recurrence, reflection), 5.11.1 (Stirling's
series), 5.15.5 and 5.15.6 (polygamma functions), 2.10.1 (Euler and Maclaurin's sum). The oracles sum longer.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from typing import Generic

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.base.types import integer
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import Array, Namespace, Range, public
from staticgrad.graph.scalar import ScalarBuilder, V
from staticgrad.ops.declare import FLOAT, accepted, declare
from staticgrad.ops.elementwise.entry import Rule, elementwise, scaled, unary, unary_cases

# log(Gamma(2 + v)) / v in powers of v on [-3/4, 1/4], by the bytes of a float: interpolation at Chebyshev nodes in 80
# digits, 2^-23.8 and 2^-53.7 of itself once rounded, of which 2^-27.9 and 2^-56.6 are the polynomial's.
_AROUND_2 = {
    4: (
        0.42278432846069336, 0.32246702909469604, -0.06735225766897202, 0.020581452175974846, -0.0073865121230483055,
        0.0028736013919115067, -0.0012097347062081099, 0.0006308240699581802, 0.00011751702550100163,
        0.0003955615102313459,
    ),
    8: (
        0.42278433509846713, 0.32246703342411326, -0.06735230105319767, 0.020580808427773923, -0.007385551028762679,
        0.002890510331695684, -0.0011927539039353042, 0.0005096694948405424, -0.0002231550859715561,
        9.945759080836898e-05, -4.491964674241342e-05, 2.052053718879593e-05, -9.487744447608211e-06,
        4.142020064879751e-06, -2.22297080039024e-06, 1.8359777498788917e-06, 2.3831568905243507e-06,
        4.047446372901842e-06, 2.58764175184737e-06, 8.890417043351835e-07,
    ),
}  # fmt: skip

# The positive root of digamma in two parts, and that less one.
_ROOT = {4: (1.4616321325302124, 1.2438149938918909e-08), 8: (1.4616321449683622, 9.549995429965697e-17)}
_ROOT_BELOW = {4: (0.4616321325302124, 1.2438149938918909e-08), 8: (0.46163214496836236, -1.5522348162858677e-17)}

# digamma(t) / (t - root) as a quotient of polynomials of t - root, t in [1, 9/4]: interpolation at Chebyshev nodes in
# 80 digits, 2^-25.5 and 2^-53.8 of itself once rounded.
_OVER_ROOT = {
    4: (
        (0.9676722288131714, 0.6950317025184631, 0.1085839495062828, 0.0011740297777578235),
        (1.0, 1.1758060455322266, 0.3830717206001282, 0.03180947154760361),
    ),
    8: (
        (
            0.9676722454476212, 1.1963589554201657, 0.5289098579972606, 0.10259641155016054, 0.008451955736614987,
            0.00022604460744476813, 4.0390993491702094e-07,
        ),
        (
            1.0, 1.6938815101031863, 1.054487660608265, 0.3054334266577909, 0.04234624523532163, 0.0025369023002313933,
            4.63189422824304e-05,
        ),
    ),
}  # fmt: skip

BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)  # B2, B4, …
_SHIFT = 10  # sums of reciprocal powers are taken term by term so far, then by their asymptotic series
_STIRLING_FROM = 8.0
# The argument from which digamma's asymptotic series is below half a unit in the last place with that many terms.
_SERIES = {4: (4.0, 4), 8: (9.0, 8)}


class _Terms(Generic[V]):
    """Short names for a builder and a dtype."""

    def __init__(self, b: ScalarBuilder[V], dtype: np.dtype) -> None:
        self.b = b
        self.dtype = dtype

    def number(self, value: float) -> V:
        return self.b.const(value, self.dtype)

    def polynomial(self, x: V, coefficients: tuple[float, ...]) -> V:
        """Horner's scheme; coefficients from the constant one up."""
        total = self.number(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            total = self.b.fma(total, x, self.number(coefficient))
        return total

    def power(self, x: V, n: int) -> V:
        """x to a positive power, by squaring."""
        half = self.power(x, n // 2) if n > 1 else x
        square = self.b.mul(half, half) if n > 1 else x
        return self.b.mul(square, x) if n > 1 and n % 2 else square

    def fraction(self, x: V) -> V:
        """x minus the nearest integer."""
        return self.b.sub(x, self.b.round(x))

    def cotangent(self, x: V) -> V:
        """cot(pi x), also accurate where it is small: there it is the tangent of what is missing to pi/2."""
        b, part = self.b, self.fraction(x)
        size = b.abs(part)
        steep = b.le(size, self.number(0.25))
        tangent = b.tan(b.mul(self.number(math.pi), b.select(steep, size, b.sub(self.number(0.5), size))))
        return b.copysign(b.select(steep, b.div(self.number(1), tangent), tangent), part)


# -- lgamma ---------------------------------------------------------------------------------------------------------


def _log_gamma_right(b: ScalarBuilder[V], x: V) -> V:
    """The logarithm of Gamma(x) of x from -3/4 on, of its magnitude below 0.

    By the recurrence 2 + v comes into [5/4, 9/4), so that v is exact; Stirling's series serves from 8 on. Between 5/4
    and 9/4 there is no logarithm, and about 1 both terms are multiples of v = x - 1.
    """
    k = _Terms(b, x.dtype)
    one, two = k.number(1), k.number(2)
    large, few, least = b.ge(x, k.number(_STIRLING_FROM)), b.lt(x, k.number(1.25)), b.lt(x, k.number(0.25))
    t, above = b.select(large, two, x), one
    for _ in range(int(_STIRLING_FROM) - 2):
        high = b.ge(t, k.number(2.25))
        lowered = b.sub(t, one)
        above = b.select(high, b.mul(above, lowered), above)
        t = b.select(high, lowered, t)
    v = b.sub(t, b.select(least, k.number(0), b.select(few, one, two)))
    below = b.abs(b.mul(x, b.select(least, b.add(x, one), one)))
    logarithm = b.log(b.select(large, x, b.select(few, below, above)))
    near = b.fma(v, k.polynomial(v, _AROUND_2[x.dtype.itemsize]), b.select(few, b.neg(logarithm), logarithm))
    r = b.div(one, b.select(large, x, one))
    series = tuple(value / (2 * j * (2 * j - 1)) for j, value in enumerate(BERNOULLI, start=1))
    tail = b.fma(r, k.polynomial(b.mul(r, r), series), k.number(0.5 * math.log(2 * math.pi)))
    far = b.add(b.mul(b.sub(x, k.number(0.5)), b.sub(logarithm, one)), b.sub(tail, k.number(0.5)))
    return b.select(large, far, near)


def log_gamma(b: ScalarBuilder[V], x: V) -> V:
    """The logarithm of the magnitude of Gamma(x); below -3/4 by |Gamma(x) Gamma(-x)| = pi / |x sin(pi x)|."""
    k = _Terms(b, x.dtype)
    left = b.lt(x, k.number(-0.75))
    right = _log_gamma_right(b, b.select(left, b.neg(x), x))

    def reflected() -> V:
        part = k.fraction(b.select(b.isinf(x), k.number(0), x))
        sine = b.abs(b.mul(x, b.sin(b.mul(k.number(math.pi), part))))
        pole = b.eq(part, k.number(0))
        value = b.sub(b.log(b.div(k.number(math.pi), b.select(pole, k.number(1), sine))), right)
        return b.select(pole, k.number(math.inf), value)

    return b.either(left, reflected, lambda: right)


def _scalar_lgamma(b: ScalarBuilder[V], attrs: object, x: V) -> V:
    return log_gamma(b, x)


def _is_pole(x: float) -> bool:
    return x <= 0 and (math.isinf(x) or x == math.floor(x))


@functools.cache
def _zeta_less_one() -> tuple[float, ...]:
    """The sums of n^-k over n from 2 on, k from 2 to 60: to 100 term by term, then by Euler and Maclaurin's formula."""

    def of(k: int) -> float:
        tail = 100.0 ** (1 - k) / (k - 1) + 100.0**-k / 2 + k * 100.0 ** (-k - 1) / 12
        rest = -_rising(k, 3) * 100.0 ** (-k - 3) / 720 + _rising(k, 5) * 100.0 ** (-k - 5) / 30240
        return math.fsum([float(n) ** -k for n in range(2, 100)] + [tail, rest])

    return tuple(of(k) for k in range(2, 61))


def _exact_lgamma(x: float) -> float:
    """The reference: from -10 to 10, where C's function may have few digits, by the series of DLMF 5.7.3."""
    if math.isinf(x) or _is_pole(x):
        return math.inf
    if -10 < x < -0.5:
        sine = math.sin(math.pi * math.fabs(x - round(x)))
        return math.log(math.pi / (-x * sine)) - _exact_lgamma(-x)
    if 0 < x < 10:
        v, product = x - (0 if x < 0.5 else 1 if x < 1.5 else 2), x if x < 0.5 else 1.0
        while v > 0.5:
            v -= 1
            product *= v + 2
        series = [zeta * (-v) ** k / k for k, zeta in enumerate(_zeta_less_one(), start=2)]
        logarithm = math.log(product) if x >= 1.5 else -math.log(product) - math.log1p(v)
        return math.fsum([v * 0.42278433509846714, *series, logarithm])
    try:
        return math.lgamma(x)
    except OverflowError:
        return math.inf


lgamma = unary(
    "lgamma",
    "The logarithm of the magnitude of Gamma(x); infinite at 0 and the negative integers. Below -2, where it has zeros "
    "between them, errors are up to 4 units in the last place of 1.",
    _scalar_lgamma, np.vectorize(_exact_lgamma, otypes=[np.float64]), FLOAT, scaled(lambda o, y, x: o.digamma(x)),
    Range(0.3, 12.0),
    tolerance=20.0,  # next to its zeros between the negative integers the reflection cancels,
    example=("sg.lgamma([1.0, 5.0, 0.0])", "array([0. , 3.1780..., inf], dtype=float32)"),
)  # fmt: skip

# -- digamma --------------------------------------------------------------------------------------------------------


def _digamma_right(b: ScalarBuilder[V], x: V, following: V | None = None) -> V:
    """Digamma of x > 0, or where ``following`` of x + 1, which is not rounded.

    The argument is brought into [1, 9/4) by the recurrence, whose terms are summed up as one quotient; the asymptotic
    series log(x) - 1/(2x) - sum of B_2j / (2j x^2j) from 9 on, of float32 from 4 on.
    """
    k = _Terms(b, x.dtype)
    size = x.dtype.itemsize
    start, terms = _SERIES[size]
    zero, one = k.number(0), k.number(1)
    large, few = b.ge(x, k.number(start)), b.lt(x, one)
    t = b.select(large, one, x)
    above = b.select(few, k.number(-1), zero)
    if following is not None:
        above = b.add(above, b.select(following, one, zero))
    below = b.select(b.eq(above, zero), one, x)
    for _ in range(int(start) - 2):
        high = b.ge(t, k.number(2.25))
        lowered = b.sub(t, one)
        above = b.select(high, b.fma(above, lowered, below), above)
        below = b.select(high, b.mul(below, lowered), below)
        t = b.select(high, lowered, t)
    (root, rest), (root_below, rest_below) = _ROOT[size], _ROOT_BELOW[size]
    distance = b.sub(t, b.select(few, k.number(root_below), k.number(root)))
    distance = b.sub(distance, b.select(few, k.number(rest_below), k.number(rest)))
    upper, lower = (k.polynomial(distance, c) for c in _OVER_ROOT[size])
    near = b.add(b.div(b.mul(distance, upper), lower), b.div(above, below))
    r = b.div(one, b.select(large, x, one))
    square = b.mul(r, r)
    series = tuple(value / (2 * j) for j, value in enumerate(BERNOULLI[:terms], start=1))
    half = k.number(-0.5) if following is None else b.select(following, k.number(0.5), k.number(-0.5))
    tail = b.sub(b.mul(half, r), b.mul(square, k.polynomial(square, series)))
    return b.select(large, b.add(b.log(b.select(large, x, one)), tail), near)


def digamma_positive(b: ScalarBuilder[V], x: V) -> V:
    return _digamma_right(b, x)


def _scalar_digamma(b: ScalarBuilder[V], attrs: object, x: V) -> V:
    """digamma(1 - x) - pi cot(pi x) of negative x."""
    k = _Terms(b, x.dtype)
    negative = b.lt(x, k.number(0))
    right = _digamma_right(b, b.abs(x), negative)

    def reflected() -> V:
        value = b.sub(right, b.mul(k.number(math.pi), k.cotangent(b.select(b.isinf(x), k.number(0), x))))
        return b.select(b.eq(x, b.floor(x)), k.number(math.nan), value)

    value = b.either(negative, reflected, lambda: right)
    return b.select(b.eq(x, k.number(0)), b.div(k.number(-1), x), value)


def _exact_digamma(x: float) -> float:
    if x == 0:
        return math.copysign(math.inf, -x)
    if _is_pole(x):
        return math.nan
    if math.isinf(x) or math.isnan(x):
        return x
    if x > 0:
        return float(_decimal_digamma(Decimal(x)))
    with localcontext(prec=40):
        mirrored = _decimal_digamma(1 - Decimal(x))
    return float(mirrored) - math.pi * _cotangent(x)


def _decimal_digamma(z: Decimal) -> Decimal:
    """Digamma with the digits that the sum loses next to its root."""
    with localcontext(prec=40):
        total = Decimal(0)
        while z < 100:
            total -= 1 / z
            z += 1
        r = 1 / z
        series = (r**2 / 12, -(r**4) / 120, r**6 / 252, -(r**8) / 240, r**10 / 132, -691 * r**12 / 32760, r**14 / 12)
        return total + z.ln() - r / 2 - sum(series)


def _cotangent(x: float) -> float:
    """cot(pi x)."""
    size = math.fabs(x - round(x))
    value = 1 / math.tan(math.pi * size) if size <= 0.25 else math.tan(math.pi * (0.5 - size))
    return math.copysign(value, x - round(x))


digamma = unary(
    "digamma",
    "The derivative of lgamma: Gamma'(x) / Gamma(x); NaN at the negative integers. Below 0, where it has a zero "
    "between any two of them, errors are up to 4 units in the last place of 1 + log(1 - x).",
    _scalar_digamma, np.vectorize(_exact_digamma, otypes=[np.float64]), FLOAT,
    scaled(lambda o, y, x: o.polygamma(1, x)),
    Range(0.3, 12.0), tolerance=3.0,
    example=("sg.digamma([1.0, 0.0, -1.0])", "array([-0.5772..., -inf, nan], dtype=float32)"),
)  # fmt: skip

# -- polygamma ------------------------------------------------------------------------------------------------------


@frozen
class PolygammaAttributes:
    """The number of times that ``digamma`` is derived; at least once."""

    order: int


def _rising(s: int, count: int) -> int:
    return math.prod(range(s, s + count))


def _polygamma_positive(b: ScalarBuilder[V], order: int, x: V) -> V:
    """(-1)^(n+1) n! times the sum of (x + k)^-(n+1), by Euler and Maclaurin's formula from x + 10 on."""
    k = _Terms(b, x.dtype)
    one, s = k.number(1), order + 1
    total = k.number(0)
    for step in range(_SHIFT):
        total = b.add(total, k.power(b.div(one, b.add(x, k.number(step))), s))
    r = b.div(one, b.add(x, k.number(_SHIFT)))
    series = tuple(v * _rising(s, 2 * j - 1) / math.factorial(2 * j) for j, v in enumerate(BERNOULLI, start=1))
    corrections = b.fma(r, k.polynomial(b.mul(r, r), series), k.number(0.5))
    tail = b.mul(k.power(r, order), b.fma(r, corrections, k.number(1 / order)))
    return b.mul(k.number((-1) ** (order + 1) * math.factorial(order)), b.add(total, tail))


@functools.cache
def _cotangent_derivative(order: int) -> tuple[int, ...]:
    """The polynomial P with d^n/du^n cot(u) = P(cot(u)); coefficients from the constant one up."""
    p = [0, 1]
    for _ in range(order):
        slope = [i * p[i] for i in range(1, len(p))]
        p = [-(a + c) for a, c in zip([*slope, 0, 0], [0, 0, *slope], strict=True)]
    return tuple(p)


def _scalar_polygamma(b: ScalarBuilder[V], attrs: PolygammaAttributes, x: V) -> V:
    k = _Terms(b, x.dtype)
    order = attrs.order
    zero, one = k.number(0), k.number(1)
    pole = b.logical_and(b.le(x, zero), b.eq(x, b.floor(x)))
    negative = b.lt(x, zero)
    safe = b.select(pole, one, x)
    positive = _polygamma_positive(b, order, b.select(negative, b.sub(one, safe), safe))

    def reflected() -> V:
        polynomial = k.polynomial(k.cotangent(safe), tuple(map(float, _cotangent_derivative(order))))
        bent = b.mul(k.number(math.pi ** (order + 1)), polynomial)
        return b.sub(positive if order % 2 == 0 else b.neg(positive), bent)

    value = b.either(negative, reflected, lambda: positive)
    return b.select(pole, k.number(math.inf if order % 2 else math.nan), value)


def _exact_polygamma(order: int, x: float) -> float:
    if _is_pole(x):
        return math.inf if order % 2 else math.nan
    if math.isinf(x) or math.isnan(x):
        return 0.0 if x > 0 else x
    if x < 0:
        cotangent = np.float64(_cotangent(x))
        bent = math.pi ** (order + 1) * sum(c * cotangent**i for i, c in enumerate(_cotangent_derivative(order)) if c)
        return float((-1) ** order * _exact_polygamma(order, 1 - x) - bent)
    s, r = order + 1, 1 / (x + 40)
    try:
        terms = [(1 / (x + k)) ** s for k in range(40)]
    except OverflowError:  # of the first term
        return math.copysign(math.inf, (-1) ** s)
    terms += [r**order / order, r**s / 2, s * r ** (s + 1) / 12]
    terms += [-_rising(s, 3) * r ** (s + 3) / 720, _rising(s, 5) * r ** (s + 5) / 30240]
    return float((-1) ** s * math.factorial(order) * math.fsum(terms))


def _reference_polygamma(attrs: PolygammaAttributes, x: Array) -> Array:
    oracle = np.vectorize(functools.partial(_exact_polygamma, attrs.order), otypes=[np.float64])
    return np.asarray(oracle(x))


def _polygamma_slope(attrs: PolygammaAttributes) -> Sequence[Rule]:
    def partial(o: Namespace, y: Tensor, x: Tensor) -> Tensor:
        return o.polygamma(attrs.order + 1, x)

    return (scaled(partial),)


POLYGAMMA = elementwise(
    "polygamma",
    "A derivative of digamma.",
    _scalar_polygamma,
    _reference_polygamma,
    FLOAT,
    _polygamma_slope,
    unary_cases(Range(0.5, 8.0), [PolygammaAttributes(1), PolygammaAttributes(2), PolygammaAttributes(3)]),
    tolerance=10.0,
)


@public
def polygamma(n: int, x: TensorLike) -> Tensor:
    """The derivative of order ``n`` of ``digamma``; at 0 and the negative integers infinite for odd n, else NaN.

    Errors are up to 4 units in the last place for n = 1 (6 below 0) and 20 for n = 2, and grow with n.

    Raises:
        GraphError: n is negative or no integer.

    Example:
        >>> sg.Session().run(sg.polygamma(1, [1.0, 0.0])).round(3)
        array([1.645,   inf], dtype=float32)
    """
    n = integer(n, "polygamma: n", 0)
    if n == 0:
        return digamma(x)
    return declare(POLYGAMMA, accepted("polygamma", FLOAT, x), PolygammaAttributes(n))
