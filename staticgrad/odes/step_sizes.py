"""Step sizes: how long the next step of a Runge-Kutta pair is.

Input: the error of an attempt, of which 1 is as much as the tolerances allow. Output: whether it is accepted, and the
size of the next attempt. Nothing here is derived.

    control      the proportional-integral controller of Gustafsson in the form and with the constants of Hairer and
                 Wanner's DOPRI5 (Solving Ordinary Differential Equations I, 2nd ed., II.4, and II, 2nd ed., IV.2; see
                 Söderlind, Digital filters in adaptive time-stepping, 2003)
    first step   Hairer, Nørsett and Wanner I, II.4: the algorithm of ``starting step size``
"""

from __future__ import annotations

from typing import Any

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as O
from staticgrad.odes.vectors import Slope, Vector, difference, moved, norm

SAFETY, SHRINK, GROW = 0.9, 0.2, 10.0  # the next step: this part of what the estimate allows, within these factors
LEAST_ERROR = 1e-4  # that is remembered of a step


@frozen
class StepTolerances:
    """The error that is allowed for each element: ``absolute`` + ``relative``·|y|."""

    relative: Vector
    absolute: Vector

    def scale(self, y: Vector, other: Vector | None = None) -> Vector:
        """The allowed error at a state, or at the larger of two."""
        largest = [O.abs(x) for x in y]
        if other is not None:
            largest = [O.maximum(x, O.abs(z)) for x, z in zip(largest, other, strict=True)]
        return tuple(a + r * x for a, r, x in zip(self.absolute, self.relative, largest, strict=True))


@frozen
class Controller:
    """``power`` is one over the order of the error's estimate, ``memory`` the weight of the error before."""

    power: float
    memory: float

    def next(self, h: Tensor, error: Tensor, before: Tensor, was_rejected: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """True if a step of size ``h`` is accepted, the size of the next attempt, and the error to remember.

        Args:
            error: of this attempt; ``before`` that of the last accepted step.
            was_rejected: whether the attempt before was; then a step does not grow.
        """
        accepted = error <= 1.0
        finite = O.isfinite(error)
        known = O.maximum(O.where(finite, error, 1.0), 1e-10)
        slope = known ** (self.power - 0.75 * self.memory)
        grown = O.clip(SAFETY * before**self.memory / slope, SHRINK, GROW)
        grown = O.where(was_rejected, O.minimum(grown, 1.0), grown)
        shrunk = O.where(finite, O.maximum(SHRINK, SAFETY / slope), SHRINK)
        factor = O.where(accepted, grown, O.minimum(shrunk, 1.0))
        remembered = O.where(accepted, O.maximum(known, LEAST_ERROR), before)
        return accepted, h * O.astype(factor, h.dtype), remembered


def first_step(
    f: Slope, t: Tensor, y: Vector, slope: Vector, span: Tensor, order: int, tolerances: StepTolerances
) -> Tensor:
    """The size of the first attempt, with the sign of ``span``, the time that is to be covered, and not longer."""
    scale = tolerances.scale(y)
    d0, d1 = norm(y, scale), norm(slope, scale)
    small = O.logical_or(d0 < 1e-5, d1 < 1e-5)
    longest = O.abs(span)
    h0 = O.minimum(O.astype(O.where(small, 1e-6, 0.01 * d0 / O.where(small, 1.0, d1)), t.dtype), longest)
    signed = O.copysign(h0, span)
    there = f(t + signed, moved(y, signed, slope))
    d2 = O.astype(norm(difference(there, slope), scale), t.dtype) / h0
    steepest = O.maximum(O.astype(d1, t.dtype), d2)
    flat = steepest <= 1e-15
    h1 = O.where(flat, O.maximum(1e-6, h0 * 1e-3), (0.01 / O.where(flat, 1.0, steepest)) ** (1.0 / order))
    h = O.minimum(O.minimum(100 * h0, h1), longest)
    return O.copysign(O.where(O.isfinite(h), h, O.minimum(longest, 1e-6)), span)


def too_small(t: Tensor, h: Tensor) -> Tensor:
    """True where a step of size ``h`` hardly moves the time ``t``."""
    info: Any = np.finfo(t.dtype)
    return O.abs(h) <= O.maximum(10 * float(info.eps) * O.abs(t), float(info.tiny))
