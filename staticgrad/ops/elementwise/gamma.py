"""The logarithm of the gamma function and its derivatives: ``lgamma``, ``digamma``, ``polygamma``.

Everything is written over the scalar builder, so these functions fuse and need no library. The formulas are those of
the NIST Digital Library of Mathematical Functions: 5.5.1 and 5.5.3 (recurrence, reflection), 5.11.1 (Stirling's
series), 5.15.5 and 5.15.6 (polygamma functions), 2.10.1 (Euler and Maclaurin's sum). The oracles sum longer.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Generic

import numpy as np

from staticgrad.frozen import frozen
from staticgrad.graph import Tensor
from staticgrad.lifting import TensorLike
from staticgrad.ops.declare import FLOAT, accepted, declare
from staticgrad.ops.elementwise.entry import Rule, elementwise, scaled, unary, unary_cases
from staticgrad.optable import Array, Namespace, Range, public
from staticgrad.scalar import ScalarBuilder, V
from staticgrad.types import integer

# log(Gamma(2 + t)) / t as a polynomial of t - 1/2 on [0, 1]: interpolation at 17 Chebyshev nodes in 60 digits; its
# error is below 1e-18.
LOG_GAMMA_2 = (
    0.569365740945838319,
    0.267581799398809714,
    -0.0448058426973845986,
    0.0108770015141976004,
    -0.00309518229361740944,
    0.000961097928552040569,
    -0.000315059250352396328,
    0.000107100210102349538,
    -0.0000373533694002722953,
    0.0000132757111302574063,
    -4.78637998751422512e-6,
    1.74564127540340403e-6,
    -6.42141745195587259e-7,
    2.3537239328440718e-7,
    -8.77235842477466214e-8,
    3.87207819519408326e-8,
    -1.4586003484400256e-8,
)

BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)  # B2, B4, …
_SHIFT = 10  # sums of reciprocal powers are taken term by term so far, then by their asymptotic series
_STIRLING_FROM = 8.0


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


# -- lgamma ---------------------------------------------------------------------------------------------------------


def _log_gamma_positive(b: ScalarBuilder[V], x: V) -> V:
    """For x > 0: brought into [2, 3) by the recurrence where x is small, by Stirling's series elsewhere."""
    k = _Terms(b, x.dtype)
    one, two = k.number(1), k.number(2)
    large = b.ge(x, k.number(_STIRLING_FROM))
    t = b.select(large, two, x)
    below, above = one, one
    for _ in range(2):
        small = b.lt(t, two)
        below = b.select(small, b.mul(below, t), below)
        t = b.select(small, b.add(t, one), t)
    for _ in range(int(_STIRLING_FROM) - 3):
        high = b.ge(t, k.number(3))
        lowered = b.sub(t, one)
        above = b.select(high, b.mul(above, lowered), above)
        t = b.select(high, lowered, t)
    few = b.lt(x, two)
    logarithm = b.log(b.select(large, x, b.select(few, below, above)))
    logarithm = b.select(few, b.neg(logarithm), logarithm)
    u = b.sub(t, two)
    near = b.fma(u, k.polynomial(b.sub(u, k.number(0.5)), LOG_GAMMA_2), logarithm)
    r = b.div(one, b.select(large, x, one))
    series = tuple(value / (2 * j * (2 * j - 1)) for j, value in enumerate(BERNOULLI, start=1))
    tail = b.fma(r, k.polynomial(b.mul(r, r), series), k.number(0.5 * math.log(2 * math.pi)))
    far = b.add(b.mul(b.sub(x, k.number(0.5)), b.sub(logarithm, one)), b.sub(tail, k.number(0.5)))
    return b.select(large, far, near)


def log_gamma(b: ScalarBuilder[V], x: V) -> V:
    """The logarithm of the magnitude of Gamma(x)."""
    k = _Terms(b, x.dtype)
    zero, infinity = k.number(0), k.number(math.inf)
    negative = b.lt(x, zero)
    pole = b.logical_or(b.eq(x, zero), b.logical_and(negative, b.eq(x, b.floor(x))))
    boundless = b.logical_or(b.isinf(x), pole)
    safe = b.select(boundless, k.number(1), x)
    positive = _log_gamma_positive(b, b.select(negative, b.sub(k.number(1), safe), safe))
    sine = b.abs(b.sin(b.mul(k.number(math.pi), k.fraction(safe))))
    reflected = b.sub(b.log(b.div(k.number(math.pi), b.select(negative, sine, k.number(1)))), positive)
    return b.select(boundless, infinity, b.select(negative, reflected, positive))


def _scalar_lgamma(b: ScalarBuilder[V], attrs: object, x: V) -> V:
    return log_gamma(b, x)


def _is_pole(x: float) -> bool:
    return x <= 0 and (math.isinf(x) or x == math.floor(x))


def _exact_lgamma(x: float) -> float:
    if math.isinf(x) or _is_pole(x):
        return math.inf
    try:
        return math.lgamma(x)
    except OverflowError:
        return math.inf


lgamma = unary(
    "lgamma", "The logarithm of the magnitude of Gamma(x); infinite at 0 and the negative integers.", _scalar_lgamma,
    np.vectorize(_exact_lgamma, otypes=[np.float64]), FLOAT, scaled(lambda o, y, x: o.digamma(x)), Range(0.3, 12.0),
    tolerance=20.0,  # next to its zeros between the negative integers the reflection cancels,
    example=("sg.lgamma([1.0, 5.0, 0.0])", "array([0. , 3.1780..., inf], dtype=float32)"),
)  # fmt: skip

# -- digamma --------------------------------------------------------------------------------------------------------


def digamma_positive(b: ScalarBuilder[V], x: V) -> V:
    """log(z) - 1/(2z) - sum of B_2j / (2j z^2j) at z = x + 10, minus 1/x, 1/(x + 1), … before it."""
    k = _Terms(b, x.dtype)
    one = k.number(1)
    z = b.add(x, k.number(_SHIFT))
    before = b.div(one, x)
    for step in range(1, _SHIFT):
        before = b.add(before, b.div(one, b.add(x, k.number(step))))
    r = b.div(one, z)
    square = b.mul(r, r)
    series = tuple(value / (2 * j) for j, value in enumerate(BERNOULLI, start=1))
    tail = b.fma(square, k.polynomial(square, series), b.mul(k.number(0.5), r))
    return b.sub(b.sub(b.log(z), tail), before)


def _scalar_digamma(b: ScalarBuilder[V], attrs: object, x: V) -> V:
    k = _Terms(b, x.dtype)
    zero, one = k.number(0), k.number(1)
    negative = b.lt(x, zero)
    pole = b.logical_and(negative, b.eq(x, b.floor(x)))
    safe = b.select(b.logical_or(pole, b.eq(x, zero)), one, x)
    positive = digamma_positive(b, b.select(negative, b.sub(one, safe), safe))
    tangent = b.tan(b.mul(k.number(math.pi), k.fraction(safe)))
    cotangent = b.div(k.number(math.pi), b.select(negative, tangent, one))
    value = b.select(negative, b.sub(positive, cotangent), positive)
    value = b.select(pole, k.number(math.nan), value)
    return b.select(b.eq(x, zero), b.div(k.number(-1), x), value)


def _exact_digamma(x: float) -> float:
    if x == 0:
        return math.copysign(math.inf, -x)
    if _is_pole(x):
        return math.nan
    if x < 0:
        return _exact_digamma(1 - x) - math.pi / math.tan(math.pi * (x - round(x)))
    if math.isinf(x) or math.isnan(x):
        return x
    z, terms = x, []
    while z < 30:
        terms.append(-1 / z)
        z += 1
    r = 1 / z
    terms += [math.log(z), -0.5 * r, -(r**2) / 12, r**4 / 120, -(r**6) / 252, r**8 / 240]
    return math.fsum(terms)


digamma = unary(
    "digamma", "The derivative of lgamma: Gamma'(x) / Gamma(x); NaN at the negative integers.", _scalar_digamma,
    np.vectorize(_exact_digamma, otypes=[np.float64]), FLOAT, scaled(lambda o, y, x: o.polygamma(1, x)),
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
    tangent = b.tan(b.mul(k.number(math.pi), k.fraction(safe)))
    cotangent = b.div(one, b.select(negative, tangent, one))
    polynomial = k.polynomial(cotangent, tuple(map(float, _cotangent_derivative(order))))
    bent = b.mul(k.number(math.pi ** (order + 1)), polynomial)
    mirrored = positive if order % 2 == 0 else b.neg(positive)
    value = b.select(negative, b.sub(mirrored, bent), positive)
    return b.select(pole, k.number(math.inf if order % 2 else math.nan), value)


def _exact_polygamma(order: int, x: float) -> float:
    if _is_pole(x):
        return math.inf if order % 2 else math.nan
    if math.isinf(x) or math.isnan(x):
        return 0.0 if x > 0 else x
    if x < 0:
        cotangent = 1 / np.tan(np.float64(math.pi * (x - round(x))))
        bent = math.pi ** (order + 1) * sum(c * cotangent**i for i, c in enumerate(_cotangent_derivative(order)))
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
