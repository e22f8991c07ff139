"""Hamiltonian Monte Carlo as one program: warm-up, 5,000 draws of 20 leapfrog steps each, all in a single call.

    python examples/hmc.py

The model is that of the eight schools (Rubin, Estimation in Parallel Randomized Experiments, 1981): effects of coaching
that were estimated in eight schools with known errors come from one normal distribution, whose mean and width are
unknown. Effects are written as mean + width · normal, and the width as exp(x), so that a chain moves freely. In the
warm-up the step adapts until four of five paths are accepted, by dual averaging (Hoffman and Gelman, The No-U-Turn
Sampler, 2014, section 3.2); the paths are leapfrog steps with the gradient of the log density (Neal, MCMC using
Hamiltonian dynamics, 2011), of a step that is jittered, so that no path is a whole turn of an orbit. Chain and path are
``sg.scan``; random numbers are drawn inside. Means and widths are compared with integrals over a grid.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import staticgrad as sg

EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
SIZE = 2 + len(EFFECTS)  # of a position: mean, log of the width, normals
WARM_UP, DRAWS, LEAPS = 500, 5_000, 20
WANTED = 0.8  # the part of the paths that shall be accepted
Density = Callable[[sg.Tensor], sg.Tensor]


def log_density(q: sg.Tensor) -> sg.Tensor:
    """The log of the posterior density of a position (SIZE,) but for a constant."""
    mean, log_width, normals = q[0], q[1], q[2:]
    width = sg.exp(log_width)
    misfit = (EFFECTS - mean - width * normals) / ERRORS
    prior = -0.5 * (mean / 5.0) ** 2 - sg.log1p((width / 5.0) ** 2) + log_width
    return prior - 0.5 * sg.sum(misfit**2) - 0.5 * sg.sum(normals**2)


class Place(NamedTuple):
    q: Any
    logp: Any
    slope: Any


class Step(NamedTuple):
    """The state of dual averaging."""

    log_size: Any
    average: Any  # of log_size
    error: Any  # of the acceptance
    count: Any


def at(density: Density, q: sg.Tensor) -> Place:
    return Place(q, *sg.value_and_grad(density)(q))


def path(density: Density, place: Place, size: sg.Tensor) -> tuple[Place, sg.Tensor]:
    """The end of a path, or its beginning if that is not accepted, and the probability with which it is."""
    momentum = sg.random.normal((SIZE,), dtype=sg.float64)

    def leap(state: tuple[Place, sg.Tensor], _: None) -> tuple[tuple[Place, sg.Tensor], None]:
        here, p = state
        p = p + 0.5 * size * here.slope
        there = at(density, here.q + size * p)
        return (there, p + 0.5 * size * there.slope), None

    (end, p), _ = sg.scan(leap, (place, momentum), None, length=LEAPS)
    gained = end.logp - place.logp + 0.5 * (sg.sum(momentum**2) - sg.sum(p**2))
    probability = sg.where(sg.isnan(gained), 0.0, sg.exp(sg.minimum(gained, 0.0)))
    accepted = sg.random.uniform((), dtype=sg.float64) < probability
    return Place(*(sg.where(accepted, new, old) for new, old in zip(end, place, strict=True))), probability


def adapted(step: Step, probability: sg.Tensor, first: float) -> Step:
    """The step after one more path."""
    count = step.count + 1.0
    error = step.error + (WANTED - probability - step.error) / (count + 10.0)
    log_size = np.log(10 * first) - sg.sqrt(count) / 0.05 * error
    weight = count**-0.75
    return Step(log_size, weight * log_size + (1 - weight) * step.average, error, count)


def chain(density: Density, begin: sg.Tensor, first: float = 0.1) -> tuple[sg.Tensor, sg.Tensor, sg.Tensor]:
    """Draws (DRAWS, SIZE), the probability with which each path was accepted, and the size of their steps."""

    def warm(state: tuple[Place, Step], _: None) -> tuple[tuple[Place, Step], None]:
        place, probability = path(density, state[0], sg.exp(state[1].log_size))
        return (place, adapted(state[1], probability, first)), None

    zero = np.float64(0)
    start = Step(np.float64(np.log(first)), zero, zero, zero)
    (place, step), _ = sg.scan(warm, (at(density, begin), start), None, length=WARM_UP)
    size = sg.exp(step.average)

    def draw(place: Place, _: None) -> tuple[Place, Any]:
        jitter = sg.random.uniform((), 0.3, 1.0, dtype=sg.float64)
        place, probability = path(density, place, size * jitter)
        return place, (place.q, probability)

    _, (draws, probabilities) = sg.scan(draw, place, None, length=DRAWS)
    return draws, probabilities, size


def integrals() -> tuple[float, float, float, float]:
    """Mean and standard deviation of the mean and of the width, by sums over a grid: given these two, the estimates
    are normal and independent, so the effects need not be integrated over."""
    mean = np.linspace(-30, 40, 1401)[:, None]
    width = np.exp(np.linspace(-9, 6, 3001))
    logp = -0.5 * (mean / 5) ** 2 - np.log1p((width / 5) ** 2) + np.log(width)
    for y, error in zip(EFFECTS, ERRORS, strict=True):
        variance = error**2 + width**2
        logp = logp - 0.5 * (y - mean) ** 2 / variance - 0.5 * np.log(variance)
    p = np.exp(logp - logp.max())
    p /= p.sum()
    moments = []
    for value in (mean, width):
        first = (p * value).sum()
        moments += [float(first), float(np.sqrt((p * (value - first) ** 2).sum()))]
    return moments[0], moments[1], moments[2], moments[3]


def main() -> None:
    with sg.Graph() as graph:
        begin = sg.placeholder((SIZE,), sg.float64, name="begin")
        results = chain(log_density, begin)
    run = sg.Session(graph, num_threads=1, seed=1).compile(results, begin)
    start = time.perf_counter()
    draws, probabilities, size = run(np.zeros(SIZE))
    seconds = time.perf_counter() - start
    leaps = (WARM_UP + DRAWS) * LEAPS
    print(f"{DRAWS} draws, {leaps} leapfrog steps of {float(size):.3f} in one call: {seconds * 1e3:.0f} ms")
    print(f"accepted: {probabilities.mean():.2f}")
    mean, width = draws[:, 0], np.exp(draws[:, 1])
    found = mean.mean(), mean.std(), width.mean(), width.std()
    for name, value, wanted in zip(
        ("mean", "its deviation", "width", "its deviation"), found, integrals(), strict=True
    ):
        print(f"{name:14} {value:6.3f}, by integrals {wanted:6.3f}")
        assert abs(value - wanted) < 0.4


if __name__ == "__main__":
    main()
