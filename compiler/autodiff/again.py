"""Rematerialization: what a derivative rule reads of a node that was declared in ``sg.checkpoint`` is computed again.

Input: a declared node and its cotangents. Output: the tensors that its rule shall read. Values computed in a
checkpoint are declared a second time (``Graph.repeat``), from what lies outside of it, after the first cotangent that
reaches it; so that nothing of it has to be kept in between. Each walk repeats the ops of a checkpoint at most once, and
only those whose results it reads. In a checkpoint within another one, what is repeated begins at values that the outer
one repeats.

Effects are never repeated, so their results are read as they are; random ops draw the same numbers again. A loop in
which there are effects or draws counts as an effect.

This is reverse accumulation with checkpointing (A. Griewank and A. Walther, "Evaluating Derivatives", 2nd edition,
chapter 12), where the user says what lies between two checkpoints.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from staticgrad.compiler.regions.cut import written_before
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.optable import FUNCTIONS
from staticgrad.graph.scopes import Checkpoint, closed_checkpoint
from staticgrad.ops.sources import VARIABLE

_epochs = itertools.count(1)


def operands_of(node: Node) -> tuple[Tensor, ...]:
    """The operands as a rule shall read them: where the node reads a variable after a write, the written value, since
    what the rule declares is not itself ordered after the write."""
    inputs = node.inputs
    if node.control and any(x.op.op is VARIABLE for x in inputs):
        written = {key: write.outputs[0] for key, write in written_before(node).items()}
        inputs = tuple(written.get(x.op.attrs.key, x) if x.op.op is VARIABLE else x for x in inputs)
    return inputs


class Recomputer:
    """The recomputations of one walk; ``graph`` is current and takes them."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._made: dict[tuple[Checkpoint, Node], Node] = {}
        self._begun: dict[Checkpoint, tuple[int, tuple[Node, ...]]] = {}  # epoch, and what comes before

    def values(self, node: Node, cotangents: Sequence[Tensor | None]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """The operands and results of ``node`` for its rule, which the cotangents have reached."""
        inside = closed_checkpoint(node)
        inputs = tuple(self._value(x, inside, cotangents) for x in operands_of(node))
        if inside is None:
            return inputs, node.outputs
        return inputs, tuple(self._value(y, inside, cotangents) for y in node.outputs)

    def _value(self, x: Tensor, inside: Checkpoint | None, cotangents: Sequence[Tensor | None]) -> Tensor:
        if x.op.original is not None:  # an earlier walk's: it was not kept either
            x = x.original
            inside = closed_checkpoint(x.op)
        while inside is not None and not inside.holds(x.op):
            inside = inside.outer
        if inside is None or not _is_repeatable(x.op):
            return x
        if inside not in self._begun:
            # An op of its own, as a control edge to the cotangent's op would also be one to what that op comes after.
            after = [FUNCTIONS.identity(ct).op for ct in cotangents if ct is not None]
            self._begun[inside] = (next(_epochs), tuple(after))
        self._repeat(x.op, inside, cotangents)
        return self._made[inside, x.op].outputs[x.index]

    def _repeat(self, last: Node, inside: Checkpoint, cotangents: Sequence[Tensor | None]) -> None:
        """Repeat ``last`` and what it needs of the checkpoint."""
        stack, needed = [last], {last}
        while stack:
            for x in operands_of(stack.pop()):
                node = x.op
                known = node in needed or (inside, node) in self._made
                if not known and inside.holds(node) and _is_repeatable(node):
                    needed.add(node)
                    stack.append(node)
        epoch, after = self._begun[inside]
        for node in sorted(needed, key=lambda n: n.serial):
            if (inside, node) not in self._made:
                inputs = [self._value(x, inside, cotangents) for x in operands_of(node)]
                self._made[inside, node] = self._graph.repeat(node, inputs, after, epoch)


def _is_repeatable(node: Node) -> bool:
    from staticgrad.compiler.autodiff.residuals import Remat, remat

    return Remat.FREE < remat(node) < Remat.NEVER
