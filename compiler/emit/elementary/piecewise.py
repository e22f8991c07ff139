"""Odd functions that grow to 1, in float: a polynomial on each of 32 intervals, coefficients looked up in registers.

Input: |x|; output: the function of it. One AVX-512 instruction picks each lane's coefficient out of two registers, so
that a short polynomial serves where one for the whole range would be long and would need an exponential as well.
Coefficients are those of interpolation at Chebyshev's points, found in double when they are first needed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.elementary.lookup import looked_up
from staticgrad.compiler.emit.elementary.number import FLOAT, Num

INTERVALS = 32


@frozen
class Piecewise:
    """``function`` on [0, ∞): intervals of length ``step`` around its multiples, the last one reaches to infinity, and
    there the function is 1 in float. Around 0 the polynomial is d + d·P(d), elsewhere c + d·P(d)."""

    function: Callable[[float], float]
    step: float
    degree: int


ERF = Piecewise(math.erf, 0.125, 5)  # 1.2 ULP
TANH = Piecewise(math.tanh, 0.28125, 6)  # 1.4 ULP


def is_piecewise(x: Num) -> bool:
    """True if the target looks coefficients up in registers, and ``x`` is of a format that they are for."""
    return x.f.target.isa.looks_up and x.format is FLOAT


@functools.cache
def coefficients(form: Piecewise) -> NDArray[np.float64]:
    """The polynomials by power and interval."""
    half, count = form.step / 2, form.degree + 1
    found = np.zeros((count, INTERVALS))
    for i in range(1, INTERVALS - 1):
        found[:, i] = interpolated(form.function, i * form.step, half, count)
    found[1:, 0] = interpolated(lambda d: form.function(d) / d - 1.0, 0.0, half, count - 1)
    found[0, -1] = 1.0
    return found


def interpolated(function: Callable[[float], float], center: float, half: float, count: int) -> NDArray[np.float64]:
    """Coefficients by power of the distance from ``center``, exact at ``count`` Chebyshev points within ``half``."""
    points = np.cos(np.pi * (np.arange(count) + 0.5) / count)
    points[np.abs(points) < 1e-9] = 1e-9  # the middle one, where a quotient has no value
    values = np.array([function(center + half * point) for point in points])
    scaled: NDArray[np.float64] = np.linalg.solve(np.vander(points, increasing=True), values)
    return scaled / half ** np.arange(count)


def interval(t: Num, step: float) -> tuple[Num, Num]:
    """The multiple of ``step`` next to ``t``, in the lowest bits, and the distance from it."""
    biased = t.fma(1.0 / step, t.format.magic)
    return biased.bits(), (biased - t.format.magic).fma(-step, t)


def piecewise(t: Num, form: Piecewise) -> Num:
    """The function of ``t`` >= 0; NaN stays."""
    index, d = interval(t.at_most((INTERVALS - 1) * form.step), form.step)
    constant, *rest = (looked_up(index, t, row) for row in coefficients(form).tolist())
    result = rest[-1]
    for coefficient in reversed(rest[:-1]):
        result = result.fma(d, coefficient)
    # around 0, where the constant is 0, d takes its place; elsewhere it is smaller
    return result.fma(d, (constant > d).where(constant, d))
