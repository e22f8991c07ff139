"""Preparation: what follows from variables alone is computed when one of them has changed, and kept from call to call
otherwise.

Input: the steps of a program. Output: the steps that read nothing but variables which the program does not write,
and constants, apart from the others; before that, the packing of such operands becomes a step of its own. So an
inference program packs its weights once. The first group of steps writes buffers that lie in the arena for good, and
the program runs it only where a version number says that it has to (``emit.entry``); each frame of a program has an
arena and the versions that belong to it, so calls at the same time do not meet.

Kernels that would pack one operand alike share what is packed, once.

Programs that write variables prepare nothing: they would do it at every call, in memory that could be shared. But what
``MANY`` of their products would pack alike they pack once in a call (``packed_once``): an unrolled recurrence
multiplies by the same weights again and again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from staticgrad.base.extents import largest, open_sizes
from staticgrad.base.phases import phase
from staticgrad.base.reach import reach
from staticgrad.compiler.kernels.matrix import Contraction, Convolution, Packing, with_raw_strides
from staticgrad.compiler.kernels.nest import Nest
from staticgrad.compiler.kernels.planned import Planned
from staticgrad.compiler.machine.modes import took
from staticgrad.compiler.plans.planner import KernelPlanner
from staticgrad.compiler.program.memories import Memory, Operand, Temp
from staticgrad.compiler.program.slots import (
    ConstantSlot,
    FeedSlot,
    GradSlot,
    Prepared,
    PreparedSlot,
    StateSlot,
    VersionSlot,
)
from staticgrad.compiler.program.step import Step, placed, replaced

REASON = "follows from variables, kept between calls"
REASON_ONCE = "packed for several products"
MANY = 4  # products that share an operand: what packing it costs is a small part of what they save
MOST_GROWTH = 2  # bytes that are kept for each byte of the variables read: what grows more is computed at every call


@phase("prepare")
def prepare(steps: Sequence[Step], planner: KernelPlanner) -> tuple[list[Step], list[Step]]:
    """The steps in two groups: what can be prepared, which may be nothing, and the rest."""
    if any(isinstance(memory, StateSlot | GradSlot) for step in steps for memory in (*step.writes, *step.adds)):
        return [], list(steps)
    made = _prepared(steps, steps)
    follow = {memory for step in made for memory in step.writes if isinstance(memory, Temp)}
    packings = Packings(planner, lambda memory: isinstance(memory, StateSlot) or memory in follow)
    apart = replaced(steps, lambda step: packings.parts(step) if step not in made else None)
    made = _prepared(apart, apart)
    first, rest = _groups(apart, made)
    if _grows(first, kept_buffers(first, rest)):
        made = _prepared(apart, [step for step in apart if isinstance(step.kernel, Packing)])
        first, rest = _groups(apart, made)
    kept = kept_buffers(first, rest)
    if not kept:
        return [], list(steps)
    took("prepare: what follows from variables kept between calls")
    for temp in kept:
        temp.reason = REASON
    for step in rest:
        step.after = [other for other in step.after if other not in made]
    return first, rest


def summary(first: Sequence[Step]) -> Prepared | None:
    """The facts that the entry has to know about prepared steps; None if there are none."""
    if not first:
        return None
    names = dict.fromkeys(m.name for step in first for m in step.reads if isinstance(m, StateSlot))
    return Prepared(len(first), tuple(map(VersionSlot, names)), PreparedSlot(max(len(names), 1)))


def kept_buffers(first: Sequence[Step], rest: Sequence[Step]) -> set[Temp]:
    """The buffers that the first steps make and the others read."""
    written = {m for step in first for m in (*step.writes, *step.adds)}
    return {m for step in rest for m in step.memories if m in written and isinstance(m, Temp)}


def _groups(steps: Sequence[Step], made: set[Step]) -> tuple[list[Step], list[Step]]:
    return [step for step in steps if step in made], [step for step in steps if step not in made]


@phase("prepare")
def packed_once(steps: Sequence[Step], planner: KernelPlanner) -> list[Step]:
    """The steps of a program, in which what several products would pack alike of a variable or a feed is packed once.
    Steps that write the variable come after the packing, as after all that read its old value."""
    packings = Packings(planner, lambda memory: isinstance(memory, StateSlot | FeedSlot))
    count = Counter(packings.key(step) for step in steps)
    often = {key for key, times in count.items() if key is not None and times >= MANY}
    if not often:
        return list(steps)
    took("prepare: an operand packed once for several products")
    made = replaced(steps, lambda step: packings.parts(step) if packings.key(step) in often else None)
    for temp in packings.known.values():
        temp.reason = REASON_ONCE
    return made


class Packings:
    """Packs operands that ``lasts`` says are the same for all steps apart from the kernels that read them, each once.

    Attributes:
        known: the buffers of what is packed, by the operand and how it is packed.
    """

    def __init__(self, planner: KernelPlanner, lasts: Callable[[Memory], bool]) -> None:
        self.planner = planner
        self.lasts = lasts
        self.known: dict[tuple[Operand, Packing], Temp] = {}
        self._apart: dict[Step, list[Step] | None] = {}

    def key(self, step: Step) -> tuple[Operand, Packing] | None:
        """The operand of a step that is packed apart, and how; None if none is."""
        if step not in self._apart:
            self._apart[step] = packed_apart(step, self.planner, self.lasts)
        apart = self._apart[step]
        return None if apart is None else _packed(apart[0])

    def parts(self, step: Step) -> list[Step] | None:
        """The packing of an operand, unless another step has packed it, and the kernel that is given it packed; None
        where a kernel packs nothing that lasts."""
        key, apart = self.key(step), self._apart[step]
        if key is None or apart is None:
            return None
        packing, rest = apart
        (temp,) = packing.writes
        assert isinstance(temp, Temp)
        if self.known.setdefault(key, temp) is temp:
            return [packing, rest]
        return [placed(rest, {temp: self.known[key]})]


def _packed(packing: Step) -> tuple[Operand, Packing]:
    assert isinstance(packing.kernel, Packing)
    return packing.operands[0], packing.kernel


def packed_apart(step: Step, planner: KernelPlanner, lasts: Callable[[Memory], bool]) -> list[Step] | None:
    """The packing by a matrix kernel of an operand that ``lasts``, and the kernel that is given it packed; None where
    the kernel had better pack it itself, or not."""
    if not isinstance(step.kernel, Contraction | Convolution):
        return None
    bare = replace(step.kernel, epilogue=None)
    for number, operand in reversed(tuple(enumerate(step.operands[:2]))):
        planned = planner.packed(bare, number) if lasts(operand.memory) else None
        if planned is not None:
            return _packing_and_rest(step, bare, number, planned, planner)
    return None


def _packing_and_rest(
    step: Step, bare: Contraction | Convolution, number: int, planned: Planned, planner: KernelPlanner
) -> list[Step]:
    assert isinstance(step.kernel, Contraction | Convolution)
    operand = step.operands[number]
    name = operand.memory.name if isinstance(operand.memory, StateSlot) else step.name
    packed = Temp(f"{name}.packed", planned.packed_bytes, REASON, step.source)
    others = {o.memory for position, o in enumerate(step.operands) if position != number}
    kernel = Packing(largest(replace(bare, packed=number)))  # it is packed alike at all sizes
    took("prepare: an operand packed apart")
    packing = Step(
        f"pack_{step.name}", "pack", kernel, (operand, Operand(packed)), (operand.memory,), (packed,),
        source=step.source, serial=step.serial,
    )  # fmt: skip
    operands = (*step.operands[:number], Operand(packed), *step.operands[number + 1 :])
    reads = tuple(m for m in step.reads if m != operand.memory or m in others)
    epilogue = _moved(step.kernel.epilogue, bare, replace(bare, packed=number), planner)
    given = replace(step.kernel, packed=number, epilogue=epilogue)
    return [packing, replace(step, kernel=given, operands=operands, reads=(*reads, packed))]


def _moved(
    epilogue: Nest | None, kernel: Contraction | Convolution, other: Contraction | Convolution, planner: KernelPlanner
) -> Nest | None:
    """The epilogue of ``kernel`` as that of ``other``, which may hand on its raw result with other strides."""
    if epilogue is None:
        return None
    before, after = planner.plan(kernel).raw_strides, planner.plan(other).raw_strides
    return with_raw_strides(epilogue, before, after)


def _prepared(steps: Sequence[Step], among: Iterable[Step]) -> set[Step]:
    """The most steps of ``among`` that read only variables, constants and what such steps have made."""
    following: dict[Step, list[Step]] = defaultdict(list)
    touching: dict[Memory, list[Step]] = defaultdict(list)
    for step in steps:
        for other in step.after:
            following[other].append(step)
        for memory in step.memories:
            touching[memory].append(step)
    candidates = {step for step in among if _is_pure(step)}

    def spoiled(item: Step | Memory) -> Iterator[Step | Memory]:
        if isinstance(item, Step):
            yield from following[item]
            yield from item.writes
            yield from item.adds
        else:
            yield from touching[item]

    starts: list[Step | Memory] = [step for step in steps if step not in candidates]
    lost: set[Step | Memory] = reach(starts, spoiled)
    return {step for step in candidates if step not in lost}


def _is_pure(step: Step) -> bool:
    """True if a step does nothing but compute buffers of the arena, of variables, constants and such buffers."""
    plain = step.kernel is not None and step.check is None and step.callback is None
    own = all(isinstance(memory, Temp) for memory in (*step.writes, *step.adds))
    if not plain or not own or open_sizes(step.kernel):  # what depends on sizes is not the same in the next call
        return False
    return all(isinstance(memory, Temp | StateSlot | ConstantSlot) for memory in step.memories)


def _grows(first: Sequence[Step], kept: set[Temp]) -> bool:
    """True if what is kept beside packed operands is much larger than the variables."""
    kept = kept - {memory for step in first if isinstance(step.kernel, Packing) for memory in step.writes}
    variables = {m for step in first for m in step.reads if isinstance(m, StateSlot)}
    return sum(temp.nbytes for temp in kept) > MOST_GROWTH * sum(largest(slot.type.nbytes) for slot in variables)
