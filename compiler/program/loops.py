"""Loops as steps: the parts of a program that run once a turn, and the memory that a loop needs beside them.

Input: a node that runs bodies. Output: a step that runs a ``Loop`` or a ``Branch`` over ``Part``s, which were
lowered, scheduled and planned like programs of their own. A part is called with a table of pointers in the order of its
slots, as ``main`` is. Rows are read and written where they lie; what a turn carries to the next lies in turn in the
result and in a spare buffer of the loop's scratch memory, such that the last turn writes the result.

    operands of a Loop     [count], carries, sequences, captured, last carries, [turns taken], stacked results, lent
    operands of a Branch   predicate, captured, results, lent

*Lent* are slots of the caller that only parts use: constants, the key of random ops, functions that are called.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from staticgrad.base.extents import highest, largest
from staticgrad.base.frozen import frozen, record
from staticgrad.compiler.kernels.matrix import Packing
from staticgrad.compiler.machine.machine import RATES
from staticgrad.compiler.program.program import CallbackSlot, Check, CollectiveSlot, ConstantSlot, KeySlot, Slot

if TYPE_CHECKING:
    from staticgrad.compiler.program.plan import Plan
    from staticgrad.compiler.program.step import Step

ALIGNMENT = 64
WORD = 8

Lent = ConstantSlot | KeySlot | CallbackSlot | CollectiveSlot


@frozen
class PackedFeed:
    """A feed of a part beside those of its body: feed ``index``, from byte ``offset`` on, packed by ``kernel`` in
    ``nbytes`` bytes."""

    index: int
    offset: int
    kernel: Packing
    nbytes: int


@frozen(eq=False)
class Part:
    """A function of its own: steps in order, the slots that it is called with, and the plan of its memory. The last of
    its feeds are the ``packed`` ones."""

    steps: tuple[Step, ...]
    slots: tuple[Slot, ...]
    plan: Plan
    packed: tuple[PackedFeed, ...] = ()

    @property
    def lent(self) -> list[Slot]:
        return [slot for slot in self.slots if isinstance(slot, Lent)]

    @property
    def checks(self) -> list[Check]:
        own = [step.check for step in self.steps if step.check is not None]
        return own + [check for step in self.steps if step.loop is not None for check in step.loop.checks]

    @property
    def flops(self) -> int:
        return sum(step.flops for step in self.steps)

    @property
    def seconds(self) -> float:
        """A rough lower bound of its time."""
        return sum(step.seconds for step in self.steps)


class _ScratchLayout:
    """Hands out places in scratch memory, one after the other."""

    def __init__(self) -> None:
        self.nbytes = 0

    def take(self, nbytes: int) -> int:
        place = self.nbytes
        self.nbytes = -(-(place + highest(nbytes)) // ALIGNMENT) * ALIGNMENT
        return place


@record
class Loop:
    """Turns of ``body``. ``carries``, ``sequences`` and ``results`` are the bytes of each, of one row for the latter.

    Places in scratch memory: a table for each part, the words ``turn``, ``taken``, ``flag`` (what the condition said),
    for each carry a word that points at the buffer that is free, the spare buffers, and an arena for each part.
    """

    body: Part
    condition: Part | None
    carries: tuple[int, ...]
    sequences: tuple[int, ...]
    captured: int
    results: tuple[int, ...]
    length: int | None
    reverse: bool
    counted: bool
    tables: tuple[int, ...] = field(init=False)
    arenas: tuple[int, ...] = field(init=False)
    turn: int = field(init=False)
    taken: int = field(init=False)
    flag: int = field(init=False)
    free: tuple[int, ...] = field(init=False)
    spare: tuple[int, ...] = field(init=False)
    scratch_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        layout = _ScratchLayout()
        self.tables = tuple(layout.take(WORD * len(part.slots)) for part in self.parts)
        words = layout.take(WORD * (3 + len(self.carries)))
        self.turn, self.taken, self.flag = (words + WORD * i for i in range(3))
        self.free = tuple(words + WORD * (3 + i) for i in range(len(self.carries)))
        self.spare = tuple(layout.take(nbytes) for nbytes in self.carries)
        self.arenas = tuple(layout.take(part.plan.arena_bytes) for part in self.parts)
        self.scratch_bytes = layout.nbytes

    @property
    def parts(self) -> tuple[Part, ...]:
        return (self.body,) if self.condition is None else (self.body, self.condition)

    @property
    def inputs(self) -> int:
        return self.counted + len(self.carries) + len(self.sequences) + self.captured

    @property
    def outputs(self) -> int:
        return len(self.carries) + (self.condition is not None) + len(self.results)

    @property
    def checks(self) -> list[Check]:
        return [check for part in self.parts for check in part.checks]

    @property
    def flops(self) -> int:
        return sum(part.flops for part in self.parts) * (1 if self.length is None else self.length)

    @property
    def turn_seconds(self) -> float:
        """A rough lower bound of the time of a turn."""
        return RATES.turn + sum(part.seconds for part in self.parts)

    @property
    def seconds(self) -> float:
        """The same of all turns; infinite where nothing bounds their number."""
        if self.length is None:
            return math.inf
        return largest(self.length) * self.turn_seconds if self.length else 0.0

    @property
    def title(self) -> str:
        if self.length is None:
            return "loop while a condition holds"
        most = "at most " if self.counted or self.condition is not None else ""
        return f"loop {most}{self.length} turns{', reversed' if self.reverse else ''}"


@record
class Branch:
    """One of two parts. Places in scratch memory: a table and an arena, which both use."""

    then: Part
    otherwise: Part
    captured: int
    results: int
    table: int = field(init=False)
    arena: int = field(init=False)
    scratch_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        layout = _ScratchLayout()
        self.table = layout.take(WORD * max(len(part.slots) for part in self.parts))
        self.arena = layout.take(max(part.plan.arena_bytes for part in self.parts))
        self.scratch_bytes = layout.nbytes

    @property
    def arenas(self) -> tuple[int, ...]:
        return (self.arena, self.arena)

    @property
    def parts(self) -> tuple[Part, ...]:
        return (self.then, self.otherwise)

    @property
    def inputs(self) -> int:
        return 1 + self.captured

    @property
    def outputs(self) -> int:
        return self.results

    @property
    def checks(self) -> list[Check]:
        return [check for part in self.parts for check in part.checks]

    @property
    def flops(self) -> int:
        return max(part.flops for part in self.parts)

    @property
    def seconds(self) -> float:
        return max(part.seconds for part in self.parts)

    @property
    def title(self) -> str:
        return "branch"


def lent_slots(parts: Sequence[Part]) -> list[Slot]:
    """The slots that the parts need of the caller beside operands and results, each once."""
    return list(dict.fromkeys(slot for part in parts for slot in part.lent))
