"""Systems of equations whose matrix is triangular."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import FLOATS, Size, TensorType
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import FUNCTIONS, Array, Case, Namespace, Op, Primal, public, register
from staticgrad.ops.batch_rules import leading
from staticgrad.ops.contraction import require_equal
from staticgrad.ops.declare import FLOAT, accepted, declare, subtracted
from staticgrad.ops.linalg.matrices import common_batch, matrix
from staticgrad.ops.linalg.square import UNIT, check_square, each_or_nan, transpose_of


def dominant(x: Array) -> Array:
    """Matrices with a large diagonal."""
    return np.asarray(x + 3 * np.eye(*x.shape[-2:], dtype=x.dtype))


@frozen
class TriangularAttributes:
    """The attributes of a triangular system: which triangle of T is read, whether the system is of Tᵀ, and whether the
    diagonal counts as ones."""

    lower: bool
    transposed: bool
    unit: bool

    def leading(self, size: Size) -> TriangularAttributes:
        return self


def system_type(name: str) -> Callable[..., TensorType]:
    def infer(attrs: object, a: TensorType, b: TensorType) -> TensorType:
        check_square(name, a)
        if b.ndim != a.ndim or b.dtype != a.dtype:
            raise GraphError(f"{name}: expected right sides (*batch, n, k) for {a}, actual {b}")
        for i, (want, have) in enumerate(zip(a.shape[:-1], b.shape[:-1], strict=True)):
            require_equal(want, have, name, f"size of axis {i} of the right side {b} for {a}")
        return b

    return infer


def _triangle_of(o: Any, attrs: TriangularAttributes, x: Any) -> Any:
    """The part of T that is read."""
    return o.tril(x, -1 if attrs.unit else 0) if attrs.lower else o.triu(x, 1 if attrs.unit else 0)


def _triangular_reference(attrs: TriangularAttributes, t: Array, b: Array) -> Array:
    part = _triangle_of(np, attrs, t.astype(np.float64))
    if attrs.unit:
        part = part + np.eye(t.shape[-1])
    part = np.swapaxes(part, -1, -2) if attrs.transposed else part
    return np.asarray(each_or_nan(np.linalg.solve, part, b.astype(np.float64))).astype(b.dtype)


def triangular(t: Tensor, b: Tensor, *, lower: bool, transposed: bool = False, unit: bool = False) -> Tensor:
    """The solution of a triangular system, batches equal."""
    return declare(TRIANGULAR_SOLVE, (t, b), TriangularAttributes(lower, transposed, unit))


def _vjp_triangular(o: Namespace, node: Primal[TriangularAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    (t, _), x, attrs = node.inputs, node.outputs[0], node.attrs
    b = triangular(t, ct, lower=attrs.lower, transposed=not attrs.transposed, unit=attrs.unit)
    outer = o.matmul(x, transpose_of(b)) if attrs.transposed else o.matmul(b, transpose_of(x))
    return o.negative(_triangle_of(o, attrs, outer)), b


def _jvp_triangular(
    o: Namespace, node: Primal[TriangularAttributes], tt: Tensor | None, tb: Tensor | None
) -> Sequence[Tensor | None]:
    (t, _), x, attrs = node.inputs, node.outputs[0], node.attrs
    moved = None
    if tt is not None:
        part = _triangle_of(o, attrs, tt)
        moved = o.matmul(transpose_of(part) if attrs.transposed else part, x)
    right = subtracted(o, tb, moved)
    return (triangular(t, right, lower=attrs.lower, transposed=attrs.transposed, unit=attrs.unit),)


def _triangular_cases() -> tuple[Case, ...]:
    shapes = (((3, 3), (3, 2)), ((2, 5, 5), (2, 5, 1)), ((9, 9), (9, 37)), ((0, 3, 3), (0, 3, 2)), ((4, 4), (4, 0)))
    ways = [(lower, transposed) for lower in (True, False) for transposed in (True, False)]
    return tuple(
        Case(pair, TriangularAttributes(*way, unit), (UNIT, UNIT), prepared=None if unit else dominant)
        for way in ways
        for pair, unit in (*((s, False) for s in shapes[: 5 if way == ways[0] else 3]), (((3, 3), (3, 2)), True))
    )


TRIANGULAR_SOLVE = register(
    Op(
        "triangular_solve",
        "The X with T·X = B, or Tᵀ·X = B, for a triangular T, of which one triangle is read.",
        infer=system_type("triangular_solve"),
        reference=_triangular_reference,
        vjp=_vjp_triangular,
        jvp=_jvp_triangular,
        dtypes=FLOATS,
        cases=_triangular_cases(),
        grad_name="LinalgSolveTriangular",
        tolerance=20.0,
        role="routine",
        batch=leading,
    )
)


def system(what: str, x1: TensorLike, x2: TensorLike) -> tuple[Tensor, Tensor, bool]:
    """The matrices and the right sides with equal batches, and whether the right side was one vector."""
    a, b = accepted(what, FLOAT, x1, x2)
    matrix(what, a)
    vector = b.ndim == 1
    if b.ndim == 0:
        raise GraphError(f"{what}: expected a right side (n,) or (*batch, n, k), actual {b.name!r} {b.type}")
    b = FUNCTIONS.expand_dims(b, -1) if vector else b
    a, b = common_batch(what, a, b)
    return a, b, vector


@public
def solve_triangular(
    x1: TensorLike, x2: TensorLike, *, upper: bool = False, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """The solution X of x1·X = x2, or of X·x1 = x2 without ``left``, for triangular matrices x1.

    Only one triangle of ``x1`` is read. A zero on its diagonal gives infinities and NaN.

    Args:
        x1: (…, n, n).
        x2: (n,), or (…, n, k), without ``left`` (…, k, n); batches broadcast.
        upper: which triangle.
        unitriangular: the diagonal is not read and counts as ones.

    Returns:
        The shape of ``x2``, with the common batch.

    Raises:
        GraphError: no square matrices, or sizes that do not agree.

    Example:
        >>> a, b = np.array([[2.0, 0.0], [1.0, 4.0]]), np.array([2.0, 9.0])
        >>> sg.Session().run(sg.linalg.solve_triangular(a, b))
        array([1., 2.])
        >>> sg.Session().run(sg.linalg.solve_triangular(a.T, b, upper=True))
        array([-0.125,  2.25 ])
    """
    if left:
        a, b, vector = system("solve_triangular", x1, x2)
        x = triangular(a, b, lower=not upper, unit=bool(unitriangular))
        return FUNCTIONS.squeeze(x, -1) if vector else x
    right = matrix("solve_triangular", x2)
    a, b, _ = system("solve_triangular", x1, transpose_of(right))
    return transpose_of(triangular(a, b, lower=not upper, transposed=True, unit=bool(unitriangular)))
