"""Reads: the residuals, what derived backwards read of the forward.

Input: the private continuation of a graph into which backwards were derived. Output: the values that they read and
that do not depend on a cotangent, with the declared nodes whose rules read them; and which of them are the same value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from staticgrad.base.frozen import frozen
from staticgrad.compiler.tapes.values import Values
from staticgrad.graph.graph import Derivation, Node, Tensor
from staticgrad.ops.effects import ACCUMULATE_GRAD
from staticgrad.ops.sources import PLACEHOLDER

_BACKWARD_ONLY = (PLACEHOLDER, ACCUMULATE_GRAD)  # derived nodes that are what a backward is


@frozen(eq=False)
class Derived:
    """The cotangent graph of some outputs: where it begins and what it is for. ``owners`` are the tensors whose
    gradients the sinks accumulate or hooks of which declared them, parallel to these."""

    cotangents: tuple[Tensor, ...]
    sinks: tuple[Node, ...]  # accumulate_grad nodes, and effects of hooks
    owners: tuple[Tensor, ...]

    def only(self, tensors: Collection[Tensor]) -> Derived:
        """The same for the gradients of some tensors alone."""
        kept = [(n, x) for n, x in zip(self.sinks, self.owners, strict=True) if x in tensors]
        return Derived(self.cotangents, tuple(n for n, _ in kept), tuple(x for _, x in kept))


class Reads:
    """The values that backwards read and that do not depend on a cotangent, and which of them are the same value."""

    def __init__(self, graph: Derivation, owners: Mapping[Node, Node | None], drawn: Collection[Node]) -> None:
        self._graph = graph
        self._owners = owners
        self._drawn = drawn
        self._values = Values()
        self._active: set[Node] = set()
        self._next = graph.first

    def of(self, backwards: Iterable[Derived]) -> dict[Tensor, set[Node | None]]:
        """The values that these backwards read, each with the declared nodes that do (None: a hook)."""
        starts = {ct.op for b in backwards for ct in b.cotangents}
        self._classify()
        stack = [node for b in backwards for node in b.sinks]
        seen = set(stack)
        found: dict[Tensor, set[Node | None]] = {}
        while stack:
            node = stack.pop()
            before = [c for c in node.control if c.serial >= self._graph.first]
            for x in node.value_inputs:
                if x.op in self._active:
                    before.append(x.op)
                else:
                    found.setdefault(x, set()).add(self._owners.get(node))
            for other in before:
                if other not in seen and other not in starts:
                    seen.add(other)
                    stack.append(other)
        return dict(sorted(found.items(), key=lambda item: (item[0].op.serial, item[0].index)))

    def same(self, x: Tensor) -> Tensor:
        """The first tensor that has this value, as far as derived nodes repeat each other."""
        return self._values.same(x)

    def _classify(self) -> None:
        """Find the derived nodes that depend on a cotangent; number the values of the others."""
        for node in self._graph.nodes[self._next :]:
            before = (*(x.op for x in node.value_inputs), *node.control)
            if node.op in _BACKWARD_ONLY or node in self._drawn or not self._active.isdisjoint(before):
                self._active.add(node)
            else:
                self._values.note(node)
        self._next = len(self._graph.nodes)
