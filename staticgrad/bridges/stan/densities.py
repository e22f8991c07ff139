"""Log densities of continuous distributions of one variable, as the Stan Functions Reference defines them.

Each is a formula of its operands, scalars or arrays of one shape, whose sum over all elements is the function's value.
No constant is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.stan.table import FUNCTIONS
from staticgrad.bridges.stan.values import Value, known, m, ndim, real, shape, size, spread, where

HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
LOG_PI, LOG_2 = math.log(math.pi), math.log(2)


def summed(formula: Callable[..., Value]) -> Callable[..., Value]:
    """The sum of a formula over the elements of its operands; of no elements 0."""

    def total(*values: Value) -> Value:
        values = tuple(real(value) for value in values)
        wide = next((shape(value) for value in values if ndim(value)), ())
        if any(size(value) == 0 for value in values):
            return 0.0
        if any(ndim(value) and shape(value) != wide for value in values):
            raise RefusedError(f"the operands have several shapes: {', '.join(str(shape(value)) for value in values)}")
        terms = formula(*values)
        return m.sum(spread(terms, wide)) if wide else terms

    return total


def density(**formulas: Callable[..., Value]) -> None:
    """Enter log densities by their names in the form."""
    for name, formula in formulas.items():
        total = summed(formula)
        FUNCTIONS.enter(name)(lambda scope, expr, total=total: total(*scope.values(expr.args)))


def inside(condition: Value, value: Value) -> Value:
    """The value where the condition holds, else -infinity."""
    return where(condition, value, -math.inf)


def normal(y: Value, mu: Value, sigma: Value) -> Value:
    z = (y - mu) / sigma
    return -0.5 * z * z - m.log(sigma) - HALF_LOG_TAU


def _student(y: Value, nu: Value, mu: Value, sigma: Value) -> Value:
    z = (y - mu) / sigma
    half = 0.5 * (nu + 1.0)
    constant = m.lgamma(half) - m.lgamma(0.5 * nu) - 0.5 * (m.log(nu) + LOG_PI) - m.log(sigma)
    return constant - half * m.log1p(z * z / nu)


def _cauchy(y: Value, mu: Value, sigma: Value) -> Value:
    z = (y - mu) / sigma
    return -LOG_PI - m.log(sigma) - m.log1p(z * z)


def _logistic(y: Value, mu: Value, sigma: Value) -> Value:
    z = (y - mu) / sigma
    return -z - m.log(sigma) - 2.0 * m.softplus(-z)


def _gumbel(y: Value, mu: Value, beta: Value) -> Value:
    z = (y - mu) / beta
    return -m.log(beta) - z - m.exp(-z)


def _lognormal(y: Value, mu: Value, sigma: Value) -> Value:
    log = m.log(y)
    return normal(log, mu, sigma) - log


def _gamma(y: Value, alpha: Value, beta: Value) -> Value:
    return alpha * m.log(beta) - m.lgamma(alpha) + m.xlogy(alpha - 1.0, y) - beta * y


def _inv_gamma(y: Value, alpha: Value, beta: Value) -> Value:
    return alpha * m.log(beta) - m.lgamma(alpha) - (alpha + 1.0) * m.log(y) - beta / y


def _scaled_inv_chi_square(y: Value, nu: Value, s: Value) -> Value:
    half = 0.5 * nu
    return half * m.log(half) - m.lgamma(half) + nu * m.log(s) - (half + 1.0) * m.log(y) - half * s * s / y


def _weibull(y: Value, alpha: Value, sigma: Value) -> Value:
    return m.log(alpha) - m.log(sigma) + (alpha - 1.0) * (m.log(y) - m.log(sigma)) - m.pow(y / sigma, alpha)


def _frechet(y: Value, alpha: Value, sigma: Value) -> Value:
    return m.log(alpha) - (alpha + 1.0) * m.log(y) + alpha * m.log(sigma) - m.pow(y / sigma, -alpha)


def _pareto(y: Value, low: Value, alpha: Value) -> Value:
    return inside(y >= low, m.log(alpha) + alpha * m.log(low) - (alpha + 1.0) * m.log(y))


def _pareto_2(y: Value, mu: Value, scale: Value, alpha: Value) -> Value:
    return m.log(alpha) - m.log(scale) - (alpha + 1.0) * m.log1p((y - mu) / scale)


def _beta(y: Value, a: Value, b: Value) -> Value:
    return m.xlogy(a - 1.0, y) + m.xlog1py(b - 1.0, -y) + m.lgamma(a + b) - m.lgamma(a) - m.lgamma(b)


def _von_mises(y: Value, mu: Value, kappa: Value) -> Value:
    log_i0 = m.log(m.i0e(kappa)) + kappa
    return kappa * m.cos(mu - y) - log_i0 - math.log(2 * math.pi)


def _uniform(y: Value, low: Value, high: Value) -> Value:
    within = (y >= low) & (y <= high) if not known(y, low, high) else np.logical_and(y >= low, y <= high)
    return inside(within, -m.log(high - low))


def _skew_normal(y: Value, xi: Value, omega: Value, alpha: Value) -> Value:
    z = (y - xi) / omega
    return -0.5 * z * z - m.log(omega) - HALF_LOG_TAU + LOG_2 + m.log_ndtr(alpha * z)


def _exp_mod_normal(y: Value, mu: Value, sigma: Value, rate: Value) -> Value:
    shifted = mu + rate * sigma * sigma - y
    return m.log(rate) + rate * (mu - y) + 0.5 * rate * rate * sigma * sigma + m.log_ndtr(-shifted / sigma)


def _double_exponential(y: Value, mu: Value, sigma: Value) -> Value:
    return -LOG_2 - m.log(sigma) - m.abs(y - mu) / sigma


def _skew_double_exponential(y: Value, mu: Value, sigma: Value, tau: Value) -> Value:
    left = where(y < mu, 1.0 - tau, tau)
    return LOG_2 + m.log(tau) + m.log1p(-tau) - m.log(sigma) - 2.0 * left * m.abs(y - mu) / sigma


def _loglogistic(y: Value, alpha: Value, beta: Value) -> Value:
    logs = m.log(y) - m.log(alpha)
    return m.log(beta) - m.log(alpha) + (beta - 1.0) * logs - 2.0 * m.softplus(beta * logs)


density(
    normal_lpdf=normal, student_t_lpdf=_student, cauchy_lpdf=_cauchy, logistic_lpdf=_logistic, gumbel_lpdf=_gumbel,
    std_normal_lpdf=lambda y: -0.5 * y * y - HALF_LOG_TAU, lognormal_lpdf=_lognormal, gamma_lpdf=_gamma,
    double_exponential_lpdf=_double_exponential, skew_double_exponential_lpdf=_skew_double_exponential,
    chi_square_lpdf=lambda y, nu: _gamma(y, 0.5 * nu, 0.5), inv_gamma_lpdf=_inv_gamma,
    inv_chi_square_lpdf=lambda y, nu: _inv_gamma(y, 0.5 * nu, 0.5), scaled_inv_chi_square_lpdf=_scaled_inv_chi_square,
    exponential_lpdf=lambda y, rate: m.log(rate) - rate * y, weibull_lpdf=_weibull, frechet_lpdf=_frechet,
    rayleigh_lpdf=lambda y, sigma: m.log(y) - 2.0 * m.log(sigma) - 0.5 * (y / sigma) * (y / sigma), pareto_lpdf=_pareto,
    pareto_type_2_lpdf=_pareto_2, beta_lpdf=_beta,
    beta_proportion_lpdf=lambda y, mu, k: _beta(y, mu * k, (1.0 - mu) * k),
    von_mises_lpdf=_von_mises, uniform_lpdf=_uniform, skew_normal_lpdf=_skew_normal,
    exp_mod_normal_lpdf=_exp_mod_normal,    loglogistic_lpdf=_loglogistic,
)  # fmt: skip
