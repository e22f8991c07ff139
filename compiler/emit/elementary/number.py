"""Lanes of one LLVM type as values with Python's operators, what is known of float formats, exact sums and products.

Input: LLVM values; output: LLVM values. The functions of this package are written with these.
"""

from __future__ import annotations

from collections.abc import Sequence

from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.llvm import Function, Value, element_of, lanes_of, suffix
from staticgrad.compiler.emit.square_root import square_root


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
        """Select by this i1 mask: ``yes`` in the lanes where it is on, else ``no``; one of them must be a ``Num``."""
        like = yes if isinstance(yes, Num) else no
        if not isinstance(like, Num):
            raise TypeError("one of the choices must be a Num, for its type")
        return Num(self.f, self.f.select(self.value, like.lift(yes), like.lift(no)))

    def fma(self, factor: Num | float, addend: Num | float) -> Num:
        """self·factor + addend, rounded once where the target has the instruction."""
        return Num(self.f, self.f.fma(self.value, self.lift(factor), self.lift(addend)))

    def intrinsic(self, name: str, *others: Num) -> Num:
        """``llvm.<name>``, overloaded on this type, with operands of this type."""
        whole = f"llvm.{name}.{suffix(self.value.type)}"
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
        return Num(self.f, square_root(self.f, self.value))

    def at_most(self, bound: float) -> Num:
        """min(self, bound), NaN stays: one instruction, on x86 in this order of operands."""
        limit = self.const(bound)
        if self.f.target.isa.extremes:
            return Num(self.f, self.f.extreme("min", self.value, limit.value))
        return (limit < self).where(limit, self)

    def at_least(self, bound: float) -> Num:
        """max(self, bound), NaN stays."""
        limit = self.const(bound)
        if self.f.target.isa.extremes:
            return Num(self.f, self.f.extreme("max", self.value, limit.value))
        return (limit > self).where(limit, self)


@frozen
class Format:
    """The properties of a float format."""

    element: str
    integer: str
    mantissa: int  # stored bits
    bias: int
    ln2_hi: float  # so few bits that a product with any exponent is exact
    ln2_lo: float
    smallest_normal: float
    exp_low: float  # exp is 0 below, and the exponent of this power of e is below ``vanishing``
    exp_high: float  # exp is infinite above

    @property
    def magic(self) -> float:
        """x + magic - magic is x rounded to an integer, and the sum's lowest bits are this integer."""
        return 1.5 * 2.0**self.mantissa

    @property
    def vanishing(self) -> int:
        """x·2^n is 0 for integral n below this and |x| below 2."""
        return -(self.bias + self.mantissa)

    @property
    def one(self) -> int:
        """The bits of 1.0."""
        return self.bias << self.mantissa


FLOAT = Format("float", "i32", 23, 127, 0.693145751953125, 1.4286068203094172e-06, 2.0**-126, -104.4, 89.0)
DOUBLE = Format(
    "double", "i64", 52, 1023, 0.693147180369123816490, 1.90821492927058770002e-10, 2.0**-1022, -745.5, 710.0
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


def two_sum(a: Num, b: Num) -> tuple[Num, Num]:
    """a + b as rounded sum and exact error, for any a and b (Knuth, *The Art of Computer Programming*, §4.2.2)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_product(a: Num, b: Num) -> tuple[Num, Num]:
    """a·b as rounded product and exact error: with one fma, else by Dekker's splitting (1971)."""
    product = a * b
    if a.f.target.isa.fuses(a.element):
        return product, a.fma(b, -product)
    a_hi, a_lo = _halves(a)
    b_hi, b_lo = _halves(b)
    return product, a_hi * b_hi - product + a_hi * b_lo + a_lo * b_hi + a_lo * b_lo


def _halves(a: Num) -> tuple[Num, Num]:
    """Veltkamp's splitting: a = hi + lo with half the bits each."""
    scaled = a * (2.0 ** ((a.format.mantissa + 2) // 2) + 1.0)
    high = scaled - (scaled - a)
    return high, a - high


def quotient(a: Num, a_rest: Num | float, b: Num, b_rest: Num) -> Num:
    """(a + a_rest) / (b + b_rest) of sums whose second part is tiny: one step of Newton after the division."""
    inverse = 1.0 / b
    q = a * inverse
    if a.f.target.isa.fuses(a.element):
        return (-q).fma(b_rest, (-q).fma(b, a) + a_rest).fma(inverse, q)
    product, error = two_product(q, b)
    return (((a - product) - error) - (q * b_rest - a_rest)).fma(inverse, q)


def to_double(x: Num) -> Num:
    return x.convert("fpext", "double") if x.element == "float" else x


def from_double(y: Num, x: Num) -> Num:
    """``y`` in the format of ``x``."""
    return y.convert("fptrunc", "float") if x.element == "float" else y


def integer_parts(x: Num) -> tuple[Num, Num]:
    """|x| = mantissa·2^(exponent - 1075) with integers; for finite doubles."""
    bits = x.bits() & 0x7FFFFFFFFFFFFFFF
    exponent, fraction = bits >> 52, bits & ((1 << 52) - 1)
    denormal = exponent.equals(0)
    return denormal.where(1, exponent), denormal.where(fraction, fraction | (1 << 52))
