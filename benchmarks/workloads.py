"""The workloads: what one call does, its data, and how close an answer must come.

Comes in: a name and a seed. Goes out: a ``Workload``, plain NumPy: parameters that a peer keeps for itself, batches
that are fed in turn, the optimizer, sizes. Nothing here computes an answer: references are a peer in float64 (NumPy
where it has the workload, PyTorch for the convolutional networks), chosen in ``run.py``.

Dense weights are (in, out), convolution weights OIHW, images NCHW; a peer may turn them once, while it is built.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Feed = tuple[Array, ...]

BATCHES = 8  # training cycles over this many batches, so that it neither over-fits nor meets denormals
CHECKED_STEPS = 6  # of a training workload these losses are compared


@dataclass(frozen=True, slots=True)
class Momentum:
    """Stochastic gradient descent with momentum, the velocity v ← µ·v + g, the step −lr·v."""

    lr: float
    momentum: float


@dataclass(frozen=True, slots=True)
class Adam:
    """Adam (Kingma and Ba 2015) with its published defaults: β = (0.9, 0.999), ε = 1e-8; weights decay by lr·decay in
    each step (Loshchilov and Hutter 2019)."""

    lr: float
    decay: float = 0.0


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload.

    ``feeds``: each a tuple of arrays in the order of the call. ``tolerance``: largest |answer − reference| relative to
    the largest |reference| of that output. ``flops`` and ``traffic`` (bytes that must pass memory once) are those of
    the formula, not of any implementation; 0 where nobody would ask.
    """

    name: str
    kind: Literal["function", "train", "infer"]
    feeds: tuple[Feed, ...]
    tolerance: float
    dtype: str = "float32"
    parameters: dict[str, Array] = field(default_factory=dict)
    buffers: dict[str, Array] = field(default_factory=dict)  # running statistics of batch norms
    optimizer: Momentum | Adam | None = None
    flops: int = 0
    traffic: int = 0


Random = np.random.Generator
Builder = Callable[[Random], Workload]
L2 = 1e-2  # of logreg_f64


# -- parts ----------------------------------------------------------------------------------------------------------


def _normal(r: Random, shape: tuple[int, ...], scale: float) -> Array:
    return r.normal(0, scale, shape).astype(np.float32)


def _dense(r: Random, sizes: tuple[int, ...], gain: float = 2.0) -> dict[str, Array]:
    """Weights and biases of dense layers ``fc1``, ``fc2``, … (He's scale for a gain of two)."""
    parameters: dict[str, Array] = {}
    for number, (inputs, outputs) in enumerate(pairwise(sizes), 1):
        parameters[f"fc{number}.w"] = _normal(r, (inputs, outputs), math.sqrt(gain / inputs))
        parameters[f"fc{number}.b"] = _normal(r, (outputs,), 0.01)
    return parameters


def _convolution(r: Random, inputs: int, outputs: int, kernel: int) -> Array:
    return _normal(r, (outputs, inputs, kernel, kernel), math.sqrt(2 / (inputs * kernel * kernel)))


def _labelled(r: Random, shape: tuple[int, ...], classes: int) -> tuple[Feed, ...]:
    return tuple((_normal(r, shape, 1.0), r.integers(0, classes, shape[0])) for _ in range(BATCHES))


def _dense_flops(sizes: tuple[int, ...], batch: int) -> int:
    """Of a training step: forward, weights' gradients, and inputs' gradients but for the first layer."""
    layers = [2 * batch * a * b for a, b in pairwise(sizes)]
    return 3 * sum(layers) - layers[0]


# -- workloads --------------------------------------------------------------------------------------------------------


def seed_scalar(r: Random) -> Workload:
    """z = 4·x² of four numbers; mean and sum of z, and both gradients: the cost of a call."""
    return Workload("seed_scalar", "function", ((_normal(r, (1, 4), 1.0),),), 1e-5)


def logreg_f64(r: Random) -> Workload:
    """Logistic regression on 569×30 with an L2 term: the loss and its gradients by weights and bias."""
    rows, columns = 569, 30
    x = r.normal(size=(rows, columns))
    y = (x @ r.normal(size=columns) + r.normal(size=rows) > 0).astype(np.float64)
    feed = (x, y, 0.1 * r.normal(size=columns), np.array(0.05))
    return Workload("logreg_f64", "function", (feed,), 1e-10, "float64", flops=4 * rows * columns)


def _mlp_train(name: str, sizes: tuple[int, ...], batch: int, optimizer: Momentum | Adam) -> Builder:
    def build(r: Random) -> Workload:
        feeds = _labelled(r, (batch, sizes[0]), sizes[-1])
        flops = _dense_flops(sizes, batch)
        return Workload(name, "train", feeds, 1e-4, parameters=_dense(r, sizes), optimizer=optimizer, flops=flops)

    return build


def lenet(r: Random) -> Workload:
    """LeNet-5 with relu and max pooling, batch 64 of 1×28×28; a training step with momentum."""
    parameters = {"c1.w": _convolution(r, 1, 6, 5), "c1.b": _normal(r, (6,), 0.01)}
    parameters |= {"c2.w": _convolution(r, 6, 16, 5), "c2.b": _normal(r, (16,), 0.01)}
    sizes = (400, 120, 84, 10)
    parameters |= _dense(r, sizes)
    first, second = 2 * 64 * 784 * 6 * 25, 2 * 64 * 100 * 16 * 6 * 25
    flops = 2 * first + 3 * second + _dense_flops(sizes, 64) + 2 * 64 * sizes[0] * sizes[1]
    feeds = _labelled(r, (64, 1, 28, 28), 10)
    return Workload("lenet", "train", feeds, 1e-4, parameters=parameters, optimizer=Momentum(0.01, 0.9), flops=flops)


# Inputs, outputs and stride of each block of two convolutions.
RESNET20 = ((16, 16, 1),) * 3 + ((16, 32, 2),) + ((32, 32, 1),) * 2 + ((32, 64, 2),) + ((64, 64, 1),) * 2


def resnet20(r: Random) -> Workload:
    """ResNet-20 for CIFAR (He et al. 2016, shortcut A), batch norms in training mode, batch 32; a training step."""
    parameters: dict[str, Array] = {}
    buffers: dict[str, Array] = {}

    def normalized(name: str, inputs: int, outputs: int) -> None:
        parameters[f"{name}.w"] = _convolution(r, inputs, outputs, 3)
        parameters[f"{name}.gamma"] = r.uniform(0.8, 1.2, outputs).astype(np.float32)
        parameters[f"{name}.beta"] = _normal(r, (outputs,), 0.1)
        buffers[f"{name}.mean"] = np.zeros(outputs, np.float32)
        buffers[f"{name}.var"] = np.ones(outputs, np.float32)

    normalized("stem", 3, 16)
    flops, side = 2 * 2 * 32 * 1024 * 16 * 27, 32
    for number, (inputs, outputs, stride) in enumerate(RESNET20):
        normalized(f"b{number}.1", inputs, outputs)
        normalized(f"b{number}.2", outputs, outputs)
        side //= stride
        flops += 3 * 2 * 32 * side * side * 9 * outputs * (inputs + outputs)
    parameters |= _dense(r, (64, 10), gain=1.0)
    feeds = _labelled(r, (32, 3, 32, 32), 10)
    optimizer = Momentum(0.01, 0.9)
    return Workload(
        "resnet20", "train", feeds, 2e-3, parameters=parameters, buffers=buffers, optimizer=optimizer, flops=flops
    )


HEADS, WIDTH, CLASSES = 8, 256, 1000  # of transformer_block


def transformer_block(r: Random) -> Workload:
    """A causal pre-norm block (8 heads, width 256, GELU MLP of 4×) and a head of 1,000 classes; batch 8, 128 tokens."""
    parameters: dict[str, Array] = {}
    for name in ("norm1", "norm2"):
        parameters |= {
            f"{name}.w": r.uniform(0.9, 1.1, WIDTH).astype(np.float32),
            f"{name}.b": _normal(r, (WIDTH,), 0.02),
        }
    layers = {"qkv": (1, 3), "out": (1, 1), "up": (1, 4), "down": (4, 1)}
    sizes = {name: (a * WIDTH, b * WIDTH) for name, (a, b) in layers.items()} | {"head": (WIDTH, CLASSES)}
    for name, (inputs, outputs) in sizes.items():
        parameters[f"{name}.w"] = _normal(r, (inputs, outputs), 1 / math.sqrt(inputs))
        parameters[f"{name}.b"] = _normal(r, (outputs,), 0.01)
    feeds = tuple((_normal(r, (8, 128, WIDTH), 1.0), r.integers(0, CLASSES, (8, 128))) for _ in range(BATCHES))
    tokens = 8 * 128
    dense = sum(3 * 2 * tokens * a * b for a, b in sizes.values())
    flops = dense + 3 * 2 * 2 * tokens * 128 * WIDTH // 2  # causal: half of the scores
    optimizer = Adam(1e-3, 0.01)
    return Workload("transformer_block", "train", feeds, 1e-4, parameters=parameters, optimizer=optimizer, flops=flops)


def black_scholes_f64(r: Random) -> Workload:
    """The price of a million European calls (Black and Scholes 1973) and its derivatives by the five inputs."""
    n = 1_000_000
    ranges = ((50, 150), (50, 150), (0.1, 2.0), (0.0, 0.08), (0.1, 0.5))  # spot, strike, years, rate, volatility
    feed = tuple(r.uniform(low, high, n) for low, high in ranges)
    return Workload("black_scholes_f64", "function", (feed,), 1e-10, "float64", traffic=8 * n * 11)


def _gemm(n: int) -> Builder:
    def build(r: Random) -> Workload:
        feed = (_normal(r, (n, n), 1.0), _normal(r, (n, n), 1.0))
        return Workload(f"gemm_{n}", "function", (feed,), 1e-4, flops=2 * n**3)

    return build


def softmax_512(r: Random) -> Workload:
    """Softmax along the rows of 512×512."""
    return Workload("softmax_512", "function", ((_normal(r, (512, 512), 1.0),),), 1e-5, traffic=2 * 4 * 512 * 512)


def layer_norm_512(r: Random) -> Workload:
    """Layer norm along the rows of 512×512, with weight and bias."""
    feed = (_normal(r, (512, 512), 1.0), r.uniform(0.5, 1.5, 512).astype(np.float32), _normal(r, (512,), 0.1))
    return Workload("layer_norm_512", "function", (feed,), 1e-5, traffic=2 * 4 * 512 * 512)


def pointwise_chain(r: Random) -> Workload:
    """Ten elementwise operations on four million numbers: cheap ones, so that passing memory is all that costs."""
    n = 4_000_000
    return Workload("pointwise_chain", "function", ((_normal(r, (n,), 1.0),),), 1e-5, traffic=2 * 4 * n)


def copy(r: Random) -> Workload:
    """A copy of four million numbers: what ``pointwise_chain`` would cost if it computed nothing."""
    n = 4_000_000
    return Workload("copy", "function", ((_normal(r, (n,), 1.0),),), 0.0, traffic=2 * 4 * n)


MNIST = (784, 512, 256, 10)


def mlp_infer_b1(r: Random) -> Workload:
    """The network of ``mlp_mnist``, inference of one image."""
    pairs = list(pairwise(MNIST))
    return Workload(
        "mlp_infer_b1", "infer", ((_normal(r, (1, 784), 1.0),),), 1e-4, parameters=_dense(r, MNIST),
        flops=2 * sum(a * b for a, b in pairs), traffic=4 * sum(a * b for a, b in pairs),
    )  # fmt: skip


BUILDERS: dict[str, Builder] = {
    "seed_scalar": seed_scalar,
    "logreg_f64": logreg_f64,
    "mlp_small": _mlp_train("mlp_small", (64, 32, 32, 10), 32, Momentum(0.01, 0.9)),
    "mlp_mnist": _mlp_train("mlp_mnist", MNIST, 128, Adam(1e-3)),
    "lenet": lenet,
    "resnet20": resnet20,
    "transformer_block": transformer_block,
    "black_scholes_f64": black_scholes_f64,
    **{f"gemm_{n}": _gemm(n) for n in (64, 256, 512, 1024)},
    "softmax_512": softmax_512,
    "layer_norm_512": layer_norm_512,
    "pointwise_chain": pointwise_chain,
    "copy": copy,
    "mlp_infer_b1": mlp_infer_b1,
}


WITHOUT_NUMPY = frozenset({"lenet", "resnet20", "transformer_block"})  # nobody would write their gradients by hand


def load(name: str, seed: int = 0) -> Workload:
    """The workload of that name; the same seed gives the same data whichever others are asked for."""
    return BUILDERS[name](np.random.default_rng((seed, zlib.crc32(name.encode()))))
