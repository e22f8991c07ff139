"""Offsets of buffers in the arena: intervals and sizes in, offsets out. Nothing here knows of graphs.

    place(intervals) -> Placement        offsets parallel to the intervals, bytes of the arena, bytes no plan goes below

The problem is dynamic storage allocation (Garey and Johnson 1979, SR2: strongly NP-hard). Buffers are placed one after
the other, each into the smallest gap that its live interval leaves; what matters is the order, so several are tried and
the best is kept, and none goes on once it is worse than that. Where none reaches the bound, orders are revised a few
times: what lay above the bound is placed earlier (squeaky wheel optimization, Joslin and Clements 1999). Time allowing,
a search goes on from there. Of very many buffers only two orders are tried, by birth and by death, for which a list of
the gaps is enough: n log n steps.
"""

from __future__ import annotations

import heapq
import time
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.compiler.placement.problems import Interval, PlanError, validate

__all__ = ["Interval", "Placement", "PlanError", "lower_bound", "place"]

SMALL = 512  # buffers up to which lists of neighbours are quicker than arrays
LARGE = 4096  # buffers from which only what takes n log n steps is tried
REVISED = 6000  # buffers that all revised orders together may place


@frozen
class Placement:
    """A plan: ``offsets`` parallel to the intervals; at some time ``lower_bound_bytes`` are alive at once."""

    offsets: tuple[int, ...]
    arena_bytes: int
    lower_bound_bytes: int


def lower_bound(intervals: Sequence[Interval], *, alignment: int = 64) -> int:
    """The most bytes alive at one time, each size rounded up to the alignment."""
    return _most_alive(intervals, [_round_up(interval.nbytes, alignment) for interval in intervals])


def place(
    intervals: Sequence[Interval], *, alignment: int = 64, seconds: float = 0.0, capacity: int | None = None
) -> Placement:
    """Offsets, multiples of ``alignment``, at which no two buffers alive at one time overlap.

    Greedy orders are always tried; then a seeded search goes on for at most ``seconds``, unless the lower bound is
    reached or nothing smaller is known to exist. With a ``capacity`` in bytes the first plan that is no larger is good
    enough; that there is one is not promised. Buffers with a fixed offset stay there; two that clash, an empty live
    range or a negative size are a ``PlanError``. Buffers of no bytes get offset 0.
    """
    validate(intervals, alignment)
    sizes = [_round_up(interval.nbytes, alignment) for interval in intervals]
    bound = _most_alive(intervals, sizes)
    offsets = [interval.fixed or 0 for interval in intervals]
    fixed = [number for number, interval in enumerate(intervals) if interval.fixed is not None and sizes[number]]
    free = [number for number, interval in enumerate(intervals) if interval.fixed is None and sizes[number]]
    _refuse_clashes(intervals, sizes, fixed)
    if free:
        target = max([bound, *(offsets[number] + sizes[number] for number in fixed)])
        offsets = _best(_PlacedBuffers(intervals, sizes, offsets, fixed, free), target, seconds, capacity)
    arena = max((offset + interval.nbytes for offset, interval in zip(offsets, intervals, strict=True)), default=0)
    return Placement(tuple(offsets), _round_up(arena, alignment), bound)


@frozen
class _PlacedBuffers:
    """The buffers that have bytes, by number: those that are ``fixed`` already lie at their ``offsets``."""

    intervals: Sequence[Interval]
    sizes: list[int]
    offsets: list[int]
    fixed: list[int]
    free: list[int]


def _best(problem: _PlacedBuffers, target: int, seconds: float, capacity: int | None) -> list[int]:
    if len(problem.free) >= LARGE and not problem.fixed:
        return _swept(problem)
    packer: _Packer = _Lists(problem) if len(problem.intervals) <= SMALL else _Arrays(problem)
    enough = max(target, capacity or 0)
    best: list[int] = []
    best_bytes: int | None = None
    for order in _orders(problem):
        found = packer.pack(order, best_bytes)
        if found is not None:
            best, best_bytes = found, _end(problem, found)
            if best_bytes <= enough:
                return best
    for found in _revised(problem, packer, target):
        if _end(problem, found) < _end(problem, best):
            best, best_bytes = found, _end(problem, found)
            if best_bytes <= enough:
                return best
    if seconds > 0 and best_bytes is not None:
        from staticgrad.compiler.placement.search import improve

        deadline = time.monotonic() + seconds
        ranges = [(interval.first, interval.last) for interval in problem.intervals]
        return improve(
            ranges, problem.sizes, best, problem.fixed, target, lambda: time.monotonic() > deadline, capacity
        )
    return best


def _end(problem: _PlacedBuffers, offsets: Sequence[int]) -> int:
    return max(offset + size for offset, size in zip(offsets, problem.sizes, strict=True))


def _revised(problem: _PlacedBuffers, packer: _Packer, target: int) -> Iterator[list[int]]:
    """Plans by the greedy orders, revised in turn: a buffer that ends above the target moves half-way to the front."""
    orders = list(_orders(problem))
    for _ in range(REVISED // (len(orders) * len(problem.free))):
        for number, order in enumerate(orders):
            offsets = packer.pack(order, None)
            if offsets is None:
                continue
            yield offsets
            revised = list(order)
            for buffer in order:
                if offsets[buffer] + problem.sizes[buffer] > target:
                    place_ = revised.index(buffer)
                    revised.insert(place_ // 2, revised.pop(place_))
            orders[number] = revised


def _orders(problem: _PlacedBuffers) -> Iterator[list[int]]:
    """The greedy orders, the ones that most often reach the bound first."""
    intervals, sizes = problem.intervals, problem.sizes
    life = [interval.last - interval.first for interval in intervals]
    keys: tuple[Callable[[int], tuple[int, ...]], ...] = (
        lambda k: (intervals[k].first, -sizes[k]),
        lambda k: (-sizes[k], -life[k]),
        lambda k: (-life[k], -sizes[k]),
        lambda k: (-life[k] * sizes[k], intervals[k].first),
        lambda k: (-intervals[k].last, -sizes[k]),
    )
    for key in keys:
        yield sorted(problem.free, key=key)
    pressure = _pressure(problem)
    yield sorted(problem.free, key=lambda k: (-pressure[k], -sizes[k]))


def _pressure(problem: _PlacedBuffers) -> list[int]:
    """For each buffer the most bytes that are alive during its life: where it is tight, place first."""
    intervals, sizes = problem.intervals, problem.sizes
    times, profile = _profile(intervals, sizes)
    table = [np.array(profile, dtype=np.int64)]  # table[k][i] = max(profile[i : i + 2**k])
    while len(table[-1]) > 1 << (len(table) - 1):
        last, step = table[-1], 1 << (len(table) - 1)
        table.append(np.maximum(last[:-step], last[step:]))
    pressure = []
    for interval in intervals:
        low, high = bisect_left(times, interval.first), bisect_left(times, interval.last)
        level = (high - low).bit_length() - 1
        pressure.append(int(max(table[level][low], table[level][high - (1 << level)])))
    return pressure


def _profile(intervals: Sequence[Interval], sizes: Sequence[int]) -> tuple[list[int], list[int]]:
    """The times at which something changes, and the bytes alive from each to the next."""
    change: dict[int, int] = {}
    for interval, size in zip(intervals, sizes, strict=True):
        change[interval.first] = change.get(interval.first, 0) + size
        change[interval.last] = change.get(interval.last, 0) - size
    times = sorted(change)
    alive, profile = 0, []
    for moment in times:
        alive += change[moment]
        profile.append(alive)
    return times, profile


def _most_alive(intervals: Sequence[Interval], sizes: Sequence[int]) -> int:
    return max(_profile(intervals, sizes)[1], default=0)


def _round_up(nbytes: int, alignment: int) -> int:
    return -(-nbytes // alignment) * alignment


def _refuse_clashes(intervals: Sequence[Interval], sizes: Sequence[int], fixed: Sequence[int]) -> None:
    by_offset = sorted(fixed, key=lambda k: intervals[k].fixed or 0)
    for place_, low in enumerate(by_offset):
        end = (intervals[low].fixed or 0) + sizes[low]
        for high in by_offset[place_ + 1 :]:
            one, two = intervals[low], intervals[high]
            if (two.fixed or 0) >= end:
                break
            if one.first < two.last and two.first < one.last:
                raise PlanError(f"buffers {one.name!r} and {two.name!r} are fixed at overlapping offsets")


class _Packer(Protocol):
    """Places the free buffers in one order, each into the smallest gap of its live interval, the lowest of equals."""

    def pack(self, order: Sequence[int], limit: int | None) -> list[int] | None:
        """The offset of every buffer, or None as soon as one would end at or beyond the limit."""


class _Lists:
    """For small problems: each buffer knows those that live at the same time."""

    def __init__(self, problem: _PlacedBuffers) -> None:
        self._problem = problem
        self._neighbours = neighbours(problem.intervals, [*problem.fixed, *problem.free])

    def pack(self, order: Sequence[int], limit: int | None) -> list[int] | None:
        sizes, offsets = self._problem.sizes, list(self._problem.offsets)
        ends = [0] * len(offsets)  # 0: not placed yet
        for number in self._problem.fixed:
            ends[number] = offsets[number] + sizes[number]
        for number in order:
            size = sizes[number]
            spans = sorted([(offsets[k], ends[k]) for k in self._neighbours[number] if ends[k]])
            top = 0
            best: tuple[int, int] | None = None  # (gap, offset)
            for low, high in spans:
                if low - top >= size and (best is None or low - top < best[0]):
                    best = (low - top, top)
                if high > top:
                    top = high
            offset = top if best is None else best[1]
            if limit is not None and offset + size >= limit:
                return None
            offsets[number], ends[number] = offset, offset + size
        return offsets


class _Arrays:
    """For large problems: everything placed so far stands sorted by offset in arrays, and each step filters it by the
    live interval of the next buffer, a few passes over contiguous memory instead of a walk over objects."""

    def __init__(self, problem: _PlacedBuffers) -> None:
        self._problem = problem
        times = sorted({moment for interval in problem.intervals for moment in (interval.first, interval.last)})
        rank = {moment: number for number, moment in enumerate(times)}
        self._ranges = [(rank[interval.first], rank[interval.last]) for interval in problem.intervals]

    def pack(self, order: Sequence[int], limit: int | None) -> list[int] | None:
        sizes, offsets = self._problem.sizes, list(self._problem.offsets)
        room = len(order) + len(self._problem.fixed)
        first, last = np.empty(room, np.int32), np.empty(room, np.int32)
        low, high = np.empty(room, np.int64), np.empty(room, np.int64)
        columns: tuple[np.ndarray, ...] = (first, last, low, high)
        sorted_lows: list[int] = []

        def insert(number: int) -> None:
            offset, count = offsets[number], len(sorted_lows)
            at = bisect_left(sorted_lows, offset)
            insort(sorted_lows, offset)
            values = (*self._ranges[number], offset, offset + sizes[number])
            for column, value in zip(columns, values, strict=True):
                column[at + 1 : count + 1] = column[at:count]
                column[at] = value

        for number in self._problem.fixed:
            insert(number)
        for number in order:
            count = len(sorted_lows)
            born, dead = self._ranges[number]
            beside = np.flatnonzero((first[:count] < dead) & (last[:count] > born))
            offsets[number] = _smallest_gap(low[beside], high[beside], sizes[number])
            if limit is not None and offsets[number] + sizes[number] >= limit:
                return None
            insert(number)
        return offsets


def _smallest_gap(low: np.ndarray, high: np.ndarray, size: int) -> int:
    """The start of the smallest gap of at least ``size`` bytes between spans that are sorted by their low end, else the
    top of them all."""
    if not len(low):
        return 0
    top = np.maximum.accumulate(high)
    gaps = low - np.concatenate((np.zeros(1, np.int64), top[:-1]))
    fits = np.flatnonzero(gaps >= size)
    if not len(fits):
        return int(top[-1])
    best = int(fits[np.argmin(gaps[fits])])
    return int(top[best - 1]) if best else 0


class _Gaps:
    """The free space while buffers come and go: gaps by size, and by where they begin and end."""

    def __init__(self) -> None:
        self._top = 0  # the end of the highest buffer
        self._by_size: list[tuple[int, int]] = []  # (size, offset), sorted
        self._size_at: dict[int, int] = {}  # offset -> size
        self._begin_of: dict[int, int] = {}  # end -> offset

    def take(self, size: int) -> int:
        """The offset of a buffer in the smallest gap in which it fits, else above all."""
        at = bisect_left(self._by_size, (size, 0))
        if at == len(self._by_size):
            self._top += size
            return self._top - size
        found, offset = self._by_size[at]
        self._remove(offset)
        if found > size:
            self._add(offset + size, found - size)
        return offset

    def give(self, offset: int, size: int) -> None:
        """A buffer is gone: its space joins the gaps beside it."""
        end = offset + size
        if end in self._size_at:
            end += self._remove(end)
        if offset in self._begin_of:
            offset = self._begin_of[offset]
            self._remove(offset)
        if end == self._top:
            self._top = offset
        else:
            self._add(offset, end - offset)

    def _add(self, offset: int, size: int) -> None:
        insort(self._by_size, (size, offset))
        self._size_at[offset] = size
        self._begin_of[offset + size] = offset

    def _remove(self, offset: int) -> int:
        size = self._size_at.pop(offset)
        del self._by_size[bisect_left(self._by_size, (size, offset))]
        del self._begin_of[offset + size]
        return size


def _swept(problem: _PlacedBuffers) -> list[int]:
    """The better of two sweeps: from the first birth on, and from the last death back."""
    there = [(interval.first, interval.last) for interval in problem.intervals]
    back = [(-interval.last, -interval.first) for interval in problem.intervals]
    plans = [_sweep(problem, ranges) for ranges in (there, back)]
    return min(plans, key=lambda plan: max(plan[k] + problem.sizes[k] for k in problem.free))


def _sweep(problem: _PlacedBuffers, ranges: Sequence[tuple[int, int]]) -> list[int]:
    sizes, offsets = problem.sizes, list(problem.offsets)
    gaps, alive = _Gaps(), list[tuple[int, int]]()
    for number in sorted(problem.free, key=lambda k: (ranges[k][0], -sizes[k])):
        born, dead = ranges[number]
        while alive and alive[0][0] <= born:
            _, gone = heapq.heappop(alive)
            gaps.give(offsets[gone], sizes[gone])
        offsets[number] = gaps.take(sizes[number])
        heapq.heappush(alive, (dead, number))
    return offsets


def neighbours(intervals: Sequence[Interval], numbers: Sequence[int]) -> list[list[int]]:
    """For each buffer the others among ``numbers`` that are alive at some time of its life (a sweep over births)."""
    result: list[list[int]] = [[] for _ in intervals]
    alive: list[int] = []
    for number in sorted(numbers, key=lambda k: intervals[k].first):
        born = intervals[number].first
        alive = [other for other in alive if intervals[other].last > born]
        result[number] = list(alive)
        for other in alive:
            result[other].append(number)
        alive.append(number)
    return result
