"""Kernels whose work several threads share: how it is cut, and how the pieces are run.

A kernel that takes long is cut in *chunks* when it is compiled, by its sizes and the target alone: how many threads
run them, and which one runs which, changes no bit of a result.

    part   void @part(ptr table, i64 chunk, i64 worker)     does one chunk; workers count from 0, the caller
    table  the address of the open sizes of a program that has some, the kernel's pointers, then words of its own
    pool   null, or words of which the first is the address of void @run(ptr pool, ptr part, ptr table, i64 chunks)

``run`` calls the part once for each chunk, in any order, from several threads, and returns when all have been done.
Without a pool the chunks are done one after the other. Workers that run at once have different numbers, below the
number of threads that the program was compiled for: that is how often scratch memory of a chunk is planned.
"""

from __future__ import annotations

from collections.abc import Sequence

from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.llvm import INDEX, Function, Index, IRModule, Value, is_number

NO_POOL = Value("null", "ptr")


@frozen
class ChunkTable:
    """The table in the function that fills it or in a part that reads it: ``pointers``, then ``words`` words."""

    f: Function
    address: Value
    pointers: tuple[Value, ...]

    @staticmethod
    def fill(f: Function, pointers: Sequence[Value], words: int = 0) -> ChunkTable:
        """A table on the stack of ``f``, which has not opened a block yet."""
        first = int(f.module.has_sizes)
        address = f.emit("ptr", f"alloca ptr, i64 {first + len(pointers) + words}, align 8")
        if first:
            f.store(f.opening.sizes(), address)
        for number, pointer in enumerate(pointers, first):
            f.store(pointer, f.offset(address, number, "ptr"))
        return ChunkTable(f, address, tuple(pointers))

    @property
    def _first_word(self) -> int:
        return self.f.module.has_sizes + len(self.pointers)

    def set_word(self, number: int, value: Index) -> None:
        place = self.f.offset(self.address, self._first_word + number, "ptr")
        self.f.store(self.f.index(value), place)

    def word(self, number: int) -> Value:
        return self.f.load(self.f.word, self.f.offset(self.address, self._first_word + number, "ptr"))


@frozen
class ChunkFunction:
    """The function of a chunk under construction."""

    f: Function
    table: ChunkTable
    chunk: Value
    worker: Value


def open_part(module: IRModule, name: str, pointers: int) -> ChunkFunction:
    """Begin the function that does one chunk; ``Function.finish`` ends it."""
    f = module.function(module.unique(name), ["ptr", INDEX, INDEX])
    address, chunk, worker = f.params
    first = int(module.has_sizes)
    if first:
        f.opening.sizes_at(address, 0)
    loaded = tuple(f.load("ptr", f.offset(address, first + number, "ptr")) for number in range(pointers))
    return ChunkFunction(f, ChunkTable(f, address, loaded), chunk, worker)


def chunk_range(f: Function, chunk: Value, size: int, units: int) -> tuple[Index, Index]:
    """The units ``[low, high)`` of a chunk of ``size`` of them."""
    low = f.mul(chunk, size)
    return low, f.min(f.add(low, size), units)


def quotient(f: Function, number: Index, by: Index) -> Index:
    """``number // by`` of a number that is not negative."""
    if isinstance(number, int) and isinstance(by, int):
        return number // by
    return number if is_number(by, 1) else f.binary("udiv", f.index(number), f.index(by))


def divide(f: Function, number: Index, by: Index) -> tuple[Index, Index]:
    """Quotient and remainder."""
    whole = quotient(f, number, by)
    if isinstance(number, int) and isinstance(by, int):
        return whole, number % by
    return whole, 0 if is_number(by, 1) else f.binary("urem", f.index(number), f.index(by))


def unravel(f: Function, point: Index, sizes: Sequence[int]) -> list[Index]:
    """The indices of point number ``point`` of a grid, the last one running fastest."""
    indices: list[Index] = []
    for size in reversed(sizes[1:]):
        point, index = divide(f, point, size)
        indices.append(index)
    return [*([point] if sizes else []), *indices[::-1]]


def run_chunks(f: Function, pool: Value, part: str, table: ChunkTable, chunks: Index) -> None:
    """Do all chunks of ``part``."""
    together = f.module.leaf("parallel", ("ptr", "ptr", "ptr", INDEX), _write_parallel)
    f.call(together, "void", pool, f.symbol(part), table.address, chunks)


def _write_parallel(f: Function) -> None:
    """Have all chunks done by the pool, or one after the other."""
    pool, part, table, chunks = f.params
    alone, together, done = f.label("alone"), f.label("together"), f.label("done")
    f.branch_if(f.compare("icmp eq", pool, NO_POOL), alone, together)
    f.block(together)
    run = f.load("ptr", pool)
    f.call(run, "void", pool, part, table, chunks)
    f.branch(done)
    f.block(alone)
    with f.loop(0, chunks) as loop:
        f.call(part, "void", table, loop.index, 0)
    f.branch(done)
    f.block(done)
