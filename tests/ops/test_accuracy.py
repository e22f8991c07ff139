"""Every function of the op table that rounds, and derivatives, against mpmath over their whole domains.

Arguments are of all exponents and both signs, denormal ones among them, ordinary ones, and those in ever smaller
distances from the points where a function is zero, ends, or where its implementation takes another way.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import pytest
from support.scalar_loops import F32, F64, FLOATS, errors, inverse_erf
from support.special_functions import (
    log_beta,
    lower_gamma,
    quantile,
    scaled_bessel,
    upper_gamma,
)

import staticgrad as sg
from staticgrad.graph.optable import FUNCTIONS, OPS

Array = np.ndarray[Any, Any]
mp = mpmath.mp
M = mpmath.mpf
BOUND = 4.0  # units in the last place, of all functions that are not said to be worse


# -- references: what mpmath lacks, or is slow at ---------------------------------------------------------------------


def within(low: float, high: float, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function of a limited argument: beyond, it is what it is at the limit as far as any float can tell."""
    return lambda x: function(min(max(x, M(low)), M(high)))


def tiny(x: Any) -> bool:
    return bool(abs(x) < M(10) ** -25)


def from_slope(function: Callable[[Any], Any], slope: Any = 1) -> Callable[[Any], Any]:
    """A function of which the linear term has all digits near 0."""
    return lambda x: x * slope if tiny(x) else function(x)


def log_gamma(x: Any) -> Any:
    if 0 < abs(x) < M(10) ** -30:
        return -mpmath.log(abs(x)) - mpmath.euler * x
    if x > M(10) ** 30:
        with mpmath.workdps(60):
            return (x - M(1) / 2) * mpmath.log(x) - x + mpmath.log(2 * mp.pi) / 2
    if x <= 0 and x == mpmath.floor(x):
        return mpmath.inf
    with mpmath.workdps(80):
        if x < 0:
            return mpmath.log(mp.pi / abs(mpmath.sin(mp.pi * (x - mpmath.nint(x))))) - mpmath.loggamma(1 - x)
        return mpmath.loggamma(x)


def digamma(x: Any) -> Any:
    if 0 < abs(x) < M(10) ** -30:
        return -1 / x - mpmath.euler
    if x > M(10) ** 30:
        return mpmath.log(x) - 1 / (2 * x)
    with mpmath.workdps(80):
        if x < 0:
            return mpmath.digamma(1 - x) - mp.pi / mpmath.tan(mp.pi * (x - mpmath.nint(x)))
        return mpmath.digamma(x)


def polygamma(n: int, x: Any) -> Any:
    if 0 < abs(x) < M(10) ** -30:
        return (-1) ** (n + 1) * mpmath.factorial(n) / x ** (n + 1)
    if x > M(10) ** 20:
        return (-1) ** (n + 1) * (mpmath.factorial(n - 1) / x**n + mpmath.factorial(n) / (2 * x ** (n + 1)))
    with mpmath.workdps(60):
        if x < 0:
            y = x - mpmath.nint(x)
            c = 1 / mpmath.tan(mp.pi * y)
            powers: dict[int, Any] = {1: 1}  # the derivatives of the cotangent as polynomials of it
            for _ in range(n):
                following: dict[int, Any] = {}
                for k, value in powers.items():
                    following[k + 1] = following.get(k + 1, 0) - k * value
                    following[k - 1] = following.get(k - 1, 0) - k * value
                powers = {k: value for k, value in following.items() if value}
            bent = mp.pi ** (n + 1) * sum(value * c**k for k, value in powers.items())
            return (-1) ** n * mpmath.polygamma(n, 1 - x) - bent
        return mpmath.polygamma(n, x)


def normal(x: Any) -> Any:
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def normal_density(x: Any) -> Any:
    return mpmath.exp(-x * x / 2) / mpmath.sqrt(2 * mp.pi)


def logistic(x: Any) -> Any:
    return 1 / (1 + mpmath.exp(-x))


def soft_plus(x: Any) -> Any:
    return mpmath.log1p(mpmath.exp(x)) if x < 0 else x + mpmath.log1p(mpmath.exp(-x))


CUBE, SCALE = M(0.044715), math.sqrt(2 / math.pi)


def curve_of(x: Any) -> Any:
    """(1 + tanh(…)) / 2 of GELU's approximation: the logistic function of twice the argument."""
    return logistic(2 * mpmath.sqrt(2 / mp.pi) * (x + M("0.044715") * x**3))


def gelu_of_tanh_slope(x: Any) -> Any:
    gate = curve_of(x)
    other = curve_of(-x)
    return gate + x * gate * other * 2 * mpmath.sqrt(2 / mp.pi) * (1 + 3 * M("0.044715") * x * x)


def log_normal(x: Any) -> Any:
    if x < -30:  # the asymptotic series, whose terms fall here below 10^-60
        total, term = M(1), M(1)
        for k in range(1, 400):
            following = term * -(2 * k - 1) / (x * x)
            if abs(following) > abs(term) or abs(following) < M(10) ** -45:
                break
            term = following
            total += term
        return -x * x / 2 - mpmath.log(-x) - mpmath.log(2 * mp.pi) / 2 + mpmath.log(total)
    return mpmath.log1p(-normal(-x)) if x > 0 else mpmath.log(normal(x))


def erfcx(x: Any) -> Any:
    if x > M(10) ** 6:
        return (1 - 1 / (2 * x * x)) / (x * mpmath.sqrt(mp.pi))
    return mpmath.exp(x * x) * mpmath.erfc(x)


def log1mexp(x: Any) -> Any:
    if x < -60:
        return -mpmath.exp(max(x, M(-2000)))
    return mpmath.log(-x) + x / 2 if tiny(x) else mpmath.log(-mpmath.expm1(x))


def sinc(x: Any) -> Any:
    if x == 0:
        return M(1)
    y = x - mpmath.nint(x)
    return (-1) ** int(mpmath.nint(x)) * mpmath.sin(mp.pi * y) / (mp.pi * x)


def sinc_slope(x: Any) -> Any:
    if abs(x) < M(10) ** -10:
        return -(mp.pi**2) * x / 3
    y, sign = x - mpmath.nint(x), (-1) ** int(mpmath.nint(x))
    with mpmath.workdps(80):
        return sign * (mpmath.cos(mp.pi * y) - mpmath.sin(mp.pi * y) / (mp.pi * x)) / x


def log_add(x: Any, y: Any) -> Any:
    return max(x, y) + mpmath.log1p(mpmath.exp(max(-abs(x - y), M(-4000))))


def hypotenuse(x: Any, y: Any) -> Any:
    return mpmath.sqrt(x * x + y * y)


def power(x: Any, y: Any) -> Any:
    exponent = min(max(y * mpmath.log(x), M(-2000)), M(2000))
    return mpmath.exp(exponent)


def density(a: Any, x: Any) -> Any:
    return mpmath.exp((a - 1) * mpmath.log(x) - x - mpmath.loggamma(a))


def beta_density(a: Any, b: Any, x: Any) -> Any:
    return mpmath.exp((a - 1) * mpmath.log(x) + (b - 1) * mpmath.log1p(-x) - log_beta(a, b))


def circular(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def exact(x: Any) -> Any:
        with mpmath.workdps(360 if abs(x) > 1e6 else 60):
            return function(x)

    return exact


# -- arguments --------------------------------------------------------------------------------------------------------


def magnitudes(rng: np.random.Generator, dtype: np.dtype, count: int) -> Array:
    """A number of every ``1 / count`` of the range of exponents of the format, denormal ones too."""
    bits = (8 * dtype.itemsize - 1, "i4" if dtype == F32 else "i8")
    top = int(np.array(np.inf, dtype).view(bits[1]))
    edges = np.linspace(1, top - 1, count + 1)
    drawn = rng.uniform(edges[:-1], edges[1:]).astype(bits[1])
    info = np.finfo(dtype)
    ends = np.array([info.smallest_subnormal, info.tiny, info.max], dtype)
    return np.concatenate([drawn.view(dtype), ends])


def near(point: float, dtype: np.dtype) -> Array:
    """The float next to a point and floats in ever smaller distances from it on both sides."""
    center = dtype.type(point)
    bits = np.finfo(dtype).nmant
    steps = 2.0 ** np.arange(bits - 1, -1, -2) * float(np.spacing(abs(center))) if center else np.zeros(0)
    parts = [center - steps, center + steps, center - 3 * steps / 4, center + 3 * steps / 4]
    return np.concatenate([[center], *parts]).astype(dtype)


def arguments(
    dtype: np.dtype, domain: tuple[float, float], special: Sequence[float], ordinary: Sequence[float], count: int
) -> Array:
    rng = np.random.default_rng(5)
    wide = magnitudes(rng, dtype, count)
    parts = [wide, -wide, *(near(point, dtype) for point in special)]
    for size in ordinary:
        parts.append(rng.uniform(-size, size, count).astype(dtype))
    x = np.unique(np.concatenate(parts))
    low, high = domain
    return x[(x > low) & (x < high)]


@dataclass(frozen=True)
class Function:
    """A function of one operand, and how far from the reference its results may be.

    ``bounds``, of float32 and float64, count units in the last place of the result, or of ``beside(x)`` where that is
    larger: near zeros that are no round numbers. They grow by a factor ``grown(x)`` where the rounding of an argument
    inside does. ``denormal`` counts units of the least denormal number for results that are denormal or nearly so.
    """

    exact: Callable[[Any], Any]
    domain: tuple[float, float] = (-math.inf, math.inf)
    special: Sequence[float] = ()
    bounds: tuple[float, float] = (BOUND, BOUND)
    call: Callable[[sg.Tensor], sg.Tensor] | None = None
    ordinary: Sequence[float] = (1.5, 12.0)
    count: int = 250
    beside: Callable[[float], float] | None = None
    grown: Callable[[float], float] | None = None
    denormal: tuple[float, float] = (BOUND, BOUND)


POSITIVE = (0.0, math.inf)
EXP_ENDS = (-745.2, -708.4, -104.0, -87.4, 88.8, 709.8)


def slope(function: Callable[..., sg.Tensor]) -> Callable[[sg.Tensor], sg.Tensor]:
    return lambda x: sg.gradients(function(x), [x])[0]


def below(start: float, size: float) -> Callable[[float], float]:
    """``size`` for arguments up to ``start``, else 0."""
    return lambda x: size if x <= start else 0.0


def between(low: float, high: float, size: float) -> Callable[[float], float]:
    return lambda x: size if low < x < high else 0.0


def beside_digamma(x: float) -> float:
    return 1 + math.log1p(-x) if x < 0 else 0.0


def angle_of_tanh(x: float) -> float:
    """Of the argument of the hyperbolic tangent in GELU's approximation."""
    return max(1.0, -SCALE * (x + 0.044715 * x**3)) if -100 < x < 0 else 1.0


DIGAMMA_ROOTS = (1.4616321449683622, -0.5040830082644554, -1.573498473162391, -2.6107208684441446, -3.635293366436901)
LGAMMA_ROOTS = (-2.457024738220801, -2.747682646727413, -3.143580888349981, -3.955294284858598, -4.039361839740536)

UNARY: dict[str, Function] = {
    "exp": Function(within(-2000, 2000, mpmath.exp), special=EXP_ENDS),
    "exp2": Function(within(-3000, 3000, lambda x: M(2) ** x), special=(-1074, -1022, -149, -126, 128, 1024)),
    "expm1": Function(within(-2000, 2000, from_slope(mpmath.expm1)), special=(*EXP_ENDS, 0.35, -0.35, -18, -38)),
    "log": Function(mpmath.log, POSITIVE, (1, 0.75, 1.5, 2)),
    "log2": Function(lambda x: mpmath.log(x, 2), POSITIVE, (1, 0.75, 1.5, 2)),
    "log10": Function(mpmath.log10, POSITIVE, (1, 0.75, 1.5, 10)),
    "log1p": Function(from_slope(mpmath.log1p), (-1, math.inf), (-1, -0.25, 0.5, 1, 2.0**60)),
    "sqrt": Function(mpmath.sqrt, POSITIVE),
    "cbrt": Function(lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x))),
    "rsqrt": Function(lambda x: 1 / mpmath.sqrt(x), POSITIVE),
    "reciprocal": Function(lambda x: 1 / x),
    "sin": Function(circular(from_slope(mpmath.sin)), special=[k * math.pi / 4 for k in range(1, 9)]),
    "cos": Function(circular(mpmath.cos), special=[k * math.pi / 4 for k in range(1, 9)]),
    "tan": Function(circular(from_slope(mpmath.tan)), special=[k * math.pi / 4 for k in range(1, 9)]),
    "asin": Function(from_slope(mpmath.asin), (-1, 1), (0.5, -0.5, 1, -1)),
    "acos": Function(mpmath.acos, (-1, 1), (0.5, -0.5, 1, -1)),
    "atan": Function(from_slope(mpmath.atan), special=(1 / 3, 1, 3)),
    "sinh": Function(within(-2000, 2000, from_slope(mpmath.sinh)), special=(*EXP_ENDS, 1, -1)),
    "cosh": Function(within(-2000, 2000, mpmath.cosh), special=EXP_ENDS),
    "tanh": Function(within(-200, 200, from_slope(mpmath.tanh)), special=(1, 9, 20)),
    "asinh": Function(from_slope(mpmath.asinh), special=(1e10, 1e5, 1, 1e-5)),
    "acosh": Function(mpmath.acosh, (1, math.inf), (1, 2, 1e10)),
    "atanh": Function(from_slope(mpmath.atanh), (-1, 1), (1, -1, 0.5)),
    "erf": Function(within(-50, 50, from_slope(mpmath.erf, 2 / mpmath.sqrt(mp.pi))), special=(0.875, 1, 4, 6)),
    "erfc": Function(within(-50, 50, mpmath.erfc), special=(0.8, -0.8, 10.1, 26.5)),
    "erfinv": Function(from_slope(inverse_erf, mpmath.sqrt(mp.pi) / 2), (-1, 1), (0.75, 1, -1), count=100),
    "sigmoid": Function(within(-2000, 2000, logistic), special=EXP_ENDS),
    "elu": Function(lambda x: x if x > 0 else from_slope(mpmath.expm1)(max(x, M(-200))), call=sg.nn.elu),
    "selu": Function(
        lambda x: (
            M(1.0507009873554804934)
            * (x if x > 0 else M(1.6732632423543772848) * from_slope(mpmath.expm1)(max(x, M(-200))))
        ),
        call=sg.nn.selu,
    ),
    "gelu": Function(
        lambda x: x * within(-60, 60, normal)(x), special=(-38, -13, -5.4, -4, -1.1, 1.1, 5.4), denormal=(12.0, 32.0)
    ),
    "gelu_tanh": Function(
        lambda x: x * within(-60, 60, curve_of)(x),
        bounds=(6.0, 6.0),
        special=(-21, -10, -5, 5),
        call=lambda x: sg.nn.gelu(x, "tanh"),
        grown=angle_of_tanh,
        denormal=(64.0, 1500.0),
    ),
    "silu": Function(lambda x: x * within(-2000, 2000, logistic)(x), special=EXP_ENDS),
    "softplus": Function(
        lambda x: x if x > 20 else soft_plus(max(x, M(-2000))), special=(*EXP_ENDS, 0.5, 16.6, 20, 22.5, 37)
    ),
    "softplus_unlimited": Function(
        lambda x: x if x > 2000 else soft_plus(max(x, M(-2000))),
        special=(*EXP_ENDS, 0.5, 16.6, 20, 22.5, 37, 40),
        call=lambda x: sg.nn.softplus(x, threshold=1e6),
    ),
    "softplus_2": Function(
        lambda x: x if 2 * x > 5 else soft_plus(max(2 * x, M(-2000))) / 2,
        special=(2.5, 0.5, 20, -40),
        call=lambda x: sg.nn.softplus(x, 2.0, 5.0),
    ),
    "log_sigmoid": Function(
        lambda x: -soft_plus(min(-x, M(2000))) if x > -2000 else x, special=(-40, -22.5, -16.6, 16.6, 22.5, 37)
    ),
    "hardsigmoid": Function(lambda x: min(max(x / 6 + M(1) / 2, M(0)), M(1)), special=(-3, 3)),
    "hardswish": Function(lambda x: x * min(max(x / 6 + M(1) / 2, M(0)), M(1)), special=(-3, 3)),
    "mish": Function(
        lambda x: x * mpmath.tanh(soft_plus(min(max(x, M(-2000)), M(2000)))), special=(20, 22.5, -22.5, *EXP_ENDS)
    ),
    "softsign": Function(lambda x: x / (1 + abs(x)), special=(1, -1)),
    "lgamma": Function(
        log_gamma,
        special=(0.5, 1, 1.5, 2, 2.5, 3, 4, 7, 8, -0.5, -1, -1.5, *LGAMMA_ROOTS),
        ordinary=(3.0, 12.0, 200.0),
        beside=below(-2, 1.0),
    ),
    "digamma": Function(
        digamma, special=(1, 2, -1, -0.5, 8, 10, *DIGAMMA_ROOTS), ordinary=(3.0, 12.0, 200.0), beside=beside_digamma
    ),
    "trigamma": Function(
        functools.partial(polygamma, 1),
        special=(1, 10, -0.5, -1),
        call=lambda x: sg.polygamma(1, x),
        count=150,
        bounds=(6.0, 4.0),
    ),
    "polygamma_2": Function(
        functools.partial(polygamma, 2),
        special=(1, 10, -0.5, -1),
        call=lambda x: sg.polygamma(2, x),
        count=150,
        bounds=(20.0, 20.0),
    ),
    "i0": Function(
        within(-800, 800, functools.partial(mpmath.besseli, 0)), special=(8, -8), count=120, ordinary=(12.0, 700.0)
    ),
    "i1": Function(
        within(-800, 800, lambda x: x / 2 if tiny(x) else mpmath.besseli(1, x)),
        special=(8, -8),
        count=120,
        ordinary=(12.0, 700.0),
    ),
    "i0e": Function(
        functools.partial(scaled_bessel, 0), (-1e6, 1e6), special=(8, -8), count=120, ordinary=(12.0, 700.0)
    ),
    "i1e": Function(
        lambda x: x / 2 if tiny(x) else scaled_bessel(1, x),
        (-1e6, 1e6),
        special=(8, -8),
        count=120,
        ordinary=(12.0, 700.0),
    ),
    "erfcx": Function(erfcx, (-40, math.inf), special=(-26.6, -9.3, 0.5, 3.75, 1e10), ordinary=(1.5, 27.0)),
    "erfcinv": Function(lambda x: -quantile(x / 2) / mpmath.sqrt(2), (0, 2), special=(1, 0.15, 1.85, 2), count=150),
    "ndtr": Function(within(-60, 60, normal), special=(-38, -13, -1, 1), ordinary=(1.5, 12.0, 38.0)),
    "log_ndtr": Function(log_normal, (-math.inf, 60.0), special=(-1, 1, 5, -5), ordinary=(1.5, 12.0, 38.0)),
    "ndtri": Function(quantile, (0, 1), special=(0.5, 0.075, 0.925, 1), count=150),
    "log1mexp": Function(log1mexp, (-math.inf, 0), special=(-math.log(2), -16, -37, -87, -104, -708, -745)),
    "sinc": Function(sinc, special=(0.5, 1, 2, 3, 1.5, 10.5, 100), ordinary=(1.5, 12.0)),
    "sinc_slope": Function(
        sinc_slope,
        special=(1, 1.4302966531242027, 2, 3, 0.5, 10),
        ordinary=(1.5, 12.0),
        call=FUNCTIONS.sinc_slope,
        beside=lambda x: 1 / abs(x) if abs(x) > 1.2 else 0.0,
    ),
    # derivatives
    "gelu_slope": Function(
        lambda x: within(-60, 60, lambda v: normal(v) + v * normal_density(v))(x),
        special=(-38, -13, -5.4, -4, -0.7517915),
        call=slope(sg.nn.gelu),
        beside=between(-2, 0, 0.25),
        denormal=(16.0, 64.0),
    ),
    "gelu_tanh_slope": Function(
        within(-60, 60, gelu_of_tanh_slope),
        special=(-21, -10, -5, 5, -0.7524614),
        call=slope(lambda x: sg.nn.gelu(x, "tanh")),
        beside=between(-2, 100, 1.0),
        bounds=(20.0, 48.0),
        grown=angle_of_tanh,
        denormal=(512.0, 1e5),
    ),
    "silu_slope": Function(
        within(-2000, 2000, lambda x: logistic(x) * (1 + x * logistic(-x))),
        special=(*EXP_ENDS, -1.2784645),
        call=slope(sg.nn.silu),
        beside=between(-3, 100, 1.0),
        bounds=(8.0, 8.0),
        denormal=(64.0, 512.0),
    ),
    "softplus_slope": Function(
        lambda x: M(1) if x > 20 else logistic(max(x, M(-2000))), special=(*EXP_ENDS, 20), call=slope(sg.nn.softplus)
    ),
    "log_sigmoid_slope": Function(
        within(-2000, 2000, lambda x: logistic(-x)), special=EXP_ENDS, call=slope(sg.nn.log_sigmoid)
    ),
    "sigmoid_slope": Function(
        within(-2000, 2000, lambda x: logistic(x) * logistic(-x)),
        special=EXP_ENDS,
        call=slope(sg.nn.sigmoid),
        beside=lambda x: 1.0,
    ),
    "tanh_slope": Function(
        within(-2000, 2000, lambda x: 1 / mpmath.cosh(x) ** 2),
        special=(9, 20, 40),
        call=slope(sg.tanh),
        beside=lambda x: 1.0,
    ),
    "log1mexp_slope": Function(
        lambda x: -1 / from_slope(mpmath.expm1)(min(-x, M(2000))),
        (-math.inf, 0),
        special=(-math.log(2), -16, -37),
        call=slope(sg.log1mexp),
    ),
    "lgamma_slope": Function(
        digamma, special=(1, 2, 1.4616321449683622), ordinary=(12.0,), call=slope(sg.lgamma), beside=beside_digamma
    ),
    "asin_slope": Function(lambda x: 1 / mpmath.sqrt(1 - x * x), (-1, 1), (1, -1), call=slope(sg.asin)),
    "acosh_slope": Function(lambda x: 1 / mpmath.sqrt(x * x - 1), (1, math.inf), (1, 2), call=slope(sg.acosh)),
    "asinh_slope": Function(lambda x: 1 / mpmath.sqrt(x * x + 1), special=(1,), call=slope(sg.asinh)),
    "atanh_slope": Function(lambda x: 1 / (1 - x * x), (-1, 1), (1, -1), call=slope(sg.atanh)),
    "atan_slope": Function(lambda x: 1 / (1 + x * x), special=(1,), call=slope(sg.atan), denormal=(math.inf, math.inf)),
    "erf_slope": Function(
        within(-60, 60, lambda x: 2 / mpmath.sqrt(mp.pi) * mpmath.exp(-x * x)), special=(9.3, 26.5), call=slope(sg.erf)
    ),
    "ndtr_slope": Function(within(-60, 60, normal_density), special=(13, 38), call=slope(sg.ndtr)),
    "log_ndtr_slope": Function(
        lambda x: normal_density(x) / normal(x), (-30, 30), special=(-1, 1), call=slope(sg.log_ndtr)
    ),
    "mish_slope": Function(
        within(-2000, 2000, lambda x: mpmath.tanh(soft_plus(x)) + x * logistic(x) / mpmath.cosh(soft_plus(x)) ** 2),
        special=(20, -1.1924),
        call=slope(sg.nn.mish),
        beside=between(-3, 100, 1.0),
        bounds=(12.0, 12.0),
        denormal=(64.0, 512.0),
    ),
}


def compiled(call: Callable[..., sg.Tensor], *operands: Array) -> Array:
    with sg.Graph() as graph:
        xs = [sg.placeholder(x.shape, x.dtype) for x in operands]
        y = call(*xs)
    return np.asarray(sg.Session(graph).run(y, dict(zip(xs, operands, strict=True))))


def function_of(name: str) -> Callable[..., sg.Tensor]:
    return getattr(sg, name, None) or getattr(sg.nn, name)


@dataclass(frozen=True)
class Binary:
    """A function of two operands: reference, operands, bounds."""

    exact: Callable[..., Any]
    sample: Callable[[np.random.Generator, np.dtype], Sequence[Array]]
    bounds: tuple[float, float] = (BOUND, BOUND)
    beside: Callable[..., float] | None = None


def anything(rng: np.random.Generator, dtype: np.dtype) -> Sequence[Array]:
    """Pairs of all exponents, of similar ones, and ordinary ones, of both signs."""
    wide = [rng.permutation(magnitudes(rng, dtype, 400)) for _ in range(2)]
    like = wide[0] * np.exp(rng.uniform(-3, 3, wide[0].size)).astype(dtype)
    ordinary = [rng.standard_normal(800).astype(dtype) * 5 for _ in range(2)]
    pairs = [np.concatenate([wide[0], wide[0], ordinary[0]]), np.concatenate([wide[1], like, ordinary[1]])]
    return [(x * rng.choice([-1, 1], x.size)).astype(dtype) for x in pairs]


def bases_and_exponents(rng: np.random.Generator, dtype: np.dtype) -> Sequence[Array]:
    base = np.concatenate(
        [magnitudes(rng, dtype, 400), np.exp(rng.standard_normal(800)), 1 + rng.uniform(-1, 1, 400) * 1e-3]
    ).astype(dtype)
    largest = 103.0 if dtype == F32 else 744.0
    with np.errstate(all="ignore"):
        exponent = rng.uniform(-1, 1, base.size) * largest / np.log(base.astype(float))
    exponent = np.clip(np.nan_to_num(exponent, nan=1.0), -1e30, 1e30)
    exponent[::7] = rng.integers(-5, 6, exponent[::7].size)
    return base, exponent.astype(dtype)


def cancelling(rng: np.random.Generator, dtype: np.dtype) -> Sequence[Array]:
    """Operands of logaddexp: of all sizes, and those whose result is near 0."""
    x, y = anything(rng, dtype)
    below = rng.uniform(0.05, 5, 500)
    zero = np.concatenate([np.log1p(-np.exp(-below))])
    return np.concatenate([x, -below.astype(dtype)]), np.concatenate([y, zero.astype(dtype)])


def positive_pairs(rng: np.random.Generator, dtype: np.dtype) -> Sequence[Array]:
    x, y = anything(rng, dtype)
    near_one = near(1.0, dtype)
    return np.concatenate([x, rng.standard_normal(near_one.size).astype(dtype)]), np.concatenate([abs(y), near_one])


def above_minus_one(rng: np.random.Generator, dtype: np.dtype) -> Sequence[Array]:
    x, y = anything(rng, dtype)
    y = np.where(y <= -1, -y, y)
    near_end = near(-1.0, dtype)
    near_end = near_end[near_end > -1]
    return np.concatenate([x, rng.standard_normal(near_end.size).astype(dtype)]), np.concatenate([y, near_end])


def two_shapes(rng: np.random.Generator, dtype: np.dtype) -> Sequence[Array]:
    a, b = (np.concatenate([10 ** rng.uniform(-6, 9, 150), rng.uniform(0.01, 30, 250)]) for _ in range(2))
    return a.astype(dtype), b.astype(dtype)


def shape_and_argument(rng: np.random.Generator, dtype: np.dtype) -> Sequence[Array]:
    a = np.concatenate([10 ** rng.uniform(-3, 2, 200), rng.uniform(0.1, 30, 200)])
    x = np.concatenate([10 ** rng.uniform(-3, 2, 200), a[200:] * rng.uniform(0.2, 3, 200)])
    return a.astype(dtype), x.astype(dtype)


BINARY: dict[str, Binary] = {
    "pow": Binary(power, bases_and_exponents),
    "atan2": Binary(mpmath.atan2, anything),
    "hypot": Binary(hypotenuse, anything),
    "divide": Binary(lambda x, y: x / y, anything),
    "logaddexp": Binary(log_add, cancelling, beside=max),
    "xlogy": Binary(lambda x, y: x * mpmath.log(y), positive_pairs),
    "xlog1py": Binary(lambda x, y: x * from_slope(mpmath.log1p)(y), above_minus_one),
    "betaln": Binary(log_beta, two_shapes, bounds=(BOUND, 10.0), beside=lambda a, b: 1.0),
    "gammainc": Binary(lower_gamma, shape_and_argument, (1.0, 1500.0)),
    "gammaincc": Binary(upper_gamma, shape_and_argument, (1.0, 100.0)),
}


# -- tests ------------------------------------------------------------------------------------------------------------


@functools.cache
def exact_values(name: str, dtype: np.dtype) -> tuple[Sequence[Array], list[Any]]:
    """Operands and exact results of a sweep, without poles."""
    if name in BINARY:
        operands = BINARY[name].sample(np.random.default_rng(9), dtype)
        return references(BINARY[name].exact, operands)
    case = UNARY[name]
    x = arguments(dtype, case.domain, case.special, case.ordinary, case.count)
    return references(case.exact, [x[x != 0]])


def references(exact: Callable[..., Any], operands: Sequence[Array]) -> tuple[Sequence[Array], list[Any]]:
    found: list[Any] = []
    with mpmath.workdps(50):
        for row in zip(*(x.astype(float).tolist() for x in operands), strict=True):
            try:
                found.append(exact(*map(M, row)))
            except ZeroDivisionError:
                found.append(mpmath.nan)
    kept = [i for i, value in enumerate(found) if mpmath.isfinite(value)]
    return [x[kept] for x in operands], [found[i] for i in kept]


def compare(name: str, dtype: np.dtype, operands: Sequence[Array], exact: Sequence[Any]) -> None:
    case, place, info = UNARY.get(name) or BINARY[name], FLOATS.index(dtype), np.finfo(dtype)
    call = case.call if isinstance(case, Function) and case.call else function_of(name)
    rows = list(zip(*(x.astype(float).tolist() for x in operands), strict=True))
    allowed = np.full(operands[0].size, case.bounds[place])
    with np.errstate(all="ignore"), mpmath.workdps(50):
        found = errors(got := compiled(call, *operands), exact, dtype)
        sizes = np.minimum([float(abs(value)) for value in exact], float(info.max) / 2)
        if case.beside is not None:
            beside = np.minimum([abs(case.beside(*row)) for row in rows], float(info.max) / 2)
            allowed *= np.maximum(np.spacing(beside.astype(dtype)) / np.spacing(sizes.astype(dtype)), 1)
        if isinstance(case, Function):
            if case.grown is not None:
                allowed *= [case.grown(*row) for row in rows]
            nearly = sizes < float(info.tiny) * 1e3
            allowed = np.where(nearly, np.maximum(allowed, case.denormal[place]), allowed)
    worst = int(np.argmax(found / allowed))
    text = f"{name}{rows[worst]} = {got[worst]!r}, exactly {mpmath.nstr(exact[worst], 20)}: {found[worst]:.3g} units"
    assert (found <= allowed).all(), f"{text}, of {allowed[worst]:.3g}"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_functions_are_accurate_over_their_domains(name: str, dtype: np.dtype) -> None:
    compare(name, dtype, *exact_values(name, dtype))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_references_are_accurate_over_their_domains(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    compare(name, F64, *exact_values(name, F64))


SYMPTOMS = {
    "lgamma has no digits next to its zeros 1 and 2": ("lgamma", (1.0001, 0.9999, 2.0001, 1.9999, 1 + 2.0**-20, 1.25)),
    "lgamma of negative denormals is infinite": ("lgamma", (-1e-45, -1e-40, -5e-324, -1e-310)),
    "digamma has no digits next to its root": ("digamma", (1.4616321, 1.4616322, 1.4616321449683622, 1.46, 2.004)),
    "polygamma is off where the cotangent is zero": ("polygamma_2", (-1.5, -2.5, -6717444.5)),
    "the left tail of gelu has no digits": ("gelu", (-2.0, -4.0, -5.5, -9.0, -12.5, -1e30)),
    "the left tail of gelu by tanh has no digits": ("gelu_tanh", (-2.0, -4.0, -5.5, -9.0, -1e30)),
    "the left tail of the slope of gelu has no digits": ("gelu_slope", (-2.5, -4.0, -5.5, -9.0, -12.5)),
    "the slope of gelu by tanh is not a number far out": ("gelu_tanh_slope", (1e30, -1e30, 1e200, -1e200, -4.0)),
    "silu is off where the sigmoid is denormal": ("silu", (-90.0, -100.0, -103.0, -720.0, -740.0)),
    "mish is off where the sigmoid is denormal": ("mish", (-90.0, -100.0, -103.0, -720.0, -740.0)),
    "hardsigmoid has no digits next to -3": ("hardsigmoid", (-2.9999, -2.99)),
    "hardswish has no digits next to -3": ("hardswish", (-2.9999, -2.99)),
    "log1mexp of the least denormal is infinite": ("log1mexp", (-1e-45, -5e-324, -3e-45)),
    "erfcx of huge arguments overflows inside": ("erfcx", (1e308, 1.7e308, 1e30)),
    "ndtr multiplies the rounding of its argument": ("ndtr", (-12.3, -20.7, -30.3, -35.1)),
    "log_ndtr multiplies the rounding of its argument": ("log_ndtr", (12.3, 20.7, 30.3, 35.1)),
    "the slope of log_ndtr multiplies a rounding": ("log_ndtr_slope", (8.3, 11.7)),
    "the slope of erf multiplies the rounding of a square": ("erf_slope", (5.1, 8.3, 9.1, 20.1)),
    "the slope of asinh is 0 far out": ("asinh_slope", (1e25, -1e30, 1e200)),
    "the slope of acosh is 0 far out": ("acosh_slope", (1e25, 1e30, 1e200)),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_no_symptom_is_back(symptom: str, dtype: np.dtype) -> None:
    name, points = SYMPTOMS[symptom]
    with np.errstate(over="ignore", under="ignore"):
        x = np.array(points).astype(dtype)
    compare(name, dtype, *references(UNARY[name].exact, [x[np.isfinite(x) & (x != 0)]]))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_expm1_of_odd_denormals_is_not_rounded(dtype: np.dtype) -> None:
    x = np.array([1, 3, -1, -7]).astype(dtype) * np.finfo(dtype).smallest_subnormal
    np.testing.assert_array_equal(compiled(sg.expm1, x), x)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_digamma_keeps_digits_next_to_its_first_negative_root(dtype: np.dtype) -> None:
    """There both terms of the reflection are small, and an error is one of theirs."""
    x = np.array([-0.5, -0.504, -0.5040830082644554, -0.51]).astype(dtype)
    (operands, exact) = references(digamma, [x])
    error = np.abs(compiled(sg.digamma, *operands) - np.array(exact, dtype=float))
    assert error.max() < 0.5 * float(np.finfo(dtype).eps)


def test_every_function_that_rounds_is_swept() -> None:
    """Those that are left out are exact, are rounded once, or have operands of which ``test_special.py`` says more."""
    exact = {
        "abs", "add", "astype", "astype_saturating", "bitcast", "ceil", "clip", "copysign", "equal", "floor",
        "floor_divide", "greater", "greater_equal", "hardtanh", "identity", "isfinite", "isinf", "isnan", "leaky_relu",
        "less", "less_equal", "maximum", "minimum", "multiply", "multiply_no_nan", "multiply_zeros", "negative",
        "nextafter", "not_equal", "random_uniform", "relu", "remainder", "round", "sign", "signbit", "square",
        "stop_gradient", "subtract", "trunc", "where",
    }  # fmt: skip
    elsewhere = {
        "beta_density", "betainc", "betainc_by_shape", "gamma_density", "gamma_draw", "gammainc_by_a", "gaussian", "iv",
        "ive", "polygamma", "probability_cross_entropy", "sigmoid_cross_entropy", "sigmoid_residual", "zeta",
    }  # fmt: skip
    rounding = {op.name for op in OPS.values() if op.elementwise and {F32, F64} & set(op.dtypes)}
    missing = sorted(rounding - exact - elsewhere - {*UNARY, *BINARY})
    assert not missing, f"compared with no reference in high precision, by an entry in UNARY or BINARY: {missing}"
