"""``scatter``: a copy of a tensor in which something is written at ``x[...]``.

Everything is said with ``index_add``, which adds up; so of several updates that meet in one place, the last or the
extreme one is found before (``meetings.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.extents import is_same
from staticgrad.base.types import Size, bool_, holds_numbers, int32, int64, product, require_number, takes
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.graph.lifting import TensorLike, graph_of, lift
from staticgrad.graph.optable import FUNCTIONS, Array, public
from staticgrad.ops.declare import NUMERIC, shown_as
from staticgrad.ops.elementwise.selection import replaced
from staticgrad.ops.indexing.gathering import index_add, remaining
from staticgrad.ops.indexing.meetings import extreme_of_place, last_of_place
from staticgrad.ops.indexing.subscripts import Subscript, is_array, placing, subscript
from staticgrad.ops.sizes import size_value
from staticgrad.ops.sources import all_values, are_distinct, known_extremes
from staticgrad.ops.views.permuting import inverse
from staticgrad.ops.views.slicing import SliceAttributes, declare_slice, unslice

_MODES = ("set", "add", "max", "min")


def _name_of_scatter(x: TensorLike, index: Any, updates: TensorLike, mode: str = "set") -> str:
    """PyTorch's, for a copy that is written to in the place of ``x[index]``."""
    items = index if isinstance(index, tuple) else (index,)
    return "IndexPutBackward0" if any(is_array(item) for item in items) else "CopySlices"


@public
@shown_as(_name_of_scatter)
def scatter(x: TensorLike, index: Any, updates: TensorLike, mode: str = "set") -> Tensor:
    """A copy of ``x`` in which ``updates`` are written at ``x[index]``.

    Args:
        index: any key of ``x[...]``.
        updates: broadcasts to the shape of ``x[index]``, and is cast to the dtype of ``x`` where that is safe.
        mode: ``"set"`` (of several updates of one place the last stays), ``"add"``, ``"max"`` or ``"min"`` (with what
            was there).

    Raises:
        GraphError: another mode, updates that do not fit, a boolean mask.
        BoundsError: an integer or a constant array is out of range; other arrays are checked in the run.

    Example:
        >>> x = sg.zeros(4)
        >>> sg.Session().run(sg.scatter(x, [0, 0, 3], [1.0, 2.0, 3.0], mode="add"))
        array([3., 0., 0., 3.], dtype=float32)
        >>> sg.Session().run(sg.scatter(x, slice(1, 3), 7.0))
        array([0., 7., 7., 0.], dtype=float32)
    """
    if mode not in _MODES:
        raise GraphError(f"scatter: mode is one of {', '.join(map(repr, _MODES))}, not {mode!r}")
    graph = graph_of((x, updates))
    with graph:
        x = lift(x, graph)
        new = _updates_for(x, updates, graph)
        if not takes(NUMERIC, x.dtype):
            wide = scatter(FUNCTIONS.astype(x, int32), index, FUNCTIONS.astype(new, int32), mode)
            return FUNCTIONS.astype(wide, x.dtype)
        key = subscript(x, index)
        part = declare_slice(x, key.slices.starts, key.slices.stops, key.slices.steps)
        new = _arranged(part, FUNCTIONS.broadcast_to(new, key.shape), key)
        if key.indices:
            part = _write_at(part, new, key, mode)
        elif mode != "set":
            part = _COMBINE[mode](part, new)
        else:
            part = replaced(part, new) if _is_whole(x, part, key.slices) else new
        return _put_back(x, part, key.slices)


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
    "max": lambda a, b: FUNCTIONS.maximum(a, b),
    "min": lambda a, b: FUNCTIONS.minimum(a, b),
}


def _write_at(part: Tensor, new: Tensor, key: Subscript, mode: str) -> Tensor:
    o, axes = FUNCTIONS, key.axes
    if mode == "add":
        return index_add(part, new, *key.indices, axes=axes, what="scatter")
    count, rest = product(key.indices[0].shape), remaining(part.type, axes)
    if count == 0:
        return part
    new = o.reshape(new, (count, *rest))
    indices = [o.reshape(one, (count,)) for one in key.indices]
    sizes = tuple(part.shape[axis] for axis in axes)
    one_each = o.ones((count,), dtype=int32)
    hit = o.greater(index_add(o.zeros(sizes, dtype=int32), one_each, *indices, what="scatter"), 0)
    order = [axes.index(axis) for axis in sorted(axes)]
    spread = tuple(size if axis in axes else 1 for axis, size in enumerate(part.shape))
    hit = o.reshape(o.permute_dims(hit, tuple(order)), spread)
    if mode == "set" and count == 1:  # one pass over the tensor, and no other one of its size
        return o.where(hit, o.reshape(new, tuple(1 if i in axes else n for i, n in enumerate(part.shape))), part)
    is_alone = count == 1 or _are_alone(part, key)
    last = None if is_alone else _known_last(part, key)
    is_alone = is_alone or (last is not None and bool(last.all()))
    if mode == "set" or is_alone:
        if not is_alone:
            chosen = last_of_place(_places(sizes, indices)) if last is None else o.constant(last)
            new = o.where(o.reshape(chosen, (count, *(1 for _ in rest))), new, 0)
        written = index_add(o.zeros_like(part), new, *indices, axes=axes, what="scatter")
    else:
        flat = o.reshape(new, (count, product(rest)))
        found = extreme_of_place(flat, _places(sizes, indices), product(sizes), mode)
        written = o.moveaxis(o.reshape(found, (*sizes, *rest)), tuple(range(len(axes))), axes)
    return o.where(hit, written if mode == "set" else _COMBINE[mode](part, written), part)


def _places(sizes: Sequence[Size], indices: Sequence[Tensor]) -> Tensor:
    """The elements that index tensors name, numbered row by row."""
    o = FUNCTIONS
    places: Tensor | int = 0
    for line, size in zip(indices, sizes, strict=True):
        extent = size if isinstance(size, int) else size_value(size, int64)
        places = o.add(o.multiply(places, extent), o.where(o.less(line, 0), o.add(line, extent), line))
    return lift(places)


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
