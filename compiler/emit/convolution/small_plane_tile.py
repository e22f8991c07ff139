"""The functions of depthwise convolutions over small planes: all pixels of one channel, read where they lie.

Input: a ``SmallPlaneTile``, of planes whose rows fit a vector or two. Output: the name of a function of the module,
emitted once however many kernels use it, which does what those of ``plane_tile`` do:

    forward   void @tile(ptr x, ptr w, ptr y)      y[p, q] = Σ_{i, j} x[p, q; i, j]·w[i, j]
    weights   void @tile(ptr x, ptr s, ptr y)      s[i, j] += Σ_{p, q} x[p, q; i, j]·y[p, q]     a vector of sums each

Several rows of the result share a vector, far from each other, so that the next vector needs what this one has read:
with rows of half a vector, row p lies beside row p + ⌈rows/2⌉. Each row of x is loaded once, whole; a shuffle brings
what a tap reads of several rows in order, with zeros for what lies outside, and serves all vectors of the result
whose taps meet there. Nothing is framed. Of a transpose with a stride, where phases of a row are done apart, a shuffle
makes a row of the result.

With 3 × 3 taps and 7 × 7 pixels the floor is 36 multiply-adds for four vectors of the result; 18 shuffles run beside
them, on a unit of their own.
"""

from __future__ import annotations

import functools

import numpy as np

from staticgrad.compiler.emit import masked
from staticgrad.compiler.emit.convolution.plane_tile import below, meetings, store_first
from staticgrad.compiler.emit.lanes import joined
from staticgrad.compiler.emit.llvm import Function, Value, memory_type, vector
from staticgrad.compiler.emit.microkernel import multiply_add
from staticgrad.compiler.plans.convolution.small_plane_tile import SmallPlaneTile, row_lanes
from staticgrad.compiler.plans.convolution.taps import Taps
from staticgrad.compiler.plans.tiles import tile_lanes


def call_small_plane_tile(f: Function, tile: SmallPlaneTile, x: Value, w: Value, y: Value) -> None:
    """Call the function for ``tile``."""
    stem = f"small_plane.{tile.kind}.{tile.dtype.name}.{tile.size[0]}x{tile.size[1]}"
    f.call_leaf(stem, _write_small_plane_tile, (tile,), x, w, y)


def _write_small_plane_tile(f: Function, tile: SmallPlaneTile) -> None:
    _SmallPlaneTileWriter(f, tile).write()


class _LoadedRows:
    """The rows of a plane, loaded when first asked for; those outside are zeros."""

    def __init__(self, f: Function, dtype: np.dtype, base: Value, row: int, size: tuple[int, int]) -> None:
        self.f, self.base, self.row, self.size = f, base, row, size
        self.element = memory_type(dtype)
        self.lanes = row_lanes(size[1])
        self.type = vector(self.element, self.lanes)
        self.load = functools.cache(self._load)
        self.beside = functools.cache(self._beside)

    def inside(self, number: int) -> bool:
        return 0 <= number < self.size[0]

    def _load(self, number: int) -> Value:
        if not self.inside(number):
            return self.f.const(0, self.type)
        at = self.f.offset(self.base, number * self.row, self.element)
        if self.size[1] == self.lanes:
            return self.f.load(self.type, at)
        return masked.load(self.f, self.type, at, below(self.size[1], range(self.lanes)))

    def _beside(self, numbers: tuple[int, ...], columns: tuple[int, ...]) -> Value:
        """A vector with these columns of each of some rows."""
        f, width, rows = self.f, self.size[1], [self.load(number) for number in numbers]
        while len(rows) > 2:
            rows = [joined(f, pair) for pair in zip(rows[::2], rows[1::2], strict=True)]
        inside = [0 <= column < width for column in columns]
        zero = width if width < self.lanes else 0  # a lane past the pixels of a row, where there are any
        lanes = [column if is_inside else zero for column, is_inside in zip(columns, inside, strict=True)]
        order = [group * self.lanes + lane for group in range(len(numbers)) for lane in lanes]
        value = f.shuffle(rows[0], rows[1] if len(rows) == 2 else None, order)
        if zero or all(inside):
            return value
        return f.select(below(1, [int(not is_inside) for is_inside in inside] * len(numbers)), value,
                        f.const(0, value.type))  # fmt: skip


class _SmallPlaneTileWriter:
    """Writes one function."""

    def __init__(self, f: Function, tile: SmallPlaneTile) -> None:
        self.f, self.tile = f, tile
        x, self.w, self.y = f.params
        self.element = memory_type(tile.dtype)
        self.lanes = tile_lanes(f.target, tile.dtype)
        self.type = vector(self.element, self.lanes)
        self.pitch = tile.pitch
        self.x = _LoadedRows(f, tile.dtype, x, tile.x_row, tile.size)

    def write(self) -> None:
        if self.tile.kind == "weights":
            self._weights()
        else:
            for vertical, numbers in self.tile.rows().items():
                self._forward(vertical, numbers)

    def _vectors(self, vertical: Taps) -> int:
        """The number of vectors that the rows of a phase fill."""
        return -(-vertical.count // (self.lanes // self.pitch))

    def _numbers(self, vertical: Taps, first: int, step: int) -> tuple[int, ...]:
        """The rows beside each other, from the first one on; ``step`` is what lies between two of the phase."""
        apart = self._vectors(vertical) * step
        return tuple(first + group * apart for group in range(self.lanes // self.pitch))

    def _read(self, taps: tuple[Taps, Taps], row: int, j: int) -> Value | None:
        """The elements that tap j of a filter row reads, where the first row of the result reads this one; None if only
        zeros."""
        (vertical, horizontal), (top, left) = taps, self.tile.offset
        numbers = self._numbers(vertical, row + vertical.origin - top, vertical.step)
        if not any(map(self.x.inside, numbers)):
            return None
        first = horizontal.origin - left + j * horizontal.dilation
        columns = (first + q * horizontal.step if q < horizontal.count else -1 for q in range(self.pitch))
        return self.x.beside(numbers, tuple(columns))

    def _forward(self, vertical: Taps, numbers: list[int]) -> None:
        """The rows of one vertical phase."""
        f, vectors = self.f, self._vectors(vertical)
        sums = {(t, number): f.const(0, self.type) for t in range(vectors) for number in numbers}
        weight = functools.cache(self._weight)
        for row, pairs in meetings(vectors, vertical.number, vertical.step, vertical.dilation).items():
            for number in numbers:
                taps = self.tile.phases[number]
                for j in range(taps[1].number):
                    value = self._read(taps, row, j)
                    if value is None:
                        continue
                    for t, i in pairs:
                        total = sums[t, number]
                        sums[t, number] = multiply_add(f, self.tile.dtype, value, weight(number, i, j), total)
        for t in range(vectors):
            self._store(vertical, t, [sums[t, number] for number in numbers])

    def _weight(self, number: int, i: int, j: int) -> Value:
        """The weight of a tap of a phase, in all lanes."""
        start, down, across = self.tile.weights[number]
        at = self.f.offset(self.w, start + i * down + j * across, self.element)
        return self.f.factor(self.element, at, self.lanes)

    def _store(self, vertical: Taps, t: int, phases: list[Value]) -> None:
        """Rows of the result, of whose pixels the phases have every first or second."""
        f, tile = self.f, self.tile
        for group, row in enumerate(self._numbers(vertical, t, 1)):
            if row >= vertical.count:
                continue
            lanes = range(group * self.pitch, (group + 1) * self.pitch)
            order = [lane + number * self.lanes for lane in lanes for number in range(len(phases))]
            value = f.shuffle(phases[0], phases[1] if len(phases) == 2 else None, order)
            at = f.offset(self.y, (vertical.first + row * vertical.spacing) * tile.y_row, self.element)
            store_first(f, value, at, tile.width)

    def _weights(self) -> None:
        f, tile = self.f, self.tile
        ((vertical, horizontal),) = tile.phases
        kh, kw = vertical.number, horizontal.number
        at = {(i, j): f.offset(self.w, (i * kw + j) * self.lanes, self.element) for i in range(kh) for j in range(kw)}
        sums = {tap: f.load(self.type, pointer) for tap, pointer in at.items()}
        y = _LoadedRows(f, tile.dtype, self.y, tile.y_row, (vertical.count, tile.width))
        for row, pairs in meetings(self._vectors(vertical), kh, vertical.step, vertical.dilation).items():
            for j in range(kw):
                value = self._read((vertical, horizontal), row, j)
                if value is None:
                    continue
                for t, i in pairs:
                    given = y.beside(self._numbers(vertical, t, 1), tuple(range(self.pitch)))
                    total = multiply_add(f, tile.dtype, value, given, sums[i, j])
                    sums[i, j] = self._where_given(vertical, t, total, sums[i, j])
        for tap, pointer in at.items():
            f.store(sums[tap], pointer)

    def _where_given(self, vertical: Taps, t: int, total: Value, before: Value) -> Value:
        """Select ``total`` for rows that the result has, else ``before``: other rows may hold anything, which must not
        meet a zero."""
        rows = self._numbers(vertical, t, 1)
        if rows[-1] < vertical.count:
            return total
        return self.f.select(below(vertical.count, [row for row in rows for _ in range(self.pitch)]), total, before)
