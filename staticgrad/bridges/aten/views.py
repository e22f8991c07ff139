"""Views, joins and new tensors: their converters.

PyTorch's views share memory; the programs that ``torch.export`` gives write to none, so that here a view is a value.
Strides are known where a tensor is exported: ``as_strided`` reads at places that follow from them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.base.types import Size
from staticgrad.bridges.arrays import as_tensor, cast
from staticgrad.bridges.aten.dialect import AtenCall, converts
from staticgrad.bridges.importer import RefusedError
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


def keyed(ndim: int, dim: int, key: Any) -> tuple[Any, ...]:
    """The subscript that applies a key to one axis."""
    return (*[slice(None)] * (dim % max(ndim, 1)), key)


@converts("view", "reshape", "_unsafe_view", "_reshape_copy", "view_copy")
def view(at: AtenCall, x: Tensor, size: Any = None, dtype: Any = None, shape: Any = None) -> Tensor:
    if dtype is not None and at.dtype != x.dtype:
        raise RefusedError(f"a view of {x.dtype} as {at.dtype} is not converted")
    wanted = size if size is not None else shape
    return x if wanted is None else o.reshape(x, tuple(wanted))


@converts("view_as", "reshape_as")
def view_as(x: Tensor, other: Tensor) -> Tensor:
    return o.reshape(x, other.shape)


@converts("flatten")
def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    if x.ndim == 0:
        return o.reshape(x, (1,))
    first, last = start_dim % x.ndim, end_dim % x.ndim
    return o.reshape(x, (*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :]))


@converts("unflatten")
def unflatten(x: Tensor, dim: int, sizes: Sequence[Size]) -> Tensor:
    dim %= x.ndim
    return o.reshape(x, (*x.shape[:dim], *sizes, *x.shape[dim + 1 :]))


@converts("permute", "permute_copy")
def permute(x: Tensor, dims: Sequence[int]) -> Tensor:
    return o.permute_dims(x, tuple(d % x.ndim for d in dims)) if x.ndim else x


@converts("transpose", "transpose_copy")
def transpose(x: Tensor, dim0: int, dim1: int) -> Tensor:
    return o.swapaxes(x, dim0, dim1) if x.ndim else x


@converts("t")
def t(x: Tensor) -> Tensor:
    return o.swapaxes(x, 0, 1) if x.ndim == 2 else x


@converts("expand", "expand_copy")
def expand(x: Tensor, size: Sequence[Size]) -> Tensor:
    added = len(size) - x.ndim
    sizes = [x.shape[a - added] if isinstance(s, int) and s == -1 else s for a, s in enumerate(size)]
    return o.broadcast_to(x, tuple(sizes))


@converts("expand_as")
def expand_as(x: Tensor, other: Tensor) -> Tensor:
    return o.broadcast_to(x, other.shape)


@converts("select", "select_copy")
def select(x: Tensor, dim: int, index: int) -> Tensor:
    return x[keyed(x.ndim, dim, index)]


@converts("slice", "slice_copy")
def slice_(x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    return x[keyed(x.ndim, dim, bounds(start, end, step))]


def bounds(start: Any, end: Any, step: int) -> slice:
    """A slice, where PyTorch has the greatest integer for an end that is not given."""
    return slice(start, None if isinstance(end, int) and end >= 2**63 - 1 else end, step)


@converts("narrow", "narrow_copy")
def narrow(x: Tensor, dim: int, start: Any, length: Any) -> Tensor:
    return x[keyed(x.ndim, dim, slice(start, start + length))]


@converts("squeeze", "squeeze_copy")
def squeeze(x: Tensor, dim: Any = None) -> Tensor:
    dims = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    axes = tuple({d % x.ndim for d in dims if x.shape[d] == 1}) if x.ndim else ()
    return o.squeeze(x, axes) if axes else x


@converts("unsqueeze", "unsqueeze_copy")
def unsqueeze(x: Tensor, dim: int) -> Tensor:
    return o.expand_dims(x, dim)


@converts("movedim")
def movedim(x: Tensor, source: Any, destination: Any) -> Tensor:
    return o.moveaxis(x, *(tuple(d) if isinstance(d, list) else d for d in (source, destination)))


@converts("diagonal", "diagonal_copy")
def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    return o.diagonal(o.moveaxis(x, (dim1, dim2), (-2, -1)), offset=offset)


@converts("unfold", "unfold_copy")
def unfold(x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    dimension %= max(x.ndim, 1)
    count = (_known(x.shape[dimension], "unfold") - size) // step + 1
    places = np.arange(count)[:, None] * step + np.arange(size)
    return o.moveaxis(o.take(x, places, axis=dimension), dimension + 1, -1)


def _known(size: Size, what: str) -> int:
    if not isinstance(size, int):
        raise RefusedError(f"{what} of an axis of open size is not converted")
    return size


@converts("as_strided", "as_strided_copy")
def as_strided(at: AtenCall, x: Tensor, size: Any, stride: Any, storage_offset: Any = None) -> Tensor:
    """Elements of x at the places that strides say. Its own strides have to be those of a dense tensor, in any order
    of axes, since what lies beside x in memory is not known."""
    flat, first = in_memory(at, x)
    sizes = [_known(s, "as_strided") for s in (*size, *stride)]
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
def cat(at: AtenCall, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of shape (0,) are passed over, whatever shape the others have."""
    several = [x for x in tensors if x.shape != (0,)] or list(tensors)
    return o.concat([at.cast(x) for x in several], axis=dim)


@converts("stack")
def stack(at: AtenCall, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    return o.stack([at.cast(x) for x in tensors], axis=dim)


@converts("split_with_sizes", "split", "split_copy", "split_with_sizes_copy")
def split(x: Tensor, split_size: Any = None, split_sizes: Any = None, dim: int = 0) -> list[Tensor]:
    parts = split_sizes if split_sizes is not None else split_size
    if isinstance(parts, int):
        size = _known(x.shape[dim], "split")
        parts = [min(parts, size - start) for start in range(0, size, parts)] if parts else [0]
    result, start = [], 0
    for length in parts:
        result.append(x[keyed(x.ndim, dim, slice(start, start + length))])
        start = start + length
    return result


@converts("chunk")
def chunk(x: Tensor, chunks: int, dim: int = 0) -> list[Tensor]:
    return split(x, -(-_known(x.shape[dim], "chunk") // chunks), dim=dim)


@converts("unbind", "unbind_copy")
def unbind(x: Tensor, dim: int = 0) -> list[Tensor]:
    return list(o.unstack(x, axis=dim))


@converts("flip")
def flip(x: Tensor, dims: Sequence[int]) -> Tensor:
    return o.flip(x, tuple(dims)) if dims else x


@converts("roll")
def roll(x: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    if not dims:
        return o.roll(x, shifts[0] if isinstance(shifts, list) else shifts)
    return o.roll(x, tuple(shifts), tuple(dims))


@converts("repeat")
def repeat(x: Tensor, repeats: Sequence[int]) -> Tensor:
    return o.tile(o.reshape(x, (*[1] * (len(repeats) - x.ndim), *x.shape)), tuple(repeats))


@converts("repeat_interleave")
def repeat_interleave(at: AtenCall, x: Tensor, repeats: Any = None, dim: int | None = None) -> Tensor:
    if isinstance(repeats, Tensor) or repeats is None:
        repeats = np.asarray(at.known(1, "how often elements are repeated"))
        repeats = int(repeats) if repeats.ndim == 0 else repeats
    return o.repeat(o.reshape(x, (-1,)) if dim is None else x, repeats, axis=dim or 0)


@converts("tril")
def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    return o.tril(x, k=diagonal)


@converts("triu")
def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    return o.triu(x, k=diagonal)


# -- new tensors -------------------------------------------------------------------------------------------------------


@converts("full")
def full(at: AtenCall, size: Any, fill_value: Any, dtype: Any = None) -> Tensor:
    return o.broadcast_to(at.tensor(fill_value), tuple(size))


@converts("full_like", "new_full")
def full_like(at: AtenCall, x: Tensor, fill_value: Any, size: Any = None, dtype: Any = None) -> Tensor:
    return full(at, x.shape if size is None else size, fill_value)


@converts("fill")
def fill(at: AtenCall, x: Tensor, value: Any) -> Tensor:
    return full(at, x.shape, value)


@converts("zeros", "empty", "new_zeros", "new_empty", "empty_strided", "empty_permuted", "new_empty_strided")
def zeros(
    at: AtenCall, size: Any, x: Any = None, dtype: Any = None, stride: Any = None, physical_layout: Any = None
) -> Any:
    """Memory that PyTorch leaves as it is, is zero here."""
    return full(at, size, 0)


@converts("ones", "new_ones")
def ones(at: AtenCall, size: Any, x: Any = None, dtype: Any = None) -> Tensor:
    return full(at, size, 1)


@converts("zeros_like", "empty_like")
def zeros_like(at: AtenCall, x: Tensor, dtype: Any = None) -> Tensor:
    return full(at, x.shape, 0)


@converts("ones_like")
def ones_like(at: AtenCall, x: Tensor, dtype: Any = None) -> Tensor:
    return full(at, x.shape, 1)


@converts("scalar_tensor")
def scalar_tensor(at: AtenCall, s: Any, dtype: Any = None) -> Tensor:
    return at.tensor(s)


@converts("arange")
def arange(at: AtenCall, end: Any, start: Any = 0, step: Any = 1, dtype: Any = None) -> Tensor:
    if all(isinstance(n, (int, float)) for n in (start, end, step)):
        count = max(math.ceil((end - start) / step), 0)
        return as_tensor((start + step * np.arange(count)).astype(at.dtype))
    if (start, step) != (0, 1):
        raise RefusedError(f"arange from {start} by {step} to an open size is not converted")
    return cast(o.arange(end, dtype=np.dtype(np.int64)), at.dtype)


@converts("eye")
def eye(at: AtenCall, n: Any, m: Any = None, dtype: Any = None) -> Tensor:
    return o.eye(n, n if m is None else m, dtype=at.dtype)


@converts("linspace")
def linspace(at: AtenCall, start: Any, end: Any, steps: int, dtype: Any = None) -> Tensor:
    if isinstance(start, Tensor) or isinstance(end, Tensor):
        places = as_tensor(np.linspace(0, 1, steps).astype(at.dtype))
        return at.tensor(start) * (1 - places) + at.tensor(end) * places
    return as_tensor(np.linspace(start, end, steps).astype(at.dtype))


@converts("copy")
def copy(at: AtenCall, x: Tensor, src: Tensor) -> Tensor:
    return o.broadcast_to(at.cast(src), x.shape)


# -- sizes -------------------------------------------------------------------------------------------------------------


@converts("sym_size")
def sym_size(x: Tensor, dim: int) -> Size:
    return x.shape[dim]


@converts("sym_numel")
def sym_numel(x: Tensor) -> Size:
    return math.prod(x.shape)


@converts("sym_stride")
def sym_stride(x: Tensor, dim: int) -> Size:
    return math.prod(x.shape[dim % x.ndim + 1 :])


@converts("sym_storage_offset")
def sym_storage_offset(x: Tensor) -> int:
    return 0


@converts("_assert_scalar", "_assert_async", "_assert_tensor_metadata", "sym_constrain_range",
          "sym_constrain_range_for_size")  # fmt: skip
def checked_by_export(**rest: Any) -> None:
    """Assertions of ``torch.export`` about shapes and dtypes: here these are checked for each node."""
