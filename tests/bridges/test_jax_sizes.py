"""Functions of JAX over open sizes: values and gradients at several sizes beside JAX's, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # read when JAX is imported
jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

import staticgrad as sg  # noqa: E402
from staticgrad.jax import convert  # noqa: E402

N, M = sg.dim("n"), sg.dim("m")
W = np.random.default_rng(0).normal(size=(3, 4))


@pytest.fixture(autouse=True)
def wide() -> None:
    jax.config.update("jax_enable_x64", True)  # until the test ends


@pytest.fixture(autouse=True)
def g() -> Iterator[sg.Graph]:
    with sg.Graph() as graph:
        yield graph


def layers(x: Any, w: Any) -> Any:
    return jnp.mean(jax.nn.softmax(jax.nn.relu(x @ w) + 1) ** 2, axis=0)


def log_density(y: Any, m: Any) -> Any:
    mu, sigma = m[0, 0], jnp.exp(m[0, 1])
    return jax.scipy.stats.norm.logpdf(y, mu, sigma).sum() - y.shape[0] * jnp.log(3.0)


def normalised(x: Any, w: Any) -> Any:
    return (x - x.mean(0)) / jnp.sqrt(x.var(0) + 1e-3) * w[:, 0]


def joined(x: Any, w: Any) -> Any:
    both = jnp.concatenate([x, 2 * x, w.T], axis=0)
    return both.reshape(-1, 1) * jnp.arange(both.shape[0] * 3)[:, None]


def scanned(x: Any, w: Any) -> Any:
    last, each = lax.scan(lambda c, row: (jnp.tanh(c + row), c * row), w[:, 0], x)
    return last, each


def rolled(x: Any, w: Any) -> Any:
    return x[1:] - x[:-1], x[-1], x[0], x[::-1] + 1, jnp.diff(x, axis=0, prepend=0.0)


def picked(x: Any, w: Any) -> Any:
    order = jnp.argsort(x[:, 0])
    return x[order], jnp.take(x, jnp.array([0]), axis=0), x.at[0].set(7.0), x.at[order].add(1.0), jnp.cumsum(x, 0)


def gram(x: Any, w: Any) -> Any:
    distance = jnp.sum((x[:, None] - x[None]) ** 2, -1)
    k = jnp.exp(-distance) + jnp.eye(x.shape[0])
    return -jnp.log(jnp.diag(jnp.linalg.cholesky(k))).sum() + jnp.einsum("ni,nm,mj->ij", x, k, x)


def extremes(x: Any, w: Any) -> Any:
    return jax.nn.logsumexp(x, axis=0), x.max(0), jnp.argmax(x, 0), jnp.sort(x, axis=0), jnp.tril(x @ x.T)


FUNCTIONS = [layers, log_density, normalised, joined, scanned, rolled, picked, gram, extremes]


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_functions_over_open_sizes_have_jax_s_values_and_gradients(fn: Callable[..., Any], g: sg.Graph) -> None:
    shape = (N,) if fn is log_density else (N, 3)
    x, w = sg.placeholder(shape, sg.float64), sg.placeholder((3, 4), sg.float64)
    found = jax.tree.leaves(convert(fn)(x, w))

    def total(x: Any, w: Any) -> Any:
        return sum(jnp.sum(jnp.sin(y)) for y in jax.tree.leaves(fn(x, w)) if y.dtype.kind == "f")

    slopes = sg.gradients(
        sum(sg.sum(sg.sin(y)) for y in found if y.dtype.kind == "f"), [x, w], unconnected_gradients="zero"
    )
    exe = sg.Session(g).compile([found, slopes], [x, w])
    rng = np.random.default_rng(1)
    for n in (2, 7, 11, 20):
        a = rng.normal(size=(n, *shape[1:]))
        values, mine = exe(a, W)
        wanted, theirs = jax.tree.leaves(fn(jnp.asarray(a), jnp.asarray(W))), jax.grad(total, (0, 1))(a, W)
        for actual, expected in zip([*values, *mine], [*wanted, *theirs], strict=True):
            assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
            np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)
    assert exe.session.compile_count <= 4


CONTROL: dict[str, Callable[..., Any]] = {
    "loop": lambda x: lax.fori_loop(0, x.shape[0], lambda i, total: total + x[i] * i, 0.0),
    "while": lambda x: lax.while_loop(lambda c: jnp.sum(c**2) < 100, lambda c: c * 2, x),
    "branch": lambda x: lax.cond(x.sum() > 0, lambda x: x * 2, jnp.flip, x),
    "normal": lambda x: x + jax.random.normal(jax.random.key(3), x.shape),
    "bernoulli": lambda x: jnp.where(jax.random.bernoulli(jax.random.PRNGKey(3), 0.5, x.shape), x, 0),
    "ends": lambda x: (x[:3], x[: x.shape[0] // 2], jnp.roll(x, 1), jnp.repeat(x, 2), jnp.tile(x, 3)),
    "start": lambda x: (x[jnp.argmax(x)], x.at[jnp.argmin(x)].set(5.0), lax.dynamic_slice(x, (jnp.argmax(x),), (1,))),
    "pad": lambda x: jnp.pad(x, (1, 2)),
    "solve": lambda x: jax.vmap(lambda r: jnp.linalg.solve(jnp.eye(2) + r, jnp.ones(2)))(x),
    "attention": lambda x: jax.nn.softmax(jnp.where(jnp.tri(x.shape[0]) > 0, jnp.outer(x, x), -jnp.inf)) @ x,
    "segments": lambda x: jax.ops.segment_sum(x, jnp.arange(x.shape[0]) % 3, 3),
}


@pytest.mark.parametrize("name", CONTROL)
def test_loops_branches_keys_and_slices_are_right_at_each_size(name: str, g: sg.Graph) -> None:
    x = sg.placeholder((N,), sg.float64)
    exe = sg.Session(g).compile(convert(CONTROL[name])(x), x)
    for n in (1, 2, 5, 20):
        a = np.random.default_rng(n).normal(size=n)
        wanted = jax.tree.leaves(CONTROL[name](jnp.asarray(a)))
        for actual, expected in zip(jax.tree.leaves(exe(a)), wanted, strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_sizes_that_are_computed_of_others_come_back_as_they_were() -> None:
    x = sg.placeholder((N, 3, M), sg.float64)
    y = convert(lambda x, half: (x.reshape(-1, 3), x[1:], half))(x, sg.zeros((N // 2, 2)))
    assert [each.shape for each in y] == [(N * M, 3), (N - 1, 3, M), (N // 2, 2)]


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (lambda x, y: x if x.shape[0] > 3 else 2 * x, r"has the open shape \(n, 2\).*\n.*n as d0.*comparison"),
        (lambda x, y: x + y, r"sizes that are equal as one sg.dim\n.*n as d0, m as d1.*incompatible shapes"),
        (lambda x, y: lax.associative_scan(jnp.add, x), "cannot trace the function"),
    ],
)
def test_a_course_that_depends_on_an_open_size_is_refused(fn: Callable[..., Any], says: str) -> None:
    with pytest.raises(sg.UnsupportedError, match=says):
        convert(fn)(sg.placeholder((N, 2)), sg.placeholder((M, 2)))


def test_a_size_of_zero_that_jax_takes_for_greater_is_an_error(g: sg.Graph) -> None:
    x = sg.placeholder((N,), sg.float64)
    exe = sg.Session(g).compile(convert(lambda x: x[1:])(x), x)
    assert exe(np.ones(1)).shape == (0,)
    with pytest.raises(sg.GraphError, match="negative size"):
        exe(np.ones(0))
