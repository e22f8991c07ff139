"""Loops made lean: what is not used is not carried, stacked or read (``trim``); what is invariant is computed once,
before the loop (``hoist``: loop-invariant code motion).

Input: a region whose bodies hold primitives. Effects and draws stay where they are. A value that is larger than all
that it is computed from is hoisted only if it takes a product or a reduction: else reading costs more than making it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from staticgrad.base.extents import largest
from staticgrad.base.frozen import frozen
from staticgrad.base.types import sizes
from staticgrad.compiler.passes.dce import dce
from staticgrad.compiler.regions.region import Region, rebuild
from staticgrad.graph.graph import Node, Tensor, get_default_graph, needed_nodes
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.ops.control.bodies import Body, bodies_of
from staticgrad.ops.control.loops import EFFECTFUL_SCAN, EFFECTFUL_WHILE, SCAN, WHILE, LoopAttributes
from staticgrad.ops.sources import PLACEHOLDER

TRIMMED = frozenset({SCAN, WHILE, EFFECTFUL_SCAN, EFFECTFUL_WHILE})  # loops without snapshots


def _has_loops(region: Region) -> bool:
    return any(isinstance(node.attrs, LoopAttributes) for node in region.graph.nodes)


# -- trim ---------------------------------------------------------------------------------------------------------


@frozen
class _Lean:
    """A loop without what is not used: its attributes, and the numbers of the carries, of the stacked results and of
    the other operands that are left."""

    attrs: LoopAttributes
    carries: tuple[int, ...]
    rows: tuple[int, ...]
    read: tuple[int, ...]

    def of(self, old: LoopAttributes, operands: Sequence[Tensor]) -> list[Tensor]:
        """The operands of the ``old`` loop that are left."""
        base = old.counted + old.carries
        carried = [operands[old.counted + j] for j in self.carries]
        return [*operands[: old.counted], *carried, *(operands[base + i] for i in self.read)]


def trim(region: Region) -> Region:
    """Drop results of loops that nothing uses, and what only they need."""
    if not _has_loops(region):
        return region
    used, awaited = set(region.fetches), set(region.effects)
    lean: dict[Node, _Lean] = {}
    for node in reversed(region.graph.nodes):  # what a trimmed loop no longer reads, an earlier one need not give
        if node not in awaited and not any(y in used for y in node.outputs):
            continue
        awaited.update(node.control)
        trimmed = _trimmed(node, used) if node.op in TRIMMED else None
        if trimmed is not None:
            lean[node] = trimmed
        used.update(node.inputs if trimmed is None else trimmed.of(node.attrs, node.inputs))

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        return _with_less(node, lean[node], inputs) if node in lean else None

    return dce(rebuild(region, visit)) if lean else region


def _with_less(node: Node, lean: _Lean, inputs: tuple[Tensor, ...]) -> Sequence[Tensor]:
    """The results of a trimmed loop where those of ``node`` stood; zeros for those that are gone."""
    attrs: LoopAttributes = node.attrs
    made = get_default_graph().add(node.op, lean.of(attrs, inputs), lean.attrs, name=node.name).outputs
    first = attrs.first_result
    places = [*lean.carries, *range(attrs.carries, first), *(first + k for k in lean.rows)]
    known = dict(zip(places, made, strict=True))
    return [known[i] if i in known else o.zeros_like(y) for i, y in enumerate(node.outputs)]


def _trimmed(node: Node, used: set[Tensor]) -> _Lean | None:
    """The parts of a loop that are needed for those of its results that are in ``used``; None if that is all of it."""
    attrs: LoopAttributes = node.attrs
    body, condition = attrs.body, attrs.condition
    carried, first = attrs.carries, attrs.first_result
    rows = [k for k, y in enumerate(node.outputs[first:]) if y in used]
    alive = {j for j in range(carried) if node.outputs[j] in used}
    tests = needed_nodes(condition.fetches, condition.effects) if condition is not None else set()
    while True:
        ends = [*(body.fetches[j] for j in sorted(alive)), *(body.fetches[carried + k] for k in rows)]
        needed = needed_nodes(ends, body.effects)
        more = {j for j in range(carried) if body.feeds[1 + j].op in needed}
        if condition is not None:
            more |= {j for j in range(carried) if condition.feeds[1 + j].op in tests}
        if more <= alive:
            break
        alive |= more
    asked = needed | {body.feeds[n].op for n, x in enumerate(condition.feeds if condition else ()) if x.op in tests}
    read = [i for i, x in enumerate(body.feeds[1 + carried :]) if x.op in asked]
    operands = len(body.feeds) - 1 - carried
    if len(alive) == carried and len(rows) == len(body.fetches) - carried and len(read) == operands:
        return None
    kept = sorted(alive)

    def fewer(old: Body, fetches: Sequence[Tensor]) -> Body:
        feeds = (old.feeds[0], *(old.feeds[1 + j] for j in kept), *(old.feeds[1 + carried + i] for i in read))
        made = dce(Region(old.graph, feeds, tuple(fetches), old.effects))
        return Body(made.graph, made.feeds, made.fetches, made.effects)

    new = replace(
        attrs,
        body=fewer(body, ends),
        condition=None if condition is None else fewer(condition, condition.fetches),
        carries=len(kept),
        sequences=sum(i < attrs.sequences for i in read),
    )
    return _Lean(new, tuple(kept), tuple(rows), tuple(read))


# -- hoist --------------------------------------------------------------------------------------------------------


def hoist(region: Region) -> Region:
    """Compute before each loop what does not change in it."""
    if not _has_loops(region):
        return region

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        attrs = node.attrs
        if not isinstance(attrs, LoopAttributes) or attrs.condition is not None:
            return None
        found = _invariants(attrs)
        if not found:
            return None
        body = attrs.body
        skipped = 1 + attrs.carries + attrs.sequences
        outside = dict(zip(body.feeds[skipped:], inputs[attrs.counted + skipped - 1 :], strict=True))
        graph = get_default_graph()
        moved = needed_nodes(found, ())
        for before in body.graph.nodes:
            if before in moved and before.op is not PLACEHOLDER:
                again = graph.clone(before, tuple(outside[x] for x in before.inputs))
                outside.update(zip(before.outputs, again.outputs, strict=True))
        new = _given(body, found)
        return graph.add(node.op, [*inputs, *(outside[x] for x in found)], replace(attrs, body=new)).outputs

    return rebuild(region, visit)


def _invariants(attrs: LoopAttributes) -> list[Tensor]:
    """The values to compute outside: those that turns read and that depend on captured values alone."""
    body = attrs.body
    fixed = set(body.feeds[1 + attrs.carries + attrs.sequences :])
    same: dict[Node, _Worth] = {}
    for node in body.graph.nodes:
        if node.op.rematerializable or (
            node.op.role != "source" and not _stays(node) and all(x in fixed for x in node.inputs)
        ):
            same[node] = _worth(node, [same[x.op] for x in node.inputs if x.op in same])
        else:
            continue
        fixed.update(node.outputs)
    read = [x for node in body.graph.nodes if node not in same for x in node.inputs]
    found: dict[Tensor, None] = {}
    for x in (*read, *body.fetches):
        while x.op.op.view:
            x = x.op.inputs[0]
        if x.op in same and not x.op.op.rematerializable and same[x.op].pays(x):
            found[x] = None
    return list(found)


def _stays(node: Node) -> bool:
    return node.op.effect or bool(node.control) or bool(bodies_of(node)) or node.op.draws


@frozen
class _Worth:
    """The inputs of an invariant value: whether computing it takes a product or a reduction, and the most elements of a
    tensor captured."""

    heavy: bool
    given: int

    def pays(self, x: Tensor) -> bool:
        """True if reading ``x`` costs less than making it."""
        return self.heavy or largest(math.prod(sizes(x.shape))) <= self.given


def _worth(node: Node, operands: Sequence[_Worth]) -> _Worth:
    """The worth of a node; ``operands`` are those of its operands that are no parameters."""
    given = [largest(math.prod(sizes(x.shape))) for x in node.inputs if x.op.op is PLACEHOLDER]
    heavy = node.op.role in ("matrix", "reduction") or any(operand.heavy for operand in operands)
    return _Worth(heavy, max((*given, *(operand.given for operand in operands)), default=0))


def _given(body: Body, values: Sequence[Tensor]) -> Body:
    """The body with ``values`` as further captured parameters."""
    region = Region(body.graph, body.feeds, (*body.fetches, *values), body.effects)
    asked = set(values)

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        if not any(y in asked for y in node.outputs):
            return None
        again = node if all(y in asked for y in node.outputs) else get_default_graph().clone(node, inputs)
        return [
            o.placeholder(y.shape, y.dtype) if y in asked else other
            for y, other in zip(node.outputs, again.outputs, strict=True)
        ]

    made = rebuild(region, visit)
    count = len(body.fetches)
    whole = dce(Region(made.graph, (*made.feeds, *made.fetches[count:]), made.fetches[:count], made.effects))
    return Body(whole.graph, whole.feeds, whole.fetches, whole.effects)
