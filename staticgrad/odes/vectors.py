"""States as vectors: tuples of tensors of one floating dtype, whose elements count as those of one long vector."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from staticgrad.base.types import sizes
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as O

Vector = tuple[Tensor, ...]
Slope = Callable[[Tensor, Vector], Vector]  # of a time and a state: dy/dt


def combined(weights: Sequence[float], vectors: Sequence[Vector]) -> Vector:
    """Σ w_i v_i over the weights that are not zero, from the first to the last."""
    terms = [tuple(w * x for x in v) for w, v in zip(weights, vectors, strict=False) if w]
    return functools.reduce(lambda a, b: tuple(x + y for x, y in zip(a, b, strict=True)), terms)


def moved(y: Vector, h: Tensor, direction: Vector) -> Vector:
    """y + h·direction, with a number h of the dtype of time."""
    return tuple(x + O.astype(h, x.dtype) * d for x, d in zip(y, direction, strict=True))


def scaled(h: Tensor, x: Vector) -> Vector:
    return tuple(O.astype(h, part.dtype) * part for part in x)


def chosen(condition: Tensor, a: Vector, b: Vector) -> Vector:
    return tuple(O.where(condition, x, y) for x, y in zip(a, b, strict=True))


def difference(a: Vector, b: Vector) -> Vector:
    return tuple(x - y for x, y in zip(a, b, strict=True))


def detached(x: Vector) -> Vector:
    return tuple(O.stop_gradient(part) for part in x)


def size(x: Vector) -> int:
    """The number of elements, which is known."""
    return sum(math.prod(sizes(part.shape)) for part in x)


def norm(x: Vector, scale: Vector) -> Tensor:
    """The root of the mean square of all elements, each divided by its scale."""
    squares = [O.sum(O.square(part / unit)) for part, unit in zip(x, scale, strict=True)]
    return O.sqrt(functools.reduce(lambda a, b: a + b, squares) / max(1, size(x)))
