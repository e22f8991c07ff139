"""Spans: how the vector axis of a nest is cut into blocks of vectors, single vectors and a tail.

The size of the axis, the lanes, the cost of the body and a target go in; spans that cover the axis come out, in order.
"""

from __future__ import annotations

import itertools
import math

from staticgrad.base.extents import highest, is_open, is_same
from staticgrad.base.frozen import frozen
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.chunks import powers_of_two

# Above this cost a loop body is emitted once, under a mask, instead of once more for the tail.
ONE_COPY_COST = 80
# Where the lanes are rows and each turn visits another row of memory, as much of it is taken as the registers allow:
# (highest cost of the body, vectors side by side, the ratio of these to the next smaller block).
VISITED = ((2, 16, 2), (6, 8, 2), (16, 8, 4), (60, 4, 4), (math.inf, 1, 2))
LAST_BLOCK = 64  # a ratio of blocks: the largest one is the only one


@frozen
class Span:
    """A part of the vector axis: turns of ``lanes·copies`` indices from ``start`` until ``stop``. The last turn of a
    masked span may reach over its end. Where sizes are open it may be that there is none."""

    start: int
    stop: int
    lanes: int
    copies: int
    masked: bool = False

    @property
    def step(self) -> int:
        return self.lanes * self.copies

    @property
    def turns(self) -> int:
        return -(-(self.stop - self.start) // self.step)


def spans_of(
    size: int, lanes: int, copies: int, target: Target, cost: int, ratio: int = LAST_BLOCK
) -> tuple[Span, ...]:
    """Cut an axis into a main part, blocks of copies that are fewer by ``ratio`` and by ``ratio`` again, full vectors
    that remain, and a tail: under a mask, or in vectors of half the lanes, of a quarter, and so on."""
    if is_open(size):
        return _open_spans(size, lanes, copies, target, cost, ratio)
    if target.isa.predicated and cost > ONE_COPY_COST and size % lanes and size > lanes:
        return (Span(0, size, lanes, 1, masked=True),)
    spans: list[Span] = []
    at = 0
    while copies > 1:
        block = lanes * copies
        if size - at >= block:
            end = size - (size - at) % block
            spans.append(Span(at, end, lanes, copies))
            at = end
        copies //= ratio
    rest = (size - at) % lanes
    if rest and target.isa.predicated and spans:
        return (*spans, Span(at, size, lanes, 1, masked=True))
    if size - rest > at:
        spans.append(Span(at, size - rest, lanes, 1))
    if rest and target.isa.predicated:
        spans.append(Span(size - rest, size, lanes, 1, masked=True))
    elif rest:
        spans += _halved(size, rest)
    return tuple(spans)


def _open_spans(size: int, lanes: int, copies: int, target: Target, cost: int, ratio: int) -> tuple[Span, ...]:
    """``spans_of`` an axis of an open size: the spans that its greatest size has, and a tail in any case."""
    if target.isa.predicated and cost > ONE_COPY_COST:
        return (Span(0, size, lanes, 1, masked=True),)
    spans: list[Span] = []
    at, rest = 0, size
    while copies > 1:
        block = lanes * copies
        if highest(rest) >= block:
            end, rest = size // block * block, size % block
            spans.append(Span(at, end, lanes, copies))
            at = end
        copies //= ratio
    if target.isa.predicated and spans:
        return _there(*spans, Span(at, size, lanes, 1, masked=True))
    end = size // lanes * lanes
    if highest(rest) >= lanes:
        spans.append(Span(at, end, lanes, 1))
    if target.isa.predicated:
        return _there(*spans, Span(end, size, lanes, 1, masked=True))
    while lanes > 1:
        lanes //= 2
        start, end = end, size // lanes * lanes
        spans.append(Span(start, end, lanes, 1))
    return _there(*spans)


def _there(*spans: Span) -> tuple[Span, ...]:
    """The spans without those that are empty at all sizes."""
    return tuple([span for span in spans if not is_same(span.start, span.stop)])


def _halved(size: int, rest: int) -> list[Span]:
    """The last ``rest`` of an axis, less than a vector, in single turns of fewer lanes."""
    ends = [size - rest, *(size - rest % half for half in powers_of_two(rest))]
    return [Span(start, end, end - start, 1) for start, end in itertools.pairwise(ends)]


def block_of_rows(cost: int, target: Target) -> tuple[int, int]:
    """The number of vectors of many rows of memory that a body of ``cost`` instructions accumulates side by side, and
    the ratio of that to the next smaller block."""
    if target.machine.compact:
        return 1, LAST_BLOCK
    copies, ratio = next((copies, ratio) for most, copies, ratio in VISITED if cost <= most)
    return min(copies, target.isa.registers // 2), ratio
