"""Running sums, products and recurrences of one piece, in LLVM IR.

Rows of more than one element: a strip of columns stays in registers while the rows go by. A single column of sums or
products: a register is combined with itself, moved by one lane, two, four, …, and with what came before it (Hillis and
Steele, CACM 1986), so a turn takes one dependent operation. A single column of a recurrence goes one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from staticgrad.compiler.emit.llvm import Function, Index, Value, memory_type, vector
from staticgrad.compiler.emit.nest.reduction import combine, identity
from staticgrad.compiler.emit.routines.vectors import Lanes, counted, strips
from staticgrad.compiler.kernels.nest import ReduceKind
from staticgrad.compiler.kernels.routines import Cumulation

MOST_VECTORS = 4  # of a strip


def write(f: Function, routine: Cumulation, pointers: Sequence[Value]) -> None:
    """The body of ``void(ptr operands…, ptr result, ptr scratch)``."""
    if routine.width == 1 and routine.kind != "recurrence":
        _line(f, routine, routine.kind, pointers[0], pointers[1])
    else:
        _columns(f, routine, pointers)


def _neutral(kind: ReduceKind, dtype: np.dtype) -> float | int:
    """What changes nothing, also the sign of no zero."""
    return -0.0 if kind == "sum" and dtype.kind == "f" else identity(kind, dtype)


def _place(routine: Cumulation, turn: Index, f: Function) -> Index:
    return f.sub(routine.length - 1, turn) if routine.reverse else turn


# -- many columns ---------------------------------------------------------------------------------------------------


def _columns(f: Function, routine: Cumulation, pointers: Sequence[Value]) -> None:
    element = memory_type(routine.dtype)
    operands, result = pointers[: len(routine.blocks) - 1], pointers[len(routine.blocks) - 1]
    first = 0.0 if routine.kind == "recurrence" else _neutral(routine.kind, routine.dtype)

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
    full = routine.length - routine.length % lanes
    neutral, state = (f.const(_neutral(kind, dtype), t) for t in (type_, element))
    with counted(f, 0, full, lanes, carry=[state]) as loop:
        place = f.sub(routine.length - lanes, loop.index) if routine.reverse else loop.index
        within = _prefixes(f, dtype, kind, f.load(type_, f.offset(source, place, element)), neutral, routine.reverse)
        spread = f.splat(loop.carried[0], lanes)
        f.store(combine(f, kind, dtype, spread, within), f.offset(target, place, element))
        total = f.extract(within, 0 if routine.reverse else lanes - 1)
        loop.next(combine(f, kind, dtype, loop.carried[0], total))
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
