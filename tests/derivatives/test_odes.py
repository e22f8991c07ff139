"""``sg.odeint``: solutions, their derivatives, events, and what becomes of equations that cannot be solved."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.ode_systems import SYSTEMS, OdeSystem, references

import staticgrad as sg
from staticgrad.odes.tableaus import DOPRI5, KVAERNO5, TSIT5, Tableau
from staticgrad.ops.surrogates import surrogate

METHODS = ("dopri5", "tsit5", "kvaerno5")
F64 = sg.float64


def run(fetches: Any, feeds: dict[sg.Tensor, Any] | None = None) -> Any:
    return sg.Session().run(fetches, feeds or {})


def number(value: float) -> sg.Tensor:
    return sg.constant(value, F64)


def leaves_equal(a: Any, b: Any) -> bool:
    pairs = zip(sg.nest.flatten(a), sg.nest.flatten(b), strict=True)
    return all(np.array_equal(x, y, equal_nan=True) for x, y in pairs)


# -- pairs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", [DOPRI5, TSIT5, KVAERNO5], ids=lambda pair: pair.name)
def test_a_pair_satisfies_its_order_conditions(pair: Tableau) -> None:
    """All trees up to order 4 of the interpolant and of the embedded step, and the tall and bushy ones of order 5."""
    count = pair.stages
    a = np.zeros((count, count))
    for i, row in enumerate(pair.a):
        a[i, : len(row)] = row
        a[i, i] = pair.gamma if i else 0.0
    b, c, dense = np.array(pair.b), np.array(pair.c), np.array(pair.dense)
    trees = {"": 1, "c": 2, "c2": 3, "ac": 6, "c3": 4, "cac": 8, "ac2": 12, "aac": 24}
    values = {
        "": np.ones(count), "c": c, "c2": c**2, "ac": a @ c, "c3": c**3, "cac": c * (a @ c), "ac2": a @ c**2,
        "aac": a @ a @ c,
    }  # fmt: skip
    orders = {"": 1, "c": 2, "c2": 3, "ac": 3, "c3": 4, "cac": 4, "ac2": 4, "aac": 4}
    np.testing.assert_allclose(a.sum(1), c, atol=1e-14)
    np.testing.assert_allclose(a[-1], b, atol=1e-14)
    for name, density in trees.items():
        assert b @ values[name] == pytest.approx(1 / density, abs=1e-14)
        assert (b - np.array(pair.e)) @ values[name] == pytest.approx(1 / density, abs=1e-14)
        for part in (0.2, 0.5, 0.9):
            weights = dense @ part ** np.arange(1, dense.shape[1] + 1)
            assert weights @ values[name] == pytest.approx(part ** orders[name] / density, abs=1e-13)
    assert b @ c**4 == pytest.approx(1 / 5, abs=1e-14)
    assert b @ a @ a @ a @ c == pytest.approx(1 / 120, abs=1e-14)
    assert abs((b - np.array(pair.e)) @ c**4 - 1 / 5) > 1e-4
    np.testing.assert_allclose(dense.sum(1), b, atol=2e-14)
    slopes = dense[:, 0], dense @ np.arange(1, dense.shape[1] + 1)
    for slope, end in zip(slopes, (0, count - 1), strict=True):
        np.testing.assert_allclose(slope, np.eye(count)[end], atol=1e-13)


# -- accuracy ---------------------------------------------------------------------------------------------------------


def classic(name: str, method: str, tolerance: float) -> tuple[Any, Any, sg.Tensor, sg.Tensor, OdeSystem]:
    """A solution at the end, a number made of it, the state and the parameters that it depends on."""
    system = SYSTEMS[name]
    y0, p = sg.placeholder((len(system.y0),), F64), sg.placeholder((len(system.p),), F64)
    slope = system.slope(sg)
    found = sg.odeint(
        lambda t, y: slope(t, y, p), y0, [0.0, system.span], method=method, rtol=tolerance,  # type: ignore[arg-type]
        atol=tolerance * system.atol, max_steps=20000, full_output=True,
    )  # fmt: skip
    weights = 1 / np.abs(references()[name]["tangent"])
    return found, sg.sum(weights * found.y_end), y0, p, system


CASES = [(name, m) for name, system in SYSTEMS.items() for m in (["kvaerno5"] if system.stiff else METHODS)]
# Where errors grow by orders of magnitude: along an orbit past the moon, and over a jump, whose time the steps follow
# but not its derivative.
GROWTH = {"arenstorf": 50.0, "stiff_van_der_pol": 5e3}


@pytest.mark.share(8)
@pytest.mark.parametrize(("name", "method"), CASES)
def test_classic_systems_and_their_derivatives_are_those_of_the_references(name: str, method: str) -> None:
    found, value, y0, p, system = classic(name, method, 1e-11)
    by_state, by_parameters = sg.gradients(value, [y0, p])
    (tangent,) = sg.jvp([value], [y0, p], [y0, p])
    known, factor = references()[name], GROWTH.get(name, 1.0)
    found, by_state, by_parameters, tangent = run(
        [found, by_state, by_parameters, tangent], {y0: system.y0, p: system.p}
    )
    assert found.status == 0
    end = np.array(known["end"])
    assert np.max(np.abs(found.y_end - end)) <= 1e-8 * factor * np.max(np.abs(end))
    direction = by_state @ np.array(system.y0) + by_parameters @ np.array(system.p)
    assert tangent == pytest.approx(direction, rel=1e-7)
    exact = np.sum(np.sign(known["tangent"]))
    assert abs(direction - exact) <= 1e-8 * factor


@pytest.mark.share(3)
@pytest.mark.parametrize("method", METHODS)
def test_errors_fall_with_the_order_of_a_pair(method: str) -> None:
    """The error over the fifth power of the mean step, at the end and within steps."""
    y0 = sg.placeholder((2,), F64)
    tolerance = sg.placeholder((), F64)
    ts = np.linspace(0.0, 10.0, 38)
    found = sg.odeint(
        lambda t, y: sg.stack([y[1], -y[0]]), y0, ts, method=method, rtol=tolerance,  # type: ignore[arg-type]
        atol=tolerance, full_output=True,
    )  # fmt: skip
    exact = np.stack([np.cos(ts), -np.sin(ts)], 1)
    session = sg.Session()
    work, errors = [], []
    for power in (4, 6, 8, 10):
        made = session.run(found, {y0: [1.0, 0.0], tolerance: 10.0**-power})
        work.append(math.log(made.steps))
        errors.append([math.log(np.abs(made.ys - exact)[k].max()) for k in (-1, slice(None))])
    slopes = np.polyfit(work, np.array(errors), 1)[0]
    assert slopes[0] < -4.5
    assert slopes[1] < -4.3
    assert errors[-1][1] < errors[-1][0] + 1.0  # between two steps it is as good as at their ends


def test_rejected_attempts_happen_and_do_not_count_as_steps() -> None:
    found, _, y0, p, system = classic("van_der_pol", "dopri5", 1e-6)
    made = run(found, {y0: system.y0, p: system.p})
    assert made.rejected > 0
    assert made.evaluations == 2 + 6 * (made.steps + made.rejected)


# -- derivatives ------------------------------------------------------------------------------------------------------


@pytest.mark.share(3)
@pytest.mark.parametrize("method", METHODS)
def test_derivatives_of_a_linear_equation_are_those_of_its_solution(method: str) -> None:
    """y = y0·exp(rate·(t - t0)), to the second order, by everything it depends on."""
    rate, start, ts = sg.placeholder((), F64), sg.placeholder((), F64), sg.placeholder((4,), F64)
    y = sg.odeint(lambda t, y: rate * y, start, ts, method=method, rtol=1e-11, atol=1e-12)  # type: ignore[arg-type]
    value = sg.sum(y * np.array([1.0, 2.0, 3.0, 4.0]))
    slopes = sg.gradients(value, [rate, start, ts])
    assert slopes[0] is not None
    second = sg.gradients(slopes[0], [rate, start])
    times, r, s = np.array([0.0, 0.4, 0.7, 1.1]), -0.7, 1.3
    made = run([slopes, second], {rate: r, start: s, ts: times})
    w, e = np.array([1.0, 2.0, 3.0, 4.0]), np.exp(r * times)
    by_time = w * s * r * e
    by_time[0] = -by_time[1:].sum()
    expected = [np.sum(w * s * times * e), np.sum(w * e), by_time]
    for found, known in zip(made[0], expected, strict=True):
        np.testing.assert_allclose(found, known, rtol=1e-9)
    np.testing.assert_allclose(made[1], [np.sum(w * s * times**2 * e), np.sum(w * times * e)], rtol=1e-8)


@pytest.mark.share(2)
@pytest.mark.parametrize("method", ["dopri5", "kvaerno5"])
def test_gradients_of_all_that_fn_uses_agree_with_differences(method: str) -> None:
    """To 1e-8, of a nest, with the time in the equation, a variable, times that are fed and a product of matrices."""
    rng = np.random.default_rng(0)
    with sg.Graph() as graph:
        w = sg.Variable(rng.normal(size=(3, 3)) * 0.5, name="w")
        drive = sg.placeholder((), F64)
        y0 = {"a": sg.placeholder((3,), F64), "b": sg.placeholder((2, 2), F64)}
        ts = sg.placeholder((5,), F64)

        def slope(t: sg.Tensor, y: dict[str, sg.Tensor]) -> dict[str, sg.Tensor]:
            a = sg.tanh(w @ y["a"]) + sg.cos(drive * t) - 0.2 * y["a"]
            return {"a": a, "b": sg.sin(y["b"] @ y["b"]) - y["b"] + y["a"][0] * t}

        ys = sg.odeint(slope, y0, ts, method=method, rtol=1e-12, atol=1e-12)  # type: ignore[arg-type]
        value = sg.sum(ys["a"] ** 2) + sg.sum(ys["b"] * np.arange(4.0).reshape(2, 2))
        xs = [w, drive, y0["a"], y0["b"], ts]
        slopes = sg.gradients(value, xs)
    session = sg.Session(graph)
    feeds = {
        drive: np.array(1.7), y0["a"]: rng.normal(size=3), y0["b"]: rng.normal(size=(2, 2)),
        ts: np.array([0.1, 0.5, 0.6, 1.3, 2.0]),
    }  # fmt: skip
    given = {x: np.array(feeds[x] if x in feeds else session.get(x), np.float64) for x in xs}
    exact = session.run(slopes, feeds)
    for x, slope_of_x in zip(xs, exact, strict=True):
        direction = rng.normal(size=x.shape)
        step = 1e-3
        at: list[float] = []
        for part in (-2, -1, 1, 2):
            moved = dict(feeds)
            if x is w:
                session.set(w, given[w] + part * step * direction)
            else:
                moved[x] = given[x] + part * step * direction
            at.append(float(session.run(value, moved)))
        session.set(w, given[w])
        difference = (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * step)
        assert np.sum(slope_of_x * direction) == pytest.approx(difference, rel=1e-8, abs=1e-9)


@pytest.mark.share(3)
@pytest.mark.parametrize("method", METHODS)
def test_an_attempt_outside_of_the_domain_is_rejected_and_leaves_gradients_finite(method: str) -> None:
    """y = (1 - rate·t/2)² nearly reaches zero, below which the slope is NaN."""
    rate = sg.placeholder((), F64)
    found = sg.odeint(lambda t, y: -rate * sg.sqrt(y), number(1.0), [0.0, 0.999], method=method,  # type: ignore[arg-type]
                      rtol=1e-8, atol=1e-10, full_output=True)  # fmt: skip
    made, slope = run([found, *sg.gradients(found.y_end, [rate])], {rate: 2.0})
    assert made.status == 0
    assert made.rejected > 0
    assert made.y_end == pytest.approx(0.001**2, rel=1e-3)
    assert slope == pytest.approx(-0.001 * 0.999, rel=1e-3)


@pytest.mark.share(2)
@pytest.mark.parametrize("method", ["dopri5", "kvaerno5"])
def test_a_tape_gives_the_gradients_of_a_run(method: str) -> None:
    rate, start = sg.placeholder((), F64), sg.placeholder((2,), F64)
    start.requires_grad_()
    rate.requires_grad_()
    y = sg.odeint(lambda t, y: -rate * y * y, start, [0.0, 0.5, 2.0], method=method)  # type: ignore[arg-type]
    loss = sg.sum(sg.sin(y))
    feeds = {rate: 0.7, start: np.array([1.0, 2.0])}
    session = sg.Session()
    tape = session.forward(loss, feeds)
    tape.backward(loss)
    wanted = run(sg.gradients(loss, [rate, start]), feeds)
    assert leaves_equal([session.grad(rate), session.grad(start)], wanted)


def test_a_program_without_derivatives_keeps_no_rows_and_a_gradient_keeps_three_of_each_attempt() -> None:
    def bytes_of(most: int, derived: bool) -> int:
        y0 = sg.placeholder((50,), F64)
        y = sg.odeint(lambda t, y: -sg.sin(y), y0, [0.0, 1.0, 2.0, 3.0], max_steps=most)
        fetches = sg.gradients(sg.sum(y), [y0]) if derived else y
        executable = sg.Session().compile(fetches, y0)
        executable(np.ones(50))
        return executable.memory.arena_bytes

    assert bytes_of(100, False) == bytes_of(1000, False)
    assert (bytes_of(1100, True) - bytes_of(100, True)) / 1000 <= 8 * 50 + 48


# -- examples side by side --------------------------------------------------------------------------------------------


@pytest.mark.share(3)
@pytest.mark.parametrize("method", METHODS)
def test_each_example_of_vmap_takes_the_steps_that_it_takes_alone_to_the_bit(method: str) -> None:
    def solve(y: sg.Tensor, rate: sg.Tensor) -> Any:
        return sg.odeint(lambda t, y: rate * (sg.sin(y) * 2 - y**3 + sg.roll(y, 1)), y, np.linspace(0.0, 2.0, 4),
                         method=method, full_output=True)  # type: ignore[arg-type]  # fmt: skip

    ys, rates = sg.placeholder((4, 7), F64), sg.placeholder((4,), F64)
    y, rate = sg.placeholder((7,), F64), sg.placeholder((), F64)
    many, one = sg.vmap(solve)(ys, rates), solve(y, rate)
    together = [many, sg.gradients(sg.sum(many.ys**2), [ys, rates])]
    inside = sg.vmap(lambda y, rate: tuple(sg.gradients(sg.sum(solve(y, rate).ys ** 2), [y, rate])))(ys, rates)
    alone = [one, sg.gradients(sg.sum(one.ys**2), [y, rate])]
    rng = np.random.default_rng(0)
    starts, speeds = rng.normal(size=(4, 7)), np.array([0.1, 1.0, 4.0, 9.0])
    session = sg.Session()
    made, within = session.run([together, inside], {ys: starts, rates: speeds})
    assert len(set(made[0].steps)) == 4
    for i in range(4):
        single, slopes = session.run(alone, {y: starts[i], rate: speeds[i]})
        assert leaves_equal(sg.nest.map(lambda x, i=i: x[i], made[0]), single)
        for *examples, slope in zip(made[1], within, slopes, strict=True):
            for x in examples:
                np.testing.assert_allclose(x[i], slope, rtol=1e-14)


def test_events_of_examples_are_their_own() -> None:
    height = sg.placeholder((3,), F64)

    def fall(height: sg.Tensor) -> Any:
        return sg.odeint(lambda t, y: (y[1], -9.81), (height, number(0.0)), np.linspace(0.0, 2.0, 5),
                         event=lambda t, y: y[0])  # fmt: skip

    many = sg.vmap(fall)(height)
    heights = np.array([1.0, 30.0, 5.0])
    made, slope = run([many, *sg.gradients(sg.sum(many.t_end), [height])], {height: heights})
    np.testing.assert_allclose(made.t_end, np.minimum(np.sqrt(2 * heights / 9.81), 2.0), rtol=1e-9)
    np.testing.assert_array_equal(made.status, [1, 0, 1])
    np.testing.assert_allclose(slope, [1 / math.sqrt(2 * 9.81 * 1), 0.0, 1 / math.sqrt(2 * 9.81 * 5)], rtol=1e-9)
    np.testing.assert_array_equal(np.isnan(made.ys[0]).sum(1), [4, 0, 2])


# -- events -----------------------------------------------------------------------------------------------------------


@pytest.mark.share(3)
@pytest.mark.parametrize("method", METHODS)
def test_the_time_of_an_impact_has_its_derivatives(method: str) -> None:
    height, speed, g = (sg.placeholder((), F64) for _ in range(3))
    found = sg.odeint(
        lambda t, y: {"x": y["v"], "v": -g}, {"x": height, "v": speed}, np.linspace(0.0, 3.0, 7), rtol=1e-9,
        method=method, event=lambda t, y: y["x"],  # type: ignore[arg-type]
    )  # fmt: skip
    xs = [height, speed, g]
    slopes = [sg.gradients(y, xs) for y in (found.t_end, found.y_end["v"], sg.sum(found.ys["x"][:3]))]
    second, (tangent,) = sg.hessian(found.t_end, height), sg.jvp([found.t_end], [height], [1.0])
    made, slopes, second, tangent = run([found, slopes, second, tangent], {height: 2.0, speed: 3.0, g: 9.81})
    root = math.sqrt(3.0**2 + 2 * 9.81 * 2.0)
    time = (3.0 + root) / 9.81
    assert made.status == 1
    assert made.t_end == pytest.approx(time, rel=1e-12)
    assert abs(made.y_end["x"]) < 1e-13
    assert made.y_end["v"] == pytest.approx(-root, rel=1e-12)
    np.testing.assert_allclose(
        slopes[0], [1 / root, (1 + 3.0 / root) / 9.81, 2.0 / (9.81 * root) - time / 9.81], rtol=1e-10
    )
    np.testing.assert_allclose(slopes[1], [-9.81 / root, -3.0 / root, -2.0 / root], rtol=1e-10)
    np.testing.assert_allclose(slopes[2], [3.0, 1.5, -0.625], rtol=1e-10)
    assert second == pytest.approx(-9.81 / root**3, rel=1e-9)
    assert tangent == pytest.approx(slopes[0][0], rel=1e-13)
    np.testing.assert_array_equal(np.isnan(made.ys["x"]), [False] * 3 + [True] * 4)


def test_an_event_backwards_in_time_and_one_that_does_not_happen() -> None:
    start = sg.placeholder((), F64)
    for event, time in ((lambda t, y: y - 2.0, math.log(2.0)), (lambda t, y: y + 1.0, -1.0)):
        found = sg.odeint(lambda t, y: y, start, [1.0, 0.5, -1.0], event=event, rtol=1e-10)
        made = run(found, {start: math.e})
        assert made.t_end == pytest.approx(time, rel=1e-9)
        assert made.status == (1 if time > 0 else 0)
        assert made.y_end == pytest.approx(math.exp(time), rel=1e-8)


def test_a_ball_that_starts_on_the_ground_flies() -> None:
    found = sg.odeint(lambda t, y: (y[1], -9.81), (number(0.0), number(9.81)), [0.0, 3.0], event=lambda t, y: y[0])
    assert run(found.t_end) == pytest.approx(2.0, rel=1e-9)


# -- forms of input ---------------------------------------------------------------------------------------------------


@pytest.mark.share(3)
@pytest.mark.parametrize("method", METHODS)
def test_time_may_decrease(method: str) -> None:
    y0 = sg.placeholder((2,), F64)
    ts = np.linspace(3.0, 0.0, 7)
    y = sg.odeint(lambda t, y: sg.stack([y[1], -y[0]]), y0, ts, rtol=1e-10, method=method)  # type: ignore[arg-type]
    made, slope = run([y, *sg.gradients(y[-1, 0], [y0])], {y0: [1.0, 0.0]})
    np.testing.assert_allclose(made, np.stack([np.cos(ts - 3), -np.sin(ts - 3)], 1), atol=2e-8)
    np.testing.assert_allclose(slope, [np.cos(3), -np.sin(3)], atol=2e-8)


@pytest.mark.share(3)
@pytest.mark.parametrize("method", METHODS)
def test_single_precision_stays_single(method: str) -> None:
    y0 = sg.placeholder((2,))
    found = sg.odeint(lambda t, y: sg.stack([y[1], -y[0] * sg.cos(t)]), y0, np.linspace(0.0, 3.0, 4), rtol=1e-5,
                      atol=1e-6, method=method, full_output=True)  # type: ignore[arg-type]  # fmt: skip
    slope = sg.gradients(found.ys[-1, 0], [y0])[0]
    made, slope = run([found, slope], {y0: np.array([1.0, 0.0], np.float32)})
    assert made.ys.dtype == slope.dtype == np.float32
    wide = sg.placeholder((2,), F64)
    exact = sg.odeint(lambda t, y: sg.stack([y[1], -y[0] * sg.cos(t)]), wide, np.linspace(0.0, 3.0, 4), rtol=1e-10)
    known, known_slope = run([exact, *sg.gradients(exact[-1, 0], [wide])], {wide: [1.0, 0.0]})
    np.testing.assert_allclose(made.ys, known, atol=3e-5)
    np.testing.assert_allclose(slope, known_slope, atol=3e-5)


def test_times_that_repeat_and_a_single_one() -> None:
    y0 = number(2.0)
    for ts, expected in (([1.0], [2.0]), ([1.0, 1.0], [2.0, 2.0]), ([0.0, 0.0, 1.0, 1.0], [2.0, 2.0, 5.0, 5.0])):
        y = sg.odeint(lambda t, y: 6.0 * t, y0, ts)
        np.testing.assert_allclose(run(y), expected, rtol=1e-12)


def test_tolerances_may_be_nests_and_arrays() -> None:
    y0 = {"a": number(1.0), "b": sg.constant([1.0, 2.0], F64)}
    loose = sg.odeint(lambda t, y: {"a": -y["a"], "b": -y["b"]}, y0, [0.0, 1.0], rtol=1e-3, atol=1e-3, full_output=True)
    tight = sg.odeint(lambda t, y: {"a": -y["a"], "b": -y["b"]}, y0, [0.0, 1.0], rtol={"a": 1e-9, "b": 1e-3},
                      atol={"a": 1e-9, "b": np.array([1e-3, 1e-3])}, full_output=True)  # fmt: skip
    made = run([loose, tight])
    assert made[1].steps > 2 * made[0].steps
    assert made[1].ys["a"][-1] == pytest.approx(math.exp(-1), rel=1e-7)


def test_loops_and_parameters_of_networks_are_used_in_fn() -> None:
    net = sg.nn.Sequential(sg.nn.Linear(2, 8), sg.nn.Tanh(), sg.nn.Linear(8, 2))
    x = sg.placeholder((5, 2))
    y = sg.odeint(lambda t, y: sg.scan(lambda c, _: (net(c), None), y, None, length=2)[0], x, [0.0, 1.0], rtol=1e-4)
    slopes = sg.gradients(sg.sum(y), list(net.parameters()))
    assert all(np.isfinite(g).all() and np.abs(g).max() > 0 for g in run(slopes, {x: np.ones((5, 2), np.float32)}))


def test_an_exported_program_gives_the_same_bits(tmp_path: Path) -> None:
    y0, rate = sg.placeholder((2,), F64, name="y0"), sg.placeholder((), F64, name="rate")
    y = sg.odeint(lambda t, y: rate * sg.sin(y), y0, [0.0, 1.0, 3.0])
    executable = sg.Session().compile([y, *sg.gradients(sg.sum(y), [y0, rate])], [y0, rate])
    arrays = np.array([1.0, 2.0]), np.array(0.7)
    wanted = executable(*arrays)
    sg.export(tmp_path / "ode.sgp", {"solve": executable}, format="program")
    assert leaves_equal(sg.load(tmp_path / "ode.sgp").solve(*arrays), wanted)


def test_a_graph_with_an_integration_is_saved_and_loaded(tmp_path: Path) -> None:
    with sg.Graph() as graph:
        y0 = sg.placeholder((2,), F64, name="y0")
        y = sg.odeint(lambda t, y: -sg.sin(y), y0, [0.0, 1.0, 3.0])
        slopes = sg.gradients(sg.sum(y), [y0])
    sg.save_graph(tmp_path / "ode.sgt", graph, entries={"solve": ([y, *slopes], [y0])})
    again = sg.load_graph(tmp_path / "ode.sgt")
    fetches, feeds = again.entries["solve"]
    feed = np.array([1.0, 2.0])
    wanted = sg.Session(graph).run([y, *slopes], {y0: feed})
    assert leaves_equal(sg.Session(again).compile(fetches, feeds)(feed), wanted)


# -- what cannot be solved --------------------------------------------------------------------------------------------


def test_what_is_not_reached_is_nan_and_the_status_says_why() -> None:
    one = sg.constant([1.0], F64)
    grows = sg.odeint(lambda t, y: y * y, one, [0.0, 0.5, 2.0], full_output=True)
    short = sg.odeint(lambda t, y: -y, one, [0.0, 0.1, 2.0], max_steps=3, full_output=True)
    invalid = sg.odeint(lambda t, y: y * np.nan, one, [0.0, 0.5, 2.0], full_output=True)
    for found, status, rows in ((grows, 3, 2), (short, 2, 2), (invalid, 3, 1)):
        made = run(found)
        assert made.status == status
        np.testing.assert_array_equal(np.isnan(made.ys[:, 0]), [row >= rows for row in range(3)])


Refusal = tuple[str, Callable[[], Any]]
REFUSALS: Sequence[Refusal] = (
    (r"expected a method of 'dopri5', 'tsit5', 'kvaerno5', actual 'rk4'",
     lambda: sg.odeint(lambda t, y: y, 1.0, [0, 1], method="rk4")),  # type: ignore[arg-type]
    (r"y0: expected float32 or float64, actual int64\[2\]",
     lambda: sg.odeint(lambda t, y: y, sg.constant([1, 2]), [0, 1])),
    (r"y0\['b'\]: expected float64, as the others, actual float32\[\]",
     lambda: sg.odeint(lambda t, y: y, {"a": number(1.0), "b": sg.constant(1.0)}, [0, 1])),
    (r"y0: expected a nest of tensors", lambda: sg.odeint(lambda t, y: y, (), [0, 1])),
    (r"y0: expected sizes that are known", lambda: sg.odeint(lambda t, y: y, sg.placeholder((None,)), [0, 1])),
    (r"ts: expected a row of times", lambda: sg.odeint(lambda t, y: y, 1.0, 2.0)),
    (r"ts: expected times that increase, or that decrease", lambda: sg.odeint(lambda t, y: y, 1.0, [0.0, 2.0, 1.0])),
    (r"ts: expected times that increase, or that decrease", lambda: sg.odeint(lambda t, y: y, 1.0, [0.0, np.nan])),
    (r"fn gives another structure than y0", lambda: sg.odeint(lambda t, y: y[0], (1.0, 2.0), [0, 1])),
    (r"fn gives dy/dt of another type than y0\['a'\]\n  expected float32\[2\], as y0\['a'\]\n  actual   float32\[\]",
     lambda: sg.odeint(lambda t, y: {"a": sg.sum(y["a"])}, {"a": sg.ones(2)}, [0, 1])),
    (r"fn: expected a function of \(t, y\)", lambda: sg.odeint(lambda y: y, 1.0, [0, 1])),  # type: ignore[arg-type]
    (r"event: expected a function to one floating number",
     lambda: sg.odeint(lambda t, y: y, sg.ones(2), [0, 1], event=lambda t, y: y)),
    (r"rtol: expected a number or a nest like y0",
     lambda: sg.odeint(lambda t, y: y, (1.0, 2.0), [0, 1], rtol=(1e-3, 1e-3, 1e-3))),
    (r"max_steps", lambda: sg.odeint(lambda t, y: y, 1.0, [0, 1], max_steps=0)),
)  # fmt: skip


@pytest.mark.parametrize(("message", "declare"), REFUSALS)
def test_bad_input_is_refused(message: str, declare: Callable[[], Any]) -> None:
    with pytest.raises(sg.GraphError, match=message):
        declare()


# -- surrogates -------------------------------------------------------------------------------------------------------


def test_a_surrogate_has_the_values_of_one_tensor_and_the_derivatives_of_another() -> None:
    x = sg.placeholder((3,), F64)
    y = surrogate(sg.floor(x * 10) / 10, x**3)
    (slope,) = sg.gradients(sg.sum(y * x), [x])
    (tangent,) = sg.jvp([y], [x], [np.ones(3)])
    second = sg.hessian(sg.sum(y), x)
    mapped = sg.vmap(lambda x: surrogate(sg.floor(x * 10) / 10, x**3))(x)
    at = np.array([0.55, 1.21, -2.0])
    made = run([y, slope, tangent, second, mapped, *sg.gradients(sg.sum(mapped), [x])], {x: at})
    value = np.floor(at * 10) / 10
    expected = [value, value + 3 * at**3, 3 * at**2, np.diag(6 * at), value, 3 * at**2]
    for found, known in zip(made, expected, strict=True):
        np.testing.assert_allclose(found, known, rtol=1e-12)
    assert "pow" not in sg.Session().compile(y, x).text("kernels")
