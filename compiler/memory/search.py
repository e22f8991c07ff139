"""A search for better placements: a plan in, a plan that is no worse out.

    round ::= a way to judge partial plans, a width; the beam takes one buffer a step, from the bottom of the arena up

Every plan can be pushed down and then read from the bottom up, so only *canonical* plans are searched (Moffitt, ASPLOS
2023): buffers in the order of their offsets, each as low as those before it and the last offset allow. Three facts
about a partial plan follow. No buffer goes above a place where another one would fit beneath it. In each *section* (a
time at which no further buffer is born before one dies) the *floor*, the lowest offset any remaining buffer there can
have, plus the bytes still to come, bounds the arena from below. And what lies between the floor and the bytes placed
there is *waste* for good.

The beam keeps the partial plans of least waste, most of all in the sections where the arena is tight, and of the
lowest bound. How much the one counts against the other is drawn anew for each round from a seeded generator: as many
rounds give the same plan.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Range = tuple[int, int]
Ints = np.ndarray

NEVER = np.int64(2**61)  # the offset of what needs no place any more
CELLS = 1 << 21  # a step's table of children × buffers has at most so many entries
LARGEST = 1 << 22  # beyond so many pairs of section and buffer one step takes too long to be worth its time


@dataclass(frozen=True, slots=True)
class Judgement:
    """How partial plans are compared: ``waste·tightness^exponent``, by bytes placed if ``relative``, plus
    ``height·excess of the bound over the target``, times ``1 + noise·random``; the best ``width`` go on."""

    exponent: float
    relative: bool
    height: float
    noise: float
    width: int


def improve(
    ranges: Sequence[Range],
    sizes: Sequence[int],
    offsets: Sequence[int],
    fixed: Sequence[int],
    target: int,
    stop: Callable[[], bool],
) -> list[int]:
    """The best offsets found until ``stop()`` or until the arena is no larger than ``target`` bytes.

    ``offsets`` is a valid plan of buffers alive in ``ranges``; those numbered in ``fixed`` stay where they are.
    """
    best = list(offsets)
    best_bytes = max(offset + size for offset, size in zip(offsets, sizes, strict=True))
    problem = _Problem(ranges, sizes, offsets, fixed, target)
    if problem.pairs > LARGEST:
        return best
    rng = np.random.default_rng(0)
    for number in itertools.count():
        if best_bytes <= target or stop():
            return best
        found = problem.round(_judgement(rng, number), rng, best_bytes, stop)
        if found is not None:
            best = found
            best_bytes = max(offset + size for offset, size in zip(best, sizes, strict=True))
    raise AssertionError("itertools.count() ended")


def _judgement(rng: np.random.Generator, number: int) -> Judgement:
    """The first rounds are quick; the rest draw from what has served on published problems."""
    if number < 3:
        return Judgement(exponent=4, relative=True, height=4, noise=0, width=(1, 4, 16)[number])
    return Judgement(
        exponent=float(rng.choice([0, 1, 2, 4, 8, 16])),
        relative=bool(rng.random() < 0.67),
        height=float(rng.choice([0.5, 1, 2, 4, 8, 16, 64])),
        noise=float(rng.choice([0, 0.05, 0.1, 0.3])),
        width=int(rng.choice([2, 4, 8, 16, 32])),
    )


@dataclass(slots=True)
class _Beam:
    """Partial plans, one a row."""

    lowest: Ints  # of each buffer still to place the lowest offset it can have, else NEVER
    to_come: Ints  # of each section the bytes still to place
    placed: Ints  # of each placed buffer its offset, else -1
    height: Ints  # the highest end so far

    def rows(self, which: Ints) -> _Beam:
        return _Beam(self.lowest[which], self.to_come[which], self.placed[which], self.height[which])


class _Problem:
    """The buffers still free, as arrays, and the sections of their live ranges."""

    def __init__(
        self, ranges: Sequence[Range], sizes: Sequence[int], offsets: Sequence[int], fixed: Sequence[int], target: int
    ) -> None:
        stay = set(fixed)
        self._offsets, self._target = list(offsets), target
        self._numbers = [number for number, size in enumerate(sizes) if size and number not in stay]
        self._size = np.array([sizes[number] for number in self._numbers], np.int64)
        self._first = np.array([ranges[number][0] for number in self._numbers], np.int64)
        self._last = np.array([ranges[number][1] for number in self._numbers], np.int64)
        self._obstacles = []  # (low end, high end, the free buffers that live beside it), from the lowest up
        for number in sorted(fixed, key=lambda k: offsets[k]):
            beside = (self._first < ranges[number][1]) & (self._last > ranges[number][0])
            self._obstacles.append((offsets[number], offsets[number] + sizes[number], np.flatnonzero(beside)))
        sections = _sections(self._first, self._last)
        members = [np.flatnonzero((self._first <= moment) & (self._last > moment)) for moment in sections]
        self.pairs = sum(map(len, members))
        self._members = members
        self._total = np.array([self._size[member].sum() for member in members], np.int64)
        self._from = np.searchsorted(sections, self._first)
        self._to = np.searchsorted(sections, self._last)

    def round(
        self, judgement: Judgement, rng: np.random.Generator, limit: int, stop: Callable[[], bool]
    ) -> list[int] | None:
        """One beam from the empty arena to a whole plan below ``limit`` bytes, or None."""
        count = len(self._numbers)
        hashes = rng.integers(1, 2**62, count, dtype=np.int64) * 2 + 1
        weight = (self._total / max(self._target, 1)) ** judgement.exponent
        beam = _Beam(
            self._over_obstacles(np.zeros((1, count), np.int64)),
            self._total[None].copy(),
            np.full((1, count), -1, np.int64),
            np.zeros(1, np.int64),
        )
        for _ in range(count):
            if stop():
                return None
            beam = self._children(beam, judgement.width)
            bound, score = self._judge(beam, weight, judgement, rng)
            within = np.flatnonzero(bound < limit)
            if not len(within):
                return None
            state = (beam.lowest[within] * hashes).sum(axis=1)  # wraps around: a hash
            order = np.lexsort((state, score[within]))
            first_of_equals = np.unique(state[order], return_index=True)[1]
            beam = beam.rows(within[order[np.sort(first_of_equals)[: judgement.width]]])
        result = list(self._offsets)
        for number, offset in zip(self._numbers, beam.placed[int(beam.height.argmin())].tolist(), strict=True):
            result[number] = offset
        return result

    def _children(self, beam: _Beam, width: int) -> _Beam:
        """Every partial plan with one buffer more, but none above a place where another would fit beneath."""
        roof = (beam.lowest + self._size).min(axis=1)
        allowed = beam.lowest < roof[:, None]
        most = max(1, CELLS // (len(self._numbers) * max(width, 1)))
        if allowed.sum(axis=1).max() > most:
            lowest = np.where(allowed, beam.lowest * 2 - (self._size == self._size.max()), 2 * NEVER)
            allowed &= lowest <= np.partition(lowest, most - 1, axis=1)[:, most - 1 : most]
        parent, chosen = np.nonzero(allowed)
        children = beam.rows(parent)
        row = np.arange(len(parent))
        offset = children.lowest[row, chosen]
        end = offset + self._size[chosen]
        children.placed[row, chosen] = offset
        children.height = np.maximum(children.height, end)
        beside = (self._first < self._last[chosen][:, None]) & (self._last > self._first[chosen][:, None])
        children.lowest = np.maximum(children.lowest, np.where(beside, end[:, None], offset[:, None]))
        children.lowest = self._over_obstacles(children.lowest)
        children.lowest[children.placed >= 0] = NEVER
        section = np.arange(len(self._total))
        alive = (self._from[chosen][:, None] <= section) & (section < self._to[chosen][:, None])
        children.to_come -= np.where(alive, self._size[chosen][:, None], 0)
        return children

    def _over_obstacles(self, lowest: Ints) -> Ints:
        """Lift what would meet a fixed buffer above it; from the lowest obstacle up one pass is enough."""
        for low, high, beside in self._obstacles:
            start = lowest[:, beside]
            lowest[:, beside] = np.where((start < high) & (start + self._size[beside] > low), high, start)
        return lowest

    def _judge(self, beam: _Beam, weight: Ints, judgement: Judgement, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Of each partial plan a lower bound of its arena, and a score, the less the better."""
        floor = np.stack([beam.lowest[:, member].min(axis=1) for member in self._members], axis=1)
        open_ = floor < NEVER
        bound = np.maximum(np.where(open_, floor + beam.to_come, 0).max(axis=1), beam.height)
        used = self._total - beam.to_come
        score = (np.where(open_, floor - used, 0) * weight).sum(axis=1)
        if judgement.relative:
            score = score / np.maximum(used.sum(axis=1), 1)
            score += judgement.height * np.maximum(bound - self._target, 0) / max(self._target, 1)
        if judgement.noise:
            score = score * (1 + judgement.noise * rng.random(len(score)))
        return bound, score


def _sections(first: Ints, last: Ints) -> Ints:
    """The births with a death before the next birth: all buffers that ever live together do so at one of these."""
    births, deaths = np.unique(first), np.unique(last)
    next_birth = np.append(births[1:], np.iinfo(np.int64).max)
    next_death = deaths[np.searchsorted(deaths, births, side="right")]
    return births[next_death <= next_birth]
