"""Recompute: a program that shall fit a budget keeps less, and rematerializes some buffers by running kernels twice.

Input: steps in the order in which they run, a number of bytes, and a function that plans memory. Output: steps
that fit, some of them repeated right before what they make is read again. Nothing else changes: order and kernels stay
as they are, and so do the results. Where no choice fits, the error names the least that was found.

What is given up are buffers that are alive, but not in use, while most bytes are: in a training step the values that
the backward reads long after the forward made them. They are taken in the order in which they are made, v1 … vn; those
made last are read first. So while what v1 … vi were kept for is done, alive are

    the kept ones of v1 … vi  +  those of them that are repeated together with vi  +  what has nothing to do with them,

and a repetition reaches back to the nearest kept values that cut it off from everything before. A dynamic program over
(bytes kept, bytes repeated together) finds the choice that costs least time within a bound on that sum; the bound is
then moved until the planned arena, scratch and fragmentation included, meets the budget. For a chain of n equal layers
that is the checkpointing of A. Griewank and A. Walther ("Algorithm 799: revolve", ACM TOMS 26(1), 2000) with one
repetition, which needs about sqrt(2 n) of the n values. A minimum cut would not do: it minimizes the bytes kept, which
is least when everything is repeated from the inputs at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from staticgrad.base.frozen import record
from staticgrad.base.phases import phase
from staticgrad.base.reach import reach
from staticgrad.compiler.machine.machine import RATES
from staticgrad.compiler.memory.plan import live_ranges
from staticgrad.compiler.program.costs import step_cost
from staticgrad.compiler.program.memories import Memory, Temp
from staticgrad.compiler.program.slots import FetchSlot, GradSlot, StateSlot
from staticgrad.compiler.program.step import Step, placed

SMALL = 256  # buffers below this part of the peak are kept anyway
BUCKETS = 96  # parts of the bound, within which the dynamic program sees no difference
TRIALS = 12  # bounds that are tried; each costs a plan
ROUNDS = 3  # the next one begins at the peak that the last one left

Planner = Callable[[Sequence[Step]], int]


class OverBudgetError(Exception):
    """No program was found whose arena fits: the ``limit``, the ``least`` that was found, and what the ``whole`` takes
    with nothing computed again, in bytes."""

    def __init__(self, limit: int, least: int, whole: int) -> None:
        super().__init__(
            f"memory_budget of {limit} bytes: the least found is {least} bytes"
            f" ({whole} bytes with nothing computed again)"
        )
        self.limit, self.least, self.whole = limit, least, whole


@phase("recompute")
def fit(steps: Sequence[Step], budget: int | float, arena_bytes: Planner) -> list[Step]:
    """Steps whose planned arena does not exceed the budget.

    Args:
        budget: bytes, or as a float the part of the arena that the program needs without a budget.
        arena_bytes: the arena that a plan of some steps needs.

    Raises:
        OverBudgetError: no choice that was found fits.
    """
    whole = arena_bytes(steps)
    limit = int(budget * whole) if isinstance(budget, float) else budget
    current, least = list(steps), whole
    for _ in range(ROUNDS):
        if least <= limit:
            return current
        found, nbytes = _search(current, least, limit, arena_bytes)
        if nbytes >= least:
            break
        current, least = found, nbytes
    if least <= limit:
        return current
    raise OverBudgetError(limit, least, whole)


def _search(steps: list[Step], whole: int, limit: int, arena_bytes: Planner) -> tuple[list[Step], int]:
    """The cheapest steps that fit, else the smallest: these themselves, which need ``whole`` bytes, or others."""
    problem = _PeakProblem(steps)
    low, high = 0, problem.peak
    best: tuple[list[Step], int] | None = None
    smallest = (steps, whole)
    bound = min(limit, high)
    for _ in range(TRIALS):
        given_up = problem.choose(bound)
        if given_up is None:
            low = bound
        else:
            made = _repeat(problem, given_up)
            nbytes = arena_bytes(made)
            smallest = min(smallest, (made, nbytes), key=lambda pair: pair[1])
            if nbytes <= limit:
                best, low = (made, nbytes), bound
            else:
                high = bound
        bound = (low + high) // 2
    return best or smallest


# -- the problem ----------------------------------------------------------------------------------------------------


@record
class _Candidate:
    """Buffers that are made by the same steps and kept over the peak: what repeating those takes."""

    temps: tuple[Temp, ...]
    again: int  # the step that first reads one of them after the peak
    repeats: tuple[int, ...]  # numbers of the steps that make them from other values and from what is there anyway
    reads: frozenset[Temp]  # those other values
    seconds: float
    working: int  # bytes that the repetition needs for itself
    base: int = 0  # bytes alive when it is read again that have nothing to do with any value

    @property
    def nbytes(self) -> int:
        return sum(temp.nbytes for temp in self.temps)


class _PeakProblem:
    """The buffers that might be given up at the peak of some steps."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self.ranges = live_ranges(steps)
        self.makers: dict[Temp, list[int]] = defaultdict(list)
        self.uses: dict[Temp, list[int]] = defaultdict(list)
        self.written: dict[Memory, int] = {}  # state: the first step that writes it
        for time, step in enumerate(steps):
            for memory in step.memories:
                if isinstance(memory, Temp):
                    self.uses[memory].append(time)
            for memory in (*step.writes, *step.adds):
                if isinstance(memory, Temp):
                    self.makers[memory].append(time)
                elif isinstance(memory, StateSlot):
                    self.written.setdefault(memory, time)
        alive = _alive(self.ranges, len(steps))
        self.peak = max(alive, default=0)
        self.time = alive.index(self.peak) if alive else 0
        self.values = self._values()
        mine = {temp: self.ranges[temp] for value in self.values for temp in value.temps}
        others = [a - b for a, b in zip(alive, _alive(mine, len(steps)), strict=True)]
        self.base = others[self.time] if others else 0
        self.value_of = {temp: value for value in self.values for temp in value.temps}
        for value in self.values:
            value.base = max(others[value.again - 1 : value.again + 1])

    def is_small(self, temp: Temp) -> bool:
        return temp.nbytes * SMALL < self.peak

    def _values(self) -> list[_Candidate]:
        """The candidates, in the order in which their buffers are made."""
        together: dict[tuple[int, ...], list[Temp]] = defaultdict(list)
        for temp in self.uses:
            if self._is_idle(temp):
                together[tuple(self.makers[temp])].append(temp)
        candidates = {temp for temps in together.values() for temp in temps}
        tried = (self._value(tuple(together[makers]), candidates) for makers in sorted(together, key=lambda m: m[-1]))
        found = [value for value in tried if value is not None]
        known = {temp for value in found for temp in value.temps}
        for value in found:
            value.reads &= known
        return found

    def _is_idle(self, temp: Temp) -> bool:
        """True if a buffer is alive at the peak without being in use, and worth speaking of."""
        before = [time for time in self.uses[temp] if time <= self.time]
        after = self._again(temp)
        made = self.makers[temp]
        return bool(made and before) and not self.is_small(temp) and made[-1] <= before[-1] < after - 1

    def _again(self, temp: Temp) -> int:
        """The number of the step that first reads the buffer after the peak; -1: none does."""
        return next((time for time in self.uses[temp] if time > self.time), -1)

    def _value(self, temps: tuple[Temp, ...], candidates: set[Temp]) -> _Candidate | None:
        """The candidate of buffers that are made together: the cost of rematerializing them; None where that is
        impossible."""
        again = min(self._again(temp) for temp in temps)
        repeats: set[int] = set()
        reads: set[Temp] = set()
        stack, seen = list(temps), set(temps)
        while stack:
            for time in self.makers[stack.pop()]:
                if time in repeats:
                    continue
                step = self.steps[time]
                if not self._is_repeatable(step, again):
                    return None
                repeats.add(time)
                for memory in step.reads:
                    if isinstance(memory, Temp) and memory not in seen:
                        seen.add(memory)
                        if memory in candidates:
                            reads.add(memory)
                        elif not self.is_there(memory, again):
                            stack.append(memory)
        times = tuple(sorted(repeats))
        working = max(
            sum(m.nbytes for m in self.steps[t].memories if isinstance(m, Temp) and m not in temps and m not in reads)
            for t in times
        )
        return _Candidate(temps, again, times, frozenset(reads), sum(_seconds(self.steps[t]) for t in times), working)

    def is_there(self, temp: Temp, time: int) -> bool:
        """True if the repetition may read a buffer as it is, since it is still there or hardly costs anything."""
        return self.is_small(temp) or self.ranges[temp][1] > time

    def _is_repeatable(self, step: Step, again: int) -> bool:
        if step.kernel is None or not step.kernel.is_repeatable or step.check is not None:
            return False
        if not all(isinstance(memory, Temp) for memory in (*step.writes, *step.adds)):
            return False
        return not any(
            isinstance(memory, GradSlot | FetchSlot) or self.written.get(memory, again) < again for memory in step.reads
        )

    # -- the choice ---------------------------------------------------------------------------------------------------

    def choose(self, bound: int) -> frozenset[Temp] | None:
        """The values to give up so that at no time more than ``bound`` bytes should be alive, at the least cost."""
        values = self.values
        place = {temp: index for index, value in enumerate(values) for temp in value.temps}
        reach = list(range(len(values)))  # the last value whose repetition reads this one
        for index, value in enumerate(values):
            for temp in value.reads:
                reach[place[temp]] = max(reach[place[temp]], index)
        crossing = [0] * len(values)  # as bits: the values up to here that later repetitions read
        for index, last in enumerate(reach):
            for boundary in range(index, last):
                crossing[boundary] |= 1 << index
        unit = max(bound // BUCKETS, 1)
        states: list[tuple[float, int, int, int]] = [(0.0, 0, 0, 0)]  # seconds, kept, repeated together, bits of kept
        for index, value in enumerate(values):
            following: dict[tuple[int, int], tuple[float, int, int, int]] = {}
            for seconds, kept, together, bits in states:
                nbytes = value.nbytes
                for state in (
                    (seconds, kept + nbytes, together, bits | 1 << index),
                    (seconds + value.seconds, kept, together + nbytes, bits),
                ):
                    repeated = state[3] == bits
                    room = bound - value.base - (value.working if repeated else 0)
                    if state[1] + state[2] > room or state[1] + self.base > bound:
                        continue
                    if not crossing[index] & ~state[3]:
                        state = (state[0], state[1], 0, state[3])
                    key = (state[1] // unit, state[2] // unit)
                    if key not in following or state < following[key]:
                        following[key] = state
            states = _undominated(following)
            if not states:
                return None
        bits = min(states)[3]
        return frozenset(temp for index, value in enumerate(values) if not bits >> index & 1 for temp in value.temps)


def _undominated(states: dict[tuple[int, int], tuple[float, int, int, int]]) -> list[tuple[float, int, int, int]]:
    """The states that no cheaper one beats in both kinds of bytes."""
    front: list[tuple[int, int]] = []
    result = []
    for key, state in sorted(states.items(), key=lambda item: item[1]):
        if not any(kept <= key[0] and together <= key[1] for kept, together in front):
            front.append(key)
            result.append(state)
    return result


def _alive(ranges: dict[Temp, tuple[int, int]], count: int) -> list[int]:
    """The bytes alive at each step."""
    change = [0] * (count + 1)
    for temp, (first, last) in ranges.items():
        change[first] += temp.nbytes
        change[last] -= temp.nbytes
    alive, total = [], 0
    for time in range(count):
        total += change[time]
        alive.append(total)
    return alive


def _seconds(step: Step) -> float:
    cost = step_cost(step)
    return max(cost.flops / RATES.repeated_flops_per_second, cost.bytes / RATES.repeated_bytes_per_second)


# -- the new steps --------------------------------------------------------------------------------------------------


def _repeat(problem: _PeakProblem, given_up: frozenset[Temp]) -> list[Step]:
    """The steps, with what is given up rematerialized before it is read."""
    again: dict[Memory, Memory] = {}
    result = list(problem.steps[: problem.time + 1])
    for step in problem.steps[problem.time + 1 :]:
        wanted = [m for m in step.memories if isinstance(m, Temp) and m in given_up and m not in again]
        if wanted:
            result.extend(_repetition(problem, wanted, given_up, again))
        result.append(placed(step, again))
    return result


def _repetition(
    problem: _PeakProblem, wanted: Sequence[Temp], given_up: frozenset[Temp], again: dict[Memory, Memory]
) -> list[Step]:
    """Copies of the steps that make some values; others that they need come with them. ``again`` learns the new ones.
    What is made on the way, or made again though it is still there, has memory of its own."""

    def missing(temp: Temp) -> list[Temp]:
        return [read for read in problem.value_of[temp].reads if read in given_up and read not in again]

    times = {time for temp in reach(wanted, missing) for time in problem.value_of[temp].repeats}
    steps = [problem.steps[time] for time in sorted(times)]
    made = dict.fromkeys(m for s in steps for m in (*s.writes, *s.adds) if isinstance(m, Temp))
    new: dict[Memory, Memory] = {temp: replace(temp, name=f"{temp.name}.again") for temp in made}
    copies = [_copy(step, {**again, **new}) for step in steps]
    again.update((temp, new[temp]) for temp in made if temp in given_up and temp not in again)
    return copies


def _copy(step: Step, again: dict[Memory, Memory]) -> Step:
    scratch = replace(step.scratch) if step.scratch is not None else None
    return replace(placed(step, again), name=f"{step.name}_again", scratch=scratch, after=[])
