"""Costs of a nest whose vectors lie along an axis, which goes in; instructions and seconds come out.

Instructions are those of a vector, as ``op_costs`` counts them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from staticgrad.base.extents import largest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.nest import Access, Load, Nest, Reduce, Store
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.nest.axes import (
    is_turned,
    memory_cost,
    staged_accesses,
    staging_cost,
    still_axis,
    tiled_axis,
)
from staticgrad.compiler.plans.nest.facts import Facts, access_of, cost_of, operands

# From this cost on a value is kept in scratch memory for a later sweep; below, computing it again is cheaper than a
# store and a load.
KEEP_COST = 10
# Number of short rows that form a group: their sums go across lanes together, and what follows from them is one vector.
GROUPED_ROWS = 4
# Vectors of a row, and cost of one of them, above which rows are long enough by themselves.
GROUPED_VECTORS = 8
GROUPED_COST = 100
# Cost of one lane of a gather that is emulated by scalar loads and inserts.
INSERTED_COST = 1.75
# Cost of a reduction across the lanes of a vector, alone and in a group of rows.
ACROSS_COST, GROUPED_ACROSS_COST = 12.0, 7.0
# Most turns of a loop that share loads which stay the same along it (see ``still_axis``).
STILL_CHUNK = 64


@frozen(eq=False)
class VectorNest:
    """A nest and the axis along which its vectors lie; None, and one lane, where code is scalar.

    ``greatest`` is the nest for the greatest sizes, by which everything is estimated. For each instruction ``costs``
    has the number of vector instructions that it takes and ``runs`` the number of sweeps in which it runs.
    """

    nest: Nest
    greatest: Nest
    facts: Facts
    target: Target
    costs: Sequence[int]
    runs: Sequence[int]
    vector: int | None = None
    lanes: int = 1

    @property
    def is_inner(self) -> bool:
        """True if the lanes are elements of a row, not rows."""
        return self.vector is not None and self.vector >= len(self.nest.outer)

    @property
    def axis(self) -> int:
        """The vector axis, where there is one."""
        assert self.vector is not None
        return self.vector

    @property
    def staged(self) -> list[Access]:
        """The accesses whose rows are transposed in registers."""
        return staged_accesses(self.nest, self.facts, self.vector, self.lanes, self.target)

    def cost(self, numbers: Iterable[int]) -> int:
        """The instructions of one vector of some values."""
        return sum(self.costs[number] for number in numbers if number in self.facts.needed)

    def fitting(self, copies: int) -> int:
        """The number of vectors that lie side by side along the axis: ``copies``, or fewer where it is short."""
        while copies > 1 and self.greatest.dims[self.axis] < copies * self.lanes:
            copies //= 2
        return copies


def scalar_nest(nest: Nest, facts: Facts, target: Target) -> VectorNest:
    """The nest without vectors, and its work: of its elements what costs much is kept, the rest is computed again in
    each sweep."""
    costs = [cost_of(nest, number) for number in range(len(nest.body))]
    sweeps: list[set[int]] = [set() for _ in nest.body]
    for number, instr in reversed(list(enumerate(nest.body))):
        if isinstance(instr, Reduce | Store):
            sweeps[number] = {facts.stage[instr.arg if isinstance(instr, Reduce) else number]}
        if costs[number] >= KEEP_COST:
            sweeps[number] = set(sorted(sweeps[number])[:1])
        for operand in operands(instr) if number in facts.needed else ():
            if facts.element[operand]:
                sweeps[operand] |= sweeps[number]
    return VectorNest(nest, largest_nest(nest), facts, target, costs, [max(1, len(found)) for found in sweeps])


def largest_nest(nest: Nest) -> Nest:
    """The nest for the greatest open sizes, at which others that follow from these may be least: one at least."""
    found = largest(nest)
    if found is nest:
        return nest
    outer, inner = (tuple([max(size, 1) for size in sizes]) for sizes in (found.outer, found.inner))
    return replace(found, outer=outer, inner=inner)


def run_cost(v: VectorNest) -> float:
    """The estimated number of instructions of the whole nest."""
    nest, facts, target, dim, lanes = v.greatest, v.facts, v.target, v.vector, v.lanes
    rows, elements = math.prod(nest.outer), math.prod(nest.dims)
    per_turn = 1.0
    if dim is not None:
        size = nest.dims[dim]
        turns = -(-size // lanes) if target.isa.predicated else size // lanes + (size % lanes).bit_count()
        per_turn = turns / size
    inner_dims = range(len(nest.outer), len(nest.dims))
    gathered = 1.0 if target.isa.gathers else INSERTED_COST
    staged = [largest(access) for access in v.staged]
    tiled = tiled_axis(nest, facts, dim, lanes)
    still = still_axis(nest, facts, dim, lanes)
    together = rows_at_once(v) if v.is_inner else 1
    across = GROUPED_ACROSS_COST if together > 1 else ACROSS_COST
    # what passes through tiles does so once, in whichever sweeps it is read
    total = sum(elements * per_turn * staging_cost(nest.inner[0], lanes) for _ in staged)
    for number in facts.needed:
        instr = nest.body[number]
        count: float = elements * v.runs[number] if facts.element[number] else rows
        along = dim
        if v.is_inner and not facts.element[number]:
            along = None
            count /= together
        else:
            count *= per_turn
        if isinstance(instr, Reduce) and nest.inner:
            total += elements * per_turn + (across * rows if v.is_inner else 0.0)
        elif isinstance(instr, Load | Store):
            if along is not None and instr.access not in staged:
                if tiled is not None and isinstance(instr, Load) and is_turned(instr.access, along, tiled):
                    count *= staging_cost(nest.dims[tiled], lanes)
                else:
                    count *= memory_cost(instr, facts, along, lanes, inner_dims, gathered)
                    if still is not None and not instr.access.strides[still] and not instr.access.terms:
                        count /= min(nest.dims[still], STILL_CHUNK)
            total += count
        else:
            total += count * v.costs[number]
    return total


def rows_at_once(v: VectorNest) -> int:
    """The number of rows that are run together where the lanes are elements: more than one for short bodies, whose
    reductions take as long as their elements."""
    nest, facts = v.greatest, v.facts
    if not nest.outer or v.lanes < GROUPED_ROWS or math.prod(nest.inner) // v.lanes > GROUPED_VECTORS:
        return 1
    elements = [number for number in facts.needed if facts.element[number]]
    return GROUPED_ROWS if sum(v.costs[number] for number in elements) <= GROUPED_COST else 1


def seconds(v: VectorNest) -> float:
    """The estimated seconds of a nest on one core, by its instructions or by the memory that it moves."""
    machine = v.target.machine
    return max(run_cost(v) * machine.instruction_seconds, moved_bytes(v) / machine.bytes_moved)


def moved_bytes(v: VectorNest) -> int:
    """The bytes of memory that the accesses reach."""
    moved = 0
    for number in v.facts.needed:
        access = access_of(v.nest.body[number])
        if access is not None:
            sizes = [size for size, stride in zip(v.greatest.dims, access.strides, strict=True) if stride]
            moved += math.prod(sizes) * v.nest.args[access.arg].itemsize
    return moved
