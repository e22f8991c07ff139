"""Log probabilities of categories and counts of them, as the Stan Functions Reference defines them, and of generalised
linear models, which are those of one number at a linear predictor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.stan.densities import LOG_DENSITIES, LOG_PROBABILITIES, Formula, summed
from staticgrad.bridges.stan.functions import log_diff_exp, log_inv_logit, log_softmax
from staticgrad.bridges.stan.table import table
from staticgrad.bridges.stan.values import Value, concat, known, m, ndim, real, reshape, shape, size, take

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


def _multinomial(n: Value, logs: Callable[[Any], Value]) -> Value:
    """The log probability of counts, of which a function gives the sum of what their categories add."""
    n = real(_known(n, "a count"))
    return m.lgamma(float(np.sum(n)) + 1.0) - m.sum(m.lgamma(n + 1.0)) + m.sum(logs(n))


def _dirichlet_multinomial(n: Value, alpha: Value) -> Value:
    whole, total = m.sum(alpha), float(np.sum(_known(n, "a count")))
    constant = m.lgamma(whole) - m.lgamma(whole + total)
    return constant + _multinomial(n, lambda n: m.lgamma(n + alpha) - m.lgamma(alpha))


def _linear(x: Value, alpha: Value, beta: Value) -> Value:
    return m.matmul(x if ndim(x) > 1 else reshape(x, (1, -1)), beta) + alpha


table(
    categorical_lpmf=lambda n, theta: _chosen(n, m.log(theta)),
    categorical_logit_lpmf=lambda n, beta: _chosen(n, log_softmax(beta)),
    categorical_logit_glm_lpmf=lambda n, x, alpha, beta: _chosen(n, log_softmax(_linear(x, alpha, beta))),
    multinomial_lpmf=lambda n, theta: _multinomial(n, lambda n: m.xlogy(n, theta)),
    multinomial_logit_lpmf=lambda n, gamma: _multinomial(n, lambda n: n * log_softmax(gamma)),
    dirichlet_multinomial_lpmf=_dirichlet_multinomial,
)  # fmt: skip


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
    # the first category, the last one, those between, by which of the cuts below and above them there are
    for below, above, chosen in ((0, 1, at == 1), (1, 0, at == count + 1), (1, 1, (at > 1) & (at <= count))):
        rows_of = np.flatnonzero(chosen)
        if rows_of.size:
            picked = take(eta, [rows_of]) if ndim(eta) else eta
            lowest = rows_of * count * own + at[rows_of] - 1 - below
            away = [picked - take(reshape(cuts, (-1,)), [lowest + k]) for k in range(below + above)]
            logs = log_cdf(away[0]) if below else log_cdf(-away[0])
            terms.append(log_diff_exp(logs, log_cdf(away[1])) if len(away) > 1 else logs)
    return m.sum(concat([reshape(term, (-1,)) for term in terms]))


table(
    ordered_logistic_lpmf=lambda n, eta, cuts: _ordered(log_inv_logit, n, eta, cuts),
    ordered_probit_lpmf=lambda n, eta, cuts: _ordered(m.log_ndtr, n, eta, cuts),
    ordered_logistic_glm_lpmf=lambda n, x, beta, cuts: _ordered(log_inv_logit, n, m.matmul(x, beta), cuts),
)

# -- generalised linear models ----------------------------------------------------------------------------------------


def _glm(formula: Formula) -> Formula:
    """The function of a linear model, of a formula of its outcome and its predictor."""
    total = summed(formula)

    def glm(y: Value, x: Value, alpha: Value, beta: Value, *rest: Value) -> Value:
        eta = _linear(x, alpha, beta)
        if shape(eta)[0] < size(y):  # a row of covariates for all outcomes
            eta = take(eta, [np.zeros(size(y), np.int64)])
        return total(reshape(y, (-1,)) if ndim(y) else y, eta, *rest)

    return glm


def _binomial_glm(n: Value, count: Value, x: Value, alpha: Value, beta: Value) -> Value:
    return summed(LOG_PROBABILITIES["binomial_logit"])(n, count, m.matmul(x, beta) + alpha)


for _name in ("bernoulli_logit", "poisson_log", "neg_binomial_2_log"):
    table(**{f"{_name}_glm_lpmf": _glm(LOG_PROBABILITIES[_name])})
table(normal_id_glm_lpdf=_glm(LOG_DENSITIES["normal"]), binomial_logit_glm_lpmf=_binomial_glm)
