"""Programs with open sizes, as values: training steps, generation, loops and matrices, each with data of any size.

A ``SizedProgram`` declares a graph whose sizes are bound by its feeds, draws the arrays to feed for given sizes, and
names the sizes at which it is tried: the ends of ranges (1, 16, 17, 32, 33, 64, …) and others between them. What is
fetched are values and gradients, by parameters and by what is fed. ``PROGRAMS`` are small ones in float64; the
functions that make them take a dtype and widths, for figures of realistic ones.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

import staticgrad as sg
from support.sampling import rng_for

Array = np.ndarray[Any, np.dtype[Any]]
Sizes = tuple[int, ...]
DType = np.dtype[Any]
Kind = Literal["ranges", "exact"]
F64 = np.dtype(np.float64)
FIRST = 16  # the largest size of the first range
QUICK = (1, 16, 17, 40, 5, 24)  # sizes that are tried always
COUNT = 44  # how many sizes of a program are tried in all
HAS_RANGES = "sizes" in inspect.signature(sg.Session.__init__).parameters


@dataclass(frozen=True, slots=True)
class Declaration:
    """A declared graph: its feeds in the order of a call, and its fetches by name."""

    feeds: tuple[sg.Tensor, ...]
    fetches: dict[str, Any]

    @property
    def graph(self) -> sg.Graph:
        return self.feeds[0].graph

    @property
    def trains(self) -> bool:
        """True if a call changes variables."""
        return not all(isinstance(fetch, sg.Tensor) for fetch in self.fetches.values())


@dataclass(frozen=True, slots=True)
class SizedProgram:
    """A program over open sizes.

    Args:
        dims: the names of the open sizes.
        most: the largest number that each of them is tried with.
        build: declares the program in the current graph.
        draw: the arrays to feed, by a generator and sizes.
        is_growing: sizes come in growing order, else in a random one.
    """

    name: str
    dims: tuple[str, ...]
    most: Sizes
    build: Callable[[], Declaration] = field(repr=False)
    draw: Callable[[np.random.Generator, Sizes], tuple[Array, ...]] = field(repr=False)
    is_growing: bool = False

    def declare(self) -> Declaration:
        """The program in a graph of its own."""
        with sg.Graph():
            return self.build()

    def arrays(self, sizes: Sizes) -> tuple[Array, ...]:
        """The arrays to feed at these sizes, always the same ones."""
        return self.draw(rng_for(self.name, sizes), sizes)

    @property
    def quick(self) -> tuple[Sizes, ...]:
        """The few sizes that are tried always."""
        half = len(QUICK) // 2
        turned = (QUICK, QUICK[half:] + QUICK[:half])[: len(self.dims)]
        return self._ordered(zip(*turned, strict=True))

    @property
    def sizes(self) -> tuple[Sizes, ...]:
        """All sizes that are tried: the ends of ranges, or pairs of some of them, and others that are drawn."""
        rng = rng_for("sizes", self.name)
        chosen: set[Sizes]
        if len(self.dims) == 1:
            chosen = {(end,) for end in ends(*self.most)}
        else:
            chosen = set(itertools.product((1, FIRST, FIRST + 1, 2 * FIRST + 1), repeat=len(self.dims)))
        while len(chosen) < COUNT:
            chosen.add(tuple(int(rng.integers(1, most + 1)) for most in self.most))
        return self._ordered(rng.permutation(sorted(chosen)).tolist())

    def _ordered(self, sizes: Any) -> tuple[Sizes, ...]:
        found = [tuple(s) for s in sizes]
        return tuple(sorted(found) if self.is_growing else found)


def ends(most: int) -> list[int]:
    """The first and last sizes of the ranges up to ``most``: 1, 16, 17, 32, 33, 64, …"""
    ranges = itertools.takewhile(lambda found: found[0] <= most, _ranges())
    return [end for low_high in ranges for end in low_high if end <= most]


def range_of(size: int) -> tuple[int, int]:
    """The range that a size belongs to, which follows from the size alone; 0 has one of its own."""
    return next((low, high) for low, high in _ranges() if size <= high) if size else (0, 0)


def _ranges() -> Iterator[tuple[int, int]]:
    low, high = 1, FIRST
    while True:
        yield low, high
        low, high = high + 1, 2 * high


def session(graph: sg.Graph, sizes: Kind, **options: Any) -> sg.Session:
    """A session that compiles for ranges of sizes, or for each size. Where there are no ranges every one does this."""
    return sg.Session(graph, **(options | {"sizes": sizes} if HAS_RANGES else options))


# -- networks ---------------------------------------------------------------------------------------------------------


def mlp(
    dtype: DType = F64, widths: Sequence[int] = (12, 24, 16, 5), *, trains: bool = False, most: int = 128
) -> SizedProgram:
    """A dense network on an open batch: its loss with gradients, or a step of training with momentum."""

    def build() -> Declaration:
        x = sg.placeholder((None, widths[0]), dtype, name="x")
        labels = sg.placeholder((x.shape[0],), sg.int64, name="labels")
        layers: list[sg.nn.Module] = []
        for inputs, outputs in itertools.pairwise(widths):
            layers += [sg.nn.Linear(inputs, outputs, dtype=dtype), sg.nn.ReLU()]
        return _classifier(sg.nn.Sequential(*layers[:-1]), x, labels, trains)

    def draw(rng: np.random.Generator, sizes: Sizes) -> tuple[Array, ...]:
        (n,) = sizes
        return rng.standard_normal((n, widths[0])).astype(dtype), rng.integers(0, widths[-1], n)

    return SizedProgram("mlp_momentum" if trains else "mlp", ("batch",), (most,), build, draw)


def convnet(
    dtype: DType = F64, channels: tuple[int, int] = (6, 8), *, normed: bool = False, most: int = 64
) -> SizedProgram:
    """A step of training on an open batch of images of 8×8, with or without batch norm."""

    def block(inputs: int, outputs: int) -> list[sg.nn.Module]:
        convolution = sg.nn.Conv2d(inputs, outputs, 3, padding=1, bias=not normed, dtype=dtype)
        norm = [sg.nn.BatchNorm2d(outputs, dtype=dtype)] if normed else []
        return [convolution, *norm, sg.nn.ReLU(), sg.nn.MaxPool2d(2)]

    def build() -> Declaration:
        batch = sg.dim("batch")
        x = sg.placeholder((batch, 1, 8, 8), dtype, name="images")
        labels = sg.placeholder((batch,), sg.int64, name="labels")
        head = sg.nn.Linear(4 * channels[1], 10, dtype=dtype)
        net = sg.nn.Sequential(*block(1, channels[0]), *block(*channels), sg.nn.Flatten(), head)
        return _classifier(net, x, labels, trains=True)

    def draw(rng: np.random.Generator, sizes: Sizes) -> tuple[Array, ...]:
        (n,) = sizes
        return rng.standard_normal((n, 1, 8, 8)).astype(dtype), rng.integers(0, 10, n)

    return SizedProgram("convnet_norm" if normed else "convnet", ("batch",), (most,), build, draw)


def _classifier(net: sg.nn.Module, x: sg.Tensor, labels: sg.Tensor, trains: bool) -> Declaration:
    """Logits, loss and gradients of a network; with ``trains`` its weights are updated as well."""
    logits = net(x)
    loss = sg.nn.cross_entropy(logits, labels)
    fetches = {"logits": logits, "loss": loss, **_gradients(loss, net, x=x)}
    if trains:
        slopes = [(fetches[f"d {name}"], weight) for name, weight in net.named_parameters()]
        fetches["train"] = sg.optim.SGD(lr=0.05, momentum=0.9).apply_gradients(slopes)
    return Declaration((x, labels), fetches)


def _gradients(loss: sg.Tensor, net: sg.nn.Module | None = None, **others: sg.Tensor) -> dict[str, Any]:
    """The gradients of a loss by name: by the parameters of a module, and by other tensors."""
    by = dict(net.named_parameters() if net is not None else ()) | others
    return {f"d {name}": slope for name, slope in zip(by, sg.gradients(loss, list(by.values())), strict=True)}


class _Layer(sg.nn.Module):
    """Causal attention and a feed-forward network: (places, width) to the same."""

    def __init__(self, dtype: DType, width: int, heads: int) -> None:
        self.heads = heads
        self.norm1, self.norm2 = (sg.nn.LayerNorm(width, dtype=dtype) for _ in range(2))
        self.qkv, self.out = (sg.nn.Linear(width, n * width, dtype=dtype) for n in (3, 1))
        self.up, self.down = sg.nn.Linear(width, 4 * width, dtype=dtype), sg.nn.Linear(4 * width, width, dtype=dtype)

    def forward(self, x: sg.Tensor) -> sg.Tensor:
        heads = self.qkv(self.norm1(x)).reshape((x.shape[0], 3, self.heads, -1))
        q, k, v = (sg.permute_dims(heads[:, i], (1, 0, 2)) for i in range(3))
        mixed = sg.nn.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(sg.permute_dims(mixed, (1, 0, 2)).reshape(x.shape))
        return x + self.down(sg.nn.gelu(self.up(self.norm2(x))))


class _GPT(sg.nn.Module):
    """Letters (places,) to scores (places, letters); ``embed`` comes first, the head has the embedding's weights."""

    def __init__(self, dtype: DType, letters: int, width: int, heads: int, layers: int, most: int) -> None:
        self.letter, self.place = (sg.nn.Embedding(n, width, dtype=dtype) for n in (letters, most))
        self.layers = sg.nn.ModuleList([_Layer(dtype, width, heads) for _ in range(layers)])
        self.norm = sg.nn.LayerNorm(width, dtype=dtype)

    def embed(self, letters: sg.Tensor) -> sg.Tensor:
        return self.letter(letters) + self.place(sg.arange(letters.shape[0]))

    def forward(self, x: sg.Tensor) -> sg.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


def gpt(
    dtype: DType = F64,
    letters: int = 29,
    width: int = 32,
    heads: int = 2,
    layers: int = 2,
    *,
    writes: bool = False,
    most: int = 256,
) -> SizedProgram:
    """A small GPT over an open length: the loss of a text with gradients, or the scores of the letter that follows."""

    def build() -> Declaration:
        length = sg.dim("length")
        text = sg.placeholder((length,), sg.int64, name="text")
        net = _GPT(dtype, letters, width, heads, layers, most)
        x = net.embed(text)
        y = net(x)
        if writes:
            return Declaration((text,), {"next": y[-1] @ net.letter.weight.T})
        following = sg.placeholder((length,), sg.int64, name="following")
        loss = sg.nn.cross_entropy(y @ net.letter.weight.T, following)
        return Declaration((text, following), {"loss": loss, **_gradients(loss, net, embedded=x)})

    def draw(rng: np.random.Generator, sizes: Sizes) -> tuple[Array, ...]:
        text = rng.integers(0, letters, sizes[0] + 1)
        return (text[:-1],) if writes else (text[:-1], text[1:])

    return SizedProgram("gpt_next" if writes else "gpt", ("length",), (most,), build, draw, is_growing=True)


def lstm(dtype: DType = F64, inputs: int = 5, hidden: int = 12, *, most: Sizes = (64, 64)) -> SizedProgram:
    """An LSTM over an open batch of sequences of an open length, with classes at each step."""
    classes = 4

    def build() -> Declaration:
        steps, batch = sg.dim("steps"), sg.dim("batch")
        x = sg.placeholder((steps, batch, inputs), dtype, name="x")
        labels = sg.placeholder((steps, batch), sg.int64, name="labels")
        net, head = sg.nn.LSTM(inputs, hidden, dtype=dtype), sg.nn.Linear(hidden, classes, dtype=dtype)
        states, (h, c) = net(x)
        loss = sg.nn.cross_entropy(head(states).reshape((-1, classes)), labels.reshape(-1))
        slopes = _gradients(loss, net, x=x, head=head.weight)
        return Declaration((x, labels), {"loss": loss, "states": states, "h": h, "c": c, **slopes})

    def draw(rng: np.random.Generator, sizes: Sizes) -> tuple[Array, ...]:
        return rng.standard_normal((*sizes, inputs)).astype(dtype), rng.integers(0, classes, sizes)

    return SizedProgram("lstm", ("steps", "batch"), most, build, draw)


# -- loops and matrices -----------------------------------------------------------------------------------------------


def lotka_volterra(dtype: DType = F64, *, most: int = 256) -> SizedProgram:
    """Prey and predators over an open number of Runge-Kutta steps, compared with what was seen at each."""
    dt = 0.05

    def build() -> Declaration:
        seen = sg.placeholder((None, 2), dtype, name="seen")
        start, rates = sg.placeholder((2,), dtype, name="start"), sg.placeholder((4,), dtype, name="rates")

        def slope(z: sg.Tensor) -> sg.Tensor:
            meetings = z[0] * z[1]
            return sg.stack([rates[0] * z[0] - rates[1] * meetings, rates[2] * meetings - rates[3] * z[1]])

        def step(z: sg.Tensor, _: None) -> tuple[sg.Tensor, sg.Tensor]:
            a = slope(z)
            b = slope(z + dt / 2 * a)
            c = slope(z + dt / 2 * b)
            z = z + dt / 6 * (a + 2 * b + 2 * c + slope(z + dt * c))
            return z, z

        last, path = sg.scan(step, start, None, length=seen.shape[0])
        loss = sg.mean((path - seen) ** 2)
        slopes = _gradients(loss, seen=seen, start=start, rates=rates)
        return Declaration((seen, start, rates), {"loss": loss, "last": last, "path": path, **slopes})

    def draw(rng: np.random.Generator, sizes: Sizes) -> tuple[Array, ...]:
        seen, start = rng.uniform(0.5, 2, (sizes[0], 2)), rng.uniform(0.5, 2, 2)
        return seen.astype(dtype), start.astype(dtype), np.array([1.1, 0.7, 0.6, 0.9], dtype)

    return SizedProgram("lotka_volterra", ("steps",), (most,), build, draw)


def distances(dtype: DType = F64, features: int = 3, *, most: Sizes = (128, 64)) -> SizedProgram:
    """Points and their nearest centers, open numbers of both: the squares of k-means, with gradients."""

    def build() -> Declaration:
        x = sg.placeholder((None, features), dtype, name="points")
        c = sg.placeholder((None, features), dtype, name="centers")
        squares = sg.sum(x * x, 1, keepdims=True) - 2 * (x @ c.T) + sg.sum(c * c, 1)
        nearest, least = sg.argmin(squares, 1), sg.min(squares, 1)
        total = sg.sum(least)
        slopes = _gradients(total, points=x, centers=c)
        return Declaration((x, c), {"nearest": nearest, "least": least, "total": total, **slopes})

    def draw(rng: np.random.Generator, sizes: Sizes) -> tuple[Array, ...]:
        return tuple(rng.standard_normal((n, features)).astype(dtype) for n in sizes)

    return SizedProgram("distances", ("points", "centers"), most, build, draw)


def gaussian_process(dtype: DType = F64, *, most: int = 128) -> SizedProgram:
    """The negative log likelihood of an open number of values under a Gaussian process, with gradients."""

    def build() -> Declaration:
        n = sg.dim("n")
        x, y = (sg.placeholder((n,), dtype, name=name) for name in "xy")
        logs = sg.Variable(np.array([0.3, 0.2, -0.1], dtype), name="logs")  # length scale, amplitude, noise
        squares = ((x[:, None] - x[None, :]) * sg.exp(-logs[0])) ** 2
        covariances = sg.exp(2 * logs[1] - 0.5 * squares) + sg.exp(2 * logs[2]) * sg.eye(n, dtype=dtype)
        factor = sg.linalg.cholesky(covariances)
        white = sg.linalg.solve_triangular(factor, y)
        loss = 0.5 * sg.sum(white**2) + sg.sum(sg.log(factor[sg.arange(n), sg.arange(n)]))
        return Declaration((x, y), {"loss": loss, "white": white, **_gradients(loss, logs=logs, x=x, y=y)})

    def draw(rng: np.random.Generator, sizes: Sizes) -> tuple[Array, ...]:
        x = rng.uniform(-4, 4, sizes)
        return x.astype(dtype), (np.sin(x) + rng.standard_normal(sizes)).astype(dtype)

    return SizedProgram("gaussian_process", ("n",), (most,), build, draw)


PROGRAMS = (
    mlp(), mlp(trains=True), convnet(), convnet(normed=True), gpt(), gpt(writes=True), lstm(), lotka_volterra(),
    distances(), gaussian_process(),
)  # fmt: skip
