"""Stretches of a sequence that repeat themselves, in which each key is that of ``period`` places before.

Input: a key for each place. Output: disjoint stretches, each of some turns of a period, the longest first found. Linear
in the number of keys: periods are proposed by how far apart equal groups of neighbouring keys lie, most of all by the
keys that stand once in a turn, and each of the few that are proposed often is compared with the whole sequence at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from staticgrad.base.frozen import frozen

LEAST_TURNS = 8
LEAST_REPEATED = 1000  # nodes of a graph after the first turn: with fewer it is compiled in less time than one notices
GROUP = 4  # neighbouring keys that make a group
PROPOSED = 32  # periods that are compared with the sequence, at most
Keys = NDArray[np.int64]


@frozen
class Repetition:
    """``turns`` times ``period`` places from ``start`` on."""

    start: int
    period: int
    turns: int

    @property
    def end(self) -> int:
        return self.start + self.period * self.turns

    @property
    def repeated(self) -> int:
        """The places after the first turn."""
        return (self.turns - 1) * self.period

    def turn(self, number: int) -> range:
        """The places of a turn."""
        first = self.start + number * self.period
        return range(first, first + self.period)

    def joined(self, count: int) -> Repetition:
        """The stretch with turns of ``count`` of its own. Some of the last may not be among it."""
        return Repetition(self.start, self.period * count, self.turns // count)

    def without(self, first: int, last: int) -> Repetition:
        """The stretch without some of its first turns and some of its last."""
        return Repetition(self.start + first * self.period, self.period, self.turns - first - last)


def repetitions(keys: Keys, least_turns: int, least_repeated: int) -> list[Repetition]:
    """Disjoint stretches of at least ``least_turns`` turns that repeat ``least_repeated`` places, in their order."""
    found = [
        stretch
        for period in _periods(keys, least_turns)
        for stretch in _of_period(keys, period, least_turns)
        if stretch.repeated >= least_repeated
    ]
    chosen: list[Repetition] = []
    for stretch in sorted(found, key=lambda s: (s.period - s.repeated, s.period)):
        if all(stretch.end <= other.start or other.end <= stretch.start for other in chosen):
            chosen.append(stretch)
    return sorted(chosen, key=lambda s: s.start)


def _periods(keys: Keys, least_turns: int) -> list[int]:
    """The distances at which equal groups of keys lie, those that cover most first."""
    if len(keys) <= GROUP:
        return []
    groups = np.zeros(len(keys) - GROUP + 1, np.uint64)
    for place in range(GROUP):  # two groups of one number are only proposed, so a hash serves
        groups = groups * np.uint64(0x9E3779B97F4A7C15) + keys[place : place + len(groups)].astype(np.uint64)
    order = np.argsort(groups, kind="stable")
    again = groups[order[1:]] == groups[order[:-1]]
    distances, counts = np.unique((order[1:] - order[:-1])[again], return_counts=True)
    often = counts >= least_turns - 1
    distances, counts = distances[often], counts[often]
    best = np.argsort(-distances * counts, kind="stable")[:PROPOSED]
    return [int(period) for period in distances[best]]


def _of_period(keys: Keys, period: int, least_turns: int) -> list[Repetition]:
    """The stretches of one period."""
    same = np.concatenate([[False], keys[:-period] == keys[period:], [False]])
    edges = np.flatnonzero(same[1:] != same[:-1])
    starts, lengths = edges[::2], edges[1::2] - edges[::2]
    enough = lengths >= (least_turns - 1) * period
    return [
        Repetition(int(start), period, int(length) // period + 1)
        for start, length in zip(starts[enough], lengths[enough], strict=True)
    ]
