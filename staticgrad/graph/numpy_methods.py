"""Methods of tensors in NumPy's spelling, where the function of the same name takes other arguments or has none.

A tensor and the arguments of the method go in, the tensors that a function of the namespace gives for them come out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.types import DTypeLike
from staticgrad.graph.optable import FUNCTIONS

if TYPE_CHECKING:
    from staticgrad.graph.graph import Tensor

F = TypeVar("F", bound=Callable[..., Any])


def _named(method: F) -> F:
    """Let errors of calls name the method as users do."""
    method.__qualname__ = f"Tensor.{method.__name__}"
    return method


@_named
def transpose(x: Tensor, *axes: Any) -> Tensor:
    """The axes in another order, given one by one or as one sequence; without any, in reverse order."""
    given = axes[0] if len(axes) == 1 and not isinstance(axes[0], int | np.integer) else axes or None
    return FUNCTIONS.transpose(x, given)


@_named
def sort(x: Tensor, axis: int = -1, *, descending: Any = False, stable: Any = True) -> Tensor:
    """``sg.sort`` of this tensor: a new tensor, where an array is sorted in place."""
    return FUNCTIONS.sort(x, axis, descending=descending, stable=stable)


@_named
def ravel(x: Tensor) -> Tensor:
    """The elements along one axis."""
    return FUNCTIONS.reshape(x, (-1,))


@_named
def cumsum(x: Tensor, axis: int | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """``sg.cumulative_sum`` along an axis, or without one of the flattened tensor."""
    return FUNCTIONS.cumulative_sum(ravel(x) if axis is None else x, axis=axis, dtype=dtype)


@_named
def cumprod(x: Tensor, axis: int | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """``sg.cumulative_prod`` along an axis, or without one of the flattened tensor."""
    return FUNCTIONS.cumulative_prod(ravel(x) if axis is None else x, axis=axis, dtype=dtype)


@_named
def dot(x: Tensor, other: Any) -> Tensor:
    """``sg.matmul`` of vectors and matrices.

    Raises:
        GraphError: an operand without axes or with more than two, of which NumPy's dot means something else.
    """
    operands: tuple[Any, ...] = (x, other)
    for operand in operands:
        if np.ndim(operand) not in (1, 2):
            raise GraphError(f"dot: expected vectors or matrices, actual {operand!r}: use *, sg.matmul or sg.tensordot")
    return FUNCTIONS.matmul(x, other)


@_named
def split(x: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """``sg.split`` of this tensor."""
    return FUNCTIONS.split(x, indices_or_sections, axis)


@_named
def topk(x: Tensor, k: int, axis: int = -1, largest: Any = True, sorted: Any = True) -> tuple[Tensor, Tensor]:
    """``sg.topk`` of this tensor."""
    return FUNCTIONS.topk(x, k, axis, largest, sorted)


@_named
def diagonal(x: Tensor, offset: int = 0) -> Tensor:
    """``sg.linalg.diagonal`` of a matrix.

    Raises:
        GraphError: it has other than two axes, of which NumPy means the first two and ``sg.linalg`` the last two.
    """
    return FUNCTIONS.diagonal(_matrix(x, "diagonal"), offset=offset)


@_named
def trace(x: Tensor, offset: int = 0) -> Tensor:
    """``sg.linalg.trace`` of a matrix.

    Raises:
        GraphError: it has other than two axes, of which NumPy means the first two and ``sg.linalg`` the last two.
    """
    return FUNCTIONS.trace(_matrix(x, "trace"), offset=offset)


def _matrix(x: Tensor, what: str) -> Tensor:
    if x.ndim != 2:
        raise GraphError(f"{what}: expected a matrix, actual {x.name!r} {x.type}: use sg.linalg.{what}")
    return x
