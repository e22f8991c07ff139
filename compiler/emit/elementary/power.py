"""pow: exp(y·log x), with the logarithm in two parts or more digits, both by tables where the target looks them up; of
floats then 2^(y·log2 x)."""

from __future__ import annotations

import math

from staticgrad.compiler.emit.elementary.exponent import scaled, sign_bit
from staticgrad.compiler.emit.elementary.exponential import exp_of_sum, exp_of_sum_by_table, expm1_reduced, reduce_exp
from staticgrad.compiler.emit.elementary.exponential import is_tabled as is_exp_tabled
from staticgrad.compiler.emit.elementary.logarithm import is_tabled, log2_in_two, log_in_two, log_short
from staticgrad.compiler.emit.elementary.number import (
    DOUBLE,
    Num,
    from_double,
    polynomial,
    to_double,
    two_product,
)
from staticgrad.compiler.emit.elementary.rare import rarely
from staticgrad.compiler.emit.elementary.rounding import round_even

# (2^f - 1)/f on |f| <= 1/2, relative to 2^f: 2^-28.3; positive for any f
EXP2_FLOAT = (6.931472e-01, 2.4022648e-01, 5.55036e-02, 9.618506e-03, 1.3390812e-03, 1.5326496e-04)

# |x|^y is 0, 1 or infinite whatever y is beyond, of floats and doubles
BEYOND = {"float": 2.0**33, "double": 2.0**66}


def power(x: Num, y: Num) -> Num:
    """x^y with the special cases of IEEE 754's pow (NaN is not an exception to x^0 = 1 and 1^y = 1)."""
    result = _power_of_magnitude(x, y)
    ordinary = (x > 0.0) & (x < math.inf) & (abs(y) < BEYOND[x.element])
    return rarely(ordinary ^ True, [result], lambda: [_special_cases(x, y, result)])[0]


def _power_of_magnitude(x: Num, y: Num) -> Num:
    """|x|^y for positive finite |x| and y that is not beyond."""
    magnitude = abs(x)
    if is_tabled(x):
        high, low = log2_in_two(magnitude)
        exponent, rest = two_product(y, high)
        n = round_even(exponent)
        f = (exponent - n) + y.fma(low, rest)
        return scaled(polynomial(f, EXP2_FLOAT).fma(f, 1.0), n)
    if x.element == "float":
        exponent = log_short(magnitude) * to_double(y)
        n, r = reduce_exp(exponent.at_most(x.format.exp_high).at_least(x.format.exp_low))
        return scaled(expm1_reduced(from_double(r, x)) + 1.0, from_double(n, x))
    high, low = log_in_two(magnitude)
    exponent, rest = two_product(y, high)
    rest = y.fma(low, rest)
    rest = (abs(exponent) < 800.0).where(rest, 0.0)
    if is_exp_tabled(x):  # the rest may be as much as 0.3 below what is infinite
        return scaled(*exp_of_sum_by_table(exponent.at_most(DOUBLE.exp_high + 1.0), rest))
    mantissa, n = exp_of_sum(exponent.at_most(DOUBLE.exp_high).at_least(DOUBLE.exp_low), rest)
    return scaled(mantissa, n)


def _special_cases(x: Num, y: Num, result: Num) -> Num:
    """``result`` where it is |x|^y of positive finite |x| and finite y, and what belongs elsewhere."""
    magnitude = abs(x)
    extreme = magnitude.equals(0.0) | magnitude.equals(math.inf) | (abs(y) >= BEYOND[x.element])
    grows = ((magnitude > 1.0) ^ (y > 0.0)).where(x.const(0.0), math.inf)
    result = extreme.where(magnitude.equals(1.0).where(x.const(1.0), grows), result)
    half = y * 0.5
    whole = round_even(y).equals(y)
    odd = whole & round_even(half).differs(half)
    negative_bits = odd.where(x, 0.0).bits() & sign_bit(x.format)
    result = (result.bits() | negative_bits).real()
    invalid = (x < 0.0) & (magnitude < math.inf) & whole.where(y, x.const(math.nan)).unordered(0.0)
    result = (invalid | x.unordered(y)).where(x.const(math.nan), result)
    return (y.equals(0.0) | x.equals(1.0)).where(x.const(1.0), result)
