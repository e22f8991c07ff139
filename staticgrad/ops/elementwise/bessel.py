"""The modified Bessel functions of the first kind: of order 0 and 1 (``i0``, ``i1``), of any real order (``iv``), and
all of them times exp(-|x|) (``i0e``, ``i1e``, ``ive``).

Formulas of the NIST Digital Library of Mathematical Functions: the power series (10.25.2; positive terms), the
expansion for large x (10.40.1) and the uniform one for large orders (10.41.3, its polynomials by 10.41.9). Orders 0 and
1 have polynomials in 1/x beyond 8. Derivatives are 10.29.1, which needs no quotient: it holds at 0 as well.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from staticgrad.base.errors import GraphError
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import Case, Namespace, Range, public
from staticgrad.ops.declare import FLOAT, accepted, declare
from staticgrad.ops.elementwise.entry import BINARY_SHAPES, Rule, elementwise, scaled, unary
from staticgrad.ops.elementwise.expressions import Expression, loop, special
from staticgrad.ops.elementwise.incomplete_gamma import gamma_of_next

E = Expression[Any]

# -- orders 0 and 1 -------------------------------------------------------------------------------------------------

# sqrt(x) exp(-x) I(x) of orders 0 and 1, x from 8 on, in powers of 16/x - 1: interpolation at 24 Chebyshev nodes in 60
# digits, 2^-53.8 of the result.
_FAR = (
    (
        0.4021765094450081, 0.0033605519836678913, 0.00013621607438951463, 1.114303378845176e-05,
        1.4838476780922646e-06, 2.9735992084667734e-07, 8.872014585661555e-08, 3.932512321137824e-08,
        2.156780676115673e-08, 7.559364098665437e-09, -6.856484545962442e-09, -1.3427511481900905e-08,
        -5.0175940345046716e-09, 7.600254486433509e-09, 6.522264862032271e-09, -3.5862834111582305e-09,
        -4.5305710768621196e-09, 1.6084886155781772e-09, 2.163681278413876e-09, -6.327909921997027e-10,
        -6.494591114401118e-10, 1.7698085539456536e-10, 9.114760157514253e-11, -2.4421972688131832e-11,
    ),
    (
        0.38939845902587233, -0.009749577193235765, -0.00021923576383137776, -1.5038547198221758e-05,
        -1.8349102493990178e-06, -3.4838563464253135e-07, -1.0001075046243961e-07, -4.3128498031006734e-08,
        -2.3394122958362557e-08, -8.432168972932417e-09, 6.84757829926934e-09, 1.4051746928735543e-08,
        5.5720183980930355e-09, -7.687251308765992e-09, -6.9444186339873875e-09, 3.501765193290176e-09,
        4.763780078020254e-09, -1.5218214060680734e-09, -2.2624401109204446e-09, 5.870664618471487e-10,
        6.7727478454462e-10, -1.6283264322621244e-10, -9.491890392992048e-11, 2.2421768596847442e-11,
    ),
)  # fmt: skip
_NEAR_TERMS = 26  # of the power series up to 8: the next is below 1e-18 of the sum


def _whole_order(order: int, is_scaled: bool) -> Any:
    series = [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(_NEAR_TERMS)]

    def formula(attrs: object, enough: float, x: E) -> E:
        size = abs(x)

        def near() -> E:
            few = size.minimum(8.0)
            value = (few * few * 0.25).polynomial(series) * (few * 0.5 if order else 1.0)
            return value * (-few).exp() if is_scaled else value

        def far() -> E:
            large = size.maximum(8.0)
            inverse = 1.0 / large
            value = (16.0 * inverse - 1.0).polynomial(_FAR[order]) * inverse.sqrt()
            growth = (large * 0.5).exp()
            grown = value if is_scaled else value * growth * growth
            return large.isinf().where(0.0 if is_scaled else math.inf, grown)

        value = (size <= 8.0).either(near, far)
        return (x < 0.0).where(-value, x.equals(0.0).where(x, value)) if order else value

    formula.__name__ = f"i{order}{'e' if is_scaled else ''}"
    return special(formula)


def _i1_slope(o: Namespace, x: Tensor) -> Tensor:
    return (o.i0(x) + o.iv(2.0, x)) * 0.5


def _i1e_slope(o: Namespace, y: Tensor, x: Tensor) -> Tensor:
    return (o.i0e(x) + o.ive(2.0, x)) * 0.5 - o.sign(x) * y


_formula = _whole_order(0, False)
i0 = unary(
    "i0", "The modified Bessel function of the first kind of order 0.", _formula.scalar, _formula.arrays, FLOAT,
    scaled(lambda o, y, x: o.i1(x)), Range(-12.0, 12.0), tolerance=5.0,
    example=("sg.i0([0.0, 1.0])", "array([1. , 1.2660...], dtype=float32)"),
)  # fmt: skip

_formula = _whole_order(1, False)
i1 = unary(
    "i1", "The modified Bessel function of the first kind of order 1.", _formula.scalar, _formula.arrays, FLOAT,
    scaled(lambda o, y, x: _i1_slope(o, x)), Range(-12.0, 12.0), tolerance=5.0,
    example=("sg.i1([0.0, 1.0])", "array([0. , 0.5651...], dtype=float32)"),
)  # fmt: skip

_formula = _whole_order(0, True)
i0e = unary(
    "i0e", "exp(-abs(x)) i0(x), which does not overflow.", _formula.scalar, _formula.arrays, FLOAT,
    scaled(lambda o, y, x: o.i1e(x) - o.sign(x) * y), Range(-12.0, 12.0, kinks=(0.0,)), tolerance=5.0,
    example=("sg.i0e([0.0, 1000.0])", "array([1. , 0.0126...], dtype=float32)"),
)  # fmt: skip

_formula = _whole_order(1, True)
i1e = unary(
    "i1e", "exp(-abs(x)) i1(x), which does not overflow.", _formula.scalar, _formula.arrays, FLOAT,
    scaled(lambda o, y, x: _i1e_slope(o, y, x)), Range(-12.0, 12.0, kinks=(0.0,)), tolerance=5.0,
    example=("sg.i1e([0.0, 1000.0])", "array([0. , 0.0126...], dtype=float32)"),
)  # fmt: skip

# -- real orders ----------------------------------------------------------------------------------------------------

_UNIFORM_FROM = 20.0
_ORDERS = 13  # of the uniform expansion: the next is below 1e-17 at order 20
_FAR_FROM = 30.0
_SERIES_TURNS = 500  # x up to 200 takes about 220
_FAR_TURNS = 100


@functools.cache
def _uniform_polynomials() -> tuple[tuple[float, ...], ...]:
    """U_k(p) / p^k in powers of p², in exact fractions: the next U is (1 - p²) p² U_k' / 2 and the integral of
    (1 - 5t²) U_k / 8."""
    current = {0: Fraction(1)}  # by the power of p
    rows = []
    for k in range(_ORDERS):
        rows.append(tuple(float(current.get(k + 2 * i, 0)) for i in range(k + 1)))
        following: dict[int, Fraction] = {}
        for n, c in current.items():
            up, more = c * Fraction(n, 2) + c / (8 * (n + 1)), -c * Fraction(n, 2) - 5 * c / (8 * (n + 3))
            following[n + 1] = following.get(n + 1, Fraction(0)) + up
            following[n + 3] = following.get(n + 3, Fraction(0)) + more
        current = following
    return tuple(rows)


def _uniform(is_scaled: bool, v: E, x: E) -> E:
    """exp(v η) / sqrt(2 pi v s) times the sum of U_k(1/s) / v^k, z = x/v, s = sqrt(1 + z²); v η - x without the large
    terms that cancel."""
    z = x / v
    square = z * z + 1.0
    s = (z > 1e150).where(z, square.sqrt())
    rest = 1.0 / (s + z)
    angle = (z < 1.0).where(((1.0 + s) / z).log(), ((1.0 + rest) / z).log1p())
    exponent = v * (rest - angle)
    p = 1.0 / s
    r, rows = p / v, _uniform_polynomials()
    total = (p * p).polynomial(rows[-1])
    for row in reversed(rows[:-1]):
        total = total.fma(r, (p * p).polynomial(row))
    return (exponent if is_scaled else exponent + x).exp() * total / (2 * math.pi * v * s).sqrt()


def _series(is_scaled: bool, enough: float, v: E, x: E) -> E:
    """(x/2)^v / Gamma(1 + v) times the sum of (x²/4)^k / (k! (v + 1) … (v + k)); also of orders down to -20."""
    half = x * 0.5
    quarter = half * half

    def turn(carried: Sequence[E]) -> tuple[E, Sequence[E]]:
        k, term, total = carried
        term = term * (quarter / (k * (k + v)))
        going = (abs(term) > enough * abs(total)) | (k < 1.0 - v)
        return going, (k + 1.0, term, total + term)

    total = loop(_SERIES_TURNS, (v.const(1.0), v.const(1.0), v.const(1.0)), turn)[2]
    size = abs(v)
    gamma = gamma_of_next(size, int(_UNIFORM_FROM))
    nearest = size.round()
    turned = (math.pi * (size - nearest)).sin() * (1.0 / math.pi)
    pairs = nearest * 0.5  # sin(pi (n + r)) has the sign of sin(pi r) for even n, the other one for odd n
    turned = pairs.equals(pairs.round()).where(turned, -turned)
    start = (v < 0.0).where(gamma / size.maximum(1e-300) * turned, 1.0 / gamma)
    value = half.power(v) * start * total
    return value * (-x).exp() if is_scaled else value


def _large(is_scaled: bool, enough: float, v: E, x: E) -> E:
    """exp(x) / sqrt(2 pi x) times the sum of (-1)^k (4v² - 1) … (4v² - (2k-1)²) / (k! (8x)^k)."""
    inverse, square = 1.0 / x, 4.0 * v * v

    def turn(carried: Sequence[E]) -> tuple[E, Sequence[E]]:
        k, term, total = carried
        odd = 2.0 * k - 1.0
        term = term * ((odd * odd - square) * inverse / (8.0 * k))
        return abs(term) > enough * abs(total), (k + 1.0, term, total + term)

    total = loop(_FAR_TURNS, (v.const(1.0), v.const(1.0), v.const(1.0)), turn)[2]
    value = total * inverse.sqrt() * (1 / math.sqrt(2 * math.pi))
    growth = (x * 0.5).exp()
    return value if is_scaled else value * growth * growth


def _real_order(is_scaled: bool) -> Any:
    def formula(attrs: object, enough: float, v: E, x: E) -> E:
        whole = v.equals(v.round())
        size = abs(x)
        order = whole.where(abs(v), v)
        known = order.isfinite() & (order > -_UNIFORM_FROM) & (whole | (x >= 0.0))
        regular = known & (size > 0.0) & size.isfinite()
        a, b = regular.where(order, 1.0), regular.where(size, 1.0)
        is_far = b > (a * a * 0.5).maximum(_FAR_FROM)

        def low() -> E:
            few, small = a.minimum(_UNIFORM_FROM), b.minimum(_UNIFORM_FROM * _UNIFORM_FROM * 0.5)
            return is_far.either(
                lambda: _large(is_scaled, enough, few, b.maximum(_FAR_FROM)),
                lambda: _series(is_scaled, enough, few, small),
            )

        high = a.maximum(_UNIFORM_FROM)
        value = (a >= _UNIFORM_FROM).either(lambda: _uniform(is_scaled, high, b), low)
        half = v * 0.5
        value = ((x < 0.0) & ~half.equals(half.round())).where(-value, value)
        at_zero = order.equals(0.0).where(1.0, (order > 0.0).where(x.const(0.0), math.inf))
        odd = (x < 0.0) & ~half.equals(half.round())
        at_end = x.const(0.0) if is_scaled else odd.where(x.const(-math.inf), math.inf)
        edge = x.equals(0.0).where(at_zero, size.isinf().where(at_end, math.nan))
        edge = (order.isinf() & (order > 0.0) & (size < math.inf)).where(0.0, known.where(edge, math.nan))
        return regular.where(value, edge)

    formula.__name__ = "ive" if is_scaled else "iv"
    return special(formula)


def _no_slope(name: str) -> Rule:
    def rule(o: Namespace, t: Tensor, y: Tensor, *operands: Tensor) -> Tensor:
        raise GraphError(
            f"{name} has no derivative by its order\n  expected a derivative by x alone\n  actual   a derivative by v"
        )

    return rule


# The order is not varied: there is no derivative by it.
_CASES = tuple(
    Case(shapes, ranges=(orders, Range(0.3, high)), differentiable=(1,))
    for orders, high in ((Range(0.0, 6.0), 12.0), (Range(18.0, 30.0), 80.0))
    for shapes in (BINARY_SHAPES if high == 12.0 else BINARY_SHAPES[-1:])
)
_formula = _real_order(False)
_IV = elementwise(
    "iv", "The modified Bessel function of the first kind of a real order.", _formula.scalar, _formula.reference, FLOAT,
    (_no_slope("iv"), scaled(lambda o, y, v, x: (o.iv(v - 1.0, x) + o.iv(v + 1.0, x)) * 0.5)),
    _CASES, tolerance=20.0,
)  # fmt: skip
_formula = _real_order(True)
_IVE = elementwise(
    "ive", "The modified Bessel function of the first kind of a real order, times exp(-abs(x)).", _formula.scalar,
    _formula.reference, FLOAT,
    (_no_slope("ive"),
     scaled(lambda o, y, v, x: (o.ive(v - 1.0, x) + o.ive(v + 1.0, x)) * 0.5 - o.sign(x) * y)),
    _CASES, tolerance=20.0,
)  # fmt: skip


@public
def iv(v: TensorLike, x: TensorLike) -> Tensor:
    """The modified Bessel function of the first kind of order ``v``.

    Elementwise, with NumPy's broadcasting and promotion. Orders are whole, or numbers above -20; NaN of other ones, and
    of orders that are not whole at negative ``x``. Derived by ``x``; a derivative by ``v`` is refused.

    In float64 errors grow with order and argument, as rounding these changes the result: by 4·(v + abs(x)) units in
    the last place.

    Example:
        >>> sg.Session().run(sg.iv([0.0, 0.5, 3.0], 1.0)).round(4)
        array([1.2661, 0.9377, 0.0222], dtype=float32)
    """
    return declare(_IV, accepted("iv", FLOAT, v, x))


@public
def ive(v: TensorLike, x: TensorLike) -> Tensor:
    """The modified Bessel function of the first kind of order ``v`` times exp(-abs(x)), which does not overflow.

    Elementwise, with NumPy's broadcasting and promotion. Orders as those of ``iv``. Derived by ``x``; a derivative by
    ``v`` is refused.

    Example:
        >>> sg.Session().run(sg.ive([0.0, 30.0], 1000.0)).round(4)
        array([0.0126, 0.008 ], dtype=float32)
    """
    return declare(_IVE, accepted("ive", FLOAT, v, x))
