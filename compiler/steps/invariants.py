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
from staticgrad.compiler.steps.prepare import Packings


@phase("prepare")
def packed_before(
    steps: Sequence[Step], slots: tuple[Slot, ...], captured: int, planner: KernelPlanner
) -> tuple[list[Step], tuple[Slot, ...], tuple[PackedFeed, ...]]:
    """The steps, slots and packed feeds of a body whose feeds from number ``captured`` on are invariant."""
    first = 1 + max((slot.index for slot in slots if isinstance(slot, FeedSlot)), default=-1)
    found: list[PackedFeed] = []
    more: list[Slot] = []
    lent: dict[Memory, Memory] = {}  # by the buffer of what is packed, what the caller packs it into

    def lasts(memory: Memory) -> bool:
        return isinstance(memory, FeedSlot) and captured <= memory.index < first

    packings = Packings(planner, lasts)

    def given(step: Step) -> list[Step] | None:
        parts = packings.parts(step)
        if parts is None:
            return None
        *packing, rest = parts
        for pack in packing:  # none where an earlier kernel is given the same
            (operand, to), kernel = pack.operands, pack.kernel
            assert isinstance(operand.memory, FeedSlot)
            assert isinstance(kernel, Packing)
            assert isinstance(to.memory, Temp)
            nbytes = to.memory.nbytes
            kind = TensorType((nbytes // kernel.dtype.itemsize,), kernel.dtype)
            more.append(FeedSlot(first + len(found), kind))
            lent[to.memory] = more[-1]
            found.append(PackedFeed(operand.memory.index, operand.offset, kernel, nbytes))
        return [placed(rest, lent)]

    made = replaced(steps, given)
    return made, (*slots, *more), tuple(found)
