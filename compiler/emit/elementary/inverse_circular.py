"""asin, acos, atan, and the angle of a point."""

from __future__ import annotations

import numpy as np

from staticgrad.compiler.emit.elementary.circular import HALF_PI, HALF_PI_REST
from staticgrad.compiler.emit.elementary.exponent import bits_of
from staticgrad.compiler.emit.elementary.number import (
    DOUBLE,
    Num,
    fast_two_sum,
    polynomial,
    two_product,
)
from staticgrad.compiler.emit.elementary.rare import rarely

# pi/2 as a sum of two
HALF_PI_PARTS = {
    "float": (float(np.float32(HALF_PI)), HALF_PI - float(np.float32(HALF_PI))),
    "double": (HALF_PI, HALF_PI_REST),
}

# (atan y - y)/y^3 in y^2, y <= 1/3: 2^-28.4 and 2^-55.6
ATAN = {
    "float": (-3.3333257e-01, 1.9993222e-01, -1.4096685e-01, 8.981494e-02),
    "double": (
        -0.3333333333333143, 0.19999999999307333, -0.14285714198850388, 0.11111105759105548, -0.09090721929955857,
        0.07688333168674098, -0.06614163864717357, 0.054561967728515154, -0.032575176558768265,
    ),
}  # fmt: skip

# pi/2 and atan(1/2) less the same part of each, by which they are to be increased: their sums are exact then
ANGLES = {
    "float": (1.5707979202270508, 0.46364808082580566, -1.0144093862383624e-06),
    "double": (1.5707963267948952, 0.4636476090008057, 8.871296333821323e-16),
}

# (asin y - y)/y^3 in y^2, y <= 1/2: for float results 2^-27.6; 2^-55.8
ASIN = {
    "float": (1.6666755e-01, 7.495189e-02, 4.548433e-02, 2.4109539e-02, 4.2286802e-02),
    "double": (
        0.16666666666665345, 0.07500000000352534, 0.04464285681533555, 0.03038195967870418, 0.02237174494178446,
        0.017359903996139465, 0.013883253910397629, 0.012182304306603954, 0.006471016278507024,
        0.019685019247321314, -0.016471567259880915, 0.03208268621600711,
    ),
}  # fmt: skip


def _angle(low: Num, high: Num, downward: Num, start: Num) -> Num:
    """The arc tangent of low/high, 0 <= low <= high, taken from ``start`` (pi/2 times 0, 1 or 2, less its part) where
    ``downward``, else added to it.

    Above 1/3 it is atan(1/2) and that of (2·low - high)/(2·high + low), whose numerator is exact: with one division the
    quotient is off by two roundings at most, and it is small where the result is small.
    """
    _, middle, part = ANGLES[low.element]
    far = low * 3.0 > high
    above, below = far.where(low.fma(2.0, -high), low), far.where(high.fma(2.0, low), high)
    base = far.where(low.const(middle), 0.0)
    y = downward.where(-above, above) / below
    base = start + downward.where(-base, base)
    z = y * y
    return base + (polynomial(z, ATAN[low.element]).fma(y * z, base * part) + y)


def atan(x: Num) -> Num:
    """The angle of the point (1, x)."""
    t = abs(x)
    steep = t > 1.0
    start = steep.where(x.const(ANGLES[x.element][0]), 0.0)
    return _angle(t.at_most(1.0), t.at_least(1.0), steep, start).copysign(x)


def atan2(y: Num, x: Num) -> Num:
    """The angle in [-pi, pi] of the point (x, y), by that of the smaller coordinate over the larger (IEEE 754's
    cases: the signs of zeros count, two infinities are as far as each other)."""
    form = x.format
    across, up = abs(x), abs(y)
    steep = up > across
    left = Num(x.f, x.f.compare("icmp slt", x.bits().value, x.bits().lift(0)))
    low, high = steep.where(across, up), steep.where(up, across)
    # zeros become the largest integer: unsigned, they are beyond
    largest = 1.0 / form.smallest_normal
    extreme = Num(x.f, x.f.compare("icmp uge", (high.bits() - 1).value, x.bits().lift(bits_of(largest, form) - 1)))

    def moderate() -> list[Num]:
        """In a range where nothing overflows, with a quotient where there is none."""
        huge = high >= largest
        both = huge & low.equals(high)
        smaller = both.where(1.0, huge.where(low * 0.125, low))
        larger = both.where(1.0, huge.where(high * 0.125, high))
        return [smaller, high.equals(0.0).where(1.0, larger)]

    low, high = rarely(extreme, [low, high], moderate)
    quarter = ANGLES[x.element][0]
    start = steep.where(x.const(quarter), left.where(x.const(2.0 * quarter), 0.0))
    return _angle(low, high, steep ^ left, start).copysign(y)


def _asin_parts(x: Num) -> tuple[Num, Num, Num]:
    """(large, y, tail): asin y = y + tail, where y is |x|, or sqrt((1-|x|)/2) if large."""
    t = abs(x)
    large = t > 0.5
    z = large.where(t.fma(-0.5, 0.5), t * t)
    root = z.sqrt()
    y = large.where(root, t)
    tail = polynomial(z, ASIN[x.element]) * z * y
    if x.format is DOUBLE:  # with what the rounding of the root left
        product, error = two_product(root, root)
        rest = ((z - product) - error) / (root + root + 2.0**-1000)
        tail = tail + large.where(rest, 0.0)
    return large, y, tail


def asin(x: Num) -> Num:
    """y + y³·P(y²), or pi/2 - 2·(that of sqrt((1-|x|)/2))."""
    half_pi, half_pi_rest = HALF_PI_PARTS[x.element]
    large, y, tail = _asin_parts(x)
    high, low = fast_two_sum(y.const(half_pi), y * -2.0)
    near_one = high + (low + tail.fma(-2.0, half_pi_rest))
    return large.where(near_one, y + tail).copysign(x)


def acos(x: Num) -> Num:
    """pi/2 - asin x, or 2·asin(sqrt((1-x)/2)) near 1 and pi less that near -1."""
    half_pi, half_pi_rest = HALF_PI_PARTS[x.element]
    large, y, tail = _asin_parts(x)
    near_one = (y + tail) * 2.0
    high, low = fast_two_sum(y.const(2.0 * half_pi), y * -2.0)
    near_minus_one = high + (low + tail.fma(-2.0, 2.0 * half_pi_rest))
    high, low = fast_two_sum(y.const(half_pi), -y.copysign(x))
    middle = high + (low + (half_pi_rest - tail.copysign(x)))
    return large.where((x < 0.0).where(near_minus_one, near_one), middle)
