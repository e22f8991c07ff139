"""Three losses on one trunk: where their gradients conflict, and two ways to train them together.

    python examples/several_losses.py

A trunk is shared by a classifier, a regression and a reconstruction. Each loss has a gradient of its own for the
trunk; all are tensors of one program, in which two methods compute with them:

- the conflicting part is projected away: a gradient loses its component against every other one that it opposes
  (PCGrad, Yu et al. 2020, with the tasks in a fixed order);
- the weights of the losses are learned: each is divided by a variance of its own, whose logarithm is added
  (Kendall et al. 2018).
"""

from __future__ import annotations

from typing import Any

import numpy as np

import staticgrad as sg

INPUTS, WIDTH, CLASSES, BATCH, TRAINED = 12, 32, 4, 64, 2000
TASKS = ("classes", "values", "inputs")


def data(count: int, seed: int) -> tuple[Any, Any, Any]:
    """Points (count, INPUTS); for each a class and, by the same features, a number with noise of variance 0.04."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(count, INPUTS)).astype(np.float32)
    features = np.tanh(points @ np.random.default_rng(0).normal(size=(INPUTS, 3)))
    labels = 2 * (features[:, 0] > 0) + (features[:, 1] > 0)
    values = features[:, 2] ** 2 - features[:, 0] + rng.normal(scale=0.2, size=count)
    return points, labels, values.astype(np.float32)


class Network(sg.nn.Module):
    """A trunk with a head for each task, and the logarithm of each task's variance."""

    def __init__(self) -> None:
        self.trunk = sg.nn.Sequential(
            sg.nn.Linear(INPUTS, WIDTH), sg.nn.Tanh(), sg.nn.Linear(WIDTH, WIDTH), sg.nn.Tanh()
        )
        self.heads = sg.nn.ModuleList([sg.nn.Linear(WIDTH, n) for n in (CLASSES, 1, INPUTS)])
        self.log_variances = sg.Variable(np.zeros(3, np.float32))

    def forward(self, points: sg.Tensor, labels: sg.Tensor, values: sg.Tensor) -> sg.Tensor:
        """The losses, (3,)."""
        shared = self.trunk(points)
        scores, value, again = (head(shared) for head in self.heads)
        errors = sg.nn.mse_loss(value[:, 0], values), sg.nn.mse_loss(again, points)
        return sg.stack([sg.nn.cross_entropy(scores, labels), *errors])


def project(gradients: sg.Tensor) -> sg.Tensor:
    """The rows of a matrix, each less its components along the other rows that it opposes."""
    rows = [gradients[i] for i in range(gradients.shape[0])]
    projected = []
    for i, row in enumerate(rows):
        for other in rows[:i] + rows[i + 1 :]:
            row = row - sg.minimum(sg.vecdot(row, other), 0.0) / sg.vecdot(other, other) * other
        projected.append(row)
    return sg.stack(projected)


class Model:
    """The declaration: losses, what is known of the trunk's gradients, and the ops that train by each method."""

    def __init__(self) -> None:
        self.graph = sg.Graph()
        with self.graph:
            points = sg.placeholder((BATCH, INPUTS), name="points")
            labels = sg.placeholder((BATCH,), sg.int64, name="labels")
            self.feeds = [points, labels, sg.placeholder((BATCH,), name="values")]
            net = Network()
            self.losses = net(*self.feeds)
            total = sg.sum(self.losses)
            trunk, heads = net.trunk.parameters(), net.heads.parameters()
            by_task = [sg.gradients(self.losses[i], trunk, unconnected_gradients="error") for i in range(3)]
            self.gradients = sg.stack([sg.concat([sg.reshape(g, -1) for g in gs]) for gs in by_task])  # (3, n)
            units = self.gradients / sg.linalg.vector_norm(self.gradients, axis=1, keepdims=True)
            self.cosines, self.projected = units @ units.T, project(self.gradients)
            ends = np.cumsum([w.size for w in trunk])[:-1].tolist()
            parts = sg.split(sg.sum(self.projected, axis=0), ends)
            slopes = [*(p.reshape(w.shape) for p, w in zip(parts, trunk, strict=True)), *sg.gradients(total, heads)]
            s = self.log_variances = net.log_variances
            weighted = sg.sum(sg.exp(-s) * self.losses + s)
            faster = {"params": [s], "lr": 0.02}
            self.ways = {
                "sum of losses": sg.optim.Adam(lr=3e-3).minimize(total),
                "projected": sg.optim.Adam(lr=3e-3).apply_gradients(list(zip(slopes, trunk + heads, strict=True))),
                "learned weights": sg.optim.Adam(lr=3e-3, groups=[faster]).minimize(weighted),
            }


def fit(model: Model, way: str, steps: int = 1000) -> tuple[Any, float, Any]:
    """Train in a session of its own: the losses of the last 100 steps, the share of pairs of gradients that conflicted,
    and the variances."""
    session = sg.Session(model.graph, seed=0)
    step = session.compile([model.losses, model.cosines, model.ways[way]], model.feeds)
    arrays, rng = data(TRAINED, seed=1), np.random.default_rng(2)
    batches = (rng.integers(0, TRAINED, BATCH) for _ in range(steps))
    losses, cosines, _ = zip(*(step(*(a[rows] for a in arrays)) for rows in batches), strict=True)
    pairs = np.array(cosines)[:, [0, 0, 1], [1, 2, 2]]
    return np.mean(losses[-100:], axis=0), float(np.mean(pairs < 0)), np.exp(session.get(model.log_variances))


def main() -> None:
    model = Model()
    print(f"{'':<16}" + "".join(f"{task:>8}" for task in TASKS) + "   pairs in conflict")
    for way in model.ways:
        losses, conflicts, variances = fit(model, way)
        print(f"{way:<16}" + "".join(f"{loss:8.3f}" for loss in losses) + f"{conflicts:20.0%}")
        assert losses.max() < 0.25
        assert conflicts > 0.1
    print(f"{'variances':<16}" + "".join(f"{variance:8.3f}" for variance in variances))
    np.testing.assert_allclose(variances, losses, rtol=0.3)  # the best variance of a loss is the loss itself


if __name__ == "__main__":
    main()
