"""Products of few columns, or of few rows and columns over many terms: several terms of each column lie side by side
in a vector.

Eight columns fill half a register of sixteen lanes, and a tile of them does half the work it could. Where A is
contiguous along k, ``terms`` of them at once are broadcast to all columns,

    B, packed    b[k, 0] b[k+1, 0]  b[k, 1] b[k+1, 1]  b[k, 2] b[k+1, 2]  …
    A, a row     a[i, k] a[i, k+1]  a[i, k] a[i, k+1]  a[i, k] a[i, k+1]  …

so that a tile sums even and odd terms apart (``terms`` = 2) and adds both at the end. Where B is contiguous along k as
well, terms may fill whole vectors: a tile of dot products, of which neither operand is packed. Very few columns of
another B are packed one after the other for such tiles. In come a product as it would be computed and the target; out
goes the ``Tiling`` that seems best; ``emit/contraction/interleave.py`` packs B as its tiles read it. Each element is a
sum in an order that depends on the sizes and the vector width alone.
"""

from __future__ import annotations

import numpy as np

from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.tiles import Tiling, make_tiling, most_rows, tile_lanes

MOST_VECTORS = 6  # of a row of a tile
ALIASED_ROWS = 8  # of A that may lie a multiple of a page apart: sets of the first cache have 8 ways at least
MOST_DOTS, HIGHEST_DOTS = 4, 8  # columns and rows of a tile of dot products: each row needs an address of its own
SHORTEST_DOTS = 2  # vectors that a dot product has
# A tile of dot products reads two vectors for three multiply-adds, more than a cache beyond the second one brings. If
# both operands have at least FAR_SIDE lines, and are longer than FAR_CACHES such caches, packing them takes less time.
FAR_SIDE, FAR_CACHES = 64, 2


def narrow_tiling(
    target: Target, dtype: np.dtype, m: int, n: int, k: int, a: tuple[int, int], b: tuple[int, int] | None,
    terms: int | None = None,
) -> tuple[float, Tiling] | None:  # fmt: skip
    """The tiling with terms side by side (``terms`` of them, if given) that seems fastest, after its estimated
    cycles with packing; None where there is none. ``b`` is None if B is given packed."""
    if dtype.kind != "f" or a[1] != 1 or min(m, n) == 0:
        return None
    lanes = tile_lanes(target, dtype)
    few = min(m, n)
    is_far = few >= FAR_SIDE and few * k * dtype.itemsize > FAR_CACHES * target.machine.own_cache_bytes
    if is_far and terms is None and _in_place(b):
        return None
    found = [_best(target, dtype, (m, n, k), a, b, count) for count in _terms(lanes, n, k, b) if terms in (None, count)]
    return min(filter(None, found), key=lambda entry: (entry[0], entry[1].terms, entry[1].rows), default=None)


def _terms(lanes: int, n: int, k: int, b: tuple[int, int] | None) -> list[int]:
    """The numbers of terms that may lie side by side."""
    several = [1 << i for i in range(1, lanes.bit_length())]
    dots = k >= SHORTEST_DOTS * lanes and (n <= MOST_DOTS or _in_place(b))
    return [terms for terms in several if (dots if terms == lanes else n % lanes and 2 * terms <= k)]


def packs(tiling: Tiling, b: tuple[int, int]) -> bool:
    """True if B is packed: it does not lie as dot products read it."""
    return not (tiling.of_dots and _in_place(b))


def _in_place(b: tuple[int, int] | None) -> bool:
    """True if dot products read B where it lies."""
    return b is not None and b[0] == 1


def _best(
    target: Target, dtype: np.dtype, sizes: tuple[int, int, int], a: tuple[int, int], b: tuple[int, int] | None,
    terms: int,
) -> tuple[float, Tiling] | None:  # fmt: skip
    """The one with ``terms`` terms side by side that seems fastest. All columns must fit one panel where B is
    packed."""
    m, n, k = sizes
    lanes = tile_lanes(target, dtype)
    needed = -(-n * terms // lanes)
    found: list[tuple[float, Tiling]] = []
    for vectors in range(1, min(n, MOST_DOTS) + 1) if terms == lanes and _in_place(b) else [needed]:
        if vectors > MOST_VECTORS:
            break
        most = min(most_rows(target, dtype, vectors), HIGHEST_DOTS if terms == lanes else m)
        if a[0] * dtype.itemsize % target.machine.page == 0:
            most = min(most, ALIASED_ROWS)
        for rows in range(1, min(m, most) + 1):
            tiling = make_tiling(target, dtype, m, n, rows, vectors, False, terms)
            packing = packing_cycles(tiling, k, b) if b is not None and packs(tiling, b) else 0
            found.append((tile_cycles(tiling, k) + packing, tiling))
    return min(found, key=lambda entry: (entry[0], entry[1].rows), default=None)


def tile_cycles(tiling: Tiling, k: int) -> float:
    """The estimated cycles of all tiles: multiply-adds, loads and issue slots against their ports, and the latency of
    the chain, for each group of terms; then the sums of groups."""
    groups = -(-k // tiling.terms)
    total = 0.0
    inner, last = tiling.column_kinds()
    load = tiling.costs.loaded_in_place_cycles if tiling.of_dots else tiling.costs.loaded_cycles
    for rows, panels in ((tiling.rows, tiling.tall), (tiling.rows - 1, tiling.row_panels - tiling.tall)):
        for vectors, columns in ((inner[0], tiling.column_panels - 1), (last[0], 1)):
            fmas, loads = rows * vectors, rows + vectors
            each = max(fmas / 2, loads / 2, (fmas + loads + 4) / 6, 5.0)
            total += panels * columns * (groups * (each + load * loads) + 25 + tiling.costs.added_cycles * fmas)
    return total


def packing_cycles(tiling: Tiling, k: int, b: tuple[int, int]) -> float:
    """The estimated cycles for packing B."""
    registers = -(-tiling.n // tiling.lanes) * -(-k // tiling.terms)  # of the packed B
    if b[1] == 1:
        return tiling.costs.packing_call_cycles + registers * 2.0 * tiling.terms
    return tiling.costs.packing_call_cycles + k * tiling.n * (1.5 / tiling.terms if b[0] == 1 else 1.5)


def packed_elements(tiling: Tiling, k: int) -> int:
    """The number of elements of the packed B."""
    return -(-k // tiling.terms) * tiling.terms * tiling.width
