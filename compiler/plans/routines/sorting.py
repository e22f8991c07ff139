"""The plan of a sort: rows alone, by rank, by partitions or by digits, or many side by side; and scratch memory.

Input: a ``Sort`` and the target. Output: ``RowSort`` of a row that is sorted alone, ``NetworkScratch`` of rows side by
side. Rows of an open length are sorted as the longest of them are, whose scratch memory they have.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from staticgrad.base.extents import highest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.routines import Sort
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.routines.networks import NetworkScratch, network_scratch
from staticgrad.compiler.plans.routines.partitions import STACK_BYTES

RANKED = 160  # elements up to which rows are sorted by rank
BESIDE = 512  # elements up to which rows are sorted side by side: these fit the first cache
DIGIT = 8  # bits
BUCKETS = 1 << DIGIT
INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)


@frozen
class RowSort:
    """The way in which a row is sorted alone.

    Attributes:
        by_rank: the row is short, and each key's place is counted.
        words: the dtype of the words that are sorted by partitions: keys, or with an index each; None where the row is
            sorted in another way.
        words_bytes: of all words, and of a vector more.
        key_bits: of a key.
        keys, places, counts: offsets in scratch memory, in bytes: keys and places twice, then counts, or keys and
            ranks.
        keys_bytes: the scratch memory of a row that is sorted by rank or by digits.
    """

    by_rank: bool
    words: np.dtype | None
    words_bytes: int
    key_bits: int
    keys: tuple[int, int]
    places: tuple[int, int]
    counts: int
    keys_bytes: int

    @property
    def by_digits(self) -> bool:
        return not self.by_rank and self.words is None

    @property
    def nbytes(self) -> int:
        """The scratch memory of a row: what was begun by partitions may be ended by digits."""
        return self.keys_bytes if self.words is None else max(self.keys_bytes, 2 * self.words_bytes + STACK_BYTES)

    @property
    def without_partitions(self) -> RowSort:
        """The same by digits, where it is by partitions."""
        return replace(self, words=None, words_bytes=0)


def sort_alone(routine: Sort, target: Target) -> RowSort:
    """The way in which each row is sorted alone."""
    size, by_rank, words = routine.dtype.itemsize, highest(routine.length) <= RANKED, _words(routine, target)
    words_bytes = 0
    if words is not None:
        lanes = target.lanes(words)
        words_bytes = (highest(routine.length) + 2 * lanes) // lanes * target.isa.vector_bytes
    bits = max(32, 8 * size) if by_rank else 8 * size
    length = -(-highest(routine.length) // 64) * 64
    keys = length * bits // 8
    if by_rank:
        return RowSort(by_rank, words, words_bytes, bits, (0, 0), (keys, keys), 0, keys + 8 * length)
    places = 4 * length if routine.indices else 0
    counts = 2 * (keys + places)
    nbytes = counts + 4 * BUCKETS * max(1, bits // DIGIT)
    return RowSort(by_rank, words, words_bytes, bits, (0, keys), (2 * keys, 2 * keys + places), counts, nbytes)


def _words(routine: Sort, target: Target) -> np.dtype | None:
    size = routine.dtype.itemsize
    if highest(routine.length) <= RANKED or not target.isa.partitions:
        return None
    if size < 4 or (routine.indices and (size > 4 or not target.isa.compresses)):
        return None
    return INT64 if routine.indices or size == 8 else INT32


def side_by_side(routine: Sort, target: Target) -> NetworkScratch | None:
    """The scratch memory of rows that are sorted side by side; None for rows that are sorted alone."""
    if highest(routine.length) > BESIDE and _words(routine, target) is not None:
        return None
    return network_scratch(routine, target)


def run_together(routine: Sort, target: Target) -> int:
    """The number of rows that are sorted side by side; 0 where each is sorted alone."""
    found = side_by_side(routine, target)
    return 0 if found is None else found.lanes


def scratch_bytes(routine: Sort, target: Target) -> int:
    """The bytes of scratch memory for a row that is sorted alone."""
    return sort_alone(routine, target).nbytes


def scratch_together(routine: Sort, target: Target) -> int:
    """The bytes of scratch memory for rows side by side and for the remainder, which is sorted without partitions."""
    found = side_by_side(routine, target)
    return max(sort_alone(routine, target).keys_bytes, 0 if found is None else found.nbytes)
