"""Reads and writes at indices: their converters. Indices out of range are a ``BoundsError``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.bridges.arrays import as_tensor, cast
from staticgrad.bridges.aten.dialect import BOOL, INT64, AtenCall, converts, entries
from staticgrad.bridges.aten.views import bounds, in_memory, keyed, places_of
from staticgrad.bridges.importer import RefusedError
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

MODES = {
    None: "set", "sum": "add", "prod": "mul", "mean": "mean", "amax": "max", "amin": "min", "add": "add",
    "multiply": "mul",
}  # fmt: skip


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


@converts("index", "_unsafe_index")
def index_(at: AtenCall, x: Tensor, indices: Sequence[Any]) -> Tensor:
    return x[_key(at, indices)]


@converts("index_put", "_unsafe_index_put")
def index_put(at: AtenCall, x: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool) -> Tensor:
    values = cast(values, x.dtype)
    only = [index for index in indices if index is not None]
    if len(only) == 1 and only[0].dtype == BOOL and indices[0] is not None and math.prod(values.shape) == 1:
        mask = o.reshape(only[0], (*only[0].shape, *[1] * (x.ndim - only[0].ndim)))
        value = o.reshape(values, ())
        return o.where(mask, x + value if accumulate else value, x)
    return o.scatter(x, _key(at, indices), values, mode="add" if accumulate else "set")


def _within(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """The part of x that indices along one axis reach: they may be fewer along the others."""
    sizes = [slice(None) if axis == dim % x.ndim else slice(0, n) for axis, n in enumerate(index.shape)]
    return (
        x if all(n == m for a, (n, m) in enumerate(zip(index.shape, x.shape)) if a != dim % x.ndim) else x[tuple(sizes)]
    )


def _gather(x: Tensor, dim: int, index: Tensor) -> Tensor:
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


@converts("scatter", "scatter_add", "scatter_reduce")
def scatter(
    at: AtenCall, x: Tensor, dim: int, index: Tensor, src: Any, value: Any, reduce: Any, include_self: Any
) -> Any:
    mode = "add" if at.op == "scatter_add" else MODES[reduce]
    return written(x, dim, index, at.tensor(value) if src is None else src, mode, include_self is not False)


def _at(x: Tensor, dim: int, key: Any, values: Any, mode: str = "set", include_self: bool = True) -> Tensor:
    """x with updates where a key, along one axis, says."""
    return o.scatter(x, keyed(x.ndim, dim, key), values, mode=mode, include_self=include_self)


def _put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool) -> Tensor:
    flat = o.scatter(o.reshape(x, (-1,)), (index,), source, mode="add" if accumulate else "set")
    return o.reshape(flat, x.shape)


def _masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    mask = o.broadcast_to(mask, x.shape)
    order = o.cumulative_sum(o.astype(o.reshape(mask, (-1,)), INT64), 0) - 1
    flat = o.reshape(source, (-1,))
    chosen = o.take(flat, o.clip(order, 0, flat.shape[0] - 1), axis=0)
    return o.where(mask, o.reshape(chosen, x.shape), x)


def _slice_scatter(x: Tensor, src: Tensor, dim: int, start: Any, end: Any, step: int) -> Tensor:
    key = bounds(start, end, step)
    if key.start in (0, None) and key.stop is None and step == 1:
        return o.broadcast_to(src, x.shape)
    return _at(x, dim, key, src)


def _diagonal_scatter(x: Tensor, src: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
    moved = o.moveaxis(x, (dim1, dim2), (-2, -1))
    rows = np.arange(max(0, -offset), max(0, -offset) + int(src.shape[-1]))
    return o.moveaxis(o.scatter(moved, (..., rows, rows + offset), src), (-2, -1), (dim1, dim2))


@converts("as_strided_scatter")
def as_strided_scatter(at: AtenCall, x: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: Any) -> Tensor:
    flat, first = in_memory(at, x)
    if flat.shape != x.shape and at.meta(0).stride() != at.meta(0).contiguous().stride():
        raise RefusedError("as_strided_scatter of a tensor that is not contiguous is not converted")
    places = places_of(size, stride, (storage_offset or first) - first)
    return o.reshape(o.scatter(flat, (places,), src), x.shape)


@converts("bucketize", "searchsorted")
def searchsorted(
    at: AtenCall, x: Any, boundaries: Any, sorted_sequence: Any, out_int32: bool, right: bool, side: Any, sorter: Any
) -> Tensor:
    """The places of values among sorted ones: ``bucketize`` calls these boundaries."""
    edges = boundaries if sorted_sequence is None else sorted_sequence
    if edges.ndim != 1 or sorter is not None:
        raise RefusedError("a search in several rows, or in one with an order, is not converted")
    values = cast(as_tensor(x), edges.dtype)
    return cast(o.searchsorted(edges, values, side="right" if right or side == "right" else "left"), at.dtype)


def _nonzero(x: Tensor, size: int, fill_value: int) -> Tensor:
    return o.stack(list(o.nonzero(x, size=size, fill_value=fill_value)), axis=1)


entries({
    "index_select": lambda x, dim, index: o.take(x, index, axis=dim) if x.ndim else x,
    "take": lambda x, index: o.take(o.reshape(x, (-1,)), index, axis=0),
    "embedding": lambda weight, indices, padding_idx: o.embedding(
        indices, weight, padding_idx=padding_idx if padding_idx >= 0 else None
    ),
    "gather": _gather,
    "index_add": lambda x, dim, index, source, alpha: _at(
        x, dim, index, source if alpha == 1 else source * alpha, "add"
    ),
    "index_reduce": lambda x, dim, index, source, reduce, include_self: _at(
        x, dim, index, source, MODES[reduce], include_self
    ),
    "index_copy": lambda x, dim, index, source: _at(x, dim, index, source),
    "index_fill": lambda at, x, dim, index, value: _at(x, dim, index, at.tensor(value)),
    "put": _put,
    "masked_scatter": _masked_scatter,
    "select_scatter": lambda x, src, dim, index: _at(x, dim, index, src),
    "slice_scatter": _slice_scatter,
    "diagonal_scatter": _diagonal_scatter,
    "nonzero_static": _nonzero,
})  # fmt: skip
