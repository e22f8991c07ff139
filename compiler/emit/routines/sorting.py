"""Stable sorting of one row, in LLVM IR, without a comparison of floats and without a branch that depends on values.

Elements become *keys*: unsigned integers in the order wanted, NaN the largest (in descending order the first). Short
rows are sorted by rank: how many keys are smaller, or equal and earlier, is counted for a vector of elements at a time.
Long rows are sorted by partitions (``quicksort``) where the target has instructions for that; others, and those of
which too many partitions are uneven, by the digits of their keys, the last first (Knuth, The Art of Computer
Programming, 5.2.5); a digit that all keys share is passed over. Where indices are wanted, zeros of both signs are
equal; values that are sorted alone in long rows come with -0 before 0. Many rows are sorted side by side
(``networks``). Rows of an open length are sorted as the longest of them are, whose scratch memory they have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from staticgrad.base.extents import highest, is_open
from staticgrad.compiler.emit.lanes import Lanes, counted, strips
from staticgrad.compiler.emit.llvm import Function, Index, Value, integer, lanes_of, memory_type, vector
from staticgrad.compiler.emit.routines import networks, quicksort
from staticgrad.compiler.kernels.routines import Sort
from staticgrad.compiler.machine.modes import took
from staticgrad.compiler.plans.routines import partitions
from staticgrad.compiler.plans.routines.networks import NetworkScratch
from staticgrad.compiler.plans.routines.sorting import BUCKETS, DIGIT, RowSort, side_by_side, sort_alone

FEW = 8  # a part of the rows that are sorted side by side: so few are sorted alone
COMPARED = 4  # vectors of which each key is compared with at once
COUNT = "i32"


def _groups(vectors: int) -> list[tuple[int, int, int]]:
    """Vectors [first, stop) in groups of ``count``: the last group takes the remainder. Of an open number groups of
    half as many and so on take it; there may be none of some."""
    if is_open(vectors):
        groups, at, count = [], 0, COMPARED
        while count:
            if highest(vectors) >= count:
                end = vectors // count * count
                groups.append((at, end, count))
                at = end
            count //= 2
        return groups
    whole = vectors - vectors % COMPARED
    groups = [(0, whole, COMPARED), (whole, vectors, vectors - whole)]
    return [group for group in groups if group[0] < group[1]]


def write(f: Function, routine: Sort, pointers: Sequence[Value]) -> None:
    """The body of ``void(ptr x, [ptr values,] [ptr indices,] ptr scratch)``."""
    _Sorter(f, routine, sort_alone(routine, f.target), pointers).write()


# -- rows side by side ------------------------------------------------------------------------------------------------


def write_together(f: Function, routine: Sort, pointers: Sequence[Value], count: Value) -> None:
    """The body of ``void(ptr x, [ptr values,] [ptr indices,] ptr scratch, i64 count)`` of ``count`` rows one after the
    other. The last ones, where they are fewer than are sorted side by side, are copied to where there is room behind
    them; very few are sorted alone."""
    found = side_by_side(routine, f.target)
    assert found is not None
    took("sort: rows side by side")
    group, alone = _group_function(f, routine, found), _row_function(f, routine)
    *rows, scratch = pointers

    def at(row: Value) -> list[Value]:
        return [
            f.offset(pointer, f.mul(row, block.elements), memory_type(block.dtype))
            for pointer, block in zip(rows, routine.blocks, strict=True)
        ]

    left = f.binary("urem", count, integer(found.lanes))
    whole = f.binary("sub", count, left)
    with counted(f, 0, whole, found.lanes) as loop:
        f.call(group, "void", *at(loop.index), scratch)

    def copied() -> Sequence[Value]:
        room = [f.offset(scratch, place, "i8") for place in found.room]
        for number, (block, own, here) in enumerate(zip(routine.blocks, room, at(whole), strict=True)):
            if number == 1:
                f.call(group, "void", *room, scratch)
            source, target = (here, own) if number == 0 else (own, here)
            word, words = f"i{8 * block.dtype.itemsize}", f.mul(left, block.elements)
            with counted(f, 0, words) as loop:
                f.store(f.load(word, f.offset(source, loop.index, word)), f.offset(target, loop.index, word))
        return []

    def one_by_one() -> Sequence[Value]:
        with counted(f, whole, count) as loop:
            f.call(alone, "void", *at(loop.index), scratch)
        return []

    few = f.compare("icmp sle", left, integer(found.lanes // FEW))
    f.choose(few, one_by_one, copied)


def _group_function(caller: Function, routine: Sort, found: NetworkScratch) -> str:
    """The function of rows side by side."""
    f = _opened(caller, routine, "group")
    networks.write_rows(f, routine, found, f.params)
    return f.finish()


def _row_function(caller: Function, routine: Sort) -> str:
    """The function of a row alone. Few rows are: less code counts for more than the time of partitions."""
    f = _opened(caller, routine, "alone")
    _Sorter(f, routine, sort_alone(routine, f.target).without_partitions, f.params).write()
    return f.finish()


def _opened(caller: Function, routine: Sort, name: str) -> Function:
    return caller.module.function(caller.module.unique(f"{caller.name}.{name}"), ["ptr"] * (len(routine.blocks) + 1))


# -- one row ----------------------------------------------------------------------------------------------------------


class _Sorter:
    def __init__(self, f: Function, routine: Sort, plan: RowSort, pointers: Sequence[Value]) -> None:
        self.f = f
        self.routine = routine
        self.plan = plan
        self.length = routine.length
        self.element = memory_type(routine.dtype)
        self.key = f"i{plan.key_bits}"
        source, *results = pointers[:-1]
        self.source = source
        self.values = results[0] if routine.values else None
        self.indices = results[-1] if routine.indices else None
        self.scratch = pointers[-1]

    def write(self) -> None:
        plan = self.plan
        took("sort: by rank", plan.by_rank)
        took("sort: by partitions", plan.words is not None)
        took("sort: by digits", plan.by_digits)
        if plan.by_rank:
            self._by_rank()
        elif plan.words is not None:
            self._by_partitions(plan.words)
        else:
            self._by_digits()

    def _at(self, nbytes: int) -> Value:
        return self.f.offset(self.scratch, nbytes, "i8")

    # -- keys -----------------------------------------------------------------------------------------------------

    def _encode(self, keys: Value) -> None:
        f = self.f

        def strip(first: Index, pieces: list[Lanes]) -> None:
            for number, piece in enumerate(pieces):
                place = f.add(first, number * f.target.lanes(self.routine.dtype))
                key = self._key_of(piece.load(f, f.offset(self.source, place, self.element)))
                Lanes(key.type, piece.mask).store(f, key, f.offset(keys, place, self.key))

        strips(f, self.routine.dtype, self.length, 1, strip)

    def _key_of(self, x: Value) -> Value:
        key = networks.key_of(self.f, self.routine, x, joined=self.routine.indices or self.plan.by_rank)
        bits = 8 * self.routine.dtype.itemsize
        return key if bits == self.plan.key_bits else self.f.cast("zext", key, self.key)

    # -- short rows -------------------------------------------------------------------------------------------------

    def _by_rank(self) -> None:
        f, length = self.f, self.length
        keys, ranks = self._at(self.plan.keys[0]), self._at(self.plan.places[0])
        self._encode(keys)
        lanes = f.target.lanes(np.dtype(f"u{self.plan.key_bits // 8}"))
        vectors = -(-length // lanes)
        for first, stop, count in _groups(vectors):
            with counted(f, first * lanes, stop * lanes, count * lanes) as group:
                for number, rank in enumerate(self._ranks(keys, group.index, lanes, count)):
                    f.store(rank, f.offset(ranks, f.add(group.index, number * lanes), self.key))
        with counted(f, 0, length) as loop:
            rank = f.load(self.key, f.offset(ranks, loop.index, self.key))
            place = rank if self.key == "i64" else f.cast("zext", rank, "i64")
            if self.values is not None:
                value = f.load(self.element, f.offset(self.source, loop.index, self.element))
                f.store(value, f.offset(self.values, place, self.element))
            if self.indices is not None:
                f.store(f.int64(loop.index), f.offset(self.indices, place, "i64"))

    def _ranks(self, keys: Value, first: Index, lanes: int, count: int) -> list[Value]:
        """For each key of some neighbouring vectors how many come before it; those beyond the row give anything."""
        f = self.f
        type_ = vector(self.key, lanes)
        mine = [f.load(type_, f.offset(keys, f.add(first, v * lanes), self.key)) for v in range(count)]

        def compare(low: Index, high: Index, totals: Sequence[Value], own: int) -> Sequence[Value]:
            """Count the keys ``[low, high)``, which are of vector ``own``: of equal keys the earlier comes first."""
            with counted(f, low, high, carry=totals) as loop:
                other = f.splat(f.load(self.key, f.offset(keys, loop.index, self.key)), lanes)
                before = [f.compare("icmp ule" if own < v else "icmp ult", other, key) for v, key in enumerate(mine)]
                if 0 <= own < count:
                    lane = f.resized(f.binary("sub", loop.index, f.index(low)), "i32")
                    earlier = f.compare("icmp slt", f.splat(lane, lanes), f.lane_numbers(vector("i32", lanes)))
                    same = f.compare("icmp eq", other, mine[own])
                    before[own] = f.binary("or", before[own], f.binary("and", earlier, same))
                following = zip(loop.carried, before, strict=True)
                loop.next(*(f.binary("add", total, f.cast("zext", found, self.key)) for total, found in following))
            return loop.results

        totals = compare(0, first, [f.const(0, type_)] * count, -1)
        for own in range(count):
            low = f.add(first, own * lanes)
            totals = compare(low, f.min(f.add(low, lanes), self.length), totals, own)
        end = f.min(f.add(first, count * lanes), self.length)
        return list(compare(end, self.length, totals, count))

    # -- long rows, by partitions -----------------------------------------------------------------------------------

    def _by_partitions(self, dtype: np.dtype) -> None:
        f, length = self.f, self.length
        words, spare, stack = (self._at(number * self.plan.words_bytes) for number in range(3))
        self._each(words, dtype, self._to_words)
        work = partitions.work(f.target, dtype, length)
        left = f.call(quicksort.sorter(f.module, dtype), "i64", words, spare, stack, length, work)

        def by_digits() -> list[Value]:
            self._by_digits()
            return []

        def finish() -> list[Value]:
            self._each(words, dtype, self._of_words)
            if self.routine.indices and self.routine.values:
                self._pick()
            return []

        f.choose(f.compare("icmp slt", left, integer(0)), by_digits, finish)

    def _each(self, words: Value, dtype: np.dtype, move: Callable[[Index, Lanes, Lanes, Value], None]) -> None:
        """``move`` elements and words: the index of the first, their lanes, and where the words are."""
        f = self.f
        lanes, word = f.target.lanes(dtype), f"i{8 * dtype.itemsize}"

        def strip(first: Index, pieces: list[Lanes]) -> None:
            for number, piece in enumerate(pieces):
                place = f.add(first, number * lanes)
                elements = Lanes(vector(self.element, lanes_of(piece.type)), piece.mask)
                move(place, elements, piece, f.offset(words, place, word))

        strips(f, dtype, self.length, 1, strip)

    def _to_words(self, first: Index, elements: Lanes, piece: Lanes, words: Value) -> None:
        f = self.f
        key = networks.key_of(
            f, self.routine, elements.load(f, f.offset(self.source, first, self.element)), joined=self.routine.indices
        )
        if self.routine.indices:
            index = f.binary("add", piece.splat(f, f.index(first)), f.lane_numbers(piece.type))
            key = networks.with_index(f, key, index)
        piece.store(f, networks.signed(f, key), words)

    def _of_words(self, first: Index, elements: Lanes, piece: Lanes, words: Value) -> None:
        f = self.f
        word = piece.load(f, words)
        if self.routine.indices:
            assert self.indices is not None
            piece.store(f, networks.index_of(f, word), f.offset(self.indices, first, "i64"))
        else:
            assert self.values is not None
            value = networks.value_of(f, self.routine, networks.signed(f, word))
            elements.store(f, value, f.offset(self.values, first, self.element))

    def _pick(self) -> None:
        """The values at the indices."""
        f = self.f
        assert self.values is not None
        assert self.indices is not None
        with counted(f, 0, self.length) as loop:
            place = f.load("i64", f.offset(self.indices, loop.index, "i64"))
            value = f.load(self.element, f.offset(self.source, place, self.element))
            f.store(value, f.offset(self.values, loop.index, self.element))

    # -- long rows, by digits -----------------------------------------------------------------------------------------

    def _by_digits(self) -> None:
        f = self.f
        keys = [self._at(place) for place in self.plan.keys]
        places = [self._at(place) for place in self.plan.places]
        self._encode(keys[0])
        if self.routine.indices:
            with counted(f, 0, self.length) as loop:
                f.store(f.resized(loop.index, "i32"), f.offset(places[0], loop.index, "i32"))
        self._count(keys[0])
        now = [keys[0], keys[1], places[0], places[1]]
        for digit in range(self.plan.key_bits // DIGIT):
            now = self._pass(digit, now)
        self._finish(now[0], now[2])

    def _counts(self, digit: int) -> Value:
        return self._at(self.plan.counts + 4 * BUCKETS * digit)

    def _digit(self, key: Value, digit: int) -> Value:
        f = self.f
        wide = key if self.key == "i64" else f.cast("zext", key, "i64")
        moved = f.binary("lshr", wide, integer(DIGIT * digit)) if digit else wide
        return f.binary("and", moved, integer(BUCKETS - 1))

    def _count(self, keys: Value) -> None:
        f, digits = self.f, range(self.plan.key_bits // DIGIT)
        with counted(f, 0, BUCKETS * len(digits)) as loop:
            f.store(integer(0, COUNT), f.offset(self._counts(0), loop.index, COUNT))
        with counted(f, 0, self.length) as loop:
            key = f.load(self.key, f.offset(keys, loop.index, self.key))
            for digit in digits:
                place = f.offset(self._counts(digit), self._digit(key, digit), COUNT)
                f.store(f.binary("add", f.load(COUNT, place), integer(1, COUNT)), place)

    def _pass(self, digit: int, now: list[Value]) -> list[Value]:
        """Sort by one digit from the first keys and places into the second; which are exchanged, unless all keys
        have the same digit."""
        f = self.f
        counts = self._counts(digit)
        first = self._digit(f.load(self.key, now[0]), digit)
        count = f.load(COUNT, f.offset(counts, first, COUNT))
        if is_open(self.length):
            same = f.compare("icmp eq", count, f.resized(f.index(self.length), COUNT))
        else:
            same = f.compare("icmp eq", count, integer(self.length, COUNT))

        def move() -> Sequence[Value]:
            self._starts(counts)
            keys, new_keys, places, new_places = now
            with counted(f, 0, self.length) as loop:
                key = f.load(self.key, f.offset(keys, loop.index, self.key))
                counter = f.offset(counts, self._digit(key, digit), COUNT)
                target = f.load(COUNT, counter)
                f.store(f.binary("add", target, integer(1, COUNT)), counter)
                target = f.cast("zext", target, "i64")
                f.store(key, f.offset(new_keys, target, self.key))
                if self.routine.indices:
                    f.store(f.load("i32", f.offset(places, loop.index, "i32")), f.offset(new_places, target, "i32"))
            return [new_keys, keys, new_places, places]

        return f.choose(same, lambda: now, move)

    def _starts(self, counts: Value) -> None:
        """Counts become the place of the first key of each bucket."""
        f = self.f
        with counted(f, 0, BUCKETS, carry=[integer(0, COUNT)]) as loop:
            place = f.offset(counts, loop.index, COUNT)
            count = f.load(COUNT, place)
            f.store(loop.carried[0], place)
            loop.next(f.binary("add", loop.carried[0], count))

    def _finish(self, keys: Value, places: Value) -> None:
        f = self.f
        if not self.routine.indices:
            self._decode(keys)
            return
        with counted(f, 0, self.length) as loop:
            place = f.cast("zext", f.load("i32", f.offset(places, loop.index, "i32")), "i64")
            if self.indices is not None:
                f.store(place, f.offset(self.indices, loop.index, "i64"))
            if self.values is not None:
                value = f.load(self.element, f.offset(self.source, place, self.element))
                f.store(value, f.offset(self.values, loop.index, self.element))

    def _decode(self, keys: Value) -> None:
        f, values = self.f, self.values
        assert values is not None

        def strip(first: Index, pieces: list[Lanes]) -> None:
            for number, piece in enumerate(pieces):
                place = f.add(first, number * f.target.lanes(self.routine.dtype))
                type_ = vector(self.key, lanes_of(piece.type))
                value = networks.value_of(
                    f, self.routine, Lanes(type_, piece.mask).load(f, f.offset(keys, place, self.key))
                )
                piece.store(f, value, f.offset(values, place, self.element))

        strips(f, self.routine.dtype, self.length, 1, strip)
