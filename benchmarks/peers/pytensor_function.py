"""PyTensor: one compiled function a call, shared variables with updates, inputs taken without checks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import models
import numpy as np
import pytensor
import pytensor.tensor as pt
from models import Activation
from workloads import Workload

from peers import Call, Program, Settings

Tree = dict[str, Any]
F = np.float32


def _gelu(x: Any) -> Any:
    return F(0.5) * x * (1 + pt.erf(x * F(1 / math.sqrt(2))))


ACTIVATIONS: dict[Activation, Callable[[Any], Any]] = {
    "relu": lambda x: pt.maximum(x, F(0)), "tanh": pt.tanh, "sigmoid": pt.sigmoid,
    "silu": lambda x: x * pt.sigmoid(x), "gelu": _gelu,
}  # fmt: skip


# -- functions: the results of a call ---------------------------------------------------------------------------------


def squares(_: models.Squares, x: Any) -> list[Any]:
    z = F(4) * (x * x)
    mean, total = z.mean(dtype=x.dtype), z.sum(dtype=x.dtype)
    return [mean, total, pt.grad(mean, x), pt.grad(total, x)]


def logistic(model: models.Logistic, x: Any, y: Any, w: Any, b: Any) -> list[Any]:
    kind = np.dtype(x.dtype).type
    z = x @ w + b
    loss = (pt.softplus(z) - y * z).mean(dtype=x.dtype) + kind(0.5 * model.l2) * pt.dot(w, w)
    return [loss, *pt.grad(loss, [w, b])]


def black_scholes(_: models.BlackScholes, s: Any, k: Any, t: Any, rate: Any, sigma: Any) -> list[Any]:
    kind = np.dtype(s.dtype).type

    def cdf(x: Any) -> Any:
        return kind(0.5) * (1 + pt.erf(x * kind(1 / math.sqrt(2))))

    deviation = sigma * pt.sqrt(t)
    d1 = (pt.log(s / k) + (rate + kind(0.5) * sigma * sigma) * t) / deviation
    price = s * cdf(d1) - k * pt.exp(-rate * t) * cdf(d1 - deviation)
    return [price, *pt.grad(price.sum(dtype=s.dtype), [s, k, t, rate, sigma])]


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    y = x - x.mean(-1, keepdims=True, dtype=x.dtype)
    variance = (y * y).mean(-1, keepdims=True, dtype=x.dtype)
    return y / pt.sqrt(variance + F(1e-5)) * weight + bias


def chain(_: models.Chain, x: Any) -> list[Any]:
    y = pt.minimum(pt.maximum(x * F(1.5) + F(0.25), F(-1)), F(2))
    return [-(abs(y * y + x) * F(0.5) - x)]


FUNCTIONS: dict[type, Callable[..., list[Any]]] = {
    models.Squares: squares,
    models.Logistic: logistic,
    models.BlackScholes: black_scholes,
    models.Product: lambda _, a, b: [a @ b],
    models.Softmax: lambda _, x: [pt.special.softmax(x, axis=1)],
    models.LayerNorm: lambda _, x, w, b: [layer_norm(x, w, b)],
    models.Chain: chain,
    models.Copy: lambda _, x: [x.copy()],
}


# -- networks: parameters and a batch of known shape to logits (rows, classes) ----------------------------------------


def dense(p: Tree, x: Any, depth: int, activation: Activation = "relu") -> Any:
    for layer in range(1, depth):
        x = ACTIVATIONS[activation](x @ p[f"fc{layer}.w"] + p[f"fc{layer}.b"])
    return x @ p[f"fc{depth}.w"] + p[f"fc{depth}.b"]


def transformer(model: models.Transformer, p: Tree, x: Any) -> Any:
    n, s, width = x.type.shape

    def layer(name: str, x: Any) -> Any:
        return x @ p[f"{name}.w"] + p[f"{name}.b"]

    def norm(name: str, x: Any) -> Any:
        return layer_norm(x, p[f"{name}.w"], p[f"{name}.b"])

    x = x.reshape((n * s, width))
    parts = layer("qkv", norm("norm1", x)).reshape((n, s, 3, model.heads, width // model.heads))
    q, k, v = (parts[:, :, part].transpose(0, 2, 1, 3) for part in range(3))
    scores = q @ k.transpose(0, 1, 3, 2) * F(1 / math.sqrt(width // model.heads))
    if model.causal:  # a large number: the derivative of softmax at minus infinity is not a number here
        scores = scores + np.triu(np.full((s, s), -1e9, np.float32), 1)
    y = (pt.special.softmax(scores, axis=-1) @ v).transpose(0, 2, 1, 3).reshape((n * s, width))
    x = x + layer("out", y)
    x = x + layer("down", _gelu(layer("up", norm("norm2", x))))
    return layer("head", x)


def lstm(_: models.Recurrent, p: Tree, x: Any) -> Any:
    """A scan; the inputs' part of the gates is one product before it."""
    batch, steps, inputs = x.type.shape
    hidden = p["wh"].type.shape[0]
    rows = x.transpose(1, 0, 2).reshape((steps * batch, inputs)) @ p["wx"] + p["b"]

    def step(row: Any, h: Any, c: Any, wh: Any) -> tuple[Any, Any]:
        z = row + h @ wh
        i, f, g, o = (z[:, part * hidden : (part + 1) * hidden] for part in range(4))
        c = pt.sigmoid(f) * c + pt.sigmoid(i) * pt.tanh(g)
        return pt.sigmoid(o) * pt.tanh(c), c

    zeros = pt.zeros((batch, hidden), dtype=x.dtype)
    outputs, _ = pytensor.scan(
        step, sequences=[rows.reshape((steps, batch, 4 * hidden))], outputs_info=[zeros, zeros],
        non_sequences=[p["wh"]], return_updates=False,
    )  # fmt: skip
    return dense(p, outputs.transpose(1, 0, 2).reshape((batch * steps, hidden)), 1)


NETWORKS: dict[type, Callable[[Any, Tree, Any], Any]] = {
    models.Perceptron: lambda model, p, x: dense(p, x, model.depth, model.activation),
    models.Transformer: transformer,
    models.Recurrent: lstm,
}


# -- training ---------------------------------------------------------------------------------------------------------


def cross_entropy(logits: Any, labels: Any) -> Any:
    logs = pt.special.log_softmax(logits, axis=1)
    return -logs[pt.arange(labels.shape[0]), labels].mean(dtype=logits.dtype)


def _updates(workload: Workload, p: Tree, loss: Any) -> dict[Any, Any]:
    """New values of the parameters and of the optimizer's state."""

    def zeros(variable: Any) -> Any:
        array = variable.get_value()
        return pytensor.shared(np.zeros_like(array), shape=array.shape)

    variables, new = list(p.values()), {}
    gradients = pt.grad(loss, variables)
    match workload.optimizer:
        case models.Momentum(lr, momentum):
            for v, g in zip(variables, gradients, strict=True):
                if momentum:
                    velocity = zeros(v)
                    g = new[velocity] = F(momentum) * velocity + g
                new[v] = v - F(lr) * g
        case models.Adam(lr, decay):
            count = pytensor.shared(F(0))
            steps = new[count] = count + F(1)
            size, scale = F(lr) / (1 - F(0.9) ** steps), 1 / (1 - F(0.999) ** steps)
            for v, g in zip(variables, gradients, strict=True):
                m, s = zeros(v), zeros(v)
                first = new[m] = F(0.9) * m + F(0.1) * g
                second = new[s] = F(0.999) * s + F(0.001) * g * g
                new[v] = v * F(1 - lr * decay) - size * first / (pt.sqrt(second * scale) + F(1e-8))
    return new


def build(workload: Workload, settings: Settings) -> Program:
    pytensor.config.floatX = workload.dtype
    model = workload.model
    inputs = [pt.tensor(f"x{n}", dtype=a.dtype, shape=a.shape) for n, a in enumerate(workload.feeds[0])]
    updates: dict[Any, Any] = {}
    if workload.kind == "function":
        outputs = FUNCTIONS[type(model)](model, *inputs)
    else:
        p = {name: pytensor.shared(a, name, shape=a.shape) for name, a in workload.parameters.items()}
        outputs = [NETWORKS[type(model)](model, p, inputs[0])]
        if workload.kind == "train":
            outputs = [cross_entropy(outputs[0], inputs[1].ravel())]
            updates = _updates(workload, p, outputs[0])

    def compile() -> Call:
        taken = [pytensor.In(x, borrow=True) for x in inputs]
        given = [pytensor.Out(y, borrow=not isinstance(model, models.Copy)) for y in outputs]
        function: Any = pytensor.function(taken, given, updates=updates)
        function.trust_input = True
        call: Call = function
        return call

    return Program(compile)
