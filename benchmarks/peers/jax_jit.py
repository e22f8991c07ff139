"""JAX on the CPU: one jitted function a call, training state donated, images NHWC and kernels HWIO inside."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import models
import numpy as np
from jax import lax
from models import Activation
from workloads import Array, Workload

from peers import Program, Settings

Tree = dict[str, Any]
ACTIVATIONS: dict[Activation, Callable[[Any], Any]] = {
    "relu": jax.nn.relu, "tanh": jnp.tanh, "sigmoid": jax.nn.sigmoid, "silu": jax.nn.silu,
    "gelu": partial(jax.nn.gelu, approximate=False),
}  # fmt: skip


# -- functions --------------------------------------------------------------------------------------------------------


def squares(_: models.Squares, x: Any) -> Any:
    def z(x: Any) -> Any:
        return 4 * (x * x)

    mean, by_mean = jax.value_and_grad(lambda x: z(x).mean())(x)
    total, by_total = jax.value_and_grad(lambda x: z(x).sum())(x)
    return mean, total, by_mean, by_total


def logistic(model: models.Logistic, x: Any, y: Any, w: Any, b: Any) -> Any:
    def loss(w: Any, b: Any) -> Any:
        z = x @ w + b
        return (jax.nn.softplus(z) - y * z).mean() + 0.5 * model.l2 * (w @ w)

    value, gradients = jax.value_and_grad(loss, (0, 1))(w, b)
    return value, *gradients


def black_scholes(_: models.BlackScholes, *inputs: Any) -> Any:
    def price(s: Any, k: Any, t: Any, rate: Any, sigma: Any) -> Any:
        def cdf(x: Any) -> Any:
            return 0.5 * (1 + lax.erf(x / math.sqrt(2)))

        deviation = sigma * jnp.sqrt(t)
        d1 = (jnp.log(s / k) + (rate + 0.5 * sigma * sigma) * t) / deviation
        value = s * cdf(d1) - k * jnp.exp(-rate * t) * cdf(d1 - deviation)
        return value.sum(), value

    (_, value), gradients = jax.value_and_grad(price, tuple(range(5)), has_aux=True)(*inputs)
    return value, *gradients


def layer_norm(_: models.LayerNorm, x: Any, weight: Any, bias: Any) -> Any:
    y = x - x.mean(1, keepdims=True)
    return (y * lax.rsqrt(jnp.mean(y * y, 1, keepdims=True) + 1e-5) * weight + bias,)


def chain(_: models.Chain, x: Any) -> Any:
    y = jnp.minimum(jnp.maximum(x * 1.5 + 0.25, -1.0), 2.0)
    return (-(jnp.abs(y * y + x) * 0.5 - x),)


FUNCTIONS: dict[type, Callable[..., Any]] = {
    models.Squares: squares,
    models.Logistic: logistic,
    models.BlackScholes: black_scholes,
    models.Product: lambda _, a, b: (a @ b,),
    models.Softmax: lambda _, x: (jax.nn.softmax(x, 1),),
    models.LayerNorm: layer_norm,
    models.Chain: chain,
    models.Copy: lambda _, x: (jnp.copy(x),),
}


# -- networks: parameters, statistics and a batch to logits (rows, classes) and new statistics ------------------------


def dense(p: Tree, x: Any, depth: int, activation: Activation = "relu") -> Any:
    for layer in range(1, depth):
        x = ACTIVATIONS[activation](x @ p[f"fc{layer}.w"] + p[f"fc{layer}.b"])
    return x @ p[f"fc{depth}.w"] + p[f"fc{depth}.b"]


def convolution(w: Any, x: Any, padding: int, stride: int = 1) -> Any:
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w, (stride, stride), [(padding, padding)] * 2, dimension_numbers=layout)


def pooled(x: Any) -> Any:
    """The maximum of 2×2; its derivative by reduction is faster here than that of ``reduce_window``."""
    n, h, w, c = x.shape
    x = x[:, : h // 2 * 2, : w // 2 * 2]
    return x.reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))


def convnet(model: models.ConvNet, p: Tree, buffers: Tree, x: Any) -> tuple[Any, Tree]:
    for number, padding in enumerate(model.paddings, 1):
        x = convolution(p[f"c{number}.w"], x, padding) + p[f"c{number}.b"]
        x = pooled(ACTIVATIONS[model.activation](x))
    return dense(p, x.reshape(len(x), -1), model.depth, model.activation), buffers


def resnet(model: models.ResNet, p: Tree, buffers: Tree, x: Any) -> tuple[Any, Tree]:
    new: Tree = {}

    def normalized(name: str, x: Any, stride: int = 1) -> Any:
        y = convolution(p[f"{name}.w"], x, 1, stride)
        count = y.size // y.shape[-1]
        mean, var = y.mean((0, 1, 2)), y.var((0, 1, 2))
        new[f"{name}.mean"] = 0.9 * buffers[f"{name}.mean"] + 0.1 * mean
        new[f"{name}.var"] = 0.9 * buffers[f"{name}.var"] + 0.1 * var * (count / (count - 1))
        return (y - mean) * (p[f"{name}.gamma"] * lax.rsqrt(var + 1e-5)) + p[f"{name}.beta"]

    x = jax.nn.relu(normalized("stem", x))
    for number, (inputs, outputs, stride) in enumerate(model.blocks):
        y = jax.nn.relu(normalized(f"b{number}.1", x, stride))
        y = normalized(f"b{number}.2", y)
        if stride > 1:
            x = jnp.pad(x[:, ::stride, ::stride], ((0, 0), (0, 0), (0, 0), (0, outputs - inputs)))
        x = jax.nn.relu(x + y)
    return dense(p, x.mean((1, 2)), 1), new


def transformer(model: models.Transformer, p: Tree, buffers: Tree, x: Any) -> tuple[Any, Tree]:
    def layer(name: str, x: Any) -> Any:
        return x @ p[f"{name}.w"] + p[f"{name}.b"]

    def norm(name: str, x: Any) -> Any:
        y = x - x.mean(-1, keepdims=True)
        return y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-5) * p[f"{name}.w"] + p[f"{name}.b"]

    n, s, width = x.shape
    parts = layer("qkv", norm("norm1", x)).reshape(n, s, 3, model.heads, width // model.heads)
    q, k, v = parts.transpose(2, 0, 3, 1, 4)
    scores = q @ k.swapaxes(2, 3) / math.sqrt(width // model.heads)
    if model.causal:
        scores = jnp.where(np.tri(s, dtype=bool), scores, -jnp.inf)
    y = jax.nn.softmax(scores) @ v
    x = x + layer("out", y.transpose(0, 2, 1, 3).reshape(n, s, width))
    x = x + layer("down", jax.nn.gelu(layer("up", norm("norm2", x)), approximate=False))
    return layer("head", x).reshape(n * s, -1), buffers


def lstm(_: models.Recurrent, p: Tree, buffers: Tree, x: Any) -> tuple[Any, Tree]:
    """A scan; the inputs' part of the gates is one product before it."""
    batch, hidden = len(x), p["wh"].shape[0]
    rows = x.swapaxes(0, 1) @ p["wx"] + p["b"]

    def step(state: Any, row: Any) -> tuple[Any, Any]:
        h, c = state
        i, f, g, o = jnp.split(row + h @ p["wh"], 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((batch, hidden), x.dtype)
    _, outputs = lax.scan(step, (zeros, zeros), rows)
    return dense(p, outputs.swapaxes(0, 1).reshape(-1, hidden), 1), buffers


NETWORKS: dict[type, Callable[[Any, Tree, Tree, Any], tuple[Any, Tree]]] = {
    models.Perceptron: lambda model, p, buffers, x: (dense(p, x, model.depth, model.activation), buffers),
    models.ConvNet: convnet,
    models.ResNet: resnet,
    models.Transformer: transformer,
    models.Recurrent: lstm,
}


# -- training ---------------------------------------------------------------------------------------------------------


def cross_entropy(logits: Any, labels: Any) -> Any:
    """With a comparison instead of a gather: its derivative is elementwise, which is faster on a CPU."""
    chosen = jnp.where(labels[:, None] == jnp.arange(logits.shape[1]), logits, 0).sum(1)
    return (jax.nn.logsumexp(logits, 1) - chosen).mean()


def _parameters(workload: Workload) -> Tree:
    """Convolution weights HWIO; the first dense weight after them reads channels last."""
    made = {}
    model, channels = workload.model, 0
    for name, array in workload.parameters.items():
        if array.ndim == 4:
            array = array.transpose(2, 3, 1, 0)
            channels = array.shape[-1]
        elif isinstance(model, models.ConvNet) and name == "fc1.w":
            array = array.reshape(channels, -1, array.shape[1]).swapaxes(0, 1).reshape(array.shape)
        made[name] = jnp.array(array)
    return made


def _update(workload: Workload) -> Callable[[Tree, Tree, Any], tuple[Tree, Any]]:
    """Parameters, gradients and the optimizer's state to new parameters and state."""

    def momentum(p: Tree, g: Tree, state: Any) -> tuple[Tree, Any]:
        rule = workload.optimizer
        assert isinstance(rule, models.Momentum)
        if not rule.momentum:
            return jax.tree.map(lambda p, g: p - rule.lr * g, p, g), state
        velocity = jax.tree.map(lambda v, g: rule.momentum * v + g, state[0], g)
        return jax.tree.map(lambda p, v: p - rule.lr * v, p, velocity), (velocity, *state[1:])

    def adam(p: Tree, g: Tree, state: Any) -> tuple[Tree, Any]:
        rule = workload.optimizer
        assert isinstance(rule, models.Adam)
        first, second, step = state
        step = step + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, g)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, g)
        size, scale = rule.lr / (1 - 0.9**step), 1 / (1 - 0.999**step)
        keep = 1 - rule.lr * rule.decay
        p = jax.tree.map(lambda p, m, v: p * keep - size * m / (jnp.sqrt(v * scale) + 1e-8), p, first, second)
        return p, (first, second, step)

    return momentum if isinstance(workload.optimizer, models.Momentum) else adam


def build(workload: Workload, settings: Settings) -> Program:
    if workload.dtype == "float64" or settings.double:
        jax.config.update("jax_enable_x64", True)
    if workload.kind == "train":
        return _training(workload)
    model = workload.model
    if workload.kind == "infer":
        parameters = _parameters(workload)
        infer = jax.jit(lambda p, x: NETWORKS[type(model)](model, p, {}, x)[0])
        return Program(
            lambda: lambda x: [np.asarray(infer(parameters, x))],
            lambda: _temporary_bytes(infer, parameters, *workload.feeds[0]),
        )
    function = jax.jit(partial(FUNCTIONS[type(model)], model))
    return Program(
        lambda: lambda *arrays: [np.asarray(y) for y in function(*arrays)],
        lambda: _temporary_bytes(function, *workload.feeds[0]),
    )


def _temporary_bytes(function: Any, *arguments: Any) -> int:
    return int(function.lower(*arguments).compile().memory_analysis().temp_size_in_bytes)


def _training(workload: Workload) -> Program:
    model, update = workload.model, _update(workload)
    network, images = NETWORKS[type(model)], bool(workload.feeds[0][0].ndim == 4)

    def loss(p: Tree, buffers: Tree, x: Any, labels: Any) -> tuple[Any, Tree]:
        logits, buffers = network(model, p, buffers, x.transpose(0, 2, 3, 1) if images else x)
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
    rule = workload.optimizer
    first = zeros(p) if isinstance(rule, models.Adam) or (rule is not None and rule.momentum) else ()
    second = zeros(p) if isinstance(rule, models.Adam) else ()
    state = (p, buffers, (first, second, jnp.zeros((), jnp.float32)))

    def call(x: Array, labels: Array) -> list[Any]:
        nonlocal state
        state, value = step(state, x, labels)
        return [np.asarray(value)]

    return Program(lambda: call, lambda: _temporary_bytes(step, state, *workload.feeds[0]))
