"""What the programs of one tape share: memory, and the number of the run that its random draws belong to.

Comes in: how many bytes the kept values take. Goes out: blocks of memory, given back when their tape ends and handed to
the next tape of the same programs, since touching fresh memory is slow.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np

from staticgrad.optable import Array
from staticgrad.runtime.state import aligned_empty

IDLE_BLOCKS = 2  # that wait for the next tape of the same programs


@dataclass(slots=True, eq=False)
class Kept:
    """One tape's share. A consuming backward works in ``block``, among the values that it uses up."""

    block: Array
    run_number: int = -1  # that the forward's draws belong to; draws that are repeated take it again


@dataclass(slots=True, eq=False)
class Blocks:
    """The blocks of tapes that ended, for tapes that begin. May be used from several threads."""

    nbytes: int  # of a new block; grows when a backward turns out to need more
    idle: list[Array] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> Kept:
        with self.lock:
            while self.idle:
                block = self.idle.pop()
                if block.nbytes >= self.nbytes:
                    return Kept(block)
        return Kept(aligned_empty((self.nbytes,), np.dtype(np.uint8)))

    def give(self, kept: Kept) -> None:
        """Take a block back; ``kept`` has none after that."""
        with self.lock:
            block, kept.block = kept.block, aligned_empty((0,), np.dtype(np.uint8))
            if block.nbytes and block.nbytes >= self.nbytes and len(self.idle) < IDLE_BLOCKS:
                self.idle.append(block)

    def grow(self, kept: Kept, nbytes: int) -> None:
        """Give ``kept`` a block of at least ``nbytes`` with the same content."""
        with self.lock:
            self.nbytes = max(self.nbytes, nbytes)
        block = aligned_empty((self.nbytes,), np.dtype(np.uint8))
        block[: kept.block.nbytes] = kept.block
        kept.block = block
