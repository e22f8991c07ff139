"""ONNX's operators on elements at indices: gathers, scatters, one-hot."""

from __future__ import annotations

from typing import Any

import numpy as np

from staticgrad.base.types import bool_, int64
from staticgrad.bridges.arrays import cast
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.onnx.binding import Known, Number, Value
from staticgrad.bridges.onnx.dialect import converts, converts_all
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

converts_all({
    "ai.onnx.ml::ArrayFeatureExtractor": lambda x, indices: o.take(x, o.reshape(indices, (-1,)), axis=-1),
    "ai.onnx.ml::Binarizer": lambda x, *, threshold: cast(x > threshold, x.dtype),
    "Gather": lambda x, indices, *, axis: o.take(x, indices, axis=axis),
    "GatherElements": lambda x, indices, *, axis: o.getitem(x, _grid(x, indices, axis % x.ndim)),
    "GatherND": lambda x, indices, *, batch_dims=0: o.getitem(x, _tuples(x, indices, batch_dims)),
    "Scatter": lambda x, indices, y, *, axis: _scattered(x, _grid(x, indices, axis % x.ndim), y),
    "ScatterElements": lambda x, indices, y, *, axis, reduction="none": _scattered(
        x, _grid(x, indices, axis % x.ndim), y, reduction
    ),
    "ScatterND": lambda x, indices, y, *, reduction="none": _scattered(x, _tuples(x, indices), y, reduction),
})  # fmt: skip


def _grid(x: Tensor, indices: Tensor, axis: int) -> tuple[Tensor, ...]:
    """For each element of the indices its place in ``x``, which they give along one axis."""
    return tuple(indices if a == axis else o.iota(indices.shape, a) for a in range(x.ndim))


def _tuples(x: Tensor, indices: Tensor, batch: int = 0) -> tuple[Tensor, ...]:
    """The key that rows of indices are, one for each place of a batch."""
    own = [o.iota(indices.shape[:-1], axis) for axis in range(batch)]
    return (*own, *(indices[(..., k)] for k in range(int(indices.shape[-1]))))


def _scattered(x: Tensor, key: Any, updates: Tensor, reduction: str = "none") -> Tensor:
    mode = "set" if reduction == "none" else reduction
    if x.dtype == bool_:
        return cast(o.scatter(cast(x, np.int32), key, cast(updates, np.int32), mode), bool_)
    return o.scatter(x, key, updates, mode)


@converts("TensorScatter")
def tensor_scatter(past: Tensor, update: Tensor, start: Tensor | None, *, axis: int, mode: str) -> Tensor:
    axis = axis % past.ndim
    places = o.iota(update.shape, axis)
    if start is not None:
        places = places + o.reshape(start, (-1, *(1,) * (past.ndim - 1)))
    if mode == "circular":
        places = o.remainder(places, past.shape[axis])
    return o.scatter(past, _grid(past, places, axis), update)


@converts("OneHot")
def one_hot(indices: Tensor, depth: Number, values: Tensor, *, axis: int) -> Tensor:
    depth, axis = int(depth), axis % (indices.ndim + 1)
    wide = o.expand_dims(cast(indices, int64), axis)
    wide = o.where(wide < 0, wide + depth, wide)
    classes = o.reshape(o.arange(depth), tuple(depth if a == axis else 1 for a in range(wide.ndim)))
    return o.where(o.equal(wide, classes), values[1], values[0])


@converts("Compress")
def compress(x: Tensor, condition: Known, *, axis: int | None) -> Tensor:
    return o.take(o.reshape(x, (-1,)) if axis is None else x, np.flatnonzero(condition), axis=axis or 0)


@converts("NonZero")
def non_zero(x: Value) -> Any:
    return np.stack(np.nonzero(_own_data(x))).astype(np.int64)


def _own_data(x: Any) -> np.ndarray:
    """A known operand; of one that is not it is no use to ask for another shape."""
    if isinstance(x, Tensor):
        raise RefusedError("the shape of the result depends on values that only a run knows")
    return np.asarray(x)


@converts("Unique")
def unique(x: Value, *, axis: int | None, sorted: int) -> list[Any]:
    values, first, inverse, counts = np.unique(_own_data(x), True, True, True, axis=axis)
    if not sorted:
        order = np.argsort(first)
        values = np.take(values, order, axis=axis or 0)
        inverse, first, counts = np.argsort(order)[inverse], first[order], counts[order]
    return [values, *(each.reshape(-1).astype(np.int64) for each in (first, inverse, counts))]
