"""The functions of depthwise convolutions: some pixels of one row, all channels.

Input: a ``RowTile``, which says what taps of a filter row reach each pixel inside the image. Output: the name of a
function of the module, emitted once however many kernels use it:

    void @tile(ptr x, i64 x_row, i64 x_pixel, ptr w, i64 w_tap, ptr y, i64 y_pixel, i64 rows, i64 channels)

Channels are contiguous everywhere. ``x`` is where tap 0 of pixel 0 would be read, ``x_row`` elements from one filter
row's pixels to the next one's; ``w`` holds ``[rows][taps]`` of channels, ``w_tap`` elements apart.

    forward   y[t, c] = Σ_{i < rows} Σ_{j reaches t} x[i, t·step + j·dilation, c]·w[i, j, c]
    weights   w[i, j, c] += Σ_{t reached by j} x[i, t·step + j·dilation, c]·y[t, c]      i < rows

What lies outside the image is not read: no image needs a frame of zeros. An element of x is loaded once for the taps
that meet it, so that with 3 taps and 8 pixels 10 + 3 loads serve 24 multiply-adds: the arithmetic is the floor, two
vectors a cycle.
"""

from __future__ import annotations

from staticgrad.compiler.emit.lanes import Lanes, prefetch, vector_parts
from staticgrad.compiler.emit.llvm import Function, Index, Value, memory_type
from staticgrad.compiler.emit.microkernel import multiply_add
from staticgrad.compiler.plans.convolution.row_tile import RowTile
from staticgrad.compiler.plans.tiles import tile_lanes


def call_row_tile(f: Function, tile: RowTile, *operands: Index) -> None:
    """Call the function for ``tile``."""
    stem = f"row.{tile.kind}.{tile.dtype.name}.{tile.pixels}x{tile.taps}"
    f.call_leaf(stem, _write_row_tile, (tile,), *operands)


def _write_row_tile(f: Function, tile: RowTile) -> None:
    _RowTileWriter(f, tile).write()


class _RowTileWriter:
    """Writes one function."""

    def __init__(self, f: Function, tile: RowTile) -> None:
        self.f, self.tile = f, tile
        self.x, self.x_row, self.x_pixel, self.w, self.w_tap = f.params[:5]
        self.y, self.y_pixel, self.rows, self.channels = f.params[5:]
        self.element = memory_type(tile.dtype)
        self.lanes = tile_lanes(f.target, tile.dtype)
        self.some = Lanes(self.element)

    def write(self) -> None:
        f, tile = self.f, self.tile
        body = self._forward if tile.kind == "forward" else self._weights
        rest = None if tile.ragged else 0
        vectors = tile.vectors
        for part in vector_parts(f, tile.dtype, self.channels, lanes=self.lanes, at_once=vectors, rest=rest):
            with part.turns() as (loop, self.some):
                body(loop.index, vectors)
            vectors = 1

    # -- memory -------------------------------------------------------------------------------------------------

    def _load(self, base: Value, number: int) -> Value:
        return self.some.load(self.f, self.f.offset(base, number * self.lanes, self.element))

    def _store(self, value: Value, base: Value, number: int) -> None:
        self.some.store(self.f, value, self.f.offset(base, number * self.lanes, self.element))

    def _pixels(self, base: Value, pitch: Value, numbers: list[int]) -> dict[int, Value]:
        """The addresses of some pixels, each from the one before."""
        found, last, at = {}, 0, base
        for number in numbers:
            at = self.f.offset(at, self.f.mul(pitch, number - last), self.element)
            last = number
            found[number] = at
        return found

    def _taps(self, base: Value) -> list[Value]:
        """The addresses of the taps of a filter row."""
        return list(self._pixels(base, self.w_tap, list(range(self.tile.taps))).values())

    def _row_of_weights(self) -> Index:
        return self.f.mul(self.w_tap, self.tile.taps)

    def _fetch_rows(self, below: Value, columns: list[int]) -> None:
        """Prefetch the rows of x that the next row of y needs besides: a step of them, which is mostly square."""
        for _ in range(self.tile.step):
            for at in self._pixels(below, self.x_pixel, columns).values():
                prefetch(self.f, at)
            below = self.f.offset(below, self.x_row, self.element)

    # -- the two sums -------------------------------------------------------------------------------------------

    def _forward(self, channel: Value, vectors: int) -> None:
        f, tile = self.f, self.tile
        x, w, y = (f.offset(pointer, channel, self.element) for pointer in (self.x, self.w, self.y))
        meet = tile.columns()
        used = {j for pairs in meet.values() for _, j in pairs}
        zero = f.const(0, self.some.type)
        with f.loop(0, self.rows, carry=[x, w, *[zero] * (tile.pixels * vectors)]) as loop:
            x_now, w_now, *sums = loop.carried
            taps = self._taps(w_now)
            weights = {(j, v): self._load(taps[j], v) for j in sorted(used) for v in range(vectors)}
            for column, at in self._pixels(x_now, self.x_pixel, list(meet)).items():
                for v in range(vectors):
                    value = self._load(at, v)
                    for t, j in meet[column]:
                        s = t * vectors + v
                        sums[s] = multiply_add(f, tile.dtype, value, weights[j, v], sums[s])
            following = f.offset(w_now, self._row_of_weights(), self.element)
            loop.next(f.offset(x_now, self.x_row, self.element), following, *sums)
        self._fetch_rows(loop.results[0], list(meet))
        for t, at in self._pixels(y, self.y_pixel, list(range(tile.pixels))).items():
            for v in range(vectors):
                self._store(loop.results[2 + t * vectors + v], at, v)

    def _weights(self, channel: Value, vectors: int) -> None:
        f, tile = self.f, self.tile
        x, w, y = (f.offset(pointer, channel, self.element) for pointer in (self.x, self.w, self.y))
        meet = tile.columns()
        used = sorted({j for pairs in meet.values() for _, j in pairs})
        pixels = self._pixels(y, self.y_pixel, list(range(tile.pixels)))
        given = {(t, v): self._load(at, v) for t, at in pixels.items() for v in range(vectors)}
        with f.loop(0, self.rows, carry=[x, w]) as loop:
            x_now, w_now = loop.carried
            taps = self._taps(w_now)
            sums = {(j, v): self._load(taps[j], v) for j in used for v in range(vectors)}
            for column, at in self._pixels(x_now, self.x_pixel, list(meet)).items():
                for v in range(vectors):
                    value = self._load(at, v)
                    for t, j in meet[column]:
                        sums[j, v] = multiply_add(f, tile.dtype, value, given[t, v], sums[j, v])
            for (j, v), value in sums.items():
                self._store(value, taps[j], v)
            following = f.offset(w_now, self._row_of_weights(), self.element)
            loop.next(f.offset(x_now, self.x_row, self.element), following)
        self._fetch_rows(loop.results[0], list(meet))
