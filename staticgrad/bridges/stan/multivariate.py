"""Log densities of vectors and matrices, as the Stan Functions Reference defines them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from staticgrad.bridges.stan.matrices import log_determinant_spd, solve_lower
from staticgrad.bridges.stan.table import table
from staticgrad.bridges.stan.values import Value, m, ndim, real, reshape, shape, spread, tensor, transpose
from staticgrad.graph.optable import FUNCTIONS as o

LOG_TAU, LOG_PI, LOG_2 = math.log(2 * math.pi), math.log(math.pi), math.log(2)


def _away(y: Value, mu: Value) -> Value:
    """The differences of vectors, one a row."""
    away = real(y) - real(mu)
    return away if ndim(away) == 2 else reshape(away, (1, -1))


def _by_cholesky(away: Value, factor: Value) -> Value:
    """The squared lengths of the differences in units of the factor, and the logarithm of its determinant."""
    solved = solve_lower(factor, transpose(away))
    return m.sum(solved * solved, 0), m.sum(m.log(m.diagonal(factor)))


def _normal(y: Value, mu: Value, factor: Value) -> Value:
    away = _away(y, mu)
    rows, count = shape(away)
    squares, half = _by_cholesky(away, factor)
    return -0.5 * m.sum(squares) - rows * half - 0.5 * rows * count * LOG_TAU


def _normal_precision(y: Value, mu: Value, omega: Value) -> Value:
    away = _away(y, mu)
    rows, count = shape(away)
    quadratic = m.sum(m.matmul(away, omega) * away)
    return -0.5 * quadratic + 0.5 * rows * (log_determinant_spd(omega) - count * LOG_TAU)


def _student(y: Value, nu: Value, mu: Value, factor: Value) -> Value:
    away = _away(y, mu)
    rows, count = shape(away)
    squares, half = _by_cholesky(away, factor)
    constant = m.lgamma(0.5 * (nu + count)) - m.lgamma(0.5 * nu) - 0.5 * count * (m.log(nu) + LOG_PI) - half
    return rows * constant - 0.5 * (nu + count) * m.sum(m.log1p(squares / nu))


def _gaussian_process(y: Value, factor: Value, w: Value) -> Value:
    rows, count = shape(y)
    squares, half = _by_cholesky(real(y) * reshape(m.sqrt(w), (-1, 1)), factor)
    return 0.5 * count * (m.sum(m.log(w)) - rows * LOG_TAU) - rows * half - 0.5 * m.sum(squares)


def _dirichlet(theta: Value, alpha: Value) -> Value:
    wide = max(shape(theta), shape(alpha), key=len)
    theta, alpha = spread(real(theta), wide), spread(real(alpha), wide)
    return m.sum(m.lgamma(m.sum(alpha, -1))) - m.sum(m.lgamma(alpha)) + m.sum(m.xlogy(alpha - 1.0, theta))


def _lkj_constant(eta: Value, count: int) -> Value:
    """The logarithm of one over the integral of ``det(x) ** (eta - 1)`` over correlation matrices."""
    ks = np.arange(1.0, count)
    logs = m.lgamma(eta + 0.5 * (count - 1)) - m.lgamma(eta + 0.5 * (count - 1 - ks)) - 0.5 * ks * LOG_PI
    return m.sum(logs)


def _lkj_corr(x: Value, eta: Value) -> Value:
    count = shape(x)[0]
    return _lkj_constant(eta, count) + (eta - 1.0) * log_determinant_spd(x) if count else 0.0


def _lkj_corr_cholesky(factor: Value, eta: Value) -> Value:
    count = shape(factor)[0]
    if count < 2:
        return 0.0
    weights = np.arange(count - 2, -1, -1.0) + 2.0 * real(eta) - 2.0
    return _lkj_constant(eta, count) + m.sum(weights * m.log(m.diagonal(factor)[1:]))


def _log_multi_gamma(count: int, x: Value) -> Value:
    return 0.25 * count * (count - 1) * LOG_PI + m.sum(m.lgamma(x - 0.5 * np.arange(count)))


def _hmm_marginal(logs: Value, move: Value, start: Value) -> Value:
    """The log probability of what a hidden Markov model has given, whose log densities by state are columns."""
    rows, log_move = tensor(transpose(logs)), m.log(move)

    def turn(before: Value, row: Value) -> Any:
        return m.logsumexp(reshape(before, (-1, 1)) + log_move, 0) + row, ()

    last, _ = o.scan(turn, tensor(m.log(start)) + rows[0], rows[1:])
    return m.logsumexp(last)


def _wishart(w: Value, nu: Value, scale: Value, inverse: bool = False) -> Value:
    count, half = shape(w)[0], 0.5 * nu
    if inverse:
        trace = m.sum(m.diagonal(m.solve(w, scale)))
        logs = half * log_determinant_spd(scale) - (half + 0.5 * (count + 1.0)) * log_determinant_spd(w)
    else:
        trace = m.sum(m.diagonal(m.solve(scale, w)))
        logs = (half - 0.5 * (count + 1.0)) * log_determinant_spd(w) - half * log_determinant_spd(scale)
    return logs - 0.5 * trace - half * count * LOG_2 - _log_multi_gamma(count, half)


table(
    multi_normal_cholesky_lpdf=_normal,
    multi_normal_lpdf=lambda y, mu, sigma: _normal(y, mu, m.cholesky(sigma)),
    multi_normal_prec_lpdf=_normal_precision,
    multi_student_t_cholesky_lpdf=_student,
    multi_student_t_lpdf=lambda y, nu, mu, sigma: _student(y, nu, mu, m.cholesky(sigma)),
    multi_gp_cholesky_lpdf=_gaussian_process,
    multi_gp_lpdf=lambda y, sigma, w: _gaussian_process(y, m.cholesky(sigma), w),
    dirichlet_lpdf=_dirichlet,
    lkj_corr_lpdf=_lkj_corr,
    lkj_corr_cholesky_lpdf=_lkj_corr_cholesky,
    wishart_lpdf=_wishart,
    inv_wishart_lpdf=lambda w, nu, scale: _wishart(w, nu, scale, inverse=True),
    lmgamma=_log_multi_gamma,
    hmm_marginal=_hmm_marginal,
)
