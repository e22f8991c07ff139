"""The region: the part of a user's graph that one program computes, on its way through the compiler.

Input: a declared graph, fetches, feeds with their sizes (``cut``), or a derived graph (tapes). Output: a private
graph in which every size is a number, whose sources are placeholders, variables and constants, and which holds only
what is needed. Every pass takes a region and gives one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from staticgrad.base.errors import at_source
from staticgrad.base.extents import OpenSizeError
from staticgrad.base.frozen import frozen
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.ops.sources import ACCUMULATED_GRAD

Visit = Callable[[Node, tuple[Tensor, ...]], "Sequence[Tensor] | None"]
Order = tuple[int, ...]  # the axes of a tensor, the one with the largest stride first


@frozen
class Region:
    """``feeds`` are placeholder tensors in the order of the call, ``fetches`` the tensors to hand out, ``effects`` the
    nodes that run for what they do, in order. ``layouts`` has the order of the axes of each tensor that is not
    row-major, once ``materialize`` has chosen it."""

    graph: Graph
    feeds: tuple[Tensor, ...]
    fetches: tuple[Tensor, ...]
    effects: tuple[Node, ...] = ()
    layouts: Mapping[Tensor, Order] = field(default_factory=dict, compare=False)


def rebuild(region: Region, visit: Visit) -> Region:
    """Make a region anew, node by node. ``visit(node, new_inputs)`` runs with the new graph current and gives the
    tensors that stand for the node's outputs, or None to keep the node over its new operands. What nothing needs any
    more is left behind. What stands for a tensor has its layout.

    Nodes that are kept are copied, unless the old graph hands over its nodes: then they move, and ``visit`` may look at
    ``node.inputs``, but finds the new operands further up.
    """
    needed = needed_in(region)
    graph = Graph()
    graph.hands_over = region.graph.hands_over
    tensors: dict[Tensor, Tensor] = {}  # what stands for those that are no longer the same
    nodes: dict[Node, tuple[Node, ...]] = {}
    with graph, at_source(None) as declared:
        for node in region.graph.nodes:
            if node not in needed:
                continue
            inputs = tuple([tensors.get(x, x) for x in node.inputs]) if tensors else node.inputs
            control = node.control
            if control:
                control = tuple(dict.fromkeys(new for before in control for new in nodes.get(before, (before,))))
            start = len(graph.nodes)
            declared.move(node.source)
            try:
                outputs = visit(node, inputs)
            except OpenSizeError as error:
                error.asked_by(node.name, node.source)
                raise
            if outputs is None:
                outputs = graph.clone(node, inputs, control).outputs
            elif control or node.epoch or node.part:
                for new in graph.nodes[start:]:
                    new.control = tuple(dict.fromkeys((*new.control, *control))) if control else new.control
                    new.epoch = new.epoch or node.epoch
                    new.part = new.part or node.part
            if node.graph is not graph:
                tensors.update(zip(node.outputs, outputs, strict=True))
                made = tuple(graph.nodes[start:])
                nodes[node] = made if made else tuple(dict.fromkeys(y.op for y in outputs))
    effects = tuple(dict.fromkeys(new for node in region.effects for new in nodes.get(node, (node,)) if new.op.effect))
    feeds, fetches = (tuple([tensors.get(x, x) for x in xs]) for xs in (region.feeds, region.fetches))
    layouts = {tensors.get(x, x): order for x, order in region.layouts.items() if x.op in needed}
    return Region(graph, feeds, fetches, effects, layouts)


def needed_in(region: Region) -> set[Node]:
    """The nodes that the fetches and effects depend on, and those of the feeds. Operands stand before their readers."""
    needed = {*region.effects, *(x.op for x in region.fetches)}
    for node in reversed(region.graph.nodes):
        if node in needed:
            needed.update([x.op for x in node.inputs])
            needed.update(node.control)
    needed.update(x.op for x in region.feeds)
    return needed


def awaited_in(region: Region) -> set[Node]:
    """The nodes that run for what they do, or that others wait for."""
    return {*region.effects, *(before for node in region.graph.nodes for before in node.control)}


def private(region: Region) -> Region:
    """A copy of a region for one compilation: its passes take over what they leave as it is."""
    copied = rebuild(region, lambda node, inputs: None)
    copied.graph.hands_over = True
    return copied


def users_of(region: Region) -> dict[Tensor, list[Node]]:
    """The nodes that have a tensor as an operand, once for each time."""
    users: dict[Tensor, list[Node]] = defaultdict(list)
    for node in region.graph.nodes:
        for x in node.inputs:
            users[x].append(node)
    return users


def gradients_read(region: Region) -> tuple[str, ...]:
    """The keys of the accumulated gradients that a region reads."""
    return tuple(dict.fromkeys(n.attrs.key for n in region.graph.nodes if n.op is ACCUMULATED_GRAD))
