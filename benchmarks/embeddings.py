"""Training a table of embeddings, 256 rows a step of 200,000 x 64, beside PyTorch's sparse and dense gradients.

    python benchmarks/embeddings.py [--rows N] [--width N] [--batch N] [--seconds S]

A step reads the rows of a batch, compares them with a feed (mean of squares), and updates the table in place. The sides
take turns in one process, each with one thread; a time is the best block of calls, by the CPU's clock. The tables of
staticgrad and of PyTorch's sparse gradients are compared after some steps.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Step = Callable[[Any, Any], object]
BLOCKS = 40


def ours(name: str, table: np.ndarray, batch: int) -> tuple[Step, Callable[[], np.ndarray], int]:
    """A step, what reads the table, and the bytes of the program's arena."""
    import staticgrad as sg

    optimizers: dict[str, Callable[[], sg.optim.Optimizer]] = {
        "SGD": lambda: sg.optim.SGD(lr=0.1),
        "Adagrad": lambda: sg.optim.Adagrad(lr=0.1),
        "Adam, lazy": lambda: sg.optim.Adam(lr=0.1, eps=1e-20, lazy=True),
    }
    with sg.Graph():
        weight = sg.Variable(table)
        ids, target = sg.placeholder((batch,), sg.int64), sg.placeholder((batch, table.shape[1]))
        loss = sg.nn.mse_loss(sg.nn.embedding(ids, weight), target)
        train = optimizers[name]().minimize(loss)
        session = sg.Session(num_threads=1)
        step = session.compile([loss, train], [ids, target], wait=True)
    return step, lambda: session.get(weight), step.memory.arena_bytes


def torchs(name: str, table: np.ndarray, sparse: bool) -> tuple[Step, Callable[[], np.ndarray]]:
    import torch

    torch.set_num_threads(1)
    layer = torch.nn.Embedding.from_pretrained(torch.from_numpy(table.copy()), freeze=False, sparse=sparse)
    optimizers: dict[str, Callable[[Any], Any]] = {
        "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
        "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
        "Adam, lazy": lambda p: (torch.optim.SparseAdam if sparse else torch.optim.Adam)(
            p,
            lr=0.1,
            eps=1e-20,  # which SparseAdam adds at another place
        ),
    }
    optimizer = optimizers[name](layer.parameters())

    def step(ids: np.ndarray, target: np.ndarray) -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(layer(torch.from_numpy(ids)), torch.from_numpy(target))
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, lambda: layer.weight.detach().numpy()


def block(step: Step, feeds: list[tuple[np.ndarray, np.ndarray]], calls: int) -> float:
    """Seconds of a call in a block of calls."""
    start = time.process_time()
    for number in range(calls):
        step(*feeds[number % len(feeds)])
    return (time.process_time() - start) / calls


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=0.02, help="of a block of calls")
    chosen = parser.parse_args()
    draw = np.random.default_rng(0)
    table = draw.normal(size=(chosen.rows, chosen.width)).astype(np.float32)
    feeds = [
        (draw.integers(0, chosen.rows, chosen.batch), draw.normal(size=(chosen.batch, chosen.width)).astype(np.float32))
        for _ in range(16)
    ]
    print(f"{chosen.batch} rows a step of {chosen.rows} x {chosen.width}, float32, one thread; us a step")
    print(f"{'':12}{'staticgrad':>12}{'arena MB':>10}{'torch sparse':>14}{'torch dense':>13}{'difference':>12}")
    for name in ("SGD", "Adagrad", "Adam, lazy"):
        step, read, arena = ours(name, table, chosen.batch)
        sparse, read_sparse = torchs(name, table, sparse=True)
        dense, _ = torchs(name, table, sparse=False)
        for feed in feeds:
            step(*feed)
            sparse(*feed)
        difference = float(np.abs(read() - read_sparse()).max())
        best = [np.inf] * 3
        for _ in range(BLOCKS):
            for side, one in enumerate((step, sparse, dense)):
                once = block(one, feeds, 1)
                calls = max(1, int(chosen.seconds / max(once, 1e-7) / 10))
                best[side] = min(best[side], block(one, feeds, calls))
        mine, theirs, whole = (1e6 * seconds for seconds in best)
        print(f"{name:12}{mine:12.1f}{arena / 1e6:10.3f}{theirs:14.1f}{whole:13.1f}{difference:12.1e}", flush=True)


if __name__ == "__main__":
    main()
