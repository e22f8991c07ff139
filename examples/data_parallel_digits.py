"""A network learns handwritten digits on one, two or four processes, to the same bits.

    python examples/data_parallel_digits.py
    mpiexec -n 2 python examples/data_parallel_digits.py
    mpiexec -n 4 python examples/data_parallel_digits.py

Each process takes its part of every batch, and all of them make the same step. With ``shards=4`` the gradients of four
fixed quarters of a batch are added in a fixed order, whoever computes which: the weights are the same to the last bit,
of which a checksum is printed. Sessions have seeds of their own, so first weights differ until rank 0's are taken. The
test set is shared out too, and what each process counts is added up. It needs scikit-learn for the data, and mpi4py
with an MPI library for several processes: pip install mpich mpi4py.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import staticgrad as sg

SHARDS, BATCH, EPOCHS, TRAINED, TESTED = 4, 64, 12, 1536, 256
RANK, RANKS = sg.distributed.rank(), sg.distributed.size()


def digits() -> tuple[Any, Any]:
    """1792 images (64,) with values from 0 to 1, in an order of their own, and their labels."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))[: TRAINED + TESTED]
    return (images[order] / 16).astype(np.float32), labels[order].astype(np.int64)


def mine(rows: Any) -> Any:
    """This process's part of some rows."""
    count = len(rows) // RANKS
    return rows[RANK * count : (RANK + 1) * count]


def train() -> tuple[sg.Session, Any]:
    """A session with trained weights, and the program that counts hits in images of all processes."""
    with sg.Graph() as graph:
        net = sg.nn.Sequential(sg.nn.Linear(64, 96), sg.nn.ReLU(), sg.nn.Linear(96, 10))
        x, t = sg.placeholder((None, 64), name="x"), sg.placeholder((None,), sg.int64, name="t")
        scores = net(x)
        loss = sg.nn.cross_entropy(scores, t)
        step_down = sg.optim.AdamW(lr=3e-3).minimize(loss, distributed=True, shards=SHARDS)
        hits = sg.distributed.all_reduce(sg.sum(sg.argmax(scores, axis=1) == t))
        everywhere = sg.distributed.all_reduce(loss, "mean")
    session = sg.Session(graph, seed=RANK)
    step = session.compile([everywhere, step_down], [x, t])
    images, labels = digits()
    for epoch in range(EPOCHS):
        order = np.random.default_rng(epoch).permutation(TRAINED).reshape(-1, BATCH)  # the same on all ranks
        losses = [float(step(images[rows], labels[rows])[0]) for rows in map(mine, order)]
        if RANK == 0 and epoch % 4 == 3:
            print(f"epoch {epoch + 1:2}  loss {np.mean(losses):.4f}")
    return session, session.compile(hits, [x, t])


def main() -> None:
    session, count = train()
    images, labels = (mine(part[TRAINED:]) for part in digits())
    accuracy = float(count(images, labels)) / TESTED
    weights = b"".join(session.get(variable).tobytes() for variable in session.graph.variables.values())
    if RANK == 0:
        print(f"{RANKS} processes: {accuracy:.1%} of {TESTED} images recognised")
        print(f"weights and optimizer state have the checksum {zlib.crc32(weights):08x}")
    assert accuracy > 0.93


if __name__ == "__main__":
    main()
