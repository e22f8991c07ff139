"""The regularized incomplete beta function ``betainc`` with derivatives by all operands, and ``betaln``.

The continued fraction of Didonato & Morris (ACM TOMS 18, 1992, algorithm 708: BFRAC) over G = x^a y^b / B(a, b),
y = 1 - x; beyond the mean of the beta distribution the fraction of the other tail, which is 1 less the wanted one. It
takes about sqrt(max(a, b)) turns at most. G is taken around its largest value where a and b are large, and has gamma
functions of large numbers by their ratio (Stirling's series) elsewhere.

A lower tail of small ``b`` that is nearly empty though x is beyond the mean is 1 - y^b C less a series, its first term
taken off, so that no digits cancel.

The derivative by ``a`` or ``b`` is that of the fraction's recurrence (Boik & Robinson-Cox, J. Stat. Software 3, 1998);
where it is tiny compared with the function, its error is some 1e-16 of the function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import NO_ATTRIBUTES, Case, Namespace, Range, public
from staticgrad.ops.declare import FLOAT, accepted, declare
from staticgrad.ops.elementwise.entry import Rule, binary, binary_cases, elementwise, scaled
from staticgrad.ops.elementwise.expressions import Expression, continued_fraction, derived_fraction, loop, special
from staticgrad.ops.elementwise.gamma import log_gamma
from staticgrad.ops.elementwise.incomplete_gamma import (
    STIRLING_FROM,
    digamma_of,
    gamma_of_next,
    log_excess,
    log_gamma_of_next,
    log_gamma_ratio,
)

E = Expression[Any]
_TURNS = 20_000  # enough for a = b = 1e8


# -- x^a y^b / B(a, b) ----------------------------------------------------------------------------------------------


def _stirling(a: E) -> E:
    return log_gamma_ratio(a.maximum(STIRLING_FROM))


def _growth(small: E, large: E) -> E:
    """log(Gamma(large + small) / Gamma(large)) - small log(large) of a large ``large``."""
    total = large + small
    return (total - 0.5) * (small / large).log1p() - small + (_stirling(total) - _stirling(large))


def _is_large(a: E, b: E) -> E:
    return (a >= STIRLING_FROM) & (b >= STIRLING_FROM)


def _is_small(a: E, b: E) -> E:
    return (a < STIRLING_FROM) & (b < STIRLING_FROM)


def _inverse_beta_of_small(a: E, b: E) -> E:
    """1 / B(a, b) of numbers below 8."""
    a, b = a.minimum(STIRLING_FROM), b.minimum(STIRLING_FROM)
    return a * (b / (a + b)) * gamma_of_next(a + b, 16) / (gamma_of_next(a) * gamma_of_next(b))


def _powers(a: E, b: E, x: E, y: E, distance: E) -> E:
    """G; ``distance`` is x b - y a."""
    log_x, log_y = (x <= 0.5).where(x.log(), (-y).log1p()), (y <= 0.5).where(y.log(), (-x).log1p())

    def around_peak() -> E:
        total = a + b
        left = log_excess(distance / a, x * (total / a))
        right = log_excess(-distance / b, y * (total / b))
        exponent = (_stirling(total) - _stirling(a) - _stirling(b)) - (a * left + b * right)
        return exponent.exp() * (a / (2 * math.pi) * (b / total)).sqrt()

    def of_small() -> E:
        low, high = a.minimum(STIRLING_FROM), b.minimum(STIRLING_FROM)
        return _inverse_beta_of_small(a, b) * x.power(low) * y.power(high)

    def mixed() -> E:
        first = a < b
        small, large = first.where(a, b), first.where(b, a).maximum(STIRLING_FROM)
        low = small.minimum(STIRLING_FROM)
        base, log_other = first.where(x, y), first.where(log_y, log_x)
        factor = low / gamma_of_next(low) * (base * large).power(low)
        return factor * (large * log_other + _growth(low, large)).exp()

    return _is_large(a, b).either(around_peak, lambda: _is_small(a, b).either(of_small, mixed))


# -- the fraction ---------------------------------------------------------------------------------------------------


def _terms(a: E, b: E, x: E, y: E) -> Callable[[E], Sequence[E]]:
    def terms(m: E) -> Sequence[E]:
        d = a + (2.0 * m - 1.0)
        u = x / d
        p = (a + (m - 1.0)) * ((a + b) + (m - 1.0)) * u * (m * (b - m) * u)
        rest = a * y - b * x + (1.0 + m * (2.0 - x))
        return p, m + m * (b - m) * u + (a + m) / (d + 2.0) * rest

    return terms


def _derived_terms(a: E, b: E, x: E, y: E, of_a: E, of_b: E) -> Callable[[E], Sequence[E]]:
    """The terms, and their derivatives along (of_a, of_b)."""

    def terms(m: E) -> Sequence[E]:
        d = a + (2.0 * m - 1.0)
        u, near, far = x / d, a + (m - 1.0), (a + b) + (m - 1.0)
        part = m * (b - m)
        p = near * far * u * (part * u)
        p_by_a = part * u * u * (near + far - 2.0 * near * (far / d))
        p_by_b = m * u * (near * u) * (b - m + far)
        rest, inverse = a * y - b * x + (1.0 + m * (2.0 - x)), 1.0 / (d + 2.0)
        q = m + part * u + (a + m) * inverse * rest
        q_by_a = (rest + (a + m) * (y - rest * inverse)) * inverse - part * (u / d)
        q_by_b = m * u - (a + m) * inverse * x
        return p, q, of_a * p_by_a + of_b * p_by_b, of_a * q_by_a + of_b * q_by_b

    return terms


def _turned(a: E, b: E, x: E) -> tuple[E, Sequence[E]]:
    """True where the other tail is computed, and (a, b, x, y, x b - y a) of the tail that is."""
    y = 1.0 - x
    distance = x * b - y * a
    beyond = distance > 0.0
    pairs = ((a, b), (b, a), (x, y), (y, x), (distance, -distance))
    return beyond, [beyond.where(other, one) for one, other in pairs]


def _empty_tail(enough: float, a: E, b: E, x: E) -> E:
    """I_x(a, b) of x beyond the mean and b below 1: with L = b log y + log(Gamma(a + b) / (Gamma(a) Gamma(1 + b))),
    -expm1(L) - exp(L) times the sum of b (1 - a)_n y^n / (n! (b + n))."""
    y, b = 1.0 - x, b.minimum(1.0)
    shifted, rise = (a >= STIRLING_FROM).where(a, a + STIRLING_FROM), a.const(0.0)
    for k in range(int(STIRLING_FROM)):
        rise = rise + (b / (a + float(k))).log1p()
    growth = b * shifted.log() + _growth(b, shifted) - (a >= STIRLING_FROM).where(0.0, rise)
    exponent = b * (-x).log1p() + growth - log_gamma_of_next(b)

    def turn(carried: Sequence[E]) -> tuple[E, Sequence[E]]:
        n, term, total = carried
        term = term * (y * (n - a) / n)
        added = term * b / (b + n)
        return abs(added) > enough * abs(total), (n + 1.0, term, total + added)

    total = loop(_TURNS, (a.const(1.0), a.const(1.0), a.const(0.0)), turn)[2]
    return -(exponent.expm1() + exponent.exp() * total)


def _is_regular(a: E, b: E, x: E) -> E:
    return (a > 0.0) & (b > 0.0) & (x > 0.0) & (x < 1.0) & a.isfinite() & b.isfinite()


def _is_valid(a: E, b: E, x: E) -> E:
    """True in the domain: the limits of a and b are there one at a time."""
    both = (a.equals(0.0) & b.equals(0.0)) | (a.isinf() & b.isinf())
    return (a >= 0.0) & (b >= 0.0) & (x >= 0.0) & (x <= 1.0) & ~both


def _betainc(attrs: object, enough: float, a: E, b: E, x: E) -> E:
    regular, valid = _is_regular(a, b, x), _is_valid(a, b, x)
    full = x.equals(1.0) | ((a.equals(0.0) | b.isinf()) & ~x.equals(0.0))
    edge = valid.where(full.where(x.const(1.0), 0.0), math.nan)
    a, b, x = (regular.where(v, safe) for v, safe in ((a, 1.0), (b, 1.0), (x, 0.5)))
    beyond, operands = _turned(a, b, x)

    def fraction() -> E:
        c, d, u, v, distance = operands
        first = c * (c * v - d * u + 1.0) / (c + 1.0)
        tail = _powers(c, d, u, v, distance) / continued_fraction(_TURNS, enough, first, _terms(c, d, u, v))
        return beyond.where(1.0 - tail, tail)

    empty = beyond & (b < 0.5) & (x > 0.5) & (b * (a.maximum(1.0) * (1.0 - x)).log() > -0.7) & (a * (1.0 - x) < 4.0)
    return regular.where(empty.either(lambda: _empty_tail(enough, a, b, x), fraction), edge)


# -- derivatives ----------------------------------------------------------------------------------------------------


@frozen
class BetaOperand:
    """The operand by which is derived: ``a``, 0, or ``b``, 1."""

    place: int


def _density(attrs: object, enough: float, a: E, b: E, x: E) -> E:
    regular, valid = _is_regular(a, b, x), _is_valid(a, b, x)
    at_zero = (a > 1.0).where(0.0, a.equals(1.0).where(b, math.inf))
    at_one = (b > 1.0).where(0.0, b.equals(1.0).where(a, math.inf))
    edge = x.equals(0.0).where(at_zero, x.equals(1.0).where(at_one, 0.0))
    a, b, x = (regular.where(v, safe) for v, safe in ((a, 1.0), (b, 1.0), (x, 0.5)))
    y = 1.0 - x
    return regular.where(_powers(a, b, x, y, x * b - y * a) / x / y, valid.where(edge, math.nan))


def _by_shape(attrs: BetaOperand, enough: float, a: E, b: E, x: E) -> E:
    regular, valid = _is_regular(a, b, x), _is_valid(a, b, x)
    # The function is constant in x at 0 and 1, and at the ends of a and b, but not by the operand that is at 0.
    steep = (a, b)[attrs.place].equals(0.0) & (x > 0.0) & (x < 1.0)
    limit = (valid & ~steep).where(a.const(0.0), math.nan)
    a, b, x = (regular.where(v, safe) for v, safe in ((a, 1.0), (b, 1.0), (x, 0.5)))
    beyond, (c, d, u, v, distance) = _turned(a, b, x)
    of_c = beyond.where(a.const(float(attrs.place == 1)), float(attrs.place == 0))
    of_d = 1.0 - of_c
    numerator = c * v - d * u + 1.0
    above = c / (c + 1.0)
    first_by = of_c * (above * v + numerator * (1.0 - above) / (c + 1.0)) - of_d * above * u
    fraction, by = derived_fraction(_TURNS, enough, above * numerator, first_by, _derived_terms(c, d, u, v, of_c, of_d))
    log_u, log_v = (u <= 0.5).where(u.log(), (-v).log1p()), (v <= 0.5).where(v.log(), (-u).log1p())
    chosen = (of_c > 0.0).where(c, d)
    logarithm = (of_c > 0.0).where(log_u, log_v) - (digamma_of(chosen) - digamma_of(c + d))
    slope = _powers(c, d, u, v, distance) * ((logarithm - by / fraction) / fraction)
    return regular.where(beyond.where(-slope, slope), limit)


def _refuse(o: Namespace, t: Tensor, y: Tensor, *operands: Tensor) -> Tensor:
    raise GraphError(
        "betainc is derived by a and b once\n  expected at most one derivative by a or b"
        "\n  actual   a derivative of the derivative by a or b, by a or b again"
    )


def _log_slope(o: Namespace, a: Tensor, b: Tensor, x: Tensor, place: int) -> Tensor:
    """The derivative of log(x^a y^b / B(a, b)) by a or b."""
    logarithm = o.log(x) if place == 0 else o.log1p(o.negative(x))
    return logarithm - o.digamma((a, b)[place]) + o.digamma(a + b)


_RANGES = (Range(0.4, 9.0), Range(0.4, 9.0), Range(0.05, 0.95))
_LARGE = (Range(9.0, 40.0), Range(9.0, 40.0), Range(0.2, 0.8))
_SHAPES = (
    ((3, 4), (3, 4), (3, 4)), ((3, 1), (4,), ()), ((), (), ()), ((2, 3, 17), (17,), (3, 1)), ((0, 3), (3,), (1,)),
    ((33,), (33,), (33,)),
)  # fmt: skip


def _cases(attrs: object, differentiable: tuple[int, ...] | None) -> tuple[Case, ...]:
    shapes = (*((s, _RANGES) for s in _SHAPES), (((2, 30),) * 3, _LARGE))
    return tuple(Case(s, attrs, ranges, differentiable=differentiable) for s, ranges in shapes)


_formula = special(_density)
_DENSITY = elementwise(
    "beta_density", "The derivative of betainc by x.", _formula.scalar, _formula.reference, FLOAT,
    (scaled(lambda o, y, a, b, x: y * _log_slope(o, a, b, x, 0)),
     scaled(lambda o, y, a, b, x: y * _log_slope(o, a, b, x, 1)),
     scaled(lambda o, y, a, b, x: y * ((a - 1.0) / x - (b - 1.0) / (1.0 - x)))),
    _cases(NO_ATTRIBUTES, None), tolerance=50.0,
)  # fmt: skip


@public
def beta_density(a: TensorLike, b: TensorLike, x: TensorLike) -> Tensor:
    """The density of the beta distribution: x^(a-1) (1-x)^(b-1) / B(a, b)."""
    return declare(_DENSITY, accepted("beta_density", FLOAT, a, b, x))


def _rules(attrs: BetaOperand) -> Sequence[Rule]:
    def by_x(o: Namespace, y: Tensor, a: Tensor, b: Tensor, x: Tensor) -> Tensor:
        return o.beta_density(a, b, x) * _log_slope(o, a, b, x, attrs.place)

    return (_refuse, _refuse, scaled(by_x))


_formula = special(_by_shape)
_BY_SHAPE = elementwise(
    "betainc_by_shape", "The derivative of betainc by a or b.", _formula.scalar, _formula.reference, FLOAT, _rules,
    (*_cases(BetaOperand(0), (2,)), *_cases(BetaOperand(1), (2,))), tolerance=100.0,
)  # fmt: skip


@public
def betainc_by_shape(place: int, a: TensorLike, b: TensorLike, x: TensorLike) -> Tensor:
    """The derivative of betainc by its first or second operand."""
    return declare(_BY_SHAPE, accepted("betainc_by_shape", FLOAT, a, b, x), BetaOperand(place))


_formula = special(_betainc)
_BETAINC = elementwise(
    "betainc", "The regularized incomplete beta function.", _formula.scalar, _formula.reference, FLOAT,
    (scaled(lambda o, y, a, b, x: o.betainc_by_shape(0, a, b, x)),
     scaled(lambda o, y, a, b, x: o.betainc_by_shape(1, a, b, x)),
     scaled(lambda o, y, a, b, x: o.beta_density(a, b, x))),
    _cases(NO_ATTRIBUTES, (2,)), tolerance=50.0,
)  # fmt: skip


@public
def betainc(a: TensorLike, b: TensorLike, x: TensorLike) -> Tensor:
    """The regularized incomplete beta function: the integral of t^(a-1) (1-t)^(b-1) from 0 to ``x``, over B(a, b).

    It is the distribution function of the beta distribution. Elementwise, with NumPy's broadcasting and promotion; NaN
    of negative ``a`` or ``b`` and of ``x`` outside of [0, 1]. Derived by all operands to any order, but by ``a`` and
    ``b`` once.

    In float64 errors grow with the distance of ``x`` from the mean, as rounding the operands changes the result.

    Example:
        >>> sg.Session().run(sg.betainc(2.0, [1.0, 3.0], 0.5)).round(4)
        array([0.25  , 0.6875], dtype=float32)
    """
    return declare(_BETAINC, accepted("betainc", FLOAT, a, b, x))


# -- the logarithm of the beta function -----------------------------------------------------------------------------


def _log_beta(attrs: object, enough: float, a: E, b: E) -> E:
    def of_positive() -> E:
        small, large = a.minimum(b), a.maximum(b).maximum(STIRLING_FROM)

        def of_large() -> E:
            ratio = small / large
            total = large + small
            share = (small / total).log()
            rest = _stirling(small) + _stirling(large) - _stirling(total)
            return rest + ((small - 0.5) * share - (large * ratio.log1p() + 0.5 * (large / (2 * math.pi)).log()))

        def mixed() -> E:
            low = small.minimum(STIRLING_FROM)
            return (gamma_of_next(low) / low).log() - (low * large.log() + _growth(low, large))

        inner = (a.maximum(b) >= STIRLING_FROM).either(mixed, lambda: 0.0 - _inverse_beta_of_small(a, b).log())
        return _is_large(a, b).either(of_large, lambda: inner)

    def elsewhere() -> E:
        first, second, both = (Expression(a.b, log_gamma(a.b, v.value)) for v in (a, b, a + b))
        boundless = (a.isinf() & (b > 0.0)) | (b.isinf() & (a > 0.0))
        none = ((a.equals(0.0) & ~b.isnan()) | (b.equals(0.0) & ~a.isnan())).where(
            a.const(math.inf), first + second - both
        )
        return (boundless & ~b.equals(a)).where(-math.inf, none)

    positive = (a > 0.0) & (b > 0.0) & a.isfinite() & b.isfinite()
    return positive.either(of_positive, elsewhere)


_formula = special(_log_beta)
betaln = binary(
    "betaln",
    "The logarithm of the magnitude of the beta function: lgamma(x1) + lgamma(x2) - lgamma(x1 + x2). Near its zeros "
    "errors are up to 10 units in the last place of 1.",
    _formula.scalar, _formula.arrays, FLOAT,
    (scaled(lambda o, y, a, b: o.digamma(a) - o.digamma(a + b)),
     scaled(lambda o, y, a, b: o.digamma(b) - o.digamma(a + b))),
    binary_cases(Range(0.3, 12.0), Range(0.3, 12.0)), tolerance=20.0,
    example=("sg.betaln([1.0, 2.0, 1e6], [1.0, 3.0, 1.0])", "array([  0. ,  -2.4849..., -13.8155...], dtype=float32)"),
)  # fmt: skip
