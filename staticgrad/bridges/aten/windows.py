"""Convolutions, pools, pads and other sizes of images: their converters.

``im2col``, ``col2im`` and samples on a grid read and write at places that are computed here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.bridges.aten.dialect import AtenCall, converts
from staticgrad.bridges.importer import RefusedError
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.nn.padding import pad as padded
from staticgrad.nn.resizing import interpolate

Sizes = Sequence[int]


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


def _max_pool(at: AtenCall, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, *rest: Any) -> Any:
    axes = _axes(at)
    sizes = all_axes(kernel, axes), all_axes(stride, axes) or None, all_axes(padding, axes), all_axes(dilation, axes)
    return (o.max_pool1d, o.max_pool2d, o.max_pool3d)[axes - 1](x, *sizes, *rest)


@converts("max_pool1d", "max_pool2d", "max_pool3d")
def max_pool(
    at: AtenCall,
    x: Tensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Tensor:
    y = _max_pool(at, x, kernel_size, stride, padding, dilation, ceil_mode, False)
    assert isinstance(y, Tensor)
    return y


@converts("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool_with_indices(
    at: AtenCall,
    x: Tensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> list[Tensor]:
    return list(_max_pool(at, x, kernel_size, stride, padding, dilation, ceil_mode, True))


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


def _window_places(size: Sizes, kernel: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> Any:
    """For each place of a kernel, and each position of the window in row-major order, the place in the padded image."""
    places: Any = np.zeros((1, 1), np.int64)
    for n, k, d, p, s in zip(size, kernel, dilation, padding, stride, strict=True):
        count = (n + 2 * p - d * (k - 1) - 1) // s + 1
        axis = np.arange(k)[:, None] * d + np.arange(count) * s
        places = (places[:, None, :, None] * (n + 2 * p) + axis[None, :, None, :]).reshape(
            places.shape[0] * k, places.shape[1] * count
        )
    return places


@converts("im2col")
def im2col(x: Tensor, kernel_size: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> Tensor:
    sizes = [int(n) for n in x.shape[-2:]]
    places = _window_places(sizes, kernel_size, dilation, padding, stride)
    zeros = [(0, 0)] * (x.ndim - 2) + [(p, p) for p in padding]
    image = o.pad(x, zeros)
    columns = o.take(o.reshape(image, (*x.shape[:-2], -1)), places, axis=x.ndim - 2)
    return o.reshape(columns, (*x.shape[:-3], x.shape[-3] * places.shape[0], places.shape[1]))


@converts("col2im")
def col2im(x: Tensor, output_size: Sizes, kernel_size: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> Tensor:
    places = _window_places(output_size, kernel_size, dilation, padding, stride)
    high, wide = (int(n) + 2 * p for n, p in zip(output_size, padding, strict=True))
    front = (*x.shape[:-2], x.shape[-2] // places.shape[0])
    columns = o.reshape(x, (*front, *places.shape))
    base = o.zeros((*front, high * wide), dtype=x.dtype)
    image = o.reshape(o.scatter(base, (..., places), columns, mode="add"), (*front, high, wide))
    return image[..., padding[0] : high - padding[0], padding[1] : wide - padding[1]]


@converts("grid_sampler_2d", "grid_sampler_3d", "grid_sampler")
def grid_sampler(x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    """Bilinear or nearest samples of images at places from -1 to 1."""
    if interpolation_mode == 2 or x.ndim != 4 or padding_mode == 2:
        raise RefusedError("bicubic samples, samples of volumes and reflected ones are not converted")
    n, _, high, wide = x.shape
    ends = [int(wide), int(high)]

    def place(axis: int) -> Tensor:
        size, at = ends[axis], grid[..., axis]
        found = (at + 1) * ((size - 1) / 2) if align_corners else ((at + 1) * size - 1) / 2
        return o.clip(found, 0.0, size - 1.0) if padding_mode == 1 else found

    across, down = place(0), place(1)
    images = o.reshape(o.constant(np.arange(int(n))), (n, 1, 1))

    def read(row: Tensor, column: Tensor) -> Tensor:
        inside = (row >= 0) & (row <= ends[1] - 1) & (column >= 0) & (column <= ends[0] - 1)
        rows, columns = (
            o.astype(o.clip(where, 0.0, end - 1.0), np.dtype(np.int64))
            for where, end in ((row, ends[1]), (column, ends[0]))
        )
        found = o.moveaxis(x, 1, -1)[images, rows, columns]  # (N, OH, OW, C)
        return o.where(o.expand_dims(inside, -1), found, 0.0)

    if interpolation_mode == 1:
        return o.moveaxis(read(o.round(down), o.round(across)), -1, 1)
    top, left = o.floor(down), o.floor(across)
    below, beside = o.expand_dims(down - top, -1), o.expand_dims(across - left, -1)
    upper = read(top, left) * (1 - beside) + read(top, left + 1) * beside
    lower = read(top + 1, left) * (1 - beside) + read(top + 1, left + 1) * beside
    return o.moveaxis(upper * (1 - below) + lower * below, -1, 1)
