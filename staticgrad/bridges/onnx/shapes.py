"""ONNX's operators on shapes: values, views, joins, pads. Sizes and axes are known, or open sizes of inputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from staticgrad.base.types import bool_, int64, product
from staticgrad.bridges.arrays import LARGEST_KNOWN, cast
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.onnx import sizes
from staticgrad.bridges.onnx.dialect import OnnxScope, converts, size
from staticgrad.bridges.onnx.program import OnnxNode
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

# -- values ------------------------------------------------------------------------------------------------------------


@converts("Constant")
def constant(at: OnnxScope, node: OnnxNode) -> Any:
    (name, value), *_ = node.attributes.items()
    if name in ("value_int", "value_ints"):
        return np.array(value, np.int64)
    if name in ("value_float", "value_floats"):
        return np.array(value, np.float32)
    if name != "value":
        raise RefusedError(f"a constant of {name.removeprefix('value_')} is not converted")
    return value


@converts("ConstantOfShape")
def filled(at: OnnxScope, node: OnnxNode) -> Any:
    shape = tuple(size(each) for each in at.numbers(node, 0))
    value = node.attr("value", np.zeros(1, np.float32))
    known = all(isinstance(each, int) for each in shape) and math.prod(shape) <= LARGEST_KNOWN
    return np.full(shape, value.item(), value.dtype) if known else o.full(shape, value.item(), dtype=value.dtype)


@converts("Shape")
def shape(at: OnnxScope, node: OnnxNode) -> Any:
    found = at.value(node.inputs[0]).shape
    return sizes.array(found[node.attr("start", 0) : node.attr("end", None)])


@converts("Size")
def count(at: OnnxScope, node: OnnxNode) -> Any:
    return sizes.array(product(at.value(node.inputs[0]).shape))


@converts("Range")
def arithmetic_progression(at: OnnxScope, node: OnnxNode) -> Any:
    values = [at.steering(node, place) for place in range(3)]
    if any(sizes.is_open_array(each) for each in values):
        start, stop, step = (np.ravel(each)[0] for each in values)
        return o.arange(start, stop, int(step), dtype=int64)
    start, stop, step = values
    length = max(math.ceil((stop.item() - start.item()) / step.item()), 0)
    return cast(o.arange(length), start.dtype) * step + start


# -- views -------------------------------------------------------------------------------------------------------------


@converts("Reshape")
def reshape(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, wanted = at.tensor(node.inputs[0]), at.numbers(node, 1, "shape")
    keeps = not node.attr("allowzero", 0)
    shape = [x.shape[axis] if each == 0 and keeps else each for axis, each in enumerate(map(size, wanted))]
    if -1 in shape and 0 in shape:
        shape[shape.index(-1)] = 0
    return o.reshape(x, tuple(shape))


@converts("Flatten")
def flatten(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, axis = at.tensor(node.inputs[0]), node.attr("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return o.reshape(x, (product(x.shape[:axis]), product(x.shape[axis:])))


@converts("Squeeze")
def squeeze(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, axes = at.tensor(node.inputs[0]), at.numbers(node, 1, "axes")
    if axes is None:
        axes = [axis for axis, each in enumerate(x.shape) if each == 1]
    return o.squeeze(x, tuple(axes))


@converts("Unsqueeze")
def unsqueeze(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, axes = at.tensor(node.inputs[0]), at.numbers(node, 1, "axes")
    return o.expand_dims(x, tuple(axes))


@converts("Transpose")
def transpose(at: OnnxScope, node: OnnxNode) -> Tensor:
    x = at.tensor(node.inputs[0])
    return o.permute_dims(x, tuple(node.attr("perm", range(x.ndim)[::-1])))


@converts("Expand")
def expand(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, wanted = at.tensor(node.inputs[0]), [size(each) for each in at.numbers(node, 1)]
    ndim = max(x.ndim, len(wanted))
    own, other = (*(1,) * (ndim - x.ndim), *x.shape), (*(1,) * (ndim - len(wanted)), *wanted)
    return o.broadcast_to(x, tuple(a if isinstance(b, int) and b == 1 else b for a, b in zip(own, other)))


@converts("Tile")
def tile(at: OnnxScope, node: OnnxNode) -> Tensor:
    return o.tile(at.tensor(node.inputs[0]), tuple(at.numbers(node, 1)))


@converts("Slice")
def slice_(at: OnnxScope, node: OnnxNode) -> Tensor:
    x = at.tensor(node.inputs[0])
    starts, ends = at.numbers(node, 1, "starts"), at.numbers(node, 2, "ends")
    axes = at.numbers(node, 3, "axes") or range(len(starts))
    steps = at.numbers(node, 4, "steps") or [1] * len(starts)
    key = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        far = isinstance(end, int) and abs(end) > 2**31 - 2
        key[axis] = slice(start, None if far and (end > 0) == (step > 0) else end, step)
    return x[tuple(key)] if x.ndim else x


@converts("Trilu")
def triangle(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, k = at.tensor(node.inputs[0]), at.number(node, 1, what="the diagonal") or 0
    function = o.triu if node.attr("upper", 1) else o.tril
    return function(x, max(min(k, 2**30), -(2**30)))


@converts("DepthToSpace")
def depth_to_space(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, block = at.tensor(node.inputs[0]), node.attr("blocksize")
    n, c, h, w = x.shape
    if node.attr("mode", "DCR") == "DCR":
        parts = o.permute_dims(o.reshape(x, (n, block, block, c // block**2, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        parts = o.permute_dims(o.reshape(x, (n, c // block**2, block, block, h, w)), (0, 1, 4, 2, 5, 3))
    return o.reshape(parts, (n, c // block**2, h * block, w * block))


@converts("SpaceToDepth")
def space_to_depth(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, block = at.tensor(node.inputs[0]), node.attr("blocksize")
    n, c, h, w = x.shape
    order = (0, 3, 5, 1, 2, 4) if node.attr("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    parts = o.permute_dims(o.reshape(x, (n, c, h // block, block, w // block, block)), order)
    return o.reshape(parts, (n, c * block**2, h // block, w // block))


# -- joins and parts ---------------------------------------------------------------------------------------------------


@converts("Concat")
def concat(at: OnnxScope, node: OnnxNode) -> Tensor:
    return o.concat(at.tensors(node.inputs), axis=node.attr("axis", 1))


@converts("Split")
def split(at: OnnxScope, node: OnnxNode) -> list[Tensor]:
    x, axis, lengths = at.tensor(node.inputs[0]), node.attr("axis", 0), at.numbers(node, 1, "split")
    if lengths is None:
        parts = node.attr("num_outputs", len(node.outputs))
        each = -(-x.shape[axis] // parts)
        lengths = [each] * (parts - 1) + [x.shape[axis] - each * (parts - 1)]
    return o.split(x, np.cumsum(lengths)[:-1].tolist(), axis=axis)


@converts("ReverseSequence")
def reverse_sequence(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, lengths = at.operands(node)
    time, batch = node.attr("time_axis", 0), node.attr("batch_axis", 1)
    places = o.iota(x.shape, time)
    ends = o.reshape(lengths, tuple(size if axis == batch else 1 for axis, size in enumerate(x.shape)))
    return o.take_along_axis(x, o.where(places < ends, ends - 1 - places, places), time)


# -- pads --------------------------------------------------------------------------------------------------------------


@converts("Pad")
def pad(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, given, value = at.tensor(node.inputs[0]), at.numbers(node, 1, "pads"), at.operand(node, 2)
    axes = at.numbers(node, 3, "axes") or range(x.ndim)
    widths = [(0, 0)] * x.ndim
    for place, axis in enumerate(axes):
        widths[axis] = given[place], given[place + len(given) // 2]
    mode = node.attr("mode", "constant")
    if mode != "constant":
        return o.pad(_cropped(x, widths), [(max(a, 0), max(b, 0)) for a, b in widths], mode=mode)
    inner, widths = _cropped(x, widths), [(max(a, 0), max(b, 0)) for a, b in widths]
    if node.attr("value", 0.0):
        return o.pad(inner, widths, node.attr("value"))
    padded = o.pad(inner, widths)
    if value is None:
        return padded
    return o.where(o.pad(o.full(inner.shape, True, dtype=bool_), widths), padded, o.reshape(value, ()))


def _cropped(x: Tensor, widths: list[tuple[int, int]]) -> Tensor:
    """The tensor without what negative pads take away."""
    return x[tuple(slice(max(-a, 0), size - max(-b, 0)) for (a, b), size in zip(widths, x.shape))] if x.ndim else x
