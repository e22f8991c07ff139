"""Convolution kernels: a ``Convolution`` comes in, a function of the module goes out.

    void @name(ptr first, ptr second, [ptr result], ptr epilogue arguments…, ptr scratch, [ptr pool])

All three directions are batch-reduce products of the one microkernel (Georganas et al., "High-performance deep learning
via a single building block", IPDPS 2020). ``forward`` has the convolution and its transpose by data over
channels-last images: for a pixel the taps of one filter row and their channels are one contiguous run (without
dilation), and the filter's rows are the blocks of the batch. ``weights_planes`` has the transpose by weights, over
planes moved by the taps. With one tap, planes are rows of matrices (``products``, ``weights_products``). ``images`` and
``planes`` are how images are brought into the form that is read.

This module chooses the plan of a kernel and asks it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from staticgrad.compiler.emit.convolution.depthwise import depthwise_plan, depthwise_weights_plan
from staticgrad.compiler.emit.convolution.depthwise_planes import is_planes, planes_plan, planes_weights_plan
from staticgrad.compiler.emit.convolution.forward import Forward, forward_plan
from staticgrad.compiler.emit.convolution.images import is_depthwise
from staticgrad.compiler.emit.convolution.planar import is_planar, planar_plan
from staticgrad.compiler.emit.convolution.products import is_product, product_plan
from staticgrad.compiler.emit.convolution.weights import weight_grad_plan
from staticgrad.compiler.emit.convolution.weights_dots import dot_weights_plan, dots_pay
from staticgrad.compiler.emit.convolution.weights_planes import plane_weights_plan, reads_planes, tile_cycles
from staticgrad.compiler.emit.convolution.weights_products import is_weight_product, weight_product_plan
from staticgrad.compiler.emit.llvm import Function, Module, Value
from staticgrad.compiler.emit.parallel import NO_POOL
from staticgrad.compiler.emit.target import Target
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.modes import took_plan


class Plan(Protocol):
    """How a kernel is done: chosen by its sizes and strides and by the target, before anything is written."""

    @property
    def is_shared(self) -> bool:
        """Whether the kernel is worth the threads of a pool."""

    def scratch_bytes(self, workers: int) -> int:
        """The scratch memory that the kernel needs, run by so many workers: a multiple of 64 bytes."""

    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        """Where the epilogue finds the result of a kernel that does not store it."""

    def emit(self, f: Function, kernel: Convolution, epilogue: str | None, pointers: list[Value], pool: Value) -> None:
        """Write the body of the function."""


def _empty(kernel: Convolution) -> bool:
    """Whether the result has no elements."""
    images, spatial = (kernel.batch,), (kernel.out_height, kernel.out_width)
    sizes = {
        "forward": (*images, kernel.filters, *spatial),
        "input_grad": (*images, kernel.channels, kernel.height, kernel.width),
        "weight_grad": (kernel.filters, kernel.channels // kernel.groups, *kernel.kernel),
    }
    return 0 in sizes[kernel.direction]


def plan_convolution(kernel: Convolution, target: Target) -> Plan:
    """The plan of a kernel whose result has elements. The epilogue has no part in it."""
    bare = replace(kernel, epilogue=None)
    by_weights = kernel.direction == "weight_grad"
    if is_planes(bare, target):
        return planes_weights_plan(bare, target) if by_weights else planes_plan(bare, target)
    if is_depthwise(kernel):
        return depthwise_weights_plan(bare, target) if by_weights else depthwise_plan(bare, target)
    if is_product(bare, target):
        return product_plan(bare, target)
    if is_planar(bare, target):
        return planar_plan(bare, target)
    if is_weight_product(bare):
        return weight_product_plan(bare, target)
    if reads_planes(bare, target):
        dots = dots_pay(bare, target, tile_cycles(bare, target))
        return dot_weights_plan(bare, target) if dots else plane_weights_plan(bare, target)
    return weight_grad_plan(bare, target) if by_weights else forward_plan(bare, target)


def is_shared(kernel: Convolution, target: Target) -> bool:
    """Whether the kernel is worth the threads of a pool."""
    return not _empty(kernel) and plan_convolution(kernel, target).is_shared


def scratch_bytes(kernel: Convolution, target: Target, workers: int = 1) -> int:
    """The scratch memory that the kernel needs, run by so many workers: a multiple of 64 bytes."""
    return 0 if _empty(kernel) else plan_convolution(kernel, target).scratch_bytes(workers)


def packed_bytes(kernel: Convolution, target: Target, number: int) -> int:
    """How many bytes operand ``number`` has packed; 0 where the kernel cannot be given it packed. It can be given the
    weights, where the plan packs all of them."""
    plan = None if _empty(kernel) or number != 1 else plan_convolution(kernel, target)
    return plan.weight_bytes if isinstance(plan, Forward) else 0


def emit_packing(module: Module, kernel: Convolution, name: str) -> None:
    """Add ``void @name(ptr weights, ptr packed, ptr)``, which packs the weights of ``kernel``."""
    f = module.function(name, ["ptr"] * 3)
    plan = plan_convolution(kernel, module.target)
    assert isinstance(plan, Forward)
    plan.pack(f, kernel, f.params[0], f.params[1])
    f.finish()


def raw_strides(kernel: Convolution, target: Target) -> tuple[int, int, int, int]:
    """The strides of the result's four indices at which the epilogue finds the raw result."""
    stored = {"forward": kernel.y_strides, "input_grad": kernel.x_strides, "weight_grad": kernel.w_strides}
    if kernel.store_raw or _empty(kernel):
        return stored[kernel.direction]
    return plan_convolution(kernel, target).raw_strides(kernel)


def emit_convolution(
    module: Module, kernel: Convolution, name: str, epilogue: str | None, shared: bool = False
) -> None:
    """Add the function of ``kernel`` to ``module`` under ``name``; ``epilogue`` is the name of its ranged nest. If
    ``shared`` it takes a pool, else its chunks, where it has some, run one after the other."""
    extra = len(kernel.epilogue.args) - 1 if kernel.epilogue is not None else 0
    f = module.function(name, ["ptr"] * (2 + kernel.store_raw + extra + 1 + shared))
    pointers, pool = (f.params[:-1], f.params[-1]) if shared else (f.params, NO_POOL)
    if not _empty(kernel):
        plan = plan_convolution(kernel, module.target)
        took_plan(plan)
        plan.emit(f, kernel, epilogue, list(pointers), pool)
    f.finish()
