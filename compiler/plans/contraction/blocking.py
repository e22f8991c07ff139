"""The blocking of a product: its orientation, its tiles, and what is packed. A ``Contraction`` comes in, a ``Blocking``
goes out.

Tiles are written with contiguous rows, which C or its transpose may have. Cᵀ = Bᵀ·Aᵀ is computed where the estimate for
that is lower: where C is contiguous along m, where B would be packed for few rows of A, where n fills no vector. Both
are an ``Orientation``, and everything else here speaks of one.

B is read in place if its rows are contiguous and few rows of A use it, else packed. A is read in place, whichever of
its axes is contiguous, but packed if neither is, if its lines lie a multiple of a page apart and fall into few sets of
the first cache (conflict misses), or if it is long and contiguous along m, or read often by low tiles. A single column
cannot fill a register: where A is contiguous along k, its elements are dot products instead (``dots``). A single row of
A whose B has long rows and comes from far away is multiplied as a combination of these (``combines_rows``). Tiles of
few columns, and of few rows and columns over many terms, have several terms side by side (``narrow``).

The estimates are of cycles from the first cache. ``blockings`` gives the choices that are worth measuring, and one that
a kernel has takes the place of the usual one. No choice changes the bits of a result.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import numpy as np

from staticgrad.base.extents import open_sizes
from staticgrad.base.frozen import frozen
from staticgrad.base.types import float32
from staticgrad.compiler.kernels.matrix import Blocking, Contraction
from staticgrad.compiler.machine.machine import LINE
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.contraction.narrow import ALIASED_ROWS, narrow_tiling, packs
from staticgrad.compiler.plans.tiles import (
    MAX_LANES,
    MOST_VECTORS,
    Tiling,
    choose_tiling,
    make_tiling,
    read_in_place,
    tile_lanes,
    tiling_cost,
    tilings,
)

COMBINED_NEAR = 4  # times the first cache: a longer B is read by rows where one row of A is multiplied
FEW_PANELS = 4  # of columns: then an A that is far away and contiguous along m is read in place
MANY_PANELS = 32  # of columns: for fewer an A that is contiguous along k is read in place, wherever it is
WORTH_TURNING = 1.05  # how much faster Cᵀ must seem where C lies as it is given
WORTH_KEEPING = 1.05  # how much faster a product must seem with an operand that is kept packed
# Blockings that are measured: their greatest number, and how much slower one may seem than the one that seems best.
MOST_MEASURED = 5
SEEMS_TOO_SLOW = 1.5


@frozen
class Orientation:
    """A product as it would be computed: sizes, and strides of (m, k), (k, n), (m, n). ``c`` is None if the raw result
    is not stored: then its layout is free. At most ``most_terms`` lie side by side (``narrow``). Elements may be
    groups of short numbers: then ``dtype`` is float32, which is as long and as fast."""

    dtype: np.dtype
    m: int
    n: int
    k: int
    a: tuple[int, int]
    b: tuple[int, int]
    c: tuple[int, int] | None
    most_terms: int = MAX_LANES
    grouped: bool = False

    def swap(self) -> Orientation:
        """Cᵀ = Bᵀ·Aᵀ."""
        c = None if self.c is None else (self.c[1], self.c[0])
        a, b = (self.b[1], self.b[0]), (self.a[1], self.a[0])
        return Orientation(self.dtype, self.n, self.m, self.k, a, b, c, self.most_terms, self.grouped)


def given_orientation(kernel: Contraction) -> Orientation:
    """The product as it is declared."""
    m, n, k = kernel.m, kernel.n, kernel.k
    c = (_unit(m, kernel.c_strides[-2]), _unit(n, kernel.c_strides[-1])) if kernel.store_raw else None
    a = (_unit(m, kernel.a_strides[-2]), _unit(k, kernel.a_strides[-1]))
    b = (_unit(k, kernel.b_strides[-2]), _unit(n, kernel.b_strides[-1]))
    grouped = bool(kernel.grouping)
    return Orientation(float32 if grouped else kernel.dtype, m, n, k, a, b, c, 1 if grouped else MAX_LANES, grouped)


def _unit(size: int, stride: int) -> int:
    """The stride of an axis; one of length one may have any, so it is contiguous."""
    return 1 if size == 1 else stride


def usual_blocking(given: Orientation, target: Target) -> Blocking:
    """The blocking that the estimates prefer."""
    dots = dots_swap(given, target)
    narrow = narrow_way(given, target)
    if narrow is not None:
        swapped, tiling = narrow
        packed = packs(tiling, (given.swap() if swapped else given).b)
        return Blocking(swapped, tiling.rows, tiling.vectors, False, packed)
    swapped = _prefers_swap(given, target) if dots is None else dots
    way = given.swap() if swapped else given
    tiling = _usual_tiling(way, target)
    packed = dots is None and way.k > 0 and _packs_b(tiling, way.b, way.k) and not combines_rows(given, target)
    return Blocking(swapped, tiling.rows, tiling.vectors, tiling.folded, packed)


def compared(given: Orientation, target: Target) -> list[tuple[float, str]]:
    """The ways in which a product can be computed and their estimated cycles, the one that is taken first, then those
    with the fewest; none where a rule decides: dot products are taken wherever they can be."""
    if 0 in (given.m, given.n, given.k) or dots_swap(given, target) is not None or combines_rows(given, target):
        return []
    narrow = narrow_way(given, target)
    taken = (_prefers_swap(given, target), 1) if narrow is None else (narrow[0], narrow[1].terms)
    found = []
    for turned, way in ((False, given), (True, given.swap())):
        usual = _usual_tiling(way, target)
        both = [(_tiled_cycles(way, usual, turned=turned), usual), *_narrow(way, target, turned=turned)]
        for cycles, tiling in both:
            terms = f", {tiling.terms} terms side by side" * (tiling.terms > 1)
            text = f"{tiling.text}{' of the transpose' * turned}{terms}"
            found.append(((turned, tiling.terms) != taken, cycles, text))
    return [(cycles, text) for _, cycles, text in sorted(found)]


def tiling_of(blocking: Blocking, way: Orientation, target: Target) -> Tiling:
    """The tiling that a blocking stands for, in the orientation that it says."""
    tiling = make_tiling(target, way.dtype, way.m, way.n, blocking.rows, blocking.vectors, blocking.folded)
    return read_in_place(tiling, target)


def _usual_tiling(way: Orientation, target: Target) -> Tiling:
    """The tiling that seems fastest in an orientation."""
    return read_in_place(choose_tiling(target, way.dtype, way.m, way.n, way.k), target)


# -- given packed -----------------------------------------------------------------------------------------------------


def is_worth_packing(given: Orientation, target: Target, number: int) -> bool:
    """True if a product seems faster where operand ``number`` is given packed, by enough for the memory that takes."""
    if given.dtype.kind != "f" or 0 in (given.m, given.n, given.k) or dots_swap(given, target) is not None:
        return False
    if combines_rows(given, target):  # which adds in another order than tiles
        return False
    narrow = narrow_way(given, target)
    swapped = narrow[0] if narrow is not None else _prefers_swap(given, target)
    way = given.swap() if swapped else given
    usual = _cycles(way, target, turned=swapped) if narrow is None else _narrow(way, target, turned=swapped)[0][0]
    packed = packed_way(given, target, number)[0]
    nbytes = given.k * (given.n if number else given.m) * given.dtype.itemsize
    return packed * WORTH_KEEPING < usual and usual - packed > target.machine.products.least_saved_cycles * nbytes


def packed_way(given: Orientation, target: Target, number: int) -> tuple[float, Tiling]:
    """The estimated cycles of a product whose operand ``number`` is given packed, and its tiling, which has the same
    number of terms side by side, and of sums of an element, as where it is not: whether a program keeps what it packs
    changes no bits. Infinitely many cycles where no such tiling reads what is packed."""
    turned = number == 0
    way = given.swap() if turned else given
    tiling = _usual_tiling(way, target)
    usual = narrow_way(given, target)
    if usual is None:
        same = tiling.chains == _usual_chains(given, target)
        return (_tiled_cycles(way, tiling, turned=turned, given_b=True) if same else math.inf), tiling
    narrow = narrow_tiling(target, way.dtype, way.m, way.n, way.k, way.a, None, terms=usual[1].terms)
    if narrow is None:
        return math.inf, tiling
    return narrow[0] + turning_back(way, tiling, turned=turned), narrow[1]


# -- measured ---------------------------------------------------------------------------------------------------------


def blockings(kernel: Contraction, target: Target) -> tuple[Blocking, ...]:
    """The blockings of a product that are worth measuring: the usual one, then others as they seem faster. None where
    there is nothing to choose, and where sizes are open."""
    if kernel.is_empty or kernel.k == 0 or open_sizes(kernel):
        return ()
    given = given_orientation(kernel)
    if dots_swap(given, target) is not None or combines_rows(given, target) or narrow_way(given, target) is not None:
        return ()
    usual = usual_blocking(given, target)
    found: list[tuple[float, Blocking]] = []
    chains = _usual_chains(given, target)
    for swapped, way in ((False, given), (True, given.swap())):
        for tiling in tilings(target, way.dtype, way.m, way.n, way.k):
            if tiling.chains != chains:
                continue
            packed = _packs_b(tiling, way.b, way.k)
            blocking = Blocking(swapped, tiling.rows, tiling.vectors, tiling.folded, packed)
            found.append((_tiled_cycles(way, tiling, turned=swapped), blocking))
    found.sort(key=lambda entry: entry[0])
    limit = SEEMS_TOO_SLOW * found[0][0]
    others = [blocking for cycles, blocking in found if cycles <= limit]
    way = given.swap() if usual.swapped else given
    if not _must_pack(tiling_of(usual, way, target), way.b):
        others.insert(0, replace(usual, packed=not usual.packed))
    several = tuple(dict.fromkeys((usual, *others)))[:MOST_MEASURED]
    return several if len(several) > 1 else ()


def _usual_chains(given: Orientation, target: Target) -> int:
    """The number of sums of each element in the orientation that is usual; the other one may have more or fewer."""
    way = given.swap() if _prefers_swap(given, target) else given
    return _usual_tiling(way, target).chains


# -- dot products -----------------------------------------------------------------------------------------------------


def dots_swap(way: Orientation, target: Target) -> bool | None:
    """True if the dot products of a matrix with a vector compute Cᵀ, False if C; None if none are computed."""
    lanes = tile_lanes(target, way.dtype)
    if way.grouped or way.dtype.kind != "f" or way.k < 2 * lanes or (lanes == 1 and target.machine.compact):
        return None
    # One column, rows of A that are contiguous; rather vectors along m if A is contiguous there too.
    return next((turned for turned, w in ((False, way), (True, way.swap())) if w.n == 1 and w.a[1] == 1), None)


# -- combinations of rows ---------------------------------------------------------------------------------------------


def combines_rows(given: Orientation, target: Target) -> bool:
    """True if the only row of C, or of Cᵀ, is computed as a combination of the rows of B: it is longer than a tile, and
    B comes from farther away than the first cache."""
    if given.dtype.kind != "f" or given.grouped or 1 not in (given.m, given.n) or dots_swap(given, target) is not None:
        return False
    way = given.swap() if given.m != 1 and _prefers_swap(given, target) else given
    size, vector = way.dtype.itemsize, tile_lanes(target, way.dtype)
    if way.m != 1 or way.b[1] != 1 or (way.c is not None and way.c[1] != 1):
        return False
    return way.n > MOST_VECTORS * vector and way.n * way.k * size > COMBINED_NEAR * target.machine.near_bytes


# -- terms side by side -----------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def narrow_way(given: Orientation, target: Target) -> tuple[bool, Tiling] | None:
    """A flag that says whether Cᵀ is computed, and the tiling, if tiles have terms side by side (``narrow``); else
    None, as where code is to be short: of all tiles these have the most."""
    if given.dtype.kind != "f" or given.most_terms == 1 or 0 in (given.m, given.n, given.k) or target.machine.compact:
        return None
    if dots_swap(given, target) is not None:
        return None
    found = [
        (cycles, swapped, tiling)
        for swapped, way in ((False, given), (True, given.swap()))
        for cycles, tiling in _narrow(way, target, turned=swapped)
    ]
    if not found:
        return None
    cycles, swapped, tiling = min(found, key=lambda entry: entry[:2])
    usual = _prefers_swap(given, target)
    others = _cycles(given.swap() if usual else given, target, turned=usual)
    return (swapped, tiling) if cycles * WORTH_TURNING < others else None


def _narrow(way: Orientation, target: Target, *, turned: bool) -> list[tuple[float, Tiling]]:
    """The best tiling with terms side by side in this orientation and its estimated cycles, or none."""
    found = narrow_tiling(target, way.dtype, way.m, way.n, way.k, way.a, way.b)
    if found is None:
        return []
    cycles, tiling = found
    return [(cycles + turning_back(way, tiling, turned=turned), tiling)]


# -- packing ----------------------------------------------------------------------------------------------------------


def packs_a(tiling: Tiling, m: int, k: int, a: tuple[int, int]) -> bool:
    """A is read in place, whichever of its axes is contiguous, unless none is or that would be slow."""
    return k > 0 and (1 not in a or _is_aliased(tiling, m, k, a) or _is_far(tiling, m, k, a))


def _is_far(tiling: Tiling, m: int, k: int, a: tuple[int, int]) -> bool:
    """True if each block of B has to bring A from far away by lines that no prefetcher foresees: a line for each k.
    Narrow panels of low tiles read A so often that a shorter one is worth packing, and a long one along k, too."""
    nbytes, panels, low = m * k * tiling.dtype.itemsize, tiling.column_panels, tiling.costs.low_tiles
    if a[1] == 1:
        return low and panels > MANY_PANELS and nbytes > tiling.costs.near_bytes
    if low:
        return panels > 2 * FEW_PANELS and nbytes > tiling.machine.own_cache_bytes
    return panels > FEW_PANELS and nbytes > tiling.costs.near_bytes


def _is_aliased(tiling: Tiling, m: int, k: int, a: tuple[int, int]) -> bool:
    """True if reading A in place loses its lines before all of them have been used.

    Lines a multiple of a page apart fall into one set of the first cache. A tile of rows contiguous along k reads a
    line of each row for a while, which a set has room for unless the tile is high; along m every k of a block is
    another line of the set, and is needed again by the tile below.
    """
    size = tiling.dtype.itemsize
    lines = a[0] if a[1] == 1 else a[1]
    page = tiling.machine.page
    if min(m, k) * size < page // 8 or lines * size % page or tiling.column_panels == 1:
        return False
    return a[1] != 1 or tiling.rows > ALIASED_ROWS


def _packs_b(tiling: Tiling, b: tuple[int, int], k: int) -> bool:
    """B is packed unless its rows are contiguous and reading them strided is cheaper than a copy: by few rows of A."""
    if _must_pack(tiling, b):
        return True
    size = tiling.dtype.itemsize
    in_place = tiling.costs.in_place
    if b[0] * size % in_place.aliasing_bytes == 0 and k > 64:
        return tiling.m > in_place.aliased_rows
    split = b[0] * size % LINE != 0 and k * tiling.n * size > tiling.costs.near_bytes
    rows = in_place.split_rows if split else in_place.most_rows
    return tiling.m > rows and k * tiling.n * size > in_place.any_rows_bytes


def _must_pack(tiling: Tiling, b: tuple[int, int]) -> bool:
    """B cannot be read in place: its rows are not contiguous, or whole vectors would be read past the edge."""
    return b[1] != 1 or (tiling.edge and not (tiling.masked or tiling.exact))


# -- estimates --------------------------------------------------------------------------------------------------------


def _prefers_swap(way: Orientation, target: Target) -> bool:
    """True if Cᵀ is computed in place of C."""
    m, n, a, c = way.m, way.n, way.a, way.c
    if n == 1 and m > 1:  # a column: a row of Cᵀ if A is contiguous along m
        return a[1] != 1 and a[0] == 1 and (c is None or c[0] == 1)
    if m == 1:
        return False
    if way.dtype.kind != "f" or 0 in (m, n, way.k):
        return c is not None and c[1] != 1 and c[0] == 1
    least = 1.0 if c is not None and c[1] != 1 else WORTH_TURNING
    return _cycles(way.swap(), target, turned=True) * least < _cycles(way, target, turned=False)


def _cycles(way: Orientation, target: Target, *, turned: bool) -> float:
    """The estimated cycles of a product in this orientation."""
    return _tiled_cycles(way, _usual_tiling(way, target), turned=turned)


def _tiled_cycles(way: Orientation, tiling: Tiling, *, turned: bool, given_b: bool = False) -> float:
    """The estimated cycles of a product: its tiles, and the copies that it needs. ``given_b``: B is packed already."""
    cycles, size, costs = tiling_cost(tiling, way.k), way.dtype.itemsize, tiling.costs
    if not given_b and _packs_b(tiling, way.b, way.k):
        cycles += way.k * way.n * size * (costs.copied_cycles if way.b[1] == 1 else costs.turned_cycles)
    if packs_a(tiling, way.m, way.k, way.a):
        cycles += way.m * way.k * size * (costs.copied_cycles if way.a[1] == 1 else costs.turned_cycles)
    elif costs.low_tiles and way.a[1] != 1 and _is_scattered(tiling, way):  # low tiles use a part of each line
        cycles += way.m * way.k * size * costs.turned_cycles
    return cycles + turning_back(way, tiling, turned=turned)


def _is_scattered(tiling: Tiling, way: Orientation) -> bool:
    """True if A, contiguous along m, comes from beyond a core's own cache by lines that are far apart."""
    size, machine = way.dtype.itemsize, tiling.machine
    return way.a[1] * size >= machine.far_bytes and way.m * way.k * size > machine.own_cache_bytes


def turning_back(way: Orientation, tiling: Tiling, *, turned: bool) -> float:
    """The estimated cycles for bringing a result into its place. One that is not stored meets an epilogue, which goes
    along the rows that were given."""
    if way.c is None:
        return way.m * way.n * tiling.costs.read_turned_cycles * turned
    return way.m * way.n * tiling.costs.turned_back_cycles * way.dtype.itemsize * (way.c[1] != 1)
