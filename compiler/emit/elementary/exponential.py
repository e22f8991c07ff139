"""exp, exp2, expm1, and what is made of them: tanh, sigmoid, sinh, cosh.

x = n·ln2 + r in two parts, a polynomial in r, and a scaling by 2^n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from staticgrad.compiler.emit.elementary.exponent import inverse, power_of_two, scaled
from staticgrad.compiler.emit.elementary.number import FLOAT, Num, polynomial
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


def reduce_exp(x: Num) -> tuple[Num, Num]:
    """x = n·ln2 + r with integral n and |r| <= ln2/2 (and a little)."""
    form = x.format
    n = x.fma(math.log2(math.e), form.magic) - form.magic
    return n, n.fma(-form.ln2_lo, n.fma(-form.ln2_hi, x))


def expm1_reduced(r: Num, coefficients: Sequence[float] = ()) -> Num:
    """e^r - 1 of a reduced argument."""
    return polynomial(r, coefficients or EXP[r.element]).fma(r * r, r)


def exp(x: Num) -> Num:
    form = x.format
    n, r = reduce_exp(x.at_most(form.exp_high).at_least(form.exp_low))
    return scaled(expm1_reduced(r) + 1.0, n)


def exp_of_sum(high: Num, low: Num, coefficients: Sequence[float] = ()) -> tuple[Num, Num]:
    """exp(high + low) as (mantissa, n), to be scaled by 2^n; ``low`` is tiny and ``high`` in the range of exp."""
    n, r = reduce_exp(high)
    return expm1_reduced(r + low, coefficients) + 1.0, n


def exp2(x: Num) -> Num:
    """2^n·e^(r·ln2) with x = n + r, which is exact."""
    form = x.format
    x = x.at_most(form.exp_high * math.log2(math.e)).at_least(form.exp_low * math.log2(math.e))
    n = (x + form.magic) - form.magic
    return scaled(expm1_reduced((x - n) * math.log(2.0)) + 1.0, n)


def expm1(x: Num) -> Num:
    form = x.format
    lowest = -(form.mantissa + 3) * math.log(2)
    n, r = reduce_exp(x.at_most(form.exp_high).at_least(lowest))
    # half the power, so that it is finite where the result still is
    scale = (((n + form.magic).bits() << form.mantissa) + (form.one - (1 << form.mantissa))).real()
    result = expm1_reduced(r).fma(scale, scale - 0.5)
    return (result + result).copysign(x)


# (tanh x - x)/x^3 in x^2, x <= 5/8: 2^-27.8 and 2^-60.9
TANH = {
    "float": (-3.3333284e-01, 1.3331479e-01, -5.374216e-02, 2.064547e-02, -5.7106367e-03),
    "double": (
        -0.33333333333333315, 0.13333333333329964, -0.053968253966149744, 0.0218694884706472, -0.008863234336839635,
        0.0035921141923943743, -0.001455726945368142, 0.0005894551965518273, -0.00023701920852532712,
        9.15685029234024e-05, -3.019462934211994e-05, 6.044628427873712e-06,
    ),
}  # fmt: skip

# (sinh x - x)/x^3 in x^2, x <= 1: 2^-31.5 and 2^-61.7
SINH = {
    "float": (1.6666667e-01, 8.333311e-03, 1.984263e-04, 2.783981e-06),
    "double": (
        0.16666666666666669, 0.008333333333332915, 0.0001984126984158922, 2.7557319108503364e-06,
        2.505213067058023e-08, 1.6056687679058596e-10, 7.775667609305293e-13,
    ),
}  # fmt: skip


def tanh(x: Num) -> Num:
    """x + x³·P(x²) where |x| < 5/8, else 1 - 2/(1 + exp(2|x|)): neither cancels. Or piece by piece."""
    t = abs(x)
    if is_piecewise(x):
        return piecewise(t, TANH_PIECES).copysign(x)
    square = t * t
    small = polynomial(square, TANH[x.element]).fma(square * t, t)
    twice = (t + t).at_most(19.0 if x.format is FLOAT else 40.0)
    n, r = reduce_exp(twice)
    power = (expm1_reduced(r) + 1.0) * power_of_two(n)
    return (t < 0.625).where(small, 1.0 - 2.0 / (power + 1.0)).copysign(x)


def sigmoid(x: Num) -> Num:
    """s / (s + s·2^n·(1 + p)) with exp(-x) = 2^n·(1 + p), so that s + s·2^n is exact where it matters. The factor s,
    a power of two, keeps the sum finite where the result is denormal."""
    form = x.format
    small = 32 if form is FLOAT else 64
    n, r = reduce_exp((-x).at_least(-(form.mantissa + 2) * math.log(2.0)).at_most(-form.exp_low))
    scale = (((n + form.magic).bits() << form.mantissa) + (form.one - (small << form.mantissa))).real()
    return inverse(expm1_reduced(r).fma(scale, scale + 2.0**-small)) * 2.0**-small


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
