"""Sweeps: a nest of several sweeps over few long rows becomes a nest a sweep (loop fission), so that threads can share
each.

A batch norm over sixteen channels is a nest of sixteen rows, of which one vector register takes all: there is nothing
to cut along the rows, and along the elements a sweep must end before the next begins. Input: a step whose nest
reduces, and does something with the elements after that. Output: the same step, or in its place one for each sweep:
those that reduce (``split`` cuts them in parts), and in the end one without reductions over all elements.

A row value that a later sweep reads is stored by the sweep after which it is known. What is cheap is rematerialized
from the elements; a nest in which something else than that would be computed twice stays whole. Sizes and the target
decide, so the result is the same for any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from staticgrad.base.extents import largest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.nest import Access, Compute, Instr, Load, Nest, Reduce, Store
from staticgrad.compiler.machine.modes import took
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.chunks import wanted_chunks
from staticgrad.compiler.plans.nest.costs import KEEP_COST
from staticgrad.compiler.plans.nest.facts import Facts, access_of, analyse, cost_of, dtype_of, operands, simplify
from staticgrad.compiler.plans.nest.planning import plan_nest, seconds_of
from staticgrad.compiler.program.memories import Memory, Operand, Temp
from staticgrad.compiler.program.step import Step, replaced

FEWEST_PARTS = 8  # chunks from which a nest that can be cut as it is stays as it is


@frozen
class Separated:
    """The nests in place of one: arguments are those of the nest, then the row values that pass between them."""

    nests: tuple[Nest, ...]
    nbytes: tuple[int, ...]  # of the row values


def separate_sweeps(steps: Sequence[Step], target: Target) -> list[Step]:
    """The steps, with nests of several sweeps that threads could not share separated."""

    def parts(step: Step) -> list[Step] | None:
        separated = separate(step.kernel, target) if isinstance(step.kernel, Nest) else None
        took("sweeps: a nest for each", separated is not None)
        return None if separated is None else _steps(step, separated)

    return replaced(steps, parts)


def separate(nest: Nest, target: Target) -> Separated | None:
    """A nest for each sweep; None where there is one only, where it is not worth it, or where it would be wrong."""
    simple = simplify(nest)
    if simple is None or max(largest(simple).inner, default=0) < 2 * FEWEST_PARTS:
        return None
    facts = analyse(simple)
    sweeps = _Sweeps(simple, facts)
    if sweeps.count < 2 or wanted_chunks(seconds_of(simple, target), target) < FEWEST_PARTS:
        return None
    plan = plan_nest(nest, target)
    if plan is None or (plan.share is not None and largest(plan.share.chunks) >= FEWEST_PARTS):
        return None
    return sweeps.separate()


class _Sweeps:
    """The roots of each sweep, and the nests."""

    def __init__(self, nest: Nest, facts: Facts) -> None:
        self.nest = nest
        self.facts = facts
        self.rows = math.prod(nest.outer)
        self.row_strides = tuple(math.prod(nest.outer[d + 1 :]) for d in range(len(nest.outer)))
        self.loaded = {i.access.arg for n in facts.needed if isinstance(i := nest.body[n], Load)}
        place = {n: self._first_sweep(n) for n in sorted(facts.needed) if isinstance(nest.body[n], Reduce | Store)}
        self.count = 1 + max(place.values(), default=0)
        place |= {n: self.count - 1 for n in place if self._overwrites(n)}
        self.roots = [{n for n, s in place.items() if s == sweep} for sweep in range(self.count)]

    def _first_sweep(self, number: int) -> int:
        """The earliest one in which a reduction, or what is stored, is known."""
        instr, stage = self.nest.body[number], self.facts.stage
        if isinstance(instr, Reduce):
            return stage[instr.arg]
        return stage[number] if self.facts.element[number] else max(0, stage[number] - 1)

    def _overwrites(self, number: int) -> bool:
        """True if elements are stored where elements are loaded, which must wait until they are not loaded any more."""
        instr = self.nest.body[number]
        return isinstance(instr, Store) and self.facts.element[number] and instr.access.arg in self.loaded

    def _passes(self, value: int, sweep: int) -> bool:
        """True if a sweep reads a row value that an earlier one has stored."""
        return not self.facts.element[value] and 0 < self.facts.stage[value] <= sweep

    def separate(self) -> Separated | None:
        members: list[set[int]] = []
        passed: set[int] = set()
        for sweep in reversed(range(self.count)):
            made, read = self._closure(sweep)
            members.insert(0, made)
            passed |= read
            for value in read:
                self.roots[self.facts.stage[value] - 1].add(value)
        if not self._is_right(members):
            return None
        slot = {value: len(self.nest.args) + i for i, value in enumerate(sorted(passed))}
        dtypes = tuple(dtype_of(self.nest, value) for value in slot)
        nests = tuple(self._nest(sweep, made, slot, dtypes) for sweep, made in enumerate(members))
        return Separated(nests, tuple(self.rows * dtype.itemsize for dtype in dtypes))

    def _closure(self, sweep: int) -> tuple[set[int], set[int]]:
        """The instructions of a sweep, and the row values of earlier ones that it reads."""
        made: set[int] = set()
        read: set[int] = set()
        stack = list(self.roots[sweep])
        while stack:
            n = stack.pop()
            if self._passes(n, sweep):
                read.add(n)
            elif n not in made:
                made.add(n)
                stack.extend(operands(self.nest.body[n]))
        return made, read

    def _is_right(self, members: Sequence[set[int]]) -> bool:
        """Rows are stored where there are rows, nothing is loaded after it was stored to, nothing expensive is computed
        twice."""
        written: set[int] = set()
        seen: set[int] = set()
        for made in members:
            body = [self.nest.body[n] for n in made]
            stores = [n for n in made if isinstance(self.nest.body[n], Store)]
            if not any(isinstance(i, Reduce) for i in body) and not all(self.facts.element[n] for n in stores):
                return False
            if written & {i.access.arg for i in body if isinstance(i, Load)}:
                return False
            if any(isinstance(i, Store) and i.mode == "add" for i in body):
                return False
            if any(cost_of(self.nest, n) >= KEEP_COST for n in seen & made):
                return False
            written |= {i.access.arg for i in body if isinstance(i, Store)}
            seen |= made
        return True

    def _nest(self, sweep: int, made: set[int], slot: dict[int, int], dtypes: tuple[np.dtype, ...]) -> Nest:
        """The nest of a sweep. One that reduces nothing has all dimensions outside."""
        nest, body = self.nest, list[Instr]()
        number: dict[int, int] = {}
        row = (*self.row_strides, *(0 for _ in nest.inner))
        for n in sorted({*made, *(value for value in slot if self._passes(value, sweep))}):
            if n not in made:
                body.append(Load(Access(slot[n], 0, row), dtype_of(nest, n)))
            else:
                body.append(renumbered(nest.body[n], number, lambda access: access))
            number[n] = len(body) - 1
        reduces = any(isinstance(nest.body[n], Reduce) for n in made)
        for value, arg in slot.items():
            if value in made:
                body.append(Store(Access(arg, 0, row), number[value]))
        outer, inner = (nest.outer, nest.inner) if reduces else (nest.dims, ())
        return Nest(outer, inner, (*nest.args, *dtypes), tuple(body))


# -- instructions and steps in new places ---------------------------------------------------------------------------


def renumbered(instr: Instr, number: dict[int, int], moved: Callable[[Access], Access]) -> Instr:
    """The instruction with other numbers for its operands, and its access moved."""

    def place(access: Access) -> Access:
        return moved(replace(access, terms=tuple((number[v], stride) for v, stride in access.terms)))

    match instr:
        case Load():
            return replace(
                instr, access=place(instr.access), guard=None if instr.guard is None else number[instr.guard]
            )
        case Store():
            guard = None if instr.guard is None else number[instr.guard]
            return replace(instr, access=place(instr.access), value=number[instr.value], guard=guard)
        case Compute():
            return replace(instr, args=tuple(number[a] for a in instr.args))
        case Reduce():
            return replace(instr, arg=number[instr.arg])
        case _:
            return instr


def _steps(step: Step, separated: Separated) -> list[Step]:
    """The steps in place of one; the first counts its operations."""
    temps = [Temp(f"{step.name}.rows", nbytes, "passes between sweeps", step.source) for nbytes in separated.nbytes]
    operands_ = (*step.operands, *(Operand(temp) for temp in temps))
    names = [*(f"{step.name}_sweep" for _ in separated.nests[1:]), step.name]
    made = [step_of(step, nest, operands_, name) for nest, name in zip(separated.nests, names, strict=True)]
    for later in made[1:]:
        later.flops = 0
    return made


def step_of(step: Step, nest: Nest, operands_: tuple[Operand, ...], name: str) -> Step:
    """A step for one of the nests in place of a step's, with those of ``operands_`` that it uses: the step's operands,
    then what is new."""
    accesses = [(instr, access) for instr in nest.body if (access := access_of(instr)) is not None]
    used = sorted({access.arg for _, access in accesses})
    place = {arg: i for i, arg in enumerate(used)}
    loaded = {operands_[a.arg].memory for i, a in accesses if isinstance(i, Load)}
    stored = {operands_[a.arg].memory for i, a in accesses if isinstance(i, Store)}
    body = tuple(
        replace(i, access=replace(i.access, arg=place[i.access.arg])) if isinstance(i, Load | Store) else i
        for i in nest.body
    )
    trimmed = replace(nest, args=tuple(nest.args[arg] for arg in used), body=body)
    temps = [operand.memory for operand in operands_[len(step.operands) :]]
    mentioned: set[Memory] = {operand.memory for operand in step.operands}
    return replace(
        step,
        name=name,
        kernel=trimmed,
        operands=tuple(operands_[arg] for arg in used),
        reads=tuple(m for m in (*step.reads, *temps) if m in loaded or m not in {*mentioned, *temps}),
        writes=tuple(m for m in (*step.writes, *temps) if m in stored),
        adds=tuple(m for m in step.adds if m in stored),
        after=list(step.after),
    )
