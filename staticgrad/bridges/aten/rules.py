"""Derivatives of a ``torch.autograd.Function``, which ``torch.export`` leaves out: it sees the forward alone.

While a module is exported, a call of such a function also traces its backward, at cotangents that an op of ours stands
for; another op says which results, cotangents, operands and gradients belong together:

    y = forward(x);  g = cotangent(y);  dx = backward(g);  y' = ruled([y], [g], [x], [dx])

The converter of the last gives y' a derivative of the user's own, whose rule declares the calls from g to dx once more,
with the cotangent in the place of g. What was declared of g itself is used by nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from staticgrad.bridges.aten.dialect import CONVERTERS, AtenCall
from staticgrad.bridges.importer import SourceScope
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

torch.library.define("staticgrad::cotangent", "(Tensor y) -> Tensor")
torch.library.define(
    "staticgrad::ruled", "(Tensor[] ys, Tensor[] cotangents, Tensor[] xs, Tensor?[] gradients) -> Tensor[]"
)


@torch.library.register_fake("staticgrad::cotangent")  # type: ignore[untyped-decorator]
def _cotangent_type(y: Any) -> Any:
    return torch.empty_like(y)


@torch.library.register_fake("staticgrad::ruled")  # type: ignore[untyped-decorator]
def _ruled_type(ys: Any, cotangents: Any, xs: Any, gradients: Any) -> Any:
    return [torch.empty_like(y) for y in ys]


class RuleContext:
    """The ``ctx`` of a function: what its forward leaves for its backward."""

    def __init__(self, args: Sequence[Any]) -> None:
        self.needs_input_grad = tuple(_has_gradient(x) for x in args)
        self.saved_tensors: tuple[Any, ...] = ()
        self.without: list[Any] = []

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self.without += tensors

    def mark_dirty(self, *tensors: Any) -> None:
        raise NotImplementedError("a torch.autograd.Function that writes to its operands is not converted")

    def set_materialize_grads(self, value: bool) -> None:
        """All cotangents are tensors here."""


def _has_gradient(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def _apply(function: Any, *args: Any) -> Any:
    """The results of a function, marked with the gradients that its backward gives."""
    context = RuleContext(args)
    if function.setup_context is torch.autograd.Function.setup_context:
        results = function.forward(context, *args)
    else:
        results = function.forward(*args)
        function.setup_context(context, args, results)
    ys = results if isinstance(results, tuple) else (results,)
    derived = [_has_gradient(y) and not any(y is other for other in context.without) for y in ys]
    cotangents = [torch.ops.staticgrad.cotangent(y) if own else None for y, own in zip(ys, derived)]
    zeros = [torch.zeros_like(y) if g is None and isinstance(y, torch.Tensor) else g for y, g in zip(ys, cotangents)]
    given = function.backward(context, *zeros)
    gradients = given if isinstance(given, tuple) else (given,)
    pairs = [(x, g) for x, g in zip(args, gradients) if _has_gradient(x)]
    marked = iter(
        torch.ops.staticgrad.ruled(
            [y for y, own in zip(ys, derived) if own],
            [g for g in cotangents if g is not None],
            [x for x, _ in pairs],
            [g for _, g in pairs],
        )
    )
    ys = tuple(next(marked) if own else y for y, own in zip(ys, derived))
    return ys if isinstance(results, tuple) else ys[0]


@contextmanager
def rules_kept() -> Iterator[None]:
    """Let functions with a backward of the user's own be exported with it."""
    original = torch.autograd.Function.__dict__["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        is_plain = cls.__module__.partition(".")[0] == "torch" or not torch.is_grad_enabled()
        return original.__get__(None, cls)(*args, **kwargs) if is_plain else _apply(cls, *args)

    torch.autograd.Function.apply = classmethod(apply)
    try:
        yield
    finally:
        torch.autograd.Function.apply = original


# -- converters --------------------------------------------------------------------------------------------------------


@CONVERTERS.enter("staticgrad.cotangent")
def cotangent(scope: SourceScope, node: fx.Node) -> list[Any]:
    return [o.zeros_like(scope.tensor(node.args[0]))]


@CONVERTERS.enter("staticgrad.ruled")
def ruled(scope: SourceScope, node: fx.Node) -> list[Any]:
    ys, seeds, xs, gradients = node.args
    at = AtenCall(scope, node)
    calls = _between(node.graph, seeds, [g for g in gradients if g is not None])

    def rule(*cotangents: Tensor) -> list[Any]:
        inner = copy.copy(scope)
        inner.values = scope.values.new_child(dict(zip(seeds, cotangents, strict=True)))
        for call in calls:
            inner.declare_node(call)
        return [None if g is None else inner.tensor(g) for g in gradients]

    results = [o.identity(y) for y in at.value(ys)]
    return [o.custom_gradient(lambda *_: (results, rule))(*at.value(xs))]


def _between(graph: fx.Graph, first: Sequence[fx.Node], last: Sequence[fx.Node]) -> list[fx.Node]:
    """The calls, in order, that depend on the first nodes and that the last depend on."""
    after, before = set(first), set(last)
    for node in graph.nodes:
        if any(operand in after for operand in node.all_input_nodes):
            after.add(node)
    for node in reversed(graph.nodes):
        if node in before:
            before.update(node.all_input_nodes)
    return [node for node in graph.nodes if node in after and node in before and node not in first]
