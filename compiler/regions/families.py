"""The families of primitives, and the users of tensors: the words that passes and kernels share."""

from __future__ import annotations

from collections import defaultdict

from staticgrad.compiler.regions.region import Region
from staticgrad.graph import Node, Tensor


def is_nest(node: Node) -> bool:
    """True if the node is computed by a nest, element by element or by reduction."""
    return node.op.role in ("elementwise", "reduction", "gather")


def users_of(region: Region) -> dict[Tensor, list[Node]]:
    """The nodes that have a tensor as an operand, once for each time."""
    users: dict[Tensor, list[Node]] = defaultdict(list)
    for node in region.graph.nodes:
        for x in node.inputs:
            users[x].append(node)
    return users
