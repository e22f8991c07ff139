"""Random graphs: valid programs drawn from a seed, with everything that fusion, layout and planning must get right.

Values stay of moderate size (what grows is squashed), so that two correct programs agree to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import staticgrad as sg
from staticgrad.graph.graph import Graph, Tensor

Array = np.ndarray[Any, np.dtype[Any]]
TWICE = 0.15  # of what is drawn is declared twice
DRAWN_LOG = sg.op("drawn_log", lambda x: sg.log(x * x + 1.0))
DRAWN_RATIO = sg.op(
    "drawn_ratio",
    lambda x, y: x / (y * y + 1.0),
    reference=lambda x, y: x / (y * y + 1.0),
    derivative=lambda g, x, y, z: (g / (y * y + 1.0), g * z * y * -2.0 / (y * y + 1.0)),
)
SHAPES = ((4, 6), (6,), (4, 1), (1, 6), (3, 4, 6), (2, 3, 6, 6), (5,), (4, 4), (3, 17))


@dataclass
class RandomGraph:
    """A declared graph with its feeds, results to fetch, and a scalar loss to differentiate."""

    graph: Graph
    feeds: dict[Tensor, Array]
    results: list[Tensor]
    loss: Tensor
    leaves: list[Tensor]
    train: Any = None
    pool: list[Tensor] = field(default_factory=list)


class Maker:
    """Grows a pool of tensors by one random op at a time."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.pool: list[Tensor] = []
        self.feeds: dict[Tensor, Array] = {}

    def pick(self, test: Callable[[Tensor], bool] = lambda x: True) -> Tensor | None:
        found = [x for x in self.pool if test(x)]
        return found[int(self.rng.integers(len(found)))] if found else None

    def squash(self, x: Tensor) -> Tensor:
        return sg.tanh(x) if self.rng.random() < 0.7 else sg.nn.sigmoid(x)

    def unary(self) -> Tensor | None:
        x = self.pick()
        assert x is not None
        functions: list[Callable[[Tensor], Tensor]] = [
            sg.tanh, sg.exp, sg.nn.sigmoid, sg.nn.relu, sg.nn.gelu, sg.nn.softplus, sg.abs, sg.negative, sg.square,
            lambda v: sg.sqrt(v * v + 0.5), DRAWN_LOG, lambda v: v / 3.0, lambda v: 2.0 - v,
            lambda v: sg.where(v > 0.1, v, v * 0.25), lambda v: v**3, sg.erf, sg.sin, lambda v: sg.clip(v, -0.5, 0.7),
        ]  # fmt: skip
        y = functions[int(self.rng.integers(len(functions)))](x)
        return y if self.rng.random() < 0.7 else self.squash(y)

    def binary(self) -> Tensor | None:
        x = self.pick()
        assert x is not None

        def fits(y: Tensor) -> bool:
            try:
                return np.prod(np.broadcast_shapes(x.shape, y.shape)) <= 600
            except ValueError:
                return False

        y = self.pick(fits)
        return None if y is None else self.joined(x, y)

    def joined(self, x: Tensor, y: Tensor) -> Tensor:
        """A function of two tensors that broadcast."""
        functions: list[Callable[[Tensor, Tensor], Tensor]] = [
            lambda a, b: a + b, lambda a, b: a - b, lambda a, b: self.squash(a * b), sg.maximum, sg.minimum,
            DRAWN_RATIO, lambda a, b: sg.where(a > b, a, b * 0.5),
        ]  # fmt: skip
        return functions[int(self.rng.integers(len(functions)))](x, y)

    def reduction(self) -> Tensor | None:
        x = self.pick(lambda t: t.ndim > 0)
        if x is None:
            return None
        axes = tuple(int(a) for a in np.flatnonzero(self.rng.random(x.ndim) < 0.5)) or (int(self.rng.integers(x.ndim)),)
        keep = bool(self.rng.random() < 0.6)
        kind = int(self.rng.integers(6))
        y = [sg.sum, sg.mean, sg.max, sg.min, sg.logsumexp, sg.var][kind](x, axes, keepdims=keep)
        return self.squash(y) if kind == 0 else y

    def view(self) -> Tensor | None:
        x = self.pick(lambda t: t.ndim > 0)
        if x is None:
            return None
        shape = tuple(int(s) for s in x.shape)
        kind = int(self.rng.integers(7))
        if kind == 0:
            return sg.permute_dims(x, tuple(int(a) for a in self.rng.permutation(x.ndim)))
        if kind == 1:
            size = int(np.prod(shape))
            factors = [f for f in range(1, size + 1) if size % f == 0]
            f = factors[int(self.rng.integers(len(factors)))]
            return sg.reshape(x, (f, size // f))
        if kind == 2:
            axis = int(self.rng.integers(x.ndim))
            steps = [slice(None)] * x.ndim
            choices = [
                slice(0, max(1, shape[axis] // 2)),
                slice(shape[axis] // 2, None),
                slice(None, None, 2),
                slice(None, None, -1),
            ]
            steps[axis] = choices[int(self.rng.integers(4))]
            return x[tuple(steps)]
        if kind == 3:
            axis = int(self.rng.integers(x.ndim))
            return sg.concat([x, x * 0.5, self.squash(x)][: int(self.rng.integers(1, 4))], axis=axis)
        if kind == 4 and int(np.prod(shape)) < 200:
            return sg.pad(x, [(int(self.rng.integers(3)), int(self.rng.integers(3))) for _ in shape])
        if kind == 5:
            index = self.rng.integers(0, shape[0], size=(int(self.rng.integers(1, 5)),))
            return sg.take(x, sg.constant(index), axis=0)
        return sg.expand_dims(x, axis=int(self.rng.integers(x.ndim + 1))) if x.ndim < 4 else None

    def matmul(self) -> Tensor | None:
        a = self.pick(lambda t: t.ndim >= 1 and t.size < 500)
        if a is None:
            return None
        b = self.pick(lambda t: t.ndim in (1, 2) and t.shape[-2 if t.ndim == 2 else 0] == a.shape[-1])
        return None if b is None else self.squash(sg.matmul(a, b))

    def network(self) -> Tensor | None:
        kind = int(self.rng.integers(6))
        x = self.pick(lambda t: t.ndim == 4 and t.shape[-1] >= 4 and t.shape[-2] >= 4)
        if kind <= 2 and x is not None:
            channels = int(x.shape[1])
            if kind == 0:
                w = sg.constant(self.rng.normal(size=(3, channels, 3, 3)) * 0.3)
                return sg.tanh(
                    sg.nn.conv2d(x, w, stride=int(self.rng.integers(1, 3)), padding=int(self.rng.integers(2)))
                )
            if kind == 1:
                return sg.nn.max_pool2d(x, 2, stride=int(self.rng.integers(1, 3)), padding=int(self.rng.integers(2)))
            return sg.nn.avg_pool2d(x, 2)
        y = self.pick(lambda t: t.ndim >= 2)
        if y is None:
            return None
        if kind == 3:
            return sg.nn.softmax(y, -1)
        if kind == 4:
            return sg.nn.layer_norm(y, (y.shape[-1],))
        return sg.nn.log_softmax(y, int(self.rng.integers(y.ndim)))

    def number(self, *below: int) -> int:
        """One of ``range(*below)``."""
        return int(self.rng.integers(*below))

    def leaves(self, count: int, dtype: np.dtype) -> tuple[list[Tensor], dict[Tensor, Array]]:
        """The first of the pool: variables and placeholders, which require gradients, with what is fed."""
        for _ in range(count):
            shape = SHAPES[self.number(len(SHAPES))]
            value = self.rng.normal(size=shape).astype(dtype)
            if self.rng.random() < 0.3:
                self.pool.append(sg.Variable(value))
            else:
                x = sg.placeholder(shape, dtype, requires_grad=True)
                self.feeds[x] = value
                self.pool.append(x)
        return list(self.pool), self.feeds

    def matrix(self) -> Tensor | None:
        """A tensor of two axes or more, none of which is long."""
        return self.pick(lambda t: t.ndim >= 2 and max(t.shape) <= 24)

    def arrangement(self) -> Tensor | None:
        """Sorts, running sums, and elements in other places."""
        x = self.pick(lambda t: t.ndim > 0)
        if x is None:
            return None
        axis, kind = self.number(x.ndim), self.number(9)
        size = int(x.shape[axis])
        if kind == 0:
            way = self.number(3)
            return sg.sort(x, axis=axis, descending=way == 1) if way else sg.topk(x, (size + 1) // 2, axis)[0]
        if kind == 1:
            return sg.take_along_axis(x * 0.5, sg.argsort(x, axis=axis), axis=axis)
        if kind == 2:
            return self.squash(sg.cumulative_sum(x, axis=axis, include_initial=self.number(2) == 1))
        if kind == 3:
            return sg.cumulative_prod(self.squash(x), axis=axis)
        if kind == 4:
            return sg.roll(x, self.number(-size, size + 1), axis=axis)
        if kind == 5:
            return sg.repeat(x, self.rng.integers(0, 3, size=size), axis=axis)
        if kind == 6:
            return sg.tile(x, (2,)) if x.size < 200 else sg.flip(x)
        if kind == 7:
            return sg.diff(x, axis=axis) if size > 1 else None
        return sg.take_along_axis(x, sg.expand_dims(sg.argmax(x, axis=axis), axis=axis), axis=axis)

    def scattered(self) -> Tensor | None:
        x = self.pick(lambda t: t.ndim > 0)
        if x is None:
            return None
        rows, mode = int(x.shape[0]), ("set", "add", "max", "min")[self.number(4)]
        count = self.number(1, rows + 1)
        index = self.rng.permutation(rows)[:count] if mode == "set" else self.rng.integers(-rows, rows, size=count)
        updates = x[sg.constant(self.rng.integers(0, rows, size=count))] * 0.5 + 0.3
        return sg.scatter(x, sg.constant(index), updates, mode=mode)

    def loop(self) -> Tensor | None:
        x = self.matrix()
        if x is None:
            return None
        kind, backwards = self.number(5), self.number(2) == 1
        other = self.pick(lambda t: t.shape == x.shape[1:])
        first = x[0] if other is None else other
        if kind == 0:
            return sg.scan(lambda c, row: (sg.tanh(c * 0.5 + row), c - row), first, x, reverse=backwards)[1]
        if kind == 1:
            mixed = self.rng.normal(size=(int(x.shape[-1]),) * 2) * 0.4
            return sg.scan(lambda c, row: (sg.sin(sg.matmul(c, mixed) + row), None), first, x, reverse=backwards)[0]
        if kind == 2:
            return sg.map(lambda row: sg.nn.softmax(row * 0.5) if row.ndim else sg.tanh(row), x)
        if kind == 3:  # the sum of what is centred is zero but for rounding errors, whose sign is nobody's to promise
            return sg.cond(sg.sum(x) > 0.0123, lambda: sg.sin(x), lambda: x * x[0] * 0.1)
        return sg.while_loop(
            lambda s: s[1] < 3,
            lambda s: (sg.cos(s[0]) + first * 0.1, s[1] + 1),
            (first, 0),
            max_steps=self.number(2, 5),
        )[0]

    def vectorized(self) -> Tensor | None:
        x = self.matrix()
        if x is None:
            return None
        if self.number(2):
            return sg.vmap(lambda row: sg.tanh(row) * sg.sum(row * 0.2))(x)
        return sg.vmap(lambda row: sg.sort(row, axis=0) - sg.mean(row), in_axes=x.ndim - 1, out_axes=0)(x)

    def product(self) -> Tensor | None:
        """Contractions, attention and factorisations of small matrices."""
        x = self.matrix()
        if x is None or x.size > 600:
            return None
        kind, size = self.number(6), int(x.shape[-1])
        if kind == 0:
            return self.squash(sg.einsum("...ij,...kj->...ik", x, x * 0.5))
        if kind == 1:
            return self.squash(sg.einsum("...ij,...j->...i", x, x[..., 0, :]))
        square = sg.matmul(sg.matrix_transpose(sg.tanh(x)), sg.tanh(x)) + np.eye(size) * (1.0 + size)
        if kind == 2:
            return sg.linalg.cholesky(square)
        if kind == 3:
            return sg.linalg.solve(square, sg.matrix_transpose(x))
        if kind == 4:
            return sg.linalg.slogdet(square)[1]
        causal = self.number(2) == 1
        return sg.nn.scaled_dot_product_attention(x, sg.flip(x, axis=-2), sg.tanh(x), is_causal=causal)

    def images(self) -> Tensor | None:
        """Other convolutions, poolings and norms, on whatever is seen as images."""
        x = self.pick(lambda t: t.ndim >= 2 and min(t.shape[-2:]) >= 3 and t.size <= 500)
        if x is None:
            return None
        x = sg.reshape(x, (*(1,) * (4 - x.ndim), *x.shape)) if x.ndim < 4 else x
        if x.ndim > 4:
            return None
        n, channels, height, width = (int(s) for s in x.shape)
        kind, step, spread = self.number(8), self.number(1, 3), self.number(1, 3)
        if kind == 0:
            w = self.rng.normal(size=(channels, 2, 2, 3)) * 0.3
            return sg.tanh(sg.nn.conv_transpose2d(x, w, stride=step, padding=1, dilation=spread))
        if kind == 1:
            w = self.rng.normal(size=(2 * channels, 1, 3, 2)) * 0.3
            return sg.tanh(sg.nn.conv2d(x, w, stride=step, padding=2, groups=channels, dilation=spread))
        if kind == 2:
            w = self.rng.normal(size=(5, height, 3)) * 0.3
            return sg.tanh(sg.nn.conv1d(sg.reshape(x, (n * channels, height, width)), w, padding="same"))
        if kind == 3:
            return sg.nn.max_pool2d(x, (2, 3), stride=step, padding=1, dilation=1, ceil_mode=True)
        if kind == 4:
            return sg.nn.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True, count_include_pad=step == 1)
        if kind == 5:
            return sg.nn.interpolate(
                x, (self.number(1, 9), self.number(1, 9)), mode="bilinear" if step == 1 else "nearest"
            )
        if kind == 6:
            return sg.nn.batch_norm(x, None, None, training=True) if n * height * width > 1 else None
        return sg.nn.pad(x, (1, 2, 2, 0), mode=("reflect", "replicate", "circular")[self.number(3)])

    def grow(self, count: int, advanced: bool) -> None:
        makers = [
            self.unary,
            self.unary,
            self.binary,
            self.binary,
            self.reduction,
            self.view,
            self.matmul,
            self.network,
        ]
        if advanced:
            makers += 2 * [self.arrangement, self.scattered, self.loop, self.vectorized, self.product, self.images]
        for _ in range(count):
            maker = makers[int(self.rng.integers(len(makers)))]
            self.add(*self.twice(maker) if self.rng.random() < TWICE else [maker()])

    def twice(self, maker: Callable[[], Tensor | None]) -> list[Tensor | None]:
        """What a maker declares, declared once more: the same ops of the same operands."""
        state = self.rng.bit_generator.state
        first = maker()
        self.rng.bit_generator.state = state
        return [first, maker()]

    def add(self, *made: Tensor | None) -> None:
        """Take into the pool what is neither empty nor large."""
        self.pool += [y for y in made if y is not None and y.size and y.size <= 1500]


def depends_on_any(loss: Tensor, variables: list[Tensor]) -> bool:
    """True if some variable has a gradient: an optimizer refuses a loss that none of its variables reaches."""
    return any(gradient is not None for gradient in sg.gradients(loss, variables))


def random_graph(seed: int, *, ops: int = 14, advanced: bool = False, dtype: np.dtype = sg.float64) -> RandomGraph:
    """A graph of about ``ops`` random ops over fed leaves and variables of ``dtype``, with a loss and an update.

    Args:
        advanced: draw loops, sorts, scatters, batched functions, factorisations and more of convolutions as well.
    """
    maker = Maker(seed)
    rng = maker.rng
    graph = Graph()
    with graph:
        leaves, feeds = maker.leaves(maker.number(2, 5), dtype)
        maker.grow(int(rng.integers(3, ops + 1)), advanced)
        made = maker.pool[len(leaves) :] or maker.pool
        chosen = [made[int(i)] for i in rng.choice(len(made), size=min(len(made), 3), replace=False)]
        loss = sg.mean(chosen[0])
        for y in chosen[1:]:
            loss = loss + sg.mean(y * y) * 0.5
        variables = [x for x in leaves if x.op.op.name == "variable"]
        updates = bool(variables) and rng.random() < 0.7 and depends_on_any(loss, variables)
        train = sg.optim.SGD(lr=0.1, momentum=0.9).minimize(loss, variables) if updates else None
    return RandomGraph(graph, feeds, [*chosen, loss], loss, leaves, train, maker.pool)


# -- derivatives in bodies and rules ------------------------------------------------------------------------------


@dataclass
class Twins:
    """Derivatives declared plainly, and the same ones declared inside bodies or through rules that derive."""

    graph: Graph
    feeds: dict[Tensor, Array]
    plain: list[Tensor]
    inside: list[Tensor]


def random_twins(seed: int, *, ops: int = 6) -> Twins:
    """A derivative of about ``ops`` random ops by one of their leaves, declared twice: plainly, and in up to three
    nested bodies, maybe through a custom gradient whose rule calls ``sg.gradients``; and derivatives of both again."""
    maker = Maker(seed)
    graph = Graph()
    with graph:
        leaves, feeds = maker.leaves(maker.number(1, 4), sg.float64)
        maker.grow(maker.number(1, ops + 1), advanced=True)
        x = leaves[maker.number(len(leaves))]
        made = [y for y in maker.pool[len(leaves) :] if any(g is not None for g in sg.gradients(y, [x]))] or [x]
        y, kind = made[maker.number(len(made))], maker.number(3)
        own = _deriving if maker.number(2) else _linked
        nested = [maker.number(6) for _ in range(maker.number(1, 4))]
        plain = _derived(kind, y, x, _linked)
        inside = _nested(nested, lambda: _derived(kind, y, x, own), plain)
        results = []
        for z in (plain, inside):
            loss = sg.sum(sg.sin(z))
            slope = sg.gradients(loss, x, unconnected_gradients="zero")[0]
            results.append([z, slope, *sg.jvp(loss, x, np.ones(x.shape))])
    return Twins(graph, feeds, *results)


def _linked(a: Tensor, b: Tensor) -> Tensor:
    return sg.tanh(a) * sg.cos(b) + a * 0.3


@sg.custom_gradient
def _deriving(a: Tensor, b: Tensor) -> Any:
    """The same function with a rule that derives it anew, from the weighted sum of its results."""
    return _linked(a, b), lambda ct: sg.gradients(sg.sum(_linked(a, b) * ct), [a, b])


def _derived(kind: int, y: Tensor, x: Tensor, link: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """A gradient, a tangent or the product of a Hessian and a vector; part of what is derived is declared here."""
    z = link(y, sg.sin(y))  # of operands that depend on each other
    loss = sg.sum(sg.sin(z)) + sg.sum(x * x) * sg.mean(z)
    if kind == 0:
        return sg.jvp(z * sg.sum(x), x, np.ones(x.shape))[0]
    (slope,) = sg.gradients(loss, x)
    return slope if kind == 1 else sg.jvp(slope, x, np.full(x.shape, 0.5))[0]


def _nested(kinds: Sequence[int], make: Callable[[], Tensor], like: Tensor) -> Tensor:
    """The value of ``make``, called inside bodies of these kinds, the first one outermost."""
    if not kinds:
        return make()
    zeros, parts = sg.zeros(like.shape, dtype=sg.float64), sg.constant(np.array([0.25, 0.75]))

    def value() -> Tensor:
        return _nested(kinds[1:], make, like)

    bodies: list[Callable[[], Tensor]] = [
        lambda: sg.scan(lambda c, part: (c + value() * part, None), zeros, parts)[0],
        lambda: sg.sum(sg.map(lambda part: value() * part, parts), axis=0),
        lambda: sg.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] + value() / 2), (0, zeros), max_steps=3)[1],
        lambda: sg.cond(sg.sum(parts) > 0.5, value, lambda: zeros),
        lambda: sg.sum(sg.vmap(lambda part: value() * part)(parts), axis=0),
        lambda: sg.checkpoint(lambda part: value() * part, sg.sum(parts)),
    ]
    return bodies[kinds[0]]()
