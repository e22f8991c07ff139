"""The same elements in the same order under another shape: ``reshape``, and what is said with it."""

from __future__ import annotations

from typing import Any

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.extents import OpenSizeError, is_open, is_same
from staticgrad.base.frozen import frozen
from staticgrad.base.types import (
    DTYPES,
    Dim,
    Shape,
    ShapeLike,
    Size,
    TensorType,
    integers,
    normalize_axes,
    normalize_axis,
    product,
    stretches,
)
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift
from staticgrad.graph.optable import Case, Op, public, register
from staticgrad.ops.batch_rules import leading
from staticgrad.ops.declare import declare, shown_as
from staticgrad.ops.sources import as_shape


@frozen
class ReshapeAttributes:
    """The new shape."""

    shape: Shape

    def leading(self, size: Size) -> ReshapeAttributes:
        return ReshapeAttributes((size, *self.shape))


def _reshape_type(attrs: ReshapeAttributes, x: TensorType) -> TensorType:
    before, after = x.size, product(attrs.shape)
    if isinstance(before, int) and isinstance(after, int) and before != after:
        raise GraphError(f"reshape: {x} has {before} elements, shape {attrs.shape} has {after}")
    return TensorType(attrs.shape, x.dtype)


RESHAPE = register(
    Op(
        "reshape",
        "The elements in row-major order, in another shape.",
        infer=_reshape_type,
        reference=lambda attrs, x: x.reshape(attrs.shape),
        vjp=lambda o, node, ct: (o.reshape(ct, node.inputs[0].shape),),
        linear=True,
        dtypes=DTYPES,
        cases=(
            Case(((3, 4),), ReshapeAttributes((2, 6))),
            Case(((2, 3, 4),), ReshapeAttributes((24,))),
            Case(((6,),), ReshapeAttributes((1, 3, 1, 2))),
            Case(((),), ReshapeAttributes((1, 1))),
            Case(((0, 3),), ReshapeAttributes((5, 0))),
        ),
        grad_name="View",
        role="view",
        batch=leading,
    )
)


@public
def reshape(x: TensorLike, shape: ShapeLike, *, copy: bool | None = None) -> Tensor:
    """The elements, in row-major order, in another shape: a tuple of sizes or an int; one of them may be -1.

    Args:
        copy: without effect: nothing overwrites a tensor.

    Raises:
        GraphError: the shape has another number of elements, or -1 twice.

    Example:
        >>> sg.Session().run(sg.reshape([1, 2, 3, 4, 5, 6], (2, -1)))
        array([[1, 2, 3],
               [4, 5, 6]])
        >>> sg.placeholder((sg.dim("n"), 3, 4)).reshape(-1, 12).shape
        (n, 12)
    """
    x = lift(x)
    wanted: list[Any] = list(shape) if np.iterable(shape) else [shape]
    free = [axis for axis, size in enumerate(wanted) if isinstance(size, int | np.integer) and size == -1]
    if len(free) > 1:
        raise GraphError(f"reshape: only one size can be -1, not {tuple(wanted)}")
    if free:
        wanted[free[0]] = 1
        known = product(as_shape(wanted, "reshape"))
        wanted[free[0]] = _missing_size(x, known, shape)
    target = as_shape(wanted, "reshape")
    return x if is_same(target, x.shape) and not x.requires_grad else declare(RESHAPE, (x,), ReshapeAttributes(target))


def _missing_size(x: Tensor, known: Size, shape: ShapeLike) -> Size:
    total = x.size
    if known == 0 or (isinstance(known, int) and isinstance(total, int) and total % known):
        raise GraphError(f"reshape: {x.type} with {total} elements does not fill shape {shape}")
    return total // known


@frozen
class ShardAttributes:
    """The number of parts."""

    parts: int


def _shards_type(attrs: ShardAttributes, x: TensorType) -> TensorType:
    first = x.shape[0]
    if is_open(first):  # the program of a range may add up in another order than that of a size, and ranks have both
        raise OpenSizeError(f"the shards of {first} rows are computed to the same bits by any number of ranks", first)
    if not isinstance(first, Dim) and first % attrs.parts:
        raise GraphError(f"shards: expected a multiple of {attrs.parts} as the size of axis 0, actual {x}")
    return TensorType((attrs.parts, first // attrs.parts, *x.shape[1:]), x.dtype)


SHARDS = register(
    Op(
        "shards",
        "Equal parts along axis 0, stacked.",
        infer=_shards_type,
        reference=lambda attrs, x: x.reshape(attrs.parts, x.shape[0] // attrs.parts, *x.shape[1:]),
        expand=lambda o, node: (o.reshape(node.inputs[0], _shards_type(node.attrs, node.inputs[0].type).shape),),
        dtypes=DTYPES,
        cases=(Case(((6, 4),), ShardAttributes(3)), Case(((2,),), ShardAttributes(1))),
        moves=True,
    )
)


@public
def shards(x: Tensor, parts: int) -> Tensor:
    """Equal parts of a tensor along axis 0, stacked; the size of the axis may be open, and is checked when it is known.

    Raises:
        GraphError: it is no multiple of the number of parts.
    """
    return declare(SHARDS, (x,), ShardAttributes(parts))


@public
def flatten(x: TensorLike, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The axes from ``start_dim`` to ``end_dim`` as one; the tensor itself where that is one axis, as in PyTorch.

    Raises:
        GraphError: an axis that is out of range, or ``start_dim`` after ``end_dim``.

    Example:
        >>> x = sg.zeros((2, 3, 4))
        >>> sg.flatten(x).shape, sg.flatten(x, 1).shape
        ((24,), (2, 12))
    """
    tensor: Tensor = lift(x)
    shape = tensor.shape
    if not shape:
        return reshape(tensor, (1,))
    first, last = normalize_axis(start_dim, len(shape), "flatten"), normalize_axis(end_dim, len(shape), "flatten")
    if first > last:
        raise GraphError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}")
    if first == last:
        return tensor
    return reshape(tensor, (*shape[:first], product(shape[first : last + 1]), *shape[last + 1 :]))


@public
@shown_as("UnsqueezeBackward0")
def expand_dims(x: TensorLike, axis: int | tuple[int, ...] = 0) -> Tensor:
    """The tensor with new axes of size 1 at ``axis`` (one or several), counted in the result.

    Raises:
        GraphError: an axis that is out of range or given twice.

    Example:
        >>> x = sg.zeros((2, 3))
        >>> sg.expand_dims(x).shape, sg.expand_dims(x, -1).shape, sg.expand_dims(x, (0, 3)).shape
        ((1, 2, 3), (2, 3, 1), (1, 2, 3, 1))
    """
    x = lift(x)
    many = integers(axis, "expand_dims: axis")
    axes = normalize_axes(many, x.ndim + len(many), "expand_dims")
    rest = iter(x.shape)
    return reshape(x, tuple(1 if i in axes else next(rest) for i in range(x.ndim + len(axes))))


def _squeezed_name(x: TensorLike, axis: int | tuple[int, ...] | None = None) -> str:
    """PyTorch numbers the overloads: of all axes, of one, of several."""
    return f"SqueezeBackward{0 if axis is None else 2 if np.iterable(axis) else 1}"


@public
@shown_as(_squeezed_name)
def squeeze(x: TensorLike, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """The tensor without axes of size 1: without those in ``axis``, or without all of them.

    Raises:
        GraphError: a named axis has another size.

    Example:
        >>> x = sg.zeros((1, 3, 1))
        >>> sg.squeeze(x).shape, sg.squeeze(x, axis=0).shape
        ((3,), (3, 1))
    """
    x = lift(x)
    if axis is None:
        return reshape(x, tuple(size for size in x.shape if not stretches(size)))
    axes = normalize_axes(axis, x.ndim, "squeeze")
    for i in axes:
        if isinstance(x.shape[i], int) and x.shape[i] != 1:
            raise GraphError(f"squeeze: axis {i} of {x.name!r} {x.type} has size {x.shape[i]}, not 1")
    return reshape(x, tuple(size for i, size in enumerate(x.shape) if i not in axes))
