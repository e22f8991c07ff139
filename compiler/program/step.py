"""Steps: what a program does, one kernel after the other, before the memory is planned.

Step    ::= kernel(operands) | check of what a kernel left | call of a Python function or of MPI | loop over parts
Operand ::= memory + offset                       (``memories``)

Loops are steps, too: the parts of a program that run once a turn, and the memory that a loop needs in addition.

Input: a node that runs bodies. Output: a step that runs a ``Loop`` or a ``Branch`` over ``Part``s, which were
lowered, scheduled and planned like programs of their own. A part is called with a table of pointers in the order of its
slots, as ``main`` is. Rows are read and written where they lie; what a turn carries to the next lies in turn in the
result and in a spare buffer of the loop's scratch memory, such that the last turn writes the result.

    operands of a Loop     [count], carries, sequences, captured, last carries, [turns taken], stacked results,
                           snapshots, lent
    operands of a Rewind   [count], carries, snapshots, sequences, captured, last carries, stacked results, lent
    operands of a Branch   predicate, captured, results, lent

*Lent* are slots of the caller that only parts use: constants, the key of random ops, functions that are called.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from staticgrad.base.errors import SourceLine
from staticgrad.base.extents import OpenSizeError, highest, largest
from staticgrad.base.frozen import frozen, record
from staticgrad.compiler.kernels.kernel import Kernel
from staticgrad.compiler.kernels.matrix import Packing
from staticgrad.compiler.kernels.nest import Compute, Load, Nest, Reduce, Running, Store
from staticgrad.compiler.kernels.planned import Planned
from staticgrad.compiler.machine.machine import RATES, least_seconds
from staticgrad.compiler.program.memories import Memory, Operand, Temp, memory_bytes
from staticgrad.compiler.program.plan import Plan
from staticgrad.compiler.program.slots import (
    CallbackSlot,
    Check,
    CollectiveSlot,
    ConstantSlot,
    GradSlot,
    KeySlot,
    Slot,
    StateSlot,
)
from staticgrad.ops.control.rewinding import Schedule

ALIGNMENT = 64
WORD = 8

Lent = ConstantSlot | KeySlot | CallbackSlot | CollectiveSlot


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
    loop: Loop | Rewind | Branch | None = None
    planned: Planned | None = None  # how the kernel is run, once that is decided
    scratch: Temp | None = None
    source: SourceLine | None = None
    serial: int = 0
    after: list[Step] = field(default_factory=list)
    flops: int = 0

    @property
    def can_fail(self) -> bool:
        """True if the program can end here: at a check, or in a loop that looks whether it shall."""
        if self.loop is None:
            return self.check is not None
        return bool(self.check or self.loop.checks) or self.loop.seconds >= RATES.polls_from_seconds

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
        own = least_seconds(largest(self.flops), largest(self.nbytes)) if self.callback is None else RATES.call_seconds
        return own if self.loop is None else max(own, self.loop.seconds)

    @property
    def memories(self) -> tuple[Memory, ...]:
        own = (self.scratch,) if self.scratch is not None else ()
        return tuple(dict.fromkeys((*self.reads, *self.writes, *self.adds, *own)))


@frozen
class PackedFeed:
    """A feed of a part in addition to those of its body: feed ``index``, from byte ``offset`` on, packed by ``kernel``
    in ``nbytes`` bytes."""

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
    Snapshots of the carries ``kept``, by their numbers, are taken before the turns that ``starts`` counts.

    Places in scratch memory: a table for each part, the words ``turn``, ``taken``, ``flag`` (what the condition said),
    ``noted`` (snapshots), for each carry a word that points at the buffer that is free, the spare buffers, and an arena
    for each part.
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
    kept: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()
    tables: tuple[int, ...] = field(init=False)
    arenas: tuple[int, ...] = field(init=False)
    turn: int = field(init=False)
    taken: int = field(init=False)
    flag: int = field(init=False)
    noted: int = field(init=False)
    free: tuple[int, ...] = field(init=False)
    spare: tuple[int, ...] = field(init=False)
    scratch_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        layout = _ScratchLayout()
        self.tables = tuple(layout.take(WORD * len(part.slots)) for part in self.parts)
        words = layout.take(WORD * (4 + len(self.carries)))
        self.turn, self.taken, self.flag, self.noted = (words + WORD * i for i in range(4))
        self.free = tuple(words + WORD * (4 + i) for i in range(len(self.carries)))
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
        return self.first_result + len(self.results) + len(self.kept)

    @property
    def first_result(self) -> int:
        """The number of the first stacked result among the outputs."""
        return len(self.carries) + (self.condition is not None)

    @property
    def checks(self) -> list[Check]:
        return [check for part in self.parts for check in part.checks]

    @property
    def flops(self) -> int:
        return sum(part.flops for part in self.parts) * (1 if self.length is None else self.length)

    @property
    def turn_seconds(self) -> float:
        """A rough lower bound of the time of a turn."""
        return RATES.turn_seconds + sum(part.seconds for part in self.parts)

    @property
    def seconds(self) -> float:
        """The same of all turns; infinite where nothing bounds their number."""
        if self.length is None:
            return math.inf
        return largest(self.length) * self.turn_seconds if self.length else 0.0

    @property
    def most_turns(self) -> float:
        """The greatest number of turns; infinite where nothing bounds it."""
        return math.inf if self.length is None else largest(self.length)

    @property
    def title(self) -> str:
        if self.length is None:
            return "loop while a condition holds"
        most = "at most " if self.counted or self.condition is not None else ""
        snapshots = f", {len(self.starts)} snapshots of {len(self.kept)} carries" if self.kept else ""
        return f"loop {most}{self.length} turns{', reversed' if self.reverse else ''}{snapshots}"


@record
class Rewind:
    """Turns of ``body`` over those of another loop from the last to the first, whose states ``advance`` computes again
    from snapshots. ``carries``, ``states``, ``sequences`` and ``results`` are the bytes of each, of one row for the
    latter two. ``owns``: it has the snapshots in the memory in which they came, else in a copy.

    Places in scratch memory: a table for each part, the words ``turn`` (the number of the row), ``at`` and ``goal``
    (the turns, in the order of the other loop, whose state is at hand and is wanted), ``top`` (the snapshot that was
    taken last), a word for the turn of each snapshot, for each carry one that points at the buffer that is free, spare
    buffers (two for each state), copies of the snapshots, and an arena for both parts.
    """

    body: Part
    advance: Part
    carries: tuple[int, ...]
    states: tuple[int, ...]
    sequences: tuple[int, ...]
    captured: int
    results: tuple[int, ...]
    schedule: Schedule
    reverse: bool
    counted: bool
    owns: bool
    tables: tuple[int, ...] = field(init=False)
    arena: int = field(init=False)
    turn: int = field(init=False)
    at: int = field(init=False)
    goal: int = field(init=False)
    top: int = field(init=False)
    turns: int = field(init=False)
    free: tuple[int, ...] = field(init=False)
    spare: tuple[int, ...] = field(init=False)
    again: tuple[tuple[int, int], ...] = field(init=False)
    copies: tuple[int, ...] = field(init=False)
    scratch_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        layout, slots = _ScratchLayout(), self.schedule.slots
        self.tables = tuple(layout.take(WORD * len(part.slots)) for part in self.parts)
        words = layout.take(WORD * (4 + slots + len(self.carries)))
        self.turn, self.at, self.goal, self.top = (words + WORD * i for i in range(4))
        self.turns = words + WORD * 4
        self.free = tuple(self.turns + WORD * (slots + j) for j in range(len(self.carries)))
        self.spare = tuple(layout.take(nbytes) for nbytes in self.carries)
        again = self.states if self.schedule.advances else ()
        self.again = tuple((layout.take(nbytes), layout.take(nbytes)) for nbytes in again)
        self.copies = () if self.owns else tuple(layout.take(slots * nbytes) for nbytes in self.states)
        self.arena = layout.take(max(part.plan.arena_bytes for part in self.parts))
        self.scratch_bytes = layout.nbytes

    @property
    def arenas(self) -> tuple[int, ...]:
        return (self.arena, self.arena)

    @property
    def parts(self) -> tuple[Part, ...]:
        return (self.body, self.advance)

    @property
    def length(self) -> int:
        return self.schedule.turns

    @property
    def inputs(self) -> int:
        return self.counted + len(self.carries) + len(self.states) + len(self.sequences) + self.captured

    @property
    def outputs(self) -> int:
        return len(self.carries) + len(self.results)

    @property
    def checks(self) -> list[Check]:
        return [check for part in self.parts for check in part.checks]

    @property
    def flops(self) -> int:
        return self.body.flops * self.length + self.advance.flops * self.schedule.advances

    @property
    def turn_seconds(self) -> float:
        """A rough lower bound of the time from one turn to the next."""
        again = self.schedule.advances / max(1, self.length)
        return (1 + again) * RATES.turn_seconds + self.body.seconds + again * self.advance.seconds

    @property
    def seconds(self) -> float:
        return self.length * self.turn_seconds

    @property
    def most_turns(self) -> float:
        return max(self.length, self.schedule.advances)

    @property
    def title(self) -> str:
        most = "at most " if self.counted else ""
        plan = self.schedule
        return (
            f"rewound loop of {most}{self.length} turns, {plan.slots} snapshots; {plan.advances} turns run again, each"
            f" at most {plan.repeats} times"
        )


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
    def most_turns(self) -> float:
        return 1

    @property
    def title(self) -> str:
        return "branch"


def lent_slots(parts: Sequence[Part]) -> list[Slot]:
    """The slots that the parts need of the caller in addition to operands and results, each once."""
    return list(dict.fromkeys(slot for part in parts for slot in part.lent))


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
    computes = sum(isinstance(instr, Compute | Reduce | Running) for instr in body)
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


@contextlib.contextmanager
def asking(step: Step) -> Iterator[None]:
    """Let what has to be known about sizes inside name the step."""
    try:
        yield
    except OpenSizeError as error:
        error.asked_by(step.name, step.source)
        raise
