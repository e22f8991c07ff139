"""Distribution functions: ``_lcdf``, ``_lccdf`` and ``_cdf`` of the same table.

An entry is the pair of log distribution function and log complement of a value and the distribution's parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from staticgrad.bridges.stan.densities import density, summed
from staticgrad.bridges.stan.table import plain
from staticgrad.bridges.stan.values import Value, m, where

LOG_HALF = -math.log(2)
Formula = Callable[..., Value]


def _laplace(z: Value) -> Value:
    """The log distribution function of the standard double exponential."""
    return where(z < 0, LOG_HALF + z, m.log1p(-0.5 * m.exp(-m.abs(z))))


def _student_tail(z: Value, nu: Value) -> Value:
    """The logarithm of the lower tail of Student's t."""
    tail = 0.5 * m.betainc(0.5 * nu, 0.5, nu / (nu + z * z))
    return where(z < 0, m.log(tail), m.log1p(-tail))


def _scaled(log_cdf: Formula) -> tuple[Formula, Formula]:
    """The pair of a family of a location and a scale, symmetric about it."""
    return (
        lambda y, mu, sigma: log_cdf((y - mu) / sigma),
        lambda y, mu, sigma: log_cdf(-(y - mu) / sigma),
    )


def _of_log(log_cdf: Formula) -> tuple[Formula, Formula]:
    return (
        lambda y, mu, sigma: log_cdf((m.log(y) - mu) / sigma),
        lambda y, mu, sigma: log_cdf(-(m.log(y) - mu) / sigma),
    )


def _from_complement(complement: Formula) -> tuple[Formula, Formula]:
    """The pair of which the complement has a formula that is always negative."""
    return lambda *v: m.log1mexp(complement(*v)), complement


def _from_cdf(log_cdf: Formula) -> tuple[Formula, Formula]:
    return log_cdf, lambda *v: m.log1mexp(log_cdf(*v))


def _normal(z: Value) -> Value:
    return m.log_ndtr(z)


def _logistic(z: Value) -> Value:
    return -m.softplus(-z)


PAIRS: dict[str, tuple[Formula, Formula]] = {
    "normal": _scaled(_normal),
    "std_normal": (_normal, lambda y: _normal(-y)),
    "lognormal": _of_log(_normal),
    "logistic": _scaled(_logistic),
    "cauchy": _scaled(lambda z: m.log(0.5 + m.atan(z) / math.pi)),
    "double_exponential": _scaled(_laplace),
    "student_t": (
        lambda y, nu, mu, sigma: _student_tail((y - mu) / sigma, nu),
        lambda y, nu, mu, sigma: _student_tail(-(y - mu) / sigma, nu),
    ),
    "exponential": _from_complement(lambda y, rate: -rate * y),
    "weibull": _from_complement(lambda y, alpha, sigma: -m.pow(y / sigma, alpha)),
    "rayleigh": _from_complement(lambda y, sigma: -0.5 * (y / sigma) * (y / sigma)),
    "pareto": _from_complement(lambda y, low, alpha: alpha * (m.log(low) - m.log(y))),
    "pareto_type_2": _from_complement(lambda y, mu, scale, alpha: -alpha * m.log1p((y - mu) / scale)),
    "gumbel": _from_cdf(lambda y, mu, beta: -m.exp(-(y - mu) / beta)),
    "frechet": _from_cdf(lambda y, alpha, sigma: -m.pow(y / sigma, -alpha)),
    "uniform": (
        lambda y, low, high: m.log((y - low) / (high - low)),
        lambda y, low, high: m.log((high - y) / (high - low)),
    ),
    "gamma": (
        lambda y, alpha, beta: m.log(m.gammainc(alpha, beta * y)),
        lambda y, alpha, beta: m.log(m.gammaincc(alpha, beta * y)),
    ),
    "inv_gamma": (
        lambda y, alpha, beta: m.log(m.gammaincc(alpha, beta / y)),
        lambda y, alpha, beta: m.log(m.gammainc(alpha, beta / y)),
    ),
    "chi_square": (
        lambda y, nu: m.log(m.gammainc(0.5 * nu, 0.5 * y)),
        lambda y, nu: m.log(m.gammaincc(0.5 * nu, 0.5 * y)),
    ),
    "beta": (
        lambda y, a, b: m.log(m.betainc(a, b, y)),
        lambda y, a, b: m.log(m.betainc(b, a, 1.0 - y)),
    ),
    "poisson": (
        lambda n, rate: m.log(m.gammaincc(n + 1.0, rate)),
        lambda n, rate: m.log(m.gammainc(n + 1.0, rate)),
    ),
    "binomial": (
        lambda n, count, theta: m.log(m.betainc(count - n, n + 1.0, 1.0 - theta)),
        lambda n, count, theta: m.log(m.betainc(n + 1.0, count - n, theta)),
    ),
    "neg_binomial_2": (
        lambda n, mu, phi: m.log(m.betainc(phi, n + 1.0, phi / (mu + phi))),
        lambda n, mu, phi: m.log(m.betainc(n + 1.0, phi, mu / (mu + phi))),
    ),
    "bernoulli": (
        lambda n, theta: where(n >= 1, 0.0, m.log1p(-theta)),
        lambda n, theta: where(n >= 1, -math.inf, m.log(theta)),
    ),
}  # fmt: skip


def _enter(family: str, below: Formula, above: Formula) -> None:
    total = summed(below)
    density(**{f"{family}_lcdf": below, f"{family}_lccdf": above})
    plain(f"{family}_cdf")(lambda *values: m.exp(total(*values)))


for _family, _pair in PAIRS.items():
    _enter(_family, *_pair)
