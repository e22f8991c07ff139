"""``a[key]`` and ``a[key] = new`` of traced arrays, as NumPy means them: views, copies and writes through views.

Integers and slices give a view, a part of the same memory; arrays of integers a copy; a mask is integers where it is
known, and in a write also where it is traced (then the new elements are chosen by ``where``).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.bridges.arrays import cast, spread
from staticgrad.bridges.numpy import trace
from staticgrad.bridges.numpy.array import TracedArray, is_traced, traced, value_of
from staticgrad.bridges.numpy.cells import Cell, Lens, Place, Storage, part_of
from staticgrad.bridges.numpy.selections import Selection
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


def take(x: TracedArray, key: Any) -> Any:
    """``x[key]``."""
    items = _items(key)
    value = np.asarray(x.value)
    if _is_basic(items):
        return _view(x, value, items)
    if len(items) == 1 and is_traced(items[0]) and items[0].dtype.kind == "b" and items[0].ndim == x.ndim:
        mask, is_example = items[0], x.is_example and items[0].is_example
        found = value[mask.value]
        return TracedArray(found, Selection(found, x.tensor(), mask.tensor(), is_example, trace.user_line()))
    if any(is_traced(item) and item.dtype.kind == "b" for item in items):
        for item in items:
            if is_traced(item) and item.dtype.kind == "b":
                item.asked("a mask as index", trace.SELECTION)
        items = [value_of(item) if _is_mask(item) else item for item in items]
    found = value[tuple(value_of(items))]
    if x.is_known and not any(map(is_traced, items)):
        return TracedArray(found, Storage(found)) if isinstance(found, np.ndarray) else found
    is_example = x.is_example and all(item.is_example for item in items if is_traced(item))
    return traced(found, o.getitem(x.tensor(), tensor_key(tuple(items))), is_example)


def put(x: TracedArray, key: Any, new: Any) -> None:
    """``x[key] = new``."""
    if not isinstance(x.value, np.ndarray):
        raise TypeError(f"'{type(x.value).__name__}' object does not support item assignment")
    if not x.value.flags.writeable:
        outside = "it writes into an array from outside of the function: copy it first, a = a.copy()"
        trace.current().refuse("item assignment", outside, x.is_example)
        return
    items, storage = _items(key), x.cell.storage
    if x.is_known and not is_traced(new) and not _has_traced(new) and not any(map(is_traced, items)):
        x.value[tuple(value_of(items))] = value_of(new)
        storage.touch()
        return
    storage.trace()
    if not isinstance(new, TracedArray):
        new = _array(new)
    if not all(each.is_example for each in (x, new, *filter(is_traced, items)) if isinstance(each, TracedArray)):
        storage.is_example = False
    masks = [item for item in items if is_traced(item) and item.dtype.kind == "b"]
    if masks:
        selected = getattr(new, "cell", None)
        is_same = isinstance(selected, Selection) and selected.mask is masks[0].tensor()
        if len(items) > 1 or (np.ndim(value_of(new)) > x.ndim - masks[0].ndim and not is_same):
            for mask in masks:
                mask.asked("a mask as index", trace.SELECTION)
            items = [value_of(item) if _is_mask(item) else item for item in items]
        else:
            _put_masked(x, masks[0], new)
            return
    before = _tensor_of(new, x.dtype)  # before the value is written, of which it may be a view
    if _is_basic(items):
        view, cell = _view_cell(x, x.value, items)
        x.value[tuple(value_of(items))] = value_of(new)
        cell.write(spread(_fitted(before, view.ndim), view.shape))
        return
    shape = x.value[tuple(value_of(items))].shape
    x.value[tuple(value_of(items))] = value_of(new)
    new_elements = spread(_fitted(before, len(shape)), shape)
    x.cell.write(o.scatter(x.tensor(), tensor_key(tuple(items)), new_elements))


def _put_masked(x: TracedArray, mask: TracedArray, new: Any) -> None:
    """Write where a traced mask says, what does not depend on how many places there are."""
    chosen = mask.tensor()
    chosen = o.reshape(chosen, (*chosen.shape, *(1,) * (x.ndim - mask.ndim)))
    selected = getattr(new, "cell", None)
    elements = cast(selected.full, x.dtype) if isinstance(selected, Selection) else _tensor_of(new, x.dtype)
    written = o.where(chosen, elements, x.tensor())
    x.value[mask.value] = value_of(new)
    x.cell.write(written)


def _items(key: Any) -> list[Any]:
    """The parts of a key; what is known is an integer, a slice of integers or an array of its own."""
    return [_item(part) for part in (key if type(key) is tuple else (key,))]


def _item(part: Any) -> Any:
    if type(part) is TracedArray:
        if not part.is_known:
            return part
        part = part.value
    if isinstance(part, range):
        return np.asarray(part)
    if isinstance(part, slice):
        return slice(*(None if end is None else operator.index(end) for end in (part.start, part.stop, part.step)))
    if isinstance(part, (bool, np.bool_)) or part is None or part is Ellipsis:
        return part
    if isinstance(part, (int, np.integer)) or (
        isinstance(part, np.ndarray) and part.ndim == 0 and part.dtype.kind in "iu"
    ):
        return int(part)
    if isinstance(part, list) and any(type(each) is TracedArray for each in part):
        return _array(part)
    return np.asarray(part) if isinstance(part, (list, tuple, np.ndarray)) else part


def _is_basic(items: Sequence[Any]) -> bool:
    return all((isinstance(item, (int, slice)) and not isinstance(item, bool)) or item is None or item is Ellipsis
               for item in items if type(item) is not TracedArray) and not any(
        type(item) is TracedArray for item in items)  # fmt: skip


def _is_mask(item: Any) -> bool:
    return isinstance(item, (TracedArray, np.ndarray)) and item.dtype.kind == "b"


def _view(x: TracedArray, value: Any, items: list[Any]) -> Any:
    if x.is_known:
        found = value[tuple(items)]
        if not isinstance(found, np.ndarray):
            return found
        return TracedArray(found, _view_cell(x, value, items)[1])
    found, cell = _view_cell(x, value, items)
    if isinstance(found, np.ndarray):
        return TracedArray(found, cell)
    return traced(found, cell.read(), x.is_example)


def _view_cell(x: TracedArray, value: Any, items: list[Any]) -> tuple[Any, Cell]:
    """The value at integers and slices, and the cell of this view."""
    found = value[tuple(items)]
    given = [item for item in items if item is not None and item is not Ellipsis]
    places: list[Place] = [range(size) for size in value.shape]
    before = items.index(Ellipsis) if Ellipsis in items else len(items)
    leading = sum(item is not None for item in items[:before])
    for number, item in enumerate(given):
        axis = number if number < leading else value.ndim - len(given) + number
        places[axis] = range(value.shape[axis])[item]
    cell = part_of(x.cell, value.shape, places)
    if None not in items:
        return found, cell
    flat = tuple(len(place) for place in places if not isinstance(place, int))
    shape = np.shape(found)
    return found, Lens(cell, lambda t: o.reshape(t, shape), lambda _, new: o.reshape(new, flat))


def tensor_key(key: Any) -> tuple[Any, ...]:
    """A key of tensors: integers for known masks, tensors for traced arrays."""
    found: list[Any] = []
    for item in _items(key):
        if type(item) is TracedArray:
            found.append(item.tensor())
        elif isinstance(item, np.ndarray) and item.dtype.kind == "b":
            found += np.nonzero(item)
        else:
            found.append(item)
    return tuple(found)


def _tensor_of(new: Any, dtype: np.dtype) -> Tensor:
    """New elements as a tensor of the dtype of what they are written into."""
    if type(new) is TracedArray:
        return cast(new.tensor(), dtype)
    return o.constant(np.asarray(new).astype(dtype))


def _fitted(x: Tensor, ndim: int) -> Tensor:
    """Without leading axes of size 1 that are too many."""
    return x if x.ndim <= ndim else o.reshape(x, x.shape[x.ndim - ndim :])


def _has_traced(new: Any) -> bool:
    return isinstance(new, (list, tuple)) and any(_has_traced(each) or is_traced(each) for each in new)


def _array(nest: Any) -> Any:
    return np.asarray(nest) if not _has_traced(nest) else _stacked(nest)


def _stacked(nest: Any) -> Any:
    from_nest = [_array(each) if isinstance(each, (list, tuple)) else each for each in nest]
    value = np.array(value_of(from_nest))
    tensor = o.stack([_tensor_of(each, value.dtype) for each in from_nest])
    return traced(value, tensor, all(each.is_example for each in from_nest if type(each) is TracedArray))
