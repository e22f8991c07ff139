"""Estimates of convolutions: cycles, by which plans of a kernel are compared, and seconds, by which work is cut.

The cycles of copies are given as factors of those of the multiply-adds beside which they are done.
"""

from __future__ import annotations

import numpy as np

from staticgrad.base.extents import largest
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.convolution.images import are_planes, is_depthwise
from staticgrad.compiler.plans.tiles import round_up, tile_lanes

NEAR_BYTES = 2 << 20  # of all images, up to which these stay in the caches
SHORT_BYTES = 32  # of vectors: up to that length copies take a small part of a kernel's time
TURNING = 1 / 0.95  # cycles with images turned, for each cycle without
TURNING_FAR = 1 / 0.94  # the same from memory, for which turning waits


def lanes_used(target: Target, dtype: np.dtype, count: int) -> float:
    """The share of lanes in use, of vectors over ``count`` elements."""
    return count / round_up(max(count, 1), tile_lanes(target, dtype))


def multiply_add_cycles(kernel: Convolution, target: Target, count: int) -> float:
    """The cycles of a kernel's multiply-adds, two vectors a cycle, of vectors over ``count`` elements."""
    return kernel.flops / (4 * tile_lanes(target, kernel.dtype) * (lanes_used(target, kernel.dtype, count) or 1))


def has_short_vectors(target: Target) -> bool:
    """True if the vectors of a target are so short that copies take a small part of a kernel's time."""
    return target.isa.vector_bytes <= SHORT_BYTES


def turning(kernel: Convolution, target: Target) -> float:
    """The factor of the cycles of tiles beside which images in planes are brought into another form."""
    pixels = kernel.out_height * kernel.out_width * (kernel.channels + kernel.filters)
    is_near = kernel.batch * pixels * kernel.dtype.itemsize <= target.sized(NEAR_BYTES)
    return (TURNING if is_near else TURNING_FAR) if are_planes(kernel) else 1.0


def seconds_of(kernel: Convolution, target: Target) -> float:
    """The estimated seconds of the kernel on one core, of the greatest sizes."""
    rate = target.machine.convolution_flops_per_lane * tile_lanes(target, kernel.dtype)
    return largest(kernel).flops / (rate / 4 if is_depthwise(kernel) or kernel.dtype.kind != "f" else rate)
