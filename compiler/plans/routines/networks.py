"""Rows that a network sorts side by side, each in a lane of its own: which rows, and their scratch memory."""

from __future__ import annotations

import itertools

from staticgrad.base.extents import highest, is_open
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.routines import Sort
from staticgrad.compiler.machine.target import Target

LONGEST = 128  # elements for each row that is sorted side by side: longer rows are sorted by digits in less time


@frozen
class NetworkScratch:
    """The number of rows that are sorted at once, and the offsets in scratch memory, in bytes, of keys, indices,
    transposed values, and the rows of a remainder."""

    lanes: int
    key_bits: int
    paired: bool
    keys: int
    indices: int
    turned: int
    room: tuple[int, ...]
    nbytes: int


def network_scratch(routine: Sort, target: Target) -> NetworkScratch | None:
    """The scratch memory of rows that are sorted side by side, with room for the longest ones; None for others."""
    size, length = routine.dtype.itemsize, highest(routine.length)
    bits = 64 if routine.indices else 8 * size
    lanes = target.isa.vector_bytes * 8 // bits
    if size < 4 or lanes < 2 or not 2 <= length <= LONGEST * lanes:
        return None
    if length < lanes and not is_open(routine.length) and not target.isa.predicated:
        return None
    paired = routine.indices and size == 8
    area = lanes * length * 8
    sizes = [area, area * paired, area, *(area for _ in routine.blocks)]
    keys, indices, turned, *room, nbytes = itertools.accumulate(sizes, initial=0)
    return NetworkScratch(lanes, bits, paired, keys, indices, turned, tuple(room), nbytes)
