"""Bases of vectors: their signs, and how they are spread for tests.

Of each vector the element of largest magnitude is positive (of singular vectors, that of the one with fewer elements).
Vectors of equal eigenvalues or singular values are not determined, so they have no derivative: it is NaN where they
agree to within rounding. What depends on the vectors, but not on their choice, is derived by rules of its own:
functions of matrices, norms, ``pinv``.
"""

from __future__ import annotations

import math

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.types import FLOATS, TensorType, takes
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import Array, Namespace


def spread_values(x: Array) -> Array:
    """Matrices whose values are well apart."""
    sizes = np.arange(1, min(x.shape[-2:]) + 1)
    result: Array = np.asarray(0.2 * x)
    result[..., sizes - 1, sizes - 1] += sizes
    return result


def fixed_sizes(name: str, x: TensorType) -> tuple[int, int]:
    rows, columns = x.shape[-2:] if x.ndim >= 2 else (None, None)
    if not isinstance(rows, int) or not isinstance(columns, int) or not takes(FLOATS, x.dtype):
        raise GraphError(f"{name}: expected matrices of floats, of sizes known when declared, actual {x}")
    return rows, columns


def flipped(x: Array, signs: Array) -> Array:
    """Columns times signs."""
    return np.asarray(x * signs[..., None, :])


def signs_of(x: Array) -> Array:
    """For each column ±1, so that times it the first element of largest magnitude is positive."""
    if not x.size:
        return np.ones((*x.shape[:-2], x.shape[-1]))
    place = np.argmax(np.abs(x), axis=-2)
    return np.asarray(np.copysign(1.0, np.take_along_axis(x, place[..., None, :], -2)[..., 0, :]))


ROUNDINGS = 4  # units in the last place of the larger of two values: nearer ones are as equal as rounding lets them be


def pairs(o: Namespace, x: Tensor) -> tuple[Tensor, Tensor]:
    """x[j] and x[i], for (i, j)."""
    return o.expand_dims(x, -2), o.expand_dims(x, -1)


def off_diagonal(o: Namespace, x: Tensor) -> Tensor:
    """Matrices with 0 on the diagonal, whatever is there."""
    grid = x.shape[-2:]
    return o.where(o.equal(o.iota(grid, 0), o.iota(grid, 1)), 0, x)


def one_over_differences(o: Namespace, x: Tensor) -> Tensor:
    """1/(x[j] − x[i]) at (i, j), 0 on the diagonal, elsewhere NaN where they are equal but for rounding."""
    right, left = pairs(o, x)
    difference = o.subtract(right, left)
    rounding = o.multiply(o.maximum(o.abs(right), o.abs(left)), ROUNDINGS * float(np.finfo(x.dtype).eps))
    same = o.less_equal(o.abs(difference), rounding)
    return off_diagonal(o, o.divide(o.where(same, math.nan, 1), o.where(same, 1, difference)))


def scaled_columns(o: Namespace, x: Tensor, factors: Tensor) -> Tensor:
    return o.multiply(x, o.expand_dims(factors, -2))
