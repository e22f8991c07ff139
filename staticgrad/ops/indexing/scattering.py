"""``scatter``: a copy of a tensor in which something is written at ``x[...]``.

Everything is said with ``index_add``, which adds up; so of several updates that meet in one place, the last or the
extreme one, or their product, is found before (``meetings.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.extents import is_same
from staticgrad.base.types import Size, bool_, holds_numbers, int32, int64, is_floating, product, require_number, takes
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.graph.lifting import TensorLike, graph_of, lift
from staticgrad.graph.optable import FUNCTIONS, Array, public
from staticgrad.ops.declare import NUMERIC, shown_as
from staticgrad.ops.elementwise.copies import rounded_once
from staticgrad.ops.elementwise.selection import limit, replaced
from staticgrad.ops.indexing.bounds import WRITES, inside, limited, require_bounds, some
from staticgrad.ops.indexing.gathering import index_add, remaining
from staticgrad.ops.indexing.meetings import extreme_of_place, extreme_with_place, last_of_place, product_of_place
from staticgrad.ops.indexing.subscripts import Subscript, is_array, placing, subscript
from staticgrad.ops.sizes import size_value
from staticgrad.ops.sources import all_values, are_distinct, known_extremes
from staticgrad.ops.views.permuting import inverse
from staticgrad.ops.views.slicing import SliceAttributes, declare_slice, slice_axis, unslice

_MODES = ("set", "add", "mul", "mean", "max", "min")


def _name_of_scatter(x: TensorLike, index: Any, updates: TensorLike, mode: str = "set", **options: Any) -> str:
    """PyTorch's, for a copy that is written to in the place of ``x[index]``."""
    items = index if isinstance(index, tuple) else (index,)
    return "IndexPutBackward0" if any(is_array(item) for item in items) else "CopySlices"


@public
@shown_as(_name_of_scatter)
def scatter(
    x: TensorLike,
    index: Any,
    updates: TensorLike,
    mode: str = "set",
    *,
    bounds: str = "error",
    include_self: bool = True,
    unique_indices: bool = False,
) -> Tensor:
    """A copy of ``x`` in which ``updates`` are written at ``x[index]``.

    Args:
        index: any key of ``x[...]``.
        updates: broadcasts to the shape of ``x[index]``, and is cast to the dtype of ``x`` where that is safe.
        mode: ``"set"`` (of several updates of one place the last stays), ``"add"``, ``"mul"``, ``"mean"`` (of integers
            rounded down), ``"max"`` or ``"min"``, with what was there. Equal ones share the
            gradient of an extreme, what was there among them.
        bounds: what becomes of indices in arrays that are out of range: ``"error"``; ``"drop"`` writes nothing;
            ``"clip"`` writes at the first or the last place. With the last two, negative indices are out of range.
        include_self: without it, what was there takes no part in sums, products, means and extremes.
        unique_indices: a promise that no two updates are of one place, which saves looking for those that are. Where
            it is broken, such updates are added up in any mode.

    Raises:
        GraphError: another mode or other bounds, updates that do not fit, a boolean mask.
        BoundsError: an integer or a constant array is out of range; other arrays are checked in the run.

    Example:
        >>> x = sg.zeros(4)
        >>> sg.Session().run(sg.scatter(x, [0, 0, 3], [1.0, 2.0, 3.0], mode="add"))
        array([3., 0., 0., 3.], dtype=float32)
        >>> sg.Session().run(sg.scatter(x, slice(1, 3), 7.0))
        array([0., 7., 7., 0.], dtype=float32)
        >>> sg.Session().run(sg.scatter(x, [1, 9], 5.0, bounds="drop"))
        array([0., 5., 0., 0.], dtype=float32)
    """
    if mode not in _MODES:
        raise GraphError(f"scatter: mode is one of {', '.join(map(repr, _MODES))}, not {mode!r}")
    require_bounds("scatter", bounds, WRITES)
    graph = graph_of((x, updates))
    with graph:
        x = lift(x, graph)
        new = _updates_for(x, updates, graph)
        if not takes(NUMERIC, x.dtype):
            wide, values = (FUNCTIONS.astype(y, int32) for y in (x, new))
            options: Any = {"bounds": bounds, "include_self": include_self, "unique_indices": unique_indices}
            made = scatter(wide, index, values, mode, **options)
            return FUNCTIONS.astype(made, x.dtype)

        def write(x: Tensor, new: Tensor) -> Tensor:
            return _scatter(x, index, new, mode, bounds, include_self, unique_indices)

        computed = mode in ("mul", "mean") or not include_self
        return rounded_once(write, x, new) if computed else write(x, new)


def _scatter(x: Tensor, index: Any, new: Tensor, mode: str, bounds: str, include_self: bool, is_alone: bool) -> Tensor:
    key = subscript(x, index, checked=bounds == "error")
    part = declare_slice(x, key.slices.starts, key.slices.stops, key.slices.steps)
    new = _arranged(part, FUNCTIONS.broadcast_to(new, key.shape), key)
    if key.indices:
        key, there = _bounded(part, key, bounds)
        part = _write_at(part, new, key, mode, there, include_self, is_alone)
    elif mode != "set" and include_self:
        part = _COMBINE[mode](part, new)
    else:
        part = replaced(part, new) if _is_whole(x, part, key.slices) else new
    return _put_back(x, part, key.slices)


def _bounded(part: Tensor, key: Subscript, bounds: str) -> tuple[Subscript, Tensor | None]:
    """The key with indices that are in range, and a mask of those that are written at; None: all."""
    if bounds == "error":
        return key, None
    sizes = [part.shape[axis] for axis in key.axes]
    there = inside(key.indices, sizes) if bounds == "drop" else None
    return replace(key, indices=tuple(map(limited, key.indices, sizes))), there


def _updates_for(x: Tensor, updates: TensorLike, graph: Graph) -> Tensor:
    if holds_numbers(updates):
        require_number(updates, x.dtype, "scatter")
    new = lift(updates, graph, x.dtype)
    if new.dtype != x.dtype and not np.can_cast(new.dtype, x.dtype, "safe"):
        raise GraphError(f"scatter: updates {new.type} are not cast safely to {x.dtype.name} of {x.name!r}")
    return FUNCTIONS.astype(new, x.dtype)


def _arranged(part: Tensor, new: Tensor, key: Subscript) -> Tensor:
    """Updates from the shape of the subscript to that in which the axes of the indices come first."""
    if not key.indices:
        return FUNCTIONS.reshape(new, part.shape)
    front = (*key.indices[0].shape, *remaining(part.type, key.axes))
    perm = placing(key, len(front))
    placed = FUNCTIONS.reshape(new, tuple(front[axis] for axis in perm))
    return FUNCTIONS.permute_dims(placed, inverse(perm))


_COMBINE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda a, b: FUNCTIONS.add(a, b),
    "mul": lambda a, b: FUNCTIONS.multiply(a, b),
    "mean": lambda a, b: _divided(FUNCTIONS.add(a, b), 2),
    "max": lambda a, b: FUNCTIONS.maximum(a, b),
    "min": lambda a, b: FUNCTIONS.minimum(a, b),
}


def _divided(total: Tensor, count: Tensor | int) -> Tensor:
    divide = FUNCTIONS.divide if is_floating(total.dtype) else FUNCTIONS.floor_divide
    return divide(total, FUNCTIONS.astype(count, total.dtype))


def _write_at(
    part: Tensor, new: Tensor, key: Subscript, mode: str, there: Tensor | None, include_self: bool, is_alone: bool
) -> Tensor:
    """``part`` with updates at the indices of a key, of those ``there`` alone; ``is_alone`` says that none meet."""
    o, axes = FUNCTIONS, key.axes
    sizes = tuple(part.shape[axis] for axis in axes)
    count, rest = product(key.indices[0].shape), remaining(part.type, axes)
    if count == 0 or (0 in sizes and there is not None):
        return part
    if mode == "add" and include_self:
        return index_add(part, some(there, new), *key.indices, axes=axes, what="scatter")
    new = o.reshape(new, (count, *rest))
    indices = [o.reshape(one, (count,)) for one in key.indices]
    mask = None if there is None else o.reshape(there, (count,))
    ones = o.ones((count,), dtype=int32) if mask is None else o.astype(mask, int32)
    number = index_add(o.zeros(sizes, dtype=int32), ones, *indices, what="scatter")
    order = [axes.index(axis) for axis in sorted(axes)]
    spread = tuple(size if axis in axes else 1 for axis, size in enumerate(part.shape))
    number = o.reshape(o.permute_dims(number, tuple(order)), spread)
    hit = o.greater(number, 0)
    if mode == "set" and count == 1:  # one pass over the tensor, and no other one of its size
        return o.where(hit, o.reshape(new, tuple(1 if i in axes else n for i, n in enumerate(part.shape))), part)
    is_alone = is_alone or count == 1 or _are_alone(part, key)
    last = None if is_alone else _known_last(part, key)
    is_alone = is_alone or (last is not None and bool(last.all()))
    if mode in ("add", "mean") or mode == "set" or is_alone:
        if mode == "set" and not is_alone:
            chosen = last_of_place(_places(sizes, indices, mask, product(sizes))) if last is None else o.constant(last)
            new = some(chosen, new)
        written = index_add(o.zeros_like(part), some(mask, new), *indices, axes=axes, what="scatter")
    else:
        outside = product(sizes) if mode == "mul" else 0  # the place of what is left out, which extremes do not change
        places = _places(sizes, indices, mask, outside)
        whole = o.moveaxis(part, axes, tuple(range(len(axes))))
        rows, flat = o.reshape(whole, (product(sizes), product(rest))), o.reshape(new, (count, product(rest)))
        if mode == "mul":
            found = product_of_place(flat, places, outside if mask is None else outside + 1)
            found = found if mask is None else slice_axis(found, 0, 0, outside)
        else:
            neutral = limit(part.dtype, -1 if mode == "max" else 1)
            flat = flat if mask is None else o.where(o.expand_dims(mask, 1), flat, neutral)
            if include_self:
                found = extreme_with_place(rows, flat, places, mode)
            else:
                found = extreme_of_place(flat, places, product(sizes), mode)
        written = o.moveaxis(o.reshape(found, (*sizes, *rest)), tuple(range(len(axes))), axes)
    if mode == "mean":
        written = _divided(
            o.add(part, written) if include_self else written, o.maximum(o.add(number, int(include_self)), 1)
        )
    elif include_self and (mode == "mul" or (is_alone and mode != "set")):
        written = _COMBINE[mode](part, written)
    return o.where(hit, written, part)


def _places(sizes: Sequence[Size], indices: Sequence[Tensor], mask: Tensor | None, outside: Size = 0) -> Tensor:
    """The elements that index tensors name, numbered row by row; ``outside`` where the mask does not hold."""
    o = FUNCTIONS
    places: Tensor | int = 0
    for line, size in zip(indices, sizes, strict=True):
        extent = size if isinstance(size, int) else size_value(size, int64)
        places = o.add(o.multiply(places, extent), o.where(o.less(line, 0), o.add(line, extent), line))
    if mask is None:
        return lift(places)
    return o.where(mask, places, outside if isinstance(outside, int) else size_value(outside, int64))


def _are_alone(part: Tensor, key: Subscript) -> bool:
    """True if an index alone is known to name no place twice, negative ones being added to the size."""
    for index, axis in zip(key.indices, key.axes, strict=True):
        known, size = known_extremes(index), part.shape[axis]
        if known is not None and isinstance(size, int) and known[1] - known[0] < size and are_distinct(index):
            return True
    return False


def _known_last(part: Tensor, key: Subscript) -> Array | None:
    """A mask of the updates that are the last of their place, where all indices are part of the program; else None."""
    flat = np.zeros(1, np.int64)
    for one, axis in zip(key.indices, key.axes, strict=True):
        values, size = all_values(one), part.shape[axis]
        if values is None or not isinstance(size, int):
            return None
        flat = flat * size + np.where(values < 0, values + size, values).ravel()
    _, first_from_the_end = np.unique(flat[::-1], return_index=True)
    last = np.zeros(len(flat), np.bool_)
    last[len(flat) - 1 - first_from_the_end] = True
    return last


def _is_whole(x: Tensor, part: Tensor, slices: SliceAttributes) -> bool:
    return is_same(part.shape, x.shape) and all(step == 1 for step in slices.steps)


def _put_back(x: Tensor, part: Tensor, slices: SliceAttributes) -> Tensor:
    """``x`` with ``part`` in the place of its slice."""
    if _is_whole(x, part, slices):
        return part
    o = FUNCTIONS
    inside = unslice(o.full(part.shape, True, dtype=bool_), slices, x.shape)
    return o.where(inside, unslice(part, slices, x.shape), x)
