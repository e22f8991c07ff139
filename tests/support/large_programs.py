"""Programs over large arrays, drawn from a seed: what users write, at sizes where caches, pages and threads matter.

Comes in: a seed. Goes out: a ``LargeProgram``: a declared graph, arrays to feed, values and gradients to fetch. Every
path of the emitter that begins beyond a cache, a page, a chunk or a threshold of sharing is meant to be taken by some;
``scale`` divides the number of elements, for targets whose limits are as many times lower.

A program is a chain of two to five ops of the families in ``large_families``, each applied to the result of the one
before and to operands that are views of fed arrays, of earlier results, or both. Values stay of moderate size, so that
two correct programs agree to rounding. What is drawn does not depend on the dtype that is declared: with ``wide`` a
float32 program is declared in float64 with the same values, which gives its reference.

From the seed ``LAYERS`` on programs are single convolutions with their gradients, as there are more ways to run one
than chains of all families would meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import staticgrad as sg
from staticgrad.graph.graph import Graph, Tensor
from support.large_draws import Array, Maker
from support.large_families import FAMILIES, STARTS, WEIGHTS
from support.large_networks import ACTIVATIONS, layer
from support.random_graphs import depends_on_any

NAMES = tuple(FAMILIES)
ODDS = np.array([WEIGHTS[name] for name in NAMES], float) / sum(WEIGHTS.values())

LAYERS = 1 << 30


@dataclass
class LargeProgram:
    """A declared graph, feeds with their arrays, results to fetch, its ops; ``stateful`` if a run changes variables."""

    seed: int
    scale: int
    dtype: np.dtype[Any]
    graph: Graph
    feeds: dict[Tensor, Array]
    fetches: list[Tensor]
    stateful: bool
    chain: list[str]
    ops: int | None = None

    def __str__(self) -> str:
        return f"seed {self.seed}, scale {self.scale}, {self.dtype}: {' -> '.join(self.chain)}"


def large_program(seed: int, *, scale: int = 1, ops: int | None = None, wide: bool = False) -> LargeProgram:
    """The program of a seed.

    Args:
        scale: by how much fewer elements its arrays have.
        ops: how many of its ops are kept, for finding the one that fails; default: all.
        wide: declare float64, whatever the program's dtype is.
    """
    rng = np.random.default_rng((seed, 15))
    if seed >= LAYERS:
        return _layer(seed, rng, scale, wide)
    dtype = np.dtype(np.float32 if rng.random() < 0.6 else np.float64)
    low, high = ((1.2e5, 4e5), (4e5, 9e5), (9e5, 2.5e6))[int(rng.choice(3, p=(0.85, 0.13, 0.02)))]
    elements = int(low * (high / low) ** rng.random()) // scale
    maker = Maker(rng, dtype, wide, elements, scale)
    chain: list[str] = []
    with Graph() as graph:
        theme = NAMES[int(rng.choice(len(NAMES), p=ODDS))]
        x = STARTS.get(theme, STARTS["pointwise"])(maker)
        chain.append(f"{theme} {tuple(x.shape)}")
        maker.pool.append(x)
        count = maker.number(2, 5)
        first = maker.number(0, 1)
        for position in range(count if ops is None else min(ops, count)):
            x = _grown(maker, x, theme if position == first else None, chain)
        fetches, stateful = _results(maker, x)
    fetches = list(dict.fromkeys(fetches))
    return LargeProgram(seed, scale, dtype, graph, maker.feeds, fetches, stateful, chain, ops)


def _layer(seed: int, rng: np.random.Generator, scale: int, wide: bool) -> LargeProgram:
    dtype = np.dtype(np.float32 if rng.random() < 0.7 else np.float64)
    maker = Maker(rng, dtype, wide, int(rng.choice((4e4, 1e5, 4e5))) // min(scale, 8), scale)
    with Graph() as graph:
        _, y = layer(maker)
        result = maker.choose(ACTIVATIONS)(y + maker.operand(y.shape)) if maker.chance(0.3) else y
        loss = sg.sum(result * maker.feed(result.shape))
        fetches = [result, *(g for g in sg.gradients(loss, maker.leaves[:2]) if g is not None)]
    name = f"{y.op.op.name} {tuple(y.shape)}"
    return LargeProgram(seed, scale, dtype, graph, maker.feeds, fetches, False, [name])


def _grown(maker: Maker, x: Tensor, theme: str | None, chain: list[str]) -> Tensor:
    """The result of one more op on ``x``, of the theme if that has one for it."""
    for _ in range(20):
        if theme is None and 20 * x.size < maker.elements and maker.chance(0.5):
            theme = "pointwise"  # most likely with an earlier value, which is large
        name = theme or NAMES[int(maker.rng.choice(len(NAMES), p=ODDS))]
        theme = None
        y = FAMILIES[name](maker, x)
        if y is not None and 0 < y.size <= maker.most and sg.isdtype(y.dtype, "real floating"):
            maker.pool.append(y)
            chain.append(f"{name}:{y.op.op.name} {tuple(y.shape)}")
            return y
    return x


def _results(maker: Maker, x: Tensor) -> tuple[list[Tensor], bool]:
    """What is fetched: values, gradients of a scalar of them, updated variables; and whether variables change."""
    fetches = [x] if maker.chance(0.8) else []
    if maker.chance(0.3):
        fetches.append(maker.choose(maker.pool))
    if not maker.chance(0.65) and fetches:
        return fetches, False
    loss = _loss(maker, x)
    variables = [v for v in maker.variables if v.size]
    if variables and maker.chance(0.7) and depends_on_any(loss, variables):
        optimizer = maker.choose((sg.optim.SGD(lr=0.1), sg.optim.SGD(lr=0.1, momentum=0.9), sg.optim.Adam(lr=0.01)))
        train = optimizer.minimize(loss, variables)
        with sg.control_dependencies([train]):
            return [*fetches, loss, *(sg.identity(v) for v in variables)], True
    count = min(len(maker.leaves), maker.number(1, 3))
    chosen = [maker.leaves[int(i)] for i in maker.rng.choice(len(maker.leaves), size=count, replace=False)]
    gradients = sg.gradients(loss, chosen, unconnected_gradients="zero")
    return [*fetches, *([loss] if maker.chance(0.5) else []), *(y for y in gradients if y is not None)], False


def _loss(maker: Maker, x: Tensor) -> Tensor:
    """A scalar in which every element of ``x`` has a weight of its own."""
    kind = maker.number(0, 3)
    if kind == 0:
        return sg.mean(x * x)
    if kind == 1:
        return sg.sum(sg.square(x - maker.operand(x.shape))) * (1 / x.size**0.5)
    if kind == 2:
        return sg.sum(x * maker.permuted(x.shape))
    return sg.sum(x * maker.feed(x.shape))
