"""Logistic regression by Newton's method: the Hessian is derived too, and the whole solver is one compiled program.

    python examples/newton.py

A step solves H·d = g for the direction d (Boyd and Vandenberghe, Convex Optimization, 9.5). ``sg.scan`` makes the
steps inside the program: a call goes from data to the fitted weights, and tells the size of the gradient before each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import staticgrad as sg

STEPS, RIDGE = 8, 1e-3
Array = np.ndarray[Any, np.dtype[Any]]


def data(rows: int = 500, columns: int = 12, seed: int = 0) -> tuple[Array, Array, Array]:
    """Points (rows, columns), labels of 0 and 1, and the weights that the labels were drawn from."""
    rng = np.random.default_rng(seed)
    points, weights = rng.normal(size=(rows, columns)), rng.normal(size=columns)
    labels = rng.random(rows) < 1 / (1 + np.exp(-points @ weights))
    return points, labels.astype(np.float64), weights


def loss_of(w: sg.Tensor, x: sg.Tensor, y: sg.Tensor) -> sg.Tensor:
    """The mean negative log-likelihood of labels ``y``, and a ridge."""
    z = x @ w
    return sg.mean(sg.nn.softplus(z) - y * z) + RIDGE * sg.sum(w * w)


def solver(rows: int, columns: int) -> Any:
    """From points and labels to (weights, norm of the gradient before each step)."""
    graph = sg.Graph()
    with graph:
        x = sg.placeholder((rows, columns), sg.float64, name="x")
        y = sg.placeholder((rows,), sg.float64, name="y")

        def step(w: sg.Tensor, _: None) -> tuple[sg.Tensor, sg.Tensor]:
            loss = loss_of(w, x, y)
            (g,) = sg.gradients(loss, [w], unconnected_gradients="error")
            return w - sg.linalg.solve(sg.hessian(loss, w), g), sg.sqrt(sg.sum(g * g))

        fitted = sg.scan(step, np.zeros(columns), None, length=STEPS)
    return sg.Session(graph).compile(fitted, [x, y])


def main() -> None:
    points, labels, truth = data()
    weights, norms = solver(*points.shape)(points, labels)
    for number, norm in enumerate(norms):
        print(f"step {number}: |gradient| {norm:.1e}")
    print("correlation with the true weights:", round(float(np.corrcoef(weights, truth)[0, 1]), 4))


if __name__ == "__main__":
    main()
