"""Plan: steps in order come in, the offset of every buffer goes out.

A buffer lives from the step that first touches it until after the one that last does; both are recomputed by the
checker from the steps alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from staticgrad.compiler.kernels.steps import Step, Temp
from staticgrad.compiler.memory.checker import check
from staticgrad.compiler.memory.placement import lower_bound, place
from staticgrad.compiler.memory.problems import Interval

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """Live ranges and offsets of all buffers, in the order of their first use."""

    temps: tuple[Temp, ...]
    intervals: tuple[Interval, ...]
    offsets: dict[Temp, int]
    arena_bytes: int
    lower_bound_bytes: int


def live_ranges(steps: Sequence[Step]) -> dict[Temp, tuple[int, int]]:
    """``[first, last)`` in steps, for every buffer that a step touches."""
    ranges: dict[Temp, tuple[int, int]] = {}
    for time, step in enumerate(steps):
        for memory in step.memories:
            if isinstance(memory, Temp):
                first, _ = ranges.get(memory, (time, time))
                ranges[memory] = (first, time + 1)
    return ranges


def plan_memory(steps: Sequence[Step], *, share: bool = True, seconds: float = 0.0) -> Plan:
    """Place every buffer; with ``share=False`` each has memory of its own."""
    ranges = live_ranges(steps)
    intervals = tuple(
        Interval(f"{temp.name}#{number}", first if share else 0, last if share else len(steps), temp.nbytes)
        for number, (temp, (first, last)) in enumerate(ranges.items())
    )
    placement = place(intervals, alignment=ALIGNMENT, seconds=seconds)
    check(intervals, placement.offsets, placement.arena_bytes)
    alive = tuple(
        Interval(interval.name, first, last, interval.nbytes)
        for interval, (first, last) in zip(intervals, ranges.values(), strict=True)
    )
    return Plan(
        tuple(ranges), alive, dict(zip(ranges, placement.offsets, strict=True)), placement.arena_bytes,
        lower_bound(alive, alignment=ALIGNMENT),
    )  # fmt: skip
