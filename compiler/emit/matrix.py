"""The function around a matrix kernel: its parameters, and the counts of its modes.

    void @name(ptr first, ptr second, [ptr result], ptr epilogue arguments…, ptr scratch, [ptr pool])

Comes in: a planned contraction or convolution, the name of its epilogue's function, and what writes the body. Goes out:
the function. The result is passed where ``store_raw`` says so, the pool where the planned kernel ``is_shared``; the
chunks of a kernel without a pool run one after the other.
"""

from __future__ import annotations

from collections.abc import Callable

from staticgrad.compiler.emit.llvm import Function, IRModule, Value
from staticgrad.compiler.emit.parallel import NO_POOL
from staticgrad.compiler.kernels.matrix import Contraction, Convolution
from staticgrad.compiler.kernels.planned import PlannedKernel
from staticgrad.compiler.modes import took_plan

# The function, the kernel, the epilogue's name, the pointers with the scratch memory as the last, the pool.
WriteBody = Callable[[Function, PlannedKernel, "str | None", list[Value], Value], None]


def write_matrix_kernel(
    module: IRModule, planned: PlannedKernel, name: str, epilogue: str | None, write_body: WriteBody
) -> None:
    """Add the function of a matrix kernel to ``module``."""
    kernel = planned.kernel
    assert isinstance(kernel, Contraction | Convolution)
    extra = len(kernel.epilogue.args) - 1 if kernel.epilogue is not None else 0
    f = module.function(name, ["ptr"] * (2 + kernel.store_raw + extra + 1 + planned.is_shared))
    pointers, pool = (f.params[:-1], f.params[-1]) if planned.is_shared else (f.params, NO_POOL)
    if planned.plan is not None:
        took_plan(planned.plan)
        write_body(f, planned, epilogue, list(pointers), pool)
    f.finish()
