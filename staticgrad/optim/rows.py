"""Rows of a variable that its gradient names: which an optimizer updates where it is ``lazy``, and which ranks send.

Input: a declared gradient. Output: its terms; what writes rows that are named, and keeps the others. A gradient names
rows where it is made, element by element, of terms that are added to zeros at indices, as those of embeddings and of
``x[index]`` are; any other one names them all.
"""

from __future__ import annotations

from collections.abc import Sequence

from staticgrad.base.types import int32
from staticgrad.graph.graph import Node, Tensor, get_default_graph
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.ops.effects import ASSIGN
from staticgrad.ops.indexing.gathering import INDEX_ADD, SCATTER_ADD
from staticgrad.ops.sources import FULL
from staticgrad.optim.state import assign


def named_rows(gradient: Tensor) -> Tensor | None:
    """A mask of the rows that a gradient names, (rows, 1, …) for a gradient (rows, …); None: all of them."""
    terms: list[Node] = []
    seen, stack = {gradient}, [gradient]
    while stack:
        node = stack.pop().op
        if _adds_rows(node):
            terms.append(node)
        elif node.op.elementwise:
            operands = [x for x in dict.fromkeys(node.inputs) if x.ndim == gradient.ndim and x not in seen]
            seen.update(operands)
            stack += operands
        else:
            return None
    if not terms:
        return None
    masks = [o.greater(_times_named(node), 0) for node in sorted(terms, key=lambda node: node.serial)]
    named = masks[0]
    for mask in masks[1:]:
        named = o.logical_or(named, mask)
    return named


def terms_of(gradient: Tensor) -> list[Node]:
    """The terms at indices of axis 0 that are added to zeros, one after the other, and whose sum a gradient is; none
    if it is something else."""
    found: list[Node] = []
    stack = [gradient]
    while stack:
        x = stack.pop()
        if _adds_rows(x.op):
            found.append(x.op)
        elif x.op.op.name == "add" and all(y.type == gradient.type for y in x.op.inputs):
            stack += x.op.inputs
        else:
            return []
    return sorted(dict.fromkeys(found), key=lambda node: node.serial)


def added_again(gradient: Tensor, terms: dict[Tensor, Tensor]) -> Tensor:
    """The sum that a gradient is, of what stands for its terms, in its order."""
    if gradient not in terms:
        a, b = (added_again(x, terms) for x in gradient.op.inputs)
        terms[gradient] = o.add(a, b)
    return terms[gradient]


def _adds_rows(node: Node) -> bool:
    return node.op in (INDEX_ADD, SCATTER_ADD) and node.attrs.axes == (0,) and _is_zero(node.inputs[0])


def _is_zero(x: Tensor) -> bool:
    return x.op.op is FULL and x.op.attrs.value == 0


def _times_named(term: Node) -> Tensor:
    """The number of times that a term names each row."""
    base, _, index = term.inputs
    others = (1,) * (base.ndim - 1)
    zeros, ones = o.zeros((base.shape[0], *others), dtype=int32), o.ones((*index.shape, *others), dtype=int32)
    return get_default_graph().add(term.op, (zeros, ones, index), term.attrs, control=term.control).outputs[0]


def keeping_others(updates: Sequence[Node], named: Tensor, var: Tensor) -> list[Node]:
    """The writes of an update of ``var`` such that rows which are not named keep what they have."""
    kept: list[Node] = []
    variables = {x.op.attrs.key: x for x in var.graph.variables.values()}
    for node in updates:
        old = variables[node.attrs.key] if node.op is ASSIGN else None
        if old is not None and old.ndim == named.ndim and old.shape[0] == var.shape[0]:
            node = assign(old, o.where(named, node.inputs[0], old))
        kept.append(node)
    return kept
