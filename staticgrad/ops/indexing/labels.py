"""Labels: integers in [0, size), which never wrap. What checks them, and ``one_hot``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from staticgrad.base.errors import BoundsError, GraphError, SourceLine, user_source
from staticgrad.base.frozen import frozen
from staticgrad.base.types import (
    Dim,
    DTypeLike,
    Size,
    TensorType,
    bool_,
    dtype_of,
    float32,
    int32,
    int64,
    integer,
    is_integer,
)
from staticgrad.graph.graph import Node, Tensor
from staticgrad.graph.lifting import TensorLike, graph_of, lift
from staticgrad.graph.optable import FUNCTIONS, Array, Case, Namespace, Op, Primal, Range, public, register
from staticgrad.graph.scopes import control_dependencies
from staticgrad.ops.declare import declare, operands
from staticgrad.ops.effects import BOUNDS_CHECK, BoundsAttributes
from staticgrad.ops.elementwise.copies import ASTYPE
from staticgrad.ops.sources import CONSTANT, as_shape, known_extremes


def as_index(value: TensorLike, what: str) -> Tensor:
    """An int64 tensor from one of any integer dtype."""
    index = lift(value)
    if index.dtype.kind not in "iu":
        raise GraphError(f"{what}: expected integers, actual {index.type}")
    return index if index.dtype == int64 else FUNCTIONS.astype(index, int64)


def checked(index: Tensor, size: Size, what: str, ignored: int | None = None) -> list[Node]:
    """The node that ends a run where an index is not in [0, size); who uses the index runs after it.

    ``ignored`` is allowed as well. Constants are checked here and now.

    Raises:
        BoundsError: a constant index is out of range.
    """
    o = FUNCTIONS
    source = index.op.inputs[0].op if index.op.op is ASTYPE else index.op
    if source.op is CONSTANT and isinstance(size, int):
        values = source.attrs.value
        wrong = values[((values < 0) | (values >= size)) & (True if ignored is None else values != ignored)]
        if wrong.size:
            raise BoundsError(f"{what} {wrong[0]} is out of range\n  expected [0, {size})", source=user_source())
        return []
    if ignored is not None and not (isinstance(size, int) and 0 <= ignored < size):
        index = o.where(o.equal(index, ignored), 0, index)
    return [o.bounds_check(index, size, what)]


# -- one_hot --------------------------------------------------------------------------------------------------------


@frozen
class OneHotAttributes:
    """The number of classes, and the dtype of the result."""

    num_classes: Size
    dtype: np.dtype


def _one_hot_type(attrs: OneHotAttributes, labels: TensorType) -> TensorType:
    if not is_integer(labels.dtype):
        raise GraphError(f"one_hot: expected integer labels, actual {labels}")
    return TensorType((*labels.shape, attrs.num_classes), attrs.dtype)


def _check_labels(attrs: OneHotAttributes, least: int, greatest: int, source: SourceLine | None) -> None:
    if least < 0 or greatest >= attrs.num_classes:
        wrong = least if least < 0 else greatest
        raise BoundsError(f"one_hot: label {wrong} is out of range for {attrs.num_classes} classes", source=source)


def _one_hot_reference(attrs: OneHotAttributes, labels: Array) -> Array:
    if labels.size:
        _check_labels(attrs, int(labels.min()), int(labels.max()), None)
    return np.asarray(labels[..., None] == np.arange(int(attrs.num_classes)), attrs.dtype)


def _expand_one_hot(o: Namespace, node: Primal[OneHotAttributes]) -> Sequence[Tensor]:
    labels, attrs = node.inputs[0], node.attrs
    limits = BoundsAttributes(attrs.num_classes, "one_hot")
    check = graph_of((labels,)).add(BOUNDS_CHECK, (labels,), limits)
    with control_dependencies([check]):
        hit = o.equal(o.expand_dims(labels, -1), o.iota((attrs.num_classes,), 0, dtype=labels.dtype))
    return [o.astype(hit, attrs.dtype)]


ONE_HOT = register(
    Op(
        "one_hot",
        "1 at the label's place along a new last axis, 0 elsewhere.",
        infer=_one_hot_type,
        reference=_one_hot_reference,
        expand=_expand_one_hot,
        differentiable=False,
        dtypes=(int32, int64),
        cases=(
            Case(((3,),), OneHotAttributes(4, int64), (Range(0, 3),)),
            Case(((2, 3),), OneHotAttributes(5, float32), (Range(0, 4),)),
            Case(((),), OneHotAttributes(3, bool_), (Range(0, 2),)),
        ),
    )
)


@public
def one_hot(input: TensorLike, num_classes: Size = -1, *, dtype: DTypeLike = int64) -> Tensor:
    """1 at the label's place along a new last axis, 0 elsewhere.

    Args:
        input: integer labels in [0, num_classes).
        num_classes: -1 takes one more than the largest label, which must be a constant then.

    Raises:
        GraphError: labels that are no integers, or ``num_classes=-1`` for labels that are not constant.
        BoundsError: a constant label is out of range; others are checked in the run.

    Example:
        >>> sg.Session().run(sg.nn.one_hot([0, 2], num_classes=3))
        array([[1, 0, 0],
               [0, 0, 1]])
        >>> sg.nn.one_hot(sg.placeholder((8, 5), sg.int32), 10, dtype=sg.float32).shape
        (8, 5, 10)
    """
    labels = operands("one_hot", input)[0]
    known = known_extremes(labels)
    if not isinstance(num_classes, Dim) and integer(num_classes, "one_hot: num_classes") == -1:
        if known is None:
            raise GraphError("one_hot: num_classes must be given for labels that are not constant")
        num_classes = known[1] + 1
    (num_classes,) = as_shape(num_classes, "one_hot")
    attrs = OneHotAttributes(num_classes, dtype_of(dtype))
    if known is not None and isinstance(num_classes, int) and is_integer(labels.dtype):
        _check_labels(attrs, *known, user_source())
    return declare(ONE_HOT, (labels,), attrs)
