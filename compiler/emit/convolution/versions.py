"""Kernels for a range of sizes of which a few images had better be done by another plan than many.

A plan is chosen for the greatest sizes of a range. Gradients of weights are sums over all images, and what is worth
doing for many of them, such as sums in every lane, costs more than all else where there are two. Where a plan of
another kind suits few images, the kernel is both, each complete: which of them runs is decided when it is called, by
the size alone, so that the result of a size is always the same.
"""

from __future__ import annotations

from collections.abc import Callable

from staticgrad.compiler.emit.convolution.plan import Area, ConvolutionPlan, Scratch
from staticgrad.compiler.emit.llvm import Function, Value, integer
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.extents import OpenSize, at_sizes, extent_of, open_sizes
from staticgrad.frozen import frozen


@frozen
class Versions(ConvolutionPlan):
    """The plan ``few`` where an open size is at most ``limit``, else the plan ``many``."""

    size: OpenSize
    limit: int
    few: ConvolutionPlan
    many: ConvolutionPlan
    scratch: Scratch  # as much as either needs

    @property
    def is_shared(self) -> bool:
        return self.few.is_shared or self.many.is_shared

    @property
    def way(self) -> str:
        return f"up to {self.size} = {self.limit} {self.few.way}; else {self.many.way}"

    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        """The strides of both."""
        return self.many.raw_strides(kernel)

    def emit(self, f: Function, kernel: Convolution, epilogue: str | None, pointers: list[Value], pool: Value) -> None:
        versions = (self.few, narrowed(kernel, self.size, self.limit)), (self.many, kernel)
        names = []
        for (plan, part), suffix in zip(versions, ("few", "many"), strict=True):
            version = f.module.function(f.module.unique(f"{f.name}.{suffix}"), ["ptr"] * (len(pointers) + 1))
            *arguments, own_pool = version.params
            plan.emit(version, part, epilogue, arguments, own_pool)
            names.append(version.finish())
        is_few = f.compare("icmp sle", f.index(extent_of(self.size)), integer(self.limit))
        labels, done = [f.label("version") for _ in names], f.label("done")
        f.branch_if(is_few, *labels)
        for label, name in zip(labels, names, strict=True):
            f.block(label)
            f.call(name, "void", *pointers, pool)
            f.branch(done)
        f.block(done)


def narrowed(kernel: Convolution, size: OpenSize, limit: int) -> Convolution:
    """The kernel for the sizes of a range up to ``limit``."""
    sizes = {other.number: extent_of(other) for other in open_sizes(kernel)}
    sizes[size.number] = extent_of(OpenSize(size.number, size.low, limit, size.name))
    return at_sizes(kernel, [sizes.get(number, 0) for number in range(max(sizes) + 1)])


def with_few(
    kernel: Convolution, plan: ConvolutionPlan, plan_of: Callable[[Convolution], ConvolutionPlan]
) -> ConvolutionPlan:
    """``plan``, or with it the one for few images where that is of another kind: for at most half as many, a quarter
    and so on, the most of those for which it is. An epilogue must find the result of both in the same place."""
    if len(sizes := open_sizes(kernel.batch)) != 1:
        return plan
    (size,) = sizes
    limit = size.high // 2
    while limit >= size.low:
        few = plan_of(narrowed(kernel, size, limit))
        alike = kernel.store_raw or few.raw_strides(kernel) == plan.raw_strides(kernel)
        if type(few) is not type(plan) and alike:
            shared = max(few.scratch.shared_bytes, plan.scratch.shared_bytes)
            own = max(few.scratch.own_bytes, plan.scratch.own_bytes)
            return Versions(size, limit, few, plan, Scratch((Area("shared", shared),), (Area("own", own),)))
        limit //= 2
    return plan
