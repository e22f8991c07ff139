"""Reads and writes at indices: their converters. Indices out of range are a ``BoundsError``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.bridges.arrays import as_tensor, cast
from staticgrad.bridges.aten.dialect import AtenCall, converts
from staticgrad.bridges.aten.views import bounds, in_memory, keyed, places_of
from staticgrad.bridges.importer import RefusedError
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

BOOL = np.dtype(bool)
MODES = {"sum": "add", "prod": "mul", "mean": "mean", "amax": "max", "amin": "min", "add": "add", "multiply": "mul"}


def _key(at: AtenCall, indices: Sequence[Any]) -> tuple[Any, ...]:
    """A subscript; masks have to be known.

    Raises:
        RefusedError: a mask that only a run knows decides how many elements there are.
    """
    key: list[Any] = []
    for place, index in enumerate(indices):
        if isinstance(index, Tensor) and index.dtype == BOOL:
            variable = at.node.args[1][place]
            key += np.nonzero(at.scope.known(variable, "how many elements a mask chooses"))
        else:
            key.append(slice(None) if index is None else index)
    return tuple(key)


@converts("index")
def index_(at: AtenCall, x: Tensor, indices: Sequence[Any]) -> Tensor:
    return x[_key(at, indices)]


@converts("index_put", "_unsafe_index_put")
def index_put(at: AtenCall, x: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False) -> Tensor:
    values = cast(values, x.dtype)
    only = [index for index in indices if index is not None]
    if len(only) == 1 and only[0].dtype == BOOL and indices[0] is not None and math.prod(values.shape) == 1:
        mask = o.reshape(only[0], (*only[0].shape, *[1] * (x.ndim - only[0].ndim)))
        value = o.reshape(values, ())
        return o.where(mask, x + value if accumulate else value, x)
    return o.scatter(x, _key(at, indices), values, mode="add" if accumulate else "set")


@converts("_unsafe_index")
def unsafe_index(at: AtenCall, x: Tensor, indices: Sequence[Any]) -> Tensor:
    return index_(at, x, indices)


@converts("index_select")
def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    return o.take(x, index, axis=dim) if x.ndim else x


@converts("take")
def take(x: Tensor, index: Tensor) -> Tensor:
    return o.take(o.reshape(x, (-1,)), index, axis=0)


@converts("embedding")
def embedding(weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False) -> Tensor:
    if scale_grad_by_freq:
        raise RefusedError("gradients scaled by frequency are not converted")
    return o.embedding(indices, weight, padding_idx=padding_idx if padding_idx >= 0 else None)


def _within(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """The part of x that indices along one axis reach: they may be fewer along the others."""
    sizes = [slice(None) if axis == dim % x.ndim else slice(0, n) for axis, n in enumerate(index.shape)]
    return (
        x if all(n == m for a, (n, m) in enumerate(zip(index.shape, x.shape)) if a != dim % x.ndim) else x[tuple(sizes)]
    )


@converts("gather")
def gather(x: Tensor, dim: int, index: Tensor) -> Tensor:
    if x.ndim == 0 or index.ndim == 0:
        return o.reshape(o.take(o.reshape(x, (-1,)), o.reshape(index, (-1,)), axis=0), index.shape)
    return o.take_along_axis(_within(x, dim, index), index, axis=dim)


def _places(x: Tensor, dim: int, index: Tensor) -> tuple[Any, ...]:
    """The subscript of the places that indices along one axis mean."""
    return tuple(
        index if axis == dim % x.ndim else np.arange(int(n)).reshape(-1, *[1] * (x.ndim - axis - 1))
        for axis, n in enumerate(index.shape)
    )


def written(x: Tensor, dim: int, index: Tensor, src: Any, mode: str, include_self: bool = True) -> Tensor:
    """x with updates at indices along one axis; of updates there may be more than indices."""
    if x.ndim == 0:
        return o.reshape(written(o.reshape(x, (1,)), 0, o.reshape(index, (-1,)), src, mode, include_self), ())
    if isinstance(src, Tensor) and src.ndim:
        src = src[tuple(slice(0, n) for n in index.shape)] if src.ndim == index.ndim else o.reshape(src, index.shape)
    elif isinstance(src, Tensor):
        src = o.broadcast_to(src, index.shape)
    return o.scatter(x, _places(x, dim, index), src, mode=mode, include_self=include_self)


@converts("scatter")
def scatter(
    at: AtenCall, x: Tensor, dim: int, index: Tensor, src: Any = None, value: Any = None, reduce: Any = None
) -> Any:
    mode = "set" if reduce is None else MODES[reduce]
    return written(x, dim, index, at.tensor(value) if src is None else src, mode)


@converts("scatter_add")
def scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    return written(x, dim, index, src, "add")


@converts("scatter_reduce")
def scatter_reduce(x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool = True) -> Tensor:
    return written(x, dim, index, src, MODES[reduce], include_self)


@converts("index_add")
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Any = 1) -> Tensor:
    return o.scatter(x, keyed(x.ndim, dim, index), source if alpha == 1 else source * alpha, mode="add")


@converts("index_reduce")
def index_reduce(x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool = True) -> Tensor:
    return o.scatter(x, keyed(x.ndim, dim, index), source, mode=MODES[reduce], include_self=include_self)


@converts("put")
def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    flat = o.scatter(o.reshape(x, (-1,)), (index,), source, mode="add" if accumulate else "set")
    return o.reshape(flat, x.shape)


@converts("index_copy")
def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return o.scatter(x, keyed(x.ndim, dim, index), source)


@converts("index_fill")
def index_fill(at: AtenCall, x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    return o.scatter(x, keyed(x.ndim, dim, index), at.tensor(value))


@converts("masked_scatter")
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    mask = o.broadcast_to(mask, x.shape)
    order = o.cumulative_sum(o.astype(o.reshape(mask, (-1,)), np.dtype(np.int64)), 0) - 1
    flat = o.reshape(source, (-1,))
    chosen = o.take(flat, o.clip(order, 0, flat.shape[0] - 1), axis=0)
    return o.where(mask, o.reshape(chosen, x.shape), x)


@converts("select_scatter")
def select_scatter(x: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    return o.scatter(x, keyed(x.ndim, dim, index), src)


@converts("slice_scatter")
def slice_scatter(x: Tensor, src: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    key = bounds(start, end, step)
    if key == slice(None, None, 1) or (key.start == 0 and key.stop is None and step == 1):
        return o.broadcast_to(src, x.shape)
    return o.scatter(x, keyed(x.ndim, dim, key), src)


@converts("diagonal_scatter")
def diagonal_scatter(x: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    moved = o.moveaxis(x, (dim1, dim2), (-2, -1))
    rows = np.arange(max(0, -offset), max(0, -offset) + int(src.shape[-1]))
    return o.moveaxis(o.scatter(moved, (..., rows, rows + offset), src), (-2, -1), (dim1, dim2))


@converts("as_strided_scatter")
def as_strided_scatter(
    at: AtenCall, x: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: Any = None
) -> Tensor:
    flat, first = in_memory(at, x)
    if flat.shape != x.shape and at.meta(0).stride() != at.meta(0).contiguous().stride():
        raise RefusedError("as_strided_scatter of a tensor that is not contiguous is not converted")
    places = places_of(size, stride, (storage_offset or first) - first)
    return o.reshape(o.scatter(flat, (places,), src), x.shape)


@converts("bucketize")
def bucketize(at: AtenCall, x: Tensor, boundaries: Tensor, out_int32: bool = False, right: bool = False) -> Tensor:
    return cast(o.searchsorted(boundaries, cast(x, boundaries.dtype), side="right" if right else "left"), at.dtype)


@converts("searchsorted")
def searchsorted(
    at: AtenCall, sorted_sequence: Tensor, x: Any, out_int32: bool = False, right: bool = False, side: Any = None
) -> Tensor:
    if sorted_sequence.ndim != 1:
        raise RefusedError("a search in several rows is not converted")
    values = cast(as_tensor(x), sorted_sequence.dtype)
    places = o.searchsorted(sorted_sequence, values, side="right" if right or side == "right" else "left")
    return cast(places, at.dtype)


@converts("nonzero_static")
def nonzero_static(x: Tensor, size: int, fill_value: int = -1) -> Tensor:
    return o.stack(list(o.nonzero(x, size=size, fill_value=fill_value)), axis=1)
