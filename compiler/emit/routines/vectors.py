"""What routines are written with: strips of vectors over rows, and functions over two rows (dot products and updates).

Comes in: a function under construction and a float or integer dtype. Goes out: IR. Tails are masked where the target
masks, else done one element at a time. The order of summation depends on lengths and the target alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from staticgrad.compiler.emit.llvm import Function, Index, Loop, Value, integer, lanes_of, memory_type, vector
from staticgrad.compiler.emit.reduction import combine

Body = Callable[[Function, Sequence[Value], Sequence[Value]], Sequence[Value]]


def as_value(index: Index) -> Value:
    """An index as an LLVM value: loops over constants that may be empty are then empty, not an error."""
    return index if isinstance(index, Value) else integer(index)


@contextlib.contextmanager
def counted(f: Function, start: Index, stop: Index, step: int = 1, carry: Sequence[Value] = ()) -> Iterator[Loop]:
    """``Function.loop`` over a range that may be empty though it is constant."""
    with f.loop(as_value(start), as_value(stop), step, carry) as loop:
        yield loop


@dataclass(frozen=True, slots=True)
class Lanes:
    """Some neighbouring elements: of type ``type``, those where ``mask`` holds (all without one)."""

    type: str
    mask: Value | None = None

    def load(self, f: Function, pointer: Value) -> Value:
        return f.load(self.type, pointer) if self.mask is None else f.masked_load(self.type, pointer, self.mask)

    def store(self, f: Function, value: Value, pointer: Value) -> None:
        if self.mask is None:
            f.store(value, pointer)
        else:
            f.masked_store(value, pointer, self.mask)

    def splat(self, f: Function, scalar: Value) -> Value:
        return f.splat(scalar, lanes_of(self.type))


def first_lanes(f: Function, dtype: np.dtype, count: Index) -> Lanes:
    """A masked vector of the first ``count`` elements."""
    lanes = f.target.lanes(dtype)
    numbers = f.lane_numbers(vector("i64", lanes))
    return Lanes(vector(memory_type(dtype), lanes), f.compare("icmp slt", numbers, f.splat(as_value(count), lanes)))


def strips(f: Function, dtype: np.dtype, width: int, most: int, write: Callable[[Index, list[Lanes]], None]) -> None:
    """Call ``write(first, lanes)`` for strips of up to ``most`` neighbouring vectors that cover ``width`` elements."""
    lanes = f.target.lanes(dtype)
    whole = Lanes(vector(memory_type(dtype), lanes))
    full = width // (most * lanes)
    if full:
        with counted(f, 0, full * most * lanes, most * lanes) as loop:
            write(loop.index, [whole] * most)
    at = full * most * lanes
    vectors, rest = divmod(width - at, lanes)
    if rest and f.target.masked:
        write(at, [whole] * vectors + [first_lanes(f, dtype, rest)])
    elif vectors:
        write(at, [whole] * vectors)
    if rest and not f.target.masked:
        with counted(f, at + vectors * lanes, width) as loop:
            write(loop.index, [Lanes(memory_type(dtype))])


def sum_lanes(f: Function, dtype: np.dtype, value: Value) -> Value:
    """The sum of a vector's elements: halves first, then halves of those."""
    lanes = lanes_of(value.type)
    while lanes > 1:
        lanes //= 2
        low, high = (f.shuffle(value, None, range(start, start + lanes)) for start in (0, lanes))
        value = combine(f, "sum", dtype, low, high)
        if lanes == 1:
            return f.extract(value, 0) if value.type.startswith("<") else value
    return value
