"""What it costs to keep a graph: a shared trunk with two heads, derived in three ways.

    python examples/two_heads.py

Three convolutions feed two heads of three dense layers each. The gradients of both losses are wanted; they can be had

- in one backward of both losses, which consumes what the forward kept;
- in two backwards, of which the first retains the graph for the second;
- in two backwards whose order was declared, so that the first keeps exactly what the second still reads.

The table says for each what the tape kept, what was left after the first backward, and the most bytes that were in use
at once: kept values and the arenas of the programs that ran. All of it is planned before anything runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import staticgrad as sg

IMAGES, SIZE, CLASSES = 16, 32, 10
TRUNK = ((3, 16, 1), (16, 32, 2), (32, 32, 2))  # channels before and after, stride
FLAT = 32 * (SIZE // 4) ** 2
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class Network:
    """Two losses over one trunk, and feeds."""

    graph: sg.Graph
    losses: tuple[sg.Tensor, sg.Tensor]
    feeds: dict[sg.Tensor, Array]


def head(width: int) -> sg.nn.Sequential:
    """Three dense layers."""
    relu = sg.nn.ReLU
    first, second, last = sg.nn.Linear(FLAT, width), sg.nn.Linear(width, width), sg.nn.Linear(width, CLASSES)
    return sg.nn.Sequential(first, relu(), second, relu(), last)


def network() -> Network:
    """The network, declared in a graph of its own."""
    rng = np.random.default_rng(0)
    graph = sg.Graph()
    with graph:
        images = sg.placeholder((IMAGES, 3, SIZE, SIZE), name="images")
        labels = sg.placeholder((IMAGES,), sg.int64, name="labels")
        targets = sg.placeholder((IMAGES, CLASSES), name="targets")
        x = images
        for before, after, stride in TRUNK:
            x = sg.tanh(sg.nn.Conv2d(before, after, 3, stride=stride, padding=1)(x))
        x = sg.reshape(x, (IMAGES, -1))
        classes = sg.nn.cross_entropy(head(64)(x), labels)
        values = sg.nn.mse_loss(head(64)(x), targets)
    feeds: dict[sg.Tensor, Array] = {
        images: rng.normal(size=images.shape).astype(np.float32),
        labels: rng.integers(0, CLASSES, IMAGES),
        targets: rng.normal(size=targets.shape).astype(np.float32),
    }
    return Network(graph, (classes, values), feeds)


@dataclass
class Row:
    """One way to derive both losses, in bytes, and the gradients that it gave."""

    way: str
    saved: int
    after_first: int
    peak: int
    gradients: list[Array]


def measure(net: Network) -> list[Row]:
    """Derive in each way, in sessions of their own."""
    a, b = net.losses
    rows = []
    ways: list[tuple[str, list[Any], bool, Any]] = [
        ("both in one backward", [[a, b]], False, None),
        ("retain, then consume", [a, b], True, None),
        ("declared order", [a, b], False, [a, b]),
    ]
    for way, calls, retain, order in ways:
        with sg.Session(net.graph) as sess:
            tape = sess.forward([a, b], net.feeds, backward_order=order)
            tape.backward(calls[0], retain_graph=retain)
            after_first = tape.memory.live_bytes
            for outputs in calls[1:]:
                tape.backward(outputs)
            found = [sess.grad(v) for v in net.graph.variables.values() if v.requires_grad]
            gradients = [gradient for gradient in found if gradient is not None]
            rows.append(Row(way, tape.memory.saved_bytes, after_first, tape.memory.peak_bytes, gradients))
    return rows


def main() -> None:
    rows = measure(network())
    print(f"{'':<22}{'kept by the forward':>20}{'left after the first':>22}{'most in use at once':>21}")
    for row in rows:
        print(f"{row.way:<22}{row.saved:>20,}{row.after_first:>22,}{row.peak:>21,}")
    for row in rows[1:]:
        for expected, actual in zip(rows[0].gradients, row.gradients, strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)
    print("\nbytes; the gradients are the same")


if __name__ == "__main__":
    main()
