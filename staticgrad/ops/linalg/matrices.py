"""Functions of matrices without a factorisation: triangles, diagonals, traces, cross products, norms, grids.

Matrices are the last two axes. All are composed of other ops, so their derivatives follow. The norm of a zero vector
has the derivative zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from staticgrad.base.errors import GraphError
from staticgrad.base.types import (
    DTypeLike,
    Size,
    broadcast_shapes,
    holds_numbers,
    integer,
    normalize_axes,
    normalize_axis,
    number,
)
from staticgrad.graph.graph import Tensor, show_as
from staticgrad.graph.lifting import TensorLike, graph_of, lift
from staticgrad.graph.optable import FUNCTIONS, public
from staticgrad.ops.declare import FLOAT, accepted, not_known, operands, shown_as
from staticgrad.ops.elementwise.copies import rounded_once
from staticgrad.ops.elementwise.selection import replaced
from staticgrad.ops.reductions import Axis
from staticgrad.ops.views.slicing import slice_axis


def matrix(what: str, x: TensorLike) -> Tensor:
    """``x`` as a tensor of matrices.

    Raises:
        GraphError: fewer than two axes.
    """
    tensor = lift(x)
    if tensor.ndim < 2:
        raise GraphError(f"{what}: expected matrices (*batch, m, n), actual {tensor.name!r} {tensor.type}")
    return tensor


def float_matrix(what: str, x: TensorLike) -> Tensor:
    """Matrices of floats; integers and bools become float64."""
    return matrix(what, accepted(what, FLOAT, x)[0])


def known_sizes(what: str, x: Tensor) -> tuple[int, int]:
    """The rows and columns of matrices.

    Raises:
        GraphError: one of them is bound by feeds.
    """
    rows, columns = x.shape[-2:]
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise not_known(what, f"the rows and columns of {x.name!r} {x.type}")
    return rows, columns


# -- triangles and diagonals ----------------------------------------------------------------------------------------


def _triangle(what: str, x: TensorLike, k: int, lower: bool) -> Tensor:
    o = FUNCTIONS
    tensor = matrix(what, x)
    shape = tensor.shape[-2:]
    rows, columns = o.add(o.iota(shape, 0), integer(k, f"{what}: k")), o.iota(shape, 1)
    kept = o.less_equal(columns, rows) if lower else o.greater_equal(columns, rows)
    return o.where(kept, tensor, o.zeros((), dtype=tensor.dtype))


@public
@shown_as("TrilBackward0")
def tril(x: TensorLike, k: int = 0) -> Tensor:
    """The lower triangles of matrices, zero elsewhere; ``k`` diagonals above the main one belong to them.

    Example:
        >>> sg.Session().run(sg.tril(sg.ones((3, 3))))
        array([[1., 0., 0.],
               [1., 1., 0.],
               [1., 1., 1.]], dtype=float32)
    """
    return _triangle("tril", x, k, lower=True)


@public
@shown_as("TriuBackward0")
def triu(x: TensorLike, k: int = 0) -> Tensor:
    """The upper triangles of matrices, zero elsewhere, beginning ``k`` diagonals above the main one.

    Example:
        >>> sg.Session().run(sg.triu(sg.ones((3, 3)), 1))
        array([[0., 1., 1.],
               [0., 0., 1.],
               [0., 0., 0.]], dtype=float32)
    """
    return _triangle("triu", x, k, lower=False)


@public
@shown_as("DiagonalBackward0")
def diagonal(x: TensorLike, *, offset: int = 0) -> Tensor:
    """The diagonals of matrices, ``offset`` above the main one (below it if negative).

    Args:
        x: (…, m, n), m and n known when declared.

    Returns:
        (…, size of the diagonal).

    Example:
        >>> a = sg.constant([[1, 2, 3], [4, 5, 6]])
        >>> sg.Session().run([sg.linalg.diagonal(a), sg.linalg.diagonal(a, offset=1)])
        [array([1, 5]), array([2, 6])]
    """
    tensor = matrix("diagonal", x)
    m, n = known_sizes("diagonal", tensor)
    offset = integer(offset, "diagonal: offset")
    length = max(0, min(m + min(offset, 0), n - max(offset, 0)))
    start = offset if offset >= 0 else -offset * n
    flat = FUNCTIONS.reshape(tensor, (*tensor.shape[:-2], m * n))
    if length == 0:
        return slice_axis(flat, flat.ndim - 1, 0, 0)
    return slice_axis(flat, flat.ndim - 1, start, start + (length - 1) * (n + 1) + 1, n + 1)


@public
@shown_as("TraceBackward0")
def trace(x: TensorLike, *, offset: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """The sums of the diagonals of matrices, ``offset`` above the main one, in ``dtype``, by default that of ``sum``.

    Example:
        >>> sg.Session().run(sg.linalg.trace([[1.0, 2.0], [3.0, 4.0]]))
        array(5., dtype=float32)
    """
    if holds_numbers(x) and dtype is not None:
        x = FUNCTIONS.astype(x, dtype)
    return FUNCTIONS.sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


@public
@shown_as("LinalgCrossBackward0")
def cross(x1: TensorLike, x2: TensorLike, *, axis: int = -1) -> Tensor:
    """The cross product of vectors with three components along ``axis``; the other axes broadcast.

    Raises:
        GraphError: another number of components.

    Example:
        >>> sg.Session().run(sg.linalg.cross([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]))
        array([0., 0., 1.], dtype=float32)
    """
    o = FUNCTIONS
    a, b = operands("cross", x1, x2)
    places = [normalize_axis(axis, t.ndim, "cross") for t in (a, b)]
    if any(t.shape[place] != 3 for t, place in zip((a, b), places, strict=True)):
        raise GraphError(f"cross: expected 3 components along axis {axis}, actual {a.type} and {b.type}")
    place = axis if axis < 0 else axis + max(a.ndim, b.ndim) - a.ndim

    def compose(a: Tensor, b: Tensor) -> Tensor:
        x, y, z = o.unstack(a, axis=places[0])
        u, v, w = o.unstack(b, axis=places[1])
        return o.stack([o.subtract(y * w, z * v), o.subtract(z * u, x * w), o.subtract(x * v, y * u)], axis=place)

    return rounded_once(compose, a, b)


# -- norms ----------------------------------------------------------------------------------------------------------


def root_of_sum(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """The Euclidean norm along axes, whose derivative is zero where it is zero."""
    o = FUNCTIONS
    total = o.sum(o.multiply(x, x), axis=axes, keepdims=keepdims)
    empty = o.equal(total, 0)
    return o.where(empty, 0, o.sqrt(o.where(empty, 1, total)))


def _p_norm(x: Tensor, axes: tuple[int, ...], keepdims: bool, p: float) -> Tensor:
    o = FUNCTIONS
    size = o.abs(x)
    if p == math.inf:
        return o.max(size, axis=axes, keepdims=keepdims)
    if p == -math.inf:
        return o.min(size, axis=axes, keepdims=keepdims)
    if p == 0:
        number = o.astype(o.count_nonzero(x, axis=axes, keepdims=keepdims), x.dtype)
        return replaced(o.sum(x, axis=axes, keepdims=keepdims), number)
    if p == 1:
        return o.sum(size, axis=axes, keepdims=keepdims)
    if p == 2:
        return root_of_sum(x, axes, keepdims)
    if 0 < p < 1:  # infinitely steep at 0, where the derivative is taken as 0
        powers = o.where(o.equal(x, 0), 0, o.pow(o.where(o.equal(x, 0), 1, size), p))
    else:
        powers = o.pow(size, p)
    total = o.sum(powers, axis=axes, keepdims=keepdims)
    if p < 0:
        return o.pow(total, 1 / p)
    empty = o.equal(total, 0)
    return o.where(empty, 0, o.pow(o.where(empty, 1, total), 1 / p))


@public
@shown_as("LinalgVectorNormBackward0")
def vector_norm(x: TensorLike, axis: Axis = None, *, keepdims: bool = False, ord: float = 2) -> Tensor:
    """(Σ|x|ᵖ)^(1/p) along axes, p = ``ord``; the largest for inf, the smallest for -inf, the number of others than
    zero for 0.

    Args:
        axis: one or several; None: all.

    Example:
        >>> x = sg.constant([[3.0, 4.0], [0.0, -2.0]])
        >>> sg.Session().run(sg.linalg.vector_norm(x, axis=1))
        array([5., 2.], dtype=float32)
        >>> sg.Session().run([sg.linalg.vector_norm(x, ord=1), sg.linalg.vector_norm(x, ord=sg.inf)])
        [array(9., dtype=float32), array(4., dtype=float32)]
    """
    tensor = accepted("vector_norm", FLOAT, x)[0]
    axes, p = normalize_axes(axis, tensor.ndim, "vector_norm"), number(ord, "vector_norm: ord")
    return rounded_once(lambda x: _p_norm(x, axes, keepdims, p), tensor)


@public
def matrix_norm(x: TensorLike, *, keepdims: bool = False, ord: float | str | None = "fro") -> Tensor:
    """Norms of matrices: "fro" (the root of the sum of squares), "nuc" (the sum of the singular values), 2 and -2 (the
    largest and smallest singular value), 1 and -1 (of the sums of columns), inf and -inf (of the sums of rows).

    Args:
        x: (…, m, n).

    Raises:
        GraphError: another ``ord``.

    Example:
        >>> a = sg.constant([[3.0, 0.0], [0.0, -4.0]])
        >>> sg.Session().run([sg.linalg.matrix_norm(a), sg.linalg.matrix_norm(a, ord=1)])
        [array(5., dtype=float32), array(4., dtype=float32)]
    """
    return rounded_once(lambda x: _matrix_norm(x, keepdims, ord), float_matrix("matrix_norm", x))


def _matrix_norm(tensor: Tensor, keepdims: bool, ord: float | str | None) -> Tensor:
    o = FUNCTIONS
    rows, columns = tensor.ndim - 2, tensor.ndim - 1
    if ord in ("fro", None):
        norm = root_of_sum(tensor, (rows, columns), keepdims)
        return show_as(norm, "LinalgVectorNormBackward0", (tensor,))
    if ord in (1, -1, math.inf, -math.inf):
        summed, left = (rows, columns) if ord in (1, -1) else (columns, rows)
        totals = o.sum(o.abs(tensor), axis=summed, keepdims=True)
        result = (o.max if ord in (1, math.inf) else o.min)(totals, axis=left, keepdims=True)
    elif ord in ("nuc", 2, -2):
        values = {"nuc": "all", 2: "largest", -2: "smallest"}[ord]
        result = o.expand_dims(o.spectral_norm(tensor, values), (-2, -1))
    else:
        raise GraphError(f'matrix_norm: expected ord "fro", "nuc", ±1, ±2 or ±inf, actual {ord!r}')
    return result if keepdims else o.reshape(result, tensor.shape[:-2])


# -- grids ----------------------------------------------------------------------------------------------------------


@public
def meshgrid(*arrays: TensorLike, indexing: str = "xy") -> list[Tensor]:
    """Grids of coordinates: array number i, repeated along the axes of all others.

    Args:
        arrays: one-dimensional.
        indexing: "ij": axis i belongs to array i; "xy": the first two axes are exchanged.

    Raises:
        GraphError: another ``indexing``, or arrays that have not one dimension.

    Example:
        >>> x, y = sg.meshgrid([1, 2, 3], [10, 20])
        >>> sg.Session().run([x, y])
        [array([[1, 2, 3],
               [1, 2, 3]]), array([[10, 10, 10],
               [20, 20, 20]])]
    """
    o = FUNCTIONS
    if indexing not in ("xy", "ij"):
        raise GraphError(f'meshgrid: expected indexing "xy" or "ij", actual {indexing!r}')
    if not arrays:
        return []
    graph = graph_of(arrays)
    lines = [lift(x, graph) for x in arrays]
    if any(x.ndim != 1 for x in lines):
        raise GraphError(f"meshgrid: expected one-dimensional arrays, actual {', '.join(str(x.type) for x in lines)}")
    axes = list(range(len(lines)))
    if indexing == "xy" and len(lines) > 1:
        axes[:2] = [1, 0]
    shape: list[Size] = [1] * len(lines)
    for x, axis in zip(lines, axes, strict=True):
        shape[axis] = x.shape[0]

    def along(axis: int, size: Size) -> tuple[Size, ...]:
        return tuple(size if i == axis else 1 for i in range(len(lines)))

    return [
        o.broadcast_to(o.reshape(x, along(axis, x.shape[0])), tuple(shape)) for x, axis in zip(lines, axes, strict=True)
    ]


def common_batch(what: str, *tensors: Tensor) -> Sequence[Tensor]:
    """Matrices whose leading axes are broadcast against each other."""
    batch = broadcast_shapes([x.shape[:-2] for x in tensors], what)
    return [x if x.shape[:-2] == batch else FUNCTIONS.broadcast_to(x, (*batch, *x.shape[-2:])) for x in tensors]
