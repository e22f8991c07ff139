"""Special functions against mpmath over their domains: compiled for both floats, and by their references."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.special
from support.special_functions import log_beta, lower_gamma, quantile, scaled_bessel, upper_gamma

import staticgrad as sg
from staticgrad.compiler.machine.target import current_target
from staticgrad.graph.optable import FUNCTIONS

Array = np.ndarray[Any, Any]
Sample = Callable[[np.random.Generator, int], Sequence[Array]]
FLOATS = ("float32", "float64")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with np.errstate(all="ignore"), mpmath.workdps(40):
        yield


def run(function: Callable[..., Any], *arrays: Array) -> Array:
    with sg.Graph() as graph:
        xs = [sg.placeholder(a.shape, a.dtype) for a in arrays]
        y = function(*xs)
    return np.asarray(sg.Session(graph).run(y, dict(zip(xs, arrays, strict=True))))


def powers(rng: np.random.Generator, low: float, high: float, count: int) -> Array:
    return np.asarray(10 ** rng.uniform(low, high, count))


# -- samples: the operands of each domain ---------------------------------------------------------------------------


def gamma_operands(rng: np.random.Generator, count: int) -> Sequence[Array]:
    """Shapes of all sizes; arguments around them, far from them, and tiny."""
    a = np.concatenate(
        [powers(rng, -3, 1.3, 2 * count), powers(rng, 1.3, 3.5, count), powers(rng, -10, -3, count // 2)]
    )
    around = a[2 * count : 3 * count]
    near = np.abs(around + np.sqrt(around) * rng.uniform(-8, 8, count))
    return a, np.concatenate([powers(rng, -3, 2, 2 * count), near, powers(rng, -10, 1, count // 2)])


def beta_operands(rng: np.random.Generator, count: int) -> Sequence[Array]:
    """Shapes of all sizes; arguments around the mean, anywhere, and tiny."""
    a, b = (np.concatenate([powers(rng, -3, 1.3, 2 * count), powers(rng, -1, 2.7, count)]) for _ in range(2))
    mean, width = a / (a + b), np.sqrt(a * b / (a + b + 1)) / (a + b)
    x = np.clip(mean + width * rng.uniform(-5, 5, a.size), 1e-9, 1 - 1e-7)
    x[:count] = rng.uniform(0, 1, count)
    x[count : count + count // 3] = powers(rng, -9, 0, count // 3)
    return a, b, x


def two_positive(rng: np.random.Generator, count: int) -> Sequence[Array]:
    return powers(rng, -6, 9, 4 * count), powers(rng, -6, 9, 4 * count)


def both_signs(rng: np.random.Generator, count: int) -> Sequence[Array]:
    return (
        np.concatenate([rng.uniform(-700, 700, count), rng.uniform(-12, 12, 2 * count), powers(rng, -12, 1, count)]),
    )


def orders(rng: np.random.Generator, count: int) -> Sequence[Array]:
    """Orders and arguments of each way: series, large arguments, large orders, negative and whole orders."""
    v = [rng.uniform(0, 20, 2 * count), powers(rng, 1.3, 4, count), rng.uniform(-15, 0, count),
         np.round(rng.uniform(-40, 40, count))]  # fmt: skip
    x = [powers(rng, -3, 2.8, count), rng.uniform(25, 210, count), powers(rng, -1, 4.3, count),
         powers(rng, -2, 2.4, count), rng.uniform(-80, 80, count)]  # fmt: skip
    return np.concatenate(v), np.concatenate(x)


def between(*pieces: tuple[float, float]) -> Sample:
    """Arguments of one operand, uniform in each piece."""
    return lambda rng, count: (np.concatenate([rng.uniform(low, high, 2 * count) for low, high in pieces]),)


def orders_of_zeta(rng: np.random.Generator, count: int) -> Sequence[Array]:
    """Orders near 1, moderate and large ones, of places from tiny to large."""
    s = np.concatenate([1 + powers(rng, -3, 1, 2 * count), powers(rng, 0.3, 2.2, count)])
    q = np.concatenate([powers(rng, -2, 1, count), powers(rng, 0, 4, count), powers(rng, -0.3, 2.5, count)])
    return s, q


def probabilities(rng: np.random.Generator, count: int) -> Sequence[Array]:
    """Also tiny ones, and ones about a half."""
    tiny = powers(rng, -37, 0, count)
    return (np.concatenate([rng.uniform(0, 1, 2 * count), tiny, 0.5 + powers(rng, -6, -1, count)]),)


# -- references -----------------------------------------------------------------------------------------------------


def slope(function: Callable[..., Any], place: int, *operands: Any) -> Any:
    """A central difference in many digits."""
    with mpmath.workdps(70):
        step = mpmath.mpf(10) ** -20 * (abs(operands[place]) + mpmath.mpf(10) ** -4)
        above, below = (function(*(x + sign * step * (i == place) for i, x in enumerate(operands))) for sign in (1, -1))
        return (above - below) / (2 * step)


def lower_gamma_by_a(a: Any, x: Any) -> Any:
    return slope(lower_gamma, 0, a, x) if x < a else -slope(upper_gamma, 0, a, x)


def lower_beta(a: Any, b: Any, x: Any) -> Any:
    if x < a / (a + b):
        return mpmath.betainc(a, b, 0, x, regularized=True)
    return 1 - mpmath.betainc(b, a, 0, 1 - x, regularized=True)


@dataclass(frozen=True)
class Case:
    """A function, its reference and operands; the bound on the error beside what the operands' rounding makes of it.

    ``bound`` is a relative error in units of the last place. ``moved`` says by how many such units the result changes
    if an operand changes by one: for arguments far from a peak no algorithm does better. ``floor``, in units of the
    last place of 1, is for derivatives that are tiny beside their function.
    """

    exact: Callable[..., Any]
    sample: Sample
    bound: float = 40.0
    floor: float = 0.0
    moved: Callable[..., Array] = lambda *operands: np.zeros_like(operands[0])
    count: int = 24


def off_peak(a: Array, x: Array) -> Array:
    return np.abs(a - x) + a * (np.abs(np.log(x / a)) + 0.5)


def off_mean(a: Array, b: Array, x: Array) -> Array:
    """Twice the distance from the mean in units of shapes, and what rounding of shapes makes of powers."""
    small, large = np.minimum(a, b), np.maximum(a, b)
    return 2 * np.abs(x * b - (1 - x) * a) + a * np.abs(np.log(x)) + b * np.abs(np.log1p(-x)) + small * np.log1p(large)


def exponent(v: Array, x: Array) -> Array:
    """The derivative by log x, and the logarithm of (x/2v)^v."""
    return 4 * np.hypot(v, x) + 2 * np.abs(v * np.log1p(np.abs(2 * v / x)))


def scaled_exponent(v: Array, x: Array) -> Array:
    return exponent(v, x) - 4 * np.abs(x)


def hurwitz(s: Any, q: Any) -> Any:
    with mpmath.workdps(400):  # its error is an absolute one
        return mpmath.zeta(s, q)


def log_normal(x: Any) -> Any:
    tail = mpmath.erfc(abs(x) / mpmath.sqrt(2)) / 2
    return mpmath.log(tail) if x < 0 else mpmath.log1p(-tail)


CASES: dict[str, Case] = {
    "gammainc": Case(lower_gamma, gamma_operands, moved=off_peak),
    "gammaincc": Case(upper_gamma, gamma_operands, moved=off_peak),
    "gammainc_by_a": Case(lower_gamma_by_a, gamma_operands, 100.0, moved=off_peak, count=8),
    "gamma_density": Case(
        lambda a, x: mpmath.exp((a - 1) * mpmath.log(x) - x - mpmath.loggamma(a)), gamma_operands, moved=off_peak
    ),
    "betainc": Case(lower_beta, beta_operands, moved=off_mean),
    "betainc_by_a": Case(lambda *xs: slope(lower_beta, 0, *xs), beta_operands, 400.0, 20.0, off_mean, 12),
    "betainc_by_b": Case(lambda *xs: slope(lower_beta, 1, *xs), beta_operands, 400.0, 20.0, off_mean, 12),
    "beta_density": Case(
        lambda a, b, x: mpmath.exp((a - 1) * mpmath.log(x) + (b - 1) * mpmath.log1p(-x) - log_beta(a, b)),
        beta_operands,
        moved=off_mean,
    ),
    "betaln": Case(log_beta, two_positive),
    "i0": Case(functools.partial(mpmath.besseli, 0), both_signs, 8.0),
    "i1": Case(functools.partial(mpmath.besseli, 1), both_signs, 8.0),
    "i0e": Case(functools.partial(scaled_bessel, 0), both_signs, 8.0),
    "i1e": Case(functools.partial(scaled_bessel, 1), both_signs, 8.0),
    "erfcx": Case(lambda x: mpmath.exp(x * x) * mpmath.erfc(x), between((-26, 30), (-1, 1)), 8.0),
    "ndtr": Case(mpmath.ncdf, between((-35, 9), (-3, 3)), 8.0, moved=lambda x: 2 * x * x),
    "log_ndtr": Case(log_normal, between((-40, 8), (-3, 1)), 8.0, moved=lambda x: 2 * x * np.maximum(x, 0)),
    "ndtri": Case(quantile, probabilities, 8.0),
    "erfcinv": Case(lambda x: -quantile(x / 2) / mpmath.sqrt(2), probabilities, 8.0),
    "log1mexp": Case(lambda x: mpmath.log(-mpmath.expm1(x)), between((-50, 0), (-1, 0)), 8.0, moved=np.abs),
    "xlogy": Case(lambda x, y: x * mpmath.log(y), two_positive, 8.0),
    "xlog1py": Case(lambda x, y: x * mpmath.log1p(y), two_positive, 8.0),
    "sinc": Case(lambda x: mpmath.sinc(mpmath.pi * x), between((-9.4, 9.4), (-1, 1)), 8.0, 4.0),
    "iv": Case(mpmath.besseli, orders, 20.0, moved=exponent),
    "zeta": Case(hurwitz, orders_of_zeta, 20.0, moved=lambda s, q: 2 * s * np.abs(np.log(q)) + 2 * s + 2 / (s - 1)),
    "ive": Case(scaled_bessel, orders, 20.0, moved=scaled_exponent),
}


PIECEWISE = ("ndtr",)  # computed in float32 where coefficients are looked up in registers
NARROW = ("log1mexp", "xlogy", "xlog1py")  # computed in float32
CALLS = {
    "betainc_by_a": functools.partial(FUNCTIONS.betainc_by_shape, 0),
    "betainc_by_b": functools.partial(FUNCTIONS.betainc_by_shape, 1),
}


def function_of(name: str) -> Callable[..., Any]:
    return CALLS.get(name) or getattr(FUNCTIONS, name)


@functools.cache
def sampled(name: str, dtype: str) -> tuple[Sequence[Array], Array]:
    """Operands, and the results in float64 of many digits."""
    case = CASES[name]
    operands = [x.astype(dtype) for x in case.sample(np.random.default_rng(7), case.count)]
    rows = zip(*(x.astype(float).tolist() for x in operands), strict=True)
    return operands, np.array([float(case.exact(*map(mpmath.mpf, row))) for row in rows])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", CASES)
def test_functions_agree_with_mpmath(name: str, dtype: str) -> None:
    operands, want = sampled(name, dtype)
    got = run(function_of(name), *operands).astype(float)
    compare(name, dtype, operands, got, want)


@pytest.mark.parametrize("name", CASES)
def test_references_agree_with_mpmath(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    operands, want = sampled(name, "float64")
    compare(name, "float64", operands, run(function_of(name), *operands), want)


def compare(name: str, dtype: str, operands: Sequence[Array], got: Array, want: Array) -> None:
    case, info = CASES[name], np.finfo(dtype)
    unit = float(info.eps) / 2
    if dtype == "float32":  # computed in float64, rounded once, its loops ended at 2^-32
        in_float = name in PIECEWISE and current_target().isa.looks_up
        allowed = unit * (16 if name in NARROW else 3 if in_float else 1.02) * np.abs(want)
    else:
        allowed = unit * ((case.bound + case.moved(*operands)) * np.abs(want) + case.floor)
    allowed = np.maximum(allowed, float(info.tiny) * (1.0 if dtype == "float32" else 1e3))
    want = np.where(np.abs(want) > float(info.max), np.copysign(np.inf, want), want)
    error = np.where(got == want, 0.0, np.abs(got - want))
    allowed = np.where(np.isinf(want), 0.0, allowed)
    worst = int(np.argmax(np.nan_to_num(error / np.maximum(allowed, 1e-320), nan=np.inf)))
    where = [float(x[worst]) for x in operands]
    assert (error <= allowed).all(), f"{name}{where}: {got[worst]}, expected {want[worst]}"


# -- edges ----------------------------------------------------------------------------------------------------------

EDGES = (0.0, -0.0, 0.5, 1.0, 2.0, 30.0, 1e10, np.inf, -1.0, -np.inf, np.nan)


@pytest.mark.parametrize(
    "name",
    ["gammainc", "gammaincc", "betainc", "erfcx", "erfcinv", "ndtr", "log_ndtr", "ndtri", "xlogy", "xlog1py"],
)
@pytest.mark.parametrize("dtype", FLOATS)
def test_edges_are_scipy_s(name: str, dtype: str) -> None:
    count = {"betainc": 3, "gammainc": 2, "gammaincc": 2, "xlogy": 2, "xlog1py": 2}.get(name, 1)
    grid = [g.ravel().astype(dtype) for g in np.meshgrid(*[EDGES] * count)]
    got = run(getattr(FUNCTIONS, name), *grid)
    want = getattr(scipy.special, name)(*(g.astype(float) for g in grid)).astype(dtype)
    np.testing.assert_allclose(got, want, rtol=4e-7 if dtype == "float32" else 1e-13)


@pytest.mark.parametrize("dtype", FLOATS)
def test_ends_of_the_zeta_function_are_scipy_s(dtype: str) -> None:
    """Where SciPy has numbers or infinities of numbers; of NaN, and of infinite places, are NaN and the limit."""
    s, q = (g.ravel().astype(dtype) for g in np.meshgrid((0.5, 1.0, 2.0, 3.0, 30.0), (-3.0, -2.5, 0.0, 0.5, 1.0, 1e6)))
    want = scipy.special.zeta(s.astype(float), q.astype(float))
    got = run(FUNCTIONS.zeta, s, q)
    there = (s > 1) | (np.isnan(want))
    np.testing.assert_allclose(got[there], want.astype(dtype)[there], rtol=4e-7 if dtype == "float32" else 1e-13)
    ends = run(
        FUNCTIONS.zeta,
        *np.array([[np.inf, 1], [np.inf, 2], [2, np.inf], [np.nan, 1], [2, np.nan], [1, 2]]).T.astype(dtype),
    )
    np.testing.assert_array_equal(ends, [1, 0, 0, np.nan, np.nan, np.inf])


def test_the_zeta_function_has_no_derivative_by_its_order() -> None:
    s = sg.placeholder((), sg.float64)
    with pytest.raises(sg.GraphError, match="zeta has no derivative by its order"):
        sg.gradients(sg.zeta(s, 2.0), s)


def test_the_beta_function_at_its_limits() -> None:
    a = np.array([0.0, 5.0, np.inf, np.inf, np.nan, -1.5, 0.0])
    b = np.array([1.0, 0.0, 1.0, 0.0, 1.0, 2.0, 0.0])
    want = [np.inf, np.inf, -np.inf, np.inf, np.nan, scipy.special.betaln(-1.5, 2.0), np.inf]
    np.testing.assert_allclose(run(sg.betaln, a, b), want, rtol=1e-13)


BESSEL_ENDS = {
    "i0": [1, 1, np.inf, np.inf, np.nan], "i1": [0, 0, np.inf, -np.inf, np.nan],
    "i0e": [1, 1, 0, 0, np.nan], "i1e": [0, 0, 0, 0, np.nan],
}  # fmt: skip


@pytest.mark.parametrize("name", BESSEL_ENDS)
def test_ends_of_bessel_functions(name: str) -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(run(getattr(sg, name), x), BESSEL_ENDS[name])


def test_ends_of_bessel_functions_of_real_orders() -> None:
    v, x = (g.ravel() for g in np.meshgrid([0.0, 1.0, 2.0, -3.0, 0.5, 30.0], [0.0, 1.0, -1.0]))
    np.testing.assert_allclose(run(sg.iv, v, x), scipy.special.iv(v, x), rtol=1e-13)
    np.testing.assert_allclose(run(sg.ive, v, x), scipy.special.ive(v, x), rtol=1e-13)
    v = np.array([0.0, 1.0, 0.5, 0.5, np.inf, 1.0, -20.5])
    x = np.array([np.inf, -np.inf, np.inf, -np.inf, 2.0, np.nan, 1.0])
    np.testing.assert_array_equal(run(sg.iv, v, x), [np.inf, -np.inf, np.inf, np.nan, 0, np.nan, np.nan])
    np.testing.assert_array_equal(run(sg.ive, v, x), [0, 0, 0, np.nan, 0, np.nan, np.nan])


def test_bessel_functions_of_negative_halves_have_their_signs() -> None:
    v = -np.arange(0.5, 19.0)
    for x in (0.5, 3.0):
        np.testing.assert_allclose(run(sg.iv, v, np.full(v.shape, x)), scipy.special.iv(v, x), rtol=1e-12)
        at = sg.placeholder((), "float64")
        slopes = [sg.gradients(sg.iv(order, at), at)[0] for order in v[:3]]
        np.testing.assert_allclose(sg.Session().run(slopes, {at: x}), scipy.special.ivp(v[:3], x), rtol=1e-12)


def test_derivatives_of_betainc_by_a_shape_of_zero_are_not_taken_for_zero() -> None:
    """The function falls, or rises, steeply from its limit; by the other shape it is constant there, and at 0 and 1."""
    a, b, x = (sg.placeholder((4,), "float64") for _ in range(3))
    feeds = {a: np.array([0.0, 2.0, 0.0, 0.0]), b: np.array([2.0, 0.0, 2.0, 2.0]), x: np.array([0.5, 0.5, 0.0, 1.0])}
    by_a, by_b = sg.Session().run(sg.gradients(sg.betainc(a, b, x), [a, b]), feeds)
    np.testing.assert_array_equal(by_a, [np.nan, 0, 0, 0])
    np.testing.assert_array_equal(by_b, [0, np.nan, 0, 0])


def test_derivatives_of_bessel_functions_at_zero() -> None:
    x = sg.placeholder((), "float64")
    derivatives = [sg.gradients(y, [x])[0] for y in (sg.i0(x), sg.i1(x), sg.iv(1.0, x))]
    seconds = [sg.gradients(d, [x])[0] for d in (*derivatives, sg.gradients(sg.iv(2.0, x), [x])[0])]
    found = sg.Session().run([*derivatives, *seconds], {x: 0.0})
    np.testing.assert_allclose(found, [0, 0.5, 0.5, 0.5, 0, 0, 0.25], rtol=1e-15)


def test_bessel_functions_have_no_derivative_by_their_order() -> None:
    v, x = sg.placeholder((3,)), sg.placeholder((3,))
    for function in (sg.iv, sg.ive):
        with pytest.raises(sg.GraphError, match="no derivative by its order"):
            sg.gradients(function(v, x), [v])


def test_second_derivatives_by_shapes_are_refused() -> None:
    a, x = sg.placeholder((3,)), sg.placeholder((3,))
    b = sg.placeholder((3,))
    by_a, by_b, by_x = sg.gradients(sg.betainc(a, b, x), [a, b, x])
    sg.gradients([by_a, by_b], [x])
    sg.gradients(by_x, [a, b, x])
    with pytest.raises(sg.GraphError, match="at most one derivative by a or b"):
        sg.gradients(by_a, [b])
    for function in (sg.gammainc, sg.gammaincc):
        by_a, by_x = sg.gradients(function(a, x), [a, x])
        sg.gradients(by_a, [x])
        sg.gradients(by_x, [a, x])
        with pytest.raises(sg.GraphError, match="at most one derivative by a"):
            sg.gradients(by_a, [a])
