"""The checker of plans: steps or intervals, and offsets, in; nothing or a ``PlanError`` out.

Written without a line of the planner: a sweep over time that keeps the buffers alive now sorted by offset. As long
as they are disjoint, a new one can only overlap the one below or the one above it, so n buffers take n log n steps.

Nothing that the planner says of lives is believed either: they follow from the steps. A value that was there before the
program is known by its place alone, so that what steps read at one address is one value, through whichever feed or
buffer they read it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Mapping, Sequence

from staticgrad.compiler.placement.problems import Interval, Pinned, PlanError
from staticgrad.compiler.program.memories import Memory, Temp
from staticgrad.compiler.program.slots import FeedSlot
from staticgrad.compiler.program.step import Step

__all__ = ["PlanError", "check", "check_steps"]


def check_steps(
    steps: Sequence[Step],
    offsets: Mapping[Temp, int],
    arena_bytes: int,
    *,
    pinned: Sequence[Pinned] = (),
    lasting: Collection[Temp] = (),
    alignment: int = 64,
) -> None:
    """Raise ``PlanError`` unless all that steps touch in the arena stays apart while it lives, as ``check`` says.

    Args:
        pinned: what lies in the arena before the first step; what is not donated lives until the end.
        lasting: buffers that do, too.
    """
    end = max(len(steps), 1)
    before = {value.offset: value for value in pinned}
    fed = {value.feed: before[value.offset] for value in pinned}
    lives: dict[Temp | Pinned, tuple[int, int]] = {v: (0, end) for v in before.values() if not v.donated}
    values: dict[Memory, Temp | Pinned] = {}
    for time, step in enumerate(steps):
        for memory in step.memories:
            if isinstance(memory, FeedSlot) and memory.index in fed:
                values[memory] = fed[memory.index]
            elif isinstance(memory, Temp) and memory not in values:
                values[memory] = _value(memory, step, offsets, before)
            if (value := values.get(memory)) is not None:
                first, last = lives.get(value, (0 if isinstance(value, Pinned) else time, 0))
                lives[value] = first, end if memory in lasting else max(last, time + 1)
    intervals = [Interval(value.name, first, last, value.nbytes) for value, (first, last) in lives.items()]
    places = [value.offset if isinstance(value, Pinned) else offsets[value] for value in lives]
    check(intervals, places, arena_bytes, alignment=alignment)


def _value(temp: Temp, step: Step, offsets: Mapping[Temp, int], before: Mapping[int, Pinned]) -> Temp | Pinned:
    """The value that a buffer holds when ``step`` touches it first: one that lies there already if the step reads it,
    else the buffer itself."""
    if temp not in step.reads:
        return temp
    value = before.get(offsets[temp])
    if value is None or value.nbytes != temp.nbytes:
        raise PlanError(f"{step.name!r} reads {temp.name!r} at offset {offsets[temp]}, which nothing has written")
    return value


def check(intervals: Sequence[Interval], offsets: Sequence[int], arena_bytes: int, *, alignment: int = 64) -> None:
    """Raise ``PlanError`` unless each buffer lies in ``[0, arena_bytes)``, aligned, where it is fixed, and apart from
    every buffer of an overlapping live interval. Buffers of no bytes overlap nothing."""
    if len(offsets) != len(intervals):
        raise PlanError(f"{len(intervals)} buffers, but {len(offsets)} offsets")
    for interval, offset in zip(intervals, offsets, strict=True):
        _check_alone(interval, offset, arena_bytes, alignment)
    _check_apart(intervals, offsets)


def _check_alone(interval: Interval, offset: int, arena_bytes: int, alignment: int) -> None:
    what = f"buffer {interval.name!r} of {interval.nbytes} bytes at offset {offset}"
    if interval.nbytes < 0 or interval.last <= interval.first:
        raise PlanError(f"{what}: not a buffer: live range [{interval.first}, {interval.last})")
    if offset < 0 or offset + interval.nbytes > arena_bytes:
        raise PlanError(f"{what}: outside the arena of {arena_bytes} bytes")
    if offset % alignment:
        raise PlanError(f"{what}: misaligned, expected a multiple of {alignment}")
    if interval.fixed is not None and interval.fixed != offset:
        raise PlanError(f"{what}: expected the fixed offset {interval.fixed}")


def _check_apart(intervals: Sequence[Interval], offsets: Sequence[int]) -> None:
    events = [(interval.first, 1, number) for number, interval in enumerate(intervals) if interval.nbytes]
    events += [(interval.last, 0, number) for number, interval in enumerate(intervals) if interval.nbytes]
    events.sort()  # at one time the dead leave before the newborn enter: live intervals are half-open
    alive: list[tuple[int, int]] = []  # (offset, number), disjoint
    for _, born, number in events:
        entry = (offsets[number], number)
        place = bisect_left(alive, entry)
        if not born:
            del alive[place]
            continue
        for _, other in alive[max(place - 1, 0) : place + 1]:
            low, high = sorted((number, other), key=lambda k: offsets[k])
            if offsets[low] + intervals[low].nbytes > offsets[high]:
                raise PlanError(
                    f"{_where(intervals[low], offsets[low])} overlaps {_where(intervals[high], offsets[high])}"
                )
        insort(alive, entry)


def _where(interval: Interval, offset: int) -> str:
    return (
        f"buffer {interval.name!r} in [{interval.first}, {interval.last})"
        f" at bytes [{offset}, {offset + interval.nbytes})"
    )
