"""Tilings: the tiles of which the result of a product consists. Sizes and a target come in, the tiling that seems
fastest goes out. Its tiles are those of the microkernel (``emit/microkernel.py``), which says what bounds them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np

from staticgrad.base.extents import highest, is_open, lowest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.machine.machine import LINE, Machine, ProductCosts
from staticgrad.compiler.machine.target import Target

Layout = Literal["rows", "columns"]

COMPACT_ROWS, COMPACT_VECTORS = 2, 2  # of tiles at most, where code is to be short
USUAL_ROWS = 8  # height of the tiles that most shapes share, where registers allow it
MOST_VECTORS = 8  # width of a tile of one or two rows
HIDING_SUMS = 8  # independent sums that hide the latency of a multiply-add: four cycles, two a cycle
ENOUGH_SIZES = 256  # open sizes among which all panels occur: no panel has more columns, and rows are few
MAX_LANES = 16  # of a vector of small integers: more would only lengthen the scalar code of edges


def tile_lanes(target: Target, dtype: np.dtype) -> int:
    """The number of elements of ``dtype`` in one vector of a tile."""
    return min(target.lanes(dtype), MAX_LANES)


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def aligned_bytes(elements: int, dtype: np.dtype) -> int:
    """The bytes of ``elements``, rounded up to whole cache lines."""
    return round_up(elements * dtype.itemsize, LINE)


@frozen
class Tiling:
    """The tiles of an m × n result.

    The first ``tall`` of ``row_panels`` have ``rows`` rows, the others one less. All of ``column_panels`` have
    ``vectors`` vectors but the last, which has ``last_vectors``, the last one with ``last_lanes`` valid lanes. A vector
    has ``lanes`` columns, each of which takes ``terms`` lanes of the register. With ``far`` rows of B are so far away
    and apart that each is prefetched some turns ahead, with ``far_a`` the lines of an A that is contiguous along m.
    With ``exact`` the last vector of B is read under a mask though that takes longer than reading all of it: B, which
    is read once, needs no copy with room after its rows. ``grouping`` says of elements that are groups of short numbers
    which they are, and whether the operands have changed places.

    Where m or n are open, so are the numbers of panels, their rows, and what the last panel has (``opened``).
    ``open_rows`` are the heights of panels, ``open_vectors`` the vectors of a last panel that occur then.
    """

    dtype: np.dtype
    m: int
    n: int
    lanes: int
    rows: int
    tall: int
    row_panels: int
    vectors: int
    column_panels: int
    last_vectors: int
    last_lanes: int
    masked: bool
    machine: Machine
    terms: int = 1
    far: bool = False
    far_a: bool = False
    exact: bool = False
    grouping: str = ""
    open_rows: tuple[int, ...] = ()
    open_vectors: tuple[int, ...] = ()

    @property
    def costs(self) -> ProductCosts:
        """The costs of the machine's products."""
        return self.machine.products

    @property
    def chains(self) -> int:
        """The number of sums of each element, of terms at a fixed distance: a result of few vectors would wait for the
        latency of one after the other. They depend on the sizes alone, whatever the tiles are, but other than those of
        the transpose."""
        vectors = self.m * -(-self.n // self.lanes)
        if self.terms > 1 or self.dtype.kind != "f" or not 0 < vectors < HIDING_SUMS:
            return 1
        return 1 << (HIDING_SUMS // vectors).bit_length() - 1

    def chains_of_tile(self, rows: int, vectors: int) -> int:
        """The same of one tile, which it depends on where sizes are open: rows of wide tiles are low there."""
        if not self.has_open_sizes() or self.terms > 1 or self.dtype.kind != "f":
            return self.chains
        return 1 << (-(-HIDING_SUMS // (rows * vectors)) - 1).bit_length()

    @property
    def width(self) -> int:
        """The columns of a whole panel."""
        return self.vectors * self.lanes

    @property
    def text(self) -> str:
        """The size of a tile and of what is cut in tiles."""
        prefetches = ", B prefetched" * self.far + ", A prefetched" * self.far_a
        return f"tiles {self.rows}x{self.width} of {self.m}x{self.n}{prefetches}"

    @property
    def edge(self) -> bool:
        """True if some vector is not whole, or may not be."""
        return is_open(self.last_lanes) or self.last_lanes != self.lanes

    def stored(self, *, last: bool) -> int:
        """The valid lanes of the last vector of a row of C, in the last column panel or another."""
        if self.folded and last:
            return 0
        columns = (self.n - 1) % self.width + 1 if last else self.width
        return (columns - 1) % (self.lanes * self.terms) + 1

    @property
    def of_dots(self) -> bool:
        """All lanes of a register are terms of one column: tiles read B along k, where it lies or packed by columns."""
        return self.terms > 1 and self.lanes == 1

    @property
    def folded(self) -> bool:
        """The last vector is masked off as a whole."""
        return self.last_lanes == 0

    def has_open_sizes(self) -> bool:
        """True if the sizes of the result are not known."""
        return is_open(self.m) or is_open(self.n)

    def heights(self) -> tuple[int, ...]:
        """The row counts that occur, the taller first."""
        if self.open_rows:
            return self.open_rows
        return tuple(h for h, some in ((self.rows, self.tall), (self.rows - 1, self.row_panels - self.tall)) if some)

    def column_kinds(self) -> tuple[tuple[int, bool], ...]:
        """(vectors, edge) of the inner column panels and of the last one, as wide as it may be; equal ones where one
        function serves."""
        last = (self.open_vectors[0] if self.open_vectors else self.last_vectors, self.edge)
        if self.column_panels == 1:
            return (last, last)
        shared = self.masked and last[0] == self.vectors
        return (last if shared else (self.vectors, False), last)

    def variants(self) -> int:
        """The number of microkernels that the tiling needs."""
        return len(self.heights()) * len(set(self.column_kinds()))


def most_rows(target: Target, dtype: np.dtype, vectors: int) -> int:
    """The tallest tile of ``vectors`` vectors that spills no register."""
    if dtype.kind != "f":
        return max(1, 4 // vectors)
    temporaries = 1 if target.isa.fma else 2
    free = target.isa.registers - target.machine.products.spare_registers - temporaries
    rows = max(1, (free - vectors) // vectors)  # a single one takes B from memory
    return min(rows, 14)


def _tile_cycles(costs: ProductCosts, rows: int, vectors: int, depth: int, chains: int) -> float:
    """Cycles of one tile: multiply-adds, loads and issue slots against their ports, and the latency of the chain; then
    what else each operand costs, more for a panel of B too long to stay in the first cache, and what is stored."""
    fmas = rows * vectors
    cycles = max(fmas / 2, (rows + vectors) / 2, (fmas + rows + vectors + 4) / 6, costs.chain_cycles / chains)
    from_b = costs.far_b_cycles if depth * vectors > costs.near_vectors else costs.near_b_cycles
    return depth * (cycles + from_b * vectors + costs.a_cycles * rows) + costs.tile_cycles + costs.stored_cycles * fmas


def make_tiling(
    target: Target, dtype: np.dtype, m: int, n: int, rows: int, vectors: int, fold: bool, terms: int = 1
) -> Tiling:
    """The tiling of an m × n result into tiles of at most ``rows`` × ``vectors``. With ``fold`` a last panel that lacks
    one vector has it masked off, so that one function serves all panels. ``terms`` lie side by side; unless they fill
    the register, all columns must fit one panel."""
    lanes = tile_lanes(target, dtype) // terms
    row_panels = -(-m // rows)
    rows = -(-m // row_panels)
    n_vectors = -(-n // lanes)
    column_panels = -(-n_vectors // vectors)
    last_vectors = n_vectors - (column_panels - 1) * vectors
    last_lanes = n - (n_vectors - 1) * lanes
    if fold and last_vectors == vectors - 1 and column_panels > 1 and last_lanes == lanes:
        last_vectors, last_lanes = vectors, 0  # the last vector is masked off as a whole: one function serves all
    return Tiling(dtype, m, n, lanes, rows, m - row_panels * (rows - 1), row_panels, vectors, column_panels,
                  last_vectors, last_lanes, target.isa.predicated, target.machine, terms)  # fmt: skip


def opened(tiling: Tiling, m: int, n: int) -> Tiling:
    """``tiling``, of the greatest sizes that m and n may have, with m and n, which may be open, in their place: no
    panel has more rows or vectors than its panels. Rows are balanced as they are for known sizes."""
    if is_open(m):
        most = tiling.rows
        panels = -(-m // most)
        rows = -(-m // panels)
        tiling = replace(
            tiling, m=m, rows=rows, tall=m - panels * (rows - 1), row_panels=panels, open_rows=_heights(m, most)
        )
    if is_open(n):
        width, lanes = tiling.width, tiling.lanes
        vectors = -(-((n - 1) % width + 1) // lanes)
        several = _numbers(n, lambda n: -(-((n - 1) % width + 1) // lanes))
        tiling = replace(
            tiling, n=n, column_panels=-(-n // width), last_vectors=vectors, last_lanes=(n - 1) % lanes + 1,
            open_vectors=several,
        )  # fmt: skip
    return tiling


def _heights(m: int, most: int) -> tuple[int, ...]:
    """The heights that balanced panels of at most ``most`` rows have, the tallest first."""
    tall = _numbers(m, lambda m: -(-m // -(-m // most)))
    low = _numbers(m, lambda m: m // -(-m // most))
    return tuple(sorted({*tall, *low}, reverse=True))


def _numbers(size: int, number: Callable[[int], int]) -> tuple[int, ...]:
    """The values of a function of a size, the greatest first. It is asked for sizes from the lowest one on, of which
    there are enough for all values that it takes."""
    low, high = max(lowest(size), 1), highest(size)
    return tuple(sorted({number(n) for n in range(low, min(high, low + ENOUGH_SIZES) + 1)}, reverse=True))


def tiling_cost(tiling: Tiling, depth: int) -> float:
    """The estimated cycles of a product of one point from the first cache, a little more for many functions."""
    costs, chains, (inner, last) = tiling.costs, tiling.chains, tiling.column_kinds()
    cycles = 0.0
    for height, panels in ((tiling.rows, tiling.tall), (tiling.rows - 1, tiling.row_panels - tiling.tall)):
        if panels:
            a_row = (tiling.column_panels - 1) * _tile_cycles(costs, height, inner[0], depth, chains)
            cycles += panels * (a_row + _tile_cycles(costs, height, last[0], depth, chains))
    # A function is 5 ms of compilation, unless another kernel of the module needs it too: favour one usual height.
    unusual = any(height != costs.usual_rows for height in tiling.heights())
    return cycles * (1 + 0.02 * (tiling.variants() - 1) + 0.02 * unusual)


@functools.lru_cache(maxsize=4096)
def choose_tiling(target: Target, dtype: np.dtype, m: int, n: int, depth: int) -> Tiling:
    """The tiling of an m × n result (both positive) over ``depth`` terms with the least estimated time.

    Row panels are balanced (never a runt); of tilings of about equal speed the one with fewer functions wins.
    """
    return tilings(target, dtype, m, n, depth)[0]


def read_in_place(tiling: Tiling, target: Target) -> Tiling:
    """The same for a B that has no room after its rows: the last vector is ``exact`` where B is read once, by a machine
    that loads under masks."""
    by_masks = target.isa.masked_loads and not target.isa.predicated and tiling.dtype.kind == "f"
    once = tiling.row_panels == 1 and tiling.terms == 1 and tiling.last_lanes not in (0, tiling.lanes)
    return replace(tiling, exact=True) if by_masks and once else tiling


def tilings(target: Target, dtype: np.dtype, m: int, n: int, depth: int) -> tuple[Tiling, ...]:
    """For each number of vectors that a tile may have the tiling that seems fastest, and those by that order."""
    widest = MOST_VECTORS if m <= 2 else target.machine.products.most_vectors  # of one row B is an operand in memory
    highest_tile = m
    if target.machine.compact:
        highest_tile, widest = COMPACT_ROWS, COMPACT_VECTORS
    most_vectors = min(widest, -(-n // tile_lanes(target, dtype)))
    found = []
    for vectors in range(1, most_vectors + 1):
        candidates = []
        panels = 0
        for rows in range(1, min(m, highest_tile, most_rows(target, dtype, vectors)) + 1):
            if -(-m // rows) == panels:
                continue  # balanced, these are the panels of fewer rows
            panels = -(-m // rows)
            for fold in (False, True) if target.isa.predicated else (False,):
                tiling = make_tiling(target, dtype, m, n, rows, vectors, fold)
                if fold and not tiling.folded:
                    continue
                candidates.append((tiling_cost(tiling, depth), tiling.variants(), -vectors, fold, rows, tiling))
        found.append(min(candidates, key=lambda entry: entry[:5]))
    return tuple(entry[-1] for entry in sorted(found, key=lambda entry: entry[:5]))
