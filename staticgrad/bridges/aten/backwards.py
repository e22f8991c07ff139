"""Ops of PyTorch's backwards, for programs that hold one: each is the gradient of the forward's converter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from staticgrad.base.types import Size
from staticgrad.bridges.aten import windows
from staticgrad.bridges.aten.dialect import converts
from staticgrad.bridges.aten.indexing import written
from staticgrad.compiler.autodiff.reverse import gradients
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


def vjp(forward: Callable[..., Tensor], cotangent: Tensor, *xs: Tensor) -> list[Tensor]:
    """The gradients of a function of tensors by each, given that of its result."""
    return list(gradients(forward(*xs), list(xs), [cotangent], "zero"))


@converts("_adaptive_avg_pool2d_backward")
def adaptive_avg_pool2d(grad_output: Tensor, x: Tensor) -> Tensor:
    return vjp(lambda x: o.adaptive_avg_pool2d(x, grad_output.shape[-2:]), grad_output, x)[0]


@converts("avg_pool2d_backward")
def avg_pool2d(
    grad_output: Tensor,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    rest = (kernel_size, stride or kernel_size, padding, ceil_mode, count_include_pad, divisor_override)
    return vjp(lambda x: o.avg_pool2d(x, *rest), grad_output, x)[0]


@converts("max_pool2d_with_indices_backward")
def max_pool2d(
    grad_output: Tensor,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """The gradient at the places that the forward has found."""
    front, (rows, columns) = x.shape[:-2], x.shape[-2:]
    flat = o.zeros((*front, rows * columns), dtype=x.dtype)
    places, values = (o.reshape(y, (*front, -1)) for y in (indices, grad_output))
    return o.reshape(written(flat, -1, places, values, "add"), x.shape)


@converts("convolution_backward")
def convolution(
    grad_output: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> list[Any]:
    rest = (stride, padding, dilation, transposed, output_padding, groups)
    by_operands = vjp(lambda x, w: windows.convolution(x, w, None, *rest), grad_output, x, weight)
    return [*by_operands, o.sum(grad_output, (0, *range(2, x.ndim)))]


@converts("embedding_dense_backward")
def embedding(
    grad_output: Tensor, indices: Tensor, num_weights: Size, padding_idx: int, scale_grad_by_freq: bool = False
) -> Tensor:
    kept = grad_output
    if padding_idx >= 0:
        kept = o.where(o.expand_dims(indices != padding_idx, -1), grad_output, 0.0)
    base = o.zeros((num_weights, grad_output.shape[-1]), dtype=grad_output.dtype)
    return o.scatter(base, (indices,), kept, mode="add")


@converts("native_layer_norm_backward")
def layer_norm(
    grad_out: Tensor,
    x: Tensor,
    normalized_shape: Sequence[Size],
    mean: Tensor,
    rstd: Tensor,
    weight: Any,
    bias: Any,
    output_mask: Sequence[bool],
) -> list[Any]:
    """PyTorch's moments stand for ε, which it does not hand over; mean and deviation are functions of x."""
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    scaled = grad_out if weight is None else grad_out * weight
    normal = (x - mean) * rstd
    dx = _through_norm(scaled, normal, rstd, axes)
    front = tuple(range(x.ndim - len(normalized_shape)))
    return [dx, o.sum(grad_out * normal, front), o.sum(grad_out, front)]


def _through_norm(cotangent: Tensor, normal: Tensor, scale: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The gradient by x of (x - mean) / deviation, over these axes."""
    along = o.mean(cotangent * normal, axes, keepdims=True)
    return scale * (cotangent - o.mean(cotangent, axes, keepdims=True) - normal * along)


@converts("native_group_norm_backward")
def group_norm(
    grad_out: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Any,
    N: Size,
    C: Size,
    HxW: Size,
    group: int,
    output_mask: Sequence[bool],
) -> list[Any]:
    rows, moments = (N, group, -1), (N, group, 1)
    normal = o.reshape((o.reshape(x, rows) - o.reshape(mean, moments)) * o.reshape(rstd, moments), x.shape)
    per_channel = (1, C, *[1] * (x.ndim - 2))
    scaled = grad_out if weight is None else grad_out * o.reshape(weight, per_channel)
    dx = _through_norm(o.reshape(scaled, rows), o.reshape(normal, rows), o.reshape(rstd, moments), (2,))
    front = (0, *range(2, x.ndim))
    return [o.reshape(dx, x.shape), o.sum(grad_out * normal, front), o.sum(grad_out, front)]
