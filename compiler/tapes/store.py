"""The store: which residuals a tape keeps, so that everything its backwards read can be had.

Input: what backwards read, and how much may be rematerialized. Output: the values to keep, and for each of them
who reads it or what is computed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from staticgrad.compiler.autodiff.minimum_cut import minimum_cut
from staticgrad.compiler.tapes.reads import Reads
from staticgrad.errors import GraphError
from staticgrad.graph import Derivation, Graph, Node, Tensor
from staticgrad.ops.sources import VARIABLE


class ResidualChoice:
    """A choice of values to keep so that everything that is read can be had: a minimum cut between what exists in the
    forward and what backwards read, over the ops that a backward may repeat.

    Level 0 repeats views, and what rules write elementwise (``2 * x`` is not kept beside ``x``, but the mask ``x > 0``
    is if ``x`` isn't needed otherwise). Of the declared ops before node number ``before``, level 1 repeats the
    elementwise ones too, level 2 everything without an effect, a draw or a graph of its own.
    """

    def __init__(
        self,
        graph: Derivation,
        reads: Reads,
        fed: Mapping[Tensor, int],
        outputs: Collection[Tensor],
        written: frozenset[str],
        level: int,
        before: int,
    ) -> None:
        self._graph = graph
        self._reads = reads
        self._fed = fed
        self._outputs = outputs
        self._written = written
        self._level = level
        self._before = before
        self.saved: dict[Tensor, None] = {}

    def is_free(self, x: Tensor) -> bool:
        """True if a backward has it without anything being kept."""
        node = x.op
        if x in self._fed or self._is_bound_to_forward(node):
            return False
        return node.op.rematerializable or (node.op is VARIABLE and node.attrs.key not in self._written)

    def _is_bound_to_forward(self, node: Node) -> bool:
        """Declared after other nodes: repeating it would repeat those."""
        return bool(node.control)

    def _is_repeatable(self, x: Tensor) -> bool:
        node = x.op
        if x in self._fed or not node.inputs or node.op.effect or self._is_bound_to_forward(node):
            return False
        if node.op.view or (node.op.elementwise and node.serial >= self._graph.first):
            return True
        if self._level == 0 or self._before <= node.serial < self._graph.first:
            return False
        return node.op.elementwise or (self._level >= 2 and not node.op.draws and not _holds_graph(node.attrs))

    def choose(self, wanted: Iterable[Tensor], nbytes: Callable[[Tensor], int]) -> None:
        """Fill ``saved``, in the order of the graph."""
        edges: dict[Tensor, tuple[Tensor, ...]] = {}
        stack = [self._reads.same(x) for x in wanted]
        sinks = set(stack)
        while stack:
            x = stack.pop()
            if x in edges or self.is_free(x):
                continue
            operands = [self._reads.same(y) for y in x.op.value_inputs] if self._is_repeatable(x) else []
            edges[x] = tuple(dict.fromkeys(y for y in operands if not self.is_free(y)))
            stack.extend(edges[x])
        sources = {x for x in edges if not self._is_repeatable(x)}
        cost = {x: 0 if x in self._outputs else 2 * nbytes(x) + (x.op.serial >= self._graph.first) for x in edges}
        chosen = minimum_cut(edges, sources, sinks, cost)
        self.saved = dict.fromkeys(sorted(chosen, key=lambda x: (x.op.serial, x.index)))

    def base_of(self, wanted: Iterable[Tensor], *, strict: bool = True) -> list[Tensor]:
        """The tensors where the computation of ``wanted`` begins: saved ones and free ones. Unless ``strict``, also
        those that are neither and can't be repeated."""
        stack, seen = list(wanted), set(wanted)
        found = []
        while stack:
            x = stack.pop()
            if self._reads.same(x) in self.saved or not self._is_repeatable(x):
                if strict and self._reads.same(x) not in self.saved and not self.is_free(x):
                    raise GraphError(f"the plan of a tape lacks {x.name!r}", source=x.source)
                found.append(x)
                continue
            for y in x.op.value_inputs:
                if y not in seen:
                    seen.add(y)
                    stack.append(y)
        return sorted(found, key=lambda x: (x.op.serial, x.index))

    def readers(self, wanted: Mapping[Tensor, set[Node | None]]) -> dict[Tensor, set[Node | None]]:
        """For each saved tensor, who reads it or what is computed from it."""
        result: dict[Tensor, set[Node | None]] = {x: set() for x in self.saved}
        for x, who in wanted.items():
            for base in self.base_of([x]):
                same = self._reads.same(base)
                if same in result:
                    result[same] |= who
        return result


def _holds_graph(attrs: Any) -> bool:
    """True if an op runs a graph of its own (control flow), in which there may be draws and effects."""
    values = [getattr(attrs, f.name) for f in fields(attrs)] if is_dataclass(attrs) else []
    return any(isinstance(v, Graph) or isinstance(getattr(v, "graph", None), Graph) for v in values)
