"""The plan of a nest: a nest comes in, a ``NestPlan`` goes out, and nothing is emitted.

    choose     the vector axis, by a count of what each candidate costs; the order of the loops, by strides
    sweep      which element values each pass over the inner dimensions computes, and which it keeps for later ones
    share      along which outer dimension the work is cut in chunks for several threads, if there is enough of it

Dimensions are numbered as in the simplified nest; ``order`` lists them from the outermost loop to the innermost.
A value's *level* is the number of loops around the place where it is computed.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from staticgrad.base.extents import highest, is_open, is_same, largest, lowest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.nest import Access, Iota, Load, Nest, Reduce, Store
from staticgrad.compiler.kernels.planned import PlannedKernel
from staticgrad.compiler.machine.machine import LINE
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.chunks import cut, powers_of_two, wanted_chunks
from staticgrad.compiler.plans.nest.columns import column_count, is_staged, tile_width
from staticgrad.compiler.plans.nest.facts import (
    Facts,
    access_of,
    analyse,
    contractions,
    cost_of,
    dtype_of,
    is_divisible,
    literals_of,
    operands,
    simplify,
    split_outer,
    stores_of,
)
from staticgrad.compiler.plans.nest.indices import narrowed

# Costs are in instructions of a vector, as ``op_costs`` counts them.
# From this cost on a value is kept in scratch memory for a later sweep; below, computing it again is cheaper than a
# store and a load.
KEEP_COST = 10
# Above this cost a loop body is emitted once, under a mask, instead of once more for the tail.
ONE_COPY_COST = 80
# Up to this cost a body is repeated for each vector of a tile that is transposed in registers.
TILED_COST = 4
# Number of short rows that form a group: their sums go across lanes together, and what follows from them is one vector.
GROUPED_ROWS = 4
# Vectors of a row, and cost of one of them, above which rows are long enough by themselves.
GROUPED_VECTORS = 8
GROUPED_COST = 100
# Elements up to which rows are transposed in registers where the lanes are rows.
LONGEST_STAGED = 64
# Cost of a shuffle of such a transpose: one unit of the processor has all of them.
SHUFFLE_COST = 1.5
# Cost of a lane that reads a row of memory of its own, which a sweep leaves before it has taken more of it.
STRIDED_COST = 2.0
# Cost of one lane of a gather that is emulated by scalar loads and inserts.
INSERTED_COST = 1.75
# Cost of a reduction across the lanes of a vector, alone and in a group of rows.
ACROSS_COST, GROUPED_ACROSS_COST = 12.0, 7.0
# Where the lanes are rows and each turn visits another row of memory, as much of it is taken as the registers allow:
# (highest cost of the body, vectors side by side, the ratio of these to the next smaller block).
VISITED = ((2, 16, 2), (6, 8, 2), (16, 8, 4), (60, 4, 4), (math.inf, 1, 2))
# Turns by which rows that are far apart are prefetched, where all together exceed a core's own cache: the processor's
# prefetchers stop at the end of a page.
AHEAD = 8
# Chunks of other loops from which such rows are read in panels of AHEAD rows, all columns of a panel before the next,
# and vectors side by side in a panel: each row is then a stream, and memory gives as much as it can.
PANEL_CHUNKS = 8
PANEL_VECTORS = 4
# Terms that an accumulator adds one after the other at most; longer sums are cut in blocks whose sums are then added.
LONGEST_CHAIN = 256
# Vectors from which code that runs several registers at once is worth its length.
WORTH_INTERLEAVING = 256
# Least number of vectors of a tile of loads that is transposed in registers.
NARROWEST_TILE = 4
# Cost that must be saved for each vector, so that loads which jump along the vectors and are the same in every turn of
# another loop are done once for several of its turns; results then come and go row by row.
STILL_COST = 32
# Turns of that loop that share such loads at most.
STILL_CHUNK = 64
# Rows of a chunk of transposed loads: one cache line of 32-bit elements.
TRANSPOSED_CHUNK = 16
# Least bytes of each row of memory that a chunk of columns takes.
CHUNK_ROW_BYTES = 256
# Chunks into which the outermost loop must be cut so that inner loops are not looked at.
ENOUGH_CHUNKS = 12


# -- choose ---------------------------------------------------------------------------------------------------------


def vector_lanes(nest: Nest, target: Target) -> int:
    """Lanes for this body: one register of its floats; 64-bit integers next to narrower data take two registers."""
    dtypes = {dtype_of(nest, number) for number, instr in enumerate(nest.body) if not isinstance(instr, Store)}
    sizes = {dtype.itemsize for dtype in dtypes}
    if np.dtype(np.float64) in dtypes or not sizes - {8}:
        return max(1, target.isa.vector_bytes // 8)
    return max(1, target.isa.vector_bytes // (4 if 4 in sizes or 8 in sizes else max(sizes)))


def _lanes_along(size: int, lanes: int, target: Target) -> int:
    """Short axes get short vectors: with masks the power of two above the size, else the one below."""
    bits = (size - 1).bit_length() if target.isa.predicated else size.bit_length() - 1
    return min(lanes, 1 << bits)


def _collides(nest: Nest, facts: Facts, dim: int) -> bool:
    """Lanes along ``dim`` would add to one address."""
    is_outer = dim < len(nest.outer)
    for number in stores_of(nest):
        store = nest.body[number]
        assert isinstance(store, Store)
        if store.mode == "add" and (is_outer or facts.element[number]):
            moving = any(dim in facts.depends[value] for value, _ in store.access.terms)
            if moving or store.access.strides[dim] == 0:
                return True
    return False


def staged_accesses(nest: Nest, facts: Facts, dim: int | None, lanes: int, target: Target) -> list[Access]:
    """The accesses whose rows are transposed in registers where lanes along ``dim`` are rows: those of short rows whose
    elements lie side by side, if no other access reaches the memory of one."""
    if dim is None or dim >= len(nest.outer) or len(nest.inner) != 1 or lanes < 4:
        return []
    size = nest.inner[0]
    if highest(size) > LONGEST_STAGED or (lowest(size) < lanes and not target.isa.predicated):
        return []
    reached = [i for n in sorted(facts.needed) if isinstance(i := nest.body[n], Load | Store)]

    def fits(instr: Load | Store) -> bool:
        access = instr.access
        plain = instr.guard is None and not (isinstance(instr, Store) and instr.mode == "add")
        others = [other for other in reached if other.access.arg == access.arg and other.access != access]
        alone = not any(isinstance(other, Store) for other in ([instr, *others] if others else []))
        return plain and alone and nest.args[access.arg].itemsize >= 4 and is_staged(access, dim, len(nest.dims) - 1)

    return list(dict.fromkeys(instr.access for instr in reached if fits(instr)))


def _staging_cost(size: int, lanes: int) -> float:
    """The instructions for one vector of a tile of rows of ``size`` elements that is staged or unstaged."""
    width = tile_width(size, lanes)
    tiles = -(-size // width)
    return tiles * (lanes + SHUFFLE_COST * (lanes - width + width * (width.bit_length() - 1))) / size


def is_near(stride: int, lanes: int) -> bool:
    """True if elements ``stride`` apart lie in so few vectors that loading those and shuffling takes fewer instructions
    than there are lanes."""
    return not is_open(stride) and stride > 1 and 2 * stride - 1 < lanes


def _is_left(access: Access, inner: range, dim: int) -> bool:
    """True if sweeps do not go along the rows of memory in which the lanes lie."""
    return bool(inner) and not any(abs(access.strides[d]) == 1 for d in inner if d != dim)


def _memory_cost(instr: Load | Store, facts: Facts, dim: int, lanes: int, inner: range, gathered: float = 1.0) -> float:
    """The instructions for one vector along ``dim`` of a load or store in a nest with the dimensions ``inner``;
    ``gathered`` is the cost of a lane that is loaded by itself."""
    stride = abs(largest(instr.access.strides[dim]))
    moving = any(dim in facts.depends[value] for value, _ in instr.access.terms)
    if is_near(instr.access.strides[dim], lanes) and not moving and instr.guard is None:
        adds = isinstance(instr, Store) and instr.mode == "add"
        return 4.0 * stride if adds else 2.0 * stride
    scattered = stride > 1 or moving
    lane = STRIDED_COST if stride > 1 and not moving and _is_left(instr.access, inner, dim) else 1.0
    if isinstance(instr, Load):
        return gathered * lane * lanes if scattered else 1.0
    return (2.0 if instr.mode == "add" else 1.0) * (1.5 * lane * lanes if scattered or stride == 0 else 1.0)


@frozen(eq=False)
class _Work:
    """For each instruction: the number of vector instructions that it takes, the number of sweeps in which it runs."""

    costs: Sequence[int]
    runs: Sequence[int]


def _work(nest: Nest, facts: Facts) -> _Work:
    """The work of a nest: of its elements what costs much is kept, the rest is computed again in each sweep."""
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
    return _Work(costs, [max(1, len(found)) for found in sweeps])


def _run_cost(given: Nest, nest: Nest, facts: Facts, work: _Work, target: Target, dim: int | None, lanes: int) -> float:
    """The estimated number of instructions of the whole nest with vectors of ``lanes`` along ``dim``; ``nest`` is the
    one for the greatest sizes."""
    rows, elements = math.prod(nest.outer), math.prod(nest.dims)
    per_turn = 1.0
    if dim is not None:
        size = nest.dims[dim]
        turns = -(-size // lanes) if target.isa.predicated else size // lanes + (size % lanes).bit_count()
        per_turn = turns / size
    inner = dim is not None and dim >= len(nest.outer)
    inner_dims = range(len(nest.outer), len(nest.dims))
    gathered = 1.0 if target.isa.gathers else INSERTED_COST
    staged = [largest(access) for access in staged_accesses(given, facts, dim, lanes, target)]
    tiled = tiled_axis(nest, facts, dim, lanes)
    still = still_axis(nest, facts, dim, lanes)
    rows_at_once = _rows_at_once(nest, facts, work, lanes) if inner else 1
    across = GROUPED_ACROSS_COST if rows_at_once > 1 else ACROSS_COST
    # what passes through tiles does so once, in whichever sweeps it is read
    total = sum(elements * per_turn * _staging_cost(nest.inner[0], lanes) for _ in staged)
    for number in facts.needed:
        instr = nest.body[number]
        count: float = elements * work.runs[number] if facts.element[number] else rows
        along = dim
        if inner and not facts.element[number]:
            along = None
            count /= rows_at_once
        else:
            count *= per_turn
        if isinstance(instr, Reduce) and nest.inner:
            total += elements * per_turn + (across * rows if inner else 0.0)
        elif isinstance(instr, Load | Store):
            if along is not None and instr.access not in staged:
                if tiled is not None and isinstance(instr, Load) and is_turned(instr.access, along, tiled):
                    count *= _staging_cost(nest.dims[tiled], lanes)
                else:
                    count *= _memory_cost(instr, facts, along, lanes, inner_dims, gathered)
                    if still is not None and not instr.access.strides[still] and not instr.access.terms:
                        count /= min(nest.dims[still], STILL_CHUNK)
            total += count
        else:
            total += count * work.costs[number]
    return total


def _rows_at_once(nest: Nest, facts: Facts, work: _Work, lanes: int) -> int:
    """The number of rows that are run together where the lanes are elements: more than one for short bodies, whose
    reductions take as long as their elements."""
    if not nest.outer or lanes < GROUPED_ROWS or math.prod(nest.inner) // lanes > GROUPED_VECTORS:
        return 1
    elements = [number for number in facts.needed if facts.element[number]]
    return GROUPED_ROWS if sum(work.costs[number] for number in elements) <= GROUPED_COST else 1


def choose_vector(nest: Nest, facts: Facts, target: Target) -> tuple[int | None, int]:
    """The vector axis and its lanes; (None, 1) where only scalar code is right or worth it."""
    greatest = _greatest(nest)
    full = vector_lanes(greatest, target)
    best: tuple[int | None, int] = (None, 1)
    work = _work(greatest, facts)
    least = _run_cost(nest, greatest, facts, work, target, None, 1)
    for dim, size in enumerate(greatest.dims):
        lanes = _lanes_along(size, full, target)
        if lanes > 1 and not _collides(greatest, facts, dim):
            cost = _run_cost(nest, greatest, facts, work, target, dim, lanes)
            if cost <= least:
                best, least = (dim, lanes), cost
    return best


def _ranged_vector(nest: Nest, facts: Facts, target: Target) -> tuple[int | None, int]:
    """The vector axis of a nest whose bounds are not known: the axis with most unit strides, the last of equals."""
    full = vector_lanes(nest, target)

    def units(dim: int) -> int:
        accesses = [x for number in facts.needed if (x := access_of(nest.body[number]))]
        strides = [largest(x.strides[dim]) for x in accesses]
        return sum(stride == 1 for stride in strides) - 2 * sum(abs(stride) > 1 for stride in strides)

    good = [d for d, size in enumerate(nest.dims) if size != 1 and not _collides(nest, facts, d)]
    if not good:
        return None, 1
    dim = max(good, key=lambda d: (units(d), d))
    lanes = _lanes_along(max(1, largest(nest.dims[dim])), full, target)
    return (dim, lanes) if lanes > 1 else (None, 1)


def transposed_axis(nest: Nest, facts: Facts, vector: int | None) -> int | None:
    """The axis along which a load is contiguous that jumps along the vector axis, in a nest without inner ones."""
    if vector is None or nest.inner:
        return None
    for number in sorted(facts.needed):
        instr = nest.body[number]
        if isinstance(instr, Load) and abs(largest(instr.access.strides[vector])) > 1:
            for dim, stride in enumerate(instr.access.strides):
                if stride == 1 and dim != vector and nest.dims[dim] != 1:
                    return dim
    return None


def still_axis(nest: Nest, facts: Facts, vector: int | None, lanes: int) -> int | None:
    """The axis along which loads that jump along the vectors stay the same: the loop along it is inside of that over
    vectors, so that they are loaded once for many turns. Only among inner axes where there are any."""
    split = len(nest.outer)
    if vector is None or (nest.inner and vector < split):
        return None
    reached = [(i, i.access) for n in sorted(facts.needed) if isinstance(i := nest.body[n], Load | Store)]
    if any(isinstance(i, Store) and i.mode == "add" for i, _ in reached):
        return None
    inner = range(split, len(nest.dims))
    costs = {(i, x): _memory_cost(i, facts, vector, lanes, inner) for i, x in reached if x.strides[vector] or x.terms}
    best, most = None, 0.0
    for dim in inner if nest.inner else range(split):
        if dim == vector or nest.dims[dim] == 1:
            continue
        moving = [x for (i, x) in costs if x.strides[dim] or x.terms]
        still = sum(cost for (i, x), cost in costs.items() if isinstance(i, Load) and x not in moving and cost > 1)
        if still > STILL_COST * len(moving) and still >= most:
            best, most = dim, still
    return best


def tiled_axis(nest: Nest, facts: Facts, vector: int | None, lanes: int) -> int | None:
    """The axis of the tiles in which loads are transposed: only for short bodies, which are unrolled for each vector of
    a tile."""
    across = transposed_axis(nest, facts, vector)
    if across is None or vector is None:
        return None
    if highest(nest.dims[vector]) < lanes or highest(nest.dims[across]) < min(lanes, NARROWEST_TILE):
        return None
    accesses = [x for instr in nest.body if (x := access_of(instr))]
    if any(x.terms for x in accesses) or any(nest.args[x.arg].itemsize < 4 for x in accesses):
        return None
    return across if sum(cost_of(nest, number) for number in facts.needed) <= TILED_COST else None


def is_turned(access: Access, vector: int, across: int) -> bool:
    """True if a load jumps along the vectors and is contiguous across them."""
    return access.strides[across] == 1 and abs(largest(access.strides[vector])) > 1 and not access.terms


def block_of_rows(cost: int, target: Target) -> tuple[int, int]:
    """The number of vectors of many rows of memory that a body of ``cost`` instructions accumulates side by side, and
    the ratio of that to the next smaller block."""
    if target.machine.compact:
        return 1, LAST_BLOCK
    copies, ratio = next((copies, ratio) for most, copies, ratio in VISITED if cost <= most)
    return min(copies, target.isa.registers // 2), ratio


def _loop_order(nest: Nest, facts: Facts, vector: int | None, lanes: int) -> tuple[int, ...]:
    """Large strides outside. The vector axis is the innermost of its group, but where a transposed load runs along
    another axis, or loads stay the same along it: then that one is inside, so that each cache line is used while it is
    near."""
    accesses = [x for number in sorted(facts.needed) if (x := access_of(nest.body[number]))]
    across = transposed_axis(nest, facts, vector)
    across = still_axis(nest, facts, vector, lanes) if across is None else across

    def reach(dim: int) -> int:
        return sum(abs(largest(x.strides[dim])) for x in accesses)

    split = len(nest.outer)
    groups = [sorted(group, key=reach, reverse=True) for group in (range(split), range(split, len(nest.dims)))]
    for group in groups:
        if vector in group:
            group.remove(vector)
            group.append(vector)
    if across is not None:
        group = groups[across >= split]
        group.remove(across)
        group.append(across)
    return (*groups[0], *groups[1])


# -- sweep ----------------------------------------------------------------------------------------------------------


LAST_BLOCK = 64  # a ratio of blocks: the largest one is the only one


@frozen
class Span:
    """A part of the vector axis: turns of ``lanes·copies`` indices from ``start`` until ``stop``. The last turn of a
    masked span may reach over its end. Where sizes are open it may be that there is none."""

    start: int
    stop: int
    lanes: int
    copies: int
    masked: bool = False

    @property
    def step(self) -> int:
        return self.lanes * self.copies

    @property
    def turns(self) -> int:
        return -(-(self.stop - self.start) // self.step)


def spans_of(
    size: int, lanes: int, copies: int, target: Target, cost: int, ratio: int = LAST_BLOCK
) -> tuple[Span, ...]:
    """Cut an axis into a main part, blocks of copies that are fewer by ``ratio`` and by ``ratio`` again, full vectors
    that remain, and a tail: under a mask, or in vectors of half the lanes, of a quarter, and so on."""
    if is_open(size):
        return _open_spans(size, lanes, copies, target, cost, ratio)
    if target.isa.predicated and cost > ONE_COPY_COST and size % lanes and size > lanes:
        return (Span(0, size, lanes, 1, masked=True),)
    spans: list[Span] = []
    at = 0
    while copies > 1:
        block = lanes * copies
        if size - at >= block:
            end = size - (size - at) % block
            spans.append(Span(at, end, lanes, copies))
            at = end
        copies //= ratio
    rest = (size - at) % lanes
    if rest and target.isa.predicated and spans:
        return (*spans, Span(at, size, lanes, 1, masked=True))
    if size - rest > at:
        spans.append(Span(at, size - rest, lanes, 1))
    if rest and target.isa.predicated:
        spans.append(Span(size - rest, size, lanes, 1, masked=True))
    elif rest:
        spans += _halved(size, rest)
    return tuple(spans)


def _open_spans(size: int, lanes: int, copies: int, target: Target, cost: int, ratio: int) -> tuple[Span, ...]:
    """``spans_of`` an axis of an open size: the spans that its greatest size has, and a tail in any case."""
    if target.isa.predicated and cost > ONE_COPY_COST:
        return (Span(0, size, lanes, 1, masked=True),)
    spans: list[Span] = []
    at, rest = 0, size
    while copies > 1:
        block = lanes * copies
        if highest(rest) >= block:
            end, rest = size // block * block, size % block
            spans.append(Span(at, end, lanes, copies))
            at = end
        copies //= ratio
    if target.isa.predicated and spans:
        return _there(*spans, Span(at, size, lanes, 1, masked=True))
    end = size // lanes * lanes
    if highest(rest) >= lanes:
        spans.append(Span(at, end, lanes, 1))
    if target.isa.predicated:
        return _there(*spans, Span(end, size, lanes, 1, masked=True))
    while lanes > 1:
        lanes //= 2
        start, end = end, size // lanes * lanes
        spans.append(Span(start, end, lanes, 1))
    return _there(*spans)


def _there(*spans: Span) -> tuple[Span, ...]:
    """The spans without those that are empty at all sizes."""
    return tuple([span for span in spans if not is_same(span.start, span.stop)])


def _halved(size: int, rest: int) -> list[Span]:
    """The last ``rest`` of an axis, less than a vector, in single turns of fewer lanes."""
    ends = [size - rest, *(size - rest % half for half in powers_of_two(rest))]
    return [Span(start, end, end - start, 1) for start, end in itertools.pairwise(ends)]


@frozen
class Sweep:
    """One pass over the inner dimensions. ``members`` are the element instructions that it runs; it reads the values
    in ``reloads`` back from where they were kept and keeps those in ``saves``. ``spans`` cut the vector axis where
    that is an inner one."""

    members: frozenset[int]
    reductions: tuple[int, ...]
    reloads: frozenset[int]
    saves: frozenset[int]
    spans: tuple[Span, ...]


@frozen
class SweepPart:
    """The values that one pass over the inner dimensions computes, and those that it reads back."""

    members: frozenset[int]
    reloads: frozenset[int]


@frozen
class NestChunks:
    """Chunks of ``size`` indices along the outer dimension ``dim``, the last one may be shorter. Every chunk starts
    where a turn of the loop does: it computes what the whole loop would."""

    dim: int
    size: int
    chunks: int


@frozen
class NestPlan:
    """``kept`` says where a value lives between sweeps: in an argument, or in scratch memory as argument -1 - i with
    ``scratch[i]`` its first byte. ``spans`` cut the vector axis where that is an outer one. Where loads run across the
    vectors, the axis ``across`` is cut in square tiles. ``contracted`` names the product that a sum takes in. ``group``
    rows, neighbours along the last outer loop, are run sweep by sweep. Loads whose turns along the dimension ``ahead``
    are far apart are prefetched. ``staged`` says where in scratch memory short rows are while a block of them is
    worked on, column by column. With ``panel`` all columns of a few rows are gathered from before the next rows are:
    it says where in scratch memory a reduction's accumulators are in between. With ``strip`` all vectors of so many
    rows of ``across``, whose number is open, are run before the next rows are."""

    nest: Nest
    facts: Facts
    order: tuple[int, ...]
    levels: tuple[int, ...]
    vector: int | None
    lanes: int
    spans: tuple[Span, ...]
    sweeps: tuple[Sweep, ...]
    kept: dict[int, Access]
    scratch: tuple[int, ...]
    scratch_bytes: int
    contracted: dict[int, int]
    staged: dict[Access, Access]
    across: int | None = None
    share: NestChunks | None = None
    group: int = 1
    ahead: int | None = None
    panel: dict[int, Access] | None = None
    strip: int | None = None

    def reads_far_rows(self, target: Target) -> bool:
        """True if each turn of the innermost loop loads from a row of memory that is far away."""
        ahead = self.ahead
        return ahead is not None and any(is_far(self.nest, access, ahead, target) for access in self.loaded)

    @property
    def loaded(self) -> frozenset[Access]:
        """The accesses by which elements are loaded."""
        return self._reached(Load)

    @property
    def stored(self) -> frozenset[Access]:
        return self._reached(Store)

    def _reached(self, kind: type[Load] | type[Store]) -> frozenset[Access]:
        body = self.nest.body
        return frozenset(i.access for n in self.facts.needed if isinstance(i := body[n], kind))

    @property
    def row_bytes(self) -> int:
        """Scratch memory of each row of a group."""
        return self.scratch_bytes // self.group

    @property
    def text(self) -> str:
        """The order of the loops and the vectors, then what is staged, grouped, cut in chunks and prefetched."""
        loops = " ".join(f"{dim}:{self.nest.dims[dim]}" for dim in self.order)
        lines = [f"loops {loops}" if loops else "no loop"]
        if self.vector is not None:
            spans = self.spans or (self.sweeps[0].spans if self.sweeps else ())
            unrolled = max((span.copies for span in spans), default=1)
            turns = f" x{unrolled}" if unrolled > 1 else ""
            lines.append(f"vectors of {self.lanes}{turns} along {self.vector}")
        if len(self.sweeps) > 1:
            lines.append(f"{len(self.sweeps)} sweeps")
        if self.across is not None:
            lines.append(f"tiles transposed across {self.across}")
        if self.strip is not None:
            lines.append(f"strips of {self.strip} rows")
        if self.staged:
            lines.append("short rows staged")
        if self.panel is not None:
            lines.append("in panels of rows")
        if self.group > 1:
            lines.append(f"groups of {self.group} rows")
        if self.share is not None:
            lines.append(f"{self.share.chunks} chunks of {self.share.size} along {self.share.dim}")
        if self.ahead is not None:
            lines.append(f"prefetches along {self.ahead}")
        return "; ".join(lines)

    @property
    def vector_is_inner(self) -> bool:
        return self.vector is not None and self.vector >= len(self.nest.outer)

    def varies(self, number: int) -> bool:
        """True if the lanes of a vector hold different values of it."""
        return self.vector in self.facts.depends[number]


def is_far(nest: Nest, access: Access, dim: int, target: Target) -> bool:
    """True if a step along ``dim`` leads to a row of memory that is far away."""
    return largest(abs(access.strides[dim])) * nest.args[access.arg].itemsize >= target.machine.far_bytes


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
    vector, lanes = choose_vector(simple, facts, target)
    blocked = _blocked(simple, facts, vector, lanes, target)
    facts = analyse(blocked)
    lanes *= _registers_of_a_value(_greatest(blocked), facts, target, vector, lanes)
    return _Planner(blocked, facts, target, vector, lanes).plan()


def _greatest(nest: Nest) -> Nest:
    """The nest for the greatest open sizes, at which others that follow from these may be least: one at least."""
    found = largest(nest)
    if found is nest:
        return nest
    outer, inner = (tuple([max(size, 1) for size in sizes]) for sizes in (found.outer, found.inner))
    return replace(found, outer=outer, inner=inner)


def _registers_of_a_value(nest: Nest, facts: Facts, target: Target, vector: int | None, lanes: int) -> int:
    """Long chains of instructions that wait for each other are run for several registers at once, the number that the
    target asks for, instruction by instruction: not where the lanes pass through tiles, nor where that leaves a tail of
    short rows, which are run in groups, nor for so few vectors that the code, which gets two or three times as long,
    takes longer to make than it saves."""
    count = target.machine.interleaved
    if vector is None or count == 1 or nest.dims[vector] < count * lanes:
        return 1
    if math.prod(nest.dims) < target.sized(WORTH_INTERLEAVING) * lanes:
        return 1
    if all(cost_of(nest, number) < KEEP_COST for number in facts.needed):
        return 1
    if any(dtype_of(nest, n).itemsize * lanes > target.isa.vector_bytes for n in facts.needed if _has_value(nest, n)):
        return 1
    if staged_accesses(nest, facts, vector, lanes, target) or tiled_axis(nest, facts, vector, lanes) is not None:
        return 1
    is_short = vector >= len(nest.outer) and nest.dims[vector] // lanes <= GROUPED_VECTORS
    return 1 if is_short and nest.dims[vector] % (count * lanes) else count


def _has_value(nest: Nest, number: int) -> bool:
    return not isinstance(nest.body[number], Store)


def _blocked(nest: Nest, facts: Facts, vector: int | None, lanes: int, target: Target) -> Nest:
    """Cut the axis of a transposed load, or of rows for which loads stay the same, so that these rows stay near
    (caches, address translation) while the vector axis is run through."""
    across, still = transposed_axis(nest, facts, vector), still_axis(nest, facts, vector, lanes)
    axis = still if across is None else across
    if axis is None or nest.inner or any(isinstance(instr, Iota) and instr.dim == axis for instr in nest.body):
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
    nest = _greatest(nest)
    facts = analyse(nest)
    return _Planner(nest, facts, target, *choose_vector(nest, facts, target)).seconds()


def plan_ranged(nest: Nest, target: Target) -> NestPlan:
    """The plan of a nest without inner dimensions whose bounds are known when it runs."""
    if nest.inner:
        raise ValueError("a ranged nest has no inner dimensions")
    nest = narrowed(nest)
    facts = analyse(nest)
    vector, lanes = _ranged_vector(nest, facts, target)
    order = _loop_order(nest, facts, vector, lanes)
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


class _Planner:
    """The last step: sweeps, what is kept between them, how far loops are unrolled."""

    def __init__(self, nest: Nest, facts: Facts, target: Target, vector: int | None, lanes: int) -> None:
        self.nest = nest
        self.greatest = _greatest(nest)  # by which everything is estimated
        self.facts = facts
        self.target = target
        self.vector = vector
        self.lanes = lanes
        self.work = _work(nest, facts)
        self.order = _loop_order(nest, facts, vector, lanes)
        self.inner_vector = vector is not None and vector >= len(nest.outer)
        self.kept: dict[int, Access] = {}
        self.staged: dict[Access, Access] = {}
        self.scratch: list[int] = []
        self.scratch_end = 0
        self.width = 1  # of one row of scratch memory where the lanes are rows

    def plan(self) -> NestPlan:
        parts = self._parts()
        in_panels = self._is_in_panels(parts)
        spans: tuple[Span, ...] = ()
        if self.vector is not None and not self.inner_vector:
            spans = self._spans_of_rows(parts, in_panels)
            self.width = max(span.step for span in spans)
            self._stage()
        sweeps = self._sweeps(parts)
        group = self._group(sweeps)
        panel = self._panel(sweeps[0]) if in_panels else None
        across = tiled_axis(self.nest, self.facts, self.vector, self.lanes)
        share = self._share(self._shareable(in_panels), spans, group)
        return NestPlan(
            nest=self.nest,
            facts=self.facts,
            order=self.order,
            levels=_levels(self.nest, self.facts, self.order),
            vector=self.vector,
            lanes=self.lanes,
            spans=spans,
            sweeps=sweeps,
            kept=self.kept,
            scratch=tuple(self.scratch),
            scratch_bytes=self.scratch_end * group,
            contracted=contractions(self.nest, self.facts),
            staged=self.staged,
            across=across,
            share=share,
            group=group,
            ahead=self._ahead(len(sweeps)),
            panel=panel,
            strip=self._strip(across, share),
        )

    def _strip(self, across: int | None, share: NestChunks | None) -> int | None:
        """The number of rows that known axes are cut in (``_blocked``); chunks along the axis are strips themselves."""
        if across is None or not is_open(self.nest.dims[across]) or (share is not None and share.dim == across):
            return None
        rows = max(self.lanes, self.target.sized(TRANSPOSED_CHUNK, 2))
        return rows if highest(self.nest.dims[across]) > rows else None

    def _ahead(self, sweeps: int) -> int | None:
        """The innermost loop, where its turns visit rows of memory once: more than a cache holds."""
        if self.inner_vector or self.vector is None or sweeps != 1:
            return None
        far = self._moved() > self.target.machine.own_cache_bytes
        return self.order[-1] if far and self.greatest.dims[self.order[-1]] > AHEAD else None

    def _is_in_panels(self, parts: Sequence[SweepPart]) -> bool:
        """True if the rows that the innermost loop visits are far apart, and threads have other loops to share: then
        all columns of a few rows are read before the next rows. Not where short rows of another operand are staged:
        their block is transposed whole, once for all of its rows."""
        dim = self._ahead(len(parts))
        if dim is None or len(self.nest.inner) != 1 or any(map(is_open, self.nest.dims)):
            return False
        if self.nest.dims[dim] > AHEAD * self.target.sized(LONGEST_CHAIN):
            return False
        if staged_accesses(self.nest, self.facts, self.vector, self.lanes, self.target):
            return False
        loads = [i for n in parts[0].members if isinstance(i := self.nest.body[n], Load)]
        if not any(is_far(self.nest, load.access, dim, self.target) for load in loads) or self._rows_meet():
            return False
        share = self._share(self._shareable(True), (), 1)
        return share is not None and share.chunks >= PANEL_CHUNKS

    def _panel(self, sweep: Sweep) -> dict[int, Access]:
        """Scratch memory for the accumulators of all columns."""
        columns = -(-self.nest.dims[self._vector] // self.width) * self.width
        nbytes = {n: columns * dtype_of(self.nest, n).itemsize for n in sweep.reductions}
        return {n: self._scratch((), size) for n, size in nbytes.items()}

    def _shareable(self, in_panels: bool) -> list[int]:
        """The outer loops that may be cut in chunks; not the columns of panels."""
        dims = self.order[: len(self.nest.outer)]
        return [d for d in dims if is_divisible(self.nest, d) and not (in_panels and d == self.vector)]

    def _group(self, sweeps: tuple[Sweep, ...]) -> int:
        """The number of rows that are run together."""
        if not self.inner_vector or not self.nest.outer or not any(sweep.reductions for sweep in sweeps):
            return 1
        rows = self.greatest.dims[self.order[len(self.nest.outer) - 1]]
        tails = any(span.lanes < self.lanes for sweep in sweeps for span in sweep.spans)
        if tails or self._rows_meet() or rows < GROUPED_ROWS:
            return 1
        return _rows_at_once(self.greatest, self.facts, self.work, self.lanes)

    def _rows_meet(self) -> bool:
        """True if a row may touch what another writes: additions, and memory that is reached in several ways."""
        stores = [i for i in self.nest.body if isinstance(i, Store)]
        accesses = [x for i in self.nest.body if (x := access_of(i))]
        return any(s.mode == "add" or any(x.arg == s.access.arg and x != s.access for x in accesses) for s in stores)

    def _share(self, dims: Sequence[int], spans: tuple[Span, ...], group: int) -> NestChunks | None:
        """The outermost of the loops ``dims`` that can be cut in enough chunks, else the one that gives most."""
        wanted = wanted_chunks(self.seconds(), self.target)
        if wanted == 1:
            return None
        best: NestChunks | None = None
        across = transposed_axis(self.nest, self.facts, self.vector)
        for dim in dims:
            grain = max((span.step for span in spans), default=1) if dim == self.vector else 1
            grain = self.lanes if dim == across else grain
            if dim == self.vector and dim != self.order[0]:
                grain = self._whole_lines(grain)
            grain = group if dim == self.order[len(self.nest.outer) - 1] and group > 1 else grain
            units, chunks = cut(-(-self.greatest.dims[dim] // grain), wanted)
            if chunks > (best.chunks if best is not None else 1):
                best = NestChunks(dim, units * grain, chunks)
            if best is not None and best.chunks >= min(wanted, ENOUGH_CHUNKS):
                break
        return None if best is None else replace(best, chunks=-(-self.nest.dims[best.dim] // best.size))

    def _whole_lines(self, grain: int) -> int:
        """Columns of a chunk that visits all rows: a few lines of each, where a vector is less than one; then each line
        is read by one chunk, and memory gives the next ones by itself."""
        if self.target.isa.vector_bytes >= LINE:
            return grain
        elements = self.target.sized(CHUNK_ROW_BYTES) // max(arg.itemsize for arg in self.nest.args)
        return -(-max(1, elements) // grain) * grain

    def seconds(self) -> float:
        """The estimated seconds of the nest on one core, by its instructions or by the memory that it moves."""
        instructions = _run_cost(self.nest, self.greatest, self.facts, self.work, self.target, self.vector, self.lanes)
        machine = self.target.machine
        return max(instructions * machine.instruction_seconds, self._moved() / machine.bytes_moved)

    def _moved(self) -> int:
        """Bytes of memory that the accesses reach."""
        moved = 0
        for number in self.facts.needed:
            access = access_of(self.nest.body[number])
            if access is not None:
                sizes = [size for size, stride in zip(self.greatest.dims, access.strides, strict=True) if stride]
                moved += math.prod(sizes) * self.nest.args[access.arg].itemsize
        return moved

    @property
    def _vector(self) -> int:
        assert self.vector is not None
        return self.vector

    def _cost(self, numbers: Iterable[int]) -> int:
        return sum(self.work.costs[number] for number in numbers if number in self.facts.needed)

    def _copies(self, numbers: Iterable[int], reduces: bool) -> int:
        """Independent vectors side by side hide the latency of accumulating; heavy bodies hide it themselves."""
        if not reduces or self.target.machine.compact:
            return 1
        cost = self._cost(numbers)
        return self._fitting((4 if cost <= 6 else 2 if cost <= 16 else 1) // self._registers or 1)

    @property
    def _registers(self) -> int:
        """The number of registers that a value takes, where several vectors are run at once."""
        return max(1, self.lanes // vector_lanes(self.nest, self.target))

    def _fitting(self, copies: int) -> int:
        while copies > 1 and self.greatest.dims[self._vector] < copies * self.lanes:
            copies //= 2
        return copies

    def _spans_of_rows(self, parts: Sequence[SweepPart], in_panels: bool) -> tuple[Span, ...]:
        """The spans where lanes are rows: they are the same for all sweeps."""
        size = self.nest.dims[self._vector]
        if not parts:
            return spans_of(size, self.lanes, 1, self.target, self._cost(range(len(self.nest.body))))
        cost = max(self._cost(part.members) for part in parts)
        if staged_accesses(self.nest, self.facts, self._vector, self.lanes, self.target):
            return spans_of(size, self.lanes, 1, self.target, cost)
        if not any(self._visits_rows(number) for part in parts for number in part.members):
            copies = self._copies(range(len(self.nest.body)), True)
            return spans_of(size, self.lanes, copies, self.target, cost)
        copies, ratio = block_of_rows(cost, self.target)
        copies = copies // self._registers or 1
        if in_panels:
            copies = min(copies, PANEL_VECTORS)
        whole = max(1, largest(size) // self.lanes)  # then one block takes all of a row
        return spans_of(size, self.lanes, min(copies, whole), self.target, cost, ratio)

    def _visits_rows(self, number: int) -> bool:
        """True if an access takes a few vectors of each of many rows of memory."""
        access = access_of(self.nest.body[number])
        inner = range(len(self.nest.outer), len(self.nest.dims))
        if access is None:
            return False
        strides = largest(access.strides)
        return any(abs(strides[dim]) > abs(strides[self._vector]) for dim in inner)

    def _parts(self) -> list[SweepPart]:
        if not self.nest.inner:
            return []
        roots = self._roots()
        first: dict[int, int] = {}
        return [self._part(s, roots[s], first) for s in sorted(roots)]

    def _sweeps(self, parts: Sequence[SweepPart]) -> tuple[Sweep, ...]:
        first = {value: s for s, part in reversed(list(enumerate(parts))) for value in part.members}
        for value in sorted(set[int]().union(*(part.reloads for part in parts))):
            self._keep(value, parts[first[value]].members)
        return tuple(self._sweep(s, part, first) for s, part in enumerate(parts))

    def _roots(self) -> dict[int, list[int]]:
        """The purposes of each sweep: its reductions and element stores. A store goes in the earliest sweep that can;
        one that overwrites what is loaded must wait for the last."""
        body, facts = self.nest.body, self.facts
        read = {i.access.arg for n, i in enumerate(body) if isinstance(i, Load) and facts.element[n]}
        sweep_of: dict[int, int] = {}
        for number in sorted(facts.needed):
            instr = body[number]
            if isinstance(instr, Reduce):
                sweep_of[number] = facts.stage[instr.arg]
            elif isinstance(instr, Store) and facts.element[number]:
                sweep_of[number] = facts.stage[number]
        last = max(sweep_of.values(), default=-1)
        roots: dict[int, list[int]] = {s: [] for s in range(last + 1)}
        for number, s in sweep_of.items():
            instr = body[number]
            overwrites = isinstance(instr, Store) and instr.access.arg in read
            roots[last if overwrites else s].append(number)
        return roots

    def _part(self, s: int, roots: list[int], first: dict[int, int]) -> SweepPart:
        """The element instructions of sweep ``s``, and the values that it reads back instead of computing them."""
        members: set[int] = set()
        reloads: set[int] = set()
        stack = list(roots)
        while stack:
            number = stack.pop()
            if number in members or number in reloads:
                continue
            is_root = isinstance(self.nest.body[number], Reduce | Store)
            if not is_root and not self.facts.element[number]:
                continue
            if isinstance(self.nest.body[number], Reduce) and number not in roots:
                continue
            if self.work.costs[number] >= KEEP_COST and first.setdefault(number, s) < s:
                reloads.add(number)
                continue
            members.add(number)
            stack.extend(operands(self.nest.body[number]))
        return SweepPart(frozenset(members), frozenset(reloads))

    def _sweep(self, s: int, part: SweepPart, first: dict[int, int]) -> Sweep:
        body = self.nest.body
        members = part.members
        reductions = tuple(sorted(n for n in members if isinstance(body[n], Reduce)))
        saves = frozenset(v for v, access in self.kept.items() if access.arg < 0 and first[v] == s)
        spans: tuple[Span, ...] = ()
        if self.inner_vector:
            copies = self._copies(members, bool(reductions))
            spans = spans_of(self.nest.dims[self._vector], self.lanes, copies, self.target, self._cost(members))
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
        lanes_are_rows = not self.inner_vector and self.vector in self.facts.depends[value]
        count = self.width if lanes_are_rows else 1
        strides = [0] * len(self.nest.dims)
        for dim in reversed(dims):
            strides[dim] = count
            count *= self.nest.dims[dim]
        if lanes_are_rows:
            strides[self._vector] = 1
        self.kept[value] = self._scratch(tuple(strides), count * dtype_of(self.nest, value).itemsize)

    def _scratch(self, strides: tuple[int, ...], size: int) -> Access:
        """Scratch memory of ``size`` bytes, of the greatest sizes."""
        access = Access(-1 - len(self.scratch), 0, strides)
        self.scratch.append(self.scratch_end)
        self.scratch_end += -(-highest(size) // 64) * 64
        return access

    def _stage(self) -> None:
        """Find scratch memory for the rows that are transposed."""
        strides = [0] * len(self.nest.dims)
        strides[self._vector], strides[-1] = 1, self.lanes
        for access in staged_accesses(self.nest, self.facts, self._vector, self.lanes, self.target):
            size = self.lanes * column_count(self.nest.dims[-1], self.lanes) * self.nest.args[access.arg].itemsize
            self.staged[access] = self._scratch(tuple(strides), size)

    def _is_plain(self, store: Store) -> bool:
        arg = store.access.arg
        alone = all(i is store or (x := access_of(i)) is None or x.arg != arg for i in self.nest.body)
        return alone and store.mode == "set" and store.guard is None and not store.access.terms
