"""Ops of PyTorch's backwards, for programs that hold one: each is the gradient of the forward's converter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from staticgrad.base.types import Size
from staticgrad.bridges.aten import windows
from staticgrad.bridges.aten.dialect import entries
from staticgrad.bridges.aten.indexing import written
from staticgrad.compiler.autodiff.reverse import gradients
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


def vjp(forward: Callable[..., Tensor], cotangent: Tensor, *xs: Tensor) -> list[Tensor]:
    """The gradients of a function of tensors by each, given that of its result."""
    return list(gradients(forward(*xs), list(xs), [cotangent], "zero"))


def _average(
    grad_output: Tensor, x: Tensor, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool,
    count_include_pad: bool, divisor_override: int | None,
) -> Tensor:  # fmt: skip
    rest = windows.windowed(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return vjp(lambda x: o.avg_pool2d(x, *rest), grad_output, x)[0]


def _maximum(
    grad_output: Tensor, x: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool,
    indices: Tensor,
) -> Tensor:  # fmt: skip
    """The gradient at the places that the forward has found."""
    front = x.shape[:-2]
    flat = o.zeros((*front, x.shape[-2] * x.shape[-1]), dtype=x.dtype)
    places, values = (o.reshape(y, (*front, -1)) for y in (indices, grad_output))
    return o.reshape(written(flat, -1, places, values, "add"), x.shape)


def _convolution(
    grad_output: Tensor, x: Tensor, weight: Tensor, bias_sizes: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,
) -> list[Any]:  # fmt: skip
    rest = (stride, padding, dilation, transposed, output_padding, groups)
    by_operands = vjp(lambda x, w: windows.convolution(x, w, None, *rest), grad_output, x, weight)
    return [*by_operands, o.sum(grad_output, (0, *range(2, x.ndim)))]


def _embedding(
    grad_output: Tensor, indices: Tensor, num_weights: Size, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    table = o.zeros((num_weights, grad_output.shape[-1]), dtype=grad_output.dtype)
    fixed = padding_idx if padding_idx >= 0 else None
    return vjp(lambda table: o.embedding(indices, table, padding_idx=fixed), grad_output, table)[0]


def _norm(ct: Tensor, x: Tensor, axes: tuple[int, ...], scale: Tensor, weight: Any, shape: Any) -> list[Tensor]:
    """The gradients of a normalisation over axes by x, weight and bias. PyTorch does not hand over ε: it is what the
    reciprocal deviation says."""

    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        spread = o.var(x, axes, keepdims=True)
        eps = o.stop_gradient(1 / (scale * scale) - spread)
        return (x - o.mean(x, axes, keepdims=True)) * o.rsqrt(spread + eps) * weight + bias

    factor = o.ones(shape, dtype=x.dtype) if weight is None else o.reshape(weight, shape)
    return vjp(forward, ct, x, factor, o.zeros(shape, dtype=x.dtype))


def _layer_norm(
    grad_out: Tensor, x: Tensor, normalized_shape: Any, mean: Tensor, rstd: Tensor, weight: Any, bias: Any
) -> list[Tensor]:
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    return _norm(grad_out, x, axes, rstd, weight, normalized_shape)


def _group_norm(
    grad_out: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Any, N: Size, C: int, HxW: Size, group: int
) -> list[Tensor]:
    parts, channels = (N, group, C // group, HxW), (group, C // group, 1)
    ct, inside, scale = o.reshape(grad_out, parts), o.reshape(x, parts), o.reshape(rstd, (N, group, 1, 1))
    found = _norm(ct, inside, (2, 3), scale, weight, channels)
    return [o.reshape(y, shape) for y, shape in zip(found, (x.shape, (C,), (C,)))]


entries({
    "_adaptive_avg_pool2d_backward": lambda grad_output, x: vjp(
        lambda x: o.adaptive_avg_pool2d(x, grad_output.shape[-2:]), grad_output, x
    )[0],
    "avg_pool2d_backward": _average,
    "max_pool2d_with_indices_backward": _maximum,
    "convolution_backward": _convolution,
    "embedding_dense_backward": _embedding,
    "native_layer_norm_backward": _layer_norm,
    "native_group_norm_backward": _group_norm,
})  # fmt: skip
