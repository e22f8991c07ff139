"""The scope of a walk: the graph that it writes into and, from the body of a loop or branch, the graphs around it.

Input: a graph. Output: which tensors are one tensor, in which order nodes come, and as what a rule reads a node. A
body reads each tensor of the graphs around it as a parameter. A derivative that is declared in the body takes the two
for one tensor and goes on with the op that made it: by the chain rule a total derivative is the sum, over what the body
captured, of the partial derivative by it times its own derivative, which is written into the body as well, since the
cotangents (tangents) are values of the body. What the rules read of nodes outside is captured in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from staticgrad.compiler.autodiff.again import operands_of
from staticgrad.graph.graph import Derivation, Graph, Node, Tensor
from staticgrad.graph.optable import Primal
from staticgrad.ops.control.bodies import BodyGraph


class DerivativeScope:
    """The nodes that a walk may pass: those of ``graph`` and, if they are taken in, of the graphs ``around`` it."""

    def __init__(self, graph: Graph, *, around: bool) -> None:
        self.graph = graph
        self._graphs = [graph]  # innermost first
        inner = graph
        while around and isinstance(inner, Derivation):
            if isinstance(inner, BodyGraph):
                self._graphs.append(inner.outer)
            inner = inner.outer if isinstance(inner, BodyGraph) else inner.base

    def outermost(self, x: Tensor) -> Tensor:
        """The tensor itself, or the one outside that is captured as this parameter."""
        return x if len(self._graphs) == 1 else self.graph.outermost(x)

    def place(self, node: Node) -> tuple[int, int]:
        """A key by which nodes are in order: operands come before their users."""
        return -self._depth(node), node.serial

    def home(self, node: Node) -> Graph:
        """The graph that a node may be used in as it is."""
        return self._graphs[self._depth(node)]

    def is_outside(self, node: Node) -> bool:
        return self._depth(node) > 0

    def primal(self, node: Node) -> Primal[Any]:
        """The node as its rule shall see it: what it reads and gives, as tensors of the graph that is written into."""
        inputs, outputs = operands_of(node), node.outputs
        if self.is_outside(node):
            inputs, outputs = (tuple([self.graph.adopt(x, node.op.name) for x in xs]) for xs in (inputs, outputs))
        return Primal(inputs, outputs, node.attrs)

    def _depth(self, node: Node) -> int:
        if len(self._graphs) == 1:
            return 0
        return next((depth for depth, graph in enumerate(self._graphs) if graph.holds(node)), len(self._graphs) - 1)


def scope_of(graph: Graph, sources: Sequence[Tensor]) -> DerivativeScope:
    """The scope of a derivative by ``sources``: the graphs around take part if one of these is theirs, as nothing else
    there depends on them."""
    scope = DerivativeScope(graph, around=True)
    if any(scope.is_outside(scope.outermost(x).op) for x in sources):
        return scope
    return DerivativeScope(graph, around=False)


def passes_gradients(node: Node) -> bool:
    """True if gradients go through, or stop at a stop_gradient, a comparison, or a declaration under no_grad."""
    return not node.blocked and node.op.differentiable
