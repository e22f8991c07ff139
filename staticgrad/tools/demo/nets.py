"""The nets of the demonstration, and how each is trained."""

from __future__ import annotations

from collections.abc import Callable

from staticgrad import nn
from staticgrad.base.frozen import frozen
from staticgrad.base.types import DTypeLike


@frozen
class Recipe:
    """A net and its training: images a step, epochs, and Adam's learning rate ``lr * decay**epoch``.

    The rate depends on the number of the epoch alone, so that more epochs can follow as if they had been planned.
    """

    make: Callable[[DTypeLike], nn.Module]
    batch: int
    epochs: int
    lr: float
    decay: float

    def rate(self, epoch: int) -> float:
        return self.lr * self.decay**epoch


def convolutional(dtype: DTypeLike) -> nn.Module:
    """Two convolutions and two linear layers: images (n, 1, 8, 8) to scores (n, 10). 38,282 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, dtype=dtype),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, dtype=dtype),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(512, 64, dtype=dtype),
        nn.ReLU(),
        nn.Dropout(0.25),
        nn.Linear(64, 10, dtype=dtype),
    )


def perceptron(dtype: DTypeLike) -> nn.Module:
    """Three linear layers: images (n, 1, 8, 8) to scores (n, 10). 85,002 parameters."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 256, dtype=dtype),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(256, 256, dtype=dtype),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(256, 10, dtype=dtype),
    )


RECIPES = {
    "conv": Recipe(convolutional, batch=32, epochs=60, lr=2e-3, decay=0.95),
    "mlp": Recipe(perceptron, batch=64, epochs=60, lr=2e-3, decay=0.95),
}
