"""``sg.minimize`` between bounds, and its callbacks, beside SciPy's L-BFGS-B."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import optimize
from support.squares import PROBLEMS

import staticgrad as sg

Array = np.ndarray[Any, Any]


def rosenbrock(x: Any) -> Any:
    return sg.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def obstacle(x: Any) -> Any:
    """The energy of a membrane of 10 by 10 points under load: J. J. Moré & G. Toraldo, On the solution of large
    quadratic programming problems with bound constraints, SIAM J. Optim. 1 (1991)."""
    u = sg.pad(x.reshape(10, 10), ((1, 1), (1, 1)))
    across, down = u[1:] - u[:-1], u[:, 1:] - u[:, :-1]
    return 0.5 * (sg.sum(across**2) + sg.sum(down**2)) - sg.sum(u) / 121


def torsion(x: Any) -> Any:
    """The stress in a twisted bar, of the same source."""
    u = sg.pad(x.reshape(10, 10), ((1, 1), (1, 1)))
    return 0.5 * (sg.sum((u[1:] - u[:-1]) ** 2) + sg.sum((u[:, 1:] - u[:, :-1]) ** 2)) - 5.0 * sg.sum(u) / 121


def quadratic(x: Any) -> Any:
    k = sg.astype(sg.arange(1, x.size + 1), x.dtype)
    return sg.sum(k * (x - 3 * sg.sin(k)) ** 2) + 0.5 * sg.sum(x[1:] * x[:-1])


POINTS = np.stack(np.meshgrid(*[np.arange(1, 11) / 11] * 2), -1)
BELOW = (np.sin(9.2 * POINTS[..., 0]) * np.sin(9.3 * POINTS[..., 1])).ravel()
WALL = np.minimum(POINTS, 1 - POINTS).min(-1).ravel()

CASES: dict[str, tuple[Any, Array, Any, Any]] = {
    "all above": (rosenbrock, np.zeros(4), -np.inf, 0.5),
    "some at bounds": (rosenbrock, np.full(30, -1.0), -2.0, 0.8),
    "all below": (rosenbrock, np.full(20, 3.0), 1.2, np.inf),
    "never met": (rosenbrock, np.zeros(5), -10.0, 10.0),
    "one side each": (rosenbrock, np.array([-1.2, 1, 2]), [-np.inf, 1.5, -np.inf], [0.5, np.inf, np.inf]),
    "many at once": (quadratic, np.zeros(50), -1.0, 2.0),
    "held": (quadratic, np.zeros(6), [0, 1, -1, -5, -5, -5], [0, 1, 5, 5, 5, 5]),
    "begins outside": (quadratic, np.full(10, 9.0), -1.0, 1.0),
    "obstacle": (obstacle, np.maximum(0, BELOW**3), BELOW**3, BELOW**2 + 0.02),
    "torsion": (torsion, np.zeros(100), -WALL, WALL),
}


def scipy_minimum(fn: Any, x0: Array, lower: Any, upper: Any) -> Any:
    both = sg.value_and_grad(fn)
    bounds = optimize.Bounds(np.broadcast_to(lower, x0.shape), np.broadcast_to(upper, x0.shape))
    return optimize.minimize(
        lambda x: tuple(np.asarray(a)[()] for a in both(x)), x0, jac=True, method="L-BFGS-B", bounds=bounds,
        options={"gtol": 1e-7, "ftol": 1e-14, "maxiter": 1000},
    )  # fmt: skip


@pytest.mark.share(2)
@pytest.mark.parametrize("case", CASES)
def test_minima_between_bounds(case: str) -> None:
    fn, x0, lower, upper = CASES[case]
    found = sg.minimize(fn, x0, bounds=(lower, upper), gtol=1e-6, ftol=1e-12)
    other = scipy_minimum(fn, x0, lower, upper)
    assert found.success, found
    assert ((found.x >= lower) & (found.x <= upper)).all()
    np.testing.assert_allclose(found.fun, other.fun, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.x, other.x, rtol=1e-4, atol=1e-4)
    left = np.clip(found.x - found.jac, lower, upper) - found.x
    assert np.abs(left).max() < 1e-4
    assert found.nfev == found.njev <= 1.5 * other.nfev + 10


@pytest.mark.share(4)
@pytest.mark.parametrize("name", ["Bard", "Beale", "Brown and Dennis", "Helical valley", "Kowalik and Osborne",
                                  "Penalty I, 4", "Watson, 6", "Wood"])  # fmt: skip
def test_sums_of_squares_between_bounds(name: str) -> None:
    problem, rng = PROBLEMS[name], np.random.default_rng(len(name))
    x0 = np.array(problem.start, float)
    lower, upper = x0 - rng.uniform(0.1, 1, x0.size), x0 + rng.uniform(0.1, 1, x0.size)

    def fn(x: Any) -> Any:
        return sg.sum(problem.residuals(sg, x) ** 2)

    found = sg.minimize(fn, x0, bounds=(lower, upper), gtol=1e-8, ftol=1e-15)
    squares = sg.least_squares(lambda x: problem.residuals(sg, x), x0, bounds=(lower, upper), ftol=1e-14, gtol=1e-10)
    assert ((found.x >= lower) & (found.x <= upper)).all()
    assert found.fun <= 2 * squares.cost * (1 + 1e-6) + 1e-9


def test_forms_of_bounds() -> None:
    want = sg.minimize(quadratic, np.zeros(3), bounds=(-1.0, 1.0)).x
    forms: list[Any] = [
        optimize.Bounds(-1, 1), [(-1, 1)] * 3, ([-1.0] * 3, np.ones(3)), np.array([[-1.0, 1.0]] * 3),
    ]  # fmt: skip
    for bounds in forms:
        np.testing.assert_array_equal(sg.minimize(quadratic, np.zeros(3), bounds=bounds).x, want)
    some = sg.minimize(quadratic, np.zeros(3), bounds=[(-1, None), (None, 1), [-1, 1]]).x
    assert some[0] > 1
    np.testing.assert_allclose(some[1:], want[1:], atol=1e-4)
    above = sg.minimize(quadratic, np.zeros(3), bounds=SimpleNamespace(lb=[-1, -1, -1], ub=None)).x
    np.testing.assert_allclose(above, np.maximum(-1, above))

    def square(x: Any) -> Any:
        return sg.sum((x - 3) ** 2)

    by_element: list[Any] = [[(0, 1), (0, 2)], ((0, 1), [0, 2]), np.array([[0.0, 1.0], [0.0, 2.0]])]
    for bounds in by_element:  # as SciPy reads them
        assert sg.minimize(square, np.zeros(2), bounds=bounds).x.tolist() == [1, 2]
    assert sg.minimize(square, np.zeros(2), bounds=(np.zeros(2), np.array([1.0, 2.0]))).x.tolist() == [1, 2]
    held = sg.minimize(square, np.zeros(2), bounds=(1, 1))
    assert (held.x.tolist(), held.nit, held.success) == ([1, 1], 0, True)
    matrix = sg.minimize(square, np.zeros((2, 3)), bounds=(0, [1, 2, 4]))
    np.testing.assert_allclose(matrix.x, [[1, 2, 3]] * 2, atol=1e-5)
    lone = sg.minimize(square, np.array(0.0), bounds=(None, 2.0))
    assert lone.x == 2
    single = sg.minimize(square, np.zeros(3, np.float32), bounds=(0, 2))
    assert (single.x.dtype, single.x.tolist()) == (np.float32, [2, 2, 2])


def test_a_loss_between_bounds(g: sg.Graph) -> None:
    a = sg.Variable(np.zeros(3, np.float32), name="a")
    b = sg.Variable(np.zeros((2, 2)), name="b")
    c = sg.Variable(np.float64(0), name="c")
    loss = sg.sum((a.astype(sg.float64) - 1) ** 2) + sg.sum((b - 2) ** 2) + (c - sg.sum(b)) ** 2
    found = sg.minimize(loss, bounds={"a": (None, [0.5, 2.0, 2.0]), "b": (0.0, 1.5)}, gtol=1e-9, ftol=0.0)
    np.testing.assert_allclose(found.x["a"], [0.5, 1, 1], rtol=1e-6)
    np.testing.assert_allclose(found.x["b"], 1.5)
    np.testing.assert_allclose(found.x["c"], 6, rtol=1e-6)
    assert [found.x[name].dtype for name in "abc"] == [np.float32, np.float64, np.float64]
    listed = sg.minimize(loss, wrt=[b, c], bounds=[(0.0, 1.5), None], gtol=1e-9)
    np.testing.assert_allclose(listed.x[0], 1.5)
    one = sg.minimize(loss, wrt=c, bounds=(1, None))
    assert one.x == 1
    for bounds in ({"d": (0, 1)}, [(0, 1)] * 3):
        with pytest.raises(sg.GraphError, match=r"expected bounds by the names \['a', 'b', 'c'\]"):
            sg.minimize(loss, bounds=bounds)
    with pytest.raises(sg.GraphError, match=r"expected bounds for 2 parts"):
        sg.minimize(loss, wrt=[b, c], bounds=[(0, 1)])
    with pytest.raises(sg.GraphError, match=r"bounds\['b'\]: upper: expected numbers for x of shape \(2, 2\)"):
        sg.minimize(loss, bounds={"b": (0, [1, 2, 3])})


def test_bounds_that_make_no_sense_are_refused() -> None:
    for message, options in {
        "expected lower bounds at most upper ones, actual 1.0 and 0.0 of x": {"bounds": (1, 0)},
        r"actual 2.0 and 1.0 of x\[1\]": {"bounds": [(0, 1), (2, 1), (0, 1)]},
        "bounds go with method 'lbfgs'": {"bounds": (0, 1), "method": "newton-cg"},
        "expected an object with lb and ub, or a pair .*, or a pair for each element of x": {"bounds": [1, 2, 3]},
        "bounds: lower: expected numbers for x of shape": {"bounds": ("a", 1)},
    }.items():
        with pytest.raises(sg.GraphError, match=message):
            sg.minimize(quadratic, np.zeros(3), **options)


# -- callbacks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"bounds": (-2.0, 0.8)}, {"method": "newton-cg"}], ids=str)
def test_callbacks_are_told_and_stop(options: dict[str, Any]) -> None:
    seen: list[Any] = []

    def note(intermediate_result: Any) -> None:
        seen.append(intermediate_result)

    found = sg.minimize(rosenbrock, np.zeros(4), callback=note, **options)
    assert [r.nit for r in seen] == list(range(1, found.nit + 1))
    np.testing.assert_array_equal(seen[-1].x, found.x)
    assert seen[-1].fun == found.fun
    assert seen[-1].nfev == found.nfev
    count = 0

    def stop(x: Array) -> bool:
        nonlocal count
        count += 1
        return count == 3

    ended = sg.minimize(rosenbrock, np.zeros(4), callback=stop, **options)
    assert (ended.nit, ended.status, ended.success) == (3, 99, False)
    assert ended.message == "the callback ended the search"

    def fail(x: Array) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sg.minimize(rosenbrock, np.zeros(4), callback=fail, **options)


def test_callbacks_of_a_loss_get_nests(g: sg.Graph) -> None:
    w = sg.Variable(np.zeros(2, np.float32), name="w")
    seen: list[Any] = []
    sg.minimize(sg.sum((w - 3) ** 2), callback=seen.append, bounds={"w": (0, 2)})
    assert list(seen[-1]) == ["w"]
    assert (seen[-1]["w"].dtype, seen[-1]["w"].tolist()) == (np.float32, [2, 2])
