"""Contraction kernels: a ``Contraction`` comes in, a function of the module goes out.

    void @name(ptr A, ptr B, [ptr C], ptr epilogue arguments…, ptr scratch, [ptr pool])

C is passed where ``store_raw`` says so. The plan of a kernel is made once from its sizes and strides:

1. *Orientation.* Tiles are written with contiguous rows, which C or its transpose may have; Cᵀ = Bᵀ·Aᵀ is computed
   where the estimate for that is lower: where C is contiguous along m, where B would be packed for few rows of A, where
   n fills no vector. If C is not contiguous that way, a block is computed in scratch memory and copied out.
2. *Columns* are cut into blocks of ``columns_per_block`` panels. B is read in place if its rows are contiguous and few
   row panels use it, else packed for a whole column block, all of k, through register transposes where needed.
3. *Rows* are cut into groups of row panels of about ``ROW_BLOCK`` rows, k into blocks for which a panel of B has about
   ``PANEL_BYTES``; the partial sums of a group stay in C (or scratch), in cache, until its last k. A is read in place,
   whichever of its axes is contiguous, but packed if neither is or if so many of its lines lie a multiple of a page
   apart that they would drive each other out of the few sets of the first cache into which they fall.
4. After its last k a group calls the epilogue for its rows and the columns of the block.
5. A kernel that takes long is cut in chunks (``emit.parallel``): points of the batch where there are many of them, else
   pieces of a column block, a group of rows by a strip of columns. Then B is packed first, a panel a chunk, for all.

What 1 and 2 choose, with the tile, is a ``Blocking``. ``blockings`` gives those that are worth measuring, and one that
``Target.measured`` names for a product takes the place of the usual one. The blocks of k follow from the usual one
whichever is taken, so the results have the same bits.

Results of up to ``DOT_COLUMNS`` columns cannot fill a register with them: where A is contiguous along k they are dot
products instead (``emit_dots``). Each element is a sum in the order of k, or for dots in an order that depends on the
sizes and the vector width alone.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from staticgrad.compiler.emit.llvm import Function, Index, Module, Value, integer, lanes_of, memory_type, vector
from staticgrad.compiler.emit.microkernel import (
    Layout,
    Matrix,
    TileOperands,
    Tiling,
    aligned_bytes,
    call_epilogue,
    call_tile,
    choose_tiling,
    copy_matrix,
    make_tiling,
    multiply_add,
    pack_panels,
    round_up,
    span,
    tile_lanes,
    tiling_cost,
    tilings,
)
from staticgrad.compiler.emit.parallel import (
    NO_POOL,
    WORTH_SHARING,
    Part,
    Table,
    chunk_range,
    cut,
    divide,
    open_part,
    run_chunks,
    unravel,
    wanted_chunks,
)
from staticgrad.compiler.emit.target import Blocking, Target
from staticgrad.compiler.kernels.matrix import Contraction

ROW_BLOCK = 96  # rows of A that share the panels of B while those are in the second cache
PANEL_BYTES = 48 << 10  # of a panel of B in one pass over k: a flat optimum from half to twice the first cache
PACKED_BYTES = 2 << 20  # of B at most, for one column block; twice as much where each block packs A again
RAW_BYTES = 128 << 10  # of raw results that wait for the epilogue
IN_PLACE_BYTES = 96 << 10  # of B that is read where it lies, strided, by any number of row panels
MANY_POINTS = 12  # of the batch: a kernel that takes long is cut between them
ENOUGH_CHUNKS = 16  # of a kernel that is cut within them
GOOD_ROWS = 64  # in a group: cutting those of more rows costs nothing
FEW_ROWS = 16  # in a group at least, where there are not enough chunks otherwise
FLOPS_PER_LANE = 9e9  # a second, and for integers: for deciding whether to share work, so roughly
INTEGER_FLOPS_PER_LANE = 2e9
BYTES_PER_SECOND = 3e10
PAGE = 4096
# Cycles an element: of copies by vectors, of transposing ones, and of results that come out transposed.
COPIED, TURNED, TURNED_BACK = 0.4, 0.8, 2.5
WORTH_TURNING = 1.1  # how much faster Cᵀ must seem where C lies as it is given
ALIASED_ROWS = 8  # sets have 8 ways at least, and 12 where tiles are that high
# Blockings that are worth measuring: so many at most, none that seems so much slower than the one that seems best.
MOST_MEASURED = 5
SEEMS_TOO_SLOW = 1.5


@dataclass(frozen=True, slots=True)
class _Share:
    """How the work is cut. ``points`` of the batch make a chunk; 0: pieces of blocks do, ``strip`` column panels by a
    group of rows, each point of the batch by itself."""

    points: int
    strip: int


@dataclass(frozen=True, slots=True)
class _Plan:
    """What the emitter needs to know; sizes and strides are those of the orientation that is computed."""

    kernel: Contraction
    swapped: bool  # Cᵀ is computed: m, n and A, B have changed places
    m: int
    n: int
    k: int
    a: tuple[int, int]  # strides of (m, k)
    b: tuple[int, int]  # strides of (k, n)
    c: tuple[int, int]  # strides of (m, n); of the scratch block if the raw result is not stored
    dots: bool
    tiling: Tiling
    layout: Layout
    pack_a: bool
    pack_b: bool
    b_outside: bool  # B is the same for every batch: packed before the batch loops
    via_scratch: bool  # C has no contiguous axis
    panels_per_group: int
    columns_per_block: int
    depth_block: int
    tile_stride: int  # row stride of the scratch block of C
    share: _Share | None
    b_bytes: int
    a_bytes: int
    c_bytes: int

    @property
    def a_row(self) -> int:
        """Row stride of packed A: an odd number of cache lines, so that rows fall into different sets."""
        line = max(1, 64 // self.kernel.dtype.itemsize)
        lines = -(-self.depth_block // line)
        return (lines | 1) * line

    @property
    def own_bytes(self) -> int:
        """The scratch memory of one group of rows: what workers don't share."""
        return self.a_bytes + self.c_bytes

    @property
    def groups(self) -> int:
        return -(-self.tiling.row_panels // self.panels_per_group)


def raw_strides(kernel: Contraction, target: Target) -> tuple[int, ...]:
    """The strides (``*batch``, m, n) at which the epilogue finds the raw result."""
    if kernel.store_raw or _is_empty(kernel):
        return kernel.c_strides
    plan = _plan(kernel, target)
    return (0,) * len(kernel.batch) + ((plan.c[1], plan.c[0]) if plan.swapped else plan.c)


def scratch_bytes(kernel: Contraction, target: Target, workers: int = 1) -> int:
    """The scratch memory that the kernel needs, run by so many workers: a multiple of 64 bytes."""
    if _is_empty(kernel):
        return 0
    plan = _plan(kernel, target)
    if plan.share is not None and not plan.share.points:
        return plan.b_bytes + workers * plan.own_bytes
    return (workers if plan.share is not None else 1) * (plan.b_bytes + plan.own_bytes)


def is_shared(kernel: Contraction, target: Target) -> bool:
    """Whether the kernel is worth the threads of a pool."""
    return not _is_empty(kernel) and _plan(kernel, target).share is not None


def _is_empty(kernel: Contraction) -> bool:
    return 0 in (kernel.m, kernel.n, *kernel.batch)


def _seconds(kernel: Contraction, target: Target) -> float:
    """About how long the kernel takes on one core."""
    points, size = math.prod(kernel.batch), kernel.dtype.itemsize
    rate = FLOPS_PER_LANE if kernel.dtype.kind == "f" else INTEGER_FLOPS_PER_LANE
    flops = 2 * points * kernel.m * kernel.n * kernel.k
    moved = points * size * (kernel.m * kernel.k + kernel.k * kernel.n + kernel.m * kernel.n)
    return max(flops / (rate * tile_lanes(target, kernel.dtype)), moved / BYTES_PER_SECOND)


def _unit(size: int, stride: int) -> int:
    """The stride of an axis; one of length one may have any, so it is contiguous."""
    return 1 if size == 1 else stride


def _plan(kernel: Contraction, target: Target) -> _Plan:
    """The plan of a kernel; the epilogue has no part in it."""
    return _make_plan(replace(kernel, epilogue=None), target)


@functools.lru_cache(maxsize=4096)
def _make_plan(kernel: Contraction, target: Target) -> _Plan:
    """Decide everything that depends on sizes, strides and the target alone."""
    given = _given(kernel)
    by_dots = _dots_swap(given, target) is not None
    usual = _usual_blocking(given, target)
    blocking = _measured_blocking(kernel, target) or usual
    swapped, pack_b = blocking.swapped, blocking.packed
    way = given.swap() if swapped else given
    m, n, k, a, b, c = way.m, way.n, way.k, way.a, way.b, way.c
    via_scratch = c is not None and c[1] != 1 and not by_dots
    tiling = _tiling_of(blocking, way, target)
    pack_a = not by_dots and _packs_a(tiling, m, k, a)
    depth_block = _depth_block(usual.vectors * tiling.lanes, way.dtype, k)
    columns = _columns_per_block(tiling, k, pack_a, pack_b)
    b_outside = not any(s for s, d in zip(_b_batch(kernel, swapped), kernel.batch) if d > 1)
    together = pack_b and not b_outside  # something is made for each point of the batch
    groups = -(-tiling.row_panels // max(1, ROW_BLOCK // tiling.rows))
    share, groups = _share_of(kernel, target, tiling, groups, columns, together=together, dots=by_dots)
    strip = share.strip if share is not None and share.strip else columns
    block_width = min(strip * tiling.width, round_up(n, tiling.lanes))
    if via_scratch or c is None:
        rows = max(tiling.rows, min(ROW_BLOCK, RAW_BYTES // (block_width * way.dtype.itemsize)))
        groups = max(groups, -(-tiling.row_panels // max(1, rows // tiling.rows)))
    tile_stride = 1 if n == 1 else block_width + (16 if block_width * way.dtype.itemsize % PAGE == 0 else 0)
    plan = _Plan(
        kernel=kernel,
        swapped=swapped,
        m=m,
        n=n,
        k=k,
        a=a,
        b=b,
        c=c if c is not None else (tile_stride, 1),
        dots=by_dots,
        tiling=tiling,
        layout="rows" if pack_a or a[1] == 1 else "columns",
        pack_a=pack_a,
        pack_b=pack_b,
        b_outside=b_outside,
        via_scratch=via_scratch,
        panels_per_group=-(-tiling.row_panels // groups),
        columns_per_block=columns,
        depth_block=depth_block,
        tile_stride=tile_stride,
        share=share,
        b_bytes=0,
        a_bytes=0,
        c_bytes=0,
    )
    return _with_scratch(plan)


@dataclass(frozen=True, slots=True)
class _Orientation:
    """A product as it would be computed: sizes, and strides of (m, k), (k, n), (m, n). ``c`` is None if the raw result
    is not stored: then its layout is free."""

    dtype: np.dtype
    m: int
    n: int
    k: int
    a: tuple[int, int]
    b: tuple[int, int]
    c: tuple[int, int] | None

    def swap(self) -> _Orientation:
        """Cᵀ = Bᵀ·Aᵀ."""
        c = None if self.c is None else (self.c[1], self.c[0])
        return _Orientation(self.dtype, self.n, self.m, self.k, (self.b[1], self.b[0]), (self.a[1], self.a[0]), c)


def _given(kernel: Contraction) -> _Orientation:
    """The product as it is declared."""
    m, n, k = kernel.m, kernel.n, kernel.k
    c = (_unit(m, kernel.c_strides[-2]), _unit(n, kernel.c_strides[-1])) if kernel.store_raw else None
    a = (_unit(m, kernel.a_strides[-2]), _unit(k, kernel.a_strides[-1]))
    return _Orientation(kernel.dtype, m, n, k, a, (_unit(k, kernel.b_strides[-2]), _unit(n, kernel.b_strides[-1])), c)


def _usual_blocking(given: _Orientation, target: Target) -> Blocking:
    """The blocking that the estimates prefer."""
    dots = _dots_swap(given, target)
    swapped = _prefers_swap(given, target) if dots is None else dots
    way = given.swap() if swapped else given
    tiling = choose_tiling(target, way.dtype, way.m, way.n, way.k)
    packed = dots is None and way.k > 0 and _packs_b(tiling, way.b, way.k)
    return Blocking(swapped, tiling.rows, tiling.vectors, tiling.folded, packed)


def _tiling_of(blocking: Blocking, way: _Orientation, target: Target) -> Tiling:
    return make_tiling(target, way.dtype, way.m, way.n, blocking.rows, blocking.vectors, blocking.folded)


def product_text(kernel: Contraction) -> str:
    """What ``Target.measured`` calls the product of a kernel; the epilogue has no part in it."""
    return repr(replace(kernel, epilogue=None))


def _measured_blocking(kernel: Contraction, target: Target) -> Blocking | None:
    """The blocking that was found faster, if that was measured."""
    if not target.measured:
        return None
    text = product_text(kernel)
    return next((blocking for known, blocking in target.measured if known == text), None)


def blockings(kernel: Contraction, target: Target) -> tuple[Blocking, ...]:
    """The blockings of a product that are worth measuring: the usual one, then others as they seem faster. None where
    there is nothing to choose."""
    if _is_empty(kernel) or kernel.k == 0:
        return ()
    given = _given(kernel)
    if _dots_swap(given, target) is not None:
        return ()
    usual = _usual_blocking(given, target)
    found: list[tuple[float, Blocking]] = []
    for swapped, way in ((False, given), (True, given.swap())):
        for tiling in tilings(target, way.dtype, way.m, way.n, way.k):
            packed = _packs_b(tiling, way.b, way.k)
            blocking = Blocking(swapped, tiling.rows, tiling.vectors, tiling.folded, packed)
            found.append((_tiled_cycles(way, tiling, turned=swapped), blocking))
    found.sort(key=lambda entry: entry[0])
    limit = SEEMS_TOO_SLOW * found[0][0]
    others = [blocking for cycles, blocking in found if cycles <= limit]
    way = given.swap() if usual.swapped else given
    if not _must_pack(_tiling_of(usual, way, target), way.b):
        others.insert(0, replace(usual, packed=not usual.packed))
    several = tuple(dict.fromkeys((usual, *others)))[:MOST_MEASURED]
    return several if len(several) > 1 else ()


def _depth_block(width: int, dtype: np.dtype, k: int) -> int:
    """How many terms a pass over k has with the usual blocking, whose panels have ``width`` columns. It has to be the
    same for every blocking, because it decides in which order terms are added."""
    passes = max(1, -(-k * width * dtype.itemsize // PANEL_BYTES))
    return round_up(-(-k // passes), 8) if passes > 1 else k


def _columns_per_block(tiling: Tiling, k: int, pack_a: bool, pack_b: bool) -> int:
    """How many column panels a block has."""
    columns = tiling.column_panels
    if pack_b:
        most = max(4, PACKED_BYTES * (1 + pack_a) // (k * tiling.width * tiling.dtype.itemsize))
        columns = -(-columns // -(-columns // most))
    return columns


def _share_of(
    kernel: Contraction, target: Target, tiling: Tiling, groups: int, columns: int, *, together: bool, dots: bool
) -> tuple[_Share | None, int]:
    """How the work is cut, and the number of groups of rows that follows. ``together`` says that each point of the
    batch begins with work that all its pieces wait for."""
    seconds, points = _seconds(kernel, target), math.prod(kernel.batch)
    wanted = wanted_chunks(seconds)
    if wanted <= 1:
        return None, groups
    if points >= min(wanted, MANY_POINTS) or (points > 1 and dots):
        return _Share(cut(points, wanted)[0], 0), groups
    if together and points > 1 and seconds < points * WORTH_SHARING:
        return _Share(1, 0), groups
    beside = 1 if together else points  # points whose pieces run at once
    enough = -(-min(wanted, ENOUGH_CHUNKS) // beside)
    strips = 1
    if not dots:
        groups = max(groups, min(enough, tiling.m // GOOD_ROWS))
        strips = cut(columns, -(-enough // groups))[1]
        groups = max(groups, min(-(-enough // strips), tiling.m // FEW_ROWS))
    return (_Share(0, -(-columns // strips)) if groups * strips * beside > 1 else None), groups


def _b_batch(kernel: Contraction, swapped: bool) -> tuple[int, ...]:
    return (kernel.a_strides if swapped else kernel.b_strides)[:-2]


def _a_batch(kernel: Contraction, swapped: bool) -> tuple[int, ...]:
    return (kernel.b_strides if swapped else kernel.a_strides)[:-2]


def _with_scratch(plan: _Plan) -> _Plan:
    """The plan with the sizes of its three scratch areas."""
    dtype, tiling = plan.kernel.dtype, plan.tiling
    rows = min(plan.m, plan.panels_per_group * tiling.rows)
    b = plan.columns_per_block * plan.k * tiling.width if plan.pack_b else 0
    if plan.dots and plan.b[0] != 1:
        b = plan.k * plan.n
    a = rows * plan.a_row if plan.pack_a else 0
    c = rows * plan.tile_stride if plan.via_scratch or not plan.kernel.store_raw else 0
    return replace(
        plan, b_bytes=aligned_bytes(b, dtype), a_bytes=aligned_bytes(a, dtype), c_bytes=aligned_bytes(c, dtype)
    )


def _packs_a(tiling: Tiling, m: int, k: int, a: tuple[int, int]) -> bool:
    """A is read in place, whichever of its axes is contiguous, unless none is or that would be slow."""
    return k > 0 and (1 not in a or _is_aliased(tiling, m, k, a))


def _is_aliased(tiling: Tiling, m: int, k: int, a: tuple[int, int]) -> bool:
    """Whether reading A in place loses its lines before all of them have been used.

    Lines a multiple of a page apart fall into one set of the first cache. A tile of rows contiguous along k reads as
    many lines as it has rows for a while, which a set has room for unless the tile is high; along m every k of a block
    is another line of the set, and is needed again by the tile below.
    """
    size = tiling.dtype.itemsize
    lines = a[0] if a[1] == 1 else a[1]
    if min(m, k) * size < 512 or lines * size % PAGE or tiling.column_panels == 1:
        return False
    return a[1] != 1 or tiling.rows > ALIASED_ROWS


def _dots_swap(way: _Orientation, target: Target) -> bool | None:
    """Whether dot products compute Cᵀ; None if none are computed."""
    if way.dtype.kind != "f" or way.k < 2 * tile_lanes(target, way.dtype):
        return None
    if _suits_dots(way):
        return False
    return True if _suits_dots(way.swap()) else None


def _suits_dots(way: _Orientation) -> bool:
    """Few columns, long rows of A that are contiguous; rather vectors along m if A is contiguous there too."""
    return way.n <= DOT_COLUMNS and way.a[1] == 1 and not (way.m <= way.n and way.b[1] == 1 and way.n > 1)


def _prefers_swap(way: _Orientation, target: Target) -> bool:
    """Whether to compute Cᵀ."""
    m, n, a, c = way.m, way.n, way.a, way.c
    if n == 1 and m > 1:  # a column: a row of Cᵀ if A is contiguous along m
        return a[1] != 1 and a[0] == 1 and (c is None or c[0] == 1)
    if m == 1:
        return False
    if way.dtype.kind != "f" or 0 in (m, n, way.k):
        return c is not None and c[1] != 1 and c[0] == 1
    least = 1.0 if c is not None and c[1] != 1 else WORTH_TURNING
    return _cycles(way.swap(), target, turned=True) * least < _cycles(way, target, turned=False)


def _cycles(way: _Orientation, target: Target, *, turned: bool) -> float:
    """About how long a product takes this way around."""
    return _tiled_cycles(way, choose_tiling(target, way.dtype, way.m, way.n, way.k), turned=turned)


def _tiled_cycles(way: _Orientation, tiling: Tiling, *, turned: bool) -> float:
    """About how long a product takes: its tiles, and the copies that it needs."""
    cycles = tiling_cost(tiling, way.k)
    if _packs_b(tiling, way.b, way.k):
        cycles += way.k * way.n * (COPIED if way.b[1] == 1 else TURNED)
    if _packs_a(tiling, way.m, way.k, way.a):
        cycles += way.m * way.k * (COPIED if way.a[1] == 1 else TURNED)
    if way.c is None:
        return (
            cycles + way.m * way.n * TURNED_BACK * turned
        )  # by the epilogue, which goes along the rows that were given
    return cycles + way.m * way.n * TURNED_BACK * (way.c[1] != 1)


def _packs_b(tiling: Tiling, b: tuple[int, int], k: int) -> bool:
    """B is packed unless its rows are contiguous and reading them strided is cheaper than a copy."""
    if _must_pack(tiling, b):
        return True
    size = tiling.dtype.itemsize
    if tiling.row_panels <= 2:
        return False
    aliased = b[0] * size % PAGE == 0 and k > 64
    return aliased or k * tiling.n * size > IN_PLACE_BYTES


def _must_pack(tiling: Tiling, b: tuple[int, int]) -> bool:
    """B cannot be read in place: its rows are not contiguous, or whole vectors would be read behind the edge."""
    return b[1] != 1 or (tiling.edge and not tiling.masked)


# -- emission ---------------------------------------------------------------------------------------------------


def emit_contraction(
    module: Module, kernel: Contraction, name: str, epilogue: str | None, shared: bool = False
) -> None:
    """Add the function of ``kernel`` to ``module`` under ``name``; ``epilogue`` is the name of its ranged nest. If
    ``shared`` it takes a pool, else its chunks, where it has some, run one after the other."""
    extra = len(kernel.epilogue.args) - 1 if kernel.epilogue is not None else 0
    f = module.function(name, ["ptr"] * (2 + kernel.store_raw + extra + 1 + shared))
    pointers, pool = (f.params[:-1], f.params[-1]) if shared else (f.params, NO_POOL)
    if not _is_empty(kernel):
        plan = _plan(kernel, module.target)
        if plan.share is None:
            _Emitter(f, plan, epilogue, pointers, 0).emit()
        else:
            _Shared(f, plan, plan.share, epilogue, pointers, pool).emit()
    f.finish()


@contextlib.contextmanager
def nested_spans(f: Function, sizes: Sequence[int]) -> Iterator[list[Index]]:
    """Loops over all points of ``sizes`` (all positive)."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(span(f, 0, size)) for size in sizes]


class _Emitter:
    """Writes the loops of one plan. ``own`` is how far behind the packed B the worker's own scratch memory begins."""

    def __init__(self, f: Function, plan: _Plan, epilogue: str | None, pointers: Sequence[Value], own: Index) -> None:
        kernel = plan.kernel
        self.f = f
        self.plan = plan
        self.epilogue = epilogue
        self.element = memory_type(kernel.dtype)
        self.a, self.b = (pointers[1], pointers[0]) if plan.swapped else (pointers[0], pointers[1])
        scratch = pointers[-1]
        self.packed_b = scratch
        self.packed_a = f.offset(scratch, f.add(plan.b_bytes, own), "i8")
        self.tile = f.offset(self.packed_a, plan.a_bytes, "i8")
        self.c = pointers[2] if kernel.store_raw else self.tile
        self.extra = pointers[3 if kernel.store_raw else 2 : -1]

    def _at(self, base: Value, *terms: tuple[Index, Index]) -> Value:
        total: Index = 0
        for index, stride in terms:
            total = self.f.add(total, self.f.mul(index, stride))
        return self.f.offset(base, total, self.element)

    def emit(self) -> None:
        plan, f = self.plan, self.f
        if plan.dots:
            with nested_spans(f, plan.kernel.batch) as batch:
                self.point(batch)
        elif plan.pack_b and plan.b_outside:
            with self.column_blocks() as (first, end):
                self.pack_b(first, first, end, [0] * len(plan.kernel.batch))
                with nested_spans(f, plan.kernel.batch) as batch:
                    self._column_block(batch, first, end)
        else:
            with nested_spans(f, plan.kernel.batch) as batch:
                self.point(batch)

    def point(self, batch: list[Index]) -> None:
        """All of one point of the batch."""
        if self.plan.dots:
            x, x_stride = self.dot_columns(batch)
            with self._groups() as (top, bottom):
                self.dot_group(batch, x, x_stride, top, bottom)
            return
        with self.column_blocks() as (first, end):
            if self.plan.pack_b:
                self.pack_b(first, first, end, batch)
            self._column_block(batch, first, end)

    @contextlib.contextmanager
    def column_blocks(self) -> Iterator[tuple[Index, Index]]:
        """The first column panel of each block, and the first behind it."""
        panels, step = self.plan.tiling.column_panels, self.plan.columns_per_block
        with span(self.f, 0, panels, step) as first:
            yield first, self.f.min(self.f.add(first, step), panels)

    @contextlib.contextmanager
    def _groups(self) -> Iterator[tuple[Index, Index]]:
        """The row panels of each group."""
        panels, step = self.plan.tiling.row_panels, self.plan.panels_per_group
        with span(self.f, 0, panels, step) as top:
            yield top, self.f.min(self.f.add(top, step), panels)

    def _operand(self, base: Value, strides: Sequence[int], batch: list[Index]) -> Value:
        return self._at(base, *zip(batch, strides))

    def pack_b(self, block: Index, first: Index, end: Index, batch: list[Index]) -> None:
        """Pack column panels ``first`` to ``end`` of the block that begins with panel ``block``."""
        plan = self.plan
        base = self._operand(self.b, _b_batch(plan.kernel, plan.swapped), batch)
        to = self._at(self.packed_b, (self._behind(first, block), plan.k * plan.tiling.width))
        pack_panels(self.f, plan.tiling, to, Matrix(base, *plan.b), plan.k, first, end)

    def _behind(self, panel: Index, block: Index) -> Index:
        return 0 if panel is block else self.f.sub(panel, block)

    def _column_block(self, batch: list[Index], first: Index, end: Index) -> None:
        """All rows of one block of columns."""
        with self._groups() as (top, bottom):
            self.piece(batch, first, (first, end), (top, bottom))

    def piece(self, batch: list[Index], block: Index, strip: tuple[Index, Index], panels: tuple[Index, Index]) -> None:
        """A group of row panels by a strip of column panels in the block that begins with panel ``block``."""
        plan, f = self.plan, self.f
        (first, end), (top, bottom) = strip, panels
        rows = (plan.tiling.row_start(f, top), plan.tiling.row_start(f, bottom))
        columns = (f.mul(first, plan.tiling.width), f.min(f.mul(end, plan.tiling.width), plan.n))
        skipped = self._behind(first, block)
        if plan.k == 0:
            self._depth(batch, skipped, (first, end), (top, bottom), rows[0], columns[0], 0)
        else:
            with span(f, 0, plan.k, plan.depth_block) as start:
                self._depth(batch, skipped, (first, end), (top, bottom), rows[0], columns[0], start)
        if plan.via_scratch:
            target = self._at(self._c(batch), (rows[0], plan.c[0]), (columns[0], plan.c[1]))
            size = (f.sub(rows[1], rows[0]), f.sub(columns[1], columns[0]))
            raw = Matrix(self.tile, plan.tile_stride, 1)
            least = self._least_piece()
            copy_matrix(f, plan.kernel.dtype, Matrix(target, *plan.c), raw, *size, least, along_source=False)
        self._finish(batch, rows, columns)

    def _c(self, batch: list[Index]) -> Value:
        return self._operand(self.c, self.plan.kernel.c_strides[:-2], batch)

    def _least_piece(self) -> int:
        """The fewest rows or columns that a piece may have."""
        tiling = self.plan.tiling
        return min(tiling.heights()[-1], tiling.n - (tiling.column_panels - 1) * tiling.width)

    def _finish(self, batch: list[Index], rows: tuple[Index, Index], columns: tuple[Index, Index]) -> None:
        """Call the epilogue for a block that is complete."""
        if self.epilogue is None:
            return
        plan, f = self.plan, self.f
        raw = self.c
        if not plan.kernel.store_raw:  # as if the whole result lay around the block
            skipped = f.add(f.mul(rows[0], plan.c[0]), f.mul(columns[0], plan.c[1]))
            raw = f.offset(self.tile, f.sub(0, skipped), self.element)
        ranges = [(index, f.add(index, 1)) for index in batch]
        ranges += [columns, rows] if plan.swapped else [rows, columns]
        call_epilogue(f, self.epilogue, [raw, *self.extra], ranges)

    def _depth(
        self,
        batch: list[Index],
        skipped: Index,
        columns: tuple[Index, Index],
        panels: tuple[Index, Index],
        row0: Index,
        column0: Index,
        start: Index,
    ) -> None:
        """Add one block of k to all tiles of a group of row panels and a block of column panels."""
        plan, f = self.plan, self.f
        tiling, kernel = plan.tiling, plan.kernel
        depth = f.min(plan.depth_block, f.sub(plan.k, start))
        a = self._operand(self.a, _a_batch(kernel, plan.swapped), batch)
        a = self._at(a, (row0, plan.a[0]), (start, plan.a[1]))
        a_row, a_step = plan.a
        if plan.pack_a:
            rows = f.sub(tiling.row_start(f, panels[1]), row0)
            last_depth = plan.k - (-(-plan.k // plan.depth_block) - 1) * plan.depth_block
            copy_matrix(f, kernel.dtype, Matrix(self.packed_a, plan.a_row, 1), Matrix(a, *plan.a), rows, depth,
                        min(last_depth, tiling.heights()[-1]))  # fmt: skip
            a, a_row, a_step = self.packed_a, plan.a_row, 1
        in_tile = plan.via_scratch or not kernel.store_raw
        c_stride = plan.tile_stride if in_tile else plan.c[0]
        c = self.tile if in_tile else self._at(self._c(batch), (row0, c_stride), (column0, 1))
        if plan.pack_b:
            b_panel, b_stride = plan.k * tiling.width, tiling.width
            b = self._at(self.packed_b, (skipped, b_panel), (start, b_stride))
        else:
            b_panel, b_stride = tiling.width, plan.b[0]
            b = self._operand(self.b, _b_batch(kernel, plan.swapped), batch)
            b = self._at(b, (start, b_stride), (column0, 1))
        with span(f, *columns) as j:
            along = f.sub(j, columns[0])
            b_at, c_at = self._at(b, (along, b_panel)), self._at(c, (along, tiling.width))
            with span(f, *panels) as i:
                row = f.sub(tiling.row_start(f, i), row0)
                accumulate: Index = 0
                if isinstance(start, Value):
                    accumulate = start
                at = TileOperands(self._at(a, (row, a_row)), a_row, a_step, b_at, b_stride,
                                  self._at(c_at, (row, c_stride)), c_stride, depth, accumulate)  # fmt: skip
                call_tile(f, tiling, plan.layout, i, j, at)

    def dot_columns(self, batch: list[Index], *, copied: bool = False) -> tuple[Value, int]:
        """The columns of B, contiguous, and how far they are apart; ``copied`` if that is done already."""
        plan, f, kernel = self.plan, self.f, self.plan.kernel
        x = self._operand(self.b, _b_batch(kernel, plan.swapped), batch)
        if plan.b[0] == 1:
            return x, plan.b[1]
        if not copied:
            copy_matrix(f, kernel.dtype, Matrix(self.packed_b, 1, plan.k), Matrix(x, *plan.b), plan.k, plan.n)
        return self.packed_b, plan.k

    def dot_group(self, batch: list[Index], x: Value, x_stride: int, top: Index, bottom: Index) -> None:
        """The dot products of a group of row panels."""
        plan, f, kernel = self.plan, self.f, self.plan.kernel
        a = self._operand(self.a, _a_batch(kernel, plan.swapped), batch)
        rows = (plan.tiling.row_start(f, top), plan.tiling.row_start(f, bottom))
        y = self._at(self._c(batch), (rows[0], plan.c[0])) if kernel.store_raw else self.tile
        lines = Matrix(self._at(a, (rows[0], plan.a[0])), plan.a[0], 1)
        with span(f, 0, plan.n) as column:
            to = Matrix(self._at(y, (column, plan.c[1])), plan.c[0], 1)
            emit_dots(f, kernel.dtype, lines, self._at(x, (column, x_stride)), to, f.sub(rows[1], rows[0]), plan.k)
        self._finish(batch, rows, (0, plan.n))


class _Shared:
    """Writes the function that has chunks run, and the functions of the chunks."""

    def __init__(
        self, f: Function, plan: _Plan, share: _Share, epilogue: str | None, pointers: Sequence[Value], pool: Value
    ) -> None:
        self.f = f
        self.plan = plan
        self.share = share
        self.epilogue = epilogue
        self.pool = pool
        self.batch = plan.kernel.batch
        # The words of the table: the block of columns, then the point of the batch.
        self.table = Table.fill(f, pointers, 1 + len(self.batch))
        self.own = _Emitter(f, plan, epilogue, pointers, 0)

    def emit(self) -> None:
        plan, f = self.plan, self.f
        if self.share.points:
            points = math.prod(self.batch)
            run_chunks(f, self.pool, self._points(points), self.table, -(-points // self.share.points))
        elif plan.dots:
            self.own.dot_columns([0] * len(self.batch))
            self._run_pieces(0, 1)
        elif plan.pack_b and not plan.b_outside:
            packing, pieces = self._packing(), self._pieces()
            with nested_spans(f, self.batch) as batch:
                for number, index in enumerate(batch):
                    self.table.set_word(1 + number, index)
                with self.own.column_blocks() as (first, end):
                    self._block(first, end, packing, pieces)
        else:
            pack, pieces = self._packing() if plan.pack_b else None, self._pieces()
            with self.own.column_blocks() as (first, end):
                self._block(first, end, pack, pieces)

    @property
    def _beside(self) -> int:
        """How many points of the batch are worked on at once."""
        return 1 if self.plan.pack_b and not self.plan.b_outside else math.prod(self.batch)

    def _block(self, first: Index, end: Index, pack: str | None, pieces: str) -> None:
        """One block of columns: its panels are packed, then its pieces computed."""
        f = self.f
        self.table.set_word(0, first)
        panels = f.sub(end, first)
        if pack is not None:
            run_chunks(f, self.pool, pack, self.table, panels)
        reached = f.add(panels, self.share.strip - 1)
        strip = self.share.strip
        strips = reached // strip if isinstance(reached, int) else f.binary("sdiv", reached, integer(strip))
        run_chunks(f, self.pool, pieces, self.table, f.mul(strips, self.plan.groups * self._beside))

    def _run_pieces(self, first: Index, end: Index) -> None:
        self._block(first, end, None, self._pieces())

    def _open(self, suffix: str, *, whole: bool = False) -> tuple[Part, _Emitter]:
        """Begin a part; if ``whole`` each worker has scratch memory of its own for everything."""
        plan = self.plan
        part = open_part(self.f.module, f"{self.f.name}.{suffix}", len(self.table.pointers))
        pointers = list(part.table.pointers)
        own = part.f.mul(part.worker, plan.own_bytes)
        if whole:
            apart = part.f.mul(part.worker, plan.b_bytes + plan.own_bytes)
            pointers[-1] = part.f.offset(pointers[-1], apart, "i8")
            own = 0
        return part, _Emitter(part.f, plan, self.epilogue, pointers, own)

    def _points(self, points: int) -> str:
        """A chunk: some points of the batch."""
        part, emitter = self._open("points", whole=True)
        low, high = chunk_range(part.f, part.chunk, self.share.points, points)
        with span(part.f, low, high) as point:
            emitter.point(unravel(part.f, point, self.batch))
        return part.f.finish()

    def _packing(self) -> str:
        """A chunk: packing one panel of B."""
        part, emitter = self._open("pack")
        f, first = part.f, part.table.word(0)
        panel = f.add(first, part.chunk)
        emitter.pack_b(first, panel, f.add(panel, 1), self._batch_of(part))
        return f.finish()

    def _batch_of(self, part: Part) -> list[Index]:
        """The point of the batch that the table says."""
        if self.plan.b_outside:
            return [0] * len(self.batch)
        return [part.table.word(1 + number) for number in range(len(self.batch))]

    def _pieces(self) -> str:
        """A chunk: one group of rows in one strip of columns, of one point of the batch."""
        plan = self.plan
        part, emitter = self._open("piece")
        f, block = part.f, part.table.word(0)
        rest, group = divide(f, part.chunk, plan.groups)
        top = f.mul(group, plan.panels_per_group)
        bottom = f.min(f.add(top, plan.panels_per_group), plan.tiling.row_panels)
        strip, point = divide(f, rest, self._beside)
        each = plan.pack_b and not plan.b_outside
        batch = self._batch_of(part) if each else unravel(f, point, self.batch)
        if plan.dots:
            emitter.dot_group(batch, *emitter.dot_columns(batch, copied=True), top, bottom)
        else:
            first = f.add(block, f.mul(strip, self.share.strip))
            block_end = f.min(f.add(block, plan.columns_per_block), plan.tiling.column_panels)
            end = f.min(f.add(first, self.share.strip), block_end)
            emitter.piece(batch, block, (first, end), (top, bottom))
        return f.finish()


# -- dot products -----------------------------------------------------------------------------------------------

DOT_ROWS = 4
DOT_COLUMNS = 3  # of B at most: with more, broadcasts of A and masked vectors of columns are as fast


def emit_dots(f: Function, dtype: np.dtype, a: Matrix, x: Value, y: Matrix, rows: Index, depth: int) -> None:
    """``y[r] = Σ_k a[r, k]·x[k]`` with a and x contiguous along k; ``y.row`` is the stride of y.

    Four rows at a time with two vectors of k each keep eight sums going: x is loaded once for four rows, and the
    floor is the two loads a cycle that the rows of a need.
    """
    name = _dot_kernel(f.module, dtype)
    values = [v if isinstance(v, Value) else integer(v) for v in (a.row, y.row, rows, depth)]
    f.call(name, "void", a.base, values[0], x, y.base, *values[1:])


def _dot_kernel(module: Module, dtype: np.dtype) -> str:
    """``(a, a_row, x, y, y_row, rows, depth)``. A runt of rows is computed with its last row repeated."""
    key = ("dots", dtype)
    name = module.shared(key)
    if name is not None:
        return name
    f = module.function(module.unique(f"dots.{dtype.name}"), ("ptr", "i64", "ptr", "ptr", "i64", "i64", "i64"))
    a, a_row, x, y, y_row, rows, depth = f.params
    element, lanes = memory_type(dtype), tile_lanes(f.target, dtype)
    type_ = vector(element, lanes)
    last = f.binary("sub", rows, integer(1))
    pairs, whole = (f.binary("and", depth, integer(-step)) for step in (2 * lanes, lanes))
    with f.loop(0, rows, DOT_ROWS) as outer:
        numbers = [f.min(f.add(outer.index, i), last) for i in range(DOT_ROWS)]
        lines = [f.offset(a, f.mul(r, a_row), element) for r in numbers]
        zeros = [f.const(0, type_)] * (2 * DOT_ROWS)
        with f.loop(0, pairs, 2 * lanes, carry=zeros) as main:
            sums = list(main.carried)
            for half in range(2):
                k = f.add(main.index, half * lanes)
                x_now = f.load(type_, f.offset(x, k, element))
                for i, line in enumerate(lines):
                    s = 2 * i + half
                    sums[s] = multiply_add(f, dtype, f.load(type_, f.offset(line, k, element)), x_now, sums[s])
            main.next(*sums)
        sums = [f.binary("fadd", *main.results[2 * i : 2 * i + 2]) for i in range(DOT_ROWS)]
        with f.loop(pairs, whole, lanes, carry=sums) as last_whole:  # none or one
            x_now = f.load(type_, f.offset(x, last_whole.index, element))
            last_whole.next(
                *(
                    multiply_add(f, dtype, f.load(type_, f.offset(line, last_whole.index, element)), x_now, s)
                    for line, s in zip(lines, last_whole.carried)
                )
            )
        sums = last_whole.results
        if f.target.masked:
            with f.loop(whole, depth, lanes, carry=sums) as masked:
                left = f.splat(f.binary("sub", depth, masked.index), lanes)
                mask = f.compare("icmp slt", f.lane_numbers(left.type), left)
                x_now = f.masked_load(type_, f.offset(x, masked.index, element), mask)
                masked.next(
                    *(
                        multiply_add(
                            f, dtype, f.masked_load(type_, f.offset(line, masked.index, element), mask), x_now, s
                        )
                        for line, s in zip(lines, masked.carried)
                    )
                )
            totals = [sum_lanes(f, s) for s in masked.results]
        else:
            with f.loop(whole, depth, carry=[sum_lanes(f, s) for s in sums]) as rest:
                x_one = f.load(element, f.offset(x, rest.index, element))
                ones = [f.load(element, f.offset(line, rest.index, element)) for line in lines]
                rest.next(*(multiply_add(f, dtype, one, x_one, t) for one, t in zip(ones, rest.carried)))
            totals = rest.results
        for number, total in zip(numbers, totals):
            f.store(total, f.offset(y, f.mul(number, y_row), element))
    return module.share(key, f.finish())


def sum_lanes(f: Function, value: Value) -> Value:
    """The sum of a float vector's lanes, halves first."""
    lanes = lanes_of(value.type)
    while lanes > 2:
        lanes //= 2
        low = f.shuffle(value, None, range(lanes))
        high = f.shuffle(value, None, range(lanes, 2 * lanes))
        value = f.binary("fadd", low, high)
    return f.binary("fadd", f.extract(value, 0), f.extract(value, 1)) if lanes == 2 else value
