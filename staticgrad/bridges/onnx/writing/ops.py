"""Ops that are not elementwise, as nodes of ONNX: one entry each.

An entry takes the writer, the op's node and its operands, and gives a value for each result, or a lone one. Composed
ops that ONNX has as well have an entry, others are expanded first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.base.extents import is_open
from staticgrad.base.types import bool_, int32, int64
from staticgrad.bridges.onnx.writing.text import GraphWriter, OnnxValue
from staticgrad.graph.graph import Node

Write = Callable[[GraphWriter, Node, Sequence[OnnxValue]], "OnnxValue | Sequence[OnnxValue]"]

WRITERS: dict[str, Write] = {}
COMPOSED = {
    "det", "matmul", "mean", "softmax", "log_softmax", "logsumexp", "max_pool2d", "sort", "topk", "argmax", "argmin",
}  # fmt: skip


def writes(*names: str) -> Callable[[Write], Write]:
    """A decorator that enters a function under the names of ops."""

    def enter(function: Write) -> Write:
        WRITERS.update(dict.fromkeys(names, function))
        return function

    return enter


def _shape(node: Node, place: int = 0) -> tuple[int, ...]:
    return tuple(node.inputs[place].shape)  # type: ignore[arg-type]


def _result(node: Node) -> tuple[int, ...]:
    return tuple(node.outputs[0].shape)  # type: ignore[arg-type]


# -- one operator, or none ---------------------------------------------------------------------------------------------


def _reduced(operator: str) -> Write:
    """A reduction of numbers, of integers in their own arithmetic."""

    def write(w: GraphWriter, node: Node, xs: Sequence[OnnxValue]) -> OnnxValue:
        axes, how = w.numbers(node.attrs.axes), {"keepdims": int(node.attrs.keepdims)}
        if not node.attrs.axes:
            return xs[0]
        if operator not in ("ReduceMax", "ReduceMin"):
            return w.wide(operator, xs, [axes], **how)
        x = w.ordered(xs[0])
        return w.back(w.add(operator, [x, axes], x.dtype, **how), xs[0].dtype)

    return write


def _located(operator: str) -> Write:
    return lambda w, node, xs: w.add(
        operator, [w.ordered(xs[0])], int64, axis=node.attrs.axis, keepdims=int(node.attrs.keepdims)
    )


WRITERS |= {
    **dict.fromkeys(("identity", "stop_gradient", "once"), lambda w, node, xs: xs[0]),
    **dict.fromkeys(("dot", "matmul"), lambda w, node, xs: w.wide("MatMul", xs)),
    "argmax": _located("ArgMax"),
    "argmin": _located("ArgMin"),
    "broadcast_to": lambda w, node, xs: w.add("Expand", [xs[0], w.numbers(_result(node))], xs[0].dtype),
    "concat": lambda w, node, xs: w.add("Concat", xs, xs[0].dtype, axis=node.attrs.axis),
    "constant": lambda w, node, xs: w.constant(node.attrs.value),
    "convolution": lambda w, node, xs: w.add("Conv", xs, xs[0].dtype, group=node.attrs.groups, **_geometry(node.attrs)),
    "cumulative_sum": lambda w, node, xs: w.wide(
        "CumSum", xs, [w.constant(np.array(node.attrs.axis, np.int64))], reverse=int(node.attrs.reverse)
    ),
    "det": lambda w, node, xs: w.add("Det", xs, xs[0].dtype),
    "log_softmax": lambda w, node, xs: w.add("LogSoftmax", xs, xs[0].dtype, axis=node.attrs.axis),
    "logsumexp": _reduced("ReduceLogSumExp"),
    "max": _reduced("ReduceMax"),
    "mean": _reduced("ReduceMean"),
    "min": _reduced("ReduceMin"),
    "permute_dims": lambda w, node, xs: w.transpose(xs[0], node.attrs.perm),
    "prod": _reduced("ReduceProd"),
    "reshape": lambda w, node, xs: w.reshape(xs[0], _result(node)),
    "softmax": lambda w, node, xs: w.add("Softmax", xs, xs[0].dtype, axis=node.attrs.axis),
    "sum": _reduced("ReduceSum"),
    "window": lambda w, node, xs: _windows(w, xs[0], _shape(node), node.attrs),
}

# -- sources, views ----------------------------------------------------------------------------------------------------


@writes("full")
def full(w: GraphWriter, node: Node, xs: Sequence[OnnxValue]) -> OnnxValue:
    value, dtype, shape = node.attrs.value, node.attrs.dtype, _result(node)
    if is_open(value):
        number = w.cast(w.reshape(w.size(value), []), dtype)
    else:
        number = w.constant(np.asarray(value).astype(dtype))
    return w.add("Expand", [number, w.numbers(shape)], number.dtype) if shape else number


@writes("iota")
def iota(w: GraphWriter, node: Node, xs: Sequence[OnnxValue]) -> OnnxValue:
    shape, axis = _result(node), node.attrs.axis
    line = w.line(shape[axis], node.attrs.dtype)
    if len(shape) == 1:
        return line
    line = w.reshape(line, [shape[axis] if a == axis else 1 for a in range(len(shape))])
    return w.add("Expand", [line, w.numbers(shape)], line.dtype)


@writes("slice")
def slice_(w: GraphWriter, node: Node, xs: Sequence[OnnxValue]) -> OnnxValue:
    attrs = node.attrs
    stops = [stop if stop >= 0 else np.iinfo(np.int64).min + 1 for stop in attrs.stops]
    return w.slice(xs[0], attrs.starts, stops, attrs.steps, range(len(stops)))


@writes("pad")
def pad(w: GraphWriter, node: Node, xs: Sequence[OnnxValue]) -> OnnxValue:
    attrs, shape, x = node.attrs, list(_shape(node)), xs[0]
    for axis, gap in enumerate(attrs.interior):
        if gap and shape[axis]:
            x = w.reshape(x, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
            high = [gap if a == axis + 1 else 0 for a in range(len(shape) + 1)]
            x = w.pad(x, [0] * len(high), high, attrs.value)
            shape[axis] *= gap + 1
            x = w.slice(w.reshape(x, shape), [0], [shape[axis] - gap], [1], [axis])
            shape[axis] -= gap
    return w.pad(x, attrs.low, attrs.high, attrs.value)


# -- reductions, sorts -------------------------------------------------------------------------------------------------


@writes("all", "any")
def logical_reduction(w: GraphWriter, node: Node, xs: Sequence[OnnxValue]) -> OnnxValue:
    attrs, x = node.attrs, xs[0]
    if not attrs.axes:
        return x
    is_any = node.op.name == "any"
    x = w.add("Not", [x], bool_) if is_any else x  # of nothing, a least element is the largest that there is
    least = w.add("ReduceMin", [w.cast(x, int32), w.numbers(attrs.axes)], int32, keepdims=int(attrs.keepdims))
    found = w.cast(least, bool_)
    return w.add("Not", [found], bool_) if is_any else found


@writes("sort", "sort_rows", "topk")
def sort(w: GraphWriter, node: Node, xs: Sequence[OnnxValue]) -> Sequence[OnnxValue]:
    attrs = node.attrs
    whole = node.op.name != "topk"
    count = _shape(node)[attrs.axis] if whole else int(attrs.k)
    largest = attrs.descending if whole else attrs.largest
    x, how = w.ordered(xs[0]), {"axis": attrs.axis, "largest": int(largest), "sorted": 1}
    values, places = w.several("TopK", [x, w.numbers([count])], [x.dtype, np.dtype(np.int64)], **how)
    return w.back(values, xs[0].dtype), places


# -- convolutions ------------------------------------------------------------------------------------------------------


def _geometry(attrs: Any) -> dict[str, Any]:
    (top, bottom), (left, right) = attrs.padding
    return {"pads": [top, left, bottom, right], "strides": list(attrs.stride), "dilations": list(attrs.dilation)}


@writes("convolution_input_grad")
def convolution_input_grad(w: GraphWriter, node: Node, xs: Sequence[OnnxValue]) -> OnnxValue:
    attrs, rows = node.attrs, _shape(node)[-2:]
    extra = [
        int(size) - ((count - 1) * s + (int(k) - 1) * d + 1 - a - b)
        for size, count, s, k, d, (a, b) in zip(
            attrs.size, rows, attrs.stride, attrs.kernel, attrs.dilation, attrs.padding
        )
    ]
    if all(e < max(s, d) for e, s, d in zip(extra, attrs.stride, attrs.dilation)):
        return w.add("ConvTranspose", xs, xs[0].dtype, group=attrs.groups, output_padding=extra, **_geometry(attrs))
    y = w.add("ConvTranspose", xs, xs[0].dtype, group=attrs.groups, **_geometry(attrs))
    return w.pad(y, [0] * 4, [0, 0, *extra])


@writes("convolution_weight_grad")
def convolution_weight_grad(w: GraphWriter, node: Node, xs: Sequence[OnnxValue]) -> OnnxValue:
    """A convolution of the images, with channels as examples, by the cotangents, with examples as channels."""
    attrs, (n, channels, *image), (_, filters, *rows) = node.attrs, _shape(node), _shape(node, 1)
    groups = attrs.groups
    c, f = channels // groups, filters // groups
    x = w.transpose(w.reshape(xs[0], [n, groups, c, *image]), [2, 1, 0, 3, 4])
    y = w.transpose(w.reshape(xs[1], [n, groups, f, *rows]), [1, 2, 0, 3, 4])
    x, y = w.reshape(x, [c, groups * n, *image]), w.reshape(y, [filters, n, *rows])
    given = {**_geometry(attrs), "strides": list(attrs.dilation), "dilations": list(attrs.stride)}
    result = w.add("Conv", [x, y], xs[0].dtype, group=groups, **given)
    kernel = list(map(int, attrs.kernel))
    return w.transpose(w.slice(result, [0, 0], kernel, [1, 1], [2, 3]), [1, 0, 2, 3])


# -- windows -----------------------------------------------------------------------------------------------------------


@writes("max_pool2d")
def max_pool(w: GraphWriter, node: Node, xs: Sequence[OnnxValue]) -> OnnxValue:
    shape = _shape(node)
    images = xs[0] if len(shape) == 4 else w.reshape(xs[0], [1, math.prod(shape[:-2]), *shape[-2:]])
    y = w.add("MaxPool", [images], xs[0].dtype, kernel_shape=list(node.attrs.kernel), **_geometry(node.attrs))
    return y if len(shape) == 4 else w.reshape(y, _result(node))


def _windows(w: GraphWriter, x: OnnxValue, shape: Sequence[int], attrs: Any) -> OnnxValue:
    """(…, H, W) to (…, OH, OW, KH, KW), by gathers at places that are known."""
    counts, front = attrs.counts(*shape[-2:]), [0] * (len(shape) - 2)
    x = w.pad(x, [*front, *(a for a, _ in attrs.padding)], [*front, *(b for _, b in attrs.padding)], attrs.value)
    axis = len(front)
    for a in range(2):
        steps = np.arange(counts[a])[:, None] * attrs.stride[a] + np.arange(attrs.kernel[a]) * attrs.dilation[a]
        x = w.add("Gather", [x, w.constant(steps.astype(np.int64))], x.dtype, axis=axis + 2 * a)
    return w.transpose(x, [*range(axis), axis, axis + 2, axis + 1, axis + 3])


@writes("fold")
def fold(w: GraphWriter, node: Node, xs: Sequence[OnnxValue]) -> OnnxValue:
    attrs, shape = node.attrs.window, _shape(node)
    (top, bottom), (left, right) = attrs.padding
    height, width = int(node.attrs.height), int(node.attrs.width)
    whole = (height + top + bottom, width + left + right)
    lines = [
        np.arange(shape[-4 + a])[:, None] * attrs.stride[a] + np.arange(attrs.kernel[a]) * attrs.dilation[a]
        for a in range(2)
    ]
    places = lines[0][:, None, :, None] * whole[1] + lines[1][None, :, None, :]  # (OH, OW, KH, KW)
    count, rest = places.size, math.prod(shape[:-4])
    updates = w.transpose(w.reshape(xs[0], [rest, count]), [1, 0])
    base = w.add("Expand", [w.constant(np.zeros((), xs[0].dtype)), w.numbers([whole[0] * whole[1], rest])], xs[0].dtype)
    added = w.add(
        "ScatterND", [base, w.constant(places.reshape(-1, 1).astype(np.int64)), updates], xs[0].dtype, reduction="add"
    )
    image = w.reshape(w.transpose(added, [1, 0]), [*shape[:-4], *whole])
    axes = [len(shape) - 4, len(shape) - 3]
    return w.slice(image, [top, left], [top + height, left + width], [1, 1], axes)


# -- indices -----------------------------------------------------------------------------------------------------------


def _in_front(axes: Sequence[int], ndim: int) -> list[int]:
    return [*axes, *(axis for axis in range(ndim) if axis not in axes)]


def _stacked(w: GraphWriter, node: Node, indices: Sequence[OnnxValue], first: int, like: Sequence[int]) -> OnnxValue:
    """Index tensors as rows of one, in the shape with which a tensor of the shape ``like`` begins."""
    shapes = [_shape(node, first + k) for k in range(len(indices))]
    shape = tuple(like[: len(shapes[0])])
    columns = [w.add("Expand", [x, w.numbers(shape)], int64) if own != shape else x for x, own in zip(indices, shapes)]
    columns = [w.reshape(x, [*shape, 1]) for x in columns]
    return columns[0] if len(columns) == 1 else w.add("Concat", columns, int64, axis=len(shape))


@writes("gather")
def gather(w: GraphWriter, node: Node, xs: Sequence[OnnxValue]) -> OnnxValue:
    x = w.transpose(xs[0], _in_front(node.attrs.axes, len(_shape(node))))
    if len(xs) == 2:
        return w.add("Gather", [x, xs[1]], x.dtype, axis=0)
    return w.add("GatherND", [x, _stacked(w, node, xs[1:], 1, _result(node))], x.dtype)


@writes("scatter_add")
def scatter_add(w: GraphWriter, node: Node, xs: Sequence[OnnxValue]) -> OnnxValue:
    order = _in_front(node.attrs.axes, len(_shape(node)))
    base, updates, *indices = xs
    moved, places = w.transpose(w.widened(base), order), _stacked(w, node, indices, 2, _shape(node, 1))
    added = w.add("ScatterND", [moved, places, w.widened(updates)], moved.dtype, reduction="add")
    return w.cast(w.transpose(added, np.argsort(order).tolist()), base.dtype)
