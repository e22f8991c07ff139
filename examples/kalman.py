"""Noise levels of a hidden random walk, learned from the likelihood that a Kalman filter gives its observations.

    python examples/kalman.py

An object moves with a velocity that wanders; its position is seen through noise. The filter is a ``sg.scan`` over the
observations whose state is a mean and a covariance (Särkkä, Bayesian Filtering and Smoothing, theorem 4.2). Its
gradient by the logarithms of both variances runs the loop backwards, in the same compiled program as Adam's update.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import staticgrad as sg

MOVE = np.array([[1.0, 1.0], [0.0, 1.0]])  # position += velocity
PUSH = np.array([[1 / 3, 1 / 2], [1 / 2, 1.0]])  # covariance of a random acceleration's effect
LOOK = np.array([[1.0, 0.0]])
TRUE = {"process": 0.05, "observation": 2.0}


def observations(count: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    state, seen = np.zeros(2), []
    for _ in range(count):
        state = MOVE @ state + rng.multivariate_normal(np.zeros(2), TRUE["process"] * PUSH)
        seen.append(LOOK @ state + rng.normal(scale=TRUE["observation"] ** 0.5, size=1))
    return np.stack(seen)


State = tuple[sg.Tensor, sg.Tensor]  # mean and covariance


def negative_log_likelihood(seen: sg.Tensor, process: sg.Tensor, observation: sg.Tensor) -> sg.Tensor:
    """Of observations (n, 1), given both variances."""

    def step(state: State, y: sg.Tensor) -> tuple[State, sg.Tensor]:
        mean, covariance = state
        mean = MOVE @ mean
        covariance = MOVE @ covariance @ MOVE.T + process * PUSH
        spread = LOOK @ covariance @ LOOK.T + observation  # of what will be seen
        error = y - LOOK @ mean
        gain = covariance @ LOOK.T / spread
        fit = 0.5 * (error**2 / spread[0] + sg.log(2 * np.pi * spread[0]))
        return (mean + gain @ error, covariance - gain @ LOOK @ covariance), sg.sum(fit)

    _, terms = sg.scan(step, (np.zeros(2), 10 * np.eye(2)), seen)
    return sg.sum(terms)


def fit(seen: Any, steps: int = 300) -> tuple[list[float], float, float]:
    """The loss before each step, and the variances found: of the process, of the observations."""
    with sg.Graph() as graph:
        y = sg.placeholder(seen.shape, sg.float64)
        logs = sg.Variable(np.zeros(2), name="log_variances")
        loss = negative_log_likelihood(y, sg.exp(logs[0]), sg.exp(logs[1]))
        train = sg.optim.Adam(lr=0.05).minimize(loss)
        session = sg.Session(graph)
        step = session.compile([loss, train], [y])
    losses = [float(step(seen)[0]) for _ in range(steps)]
    process, observation = np.exp(session.get(logs))
    return losses, float(process), float(observation)


def main() -> None:
    losses, process, observation = fit(observations(400))
    print(f"-log likelihood {losses[0]:.1f} -> {losses[-1]:.1f}")
    print(f"variance of the process      {process:.3f}, true {TRUE['process']}")
    print(f"variance of the observations {observation:.3f}, true {TRUE['observation']}")


if __name__ == "__main__":
    main()
