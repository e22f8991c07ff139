"""Networks that several tests build: small ones, and ResNet-20 for CIFAR (He et al., 2016, section 4.2)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

import staticgrad as sg
from staticgrad.graph.graph import Graph, Tensor


@dataclass
class Training:
    """A network with loss, gradients and update, and feeds that fit."""

    graph: Graph
    loss: Tensor
    train: Any
    feeds: dict[Tensor, np.ndarray[Any, np.dtype[Any]]]


class Residual(sg.nn.Module):
    """Two 3×3 convolutions with batch norm; where the size halves, the shortcut is strided and zero padded."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.first = sg.nn.Conv2d(channels, filters, 3, stride=stride, padding=1, bias=False)
        self.first_norm = sg.nn.BatchNorm2d(filters)
        self.second = sg.nn.Conv2d(filters, filters, 3, padding=1, bias=False)
        self.second_norm = sg.nn.BatchNorm2d(filters)
        self.stride, self.added = stride, filters - channels

    def forward(self, x: Tensor) -> Tensor:
        y = sg.nn.relu(self.first_norm(self.first(x)))
        y = self.second_norm(self.second(y))
        if self.stride > 1:
            half = self.added // 2
            x = sg.pad(x[:, :, :: self.stride, :: self.stride], [(0, 0), (half, half), (0, 0), (0, 0)])
        return sg.nn.relu(y + x)


class GlobalMean(sg.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return sg.mean(x, (2, 3))


def resnet20() -> Any:
    widths = [(16, 16, 1)] * 3 + [(16, 32, 2)] + [(32, 32, 1)] * 2 + [(32, 64, 2)] + [(64, 64, 1)] * 2
    blocks = [Residual(*width) for width in widths]
    stem = [sg.nn.Conv2d(3, 16, 3, padding=1, bias=False), sg.nn.BatchNorm2d(16), sg.nn.ReLU()]
    return sg.nn.Sequential(*stem, *blocks, GlobalMean(), sg.nn.Linear(64, 10))


def mlp(*sizes: int) -> Any:
    layers: list[Any] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [sg.nn.Linear(inputs, outputs), sg.nn.ReLU()]
    return sg.nn.Sequential(*layers[:-1])


def training(net: Any, shape: tuple[int, ...], optimizer: Any, classes: int = 10) -> Training:
    """Cross-entropy on random data, declared in the current graph; ``net`` and ``optimizer`` make theirs there."""
    rng = np.random.default_rng(0)
    x, labels = sg.placeholder(shape), sg.placeholder(shape[:1], sg.int64)
    loss = sg.nn.cross_entropy(net()(x), labels)
    train = optimizer().minimize(loss)
    feeds = {x: rng.normal(size=shape).astype(np.float32), labels: rng.integers(0, classes, shape[0])}
    return Training(loss.graph, loss, train, feeds)


def lenet() -> sg.nn.Module:
    """LeNet-5 for images of 28×28 (LeCun et al., 1998), with rectifiers and maximum pools."""
    nn = sg.nn
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 10),
    )  # fmt: skip


def deep(width: int, depth: int) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Square layers with a tanh behind each: what is fed, the last layer's value, the values of all layers."""
    x = sg.placeholder((width, width), requires_grad=True)
    y, between = x, []
    for number in range(depth):
        w = sg.Variable(np.random.default_rng(number).normal(size=(width, width)).astype(np.float32) / 8)
        y = sg.tanh(y @ w)
        between.append(y)
    return x, y, between
