"""Factorisations and solves of matrices, the last two axes of operands."""

from __future__ import annotations

from typing import Any

import numpy as np

from staticgrad.bridges.arrays import cast
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.jaxpr.conversion import JaxScope, converts
from staticgrad.bridges.jaxpr.rules import ruled_tensor
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


def one_triangle(x: Tensor, lower: bool) -> Tensor:
    """The symmetric matrix of the triangle that counts."""
    if lower:
        return o.tril(x) + o.matrix_transpose(o.tril(x, k=-1))
    return o.triu(x) + o.matrix_transpose(o.triu(x, k=1))


@converts("cholesky")
def cholesky(at: JaxScope, node: Any) -> Tensor:
    """The factor by the lower triangle, all NaN if there is none. JAX's slopes are ours where the matrix was made
    symmetric."""
    x = at.tensor(node.invars[0])
    if _is_symmetric(x):
        return o.cholesky(x)
    return ruled_tensor(at, node, lambda: o.cholesky(one_triangle(x, lower=True)))


def _is_symmetric(x: Tensor) -> bool:
    """True for a multiple of the sum of a matrix and its transpose, as ``jnp.linalg.cholesky`` makes it."""
    if x.op.op.name not in ("divide", "multiply") or x.op.inputs[0].op.op.name != "add":
        return False
    one, other = x.op.inputs[0].op.inputs
    swapped = (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)
    return other.op.op.name == "permute_dims" and other.op.inputs[0] is one and other.op.attrs.perm == swapped


@converts("triangular_solve")
def triangular_solve(at: JaxScope, node: Any) -> Tensor:
    a, b = at.tensors(node.invars)
    p = node.params
    if p["conjugate_a"] and a.dtype.kind == "c":
        raise RefusedError("a conjugate matrix")
    upper = not p["lower"]
    if p["transpose_a"]:
        a, upper = o.matrix_transpose(a), not upper
    return o.solve_triangular(a, b, upper=upper, left=p["left_side"], unitriangular=p["unit_diagonal"])


@converts("qr")
def qr(at: JaxScope, node: Any) -> list[Tensor]:
    if node.params.get("pivoting"):
        raise RefusedError("a QR factorisation with pivots")
    mode = "complete" if node.params["full_matrices"] else "reduced"
    return list(o.qr(at.tensor(node.invars[0]), mode=mode))


@converts("svd")
def svd(at: JaxScope, node: Any) -> list[Tensor]:
    x, p = at.tensor(node.invars[0]), node.params
    if p.get("subset_by_index") not in (None, (0, min(x.shape[-2:]))):
        raise RefusedError("some of the singular values")
    if not p["compute_uv"]:
        return [o.svdvals(x)]
    u, s, vh = o.svd(x, full_matrices=p["full_matrices"])
    return [s, u, vh]


@converts("eigh")
def eigh(at: JaxScope, node: Any) -> list[Tensor]:
    x, p = at.tensor(node.invars[0]), node.params
    if p.get("subset_by_index") not in (None, (0, x.shape[-1])):
        raise RefusedError("some of the eigenvalues")
    values, vectors = o.eigh(one_triangle(x, p["lower"]))
    return [vectors, values]


@converts("lu")
def lu(at: JaxScope, node: Any) -> list[Tensor]:
    """Both factors in one matrix, the rows that were exchanged, and the order that these lead to."""
    factors, pivots, order = o.lu_factor(at.tensor(node.invars[0]))
    return [factors, cast(pivots, np.int32), cast(order, np.int32)]


@converts("tridiagonal_solve")
def tridiagonal_solve(at: JaxScope, node: Any) -> Tensor:
    return o.tridiagonal_solve(*at.tensors(node.invars))


@converts("householder_product")
def householder_product(at: JaxScope, node: Any) -> Tensor:
    return o.householder_product(*at.tensors(node.invars))


@converts("lu_pivots_to_permutation")
def lu_pivots_to_permutation(at: JaxScope, node: Any) -> Tensor:
    order = o.pivots_to_permutation(at.tensor(node.invars[0]), int(node.params["permutation_size"]))
    return cast(order, np.int32)
