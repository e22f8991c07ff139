"""Loops made lean: what nobody uses is not carried, stacked or read (``trim``); what is the same in every turn is
computed once, before the loop (``hoist``).

Comes in: a region whose bodies hold primitives. Effects and draws stay where they are. A value that is larger than all
that it is computed from is hoisted only if it takes a product or a reduction: else reading costs more than making it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from staticgrad.compiler.kernels.access import VIEWS
from staticgrad.compiler.passes.dce import dce
from staticgrad.compiler.regions.families import MATRIX, REDUCTIONS, SOURCES
from staticgrad.compiler.regions.region import Region, rebuild
from staticgrad.graph import Node, Tensor, get_default_graph, needed_nodes
from staticgrad.ops.control.bodies import Body, bodies_of
from staticgrad.ops.control.loops import LoopAttributes
from staticgrad.optable import FUNCTIONS as o
from staticgrad.types import sizes

REMADE = frozenset({"constant", "full", "iota"})


def _has_loops(region: Region) -> bool:
    return any(isinstance(node.attrs, LoopAttributes) for node in region.graph.nodes)


# -- trim ---------------------------------------------------------------------------------------------------------


def trim(region: Region) -> Region:
    """Drop results of loops that nothing uses, and what only they need; the last loop first."""
    if not _has_loops(region):
        return region
    used = {x for node in region.graph.nodes for x in node.inputs} | set(region.fetches)
    for node in reversed(region.graph.nodes):  # what a trimmed loop no longer reads, an earlier one need not give
        if isinstance(node.attrs, LoopAttributes):
            trimmed = _trimmed(region, node, used)
            if trimmed is not None:
                return trim(dce(trimmed))
    return region


def _trimmed(region: Region, node: Node, used: set[Tensor]) -> Region | None:
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

    def visit(other: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        if other is not node:
            return None
        base = attrs.counted + carried
        operands = [*inputs[: attrs.counted], *(inputs[attrs.counted + j] for j in kept)]
        operands += [inputs[base + i] for i in read]
        made = get_default_graph().add(node.op, operands, new, name=node.name).outputs
        places = [*kept, *range(carried, first), *(first + k for k in rows)]
        known = dict(zip(places, made, strict=True))
        return [known[i] if i in known else o.zeros_like(y) for i, y in enumerate(node.outputs)]

    return rebuild(region, visit)


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
            if before in moved and before.op.name != "placeholder":
                again = graph.clone(before, tuple(outside[x] for x in before.inputs))
                outside.update(zip(before.outputs, again.outputs, strict=True))
        new = _given(body, found)
        return graph.add(node.op, [*inputs, *(outside[x] for x in found)], replace(attrs, body=new)).outputs

    return rebuild(region, visit)


def _invariants(attrs: LoopAttributes) -> list[Tensor]:
    """The values to compute outside: those that turns read and that depend on captured values alone."""
    body = attrs.body
    fixed = set(body.feeds[1 + attrs.carries + attrs.sequences :])
    same: set[Node] = set()
    for node in body.graph.nodes:
        if node.op.name in REMADE or (
            node.op.name not in SOURCES and not _stays(node) and all(x in fixed for x in node.inputs)
        ):
            same.add(node)
        else:
            continue
        fixed.update(node.outputs)
    read = [x for node in body.graph.nodes if node not in same for x in node.inputs]
    found: dict[Tensor, None] = {}
    for x in (*read, *body.fetches):
        while x.op.op.name in VIEWS:
            x = x.op.inputs[0]
        if x.op in same and x.op.op.name not in REMADE and _is_worth(x):
            found[x] = None
    return list(found)


def _stays(node: Node) -> bool:
    return node.op.effect or bool(node.control) or bool(bodies_of(node)) or node.op.name == "random_uniform"


def _is_worth(x: Tensor) -> bool:
    nodes = needed_nodes((x,), ())
    if any(node.op.name in MATRIX | REDUCTIONS for node in nodes):
        return True
    given = [math.prod(sizes(y.shape)) for node in nodes if node.op.name == "placeholder" for y in node.outputs]
    return math.prod(sizes(x.shape)) <= max(given, default=0)


def _given(body: Body, values: Sequence[Tensor]) -> Body:
    """The body with ``values`` as further captured parameters."""
    region = Region(body.graph, body.feeds, (*body.fetches, *values), body.effects)
    parameters: list[Tensor] = []
    asked = set(values)

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        if not any(y in asked for y in node.outputs):
            return None
        (y,) = node.outputs
        parameters.append(o.placeholder(y.shape, y.dtype))
        return (parameters[-1],)

    made = rebuild(region, visit)
    count = len(body.fetches)
    whole = dce(Region(made.graph, (*made.feeds, *made.fetches[count:]), made.fetches[:count], made.effects))
    return Body(whole.graph, whole.feeds, whole.fetches, whole.effects)
