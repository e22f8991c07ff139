"""Random graphs over the whole op table, and over the functions of ops whose options matter.

An entry is declared as one of its cases has it, alone or over many examples, of operands that are made of what was
drawn before: its elements in another shape, brought into the range where the case may be sampled. So a new entry is
drawn without a word here. What functions make of their options (modes, axes, strides, bounds) is drawn by families,
which ask no size that feeds may bind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

import staticgrad as sg
from staticgrad.base.types import is_floating
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.graph.optable import REAL, Case, Op, Range
from staticgrad.ops.collectives import COLLECTIVES as COLLECTIVE_OPS
from support.op_cases import DIFFERENTIABLE, TESTED, typed
from support.random_families import of_a_family
from support.random_graphs import Array, Maker, RandomGraph
from support.sampling import draw, operand_dtypes

Made = Tensor | None
COUNTS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33)  # of examples: at the ends of vectors and tiles
COLLECTIVES = [op.name for op in COLLECTIVE_OPS]
MOST = 1500  # elements of a tensor
FACTORS = 20.0  # tolerances from which an entry factors matrices
ROUNDED = {"bitcast"}  # of what is computed, every rounding shows
# Entries with cases that the drawer leaves out, and why.
UNDRAWN = {
    "latest_value": "a variable's value after what a run writes: it has no meaning in a body, where entries are drawn",
    "bounds_check": "an effect without a result; drawn wherever indices are checked",
    "numerics_check": "an effect without a result; put in by check_numerics",
    **dict.fromkeys(COLLECTIVES, "needs processes"),
}
ENTRIES = [op for op in TESTED if op.name not in UNDRAWN]


class OpMaker(Maker):
    """Grows a pool of floats of ``dtype`` by entries of the table and by families of functions.

    ``raw`` are results of entries as they are, of any dtype; what the pool has of them is bounded. Where ``smooth``,
    entries have derivatives by all that the loss depends on.
    """

    def __init__(self, seed: int, dtype: np.dtype, smooth: bool = False) -> None:
        super().__init__(seed)
        self.dtype = dtype
        self.smooth = smooth
        self.entries = DIFFERENTIABLE if smooth else ENTRIES
        self.raw: list[Tensor] = []

    # -- operands -------------------------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def fed(self, array: Array, varies: bool = True) -> Tensor:
        x = sg.placeholder(array.shape, array.dtype, requires_grad=varies and is_floating(array.dtype))
        self.feeds[x] = array
        return x

    def spread(self, shape: Sequence[int]) -> Made:
        """Elements of one of the pool in another shape, repeated where there are too few."""
        x, count = self.pick(lambda t: t.size > 0), math.prod(shape)
        if x is None:
            return None
        first = self.number(3)
        flat = sg.tile(sg.reshape(x, (-1,)), (-(-(count + first) // int(x.size)),))
        return sg.reshape(flat[first : first + count], tuple(shape))

    def between(self, x: Tensor, where: Range) -> Tensor:
        """Any floats as ones of a range, away from its kinks."""
        y = where.low + (where.high - where.low) * (sg.nn.sigmoid(x) * 0.957 + 0.0213)
        for kink in where.kinks:
            away = kink + sg.copysign(where.margin, y - kink)
            y = sg.where(sg.abs(y - kink) < where.margin, away, y)
        return y

    def operand(self, op: Op, case: Case, place: int, shape: tuple[int, ...], dtype: np.dtype) -> Tensor:
        """An operand of a case: fed, or of what was drawn before. ``shape`` is the case's, or has examples in front."""
        where = (case.ranges or (REAL,) * len(case.shapes))[place]
        own = case.shapes[place]
        is_prepared = case.prepared is not None and place == 0
        varies = case.differentiable is None or place in case.differentiable
        if not varies and not self.smooth:  # derivatives by it are none, or refused
            return sg.stop_gradient(self.operand(op, replace(case, differentiable=None), place, shape, dtype))
        is_given = not is_floating(dtype) or is_prepared or not varies or op.name in ROUNDED or self.chance(0.2)
        x = None if is_given else self.spread(shape)
        is_free = not case.distinct and op.tolerance < FACTORS
        if x is not None and is_free:
            return sg.astype(self.between(x, where), dtype)
        examples = math.prod(shape[: len(shape) - len(own)])
        drawn = [draw(self.rng, own, dtype, where, case.distinct) for _ in range(examples)]
        if is_prepared and case.prepared is not None:
            drawn = [case.prepared(array).astype(dtype) for array in drawn]
        y = self.fed(np.stack(drawn).reshape(shape) if drawn else np.zeros(shape, dtype), varies)
        if x is None:
            return y
        # Within the range; what is distinct stays so, and matrices keep their rank.
        apart = 0.02 * (where.high - where.low)
        if case.distinct:
            apart = min((where.high - where.low) / max(math.prod(own) - 1, 1) * 0.2, apart)
        middle = (where.low + where.high) / 2
        y = middle + (y - middle) * 0.95 + apart * 0.9 * sg.tanh(x) + 0.0131 * apart * place
        return sg.astype(y, dtype)

    # -- entries --------------------------------------------------------------------------------------------------

    def entry(self) -> Made:
        """One of the table's entries."""
        return self.of(self.entries[self.number(len(self.entries))])

    def of(self, op: Op, alone: bool = False) -> Made:
        """An entry by one of its cases, perhaps over examples; its results are kept as they are, one of them bounded is
        given."""
        case = op.cases[self.number(len(op.cases))]
        dtypes = typed(op)
        fits = [d for d in dtypes if not is_floating(d) or d == self.dtype]
        if self.dtype in fits and self.chance(0.7):
            fits = [self.dtype]
        dtype = fits[self.number(len(fits))] if fits else self.dtype
        shapes, kind = list(case.shapes), 0 if alone else self.number(5)
        if op.elementwise and shapes and len(set(shapes)) == 1 and kind < 3:
            like = self.pick()
            assert like is not None
            shapes = [tuple(int(s) for s in like.shape)] * len(shapes)
            case = replace(case, shapes=tuple(shapes))
        count = COUNTS[self.number(len(COUNTS))]
        over = [self.chance(0.7) for _ in shapes]
        largest = max(map(math.prod, shapes), default=0)
        is_alone = not any(over) or isinstance(op.batch, str) or kind < 3 or largest * count > MOST
        operand_types = operand_dtypes(case, dtype)
        if is_alone:
            xs = [self.operand(op, case, i, s, d) for i, (s, d) in enumerate(zip(shapes, operand_types, strict=True))]
            ys = sg.get_default_graph().add(op, xs, case.attrs).outputs
        else:
            wide = [(count, *s) if many else s for s, many in zip(shapes, over, strict=True)]
            xs = [self.operand(op, case, i, s, d) for i, (s, d) in enumerate(zip(wide, operand_types, strict=True))]
            ys = self.over_examples(op, case, xs, over, kind == 3)
        self.raw += ys
        return self.bounded(ys[self.number(len(ys))])

    def over_examples(
        self, op: Op, case: Case, xs: Sequence[Tensor], over: Sequence[bool], batched: bool
    ) -> tuple[Tensor, ...]:
        """The results of an entry over operands of many examples, by its batch rule or by a loop."""

        def of(*parts: Tensor) -> tuple[Tensor, ...]:
            given = iter(parts)
            own = [next(given) if many else x for x, many in zip(xs, over, strict=True)]
            return sg.get_default_graph().add(op, own, case.attrs).outputs

        many = [x for x, is_many in zip(xs, over, strict=True) if is_many]
        if batched:
            return tuple(sg.vmap(of)(*many))
        return tuple(sg.map(lambda parts: of(*parts), tuple(many)))

    def bounded(self, y: Tensor) -> Tensor:
        """Results as what the pool has: moderate floats of its dtype."""
        if not is_floating(y.dtype):
            y = sg.astype(y, self.dtype) * 0.07
        return sg.tanh(sg.astype(y, self.dtype) * (0.3, 0.7, 1.0)[self.number(3)])

    def grow_of_entries(self, count: int, makers: Sequence[Callable[[], Made]]) -> None:
        for _ in range(count):
            maker = makers[self.number(len(makers))]
            self.add(*self.twice(maker) if self.chance(0.1) else [maker()])


def random_ops(seed: int, *, ops: int = 8, dtype: np.dtype = sg.float64, smooth: bool = False) -> RandomGraph:
    """A graph of a few entries of the table, among other random ops, with a loss of all floating results. Consecutive
    seeds begin with consecutive entries and families, so that some hundred of them have all.

    Args:
        smooth: draw entries alone, so that finite differences hold.
    """
    maker = OpMaker(seed, np.dtype(dtype), smooth)
    graph = Graph()
    with graph:
        leaves, feeds = maker.leaves(maker.number(1, 4), maker.dtype)
        others = [maker.unary, maker.binary, maker.reduction, maker.view, maker.arrangement, maker.loop]
        own = [maker.entry] * len(others)
        makers = own if smooth else [*others, *own, *[partial(of_a_family, maker)] * len(others)]
        maker.add(maker.of(maker.entries[seed % len(maker.entries)], alone=True))
        if not smooth:
            maker.add(of_a_family(maker, seed))
        maker.grow_of_entries(maker.number(2, ops + 1), makers)
        raw = [maker.raw[int(i)] for i in maker.rng.permutation(len(maker.raw))[:6]]
        results = [*raw, *maker.pool[-2:]]
        floating = [y for y in results if y.dtype == maker.dtype and y.size]
        loss = sg.mean(maker.pool[-1])
        for y in floating:
            loss = loss + sg.mean(sg.atan(y * 0.7)) * 0.5  # large values count little
    return RandomGraph(graph, feeds, [*results, loss], loss, [x for x in (*leaves, *feeds) if x.requires_grad],
                       None, maker.pool)  # fmt: skip
