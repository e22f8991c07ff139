"""The values that the derivative of a node reads, and so what the node *saves* for its backward.

Input: a declared node. Output: which of its operands and results its vjp reads, and whether it reads something that
only its own expansion or rule knows. This is not declared: the rule is run once on a scratch graph, where placeholders
stand for operands, results and cotangents, and what else the cotangents' ops read is followed back.

Only the cotangents of operands that require a gradient count: of ``x * w`` with a ``w`` that needs none, ``w`` is saved
and ``x`` is not. Shapes are no values: reading them saves nothing. Constants are operands like others: ``x * 3`` and
``x ** 1`` save, though their derivatives could do without.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from staticgrad.base.errors import GradientError, GraphError, at_source
from staticgrad.base.frozen import frozen
from staticgrad.base.reach import reach
from staticgrad.base.types import TensorType, is_floating
from staticgrad.compiler.autodiff.residuals import Remat, remat
from staticgrad.compiler.autodiff.reverse import pull_back
from staticgrad.graph.graph import Derivation, Graph, Node, Tensor
from staticgrad.graph.optable import Op, Primal
from staticgrad.graph.scopes import isolated
from staticgrad.ops.sources import PLACEHOLDER, SourceAttributes


@frozen
class Saved:
    """Positions of the operands and results that are read; ``other`` says that further values are (random draws inside
    an expansion, tensors that a custom rule captured)."""

    operands: tuple[int, ...] = ()
    results: tuple[int, ...] = ()
    other: bool = False

    def __bool__(self) -> bool:
        return bool(self.operands or self.results or self.other)


NOTHING = Saved()


def saves(node: Node) -> Saved:
    """The values that the derivative of ``node`` by those of its operands that require a gradient reads."""
    needs = tuple(x.requires_grad for x in node.inputs)
    if not any(needs) or not any(y.requires_grad for y in node.outputs):
        return NOTHING
    case = _SavesCase(
        node.op,
        node.attrs,
        tuple(x.type for x in node.inputs),
        tuple(y.type for y in node.outputs),
        needs,
        tuple(y.requires_grad for y in node.outputs),
    )
    try:
        return _remembered(case)
    except GraphError:  # the rule captured tensors of its own graph
        return _traced(case, Derivation(node.graph))
    except GradientError:  # it has no derivative, so no backward passes it
        return NOTHING


@frozen
class _SavesCase:
    op: Op
    attrs: Any
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    needs: tuple[bool, ...]
    derived: tuple[bool, ...]


@functools.lru_cache(maxsize=4096)
def _remembered(case: _SavesCase) -> Saved:
    return _traced(case, Graph())


def _traced(case: _SavesCase, graph: Graph) -> Saved:
    with graph, isolated(), at_source(None):
        inputs = tuple(_placeholder(graph, t) for t in case.inputs)
        outputs = tuple(_placeholder(graph, t) for t in case.outputs)
        cotangents = [
            _placeholder(graph, t) if derived and is_floating(t.dtype) else None
            for t, derived in zip(case.outputs, case.derived, strict=True)
        ]
        primal = Primal(inputs, outputs, case.attrs)
        pulled = pull_back(graph, case.op, primal, cotangents, case.needs)
    wanted = [ct for ct, need in zip(pulled, case.needs, strict=True) if need and ct is not None]
    reads = reads_of(wanted, {ct for ct in cotangents if ct is not None})
    return _classify(reads, inputs, outputs)


def _placeholder(graph: Graph, type_: TensorType) -> Tensor:
    return graph.add(PLACEHOLDER, (), SourceAttributes(type_.shape, type_.dtype)).outputs[0]


def reads_of(results: Iterable[Tensor], cotangents: set[Tensor]) -> list[Tensor]:
    """The tensors that ops between ``cotangents`` and ``results`` read without depending on a cotangent themselves,
    in a deterministic order."""
    reached = reach([y.op for y in results], lambda node: [x.op for x in node.value_inputs])
    depends = set(cotangents)
    reads: dict[Tensor, None] = {}
    for node in sorted(reached, key=lambda n: n.serial):
        if any(x in depends for x in node.value_inputs):
            depends.update(node.outputs)
            reads.update((x, None) for x in node.value_inputs if x not in depends)
    reads.update((y, None) for y in results if y not in depends)
    return list(reads)


def _classify(reads: Sequence[Tensor], inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Saved:
    operand = {x: i for i, x in enumerate(inputs)}
    result = {y: i for i, y in enumerate(outputs)}
    operands, results, other = set(), set(), False
    stack, seen = list(reads), set(reads)
    while stack:
        x = stack.pop()
        if x in result:
            results.add(result[x])
        elif x in operand:
            operands.add(operand[x])
        elif remat(x.op) is not Remat.FREE:
            other = other or not x.op.inputs
            fresh = [y for y in x.op.value_inputs if y not in seen]
            seen.update(fresh)
            stack.extend(fresh)
    return Saved(tuple(sorted(operands)), tuple(sorted(results)), other)
