"""Versions of a kernel: what is best for the greatest sizes of a range may be slow for small ones.

Input: a kernel with open sizes, and where the range of one of them is cut in parts. Output: a planned kernel with a
plan for each part, complete and made for the sizes of that part alone; one for a single size is planned as if that were
known. Whether and where a range is cut is for the family of the kernel to say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from staticgrad.base.extents import OpenSize, narrowed
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.matrix import Contraction, Convolution, with_raw_strides
from staticgrad.compiler.kernels.planned import Planned, PlannedKernel

K = TypeVar("K", Contraction, Convolution)


@frozen
class Versions:
    """The planned kernels for parts of the range of an open size, of which ``ends`` are the last sizes."""

    size: OpenSize
    ends: tuple[int, ...]
    parts: tuple[Planned, ...]

    @property
    def numbered(self) -> list[tuple[int, Planned]]:
        """The parts with their last sizes."""
        return list(zip(self.ends, self.parts, strict=True))

    @property
    def text(self) -> str:
        """The plan of each part."""
        plans = [(end, part.plan) for end, part in self.numbered]
        return " / ".join(f"up to {self.size} = {end}: {plan.text}" for end, plan in plans if plan is not None)


def in_versions(
    kernel: K, size: OpenSize, ends: Sequence[int], plan: Callable[[K], Planned]
) -> PlannedKernel[K, Versions]:
    """The kernel with a version for each part of the range of ``size``.

    An epilogue finds the raw result where ``plan`` puts it for the whole range; in each version it is moved to where
    that one's is.

    Args:
        ends: the last size of each part, in ascending order; the last one is that of the range.
        plan: gives the planned kernel of some sizes.
    """
    before = plan(replace(kernel, epilogue=None)).raw_strides
    starts = (size.low, *(end + 1 for end in ends[:-1]))
    parts = []
    for low, high in zip(starts, ends, strict=True):
        part = narrowed(kernel, size.number, low, high)
        if not kernel.store_raw and part.epilogue is not None:
            after = plan(replace(part, epilogue=None)).raw_strides
            part = replace(part, epilogue=with_raw_strides(part.epilogue, before, after))
        parts.append(plan(part))
    return PlannedKernel(
        kernel,
        Versions(size, tuple(ends), tuple(parts)),
        is_shared=any(part.is_shared for part in parts),
        shared_bytes=max(part.shared_bytes for part in parts),
        worker_bytes=max(part.worker_bytes for part in parts),
        packs=all(part.packs for part in parts),
        raw_strides=before,
    )
