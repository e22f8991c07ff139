"""ONNX's reductions, positions of extremes, sorts, running sums, softmax and its kin."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.base.types import bool_, float64, int64, is_floating, product, uint8
from staticgrad.bridges.arrays import cast
from staticgrad.bridges.onnx.dialect import OnnxScope, converts
from staticgrad.bridges.onnx.program import OnnxNode
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

Reduction = Callable[[Tensor, Any, bool], Tensor]


def total(x: Tensor, axis: Any, keepdims: bool) -> Tensor:
    return o.sum(x, axis, dtype=x.dtype, keepdims=keepdims)


def mean(x: Tensor, axis: Any, keepdims: bool) -> Tensor:
    if is_floating(x.dtype):
        return o.mean(x, axis, keepdims=keepdims)
    return cast(o.mean(cast(x, float64), axis, keepdims=keepdims), x.dtype)


def _of_floats(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A function of integers whose result is computed with floats."""
    return lambda x: function(x) if is_floating(x.dtype) else cast(function(cast(x, float64)), x.dtype)


def _extreme(function: Callable[..., Tensor], of_nothing: Callable[[np.dtype], Any]) -> Reduction:
    def reduce(x: Tensor, axis: Any, keepdims: bool) -> Tensor:
        if x.dtype == bool_:
            return cast(reduce(cast(x, uint8), axis, keepdims), bool_)
        if any(x.shape[a] == 0 for a in axis):  # of an empty axis: what changes no other value
            return o.full(o.sum(x, axis, dtype=x.dtype, keepdims=keepdims).shape, of_nothing(x.dtype), dtype=x.dtype)
        return function(x, axis, keepdims=keepdims)

    return reduce


def _least(dtype: np.dtype) -> Any:
    return -math.inf if is_floating(dtype) else int(np.iinfo(dtype).min)


def _greatest(dtype: np.dtype) -> Any:
    return math.inf if is_floating(dtype) else int(np.iinfo(dtype).max)


def _log_sum_exp(x: Tensor, axis: Any, keepdims: bool) -> Tensor:
    if not is_floating(x.dtype):
        return cast(_log_sum_exp(cast(x, float64), axis, keepdims), x.dtype)
    if any(x.shape[a] == 0 for a in axis):
        return o.log(total(x, axis, keepdims))
    return o.logsumexp(x, axis, keepdims=keepdims)


REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": total,
    "ReduceMean": mean,
    "ReduceProd": lambda x, axis, keepdims: o.prod(x, axis, dtype=x.dtype, keepdims=keepdims),
    "ReduceMax": _extreme(o.max, _least),
    "ReduceMin": _extreme(o.min, _greatest),
    "ReduceL1": lambda x, axis, keepdims: total(o.abs(x), axis, keepdims),
    "ReduceL2": lambda x, axis, keepdims: _of_floats(o.sqrt)(total(x * x, axis, keepdims)),
    "ReduceSumSquare": lambda x, axis, keepdims: total(x * x, axis, keepdims),
    "ReduceLogSum": lambda x, axis, keepdims: _of_floats(o.log)(total(x, axis, keepdims)),
    "ReduceLogSumExp": _log_sum_exp,
}


@converts(*REDUCTIONS)
def reduced(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, axes = at.tensor(node.inputs[0]), at.numbers(node, 1, "axes", "the axes of a reduction")
    if not axes and node.attr("noop_with_empty_axes", 0):
        over: tuple[int, ...] = ()
    else:
        over = tuple(axis % max(x.ndim, 1) for axis in axes) if axes else tuple(range(x.ndim))
    return REDUCTIONS[node.operator](x, over if x.ndim else (), bool(node.attr("keepdims", 1)))


@converts("ArgMax", "ArgMin")
def position(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, axis, keepdims = at.tensor(node.inputs[0]), node.attr("axis", 0), bool(node.attr("keepdims", 1))
    function = o.argmax if node.operator == "ArgMax" else o.argmin
    if not node.attr("select_last_index", 0):
        return function(x, axis, keepdims=keepdims)
    return o.subtract(x.shape[axis] - 1, function(o.flip(x, axis), axis, keepdims=keepdims))


@converts("CumSum", "CumProd")
def cumulated(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, axis = at.tensor(node.inputs[0]), at.number(node, 1, what="the axis of running sums")
    axis = axis % x.ndim
    function = o.cumulative_sum if node.operator == "CumSum" else o.cumulative_prod
    x = o.flip(x, axis) if node.attr("reverse", 0) else x
    if node.attr("exclusive", 0):
        before = function(x, axis, dtype=x.dtype, include_initial=True)
        y = before[(*(slice(None),) * axis, slice(0, x.shape[axis]))]
    else:
        y = function(x, axis, dtype=x.dtype)
    return o.flip(y, axis) if node.attr("reverse", 0) else y


@converts("TopK")
def largest(at: OnnxScope, node: OnnxNode) -> list[Tensor]:
    x, axis, count = at.tensor(node.inputs[0]), node.attr("axis", -1), at.number(node, 1, "k")
    axis = axis % x.ndim
    order = o.argsort(x, axis, descending=bool(node.attr("largest", 1)))
    places = order[(*(slice(None),) * axis, slice(0, count))]
    return [o.take_along_axis(x, places, axis), cast(places, int64)]


# -- along an axis -----------------------------------------------------------------------------------------------------


def _hardmax(x: Tensor, axis: int) -> Tensor:
    places = o.iota(x.shape, axis)
    return cast(o.equal(places, o.argmax(x, axis, keepdims=True)), x.dtype)


ALONG = {"Softmax": lambda x, axis: o.softmax(x, axis), "LogSoftmax": lambda x, axis: o.log_softmax(x, axis),
         "Hardmax": _hardmax}  # fmt: skip


@converts(*ALONG)
def normalized_along(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, function = at.tensor(node.inputs[0]), ALONG[node.operator]
    if node.opset >= 13:
        return function(x, node.attr("axis", -1) % x.ndim)
    axis = node.attr("axis", 1) % x.ndim  # and all that follow, as one
    flat = o.reshape(x, (product(x.shape[:axis]), product(x.shape[axis:])))
    return o.reshape(function(flat, 1), x.shape)
