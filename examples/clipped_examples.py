"""Private training: every example's gradient is clipped by itself before noise is added to their sum.

    python examples/clipped_examples.py

``sg.vmap`` turns the gradients of one example's loss into those of a batch, (batch, *shape) for each parameter; no loop
runs and no model is written twice. Clipped to a common length, summed and blurred by noise they are DP-SGD's step
(Abadi et al. 2016), which any optimizer takes by ``apply_gradients``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import staticgrad as sg

BATCH, INPUTS, HIDDEN, CLASSES = 64, 16, 32, 4
LONGEST, NOISE = 0.2, 0.5


class Model:
    """A dense network whose step clips, and the length of each example's gradient."""

    def __init__(self) -> None:
        self.x = sg.placeholder((BATCH, INPUTS), name="x")
        self.t = sg.placeholder((BATCH,), sg.int64, name="t")
        self.net = sg.nn.Sequential(sg.nn.Linear(INPUTS, HIDDEN), sg.nn.Tanh(), sg.nn.Linear(HIDDEN, CLASSES))
        parameters = list(self.net.parameters())

        def slopes(x: sg.Tensor, t: sg.Tensor) -> tuple[sg.Tensor, ...]:
            loss = sg.nn.cross_entropy(self.net(x[None]), t[None])
            return tuple(sg.gradients(loss, parameters, unconnected_gradients="error"))

        each = sg.vmap(slopes)(self.x, self.t)
        self.lengths = sg.sqrt(sum(sg.sum(sg.reshape(g, (BATCH, -1)) ** 2, axis=1) for g in each))
        factor = sg.minimum(1.0, LONGEST / self.lengths)
        self.clipped = [sg.einsum("b,b...->...", factor, g) for g in each]
        blurred = [(g + NOISE * LONGEST * sg.random.normal(g.shape)) / BATCH for g in self.clipped]
        self.loss = sg.nn.cross_entropy(self.net(self.x), self.t)
        self.train = sg.optim.SGD(lr=0.5).apply_gradients(list(zip(blurred, parameters, strict=True)))


def batches(count: int, seed: int = 0) -> Any:
    """Points around a centre of each class."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(CLASSES, INPUTS))
    for _ in range(count):
        labels = rng.integers(0, CLASSES, BATCH)
        yield (centres[labels] + 0.5 * rng.normal(size=(BATCH, INPUTS))).astype(np.float32), labels


def main() -> None:
    with sg.Graph() as graph:
        model = Model()
    with sg.Session(graph) as session:
        step = session.compile([model.loss, model.lengths, model.train], [model.x, model.t])
        for number, (points, labels) in enumerate(batches(200)):
            loss, lengths, _ = step(points, labels)
            if number % 40 == 0 or number == 199:
                print(f"step {number:3}: loss {loss:.3f}, {np.mean(lengths > LONGEST):4.0%} of the examples clipped")


if __name__ == "__main__":
    main()
