"""Parts: what only parts of are read is computed in these parts.

    split(a @ b + c)  =>  split(a @ b) + split(c)

The gates of a recurrent cell are blocks of columns of a product to which something is added. As the product's epilogue
the addition would be a pass over memory between the product and the kernel that computes the gates; of the blocks it is
a part of that kernel. Input: a region of primitives. Moved up are slices of columns that do not overlap and that only
elementwise ops read, before the elementwise ops which follow a product.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from staticgrad.base.types import sizes
from staticgrad.compiler.regions.region import Region, awaited_in, rebuild, users_of
from staticgrad.graph.graph import Node, Tensor, get_default_graph
from staticgrad.ops.contraction import DOT
from staticgrad.ops.views.slicing import SLICE, slice_axis


def parts(region: Region) -> Region:
    """Move slices up."""
    inner = _inner(region)
    if not inner:
        return region
    apart: set[Tensor] = set()  # of the new graph, which are computed in parts

    def part(x: Tensor, start: int, stop: int) -> Tensor:
        """Some columns of a tensor; all of one that has none, or a single one."""
        if x.ndim == 0 or x.shape[-1] == 1:
            return x
        if x not in apart:
            return slice_axis(x, x.ndim - 1, start, stop)
        return get_default_graph().add(x.op.op, [part(y, start, stop) for y in x.op.inputs], x.op.attrs).outputs[0]

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        if node in inner:
            made = get_default_graph().clone(node, inputs).outputs
            apart.update(made)
            return made
        if node.op is SLICE and inputs[0] in apart:
            return (part(inputs[0], node.attrs.starts[-1], node.attrs.stops[-1]),)
        return None

    return rebuild(region, visit)


def _inner(region: Region) -> set[Node]:
    """The elementwise nodes that are computed in parts."""
    if not any(node.op is SLICE for node in region.graph.nodes):
        return set()
    users, fetched = users_of(region), set(region.fetches)
    awaited = awaited_in(region)

    def may_go(node: Node) -> bool:
        plain = node.op.elementwise and len(node.outputs) == 1 and not node.control and not node.epoch
        return plain and not node.op.draws and node not in awaited and node.outputs[0] not in fetched

    found: set[Node] = set()
    for node in region.graph.nodes:
        if may_go(node) and _is_read_in_parts(node.outputs[0], users.__getitem__, fetched):
            chain = _chain(node, lambda y: may_go(y.op) and len(users[y]) == 1)
            if any(x.op.op is DOT for member in chain for x in member.inputs):
                found.update(chain)
    return found


def _is_read_in_parts(x: Tensor, users: Callable[[Tensor], Sequence[Node]], fetched: set[Tensor]) -> bool:
    """True if disjoint blocks of the columns of a matrix are all that is read of it, by elementwise ops."""
    if x.ndim != 2 or not all(type(n) is int for n in x.shape) or len(users(x)) < 2:
        return False
    blocks = []
    for node in users(x):
        if node.op is not SLICE or node.control or node.outputs[0] in fetched:
            return False
        attrs, (y,) = node.attrs, node.outputs
        whole = y.shape[0] == x.shape[0] and attrs.steps == (1, 1) and y.shape[1] > 1
        if not whole or not users(y) or not all(user.op.elementwise for user in users(y)):
            return False
        blocks.append((attrs.starts[1], attrs.stops[1]))
    blocks.sort()
    return all(a[1] <= b[0] for a, b in itertools.pairwise(blocks))


def _chain(node: Node, may_go: Callable[[Tensor], bool]) -> list[Node]:
    """The node and the elementwise nodes of its shape that it alone reads, those that they alone read, and so on."""
    shape, chain = sizes(node.outputs[0].shape), [node]
    for member in chain:
        chain += [x.op for x in member.inputs if sizes(x.shape) == shape and may_go(x)]
    return chain
