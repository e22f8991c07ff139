"""Views, joins and new tensors: their converters.

PyTorch's views share memory; the programs that ``torch.export`` gives write to none, so that here a view is a value.
Strides are known where a tensor is exported: ``as_strided`` reads at places that follow from them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import fx

from staticgrad.base.types import Size
from staticgrad.bridges.arrays import as_tensor, cast
from staticgrad.bridges.aten.dialect import CONVERTERS, INT64, AtenCall, as_given, converts, direct, entries
from staticgrad.bridges.importer import RefusedError, SourceScope
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

direct(as_given, "movedim=moveaxis unsqueeze=expand_dims unsqueeze_copy=expand_dims tril triu")


def keyed(ndim: int, dim: int, key: Any) -> tuple[Any, ...]:
    """The subscript that applies a key to one axis."""
    return (*[slice(None)] * (dim % max(ndim, 1)), key)


def along_axis(x: Tensor, dim: int, key: Any) -> Tensor:
    return x[keyed(x.ndim, dim, key)]


def bounds(start: Any, end: Any, step: int) -> slice:
    """A slice, where PyTorch has the greatest integer for an end that is not given."""
    return slice(start, None if isinstance(end, int) and end >= 2**63 - 1 else end, step)


def known_size(size: Size, what: str) -> int:
    if not isinstance(size, int):
        raise RefusedError(f"{what} of an axis of open size is not converted")
    return size


@converts("view", "reshape", "_unsafe_view", "_reshape_copy", "view_copy")
def view(at: AtenCall, x: Tensor, size: Any, shape: Any) -> Tensor:
    if at.dtype != x.dtype:
        raise RefusedError(f"a view of {x.dtype} as {at.dtype} is not converted")
    wanted = shape if size is None else size
    return x if wanted is None else o.reshape(x, wanted)


def _flatten(x: Tensor, start_dim: int, end_dim: int) -> Tensor:
    if x.ndim == 0:
        return o.reshape(x, (1,))
    first, last = start_dim % x.ndim, end_dim % x.ndim
    return o.reshape(x, (*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :]))


def _unflatten(x: Tensor, dim: int, sizes: Sequence[Size]) -> Tensor:
    dim %= x.ndim
    return o.reshape(x, (*x.shape[:dim], *sizes, *x.shape[dim + 1 :]))


def permute(x: Tensor, dims: Sequence[int]) -> Tensor:
    return o.permute_dims(x, tuple(d % x.ndim for d in dims))


def _expand(x: Tensor, size: Sequence[Size]) -> Tensor:
    added = len(size) - x.ndim
    sizes = [x.shape[a - added] if isinstance(s, int) and s == -1 else s for a, s in enumerate(size)]
    return o.broadcast_to(x, tuple(sizes))


def _squeeze(x: Tensor, dim: Any) -> Tensor:
    dims = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    axes = tuple({d % x.ndim for d in dims if x.shape[d] == 1}) if x.ndim else ()
    return o.squeeze(x, axes) if axes else x


def _diagonal(x: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
    return o.diagonal(o.moveaxis(x, (dim1, dim2), (-2, -1)), offset=offset)


def _unfold(x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    dimension %= max(x.ndim, 1)
    count = (known_size(x.shape[dimension], "unfold") - size) // step + 1
    places = np.arange(count)[:, None] * step + np.arange(size)
    return o.moveaxis(o.take(x, places, axis=dimension), dimension + 1, -1)


@converts("as_strided", "as_strided_copy")
def as_strided(at: AtenCall, x: Tensor, size: Any, stride: Any, storage_offset: Any) -> Tensor:
    """Elements of x at the places that strides say. Its own strides have to be those of a dense tensor, in any order
    of axes, since what lies beside x in memory is not known."""
    flat, first = in_memory(at, x)
    sizes = [known_size(s, "as_strided") for s in (*size, *stride)]
    return o.take(flat, places_of(sizes[: len(size)], sizes[len(size) :], (storage_offset or first) - first), axis=0)


def in_memory(at: AtenCall, x: Tensor) -> tuple[Tensor, int]:
    """The elements of the first operand in the order of memory, and the place of the first.

    Raises:
        RefusedError: there are others between them, or some lie in one place.
    """
    meta = at.meta(0)
    order = sorted(range(x.ndim), key=lambda axis: (-meta.stride(axis), -meta.size(axis)))
    expected = 1
    for axis in reversed(order):
        if meta.size(axis) != 1 and meta.stride(axis) != expected:
            raise RefusedError(f"as_strided of a tensor with strides {meta.stride()} is not converted")
        expected *= meta.size(axis)
    return o.reshape(permute(x, order), (-1,)), int(meta.storage_offset())


def places_of(size: Sequence[int], stride: Sequence[int], offset: int) -> Any:
    """The places in memory of the elements of a tensor with these strides."""
    places = np.asarray(offset)
    for axis, (count, step) in enumerate(zip(size, stride, strict=True)):
        places = places + (np.arange(count) * step).reshape(-1, *[1] * (len(size) - axis - 1))
    return np.broadcast_to(places, tuple(size)).astype(np.int64)


# -- joins and parts ---------------------------------------------------------------------------------------------------


@converts("cat", "concat", "concatenate")
def cat(at: AtenCall, tensors: Sequence[Tensor], dim: int) -> Tensor:
    """Tensors of shape (0,) are passed over, whatever shape the others have."""
    several = [x for x in tensors if x.shape != (0,)] or list(tensors)
    return o.concat([at.cast(x) for x in several], axis=dim)


@converts("split_with_sizes", "split", "split_copy", "split_with_sizes_copy")
def split(x: Tensor, split_size: Any, split_sizes: Any, dim: int) -> list[Tensor]:
    parts = split_size if split_sizes is None else split_sizes
    if isinstance(parts, int):
        size = known_size(x.shape[dim], "split")
        parts = [min(parts, size - start) for start in range(0, size, parts)] if parts else [0]
    result, start = [], 0
    for length in parts:
        result.append(along_axis(x, dim, slice(start, start + length)))
        start = start + length
    return result


@converts("repeat_interleave")
def repeat_interleave(at: AtenCall, x: Tensor, repeats: Any, dim: int | None) -> Tensor:
    if isinstance(repeats, Tensor) or repeats is None:
        repeats = np.asarray(at.known(1, "how often elements are repeated"))
        repeats = int(repeats) if repeats.ndim == 0 else repeats
    return o.repeat(o.reshape(x, (-1,)) if dim is None else x, repeats, axis=dim or 0)


def _repeat(x: Tensor, repeats: Sequence[int]) -> Tensor:
    return o.tile(o.reshape(x, (*[1] * (len(repeats) - x.ndim), *x.shape)), repeats)


entries({
    "view_as reshape_as": lambda x, other: o.reshape(x, other.shape),
    "flatten": _flatten,
    "unflatten": _unflatten,
    "permute permute_copy": permute,
    "transpose transpose_copy": lambda x, dim0, dim1: o.swapaxes(x, dim0, dim1) if x.ndim else x,
    "t": lambda x: o.swapaxes(x, 0, 1) if x.ndim == 2 else x,
    "expand expand_copy": _expand,
    "expand_as": lambda x, other: o.broadcast_to(x, other.shape),
    "select select_copy": lambda x, dim, index: along_axis(x, dim, index),
    "slice slice_copy": lambda x, dim, start, end, step: along_axis(x, dim, bounds(start, end, step)),
    "narrow narrow_copy": lambda x, dim, start, length: along_axis(x, dim, slice(start, start + length)),
    "squeeze squeeze_copy": _squeeze,
    "diagonal diagonal_copy": _diagonal,
    "unfold unfold_copy": _unfold,
    "stack": lambda at, tensors, dim: o.stack([at.cast(x) for x in tensors], axis=dim),
    "chunk": lambda x, chunks, dim: split(x, -(-known_size(x.shape[dim], "chunk") // chunks), None, dim),
    "unbind unbind_copy": lambda x, dim: list(o.unstack(x, axis=dim)),
    "flip": lambda x, dims: o.flip(x, dims) if dims else x,
    "roll": lambda x, shifts, dims: o.roll(x, shifts, dims) if dims else o.roll(x, *shifts),
    "repeat": _repeat,
})  # fmt: skip


# -- new tensors -------------------------------------------------------------------------------------------------------


def _full(at: AtenCall, x: Any, size: Any, value: Any) -> Tensor:
    """A number, or a tensor without axes, at all places of a size, or of the shape of a tensor."""
    return o.broadcast_to(at.tensor(value), x.shape if size is None else size)


@converts("arange")
def arange(at: AtenCall, end: Any, start: Any, step: Any) -> Tensor:
    start, step = 0 if start is None else start, 1 if step is None else step
    if all(isinstance(n, (int, float)) for n in (start, end, step)):
        count = max(math.ceil((end - start) / step), 0)
        return as_tensor((start + step * np.arange(count)).astype(at.dtype))
    if (start, step) != (0, 1):
        raise RefusedError(f"arange from {start} by {step} to an open size is not converted")
    return cast(o.arange(end, dtype=INT64), at.dtype)


@converts("linspace")
def linspace(at: AtenCall, start: Any, end: Any, steps: int) -> Tensor:
    if isinstance(start, Tensor) or isinstance(end, Tensor):
        places = as_tensor(np.linspace(0, 1, steps).astype(at.dtype))
        return at.tensor(start) * (1 - places) + at.tensor(end) * places
    return as_tensor(np.linspace(start, end, steps).astype(at.dtype))


entries({
    "full full_like new_full": lambda at, x, size, fill_value: _full(at, x, size, fill_value),
    "fill": lambda at, x, value: _full(at, x, None, value),
    # Memory that PyTorch leaves as it is, is zero here.
    "zeros zeros_like new_zeros empty empty_like new_empty": lambda at, x, size: _full(at, x, size, 0),
    "empty_strided new_empty_strided": lambda at, size, stride: _full(at, None, size, 0),
    "empty_permuted": lambda at, size, physical_layout: _full(at, None, size, 0),
    "ones ones_like new_ones": lambda at, x, size: _full(at, x, size, 1),
    "scalar_tensor": lambda at, s: at.tensor(s),
    "eye": lambda at, n, m: o.eye(n, n if m is None else m, dtype=at.dtype),
    "copy": lambda at, x, src: o.broadcast_to(at.cast(src), x.shape),
})  # fmt: skip


# -- sizes -------------------------------------------------------------------------------------------------------------

entries({
    "sym_size": lambda x, dim: x.shape[dim],
    "sym_numel": lambda x: math.prod(x.shape),
    "sym_stride": lambda x, dim: math.prod(x.shape[dim % x.ndim + 1 :]),
    "sym_storage_offset": lambda x: 0,
})  # fmt: skip


@CONVERTERS.enter("_assert_scalar", "_assert_async", "_assert_tensor_metadata", "sym_constrain_range",
                  "sym_constrain_range_for_size")  # fmt: skip
def checked_by_export(scope: SourceScope, node: fx.Node) -> list[Any]:
    """Assertions of ``torch.export`` about shapes and dtypes: here these are checked for each node."""
    return [None]
