"""NumPy as one would write it by hand: gradients derived on paper, arrays reused where that is natural.

Also the float64 reference of every workload that it has.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import models
import numpy as np
from models import Activation
from workloads import Array, Workload

from peers import Call, Program, Settings

# -- functions --------------------------------------------------------------------------------------------------------


def squares(_: models.Squares, x: Array) -> list[Array]:
    z = 4 * (x * x)
    by_total = 8 * x
    return [z.mean(), z.sum(), by_total / x.size, by_total]


def logistic(model: models.Logistic, x: Array, y: Array, w: Array, b: Array) -> list[Any]:
    z = x @ w + b
    loss = np.mean(np.logaddexp(0, z) - y * z) + 0.5 * model.l2 * (w @ w)
    dz = (1 / (1 + np.exp(-z)) - y) / len(y)
    return [loss, x.T @ dz + model.l2 * w, dz.sum()]


def _cdf(x: Array) -> Array:
    """The normal distribution function: ``math.erf`` is correctly rounded within an ulp, and NumPy has none."""
    return 0.5 * (1 + np.fromiter(map(math.erf, (x / math.sqrt(2)).tolist()), np.float64, x.size))


def black_scholes(_: models.BlackScholes, s: Array, k: Array, t: Array, rate: Array, sigma: Array) -> list[Array]:
    root = np.sqrt(t)
    d1 = (np.log(s / k) + (rate + 0.5 * sigma * sigma) * t) / (sigma * root)
    n1, n2 = _cdf(d1), _cdf(d1 - sigma * root)
    density = np.exp(-0.5 * d1 * d1) / math.sqrt(2 * math.pi)
    discount = np.exp(-rate * t)
    strike = k * discount
    vega = s * density * root
    theta = s * density * sigma / (2 * root) + rate * strike * n2
    return [s * n1 - strike * n2, n1, -discount * n2, theta, t * strike * n2, vega]


def softmax(_: models.Softmax, x: Array) -> list[Array]:
    e = np.subtract(x, x.max(1, keepdims=True))
    np.exp(e, out=e)
    e /= e.sum(1, keepdims=True)
    return [e]


def layer_norm(_: models.LayerNorm, x: Array, weight: Array, bias: Array) -> list[Array]:
    y = x - x.mean(1, keepdims=True)
    y /= np.sqrt(np.mean(y * y, axis=1, keepdims=True) + 1e-5)
    y *= weight
    y += bias
    return [y]


def chain(_: models.Chain, x: Array) -> list[Array]:
    y = x * 1.5
    y += 0.25
    np.maximum(y, -1.0, out=y)
    np.minimum(y, 2.0, out=y)
    y *= y
    y += x
    np.abs(y, out=y)
    y *= 0.5
    y -= x
    np.negative(y, out=y)
    return [y]


def product(_: models.Product, a: Array, b: Array) -> list[Array]:
    return [a @ b]


def _copy(_: models.Copy, x: Array) -> list[Array]:
    return [x.copy()]


FUNCTIONS: dict[type, Callable[..., list[Any]]] = {
    models.Squares: squares,
    models.Logistic: logistic,
    models.BlackScholes: black_scholes,
    models.Product: product,
    models.Softmax: softmax,
    models.LayerNorm: layer_norm,
    models.Chain: chain,
    models.Copy: _copy,
}


# -- dense networks ---------------------------------------------------------------------------------------------------


def _sigmoid(x: Array) -> Array:
    y: Array = 1 / (1 + np.exp(-x))
    return y


def activate(activation: Activation, x: Array) -> Any:
    """May write over ``x``."""
    match activation:
        case "relu":
            return np.maximum(x, 0, out=x)
        case "tanh":
            return np.tanh(x, out=x)
        case "sigmoid":
            return _sigmoid(x)
        case "silu":
            return x * _sigmoid(x)
    raise ValueError(f"{activation}: not derived by hand")


def slope(activation: Activation, x: Array, y: Array) -> Any:
    """The derivative at ``x``, by ``y``, the value there, where that is shorter (then ``x`` may be gone)."""
    match activation:
        case "relu":
            return y > 0
        case "tanh":
            return 1 - y * y
        case "sigmoid":
            return y * (1 - y)
        case "silu":
            s = _sigmoid(x)
            return s + y * (1 - s)
    raise ValueError(f"{activation}: not derived by hand")


class DenseNetwork:
    """Dense layers with an activation between, softmax cross-entropy, and an optimizer; parameters change in place."""

    def __init__(self, workload: Workload, model: models.Perceptron, double: bool) -> None:
        dtype = np.float64 if double else np.float32
        self.p = {name: array.astype(dtype) for name, array in workload.parameters.items()}
        self.depth, self.activation = model.depth, model.activation
        self.optimizer = workload.optimizer
        self.first = {name: np.zeros_like(array) for name, array in self.p.items()}
        self.second = {name: np.zeros_like(array) for name, array in self.p.items()}
        self.steps = 0

    def forward(self, x: Array) -> tuple[list[Array], list[Array]]:
        """What each layer reads and then the logits; and what each gives before the activation."""
        values, before = [x], []
        for layer in range(1, self.depth + 1):
            x = x @ self.p[f"fc{layer}.w"]
            x += self.p[f"fc{layer}.b"]
            before.append(x)
            if layer < self.depth:
                x = activate(self.activation, x)
            values.append(x)
        return values, before

    def infer(self, x: Array) -> list[Array]:
        return [self.forward(x)[0][-1]]

    def step(self, x: Array, labels: Array) -> list[Any]:
        values, before = self.forward(x)
        logits, rows = values.pop(), np.arange(len(labels))
        e = logits - logits.max(1, keepdims=True)
        chosen = e[rows, labels]
        np.exp(e, out=e)
        total = e.sum(1, keepdims=True)
        loss = np.mean(np.log(total[:, 0]) - chosen)
        e /= total
        e[rows, labels] -= 1
        e /= len(labels)
        gradients: dict[str, Array] = {}
        for layer in range(self.depth, 0, -1):
            x = values.pop()
            gradients[f"fc{layer}.w"] = x.T @ e
            gradients[f"fc{layer}.b"] = e.sum(0)
            if layer > 1:
                e = (e @ self.p[f"fc{layer}.w"].T) * slope(self.activation, before[layer - 2], x)
        self.update(gradients)
        return [loss]

    def update(self, gradients: dict[str, Array]) -> None:
        self.steps += 1
        for name, g in gradients.items():
            p, m, v = self.p[name], self.first[name], self.second[name]
            match self.optimizer:
                case models.Momentum(lr, momentum):
                    m *= momentum
                    m += g
                    np.subtract(p, lr * m, out=p)
                case models.Adam(lr, decay):
                    p *= 1 - lr * decay
                    m *= 0.9
                    m += 0.1 * g
                    g *= g
                    v *= 0.999
                    v += 0.001 * g
                    size = lr / (1 - 0.9**self.steps)
                    np.subtract(p, size * m / (np.sqrt(v / (1 - 0.999**self.steps)) + 1e-8), out=p)


def build(workload: Workload, settings: Settings) -> Program:
    model = workload.model
    call: Call
    if isinstance(model, models.Perceptron):
        network = DenseNetwork(workload, model, settings.double)
        call = network.step if workload.kind == "train" else network.infer
    else:
        call = functools.partial(FUNCTIONS[type(model)], model)
    return Program(lambda: call)
