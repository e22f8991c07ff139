"""NumPy's functions that only move elements: NumPy's own function says where, applied to numbers of places.

    ORDERED    keep the order of the elements: a reshape
    PERMUTED   permute axes
    PLACED     any other: a gather

Their results may be views of their first argument, and so may those of ``VIEWS``, which have converters. A write
through such a view goes back by the inverse, or to the places that it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.bridges.numpy.array import TracedArray
from staticgrad.bridges.numpy.cells import Lens
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

ORDERED = {f"numpy.{name}" for name in ("reshape", "ravel", "expand_dims", "squeeze", "atleast_1d", "atleast_2d",
                                        "atleast_3d", "real")}  # fmt: skip
PERMUTED = {f"numpy.{name}" for name in ("transpose", "permute_dims", "swapaxes", "moveaxis", "rollaxis",
                                         "matrix_transpose", "linalg.matrix_transpose")}  # fmt: skip
PLACED = {f"numpy.{name}" for name in ("fliplr", "flipud", "rot90", "dsplit", "delete", "resize", "diagonal", "unstack",
                                       "linalg.diagonal", "lib.stride_tricks.sliding_window_view")}  # fmt: skip
PLACED |= {"scipy.linalg.circulant"}
VIEWS = {f"numpy.{name}" for name in ("flip", "split", "array_split", "hsplit", "vsplit", "broadcast_to", "diag",
                                      "asarray", "asanyarray", "ascontiguousarray")}  # fmt: skip


def may_be_view(path: str) -> bool:
    return path in ORDERED or path in PERMUTED or path in PLACED or path in VIEWS


def moved(path: str, x: Tensor, function: Callable[..., Any], shape: Any) -> Any:
    """The result of a function that moves elements; ``function`` takes an array in the place of x.

    Args:
        shape: of the result; None if it is a list of arrays.

    Returns:
        A tensor, a list of them, or None if the function is none of these.
    """
    sizes: Any = x.shape
    if path in PERMUTED:
        coded = function(np.empty(tuple(range(1, x.ndim + 1)), np.int8))  # an axis is known by its size
        return o.permute_dims(x, tuple(size - 1 for size in coded.shape))
    if path not in ORDERED and path not in PLACED:
        return None
    places = function(np.arange(math.prod(sizes)).reshape(sizes))
    if path in ORDERED and shape is not None and _ascends(places):
        return o.reshape(x, shape)
    flat = o.reshape(x, (math.prod(sizes),))
    return [flat[each] for each in places] if isinstance(places, (list, tuple)) else flat[places]


def _ascends(places: Any) -> bool:
    return bool((np.diff(np.ravel(places)) == 1).all())


def view_of(
    x: TracedArray, value: Any, there: Callable[[Tensor], Tensor] | None, places: Callable[[], Any]
) -> TracedArray:
    """The view of an array that has ``value``: ``there`` is a function of tensors, or a gather at the places."""
    shape, size = x.shape, x.size
    is_ordered = value.size == size

    def back(elements: Tensor, new: Tensor) -> Tensor:
        where = np.asarray(places())
        if is_ordered and _ascends(where):
            return o.reshape(new, shape)
        flat = o.scatter(o.reshape(elements, (size,)), where.ravel(), o.reshape(new, (-1,)))
        return o.reshape(flat, shape)

    def gathered(elements: Tensor) -> Tensor:
        return o.getitem(o.reshape(elements, (size,)), np.asarray(places()))

    return TracedArray(value, Lens(x.cell, there or gathered, back))


def places_of(x: TracedArray) -> Any:
    """The numbers of the places of an array's elements."""
    return np.arange(x.size).reshape(x.shape)
