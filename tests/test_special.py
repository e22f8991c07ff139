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

import staticgrad as sg
from staticgrad.optable import FUNCTIONS

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


# -- references -----------------------------------------------------------------------------------------------------


def lower_gamma(a: Any, x: Any) -> Any:
    return mpmath.gammainc(a, 0, x, regularized=True)


def upper_gamma(a: Any, x: Any) -> Any:
    return mpmath.gammainc(a, x, mpmath.inf, regularized=True)


def slope(function: Callable[..., Any], place: int, *operands: Any) -> Any:
    """A central difference in many digits."""
    with mpmath.workdps(70):
        step = mpmath.mpf(10) ** -20 * (abs(operands[place]) + mpmath.mpf(10) ** -4)
        above, below = (function(*(x + sign * step * (i == place) for i, x in enumerate(operands))) for sign in (1, -1))
        return (above - below) / (2 * step)


def lower_gamma_by_a(a: Any, x: Any) -> Any:
    return slope(lower_gamma, 0, a, x) if x < a else -slope(upper_gamma, 0, a, x)


@dataclass(frozen=True)
class Case:
    """A function, its reference and operands; the bound on the error beside what the operands' rounding makes of it.

    ``bound`` is a relative error in units of the last place. ``moved`` says by how many such units the result changes
    if an operand changes by one: for arguments far from a peak no algorithm does better.
    """

    exact: Callable[..., Any]
    sample: Sample
    bound: float = 40.0
    moved: Callable[..., Array] = lambda *operands: np.zeros_like(operands[0])
    count: int = 24


def off_peak(a: Array, x: Array) -> Array:
    return np.abs(a - x) + a * (np.abs(np.log(x / a)) + 0.5)


CASES: dict[str, Case] = {
    "gammainc": Case(lower_gamma, gamma_operands, moved=off_peak),
    "gammaincc": Case(upper_gamma, gamma_operands, moved=off_peak),
    "gammainc_by_a": Case(lower_gamma_by_a, gamma_operands, 100.0, off_peak, count=8),
    "gamma_density": Case(
        lambda a, x: mpmath.exp((a - 1) * mpmath.log(x) - x - mpmath.loggamma(a)), gamma_operands, moved=off_peak
    ),
}


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
    got = run(getattr(FUNCTIONS, name), *operands).astype(float)
    compare(name, dtype, operands, got, want)


@pytest.mark.parametrize("name", CASES)
def test_references_agree_with_mpmath(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    operands, want = sampled(name, "float64")
    compare(name, "float64", operands, run(getattr(FUNCTIONS, name), *operands), want)


def compare(name: str, dtype: str, operands: Sequence[Array], got: Array, want: Array) -> None:
    case, info = CASES[name], np.finfo(dtype)
    unit = float(info.eps) / 2
    if dtype == "float32":  # computed in float64, rounded once, its loops ended at 2^-32
        allowed = 1.02 * unit * np.abs(want)
    else:
        allowed = unit * (case.bound + case.moved(*operands)) * np.abs(want)
    allowed = np.maximum(allowed, float(info.tiny) * (1.0 if dtype == "float32" else 1e3))
    error = np.abs(got - want)
    worst = int(np.argmax(np.nan_to_num(error / allowed, nan=np.inf)))
    where = [float(x[worst]) for x in operands]
    assert (error <= allowed).all(), f"{name}{where}: {got[worst]}, expected {want[worst]}"


# -- edges ----------------------------------------------------------------------------------------------------------

EDGES = (0.0, -0.0, 0.5, 1.0, 2.0, 30.0, 1e10, np.inf, -1.0, -np.inf, np.nan)


@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_edges_are_scipy_s(name: str, dtype: str) -> None:
    count = 2
    grid = [g.ravel().astype(dtype) for g in np.meshgrid(*[EDGES] * count)]
    got = run(getattr(FUNCTIONS, name), *grid)
    want = getattr(scipy.special, name)(*(g.astype(float) for g in grid)).astype(dtype)
    np.testing.assert_allclose(got, want, rtol=4e-7 if dtype == "float32" else 1e-13)


def test_the_second_derivative_of_gammainc_by_its_shape_is_refused() -> None:
    a, x = sg.placeholder((3,)), sg.placeholder((3,))
    for function in (sg.gammainc, sg.gammaincc):
        by_a, by_x = sg.gradients(function(a, x), [a, x])
        sg.gradients(by_a, [x])
        sg.gradients(by_x, [a, x])
        with pytest.raises(sg.GraphError, match="at most one derivative by a"):
            sg.gradients(by_a, [a])
