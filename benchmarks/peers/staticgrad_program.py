"""staticgrad: the graph is declared while it is built, compiled once, called often."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import models
from models import Activation
from workloads import Array, Workload

import staticgrad as sg
from peers import Call, Program, Settings
from staticgrad import Tensor

Parameters = dict[str, Tensor]
ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": sg.nn.relu, "tanh": sg.nn.tanh, "sigmoid": sg.nn.sigmoid, "silu": sg.nn.silu, "gelu": sg.nn.gelu,
}  # fmt: skip


# -- functions --------------------------------------------------------------------------------------------------------


def squares(_: models.Squares, x: Tensor) -> list[Tensor]:
    z = 4 * (x * x)
    mean, total = sg.mean(z), sg.sum(z)
    return [mean, total, *sg.gradients(mean, [x]), *sg.gradients(total, [x])]


def logistic(model: models.Logistic, x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> list[Tensor]:
    z = x @ w + b
    loss = sg.mean(sg.nn.softplus(z) - y * z) + 0.5 * model.l2 * (w @ w)
    return [loss, *sg.gradients(loss, [w, b])]


def black_scholes(_: models.BlackScholes, s: Tensor, k: Tensor, t: Tensor, rate: Tensor, sigma: Tensor) -> list[Tensor]:
    def cdf(x: Tensor) -> Tensor:
        return 0.5 * (1 + sg.erf(x / math.sqrt(2)))

    deviation = sigma * sg.sqrt(t)
    d1 = (sg.log(s / k) + (rate + 0.5 * sigma * sigma) * t) / deviation
    price = s * cdf(d1) - k * sg.exp(-rate * t) * cdf(d1 - deviation)
    return [price, *sg.gradients(price, [s, k, t, rate, sigma])]


def chain(_: models.Chain, x: Tensor) -> list[Tensor]:
    y = sg.minimum(sg.maximum(x * 1.5 + 0.25, -1.0), 2.0)
    return [-(sg.abs(y * y + x) * 0.5 - x)]


FUNCTIONS: dict[type, Callable[..., list[Tensor]]] = {
    models.Squares: squares,
    models.Logistic: logistic,
    models.BlackScholes: black_scholes,
    models.Product: lambda _, a, b: [a @ b],
    models.Softmax: lambda _, x: [sg.nn.softmax(x, 1)],
    models.LayerNorm: lambda _, x, w, b: [sg.nn.layer_norm(x, w.shape, w, b)],
    models.Chain: chain,
    models.Copy: lambda _, x: [sg.identity(x)],
}


# -- networks: parameters and a batch come in, logits (rows, classes) go out ------------------------------------------


def dense(p: Parameters, x: Tensor, depth: int, activation: Activation = "relu") -> Tensor:
    for layer in range(1, depth):
        x = ACTIVATIONS[activation](x @ p[f"fc{layer}.w"] + p[f"fc{layer}.b"])
    return x @ p[f"fc{depth}.w"] + p[f"fc{depth}.b"]


def convnet(model: models.ConvNet, p: Parameters, x: Tensor) -> Tensor:
    for number, padding in enumerate(model.paddings, 1):
        x = sg.nn.conv2d(x, p[f"c{number}.w"], p[f"c{number}.b"], padding=padding)
        x = sg.nn.max_pool2d(ACTIVATIONS[model.activation](x), 2)
    return dense(p, x.reshape((x.shape[0], -1)), model.depth, model.activation)


def resnet(model: models.ResNet, p: Parameters, x: Tensor) -> Tensor:
    def normalized(name: str, x: Tensor, stride: int = 1) -> Tensor:
        y = sg.nn.conv2d(x, p[f"{name}.w"], stride=stride, padding=1)
        mean, var = p[f"{name}.mean"], p[f"{name}.var"]
        return sg.nn.batch_norm(y, mean, var, p[f"{name}.gamma"], p[f"{name}.beta"], training=True)

    x = sg.nn.relu(normalized("stem", x))
    for number, (inputs, outputs, stride) in enumerate(model.blocks):
        y = sg.nn.relu(normalized(f"b{number}.1", x, stride))
        y = normalized(f"b{number}.2", y)
        if stride > 1:
            x = sg.nn.pad(x[:, :, ::stride, ::stride], (0, 0, 0, 0, 0, outputs - inputs))
        x = sg.nn.relu(x + y)
    return dense(p, sg.mean(x, axis=(2, 3)), 1)


def transformer(model: models.Transformer, p: Parameters, x: Tensor) -> Tensor:
    def layer(name: str, x: Tensor) -> Tensor:
        return x @ p[f"{name}.w"] + p[f"{name}.b"]

    def norm(name: str, x: Tensor) -> Tensor:
        return sg.nn.layer_norm(x, (width,), p[f"{name}.w"], p[f"{name}.b"])

    n, s, width = x.shape
    heads = layer("qkv", norm("norm1", x)).reshape((n, s, 3, model.heads, width // model.heads))
    q, k, v = (sg.permute_dims(heads[:, :, part], (0, 2, 1, 3)) for part in range(3))
    y = sg.nn.scaled_dot_product_attention(q, k, v, is_causal=model.causal)
    x = x + layer("out", sg.permute_dims(y, (0, 2, 1, 3)).reshape((n, s, width)))
    x = x + layer("down", sg.nn.gelu(layer("up", norm("norm2", x))))
    logits = layer("head", x)
    return logits.reshape((n * s, logits.shape[2]))


def lstm(_: models.Recurrent, p: Parameters, x: Tensor) -> Tensor:
    """As ``sg.nn.LSTM`` composes it, with one bias."""
    batch, steps, inputs = x.shape
    hidden = p["wh"].shape[0]
    rows = sg.swapaxes(x, 0, 1).reshape((steps * batch, inputs)) @ p["wx"] + p["b"]

    def step(state: tuple[Tensor, Tensor], row: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        h, c = state
        i, f, g, o = sg.split(row + h @ p["wh"], 4, axis=-1)
        c = sg.nn.sigmoid(f) * c + sg.nn.sigmoid(i) * sg.tanh(g)
        h = sg.nn.sigmoid(o) * sg.tanh(c)
        return (h, c), h

    zeros = sg.zeros((batch, hidden), dtype=x.dtype)
    _, outputs = sg.scan(step, (zeros, zeros), rows.reshape((steps, batch, 4 * hidden)))
    return dense(p, sg.swapaxes(outputs, 0, 1).reshape((batch * steps, hidden)), 1)


NETWORKS: dict[type, Callable[[Any, Parameters, Tensor], Tensor]] = {
    models.Perceptron: lambda model, p, x: dense(p, x, model.depth, model.activation),
    models.ConvNet: convnet,
    models.ResNet: resnet,
    models.Transformer: transformer,
    models.Recurrent: lstm,
}


def _update(workload: Workload, loss: Tensor) -> Any:
    match workload.optimizer:
        case models.Momentum(lr, momentum):
            return sg.optim.SGD(lr=lr, momentum=momentum).minimize(loss)
        case models.Adam(lr, decay):
            return sg.optim.AdamW(lr=lr, weight_decay=decay).minimize(loss)
    raise ValueError(f"{workload.name} has no optimizer")


def _fetches(workload: Workload, inputs: list[Tensor], cast: Callable[[Array], Array]) -> list[Any]:
    model = workload.model
    if workload.kind == "function":
        return list(FUNCTIONS[type(model)](model, *inputs))
    p = {name: sg.Variable(cast(array), name=name) for name, array in workload.parameters.items()}
    p |= {name: sg.Variable(cast(array), name=name, trainable=False) for name, array in workload.buffers.items()}
    logits = NETWORKS[type(model)](model, p, inputs[0])
    if workload.kind == "infer":
        return [logits]
    loss = sg.nn.cross_entropy(logits, inputs[1].reshape(-1))
    return [loss, _update(workload, loss)]


def build(workload: Workload, settings: Settings) -> Program:
    def cast(array: Array) -> Array:
        return array.astype("float64") if settings.double and array.dtype == "float32" else array

    graph = sg.Graph()
    with graph:
        inputs = [sg.placeholder(array.shape, cast(array).dtype) for array in workload.feeds[0]]
        fetches = _fetches(workload, inputs, cast)
    session = sg.Session(graph, num_threads=settings.threads)
    made: list[Any] = []

    def compile() -> Call:
        made.append(session.compile(fetches, inputs))
        call: Call = made[0]
        return call

    return Program(compile, lambda: int(made[0].memory.arena_bytes))
