"""Panels of a matrix whose rows are contiguous, packed row by row rather than panel by panel.

A panel alone has a line or a few of each row. Where rows lie a page or more apart no prefetcher foresees the next one,
and each takes an address translation of its own: bringing 4 MB so from the third cache takes four times as long as a
copy. Along whole rows, a few at once, the processor prefetches, and lines of the panels are still written whole.
"""

from __future__ import annotations

import numpy as np

from staticgrad.base.extents import is_open, is_same
from staticgrad.compiler.emit.llvm import Function, Index, Value, integer, memory_type, vector
from staticgrad.compiler.emit.microkernel import Matrix, pack_panel
from staticgrad.compiler.plans.tiles import Tiling, tile_lanes

ROWS_AT_ONCE = 4  # streams, which any prefetcher follows


def pack_rows(
    f: Function, tiling: Tiling, to: Value, pitch: Index, source: Matrix, depth: Index, panels: tuple[Index, Index]
) -> None:  # fmt: skip
    """Pack some column panels of a ``depth`` × n matrix of contiguous rows, each as ``[depth][width]``, ``pitch``
    elements apart from ``to`` on. What a last panel lacks is zero (``pack_panel``)."""
    dtype, (first, end), last = tiling.dtype, panels, tiling.column_panels - 1
    element, is_whole = memory_type(dtype), is_same((tiling.n - 1) % tiling.width + 1, tiling.width)
    count = f.sub(end if is_whole else f.min(end, last), first)
    if count != 0:
        base = f.offset(source.base, f.mul(first, tiling.width), element)
        vectors = tiling.width // tile_lanes(f.target, dtype)
        f.call_leaf(f"pack_rows{vectors}.{dtype.name}", _write_rows, (dtype, vectors), to, pitch, base, source.row,
                    depth, count)  # fmt: skip

    def pack_last() -> None:
        at = f.offset(to, f.mul(f.sub(last, first), pitch), element)
        pack_panel(f, tiling, at, source, depth, last, 0)

    if is_whole:
        return
    if isinstance(end, int) and not is_open(end) and not is_open(last):
        if end > last:
            pack_last()
        return
    with f.when(f.compare("icmp sgt", f.index(end), f.index(last))):
        pack_last()


def _write_rows(f: Function, dtype: np.dtype, vectors: int) -> None:
    """Pack whole panels: ``to[p·pitch + k·width + c] = source[k·row + p·width + c]``."""
    to, pitch, source, row, depth, count = f.params
    element, lanes = memory_type(dtype), tile_lanes(f.target, dtype)
    width, several = vectors * lanes, 1 if f.target.machine.compact else ROWS_AT_ONCE
    whole = f.binary("and", depth, integer(-several)) if several > 1 else depth

    def move(start: Index, stop: Value, at_once: int, places: list[Value]) -> list[Value]:
        with f.loop(start, stop, at_once, carry=places) as rows:
            to_now, source_now = rows.carried
            lines = [f.offset(source_now, f.mul(i, row), element) for i in range(at_once)]
            with f.loop(0, count, carry=[to_now, *lines]) as panel:
                target, *now = panel.carried
                for i, line in enumerate(now):
                    for j in range(vectors):
                        value = f.load(vector(element, lanes), f.offset(line, j * lanes, element))
                        f.store(value, f.offset(target, i * width + j * lanes, element))
                panel.next(f.offset(target, pitch, element), *(f.offset(line, width, element) for line in now))
            rows.next(f.offset(to_now, at_once * width, element), f.offset(source_now, f.mul(at_once, row), element))
        return rows.results

    places = move(0, whole, several, [to, source])
    if several > 1:
        move(whole, depth, 1, places)
