"""A small transformer written by hand learns to write its own training text.

    python examples/language_model.py

RMS norms, rotary positions, gated feed-forward layers, and an embedding that is the output layer too; it is declared
with plain ops, trained with AdamW and clipped gradients, and then asked to write, character after character. The
programs for a batch and for the one row that is written come from the same functions and share the weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import staticgrad as sg

TEXT = "the cat sat on the mat. the dog sat on the log. the cat saw the dog and the dog saw the cat. "
LETTERS = sorted(set(TEXT))
LENGTH, WIDTH, HEADS, LAYERS, BATCH = 24, 64, 4, 2, 16
HEAD = WIDTH // HEADS


def rms_norm(x: sg.Tensor, scale: sg.Tensor) -> sg.Tensor:
    return x * sg.rsqrt(sg.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


def rotary(x: sg.Tensor) -> sg.Tensor:
    """Turn pairs of the last axis by angles that grow with the position (Su et al. 2021)."""
    angles = np.arange(LENGTH)[:, None] / 1000 ** (np.arange(HEAD // 2) / (HEAD // 2))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    a, b = x[..., : HEAD // 2], x[..., HEAD // 2 :]
    return sg.concat([a * cos - b * sin, a * sin + b * cos], axis=-1)


class Transformer:
    """Its weights, and a function from tokens (n, LENGTH) to logits (n, LENGTH, letters)."""

    def __init__(self) -> None:
        def matrix(name: str, *shape: int) -> sg.Tensor:
            return sg.Variable(sg.init.normal(0.0, shape[0] ** -0.5), shape=shape, name=name)

        self.letters = sg.Variable(sg.init.normal(0.0, 0.1), shape=(len(LETTERS), WIDTH), name="letters")
        sizes = {"q": (WIDTH, WIDTH), "k": (WIDTH, WIDTH), "v": (WIDTH, WIDTH), "out": (WIDTH, WIDTH)}
        sizes |= {"gate": (WIDTH, 128), "up": (WIDTH, 128), "down": (128, WIDTH)}
        self.layers = [{key: matrix(f"{i}.{key}", *s) for key, s in sizes.items()} for i in range(LAYERS)]
        self.norms = [sg.Variable(np.ones(WIDTH, np.float32), name=f"norm{i}") for i in range(2 * LAYERS + 1)]

    def __call__(self, tokens: sg.Tensor) -> sg.Tensor:
        x = sg.nn.embedding(tokens, self.letters)
        for i, layer in enumerate(self.layers):
            x = x + self.attention(rms_norm(x, self.norms[2 * i]), layer)
            y = rms_norm(x, self.norms[2 * i + 1])
            x = x + (sg.nn.silu(y @ layer["gate"]) * (y @ layer["up"])) @ layer["down"]
        return rms_norm(x, self.norms[-1]) @ self.letters.T

    def attention(self, x: sg.Tensor, layer: dict[str, sg.Tensor]) -> sg.Tensor:
        rows = x.shape[0]
        q, k, v = (sg.permute_dims((x @ layer[n]).reshape(rows, LENGTH, HEADS, HEAD), (0, 2, 1, 3)) for n in "qkv")
        scores = rotary(q) @ rotary(k).mT / HEAD**0.5
        past = np.tril(np.ones((LENGTH, LENGTH), bool))
        weights = sg.nn.softmax(sg.where(past, scores, -1e9), dim=-1)
        return sg.permute_dims(weights @ v, (0, 2, 1, 3)).reshape(rows, LENGTH, WIDTH) @ layer["out"]


def learn(steps: int = 150, written: int = 60) -> tuple[list[float], str]:
    """The loss before each step, and what the model writes after the text's first letters."""
    codes = np.array([LETTERS.index(letter) for letter in TEXT * 2])
    with sg.Graph() as graph:
        model = Transformer()
        tokens = sg.placeholder((BATCH, LENGTH), sg.int64, name="tokens")
        following = sg.placeholder((BATCH, LENGTH), sg.int64, name="following")
        loss = sg.nn.cross_entropy(model(tokens).reshape(-1, len(LETTERS)), following.reshape(-1))
        weights = list(graph.variables.values())
        slopes = sg.optim.clip_by_global_norm(sg.gradients(loss, weights), 1.0)
        train = sg.optim.AdamW(lr=3e-3).apply_gradients(list(zip(slopes, weights, strict=True)))
        row = sg.placeholder((1, LENGTH), sg.int64, name="row")
        best = sg.argmax(model(row)[0, -1])
    rng = np.random.default_rng(0)
    with sg.Session(graph) as session:
        step, write = session.compile([loss, train], [tokens, following]), session.compile(best, [row])
        losses = []
        for _ in range(steps):
            places = rng.integers(0, len(TEXT), BATCH)[:, None] + np.arange(LENGTH)
            losses.append(float(step(codes[places], codes[places + 1])[0]))
        found: Any = list(codes[:LENGTH])
        for _ in range(written):
            found.append(int(write(np.array(found[-LENGTH:])[None])))
    return losses, "".join(LETTERS[code] for code in found)


def main() -> None:
    losses, text = learn()
    print(f"loss {losses[0]:.2f} -> {losses[-1]:.3f}")
    print(text)


if __name__ == "__main__":
    main()
