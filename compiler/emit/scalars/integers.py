"""Integers in lanes: floored division, powers and shifts, with a result where LLVM has none."""

from __future__ import annotations

from staticgrad.compiler.emit.elementary.number import Num
from staticgrad.compiler.emit.elementary.rare import any_lane
from staticgrad.compiler.emit.llvm import Value
from staticgrad.compiler.emit.scalars.lane import (
    BOOL,
    FLOAT64,
    INT32,
    UINT32,
    Lane,
    LaneBuilder,
    bits_of,
    is_signed,
)


def divided(b: LaneBuilder, x: Lane, y: Lane) -> tuple[Lane, Lane]:
    """Floored quotient and remainder; both 0 where y is 0."""
    if x.dtype == BOOL:
        raise TypeError("bools are not divided: cast them to an integer first")
    zero, one = b.const(0, x.dtype), b.const(1, x.dtype)
    by_zero = b.eq(y, zero)
    unsafe = by_zero
    if is_signed(x.dtype):  # the smallest by -1 is the smallest by 1
        smallest = b.const(-(1 << (bits_of(x.dtype) - 1)), x.dtype)
        wraps = b.logical_and(b.eq(x, smallest), b.eq(y, b.const(-1, x.dtype)))
        unsafe = b.logical_or(by_zero, wraps)
    divisor = b.select(unsafe, one, y)
    quotient = _truncated_quotient(b, x, divisor)
    rest = b.sub(x, b.mul(quotient, divisor))
    if is_signed(x.dtype):
        opposite = b.lt(b.bit_xor(rest, divisor), zero)
        below = b.logical_and(b.ne(rest, zero), opposite)
        quotient = b.select(below, b.sub(quotient, one), quotient)
        rest = b.select(below, b.add(rest, divisor), rest)
    return b.select(by_zero, zero, quotient), b.select(by_zero, zero, rest)


def _truncated_quotient(b: LaneBuilder, x: Lane, divisor: Lane) -> Lane:
    """Integer quotient rounded to zero. Vectors of up to 32 bits go through double, where it is exact; there is
    no vector instruction for integer division."""
    signed = is_signed(x.dtype)
    if b.lanes == 1 or bits_of(x.dtype) > 32 or x.dtype == UINT32:
        return Lane(b.function.binary("sdiv" if signed else "udiv", x.value, divisor.value), x.dtype)
    real = b.div(b.cast(x, FLOAT64), b.cast(divisor, FLOAT64))
    quotient = Lane(b.function.cast("fptosi", real.value, "i32"), INT32)
    return b.cast(quotient, x.dtype)


def power(b: LaneBuilder, x: Lane, y: Lane) -> Lane:
    """By squaring, a turn for each bit of the largest exponent; then negative exponents are put right."""
    one, zero = b.const(1, x.dtype), b.const(0, x.dtype)
    if not is_signed(x.dtype):
        return _power_by_squaring(b, x, y)
    minus_one = b.const(-1, x.dtype)
    negative = b.lt(y, zero)
    result = _power_by_squaring(b, x, b.select(negative, zero, y))
    odd = b.ne(b.bit_and(y, one), zero)
    alternating = b.select(odd, minus_one, one)
    inverse = b.select(b.eq(x, minus_one), alternating, b.select(b.eq(x, one), one, zero))
    return b.select(negative, inverse, result)


def _power_by_squaring(b: LaneBuilder, x: Lane, y: Lane) -> Lane:
    f, dtype, type_ = b.function, x.dtype, x.value.type
    one, zero = b.const(1, dtype), b.const(0, dtype)
    before, head, body, done = f.current_block, f.label("power"), f.label("square"), f.label("powered")
    f.branch(head)
    f.block(head)
    names = [f"%{head}.{part}" for part in ("result", "base", "rest")]
    result, base, rest = (Lane(Value(name, type_), dtype) for name in names)
    following = [f"%{body}.{part}" for part in ("result", "base", "rest")]
    for name, start, step in zip(names, (one, x, y), following, strict=True):
        f.line(f"{name} = phi {type_} [ {start.value.text}, %{before} ], [ {step}, %{body} ]")
    more = any_lane(Num(b.function, b.ne(rest, zero).value))
    f.branch_if(more, body, done)
    f.block(body)
    odd = b.ne(b.bit_and(rest, one), zero)
    product = b.select(odd, b.mul(result, base), result)
    square = b.mul(base, base)
    shifted = Lane(f.binary("lshr", rest.value, one.value), dtype)
    for name, value in zip(following, (product, square, shifted), strict=True):
        f.line(f"{name} = or {value.value}, {zero.value.text}")
    f.branch(head)
    f.block(done)
    return result


def shift_left(b: LaneBuilder, x: Lane, count: Lane) -> Lane:
    """x · 2^count; 0 where the count is not below the width."""
    within, safe = _guarded(b, count)
    shifted = Lane(b.function.binary("shl", x.value, safe.value), x.dtype)
    return b.select(within, shifted, b.const(0, x.dtype))


def shift_right(b: LaneBuilder, x: Lane, count: Lane) -> Lane:
    """x / 2^count with a floor, also where the count is not below the width."""
    within, safe = _guarded(b, count)
    if not is_signed(x.dtype):
        shifted = Lane(b.function.binary("lshr", x.value, safe.value), x.dtype)
        return b.select(within, shifted, b.const(0, x.dtype))
    last = b.const(bits_of(x.dtype) - 1, x.dtype)
    return Lane(b.function.binary("ashr", x.value, b.select(within, count, last).value), x.dtype)


def _guarded(b: LaneBuilder, count: Lane) -> tuple[Lane, Lane]:
    """A flag that the count is below the width (and not negative), and its bits within the width."""
    width = bits_of(count.dtype)
    within = b.function.compare("icmp ult", count.value, b.const(width, count.dtype).value)
    return Lane(within, BOOL), b.bit_and(count, b.const(width - 1, count.dtype))
