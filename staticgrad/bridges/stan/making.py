"""Sizes of arrays, and functions that make, take apart and join them."""

from __future__ import annotations

from typing import Any

import numpy as np

from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.stan.form import Expr, Leaf
from staticgrad.bridges.stan.table import plain, table, typed
from staticgrad.bridges.stan.values import (
    Value,
    concat,
    known,
    m,
    ndim,
    number,
    real,
    reshape,
    shape,
    size,
    spread,
    stack,
    take,
    transpose,
)  # fmt: skip
from staticgrad.graph.optable import FUNCTIONS as o

# -- sizes, making ----------------------------------------------------------------------------------------------------


@typed("rows", "cols")
def _rows(scope: Any, expr: Expr) -> int:
    sizes, leaf = shape(scope.value(expr.args[0])), expr.args[0].leaf
    if leaf is Leaf.MATRIX:
        return sizes[-2 if expr.name == "rows" else -1]
    return sizes[-1] if (leaf is Leaf.VECTOR) == (expr.name == "rows") else 1


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
    linspaced_int_array=lambda n, a, b: np.linspace(a, b, n).astype(np.int64),
    uniform_simplex=lambda n: np.full(n, 1 / n),
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


def _rank(x: Value, at: int) -> int:
    """The number of elements that are less than one of them."""
    if not known(x):
        raise RefusedError("the rank of what depends on parameters is no known number")
    return int(np.sum(np.asarray(x) < x[at - 1]))


table(
    rank=_rank, quantile=lambda x, p: number(np.quantile(x, p)) if known(x) else o.quantile(x, p),
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
