"""Planning of steps: how each kernel is run, and the scratch memory that it has in addition to its operands."""

from __future__ import annotations

from collections.abc import Sequence

from staticgrad.base.phases import phase
from staticgrad.compiler.plans.planner import KernelPlanner
from staticgrad.compiler.program.memories import SCRATCH, Temp
from staticgrad.compiler.program.step import Step, asking


@phase("plan kernels")
def plan_kernels(steps: Sequence[Step], planner: KernelPlanner, workers: int) -> None:
    """Decide how each kernel is run, and give its step the buffer that it needs in addition to its operands."""
    for step in steps:
        if step.kernel is not None:
            with asking(step):
                step.planned = planned = planner.plan(step.kernel)
            nbytes = planned.scratch_bytes(workers)
            if nbytes:
                step.scratch = Temp(f"{step.name}.scratch", nbytes, f"{SCRATCH} of one kernel", step.source)


def share_packing(steps: Sequence[Step]) -> None:
    """Give the steps that pack operands one buffer for that in place of one each: the next product finds in a cache
    what the last one has packed into."""
    packing = [step for step in steps if step.scratch is not None and step.planned is not None and step.planned.packs]
    if packing:
        nbytes = max(step.scratch.nbytes for step in packing if step.scratch is not None)
        shared = Temp("packing", nbytes, f"{SCRATCH} of all products", None)
        for step in packing:
            step.scratch = shared
