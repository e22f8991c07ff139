"""Bodies: the graphs inside loops and conds go through the same passes, before those of the graph around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from staticgrad.compiler.regions.region import Region, rebuild
from staticgrad.graph.graph import Node, Tensor, get_default_graph
from staticgrad.ops.control.bodies import Body, bodies_of


def bodies(region: Region, run: Callable[[Region], Region]) -> Region:
    """Rewrite every body; ``run`` are all passes, this one too."""
    if not any(bodies_of(node) for node in region.graph.nodes):
        return region

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        if not bodies_of(node):
            return None
        new = get_default_graph().clone(node, inputs)
        new.attrs = node.attrs.with_bodies([rewritten(body, run) for body in bodies_of(node)])
        return new.outputs

    return rebuild(region, visit)


def rewritten(body: Body, run: Callable[[Region], Region]) -> Body:
    """The body after the passes that ``run`` runs."""
    region = run(Region(body.graph, body.feeds, body.fetches, body.effects))
    region.graph.hands_over = False  # the passes of the graph around it make several of one, and read both
    return Body(region.graph, region.feeds, region.fetches, region.effects)
