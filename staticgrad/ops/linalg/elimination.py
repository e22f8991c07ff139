"""Elimination with partial pivoting, and what is computed by it: ``solve``, ``inv``, ``matrix_power``.

The derivatives: M. Giles, Collected matrix derivative results for forward and reverse mode (2008).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.base.types import FLOATS, Dim, Size, TensorType, int64, integer
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, graph_of
from staticgrad.graph.optable import (
    FUNCTIONS,
    NO_ATTRIBUTES,
    Array,
    Case,
    Namespace,
    NoAttributes,
    Op,
    Primal,
    public,
    register,
)
from staticgrad.ops.batch_rules import last_axes, leading
from staticgrad.ops.contraction import require_equal
from staticgrad.ops.declare import declare, not_known, shown_as, subtracted
from staticgrad.ops.elementwise.copies import rounded_once
from staticgrad.ops.elementwise.selection import replaced
from staticgrad.ops.linalg.matrices import float_matrix, known_sizes, matrix
from staticgrad.ops.linalg.square import UNIT, check_square, each_or_nan, square_cases, transpose_of
from staticgrad.ops.linalg.triangular import dominant, system, system_type, triangular


def exchanged(x: Array) -> Array:
    """Well-conditioned matrices whose rows elimination must exchange."""
    return np.roll(dominant(x), 1, axis=-2)


def _lu_type(attrs: NoAttributes, x: TensorType) -> tuple[TensorType, ...]:
    check_square("lu_factor", x)
    return x, TensorType(x.shape[:-1], int64), TensorType(x.shape[:-2], x.dtype)


def _lu_reference(attrs: NoAttributes, x: Array) -> tuple[Array, Array, Array]:
    """Elimination as the kernel does it: by columns, the first of the largest elements as pivot."""
    n = x.shape[-1]
    lu = x.astype(np.float64).reshape((math.prod(x.shape[:-2]), n, n))
    rows, parity = np.tile(np.arange(n), (len(lu), 1)), np.ones(len(lu))
    with np.errstate(all="ignore"):
        for one, order, number in zip(lu, rows, range(len(lu)), strict=True):
            for k in range(n):
                pivot = k + int(np.argmax(np.abs(one[k:, k])))
                if pivot != k:
                    one[[k, pivot]], order[[k, pivot]] = one[[pivot, k]], order[[pivot, k]]
                    parity[number] *= -1
                if one[k, k] != 0:
                    one[k + 1 :, k] /= one[k, k]
                one[k + 1 :, k + 1 :] -= np.outer(one[k + 1 :, k], one[k, k + 1 :])
    shape = x.shape[:-1]
    return lu.reshape(x.shape).astype(x.dtype), rows.reshape(shape), parity.reshape(x.shape[:-2]).astype(x.dtype)


LU_FACTOR = register(
    Op(
        "lu_factor",
        "L and U of P·A = L·U in one matrix, the order of the rows, and the sign of that order.",
        infer=_lu_type,
        reference=_lu_reference,
        differentiable=False,
        dtypes=FLOATS,
        cases=(
            *square_cases((NO_ATTRIBUTES,), exchanged),
            Case(((6, 6),)),
            Case(((70, 70),)),
        ),
        tolerance=100.0,
        role="routine",
        batch=last_axes,
    )
)


@frozen
class SolveAttributes:
    """The attributes of a system of equations: with ``transposed`` it is that of the transposed matrix."""

    transposed: bool

    def leading(self, size: Size) -> SolveAttributes:
        return self


def factored(x: Tensor) -> Sequence[Tensor]:
    """L and U in one, the order of the rows and its sign; no gradient passes."""
    return graph_of((x,)).add(LU_FACTOR, (x,)).outputs


def _solve_reference(attrs: SolveAttributes, a: Array, b: Array) -> Array:
    wide = a.astype(np.float64)
    wide = np.swapaxes(wide, -1, -2) if attrs.transposed else wide
    return np.asarray(each_or_nan(np.linalg.solve, wide, b.astype(np.float64))).astype(b.dtype)


def _row_grid(o: Namespace, rows: Tensor, b: Tensor) -> list[Tensor]:
    """Indices of whole rows of ``b``: of the batch, then the rows."""
    return [*(o.iota(rows.shape, axis) for axis in range(rows.ndim - 1)), rows]


def _expand_solve(o: Namespace, node: Primal[SolveAttributes]) -> Sequence[Tensor]:
    a, b = node.inputs
    lu, rows, _ = factored(a)
    grid = _row_grid(o, rows, b)
    if node.attrs.transposed:
        x = triangular(lu, b, lower=False, transposed=True)
        x = triangular(lu, x, lower=True, transposed=True, unit=True)
        return [o.scatter_add(o.zeros_like(b), x, *grid)]
    x = triangular(lu, o.gather(b, *grid), lower=True, unit=True)
    return [triangular(lu, x, lower=False)]


def system_solution(a: Tensor, b: Tensor, transposed: bool = False) -> Tensor:
    """The x with a·x = b, or aᵀ·x = b."""
    return declare(SOLVE, (a, b), SolveAttributes(transposed))


def _vjp_solve(o: Namespace, node: Primal[SolveAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    (a, _), x, transposed = node.inputs, node.outputs[0], node.attrs.transposed
    b = system_solution(a, ct, not transposed)
    outer = o.matmul(x, transpose_of(b)) if transposed else o.matmul(b, transpose_of(x))
    return o.negative(outer), b


def _jvp_solve(
    o: Namespace, node: Primal[SolveAttributes], ta: Tensor | None, tb: Tensor | None
) -> Sequence[Tensor | None]:
    (a, _), x, transposed = node.inputs, node.outputs[0], node.attrs.transposed
    moved = None if ta is None else o.matmul(transpose_of(ta) if transposed else ta, x)
    return (system_solution(a, subtracted(o, tb, moved), transposed),)


SOLVE = register(
    Op(
        "solve",
        "The X with A·X = B, or Aᵀ·X = B.",
        infer=system_type("solve"),
        reference=_solve_reference,
        expand=_expand_solve,
        vjp=_vjp_solve,
        jvp=_jvp_solve,
        dtypes=FLOATS,
        cases=tuple(
            Case(shapes, SolveAttributes(transposed), (UNIT, UNIT), prepared=exchanged)
            for shapes in (((3, 3), (3, 2)), ((2, 5, 5), (2, 5, 1)), ((9, 9), (9, 37)), ((0, 3, 3), (0, 3, 2)))
            for transposed in (False, True)
        ),
        grad_name="LinalgSolveEx",
        tolerance=50.0,
        batch=leading,
    )
)


@public
@shown_as("LinalgSolveExBackward0")
def solve(x1: TensorLike, x2: TensorLike) -> Tensor:
    """The solution X of x1·X = x2, by elimination with partial pivoting.

    A singular ``x1`` gives infinities and NaN.

    Args:
        x1: (…, n, n).
        x2: (n,) or (…, n, k); batches broadcast.

    Returns:
        (…, n, k), without k for a vector.

    Raises:
        GraphError: no square matrices, or sizes that do not agree.

    Example:
        >>> a, b = np.array([[1.0, 1.0], [1.0, 2.0]]), np.array([3.0, 5.0])
        >>> sg.Session().run(sg.linalg.solve(a, b))
        array([1., 2.])
    """
    a, b, vector = system("solve", x1, x2)
    x = system_solution(a, b)
    return FUNCTIONS.squeeze(x, -1) if vector else x


@public
@shown_as("LinalgInvExBackward0")
def inv(x: TensorLike) -> Tensor:
    """The inverses of square matrices; of singular ones infinities and NaN.

    Raises:
        GraphError: no square matrices of a size known when declared.

    Example:
        >>> sg.Session().run(sg.linalg.inv([[2.0, 0.0], [1.0, 1.0]]))
        array([[ 0.5,  0. ],
               [-0.5,  1. ]], dtype=float32)
    """
    a = float_matrix("inv", x)
    n, _ = known_sizes("inv", a)
    check_square("inv", a.type)
    return system_solution(a, FUNCTIONS.broadcast_to(FUNCTIONS.eye(n, dtype=a.dtype), a.shape))


def of_known_size(what: str, x: TensorLike) -> Tensor:
    """Matrices of floats.

    Raises:
        GraphError: their columns are bound by feeds.
    """
    a = float_matrix(what, x)
    if isinstance(a.shape[-1], Dim):
        raise not_known(what, f"the size {a.shape[-1]} of {a.name!r} {a.type}")
    return a


@public
def matrix_power(x: TensorLike, n: int) -> Tensor:
    """The product of ``n`` equal square matrices, by repeated squaring; of the inverse for a negative ``n``.

    Example:
        >>> sg.Session().run(sg.linalg.matrix_power([[1.0, 1.0], [1.0, 0.0]], 10))
        array([[89., 55.],
               [55., 34.]], dtype=float32)
    """
    o = FUNCTIONS
    n = integer(n, "matrix_power: n")
    a = of_known_size("matrix_power", x) if n <= 0 else matrix("matrix_power", x)
    require_equal(a.shape[-2], a.shape[-1], "matrix_power", f"columns as rows of {a.type}")
    if n == 0:
        return replaced(a, o.broadcast_to(o.eye(a.shape[-1], dtype=a.dtype), a.shape))
    return o.identity(a) if n == 1 else rounded_once(lambda a: _power(inv(a) if n < 0 else a, abs(n)), a)


def _power(x: Tensor, n: int) -> Tensor:
    """The product of ``n`` ≥ 1 equal matrices, by repeated squaring."""
    if n == 1:
        return x
    half = _power(FUNCTIONS.matmul(x, x), n // 2)
    return FUNCTIONS.matmul(half, x) if n % 2 else half
