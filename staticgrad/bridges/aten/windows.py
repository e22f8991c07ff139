"""Convolutions, pools, pads and other sizes of images: their converters.

What is one-dimensional is a row of an image. A pool of volumes is one of planes, then one along the depth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
    return transposed_convolution(x, weight, bias, steps, zeros, all_axes(output_padding, axes), groups, spread)


def _convolved(axes: int, *operands: Any) -> Tensor:
    return (o.conv1d, o.conv2d, o.conv3d)[axes - 1](*operands)


def transposed_convolution(
    x: Tensor, weight: Tensor, bias: Any, stride: Sizes, padding: Sizes, extra: Sizes, groups: int, dilation: Sizes
) -> Tensor:
    axes = weight.ndim - 2
    if axes == 2:
        return o.conv_transpose2d(x, weight, bias, stride, padding, extra, groups, dilation)
    if axes == 1:
        image = o.conv_transpose2d(
            o.expand_dims(x, -2), o.expand_dims(weight, -2), bias,
            (1, *stride), (0, *padding), (0, *extra), groups, (1, *dilation),
        )  # fmt: skip
        return o.squeeze(image, -2)
    return _transposed_volumes(x, weight, bias, stride, padding, extra, groups, dilation)


def _transposed_volumes(
    x: Tensor, weight: Tensor, bias: Any, stride: Sizes, padding: Sizes, extra: Sizes, groups: int, dilation: Sizes
) -> Tensor:
    """The sum over the depth of the kernel: planes of the input, transposed with planes of the kernel, stand a step
    apart."""
    n, channels, depth = x.shape[:3]
    outputs, kernel = int(weight.shape[1]) * groups, int(weight.shape[2])
    step, spread, zeros = stride[0], dilation[0], padding[0]
    whole = (depth - 1) * step + (kernel - 1) * spread + 1
    planes = o.reshape(o.moveaxis(x, 2, 1), (n * depth, channels, *x.shape[3:]))
    total: Tensor | None = None
    for k in range(kernel):
        y = o.conv_transpose2d(planes, weight[:, :, k], None, stride[1:], padding[1:], extra[1:], groups, dilation[1:])
        y = o.moveaxis(o.reshape(y, (n, depth, outputs, *y.shape[2:])), 1, 2)
        apart = o.reshape(
            o.pad(o.expand_dims(y, 3), [(0, 0)] * 3 + [(0, step - 1)] + [(0, 0)] * 2),
            (n, outputs, depth * step, *y.shape[3:]),
        )[:, :, : (depth - 1) * step + 1]
        before = k * spread
        placed = o.pad(apart, [(0, 0)] * 2 + [(before, whole - before - (depth - 1) * step - 1)] + [(0, 0)] * 2)
        total = placed if total is None else total + placed
    assert total is not None
    total = o.pad(total, [(0, 0)] * 2 + [(0, max(extra[0] - zeros, 0))] + [(0, 0)] * 2)
    size = whole - 2 * zeros + extra[0]
    total = total[:, :, zeros : zeros + size]
    return total if bias is None else total + o.reshape(bias, (outputs, 1, 1, 1))


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
    batched = x if x.ndim == axes + 2 else o.expand_dims(x, 0)
    steps, zeros, extra, spread = (all_axes(s, axes) for s in (stride, padding, output_padding, dilation))
    y = transposed_convolution(batched, weight, bias, steps, zeros, extra, groups, spread)
    return y if x.ndim == axes + 2 else o.squeeze(y, 0)


# -- pools -------------------------------------------------------------------------------------------------------------


def _as_images(x: Tensor, axes: int) -> tuple[Tensor, tuple[Any, ...]]:
    """(…, the last axes) as (N, 1 or more, …), and the axes in front."""
    front = x.shape[: x.ndim - axes]
    return o.reshape(x, (1, math.prod(front), *x.shape[x.ndim - axes :])), front


def _pooled(x: Tensor, axes: int, pool: Callable[[Tensor, Sequence[int]], Tensor]) -> Tensor:
    """``pool`` of images and the numbers of the axes that they have, for signals, images or volumes."""
    if axes == 2:
        return pool(x, (0, 1))
    if axes == 1:
        return o.squeeze(pool(o.expand_dims(x, -2), (-1, 0)), -2)
    images, front = _as_images(x, 3)
    planes = pool(o.reshape(images, (*images.shape[1:],)), (1, 2))  # (N C, D, H, W): the depth stands for channels
    rows, columns = planes.shape[-2:]
    deep = pool(o.reshape(planes, (1, *planes.shape[:2], rows * columns)), (0, -1))
    return o.reshape(deep, (*front, deep.shape[-2], rows, columns))


def _of(sizes: Sequence[Any], places: Sequence[int], absent: Any) -> tuple[Any, ...]:
    return tuple(absent if place < 0 else sizes[place] for place in places)


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
    axes = int(at.op[-2])
    return _max_pool(x, axes, kernel_size, stride, padding, dilation, ceil_mode)


def _max_pool(x: Tensor, axes: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Tensor:
    kernel, zeros, spread = all_axes(kernel, axes), all_axes(padding, axes), all_axes(dilation, axes)
    steps = all_axes(stride, axes) or kernel

    def pool(x: Tensor, on: Sequence[int]) -> Tensor:
        sizes = _of(kernel, on, 1), _of(steps, on, 1), _of(zeros, on, 0), _of(spread, on, 1)
        y = o.max_pool2d(x, *sizes, ceil_mode)
        assert isinstance(y, Tensor)
        return y

    return _pooled(x, axes, pool)


@converts("max_pool1d_with_indices", "max_pool2d_with_indices")
def max_pool_with_indices(
    at: AtenCall,
    x: Tensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> list[Tensor]:
    axes = 1 if "1d" in at.op else 2
    kernel, steps = all_axes(kernel_size, axes), all_axes(stride or kernel_size, axes)
    zeros, spread = all_axes(padding, axes), all_axes(dilation, axes)
    if axes == 2:
        return list(o.max_pool2d(x, kernel, steps, zeros, spread, ceil_mode, return_indices=True))
    row, sizes = o.expand_dims(x, -2), ((1, *kernel), (1, *steps), (0, *zeros), (1, *spread))
    return [o.squeeze(y, -2) for y in o.max_pool2d(row, *sizes, ceil_mode, return_indices=True)]


@converts("max_pool3d_with_indices")
def max_pool3d_with_indices(
    x: Tensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> list[Any]:
    """The positions are left out: where they are read the program is refused."""
    return [_max_pool(x, 3, kernel_size, stride, padding, dilation, ceil_mode), None]


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
    """A mean over a volume's window is one of means, since windows are as large at each depth."""
    axes = int(at.op[-2])
    kernel, zeros = all_axes(kernel_size, axes), all_axes(padding, axes)
    steps = all_axes(stride, axes) or kernel
    y = _pooled(
        x,
        axes,
        lambda x, on: o.avg_pool2d(
            x,
            _of(kernel, on, 1),
            _of(steps, on, 1),
            _of(zeros, on, 0),
            ceil_mode,
            count_include_pad,
            None if divisor_override is None else 1,
        ),
    )
    return y if divisor_override is None else y / divisor_override


@converts("adaptive_avg_pool1d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d")
def adaptive_avg_pool(at: AtenCall, x: Tensor, output_size: Any) -> Tensor:
    axes = int(at.op[-2])
    return _pooled(x, axes, lambda x, on: o.adaptive_avg_pool2d(x, _of(output_size, on, None)))


@converts("adaptive_avg_pool3d", "_adaptive_avg_pool3d")
def adaptive_avg_pool3d(x: Tensor, output_size: Any) -> Tensor:
    return _pooled(x, 3, lambda x, on: o.adaptive_avg_pool2d(x, _of(output_size, on, None)))


def _shares(size: int, count: int) -> Any:
    """(count, most) places of windows that share an axis out evenly; a shorter one repeats its last."""
    starts = np.arange(count) * size // count
    ends = -(-(np.arange(count) + 1) * size // count)
    most = int((ends - starts).max())
    return np.minimum(starts[:, None] + np.arange(most), ends[:, None] - 1)


@converts("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(x: Tensor, output_size: Any) -> list[Tensor]:
    """The first of the greatest elements of each window, and its place in the image."""
    axes = len(output_size)
    sizes = [int(n) for n in x.shape[x.ndim - axes :]]
    shares = [_shares(size, count) for size, count in zip(sizes, output_size, strict=True)]
    y, place = x, np.zeros((), np.int64)
    for axis, (size, share) in enumerate(zip(sizes, shares, strict=True)):
        y = o.take(y, share, axis=x.ndim - axes + 2 * axis)
        place = place[..., None, None] * size + share
    order = [*range(x.ndim - axes), *range(x.ndim - axes, y.ndim, 2), *range(x.ndim - axes + 1, y.ndim, 2)]
    windows = o.permute_dims(y, tuple(order))
    flat = o.reshape(windows, (*windows.shape[: x.ndim], -1))
    best = o.argmax(flat, -1, keepdims=True)
    places = place.transpose([*range(0, 2 * axes, 2), *range(1, 2 * axes, 2)]).reshape(*output_size, -1)
    found = o.take_along_axis(o.broadcast_to(o.constant(places), flat.shape), best, axis=-1)
    return [o.squeeze(o.take_along_axis(flat, best, axis=-1), -1), o.squeeze(found, -1)]


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
