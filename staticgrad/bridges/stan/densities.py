"""Distributions of one variable, as the Stan Functions Reference defines them: log densities, log probabilities, and
the logarithms of distribution functions and of their complements.

A formula is one of operands that are scalars or arrays of one shape; the sum over all elements is the value of Stan's
function. No constant is dropped. An entry of the tables is a line; families of a location and a scale are given by
their members at 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.stan.functions import lchoose, log_inv_logit
from staticgrad.bridges.stan.table import table
from staticgrad.bridges.stan.values import Value, m, ndim, real, shape, size, spread, where

HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
LOG_PI, LOG_2 = math.log(math.pi), math.log(2)
Formula = Callable[..., Value]


def summed(formula: Formula) -> Formula:
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


def inside(condition: Value, value: Value) -> Value:
    """The value where the condition holds, else -infinity."""
    return where(condition, value, -math.inf)


def standardised(standard: Formula) -> Formula:
    """The function of a location and a scale, the last parameters, of one at 0 and 1."""

    def formula(y: Value, *parameters: Value) -> Value:
        *shapes, mu, sigma = parameters
        return standard((y - mu) / sigma, *shapes)

    return formula


def scaled(standard: Formula) -> Formula:
    """The log density of a location and a scale, of the one at 0 and 1."""
    at = standardised(standard)
    return lambda y, *parameters: at(y, *parameters) - m.log(parameters[-1])


def _standard_normal(z: Value) -> Value:
    return -0.5 * z * z - HALF_LOG_TAU


_normal = scaled(_standard_normal)


def _student(z: Value, nu: Value) -> Value:
    half = 0.5 * (nu + 1.0)
    return m.lgamma(half) - m.lgamma(0.5 * nu) - 0.5 * (m.log(nu) + LOG_PI) - half * m.log1p(z * z / nu)


def _gamma(y: Value, alpha: Value, beta: Value) -> Value:
    return alpha * m.log(beta) - m.lgamma(alpha) + m.xlogy(alpha - 1.0, y) - beta * y


def _inv_gamma(y: Value, alpha: Value, beta: Value) -> Value:
    return alpha * m.log(beta) - m.lgamma(alpha) - (alpha + 1.0) * m.log(y) - beta / y


def _weibull(y: Value, alpha: Value, sigma: Value) -> Value:
    return m.log(alpha) - m.log(sigma) + (alpha - 1.0) * (m.log(y) - m.log(sigma)) - m.pow(y / sigma, alpha)


def _frechet(y: Value, alpha: Value, sigma: Value) -> Value:
    return m.log(alpha) - (alpha + 1.0) * m.log(y) + alpha * m.log(sigma) - m.pow(y / sigma, -alpha)


def _beta(y: Value, a: Value, b: Value) -> Value:
    return m.xlogy(a - 1.0, y) + m.xlog1py(b - 1.0, -y) + m.lgamma(a + b) - m.lgamma(a) - m.lgamma(b)


def _exp_mod_normal(y: Value, mu: Value, sigma: Value, rate: Value) -> Value:
    square = rate * sigma * sigma
    return m.log(rate) + rate * (mu - y) + 0.5 * rate * square + m.log_ndtr((y - mu - square) / sigma)


def _skew_laplace(y: Value, mu: Value, sigma: Value, tau: Value) -> Value:
    left = where(y < mu, 1.0 - tau, tau)
    return LOG_2 + m.log(tau) + m.log1p(-tau) - m.log(sigma) - 2.0 * left * m.abs(y - mu) / sigma


def _log_logistic(y: Value, alpha: Value, beta: Value) -> Value:
    logs = m.log(y) - m.log(alpha)
    return m.log(beta) - m.log(alpha) + (beta - 1.0) * logs - 2.0 * m.softplus(beta * logs)


LOG_DENSITIES: Mapping[str, Formula] = {
    "normal": _normal,
    "std_normal": _standard_normal,
    "lognormal": lambda y, mu, sigma: _normal(m.log(y), mu, sigma) - m.log(y),
    "skew_normal": lambda y, xi, omega, alpha: _normal(y, xi, omega) + LOG_2 + m.log_ndtr(alpha * ((y - xi) / omega)),
    "exp_mod_normal": _exp_mod_normal,
    "student_t": scaled(_student),
    "cauchy": scaled(lambda z: -LOG_PI - m.log1p(z * z)),
    "logistic": scaled(lambda z: -z - 2.0 * m.softplus(-z)),
    "gumbel": scaled(lambda z: -z - m.exp(-z)),
    "double_exponential": scaled(lambda z: -LOG_2 - m.abs(z)),
    "skew_double_exponential": _skew_laplace,
    "loglogistic": _log_logistic,
    "exponential": lambda y, rate: m.log(rate) - rate * y,
    "gamma": _gamma,
    "chi_square": lambda y, nu: _gamma(y, 0.5 * nu, 0.5),
    "inv_gamma": _inv_gamma,
    "inv_chi_square": lambda y, nu: _inv_gamma(y, 0.5 * nu, 0.5),
    "scaled_inv_chi_square": lambda y, nu, s: _inv_gamma(y, 0.5 * nu, 0.5 * nu * s * s),
    "weibull": _weibull,
    "frechet": _frechet,
    "rayleigh": lambda y, sigma: m.log(y) - 2.0 * m.log(sigma) - 0.5 * (y / sigma) * (y / sigma),
    "pareto": lambda y, low, a: inside(y >= low, m.log(a) + a * m.log(low) - (a + 1.0) * m.log(y)),
    "pareto_type_2": lambda y, mu, scale, a: m.log(a) - m.log(scale) - (a + 1.0) * m.log1p((y - mu) / scale),
    "beta": _beta,
    "beta_proportion": lambda y, mu, kappa: _beta(y, mu * kappa, (1.0 - mu) * kappa),
    "von_mises": lambda y, mu, kappa: kappa * (m.cos(mu - y) - 1.0) - m.log(m.i0e(kappa)) - 2.0 * HALF_LOG_TAU,
    "uniform": lambda y, low, high: inside(m.logical_and(y >= low, y <= high), -m.log(high - low)),
}  # fmt: skip


def _bernoulli_logit(n: Value, alpha: Value) -> Value:
    return -m.softplus((1.0 - 2.0 * n) * alpha)


def _binomial_logit(n: Value, count: Value, alpha: Value) -> Value:
    return lchoose(count, n) - n * m.softplus(-alpha) - (count - n) * m.softplus(alpha)


def _poisson_log(n: Value, alpha: Value) -> Value:
    return n * alpha - m.exp(alpha) - m.lgamma(n + 1.0)


def _failures(n: Value, phi: Value) -> Value:
    """The logarithm of the number of ways, of negative binomial distributions."""
    return m.lgamma(n + phi) - m.lgamma(n + 1.0) - m.lgamma(phi)


def _neg_binomial_2(n: Value, mu: Value, phi: Value) -> Value:
    return _failures(n, phi) + m.xlogy(n, mu) - phi * m.log1p(mu / phi) - n * m.log(mu + phi)


def _neg_binomial_2_log(n: Value, eta: Value, phi: Value) -> Value:
    log_phi = m.log(phi)
    return _failures(n, phi) + n * eta - phi * m.softplus(eta - log_phi) - n * m.logaddexp(eta, log_phi)


LOG_PROBABILITIES: Mapping[str, Formula] = {
    "bernoulli": lambda n, theta: where(n > 0, m.log(theta), m.log1p(-theta)),
    "bernoulli_logit": _bernoulli_logit,
    "binomial": lambda n, count, theta: lchoose(count, n) + m.xlogy(n, theta) + m.xlog1py(count - n, -theta),
    "binomial_logit": _binomial_logit,
    "beta_binomial": lambda n, count, a, b: lchoose(count, n) + m.betaln(n + a, count - n + b) - m.betaln(a, b),
    "poisson": lambda n, rate: m.xlogy(n, rate) - rate - m.lgamma(n + 1.0),
    "poisson_log": _poisson_log,
    "neg_binomial": lambda n, alpha, beta: _failures(n, alpha) - alpha * m.log1p(1.0 / beta) - n * m.log1p(beta),
    "neg_binomial_2": _neg_binomial_2,
    "neg_binomial_2_log": _neg_binomial_2_log,
    "hypergeometric": lambda n, draws, a, b: lchoose(a, n) + lchoose(b, draws - n) - lchoose(a + b, draws),
    "discrete_range": lambda n, low, high: inside(m.logical_and(n >= low, n <= high), -m.log(high - low + 1.0)),
}  # fmt: skip

# -- distribution functions: pairs of the logarithm and the logarithm of the complement -------------------------------

Pair = tuple[Formula, Formula]


def _symmetric(log_cdf: Formula) -> Pair:
    """The pair of a family of a location and a scale, of the one at 0 and 1, which is symmetric."""
    return standardised(log_cdf), standardised(lambda z, *shapes: log_cdf(-z, *shapes))


def _from_complement(complement: Formula) -> Pair:
    """The pair of which the complement has a formula that is always negative."""
    return lambda *v: m.log1mexp(complement(*v)), complement


def _tails(below: Formula, above: Formula) -> Pair:
    """The pair of the two probabilities."""
    return lambda *v: m.log(below(*v)), lambda *v: m.log(above(*v))


def _laplace(z: Value) -> Value:
    return where(z < 0, z - LOG_2, m.log1p(-0.5 * m.exp(-m.abs(z))))


def _student_cdf(z: Value, nu: Value) -> Value:
    tail = 0.5 * m.betainc(0.5 * nu, 0.5, nu / (nu + z * z))
    return where(z < 0, m.log(tail), m.log1p(-tail))


_NORMAL = _symmetric(m.log_ndtr)
LOG_TAILS: Mapping[str, Pair] = {
    "normal": _NORMAL,
    "std_normal": (m.log_ndtr, lambda y: m.log_ndtr(-y)),
    "lognormal": (lambda y, *v: _NORMAL[0](m.log(y), *v), lambda y, *v: _NORMAL[1](m.log(y), *v)),
    "logistic": _symmetric(log_inv_logit),
    "cauchy": _symmetric(lambda z: m.log(0.5 + m.atan(z) / math.pi)),
    "double_exponential": _symmetric(_laplace),
    "student_t": _symmetric(_student_cdf),
    "exponential": _from_complement(lambda y, rate: -rate * y),
    "weibull": _from_complement(lambda y, alpha, sigma: -m.pow(y / sigma, alpha)),
    "rayleigh": _from_complement(lambda y, sigma: -0.5 * (y / sigma) * (y / sigma)),
    "pareto": _from_complement(lambda y, low, alpha: alpha * (m.log(low) - m.log(y))),
    "pareto_type_2": _from_complement(lambda y, mu, scale, alpha: -alpha * m.log1p((y - mu) / scale)),
    "gumbel": _from_complement(lambda y, mu, beta: -m.exp(-(y - mu) / beta))[::-1],
    "frechet": _from_complement(lambda y, alpha, sigma: -m.pow(y / sigma, -alpha))[::-1],
    "uniform": _tails(lambda y, low, high: (y - low) / (high - low), lambda y, low, high: (high - y) / (high - low)),
    "gamma": _tails(lambda y, a, b: m.gammainc(a, b * y), lambda y, a, b: m.gammaincc(a, b * y)),
    "inv_gamma": _tails(lambda y, a, b: m.gammaincc(a, b / y), lambda y, a, b: m.gammainc(a, b / y)),
    "chi_square": _tails(lambda y, nu: m.gammainc(0.5 * nu, 0.5 * y), lambda y, nu: m.gammaincc(0.5 * nu, 0.5 * y)),
    "beta": _tails(lambda y, a, b: m.betainc(a, b, y), lambda y, a, b: m.betainc(b, a, 1.0 - y)),
    "poisson": _tails(lambda n, rate: m.gammaincc(n + 1.0, rate), lambda n, rate: m.gammainc(n + 1.0, rate)),
    "binomial": _tails(
        lambda n, count, theta: m.betainc(count - n, n + 1.0, 1.0 - theta),
        lambda n, count, theta: m.betainc(n + 1.0, count - n, theta),
    ),
    "neg_binomial_2": _tails(
        lambda n, mu, phi: m.betainc(phi, n + 1.0, phi / (mu + phi)),
        lambda n, mu, phi: m.betainc(n + 1.0, phi, mu / (mu + phi)),
    ),
    "bernoulli": (
        lambda n, theta: where(n >= 1, 0.0, m.log1p(-theta)),
        lambda n, theta: where(n >= 1, -math.inf, m.log(theta)),
    ),
}  # fmt: skip


def _exponential_of(total: Formula) -> Formula:
    return lambda *values: m.exp(total(*values))


table(**{f"{family}_lpdf": summed(formula) for family, formula in LOG_DENSITIES.items()})
table(**{f"{family}_lpmf": summed(formula) for family, formula in LOG_PROBABILITIES.items()})
for _place, _suffix in enumerate(("lcdf", "lccdf")):
    table(**{f"{family}_{_suffix}": summed(pair[_place]) for family, pair in LOG_TAILS.items()})
table(**{f"{family}_cdf": _exponential_of(summed(pair[0])) for family, pair in LOG_TAILS.items()})
