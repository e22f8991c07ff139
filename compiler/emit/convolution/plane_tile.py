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
from typing import Literal

import numpy as np

from staticgrad.compiler.emit.lanes import first_lanes, powers_of_two, prefetch
from staticgrad.compiler.emit.llvm import Function, IRModule, Value, element_of, lanes_of, memory_type, vector
from staticgrad.compiler.emit.microkernel import multiply_add, tile_lanes
from staticgrad.compiler.emit.target import Target
from staticgrad.frozen import frozen

MOST_ROWS = 4  # of the result at a time
MOST_PRODUCTS = 128  # unrolled for one vector of each row
MOST_TAPS = 64
Kind = Literal["forward", "weights"]
_Sums = dict[tuple[int, int], Value]  # by filter row and tap


@frozen
class PlaneTile:
    """``rows`` × ``width`` pixels of the result; offsets and strides in elements."""

    kind: Kind
    dtype: np.dtype
    rows: int
    width: int
    y_row: int
    x_row: int  # from one row of the frame to the next
    taps: int  # filter rows
    step: int  # rows of the frame from one row of the result to the next
    dilation: int  # from one filter row to the next
    phases: tuple[tuple[int, ...], ...]  # where the taps of a filter row read, for pixels q·phases + number
    weights: tuple[tuple[int, tuple[int, ...]], ...]  # for each phase, of forward: between filter rows, of its taps

    @property
    def together(self) -> int:
        """Rows of the result at a time."""
        taps = max(1, self.taps * sum(map(len, self.phases)))
        return max(1, min(MOST_ROWS, self.rows, MOST_PRODUCTS // taps))


def meetings(rows: int, taps: int, step: int, dilation: int) -> dict[int, list[tuple[int, int]]]:
    """For each row that is read by ``rows`` rows of a result, the rows t and the taps i that meet there."""
    found: dict[int, list[tuple[int, int]]] = {}
    for t in range(rows):
        for i in range(taps):
            found.setdefault(t * step + i * dilation, []).append((t, i))
    return dict(sorted(found.items()))


def suits_tiles(target: Target, kind: Kind, taps: int) -> bool:
    """True if so many taps can be unrolled, and their sums kept in registers."""
    return taps <= (target.isa.registers - MOST_ROWS - 2 if kind == "weights" else MOST_TAPS)


def plane_tile(module: IRModule, tile: PlaneTile) -> str:
    """The name of the function for ``tile`` in ``module``, emitted when first asked for."""
    key = ("plane tile", tile)
    name = module.shared(key)
    if name is not None:
        return name
    stem = f"plane.{tile.kind}.{tile.dtype.name}.{tile.rows}x{tile.width}"
    writer = _ForwardTile if tile.kind == "forward" else _WeightTile
    return module.share(key, writer(module, tile, module.unique(stem)).write())


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
        f.masked_store(value, at, below(count, range(lanes)))
    else:
        element = element_of(value.type)
        for size in powers_of_two(count):
            piece = f.shuffle(value, None, range(done, done + size)) if size > 1 else f.extract(value, done)
            f.store(piece, f.offset(at, done, element))
            done += size


class _PlaneTileWriter:
    """The base of the writers of both kinds of tiles: the function, and vectors or single pixels of a row."""

    def __init__(self, module: IRModule, tile: PlaneTile, name: str) -> None:
        self.tile = tile
        self.f: Function = module.function(name, ("ptr", "ptr", "ptr"))
        self.x, self.w, self.y = self.f.params
        self.element = memory_type(tile.dtype)
        self.lanes = tile_lanes(module.target, tile.dtype)
        self.type = vector(self.element, self.lanes)

    @property
    def spacing(self) -> int:
        return len(self.tile.phases)

    @property
    def whole(self) -> int:
        """The number of whole vectors of each phase."""
        return self.tile.width // (self.lanes * self.spacing)


class _ForwardTile(_PlaneTileWriter):
    def write(self) -> str:
        f, tile = self.f, self.tile
        weights = self._weights()
        some = tile.together
        with f.loop(0, tile.rows, some) as group:
            p = f.min(group.index, tile.rows - some)  # the last rows are done twice where they are not enough
            x = f.offset(self.x, f.mul(p, tile.step * tile.x_row), self.element)
            y = f.offset(self.y, f.mul(p, tile.y_row), self.element)
            if self.whole:
                with f.loop(0, self.whole * self.lanes, self.lanes) as column:
                    self._vectors(weights, f.offset(x, column.index, self.element), y, column.index, None)
            done = self.whole * self.lanes
            left = tile.width - done * self.spacing
            if left:
                last = Value(str(done), "i64")
                self._vectors(weights, f.offset(x, last, self.element), y, last, left)
        return f.finish()

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
    lines = [[half * lanes // 2 + lane // 2 + lanes * (lane % 2) for lane in range(lanes)] for half in range(2)]
    return [f.shuffle(first, second, line) for line in lines]


class _WeightTile(_PlaneTileWriter):
    def write(self) -> str:
        f, tile = self.f, self.tile
        (offsets,) = tile.phases
        places = [(i, j) for i in range(tile.taps) for j in range(len(offsets))]
        at = {place: f.offset(self.w, number * self.lanes, self.element) for number, place in enumerate(places)}
        sums = {place: f.load(self.type, at[place]) for place in places}
        for place, value in self._plane(sums).items():
            f.store(value, at[place])
        return f.finish()

    def _plane(self, sums: _Sums) -> _Sums:
        """The sums with the products of all rows added."""
        f, tile, some = self.f, self.tile, self.tile.together
        whole, rest = tile.rows - tile.rows % some, tile.rows % some
        with f.loop(0, whole, some, carry=list(sums.values())) as group:
            x = f.offset(self.x, f.mul(group.index, tile.step * tile.x_row), self.element)
            y = f.offset(self.y, f.mul(group.index, tile.y_row), self.element)
            group.next(*self._band(x, y, dict(zip(sums, group.carried)), some).values())
        sums = dict(zip(sums, group.results))
        if not rest:
            return sums
        x = f.offset(self.x, whole * tile.step * tile.x_row, self.element)
        return self._band(x, f.offset(self.y, whole * tile.y_row, self.element), sums, rest)

    def _band(self, x: Value, y: Value, sums: _Sums, rows: int) -> _Sums:
        """The sums with the products of a few whole rows added."""
        f, done = self.f, self.whole * self.lanes
        if done:
            with f.loop(0, done, self.lanes, carry=list(sums.values())) as column:
                at = [f.offset(base, column.index, self.element) for base in (x, y)]
                column.next(*self._rows(at[0], at[1], dict(zip(sums, column.carried)), rows, None).values())
            sums = dict(zip(sums, column.results))
        if self.tile.width == done:
            return sums
        x, y = (f.offset(base, done, self.element) for base in (x, y))
        return self._rows(x, y, sums, rows, below(self.tile.width - done, range(self.lanes)))

    def _rows(self, x: Value, y: Value, sums: _Sums, rows: int, mask: Value | None) -> _Sums:
        """The sums with the products of one vector of each of some rows added."""
        f, tile = self.f, self.tile
        sums = dict(sums)

        def load(at: Value) -> Value:
            """Load a vector, under the mask: outside of this row there may be anything, which must not meet a zero."""
            return f.load(self.type, at) if mask is None else f.masked_load(self.type, at, mask)

        given = [load(f.offset(y, t * tile.y_row, self.element)) for t in range(rows)]
        for row, pairs in meetings(rows, tile.taps, tile.step, tile.dilation).items():
            line = f.offset(x, row * tile.x_row, self.element)
            for j, at in enumerate(tile.phases[0]):
                value = load(f.offset(line, at, self.element))
                for t, i in pairs:
                    sums[i, j] = multiply_add(f, tile.dtype, value, given[t], sums[i, j])
        return sums


# -- frames -----------------------------------------------------------------------------------------------------


def frame_rows(module: IRModule, dtype: np.dtype, deals: int) -> str:
    """``(to, other, to_row, source, source_row, rows, columns, ahead)``: rows of an image into a frame.

    The lines ``ahead`` elements behind those that are read, which the next frame needs, are prefetched.

    With ``deals`` 2 the pixels of a row go to ``to`` and ``other`` by turns. Whole vectors are written: zeros follow
    what is left of a row, for which the frame has room.
    """
    key = ("frame rows", dtype, deals)
    name = module.shared(key)
    if name is not None:
        return name
    stem = f"frame.{dtype.name}.{deals}"
    f = module.function(module.unique(stem), ("ptr", "ptr", "i64", "ptr", "i64", "i64", "i64", "i64"))
    to, other, to_row, source, source_row, rows, columns, ahead = f.params
    element, lanes = memory_type(dtype), tile_lanes(module.target, dtype)
    type_ = vector(element, lanes)
    step = Value(str(-lanes * deals), "i64")
    whole = f.binary("and", columns, step)
    order = [range(half, deals * lanes, deals) for half in range(deals)]

    def store(values: list[Value], lines: list[Value], index: Value) -> None:
        at = f.binary("lshr", index, Value(str(deals - 1), "i64"))
        for half, line in enumerate(lines):
            value = values[0] if deals == 1 else f.shuffle(values[0], values[1], order[half])
            f.store(value, f.offset(line, at, element))

    with f.loop(0, rows, carry=[to, other, source]) as row:
        *lines, now = row.carried
        lines = lines[:deals]
        with f.loop(0, whole, lanes * deals) as main:
            places = [f.offset(now, f.add(main.index, part * lanes), element) for part in range(deals)]
            for at in places:
                prefetch(f, f.offset(at, ahead, element), near=False)
            store([f.load(type_, at) for at in places], lines, main.index)
        prefetch(f, f.offset(f.offset(now, whole, element), ahead, element), near=False)
        if f.target.isa.masked_loads:
            with f.when(f.compare("icmp slt", whole, columns)):
                values = []
                for part in range(deals):
                    some = first_lanes(f, dtype, f.sub(f.sub(columns, whole), part * lanes), lanes)
                    values.append(some.load(f, f.offset(now, f.add(whole, part * lanes), element)))
                store(values, lines, whole)
        else:
            with f.loop(whole, columns) as rest:
                value = f.load(element, f.offset(now, rest.index, element))
                if deals == 1:
                    f.store(value, f.offset(lines[0], rest.index, element))
                else:
                    odd = f.compare("icmp ne", f.binary("and", rest.index, Value("1", "i64")), Value("0", "i64"))
                    line = f.select(odd, lines[1], lines[0])
                    f.store(value, f.offset(line, f.binary("lshr", rest.index, Value("1", "i64")), element))
        row.next(
            f.offset(row.carried[0], to_row, element),
            f.offset(row.carried[1], to_row, element),
            f.offset(now, source_row, element),
        )
    return module.share(key, f.finish())
