"""sin, cos, tan of any angle: reduction by multiples of pi/2, exact also for huge ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from staticgrad.compiler.emit.elementary.exponent import estimated_inverse, sign_bit
from staticgrad.compiler.emit.elementary.number import (
    DOUBLE,
    Num,
    fast_two_sum,
    from_double,
    integer_parts,
    polynomial,
    quotient,
    to_double,
    two_product,
    two_sum,
)
from staticgrad.compiler.emit.elementary.rare import one_by_one, rarely
from staticgrad.compiler.emit.llvm import Function, Value

# pi/2 in three parts of 33, 33 and 53 bits (as in FreeBSD's msun)
HALF_PI_1 = 1.57079632673412561417e00
HALF_PI_2 = 6.07710050630396597660e-11
HALF_PI_3 = 2.02226624879595063154e-21
# the same of floats: with fused multiply-adds the first step is exact
HALF_PI_FLOATS = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
HALF_PI = math.pi / 2
HALF_PI_REST = 6.123233995736766e-17
HALF_PI_LAST = -1.4973849048591698e-33

# beyond, the products with the parts of pi/2 are not exact any more
COMMON_ANGLE = 1.6e6
# beyond, HALF_PI with one or two rests is too short, also with fused multiply-adds
LARGE_ANGLE = 1e12
# beyond, a float's quotient by pi/2 is off by more than the polynomials allow
COMMON_FLOAT_ANGLE = 1e4

# (sin r - r)/r^3 and (cos r - 1 + r^2/2)/r^4 in r^2, |r| <= pi/4: float 2^-28.0, 2^-33.1; double 2^-57.9, 2^-64.1;
# for tan of float where it is computed in double: 2^-32.5, 2^-37.2
SIN = {
    "float": (-1.6666655e-01, 8.332187e-03, -1.9517787e-04),
    "double": (
        -0.1666666666666663, 0.008333333333321792, -0.00019841269829287168, 2.7557313504101754e-06,
        -2.505072768589282e-08, 1.5894977618288248e-10,
    ),
}  # fmt: skip
COS = {
    "float": (4.1666646e-02, -1.3887301e-03, 2.4430698e-05),
    "double": (
        0.041666666666666595, -0.00138888888888733, 2.480158728894453e-05, -2.7557314190805207e-07,
        2.0875700541901674e-09, -1.1358433737901392e-11,
    ),
}  # fmt: skip
SIN_SHORT = (-1.6666667e-01, 8.33338e-03, -1.9853472e-04, 2.8367062e-06)
COS_SHORT = (4.1666668e-02, -1.3888981e-03, 2.482245e-05, -2.891847e-07)

# tan r/r = (1 + z·A(z))/(1 + z·B(z)) in z = r^2, |r| <= pi/4: 2^-28.0 and 2^-57.6
TAN_ABOVE = {
    "float": (-1.00136865e-01,),
    "double": (-0.13337978438944473, 0.003424436875083904, -1.7854147032507384e-05),
}
TAN_BELOW = {
    "float": (-4.334702e-01, 1.1156708e-02, 1.0900057e-04),
    "double": (-0.46671311772277807, 0.025662142782676624, -0.0003117400131420735, 4.978314505858376e-07),
}

# 2/pi in binary, 1168 bits after the point
TWO_OVER_PI_BITS = 1168


def _two_over_pi() -> int:
    """floor(2^1168 · 2/pi), with pi from Machin's formula in integers."""
    scale = 1 << (TWO_OVER_PI_BITS + 64)

    def arctan_of_inverse(n: int) -> int:
        power, total, k = scale // n, 0, 0
        while power:
            total += (-power if k % 2 else power) // (2 * k + 1)
            power, k = power // (n * n), k + 1
        return total

    pi = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
    return (2 * scale << TWO_OVER_PI_BITS) // pi


QUADRANT, REDUCED, REDUCED_REST = 0, 1, 2


def _write_reduction(f: Function) -> None:
    """A scalar reduction of huge angles by multiples of pi/2 (Payne & Hanek, SIGNUM Newsletter 18, 1983).

    Called with a double and what is wanted of it: the quadrant (mod 4), the reduced angle, or the rest that the
    latter's rounding left. The angle is an integer m·2^e; of m·2/pi those 192 bits are computed that count.
    """
    digits = np.frombuffer(_two_over_pi().to_bytes(160, "little"), np.uint8)
    x, wanted = (Num(f, p) for p in f.params)
    exponent, mantissa = integer_parts(x)
    exponent = (abs(x) < math.inf).where(exponent - 1075, 0)
    place = exponent.const(TWO_OVER_PI_BITS) - exponent
    start = (place - 183) >> 3
    shift = place - (start << 3)  # between 183 and 190: the product's weight is 2^-shift
    address = f.offset(f.symbol(f.module.table("two_over_pi", digits)), start.value, "i8")
    # Elsewhere LLVM calls functions of the compiler's own library for integers so wide, which a process may not have.
    is_wide = f.word == "i64" and not f.target.machine.compact
    multiply = _fraction if is_wide else _fraction_by_limbs
    quadrant, negative, zeros, upper, middle = multiply(mantissa, address, shift.const(190) - shift)
    first = (upper >> 11).convert("sitofp", "double") * 2.0**-53
    second = (((upper & 0x7FF) << 42) | (middle >> 22)).convert("sitofp", "double") * 2.0**-106
    product_hi, product_lo = two_product(first, first.const(HALF_PI))
    angle, rest = fast_two_sum(product_hi, product_lo + first * HALF_PI_REST + second * HALF_PI)
    power = ((zeros.const(1023) - zeros) << 52).real()
    sign = x.const(1.0).copysign(x)
    power = negative.where(-power, power) * sign
    quadrant = (sign < 0.0).where(quadrant.const(0) - quadrant, quadrant) & 3
    chosen = wanted.equals(REDUCED).where(angle * power, rest * power)
    chosen = wanted.equals(QUADRANT).where(quadrant.convert("sitofp", "double"), chosen)
    f.ret((chosen + (x - x)).value)  # NaN for NaN and infinities


def _fraction(mantissa: Num, address: Value, shift: Num) -> tuple[Num, Num, Num, Num, Num]:
    """The product of 192 bits of a mantissa with those at an address, times 2^shift, as a number of quarters of 2^192:
    the nearest quarter, True if the rest is negative, the zeros before the rest's first bit and the 128 bits from that
    one on, in two words."""
    f = mantissa.f
    window = Num(f, f.emit("i192", f"load i192, {address}, align 1"))
    product = mantissa.convert("zext", "i192") * window
    product = product << shift.convert("zext", "i192")
    quadrant = ((product + (1 << 189)) >> 190).convert("trunc", "i64")
    fraction = product << 2
    negative = Num(f, f.compare("icmp slt", fraction.value, fraction.lift(0)))
    fraction = negative.where(fraction.const(0) - fraction, fraction)
    zeros = Num(f, f.intrinsic("llvm.ctlz.i192", "i192", fraction.value, Value("false", "i1")))
    normal = fraction << (zeros & 127)
    upper = (normal >> 128).convert("trunc", "i64")
    middle = (normal >> 64).convert("trunc", "i64")
    return quadrant, negative, zeros.convert("trunc", "i64"), upper, middle


def _fraction_by_limbs(mantissa: Num, address: Value, shift: Num) -> tuple[Num, Num, Num, Num, Num]:
    """``_fraction`` in words of 64 bits, products in limbs of 32: for machines on which LLVM would call functions for
    longer integers."""
    f, ones = mantissa.f, (1 << 32) - 1
    window = [Num(f, f.emit("i32", f"load i32, {f.offset(address, i, 'i32')}, align 1")) for i in range(6)]
    limbs = [limb.convert("zext", "i64") for limb in window]
    product: list[Num] = []
    for start, factor in enumerate((mantissa & ones, mantissa >> 32)):
        carry = mantissa.const(0)
        for place in range(start, 6):
            term = factor * limbs[place - start] + carry
            if start:
                term = term + product[place]
            product[place : place + 1] = [term & ones]
            carry = term >> 32
    low, middle, high = (product[i] | (product[i + 1] << 32) for i in (0, 2, 4))

    def moved(high: Num, low: Num, count: Num | int) -> Num:
        by = high.lift(count)
        return Num(f, f.intrinsic("llvm.fshl.i64", "i64", high.value, low.value, by))

    zero = high.const(0)
    low, middle, high = moved(low, zero, shift), moved(middle, low, shift), moved(high, middle, shift)
    quadrant = (high + (1 << 61)) >> 62
    low, middle, high = moved(low, zero, 2), moved(middle, low, 2), moved(high, middle, 2)
    negative = Num(f, f.compare("icmp slt", high.value, high.lift(0)))
    flip = negative.where(high.const(-1), 0)
    borrow_low = low.equals(0)
    borrow_both = borrow_low & middle.equals(0)
    one = flip & 1
    low = (low ^ flip) + one
    middle = (middle ^ flip) + borrow_low.where(one, 0)
    high = (high ^ flip) + borrow_both.where(one, 0)
    far = high.equals(0)
    first, second, third = far.where(middle, high), far.where(low, middle), far.where(zero, low)
    within = Num(f, f.intrinsic("llvm.ctlz.i64", "i64", first.value, Value("false", "i1")))
    upper, lower = moved(first, second, within), moved(second, third, within)
    return quadrant, negative, within + far.where(high.const(64), 0), upper, lower


def _reduce_angle(x: Num, *, exact: bool = False) -> tuple[Num, Num, Num | None]:
    """x = r + n·pi/2: the quadrant n (in the lowest bits of integers), r, and for ``exact`` the rest of its rounding.

    In double, |r| <= pi/4 and a little, for any finite x; NaN otherwise.
    """
    biased = x.fma(2.0 / math.pi, DOUBLE.magic)
    n = biased - DOUBLE.magic
    first = n.fma(-HALF_PI_1, x)
    r, left = fast_two_sum(first, -(n * HALF_PI_2))  # the product is exact, and first 0 or a multiple of a larger unit
    left = n.fma(-HALF_PI_3, left)
    common = [biased, *fast_two_sum(r, left)] if exact else [biased, r + left]
    large = abs(x) > COMMON_ANGLE

    def reduce_large() -> list[Num]:
        if x.f.target.isa.fuses(x.element):
            return _where(large, _reduce_large(x, len(common)), common)
        return _unless_huge(x, COMMON_ANGLE, common)

    biased, reduced, *rest = rarely(large, common, reduce_large)
    return biased.bits(), reduced, rest[0] if rest else None


def _reduce_widened_angle(x: Num) -> tuple[Num, Num]:
    """As ``_reduce_angle`` for doubles that were floats beyond 1, not ``exact``. With fused multiply-adds two parts of
    pi/2 do for larger ones: x - n·HALF_PI is exact, a multiple of 2^-52 below 1."""
    if not x.f.target.isa.fuses(x.element):
        quadrant, reduced, _ = _reduce_angle(x)
        return quadrant, reduced
    biased = x.fma(2.0 / math.pi, DOUBLE.magic)
    n = biased - DOUBLE.magic
    common = [biased, n.fma(-HALF_PI_REST, n.fma(-HALF_PI, x))]
    biased, reduced = _unless_huge(x, LARGE_ANGLE, common)
    return biased.bits(), reduced


def _reduce_large(x: Num, count: int) -> list[Num]:
    """The biased quadrant, the reduced angle and (for a ``count`` of 3) its rest, of doubles beyond 1 with fused
    multiply-adds: x - n·HALF_PI is exact, a multiple of 2^-52 below 1, and the product with HALF_PI_REST is taken in
    two parts."""
    biased = x.fma(2.0 / math.pi, DOUBLE.magic)
    n = biased - DOUBLE.magic
    product, product_rest = two_product(n, n.const(-HALF_PI_REST))
    r, left = two_sum(n.fma(-HALF_PI, x), product)
    left = left + n.fma(-HALF_PI_LAST, product_rest)
    parts = list(fast_two_sum(r, left)) if count == 3 else [r + left]
    return _unless_huge(x, LARGE_ANGLE, [biased, *parts])


def _where(mask: Num, yes: Sequence[Num], no: Sequence[Num]) -> list[Num]:
    return [mask.where(one, other) for one, other in zip(yes, no, strict=True)]


def _unless_huge(x: Num, largest: float, common: Sequence[Num]) -> list[Num]:
    """``common``, the biased quadrant and the reduced angle in its parts, found by long multiplication where |x| is
    larger than ``largest``. That of infinities is NaN in ``common`` already."""
    name = x.f.module.leaf("reduce_angle", ["double", "double"], _write_reduction, result="double")
    huge = (abs(x) > largest) & (abs(x) < math.inf)

    def reduce_huge() -> list[Num]:
        angle = huge.where(x, largest)
        quadrant, *parts = (one_by_one(name, [angle, x.const(which)]) for which in range(len(common)))
        return _where(huge, [quadrant + DOUBLE.magic, *parts], common)

    return rarely(huge, common, reduce_huge)


def _reduce_float_angle(x: Num, *, exact: bool = False) -> tuple[Num, Num, Num | None]:
    """As ``_reduce_angle`` for floats: in float where angles are common and multiply-adds round once; ``exact`` only
    there."""

    def reduce_in_double() -> list[Num]:
        quadrant, wide = _reduce_widened_angle(to_double(x))
        r = wide.convert("fptrunc", "float")
        rest = [(wide - to_double(r)).convert("fptrunc", "float")] if exact else []
        return [quadrant.convert("trunc", "i32"), r, *rest]

    if not x.f.target.isa.fuses(x.element):
        quadrant, r = reduce_in_double()
        return quadrant, r, None
    first, second, third = HALF_PI_FLOATS
    biased = x.fma(2.0 / math.pi, x.format.magic)
    n = biased - x.format.magic
    near = n.fma(-first, x)
    if exact:
        product, error = two_product(n, n.const(second))
        r, rest = fast_two_sum(near, -product)  # near is 0 or a unit of x, which is more than the product
        common = [biased.bits(), r, n.fma(-third, rest - error)]
    else:
        common = [biased.bits(), n.fma(-third, n.fma(-second, near))]
    far = abs(x) > COMMON_FLOAT_ANGLE

    def reduce_far() -> list[Num]:
        return _where(far, reduce_in_double(), common)

    quadrant, r, *rests = rarely(far, common, reduce_far)
    return quadrant, r, rests[0] if rests else None


def _sin_reduced(r: Num, z: Num, coefficients: Sequence[float]) -> Num:
    return polynomial(z, coefficients).fma(r * z, r)


def _cos_reduced(z: Num, coefficients: Sequence[float]) -> Num:
    return polynomial(z, coefficients).fma(z, -0.5).fma(z, 1.0)


def _circular(x: Num, ahead: int) -> Num:
    """sin of x + ahead·pi/2."""
    quadrant, r, _ = _reduce_float_angle(x) if x.element == "float" else _reduce_angle(x)
    if ahead:
        quadrant = quadrant + ahead
    z = r * r
    sine, cosine = _sin_reduced(r, z, SIN[x.element]), _cos_reduced(z, COS[x.element])
    value = (quadrant & 1).differs(0).where(cosine, sine)
    sign = (quadrant & 2) << (30 if x.element == "float" else 62)
    return (value.bits() ^ sign).real()


def sin(x: Num) -> Num:
    return _negated(_circular(abs(x), 0), x)


def _negated(value: Num, x: Num) -> Num:
    """``value``, which is an odd function of |x|, with the sign of that of ``x``."""
    return (value.bits() ^ (x.bits() & sign_bit(x.format))).real()


def cos(x: Num) -> Num:
    return _circular(x, 1)


def _tan_of_float(quadrant: Num, r: Num, rest: Num) -> Num:
    """By an estimated inverse, and with what is left of the division then."""
    z = r * r
    curved = polynomial(z, TAN_ABOVE["float"]) * z
    above = curved.fma(r, r)
    rest = curved.fma(r, r - above) + rest
    below = polynomial(z, TAN_BELOW["float"]).fma(z, 1.0)
    odd = (quadrant & 1).differs(0)
    upper, lower = odd.where(-below, above), odd.where(above, below)
    inverse = estimated_inverse(lower)
    q = upper * inverse
    return odd.where(-q, 1.0).fma(rest, (-q).fma(lower, upper)).fma(inverse, q)


def _tan_of_double(quadrant: Num, r: Num, rest: Num) -> Num:
    """With what the roundings of both sums and of the division leave."""
    z = r * r
    curved = polynomial(z, TAN_ABOVE["double"]) * z
    above = curved.fma(r, r)
    above_rest = curved.fma(r, r - above) + rest
    below, below_rest = fast_two_sum(z.const(1.0), polynomial(z, TAN_BELOW["double"]) * z)
    odd = (quadrant & 1).differs(0)
    upper = odd.where(-below, above), odd.where(-below_rest, above_rest)
    return quotient(*upper, odd.where(above, below), odd.where(above_rest, below_rest))


def tan(x: Num) -> Num:
    """(r + r·z·A(z)) / (1 + z·B(z)) of the reduced angle, or minus the inverse of that, z = r²; of floats without fused
    multiply-adds sin/cos in double."""
    t = abs(x)
    if x.element == "double":
        quadrant, r, rest = _reduce_angle(t, exact=True)
    elif x.f.target.isa.fuses(x.element):
        quadrant, r, rest = _reduce_float_angle(t, exact=True)
    else:
        quadrant, r, rest = _reduce_angle(to_double(t))
    if rest is not None:
        result = (_tan_of_double if x.element == "double" else _tan_of_float)(quadrant, r, rest)
    else:
        z, odd = r * r, (quadrant & 1).differs(0)
        sine, cosine = _sin_reduced(r, z, SIN_SHORT), _cos_reduced(z, COS_SHORT)
        result = from_double(odd.where(-cosine, sine) / odd.where(sine, cosine), x)
    return _negated(result, x)
