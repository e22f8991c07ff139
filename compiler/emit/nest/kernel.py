"""A nest becomes a function of vectorised LLVM IR.

    whole    define internal void @name(ptr arg0, …, ptr scratch)
    ranged   define internal void @name(ptr arg0, …, i64 lo0, i64 hi0, i64 lo1, i64 hi1, …)
    shared   define internal void @name(ptr arg0, …, ptr scratch, ptr pool)

A whole nest runs from its first index to its last, with ``scratch_bytes`` of scratch memory. A ranged one (without
inner dimensions) runs over the half-open ranges that it is handed, one for each outer dimension in the nest's order. A
shared one is cut in chunks that the threads of a pool run (``emit.parallel``), each with scratch memory of its own.
Distinct arguments must not overlap where one of them is written, but for nests without inner dimensions, where one
may lie exactly on another.

The plan (``plan``) says how; here it is written down: a value is computed in the outermost loop in which it is
known, once for all lanes where they share it, else for each vector of the block that one turn covers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from staticgrad.base.extents import proven
from staticgrad.compiler.emit.llvm import INDEX, Function, IRModule, Value, side_by_side
from staticgrad.compiler.emit.nest.accumulators import Accumulators
from staticgrad.compiler.emit.nest.loops import Body, Gathered, Loops, Window
from staticgrad.compiler.emit.nest.memory import Memory
from staticgrad.compiler.emit.nest.reduction import across_rows, combine_all
from staticgrad.compiler.emit.nest.scope import LoopScope, VectorBlock
from staticgrad.compiler.emit.nest.values import NestValues
from staticgrad.compiler.emit.parallel import ChunkTable, chunk_range, open_part, run_chunks
from staticgrad.compiler.emit.scalars.lane import Lane
from staticgrad.compiler.kernels.nest import Compute, Constant, Nest, Reduce, Store
from staticgrad.compiler.machine.modes import took, took_plan
from staticgrad.compiler.plans.nest.facts import dtype_of, lane_operands, literals_of
from staticgrad.compiler.plans.nest.plan import AHEAD, NestPlan
from staticgrad.compiler.plans.nest.planning import PlannedNest, plan_ranged
from staticgrad.compiler.plans.nest.spans import Span
from staticgrad.compiler.plans.nest.sweeps import Sweep


def emit_nest(module: IRModule, planned: PlannedNest, name: str) -> None:
    """Add the function ``name`` that runs a whole or shared nest."""
    plan = planned.plan
    f = module.function(name, ["ptr"] * (len(planned.kernel.args) + 1 + planned.is_shared))
    if plan is not None:
        took_plan(plan)
        took("nest: far rows asked for ahead", plan.reads_far_rows(module.target))
        if planned.is_shared:
            _run_shared(f, plan)
        else:
            _NestEmitter(f, plan, f.params, f.params[-1], {}).run()
    f.finish()


def ranged_function(module: IRModule, nest: Nest) -> str:
    """The name of the function that runs a ranged nest, such as an epilogue; equal nests of one module share it.

    Raises:
        ValueError: the nest has inner dimensions.
    """
    params = ["ptr"] * len(nest.args) + [INDEX] * (2 * len(nest.outer))
    return module.leaf("nest", params, _write_ranged, nest, literals_of(nest))


def _write_ranged(f: Function, nest: Nest, _: tuple[str, ...]) -> None:
    """Write a ranged nest; its literals tell it apart from others that compare equal."""
    took("nest: epilogue of a matrix kernel")
    rest = f.params[len(nest.args) :]
    bounds = {d: (rest[2 * d], rest[2 * d + 1]) for d in range(len(nest.outer))}
    _NestEmitter(f, plan_ranged(nest, f.target), f.params, None, bounds).run()


def _run_shared(f: Function, plan: NestPlan) -> None:
    """Have a nest run in chunks, each by a call of a function that is added to the module."""
    share = plan.share
    assert share is not None
    *pointers, pool = f.params
    table = ChunkTable.fill(f, pointers)
    part = open_part(f.module, f"{f.name}.part", len(pointers))
    low, high = chunk_range(part.f, part.chunk, share.size, plan.nest.dims[share.dim])
    *arguments, scratch = part.table.pointers
    own = part.f.offset(scratch, part.f.mul(part.worker, plan.scratch_bytes), "i8")
    _NestEmitter(part.f, plan, arguments, own, {}, Window(share, low, high)).run()
    run_chunks(f, pool, part.f.finish(), table, share.chunks)


class _NestEmitter:
    """Writes one planned nest into one function: what is computed in which loop, outside and inside of sweeps."""

    def __init__(
        self,
        f: Function,
        plan: NestPlan,
        pointers: Sequence[Value],
        scratch: Value | None,
        bounds: dict[int, tuple[Value, Value]],
        window: Window | None = None,
    ) -> None:
        self.f = f
        self.plan = plan
        self.nest = plan.nest
        self.body = plan.nest.body
        self.rows = len(plan.nest.outer)
        self.memory = Memory(f, plan, pointers[: len(plan.nest.args)], scratch if plan.scratch else None)
        self.values = NestValues(f, plan, self.memory)
        self.sums = Accumulators(f, plan, self.values)
        self.loops = Loops(f, plan, self.values, self.sums, bounds, window)

    def run(self) -> None:
        scope = LoopScope()
        for number, instr in enumerate(self.body):
            if isinstance(instr, Constant):
                scope.values[number] = [self.values.constant(instr, 1)]
        self.values.begin_running()
        self._outer(scope, 0)

    def _outer(self, scope: LoopScope, level: int) -> None:
        """The row values of ``level``, then the loops inside it."""
        numbers = [n for n in self._active() if self.plan.levels[n] == level and self._is_row(n, 0)]
        if level == self.rows and self.nest.inner:
            self.values.instructions(scope, [n for n in numbers if not isinstance(self.body[n], Store)])
            self._row(scope)
            return
        self.values.instructions(scope, numbers)
        if level < self.rows:
            self.values.prepare(scope, self._active(), level)

            def inside(inner: LoopScope, _: Gathered) -> Gathered:
                self._outer(inner, level + 1)
                return []

            if level == self.rows - 1 and self.plan.group > 1:
                self._grouped(scope, level, inside)
            elif level == self.rows - 1 and self.plan.panel is not None:
                self._panels(scope, level, inside)
            else:
                self.loops.over(scope, level, [], inside)

    def _row(self, scope: LoopScope) -> None:
        """All sweeps over the inner dimensions; row values follow the reductions they need; row stores come last,
        when everything is loaded."""
        if scope.panel is not None:
            self.sums.save_panel(scope, self._gather(scope, self.plan.sweeps[0]))
            return
        self.memory.staged.take(scope)
        for number, sweep in enumerate(self.plan.sweeps):
            is_in_panels = self.plan.panel is not None
            gathered = self.sums.load_panels(scope, sweep) if is_in_panels else self._gather(scope, sweep)
            self.sums.row_values(scope, gathered)
            later = [n for n in self._active() if self._is_row(n, number + 1) and not isinstance(self.body[n], Store)]
            self.values.instructions(scope, later)
        stores = [n for n in self._active() if isinstance(self.body[n], Store) and not self.plan.facts.element[n]]
        self.values.instructions(scope, stores)
        self.memory.staged.give(scope)

    def _panels(self, scope: LoopScope, level: int, columns: Body) -> None:
        """The loop over the columns once for each panel of rows, and at last for what follows the reductions."""
        size = self.nest.dims[self.plan.order[-1]]
        self.loops.over(replace(scope, panel=(0, AHEAD)), level, [], columns)
        with self.f.loop(AHEAD, size, AHEAD) as loop:
            panel = (loop.index, self.f.min(self.f.add(loop.index, AHEAD), size))
            self.loops.over(replace(scope.nested(), panel=panel), level, [], columns)
        self.loops.over(scope, level, [], columns)

    def _grouped(self, scope: LoopScope, level: int, one: Body) -> None:
        """The loop over rows: by groups, and ``one`` by one where less than a group is left."""
        dim, group = self.plan.order[level], self.plan.group
        whole = self.nest.dims[dim] // group * group

        def inside(inner: LoopScope, _: Gathered) -> Gathered:
            self._group(inner, dim)
            return []

        self.loops.turns(scope, level, Span(0, whole, 1, group), [], inside)
        if not proven(lambda: whole == self.nest.dims[dim]):
            self.loops.turns(scope, level, Span(whole, self.nest.dims[dim], 1, 1), [], one)

    def _group(self, scope: LoopScope, dim: int) -> None:
        """Run neighbouring rows at once, each as ``_row`` does: the sweeps of each, then what follows in a lane for
        each."""
        rows = [scope.nested() for _ in range(self.plan.group)]
        joint = scope.nested(VectorBlock(len(rows), rows=True))
        first = [n for n in self._active() if self.plan.levels[n] == self.rows and self._is_row(n, 0)]
        for number, row in enumerate(rows):
            row.index[dim] = self.f.add(scope.index[dim], number)
            self.memory.addresses.own_scratch(row, number)
            self.values.instructions(row, [n for n in first if not isinstance(self.body[n], Store)])
        for number, sweep in enumerate(self.plan.sweeps):
            gathered = [self._gather(row, sweep) for row in rows]
            for reduction in sweep.reductions:
                kind, _, dtype = self.sums.reduce(reduction)
                totals = [combine_all(self.f, kind, dtype, found[reduction]) for found in gathered]
                lanes = Lane(across_rows(self.f, kind, dtype, totals), dtype)
                self._divide(rows, joint, reduction, self.values.cast(lanes, dtype_of(self.nest, reduction)))
            for later in [n for n in self._active() if self._is_row(n, number + 1) and n not in self.values.absorbed]:
                self._joint_value(rows, joint, later)
        stores = [n for n in self._active() if isinstance(self.body[n], Store) and not self.plan.facts.element[n]]
        for row in rows:
            self.values.instructions(row, stores)

    def _joint_value(self, rows: Sequence[LoopScope], joint: LoopScope, number: int) -> None:
        """A row value of all rows of a group at once, where it is computed from others."""
        instr = self.body[number]
        if isinstance(instr, Store):
            return
        if not isinstance(instr, Compute):
            for row in rows:
                self.values.instructions(row, [number])
            return
        product = self.plan.contracted.get(number)
        factors = () if product is None else lane_operands(self.body[product])
        for operand in (*instr.args, *factors):
            if operand not in joint.values and operand in rows[0].values:
                scalars = [row.values[operand][0] for row in rows]
                joined = side_by_side(self.f, [scalar.value for scalar in scalars])
                joint.values[operand] = [Lane(joined, scalars[0].dtype)]
        (value,) = self.values.compute(joint, number)
        self._divide(rows, joint, number, value)

    def _divide(self, rows: Sequence[LoopScope], joint: LoopScope, number: int, value: Lane) -> None:
        joint.values[number] = [value]
        for lane, row in enumerate(rows):
            row.values[number] = [Lane(self.f.extract(value.value, lane), value.dtype)]

    def _active(self) -> list[int]:
        return sorted(self.plan.facts.needed)

    def _is_row(self, number: int, stage: int) -> bool:
        """True if an instruction is computed once a row, after ``stage`` sweeps (stores: with the values)."""
        if self.plan.facts.element[number] or (self.nest.inner and isinstance(self.body[number], Reduce)):
            return False
        return self.plan.facts.stage[number] == stage

    def _inner(self, scope: LoopScope, sweep: Sweep, level: int, accumulators: Gathered) -> Gathered:
        """The element values of ``level`` in one sweep, then the loops inside it."""
        numbers = sorted(n for n in (*sweep.members, *sweep.reloads) if self.plan.levels[n] == level)
        self.values.instructions(scope, [n for n in numbers if not isinstance(self.body[n], Reduce)])
        if level == len(self.plan.order):
            return self.sums.take(scope, accumulators)
        self.values.prepare(scope, (*sweep.members, *sweep.reloads), level)
        return self.loops.over(scope, level, accumulators, lambda inner, acc: self._inner(inner, sweep, level + 1, acc))

    def _gather(self, scope: LoopScope, sweep: Sweep) -> dict[int, list[Value]]:
        """Run one sweep: the accumulators of each of its reductions."""
        inner = self.sums.opened(scope, sweep)
        return self.sums.by_reduction(inner, self._inner(inner, sweep, self.rows, self.sums.neutral(inner)))
