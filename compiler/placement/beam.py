"""Beams of partial plans: how to compare them comes in, offsets below a limit come out.

    round ::= a way to judge partial plans, a width; the beam takes one buffer a step, from the bottom of the arena up

Every plan can be pushed down and then read from the bottom up, so only *canonical* plans are searched (Moffitt, ASPLOS
2023): buffers in the order of their offsets, each as low as those before it and the last offset allow. Three facts
about a partial plan follow. No buffer goes above a place where another one would fit beneath it. In each *section* (a
time at which no further buffer is born before one dies) the *floor*, the lowest offset any remaining buffer there can
have, plus the bytes still to come, bounds the arena from below. And what lies between the floor and the bytes placed
there is *waste* for good.

The beam keeps the partial plans of least waste, most of all in the sections where the arena is tight, and of the
lowest bound. How much each counts is drawn anew for every round: half of the time at random, half of the time near what
gave the best plan so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from staticgrad.base.frozen import frozen, record

Range = tuple[int, int]
Ints = np.ndarray

CELLS = 1 << 21  # entries of a step's table of children × buffers at most
QUICK = (1, 4, 16)  # the widths of the first rounds
WIDTHS = (2, 4, 8, 16, 32)
LARGEST = 1 << 22  # pairs of section and buffer, beyond which one step takes too long to be worth its time


@frozen
class Judgement:
    """The parameters by which partial plans are compared: waste times ``tightness^exponent · exp(pull)`` summed over
    the sections, per byte placed if ``relative``, plus ``height`` times the excess of the bound over the target, all
    times ``1 + noise·random``. The best ``width`` go on."""

    exponent: float
    relative: bool
    height: float
    noise: float
    width: int
    pull: Ints


class Beams:
    """Rounds one after the other, each for a better plan than the best so far."""

    def __init__(self, problem: BeamProblem, rng: np.random.Generator) -> None:
        self._problem, self._rng = problem, rng
        self._rounds = 0
        self._served = Judgement(exponent=4, relative=True, height=4, noise=0, width=1, pull=np.zeros(problem.sections))

    def round(self, limit: int, stop: Callable[[], bool]) -> list[int] | None:
        """Offsets of an arena of less than ``limit`` bytes, if this round finds some."""
        if self._rounds < len(QUICK):
            judgement = replace(self._served, width=QUICK[self._rounds])
        elif self._rng.random() < 0.5:
            judgement = _near(self._rng, self._served)
        else:
            judgement = _anew(self._rng, self._problem.sections)
        self._rounds += 1
        found = self._problem.round(judgement, self._rng, limit, stop)
        if found is not None:
            self._served = judgement
        return found


def _near(rng: np.random.Generator, judgement: Judgement) -> Judgement:
    pull = judgement.pull + 0.3 * rng.standard_normal(len(judgement.pull))
    return replace(judgement, noise=0, width=int(rng.choice(WIDTHS)), pull=pull)


def _anew(rng: np.random.Generator, sections: int) -> Judgement:
    return Judgement(
        exponent=float(rng.choice([0, 1, 2, 4, 8, 16])),
        relative=bool(rng.random() < 0.67),
        height=float(rng.choice([0.5, 1, 2, 4, 8, 16, 64])),
        noise=float(rng.choice([0.05, 0.1, 0.3])) if rng.random() < 0.3 else 0.0,
        width=int(rng.choice(WIDTHS)),
        pull=0.7 * rng.standard_normal(sections),
    )


@record
class _Beam:
    """Partial plans, one a row, in units."""

    lowest: Ints  # of each buffer still to place the lowest offset it can have, else never
    to_come: Ints  # of each section what is still to place there
    height: Ints  # the highest end so far

    def rows(self, which: Ints) -> _Beam:
        return _Beam(self.lowest[which], self.to_come[which], self.height[which])


@frozen
class _BeamStep:
    """The last placement in each row of a beam: in which row of the beam before, of which buffer, at which offset."""

    parent: Ints
    chosen: Ints
    offset: Ints

    def rows(self, which: Ints) -> _BeamStep:
        return _BeamStep(self.parent[which], self.chosen[which], self.offset[which])


class BeamProblem:
    """The buffers still free, as arrays, and the sections of their live intervals.

    All bytes are counted in units, their greatest common divisor, so that 32 bits are nearly always enough.
    """

    def __init__(
        self, ranges: Sequence[Range], sizes: Sequence[int], offsets: Sequence[int], fixed: Sequence[int], target: int
    ) -> None:
        stay = set(fixed)
        self._offsets = list(offsets)
        self._numbers = [number for number, size in enumerate(sizes) if size and number not in stay]
        self._unit = math.gcd(*sizes, *(offsets[number] for number in fixed))
        self._target = max(target / self._unit, 1.0)
        most = max(offset + size for offset, size in zip(offsets, sizes, strict=True)) // self._unit
        self._dtype = np.dtype(np.int32 if most < 2**28 else np.int64)
        self._never = 2**29 if self._dtype == np.int32 else 2**60  # the offset of what needs no place any more
        self._size = self._units([sizes[number] for number in self._numbers])
        first = np.array([ranges[number][0] for number in self._numbers])
        last = np.array([ranges[number][1] for number in self._numbers])
        sections = times_to_watch(first, last)
        self.sections = len(sections)
        self.pairs = int((np.searchsorted(sections, last) - np.searchsorted(sections, first)).sum())
        if self.pairs > LARGEST:
            return
        alive = (first <= sections[:, None]) & (sections[:, None] < last)
        alive = alive[np.argsort(-alive.sum(axis=1), kind="stable")]
        self._load = np.where(alive, self._size, 0).T.astype(self._dtype)  # of each buffer in each section
        self._members = _columns([np.flatnonzero(row) for row in alive])
        self._beside = (first < last[:, None]) & (last > first[:, None])
        self._obstacles = []  # (low end, high end, the free buffers that live at the same time), from the lowest up
        for number in sorted(fixed, key=lambda k: offsets[k]):
            beside = np.flatnonzero((first < ranges[number][1]) & (last > ranges[number][0]))
            low, high = self._units([offsets[number], offsets[number] + sizes[number]])
            self._obstacles.append((low, high, beside))

    def _units(self, nbytes: Sequence[int]) -> Ints:
        return np.array([number // self._unit for number in nbytes], self._dtype)

    def round(
        self, judgement: Judgement, rng: np.random.Generator, limit: int, stop: Callable[[], bool]
    ) -> list[int] | None:
        """One beam from the empty arena to a whole plan below ``limit`` bytes, or None."""
        count = len(self._numbers)
        total = self._load.sum(axis=0, dtype=self._dtype)
        hashes = rng.integers(1, 2**62, count, dtype=np.int64) * 2 + 1
        weight = (total / self._target) ** judgement.exponent * np.exp(judgement.pull)
        start = self._over_obstacles(np.zeros((1, count), self._dtype))
        beam = _Beam(start, total[None].copy(), np.zeros(1, self._dtype))
        steps: list[_BeamStep] = []
        for _ in range(count):
            if stop():
                return None
            children, step = self._children(beam, judgement.width)
            bound, score = self._judge(children, total, weight, judgement, rng)
            within = np.flatnonzero(bound * self._unit < limit)
            if not len(within):
                return None
            state = (children.lowest[within] * hashes).sum(axis=1)  # wraps around: a hash
            order = np.lexsort((state, score[within]))
            first_of_equals = np.unique(state[order], return_index=True)[1]
            kept = within[order[np.sort(first_of_equals)[: judgement.width]]]
            beam = children.rows(kept)
            steps.append(step.rows(kept))
        return self._plan(steps, int(beam.height.argmin()))

    def _plan(self, steps: Sequence[_BeamStep], row: int) -> list[int]:
        result = list(self._offsets)
        for step in reversed(steps):
            result[self._numbers[step.chosen[row]]] = int(step.offset[row]) * self._unit
            row = int(step.parent[row])
        return result

    def _children(self, beam: _Beam, width: int) -> tuple[_Beam, _BeamStep]:
        """Every partial plan with one buffer more, but none above a place where another would fit beneath."""
        roof = (beam.lowest + self._size).min(axis=1)
        allowed = beam.lowest < roof[:, None]
        most = max(1, CELLS // (len(self._numbers) * width))
        if allowed.sum(axis=1).max() > most:
            lowest = np.where(allowed, beam.lowest, self._never)
            kept = np.argsort(lowest, axis=1, kind="stable")[:, :most]
            few = np.zeros_like(allowed)
            np.put_along_axis(few, kept, True, axis=1)
            allowed &= few
        parent, chosen = np.nonzero(allowed)
        children, row = beam.rows(parent), np.arange(len(parent))
        offset = children.lowest[row, chosen]
        end = offset + self._size[chosen]
        lift = np.where(self._beside[chosen], end[:, None], offset[:, None])
        children.lowest = self._over_obstacles(np.maximum(children.lowest, lift))
        children.lowest[row, chosen] = self._never
        children.to_come -= self._load[chosen]
        children.height = np.maximum(children.height, end)
        return children, _BeamStep(parent, chosen, offset)

    def _over_obstacles(self, lowest: Ints) -> Ints:
        """Lift what would meet a fixed buffer above it; from the lowest obstacle up one pass is enough."""
        for low, high, beside in self._obstacles:
            start = lowest[:, beside]
            lowest[:, beside] = np.where((start < high) & (start + self._size[beside] > low), high, start)
        return lowest

    def _judge(
        self, beam: _Beam, total: Ints, weight: Ints, judgement: Judgement, rng: np.random.Generator
    ) -> tuple[Ints, Ints]:
        """A lower bound of the arena of each partial plan, and its score, the less the better."""
        floor = self._floor(beam.lowest)
        open_ = floor < self._never
        bound = np.maximum(np.where(open_, floor + beam.to_come, 0).max(axis=1), beam.height).astype(np.int64)
        used = total - beam.to_come
        score = (np.where(open_, floor - used, 0) * weight).sum(axis=1)
        if judgement.relative:
            score = score / np.maximum(used.sum(axis=1, dtype=np.int64), 1)
            score += judgement.height * np.maximum(bound - self._target, 0) / self._target
        if judgement.noise:
            score = score * (1 + judgement.noise * rng.random(len(score)))
        return bound, score

    def _floor(self, lowest: Ints) -> Ints:
        by_buffer = np.ascontiguousarray(lowest.T)
        floor: Ints = by_buffer[self._members[0]]
        for column in self._members[1:]:
            np.minimum(floor[: len(column)], by_buffer[column], out=floor[: len(column)])
        return floor.T


def _columns(members: Sequence[Ints]) -> list[Ints]:
    """The k-th member of every section that has one; the sections come with the most members first."""
    return [np.array([section[k] for section in members if k < len(section)]) for k in range(max(map(len, members)))]


def times_to_watch(first: Ints, last: Ints) -> Ints:
    """The births with a death before the next birth: all buffers that ever live together do so at one of these."""
    births, deaths = np.unique(first), np.unique(last)
    next_birth = np.append(births[1:], deaths[-1])
    next_death = deaths[np.searchsorted(deaths, births, side="right")]
    return births[next_death <= next_birth]
