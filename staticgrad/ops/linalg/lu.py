"""Factors of elimination with partial pivoting: ``lu``, ``lu_factor``, ``lu_solve``.

The primitive eliminates square matrices (``elimination``). A wide one is a square one and what its L makes of the
columns to the right; a tall one is eliminated with columns of zeros, which ask for no exchange of rows, or if it has
many rows for its columns by a loop over these.

The derivative, with F = L⁻¹·P·dA·U⁻¹: dL = L·tril(F, −1), dU = triu(F)·U (F. de Hoog, R. Anderssen & M. Lukas,
Differentiation of matrix functionals using triangular factorization, 2011); for other than square matrices L and U are
filled up to square ones with the identity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.types import FLOATS, Dim, TensorType, int64, is_floating, takes
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift
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
from staticgrad.graph.results import LUFactorResult, LUResult
from staticgrad.ops.batch_rules import last_axes
from staticgrad.ops.contraction import require_equal
from staticgrad.ops.elementwise.copies import rounded, rounded_once, widened
from staticgrad.ops.linalg.elimination import exchanged, factored
from staticgrad.ops.linalg.matrices import common_batch, float_matrix
from staticgrad.ops.linalg.square import UNIT, transpose_of
from staticgrad.ops.linalg.triangular import triangular

TALL = 5  # rows over columns from which a loop over columns is faster than eliminating a square matrix (measured)


def _lu_type(attrs: NoAttributes, x: TensorType) -> tuple[TensorType, TensorType]:
    if x.ndim < 2 or not takes(FLOATS, x.dtype):
        raise GraphError(f"lu: expected matrices of floats, actual {x}")
    if x.shape[-1] != x.shape[-2] and any(isinstance(size, Dim) for size in x.shape[-2:]):
        raise GraphError(f"lu: expected square matrices or sizes known when declared, actual {x}")
    return x, TensorType(x.shape[:-1], int64)


def _lu_reference(attrs: NoAttributes, x: Array) -> tuple[Array, Array]:
    """Elimination by columns, the first of the largest elements as pivot."""
    m, n = x.shape[-2:]
    factors = x.astype(np.float64).reshape((math.prod(x.shape[:-2]), m, n))
    rows = np.tile(np.arange(m), (len(factors), 1))
    with np.errstate(all="ignore"):
        for one, order in zip(factors, rows, strict=True):
            for k in range(min(m, n)):
                pivot = k + int(np.argmax(np.abs(one[k:, k])))
                one[[k, pivot]], order[[k, pivot]] = one[[pivot, k]], order[[pivot, k]]
                if one[k, k] != 0:
                    one[k + 1 :, k] /= one[k, k]
                one[k + 1 :, k + 1 :] -= np.outer(one[k + 1 :, k], one[k, k + 1 :])
    return factors.reshape(x.shape).astype(x.dtype), rows.reshape(x.shape[:-1])


def _places(o: Namespace, rows: Tensor) -> list[Tensor]:
    """Indices of whole rows of matrices: of the batch, then the rows."""
    return [*(o.iota(rows.shape, axis) for axis in range(rows.ndim - 1)), rows]


def _moved(o: Namespace, x: Tensor, rows: Tensor) -> Tensor:
    """The rows of matrices in the order that elimination found."""
    return o.gather(x, *_places(o, rows))


def _moved_back(o: Namespace, x: Tensor, rows: Tensor) -> Tensor:
    """The transpose of ``_moved``."""
    return o.scatter_add(o.zeros_like(x), x, *_places(o, rows))


def _expand_lu(o: Namespace, node: Primal[NoAttributes]) -> Sequence[Tensor]:
    (x,) = node.inputs
    m, n = x.shape[-2:]
    if m == n:
        lu, rows, _ = factored(x)
        return lu, rows
    assert isinstance(m, int)
    assert isinstance(n, int)
    if m >= TALL * n:
        return _eliminated(o, x, m, n)
    if m > n:
        lu, rows, _ = factored(o.concat([x, o.zeros((*x.shape[:-1], m - n), dtype=x.dtype)], axis=-1))
        return lu[..., :n], rows
    lu, rows, _ = factored(x[..., :m])
    return o.concat([lu, triangular(lu, _moved(o, x[..., m:], rows), lower=True, unit=True)], axis=-1), rows


def _eliminated(o: Namespace, x: Tensor, m: int, n: int) -> tuple[Tensor, Tensor]:
    """The factors of a tall matrix, a column a turn of a loop."""
    row, column = o.iota((m, 1), 0), o.iota((1, n), 1)
    places = o.iota(x.shape[:-1], x.ndim - 2)

    def turn(carry: tuple[Tensor, Tensor], k: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[()]]:
        a, order = carry
        there = o.sum(o.where(o.equal(column, k), a, 0), axis=-1)
        size = o.where(o.less(places, k), -1, o.abs(there))
        pivot = o.expand_dims(o.argmax(size, axis=-1), -1)
        exchanged = o.where(o.equal(places, k), pivot, o.where(o.equal(places, pivot), k, places))
        a, order = _moved(o, a, exchanged), o.take_along_axis(order, exchanged, -1)
        top = o.sum(o.where(o.equal(row, k), a, 0), axis=-2, keepdims=True)
        divisor = o.sum(o.where(o.equal(column, k), top, 0), axis=-1, keepdims=True)
        below = o.sum(o.where(o.equal(column, k), a, 0), axis=-1, keepdims=True)
        factors = o.divide(below, o.where(o.equal(divisor, 0), 1, divisor))
        left = o.where(o.equal(column, k), factors, o.subtract(a, o.multiply(factors, top)))
        inside = o.logical_and(o.greater(row, k), o.greater_equal(column, k))
        return (o.where(inside, left, a), order), ()

    (packed, rows), _ = o.scan(turn, (x, places), o.iota((n,), 0))
    return packed, rows


def _diagonal_ones(o: Namespace, shape: Sequence[Any], dtype: np.dtype) -> Tensor:
    return o.astype(o.equal(o.iota(shape, 0), o.iota(shape, 1)), dtype)


def _squares(o: Namespace, lu: Tensor) -> tuple[Tensor, Tensor]:
    """L in the lower triangle of a square matrix, and U in the upper one of another, filled up with the identity."""
    m, n = lu.shape[-2:]
    if m == n:
        return lu, lu
    assert isinstance(m, int)
    assert isinstance(n, int)
    if m > n:
        return o.concat([lu, o.zeros((*lu.shape[:-1], m - n), dtype=lu.dtype)], axis=-1), lu[..., :n, :]
    ones = o.broadcast_to(o.eye(n - m, n, k=m, dtype=lu.dtype), (*lu.shape[:-2], n - m, n))
    return lu[..., :m], o.concat([lu, ones], axis=-2)


def _unit_lower(o: Namespace, x: Tensor) -> Tensor:
    return o.add(o.tril(x, -1), _diagonal_ones(o, x.shape[-2:], x.dtype))


def _divided_by_upper(x: Tensor, upper: Tensor, transposed: bool = False) -> Tensor:
    """x·U⁻¹, or x·U⁻ᵀ."""
    return transpose_of(triangular(upper, transpose_of(x), lower=False, transposed=not transposed))


def _vjp_lu(o: Namespace, node: Primal[NoAttributes], ct: Tensor | None, _: Tensor | None) -> Sequence[Tensor | None]:
    if ct is None:
        return (None,)
    lu, rows = node.outputs
    lower, upper = _squares(o, lu)
    of_lower = o.tril(o.matmul(transpose_of(_unit_lower(o, lower)), o.tril(ct, -1)), -1)
    of_upper = o.triu(o.matmul(o.triu(ct), transpose_of(o.triu(upper))))
    back = triangular(lower, o.add(of_lower, of_upper), lower=True, transposed=True, unit=True)
    return (_moved_back(o, _divided_by_upper(back, upper, transposed=True), rows),)


def _jvp_lu(o: Namespace, node: Primal[NoAttributes], t: Tensor) -> Sequence[Tensor | None]:
    lu, rows = node.outputs
    lower, upper = _squares(o, lu)
    solved = triangular(lower, _moved(o, t, rows), lower=True, unit=True)
    inner = _divided_by_upper(solved, upper)
    of_lower = o.matmul(_unit_lower(o, lower), o.tril(inner, -1))
    return o.add(of_lower, o.matmul(o.triu(inner), o.triu(upper))), None


LU = register(
    Op(
        "lu",
        "L and U of P·A = L·U in one matrix, and the order of the rows, of matrices of any shape.",
        infer=_lu_type,
        reference=_lu_reference,
        expand=_expand_lu,
        vjp=_vjp_lu,
        jvp=_jvp_lu,
        dtypes=FLOATS,
        cases=tuple(
            Case((shape,), NO_ATTRIBUTES, (UNIT,), prepared=exchanged)
            for shape in (
                (3, 3),
                (1, 1),
                (2, 5, 3),
                (2, 3, 5),
                (7, 4),
                (4, 9),
                (0, 3, 3),
                (4, 1),
                (1, 4),
                (11, 2),
                (2, 12, 2),
            )
        ),
        grad_name="LinalgLuFactorEx",
        tolerance=100.0,
        batch=last_axes,
    )
)


def _packed(what: str, x: TensorLike) -> tuple[Tensor, Tensor]:
    a = float_matrix(what, x)
    lu, rows = a.graph.add(LU, (a,)).outputs
    return lu, rows


def _pivots(o: Namespace, rows: Tensor, count: int) -> Tensor:
    """The row with which each row was exchanged in its turn, from the order that came of it."""
    columns = o.moveaxis(rows, -1, 0)[:count]
    places = o.iota(rows.shape, rows.ndim - 1)

    def turn(order: Tensor, given: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        wanted, k = given
        here = o.sum(o.where(o.equal(places, k), order, 0), axis=-1, keepdims=True)
        found = o.equal(order, o.expand_dims(wanted, -1))
        pivot = o.sum(o.where(found, places, 0), axis=-1)
        return o.where(found, here, o.where(o.equal(places, k), o.expand_dims(wanted, -1), order)), pivot

    _, pivots = o.scan(turn, places, (columns, o.iota((count,), 0)))
    found: Tensor = o.moveaxis(pivots, 0, -1)
    return found


@public
def lu(x: TensorLike) -> LUResult:
    """Matrices as products P·L·U of a permutation, a unit lower and an upper triangular matrix, by elimination with
    partial pivoting.

    Args:
        x: (…, m, n).

    Returns:
        A named tuple: ``P`` (…, m, m), ``L`` (…, m, k) and ``U`` (…, k, n), k = min(m, n).

    Raises:
        GraphError: no matrices that are square or of sizes known when declared.

    Example:
        >>> p, l, u = sg.linalg.lu(np.array([[1.0, 2.0], [4.0, 2.0]]))
        >>> sg.Session().run([p, l, u])
        [array([[0., 1.],
               [1., 0.]]), array([[1.  , 0.  ],
               [0.25, 1.  ]]), array([[4. , 2. ],
               [0. , 1.5]])]
    """
    o = FUNCTIONS
    given = float_matrix("lu", x)
    packed, rows = _packed("lu", *widened([given]))
    m, n = packed.shape[-2:]
    square = (*rows.shape, m)
    order = o.equal(o.iota(square, len(square) - 2), o.expand_dims(rows, -2))
    lower, upper = packed, packed
    if isinstance(m, int) and isinstance(n, int):
        lower, upper = packed[..., : min(m, n)], packed[..., : min(m, n), :]
    parts = [o.astype(order, packed.dtype), _unit_lower(o, lower), o.triu(upper)]
    return LUResult(*rounded(parts, [given] * 3))


@public
def lu_factor(x: TensorLike) -> LUFactorResult:
    """The factors of ``lu`` in one matrix, as SciPy, JAX and LAPACK have them.

    Args:
        x: (…, m, n), m and n known when declared.

    Returns:
        A named tuple: ``LU`` (…, m, n), U in its upper triangle and below it L without the ones of its diagonal;
        ``pivots`` (…, min(m, n)): row k was exchanged with row ``pivots[k]``, from 0 on, in int64; ``permutation``
        (…, m), the order of rows that came of it: ``x[permutation]`` is L·U.

    Raises:
        GraphError: no matrices of sizes known when declared.

    Example:
        >>> lu, pivots, permutation = sg.linalg.lu_factor(np.array([[1.0, 2.0], [4.0, 2.0]]))
        >>> sg.Session().run([lu, pivots, permutation])
        [array([[4.  , 2.  ],
               [0.25, 1.5 ]]), array([1, 1]), array([1, 0])]
    """
    packed, rows = _packed("lu_factor", x)
    m, n = packed.shape[-2:]
    if not isinstance(m, int) or not isinstance(n, int):
        raise GraphError(f"lu_factor: expected matrices of sizes known when declared, actual {packed.type}")
    return LUFactorResult(packed, _pivots(FUNCTIONS, rows, min(m, n)), rows)


@public
def pivots_to_permutation(pivots: TensorLike, size: int | None = None) -> Tensor:
    """The order of rows that exchanges in turn lead to, of row k with row ``pivots[k]``.

    Args:
        pivots: (…, k), integers from 0 on.
        size: the number of rows; default: k.

    Returns:
        (…, size), int64.

    Raises:
        GraphError: no integers, a number of pivots that is not known, or more than there are rows.

    Example:
        >>> sg.Session().run(sg.linalg.pivots_to_permutation([1, 1], 3))
        array([1, 0, 2])
    """
    o = FUNCTIONS
    x = lift(pivots)
    if x.ndim < 1 or is_floating(x.dtype) or not isinstance(x.shape[-1], int):
        raise GraphError(f"pivots_to_permutation: expected integers (…, k), k known, actual {x.name!r} {x.type}")
    count = x.shape[-1]
    size = count if size is None else size
    if size < count:
        raise GraphError(f"pivots_to_permutation: expected at most size={size} pivots, actual {x.name!r} {x.type}")
    shape = (*x.shape[:-1], size)
    places = o.iota(shape, len(shape) - 1)

    def at(order: Tensor, place: Tensor) -> Tensor:
        return o.sum(o.where(o.equal(places, place), order, 0), axis=-1, keepdims=True)

    def turn(order: Tensor, given: Sequence[Tensor]) -> tuple[Tensor, tuple[()]]:
        pivot, k = o.expand_dims(given[0], -1), given[1]
        there, here = at(order, pivot), at(order, k)
        return o.where(o.equal(places, k), there, o.where(o.equal(places, pivot), here, order)), ()

    order, _ = o.scan(turn, places, (o.astype(o.moveaxis(x, -1, 0), int64), o.iota((count,), 0)))
    found: Tensor = order
    return found


@public
def lu_solve(lu: TensorLike, permutation: TensorLike, b: TensorLike, *, transposed: bool = False) -> Tensor:
    """The solution X of A·X = b, or with ``transposed`` of Aᵀ·X = b, from the factors of A.

    Args:
        lu: (…, n, n), ``LU`` of ``lu_factor``.
        permutation: (…, n), that of ``lu_factor``, or of ``pivots_to_permutation``.
        b: (n,) or (…, n, k); batches broadcast.

    Returns:
        (…, n, k), without k for a vector.

    Raises:
        GraphError: sizes that do not agree.
        BoundsError: the permutation names a row that is not there.

    Example:
        >>> lu, _, permutation = sg.linalg.lu_factor(np.array([[1.0, 1.0], [1.0, 2.0]]))
        >>> sg.Session().run(sg.linalg.lu_solve(lu, permutation, np.array([3.0, 5.0])))
        array([1., 2.])
    """
    o, what = FUNCTIONS, "lu_solve"
    a, right = float_matrix(what, lu), lift(b)
    order = lift(permutation)
    require_equal(a.shape[-2], a.shape[-1], what, f"columns as rows of {a.type}")
    if order.ndim < 1 or is_floating(order.dtype):
        raise GraphError(f"{what}: expected a permutation (…, n) of integers, actual {order.name!r} {order.type}")
    vector = right.ndim == 1
    if right.ndim == 0:
        raise GraphError(f"{what}: expected a right side (n,) or (…, n, k), actual {right.name!r} {right.type}")
    right = o.astype(o.expand_dims(right, -1) if vector else right, a.dtype)
    require_equal(a.shape[-1], right.shape[-2], what, f"rows of the right side {right.type} for {a.type}")
    require_equal(a.shape[-1], order.shape[-1], what, f"size of the permutation {order.type} for {a.type}")
    a, right, columns = common_batch(what, a, right, o.expand_dims(o.astype(order, int64), -1))
    rows = o.squeeze(columns, -1)

    def solution(a: Tensor, b: Tensor) -> Tensor:
        if transposed:
            x = triangular(a, b, lower=False, transposed=True)
            x = triangular(a, x, lower=True, transposed=True, unit=True)
            return o.index_add(o.zeros_like(x), x, *_places(o, rows), what=what)
        x = triangular(a, o.index(b, *_places(o, rows), what=what), lower=True, unit=True)
        return triangular(a, x, lower=False)

    x = rounded_once(solution, a, right)
    return o.squeeze(x, -1) if vector else x
