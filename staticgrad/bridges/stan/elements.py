"""Variables that are assigned element by element.

A ``StanArray`` holds an array. As long as it is assigned as a whole, it is that value. Once elements are assigned, it
knows for each element the *piece* that it comes from, a value, and its place there: so reading an element gives the
very tensor that was assigned, and reading many joins the pieces with one gather. What was joined last is kept, for
loops read it again with what they have assigned since (posteriordb's covid19imperial_v2: 3,194 nodes, 11,761 without).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.base.errors import StaticGradError
from staticgrad.base.frozen import frozen
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.stan.values import (
    INTS,
    Index,
    Value,
    concat,
    known,
    ndim,
    number,
    real,
    reshape,
    shape,
    spread,
    stack,
    take,
)
from staticgrad.graph.graph import Graph, Tensor, get_default_graph


@frozen(eq=False)
class _JoinedElements:
    """Elements that were joined: in which graph, their numbers, their pieces and places there, and the value. A loop
    that reads all that it has assigned so far joins each element once."""

    graph: Graph
    at: Any
    owner: Any
    place: Any
    value: Value


class StanArray:
    """A variable of a shape; of real numbers unless it is an ``integer`` one."""

    def __init__(self, sizes: Sequence[int], integer: bool = False, value: Value = None) -> None:
        self.shape, self.integer = tuple(sizes), integer
        fill = np.iinfo(np.int32).min if integer else np.nan  # as Stan marks what was not assigned
        self.value = np.full(self.shape, fill) if value is None else self._own(value)
        self._pieces: list[Value] | None = None  # flat; None: ``value`` is whole
        self._owner = self._place = np.zeros(0, np.int64)
        self.state = object()  # another one after each assignment; a copy has the same
        self._last: _JoinedElements | None = None  # what was read last

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @classmethod
    def unassigned(cls, sizes: Sequence[int], integer: bool) -> StanArray:
        """An array whose elements may be read only after they are assigned."""
        made = cls(sizes, integer)
        made._start(None)
        return made

    def _start(self, piece: Value) -> None:
        """Let all elements come from one piece."""
        self._pieces, self._last = [piece], None
        self._owner, self._place = np.zeros(self.size, np.int64), np.arange(self.size)

    def assigned(self) -> tuple[Any, Value]:
        """The numbers of the elements of an ``unassigned`` array that were assigned, and their values, flat."""
        whole = self._pieces is None or self._pieces[0] is not None
        at = np.arange(self.size) if whole else np.flatnonzero(self._owner)
        return at, self.join(at)

    def put(self, at: Any, value: Value) -> None:
        """Assign the elements with these numbers."""
        if at.size:
            flat = StanArray((self.size,), self.integer, reshape(self.whole(), (-1,)))
            flat.write([at], value)
            self.write([], reshape(flat.whole(), self.shape))

    def copy(self) -> StanArray:
        """An array of its own that now holds the same."""
        made = StanArray.__new__(StanArray)
        made.__dict__.update(self.__dict__)
        made.value = np.array(self.value) if isinstance(self.value, np.ndarray) else self.value
        if self._pieces is not None:
            made._pieces, made._owner, made._place = list(self._pieces), self._owner.copy(), self._place.copy()
        return made

    def _own(self, value: Value) -> Value:
        if isinstance(value, Tensor):
            return spread(value, self.shape)
        return np.array(np.broadcast_to(value, self.shape), np.int64 if self.integer else np.float64)

    def whole(self) -> Value:
        """The array."""
        if self._pieces is None:
            return self.value
        return reshape(self.join(np.arange(self.size)), self.shape)

    def read(self, index: Sequence[Index]) -> Value:
        """The elements at an index of the first axes."""
        if self._pieces is None:
            return take(self.value, index)
        at = self.flat(index)
        if isinstance(at, INTS):
            piece, place = self._piece(self._owner[at]), int(self._place[at])
            return piece if not shape(piece) else number(piece[place])
        return reshape(self.join(at.reshape(-1)), at.shape)

    def write(self, index: Sequence[Index], value: Value) -> None:
        """Assign elements."""
        self.state = object()
        if all(isinstance(each, slice) and each == slice(None) for each in index):
            self.value, self._pieces = self._own(value), None
            return
        if self._pieces is None and known(value, self.value):
            if all(isinstance(each, (slice, *INTS)) for each in index):
                self.value[tuple(index)] = value
            else:
                np.put(self.value, self.flat(index), np.broadcast_to(value, np.shape(self.flat(index))))
            return
        if self._pieces is None:
            self._start(reshape(self.value, (self.size,)))
        pieces = self.pieces()
        at = self.flat(index)
        many = not isinstance(at, INTS)
        self._owner[at] = len(pieces)
        if many:
            self._place[at] = np.arange(at.size).reshape(at.shape)
        pieces.append(reshape(spread(real(value), at.shape), (-1,)) if many else real(value))

    def flat(self, index: Sequence[Index]) -> Any:
        """The numbers of elements in row-major order: one, or an array of the shape that the index selects."""
        if len(index) == len(self.shape) and all(isinstance(each, INTS) for each in index):
            found = 0
            for each, count in zip(index, self.shape):
                found = found * count + int(each)
            return found
        return np.asarray(take(np.arange(self.size).reshape(self.shape), index))

    @property
    def known(self) -> bool:
        """True if no element is a tensor."""
        return known(*self.pieces())

    def pieces(self) -> list[Value]:
        """The values that elements come from."""
        return [self.value] if self._pieces is None else self._pieces

    def _piece(self, owner: int) -> Value:
        """A piece.

        Raises:
            RefusedError: its elements have not been assigned.
        """
        piece = self.pieces()[owner]
        if piece is None:
            raise RefusedError("an element is read in a turn before the turn assigns it")
        return piece

    def join(self, at: Any) -> Value:
        """The elements with these numbers, flat."""
        if self._pieces is None:
            return take(reshape(self.value, (-1,)), [_run(at)])
        before = self._last
        count = 0 if before is None or before.graph is not get_default_graph() else before.at.size
        if before is not None and 0 < at.size <= count and self._stands(before, at):
            return before.value[: at.size]
        if before is not None and 0 < count < at.size and self._stands(before, at[:count]):
            found = concat([before.value, self._join(at[count:])])
        else:
            found = self._join(at)
        if isinstance(found, Tensor):
            self._last = _JoinedElements(get_default_graph(), at, self._owner[at], self._place[at], found)
        return found

    def _stands(self, before: _JoinedElements, at: Any) -> bool:
        """True if the first elements that were joined before are these, and come from where they did."""
        pairs = ((at, before.at), (self._owner[at], before.owner), (self._place[at], before.place))
        return all(np.array_equal(mine, theirs[: at.size]) for mine, theirs in pairs)

    def _join(self, at: Any) -> Value:
        """The elements with these numbers, joined of their pieces."""
        if not at.size:
            return np.zeros(0)
        owner, place = self._owner[at], self._place[at]
        order = np.argsort(owner, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(owner[order])) + 1)
        groups.sort(key=lambda group: int(group[0]))  # pieces in the order in which they are met
        pieces = [self._piece(owner[group[0]]) for group in groups]
        if len(groups) == at.size and all(shape(piece) == () for piece in pieces):
            return stack(pieces)
        parts = [
            spread(piece, group.shape) if shape(piece) == () else take(piece, [_run(place[group])])
            for group, piece in zip(groups, pieces)
        ]
        position = np.empty(at.size, np.int64)
        position[np.concatenate(groups)] = np.arange(at.size)
        return take(concat(parts), [_run(position)])


def _run(at: Any) -> Index:
    """Numbers as a slice, if they are consecutive."""
    return slice(int(at[0]), int(at[0]) + at.size) if at.size and np.array_equal(at, at[0] + np.arange(at.size)) else at


def boxed(value: Value, integer: bool | None = None) -> Any:
    """A value as variables hold it: an array of elements, or a number."""
    if not isinstance(value, (Tensor, np.ndarray)) or not ndim(value):
        return number(value)
    whole = isinstance(value, np.ndarray) and value.dtype.kind in "iu"
    return StanArray(shape(value), whole if integer is None else integer, value)


def within(index: Sequence[tuple[str, Any]], sizes: Sequence[int], name: Any) -> list[Index]:
    """Stan's index of the first axes of an array, from 1 on, as NumPy's.

    Raises:
        StaticGradError: it is out of range.
    """
    if len(index) > len(sizes):
        raise StaticGradError(f"stan: {name} has {len(sizes)} axes, the index {len(index)}")
    found: list[Index] = []
    for (kind, args), count in zip(index, sizes):
        at: Index = slice(None)
        low, high = 1, count
        if kind == "IndexSingle" and np.ndim(args[0]) == 0:
            low = high = int(args[0])
            at = low - 1
        elif kind in ("IndexSingle", "IndexMulti"):
            numbers = np.asarray(args[0], np.int64)
            low, high = (int(numbers.min()), int(numbers.max())) if numbers.size else (1, count)
            at = _run(numbers - 1)
        elif kind in ("IndexUpfrom", "IndexDownfrom", "IndexBetween"):
            low = 1 if kind == "IndexDownfrom" else int(args[0])
            high = count if kind == "IndexUpfrom" else int(args[-1])
            at = slice(low - 1, high)
            if low > high:
                at, low, high = slice(0, 0), 1, count
        elif kind != "IndexAll":
            raise RefusedError(f"an index of the kind {kind}")
        if low < 1 or high > count:
            raise StaticGradError(
                f"stan: an index of {name} is out of range: expected 1 to {count}, actual {low} to {high}"
            )
        found.append(at)
    return found
