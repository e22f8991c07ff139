"""Factorisations of matrices, the equations that they solve, and their derivatives.

Matrices are the last two axes; leading axes are a batch. Where NumPy raises ``LinAlgError`` a compiled program gives
NaN or infinity instead (a matrix that is not positive definite, or singular), which ``check_numerics`` finds and names.

The primitives ``cholesky_factor triangular_solve lu_factor`` are what kernels compute; what users call is composed of
them and has its derivative in closed form:

    cholesky    I. Murray, Differentiation of the Cholesky decomposition (arXiv:1602.07527)
    solve, det  M. Giles, Collected matrix derivative results for forward and reverse mode (2008)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.errors import GraphError
from staticgrad.frozen import frozen
from staticgrad.graph import Tensor
from staticgrad.lifting import TensorLike, graph_of
from staticgrad.ops.contraction import require_equal
from staticgrad.ops.declare import FLOAT, FLOATS, accepted, added, declare
from staticgrad.ops.matrices import common_batch, float_matrix, known_sizes, matrix
from staticgrad.optable import (
    FUNCTIONS,
    NO_ATTRIBUTES,
    PRIMITIVE,
    Array,
    Case,
    Namespace,
    NoAttributes,
    Op,
    Primal,
    Range,
    public,
    register,
)
from staticgrad.types import Dim, Size, TensorType, int64

# -- what the cases are drawn from ----------------------------------------------------------------------------------


def _dominant(x: Array) -> Array:
    """Matrices with a large diagonal."""
    return np.asarray(x + 3 * np.eye(*x.shape[-2:], dtype=x.dtype))


def _exchanged(x: Array) -> Array:
    """Well-conditioned matrices whose rows elimination must exchange."""
    return np.roll(_dominant(x), 1, axis=-2)


def _definite(x: Array) -> Array:
    """Symmetric positive definite matrices."""
    return np.asarray(x @ np.swapaxes(x, -1, -2) / max(x.shape[-1], 1) + np.eye(x.shape[-1], dtype=x.dtype))


UNIT = Range(-1.0, 1.0)


def _square_type(name: str) -> Callable[..., TensorType]:
    def infer(attrs: object, x: TensorType) -> TensorType:
        check_square(name, x)
        return x

    return infer


def check_square(name: str, x: TensorType) -> None:
    """Check that a type is one of square matrices of floats.

    Raises:
        GraphError: it is not.
    """
    if x.ndim < 2 or x.dtype not in FLOATS:
        raise GraphError(f"{name}: expected matrices of floats, actual {x}")
    require_equal(x.shape[-2], x.shape[-1], name, f"columns as rows of {x}")


def _transposed(x: Tensor) -> Tensor:
    return FUNCTIONS.matrix_transpose(x)


def _difference(o: Namespace, x: Tensor | None, y: Tensor | None) -> Tensor:
    """x - y of what is there."""
    return o.subtract(x, y) if x is not None and y is not None else added(o, x, None if y is None else o.negative(y))


def symmetric(x: Tensor) -> Tensor:
    """(x + xᵀ)/2: of a symmetric matrix itself, bit for bit."""
    return FUNCTIONS.multiply(FUNCTIONS.add(x, _transposed(x)), 0.5)


# -- Cholesky -------------------------------------------------------------------------------------------------------


@frozen
class CholeskyAttributes:
    """Whether the factor is the upper triangular one."""

    upper: bool

    def leading(self, size: Size) -> CholeskyAttributes:
        return self


def each_or_nan(function: Callable[..., Any], *arrays: Array) -> Any:
    """A reference over a batch of matrices; NaN for those where it raises ``LinAlgError``, and only for those."""
    try:
        return function(*arrays)
    except np.linalg.LinAlgError:
        pass
    harmless = [np.broadcast_to(np.eye(*x.shape[-2:], dtype=x.dtype), x.shape) for x in arrays]
    shaped = function(*harmless)
    several = isinstance(shaped, tuple)
    results = [np.full_like(y, np.nan) for y in (shaped if several else (shaped,))]
    for place in np.ndindex(arrays[0].shape[:-2]):
        try:
            found = function(*(x[place] for x in arrays))
        except np.linalg.LinAlgError:
            continue
        for result, y in zip(results, found if several else (found,), strict=True):
            result[place] = y
    return tuple(results) if several else results[0]


def _upper_factor(x: Array) -> Array:
    try:
        return np.swapaxes(np.linalg.cholesky(np.swapaxes(x.astype(np.float64), -1, -2)), -1, -2).astype(x.dtype)
    except np.linalg.LinAlgError:
        result = np.empty_like(x)
        for place in np.ndindex(x.shape[:-2]):
            result[place] = _upper_factor_of_one(x[place])
        return result


def _upper_factor_of_one(x: Array) -> Array:
    """The rows before the first pivot that is not positive are right, from there on NaN stands above the diagonal."""
    result = np.triu(np.full_like(x, np.nan))
    for size in range(1, len(x) + 1):
        try:
            part = np.linalg.cholesky(x[:size, :size].T.astype(np.float64)).T
        except np.linalg.LinAlgError:
            return result
        rest = np.linalg.solve(part.T, x[:size, size:].astype(np.float64))
        result[:size, :size], result[:size, size:] = part, rest
    return result


def _cholesky_reference(attrs: CholeskyAttributes, x: Array) -> Array:
    factor = _upper_factor((x + np.swapaxes(x, -1, -2)) / 2)
    return factor if attrs.upper else np.swapaxes(factor, -1, -2)


def _expand_cholesky(o: Namespace, node: Primal[CholeskyAttributes]) -> Sequence[Tensor]:
    factor = declare(CHOLESKY_FACTOR, (symmetric(node.inputs[0]),))
    return [factor if node.attrs.upper else _transposed(factor)]


def _halved(o: Namespace, x: Tensor) -> Tensor:
    """The lower triangle with half the diagonal: Φ of the paper."""
    return o.multiply(o.add(o.tril(x), o.tril(x, -1)), 0.5)


def _vjp_cholesky(o: Namespace, node: Primal[CholeskyAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    factor, upper = node.outputs[0], node.attrs.upper
    lower_ct = _transposed(ct) if upper else ct
    product = o.matmul(factor if upper else _transposed(factor), o.tril(lower_ct))
    back = triangular(factor, _halved(o, product), lower=not upper, transposed=not upper)
    whole = triangular(factor, _transposed(back), lower=not upper, transposed=not upper)
    return (symmetric(whole),)


def _jvp_cholesky(o: Namespace, node: Primal[CholeskyAttributes], t: Tensor) -> Sequence[Tensor | None]:
    factor, upper = node.outputs[0], node.attrs.upper
    half = triangular(factor, symmetric(t), lower=not upper, transposed=upper)
    inner = triangular(factor, _transposed(half), lower=not upper, transposed=upper)
    lower = o.matmul(_transposed(factor) if upper else factor, _halved(o, inner))
    return (_transposed(lower) if upper else lower,)


def _square_cases(attributes: Sequence[Any], prepared: Callable[[Array], Array] | None) -> tuple[Case, ...]:
    shapes = ((3, 3), (1, 1), (2, 4, 4), (7, 7), (0, 3, 3), (21, 21), (2, 0, 0))
    first, *rest = attributes
    cases = [Case((shape,), first, (UNIT,), prepared=prepared) for shape in shapes]
    return (*cases, *(Case(((2, 6, 6),), attrs, (UNIT,), prepared=prepared) for attrs in rest))


CHOLESKY_FACTOR = register(
    Op(
        "cholesky_factor",
        "The upper U with Uᵀ·U = A, of whose upper triangle it is made.",
        infer=_square_type("cholesky_factor"),
        reference=lambda attrs, x: _upper_factor(x),
        differentiable=False,
        dtypes=FLOATS,
        cases=(*_square_cases((NO_ATTRIBUTES,), _definite), Case(((5, 5),)), Case(((70, 70),), prepared=_definite)),
        tolerance=20.0,
        tags=PRIMITIVE,
    )
)

CHOLESKY = register(
    Op(
        "cholesky",
        "The triangular factor of symmetric positive definite matrices.",
        infer=_square_type("cholesky"),
        reference=_cholesky_reference,
        expand=_expand_cholesky,
        vjp=_vjp_cholesky,
        jvp=_jvp_cholesky,
        dtypes=FLOATS,
        cases=_square_cases((CholeskyAttributes(False), CholeskyAttributes(True)), _definite),
        grad_name="LinalgCholeskyEx",
        tolerance=20.0,
    )
)


@public
def cholesky(x: TensorLike, *, upper: bool = False) -> Tensor:
    """The lower triangular L with L·Lᵀ = x of symmetric positive definite matrices, or with ``upper`` Lᵀ.

    ``x`` is taken for (x + xᵀ)/2, and its gradient is symmetric. Where a matrix is not positive definite the columns of
    L from the first pivot on that is not positive are NaN.

    Args:
        x: (\\*batch, n, n).

    Returns:
        (\\*batch, n, n), zero in the other triangle.

    Raises:
        GraphError: no square matrices.
    """
    return declare(CHOLESKY, (float_matrix("cholesky", x),), CholeskyAttributes(bool(upper)))


# -- triangular systems ---------------------------------------------------------------------------------------------


@frozen
class TriangularAttributes:
    """Which triangle of T is read, whether the system is of Tᵀ, and whether the diagonal counts as ones."""

    lower: bool
    transposed: bool
    unit: bool

    def leading(self, size: Size) -> TriangularAttributes:
        return self


def _system_type(name: str) -> Callable[..., TensorType]:
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
    outer = o.matmul(x, _transposed(b)) if attrs.transposed else o.matmul(b, _transposed(x))
    return o.negative(_triangle_of(o, attrs, outer)), b


def _jvp_triangular(
    o: Namespace, node: Primal[TriangularAttributes], tt: Tensor | None, tb: Tensor | None
) -> Sequence[Tensor | None]:
    (t, _), x, attrs = node.inputs, node.outputs[0], node.attrs
    moved = None
    if tt is not None:
        part = _triangle_of(o, attrs, tt)
        moved = o.matmul(_transposed(part) if attrs.transposed else part, x)
    right = _difference(o, tb, moved)
    return (triangular(t, right, lower=attrs.lower, transposed=attrs.transposed, unit=attrs.unit),)


def _triangular_cases() -> tuple[Case, ...]:
    shapes = (((3, 3), (3, 2)), ((2, 5, 5), (2, 5, 1)), ((9, 9), (9, 37)), ((0, 3, 3), (0, 3, 2)), ((4, 4), (4, 0)))
    ways = [(lower, transposed) for lower in (True, False) for transposed in (True, False)]
    return tuple(
        Case(pair, TriangularAttributes(*way, unit), (UNIT, UNIT), prepared=None if unit else _dominant)
        for way in ways
        for pair, unit in (*((s, False) for s in shapes[: 5 if way == ways[0] else 3]), (((3, 3), (3, 2)), True))
    )


TRIANGULAR_SOLVE = register(
    Op(
        "triangular_solve",
        "The X with T·X = B, or Tᵀ·X = B, for a triangular T, of which one triangle is read.",
        infer=_system_type("triangular_solve"),
        reference=_triangular_reference,
        vjp=_vjp_triangular,
        jvp=_jvp_triangular,
        dtypes=FLOATS,
        cases=_triangular_cases(),
        grad_name="LinalgSolveTriangular",
        tolerance=20.0,
        tags=PRIMITIVE,
    )
)


def _system(what: str, x1: TensorLike, x2: TensorLike) -> tuple[Tensor, Tensor, bool]:
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
        x1: (\\*batch, n, n).
        x2: (n,), or (\\*batch, n, k), without ``left`` (\\*batch, k, n); batches broadcast.
        upper: which triangle.
        unitriangular: the diagonal is not read and counts as ones.

    Returns:
        The shape of ``x2``, with the common batch.

    Raises:
        GraphError: no square matrices, or sizes that do not agree.
    """
    if left:
        a, b, vector = _system("solve_triangular", x1, x2)
        x = triangular(a, b, lower=not upper, unit=bool(unitriangular))
        return FUNCTIONS.squeeze(x, -1) if vector else x
    right = matrix("solve_triangular", x2)
    a, b, _ = _system("solve_triangular", x1, _transposed(right))
    return _transposed(triangular(a, b, lower=not upper, transposed=True, unit=bool(unitriangular)))


# -- elimination: solve, inv, det -----------------------------------------------------------------------------------


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
            *_square_cases((NO_ATTRIBUTES,), _exchanged),
            Case(((6, 6),)),
            Case(((70, 70),)),
        ),
        tolerance=100.0,
        tags=PRIMITIVE,
    )
)


@frozen
class SolveAttributes:
    """Whether the system is of the transposed matrix."""

    transposed: bool

    def leading(self, size: Size) -> SolveAttributes:
        return self


def _factored(x: Tensor) -> Sequence[Tensor]:
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
    lu, rows, _ = _factored(a)
    grid = _row_grid(o, rows, b)
    if node.attrs.transposed:
        x = triangular(lu, b, lower=False, transposed=True)
        x = triangular(lu, x, lower=True, transposed=True, unit=True)
        return [o.scatter_add(o.zeros_like(b), x, *grid)]
    x = triangular(lu, o.gather(b, *grid), lower=True, unit=True)
    return [triangular(lu, x, lower=False)]


def _system_solution(a: Tensor, b: Tensor, transposed: bool = False) -> Tensor:
    return declare(SOLVE, (a, b), SolveAttributes(transposed))


def _vjp_solve(o: Namespace, node: Primal[SolveAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    (a, _), x, transposed = node.inputs, node.outputs[0], node.attrs.transposed
    b = _system_solution(a, ct, not transposed)
    outer = o.matmul(x, _transposed(b)) if transposed else o.matmul(b, _transposed(x))
    return o.negative(outer), b


def _jvp_solve(
    o: Namespace, node: Primal[SolveAttributes], ta: Tensor | None, tb: Tensor | None
) -> Sequence[Tensor | None]:
    (a, _), x, transposed = node.inputs, node.outputs[0], node.attrs.transposed
    moved = None if ta is None else o.matmul(_transposed(ta) if transposed else ta, x)
    return (_system_solution(a, _difference(o, tb, moved), transposed),)


SOLVE = register(
    Op(
        "solve",
        "The X with A·X = B, or Aᵀ·X = B.",
        infer=_system_type("solve"),
        reference=_solve_reference,
        expand=_expand_solve,
        vjp=_vjp_solve,
        jvp=_jvp_solve,
        dtypes=FLOATS,
        cases=tuple(
            Case(shapes, SolveAttributes(transposed), (UNIT, UNIT), prepared=_exchanged)
            for shapes in (((3, 3), (3, 2)), ((2, 5, 5), (2, 5, 1)), ((9, 9), (9, 37)), ((0, 3, 3), (0, 3, 2)))
            for transposed in (False, True)
        ),
        grad_name="LinalgSolveEx",
        tolerance=50.0,
    )
)


@public
def solve(x1: TensorLike, x2: TensorLike) -> Tensor:
    """The solution X of x1·X = x2, by elimination with partial pivoting.

    A singular ``x1`` gives infinities and NaN.

    Args:
        x1: (\\*batch, n, n).
        x2: (n,) or (\\*batch, n, k); batches broadcast.

    Returns:
        (\\*batch, n, k), without k for a vector.

    Raises:
        GraphError: no square matrices, or sizes that do not agree.
    """
    a, b, vector = _system("solve", x1, x2)
    x = _system_solution(a, b)
    return FUNCTIONS.squeeze(x, -1) if vector else x


@public
def inv(x: TensorLike) -> Tensor:
    """The inverses of square matrices; of singular ones infinities and NaN.

    Raises:
        GraphError: no square matrices of a size known when declared.
    """
    a = float_matrix("inv", x)
    n, _ = known_sizes("inv", a)
    check_square("inv", a.type)
    return _system_solution(a, FUNCTIONS.broadcast_to(FUNCTIONS.eye(n, dtype=a.dtype), a.shape))


def _det_type(attrs: NoAttributes, x: TensorType) -> TensorType:
    check_square("det", x)
    return TensorType(x.shape[:-2], x.dtype)


def _slogdet_type(attrs: NoAttributes, x: TensorType) -> tuple[TensorType, TensorType]:
    check_square("slogdet", x)
    return (TensorType(x.shape[:-2], x.dtype),) * 2


def _expand_det(o: Namespace, node: Primal[NoAttributes]) -> Sequence[Tensor]:
    lu, _, parity = _factored(node.inputs[0])
    return [o.multiply(parity, o.prod(o.diagonal(lu), axis=-1))]


def _expand_slogdet(o: Namespace, node: Primal[NoAttributes]) -> Sequence[Tensor]:
    lu, _, parity = _factored(node.inputs[0])
    pivots = o.diagonal(lu)
    sign = o.multiply(parity, o.prod(o.sign(pivots), axis=-1))
    return [sign, o.sum(o.log(o.abs(pivots)), axis=-1)]


def _times_inverse(o: Namespace, x: Tensor, scale: Tensor) -> Tensor:
    """scale · x⁻ᵀ."""
    inverse = _system_solution(x, o.broadcast_to(o.eye(x.shape[-1], dtype=x.dtype), x.shape), True)
    return o.multiply(o.expand_dims(scale, (-2, -1)), inverse)


def _trace_of_quotient(o: Namespace, x: Tensor, t: Tensor) -> Tensor:
    """The trace of x⁻¹·t."""
    return o.trace(_system_solution(x, t))


DET = register(
    Op(
        "det",
        "Determinants.",
        infer=_det_type,
        reference=lambda attrs, x: np.asarray(np.linalg.det(x.astype(np.float64))).astype(x.dtype),
        expand=_expand_det,
        vjp=lambda o, node, ct: (_times_inverse(o, node.inputs[0], o.multiply(ct, node.outputs[0])),),
        jvp=lambda o, node, t: (o.multiply(node.outputs[0], _trace_of_quotient(o, node.inputs[0], t)),),
        dtypes=FLOATS,
        cases=_square_cases((NO_ATTRIBUTES,), _exchanged),
        grad_name="LinalgDet",
        tolerance=50.0,
    )
)

SLOGDET = register(
    Op(
        "slogdet",
        "The signs of determinants, and the logarithms of their magnitudes.",
        infer=_slogdet_type,
        reference=lambda attrs, x: tuple(
            np.asarray(y).astype(x.dtype) for y in np.linalg.slogdet(x.astype(np.float64))
        ),
        expand=_expand_slogdet,
        vjp=lambda o, node, _, ct: (None if ct is None else _times_inverse(o, node.inputs[0], ct),),
        jvp=lambda o, node, t: (None, _trace_of_quotient(o, node.inputs[0], t)),
        dtypes=FLOATS,
        cases=_square_cases((NO_ATTRIBUTES,), _exchanged),
        grad_name="LinalgSlogdet",
        tolerance=50.0,
    )
)


def _of_known_size(what: str, x: TensorLike) -> Tensor:
    a = float_matrix(what, x)
    if isinstance(a.shape[-1], Dim):
        raise GraphError(f"{what}: the size {a.shape[-1]} of {a.name!r} {a.type} must be known when declared")
    return a


@public
def det(x: TensorLike) -> Tensor:
    """The determinants of square matrices. The derivative of a singular matrix's is NaN.

    Args:
        x: (\\*batch, n, n).

    Returns:
        (\\*batch,).

    Raises:
        GraphError: no square matrices of a size known when declared.
    """
    return declare(DET, (_of_known_size("det", x),))


@public
def slogdet(x: TensorLike) -> tuple[Tensor, Tensor]:
    """The signs of the determinants of square matrices (0 of singular ones), and the logarithms of their magnitudes.

    Args:
        x: (\\*batch, n, n).

    Returns:
        Twice (\\*batch,).

    Raises:
        GraphError: no square matrices of a size known when declared.
    """
    a = _of_known_size("slogdet", x)
    sign, logarithm = a.graph.add(SLOGDET, (a,)).outputs
    return sign, logarithm


@public
def matrix_power(x: TensorLike, n: int) -> Tensor:
    """The product of ``n`` equal square matrices, by repeated squaring; of the inverse for a negative ``n``."""
    o = FUNCTIONS
    a = _of_known_size("matrix_power", x) if n <= 0 else matrix("matrix_power", x)
    require_equal(a.shape[-2], a.shape[-1], "matrix_power", f"columns as rows of {a.type}")
    if n == 0:
        return o.broadcast_to(o.eye(a.shape[-1], dtype=a.dtype), a.shape)
    power, result, left = (inv(a) if n < 0 else a), None, abs(n)
    while left:
        if left % 2:
            result = power if result is None else o.matmul(result, power)
        left //= 2
        power = o.matmul(power, power) if left else power
    return result if result is not None and result is not x else o.identity(a)
