"""``sg.least_squares`` beside SciPy, certified regressions and known minima."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import optimize
from support.regressions import MODELS, regression
from support.squares import PROBLEMS, NumPyNames, is_minimum

import staticgrad as sg

Array = np.ndarray[Any, Any]
METHODS = ("trf", "lm")
TIMES = np.linspace(0, 4, 20)
DATA = 3.0 * np.exp(-0.7 * TIMES) + 0.5 + 0.05 * np.sin(9 * TIMES)


def decay(p: Any, t: Any, y: Any) -> Any:
    return p[0] * sg.exp(-p[1] * t) + p[2] - y


def decay_numpy(p: Array, t: Array, y: Array) -> Array:
    return p[0] * np.exp(-p[1] * t) + p[2] - y


def slopes_numpy(p: Array, t: Array, y: Array) -> Array:
    return np.stack([np.exp(-p[1] * t), -t * p[0] * np.exp(-p[1] * t), np.ones_like(t)], 1)


# -- known answers -----------------------------------------------------------------------------------------------------


@pytest.mark.share(9)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", MODELS)
def test_certified_regressions(name: str, method: Any) -> None:
    r = regression(name)
    for number, start in enumerate(r.starts):
        found = sg.least_squares(
            lambda b, x, y: r.residuals(sg, b, x, y), start, args=(r.x, r.y), method=method, x_scale="jac", ftol=1e-15,
            xtol=1e-14, gtol=1e-15, max_nfev=3000,
        )  # fmt: skip
        assert found.success, found
        if (name, number, method) == ("BoxBOD", 0, "lm"):
            continue  # Moré's method leaves for where the curve is flat from this start, MINPACK's too
        assert r.digits(found.x) >= 6, (start, found.x)
        if name != "Lanczos1":  # whose residuals are rounding errors of the data
            assert r.digits_of_deviation(float(found.cost)) >= 9


@pytest.mark.share(11)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_minima_of_standard_problems(name: str, method: Any) -> None:
    problem, start = PROBLEMS[name], np.array(PROBLEMS[name].start, float)
    found = sg.least_squares(
        lambda x: problem.residuals(sg, x), start, method=method, x_scale="jac", ftol=1e-12, xtol=1e-12, gtol=1e-12,
        max_nfev=3000,
    )  # fmt: skip
    assert found.success
    assert is_minimum(name, 2 * float(found.cost)), found
    np.testing.assert_allclose(found.fun, problem.residuals(NumPyNames, found.x), rtol=1e-9, atol=1e-9)


# -- beside SciPy ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"method": "lm"},
        {"x_scale": "jac"},
        {"x_scale": [1.0, 0.1, 10.0]},
        {"bounds": (0.0, [2.0, np.inf, np.inf])},
        {"bounds": ([-np.inf, 0.9, 0.2], 10.0), "x_scale": "jac"},
        {"bounds": optimize.Bounds([0.5, 0.5, 0.5], [1.5, 1.5, 1.5])},
        {"loss": "soft_l1", "f_scale": 0.02},
        {"loss": "huber", "f_scale": 0.02},
        {"loss": "cauchy", "f_scale": 0.1, "bounds": (0.0, 5.0)},
        {"loss": "arctan", "f_scale": 0.1},
    ],
    ids=str,
)
def test_points_and_evaluations_are_those_of_scipy(options: dict[str, Any]) -> None:
    found = sg.least_squares(decay, np.ones(3), args=(TIMES, DATA), **options)
    other = optimize.least_squares(decay_numpy, np.ones(3), jac=slopes_numpy, args=(TIMES, DATA), **options)
    assert (found.success, found.status) == (other.success, other.status)
    assert abs(found.nfev - other.nfev) <= 1
    np.testing.assert_allclose(found.x, other.x, rtol=1e-6)
    np.testing.assert_allclose(found.cost, other.cost, rtol=1e-9)
    np.testing.assert_allclose(found.fun, other.fun, atol=1e-6)
    np.testing.assert_allclose(found.jac, other.jac, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.grad, other.grad, atol=1e-5)
    np.testing.assert_array_equal(found.active_mask, other.active_mask)
    assert 0 <= found.optimality <= max(10 * other.optimality, 1e-8)


def test_bounded_problems() -> None:
    rng = np.random.default_rng(0)
    for name in ("Rosenbrock", "Beale", "Bard", "Helical valley", "Wood", "Watson, 6"):
        problem = PROBLEMS[name]
        start = np.array(problem.start, float)
        lower, upper = start - rng.uniform(0.1, 1, start.size), start + rng.uniform(0.1, 1, start.size)

        def residuals(x: Any, problem: Any = problem) -> Any:
            return problem.residuals(sg, x)

        found = sg.least_squares(residuals, start, bounds=(lower, upper), ftol=1e-14, gtol=1e-9)
        assert found.success
        assert ((lower < found.x) & (found.x < upper)).all()
        other = optimize.least_squares(
            lambda x, problem=problem: problem.residuals(NumPyNames, x), start, bounds=(lower, upper), gtol=1e-9
        )
        assert found.cost <= other.cost * (1 + 1e-7) + 1e-12
        assert found.optimality < 1e-6


def test_a_loss_may_be_a_function() -> None:
    named = sg.least_squares(decay, np.ones(3), args=(TIMES, DATA), loss="cauchy", f_scale=0.1)
    given = sg.least_squares(decay, np.ones(3), args=(TIMES, DATA), loss=sg.log1p, f_scale=0.1)
    assert (named.x == given.x).all()
    with pytest.raises(sg.GradientError, match=r"loss: expected a function of z to ρ\(z\)"):
        sg.least_squares(decay, np.ones(3), args=(TIMES, DATA), loss=sg.sum)


# -- shapes, dtypes, ends ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_points_and_residuals_of_any_shape(method: Any) -> None:
    want = np.arange(6.0).reshape(2, 3)

    def residuals(x: Any) -> Any:
        return sg.stack([x - want, (x - want) ** 2], axis=0)

    found = sg.least_squares(residuals, np.ones((2, 3)), method=method)
    np.testing.assert_allclose(found.x, want, atol=1e-6)
    assert found.fun.shape == (2, 2, 3)
    assert found.jac.shape == (2, 2, 3, 2, 3)
    assert found.grad.shape == found.active_mask.shape == (2, 3)
    lone = sg.least_squares(lambda x: x * x - 2.0, np.array(1.0), method=method)
    np.testing.assert_allclose(lone.x, 2**0.5, rtol=1e-7)
    assert lone.x.shape == lone.jac.shape == ()


def test_fewer_residuals_than_variables() -> None:
    found = sg.least_squares(lambda x: sg.sum(x * x, axis=0, keepdims=True) - 1.0, np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(found.x @ found.x, 1, rtol=1e-7)
    held = sg.least_squares(lambda x: x[:1] + x[1:] - 1.0, np.array([1.0, 2.0]), bounds=(0.7, 5.0))
    assert held.success
    np.testing.assert_allclose(held.x, 0.7, rtol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_float32(method: Any) -> None:
    found = sg.least_squares(decay, np.ones(3, np.float32), args=(TIMES.astype("f"), DATA.astype("f")), method=method)
    other = optimize.least_squares(decay_numpy, np.ones(3), args=(TIMES, DATA))
    assert found.success
    assert found.x.dtype == found.fun.dtype == found.jac.dtype == found.cost.dtype == np.float32
    np.testing.assert_allclose(found.x, other.x, rtol=2e-3)
    np.testing.assert_allclose(found.cost, other.cost, rtol=1e-4)
    if method == "trf":
        near = sg.least_squares(
            decay, np.ones(3, "f"), args=(TIMES.astype("f"), DATA.astype("f")), bounds=(0, [2, 9, 9])
        )
        assert near.active_mask.tolist() == [1, 0, 0]
        assert near.x[0] < 2


@pytest.mark.parametrize("method", METHODS)
def test_how_a_search_may_end(method: Any) -> None:
    def roots(x: Any) -> Any:
        return sg.sqrt(x) - 2.0

    wrong = sg.least_squares(roots, np.array([-1.0, 1.0]), method=method)
    assert (wrong.status, wrong.success, wrong.nfev) == (-1, False, 1)
    assert wrong.message == "the residuals or their derivatives are not finite at x"
    assert sg.least_squares(roots, np.array([np.nan, 1.0]), method=method).status == -1
    short = sg.least_squares(decay, np.ones(3), args=(TIMES, DATA), method=method, max_nfev=3)
    assert (short.status, short.success, short.nfev) == (0, False, 3)
    one = sg.least_squares(decay, np.ones(3), args=(TIMES, DATA), method=method, max_nfev=1)
    assert (one.status, one.nfev, one.njev, one.nit) == (0, 1, 1, 0)
    np.testing.assert_array_equal(one.x, np.ones(3))
    there = sg.least_squares(lambda x: x - 1.0, np.ones(2), method=method)
    assert (there.status, there.nit, there.cost) == (1, 0, 0)
    # A step into what is not finite is shortened.
    far = sg.least_squares(lambda x: sg.stack([sg.log(x[0]) + 3.0, x[1] - 1]), np.array([5.0, 0.0]), method=method)
    np.testing.assert_allclose(far.x, [np.exp(-3), 1], rtol=1e-6)


# -- callbacks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_callbacks_are_told_and_stop(method: Any) -> None:
    seen: list[Any] = []

    def note(intermediate_result: Any) -> None:
        seen.append(intermediate_result)

    plain = sg.least_squares(decay, np.ones(3), args=(TIMES, DATA), method=method)
    found = sg.least_squares(decay, np.ones(3), args=(TIMES, DATA), method=method, callback=note)
    np.testing.assert_allclose(found.x, plain.x, rtol=1e-9)
    assert [r.nit for r in seen] == list(range(1, found.nit + 1))
    assert [r.cost for r in seen] == sorted([r.cost for r in seen], reverse=True)
    np.testing.assert_array_equal(seen[-1].x, found.x)
    np.testing.assert_allclose(0.5 * np.sum(seen[-1].fun ** 2), found.cost, rtol=1e-12)
    assert seen[-1].nfev == found.nfev

    points: list[Array] = []

    def stop(x: Array) -> None:
        points.append(x)
        if len(points) == 2:
            raise StopIteration

    ended = sg.least_squares(decay, np.ones(3), args=(TIMES, DATA), method=method, callback=stop)
    assert (ended.status, ended.success, ended.nit) == (-2, False, 2)
    np.testing.assert_array_equal(points[-1], ended.x)

    def fail(x: Array) -> None:
        points.clear()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        sg.least_squares(decay, np.ones(3), args=(TIMES, DATA), method=method, callback=fail)


def test_callbacks_of_searches_in_callbacks() -> None:
    inner: list[int] = []

    def outer(x: Array) -> bool:
        sg.least_squares(decay, x, args=(TIMES, DATA), callback=lambda x: inner.append(1))
        return len(inner) > 2

    sg.least_squares(decay, np.ones(3), args=(TIMES, DATA), callback=outer)
    assert len(inner) > 2


# -- declared residuals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_declared_residuals(g: sg.Graph, method: Any) -> None:
    t, y = sg.placeholder((None,), sg.float64, name="t"), sg.placeholder((None,), sg.float64, name="y")
    amplitude, rate = sg.Variable(np.ones(()), name="amplitude"), sg.Variable(np.ones(()), name="rate")
    offset = sg.Variable(np.ones(1, np.float32), name="offset")
    residuals = amplitude * sg.exp(-rate * t) + offset.astype(sg.float64) - y
    version = g.version
    want = optimize.least_squares(decay_numpy, np.ones(3), args=(TIMES, DATA))
    for count in (20, 19):
        found = sg.least_squares(residuals, feeds={t: TIMES[:count], y: DATA[:count]}, method=method)
        assert found.success
        assert found.jac["rate"].shape == (count,)
        assert found.jac["offset"].shape == (count, 1)
    assert g.version == version
    found = sg.least_squares(residuals, feeds={t: TIMES, y: DATA}, method=method)
    assert list(found.x) == ["amplitude", "rate", "offset"]
    np.testing.assert_allclose([found.x["amplitude"], found.x["rate"], found.x["offset"][0]], want.x, rtol=1e-4)
    assert found.x["offset"].dtype == np.float32
    some = sg.least_squares(residuals, [0.5], wrt=[rate], feeds={t: TIMES, y: DATA}, method=method)
    assert len(some.x) == 1
    if method == "trf":
        held = sg.least_squares(residuals, feeds={t: TIMES, y: DATA}, bounds={"rate": (0.9, 2.0)})
        np.testing.assert_allclose(held.x["rate"], 0.9, rtol=1e-4)
        assert held.active_mask["rate"] == -1
        assert held.active_mask["offset"].tolist() == [0]
        lows = SimpleNamespace(
            lb={"amplitude": None, "rate": 0.9, "offset": None}, ub={"amplitude": 9.0, "rate": None, "offset": [7.0]}
        )
        same = sg.least_squares(residuals, feeds={t: TIMES, y: DATA}, bounds=lows)
        np.testing.assert_allclose(same.x["amplitude"], held.x["amplitude"], rtol=1e-4)
        with pytest.raises(sg.GraphError, match=r"bounds: expected bounds by the names .*'rate'.*actual"):
            sg.least_squares(residuals, feeds={t: TIMES, y: DATA}, bounds={"ratio": (0.9, 2.0)})


def test_data_is_an_argument_and_compiles_nothing() -> None:
    declared = []

    def misfit(w: Any, data: Any) -> Any:
        declared.append(1)
        return data["x"] @ w - data["y"]

    rng, first = np.random.default_rng(0), 0
    for number in range(3):
        x, w = rng.normal(size=(30, 3)), rng.normal(size=3)
        found = sg.least_squares(misfit, np.zeros(3), args=({"x": x, "y": x @ w},), callback=lambda x: None)
        np.testing.assert_allclose(found.x, w, atol=1e-8)
        first = len(declared) if number == 0 else first
    assert len(declared) == first


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_what_makes_no_sense_is_refused(g: sg.Graph) -> None:
    data = {"args": (TIMES, DATA)}
    refused: list[tuple[str, dict[str, Any]]] = [
        ("expected a method of 'trf', 'lm', actual 'dogbox'", {"method": "dogbox"}),
        ("expected a loss of 'linear', .*actual 'l1'", {"loss": "l1"}),
        ("bounds and robust losses go with method 'trf'", {"method": "lm", "loss": "huber"}),
        ("bounds and robust losses go with method 'trf'", {"method": "lm", "bounds": (0, 1)}),
        ("max_nfev: expected an int of at least 1, actual 0", {"max_nfev": 0}),
        ("expected an f_scale above 0", {"f_scale": 0.0}),
        ("x_scale: expected 'jac' or numbers above 0", {"x_scale": -1.0}),
        ("x_scale: expected 'jac' or numbers like x", {"x_scale": [1.0, 2.0]}),
        ("expected lower bounds below upper ones, actual 2.0 and 1.0 of x", {"bounds": (2.0, 1.0)}),
        ("expected x0 between the bounds 2.0 and 3.0, actual 1.0 at x", {"bounds": (2.0, 3.0)}),
        ("bounds: lower: expected numbers for x of shape", {"bounds": ([1.0, 2.0], None)}),
        ("bounds: upper: expected numbers, actual NaN at x", {"bounds": (0.0, [2.0, np.nan, 2.0])}),
        ("expected an object with lb and ub, or a pair", {"bounds": [(0, 1)] * 3}),
        ("wrt is for a declared residual", {"wrt": 1}),
        ("callback: expected a function, actual 3", {"callback": 3}),
    ]
    for message, options in refused:
        with pytest.raises(sg.GraphError, match=message):
            sg.least_squares(decay, np.ones(3), **data, **options)
    with pytest.raises(sg.GraphError, match="x0: expected float32 or float64, actual int64"):
        sg.least_squares(decay, [1, 2, 3], **data)
    with pytest.raises(sg.GraphError, match="x0 has no element"):
        sg.least_squares(lambda x: x, np.zeros(0))
    with pytest.raises(sg.GradientError, match="expected a function to floating residuals, actual 3"):
        sg.least_squares(lambda x: 3, np.ones(2))
    with pytest.raises(sg.GradientError, match="expected floating residuals"):
        sg.least_squares(sg.constant([1, 2]))
    with pytest.raises(sg.GraphError, match="depends on no trainable variable"):
        sg.least_squares(sg.constant([1.0, 2.0]))
    with pytest.raises(sg.GraphError, match="args are for functions"):
        sg.least_squares(sg.constant([1.0, 2.0]), args=(1,))
