"""A model of Flax as it is, trained here, and its parameters back in Flax.

    python examples/flax_model.py

The net is written for Flax's NNX: patches of a picture, two transformer blocks. ``staticgrad.jax.convert`` declares
what its call computes, with a variable for each parameter; forward, backward and the optimizer become one program.
After training the parameters go back with ``nnx.update``, and Flax gives the same answers.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import staticgrad as sg
import staticgrad.jax

SIZE, PATCH, WIDTH, CLASSES, BATCH, STEPS = 16, 4, 32, 4, 32, 150


class Block(nnx.Module):  # type: ignore[misc]
    """Attention and a perceptron, each beside the identity."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.before, self.between = nnx.LayerNorm(WIDTH, rngs=rngs), nnx.LayerNorm(WIDTH, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(4, WIDTH, decode=False, rngs=rngs)
        self.wide, self.narrow = nnx.Linear(WIDTH, 2 * WIDTH, rngs=rngs), nnx.Linear(2 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.attention(self.before(x))
        return x + self.narrow(nnx.gelu(self.wide(self.between(x))))


class Classifier(nnx.Module):  # type: ignore[misc]
    """The net, as somebody has it."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.patches = nnx.Conv(1, WIDTH, (PATCH, PATCH), strides=PATCH, rngs=rngs)
        self.places = nnx.Param(0.02 * jax.random.normal(rngs.params(), ((SIZE // PATCH) ** 2, WIDTH)))
        self.first, self.second = Block(rngs), Block(rngs)
        self.norm, self.out = nnx.LayerNorm(WIDTH, rngs=rngs), nnx.Linear(WIDTH, CLASSES, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.patches(x).reshape(x.shape[0], -1, WIDTH) + self.places[...]
        return self.out(self.norm(self.second(self.first(x))).mean(1))


def pictures(rng: np.random.Generator) -> tuple[Any, Any]:
    """Noisy stripes in one of four directions."""
    labels = rng.integers(0, CLASSES, BATCH)
    y, x = np.mgrid[:SIZE, :SIZE]
    angles = labels[:, None, None] * np.pi / CLASSES
    phase = rng.uniform(0, 2 * np.pi, (BATCH, 1, 1))
    waves = np.sin(1.2 * (x * np.cos(angles) + y * np.sin(angles)) + phase)
    return (waves + rng.normal(0, 0.4, waves.shape))[..., None].astype(np.float32), labels


def seconds_of_jax(loss: Any, parameters: Any, batch: tuple[Any, Any]) -> float:
    """The least time of a training step by ``jax.jit`` and Optax, on as many threads as JAX takes."""
    optimizer = optax.adam(1e-3)

    def update(parameters: Any, state: Any, x: Any, labels: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(parameters, x, labels)
        updates, state = optimizer.update(slopes, state, parameters)
        return value, optax.apply_updates(parameters, updates), state

    step = jax.jit(update)
    state, found = optimizer.init(parameters), []
    for _ in range(20):
        begun = time.perf_counter()
        _, parameters, state = jax.block_until_ready(step(parameters, state, *batch))
        found.append(time.perf_counter() - begun)
    return min(found)


def main() -> None:
    rng = np.random.default_rng(0)
    net, first = Classifier(nnx.Rngs(0)), pictures(rng)
    definition, parameters, rest = nnx.split(net, nnx.Param, ...)
    leaves, tree = jax.tree.flatten(parameters)

    def loss(leaves: Any, x: Any, labels: Any) -> Any:
        logits = nnx.merge(definition, jax.tree.unflatten(tree, leaves), rest)(x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    with sg.Graph() as graph:
        variables = [sg.Variable(np.asarray(leaf)) for leaf in leaves]
        x = sg.placeholder(first[0].shape, sg.float32, name="x")
        labels = sg.placeholder((BATCH,), sg.int64, name="labels")
        error = staticgrad.jax.convert(loss)(variables, x, labels)
        train = sg.optim.Adam(lr=1e-3).minimize(error)

    with sg.Session(graph, num_threads=1) as session:
        step = session.compile([error, train], [x, labels], wait=True)
        losses, times = [], []
        for _ in range(STEPS):
            batch = pictures(rng)
            begun = time.perf_counter()
            losses.append(float(step(*batch)[0]))
            times.append(time.perf_counter() - begun)
        trained = [jnp.asarray(value) for value in session.run(variables)]
        held = pictures(rng)
        here = float(session.run(error, dict(zip((x, labels), held))))

    nnx.update(net, jax.tree.unflatten(tree, trained))  # the net of Flax has them now
    logits = net(jnp.asarray(held[0]))
    right = float((np.asarray(logits).argmax(1) == held[1]).mean())
    there = float(optax.softmax_cross_entropy_with_integer_labels(logits, jnp.asarray(held[1])).mean())
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f} in {STEPS} steps; Flax then has {right:.0%} of new pictures right")
    print(f"their loss is {here:.6f} here and {there:.6f} in Flax")
    peer = seconds_of_jax(loss, leaves, first)
    print(f"a step: {1e3 * min(times):.2f} ms here, one thread, {1e3 * peer:.2f} ms by jax.jit")
    if not (right > 0.8 and losses[-1] < losses[0] / 2 and abs(here - there) < 1e-4 * (1 + abs(there))):
        raise AssertionError("the parameters that went back do not classify")


if __name__ == "__main__":
    main()
