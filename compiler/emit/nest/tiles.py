"""Short rows of which each lane takes one: they are staged through tiles that are transposed in registers.

Where the lanes are rows and the elements of a row lie side by side, a vector of one element of each row is a gather.
Instead a block of rows is read whole, transposed, and kept in scratch memory column by column, where all sweeps find
vectors; what they store goes there too, and is transposed back. Input: a plan whose ``staged`` says for which
accesses; output: IR before and behind the sweeps of a block.
"""

from __future__ import annotations

import numpy as np

from staticgrad.compiler.emit.lanes import joined, transposed
from staticgrad.compiler.emit.llvm import Function, Value, memory_type, vector
from staticgrad.compiler.kernels.nest import Access
from staticgrad.extents import largest


class Tiles:
    """Copies ``lanes`` rows of ``size`` elements, ``step`` apart, to columns of ``lanes`` elements side by side, and
    back."""

    def __init__(self, f: Function, dtype: np.dtype, lanes: int, size: int, step: int) -> None:
        self.f = f
        self.element = memory_type(dtype)
        self.lanes = lanes
        self.size = size
        self.step = step
        self.width = min(lanes, 1 << (size - 1).bit_length())  # of a tile
        self.starts = [*range(0, max(1, size - self.width + 1), self.width)]
        if self.starts[-1] + self.width < size:
            self.starts.append(size - self.width)  # it repeats a part of the tile before

    def take(self, rows: Value, columns: Value) -> None:
        for start in self.starts:
            for j, column in enumerate(self.columns(rows, start)[: self.size - start]):
                self.f.store(column, self._column(columns, start + j))

    def columns(self, rows: Value, start: int = 0) -> list[Value]:
        """One tile: the columns that begin at ``start``."""
        tile = [joined(self.f, [self._load(rows, start, r) for r in self._members(i)]) for i in range(self.width)]
        return transposed(self.f, tile)

    def give(self, columns: Value, rows: Value) -> None:
        type_ = vector(self.element, self.lanes)
        for start in self.starts:
            tile = [
                self.f.load(type_, self._column(columns, start + j))
                if start + j < self.size
                else Value("poison", type_)
                for j in range(self.width)
            ]
            for i, row in enumerate(transposed(self.f, tile)):
                for part, r in enumerate(self._members(i)):
                    self._store(self._part(row, part), rows, start, r)

    def _members(self, i: int) -> range:
        """The rows that share register ``i``."""
        return range(i, self.lanes, self.width)

    def _column(self, columns: Value, j: int) -> Value:
        return self.f.offset(columns, j * self.lanes, self.element)

    def _part(self, row: Value, part: int) -> Value:
        first = part * self.width
        return row if self.width == self.lanes else self.f.shuffle(row, None, range(first, first + self.width))

    def _mask(self) -> Value | None:
        if self.width <= self.size:
            return None
        bits = ", ".join(f"i1 {str(i < self.size).lower()}" for i in range(self.width))
        return Value(f"<{bits}>", f"<{self.width} x i1>")

    def _load(self, rows: Value, start: int, row: int) -> Value:
        address, type_ = self.f.offset(rows, row * self.step + start, self.element), vector(self.element, self.width)
        mask = self._mask()
        return self.f.load(type_, address) if mask is None else self.f.masked_load(type_, address, mask)

    def _store(self, value: Value, rows: Value, start: int, row: int) -> None:
        address, mask = self.f.offset(rows, row * self.step + start, self.element), self._mask()
        if mask is None:
            self.f.store(value, address)
        else:
            self.f.masked_store(value, address, mask)


def is_staged(access: Access, vector_dim: int, inner: int) -> bool:
    """True if lanes along ``vector_dim`` are rows whose elements lie side by side along ``inner``."""
    return not access.terms and access.strides[inner] == 1 and largest(access.strides[vector_dim]) > 1
