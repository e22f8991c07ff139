"""Floats of 16 bits to and from float32: float16 (IEEE 754 binary16), and bfloat16, the upper half of a float32.

Input and output: lanes of floats; the lanes of a short float are its bits, as i16. To short floats is to the nearest,
halves to even, as NumPy's and ml_dtypes' conversions. The bits of a float16 are those of a float32 under another bias,
which a product by 2¹¹² exchanges; denormal numbers come out right by themselves. x86's own conversions are not used:
LLVM turns them into calls of a library where it finds double numbers before them, or computes in float16.
"""

from __future__ import annotations

from staticgrad.compiler.emit.elementary.number import Num

SIGN, INFINITY = 1 << 31, 0x7F800000  # of a float32
REBIAS = 2.0**112  # from a bias of 15 to one of 127
SMALLEST_NORMAL, TOO_LARGE = 2.0**-14, 65520.0  # of float16: what is as large rounds to infinity


def widen_bfloat16(x: Num) -> Num:
    return (x.convert("zext", "i32") << 16).real()


def shorten_bfloat16(x: Num) -> Num:
    bits = x.bits()
    upper = bits >> 16
    rounded = (bits + (upper & 1) + 0x7FFF) >> 16
    return x.unordered(x).where(upper | 0x40, rounded).convert("trunc", "i16")


def widen_float16(x: Num) -> Num:
    bits = x.convert("zext", "i32")
    magnitude = (bits & 0x7FFF) << 13
    finite = magnitude.real() * REBIAS
    special = (finite >= 65536.0).where(magnitude | INFINITY, finite.bits())
    return (special | ((bits & 0x8000) << 16)).real()


def shorten_float16(x: Num) -> Num:
    bits = x.bits()
    magnitude = bits & (SIGN - 1)
    # In the sum with 0.5 the last bit counts 2**-24, as that of a denormal float16: the machine rounds.
    small = (magnitude.real() + 0.5).bits() - 0x3F000000
    normal = (magnitude - ((127 - 15) << 23) + (((magnitude >> 13) & 1) + 0xFFF)) >> 13
    found = (magnitude.real() < SMALLEST_NORMAL).where(small, normal)
    found = (magnitude.real() < TOO_LARGE).where(found, 0x7C00)
    found = x.unordered(x).where(0x7E00, found)
    return (found | ((bits >> 16) & 0x8000)).convert("trunc", "i16")


def odd_float(x: Num) -> Num:
    """A double as a float32 whose last bit says that something was cut off, so that a second rounding, to float16, errs
    no more than one would (Boldo and Melquiond, "When double rounding is odd", 2004)."""
    rest = (1 << 29) - 1
    bits = x.bits()
    sticky = ((bits & rest) + rest) & (rest + 1)
    exact = ((bits & ~rest) | sticky).real()
    return x.unordered(x).where(x, exact).convert("fptrunc", "float")
