"""What one call computes, its data, and how close an answer must come.

A ``Workload`` is plain NumPy and knows no peer: a model (see ``models.py``), parameters that a peer keeps for itself,
batches that are fed in turn, the optimizer. Nothing here computes an answer: references are a peer in float64, chosen
in ``answers.py``. The workloads with names, and how others of the same kinds are drawn, are in ``catalog.py``.

Dense weights are (in, out), convolution weights OIHW, images NCHW; a peer may turn them once, while it is built.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from models import (
    Activation,
    Adam,
    BlackScholes,
    Chain,
    ConvNet,
    Copy,
    LayerNorm,
    Logistic,
    Model,
    Momentum,
    Optimizer,
    Perceptron,
    Product,
    Recurrent,
    ResNet,
    Softmax,
    Squares,
    Transformer,
)  # fmt: skip
from numpy.typing import NDArray

Array = NDArray[Any]
Feed = tuple[Array, ...]
Random = np.random.Generator
Parameters = dict[str, Array]

BATCHES = 8  # training cycles over this many batches, so that it neither over-fits nor meets denormals
CHECKED_STEPS = 6  # of a training workload these losses are compared


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload.

    ``feeds``: each a tuple of arrays in the order of the call. ``tolerance``: largest |answer − reference| relative to
    the largest |reference| of that output. ``flops``: of the formula, of products of matrices only. ``results``: bytes
    of the arrays that come out. ``about``: its sizes, for people.
    """

    name: str
    model: Model
    kind: Literal["function", "train", "infer"]
    feeds: tuple[Feed, ...]
    tolerance: float
    about: str = ""
    dtype: str = "float32"
    parameters: Parameters = field(default_factory=dict)
    buffers: Parameters = field(default_factory=dict)  # running statistics of batch norms
    optimizer: Optimizer | None = None
    flops: int = 0
    results: int = 4

    @property
    def traffic(self) -> int:
        """Bytes that any implementation passes once: what is fed, what comes out, parameters, and in training the
        reads and writes of parameters and of the optimizer's state."""
        passes = 1
        match self.optimizer:
            case Momentum(_, momentum):
                passes = 4 if momentum else 2
            case Adam():
                passes = 6
        kept = sum(array.nbytes for array in self.parameters.values())
        return sum(array.nbytes for array in self.feeds[0]) + self.results + passes * kept


# -- parts ------------------------------------------------------------------------------------------------------------


def _normal(r: Random, shape: tuple[int, ...], scale: float = 1.0, dtype: str = "float32") -> Array:
    return r.normal(0, scale, shape).astype(dtype)


def _dense(r: Random, sizes: tuple[int, ...], gain: float = 2.0) -> Parameters:
    """Weights and biases of dense layers ``fc1``, ``fc2``, … (He's scale for a gain of two)."""
    parameters: Parameters = {}
    for number, (inputs, outputs) in enumerate(pairwise(sizes), 1):
        parameters[f"fc{number}.w"] = _normal(r, (inputs, outputs), math.sqrt(gain / inputs))
        parameters[f"fc{number}.b"] = _normal(r, (outputs,), 0.01)
    return parameters


def _convolution(r: Random, inputs: int, outputs: int, kernel: int) -> Array:
    return _normal(r, (outputs, inputs, kernel, kernel), math.sqrt(2 / (inputs * kernel * kernel)))


def _labelled(r: Random, shape: tuple[int, ...], labels: tuple[int, ...], classes: int) -> tuple[Feed, ...]:
    return tuple((_normal(r, shape), r.integers(0, classes, labels)) for _ in range(BATCHES))


def _dense_flops(sizes: tuple[int, ...], batch: int, first: int = 2) -> int:
    """Of a training step: forward, weights' gradients, and inputs' gradients; ``first`` of the three at the first."""
    layers = [2 * batch * a * b for a, b in pairwise(sizes)]
    return 3 * sum(layers) - (3 - first) * layers[0]


def describe(optimizer: Optimizer) -> str:
    match optimizer:
        case Momentum(_, momentum):
            return f"SGD momentum {momentum}" if momentum else "SGD"
        case Adam(_, decay):
            return "AdamW" if decay else "Adam"


# -- functions --------------------------------------------------------------------------------------------------------


def squares(r: Random, name: str, size: int) -> Workload:
    return Workload(
        name, Squares(), "function", ((_normal(r, (1, size)),),), 1e-5, f"{size} numbers", results=8 + 8 * size
    )


def logistic(r: Random, name: str, rows: int, columns: int, dtype: str) -> Workload:
    x = r.normal(size=(rows, columns)).astype(dtype)
    y = (x @ r.normal(size=columns) + r.normal(size=rows) > 0).astype(dtype)
    feed = (x, y, _normal(r, (columns,), 0.1, dtype), np.array(0.05, dtype))
    size = np.dtype(dtype).itemsize
    return Workload(
        name, Logistic(1e-2), "function", (feed,), 1e-10 if size == 8 else 1e-4, f"{rows}×{columns} {dtype}", dtype,
        flops=4 * rows * columns, results=size * (columns + 2),
    )  # fmt: skip


def black_scholes(r: Random, name: str, n: int, dtype: str) -> Workload:
    ranges = ((50, 150), (50, 150), (0.1, 2.0), (0.0, 0.08), (0.1, 0.5))  # spot, strike, years, rate, volatility
    feed = tuple(r.uniform(low, high, n).astype(dtype) for low, high in ranges)
    size = np.dtype(dtype).itemsize
    about = f"{n:,} options, {dtype}"
    tolerance = 1e-10 if size == 8 else 1e-4
    return Workload(name, BlackScholes(), "function", (feed,), tolerance, about, dtype, results=6 * size * n)


def product(r: Random, name: str, m: int, k: int, n: int, dtype: str = "float32") -> Workload:
    feed = (_normal(r, (m, k), 1.0, dtype), _normal(r, (k, n), 1.0, dtype))
    size = np.dtype(dtype).itemsize
    about = f"{m}×{k} · {k}×{n} {dtype}"
    tolerance = 1e-10 if size == 8 else 1e-4
    return Workload(
        name, Product(), "function", (feed,), tolerance, about, dtype, flops=2 * m * k * n, results=size * m * n
    )


def softmax(r: Random, name: str, rows: int, columns: int) -> Workload:
    feed = (_normal(r, (rows, columns)),)
    return Workload(name, Softmax(), "function", (feed,), 1e-5, f"{rows}×{columns}", results=4 * rows * columns)


def layer_norm(r: Random, name: str, rows: int, columns: int) -> Workload:
    weight, bias = r.uniform(0.5, 1.5, columns).astype(np.float32), _normal(r, (columns,), 0.1)
    feed = (_normal(r, (rows, columns)), weight, bias)
    return Workload(name, LayerNorm(), "function", (feed,), 1e-5, f"{rows}×{columns}", results=4 * rows * columns)


def chain(r: Random, name: str, n: int) -> Workload:
    return Workload(name, Chain(), "function", ((_normal(r, (n,)),),), 1e-5, f"{n:,} numbers", results=4 * n)


def copy(r: Random, name: str, n: int) -> Workload:
    return Workload(name, Copy(), "function", ((_normal(r, (n,)),),), 0.0, f"{n:,} numbers", results=4 * n)


# -- networks ---------------------------------------------------------------------------------------------------------


def _layers(sizes: tuple[int, ...], activation: Activation) -> str:
    return f"{'-'.join(map(str, sizes))} {activation}"


def perceptron(
    r: Random, name: str, sizes: tuple[int, ...], batch: int, optimizer: Optimizer, activation: Activation = "relu"
) -> Workload:
    return Workload(
        name, Perceptron(len(sizes) - 1, activation), "train", _labelled(r, (batch, sizes[0]), (batch,), sizes[-1]),
        1e-4, f"{_layers(sizes, activation)}, batch {batch}, {describe(optimizer)}", parameters=_dense(r, sizes),
        optimizer=optimizer, flops=_dense_flops(sizes, batch),
    )  # fmt: skip


def inference(
    r: Random, name: str, sizes: tuple[int, ...], batch: int, activation: Activation = "relu"
) -> Workload:  # fmt: skip
    flops = 2 * batch * sum(a * b for a, b in pairwise(sizes))
    about = f"{_layers(sizes, activation)}, batch {batch}"
    return Workload(
        name, Perceptron(len(sizes) - 1, activation), "infer", ((_normal(r, (batch, sizes[0])),),), 1e-4, about,
        parameters=_dense(r, sizes), flops=flops, results=4 * batch * sizes[-1],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Convolution:
    """A square kernel of a ``ConvNet`` and its outputs."""

    outputs: int
    kernel: int
    padding: int


def convnet(
    r: Random, name: str, image: tuple[int, int, int], convolutions: tuple[Convolution, ...], dense: tuple[int, ...],
    batch: int, optimizer: Optimizer, activation: Activation = "relu",
) -> Workload:  # fmt: skip
    """``image``: channels, height, width; ``dense``: outputs of the dense layers, classes last."""
    channels, height, width = image
    parameters: Parameters = {}
    flops = 0
    for number, c in enumerate(convolutions, 1):
        parameters[f"c{number}.w"] = _convolution(r, channels, c.outputs, c.kernel)
        parameters[f"c{number}.b"] = _normal(r, (c.outputs,), 0.01)
        height, width = height + 2 * c.padding - c.kernel + 1, width + 2 * c.padding - c.kernel + 1
        flops += (2 if number == 1 else 3) * 2 * batch * height * width * channels * c.outputs * c.kernel**2
        channels, height, width = c.outputs, height // 2, width // 2
    sizes = (channels * height * width, *dense)
    parameters |= _dense(r, sizes)
    about = f"{image}, convolutions {[(c.outputs, c.kernel) for c in convolutions]}, dense {dense}, {activation}, "
    return Workload(
        name, ConvNet(tuple(c.padding for c in convolutions), len(dense), activation), "train",
        _labelled(r, (batch, *image), (batch,), dense[-1]), 1e-4, f"{about}batch {batch}, {describe(optimizer)}",
        parameters=parameters, optimizer=optimizer, flops=flops + _dense_flops(sizes, batch, first=3),
    )  # fmt: skip


def resnet(
    r: Random, name: str, widths: tuple[int, ...], depth: int, side: int, batch: int, optimizer: Optimizer
) -> Workload:
    """``depth`` blocks of each width; the first block of each width but the first halves the image."""
    parameters: Parameters = {}
    buffers: Parameters = {}
    firsts = [(inputs, outputs, 2) for inputs, outputs in pairwise(widths)]
    blocks: list[tuple[int, int, int]] = [(widths[0], widths[0], 1)] * depth
    for first in firsts:
        blocks += [first, *[(first[1], first[1], 1)] * (depth - 1)]

    def normalized(part: str, inputs: int, outputs: int) -> None:
        parameters[f"{part}.w"] = _convolution(r, inputs, outputs, 3)
        parameters[f"{part}.gamma"] = r.uniform(0.8, 1.2, outputs).astype(np.float32)
        parameters[f"{part}.beta"] = _normal(r, (outputs,), 0.1)
        buffers[f"{part}.mean"] = np.zeros(outputs, np.float32)
        buffers[f"{part}.var"] = np.ones(outputs, np.float32)

    classes, now = 10, side
    normalized("stem", 3, widths[0])
    flops = 2 * 2 * batch * side * side * widths[0] * 27
    for number, (inputs, outputs, stride) in enumerate(blocks):
        normalized(f"b{number}.1", inputs, outputs)
        normalized(f"b{number}.2", outputs, outputs)
        now //= stride
        flops += 3 * 2 * batch * now * now * 9 * outputs * (inputs + outputs)
    sizes = (widths[-1], classes)
    parameters |= _dense(r, sizes, gain=1.0)
    about = f"widths {widths}, {depth} blocks each, batch {batch} of 3×{side}×{side}, {describe(optimizer)}"
    return Workload(
        name, ResNet(tuple(blocks)), "train", _labelled(r, (batch, 3, side, side), (batch,), classes), 2e-3, about,
        parameters=parameters, buffers=buffers, optimizer=optimizer, flops=flops + _dense_flops(sizes, batch, first=3),
    )  # fmt: skip


def transformer(
    r: Random, name: str, batch: int, tokens: int, width: int, heads: int, classes: int, optimizer: Optimizer,
    causal: bool = True,
) -> Workload:  # fmt: skip
    parameters: Parameters = {}
    for norm in ("norm1", "norm2"):
        parameters[f"{norm}.w"] = r.uniform(0.9, 1.1, width).astype(np.float32)
        parameters[f"{norm}.b"] = _normal(r, (width,), 0.02)
    layers = {"qkv": (1, 3), "out": (1, 1), "up": (1, 4), "down": (4, 1)}
    sizes = {layer: (a * width, b * width) for layer, (a, b) in layers.items()} | {"head": (width, classes)}
    for layer, (inputs, outputs) in sizes.items():
        parameters[f"{layer}.w"] = _normal(r, (inputs, outputs), 1 / math.sqrt(inputs))
        parameters[f"{layer}.b"] = _normal(r, (outputs,), 0.01)
    rows = batch * tokens
    dense = sum(3 * 2 * rows * a * b for a, b in sizes.values())
    attention = 3 * 2 * 2 * rows * tokens * width // (2 if causal else 1)
    about = f"batch {batch}, {tokens} tokens, width {width}, {heads} heads{', causal' if causal else ''}, "
    return Workload(
        name, Transformer(heads, causal), "train", _labelled(r, (batch, tokens, width), (batch, tokens), classes), 1e-4,
        f"{about}{classes} classes, {describe(optimizer)}", parameters=parameters, optimizer=optimizer,
        flops=dense + attention,
    )  # fmt: skip


def lstm(
    r: Random, name: str, batch: int, steps: int, inputs: int, hidden: int, classes: int, optimizer: Optimizer
) -> Workload:
    parameters = {
        "wx": _normal(r, (inputs, 4 * hidden), 1 / math.sqrt(inputs)),
        "wh": _normal(r, (hidden, 4 * hidden), 1 / math.sqrt(hidden)),
        "b": _normal(r, (4 * hidden,), 0.1),
    } | _dense(r, (hidden, classes), gain=1.0)
    products = 2 * inputs * 4 * hidden + 3 * hidden * 4 * hidden + 3 * hidden * classes
    about = f"batch {batch}, {steps} steps, {inputs} inputs, hidden {hidden}, {classes} classes, {describe(optimizer)}"
    return Workload(
        name, Recurrent(), "train", _labelled(r, (batch, steps, inputs), (batch, steps), classes), 1e-4, about,
        parameters=parameters, optimizer=optimizer, flops=2 * batch * steps * products,
    )  # fmt: skip
