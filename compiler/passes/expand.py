"""Expand: ops that are composed of others are replaced by them, until only primitives and elementwise ops are left.

An op of short floats is the same op of float32 between conversions: so kernels know of nothing but their conversions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from staticgrad.compiler.regions.region import Region, rebuild
from staticgrad.graph.graph import Node, Tensor, get_default_graph
from staticgrad.graph.optable import FUNCTIONS, Primal
from staticgrad.ops.elementwise.copies import rounded, widened


def is_composed(node: Node) -> bool:
    return node.op.role == "composed"


def expand(region: Region, keep: Collection[str] = ()) -> Region:
    """One sweep for each level of composition; the table has few levels, so this ends soon. Composed ops whose names
    are in ``keep`` stay."""

    def is_left(node: Node) -> bool:
        return node.op.widens(node.inputs) or (is_composed(node) and node.op.name not in keep)

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        if node.op.widens(inputs):
            return rounded(get_default_graph().add(node.op, widened(inputs), node.attrs).outputs, node.outputs)
        if not is_composed(node) or node.op.name in keep:
            return None
        assert node.op.expand is not None
        return node.op.expand(FUNCTIONS, Primal(inputs, (), node.attrs))

    while any(map(is_left, region.graph.nodes)):
        made = rebuild(region, visit)
        hidden = tuple(n for n in made.graph.nodes if n.op.effect and n not in set(made.effects))
        effects = sorted((*made.effects, *hidden), key=lambda n: n.serial)
        region = Region(made.graph, made.feeds, made.fetches, tuple(effects))
    return region
