"""ONNX's convolutions, of one to three dimensions, and its pools, of any number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from staticgrad.base.frozen import frozen
from staticgrad.base.types import float32, float64, int32, is_floating
from staticgrad.bridges.arrays import cast
from staticgrad.bridges.forms import SlidingWindows, padded
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.onnx.binding import Numbers
from staticgrad.bridges.onnx.casts import along, centred, quantized
from staticgrad.bridges.onnx.dialect import converts, converts_all
from staticgrad.bridges.onnx.program import OnnxNode
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


@frozen
class Geometry:
    """Windows over the axes after the second: sizes, steps, distances between elements, places (before, after)."""

    kernel: Sequence[Any]
    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Sequence[tuple[Any, Any]]

    @property
    def spans(self) -> list[int]:
        """The places from the first to the last element of a window."""
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations)]

    @property
    def windows(self) -> SlidingWindows:
        """The same windows over all axes."""
        pads = ((0, 0), (0, 0), *self.pads)
        kernel, strides, dilations = ((1, 1, *map(int, row)) for row in (self.kernel, self.strides, self.dilations))
        return SlidingWindows(kernel, strides, dilations, pads, (0,) * len(pads))


def geometry(node: OnnxNode, kernel: Sequence[Any], sizes: Sequence[Any], overhang: bool = True) -> Geometry:
    """The windows that a node describes, over axes of these sizes. With ``overhang`` what a last window hangs over the
    end is part of the pads."""
    rank, auto = len(kernel), node.attr("auto_pad", "NOTSET")
    strides, dilations = node.attr("strides", [1] * rank), node.attr("dilations", [1] * rank)
    found = node.attr("pads", [0] * 2 * rank) if auto == "NOTSET" else [0] * 2 * rank
    pads = list(zip(found[:rank], found[rank:]))
    at = Geometry(kernel, strides, dilations, pads)
    for axis, (size, s, span, (a, b)) in enumerate(zip(sizes, strides, at.spans, pads)):
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            missing = max((-(-size // s) - 1) * s + span - size, 0)
            less, more = missing // 2, missing - missing // 2
            pads[axis] = (less, more) if auto == "SAME_UPPER" else (more, less)
        elif overhang and node.attr("ceil_mode", 0):
            count = -(-(size + a + b - span) // s) + 1
            count -= (count - 1) * s >= size + a  # a window starts in the image, or before it
            pads[axis] = (a, max((count - 1) * s + span - size - a, b))
    return at


# -- convolutions ------------------------------------------------------------------------------------------------------


def _convolution(x: Tensor, w: Tensor, bias: Tensor | None, at: Geometry, groups: int) -> Tensor:
    rank = _rank(at)
    padding: Any = tuple(before for before, _ in at.pads)
    if any(before != after or before < 0 for before, after in at.pads):
        x, padding = padded(x, [(0, 0), (0, 0), *at.pads]), (0,) * rank
    function: Any = (o.conv1d, o.conv2d, o.conv3d)[rank - 1]
    y: Tensor = function(x, w, bias, tuple(at.strides), padding, tuple(at.dilations), groups)
    return y


def _rank(at: Geometry) -> int:
    rank = len(at.kernel)
    if rank not in (1, 2, 3):
        raise RefusedError(f"a convolution of {rank} dimensions is not converted")
    return rank


@converts("Conv")
def conv(node: OnnxNode, x: Tensor, w: Tensor, bias: Tensor | None, *, group: int) -> Tensor:
    return _convolution(x, w, bias, geometry(node, w.shape[2:], x.shape[2:]), group)


@converts("ConvInteger")
def conv_integer(
    node: OnnxNode, x: Tensor, w: Tensor, x_zero: Tensor | None, w_zero: Tensor | None, *, group: int
) -> Tensor:
    """A convolution of centred bytes; sums are exact in float64."""
    x, w = (cast(centred(*each), float64) for each in ((x, x_zero, 1), (w, w_zero, 0)))
    return cast(conv(node, x, w, None, group=group), int32)


@converts("QLinearConv")
def conv_quantized(
    node: OnnxNode, x: Tensor, x_scale: Tensor, x_zero: Tensor, w: Tensor, w_scale: Tensor, w_zero: Tensor,
    y_scale: Tensor, y_zero: Tensor, bias: Tensor | None, *, group: int,
) -> Tensor:  # fmt: skip
    y = conv_integer(node, x, w, x_zero, w_zero, group=group)
    if bias is not None:
        y = y + along(bias, y, 1)
    return quantized(cast(y, float32) * (o.reshape(x_scale, ()) * along(w_scale, y, 1)), y_scale, y_zero, y_zero.dtype)


@converts("ConvTranspose")
def conv_transpose(
    node: OnnxNode, x: Tensor, w: Tensor, bias: Tensor | None, *, group: int, output_padding: Sequence[int] | None,
    output_shape: Sequence[Any] | None, auto_pad: str,
) -> Tensor:  # fmt: skip
    at = geometry(node, w.shape[2:], x.shape[2:])
    rank, extra = _rank(at), output_padding or [0] * (x.ndim - 2)
    if output_shape is None and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        output_shape = [size * s for size, s in zip(x.shape[2:], at.strides)]
    pads = at.pads
    if output_shape is not None:
        lengths = [s * (size - 1) + e + n for size, s, n, e in zip(x.shape[2:], at.strides, at.spans, extra)]
        cut = [int(length - wanted) for length, wanted in zip(lengths, output_shape[-rank:])]
        pads = [(int(n / 2), n - int(n / 2)) for n in cut]  # towards zero
        pads = [(b, a) for a, b in pads] if auto_pad == "SAME_LOWER" else pads
    function: Any = (o.conv_transpose1d, o.conv_transpose2d, o.conv_transpose3d)[rank - 1]
    strides, dilations = tuple(at.strides), tuple(at.dilations)
    y: Tensor
    if all(a == b and a >= 0 for a, b in pads) and all(e < s for e, s in zip(extra, strides)):
        y = function(x, w, bias, strides, tuple(a for a, _ in pads), tuple(extra), group, dilations)
        return y
    y = function(x, w, None, strides, 0, 0, group, dilations)
    y = padded(y, [(0, 0), (0, 0), *((-a, e - b) for (a, b), e in zip(pads, extra))])
    return y if bias is None else y + along(bias, y, 1)


# -- pools -------------------------------------------------------------------------------------------------------------


@converts("MaxPool")
def max_pool(node: OnnxNode, x: Tensor, *, kernel_shape: Sequence[int], storage_order: int = 0) -> list[Tensor]:
    at, wide = geometry(node, kernel_shape, x.shape[2:]), x if is_floating(x.dtype) else cast(x, float64)
    if len(node.outputs) > 1 and node.outputs[1]:
        y, places = at.windows.chosen(wide, [wide, _places(x.shape, storage_order)], largest=True)
        return [cast(y, x.dtype), places]
    if len(kernel_shape) > 3:
        return [cast(at.windows.reduced(wide, -math.inf, o.max), x.dtype)]
    low = [a for a, _ in at.pads]
    if any(a != b or 2 * a > k for (a, b), k in zip(at.pads, kernel_shape)):
        wide, low = padded(wide, [(0, 0), (0, 0), *at.pads], -math.inf), [0] * len(low)
    pool: Any = (o.max_pool1d, o.max_pool2d, o.max_pool3d)[len(low) - 1]
    return [cast(pool(wide, at.kernel, at.strides, low, at.dilations), x.dtype)]


def _places(shape: Sequence[Any], by_columns: int) -> Tensor:
    """The position of each element of (N, C, …) among all, images row by row or column by column."""
    images, sizes = shape[:2], shape[2:]
    order = sizes[::-1] if by_columns else sizes
    places = o.reshape(o.iota((math.prod(shape),)), (*images, *order))
    return o.permute_dims(places, (0, 1, *range(len(shape) - 1, 1, -1))) if by_columns else places


@converts("AveragePool")
def average_pool(node: OnnxNode, x: Tensor, *, kernel_shape: Sequence[int], count_include_pad: int = 0) -> Tensor:
    at, rank = geometry(node, kernel_shape, x.shape[2:]), len(kernel_shape)
    total = at.windows.reduced(x, 0, o.sum)
    if all(pair == (0, 0) for pair in at.pads):
        return total / math.prod(kernel_shape)
    counted = geometry(node, kernel_shape, x.shape[2:], overhang=False).pads if count_include_pad else [(0, 0)] * rank
    ones = o.ones((1, 1, *(size + a + b for size, (a, b) in zip(x.shape[2:], counted))), dtype=x.dtype)
    pads = [(a - before, b - after) for (a, b), (before, after) in zip(at.pads, counted)]
    return total / Geometry(at.kernel, at.strides, at.dilations, pads).windows.reduced(ones, 0, o.sum)


@converts("LpPool")
def lp_pool(node: OnnxNode, x: Tensor, *, kernel_shape: Sequence[int], p: int) -> Tensor:
    total = geometry(node, kernel_shape, x.shape[2:]).windows.reduced(o.pow(o.abs(x), p), 0, o.sum)
    return o.pow(total, 1 / p)


def _image_axes(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


converts_all({
    "GlobalAveragePool": lambda x: o.mean(x, _image_axes(x), keepdims=True),
    "GlobalLpPool": lambda x, *, p: o.vector_norm(x, _image_axes(x), keepdims=True, ord=p),
    "GlobalMaxPool": lambda x: o.max(x, _image_axes(x), keepdims=True),
})  # fmt: skip


@converts("MaxUnpool")
def max_unpool(node: OnnxNode, x: Tensor, places: Tensor, wanted: Numbers, *, kernel_shape: Sequence[int]) -> Tensor:
    at = geometry(node, kernel_shape, x.shape[2:])
    own = [(n - 1) * s + k - a - b for n, s, k, (a, b) in zip(x.shape[2:], at.strides, kernel_shape, at.pads)]
    shape = (*x.shape[:2], *own)
    flat = o.scatter(o.zeros(math.prod(shape), dtype=x.dtype), (o.reshape(places, (-1,)),), o.reshape(x, (-1,)))
    return padded(o.reshape(flat, shape), [(0, b - a) for a, b in zip(shape, wanted or shape)])


@converts("Col2Im")
def columns_to_image(node: OnnxNode, x: Tensor, image: Numbers, block: Numbers) -> Tensor:
    windows = geometry(node, block, image).windows
    shape = (x.shape[0], x.shape[1] // math.prod(block), *image)
    counts = [(size + a + b - (k - 1) * d - 1) // s + 1 for size, k, s, d, (a, b) in zip(
        image, block, windows.strides[2:], windows.dilations[2:], windows.pads[2:])]  # fmt: skip
    rank = len(image)
    parts = o.reshape(x, (*shape[:2], *block, *counts))
    parts = o.permute_dims(parts, (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank)))
    axes = [axis + rank for axis in range(2, 2 + rank) if axis not in windows.axes]
    return windows.folded(o.squeeze(parts, tuple(axes)) if axes else parts, shape)
