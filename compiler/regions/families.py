"""Which primitives are of which family, and who uses what: the words that passes and kernels share."""

from __future__ import annotations

from collections import defaultdict

from staticgrad.compiler.regions.region import Region
from staticgrad.graph import Node, Tensor

REDUCTIONS = frozenset({"sum", "prod", "max", "min", "any", "all"})
MATRIX = frozenset({"dot", "convolution", "convolution_input_grad", "convolution_weight_grad"})
WRITES = frozenset({"concat", "pad", "fold", "scatter_add"})
FILLED = {"pad": 0, "fold": 0, "scatter_add": 1}  # writes whose result is filled before operand number so is stored
SOURCES = frozenset({"placeholder", "variable", "constant", "full", "iota", "accumulated_grad"})
WITHOUT_MEMORY = frozenset({"full", "iota"})
STORED = frozenset({"assign", "accumulate_grad"})  # effects that are a store of the kernel that makes their operand


def is_nest(node: Node) -> bool:
    """Whether the node is computed by a nest, element by element or by reduction."""
    return node.op.elementwise or node.op.name in REDUCTIONS or node.op.name in ("gather", "random_uniform")


def users_of(region: Region) -> dict[Tensor, list[Node]]:
    """The nodes that have a tensor as an operand, once for each time."""
    users: dict[Tensor, list[Node]] = defaultdict(list)
    for node in region.graph.nodes:
        for x in node.inputs:
            users[x].append(node)
    return users
