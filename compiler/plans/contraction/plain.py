"""Plain products: a row at a time, by one short function, where code or memory is to be short."""

from __future__ import annotations

from staticgrad.base.extents import largest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.matrix import Contraction
from staticgrad.compiler.kernels.planned import Planned, PlannedKernel
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.tiles import aligned_bytes, tile_lanes

COLUMNS_AT_ONCE = 4  # of a row: they share each load of A, and their chains of sums run at once
MOST_SCRATCH_BYTES = 1 << 10  # of the usual, faster plan where memory is short


def always_suits(kernel: Contraction, target: Target) -> bool:
    """True if a product is computed by the function of a row because code is to be short."""
    return target.machine.compact and tile_lanes(target, kernel.dtype) == 1


def suits_better(kernel: Contraction, target: Target, usual: Planned) -> bool:
    """True if it is because memory is short, and the usual plan needs more of it."""
    is_long = usual.scratch_bytes(1) > MOST_SCRATCH_BYTES
    return target.machine.sparing and tile_lanes(target, kernel.dtype) == 1 and is_long


@frozen
class PlainProduct:
    """The plan: of the product, or of Cᵀ where C has few columns, a row at a time."""

    kernel: Contraction
    swapped: bool

    @property
    def sizes(self) -> tuple[int, int]:
        """Rows and columns of what is computed."""
        m, n = self.kernel.m, self.kernel.n
        return (n, m) if self.swapped else (m, n)

    @property
    def row_bytes(self) -> int:
        """The scratch memory for a row that is not stored."""
        return 0 if self.kernel.store_raw else aligned_bytes(largest(self.sizes[1]), self.kernel.dtype)

    @property
    def raw_strides(self) -> tuple[int, ...]:
        """The strides at which the epilogue finds the raw result; of one that is not stored as if its rows followed
        each other, though each is at the place of the first."""
        if self.kernel.store_raw:
            return self.kernel.c_strides
        row = largest(self.sizes[1])
        return (*(0 for _ in self.kernel.batch), *((1, row) if self.swapped else (row, 1)))

    @property
    def text(self) -> str:
        return f"rows one after the other{', of the transpose' * self.swapped}"


PlannedProduct = PlannedKernel[Contraction, PlainProduct]


def planned(kernel: Contraction, target: Target) -> PlannedProduct:
    """The kernel with its plan."""
    if kernel.is_empty:
        return PlannedKernel(kernel, None, raw_strides=kernel.c_strides)
    m, n = largest(kernel.m), largest(kernel.n)
    plan = PlainProduct(kernel, swapped=n < min(m, COLUMNS_AT_ONCE))
    return PlannedKernel(kernel, plan, worker_bytes=plan.row_bytes, raw_strides=plan.raw_strides)
