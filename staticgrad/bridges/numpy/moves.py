"""NumPy's functions that only move elements: NumPy's own function says where, applied to numbers of places.

    MOVED      any such function: a reshape, a slice or a gather, as the places say
    PERMUTED   permute axes

Their results may be views of their first argument, and so may those of ``VIEWS``, which are in tables. A write through
such a view goes to the places that it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.bridges.numpy.array import TracedArray
from staticgrad.bridges.numpy.cells import Lens, slice_of
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

_MOVED = """
    reshape ravel expand_dims squeeze atleast_1d atleast_2d atleast_3d real flip fliplr flipud rot90 split array_split
    hsplit vsplit dsplit unstack delete resize diagonal linalg.diagonal lib.stride_tricks.sliding_window_view
"""
_PERMUTED = "transpose permute_dims swapaxes moveaxis rollaxis matrix_transpose linalg.matrix_transpose"
_VIEWS = "broadcast_to diag asarray asanyarray ascontiguousarray"
MOVED = {"scipy.linalg.circulant", *(f"numpy.{name}" for name in _MOVED.split())}
PERMUTED = {f"numpy.{name}" for name in _PERMUTED.split()}
VIEWS = {f"numpy.{name}" for name in _VIEWS.split()}


def may_be_view(path: str) -> bool:
    return path in MOVED or path in PERMUTED or path in VIEWS


def moved(path: str, x: Tensor, function: Callable[[Any], Any]) -> Any:
    """The tensor, or list of them, that a function gives which moves elements; it takes an array in the place of x."""
    if path in PERMUTED:
        coded = function(np.empty(tuple(range(1, x.ndim + 1)), np.int8))  # an axis is known by its size
        return o.permute_dims(x, tuple(size - 1 for size in coded.shape))
    places = function(places_of(x.shape))
    return [_at(x, each) for each in places] if isinstance(places, (list, tuple)) else _at(x, places)


def places_of(shape: Any) -> Any:
    """The numbers of the places of an array's elements."""
    return np.arange(math.prod(shape)).reshape(shape)


def view_of(
    x: TracedArray, value: Any, places: Callable[[], Any], there: Callable[[Tensor], Tensor] | None = None
) -> TracedArray:
    """The view of an array that has ``value``, at ``places``; ``there`` computes its tensor otherwise."""
    read = there or (lambda elements: _at(elements, places()))
    return TracedArray(value, Lens(x.cell, read, lambda elements, new: _put(elements, places(), new)))


def _at(x: Tensor, places: Any) -> Tensor:
    if _is_reshape(x, places):
        return o.reshape(x, np.shape(places))
    block = _block(x, places)
    return o.getitem(o.reshape(x, (-1,)), np.asarray(places)) if block is None else o.getitem(x, block)


def _put(x: Tensor, places: Any, new: Tensor) -> Tensor:
    if _is_reshape(x, places):
        return o.reshape(new, x.shape)
    block = _block(x, places)
    if block is not None:
        return o.scatter(x, block, new)
    return o.reshape(o.scatter(o.reshape(x, (-1,)), np.ravel(places), o.reshape(new, (-1,))), x.shape)


def _is_reshape(x: Tensor, places: Any) -> bool:
    return np.size(places) == x.size and bool((np.diff(np.ravel(places)) == 1).all())


def _block(x: Tensor, places: Any) -> tuple[slice, ...] | None:
    """The slices that take these places, if there are such of step 1 or -1."""
    if np.ndim(places) != x.ndim or not np.size(places):
        return None
    ends = [np.unravel_index(places.flat[end], [int(size) for size in x.shape]) for end in (0, -1)]
    key = tuple(
        slice_of(range(int(a), int(b) + (1 if b >= a else -1), 1 if b >= a else -1)) for a, b in zip(*ends, strict=True)
    )
    return key if np.array_equal(places_of(x.shape)[key], places) else None
