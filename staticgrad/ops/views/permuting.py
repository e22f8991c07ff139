"""The axes in another order: ``permute_dims``, and what is said with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import DTYPES, Size, TensorType, integers, normalize_axis
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift
from staticgrad.graph.optable import Case, Op, public, register
from staticgrad.ops.batch_rules import leading
from staticgrad.ops.declare import declare, shown_as


@frozen
class PermuteAttributes:
    """Axis number i of the result is axis ``perm[i]`` of the operand."""

    perm: tuple[int, ...]

    def leading(self, size: Size) -> PermuteAttributes:
        return PermuteAttributes((0, *(axis + 1 for axis in self.perm)))


def _permute_type(attrs: PermuteAttributes, x: TensorType) -> TensorType:
    if sorted(attrs.perm) != list(range(x.ndim)):
        raise GraphError(f"permute_dims: {attrs.perm} is no permutation of the axes of {x}")
    return TensorType(tuple(x.shape[axis] for axis in attrs.perm), x.dtype)


def inverse(perm: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes ``perm``."""
    return tuple(perm.index(axis) for axis in range(len(perm)))


PERMUTE_DIMS = register(
    Op(
        "permute_dims",
        "The axes in another order.",
        infer=_permute_type,
        reference=lambda attrs, x: np.transpose(x, attrs.perm),
        vjp=lambda o, node, ct: (o.permute_dims(ct, inverse(node.attrs.perm)),),
        linear=True,
        dtypes=DTYPES,
        cases=(
            Case(((3, 4),), PermuteAttributes((1, 0))),
            Case(((2, 3, 4),), PermuteAttributes((2, 0, 1))),
            Case(((2, 3, 1, 5),), PermuteAttributes((0, 2, 1, 3))),
            Case(((),), PermuteAttributes(())),
            Case(((0, 3),), PermuteAttributes((1, 0))),
        ),
        grad_name="Permute",
        role="view",
        batch=leading,
    )
)


@public
def permute_dims(x: TensorLike, axes: tuple[int, ...]) -> Tensor:
    """The tensor with its axes in another order: axis i of the result is ``axes[i]`` of ``x``.

    Raises:
        GraphError: ``axes`` is no permutation of the axes.

    Example:
        >>> sg.permute_dims(sg.zeros((2, 3, 4)), (2, 0, 1)).shape
        (4, 2, 3)
    """
    y = lift(x)
    perm = tuple(normalize_axis(axis, y.ndim, "permute_dims") for axis in integers(axes, "permute_dims: axes"))
    same = perm == tuple(range(y.ndim)) and not y.requires_grad
    return y if same else declare(PERMUTE_DIMS, (y,), PermuteAttributes(perm))


@public
def transpose(x: TensorLike, axes: tuple[int, ...] | None = None) -> Tensor:
    """``permute_dims``; without ``axes`` their order is reversed.

    Example:
        >>> x = sg.zeros((2, 3, 4))
        >>> sg.transpose(x).shape, sg.transpose(x, (0, 2, 1)).shape
        ((4, 3, 2), (2, 4, 3))
    """
    x = lift(x)
    return permute_dims(x, tuple(reversed(range(x.ndim))) if axes is None else axes)


@public
@shown_as("TransposeBackward0")
def swapaxes(x: TensorLike, axis1: int, axis2: int) -> Tensor:
    """The tensor with two axes exchanged.

    Raises:
        GraphError: an axis that is out of range.

    Example:
        >>> sg.swapaxes(sg.zeros((2, 3, 4)), 0, -1).shape
        (4, 3, 2)
    """
    x = lift(x)
    a, b = normalize_axis(axis1, x.ndim, "swapaxes"), normalize_axis(axis2, x.ndim, "swapaxes")
    perm = list(range(x.ndim))
    perm[a], perm[b] = b, a
    return permute_dims(x, tuple(perm))


@public
@shown_as("TransposeBackward0")
def matrix_transpose(x: TensorLike) -> Tensor:
    r"""The tensor with its last two axes exchanged: (\*batch, m, n) to (\*batch, n, m).

    Raises:
        GraphError: fewer than two axes.

    Example:
        >>> sg.Session().run(sg.matrix_transpose([[[1, 2], [3, 4]]]))
        array([[[1, 3],
                [2, 4]]])
        >>> sg.matrix_transpose(sg.zeros((5, 2, 3))).shape
        (5, 3, 2)
    """
    x = lift(x)
    if x.ndim < 2:
        raise GraphError(f"matrix_transpose: expected at least two axes, actual {x.name!r} {x.type}")
    return swapaxes(x, -1, -2)


@public
def moveaxis(x: TensorLike, source: int | tuple[int, ...], destination: int | tuple[int, ...]) -> Tensor:
    """The tensor with axes moved to new places, the others in their order.

    Raises:
        GraphError: an axis that is out of range or given twice, or another number of places than of axes.

    Example:
        >>> x = sg.zeros((2, 3, 4))
        >>> sg.moveaxis(x, 0, -1).shape, sg.moveaxis(x, (0, 1), (1, 2)).shape
        ((3, 4, 2), (4, 2, 3))
    """
    x = lift(x)
    sources, places = integers(source, "moveaxis: source"), integers(destination, "moveaxis: destination")
    from_axes = [normalize_axis(axis, x.ndim, "moveaxis") for axis in sources]
    to_axes = [normalize_axis(axis, x.ndim, "moveaxis") for axis in places]
    if len(set(from_axes)) != len(from_axes) or len(set(to_axes)) != len(from_axes):
        raise GraphError(f"moveaxis: expected as many distinct axes, actual {sources} and {places}")
    perm = [axis for axis in range(x.ndim) if axis not in from_axes]
    for place, axis in sorted(zip(to_axes, from_axes, strict=True)):
        perm.insert(place, axis)
    return permute_dims(x, tuple(perm))
