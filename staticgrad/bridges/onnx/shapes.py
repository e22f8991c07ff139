"""ONNX's operators on shapes: values, views, joins, pads. Sizes and axes are known, or open sizes of inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.base.types import int64, product
from staticgrad.bridges.arrays import LARGEST_KNOWN, cast
from staticgrad.bridges.forms import padded
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.onnx import sizes
from staticgrad.bridges.onnx.binding import Known, Number, Numbers, Value
from staticgrad.bridges.onnx.dialect import converts, size
from staticgrad.bridges.onnx.program import OnnxNode
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

ZERO = np.zeros(1, np.float32)

# -- values ------------------------------------------------------------------------------------------------------------


@converts("Constant")
def constant(node: OnnxNode) -> Any:
    (name, value), *_ = node.attributes.items()
    if name in ("value_int", "value_ints"):
        return np.array(value, np.int64)
    if name in ("value_float", "value_floats"):
        return np.array(value, np.float32)
    if name != "value":
        raise RefusedError(f"a constant of {name.removeprefix('value_')} is not converted")
    return value


@converts("ConstantOfShape")
def filled(shape: Numbers, *, value: np.ndarray = ZERO) -> Any:
    shape = tuple(map(size, shape))
    known = all(isinstance(each, int) for each in shape) and math.prod(shape) <= LARGEST_KNOWN
    return np.full(shape, value.item(), value.dtype) if known else o.full(shape, value.item(), dtype=value.dtype)


@converts("Shape")
def shape(x: Value, *, start: int = 0, end: int | None) -> Any:
    return sizes.array(x.shape[start:end])


@converts("Size")
def count(x: Value) -> Any:
    return sizes.array(product(x.shape))


@converts("Range")
def arithmetic_progression(start: Known, stop: Known, step: Known) -> Any:
    if any(map(sizes.is_open_array, (start, stop, step))):
        first, end, by = (np.ravel(each)[0] for each in (start, stop, step))
        return o.arange(first, end, int(by), dtype=int64)
    length = max(math.ceil((stop.item() - start.item()) / step.item()), 0)
    return cast(o.arange(length), start.dtype) * step + start


# -- views -------------------------------------------------------------------------------------------------------------


@converts("Reshape")
def reshape(x: Tensor, shape: Numbers, *, allowzero: int = 0) -> Tensor:
    wanted = [x.shape[axis] if each == 0 and not allowzero else each for axis, each in enumerate(map(size, shape))]
    if -1 in wanted and 0 in wanted:
        wanted[wanted.index(-1)] = 0
    return o.reshape(x, tuple(wanted))


@converts("Flatten")
def flatten(x: Tensor, *, axis: int) -> Tensor:
    axis = axis + x.ndim if axis < 0 else axis
    return o.reshape(x, (product(x.shape[:axis]), product(x.shape[axis:])))


@converts("Squeeze")
def squeeze(x: Tensor, axes: Numbers) -> Tensor:
    return o.squeeze(x, tuple(axis for axis, each in enumerate(x.shape) if each == 1) if axes is None else tuple(axes))


@converts("Unsqueeze")
def unsqueeze(x: Tensor, axes: Numbers) -> Tensor:
    return o.expand_dims(x, tuple(axes))


@converts("Transpose")
def transpose(x: Tensor, *, perm: Sequence[int] | None) -> Tensor:
    return o.permute_dims(x, tuple(perm if perm is not None else reversed(range(x.ndim))))


@converts("Expand")
def expand(x: Tensor, shape: Numbers) -> Tensor:
    wanted = list(map(size, shape))
    ndim = max(x.ndim, len(wanted))
    own, other = (*(1,) * (ndim - x.ndim), *x.shape), (*(1,) * (ndim - len(wanted)), *wanted)
    return o.broadcast_to(x, tuple(a if isinstance(b, int) and b == 1 else b for a, b in zip(own, other)))


@converts("Tile")
def tile(x: Tensor, repeats: Numbers) -> Tensor:
    return o.tile(x, tuple(repeats))


@converts("Slice")
def slice_(x: Tensor, starts: Numbers, ends: Numbers, axes: Numbers, steps: Numbers) -> Tensor:
    key = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes or range(len(starts)), starts, ends, steps or [1] * len(starts)):
        far = isinstance(end, int) and abs(end) > 2**31 - 2
        key[axis] = slice(start, None if far and (end > 0) == (step > 0) else end, step)
    return x[tuple(key)] if x.ndim else x


@converts("Trilu")
def triangle(x: Tensor, k: Number = 0, *, upper: int) -> Tensor:
    return (o.triu if upper else o.tril)(x, max(min(k, 2**30), -(2**30)))


@converts("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    (n, c, h, w), block = x.shape, blocksize
    if mode == "DCR":
        parts = o.permute_dims(o.reshape(x, (n, block, block, c // block**2, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        parts = o.permute_dims(o.reshape(x, (n, c // block**2, block, block, h, w)), (0, 1, 4, 2, 5, 3))
    return o.reshape(parts, (n, c // block**2, h * block, w * block))


@converts("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    (n, c, h, w), block = x.shape, blocksize
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    parts = o.permute_dims(o.reshape(x, (n, c, h // block, block, w // block, block)), order)
    return o.reshape(parts, (n, c * block**2, h // block, w // block))


# -- joins, parts, pads ------------------------------------------------------------------------------------------------


@converts("Concat")
def concat(*xs: Tensor, axis: int) -> Tensor:
    return o.concat(xs, axis=axis)


@converts("Split")
def split(node: OnnxNode, x: Tensor, split: Numbers, *, axis: int, num_outputs: int | None) -> list[Tensor]:
    if split is None:
        parts = num_outputs or len(node.outputs)
        split = [-(-x.shape[axis] // parts)] * parts
    return o.split(x, np.cumsum(split)[:-1].tolist(), axis=axis)


@converts("ReverseSequence")
def reverse_sequence(x: Tensor, lengths: Tensor, *, time_axis: int, batch_axis: int) -> Tensor:
    places = o.iota(x.shape, time_axis)
    ends = o.reshape(lengths, tuple(size if axis == batch_axis else 1 for axis, size in enumerate(x.shape)))
    return o.take_along_axis(x, o.where(places < ends, ends - 1 - places, places), time_axis)


@converts("Pad")
def pad(x: Tensor, pads: Numbers, value: Tensor | float = 0.0, axes: Numbers = (), *, mode: Any) -> Tensor:
    widths = [(0, 0)] * x.ndim
    for axis, *width in zip(axes or range(x.ndim), pads[: len(pads) // 2], pads[len(pads) // 2 :]):
        widths[axis] = tuple(width)
    return padded(x, widths, value) if mode == "constant" else o.pad(x, widths, mode=mode)
