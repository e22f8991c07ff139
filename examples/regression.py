"""Tabular regression from the first batch to serving: standardised columns, early stopping, one file.

    python examples/regression.py

Columns differ in scale, so the model keeps their means and deviations as variables that are not trained: the file has
them, and whoever restores it feeds raw columns and gets the target in its own unit. Batches have any number of rows;
the last of an epoch is smaller. Training stops when the validation loss has not fallen for some epochs and goes back to
the best weights. Serving declares the model alone, in a graph of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import staticgrad as sg

COLUMNS, WIDTH, BATCH, EPOCHS, PATIENCE = 6, 32, 64, 200, 15
CENTRES, SCALES = np.linspace(-30, 30, COLUMNS), np.geomspace(0.1, 100, COLUMNS)


def table(count: int, seed: int) -> tuple[Any, Any]:
    """Raw columns (count, COLUMNS) and targets around 1000, whose noise has a standard deviation of 5."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(count, COLUMNS))
    y = np.sin(2 * z[:, 0]) + z[:, 1] * z[:, 2] + 0.5 * z[:, 3] ** 2 - z[:, 4] + 0.1 * rng.normal(size=count)
    return (CENTRES + SCALES * z).astype(np.float32), (1000 + 50 * y).astype(np.float32)


class Regressor(sg.nn.Module):
    """Raw columns (n, COLUMNS) to targets (n,)."""

    def __init__(self) -> None:
        self.net = sg.nn.Sequential(
            sg.nn.Linear(COLUMNS, WIDTH), sg.nn.SiLU(), sg.nn.Linear(WIDTH, WIDTH), sg.nn.SiLU(), sg.nn.Linear(WIDTH, 1)
        )
        self.centres = sg.Variable(np.zeros(COLUMNS, np.float32), trainable=False)
        self.scales = sg.Variable(np.ones(COLUMNS, np.float32), trainable=False)
        self.centre, self.scale = (sg.Variable(np.float32(v), trainable=False) for v in (0, 1))

    def forward(self, x: sg.Tensor) -> sg.Tensor:
        return self.centre + self.scale * self.net((x - self.centres) / self.scales)[:, 0]

    def standardise(self, session: sg.Session, x: Any, y: Any) -> None:
        """Set means and deviations to those of a table."""
        values = {self.centres: x.mean(0), self.scales: x.std(0), self.centre: y.mean(), self.scale: y.std()}
        session.set_all(values)


def batches(x: Any, y: Any, rng: np.random.Generator) -> Iterator[tuple[Any, Any]]:
    """The rows in a new order, BATCH at a time; the last batch has those that are left."""
    order = rng.permutation(len(x))
    for start in range(0, len(x), BATCH):
        rows = order[start : start + BATCH]
        yield x[rows], y[rows]


def train(path: Path) -> tuple[list[float], int]:
    """Fit, and save the best weights: the validation loss after each epoch, and how many programs were compiled."""
    (x_train, y_train), (x_valid, y_valid) = table(1500, seed=0), table(250, seed=1)
    with sg.Graph() as graph:
        n = sg.dim("rows")
        x, y = sg.placeholder((n, COLUMNS), name="x"), sg.placeholder((n,), name="y")
        model = Regressor()
        loss = sg.nn.mse_loss(model(x), y) / model.scale**2
        fit = sg.optim.AdamW(lr=3e-3, weight_decay=1e-2).minimize(loss)
    session, rng = sg.Session(graph, seed=0), np.random.default_rng(0)
    model.standardise(session, x_train, y_train)
    step, evaluate = session.compile([loss, fit], [x, y]), session.compile(loss, [x, y])
    losses: list[float] = []
    best: dict[str, Any] = {}
    for _ in range(EPOCHS):
        for rows in batches(x_train, y_train, rng):
            step(*rows)
        losses.append(float(evaluate(x_valid, y_valid)))
        if losses[-1] == min(losses):
            best = model.state_dict(session)
        if min(losses[-PATIENCE:]) > min(losses):
            break
    model.load_state_dict(session, best)
    assert float(evaluate(x_valid, y_valid)) == min(losses)
    session.save(path)
    return losses, session.compile_count


def serve(path: Path) -> sg.Executable:
    """The model of a file as a function from raw columns to targets. It declares no loss and no optimizer."""
    with sg.Graph() as graph:
        x = sg.placeholder((None, COLUMNS), name="x")
        y = Regressor()(x)
    session = sg.Session(graph)
    assert not session.restore(path, strict=False).missing_keys  # the file has more: the optimizer's state
    return session.compile(y, [x])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "best.safetensors"
        losses, programs = train(path)
        predict = serve(path)
    print(f"{len(losses)} epochs, the best was {np.argmin(losses) + 1}: validation loss {min(losses):.4f}")
    assert len(losses) == np.argmin(losses) + 1 + PATIENCE
    assert programs == 3  # a step for full batches, one for the last of each epoch, the validation
    x, y = table(500, seed=2)
    one, many = predict(x[:1]), predict(x)
    explained = 1 - np.sum((many - y) ** 2) / np.sum((y - y.mean()) ** 2)
    print(
        f"500 unseen rows: {explained:.1%} of the variance explained; the first by itself {one[0]:.1f}, true {y[0]:.1f}"
    )
    assert (one.shape, many.shape) == ((1,), (500,))
    np.testing.assert_allclose(one, many[:1], rtol=1e-6)
    assert explained > 0.98


if __name__ == "__main__":
    main()
