"""Convolution kernels: a planned ``Convolution`` comes in, a function of the module goes out.

All three directions are batch-reduce products of the one microkernel (Georganas et al., "High-performance deep learning
via a single building block", IPDPS 2020). ``forward`` has the convolution and its transpose by data over
channels-last images: for a pixel the taps of one filter row and their channels are one contiguous run (without
dilation), and the filter's rows are the blocks of the batch. ``weights_planes`` has the transpose by weights, over
planes moved by the taps. With one tap, planes are rows of matrices (``products``, ``weights_products``). ``images`` and
``planes`` are how images are brought into the form that is read.

This module chooses the plan of a kernel and asks it; the parameters of the function are ``emit/matrix.py``'s.
"""

from __future__ import annotations

from dataclasses import replace

from staticgrad.compiler.emit.convolution.depthwise import depthwise_plan, depthwise_weights_plan
from staticgrad.compiler.emit.convolution.depthwise_planes import is_planes, planes_plan, planes_weights_plan
from staticgrad.compiler.emit.convolution.forward import ForwardPlan, forward_plan
from staticgrad.compiler.emit.convolution.images import is_depthwise
from staticgrad.compiler.emit.convolution.plan import ConvolutionPlan
from staticgrad.compiler.emit.convolution.planar import is_planar, planar_plan
from staticgrad.compiler.emit.convolution.products import is_product, product_plan
from staticgrad.compiler.emit.convolution.weights import weight_grad_plan
from staticgrad.compiler.emit.convolution.weights_dots import dot_weights_plan, dots_pay
from staticgrad.compiler.emit.convolution.weights_planes import plane_weights_plan, reads_planes, tile_cycles
from staticgrad.compiler.emit.convolution.weights_products import is_weight_product, weight_product_plan
from staticgrad.compiler.emit.llvm import Function, IRModule, Value
from staticgrad.compiler.emit.matrix import write_matrix_kernel
from staticgrad.compiler.emit.nest.facts import is_all_divisible
from staticgrad.compiler.emit.target import Target
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.kernels.planned import PlannedKernel


def plan_convolution(kernel: Convolution, target: Target) -> ConvolutionPlan:
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


PlannedConvolution = PlannedKernel[Convolution, ConvolutionPlan]


def planned(kernel: Convolution, target: Target) -> PlannedConvolution:
    """The kernel with its plan."""
    if kernel.is_empty:
        return PlannedKernel(kernel, None, raw_strides=kernel.result_strides)
    plan = plan_convolution(kernel, target)
    return PlannedKernel(
        kernel,
        plan,
        is_shared=plan.is_shared and is_all_divisible(kernel.epilogue),
        shared_bytes=plan.scratch.shared_bytes,
        worker_bytes=plan.scratch.own_bytes,
        raw_strides=kernel.result_strides if kernel.store_raw else plan.raw_strides(kernel),
        packed_bytes=plan.weight_bytes if kernel.packed is not None and isinstance(plan, ForwardPlan) else 0,
    )


def takes_packed(kernel: Convolution, target: Target, number: int) -> bool:
    """The kernel can be given operand ``number`` packed: the weights, where its plan packs all of them, which is then
    of some bytes."""
    return number == 1


def emit_packing(module: IRModule, kernel: Convolution, plan: ForwardPlan, name: str) -> None:
    """Add ``void @name(ptr weights, ptr packed, ptr)``, which packs the weights of ``kernel``."""
    f = module.function(name, ["ptr"] * 3)
    plan.pack(f, kernel, f.params[0], f.params[1])
    f.finish()


def emit_convolution(module: IRModule, planned: PlannedConvolution, name: str, epilogue: str | None) -> None:
    """Add the function of a convolution to ``module`` under ``name``; ``epilogue`` is the name of its ranged nest."""
    write_matrix_kernel(module, planned, name, epilogue, _write)


def _write(
    f: Function, kernel: Convolution, plan: ConvolutionPlan, epilogue: str | None, pointers: list[Value], pool: Value
) -> None:
    plan.emit(f, kernel, epilogue, pointers, pool)
