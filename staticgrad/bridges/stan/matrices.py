"""Matrix functions: products, factorisations, diagonals, covariance functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.stan.form import Expr, Leaf
from staticgrad.bridges.stan.table import table, typed
from staticgrad.bridges.stan.values import Value, known, m, ndim, reshape, shape, tensor
from staticgrad.bridges.stan.values import transpose as t
from staticgrad.graph.optable import FUNCTIONS as o

ROOT_3, ROOT_5 = np.sqrt(3.0), np.sqrt(5.0)


def _column(v: Value) -> Value:
    return reshape(v, (-1, 1))


def _row(v: Value) -> Value:
    return reshape(v, (1, -1))


def _diagonal_matrix(v: Value) -> Value:
    return np.diag(v) if known(v) else np.eye(shape(v)[0]) * _row(v)


def _add_diagonal(a: Value, v: Value) -> Value:
    eye = np.eye(shape(a)[0])
    return a + eye * (_row(v) if ndim(v) else v)


def _square_of_lower(a: Value) -> Value:
    low = m.tril(a)
    return m.matmul(low, t(low))


def _solve_spd(a: Value, b: Value) -> Value:
    factor = m.cholesky(a)
    return m.solve_triangular(t(factor), m.solve_triangular(factor, b), upper=True)


def solve_lower(a: Value, b: Value) -> Value:
    """The solution of a lower triangular system; of the others only the lower triangle is read."""
    return m.solve_triangular(m.tril(a), _column(b))[..., 0] if ndim(b) == 1 else m.solve_triangular(m.tril(a), b)


def log_determinant_spd(a: Value) -> Value:
    return 2.0 * m.sum(m.log(m.diagonal(m.cholesky(a))))


def _quadratic(a: Value, b: Value) -> Value:
    return m.matmul(t(b), m.matmul(a, b))


def _trace(a: Value) -> Value:
    return m.sum(m.diagonal(a))


def _sparse(rows: int, cols: int, w: Value, v: Any, u: Any, b: Value) -> Value:
    """The product of a sparse matrix, by rows, and a vector."""
    counts, columns = np.diff(u), np.asarray(v) - 1
    of = np.repeat(np.arange(rows), counts)
    products = tensor(w) * o.take(tensor(b), columns)
    return o.scatter(o.zeros((rows,), dtype=products.dtype), of, products, mode="add")


def _thin(a: Value) -> tuple[Value, Value]:
    """The factors of a matrix, Q and R, whose R has a positive diagonal."""
    q, r = m.qr(a)
    signs = m.sign(m.diagonal(r))
    return q * _row(signs), _column(signs) * r


def _right(solve: Any) -> Any:
    """The function that divides by a matrix on the right, of one that solves for ``a.T`` and ``b.T``."""

    def divide(b: Value, a: Value) -> Value:
        solved = solve(t(a), t(b) if ndim(b) == 2 else _column(b))
        return t(solved) if ndim(b) == 2 else solved[..., 0]

    return divide


def _symmetric(a: Value) -> Value:
    low = m.tril(a)
    return low + t(low - low * np.eye(shape(a)[0]))


def _points_product(x: Value, sigma: Value) -> Value:
    x = _column(x) if ndim(x) == 1 else x
    return sigma * sigma + m.matmul(x, t(x))


table(
    cholesky_decompose=m.cholesky, inverse=m.inv, inverse_spd=m.inv, chol2inv=lambda a: m.inv(_square_of_lower(a)),
    multiply_lower_tri_self_transpose=_square_of_lower, crossprod=lambda a: m.matmul(t(a), a),
    tcrossprod=lambda a: m.matmul(a, t(a)), trace=_trace, diagonal=m.diagonal, diag_matrix=_diagonal_matrix,
    add_diag=_add_diagonal, diag_pre_multiply=lambda v, a: _column(v) * a,
    diag_post_multiply=lambda a, v: a * _row(v), quad_form=_quadratic, quad_form_sym=_quadratic,
    quad_form_diag=lambda a, v: _column(v) * a * _row(v), trace_quad_form=lambda a, b: _trace(_quadratic(a, b)),
    log_determinant=lambda a: m.slogdet(a)[1], log_determinant_spd=log_determinant_spd, determinant=m.det,
    mdivide_left_tri_low=solve_lower, mdivide_left_spd=_solve_spd, mdivide_right=_right(m.solve),
    mdivide_right_spd=_right(m.solve),
    mdivide_right_tri_low=_right(lambda a, b: m.solve_triangular(m.triu(a), b, upper=True)),
    eigenvalues_sym=m.eigvalsh, eigenvectors_sym=lambda a: m.eigh(a)[1], matrix_exp=m.expm, matrix_power=m.matrix_power,
    csr_matrix_times_vector=_sparse, symmetrize_from_lower_tri=_symmetric, qr_thin_Q=lambda a: _thin(a)[0],
    qr_thin_R=lambda a: _thin(a)[1], singular_values=m.svdvals, gp_dot_prod_cov=_points_product,
)  # fmt: skip

# -- covariance functions ---------------------------------------------------------------------------------------------


def _differences(scope: Any, expr: Expr) -> tuple[Value, list[Value], bool]:
    """The differences of all pairs of points, with an axis of coordinates at the end where points are vectors; the
    other operands; whether they are vectors."""
    args = scope.values(expr.args)
    points = expr.args[0]
    vectors = points.leaf in (Leaf.VECTOR, Leaf.ROW) and points.depth == 1
    count = 2 if len(args) > 1 and expr.args[1].depth and expr.args[1].leaf is points.leaf and len(args) > 2 else 1
    if count == 2 and len(args) == 3 and not vectors:
        count = 1  # a scale for each coordinate
    a, b = args[0], args[1 if count == 2 else 0]
    sizes = shape(a)
    return reshape(a, (sizes[0], 1, *sizes[1:])) - reshape(b, (1, *shape(b))), args[count:], vectors


def _scaled_squares(away: Value, scale: Value, vectors: bool) -> Value:
    away = away / scale if vectors and ndim(scale) else away
    squares = m.sum(away * away, -1) if vectors else away * away
    return squares if vectors and ndim(scale) else squares / (scale * scale)


@typed("gp_exp_quad_cov", "cov_exp_quad")
def _exp_quad(scope: Any, expr: Expr) -> Value:
    away, (alpha, scale), vectors = _differences(scope, expr)
    return alpha * alpha * m.exp(-0.5 * _scaled_squares(away, scale, vectors))


# Of the distances of points in units of the scale.
OF_DISTANCES = {
    "gp_exponential_cov": lambda r: m.exp(-r),
    "gp_matern32_cov": lambda r: (1.0 + r * ROOT_3) * m.exp(-r * ROOT_3),
    "gp_matern52_cov": lambda r: (1.0 + r * ROOT_5 + r * r * 5.0 / 3.0) * m.exp(-r * ROOT_5),
}


@typed(*OF_DISTANCES)
def _of_distances(scope: Any, expr: Expr) -> Value:
    away, (alpha, scale), vectors = _differences(scope, expr)
    if known(away, scale):
        r = m.sqrt(_scaled_squares(away, scale, vectors))
    elif known(away) and not ndim(scale):
        r = m.sqrt(_scaled_squares(away, 1.0, vectors)) / scale
    else:
        raise RefusedError("the distances of points that depend on parameters have no derivative at 0", expr)
    return alpha * alpha * OF_DISTANCES[expr.name](r)
