"""Convolutions, pools, pads and other sizes of images: their converters."""

from __future__ import annotations

from typing import Any

from staticgrad.bridges.aten.dialect import AtenCall, converts, direct, entries
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.nn import patches
from staticgrad.nn.padding import pad as padded
from staticgrad.nn.resizing import interpolate
from staticgrad.nn.sampling import grid_sample

SAMPLES: Any = ("bilinear", "nearest", "bicubic")  # by PyTorch's numbers
BORDERS: Any = ("zeros", "border", "reflection")


def windowed(*xs: Any) -> list[Any]:
    """Sizes of axes: one size stands for all, and none for those of the window."""
    return [(x[0] if len(x) == 1 else x or None) if isinstance(x, tuple) else x for x in xs]


def with_places(at: AtenCall, *xs: Any) -> list[Any]:
    """The operands of a pool that also gives the places of maxima."""
    return [*windowed(*xs), True]


direct(
    lambda at, *xs: windowed(*xs),
    "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d max_pool1d max_pool2d max_pool3d"
    " avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d"
    " _adaptive_avg_pool2d=adaptive_avg_pool2d _adaptive_avg_pool3d=adaptive_avg_pool3d",
)
direct(
    with_places,
    "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d max_pool1d_with_indices=max_pool1d"
    " max_pool2d_with_indices=max_pool2d max_pool3d_with_indices=max_pool3d",
)


@converts("convolution", "_convolution")
def convolution(
    x: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int,
) -> Tensor:  # fmt: skip
    stride, padding, dilation, extra = windowed(stride, padding, dilation, output_padding)
    if transposed:
        function = (o.conv_transpose1d, o.conv_transpose2d, o.conv_transpose3d)[weight.ndim - 3]
        return function(x, weight, bias, stride, padding, extra, groups, dilation)
    return (o.conv1d, o.conv2d, o.conv3d)[weight.ndim - 3](x, weight, bias, stride, padding, dilation, groups)


@converts(
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d",
    "_upsample_bilinear2d_aa", "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bicubic2d_aa",
)  # fmt: skip
def resized(
    at: AtenCall, x: Tensor, output_size: Any, scale_factors: Any, align_corners: Any, scales: Any, scales_d: Any,
    scales_h: Any, scales_w: Any,
) -> Tensor:  # fmt: skip
    mode: Any = at.op.strip("_").removeprefix("upsample_").removesuffix("_aa")[:-2].replace("_", "-")
    factors = scale_factors or [s for s in (scales, scales_d, scales_h, scales_w) if s is not None] or None
    corners = None if "nearest" in mode else align_corners
    size = [int(n) for n in at.shape[2:]] if factors is None else None  # type: ignore[arg-type]
    return interpolate(x, size, factors, mode, corners, antialias=at.op.endswith("_aa"))


def _pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    r, (*front, c, h, w) = upscale_factor, x.shape
    n = len(front)
    parts = o.reshape(x, (*front, c // (r * r), r, r, h, w))
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return o.reshape(o.permute_dims(parts, order), (*front, c // (r * r), h * r, w * r))


def _unfolded(x: Tensor, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Tensor:
    return patches.unfold(x, *windowed(kernel_size, dilation, padding, stride))


def _folded(x: Tensor, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Tensor:
    return patches.fold(x, *windowed(output_size, kernel_size, dilation, padding, stride))


def _sampled(x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    return grid_sample(x, grid, SAMPLES[interpolation_mode], BORDERS[padding_mode], align_corners)


entries({
    "constant_pad_nd": lambda x, pad, value: padded(x, pad, "constant", value),
    "pad": lambda x, pad, mode, value: padded(x, pad, mode, value),
    "reflection_pad1d reflection_pad2d reflection_pad3d": lambda x, padding: padded(x, padding, "reflect"),
    "replication_pad1d replication_pad2d replication_pad3d": lambda x, padding: padded(x, padding, "replicate"),
    "pixel_shuffle": _pixel_shuffle,
    "im2col": _unfolded,
    "col2im": _folded,
    "grid_sampler grid_sampler_2d grid_sampler_3d": _sampled,
})  # fmt: skip
