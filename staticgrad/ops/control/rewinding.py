"""Rewinding: a loop in reverse whose turns read states of another one, which are computed again from snapshots.

The derivative of a loop of n turns reads, in reverse order, a state of each turn. Kept are snapshots of c states alone,
one of them the first. The others are computed again from the nearest snapshot before them, and on that way further
snapshots are taken in the place of those that were used up. Which, is the schedule of A. Griewank and A. Walther,
"Algorithm 799: revolve", ACM TOMS 26(1), 2000, which takes fewest turns: with

    β(c, r) = C(c + r, c)     turns that c snapshots reverse such that none runs more than r times
    T(n, c) = r·n - β(c + 1, r - 1)     turns that are run on the way, where β(c, r - 1) < n <= β(c, r)

n turns with c snapshots are split so that the first part has at most β(c, r - 1) and the second, which has one snapshot
less, at least β(c - 1, r - 1). As parts nest, a snapshot belongs to one part, which ends at one turn: ``ends`` has it.
A loop that took fewer turns than n follows the same schedule from where it ended.

    SNAPSHOT_SCAN   a loop that also hands out snapshots       REWOUND   the loop that uses them

    operands of REWOUND   [count], carries, snapshots, rows, captured      results   carries, stacked rows
    body                  turn, carries, states, rows, captured  ->  carries, stacked rows
    advance               turn, states, rows, captured  ->  states of the next turn

Only the pass ``rewind`` declares these ops, so they have no derivatives.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from staticgrad.base.frozen import frozen
from staticgrad.base.types import TensorType
from staticgrad.graph.optable import Array
from staticgrad.ops.control.bodies import Bodied, Body, RunBody
from staticgrad.ops.control.loops import LoopAttributes, loop_op, loop_types

# -- the schedule -------------------------------------------------------------------------------------------------


@frozen
class Schedule:
    """The turns before which snapshots are taken, of ``turns`` in all and ``slots`` at a time. A snapshot of turn q
    serves turns q to ``ends[q]`` - 1; 0: there is none. ``starts`` are the turns before which the forward loop takes
    one; ``advances`` counts the turns that are run again, no turn more than ``repeats`` times."""

    turns: int
    slots: int
    ends: NDArray[np.int32]

    @property
    def starts(self) -> tuple[int, ...]:
        return (0, *(int(q) for q in np.flatnonzero(self.ends == self.turns) if q))

    @property
    def advances(self) -> int:
        return least_advances(self.turns, self.slots) - self.starts[-1]

    @property
    def repeats(self) -> int:
        last = self.turns - 1 - self.starts[-1]  # turns that the forward loop takes behind its last snapshot
        return max(least_repeats(self.turns, self.slots) - 1, last) if self.advances else 0


@functools.lru_cache(maxsize=64)
def schedule_of(turns: int, slots: int) -> Schedule:
    """The schedule of a loop, with a snapshot for each of its turns at most."""
    slots = max(1, min(slots, turns))
    ends = np.zeros(turns, np.int32)
    stack = [(0, turns, slots)]
    while stack:
        first, last, free = stack.pop()
        if last - first > 1 and free > 1:
            middle = first + _split(last - first, free)
            ends[middle] = last
            stack += [(middle, last, free - 1), (first, middle, free)]
    return Schedule(turns, slots, ends)


def least_advances(turns: int, slots: int) -> int:
    """T(n, c): the turns that are run to reverse ``turns`` of which the first is a snapshot."""
    if turns < 2:
        return 0
    repeats = least_repeats(turns, slots)
    return repeats * turns - math.comb(slots + repeats, slots + 1)


def fewest_slots(turns: int, repeats: int) -> int:
    """The least c with β(c, r) >= n: with c snapshots no turn runs more than ``repeats`` times."""
    return _least(lambda slots: _reverse(turns, slots, repeats))


def least_repeats(turns: int, slots: int) -> int:
    """The least r with β(c, r) >= n: how often at most a turn runs."""
    return _least(lambda repeats: _reverse(turns, slots, repeats))


def _least(holds: Callable[[int], bool]) -> int:
    """The least positive number from which on something holds."""
    low = high = 1
    while not holds(high):
        low, high = high + 1, 2 * high
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _reverse(turns: int, slots: int, repeats: int) -> bool:
    """True if β(c, r) >= n."""
    less, more = sorted((slots, repeats))
    product = 1
    for i in range(1, less + 1):
        product = product * (more + i) // i
        if product >= turns:
            return True
    return product >= turns


def _split(turns: int, slots: int) -> int:
    """The number of turns of the first part."""
    repeats = least_repeats(turns, slots)
    return min(math.comb(slots + repeats - 1, slots), turns - math.comb(slots + repeats - 2, slots - 1))


# -- a loop that hands out snapshots ------------------------------------------------------------------------------


@frozen
class SnapshotLoopAttributes(LoopAttributes):
    """A loop of a known length at most that hands out, behind its other results, snapshots of the carries ``kept``, by
    their numbers, before the turns that ``schedule.starts`` counts. Snapshots of turns that it does not take hold
    anything."""

    kept: tuple[int, ...] = ()

    @property
    def schedule(self) -> Schedule:
        assert isinstance(self.length, int)
        return schedule_of(self.length, self.checkpoint or 1)

    def evaluate(self, inputs: Sequence[Array], run: RunBody) -> list[Array]:
        starts = {turn: slot for slot, turn in enumerate(self.schedule.starts)}
        types = [self.body.feeds[1 + j].type for j in self.kept]
        slots = [np.zeros((self.schedule.slots, *t.shape), t.dtype) for t in types]
        turns = 0

        def watched(body: Body, operands: Sequence[Array]) -> Sequence[Array]:
            nonlocal turns
            if body is self.body:
                for snapshots, j in zip(slots, self.kept if turns in starts else (), strict=False):
                    snapshots[starts[turns]] = operands[1 + j]
                turns += 1
            return run(body, operands)

        return [*LoopAttributes.evaluate(self, inputs, watched), *slots]


def _snapshot_loop_types(attrs: SnapshotLoopAttributes, *types: TensorType) -> tuple[TensorType, ...]:
    kept = (attrs.body.feeds[1 + j].type for j in attrs.kept)
    slots = attrs.schedule.slots
    return (*loop_types(attrs, *types), *(TensorType((slots, *t.shape), t.dtype) for t in kept))


SNAPSHOT_LOOP = loop_op(
    "snapshot_loop", "A loop that hands out snapshots of what it carries, too.", False, "Scan", _snapshot_loop_types
)
EFFECTFUL_SNAPSHOT_LOOP = loop_op(
    "effectful_snapshot_loop", "A snapshot_loop whose body has effects.", True, "Scan", _snapshot_loop_types
)


# -- the loop that uses them --------------------------------------------------------------------------------------


@frozen
class RewoundAttributes(Bodied):
    """A loop over the turns of another one from the last to the first. ``reverse``: the turns are numbered in the order
    in which that one took them. ``carries``, ``states`` and ``sequences`` count operands."""

    body: Body
    advance: Body
    carries: int
    states: int
    sequences: int
    length: int
    slots: int
    reverse: bool = True
    counted: bool = False

    @property
    def bodies(self) -> tuple[Body, ...]:
        return (self.body, self.advance)

    def with_bodies(self, bodies: Sequence[Body]) -> RewoundAttributes:
        return replace(self, body=bodies[0], advance=bodies[1])

    @property
    def schedule(self) -> Schedule:
        return schedule_of(self.length, self.slots)

    def evaluate(self, inputs: Sequence[Array], run: RunBody) -> list[Array]:
        """Its last carries and stacked results. Rows of stacked results that no turn writes are zero."""
        taken = self.length
        if self.counted:
            taken, inputs = int(inputs[0]), inputs[1:]
        middle, end = self.carries + self.states, self.carries + self.states + self.sequences
        carries, sequences, captured = list(inputs[: self.carries]), inputs[middle:end], inputs[end:]
        ends = self.schedule.ends
        stack = [
            (turn, [x[slot] for x in inputs[self.carries : middle]])
            for slot, turn in enumerate(self.schedule.starts)
            if turn < taken
        ]
        rows = [x.type for x in self.body.fetches[self.carries :]]
        stacked = [np.zeros((self.length, *t.shape), t.dtype) for t in rows]

        def given(turn: int) -> tuple[int, Array, list[Array]]:
            number = turn if self.reverse else taken - 1 - turn
            return number, np.asarray(number, np.int64), [x[number] for x in sequences]

        for turn in reversed(range(taken)):
            at, state = stack[-1]
            while at < turn:
                _, number, read = given(at)
                at, state = at + 1, list(run(self.advance, [number, *state, *read, *captured]))
                if ends[at] > turn:
                    stack.append((at, state))
            row, number, read = given(turn)
            results = run(self.body, [number, *carries, *state, *read, *captured])
            carries = list(results[: self.carries])
            for whole, value in zip(stacked, results[self.carries :], strict=True):
                whole[row] = value
            if stack[-1][0] == turn:
                stack.pop()
        return [*carries, *stacked]


def _rewound_types(attrs: RewoundAttributes, *types: TensorType) -> tuple[TensorType, ...]:
    rows = [x.type for x in attrs.body.fetches[attrs.carries :]]
    stacked = tuple(TensorType((attrs.length, *t.shape), t.dtype) for t in rows)
    return (*types[attrs.counted : attrs.counted + attrs.carries], *stacked)


REWOUND = loop_op(
    "rewound_loop", "Turns of a body that read states of another loop in reverse order, computed again from snapshots.",
    False, "Rewound", _rewound_types,
)  # fmt: skip
