"""The memory of tapes: blocks in which residuals are kept, and what else the programs of one tape share.

Input: the types of the residuals that tapes of one kind keep. Output: blocks of memory. A tape takes one and releases
it when nothing can read what lies there any more; it goes to the next tape of that kind, since the first touch of fresh
memory is a page fault, and looking at it as arrays too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence

import numpy as np

from staticgrad.base.addresses import ALIGNMENT, aligned_empty
from staticgrad.base.extents import highest
from staticgrad.base.types import TensorType, sizes
from staticgrad.compiler.program.program import POISON
from staticgrad.graph.optable import Array

MOST_AXES = 64  # of an array of NumPy
IDLE_BLOCKS = 2  # that wait for the next tape of the same kind


class TapeBlock:
    """The memory of one tape, and the residuals in it as arrays. The backward that they are donated to works there."""

    __slots__ = ("__weakref__", "memory", "types", "values")

    def __init__(self, nbytes: int) -> None:
        self.memory = aligned_empty((nbytes,), np.dtype(np.uint8))
        self.types: Sequence[TensorType] = ()
        self.values: list[Array] = []

    def look(self, types: Sequence[TensorType], offsets: Sequence[int]) -> None:
        """Look at the memory as residuals of these types. Of loops within each other a residual has an axis for each,
        which may be more than NumPy's arrays have: it is looked at as one row."""
        self.types = types
        self.values = [
            self.memory[offset : offset + type_.nbytes]
            .view(type_.dtype)
            .reshape(sizes(type_.shape) if type_.ndim <= MOST_AXES else (-1,))
            for type_, offset in zip(types, offsets, strict=True)
        ]

    def poison(self, keep: Collection[int] = ()) -> None:
        """Fill all of the memory but the values numbered ``keep`` with NaN patterns."""
        kept = [(number, self.values[number].copy()) for number in keep]
        self.memory.fill(POISON)
        for number, value in kept:
            self.values[number][...] = value


_NO_BLOCK = TapeBlock(0)


class TapeContext:
    """The data that the programs of one tape share: the block, and the number of the run that random draws belong to.
    Whoever runs a program leaves in it what else shall be called."""

    __slots__ = ("_blocks", "block", "first", "late", "run_number", "then")

    def __init__(self, blocks: Blocks, block: TapeBlock) -> None:
        self._blocks = [blocks]  # where the block goes; empty when it has been released
        self.block = block
        self.run_number = -1  # that the forward's draws belong to; draws that are repeated take it again
        self.late: BaseException | None = None  # raised while a program ran to its end
        # Functions of C: called as a program begins, and in one step with what it changes.
        self.first: Callable[[], object] | None = None
        self.then: Callable[[], object] | None = None

    def raise_late(self) -> None:
        """Raise what was raised while a program ran, now that all it did is noted."""
        late, self.late = self.late, None
        if late is not None:
            raise late

    def release(self) -> None:
        """Let the block go to the next tape: nothing can read what lies there, and no program runs in it. May be called
        again, also by several threads: the block goes once."""
        try:
            blocks = self._blocks.pop()  # one step
        except IndexError:
            return
        blocks.give(self.block)
        self.block = _NO_BLOCK

    # The safety net for a tape that was dropped while its residuals could still be read; none is that runs a program.
    __del__ = release


class Blocks:
    """The blocks of tapes that ended, for tapes that begin. May be used from several threads, and while Python collects
    garbage: there is no lock, taking and giving are each one step. Where types have open sizes, there is room for the
    greatest, and all tapes have their values at the same offsets."""

    def __init__(self, types: Sequence[TensorType]) -> None:
        # Bytes that each value takes.
        self.rooms = [-(-highest(type_.nbytes) // ALIGNMENT) * ALIGNMENT for type_ in types]
        self.offsets = [sum(self.rooms[:number]) for number in range(len(types))]
        self.nbytes = sum(self.rooms)  # of a new block; grows when a backward turns out to need more
        self.idle: deque[TapeBlock] = deque()

    def take(self, types: Sequence[TensorType]) -> TapeContext:
        """The context of a new tape, whose values have these types."""
        try:
            block = self.idle.pop()
        except IndexError:
            block = TapeBlock(self.nbytes)
        if block.memory.nbytes < self.nbytes:
            block = TapeBlock(self.nbytes)
        if block.types is not types:
            block.look(types, self.offsets)
        return TapeContext(self, block)

    def give(self, block: TapeBlock) -> None:
        if len(self.idle) < IDLE_BLOCKS and block.memory.nbytes >= self.nbytes:
            self.idle.append(block)

    def grow(self, context: TapeContext, nbytes: int) -> None:
        """Give ``context`` a block of at least ``nbytes`` with the same content."""
        self.nbytes = max(self.nbytes, nbytes)
        block = TapeBlock(self.nbytes)
        block.look(context.block.types, self.offsets)
        block.memory[: context.block.memory.nbytes] = context.block.memory
        context.block = block
