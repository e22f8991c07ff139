"""A call option under stochastic volatility, by simulation, and its sensitivity to every parameter by one backward.

    python examples/heston.py

Heston's model (1993) in Euler steps with full truncation (Lord, Koekkoek, van Dijk 2010): a ``sg.scan`` over time moves
all paths at once and draws their random numbers as it goes. Those are counter-based: fetched in one run, the price and
its derivatives belong to the same paths, and what the backward pass needs of them is drawn again or kept as is cheaper.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import staticgrad as sg

PATHS, STEPS, YEARS, STRIKE = 20_000, 64, 1.0, 100.0
NAMES = ("spot", "variance", "reversion", "mean variance", "volatility of variance", "correlation", "rate")
VALUES = np.array([100.0, 0.04, 1.5, 0.04, 0.3, -0.7, 0.02])


def price(p: sg.Tensor) -> sg.Tensor:
    """The discounted mean payoff, parameters in the order of ``NAMES``."""
    spot, variance, reversion, mean, wobble, correlation, rate = (p[i] for i in range(len(NAMES)))
    dt = YEARS / STEPS

    def step(state: tuple[sg.Tensor, sg.Tensor], _: None) -> tuple[tuple[sg.Tensor, sg.Tensor], None]:
        log_price, v = state
        a, b = (sg.random.normal((PATHS,), std=dt**0.5, dtype=sg.float64) for _ in range(2))
        positive = sg.maximum(v, 1e-12)
        root = sg.sqrt(positive)
        other = correlation * a + sg.sqrt(1 - correlation**2) * b
        return (
            log_price + (rate - 0.5 * positive) * dt + root * a,
            v + reversion * (mean - positive) * dt + wobble * root * other,
        ), None

    start = (sg.broadcast_to(sg.log(spot), (PATHS,)), sg.broadcast_to(variance, (PATHS,)))
    (log_price, _), _ = sg.scan(step, start, None, length=STEPS)
    return sg.exp(-rate * YEARS) * sg.mean(sg.maximum(sg.exp(log_price) - STRIKE, 0.0))


def pricer() -> Any:
    """From parameters to (price, its derivative by each)."""
    with sg.Graph() as graph:
        p = sg.placeholder((len(NAMES),), sg.float64, name="parameters")
        value = price(p)
        return sg.Session(graph, seed=1).compile([value, *sg.gradients(value, [p])], [p])


def main() -> None:
    value, slopes = pricer()(VALUES)
    print(f"price {value:.3f}")
    for name, slope in zip(NAMES, slopes, strict=True):
        print(f"  by {name:<24}{slope:9.3f}")


if __name__ == "__main__":
    main()
