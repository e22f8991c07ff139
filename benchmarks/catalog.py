"""The workloads by name, and others of the same kinds drawn from a seed.

Comes in: a name and a seed. Goes out: a ``Workload``. The names are those of ``NAMED`` and ``drawn_0``, ``drawn_1``, …:
workload k of a seed is of kind k modulo the number of kinds, with sizes, depths, activations and optimizers drawn. The
same seed gives the same workload and data whichever others are asked for.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np
import workloads as w
from models import Activation, Adam, Momentum, Optimizer
from workloads import Convolution, Random, Workload

MNIST = (784, 512, 256, 10)

NAMED: dict[str, Callable[[Random, str], Workload]] = {
    "seed_scalar": lambda r, name: w.squares(r, name, 4),
    "logreg_f64": lambda r, name: w.logistic(r, name, 569, 30, "float64"),
    "mlp_small": lambda r, name: w.perceptron(r, name, (64, 32, 32, 10), 32, Momentum(0.01, 0.9)),
    "mlp_mnist": lambda r, name: w.perceptron(r, name, MNIST, 128, Adam(1e-3)),
    "lenet": lambda r, name: w.convnet(
        r, name, (1, 28, 28), (Convolution(6, 5, 2), Convolution(16, 5, 0)), (120, 84, 10), 64, Momentum(0.01, 0.9)
    ),
    "resnet20": lambda r, name: w.resnet(r, name, (16, 32, 64), 3, 32, 32, Momentum(0.01, 0.9)),
    "transformer_block": lambda r, name: w.transformer(r, name, 8, 128, 256, 8, 1000, Adam(1e-3, 0.01)),
    "lstm": lambda r, name: w.lstm(r, name, 32, 64, 64, 256, 64, Momentum(0.5, 0.0)),
    "black_scholes_f64": lambda r, name: w.black_scholes(r, name, 1_000_000, "float64"),
    "gemm_64": lambda r, name: w.product(r, name, 64, 64, 64),
    "gemm_256": lambda r, name: w.product(r, name, 256, 256, 256),
    "gemm_512": lambda r, name: w.product(r, name, 512, 512, 512),
    "gemm_1024": lambda r, name: w.product(r, name, 1024, 1024, 1024),
    "gemm_2048": lambda r, name: w.product(r, name, 2048, 2048, 2048),
    "softmax_512": lambda r, name: w.softmax(r, name, 512, 512),
    "layer_norm_512": lambda r, name: w.layer_norm(r, name, 512, 512),
    "pointwise_chain": lambda r, name: w.chain(r, name, 4_000_000),
    "copy": lambda r, name: w.copy(r, name, 4_000_000),
    "mlp_infer_b1": lambda r, name: w.inference(r, name, MNIST, 1),
}


# -- draws ------------------------------------------------------------------------------------------------------------


def _size(r: Random, low: int, high: int) -> int:
    """A size between the two, uniform in its logarithm; half of them are multiples of sixteen where that fits."""
    size = round(float(np.exp(r.uniform(np.log(low), np.log(high)))))
    return size // 16 * 16 if size >= 32 and r.random() < 0.5 else size


def _activation(r: Random) -> Activation:
    choices: tuple[Activation, ...] = ("relu", "tanh", "sigmoid", "silu", "gelu")
    return choices[r.integers(len(choices))]


def _optimizer(r: Random) -> Optimizer:
    return (Momentum(0.02, 0.0), Momentum(0.01, 0.9), Adam(1e-3), Adam(1e-3, 0.01))[r.integers(4)]


def _dtype(r: Random) -> str:
    return ("float32", "float64")[r.integers(2)]


def _sizes(r: Random, high: int) -> tuple[int, ...]:
    """Of dense layers, classes last."""
    return (*(_size(r, 16, high) for _ in range(r.integers(2, 5))), _size(r, 2, 64))


def _perceptron(r: Random, name: str) -> Workload:
    return w.perceptron(r, name, _sizes(r, 1024), _size(r, 8, 256), _optimizer(r), _activation(r))


def _inference(r: Random, name: str) -> Workload:
    return w.inference(r, name, _sizes(r, 1024), int(r.integers(1, 9)), _activation(r))


def _convnet(r: Random, name: str) -> Workload:
    """Images whose sides stay even before each pool, so that every peer pools the same windows."""
    side = 4 * int(r.integers(5, 11))
    kernels = (Convolution(_size(r, 4, 32), 2 * int(k) + 1, int(k)) for k in r.integers(1, 3, 2))
    dense = (_size(r, 32, 256), _size(r, 2, 100))
    image = (int(r.integers(1, 4)), side, side)
    return w.convnet(r, name, image, tuple(kernels), dense, _size(r, 8, 64), _optimizer(r), _activation(r))


def _resnet(r: Random, name: str) -> Workload:
    width = 8 * int(r.integers(1, 5))
    depth, side, batch = int(r.integers(1, 4)), 8 * int(r.integers(2, 5)), _size(r, 4, 32)
    return w.resnet(r, name, (width, 2 * width, 4 * width), depth, side, batch, Momentum(0.01, 0.9))


def _transformer(r: Random, name: str) -> Workload:
    heads, head = 2 ** int(r.integers(1, 4)), 16 * int(r.integers(1, 4))
    batch, tokens, classes = _size(r, 2, 16), _size(r, 16, 192), _size(r, 10, 1000)
    causal, rule = bool(r.integers(2)), (Adam(1e-3), Adam(1e-3, 0.01))[r.integers(2)]
    return w.transformer(r, name, batch, tokens, heads * head, heads, classes, rule, causal)


def _lstm(r: Random, name: str) -> Workload:
    batch, steps, inputs = _size(r, 4, 64), _size(r, 8, 64), _size(r, 16, 128)
    return w.lstm(r, name, batch, steps, inputs, _size(r, 16, 256), _size(r, 4, 100), Momentum(0.5, 0.0))


DRAWN: tuple[Callable[[Random, str], Workload], ...] = (
    _perceptron,
    lambda r, name: w.product(r, name, _size(r, 8, 1024), _size(r, 8, 1024), _size(r, 8, 1024), _dtype(r)),
    _convnet,
    lambda r, name: w.black_scholes(r, name, _size(r, 1000, 500_000), _dtype(r)),
    _transformer,
    lambda r, name: w.logistic(r, name, _size(r, 32, 10_000), _size(r, 4, 200), _dtype(r)),
    _lstm,
    lambda r, name: w.softmax(r, name, _size(r, 8, 2048), _size(r, 8, 2048)),
    _resnet,
    _inference,
    lambda r, name: w.layer_norm(r, name, _size(r, 8, 2048), _size(r, 8, 2048)),
    lambda r, name: w.chain(r, name, _size(r, 1000, 4_000_000)),
)


def drawn_names(count: int) -> tuple[str, ...]:
    return tuple(f"drawn_{number}" for number in range(count))


def load(name: str, seed: int = 0) -> Workload:
    """The workload of that name; ``KeyError`` for a name that there is not."""
    r = np.random.default_rng((seed, zlib.crc32(name.encode())))
    if name in NAMED:
        return NAMED[name](r, name)
    prefix, _, number = name.rpartition("_")
    if prefix != "drawn" or not number.isdecimal():
        raise KeyError(name)
    return DRAWN[int(number) % len(DRAWN)](r, name)
