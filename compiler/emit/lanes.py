"""Loops over neighbouring elements by vectors, with what remains after whole ones; sums and transposes in registers.

Input: a function under construction, a dtype, and how many elements there are. Output: the loops. The remainder is
masked where the target masks; else it is moved in pieces of a power of two, if its length is known beforehand, or one
element at a time. The order of summation depends on lengths and the target alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from staticgrad.base.extents import highest, is_open
from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit import masked
from staticgrad.compiler.emit.llvm import (
    CountedLoop,
    Function,
    Index,
    Value,
    element_of,
    integer,
    lanes_of,
    memory_type,
    vector,
)
from staticgrad.compiler.plans.chunks import powers_of_two


def leading_lanes(f: Function, lanes: int, count: Index) -> Value:
    """The mask of the first ``count`` lanes (all of them where ``count`` is larger, none where it is below 1)."""
    if is_open(count):
        count = f.index(count)
    if isinstance(count, int):
        return mask_of(i < count for i in range(lanes))
    near = f.resized(f.index(f.min(count, lanes)), "i32")
    numbers = f.lane_numbers(vector("i32", lanes))
    return f.compare("icmp slt", numbers, f.splat(near, lanes))


def mask_of(lanes: Iterable[bool]) -> Value:
    """A mask that is known."""
    bits = [f"i1 {str(on).lower()}" for on in lanes]
    return Value(f"<{', '.join(bits)}>", f"<{len(bits)} x i1>")


@frozen
class Lanes:
    """Some neighbouring elements: of type ``type``, those where ``mask`` holds (all without one)."""

    type: str
    mask: Value | None = None

    def load(self, f: Function, pointer: Value) -> Value:
        return masked.load(f, self.type, pointer, self.mask)

    def store(self, f: Function, value: Value, pointer: Value) -> None:
        masked.store(f, value, pointer, self.mask)

    def splat(self, f: Function, scalar: Value) -> Value:
        return f.splat(scalar, lanes_of(self.type))


def first_lanes(f: Function, dtype: np.dtype, count: Index, lanes: int | None = None) -> Lanes:
    """A masked vector of the first ``count`` elements, of the lanes of a register, or the number that is asked for."""
    lanes = lanes or f.target.lanes(dtype)
    numbers = f.lane_numbers(vector(f.word, lanes))
    return Lanes(vector(memory_type(dtype), lanes), f.compare("icmp slt", numbers, f.splat(f.index(count), lanes)))


# -- one vector at a time, or a few ---------------------------------------------------------------------------------


@frozen
class VectorPart:
    """A part of a loop over neighbouring elements, whose turns have lanes of one kind: the whole vectors, or what
    remains after them. A ``masked`` remainder has one turn at most, a known one that is ``there`` has one."""

    f: Function
    dtype: np.dtype
    start: Index
    stop: Index
    step: int
    type: str
    masked: bool = False
    there: bool = False

    @property
    def is_single(self) -> bool:
        """Its turns have one element each."""
        return lanes_of(self.type) == 1

    @contextlib.contextmanager
    def turns(self, carry: Sequence[Value] = ()) -> Iterator[tuple[CountedLoop, Lanes]]:
        """The loop over the part, and what each turn loads and stores, from its index on."""
        f = self.f
        if self.there:
            loop = CountedLoop(f.index(self.start), list(carry))
            yield loop, Lanes(self.type)
        elif self.masked and not carry:
            with f.when(f.compare("icmp slt", f.index(self.start), f.index(self.stop))):
                yield CountedLoop(f.index(self.start), []), self._rest()
        else:
            with f.loop(self.start, self.stop, self.step, carry) as loop:
                yield loop, self._rest() if self.masked else Lanes(self.type)

    def _rest(self) -> Lanes:
        left = self.f.binary("sub", self.f.index(self.stop), self.f.index(self.start))
        return first_lanes(self.f, self.dtype, left, lanes_of(self.type))


def vector_parts(
    f: Function, dtype: np.dtype, count: Index, *, lanes: int | None = None, at_once: int = 1, rest: int | None = None,
    masked: bool | None = None,
) -> list[VectorPart]:  # fmt: skip
    """The parts of a loop over ``count`` elements, in order: whole vectors, ``at_once`` of them in a turn, then what
    remains: less than one vector. ``rest`` is its length where that is known and ``count`` is not; it is ``masked``
    where the target masks, unless something else is asked for."""
    lanes, element = lanes or f.target.lanes(dtype), memory_type(dtype)
    masked = f.target.isa.predicated if masked is None else masked
    step, type_ = lanes * at_once, vector(element, lanes)
    if rest == 0:
        return [VectorPart(f, dtype, 0, count, step, type_)]
    if is_open(count):
        count = f.index(count)
    whole: Index = count - count % step if isinstance(count, int) else f.binary("and", count, integer(-step))
    parts = [VectorPart(f, dtype, 0, whole, step, type_)] if whole != 0 else []
    if whole == count:
        return parts
    if masked:
        parts.append(VectorPart(f, dtype, whole, count, lanes, type_, masked=True))
    elif rest is None:
        parts.append(VectorPart(f, dtype, whole, count, 1, element))
    else:
        for size in powers_of_two(rest):
            parts.append(VectorPart(f, dtype, whole, count, size, vector(element, size), there=True))
            whole = f.add(whole, size)
    return parts


# -- several vectors at a time --------------------------------------------------------------------------------------


@contextlib.contextmanager
def counted(
    f: Function, start: Index, stop: Index, step: int = 1, carry: Sequence[Value] = ()
) -> Iterator[CountedLoop]:
    """``Function.loop`` over a range that may be empty though it is constant."""
    with f.loop(f.index(start), f.index(stop), step, carry) as loop:
        yield loop


def strips(f: Function, dtype: np.dtype, width: int, most: int, write: Callable[[Index, list[Lanes]], None]) -> None:
    """Call ``write(first, lanes)`` for strips of up to ``most`` neighbouring vectors that cover ``width`` elements."""
    lanes = f.target.lanes(dtype)
    whole = Lanes(vector(memory_type(dtype), lanes))
    if is_open(width):
        _open_strips(f, dtype, width, most, write)
        return
    full = width // (most * lanes)
    if full:
        with counted(f, 0, full * most * lanes, most * lanes) as loop:
            write(loop.index, [whole] * most)
    at = full * most * lanes
    vectors, rest = divmod(width - at, lanes)
    if rest and f.target.isa.predicated:
        write(at, [whole] * vectors + [first_lanes(f, dtype, rest)])
    elif vectors:
        write(at, [whole] * vectors)
    if rest and not f.target.isa.predicated:
        with counted(f, at + vectors * lanes, width) as loop:
            write(loop.index, [Lanes(memory_type(dtype))])


def _open_strips(
    f: Function, dtype: np.dtype, width: int, most: int, write: Callable[[Index, list[Lanes]], None]
) -> None:
    """``strips`` of a width that is open: those of ``most`` vectors, of half that number and so on, then the rest."""
    lanes, element = f.target.lanes(dtype), memory_type(dtype)
    at = 0
    while most:
        end = width // (most * lanes) * (most * lanes)
        if highest(width) >= most * lanes:
            with counted(f, at, end, most * lanes) as loop:
                write(loop.index, [Lanes(vector(element, lanes))] * most)
            at = end
        most //= 2
    if f.target.isa.predicated:
        with f.when(f.compare("icmp slt", f.index(at), f.index(width))):
            write(at, [first_lanes(f, dtype, width % lanes)])
    else:
        with counted(f, at, width) as loop:
            write(loop.index, [Lanes(element)])


def row_strips(
    f: Function, dtype: np.dtype, start: Index, stop: Index, most: int, write: Callable[[Index, list[Lanes]], None]
) -> None:
    """``strips`` over a range known at run time: blocks of ``most`` vectors, then one at a time, then the rest."""
    lanes = f.target.lanes(dtype)
    element = memory_type(dtype)
    whole = Lanes(vector(element, lanes))
    block = most * lanes

    def end_of(size: int) -> Index:
        """Up to where blocks of ``size`` fill the range."""
        return f.add(start, f.mul(_floor(f, f.sub(stop, start), size), size))

    at: Index = start
    if most > 1:
        middle = end_of(block)
        with counted(f, at, middle, block) as loop:
            write(loop.index, [whole] * most)
        at = middle
    if f.target.isa.predicated:
        with counted(f, at, stop, lanes) as loop:
            write(loop.index, [first_lanes(f, dtype, f.sub(stop, loop.index))])
        return
    last = end_of(lanes)
    with counted(f, at, last, lanes) as loop:
        write(loop.index, [whole])
    with counted(f, last, stop) as loop:
        write(loop.index, [Lanes(element)])


def _floor(f: Function, number: Index, by: int) -> Index:
    """``number // by`` for a number that is not negative."""
    return number // by if isinstance(number, int) else f.binary("udiv", number, integer(by))


# -- within registers -----------------------------------------------------------------------------------------------


def joined(f: Function, parts: Sequence[Value]) -> Value:
    """Vectors of equal length, a power of two of them, end to end."""
    while len(parts) > 1:
        lanes = range(2 * lanes_of(parts[0].type))
        parts = [f.shuffle(a, b, lanes) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def transposed(f: Function, rows: Sequence[Value]) -> list[Value]:
    """The columns of squares of ``len(rows)`` rows, a power of two: vector i holds row i of each, side by side, and
    result i column i. Blocks off the diagonal change places, of half the size, then of a quarter, and so on. Those of
    32 bits change within 16 bytes by interleaving neighbours, two rounds at once: one instruction each."""
    rows, count, size = list(rows), lanes_of(rows[0].type), len(rows) // 2
    interleaves = element_of(rows[0].type) in ("float", "i32")
    while size and not (size == 2 and interleaves):
        low = [i if not i & size else count + i - size for i in range(count)]
        high = [i + size if not i & size else count + i for i in range(count)]
        for i in range(len(rows)):
            if not i & size:
                a, b = rows[i], rows[i + size]
                rows[i], rows[i + size] = f.shuffle(a, b, low), f.shuffle(a, b, high)
        size //= 2
    if not size:
        return rows
    return [column for first in range(0, len(rows), 4) for column in _interleaved(f, rows[first : first + 4])]


def _interleaved(f: Function, rows: list[Value]) -> list[Value]:
    """The columns of squares of four rows."""
    lanes = lanes_of(rows[0].type)

    def pick(a: Value, b: Value, places: tuple[int, ...]) -> Value:
        """Places of a row of one square, those of ``b`` numbered from four on, in all squares."""
        numbers = [p if p < 4 else lanes + p - 4 for p in places]
        return f.shuffle(a, b, [first + n for first in range(0, lanes, 4) for n in numbers])

    low = [pick(rows[i], rows[i + 1], (0, 4, 1, 5)) for i in (0, 2)]
    high = [pick(rows[i], rows[i + 1], (2, 6, 3, 7)) for i in (0, 2)]
    return [pick(a, b, places) for a, b in (low, high) for places in ((0, 1, 4, 5), (2, 3, 6, 7))]


def prefetch(f: Function, at: Value, *, near: bool = True) -> None:
    """Prefetch the cache line at an address, which need not be valid, for reading: into the first cache, or the second
    where it is not needed ``near`` at hand. Nothing on a machine without such an instruction."""
    if not f.target.isa.prefetches:
        return
    f.intrinsic("llvm.prefetch.p0", "void", at, integer(0, "i32"), integer(2 + near, "i32"), integer(1, "i32"))
