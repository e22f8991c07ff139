"""asin, acos, atan."""

from __future__ import annotations

import math

import numpy as np

from staticgrad.compiler.emit.elementary.circular import HALF_PI, HALF_PI_REST
from staticgrad.compiler.emit.elementary.number import (
    DOUBLE,
    Num,
    fast_two_sum,
    polynomial,
    two_product,
)

# pi/2 as a sum of two
HALF_PI_PARTS = {
    "float": (float(np.float32(HALF_PI)), HALF_PI - float(np.float32(HALF_PI))),
    "double": (HALF_PI, HALF_PI_REST),
}

# (atan y - y)/y^3 in y^2, y <= tan(pi/8): 2^-30.4 and 2^-59.4
ATAN = {
    "float": (-3.3333316e-01, 1.9998528e-01, -1.4244378e-01, 1.0598938e-01, -6.0891125e-02),
    "double": (
        -0.333333333333332, 0.19999999999953624, -0.1428571428018928, 0.1111111078270772, -0.09090897727327871,
        0.07692059542847142, -0.06663095094083087, 0.05847815457973503, -0.0503893590075695, 0.03805433959862193,
        -0.017895145400364104,
    ),
}  # fmt: skip

# (asin y - y)/y^3 in y^2, y <= 1/2: for float results 2^-27.6; 2^-55.8
ASIN = {
    "float": (1.6666755e-01, 7.495189e-02, 4.548433e-02, 2.4109539e-02, 4.2286802e-02),
    "double": (
        0.16666666666665345, 0.07500000000352534, 0.04464285681533555, 0.03038195967870418, 0.02237174494178446,
        0.017359903996139465, 0.013883253910397629, 0.012182304306603954, 0.006471016278507024,
        0.019685019247321314, -0.016471567259880915, 0.03208268621600711,
    ),
}  # fmt: skip


def atan(x: Num) -> Num:
    """atan of y = t, (t-1)/(t+1) or -1/t for t = |x|, plus 0, pi/4 or pi/2."""
    t = abs(x)
    middle, large = t > math.tan(math.pi / 8), t > math.tan(3 * math.pi / 8)
    numerator = large.where(-1.0, middle.where(t - 1.0, t))
    denominator = large.where(t, middle.where(t + 1.0, 1.0))
    y = numerator / denominator
    high, low = HALF_PI_PARTS[x.element]
    base = large.where(x.const(high), middle.where(x.const(high / 2), 0.0))
    rest = large.where(x.const(low), middle.where(x.const(low / 2), 0.0))
    z = y * y
    return (base + (polynomial(z, ATAN[x.element]).fma(y * z, rest) + y)).copysign(x)


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
