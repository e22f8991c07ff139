"""The vector axis of a nest: chosen by a count of what each candidate costs, in instructions.

A nest, what it says and a target go in; the axis, its lanes, and the registers that a value takes come out.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from staticgrad.base.extents import largest
from staticgrad.compiler.kernels.nest import Nest, Store
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.nest.axes import collides, staged_accesses, tiled_axis
from staticgrad.compiler.plans.nest.costs import GROUPED_VECTORS, KEEP_COST, VectorNest, run_cost, scalar_nest
from staticgrad.compiler.plans.nest.facts import Facts, access_of, dtype_of

# Vectors from which code that runs several registers at once is worth its length.
WORTH_INTERLEAVING = 256


def vector_lanes(nest: Nest, target: Target) -> int:
    """Lanes for this body: one register of its floats; 64-bit integers next to narrower data take two registers."""
    dtypes = {dtype_of(nest, number) for number, instr in enumerate(nest.body) if not isinstance(instr, Store)}
    sizes = {dtype.itemsize for dtype in dtypes}
    if np.dtype(np.float64) in dtypes or not sizes - {8}:
        return max(1, target.isa.vector_bytes // 8)
    return max(1, target.isa.vector_bytes // (4 if 4 in sizes or 8 in sizes else max(sizes)))


def _lanes_along(size: int, lanes: int, target: Target) -> int:
    """Short axes get short vectors: with masks the power of two above the size, else the one below."""
    bits = (size - 1).bit_length() if target.isa.predicated else size.bit_length() - 1
    return min(lanes, 1 << bits)


def choose_vector(nest: Nest, facts: Facts, target: Target) -> VectorNest:
    """The nest with a vector axis, or without where only scalar code is right or worth it."""
    scalar = scalar_nest(nest, facts, target)
    full = vector_lanes(scalar.greatest, target)
    best, least = scalar, run_cost(scalar)
    for dim, size in enumerate(scalar.greatest.dims):
        lanes = _lanes_along(size, full, target)
        if lanes > 1 and not collides(scalar.greatest, facts, dim):
            found = replace(scalar, vector=dim, lanes=lanes)
            cost = run_cost(found)
            if cost <= least:
                best, least = found, cost
    return best


def ranged_vector(nest: Nest, facts: Facts, target: Target) -> tuple[int | None, int]:
    """The vector axis of a nest whose bounds are not known: the axis with most unit strides, the last of equals."""
    full = vector_lanes(nest, target)

    def units(dim: int) -> int:
        accesses = [x for number in facts.needed if (x := access_of(nest.body[number]))]
        strides = [largest(x.strides[dim]) for x in accesses]
        return sum(stride == 1 for stride in strides) - 2 * sum(abs(stride) > 1 for stride in strides)

    good = [d for d, size in enumerate(nest.dims) if size != 1 and not collides(nest, facts, d)]
    if not good:
        return None, 1
    dim = max(good, key=lambda d: (units(d), d))
    lanes = _lanes_along(max(1, largest(nest.dims[dim])), full, target)
    return (dim, lanes) if lanes > 1 else (None, 1)


def registers_of_a_value(v: VectorNest) -> int:
    """The number of registers that a value takes: that of the target where chains of instructions are long, whose
    latencies then hide each other, else 1. It is 1, too, where lanes pass through tiles, where a tail of short rows
    would be left, and for too few vectors to repay making code of two or three times the length."""
    nest, facts, target, vector, lanes = v.greatest, v.facts, v.target, v.vector, v.lanes
    count = target.machine.interleaved
    if vector is None or count == 1 or nest.dims[vector] < count * lanes:
        return 1
    if math.prod(nest.dims) < target.sized(WORTH_INTERLEAVING) * lanes:
        return 1
    if all(v.costs[number] < KEEP_COST for number in facts.needed):
        return 1
    if any(dtype_of(nest, n).itemsize * lanes > target.isa.vector_bytes for n in facts.needed if _has_value(nest, n)):
        return 1
    if staged_accesses(nest, facts, vector, lanes, target) or tiled_axis(nest, facts, vector, lanes) is not None:
        return 1
    is_short = vector >= len(nest.outer) and nest.dims[vector] // lanes <= GROUPED_VECTORS
    return 1 if is_short and nest.dims[vector] % (count * lanes) else count


def _has_value(nest: Nest, number: int) -> bool:
    return not isinstance(nest.body[number], Store)
