"""The plan of a convolution kernel: a ``Convolution`` and a target come in, the kernel with its plan goes out.

All three directions are batch-reduce products of the one microkernel (Georganas et al., "High-performance deep learning
via a single building block", IPDPS 2020). ``forward`` has the convolution and its transpose by data over
channels-last images: for a pixel the taps of one filter row and their channels are one contiguous run (without
dilation), and the filter's rows are the blocks of the batch. ``weights_planes`` has the transpose by weights, over
planes moved by the taps. With one tap, planes are rows of matrices (``products``, ``weights_products``). ``images`` and
``planes`` are the forms in which images are read.

A kernel for a range of sizes gets the plan that suits the greatest of them: tiles, blocks and chunks have the sizes of
that one's, and only how many there are is found out when the kernel is called.

Each class of plans says which kernels it is for (``make``), and estimates their cycles; the plan with the fewest is
taken. ``emit/convolution/kernel.py`` has the classes, each with what writes it.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from staticgrad.base import config
from staticgrad.base.extents import OpenSize, OpenSizeError, largest, narrowed, open_sizes
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.kernels.planned import Planned, PlannedKernel, choice_text
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.convolution.plan import ConvolutionPlan
from staticgrad.compiler.plans.convolution.schedule import PackingPlan
from staticgrad.compiler.plans.nest.facts import is_all_divisible
from staticgrad.compiler.plans.versions import in_versions

PlannedConvolution = PlannedKernel[Convolution, ConvolutionPlan]


@frozen
class ConvolutionPlanner:
    """The planner of convolutions, with the classes of plans that there are."""

    kinds: tuple[type[ConvolutionPlan], ...]

    def plan(self, kernel: Convolution, target: Target) -> ConvolutionPlan:
        """The plan of a kernel whose result has elements. The epilogue has no part in it.

        Raises:
            OpenSizeError: no plan is for such a kernel of open sizes, or the bounds of a size do not say what must be
                known.
        """
        return _plan(self.kinds, replace(kernel, epilogue=None), target)

    def planned(self, kernel: Convolution, target: Target) -> Planned:
        """The kernel with its plan, or with that for few images and that for many."""
        plan = functools.partial(self.planned_whole, target=target)
        if kernel.is_empty or kernel.direction != "weight_grad" or len(sizes := open_sizes(kernel.batch)) != 1:
            return plan(kernel)
        (size,) = sizes
        few = self._few_images(replace(kernel, epilogue=None), size, target)
        return plan(kernel) if few is None else in_versions(kernel, size, (few, size.high), plan)

    def _few_images(self, kernel: Convolution, size: OpenSize, target: Target) -> int | None:
        """The most images of a range that had better be done by a plan of another kind than many; None where there are
        none such. Gradients of weights are sums over all images, and what is worth doing for many of them, such as sums
        in every lane, costs more than all else where there are two. Half of the greatest number is looked at, a
        quarter, and so on."""
        many, limit = type(self.plan(kernel, target)), size.high // 2
        while limit >= size.low:
            if type(self.plan(narrowed(kernel, size.number, size.low, limit), target)) is not many:
                return limit
            limit //= 2
        return None

    def planned_whole(self, kernel: Convolution, target: Target) -> PlannedConvolution:
        """The kernel with one plan, for all of its sizes."""
        if kernel.is_empty:
            return PlannedKernel(kernel, None, raw_strides=kernel.result_strides)
        plan = self.plan(kernel, target)
        return PlannedKernel(
            kernel,
            plan,
            is_shared=plan.is_shared and is_all_divisible(kernel.epilogue),
            shared_bytes=plan.scratch.shared_bytes,
            worker_bytes=plan.scratch.own_bytes,
            raw_strides=kernel.result_strides if kernel.store_raw else plan.raw_strides(kernel),
            packed_bytes=plan.weight_bytes if kernel.packed is not None and isinstance(plan, PackingPlan) else 0,
            choice=self._explained(kernel, target) if config.get("EXPLAIN") == "1" else "",
        )

    def _explained(self, kernel: Convolution, target: Target) -> str:
        """The classes of plans that can run a kernel of the greatest sizes, and their estimated cycles."""
        found = _candidates(self.kinds, replace(largest(kernel), epilogue=None), target)
        return choice_text([(cycles, type(plan).__name__) for cycles, plan in found])


@functools.lru_cache(maxsize=4096)
def _plan(kinds: tuple[type[ConvolutionPlan], ...], kernel: Convolution, target: Target) -> ConvolutionPlan:
    greatest = largest(kernel)
    candidates = [plan for _, plan in _candidates(kinds, greatest, target)]
    if greatest is kernel:
        return candidates[0]
    best: list[type[ConvolutionPlan]] = [type(plan) for plan in candidates]
    for kind in (*best, *(kind for kind in kinds if kind not in best)):  # some are for images of open sizes alone
        plan = kind.make(kernel, target)
        if plan is not None:
            return plan
    raise OpenSizeError("a depthwise convolution is compiled for one size of images", *kernel.x_strides)


@functools.lru_cache(maxsize=4096)
def _candidates(
    kinds: tuple[type[ConvolutionPlan], ...], kernel: Convolution, target: Target
) -> tuple[tuple[float, ConvolutionPlan], ...]:
    """The plans that can run a kernel of known sizes, with their estimated cycles, the fewest first; where they are
    equal but for rounding in the order of their classes."""
    plans = [plan for kind in kinds if (plan := kind.make(kernel, target)) is not None]
    return tuple(sorted(((float(f"{plan.cycles(kernel, target):.9g}"), plan) for plan in plans), key=lambda c: c[0]))


def takes_packed(kernel: Convolution, target: Target, number: int) -> bool:
    """True if operand ``number`` is the weights, which can be given packed; a plan that does not pack all of them says
    so by no ``packed_bytes``."""
    return number == 1
