"""Sizes of arrays, and functions that make, take apart and join them."""

from __future__ import annotations

from typing import Any

import numpy as np

from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.stan.form import Expr, Leaf
from staticgrad.bridges.stan.table import table, typed
from staticgrad.bridges.stan.values import (  # fmt: skip
    INTS,
    Value,
    concat,
    known,
    m,
    ndim,
    real,
    reshape,
    shape,
    size,
    spread,
    stack,
    take,
    transpose,
)

# -- sizes, making ----------------------------------------------------------------------------------------------------


@typed("rows", "cols")
def _rows(scope: Any, expr: Expr) -> int:
    sizes, leaf = shape(scope.value(expr.args[0])), expr.args[0].leaf
    if leaf is Leaf.MATRIX:
        return sizes[-2 if expr.name == "rows" else -1]
    return sizes[-1] if (leaf is Leaf.VECTOR) == (expr.name == "rows") else 1


def _as_array(*values: Value) -> Value:
    if all(isinstance(value, INTS) for value in values):
        return np.asarray(values, np.int64)
    return stack([real(value) for value in values])


def _repeated(x: Value, n: int) -> Value:
    return spread(real(x), (n,))


def _spaced(n: int, low: float, high: float) -> Any:
    return np.linspace(low, high, n)


def _one_hot(count: int, at: int) -> Any:
    return np.eye(count)[at - 1]


table(**{f"zeros_{kind}": lambda n: np.zeros(n) for kind in ("vector", "row_vector", "array")})
table(**{f"ones_{kind}": lambda n: np.ones(n) for kind in ("vector", "row_vector", "array")})
table(**{f"linspaced_{kind}": _spaced for kind in ("vector", "row_vector", "array")})
table(**{f"one_hot_{kind}": _one_hot for kind in ("vector", "row_vector", "array")})
table(
    size=lambda x: shape(x)[0] if ndim(x) else 1, num_elements=size, FnLength=lambda x: shape(x)[0],
    dims=lambda x: np.asarray(shape(x), np.int64), rep_vector=_repeated, rep_row_vector=_repeated,
    rep_array=lambda x, *counts: spread(x, (*counts, *shape(x))), FnMakeArray=_as_array, FnMakeRowVec=_as_array,
    zeros_int_array=lambda n: np.zeros(n, np.int64), ones_int_array=lambda n: np.ones(n, np.int64),
    linspaced_int_array=lambda n, low, high: _spaced(n, low, high).astype(np.int64), identity_matrix=np.eye,
    uniform_simplex=lambda n: np.full(n, 1 / n), one_hot_int_array=lambda n, at: _one_hot(n, at).astype(np.int64),
)  # fmt: skip


@typed("rep_matrix")
def _rep_matrix(scope: Any, expr: Expr) -> Value:
    x, *counts = scope.values(expr.args)
    leaf = expr.args[0].leaf
    if leaf is Leaf.VECTOR:
        return spread(reshape(x, (-1, 1)), (shape(x)[0], counts[0]))
    return spread(real(x), counts if leaf is not Leaf.ROW else (counts[0], shape(x)[0]))


# -- taking apart and joining -----------------------------------------------------------------------------------------


def _reversed(x: Value) -> Value:
    return m.flip(x, axis=0)


def _sort_indices(x: Value, sign: int) -> Any:
    if not known(x):
        raise RefusedError("the order of what depends on parameters is no known index")
    return np.argsort(sign * np.asarray(x), kind="stable") + 1


def _rank(x: Value, at: int) -> int:
    """The number of elements that are less than one of them."""
    if not known(x):
        raise RefusedError("the rank of what depends on parameters is no known number")
    return int(np.sum(np.asarray(x) < x[at - 1]))


def _column_major(x: Value) -> Value:
    return reshape(transpose(real(x)), (-1,))


table(
    rank=_rank, quantile=m.quantile, tail=lambda x, n: take(x, [slice(shape(x)[0] - n, shape(x)[0])]),
    reverse=_reversed, sort_asc=m.sort, sort_desc=lambda x: _reversed(m.sort(x)),
    append_array=lambda a, b: concat([a, b]), sort_indices_asc=lambda x: _sort_indices(x, 1),
    sort_indices_desc=lambda x: _sort_indices(x, -1), to_row_vector=_column_major, to_int=int, to_array_2d=lambda x: x,
)  # fmt: skip


@typed("to_vector", "to_array_1d")
def _to_vector(scope: Any, expr: Expr) -> Value:
    x = scope.value(expr.args[0])
    return _column_major(x) if expr.args[0].leaf is Leaf.MATRIX and not expr.args[0].depth else reshape(x, (-1,))


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
    if expr.leaf is not Leaf.MATRIX:
        return concat([reshape(x, (-1,)) for x in (a, b)])
    flat = Leaf.ROW if rows else Leaf.VECTOR
    parts = [reshape(x, (1, -1) if rows else (-1, 1)) if arg.leaf is flat else x for x, arg in zip((a, b), expr.args)]
    return concat(parts, 0 if rows else 1)


@typed("reduce_sum", "reduce_sum_static")
def _reduce_sum(scope: Any, expr: Expr) -> Value:
    """The partial sum of all elements: one slice."""
    name, (sliced, _, *shared) = expr.args[0].name, scope.values(expr.args[1:])
    return scope.call(name, [sliced, 1, shape(sliced)[0], *shared]) if shape(sliced)[0] else 0.0


@typed("target", "FnTarget", "get_lp")
def _target(scope: Any, expr: Expr) -> Value:
    return scope.total()
