"""Sorting rows of the same length side by side, in LLVM IR: each lane of a vector sorts a row of its own.

The rows are transposed, so that a vector holds one element of each; then vectors are compared and exchanged in an order
that depends on the length alone: merge exchange (Batcher, AFIPS 1968; Knuth, The Art of Computer Programming, 5.2.2,
Algorithm M). Short rows stay in registers. The order is made stable by words that are all different: where indices are
wanted, a key of 32 bits and its index are the halves of one word, and one of 64 bits has its index beside it. Rows of
an open length are taken by the network of the next of a few lengths, with words past their ends that come last, or in
memory by their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from staticgrad.base.extents import highest, is_open, lowest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.lanes import counted
from staticgrad.compiler.emit.llvm import (
    Function,
    Index,
    Value,
    element_of,
    integer,
    lanes_of,
    memory_type,
    suffix,
    vector,
)
from staticgrad.compiler.emit.nest.tiles import Tiles
from staticgrad.compiler.kernels.routines import Sort
from staticgrad.compiler.plans.routines.networks import NetworkScratch

IN_REGISTERS = 16  # elements of rows that are exchanged in registers
AT_ONCE = 4  # pairs that are compared at once
SIZES = (2, 4, 6, 8, 12)  # of networks in registers, of which rows of an open length take the first that is enough
INT64 = np.dtype(np.int64)

Words = list[Value]  # of one element of each row: its key, and its index where that is apart


# -- keys -------------------------------------------------------------------------------------------------------------


def key_of(f: Function, routine: Sort, x: Value, *, joined: bool) -> Value:
    """The keys of elements, of their width; ``joined`` zeros have one key."""
    bits, dtype = 8 * routine.dtype.itemsize, routine.dtype
    type_ = vector(f"i{bits}", lanes_of(x.type))
    top, ones = f.const(-(1 << (bits - 1)), type_), f.const(-1, type_)
    if dtype.kind == "f":
        if joined:
            x = f.binary("fadd", x, f.const(0.0, x.type))  # -0 becomes 0
        word = f.cast("bitcast", x, f"i{bits}")
        negative = f.binary("ashr", word, f.const(bits - 1, type_))
        key = f.binary("xor", word, f.binary("or", negative, top))
        key = f.select(f.compare("fcmp uno", x, x), ones, key)
    else:
        key = f.binary("xor", x, top) if dtype.kind == "i" else x
    return f.binary("xor", key, ones) if routine.descending else key


def value_of(f: Function, routine: Sort, key: Value) -> Value:
    """The elements of keys."""
    dtype, bits = routine.dtype, 8 * routine.dtype.itemsize
    top, ones = f.const(-(1 << (bits - 1)), key.type), f.const(-1, key.type)
    if routine.descending:
        key = f.binary("xor", key, ones)
    if dtype.kind == "f":
        positive = f.binary("ashr", key, f.const(bits - 1, key.type))
        key = f.binary("xor", key, f.binary("or", f.binary("xor", positive, ones), top))
        return f.cast("bitcast", key, memory_type(dtype))
    return f.binary("xor", key, top) if dtype.kind == "i" else key


def with_index(f: Function, key: Value, index: Value) -> Value:
    """Words of 64 bits, which are all different: keys of 32 bits above indices."""
    wide = f.cast("zext", key, "i64")
    return f.binary("or", f.binary("shl", wide, f.const(32, wide.type)), index)


def index_of(f: Function, word: Value) -> Value:
    """The indices in words."""
    return f.binary("and", word, f.const((1 << 32) - 1, word.type))


def signed(f: Function, key: Value) -> Value:
    """Signed words in the order of unsigned keys, and back: they are compared with less on every target."""
    bits = int(element_of(key.type)[1:])
    return f.binary("xor", key, f.const(-(1 << (bits - 1)), key.type))


# -- the network ------------------------------------------------------------------------------------------------------


def merge_exchange(length: int) -> Iterator[tuple[int, int]]:
    """The pairs that are compared and exchanged in turn, so that ``length`` elements are in order."""
    top = 1 << ((length - 1).bit_length() - 1)
    for s in range(top.bit_length()):
        p = top >> s
        for k in range(s + 1):
            distance, rest = (p, 0) if k == 0 else ((top >> (k - 1)) - p, p)
            for i in range(length - distance):
                if i & p == rest:
                    yield i, i + distance


@frozen
class _Column:
    """The ``Tiles`` of rows of one element, which is a column already."""

    f: Function
    type: str

    def take(self, rows: Value, columns: Value) -> None:
        self.f.store(self.f.load(self.type, rows), columns)

    def give(self, columns: Value, rows: Value) -> None:
        self.take(columns, rows)


def write_rows(f: Function, routine: Sort, found: NetworkScratch, pointers: Sequence[Value]) -> None:
    """Sort ``found.lanes`` rows: the body of ``void(ptr x, [ptr values,] [ptr indices,] ptr scratch)``."""
    _Network(f, routine, found, pointers).write()


class _Network:
    def __init__(self, f: Function, routine: Sort, found: NetworkScratch, pointers: Sequence[Value]) -> None:
        self.f = f
        self.routine = routine
        self.length, self.lanes = routine.length, found.lanes
        self.layout = found
        source, *results, scratch = pointers
        self.source = source
        self.values = results[0] if routine.values else None
        self.indices = results[-1] if routine.indices else None
        self.key = vector(f"i{found.key_bits}", found.lanes)
        self.keys = f.offset(scratch, found.keys, "i8")
        self.apart = f.offset(scratch, found.indices, "i8")
        self.turned = f.offset(scratch, found.turned, "i8")

    def write(self) -> None:
        self._take()
        self._each(self._encode)
        if is_open(self.length):
            self._exchange_some()
        elif self.length <= IN_REGISTERS:
            self._exchange_in_registers(self.length, self.length)
        else:
            self._exchange_in_memory()
        if self.indices is not None:
            self._each(self._to_index)
            self._give(INT64, self.indices)
            if self.values is not None:
                self._pick(self.values, self.indices)
        elif self.values is not None:
            self._each(self._to_value)
            self._give(self.routine.dtype, self.values)

    # -- rows to columns and back -----------------------------------------------------------------------------------

    def _column(self, columns: Value, at: Index, element: str) -> Value:
        return self.f.offset(columns, self.f.mul(at, self.lanes), element)

    def _take(self) -> None:
        element = memory_type(self.routine.dtype)

        def move(tiles: Tiles | _Column, at: Index) -> None:
            tiles.take(self.f.offset(self.source, at, element), self._column(self.turned, at, element))

        self._turn(self.routine.dtype, move)

    def _give(self, dtype: np.dtype, rows: Value) -> None:
        element = memory_type(dtype)

        def move(tiles: Tiles | _Column, at: Index) -> None:
            tiles.give(self._column(self.turned, at, element), self.f.offset(rows, at, element))

        self._turn(dtype, move)

    def _turn(self, dtype: np.dtype, move: Callable[[Tiles | _Column, Index], None]) -> None:
        """``move`` tiles that cover all elements; the last one may repeat some."""
        if is_open(self.length):
            self._turn_some(dtype, move)
            return
        width = min(self.lanes, self.length)
        tiles = Tiles(self.f, dtype, self.lanes, width, self.length)
        whole = self.length - self.length % width
        with counted(self.f, 0, whole, width) as loop:
            move(tiles, loop.index)
        if whole < self.length:
            move(tiles, self.length - width)

    def _turn_some(self, dtype: np.dtype, move: Callable[[Tiles | _Column, Index], None]) -> None:
        """``_turn`` of rows of an open length: of those that are shorter than a tile two of half the width cover all
        elements, or of a quarter, and so on."""
        f, length, width = self.f, self.length, self.lanes
        while width > 1:
            tiles = Tiles(f, dtype, self.lanes, width, length)
            if highest(length) >= width == self.lanes:
                with counted(f, 0, length // width * width, width) as loop:
                    move(tiles, loop.index)
                over = f.compare("icmp ne", f.index(length % width), integer(0))
                with f.when(f.binary("and", over, f.compare("icmp sgt", f.index(length), integer(width)))):
                    move(tiles, length - width)
            elif highest(length) >= width and lowest(length) < 2 * width:
                fits = f.compare("icmp sge", f.index(length), integer(width))
                with f.when(f.binary("and", fits, f.compare("icmp slt", f.index(length), integer(2 * width)))):
                    move(tiles, 0)
                    move(tiles, length - width)
            width //= 2
        if lowest(length) <= 1:
            with f.when(f.compare("icmp eq", f.index(length), integer(1))):
                move(_Column(f, vector(memory_type(dtype), self.lanes)), 0)

    def _each(self, write: Callable[[Index], None]) -> None:
        with counted(self.f, 0, self.length) as loop:
            write(loop.index)

    def _encode(self, at: Index) -> None:
        f = self.f
        element = memory_type(self.routine.dtype)
        value = f.load(vector(element, self.lanes), self._column(self.turned, at, element))
        key = key_of(f, self.routine, value, joined=self.routine.indices)
        if self.routine.indices:
            index = f.splat(f.int64(at), self.lanes)
            if self.layout.paired:
                f.store(index, self._column(self.apart, at, "i64"))
            else:
                key = with_index(f, key, index)
        self._store_word(signed(f, key), self.keys, at)

    def _to_index(self, at: Index) -> None:
        f = self.f
        if self.layout.paired:
            index = self._load_word(self.apart, at)
        else:
            index = index_of(f, self._load_word(self.keys, at))
        f.store(index, self._column(self.turned, at, "i64"))

    def _to_value(self, at: Index) -> None:
        f = self.f
        value = value_of(f, self.routine, signed(f, self._load_word(self.keys, at)))
        f.store(value, self._column(self.turned, at, memory_type(self.routine.dtype)))

    def _pick(self, values: Value, indices: Value) -> None:
        """The values at the indices, row by row."""
        f, element = self.f, memory_type(self.routine.dtype)
        with counted(f, 0, self.lanes) as row:
            start = f.mul(row.index, self.length)
            with counted(f, 0, self.length) as loop:
                place = f.add(start, loop.index)
                index = f.load("i64", f.offset(indices, place, "i64"))
                value = f.load(element, f.offset(self.source, f.add(start, index), element))
                f.store(value, f.offset(values, place, element))

    # -- compare and exchange ---------------------------------------------------------------------------------------

    def _load_word(self, words: Value, at: Index) -> Value:
        return self.f.load(self.key, self._column(words, at, f"i{self.layout.key_bits}"))

    def _store_word(self, word: Value, words: Value, at: Index) -> None:
        self.f.store(word, self._column(words, at, f"i{self.layout.key_bits}"))

    def _areas(self) -> list[Value]:
        return [self.keys, self.apart] if self.layout.paired else [self.keys]

    def _load(self, at: Index) -> Words:
        return [self._load_word(area, at) for area in self._areas()]

    def _store(self, words: Words, at: Index) -> None:
        for word, area in zip(words, self._areas(), strict=True):
            self._store_word(word, area, at)

    def _sorted(self, a: Words, b: Words) -> tuple[Words, Words]:
        f = self.f
        if len(a) == 1:
            kinds, name = ("smin", "smax"), suffix(self.key)
            low, high = ([f.intrinsic(f"llvm.{kind}.{name}", self.key, a[0], b[0])] for kind in kinds)
            return low, high
        less = f.compare("icmp slt", b[0], a[0])
        tie = f.binary("and", f.compare("icmp eq", b[0], a[0]), f.compare("icmp slt", b[1], a[1]))
        swap = f.binary("or", less, tie)
        pairs = list(zip(a, b, strict=True))
        return [f.select(swap, y, x) for x, y in pairs], [f.select(swap, x, y) for x, y in pairs]

    def _exchange_some(self) -> None:
        """Rows of an open length: in registers by the network of the next of a few lengths, or else in memory."""
        f, length = self.f, self.length
        if highest(length) > IN_REGISTERS:
            with f.when(f.compare("icmp sgt", f.index(length), integer(1))):
                self._exchange_some_in_memory()
            return
        least = lowest(length)
        for size in [size for size in SIZES if least <= size < highest(length)] + [highest(length)]:
            fits = f.compare("icmp sle", f.index(length), integer(size))
            with f.when(f.binary("and", fits, f.compare("icmp sge", f.index(length), integer(least)))):
                self._exchange_in_registers(size, least)
            least = size + 1

    def _exchange_in_registers(self, size: int, least: int) -> None:
        """Sort ``size`` words; words from the row's end on, of which there may be some from ``least`` on, are last."""
        f = self.f
        rows = [self._load(at) for at in range(size)]
        for at in range(least, size):
            there = f.compare("icmp sgt", f.index(self.length), integer(at))
            rows[at] = [f.select(there, word, self._last(word.type)) for word in rows[at]]
        for i, j in merge_exchange(size):
            rows[i], rows[j] = self._sorted(rows[i], rows[j])
        for at, words in enumerate(rows):
            self._store(words, at)

    def _last(self, type_: str) -> Value:
        """The word that comes after all others."""
        return self.f.const((1 << (int(element_of(type_)[1:]) - 1)) - 1, type_)

    def _exchange_some_in_memory(self) -> None:
        f = self.f
        zeros = f.intrinsic(f"llvm.ctlz.{f.word}", f.word, f.index(self.length - 1), Value("true", "i1"))
        turns = f.binary("sub", f.index(int(f.word[1:])), zeros)
        top = f.binary("shl", f.index(1), f.binary("sub", turns, integer(1)))
        with counted(f, 0, f.sub(turns, 2)) as loop:
            self._merge(top, loop.index, f.binary("lshr", top, loop.index))
        for p in (2, 1):
            with f.when(f.compare("icmp sge", turns, integer(p))):
                self._merge(top, f.sub(turns, p), p)

    def _exchange_in_memory(self) -> None:
        f = self.f
        top = 1 << ((self.length - 1).bit_length() - 1)
        turns = top.bit_length()
        with counted(f, 0, turns - 2) as loop:
            self._merge(top, loop.index, f.binary("lshr", f.index(top), loop.index))
        for s in (turns - 2, turns - 1):
            self._merge(top, s, top >> s)

    def _merge(self, top: Index, s: Index, p: Index) -> None:
        """Pairs ``distance`` apart, of which the first has bit ``p`` as in ``rest``: p apart, then less and less."""
        f = self.f
        with counted(f, 0, f.add(s, 1)) as loop:
            is_first = f.compare("icmp eq", loop.index, integer(0))
            wide = f.binary("lshr", f.index(top), f.index(f.max(f.sub(loop.index, 1), 0)))
            distance = f.select(is_first, f.index(p), f.index(f.sub(wide, p)))
            rest = f.select(is_first, f.index(0), f.index(p))
            end = f.sub(self.length, distance)
            if isinstance(p, int):
                self._pass_of_few(p, rest, distance, end)
            else:
                self._pass(p, rest, distance, end)

    def _pass(self, p: Index, rest: Index, distance: Index, end: Index) -> None:
        """Blocks of ``p`` pairs, a multiple of those that are compared at once."""
        f = self.f
        with f.loop(rest, end, f.mul(p, 2)) as block:
            stop = f.min(f.add(block.index, p), end)
            whole = f.sub(stop, f.binary("and", f.index(f.sub(stop, block.index)), integer(AT_ONCE - 1)))
            with f.loop(block.index, whole, AT_ONCE) as loop:
                self._exchange([f.add(loop.index, i) for i in range(AT_ONCE)], distance)
            with f.loop(whole, stop) as loop:
                self._exchange([loop.index], distance)

    def _pass_of_few(self, p: int, rest: Index, distance: Index, end: Index) -> None:
        """Blocks of fewer pairs: several at once, then pair by pair."""
        f = self.f
        offsets = [i for i in range(2 * AT_ONCE) if not i & p]
        blocks = f.max(f.sub(f.sub(end, offsets[-1]), rest), 0)
        whole = f.add(
            rest, f.mul(f.binary("udiv", f.index(f.add(blocks, 2 * AT_ONCE - 1)), integer(2 * AT_ONCE)), 2 * AT_ONCE)
        )
        with f.loop(rest, whole, 2 * AT_ONCE) as loop:
            self._exchange([f.add(loop.index, i) for i in offsets], distance)
        with f.loop(whole, end) as loop:
            bit = f.binary("and", loop.index, integer(p))
            with f.when(f.compare("icmp eq", bit, f.index(rest))):
                self._exchange([loop.index], distance)

    def _exchange(self, places: Sequence[Index], distance: Index) -> None:
        f = self.f
        others = [f.add(place, distance) for place in places]
        pairs = [self._sorted(self._load(a), self._load(b)) for a, b in zip(places, others, strict=True)]
        for a, b, (low, high) in zip(places, others, pairs, strict=True):
            self._store(low, a)
            self._store(high, b)
