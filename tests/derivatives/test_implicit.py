"""``sg.root`` and ``sg.fixed_point``: what they find, how they end, and the derivatives that the equation gives."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.systems_of_equations import SYSTEMS

import staticgrad as sg

RNG = np.random.default_rng(0)


def run(fetches: Any, feeds: dict[Any, Any] | None = None, **options: Any) -> Any:
    return sg.Session(sg.get_default_graph(), **options).run(fetches, feeds or {})


class _NumPy:
    """NumPy under the names that systems use."""

    concat, atan2 = staticmethod(np.concatenate), staticmethod(np.arctan2)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


# -- what is found ----------------------------------------------------------------------------------------------------


@pytest.mark.share(4)
@pytest.mark.parametrize("method", ["newton", "broyden"])
@pytest.mark.parametrize("name", SYSTEMS)
def test_systems_of_the_literature_are_solved_from_their_standard_starts(name: str, method: Any) -> None:
    system = SYSTEMS[name]
    found = run(sg.root(lambda x: system.residual(sg, x), system.start, method=method, full_output=True))
    assert found.status == 0
    residual = system.residual(_NumPy(), found.x)
    np.testing.assert_allclose(residual, 0, atol=1e-10)
    np.testing.assert_allclose(found.residual, residual, atol=1e-11)
    assert found.steps < 100
    assert found.nfev >= found.steps
    assert found.njev == found.steps if method == "newton" else found.njev < found.steps
    if system.root is not None:
        np.testing.assert_allclose(found.x, system.root, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [10, 100])
@pytest.mark.parametrize(
    "name", ["rosenbrock", "powell singular", "wood", "helical valley", "brown almost linear",
             "discrete boundary value", "variably dimensioned", "broyden tridiagonal", "broyden banded"]
)  # fmt: skip
def test_distant_starts(name: str, scale: float) -> None:
    system = SYSTEMS[name]
    x = run(sg.root(lambda x: system.residual(sg, x), scale * system.start))
    np.testing.assert_allclose(system.residual(_NumPy(), x), 0, atol=1e-9)


@pytest.mark.parametrize("method", ["newton", "broyden"])
def test_float32(method: Any) -> None:
    for name in ("rosenbrock", "chebyquad 7", "wood", "trigonometric", "broyden banded"):
        system = SYSTEMS[name]
        start = system.start.astype(np.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sg.PromotionWarning)
            x = run(sg.root(lambda x, s=system: sg.astype(s.residual(sg, x), sg.float32), start, method=method))
        assert x.dtype == np.float32
        np.testing.assert_allclose(system.residual(_NumPy(), x.astype(np.float64)), 0, atol=1e-3)


# A function, a bracket, the root in it: smooth ones, flat ones, steep ones, and one that jumps.
BRACKETED: dict[str, tuple[Callable[[Any, Any], Any], float, float, float]] = {
    "cubic": (lambda o, x: x**3 - 2 * x - 5, 2.0, 3.0, 2.0945514815423265),
    "cosine": (lambda o, x: o.cos(x) - x, 0.0, 4.0, 0.7390851332151607),
    "tenth power": (lambda o, x: x**10 - 1e-4, -0.1, 4.0, 10**-0.4),
    "flat": (lambda o, x: (x - 1.5) ** 9, -4.0, 3.0, 1.5),
    "steep": (lambda o, x: o.tanh(1e6 * (x - 0.3)), -1.0, 5.0, 0.3),
    "jump": (lambda o, x: o.where(x < 0.7, -1.0 + 0 * x, 2.0), 0.0, 1.0, 0.7),
    "pole beside": (lambda o, x: 1 / (x - 0.3) - 10, 0.30001, 10.0, 0.4),
    "small": (lambda o, x: x - 1e-12, -1.0, 2.0, 1e-12),
    "zero": (lambda o, x: o.sin(x), -1.0, 2.0, 0.0),
    "at an end": (lambda o, x: x - 2, 0.0, 2.0, 2.0),
}


@pytest.mark.parametrize("name", BRACKETED)
def test_brackets(name: str) -> None:
    fn, low, high, root = BRACKETED[name]
    for ends in ((low, high), (high, low)):
        x0 = tuple(np.float64(end) for end in ends)
        found = run(sg.root(lambda x: fn(sg, x), x0, method="bracket", full_output=True))
        assert found.status == 0
        near = 3e-2 if name == "flat" else 1e-15  # (x - 1.5)⁹ is below every positive number within 1e-36
        assert abs(found.x - root) <= near * abs(root) + 1e-30
        assert found.nfev == found.steps + 2


def test_each_element_of_a_bracket_ends_by_itself() -> None:
    a = np.array([1.0, 8.0, -1.0, 1e6])
    found = run(sg.root(lambda x: x**3 - a, (np.zeros(4), 10.0 + np.zeros(4)), method="bracket", full_output=True))
    np.testing.assert_array_equal(found.status, [0, 0, 3, 3])
    np.testing.assert_allclose(found.x, [1.0, 2.0, np.nan, np.nan], rtol=1e-15)
    assert found.steps[2] == found.steps[3] == 0
    assert found.steps[0] != found.steps[1]


@pytest.mark.parametrize("method", ["repeated", "anderson"])
def test_fixed_points(method: Any) -> None:
    a = RNG.normal(size=(8, 8))
    a *= 0.9 / np.linalg.norm(a, 2)
    b = RNG.normal(size=8)
    found = run(sg.fixed_point(lambda x: a @ x + b, np.zeros(8), method=method, full_output=True))
    np.testing.assert_allclose(found.x, np.linalg.solve(np.eye(8) - a, b), rtol=1e-8)
    assert found.status == 0
    np.testing.assert_allclose(found.residual, a @ found.x + b - found.x, atol=1e-15)


def test_anderson_takes_fewer_steps() -> None:
    rates = np.linspace(0.5, 0.98, 30)
    steps = [
        run(sg.fixed_point(lambda x: rates * x + 1, np.zeros(30), method=method, full_output=True)).steps
        for method in ("repeated", "anderson")
    ]
    assert steps[1] < steps[0] / 2


def test_nests_count_as_one_vector() -> None:
    def fn(x: dict[str, Any]) -> dict[str, Any]:
        return {"m": x["m"] @ x["m"] - np.array([[2.0, 1.0], [1.0, 2.0]]), "s": x["s"] + x["m"][0, 0]}

    found = run(sg.root(fn, {"m": np.eye(2), "s": np.zeros(())}))
    np.testing.assert_allclose(found["m"] @ found["m"], [[2, 1], [1, 2]], atol=1e-14)
    np.testing.assert_allclose(found["s"], -found["m"][0, 0], atol=1e-14)


def test_the_function_is_called_once() -> None:
    calls = []

    def fn(x: Any) -> Any:
        calls.append(x)
        return x * x - a

    a = sg.constant(np.array(2.0))
    x = sg.root(fn, np.array(1.0))
    sg.gradients(sg.gradients(x, [a])[0], [a])
    assert len(calls) == 1


# -- how it ends ------------------------------------------------------------------------------------------------------


def test_a_search_that_does_not_converge_gives_nan_and_says_why() -> None:
    a = sg.placeholder((), sg.float64)
    nowhere = sg.root(lambda x: x * x + a, np.array(1.0), full_output=True)
    ended = sg.root(lambda x: x**3 + a, np.array(10.0), max_steps=2, full_output=True)
    invalid = sg.root(lambda x: sg.log(x) + a, np.array(-1.0), full_output=True)
    slope = sg.gradients(nowhere.x, [a])[0]
    found = run([nowhere, ended, invalid, slope], {a: 1.0})
    assert [each.status for each in found[:3]] == [2, 1, 3]
    assert all(np.isnan(each.x) for each in found[:3])
    assert found[1].steps == 2
    assert found[0].residual == pytest.approx(1)  # the lowest
    assert np.isnan(found[3])
    good = run(nowhere, {a: -4.0})
    assert good.status == 0
    assert good.x == 2


def test_a_divergent_iteration_ends() -> None:
    found = run(sg.fixed_point(lambda x: 3 * x + 1, np.array(1.0), full_output=True, max_steps=5000))
    assert found.status == 3
    assert found.steps < 1000
    assert run(sg.fixed_point(lambda x: -x, np.array(1.0), full_output=True)).status == 1


def test_check_ends_the_run() -> None:
    a = sg.placeholder((), sg.float64)
    x = sg.root(lambda x: x * x - a, np.array(1.0), check=True)
    assert run(x, {a: 9.0}) == 3
    with pytest.raises(sg.StaticGradError, match=r"root did not converge \(method='newton', max_steps=100\)") as raised:
        run(x, {a: -1.0})
    assert "x = sg.root(lambda x: x * x - a, np.array(1.0), check=True)" in str(raised.value)
    with pytest.raises(sg.StaticGradError, match="root did not converge"):
        run(sg.gradients(x, [a]), {a: -1.0})


def test_a_root_at_the_start_takes_no_step() -> None:
    found = run(sg.root(lambda x: x * (x - 1), np.array([1.0, 0.0]), full_output=True))
    np.testing.assert_array_equal(found.x, [1.0, 0.0])
    assert (found.status, found.steps, found.nfev, found.njev) == (0, 0, 1, 0)


def test_a_singular_jacobian_on_the_way() -> None:
    found = run(sg.root(lambda x: x**2 - np.array([4.0, 9.0]), np.array([0.0, 1.0]), full_output=True))
    assert found.status == 2  # the first equation has no slope at 0
    moved = run(sg.root(lambda x: sg.stack([x[0] ** 2 + x[1] - 3, x[0] * x[1] - 2]), np.array([2.0, 8.0])))
    np.testing.assert_allclose([moved[0] ** 2 + moved[1], moved[0] * moved[1]], [3, 2], rtol=1e-12)


# -- derivatives ------------------------------------------------------------------------------------------------------


def test_any_order_in_both_modes() -> None:
    a = sg.placeholder((), sg.float64)
    x = sg.root(lambda x: x**3 - a, np.array(1.0))
    expected, factor, power = [], 1.0, 1 / 3
    reverse, forward, mixed = [x], [x], [x]
    for order in range(5):
        expected.append(factor * 1.7**power)
        factor, power = factor * power, power - 1
        if order < 4:
            reverse.append(sg.gradients(reverse[-1], [a])[0])
            forward.append(sg.jvp(forward[-1], [a], [1.0])[0])
            mixed.append(sg.gradients(mixed[-1], [a])[0] if order % 2 else sg.jvp(mixed[-1], [a], [1.0])[0])
    for found in (reverse, forward, mixed):
        np.testing.assert_allclose(run(found, {a: 1.7}), expected, rtol=1e-12)


def system_of_three() -> tuple[Any, Any, Any]:
    w, b = sg.placeholder((3, 3), sg.float64), sg.placeholder((3,), sg.float64)
    return w, b, sg.root(lambda x: x + 0.3 * sg.tanh(w @ x) - b, np.zeros(3))


POINT = RNG.normal(size=(3, 3)), RNG.normal(size=3)


def test_first_derivatives_are_those_of_differences() -> None:
    w, b, x = system_of_three()
    y = sg.sum(x * np.array([1.0, -2.0, 3.0]))
    v, u = RNG.normal(size=(3, 3)), RNG.normal(size=3)
    exe = sg.Session().compile([y, *sg.gradients(y, [w, b]), *sg.jvp(y, [w, b], [v, u])], [w, b])
    _, dw, db, along = exe(*POINT)
    h = 1e-5
    lower, upper = (exe(POINT[0] + s * v, POINT[1] + s * u)[0] for s in (-h, h))
    numeric = (upper - lower) / (2 * h)
    assert along == pytest.approx(numeric, rel=1e-8)
    assert np.sum(dw * v) + np.sum(db * u) == pytest.approx(along, rel=1e-12)


def test_second_derivatives_are_those_of_differences() -> None:
    w, b, x = system_of_three()
    y = sg.sum(sg.exp(x))
    v, u = RNG.normal(size=(3, 3)), RNG.normal(size=3)
    slopes = sg.gradients(y, [w, b])
    exe = sg.Session().compile([slopes, sg.hvp(y, [w, b], [v, u]), sg.hessian(y, b)], [w, b])
    _, (hw, hb), hessian = exe(*POINT)
    h = 1e-5
    lower, upper = (exe(POINT[0] + s * v, POINT[1] + s * u)[0] for s in (-h, h))
    np.testing.assert_allclose(hw, (upper[0] - lower[0]) / (2 * h), rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(hb, (upper[1] - lower[1]) / (2 * h), rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("method", ["newton", "broyden", "bracket"])
def test_the_derivative_does_not_depend_on_the_method(method: Any) -> None:
    a = sg.placeholder((4,), sg.float64)
    x0: Any = (np.zeros(4), 3.0 + np.zeros(4)) if method == "bracket" else np.ones(4)
    y = sg.sum(sg.root(lambda x: sg.exp(x) * x - a, x0, method=method) ** 2)
    (slope,) = sg.gradients(y, [a])
    (along,) = sg.jvp(y, [a], [np.arange(4.0)])
    given = np.array([0.5, 1.0, 2.0, 4.0])
    found, slope, along, curvature = run([y, slope, along, sg.hessian(y, a)], {a: given})
    x = np.sqrt(np.where(found > 0, 1, 1)) * given  # Lambert's function by repetition of Newton's step
    for _ in range(50):
        x -= (x * np.exp(x) - given) / (np.exp(x) * (x + 1))
    rate = 1 / (np.exp(x) * (x + 1))
    np.testing.assert_allclose(found, np.sum(x**2), rtol=1e-9)
    np.testing.assert_allclose(slope, 2 * x * rate, rtol=1e-9)
    np.testing.assert_allclose(along, np.sum(2 * x * rate * np.arange(4.0)), rtol=1e-9)
    second = 2 * rate**2 - 2 * x * (x + 2) / (np.exp(2 * x) * (x + 1) ** 3)
    np.testing.assert_allclose(curvature, np.diag(second), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("method", ["repeated", "anderson"])
def test_fixed_points_are_derived_by_their_equation(method: Any) -> None:
    w, b = sg.placeholder((3, 3), sg.float64), sg.placeholder((3,), sg.float64)
    x = sg.fixed_point(lambda x: b - 0.3 * sg.tanh(w @ x), np.zeros(3), method=method, rtol=1e-13)
    same = sg.root(lambda x: x + 0.3 * sg.tanh(w @ x) - b, np.zeros(3))
    pairs = [[*sg.gradients(sg.sum(y**3), [w, b]), sg.jacobian(y, b), sg.hessian(sg.sum(y**3), b)] for y in (x, same)]
    for found, expected in zip(*run(pairs, dict(zip((w, b), POINT, strict=True))), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


def test_no_derivative_flows_to_the_start() -> None:
    start = sg.placeholder((2,), sg.float64)
    a = sg.placeholder((), sg.float64)
    x = sg.root(lambda x: x**2 - a, start)
    assert sg.gradients(sg.sum(x), [start]) == [None]
    low, high = sg.placeholder((), sg.float64), sg.placeholder((), sg.float64)
    y = sg.root(lambda x: x**2 - a, (low, high), method="bracket")
    assert sg.gradients(y, [low, high]) == [None, None]
    assert sg.gradients(sg.root(lambda x: x**2 - start, start), [start]) != [None]  # but to what fn reads


def test_integers_and_what_does_not_move_may_be_captured() -> None:
    n, a = sg.placeholder((), sg.int64), sg.placeholder((), sg.float64)
    x = sg.root(lambda x: x ** sg.astype(n, sg.float64) - sg.floor(a) - sg.stop_gradient(a), np.array(1.0))
    (slope,) = sg.gradients(x, [a])
    found = run([x, sg.zeros(()) if slope is None else slope], {n: 3, a: 4.0})
    np.testing.assert_allclose(found, [2.0, 0.0])


def test_roots_in_roots() -> None:
    a = sg.placeholder((), sg.float64)

    def outer(x: Any) -> Any:
        y = sg.root(lambda y: y**3 + y - x, np.array(0.5))
        return y + x - a  # x = a - y and so y³ + 2·y = a

    x = sg.root(outer, np.array(0.5))
    first = sg.gradients(x, [a])[0]
    second = sg.gradients(first, [a])[0]
    y = 1.0
    expected = [2.0, 1 - 1 / (3 * y**2 + 2), 6 * y / (3 * y**2 + 2) ** 3]
    np.testing.assert_allclose(run([x, first, second], {a: 3.0}), expected, rtol=1e-10)


# -- where it stands --------------------------------------------------------------------------------------------------


def test_each_example_takes_its_own_steps() -> None:
    starts, a = np.array([1.0, 100.0, 1.5]), sg.placeholder((3,), sg.float64)
    found = sg.vmap(lambda s, a: sg.root(lambda x: x * x - a, s, full_output=True))(starts, a)
    alone = [sg.root(lambda x, i=i: x * x - a[i], starts[i], full_output=True) for i in range(3)]
    together, apart = run([found, alone], {a: [2.0, 2.0, 2.25]})
    np.testing.assert_array_equal(together.steps, [each.steps for each in apart])
    np.testing.assert_array_equal(together.nfev, [each.nfev for each in apart])
    np.testing.assert_array_equal(together.x, [each.x for each in apart])
    assert len(set(together.steps.tolist())) == 3


def test_derivatives_of_examples() -> None:
    b, w = sg.placeholder((5, 3), sg.float64), sg.placeholder((3, 3), sg.float64)

    def one(b: Any) -> Any:
        return sg.root(lambda x: x + 0.3 * sg.tanh(w @ x) - b, np.zeros(3))

    def loss(b: Any) -> Any:
        return sg.sum(one(b) ** 3)

    v = np.eye(3)
    together = [
        sg.vmap(one)(b), sg.gradients(sg.sum(sg.vmap(loss)(b)), [b, w]),
        sg.vmap(lambda b: sg.gradients(loss(b), [w])[0])(b), sg.vmap(lambda b: sg.hessian(loss(b), b))(b),
        sg.jvp(sg.vmap(one)(b), [w], [v])[0],
    ]  # fmt: skip
    row = sg.placeholder((3,), sg.float64)
    x, y = one(row), loss(row)
    slopes = sg.gradients(y, [row, w])
    alone = sg.Session().compile([x, slopes, sg.hessian(y, row), sg.jvp(x, [w], [v])[0]], [row, w])
    rows = RNG.normal(size=(5, 3))
    xs, slopes_by_row, hessians, along = zip(*(alone(one, POINT[0]) for one in rows), strict=True)
    by_b, by_w = (np.array(parts) for parts in zip(*slopes_by_row, strict=True))
    found = run(together, {b: rows, w: POINT[0]})
    expected = [np.array(xs), [by_b, by_w.sum(axis=0)], by_w, np.array(hessians), np.array(along)]
    for some, value in zip(sg.nest.flatten(found), sg.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(some, value, rtol=1e-8, atol=1e-10)


def test_examples_of_brackets_and_fixed_points() -> None:
    a = sg.placeholder((4,), sg.float64)
    found = [
        sg.vmap(lambda a: sg.root(lambda x: x**3 - a, (0 * a, 0 * a + 9), method="bracket"))(a),
        sg.vmap(lambda a: sg.fixed_point(lambda x: (2 * x + a / x**2) / 3, 0 * a + 1, rtol=1e-14))(a),
        sg.vmap(lambda a: sg.fixed_point(lambda x: (2 * x + a / x**2) / 3, 0 * a + 1, method="anderson"))(a),
    ]
    slopes = [sg.gradients(sg.sum(x), [a])[0] for x in found]
    given = np.array([1.0, 2.0, 8.0, 27.0])
    for x, slope in zip(*run([found, slopes], {a: given}), strict=True):
        np.testing.assert_allclose(x, given ** (1 / 3), rtol=1e-9)
        np.testing.assert_allclose(slope, given ** (-2 / 3) / 3, rtol=1e-9)


@pytest.mark.parametrize("inside", ["scan", "map", "while_loop", "cond"])
def test_in_loops_and_branches(inside: str) -> None:
    a = sg.placeholder((3,), sg.float64)

    def solved(a: Any, start: Any) -> Any:
        return sg.root(lambda x: x**3 + x - a, start)

    def declared() -> Any:
        if inside == "scan":  # each root from the one before, on which the equation depends too
            return sg.sum(sg.scan(lambda x, a: (solved(a + x, x),) * 2, np.float64(0.5), a)[1] ** 2)
        if inside == "map":
            return sg.sum(sg.map(lambda a: solved(a, np.array(0.5)), a) ** 2)
        if inside == "while_loop":
            return sg.while_loop(lambda x: x < 100, lambda x: x + solved(x + a[0], np.array(0.5)), a[1], max_steps=4)
        return sg.cond(a[0] > 0, lambda: solved(a[0] * a[1], np.array(0.5)), lambda: a[2])

    y = declared()
    given, v = np.array([0.7, 1.5, 2.0]), np.array([1.0, -0.5, 0.25])
    slope = sg.gradients(y, [a])[0]
    exe = sg.Session().compile([y, slope, *sg.jvp(y, [a], [v]), sg.hvp(y, a, v)], [a])
    _, slope, along, curved = exe(given)
    h = 1e-5
    lower, upper = exe(given - h * v), exe(given + h * v)
    assert along == pytest.approx((upper[0] - lower[0]) / (2 * h), rel=1e-8)
    assert slope @ v == pytest.approx(along, rel=1e-12)
    np.testing.assert_allclose(curved, (upper[1] - lower[1]) / (2 * h), rtol=1e-6, atol=1e-8)


def test_loops_branches_and_rules_inside_of_the_function() -> None:
    a = sg.placeholder((), sg.float64)

    @sg.custom_gradient
    def cubed(x: Any) -> Any:
        return x**3, lambda ct: ct * 3 * x**2

    def fn(x: Any) -> Any:
        power, _ = sg.scan(lambda c, _: (c * x, None), sg.ones_like(x), length=3)
        chosen = sg.cond(x > 0, lambda: x * a, lambda: -x * a)
        return power + cubed(x) + chosen - 4.0

    x = sg.root(fn, np.array(0.7))
    first = sg.gradients(x, [a])[0]
    second = sg.gradients(first, [a])[0]
    found = run([x, first, second], {a: 2.0})
    slope = 6 + 2.0  # of 2·x³ + 2·x - 4 at 1
    np.testing.assert_allclose(found, [1.0, -1 / slope, 2 / slope**2 - 12 / slope**3], rtol=1e-9)


def test_a_tape_keeps_nothing_of_the_iteration() -> None:
    b, w = sg.placeholder((20,), sg.float64), sg.Variable(0.1 * RNG.normal(size=(20, 20)))
    x = sg.root(lambda x: x + 0.3 * sg.tanh(w @ x) - b, np.zeros(20))
    loss = sg.sum(x**2)
    session = sg.Session()
    given = RNG.normal(size=20)
    tape = session.forward([loss], {b: given})
    assert tape.memory.saved_bytes <= 20 * 20 * 8 + 4 * 20 * 8
    tape.backward(loss)
    expected = session.run(sg.gradients(loss, [w])[0], {b: given})
    np.testing.assert_allclose(session.grad(w), expected, rtol=1e-12)


def test_in_saved_graphs(tmp_path: Any) -> None:
    a = sg.placeholder((), sg.float64, name="a")
    x = sg.root(lambda x: x**3 - a, np.array(1.0))
    slope = sg.gradients(x, [a])[0]
    sg.save_graph(tmp_path / "root.sgt", entries={"solve": ([x, slope], [a])})
    graph = sg.load_graph(tmp_path / "root.sgt")
    found = sg.Session(graph).compile(*graph.entries["solve"])(8.0)
    np.testing.assert_allclose(found, [2.0, 1 / 12], rtol=1e-12)
    (x, _), (a,) = graph.entries["solve"]
    with pytest.raises(sg.GradientError, match=r"the derivative of 'root' is a Python function, which is not saved"):
        sg.gradients(x, [a])


def test_captured_variables_are_trained() -> None:
    w = sg.Variable(np.array(3.0))
    loss = (sg.root(lambda x: x**2 - w, np.array(1.0)) - 2.0) ** 2
    train = sg.optim.SGD(lr=4.0).minimize(loss)
    session = sg.Session()
    for _ in range(60):
        session.run(train)
    assert session.get(w) == pytest.approx(4, rel=1e-6)


def test_the_reference_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    w, b, x = system_of_three()
    fetches = [x, *sg.gradients(sg.sum(x**2), [w, b])]
    feeds = dict(zip((w, b), POINT, strict=True))
    expected = run(fetches, feeds)
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    for found, value in zip(run(fetches, feeds), expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-12)


# -- what is refused --------------------------------------------------------------------------------------------------


def test_what_is_refused() -> None:
    x0 = np.zeros(3)
    with pytest.raises(sg.GraphError, match=r"root: expected a method of 'newton', 'broyden', 'bracket', actual 'n'"):
        sg.root(lambda x: x, x0, method="n")  # type: ignore[arg-type]
    with pytest.raises(sg.GraphError, match=r"root: fn: expected a function of \(x\)"):
        sg.root(3, x0)  # type: ignore[arg-type]
    with pytest.raises(sg.GraphError, match=r"root: x0: expected float32 or float64, actual int64"):
        sg.root(lambda x: x, np.zeros(3, np.int64))
    with pytest.raises(sg.GraphError, match=r"x0: expected float64, as the first of x0, actual float32"):
        sg.root(lambda x: x, [x0, x0.astype(np.float32)])
    with pytest.raises(sg.GraphError, match=r"(?s)types of x0: give x0 dtype=sg.float64.*float32\[\], as x0.*float64"):
        sg.root(lambda x: sg.astype(x, sg.float64), 1.0)
    with pytest.raises(sg.GraphError, match=r"(?s)expected float64\[3\], as x0.*actual   float64\[2\]"):
        sg.root(lambda x: x[:2], x0)
    with pytest.raises(sg.GraphError, match=r"root: expected a result of fn for each leaf of x0: 1, actual 2"):
        sg.root(lambda x: (x, x), x0)
    with pytest.raises(sg.GraphError, match=r"expected x0 = \(low, high\) for method='bracket'"):
        sg.root(lambda x: x, x0, method="bracket")
    with pytest.raises(sg.GraphError, match=r"x0: expected sizes that are known"):
        sg.root(lambda x: x, sg.placeholder((None,), sg.float64))
    with pytest.raises(sg.GraphError, match=r"x0: expected elements"):
        sg.root(lambda x: x, np.zeros(0))
    with pytest.raises(sg.GraphError, match=r"root: variables are declared and written outside of a body"):
        sg.root(lambda x: x + sg.assign(sg.Variable(np.zeros(3), name="v"), x), x0)
    with pytest.raises(sg.GraphError, match=r"fixed_point: expected a method of 'repeated', 'anderson'"):
        sg.fixed_point(lambda x: x, x0, method="newton")  # type: ignore[arg-type]
    with pytest.raises(sg.GraphError, match=r"fixed_point: max_steps"):
        sg.fixed_point(lambda x: x, x0, max_steps=-1)
