"""Log probabilities of discrete distributions, as the Stan Functions Reference defines them, and those of generalised
linear models, which are the same of a linear predictor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.stan.densities import density, normal, summed
from staticgrad.bridges.stan.form import Expr
from staticgrad.bridges.stan.functions import lchoose, log_diff_exp
from staticgrad.bridges.stan.table import FUNCTIONS, plain
from staticgrad.bridges.stan.values import Value, concat, known, m, ndim, real, reshape, shape, size, take, where

# -- formulas of one count --------------------------------------------------------------------------------------------


def _bernoulli(n: Value, theta: Value) -> Value:
    return where(n > 0, m.log(theta), m.log1p(-theta))


def bernoulli_logit(n: Value, alpha: Value) -> Value:
    return -m.softplus((1.0 - 2.0 * n) * alpha)


def _binomial(n: Value, count: Value, theta: Value) -> Value:
    return lchoose(count, n) + m.xlogy(n, theta) + m.xlog1py(count - n, -theta)


def _binomial_logit(n: Value, count: Value, alpha: Value) -> Value:
    return lchoose(count, n) - n * m.softplus(-alpha) - (count - n) * m.softplus(alpha)


def _poisson(n: Value, rate: Value) -> Value:
    return m.xlogy(n, rate) - rate - m.lgamma(n + 1.0)


def poisson_log(n: Value, alpha: Value) -> Value:
    return n * alpha - m.exp(alpha) - m.lgamma(n + 1.0)


def _neg_binomial(n: Value, alpha: Value, beta: Value) -> Value:
    choose = m.lgamma(n + alpha) - m.lgamma(n + 1.0) - m.lgamma(alpha)
    return choose - alpha * m.log1p(1.0 / beta) - n * m.log1p(beta)


def _neg_binomial_2(n: Value, mu: Value, phi: Value) -> Value:
    choose = m.lgamma(n + phi) - m.lgamma(n + 1.0) - m.lgamma(phi)
    return choose + m.xlogy(n, mu) - phi * m.log1p(mu / phi) - n * m.log(mu + phi)


def neg_binomial_2_log(n: Value, eta: Value, phi: Value) -> Value:
    choose = m.lgamma(n + phi) - m.lgamma(n + 1.0) - m.lgamma(phi)
    log_phi = m.log(phi)
    return choose + n * eta - phi * m.softplus(eta - log_phi) - n * m.logaddexp(eta, log_phi)


def _beta_binomial(n: Value, count: Value, a: Value, b: Value) -> Value:
    return lchoose(count, n) + m.betaln(n + a, count - n + b) - m.betaln(a, b)


def _hypergeometric(n: Value, draws: Value, a: Value, b: Value) -> Value:
    return lchoose(a, n) + lchoose(b, draws - n) - lchoose(a + b, draws)


density(
    bernoulli_lpmf=_bernoulli, bernoulli_logit_lpmf=bernoulli_logit, binomial_lpmf=_binomial, poisson_lpmf=_poisson,
    binomial_logit_lpmf=_binomial_logit, poisson_log_lpmf=poisson_log, neg_binomial_lpmf=_neg_binomial,
    neg_binomial_2_lpmf=_neg_binomial_2, neg_binomial_2_log_lpmf=neg_binomial_2_log, beta_binomial_lpmf=_beta_binomial,
    hypergeometric_lpmf=_hypergeometric,
    discrete_range_lpmf=lambda n, low, high: where((n >= low) * (n <= high), -m.log(high - low + 1.0), -math.inf),
)  # fmt: skip

# -- categories -------------------------------------------------------------------------------------------------------


def _known(n: Value, what: str) -> Any:
    """Known integers.

    Raises:
        RefusedError: they depend on parameters, or differ between turns of a loop that are declared at once.
    """
    if not known(n):
        raise RefusedError(f"{what} is no known integer", needs=n)
    return np.asarray(n, np.int64)


def _chosen(n: Value, logs: Value) -> Value:
    """The sum of the elements of ``logs``, or of its rows, at the categories ``n``."""
    at = _known(n, "a category") - 1
    if size(n) == 0:
        return 0.0
    if ndim(logs) == 1:
        if at.ndim == 0:
            return take(logs, [int(at)])
        return m.matmul(np.bincount(at, minlength=shape(logs)[0]), logs)
    flat = np.arange(shape(logs)[0]) * shape(logs)[1] + np.broadcast_to(at, shape(logs)[:1])
    return m.sum(take(reshape(logs, (-1,)), [flat]))


def _log_softmax(x: Value) -> Value:
    total = m.logsumexp(x, -1)
    return x - (reshape(total, (*shape(x)[:-1], 1)) if ndim(x) > 1 else total)


@plain("categorical_lpmf")
def _categorical(n: Value, theta: Value) -> Value:
    return _chosen(n, m.log(theta))


@plain("categorical_logit_lpmf")
def _categorical_logit(n: Value, beta: Value) -> Value:
    return _chosen(n, _log_softmax(beta))


@plain("categorical_logit_glm_lpmf")
def _categorical_logit_glm(n: Value, x: Value, alpha: Value, beta: Value) -> Value:
    x = x if ndim(x) > 1 else reshape(x, (1, -1))
    return _chosen(n, _log_softmax(m.matmul(x, beta) + alpha))


@plain("multinomial_lpmf")
def _multinomial(n: Value, theta: Value) -> Value:
    n = real(_known(n, "a count"))
    return m.lgamma(float(np.sum(n)) + 1.0) - m.sum(m.lgamma(n + 1.0)) + m.sum(m.xlogy(n, theta))


@plain("multinomial_logit_lpmf")
def _multinomial_logit(n: Value, gamma: Value) -> Value:
    n = real(_known(n, "a count"))
    return m.lgamma(float(np.sum(n)) + 1.0) - m.sum(m.lgamma(n + 1.0)) + m.sum(n * _log_softmax(gamma))


@plain("dirichlet_multinomial_lpmf")
def _dirichlet_multinomial(n: Value, alpha: Value) -> Value:
    n = real(_known(n, "a count"))
    total = float(np.sum(n))
    whole = m.sum(alpha)
    constant = m.lgamma(whole) + m.lgamma(total + 1.0) - m.lgamma(whole + total)
    return constant + m.sum(m.lgamma(n + alpha) - m.lgamma(alpha) - m.lgamma(n + 1.0))


def _ordered(log_cdf: Any, n: Value, eta: Value, cuts: Value) -> Value:
    """The sum of the log probabilities of ordered categories. ``log_cdf`` is that of what is cut, symmetric at 0."""
    at = _known(n, "a category")
    wide = shape(n) or shape(eta)
    if 0 in wide:
        return 0.0
    rows, own = int(np.prod(wide)), ndim(cuts) > 1
    eta = reshape(eta, (rows,)) if ndim(eta) else eta
    at, count = np.broadcast_to(at, wide).reshape(-1), shape(cuts)[-1]
    terms: list[Value] = []
    for low, high, chosen in ((0, 1, at == 1), (1, 0, at == count + 1), (1, 1, (at > 1) & (at <= count))):
        rows_of = np.flatnonzero(chosen)
        if not rows_of.size:
            continue
        picked = take(eta, [rows_of]) if ndim(eta) else eta

        def away(shift: int, rows_of: Any = rows_of, picked: Value = picked) -> Value:
            places = at[rows_of] - 1 - shift
            if own:
                return picked - take(reshape(cuts, (-1,)), [rows_of * count + places])
            return picked - take(cuts, [places])

        if not low:
            terms.append(log_cdf(-away(0)))
        elif not high:
            terms.append(log_cdf(away(1)))
        else:
            terms.append(log_diff_exp(log_cdf(away(1)), log_cdf(away(0))))
    return m.sum(concat([reshape(term, (-1,)) for term in terms]))


def _log_logistic(x: Value) -> Value:
    return -m.softplus(-x)


@plain("ordered_logistic_lpmf")
def _ordered_logistic(n: Value, eta: Value, cuts: Value) -> Value:
    return _ordered(_log_logistic, n, eta, cuts)


@plain("ordered_probit_lpmf")
def _ordered_probit(n: Value, eta: Value, cuts: Value) -> Value:
    return _ordered(lambda x: m.log_ndtr(x), n, eta, cuts)


@plain("ordered_logistic_glm_lpmf")
def _ordered_logistic_glm(n: Value, x: Value, beta: Value, cuts: Value) -> Value:
    return _ordered(_log_logistic, n, m.matmul(x, beta), cuts)


# -- generalised linear models ----------------------------------------------------------------------------------------


def _glm(formula: Any) -> Any:
    total = summed(formula)

    def glm(scope: Any, expr: Expr) -> Value:
        y, x, alpha, beta, *rest = scope.values(expr.args)
        product = m.matmul(x, beta) if ndim(x) > 1 else m.matmul(reshape(x, (1, -1)), beta)
        rows = max(shape(product)[0], size(y))
        return total(reshape(real(y), (-1,)) if ndim(y) else real(y), _wide(product + alpha, rows), *rest)

    return glm


def _wide(x: Value, rows: int) -> Value:
    return x if shape(x)[0] == rows else take(x, [np.zeros(rows, np.int64)])


for _name, _formula in {
    "bernoulli_logit_glm_lpmf": bernoulli_logit, "poisson_log_glm_lpmf": poisson_log, "normal_id_glm_lpdf": normal,
    "neg_binomial_2_log_glm_lpmf": neg_binomial_2_log,
}.items():  # fmt: skip
    FUNCTIONS.enter(_name)(_glm(_formula))


@FUNCTIONS.enter("binomial_logit_glm_lpmf")
def _binomial_glm(scope: Any, expr: Expr) -> Value:
    n, count, x, alpha, beta = scope.values(expr.args)
    return summed(_binomial_logit)(n, count, m.matmul(x, beta) + alpha)
