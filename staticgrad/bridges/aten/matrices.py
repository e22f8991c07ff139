"""Products of matrices, decompositions, distances: their converters."""

from __future__ import annotations

from typing import Any

import numpy as np

from staticgrad.bridges.arrays import cast
from staticgrad.bridges.aten.dialect import INT64, AtenCall, as_given, converts, direct, entries
from staticgrad.bridges.importer import RefusedError
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

direct(as_given, "mm=matmul bmm=matmul matmul mv=matmul dot=matmul linear linalg_matrix_exp=expm")
direct(as_given, "linalg_householder_product=householder_product")


def _added(x: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else o.add(x if beta == 1 else x * beta, product)


def _trilinear(
    i1: Tensor, i2: Tensor, i3: Tensor, expand1: Any, expand2: Any, expand3: Any, sumdim: Any, unroll_dim: int
) -> Tensor:
    """The product of three tensors, each with axes of size 1 at these places, summed over others."""
    factors = (o.expand_dims(x, at) if at else x for x, at in ((i1, expand1), (i2, expand2), (i3, expand3)))
    first, second, third = factors
    return o.sum(first * second * third, sumdim)


def _pairs_apart(x: Tensor, p: float) -> Tensor:
    rows, columns = np.triu_indices(int(x.shape[0]), 1)
    return o.vector_norm(o.take(x, rows, axis=0) - o.take(x, columns, axis=0), -1, ord=p)


entries({
    "einsum": lambda equation, tensors, path: o.einsum(equation, *tensors),
    "addmm": lambda x, mat1, mat2, beta, alpha: _added(x, o.matmul(mat1, mat2), beta, alpha),
    "addmv": lambda x, mat, vec, beta, alpha: _added(x, o.matmul(mat, vec), beta, alpha),
    "baddbmm": lambda x, batch1, batch2, beta, alpha: _added(x, o.matmul(batch1, batch2), beta, alpha),
    "addbmm": lambda x, batch1, batch2, beta, alpha: _added(x, o.sum(o.matmul(batch1, batch2), 0), beta, alpha),
    "_trilinear": _trilinear,
    "linalg_cross": lambda x, other, dim: o.cross(x, other, axis=dim),
    "dist": lambda x, other, p: o.vector_norm(x - other, ord=float(p)),
    "_cdist_forward": lambda x1, x2, p: o.vector_norm(o.expand_dims(x1, -2) - o.expand_dims(x2, -3), -1, ord=p),
    "_pdist_forward": _pairs_apart,
})  # fmt: skip


# -- decompositions ----------------------------------------------------------------------------------------------------


def _no_failure(x: Tensor) -> Tensor:
    """The status of a decomposition that has found no failure."""
    return o.zeros(x.shape[:-2], dtype=np.dtype(np.int32))


@converts("_linalg_solve_ex")
def solve(A: Tensor, B: Tensor, left: bool) -> list[Any]:
    if not left:
        raise RefusedError("a solve from the right is not converted")
    vectors = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])
    solved = o.solve(A, o.expand_dims(B, -1) if vectors else B)
    return [o.squeeze(solved, -1) if vectors else solved, None, None, _no_failure(A)]


@converts("_linalg_eigh")
def eigh(A: Tensor, UPLO: str, compute_v: bool) -> list[Any]:
    """Half of the matrix is read; the derivative is that by a symmetric one, as PyTorch's."""
    lower = A if UPLO == "L" else o.swapaxes(A, -1, -2)
    return list(o.eigh(lower)) if compute_v else [o.eigvalsh(lower), None]


def _svd(A: Tensor, full_matrices: bool, compute_uv: bool, driver: Any) -> list[Any]:
    return list(o.svd(A, full_matrices=full_matrices)) if compute_uv else [None, o.svdvals(A), None]


def _cholesky_solve(x: Tensor, input2: Tensor, upper: bool) -> Tensor:
    lower = o.swapaxes(input2, -1, -2) if upper else input2
    return o.solve_triangular(o.swapaxes(lower, -1, -2), o.solve_triangular(lower, x), upper=True)


def _permutation(pivots: Tensor, *size: int) -> Tensor:
    """The order of rows that exchanges mean; PyTorch counts rows from 1, in int32."""
    return o.pivots_to_permutation(cast(pivots, INT64) - 1, *size)


@converts("linalg_lu", "linalg_lu_factor_ex")
def lu(at: AtenCall, A: Tensor, pivot: bool) -> list[Tensor]:
    if not pivot:
        raise RefusedError("an elimination without pivots is not converted")
    if at.op == "linalg_lu":
        return list(o.lu(A))
    factors = o.lu_factor(A)
    return [factors.LU, cast(factors.pivots + 1, np.int32), _no_failure(A)]


@converts("linalg_pinv")
def pinv(x: Tensor, rcond: Any, atol: Any, rtol: Any, hermitian: Any) -> Tensor:
    """Reads the lower half of a matrix that is said to be symmetric; the derivative is that of any matrix, as
    PyTorch's."""
    bound = rcond if rtol is None else rtol
    if isinstance(bound, Tensor) or isinstance(atol, Tensor) or atol:
        raise RefusedError("an absolute bound, or one that is a tensor, is not converted: give rtol as a number")
    if hermitian:
        lower = o.tril(x)
        x = x + o.stop_gradient(lower + o.swapaxes(o.tril(x, k=-1), -1, -2) - x)
    return o.pinv(x, rtol=0.0 if bound is None and atol is not None else bound)


def _lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, left: bool, adjoint: bool) -> Tensor:
    order = _permutation(pivots)
    if left:
        return o.lu_solve(LU, order, B, transposed=adjoint)
    return o.swapaxes(o.lu_solve(LU, order, o.swapaxes(B, -1, -2), transposed=not adjoint), -1, -2)


def _lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool, unpack_pivots: bool) -> list[Tensor]:
    rows, columns = (int(n) for n in LU_data.shape[-2:])
    k = min(rows, columns)
    places = o.swapaxes(o.one_hot(_permutation(LU_pivots, rows), rows, dtype=LU_data.dtype), -1, -2)
    lower = o.tril(LU_data[..., :k], k=-1) + o.eye(rows, k, dtype=LU_data.dtype)
    return [places, lower, o.triu(LU_data[..., :k, :])]


entries({
    "linalg_solve_triangular": lambda x, B, upper, left, unitriangular: o.solve_triangular(
        x, B, upper=upper, left=left, unitriangular=unitriangular
    ),
    "cholesky": lambda x, upper: o.cholesky(x, upper=upper),
    "linalg_cholesky_ex": lambda x, upper: [o.cholesky(x, upper=upper), _no_failure(x)],
    "cholesky_solve": _cholesky_solve,
    "cholesky_inverse": lambda x, upper: _cholesky_solve(
        o.broadcast_to(o.eye(x.shape[-1], dtype=x.dtype), x.shape), x, upper
    ),
    "linalg_inv_ex": lambda A: [o.inv(A), _no_failure(A)],
    "_linalg_det": lambda A: [o.det(A), None, None],
    "_linalg_slogdet": lambda A: [*o.slogdet(A), None, None],
    "linalg_qr": lambda A, mode: list(o.qr(A, mode=mode)),
    "_linalg_svd": _svd,
    "linalg_lu_solve": _lu_solve,
    "lu_unpack": _lu_unpack,
})  # fmt: skip
