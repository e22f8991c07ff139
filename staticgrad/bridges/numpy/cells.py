"""The memory of arrays as tensors: storages that are written to, parts of them, and other views.

    Storage      the memory of an array: a tensor, or known until something traced is written into it
    StoragePart  a storage at some of its places: an integer or a range for each axis
    Lens         any other view of a cell: there by one function of tensors, back by another

A tensor is a value, so a write gives the storage another tensor. Writes at integers of the same axes (``a[t] = …`` or
``a[i, j] = …`` in a loop) are kept apart: a read at one of these places has the tensor that was written there, and one
``stack`` joins them when the whole is read. So a loop that fills an array costs one operand for each turn.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np

from staticgrad.base.types import dtype_of
from staticgrad.bridges.numpy.trace import current
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.graph.optable import Array

MOST_RUNS = 4  # of neighbouring places that were written, from which one scatter takes the place of joins

Place = int | range


class Cell(ABC):
    """Elements that an array reads and writes. ``storage`` is the memory in which they lie."""

    __slots__ = ()
    storage: Storage

    @abstractmethod
    def read(self) -> Tensor:
        """The tensor of the elements."""

    @abstractmethod
    def write(self, new: Tensor) -> None:
        """Put a tensor of the same shape and dtype in the place of the elements."""

    def ask(self) -> None:  # noqa: B027 - a size is known but for selections
        """Ask for the number of elements, which may depend on values."""


class Storage(Cell):
    """Memory of its own.

    Attributes:
        value: what it holds at the example arguments.
        is_example: False if the function was called with tensors: then ``value`` has a shape and a dtype alone.
    """

    __slots__ = ("_axes", "_constant", "_parts", "_tensor", "is_example", "value")

    def __init__(
        self, value: Array | np.generic | float, tensor: Tensor | None = None, is_example: bool = True
    ) -> None:
        self.value, self._tensor, self.is_example = value, tensor, is_example
        self._constant: Tensor | None = None
        self._axes: tuple[int, ...] = ()
        self._parts: dict[tuple[int, ...], Tensor] = {}

    @property
    def storage(self) -> Storage:  # type: ignore[override]
        return self

    @property
    def is_traced(self) -> bool:
        return self._tensor is not None

    def trace(self) -> None:
        """Something traced is about to be written."""
        if self._tensor is None:
            self._tensor = self.read()

    def touch(self) -> None:
        """Something known was written."""
        self._constant = None

    def read(self) -> Tensor:
        if self._tensor is None:
            if self._constant is None:
                self._constant = o.constant(np.array(self.value))
            return self._constant
        self._join()
        return self._tensor

    def write(self, new: Tensor) -> None:
        self._parts.clear()
        self._tensor = new

    def read_at(self, places: Sequence[Place]) -> Tensor:
        """The tensor of the elements at some places."""
        if self._parts and self._tensor is not None and all(isinstance(places[axis], int) for axis in self._axes):
            part = self._parts.get(self._key(places))
            return at(self._tensor, places) if part is None else at(part, self._rest(places))
        return at(self.read(), places)

    def write_at(self, places: Sequence[Place], new: Tensor) -> None:
        """Put a tensor in the place of the elements at some places."""
        axes = tuple(axis for axis, place in enumerate(places) if isinstance(place, int))
        if not axes:
            self.write(put(self.read(), places, new))
            return
        if self._parts and not set(self._axes) <= set(axes):
            self._join()
        base = self._tensor if self._parts and self._tensor is not None else self.read()
        if not self._parts:
            self._axes = axes
        key, rest = self._key(places), self._rest(places)
        whole = [place if axis in self._axes else range(int(base.shape[axis])) for axis, place in enumerate(places)]
        if list(places) != whole:
            old = self._parts.get(key)
            new = put(at(base, whole) if old is None else old, rest, new)
        self._parts[key] = new

    def _key(self, places: Sequence[Place]) -> tuple[int, ...]:
        return tuple(place for place in (places[axis] for axis in self._axes) if isinstance(place, int))

    def _rest(self, places: Sequence[Place]) -> list[Place]:
        return [place for axis, place in enumerate(places) if axis not in self._axes]

    def _join(self) -> None:
        """Write the parts into the tensor."""
        if not self._parts or self._tensor is None:
            return
        axes, parts, base = self._axes, dict(sorted(self._parts.items())), self._tensor
        self._parts = {}
        sizes = [int(base.shape[axis]) for axis in axes]
        if len(parts) == math.prod(sizes):
            stacked = o.stack(list(parts.values()))
            self._tensor = _to_axes(o.reshape(stacked, (*sizes, *stacked.shape[1:])), axes)
            return
        if len(axes) == 1:
            runs = [(is_new, list(run)) for is_new, run in groupby(range(sizes[0]), lambda place: (place,) in parts)]
            if sum(is_new for is_new, _ in runs) <= MOST_RUNS:
                self._tensor = o.concat(
                    [_piece(base, axes[0], run, parts if is_new else {}) for is_new, run in runs], axes[0]
                )
                return
        index = tuple(np.array(column) for column in zip(*parts, strict=True))
        front = o.moveaxis(base, axes, tuple(range(len(axes))))
        self._tensor = _to_axes(o.scatter(front, index, o.stack(list(parts.values()))), axes)


class StoragePart(Cell):
    """A storage at some of its places."""

    __slots__ = ("places", "storage")

    def __init__(self, storage: Storage, places: Sequence[Place]) -> None:
        self.storage, self.places = storage, tuple(places)

    def read(self) -> Tensor:
        return self.storage.read_at(self.places)

    def write(self, new: Tensor) -> None:
        self.storage.write_at(self.places, new)


class Lens(Cell):
    """A view of a cell: ``there(elements)`` are its own, ``back(elements, new)`` are the cell's after a write."""

    __slots__ = ("_back", "_seen", "_source", "_there", "storage")

    def __init__(
        self, source: Cell, there: Callable[[Tensor], Tensor], back: Callable[[Tensor, Tensor], Tensor]
    ) -> None:
        self._source, self._there, self._back = source, there, back
        self._seen: tuple[Tensor, Tensor] | None = None
        self.storage = source.storage

    def read(self) -> Tensor:
        elements = self._source.read()
        if self._seen is None or self._seen[0] is not elements:
            self._seen = elements, self._there(elements)
        return self._seen[1]

    def write(self, new: Tensor) -> None:
        self._source.write(self._back(self._source.read(), new))


def part_of(cell: Cell, sizes: Sequence[int], taken: Sequence[Place]) -> Cell:
    """The view of a cell of these sizes at some of its places."""
    if isinstance(cell, Storage):
        return StoragePart(cell, taken)
    if isinstance(cell, StoragePart):
        new = iter(taken)
        return StoragePart(cell.storage, [p if isinstance(p, int) else _compose(p, next(new)) for p in cell.places])
    return Lens(cell, lambda x: at(x, taken), lambda x, new: put(x, taken, new))


def _compose(place: range, taken: Place) -> Place:
    return place[taken] if isinstance(taken, int) else place[slice_of(taken)]


def slice_of(place: range) -> slice:
    """The slice that takes the places of a range."""
    if not len(place):
        return slice(0, 0)
    return slice(place.start, place.stop if place.stop >= 0 else None, place.step)


def _key_of(places: Sequence[Place]) -> tuple[int | slice, ...]:
    return tuple(place if isinstance(place, int) else slice_of(place) for place in places)


def is_whole(x: Tensor, places: Sequence[Place]) -> bool:
    return all(place == range(int(size)) for place, size in zip(places, x.shape, strict=True))


def at(x: Tensor, places: Sequence[Place]) -> Tensor:
    """The tensor at some of its places."""
    return x if is_whole(x, places) else o.getitem(x, _key_of(places))


def put(x: Tensor, places: Sequence[Place], new: Tensor) -> Tensor:
    """The tensor with other elements at some of its places."""
    return new if is_whole(x, places) else o.scatter(x, _key_of(places), new)


def _to_axes(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The tensor with its first axes moved to these."""
    front = tuple(range(len(axes)))
    return x if axes == front else o.moveaxis(x, front, axes)


def _piece(base: Tensor, axis: int, run: Sequence[int], parts: dict[tuple[int, ...], Tensor]) -> Tensor:
    """Neighbouring places along an axis: what was written to them, else the tensor's own."""
    if parts:
        return o.stack([parts[(place,)] for place in run], axis=axis)
    whole = [range(int(size)) for size in base.shape]
    return at(base, [*whole[:axis], range(run[0], run[-1] + 1), *whole[axis + 1 :]])


def check_dtype(dtype: np.dtype, what: str, is_example: bool) -> bool:
    """True if tensors have this dtype; else ``what`` is refused."""
    try:
        dtype_of(dtype)
    except Exception:
        current().refuse(what, f"results of dtype {dtype.name} have no tensor", is_example)
        return False
    return True
