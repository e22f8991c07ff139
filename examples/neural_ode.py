"""A neural network learns the differential equation of a damped oscillator, by gradients through adaptive steps.

    python examples/neural_ode.py

The right side of dx/dt = f(x) is a small network. ``sg.odeint`` solves the equation for all trajectories at once, with
as many steps as its tolerance asks for, and gives the states at the times of the measurements. The gradient goes back
through these steps; between forward and backward only the states at their beginnings are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import staticgrad as sg

STEPS, DT, PATHS = 40, 0.1, 16


def measured(count: int, seed: int = 0) -> tuple[Any, Any]:
    """Starts (count, 2) and the exact states (STEPS, count, 2) of x'' = -x - 0.3 x' at each time."""
    starts = np.random.default_rng(seed).normal(size=(count, 2))
    system = np.array([[0.0, 1.0], [-1.0, -0.3]])
    values, vectors = np.linalg.eig(system)
    moves = [(vectors * np.exp(values * DT * k)) @ np.linalg.inv(vectors) for k in range(1, STEPS + 1)]
    states = np.stack([starts @ move.real.T for move in moves])
    return starts.astype(np.float32), states.astype(np.float32)


def integrate(f: Callable[[sg.Tensor], sg.Tensor], start: sg.Tensor) -> sg.Tensor:
    """The states at the times of the measurements, (STEPS, *start's shape)."""
    times = DT * np.arange(STEPS + 1)
    states: sg.Tensor = sg.odeint(lambda t, x: f(x), start, times, rtol=1e-4, atol=1e-5, max_steps=100)
    return states[1:]


def train(iterations: int = 400) -> tuple[list[float], float]:
    """The loss before each iteration, and in the end that of trajectories which were not trained on."""
    with sg.Graph() as graph:
        start = sg.placeholder((PATHS, 2), name="start")
        states = sg.placeholder((STEPS, PATHS, 2), name="states")
        field = sg.nn.Sequential(sg.nn.Linear(2, 32), sg.nn.Tanh(), sg.nn.Linear(32, 2))
        loss = sg.nn.mse_loss(integrate(field, start), states)
        update = sg.optim.Adam(lr=0.01).minimize(loss)
    with sg.Session(graph) as session:
        step = session.compile([loss, update], [start, states])
        losses = [float(step(*measured(PATHS))[0]) for _ in range(iterations)]
        others = session.run(loss, dict(zip([start, states], measured(PATHS, seed=1), strict=True)))
    return losses, float(others)


def main() -> None:
    losses, others = train()
    for number in range(0, len(losses), 80):
        print(f"step {number:3}: loss {losses[number]:.5f}")
    print(f"trajectories not seen before: loss {others:.5f}")


if __name__ == "__main__":
    main()
