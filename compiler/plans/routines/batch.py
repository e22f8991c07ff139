"""The plan of a batch: pieces run alone or together, chunks that threads share, and scratch memory.

Input: a ``Batch`` of routines and the target. Output: the planned batch. What each type of routines needs is in the
table ``PLANNERS``, and in the modules beside this one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from staticgrad.base.extents import largest, lowest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.planned import PlannedKernel
from staticgrad.compiler.kernels.routines import (
    Batch,
    Cholesky,
    Cumulation,
    Elimination,
    Householder,
    Singular,
    Sort,
    Symmetric,
    TriangularSolve,
)
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.chunks import cut, wanted_chunks
from staticgrad.compiler.plans.routines import cumulation, matrices, sorting

ALIGNMENT = 64  # bytes
FEW = 2  # a part of the pieces that are run together: fewer are run alone, in less memory

Count = Callable[[Any, Target], int]


def _none(routine: Any, target: Target) -> int:
    return 0


@frozen
class RoutinePlanner:
    """The needs of a routine on a target: the bytes of scratch memory for one piece; the number of adjacent pieces that
    are run together, of which chunks are multiples, or 0 if each is run alone; the scratch memory of those."""

    scratch_bytes: Count = _none
    together: Count = _none
    scratch_together: Count = _none


PLANNERS: dict[type, RoutinePlanner] = {
    Cumulation: RoutinePlanner(together=cumulation.run_together),
    Sort: RoutinePlanner(sorting.scratch_bytes, sorting.run_together, sorting.scratch_together),
    Cholesky: RoutinePlanner(),
    Elimination: RoutinePlanner(),
    Householder: RoutinePlanner(matrices.householder_bytes),
    Singular: RoutinePlanner(matrices.singular_bytes),
    Symmetric: RoutinePlanner(matrices.symmetric_bytes),
    TriangularSolve: RoutinePlanner(),
}


@frozen
class BatchPlan:
    """The plan of a batch: ``together`` says how many pieces are run at once, 0 where each is run alone. ``alone``
    says that some may be run alone, also because a call may have few; chunks have ``size`` pieces."""

    together: int
    alone: bool
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
    planner, together = PLANNERS[type(batch.routine)], _together(batch, target)
    may_be_few = FEW * lowest(batch.count) < together
    plan = BatchPlan(together, not together or may_be_few, *_chunks(batch, together, target))
    nbytes = max(
        planner.scratch_together(batch.routine, target) if together else 0,
        planner.scratch_bytes(batch.routine, target) if plan.alone else 0,
    )
    return PlannedKernel(batch, plan, is_shared=plan.chunks != 1, worker_bytes=-(-nbytes // ALIGNMENT) * ALIGNMENT)


def _together(batch: Batch, target: Target) -> int:
    """The number of pieces that are run together; 0 where each is run alone, also where there are few. It may be that
    there are more."""
    unit = PLANNERS[type(batch.routine)].together(batch.routine, target)
    return unit if FEW * largest(batch.count) >= unit else 0


def _chunks(batch: Batch, together: int, target: Target) -> tuple[int, int]:
    """Pieces a chunk, and chunks."""
    unit, most = max(1, together), largest(batch)
    units, _ = cut(-(-most.count // unit), wanted_chunks(most.flops / target.machine.routine_flops, target))
    return units * unit, -(-batch.count // (units * unit))
