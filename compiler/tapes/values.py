"""Values: which tensors have the same value, as far as nodes that were derived repeat each other.

Input: derived nodes, in order. Output: for each tensor the first one that has its value. A loop that a derivative
declares again, to have it hand out more of its values (``autodiff/loops.py``), is the same loop: each of its results is
what its body says, however many other results a derivative wanted as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from staticgrad.compiler.regions.merge import family_of
from staticgrad.graph.graph import Node, Tensor
from staticgrad.ops.control.bodies import Body
from staticgrad.ops.control.loops import LoopAttributes
from staticgrad.ops.sources import PLACEHOLDER


class Values:
    """Numbers values: nodes of one op with equal attributes compute the same of the same operands."""

    def __init__(self) -> None:
        self._first: dict[Tensor, Tensor] = {}
        self._known: dict[object, Tensor] = {}
        self._bodies: dict[Body, _BodyValues] = {}  # by the root that bodies have in common

    def same(self, x: Tensor) -> Tensor:
        """The first tensor that has this value."""
        return self._first.get(x, x)

    def note(self, node: Node) -> None:
        """Take a node into account, whose operands have been."""
        inputs = tuple(self.same(x) for x in node.inputs)
        if isinstance(node.attrs, LoopAttributes):
            keys = self._results_of_loop(node, inputs)
        elif node.op.effect or node.control:
            return
        else:
            keys = [(node.op, node.attrs, inputs, number) for number in range(len(node.outputs))]
        for y, key in zip(node.outputs, keys, strict=True):
            first = self._known.setdefault(key, y)
            if first is not y:
                self._first[y] = first

    def _results_of_loop(self, node: Node, inputs: Sequence[Tensor]) -> list[object]:
        attrs: LoopAttributes = node.attrs
        root = attrs.body.root
        if root not in self._bodies:
            self._bodies[root] = _BodyValues(root)
        inside = self._bodies[root]
        inside.note_body(attrs.body)
        family = family_of(node, inputs)
        stacked = attrs.body.fetches[attrs.carries :]
        return [(family, k) for k in range(attrs.first_result)] + [(family, inside.same(x)) for x in stacked]


class _BodyValues(Values):
    """The values of bodies with one root, whose own nodes are in all of them."""

    def __init__(self, root: Body) -> None:
        super().__init__()
        self._noted = set(root.graph.nodes)

    def note_body(self, body: Body) -> None:
        for node in body.graph.nodes:
            if node not in self._noted:
                self._noted.add(node)
                if node.op is not PLACEHOLDER:
                    self.note(node)
