"""The floating remainder, exact for all operands, and the floored quotient that goes with it."""

from __future__ import annotations

import math

from staticgrad.compiler.emit.elementary.number import Num, from_double, integer_parts, to_double, two_product
from staticgrad.compiler.emit.elementary.rare import one_by_one, rarely
from staticgrad.compiler.emit.elementary.rounding import floor, trunc
from staticgrad.compiler.emit.llvm import Function


def _write_remainder(f: Function) -> None:
    """A scalar fmod: exact for all operands, by long division of the mantissas, 11 bits a turn."""
    x, y = (Num(f, p) for p in f.params)
    x_exponent, x_mantissa = integer_parts(x)
    y_exponent, y_mantissa = integer_parts(y)
    divisor = y_mantissa.equals(0).where(y_mantissa.const(1), y_mantissa)
    difference = x_exponent - y_exponent
    below = Num(f, f.compare("icmp slt", difference.value, difference.lift(0)))
    difference = below.where(0, difference)
    turns = Num(f, f.binary("udiv", difference.value, difference.lift(11)))
    rest = Num(f, f.binary("urem", x_mantissa.value, divisor.value))
    with f.loop(0, turns.value, carry=[rest.value]) as loop:
        shifted = Num(f, loop.carried[0]) << 11
        loop.next(f.binary("urem", shifted.value, divisor.value))
    rest = Num(f, loop.results[0]) << (difference - turns * 11)
    rest = Num(f, f.binary("urem", rest.value, divisor.value))
    scale = y_exponent - 1075
    half = Num(f, f.binary("ashr", scale.value, scale.lift(1)))
    parts = [((part + 1023) << 52).real() for part in (half, scale - half)]
    result = (rest.convert("sitofp", "double") * parts[0] * parts[1]).copysign(x)
    result = (abs(x) < abs(y)).where(x, result)
    valid = abs(y) > 0.0
    finite = abs(x) < math.inf
    f.ret((valid & finite).where(result, x.const(math.nan)).value)


def _fmod(x: Num, y: Num) -> Num:
    """C's fmod: exact. Quotients below 2^52 (2^29 for float, which goes through double) by one division."""
    a, b = to_double(x), to_double(y)
    q = trunc(a / b)
    rare = abs(q) >= (2.0**29 if x.element == "float" else 2.0**52)
    if x.element == "float":
        rest = a - q * b
    else:
        product, error = two_product(q, b)
        rest = (a - product) - error
        if not a.f.target.isa.fuses(a.element):  # there the product is split in halves, which overflow or underflow
            rare = rare | (abs(b) < 2.0**-900) | (abs(a) > 2.0**900)
    # the quotient may have been rounded up to the next integer
    beyond = (rest * a.const(1.0).copysign(a)) < 0.0
    rest = beyond.where(rest + abs(b).copysign(a), rest).copysign(a)
    rest = (abs(a) < abs(b)).where(a, rest)
    name = x.f.module.leaf("exact_fmod", ["double", "double"], _write_remainder, result="double")

    def of_any() -> list[Num]:
        valid = (abs(a) < math.inf) & (abs(b) > 0.0)  # elsewhere the rest is NaN already
        return rarely(rare & valid, [rest], lambda: [one_by_one(name, [a, b])])

    return from_double(rarely(rare, [rest], of_any)[0], x)


def remainder(x: Num, y: Num) -> Num:
    """NumPy's remainder: fmod, moved to the sign of y; a zero has the sign of y."""
    rest = _fmod(x, y)
    moved = _other_sign(rest, y).where(rest + y, rest)
    return rest.equals(0.0).where(abs(rest).copysign(y), moved)


def floor_divide(x: Num, y: Num) -> Num:
    """NumPy's floor_divide: the quotient that goes with ``remainder``; x / y where y is 0."""
    rest = _fmod(x, y)
    quotient = (x - rest) / y
    quotient = _other_sign(rest, y).where(quotient - 1.0, quotient)
    low = floor(quotient)
    nearest = ((quotient - low) > 0.5).where(low + 1.0, low)
    ratio = x / y
    nearest = quotient.equals(0.0).where(x.const(0.0).copysign(ratio), nearest)
    return y.equals(0.0).where(ratio, nearest)


def _other_sign(rest: Num, y: Num) -> Num:
    return rest.differs(0.0) & ((rest < 0.0) ^ (y < 0.0))
