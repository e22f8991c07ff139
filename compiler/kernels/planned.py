"""Planned kernels: how a kernel is run on one target, decided once, before anything is written.

Input: a kernel, and what the planner of its family decided (``emit/families.py``). Output: what the stages between
lowering and emission ask: scratch memory, whether threads share the work, where the raw result lies, how large an
operand is that was packed beforehand, and the text that reports show. ``plan`` is the family's own: loops, tiles,
staging and prefetches, which its emitter writes down.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.kernel import Kernel


class KernelPlan(Protocol):
    """The interface of the plan that a kernel's family makes of it."""

    @property
    def text(self) -> str:
        """Loops, tiles, staged operands, chunks and prefetches, in a line or two."""


K_co = TypeVar("K_co", bound=Kernel, covariant=True)
P_co = TypeVar("P_co", bound=KernelPlan, covariant=True)


@frozen(eq=False)
class PlannedKernel(Generic[K_co, P_co]):
    """A kernel and its plan; ``plan`` is None where no element is to be computed.

    Attributes:
        is_shared: the kernel is handed the pool: it takes long, and its chunks may run at once.
        shared_bytes: scratch memory that all workers use, a multiple of 64 bytes.
        worker_bytes: scratch memory that each worker has for itself, a multiple of 64 bytes.
        packs: the scratch memory holds what each kernel packs anew and reads at once: all kernels of a program that
            do so share one place, which stays in a cache.
        raw_strides: where a matrix kernel's epilogue finds the raw result, a stride in elements for each index.
        packed_bytes: the size of the operand that a matrix kernel is given packed.
        choice: the estimates by which the plan was chosen, where the switch EXPLAIN asks for them.
    """

    kernel: K_co
    plan: P_co | None
    is_shared: bool = False
    shared_bytes: int = 0
    worker_bytes: int = 0
    packs: bool = False
    raw_strides: tuple[int, ...] = ()
    packed_bytes: int = 0
    choice: str = ""

    def scratch_bytes(self, workers: int) -> int:
        """The bytes of scratch memory that the kernel needs, run by ``workers`` threads."""
        return self.shared_bytes + self.worker_bytes * (workers if self.is_shared else 1)

    @property
    def text(self) -> str:
        """The kernel, and below it how it is run."""
        choice = f"\nchoice: {self.choice}" if self.choice else ""
        return self.kernel.text if self.plan is None else f"{self.kernel.text}\nplan: {self.plan.text}{choice}"


Planned = PlannedKernel[Kernel, KernelPlan]  # of any family


def choice_text(candidates: Sequence[tuple[float, str]]) -> str:
    """The estimated cycles of the plan that is taken, the first of ``candidates``, and how much longer the others seem
    to take; empty if there are none."""
    if not candidates:
        return ""
    (cycles, taken), *others = candidates
    return f"{taken} {cycles:.3g} cycles" + "".join(f"; {other} {c / cycles:.2f} times that" for c, other in others)
