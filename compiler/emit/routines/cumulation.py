"""Running sums, products, extremes and recurrences of one piece, in LLVM IR.

Rows of more than one element: a strip of columns stays in registers while the rows go by. A single column of sums or
products: a register is combined with itself, moved by one lane, two, four, …, and with what came before it (Hillis and
Steele, CACM 1986), so a turn takes one dependent operation. A single column of a recurrence goes one by one.

Many short columns that lie one after the other are run as one, of which registers hold ends and beginnings: what a move
would take from another column is replaced by what changes nothing. So it is at run time for columns of an
open length, by the number of each element in its column.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from staticgrad.base.extents import highest, is_open, lowest, proven
from staticgrad.compiler.emit.lanes import Lanes, counted, first_lanes, row_strips, strips
from staticgrad.compiler.emit.llvm import Function, Index, Value, integer, memory_type, suffix, vector
from staticgrad.compiler.emit.nest.reduction import combine, starting
from staticgrad.compiler.kernels.nest import ReduceKind
from staticgrad.compiler.kernels.routines import Cumulation
from staticgrad.compiler.plans.routines.cumulation import run_together

MOST_VECTORS = 4  # of a strip


def write(f: Function, routine: Cumulation, pointers: Sequence[Value]) -> None:
    """The body of ``void(ptr operands…, ptr result, ptr scratch)``."""
    if routine.width == 1 and routine.kind != "recurrence":
        _line(f, routine, routine.kind, pointers[0], pointers[1])
    else:
        _columns(f, routine, pointers)


def _place(routine: Cumulation, turn: Index, f: Function) -> Index:
    return f.sub(routine.length - 1, turn) if routine.reverse else turn


# -- many columns ---------------------------------------------------------------------------------------------------


def _columns(f: Function, routine: Cumulation, pointers: Sequence[Value]) -> None:
    element = memory_type(routine.dtype)
    operands, result = pointers[: len(routine.blocks) - 1], pointers[len(routine.blocks) - 1]
    first = 0.0 if routine.kind == "recurrence" else starting(routine.kind, routine.dtype)

    def strip(column: Index, pieces: list[Lanes]) -> None:
        with counted(f, 0, routine.length, carry=[f.const(first, p.type) for p in pieces]) as loop:
            row = f.add(f.mul(_place(routine, loop.index, f), routine.width), column)
            following = []
            for number, (piece, state) in enumerate(zip(pieces, loop.carried, strict=True)):
                place = f.add(row, number * f.target.lanes(routine.dtype))
                loaded = [piece.load(f, f.offset(operand, place, element)) for operand in operands]
                following.append(_advance(f, routine, state, loaded))
                piece.store(f, following[-1], f.offset(result, place, element))
            loop.next(*following)

    strips(f, routine.dtype, routine.width, MOST_VECTORS, strip)


def _advance(f: Function, routine: Cumulation, state: Value, loaded: Sequence[Value]) -> Value:
    if routine.kind != "recurrence":
        return combine(f, routine.kind, routine.dtype, state, loaded[0])
    factor, term = loaded
    if routine.dtype.kind == "f":
        return f.fma(factor, state, term)
    return f.binary("add", f.binary("mul", factor, state), term)


# -- a single column ------------------------------------------------------------------------------------------------


def _line(f: Function, routine: Cumulation, kind: ReduceKind, source: Value, target: Value) -> None:
    dtype, lanes = routine.dtype, f.target.lanes(routine.dtype)
    element = memory_type(dtype)
    type_ = vector(element, lanes)
    full = routine.length // lanes * lanes
    neutral, state = (f.const(starting(kind, dtype), t) for t in (type_, element))
    with counted(f, 0, full, lanes, carry=[state]) as loop:
        place = f.sub(routine.length - lanes, loop.index) if routine.reverse else loop.index
        within = _prefixes(f, dtype, kind, f.load(type_, f.offset(source, place, element)), neutral, routine.reverse)
        spread = f.splat(loop.carried[0], lanes)
        f.store(combine(f, kind, dtype, spread, within), f.offset(target, place, element))
        total = f.extract(within, 0 if routine.reverse else lanes - 1)
        loop.next(combine(f, kind, dtype, loop.carried[0], total))
    if f.target.isa.predicated and not proven(lambda: full == routine.length):
        left = first_lanes(f, dtype, routine.length - full)
        place = 0 if routine.reverse else full
        loaded = left.load(f, f.offset(source, place, element))
        assert left.mask is not None
        within = _prefixes(f, dtype, kind, f.select(left.mask, loaded, neutral), neutral, routine.reverse)
        total = combine(f, kind, dtype, f.splat(loop.results[0], lanes), within)
        left.store(f, total, f.offset(target, place, element))
        return
    with counted(f, full, routine.length, carry=loop.results) as rest:
        place = f.index(_place(routine, rest.index, f))
        value = combine(f, kind, dtype, rest.carried[0], f.load(element, f.offset(source, place, element)))
        f.store(value, f.offset(target, place, element))
        rest.next(value)


def _prefixes(f: Function, dtype: np.dtype, kind: ReduceKind, value: Value, neutral: Value, reverse: bool) -> Value:
    """Each lane combined with all before it (after it, in reverse)."""
    lanes = f.target.lanes(dtype)
    step = 1
    while step < lanes:
        moves = range(step, lanes + step) if reverse else range(lanes - step, 2 * lanes - step)
        moved = f.shuffle(value, neutral, moves) if reverse else f.shuffle(neutral, value, moves)
        value = combine(f, kind, dtype, moved, value)
        step *= 2
    return value


# -- many short columns ---------------------------------------------------------------------------------------------


def write_together(f: Function, routine: Cumulation, pointers: Sequence[Value], count: Value) -> None:
    """The body of ``void(ptr operand, ptr result, ptr scratch, i64 count)`` of ``count`` columns one after the other.
    The last ones, where they are fewer than are run together, are copied to where there is room after them."""
    source, target = pointers[:2]
    if is_open(routine.length):
        _OpenColumns(f, routine, source, target, count).write()
        return
    columns, element = run_together(routine, f.target), memory_type(routine.dtype)
    size = columns * routine.length
    before, after = (f.stack(size * routine.dtype.itemsize) for _ in range(2))
    whole = f.binary("sub", count, f.binary("urem", count, Value(str(columns), "i64")))
    with counted(f, 0, whole, columns) as loop:
        place = f.mul(loop.index, routine.length)
        _together(f, routine, f.offset(source, place, element), f.offset(target, place, element), size)
    place = f.mul(whole, routine.length)
    left = f.mul(f.sub(count, whole), routine.length)

    def copy(here: Value, there: Value) -> None:
        def strip(first: Index, pieces: list[Lanes]) -> None:
            for number, piece in enumerate(pieces):
                at = f.add(first, number * f.target.lanes(routine.dtype))
                piece.store(f, piece.load(f, f.offset(here, at, element)), f.offset(there, at, element))

        row_strips(f, routine.dtype, 0, left, 1, strip)

    with f.when(f.compare("icmp ne", whole, count)):
        copy(f.offset(source, place, element), before)
        _together(f, routine, before, after, size)
        copy(after, f.offset(target, place, element))


class _OpenColumns:
    """``count`` short columns of an open length, one after the other. Beside each vector of elements is one of their
    numbers in their columns, counted from where a column begins: from its last element on in reverse."""

    def __init__(self, f: Function, routine: Cumulation, source: Value, target: Value, count: Value) -> None:
        assert routine.kind != "recurrence"
        self.f = f
        self.kind: ReduceKind = routine.kind
        self.dtype, self.length, self.reverse = routine.dtype, routine.length, routine.reverse
        self.source, self.target = source, target
        self.lanes = f.target.lanes(routine.dtype)
        self.element, self.number = memory_type(routine.dtype), f"i{8 * routine.dtype.itemsize}"
        self.type, self.numbers = vector(self.element, self.lanes), vector(self.number, self.lanes)
        self.total = f.index(f.mul(count, routine.length))
        self.most = highest(routine.length)
        self.size = self._as_number(f.index(routine.length))
        self.neutral = f.const(starting(routine.kind, routine.dtype), self.type)
        order = f.lane_numbers(self.numbers)
        self.order = f.binary("sub", f.const(self.lanes - 1, self.numbers), order) if self.reverse else order

    def write(self) -> None:
        """By the number of vectors that a column fills, or columns of which several are in one as if they were one."""
        f, lanes, least = self.f, self.lanes, lowest(self.length)
        if not f.target.isa.predicated:
            self._as_one()
            return
        for end in [lanes // 2, *range(lanes, self.most + lanes, lanes)]:
            if end >= least:
                fits = f.compare("icmp sle", f.index(self.length), integer(end))
                with f.when(f.binary("and", fits, f.compare("icmp sge", f.index(self.length), integer(least)))):
                    if end < lanes:
                        self._as_one()
                    else:
                        self._one_by_one(end // lanes)
                least = end + 1

    def _one_by_one(self, vectors: int) -> None:
        """Columns of some vectors, of which the last may be less than a whole one."""
        f, lanes = self.f, self.lanes
        behind = (vectors - 1) * lanes
        pieces = [(number * lanes, Lanes(self.type)) for number in range(vectors - 1)]
        pieces.append((behind, first_lanes(f, self.dtype, f.sub(self.length, behind))))
        with counted(f, 0, self.total, self.length) as loop:
            before: Value | None = None
            for first, piece in reversed(pieces) if self.reverse else pieces:
                place = f.add(loop.index, first)
                value = piece.load(f, f.offset(self.source, place, self.element))
                if piece.mask is not None and self.reverse:
                    value = f.select(piece.mask, value, self.neutral)
                value = _prefixes(f, self.dtype, self.kind, value, self.neutral, self.reverse)
                if before is not None:
                    value = combine(f, self.kind, self.dtype, self._last(before), value)
                piece.store(f, value, f.offset(self.target, place, self.element))
                before = value

    def _last(self, value: Value) -> Value:
        """The last sum of a vector in every lane."""
        return self.f.shuffle(value, None, [0 if self.reverse else self.lanes - 1] * self.lanes)

    def _as_one(self) -> None:
        f, lanes = self.f, self.lanes
        left = f.binary("and", self.total, integer(lanes - 1))
        whole = f.binary("sub", self.total, left)
        step = self._wrapped(f.const(lanes, self.numbers), lanes)
        start = [self._wrapped(self.order, lanes // 2), self.neutral]
        with counted(f, 0, whole, lanes, start) as loop:
            place = f.sub(f.sub(self.total, lanes), loop.index) if self.reverse else loop.index
            value = self._move(place, Lanes(self.type), *loop.carried)
            loop.next(self._wrapped(f.binary("add", loop.carried[0], step), 1), value)
        if not f.target.isa.predicated:
            first, last = (lanes - 1, 0) if self.reverse else (0, lanes - 1)
            self._rest(whole, f.extract(loop.results[0], first), f.extract(loop.results[1], last))
            return
        with f.when(f.compare("icmp ne", left, integer(0))):
            there = Lanes(self.type, f.compare("icmp ult", self.order, f.splat(self._as_number(left), lanes)))
            self._move(f.sub(left, lanes) if self.reverse else whole, there, *loop.results)

    def _as_number(self, value: Value) -> Value:
        return value if value.type == self.number else self.f.cast("trunc", value, self.number)

    def _wrapped(self, numbers: Value, times: int) -> Value:
        """Numbers below ``2·times`` lengths without whole lengths; ``times`` is a power of two."""
        f = self.f
        while times:
            less = f.binary(
                "sub", numbers, f.splat(f.binary("mul", self.size, integer(times, self.number)), self.lanes)
            )
            numbers = f.intrinsic(f"llvm.umin.{suffix(numbers.type)}", numbers.type, numbers, less)
            times //= 2
        return numbers

    def _move(self, place: Index, piece: Lanes, numbers: Value, before: Value) -> Value:
        """The sums of the elements ``piece`` at ``place``, of which ``before`` are those that come before."""
        f, lanes = self.f, self.lanes
        value = piece.load(f, f.offset(self.source, place, self.element))
        step = 1
        while step < min(lanes, self.most):
            moved = [i + step if self.reverse else i - step for i in range(lanes)]
            inside = f.compare("icmp uge", numbers, f.const(step, self.numbers))
            there = f.shuffle(value, self.neutral, [i if 0 <= i < lanes else lanes for i in moved])
            value = self._combined(inside, there, value)
            step *= 2
        value = self._combined(f.compare("icmp ugt", numbers, self.order), self._last(before), value)
        piece.store(f, value, f.offset(self.target, place, self.element))
        return value

    def _combined(self, where: Value, before: Value, value: Value) -> Value:
        return self.f.select(where, combine(self.f, self.kind, self.dtype, before, value), value)

    def _rest(self, whole: Value, number: Value, before: Value) -> None:
        """The last elements, of which the first has this ``number``."""
        f = self.f
        with counted(f, whole, self.total, carry=[number, before]) as loop:
            number, before = loop.carried
            place = f.sub(f.sub(self.total, 1), loop.index) if self.reverse else loop.index
            value = f.load(self.element, f.offset(self.source, place, self.element))
            value = self._combined(f.compare("icmp ne", number, f.const(0, self.number)), before, value)
            f.store(value, f.offset(self.target, place, self.element))
            following = f.binary("add", number, f.const(1, self.number))
            ends = f.compare("icmp eq", following, self.size)
            loop.next(f.select(ends, f.const(0, self.number), following), value)


def _together(f: Function, routine: Cumulation, source: Value, target: Value, size: int) -> None:
    """Columns that fill ``size`` elements, a vector at a time: each part of a column in it, then the end of the vector
    before it comes to what goes on."""
    dtype, length, lanes, kind = routine.dtype, routine.length, f.target.lanes(routine.dtype), routine.kind
    assert kind != "recurrence"
    type_ = vector(memory_type(dtype), lanes)
    neutral = f.const(starting(kind, dtype), type_)
    back = 1 if routine.reverse else -1  # where the elements are that come before one
    before: Value | None = None
    for first in range(size - lanes, -1, -lanes) if routine.reverse else range(0, size, lanes):

        def chosen(x: Value, places: Sequence[int | None]) -> Value:
            return f.shuffle(x, neutral, [lanes + i if place is None else place for i, place in enumerate(places)])

        def same(i: int, other: int, first: int = first) -> bool:
            return (first + i) // length == (first + other) // length

        value = f.load(type_, f.offset(source, first, memory_type(dtype)))
        step = 1
        while step < min(length, lanes):
            others = [i + back * step for i in range(lanes)]
            moved = [o if 0 <= o < lanes and same(i, o) else None for i, o in enumerate(others)]
            value = combine(f, kind, dtype, chosen(value, moved), value)
            step *= 2
        edge = lanes if routine.reverse else -1
        goes_on = [edge % lanes if same(i, edge) else None for i in range(lanes)]
        if before is not None and any(place is not None for place in goes_on):
            value = combine(f, kind, dtype, chosen(before, goes_on), value)
        f.store(value, f.offset(target, first, memory_type(dtype)))
        before = value
