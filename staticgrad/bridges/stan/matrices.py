"""Matrix functions: products, factorisations, diagonals, covariance functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.stan.form import Expr, Leaf
from staticgrad.bridges.stan.table import plain, table, typed
from staticgrad.bridges.stan.values import Value, either, known, m, ndim, reshape, shape, tensor, transpose
from staticgrad.graph.optable import FUNCTIONS as o

t = transpose


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
    q, r = np.linalg.qr(a) if known(a) else o.qr(tensor(a))
    signs = m.sign(m.diagonal(r))
    return q * _row(signs), _column(signs) * r


_eigenvalues = either(np.linalg.eigvalsh, lambda x: o.eigvalsh(x))


table(
    cholesky_decompose=lambda a: m.cholesky(a), inverse=lambda a: m.inv(a), inverse_spd=lambda a: m.inv(a),
    chol2inv=lambda a: m.inv(_square_of_lower(a)), multiply_lower_tri_self_transpose=_square_of_lower,
    crossprod=lambda a: m.matmul(t(a), a), tcrossprod=lambda a: m.matmul(a, t(a)), trace=_trace,
    diag_matrix=_diagonal_matrix, add_diag=_add_diagonal, diag_pre_multiply=lambda v, a: _column(v) * a,
    diag_post_multiply=lambda a, v: a * _row(v), quad_form=_quadratic, quad_form_sym=_quadratic,
    quad_form_diag=lambda a, v: _column(v) * a * _row(v), trace_quad_form=lambda a, b: _trace(_quadratic(a, b)),
    log_determinant=lambda a: m.logdet(a), log_determinant_spd=log_determinant_spd,
    determinant=either(np.linalg.det, lambda x: o.det(x)), mdivide_left_tri_low=solve_lower,
    mdivide_left_spd=_solve_spd,
    mdivide_right_tri_low=lambda b, a: _right_lower(b, a), eigenvalues_sym=_eigenvalues,
    eigenvectors_sym=either(lambda x: np.linalg.eigh(x)[1], lambda x: o.eigh(x)[1]),
    matrix_exp=lambda a: o.expm(tensor(a)), csr_matrix_times_vector=_sparse,
    matrix_power=lambda a, n: o.matrix_power(tensor(a), n),
    symmetrize_from_lower_tri=lambda a: m.tril(a) + t(m.tril(a) - m.tril(a) * np.eye(shape(a)[0])),
    qr_thin_Q=lambda a: _thin(a)[0], qr_thin_R=lambda a: _thin(a)[1],
    singular_values=either(lambda x: np.linalg.svd(x, compute_uv=False), lambda x: o.svdvals(x)),
)  # fmt: skip


def _right_lower(b: Value, a: Value) -> Value:
    """``b`` over a lower triangular matrix."""
    solved = m.solve_triangular(t(m.tril(a)), t(b) if ndim(b) == 2 else _column(b), upper=True)
    return t(solved) if ndim(b) == 2 else solved[..., 0]


@plain("mdivide_right_spd", "mdivide_right")
def _right(b: Value, a: Value) -> Value:
    solved = m.solve(t(a), t(b) if ndim(b) == 2 else _column(b))
    return t(solved) if ndim(b) == 2 else solved[..., 0]


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


def _distances(scope: Any, expr: Expr) -> tuple[Value, Value]:
    away, (alpha, scale), vectors = _differences(scope, expr)
    if not known(away, scale):
        squares = _scaled_squares(away, 1.0, vectors) if known(away) and not ndim(scale) else None
        if squares is None:
            raise RefusedError("the distances of points that depend on parameters have no derivative at 0", expr)
        return alpha, m.sqrt(squares) / scale
    return alpha, m.sqrt(_scaled_squares(away, scale, vectors))


@typed("gp_exponential_cov")
def _exponential(scope: Any, expr: Expr) -> Value:
    alpha, r = _distances(scope, expr)
    return alpha * alpha * m.exp(-r)


@typed("gp_matern32_cov")
def _matern32(scope: Any, expr: Expr) -> Value:
    alpha, r = _distances(scope, expr)
    r = r * np.sqrt(3.0)
    return alpha * alpha * (1.0 + r) * m.exp(-r)


@typed("gp_matern52_cov")
def _matern52(scope: Any, expr: Expr) -> Value:
    alpha, r = _distances(scope, expr)
    r = r * np.sqrt(5.0)
    return alpha * alpha * (1.0 + r + r * r / 3.0) * m.exp(-r)


@plain("gp_dot_prod_cov")
def _dot_prod(x: Value, sigma: Value) -> Value:
    x = _column(x) if ndim(x) == 1 else x
    return sigma * sigma + m.matmul(x, t(x))
