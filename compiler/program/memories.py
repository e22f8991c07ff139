"""Memories: where operands of steps lie, in memory of the caller or in the arena.

Operand ::= memory + offset
Memory  ::= Slot of the caller | Temp
"""

from __future__ import annotations

from dataclasses import field

from staticgrad.base.errors import SourceLine
from staticgrad.base.extents import highest
from staticgrad.base.frozen import frozen, record
from staticgrad.compiler.program.slots import ConstantSlot, FeedSlot, FetchSlot, GradSlot, Slot, StateSlot

SCRATCH = "scratch"  # the first word of the reasons of buffers in which kernels work


@record
class Temp:
    """Memory in the arena, of ``nbytes`` at the greatest sizes, of which a call uses ``used``. Where it lies is
    decided by placement, unless it is ``pinned`` at an offset: its value lies there before the program."""

    name: str
    nbytes: int
    reason: str
    source: SourceLine | None
    pinned: int | None = None
    used: int = field(init=False)

    def __post_init__(self) -> None:
        self.used, self.nbytes = self.nbytes, highest(self.nbytes)


Memory = Slot | Temp


def memory_bytes(memory: Memory) -> int:
    """The bytes of a memory that a call uses."""
    match memory:
        case Temp():
            return memory.used
        case FeedSlot() | FetchSlot() | StateSlot() | GradSlot():
            return memory.type.nbytes
        case ConstantSlot():
            return int(memory.value.nbytes)
        case _:
            return 0


@frozen
class Operand:
    """The place where a kernel's pointer argument points: ``offset`` bytes into a memory."""

    memory: Memory
    offset: int = 0
