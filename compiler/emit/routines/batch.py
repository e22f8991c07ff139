"""A batch: a routine on each of many pieces that lie one after the other.

Input: a ``Batch`` of routines, whose pieces lie in row-major memory. Output: a function of the kernel's arguments,
scratch memory and, if the batch takes long, the pool. Each routine is a function ``void(ptr, …, ptr scratch)`` of one
piece; here it is called for all of them, and a long batch is cut in chunks between pieces. One that runs several pieces
together is a function of all pieces, ``void(ptr, …, ptr scratch, i64 count)``. Which routine is written how is in the
modules beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from staticgrad.base.extents import largest, lowest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.llvm import INDEX, Function, Index, IRModule, Value
from staticgrad.compiler.emit.parallel import ChunkTable, chunk_range, open_part, run_chunks
from staticgrad.compiler.emit.routines import cumulation, elimination, orthogonal, sorting, spectral, triangular
from staticgrad.compiler.kernels.planned import PlannedKernel
from staticgrad.compiler.kernels.routines import (
    Batch,
    Cholesky,
    Cumulation,
    Elimination,
    Householder,
    Routine,
    Singular,
    Sort,
    Symmetric,
    TriangularSolve,
)
from staticgrad.compiler.machine.modes import took
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.chunks import cut, wanted_chunks

ALIGNMENT = 64
FEW = 2  # a part of the pieces that are run together: fewer are run alone, in less memory


@frozen
class RoutineWriter:
    """The way in which a routine is written: its body over the pointers of one piece, and the scratch memory of one
    piece. Where ``together`` is a number it is the body of ``write_together`` over pieces that lie one after the other,
    best as many as a multiple of that, and ``scratch_together`` its scratch memory."""

    write: Callable[[Function, Any, Sequence[Value]], None]
    scratch_bytes: Callable[[Any, Target], int] = lambda routine, target: 0
    together: Callable[[Any, Target], int] = lambda routine, target: 0
    write_together: Callable[[Function, Any, Sequence[Value], Value], None] | None = None
    scratch_together: Callable[[Any, Target], int] = lambda routine, target: 0


WRITERS: dict[type, RoutineWriter] = {
    Cumulation: RoutineWriter(
        cumulation.write, together=cumulation.run_together, write_together=cumulation.write_together
    ),
    Sort: RoutineWriter(
        sorting.write, sorting.scratch_bytes, sorting.run_together, sorting.write_together, sorting.scratch_together
    ),
    Cholesky: RoutineWriter(triangular.write_cholesky),
    Elimination: RoutineWriter(elimination.write),
    Householder: RoutineWriter(orthogonal.write, orthogonal.scratch_bytes),
    Singular: RoutineWriter(spectral.write_singular, spectral.singular_scratch_bytes),
    Symmetric: RoutineWriter(spectral.write_symmetric, spectral.symmetric_scratch_bytes),
    TriangularSolve: RoutineWriter(triangular.write_solve),
}


def _together(batch: Batch, target: Target) -> int:
    """The number of pieces that are run together; 0 where each is run alone, also where there are few. It may be that
    there are more."""
    unit = WRITERS[type(batch.routine)].together(batch.routine, target)
    return unit if FEW * largest(batch.count) >= unit else 0


def _may_be_few(batch: Batch, together: int) -> bool:
    """True if there may be so few pieces in a call that each of them is run alone though many are run together."""
    return FEW * lowest(batch.count) < together


def _chunks(batch: Batch, together: int, target: Target) -> tuple[int, int]:
    """Pieces a chunk, and chunks."""
    unit, most = max(1, together), largest(batch)
    units, _ = cut(-(-most.count // unit), wanted_chunks(most.flops / target.machine.routine_flops, target))
    return units * unit, -(-batch.count // (units * unit))


@frozen
class BatchPlan:
    """The plan of a batch: ``together`` says how many pieces are run at once, 0 where each is run alone; chunks have
    ``size`` pieces."""

    together: int
    size: int
    chunks: int

    @property
    def text(self) -> str:
        alone = "each piece alone" if not self.together else f"{self.together} pieces at once"
        return f"{alone}; {self.chunks} chunks of {self.size}" if self.chunks != 1 else alone


PlannedBatch = PlannedKernel[Batch, BatchPlan]


def planned(batch: Batch, target: Target) -> PlannedBatch:
    """The batch with its plan."""
    if batch.is_empty:
        return PlannedKernel(batch, None)
    writer, together = WRITERS[type(batch.routine)], _together(batch, target)
    nbytes = (writer.scratch_together if together else writer.scratch_bytes)(batch.routine, target)
    if _may_be_few(batch, together):
        nbytes = max(nbytes, writer.scratch_bytes(batch.routine, target))
    plan = BatchPlan(together, *_chunks(batch, together, target))
    return PlannedKernel(batch, plan, is_shared=plan.chunks != 1, worker_bytes=-(-nbytes // ALIGNMENT) * ALIGNMENT)


def emit_batch(module: IRModule, planned: PlannedBatch, name: str) -> None:
    """Write the kernel ``void @name(ptr arguments…, ptr scratch[, ptr pool])``."""
    batch, plan = planned.kernel, planned.plan
    arguments = len(batch.routine.blocks)
    pieces = ("", "") if plan is None else _pieces(module, batch, plan, name)
    f = module.function(name, ["ptr"] * (arguments + 1 + planned.is_shared))
    if plan is not None:
        took("routine: shared", planned.is_shared)
        took("routine: alone", not planned.is_shared)
        took("routine: pieces together", plan.together > 0)
        if planned.is_shared:
            _run_shared(f, batch, plan, planned.worker_bytes, pieces)
        else:
            _run_range(f, batch, plan, pieces, f.params[:arguments], f.params[arguments], 0, batch.count)
    f.finish()


def _pieces(module: IRModule, batch: Batch, plan: BatchPlan, name: str) -> tuple[str, str]:
    """The function of one piece and that of all, as far as they are called."""
    alone = not plan.together or _may_be_few(batch, plan.together)
    return (
        _piece(module, batch.routine, name, together=False) if alone else "",
        _piece(module, batch.routine, name, together=True) if plan.together else "",
    )


def _piece(module: IRModule, routine: Routine, name: str, *, together: bool) -> str:
    """The function of one piece or of all; shared by batches of any number of them."""
    writer, pointers = WRITERS[type(routine)], ["ptr"] * (len(routine.blocks) + 1)
    key = (routine, together)
    known = module.shared(key)
    if known is not None:
        return known
    if together:
        assert writer.write_together is not None
        f = module.function(module.unique(f"{name}.pieces"), [*pointers, INDEX])
        writer.write_together(f, routine, f.params[:-1], f.params[-1])
    else:
        f = module.function(module.unique(f"{name}.piece"), pointers)
        writer.write(f, routine, f.params)
    return module.share(key, f.finish())


def _run_range(
    f: Function, batch: Batch, plan: BatchPlan, pieces: tuple[str, str], pointers: Sequence[Value], scratch: Value,
    low: Index, high: Index,
) -> None:  # fmt: skip
    def places(index: Index) -> list[Value]:
        return [
            f.offset(pointer, f.mul(index, block.elements * block.dtype.itemsize), "i8")
            for pointer, block in zip(pointers, batch.routine.blocks, strict=True)
        ]

    def together() -> list[Value]:
        f.call(pieces[1], "void", *places(low), scratch, f.index(f.sub(high, low)))
        return []

    def alone() -> list[Value]:
        with f.loop(f.index(low), f.index(high)) as loop:
            f.call(pieces[0], "void", *places(loop.index), scratch)
        return []

    if not plan.together:
        alone()
    elif not pieces[0]:
        together()
    else:
        count = f.index(f.mul(f.sub(high, low), FEW))
        f.choose(f.compare("icmp slt", count, f.index(plan.together)), alone, together)


def _run_shared(f: Function, batch: Batch, plan: BatchPlan, own_bytes: int, pieces: tuple[str, str]) -> None:
    *pointers, pool = f.params
    table = ChunkTable.fill(f, pointers)
    part = open_part(f.module, f"{f.name}.pieces", len(pointers))
    low, high = chunk_range(part.f, part.chunk, plan.size, batch.count)
    *places, scratch = part.table.pointers
    own = part.f.offset(scratch, part.f.mul(part.worker, own_bytes), "i8")
    _run_range(part.f, batch, plan, pieces, places, own, low, high)
    run_chunks(f, pool, part.f.finish(), table, plan.chunks)
