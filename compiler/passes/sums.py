"""Sums: what a loop only adds up is added up after it, in one product or reduction over all turns.

    carry' = carry + A·B        =>   rows A, B;   after the loop  carry + [A₀ A₁ …]·[B₀; B₁; …]
    carry' = carry + Σ X        =>   after the loop  carry + Σ X over the turns too, where X is stacked anyway

The gradient of a weight that every turn shares is such a sum; one large product takes a fraction of the time of many
small ones that each pass over it. Input: a region of primitives, bodies too. Left alone: loops that may
end early or shall keep little, and products whose factors would take more memory than is saved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from staticgrad.base.extents import is_same, largest
from staticgrad.base.frozen import frozen
from staticgrad.base.types import sizes
from staticgrad.compiler.passes.dce import dce
from staticgrad.compiler.regions.region import Region, rebuild, users_of
from staticgrad.graph.graph import Node, Tensor, get_default_graph
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.ops.contraction import DOT
from staticgrad.ops.control.bodies import Body
from staticgrad.ops.control.loops import LoopAttributes
from staticgrad.ops.sources import FULL


@frozen
class _Product:
    """A·B, reshaped and permuted by ``views`` (outermost last). A transposed factor is stacked as it was before."""

    a: Tensor
    b: Tensor
    a_transposed: bool
    b_transposed: bool
    views: tuple[Node, ...]

    @property
    def factors(self) -> tuple[Tensor, ...]:
        return (self.a, self.b)


@frozen
class _Reduction:
    """The sum of ``x`` over ``axes``, reshaped and permuted by ``views``."""

    x: Tensor
    axes: tuple[int, ...]
    views: tuple[Node, ...]

    @property
    def factors(self) -> tuple[Tensor, ...]:
        return (self.x,)


def sums(region: Region) -> Region:
    """Rewrite every loop."""

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        attrs = node.attrs
        if not isinstance(attrs, LoopAttributes) or attrs.ends_early or not attrs.length or attrs.checkpoint:
            return None
        return _Rewriter(node, inputs).outputs()

    if not any(isinstance(node.attrs, LoopAttributes) for node in region.graph.nodes):
        return region
    return rebuild(region, visit)


class _Rewriter:
    """One loop."""

    def __init__(self, node: Node, inputs: tuple[Tensor, ...]) -> None:
        self.node = node
        self.attrs: LoopAttributes = node.attrs
        self.inputs = inputs
        body = self.attrs.body
        self.region = Region(body.graph, body.feeds, body.fetches, body.effects)
        self.users = users_of(self.region)
        self.carried = self.attrs.carries
        self.rows = list(body.feeds[1 + self.carried : 1 + self.carried + self.attrs.sequences])
        self.stacked = list(body.fetches[self.carried :])

    def outputs(self) -> Sequence[Tensor] | None:
        found: dict[int, _Product | _Reduction] = {}
        for j in range(self.carried):
            term = self._term(j)
            match = None if term is None else self._product(term)
            if match is not None:
                found[j] = match
                known = {*self.rows, *self.stacked}
                self.stacked += [x for x in dict.fromkeys(match.factors) if x not in known]
        for j in range(self.carried):
            term = self._term(j) if j not in found else None
            reduction = None if term is None else self._reduction(term)
            if reduction is not None:
                found[j] = reduction
        return self._rewrite(found) if found else None

    def _term(self, j: int) -> Tensor | None:
        """The term that is added to carry ``j`` in each turn, if nothing else is done with the carry; else None."""
        body = self.attrs.body
        before, after = body.feeds[1 + j], body.fetches[j]
        if after.op.op.name != "add" or len(self.users[before]) != 1 or self.users[after]:
            return None
        once = sum(x is after for x in body.fetches) == 1 and not any(x is before for x in body.fetches)
        others = [x for x in after.op.inputs if x is not before]
        if not once or len(others) != 1 or not is_same(others[0].type, before.type):
            return None
        return others[0]

    def _product(self, term: Tensor) -> _Product | None:
        x, views = behind_views(term)
        if x.op.op is not DOT or x.ndim != 2 or x.op.control:
            return None
        (a, a_transposed), (b, b_transposed) = map(without_transpose, x.op.inputs)
        known = {*self.rows, *self.stacked}
        more = sum(math.prod(sizes(f.shape)) for f in {a, b} if f not in known)
        if largest(more) > largest(math.prod(sizes(x.shape))):
            return None
        return _Product(a, b, a_transposed, b_transposed, views)

    def _reduction(self, term: Tensor) -> _Reduction | None:
        x, views = behind_views(term)
        axes: tuple[int, ...] = ()
        if x.op.op.name == "sum" and x.op.attrs.keepdims and x.op.inputs[0].dtype == x.dtype:
            axes, x = x.op.attrs.axes, x.op.inputs[0]
        return _Reduction(x, axes, views) if x in {*self.rows, *self.stacked} else None

    def _rewrite(self, found: dict[int, _Product | _Reduction]) -> list[Tensor]:
        attrs, body = self.attrs, self.attrs.body
        kept = [j for j in range(self.carried) if j not in found]
        fetches = (*(body.fetches[j] for j in kept), *self.stacked)
        feeds = (body.feeds[0], *(body.feeds[1 + j] for j in kept), *body.feeds[1 + self.carried :])
        region = dce(Region(body.graph, feeds, fetches, body.effects))
        new = Body(region.graph, region.feeds, region.fetches, region.effects)
        inputs = [*(self.inputs[j] for j in kept), *self.inputs[self.carried :]]
        made = get_default_graph().add(self.node.op, inputs, replace(attrs, body=new, carries=len(kept))).outputs
        sequences = self.inputs[self.carried : self.carried + attrs.sequences]
        stacks = dict(zip(self.stacked, made[len(kept) :], strict=True))
        stacks.update(zip(self.rows, sequences, strict=True))
        last = dict(zip(kept, made, strict=False))
        for j, term in found.items():
            total = _total(term, stacks)
            first = self.inputs[j]
            zero = first.op.op is FULL and first.op.attrs.value == 0
            last[j] = total if zero else o.add(first, total)
        old = body.fetches[self.carried :]
        return [*(last[j] for j in range(self.carried)), *made[len(kept) : len(kept) + len(old)]]


def behind_views(x: Tensor) -> tuple[Tensor, tuple[Node, ...]]:
    """The tensor of which ``x`` is a reshaped and permuted view, and the views, outermost last."""
    views = []
    while x.op.op.name in ("reshape", "permute_dims"):
        views.append(x.op)
        x = x.op.inputs[0]
    return x, tuple(reversed(views))


def without_transpose(x: Tensor) -> tuple[Tensor, bool]:
    """The matrix of which ``x`` is the transpose, else ``x`` itself; and whether it is one."""
    if x.op.op.name == "permute_dims" and x.op.attrs.perm == (1, 0):
        return x.op.inputs[0], True
    return x, False


def _total(term: _Product | _Reduction, stacks: dict[Tensor, Tensor]) -> Tensor:
    if isinstance(term, _Reduction):
        stack = stacks[term.x]
        axes = (0, *(axis + 1 for axis in term.axes))
        total = o.reshape(o.sum(stack, axes), tuple(1 if i in term.axes else n for i, n in enumerate(term.x.shape)))
    else:
        left = _joined(stacks[term.a], summed=0 if term.a_transposed else 1)
        right = _joined(stacks[term.b], summed=1 if term.b_transposed else 0)
        total = o.dot(o.permute_dims(left, (1, 0)), right)
    for view in term.views:
        total = get_default_graph().clone(view, (total,)).outputs[0]
    return total


def _joined(stack: Tensor, *, summed: int) -> Tensor:
    """(turns · summed size, other size) of a stack of matrices; ``summed`` is the axis of the matrix that is summed."""
    turns, *shape = sizes(stack.shape)
    if summed == 1:
        stack = o.permute_dims(stack, (0, 2, 1))
    return o.reshape(stack, (turns * shape[summed], shape[1 - summed]))
