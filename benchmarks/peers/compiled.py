"""staticgrad: the graph is declared while it is built, compiled once, called often."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from workloads import BUILDERS, CLASSES, HEADS, L2, RESNET20, WIDTH, Adam, Array, Momentum, Workload

import staticgrad as sg
from peers import Call, Compile
from staticgrad import Tensor

WORKLOADS = frozenset(BUILDERS)
Parameters = dict[str, Tensor]


def seed_scalar(x: Tensor) -> list[Tensor]:
    z = 4 * (x * x)
    mean, total = sg.mean(z), sg.sum(z)
    return [mean, total, *sg.gradients(mean, [x]), *sg.gradients(total, [x])]


def logreg(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> list[Tensor]:
    z = x @ w + b
    loss = sg.mean(sg.nn.softplus(z) - y * z) + 0.5 * L2 * (w @ w)
    return [loss, *sg.gradients(loss, [w, b])]


def black_scholes(s: Tensor, k: Tensor, t: Tensor, rate: Tensor, sigma: Tensor) -> list[Tensor]:
    def cdf(x: Tensor) -> Tensor:
        return 0.5 * (1 + sg.erf(x / math.sqrt(2)))

    deviation = sigma * sg.sqrt(t)
    d1 = (sg.log(s / k) + (rate + 0.5 * sigma * sigma) * t) / deviation
    price = s * cdf(d1) - k * sg.exp(-rate * t) * cdf(d1 - deviation)
    return [price, *sg.gradients(price, [s, k, t, rate, sigma])]


def pointwise_chain(x: Tensor) -> list[Tensor]:
    y = sg.minimum(sg.maximum(x * 1.5 + 0.25, -1.0), 2.0)
    return [-(sg.abs(y * y + x) * 0.5 - x)]


FUNCTIONS: dict[str, Callable[..., list[Tensor]]] = {
    "seed_scalar": seed_scalar,
    "logreg_f64": logreg,
    "black_scholes_f64": black_scholes,
    "softmax_512": lambda x: [sg.nn.softmax(x, 1)],
    "layer_norm_512": lambda x, w, b: [sg.nn.layer_norm(x, (512,), w, b)],
    "pointwise_chain": pointwise_chain,
    "copy": lambda x: [sg.identity(x)],
    **dict.fromkeys((name for name in BUILDERS if name.startswith("gemm")), lambda a, b: [a @ b]),
}


def dense(p: Parameters, x: Tensor, depth: int = 3) -> Tensor:
    for layer in range(1, depth):
        x = sg.nn.relu(x @ p[f"fc{layer}.w"] + p[f"fc{layer}.b"])
    return x @ p[f"fc{depth}.w"] + p[f"fc{depth}.b"]


def lenet(p: Parameters, x: Tensor) -> Tensor:
    x = sg.nn.max_pool2d(sg.nn.relu(sg.nn.conv2d(x, p["c1.w"], p["c1.b"], padding=2)), 2)
    x = sg.nn.max_pool2d(sg.nn.relu(sg.nn.conv2d(x, p["c2.w"], p["c2.b"])), 2)
    return dense(p, x.reshape(64, 400))


def resnet20(p: Parameters, x: Tensor) -> Tensor:
    def normalized(name: str, x: Tensor, stride: int = 1) -> Tensor:
        y = sg.nn.conv2d(x, p[f"{name}.w"], stride=stride, padding=1)
        mean, var = p[f"{name}.mean"], p[f"{name}.var"]
        return sg.nn.batch_norm(y, mean, var, p[f"{name}.gamma"], p[f"{name}.beta"], training=True)

    x = sg.nn.relu(normalized("stem", x))
    for number, (inputs, outputs, stride) in enumerate(RESNET20):
        y = sg.nn.relu(normalized(f"b{number}.1", x, stride))
        y = normalized(f"b{number}.2", y)
        if stride > 1:
            x = sg.nn.pad(x[:, :, ::stride, ::stride], (0, 0, 0, 0, 0, outputs - inputs))
        x = sg.nn.relu(x + y)
    return dense(p, sg.mean(x, axis=(2, 3)), 1)


def transformer_block(p: Parameters, x: Tensor) -> Tensor:
    def layer(name: str, x: Tensor) -> Tensor:
        return x @ p[f"{name}.w"] + p[f"{name}.b"]

    def norm(name: str, x: Tensor) -> Tensor:
        return sg.nn.layer_norm(x, (WIDTH,), p[f"{name}.w"], p[f"{name}.b"])

    n, s, _ = x.shape
    heads = layer("qkv", norm("norm1", x)).reshape(n, s, 3, HEADS, WIDTH // HEADS)
    q, k, v = (sg.permute_dims(heads[:, :, part], (0, 2, 1, 3)) for part in range(3))
    y = sg.nn.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + layer("out", sg.permute_dims(y, (0, 2, 1, 3)).reshape(n, s, WIDTH))
    x = x + layer("down", sg.nn.gelu(layer("up", norm("norm2", x))))
    return layer("head", x).reshape(n * s, CLASSES)


MODELS: dict[str, Callable[[Parameters, Tensor], Tensor]] = {
    **dict.fromkeys(("mlp_small", "mlp_mnist", "mlp_infer_b1"), dense),
    "lenet": lenet,
    "resnet20": resnet20,
    "transformer_block": transformer_block,
}


def _update(workload: Workload, loss: Tensor) -> Any:
    match workload.optimizer:
        case Momentum(lr, momentum):
            return sg.optim.SGD(lr=lr, momentum=momentum).minimize(loss)
        case Adam(lr, decay):
            return sg.optim.AdamW(lr=lr, weight_decay=decay).minimize(loss)
    raise ValueError(f"{workload.name} has no optimizer")


def _placeholders(arrays: Sequence[Array]) -> list[Tensor]:
    return [sg.placeholder(array.shape, array.dtype) for array in arrays]


def build(workload: Workload, threads: int, double: bool) -> Compile:
    feeds = workload.feeds[0]
    graph = sg.Graph()
    fetches: list[Any]
    with graph:
        inputs = _placeholders(feeds)
        if workload.kind == "function":
            fetches = FUNCTIONS[workload.name](*inputs)
        else:
            p = {name: sg.Variable(array, name=name) for name, array in workload.parameters.items()}
            p |= {name: sg.Variable(array, name=name, trainable=False) for name, array in workload.buffers.items()}
            logits = MODELS[workload.name](p, inputs[0])
            if workload.kind == "train":
                loss = sg.nn.cross_entropy(logits, inputs[1].reshape(-1))
                fetches = [loss, _update(workload, loss)]
            else:
                fetches = [logits]
    session = sg.Session(graph, num_threads=threads)

    def compile() -> Call:
        call: Call = session.compile(fetches, inputs)
        return call

    return compile
