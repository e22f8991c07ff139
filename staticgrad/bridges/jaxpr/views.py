"""Primitives that arrange elements: shapes, slices, pads, joins, and arrays that are made of nothing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.base.types import Size, int64, smaller
from staticgrad.bridges import forms
from staticgrad.bridges.arrays import as_tensor, cast, spread
from staticgrad.bridges.jaxpr.conversion import JaxScope, converts
from staticgrad.bridges.jaxpr.versions import dtype_of_type
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


@converts("broadcast_in_dim", "reshape", "squeeze", "expand_dims")
def reshape(at: JaxScope, node: Any) -> Tensor:
    x, shape = at.tensor(node.invars[0]), at.shape_of(node.outvars[0])
    if "broadcast_dimensions" in node.params:
        placed: list[Any] = [1] * len(shape)
        for size, axis in zip(x.shape, node.params["broadcast_dimensions"], strict=True):
            placed[axis] = size
        return spread(o.reshape(x, tuple(placed)) if x.shape != tuple(placed) else x, shape)
    dimensions = node.params.get("dimensions")
    if node.primitive.name == "reshape" and dimensions is not None:
        x = o.permute_dims(x, tuple(dimensions))
    return o.reshape(x, shape)


@converts("broadcast_to")
def broadcast_to(at: JaxScope, node: Any) -> Tensor:
    return spread(at.tensor(node.invars[0]), at.shape_of(node.outvars[0]))


@converts("transpose")
def transpose(at: JaxScope, node: Any) -> Tensor:
    return o.permute_dims(at.tensor(node.invars[0]), tuple(node.params["permutation"]))


@converts("rev")
def rev(at: JaxScope, node: Any) -> Tensor:
    return o.flip(at.tensor(node.invars[0]), tuple(node.params["dimensions"]))


@converts("concatenate")
def concatenate(at: JaxScope, node: Any) -> Tensor:
    return o.concat(at.tensors(node.invars), int(node.params["dimension"]))


@converts("stack")
def stack(at: JaxScope, node: Any) -> Tensor:
    return o.stack(at.tensors(node.invars), node.params["axis"])


@converts("unstack")
def unstack(at: JaxScope, node: Any) -> list[Tensor]:
    return list(o.unstack(at.tensor(node.invars[0]), node.params["axis"]))


@converts("tile")
def tile(at: JaxScope, node: Any) -> Tensor:
    return o.tile(at.tensor(node.invars[0]), tuple(node.params["reps"]))


@converts("split")
def split(at: JaxScope, node: Any) -> list[Tensor]:
    x, axis = at.tensor(node.invars[0]), node.params["axis"]
    sizes = at.open.shape(node.params["sizes"])
    return [along(x, axis, slice(end - size, end)) for end, size in zip(itertools.accumulate(sizes), sizes)]


def along(x: Tensor, axis: int, key: slice) -> Tensor:
    """A slice along one axis."""
    found: Tensor = x[(slice(None),) * axis + (key,)]
    return found


def deeper(x: Tensor, rank: int) -> Tensor:
    """A tensor with axes of size 1 at the end."""
    return o.reshape(x, (*x.shape, *[1] * (rank - x.ndim)))


@converts("slice")
def slice_(at: JaxScope, node: Any) -> Tensor:
    x, p = at.tensor(node.invars[0]), node.params
    steps = p["strides"] or [1] * x.ndim
    bounds = (at.open.shape(p[name]) for name in ("start_indices", "limit_indices"))
    key = tuple(slice(*each) for each in zip(*bounds, steps))
    found: Tensor = x[key] if key else x
    return found


@converts("pad")
def pad(at: JaxScope, node: Any) -> Tensor:
    """With widths below 0, at the ends, elements are taken away, those of the padding too."""
    x, value = at.value(node.invars[0]), at.value(node.invars[1])
    return padded(as_tensor(x), node.params["padding_config"], value)


def padded(x: Tensor, widths: Sequence[tuple[int, int, int]], value: Any) -> Tensor:
    """A tensor with a value, known or not, before, after and between the elements of each axis: ``widths`` are (low,
    high, interior); negative ones take elements away."""
    return forms.padded(x, [(int(low), int(high)) for low, high, _ in widths], value, [int(gap) for *_, gap in widths])


# -- slices whose starts only a run knows: these are moved so that the slice fits -------------------------------------


def _starts(at: JaxScope, variables: Sequence[Any], sizes: Sequence[Size], wanted: Sequence[Size]) -> list[Any]:
    """For each axis a number or a tensor of int64."""
    starts: list[Any] = []
    for variable, size, count in zip(variables, sizes, wanted, strict=True):
        value = at.value(variable)
        if size == count:
            starts.append(0)
        elif isinstance(value, Tensor):
            starts.append(o.clip(clipped(value), 0, as_bound(size - count)))
        else:
            starts.append(smaller(max(int(value), 0), size - count))
    return starts


def as_bound(size: Size) -> Any:
    """A size that indices are compared with: a number, or a tensor that a run fills in."""
    return size if isinstance(size, int) else o.size_value(size, int64)


def clipped(index: Tensor) -> Tensor:
    """An index as int64, in which the greatest numbers of uint64 stay positive."""
    largest = o.minimum(index, np.iinfo(int64).max) if index.dtype == np.uint64 else index
    return cast(largest, int64)


def places(start: Any, count: Size) -> Tensor:
    """The indices of a slice."""
    found: Tensor = start + o.iota((count,))
    return found


@converts("dynamic_slice")
def dynamic_slice(at: JaxScope, node: Any) -> Tensor:
    x, wanted = at.tensor(node.invars[0]), at.shape_of(node.outvars[0])
    for axis, start in enumerate(_starts(at, node.invars[1 : 1 + x.ndim], x.shape, wanted)):
        if not isinstance(start, Tensor):
            x = along(x, axis, slice(start, start + wanted[axis]))
            continue
        order = [*range(1, axis + 1), 0, *range(axis + 1, x.ndim)]
        x = o.permute_dims(o.gather(x, places(start, wanted[axis]), axes=(axis,)), tuple(order))
    return x


@converts("dynamic_update_slice")
def dynamic_update_slice(at: JaxScope, node: Any) -> Tensor:
    x, new = at.tensors(node.invars[:2])
    if math.prod(new.shape) == 0:
        return x
    starts = _starts(at, node.invars[2:], x.shape, new.shape)
    key: list[Any] = []
    moving = [axis for axis, start in enumerate(starts) if isinstance(start, Tensor)]
    for axis, start in enumerate(starts):
        count = new.shape[axis]
        if isinstance(start, Tensor):
            after = [1] * (len(moving) - 1 - moving.index(axis))
            key.append(o.reshape(places(start, count), (count, *after)))
        else:
            key.append(slice(start, start + count))
    if not moving:
        return o.scatter(x, tuple(key), new)
    last = moving[-1] == moving[0] + len(moving) - 1  # NumPy puts adjacent indices where they are, others first
    order = None if last else (*moving, *(axis for axis in range(x.ndim) if axis not in moving))
    return o.scatter(x, tuple(key), new if order is None else o.permute_dims(new, order))


# -- made of nothing ---------------------------------------------------------------------------------------------------


@converts("iota")
def iota(at: JaxScope, node: Any) -> Tensor:
    dtype = dtype_of_type(node.outvars[0].aval)
    shape, axis = at.shape_of(node.outvars[0]), int(node.params["dimension"])
    return o.iota(shape, axis, dtype=dtype) if dtype.kind in "iu" else cast(o.iota(shape, axis), dtype)


@converts("dim_as_value")
def dim_as_value(at: JaxScope, node: Any) -> Tensor:
    """An open size as a number."""
    return o.size_value(at.open.size(node.params["dim"]), dtype_of_type(node.outvars[0].aval))


@converts("empty", "empty2")
def empty(at: JaxScope, node: Any) -> Tensor:
    return o.zeros(at.shape_of(node.outvars[0]), dtype=dtype_of_type(node.outvars[0].aval))
