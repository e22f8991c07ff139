"""The regularized incomplete gamma functions ``gammainc`` and ``gammaincc`` and their derivatives by both operands.

With λ = x/a, μ = λ - 1, φ = μ - log λ and D = x^a exp(-x) / Gamma(a), one of four ways is taken, in about the regions
of Gautschi (ACM TOMS 5, 1979) and of Gil, Segura & Temme (SIAM J. Sci. Comput. 34, 2012):

- the power series of the lower function (NIST Digital Library of Mathematical Functions, 8.7.1; positive terms);
- the continued fraction of the upper one (8.9.2, its even part), by recurrence, normalized in each turn;
- Temme's uniform expansion for large a near x = a (8.12);
- the upper function of small a and x as 1 less a series whose first term is taken off (8.7.3).

The derivative by ``a`` is that of each series, fraction and expansion, term by term: Moore (Applied Statistics 31,
1982, AS 187) does so with the first two. D is taken around its largest value, in powers of exp(-a φ), where a is large.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import Case, Namespace, Range, public
from staticgrad.ops.declare import FLOAT, accepted, declare
from staticgrad.ops.elementwise.entry import BINARY_SHAPES, PASS, binary, binary_cases, elementwise, scaled
from staticgrad.ops.elementwise.expressions import Expression, continued_fraction, derived_fraction, loop, special
from staticgrad.ops.elementwise.gamma import BERNOULLI, digamma_positive

E = Expression[Any]
# log(Gamma(2 + t)) / t as a polynomial of t - 1/2 on [0, 1]: interpolation at 17 Chebyshev nodes in 60 digits; its
# error is below 1e-18.
_LOG_GAMMA_2 = (
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

STIRLING_FROM = 8.0
_UNIFORM_FROM, _UNIFORM_WITHIN = 20.0, 0.35  # of a, and of the distance of x/a from 1
_ORDERS = 13  # of the uniform expansion in 1/a: the next is below 1e-17 at a = 20
_TURNS = 1000  # never reached: a = 20, x = 26 takes about 100


# -- parts, also of the incomplete beta function ------------------------------------------------------------------


def log_gamma_ratio(a: E) -> E:
    """log(Gamma(a) / (sqrt(2 pi / a) (a/e)^a)) of a from 8 on: Stirling's series."""
    r = 1.0 / a
    return r * (r * r).polynomial([value / (2 * j * (2 * j - 1)) for j, value in enumerate(BERNOULLI, start=1)])


def gamma_of_next(a: E, below: int = 8) -> E:
    """Gamma(1 + a) of a in [0, below)."""
    t, product = a, a.const(1.0)
    for _ in range(below - 1):
        high = t >= 1.0
        product = high.where(product * t, product)
        t = high.where(t - 1.0, t)
    return (t * (t - 0.5).polynomial(_LOG_GAMMA_2)).exp() * product / (1.0 + t)


def log_gamma_of_next(a: E) -> E:
    """log(Gamma(1 + a)) of a in [0, 1], accurate also near 0."""
    return a * (a - 0.5).polynomial(_LOG_GAMMA_2) - a.log1p()


def log_excess(mu: E, ratio: E) -> E:
    """mu - log(1 + mu), accurate near 0 too; ``ratio`` is 1 + mu, as a quotient that has all digits near 0."""
    s = mu / (mu + 2.0)
    square = s * s
    near = mu * s - 2.0 * s * square * square.polynomial([1 / k for k in range(3, 33, 2)])
    return (abs(mu) < 0.4).where(near, mu - ratio.log())


def digamma_of(x: E) -> E:
    return Expression(x.b, digamma_positive(x.b, x.value))


def mass(a: E, x: E) -> E:
    """x^a exp(-x) / Gamma(1 + a), of positive operands."""

    def around_peak() -> E:
        exponent = -a * log_excess((x - a) / a, x / a) - log_gamma_ratio(a.maximum(STIRLING_FROM))
        return exponent.exp() / (2 * math.pi * a).sqrt()

    def plain() -> E:
        low, few = a.minimum(STIRLING_FROM), x.minimum(800.0)  # exp(-800) is 0, and no power of 800 infinite
        return few.power(low) * (-few).exp() / gamma_of_next(low)

    return (a >= STIRLING_FROM).either(around_peak, plain)


# -- the four ways --------------------------------------------------------------------------------------------------


def _lower_series(enough: float, a: E, x: E) -> E:
    """The sum of x^n / ((a + 1) … (a + n)): the lower function over ``mass``."""

    def turn(carried: Sequence[E]) -> tuple[E, Sequence[E]]:
        term, total, place = carried
        term = term * (x / place)
        return term > total * enough, (term, total + term, place + 1.0)

    return loop(_TURNS, (a.const(1.0), a.const(1.0), a + 1.0), turn)[1]


def _upper_fraction(enough: float, a: E, x: E) -> E:
    """1/(x + 1 - a - 1 (1 - a)/(x + 3 - a - …)): the upper function over D."""
    first = x - a + 1.0
    return 1.0 / continued_fraction(_TURNS, enough, first, lambda n: (n * (a - n), first + 2.0 * n))


def _upper_of_small(a: E, x: E) -> E:
    """-expm1(L) - exp(L) times the sum of a (-x)^n / ((a + n) n!), L = a log x - log(Gamma(1 + a)); x up to 1.1."""
    total = a.const(0.0)
    for n in range(21, 0, -1):
        total = total.fma(-x * (1 / (n + 1)), 1.0 / (a + float(n)))
    exponent = a * x.log() - log_gamma_of_next(a.minimum(1.0))
    return exponent.exp() * a * x * total - exponent.expm1()


@functools.cache
def _uniform_coefficients() -> tuple[tuple[float, ...], ...]:
    """The coefficients of c_k(η) in powers of η, in exact fractions (DLMF 8.12.9 to 8.12.12).

    μ as a series of η follows from η dη = μ dμ / (1 + μ); c_0 = 1/μ - 1/η, and c_k is c_(k-1)' / η plus a multiple of
    1/μ that takes the pole away. Each row ends where its terms vanish compared with the first one.
    """
    count = 2 * _ORDERS + 20
    mu = [Fraction(0), Fraction(1)]
    for n in range(2, count + 2):  # the coefficient of η^n in μ μ' = η (1 + μ)
        inner = sum(mu[i] * mu[n + 1 - i] * (n + 1 - i) for i in range(2, n))
        mu.append((mu[n - 1] - inner) / (n + 1))
    inverse = [Fraction(1)]  # of μ/η
    for n in range(1, count + 1):
        inverse.append(-sum((mu[i + 1] * inverse[n - i] for i in range(1, n + 1)), Fraction(0)))
    current, rows = inverse[1:], []
    for k in range(_ORDERS):
        if k:
            slope = [n * c for n, c in enumerate(current)][1:]
            current = [s - slope[0] * i for s, i in zip(slope, inverse, strict=False)][1:]
        rest = 0.4 ** np.arange(len(current)) * 20.0**-k * np.abs(np.array(current, float))
        rows.append(tuple(map(float, current[: max(1, int((rest > 1e-18).sum()))])))
    return tuple(rows)


def _derived(coefficients: Sequence[float]) -> list[float]:
    return [n * c for n, c in enumerate(coefficients)][1:] or [0.0]


def _eta(a: E, x: E) -> tuple[E, E, E]:
    """μ, φ and η = sign(μ) sqrt(2 φ)."""
    mu = (x - a) / a
    excess = log_excess(mu, x / a)
    return mu, excess, (mu < 0.0).where(-(2.0 * excess).sqrt(), (2.0 * excess).sqrt())


def _expansion(a: E, eta: E) -> E:
    return _horner(1.0 / a, [eta.polynomial(row) for row in _uniform_coefficients()])


def _horner(x: E, values: Sequence[E]) -> E:
    total = values[-1]
    for value in reversed(values[:-1]):
        total = total.fma(x, value)
    return total


def _uniform(upper: bool, a: E, x: E) -> E:
    """erfc(± η sqrt(a/2)) / 2 ± exp(-a φ) / sqrt(2 pi a) times the sum of c_k(η) / a^k."""
    _, excess, eta = _eta(a, x)
    rest = (-a * excess).exp() / (2 * math.pi * a).sqrt() * _expansion(a, eta)
    root = eta * (0.5 * a).sqrt()
    return (root if upper else -root).erfc() * 0.5 + (rest if upper else -rest)


def _uniform_by_a(a: E, x: E) -> E:
    """The derivative of the upper function, at a fixed x: η falls by μ / (a η), -a φ grows by log λ."""
    mu, excess, eta = _eta(a, x)
    inverse = 1.0 / a
    middle = mu.equals(0.0)
    ratio = middle.where(1.0, mu / middle.where(1.0, eta))  # μ / η
    rows = _uniform_coefficients()
    along = _horner(inverse, [eta.polynomial(_derived(row)) for row in rows])
    sums = [eta.polynomial(row) for row in rows]
    down = _horner(inverse, [s * float(k) for k, s in enumerate(sums)])
    inner = (mu - excess - 0.5 * inverse) * _horner(inverse, sums) - (down + along * ratio) * inverse
    return (-a * excess).exp() / (2 * math.pi * a).sqrt() * (ratio - 0.5 * eta + inner)


def _regular(a: E, x: E) -> E:
    """True where no limit is asked for and the answer is a number."""
    return (a > 0.0) & (x > 0.0) & a.isfinite() & x.isfinite()


def _is_uniform(a: E, x: E) -> E:
    return (a >= _UNIFORM_FROM) & (abs(x - a) < _UNIFORM_WITHIN * a)


def _limits(a: E, x: E, regular: E, value: E, at_zero: float) -> E:
    """The values where x or a is 0 or infinite; NaN where both are, and of negative numbers."""
    low = ((x.equals(0.0) & (a > 0.0)) | (a.isinf() & x.isfinite())) & (x >= 0.0) & (a >= 0.0)
    high = ((a.equals(0.0) & (x > 0.0)) | (x.isinf() & a.isfinite())) & (x >= 0.0) & (a >= 0.0)
    edge = low.where(at_zero, high.where(a.const(1.0 - at_zero), math.nan))
    return regular.where(value, edge)


def _ratio(upper: bool, enough: float, a: E, x: E) -> E:
    regular = _regular(a, x)
    given_a, given_x = a, x
    a, x = regular.where(a, 1.0), regular.where(x, 1.0)
    lower = (x <= 1.1) | (x < a)

    def series() -> E:
        value = mass(a, x) * _lower_series(enough, a, x)
        return 1.0 - value if upper else value

    def fraction() -> E:
        value = a * mass(a, x) * _upper_fraction(enough, a, x)
        return value if upper else 1.0 - value

    def near_zero() -> E:
        few = x.minimum(1.1)
        below_one = few.minimum(0.5)
        small = (x <= 1.1) & (a < 1.0) & (x <= 0.5).where(-0.4 / below_one.log() >= a, 1.1 * x >= a)
        return small.either(lambda: _upper_of_small(a, few), series)

    def elsewhere() -> E:
        return lower.either(near_zero if upper else series, fraction)

    value = _is_uniform(a, x).either(lambda: _uniform(upper, a, x), elsewhere)
    return _limits(given_a, given_x, regular, value, 1.0 if upper else 0.0)


def _gammainc(attrs: object, enough: float, a: E, x: E) -> E:
    return _ratio(False, enough, a, x)


def _gammaincc(attrs: object, enough: float, a: E, x: E) -> E:
    return _ratio(True, enough, a, x)


# -- derivatives ----------------------------------------------------------------------------------------------------


def _density(attrs: object, enough: float, a: E, x: E) -> E:
    regular = _regular(a, x)
    value = regular.where(a * mass(regular.where(a, 1.0), regular.where(x, 1.0)) / x, 0.0)
    at_zero = (a > 1.0).where(0.0, a.equals(1.0).where(a.const(1.0), math.inf))
    value = (x.equals(0.0) & (a > 0.0)).where(at_zero, value)
    return ((a >= 0.0) & (x >= 0.0)).where(value, math.nan)


def _series_by_a(enough: float, a: E, x: E) -> E:
    """The sum of x^n / ((a + 1) … (a + n)) (log x - digamma(a + n + 1))."""

    def turn(carried: Sequence[E]) -> tuple[E, Sequence[E]]:
        term, weight, total, place = carried
        term, weight = term * (x / place), weight - 1.0 / place
        added = term * weight
        return abs(added) > enough * abs(total), (term, weight, total + added, place + 1.0)

    weight = x.log() - digamma_of(a + 1.0)
    return loop(_TURNS, (a.const(1.0), weight, weight, a + 1.0), turn)[2]


def _fraction_by_a(enough: float, a: E, x: E) -> E:
    """The derivative of the upper function over D: F (log x - digamma(a)) + F'."""
    first, minus_one = x - a + 1.0, a.const(-1.0)
    fraction, by_a = derived_fraction(
        _TURNS, enough, first, minus_one, lambda n: (n * (a - n), first + 2.0 * n, n, minus_one)
    )
    return ((x.log() - digamma_of(a)) - by_a / fraction) / fraction


def _by_a(attrs: object, enough: float, a: E, x: E) -> E:
    """The derivative of the lower function by a; at a = 0 from above."""
    valid = (a >= 0.0) & (x >= 0.0)
    regular = valid & (x > 0.0) & a.isfinite() & x.isfinite()
    a, x = regular.where(a.maximum(1e-300), 1.0), regular.where(x, 1.0)

    def elsewhere() -> E:
        return ((x <= 1.1) | (x < a)).either(
            lambda: mass(a, x) * _series_by_a(enough, a, x), lambda: -(a * mass(a, x)) * _fraction_by_a(enough, a, x)
        )

    value = _is_uniform(a, x).either(lambda: -_uniform_by_a(a, x), elsewhere)
    return regular.where(value, valid.where(a.const(0.0), math.nan))


def _refuse(o: Namespace, t: Tensor, y: Tensor, *operands: Tensor) -> Tensor:
    raise GraphError(
        "gammainc and gammaincc are derived by a once\n  expected at most one derivative by a"
        "\n  actual   a derivative of the derivative by a, by a again"
    )


# Finite differences vary x alone: the derivative by a has none by a again.
_CASES = tuple(
    Case(shapes, ranges=ranges, differentiable=(1,))
    for shapes, ranges in (
        *((shapes, (Range(0.3, 12.0), Range(0.2, 15.0))) for shapes in BINARY_SHAPES),
        (((2, 30), (2, 30)), (Range(25.0, 60.0), Range(20.0, 70.0))),
    )
)


_formula = special(_density)
gamma_density = binary(
    "gamma_density", "The derivative of gammainc by x: x^(a - 1) exp(-x) / Gamma(a).", _formula.scalar,
    _formula.arrays, FLOAT,
    (scaled(lambda o, y, a, x: y * (o.log(x) - o.digamma(a))), scaled(lambda o, y, a, x: y * ((a - 1.0) / x - 1.0))),
    binary_cases(Range(0.3, 12.0), Range(0.2, 15.0)), tolerance=20.0,
)  # fmt: skip

_formula = special(_by_a)
gammainc_by_a = binary(
    "gammainc_by_a", "The derivative of gammainc by a.", _formula.scalar, _formula.arrays, FLOAT,
    (_refuse, scaled(lambda o, y, a, x: o.gamma_density(a, x) * (o.log(x) - o.digamma(a)))),
    _CASES, tolerance=20.0,
)  # fmt: skip

# A number x drawn with shape a keeps gammainc(a, x), so that dx/da = -(∂gammainc/∂a) / (∂gammainc/∂x). Its value does
# not depend on a, so finite differences vary x alone.
gamma_draw = binary(
    "gamma_draw", "A number that was drawn from the gamma distribution, with its derivative by the shape.",
    lambda b, attrs, x, a: x, lambda x, a: np.broadcast_arrays(x, a)[0], FLOAT,
    (PASS, scaled(lambda o, y, x, a: o.negative(o.divide(o.gammainc_by_a(a, y), o.gamma_density(a, y))))),
    tuple(Case(shapes, ranges=(Range(0.2, 15.0), Range(0.3, 12.0)), differentiable=(0,)) for shapes in BINARY_SHAPES),
)  # fmt: skip

_formula = special(_gammainc)
_LOWER = elementwise(
    "gammainc", "The regularized lower incomplete gamma function.", _formula.scalar, _formula.reference, FLOAT,
    (scaled(lambda o, y, a, x: o.gammainc_by_a(a, x)), scaled(lambda o, y, a, x: o.gamma_density(a, x))),
    _CASES, tolerance=20.0,
)  # fmt: skip

_formula = special(_gammaincc)
_UPPER = elementwise(
    "gammaincc", "The regularized upper incomplete gamma function.", _formula.scalar, _formula.reference, FLOAT,
    (scaled(lambda o, y, a, x: o.negative(o.gammainc_by_a(a, x))),
     scaled(lambda o, y, a, x: o.negative(o.gamma_density(a, x)))),
    _CASES, tolerance=20.0,
)  # fmt: skip


@public
def gammainc(a: TensorLike, x: TensorLike) -> Tensor:
    """The regularized lower incomplete gamma function: the integral of t^(a-1) exp(-t) from 0 to ``x``, over Gamma(a).

    It is the distribution function of the gamma distribution of shape ``a``. Elementwise, with NumPy's broadcasting and
    promotion; NaN of negative numbers. Derived by both operands to any order, but by ``a`` once.

    In float64 errors grow with the distance of ``x`` from ``a``: to 1500 units in the last place where results are as
    small as 1e-300.

    Example:
        >>> sg.Session().run(sg.gammainc([0.5, 2.0], [1.0, 1.0])).round(4)
        array([0.8427, 0.2642], dtype=float32)
    """
    return declare(_LOWER, accepted("gammainc", FLOAT, a, x))


@public
def gammaincc(a: TensorLike, x: TensorLike) -> Tensor:
    """The regularized upper incomplete gamma function, 1 - gammainc(a, x), accurate where it is tiny.

    Elementwise, with NumPy's broadcasting and promotion; NaN of negative numbers. Derived by both operands to any
    order, but by ``a`` once.

    In float64 errors grow with the distance of ``x`` from ``a``: to 100 units in the last place where results are as
    small as 1e-10.

    Example:
        >>> sg.Session().run(sg.gammaincc([0.5, 2.0], [0.0, 5.0])).round(4)
        array([1.    , 0.0404], dtype=float32)
    """
    return declare(_UPPER, accepted("gammaincc", FLOAT, a, x))
