"""A JAX program with one hot function of ours: the likelihood of a hidden volatility, fitted by gradient descent.

    python examples/jax_hot_function.py

A filter follows the logarithm of a variance through returns of a market: each of its steps is a dozen
operations on single numbers, in a loop over 2,000 days. JAX runs such a loop one small operation after the other; here
it is one compiled program, value and gradient together, that ``staticgrad.jax.wrap`` makes a JAX function. Everything
around it stays JAX: the change of variables, the prior, ``jit``, ``grad`` and ``vmap`` over several starts.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import staticgrad as sg
import staticgrad.jax

DAYS, STEPS = 2000, 150
TRUE = {"mean": -1.0, "memory": 0.95, "wobble": 0.25}


def returns(seed: int = 0) -> Any:
    """Daily returns whose log variance wanders around its mean."""
    rng = np.random.default_rng(seed)
    level, seen = TRUE["mean"], []
    for _ in range(DAYS):
        level = TRUE["mean"] + TRUE["memory"] * (level - TRUE["mean"]) + TRUE["wobble"] * rng.normal()
        seen.append(np.exp(level / 2) * rng.normal())
    return np.array(seen)


def likelihood() -> Any:
    """The JAX function from (mean, memory, wobble) and returns to the mean negative log likelihood: an extended Kalman
    filter of the log of squared returns, whose noise has mean -1.27 and variance pi² / 2 (Harvey, Ruiz and Shephard,
    Multivariate Stochastic Variance Models, 1994)."""
    with sg.Graph() as graph:
        theta, seen = sg.placeholder((3,), sg.float64, name="theta"), sg.placeholder((None,), sg.float64, name="seen")
        mean, memory, wobble = theta[0], theta[1], theta[2]

        def step(state: Any, y: Any) -> Any:
            level, spread = state
            level = mean + memory * (level - mean)
            spread = memory * memory * spread + wobble * wobble
            total = spread + np.pi**2 / 2
            error = y - (level - 1.27)
            gain = spread / total
            return (level + gain * error, spread * (1.0 - gain)), 0.5 * (sg.log(total) + error * error / total)

        _, terms = sg.scan(step, (mean, wobble * wobble), sg.log(seen * seen + 1e-12))
        loss = sg.mean(terms)
    return staticgrad.jax.wrap(sg.Session(graph).compile(loss, [theta, seen]))


def fit(seen: Any, starts: Any) -> tuple[Any, Any]:
    """The losses and parameters after gradient descent from each row of ``starts``: JAX's code around ours."""
    filtered = likelihood()

    def loss(raw: Any) -> Any:
        theta = jnp.stack([raw[0], jax.nn.sigmoid(raw[1]), jnp.exp(raw[2])])
        prior = 1e-3 * jnp.sum(raw**2)
        return filtered(theta, seen) + prior

    def descend(raw: Any) -> Any:
        def turn(state: Any, _: Any) -> Any:
            raw, speed = state
            value, slope = jax.value_and_grad(loss)(raw)
            speed = 0.9 * speed - 0.2 * slope
            return (raw + speed, speed), value

        (raw, _), values = jax.lax.scan(turn, (raw, jnp.zeros_like(raw)), None, length=STEPS)
        return values, jnp.stack([raw[0], jax.nn.sigmoid(raw[1]), jnp.exp(raw[2])])

    found: tuple[Any, Any] = jax.jit(jax.vmap(descend))(starts)
    return found


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    losses, found = fit(returns(), np.array([[0.0, 0.0, -0.5], [-2.0, 2.0, -1.0]]))
    for course, theta in zip(losses, found, strict=True):
        mean, memory, wobble = (float(value) for value in theta)
        print(f"loss {course[0]:.3f} -> {course[-1]:.3f}: mean {mean:.2f}, memory {memory:.3f}, wobble {wobble:.2f}")
    print("true:", ", ".join(f"{name} {value}" for name, value in TRUE.items()))


if __name__ == "__main__":
    main()
