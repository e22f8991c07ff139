"""Plan: steps in order come in, the offset of every buffer goes out.

A buffer lives from the step that first touches it until after the one that last does; both are recomputed by the
checker from the steps and from where they find what they read. Where a step runs through many buffers of whole pages
side by side, each has a cache line more, so that they lie at different places of the nearest cache.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from staticgrad.base.phases import phase
from staticgrad.compiler.memory.checker import check_steps
from staticgrad.compiler.placement.placement import lower_bound, place
from staticgrad.compiler.placement.problems import Interval, Pinned
from staticgrad.compiler.program.memories import Memory, Temp
from staticgrad.compiler.program.plan import Plan
from staticgrad.compiler.program.slots import FeedSlot
from staticgrad.compiler.program.step import Step, placed

ALIGNMENT = 64
# Addresses a multiple of WAY_BYTES apart share a set of the nearest cache, which has room for about WAYS lines.
WAY_BYTES = 4096
WAYS = 8


def live_ranges(steps: Sequence[Step]) -> dict[Temp, tuple[int, int]]:
    """``[first, last)`` in steps, for every buffer that a step touches."""
    ranges: dict[Temp, tuple[int, int]] = {}
    for time, step in enumerate(steps):
        for memory in step.memories:
            if isinstance(memory, Temp):
                first, _ = ranges.get(memory, (time, time))
                ranges[memory] = (first, time + 1)
    return ranges


def staggered(steps: Sequence[Step]) -> frozenset[Temp]:
    """The buffers that shall not lie whole ways of the nearest cache apart: a step runs through more of them at once
    than the cache keeps lines for, and each would lose its line before the next element is reached."""
    found: set[Temp] = set()
    for step in steps:
        alike = {m for m in step.memories if isinstance(m, Temp) and m.pinned is None and m.nbytes % WAY_BYTES == 0}
        if len(alike) > WAYS:
            found |= alike
    return frozenset(found)


def donate(steps: Sequence[Step], pinned: Sequence[Pinned]) -> list[Step]:
    """The steps with pinned buffers in the place of the feeds that are donated: one for each place, whichever feeds
    read it."""
    at = {value.feed: value for value in pinned if value.donated and value.feed is not None}
    memories: dict[Memory, Memory] = {}
    temps: dict[int, Temp] = {}
    for slot in dict.fromkeys(m for step in steps for m in step.memories if isinstance(m, FeedSlot)):
        if (value := at.get(slot.index)) is not None:
            temp = Temp(value.name, value.nbytes, "donated by the tape", None, value.offset)
            memories[slot] = temps.setdefault(value.offset, temp)
    return [placed(step, memories) for step in steps]


@phase("place")
def plan_memory(
    steps: Sequence[Step],
    *,
    share: bool = True,
    seconds: float = 0.0,
    pinned: Sequence[Pinned] = (),
    lasting: Collection[Temp] = (),
) -> Plan:
    """Place every buffer; with ``share=False`` each has memory of its own.

    Args:
        pinned: what lies in the arena already; what of it is donated is a pinned buffer of the steps (``donate``).
        lasting: buffers that live on until the end.
    """
    ranges = {
        temp: (first if temp.pinned is None else 0, len(steps) if temp in lasting else last)
        for temp, (first, last) in live_ranges(steps).items()
    }
    wider = dict.fromkeys(staggered(steps), ALIGNMENT)
    intervals = tuple(
        Interval(
            f"{t.name}#{number}",
            first if share else 0,
            last if share else len(steps),
            t.nbytes + wider.get(t, 0),
            t.pinned,
        )
        for number, (t, (first, last)) in enumerate(ranges.items())
    )
    left = {value.offset: value for value in pinned if not value.donated}
    intervals += tuple(Interval(v.name, 0, max(len(steps), 1), v.nbytes, v.offset) for v in left.values())
    placement = place(intervals, alignment=ALIGNMENT, seconds=seconds)
    offsets = dict(zip(ranges, placement.offsets, strict=False))
    check_steps(steps, offsets, placement.arena_bytes, pinned=pinned, lasting=lasting, alignment=ALIGNMENT)
    alive = tuple(
        Interval(interval.name, first, last, interval.nbytes)
        for interval, (first, last) in zip(intervals, ranges.values(), strict=False)
    )
    before = [(v.offset, v.nbytes) for v in left.values()]
    before += [(t.pinned, t.nbytes) for t in ranges if t.pinned is not None]
    bound = lower_bound(alive, alignment=ALIGNMENT)
    return Plan(tuple(ranges), alive, offsets, placement.arena_bytes, bound, tuple(before))
