"""``x[...]`` and its kin: ``take``, ``take_along_axis``.

Basic indexing (integers, slices, None, Ellipsis) is a slice and a reshape. Integer arrays and tensors become the op
``index``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from staticgrad.base.errors import BoundsError, GraphError, user_source
from staticgrad.base.extents import is_open, is_same
from staticgrad.base.frozen import frozen
from staticgrad.base.types import Dim, Shape, Size, bool_, broadcast_shapes, normalize_axis
from staticgrad.graph.graph import Node, Tensor
from staticgrad.graph.lifting import TensorLike, graph_of, lift
from staticgrad.graph.optable import FUNCTIONS, public
from staticgrad.ops.declare import declare, shown_as
from staticgrad.ops.indexing.gathering import INDEX, GatherAttributes, as_indices, in_range, index, mask_error
from staticgrad.ops.views.slicing import SliceAttributes, bounds_within, declare_slice, slice_length


@frozen
class Subscript:
    """The meaning of ``x[key]``: a slice of ``x``, then indices along axes, then the axes in their final order and
    shape.

    ``axes`` and ``indices`` are parallel. After ``index`` the axes of the indices come first; ``place`` is where NumPy
    puts them: where the indexed axes are if they are neighbours, else in front. ``shape`` is the result's.
    """

    slices: SliceAttributes
    axes: tuple[int, ...]
    indices: tuple[Tensor, ...]
    place: int
    shape: Shape


def is_array(item: Any) -> bool:
    """True if an item of a key is an array of indices."""
    return isinstance(item, Tensor | Node | np.ndarray | list | tuple)


def _expand_key(x: Tensor, key: Any) -> list[Any]:
    """One item for each axis, None for each new one; Ellipsis and what is missing at the end written out. An Ellipsis
    that stands for no axis stays: indices on both sides of it are no neighbours."""
    items = list(key) if isinstance(key, tuple) else [key]
    for item in items:
        if isinstance(item, bool | np.bool_) or getattr(item, "dtype", None) == bool_:
            raise mask_error(f"{x.name!r}[...]")
    consumed = sum(item is not None and item is not Ellipsis for item in items)
    dots = [position for position, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise GraphError(f"{x.name!r}[...]: an index can have one Ellipsis")
    if consumed > x.ndim:
        raise GraphError(f"{x.name!r}[...]: {consumed} indices for {x.type} of {x.ndim} axes")
    position = dots[0] if dots else len(items)
    missing: list[Any] = [slice(None)] * (x.ndim - consumed)
    return [*items[:position], *(missing or [Ellipsis] * len(dots)), *items[position + 1 :]]


def _size_or_none(value: Any, what: str) -> Size | None:
    if value is None or isinstance(value, Dim):
        return value
    if isinstance(value, int) and is_open(value):
        return value
    if isinstance(value, Tensor | Node):
        raise GraphError(f"{what}: bounds of slices are known when declared; use sg.take(x, indices, axis)")
    try:
        return int(value.__index__())
    except (AttributeError, TypeError):
        raise GraphError(f"{what}: {value!r} is neither an index nor a bound of a slice") from None


def _bounds_of(item: slice, size: Size, what: str) -> tuple[Size, Size, int]:
    """Start, stop and step in the form of ``SliceAttributes``."""
    start, stop, step = (_size_or_none(value, what) for value in (item.start, item.stop, item.step))
    if isinstance(step, Dim) or step == 0:
        raise GraphError(f"{what}: the step of a slice is a number other than 0")
    return bounds_within(start, stop, 1 if step is None else step, size)


def _integer_bounds(value: Size, size: Size, axis: int, what: str) -> tuple[Size, Size, int]:
    if isinstance(value, int):
        if isinstance(size, int) and not -size <= value < size:
            raise BoundsError(
                f"{what}: index {value} is out of range for axis {axis} of size {size}", source=user_source()
            )
        value = value + size if value < 0 else value
    return value, value + 1, 1


def subscript(x: Tensor, key: Any, checked: bool = True) -> Subscript:
    """Read a key of ``x[key]`` by NumPy's rules for basic and integer-array indexing. Arrays out of range are errors
    where they are ``checked``.

    Raises:
        GraphError: a boolean mask, too many indices, a float.
        BoundsError: an integer or a constant array out of range.
    """
    what = f"{x.name!r}[...]"
    items = _expand_key(x, key)
    advanced = any(is_array(item) for item in items)
    bounds: list[tuple[Size, Size, int]] = []
    axes: list[int] = []
    arrays: list[Any] = []
    spots: list[int] = []  # where, among the items, indices stand
    layout: list[Size | None] = []  # the result's axes: a size, or None for the place of the first index
    for spot, item in enumerate(items):
        axis = len(bounds)
        if item is Ellipsis:
            continue
        if item is None:
            layout.append(1)
        elif isinstance(item, slice):
            start, stop, step = _bounds_of(item, x.shape[axis], what)
            bounds.append((start, stop, step))
            layout.append(slice_length(start, stop, step))
        elif is_array(item) or advanced:
            bounds.append((0, x.shape[axis], 1))
            axes.append(axis)
            arrays.append(item)
            spots.append(spot)
            layout.append(None)
        else:
            value = _size_or_none(item, what)
            assert value is not None
            bounds.append(_integer_bounds(value, x.shape[axis], axis, what))
    indices = as_indices(what, arrays, graph_of((x,))) if arrays else ()
    for axis, one in zip(axes, indices, strict=True):
        if checked:
            in_range(what, one, x.shape[axis])
    together = not spots or spots[-1] - spots[0] == len(spots) - 1
    first = layout.index(None) if spots and together else 0
    rest = [size for size in layout if size is not None]
    common = indices[0].shape if indices else ()
    place = sum(isinstance(item, slice) for item in items[: spots[0]]) if spots and together else 0
    starts, stops, steps = zip(*bounds, strict=True) if bounds else ((), (), ())
    shape = (*rest[:first], *common, *rest[first:])
    return Subscript(SliceAttributes(starts, stops, steps), tuple(axes), indices, place, shape)


def placing(key: Subscript, ndim: int) -> tuple[int, ...]:
    """The permutation that brings the axes of the indices from the front to their place."""
    many = key.indices[0].ndim if key.indices else 0
    rest = list(range(many, ndim))
    return (*rest[: key.place], *range(many), *rest[key.place :])


def _name_of_key(x: TensorLike, key: TensorLike) -> str:
    """The backward node that PyTorch gives ``x[key]``: that of the last item which does something."""
    items = list(key) if isinstance(key, tuple) else [key]
    if any(is_array(item) for item in items):
        return "IndexBackward0"
    active = [item for item in items if item is not Ellipsis and (len(items) == 1 or item != slice(None))]
    last: Any = active[-1] if active else Ellipsis
    if isinstance(last, slice):
        return "FlipBackward0" if isinstance(last.step, int) and last.step < 0 else "SliceBackward0"
    return {None: "UnsqueezeBackward0", Ellipsis: "AliasBackward0"}.get(last, "SelectBackward0")


def _name_of_take(x: TensorLike, indices: TensorLike, axis: int | None = None, **options: Any) -> str:
    return "TakeBackward0" if axis is None else "IndexSelectBackward0"


@public
@shown_as(_name_of_key)
def getitem(x: TensorLike, key: TensorLike) -> Tensor:
    """``x[key]`` with NumPy's basic and integer-array indexing.

    Negative indices wrap once. Slices that reach past an end stop there, also along a size that feeds bind.

    Raises:
        GraphError: a boolean mask (use ``sg.where``), too many indices, bounds that are tensors.
        BoundsError: an integer or a constant array is out of range; other arrays are checked in the run.
    """
    x = lift(x)
    parsed = subscript(x, key)
    y = declare_slice(x, parsed.slices.starts, parsed.slices.stops, parsed.slices.steps)
    if parsed.indices:
        y = declare(INDEX, (y, *parsed.indices), GatherAttributes(parsed.axes))
        order = placing(parsed, y.ndim)
        y = y if order == tuple(range(y.ndim)) else FUNCTIONS.permute_dims(y, order)
    own = y is not x and is_same(y.shape, parsed.shape)
    return y if own else FUNCTIONS.reshape(y, parsed.shape)


@public
@shown_as(_name_of_take)
def take(
    x: TensorLike,
    indices: TensorLike,
    axis: int | None = None,
    *,
    bounds: str = "error",
    fill_value: bool | int | float | None = None,
) -> Tensor:
    """The elements at ``indices`` along ``axis``, or of the flattened tensor; negative indices wrap once.

    Args:
        bounds: what becomes of indices out of range: ``"error"``; ``"clip"`` reads the first or the last place;
            ``"fill"`` gives ``fill_value``. With the last two, negative indices are out of range.
        fill_value: default: NaN of floats, else 0.

    Returns:
        A tensor in whose shape the shape of ``indices`` stands in the place of ``axis``.

    Raises:
        BoundsError: a constant index is out of range; others are checked in the run.
        GraphError: other ``bounds``.

    Example:
        >>> sg.Session().run(sg.take([[1, 2, 3], [4, 5, 6]], [0, -1], axis=1))
        array([[1, 3],
               [4, 6]])
        >>> sg.Session().run(sg.take([1.0, 2.0], [-1, 1, 2], bounds="fill"))
        array([nan,  2., nan], dtype=float32)
        >>> sg.take(sg.zeros((10, 4)), sg.placeholder((2, 3), sg.int64), axis=0).shape
        (2, 3, 4)
    """
    x = lift(x, graph_of((x, indices)))
    if axis is None:
        x, axis = FUNCTIONS.reshape(x, -1), 0
    place = normalize_axis(axis, x.ndim, "take")
    y = index(x, indices, axes=(place,), what="take", bounds=bounds, fill_value=fill_value)
    many = y.ndim - (x.ndim - 1)
    rest = list(range(many, y.ndim))
    order = (*rest[:place], *range(many), *rest[place:])
    return y if place == 0 else FUNCTIONS.permute_dims(y, order)


@public
@shown_as("GatherBackward0")
def take_along_axis(
    x: TensorLike,
    indices: TensorLike,
    axis: int = -1,
    *,
    bounds: str = "error",
    fill_value: bool | int | float | None = None,
) -> Tensor:
    """The elements whose place along ``axis`` the indices give, and whose other places are the indices' own.

    Args:
        indices: integers with the number of axes of ``x``; the other axes broadcast against those of ``x``.
        bounds: ``"error"``, ``"clip"`` or ``"fill"``, and the ``fill_value``, as in ``sg.take``.

    Raises:
        GraphError: another number of axes.
        BoundsError: a constant index is out of range; others are checked in the run.

    Example:
        >>> x = sg.constant([[3, 1, 2], [5, 6, 4]])
        >>> sg.Session().run(sg.take_along_axis(x, sg.argsort(x)))
        array([[1, 2, 3],
               [4, 5, 6]])
        >>> sg.Session().run(sg.take_along_axis(x, [[0], [1]], axis=1))
        array([[3],
               [6]])
    """
    graph = graph_of((x, indices))
    with graph:
        x = lift(x, graph)
        (places,) = as_indices("take_along_axis", (indices,), graph)
        if places.ndim != x.ndim:
            raise GraphError(f"take_along_axis: expected indices of {x.ndim} axes, actual {places.type}")
        along = normalize_axis(axis, x.ndim, "take_along_axis")
        lines = [tuple(1 if i == along else n for i, n in enumerate(t.shape)) for t in (x, places)]
        common = broadcast_shapes(lines, "take_along_axis")
        x = FUNCTIONS.broadcast_to(x, (*common[:along], x.shape[along], *common[along + 1 :]))
        shape = (*common[:along], places.shape[along], *common[along + 1 :])
        places = FUNCTIONS.broadcast_to(places, shape)
        grid = [places if i == along else FUNCTIONS.iota(shape, i) for i in range(len(shape))]
        return index(x, *grid, what="take_along_axis", bounds=bounds, fill_value=fill_value)
