"""ONNX's normalisations."""

from __future__ import annotations

from typing import Any

import numpy as np

from staticgrad.base.types import computed
from staticgrad.bridges.arrays import cast
from staticgrad.bridges.onnx.dialect import OnnxScope, converts
from staticgrad.bridges.onnx.program import OnnxNode
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


def _by_channel(x: Tensor, ndim: int) -> Tensor:
    """(C,) against (N, C, …)."""
    return o.reshape(x, (1, -1, *(1,) * (ndim - 2)))


def moments(x: Tensor, axes: Any) -> tuple[Tensor, Tensor]:
    """Means and population variances along axes, which are kept."""
    mean = o.mean(x, axes, keepdims=True)
    return mean, o.mean(o.square(x - mean), axes, keepdims=True)


@converts("BatchNormalization")
def batch_normalization(at: OnnxScope, node: OnnxNode) -> list[Tensor]:
    x, scale, bias, mean, variance = at.operands(node)
    epsilon, momentum = node.attr("epsilon", 1e-5), node.attr("momentum", 0.9)
    wide = computed(mean.dtype)
    if not node.attr("training_mode", 0):
        factor = cast(scale, wide) * o.rsqrt(cast(variance, wide) + epsilon)
        shift = cast(bias, wide) - cast(mean, wide) * factor
        y = cast(x, wide) * _by_channel(factor, x.ndim) + _by_channel(shift, x.ndim)
        return [cast(y, x.dtype)]
    axes = (0, *range(2, x.ndim))
    now, spread = moments(cast(x, wide), axes)
    y = (cast(x, wide) - now) * o.rsqrt(spread + epsilon)
    y = y * _by_channel(cast(scale, wide), x.ndim) + _by_channel(cast(bias, wide), x.ndim)

    def running(before: Tensor, value: Tensor) -> Tensor:
        return cast(before * momentum + o.reshape(value, before.shape) * (1 - momentum), before.dtype)

    return [cast(y, x.dtype), running(mean, now), running(variance, spread)]


@converts("InstanceNormalization")
def instance_normalization(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, scale, bias = at.operands(node)
    mean, variance = moments(x, tuple(range(2, x.ndim)))
    y = (x - mean) * o.rsqrt(variance + node.attr("epsilon", 1e-5))
    return o.add(y * _by_channel(scale, x.ndim), _by_channel(bias, x.ndim))


@converts("LayerNormalization")
def layer_normalization(at: OnnxScope, node: OnnxNode) -> list[Tensor]:
    x, scale, bias = at.operands(node, 3)
    axis = node.attr("axis", -1) % x.ndim
    wide = cast(x, np.float32) if computed(x.dtype) == np.float32 else x
    mean, variance = moments(wide, tuple(range(axis, x.ndim)))
    factor = o.rsqrt(variance + node.attr("epsilon", 1e-5))
    y = cast((wide - mean) * factor, x.dtype) * scale
    return [y if bias is None else y + bias, mean, factor]


@converts("GroupNormalization")
def group_normalization(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, scale, bias = at.operands(node)
    groups = node.attr("num_groups")
    wide = computed(x.dtype)
    grouped = o.reshape(cast(x, wide), (x.shape[0], groups, -1))
    mean, variance = moments(grouped, (2,))
    y = cast(o.reshape((grouped - mean) * o.rsqrt(variance + node.attr("epsilon", 1e-5)), x.shape), x.dtype)
    if node.opset < 21:  # one for each group
        scale, bias = (o.repeat(each, x.shape[1] // groups) for each in (scale, bias))
    return y * _by_channel(scale, x.ndim) + _by_channel(bias, x.ndim)


@converts("LRN")
def local_response_normalization(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, size = at.tensor(node.inputs[0]), node.attr("size")
    low = (size - 1) // 2
    pads = [(0, 0), (low, size - 1 - low), *[(0, 0)] * (x.ndim - 2)]
    squares = o.pad(o.square(x), pads)
    near = sum((squares[:, k : k + x.shape[1]] for k in range(1, size)), squares[:, : x.shape[1]])
    alpha, beta, bias = node.attr("alpha", 1e-4), node.attr("beta", 0.75), node.attr("bias", 1.0)
    return x / o.pow(near * (alpha / size) + bias, beta)


@converts("LpNormalization")
def lp_normalization(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, axis = at.tensor(node.inputs[0]), node.attr("axis", -1)
    norm = o.vector_norm(x, axis, keepdims=True, ord=node.attr("p", 2))
    return o.where(norm == 0, 0, x / norm)


@converts("MeanVarianceNormalization")
def mean_variance_normalization(at: OnnxScope, node: OnnxNode) -> Tensor:
    x = at.tensor(node.inputs[0])
    mean, variance = moments(x, tuple(node.attr("axes", [0, 2, 3])))
    return (x - mean) / (o.sqrt(variance) + 1e-9)
