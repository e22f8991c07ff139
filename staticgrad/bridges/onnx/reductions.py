"""ONNX's reductions, positions of extremes, sorts, running sums, softmax and its kin, normalisations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from staticgrad.base.types import bool_, computed, float64, int64, is_floating, product, uint8
from staticgrad.bridges.arrays import cast
from staticgrad.bridges.forms import SlidingWindows, greatest, least
from staticgrad.bridges.onnx.binding import Number, Numbers
from staticgrad.bridges.onnx.dialect import FUNCTION, OnnxScope, converts, converts_all
from staticgrad.bridges.onnx.program import OnnxNode
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

Reduction = Callable[[Tensor, Any, bool], Tensor]


def total(x: Tensor, axis: Any, keepdims: bool) -> Tensor:
    return o.sum(x, axis, dtype=x.dtype, keepdims=keepdims)


def _of_floats(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function of integers whose result is computed with floats."""

    def apply(x: Tensor, *how: Any) -> Tensor:
        return function(x, *how) if is_floating(x.dtype) else cast(function(cast(x, float64), *how), x.dtype)

    return apply


def _extreme(function: Callable[..., Tensor], of_nothing: Callable[[Any], Any]) -> Reduction:
    def reduce(x: Tensor, axis: Any, keepdims: bool) -> Tensor:
        if x.dtype == bool_:
            return cast(reduce(cast(x, uint8), axis, keepdims), bool_)
        if any(x.shape[a] == 0 for a in axis):  # of an empty axis: what changes no other value
            return o.full(total(x, axis, keepdims).shape, of_nothing(x.dtype), dtype=x.dtype)
        return function(x, axis, keepdims=keepdims)

    return reduce


def _log_sum_exp(x: Tensor, axis: Any, keepdims: bool) -> Tensor:
    if any(x.shape[a] == 0 for a in axis):
        return o.log(total(x, axis, keepdims))
    return o.logsumexp(x, axis, keepdims=keepdims)


REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": total,
    "ReduceMean": _of_floats(lambda x, axis, keepdims: o.mean(x, axis, keepdims=keepdims)),
    "ReduceProd": lambda x, axis, keepdims: o.prod(x, axis, dtype=x.dtype, keepdims=keepdims),
    "ReduceMax": _extreme(o.max, least),
    "ReduceMin": _extreme(o.min, greatest),
    "ReduceL1": lambda x, axis, keepdims: total(o.abs(x), axis, keepdims),
    "ReduceL2": lambda x, axis, keepdims: _of_floats(o.sqrt)(total(x * x, axis, keepdims)),
    "ReduceSumSquare": lambda x, axis, keepdims: total(x * x, axis, keepdims),
    "ReduceLogSum": lambda x, axis, keepdims: _of_floats(o.log)(total(x, axis, keepdims)),
    "ReduceLogSumExp": _of_floats(_log_sum_exp),
}


@converts(*REDUCTIONS)
def reduced(node: OnnxNode, x: Tensor, axes: Numbers, *, keepdims: int, noop_with_empty_axes: int = 0) -> Tensor:
    over = axes or ([] if noop_with_empty_axes else range(x.ndim))
    over = tuple(axis % x.ndim for axis in over) if x.ndim else ()
    return REDUCTIONS[node.operator](x, over, bool(keepdims))


@converts("ArgMax", "ArgMin")
def position(node: OnnxNode, x: Tensor, *, axis: int, keepdims: int, select_last_index: int = 0) -> Tensor:
    function = o.argmax if node.operator == "ArgMax" else o.argmin
    if not select_last_index:
        return function(x, axis, keepdims=bool(keepdims))
    return o.subtract(x.shape[axis] - 1, function(o.flip(x, axis), axis, keepdims=bool(keepdims)))


@converts("CumSum", "CumProd")
def cumulated(node: OnnxNode, x: Tensor, axis: Number, *, reverse: int, exclusive: int) -> Tensor:
    axis = axis % x.ndim
    function = o.cumulative_sum if node.operator == "CumSum" else o.cumulative_prod
    y = function(o.flip(x, axis) if reverse else x, axis, dtype=x.dtype, include_initial=bool(exclusive))
    y = y[(*(slice(None),) * axis, slice(0, x.shape[axis]))] if exclusive else y
    return o.flip(y, axis) if reverse else y


@converts("TopK")
def extremes(x: Tensor, k: Number, *, axis: int, largest: int = 1) -> list[Tensor]:
    axis = axis % x.ndim
    order = o.argsort(x, axis, descending=bool(largest))
    places = order[(*(slice(None),) * axis, slice(0, k))]
    return [o.take_along_axis(x, places, axis), cast(places, int64)]


# -- along an axis -----------------------------------------------------------------------------------------------------


def _hardmax(x: Tensor, axis: int) -> Tensor:
    return cast(o.equal(o.iota(x.shape, axis), o.argmax(x, axis, keepdims=True)), x.dtype)


ALONG = {"Softmax": o.softmax, "LogSoftmax": o.log_softmax, "Hardmax": _hardmax}


@converts(*ALONG)
def normalized_along(node: OnnxNode, x: Tensor, *, axis: int) -> Tensor:
    axis, function = axis % x.ndim, ALONG[node.operator]
    if node.opset >= 13:
        return function(x, axis)
    flat = o.reshape(x, (product(x.shape[:axis]), product(x.shape[axis:])))  # the axis and all that follow, as one
    return o.reshape(function(flat, 1), x.shape)


# -- normalisations ----------------------------------------------------------------------------------------------------


def _by_channel(x: Tensor, ndim: int) -> Tensor:
    """(C,) against (N, C, …)."""
    return o.reshape(x, (1, -1, *(1,) * (ndim - 2)))


def _standardized(x: Tensor, axes: Any, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """(x - mean) / sqrt(variance + epsilon), the mean, and the population variance, along axes that are kept."""
    mean = o.mean(x, axes, keepdims=True)
    variance = o.mean(o.square(x - mean), axes, keepdims=True)
    return (x - mean) * o.rsqrt(variance + epsilon), mean, variance


@converts("BatchNormalization")
def batch_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, *, epsilon: float, momentum: float,
    training_mode: int = 0,
) -> list[Tensor]:  # fmt: skip
    wide, dtype = computed(mean.dtype), x.dtype
    x, scale, bias = (cast(each, wide) for each in (x, scale, bias))
    if not training_mode:
        factor = scale * o.rsqrt(cast(variance, wide) + epsilon)
        shift = bias - cast(mean, wide) * factor
        return [cast(x * _by_channel(factor, x.ndim) + _by_channel(shift, x.ndim), dtype)]
    y, now, spread = _standardized(x, (0, *range(2, x.ndim)), epsilon)

    def running(before: Tensor, value: Tensor) -> Tensor:
        return cast(before * momentum + o.reshape(value, before.shape) * (1 - momentum), before.dtype)

    y = y * _by_channel(scale, x.ndim) + _by_channel(bias, x.ndim)
    return [cast(y, dtype), running(mean, now), running(variance, spread)]


converts_all({
    "InstanceNormalization": lambda x, scale, bias, *, epsilon: o.group_norm(x, int(x.shape[1]), scale, bias, epsilon)
})  # fmt: skip


@converts("GroupNormalization")
def group_normalization(
    node: OnnxNode, x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float
) -> Tensor:
    if node.opset < 21:  # one for each group
        scale, bias = (o.repeat(each, x.shape[1] // num_groups) for each in (scale, bias))
    return o.group_norm(x, num_groups, scale, bias, epsilon)


@converts("LayerNormalization")
def layer_normalization(
    at: OnnxScope, node: OnnxNode, x: Tensor, scale: Tensor, bias: Tensor | None, *, axis: int, epsilon: float
) -> Any:
    """By ONNX's definition where means and factors are results, too."""
    shape = x.shape[axis % x.ndim :]
    if len(node.outputs) > 1 or any(each is not None and each.shape != shape for each in (scale, bias)):
        return at.dialect.converters[FUNCTION](at, node)
    return o.layer_norm(x, shape, scale, bias, epsilon)


@converts("LRN")
def local_response_normalization(x: Tensor, *, size: int, alpha: float, beta: float, bias: float) -> Tensor:
    ones, none, low = (1,) * x.ndim, ((0, 0),) * (x.ndim - 2), (size - 1) // 2
    windows = SlidingWindows((1, size, *ones[2:]), ones, ones, ((0, 0), (low, size - 1 - low), *none), (0,) * x.ndim)
    near = windows.reduced(o.square(x), 0, o.sum)
    return x / o.pow(near * (alpha / size) + bias, beta)


@converts("LpNormalization")
def lp_normalization(x: Tensor, *, axis: int, p: int) -> Tensor:
    norm = o.vector_norm(x, axis, keepdims=True, ord=p)
    return o.where(norm == 0, 0, x / norm)
