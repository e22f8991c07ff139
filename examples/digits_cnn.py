"""A small convolutional network learns handwritten digits, is saved halfway, and goes on to the same bits elsewhere.

    python examples/digits_cnn.py

The network has batch norm and dropout, so it is declared twice: in training mode for the loss and in evaluation mode
for use. The learning rate warms up and falls along a cosine, by a schedule that counts the optimizer's own steps. The
checkpoint holds the weights, the running statistics, the optimizer's state and the random state; a second session with
another seed restores it and repeats the second half of the training bit for bit. It needs scikit-learn for the data.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import staticgrad as sg

BATCH, EPOCHS, TRAINED, PEAK = 50, 8, 1300, 1e-2


def digits() -> tuple[Any, Any]:
    """1797 images (1, 8, 8) with values from 0 to 1, in an order of their own, and their labels."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    return (images[order] / 16).reshape(-1, 1, 8, 8).astype(np.float32), labels[order].astype(np.int64)


class Block(sg.nn.Module):
    """Convolution, batch norm, rectifier and pooling: (n, channels, h, w) to (n, width, h / 2, w / 2)."""

    def __init__(self, channels: int, width: int) -> None:
        self.conv = sg.nn.Conv2d(channels, width, 3, padding=1, bias=False)  # batch norm has a bias
        self.norm = sg.nn.BatchNorm2d(width)
        self.pool = sg.nn.MaxPool2d(2)

    def forward(self, x: sg.Tensor) -> sg.Tensor:
        return self.pool(sg.nn.relu(self.norm(self.conv(x))))


@dataclass
class Training:
    """A session, its programs for a step and for use, and what is read of the declaration besides."""

    session: sg.Session
    step: Any
    predict: Any
    optimizer: sg.optim.Optimizer
    graph: sg.Graph

    def epoch(self, images: Any, labels: Any) -> tuple[list[float], list[float]]:
        """The loss and the learning rate of each step. The order of the images follows from the steps done before."""
        done = int(self.session.get(self.optimizer.step_count))
        order = np.random.default_rng([1, done]).permutation(TRAINED).reshape(-1, BATCH)
        results = [self.step(images[rows], labels[rows]) for rows in order]
        return [float(loss) for loss, _, _ in results], [float(rate) for _, rate, _ in results]

    def state(self) -> dict[str, Any]:
        return {name: self.session.get(variable) for name, variable in self.graph.variables.items()}


def declare(seed: int, tested: int) -> Training:
    with sg.Graph() as graph:
        net = sg.nn.Sequential(
            Block(1, 16), Block(16, 32), sg.nn.Flatten(), sg.nn.Dropout(0.25), sg.nn.Linear(32 * 2 * 2, 10)
        )
        x = sg.placeholder((BATCH, 1, 8, 8), name="x")
        t = sg.placeholder((BATCH,), sg.int64, name="t")
        loss = sg.nn.cross_entropy(net.train()(x), t)
        steps = EPOCHS * TRAINED // BATCH
        falling = sg.optim.schedules.cosine(PEAK, steps=steps - steps // 10)
        optimizer = sg.optim.AdamW(lr=sg.optim.schedules.warmup(falling, steps=steps // 10), weight_decay=0.01)
        train = optimizer.minimize(loss)
        unseen = sg.placeholder((tested, 1, 8, 8), name="unseen")
        predicted = sg.argmax(net.eval()(unseen), axis=1)
    session = sg.Session(graph, seed=seed)
    step = session.compile([loss, optimizer.lr, train], [x, t])
    return Training(session, step, session.compile(predicted, [unseen]), optimizer, graph)


def main() -> None:
    images, labels = digits()
    unseen, wanted = images[TRAINED:], labels[TRAINED:]
    first = declare(seed=0, tested=len(unseen))
    losses: list[float] = []
    rates: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "half.safetensors"
        for number in range(EPOCHS):
            if number == EPOCHS // 2:
                first.session.save(path)
            found = first.epoch(images, labels)
            losses, rates = losses + found[0], rates + found[1]
            share = np.mean(first.predict(unseen) == wanted)
            print(f"epoch {number + 1}: loss {np.mean(found[0]):.3f}, rate {rates[-1]:.5f}, unseen digits {share:.1%}")
        second = declare(seed=1, tested=len(unseen))  # the seed is in the file, too
        second.session.restore(path)
    repeated = [loss for _ in range(EPOCHS // 2) for loss in second.epoch(images, labels)[0]]
    assert repeated == losses[len(losses) // 2 :]
    ends = first.state(), second.state()
    assert ends[0].keys() == ends[1].keys()
    assert all(np.array_equal(value, ends[1][name]) for name, value in ends[0].items())
    assert rates[0] == 0
    assert max(rates) == PEAK
    assert rates[-1] < PEAK / 100
    assert share > 0.97
    assert np.array_equal(first.predict(unseen), first.predict(unseen))  # nothing is dropped
    print(f"resumed from the checkpoint: {len(repeated)} losses and {len(ends[0])} variables are equal to the bit")
    first.session.close()
    second.session.close()


if __name__ == "__main__":
    main()
