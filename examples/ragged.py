"""A recurrent net reads turns to the left and to the right, sequences of many lengths, and tells where one then looks.

    python examples/ragged.py

Each sequence is turns and steps straight on in any order; its class is the direction that is looked at in the end, of
four. Sequences are padded to the longest of their batch, and the head reads the state of a ``sg.nn.GRU`` at each one's
own last step: what stands in the padding changes neither scores nor gradients. Training has one padded length, so one
program; scoring leaves the number of sequences and of steps open, and compiles a program for each pair it meets.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import staticgrad as sg

TURNS = np.array([0, 1, -1])  # straight on, left, right
DIRECTIONS, WIDTH, BATCH, TRAINED, LONGEST = 4, 32, 64, 20, 40


def sequences(count: int, lengths: tuple[int, int], padded: int, seed: int) -> tuple[Any, Any, Any]:
    """Tokens (padded, count), zero where a sequence is over; each one's length and class, (count,)."""
    rng = np.random.default_rng(seed)
    length = rng.integers(lengths[0], lengths[1] + 1, count)
    tokens = rng.integers(0, len(TURNS), (padded, count))
    tokens[np.arange(padded)[:, None] >= length] = 0
    return tokens, length, TURNS[tokens].sum(axis=0) % DIRECTIONS


class Reader(sg.nn.Module):
    def __init__(self) -> None:
        self.letters = sg.nn.Embedding(len(TURNS), 8)
        self.rnn = sg.nn.GRU(8, WIDTH)
        self.head = sg.nn.Linear(WIDTH, DIRECTIONS)

    def forward(self, tokens: sg.Tensor, length: sg.Tensor) -> sg.Tensor:
        """Tokens (steps, n) and lengths (n,) of at least 1 to scores (n, DIRECTIONS)."""
        states, _ = self.rnn(self.letters(tokens))
        full = sg.assert_(length > 0, "a sequence is empty")  # index -1 would be that of the padding
        with sg.control_dependencies([full]):
            last = states[length - 1, sg.arange(length.shape[0])]
        scores: sg.Tensor = self.head(last)
        return scores


class Model:
    """The net, a session that holds its weights, and its programs for training and for scoring."""

    def __init__(self, seed: int = 0) -> None:
        with sg.Graph() as graph:
            net = Reader()
            tokens = sg.placeholder((TRAINED, BATCH), sg.int64, name="tokens")
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
        return [float(self.step(*sequences(BATCH, (1, TRAINED), TRAINED, seed))[0]) for seed in range(steps)]

    def accuracy(self, lengths: tuple[int, int]) -> float:
        """The share of right answers on new sequences of these lengths."""
        tokens, length, labels = sequences(500, lengths, LONGEST, seed=1_000_000)
        return float(np.mean(self.scores(tokens, length).argmax(axis=1) == labels))

    def padding_matters(self) -> tuple[float, float]:
        """By how much scores change with what stands in the padding, and without any: one sequence by itself."""
        tokens, length, _ = sequences(500, (1, LONGEST), LONGEST, seed=1_000_001)
        scores = self.scores(tokens, length)
        filled = np.where(np.arange(LONGEST)[:, None] < length, tokens, 1)
        alone = self.scores(tokens[: length[0], :1], length[:1])
        return float(np.abs(self.scores(filled, length) - scores).max()), float(np.abs(alone - scores[:1]).max())


def main() -> None:
    model = Model()
    losses = model.learn()
    for number in [*range(0, len(losses), 100), len(losses) - 1]:
        print(f"step {number:3}: loss {losses[number]:.3f}")
    for shortest in range(1, LONGEST, 10):
        right = model.accuracy((shortest, shortest + 9))
        seen = "" if shortest < TRAINED else ", longer than any trained on"
        print(f"lengths {shortest:2} to {shortest + 9}: {right:6.1%} right{seen}")
        assert right > 0.95
    filled, alone = model.padding_matters()
    assert filled == 0
    assert alone < 1e-4
    print(f"scores differ by {filled} with other padding and by {alone:.0e} without any")
    again = Model().learn(20)
    assert again == losses[:20]
    print(f"a second training repeats the first one's {len(again)} losses to the bit")


if __name__ == "__main__":
    main()
