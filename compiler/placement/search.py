"""A search for better placements: a plan in, a plan that is no worse out.

    search ::= (attempts to fit, a beam)*                 until the target is met, the capacity holds it all, or stop()
    attempt ::= an order of preference, a capacity, tries        depth first, see ``fitting.py``
    beam ::= a way to judge partial plans, a width               see ``beam.py``

An attempt lives or dies by the first choices it makes, and many short ones under several orders do better than a long
one: the tries follow the sequence of Luby, Sinclair and Zuckerman ("Optimal speedup of Las Vegas algorithms", 1993).
First come the orders that serve best as they are (among them those of MiniMalloc), then orders with a little noise, and
now and then one of the first again with many tries. An attempt that is through with all plans raises the target. The
generator is seeded: the same number of turns gives the same plan.

On MiniMalloc's five hard problems greedy orders leave plans 25 to 36 % above the bound, this search 0 to 7 % after a
second and 0 to 4 % after twenty. Attempts alone leave 10 % where no capacity is known to aim at; beams alone do not fit
two of the five into the capacity in which all have a place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from staticgrad.compiler.placement.beam import LARGEST, BeamProblem, Beams, times_to_watch
from staticgrad.compiler.placement.fitting import Buffer, Fitting, SearchOutcome

Range = tuple[int, int]

ATTEMPTS = 2  # before each beam
TRIES = 4  # of the shortest attempts, for every buffer
NAMED = 16  # times the tries of the shortest: from here on a named order is worth another attempt
MOST = 2000  # buffers, beyond which an attempt takes too long, and its stack too many bytes
WIDER = 1.2  # by so much an attempt aims closer to the best plan if the last one failed
ORDERS = ("total area life", "total life area", "total beside", "birth", "sections")  # largest first
NOISY = ("area", "life", "beside")
NOISES = (0.02, 0.05, 0.1, 0.2)  # of the logarithm


def improve(
    ranges: Sequence[Range],
    sizes: Sequence[int],
    offsets: Sequence[int],
    fixed: Sequence[int],
    target: int,
    stop: Callable[[], bool],
    capacity: int | None = None,
) -> list[int]:
    """The best offsets found until ``stop()`` or until the arena is no larger than ``target`` or ``capacity`` bytes.

    ``offsets`` is a valid plan of buffers alive in ``ranges``; those numbered in ``fixed`` stay where they are. No plan
    may be known to take less than ``target``.
    """
    best = list(offsets)
    best_bytes = _arena(best, sizes)
    problem = BeamProblem(ranges, sizes, offsets, fixed, target)
    if problem.pairs > LARGEST:
        return best
    rng = np.random.default_rng(0)
    beams = Beams(problem, rng)
    attempts = _Attempts(ranges, sizes, offsets, fixed, rng)
    turn = 0
    while best_bytes > max(target, capacity or 0) and not stop():
        turn += 1
        if turn % (ATTEMPTS + 1) == 0 or not attempts.worthwhile:
            found = beams.round(best_bytes, stop)
        else:
            aim = attempts.aim(target, best_bytes) if capacity is None else max(target, capacity)
            outcome, found = attempts.attempt(aim, stop)
            if outcome is SearchOutcome.IMPOSSIBLE:
                target = max(target, (aim // attempts.unit + 1) * attempts.unit)
                if capacity is not None and target > capacity:
                    capacity = None
        if found is not None:
            best, best_bytes = found, _arena(found, sizes)
    return best


def _arena(offsets: Sequence[int], sizes: Sequence[int]) -> int:
    return max(offset + size for offset, size in zip(offsets, sizes, strict=True))


class _Attempts:
    """Attempts to fit the buffers that are free, one after the other."""

    def __init__(
        self,
        ranges: Sequence[Range],
        sizes: Sequence[int],
        offsets: Sequence[int],
        fixed: Sequence[int],
        rng: np.random.Generator,
    ) -> None:
        stay = set(fixed)
        self._numbers = [number for number, size in enumerate(sizes) if size and number not in stay]
        self.worthwhile = len(self._numbers) <= MOST
        self.unit = math.gcd(*sizes, *(offsets[number] for number in fixed))  # of all offsets worth a look
        self._offsets, self._rng = offsets, rng
        self._count = self._named = 0
        self._share = 0.5
        if not self.worthwhile:
            return
        first = np.array([ranges[number][0] for number in self._numbers])
        last = np.array([ranges[number][1] for number in self._numbers])
        nbytes = np.array([sizes[number] for number in self._numbers])
        sections = times_to_watch(first, last)
        low, high = np.searchsorted(sections, first), np.searchsorted(sections, last)
        obstacles = sorted((offsets[k], offsets[k] + sizes[k], *ranges[k]) for k in fixed)
        buffers = [
            Buffer(
                sizes[number], int(low[place]), int(high[place]),
                tuple((o[0], o[1]) for o in obstacles if o[2] < ranges[number][1] and ranges[number][0] < o[3]),
            )
            for place, number in enumerate(self._numbers)
        ]  # fmt: skip
        self._fitting = Fitting(buffers, len(sections))
        beside = (low < high[:, None]) & (low[:, None] < high)
        load = [int(nbytes[(low <= section) & (section < high)].sum()) for section in range(len(sections))]
        total = [max(load[buffer.first : buffer.last]) for buffer in buffers]
        self._features = {
            "total": np.array(total, float),
            "area": (last - first) * nbytes.astype(float),
            "life": (last - first).astype(float),
            "beside": beside.sum(axis=1).astype(float),
            "birth": first.astype(float),
            "sections": (high - low).astype(float),
            "nbytes": nbytes.astype(float),
        }

    def aim(self, target: int, best: int) -> int:
        """A capacity below the best plan: every other time the target, else a part of the way back from there."""
        share = self._share if self._count % 2 else 0.0
        return target + int(share * (best - self.unit - target))

    def attempt(self, capacity: int, stop: Callable[[], bool]) -> tuple[SearchOutcome, list[int] | None]:
        """One attempt, and the offsets if it fits."""
        self._count += 1
        length = luby(self._count)
        tries = TRIES * length * len(self._numbers)
        if self._count <= len(ORDERS) or length >= NAMED:
            order = self._order(ORDERS[self._named % len(ORDERS)])
            self._named += 1
        else:
            order = self._any_order()
        outcome, found = self._fitting.search(order, capacity, tries, stop)
        if outcome is not SearchOutcome.FITS:
            self._share = min(self._share * WIDER, 1.0)
            return outcome, None
        self._share /= 2
        result = list(self._offsets)
        for number, offset in zip(self._numbers, found, strict=True):
            result[number] = offset
        return outcome, result

    def _order(self, names: str) -> list[int]:
        return self._sorted([self._features[name] for name in names.split()])

    def _any_order(self) -> list[int]:
        """A feature, or the product of two, times noise of a few percent, by itself or after the total."""
        names = self._rng.choice(NOISY, 2 if self._rng.random() < 0.2 else 1, replace=False)
        key = np.sum([np.log(np.maximum(self._features[name], 1)) for name in names], axis=0)
        key += float(self._rng.choice(NOISES)) * self._rng.standard_normal(len(key))
        return self._sorted([key] if self._rng.random() < 0.5 else [self._features["total"], key])

    def _sorted(self, keys: Sequence[np.ndarray]) -> list[int]:
        """Largest first by the first key, then by the next."""
        order: list[int] = np.lexsort([-key for key in reversed(keys)]).tolist()
        return order


def luby(number: int) -> int:
    """The ``number``-th term, from 1 on, of 1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8, …"""
    while number & (number + 1):
        number -= (1 << (number.bit_length() - 1)) - 1
    return (number + 1) >> 1
