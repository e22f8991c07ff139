"""exp, exp2, expm1, and what is made of them: tanh, sigmoid, silu, sinh, cosh.

x = n·ln2 + r in two parts, a polynomial in r, and a scaling by 2^n.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from staticgrad.compiler.emit.elementary.exponent import has_scale, inverse, scaled
from staticgrad.compiler.emit.elementary.lookup import looked_up
from staticgrad.compiler.emit.elementary.number import DOUBLE, FLOAT, Num, fast_two_sum, polynomial
from staticgrad.compiler.emit.elementary.piecewise import TANH as TANH_PIECES
from staticgrad.compiler.emit.elementary.piecewise import is_piecewise, piecewise

# (e^r - 1 - r) / r^2 on |r| <= ln2/2, relative to e^r - 1: 2^-26.1 and 2^-61.3
EXP = {
    "float": (4.9999997e-01, 1.6666538e-01, 4.166774e-02, 8.367311e-03, 1.3838173e-03),
    "double": (
        0.5, 0.1666666666666668, 0.04166666666666672, 0.008333333333318926, 0.0013888888888842197,
        0.000198412698933886, 2.4801587428705436e-05, 2.755723668361071e-06, 2.755717603467725e-07,
        2.511168962534755e-08, 2.0945733344840744e-09,
    ),
}  # fmt: skip

# the same for results in float that are computed in double: 2^-37.1
EXP_SHORT = (
    0.5000000000107286, 0.1666666675549251, 0.041666665939657024, 0.008333288469749416, 0.0013888987402465856,
    0.00019905439521541229, 2.4794833273540128e-05,
)  # fmt: skip

# the same in double on |r| <= ln2/32: 2^-58.9
EXP_TABLED = (
    0.5000000000000003, 0.16666666666666677, 0.04166666666188921, 0.008333333332413461, 0.0013889092545517209,
    0.0001984155439247746,
)  # fmt: skip
TABLED = 16  # powers of two in registers, one for each step of an octave
STEP = (0.043321698784993146, 3.436201886692732e-15)  # ln2/16 in two parts, the first of 42 bits


def is_tabled(x: Num) -> bool:
    """True if the target looks powers up in registers, and ``x`` is of a format that they are for."""
    return has_scale(x) and x.f.target.isa.looks_up and x.format is DOUBLE


@functools.cache
def powers() -> NDArray[np.float64]:
    """2^(j/16)/2 for j below 16, and the part of each that its rounding left."""
    exact = [1 << (TABLED * 120 + j) for j in range(TABLED)]
    for _ in range(TABLED.bit_length() - 1):
        exact = [math.isqrt(power) for power in exact]  # 2^(120 + j/16) in the end
    rounded = [power / 2**121 for power in exact]
    rests = [(power - int(near * 2.0**121)) / power for power, near in zip(exact, rounded, strict=True)]
    return np.array([rounded, rests])


def reduce_exp(x: Num) -> tuple[Num, Num]:
    """x = n·ln2 + r with integral n and |r| <= ln2/2 (and a little)."""
    form = x.format
    n = x.fma(math.log2(math.e), form.magic) - form.magic
    return n, reduced(x, n)


def reduced(x: Num, n: Num) -> Num:
    """x - n·ln2 for integral n, where that is of the size of ln2."""
    return n.fma(-x.format.ln2_lo, n.fma(-x.format.ln2_hi, x))


def expm1_reduced(r: Num, coefficients: Sequence[float] = ()) -> Num:
    """e^r - 1 of a reduced argument."""
    return polynomial(r, coefficients or EXP[r.element]).fma(r * r, r)


def exp(x: Num) -> Num:
    n, r = reduce_exp(_limited(x, 1.0))
    return scaled(expm1_reduced(r) + 1.0, n)


def _limited(x: Num, unit: float) -> Num:
    """``x`` where the power that it is the exponent of, in multiples of ``unit``, can be scaled; one that vanishes may
    have any exponent where scaling is one instruction."""
    limited = x.at_most(x.format.exp_high * unit)
    return limited if has_scale(x) else limited.at_least(x.format.exp_low * unit)


def exp_of_sum(high: Num, low: Num, coefficients: Sequence[float] = ()) -> tuple[Num, Num]:
    """exp(high + low) as (mantissa, n), to be scaled by 2^n; ``low`` is tiny, ``high`` in the range of exp. The reduced
    argument is rounded once, and so is the sum 1 + r + r²·P(r)."""
    form = high.format
    n = high.fma(math.log2(math.e), form.magic) - form.magic
    r = n.fma(-form.ln2_hi, high) + n.fma(-form.ln2_lo, low)
    whole, rest = fast_two_sum(high.const(1.0), r)
    return whole + polynomial(r, coefficients or EXP[r.element]).fma(r * r, rest), n


def exp_of_sum_by_table(high: Num, low: Num) -> tuple[Num, Num]:
    """exp(high + low) where powers are looked up, as a mantissa in [1/2, 1) and a number of which the largest integer
    below counts; ``low`` need not be tiny."""
    biased = (high + low).fma(TABLED / math.log(2.0), high.format.magic)
    count = biased - high.format.magic
    mantissa, rest = (looked_up(biased.bits(), high, row) for row in powers().tolist())
    step, step_rest = STEP
    r = count.fma(-step, high) + count.fma(-step_rest, low)
    growth = polynomial(r, EXP_TABLED).fma(r * r, r + rest)
    return growth.fma(mantissa, mantissa), count.fma(1.0 / TABLED, 1.0)


def exp2(x: Num) -> Num:
    """2^n·e^(r·ln2) with x = n + r, which is exact."""
    magic = x.format.magic
    x = _limited(x, math.log2(math.e))
    n = (x + magic) - magic
    return scaled(expm1_reduced((x - n) * math.log(2.0)) + 1.0, n)


def expm1(x: Num) -> Num:
    form = x.format
    lowest = -(form.mantissa + 3) * math.log(2)
    n, r = reduce_exp(x.at_most(form.exp_high).at_least(lowest))
    # half the power, so that it is finite where the result still is
    scale = (((n + form.magic).bits() << form.mantissa) + (form.one - (1 << form.mantissa))).real()
    reduced_result = expm1_reduced(r)
    result = reduced_result.fma(scale, scale - 0.5)
    return n.equals(0.0).where(reduced_result, result + result).copysign(x)


# (sinh x - x)/x^3 in x^2, x <= 1: 2^-31.5 and 2^-61.7
SINH = {
    "float": (1.6666667e-01, 8.333311e-03, 1.984263e-04, 2.783981e-06),
    "double": (
        0.16666666666666669, 0.008333333333332915, 0.0001984126984158922, 2.7557319108503364e-06,
        2.505213067058023e-08, 1.6056687679058596e-10, 7.775667609305293e-13,
    ),
}  # fmt: skip


def tanh(x: Num) -> Num:
    """h / (1 + h) with h = (exp(2|x|) - 1) / 2, as m - m²/(1 + h) with the smaller m of h and 1: so the roundings of
    the quotient count less. Or piece by piece."""
    t = abs(x)
    if is_piecewise(x):
        return piecewise(t, TANH_PIECES).copysign(x)
    half = _half_growth((t + t).at_most(20.0 if x.format is FLOAT else 40.0))
    bounded = half.at_most(1.0)
    return (bounded - bounded * bounded / (half + 1.0)).copysign(x)


def _half_growth(x: Num) -> Num:
    """(e^x - 1)/2 for 0 <= x <= 40, within little more than half a unit in the last place: with h = e^(x - r - rest)/2
    it is h - 1/2 + h·r, what the rounding of that left, and the small terms."""
    form = x.format
    if is_tabled(x):
        biased = x.fma(TABLED / math.log(2.0), form.magic)
        count = biased - form.magic
        mantissa, rest = (looked_up(biased.bits(), x, row) for row in powers().tolist())
        h = (mantissa.bits() + ((biased.bits() >> 4) << form.mantissa)).real()
        step, step_rest = STEP
        r = count.fma(-step, x)
        rest = count.fma(-step_rest, rest)
        low = polynomial(r, EXP_TABLED).fma(r * r, rest.fma(r, rest))
    else:
        biased = x.fma(math.log2(math.e), form.magic)
        count = biased - form.magic
        h = ((biased.bits() << form.mantissa) + (form.one - (1 << form.mantissa))).real()
        r, rest = count.fma(-form.ln2_hi, x), count * -form.ln2_lo
        low = polynomial(r, EXP[x.element]) * (r * r)
        low = rest.fma(r + low, rest) + low
    above = h - 0.5
    total = h.fma(r, above)
    left = h.fma(r, above - total)  # exact where h is a power of two, or once rounded
    return total + h.fma(low, left)


def sigmoid(x: Num) -> Num:
    return _lifted_sigmoid(x, x.format.exp_low) * 2.0 ** -SIGMOID_LIFT[x.element]


def silu(x: Num) -> Num:
    """x·sigmoid(x), the power of two applied last where the sigmoid would be denormal."""
    scale = x.const(2.0 ** -SIGMOID_LIFT[x.element])
    negative = x < 0.0
    return _lifted_sigmoid(x, SILU_LOW[x.element]) * negative.where(x, scale) * negative.where(scale, x)


SIGMOID_LIFT = {"float": 32, "double": 64}
SILU_LOW = {"float": -109.0, "double": -752.4}  # below, it is 0


def _lifted_sigmoid(x: Num, low: float) -> Num:
    """sigmoid(x)·2^SIGMOID_LIFT, which is never denormal: 1 / (s + s·2^n·(1 + p)) with exp(-x) = 2^n·(1 + p), so that
    s + s·2^n is exact where it matters. The factor s, a power of two, keeps the sum finite where the sigmoid is
    denormal. What vanishes, below ``low``, is 0 before the last product, which would underflow."""
    form = x.format
    small = SIGMOID_LIFT[x.element]
    shift = form.magic + (form.bias - small)  # of the rounding that leaves the exponent of s·2^n in the lowest bits
    limited = x.at_most((form.mantissa + 2) * math.log(2.0)).at_least(low)
    biased = limited.fma(-math.log2(math.e), shift)
    r = reduced(-limited, biased - shift)
    scale = (biased.bits() << form.mantissa).real()
    denominator = expm1_reduced(r).fma(scale, scale + 2.0**-small)
    return (x < low).where(0.0, inverse(denominator))


def sinh(x: Num) -> Num:
    """x + x³·P(x²) where |x| < 1, else e/2 - 1/(4·e/2) with e = e^|x|."""
    t = abs(x)
    square = t * t
    small = polynomial(square, SINH[x.element]).fma(square * t, t)
    half = _half_exp(t)
    return (t < 1.0).where(small, half - 0.25 / half).copysign(x)


def cosh(x: Num) -> Num:
    """e/2 + 1/(4·e/2) with e = e^|x|."""
    half = _half_exp(abs(x))
    return half + 0.25 / half


def _half_exp(x: Num) -> Num:
    """e^x / 2 for x >= 0: finite where sinh and cosh are."""
    n, r = reduce_exp(x.at_most(x.format.exp_high + 1.0))
    return scaled(expm1_reduced(r) + 1.0, n - 1.0)
