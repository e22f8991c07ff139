"""Schedule: in which order the steps run.

Input: steps with what they read, write and add to. Output: the same steps in an order that respects them and
keeps few bytes alive: of the steps that are ready, the one runs that frees most (allocates least), ties as declared;
what other processes wait for runs before all others. Which order is chosen never changes a value: it is decided by the
sizes alone.

    fill or write of a buffer  <  additions to it  <  its readers
    readers of a variable      <  its write
    what can fail              <  every write of state
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from staticgrad.base.frozen import record
from staticgrad.base.phases import phase
from staticgrad.base.reach import reach
from staticgrad.compiler.program.memories import Memory, Temp
from staticgrad.compiler.program.slots import CollectiveSlot, GradSlot, StateSlot
from staticgrad.compiler.program.step import Step


@record
class Barrier:
    """Stands between steps that must all run before others: a dependency for each step, where each of the
    others on each would be their product."""


Event: TypeAlias = Step | Barrier
Dependencies: TypeAlias = dict[Event, set[Event]]


def dependencies(steps: Sequence[Step]) -> Dependencies:
    """For each step the steps and barriers that come before it, and the same for each barrier. What a step says of
    itself comes first, then what follows from memory: two steps that update different elements of one memory each read
    and write it."""
    writers: dict[Memory, list[Step]] = defaultdict(list)
    adders: dict[Memory, list[Step]] = defaultdict(list)
    readers: dict[Memory, list[Step]] = defaultdict(list)
    for step in steps:
        for memory in step.writes:
            writers[memory].append(step)
        for memory in step.adds:
            adders[memory].append(step)
        for memory in step.reads:
            readers[memory].append(step)
    before: Dependencies = {step: set(step.after) for step in steps}
    for memory in dict.fromkeys((*writers, *adders)):
        if isinstance(memory, StateSlot):
            _order(before, readers[memory], writers[memory])
            continue
        if isinstance(memory, GradSlot):
            made = dict.fromkeys(writers[memory])
            _order(before, [step for step in readers[memory] if step not in made], writers[memory])
            continue
        _order(before, writers[memory], adders[memory])
        made = dict.fromkeys((*writers[memory], *adders[memory]))
        _order(before, tuple(made), [step for step in readers[memory] if step not in made])
    return before


def _order(before: Dependencies, first: Sequence[Step], then: Sequence[Step]) -> None:
    """Let ``first`` run before ``then``, except where one of the former says that it runs after one of the latter."""
    behind = set(then)
    plain = [step for step in first if step not in behind and behind.isdisjoint(step.after)]
    if len(plain) > 1 and len(then) > 1:
        barrier = Barrier()
        before[barrier] = set(plain)
        for step in then:
            before[step].add(barrier)
        first = [step for step in first if step in behind or not behind.isdisjoint(step.after)]
    for step in then:
        before[step].update(other for other in first if other is not step and step not in other.after)


def _guard_state(steps: Sequence[Step], before: Dependencies) -> None:
    """Put all steps that can fail before the first write of state; lowering sees to it that none of them depends on
    one."""
    writing = [step for step in steps if step.writes_state]
    failing = [step for step in steps if step.can_fail]
    if writing and failing:
        barrier = Barrier()
        before[barrier] = set(failing)
        for write in writing:
            before[write].add(barrier)


def ancestors(steps: Sequence[Step], before: Mapping[Event, set[Event]]) -> set[Step]:
    """The steps that must run before one of ``steps``."""
    found = reach({other for step in steps for other in before[step]}, before.__getitem__)
    return {event for event in found if isinstance(event, Step)}


def unordered(steps: Sequence[Step]) -> set[Step]:
    """The steps that are in a cycle or after one; empty if an order exists."""
    progress = _ReadySteps(dependencies(steps))
    ready = progress.first()
    done: set[Step] = set()
    while ready:
        step = ready.pop()
        done.add(step)
        ready += progress.released(step)
    return set(steps) - done


class _ReadySteps:
    """The steps that may run next, as others have run."""

    def __init__(self, before: Dependencies) -> None:
        self._after: dict[Event, list[Event]] = defaultdict(list)
        self._waiting: dict[Event, int] = {}
        for event, others in before.items():
            self._waiting[event] = len(others)
            for other in others:
                self._after[other].append(event)

    def first(self) -> list[Step]:
        """The steps that wait for nothing."""
        return [event for event, count in self._waiting.items() if not count and isinstance(event, Step)]

    def released(self, event: Event) -> Iterator[Step]:
        """The steps that waited for this one last."""
        for follower in self._after[event]:
            self._waiting[follower] -= 1
            if not self._waiting[follower]:
                if isinstance(follower, Barrier):
                    yield from self.released(follower)
                else:
                    yield follower


@phase("schedule")
def schedule(steps: Sequence[Step], *, greedy: bool = True) -> list[Step]:
    """The order in which the steps run; without ``greedy`` as they were declared, as far as that is possible."""
    before = dependencies(steps)
    _guard_state(steps, before)
    progress = _ReadySteps(before)
    users: dict[Memory, int] = defaultdict(int)
    for step in steps:
        for memory in step.memories:
            users[memory] += 1
    begun: set[Memory] = set()

    def growth(step: Step) -> int:
        """Bytes alive after the step minus bytes alive before it."""
        total = 0
        if isinstance(step.callback, CollectiveSlot) and step.callback.name == "reduce_start":
            return -(2**62)  # at once: it goes on while the next steps run
        if not greedy:
            return 0
        for memory in step.memories:
            if isinstance(memory, Temp):
                total += 0 if memory in begun else memory.nbytes
                total -= memory.nbytes if users[memory] == 1 else 0
        return total

    numbers = {step: number for number, step in enumerate(steps)}
    heap = [(growth(step), step.serial, numbers[step], step) for step in progress.first()]
    heapq.heapify(heap)
    order: list[Step] = []
    while heap:
        grown, _, number, step = heapq.heappop(heap)
        now = growth(step)
        if now != grown and heap and now > heap[0][0]:
            heapq.heappush(heap, (now, step.serial, number, step))
            continue
        order.append(step)
        for memory in step.memories:
            begun.add(memory)
            users[memory] -= 1
        for follower in progress.released(step):
            heapq.heappush(heap, (growth(follower), follower.serial, numbers[follower], follower))
    if len(order) != len(steps):
        raise AssertionError("the steps have no order")
    return _with_late_fills(order)


def _with_late_fills(order: Sequence[Step]) -> list[Step]:
    """A buffer that is filled with a constant is filled right before it is first added to, and lives from then on."""
    fills: dict[Memory, Step] = {step.writes[0]: step for step in order if step.fills and not step.reads}
    result: list[Step] = []
    late = set(fills.values())
    for step in order:
        if step in late:
            continue
        for memory in step.memories:
            if memory in fills:
                result.append(fills.pop(memory))
        result.append(step)
    return result
