"""Steps: what a program does, one kernel after the other, before the memory is planned.

Step    ::= kernel(operands) | check of what a kernel left | call of a Python function or of MPI | loop over parts
Operand ::= memory + offset
Memory  ::= Slot of the caller | Temp
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace

from staticgrad.base.errors import SourceLine
from staticgrad.base.extents import highest, largest
from staticgrad.base.frozen import frozen, record
from staticgrad.compiler.kernels.kernel import Kernel
from staticgrad.compiler.kernels.nest import Compute, Load, Nest, Reduce, Store
from staticgrad.compiler.kernels.planned import Planned
from staticgrad.compiler.machine.machine import RATES
from staticgrad.compiler.program.loops import Branch, Loop
from staticgrad.compiler.program.program import (
    CallbackSlot,
    Check,
    CollectiveSlot,
    ConstantSlot,
    FeedSlot,
    FetchSlot,
    GradSlot,
    Slot,
    StateSlot,
    least_seconds,
)


@record
class Temp:
    """Memory in the arena, of so many bytes at the greatest sizes, of which a call uses ``used``. Where it lies is
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


@record
class Step:
    """One step. ``reads``, ``writes`` and ``adds`` (written piece by piece, after it was filled) order the steps."""

    name: str
    family: str
    kernel: Kernel | None
    operands: tuple[Operand, ...]
    reads: tuple[Memory, ...]
    writes: tuple[Memory, ...]
    adds: tuple[Memory, ...] = ()
    fills: bool = False
    check: Check | None = None
    callback: CallbackSlot | CollectiveSlot | None = None
    loop: Loop | Branch | None = None
    planned: Planned | None = None  # how the kernel is run, once that is decided
    scratch: Temp | None = None
    source: SourceLine | None = None
    serial: int = 0
    after: list[Step] = field(default_factory=list)
    flops: int = 0

    @property
    def can_fail(self) -> bool:
        """True if the program can end here: at a check, or in a loop that looks whether it shall."""
        loop = self.loop
        return self.check is not None or (loop is not None and (bool(loop.checks) or loop.seconds >= RATES.polls_from))

    @property
    def writes_state(self) -> bool:
        return any(isinstance(memory, (StateSlot, GradSlot)) for memory in (*self.writes, *self.adds))

    @property
    def nbytes(self) -> int:
        """The bytes that the step touches at least once."""
        return sum(memory_bytes(memory) for memory in dict.fromkeys((*self.reads, *self.writes, *self.adds)))

    @property
    def seconds(self) -> float:
        """A rough lower bound of its time on one core; infinite for a loop that nothing bounds."""
        own = least_seconds(largest(self.flops), largest(self.nbytes)) if self.callback is None else RATES.call
        return own if self.loop is None else max(own, self.loop.seconds)

    @property
    def memories(self) -> tuple[Memory, ...]:
        own = (self.scratch,) if self.scratch is not None else ()
        return tuple(dict.fromkeys((*self.reads, *self.writes, *self.adds, *own)))


def replaced(steps: Iterable[Step], parts: Callable[[Step], list[Step] | None]) -> list[Step]:
    """The steps with some of them replaced by several (None: it stays); who came after a step comes after its last."""
    found: list[Step] = []
    last: dict[Step, Step] = {}
    for step in steps:
        made = parts(step) or [step]
        last[step] = made[-1]
        found += made
    for step in found:
        step.after = [last.get(other, other) for other in step.after]
    return found


def placed(step: Step, memories: Mapping[Memory, Memory]) -> Step:
    """The step with some memories replaced by others; itself where it touches none of them."""

    def new(old: tuple[Memory, ...]) -> tuple[Memory, ...]:
        return tuple(memories.get(memory, memory) for memory in old)

    if not any(memory in memories for memory in step.memories):
        return step
    operands = tuple(Operand(memories.get(o.memory, o.memory), o.offset) for o in step.operands)
    return replace(step, operands=operands, reads=new(step.reads), writes=new(step.writes), adds=new(step.adds))


def with_nest(step: Step, nest: Nest, operands: Sequence[Operand]) -> Step:
    """The step with another nest, and the operands that this one uses."""
    used = sorted({instr.access.arg for instr in nest.body if isinstance(instr, Load | Store)})
    place = {arg: i for i, arg in enumerate(used)}
    loaded, stored = set[Memory](), set[Memory]()
    body = []
    for instr in nest.body:
        if isinstance(instr, Load | Store):
            memory = operands[instr.access.arg].memory
            (loaded if isinstance(instr, Load) else stored).add(memory)
            instr = replace(instr, access=replace(instr.access, arg=place[instr.access.arg]))
        body.append(instr)
    kernel = replace(nest, args=tuple(nest.args[arg] for arg in used), body=tuple(body))
    computes = sum(isinstance(instr, Compute | Reduce) for instr in body)
    mentioned = dict.fromkeys((*step.reads, *(operand.memory for operand in operands)))
    return replace(
        step,
        kernel=kernel,
        planned=None,
        operands=tuple(operands[arg] for arg in used),
        reads=tuple(m for m in mentioned if m in loaded),
        writes=tuple(m for m in step.writes if m in stored),
        adds=tuple(m for m in step.adds if m in stored),
        after=list(step.after),
        flops=computes * math.prod(nest.dims),
    )
