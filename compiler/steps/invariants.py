"""Packing hoisted out of loops: an operand that a loop would pack alike in each turn is packed once, before the loop.

Input: the steps of a loop's body, not yet in order, with its slots. Output: the same steps, in which matrix
kernels are given operands packed that no turn changes, and as feeds more what the loop's caller has to pack. Recurrent
layers multiply by the same weights in each step.
"""

from __future__ import annotations

from collections.abc import Sequence

from staticgrad.base.phases import phase
from staticgrad.base.types import TensorType
from staticgrad.compiler.kernels.matrix import Packing
from staticgrad.compiler.plans.planner import KernelPlanner
from staticgrad.compiler.program.memories import Memory, Temp
from staticgrad.compiler.program.slots import FeedSlot, Slot
from staticgrad.compiler.program.step import PackedFeed, Step, placed, replaced
from staticgrad.compiler.steps.prepare import packed_apart


@phase("prepare")
def packed_before(
    steps: Sequence[Step], slots: tuple[Slot, ...], captured: int, planner: KernelPlanner
) -> tuple[list[Step], tuple[Slot, ...], tuple[PackedFeed, ...]]:
    """The steps, slots and packed feeds of a body whose feeds from number ``captured`` on are invariant."""
    first = 1 + max((slot.index for slot in slots if isinstance(slot, FeedSlot)), default=-1)
    found: list[PackedFeed] = []
    more: list[Slot] = []

    def lasts(memory: Memory) -> bool:
        return isinstance(memory, FeedSlot) and captured <= memory.index < first

    def given(step: Step) -> list[Step] | None:
        apart = packed_apart(step, planner, lasts)
        if apart is None:
            return None
        packing, rest = apart
        operand, kernel, packed = packing.operands[0], packing.kernel, packing.operands[1].memory
        assert isinstance(operand.memory, FeedSlot)
        assert isinstance(kernel, Packing)
        assert isinstance(packed, Temp)
        more.append(FeedSlot(first + len(found), TensorType((packed.nbytes // kernel.dtype.itemsize,), kernel.dtype)))
        found.append(PackedFeed(operand.memory.index, operand.offset, kernel, packed.nbytes))
        return [placed(rest, {packed: more[-1]})]

    made = replaced(steps, given)
    return made, (*slots, *more), tuple(found)
