"""The functions of depthwise convolutions over planes: some rows of one channel, vectors along the pixels of a row.

Input: a ``PlaneTile``, which says how the plane that is read lies in its frame and which taps a pixel sums. Output: the
name of a function of the module, emitted once however many kernels use it:

    forward   void @tile(ptr x, ptr w, ptr y)      y[p, q] = Σ_{i, j} x[p, q; i, j]·w[i, j]
    weights   void @tile(ptr x, ptr s, ptr y)      s[i, j] += Σ_{p, q} x[p, q; i, j]·y[p, q]     a vector of sums each

``x`` is framed with zeros, and the frame is wide enough that whole vectors may be read; with a stride along the row
its pixels are dealt out to as many rows beside each other (``frame_rows``), so that what a tap reads is contiguous
again. ``phases`` are the pixels with equal remainders of a transpose with a stride, each with taps of its own: one
vector of each makes as many vectors of the result, by a shuffle.

A few rows of the result share the rows that they read. With 3 × 3 taps and four rows 18 loads serve 36 multiply-adds:
the arithmetic is 18 cycles for four vectors of the result, the loads, two thirds of which cross a cache line, are 15.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from staticgrad.compiler.emit import masked
from staticgrad.compiler.emit.lanes import Lanes, first_lanes, prefetch
from staticgrad.compiler.emit.llvm import Function, Index, Value, element_of, integer, lanes_of, memory_type, vector
from staticgrad.compiler.emit.microkernel import multiply_add
from staticgrad.compiler.emit.parallel import quotient
from staticgrad.compiler.plans.chunks import powers_of_two
from staticgrad.compiler.plans.convolution.plane_tile import PlaneTile
from staticgrad.compiler.plans.tiles import tile_lanes

_Sums = dict[tuple[int, int], Value]  # by filter row and tap


def meetings(rows: int, taps: int, step: int, dilation: int) -> dict[int, list[tuple[int, int]]]:
    """For each row that is read by ``rows`` rows of a result, the rows t and the taps i that meet there."""
    found: dict[int, list[tuple[int, int]]] = {}
    for t in range(rows):
        for i in range(taps):
            found.setdefault(t * step + i * dilation, []).append((t, i))
    return dict(sorted(found.items()))


def call_plane_tile(f: Function, tile: PlaneTile, x: Value, w: Value, y: Value) -> None:
    """Call the function for ``tile``."""
    stem = f"plane.{tile.kind}.{tile.dtype.name}.{tile.rows}x{tile.width}"
    f.call_leaf(stem, _write_plane_tile, (tile,), x, w, y)


def _write_plane_tile(f: Function, tile: PlaneTile) -> None:
    writer = _ForwardTile if tile.kind == "forward" else _WeightTile
    writer(f, tile).write()


def below(limit: int, numbers: Sequence[int]) -> Value:
    """A mask of the numbers, one for each lane, that are below a limit."""
    bits = ", ".join(f"i1 {int(number < limit)}" for number in numbers)
    return Value(f"<{bits}>", vector("i1", len(numbers)))


def store_first(f: Function, value: Value, at: Value, count: int) -> None:
    """Store the first ``count`` lanes: where masked stores are no instructions, in pieces of a power of two."""
    lanes, done = lanes_of(value.type), 0
    if count >= lanes:
        f.store(value, at)
    elif f.target.isa.predicated:
        masked.store(f, value, at, below(count, range(lanes)))
    else:
        element = element_of(value.type)
        for size in powers_of_two(count):
            piece = f.shuffle(value, None, range(done, done + size)) if size > 1 else f.extract(value, done)
            f.store(piece, f.offset(at, done, element))
            done += size


class _PlaneTileWriter:
    """The base of the writers of both kinds of tiles: the function, and vectors or single pixels of a row."""

    def __init__(self, f: Function, tile: PlaneTile) -> None:
        self.f, self.tile = f, tile
        self.x, self.w, self.y = f.params
        self.element = memory_type(tile.dtype)
        self.lanes = tile_lanes(f.target, tile.dtype)
        self.type = vector(self.element, self.lanes)

    @property
    def spacing(self) -> int:
        return len(self.tile.phases)

    @property
    def whole(self) -> int:
        """The number of whole vectors of each phase."""
        return self.tile.width // (self.lanes * self.spacing)


class _ForwardTile(_PlaneTileWriter):
    def write(self) -> None:
        f, tile, some, weights = self.f, self.tile, self.tile.together, self._weights()
        with f.loop(0, tile.rows, some) as group:
            p = f.min(group.index, tile.rows - some)  # the last rows are done twice where they are not enough
            x = f.offset(self.x, f.mul(p, tile.step * tile.x_row), self.element)
            y = f.offset(self.y, f.mul(p, tile.y_row), self.element)
            if self.whole:
                with f.loop(0, self.whole * self.lanes, self.lanes) as column:
                    self._vectors(weights, f.offset(x, column.index, self.element), y, column.index, None)
            done = self.whole * self.lanes
            if left := tile.width - done * self.spacing:
                self._vectors(weights, f.offset(x, integer(done), self.element), y, integer(done), left)

    def _weights(self) -> dict[tuple[int, int, int], Value]:
        """The weight of tap (i, j) of each phase."""
        f, found = self.f, {}
        for h, (row, offsets) in enumerate(self.tile.weights):
            for i in range(self.tile.taps):
                for j, offset in enumerate(offsets):
                    found[h, i, j] = f.load(self.element, f.offset(self.w, i * row + offset, self.element))
        return {key: f.splat(weight, self.lanes) for key, weight in found.items()}

    def _sums(self, weights: dict[tuple[int, int, int], Value], x: Value) -> list[list[Value]]:
        """For each row and phase the sum over all taps, of a vector of pixels."""
        f, tile = self.f, self.tile
        sums = [[f.const(0, self.type)] * self.spacing for _ in range(tile.together)]
        for row, pairs in meetings(tile.together, tile.taps, tile.step, tile.dilation).items():
            line = f.offset(x, row * tile.x_row, self.element)
            values: dict[int, Value] = {}
            for h in range(self.spacing):
                for j, at in enumerate(tile.phases[h]):
                    if at not in values:
                        values[at] = f.load(self.type, f.offset(line, at, self.element))
                    for t, i in pairs:
                        sums[t][h] = multiply_add(f, tile.dtype, values[at], weights[h, i, j], sums[t][h])
        return sums

    def _vectors(
        self, weights: dict[tuple[int, int, int], Value], x: Value, y: Value, column: Value, left: int | None
    ) -> None:
        """A vector of each phase of all rows, or the ``left`` pixels that are left of a row."""
        f, tile = self.f, self.tile
        sums = self._sums(weights, x)
        for t, phases in enumerate(sums):
            line = f.offset(y, f.add(t * tile.y_row, f.mul(column, self.spacing)), self.element)
            for number, value in enumerate(_dealt_back(f, phases, self.lanes)):
                at = f.offset(line, number * self.lanes, self.element)
                count = self.lanes if left is None else min(self.lanes, left - number * self.lanes)
                if count > 0:
                    store_first(f, value, at, count)


def _dealt_back(f: Function, phases: list[Value], lanes: int) -> list[Value]:
    """The vectors whose pixels are those of one or two phases by turns."""
    if len(phases) == 1:
        return phases
    first, second = phases
    pixels = [pixel // 2 + lanes * (pixel % 2) for pixel in range(2 * lanes)]
    return [f.shuffle(first, second, line) for line in (pixels[:lanes], pixels[lanes:])]


class _WeightTile(_PlaneTileWriter):
    def write(self) -> None:
        f, tile, some = self.f, self.tile, self.tile.together
        places = [(i, j) for i in range(tile.taps) for j in range(len(tile.phases[0]))]
        at = {place: f.offset(self.w, number * self.lanes, self.element) for number, place in enumerate(places)}
        sums = {place: f.load(self.type, at[place]) for place in places}
        whole = tile.rows - tile.rows % some
        with f.loop(0, whole, some, carry=list(sums.values())) as group:
            group.next(*self._band(group.index, dict(zip(sums, group.carried)), some).values())
        sums = dict(zip(sums, group.results))
        if tile.rows > whole:
            sums = self._band(whole, sums, tile.rows - whole)
        for place, value in sums.items():
            f.store(value, at[place])

    def _band(self, first: Index, sums: _Sums, rows: int) -> _Sums:
        """The sums with the products of a few whole rows added."""
        f, tile, done = self.f, self.tile, self.whole * self.lanes
        x = f.offset(self.x, f.mul(first, tile.step * tile.x_row), self.element)
        y = f.offset(self.y, f.mul(first, tile.y_row), self.element)
        if done:
            with f.loop(0, done, self.lanes, carry=list(sums.values())) as column:
                at = [f.offset(base, column.index, self.element) for base in (x, y)]
                some = dict(zip(sums, column.carried))
                column.next(*self._rows(at[0], at[1], some, rows, Lanes(self.type)).values())
            sums = dict(zip(sums, column.results))
        if tile.width > done:
            # Outside of a row there may be anything, which must not meet a zero.
            rest = Lanes(self.type, below(tile.width - done, range(self.lanes)))
            x, y = (f.offset(base, done, self.element) for base in (x, y))
            sums = self._rows(x, y, sums, rows, rest)
        return sums

    def _rows(self, x: Value, y: Value, sums: _Sums, rows: int, lanes: Lanes) -> _Sums:
        """The sums with the products of one vector of each of some rows added."""
        f, tile, sums = self.f, self.tile, dict(sums)
        given = [lanes.load(f, f.offset(y, t * tile.y_row, self.element)) for t in range(rows)]
        for row, pairs in meetings(rows, tile.taps, tile.step, tile.dilation).items():
            line = f.offset(x, row * tile.x_row, self.element)
            for j, at in enumerate(tile.phases[0]):
                value = lanes.load(f, f.offset(line, at, self.element))
                for t, i in pairs:
                    sums[i, j] = multiply_add(f, tile.dtype, value, given[t], sums[i, j])
        return sums


# -- frames -----------------------------------------------------------------------------------------------------


def frame_rows(f: Function, dtype: np.dtype, deals: int, *operands: Index, exact: bool = False) -> None:
    """Bring rows of an image into a frame: ``(to, other, to_row, source, source_row, rows, columns, ahead)``.

    The lines ``ahead`` elements after those that are read, which the next frame needs, are prefetched.

    With ``deals`` 2 the pixels of a row go to ``to`` and ``other`` by turns. Whole vectors are written: zeros follow
    what is left of a row, for which the frame has room. Where it has none, ``exact`` writes only the pixels that go to
    ``to``, and prefetches nothing.
    """
    stem = f"frame.{dtype.name}.{deals}{'.exact' * exact}"
    f.call_leaf(stem, _write_frame_rows, (dtype, deals, exact), *operands)


def _write_frame_rows(f: Function, dtype: np.dtype, deals: int, exact: bool) -> None:
    to, other, to_row, source, source_row, rows, columns, ahead = f.params
    element, lanes = memory_type(dtype), tile_lanes(f.target, dtype)
    vectors = Lanes(vector(element, lanes))
    whole = f.binary("and", columns, integer(-lanes * deals))
    order = [range(half, deals * lanes, deals) for half in range(deals)]

    def ask(at: Value) -> None:
        if not exact:
            prefetch(f, f.offset(at, ahead, element), near=False)

    def store(values: list[Value], lines: list[Value], index: Value, some: Lanes = vectors) -> None:
        at = f.binary("lshr", index, integer(deals - 1))
        for half, line in enumerate(lines):
            value = values[0] if deals == 1 else f.shuffle(values[0], values[1], order[half])
            some.store(f, value, f.offset(line, at, element))

    with f.loop(0, rows, carry=[to, other, source]) as row:
        *lines, now = row.carried
        lines = lines[: 1 if exact else deals]
        with f.loop(0, whole, lanes * deals) as main:
            places = [f.offset(now, f.add(main.index, part * lanes), element) for part in range(deals)]
            for at in places:
                ask(at)
            store([vectors.load(f, at) for at in places], lines, main.index)
        ask(f.offset(now, whole, element))
        if f.target.isa.predicated or (f.target.isa.masked_loads and not exact):
            with f.when(f.compare("icmp slt", whole, columns)):
                values = []
                for part in range(deals):
                    some = first_lanes(f, dtype, f.sub(f.sub(columns, whole), part * lanes), lanes)
                    values.append(some.load(f, f.offset(now, f.add(whole, part * lanes), element)))
                if exact:
                    left = quotient(f, f.add(f.sub(columns, whole), deals - 1), deals)
                    store(values, lines, whole, first_lanes(f, dtype, left, lanes))
                else:
                    store(values, lines, whole)
        else:
            with f.loop(whole, columns, deals if exact else 1) as rest:
                value, line, at = f.load(element, f.offset(now, rest.index, element)), lines[0], rest.index
                if len(lines) > 1:
                    odd = f.compare("icmp ne", f.binary("and", at, integer(1)), integer(0))
                    line = f.select(odd, lines[1], line)
                f.store(value, f.offset(line, at if deals == 1 else f.binary("lshr", at, integer(1)), element))
        row.next(
            f.offset(row.carried[0], to_row, element),
            f.offset(row.carried[1], to_row, element),
            f.offset(now, source_row, element),
        )
