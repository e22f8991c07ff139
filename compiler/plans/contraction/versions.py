"""Versions of a product: what is best for the greatest size of a range may be slow for small ones, as a tile of eight
rows is for a vector, and a transpose of few columns for a row.

Input: a contraction with open sizes and a target. Output: where the range of one of them is cut in parts: each begins
where the estimates say that the plan for its greatest size has become too slow.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from staticgrad.base.extents import OpenSize, largest, narrowed, open_sizes
from staticgrad.compiler.kernels.matrix import Contraction
from staticgrad.compiler.kernels.planned import Planned
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.contraction.blocking import given_orientation, turning_back
from staticgrad.compiler.plans.contraction.narrow import packing_cycles, tile_cycles
from staticgrad.compiler.plans.contraction.plan import ContractionPlan, plan_of
from staticgrad.compiler.plans.contraction.plan import planned as plan_whole
from staticgrad.compiler.plans.tiles import make_tiling, tile_lanes, tiling_cost
from staticgrad.compiler.plans.versions import in_versions

MOST_PARTS = 5
TOO_SLOW = 1.15  # times as long as with a plan of its own
FEW = 3  # times as long it takes to pack a column of those that fill no vector
DOTS, DOT = 0.6, 4.0  # cycles of dot products: for each vector of a row, and for each row


def planned(kernel: Contraction, target: Target) -> Planned:
    """The kernel with its plan, or with those of its versions."""
    plan = functools.partial(plan_whole, target=target)
    if kernel.is_empty or not open_sizes(kernel):
        return plan(kernel)
    size, ends = _parts(replace(kernel, epilogue=None), target)
    return plan(kernel) if size is None else in_versions(kernel, size, ends, plan)


@functools.lru_cache(maxsize=4096)
def _parts(kernel: Contraction, target: Target) -> tuple[OpenSize | None, tuple[int, ...]]:
    """The open size whose range is cut in parts, and the last size of each; None and none for a single part."""
    if kernel.dtype.kind != "f" or kernel.grouping or kernel.packed is not None:
        return None, ()
    sizes = sorted(open_sizes((kernel.m, kernel.n, kernel.k)), key=lambda size: size.number)
    losses = [(_loss(kernel, size, size.high, size.low, target), size) for size in sizes]
    losses = [entry for entry in losses if entry[0] > TOO_SLOW]
    if not losses:
        return None, ()
    size = max(losses, key=lambda entry: entry[0])[1]
    ends = [size.high]
    for at in _looked_at(size):
        # A column for each lane may be the best case: fewer are looked at, too.
        if len(ends) < MOST_PARTS and any(
            _loss(kernel, size, ends[0], n, target) > TOO_SLOW for n in {at, max(size.low, 3 * at // 4)}
        ):
            ends.insert(0, at)
    return (size, tuple(ends)) if len(ends) > 1 else (None, ())


def _looked_at(size: OpenSize) -> list[int]:
    """The sizes of a range at which a part may end, from the greatest one down."""
    if size.high < 2 * size.low:
        return [(size.low + size.high) // 2, size.low]
    powers = {1 << bit for bit in range(size.high.bit_length())}
    return sorted({n for n in powers if size.low < n < size.high} | {size.low}, reverse=True)


def _loss(kernel: Contraction, size: OpenSize, end: int, at: int, target: Target) -> float:
    """The estimated time at size ``at`` of the plan made for ``end``, over that of the plan made for ``at``."""
    known = largest(narrowed(kernel, size.number, at, at))
    if known.is_empty or known.k == 0:
        return 1.0
    own = plan_of(known, target)
    other = plan_of(largest(narrowed(kernel, size.number, end, end)), target)
    return _cycles(other, known, target) / _cycles(own, known, target)


def _cycles(plan: ContractionPlan, kernel: Contraction, target: Target) -> float:
    """The estimated cycles of a kernel of known sizes with a plan that was made for others."""
    given = given_orientation(kernel)
    way, own, nbytes = given.swap() if plan.swapped else given, plan.tiling, kernel.dtype.itemsize
    if plan.combines:
        return DOTS * way.k * -(-way.n // tile_lanes(target, way.dtype)) * way.m
    if plan.dots:
        return way.m * (DOTS * -(-way.k // tile_lanes(target, way.dtype)) + DOT)
    tiling = make_tiling(target, way.dtype, way.m, way.n, min(own.rows, way.m), own.vectors, own.folded, own.terms)
    costs = tiling.costs
    cycles = tile_cycles(tiling, way.k) if own.terms > 1 else tiling_cost(tiling, way.k)
    if plan.pack_b and own.terms > 1:
        cycles += packing_cycles(tiling, way.k, way.b)
    elif plan.pack_b:
        few = FEW if way.n < tile_lanes(target, way.dtype) else 1
        cycles += way.k * way.n * nbytes * (costs.copied_cycles if way.b[1] == 1 else few * costs.turned_cycles)
    if plan.pack_a:
        cycles += way.m * way.k * nbytes * (costs.copied_cycles if way.a[1] == 1 else costs.turned_cycles)
    return cycles + turning_back(way, tiling, turned=plan.swapped)
