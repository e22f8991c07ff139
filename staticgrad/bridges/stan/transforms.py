"""Constraints of parameters: the values that follow from unconstrained numbers, and the logarithm of the determinant of
the transform's Jacobian.

The transforms are those of the Stan Reference Manual, "Constraint Transforms". ``TRANSFORMS`` has for each constraint
how many numbers are free, of the value's own sizes (None: one for each element), and a function of a tensor ``x``,
whose last axis has the unconstrained numbers of one value (the axes in front are those of arrays), of the own sizes,
and of the bounds that the value is declared with. It gives the value and the terms of the logarithm, in arrays of any
shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.stan.form import Stmt
from staticgrad.bridges.stan.values import Value, known, m, real, spread, transpose
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

Result = tuple[Value, list[Value]]
Sizes = tuple[int, ...]


class Parameters:
    """The parameters of a program, read one after the other from a vector ``x`` of unconstrained numbers.

    Attributes:
        used: how many numbers were read.
        names: for each unconstrained number the parameter and its place, as ``tau`` or ``theta.3``.
    """

    def __init__(self, x: Tensor | None, jacobian: bool = True) -> None:
        self.x, self.jacobian = x, jacobian
        self.used = 0
        self.names: list[str] = []

    def __call__(self, scope: Any, stmt: Stmt) -> Value:
        """The value of a parameter that a statement declares."""
        assert stmt.sized is not None
        assert stmt.constraint is not None
        name, sizes = stmt.constraint.name, scope.sizes(stmt.sized)
        if name not in TRANSFORMS:
            raise RefusedError(f"the parameter {stmt.name} has a constraint that is not converted: {name}", stmt)
        free, transform = TRANSFORMS[name]
        matrix = "SMatrix" in (stmt.sized.base, stmt.sized.element)
        ranks = 2 if matrix else 1
        outer, own = sizes[: len(sizes) - ranks], sizes[len(sizes) - ranks :]
        x = self._read(stmt.name, (*outer, *(own[::-1] if free is None else (free(*own),))))
        if self.x is None or 0 in sizes:
            return np.zeros(sizes)
        x = transpose(x) if matrix and free is None else x  # which is read column by column
        value, terms = transform(x, own, *(real(bound) for bound in scope.values(stmt.constraint.args)))
        for term in terms if self.jacobian else ():
            scope.add(term if free is not None else spread(term, sizes))
        return value

    def _read(self, name: str, sizes: Sizes) -> Value:
        count = math.prod(sizes)
        self.names += [f"{name}.{i + 1}" for i in range(count)] if sizes else [name]
        start, self.used = self.used, self.used + count
        if self.x is None:
            return None
        return o.reshape(self.x[start : self.used], sizes) if sizes else self.x[start]


def _lower(x: Value, own: Sizes, low: Value) -> Result:
    if known(low) and np.all(np.isneginf(low)):
        return x, []
    return m.exp(x) + low, [x]


def _upper(x: Value, own: Sizes, high: Value) -> Result:
    if known(high) and np.all(np.isposinf(high)):
        return x, []
    return high - m.exp(x), [x]


def _interval(x: Value, own: Sizes, low: Value, high: Value) -> Result:
    if known(low) and np.all(np.isneginf(low)):
        return _upper(x, own, high)
    if known(high) and np.all(np.isposinf(high)):
        return _lower(x, own, low)
    wide = high - low
    return low + wide * m.sigmoid(x), [m.log(wide) - m.softplus(x) - m.softplus(-x)]


def _affine(x: Value, own: Sizes, offset: Value, multiplier: Value) -> Result:
    return offset + multiplier * x, [m.log(multiplier)]


def _ordered(x: Tensor, own: Sizes) -> Result:
    first, rest = x[..., :1], x[..., 1:]
    return o.cumulative_sum(o.concat([first, o.exp(rest)], axis=-1), axis=-1), [rest]


def _positive_ordered(x: Tensor, own: Sizes) -> Result:
    return o.cumulative_sum(o.exp(x), axis=-1), [x]


def _zero_sum_basis(count: int) -> Any:
    """An orthonormal basis, in rows, of the vectors of ``count`` elements that add up to zero."""
    basis = np.zeros((count - 1, count))
    for i in range(1, count):
        basis[i - 1, :i] = 1 / math.sqrt(i * (i + 1))
        basis[i - 1, i] = -i / math.sqrt(i * (i + 1))
    return basis


def _last_given_basis(count: int) -> Any:
    """The basis of matrices, in which the last element follows from the others."""
    basis = np.zeros((count - 1, count))
    for i in range(count - 1):
        basis[i, :i] = basis[i, -1] = -1 / math.sqrt((i + 1) * (i + 2))
        basis[i, i] = (i + 1) / math.sqrt((i + 1) * (i + 2))
    return basis


def _sum_to_zero(x: Tensor, own: Sizes) -> Result:
    if len(own) == 1:
        return o.matmul(x, _zero_sum_basis(own[0])), []
    rows, cols = own
    grid = o.swapaxes(o.reshape(x, (*x.shape[:-1], cols - 1, rows - 1)), -1, -2)
    return o.matmul(o.matmul(_last_given_basis(rows).T, grid), _last_given_basis(cols)), []


def _simplex(x: Tensor, own: Sizes) -> Result:
    (count,) = own
    logs = o.matmul(x, _zero_sum_basis(count))
    total = o.logsumexp(logs, axis=-1, keepdims=True)
    return o.exp(logs - total), [total * -count + 0.5 * math.log(count)]


def _unit_vector(x: Tensor, own: Sizes) -> Result:
    squares = o.sum(x * x, axis=-1, keepdims=True)
    return x / o.sqrt(squares), [squares * -0.5]


def _placed(x: Tensor, rows: int, cols: int, where: tuple[Any, Any]) -> Tensor:
    """Matrices of these sizes whose elements at ``where`` are the numbers, and zero elsewhere."""
    index = np.full((rows, cols), x.shape[-1])
    index[where] = np.arange(len(where[0]))
    padded = o.concat([x, o.zeros((*x.shape[:-1], 1), dtype=x.dtype)], axis=-1)
    return o.take(padded, index, axis=-1)


def _partial_correlations(x: Tensor, count: int, where: tuple[Any, Any], weights: Any) -> tuple[Tensor, list[Value]]:
    """The Cholesky factor of a correlation matrix, of partial correlations at these places, and the terms that weigh
    the logarithms of what they leave."""
    partial = _placed(o.tanh(x), count, count, where)
    left = o.log1p(-(partial * partial))
    before = np.triu(np.ones((count, count)), 1)  # what all columns to the left of one leave
    factor = (partial + np.eye(count)) * o.exp(0.5 * o.matmul(left, before)) * np.tri(count)
    return factor, [left * weights]


def _cholesky_corr(x: Tensor, own: Sizes) -> Result:
    """By partial correlations, row by row."""
    rows, cols = np.indices((own[0], own[0]))
    return _partial_correlations(x, own[0], np.tril_indices(own[0], -1), (rows - cols + 1) * 0.5)


def _corr_matrix(x: Tensor, own: Sizes) -> Result:
    """By partial correlations, column by column."""
    weights = np.arange(own[0], 0, -1) * 0.5
    factor, terms = _partial_correlations(x, own[0], np.triu_indices(own[0], 1)[::-1], weights)
    return o.matmul(factor, o.swapaxes(factor, -1, -2)), terms


def _cholesky_cov(x: Tensor, own: Sizes) -> Result:
    """Row by row, the diagonal by its logarithm."""
    rows, cols = own
    lower = _placed(x, rows, cols, np.tril_indices(rows, 0, cols))
    logs = o.diagonal(lower)
    eye = np.eye(rows, cols)
    return o.where(eye > 0, o.exp(lower * eye), lower), [logs]


def _cov_matrix(x: Tensor, own: Sizes) -> Result:
    count = own[0]
    factor, (logs,) = _cholesky_cov(x, (count, count))
    terms = logs * np.arange(count + 1.0, 1.0, -1.0) + math.log(2)
    return o.matmul(factor, o.swapaxes(factor, -1, -2)), [terms]


def _pairs(count: int, *rest: int) -> int:
    return count * (count - 1) // 2


TRANSFORMS: dict[str, tuple[Callable[..., int] | None, Callable[..., Result]]] = {
    "Identity": (None, lambda x, own: (x, [])),
    "Lower": (None, _lower),
    "Upper": (None, _upper),
    "LowerUpper": (None, _interval),
    "Offset": (None, lambda x, own, offset: (offset + x, [])),
    "Multiplier": (None, lambda x, own, multiplier: _affine(x, own, 0.0, multiplier)),
    "OffsetMultiplier": (None, _affine),
    "Ordered": (lambda k: k, _ordered),
    "PositiveOrdered": (lambda k: k, _positive_ordered),
    "Simplex": (lambda k: k - 1, _simplex),
    "UnitVector": (lambda k: k, _unit_vector),
    "SumToZero": (lambda *sizes: math.prod(k - 1 for k in sizes), _sum_to_zero),
    "CholeskyCorr": (_pairs, _cholesky_corr),
    "Correlation": (_pairs, _corr_matrix),
    "CholeskyCov": (lambda r, c: c * (c + 1) // 2 + (r - c) * c, _cholesky_cov),
    "Covariance": (lambda k, *rest: k + _pairs(k), _cov_matrix),
}
