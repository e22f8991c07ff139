"""Steps run with NumPy: what a program computes, memory by memory, where its kernels are their references.

Input: steps in order, and the bytes of every memory that they touch. Output: the bytes that they write. Loops and
branches run their parts as steps do; every buffer of a part has memory of its own, so nothing here depends on where
buffers were placed. A buffer that holds an operand packed has the operand's own bytes, since how operands are packed is
the emitter's (``kernels.reference``).
"""

from __future__ import annotations

import math
from collections.abc import MutableMapping, Sequence

import numpy as np

from staticgrad.compiler.kernels.kernel import Kernel
from staticgrad.compiler.kernels.matrix import Packing
from staticgrad.compiler.kernels.reference import Noise, run_kernel
from staticgrad.compiler.program.memories import Memory, Operand, Temp
from staticgrad.compiler.program.slots import CallbackSlot, CollectiveSlot, FeedSlot, FetchSlot
from staticgrad.compiler.program.step import Branch, Loop, Part, Rewind, Step, lent_slots
from staticgrad.graph.optable import Array

Memories = MutableMapping[Memory, Array]  # uint8
INT64 = np.dtype(np.int64)
MOST_TURNS = 1_000_000  # of a loop that only its condition ends


def run_step(step: Step, memories: Memories, noise: Noise | None = None) -> None:
    """Run one step; checks and calls of Python functions do nothing."""
    if step.loop is not None and noise is not None:
        noise = noise.in_loops
    if isinstance(step.loop, Loop):
        _run_loop(step.loop, [_bytes(memories, o) for o in step.operands], noise)
    elif isinstance(step.loop, Rewind):
        _run_rewind(step.loop, [_bytes(memories, o) for o in step.operands], noise)
    elif isinstance(step.loop, Branch):
        _run_branch(step.loop, [_bytes(memories, o) for o in step.operands], noise)
    elif isinstance(step.kernel, Packing):
        source, packed = step.operands
        memories[packed.memory] = _bytes(memories, source).copy()
    elif step.kernel is not None:
        run_kernel(step.kernel, _arguments(step.kernel, step.operands, memories), noise)


def written_dtypes(step: Step) -> dict[Memory, np.dtype]:
    """The memories that a step writes, and of which dtype what it writes there is."""
    if step.kernel is not None:
        dtypes = dict(zip((o.memory for o in step.operands), step.kernel.args, strict=True))
    elif step.loop is not None:
        types = {slot.index: slot.type for slot in step.loop.parts[0].slots if isinstance(slot, FetchSlot)}
        results = step.operands[step.loop.inputs : step.loop.inputs + step.loop.outputs]
        numbers = list(range(len(results)))
        if isinstance(step.loop, Loop) and step.loop.condition is not None:  # its turns stand between them
            taken = len(step.loop.carries)
            numbers = [*range(taken), -1, *range(taken, len(results) - 1)]
        if isinstance(step.loop, Loop) and step.loop.kept:
            numbers[len(numbers) - len(step.loop.kept) :] = step.loop.kept
        dtypes = {
            o.memory: types[number].dtype if number in types else INT64
            for o, number in zip(results, numbers, strict=True)
        }
    else:
        return {}
    return {memory: dtypes[memory] for memory in dict.fromkeys((*step.writes, *step.adds)) if memory in dtypes}


def calls_python(step: Step) -> bool:
    """Something in the step is a Python function of the user's, or done together with other processes."""
    parts = step.loop.parts if step.loop is not None else ()
    lent = lent_slots(parts)
    return step.callback is not None or any(isinstance(slot, CallbackSlot | CollectiveSlot) for slot in lent)


def _bytes(memories: Memories, operand: Operand) -> Array:
    return memories[operand.memory][operand.offset :]


def _arguments(kernel: Kernel, operands: Sequence[Operand], memories: Memories) -> list[Array]:
    """The memory that each argument addresses, as a flat array of its dtype."""
    found = []
    for operand, dtype in zip(operands, kernel.args, strict=True):
        memory = _bytes(memories, operand)
        found.append(memory[: memory.size // dtype.itemsize * dtype.itemsize].view(dtype))
    return found


# -- parts ----------------------------------------------------------------------------------------------------------


class _Buffers(dict[Memory, Array]):
    """The memories of a part, where a buffer is made when it is first touched."""

    def __missing__(self, memory: Memory) -> Array:
        assert isinstance(memory, Temp)
        self[memory] = made = np.zeros(memory.nbytes, np.uint8)
        return made


def _run_part(part: Part, feeds: Sequence[Array], lent: Memories, noise: Noise | None) -> list[Array]:
    """The bytes of what a part hands out."""
    memories, fetches = _Buffers(), dict[int, Array]()
    for slot in part.slots:
        if isinstance(slot, FeedSlot):
            memories[slot] = feeds[slot.index]
        elif isinstance(slot, FetchSlot):
            memories[slot] = fetches[slot.index] = np.zeros(slot.type.nbytes, np.uint8)
        else:
            memories[slot] = lent[slot]
    for step in part.steps:
        run_step(step, memories, noise)
    return [fetches[index] for index in sorted(fetches)]


def _lent(step: Loop | Rewind | Branch, operands: Sequence[Array]) -> Memories:
    return dict(zip(lent_slots(step.parts), operands[step.inputs + step.outputs :], strict=True))


def _run_branch(step: Branch, operands: Sequence[Array], noise: Noise | None) -> None:
    part = step.parts[0 if operands[0][0] else 1]
    found = _run_part(part, operands[1 : step.inputs], _lent(step, operands), noise)
    for array, value in zip(operands[step.inputs :], found, strict=False):
        array[: value.size] = value


def _run_loop(step: Loop, operands: Sequence[Array], noise: Noise | None) -> None:
    carries, lent = len(step.carries), _lent(step, operands)
    first, rows = step.counted + carries, step.counted + carries + len(step.sequences)
    state = [x[:n].copy() for x, n in zip(operands[step.counted :], step.carries, strict=False)]
    captured, outputs = operands[rows : step.inputs], operands[step.inputs :]
    stacked = outputs[step.first_result : step.first_result + len(step.results)]
    snapshots = outputs[step.first_result + len(step.results) : step.outputs]
    most = int(operands[0][:8].view(INT64)[0]) if step.counted else MOST_TURNS if step.length is None else step.length
    taken = 0
    while taken < most:
        turn = most - 1 - taken if step.reverse else taken
        index = np.array([turn], INT64).view(np.uint8)
        read = [x[turn * n : (turn + 1) * n] for x, n in zip(operands[first:rows], step.sequences, strict=True)]
        feeds = [index, *state, *read, *captured]
        if step.condition is not None and not _run_part(step.condition, feeds, lent, noise)[0][0]:
            break
        for j, array in zip(step.kept, snapshots if taken in step.starts else (), strict=False):
            place = step.starts.index(taken) * step.carries[j]
            array[place : place + step.carries[j]] = state[j]
        found = _run_part(step.body, feeds, lent, noise)
        state = [x[:n] for x, n in zip(found, step.carries, strict=False)]
        for array, n, value in zip(stacked, step.results, found[carries:], strict=True):
            array[turn * n : (turn + 1) * n] = value
        taken += 1
    for array, value in zip(outputs, state, strict=False):
        array[: value.size] = value
    if step.condition is not None:
        outputs[carries][:8].view(INT64)[0] = taken


def _run_rewind(step: Rewind, operands: Sequence[Array], noise: Noise | None) -> None:
    middle = step.counted + len(step.carries)
    end, lent = middle + len(step.states), _lent(step, operands)
    carries = [x[:n].copy() for x, n in zip(operands[step.counted :], step.carries, strict=False)]
    rows, captured = operands[end : end + len(step.sequences)], operands[end + len(step.sequences) : step.inputs]
    stacked = operands[step.inputs + len(step.carries) : step.inputs + step.outputs]
    turns, plan = int(operands[0][:8].view(INT64)[0]) if step.counted else step.length, step.schedule

    def given(turn: int, *values: Array) -> list[Array]:
        number = turn if step.reverse else turns - 1 - turn
        read = [x[number * n : (number + 1) * n] for x, n in zip(rows, step.sequences, strict=True)]
        return [np.array([number], INT64).view(np.uint8), *values, *read, *captured]

    snapshots = [
        (turn, [x[slot * n : (slot + 1) * n].copy() for x, n in zip(operands[middle:], step.states, strict=False)])
        for slot, turn in enumerate(plan.starts)
        if turn < turns
    ]
    for turn in reversed(range(turns)):
        at, state = snapshots[-1]
        while at < turn:
            found = _run_part(step.advance, given(at, *state), lent, noise)
            at, state = at + 1, [x[:n] for x, n in zip(found, step.states, strict=True)]
            if plan.ends[at] > turn:
                snapshots.append((at, state))
        found = _run_part(step.body, given(turn, *carries, *state), lent, noise)
        carries = [x[:n] for x, n in zip(found, step.carries, strict=False)]
        number = turn if step.reverse else turns - 1 - turn
        for array, n, value in zip(stacked, step.results, found[len(carries) :], strict=True):
            array[number * n : (number + 1) * n] = value
        if snapshots[-1][0] == turn:
            snapshots.pop()
    for array, value in zip(operands[step.inputs :], carries, strict=False):
        array[: value.size] = value


def terms_of_step(step: Step) -> int:
    """An estimate of the number of terms that are summed in one element that a step writes."""
    if step.loop is None:
        return step.kernel.terms if step.kernel is not None else 1
    turns = 1 if isinstance(step.loop, Branch) or step.loop.length is None else step.loop.length
    inner = [terms_of_step(inner) for part in step.loop.parts for inner in part.steps]
    return math.prod((max(1, turns), max(inner, default=1)))
