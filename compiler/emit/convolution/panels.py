"""Pixels packed for the tiles of a weight gradient: ``[row panel][pixel][rows of the panel]``.

Input: some pixels of a channels-last image, read in place. Output: for each panel of channels, what a tile reads
as one contiguous run, in the order in which it reads it. Read in place, each pixel brings a line of the cache of which
a tile uses a part, in steps that no hardware prefetcher foresees and that share few sets of the cache (conflict
misses); packing reads whole pixels, one after the other. See Goto and van de Geijn, "Anatomy of high-performance matrix
multiplication", ACM TOMS 34 (2008). Which kernels pay for the copy is for ``weights`` to know.
"""

from __future__ import annotations

import numpy as np

from staticgrad.compiler.emit.llvm import Function, Index, Value, integer, memory_type, vector
from staticgrad.compiler.plans.tiles import Tiling

TOGETHER = 4  # pixels whose channels of a panel are copied one after the other: whole lines are written


def pack_pixels(
    f: Function, tiling: Tiling, to: Value, panel: Index, source: Value, pixel: Index, pixels: Index
) -> None:
    """``to[p·panel + q·rows + r] = source[q·pixel + start(p) + r]`` for all row panels p of a tiling and the first
    ``pixels`` q. Panels that are one row shorter leave the last element of each pixel as it was."""
    how = (tiling.dtype, tiling.rows, tiling.tall, tiling.row_panels)
    f.call_leaf(f"pack_pixels.{tiling.dtype.name}", _write_packer, how, to, panel, source, pixel, pixels)


def _write_packer(f: Function, dtype: np.dtype, rows: int, tall: int, row_panels: int) -> None:
    """Pack all panels of some pixels, then of the next ones."""
    to, panel, source, pixel, pixels = f.params
    element = memory_type(dtype)
    whole = f.binary("and", pixels, integer(-TOGETHER))
    kinds = [kind for kind in ((rows, tall), (rows - 1, row_panels - tall)) if kind[1]]
    for start, stop, step in ((integer(0), whole, TOGETHER), (whole, pixels, 1)):
        with f.loop(start, stop, step) as loop:
            read = f.offset(source, f.mul(loop.index, pixel), element)
            write = f.offset(to, f.mul(loop.index, rows), element)
            for height, panels in kinds:
                with f.loop(0, panels, carry=[write, read]) as along:
                    write, read = along.carried
                    for number in range(step):
                        value = f.load(vector(element, height), f.offset(read, f.mul(number, pixel), element))
                        f.store(value, f.offset(write, number * rows, element))
                    along.next(f.offset(write, panel, element), f.offset(read, height, element))
                write, read = along.results
