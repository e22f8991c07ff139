"""Functions of JAX as people write them, at two sizes: what ``from_jax.py`` measures and tests compare.

Each is entered as a function of a size, 0 or 1, that gives a function of arrays and its arguments. The result is one
number, of all arguments that are floating, so that a gradient is one as well. Nothing that a call computes is constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import linalg, special, stats

Made = tuple[Callable[..., Any], Sequence[Any]]

FUNCTIONS: dict[str, Callable[[int], Made]] = {}


def function(make: Callable[[int], Made]) -> Callable[[int], Made]:
    """Enter what makes a function and its arguments of a size."""
    FUNCTIONS[make.__name__] = make
    return make


def draws(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).normal(size=shape)


# -- energies and densities -------------------------------------------------------------------------------------------


@function
def lennard_jones(size: int) -> Made:
    n = (8, 200)[size]

    def energy(x: Any, epsilon: Any, sigma: Any) -> Any:
        apart = x[:, None, :] - x[None, :, :]
        squared = jnp.sum(apart**2, -1) + jnp.eye(n)
        ratio = (sigma**2 / squared) ** 3
        pairs = 4 * epsilon * (ratio**2 - ratio)
        return 0.5 * jnp.sum(jnp.where(jnp.eye(n, dtype=bool), 0.0, pairs))

    grid = np.stack(np.meshgrid(*[np.arange(6.0)] * 3), -1).reshape(-1, 3)[:n]
    return energy, [1.1 * grid + 0.05 * draws(n, 3), np.float64(1.3), np.float64(0.9)]


@function
def schools(size: int) -> Made:
    n = (8, 2000)[size]

    def density(mu: Any, log_tau: Any, theta: Any, y: Any, sigma: Any) -> Any:
        prior = stats.norm.logpdf(mu, 0, 5) + stats.cauchy.logpdf(jnp.exp(log_tau), 0, 5) + log_tau
        group = stats.norm.logpdf(theta).sum()
        return prior + group + stats.norm.logpdf(y, mu + jnp.exp(log_tau) * theta, sigma).sum()

    return density, [np.float64(1.0), np.float64(0.3), draws(n), 8 * draws(n, seed=1), 10 + draws(n, seed=2) ** 2]


@function
def radon(size: int) -> Made:
    """Counties with slopes and intercepts of their own."""
    counties, rows = ((6, 40), (85, 5000))[size]
    county = np.random.default_rng(3).integers(0, counties, rows).astype(np.int32)

    def density(a: Any, b: Any, log_sigma: Any, x: Any, y: Any, county: Any) -> Any:
        mean = a[county] + b[county] * x
        noise = jnp.exp(log_sigma)
        return stats.norm.logpdf(y, mean, noise).sum() + stats.norm.logpdf(a).sum() + stats.laplace.logpdf(b).sum()

    return density, [
        draws(counties),
        draws(counties, seed=1),
        np.float64(-0.2),
        draws(rows),
        draws(rows, seed=1),
        county,
    ]


@function
def gaussian_process(size: int) -> Made:
    n = (12, 200)[size]

    def density(length: Any, scale: Any, noise: Any, x: Any, y: Any) -> Any:
        apart = (x[:, None] - x[None, :]) / length
        cov = scale**2 * jnp.exp(-0.5 * apart**2) + (noise**2 + 1e-6) * jnp.eye(n)
        factor = jnp.linalg.cholesky(cov)
        white = linalg.solve_triangular(factor, y, lower=True)
        return -0.5 * white @ white - jnp.sum(jnp.log(jnp.diagonal(factor))) - 0.5 * n * jnp.log(2 * jnp.pi)

    return density, [np.float64(0.7), np.float64(1.2), np.float64(0.3), np.sort(2 * draws(n)), draws(n, seed=1)]


@function
def mixture(size: int) -> Made:
    n = (20, 20000)[size]

    def density(logits: Any, means: Any, scales: Any, x: Any) -> Any:
        each = jax.nn.log_softmax(logits) + stats.norm.logpdf(x[:, None], means, jnp.exp(scales))
        return special.logsumexp(each, axis=1).sum()

    return density, [draws(4), 2 * draws(4, seed=1), 0.1 * draws(4, seed=2), 3 * draws(n)]


@function
def counts(size: int) -> Made:
    """A negative binomial regression."""
    n = (20, 5000)[size]
    y = np.random.default_rng(5).poisson(4, n).astype(np.float64)

    def density(beta: Any, log_phi: Any, x: Any, y: Any) -> Any:
        mean, phi = jnp.exp(0.3 * x @ beta), jnp.exp(log_phi)
        chosen = special.gammaln(y + phi) - special.gammaln(phi) - special.gammaln(y + 1)
        return jnp.sum(chosen + phi * jnp.log(phi / (phi + mean)) + special.xlogy(y, mean / (phi + mean)))

    return density, [draws(3), np.float64(0.5), draws(n, 3), y]


@function
def logistic_regression(size: int) -> Made:
    n, k = ((20, 3), (5000, 20))[size]
    y = (draws(n, seed=7) > 0).astype(np.float64)

    def loss(w: Any, b: Any, x: Any, y: Any) -> Any:
        logits = x @ w + b
        return jnp.mean(jnp.logaddexp(0.0, logits) - y * logits) + 0.01 * jnp.sum(w**2)

    return loss, [draws(k), np.float64(0.1), draws(n, k), y]


@function
def hidden_markov(size: int) -> Made:
    steps, states = ((20, 3), (500, 12))[size]

    def density(start: Any, move: Any, means: Any, x: Any) -> Any:
        moves = jax.nn.log_softmax(move, -1)
        seen = stats.norm.logpdf(x[:, None], means, 1.0)

        def step(alpha: Any, row: Any) -> Any:
            return special.logsumexp(alpha[:, None] + moves, axis=0) + row, None

        alpha, _ = lax.scan(step, jax.nn.log_softmax(start) + seen[0], seen[1:])
        return special.logsumexp(alpha)

    return density, [draws(states), draws(states, states), draws(states, seed=1), draws(steps)]


# -- simulations ------------------------------------------------------------------------------------------------------


@function
def cable(size: int) -> Made:
    """The heat equation by explicit steps."""
    cells, steps = ((12, 10), (400, 200))[size]

    def energy(u: Any, conductivity: Any) -> Any:
        def step(u: Any, _: Any) -> Any:
            flow = conductivity * (u[1:] - u[:-1])
            return u.at[1:-1].add(0.2 * (flow[1:] - flow[:-1])), None

        return jnp.sum(lax.scan(step, u, None, length=steps)[0] ** 2)

    return energy, [draws(cells), 0.5 + 0.1 * draws(cells - 1) ** 2]


@function
def epidemic(size: int) -> Made:
    """Susceptible, infected, recovered, by Runge and Kutta's method."""
    steps = (20, 2000)[size]

    def infected(rates: Any, start: Any) -> Any:
        def slope(y: Any) -> Any:
            new, healed = rates[0] * y[0] * y[1], rates[1] * y[1]
            return jnp.stack([-new, new - healed, healed])

        def step(_: Any, y: Any) -> Any:
            h = 0.1
            a = slope(y)
            b = slope(y + h / 2 * a)
            c = slope(y + h / 2 * b)
            return y + h / 6 * (a + 2 * b + 2 * c + slope(y + h * c))

        return lax.fori_loop(0, steps, step, start)[1]

    return infected, [np.array([0.9, 0.2]), np.array([0.98, 0.02, 0.0])]


@function
def kalman(size: int) -> Made:
    steps, n = ((10, 2), (300, 6))[size]

    def density(move: Any, noise: Any, x: Any) -> Any:
        def step(state: Any, seen: Any) -> Any:
            mean, cov = move @ state[0], move @ state[1] @ move.T + jnp.eye(n) * noise**2
            total = cov + 0.5 * jnp.eye(n)
            factor = jnp.linalg.cholesky(total)
            off = linalg.solve_triangular(factor, seen - mean, lower=True)
            gain = linalg.cho_solve((factor, True), cov).T
            logp = -0.5 * off @ off - jnp.sum(jnp.log(jnp.diagonal(factor)))
            return (mean + gain @ (seen - mean), cov - gain @ cov), logp

        return lax.scan(step, (jnp.zeros(n), jnp.eye(n)), x)[1].sum()

    return density, [0.9 * np.eye(n) + 0.02 * draws(n, n), np.float64(0.4), draws(steps, n)]


@function
def option(size: int) -> Made:
    """The price of an option on an average, by paths of JAX's random numbers."""
    paths, steps = ((50, 8), (20000, 16))[size]

    def price(spot: Any, rate: Any, volatility: Any, key: Any) -> Any:
        z = jax.random.normal(key, (paths, steps), spot.dtype)
        moves = (rate - 0.5 * volatility**2) / steps + volatility * z / jnp.sqrt(1.0 * steps)
        average = jnp.mean(spot * jnp.exp(jnp.cumsum(moves, 1)), 1)
        return jnp.exp(-rate) * jnp.mean(jnp.maximum(average - 1.0, 0.0))

    return price, [np.float64(1.05), np.float64(0.02), np.float64(0.3), np.array([3, 5], np.uint32)]


@function
def pendulum(size: int) -> Made:
    """An ordinary differential equation by ``jax.experimental.ode``, whose derivative is by a custom rule."""
    count = (3, 30)[size]

    def swing(start: Any, length: Any) -> Any:
        from jax.experimental.ode import odeint

        def slope(y: Any, t: Any, length: Any) -> Any:
            return jnp.stack([y[1], -jnp.sin(y[0]) / length])

        return jnp.sum(odeint(slope, start, jnp.linspace(0.0, 2.0, count), length, rtol=1e-8, atol=1e-8) ** 2)

    return swing, [np.array([0.8, 0.1]), np.float64(1.2)]


@function
def clusters(size: int) -> Made:
    n, k = ((30, 3), (10000, 10))[size]

    def spread(centers: Any, x: Any) -> Any:
        nearest = jnp.argmin(jnp.sum((x[:, None] - centers) ** 2, -1), 1)
        count = jax.ops.segment_sum(jnp.ones(n), nearest, k)
        means = jax.ops.segment_sum(x, nearest, k) / jnp.maximum(count, 1.0)[:, None]
        return jnp.sum((x - means[nearest]) ** 2) + jnp.sum(centers**2)

    return spread, [draws(k, 2), draws(n, 2)]


@function
def interpolated(size: int) -> Made:
    knots, n = ((6, 10), (200, 20000))[size]

    def total(x: Any, xp: Any, fp: Any) -> Any:
        return jnp.sum(jnp.interp(x, xp, fp) ** 2)

    return total, [draws(n), np.linspace(-2, 2, knots), draws(knots)]


# -- networks ---------------------------------------------------------------------------------------------------------


def flax_loss(module: Any, x: np.ndarray) -> Made:
    """The mean square of what a module of flax gives, as a function of its parameters and the input."""
    variables = jax.tree.map(lambda leaf: np.asarray(leaf, x.dtype), module.init(jax.random.key(0), jnp.asarray(x)))
    leaves, tree = jax.tree.flatten(variables)

    def loss(x: Any, *leaves: Any) -> Any:
        return jnp.mean(module.apply(jax.tree.unflatten(tree, leaves), x) ** 2)

    return loss, [x, *leaves]


@function
def perceptron(size: int) -> Made:
    from flax import linen as nn

    batch, width = ((4, 8), (128, 256))[size]
    layers = [nn.Dense(width), nn.relu, nn.Dense(width), nn.gelu, nn.LayerNorm(), nn.Dense(3)]
    return flax_loss(nn.Sequential(layers), draws(batch, 10))


@function
def convolutions(size: int) -> Made:
    from flax import linen as nn

    batch, side, width = ((1, 8, 4), (8, 28, 16))[size]
    layers = [
        nn.Conv(width, (3, 3)), nn.relu, lambda x: nn.max_pool(x, (2, 2), (2, 2)), nn.Conv(width, (3, 3), strides=2),
        nn.GroupNorm(2), nn.silu, lambda x: nn.avg_pool(x, (2, 2)), lambda x: x.reshape(batch, -1), nn.Dense(5),
    ]  # fmt: skip
    return flax_loss(nn.Sequential(layers), draws(batch, side, side, 3))


@function
def attention(size: int) -> Made:
    from flax import linen as nn

    batch, length, width = ((1, 5, 8), (4, 64, 64))[size]

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            mask = nn.make_causal_mask(jnp.ones((batch, length)))
            x = x + nn.MultiHeadDotProductAttention(num_heads=2)(nn.LayerNorm()(x), mask=mask)
            return x + nn.Dense(width)(nn.gelu(nn.Dense(2 * width)(nn.LayerNorm()(x))))

    return flax_loss(Block(), draws(batch, length, width))


@function
def lstm(size: int) -> Made:
    from flax import linen as nn

    batch, length, width = ((2, 4, 5), (16, 40, 64))[size]
    return flax_loss(nn.RNN(nn.LSTMCell(width, param_dtype=jnp.float64)), draws(batch, length, 3))


@function
def residual(size: int) -> Made:
    """A residual block with batch norms, one of which is trained."""
    from flax import linen as nn

    batch, side, width = ((2, 5, 3), (8, 28, 24))[size]

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            y = nn.Conv(width, (3, 3))(x)
            y = nn.relu(nn.BatchNorm(use_running_average=False)(y))
            y = nn.BatchNorm(use_running_average=True)(nn.Conv(width, (3, 3))(y))
            return nn.relu(x + y)

    module, x = Block(), draws(batch, side, side, width)
    variables = jax.tree.map(lambda leaf: np.asarray(leaf, x.dtype), module.init(jax.random.key(0), jnp.asarray(x)))
    leaves, tree = jax.tree.flatten(variables)

    def loss(x: Any, *leaves: Any) -> Any:
        y, changed = module.apply(jax.tree.unflatten(tree, leaves), x, mutable=["batch_stats"])
        return jnp.mean(y**2) + sum(jnp.sum(leaf) for leaf in jax.tree.leaves(changed))

    return loss, [x, *leaves]


@function
def dropped(size: int) -> Made:
    """A gated recurrent unit with dropout by JAX's random numbers."""
    from flax import linen as nn

    batch, length, width = ((2, 4, 5), (16, 30, 48))[size]
    layers = [nn.RNN(nn.GRUCell(width, param_dtype=jnp.float64)), nn.Dropout(0.3, deterministic=False), nn.Dense(2)]
    module, x = nn.Sequential(layers), draws(batch, length, 3)
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    variables = jax.tree.map(lambda leaf: np.asarray(leaf, x.dtype), module.init(keys, jnp.asarray(x)))
    leaves, tree = jax.tree.flatten(variables)

    def loss(x: Any, key: Any, *leaves: Any) -> Any:
        rngs = {"dropout": jax.random.wrap_key_data(key)}
        return jnp.mean(module.apply(jax.tree.unflatten(tree, leaves), x, rngs=rngs) ** 2)

    return loss, [x, np.array([3, 4], np.uint32), *leaves]


@function
def adam_step(size: int) -> Made:
    """A step of optax's Adam, of which all of the new state is summed."""
    import optax

    batch, width = ((4, 6), (256, 128))[size]
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2))

    def step(w: Any, v: Any, m: Any, s: Any, x: Any, y: Any) -> Any:
        parameters = {"v": v, "w": w}

        def loss(p: Any) -> Any:
            return jnp.mean((jnp.tanh(x @ p["w"]) @ p["v"] - y) ** 2)

        value, slopes = jax.value_and_grad(loss)(parameters)
        state = optimizer.init(parameters)
        state = jax.tree.map(lambda leaf: leaf + m if leaf.ndim == 0 and leaf.dtype == m.dtype else leaf, state)
        updates, state = optimizer.update(slopes, state, parameters)
        new = optax.apply_updates(parameters, updates)
        return value + s * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves((new, state)) if leaf.dtype == w.dtype)

    return step, [draws(7, width), draws(width), np.float64(0.1), np.float64(0.5), draws(batch, 7), draws(batch)]
