"""Tensors joined as rows, columns and layers, under NumPy's names, and diagonals as matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from staticgrad.base.errors import GraphError
from staticgrad.base.types import integer
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift
from staticgrad.graph.optable import FUNCTIONS, public
from staticgrad.ops.declare import operands
from staticgrad.ops.views.joining import concat


def _joined(what: str, arrays: Sequence[TensorLike], raised: Callable[[Tensor], Tensor], axis: int) -> Tensor:
    parts = [raised(x) for x in operands(what, *arrays)]
    return concat(parts, axis=axis)


def _with_axes(x: Tensor, front: int, behind: int) -> Tensor:
    """``x`` with axes of size 1 in front of its own and behind them."""
    return FUNCTIONS.reshape(x, ((1,) * front + x.shape + (1,) * behind))


@public
def vstack(arrays: Sequence[TensorLike]) -> Tensor:
    """Rows below each other: joined along the first axis; of one axis, each is a row.

    Example:
        >>> sg.Session().run(sg.vstack([[1, 2], [3, 4]]))
        array([[1, 2], [3, 4]])
    """
    return _joined("vstack", arrays, lambda x: _with_axes(x, max(0, 2 - x.ndim), 0), 0)


@public
def hstack(arrays: Sequence[TensorLike]) -> Tensor:
    """Side by side: joined along the second axis; of one axis, along that one.

    Example:
        >>> sg.Session().run(sg.hstack([[1, 2], [3]]))
        array([1, 2, 3])
    """
    parts = [_with_axes(x, max(0, 1 - x.ndim), 0) for x in operands("hstack", *arrays)]
    return concat(parts, axis=0 if parts[0].ndim == 1 else 1)


@public
def dstack(arrays: Sequence[TensorLike]) -> Tensor:
    """Behind each other: joined along the third axis; (n,) is taken as (1, n, 1) and (m, n) as (m, n, 1).

    Example:
        >>> sg.Session().run(sg.dstack([[1, 2], [3, 4]]))
        array([[[1, 3], [2, 4]]])
    """
    return _joined("dstack", arrays, lambda x: _with_axes(x, max(0, 2 - x.ndim), int(x.ndim < 3)), 2)


@public
def column_stack(arrays: Sequence[TensorLike]) -> Tensor:
    """Columns side by side: joined along the second axis; of one axis, each is a column.

    Example:
        >>> sg.Session().run(sg.column_stack([[1, 2], [3, 4]]))
        array([[1, 3], [2, 4]])
    """
    return _joined("column_stack", arrays, lambda x: _with_axes(x, 0, max(0, 2 - x.ndim)), 1)


@public
def diag(x: TensorLike, k: int = 0) -> Tensor:
    """A matrix with ``x`` (n,) as its diagonal, ``k`` above the main one; of a matrix that diagonal itself.

    Raises:
        GraphError: more than two axes, or a size that is not known when declared.

    Example:
        >>> sg.Session().run(sg.diag([1, 2]))
        array([[1, 0], [0, 2]])
        >>> sg.Session().run(sg.diag([[1, 2], [3, 4]], k=1))
        array([2])
    """
    o, tensor = FUNCTIONS, lift(x)
    k = integer(k, "diag: k")
    if tensor.ndim == 2:
        return o.diagonal(tensor, offset=k)
    if tensor.ndim != 1 or not isinstance(tensor.shape[0], int):
        raise GraphError(f"diag: expected (n,) of a known n, or a matrix, actual {tensor.name!r} {tensor.type}")
    size = tensor.shape[0] + abs(k)
    line = o.pad(tensor, (0, abs(k)))
    on = o.equal(o.iota((size, size), 0) + k, o.iota((size, size), 1))
    return o.where(on, o.expand_dims(line, 1 if k >= 0 else 0), o.zeros((), dtype=tensor.dtype))
