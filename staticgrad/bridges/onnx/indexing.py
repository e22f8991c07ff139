"""ONNX's operators on elements at indices: gathers, scatters, one-hot."""

from __future__ import annotations

from typing import Any

import numpy as np

from staticgrad.base.types import bool_, int64
from staticgrad.bridges.arrays import cast
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.onnx.dialect import OnnxScope, converts
from staticgrad.bridges.onnx.program import OnnxNode
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


@converts("Gather")
def gather(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, indices = at.operands(node)
    return o.take(x, indices, axis=node.attr("axis", 0))


@converts("GatherElements")
def gather_elements(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, indices = at.operands(node)
    return o.getitem(x, _grid(x, indices, node.attr("axis", 0) % x.ndim))


def _grid(x: Tensor, indices: Tensor, axis: int) -> tuple[Tensor, ...]:
    """For each element of the indices its place in ``x``, which they give along one axis."""
    return tuple(indices if a == axis else o.iota(indices.shape, a) for a in range(x.ndim))


@converts("GatherND")
def gather_nd(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, indices = at.operands(node)
    return o.getitem(x, _tuples(x, indices, node.attr("batch_dims", 0)))


def _tuples(x: Tensor, indices: Tensor, batch: int = 0) -> tuple[Tensor, ...]:
    """The key that rows of indices are, one for each place of a batch."""
    depth = int(indices.shape[-1])
    places = indices.shape[:-1]
    own = [o.iota(places, axis) for axis in range(batch)]
    return (*own, *(indices[(..., k)] for k in range(depth)))


def _scattered(x: Tensor, key: Any, updates: Tensor, reduction: str) -> Tensor:
    mode = "set" if reduction == "none" else reduction
    if x.dtype == bool_:
        return cast(o.scatter(cast(x, np.int32), key, cast(updates, np.int32), mode), bool_)
    return o.scatter(x, key, updates, mode)


@converts("ScatterElements", "Scatter")
def scatter_elements(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, indices, updates = at.operands(node)
    key = _grid(x, indices, node.attr("axis", 0) % x.ndim)
    return _scattered(x, key, updates, node.attr("reduction", "none"))


@converts("ScatterND")
def scatter_nd(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, indices, updates = at.operands(node)
    return _scattered(x, _tuples(x, indices), updates, node.attr("reduction", "none"))


@converts("TensorScatter")
def tensor_scatter(at: OnnxScope, node: OnnxNode) -> Tensor:
    past, update, start = at.operands(node, 3)
    axis = node.attr("axis", -2) % past.ndim
    places = o.iota(update.shape, axis)
    if start is not None:
        places = places + o.reshape(start, (-1, *(1,) * (past.ndim - 1)))
    if node.attr("mode", "linear") == "circular":
        places = o.remainder(places, past.shape[axis])
    return o.scatter(past, _grid(past, places, axis), update)


@converts("OneHot")
def one_hot(at: OnnxScope, node: OnnxNode) -> Tensor:
    indices, values = at.tensor(node.inputs[0]), at.tensor(node.inputs[2])
    depth = int(at.number(node, 1, what="the number of classes"))
    axis = node.attr("axis", -1) % (indices.ndim + 1)
    wide = o.expand_dims(cast(indices, int64), axis)
    wide = o.where(wide < 0, wide + depth, wide)
    classes = o.reshape(o.arange(depth), tuple(depth if a == axis else 1 for a in range(wide.ndim)))
    return o.where(o.equal(wide, classes), values[1], values[0])


@converts("Compress")
def compress(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, keep = at.tensor(node.inputs[0]), np.flatnonzero(at.steering(node, 1))
    if "axis" not in node.attributes:
        return o.take(o.reshape(x, (-1,)), keep, axis=0)
    return o.take(x, keep, axis=node.attr("axis"))


@converts("ArrayFeatureExtractor", "ai.onnx.ml::ArrayFeatureExtractor")
def features(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, indices = at.operands(node)
    return o.take(x, o.reshape(indices, (-1,)), axis=-1)


@converts("ai.onnx.ml::Binarizer")
def binarizer(at: OnnxScope, node: OnnxNode) -> Tensor:
    x = at.tensor(node.inputs[0])
    return cast(x > node.attr("threshold", 0.0), x.dtype)


@converts("NonZero")
def non_zero(at: OnnxScope, node: OnnxNode) -> Any:
    return np.stack(np.nonzero(_own_data(at, node, 0))).astype(np.int64)


def _own_data(at: OnnxScope, node: OnnxNode, place: int) -> Any:
    """A known operand; of one that is not it is no use to ask for another shape."""
    if not at.is_known(node.inputs[place]):
        raise RefusedError("the shape of the result depends on values that only a run knows")
    return at.value(node.inputs[place])


@converts("Unique")
def unique(at: OnnxScope, node: OnnxNode) -> list[Any]:
    x, axis = np.asarray(_own_data(at, node, 0)), node.attr("axis", None)
    values, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    if not node.attr("sorted", 1):
        order = np.argsort(first)
        values = np.take(values, order, axis=0 if axis is None else axis)
        inverse, first, counts = np.argsort(order)[inverse], first[order], counts[order]
    return [values, *(each.reshape(-1).astype(np.int64) for each in (first, inverse, counts))]
