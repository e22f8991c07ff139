"""The plan of a convolution kernel: a ``Convolution`` and a target come in, the kernel with its plan goes out.

All three directions are batch-reduce products of the one microkernel (Georganas et al., "High-performance deep learning
via a single building block", IPDPS 2020). ``forward`` has the convolution and its transpose by data over
channels-last images: for a pixel the taps of one filter row and their channels are one contiguous run (without
dilation), and the filter's rows are the blocks of the batch. ``weights_planes`` has the transpose by weights, over
planes moved by the taps. With one tap, planes are rows of matrices (``products``, ``weights_products``). ``images`` and
``planes`` are the forms in which images are read.

A kernel for a range of sizes gets the plan that suits the greatest of them: tiles, blocks and chunks have the sizes of
that one's, and only how many there are is found out when the kernel is called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

from staticgrad.base.extents import OpenSize, OpenSizeError, is_open, largest, narrowed, open_sizes
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.kernels.planned import Planned, PlannedKernel
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.convolution.depthwise import depthwise_plan, depthwise_weights_plan
from staticgrad.compiler.plans.convolution.depthwise_planes import is_planes, planes_plan
from staticgrad.compiler.plans.convolution.forward import ForwardPlan, forward_plan
from staticgrad.compiler.plans.convolution.images import is_depthwise
from staticgrad.compiler.plans.convolution.plan import ConvolutionPlan
from staticgrad.compiler.plans.convolution.planar import is_planar, planar_plan
from staticgrad.compiler.plans.convolution.products import are_whole_planes, is_product, product_plan
from staticgrad.compiler.plans.convolution.weights import weight_grad_plan
from staticgrad.compiler.plans.convolution.weights_dots import dot_weights_plan, dots_pay
from staticgrad.compiler.plans.convolution.weights_planes import plane_weights_plan, reads_planes, tile_cycles
from staticgrad.compiler.plans.convolution.weights_products import is_weight_product, weight_product_plan
from staticgrad.compiler.plans.nest.facts import is_all_divisible
from staticgrad.compiler.plans.versions import in_versions

Suits = Callable[[Convolution, Target], bool]
MakePlan = Callable[[Convolution, Target], ConvolutionPlan]

PLANS: tuple[tuple[Suits, MakePlan], ...] = (
    (is_planes, planes_plan),
    (lambda kernel, _: is_depthwise(kernel) and kernel.direction == "weight_grad", depthwise_weights_plan),
    (lambda kernel, _: is_depthwise(kernel), depthwise_plan),
    (is_product, product_plan),
    (is_planar, planar_plan),
    (lambda kernel, _: is_weight_product(kernel), weight_product_plan),
    (lambda kernel, target: reads_planes(kernel, target) and dots_pay(kernel, target, tile_cycles(kernel, target)),
     dot_weights_plan),
    (reads_planes, plane_weights_plan),
    (lambda kernel, _: kernel.direction == "weight_grad", weight_grad_plan),
    (lambda _, __: True, forward_plan),
)  # fmt: skip


def plan_convolution(kernel: Convolution, target: Target) -> ConvolutionPlan:
    """The plan of a kernel whose result has elements: the first that suits it. The epilogue has no part in it."""
    return _plan(replace(kernel, epilogue=None), target)


@functools.lru_cache(maxsize=4096)
def _plan(kernel: Convolution, target: Target) -> ConvolutionPlan:
    greatest = largest(kernel)
    if any(map(is_open, (kernel.height, kernel.width, kernel.out_height, kernel.out_width))):
        return _plan_of_open_images(kernel, target)
    return next(plan for suits, plan in PLANS if suits(greatest, target))(kernel, target)


def _plan_of_open_images(kernel: Convolution, target: Target) -> ConvolutionPlan:
    """The plan of a kernel for images of any height or width of a range: rows or planes of pixels, of which tiles take
    some at a time. Those of depthwise kernels are written for one width; pixels that are dealt out, gathered or moved
    plane by plane are for known sizes, too.

    Raises:
        OpenSizeError: the kernel is depthwise, or the bounds of a size do not say what must be known.
    """
    if is_depthwise(kernel):
        raise OpenSizeError("a depthwise convolution is compiled for one size of images", *kernel.x_strides)
    if kernel.direction == "weight_grad":
        return weight_grad_plan(kernel, target)
    greatest = largest(kernel)
    if is_product(greatest, target) and are_whole_planes(kernel):
        return product_plan(kernel, target)
    return (planar_plan if is_planar(greatest, target) and kernel.stride[1] == 1 else forward_plan)(kernel, target)


PlannedConvolution = PlannedKernel[Convolution, ConvolutionPlan]


def planned(kernel: Convolution, target: Target) -> Planned:
    """The kernel with its plan, or with that for few images and that for many."""
    plan = functools.partial(planned_whole, target=target)
    if kernel.is_empty or kernel.direction != "weight_grad" or len(sizes := open_sizes(kernel.batch)) != 1:
        return plan(kernel)
    (size,) = sizes
    few = _few_images(replace(kernel, epilogue=None), size, target)
    return plan(kernel) if few is None else in_versions(kernel, size, (few, size.high), plan)


def _few_images(kernel: Convolution, size: OpenSize, target: Target) -> int | None:
    """The most images of a range that had better be done by a plan of another kind than many; None where there are none
    such. Gradients of weights are sums over all images, and what is worth doing for many of them, such as sums in every
    lane, costs more than all else where there are two. Half as many as there may be are looked at, a quarter, and so
    on."""
    many, limit = type(plan_convolution(kernel, target)), size.high // 2
    while limit >= size.low:
        if type(plan_convolution(narrowed(kernel, size.number, size.low, limit), target)) is not many:
            return limit
        limit //= 2
    return None


def planned_whole(kernel: Convolution, target: Target) -> PlannedConvolution:
    """The kernel with one plan, for all of its sizes."""
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
