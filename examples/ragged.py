"""A recurrent net reads turns to the left and to the right, sequences of many lengths, and tells where one then looks.

    python examples/ragged.py

Each sequence is turns and steps straight on in any order; its class is the direction that is looked at in the end, of
four. Sequences are padded to the longest of their batch, and the head reads the state of a ``sg.nn.GRU`` at each one's
own last step: what stands in the padding changes neither scores nor gradients. Training has one padded length, so one
program; scoring leaves the number of sequences and of steps open, and each sequence may be scored by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import staticgrad as sg

TURNS = np.array([0, 1, -1])  # straight on, left, right
DIRECTIONS, WIDTH, BATCH, LONGEST = 4, 32, 64, 20


def sequences(count: int, lengths: tuple[int, int], seed: int) -> tuple[Any, Any, Any]:
    """Tokens (steps, count), padded with zeros; each one's length and class, (count,)."""
    rng = np.random.default_rng(seed)
    length = rng.integers(lengths[0], lengths[1] + 1, count)
    tokens = rng.integers(0, len(TURNS), (lengths[1], count))
    tokens[np.arange(lengths[1])[:, None] >= length] = 0
    return tokens, length, TURNS[tokens].sum(axis=0) % DIRECTIONS


class Reader(sg.nn.Module):
    def __init__(self) -> None:
        self.letters = sg.nn.Embedding(len(TURNS), 8)
        self.rnn = sg.nn.GRU(8, WIDTH)
        self.head = sg.nn.Linear(WIDTH, DIRECTIONS)

    def forward(self, tokens: sg.Tensor, length: sg.Tensor) -> sg.Tensor:
        """Tokens (steps, n) and lengths (n,) of at least 1 to scores (n, DIRECTIONS)."""
        states, _ = self.rnn(self.letters(tokens))
        return self.head(states[length - 1, sg.arange(length.shape[0])])


class Model:
    """The net, a session that holds its weights, and its programs for training and for scoring."""

    def __init__(self, seed: int = 0) -> None:
        with sg.Graph() as graph:
            net = Reader()
            tokens = sg.placeholder((LONGEST, BATCH), sg.int64, name="tokens")
            length = sg.placeholder((BATCH,), sg.int64, name="length")
            labels = sg.placeholder((BATCH,), sg.int64, name="labels")
            loss = sg.nn.cross_entropy(net(tokens, length), labels)
            slopes = sg.optim.clip_by_global_norm(sg.gradients(loss, net.parameters()), 1.0)
            train = sg.optim.Adam(lr=1e-2).apply_gradients(list(zip(slopes, net.parameters(), strict=True)))

            steps, count = sg.dim("steps"), sg.dim("count")
            any_tokens = sg.placeholder((steps, count), sg.int64, name="any_tokens")
            any_length = sg.placeholder((count,), sg.int64, name="any_length")
            scores = net(any_tokens, any_length)
        session = sg.Session(graph, seed=seed)
        self.step = session.compile([loss, train], [tokens, length, labels])
        self.scores = session.compile(scores, [any_tokens, any_length])

    def learn(self, steps: int = 600) -> list[float]:
        """The loss before each step."""
        return [float(self.step(*sequences(BATCH, (1, LONGEST), seed))[0]) for seed in range(steps)]

    def accuracy(self, lengths: tuple[int, int]) -> float:
        """The share of right answers on new sequences of these lengths."""
        tokens, length, labels = sequences(500, lengths, seed=1_000_000)
        return float(np.mean(self.scores(tokens, length).argmax(axis=1) == labels))


def main() -> None:
    model = Model()
    losses = model.learn()
    for number in [*range(0, len(losses), 100), len(losses) - 1]:
        print(f"step {number:3}: loss {losses[number]:.3f}")
    for lengths in [(1, 5), (6, 10), (11, 15), (16, 20), (21, 40)]:
        print(f"lengths {lengths[0]:2} to {lengths[1]}: {model.accuracy(lengths):6.1%} right")


if __name__ == "__main__":
    main()
