"""Products of matrices, decompositions, distances: their converters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.bridges.arrays import cast
from staticgrad.bridges.aten.dialect import AtenCall, converts
from staticgrad.bridges.importer import RefusedError
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


@converts("mm", "bmm", "matmul", "mv", "dot")
def matmul(x: Tensor, other: Any = None, mat2: Any = None, vec: Any = None, tensor: Any = None) -> Tensor:
    return o.matmul(x, next(y for y in (other, mat2, vec, tensor) if y is not None))


@converts("linear")
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return o.linear(x, weight, bias)


@converts("einsum")
def einsum(equation: str, tensors: Sequence[Tensor], path: Any = None) -> Tensor:
    return o.einsum(equation, *tensors)


def _added(x: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else o.add(x if beta == 1 else x * beta, product)


@converts("addmm")
def addmm(x: Tensor, mat1: Tensor, mat2: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return _added(x, o.matmul(mat1, mat2), beta, alpha)


@converts("addmv")
def addmv(x: Tensor, mat: Tensor, vec: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return _added(x, o.matmul(mat, vec), beta, alpha)


@converts("baddbmm")
def baddbmm(x: Tensor, batch1: Tensor, batch2: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return _added(x, o.matmul(batch1, batch2), beta, alpha)


@converts("addbmm")
def addbmm(x: Tensor, batch1: Tensor, batch2: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return _added(x, o.sum(o.matmul(batch1, batch2), 0), beta, alpha)


@converts("_trilinear")
def trilinear(
    i1: Tensor, i2: Tensor, i3: Tensor, expand1: Any, expand2: Any, expand3: Any, sumdim: Any, unroll_dim: int = 1
) -> Tensor:
    """The product of three tensors, each with axes of size 1 at these places, summed over others."""
    factors = (o.expand_dims(x, tuple(at)) if at else x for x, at in ((i1, expand1), (i2, expand2), (i3, expand3)))
    first, second, third = factors
    return o.sum(first * second * third, tuple(sumdim))


@converts("_cdist_forward")
def cdist(x1: Tensor, x2: Tensor, p: float) -> Tensor:
    return o.vector_norm(o.expand_dims(x1, -2) - o.expand_dims(x2, -3), -1, ord=p)


@converts("_pdist_forward")
def pdist(x: Tensor, p: float = 2.0) -> Tensor:
    rows, columns = np.triu_indices(int(x.shape[0]), 1)
    return o.vector_norm(o.take(x, rows, axis=0) - o.take(x, columns, axis=0), -1, ord=p)


# -- decompositions ----------------------------------------------------------------------------------------------------


def _no_failure(x: Tensor) -> Tensor:
    """The status of a decomposition that has found no failure."""
    return o.zeros(x.shape[:-2], dtype=np.dtype(np.int32))


@converts("linalg_cholesky_ex")
def cholesky(x: Tensor, upper: bool = False, check_errors: bool = False) -> list[Tensor]:
    return [o.cholesky(x, upper=upper), _no_failure(x)]


@converts("linalg_inv_ex")
def inverse(A: Tensor, check_errors: bool = False) -> list[Tensor]:
    return [o.inv(A), _no_failure(A)]


@converts("_linalg_solve_ex")
def solve(at: AtenCall, A: Tensor, B: Tensor, left: bool = True, check_errors: bool = False) -> list[Any]:
    if not left:
        raise RefusedError("a solve from the right is not converted")
    vectors = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])
    columns = o.expand_dims(B, -1) if vectors else B
    solved = o.solve(A, columns)
    return [o.squeeze(solved, -1) if vectors else solved, None, None, _no_failure(A)]


@converts("_linalg_det")
def det(A: Tensor) -> list[Any]:
    return [o.det(A), None, None]


@converts("_linalg_slogdet")
def slogdet(A: Tensor) -> list[Any]:
    return [*o.slogdet(A), None, None]


@converts("linalg_solve_triangular")
def solve_triangular(x: Tensor, B: Tensor, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    return o.solve_triangular(x, B, upper=upper, left=left, unitriangular=unitriangular)


@converts("linalg_qr")
def qr(A: Tensor, mode: str = "reduced") -> list[Tensor]:
    return list(o.qr(A, mode=mode))


@converts("_linalg_eigh")
def eigh(A: Tensor, UPLO: str = "L", compute_v: bool = True) -> list[Any]:
    """Half of the matrix is read; the derivative is that by a symmetric one, as PyTorch's."""
    lower = A if UPLO == "L" else o.swapaxes(A, -1, -2)
    return list(o.eigh(lower)) if compute_v else [o.eigvalsh(lower), None]


@converts("_linalg_svd")
def svd(A: Tensor, full_matrices: bool = False, compute_uv: bool = True, driver: Any = None) -> list[Any]:
    return list(o.svd(A, full_matrices=full_matrices)) if compute_uv else [None, o.svdvals(A), None]


@converts("linalg_matrix_exp")
def expm(x: Tensor) -> Tensor:
    return o.expm(x)


@converts("linalg_cross")
def cross(x: Tensor, other: Tensor, dim: int = -1) -> Tensor:
    return o.cross(x, other, axis=dim)


@converts("cholesky")
def plain_cholesky(x: Tensor, upper: bool = False) -> Tensor:
    return o.cholesky(x, upper=upper)


@converts("cholesky_solve")
def cholesky_solve(x: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    lower = o.swapaxes(input2, -1, -2) if upper else input2
    return o.solve_triangular(o.swapaxes(lower, -1, -2), o.solve_triangular(lower, x), upper=True)


@converts("cholesky_inverse")
def cholesky_inverse(x: Tensor, upper: bool = False) -> Tensor:
    return cholesky_solve(o.broadcast_to(o.eye(x.shape[-1], dtype=x.dtype), x.shape), x, upper)


@converts("linalg_lu")
def lu(A: Tensor, pivot: bool = True) -> list[Tensor]:
    if not pivot:
        raise RefusedError("an elimination without pivots is not converted")
    return list(o.lu(A))


@converts("linalg_lu_factor_ex")
def lu_factor(A: Tensor, pivot: bool = True, check_errors: bool = False) -> list[Tensor]:
    """PyTorch counts rows from 1, in int32."""
    if not pivot:
        raise RefusedError("an elimination without pivots is not converted")
    factors = o.lu_factor(A)
    return [factors.LU, cast(factors.pivots + 1, np.int32), _no_failure(A)]


@converts("linalg_lu_solve")
def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, left: bool = True, adjoint: bool = False) -> Tensor:
    order = o.pivots_to_permutation(cast(pivots, np.int64) - 1)
    if left:
        return o.lu_solve(LU, order, B, transposed=adjoint)
    return o.swapaxes(o.lu_solve(LU, order, o.swapaxes(B, -1, -2), transposed=not adjoint), -1, -2)


@converts("lu_unpack")
def lu_unpack(
    LU_data: Tensor,
    LU_pivots: Tensor,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> list[Tensor]:
    rows, columns = (int(n) for n in LU_data.shape[-2:])
    k = min(rows, columns)
    order = o.pivots_to_permutation(cast(LU_pivots, np.int64) - 1, rows)
    places = o.swapaxes(o.one_hot(order, rows, dtype=LU_data.dtype), -1, -2)
    lower = o.tril(LU_data[..., :k], k=-1) + o.eye(rows, k, dtype=LU_data.dtype)
    return [places, lower, o.triu(LU_data[..., :k, :])]


@converts("linalg_householder_product")
def householder_product(x: Tensor, tau: Tensor) -> Tensor:
    return o.householder_product(x, tau)


@converts("dist")
def dist(x: Tensor, other: Tensor, p: float = 2.0) -> Tensor:
    return o.vector_norm(x - other, ord=float(p))
