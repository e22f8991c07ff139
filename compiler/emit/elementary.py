"""Elementary functions as vector code: values of lanes go in, LLVM IR is written, values of lanes come out.

Every function takes and gives ``Num``: float or double, for one lane or many, with the same bits for any number of
lanes. Nothing calls a C library; the special values are those of C's Annex F. Two cases leave the straight line, by a
branch that is taken if any lane needs it: huge angles, and remainders whose quotient is huge. Writers of loops must
therefore ask ``Function.current_block`` after the body where they need its last block.

Errors are below 2 units of the last place, denormal results included, but for sigmoid (2.5), and of doubles tan
(2.5), erfinv (4) and erfc from 0.8 on (5); targets without a fused multiply-add hold the same bounds.
``tests/test_elementary.py`` checks them against mpmath. Methods: argument reduction in two or three parts (Cody &
Waite, *Software Manual for the Elementary Functions*, 1980), then a polynomial.

Coefficients: weighted minimax polynomials in the relative error of the function (Remez exchange in 38 digits with
mpmath); the first ones were rounded to the format one after another and the rest fitted again. Each table says
interval, what is approximated, and the largest error after rounding. Rational functions interpolate at Chebyshev nodes.

Two rules keep LLVM's undefined cases away: rounding adds a magic number (a float-to-integer conversion of NaN would be
poison), and clamping compares so that NaN stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from staticgrad.compiler.emit.llvm import Function, Module, Value, element_of, lanes_of
from staticgrad.frozen import frozen

# -- values with operators ------------------------------------------------------------------------------------------


@frozen
class Num:
    """Lanes of one LLVM type with Python's operators: float, double, integers, or i1 masks.

    Numbers on the other side become constants. ``>>`` is the logical shift.
    """

    f: Function
    value: Value

    @property
    def element(self) -> str:
        return element_of(self.value.type)

    @property
    def lanes(self) -> int:
        return lanes_of(self.value.type)

    def lift(self, other: Num | float) -> Value:
        return other.value if isinstance(other, Num) else self.f.const(other, self.value.type)

    def const(self, value: float) -> Num:
        return Num(self.f, self.f.const(value, self.value.type))

    def _binary(self, real: str, whole: str, other: Num | float) -> Num:
        op = real if self.element in ("float", "double") else whole
        return Num(self.f, self.f.binary(op, self.value, self.lift(other)))

    def _compare(self, op: str, other: Num | float) -> Num:
        return Num(self.f, self.f.compare(op, self.value, self.lift(other)))

    def __add__(self, other: Num | float) -> Num:
        return self._binary("fadd", "add", other)

    def __sub__(self, other: Num | float) -> Num:
        return self._binary("fsub", "sub", other)

    def __rsub__(self, other: float) -> Num:
        return self.const(other) - self

    def __mul__(self, other: Num | float) -> Num:
        return self._binary("fmul", "mul", other)

    def __truediv__(self, other: Num | float) -> Num:
        return self._binary("fdiv", "fdiv", other)

    def __rtruediv__(self, other: float) -> Num:
        return self.const(other) / self

    def __neg__(self) -> Num:
        return Num(self.f, self.f.emit(self.value.type, f"fneg {self.value}"))

    def __and__(self, other: Num | float) -> Num:
        return self._binary("and", "and", other)

    def __or__(self, other: Num | float) -> Num:
        return self._binary("or", "or", other)

    def __xor__(self, other: Num | float) -> Num:
        return self._binary("xor", "xor", other)

    def __lshift__(self, other: Num | float) -> Num:
        return self._binary("shl", "shl", other)

    def __rshift__(self, other: Num | float) -> Num:
        return self._binary("lshr", "lshr", other)

    def __abs__(self) -> Num:
        return self.intrinsic("fabs")

    # ordered comparisons of floats: false for NaN
    def __lt__(self, other: Num | float) -> Num:
        return self._compare("fcmp olt", other)

    def __gt__(self, other: Num | float) -> Num:
        return self._compare("fcmp ogt", other)

    def __le__(self, other: Num | float) -> Num:
        return self._compare("fcmp ole", other)

    def __ge__(self, other: Num | float) -> Num:
        return self._compare("fcmp oge", other)

    def equals(self, other: Num | float) -> Num:
        return self._compare("fcmp oeq" if self.element in ("float", "double") else "icmp eq", other)

    def differs(self, other: Num | float) -> Num:
        return self._compare("fcmp une" if self.element in ("float", "double") else "icmp ne", other)

    def unordered(self, other: Num | float) -> Num:
        return self._compare("fcmp uno", other)

    def where(self, yes: Num | float, no: Num | float) -> Num:
        """Of an i1 mask: ``yes`` in the lanes where it is on, else ``no``; one of them must be a ``Num``."""
        like = yes if isinstance(yes, Num) else no
        if not isinstance(like, Num):
            raise TypeError("one of the choices must be a Num, for its type")
        return Num(self.f, self.f.select(self.value, like.lift(yes), like.lift(no)))

    def fma(self, factor: Num | float, addend: Num | float) -> Num:
        """self·factor + addend, rounded once where the target has the instruction."""
        return Num(self.f, self.f.fma(self.value, self.lift(factor), self.lift(addend)))

    def intrinsic(self, name: str, *others: Num) -> Num:
        """``llvm.<name>``, overloaded on this type, with operands of this type."""
        whole = f"llvm.{name}.{self.f.suffix(self.value.type)}"
        return Num(self.f, self.f.intrinsic(whole, self.value.type, self.value, *(o.value for o in others)))

    def convert(self, op: str, element: str) -> Num:
        return Num(self.f, self.f.cast(op, self.value, element))

    @property
    def format(self) -> Format:
        return FORMATS[self.element]

    def bits(self) -> Num:
        return self.convert("bitcast", self.format.integer)

    def real(self) -> Num:
        return self.convert("bitcast", "float" if self.element == "i32" else "double")

    def copysign(self, sign: Num) -> Num:
        return self.intrinsic("copysign", sign)

    def sqrt(self) -> Num:
        return self.intrinsic("sqrt")

    def at_most(self, bound: float) -> Num:
        """min(self, bound), NaN stays: one instruction on x86 in this order of operands."""
        limit = self.const(bound)
        return (limit < self).where(limit, self)

    def at_least(self, bound: float) -> Num:
        """max(self, bound), NaN stays."""
        limit = self.const(bound)
        return (limit > self).where(limit, self)


@frozen
class Format:
    """What is known about a float format."""

    element: str
    integer: str
    mantissa: int  # stored bits
    bias: int
    ln2_hi: float  # so few bits that a product with any exponent is exact
    ln2_lo: float
    smallest_normal: float
    exp_low: float  # exp is 0 below
    exp_high: float  # exp is infinite above

    @property
    def magic(self) -> float:
        """x + magic - magic is x rounded to an integer, and the sum's lowest bits are this integer."""
        return 1.5 * 2.0**self.mantissa

    @property
    def one(self) -> int:
        """The bits of 1.0."""
        return self.bias << self.mantissa


FLOAT = Format("float", "i32", 23, 127, 0.693145751953125, 1.4286068203094172e-06, 2.0**-126, -104.0, 89.0)
DOUBLE = Format(
    "double", "i64", 52, 1023, 0.693147180369123816490, 1.90821492927058770002e-10, 2.0**-1022, -746.0, 710.0
)
FORMATS = {"float": FLOAT, "double": DOUBLE}


def polynomial(x: Num, coefficients: Sequence[float]) -> Num:
    """Σ coefficients[k]·x^k: Horner's scheme, of the even and the odd terms side by side from degree 7 on."""
    if len(coefficients) < 8:
        return _horner(x, coefficients)
    square = x * x
    return _horner(square, coefficients[1::2]).fma(x, _horner(square, coefficients[0::2]))


def _horner(x: Num, coefficients: Sequence[float]) -> Num:
    result = x.const(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result.fma(x, coefficient)
    return result


def fast_two_sum(a: Num, b: Num) -> tuple[Num, Num]:
    """a + b as rounded sum and exact error, where |a| >= |b| or a is 0 (Dekker 1971)."""
    total = a + b
    return total, b - (total - a)


def two_product(a: Num, b: Num) -> tuple[Num, Num]:
    """a·b as rounded product and exact error: with one fma, else by Dekker's splitting (1971)."""
    product = a * b
    if a.f.target.fma:
        return product, a.fma(b, -product)
    a_hi, a_lo = _halves(a)
    b_hi, b_lo = _halves(b)
    return product, a_hi * b_hi - product + a_hi * b_lo + a_lo * b_hi + a_lo * b_lo


def _halves(a: Num) -> tuple[Num, Num]:
    """Veltkamp's splitting: a = hi + lo with half the bits each."""
    scaled = a * (2.0 ** ((a.format.mantissa + 2) // 2) + 1.0)
    high = scaled - (scaled - a)
    return high, a - high


def to_double(x: Num) -> Num:
    return x.convert("fpext", "double") if x.element == "float" else x


def from_double(y: Num, x: Num) -> Num:
    """``y`` in the format of ``x``."""
    return y.convert("fptrunc", "float") if x.element == "float" else y


# -- rounding to integers -------------------------------------------------------------------------------------------


def _has_rounding(x: Num) -> bool:
    return "+avx" in x.f.target.features


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


# -- AVX-512's instructions for exponents ---------------------------------------------------------------------------


def _has_scale(x: Num) -> bool:
    """Whether the target scales by powers of two, and takes exponent and mantissa apart, in one instruction."""
    return x.f.target.name == "avx512" and x.lanes * (4 if x.element == "float" else 8) >= 16


def _per_register(x: Num, others: Sequence[Num], write: Callable[[Sequence[Num], int], Num]) -> Num:
    """Apply ``write(operands, bits)`` to pieces of at most one 512-bit register and put the results together."""
    width = x.lanes * (32 if x.element == "float" else 64)
    if width <= 512:
        return write((x, *others), width)
    half = x.lanes // 2
    parts = []
    for lanes in (range(half), range(half, 2 * half)):
        low, *rest = (Num(x.f, x.f.shuffle(v.value, None, lanes)) for v in (x, *others))
        parts.append(_per_register(low, rest, write).value)
    return Num(x.f, x.f.shuffle(parts[0], parts[1], range(2 * half)))


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


def _power_of_two(n: Num) -> Num:
    """2^n of integral n in the range of normal numbers."""
    form = n.format
    return (((n + form.magic).bits() << form.mantissa) + form.one).real()


def _scale(x: Num, n: Num) -> Num:
    """x·2^n for integral n and x near 1: rounded once also where the result is denormal, infinite on overflow."""
    if _has_scale(x):
        return _per_register(x, [n], lambda operands, bits: _avx512("scalef", operands, bits))
    half = n.fma(0.5, n.format.magic) - n.format.magic
    return x * _power_of_two(half) * _power_of_two(n - half)


def _split(x: Num) -> tuple[Num, Num]:
    """x = mantissa·2^exponent, mantissa in [0.75, 1.5), exponent as a float, for positive finite x, denormal or not.

    On AVX-512 also: exponent -inf for 0, inf for inf, mantissa NaN for negative x and NaN.
    """
    form = x.format
    if _has_scale(x):
        # interval [3/4, 3/2), NaN for negative operands
        mantissa = _per_register(x, [], lambda operands, bits: _avx512("getmant", operands, bits, 0b1011))
        exponent = _per_register(x, [], lambda operands, bits: _avx512("getexp", operands, bits))
        return mantissa, (mantissa < 1.0).where(exponent + 1.0, exponent)
    tiny = x < form.smallest_normal
    lift = form.mantissa + 2
    normal = tiny.where(x * 2.0**lift, x).bits()
    carried = normal + (1 << (form.mantissa - 1))  # the exponent goes up where the mantissa is 1.5 or more
    mantissa = (normal - (carried & (-1 << form.mantissa)) + form.one).real()
    base = 2.0**form.mantissa
    exponent = ((carried >> form.mantissa) | _bits_of(base, form)).real()
    return mantissa, exponent - tiny.where(x.const(base + form.bias + lift), base + form.bias)


def _bits_of(value: float, form: Format) -> int:
    if form is FLOAT:
        return int(np.float32(value).view(np.int32))
    return int(np.float64(value).view(np.int64))


# -- exp and its relatives ------------------------------------------------------------------------------------------

# (e^r - 1 - r) / r^2 on |r| <= ln2/2, relative to e^r - 1: 2^-26.1 and 2^-61.3
EXP = {
    "float": (4.9999997e-01, 1.6666538e-01, 4.166774e-02, 8.367311e-03, 1.3838173e-03),
    "double": (
        0.5, 0.1666666666666668, 0.04166666666666672, 0.008333333333318926, 0.0013888888888842197,
        0.000198412698933886, 2.4801587428705436e-05, 2.755723668361071e-06, 2.755717603467725e-07,
        2.511168962534755e-08, 2.0945733344840744e-09,
    ),
}  # fmt: skip

# the same for results in float that are computed in double: 2^-37.1
EXP_SHORT = (
    0.5000000000107286, 0.1666666675549251, 0.041666665939657024, 0.008333288469749416, 0.0013888987402465856,
    0.00019905439521541229, 2.4794833273540128e-05,
)  # fmt: skip


def _reduce_exp(x: Num) -> tuple[Num, Num]:
    """x = n·ln2 + r with integral n and |r| <= ln2/2 (and a little)."""
    form = x.format
    n = x.fma(math.log2(math.e), form.magic) - form.magic
    return n, n.fma(-form.ln2_lo, n.fma(-form.ln2_hi, x))


def _expm1_reduced(r: Num, coefficients: Sequence[float] = ()) -> Num:
    """e^r - 1 of a reduced argument."""
    return polynomial(r, coefficients or EXP[r.element]).fma(r * r, r)


def exp(x: Num) -> Num:
    form = x.format
    n, r = _reduce_exp(x.at_most(form.exp_high).at_least(form.exp_low))
    return _scale(_expm1_reduced(r) + 1.0, n)


def _exp_of_sum(high: Num, low: Num, coefficients: Sequence[float] = ()) -> tuple[Num, Num]:
    """exp(high + low) as (mantissa, n), to be scaled by 2^n; ``low`` is tiny and ``high`` in the range of exp."""
    n, r = _reduce_exp(high)
    return _expm1_reduced(r + low, coefficients) + 1.0, n


def expm1(x: Num) -> Num:
    form = x.format
    lowest = -(form.mantissa + 3) * math.log(2)
    n, r = _reduce_exp(x.at_most(form.exp_high).at_least(lowest))
    # half the power, so that it is finite where the result still is
    scale = (((n + form.magic).bits() << form.mantissa) + (form.one - (1 << form.mantissa))).real()
    result = _expm1_reduced(r).fma(scale, scale - 0.5)
    return (result + result).copysign(x)


# (tanh x - x)/x^3 in x^2, x <= 5/8: 2^-27.8 and 2^-60.9
TANH = {
    "float": (-3.3333284e-01, 1.3331479e-01, -5.374216e-02, 2.064547e-02, -5.7106367e-03),
    "double": (
        -0.33333333333333315, 0.13333333333329964, -0.053968253966149744, 0.0218694884706472, -0.008863234336839635,
        0.0035921141923943743, -0.001455726945368142, 0.0005894551965518273, -0.00023701920852532712,
        9.15685029234024e-05, -3.019462934211994e-05, 6.044628427873712e-06,
    ),
}  # fmt: skip

# (sinh x - x)/x^3 in x^2, x <= 1: 2^-31.5 and 2^-61.7
SINH = {
    "float": (1.6666667e-01, 8.333311e-03, 1.984263e-04, 2.783981e-06),
    "double": (
        0.16666666666666669, 0.008333333333332915, 0.0001984126984158922, 2.7557319108503364e-06,
        2.505213067058023e-08, 1.6056687679058596e-10, 7.775667609305293e-13,
    ),
}  # fmt: skip


def tanh(x: Num) -> Num:
    """x + x³·P(x²) where |x| < 5/8, else 1 - 2/(1 + exp(2|x|)): neither cancels."""
    t = abs(x)
    square = t * t
    small = polynomial(square, TANH[x.element]).fma(square * t, t)
    twice = (t + t).at_most(19.0 if x.format is FLOAT else 40.0)
    n, r = _reduce_exp(twice)
    power = (_expm1_reduced(r) + 1.0) * _power_of_two(n)
    return (t < 0.625).where(small, 1.0 - 2.0 / (power + 1.0)).copysign(x)


def sigmoid(x: Num) -> Num:
    """With z = exp(-|x|): 1 / (1 + z), or z / (1 + z) for negative x."""
    n, r = _reduce_exp((-abs(x)).at_least(x.format.exp_low))
    z = _scale(_expm1_reduced(r) + 1.0, n)
    return (x < 0.0).where(z, 1.0) / (z + 1.0)


def sinh(x: Num) -> Num:
    """x + x³·P(x²) where |x| < 1, else e/2 - 1/(4·e/2) with e = e^|x|."""
    t = abs(x)
    square = t * t
    small = polynomial(square, SINH[x.element]).fma(square * t, t)
    half = _half_exp(t)
    return (t < 1.0).where(small, half - 0.25 / half).copysign(x)


def cosh(x: Num) -> Num:
    """e/2 + 1/(4·e/2) with e = e^|x|."""
    half = _half_exp(abs(x))
    return half + 0.25 / half


def _half_exp(x: Num) -> Num:
    """e^x / 2 for x >= 0: finite where sinh and cosh are."""
    n, r = _reduce_exp(x.at_most(x.format.exp_high + 1.0))
    return _scale(_expm1_reduced(r) + 1.0, n - 1.0)


# -- log and its relatives ------------------------------------------------------------------------------------------

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
    return exponent.fma(r.format.ln2_hi, r + _log_tail(r, exponent))


def _log_tail(r: Num, exponent: Num) -> Num:
    """log((1 + r)·2^exponent) less r and less exponent times the high part of ln 2."""
    form = r.format
    square = r * r
    if form is FLOAT:
        tail = exponent.fma(form.ln2_lo, polynomial(r, LOG_FLOAT) * (square * r))
        return square.fma(-0.5, tail)
    s = r / (r + 2.0)
    z = s * s
    half = square * 0.5
    rest = polynomial(z, LOG_DOUBLE).fma(z, half)
    return s.fma(rest, exponent * form.ln2_lo) - half


def log(x: Num) -> Num:
    mantissa, exponent = _split(x)
    result = _log_of(mantissa - 1.0, exponent)
    if _has_scale(x):  # the instructions gave -inf, inf and NaN where they belong
        return result
    result = (x < math.inf).where(result, x)
    return (x > 0.0).where(result, x.equals(0.0).where(x.const(-math.inf), x.const(math.nan)))


def log1p(x: Num) -> Num:
    """log of u = 1 + x, with r = (1+x)·2^-e - 1 computed from x itself, so that the rounding of u is not in it."""
    u = x + 1.0
    mantissa, exponent = _split(u)
    scale = _power_of_two(-exponent)
    r = (x < 2.0**60).where(x.fma(scale, scale - 1.0), mantissa - 1.0)
    result = _log_of(r, exponent)
    result = (u < math.inf).where(result, u)
    return (u > 0.0).where(result.copysign(x), u.equals(0.0).where(x.const(-math.inf), x.const(math.nan)))


# -- the error function ---------------------------------------------------------------------------------------------

# erf(t)/t - 1 in t^2: t <= 3/4, 2^-29.2; t <= 1, 2^-56.0
ERF_SMALL = {
    "float": (1.2837917e-01, -3.761262e-01, 1.1283379e-01, -2.6834335e-02, 5.1131537e-03, -6.737541e-04),
    "double": (
        0.12837916709551256, -0.37612638903183415, 0.11283791670942503, -0.0268661706431568, 0.005223977608272965,
        -0.00085483260897013, 0.00012055299495228193, -1.492483990642138e-05, 1.644881384161403e-06,
        -1.6219690347485127e-07, 1.376998795548152e-08, -7.890491147809288e-10,
    ),
}  # fmt: skip

# log(erfc(t)) on [3/4, 4], error in erf: 2^-30.6
ERF_LARGE_FLOAT = (
    1.3099691e-04, -1.1292989e+00, -6.337921e-01, -1.0778536e-01, 2.480004e-02, -4.051591e-03, 4.1055787e-04,
    -1.912882e-05,
)  # fmt: skip

# exp(t^2)·erfc(t)/q in q = 1/(1 + 3t/8) on t in [0.98, 6], error in erf: 2^-56.7
ERF_LARGE_DOUBLE = (
    0.21157192112223688, 0.211544242812776, 0.19708179492181988, 0.1636410707012556, 0.14417268466089203,
    0.0039058283815865506, 0.24917440693371276, -0.4493377174248981, 0.6664109198029189, -0.7359235810188884,
    0.4817595778879353, -0.16892302810073104, 0.024921989235249572,
)  # fmt: skip

# exp(t^2)·erfc(t)/q in q = 1/(1 + t/4): double on t in [0, 27.3], 2^-54.7; for float results on [0, 10.2], 2^-30.1
ERFCX = {
    "double": (
        0.14104739587945522, 0.1410473963604268, 0.13663965087219296, 0.12782445388976774, 0.11501108922583693,
        0.09906511944368052, 0.08086265925605565, 0.06360282362899859, 0.039980469644230604, 0.04559176651843536,
        -0.028520956373389156, 0.10490320137621788, -0.16070625200408803, 0.19562443772489235, -0.14301043180505957,
        -0.0204873128232098, 0.20996867338058778, -0.31253728234042916, 0.2738497821045221, -0.15473965938961456,
        0.055447943880493455, -0.011531602076415305, 0.0010666336264116506,
    ),
    "float": (
        0.14094543188619202, 0.14326951316094427, 0.11504674210306041, 0.25122521648011215, -0.3452431903769571,
        1.272767912272038, -1.998270883562544, 2.599062963693529, -2.0025593553707424, 1.0172857135349076,
        -0.1935300629482681,
    ),
}  # fmt: skip


def erf(x: Num) -> Num:
    """t + t·P(t²) for small t = |x|, else 1 - erfc(t), erfc(t) as exp of a polynomial (float) or times one (double)."""
    form = x.format
    t = abs(x).at_most(4.0 if form is FLOAT else 6.0)
    square = t * t
    small = polynomial(square, ERF_SMALL[x.element]).fma(t, t)
    if form is FLOAT:
        n, r = _reduce_exp(polynomial(t, ERF_LARGE_FLOAT))
        scale = _power_of_two(n)
        complement = _expm1_reduced(r).fma(scale, scale)
        cut = 0.75
    else:
        q = 1.0 / t.fma(0.375, 1.0)
        n, r = _reduce_exp(-square)
        complement = (_expm1_reduced(r) + 1.0) * (_power_of_two(n) * q) * polynomial(q, ERF_LARGE_DOUBLE)
        cut = 1.0
    return (t < cut).where(small, 1.0 - complement).copysign(x)


def erfc(x: Num) -> Num:
    """exp(-t²)·erfcx(t), t = |x|, with t² in two parts; float is computed in double. 2 - that for negative x;
    1 - erf(x) for small x in double.

    erfcx is q·P(q) with q = 1/(1 + t/4), after Shepherd & Laframboise (Math. Comp. 36, 1981), the rounding error of q
    put right.
    """
    wide = to_double(x)
    if x.element == "float":
        t = abs(wide).at_most(10.2)
        q = 1.0 / t.fma(0.25, 1.0)
        mantissa, n = _exp_of_sum(-(t * t), t.const(0.0), EXP_SHORT)
        return from_double(_reflect(mantissa * _power_of_two(n) * (q * polynomial(q, ERFCX["float"])), wide), x)
    t = abs(wide).at_most(27.3)
    q = 1.0 / t.fma(0.25, 1.0)
    product, error = two_product(q * 0.25, t)
    q = ((1.0 - q) - product - error).fma(q, q)
    high, low = two_product(t, t)
    mantissa, n = _exp_of_sum(-high, -low)
    far = _reflect(_scale(mantissa * (q * polynomial(q, ERFCX["double"])), n), wide)
    square = x * x
    near = 1.0 - polynomial(square, ERF_SMALL["double"]).fma(x, x)
    return (t < 0.8).where(near, far)


def _reflect(complement: Num, x: Num) -> Num:
    return (x < 0.0).where(2.0 - complement, complement)


# -- rare arguments -------------------------------------------------------------------------------------------------


def any_lane(mask: Num) -> Value:
    """Whether an i1 mask is on in any lane, as a scalar i1."""
    if mask.lanes == 1:
        return mask.value
    return mask.f.intrinsic(f"llvm.vector.reduce.or.{mask.f.suffix(mask.value.type)}", "i1", mask.value)


def _rarely(condition: Num, common: Sequence[Num], rare: Callable[[], Sequence[Num]]) -> list[Num]:
    """``common``, replaced by what ``rare`` writes if ``condition`` holds in any lane: a branch, seldom taken."""
    f = condition.f
    slow, done = f.label("rare"), f.label("common")
    taken = any_lane(condition)
    before = f.current_block
    f.branch_if(taken, slow, done)
    f.block(slow)
    replaced = rare()
    end = f.current_block
    f.branch(done)
    f.block(done)
    return [
        Num(f, f.emit(c.value.type, f"phi {c.value.type} [ {c.value.text}, %{before} ], [ {r.value.text}, %{end} ]"))
        for c, r in zip(common, replaced, strict=True)
    ]


def _one_by_one(name: str, operands: Sequence[Num]) -> Num:
    """Call the scalar function ``name`` of the module, double to double, for each lane."""
    f = operands[0].f
    if operands[0].lanes == 1:
        return Num(f, f.call(name, "double", *(v.value for v in operands)))
    with f.loop(0, operands[0].lanes, carry=[operands[0].value]) as loop:
        one = f.call(name, "double", *(f.extract(v.value, loop.index) for v in operands))
        loop.next(f.insert(loop.carried[0], one, loop.index))
    return Num(f, loop.results[0])


# -- floating remainder ---------------------------------------------------------------------------------------------


def _remainder_function(module: Module) -> str:
    """The module's scalar fmod: exact for all operands, by long division of the mantissas, 11 bits a turn."""
    key = ("elementary", "fmod")
    known = module.shared(key)
    if known is not None:
        return known
    f = module.function(module.unique("exact_fmod"), ["double", "double"], "double")
    x, y = (Num(f, p) for p in f.params)
    x_exponent, x_mantissa = _integer_parts(x)
    y_exponent, y_mantissa = _integer_parts(y)
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
    f.finish()
    return module.share(key, f.name)


def _integer_parts(x: Num) -> tuple[Num, Num]:
    """|x| = mantissa·2^(exponent - 1075) with integers; for finite doubles."""
    bits = x.bits() & 0x7FFFFFFFFFFFFFFF
    exponent, fraction = bits >> 52, bits & ((1 << 52) - 1)
    denormal = exponent.equals(0)
    return denormal.where(1, exponent), denormal.where(fraction, fraction | (1 << 52))


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
        if not a.f.target.fma:  # there the product is split in halves, which overflow or underflow
            rare = rare | (abs(b) < 2.0**-900) | (abs(a) > 2.0**900)
    # the quotient may have been rounded up to the next integer
    beyond = (rest * a.const(1.0).copysign(a)) < 0.0
    rest = beyond.where(rest + abs(b).copysign(a), rest).copysign(a)
    rest = (abs(a) < abs(b)).where(a, rest)
    name = _remainder_function(x.f.module)
    (rest,) = _rarely(rare, [rest], lambda: [_one_by_one(name, [a, b])])
    return from_double(rest, x)


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


# -- sine, cosine, tangent ------------------------------------------------------------------------------------------

# pi/2 in three parts of 33, 33 and 53 bits, and the second and third as one (as in FreeBSD's msun)
HALF_PI_1 = 1.57079632673412561417e00
HALF_PI_2 = 6.07710050630396597660e-11
HALF_PI_3 = 2.02226624879595063154e-21
HALF_PI_23 = 6.07710050650619224932e-11
HALF_PI = math.pi / 2
HALF_PI_REST = 6.123233995736766e-17

# beyond, the products with the parts of pi/2 are not exact any more
COMMON_ANGLE = 1.6e6

# (sin r - r)/r^3 and (cos r - 1 + r^2/2)/r^4 in r^2, |r| <= pi/4: float 2^-28.0, 2^-33.1; double 2^-57.9, 2^-64.1;
# for tan of float, computed in double: 2^-32.5, 2^-37.2
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

# 2/pi in binary, 1168 bits behind the point
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


def _reduction_function(module: Module) -> str:
    """The module's scalar reduction of huge angles by multiples of pi/2 (Payne & Hanek, SIGNUM Newsletter 18, 1983).

    Called with a double and what is wanted of it: the quadrant (mod 4), the reduced angle, or the rest that the
    latter's rounding left. The angle is an integer m·2^e; of m·2/pi those 192 bits are computed that count.
    """
    key = ("elementary", "reduction")
    known = module.shared(key)
    if known is not None:
        return known
    digits = np.frombuffer(_two_over_pi().to_bytes(160, "little"), np.uint8)
    f = module.function(module.unique("reduce_angle"), ["double", "double"], "double")
    x, wanted = (Num(f, p) for p in f.params)
    exponent, mantissa = _integer_parts(x)
    exponent = (abs(x) < math.inf).where(exponent - 1075, 0)
    place = exponent.const(TWO_OVER_PI_BITS) - exponent
    start = (place - 183) >> 3
    shift = place - (start << 3)  # between 183 and 190: the product's weight is 2^-shift
    address = f.offset(module.table("two_over_pi", digits), start.value, "i8")
    window = Num(f, f.emit("i192", f"load i192, {address}, align 1"))
    product = mantissa.convert("zext", "i192") * window
    product = product << (shift.const(190) - shift).convert("zext", "i192")
    quadrant = ((product + (1 << 189)) >> 190).convert("trunc", "i64")
    fraction = product << 2
    negative = Num(f, f.compare("icmp slt", fraction.value, fraction.lift(0)))
    fraction = negative.where(fraction.const(0) - fraction, fraction)
    zeros = Num(f, f.intrinsic("llvm.ctlz.i192", "i192", fraction.value, Value("false", "i1")))
    normal = fraction << (zeros & 127)
    upper = (normal >> 128).convert("trunc", "i64")
    middle = (normal >> 64).convert("trunc", "i64")
    first = (upper >> 11).convert("sitofp", "double") * 2.0**-53
    second = (((upper & 0x7FF) << 42) | (middle >> 22)).convert("sitofp", "double") * 2.0**-106
    product_hi, product_lo = two_product(first, first.const(HALF_PI))
    angle, rest = fast_two_sum(product_hi, product_lo + first * HALF_PI_REST + second * HALF_PI)
    power = ((zeros.const(1023) - zeros).convert("trunc", "i64") << 52).real()
    sign = x.const(1.0).copysign(x)
    power = negative.where(-power, power) * sign
    quadrant = (sign < 0.0).where(quadrant.const(0) - quadrant, quadrant) & 3
    chosen = wanted.equals(REDUCED).where(angle * power, rest * power)
    chosen = wanted.equals(QUADRANT).where(quadrant.convert("sitofp", "double"), chosen)
    f.ret((chosen + (x - x)).value)  # NaN for NaN and infinities
    f.finish()
    return module.share(key, f.name)


def _reduce_angle(x: Num, *, exact: bool = False) -> tuple[Num, Num, Num | None]:
    """x = r + n·pi/2: the quadrant n (in the lowest bits of integers), r, and for ``exact`` the rest of its rounding.

    In double, |r| <= pi/4 and a little, for any finite x; NaN otherwise.
    """
    magic = DOUBLE.magic
    biased = x.fma(2.0 / math.pi, magic)
    n = biased - magic
    first = n.fma(-HALF_PI_1, x)
    if exact:
        second = n.fma(-HALF_PI_2, first)
        second_rest = n.fma(-HALF_PI_2, first - second)
        reduced = n.fma(-HALF_PI_3, second)
        common = [biased, reduced, n.fma(-HALF_PI_3, second - reduced) + second_rest]
    else:
        common = [biased, n.fma(-HALF_PI_3, n.fma(-HALF_PI_2, first))]
    name = _reduction_function(x.f.module)
    huge = abs(x) > COMMON_ANGLE

    def reduce_huge() -> list[Num]:
        angle = huge.where(x, COMMON_ANGLE)
        quadrant, *parts = (_one_by_one(name, [angle, x.const(which)]) for which in range(len(common)))
        return [huge.where(rare, usual) for rare, usual in zip((quadrant + magic, *parts), common, strict=True)]

    biased, reduced, *rest = _rarely(huge, common, reduce_huge)
    return biased.bits(), reduced, rest[0] if rest else None


def _sin_reduced(r: Num, z: Num, coefficients: Sequence[float]) -> Num:
    return polynomial(z, coefficients).fma(r * z, r)


def _cos_reduced(z: Num, coefficients: Sequence[float]) -> Num:
    return polynomial(z, coefficients).fma(z, -0.5).fma(z, 1.0)


def _circular(x: Num, ahead: int) -> Num:
    """sin of x + ahead·pi/2."""
    quadrant, r, _ = _reduce_angle(to_double(x))
    if x.element == "float":
        quadrant, r = quadrant.convert("trunc", "i32"), r.convert("fptrunc", "float")
    if ahead:
        quadrant = quadrant + ahead
    z = r * r
    sine, cosine = _sin_reduced(r, z, SIN[x.element]), _cos_reduced(z, COS[x.element])
    value = (quadrant & 1).differs(0).where(cosine, sine)
    sign = (quadrant & 2) << (30 if x.element == "float" else 62)
    return (value.bits() ^ sign).real()


def sin(x: Num) -> Num:
    return x.equals(0.0).where(x, _circular(x, 0))


def cos(x: Num) -> Num:
    return _circular(x, 1)


def tan(x: Num) -> Num:
    """sin/cos of the reduced angle, or -cos/sin; double with the rest of the reduction, float in double."""
    wide = to_double(x)
    quadrant, r, rest = _reduce_angle(wide, exact=x.element == "double")
    z = r * r
    if rest is None:
        sine, cosine = _sin_reduced(r, z, SIN_SHORT), _cos_reduced(z, COS_SHORT)
    else:  # the rest goes into the small terms
        sine = polynomial(z, SIN["double"]).fma(r * z, rest * z.fma(-0.5, 1.0)) + r
        cosine = polynomial(z, COS["double"]).fma(z, -0.5).fma(z, -(rest * r)) + 1.0
    odd = (quadrant & 1).differs(0)
    result = odd.where(-cosine, sine) / odd.where(sine, cosine)
    return x.equals(0.0).where(x, from_double(result, x))


# -- inverse circular functions -------------------------------------------------------------------------------------

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
    high = math.pi / 2 if x.format is DOUBLE else float(np.float32(math.pi / 2))
    low = HALF_PI_REST if x.format is DOUBLE else math.pi / 2 - high
    base = large.where(x.const(high), middle.where(x.const(high / 2), 0.0))
    rest = large.where(x.const(low), middle.where(x.const(low / 2), 0.0))
    z = y * y
    return (base + (polynomial(z, ATAN[x.element]).fma(y * z, rest) + y)).copysign(x)


def _asin_parts(x: Num, element: str) -> tuple[Num, Num, Num, Num]:
    """(large, y, rest, tail) for a double x: asin y = y + rest + tail, where y is |x|, or sqrt((1-|x|)/2) if large."""
    t = abs(x)
    large = t > 0.5
    z = large.where(t.fma(-0.5, 0.5), t * t)
    root = z.sqrt()
    product, error = two_product(root, root)
    root_rest = ((z - product) - error) / (root + root + 2.0**-1000)
    y = large.where(root, t)
    return large, y, large.where(root_rest, 0.0), polynomial(z, ASIN[element]) * z * y


def asin(x: Num) -> Num:
    """y + y³·P(y²), or pi/2 - 2·(that of sqrt((1-|x|)/2)); float in double."""
    wide = to_double(x)
    large, y, rest, tail = _asin_parts(wide, x.element)
    tail = tail + rest
    high, low = fast_two_sum(y.const(HALF_PI), y * -2.0)
    near_one = high + (low + (tail.fma(-2.0, HALF_PI_REST)))
    return from_double(large.where(near_one, y + tail).copysign(wide), x)


def acos(x: Num) -> Num:
    """pi/2 - asin x, or 2·asin(sqrt((1-x)/2)) near 1 and pi less that near -1; float in double."""
    wide = to_double(x)
    large, y, rest, tail = _asin_parts(wide, x.element)
    negative = wide < 0.0
    tail = tail + rest
    near_one = (y + tail) * 2.0
    high, low = fast_two_sum(y.const(math.pi), y * -2.0)
    near_minus_one = high + (low + tail.fma(-2.0, 2.0 * HALF_PI_REST))
    signed = y.copysign(wide)
    high, low = fast_two_sum(y.const(HALF_PI), -signed)
    middle = high + (low + (HALF_PI_REST - tail.copysign(tail * signed)))
    return from_double(large.where(negative.where(near_minus_one, near_one), middle), x)


# -- powers ---------------------------------------------------------------------------------------------------------

# ((2 atanh(s) - 2s)/s^3 - 2/3)/s^2 in s^2 on [0, 0.0401], relative to 2 atanh(s): 2^-74.6
POWER_LOG = (
    0.4, 0.2857142857142682, 0.22222222222719298, 0.18181818110114664, 0.1538462138904218, 0.13333023993675855,
    0.11774644027714792, 0.10332952247155143, 0.11584844823692006,
)  # fmt: skip

# (2 atanh(s) - 2s)/s^3 in s^2 on [0, 0.0401], for results in float: 2^-42.2
LOG_SHORT = (0.6666666671091579, 0.39999984462568505, 0.28573197332673433, 0.2213469473283411, 0.2012720094799985)


def _log_short(x: Num) -> Num:
    """log of a positive double in the range of float, with 42 bits."""
    mantissa, exponent = _split(x)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    z = s * s
    return exponent.fma(math.log(2.0), polynomial(z, LOG_SHORT).fma(z, 2.0) * s)


def _log_in_two(x: Num) -> tuple[Num, Num]:
    """log of a positive finite double as a sum of two, with an error below 2^-64 of it.

    The series of atanh, its first two terms in twice the precision.
    """
    mantissa, exponent = _split(x)
    above = mantissa - 1.0
    divisor, divisor_rest = fast_two_sum(mantissa.const(1.0), mantissa)
    inverse = 1.0 / divisor
    s = above * inverse
    product, error = two_product(s, divisor)
    s_rest = ((above - product) - error - s * divisor_rest) * inverse
    z, z_rest = two_product(s, s)
    z_rest = z_rest + (s + s) * s_rest
    third = 2.0 / 3.0
    factor, factor_rest = fast_two_sum(z.const(third), polynomial(z, POWER_LOG) * z)
    factor_rest = factor_rest + 2.0 / 3.0 * 2.0**-54  # 2/3 less its rounding
    w, w_rest = two_product(z, factor)
    w_rest = w_rest + z * factor_rest + z_rest * factor
    cubic, cubic_rest = two_product(s, w)
    cubic_rest = cubic_rest + s * w_rest + s_rest * w
    total, rest = fast_two_sum(s + s, cubic)
    rest = rest + cubic_rest + (s_rest + s_rest)
    high, low = fast_two_sum(exponent * DOUBLE.ln2_hi, total)
    return fast_two_sum(high, low + exponent.fma(DOUBLE.ln2_lo, rest))


def _power_of_magnitude(x: Num, y: Num) -> Num:
    """|x|^y for positive finite |x| and any y."""
    magnitude = abs(x)
    if x.element == "float":
        finite = y.at_most(2.0**127).at_least(-(2.0**127))  # so that 1^inf is not 0·inf
        exponent = _log_short(to_double(magnitude)) * to_double(finite)
        mantissa, n = _exp_of_sum(exponent.at_most(200.0).at_least(-200.0), exponent.const(0.0), EXP_SHORT)
        return from_double(mantissa * _power_of_two(n), x)
    # beyond 2^66 the result is 0, 1 or infinite whatever y is
    y = y.at_most(2.0**66).at_least(-(2.0**66))
    high, low = _log_in_two(magnitude)
    exponent, rest = two_product(y, high)
    rest = y.fma(low, rest)
    rest = (abs(exponent) < 800.0).where(rest, 0.0)
    mantissa, n = _exp_of_sum(exponent.at_most(DOUBLE.exp_high).at_least(DOUBLE.exp_low), rest)
    return _scale(mantissa, n)


def power(x: Num, y: Num) -> Num:
    """x^y with the special cases of IEEE 754's pow (NaN is not an exception to x^0 = 1 and 1^y = 1)."""
    magnitude = abs(x)
    result = _power_of_magnitude(x, y)
    extreme = magnitude.equals(0.0) | magnitude.equals(math.inf)
    grows = ((magnitude > 1.0) ^ (y > 0.0)).where(x.const(0.0), math.inf)
    result = extreme.where(grows, result)
    half = y * 0.5
    whole = round_even(y).equals(y)
    odd = whole & round_even(half).differs(half)
    negative_bits = odd.where(x, 0.0).bits() & _sign_bit(x.format)
    result = (result.bits() | negative_bits).real()
    invalid = (x < 0.0) & (magnitude < math.inf) & whole.where(y, x.const(math.nan)).unordered(0.0)
    result = (invalid | x.unordered(y)).where(x.const(math.nan), result)
    return (y.equals(0.0) | x.equals(1.0)).where(x.const(1.0), result)


def _sign_bit(form: Format) -> int:
    return -1 << (31 if form is FLOAT else 63)


# -- inverse error function -----------------------------------------------------------------------------------------

# float: erfinv(x)/x as P/Q in 9/16 - x^2 for |x| <= 3/4, 2^-30.5
# double: (erfinv(x)/x - sqrt(pi)/2)/x^2 likewise, 2^-53.8 of itself
ERFINV_CENTER_FLOAT = (
    (1.0845597961026865, 3.187364245103567, 2.3484663555878127, 0.3079453064139121, -0.009507896073223568),
    (1.0, 3.457603171319833, 3.3396342165068806, 0.8119406409598796),
)
ERFINV_CENTER = (
    (
        0.3525917712783408, 2.059469512986408, 4.407837850104241, 4.22351138704758, 1.7585943480776234,
        0.24815741858863785, 0.002211238980119621, -6.720562520763592e-05,
    ),
    (
        1.0, 6.899880637305737, 18.303422840108635, 23.431249694997753, 14.859993037502228, 4.258316473550999,
        0.4061680561255792,
    ),
)  # fmt: skip
HALF_ROOT_PI = 0.886226925452758
HALF_ROOT_PI_REST = -3.8332932499128993e-17

# erfinv as P/Q in s - 1.4375, s = sqrt(-log((1-|x|)/2)): float on [1.44, 4.17], 2^-27.7; double on [1.44, 3],
# 2^-54.0, and in s - 3 on [3, 6.13], 2^-55.1
TAIL_START, FAR_TAIL_START = 1.4375, 3.0
ERFINV_TAIL_FLOAT = (
    (0.8078117874268155, 2.170213534102999, 1.6312185699351207, 0.4360109031672397, 0.03453189112687958),
    (1.0, 1.1523517543504826, 0.3872039784438285, 0.0345175265088639),
)
ERFINV_TAIL = (
    (
        0.8078117826712862, 2.9620902178527566, 3.969568981200141, 2.6176204665498775, 0.9295859223630245,
        0.1777429119999565, 0.016635704857559934, 0.0005554494015367991,
    ),
    (
        1.0, 2.132625251167427, 1.7779603814642848, 0.7346157629433676, 0.1564608463585012, 0.01584339955645184,
        0.0005553909034527437,
    ),
)  # fmt: skip
ERFINV_FAR_TAIL = (
    (
        2.5919264457764877, 3.2101293213149034, 1.4922566255635366, 0.3286446028145479, 0.03539025811850215,
        0.001717812845486889, 2.8687618660219403e-05, 0.0,
    ),
    (
        1.0, 0.8196408043264106, 0.24050587800747994, 0.03058105009846331, 0.0016319358959512543,
        2.8685943632481125e-05, 1.637903957399784e-11,
    ),
)  # fmt: skip


def _chosen_polynomial(mask: Num, x: Num, yes: Sequence[float], no: Sequence[float]) -> Num:
    """The polynomial ``yes`` where the mask is on, else ``no``."""
    result = mask.where(x.const(yes[-1]), no[-1])
    for one, other in zip(reversed(yes[:-1]), reversed(no[:-1]), strict=True):
        result = result.fma(x, mask.where(x.const(one), other))
    return result


def _tail_argument(complement: Num) -> tuple[Num, Num]:
    """sqrt(-log(complement)) as a sum of two, for complement below 1/4 (double)."""
    mantissa, exponent = _split(complement)
    tail = _log_tail(mantissa - 1.0, exponent)
    high, low = fast_two_sum(-(exponent * DOUBLE.ln2_hi), 1.0 - mantissa)
    high, lower = fast_two_sum(high, -tail)
    root = high.sqrt()
    product, error = two_product(root, root)
    return root, ((high - product) - error + (low + lower)) / (root + root)


def erfinv(x: Num) -> Num:
    """Rational functions of 9/16 - x^2, and of s = sqrt(-log((1-|x|)/2)) in the tails, in the manner of Wichura's
    AS 241 (Applied Statistics 37, 1988); float in double. One division serves all."""
    wide = to_double(x)
    t = abs(wide)
    central = t <= 0.75
    complement = t.fma(-0.5, 0.5)
    u = t.fma(-t, 0.5625)
    if x.element == "float":
        center_p, center_q = (polynomial(u, c) for c in ERFINV_CENTER_FLOAT)
        center_p = t * center_p
        v = (-_log_short(complement)).sqrt() - TAIL_START
        tail_p, tail_q = (polynomial(v, c) for c in ERFINV_TAIL_FLOAT)
    else:
        center_p, center_q = (polynomial(u, c) for c in ERFINV_CENTER)
        center_p = t * t * t * center_p
        s, rest = _tail_argument(complement)
        far = s > FAR_TAIL_START
        v = (s - far.where(s.const(FAR_TAIL_START), TAIL_START)) + rest
        tail_p, tail_q = (
            _chosen_polynomial(far, v, one, other) for one, other in zip(ERFINV_FAR_TAIL, ERFINV_TAIL, strict=True)
        )
    result = central.where(center_p, tail_p) / central.where(center_q, tail_q)
    if x.element == "double":
        result = central.where(t.fma(HALF_ROOT_PI, t.fma(HALF_ROOT_PI_REST, result)), result)
    edge = t.equals(1.0).where(wide.const(math.inf), math.nan)
    return from_double((t < 1.0).where(result, edge).copysign(wide), x)
