"""The base of ops of matrices: types, references and cases of square ones.

Matrices are the last two axes; leading axes are a batch. Where NumPy raises ``LinAlgError`` a compiled program gives
NaN or infinity instead (a matrix that is not positive definite, or singular), which ``check_numerics`` finds and names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.types import FLOATS, TensorType, takes
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS, Array, Case, Range
from staticgrad.ops.contraction import require_equal

UNIT = Range(-1.0, 1.0)


def square_type(name: str) -> Callable[..., TensorType]:
    def infer(attrs: object, x: TensorType) -> TensorType:
        check_square(name, x)
        return x

    return infer


def check_square(name: str, x: TensorType) -> None:
    """Check that a type is one of square matrices of floats.

    Raises:
        GraphError: it is not.
    """
    if x.ndim < 2 or not takes(FLOATS, x.dtype):
        raise GraphError(f"{name}: expected matrices of floats, actual {x}")
    require_equal(x.shape[-2], x.shape[-1], name, f"columns as rows of {x}")


def transpose_of(x: Tensor) -> Tensor:
    """Each matrix of a batch transposed."""
    return FUNCTIONS.matrix_transpose(x)


def symmetric(x: Tensor) -> Tensor:
    """(x + xᵀ)/2: of a symmetric matrix itself, bit for bit."""
    return FUNCTIONS.multiply(FUNCTIONS.add(x, transpose_of(x)), 0.5)


def each_or_nan(function: Callable[..., Any], *arrays: Array) -> Any:
    """A reference over a batch of matrices; NaN for those where it raises ``LinAlgError``, and only for those."""
    try:
        return function(*arrays)
    except np.linalg.LinAlgError:
        pass
    harmless = [np.broadcast_to(np.eye(*x.shape[-2:], dtype=x.dtype), x.shape) for x in arrays]
    shaped = function(*harmless)
    several = isinstance(shaped, tuple)
    results = [np.full_like(y, np.nan) for y in (shaped if several else (shaped,))]
    for place in np.ndindex(arrays[0].shape[:-2]):
        try:
            found = function(*(x[place] for x in arrays))
        except np.linalg.LinAlgError:
            continue
        for result, y in zip(results, found if several else (found,), strict=True):
            result[place] = y
    return tuple(results) if several else results[0]


def square_cases(attributes: Sequence[Any], prepared: Callable[[Array], Array] | None) -> tuple[Case, ...]:
    shapes = ((3, 3), (1, 1), (2, 4, 4), (7, 7), (0, 3, 3), (21, 21), (2, 0, 0))
    first, *rest = attributes
    cases = [Case((shape,), first, (UNIT,), prepared=prepared) for shape in shapes]
    return (*cases, *(Case(((2, 6, 6),), attrs, (UNIT,), prepared=prepared) for attrs in rest))
