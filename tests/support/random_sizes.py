"""Random programs with open sizes: drawn from a seed, with one to three sizes that their feeds bind.

A size is named (``sg.dim``), with or without ranges of its own, or it is ``None`` at each placeholder, so that the
compiler has to find out which sizes are one. The drawer reckons with probes: the numbers of all sizes at three
calls. Two sizes are the same to it if they are so at all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import staticgrad as sg
from staticgrad.base.extents import range_of
from staticgrad.base.types import Bindings, Size, Symbol, bind, stretches, symbols_of
from staticgrad.graph.graph import Graph, Tensor
from support.random_families import of_a_family
from support.random_graphs import Array, Maker, depends_on_any
from support.sampling import rng_for
from support.targets import EVERY

Sizes = tuple[int, ...]
Made = Tensor | None
ALWAYS = 16  # programs that are tried always
PROBES = ((20, 23, 18), (7, 5, 4), (2, 1, 3))  # numbers of the open sizes: large ones, middle ones, ends of slices
LARGEST = 12_000  # elements at the first probe
WIDEST = 50  # rows and columns of matrices, and turns of loops, at the first probe
ENDS: tuple[tuple[int, ...], ...] = ((), (), (), (8,), (24,), (5, 20))  # of the ranges of a size
# The letters are the open sizes.
SHAPES: tuple[tuple[int | str, ...], ...] = (
    ("n", 6), ("n", 6), ("n",), (4, "n"), ("n", "m"), ("m", "n"), ("n", 4, 6), (2, 3, "n", 5), ("n", 3, 6, 6), ("m",),
    ("n", 1), (3, "m", 6), ("m", 6), ("n", "m", 6), ("n", 2, "m", "l"), ("l", 6), ("l", "n"), ("n", "n"), (6, 6), (6,),
    (1, "n"), (3, 4), ("n", 33), ("m", "l", 3),
)  # fmt: skip


def setting(seed: int) -> dict[str, str]:
    """A target, how memory is shared, how many threads."""
    rng = np.random.default_rng([seed, 3])
    return {
        "STATICGRAD_TARGET": EVERY[int(rng.integers(len(EVERY)))],
        "STATICGRAD_MEMORY": ("plan", "poison", "poison", "none")[int(rng.integers(4))],
        "STATICGRAD_THREADS": str(rng.integers(1, 3)),
    }


@dataclass(frozen=True)
class Fed:
    """What is fed to a placeholder: floats, or indices (``kind`` is draw or permutation) below a size."""

    tensor: Tensor
    kind: str = "floats"
    below: Size = 0

    def draw(self, rng: np.random.Generator, bindings: Bindings) -> Array:
        shape, below = bind(self.tensor.shape, bindings), max(bind(self.below, bindings), 1)
        if self.kind == "floats":
            return rng.normal(size=shape).astype(self.tensor.dtype)
        if self.kind == "permutation":
            return rng.permutation(shape[0])
        return rng.integers(-below if self.kind == "both ends" else 0, below, size=shape)


@dataclass
class RandomSizes:
    """A declared graph over open sizes, with results to fetch, a scalar loss and what it is derived by.

    Attributes:
        names: of each open size, the symbols that are bound to it.
        ends: of each open size, the ends of its ranges, as declared.
        draws: True if results follow from the number of a call, too: random numbers, or variables that are updated.
    """

    seed: int
    graph: Graph
    names: list[list[Symbol]]
    ends: list[tuple[int, ...]]
    feeds: list[Fed]
    results: list[Tensor]
    loss: Tensor
    leaves: list[Tensor]
    train: Any
    draws: bool

    def bindings(self, sizes: Sizes) -> dict[Symbol, int]:
        return {symbol: size for symbols, size in zip(self.names, sizes, strict=True) for symbol in symbols}

    def arrays(self, sizes: Sizes) -> dict[Tensor, Array]:
        """What is fed at these sizes, always the same."""
        rng, bindings = rng_for("sizes", self.seed, sizes), self.bindings(sizes)
        return {fed.tensor: fed.draw(rng, bindings) for fed in self.feeds}

    def ranges(self, sizes: Sizes) -> tuple[Any, ...]:
        return tuple(range_of(size, ends) for size, ends in zip(sizes, self.ends, strict=True))

    @property
    def sizes(self) -> list[Sizes]:
        """The sizes of calls: ones, the first ranges' greatest, others of these ranges; the next range; zeros."""
        rng = rng_for("calls", self.seed)
        firsts = [range_of(1, ends)[1] for ends in self.ends]
        inner = [tuple(int(rng.integers(1, first + 1)) for first in firsts) for _ in range(3)]
        which = int(rng.integers(len(firsts)))
        beyond = int(rng.integers(firsts[which] + 1, range_of(firsts[which] + 1, self.ends[which])[1] + 1))
        found = [inner[0], (1,) * len(firsts), tuple(firsts), _with(inner[1], which, beyond), inner[1]]
        found.append(_with(inner[2], int(rng.integers(len(firsts))), 0))
        return list(dict.fromkeys(found))


def _with(sizes: Sizes, place: int, size: int) -> Sizes:
    return (*sizes[:place], size, *sizes[place + 1 :])


class SizeMaker(Maker):
    """Grows a pool of tensors whose sizes may be open."""

    def __init__(self, seed: int, dtype: np.dtype) -> None:
        super().__init__(seed)
        self.dtype = dtype
        count = self.number(1, 4)
        self.letters = "nml"[:count]
        self.ends = [ENDS[self.number(len(ENDS))] for _ in self.letters]
        named = [self.rng.random() < 0.6 or bool(ends) for ends in self.ends]
        self.dims = [
            (sg.dim(letter, ranges=ends) if ends else sg.dim(letter)) if is_named else None
            for letter, ends, is_named in zip(self.letters, self.ends, named, strict=True)
        ]
        self.names: list[list[Symbol]] = [[] for _ in self.letters]
        self.fed: list[Fed] = []
        self.draws = False

    # -- sizes ----------------------------------------------------------------------------------------------------

    def probed(self, sizes: Any, probe: int = 0) -> Any:
        """Sizes as the numbers that they are at a probe."""
        pairs = zip(self.names, PROBES[probe], strict=False)
        return bind(sizes, {symbol: number for symbols, number in pairs for symbol in symbols})

    def is_same(self, a: Any, b: Any) -> bool:
        return all(self.probed(a, probe) == self.probed(b, probe) for probe in range(len(PROBES)))

    def count_of(self, x: Tensor) -> int:
        return math.prod(self.probed(x.shape))

    def fed_with(self, shape: Sequence[Size | None], places: Sequence[int | None], kind: str, below: Size) -> Tensor:
        """A placeholder; ``places`` says which open size an axis is."""
        dtype = self.dtype if kind == "floats" else sg.int64
        x = sg.placeholder(tuple(shape), dtype, requires_grad=kind == "floats")
        for size, place in zip(x.shape, places, strict=True):
            if place is not None:
                self.names[place] += [symbol for symbol in symbols_of((size,)) if symbol not in self.names[place]]
        self.fed.append(Fed(x, kind, below))
        return x

    def indices(self, below: Size, kind: str = "both ends") -> Tensor:
        """A placeholder of an open number of indices, or of a known one."""
        place = self.number(len(self.letters)) if self.number(3) else None
        size = self.number(1, 6) if place is None else self.dims[place]
        return self.fed_with([size], [place], kind, below)

    def leaf(self) -> Tensor:
        shape = SHAPES[self.number(len(SHAPES))]
        places = [None if isinstance(s, int) else "nml".index(s) % len(self.letters) for s in shape]
        if all(place is None for place in places) and self.number(2):
            return sg.Variable(self.rng.normal(size=shape).astype(self.dtype))
        declared = [s if p is None else self.dims[p] for s, p in zip(shape, places, strict=True)]
        return self.fed_with(declared, places, "floats", 0)

    # -- what is drawn --------------------------------------------------------------------------------------------

    def one_of(self, *choices: Callable[[], Made]) -> Made:
        return choices[self.number(len(choices))]()

    def matrix(self) -> Made:
        return self.pick(lambda t: t.ndim >= 2 and max(self.probed(t.shape)) <= WIDEST and self.count_of(t) <= 6000)

    def binary(self) -> Made:
        x = self.pick()
        assert x is not None

        def fits(y: Tensor) -> bool:
            pairs = list(zip(x.shape[::-1], y.shape[::-1], strict=False))
            if not all(
                stretches(a) or stretches(b) or self.is_same(a, b) for a, b in pairs
            ):  # other open ones never do
                return False
            return math.prod(np.broadcast_shapes(self.probed(x.shape), self.probed(y.shape))) <= LARGEST

        y = self.pick(fits)
        return None if y is None else self.joined(x, y)

    def reduction(self) -> Made:
        if self.number(3):
            y = super().reduction()
            return sg.maximum(y, -50.0) if y is not None and y.op.op.name == "logsumexp" else y  # no infinities
        x = self.pick(lambda t: t.ndim > 0)
        if x is None:
            return None
        axis, keep = self.number(x.ndim), self.number(2) == 1
        y = self.squash(x)
        return self.one_of(
            lambda: sg.prod(y, axis, keepdims=keep),
            lambda: sg.astype(sg.argmax(x, axis, keepdims=keep), self.dtype) * 0.1,
            lambda: sg.astype(sg.argmin(x), self.dtype) * 0.01,
            lambda: sg.where(sg.any(x > 0.7, axis, keepdims=True), y, x),
            lambda: sg.astype(sg.all(x < 1.5, axis, keepdims=keep), self.dtype),
            lambda: sg.astype(sg.count_nonzero(x > 0.2, axis, keepdims=keep), self.dtype) * 0.1,
            lambda: sg.std(x * x + y, axis, keepdims=keep) if not keep else sg.max(sg.abs(x), keepdims=True),
            lambda: sg.linalg.vector_norm(x + 0.1, axis=axis, keepdims=keep),
        )

    def view(self) -> Made:
        x = self.pick(lambda t: t.ndim > 0)
        if x is None:
            return None
        axis, shape = self.number(x.ndim), x.shape
        before: tuple[Any, ...] = (slice(None),) * axis
        steps = [
            slice(1, None), slice(None, -1), slice(None, None, 2), slice(None, None, -1), slice(None, 1), 0, -1, None,
            slice(1, None), slice(None, -1), slice(None, None, 2), slice(None, None, -1), slice(1, None, 3),
            slice(-2, None), slice(1, -1), slice(None, None, -2), slice(-1, None), slice(3, None), slice(None, -4),
            slice(-5, None), slice(None, 5), slice(2, 6), slice(-6, -1), slice(5, None, -2), slice(-2, 0, -1),
            slice(None, shape[axis] - 1), slice(shape[axis] // 2, None),
        ]  # fmt: skip
        return self.one_of(
            lambda: sg.permute_dims(x, tuple(int(a) for a in self.rng.permutation(x.ndim))),
            lambda: sg.reshape(x, -1),
            lambda: sg.reshape(x, shape[::-1]),
            lambda: self.merged(x, axis),
            lambda: self.parted(x, axis),
            lambda: x[(*before, steps[self.number(len(steps))])],
            lambda: x[(*before, steps[self.number(len(steps))])],
            lambda: sg.concat([x, x * 0.5, self.squash(x)][: self.number(1, 4)], axis=axis),
            lambda: self.beside(x, axis),
            lambda: sg.stack([x, self.squash(x)], axis=axis),
            lambda: sg.pad(x, [(self.number(3), self.number(3)) for _ in shape]),
            lambda: sg.split(x, [1], axis=axis)[self.number(2)],
            lambda: sg.split(x, 2, axis=axis)[0] if not isinstance(shape[axis], int) else sg.split(x, [3, -2], axis)[1],
            lambda: sg.expand_dims(x, axis),
            lambda: sg.broadcast_to(x, (self.number(2, 4), *shape)),
            lambda: sg.where(sg.arange(shape[axis]) < self.number(1, 9), sg.moveaxis(x, axis, -1), 0.5),
        )

    def merged(self, x: Tensor, axis: int) -> Made:
        """Two axes as one."""
        if x.ndim < 2:
            return None
        axis = min(axis, x.ndim - 2)
        return sg.reshape(x, (*x.shape[:axis], x.shape[axis] * x.shape[axis + 1], *x.shape[axis + 2 :]))

    def parted(self, x: Tensor, axis: int) -> Made:
        """One axis as two."""
        size = x.shape[axis]
        if not isinstance(size, int) or size < 2:
            return None
        factor = [f for f in range(1, size + 1) if size % f == 0][-2]
        return sg.reshape(x, (*x.shape[:axis], factor, size // factor, *x.shape[axis + 1 :]))

    def beside(self, x: Tensor, axis: int) -> Made:
        """Along with another one that differs in the size of one axis."""

        def fits(y: Tensor) -> bool:
            return y.ndim == x.ndim and all(a == axis or self.is_same(x.shape[a], y.shape[a]) for a in range(x.ndim))

        y = self.pick(fits)
        return None if y is None else sg.concat([x, y], axis=axis)

    def matmul(self) -> Made:
        a = self.matrix() if self.number(4) else self.pick(lambda t: t.ndim == 1)
        if a is None:
            return None
        size = a.shape[-1]
        b = self.pick(lambda t: t.ndim in (1, 2, 3) and self.is_same(t.shape[-2 if t.ndim > 1 else 0], size))
        if b is None or (b.ndim == 3 and (a.ndim < 3 or not self.is_same(b.shape[0], a.shape[-3]))):
            b = sg.matrix_transpose(a) if a.ndim > 1 else a
        return self.squash(sg.matmul(a, b))

    def network(self) -> Made:
        x = self.pick(lambda t: t.ndim >= 2)
        if x is None:
            return None
        axis, size = self.number(x.ndim), x.shape[-1]
        return self.one_of(
            lambda: sg.nn.softmax(x, axis),
            lambda: sg.nn.log_softmax(x, axis),
            lambda: sg.nn.layer_norm(x, (size,)),
            lambda: sg.nn.rms_norm(x, (size,)),
            lambda: sg.nn.group_norm(x, 1),
            lambda: self.labelled(x),
            lambda: sg.nn.batch_norm(x, None, None, training=True) if x.shape[0] != 1 else None,
            lambda: (
                sg.nn.linear(x, sg.constant(self.values(5, size)), sg.constant(self.values(5)))
                if isinstance(size, int)
                else None
            ),
        )

    def values(self, *shape: int) -> Array:
        """Constants of moderate size."""
        values: Array = (self.rng.normal(size=shape) * 0.4).astype(self.dtype)
        return values

    def labelled(self, x: Tensor) -> Made:
        """Classes: the loss of scores, or numbers as vectors."""
        classes = x.shape[-1]
        if not isinstance(classes, int):
            return None
        if self.number(3) == 0:
            return sg.astype(sg.nn.one_hot(self.indices(classes, "from 0"), classes), self.dtype) * 0.5
        rows = sg.reshape(x, (-1, classes))
        labels = self.fed_with([rows.shape[0]], [None], "from 0", classes)
        return sg.nn.cross_entropy(rows, labels, reduction=("none", "mean", "sum")[self.number(3)])

    def images(self) -> Made:
        """Convolutions and poolings of what is seen as images: some channels, sizes that are at least 3 at a probe."""

        def fits(t: Tensor) -> bool:
            if t.ndim < 3 or t.ndim > 4 or self.count_of(t) > 6000 or min(self.probed(t.shape[-2:])) < 3:
                return False
            return t.ndim == 3 or isinstance(t.shape[1], int)

        x = self.pick(fits)
        if x is None:
            return None
        x = x if x.ndim == 4 else sg.expand_dims(x, 1)
        channels = int(x.shape[1])
        step, spread, wide = self.number(1, 3), self.number(1, 3), self.number(2)
        return self.one_of(
            lambda: sg.tanh(sg.nn.conv2d(x, self.values(3, channels, 3, 3), stride=step, padding=1 + wide)),
            lambda: sg.tanh(sg.nn.conv2d(x, self.values(17, channels, 1, 1))),
            lambda: sg.tanh(sg.nn.conv2d(x, self.values(2, channels, 3, 2), padding=2, dilation=spread)),
            lambda: sg.tanh(
                sg.nn.conv2d(x, self.values(2 * channels, 1, 3, 2), stride=step, padding=2, groups=channels)
            ),
            lambda: sg.tanh(sg.nn.conv_transpose2d(x, self.values(channels, 2, 2, 3), stride=step, padding=wide)),
            lambda: sg.tanh(sg.nn.conv1d(sg.mean(x, 2), self.values(5, channels, 3), padding=1)),
            lambda: sg.nn.max_pool2d(x, 2, stride=step, padding=wide),
            lambda: sg.nn.avg_pool2d(x, 2, stride=step),
        )

    def attention(self) -> Made:
        x = self.matrix()
        if x is None:
            return None
        y = self.pick(
            lambda t: t.ndim == x.ndim and self.is_same((*t.shape[:-2], t.shape[-1]), (*x.shape[:-2], x.shape[-1]))
        )
        function = sg.nn.scaled_dot_product_attention
        if y is not None and self.number(2):
            return function(x, y, sg.tanh(y), scale=0.4)
        return function(x, sg.flip(x, axis=-2), sg.tanh(x), is_causal=self.number(2) == 1, scale=0.4)

    def product(self) -> Made:
        """Contractions of two tensors, and factorisations."""
        x = self.matrix()
        if x is None:
            return None
        wide = sg.tanh(x)

        def square() -> Tensor:
            size = x.shape[-1]
            return sg.matmul(sg.matrix_transpose(wide), wide) + sg.eye(size, dtype=self.dtype) * (1.0 + self.number(9))

        return self.one_of(
            lambda: self.squash(sg.einsum("...ij,...kj->...ik", x, x * 0.5)),
            lambda: self.squash(sg.einsum("...ij,...j->...i", x, x[..., 0, :])),
            lambda: self.squash(sg.einsum("...ij,...ik->...jk", x, wide)),
            lambda: self.squash(sg.einsum("ij,kj,kl->il", *[sg.reshape(x, (-1, x.shape[-1]))] * 3)),
            lambda: sg.linalg.cholesky(square()),
            lambda: sg.linalg.solve(square(), sg.matrix_transpose(x)),
            lambda: sg.linalg.solve_triangular(square(), sg.matrix_transpose(x)),
            lambda: sg.linalg.slogdet(square())[1] if isinstance(x.shape[-1], int) else None,
            lambda: sg.linalg.inv(square()) if isinstance(x.shape[-1], int) else None,
            lambda: sg.tril(x) if self.number(2) else sg.triu(x, 1),
        )

    def arrangement(self) -> Made:
        """Sorts, running sums, and elements in other places."""
        x = self.pick(lambda t: t.ndim > 0)
        if x is None:
            return None
        axis = self.number(x.ndim)
        return self.one_of(
            lambda: sg.sort(x, axis=axis, descending=self.number(2) == 1),
            lambda: sg.topk(x, min(self.number(1, 3), self.probed(x.shape[axis], 1)), axis)[0],
            lambda: sg.take_along_axis(x * 0.5, sg.argsort(x, axis=axis), axis=axis),
            lambda: self.squash(sg.cumulative_sum(x, axis=axis, include_initial=self.number(2) == 1)),
            lambda: sg.cumulative_prod(self.squash(x), axis=axis),
            lambda: sg.roll(x, self.number(-6, 7), axis=axis),
            lambda: sg.repeat(x, self.number(1, 4), axis=axis),
            lambda: sg.tile(x, (2,)),
            lambda: sg.flip(x, axis=axis),
            lambda: sg.diff(x, axis=axis),
            lambda: sg.take_along_axis(x, sg.expand_dims(sg.argmax(x, axis=axis), axis=axis), axis=axis),
        )

    def indexed(self) -> Made:
        """Reads and writes at indices that are fed."""
        x = self.pick(lambda t: t.ndim > 0)
        if x is None:
            return None
        axis, rows = self.number(x.ndim), x.shape[0]
        kind = self.number(5)
        if kind == 0:
            return sg.take(x, self.indices(x.shape[axis]), axis=axis)
        if kind == 1:
            return sg.take(x, sg.constant(self.rng.integers(-1, 1, size=self.number(1, 5))), axis=axis)
        if kind == 2:
            i = self.indices(rows)
            return x[i] * 0.5 if x.ndim == 1 else x[i, i % 1]
        if kind == 3:
            order = self.fed_with([rows], [None], "permutation", rows)
            return sg.scatter(x, order, self.squash(x) * 0.5)
        index = self.indices(rows)
        updates = sg.tanh(x[index]) * 0.5 + 0.3
        return sg.scatter(x, index, updates, mode=("add", "max", "min", "set")[self.number(4)])

    def loop(self) -> Made:
        x = self.matrix()
        if x is None:
            return None
        backwards, size, probed = self.number(2) == 1, x.shape[-1], self.probed(x.shape)
        zeros = sg.zeros(x.shape[1:], dtype=self.dtype)
        if isinstance(size, int):  # small ones: what is chaotic differs by more than rounding
            mixed = sg.constant(self.values(size, size) / self.dtype.type(math.sqrt(size)))
        elif x.ndim == 2:
            mixed = sg.nn.softmax(sg.matmul(sg.matrix_transpose(x), x), -1) * 0.8
        else:
            mixed = sg.eye(size, dtype=self.dtype) * 0.9
        return self.one_of(
            lambda: sg.scan(lambda c, row: (sg.tanh(c * 0.5 + row), c - row), x[0], x, reverse=backwards)[1],
            lambda: sg.scan(
                lambda c, row: (sg.sin(sg.matmul(c, mixed) + row), None), zeros, x, reverse=backwards
            )[0],
            lambda: sg.scan(
                lambda c, row: ((sg.tanh(c[0] + row) * 0.5, sg.cos(c[1] * row)), sg.nn.softmax(c[0] * row, -1)),
                (zeros, sg.ones_like(zeros)), x, reverse=backwards,
            )[1],
            lambda: sg.map(lambda row: sg.nn.softmax(row * 0.5) if row.ndim else sg.tanh(row), x),
            lambda: sg.cond(sg.sum(x) > 0.0123, lambda: sg.sin(x), lambda: x * sg.mean(x, 0) * 0.1),
            lambda: sg.while_loop(
                lambda s: s[1] < 3,
                lambda s: (sg.cos(s[0]) + x * 0.1, s[1] + 1),
                (x, 0),
                max_steps=self.number(2, 5),
            )[0],
            lambda: sg.while_loop(
                lambda s: s[1] < x.shape[0],
                lambda s: (sg.sin(s[0] + x[s[1]]), s[1] + 1),
                (zeros, 0),
                max_steps=probed[0],
            )[0],
        )  # fmt: skip

    def random(self) -> Made:
        x = self.pick()
        assert x is not None
        self.draws = True
        return self.one_of(
            lambda: sg.nn.dropout(x, 0.3, training=True),
            lambda: x + sg.random.normal(x.shape, dtype=self.dtype) * 0.1,
            lambda: x * sg.random.uniform(x.shape, dtype=self.dtype),
            lambda: sg.where(sg.random.bernoulli(0.4, x.shape), x, x * 0.2),
        )

    def derived(self) -> Made:
        """A gradient or a tangent, of which there may be derivatives again."""
        y = self.pick(lambda t: t.requires_grad and self.count_of(t) <= 3000)
        x = self.pick(lambda t: t.is_leaf and t.requires_grad)
        if y is None or x is None:
            return None
        loss = sg.sum(sg.sin(y))
        if self.number(2):
            return self.squash(sg.jvp(loss, [x], [sg.cos(x)])[0])
        return self.squash(sg.gradients(loss, x, unconnected_gradients="zero")[0])

    def grow_with_sizes(self, count: int, families: bool = False) -> None:
        makers = 2 * [self.unary, self.binary, self.reduction, self.view, self.network, self.arrangement]
        makers += 2 * [self.images, self.product, self.indexed, self.loop]
        makers += [self.view, self.matmul, self.attention, self.vectorized, self.derived]
        makers += [self.random] if self.number(4) == 0 else []
        makers += [partial(of_a_family, self)] * len(makers) if families else []
        for _ in range(count):
            maker = makers[self.number(len(makers))]
            self.add(*self.twice(maker) if self.rng.random() < 0.1 else [maker()])

    def add(self, *made: Made) -> None:
        """Take into the pool what has elements, and not too many."""
        for y in made:
            if y is not None and 0 < self.count_of(y) <= LARGEST and min(self.probed(y.shape, 1), default=1) > 0:
                self.pool.append(y)


def random_sizes(seed: int, *, ops: int = 10, dtype: np.dtype = sg.float64, families: bool = False) -> RandomSizes:
    """A graph of a few random ops over leaves of open sizes, with a loss and now and then an update.

    Args:
        families: half of the ops are functions of families, with their options; consecutive seeds begin with
            consecutive families.
    """
    maker = SizeMaker(seed, dtype)
    rng, graph = maker.rng, Graph()
    with graph:
        leaves = [maker.leaf() for _ in range(maker.number(1, 4))]
        if not any(maker.names):
            leaves.append(maker.fed_with([maker.dims[0], 6], [0, None], "floats", 0))
        maker.pool = list(leaves)
        if families:
            maker.add(of_a_family(maker, seed))
        maker.grow_with_sizes(maker.number(2, ops + 1), families)
        made = maker.pool[len(leaves) :] or maker.pool
        results = [made[int(i)] for i in rng.choice(len(made), size=min(len(made), 3), replace=False)]
        loss = sg.constant(np.array(0.0, dtype))
        for y in results:
            loss = loss + (sg.mean(y * y) * 0.5 if maker.number(3) == 0 else sg.sum(sg.sin(y)) * 0.1)
        variables = [x for x in leaves if x.op.op.name == "variable"]
        updates = bool(variables) and rng.random() < 0.5 and depends_on_any(loss, variables)
        train = sg.optim.SGD(lr=0.1, momentum=0.9).minimize(loss, variables) if updates else None
    used = [place for place, symbols in enumerate(maker.names) if symbols]
    names, ends = [maker.names[place] for place in used], [maker.ends[place] for place in used]
    draws = maker.draws or train is not None
    return RandomSizes(seed, graph, names, ends, maker.fed, results, loss, leaves, train, draws)
