"""Axes of size 1, and axes that are not there, stretched without copying."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.extents import is_same
from staticgrad.base.frozen import frozen
from staticgrad.base.types import DTYPES, Dim, Shape, ShapeLike, TensorType, broadcast_shapes, stretches
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, graph_of, lift
from staticgrad.graph.optable import BatchedNode, Case, Namespace, Op, public, register
from staticgrad.ops.batch_rules import again, aligned
from staticgrad.ops.declare import declare
from staticgrad.ops.sources import as_shape


@frozen
class BroadcastAttributes:
    """The shape to broadcast to."""

    shape: Shape


def _broadcast_type(attrs: BroadcastAttributes, x: TensorType) -> TensorType:
    shape = attrs.shape
    fits = len(shape) >= x.ndim and all(
        stretches(size) or size == target or isinstance(size, Dim) or isinstance(target, Dim)
        for size, target in zip(x.shape, shape[len(shape) - x.ndim :], strict=True)
    )
    if not fits:
        raise GraphError(f"broadcast_to: {x} does not broadcast to shape {shape}")
    return TensorType(shape, x.dtype)


def _over_examples(o: Namespace, node: BatchedNode[BroadcastAttributes]) -> Sequence[Tensor]:
    shape = node.attrs.shape
    return again(node, (aligned(o, node, 0, len(shape)),), BroadcastAttributes((node.size, *shape)))


BROADCAST_TO = register(
    Op(
        "broadcast_to",
        "The elements repeated along axes of size 1 and new leading ones.",
        infer=_broadcast_type,
        reference=lambda attrs, x: np.broadcast_to(x, attrs.shape),
        vjp=lambda o, node, ct: (o.unbroadcast(ct, node.inputs[0].shape),),
        linear=True,
        dtypes=DTYPES,
        cases=(
            Case(((3, 1),), BroadcastAttributes((3, 4))),
            Case(((4,),), BroadcastAttributes((2, 3, 4))),
            Case(((),), BroadcastAttributes((2, 3))),
            Case(((1, 1),), BroadcastAttributes((5, 1))),
            Case(((1,),), BroadcastAttributes((0, 4))),
        ),
        grad_name="Expand",
        role="view",
        batch=_over_examples,
    )
)


@public
def broadcast_to(x: TensorLike, shape: ShapeLike) -> Tensor:
    """The tensor repeated to a shape: by NumPy's rule, axes of size 1 and axes that are not there are repeated.

    Raises:
        GraphError: the tensor does not broadcast to the shape.

    Example:
        >>> sg.Session().run(sg.broadcast_to([1.0, 2.0], (3, 2)))
        array([[1., 2.],
               [1., 2.],
               [1., 2.]], dtype=float32)
    """
    x = lift(x)
    target = as_shape(shape, "broadcast_to")
    return (
        x
        if is_same(target, x.shape) and not x.requires_grad
        else declare(BROADCAST_TO, (x,), BroadcastAttributes(target))
    )


@public
def broadcast_arrays(*arrays: TensorLike) -> list[Tensor]:
    """The tensors, all repeated to their common shape; dtypes stay.

    Raises:
        GraphError: shapes that do not broadcast.

    Example:
        >>> rows, columns = sg.broadcast_arrays([[1], [2]], [10.0, 20.0, 30.0])
        >>> rows.shape, columns.shape
        ((2, 3), (2, 3))
        >>> sg.Session().run(rows)
        array([[1, 1, 1],
               [2, 2, 2]])
    """
    graph = graph_of(arrays)
    with graph:
        xs = [lift(x, graph) for x in arrays]
        shape = broadcast_shapes([x.shape for x in xs], "broadcast_arrays")
        return [broadcast_to(x, shape) for x in xs]
