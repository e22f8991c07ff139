"""Inline: what one nest stores in a buffer and others load is rematerialized where it is loaded, and the buffer goes.

Input: the steps of a program, unordered but for what they read and write. Output: steps that compute the same with
fewer large buffers. Sums over pairs are the case in point: the distance of two points is a reduction over coordinates,
and what follows a reduction over points; the N × N distances between them (and, for gradients, the N × N × d
differences) are never stored.

A buffer goes if a single nest stores it, if all its readers are nests, if the address at which they load says which
iteration stored it, and if an estimate of instructions and of bytes moved says that it pays. Reductions that come
before the value are unrolled, so only short ones can. Recomputation in consumers is what Halide (Ragan-Kelley et al.,
PLDI 2013) calls inlining a producer.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from staticgrad.base.extents import OpenSizeError, is_open, largest, proven
from staticgrad.base.frozen import frozen
from staticgrad.base.phases import phase
from staticgrad.base.reach import reach
from staticgrad.compiler.kernels.access import Affine
from staticgrad.compiler.kernels.body import STEP_OF, BodyBuilder, InstructionCopier
from staticgrad.compiler.kernels.nest import Access, Load, Nest, Reduce, Store
from staticgrad.compiler.machine.modes import took
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.nest.facts import Facts, access_of, analyse, closure, contractions, cost_of, dtype_of
from staticgrad.compiler.plans.nest.vectors import vector_lanes
from staticgrad.compiler.program.memories import Memory, Operand, Temp
from staticgrad.compiler.program.schedule import Event, dependencies
from staticgrad.compiler.program.slots import GradSlot, StateSlot
from staticgrad.compiler.program.step import Step, with_nest
from staticgrad.compiler.steps.unroll import unroll

LEAST_BYTES = 1 << 16  # of a buffer that is worth the trouble
ORDER_PASSES = 3  # over the steps, for about the order in which they run
LEAST_FAR_BYTES = 1 << 11  # of one that has left the near caches when it is read
MOST_INSTRUCTIONS = 256  # that the value of one load may take
LARGEST = 2000  # instructions of a nest that values are moved into: the code generator takes long for one long body


@phase("inline")
def inline(steps: Sequence[Step], target: Target) -> list[Step]:
    """The steps without the buffers that are not worth their memory, and with bodies that share what they can."""
    inliner = _Inliner(steps, target)
    for memory in inliner.candidates():
        inliner.try_without(memory)
    return [_unrolled(step) for step in inliner.ordered()]


@frozen
class _Consumer:
    """A step with what it becomes without a buffer."""

    step: Step
    nest: Nest
    operands: tuple[Operand, ...]


class _Inliner:
    """Steps under change: each is known by its place, so that it keeps it when it is replaced."""

    def __init__(self, steps: Sequence[Step], target: Target) -> None:
        self.target = target
        self.steps: dict[int, Step] = dict(enumerate(steps))
        self.readers: dict[Memory, dict[int, None]] = defaultdict(dict)  # the places of steps
        self.writers: dict[Memory, list[int]] = defaultdict(list)
        self.instead: dict[Step, list[Step]] = {}  # of a step that went: what must run before those that come after it
        self.shared: set[Memory] = set()  # touched in another way than by loads and stores of nests
        self._costs: dict[int, int] = {}  # of nests, in instructions, as far as asked for
        self._behind: dict[Event, set[Event]] = {}  # what comes next after each step, once asked for
        self._first: dict[int, Step] = {}  # the steps by which that speaks of the places
        for place, step in self.steps.items():
            for memory in step.reads:
                self.readers[memory][place] = None
            for memory in step.writes:
                self.writers[memory].append(place)
            if isinstance(step.kernel, Nest) and step.loop is None and step.callback is None:
                self.shared.update(step.adds)
            else:
                self.shared.update(step.memories)
                self.shared.update(operand.memory for operand in step.operands)
        self._written = self._written_before()  # each place, in bytes

    def candidates(self) -> list[Temp]:
        """Buffers in the order in which they are made."""
        return [
            memory
            for memory, places in self.writers.items()
            if isinstance(memory, Temp)
            and len(places) == 1
            and memory.nbytes >= self.target.sized(LEAST_BYTES if not self._is_far(memory) else LEAST_FAR_BYTES)
            and self.readers[memory]
            and memory not in self.shared
        ]

    def _is_far(self, memory: Memory) -> bool:
        """True if so much is written between the step that makes a buffer and all that read it that it comes back from
        beyond the near caches."""
        (place,), readers = self.writers[memory], self.readers[memory]
        between = min((self._written[reader] for reader in readers), default=0) - self._written[place]
        return between > self.target.machine.middle_bytes

    def _written_before(self) -> dict[int, int]:
        """The bytes that are written before each step, in about the order in which they will run: that of the list,
        where a step comes before all that read what it writes."""
        when = {place: float(place) for place in self.steps}
        for _ in range(ORDER_PASSES):
            for place, step in reversed(self.steps.items()):
                reading = (when[reader] for memory in step.writes for reader in self.readers[memory])
                when[place] = min(when[place], min(reading, default=math.inf) - 0.5)
        written, total = {}, 0
        for place in sorted(when, key=lambda place: when[place]):
            written[place] = total
            total += sum(memory.nbytes for memory in self.steps[place].writes if isinstance(memory, Temp))
        return written

    def try_without(self, memory: Temp) -> None:
        """Compute what lies in ``memory`` at its readers, if that is possible and pays."""
        (place,) = self.writers[memory]
        maker = self.steps[place]
        store = _store_of(maker, memory)
        if store is None or place in self.readers[memory]:
            return
        source = _Source(maker, store)
        if not source.is_movable:
            return
        if any(self._grows_too_large(reader, source, memory) for reader in self.readers[memory]):
            return
        made = []
        for reader in self.readers[memory]:
            found = source.moved_into(self.steps[reader], memory)
            if found is None or self._is_stale(source, reader):
                return
            made.append(found)
        rest = _without_store(maker, memory)
        before = [step.kernel for step in (maker, *(reader.step for reader in made))]
        after = [*([] if rest is None else [rest.kernel]), *(reader.nest for reader in made)]
        if pays(before, after, self.target, self._travel_seconds(memory)):
            self._note_order(source, self.readers[memory])
            self._replace(place, rest, made, memory)

    def _travel_seconds(self, memory: Temp) -> float:
        """The time for the way there and back of a buffer that is small, but far, which no estimate of nests knows."""
        nbytes, machine = memory.nbytes, self.target.machine
        if nbytes > machine.near_bytes or not self._is_far(memory):
            return 0.0
        return (2 + len(self.readers[memory])) * nbytes / machine.middle_bytes_per_second

    def _note_order(self, source: _Source, readers: Iterable[int]) -> None:
        """Note that what the source loads is read by ``readers`` too: before it is written. All else that the source
        came after, they came after already."""
        if self._first:
            for write in self._writers(m for m in source.memories if isinstance(m, StateSlot | GradSlot)):
                for reader in readers:
                    self._behind.setdefault(self._first[reader], set()).add(write)

    def _grows_too_large(self, reader: int, source: _Source, memory: Temp) -> bool:
        """True if the nest of a reader would be too long with the value in the place of its loads of ``memory``."""
        step = self.steps[reader]
        assert isinstance(step.kernel, Nest)
        if reader not in self._costs:
            self._costs[reader] = _cost(step.kernel, range(len(step.kernel.body)))
        loads = [i for i in step.kernel.body if isinstance(i, Load) and step.operands[i.access.arg].memory is memory]
        return self._costs[reader] + source.cost * len(loads) > LARGEST

    def _is_stale(self, source: _Source, reader: int) -> bool:
        """True if a variable that the source loads may be written before the reader runs, or by it."""
        written = {m for m in source.memories if isinstance(m, StateSlot | GradSlot) and self.writers[m]}
        if not written:
            return False
        if not self._first:
            self._first = dict(zip(self.steps, self.ordered(), strict=True))
            for step, earlier in dependencies(list(self._first.values())).items():
                for event in earlier:
                    self._behind.setdefault(event, set()).add(step)
        return self._first[reader] in reach(self._writers(written), lambda event: self._behind.get(event, ()))

    def _writers(self, memories: Iterable[Memory]) -> set[Event]:
        return {self._first[place] for memory in memories for place in self.writers[memory]}

    def _replace(self, place: int, rest: Step | None, made: Sequence[_Consumer], memory: Temp) -> None:
        took("inline: a buffer computed where it is read", rest is None)
        took("inline: one of several results computed where it is read", rest is not None)
        maker = self.steps[place]
        for old, reader in zip(list(self.readers[memory]), made, strict=True):
            self._put(old, with_nest(reader.step, reader.nest, reader.operands))
        if rest is not None:
            self._put(place, rest)
        else:
            del self.steps[place]
            for read in maker.reads:
                del self.readers[read][place]
            self.instead[maker] = maker.after
        del self.writers[memory]

    def _put(self, place: int, step: Step) -> None:
        old = self.steps[place]
        for memory in old.reads:
            del self.readers[memory][place]
        for memory in step.reads:
            self.readers[memory][place] = None
        self.steps[place] = step
        self._costs.pop(place, None)
        self.instead[old] = [step]

    def ordered(self) -> list[Step]:
        """The steps that are left, each after what took the place of the steps that it came after."""
        for step in self.steps.values():
            if step.after:
                step.after = self._following(step.after)
        return list(self.steps.values())

    def _following(self, steps: Sequence[Step]) -> list[Step]:
        found: dict[Step, None] = {}
        stack = list(reversed(steps))
        while stack:
            step = stack.pop()
            if step in self.instead:
                stack.extend(reversed(self.instead[step]))
            else:
                found[step] = None
        return list(found)


# -- the value that is computed elsewhere ---------------------------------------------------------------------------


class _Source:
    """The part of a nest that one store needs."""

    def __init__(self, step: Step, number: int) -> None:
        assert isinstance(step.kernel, Nest)
        store = step.kernel.body[number]
        assert isinstance(store, Store)
        self.nest: Nest = step.kernel
        self.store = store
        self.facts: Facts = analyse(self.nest)
        self.closure = sorted(closure(self.nest, [store.value]))
        self.operands = step.operands
        loads = [i for n in self.closure if isinstance(i := self.nest.body[n], Load)]
        self.memories = {step.operands[load.access.arg].memory for load in loads}
        self.reductions = [i for n in self.closure if isinstance(i := self.nest.body[n], Reduce)]
        self.reduces = bool(self.reductions)
        outer = len(self.nest.outer)
        self.unrolled = tuple(range(outer, len(self.nest.dims))) if self.reduces else ()
        self.moving = frozenset(n for n in self.closure if self.facts.element[n]) if self.reduces else frozenset[int]()

    @property
    def cost(self) -> int:
        """The instructions of the value, reductions unrolled."""
        points = math.prod(self.nest.dims[dim] for dim in self.unrolled)
        return _cost(self.nest, self.closure) + (points - 1) * _cost(self.nest, self.moving)

    @property
    def is_movable(self) -> bool:
        """True if the value can be computed for an index from outside."""
        if self.store.guard is not None or self.store.mode != "set" or self.store.access.terms or 0 in self.nest.dims:
            return False
        if self.reduces and self.facts.element[self.store.value]:
            return False  # an element that waits for a reduction over the elements
        if any(is_open(self.nest.dims[dim]) for dim in self.unrolled):
            return False
        points = math.prod(self.nest.dims[dim] for dim in self.unrolled)
        # An invariant term is computed once, but added as often as there are points.
        if points * max(len(self.moving), len(self.reductions)) + len(self.closure) > MOST_INSTRUCTIONS:
            return False
        return all(i.kind in STEP_OF and dtype_of(self.nest, i.arg) == i.dtype for i in self.reductions)

    def moved_into(self, step: Step, memory: Temp) -> _Consumer | None:
        """The nest of ``step`` with the value in the place of its loads of ``memory``."""
        nest = step.kernel
        assert isinstance(nest, Nest)
        if self.memories & {*step.writes, *step.adds}:
            return None
        operands_ = list(step.operands)
        places = {operand: arg for arg, operand in enumerate(operands_)}
        args = []
        for operand in self.operands:
            if operand not in places:
                places[operand] = len(operands_)
                operands_.append(operand)
            args.append(places[operand])
        dtypes = list(nest.args) + [nest.args[0]] * (len(operands_) - len(nest.args))
        for own, arg in enumerate(args):
            dtypes[arg] = self.nest.args[own]
        body = BodyBuilder(len(nest.dims))
        where = tuple(Affine.index(dim) for dim in range(len(nest.dims)))
        copier = InstructionCopier(body, nest, where, range(len(nest.args)))
        for number, instr in enumerate(nest.body):
            access = access_of(instr)
            if access is None or step.operands[access.arg].memory is not memory:
                copier.copy([number], frozenset())
                continue
            try:
                at = self._iteration(nest, access, step.operands[access.arg])
            except OpenSizeError:  # where it lies depends on the sizes
                at = None
            if at is None or not isinstance(instr, Load) or instr.guard is not None:
                return None
            other = InstructionCopier(body, self.nest, at, args, self.unrolled)
            other.copy(self.closure, self.moving)
            copier.values[number] = other.values[self.store.value]
        return _Consumer(step, Nest(nest.outer, nest.inner, tuple(dtypes), tuple(body.instrs)), tuple(operands_))

    def _iteration(self, nest: Nest, access: Access, operand: Operand) -> tuple[Affine, ...] | None:
        """The iteration that stored the element which is loaded: its indices by those of ``nest``.

        Stores of one nest never meet, so an iteration within its bounds with the same address is the one: the address
        is taken apart in the strides of the store, the largest first, like a number in its digits.
        """
        if access.terms or not proven(lambda: all(s >= 0 for s in (*access.strides, *self.store.access.strides))):
            return None
        stored = self.store.access
        dims = [d for d, stride in enumerate(stored.strides) if stride and self.nest.dims[d] != 1]
        dims.sort(key=lambda d: -largest(stored.strides[d]))
        own = self.operands[stored.arg]
        bytes_apart = operand.offset - own.offset
        itemsize = self.nest.args[stored.arg].itemsize
        rest = access.offset + bytes_apart // itemsize - stored.offset
        if rest < 0 or bytes_apart % itemsize:
            return None
        found = [Affine() for _ in self.nest.dims]
        for d in dims:
            digit, rest = divmod(rest, stored.strides[d])
            found[d] = Affine(digit)
        if rest:
            return None
        for dim, stride in enumerate(access.strides):
            if not stride or nest.dims[dim] == 1:
                continue
            digit_of = next((d for d in dims if stride % stored.strides[d] == 0), None)
            if digit_of is None:
                return None
            found[digit_of] = found[digit_of] + Affine.index(dim).times(stride // stored.strides[digit_of])
        for d in dims:
            last = found[d].offset + sum(factor * (nest.dims[dim] - 1) for dim, factor in found[d].terms)
            if last >= self.nest.dims[d]:
                return None
        return tuple(found)


def _store_of(step: Step, memory: Memory) -> int | None:
    """The number of the only instruction of a step's nest that touches ``memory``."""
    if not isinstance(step.kernel, Nest):
        return None
    touching = [
        number
        for number, instr in enumerate(step.kernel.body)
        if (access := access_of(instr)) is not None and step.operands[access.arg].memory is memory
    ]
    return touching[0] if len(touching) == 1 else None


# -- steps with other nests -----------------------------------------------------------------------------------------


def _without_store(step: Step, memory: Memory) -> Step | None:
    """The step without its store to ``memory``; None where nothing is left."""
    nest = step.kernel
    assert isinstance(nest, Nest)
    roots = [
        number
        for number, instr in enumerate(nest.body)
        if isinstance(instr, Store) and step.operands[instr.access.arg].memory is not memory
    ]
    if not roots:
        return None
    body = BodyBuilder(len(nest.dims))
    copier = InstructionCopier(body, nest, [Affine.index(d) for d in range(len(nest.dims))], range(len(nest.args)))
    copier.copy(sorted(closure(nest, roots)), frozenset())
    return with_nest(step, replace(nest, body=tuple(body.instrs)), step.operands)


def _unrolled(step: Step) -> Step:
    if not isinstance(step.kernel, Nest) or step.loop is not None:
        return step
    nest = unroll(step.kernel)
    if nest is not step.kernel:
        step.kernel = nest
    return step


# -- what it costs --------------------------------------------------------------------------------------------------


def pays(before: Iterable[object], after: Iterable[object], target: Target, saved: float = 0.0) -> bool:
    """True if the nests ``after`` take less time than those ``before``, and ``saved`` seconds."""
    totals = []
    for kernels in (before, after):
        nests = [kernel for kernel in kernels if isinstance(kernel, Nest)]
        totals.append(sum(estimate(nest, target) for nest in nests) + target.machine.kernel_seconds * len(nests))
    return totals[1] < totals[0] + saved


def _cost(nest: Nest, numbers: Iterable[int]) -> int:
    return sum(cost_of(nest, number) for number in numbers)


def estimate(nest: Nest, target: Target) -> float:
    """The estimated seconds of a nest on one core if it computes nothing twice for the same indices. A store counts
    twice, as its lines are read first."""
    nest = largest(nest)
    facts, machine = analyse(nest), target.machine
    lanes = vector_lanes(nest, target)
    instructions, seconds = 0.0, 0.0
    for number in facts.needed - set(contractions(nest, facts).values()):
        instr = nest.body[number]
        access = access_of(instr)
        volume = math.prod(nest.dims[dim] for dim in facts.depends[number])
        if access is not None:
            nbytes = volume * nest.args[access.arg].itemsize * (1 + isinstance(instr, Store))
            rate = machine.middle_bytes_per_second if nbytes <= machine.middle_bytes else machine.far_bytes_per_second
            instructions += volume
            seconds += nbytes / rate if nbytes > machine.near_bytes else 0.0
        elif isinstance(instr, Reduce):
            instructions += math.prod(nest.dims[dim] for dim in facts.depends[instr.arg])
        else:
            instructions += volume * cost_of(nest, number)
    return instructions / lanes * machine.inlined_instruction_seconds + seconds
