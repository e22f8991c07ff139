"""Bayesian logistic regression: the posterior of the weights, drawn by Hamiltonian Monte Carlo in one compiled program.

    python examples/bayesian_regression.py

Several chains run side by side (Neal, MCMC using Hamiltonian dynamics, 2011): a turn draws momenta, follows them by
leapfrog steps with the gradient of the log posterior, and accepts the end of each path or not. Both loops are
``sg.scan``, the random numbers are drawn inside. Before it, the same program climbs to the mode by Newton's method; the
Hessian there gives Laplace's approximation, which says how long the steps may be and what the draws are compared with.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import staticgrad as sg

ROWS, COLUMNS, PRIOR = 400, 5, 3.0  # PRIOR: the standard deviation of each weight before any data
CHAINS, DRAWS, WARM_UP, LEAPS, SIZE, CLIMB = 8, 600, 50, 7, 0.3, 10
Array = np.ndarray[Any, np.dtype[Any]]


class Posterior(NamedTuple):
    draws: Any  # (DRAWS, CHAINS, COLUMNS)
    accepted: Any  # the part of the paths
    mode: Any  # (COLUMNS,)
    covariance: Any  # of Laplace's approximation


Phase = tuple[sg.Tensor, sg.Tensor, sg.Tensor]  # positions, momenta and slopes of the chains


def data(seed: int = 0) -> tuple[Array, Array, Array]:
    """Points (ROWS, COLUMNS) whose first column is 1, labels of 0 and 1, and the weights these were drawn from."""
    rng = np.random.default_rng(seed)
    points, weights = rng.normal(size=(ROWS, COLUMNS)), rng.normal(size=COLUMNS)
    points[:, 0] = 1
    labels = rng.random(ROWS) < 1 / (1 + np.exp(-points @ weights))
    return points, labels.astype(np.float64), weights


def energy(w: sg.Tensor, x: sg.Tensor, y: sg.Tensor) -> sg.Tensor:
    """-log of the posterior density but for a constant, of weights (..., COLUMNS)."""
    z = w @ x.T
    return sg.sum(sg.nn.softplus(z) - y * z, axis=-1) + sg.sum(w**2, axis=-1) / (2 * PRIOR**2)


def laplace(x: sg.Tensor, y: sg.Tensor) -> tuple[sg.Tensor, sg.Tensor]:
    """The mode and the covariance of the normal distribution that touches the posterior there."""

    def step(w: sg.Tensor, _: None) -> tuple[sg.Tensor, None]:
        u = energy(w, x, y)
        (slope,) = sg.gradients(u, [w], unconnected_gradients="error")
        return w - sg.linalg.solve(sg.hessian(u, w), slope), None

    mode, _ = sg.scan(step, np.zeros(COLUMNS), None, length=CLIMB)
    return mode, sg.linalg.inv(sg.hessian(energy(mode, x, y), mode))


def posterior(x: sg.Tensor, y: sg.Tensor) -> Posterior:
    mode, covariance = laplace(x, y)
    spread = sg.linalg.cholesky(covariance)

    def weights(q: sg.Tensor) -> sg.Tensor:
        """Of positions (CHAINS, COLUMNS) in coordinates where the posterior is nearly the standard normal."""
        return mode + q @ spread.T

    def slope_at(q: sg.Tensor) -> tuple[sg.Tensor, sg.Tensor]:
        u = energy(weights(q), x, y)
        (slope,) = sg.gradients(u, [q], unconnected_gradients="error")  # of the sum over chains: to each its own
        return u, slope

    def leap(state: Phase, _: None) -> tuple[Phase, None]:
        q, p, slope = state
        p = p - SIZE / 2 * slope
        q = q + SIZE * p
        slope = slope_at(q)[1]
        return (q, p - SIZE / 2 * slope, slope), None

    def turn(q: sg.Tensor, _: None) -> tuple[sg.Tensor, tuple[sg.Tensor, sg.Tensor]]:
        u, slope = slope_at(q)
        p = sg.random.normal((CHAINS, COLUMNS), dtype=sg.float64)
        q_new, p_new, _slope = sg.scan(leap, (q, p, slope), None, length=LEAPS)[0]
        u_new = slope_at(q_new)[0]
        error = u_new - u + 0.5 * sg.sum(p_new**2 - p**2, axis=-1)
        accepted = sg.log(sg.random.uniform((CHAINS,), dtype=sg.float64)) < -error
        q = sg.where(accepted[:, None], q_new, q)
        return q, (weights(q), accepted)

    start = sg.random.normal((CHAINS, COLUMNS), dtype=sg.float64)
    _, (draws, accepted) = sg.scan(turn, start, None, length=WARM_UP + DRAWS)
    return Posterior(draws[WARM_UP:], sg.mean(sg.astype(accepted, sg.float64)), mode, covariance)


def sampler() -> Any:
    """From points and labels to a ``Posterior`` of arrays; each call draws anew."""
    with sg.Graph() as graph:
        x = sg.placeholder((ROWS, COLUMNS), sg.float64, name="x")
        y = sg.placeholder((ROWS,), sg.float64, name="y")
        return sg.Session(graph, seed=0).compile(posterior(x, y), [x, y])


def main() -> None:
    points, labels, truth = data()
    found = sampler()(points, labels)
    draws = found.draws.reshape(-1, COLUMNS)
    mean, deviation, laplace_deviation = draws.mean(0), draws.std(0), np.sqrt(np.diag(found.covariance))
    print(f"{len(draws)} draws of {CHAINS} chains, {found.accepted:.0%} of the paths accepted")
    print("         drawn            Laplace          true")
    for i in range(COLUMNS):
        print(
            f"weight {i} {mean[i]:6.3f} ± {deviation[i]:.3f}  "
            f"{found.mode[i]:6.3f} ± {laplace_deviation[i]:.3f}  {truth[i]:6.3f}"
        )
    between = found.draws.mean(0).std(0) / deviation
    print(f"the means of the chains differ by at most {between.max():.3f} deviations")
    assert found.accepted > 0.8
    assert between.max() < 0.2
    assert np.all(np.abs(mean - found.mode) < 0.5 * deviation)  # the posterior leans outwards a little
    assert np.allclose(deviation, laplace_deviation, rtol=0.15)
    assert np.all(np.abs(mean - truth) < 4 * deviation)


if __name__ == "__main__":
    main()
