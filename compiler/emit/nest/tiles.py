"""Short rows of which each lane takes one: they are staged through tiles that are transposed in registers.

Where the lanes are rows and the elements of a row lie side by side, a vector of one element of each row is a gather.
Instead a block of rows is read whole, transposed, and kept in scratch memory column by column, where all sweeps find
vectors; what they store goes there too, and is transposed back. Input: a plan whose ``staged`` says for which accesses;
output: IR before and after the sweeps of a block.

Where the size of rows is open, the tiles follow each other in a loop. The last one ends with the row if all rows of the
range fill a tile; else what lies past the row is masked, and its columns hold anything.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from staticgrad.base.extents import is_open, lowest
from staticgrad.compiler.emit import masked
from staticgrad.compiler.emit.lanes import joined, leading_lanes, transposed
from staticgrad.compiler.emit.llvm import Function, Index, Value, memory_type, vector
from staticgrad.compiler.plans.nest.columns import tile_width


class Tiles:
    """Copies ``lanes`` rows of ``size`` elements, ``step`` apart, to columns of ``lanes`` elements side by side, and
    back."""

    def __init__(self, f: Function, dtype: np.dtype, lanes: int, size: int, step: int) -> None:
        self.f = f
        self.element = memory_type(dtype)
        self.lanes = lanes
        self.size = size
        self.step = step
        self.width = tile_width(size, lanes)
        self.is_masked = lowest(size) < self.width

    def take(self, rows: Value, columns: Value) -> None:
        for start in self._starts():
            for j, column in enumerate(self.columns(rows, start)):
                if self._may_hold(start, j):
                    self.f.store(column, self._column(columns, start, j))

    def columns(self, rows: Value, start: Index = 0) -> list[Value]:
        """One tile: the columns that begin at ``start``."""
        mask = self._mask(start)
        tile = [joined(self.f, [self._load(rows, start, r, mask) for r in self._members(i)]) for i in range(self.width)]
        return transposed(self.f, tile)

    def give(self, columns: Value, rows: Value) -> None:
        type_ = vector(self.element, self.lanes)
        for start in self._starts():
            mask = self._mask(start)
            tile = [
                self.f.load(type_, self._column(columns, start, j))
                if self._may_hold(start, j)
                else Value("poison", type_)
                for j in range(self.width)
            ]
            for i, row in enumerate(transposed(self.f, tile)):
                for part, r in enumerate(self._members(i)):
                    self._store(self._part(row, part), rows, start, r, mask)

    def _starts(self) -> Iterator[Index]:
        """The first columns of the tiles; what is written for one that is known only at the call is a loop's body."""
        last = self.size - self.width
        if is_open(self.size):
            with self.f.loop(0, self.size, self.width) as loop:
                yield loop.index if self.is_masked else self.f.min(loop.index, last)
            return
        yield from range(0, max(1, last + 1), self.width)
        if last > 0 and last % self.width:
            yield last  # it repeats a part of the tile before

    def _may_hold(self, start: Index, j: int) -> bool:
        """True if there may be a column ``j`` in the tile."""
        return not isinstance(start, int) or start + j < self.size

    def _members(self, i: int) -> range:
        """The rows that share register ``i``."""
        return range(i, self.lanes, self.width)

    def _column(self, columns: Value, start: Index, j: int) -> Value:
        return self.f.offset(columns, self.f.mul(self.f.add(start, j), self.lanes), self.element)

    def _part(self, row: Value, part: int) -> Value:
        first = part * self.width
        return row if self.width == self.lanes else self.f.shuffle(row, None, range(first, first + self.width))

    def _mask(self, start: Index) -> Value | None:
        """The columns of a tile that are inside; None where all are."""
        if not self.is_masked:
            return None
        return leading_lanes(self.f, self.width, self.f.sub(self.size, start))

    def _load(self, rows: Value, start: Index, row: int, mask: Value | None) -> Value:
        return masked.load(self.f, vector(self.element, self.width), self._element(rows, start, row), mask)

    def _store(self, value: Value, rows: Value, start: Index, row: int, mask: Value | None) -> None:
        masked.store(self.f, value, self._element(rows, start, row), mask)

    def _element(self, rows: Value, start: Index, row: int) -> Value:
        return self.f.offset(rows, self.f.add(self.f.mul(row, self.step), start), self.element)
