"""Schedule: in which order the steps run.

Comes in: steps with what they read, write and add to. Goes out: the same steps in an order that respects them and
keeps few bytes alive: of the steps that are ready, the one runs that frees most (allocates least), ties as declared.
Which order is chosen never changes a value: it is decided by the sizes alone.

    fill or write of a buffer  <  additions to it  <  its readers
    readers of a variable      <  its write
    what can fail              <  every write of state
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence

from staticgrad.compiler.program import StateSlot
from staticgrad.compiler.steps.step import Memory, Step, Temp
from staticgrad.phases import phase
from staticgrad.reach import reach


def dependencies(steps: Sequence[Step]) -> dict[Step, set[Step]]:
    """For each step the steps that must run before it. What a step says of itself comes first, then what follows from
    memory: two steps that update different elements of one memory each read and write it."""
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
    before: dict[Step, set[Step]] = {step: set(step.after) for step in steps}

    def order(first: Sequence[Step], then: Sequence[Step]) -> None:
        for step in then:
            before[step].update(other for other in first if other is not step and step not in other.after)

    for memory in dict.fromkeys((*writers, *adders)):
        if isinstance(memory, StateSlot):
            order(readers[memory], writers[memory])
            continue
        order(writers[memory], adders[memory])
        made = [*writers[memory], *adders[memory]]
        order(made, [step for step in readers[memory] if step not in made])
    return before


def _guard_state(steps: Sequence[Step], before: dict[Step, set[Step]]) -> None:
    """What can fail runs before the first write of state; lowering sees to it that none of it depends on one."""
    writing = [step for step in steps if step.writes_state]
    failing = [step for step in steps if step.can_fail]
    for write in writing:
        before[write].update(failing)


def ancestors(steps: Sequence[Step], before: Mapping[Step, set[Step]]) -> set[Step]:
    """The steps that must run before one of ``steps``."""
    return reach({other for step in steps for other in before[step]}, before.__getitem__)


def unordered(steps: Sequence[Step]) -> set[Step]:
    """The steps that are in a cycle or behind one; empty if an order exists."""
    before = dependencies(steps)
    after: dict[Step, list[Step]] = defaultdict(list)
    waiting = {}
    for step, others in before.items():
        waiting[step] = len(others)
        for other in others:
            after[other].append(step)
    ready = [step for step in steps if not waiting[step]]
    done: set[Step] = set()
    while ready:
        step = ready.pop()
        done.add(step)
        for follower in after[step]:
            waiting[follower] -= 1
            if not waiting[follower]:
                ready.append(follower)
    return set(steps) - done


@phase("schedule")
def schedule(steps: Sequence[Step], *, greedy: bool = True) -> list[Step]:
    """The order in which the steps run; without ``greedy`` as they were declared, as far as that is possible."""
    before = dependencies(steps)
    _guard_state(steps, before)
    after: dict[Step, list[Step]] = defaultdict(list)
    waiting: dict[Step, int] = {}
    users: dict[Memory, int] = defaultdict(int)
    for step in steps:
        waiting[step] = len(before[step])
        for other in before[step]:
            after[other].append(step)
        for memory in step.memories:
            users[memory] += 1
    begun: set[Memory] = set()

    def growth(step: Step) -> int:
        """Bytes alive after the step minus bytes alive before it."""
        total = 0
        if not greedy:
            return 0
        for memory in step.memories:
            if isinstance(memory, Temp):
                total += 0 if memory in begun else memory.nbytes
                total -= memory.nbytes if users[memory] == 1 else 0
        return total

    heap = [(growth(step), step.serial, number, step) for number, step in enumerate(steps) if not waiting[step]]
    heapq.heapify(heap)
    numbers = {step: number for number, step in enumerate(steps)}
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
        for follower in after[step]:
            waiting[follower] -= 1
            if not waiting[follower]:
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
