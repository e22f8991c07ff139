"""Pooling over one or three axes, and maxima over windows that share an image out evenly.

All are poolings over two axes (``windows``): of images one row high, or of planes first and of what these give along
the depth then, which reads each element as often as the plane's windows overlap. The order is PyTorch's: of several
equal maxima the first by depth, row and column has the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.types import Dim, Size, computed, is_floating
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift
from staticgrad.graph.optable import FUNCTIONS, Array, public
from staticgrad.graph.scopes import no_grad
from staticgrad.ops.convolution import Sizes, along
from staticgrad.ops.declare import shown_as
from staticgrad.ops.elementwise.copies import rounded_once, widened
from staticgrad.ops.windows import adaptive_counts, averaging_matrix, maxima, means, shares

LAYOUTS = {1: "(N, C, L) or (C, L)", 2: "(N, C, H, W) or (C, H, W)", 3: "(N, C, D, H, W) or (C, D, H, W)"}


def _image(what: str, input: TensorLike, axes: int) -> Tensor:
    """An image with this number of pooled axes.

    Raises:
        GraphError: it has another number of axes, or is no image of floats.
    """
    x = lift(input)
    if x.ndim not in (axes + 1, axes + 2) or not is_floating(x.dtype):
        raise GraphError(f"{what}: expected a floating image {LAYOUTS[axes]}, actual {x.name!r} {x.type}")
    return x


def _in_rows(x: Tensor) -> Tensor:
    """(…, L) as (…, 1, L)."""
    return FUNCTIONS.expand_dims(x, -2)


def _in_planes(x: Tensor) -> Tensor:
    """(…, D, H, W) as (B, H, W)."""
    return FUNCTIONS.reshape(x, (math.prod(x.shape[:-2]), *x.shape[-2:]))


def _in_depth(y: Tensor, x: Tensor) -> Tensor:
    """The planes (B, P, Q) of an image ``x`` (…, D, H, W) as rows of one image a depth, (A, D, P·Q)."""
    return FUNCTIONS.reshape(y, (math.prod(x.shape[:-3]), x.shape[-3], y.shape[-2] * y.shape[-1]))


def _of_volume(y: Tensor, x: Tensor, plane: Sequence[Size]) -> Tensor:
    """(A, E, P·Q) as (…, E, P, Q), an image like ``x``."""
    return FUNCTIONS.reshape(y, (*x.shape[:-3], y.shape[1], *plane))


def _parted(value: Sizes | None, what: str, least: int = 0) -> tuple[Any, Any]:
    """An argument for depth, height and width as one for height and width, and one for the depth."""
    if value is None:
        return None, None
    depth, *plane = along(value, 3, what, least)
    return tuple(plane), depth


# -- maxima ---------------------------------------------------------------------------------------------------------


def _max1d(
    x: Tensor, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool, places: bool, what: str
) -> tuple[Tensor, Tensor]:
    y, found = maxima(_in_rows(x), (1, kernel), (1, stride), (0, padding), (1, dilation), ceil_mode, places, what)
    return FUNCTIONS.squeeze(y, -2), FUNCTIONS.squeeze(found, -2)


def _max3d(
    x: Tensor, kernel: Sizes, stride: Sizes | None, padding: Sizes, dilation: Sizes, ceil_mode: bool, places: bool,
    what: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    o = FUNCTIONS
    (kernel_2, kernel_1), (stride_2, stride_1), (padding_2, padding_1), (dilation_2, dilation_1) = (
        _parted(kernel, f"{what}: kernel_size", 1),
        _parted(kernel if stride is None else stride, f"{what}: stride", 1),
        _parted(padding, f"{what}: padding"),
        _parted(dilation, f"{what}: dilation", 1),
    )
    wide, dtype = widened((x,))[0], x.dtype  # of short floats both poolings are of float32
    planes, inside = maxima(_in_planes(wide), kernel_2, stride_2, padding_2, dilation_2, ceil_mode, places, what)
    size = planes.shape[-2:]
    y, across = maxima(
        _in_depth(planes, x), (kernel_1, 1), (stride_1, 1), (padding_1, 0), (dilation_1, 1), ceil_mode, places, what
    )
    result = _of_volume(y, x, size)
    result = o.astype(result, dtype) if wide is not x else result
    if not places:
        return result, result
    with x.graph, no_grad():
        across = o.reshape(across, (across.shape[0], -1))
        depth = o.floor_divide(across, size[0] * size[1])
        flat = o.take_along_axis(o.reshape(inside, (across.shape[0], -1)), across, 1)
        place = o.add(o.multiply(depth, x.shape[-2] * x.shape[-1]), flat)
        return result, o.reshape(place, result.shape)


@public
@shown_as("SqueezeBackward1")
def max_pool1d(
    input: TensorLike,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest element of each window of a row, as ``max_pool2d`` of images one row high.

    Args:
        input: (N, C, L) or (C, L).
        return_indices: a pair: also where each of them is, as int64.

    Raises:
        GraphError: a window that does not fit.

    Example:
        >>> sg.Session().run(sg.nn.max_pool1d(sg.constant([[1.0, 5.0, 2.0, 4.0]]), 2))
        array([[5., 4.]], dtype=float32)
    """
    what = "max_pool1d"
    x = _image(what, input, 1)
    (kernel,), (low,) = along(kernel_size, 1, f"{what}: kernel_size", 1), along(padding, 1, f"{what}: padding")
    (step,) = along(kernel if stride is None else stride, 1, f"{what}: stride", 1)
    (spread,) = along(dilation, 1, f"{what}: dilation", 1)
    pooled = _max1d(x, kernel, step, low, spread, ceil_mode, return_indices, what)
    return pooled if return_indices else pooled[0]


@public
@shown_as("MaxPool3DWithIndicesBackward0")
def max_pool3d(
    input: TensorLike,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest element of each window of a volume: of planes, then along the depth.

    Args:
        input: (N, C, D, H, W) or (C, D, H, W).
        return_indices: a pair: also where each of them is, (depth·H + row)·W + column as int64.

    Raises:
        GraphError: a window that does not fit.

    Example:
        >>> sg.nn.max_pool3d(sg.zeros((2, 3, 8, 32, 32)), 3, stride=2, padding=1).shape
        (2, 3, 4, 16, 16)
    """
    what = "max_pool3d"
    x = _image(what, input, 3)
    pooled = _max3d(x, kernel_size, stride, padding, dilation, ceil_mode, return_indices, what)
    return pooled if return_indices else pooled[0]


# -- means ----------------------------------------------------------------------------------------------------------


@public
@shown_as("SqueezeBackward1")
def avg_pool1d(
    input: TensorLike,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of a row, as ``avg_pool2d`` of images one row high.

    Args:
        input: (N, C, L) or (C, L).

    Raises:
        GraphError: a window that does not fit.

    Example:
        >>> sg.Session().run(sg.nn.avg_pool1d(sg.constant([[1.0, 5.0, 2.0, 4.0]]), 2))
        array([[3., 3.]], dtype=float32)
    """
    what = "avg_pool1d"
    x = _image(what, input, 1)
    (kernel,), (low,) = along(kernel_size, 1, f"{what}: kernel_size", 1), along(padding, 1, f"{what}: padding")
    (step,) = along(kernel if stride is None else stride, 1, f"{what}: stride", 1)
    y = means(_in_rows(x), (1, kernel), (1, step), (0, low), ceil_mode, count_include_pad, None, what)
    return FUNCTIONS.squeeze(y, -2)


@public
@shown_as("AvgPool3DBackward0")
def avg_pool3d(
    input: TensorLike,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of a volume: of planes, then along the depth.

    Args:
        input: (N, C, D, H, W) or (C, D, H, W).
        divisor_override: divide by this number instead.

    Raises:
        GraphError: a window that does not fit, or a divisor of zero.

    Example:
        >>> sg.nn.avg_pool3d(sg.zeros((2, 3, 8, 32, 32)), 2).shape
        (2, 3, 4, 16, 16)
    """
    what = "avg_pool3d"
    x = _image(what, input, 3)
    kernel_2, kernel_1 = _parted(kernel_size, f"{what}: kernel_size", 1)
    stride_2, stride_1 = _parted(kernel_size if stride is None else stride, f"{what}: stride", 1)
    padding_2, padding_1 = _parted(padding, f"{what}: padding")
    one = None if divisor_override is None else 1

    def mean(x: Tensor) -> Tensor:
        planes = means(_in_planes(x), kernel_2, stride_2, padding_2, ceil_mode, count_include_pad, one, what)
        y = means(
            _in_depth(planes, x), (kernel_1, 1), (stride_1, 1), (padding_1, 0), ceil_mode, count_include_pad,
            divisor_override, what,
        )  # fmt: skip
        return _of_volume(y, x, planes.shape[-2:])

    return rounded_once(mean, x)


# -- windows that share an image out --------------------------------------------------------------------------------


def _shared_out(
    what: str, input: TensorLike, output_size: int | Sequence[int | None] | None, axes: int
) -> tuple[Tensor, list[int], list[int]]:
    """An image, the sizes of its pooled axes, and how many windows each has.

    Raises:
        GraphError: an image whose size is not known, or an empty one.
    """
    x = _image(what, input, axes)
    given = adaptive_counts(output_size, axes, what)
    sizes: list[int] = []
    for size in x.shape[-axes:]:
        if isinstance(size, Dim) or size < 1:
            raise GraphError(f"{what}: expected an image of known size that is not empty, actual {x.name!r} {x.type}")
        sizes.append(size)
    return x, sizes, [size if count is None else count for size, count in zip(sizes, given, strict=True)]


def _adaptive_mean(what: str, input: TensorLike, output_size: int | Sequence[int | None] | None, axes: int) -> Tensor:
    o = FUNCTIONS
    x, sizes, counts = _shared_out(what, input, output_size, axes)
    if all(size % count == 0 for size, count in zip(sizes, counts, strict=True)):
        kernel = [size // count for size, count in zip(sizes, counts, strict=True)]
        return o.avg_pool1d(x, kernel) if axes == 1 else o.avg_pool3d(x, kernel)

    def mean(x: Tensor) -> Tensor:
        for axis, size, count in zip(range(-axes, 0), sizes, counts, strict=True):
            if count != size:
                weights = averaging_matrix(size, count).T.astype(computed(x.dtype))
                x = o.moveaxis(o.matmul(o.moveaxis(x, axis, -1), weights), -1, axis)
        return x

    return rounded_once(mean, x)


@public
@shown_as("SqueezeBackward1")
def adaptive_avg_pool1d(input: TensorLike, output_size: int | Sequence[int | None] | None) -> Tensor:
    """Means over windows that share a row out evenly, as ``adaptive_avg_pool2d`` has them.

    Args:
        input: (N, C, L) or (C, L).

    Raises:
        GraphError: a row whose size is not known, or an empty result.

    Example:
        >>> sg.Session().run(sg.nn.adaptive_avg_pool1d(sg.constant([[1.0, 2.0, 3.0]]), 2))
        array([[1.5, 2.5]], dtype=float32)
    """
    return _adaptive_mean("adaptive_avg_pool1d", input, output_size, 1)


@public
@shown_as("AdaptiveAvgPool3DBackward0")
def adaptive_avg_pool3d(input: TensorLike, output_size: int | Sequence[int | None] | None) -> Tensor:
    """Means over windows that share a volume out evenly, as ``adaptive_avg_pool2d`` has them.

    Args:
        input: (N, C, D, H, W) or (C, D, H, W).
        output_size: three numbers, or one for all; None keeps an axis.

    Raises:
        GraphError: a volume whose size is not known, or an empty result.

    Example:
        >>> sg.nn.adaptive_avg_pool3d(sg.zeros((8, 16, 7, 7, 5)), (1, 2, None)).shape
        (8, 16, 1, 2, 5)
    """
    return _adaptive_mean("adaptive_avg_pool3d", input, output_size, 3)


def _adaptive_maximum(
    what: str, input: TensorLike, output_size: int | Sequence[int | None] | None, axes: int, places: bool
) -> Tensor | tuple[Tensor, Tensor]:
    """The maxima of windows of one length: each axis is read so that windows follow on each other, where shorter ones
    have their last element again."""
    o = FUNCTIONS
    x, sizes, counts = _shared_out(what, input, output_size, axes)
    reads: list[Array | None] = []
    kernel = []
    for axis, size, count in zip(range(-axes, 0), sizes, counts, strict=True):
        read = shares(size, count)
        kernel.append(read.shape[1])
        reads.append(None if size % count == 0 else read.ravel())
        if size % count:
            x = o.take(x, read.ravel(), axis=axis)
    if axes == 1:
        y, found = _max1d(x, kernel[0], kernel[0], 0, 1, False, places, what)
    elif axes == 2:
        y, found = maxima(x, kernel, kernel, 0, 1, False, places, what)
    else:
        y, found = _max3d(x, kernel, kernel, 0, 1, False, places, what)
    if not places:
        return y
    with x.graph, no_grad():
        return y, _places_read(found, reads, sizes)


def _places_read(found: Tensor, reads: Sequence[Array | None], sizes: Sequence[int]) -> Tensor:
    """Flat places of an image from those of what was read of it: an axis that has a list of indices by these."""
    o, step, terms = FUNCTIONS, 1, []
    for read, size in zip(reversed(reads), reversed(sizes), strict=True):
        length = size if read is None else len(read)
        place = o.remainder(found, length)
        found = o.floor_divide(found, length)
        terms.append(o.multiply(place if read is None else o.take(read.astype(np.int64), place), step))
        step *= size
    total = terms[0]
    for term in terms[1:]:
        total = o.add(total, term)
    return total


@public
@shown_as("SqueezeBackward1")
def adaptive_max_pool1d(
    input: TensorLike, output_size: int | Sequence[int | None] | None, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Maxima over windows that share a row out evenly.

    Args:
        input: (N, C, L) or (C, L).
        return_indices: a pair: also where each of them is, as int64.

    Raises:
        GraphError: a row whose size is not known, or an empty result.

    Example:
        >>> sg.Session().run(sg.nn.adaptive_max_pool1d(sg.constant([[1.0, 3.0, 2.0]]), 2))
        array([[3., 3.]], dtype=float32)
    """
    return _adaptive_maximum("adaptive_max_pool1d", input, output_size, 1, return_indices)


@public
@shown_as("AdaptiveMaxPool2DBackward0")
def adaptive_max_pool2d(
    input: TensorLike, output_size: int | Sequence[int | None] | None, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Maxima over windows that share an image out evenly: window i covers [⌊i·H/OH⌋, ⌈(i+1)·H/OH⌉).

    Args:
        input: (N, C, H, W) or (C, H, W).
        output_size: (OH, OW), or one number for both; None keeps an axis.
        return_indices: a pair: also where each of them is, row·W + column as int64.

    Raises:
        GraphError: an image whose size is not known, or an empty result.

    Example:
        >>> x = sg.constant(np.arange(12.0).reshape(1, 1, 3, 4))
        >>> sg.Session().run(sg.nn.adaptive_max_pool2d(x, (1, 2)))
        array([[[[ 9., 11.]]]])
    """
    return _adaptive_maximum("adaptive_max_pool2d", input, output_size, 2, return_indices)


@public
@shown_as("AdaptiveMaxPool3DBackward0")
def adaptive_max_pool3d(
    input: TensorLike, output_size: int | Sequence[int | None] | None, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Maxima over windows that share a volume out evenly.

    Args:
        input: (N, C, D, H, W) or (C, D, H, W).
        output_size: three numbers, or one for all; None keeps an axis.
        return_indices: a pair: also where each of them is, (depth·H + row)·W + column as int64.

    Raises:
        GraphError: a volume whose size is not known, or an empty result.

    Example:
        >>> sg.nn.adaptive_max_pool3d(sg.zeros((8, 16, 7, 7, 5)), (1, 2, None)).shape
        (8, 16, 1, 2, 5)
    """
    return _adaptive_maximum("adaptive_max_pool3d", input, output_size, 3, return_indices)
