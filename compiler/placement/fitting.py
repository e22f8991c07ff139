"""Depth-first search for a placement that fits: a capacity and an order of preference come in, offsets come out, or why
there are none.

Depth first over *canonical* plans (Moffitt, "MiniMalloc", ASPLOS 2023): buffers in the order of their offsets, of equal
offsets the preferred first, each at the lowest offset that those before it leave. A node takes the next buffer and
drops what cannot end well:

- a buffer above a place where another one would fit beneath it;
- a *section* (a time at which no further buffer is born before one dies) where the lowest offset that is left plus the
  bytes still to come exceed the capacity;
- a buffer that was *passed*, as one beyond it in the order came first: it can only come later, so another one must
  lift it, and it will lie no lower than the lowest end of those that could.

Where no remaining buffer joins two parts of time, each part is searched by itself, the tightest first, and the
failure of one goes back at once to the choice that parted them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from itertools import pairwise

from staticgrad.base.frozen import frozen

NEVER = 1 << 62  # the offset of what is placed already: no other is as high
ALWAYS = 2 * NEVER


class SearchOutcome(Enum):
    """The outcome of a search: there is a plan, there is none, or the tries or the time were used up before that was
    known."""

    FITS = "fits"
    IMPOSSIBLE = "impossible"
    UNKNOWN = "unknown"


@frozen
class Buffer:
    """A buffer to place: bytes, the sections ``[first, last)`` of its life and what is fixed at the same time, as
    ranges of bytes from the lowest up."""

    nbytes: int
    first: int
    last: int
    obstacles: tuple[tuple[int, int], ...] = ()

    def over_obstacles(self, offset: int) -> int:
        """The lowest offset from ``offset`` on at which the buffer meets nothing that is fixed."""
        for low, high in self.obstacles:
            if offset < high and offset + self.nbytes > low:
                offset = high
        return offset


class Fitting:
    """One problem: buffers of at least one byte, each alive in at least one section, each section with a buffer."""

    def __init__(self, buffers: Sequence[Buffer], sections: int) -> None:
        self._buffers = buffers
        self._sections = sections
        self._beside = [
            [k for k, two in enumerate(buffers) if two.first < one.last and one.first < two.last and two is not one]
            for one in buffers
        ]

    def search(
        self, order: Sequence[int], capacity: int, tries: int, stop: Callable[[], bool]
    ) -> tuple[SearchOutcome, list[int]]:
        """If it fits, offsets parallel to the buffers with no end above ``capacity``.

        ``order`` has the numbers of the buffers, the preferred first. ``UNKNOWN`` after ``tries``, placements
        of one buffer, or if ``stop()``, which is asked every now and then.
        """
        ranks = [0] * len(order)
        for rank, number in enumerate(order):
            ranks[number] = rank
        beside = [[ranks[k] for k in self._beside[number]] for number in order]
        run = _Search([self._buffers[number] for number in order], beside, self._sections, capacity)
        outcome = run.search(tries, stop)
        return outcome, [run.offsets[rank] for rank in ranks]


@frozen
class _Stretch:
    """Sections ``[first, last)`` and the buffers still to place there; no other remaining buffer lives in them."""

    buffers: list[int]
    first: int
    last: int


@frozen
class _PlacedState:
    """The bounds that the buffers placed so far leave to the others.

    ``lowest``: the lowest offset that each buffer can have, NEVER once it is placed. ``limit``: the highest offset that
    the lowest of the remaining buffers of each section may have, ALWAYS if there are none. ``joins``: how many
    remaining buffers live both in a section and in the next.
    """

    lowest: list[int]
    limit: list[int]
    joins: list[int]


@frozen
class _Task:
    """A part to do, then the ``rest``; at the end stands a part of no buffers. If there is no way to do it, the choice
    at depth ``back`` is at fault. The buffers ``passed`` must be lifted before they can be placed."""

    part: _Stretch
    state: _PlacedState
    passed: list[int]
    back: int
    rest: _Task | None


class _Choice:
    """A choice: the (offset, buffer) still to try, the first to try at the end, and the buffers passed so far."""

    __slots__ = ("candidates", "passed", "task")

    def __init__(self, task: _Task, sizes: Sequence[int]) -> None:
        self.task = task
        self.passed = task.passed
        lowest, buffers = task.state.lowest, task.part.buffers
        roof = min([lowest[k] + sizes[k] for k in buffers])
        gone = set(task.passed)
        self.candidates = sorted([(lowest[k], k) for k in buffers if lowest[k] < roof and k not in gone], reverse=True)


class _Search:
    """A search in one order: the buffers are numbered as they are preferred."""

    def __init__(
        self, buffers: Sequence[Buffer], beside: Sequence[Sequence[int]], sections: int, capacity: int
    ) -> None:
        self._buffers, self._beside, self._capacity = buffers, beside, capacity
        self._sizes = [buffer.nbytes for buffer in buffers]
        self._members: list[list[int]] = [[] for _ in range(sections)]
        for number, buffer in enumerate(buffers):
            for section in range(buffer.first, buffer.last):
                self._members[section].append(number)
        self._witness = [members[0] for members in self._members]  # a remaining buffer low enough, when last looked
        self.offsets = [0] * len(buffers)

    def search(self, tries: int, stop: Callable[[], bool]) -> SearchOutcome:
        """``FITS`` if ``offsets`` are a plan."""
        task = self._start()
        if task is None:
            return SearchOutcome.IMPOSSIBLE
        stack: list[_Choice] = []
        for count in range(tries):
            if count % 64 == 63 and stop():
                break
            if task is not None:
                stack.append(_Choice(task, self._sizes))
            while stack and not stack[-1].candidates:
                del stack[stack[-1].task.back + 1 :]
            if not stack:
                return SearchOutcome.IMPOSSIBLE
            task = self._place_next(stack[-1], len(stack) - 1)
            if task is not None and not task.part.buffers:
                return SearchOutcome.FITS
        return SearchOutcome.UNKNOWN

    def _start(self) -> _Task | None:
        """All that is to do, or None if that cannot end well."""
        lowest = [buffer.over_obstacles(0) for buffer in self._buffers]
        limit = [self._capacity - sum([self._sizes[k] for k in members]) for members in self._members]
        joins = [0] * len(self._members)
        for buffer in self._buffers:
            for section in range(buffer.first, buffer.last - 1):
                joins[section] += 1
        state = _PlacedState(lowest, limit, joins)
        end = _Task(_Stretch([], 0, 0), state, [], -1, None)
        everything = _Stretch(list(range(len(self._buffers))), 0, len(self._members))
        if not self._may_fit(lowest, limit, [], everything):
            return None
        cuts = [section + 1 for section, count in enumerate(joins[:-1]) if not count]
        return self._parted(everything, cuts, _Task(everything, state, [], -1, end))

    def _place_next(self, node: _Choice, depth: int) -> _Task | None:
        """Place the next candidate: what is to do then, or None if that cannot end well."""
        offset, number = node.candidates.pop()
        before, buffer, part = node.task.state, self._buffers[number], node.task.part
        lowest = self._lifted(before.lowest, number, offset + buffer.nbytes)
        limit = before.limit.copy()
        limit[buffer.first : buffer.last] = [
            ALWAYS if height + buffer.nbytes == self._capacity else height + buffer.nbytes
            for height in limit[buffer.first : buffer.last]
        ]
        passed = [k for k in node.passed if lowest[k] <= offset]
        node.passed = [*node.passed, number]
        if not self._may_fit(lowest, limit, passed, part):
            return None
        self.offsets[number] = offset
        joins, cuts = before.joins.copy(), []
        for section in range(buffer.first, buffer.last - 1):
            joins[section] -= 1
            if not joins[section]:
                cuts.append(section + 1)
        remaining = _Stretch([k for k in part.buffers if k != number], part.first, part.last)
        return self._parted(
            remaining, cuts, _Task(remaining, _PlacedState(lowest, limit, joins), passed, depth, node.task.rest)
        )

    def _lifted(self, lowest: list[int], number: int, end: int) -> list[int]:
        """The lowest offsets once a buffer ends at ``end``."""
        lowest = lowest.copy()
        lowest[number] = NEVER
        for other in self._beside[number]:
            if lowest[other] < end:
                lowest[other] = self._buffers[other].over_obstacles(end) if self._buffers[other].obstacles else end
        return lowest

    def _may_fit(self, lowest: list[int], limit: list[int], passed: list[int], part: _Stretch) -> bool:
        """True if there is room for each passed buffer once it is lifted, and in each section for what is to come."""
        if passed:
            sizes, lowest = self._sizes, lowest.copy()
            for number in passed:
                lowest[number] = min([lowest[k] + sizes[k] for k in self._beside[number]], default=NEVER)
                if lowest[number] + sizes[number] > self._capacity:
                    return False
        witness = self._witness
        for section in range(part.first, part.last):
            height = limit[section]
            if lowest[witness[section]] > height:
                for number in self._members[section]:
                    if lowest[number] <= height:
                        witness[section] = number
                        break
                else:
                    return False
        return True

    def _parted(self, part: _Stretch, cuts: Sequence[int], task: _Task) -> _Task | None:
        """The task of a part, parted before the sections ``cuts``, the smallest part first."""
        if not part.buffers:
            return task.rest
        if not cuts:
            return task
        parts = []
        for first, last in pairwise((part.first, *cuts, part.last)):
            buffers = [k for k in part.buffers if first <= self._buffers[k].first < last]
            if buffers:
                parts.append(_Stretch(buffers, first, last))
        rest = task.rest
        for one in sorted(parts, key=lambda part: -len(part.buffers)):
            inside = set(one.buffers)
            rest = _Task(one, task.state, [k for k in task.passed if k in inside], task.back, rest)
        return rest
