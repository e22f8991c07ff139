"""``sg.optim.LBFGS``: the course of PyTorch's, state, losses of every kind, what is refused.

Courses without a line search are what ``torch.optim.LBFGS`` 2.13 computes in float64.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staticgrad as sg

Array = np.ndarray[Any, Any]


def valley(dtype: Any = np.float64) -> sg.Tensor:
    """A curved valley in the space of two variables."""
    w, b = sg.Variable(np.array([-1.2, 1.0, 0.5], dtype), name="w"), sg.Variable(np.array(0.3, dtype), name="b")
    return sg.sum(100 * (w[1:] - w[:-1] ** 2) ** 2 + (1 - w[:-1]) ** 2) + (b - w[0]) ** 4 + 0.1 * b * b


def course(train: sg.Node, loss: sg.Tensor, session: sg.Session, runs: int) -> list[float]:
    return [float(session.run([loss, train])[0]) for _ in range(runs)]


COURSES: list[tuple[dict[str, Any], list[float], list[float]]] = [
    ({"lr": 0.01, "max_iter": 1}, [54.2715, 52.63474476, 51.84647786, 51.06931136, 50.30140899],
     [-1.186351164, 0.9921666226, 0.5084931904, 0.2984051643]),
    ({"lr": 0.1, "max_iter": 4, "history_size": 3}, [54.2715, 25.47097875, 14.91413896, 9.647658329, 7.085275009],
     [-0.9493503438, 0.8678759928, 0.699826943, 0.1753972252]),
    ({"lr": 0.2, "max_iter": 5}, [54.2715, 10.28894471, 5.801095951, 4.907230625, 4.326698768],
     [-0.8109465543, 0.6812902648, 0.4807095123, -0.2652837658]),
    ({"lr": 0.2, "max_iter": 6, "max_eval": 3}, [54.2715, 21.16454057, 12.676973, 8.648526407, 6.732550163],
     [-0.9300736886, 0.8433091619, 0.665063479, 0.2260334302]),
]  # fmt: skip


@pytest.mark.parametrize(("options", "losses", "end"), COURSES)
def test_without_a_line_search_the_course_is_pytorch_s(
    g: sg.Graph, options: dict[str, Any], losses: list[float], end: list[float]
) -> None:
    loss = valley()
    train, session = sg.optim.LBFGS(**options).minimize(loss), sg.Session(g)
    np.testing.assert_allclose(course(train, loss, session, 5), losses, rtol=1e-9)
    np.testing.assert_allclose([*session.get(g.variables["w"]), session.get(g.variables["b"])], end, rtol=1e-9)


def test_with_a_line_search_it_finds_the_minimum(g: sg.Graph) -> None:
    loss = valley()
    opt = sg.optim.LBFGS(history_size=5, line_search_fn="strong_wolfe")
    train, session = opt.minimize(loss), sg.Session(g)
    losses = course(train, loss, session, 6)
    assert losses == sorted(losses, reverse=True)
    best = sg.minimize(loss, gtol=1e-10, ftol=0.0)
    np.testing.assert_allclose(losses[-1], best.fun, rtol=1e-7)
    np.testing.assert_allclose(session.get(g.variables["w"]), best.x["w"], atol=1e-4)
    w = g.variables["w"]
    assert opt.slot(w, "steps").shape == opt.slot(w, "changes").shape == (5, 3)
    assert repr(opt).startswith("LBFGS(lr=1.0, max_iter=20, history_size=5, line_search_fn='strong_wolfe'")


def test_training_resumes_bit_for_bit(tmp_path: Path) -> None:
    def made() -> tuple[sg.Tensor, sg.Node, sg.Session]:
        with sg.Graph() as graph:
            loss = valley()
            noisy = loss + 0.01 * sg.sum(sg.random.normal((3,), dtype=sg.float64) * graph.variables["w"])
            train = sg.optim.LBFGS(max_iter=3, history_size=4, line_search_fn="strong_wolfe").minimize(noisy)
        return loss, train, sg.Session(graph, seed=3)

    loss, train, session = made()
    whole = course(train, loss, session, 6)
    loss, train, session = made()
    first = course(train, loss, session, 3)
    session.save(tmp_path / "state.safetensors")
    loss, train, session = made()
    assert session.restore(tmp_path / "state.safetensors") == ([], [])
    assert first + course(train, loss, session, 3) == whole


def test_a_network_is_trained_on_all_data(g: sg.Graph) -> None:
    rng = np.random.default_rng(0)
    x, t = sg.placeholder((None, 2)), sg.placeholder((None,), sg.int64)
    net = sg.nn.Sequential(sg.nn.Linear(2, 16), sg.nn.Tanh(), sg.nn.Linear(16, 3))
    loss = sg.nn.cross_entropy(net(x), t)
    train = sg.optim.LBFGS(history_size=10, line_search_fn="strong_wolfe").minimize(loss, net)
    data = rng.normal(size=(120, 2)).astype(np.float32)
    labels = (np.hypot(*data.T) > 0.8).astype(np.int64) + (data[:, 0] > 0.9)
    session = sg.Session(g, seed=1)
    step = session.compile([loss, train], [x, t])
    losses = [float(step(data, labels)[0]) for _ in range(8)]
    assert losses[-1] < 0.05 < losses[0] / 10
    assert session.run(sg.optim.global_norm(sg.gradients(loss, list(net.parameters()))), {x: data, t: labels}) < 0.1


def test_hooks_effects_and_random_numbers(g: sg.Graph) -> None:
    """Hooks count at every point. Running statistics change once a run. Draws are the same at all points of a run, and
    others in the next one."""
    norm, w = sg.nn.BatchNorm1d(3), sg.Variable(np.ones(3, np.float32), name="w")
    v = sg.Variable(np.zeros(2), name="v")
    v.register_hook(lambda grad: grad * np.array([1.0, 0.0]))
    data = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32) + 5
    noise = sg.random.normal((2,), dtype=sg.float64)
    loss = sg.sum((norm(sg.constant(data)) * w - 1) ** 2).astype(sg.float64) + sg.sum((v - noise) ** 2)
    opt = sg.optim.LBFGS(max_iter=30, history_size=5, line_search_fn="strong_wolfe")
    train, session = opt.minimize(loss), sg.Session(g)
    drawn, _ = session.run([noise, train])
    np.testing.assert_allclose(session.get(v), [drawn[0], 0], atol=0.01)
    np.testing.assert_allclose(session.get(norm.running_mean), 0.1 * data.mean(axis=0), rtol=1e-5)
    again, _ = session.run([noise, train])
    assert abs(again - drawn).min() > 0


def test_variables_of_several_dtypes_and_schedules(g: sg.Graph) -> None:
    a, b = sg.Variable(np.zeros(3, np.float32), name="a"), sg.Variable(np.zeros(2), dtype=sg.bfloat16, name="b")
    frozen = sg.Variable(np.ones(2), name="frozen", trainable=False)
    loss = sg.sum((a - 1) ** 2) + sg.sum((b.astype(sg.float32) - 2) ** 2) + sg.sum(frozen).astype(sg.float32)
    opt = sg.optim.LBFGS(lr=sg.optim.schedules.exponential(1.0, gamma=0.9), max_iter=2, history_size=2)
    train, session = opt.minimize(loss), sg.Session(g)
    session.run(train)
    assert session.run(opt.lr) == 0.9
    for _ in range(3):
        session.run(train)
    assert abs(session.get(a) - 1).max() < 0.5
    assert session.get(frozen).tolist() == [1, 1]
    assert session.get(b).dtype == sg.bfloat16


def test_a_loss_that_is_not_finite_changes_nothing_with_a_line_search(g: sg.Graph) -> None:
    w = sg.Variable(np.array([-1.0, 2.0]), name="w")
    loss = sg.sum(w - sg.log(w))
    train, session = sg.optim.LBFGS(line_search_fn="strong_wolfe").minimize(loss), sg.Session(g)
    session.run(train)
    assert session.get(w).tolist() == [-1, 2]


def test_what_makes_no_sense_is_refused(g: sg.Graph) -> None:
    valley()
    for wrong in ({"max_iter": 0}, {"history_size": 1.5}, {"max_eval": 0}, {"tolerance_grad": -1.0},
                  {"line_search_fn": "armijo"}, {"lr": -1.0}):  # fmt: skip
        with pytest.raises(sg.GraphError, match=next(iter(wrong))):
            sg.optim.LBFGS(**wrong)
    with pytest.raises(sg.GraphError, match=r"gradients at one point are not enough: it takes a loss"):
        sg.optim.LBFGS().step()
    with pytest.raises(sg.GraphError, match="expected a loss of one number"):
        sg.optim.LBFGS().minimize(g.variables["w"] * 2)
    with pytest.raises(sg.GraphError, match="depends on no trainable variable"):
        sg.optim.LBFGS().minimize(sg.constant(1.0))
    w = g.variables["w"]
    with sg.control_dependencies([sg.assign(w, w * 2)]):
        later = sg.sum(w**2)
    with pytest.raises(sg.GraphError, match=r"lbfgs: minimize: .* writes a variable"):
        sg.optim.LBFGS().minimize(later)
