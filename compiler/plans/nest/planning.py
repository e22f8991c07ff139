"""The plan of a nest: a nest comes in, a ``NestPlan`` goes out, and nothing is emitted.

choose     the vector axis, by a count of what each candidate costs; the order of the loops, by strides
sweep      which element values each pass over the inner dimensions computes, and which it keeps for later ones
share      along which outer dimension the work is cut in chunks for several threads, if there is enough of it
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from staticgrad.base.extents import highest, is_open, largest
from staticgrad.compiler.kernels.nest import Access, Iota, Load, Nest, Reduce, Running, Store
from staticgrad.compiler.kernels.planned import PlannedKernel
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.nest.axes import is_far, loop_order, still_axis, tiled_axis, transposed_axis
from staticgrad.compiler.plans.nest.columns import column_count
from staticgrad.compiler.plans.nest.costs import (
    GROUPED_ROWS,
    STILL_CHUNK,
    VectorNest,
    largest_nest,
    moved_bytes,
    rows_at_once,
    scalar_nest,
    seconds,
)
from staticgrad.compiler.plans.nest.facts import (
    Facts,
    access_of,
    analyse,
    contractions,
    dtype_of,
    is_divisible,
    literals_of,
    simplify,
    split_outer,
)
from staticgrad.compiler.plans.nest.indices import narrowed
from staticgrad.compiler.plans.nest.plan import AHEAD, LONGEST_CHAIN, NestPlan
from staticgrad.compiler.plans.nest.sharing import NestChunks, share_of
from staticgrad.compiler.plans.nest.spans import Span, block_of_rows, spans_of
from staticgrad.compiler.plans.nest.sweeps import Sweep, SweepPart, parts_of
from staticgrad.compiler.plans.nest.vectors import choose_vector, ranged_vector, registers_of_a_value, vector_lanes

# Chunks of other loops from which rows that are far apart are read in panels of AHEAD rows, all columns of a panel
# before the next, and vectors side by side in a panel: each row is then a stream, and memory gives as much as it can.
PANEL_CHUNKS = 8
PANEL_VECTORS = 4
# Rows of a chunk of transposed loads: one cache line of 32-bit elements.
TRANSPOSED_CHUNK = 16


PlannedNest = PlannedKernel[Nest, NestPlan]


def planned(nest: Nest, target: Target) -> PlannedNest:
    """The nest with its plan."""
    plan = plan_nest(nest, target)
    nbytes = 0 if plan is None else plan.scratch_bytes
    return PlannedKernel(nest, plan, is_shared=plan is not None and plan.share is not None, worker_bytes=nbytes)


def plan_nest(nest: Nest, target: Target) -> NestPlan | None:
    """The plan of a whole nest; None where there is nothing to do."""
    return _planned(nest, literals_of(nest), target)


@functools.lru_cache(maxsize=512)
def _planned(nest: Nest, literals: tuple[str, ...], target: Target) -> NestPlan | None:
    simple = simplify(nest)
    if simple is None:
        return None
    simple = narrowed(simple)
    facts = analyse(simple)
    v = choose_vector(simple, facts, target)
    blocked = _blocked(v)
    v = replace(scalar_nest(blocked, analyse(blocked), target), vector=v.vector, lanes=v.lanes)
    return _Planner(replace(v, lanes=v.lanes * registers_of_a_value(v))).plan()


def _blocked(v: VectorNest) -> Nest:
    """Cut the axis of a transposed load, or of rows for which loads stay the same, so that these rows stay near
    (caches, address translation) while the vector axis is run through."""
    nest, target = v.nest, v.target
    across = transposed_axis(nest, v.facts, v.vector)
    still = still_axis(nest, v.facts, v.vector, v.lanes)
    axis = still if across is None else across
    if (
        axis is None
        or nest.inner
        or nest.is_ordered
        or any(isinstance(instr, Iota) and instr.dim == axis for instr in nest.body)
    ):
        return nest
    size, rows = nest.dims[axis], target.sized(TRANSPOSED_CHUNK, 2)
    if is_open(size):
        return nest
    if across is None:
        chunk = max(n for n in range(1, min(size, target.sized(STILL_CHUNK, 4)) + 1) if size % n == 0)
        return split_outer(nest, axis, chunk) if rows <= chunk < size else nest
    return nest if size % rows or size == rows else split_outer(nest, axis, rows)


def seconds_of(nest: Nest, target: Target) -> float:
    """The estimated seconds of a simplified nest on one core."""
    greatest = largest_nest(nest)
    return seconds(choose_vector(greatest, analyse(greatest), target))


def plan_ranged(nest: Nest, target: Target) -> NestPlan:
    """The plan of a nest without inner dimensions whose bounds are known when it runs."""
    if nest.inner:
        raise ValueError("a ranged nest has no inner dimensions")
    nest = narrowed(nest)
    facts = analyse(nest)
    vector, lanes = ranged_vector(nest, facts, target)
    order = loop_order(nest, facts, vector, lanes)
    levels = _levels(nest, facts, order)
    return NestPlan(nest, facts, order, levels, vector, lanes, (), (), {}, (), 0, contractions(nest, facts), {})


def _levels(nest: Nest, facts: Facts, order: tuple[int, ...]) -> tuple[int, ...]:
    """The number of loops around each instruction."""
    rows = len(nest.outer)
    place = {dim: i for i, dim in enumerate(order)}

    def level(number: int) -> int:
        if isinstance(nest.body[number], Reduce) and nest.inner:
            return len(order)
        if isinstance(nest.body[number], Store):
            return len(order) if facts.element[number] else rows
        if facts.stage[number] and not facts.element[number]:
            return rows
        return max((place[dim] + 1 for dim in facts.depends[number]), default=0)

    return tuple(level(number) for number in range(len(nest.body)))


class _ScratchPieces:
    """Scratch memory that is given out piece by piece, each for the greatest sizes and on cache lines of its own."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.end = 0

    def take(self, strides: tuple[int, ...], nbytes: int) -> Access:
        """A piece of ``nbytes``, whose elements have these strides."""
        access = Access(-1 - len(self.starts), 0, strides)
        self.starts.append(self.end)
        self.end += -(-highest(nbytes) // 64) * 64
        return access


class _Planner:
    """The last step: sweeps, what is kept between them, how far loops are unrolled."""

    def __init__(self, v: VectorNest) -> None:
        self.v = v
        self.nest, self.facts, self.target = v.nest, v.facts, v.target
        self.order = loop_order(v.nest, v.facts, v.vector, v.lanes)
        self.kept: dict[int, Access] = {}
        self.scratch = _ScratchPieces()
        self.width = 1  # of one row of scratch memory where the lanes are rows

    def plan(self) -> NestPlan:
        parts = parts_of(self.v)
        in_panels = self._is_in_panels(parts)
        spans: tuple[Span, ...] = ()
        if self.v.vector is not None and not self.v.is_inner:
            spans = self._spans_of_rows(parts, in_panels)
            self.width = max(span.step for span in spans)
        staged = self._staged() if spans else {}
        sweeps = self._sweeps(parts)
        group = self._group(sweeps)
        panel = self._panel(sweeps[0]) if in_panels else None
        running = self._running() if self.nest.is_ordered else None
        across = tiled_axis(self.nest, self.facts, self.v.vector, self.v.lanes)
        share = share_of(self.v, self.order, self._shareable(in_panels), spans, group)
        return NestPlan(
            nest=self.nest,
            facts=self.facts,
            order=self.order,
            levels=_levels(self.nest, self.facts, self.order),
            vector=self.v.vector,
            lanes=self.v.lanes,
            spans=spans,
            sweeps=sweeps,
            kept=self.kept,
            scratch=tuple(self.scratch.starts),
            scratch_bytes=self.scratch.end * group,
            contracted=contractions(self.nest, self.facts),
            staged=staged,
            across=across,
            share=share,
            group=group,
            ahead=self._ahead(len(sweeps)),
            panel=panel,
            strip=self._strip(across, share),
            running=running,
        )

    def _strip(self, across: int | None, share: NestChunks | None) -> int | None:
        """The number of rows that known axes are cut in (``_blocked``); chunks along the axis are strips themselves."""
        if across is None or not is_open(self.nest.dims[across]) or (share is not None and share.dim == across):
            return None
        rows = max(self.v.lanes, self.target.sized(TRANSPOSED_CHUNK, 2))
        return rows if highest(self.nest.dims[across]) > rows else None

    def _ahead(self, sweeps: int) -> int | None:
        """The innermost loop, where its turns visit rows of memory once: more than a cache holds."""
        if self.v.is_inner or self.v.vector is None or sweeps != 1:
            return None
        far = moved_bytes(self.v) > self.target.machine.own_cache_bytes
        return self.order[-1] if far and self.v.greatest.dims[self.order[-1]] > AHEAD else None

    def _is_in_panels(self, parts: Sequence[SweepPart]) -> bool:
        """True if the rows that the innermost loop visits are far apart, and threads have other loops to share: then
        all columns of a few rows are read before the next rows. Not where short rows of another operand are staged:
        their block is transposed whole, once for all of its rows."""
        dim = self._ahead(len(parts))
        if dim is None or len(self.nest.inner) != 1 or any(map(is_open, self.nest.dims)):
            return False
        if self.nest.dims[dim] > AHEAD * self.target.sized(LONGEST_CHAIN):
            return False
        if self.v.staged:
            return False
        loads = [i for n in parts[0].members if isinstance(i := self.nest.body[n], Load)]
        if not any(is_far(self.nest, load.access, dim, self.target) for load in loads) or self._rows_meet():
            return False
        share = share_of(self.v, self.order, self._shareable(True))
        return share is not None and share.chunks >= PANEL_CHUNKS

    def _panel(self, sweep: Sweep) -> dict[int, Access]:
        """Scratch memory for the accumulators of all columns."""
        columns = -(-self.nest.dims[self.v.axis] // self.width) * self.width
        nbytes = {n: columns * dtype_of(self.nest, n).itemsize for n in sweep.reductions}
        return {n: self.scratch.take((), size) for n, size in nbytes.items()}

    def _running(self) -> dict[int, Access]:
        """Scratch memory for what each column has combined."""
        found = {n: i for n, i in enumerate(self.nest.body) if isinstance(i, Running) and n in self.facts.needed}
        columns = math.prod(self.nest.dims[1:])
        return {n: self.scratch.take((), columns * instr.dtype.itemsize) for n, instr in found.items()}

    def _shareable(self, in_panels: bool) -> list[int]:
        """The outer loops that may be cut in chunks; not the columns of panels."""
        dims = self.order[: len(self.nest.outer)]
        return [d for d in dims if is_divisible(self.nest, d) and not (in_panels and d == self.v.vector)]

    def _group(self, sweeps: tuple[Sweep, ...]) -> int:
        """The number of rows that are run together."""
        if not self.v.is_inner or not self.nest.outer or not any(sweep.reductions for sweep in sweeps):
            return 1
        rows = self.v.greatest.dims[self.order[len(self.nest.outer) - 1]]
        tails = any(span.lanes < self.v.lanes for sweep in sweeps for span in sweep.spans)
        if tails or self._rows_meet() or rows < GROUPED_ROWS:
            return 1
        return rows_at_once(self.v)

    def _rows_meet(self) -> bool:
        """True if a row may touch what another writes: additions, and memory that is reached in several ways."""
        stores = [i for i in self.nest.body if isinstance(i, Store)]
        accesses = [x for i in self.nest.body if (x := access_of(i))]
        return any(s.mode == "add" or any(x.arg == s.access.arg and x != s.access for x in accesses) for s in stores)

    def _copies(self, numbers: Iterable[int], reduces: bool) -> int:
        """Independent vectors side by side hide the latency of accumulating; heavy bodies hide it themselves."""
        if not reduces or self.target.machine.compact:
            return 1
        cost = self.v.cost(numbers)
        return self.v.fitting((4 if cost <= 6 else 2 if cost <= 16 else 1) // self._registers or 1)

    @property
    def _registers(self) -> int:
        """The number of registers that a value takes, where several vectors are run at once."""
        return max(1, self.v.lanes // vector_lanes(self.nest, self.target))

    def _spans_of_rows(self, parts: Sequence[SweepPart], in_panels: bool) -> tuple[Span, ...]:
        """The spans where lanes are rows: they are the same for all sweeps."""
        size = self.nest.dims[self.v.axis]
        if not parts:
            return spans_of(size, self.v.lanes, 1, self.target, self.v.cost(range(len(self.nest.body))))
        cost = max(self.v.cost(part.members) for part in parts)
        if self.v.staged:
            return spans_of(size, self.v.lanes, 1, self.target, cost)
        if not any(self._visits_rows(number) for part in parts for number in part.members):
            copies = self._copies(range(len(self.nest.body)), True)
            return spans_of(size, self.v.lanes, copies, self.target, cost)
        copies, ratio = block_of_rows(cost, self.target)
        copies = copies // self._registers or 1
        if in_panels:
            copies = min(copies, PANEL_VECTORS)
        whole = max(1, largest(size) // self.v.lanes)  # then one block takes all of a row
        return spans_of(size, self.v.lanes, min(copies, whole), self.target, cost, ratio)

    def _visits_rows(self, number: int) -> bool:
        """True if an access takes a few vectors of each of many rows of memory."""
        access = access_of(self.nest.body[number])
        inner = range(len(self.nest.outer), len(self.nest.dims))
        if access is None:
            return False
        strides = largest(access.strides)
        return any(abs(strides[dim]) > abs(strides[self.v.axis]) for dim in inner)

    def _sweeps(self, parts: Sequence[SweepPart]) -> tuple[Sweep, ...]:
        first = {value: s for s, part in reversed(list(enumerate(parts))) for value in part.members}
        for value in sorted(set[int]().union(*(part.reloads for part in parts))):
            self._keep(value, parts[first[value]].members)
        return tuple(self._sweep(s, part, first) for s, part in enumerate(parts))

    def _sweep(self, s: int, part: SweepPart, first: dict[int, int]) -> Sweep:
        body = self.nest.body
        members = part.members
        reductions = tuple(sorted(n for n in members if isinstance(body[n], Reduce)))
        saves = frozenset(v for v, access in self.kept.items() if access.arg < 0 and first[v] == s)
        spans: tuple[Span, ...] = ()
        if self.v.is_inner:
            copies = self._copies(members, bool(reductions))
            spans = spans_of(self.nest.dims[self.v.axis], self.v.lanes, copies, self.target, self.v.cost(members))
        return Sweep(members, reductions, part.reloads, saves, spans)

    def _keep(self, value: int, computed_with: frozenset[int]) -> None:
        """Choose where ``value`` stays: where it is stored anyway and nothing else is stored, else in scratch
        memory."""
        for number in computed_with:
            store = self.nest.body[number]
            if isinstance(store, Store) and store.value == value and self._is_plain(store):
                self.kept[value] = store.access
                return
        dims = [d for d in self.order if d in self.facts.depends[value] and d >= len(self.nest.outer)]
        lanes_are_rows = not self.v.is_inner and self.v.vector in self.facts.depends[value]
        count = self.width if lanes_are_rows else 1
        strides = [0] * len(self.nest.dims)
        for dim in reversed(dims):
            strides[dim] = count
            count *= self.nest.dims[dim]
        if lanes_are_rows:
            strides[self.v.axis] = 1
        self.kept[value] = self.scratch.take(tuple(strides), count * dtype_of(self.nest, value).itemsize)

    def _staged(self) -> dict[Access, Access]:
        """The scratch memory for the rows that are transposed."""
        staged: dict[Access, Access] = {}
        strides = [0] * len(self.nest.dims)
        strides[self.v.axis], strides[-1] = 1, self.v.lanes
        for access in self.v.staged:
            size = self.v.lanes * column_count(self.nest.dims[-1], self.v.lanes) * self.nest.args[access.arg].itemsize
            staged[access] = self.scratch.take(tuple(strides), size)
        return staged

    def _is_plain(self, store: Store) -> bool:
        arg = store.access.arg
        alone = all(i is store or (x := access_of(i)) is None or x.arg != arg for i in self.nest.body)
        return alone and store.mode == "set" and store.guard is None and not store.access.terms
