"""Pixels packed for the tiles of a weight gradient: ``[row panel][pixel][rows of the panel]``.

Input: some pixels of a channels-last image, read in place. Output: for each panel of channels, what a tile reads
as one contiguous run, in the order in which it reads it. Read in place, each pixel brings a line of the cache of which
a tile uses a part, in steps that no hardware prefetcher foresees and that share few sets of the cache (conflict
misses); packing reads whole pixels, one after the other. See Goto and van de Geijn, "Anatomy of high-performance matrix
multiplication", ACM TOMS 34 (2008). Which kernels pay for the copy is for ``weights`` to know.
"""

from __future__ import annotations

from staticgrad.compiler.emit.llvm import Function, Index, IRModule, Value, integer, memory_type, vector
from staticgrad.compiler.emit.microkernel import Tiling

TOGETHER = 4  # pixels whose channels of a panel are copied one after the other: whole lines are written


def pack_pixels(
    f: Function, tiling: Tiling, to: Value, panel: Index, source: Value, pixel: Index, pixels: Index
) -> None:
    """``to[p·panel + q·rows + r] = source[q·pixel + start(p) + r]`` for all row panels p of a tiling and the first
    ``pixels`` q. Panels that are one row shorter leave the last element of each pixel as it was."""
    arguments = (to, panel, source, pixel, pixels)
    name = _packer(f.module, tiling)
    f.call(name, "void", *(a if isinstance(a, Value) else integer(a) for a in arguments))


def _packer(module: IRModule, tiling: Tiling) -> str:
    """``(to, panel, source, pixel, pixels)``"""
    key = ("pack pixels", tiling.dtype, tiling.rows, tiling.tall, tiling.row_panels)
    name = module.shared(key)
    if name is not None:
        return name
    f = module.function(module.unique(f"pack_pixels.{tiling.dtype.name}"), ("ptr", "i64", "ptr", "i64", "i64"))
    to, panel, source, pixel, pixels = f.params
    element = memory_type(tiling.dtype)
    whole = f.binary("and", pixels, integer(-TOGETHER))
    for start, stop, step in ((integer(0), whole, TOGETHER), (whole, pixels, 1)):
        with f.loop(start, stop, step) as loop:
            read = f.offset(source, f.mul(loop.index, pixel), element)
            write = f.offset(to, f.mul(loop.index, tiling.rows), element)
            _pack_together(f, tiling, write, panel, read, pixel, step)
    return module.share(key, f.finish())


def _pack_together(
    f: Function, tiling: Tiling, to: Value, panel: Value, source: Value, pixel: Value, pixels: int
) -> None:
    """All panels of some pixels."""
    element = memory_type(tiling.dtype)
    short = tiling.row_panels - tiling.tall
    for height, panels in ((tiling.rows, tiling.tall), (tiling.rows - 1, short)):
        if panels == 0:
            continue
        with f.loop(0, panels, carry=[to, source]) as loop:
            write, read = loop.carried
            for number in range(pixels):
                value = f.load(vector(element, height), f.offset(read, f.mul(number, pixel), element))
                f.store(value, f.offset(write, number * tiling.rows, element))
            loop.next(f.offset(write, panel, element), f.offset(read, height, element))
        to, source = loop.results
