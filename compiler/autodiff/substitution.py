"""Substitution: what tensors are where some that they depend on have other values.

Input: declared tensors, and values for some of what they depend on. Output: tensors of the current graph. Only what
lies between is declared again; all else is read as it is, in the body of a loop as captures. So a loop evaluates a loss
and its gradient, as they were derived once with all hooks and rules, at many points; random numbers that do not depend
on the point are drawn once for all.

The results of a body, which are to be derived where they are declared, are declared whole (``applied``). Rules of the
user's in it read the body's tensors, so they are run in a continuation of the body, and what they declare is declared
again like the rest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from staticgrad.base.errors import GraphError, at_source
from staticgrad.base.reach import reach
from staticgrad.compiler.autodiff.again import operands_of
from staticgrad.graph.graph import Node, Tensor, get_default_graph, needed_nodes
from staticgrad.graph.lifting import lift
from staticgrad.graph.optable import Primal
from staticgrad.graph.scopes import isolated, no_grad
from staticgrad.ops.control.bodies import Body, BodyGraph
from staticgrad.ops.custom import CustomAttributes, OwnRule


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


# -- bodies -----------------------------------------------------------------------------------------------------------


def applied(body: Body, operands: Sequence[Tensor]) -> list[Tensor]:
    """The results of a body over these operands, declared into the current graph with the effects that it has."""
    needed = needed_nodes(body.fetches, body.effects)
    known = dict(zip(body.feeds, operands, strict=True))
    _declare(body, [node for node in body.graph.nodes if node in needed], known)
    return [known[y] for y in body.fetches]


def _declare(body: Body, nodes: Iterable[Node], known: dict[Tensor, Tensor]) -> None:
    """Declare nodes of a body, or of a continuation of it, where ``known`` has what stands for their operands, and
    takes what stands for their results."""
    graph = get_default_graph()
    made: dict[Node, Node] = {}
    for node in nodes:
        if all(y in known for y in node.outputs) and node.outputs:
            continue
        inputs = [known[x] for x in node.inputs]
        control = [made[before] for before in node.control if before in made]
        attrs = _with_rules(body, node, known) if isinstance(node.attrs, CustomAttributes) else node.attrs
        with at_source(node.source), no_grad() if node.blocked else contextlib.nullcontext():
            new = graph.add(node.op, inputs, attrs, control=control)
        new.epoch, new.part = node.epoch, node.part
        made[node] = new
        known.update(zip(node.outputs, new.outputs, strict=True))


def _with_rules(body: Body, node: Node, known: Mapping[Tensor, Tensor]) -> CustomAttributes:
    """The attributes of a custom node whose rules are run in a continuation of the body."""

    def ruled(rule: OwnRule | None) -> OwnRule | None:
        if rule is None:
            return None

        def own(primal: Primal[CustomAttributes], given: Sequence[Tensor]) -> list[Any]:
            trace = BodyGraph(get_default_graph(), body.graph)
            with trace, isolated():
                inner = [trace.parameter(x.type, x.op.name) for x in given]
                made = rule(Primal(node.inputs, node.outputs, node.attrs), inner)
                found = [None if y is None else trace.adopt(lift(y, trace), "custom_gradient") for y in made]
            now = {**known, **{parameter: x for x, parameter in trace.captured.items() if parameter not in known}}
            now.update(zip(inner, given, strict=True))
            now.update(zip((*node.inputs, *node.outputs), (*primal.inputs, *primal.outputs), strict=True))
            needed = needed_nodes([y for y in found if y is not None], ())
            _declare(body, [n for n in trace.nodes[trace.first :] if n in needed], now)
            return [None if y is None else now[y] for y in found]

        return own

    attrs: CustomAttributes = node.attrs
    return replace(attrs, rule=ruled(attrs.rule), forward=ruled(attrs.forward))
