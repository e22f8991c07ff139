"""One loop out of several: those that compute the same and hand out different values of it.

Input: a region as it was cut, in which a loop may stand several times, for its results and for what its derivatives
read. Output: the region with each of them once, also inside bodies.
"""

from __future__ import annotations

from collections.abc import Sequence

from staticgrad.compiler.regions.region import Region, rebuild
from staticgrad.graph.graph import Graph, Node, Tensor, get_default_graph
from staticgrad.ops.control.bodies import Body, bodies_of
from staticgrad.ops.control.loops import LoopAttributes


def merged(region: Region) -> Region:
    """Loops over the same operands whose bodies have one origin become one, which hands out what any of them does; so
    in all bodies. Every region has passed this before it runs."""
    if not any(bodies_of(node) for node in region.graph.nodes):
        return region
    families: dict[object, list[Node]] = {}
    for node in region.graph.nodes:
        if isinstance(node.attrs, LoopAttributes):
            families.setdefault(family_of(node), []).append(node)
    made: dict[object, tuple[dict[Tensor, Tensor], tuple[Tensor, ...]]] = {}

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        if not bodies_of(node):
            return None
        if not isinstance(node.attrs, LoopAttributes) or len(families[family_of(node)]) == 1:
            bodies = [_settled(body) for body in bodies_of(node)]
            if all(a is b for a, b in zip(bodies, bodies_of(node), strict=True)):
                return None
            new = get_default_graph().clone(node, inputs)
            new.attrs = node.attrs.with_bodies(bodies)
            return new.outputs
        attrs: LoopAttributes = node.attrs
        family = family_of(node)
        if family not in made:
            bodies = [other.attrs.body for other in families[family]]
            union = union_of(bodies)
            conditions = () if attrs.condition is None else (_settled(attrs.condition),)
            whole = attrs.with_bodies((_settled(union), *conditions))
            outputs = get_default_graph().add(node.op, inputs, whole, name=node.name).outputs
            stacked = zip(union.fetches[attrs.carries :], outputs[attrs.first_result :], strict=True)
            made[family] = (dict(stacked), outputs)
        rows, outputs = made[family]
        return (*outputs[: attrs.first_result], *(rows[x] for x in attrs.body.fetches[attrs.carries :]))

    return rebuild(region, visit)


def family_of(node: Node, inputs: Sequence[Tensor] | None = None) -> object:
    """A key that is equal for loops that become one. ``inputs`` are tensors with the values of the node's operands."""
    attrs: LoopAttributes = node.attrs
    operands = node.inputs if inputs is None else tuple(inputs)
    return (attrs.body.root, attrs.condition, operands, attrs.length, attrs.reverse, attrs.counted, node.epoch)


def union_of(bodies: Sequence[Body]) -> Body:
    """A body that hands out the results of all of ``bodies``, which have one origin. Their graphs begin with the nodes
    of the origin's, so that these are the same."""
    graph = Graph()
    graph.nodes = list(dict.fromkeys(node for body in bodies for node in body.graph.nodes))
    carries = bodies[0].root.fetches
    fetches = tuple(dict.fromkeys(x for body in bodies for x in body.fetches[len(carries) :]))
    effects = dict.fromkeys(node for body in bodies for node in body.effects)
    return Body(graph, bodies[0].feeds, (*carries, *fetches), tuple(effects), bodies[0].root)


def _settled(body: Body) -> Body:
    """The body with its own loops merged, and without what nothing in it needs."""
    if not any(bodies_of(node) for node in body.graph.nodes):
        return body
    region = merged(Region(body.graph, body.feeds, body.fetches, body.effects))
    return Body(region.graph, region.feeds, region.fetches, region.effects)
