"""Operators and elementwise functions, reductions, and the making and taking apart of arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.stan.form import Expr, Leaf
from staticgrad.bridges.stan.table import plain, table, typed
from staticgrad.bridges.stan.values import (
    Value, concat, either, known, m, ndim, number, real, reshape, shape, size, spread, stack, take, tensor, transpose, where,
)  # fmt: skip
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

LOG_2 = math.log(2)
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


def log1m_exp(x: Value) -> Value:
    return m.log1mexp(x)


def log1p_exp(x: Value) -> Value:
    return m.softplus(x)


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


_NAMED = dict(
    exp="exp", log="log", sqrt="sqrt", sin="sin", cos="cos", tan="tan", asin="asin", acos="acos", atan="atan",
    sinh="sinh", cosh="cosh", tanh="tanh", asinh="asinh", acosh="acosh", atanh="atanh", exp2="exp2", expm1="expm1",
    log1p="log1p", log2="log2", log10="log10", erf="erf", erfc="erfc", lgamma="lgamma", digamma="digamma", floor="floor",
    ceil="ceil", trunc="trunc", inv_logit="sigmoid", Phi="ndtr", inv_Phi="ndtri", std_normal_qf="ndtri", atan2="atan2",
    hypot="hypot", fmax="maximum", fmin="minimum", lbeta="betaln", log1p_exp="softplus", log1m_exp="log1mexp",
    lmultiply="xlogy", multiply_log="xlogy", gamma_p="gammainc", gamma_q="gammaincc", inc_beta="betainc",
)  # fmt: skip


def _named(op: str) -> Any:
    return lambda *values: getattr(m, op)(*values)


table(**{name: _named(op) for name, op in _NAMED.items()})
table(
    abs=lambda x: m.abs(x) if not known(x) else number(np.abs(x)), fabs=lambda x: m.abs(x),
    square=lambda x: x * x, inv=lambda x: 1.0 / x, inv_sqrt=lambda x: 1.0 / m.sqrt(x), inv_square=lambda x: 1.0 / (x * x),
    cbrt=lambda x: m.sign(x) * m.exp(m.log(m.abs(x)) / 3), log1m=lambda x: m.log1p(-x),
    logit=lambda x: m.log(x) - m.log1p(-x), log_inv_logit=log_inv_logit, log1m_inv_logit=log1m_inv_logit,
    inv_cloglog=lambda x: -m.expm1(-m.exp(x)), cloglog=lambda x: m.log(-m.log1p(-x)), Phi_approx=_phi_approx,
    log_Phi=lambda x: m.log_ndtr(x), tgamma=lambda x: m.exp(m.lgamma(x)), trigamma=_trigamma,
    log_diff_exp=log_diff_exp, fdim=lambda a, b: m.maximum(a - b, 0.0), fma=lambda a, b, c: a * b + c,
    lchoose=lchoose, binomial_coefficient_log=lchoose, choose=lambda n, k: math.comb(int(n), int(k)),
    log_falling_factorial=log_falling_factorial,
    log_rising_factorial=lambda x, n: m.lgamma(real(x) + n) - m.lgamma(real(x)),
    falling_factorial=lambda x, n: m.exp(log_falling_factorial(x, n)),
    rising_factorial=lambda x, n: m.exp(m.lgamma(real(x) + n) - m.lgamma(real(x))), fmod=lambda a, b: a - b * m.trunc(a / b),
    step=_step, int_step=lambda x: int(x > 0), is_nan=lambda x: int(math.isnan(x)), is_inf=lambda x: int(math.isinf(x)),
    round=lambda x: m.trunc(x + m.copysign(0.5, x)), log_inv_logit_diff=lambda a, b: log_diff_exp(-m.softplus(-a), -m.softplus(-b)),
    ldexp=lambda a, b: a * 2.0**b, logical_negation=_not,
)  # fmt: skip
table(
    pi=lambda: math.pi, e=lambda: math.e, sqrt2=lambda: math.sqrt(2), log2_=lambda: LOG_2, FnNegInf=lambda: -math.inf,
    negative_infinity=lambda: -math.inf, positive_infinity=lambda: math.inf, not_a_number=lambda: math.nan,
    machine_precision=lambda: float(np.finfo(np.float64).eps), log10_=lambda: math.log(10), FnPosInf=lambda: math.inf,
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
        if known(*values):
            return number(getattr(np, name)(values[0])) if len(values) == 1 else getattr(__builtins_, name)(*values)
        return getattr(m, name)(values[0]) if len(values) == 1 else getattr(m, f"{name}imum")(*values)

    return extreme


class __builtins_:
    max, min = staticmethod(max), staticmethod(min)


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
    variance=_variance, sd=lambda x: m.sqrt(_variance(x)), softmax=lambda x: m.exp(log_softmax(x)), log_softmax=log_softmax,
    dot_product=dot, dot_self=lambda x: dot(x, x), distance=lambda a, b: _norm(a - b), norm2=_norm,
    squared_distance=lambda a, b: dot(a - b, a - b) if ndim(a) else (a - b) * (a - b), norm1=lambda x: m.sum(m.abs(x)),
    cumulative_sum=lambda x: m.cumsum(x), columns_dot_product=_columns_dot, rows_dot_product=_rows_dot,
    columns_dot_self=lambda a: _columns_dot(a, a), rows_dot_self=lambda a: _rows_dot(a, a),
)  # fmt: skip

# -- sizes, making ----------------------------------------------------------------------------------------------------


@typed("rows", "cols")
def _rows(scope: Any, expr: Expr) -> int:
    sizes, leaf = shape(scope.value(expr.args[0])), expr.args[0].leaf
    if leaf is Leaf.MATRIX:
        return sizes[-2 if expr.name == "rows" else -1]
    return sizes[-1] if (leaf is Leaf.VECTOR) == (expr.name == "rows") else 1


def _filled(*sizes: Any, integer: bool = False) -> Any:
    return lambda x, *counts: spread(x if known(x) else x, counts)


def _as_array(*values: Value) -> Value:
    if all(known(value) and isinstance(value, (int, np.integer)) for value in values):
        return np.asarray(values, np.int64)
    return stack([real(value) for value in values])


def _one_hot(count: int, at: int) -> Any:
    return np.eye(count)[at - 1]


table(
    size=lambda x: shape(x)[0] if ndim(x) else 1, num_elements=size, FnLength=lambda x: shape(x)[0],
    dims=lambda x: np.asarray(shape(x), np.int64), rep_vector=lambda x, n: spread(real(x), (n,)),
    rep_row_vector=lambda x, n: spread(real(x), (n,)), rep_array=lambda x, *counts: spread(x, (*counts, *shape(x))),
    FnMakeArray=_as_array, FnMakeRowVec=_as_array, zeros_vector=lambda n: np.zeros(n), ones_vector=lambda n: np.ones(n),
    zeros_row_vector=lambda n: np.zeros(n), ones_row_vector=lambda n: np.ones(n), zeros_array=lambda n: np.zeros(n),
    ones_array=lambda n: np.ones(n), zeros_int_array=lambda n: np.zeros(n, np.int64),
    ones_int_array=lambda n: np.ones(n, np.int64), linspaced_vector=lambda n, a, b: np.linspace(a, b, n),
    linspaced_row_vector=lambda n, a, b: np.linspace(a, b, n), linspaced_array=lambda n, a, b: np.linspace(a, b, n),
    linspaced_int_array=lambda n, a, b: np.linspace(a, b, n).astype(np.int64), uniform_simplex=lambda n: np.full(n, 1 / n),
    one_hot_vector=_one_hot, one_hot_row_vector=_one_hot, one_hot_array=_one_hot, identity_matrix=lambda n: np.eye(n),
    one_hot_int_array=lambda n, k: np.eye(n, dtype=np.int64)[k - 1],
)  # fmt: skip


@typed("rep_matrix")
def _rep_matrix(scope: Any, expr: Expr) -> Value:
    x, *counts = scope.values(expr.args)
    leaf = expr.args[0].leaf
    if leaf is Leaf.VECTOR:
        return spread(reshape(x, (-1, 1)), (shape(x)[0], counts[0]))
    return spread(real(x), counts if leaf is not Leaf.ROW else (counts[0], shape(x)[0]))


# -- taking apart and joining -----------------------------------------------------------------------------------------


def _part(first: int, count: int) -> slice:
    return slice(first - 1, first - 1 + count)


def _reversed(x: Value) -> Value:
    return x[::-1] if known(x) else o.flip(x, axis=0)


def _sorted(x: Value, descending: bool = False) -> Value:
    made = number(np.sort(x)) if known(x) else o.sort(x)
    return _reversed(made) if descending else made


def _sort_indices(x: Value, sign: int) -> Any:
    if not known(x):
        raise RefusedError("the order of what depends on parameters is no known index")
    return np.argsort(sign * np.asarray(x), kind="stable") + 1


table(
    segment=lambda x, first, count: take(x, [_part(first, count)]), head=lambda x, n: take(x, [slice(0, n)]),
    tail=lambda x, n: take(x, [slice(shape(x)[0] - n, shape(x)[0])]), reverse=_reversed,
    block=lambda x, i, j, rows, cols: take(x, [_part(i, rows), _part(j, cols)]), sort_asc=_sorted,
    sort_desc=lambda x: _sorted(x, True), append_array=lambda a, b: concat([a, b]),
    sort_indices_asc=lambda x: _sort_indices(x, 1), sort_indices_desc=lambda x: _sort_indices(x, -1),
    diagonal=lambda x: m.diagonal(x), to_row_vector=lambda x: _column_major(x), to_int=lambda x: int(x),
)  # fmt: skip


def _column_major(x: Value) -> Value:
    return reshape(transpose(real(x)), (-1,))


@typed("to_vector", "to_array_1d")
def _to_vector(scope: Any, expr: Expr) -> Value:
    x = scope.value(expr.args[0])
    return _column_major(x) if expr.args[0].leaf is Leaf.MATRIX and not expr.args[0].depth else reshape(x, (-1,))


@plain("to_array_2d")
def _same(x: Value) -> Value:
    return x


@typed("to_matrix")
def _to_matrix(scope: Any, expr: Expr) -> Value:
    x, *counts = scope.values(expr.args)
    arg = expr.args[0]
    if not counts:
        wide = {Leaf.VECTOR: (-1, 1), Leaf.ROW: (1, -1)}.get(arg.leaf) if not arg.depth else None
        return reshape(real(x), wide) if wide else real(x)
    rows, cols = counts[:2]
    by_column = len(counts) < 3 or counts[2]
    flat = real(x) if arg.leaf is not Leaf.MATRIX else _column_major(x)
    return transpose(reshape(flat, (cols, rows))) if by_column else reshape(flat, (rows, cols))


@typed("append_row", "append_col")
def _append(scope: Any, expr: Expr) -> Value:
    a, b = (real(value) for value in scope.values(expr.args))
    rows = expr.name == "append_row"
    along = Leaf.VECTOR if rows else Leaf.ROW  # what has its elements along the axis that grows
    if expr.leaf is not Leaf.MATRIX:
        return concat([reshape(x, (-1,)) for x in (a, b)])
    flat = Leaf.ROW if rows else Leaf.VECTOR
    parts = [
        reshape(x, (1, -1) if rows else (-1, 1)) if arg.leaf is flat else x for x, arg in zip((a, b), expr.args)
    ]
    assert all(arg.leaf is not along for arg in expr.args)
    return concat(parts, 0 if rows else 1)


@typed("reduce_sum", "reduce_sum_static")
def _reduce_sum(scope: Any, expr: Expr) -> Value:
    """The partial sum of all elements: one slice."""
    name, (sliced, _, *shared) = expr.args[0].name, scope.values(expr.args[1:])
    return scope.call(name, [sliced, 1, shape(sliced)[0], *shared]) if shape(sliced)[0] else 0.0


@typed("target", "FnTarget", "get_lp")
def _target(scope: Any, expr: Expr) -> Value:
    return scope.total()


def spread_all(values: Sequence[Value]) -> list[Value]:
    """Scalars and arrays of one shape, all of that shape."""
    wide = next((shape(value) for value in values if ndim(value)), ())
    return [spread(real(value), wide) for value in values]


assert isinstance(Tensor, type)
