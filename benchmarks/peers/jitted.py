"""JAX on the CPU: one jitted function a call, training state donated, images NHWC and kernels HWIO inside."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from workloads import BUILDERS, HEADS, L2, RESNET20, WIDTH, Adam, Array, Momentum, Workload

from peers import Compile

WORKLOADS = frozenset(BUILDERS)
Tree = dict[str, Any]


def seed_scalar(x: Any) -> Any:
    def z(x: Any) -> Any:
        return 4 * (x * x)

    mean, by_mean = jax.value_and_grad(lambda x: z(x).mean())(x)
    total, by_total = jax.value_and_grad(lambda x: z(x).sum())(x)
    return mean, total, by_mean, by_total


def logreg(x: Any, y: Any, w: Any, b: Any) -> Any:
    def loss(w: Any, b: Any) -> Any:
        z = x @ w + b
        return (jax.nn.softplus(z) - y * z).mean() + 0.5 * L2 * (w @ w)

    value, gradients = jax.value_and_grad(loss, (0, 1))(w, b)
    return value, *gradients


def black_scholes(*inputs: Any) -> Any:
    def price(s: Any, k: Any, t: Any, rate: Any, sigma: Any) -> Any:
        def cdf(x: Any) -> Any:
            return 0.5 * (1 + lax.erf(x / math.sqrt(2)))

        deviation = sigma * jnp.sqrt(t)
        d1 = (jnp.log(s / k) + (rate + 0.5 * sigma * sigma) * t) / deviation
        value = s * cdf(d1) - k * jnp.exp(-rate * t) * cdf(d1 - deviation)
        return value.sum(), value

    (_, value), gradients = jax.value_and_grad(price, tuple(range(5)), has_aux=True)(*inputs)
    return value, *gradients


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    y = x - x.mean(1, keepdims=True)
    return (y * lax.rsqrt(jnp.mean(y * y, 1, keepdims=True) + 1e-5) * weight + bias,)


def pointwise_chain(x: Any) -> Any:
    y = jnp.minimum(jnp.maximum(x * 1.5 + 0.25, -1.0), 2.0)
    return (-(jnp.abs(y * y + x) * 0.5 - x),)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "seed_scalar": seed_scalar,
    "logreg_f64": logreg,
    "black_scholes_f64": black_scholes,
    "softmax_512": lambda x: (jax.nn.softmax(x, 1),),
    "layer_norm_512": layer_norm,
    "pointwise_chain": pointwise_chain,
    "copy": lambda x: (jnp.copy(x),),
    **dict.fromkeys((name for name in BUILDERS if name.startswith("gemm")), lambda a, b: (a @ b,)),
}


def dense(p: Tree, x: Any, depth: int = 3) -> Any:
    for layer in range(1, depth):
        x = jax.nn.relu(x @ p[f"fc{layer}.w"] + p[f"fc{layer}.b"])
    return x @ p[f"fc{depth}.w"] + p[f"fc{depth}.b"]


def convolution(w: Any, x: Any, padding: int, stride: int = 1) -> Any:
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w, (stride, stride), [(padding, padding)] * 2, dimension_numbers=layout)


def pooled(x: Any) -> Any:
    """The maximum of 2×2; its derivative by reduction is faster here than that of ``reduce_window``."""
    n, h, w, c = x.shape
    return x.reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))


def lenet(p: Tree, buffers: Tree, x: Any) -> tuple[Any, Tree]:
    x = pooled(jax.nn.relu(convolution(p["c1.w"], x, 2) + p["c1.b"]))
    x = pooled(jax.nn.relu(convolution(p["c2.w"], x, 0) + p["c2.b"]))
    return dense(p, x.reshape(len(x), -1)), buffers


def resnet20(p: Tree, buffers: Tree, x: Any) -> tuple[Any, Tree]:
    new: Tree = {}

    def normalized(name: str, x: Any, stride: int = 1) -> Any:
        y = convolution(p[f"{name}.w"], x, 1, stride)
        count = y.size // y.shape[-1]
        mean, var = y.mean((0, 1, 2)), y.var((0, 1, 2))
        new[f"{name}.mean"] = 0.9 * buffers[f"{name}.mean"] + 0.1 * mean
        new[f"{name}.var"] = 0.9 * buffers[f"{name}.var"] + 0.1 * var * (count / (count - 1))
        return (y - mean) * (p[f"{name}.gamma"] * lax.rsqrt(var + 1e-5)) + p[f"{name}.beta"]

    x = jax.nn.relu(normalized("stem", x))
    for number, (inputs, outputs, stride) in enumerate(RESNET20):
        y = jax.nn.relu(normalized(f"b{number}.1", x, stride))
        y = normalized(f"b{number}.2", y)
        if stride > 1:
            x = jnp.pad(x[:, ::stride, ::stride], ((0, 0), (0, 0), (0, 0), (0, outputs - inputs)))
        x = jax.nn.relu(x + y)
    return dense(p, x.mean((1, 2)), 1), new


def transformer_block(p: Tree, buffers: Tree, x: Any) -> tuple[Any, Tree]:
    def layer(name: str, x: Any) -> Any:
        return x @ p[f"{name}.w"] + p[f"{name}.b"]

    def norm(name: str, x: Any) -> Any:
        y = x - x.mean(-1, keepdims=True)
        return y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-5) * p[f"{name}.w"] + p[f"{name}.b"]

    n, s, _ = x.shape
    q, k, v = layer("qkv", norm("norm1", x)).reshape(n, s, 3, HEADS, WIDTH // HEADS).transpose(2, 0, 3, 1, 4)
    scores = q @ k.swapaxes(2, 3) / math.sqrt(WIDTH // HEADS)
    y = jax.nn.softmax(jnp.where(np.tri(s, dtype=bool), scores, -jnp.inf)) @ v
    x = x + layer("out", y.transpose(0, 2, 1, 3).reshape(n, s, WIDTH))
    x = x + layer("down", jax.nn.gelu(layer("up", norm("norm2", x)), approximate=False))
    return layer("head", x).reshape(n * s, -1), buffers


MODELS: dict[str, Callable[[Tree, Tree, Any], tuple[Any, Tree]]] = {
    "mlp_small": lambda p, buffers, x: (dense(p, x), buffers),
    "mlp_mnist": lambda p, buffers, x: (dense(p, x), buffers),
    "mlp_infer_b1": lambda p, buffers, x: (dense(p, x), buffers),
    "lenet": lenet,
    "resnet20": resnet20,
    "transformer_block": transformer_block,
}


def cross_entropy(logits: Any, labels: Any) -> Any:
    """With a comparison instead of a gather: its derivative is elementwise, which is faster on a CPU."""
    chosen = jnp.where(labels[:, None] == jnp.arange(logits.shape[1]), logits, 0).sum(1)
    return (jax.nn.logsumexp(logits, 1) - chosen).mean()


def _parameters(workload: Workload) -> Tree:
    made = {}
    for name, array in workload.parameters.items():
        if array.ndim == 4:
            array = array.transpose(2, 3, 1, 0)
        elif workload.name == "lenet" and name == "fc1.w":  # it reads 16 channels of 5×5, here channels last
            array = array.reshape(16, 5, 5, -1).transpose(1, 2, 0, 3).reshape(array.shape)
        made[name] = jnp.array(array)
    return made


def _update(workload: Workload) -> Callable[[Tree, Tree, Any], tuple[Tree, Any]]:
    """Parameters, gradients and the optimizer's state to new parameters and state."""

    def momentum(p: Tree, g: Tree, state: Any) -> tuple[Tree, Any]:
        rule = workload.optimizer
        assert isinstance(rule, Momentum)
        velocity = jax.tree.map(lambda v, g: rule.momentum * v + g, state[0], g)
        return jax.tree.map(lambda p, v: p - rule.lr * v, p, velocity), (velocity, *state[1:])

    def adam(p: Tree, g: Tree, state: Any) -> tuple[Tree, Any]:
        rule = workload.optimizer
        assert isinstance(rule, Adam)
        first, second, step = state
        step = step + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, g)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, g)
        size, scale = rule.lr / (1 - 0.9**step), 1 / (1 - 0.999**step)
        keep = 1 - rule.lr * rule.decay
        p = jax.tree.map(lambda p, m, v: p * keep - size * m / (jnp.sqrt(v * scale) + 1e-8), p, first, second)
        return p, (first, second, step)

    return momentum if isinstance(workload.optimizer, Momentum) else adam


def build(workload: Workload, threads: int, double: bool) -> Compile:
    if workload.dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    if workload.kind == "train":
        return _training(workload)
    if workload.kind == "infer":
        parameters = _parameters(workload)
        infer = jax.jit(lambda p, x: MODELS[workload.name](p, {}, x)[0])
        return lambda: lambda x: [np.asarray(infer(parameters, x))]
    function = jax.jit(FUNCTIONS[workload.name])
    return lambda: lambda *arrays: [np.asarray(y) for y in function(*arrays)]


def _training(workload: Workload) -> Compile:
    model, update = MODELS[workload.name], _update(workload)
    images = bool(workload.feeds[0][0].ndim == 4)

    def loss(p: Tree, buffers: Tree, x: Any, labels: Any) -> tuple[Any, Tree]:
        logits, buffers = model(p, buffers, x.transpose(0, 2, 3, 1) if images else x)
        return cross_entropy(logits, labels.reshape(-1)), buffers

    @partial(jax.jit, donate_argnums=0)
    def step(state: Any, x: Any, labels: Any) -> Any:
        p, buffers, rest = state
        (value, buffers), gradients = jax.value_and_grad(loss, has_aux=True)(p, buffers, x, labels)
        p, rest = update(p, gradients, rest)
        return (p, buffers, rest), value

    p = _parameters(workload)
    zeros = partial(jax.tree.map, jnp.zeros_like)
    buffers = {name: jnp.array(array) for name, array in workload.buffers.items()}
    second = zeros(p) if isinstance(workload.optimizer, Adam) else ()
    state = (p, buffers, (zeros(p), second, jnp.zeros((), jnp.float32)))

    def call(x: Array, labels: Array) -> list[Any]:
        nonlocal state
        state, value = step(state, x, labels)
        return [np.asarray(value)]

    return lambda: call
