"""The planner of a target: what stages before emission ask how a kernel is run."""

from __future__ import annotations

from collections.abc import Callable

from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.kernel import Kernel
from staticgrad.compiler.kernels.planned import Planned


@frozen
class KernelPlanner:
    """``plan`` gives a kernel with its plan; ``packed`` the kernel that is given an operand packed, by the operand's
    number, None where it had better not be."""

    plan: Callable[[Kernel], Planned]
    packed: Callable[[Kernel, int], Planned | None]
