"""Is this plan right? Intervals and offsets in, nothing or a ``PlanError`` out.

Written without a line of the planner: a sweep over time that keeps the buffers alive now sorted by offset. As long
as they are disjoint, a new one can only overlap the one below or the one above it, so n buffers take n log n steps.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from staticgrad.compiler.memory.problems import Interval, PlanError

__all__ = ["PlanError", "check"]


def check(intervals: Sequence[Interval], offsets: Sequence[int], arena_bytes: int, *, alignment: int = 64) -> None:
    """Raise ``PlanError`` unless each buffer lies in ``[0, arena_bytes)``, aligned, where it is fixed, and apart from
    every buffer of an overlapping live range. Buffers of no bytes overlap nothing."""
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
    events.sort()  # at one time the dead leave before the newborn enter: live ranges are half-open
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
