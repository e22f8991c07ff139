"""Split: a long reduction with few results becomes partial reductions that threads can share, and one over those.

Comes in: a step whose nest reduces. Goes out: the same step, or two or three in its place: a nest with the parts as
another outer dimension, where the size is no multiple of the parts one for the rest, and a nest that combines them
(and does what follows the reduction). How many parts there are depends on the sizes and the target alone, so the
result is the same for any number of threads; as a sum of sums it is also the more accurate one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from staticgrad.compiler.emit.nest.facts import Facts, analyse, operands, simplify
from staticgrad.compiler.emit.nest.plan import NestPlan, plan_nest, seconds_of
from staticgrad.compiler.emit.parallel import wanted_chunks
from staticgrad.compiler.emit.target import Target
from staticgrad.compiler.kernels.nest import Access, Compute, Constant, Instr, Iota, Load, Nest, Reduce, Store
from staticgrad.compiler.steps.step import Operand, Step, Temp, replaced
from staticgrad.compiler.steps.sweeps import FEWEST_PARTS, renumbered, separate_sweeps, step_of
from staticgrad.frozen import frozen
from staticgrad.optable import NO_ATTRIBUTES
from staticgrad.reach import reach

MOST_PARTS = 16
LONG_PART = 512  # of so many elements and more: then a part is a multiple of the largest block of vectors
BLOCK = 128

INT64 = np.dtype(np.int64)


@frozen
class Split:
    """The nests in place of one: arguments are those of the nest, then the partial results of each reduction."""

    partial: tuple[Nest, ...]
    combine: Nest
    nbytes: tuple[int, ...]  # of the partial results


def split_reductions(steps: Sequence[Step], target: Target) -> list[Step]:
    """The steps with their long reductions split, a sweep at a time where there are several (``sweeps``)."""

    def parts(step: Step) -> list[Step] | None:
        split = split_nest(step.kernel, target) if isinstance(step.kernel, Nest) else None
        return None if split is None else _steps(step, split)

    return replaced(separate_sweeps(steps, target), parts)


def split_nest(nest: Nest, target: Target) -> Split | None:
    """The nests that compute the same in parts; None where that is not possible or not worth it."""
    simple = simplify(nest)
    if simple is None or not simple.inner or wanted_chunks(seconds_of(simple, target)) < FEWEST_PARTS:
        return None
    plan = plan_nest(nest, target)
    if plan is None or _is_shared_well(plan):
        return None
    facts = analyse(simple)
    if not _is_one_sweep(simple, facts):
        return None
    dim = max(range(len(simple.outer), len(simple.dims)), key=lambda d: simple.dims[d])
    parts, size = _cut(simple.dims[dim])
    return _Splitter(simple, facts, dim, parts, size).split() if parts else None


def _is_shared_well(plan: NestPlan) -> bool:
    """Whether there are chunks enough, and none that takes a few columns of each of many rows far apart: parts of rows
    can be read as they lie in memory, panel by panel."""
    enough = plan.share is not None and plan.share.chunks >= FEWEST_PARTS
    return enough and (plan.panel is not None or not plan.reads_far_rows)


def _cut(size: int) -> tuple[int, int]:
    """How many parts of which size; what is left is a part of its own. (0, 0) for too few elements."""
    if size < 2 * FEWEST_PARTS:
        return 0, 0
    for parts in range(MOST_PARTS, FEWEST_PARTS - 1, -1):
        if size % parts == 0 and (size // parts < LONG_PART or size // parts % BLOCK == 0):
            return parts, size // parts
    part = size // MOST_PARTS
    return MOST_PARTS, part - part % BLOCK if part >= LONG_PART else part


def _is_one_sweep(nest: Nest, facts: Facts) -> bool:
    """Nothing is done with elements after a reduction, and what is stored of them is not read by what follows."""
    written: set[int] = set()
    read: set[int] = set()
    for number in facts.needed:
        instr = nest.body[number]
        if isinstance(instr, Reduce) and facts.stage[instr.arg]:
            return False
        if isinstance(instr, Store) and facts.element[number]:
            written.add(instr.access.arg)
        if facts.element[number] and facts.stage[number]:
            return False
        if isinstance(instr, Load) and not facts.element[number]:
            read.add(instr.access.arg)
    return not written & read and any(isinstance(nest.body[n], Reduce) for n in facts.needed)


class _Splitter:
    """Writes the nests."""

    def __init__(self, nest: Nest, facts: Facts, dim: int, parts: int, size: int) -> None:
        self.nest = nest
        self.facts = facts
        self.dim = dim
        self.parts = parts
        self.size = size
        self.rest = nest.dims[dim] - parts * size
        self.rows = math.prod(nest.outer)
        self.reduces = [n for n in sorted(facts.needed) if isinstance(nest.body[n], Reduce)]
        self.slot = {n: len(nest.args) + i for i, n in enumerate(self.reduces)}
        self.dtypes = tuple(self._reduce(n).dtype for n in self.reduces)
        self.row_strides = tuple(math.prod(nest.outer[d + 1 :]) for d in range(len(nest.outer)))

    def _reduce(self, number: int) -> Reduce:
        reduce = self.nest.body[number]
        assert isinstance(reduce, Reduce)
        return reduce

    def split(self) -> Split:
        partial = [self._partial(self.parts, self.size, 0)]
        if self.rest:
            partial.append(self._partial(1, self.rest, self.parts))
        count = self.parts + (self.rest > 0)
        nbytes = tuple(count * self.rows * dtype.itemsize for dtype in self.dtypes)
        return Split(tuple(partial), self._combine(count), nbytes)

    def _nest(self, outer: tuple[int, ...], inner: tuple[int, ...], body: list[Instr]) -> Nest:
        return Nest(outer, inner, (*self.nest.args, *self.dtypes), tuple(body))

    # -- the parts

    def _partial(self, parts: int, size: int, first: int) -> Nest:
        """Parts ``first`` and following, as the first outer dimension."""
        nest, body = self.nest, list[Instr]()
        number: dict[int, int] = {}

        def add(instr: Instr) -> int:
            body.append(instr)
            return len(body) - 1

        start = first * self.size
        wanted = self._closure([n for n in self.facts.needed if self._is_of_parts(n)])
        for n in sorted(wanted):
            instr = nest.body[n]
            if isinstance(instr, Iota):
                number[n] = add(Iota(instr.dim + 1))  # the parts are the first dimension
                if instr.dim == self.dim:
                    part = (add(Iota(0)), add(Constant(self.size, INT64)))
                    scaled = add(Compute("multiply", NO_ATTRIBUTES, part, INT64))
                    moved = add(Compute("add", NO_ATTRIBUTES, (scaled, add(Constant(start, INT64))), INT64))
                    number[n] = add(Compute("add", NO_ATTRIBUTES, (moved, number[n]), INT64))
                continue
            number[n] = add(renumbered(instr, number, lambda access: self._in_parts(access, start)))
            if isinstance(instr, Reduce):
                strides = (self.rows, *self.row_strides, *(0 for _ in nest.inner))
                add(Store(Access(self.slot[n], first * self.rows, strides), number[n]))
        inner = list(nest.inner)
        inner[self.dim - len(nest.outer)] = size
        return self._nest((parts, *nest.outer), tuple(inner), body)

    def _is_of_parts(self, number: int) -> bool:
        instr = self.nest.body[number]
        return isinstance(instr, Reduce) or (isinstance(instr, Store) and self.facts.element[number])

    def _in_parts(self, access: Access, start: int) -> Access:
        step = access.strides[self.dim]
        return replace(access, offset=access.offset + start * step, strides=(step * self.size, *access.strides))

    def _closure(self, roots: list[int], *, behind: bool = True) -> set[int]:
        """What the roots need; without ``behind`` reductions need nothing."""

        def needs(number: int) -> Sequence[int]:
            instr = self.nest.body[number]
            return operands(instr) if behind or not isinstance(instr, Reduce) else ()

        return reach(roots, needs)

    # -- what combines them

    def _combine(self, count: int) -> Nest:
        nest, body = self.nest, list[Instr]()
        rows = len(nest.outer)
        number: dict[int, int] = {}

        def on_rows(access: Access) -> Access:
            return replace(access, strides=(*access.strides[:rows], 0))

        stores = [n for n in self.facts.needed if isinstance(nest.body[n], Store) and not self.facts.element[n]]
        for n in sorted(self._closure(stores, behind=False)):
            instr = nest.body[n]
            if isinstance(instr, Reduce):
                access = Access(self.slot[n], 0, (*self.row_strides, self.rows))
                body.append(Load(access, instr.dtype))
                body.append(replace(instr, arg=len(body) - 1))
            else:
                body.append(renumbered(instr, number, on_rows))
            number[n] = len(body) - 1
        return self._nest(nest.outer, (count,), body)


# -- steps ----------------------------------------------------------------------------------------------------------


def _steps(step: Step, split: Split) -> list[Step]:
    """The steps in place of one."""
    temps = [
        Temp(f"{step.name}.parts", nbytes, "partial results of a reduction", step.source) for nbytes in split.nbytes
    ]
    operands_ = (*step.operands, *(Operand(temp) for temp in temps))
    made = [step_of(step, nest, operands_, f"{step.name}_parts") for nest in split.partial]
    for part, rest in pairwise(made):
        rest.after.append(part)  # they update elements of their own of the same memory
    made.append(step_of(step, split.combine, operands_, step.name))
    for later in made[1:]:
        later.flops = 0
    return made
