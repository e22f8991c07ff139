"""A batch: a routine on each of many pieces that lie one after the other.

Input: a ``Batch`` of routines, whose pieces lie in row-major memory. Output: a function of the kernel's arguments,
scratch memory and, if the batch takes long, the pool. Each routine is a function ``void(ptr, …, ptr scratch)`` of one
piece; here it is called for all of them, and a long batch is cut in chunks between pieces. One that runs several pieces
together is a function of all pieces, ``void(ptr, …, ptr scratch, i64 count)``. Which routine is written how is in the
modules beside this one, how a batch is run in ``plans.routines``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.llvm import INDEX, Function, Index, IRModule, Value
from staticgrad.compiler.emit.parallel import ChunkTable, chunk_range, open_part, run_chunks
from staticgrad.compiler.emit.routines import cumulation, elimination, orthogonal, sorting, spectral, triangular
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
from staticgrad.compiler.plans.routines.batch import FEW, BatchPlan, PlannedBatch


@frozen
class RoutineWriter:
    """The way in which a routine is written: its body over the pointers of one piece and, if some are run together, the
    body over pieces that lie one after the other."""

    write: Callable[[Function, Any, Sequence[Value]], None]
    write_together: Callable[[Function, Any, Sequence[Value], Value], None] | None = None


WRITERS: dict[type, RoutineWriter] = {
    Cumulation: RoutineWriter(cumulation.write, cumulation.write_together),
    Sort: RoutineWriter(sorting.write, sorting.write_together),
    Cholesky: RoutineWriter(triangular.write_cholesky),
    Elimination: RoutineWriter(elimination.write),
    Householder: RoutineWriter(orthogonal.write),
    Singular: RoutineWriter(spectral.write_singular),
    Symmetric: RoutineWriter(spectral.write_symmetric),
    TriangularSolve: RoutineWriter(triangular.write_solve),
}


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
    return (
        _piece(module, batch.routine, name, together=False) if plan.alone else "",
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
    elif not plan.alone:
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
