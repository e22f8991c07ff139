"""``sg.minimize`` beside SciPy and known minima."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import optimize

import staticgrad as sg
from staticgrad.functions.minimization.problem import DeclaredProblem
from staticgrad.optim.quasi_newton import CURVATURE, line_search

Array = np.ndarray[Any, Any]
METHODS = ("lbfgs", "newton-cg")


def rosenbrock(x: Any) -> Any:
    return sg.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def beale(x: Any) -> Any:
    a, b = x[0], x[1]
    return (1.5 - a + a * b) ** 2 + (2.25 - a + a * b**2) ** 2 + (2.625 - a + a * b**3) ** 2


def quadratic(x: Any) -> Any:
    return sg.sum(sg.astype(sg.arange(1, x.size + 1), x.dtype) * (x.reshape(-1) - 3) ** 2)


def barrier(x: Any) -> Any:
    """Not a number where an element is not positive."""
    return sg.sum(x - sg.log(x))


PROBLEMS: dict[str, tuple[Callable[[Any], Any], Array, Array]] = {
    "rosenbrock": (rosenbrock, np.array([-1.2, 1.0]), np.ones(2)),
    "rosenbrock of 30": (rosenbrock, np.zeros(30), np.ones(30)),
    "beale": (beale, np.array([1.0, 1.0]), np.array([3.0, 0.5])),
    "quadratic of a matrix": (quadratic, np.zeros((3, 4)), np.full((3, 4), 3.0)),
    "quadratic of a number": (lambda x: (x - 3) ** 2, np.array(10.0), np.array(3.0)),
    "a steep start": (lambda x: sg.sum(sg.exp(x) - x), np.array([30.0, -30.0]), np.zeros(2)),
    "a barrier": (barrier, np.array([0.01, 50.0]), np.ones(2)),
    "a saddle": (lambda x: x[0] ** 4 - x[0] ** 2 + x[1] ** 2, np.array([0.01, 1.0]), np.array([0.5**0.5, 0])),
}  # fmt: skip


@pytest.mark.share(2)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_known_minima(problem: str, method: Any) -> None:
    fn, start, want = PROBLEMS[problem]
    found = sg.minimize(fn, start, method, gtol=1e-7, ftol=0.0)
    assert found.success, found
    assert found.status == 0
    assert found.message == "the gradient is below gtol"
    np.testing.assert_allclose(found.x, want, rtol=1e-5, atol=1e-5)
    assert found.x.shape == found.jac.shape == start.shape
    value, slope = sg.value_and_grad(fn)(found.x)
    np.testing.assert_allclose(found.fun, value, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found.jac, slope, rtol=1e-9, atol=1e-12)
    assert np.abs(found.jac).max() <= 1e-7
    if start.size > 1:
        other = optimize.minimize(sg.value_and_grad(fn), start, jac=True, method="L-BFGS-B", options={"gtol": 1e-7}) \
            if start.ndim == 1 else None  # fmt: skip
        if other is not None and problem not in ("a barrier", "a saddle"):
            assert found.nfev <= 2 * other.nfev + 20


def test_float32_and_tolerances() -> None:
    found = sg.minimize(rosenbrock, np.zeros(3, np.float32))
    assert found.success
    assert found.x.dtype == np.float32
    np.testing.assert_allclose(found.x, np.ones(3), atol=0.05)
    rough, fine = (sg.minimize(quadratic, np.zeros(5), gtol=gtol, ftol=0.0) for gtol in (1.0, 1e-9))
    assert rough.nit < fine.nit
    assert np.abs(rough.jac).max() <= 1
    early = sg.minimize(rosenbrock, np.zeros(5), ftol=0.5)
    assert early.message == "the value changed by less than ftol"


def test_data_is_an_argument_and_compiles_nothing() -> None:
    declared = []

    def misfit(w: Any, data: Any) -> Any:
        declared.append(w.type)
        return sg.mean((data["x"] @ w - data["y"]) ** 2)

    rng = np.random.default_rng(0)
    first = 0
    for number in range(4):
        x, w = rng.normal(size=(50, 3)), rng.normal(size=3)
        found = sg.minimize(misfit, np.zeros(3), args=({"x": x, "y": x @ w},), gtol=1e-10, ftol=0.0)
        np.testing.assert_allclose(found.x, w, atol=1e-8)
        first = len(declared) if number == 0 else first
    assert len(declared) == first


def test_how_a_search_may_end() -> None:
    short = sg.minimize(rosenbrock, np.zeros(10), maxiter=3)
    assert (short.nit, short.success, short.message) == (3, False, "maxiter iterations were made")
    assert short.fun < 9
    there = sg.minimize(rosenbrock, np.ones(4))
    assert (there.nit, there.nfev, there.success) == (0, 1, True)
    for start in (np.array([-1.0]), np.array([np.nan])):
        wrong = sg.minimize(barrier, start)
        assert (wrong.nit, wrong.success) == (0, False)
        assert wrong.message == "the value or the gradient at x0 is not finite"
    lied = sg.minimize(lambda x: sg.sum(x) - 2 * sg.sum(x.detach()), np.ones(2))  # the gradient points the wrong way
    assert (lied.success, lied.message) == (False, "the line search found no lower value")
    np.testing.assert_array_equal(lied.x, np.ones(2))


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(sg.GraphError, match="expected a method of 'lbfgs', 'newton-cg', actual 'bfgs'"):
        sg.minimize(rosenbrock, np.zeros(2), "bfgs")  # type: ignore[arg-type]
    with pytest.raises(sg.GraphError, match="x0: expected float32 or float64, actual int64"):
        sg.minimize(rosenbrock, [1, 2])
    with pytest.raises(sg.GradientError, match="expected a function to one number"):
        sg.minimize(lambda x: x, np.zeros(2))


# -- declared losses ---------------------------------------------------------------------------------------------------


def logistic() -> tuple[sg.Tensor, sg.Tensor, sg.Tensor, dict[str, Any]]:
    """A loss of a network of one layer, its placeholders, and data."""
    x, t = sg.placeholder((None, 5), sg.float64), sg.placeholder((None,), sg.float64)
    w, b = sg.Variable(np.zeros(5), name="w"), sg.Variable(np.zeros(()), name="b")
    rate = sg.Variable(np.array(0.1), name="rate", trainable=False)
    logits = x @ w + b
    loss = sg.mean(sg.nn.softplus(logits) - t * logits) + rate * (sg.sum(w * w) + b * b)
    rng = np.random.default_rng(0)
    data = rng.normal(size=(40, 5))
    return loss, x, t, {"x": data, "t": (data @ [1, -2, 0.5, 0, 3] > 0.3).astype(np.float64)}


@pytest.mark.parametrize("method", METHODS)
def test_a_loss_is_minimized_over_its_variables(g: sg.Graph, method: Any) -> None:
    loss, x, t, data = logistic()
    feeds = {x: data["x"], t: data["t"]}
    version, session = g.version, sg.Session(g)
    found = sg.minimize(loss, method=method, feeds=feeds, gtol=1e-9, ftol=0.0)
    assert found.success, found
    assert list(found.x) == list(found.jac) == ["w", "b"]
    assert g.version == version

    def numpy_loss(flat: Array) -> Any:
        z = data["x"] @ flat[:5] + flat[5]
        return np.mean(np.logaddexp(0, z) - data["t"] * z) + 0.1 * flat @ flat

    other = optimize.minimize(numpy_loss, np.zeros(6), tol=1e-12)
    np.testing.assert_allclose(np.append(found.x["w"], found.x["b"]), other.x, atol=1e-5)
    np.testing.assert_allclose(found.fun, other.fun, rtol=1e-9)
    assert session.get(g.variables["w"]).tolist() == [0] * 5  # nothing is written
    for name, value in found.x.items():
        session.set(g.variables[name], value)
    again = sg.minimize(loss, method=method, feeds=feeds, session=session, gtol=1e-8)
    assert (again.nit, again.nfev) == (0, 1)
    session.set(g.variables["rate"], 10.0)
    assert np.abs(sg.minimize(loss, method=method, feeds=feeds, session=session).x["w"]).max() < 0.1
    by_b = sg.minimize(loss, method=method, wrt=[g.variables["b"]], x0=[1.0], feeds=feeds, gtol=1e-9, ftol=0.0)
    np.testing.assert_allclose(by_b.jac[0], 0, atol=1e-9)


def test_a_loss_is_declared_and_compiled_once_for_a_shape(g: sg.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    loss, x, t, data = logistic()
    made = []
    plain = DeclaredProblem._declared
    monkeypatch.setattr(DeclaredProblem, "_declared", lambda *given: made.append(1) or plain(*given))
    for count in (40, 40, 30, 40):
        sg.minimize(loss, feeds={x: data["x"][:count], t: data["t"][:count]})
    assert len(made) == 2


def test_hooks_rules_loops_and_random_numbers_of_a_loss(g: sg.Graph) -> None:
    @sg.custom_gradient
    def cube(x: Any) -> Any:
        return x**3, lambda ct: ct * 3 * x * x

    w = sg.Variable(np.array([3.0, 2.0]), name="w")
    far, _ = sg.scan(lambda c, _: (c * 0.5 + w, None), w, length=3)
    noise = sg.random.normal((2,), dtype=sg.float64)
    inner = sg.checkpoint(lambda a: sg.sum((cube(a) - 8.0) ** 2), far)
    branch = sg.cond(w[0] > 0, lambda: w[1] ** 2, lambda: w[1] ** 4)
    loss = inner + 0.0 * branch + 0.0 * sg.sum(noise * w)
    for method in METHODS:
        found = sg.minimize(loss, method=method, gtol=1e-8, ftol=0.0)
        assert found.success, found
        np.testing.assert_allclose(found.x["w"] * 1.875, [2, 2], rtol=1e-6)
    noisy = sg.sum((w - noise) ** 2)
    drawn = sg.minimize(noisy, gtol=1e-9, ftol=0.0)
    assert drawn.success  # the numbers are the same at every point
    assert drawn.fun < 1e-15
    assert np.unique(drawn.x["w"]).size == 2
    w.register_hook(lambda grad: grad * sg.constant(np.array([1.0, 0.0])))
    held = sg.minimize(sg.sum((w - 7) ** 2), gtol=1e-9)
    np.testing.assert_allclose(held.x["w"], [7, 2])


def test_a_loss_may_have_variables_of_several_dtypes(g: sg.Graph) -> None:
    a, b = sg.Variable(np.zeros(3, np.float32), name="a"), sg.Variable(np.zeros((2, 2)), name="b")
    c = sg.Variable(np.zeros(2), dtype=sg.bfloat16, name="c")
    loss = sg.sum((a.astype(sg.float64) - 1) ** 2) + sg.sum((b - 2) ** 2) + sg.sum((c.astype(sg.float64) - 3) ** 2)
    for method in METHODS:
        found = sg.minimize(loss, method=method)
        assert [found.x[name].dtype for name in "abc"] == [sg.float32, sg.float64, sg.bfloat16]
        for name, value in zip("abc", (1, 2, 3), strict=True):
            np.testing.assert_allclose(found.x[name].astype(np.float64), value, rtol=0.01)


def test_losses_that_cannot_be_minimized_are_refused(g: sg.Graph) -> None:
    loss, x, t, data = logistic()
    w, feeds = g.variables["w"], {x: data["x"], t: data["t"]}
    with pytest.raises(sg.FeedError, match="placeholder"):
        sg.minimize(loss)
    with pytest.raises(sg.GradientError, match="expected a loss of one floating number"):
        sg.minimize(x @ w, feeds=feeds)
    with pytest.raises(sg.GraphError, match="depends on no trainable variable"):
        sg.minimize(sg.sum(x), feeds=feeds)
    with pytest.raises(sg.GraphError, match="'placeholder' is no variable: x0 says where to begin"):
        sg.minimize(sg.sum(x), wrt=x, feeds={})
    with pytest.raises(sg.GraphError, match="is fed and in wrt"):
        sg.minimize(loss, wrt=x, feeds=feeds)
    with pytest.raises(sg.GraphError, match="expected floating variables or placeholders"):
        sg.minimize(loss, wrt=[x * 2], feeds=feeds)
    with pytest.raises(sg.GraphError, match="there twice"):
        sg.minimize(loss, wrt=[w, w], feeds=feeds)
    with pytest.raises(sg.GraphError, match="args are for functions"):
        sg.minimize(loss, args=(1,), feeds=feeds)
    with pytest.raises(sg.GraphError, match="feeds is for a declared loss"):
        sg.minimize(rosenbrock, np.zeros(2), feeds=feeds)
    with pytest.raises(sg.GraphError, match="nests differ"):
        sg.minimize(loss, x0={"w": np.zeros(5)}, feeds=feeds)
    with pytest.raises(sg.GraphError, match="history=0: expected an int of at least 1"):
        sg.minimize(rosenbrock, np.zeros(2), history=0)
    with pytest.raises((sg.GraphError, sg.GradientError)):
        sg.minimize(loss, wrt=sg.Variable(np.zeros(2)), feeds=feeds)
    layer = sg.nn.BatchNorm1d(5)
    normed = sg.sum(layer(x.astype(sg.float32)) @ w.astype(sg.float32))
    with pytest.raises(sg.GraphError, match=r"the loss writes a variable.*batch norm in training mode"):
        sg.minimize(normed, feeds=feeds)


# -- line searches -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [1e-6, 0.1, 1.0, 10.0, 1e4])
@pytest.mark.parametrize(
    "fn",
    [
        lambda a: -a / (a * a + 2),  # Moré and Thuente, Line Search Algorithms with Guaranteed Sufficient Decrease
        lambda a: (a + 0.004) ** 5 - 2 * (a + 0.004) ** 4,
        lambda a: sg.sqrt(1e-6 + (1 - a) ** 2) * 0.5 + sg.sqrt(1e-6 + a * a) * 1e-3,
    ],
)
def test_line_searches_end_where_the_strong_wolfe_conditions_hold(fn: Callable[[Any], Any], first: float) -> None:
    both = sg.value_and_grad(lambda x: fn(x[0]))

    def search(start: Any, at: Any) -> Any:
        def fg(x: Any) -> Any:
            value, slope = both(x[0])
            return value, (slope,)

        f, (g,) = fg((start,))
        return *line_search(fg, (start,), (-g / sg.abs(g),), f, (g,), -sg.abs(g[0]), at), f, g

    a, f, (g,), count, f0, g0 = sg.function(search)(np.array([0.0]), np.array(first))
    assert a > 0
    assert count <= 25
    assert f <= f0 - 1e-4 * a * abs(g0[0])
    assert abs(g[0]) <= CURVATURE * abs(g0[0])
