"""Operators and elementwise functions, reductions, and the making and taking apart of arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.stan.form import Expr, Leaf
from staticgrad.bridges.stan.table import plain, table, typed
from staticgrad.bridges.stan.values import (
    Value,
    either,
    known,
    m,
    ndim,
    number,
    real,
    size,
    tensor,
    transpose,
    where,
)  # fmt: skip
from staticgrad.graph.optable import FUNCTIONS as o

MATRICES = (Leaf.MATRIX, Leaf.VECTOR, Leaf.ROW)


# -- operators --------------------------------------------------------------------------------------------------------


@typed("Times__")
def _times(scope: Any, expr: Expr) -> Value:
    a, b = scope.values(expr.args)
    left, right = (arg.leaf for arg in expr.args)
    if left not in MATRICES or right not in MATRICES:
        return a * b
    return m.outer(a, b) if (left, right) == (Leaf.VECTOR, Leaf.ROW) else m.matmul(a, b)


@typed("Divide__")
def _divide(scope: Any, expr: Expr) -> Value:
    a, b = scope.values(expr.args)
    if all(arg.leaf is Leaf.INT for arg in expr.args):
        return _whole(a, b)
    if expr.args[1].leaf is Leaf.MATRIX:
        return transpose(m.solve(transpose(b), transpose(a)))
    return a / b if not known(a, b) else number(np.divide(a, b))


def _whole(a: Value, b: Value) -> int:
    """An integer division, which truncates."""
    if b == 0:
        raise RefusedError("an integer is divided by zero")
    return int(abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


def _power(a: Value, b: Value) -> Value:
    if known(b) and np.ndim(b) == 0 and b == 2:
        return a * a
    if known(b) and np.ndim(b) == 0 and b == 0.5:
        return m.sqrt(a)
    return m.pow(a, b)


def _compare(name: str) -> Any:
    symbol = getattr(np, name)

    def compare(a: Value, b: Value) -> Value:
        return getattr(o, name)(tensor(a), tensor(b)) if not known(a, b) else int(bool(symbol(a, b)))

    return compare


def _not(a: Value) -> Value:
    return int(not a) if known(a) else o.equal(tensor(a), 0.0)


table(
    Plus__=lambda a, b: a + b, Minus__=lambda a, b: a - b, PMinus__=lambda a: -a, PPlus__=lambda a: a, PNot__=_not,
    EltTimes__=lambda a, b: a * b, EltDivide__=lambda a, b: a / b, Pow__=_power, EltPow__=_power, pow=_power,
    IntDivide__=_whole, Modulo__=lambda a, b: int(math.fmod(a, b)), Transpose__=transpose, transpose=transpose,
    LDivide__=lambda a, b: m.solve(a, b), mdivide_left=lambda a, b: m.solve(a, b),
    Less__=_compare("less"), Leq__=_compare("less_equal"), Greater__=_compare("greater"),
    Geq__=_compare("greater_equal"), Equals__=_compare("equal"), NEquals__=_compare("not_equal"),
)  # fmt: skip

# -- elementwise ------------------------------------------------------------------------------------------------------


def log_inv_logit(x: Value) -> Value:
    return -m.softplus(-x)


def log1m_inv_logit(x: Value) -> Value:
    return -m.softplus(x)


def log_diff_exp(a: Value, b: Value) -> Value:
    return a + m.log1mexp(b - a)


def lchoose(n: Value, k: Value) -> Value:
    n, k = real(n), real(k)
    return m.lgamma(n + 1) - m.lgamma(k + 1) - m.lgamma(n - k + 1)


def lmultiply(a: Value, b: Value) -> Value:
    return m.xlogy(a, b)


def log_falling_factorial(x: Value, n: Value) -> Value:
    return m.lgamma(real(x) + 1) - m.lgamma(real(x) - n + 1)


def _phi_approx(x: Value) -> Value:
    return m.sigmoid(x * (0.07056 * x * x + 1.5976))


def _trigamma(x: Value) -> Value:
    return either(lambda v: _scalar_trigamma(np.asarray(v)), lambda v: o.polygamma(1, v))(x)


def _scalar_trigamma(x: Any) -> Any:
    shifted, total = np.asarray(x, np.float64), np.zeros(np.shape(x))
    for _ in range(20):  # up to where the series converges
        total, shifted = total + 1 / shifted**2, shifted + 1
    inverse = 1 / shifted
    square = inverse * inverse
    series = 1 / 6 - square * (1 / 30 - square * (1 / 42 - square * (1 / 30 - square * (5 / 66))))
    return total + inverse + square / 2 + inverse * square * series


def _step(x: Value) -> Value:
    return where(x < 0, 0.0, 1.0)


_NAMED = dict(  # noqa: C408
    exp="exp", log="log", sqrt="sqrt", sin="sin", cos="cos", tan="tan", asin="asin", acos="acos", atan="atan",
    sinh="sinh", cosh="cosh", tanh="tanh", asinh="asinh", acosh="acosh", atanh="atanh", exp2="exp2", expm1="expm1",
    log1p="log1p", log2="log2", log10="log10", erf="erf", erfc="erfc", lgamma="lgamma", digamma="digamma",
    floor="floor", ceil="ceil", trunc="trunc", inv_logit="sigmoid", Phi="ndtr", inv_Phi="ndtri", std_normal_qf="ndtri",
    atan2="atan2", hypot="hypot", fmax="maximum", fmin="minimum", lbeta="betaln", log1p_exp="softplus",
    log1m_exp="log1mexp", lmultiply="xlogy", multiply_log="xlogy", gamma_p="gammainc", gamma_q="gammaincc",
    inc_beta="betainc",
)  # fmt: skip


def _named(op: str) -> Any:
    return lambda *values: getattr(m, op)(*values)


table(**{name: _named(op) for name, op in _NAMED.items()})
table(
    abs=lambda x: m.abs(x) if not known(x) else number(np.abs(x)), fabs=lambda x: m.abs(x),
    square=lambda x: x * x, inv=lambda x: 1.0 / x, inv_sqrt=lambda x: 1.0 / m.sqrt(x),
    inv_square=lambda x: 1.0 / (x * x),
    cbrt=lambda x: m.sign(x) * m.exp(m.log(m.abs(x)) / 3), log1m=lambda x: m.log1p(-x),
    logit=lambda x: m.log(x) - m.log1p(-x), log_inv_logit=log_inv_logit, log1m_inv_logit=log1m_inv_logit,
    inv_cloglog=lambda x: -m.expm1(-m.exp(x)), cloglog=lambda x: m.log(-m.log1p(-x)), Phi_approx=_phi_approx,
    log_Phi=lambda x: m.log_ndtr(x), tgamma=lambda x: m.exp(m.lgamma(x)), trigamma=_trigamma,
    log_diff_exp=log_diff_exp, fdim=lambda a, b: m.maximum(a - b, 0.0), fma=lambda a, b, c: a * b + c,
    lchoose=lchoose, binomial_coefficient_log=lchoose, choose=lambda n, k: math.comb(int(n), int(k)),
    log_falling_factorial=log_falling_factorial,
    log_rising_factorial=lambda x, n: m.lgamma(real(x) + n) - m.lgamma(real(x)),
    falling_factorial=lambda x, n: m.exp(log_falling_factorial(x, n)),
    rising_factorial=lambda x, n: m.exp(m.lgamma(real(x) + n) - m.lgamma(real(x))),
    fmod=lambda a, b: a - b * m.trunc(a / b),
    step=_step, int_step=lambda x: int(x > 0), is_nan=lambda x: int(math.isnan(x)), is_inf=lambda x: int(math.isinf(x)),
    round=lambda x: m.trunc(x + m.copysign(0.5, x)),
    log_inv_logit_diff=lambda a, b: log_diff_exp(-m.softplus(-a), -m.softplus(-b)),
    modified_bessel_first_kind=lambda v, x: m.iv(v, x), std_normal_log_qf=lambda x: m.ndtri(m.exp(x)),
    log_modified_bessel_first_kind=lambda v, x: m.log(m.ive(v, x)) + x,
    ldexp=lambda a, b: a * 2.0**b, logical_negation=_not,
)  # fmt: skip
table(
    pi=lambda: math.pi, e=lambda: math.e, sqrt2=lambda: math.sqrt(2), FnNegInf=lambda: -math.inf,
    negative_infinity=lambda: -math.inf, positive_infinity=lambda: math.inf, not_a_number=lambda: math.nan,
    machine_precision=lambda: float(np.finfo(np.float64).eps), FnPosInf=lambda: math.inf,
    FnNaN=lambda: math.nan,
)  # fmt: skip

# -- reductions -------------------------------------------------------------------------------------------------------


@plain("log_sum_exp")
def log_sum_exp(*values: Value) -> Value:
    return m.logsumexp(values[0]) if len(values) == 1 else m.logaddexp(*values)


@plain("log_mix")
def log_mix(theta: Value, *values: Value) -> Value:
    if len(values) == 2:
        return m.logaddexp(m.log(theta) + values[0], m.log1p(-theta) + values[1])
    (lp,) = values
    return m.sum(m.logsumexp(m.log(theta) + lp, -1)) if ndim(lp) > 1 else m.logsumexp(m.log(theta) + lp)


def _extreme(name: str) -> Any:
    def extreme(*values: Value) -> Value:
        if known(*values):  # integers stay integers
            return number(getattr(np, name)(values))
        return getattr(m, name)(values[0]) if len(values) == 1 else getattr(m, f"{name}imum")(*values)

    return extreme


def _sum(x: Value) -> Value:
    return number(np.sum(x)) if known(x) else m.sum(x)


def _variance(x: Value) -> Value:
    away = x - m.mean(x)
    return m.sum(away * away) / (size(x) - 1)


def log_softmax(x: Value) -> Value:
    return x - m.logsumexp(x)


def _norm(x: Value) -> Value:
    return m.sqrt(m.sum(x * x))


def dot(a: Value, b: Value) -> Value:
    return m.sum(a * b) if ndim(a) > 1 else m.matmul(a, b)


def _columns_dot(a: Value, b: Value) -> Value:
    return m.sum(a * b, 0)


def _rows_dot(a: Value, b: Value) -> Value:
    return m.sum(a * b, 1) if ndim(a) > 1 else a * b


table(
    sum=_sum, prod=lambda x: m.prod(x), mean=lambda x: m.mean(x), max=_extreme("max"), min=_extreme("min"),
    variance=_variance, sd=lambda x: m.sqrt(_variance(x)), softmax=lambda x: m.exp(log_softmax(x)),
    log_softmax=log_softmax,
    dot_product=dot, dot_self=lambda x: dot(x, x), distance=lambda a, b: _norm(a - b), norm2=_norm,
    squared_distance=lambda a, b: dot(a - b, a - b) if ndim(a) else (a - b) * (a - b), norm1=lambda x: m.sum(m.abs(x)),
    cumulative_sum=lambda x: m.cumsum(x), columns_dot_product=_columns_dot, rows_dot_product=_rows_dot,
    columns_dot_self=lambda a: _columns_dot(a, a), rows_dot_self=lambda a: _rows_dot(a, a),
)  # fmt: skip
