"""The examples run, and do what they say: their claims are checked against formulas and differences."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import gallery
import numpy as np
import pages
import pytest
from source_tree import ROOT

import staticgrad as sg

FOLDER = ROOT / "examples"
NEEDS = {"pymc_nutpie": "support.pymc_models"}  # what has to be imported first, and may be missing


def load(name: str) -> Any:
    """The example as a module. The name is its own while it runs: dataclasses look it up."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    for name in [name for name in sys.modules if name.startswith("example_")]:
        del sys.modules[name]


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for package in pages.needs(FOLDER / f"{name}.py"):
        pytest.importorskip(package)
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], exc_type=ImportError)
    example = load(name)
    assert f"python examples/{name}.py" in example.__doc__
    example.main()
    printed = capsys.readouterr().out
    assert printed.count("\n") >= 2
    assert "nan" not in printed


def test_the_notebook_runs_from_top_to_bottom_and_shows_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((FOLDER / "notebook.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells), "strip the outputs"
    namespace: dict[str, Any] = {}
    values = [gallery.cell_value("".join(cell["source"]), cell["id"], namespace) for cell in cells]
    pictures = [value for value in values if value is not None]
    assert all(re.search("<(svg|table)", picture._repr_html_()) for picture in pictures)
    names = [type(picture).__name__ for picture in pictures]
    assert names == ["Graph", "Executable", "MemoryReport", "CostReport", "Profile"]


def test_newton_converges_quadratically_to_a_stationary_point() -> None:
    newton = load("newton")
    points, labels, _ = newton.data(300, 7, seed=5)
    weights, norms = newton.solver(300, 7)(points, labels)
    p = 1 / (1 + np.exp(-points @ weights))
    assert np.abs(points.T @ (p - labels) / 300 + 2 * newton.RIDGE * weights).max() < 1e-12
    assert all(after < 10 * before**1.7 for before, after in pairwise(norms[2:6]))


def test_equilibrium_clears_all_markets_and_knows_what_a_drought_does() -> None:
    economy = load("equilibrium")
    h = 1e-6
    shares = np.array([0.7 - h, 0.7, 0.7 + h])
    prices, welfare, prices_by_share, welfare_by_share = economy.economy(3)(shares)
    owned = economy.OWNED * np.array([1, 0.7, 1, 1])
    p, elasticity = prices[1], economy.SUBSTITUTION[:, None]
    bought = economy.TASTES * p**-elasticity
    bought *= (owned @ p / (bought @ p))[:, None]
    np.testing.assert_allclose(bought.sum(axis=0), owned.sum(axis=0), rtol=1e-12)
    for values, slopes in ((prices, prices_by_share), (welfare, welfare_by_share)):
        np.testing.assert_allclose(slopes[1], (values[2] - values[0]) / (2 * h), rtol=1e-7, atol=1e-8)


def test_kalman_likelihood_is_that_of_the_joint_normal() -> None:
    kalman = load("kalman")
    seen, count, process, observation = kalman.observations(12), 12, 0.3, 0.7
    with sg.Graph() as graph:
        y, q, r = (sg.placeholder(shape, sg.float64) for shape in ((count, 1), (), ()))
        found = sg.Session(graph).run(kalman.negative_log_likelihood(y, q, r), {y: seen, q: process, r: observation})
    spread, rows, powers = 10 * np.eye(2), np.zeros((count, count)), np.eye(2)
    states = []
    for _ in range(count):
        spread = kalman.MOVE @ spread @ kalman.MOVE.T + process * kalman.PUSH
        states.append(spread)
    for i in range(count):
        powers = np.eye(2)
        for k in range(i, count):
            rows[i, k] = rows[k, i] = (kalman.LOOK @ powers @ states[i] @ kalman.LOOK.T).item()
            powers = kalman.MOVE @ powers
    rows += observation * np.eye(count)
    want = 0.5 * (seen[:, 0] @ np.linalg.solve(rows, seen[:, 0]) + np.linalg.slogdet(2 * np.pi * rows)[1])
    np.testing.assert_allclose(found, want, rtol=1e-9)


def test_kalman_finds_the_order_of_both_variances() -> None:
    kalman = load("kalman")
    losses, process, observation = kalman.fit(kalman.observations(400))
    assert losses[-1] < losses[0]
    assert 0.5 < process / kalman.TRUE["process"] < 2
    assert 0.7 < observation / kalman.TRUE["observation"] < 1.4


def test_a_cart_without_force_keeps_its_energy() -> None:
    pytest.importorskip("casadi")
    nmpc = load("nmpc")
    follow = sg.function(lambda state, force: nmpc.step(state[None], force[None])[0])

    def energy(state: Any) -> float:
        _, angle, speed, spin = state
        along, up = speed + nmpc.LENGTH * spin * np.cos(angle), -nmpc.LENGTH * spin * np.sin(angle)
        moving = 0.5 * nmpc.CART * speed**2 + 0.5 * nmpc.POLE * (along**2 + up**2)
        return float(moving + nmpc.POLE * nmpc.GRAVITY * nmpc.LENGTH * np.cos(angle))

    state = np.array([0.0, 1.0, 0.3, 0.0])
    energies = [energy(state)]
    for _ in range(20):
        state = follow(state, np.float64(0.0))
        energies.append(energy(state))
    np.testing.assert_allclose(energies, energies[0], rtol=1e-3)
    assert abs(state[1] - 1) > 0.5


def test_a_rocket_meets_its_equations_between_the_instants(tmp_path: Path) -> None:
    """The path that IPOPT finds is that of an integrator with the thrust found, and no fuel is left."""
    pytest.importorskip("casadi")
    rocket = load("optimal_control")
    height, speed, mass, thrust, final = rocket.climb(rocket.solver(tmp_path))
    assert mass[-1] == pytest.approx(rocket.FUEL)
    h, v, m = 1.0, 0.0, 1.0
    fine = 20
    step = final / rocket.STEPS / fine
    for k in range(rocket.STEPS):
        for part in range(fine):
            push = thrust[k] + (thrust[k + 1] - thrust[k]) * (part + 0.5) / fine
            drag = rocket.DRAG * v**2 * math.exp(-rocket.DECAY * (h - 1))
            h, v, m = h + step * v, v + step * ((push - drag) / m - 1 / h**2), m - step * 2 * push
    np.testing.assert_allclose([h, v, m], [height[-1], speed[-1], mass[-1]], atol=2e-3)


def test_heston_without_wobble_is_black_scholes() -> None:
    heston = load("heston")
    spot, sigma, rate = 100.0, 0.2, 0.02
    value, slopes = heston.pricer()(np.array([spot, sigma**2, 1.5, sigma**2, 0.0, 0.0, rate]))
    first = (math.log(spot / heston.STRIKE) + (rate + sigma**2 / 2) * heston.YEARS) / sigma

    def below(x: float) -> float:
        return 0.5 * (1 + math.erf(x / math.sqrt(2)))

    want = spot * below(first) - heston.STRIKE * math.exp(-rate) * below(first - sigma)
    assert abs(value - want) < 0.4  # three deviations of the mean
    assert abs(slopes[0] - below(first)) < 0.02


def test_libor_slopes_are_differences() -> None:
    libor, where, step = load("libor"), 60, 1e-6
    prices = []
    for sign in (1, -1):
        moved = libor.FORWARDS.copy()
        moved[where] += sign * step
        prices.append(libor.pricer(seed=3).map(moved, libor.VOLATILITIES, range(256), reduce="mean")["price"])
    slopes = libor.pricer(threads=2, seed=3).map(libor.FORWARDS, libor.VOLATILITIES, range(256), reduce="mean")
    np.testing.assert_allclose(slopes["forwards"][where], (prices[0] - prices[1]) / (2 * step), rtol=1e-6)


def test_heston_slopes_are_differences() -> None:
    heston = load("heston")
    prices = []
    for side in (-1, 0, 1):  # a session each: the same draws
        moved = heston.VALUES.copy()
        moved[2] += side * 1e-6
        prices.append(heston.pricer()(moved))
    assert abs((prices[2][0] - prices[0][0]) / 2e-6 - prices[1][1][2]) < 1e-6


def test_calibrated_heston_prices_and_parameters() -> None:
    calibration = load("heston_calibration")
    strikes, years, sigma = calibration.STRIKES, calibration.MATURITIES, 0.2
    found = sg.function(calibration.prices)(np.array([sigma**2, 1.5, sigma**2, 1e-3, 0.0]))
    spread = sigma * np.sqrt(years)
    first = (np.log(calibration.SPOT / strikes) + calibration.RATE * years) / spread + spread / 2
    below = np.vectorize(lambda x: 0.5 * (1 + math.erf(x / math.sqrt(2))))
    want = calibration.SPOT * below(first) - strikes * np.exp(-calibration.RATE * years) * below(first - spread)
    np.testing.assert_allclose(found, want, atol=1e-4)
    quotes = sg.function(calibration.prices)(calibration.TRUE)
    fitted = sg.least_squares(
        calibration.misfit, calibration.START, args=(quotes, calibration.vegas()), x_scale="jac",
        bounds=(calibration.LOWER, calibration.UPPER),
    )  # fmt: skip
    np.testing.assert_allclose(fitted.x, calibration.TRUE, rtol=1e-5)


def test_gaussian_process_predicts_what_it_has_learnt() -> None:
    rng = np.random.default_rng(3)
    points, wanted = rng.uniform(-3, 3, 60), np.linspace(-2, 2, 7)
    fit = load("gaussian_process").regression(points, np.cos(points) + 0.05 * rng.normal(size=60), wanted)
    assert fit.losses[-1] < fit.losses[0]
    assert 0.03 < fit.noise < 0.08
    assert np.all(np.abs(fit.mean - np.cos(wanted)) < 4 * fit.deviation + 0.01)


def test_the_pendulum_stands_in_the_end() -> None:
    swing_up = load("swing_up")
    costs, torques, path = swing_up.plan()
    assert np.abs(torques).max() <= swing_up.STRONGEST < swing_up.GRAVITY
    assert costs[-1] < costs[0] / 2
    assert np.cos(path[-10:, 0]).min() > 0.8


def test_clipped_gradients_equal_a_loop_over_examples() -> None:
    clipped = load("clipped_examples")
    points, labels = next(iter(clipped.batches(1)))
    with sg.Graph() as graph:
        model = clipped.Model()
        one = sg.placeholder((1, clipped.INPUTS)), sg.placeholder((1,), sg.int64)
        parameters = list(model.net.parameters())
        slopes = sg.gradients(sg.nn.cross_entropy(model.net(one[0]), one[1]), parameters)
        session = sg.Session(graph)
        lengths, found = session.run([model.lengths, model.clipped], {model.x: points, model.t: labels})
        want = [np.zeros(p.shape) for p in parameters]
        for i in range(clipped.BATCH):
            each = session.run(slopes, {one[0]: points[i : i + 1], one[1]: labels[i : i + 1]})
            length = math.sqrt(sum(float((g**2).sum()) for g in each))
            assert abs(length - lengths[i]) < 1e-4
            for total, g in zip(want, each, strict=True):
                total += g * min(1.0, clipped.LONGEST / length)
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_gradients_by_task_are_those_of_a_tape() -> None:
    example = load("several_losses")
    model = example.Model()
    feeds = dict(zip(model.feeds, example.data(example.BATCH, seed=5), strict=True))
    with sg.Session(model.graph, seed=0) as session:
        found, cosines = session.run([model.gradients, model.cosines], feeds)
        with session.forward(model.losses, feeds) as tape:
            for task, row in enumerate(found):
                session.zero_grad()
                tape.backward(model.losses, grad=np.eye(3, dtype=np.float32)[task], retain_graph=task < 2)
                slopes = [session.grad(v) for name, v in model.graph.variables.items() if name.startswith("trunk")]
                want = np.concatenate([slope.ravel() for slope in slopes if slope is not None])
                np.testing.assert_allclose(row, want, rtol=1e-3, atol=1e-6)
    lengths = np.linalg.norm(found, axis=1)
    np.testing.assert_allclose(cosines, found @ found.T / np.outer(lengths, lengths), rtol=1e-4, atol=1e-5)


def test_conflicting_gradients_are_projected_on_each_other_in_turn() -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(4, 6)), np.ones((1, 6)), -np.eye(6)[:1]])
    found = sg.Session().run(load("several_losses").project(sg.constant(rows)))
    for i, row in enumerate(rows):
        want = row.copy()
        for other in np.delete(rows, i, axis=0):
            if want @ other < 0:
                want -= want @ other / (other @ other) * other
        np.testing.assert_allclose(found[i], want, atol=1e-12)


def test_influence_is_the_slope_by_the_share_of_an_example() -> None:
    influence = load("influence")
    model, everyone = influence.Model(*influence.data()), np.ones(influence.COUNT)
    model.fit(everyone)
    guesses = model.influence(everyone)
    for i in np.argsort(guesses)[[0, 1, influence.COUNT // 2, -2, -1]]:
        losses = []
        for change in (-1e-3, 1e-3):
            share = everyone.copy()
            share[i] += change
            model.fit(share)
            losses.append(float(model.tested()))
        np.testing.assert_allclose(guesses[i], (losses[0] - losses[1]) / 2e-3, rtol=1e-4)


def test_a_batch_as_large_as_the_noise_scale_has_as_much_noise_as_gradient() -> None:
    influence = load("influence")
    points, labels, *_ = data = influence.data()
    ((_, scale),) = influence.Model(*data).fit(np.ones(influence.COUNT), steps=1)
    slopes = -labels[:, None] * points / 2  # of log(1 + exp(-label * points @ w)) at w = 0
    rows = np.random.default_rng(0).integers(0, len(slopes), (20_000, round(scale)))
    noise = slopes[rows].mean(axis=1) - slopes.mean(axis=0)
    ratio = (noise**2).sum(axis=1).mean() / (slopes.mean(axis=0) ** 2).sum()
    assert abs(ratio * round(scale) / scale - 1) < 0.03


def test_a_served_model_takes_raw_columns_and_any_number_of_rows(tmp_path: Path) -> None:
    regression = load("regression")
    x, y = regression.table(300, seed=3)
    with sg.Graph() as graph:
        model = regression.Regressor()
    with sg.Session(graph, seed=0) as session:
        model.standardise(session, x, y)
        session.save(tmp_path / "model.safetensors")
    predict = regression.serve(tmp_path / "model.safetensors")
    assert [len(predict(x[:count])) for count in (1, 7, 300)] == [1, 7, 300]
    assert abs(predict(x).mean() - y.mean()) < y.std()
    moved = x + np.float32(1e-3) * regression.SCALES.astype(np.float32)  # a thousandth of each column's deviation
    assert np.abs(predict(moved) - predict(x)).max() < 0.01 * y.std()


def test_the_neural_ode_learns_motions_that_it_has_not_seen() -> None:
    losses, others = load("neural_ode").train()
    assert losses[-1] < losses[0] / 100
    assert others < losses[0] / 10


def test_the_language_model_writes_its_text() -> None:
    model = load("language_model")
    losses, text = model.learn()
    assert losses[-1] < 0.3
    words = set(model.TEXT.replace(".", "").split())
    assert set(text.replace(".", "").split()[:-1]) <= words
