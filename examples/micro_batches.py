"""A large batch in small pieces: gradients are added up over several tapes, then one step is made of their sum.

    python examples/micro_batches.py

Only one piece's activations are in memory at a time. Adding a piece's gradients is part of the kernels that make them,
and the optimizer's step reads the sums where they lie.
"""

from __future__ import annotations

import numpy as np

import staticgrad as sg

BATCH, PIECES, STEPS = 256, 8, 30


def main() -> None:
    rng = np.random.default_rng(0)
    piece = BATCH // PIECES
    graph = sg.Graph()
    with graph:
        x = sg.placeholder((piece, 16), name="x")
        t = sg.placeholder((piece, 1), name="t")
        net = sg.nn.Sequential(sg.nn.Linear(16, 64), sg.nn.Tanh(), sg.nn.Linear(64, 1))
        loss = sg.nn.mse_loss(net(x), t) / PIECES  # the pieces' losses add up to the batch's
        step = sg.optim.Adam(lr=0.01).step()

    inputs = rng.normal(size=(BATCH, 16)).astype(np.float32)
    targets = np.sin(inputs.sum(1, keepdims=True)).astype(np.float32)
    with sg.Session(graph) as sess:
        for number in range(STEPS):
            total = 0.0
            for rows in np.split(np.arange(BATCH), PIECES):
                with sess.forward(loss, {x: inputs[rows], t: targets[rows]}) as tape:
                    tape.backward(loss)
                    total += float(tape[loss])
            sess.run(step)
            sess.zero_grad()
            if number % 10 == 0 or number == STEPS - 1:
                print(f"step {number:3}: loss {total:.4f}")


if __name__ == "__main__":
    main()
