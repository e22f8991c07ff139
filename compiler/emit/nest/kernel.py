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

import functools
import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from staticgrad.base.extents import at_most, is_open, is_same, largest, proven
from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.lanes import leading_lanes
from staticgrad.compiler.emit.llvm import (
    INDEX,
    Function,
    Index,
    IRModule,
    Value,
    integer,
    is_number,
    lanes_of,
    memory_type,
    value_type,
    vector,
)
from staticgrad.compiler.emit.nest.memory import LoopScope, Memory, VectorBlock, from_memory, to_memory
from staticgrad.compiler.emit.nest.reduction import (
    across_lanes,
    across_rows,
    combine,
    combine_all,
    combine_pair,
    neutral,
)
from staticgrad.compiler.emit.parallel import ChunkTable, chunk_range, open_part, run_chunks
from staticgrad.compiler.emit.scalars import Lane, Scalars, literal
from staticgrad.compiler.kernels.nest import (
    Compute,
    Constant,
    Iota,
    Load,
    Nest,
    Reduce,
    ReduceKind,
    Store,
    accumulator_dtype,
)
from staticgrad.compiler.machine.modes import took, took_plan
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.nest.facts import (
    access_of,
    closure,
    dtype_of,
    first_index,
    lane_operands,
    literals_of,
)
from staticgrad.compiler.plans.nest.plan import (
    AHEAD,
    LONGEST_CHAIN,
    NARROWEST_TILE,
    NestChunks,
    NestPlan,
    Span,
    Sweep,
    plan_nest,
    plan_ranged,
)
from staticgrad.graph.optable import OPS

SHORTEST_BLOCK = 128

INT64 = np.dtype(np.int64)
Accumulators = list[Value]
Body = Callable[[LoopScope, Accumulators], Accumulators]


Form = Literal["whole", "ranged", "shared"]


def nest_function(module: IRModule, nest: Nest, ranged: bool = False, form: Form = "whole") -> str:
    """The name of the function that runs ``nest``; equal nests of one module share it."""
    form = "ranged" if ranged else form
    key = ("nest", nest, literals_of(nest), form)
    name = module.shared(key)
    if name is None:
        name = module.unique("nest")
        if form == "shared":
            _emit_shared(module, nest, name)
        else:
            emit_nest(module, nest, name, ranged=ranged)
        module.share(key, name)
    return name


def _note(plan: NestPlan, target: Target) -> None:
    took_plan(plan)
    took("nest: far rows asked for ahead", plan.reads_far_rows(target))


def emit_nest(module: IRModule, nest: Nest, name: str, *, ranged: bool = False) -> None:
    """Add the function ``name`` that runs ``nest``. ``ValueError`` for a ranged nest with inner dimensions."""
    tail = [INDEX] * (2 * len(nest.outer)) if ranged else ["ptr"]
    f = module.function(name, ["ptr"] * len(nest.args) + tail)
    rest = f.params[len(nest.args) :]
    if ranged:
        bounds = {d: (rest[2 * d], rest[2 * d + 1]) for d in range(len(nest.outer))}
        took("nest: epilogue of a matrix kernel")
        _NestEmitter(f, plan_ranged(nest, module.target), f.params, None, bounds).run()
    else:
        plan = plan_nest(nest, module.target)
        if plan is not None:
            _note(plan, module.target)
            _NestEmitter(f, plan, f.params, rest[0], {}).run()
    f.finish()


def _emit_shared(module: IRModule, nest: Nest, name: str) -> None:
    """Add the function ``name`` that has ``nest`` run in chunks, and the function of a chunk."""
    plan = plan_nest(nest, module.target)
    if plan is None or plan.share is None:
        raise ValueError("this nest is not worth sharing")
    _note(plan, module.target)
    share = plan.share
    f = module.function(name, ["ptr"] * (len(nest.args) + 2))
    *pointers, pool = f.params
    table = ChunkTable.fill(f, pointers)
    part = open_part(module, f"{name}.part", len(pointers))
    low, high = chunk_range(part.f, part.chunk, share.size, plan.nest.dims[share.dim])
    *arguments, scratch = part.table.pointers
    own = part.f.offset(scratch, part.f.mul(part.worker, plan.scratch_bytes), "i8")
    _NestEmitter(part.f, plan, arguments, own, {}, Window(share, low, high)).run()
    run_chunks(f, pool, part.f.finish(), table, share.chunks)
    f.finish()


@frozen
class Window:
    """The indices ``[low, high)`` of a chunk."""

    share: NestChunks
    low: Index
    high: Index


class _NestEmitter:
    """Writes one planned nest into one function."""

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
        self.bounds = bounds
        self.window = window
        self.rows = len(plan.nest.outer)
        self.memory = Memory(f, plan, pointers[: len(plan.nest.args)], scratch if plan.scratch else None)
        self._absorbed = frozenset(plan.contracted.values())
        self._scalars: dict[int, Scalars] = {}
        self._sweep: Sweep | None = None
        self._panel: tuple[Index, Index] | None = None  # the rows of the one that is open
        self._strip: tuple[Index, Index] | None = None  # the rows of the one that is open
        self._slots: list[tuple[int, str]] = []  # of the sweep: the reduction and the type of each accumulator

    def run(self) -> None:
        scope = LoopScope()
        for number, instr in enumerate(self.body):
            if isinstance(instr, Constant):
                scope.values[number] = [self._constant(instr, 1)]
        self._outer(scope, 0)

    # -- loops --------------------------------------------------------------------------------------------------

    def _outer(self, scope: LoopScope, level: int) -> None:
        """The row values of ``level``, then the loops inside it."""
        numbers = [n for n in self._active() if self.plan.levels[n] == level and self._is_row(n, 0)]
        if level == self.rows and self.nest.inner:
            self._instructions(scope, [n for n in numbers if not isinstance(self.body[n], Store)])
            self._row(scope)
            return
        self._instructions(scope, numbers)
        if level < self.rows:
            self._prepare(scope, self._active(), level)

            def inside(inner: LoopScope, _: Accumulators) -> Accumulators:
                self._outer(inner, level + 1)
                return []

            if level == self.rows - 1 and self.plan.group > 1:
                self._grouped(scope, level, inside)
            elif level == self.rows - 1 and self.plan.panel is not None:
                self._panels(scope, level, inside)
            else:
                self._loop(scope, level, [], inside)

    def _row(self, scope: LoopScope) -> None:
        """All sweeps over the inner dimensions; row values follow the reductions they need; row stores come last,
        when everything is loaded."""
        if self._panel is not None:
            self._save_panel(scope, self._gather(scope, self.plan.sweeps[0]))
            return
        self.memory.take_rows(scope)
        for number, sweep in enumerate(self.plan.sweeps):
            self._reductions(scope, sweep)
            later = [n for n in self._active() if self._is_row(n, number + 1) and not isinstance(self.body[n], Store)]
            self._instructions(scope, later)
        stores = [n for n in self._active() if isinstance(self.body[n], Store) and not self.plan.facts.element[n]]
        self._instructions(scope, stores)
        self.memory.give_rows(scope)

    def _panels(self, scope: LoopScope, level: int, columns: Body) -> None:
        """The loop over the columns once for each panel of rows, and at last for what follows the reductions."""
        size = self.nest.dims[self.plan.order[-1]]
        self._panel = (0, AHEAD)
        self._loop(scope, level, [], columns)
        with self.f.loop(AHEAD, size, AHEAD) as loop:
            self._panel = (loop.index, self.f.min(self.f.add(loop.index, AHEAD), size))
            self._loop(scope.nested(), level, [], columns)
        self._panel = None
        self._loop(scope, level, [], columns)

    def _grouped(self, scope: LoopScope, level: int, one: Body) -> None:
        """The loop over rows: by groups, and ``one`` by one where less than a group is left."""
        dim, group = self.plan.order[level], self.plan.group
        whole = self.nest.dims[dim] // group * group

        def inside(inner: LoopScope, _: Accumulators) -> Accumulators:
            self._group(inner, dim)
            return []

        self._turns(scope, level, Span(0, whole, 1, group), [], inside)
        if not proven(lambda: whole == self.nest.dims[dim]):
            self._turns(scope, level, Span(whole, self.nest.dims[dim], 1, 1), [], one)

    def _group(self, scope: LoopScope, dim: int) -> None:
        """Run neighbouring rows at once, each as ``_row`` does: the sweeps of each, then what follows in a lane for
        each."""
        rows = [scope.nested() for _ in range(self.plan.group)]
        joint = scope.nested(VectorBlock(len(rows), rows=True))
        first = [n for n in self._active() if self.plan.levels[n] == self.rows and self._is_row(n, 0)]
        for number, row in enumerate(rows):
            row.index[dim] = self.f.add(scope.index[dim], number)
            self.memory.own_scratch(row, number)
            self._instructions(row, [n for n in first if not isinstance(self.body[n], Store)])
        for number, sweep in enumerate(self.plan.sweeps):
            gathered = [self._gather(row, sweep) for row in rows]
            for reduction in sweep.reductions:
                kind, _, dtype = self._reduce(reduction)
                totals = [combine_all(self.f, kind, dtype, found[reduction]) for found in gathered]
                lanes = Lane(across_rows(self.f, kind, dtype, totals), dtype)
                self._divide(rows, joint, reduction, self._as(lanes, dtype_of(self.nest, reduction)))
            for later in [n for n in self._active() if self._is_row(n, number + 1) and n not in self._absorbed]:
                self._joint_value(rows, joint, later)
        stores = [n for n in self._active() if isinstance(self.body[n], Store) and not self.plan.facts.element[n]]
        for row in rows:
            self._instructions(row, stores)

    def _joint_value(self, rows: Sequence[LoopScope], joint: LoopScope, number: int) -> None:
        """A row value of all rows of a group at once, where it is computed from others."""
        instr = self.body[number]
        if isinstance(instr, Store):
            return
        if not isinstance(instr, Compute):
            for row in rows:
                self._instructions(row, [number])
            return
        product = self.plan.contracted.get(number)
        factors = () if product is None else lane_operands(self.body[product])
        for operand in (*instr.args, *factors):
            if operand not in joint.values and operand in rows[0].values:
                joint.values[operand] = [self._joined([row.values[operand][0] for row in rows])]
        (value,) = self._compute(joint, number)
        self._divide(rows, joint, number, value)

    def _divide(self, rows: Sequence[LoopScope], joint: LoopScope, number: int, value: Lane) -> None:
        joint.values[number] = [value]
        for lane, row in enumerate(rows):
            row.values[number] = [Lane(self.f.extract(value.value, lane), value.dtype)]

    def _joined(self, values: Sequence[Lane]) -> Lane:
        """Scalars as the lanes of one vector."""
        first = values[0].value
        found = Value("poison", vector(first.type, len(values)))
        for lane, value in enumerate(values):
            found = self.f.insert(found, value.value, lane)
        return Lane(found, values[0].dtype)

    def _active(self) -> list[int]:
        return sorted(self.plan.facts.needed)

    def _is_row(self, number: int, stage: int) -> bool:
        """True if an instruction is computed once a row, after ``stage`` sweeps (stores: with the values)."""
        if self.plan.facts.element[number] or (self.nest.inner and isinstance(self.body[number], Reduce)):
            return False
        return self.plan.facts.stage[number] == stage

    def _inner(self, scope: LoopScope, sweep: Sweep, level: int, accumulators: Accumulators) -> Accumulators:
        """The element values of ``level`` in one sweep, then the loops inside it."""
        numbers = sorted(n for n in (*sweep.members, *sweep.reloads) if self.plan.levels[n] == level)
        self._instructions(scope, [n for n in numbers if not isinstance(self.body[n], Reduce)])
        if level == len(self.plan.order):
            return self._accumulate(scope, sweep, accumulators)
        self._prepare(scope, (*sweep.members, *sweep.reloads), level)
        return self._loop(scope, level, accumulators, lambda inner, acc: self._inner(inner, sweep, level + 1, acc))

    def _prepare(self, scope: LoopScope, numbers: Sequence[int] | list[int], level: int) -> None:
        """Addresses of deeper loops, as far as they are known here."""
        for number in sorted(numbers):
            if self.plan.levels[number] > level:
                access = access_of(self.body[number])
                if access is not None and not (self._sweep and number in self._sweep.reloads):
                    self.memory.prepare(scope, access, self._memory_dtype(number))
                if self._sweep and number in self._sweep.reloads | self._sweep.saves:
                    self.memory.prepare(scope, self.plan.kept[number], self._memory_dtype(number))

    def _loop(self, scope: LoopScope, level: int, accumulators: Accumulators, body: Body) -> Accumulators:
        dim = self.plan.order[level]
        if self.bounds:
            self._ranged(scope, dim, body)
            return []
        if dim == self.plan.across:
            return self._tiles(scope, level, accumulators, body)
        if dim != self.plan.vector:
            return self._turns(scope, level, Span(0, self.nest.dims[dim], 1, 1), accumulators, body)
        if self.plan.strip is not None and self._strip is None:
            self._strips(scope, level, self.plan.strip, body)
            return []
        spans = self._sweep.spans if self._sweep and self.plan.vector_is_inner else self.plan.spans
        for span in spans:
            inner = scope.nested(VectorBlock(span.lanes, span.copies))
            self._splat(inner)
            accumulators = self._turns(inner, level, span, accumulators, self._masked(span, dim, body))
        return accumulators

    def _strips(self, scope: LoopScope, level: int, rows: int, body: Body) -> None:
        """The loop over vectors once for each strip of whole tiles, and at last for the rows that fill none."""
        assert self.plan.across is not None
        size = self.nest.dims[self.plan.across]
        whole = size // self.plan.lanes * self.plan.lanes
        with self.f.loop(0, whole, rows) as loop:
            self._strip = (loop.index, self.f.min(self.f.add(loop.index, rows), whole))
            self._loop(scope.nested(), level, [], body)
        if not proven(lambda: whole == size):
            self._strip = (whole, size)
            self._loop(scope.nested(), level, [], body)
        self._strip = None

    def _tiles(self, scope: LoopScope, level: int, accumulators: Accumulators, body: Body) -> Accumulators:
        """The axis across the vectors, a tile of them at a time where a whole vector is open: square tiles, narrower
        ones where less is left, single vectors at last."""
        dim, lanes = self.plan.order[level], scope.block.lanes
        at, size = self._strip or (0, self.nest.dims[dim])
        width = lanes if scope.block.mask is None else 1
        if not isinstance(at, int) or not isinstance(size, int):
            strip = scope if width == 1 else scope.nested(VectorBlock(lanes, width, across=dim))
            return self._counted(strip, dim, at, size, width, accumulators, body)
        while width >= min(lanes, NARROWEST_TILE):
            end = at + (size - at) // width * width
            if not proven(lambda: end == at):  # noqa: B023
                tile = scope.nested(VectorBlock(lanes, width, across=dim))
                accumulators = self._turns(tile, level, Span(at, end, 1, width), accumulators, body)
            at, width = end, width // 2
        if not proven(lambda: at == size):
            accumulators = self._turns(scope, level, Span(at, size, 1, 1), accumulators, body)
        return accumulators

    def _masked(self, span: Span, dim: int, body: Body) -> Body:
        if not span.masked:
            return body

        def inside(scope: LoopScope, accumulators: Accumulators) -> Accumulators:
            left = self.f.sub(span.stop, scope.index[dim])
            mask = leading_lanes(self.f, span.lanes, left)
            scope.block = VectorBlock(span.lanes, 1, mask, count=left)
            return body(scope, accumulators)

        return inside

    def _turns(self, scope: LoopScope, level: int, span: Span, accumulators: Accumulators, body: Body) -> Accumulators:
        """The turns of one loop; those of long sums in blocks."""
        dim = self.plan.order[level]
        if self.window is not None and dim == self.window.share.dim:
            return self._in_window(scope, self.window, span, body)
        if self._panel is not None and dim == self.plan.order[-1]:
            return self._counted(scope, dim, *self._panel, 1, accumulators, body)
        if at_most(span.start + 1, span.stop) and is_same(span.turns, 1):
            inner = scope.nested()
            inner.index[dim] = span.start
            return body(inner, accumulators)
        if (search := self._search(dim, span)) is not None:
            inner = scope.nested()
            inner.index[dim] = self._first_turn(scope, dim, span, *search)
            return body(inner, accumulators)
        block = self._block_turns(level, span)
        if block is None:
            return self._counted(scope, dim, span.start, span.stop, span.step, accumulators, body)
        if block == 1:

            def fresh(inner: LoopScope, total: Accumulators) -> Accumulators:
                return self._added(total, body(inner, self._neutral()))

            return self._counted(scope, dim, span.start, span.stop, span.step, accumulators, fresh)
        with self.f.loop(span.start, span.stop, span.step * block, carry=accumulators) as loop:
            stop = self.f.min(self.f.add(loop.index, span.step * block), span.stop)
            part = self._counted(scope, dim, loop.index, stop, span.step, self._neutral(), body)
            loop.next(*self._added(loop.carried, part))
        return loop.results

    def _search(self, dim: int, span: Span) -> tuple[int, bool] | None:
        """The condition and its value, as ``first_index``, of a sweep in vectors that only looks for the first index;
        else None."""
        sweep = self._sweep
        if sweep is None or dim != self.plan.vector or span.lanes == 1 or span.masked or len(sweep.reductions) != 1:
            return None
        if not at_most(span.start + 1, span.stop):
            return None
        if sweep.saves or any(isinstance(self.body[number], Store) for number in sweep.members):
            return None
        return first_index(self.nest, sweep.reductions[0])

    def _first_turn(self, scope: LoopScope, dim: int, span: Span, condition: int, counts: bool) -> Value:
        """The index of the first turn in which the condition is what ``counts``, or of the last one."""
        sweep = self._sweep
        assert sweep is not None
        wanted = closure(self.nest, [condition]) & (sweep.members | sweep.reloads)
        numbers = sorted(n for n in wanted if self.plan.levels[n] == len(self.plan.order))

        def goes_on(carried: Sequence[Value]) -> Value:
            inner = scope.nested()
            inner.index[dim] = carried[0]
            self._instructions(inner, numbers)
            masks = [self._operand(inner, condition, span.lanes, copy).value for copy in range(span.copies)]
            together = functools.reduce(lambda a, b: self.f.binary("or" if counts else "and", a, b), masks)
            name = f"llvm.vector.reduce.{'or' if counts else 'and'}.{self.f.suffix(together.type)}"
            found = self.f.intrinsic(name, "i1", together)
            nothing = self.f.binary("xor", found, Value("true", "i1")) if counts else found
            last = span.stop - span.step
            return self.f.binary("and", nothing, self.f.compare("icmp slt", carried[0], self.f.index(last)))

        with self.f.repeat([self.f.index(span.start)], goes_on) as loop:
            following = self.f.add(loop.carried[0], span.step)
            assert isinstance(following, Value)
            loop.next(following)
        return loop.results[0]

    def _in_window(self, scope: LoopScope, window: Window, span: Span, body: Body) -> Accumulators:
        """The turns of an outer loop that belong to the chunk."""
        low: Index = window.low
        if not is_number(span.start, 0) and isinstance(low, Value):
            low = self.f.max(low, span.start)
        high = window.high
        if not proven(lambda: span.stop == self.nest.dims[window.share.dim]):
            high = self.f.min(high, span.stop)
        self._ranged_turns(scope, window.share.dim, low, high, span.step, body)
        return []

    def _counted(
        self, scope: LoopScope, dim: int, start: Index, stop: Index, step: int, accumulators: Accumulators, body: Body
    ) -> Accumulators:
        some = not (is_open(start) or is_open(stop))
        if isinstance(start, int) and isinstance(stop, int):
            some = at_most(start + 1, stop)
        with self.f.loop(start, stop, step, carry=accumulators, nonempty=some) as loop:
            inner = scope.nested()
            inner.index[dim] = loop.index
            loop.next(*body(inner, loop.carried))
        return loop.results

    def _block_turns(self, level: int, span: Span) -> int | None:
        """The number of turns of this loop that a block of a long floating sum takes (None: the sum is not cut here).

        Rounding errors grow with the number of terms that one accumulator takes; with blocks of about the square
        root of that number they grow with the root (Higham, Accuracy and Stability of Numerical Algorithms, §4.2).
        """
        kinds = [(kind, dtype.kind) for kind, _, dtype in (self._reduce(number) for number, _ in self._slots)]
        if ("sum", "f") not in kinds:
            return None
        inside = largest(math.prod(self._trips(dim) for dim in self.plan.order[level + 1 :]))
        span_turns = largest(span.turns)
        terms = span_turns * inside
        target = self.f.target
        if terms <= target.sized(LONGEST_CHAIN):
            return None
        wanted = max(target.sized(SHORTEST_BLOCK), 1 << math.isqrt(terms).bit_length())
        turns = max(1, wanted // inside)
        return turns if turns < span_turns else None

    def _trips(self, dim: int) -> int:
        size = self.nest.dims[dim]
        if dim != self.plan.vector or self._sweep is None:
            return size
        return max((largest(span.turns) for span in self._sweep.spans), default=size)

    def _ranged(self, scope: LoopScope, dim: int, body: Body) -> None:
        """A loop with bounds that are known at run time."""
        low, high = self.bounds[dim]
        start: Index = low
        if dim == self.plan.vector:
            lanes = self.plan.lanes
            inner = scope.nested(VectorBlock(lanes))
            self._splat(inner)
            count = self.f.sub(high, low)
            assert isinstance(count, Value)
            whole = self.f.binary("and", count, integer(-lanes))
            start = self.f.add(low, whole)
            self._ranged_turns(inner, dim, low, start, lanes, body)
            if self.f.target.isa.predicated:
                assert isinstance(start, Value)
                with self.f.when(self.f.compare("icmp slt", start, high)):
                    tail = inner.nested()
                    tail.index[dim] = start
                    left = self.f.sub(high, start)
                    tail.block = VectorBlock(lanes, 1, leading_lanes(self.f, lanes, left), count=left)
                    body(tail, [])
                return
        self._ranged_turns(scope, dim, start, high, 1, body)

    def _ranged_turns(self, scope: LoopScope, dim: int, start: Index, stop: Index, step: int, body: Body) -> None:
        with self.f.loop(start, stop, step) as loop:
            inner = scope.nested()
            inner.index[dim] = loop.index
            body(inner, [])

    # -- values -------------------------------------------------------------------------------------------------

    def _instructions(self, scope: LoopScope, numbers: Sequence[int]) -> None:
        for number in numbers:
            if number in self._absorbed:
                continue  # its only user computes it
            if self._sweep and number in self._sweep.reloads:
                scope.values[number] = self._reload(scope, number)
                continue
            match self.body[number]:
                case Store() as store:
                    self._store(scope, store)
                case Constant():
                    pass
                case _:
                    scope.values[number] = self._compute(scope, number)
            if self._sweep and number in self._sweep.saves:
                self._save(scope, number)

    def _lanes_and_copies(self, scope: LoopScope, number: int) -> tuple[int, range]:
        block = scope.block
        if block.rows:
            return block.lanes, range(1)
        axis = self.plan.vector if block.across is None else block.across
        copies = block.copies if axis in self.plan.facts.depends[number] else 1
        return block.lanes if self.plan.varies(number) else 1, range(copies)

    def _compute(self, scope: LoopScope, number: int) -> list[Lane]:
        """The value of an instruction: one lane where all lanes are the same, else each copy's vector."""
        lanes, copies = self._lanes_and_copies(scope, number)
        match self.body[number]:
            case Iota(dim, dtype):
                return [self._iota(scope, dim, lanes, copy, dtype) for copy in copies]
            case Load(access, dtype, None) if tile := self.memory.load_tile(scope, access, dtype):
                return tile
            case Load(access, dtype, guard):
                guards = [None if guard is None else self._operand(scope, guard, lanes, copy) for copy in copies]
                return [
                    self.memory.load(scope, access, dtype, lanes, copy, None if g is None else g.value)
                    for copy, g in zip(copies, guards, strict=True)
                ]
            case Compute(op, _, args) if number in self.plan.contracted:
                return [self._contracted(scope, number, op, args, lanes, copy) for copy in copies]
            case Compute(op, attrs, args):
                rule = OPS[op].scalar
                if rule is None:
                    raise ValueError(f"op {op} is not elementwise")
                builder = self._builder(lanes)
                return [rule(builder, attrs, *(self._operand(scope, a, lanes, copy) for a in args)) for copy in copies]
            case Reduce(kind, arg, dtype):
                # Without inner dimensions a reduction is over one element.
                gathered = accumulator_dtype(kind, dtype)
                return [self._as(self._as(self._operand(scope, arg, lanes, c), gathered), dtype) for c in copies]
            case other:
                raise TypeError(f"{other} has no value")

    def _contracted(self, scope: LoopScope, number: int, op: str, args: tuple[int, ...], lanes: int, copy: int) -> Lane:
        """A sum or difference with the product that it takes in."""
        product = self.plan.contracted[number]
        a, b = self._factors(scope, product, lanes, copy)
        other = self._operand(scope, args[0] if args[1] == product else args[1], lanes, copy)
        builder = self._builder(lanes)
        if op == "subtract":
            if args[1] == product:
                a = builder.neg(a)
            else:
                other = builder.neg(other)
        return builder.fma(a, b, other)

    def _factors(self, scope: LoopScope, product: int, lanes: int, copy: int) -> tuple[Lane, Lane]:
        multiply = self.body[product]
        assert isinstance(multiply, Compute)
        a, b = (self._operand(scope, factor, lanes, copy) for factor in multiply.args)
        return a, b

    def _builder(self, lanes: int) -> Scalars:
        if lanes not in self._scalars:
            self._scalars[lanes] = Scalars(self.f, lanes)
        return self._scalars[lanes]

    def _constant(self, constant: Constant, lanes: int) -> Lane:
        type_ = vector(value_type(constant.dtype), lanes)
        if isinstance(constant.value, int) and is_open(constant.value):
            number = self.f.index(constant.value)
            if constant.dtype.kind == "f":
                number = self.f.cast("sitofp", number, value_type(constant.dtype))
            else:
                number = self.f.resized(number, value_type(constant.dtype))
            return Lane(self.f.splat(number, lanes), constant.dtype)
        return Lane(self.f.const(literal(constant.value, constant.dtype), type_), constant.dtype)

    def _iota(self, scope: LoopScope, dim: int, lanes: int, copy: int, dtype: np.dtype) -> Lane:
        block = scope.block
        apart = {self.plan.vector: block.lanes, None: 0} if block.across is None else {block.across: 1}
        ahead = copy * apart.get(dim, 0)
        value = self.f.index(scope.index[dim] if lanes > 1 else self.f.add(scope.index[dim], ahead))
        value = self.f.resized(value, value_type(dtype))
        if lanes > 1:  # the copies share the vector of the first index
            numbers = self.f.lane_numbers(vector(value_type(dtype), lanes), ahead)
            value = self.f.binary("add nsw" if dtype == INT64 else "add", self.f.splat(value, lanes), numbers)
        return Lane(value, dtype)

    def _operand(self, scope: LoopScope, number: int, lanes: int, copy: int) -> Lane:
        """A value as ``lanes`` lanes of the vector ``copy``."""
        instr = self.body[number]
        if isinstance(instr, Constant):
            return self._constant(instr, lanes)
        copies = scope.values[number]
        copy = copy if len(copies) > 1 else 0
        value = copies[copy]
        if lanes_of(value.value.type) == lanes:
            return value
        if (number, copy) not in scope.splats:
            scope.splats[number, copy] = Lane(self.f.splat(value.value, lanes), value.dtype)
        return scope.splats[number, copy]

    def _splat(self, scope: LoopScope) -> None:
        """Make vectors of the values that a vector loop uses and that are the same in all lanes, before the loop."""
        if scope.block.lanes == 1:
            return
        numbers = self._sweep.members if self._sweep else self._active()
        for number in sorted(numbers):
            is_vector = self.plan.varies(number) or isinstance(self.body[number], Store | Reduce)
            if is_vector and not (self.nest.inner and not self._sweep and isinstance(self.body[number], Reduce)):
                for operand in lane_operands(self.body[number]):
                    if operand in scope.values:
                        self._operand(scope, operand, scope.block.lanes, 0)

    # -- memory -------------------------------------------------------------------------------------------------

    def _memory_dtype(self, number: int) -> np.dtype:
        instr = self.body[number]
        return dtype_of(self.nest, instr.value if isinstance(instr, Store) else number)

    def _store(self, scope: LoopScope, store: Store) -> None:
        lanes = scope.block.lanes
        for copy in range(scope.block.copies):
            value = self._operand(scope, store.value, lanes, copy)
            guard = None if store.guard is None else self._operand(scope, store.guard, lanes, copy).value
            self.memory.store(scope, store.access, value, copy, guard, add=store.mode == "add")

    def _reload(self, scope: LoopScope, number: int) -> list[Lane]:
        lanes, copies = self._lanes_and_copies(scope, number)
        access, dtype = self.plan.kept[number], self._memory_dtype(number)
        return [self.memory.load(scope, access, dtype, lanes, copy) for copy in copies]

    def _save(self, scope: LoopScope, number: int) -> None:
        for copy, value in enumerate(scope.values[number]):
            self.memory.store(scope, self.plan.kept[number], value, copy)

    # -- reductions ---------------------------------------------------------------------------------------------

    def _reduce(self, number: int) -> tuple[ReduceKind, int, np.dtype]:
        """Kind, operand and the dtype of the accumulators of a reduction."""
        reduce = self.body[number]
        assert isinstance(reduce, Reduce)
        return reduce.kind, reduce.arg, accumulator_dtype(reduce.kind, reduce.dtype)

    def _gather(self, scope: LoopScope, sweep: Sweep) -> dict[int, list[Value]]:
        """Run one sweep: the accumulators of each of its reductions."""
        self._sweep = sweep
        self._slots = [(n, type_) for n in sweep.reductions for type_ in self._slot_types(scope, sweep, n)]
        gathered = self._inner(scope.nested(), sweep, self.rows, self._neutral())
        found: dict[int, list[Value]] = {number: [] for number in sweep.reductions}
        for (number, _), value in zip(self._slots, gathered, strict=True):
            found[number].append(value)
        self._sweep, self._slots = None, []
        return found

    def _reductions(self, scope: LoopScope, sweep: Sweep) -> None:
        """Run one sweep; its reductions become row values."""
        gathered = self._gather(scope, sweep) if self.plan.panel is None else self._load_panels(scope, sweep)
        for number, found in gathered.items():
            kind, _, dtype = self._reduce(number)
            if self.plan.vector_is_inner:
                whole = [value for value in found if lanes_of(value.type) == self.plan.lanes]
                total = combine_all(self.f, kind, dtype, whole)
                found = [across_lanes(self.f, kind, dtype, total, *found[len(whole) :])]
            wanted = dtype_of(self.nest, number)
            scope.values[number] = [self._as(Lane(value, dtype), wanted) for value in found]

    def _save_panel(self, scope: LoopScope, gathered: dict[int, list[Value]]) -> None:
        """Combine what a panel gave with what the panels before have left in scratch memory."""
        assert self._panel is not None
        for number, values in gathered.items():
            kind, _, dtype = self._reduce(number)
            for copy, value in enumerate(values):
                if self._panel[0] != 0:
                    value = combine(self.f, kind, dtype, self._saved(scope, number, copy, value.type), value)
                self.f.store(to_memory(self.f, value), self._saved_at(scope, number, copy))

    def _load_panels(self, scope: LoopScope, sweep: Sweep) -> dict[int, list[Value]]:
        """Load what all panels have left in scratch memory, as ``_gather`` does."""
        types = {number: self._slot_types(scope, sweep, number) for number in sweep.reductions}
        return {n: [self._saved(scope, n, copy, type_) for copy, type_ in enumerate(types[n])] for n in types}

    def _saved(self, scope: LoopScope, number: int, copy: int, type_: str) -> Value:
        dtype = self._reduce(number)[2]
        found = self.f.load(vector(memory_type(dtype), lanes_of(type_)), self._saved_at(scope, number, copy))
        return from_memory(self.f, found, dtype).value

    def _saved_at(self, scope: LoopScope, number: int, copy: int) -> Value:
        """The address in scratch memory that holds an accumulator between two panels."""
        assert self.plan.panel is not None
        assert self.plan.vector is not None
        column = self.f.add(scope.index[self.plan.vector], copy * scope.block.lanes)
        return self.f.offset(
            self.memory.roots[self.plan.panel[number].arg], column, memory_type(self._reduce(number)[2])
        )

    def _slot_types(self, scope: LoopScope, sweep: Sweep, number: int) -> list[str]:
        """The accumulators of one reduction: a vector for each copy, and one for each shorter vector of a tail."""
        _, arg, dtype = self._reduce(number)
        element = value_type(dtype)
        if self.plan.vector_is_inner:
            copies = max(span.copies for span in sweep.spans)
            shorter = [span.lanes for span in sweep.spans if span.lanes < self.plan.lanes]
            return [vector(element, lanes) for lanes in (*[self.plan.lanes] * copies, *shorter)]
        lanes, found = self._lanes_and_copies(scope, arg)
        return [vector(element, lanes)] * len(found)

    def _neutral(self) -> Accumulators:
        reduces = [(*self._reduce(number), type_) for number, type_ in self._slots]
        return [neutral(self.f, kind, dtype, type_) for kind, _, dtype, type_ in reduces]

    def _added(self, total: Accumulators, part: Accumulators) -> Accumulators:
        reduces = [self._reduce(number) for number, _ in self._slots]
        each = zip(reduces, total, part, strict=True)
        return [combine(self.f, kind, dtype, a, b) for (kind, _, dtype), a, b in each]

    def _accumulate(self, scope: LoopScope, sweep: Sweep, accumulators: Accumulators) -> Accumulators:
        """Take this turn's elements into the accumulators."""
        new = list(accumulators)
        for number in sweep.reductions:
            kind, arg, dtype = self._reduce(number)
            lanes, copies, mask = scope.block.lanes, range(scope.block.copies), scope.block.mask
            if not self.plan.vector_is_inner:
                # Lanes are rows: what a row beyond the end gathers is never stored.
                (lanes, copies), mask = self._lanes_and_copies(scope, arg), None
            slots = [i for i, (n, type_) in enumerate(self._slots) if n == number and lanes_of(type_) == lanes]
            if self._in_pairs(number, lanes, len(copies)) and mask is None:
                values = [self._as(self._operand(scope, arg, lanes, copy), dtype).value for copy in copies]
                for i in range(0, len(copies), 2):
                    both = new[slots[i]], new[slots[i + 1]]
                    stepped_both = combine_pair(self.f, kind, both, (values[i], values[i + 1]))
                    new[slots[i]], new[slots[i + 1]] = stepped_both
                continue
            for copy in copies:
                old = new[slots[copy]]
                if number in self.plan.contracted:
                    a, b = self._factors(scope, arg, lanes, copy)
                    stepped = self.f.fma(a.value, b.value, old)
                else:
                    x = self._as(self._operand(scope, arg, lanes, copy), dtype)
                    stepped = combine(self.f, kind, dtype, old, x.value)
                new[slots[copy]] = stepped if mask is None else self.f.select(mask, stepped, old)
        return new

    def _in_pairs(self, number: int, lanes: int, copies: int) -> bool:
        """True if the accumulators of a reduction are floating extremes that become one in the end, two and two."""
        kind, _, dtype = self._reduce(number)
        is_extreme = kind in ("max", "min") and dtype.kind == "f"
        return is_extreme and self.plan.vector_is_inner and lanes == self.plan.lanes and copies % 2 == 0

    def _as(self, x: Lane, dtype: np.dtype) -> Lane:
        return x if x.dtype == dtype else self._builder(lanes_of(x.value.type)).cast(x, dtype)
