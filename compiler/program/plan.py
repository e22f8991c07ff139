"""The places of a program's buffers, as a value."""

from __future__ import annotations

from staticgrad.base.frozen import frozen
from staticgrad.compiler.placement.problems import Interval
from staticgrad.compiler.program.memories import Temp


@frozen
class Plan:
    """Live intervals and offsets of all buffers, in the order of their first use. ``before`` is where pinned values lie
    that the program reads or leaves there, as ``(offset, nbytes)``."""

    temps: tuple[Temp, ...]
    intervals: tuple[Interval, ...]
    offsets: dict[Temp, int]
    arena_bytes: int
    lower_bound_bytes: int
    before: tuple[tuple[int, int], ...] = ()
