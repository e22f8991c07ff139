"""Operators, functions of numbers and reductions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.stan.form import Expr, Leaf
from staticgrad.bridges.stan.table import table, typed
from staticgrad.bridges.stan.values import Value, known, m, ndim, number, real, size, tensor, transpose, where

MATRICES = (Leaf.MATRIX, Leaf.VECTOR, Leaf.ROW)


# -- operators --------------------------------------------------------------------------------------------------------


@typed("Times__")
def _times(scope: Any, expr: Expr) -> Value:
    a, b = scope.values(expr.args)
    left, right = (arg.leaf for arg in expr.args)
    if left not in MATRICES or right not in MATRICES:
        return a * b
    return m.reshape(a, (-1, 1)) * b if (left, right) == (Leaf.VECTOR, Leaf.ROW) else m.matmul(a, b)


@typed("Divide__")
def _divide(scope: Any, expr: Expr) -> Value:
    a, b = scope.values(expr.args)
    if all(arg.leaf is Leaf.INT for arg in expr.args):
        return _whole(a, b)
    if expr.args[1].leaf is Leaf.MATRIX:
        return transpose(m.solve(transpose(b), transpose(a)))
    return divide(a, b)


def divide(a: Value, b: Value) -> Value:
    """A quotient, infinite or NaN over zero."""
    return number(np.divide(a, b)) if known(a, b) else a / b


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
    return lambda a, b: int(getattr(np, name)(a, b)) if known(a, b) else getattr(m, name)(tensor(a), tensor(b))


def _not(a: Value) -> Value:
    return int(not a) if known(a) else m.equal(tensor(a), 0.0)


table(
    Plus__=lambda a, b: a + b, Minus__=lambda a, b: a - b, PMinus__=lambda a: -a, PPlus__=lambda a: a, PNot__=_not,
    EltTimes__=lambda a, b: a * b, EltDivide__=divide, Pow__=_power, EltPow__=_power, pow=_power, IntDivide__=_whole,
    Modulo__=lambda a, b: int(math.fmod(a, b)), Transpose__=transpose, transpose=transpose, logical_negation=_not,
    LDivide__=m.solve, mdivide_left=m.solve, Less__=_compare("less"), Leq__=_compare("less_equal"),
    Greater__=_compare("greater"), Geq__=_compare("greater_equal"), Equals__=_compare("equal"),
    NEquals__=_compare("not_equal"),
)  # fmt: skip

# -- elementwise ------------------------------------------------------------------------------------------------------


def log_inv_logit(x: Value) -> Value:
    return -m.softplus(-x)


def log_diff_exp(a: Value, b: Value) -> Value:
    return a + m.log1mexp(b - a)


def lchoose(n: Value, k: Value) -> Value:
    n, k = real(n), real(k)
    return m.lgamma(n + 1) - m.lgamma(k + 1) - m.lgamma(n - k + 1)


def _log_falling(x: Value, n: Value) -> Value:
    return m.lgamma(real(x) + 1) - m.lgamma(real(x) - n + 1)


def _log_rising(x: Value, n: Value) -> Value:
    return m.lgamma(real(x) + n) - m.lgamma(real(x))


SAME_NAMES = (
    "exp log sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp2 expm1 log1p log2 log10 erf erfc "
    "lgamma digamma floor ceil trunc atan2 hypot prod mean"
)
table(**{name: getattr(m, name) for name in SAME_NAMES.split()})
table(
    inv_logit=m.sigmoid, Phi=m.ndtr, inv_Phi=m.ndtri, std_normal_qf=m.ndtri, fmax=m.maximum, fmin=m.minimum,
    lbeta=m.betaln, log1p_exp=m.softplus, log1m_exp=m.log1mexp, lmultiply=m.xlogy, multiply_log=m.xlogy,
    gamma_p=m.gammainc, gamma_q=m.gammaincc, inc_beta=m.betainc, log_Phi=m.log_ndtr, modified_bessel_first_kind=m.iv,
    abs=lambda x: number(np.abs(x)) if known(x) else m.abs(x), fabs=m.abs, square=lambda x: x * x,
    inv=lambda x: divide(1.0, x), inv_sqrt=lambda x: divide(1.0, m.sqrt(x)), inv_square=lambda x: divide(1.0, x * x),
    cbrt=lambda x: m.sign(x) * m.exp(m.log(m.abs(x)) / 3), log1m=lambda x: m.log1p(-x),
    logit=lambda x: m.log(x) - m.log1p(-x), log_inv_logit=log_inv_logit, log1m_inv_logit=lambda x: -m.softplus(x),
    inv_cloglog=lambda x: -m.expm1(-m.exp(x)), cloglog=lambda x: m.log(-m.log1p(-x)),
    Phi_approx=lambda x: m.sigmoid(x * (0.07056 * x * x + 1.5976)), tgamma=lambda x: m.exp(m.lgamma(x)),
    trigamma=lambda x: m.polygamma(1, x), log_diff_exp=log_diff_exp, fdim=lambda a, b: m.maximum(a - b, 0.0),
    fma=lambda a, b, c: a * b + c, lchoose=lchoose, binomial_coefficient_log=lchoose,
    choose=lambda n, k: math.comb(int(n), int(k)), fmod=lambda a, b: a - b * m.trunc(a / b),
    log_falling_factorial=_log_falling, falling_factorial=lambda x, n: m.exp(_log_falling(x, n)),
    log_rising_factorial=_log_rising, rising_factorial=lambda x, n: m.exp(_log_rising(x, n)),
    step=lambda x: where(x < 0, 0.0, 1.0), int_step=lambda x: int(x > 0), is_nan=lambda x: int(math.isnan(x)),
    is_inf=lambda x: int(math.isinf(x)), round=lambda x: m.trunc(x + m.copysign(0.5, x)),
    log_inv_logit_diff=lambda a, b: log_diff_exp(log_inv_logit(a), log_inv_logit(b)),
    std_normal_log_qf=lambda x: m.ndtri(m.exp(x)), ldexp=lambda a, b: a * 2.0**b,
    log_modified_bessel_first_kind=lambda v, x: m.log(m.ive(v, x)) + x,
)  # fmt: skip
table(
    pi=lambda: math.pi, e=lambda: math.e, sqrt2=lambda: math.sqrt(2), negative_infinity=lambda: -math.inf,
    FnNegInf=lambda: -math.inf, positive_infinity=lambda: math.inf, FnPosInf=lambda: math.inf,
    not_a_number=lambda: math.nan, FnNaN=lambda: math.nan, machine_precision=lambda: float(np.finfo(np.float64).eps),
)  # fmt: skip

# -- reductions -------------------------------------------------------------------------------------------------------


def _log_sum_exp(*values: Value) -> Value:
    return m.logsumexp(values[0]) if len(values) == 1 else m.logaddexp(*values)


def _log_mix(theta: Value, *values: Value) -> Value:
    if len(values) == 2:
        return m.logaddexp(m.log(theta) + values[0], m.log1p(-theta) + values[1])
    terms = m.logsumexp(m.log(theta) + values[0], -1)
    return m.sum(terms) if ndim(terms) else terms


def _extreme(name: str) -> Any:
    def extreme(*values: Value) -> Value:
        if known(*values):  # integers stay integers
            return number(getattr(np, name)(values))
        return getattr(m, name)(values[0]) if len(values) == 1 else getattr(m, f"{name}imum")(*values)

    return extreme


def _variance(x: Value) -> Value:
    away = x - m.mean(x)
    return m.sum(away * away) / (size(x) - 1)


def log_softmax(x: Value) -> Value:
    """The logarithms of the softmax of a vector, or of each row of a matrix."""
    total = m.logsumexp(x, -1)
    return x - (m.reshape(total, (*total.shape, 1)) if ndim(x) > 1 else total)


def _norm(x: Value) -> Value:
    return m.sqrt(m.sum(x * x))


def _dot(a: Value, b: Value) -> Value:
    return m.sum(a * b) if ndim(a) != 1 else m.matmul(a, b)


def _columns_dot(a: Value, b: Value) -> Value:
    return m.sum(a * b, 0)


def _rows_dot(a: Value, b: Value) -> Value:
    return m.sum(a * b, 1) if ndim(a) > 1 else a * b


table(
    log_sum_exp=_log_sum_exp, log_mix=_log_mix, sum=m.sum, max=_extreme("max"), min=_extreme("min"),
    variance=_variance, sd=lambda x: m.sqrt(_variance(x)), softmax=lambda x: m.exp(log_softmax(x)),
    log_softmax=log_softmax, dot_product=_dot, dot_self=lambda x: _dot(x, x), norm1=lambda x: m.sum(m.abs(x)),
    norm2=_norm, distance=lambda a, b: _norm(a - b), squared_distance=lambda a, b: _dot(a - b, a - b),
    cumulative_sum=lambda x: m.cumulative_sum(x, axis=0), columns_dot_product=_columns_dot, rows_dot_product=_rows_dot,
    columns_dot_self=lambda a: _columns_dot(a, a), rows_dot_self=lambda a: _rows_dot(a, a),
)  # fmt: skip
