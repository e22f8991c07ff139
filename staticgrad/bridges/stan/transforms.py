"""Constraints of parameters: the values that follow from unconstrained numbers, and the logarithm of the determinant of
the transform's Jacobian.

The transforms are those of the Stan Reference Manual, "Constraint Transforms". A transform is a function of a tensor
``x``, whose last axis has the unconstrained numbers of one value (the axes in front are those of arrays), and of what
the value is declared with. It gives the value and the terms of the logarithm, in an array of any shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.stan.form import Stmt
from staticgrad.bridges.stan.values import Value, known, m, ndim, real, size, spread, transpose
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

Result = tuple[Value, list[Value]]
BOUNDED = ("Identity", "Lower", "Upper", "LowerUpper", "Offset", "Multiplier", "OffsetMultiplier")


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
        matrix = "SMatrix" in (stmt.sized.base, stmt.sized.element)
        if name in BOUNDED:
            return self._bounded(scope, stmt, name, sizes, matrix)
        if name not in STRUCTURED:
            raise RefusedError(f"the parameter {stmt.name} has a constraint that is not converted: {name}", stmt)
        count, transform = STRUCTURED[name]
        ranks = 2 if matrix else 1
        outer, own = sizes[: len(sizes) - ranks], sizes[len(sizes) - ranks :]
        x = self._read(stmt.name, (*outer, count(*own)))
        if 0 in sizes:
            return np.zeros(sizes)
        value, terms = transform(x, own)
        self._add(scope, terms)
        return value

    def _read(self, name: str, sizes: Sequence[int]) -> Value:
        count = math.prod(sizes)
        self.names += [name] if not sizes else [f"{name}.{i + 1}" for i in range(count)]
        start, self.used = self.used, self.used + count
        if self.x is None:
            return np.zeros(tuple(sizes)) if sizes else 0.0
        return o.reshape(self.x[start : self.used], tuple(sizes)) if sizes else self.x[start]

    def _add(self, scope: Any, terms: Sequence[Value]) -> None:
        if self.jacobian:
            for term in terms:
                scope.add(term)

    def _bounded(self, scope: Any, stmt: Stmt, name: str, sizes: tuple[int, ...], matrix: bool) -> Value:
        if matrix:  # column by column
            x = transpose(self._read(stmt.name, (*sizes[:-2], sizes[-1], sizes[-2])))
        else:
            x = self._read(stmt.name, sizes)
        assert stmt.constraint is not None
        if size(x) == 0:
            return x
        bounds = [real(value) for value in scope.values(stmt.constraint.args)]
        value, terms = BOUNDS[name](x, *bounds)
        self._add(scope, [spread(term, sizes) if ndim(term) or sizes else term for term in terms])
        return value


def _lower(x: Value, low: Value) -> Result:
    if known(low) and np.all(np.isneginf(low)):
        return x, []
    return m.exp(x) + low, [x]


def _upper(x: Value, high: Value) -> Result:
    if known(high) and np.all(np.isposinf(high)):
        return x, []
    return high - m.exp(x), [x]


def _interval(x: Value, low: Value, high: Value) -> Result:
    if known(low) and np.all(np.isneginf(low)):
        return _upper(x, high)
    if known(high) and np.all(np.isposinf(high)):
        return _lower(x, low)
    wide = high - low
    return low + wide * m.sigmoid(x), [m.log(wide) - m.softplus(x) - m.softplus(-x)]


def _affine(x: Value, offset: Value, multiplier: Value) -> Result:
    return offset + multiplier * x, [m.log(multiplier)]


BOUNDS: dict[str, Callable[..., Result]] = {
    "Identity": lambda x: (x, []),
    "Lower": _lower,
    "Upper": _upper,
    "LowerUpper": _interval,
    "Offset": lambda x, offset: (offset + x, []),
    "Multiplier": lambda x, multiplier: _affine(x, 0.0, multiplier),
    "OffsetMultiplier": _affine,
}


def _ordered(x: Tensor, own: Sequence[int]) -> Result:
    first, rest = x[..., :1], x[..., 1:]
    return o.cumulative_sum(o.concat([first, o.exp(rest)], axis=-1), axis=-1), [rest]


def _positive_ordered(x: Tensor, own: Sequence[int]) -> Result:
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


def _sum_to_zero(x: Tensor, own: Sequence[int]) -> Result:
    if len(own) == 1:
        return o.matmul(x, _zero_sum_basis(own[0])), []
    rows, cols = own
    grid = o.swapaxes(o.reshape(x, (*x.shape[:-1], cols - 1, rows - 1)), -1, -2)
    return o.matmul(o.matmul(_last_given_basis(rows).T, grid), _last_given_basis(cols)), []


def _simplex(x: Tensor, own: Sequence[int]) -> Result:
    (count,) = own
    logs = o.matmul(x, _zero_sum_basis(count))
    total = o.logsumexp(logs, axis=-1, keepdims=True)
    return o.exp(logs - total), [total * -count + 0.5 * math.log(count)]


def _unit_vector(x: Tensor, own: Sequence[int]) -> Result:
    squares = o.sum(x * x, axis=-1, keepdims=True)
    return x / o.sqrt(squares), [squares * -0.5]


def _matrix(rows: Sequence[Sequence[Value]], like: Tensor) -> Tensor:
    """A matrix of its elements, each with the axes of arrays that ``like`` has."""
    full = [[o.broadcast_to(o.asarray(each, dtype=like.dtype), like.shape) for each in row] for row in rows]
    return o.stack([o.stack(row, axis=-1) for row in full], axis=-2)


def _log1m_square(z: Tensor) -> Tensor:
    return o.log1p(-(z * z))


def _cholesky_corr(x: Tensor, own: Sequence[int]) -> Result:
    count, z, at = own[0], o.tanh(x), 0
    terms: list[Value] = [_log1m_square(z)]
    rows: list[list[Value]] = [[1.0] + [0.0] * (count - 1)]
    like = o.sum(x, axis=-1) if x.ndim > 1 else o.zeros((), dtype=x.dtype)
    for i in range(1, count):
        row, squares = [z[..., at]], z[..., at] * z[..., at]
        at += 1
        for _ in range(1, i):
            terms.append(0.5 * o.log1p(-squares))
            row.append(z[..., at] * o.sqrt(1.0 - squares))
            squares = squares + row[-1] * row[-1]
            at += 1
        rows.append([*row, o.sqrt(1.0 - squares), *[0.0] * (count - i - 1)])
    return _matrix(rows, like), terms


def _corr_matrix(x: Tensor, own: Sequence[int]) -> Result:
    """By partial correlations, column by column."""
    count, z, at = own[0], o.tanh(x), 0
    terms: list[Value] = [_log1m_square(z)]
    like = o.sum(x, axis=-1) if x.ndim > 1 else o.zeros((), dtype=x.dtype)
    columns: list[list[Value]] = []
    left: list[Value] = [1.0] * count  # of each row what its squares leave
    for k in range(count - 1):
        column: list[Value] = [0.0] * k + [1.0 if k == 0 else o.sqrt(left[k])]
        for i in range(k + 1, count):
            partial = z[..., at]
            at += 1
            column.append(partial if k == 0 else partial * o.sqrt(left[i]))
            left[i] = left[i] * (1.0 - partial * partial)
            if count - k - 2:
                terms.append(0.5 * (count - k - 2) * _log1m_square(partial))
        columns.append(column)
    columns.append([0.0] * (count - 1) + [1.0 if count == 1 else o.sqrt(left[-1])])
    factor = _matrix(list(zip(*columns)), like)
    return o.matmul(factor, o.swapaxes(factor, -1, -2)), terms


def _cholesky_rows(x: Tensor, rows: int, cols: int) -> tuple[Tensor, list[Tensor]]:
    """A lower triangular matrix, row by row, and the logarithms of its diagonal."""
    like = o.sum(x, axis=-1) if x.ndim > 1 else o.zeros((), dtype=x.dtype)
    at, made, logs = 0, [], []
    for i in range(rows):
        row: list[Value] = [x[..., at + j] for j in range(min(i, cols))]
        at += len(row)
        if i < cols:
            logs.append(x[..., at])
            row += [o.exp(x[..., at]), *[0.0] * (cols - i - 1)]
            at += 1
        made.append(row)
    return _matrix(made, like), logs


def _cholesky_cov(x: Tensor, own: Sequence[int]) -> Result:
    factor, logs = _cholesky_rows(x, *own)
    return factor, list(logs)


def _cov_matrix(x: Tensor, own: Sequence[int]) -> Result:
    count = own[0]
    factor, logs = _cholesky_rows(x, count, count)
    terms: list[Value] = [log * (count - k + 1) for k, log in enumerate(logs)]
    twos = o.full(x.shape[:-1], count * math.log(2), dtype=x.dtype)
    return o.matmul(factor, o.swapaxes(factor, -1, -2)), [*terms, twos]


def _pairs(count: int, *rest: int) -> int:
    return count * (count - 1) // 2


# For each constraint how many numbers are free, of the value's own sizes, and the transform.
STRUCTURED: dict[str, tuple[Callable[..., int], Callable[[Tensor, Sequence[int]], Result]]] = {
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
