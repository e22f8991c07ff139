"""Gaussian process regression: length scale, amplitude and noise are found by gradients through a Cholesky factor.

    python examples/gaussian_process.py

The loss is the negative log marginal likelihood (Rasmussen and Williams, Gaussian Processes for Machine Learning,
algorithm 2.1). Training and prediction are two programs over one graph, which share the variables of the session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import staticgrad as sg

POINTS, STEPS = 80, 150


def kernel(a: sg.Tensor, b: sg.Tensor, logs: sg.Tensor) -> sg.Tensor:
    """Squared-exponential covariances of points (n,) and (m,). ``logs``: of length scale, amplitude and noise."""
    return sg.exp(2 * logs[1] - 0.5 * ((a[:, None] - b[None, :]) * sg.exp(-logs[0])) ** 2)


@dataclass
class Fit:
    losses: list[float]
    scale: float
    noise: float
    mean: Any  # of the prediction, at each point asked for
    deviation: Any


def regression(points: Any, values: Any, wanted: Any) -> Fit:
    """Fit points (n,) and values (n,), and predict at points (m,)."""
    with sg.Graph() as graph:
        x, y, at = (sg.placeholder(a.shape, sg.float64) for a in (points, values, wanted))
        logs = sg.Variable(np.array([0.0, 0.0, -1.0]), name="logs")
        factor = sg.linalg.cholesky(kernel(x, x, logs) + (sg.exp(2 * logs[2]) + 1e-8) * np.eye(len(points)))
        white = sg.linalg.solve_triangular(factor, y)  # yᵀK⁻¹y is its squared length
        loss = 0.5 * sg.sum(white**2) + sg.sum(sg.log(sg.linalg.diagonal(factor)))
        train = sg.optim.Adam(lr=0.05).minimize(loss)
        across = sg.linalg.solve_triangular(factor, kernel(x, at, logs))
        mean = across.T @ white
        variance = sg.exp(2 * logs[1]) - sg.sum(across**2, axis=0)

        session = sg.Session(graph)
        step = session.compile([loss, train], [x, y])
        losses = [float(step(points, values)[0]) for _ in range(STEPS)]
        found, spread = session.run((mean, sg.sqrt(variance)), {x: points, y: values, at: wanted})
    scale, _, noise = np.exp(session.get(logs))
    return Fit(losses, float(scale), float(noise), found, spread)


def main() -> None:
    rng = np.random.default_rng(0)
    points = rng.uniform(-4, 4, POINTS)
    fit = regression(points, np.sin(points) + 0.1 * rng.normal(size=POINTS), np.linspace(-3, 5, 9))
    print(f"loss {fit.losses[0]:.1f} -> {fit.losses[-1]:.1f}, length scale {fit.scale:.2f}, noise {fit.noise:.3f}")
    for at, mean, deviation in zip(np.linspace(-3, 5, 9), fit.mean, fit.deviation, strict=True):
        print(f"  {at:5.1f}: {mean:6.3f} ± {deviation:.3f}   sin {np.sin(at):6.3f}")


if __name__ == "__main__":
    main()
