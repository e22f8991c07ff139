"""Expand: ops that are composed of others are replaced by them, until only primitives and elementwise ops are left.

An op of short floats is the same op of float32 between conversions: so kernels know of nothing but their conversions.
"""

from __future__ import annotations

from collections.abc import Sequence

from staticgrad.compiler.regions.region import Region, rebuild
from staticgrad.graph import Node, Tensor, get_default_graph
from staticgrad.optable import FUNCTIONS, Primal
from staticgrad.types import float32, is_short_float


def is_composed(node: Node) -> bool:
    return node.op.expand is not None and not node.op.elementwise and "primitive" not in node.op.tags


def _widens(node: Node) -> bool:
    return node.op.widens([x.dtype for x in node.inputs])


def _widened(node: Node, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    wide = [FUNCTIONS.astype(x, float32) if is_short_float(x.dtype) else x for x in inputs]
    results = get_default_graph().add(node.op, wide, node.attrs).outputs
    return [FUNCTIONS.astype(new, y.dtype) for new, y in zip(results, node.outputs, strict=True)]


def expand(region: Region) -> Region:
    """One sweep for each level of composition; the table has few levels, so this ends soon."""

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        if _widens(node):
            return _widened(node, inputs)
        if not is_composed(node):
            return None
        assert node.op.expand is not None
        return node.op.expand(FUNCTIONS, Primal(inputs, (), node.attrs))

    while any(is_composed(node) or _widens(node) for node in region.graph.nodes):
        made = rebuild(region, visit)
        hidden = tuple(n for n in made.graph.nodes if n.op.effect and n not in set(made.effects))
        effects = sorted((*made.effects, *hidden), key=lambda n: n.serial)
        region = Region(made.graph, made.feeds, made.fetches, tuple(effects))
    return region
