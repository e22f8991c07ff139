"""The reduction of rows to a loss.

    rows   ::= an elementwise loss, or one that is reduced along the class axis (which stays with size 1)
    loss   ::= rows | sum of rows | mean of rows          reduction = "none" | "sum" | "mean"

``elementwise_loss`` makes the entry of a loss from its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from staticgrad.base.errors import BroadcastWarning, GraphError, warn
from staticgrad.base.types import FLOATS, TensorType, broadcast_shapes
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift_all
from staticgrad.graph.optable import Array, Case, Namespace, Op, Primal, Range, register
from staticgrad.ops.declare import floating

REDUCTIONS = ("none", "mean", "sum")
PROBABILITY = Range(0.05, 0.95)


class Reduced(Protocol):
    """The attributes of every loss."""

    @property
    def reduction(self) -> str: ...


A = TypeVar("A", bound=Reduced)


def check_reduction(reduction: str, what: str, allowed: Sequence[str] = REDUCTIONS) -> str:
    """Refuse a reduction that the loss does not have."""
    if reduction not in allowed:
        raise GraphError(f"{what}: reduction={reduction!r}: expected one of {', '.join(map(repr, allowed))}")
    return reduction


def reduced(o: Namespace, rows: Tensor, reduction: str) -> Tensor:
    """Rows, their sum or their mean."""
    if reduction == "mean":
        return o.mean(rows)
    return o.sum(rows) if reduction == "sum" else rows


def reduced_reference(rows: Array, reduction: str) -> Array:
    """Rows, their sum or their mean, of arrays."""
    with np.errstate(invalid="ignore", divide="ignore"):
        result = np.mean(rows) if reduction == "mean" else np.sum(rows) if reduction == "sum" else rows
    return np.asarray(result, rows.dtype)


def weighted(o: Namespace, x: Tensor, weight: Tensor | None) -> Tensor:
    """``x`` times a weight, if there is one."""
    return x if weight is None else o.multiply(x, weight)


def elementwise_type(what: str) -> Callable[..., TensorType]:
    def infer(attrs: Reduced, *types: TensorType) -> TensorType:
        shape = broadcast_shapes([t.shape for t in types], what)
        return TensorType(shape if attrs.reduction == "none" else (), types[0].dtype)

    return infer


def elementwise_loss(
    name: str,
    doc: str,
    rows: Callable[..., Tensor],
    reference: Callable[..., Array],
    attributes: Sequence[A],
    ranges: Callable[[A], tuple[Range, ...] | None] = lambda attrs: None,
    **options: Any,
) -> Op:
    """A loss that is elementwise before its reduction: ``rows(o, attrs, *inputs)``, ``reference(attrs, *arrays)``."""
    shapes = (((3, 4), (3, 4)), ((5,), (5,)), ((2, 3, 4), (3, 1)))
    cases = tuple(
        Case(shapes[i % len(shapes)], attrs, ranges(attrs), distinct=True) for i, attrs in enumerate(attributes)
    )

    def expand(o: Namespace, node: Primal[Reduced]) -> Sequence[Tensor]:
        return [reduced(o, rows(o, node.attrs, *node.inputs), node.attrs.reduction)]

    def evaluate(attrs: Reduced, *xs: Array) -> Array:
        with np.errstate(invalid="ignore", divide="ignore"):
            return reduced_reference(np.asarray(reference(attrs, *xs), xs[0].dtype), attrs.reduction)

    return register(
        Op(
            name,
            doc,
            infer=elementwise_type(name),
            reference=evaluate,
            expand=expand,
            dtypes=FLOATS,
            cases=cases,
            **options,
        )
    )


def loss_operands(what: str, input: TensorLike, target: TensorLike, *weights: TensorLike) -> tuple[Tensor, ...]:
    """The operands of a loss, lifted to one floating dtype. Warns where input and target are broadcast to another shape
    than both have, unless one is a single number of shape (), and so is meant for every element.

    Raises:
        GraphError: the operands are not floating, or their shapes do not broadcast.
    """
    operands = lift_all((input, target, *weights), what=what)
    x, t = operands[:2]
    floating(x, what)
    shape = broadcast_shapes([x.shape, t.shape], what)
    sizes = [(*[1] * (len(shape) - y.ndim), *y.shape) for y in (x, t)]
    if x.ndim and t.ndim and any((m == 1) != (n == 1) for m, n in zip(*sizes, strict=True)):
        warn(
            BroadcastWarning,
            f"{what}: the input of shape {x.shape} and the target of shape {t.shape} are broadcast to {shape}, so that"
            " elements are compared that do not belong together: reshape one to the shape of the other"
            " (target.reshape(input.shape)), or if it is meant, say sg.broadcast_to(target, shape)",
        )
    return operands


def declare_loss(op: Op, attrs: Reduced, operands: Sequence[Tensor]) -> Tensor:
    """Declare the node of a loss."""
    return operands[0].graph.add(op, operands, attrs).outputs[0]
