"""Rounding to integers, with the machine's instruction or by adding a magic number."""

from __future__ import annotations

from staticgrad.compiler.emit.elementary.number import Num


def _has_rounding(x: Num) -> bool:
    isa = x.f.target.isa
    return isa.rounds and x.element in isa.floats


def _round_magnitude(x: Num) -> Num:
    """|x| to the nearest integer, halves to even, without a rounding instruction."""
    whole = 2.0**x.format.mantissa
    magnitude = abs(x)
    return (magnitude < whole).where((magnitude + whole) - whole, magnitude)


def round_even(x: Num) -> Num:
    return x.intrinsic("rint") if _has_rounding(x) else _round_magnitude(x).copysign(x)


def floor(x: Num) -> Num:
    if _has_rounding(x):
        return x.intrinsic("floor")
    near = _round_magnitude(x).copysign(x)
    return (near > x).where(near - 1.0, near)


def ceil(x: Num) -> Num:
    if _has_rounding(x):
        return x.intrinsic("ceil")
    near = _round_magnitude(x).copysign(x)
    return (near < x).where(near + 1.0, near).copysign(x)


def trunc(x: Num) -> Num:
    if _has_rounding(x):
        return x.intrinsic("trunc")
    near = _round_magnitude(x)
    return (near > abs(x)).where(near - 1.0, near).copysign(x)


def rsqrt(x: Num) -> Num:
    return 1.0 / x.sqrt()
