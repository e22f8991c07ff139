"""Costs: the operations and bytes of steps, as reports tell them and as recomputation weighs them."""

from __future__ import annotations

import numpy as np

from staticgrad.compiler.kernels.nest import Nest
from staticgrad.compiler.program import ConstantSlot, FeedSlot, FetchSlot, GradSlot, KernelCost, StateSlot
from staticgrad.compiler.steps.step import Memory, Step, Temp


def step_cost(step: Step) -> KernelCost:
    """Operations and bytes touched at least once, counted from the step's memories."""
    total = sum(memory_bytes(m) for m in dict.fromkeys((*step.reads, *step.writes, *step.adds)))
    return KernelCost(step.name, step.family, step.flops, total, step.source, _widest_float(step))


def _widest_float(step: Step) -> str:
    """The dtype in which a kernel computes, for what the machine allows."""
    kernel = step.kernel
    dtypes = kernel.args if isinstance(kernel, Nest) else (getattr(kernel, "dtype", None),)
    return "float64" if np.dtype(np.float64) in dtypes else "float32"


def memory_bytes(memory: Memory) -> int:
    match memory:
        case Temp():
            return memory.nbytes
        case FeedSlot() | FetchSlot() | StateSlot() | GradSlot():
            return memory.type.nbytes
        case ConstantSlot():
            return int(memory.value.nbytes)
        case _:
            return 0
