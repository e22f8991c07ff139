"""Substitution: what tensors are where some that they depend on have other values.

Input: declared tensors, and values for some of what they depend on. Output: tensors of the current graph. Only what
lies between is declared again; all else is read as it is, in the body of a loop as captures. So a loop evaluates a loss
and its gradient, as they were derived once with all hooks and rules, at many points; random numbers that do not depend
on the point are drawn once for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from staticgrad.base.errors import GraphError, at_source
from staticgrad.base.reach import reach
from staticgrad.compiler.autodiff.again import operands_of
from staticgrad.graph.graph import Node, Tensor, get_default_graph
from staticgrad.graph.scopes import isolated, no_grad


def substituted(fetches: Sequence[Tensor], values: Mapping[Tensor, Tensor], what: str) -> list[Tensor]:
    """The tensors with ``values`` in the place of its keys, whose types they have. ``what`` asks for it, for messages.

    Raises:
        GraphError: what lies between writes a variable.
    """
    graph = get_default_graph()
    made = dict(values)
    nodes: dict[Node, Node] = {}
    with isolated(), no_grad():
        for node in _needed(fetches, values):
            operands = operands_of(node)
            if not any(x in made for x in operands) or all(y in made for y in node.outputs):
                continue
            if node.op.state:
                raise GraphError(f"{what}: what is evaluated many times writes a variable ({node.name!r})",
                                 source=node.source)  # fmt: skip
            inputs = [made.get(x, x) for x in operands]
            types = tuple([y.type for y in node.outputs])
            control = [nodes[before] for before in node.control if before in nodes]
            with at_source(node.source):
                new = graph.add(node.op, inputs, node.attrs, types=types, control=control)
            new.epoch, new.part = node.epoch, node.part
            nodes[node] = new
            made.update(zip(node.outputs, new.outputs, strict=True))
    return [made.get(x, x) for x in fetches]


def _needed(fetches: Sequence[Tensor], values: Mapping[Tensor, Tensor]) -> list[Node]:
    """The nodes that lead to ``fetches``, in order, up to those whose results are all given."""
    given = {node for node in {x.op for x in values} if all(y in values for y in node.outputs)}
    found = reach([x.op for x in fetches], lambda node: () if node in given else [x.op for x in operands_of(node)])
    return sorted(found, key=lambda node: node.serial)
