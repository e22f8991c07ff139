"""Numerics: a region in which every op that makes a NaN or an infinity is found.

Input: a region. Output: the region with a check after each floating result, also inside loops and conds, which
have effects then. Checks, prints, callbacks and assertions happen in the order in which they stand, so the first check
that fails names the first op; its source line is that of the declaration, in a derivative that of the primal.
"""

from __future__ import annotations

from collections.abc import Sequence

from staticgrad.base.errors import at_source
from staticgrad.base.types import is_floating
from staticgrad.compiler.regions.region import Region, rebuild
from staticgrad.graph.graph import Node, Tensor, get_default_graph
from staticgrad.graph.optable import OPS
from staticgrad.ops.control.bodies import Body, bodies_of, is_ordered
from staticgrad.ops.effects import NUMERICS_CHECK, NumericsAttributes
from staticgrad.ops.sources import PLACEHOLDER


def guarded(region: Region) -> Region:
    """The region with its checks."""
    guard = _NumericsGuard()
    made = rebuild(region, guard.visit)
    effects = {*made.effects, *guard.effects}
    return Region(made.graph, made.feeds, made.fetches, tuple(node for node in made.graph.nodes if node in effects))


class _NumericsGuard:
    def __init__(self) -> None:
        self.effects: list[Node] = []
        self._last: Node | None = None

    def visit(self, node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor]:
        new = self._copy(node, inputs)
        if is_ordered(new):
            self._put_last(new)
        if not node.op.effect and not bodies_of(node) and node.op is not PLACEHOLDER:
            for y in new.outputs:
                if is_floating(y.dtype):
                    self._check(node, y)
        return new.outputs

    def _copy(self, node: Node, inputs: tuple[Tensor, ...]) -> Node:
        graph = get_default_graph()
        parts = bodies_of(node)
        if not parts:
            return graph.clone(node, inputs)
        attrs = node.attrs.with_bodies([_guarded_body(body) for body in parts])
        op = OPS[f"effectful_{node.op.name.removeprefix('effectful_')}"]
        new = graph.add(op, inputs, attrs, name=node.name, types=tuple(y.type for y in node.outputs))
        self.effects.append(new)
        return new

    def _check(self, node: Node, y: Tensor) -> None:
        attrs = NumericsAttributes(f"op {node.op.name!r} ({node.name!r}) made a NaN or infinity")
        with at_source(node.source):
            check = get_default_graph().add(NUMERICS_CHECK, (y,), attrs)
        self.effects.append(check)
        self._put_last(check)

    def _put_last(self, node: Node) -> None:
        if self._last is not None and self._last not in node.control:
            node.control = (*node.control, self._last)
        self._last = node


def _guarded_body(body: Body) -> Body:
    region = guarded(Region(body.graph, body.feeds, body.fetches, body.effects))
    return Body(region.graph, region.feeds, region.fetches, region.effects)
