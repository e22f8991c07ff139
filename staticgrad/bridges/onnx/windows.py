"""ONNX's convolutions and pools, of one to three dimensions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.base.types import float32, float64, int32, int64, is_floating
from staticgrad.bridges.arrays import cast
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.onnx.casts import along, quantized
from staticgrad.bridges.onnx.dialect import OnnxScope, converts
from staticgrad.bridges.onnx.matrices import centred
from staticgrad.bridges.onnx.program import OnnxNode
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.ops.windows import WindowAttributes

Pads = list[tuple[Any, Any]]


@frozen
class Geometry:
    """Windows over the axes after the second: sizes, steps, distances between elements, places (before, after)."""

    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Pads

    @property
    def spans(self) -> list[int]:
        """The places from the first to the last element of a window."""
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations)]


def geometry(node: OnnxNode, kernel: Sequence[Any], sizes: Sequence[Any]) -> Geometry:
    """The windows that a node describes, over axes of these sizes."""
    rank = len(kernel)
    strides, dilations = node.attr("strides", [1] * rank), node.attr("dilations", [1] * rank)
    found, auto = node.attr("pads", [0] * 2 * rank), node.attr("auto_pad", "NOTSET")
    pads: Pads = list(zip(found[:rank], found[rank:]))
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pads = []
        for size, k, s, d in zip(sizes, kernel, strides, dilations):
            missing = max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0)
            less, more = missing // 2, missing - missing // 2
            pads.append((less, more) if auto == "SAME_UPPER" else (more, less))
    elif auto == "VALID":
        pads = [(0, 0)] * rank
    return Geometry(list(kernel), strides, dilations, pads)


def padded(x: Tensor, pads: Pads, value: Any = 0) -> Tensor:
    """Pads of the last axes, negative ones cut off."""
    front = [(0, 0)] * (x.ndim - len(pads))
    widths = [*front, *pads]
    if any(a < 0 or b < 0 for a, b in pads):
        x = x[tuple(slice(max(-a, 0), size - max(-b, 0)) for (a, b), size in zip(widths, x.shape))]
        widths = [(max(a, 0), max(b, 0)) for a, b in widths]
    return o.pad(x, widths, value) if any(a or b for a, b in widths) else x


# -- convolutions ------------------------------------------------------------------------------------------------------


def _convolution(x: Tensor, w: Tensor, bias: Tensor | None, at: Geometry, groups: int) -> Tensor:
    rank = len(at.kernel)
    if rank not in (1, 2, 3):
        raise RefusedError(f"a convolution of {rank} dimensions is not converted")
    padding: Any = tuple(before for before, _ in at.pads)
    if any(before != after for before, after in at.pads):
        x, padding = padded(x, at.pads), (0,) * rank
    function = (o.conv1d, o.conv2d, o.conv3d)[rank - 1]
    return function(x, w, bias, tuple(at.strides), padding, tuple(at.dilations), groups)


@converts("Conv")
def conv(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, w, bias = at.operands(node, 3)
    return _convolution(x, w, bias, geometry(node, w.shape[2:], x.shape[2:]), node.attr("group", 1))


def _integer_convolution(x: Tensor, w: Tensor, node: OnnxNode) -> Tensor:
    """A convolution of centred bytes; sums are exact in float64."""
    y = _convolution(
        cast(x, float64), cast(w, float64), None, geometry(node, w.shape[2:], x.shape[2:]), node.attr("group", 1)
    )
    return cast(y, int32)


@converts("ConvInteger")
def conv_integer(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, w, x_zero, w_zero = at.operands(node, 4)
    return _integer_convolution(centred(x, x_zero, 1), centred(w, w_zero, 0), node)


@converts("QLinearConv")
def conv_quantized(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = at.operands(node, 9)
    y = _integer_convolution(centred(x, x_zero, 1), centred(w, w_zero, 0), node)
    if bias is not None:
        y = y + o.reshape(bias, (1, -1, *(1,) * (y.ndim - 2)))
    return quantized(cast(y, float32) * (o.reshape(x_scale, ()) * along(w_scale, y, 1)), y_scale, y_zero, y_zero.dtype)


@converts("ConvTranspose")
def conv_transpose(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, w, bias = at.operands(node, 3)
    groups, rank = node.attr("group", 1), x.ndim - 2
    found = geometry(node, w.shape[2:], x.shape[2:])
    extra = node.attr("output_padding", [0] * rank)
    pads = _transposed_pads(node, found, x.shape[2:], extra)
    is_even = all(a == b and a >= 0 for a, b in pads)
    if rank in (1, 2, 3) and is_even and all(e < s for e, s in zip(extra, found.strides)):
        padding = tuple(a for a, _ in pads)
        function = (o.conv_transpose1d, o.conv_transpose2d, o.conv_transpose3d)[rank - 1]
        return function(x, w, bias, tuple(found.strides), padding, tuple(extra), groups, tuple(found.dilations))
    inputs, outputs = w.shape[:2]
    w = o.reshape(w, (groups, inputs // groups, outputs, *w.shape[2:]))
    w = o.reshape(o.swapaxes(w, 1, 2), (groups * outputs, inputs // groups, *w.shape[3:]))
    w = o.flip(w, tuple(range(2, w.ndim)))
    none = (0,) * x.ndim
    x = o.pad_with(x, none, none, (0, 0, *(s - 1 for s in found.strides)), 0)
    x = padded(x, [(s - 1 - a, s - 1 - b + e) for s, (a, b), e in zip(found.spans, pads, extra)])
    plain = Geometry(found.kernel, [1] * rank, found.dilations, [(0, 0)] * rank)
    return _convolution(x, w, bias, plain, groups)


def _transposed_pads(node: OnnxNode, found: Geometry, sizes: Sequence[Any], extra: Sequence[int]) -> Pads:
    """The places that are cut off from the result, before and after, along each axis."""
    auto, wanted = node.attr("auto_pad", "NOTSET"), node.attr("output_shape")
    if wanted is None and auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [size * s for size, s in zip(sizes, found.strides)]
    if wanted is None:
        return found.pads
    pads = []
    for size, s, span, e, length in zip(sizes, found.strides, found.spans, extra, wanted[-len(sizes) :]):
        total = s * (size - 1) + e + span - length
        half = int(total / 2)  # towards zero
        pads.append((half, total - half) if auto != "SAME_LOWER" else (total - half, half))
    return pads


# -- pools -------------------------------------------------------------------------------------------------------------


def _with_overhang(node: OnnxNode, found: Geometry, sizes: Sequence[Any]) -> Pads:
    """The pads, with what a last window hangs over the end."""
    if not node.attr("ceil_mode", 0):
        return found.pads
    pads = []
    for size, s, span, (a, b) in zip(sizes, found.strides, found.spans, found.pads):
        count = -(-(size + a + b - span) // s) + 1
        count -= (count - 1) * s >= size + a  # a window starts in the image, or before it
        pads.append((a, max((count - 1) * s + span - size - a, b)))
    return pads


def _pooled(x: Tensor, found: Geometry, pads: Pads, value: float, reduce: Callable[[Tensor, Any], Tensor]) -> Tensor:
    """A reduction of the windows over the last axes, two axes at a time."""
    rank = len(found.kernel)
    rows = list(zip(found.kernel, found.strides, found.dilations, pads))
    if rank == 1:
        none = (1, 1, 1, (0, 0))
        return o.squeeze(_reduced(o.expand_dims(x, -2), [none, rows[0]], value, reduce), -2)
    y = _reduced(x, rows[-2:], value, reduce)
    for place, row in enumerate(rows[:-2]):
        axis = 2 + place
        flat = o.expand_dims(o.moveaxis(y, axis, -1), -2)
        y = o.moveaxis(o.squeeze(_reduced(flat, [(1, 1, 1, (0, 0)), row], value, reduce), -2), -1, axis)
    return y


def _reduced(x: Tensor, rows: Any, value: float, reduce: Callable[[Tensor, Any], Tensor]) -> Tensor:
    kernel, strides, dilations, pads = (tuple(each) for each in zip(*rows))
    return reduce(o.window(x, WindowAttributes(kernel, strides, pads, dilations, value)), (-2, -1))


@converts("MaxPool")
def max_pool(at: OnnxScope, node: OnnxNode) -> list[Tensor]:
    x = at.tensor(node.inputs[0])
    wide = x if is_floating(x.dtype) else cast(x, float64)
    found = geometry(node, node.attr("kernel_shape"), x.shape[2:])
    even, rank = all(a == b and 2 * a <= k for (a, b), k in zip(found.pads, found.kernel)), len(found.kernel)
    if even and len(node.outputs) == 1 and rank < 4:
        pool: Any = (o.max_pool1d, o.max_pool2d, o.max_pool3d)[rank - 1]
        low = tuple(a for a, _ in found.pads)
        y = pool(
            wide, tuple(found.kernel), tuple(found.strides), low, tuple(found.dilations), bool(node.attr("ceil_mode"))
        )
        return [cast(y, x.dtype)]
    pads = _with_overhang(node, found, x.shape[2:])
    if len(node.outputs) > 1 and node.outputs[1]:
        y, places = _with_positions(wide, found, pads, node.attr("storage_order", 0))
        return [cast(y, x.dtype), places]
    return [cast(_pooled(wide, found, pads, -math.inf, o.max), x.dtype)]


def _with_positions(x: Tensor, found: Geometry, pads: Pads, by_columns: int) -> tuple[Tensor, Tensor]:
    """The largest elements of windows, and their positions among all elements."""
    if len(found.kernel) > 2:
        raise RefusedError("positions of a pool of three dimensions are not converted")
    if len(found.kernel) == 1:
        flat = Geometry([1, *found.kernel], [1, *found.strides], [1, *found.dilations], [])
        y, places = _with_positions(o.expand_dims(x, -2), flat, [(0, 0), *pads], by_columns)
        return o.squeeze(y, -2), o.squeeze(places, -2)
    (kh, kw), (sh, sw), (dh, dw) = found.kernel, found.strides, found.dilations
    padding = (pads[0], pads[1])
    windows = o.window(x, WindowAttributes((kh, kw), (sh, sw), padding, (dh, dw), -math.inf))
    n, c, rows, columns = windows.shape[:4]
    best = o.argmax(o.reshape(windows, (n, c, rows, columns, kh * kw)), -1)
    row = o.iota(best.shape, 2) * sh - pads[0][0] + o.floor_divide(best, kw) * dh
    column = o.iota(best.shape, 3) * sw - pads[1][0] + o.remainder(best, kw) * dw
    height, width = x.shape[2:]
    inside = column * height + row if by_columns else row * width + column
    image = o.iota(best.shape, 0) * c + o.iota(best.shape, 1)
    return o.max(windows, (-2, -1)), cast(image * (height * width) + inside, int64)


@converts("AveragePool")
def average_pool(at: OnnxScope, node: OnnxNode) -> Tensor:
    x = at.tensor(node.inputs[0])
    found = geometry(node, node.attr("kernel_shape"), x.shape[2:])
    pads = _with_overhang(node, found, x.shape[2:])
    total = _pooled(x, found, pads, 0.0, lambda w, axes: o.sum(w, axes, dtype=x.dtype))
    if all(a == 0 and b == 0 for a, b in pads):
        return total / math.prod(found.kernel)
    counts = [np.ones(())]
    for axis, ((before, after), size) in enumerate(zip(found.pads, x.shape[2:])):
        ends = (-before, size + after) if node.attr("count_include_pad", 0) else (0, size)
        places = np.arange(int(total.shape[2 + axis]))[:, None] * found.strides[axis] - before
        places = places + np.arange(found.kernel[axis]) * found.dilations[axis]
        counts.append(((places >= ends[0]) & (places < ends[1])).sum(1))
    return total / functools.reduce(np.multiply.outer, counts).astype(x.dtype)


@converts("LpPool")
def lp_pool(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, p = at.tensor(node.inputs[0]), node.attr("p", 2)
    found = geometry(node, node.attr("kernel_shape"), x.shape[2:])
    powers = o.pow(o.abs(x), p)
    total = _pooled(powers, found, _with_overhang(node, found, x.shape[2:]), 0.0, lambda w, axes: o.sum(w, axes))
    return o.pow(total, 1 / p)


@converts("GlobalAveragePool", "GlobalMaxPool")
def global_pool(at: OnnxScope, node: OnnxNode) -> Tensor:
    x = at.tensor(node.inputs[0])
    function = o.mean if node.operator == "GlobalAveragePool" else o.max
    return function(x, tuple(range(2, x.ndim)), keepdims=True)


@converts("GlobalLpPool")
def global_lp_pool(at: OnnxScope, node: OnnxNode) -> Tensor:
    x = at.tensor(node.inputs[0])
    return o.vector_norm(x, tuple(range(2, x.ndim)), keepdims=True, ord=node.attr("p", 2))


@converts("MaxUnpool")
def max_unpool(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, places = at.operands(node)[:2]
    found = geometry(node, node.attr("kernel_shape"), x.shape[2:])
    own = [(n - 1) * s + k - a - b for n, s, k, (a, b) in zip(x.shape[2:], found.strides, found.kernel, found.pads)]
    own_shape = (*x.shape[:2], *own)
    wanted = at.numbers(node, 2)
    flat = o.scatter(o.zeros(math.prod(own_shape), dtype=x.dtype), (o.reshape(places, (-1,)),), o.reshape(x, (-1,)))
    if wanted is None or tuple(wanted) == own_shape:
        return o.reshape(flat, own_shape)
    return padded(o.reshape(flat, own_shape), [(0, b - a) for a, b in zip(own_shape[2:], wanted[2:])])


@converts("Col2Im")
def columns_to_image(at: OnnxScope, node: OnnxNode) -> Tensor:
    x = at.tensor(node.inputs[0])
    image, block = at.numbers(node, 1), at.numbers(node, 2)
    if len(block) > 2:
        raise RefusedError("Col2Im of three dimensions is not converted")
    found = geometry(node, block, image)
    rows = list(zip(block, found.strides, found.dilations, found.pads))
    if len(block) == 1:
        rows, image = [(1, 1, 1, (0, 0)), *rows], [1, *image]
    kernel, strides, dilations, pads = map(tuple, zip(*rows))
    geometry_of: Any = (kernel, strides, pads, dilations)
    attrs = WindowAttributes(*geometry_of)
    counts, (kh, kw) = attrs.counts(*image), kernel
    channels = x.shape[1] // (kh * kw)
    parts = o.reshape(x, (x.shape[0], channels, kh, kw, *counts))
    y = o.fold(o.permute_dims(parts, (0, 1, 4, 5, 2, 3)), attrs, *image)
    return y if len(block) == 2 else o.squeeze(y, 2)
