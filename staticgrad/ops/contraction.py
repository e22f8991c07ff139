"""Products that sum over a common axis: ``dot`` (the primitive), ``matmul``, ``linear``, ``tensordot``, ``einsum``, ….

Input: tensors of one dtype after promotion, integers too. Output: nodes that all end in ``dot``, the product of
matrices over one common batch shape. Vectors, broadcasting and transposes are views in front of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.extents import is_same
from staticgrad.base.types import (
    Dim,
    Shape,
    Size,
    TensorType,
    bool_,
    broadcast_shapes,
    float32,
    float64,
    int64,
    integer,
    integers,
    normalize_axis,
    product,
)
from staticgrad.graph.graph import Node, Tensor
from staticgrad.graph.lifting import TensorLike, lift_all
from staticgrad.graph.optable import (
    FUNCTIONS,
    Array,
    BatchedNode,
    Case,
    Namespace,
    NoAttributes,
    Op,
    Primal,
    public,
    register,
)
from staticgrad.ops.batch_rules import every
from staticgrad.ops.declare import NUMERIC
from staticgrad.ops.elementwise.copies import rounded_once


def require_equal(a: Size, b: Size, what: str, meaning: str) -> None:
    """Two sizes that must agree; sizes that feeds bind are checked when they are bound."""
    if isinstance(a, Dim) or isinstance(b, Dim) or a == b:
        return
    raise GraphError(f"{what}: {meaning}: expected {a}, actual {b}")


# -- dot: the primitive -------------------------------------------------------------------------------------------


def _dot_type(attrs: NoAttributes, a: TensorType, b: TensorType) -> TensorType:
    if a.ndim < 2 or a.ndim != b.ndim:
        raise GraphError(f"dot: expected two tensors of one rank of at least 2, actual {a} and {b}")
    if a.dtype != b.dtype:
        raise GraphError(f"dot: expected operands of one dtype, actual {a} and {b}")
    for left, right in zip(a.shape[:-2], b.shape[:-2], strict=True):
        require_equal(left, right, "dot", f"batch sizes of {a} and {b}")
    require_equal(a.shape[-1], b.shape[-2], "dot", f"summed sizes of {a} and {b}")
    return TensorType((*a.shape[:-1], b.shape[-1]), a.dtype)


def _dot_vjp(o: Namespace, node: Primal[NoAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    a, b = node.inputs
    return o.dot(ct, o.matrix_transpose(b)), o.dot(o.matrix_transpose(a), ct)


def bilinear(
    o: Namespace,
    function: Callable[[Tensor, Tensor], Tensor],
    node: Primal[object],
    da: Tensor | None,
    db: Tensor | None,
) -> list[Tensor | None]:
    """The tangent of an op that is linear in each of its two operands: f(da, b) + f(a, db)."""
    a, b = node.inputs
    if db is None:
        return [None if da is None else function(da, b)]
    return [function(a, db) if da is None else o.add(function(da, b), function(a, db))]


def _dot_over_examples(o: Namespace, node: BatchedNode[NoAttributes]) -> Sequence[Tensor]:
    """One product where the examples are more rows or columns of it; else one for each example."""
    x, y = node.inputs
    if node.batched == (True, False) and y.ndim == 2:
        size, rows, depth = x.shape
        product = o.dot(o.reshape(x, (size * rows, depth)), y)
        return (o.reshape(product, (size, rows, y.shape[1])),)
    if node.batched == (False, True) and x.ndim == 2:
        size, depth, columns = y.shape
        wide = o.reshape(o.permute_dims(y, (1, 0, 2)), (depth, size * columns))
        product = o.reshape(o.dot(x, wide), (x.shape[0], size, columns))
        return (o.permute_dims(product, (1, 0, 2)),)
    return (o.dot(*every(o, node)),)


DOT = register(
    Op(
        "dot",
        "Matrix products ``(*batch, m, k) x (*batch, k, n)`` over equal batch shapes.",
        infer=_dot_type,
        reference=lambda a, x, y: np.matmul(x, y),
        vjp=_dot_vjp,
        jvp=lambda o, node, da, db: bilinear(o, o.dot, node, da, db),
        dtypes=NUMERIC,
        cases=(
            Case(((2, 3), (3, 4))),
            Case(((1, 5), (5, 1))),
            Case(((3, 2, 4), (3, 4, 5))),
            Case(((2, 3, 4, 1), (2, 3, 1, 2))),
            Case(((17, 33), (33, 19))),
        ),
        tolerance=4.0,
        role="matrix",
        batch=_dot_over_examples,
    )
)


@public
def dot(a: Tensor, b: Tensor) -> Tensor:
    """Products of the matrices ``a`` (…, m, k) and ``b`` (…, k, n), batch shapes and dtypes equal."""
    return a.graph.add(DOT, (a, b)).outputs[0]


# -- matmul -------------------------------------------------------------------------------------------------------


def _matmul_type(attrs: NoAttributes, a: TensorType, b: TensorType) -> TensorType:
    if a.ndim == 0 or b.ndim == 0:
        raise GraphError(f"matmul: expected tensors of at least 1 dimension, actual {a} and {b}")
    require_equal(a.shape[-1], b.shape[-2] if b.ndim > 1 else b.shape[0], "matmul", f"summed sizes of {a} and {b}")
    batch = broadcast_shapes([a.shape[:-2], b.shape[:-2]], "matmul")
    rows = a.shape[-2:-1]
    columns = b.shape[-1:] if b.ndim > 1 else ()
    return TensorType((*batch, *rows, *columns), a.dtype)


def _as_matrices(o: Namespace, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """NumPy's rule for vectors: a row on the left, a column on the right."""
    left = o.reshape(a, (1, a.shape[0])) if a.ndim == 1 else a
    right = o.reshape(b, (b.shape[0], 1)) if b.ndim == 1 else b
    return left, right


def _flat(o: Namespace, x: Tensor) -> Tensor:
    """All axes but the last as one: (…, n) to (prod(batch), n)."""
    return x if x.ndim == 2 else o.reshape(x, (product(x.shape[:-1]), x.shape[-1]))


def _matmul_expand(o: Namespace, node: Primal[NoAttributes]) -> Sequence[Tensor]:
    shape = _matmul_type(node.attrs, *(x.type for x in node.inputs)).shape
    a, b = _as_matrices(o, *node.inputs)
    if b.ndim > 2 and a.ndim >= b.ndim and all(size == 1 for size in b.shape[:-2]):
        b = o.reshape(b, b.shape[-2:])
    if b.ndim == 2:
        result = o.dot(_flat(o, a), b)
    else:
        batch = broadcast_shapes([a.shape[:-2], b.shape[:-2]], "matmul")
        left = a if a.shape[:-2] == batch else o.broadcast_to(a, (*batch, *a.shape[-2:]))
        right = b if b.shape[:-2] == batch else o.broadcast_to(b, (*batch, *b.shape[-2:]))
        result = o.dot(left, right)
    return [result if is_same(result.shape, shape) else o.reshape(result, shape)]


def _matmul_vjp(o: Namespace, node: Primal[NoAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    a, b = node.inputs
    if a.ndim == 1 and b.ndim == 1:
        return ct * b, ct * a
    if b.ndim == 1:  # a weighted sum of columns: its derivative in the matrix is an outer product
        da = o.multiply(o.expand_dims(ct, -1), b)
        db = o.matmul(o.matrix_transpose(_flat(o, a)), o.reshape(ct, (product(ct.shape),)))
        return da, db
    if a.ndim == 1:
        rows = o.expand_dims(ct, -2)
        da = o.unbroadcast(o.matmul(rows, o.matrix_transpose(b)), (1, a.shape[0]))
        return o.reshape(da, a.shape), o.multiply(o.expand_dims(a, -1), rows)
    da = o.unbroadcast(o.matmul(ct, o.matrix_transpose(b)), a.shape)
    if b.ndim == 2:  # one contraction over the batch and the rows together
        return da, o.matmul(o.matrix_transpose(_flat(o, a)), _flat(o, ct))
    return da, o.unbroadcast(o.matmul(o.matrix_transpose(a), ct), b.shape)


def _name_of_matmul(node: Node) -> str:
    """PyTorch's, by the numbers of axes; batches of products come as a view."""
    a, b = (x.ndim for x in node.inputs)
    known = {(1, 1): "DotBackward0", (2, 1): "MvBackward0", (2, 2): "MmBackward0", (1, 2): "SqueezeBackward4"}
    return known.get((a, b), "UnsafeViewBackward0")


MATMUL = register(
    Op(
        "matmul",
        "Matrix product as ``np.matmul``: vectors, and batches that broadcast.",
        infer=_matmul_type,
        reference=lambda a, x, y: np.asarray(np.matmul(x, y)),
        expand=_matmul_expand,
        vjp=_matmul_vjp,
        jvp=lambda o, node, da, db: bilinear(o, o.matmul, node, da, db),
        dtypes=NUMERIC,
        cases=(
            Case(((3, 4), (4, 2))),
            Case(((4,), (4,))),
            Case(((3, 4), (4,))),
            Case(((4,), (4, 3))),
            Case(((2, 3, 4), (4, 5))),
            Case(((2, 3, 4), (4,))),
            Case(((4,), (2, 4, 3))),
            Case(((3, 4), (2, 4, 5))),
            Case(((2, 1, 3, 4), (5, 4, 2))),
            Case(((2, 3, 4), (1, 4, 2))),
        ),
        grad_name=_name_of_matmul,
        tolerance=4.0,
    )
)


@public
def matmul(x1: TensorLike, x2: TensorLike) -> Tensor:
    """The matrix product of ``np.matmul``.

    Args:
        x1: (…, m, k), or a vector (k,).
        x2: (…, k, n), or a vector (k,). Batch shapes broadcast.

    Returns:
        (…, m, n), without m or n where that operand is a vector.

    Raises:
        GraphError: a scalar, or sizes that do not agree.

    Example:
        >>> sg.Session().run(sg.matmul([[1.0, 2.0], [3.0, 4.0]], [1.0, -1.0]))
        array([-1., -1.], dtype=float32)
        >>> sg.matmul(sg.zeros((8, 1, 2, 3)), sg.zeros((5, 3, 4))).shape
        (8, 5, 2, 4)
    """
    a, b = lift_all((x1, x2), what="matmul")
    if a.dtype == bool_:  # or of ands, as in NumPy
        counts = matmul(FUNCTIONS.astype(a, int64), FUNCTIONS.astype(b, int64))
        return FUNCTIONS.not_equal(counts, 0)
    return a.graph.add(MATMUL, (a, b)).outputs[0]


# -- linear -------------------------------------------------------------------------------------------------------


def _linear_type(attrs: NoAttributes, x: TensorType, w: TensorType, *b: TensorType) -> TensorType:
    if x.ndim < 1 or w.ndim != 2:
        raise GraphError(f"linear: expected an input (*, in) and a weight (out, in), actual {x} and {w}")
    require_equal(w.shape[1], x.shape[-1], "linear", f"size of the input's last axis for the weight {w}")
    if b:
        if b[0].ndim != 1:
            raise GraphError(f"linear: expected a bias ({w.shape[0]},), actual {b[0]}")
        require_equal(w.shape[0], b[0].shape[0], "linear", "size of the bias")
    return TensorType((*x.shape[:-1], w.shape[0]), x.dtype)


def _linear_reference(attrs: NoAttributes, x: Array, w: Array, *b: Array) -> Array:
    y = np.einsum("...i,oi->...o", x, w)
    return np.asarray(y + b[0] if b else y)


def _linear_expand(o: Namespace, node: Primal[NoAttributes]) -> Sequence[Tensor]:
    x, w, *b = node.inputs
    y = o.matmul(x, o.matrix_transpose(w))
    return [o.add(y, b[0]) if b else y]


def _linear_vjp(o: Namespace, node: Primal[NoAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    x, w, *b = node.inputs
    rows = o.reshape(ct, (1, ct.shape[0])) if ct.ndim == 1 else _flat(o, ct)
    inputs = o.reshape(x, (1, x.shape[0])) if x.ndim == 1 else _flat(o, x)
    result = [o.matmul(ct, w), o.matmul(o.matrix_transpose(rows), inputs)]
    return [*result, o.unbroadcast(ct, b[0].shape)] if b else result


def _linear_jvp(
    o: Namespace, node: Primal[NoAttributes], dx: Tensor | None, dw: Tensor | None, db: Tensor | None = None
) -> Sequence[Tensor | None]:
    x, w, *_ = node.inputs
    parts = [o.linear(dx, w)] if dx is not None else []
    parts += [o.linear(x, dw)] if dw is not None else []
    if db is not None:
        parts.append(db if parts else o.broadcast_to(db, node.outputs[0].shape))
    total = parts[0] if parts else None
    for part in parts[1:]:
        total = o.add(total, part)
    return [total]


def _name_of_linear(node: Node) -> str:
    """PyTorch's: one product of matrices with the bias, or a view of the products of vectors and batches."""
    biased, rank = len(node.inputs) == 3, node.inputs[0].ndim
    if rank == 2:
        return "AddmmBackward0" if biased else "MmBackward0"
    return "ViewBackward0" if biased else "SqueezeBackward4" if rank == 1 else "UnsafeViewBackward0"


LINEAR = register(
    Op(
        "linear",
        "``x @ w.T + b``: an affine map of the last axis.",
        infer=_linear_type,
        reference=_linear_reference,
        expand=_linear_expand,
        vjp=_linear_vjp,
        jvp=_linear_jvp,
        dtypes=(float32, float64),
        cases=(
            Case(((5, 4), (3, 4), (3,))),
            Case(((5, 4), (3, 4))),
            Case(((4,), (3, 4), (3,))),
            Case(((2, 3, 4), (5, 4), (5,))),
        ),
        grad_name=_name_of_linear,
        tolerance=4.0,
    )
)


@public
def linear(input: TensorLike, weight: TensorLike, bias: TensorLike | None = None) -> Tensor:
    """``input @ weight.T + bias``.

    Args:
        input: (…, in).
        weight: (out, in), or (in,) for a single output that has no axis.
        bias: (out,), or one number for all outputs, or None.

    Returns:
        (…, out), or (…).

    Raises:
        GraphError: sizes that do not agree.

    Example:
        >>> x = sg.constant([[1.0, 2.0]])
        >>> sg.Session().run(sg.nn.linear(x, [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [0.0, 0.0, 10.0]))
        array([[ 1.,  2., 13.]], dtype=float32)
    """
    o = FUNCTIONS
    x, w, *b = lift_all((input, weight) if bias is None else (input, weight, bias), what="linear")
    if w.ndim == 1:
        y = linear(x, o.reshape(w, (1, w.shape[0])), *(o.reshape(number, (1,)) for number in b))
        return o.reshape(y, y.shape[:-1])
    if b and w.ndim == 2 and b[0].shape in ((), (1,)):
        b = [o.broadcast_to(b[0], w.shape[:1])]
    return x.graph.add(LINEAR, (x, w, *b)).outputs[0]


# -- products in terms of matmul ----------------------------------------------------------------------------------


@public
def vecdot(x1: TensorLike, x2: TensorLike, *, axis: int = -1) -> Tensor:
    """Σ x1·x2 along one axis, broadcasting over the others, in the dtype of the products.

    Args:
        axis: counted from the end, unless both have the same number of axes.

    Raises:
        GraphError: no such axis of both, or of another size.

    Example:
        >>> sg.Session().run(sg.vecdot([[1.0, 2.0], [3.0, 4.0]], [1.0, 10.0]))
        array([21., 43.], dtype=float32)
    """
    o = FUNCTIONS
    a, b = lift_all((x1, x2), what="vecdot")
    places = [normalize_axis(axis, x.ndim, "vecdot") for x in (a, b)]
    if places[0] - a.ndim != places[1] - b.ndim:
        raise GraphError(f"vecdot: axis {axis} is not counted from the end, for tensors of {a.ndim} and {b.ndim} axes")
    require_equal(a.shape[places[0]], b.shape[places[1]], "vecdot", f"sizes of axis {axis} of {a.type} and {b.type}")
    place = places[0] - a.ndim
    return rounded_once(lambda a, b: o.sum(o.multiply(a, b), axis=place, dtype=a.dtype), a, b)


@public
def outer(x1: TensorLike, x2: TensorLike) -> Tensor:
    """The products of all pairs of elements of two tensors, flattened first: (x1.size, x2.size).

    Example:
        >>> sg.Session().run(sg.outer([1, 2], [10, 20, 30]))
        array([[10, 20, 30],
               [20, 40, 60]])
    """
    o = FUNCTIONS
    a, b = lift_all((x1, x2), what="outer")
    return o.multiply(o.reshape(a, (a.size, 1)), o.reshape(b, (1, b.size)))


@public
def tensordot(x1: TensorLike, x2: TensorLike, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """The sum of products over several axes, as ``np.tensordot``.

    Args:
        axes: how many last axes of ``x1`` meet first axes of ``x2``, or the axes of each.

    Raises:
        GraphError: axes of unequal number or sizes.

    Example:
        >>> sg.tensordot(sg.zeros((2, 3, 4)), sg.zeros((3, 4, 5))).shape
        (2, 5)
        >>> sg.tensordot(sg.zeros((2, 3)), sg.zeros((4, 2)), axes=([0], [1])).shape
        (3, 4)
    """
    o = FUNCTIONS
    a, b = lift_all((x1, x2), what="tensordot")
    if not np.iterable(axes):
        axes = integer(axes, "tensordot: axes")
        if not 0 <= axes <= min(a.ndim, b.ndim):
            raise GraphError(f"tensordot: axes={axes} for tensors of {a.ndim} and {b.ndim} dimensions")
        left, right = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        if len(axes) != 2:
            raise GraphError(f"tensordot: expected an int or the axes of each tensor, actual {axes!r}")
        left, right = (
            [normalize_axis(axis, x.ndim, "tensordot") for axis in integers(of, "tensordot: axes")]
            for x, of in zip((a, b), axes, strict=True)
        )
    if len(left) != len(right) or len(set(left)) != len(left) or len(set(right)) != len(right):
        raise GraphError(f"tensordot: expected as many distinct axes of both tensors, actual {left} and {right}")
    for i, j in zip(left, right, strict=True):
        require_equal(a.shape[i], b.shape[j], "tensordot", f"sizes of axis {i} of {a.type} and axis {j} of {b.type}")
    rows = [axis for axis in range(a.ndim) if axis not in left]
    columns = [axis for axis in range(b.ndim) if axis not in right]
    summed = product(tuple(a.shape[axis] for axis in left))
    kept_a: Shape = tuple(a.shape[axis] for axis in rows)
    kept_b: Shape = tuple(b.shape[axis] for axis in columns)
    m = o.reshape(o.permute_dims(a, (*rows, *left)), (product(kept_a), summed))
    n = o.reshape(o.permute_dims(b, (*right, *columns)), (summed, product(kept_b)))
    return o.reshape(matmul(m, n), (*kept_a, *kept_b))
