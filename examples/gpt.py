"""A character GPT learns sums of two digits, resumes from a checkpoint to the bit, and writes with a KV cache.

    python examples/gpt.py

AdamW spares vectors from decay, its rate warms up and falls along a cosine, gradients are clipped. A second session
restores the checkpoint, weights, optimizer and random state, and repeats the rest of the training. Then it draws the
same text as the first: with the keys and values of earlier tokens in variables, where the first runs a whole window.
"""

from __future__ import annotations

import tempfile

import numpy as np

import staticgrad as sg

TEXT = "".join(f"{a}+{b}={a + b}\n" for a, b in np.random.default_rng(0).integers(0, 10, (1000, 2)))
LETTERS = sorted(set(TEXT))
CODES = np.array([LETTERS.index(letter) for letter in TEXT])
LENGTH, WIDTH, HEADS, BATCH, DROPPED, STEPS = 24, 32, 2, 16, 0.05, 1600
Cache = tuple[sg.Tensor, ...]  # position; variables with a layer's keys and values before it


class Layer(sg.nn.Module):
    """Attention and a feed-forward net: (rows, places, WIDTH) to the same; with a cache, (1, 1, WIDTH)."""

    def __init__(self) -> None:
        self.norm1, self.norm2, self.drop = sg.nn.LayerNorm(WIDTH), sg.nn.LayerNorm(WIDTH), sg.nn.Dropout(DROPPED)
        self.qkv, self.out = sg.nn.Linear(WIDTH, 3 * WIDTH), sg.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = sg.nn.Linear(WIDTH, 4 * WIDTH), sg.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: sg.Tensor, cache: Cache | None) -> sg.Tensor:
        heads = self.qkv(self.norm1(x)).reshape(*x.shape[:2], 3, HEADS, -1)
        q, k, v = (sg.permute_dims(heads[:, :, i], (0, 2, 1, 3)) for i in range(3))
        if cache is None:
            mixed = sg.nn.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            position, *kept = cache
            at, pairs = np.s_[:, :, position], zip(kept, (k, v))
            keys, values = (sg.assign(old, sg.scatter(old, at, new[:, :, 0])) for old, new in pairs)
            mixed = sg.nn.scaled_dot_product_attention(q, keys, values, attn_mask=sg.arange(LENGTH) <= position)
        x = x + self.drop(self.out(sg.permute_dims(mixed, (0, 2, 1, 3)).reshape(x.shape)))
        return x + self.drop(self.down(sg.nn.gelu(self.up(self.norm2(x)))))


class GPT(sg.nn.Module):
    def __init__(self) -> None:
        self.letter, self.place = sg.nn.Embedding(len(LETTERS), WIDTH), sg.nn.Embedding(LENGTH, WIDTH)
        self.layers = sg.nn.ModuleList([Layer(), Layer()])
        self.norm, self.head = sg.nn.LayerNorm(WIDTH), sg.nn.Linear(WIDTH, len(LETTERS), bias=False)

    def forward(self, tokens: sg.Tensor, caches: list[Cache] | None = None) -> sg.Tensor:
        """Tokens (rows, places) to scores (rows, places, letters); with a cache for each layer, (1, 1) tokens."""
        x = self.letter(tokens) + self.place(caches[0][0] if caches else sg.arange(LENGTH))
        for i, layer in enumerate(self.layers):
            x = layer(x, caches[i] if caches else None)
        return self.head(self.norm(x))


def draw(scores: sg.Tensor, k: int = 5, temperature: float = 0.7) -> sg.Tensor:
    """One of the k likeliest letters. Ops with one seed draw alike, run for run."""
    best, letters = sg.topk(scores, k)
    return letters[sg.random.categorical(best / temperature, seed=1)]


class Program:
    """The declaration, and a session with its programs: a training step, and two that give the next letter."""

    def __init__(self, seed: int) -> None:
        with sg.Graph() as graph:
            net = GPT()
            tokens, following = (sg.placeholder((BATCH, LENGTH), sg.int64, name=n) for n in ("tokens", "following"))
            loss = sg.nn.cross_entropy(net.train()(tokens).reshape(-1, len(LETTERS)), following.reshape(-1))
            weights = net.parameters()
            rate = sg.optim.schedules.warmup(sg.optim.schedules.cosine(1e-2, steps=STEPS - 50, minimum=1e-4), steps=50)
            vectors = {"params": [w for w in weights if w.ndim == 1], "weight_decay": 0.0}
            adam = sg.optim.AdamW(lr=rate, weight_decay=0.1, groups=[vectors])
            slopes = sg.optim.clip_by_global_norm(sg.gradients(loss, weights), 1.0)
            train = adam.apply_gradients(list(zip(slopes, weights)))
            row = sg.placeholder((1, LENGTH), sg.int64, name="row")
            token, position = (sg.placeholder((), sg.int64, name=n) for n in ("token", "position"))
            empty = np.zeros((1, HEADS, LENGTH, WIDTH // HEADS), np.float32)
            caches: list[Cache] = [(position, *(sg.Variable(empty, trainable=False) for _ in "kv")) for _ in net.layers]
            by_window = draw(net.eval()(row)[0, position])
            by_cache = draw(net(token.reshape(1, 1), caches)[0, 0])
        self.session = sg.Session(graph, seed=seed)
        self.step = self.session.compile([loss, train], [tokens, following])
        self.by_window = self.session.compile(by_window, [row, position])
        self.by_cache = self.session.compile(by_cache, [token, position])

    def train(self, first: int, last: int) -> list[float]:
        """The loss before each step. The batch of a step follows from its number."""
        rngs = map(np.random.default_rng, range(first, last))
        batches = (rng.integers(len(CODES) - LENGTH, size=(BATCH, 1)) + np.arange(LENGTH) for rng in rngs)
        return [float(self.step(CODES[places], CODES[places + 1])[0]) for places in batches]

    def write(self, cached: bool) -> str:
        """A newline and what follows it, LENGTH letters in all."""
        row = np.full((1, LENGTH), LETTERS.index("\n"))
        for place in range(LENGTH - 1):
            row[0, place + 1] = self.by_cache(row[0, place], place) if cached else self.by_window(row, place)
        return "".join(LETTERS[code] for code in row[0])


def main() -> None:
    first, second = Program(seed=0), Program(seed=1)
    with tempfile.TemporaryDirectory() as folder:
        losses = first.train(0, STEPS // 2)
        first.session.save(f"{folder}/half.safetensors")
        losses += first.train(STEPS // 2, STEPS)
        second.session.restore(f"{folder}/half.safetensors")
    assert second.train(STEPS // 2, STEPS) == losses[STEPS // 2 :]
    print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f}, the second half twice and equal to the bit")
    texts = [first.write(cached=False) for _ in range(10)]
    assert texts == [second.write(cached=True) for _ in range(10)]
    sums = [line for text in texts for line in text.split("\n")[1:-1]]
    right = sum(line in TEXT.split("\n") for line in sums)
    print(f"by window and by cache {sums[:3]} and so on, {right} of {len(sums)} right")
    assert right > 0.9 * len(sums)


if __name__ == "__main__":
    main()
