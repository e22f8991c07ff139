"""The plan of a contraction: its loops, its scratch memory and how threads share it, made once from sizes, strides and
the target. A ``Contraction`` comes in, a ``ContractionPlan`` goes out; the epilogue has no part in it.

1. *Orientation, tile, packing* are ``blocking``'s choice. If C is not contiguous in the orientation that is
   computed, a block is computed in scratch memory and copied out.
2. *Rows* are cut into groups of row panels of about ``ROW_BLOCK`` rows, k into passes for which a panel of B has about
   ``PANEL_BYTES``. The passes follow from the usual tile whichever is taken, so that every blocking adds the terms of
   an element in the same order.
3. *Blocks of B* are packed one after the other: ``columns_per_block`` panels by ``block_depth`` terms, a few passes
   where sums may wait in C for the next block, else all of k. Unless it is long, what a kernel packs is in the place
   that the products of a program share.
4. *Tiles* that share a panel of B follow one another, or those that share rows of A where C is long and k short.
5. A kernel that takes long is cut in chunks: points of the batch where there are many of them, else pieces of a block,
   a group of rows by a strip of columns.

Where sizes are open all of this is decided for the greatest ones. Then the sizes of tiles, groups, passes, blocks and
chunks are numbers, and how many of each there are follows from the sizes of a call; scratch memory is that of the
greatest.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import numpy as np

from staticgrad.base import config
from staticgrad.base.extents import at_most, is_open, is_same, largest, lowest, open_sizes
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.matrix import Blocking, Contraction
from staticgrad.compiler.kernels.planned import PlannedKernel, choice_text
from staticgrad.compiler.machine.machine import LINE
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.chunks import MOST_CHUNKS, cut, unevenness, wanted_chunks
from staticgrad.compiler.plans.contraction.blocking import (
    Orientation,
    combines_rows,
    compared,
    dots_swap,
    given_orientation,
    is_worth_packing,
    narrow_way,
    packed_way,
    packs_a,
    tiling_of,
    usual_blocking,
)
from staticgrad.compiler.plans.contraction.narrow import packed_elements
from staticgrad.compiler.plans.nest.facts import is_all_divisible
from staticgrad.compiler.plans.tiles import Layout, Tiling, aligned_bytes, opened, round_up, tile_lanes

ROW_BLOCK = 96  # rows of A that share the panels of B while those are in the second cache
PANEL_BYTES = 96 << 10  # of a panel of B in one pass over k: it streams from the second cache; fewer passes over C
SHORT_PANEL_BYTES = 48 << 10  # where A is packed, which has to stay near for all panels
LOW_PANEL_BYTES = 32 << 10  # where tiles are low, which read it often: it stays in a first cache
LOW_SHORT_PANEL_BYTES = 24 << 10  # the same beside rows of a packed A
DOT_PANEL_BYTES = 24 << 10  # where it is read in place by dot products, together with the same number of rows of A
# Of a panel of a block of B; one pass only where A is packed, as wide blocks pack it less often, or tiles are low, as
# longer pieces of rows of B are packed at once.
DEPTH_BYTES = 192 << 10
BLOCK_BYTES = 704 << 10  # of such a block, or four panels: it stays in a second cache
FAR_BLOCK_BYTES = 2 << 20  # of one where tiles are low and A is packed: it comes from farther away, once for each group
PACKED_BYTES = 1 << 20  # of a block of all of k at most; twice as much where each block packs A again
SHORT_DEPTH, LONG_RESULT = 64, 4 << 20  # terms and bytes of a result that waits for memory
RAW_BYTES = 128 << 10  # of raw results that wait for the epilogue
COMBINED_BYTES = 2 << 10  # of rows of B that a chunk combines: what is shorter stops before prefetchers have begun
MANY_POINTS = 12  # of the batch: a kernel that takes long is cut between them
ENOUGH_CHUNKS = 16  # of a kernel that is cut within them
GOOD_ROWS = 64  # in a group: cutting those of more rows costs nothing
FEW_ROWS = 16  # in a group at least, where there are not enough chunks otherwise


@frozen
class ContractionChunks:
    """The chunks of the work. ``points`` of the batch make a chunk; 0: pieces of blocks do, ``strip`` column panels by
    a group of rows, each point of the batch by itself."""

    points: int
    strip: int


@frozen
class ContractionPlan:
    """The plan of a contraction, all that the emitter needs; sizes and strides are those of the orientation that is
    computed."""

    kernel: Contraction
    swapped: bool  # Cᵀ is computed: m, n and A, B have changed places
    way: Orientation  # that is computed
    dots: bool
    combines: bool  # the only row of C is a combination of rows of B, which are read from end to end
    tiling: Tiling
    layout: Layout
    pack_a: bool
    pack_b: bool
    b_outside: bool  # B is the same for every batch: packed before the batch loops
    via_scratch: bool  # C has no contiguous axis
    panels_per_group: int
    columns_per_block: int
    block_depth: int
    depth_block: int
    rows_first: bool  # of tiles, those of one row panel are computed before those of the next
    tile_stride: int  # row stride of the scratch block of C
    share: ContractionChunks | None

    @property
    def c(self) -> tuple[int, int]:
        """The strides of (m, n) of C; of the scratch block if the raw result is not stored."""
        return (self.tile_stride, 1) if self.way.c is None else self.way.c

    @property
    def packs_b(self) -> bool:
        """True if the kernel packs B itself."""
        return self.pack_b and self.kernel.packed is None

    @property
    def packs_by_rows(self) -> bool:
        """True if the rows of a B that is packed are contiguous: they are brought whole."""
        return self.pack_b and self.tiling.terms == 1 and self.way.b[1] == 1

    @property
    def point_by_point(self) -> bool:
        """True if something of B is brought for each point of the batch, for which its pieces wait."""
        return self.pack_b and not self.b_outside

    @property
    def panel_pitch(self) -> int:
        """The elements from one packed panel of B to the next. Panels whose lines would lie a multiple of a page apart
        are moved by a line each: packing writes to many of them at once, into few sets of the caches otherwise."""
        elements, size = packed_elements(self.tiling, self.block_depth), self.kernel.dtype.itemsize
        is_aliased = not is_open(elements) and elements * size % self.tiling.machine.page == 0
        return elements + LINE // size if is_aliased and self.packs_by_rows else elements

    @property
    def b_bytes(self) -> int:
        """The bytes of a packed block of B, or of the column of dot products."""
        elements = self.columns_per_block * self.panel_pitch if self.packs_b else 0
        return aligned_bytes(largest(self.way.k * self.way.n if self.copies_column else elements), self.kernel.dtype)

    @property
    def copies_column(self) -> bool:
        """True if the column of dot products is not contiguous."""
        return self.dots and self.way.b[0] != 1

    @property
    def a_bytes(self) -> int:
        """The bytes of the packed A of a group."""
        lines = self.group_rows if self.layout == "rows" else largest(self.depth_block)
        return aligned_bytes(max(self.packed_a_strides) * lines, self.kernel.dtype) if self.pack_a else 0

    @property
    def in_tile(self) -> bool:
        """True if tiles are written to scratch memory."""
        return self.via_scratch or not self.kernel.store_raw

    @property
    def c_bytes(self) -> int:
        """The bytes of the scratch block of C."""
        return aligned_bytes(self.group_rows * self.tile_stride, self.kernel.dtype) if self.in_tile else 0

    @property
    def packed_a_strides(self) -> tuple[int, int]:
        """Strides of packed A, which is contiguous along m where A is, so that packing turns nothing: the other stride
        is an odd number of cache lines, which so fall into different sets."""
        line = max(1, LINE // self.kernel.dtype.itemsize)
        lines = -(-(largest(self.depth_block) if self.layout == "rows" else self.group_rows) // line)
        pitch = (lines | 1) * line
        return (pitch, 1) if self.layout == "rows" else (1, pitch)

    @property
    def group_rows(self) -> int:
        """The most rows that a group has."""
        return min(largest(self.way.m), self.panels_per_group * largest(self.tiling.heights()[0]))

    @property
    def own_bytes(self) -> int:
        """The scratch memory of one group of rows: what workers don't share."""
        return self.a_bytes + self.c_bytes

    @property
    def groups(self) -> int:
        return -(-self.tiling.row_panels // self.panels_per_group)

    @property
    def b_number(self) -> int:
        """The number of the argument that is B."""
        return 0 if self.swapped else 1

    @property
    def last_depth(self) -> int:
        """The number of terms of the last block of B; of the shortest one that may be, where k is open."""
        return _last(self.way.k, self.block_depth)

    @property
    def last_pass(self) -> int:
        """The number of terms of the last pass over k; of the shortest one that may be, where k is open."""
        return _last(self.way.k, self.depth_block)

    @property
    def has_blocks_of_columns(self) -> bool:
        """True if B is packed for some of its columns at a time."""
        return not at_most(self.tiling.column_panels, self.columns_per_block)

    @property
    def has_blocks_of_terms(self) -> bool:
        """True if a block of B has some terms only."""
        return not at_most(self.way.k, self.block_depth)

    @property
    def has_passes(self) -> bool:
        """True if there may be several passes over a block."""
        return not at_most(self.block_depth, self.depth_block)

    def has_open_sizes(self) -> bool:
        """True if some sizes are open."""
        return bool(open_sizes(self.kernel))

    @property
    def raw_strides(self) -> tuple[int, ...]:
        """The strides (``*batch``, m, n) of the scratch block in which the epilogue finds the raw result."""
        return (0,) * len(self.kernel.batch) + (self.c[::-1] if self.swapped else self.c)

    @property
    def text(self) -> str:
        """Tiles, then what is packed, then passes and chunks."""
        way = "dot products" if self.dots else "a combination of rows" if self.combines else self.tiling.text
        lines = [f"{way}{' of the transpose' if self.swapped else ''}"]
        if self.pack_b:
            given = "given packed" if self.kernel.packed is not None else "packed"
            lines.append(f"B {given}, {self.columns_per_block} panels of {self.block_depth} terms at a time")
        if self.pack_a:
            lines.append(f"A packed, {self.group_rows} rows at a time")
        if not at_most(self.way.k, self.depth_block):
            lines.append(f"passes of {self.depth_block} terms of {self.way.k}")
        if self.via_scratch:
            lines.append("C by way of scratch memory")
        if self.share is not None:
            of = f"{self.share.points} points" if self.share.points else f"{self.group_rows} rows"
            lines.append(f"chunks of {of}{f' by {self.share.strip} panels' if self.share.strip else ''}")
        return "; ".join(lines)

    @property
    def whole_b_bytes(self) -> int:
        """The bytes of a B that is packed for all blocks of columns."""
        return aligned_bytes(self.tiling.column_panels * self.panel_pitch, self.kernel.dtype)


PlannedContraction = PlannedKernel[Contraction, ContractionPlan]


def planned(kernel: Contraction, target: Target) -> PlannedContraction:
    """The kernel with its plan, one for all sizes."""
    if kernel.is_empty:
        return PlannedKernel(kernel, None, raw_strides=kernel.c_strides)
    plan = plan_of(kernel, target)
    by_pieces = plan.share is not None and not plan.share.points  # which share what is packed of B
    scratch = plan.b_bytes + plan.own_bytes
    common = plan.b_bytes if by_pieces else 0
    return PlannedKernel(
        kernel,
        plan,
        is_shared=plan.share is not None and is_all_divisible(kernel.epilogue),
        shared_bytes=common,
        worker_bytes=scratch - common,
        packs=scratch <= target.sized(target.machine.packing_bytes, 0),
        raw_strides=kernel.c_strides if kernel.store_raw else plan.raw_strides,
        packed_bytes=plan.whole_b_bytes if kernel.packed is not None else 0,
        choice=_choice(kernel, target) if config.get("EXPLAIN") == "1" else "",
    )


def _choice(kernel: Contraction, target: Target) -> str:
    """The estimates by which the blocking of the greatest sizes was chosen; none of one that was measured or follows
    from a packed operand."""
    if kernel.blocking is not None or kernel.packed is not None:
        return ""
    return choice_text(compared(given_orientation(largest(kernel)), target))


def takes_packed(kernel: Contraction, target: Target, number: int) -> bool:
    """The kernel had better be given operand ``number`` packed, if that stays the same from call to call."""
    plain = not kernel.is_empty and not kernel.batch
    operand = (kernel.k, kernel.n, kernel.b_strides) if number else (kernel.m, kernel.k, kernel.a_strides)
    return plain and not open_sizes(operand) and is_worth_packing(given_orientation(largest(kernel)), target, number)


def _seconds(kernel: Contraction, target: Target) -> float:
    """The estimated seconds of the kernel on one core."""
    points, size, machine = math.prod(kernel.batch), kernel.dtype.itemsize, target.machine
    is_fast = kernel.dtype.kind == "f" or kernel.grouping
    rate = machine.product_flops_per_lane if is_fast else machine.integer_flops_per_lane
    flops = 2 * points * kernel.m * kernel.n * kernel.k
    moved = points * size * (kernel.m * kernel.k + kernel.k * kernel.n + kernel.m * kernel.n)
    return max(flops / (rate * tile_lanes(target, kernel.dtype)), moved / machine.bytes_moved)


def plan_of(kernel: Contraction, target: Target) -> ContractionPlan:
    """The plan of a kernel; the epilogue has no part in it."""
    return _make_plan(replace(kernel, epilogue=None), target)


@functools.lru_cache(maxsize=4096)
def _make_plan(kernel: Contraction, target: Target) -> ContractionPlan:
    """Decide everything that depends on sizes, strides and the target alone."""
    return _open_plan(kernel, target) if open_sizes(kernel) else _known_plan(kernel, given_orientation(kernel), target)


def _open_plan(kernel: Contraction, target: Target) -> ContractionPlan:
    """The plan for the greatest of the open sizes, with the panels, passes and blocks that other sizes have."""
    great, given = largest(kernel), given_orientation(kernel)
    plan = _known_plan(great, largest(given), target)
    way = given.swap() if plan.swapped else given
    tiling = plan.tiling
    if is_open(way.n) and tiling.terms > 1 and -(-tiling.vectors // tiling.terms) > 1 and not tiling.of_dots:
        # Only the last of the vectors that are stored is masked.
        plan = _known_plan(great, replace(largest(given), most_terms=1), target)
        way = given.swap() if plan.swapped else given
    tiling = opened(plan.tiling, way.m, way.n)
    if (
        is_open(way.n)
        and tiling.terms == 1
        and tiling.edge
        and not (tiling.masked or plan.pack_b or plan.dots or plan.combines)
    ):
        if target.isa.masked_loads and way.dtype.kind == "f":
            tiling = replace(tiling, exact=True)
        else:
            blocking = Blocking(plan.swapped, plan.tiling.rows, plan.tiling.vectors, False, True)
            plan = _known_plan(replace(great, blocking=blocking), largest(given), target)
            tiling = opened(plan.tiling, way.m, way.n)
    return replace(
        plan,
        kernel=kernel,
        way=way,
        tiling=tiling,
        columns_per_block=_all_or(plan.columns_per_block, plan.tiling.column_panels, tiling.column_panels),
        block_depth=_all_or(plan.block_depth, plan.way.k, way.k),
        depth_block=_all_or(plan.depth_block, plan.way.k, way.k),
    )


def _last(size: int, step: int) -> int:
    """The length of the last of the steps of a size; of the shortest one that may be, where it is open."""
    return lowest(size) if lowest(size) == 0 or is_same(step, size) else lowest((size - 1) % step + 1)


def _all_or(some: int, greatest: int, size: int) -> int:
    """The part of an open size that is done at once, where ``some`` of its greatest are: all, or that number."""
    return size if some >= greatest else some


def _known_plan(kernel: Contraction, given: Orientation, target: Target) -> ContractionPlan:
    """The plan of a kernel whose sizes are known."""
    row_block = target.sized(ROW_BLOCK)
    by_dots = kernel.packed is None and dots_swap(given, target) is not None
    usual = usual_blocking(given, target)
    blocking = kernel.blocking or usual
    swapped, pack_b = blocking.swapped, blocking.packed
    if kernel.packed is not None:
        swapped, pack_b = kernel.packed == 0, True
    way = given.swap() if swapped else given
    m, n, k, a, c = way.m, way.n, way.k, way.a, way.c
    via_scratch = c is not None and c[1] != 1 and not by_dots
    tiling = _tiling(kernel, given, blocking, target)
    pack_a = not by_dots and packs_a(tiling, m, k, a)
    narrow = narrow_way(given, target)
    usual_width = usual.vectors * tile_lanes(target, way.dtype) if narrow is None else narrow[1].width
    panel_bytes = _panel_bytes(given, usual, narrow[1] if narrow is not None else None, target)
    combines = kernel.packed is None and combines_rows(given, target)
    depth_block = k if combines else _depth_block(usual_width, way.dtype, k, panel_bytes)
    waits = c is not None and not via_scratch and kernel.packed is None and tiling.terms == 1
    block_depth, columns = k, tiling.column_panels
    if pack_b and waits:  # sums do, in C, between blocks of B
        low = tiling.costs.low_tiles
        passes = 1 if pack_a or low else target.sized(DEPTH_BYTES) // panel_bytes
        block_depth = min(k, depth_block * passes)
        nbytes = FAR_BLOCK_BYTES if pack_a and low else BLOCK_BYTES
        columns = _columns_per_block(tiling, block_depth, target.sized(nbytes))
    elif pack_b:
        columns = _columns_per_block(tiling, k, target.sized(PACKED_BYTES) * (1 + pack_a))
    b_outside = not any(s for s, d in zip(batch_strides(kernel, swapped)[1], kernel.batch) if d != 1)
    together = pack_b and not b_outside  # something is made for each point of the batch
    groups = -(-tiling.row_panels // max(1, row_block // tiling.rows))
    least_strip = max(1, target.sized(COMBINED_BYTES) // (tiling.width * way.dtype.itemsize)) if combines else 1
    share, groups = _share_of(kernel, target, tiling, groups, columns, together=together, dots=by_dots,
                              pack_a=pack_a, least_strip=least_strip)  # fmt: skip
    strip = share.strip if share is not None and share.strip else columns
    block_width = min(strip * tiling.width, round_up(n, tiling.lanes))
    if via_scratch or c is None:
        rows = max(tiling.rows, min(row_block, target.sized(RAW_BYTES) // (block_width * way.dtype.itemsize)))
        groups = max(groups, -(-tiling.row_panels // max(1, rows // tiling.rows)))
    tile_stride = (
        1 if n == 1 else block_width + (16 if block_width * way.dtype.itemsize % target.machine.page == 0 else 0)
    )
    return ContractionPlan(
        kernel=kernel,
        swapped=swapped,
        way=way,
        dots=by_dots,
        combines=combines,
        tiling=tiling,
        layout="columns" if a[0] == 1 != a[1] and tiling.terms == 1 else "rows",
        pack_a=pack_a,
        pack_b=pack_b,
        b_outside=b_outside,
        via_scratch=via_scratch,
        panels_per_group=-(-tiling.row_panels // groups),
        columns_per_block=columns,
        block_depth=block_depth,
        depth_block=depth_block,
        rows_first=c is not None and not via_scratch and _outgrows(m, n, k, way.dtype, target),
        tile_stride=tile_stride,
        share=share,
    )


def _tiling(kernel: Contraction, given: Orientation, blocking: Blocking, target: Target) -> Tiling:
    tiling = _plain_tiling(kernel, given, blocking, target)
    turned = blocking.swapped if kernel.packed is None else kernel.packed == 0
    return replace(tiling, grouping=f"{kernel.grouping}{'.turned' * turned}") if kernel.grouping else tiling


def _plain_tiling(kernel: Contraction, given: Orientation, blocking: Blocking, target: Target) -> Tiling:
    if kernel.packed is not None:
        return packed_way(given, target, kernel.packed)[1]
    narrow = narrow_way(given, target)
    if narrow is not None:
        return narrow[1]
    way = given.swap() if blocking.swapped else given
    tiling = tiling_of(blocking, way, target)
    low = tiling.costs.low_tiles
    far = not blocking.packed and (tiling.row_panels == 1 or low) and _is_far(way, way.b[0], target)
    along = low and way.a[1] != 1 and not packs_a(tiling, way.m, way.k, way.a)
    return replace(tiling, far=far, far_a=along and _is_far(way, way.a[1], target))


def _is_far(way: Orientation, stride: int, target: Target) -> bool:
    """True if lines so far apart, one for each k, come from farther than a core's own cache, unforeseen."""
    nbytes = stride * way.dtype.itemsize
    return nbytes >= target.machine.far_bytes and way.k * nbytes > target.machine.own_cache_bytes


def _panel_bytes(given: Orientation, usual: Blocking, narrow: Tiling | None, target: Target) -> int:
    """The bytes that a panel of B may have in one pass over k. As the passes, they are the same for every blocking."""
    if narrow is not None and narrow.of_dots:
        return target.sized(DOT_PANEL_BYTES)
    way = given.swap() if usual.swapped else given
    packs = narrow is None and packs_a(tiling_of(usual, way, target), way.m, way.k, way.a)
    if target.machine.products.low_tiles:
        return target.sized(LOW_SHORT_PANEL_BYTES if packs else LOW_PANEL_BYTES)
    return target.sized(SHORT_PANEL_BYTES if packs else PANEL_BYTES)


def _depth_block(width: int, dtype: np.dtype, k: int, panel_bytes: int) -> int:
    """The number of terms in a pass over k with the usual blocking, whose panels have ``width`` columns. It has to be
    the same for every blocking, because it decides in which order terms are added."""
    passes = max(1, -(-k * width * dtype.itemsize // panel_bytes))
    return round_up(-(-k // passes), 8) if passes > 1 else k


def _outgrows(m: int, n: int, k: int, dtype: np.dtype, target: Target) -> bool:
    """True if writing C takes about as long as computing it: it is long, and its terms are few. Memory takes long rows
    faster than narrow pieces of many; B comes from the second cache then."""
    size, long = dtype.itemsize, m * n * dtype.itemsize >= target.sized(LONG_RESULT)
    return k <= SHORT_DEPTH and long and k * n * size <= target.sized(BLOCK_BYTES)


def _columns_per_block(tiling: Tiling, block_depth: int, nbytes: int) -> int:
    """The number of column panels of a block of B."""
    most = max(4, nbytes // (max(block_depth, 1) * tiling.width * tiling.dtype.itemsize))
    return -(-tiling.column_panels // -(-tiling.column_panels // most))


def _share_of(
    kernel: Contraction,
    target: Target,
    tiling: Tiling,
    groups: int,
    columns: int,
    *,
    together: bool,
    dots: bool,
    pack_a: bool,
    least_strip: int,
) -> tuple[ContractionChunks | None, int]:
    """The chunks of the work, and the number of groups of rows that follows. ``together`` says that each point of the
    batch begins with work that all its pieces wait for. Where A is packed, each strip of columns packs it again: then
    rows are cut first. Strips have ``least_strip`` panels, or all."""
    seconds, points = _seconds(kernel, target), math.prod(kernel.batch)
    wanted = wanted_chunks(seconds, target)
    if wanted <= 1:
        return None, groups
    if points >= min(wanted, MANY_POINTS) or (points > 1 and dots):
        return ContractionChunks(cut(points, wanted)[0], 0), groups
    if together and points > 1 and seconds * target.machine.divisor < points * target.machine.worth_sharing_seconds:
        return ContractionChunks(1, 0), groups
    beside = 1 if together else points  # points whose pieces run at once
    enough = -(-min(wanted, ENOUGH_CHUNKS) // beside)
    strips = 1
    if not dots:
        groups = max(groups, min(enough, tiling.m // target.sized(FEW_ROWS if pack_a else GOOD_ROWS)))
        few = max(1, tiling.m // target.sized(FEW_ROWS))
        most_strips = max(1, columns // least_strip)
        strips = cut(most_strips, -(-enough // groups), -(-enough // groups))[1]
        groups = max(groups, min(-(-enough // strips), few))
        most_strips = strips if pack_a else min(2 * strips, most_strips)
        groups, strips = _evened(
            tiling, groups, strips, columns, beside, min(MOST_CHUNKS, 2 * wanted), few, most_strips
        )
    return (ContractionChunks(0, -(-columns // strips)) if groups * strips * beside > 1 else None), groups


def _evened(
    tiling: Tiling, groups: int, strips: int, columns: int, beside: int, most: int, few: int, most_strips: int
) -> tuple[int, int]:
    """The groups of rows, up to twice as many, and the strips of columns, up to ``most_strips``, whose pieces come out
    most evenly among threads."""

    def uneven(way: tuple[int, int]) -> float:
        rows, wide = -(-tiling.row_panels // way[0]), -(-columns // way[1])
        pieces = -(-tiling.row_panels // rows) * -(-columns // wide) * beside
        return unevenness(pieces, rows * wide / (tiling.row_panels * columns * beside))

    ways = [(g, s) for s in range(strips, most_strips + 1)
            for g in range(groups, max(groups, min(2 * groups, few)) + 1) if g * s * beside <= most]  # fmt: skip
    return min([(groups, strips), *ways], key=uneven)


def batch_strides(kernel: Contraction, swapped: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The strides of the batch of A and B in the orientation that is computed."""
    a, b = kernel.a_strides[:-2], kernel.b_strides[:-2]
    return (b, a) if swapped else (a, b)
