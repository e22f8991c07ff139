"""``a[key]`` and ``a[key] = new`` of traced arrays, as NumPy means them: views, copies and writes through views.

Integers and slices give a view, a part of the same memory; arrays of integers a copy; a mask is integers where it is
known, and in a write also where it is traced (then the new elements are chosen by ``where``).

Of ``x[mask]`` with a traced mask only a run knows how many elements it has, but what is done with them is often known:
operators and functions of elements keep the selection, so that ``x[mask] *= 2`` and ``x[mask] = f(x[mask])`` are chosen
by ``where``; sums, means and extremes of all selected elements are those of where the mask is true. Anything else asks
for the elements one after the other, which is refused or frozen.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.base.errors import SourceLine
from staticgrad.bridges.arrays import cast, spread
from staticgrad.bridges.numpy import trace
from staticgrad.bridges.numpy.array import TracedArray, call, is_traced, known, traced, value_of
from staticgrad.bridges.numpy.cells import Cell, Lens, Place, Storage, part_of
from staticgrad.bridges.numpy.tables import NEUTRAL, of_selected, tensor_as
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.graph.optable import Array


def take(x: TracedArray, key: Any) -> Any:
    """``x[key]``."""
    items, value = _items(key), np.asarray(x.value)
    if _is_basic(items):
        found, cell = _view_cell(x, value, items)
        if isinstance(found, np.ndarray):
            return TracedArray(found, cell)
        return found if x.is_known else traced(found, cell.read(), x.is_example)
    if len(items) == 1 and _is_traced_mask(items[0]) and items[0].ndim == x.ndim:
        mask, found = items[0], value[items[0].value]
        is_example = x.is_example and mask.is_example
        return TracedArray(found, Selection(found, x.tensor(), mask.tensor(), is_example, trace.user_line()))
    items = _without_traced_masks(items)
    found = value[tuple(value_of(items))]
    involved = [each for each in (x, *items) if is_traced(each)]
    if not involved:
        return known(found)
    return traced(found, o.getitem(x.tensor(), tensor_key(tuple(items))), all(each.is_example for each in involved))


def put(x: TracedArray, key: Any, new: Any) -> None:
    """``x[key] = new``."""
    if not isinstance(x.value, np.ndarray):
        raise TypeError(f"'{type(x.value).__name__}' object does not support item assignment")
    if not x.value.flags.writeable:
        outside = "it writes into an array from outside of the function: copy it first, a = a.copy()"
        trace.current().refuse("item assignment", outside, x.is_example)
        return
    items, storage = _items(key), x.cell.storage
    new = call(np.asarray, new) if isinstance(new, (list, tuple)) else new
    involved = [each for each in (x, new, *items) if is_traced(each)]
    if not involved:
        x.value[tuple(value_of(items))] = value_of(new)
        storage.touch()
        return
    storage.trace()
    storage.is_example &= all(each.is_example for each in involved)
    if len(items) == 1 and _is_traced_mask(items[0]) and _is_of_any_count(new, x, items[0]):
        _put_masked(x, items[0], new)
        return
    items = _without_traced_masks(items)
    elements = tensor_as(new, x.dtype)  # before the value is written, of which it may be a view
    place, cell = tuple(value_of(items)), _view_cell(x, x.value, items)[1] if _is_basic(items) else None
    shape = np.shape(x.value[place])
    x.value[place] = value_of(new)
    elements = spread(_fitted(elements, len(shape)), shape)
    if cell is not None:
        cell.write(elements)
    else:
        x.cell.write(o.scatter(x.tensor(), tensor_key(tuple(items)), elements))


def _is_of_any_count(new: Any, x: TracedArray, mask: TracedArray) -> bool:
    """True if new elements do not depend on how many places a mask has: rows for all, or those of the same mask."""
    selected = getattr(new, "cell", None)
    if isinstance(selected, Selection) and selected.mask is mask.tensor():
        return True
    return bool(np.ndim(value_of(new)) <= x.ndim - mask.ndim)


def _put_masked(x: TracedArray, mask: TracedArray, new: Any) -> None:
    """Write where a traced mask says."""
    chosen = o.reshape(mask.tensor(), (*mask.shape, *(1,) * (x.ndim - mask.ndim)))
    selected = getattr(new, "cell", None)
    elements = cast(selected.full, x.dtype) if isinstance(selected, Selection) else tensor_as(new, x.dtype)
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
    if isinstance(part, slice):
        return slice(*(None if end is None else operator.index(end) for end in (part.start, part.stop, part.step)))
    if isinstance(part, (bool, np.bool_)) or part is None or part is Ellipsis:
        return part
    if isinstance(part, list) and any(type(each) is TracedArray for each in part):
        return call(np.asarray, part)
    places = np.asarray(part)
    return int(places) if places.ndim == 0 and places.dtype.kind in "iu" else places


def _is_basic(items: Sequence[Any]) -> bool:
    return all(item is None or item is Ellipsis or type(item) in (int, slice) for item in items)


def _is_traced_mask(item: Any) -> bool:
    return is_traced(item) and bool(item.dtype.kind == "b")


def _without_traced_masks(items: list[Any]) -> list[Any]:
    """The parts of a key with the values of masks, which are asked for."""
    return [item.known("a mask as index", trace.SELECTION) if _is_traced_mask(item) else item for item in items]


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


def _fitted(x: Tensor, ndim: int) -> Tensor:
    """Without leading axes of size 1 that are too many."""
    return x if x.ndim <= ndim else o.reshape(x, x.shape[x.ndim - ndim :])


# -- selections -------------------------------------------------------------------------------------------------------


class Selection(Cell):
    """The elements that a traced mask selects, whose number only a run knows: all elements, and the mask.

    What needs these elements one after the other asks for them.
    """

    __slots__ = ("_line", "_value", "full", "mask", "storage")

    def __init__(self, value: Array, full: Tensor, mask: Tensor, is_example: bool, line: SourceLine | None) -> None:
        self._value, self.full, self.mask, self._line = value, full, mask, line
        self.storage = Storage(value, full, is_example)

    def with_values(self, value: Array, full: Tensor) -> Selection:
        """Other values at the same places."""
        return Selection(value, full, self.mask, self.storage.is_example, self._line)

    def ask(self) -> None:
        """Refuse, or freeze, that elements are selected."""
        trace.current().depends("a mask as index", trace.SELECTION, self.storage.is_example, self._line)

    def read(self) -> Tensor:
        self.ask()
        return o.constant(np.array(self._value))

    def write(self, new: Tensor) -> None:
        """Keep nothing: the elements are a copy, and what asked for them is refused."""
        self.ask()


def is_selection(x: Any) -> bool:
    """True if something is an array of selected elements."""
    return type(x) is TracedArray and type(x.cell) is Selection


def selection_of(inputs: Sequence[Any]) -> Selection | None:
    """The selection of operands, if it is the same for all but numbers."""
    cells = [x.cell for x in inputs if is_selection(x)]
    others = [x for x in inputs if not is_selection(x)]
    is_one = all(cell.mask is cells[0].mask for cell in cells) and not any(np.ndim(value_of(x)) for x in others)
    return cells[0] if cells and is_one else None


def reduced(path: str, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
    """A sum, mean or extreme of selected elements; None for what else is asked of them."""
    name = path.removeprefix("numpy.")
    if len(arguments) != 1 or named or not is_selection(arguments[0]) or name not in NEUTRAL:
        return None
    full = arguments[0].cell.full
    if full.dtype.kind != "f" and name in ("max", "min"):
        return None
    return of_selected(name, full, arguments[0].cell.mask)
