"""``torch.cond``, ``while_loop``, ``scan`` and ``map``: their converters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from staticgrad.bridges.arrays import as_tensors
from staticgrad.bridges.aten.dialect import CONVERTERS, AtenCall, body_of, parts_of
from staticgrad.bridges.importer import SourceScope
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

Body = Callable[[Sequence[Any]], list[Tensor]]


def _bodies(at: AtenCall) -> list[Body]:
    """The graphs of a call as functions of lists of tensors."""

    def body(part: fx.GraphModule) -> Body:
        inner = body_of(part.graph)
        return lambda values: as_tensors(at.scope.call(inner, list(values)))

    return [body(part) for part in parts_of(at.node)]


@CONVERTERS.enter("cond")
def cond(scope: SourceScope, node: fx.Node) -> list[Any]:
    at = AtenCall(scope, node)
    then, otherwise = _bodies(at)
    condition, operands = at.value(node.args[0]), at.value(node.args[3])
    if not isinstance(condition, Tensor):
        return [then(operands) if condition else otherwise(operands)]
    return [o.cond(o.reshape(condition, ()), lambda: then(operands), lambda: otherwise(operands))]


@CONVERTERS.enter("while_loop")
def while_loop(scope: SourceScope, node: fx.Node) -> list[Any]:
    at = AtenCall(scope, node)
    condition, body = _bodies(at)
    state, others = (list(at.value(argument)) for argument in node.args[2:4])
    return [o.while_loop(lambda s: o.reshape(condition([*s, *others])[0], ()), lambda s: body([*s, *others]), state)]


@CONVERTERS.enter("scan")
def scan(scope: SourceScope, node: fx.Node) -> list[Any]:
    at = AtenCall(scope, node)
    (body,) = _bodies(at)
    first, rows, others = (list(at.value(argument)) for argument in node.args[1:4])

    def turn(carry: list[Tensor], row: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        results = body([*carry, *row, *others])
        return results[: len(first)], results[len(first) :]

    carry, stacked = o.scan(turn, first, rows)
    return [[*carry, *stacked]]


@CONVERTERS.enter("map_impl")
def map_(scope: SourceScope, node: fx.Node) -> list[Any]:
    at = AtenCall(scope, node)
    (body,) = _bodies(at)
    rows, others = (list(at.value(argument)) for argument in node.args[1:3])
    return [o.map(lambda row: body([*row, *others]), rows)]
