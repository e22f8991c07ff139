"""Split: a long reduction with few results becomes partial reductions that threads can share, and one over those.

Input: a step whose nest reduces. Output: the same step, or a few in its place: a nest with the parts as another
outer dimension, where the size is no multiple of the parts one for the rest, and a nest that combines them (and does
what follows the reduction). How many parts there are depends on the sizes and the target alone, so the result is the
same for any number of threads; as a sum of sums it is also the more accurate one.

Over rows of few elements, each of which is a column of results, every part is cut once more, into the number of
*phases* that fills whole registers: phase p of P takes the rows p, p + P, p + 2·P, …, so that P rows that follow each
other in memory are one long row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from staticgrad.base.extents import is_open, largest, lowest, open_sizes
from staticgrad.base.frozen import frozen
from staticgrad.base.phases import phase
from staticgrad.base.reach import reach
from staticgrad.compiler.kernels.nest import Access, Compute, Constant, Instr, Iota, Load, Nest, Reduce, Store
from staticgrad.compiler.machine.modes import took
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.chunks import wanted_chunks
from staticgrad.compiler.plans.nest.facts import Facts, access_of, analyse, cost_of, operands, simplify
from staticgrad.compiler.plans.nest.plan import NestPlan
from staticgrad.compiler.plans.nest.planning import plan_nest, seconds_of
from staticgrad.compiler.plans.nest.spans import block_of_rows
from staticgrad.compiler.plans.nest.vectors import vector_lanes
from staticgrad.compiler.program.memories import Operand, Temp
from staticgrad.compiler.program.step import Step, replaced
from staticgrad.compiler.steps.sweeps import FEWEST_PARTS, renumbered, separate_sweeps, step_of
from staticgrad.graph.optable import NO_ATTRIBUTES

MOST_PARTS = 16
LONG_PART = 512  # elements from which a part is a multiple of the largest block of vectors
BLOCK = 128
# Rows of a phase at least, and vectors that lie side by side where bodies are short.
LONG_PHASE = 32
PHASED_VECTORS = 4

INT64 = np.dtype(np.int64)


@frozen
class Split:
    """The nests in place of one: arguments are those of the nest, then the partial results of each reduction."""

    partial: tuple[Nest, ...]
    combine: Nest
    nbytes: tuple[int, ...]  # of the partial results


@phase("split")
def split_reductions(steps: Sequence[Step], target: Target) -> list[Step]:
    """The steps with their long reductions split, a sweep at a time where there are several (``sweeps``)."""

    def parts(step: Step) -> list[Step] | None:
        split = split_nest(step.kernel, target) if isinstance(step.kernel, Nest) else None
        return None if split is None else _steps(step, split)

    return replaced(separate_sweeps(steps, target), parts)


def split_nest(nest: Nest, target: Target) -> Split | None:
    """The nests that compute the same in parts; None where that is not possible or not worth it."""
    simple = simplify(nest)
    if simple is None or not simple.inner:
        return None
    facts = analyse(simple)
    if not _is_one_sweep(simple, facts):
        return None
    dims = largest(simple).dims
    dim = max(range(len(simple.outer), len(simple.dims)), key=lambda d: dims[d])
    parts, size = _cut(simple.dims[dim], target) if _is_for_threads(nest, simple, target) else (0, 0)
    column = None if open_sizes(simple) else _column(simple, facts, dim)
    phases = 1 if column is None else _phases(simple, facts, size or simple.dims[dim], column, target)
    if parts == 0 and phases == 1:
        return None
    if parts == 0:
        parts, size = 1, simple.dims[dim]
    return _Splitter(simple, facts, dim, parts, size - size % phases, column if phases > 1 else None, phases).split()


def _is_for_threads(nest: Nest, simple: Nest, target: Target) -> bool:
    """True if the nest takes long, and threads could not share it as it is."""
    if wanted_chunks(seconds_of(simple, target), target) < FEWEST_PARTS:
        return False
    plan = plan_nest(nest, target)
    return plan is not None and not _is_shared_well(plan, target)


def _is_shared_well(plan: NestPlan, target: Target) -> bool:
    """True if there are chunks enough, and none that takes a few columns of each of many rows far apart: parts of rows
    can be read as they lie in memory, panel by panel."""
    enough = plan.share is not None and largest(plan.share.chunks) >= FEWEST_PARTS
    return enough and (plan.panel is not None or not plan.reads_far_rows(target))


def _cut(size: int, target: Target) -> tuple[int, int]:
    """The number of parts and their size; the remainder is a part of its own. (0, 0) for too few elements. Of an open
    size the remainder is as long as a part, or a little longer."""
    if lowest(size) < 2 * FEWEST_PARTS:
        return 0, 0
    if is_open(size):
        return MOST_PARTS - 1, size // MOST_PARTS
    long, block = target.sized(LONG_PART), target.sized(BLOCK)
    for parts in range(MOST_PARTS, FEWEST_PARTS - 1, -1):
        if size % parts == 0 and (size // parts < long or size // parts % block == 0):
            return parts, size // parts
    part = size // MOST_PARTS
    return MOST_PARTS, part - part % block if part >= long else part


def _column(nest: Nest, facts: Facts, dim: int) -> int | None:
    """The outer dimension such that a step along ``dim`` is one to its end, for all elements: then rows follow each
    other in memory. What elements are computed with must be the same in all columns."""
    elements = [n for n in facts.needed if facts.element[n]]
    accesses = [x for n in elements if (x := access_of(nest.body[n])) is not None]
    rows = {v for n in elements for v in operands(nest.body[n]) if not facts.element[v]}
    counted = {i.dim for n in elements if isinstance(i := nest.body[n], Iota)}
    for column, size in enumerate(nest.outer):
        if all(x.strides[dim] == x.strides[column] * size and not x.terms for x in accesses):
            same = not {dim, column} & counted and all(column not in facts.depends[v] for v in rows)
            return column if same and any(x.strides[column] == 1 for x in accesses) else None
    return None


def _phases(nest: Nest, facts: Facts, rows: int, column: int, target: Target) -> int:
    """The power of two of rows that together are a few whole vectors, as far as registers go; 1 where rows are
    long or few."""
    lanes, width = vector_lanes(nest, target), nest.dims[column]
    most = block_of_rows(sum(cost_of(nest, n) for n in facts.needed if facts.element[n]), target)[0] * lanes
    phases = 1
    while 2 * phases * width <= most and (phases * width < PHASED_VECTORS * lanes or phases * width % lanes):
        phases *= 2
    return phases if rows >= target.sized(LONG_PHASE, 2) * phases else 1


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


@frozen
class _Piece:
    """Rows ``(part·size + i)·phases + phase`` from ``start`` on, for parts, phases and i < ``size``. Their partial
    results are ``first`` and following."""

    first: int
    start: int
    parts: int
    phases: int
    size: int

    @property
    def results(self) -> int:
        return self.parts * self.phases

    @property
    def stop(self) -> int:
        return self.start + self.results * self.size


class _Splitter:
    """Writes the nests. Partial results that phases give lie so that those of one row follow each other: all of one
    column are apart by its size, else by the number of rows."""

    def __init__(
        self, nest: Nest, facts: Facts, dim: int, parts: int, size: int, column: int | None, phases: int
    ) -> None:
        self.nest = nest
        self.facts = facts
        self.dim = dim
        self.pieces = [_Piece(0, 0, parts, phases, size // phases)]
        if is_open(whole := nest.dims[dim]):  # the rest is as long as a part, and what that division leaves
            self.pieces.append(_Piece(parts, parts * size, 1, 1, size + whole % MOST_PARTS))
        while not is_open(whole) and (rest := whole - self.pieces[-1].stop):
            done, phases = self.pieces[-1], phases if rest >= phases else 1
            self.pieces.append(_Piece(done.first + done.results, done.stop, 1, phases, rest // phases))
        self.count = self.pieces[-1].first + self.pieces[-1].results
        took("split: a reduction in parts", parts > 1)
        took("split: rows in phases", self.pieces[0].phases > 1)
        took("split: parts and phases", parts > 1 and self.pieces[0].phases > 1)
        took("split: what is left over", len(self.pieces) > 1)
        self.rows = math.prod(nest.outer)
        self.reduces = [n for n in sorted(facts.needed) if isinstance(nest.body[n], Reduce)]
        self.slot = {n: len(nest.args) + i for i, n in enumerate(self.reduces)}
        self.dtypes = tuple(self._reduce(n).dtype for n in self.reduces)
        self.part_stride, self.row_strides = self._layout(column)

    def _layout(self, column: int | None) -> tuple[int, tuple[int, ...]]:
        """Strides of the partial results and of the outer dimensions, of which ``column`` lies inside those."""
        outer = self.nest.outer
        if column is None:
            return self.rows, tuple(math.prod(outer[d + 1 :]) for d in range(len(outer)))
        step, strides = outer[column] * self.count, [0] * len(outer)
        strides[column] = 1
        for d in reversed([d for d in range(len(outer)) if d != column]):
            strides[d], step = step, step * outer[d]
        return outer[column], tuple(strides)

    def _reduce(self, number: int) -> Reduce:
        reduce = self.nest.body[number]
        assert isinstance(reduce, Reduce)
        return reduce

    def split(self) -> Split:
        nbytes = tuple(self.count * self.rows * dtype.itemsize for dtype in self.dtypes)
        return Split(tuple(self._partial(piece) for piece in self.pieces), self._combine(), nbytes)

    def _nest(self, outer: tuple[int, ...], inner: tuple[int, ...], body: list[Instr]) -> Nest:
        return Nest(outer, inner, (*self.nest.args, *self.dtypes), tuple(body))

    # -- the parts

    def _partial(self, piece: _Piece) -> Nest:
        """Parts are the first outer dimension, phases the one before those of the nest."""
        nest, body = self.nest, list[Instr]()
        number: dict[int, int] = {}

        def add(instr: Instr) -> int:
            body.append(instr)
            return len(body) - 1

        def scaled(value: int, by: int) -> int:
            if by == 1:
                return value
            return add(Compute("multiply", NO_ATTRIBUTES, (value, add(Constant(by, INT64))), INT64))

        # parts, and phases where there are some: sizes, rows from one to the next, partial results from one to the next
        ahead = [(piece.parts, piece.phases * piece.size, piece.phases)]
        if piece.phases > 1:
            ahead.append((piece.phases, 1, 1))
        wanted = self._closure([n for n in self.facts.needed if self._is_of_parts(n)])
        for n in sorted(wanted):
            instr = nest.body[n]
            if isinstance(instr, Iota):
                found = add(Iota(instr.dim + len(ahead)))
                if instr.dim == self.dim:
                    found = scaled(found, piece.phases)
                    for d, (_, rows, _) in enumerate(ahead):
                        found = add(Compute("add", NO_ATTRIBUTES, (scaled(add(Iota(d)), rows), found), INT64))
                    start = add(Constant(piece.start, INT64))
                    found = add(Compute("add", NO_ATTRIBUTES, (start, found), INT64))
                number[n] = found
                continue
            number[n] = add(renumbered(instr, number, lambda access: self._in_parts(access, piece, ahead)))
            if isinstance(instr, Reduce):
                steps = tuple(results * self.part_stride for _, _, results in ahead)
                strides = (*steps, *self.row_strides, *(0 for _ in nest.inner))
                add(Store(Access(self.slot[n], piece.first * self.part_stride, strides), number[n]))
        inner = list(nest.inner)
        inner[self.dim - len(nest.outer)] = piece.size
        return self._nest((*(size for size, _, _ in ahead), *nest.outer), tuple(inner), body)

    def _is_of_parts(self, number: int) -> bool:
        instr = self.nest.body[number]
        return isinstance(instr, Reduce) or (isinstance(instr, Store) and self.facts.element[number])

    def _in_parts(self, access: Access, piece: _Piece, ahead: Sequence[tuple[int, int, int]]) -> Access:
        step, strides = access.strides[self.dim], list(access.strides)
        strides[self.dim] *= piece.phases
        strides = [*(step * rows for _, rows, _ in ahead), *strides]
        return replace(access, offset=access.offset + piece.start * step, strides=tuple(strides))

    def _closure(self, roots: list[int], *, behind: bool = True) -> set[int]:
        """The instructions that the roots need; without ``behind`` reductions need nothing."""

        def needs(number: int) -> Sequence[int]:
            instr = self.nest.body[number]
            return operands(instr) if behind or not isinstance(instr, Reduce) else ()

        return reach(roots, needs)

    # -- what combines them

    def _combine(self) -> Nest:
        nest, body = self.nest, list[Instr]()
        rows = len(nest.outer)
        number: dict[int, int] = {}

        def on_rows(access: Access) -> Access:
            return replace(access, strides=(*access.strides[:rows], 0))

        stores = [n for n in self.facts.needed if isinstance(nest.body[n], Store) and not self.facts.element[n]]
        for n in sorted(self._closure(stores, behind=False)):
            instr = nest.body[n]
            if isinstance(instr, Reduce):
                access = Access(self.slot[n], 0, (*self.row_strides, self.part_stride))
                body.append(Load(access, instr.dtype))
                body.append(replace(instr, arg=len(body) - 1))
            else:
                body.append(renumbered(instr, number, on_rows))
            number[n] = len(body) - 1
        return self._nest(nest.outer, (self.count,), body)


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
