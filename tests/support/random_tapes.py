"""Random tapes: programs drawn from a seed, and the backwards that are asked for, with what they must add up to.

A tape may consume what it keeps or retain it, share memory or not, and is compared with gradients that one run
computes. Programs are small: nearly all the time goes into compiling them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import staticgrad as sg
from staticgrad.compiler.autodiff.retention import Retention, passed_nodes, saved_tensors
from staticgrad.graph.graph import Graph, Tensor
from support.budgets import within
from support.random_graphs import Array, Maker

Made = Tensor | None


@dataclass(frozen=True)
class Call:
    """One backward: of which outputs, whether it retains what it reads, and for which of what is seen (None: all)."""

    outputs: tuple[int, ...]
    retain: bool
    inputs: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Script:
    """The backwards that one tape is asked for, and whether their order is declared."""

    calls: tuple[Call, ...]
    ordered: bool


@dataclass
class RandomTape:
    """A declared graph with feeds, outputs and their cotangents (None: one), and the tensors whose gradients are seen.
    Several scripts share what is compiled for it."""

    graph: Graph
    feeds: dict[Tensor, Array]
    outputs: list[Tensor]
    cotangents: list[Array | None]
    seen: list[Tensor]
    scripts: list[Script]
    budget: float | None

    def by_tapes(self, session: sg.Session, script: Script, *, retain: bool = False) -> list[Array]:
        """The outputs and what a script's calls add up to. A call for which an earlier one left nothing is left out,
        also where all are told to ``retain``."""
        order = [[self.outputs[k] for k in call.outputs] for call in script.calls] if script.ordered else None
        tape = within(
            self.budget,
            lambda b: session.forward(self.outputs, self.feeds, backward_order=order, memory_budget=b),
        )
        for call in self.allowed(script):
            cotangents = [self.cotangents[k] for k in call.outputs]
            inputs = None if call.inputs is None else [self.seen[k] for k in call.inputs]
            tape.backward([self.outputs[k] for k in call.outputs], cotangents, retain or call.retain, inputs=inputs)
        found = [tape[y] for y in self.outputs]
        found += [np.zeros(x.shape, x.dtype) if (grad := session.grad(x)) is None else grad for x in self.seen]
        session.zero_grad()
        return found

    def allowed(self, script: Script) -> list[Call]:
        """The calls that may run, by PyTorch's rule on the declared graph."""
        if script.ordered:
            return list(script.calls)
        rule = Retention(self.outputs, saved_tensors(self.outputs), ends=self.feeds)
        state, found = rule.start, []
        for call in script.calls:
            ys, inputs = [self.outputs[k] for k in call.outputs], self._inputs(call)
            if rule.blocked(state, ys, inputs) is None:
                state = rule.passage(state, ys, call.retain, inputs).after
                found.append(call)
        return found

    def _inputs(self, call: Call) -> frozenset[Tensor] | None:
        return None if call.inputs is None else frozenset(self.seen[k] for k in call.inputs)

    def _accumulating(self, call: Call) -> set[Tensor]:
        """The tensors whose gradients a call adds to: retained ones on the way to what it is asked for, too."""
        inputs = self._inputs(call)
        if inputs is None:
            return set(self.seen)
        passed = set(passed_nodes([self.outputs[k] for k in call.outputs], self.feeds, inputs))
        return {x for x in self.seen if x in inputs or (not x.is_leaf and x.op in passed)}

    def by_run(self, session: sg.Session) -> list[list[Array]]:
        """The outputs, and for each of them its gradients by all that is seen, computed by one run."""
        with self.graph:
            pairs = zip(self.outputs, self.cotangents, strict=True)
            asked = [sg.gradients(y, self.seen, ct, unconnected_gradients="zero") for y, ct in pairs]
        values, *gradients = session.run([self.outputs, *asked], self.feeds)
        return [values, *gradients]

    def expected(self, script: Script, computed: list[list[Array]]) -> list[Array]:
        """What a script must add up to. Every hook is linear, so that gradients of outputs may be added."""
        values, *gradients = computed
        sums = [np.zeros(x.shape, x.dtype) for x in self.seen]
        for call in self.allowed(script):
            there = self._accumulating(call)
            for k in call.outputs:
                parts = zip(self.seen, sums, gradients[k], strict=True)
                sums = [total + part if x in there else total for x, total, part in parts]
        return [*values, *sums]


class TapeMaker(Maker):
    """Grows a pool by ops that save something, often two of one kind on one operand. ``weights`` are the variables that
    it declares on the way."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.weights: list[Tensor] = []
        self.apart = np.random.default_rng((seed, 2))  # for what came later, so that seeds keep their programs

    def grow_for_tape(self, count: int) -> None:
        ordinary = [self.unary, self.binary, self.reduction, self.view, self.matmul]
        rare = [self.arrangement, self.scattered, self.product, self.images, self.vectorized, self.checkpointed]
        for _ in range(count):
            kind = self.rng.random()
            if kind < 0.12:
                self.add(*self.results_of_loop())
            elif kind < 0.5:
                x, y = self.twice(self.normed if self.rng.random() < 0.85 else self.network)
                self.add(x, y, self.gated(x, y))
            else:
                group = ordinary if kind < 0.8 else rare
                maker = group[self.number(len(group))]
                self.add(*self.twice(maker) if self.rng.random() < 0.3 else [maker()])
            if self.rng.random() < 0.1 and self.pool[-1].requires_grad:
                self.hook(self.pool[-1])

    def pick(self, test: Callable[[Tensor], bool] = lambda x: True) -> Made:
        """One of the pool, more often a late one, so that programs grow deep."""
        found = [x for x in self.pool if test(x)]
        return found[max(self.number(len(found)), self.number(len(found)))] if found else None

    def gated(self, x: Made, y: Made) -> Made:
        """What two equal values become on different ways, put together again."""
        if x is None or y is None or not y.ndim or x.size > 600:
            return None
        gate = self.mixed(y)
        z = sg.nn.gelu(x * sg.nn.sigmoid(gate))
        return (self.mixed(z), z, sg.tanh(z) * sg.nn.softmax(gate, -1))[self.number(3)]

    def mixed(self, x: Tensor) -> Tensor:
        """A product with a square matrix, which may be one that was there before."""
        if not x.ndim or x.shape[-1] > 24 or self.rng.random() < 0.2:
            return x
        size = int(x.shape[-1])
        known = [w for w in self.weights if w.shape == (size, size)]
        if known and self.rng.random() < 0.3:
            return sg.matmul(x, known[-1])
        values = self.rng.normal(size=(size, size)).astype(x.dtype) * 0.4
        if self.rng.random() < 0.5:
            return sg.matmul(x, sg.constant(values))
        self.weights.append(sg.Variable(values))
        return sg.matmul(x, self.weights[-1])

    def normed(self) -> Made:
        """Ops whose derivatives read statistics that only they compute."""
        least = 2 if self.rng.random() < 0.8 else 1
        x = self.pick(lambda t: t.ndim >= least)
        if x is None:
            return None
        kind, size = self.number(5), int(x.shape[-1])
        if kind == 0:
            return sg.nn.layer_norm(x, (size,))
        if kind == 1:
            return sg.nn.rms_norm(x, (size,))
        if kind == 2:
            return sg.nn.group_norm(sg.reshape(x, (1, *x.shape) if x.ndim == 1 else x.shape), 1)
        if kind == 3:
            rows = sg.reshape(x, (-1, size))
            labels = self.rng.integers(0, size, size=int(rows.shape[0]))
            return sg.nn.cross_entropy(rows, sg.constant(labels), reduction=("none", "mean")[self.number(2)])
        return sg.cumulative_prod(x * 0.7, axis=self.number(x.ndim))

    def results_of_loop(self) -> Sequence[Made]:
        """Several results of one loop, whose body may be a checkpoint."""
        checkpointed = self.apart.random() < 0.3

        def within(step: Callable[..., Any]) -> Callable[..., Any]:
            return (lambda *args: sg.checkpoint(step, *args)) if checkpointed else step

        def normed(x: Tensor) -> Tensor:
            return sg.nn.layer_norm(x, x.shape[-1:]) + x if checkpointed and x.ndim else x

        x = self.matrix()
        if x is None or not x.size or x.size > 200:
            return []
        first, kind, backwards = x[0], self.number(4), self.number(2) == 1
        if kind == 0:
            last, ys = sg.scan(
                within(lambda c, row: (sg.tanh(normed(c) * 0.5 + row), sg.sin(c) * row)), first, x, reverse=backwards
            )
            return [last, ys]
        if kind == 1:
            (a, b), ys = sg.scan(
                within(lambda c, y: ((sg.tanh(c[0] + y) * c[1], sg.cos(c[1] * y)), sg.nn.softmax(c[0] * y, -1))),
                (first, first * 0.5), sg.expand_dims(x, -1) if x.ndim == 1 else x, reverse=backwards,
            )  # fmt: skip
            return [a, b, ys]
        if kind == 2:
            a, b, _ = sg.while_loop(
                lambda s: s[2] < 3, within(lambda s: (sg.cos(s[0]) * s[1], sg.sin(s[1] + first), s[2] + 1)),
                (first, first * 0.3, 0), max_steps=self.number(3, 5),
            )  # fmt: skip
            return [a, b]
        weights = self.rng.normal(size=(int(x.shape[-1]),) * 2) * 0.4
        last, ys = sg.scan(
            within(lambda c, row: (z := sg.tanh(normed(sg.matmul(c, weights)) + row), z * 0.5)), first, x
        )
        return [last, ys]

    def checkpointed(self) -> Made:
        x = self.pick(lambda t: t.ndim >= 1)
        return None if x is None else sg.checkpoint(lambda v: sg.tanh(sg.nn.softmax(sg.sin(v), -1) * v), x)

    def hook(self, x: Tensor) -> None:
        """A hook on ``x``, linear in the gradient."""
        other = self.pick(lambda t: t.shape == x.shape and t.dtype == x.dtype)
        hooks: list[Callable[[Tensor], Made]] = [
            lambda grad: grad * 0.5,
            lambda grad: None,
            lambda grad: grad * sg.cos(x),
            lambda grad: grad * sg.tanh(x if other is None else other),
            lambda grad: sg.py_call(lambda v: v * 1.5, [grad], [(grad.dtype, grad.shape)])[0],
        ]
        x.register_hook(hooks[self.number(len(hooks))])


def random_tape(seed: int, *, scripts: int = 1) -> RandomTape:
    """A graph of a few ops with one to three outputs, and scripts of one to three calls."""
    maker = TapeMaker(seed)
    rng, graph = maker.rng, Graph()
    with graph:
        leaves, feeds = maker.leaves(maker.number(1, 4), sg.float64)
        maker.grow_for_tape(maker.number(2, 6))
        outputs = list(_outputs(maker, leaves))
        if maker.apart.random() < 0.05:  # so many that they are not planned one by one
            outputs += [sg.mean(outputs[k % len(outputs)] * (k + 1.5)) for k in range(9)]
    inner = [x for x in maker.pool if x.requires_grad and not x.is_leaf]
    retained = [x for x in inner if rng.random() < 0.15]
    for x in retained:
        x.retain_grad()
    cotangents = [None if y.size == 1 and rng.random() < 0.7 else rng.normal(size=y.shape) for y in outputs]
    budget = (None, None, None, 0.7, 0.3, 0)[maker.number(6)]
    drawn, seen = [_script(maker, len(outputs)) for _ in range(scripts)], [*leaves, *maker.weights, *retained]
    drawn = [
        replace(script, calls=tuple(_for_some(maker, call, len(seen)) for call in script.calls)) for script in drawn
    ]
    return RandomTape(graph, feeds, outputs, cotangents, seen, drawn, budget)


def _outputs(maker: TapeMaker, leaves: Sequence[Tensor]) -> Iterator[Tensor]:
    """Some of what was made, as it is or as a loss."""
    made = [x for x in maker.pool[len(leaves) :] if x.requires_grad] or [sg.sin(x) for x in leaves]
    late = np.arange(1.0, len(made) + 1) ** 2
    late /= late.sum()
    for number in maker.rng.choice(len(made), size=min(len(made), maker.number(1, 4)), replace=False, p=late):
        y = made[int(number)]
        other = made[maker.number(len(made))]
        kind = maker.number(3)
        yield y if kind == 0 else sg.mean(y * y) if kind == 1 else sg.sum(sg.sin(y)) + sg.mean(other) * 0.5


def _for_some(maker: TapeMaker, call: Call, seen: int) -> Call:
    """The call, now and then for the gradients of some alone."""
    if maker.apart.random() >= 0.2:
        return call
    chosen = maker.apart.permutation(seen)[: maker.apart.integers(1, seen + 1)]
    return replace(call, inputs=tuple(sorted(int(k) for k in chosen)))


def _script(maker: TapeMaker, outputs: int) -> Script:
    def call() -> Call:
        chosen = maker.rng.permutation(outputs)[: maker.number(1, outputs + 1)]
        return Call(tuple(sorted(int(k) for k in chosen)), maker.number(3) == 0)

    return Script(tuple(call() for _ in range(maker.number(1, 4))), maker.number(4) == 0)
