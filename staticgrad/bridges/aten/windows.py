"""Convolutions, pools, pads and other sizes of images: their converters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from staticgrad.bridges.aten.dialect import AtenCall, converts
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.nn import patches
from staticgrad.nn.padding import pad as padded
from staticgrad.nn.resizing import interpolate
from staticgrad.nn.sampling import grid_sample

Sizes = Sequence[int]
SAMPLES: Any = ("bilinear", "nearest", "bicubic")  # by PyTorch's numbers
BORDERS: Any = ("zeros", "border", "reflection")


def all_axes(sizes: Any, axes: int, default: int | None = None) -> tuple[int, ...]:
    """One size for each axis, where one for all, or none, may be given."""
    given = [sizes] if isinstance(sizes, int) else list(sizes or ([] if default is None else [default]))
    return tuple(given * axes if len(given) == 1 else given)


@converts("convolution", "_convolution")
def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
    benchmark: Any = None,
    deterministic: Any = None,
    allow_tf32: Any = None,
) -> Tensor:
    axes = weight.ndim - 2
    steps, zeros, spread = all_axes(stride, axes), all_axes(padding, axes), all_axes(dilation, axes)
    if not transposed:
        return _convolved(axes, x, weight, bias, steps, zeros, spread, groups)
    return _transposed(axes, x, weight, bias, steps, zeros, all_axes(output_padding, axes), groups, spread)


def _convolved(axes: int, *operands: Any) -> Tensor:
    return (o.conv1d, o.conv2d, o.conv3d)[axes - 1](*operands)


def _transposed(axes: int, *operands: Any) -> Tensor:
    return (o.conv_transpose1d, o.conv_transpose2d, o.conv_transpose3d)[axes - 1](*operands)


@converts("conv1d", "conv2d", "conv3d")
def conv(
    x: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    axes = weight.ndim - 2
    zeros = padding if isinstance(padding, str) else all_axes(padding, axes)
    return _convolved(axes, x, weight, bias, all_axes(stride, axes), zeros, all_axes(dilation, axes), groups)


@converts("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    axes = weight.ndim - 2
    steps, zeros, extra, spread = (all_axes(s, axes) for s in (stride, padding, output_padding, dilation))
    return _transposed(axes, x, weight, bias, steps, zeros, extra, groups, spread)


# -- pools -------------------------------------------------------------------------------------------------------------


def _axes(at: AtenCall) -> int:
    """The number of axes of windows, from the name of the op."""
    return int(re.findall(r"(\d)d", at.op)[0])


@converts(*(f"max_pool{axes}d{ending}" for axes in (1, 2, 3) for ending in ("", "_with_indices")))
def max_pool(
    at: AtenCall,
    x: Tensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    axes = _axes(at)
    pool = (o.max_pool1d, o.max_pool2d, o.max_pool3d)[axes - 1]
    kernel, steps = all_axes(kernel_size, axes), all_axes(stride, axes) or None
    has_indices = "indices" in at.op
    found = pool(x, kernel, steps, all_axes(padding, axes), all_axes(dilation, axes), ceil_mode, has_indices)
    return list(found) if has_indices else found


@converts("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    at: AtenCall,
    x: Tensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    axes = _axes(at)
    sizes = all_axes(kernel_size, axes), all_axes(stride, axes) or None, all_axes(padding, axes)
    if axes == 1:
        return o.avg_pool1d(x, *sizes, ceil_mode, count_include_pad)
    return (o.avg_pool2d, o.avg_pool3d)[axes - 2](x, *sizes, ceil_mode, count_include_pad, divisor_override)


@converts(
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d",
)  # fmt: skip
def adaptive_avg_pool(at: AtenCall, x: Tensor, output_size: Any) -> Tensor:
    pools = o.adaptive_avg_pool1d, o.adaptive_avg_pool2d, o.adaptive_avg_pool3d
    return pools[_axes(at) - 1](x, all_axes(output_size, _axes(at)))


@converts("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(at: AtenCall, x: Tensor, output_size: Any) -> list[Tensor]:
    pools = o.adaptive_max_pool1d, o.adaptive_max_pool2d, o.adaptive_max_pool3d
    return list(pools[_axes(at) - 1](x, all_axes(output_size, _axes(at)), True))


# -- pads and sizes ----------------------------------------------------------------------------------------------------


@converts("constant_pad_nd")
def constant_pad(x: Tensor, pad: Sequence[Any], value: Any = 0) -> Tensor:
    return padded(x, pad, "constant", value)


@converts("pad")
def pad_(x: Tensor, pad: Sequence[Any], mode: Any = "constant", value: Any = None) -> Tensor:
    return padded(x, pad, mode, value)


@converts("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(x: Tensor, padding: Sequence[Any]) -> Tensor:
    return padded(x, padding, "reflect")


@converts("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(x: Tensor, padding: Sequence[Any]) -> Tensor:
    return padded(x, padding, "replicate")


def _enter_resizing(names: str, mode: Any) -> None:
    def resized(
        at: AtenCall,
        x: Tensor,
        output_size: Any = None,
        scale_factors: Any = None,
        align_corners: bool = False,
        scales: Any = None,
        scales_d: Any = None,
        scales_h: Any = None,
        scales_w: Any = None,
    ) -> Tensor:
        given = [s for s in (scales, scales_d, scales_h, scales_w) if s is not None]
        factors = scale_factors or given or None
        corners = None if "nearest" in mode else align_corners
        smooth = "_aa" in at.op
        size = [int(n) for n in at.shape[2:]] if factors is None else None  # type: ignore[arg-type]
        return interpolate(x, size, factors, mode, corners, antialias=smooth)

    converts(*names.split())(resized)


_enter_resizing("upsample_nearest1d upsample_nearest2d upsample_nearest3d", "nearest")
_enter_resizing("_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d", "nearest-exact")
_enter_resizing("upsample_linear1d", "linear")
_enter_resizing("upsample_bilinear2d _upsample_bilinear2d_aa", "bilinear")
_enter_resizing("upsample_trilinear3d", "trilinear")
_enter_resizing("upsample_bicubic2d _upsample_bicubic2d_aa", "bicubic")


@converts("pixel_shuffle")
def pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    r, (*front, c, h, w) = upscale_factor, x.shape
    n = len(front)
    parts = o.reshape(x, (*front, c // (r * r), r, r, h, w))
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return o.reshape(o.permute_dims(parts, order), (*front, c // (r * r), h * r, w * r))


@converts("im2col")
def im2col(x: Tensor, kernel_size: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> Tensor:
    return patches.unfold(x, *(all_axes(sizes, 2) for sizes in (kernel_size, dilation, padding, stride)))


@converts("col2im")
def col2im(x: Tensor, output_size: Sizes, kernel_size: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> Tensor:
    return patches.fold(x, *(all_axes(sizes, 2) for sizes in (output_size, kernel_size, dilation, padding, stride)))


@converts("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    return grid_sample(x, grid, SAMPLES[interpolation_mode], BORDERS[padding_mode], align_corners)
