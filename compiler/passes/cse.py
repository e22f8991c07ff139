"""Common subexpressions: two nodes with the same op, attributes and operands are one, unless they have an effect; a
check of bounds that repeats another one is no effect of its own.

A control edge orders a pure node after an effect, for which the effect need not wait; the one that is kept has its own.
Random ops have their place among their attributes, so two draws are never merged; one that a derivative repeats is.
What shall be rematerialized carries the number of its recomputation and stays apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from staticgrad.compiler.regions.region import Region, rebuild
from staticgrad.graph.graph import Node, Tensor, get_default_graph
from staticgrad.ops.effects import BOUNDS_CHECK
from staticgrad.ops.sources import PLACEHOLDER


def cse(region: Region) -> Region:
    seen: dict[object, tuple[Tensor, ...]] = {}

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        if node.op.effect or node.op is PLACEHOLDER:
            return None
        key = (node.op, node.attrs, inputs, node.epoch)
        known = seen.get(key)
        if known is not None:
            return known
        outputs = get_default_graph().clone(node, inputs).outputs
        seen[key] = outputs
        return outputs

    return _checked_once(rebuild(region, visit))


def _checked_once(region: Region) -> Region:
    """The region with the first of equal checks of bounds alone; nodes that came after another one come after it."""
    first: dict[object, Node] = {}
    left: dict[Node, Node] = {}
    for node in region.graph.nodes:
        if node.op is BOUNDS_CHECK:
            left[node] = first.setdefault((node.attrs, node.inputs, node.epoch), node)
    if len(first) == len(left):
        return region
    for node in region.graph.nodes:
        node.control = tuple(dict.fromkeys(left.get(before, before) for before in node.control))
    effects = tuple(dict.fromkeys(left.get(node, node) for node in region.effects))
    return Region(region.graph, region.feeds, region.fetches, effects)
