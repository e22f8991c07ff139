"""Costs: the operations and bytes of steps, as reports tell them and as recomputation weighs them."""

from __future__ import annotations

import numpy as np

from staticgrad.compiler.program.program import KernelCost
from staticgrad.compiler.program.step import Step


def step_cost(step: Step) -> KernelCost:
    """Operations and bytes touched at least once, counted from the step's memories; of open sizes they are extents."""
    return KernelCost(step.name, step.family, step.flops, step.nbytes, step.source, _widest_float(step))


def _widest_float(step: Step) -> str:
    """The dtype in which a kernel computes, for what the machine allows."""
    return "float64" if step.kernel is not None and np.dtype(np.float64) in step.kernel.args else "float32"
