"""log to the bases e, 2 and 10, log1p, and logarithms in more or fewer digits for other functions."""

from __future__ import annotations

import functools
import math
from decimal import Decimal, localcontext

import numpy as np
from numpy.typing import NDArray

from staticgrad.compiler.emit.elementary.exponent import (
    has_scale,
    mantissa_and_exponent,
    power_of_two,
    times_power,
    whole_exponent,
)
from staticgrad.compiler.emit.elementary.lookup import looked_up
from staticgrad.compiler.emit.elementary.number import (
    DOUBLE,
    FLOAT,
    Num,
    fast_two_sum,
    polynomial,
    to_double,
    two_product,
)

# float: (log(1+r) - r + r^2/2) / r^3 on [-1/4, 1/2], relative to log(1+r): 2^-29.6
LOG_FLOAT = (
    3.333334e-01, -2.5000167e-01, 1.9999564e-01, -1.6655156e-01, 1.427724e-01, -1.2731653e-01, 1.1695363e-01,
    -9.082724e-02, 3.7347797e-02,
)  # fmt: skip

# double: (2 atanh(s) - 2s) / s^3 in s^2 on [0, 0.0401], relative to 2 atanh(s): 2^-62.6
LOG_DOUBLE = (
    0.666666666666666, 0.40000000000056746, 0.2857142855580332, 0.22222224299801074, 0.1818166565839896,
    0.15391119406599071, 0.13173469813934263, 0.13843935776548016,
)  # fmt: skip


def _log_of(r: Num, exponent: Num) -> Num:
    """log((1 + r)·2^exponent) for r in [-1/4, 1/2].

    The low part of the logarithm is added first, the leading terms r and exponent·ln2 last. In double the series is
    that of atanh(s), s = r/(2+r), with log(1+r) = r - (r²/2 - s·(r²/2 + R)) as in FreeBSD's msun.
    """
    return exponent.fma(r.format.ln2_hi, r + log_tail(r, exponent * r.format.ln2_lo))


def log_tail(r: Num, low: Num | float) -> Num:
    """log(1 + r) less r, plus ``low``, which is small."""
    square = r * r
    if r.format is FLOAT:
        return square.fma(-0.5, polynomial(r, LOG_FLOAT).fma(square * r, low))
    s = r / (r + 2.0)
    z = s * s
    half = square * 0.5
    return s.fma(polynomial(z, LOG_DOUBLE).fma(z, half), low) - half


# -- by tables ------------------------------------------------------------------------------------------------------

INTERVALS = 32
LEVEL_BITS = 16  # after the point: so a level is exact in float, also with the exponent added

# log(1+r)/r on [-1/55, 1/32]: 2^-26.4
LOG_NEAR_ONE = (1.0, -0.500001195272, 0.33339352191, -0.244961250734)


@functools.cache
def intervals() -> NDArray[np.float64]:
    """For each of equal intervals of [1, 2) a factor that takes it to about 1, and the level -log2 of that factor.

    Levels are multiples of 2^-16, and of those near the middle of the interval the one whose factor is closest to a
    float: it is its logarithm within 2^-30. The factors of the first and last interval are 1 and 1/2, so that
    nothing cancels near 1.
    """
    edges = np.arange(INTERVALS) / INTERVALS + 1.0
    middle = np.round(np.log2(edges + 0.5 / INTERVALS) * 2.0**LEVEL_BITS)
    near = np.arange(-256, 257)[:, None]
    levels = (middle + near) / 2.0**LEVEL_BITS
    factors = np.exp2(-levels).astype(np.float32).astype(np.float64)
    best = np.argmin(np.abs(np.log2(factors) + levels), axis=0), np.arange(INTERVALS)
    found = np.stack([factors[best], levels[best]])
    found[:, 0], found[:, -1] = (1.0, 0.0), (0.5, 1.0)
    return found


def _by_interval(x: Num) -> tuple[Num, Num, tuple[Num, Num]]:
    """x = (1 + r)·2^level with |r| below 1/31, for floats on AVX-512: level, r, and 2^-level as a factor and
    the exponent of another.

    ±inf and NaN are in the level and r as in ``mantissa_and_exponent``.
    """
    mantissa, exponent = whole_exponent(x)
    number = mantissa.bits() >> 18  # the five upper bits of the mantissa are the lowest ones then
    factor, level = (looked_up(number, x, row) for row in intervals().tolist())
    return exponent + level, mantissa.fma(factor, -1.0), (factor, -exponent)


def _natural(level: Num, r: Num) -> Num:
    """log((1 + r)·2^level). No r², which would underflow of tiny ones."""
    return level.fma(math.log(2.0), (polynomial(r, LOG_NEAR_ONE[1:]) * r).fma(r, r))


def is_tabled(x: Num) -> bool:
    """True if the target looks intervals up in registers, and ``x`` is of a format that they are for."""
    return has_scale(x) and x.f.target.isa.looks_up and x.format is FLOAT


def log(x: Num) -> Num:
    if is_tabled(x):
        level, r, _ = _by_interval(x)
        return _natural(level, r)
    mantissa, exponent = mantissa_and_exponent(x)
    return _of_any(x, _log_of(mantissa - 1.0, exponent))


def _of_any(x: Num, result: Num) -> Num:
    """``result`` where ``x`` is positive and finite, and the logarithm elsewhere."""
    if has_scale(x):  # the instructions gave -inf, inf and NaN where they belong
        return result
    result = (x < math.inf).where(result, x)
    return (x > 0.0).where(result, x.equals(0.0).where(x.const(-math.inf), x.const(math.nan)))


def log2(x: Num) -> Num:
    """Exact of powers of two."""
    if is_tabled(x):
        level, r, _ = _by_interval(x)
        return polynomial(r, [c / math.log(2.0) for c in LOG_NEAR_ONE]).fma(r, level)
    mantissa, exponent = mantissa_and_exponent(x)
    r = mantissa - 1.0
    natural, scale = r + log_tail(r, 0.0), x.const(1.0 / math.log(2.0))
    if x.f.target.isa.fuses(x.element):
        return _of_any(x, natural.fma(scale, exponent))
    product, rest = two_product(natural, scale)  # may have an exponent of -1 taken from it
    return _of_any(x, exponent + product + rest)


# log10 of 2, and 1/log(10), each in two parts; the first is no larger than the number, so that the parts of an infinite
# product have one sign
LOG10_2 = (0.3010299801826477, 1.54813334901e-08)
LOG10_E = {
    "float": (0.4342944622039795, 1.96992723355e-08),
    "double": (0.4342944819032518, 1.098319650216765e-17),
}


def log10(x: Num) -> Num:
    if is_tabled(x):
        level, r, _ = _by_interval(x)
        scale, scale_rest = LOG10_E["float"]
        factor = polynomial(r, [scale, *(c / math.log(10.0) for c in LOG_NEAR_ONE[1:])])
        high, low = LOG10_2
        return level.fma(high, factor.fma(r, r.fma(scale_rest, level * low)))
    natural = log(x)
    high, low = LOG10_E[x.element]
    return natural.fma(high, natural * low)


def log1p(x: Num) -> Num:
    """log of u = 1 + x, with r = (1+x)·2^-e - 1 computed from x itself, so that the rounding of u is not in it; by
    tables with what that rounding left."""
    u = x + 1.0
    if is_tabled(x):
        level, r, inverse = _by_interval(u)
        r = (abs(level) < math.inf).where((x - (u - 1.0)).fma(times_power(*inverse), r), r)
        return _natural(level, r).copysign(x)
    mantissa, exponent = mantissa_and_exponent(u)
    scale = power_of_two(-exponent)
    r = (x < 2.0**60).where(x.fma(scale, scale - 1.0), mantissa - 1.0)
    result = _log_of(r, exponent)
    result = (u < math.inf).where(result, u)
    return (u > 0.0).where(result.copysign(x), u.equals(0.0).where(x.const(-math.inf), x.const(math.nan)))


# -- for others -----------------------------------------------------------------------------------------------------

# ((2 atanh(s) - 2s)/s^3 - 2/3)/s^2 in s^2 on [0, 0.0401], relative to 2 atanh(s): 2^-74.6
POWER_LOG = (
    0.4, 0.2857142857142682, 0.22222222222719298, 0.18181818110114664, 0.1538462138904218, 0.13333023993675855,
    0.11774644027714792, 0.10332952247155143, 0.11584844823692006,
)  # fmt: skip

# (2 atanh(s) - 2s)/s^3 in s^2 on [0, 0.0401], for results in float: 2^-42.2
LOG_SHORT = (0.6666666671091579, 0.39999984462568505, 0.28573197332673433, 0.2213469473283411, 0.2012720094799985)


# log2(1+r) = R + R·LOG2_PART - R²·(LOG2_SQUARE - P(R)) with R = r·LOG2_E, for r on [-1/62, 1/31.9]: 2^-33.2
LOG2_E = 1.4426950216293335  # as a float
LOG2_PART = 1.33497583e-08  # by which that is too small
LOG2_SQUARE = 0.3465735912322998
LOG2_LOW = (-8.294641289110783e-09, 1.6015172e-01, -8.3263584e-02, 4.483233e-02)


@functools.cache
def scaled_intervals() -> NDArray[np.float64]:
    """As ``intervals``, but factors that take the interval to about LOG2_E, and what is to be added to each level."""
    _, levels = intervals()
    factors = (LOG2_E * np.exp2(-levels)).astype(np.float32).astype(np.float64)
    return np.stack([factors, levels, np.log2(LOG2_E / factors) - levels])


def log2_in_two(x: Num) -> tuple[Num, Num]:
    """log2 of a positive finite float as a sum of two, with an error below 2^-32 of it: for targets with tables.

    With p = mantissa·factor in two parts, R = p - LOG2_E is exact, and R² is taken in two parts as well.
    """
    mantissa, exponent = whole_exponent(x)
    factor, level, rest = (looked_up(mantissa.bits() >> 18, x, row) for row in scaled_intervals().tolist())
    product, product_rest = two_product(mantissa, factor)
    r = mantissa.fma(factor, -LOG2_E)
    r_rest = ((product - LOG2_E) - r) + product_rest
    square, square_rest = two_product(r, r)
    curved = square.fma(-LOG2_SQUARE, r)
    low = square.fma(-LOG2_SQUARE, r - curved)
    low = polynomial(r, LOG2_LOW).fma(square, low)
    low = square_rest.fma(-LOG2_SQUARE, r.fma(LOG2_PART, low))
    low = r_rest.fma(r.fma(-2.0 * LOG2_SQUARE, 1.0), low)
    high, left = fast_two_sum(exponent + level, curved)
    return high, left + (rest + low)


def log_short(x: Num) -> Num:
    """log of a positive number in the range of float, as a double with 42 bits."""
    mantissa, exponent = map(to_double, mantissa_and_exponent(x))
    s = (mantissa - 1.0) / (mantissa + 1.0)
    z = s * s
    return exponent.fma(math.log(2.0), polynomial(z, LOG_SHORT).fma(z, 2.0) * s)


# (log(1+r) - r + r^2/2) / r^3 on [-1/32, 1/32], relative to log(1+r): 2^-65
LOG_TABLED = (
    0.3333333333333333, -0.2499999999999973, 0.1999999999999975, -0.1666666667032223, 0.14285714289088722,
    -0.12499986539879797, 0.1111109868615653, -0.10018351923306498, 0.09107849564529297,
)  # fmt: skip
STEPS = 16  # of the numbers from 1 to 2
TURN = 1.0 + 7.5 / STEPS  # from where on half of a mantissa counts
LOG_BITS = 42  # after the point: so a logarithm is exact, also with the exponent's added


@functools.cache
def logarithms() -> NDArray[np.float64]:
    """For each sixteenth j of a mantissa the reciprocal of what it is nearest to, 1 + j/16 or half of that; and the
    logarithm of that as a sum of two."""
    found = []
    with localcontext(prec=40):
        for j in range(STEPS):
            middle = 1.0 + j / STEPS
            factor = 1.0 / (middle if middle < TURN else middle / 2.0)
            exact = -Decimal(factor).ln()
            near = round(exact * 2**LOG_BITS) / 2.0**LOG_BITS
            found.append((factor, near, float(exact - Decimal(near))))
    return np.array(found).T


def _log_by_sixteenths(x: Num) -> tuple[Num, Num]:
    """``log_in_two`` by tables: log(1 + r) with |r| below 1/32, its first two terms in twice the precision."""
    mantissa, exponent = whole_exponent(x)
    large = mantissa >= TURN
    mantissa, exponent = large.where(mantissa * 0.5, mantissa), large.where(exponent + 1.0, exponent)
    number = (mantissa.bits() + (1 << 47)) >> 48  # the nearest sixteenth, in the lowest bits
    factor, level, level_rest = (looked_up(number, x, row) for row in logarithms().tolist())
    product, rest = two_product(mantissa, factor)
    r = product - 1.0  # exact
    square, square_rest = two_product(r, r)
    first, first_rest = fast_two_sum(exponent.fma(DOUBLE.ln2_hi, level), r)
    high = square.fma(-0.5, first)
    low = square.fma(-0.5, first - high) + first_rest
    rest = (-r).fma((-r).fma(rest, rest), rest)  # over 1 + r
    low = low + square_rest.fma(-0.5, rest) + exponent.fma(DOUBLE.ln2_lo, level_rest)
    return high, polynomial(r, LOG_TABLED).fma(square * r, low)


def log_in_two(x: Num) -> tuple[Num, Num]:
    """log of a positive finite double as a sum of two, with an error below 2^-63 of it.

    By tables; or the series of atanh, its first two terms in twice the precision, with an error below 2^-64.
    """
    if has_scale(x) and x.f.target.isa.looks_up:
        return _log_by_sixteenths(x)
    mantissa, exponent = mantissa_and_exponent(x)
    above = mantissa - 1.0
    divisor, divisor_rest = fast_two_sum(mantissa.const(1.0), mantissa)
    inverse = 1.0 / divisor
    s = above * inverse
    product, error = two_product(s, divisor)
    s_rest = ((above - product) - error - s * divisor_rest) * inverse
    z, z_rest = two_product(s, s)
    z_rest = z_rest + (s + s) * s_rest
    third = 2.0 / 3.0
    series = polynomial(z, POWER_LOG)
    factor, factor_rest = fast_two_sum(z.const(third), series * z)
    factor_rest = series.fma(z_rest, factor_rest + 2.0 / 3.0 * 2.0**-54)  # and 2/3 less its rounding
    w, w_rest = two_product(z, factor)
    w_rest = w_rest + z * factor_rest + z_rest * factor
    cubic, cubic_rest = two_product(s, w)
    cubic_rest = cubic_rest + s * w_rest + s_rest * w
    total, rest = fast_two_sum(s + s, cubic)
    rest = rest + cubic_rest + (s_rest + s_rest)
    high, low = fast_two_sum(exponent * DOUBLE.ln2_hi, total)
    return fast_two_sum(high, low + exponent.fma(DOUBLE.ln2_lo, rest))
