"""The function around a matrix kernel: its parameters, and the counts of its modes.

    void @name(ptr first, ptr second, [ptr result], ptr epilogue arguments…, ptr scratch, [ptr pool])

Input: a planned contraction or convolution, the name of its epilogue's function, and what writes the body. Output:
the function. The result is passed where ``store_raw`` says so, the pool where the planned kernel ``is_shared``; the
chunks of a kernel without a pool run one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from staticgrad.compiler.emit.llvm import Function, IRModule, Value
from staticgrad.compiler.emit.parallel import NO_POOL
from staticgrad.compiler.kernels.matrix import Contraction, Convolution
from staticgrad.compiler.kernels.planned import KernelPlan, PlannedKernel
from staticgrad.compiler.machine.modes import took_plan

M = TypeVar("M", Contraction, Convolution)
P = TypeVar("P", bound=KernelPlan)

# The function, the kernel, its plan, the epilogue's name, the pointers with the scratch memory as the last, the pool.
WriteBody = Callable[[Function, M, P, "str | None", list[Value], Value], None]


def write_matrix_kernel(
    module: IRModule, planned: PlannedKernel[M, P], name: str, epilogue: str | None, write_body: WriteBody[M, P]
) -> None:
    """Add the function of a matrix kernel to ``module``."""
    kernel = planned.kernel
    extra = len(kernel.epilogue.args) - 1 if kernel.epilogue is not None else 0
    f = module.function(name, ["ptr"] * (2 + kernel.store_raw + extra + 1 + planned.is_shared))
    pointers, pool = (f.params[:-1], f.params[-1]) if planned.is_shared else (f.params, NO_POOL)
    if planned.plan is not None:
        took_plan(planned.plan)
        write_body(f, kernel, planned.plan, epilogue, list(pointers), pool)
    f.finish()
