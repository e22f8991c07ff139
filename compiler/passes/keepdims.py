"""Keepdims: every reduction keeps its axes (with size 1); dropping them is a reshape of its own.

Kernels know only this form: a row value has the rank of the elements it is computed from, so both fit in one nest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from staticgrad.compiler.regions.region import Region, rebuild
from staticgrad.graph.graph import Node, Tensor, get_default_graph
from staticgrad.graph.optable import FUNCTIONS


def keepdims(region: Region) -> Region:
    """Rewrite reductions that drop axes."""

    def drops(node: Node) -> bool:
        return node.op.role == "reduction" and not node.attrs.keepdims

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        if not drops(node):
            return None
        kept = get_default_graph().add(node.op, inputs, replace(node.attrs, keepdims=True)).outputs[0]
        return (FUNCTIONS.reshape(kept, node.outputs[0].shape),)

    return rebuild(region, visit) if any(map(drops, region.graph.nodes)) else region
