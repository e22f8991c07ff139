"""A module of PyTorch as it is, trained here, and its weights back in PyTorch.

    python examples/torch_module.py

The net is written for PyTorch: residual blocks with batch norm, in training mode. ``staticgrad.torch.convert`` makes a
module of it, with its parameters and running statistics as variables under PyTorch's names; forward, backward, the
statistics and the optimizer become one program. After training the weights go back with ``load_state_dict``, and
PyTorch gives the same answers.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

import staticgrad as sg
import staticgrad.torch

SIZE, CLASSES, BATCH, STEPS = 16, 4, 32, 60


class Block(torch.nn.Module):  # type: ignore[misc]
    """Two convolutions with batch norm, beside the identity."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False), torch.nn.BatchNorm2d(channels),
            torch.nn.ReLU(),
            torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False), torch.nn.BatchNorm2d(channels),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.body(x))


def net() -> torch.nn.Module:
    """The classifier, as somebody has it."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1), Block(16), torch.nn.MaxPool2d(2), Block(16),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(16, CLASSES),
    )  # fmt: skip


def pictures(rng: np.random.Generator) -> tuple[Any, Any]:
    """Noisy stripes in one of four directions."""
    labels = rng.integers(0, CLASSES, BATCH)
    y, x = np.mgrid[:SIZE, :SIZE]
    angles = labels[:, None, None] * np.pi / CLASSES
    phase = rng.uniform(0, 2 * np.pi, (BATCH, 1, 1))
    waves = np.sin(1.2 * (x * np.cos(angles) + y * np.sin(angles)) + phase)
    return (waves + rng.normal(0, 0.7, waves.shape))[:, None].astype(np.float32), labels


def seconds_of_pytorch(module: torch.nn.Module, batch: tuple[Any, Any]) -> float:
    """The least time of a training step in PyTorch, on as many threads as here."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    x, labels = map(torch.as_tensor, batch)
    torch.set_num_threads(1)
    found = []
    for _ in range(20):
        begun = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(x), labels).backward()
        optimizer.step()
        found.append(time.perf_counter() - begun)
    return min(found)


def main() -> None:
    rng = np.random.default_rng(0)
    module, first = net(), pictures(rng)
    with sg.Graph() as graph:
        converted = staticgrad.torch.convert(module, torch.as_tensor(first[0]))
        x = sg.placeholder(first[0].shape, sg.float32, name="x")
        labels = sg.placeholder((BATCH,), sg.int64, name="labels")
        loss = sg.nn.cross_entropy(converted(x), labels)
        train = sg.optim.SGD(lr=0.05, momentum=0.9).minimize(loss)

    with sg.Session(graph, num_threads=1) as session:
        step = session.compile([loss, train], [x, labels], wait=True)
        losses, times = [], []
        for _ in range(STEPS):
            batch = pictures(rng)
            begun = time.perf_counter()
            losses.append(float(step(*batch)[0]))
            times.append(time.perf_counter() - begun)
        module.load_state_dict(converted.state_dict(session))  # PyTorch's names, its own tensors

    module.eval()
    images, truth = pictures(rng)
    with torch.no_grad():
        right = float((module(torch.as_tensor(images)).argmax(1).numpy() == truth).mean())
    print(
        f"loss {losses[0]:.3f} -> {losses[-1]:.3f} in {STEPS} steps; PyTorch then has {right:.0%} of new pictures right"
    )
    peer = seconds_of_pytorch(net(), first)
    print(f"a step: {1e3 * min(times):.2f} ms here, {1e3 * peer:.2f} ms in PyTorch, one thread each")
    if not (right > 0.8 and losses[-1] < losses[0] / 2):
        raise AssertionError("the weights that went back do not classify")


if __name__ == "__main__":
    main()
