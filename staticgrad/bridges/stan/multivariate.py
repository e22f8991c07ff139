"""Log densities of vectors and matrices, as the Stan Functions Reference defines them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from staticgrad.bridges.stan.matrices import log_determinant_spd, solve_lower
from staticgrad.bridges.stan.table import plain
from staticgrad.bridges.stan.values import Value, known, m, ndim, real, reshape, shape, spread, tensor, transpose
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


@plain("multi_normal_cholesky_lpdf")
def _multi_normal_cholesky(y: Value, mu: Value, factor: Value) -> Value:
    away = _away(y, mu)
    rows, count = shape(away)
    squares, half = _by_cholesky(away, factor)
    return -0.5 * m.sum(squares) - rows * half - 0.5 * rows * count * LOG_TAU


@plain("multi_normal_lpdf")
def _multi_normal(y: Value, mu: Value, sigma: Value) -> Value:
    return _multi_normal_cholesky(y, mu, m.cholesky(sigma))


@plain("multi_normal_prec_lpdf")
def _multi_normal_prec(y: Value, mu: Value, omega: Value) -> Value:
    away = _away(y, mu)
    rows, count = shape(away)
    quadratic = m.sum(m.matmul(away, omega) * away)
    return -0.5 * quadratic + 0.5 * rows * (log_determinant_spd(omega) - count * LOG_TAU)


@plain("multi_student_t_cholesky_lpdf")
def _multi_student_cholesky(y: Value, nu: Value, mu: Value, factor: Value) -> Value:
    away = _away(y, mu)
    rows, count = shape(away)
    squares, half = _by_cholesky(away, factor)
    constant = m.lgamma(0.5 * (nu + count)) - m.lgamma(0.5 * nu) - 0.5 * count * (m.log(nu) + LOG_PI) - half
    return rows * constant - 0.5 * (nu + count) * m.sum(m.log1p(squares / nu))


@plain("multi_student_t_lpdf")
def _multi_student(y: Value, nu: Value, mu: Value, sigma: Value) -> Value:
    return _multi_student_cholesky(y, nu, mu, m.cholesky(sigma))


@plain("multi_gp_cholesky_lpdf")
def _multi_gp_cholesky(y: Value, factor: Value, w: Value) -> Value:
    rows, count = shape(y)
    solved = solve_lower(factor, transpose(real(y)))
    logs = m.sum(m.log(m.diagonal(factor)))
    return 0.5 * count * (m.sum(m.log(w)) - rows * LOG_TAU) - rows * logs - 0.5 * m.sum(m.sum(solved * solved, 0) * w)


@plain("multi_gp_lpdf")
def _multi_gp(y: Value, sigma: Value, w: Value) -> Value:
    return _multi_gp_cholesky(y, m.cholesky(sigma), w)


@plain("dirichlet_lpdf")
def _dirichlet(theta: Value, alpha: Value) -> Value:
    wide = next(shape(x) for x in (theta, alpha) if ndim(x) == max(ndim(theta), ndim(alpha)))
    theta, alpha = spread(real(theta), wide), spread(real(alpha), wide)
    return m.sum(m.lgamma(m.sum(alpha, -1))) - m.sum(m.lgamma(alpha)) + m.sum(m.xlogy(alpha - 1.0, theta))


def _lkj_constant(eta: Value, count: int) -> Value:
    """The logarithm of one over the integral of ``det(x) ** (eta - 1)`` over correlation matrices."""
    if known(eta) and eta == 1.0:
        odd = sum(math.lgamma(2.0 * k) for k in range(1, (count - 1) // 2 + 1))
        if count % 2:
            square = 0.25 * (count * count - 1) * LOG_PI - 0.25 * (count - 1) ** 2 * LOG_2
            return -(odd + square - (count - 1) * math.lgamma(0.5 * (count + 1)))
        square = 0.25 * count * (count - 2) * LOG_PI + 0.25 * (3 * count * count - 4 * count) * LOG_2
        return -(odd + square + count * math.lgamma(0.5 * count) - (count - 1) * math.lgamma(count))
    total: Value = (count - 1) * m.lgamma(eta + 0.5 * (count - 1))
    for k in range(1, count):
        total = total - (0.5 * k * LOG_PI + m.lgamma(eta + 0.5 * (count - 1 - k)))
    return total


@plain("lkj_corr_lpdf")
def _lkj_corr(x: Value, eta: Value) -> Value:
    count = shape(x)[0]
    return _lkj_constant(eta, count) + (eta - 1.0) * log_determinant_spd(x) if count else 0.0


@plain("lkj_corr_cholesky_lpdf")
def _lkj_corr_cholesky(factor: Value, eta: Value) -> Value:
    count = shape(factor)[0]
    if count < 2:
        return _lkj_constant(eta, count) if count else 0.0
    logs = m.log(m.diagonal(factor)[1:])
    weights = np.arange(count - 2, -1, -1.0) + 2.0 * real(eta) - 2.0
    return _lkj_constant(eta, count) + m.sum(weights * logs)


def _log_multi_gamma(count: int, x: Value) -> Value:
    total: Value = 0.25 * count * (count - 1) * LOG_PI
    for k in range(count):
        total = total + m.lgamma(x - 0.5 * k)
    return total


@plain("lmgamma")
def _lmgamma(count: int, x: Value) -> Value:
    return _log_multi_gamma(count, x)


@plain("hmm_marginal")
def _hmm_marginal(logs: Value, move: Value, start: Value) -> Value:
    """The log probability of what a hidden Markov model has given, whose log densities by state are columns."""
    rows, log_move = tensor(transpose(logs)), m.log(move)

    def turn(before: Value, row: Value) -> Any:
        return m.logsumexp(reshape(before, (-1, 1)) + log_move, 0) + row, ()

    last, _ = o.scan(turn, tensor(m.log(start)) + rows[0], rows[1:])
    return m.logsumexp(last)


@plain("wishart_lpdf")
def _wishart(w: Value, nu: Value, scale: Value) -> Value:
    count = shape(w)[0]
    half = 0.5 * nu
    trace = m.sum(m.diagonal(m.solve(scale, w)))
    logs = 0.5 * (nu - count - 1.0) * log_determinant_spd(w) - half * log_determinant_spd(scale)
    return logs - 0.5 * trace - half * count * LOG_2 - _log_multi_gamma(count, half)


@plain("inv_wishart_lpdf")
def _inv_wishart(w: Value, nu: Value, scale: Value) -> Value:
    count = shape(w)[0]
    half = 0.5 * nu
    trace = m.sum(m.diagonal(m.solve(w, scale)))
    logs = half * log_determinant_spd(scale) - 0.5 * (nu + count + 1.0) * log_determinant_spd(w)
    return logs - 0.5 * trace - half * count * LOG_2 - _log_multi_gamma(count, half)
