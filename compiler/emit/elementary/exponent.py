"""Scaling by powers of two, and taking exponent and mantissa apart; AVX-512 has instructions for both."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from staticgrad.compiler.emit.elementary.number import FLOAT, Format, Num
from staticgrad.compiler.emit.llvm import Value, vector


def has_scale(x: Num) -> bool:
    """True if the target scales by powers of two, and takes exponent and mantissa apart, in one instruction."""
    return x.f.target.isa.scales


def per_register(x: Num, others: Sequence[Num], write: Callable[[Sequence[Num], int], Num], shortest: int = 128) -> Num:
    """Apply ``write(operands, bits)`` to pieces of at most one 512-bit register and put the results together; what is
    shorter than the ``shortest`` register that will do is the beginning of one. All have the width of ``x``."""
    width = x.lanes * (32 if x.element == "float" else 64)
    if width < shortest:
        return _first(write([_extended(v, shortest // width) for v in (x, *others)], shortest), x.lanes)
    if width <= 512:
        return write((x, *others), width)
    half = x.lanes // 2
    parts = []
    for lanes in (range(half), range(half, 2 * half)):
        low, *rest = (Num(x.f, x.f.shuffle(v.value, None, lanes)) for v in (x, *others))
        parts.append(per_register(low, rest, write, shortest).value)
    return Num(x.f, x.f.shuffle(parts[0], parts[1], range(2 * half)))


def _extended(x: Num, times: int) -> Num:
    """``x`` in the first lanes of ``times`` their number; what the others hold is open for a scalar."""
    if x.lanes == 1:
        return Num(x.f, x.f.insert(Value("poison", vector(x.element, times)), x.value, 0))
    return Num(x.f, x.f.shuffle(x.value, None, list(range(x.lanes)) * times))


def _first(x: Num, lanes: int) -> Num:
    """The first lanes of a vector; a scalar if it is one."""
    return Num(x.f, x.f.extract(x.value, 0) if lanes == 1 else x.f.shuffle(x.value, None, range(lanes)))


def _avx512(name: str, operands: Sequence[Num], bits: int, immediate: int | None = None) -> Num:
    """The masked form of an instruction with every lane on and the current rounding mode."""
    first = operands[0]
    kind = "ps" if first.element == "float" else "pd"
    mask_type = f"i{max(8, first.lanes)}"
    values = [v.value for v in operands]
    if immediate is not None:
        values.append(Value(str(immediate), "i32"))
    values += [Value("zeroinitializer", first.value.type), Value("-1", mask_type)]
    if bits == 512:
        values.append(Value("4", "i32"))
    name = f"llvm.x86.avx512.mask.{name}.{kind}.{bits}"
    return Num(first.f, first.f.intrinsic(name, first.value.type, *values))


def inverse(x: Num) -> Num:
    """1/x within one unit in the last place, for positive finite x whose inverse is normal. Float on AVX-512 by a step
    of Newton's on the instruction's 14 bits: the divider would be held up for longer than the step takes."""
    found = estimated_inverse(x)
    return (-x).fma(found, 1.0).fma(found, found) if _has_estimate(x) else found


def estimated_inverse(x: Num) -> Num:
    """1/x of 14 bits at least, for finite x whose inverse is normal."""
    if not _has_estimate(x):
        return 1.0 / x

    def estimate(operands: Sequence[Num], bits: int) -> Num:
        (v,) = operands
        zero, mask = Value("zeroinitializer", v.value.type), Value("-1", f"i{max(8, v.lanes)}")
        return Num(x.f, x.f.intrinsic(f"llvm.x86.avx512.rcp14.ps.{bits}", v.value.type, v.value, zero, mask))

    return per_register(x, [], estimate)


def _has_estimate(x: Num) -> bool:
    return x.f.target.isa.estimates and x.format is FLOAT


def power_of_two(n: Num) -> Num:
    """2^n of integral n in the range of normal numbers."""
    form = n.format
    return (((n + form.magic).bits() << form.mantissa) + form.one).real()


def scaled(x: Num, n: Num) -> Num:
    """x·2^n for integral n and x below 2: rounded once also where the result is denormal, infinite on overflow.

    Where the result is 0, ``x`` becomes 0 beforehand: x86 takes more than 100 cycles for an operation that underflows.
    """
    return times_power((n < n.format.vanishing).where(0.0, x), n)


def times_power(x: Num, n: Num) -> Num:
    """As ``scaled``, at the same speed only where the result is normal, 0 of 0, or infinite. The target that scales in
    one instruction takes any n; others take those between twice the exponents of the smallest and the largest power."""
    if has_scale(x):
        return per_register(x, [n], lambda operands, bits: _avx512("scalef", operands, bits))
    form = n.format
    biased = (n + (form.magic + 2.0 * form.bias)).bits()  # once the bias for each of two factors
    half = biased >> 1
    return x * (half << form.mantissa).real() * ((biased - half) << form.mantissa).real()


def mantissa_and_exponent(x: Num) -> tuple[Num, Num]:
    """x = mantissa·2^exponent, mantissa in [0.75, 1.5), exponent as a float, for positive finite x, denormal or not.

    On AVX-512 also: exponent -inf for 0, inf for inf, mantissa NaN for negative x and NaN.
    """
    form = x.format
    if has_scale(x):
        mantissa, exponent = _taken_apart(x, 0b11)
        return mantissa, (mantissa < 1.0).where(exponent + 1.0, exponent)
    tiny = x < form.smallest_normal
    lift = form.mantissa + 2
    normal = tiny.where(x * 2.0**lift, x).bits()
    carried = normal + (1 << (form.mantissa - 1))  # the exponent goes up where the mantissa is 1.5 or more
    mantissa = (normal - (carried & (-1 << form.mantissa)) + form.one).real()
    base = 2.0**form.mantissa
    exponent = ((carried >> form.mantissa) | bits_of(base, form)).real()
    return mantissa, exponent - tiny.where(x.const(base + form.bias + lift), base + form.bias)


def whole_exponent(x: Num) -> tuple[Num, Num]:
    """As ``mantissa_and_exponent`` on AVX-512, with mantissa in [1, 2): one instruction for each of both."""
    return _taken_apart(x, 0b00)


def _taken_apart(x: Num, interval: int) -> tuple[Num, Num]:
    """The mantissa in [1, 2) or, for 0b11, in [3/4, 3/2), NaN for negative operands; floor(log2 |x|)."""
    mantissa = per_register(x, [], lambda operands, bits: _avx512("getmant", operands, bits, 0b1000 | interval))
    return mantissa, per_register(x, [], lambda operands, bits: _avx512("getexp", operands, bits))


def bits_of(value: float, form: Format) -> int:
    if form is FLOAT:
        return int(np.float32(value).view(np.int32))
    return int(np.float64(value).view(np.int64))


def sign_bit(form: Format) -> int:
    return -1 << (31 if form is FLOAT else 63)
