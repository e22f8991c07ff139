"""Bounds in the forms in which SciPy takes them, as arrays of the shape of what they bound.

    an object     with ``lb`` and ``ub``, such as SciPy's ``Bounds``
    by element    a pair (lower, upper) for each element of x (n,), None where there is none: lists or tuples, or one
                  array (n, 2); of ``minimize`` alone
    a pair        of lower and upper ones, each None, a number or an array that is broadcast to x

Points that a search begins with are checked or moved by them here; the search itself has them as tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from staticgrad.base import nests
from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import computed
from staticgrad.graph.optable import Array

Pair = tuple[Array, Array]


def read_bounds(bounds: Any, shape: tuple[int, ...], dtype: np.dtype, what: str, by_element: bool = False) -> Pair:
    """The lower and the upper bounds of an array, infinite where there are none.

    Raises:
        GraphError: none of the forms, another shape, NaN.
    """
    if bounds is None:
        bounds = (None, None)
    if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
        pair: Any = (bounds.lb, bounds.ub)
    elif by_element and len(shape) == 1 and _are_pairs(bounds, shape[0]):
        pair = [[row[side] for row in bounds] for side in (0, 1)]
    elif isinstance(bounds, Sequence | np.ndarray) and len(bounds) == 2:
        pair = bounds
    else:
        forms = "an object with lb and ub, or a pair (lower, upper)" + (
            ", or a pair for each element of x" if by_element else ""
        )
        raise GraphError(f"{what}: expected {forms}, actual {bounds!r}")
    lower, upper = (_side(*given, shape, dtype, what) for given in zip(pair, (-np.inf, np.inf), ("lower", "upper")))
    return lower, upper


def _are_pairs(bounds: Any, size: int) -> bool:
    """True if bounds are by element; two arrays of two elements are lower and upper ones."""
    if isinstance(bounds, np.ndarray):
        return bool(bounds.shape == (size, 2))
    is_long = isinstance(bounds, Sequence) and len(bounds) == size
    return is_long and all(isinstance(row, list | tuple) and len(row) == 2 for row in bounds)


def _side(value: Any, absent: float, name: str, shape: tuple[int, ...], dtype: np.dtype, what: str) -> Array:
    """The bounds of one side."""
    if value is None:
        value = absent
    elif isinstance(value, list | tuple):
        value = [absent if each is None else each for each in value]
    try:
        found = np.broadcast_to(np.asarray(value, dtype), shape)
    except (TypeError, ValueError) as error:
        raise GraphError(f"{what}: {name}: expected numbers for x of shape {shape}, actual {value!r}") from error
    if np.isnan(found).any():
        raise GraphError(f"{what}: {name}: expected numbers, actual NaN at {_place(np.isnan(found))}")
    return found.copy()


def _place(where: Array) -> str:
    place = tuple(int(i) for i in np.argwhere(where)[0])
    return f"x[{', '.join(map(str, place))}]" if place else "x"


def nest_of_bounds(bounds: Any, wrt: Any, leaves: Sequence[Array], what: str, by_element: bool = False) -> list[Pair]:
    """The bounds of each leaf of a nest of tensors, whose arrays are given: a nest like it of the forms above, in which
    names may be missing, or an object whose ``lb`` and ``ub`` are nests like it."""
    given = iter(leaves)

    def visit(part: Any, bounds: Any, place: str) -> list[Pair]:
        parts = nests.children(part)
        if parts is None:
            leaf = next(given)
            return [read_bounds(bounds, leaf.shape, computed(leaf.dtype), f"{what}{place}", by_element)]
        if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
            bounds = nests.map(lambda _, lower, upper: _Sides(lower, upper), part, bounds.lb, bounds.ub)
        if isinstance(part, Mapping):
            if bounds is not None and not (isinstance(bounds, Mapping) and set(bounds) <= set(part)):
                raise GraphError(f"{what}{place}: expected bounds by the names {list(part)}, actual {bounds!r}")
            found = [visit(each, (bounds or {}).get(name), f"[{name!r}]") for name, each in part.items()]
        else:
            if bounds is not None and not (isinstance(bounds, Sequence) and len(bounds) == len(parts)):
                raise GraphError(f"{what}{place}: expected bounds for {len(parts)} parts, actual {bounds!r}")
            each_of = [None] * len(parts) if bounds is None else bounds
            found = [visit(each, each_of[i], f"[{i}]") for i, each in enumerate(parts)]
        return [pair for pairs in found for pair in pairs]

    return visit(wrt, bounds, "")


@frozen(eq=False)
class _Sides:
    """The bounds of one leaf."""

    lb: Any
    ub: Any


def require_order(lower: Array, upper: Array, what: str, strict: bool) -> None:
    """Refuse bounds between which there is nothing, or with ``strict`` no room."""
    wrong = lower >= upper if strict else lower > upper
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        relation = "below" if strict else "at most"
        actual = f"{lower[at]} and {upper[at]} of {_place(wrong)}"
        raise GraphError(f"{what}: expected lower bounds {relation} upper ones, actual {actual}")


def require_between(x: Array, lower: Array, upper: Array, what: str) -> None:
    """Refuse a point outside."""
    wrong = (x < lower) | (x > upper)
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        raise GraphError(
            f"{what}: expected x0 between the bounds {lower[at]} and {upper[at]}, actual {x[at]} at {_place(wrong)}"
        )


def moved_inside(x: Array, lower: Array, upper: Array) -> Array:
    """The point, strictly between bounds that leave room: at a distance from each that the dtype can tell."""
    part = max(1e-10, 8 * float(np.finfo(x.dtype).eps))
    with np.errstate(invalid="ignore"):
        margins = [np.where(np.isfinite(side), part * np.maximum(1, np.abs(side)), 0) for side in (lower, upper)]
        moved = np.where(x <= lower + margins[0], lower + margins[0], x)
        moved = np.where(x >= upper - margins[1], upper - margins[1], moved)
        tight = (moved < lower) | (moved > upper) | (upper - lower <= margins[0] + margins[1])
        return np.where(tight, 0.5 * (lower + upper), moved).astype(x.dtype)


def active(x: Array, lower: Array, upper: Array, part: float) -> Array:
    """−1 where a lower bound is met, 1 where an upper one is, else 0: to within that part of its magnitude, or of 1."""
    with np.errstate(invalid="ignore"):
        below, above = x - lower, upper - x
        at_lower = np.isfinite(lower) & (below <= np.minimum(above, part * np.maximum(1, np.abs(lower))))
        at_upper = np.isfinite(upper) & (above <= np.minimum(below, part * np.maximum(1, np.abs(upper))))
    return np.where(at_upper, 1, np.where(at_lower, -1, 0))
