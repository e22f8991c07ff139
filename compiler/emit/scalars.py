"""The scalar builder over LLVM IR: values of lanes go in, instructions are written, values of lanes come out.

``Scalars`` is the backend of ``staticgrad.graph.scalar.ScalarBuilder`` for machine code. The same code serves one lane
and many. Bool lanes are i1, those of short floats their bits, which are only converted and chosen. Where LLVM leaves a
result undefined (division by zero, wide shifts, float to integer out of range) operands are guarded first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.base.types import is_short_float
from staticgrad.compiler.emit import elementary
from staticgrad.compiler.emit.elementary.number import Num
from staticgrad.compiler.emit.elementary.rare import any_lane
from staticgrad.compiler.emit.llvm import Function, Value, lanes_of, value_type, vector

BOOL = np.dtype(np.bool_)
INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)
UINT32 = np.dtype(np.uint32)
UINT64 = np.dtype(np.uint64)
FLOAT16 = np.dtype(np.float16)
FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)
OUTLINED_LANES = 8  # of a call of a function that was written apart


@frozen
class Lane:
    """One element (or one for each lane) while it is computed."""

    value: Value
    dtype: np.dtype


def _bits(dtype: np.dtype) -> int:
    return 1 if dtype == BOOL else dtype.itemsize * 8


def _is_float(dtype: np.dtype) -> bool:
    return dtype.kind == "f"


def _is_signed(dtype: np.dtype) -> bool:
    return dtype.kind == "i"


def literal(value: float | int | bool, dtype: np.dtype) -> float | int | bool:
    """A number as constants of its dtype are written: of a short float the bits."""
    return int(np.array(value, dtype).view(np.uint16)) if is_short_float(dtype) else value


class Scalars:
    """Writes elementwise code into ``function`` for ``lanes`` elements at a time (1, 2, 4, 8, 16 or 32)."""

    def __init__(self, function: Function, lanes: int) -> None:
        self.function = function
        self.lanes = lanes

    # -- plumbing -----------------------------------------------------------------------------------------------

    def _type(self, dtype: np.dtype) -> str:
        return vector(value_type(dtype), self.lanes)

    def _num(self, x: Lane) -> Num:
        return Num(self.function, x.value)

    def _elementary(self, function: Callable[[Num], Num], x: Lane) -> Lane:
        return Lane(function(self._num(x)).value, x.dtype)

    def _arithmetic(self, real: str, whole: str, boolean: str, x: Lane, y: Lane) -> Lane:
        op = real if _is_float(x.dtype) else boolean if x.dtype == BOOL else whole
        return Lane(self.function.binary(op, x.value, y.value), x.dtype)

    def _compare(self, real: str, whole: str, x: Lane, y: Lane) -> Lane:
        if _is_float(x.dtype):
            op = f"fcmp {real}"
        elif whole in ("eq", "ne"):
            op = f"icmp {whole}"
        else:
            op = f"icmp {'s' if _is_signed(x.dtype) else 'u'}{whole}"
        return Lane(self.function.compare(op, x.value, y.value), BOOL)

    # -- constants and conversions ------------------------------------------------------------------------------

    def const(self, value: float | int | bool, dtype: np.dtype) -> Lane:
        return Lane(self.function.const(literal(value, dtype), self._type(dtype)), dtype)

    def cast(self, x: Lane, dtype: np.dtype) -> Lane:
        if x.dtype == dtype:
            return x
        if is_short_float(x.dtype):
            widen = elementary.short.widen_float16 if x.dtype == FLOAT16 else elementary.short.widen_bfloat16
            return self.cast(Lane(widen(self._num(x)).value, FLOAT32), dtype)
        if is_short_float(dtype):
            odd = dtype == FLOAT16 and x.dtype == FLOAT64
            single = Lane(elementary.short.odd_float(self._num(x)).value, FLOAT32) if odd else self.cast(x, FLOAT32)
            shorten = elementary.short.shorten_float16 if dtype == FLOAT16 else elementary.short.shorten_bfloat16
            return Lane(shorten(self._num(single)).value, dtype)
        if dtype == BOOL:
            return self.ne(x, self.const(0, x.dtype))
        if _is_float(x.dtype):
            return self._cast_float(x, dtype)
        if _is_float(dtype):
            op = "sitofp" if _is_signed(x.dtype) else "uitofp"
        elif _bits(dtype) == _bits(x.dtype):
            return Lane(x.value, dtype)
        elif _bits(dtype) < _bits(x.dtype):
            op = "trunc"
        else:
            op = "sext" if _is_signed(x.dtype) else "zext"
        return Lane(self.function.cast(op, x.value, value_type(dtype)), dtype)

    def _cast_float(self, x: Lane, dtype: np.dtype) -> Lane:
        if _is_float(dtype):
            op = "fpext" if dtype == FLOAT64 else "fptrunc"
            return Lane(self.function.cast(op, x.value, value_type(dtype)), dtype)
        if dtype in (INT32, INT64):
            return self._truncate(x, dtype)
        if dtype == UINT64:
            # what does not fit int64 is converted less 2**63, which is added back to the bits
            half = self.const(2.0**63, x.dtype)
            low = self._truncate(x, INT64).value
            high = self._truncate(self.sub(x, half), INT64).value
            top = self.function.const(-(1 << 63), high.type)
            above = self.ge(x, half).value  # false of NaN
            return Lane(self.function.select(above, self.function.binary("xor", high, top), low), dtype)
        wider = INT64 if dtype == UINT32 else INT32
        return self.cast(self._truncate(x, wider), dtype)

    def _truncate(self, x: Lane, dtype: np.dtype) -> Lane:
        """Float to signed integer; the smallest integer where that has no result."""
        bound = 2.0 ** (_bits(dtype) - 1)
        f = self.function
        if x.dtype == FLOAT32 or dtype == INT64:
            above = f.compare("fcmp oge", x.value, self.const(-bound, x.dtype).value)
        else:
            above = f.compare("fcmp ogt", x.value, self.const(-bound - 1.0, x.dtype).value)
        fits = f.binary("and", above, f.compare("fcmp olt", x.value, self.const(bound, x.dtype).value))
        guarded = f.select(fits, x.value, self.const(0.0, x.dtype).value)
        converted = f.cast("fptosi", guarded, value_type(dtype))
        return Lane(f.select(fits, converted, self.const(-(1 << (_bits(dtype) - 1)), dtype).value), dtype)

    # -- arithmetic ---------------------------------------------------------------------------------------------

    def add(self, x: Lane, y: Lane) -> Lane:
        return self._arithmetic("fadd", "add", "or", x, y)

    def sub(self, x: Lane, y: Lane) -> Lane:
        return self._arithmetic("fsub", "sub", "xor", x, y)

    def mul(self, x: Lane, y: Lane) -> Lane:
        return self._arithmetic("fmul", "mul", "and", x, y)

    def div(self, x: Lane, y: Lane) -> Lane:
        return Lane(self.function.binary("fdiv", x.value, y.value), x.dtype)

    def neg(self, x: Lane) -> Lane:
        if _is_float(x.dtype):
            return Lane((-self._num(x)).value, x.dtype)
        return self.sub(self.const(0, x.dtype), x)

    def abs(self, x: Lane) -> Lane:
        if _is_float(x.dtype):
            return Lane(abs(self._num(x)).value, x.dtype)
        if not _is_signed(x.dtype):
            return x
        name = f"llvm.abs.{self.function.suffix(x.value.type)}"
        return Lane(self.function.intrinsic(name, x.value.type, x.value, Value("false", "i1")), x.dtype)

    def sign(self, x: Lane) -> Lane:
        if x.dtype == BOOL:
            return x
        zero, one = self.const(0, x.dtype), self.const(1, x.dtype)
        rest = self.add(x, zero)  # 0 for -0, NaN for NaN
        if _is_float(x.dtype) or _is_signed(x.dtype):
            rest = self.select(self.lt(x, zero), self.const(-1, x.dtype), rest)
        return self.select(self.gt(x, zero), one, rest)

    def copysign(self, x: Lane, y: Lane) -> Lane:
        return Lane(self._num(x).copysign(self._num(y)).value, x.dtype)

    def minimum(self, x: Lane, y: Lane) -> Lane:
        return self._extreme(self.lt, "min", "and", x, y)

    def maximum(self, x: Lane, y: Lane) -> Lane:
        return self._extreme(self.gt, "max", "or", x, y)

    def _extreme(self, better: Callable[[Lane, Lane], Lane], name: str, boolean: str, x: Lane, y: Lane) -> Lane:
        if _is_float(x.dtype) and self.function.target.isa.extremes:
            return Lane(self.function.extreme(name, x.value, y.value), x.dtype)
        if _is_float(x.dtype):
            # the comparison is false for NaN and so gives y: only x = NaN is left to be put right
            chosen = self.select(better(x, y), x, y)
            return self.select(self.isnan(x), x, chosen)
        if x.dtype == BOOL:
            return Lane(self.function.binary(boolean, x.value, y.value), x.dtype)
        prefix = "s" if _is_signed(x.dtype) else "u"
        whole = f"llvm.{prefix}{name}.{self.function.suffix(x.value.type)}"
        return Lane(self.function.intrinsic(whole, x.value.type, x.value, y.value), x.dtype)

    def fma(self, x: Lane, y: Lane, z: Lane) -> Lane:
        return Lane(self.function.fma(x.value, y.value, z.value), x.dtype)

    # -- division with a floor ----------------------------------------------------------------------------------

    def floor_divide(self, x: Lane, y: Lane) -> Lane:
        if _is_float(x.dtype):
            return Lane(elementary.remainder.floor_divide(self._num(x), self._num(y)).value, x.dtype)
        return self._divide_integers(x, y)[0]

    def remainder(self, x: Lane, y: Lane) -> Lane:
        if _is_float(x.dtype):
            return Lane(elementary.remainder.remainder(self._num(x), self._num(y)).value, x.dtype)
        return self._divide_integers(x, y)[1]

    def _divide_integers(self, x: Lane, y: Lane) -> tuple[Lane, Lane]:
        """Floored quotient and remainder; both 0 where y is 0."""
        if x.dtype == BOOL:
            raise TypeError("bools are not divided: cast them to an integer first")
        zero, one = self.const(0, x.dtype), self.const(1, x.dtype)
        by_zero = self.eq(y, zero)
        unsafe = by_zero
        if _is_signed(x.dtype):  # the smallest by -1 is the smallest by 1
            smallest = self.const(-(1 << (_bits(x.dtype) - 1)), x.dtype)
            wraps = self.logical_and(self.eq(x, smallest), self.eq(y, self.const(-1, x.dtype)))
            unsafe = self.logical_or(by_zero, wraps)
        divisor = self.select(unsafe, one, y)
        quotient = self._truncated_quotient(x, divisor)
        rest = self.sub(x, self.mul(quotient, divisor))
        if _is_signed(x.dtype):
            opposite = self.lt(self.bit_xor(rest, divisor), zero)
            below = self.logical_and(self.ne(rest, zero), opposite)
            quotient = self.select(below, self.sub(quotient, one), quotient)
            rest = self.select(below, self.add(rest, divisor), rest)
        return self.select(by_zero, zero, quotient), self.select(by_zero, zero, rest)

    def _truncated_quotient(self, x: Lane, divisor: Lane) -> Lane:
        """Integer quotient rounded to zero. Vectors of up to 32 bits go through double, where it is exact; there is
        no vector instruction for integer division."""
        signed = _is_signed(x.dtype)
        if self.lanes == 1 or _bits(x.dtype) > 32 or x.dtype == UINT32:
            return Lane(self.function.binary("sdiv" if signed else "udiv", x.value, divisor.value), x.dtype)
        real = self.div(self.cast(x, FLOAT64), self.cast(divisor, FLOAT64))
        quotient = Lane(self.function.cast("fptosi", real.value, "i32"), INT32)
        return self.cast(quotient, x.dtype)

    # -- comparison and choice ----------------------------------------------------------------------------------

    def eq(self, x: Lane, y: Lane) -> Lane:
        return self._compare("oeq", "eq", x, y)

    def ne(self, x: Lane, y: Lane) -> Lane:
        return self._compare("une", "ne", x, y)

    def lt(self, x: Lane, y: Lane) -> Lane:
        return self._compare("olt", "lt", x, y)

    def le(self, x: Lane, y: Lane) -> Lane:
        return self._compare("ole", "le", x, y)

    def gt(self, x: Lane, y: Lane) -> Lane:
        return self._compare("ogt", "gt", x, y)

    def ge(self, x: Lane, y: Lane) -> Lane:
        return self._compare("oge", "ge", x, y)

    def select(self, condition: Lane, x: Lane, y: Lane) -> Lane:
        return Lane(self.function.select(condition.value, x.value, y.value), x.dtype)

    def either(self, condition: Lane, then: Callable[[], Lane], otherwise: Callable[[], Lane]) -> Lane:
        chosen = self._if_any(condition, then)
        return self.select(condition, chosen, self._if_any(self.logical_not(condition), otherwise))

    def _if_any(self, condition: Lane, write: Callable[[], Lane]) -> Lane:
        """The value of ``write`` if ``condition`` holds in any lane; else zeros, and nothing runs."""
        found: list[Lane] = []

        def then() -> Sequence[Value]:
            found.append(write())
            return [found[0].value]

        def zeros() -> Sequence[Value]:
            return [self.const(0, found[0].dtype).value]

        (value,) = self.function.choose(any_lane(self._num(condition)), then, zeros)
        return Lane(value, found[0].dtype)

    def loop(
        self, turns: int, start: Sequence[Lane], turn: Callable[[Sequence[Lane]], tuple[Lane, Sequence[Lane]]]
    ) -> list[Lane]:
        f = self.function
        dtypes = [x.dtype for x in start]
        active = self.const(True, BOOL)
        carry = [f.index(turns), active.value, *(x.value for x in start)]

        def goes_on(carried: Sequence[Value]) -> Value:
            left = f.compare("icmp sgt", carried[0], f.const(0, f.word))
            return f.binary("and", left, any_lane(Num(f, carried[1])))

        with f.repeat(carry, goes_on) as loop:
            left, staying, *carried = loop.carried
            values = [Lane(value, dtype) for value, dtype in zip(carried, dtypes, strict=True)]
            stays, following = turn(values)
            inside = Lane(staying, BOOL)
            taken = [self.select(inside, new, old).value for new, old in zip(following, values, strict=True)]
            loop.next(f.binary("add", left, f.const(-1, f.word)), self.logical_and(inside, stays).value, *taken)
        return [Lane(value, dtype) for value, dtype in zip(loop.results[2:], dtypes, strict=True)]

    def outlined(self, write: Callable[..., Lane], how: tuple[Any, ...], *values: Lane) -> Lane:
        """A call for each ``OUTLINED_LANES`` lanes, as loops end when the last lane does."""
        width = min(self.lanes, OUTLINED_LANES)
        pieces = [self._call(write, how, width, [self._part(x, i, width) for x in values])
                  for i in range(0, self.lanes, width)]  # fmt: skip
        while len(pieces) > 1:
            lanes = 2 * lanes_of(pieces[0].value.type)
            pieces = [
                Lane(self.function.shuffle(low.value, high.value, range(lanes)), low.dtype)
                for low, high in zip(pieces[::2], pieces[1::2], strict=True)
            ]
        return pieces[0]

    def _part(self, x: Lane, first: int, width: int) -> Lane:
        if width == self.lanes:
            return x
        return Lane(self.function.shuffle(x.value, None, range(first, first + width)), x.dtype)

    def _call(self, write: Callable[..., Lane], how: tuple[Any, ...], lanes: int, values: Sequence[Lane]) -> Lane:
        module = self.function.module
        key = ("outlined", write, how, lanes, *(x.dtype for x in values))
        types = [x.value.type for x in values]
        name, dtype = module.shared(key), values[0].dtype
        if name is None:
            f = module.function(module.unique(write.__name__.strip("_")), types, types[0])
            params = [Lane(param, x.dtype) for param, x in zip(f.params, values, strict=True)]
            result = write(Scalars(f, lanes), *how, *params)
            if result.dtype != dtype:
                raise TypeError(f"{write.__name__}: a function of its own gives the dtype of its first operand")
            f.ret(result.value)
            name = module.share(key, f.finish())
        return Lane(self.function.call(name, types[0], *(x.value for x in values)), dtype)

    def logical_and(self, x: Lane, y: Lane) -> Lane:
        return self.bit_and(x, y)

    def logical_or(self, x: Lane, y: Lane) -> Lane:
        return self.bit_or(x, y)

    def logical_xor(self, x: Lane, y: Lane) -> Lane:
        return self.bit_xor(x, y)

    def logical_not(self, x: Lane) -> Lane:
        return self.bit_not(x)

    # -- bits ---------------------------------------------------------------------------------------------------

    def bit_and(self, x: Lane, y: Lane) -> Lane:
        return Lane(self.function.binary("and", x.value, y.value), x.dtype)

    def bit_or(self, x: Lane, y: Lane) -> Lane:
        return Lane(self.function.binary("or", x.value, y.value), x.dtype)

    def bit_xor(self, x: Lane, y: Lane) -> Lane:
        return Lane(self.function.binary("xor", x.value, y.value), x.dtype)

    def bit_not(self, x: Lane) -> Lane:
        return self.bit_xor(x, self.const(True if x.dtype == BOOL else -1, x.dtype))

    def shift_left(self, x: Lane, count: Lane) -> Lane:
        within, safe = self._guard_count(count)
        shifted = Lane(self.function.binary("shl", x.value, safe.value), x.dtype)
        return self.select(within, shifted, self.const(0, x.dtype))

    def shift_right(self, x: Lane, count: Lane) -> Lane:
        within, safe = self._guard_count(count)
        if not _is_signed(x.dtype):
            shifted = Lane(self.function.binary("lshr", x.value, safe.value), x.dtype)
            return self.select(within, shifted, self.const(0, x.dtype))
        last = self.const(_bits(x.dtype) - 1, x.dtype)
        return Lane(self.function.binary("ashr", x.value, self.select(within, count, last).value), x.dtype)

    def _guard_count(self, count: Lane) -> tuple[Lane, Lane]:
        """A flag that the count is below the width (and not negative), and its bits within the width."""
        width = _bits(count.dtype)
        within = self.function.compare("icmp ult", count.value, self.const(width, count.dtype).value)
        return Lane(within, BOOL), self.bit_and(count, self.const(width - 1, count.dtype))

    # -- classification and rounding ----------------------------------------------------------------------------

    def isnan(self, x: Lane) -> Lane:
        return Lane(self._num(x).unordered(0.0).value, BOOL)

    def isfinite(self, x: Lane) -> Lane:
        return Lane((abs(self._num(x)) < np.inf).value, BOOL)

    def isinf(self, x: Lane) -> Lane:
        return Lane(abs(self._num(x)).equals(np.inf).value, BOOL)

    def floor(self, x: Lane) -> Lane:
        return self._elementary(elementary.rounding.floor, x)

    def ceil(self, x: Lane) -> Lane:
        return self._elementary(elementary.rounding.ceil, x)

    def trunc(self, x: Lane) -> Lane:
        return self._elementary(elementary.rounding.trunc, x)

    def round(self, x: Lane) -> Lane:
        return self._elementary(elementary.rounding.round_even, x)

    # -- elementary functions -----------------------------------------------------------------------------------

    def exp(self, x: Lane) -> Lane:
        return self._elementary(elementary.exponential.exp, x)

    def exp2(self, x: Lane) -> Lane:
        return self._elementary(elementary.exponential.exp2, x)

    def expm1(self, x: Lane) -> Lane:
        return self._elementary(elementary.exponential.expm1, x)

    def log(self, x: Lane) -> Lane:
        return self._elementary(elementary.logarithm.log, x)

    def log2(self, x: Lane) -> Lane:
        return self._elementary(elementary.logarithm.log2, x)

    def log10(self, x: Lane) -> Lane:
        return self._elementary(elementary.logarithm.log10, x)

    def log1p(self, x: Lane) -> Lane:
        return self._elementary(elementary.logarithm.log1p, x)

    def sqrt(self, x: Lane) -> Lane:
        return self._elementary(Num.sqrt, x)

    def rsqrt(self, x: Lane) -> Lane:
        return self._elementary(elementary.rounding.rsqrt, x)

    def tanh(self, x: Lane) -> Lane:
        return self._elementary(elementary.exponential.tanh, x)

    def sigmoid(self, x: Lane) -> Lane:
        return self._elementary(elementary.exponential.sigmoid, x)

    def silu(self, x: Lane) -> Lane:
        return self._elementary(elementary.exponential.silu, x)

    def erf(self, x: Lane) -> Lane:
        return self._elementary(elementary.error.erf, x)

    def erfc(self, x: Lane) -> Lane:
        return self._elementary(elementary.error.erfc, x)

    def normal(self, x: Lane) -> Lane:
        return self._elementary(elementary.error.normal, x)

    def gaussian(self, x: Lane) -> Lane:
        return self._elementary(elementary.error.gaussian, x)

    def erfinv(self, x: Lane) -> Lane:
        return self._elementary(elementary.error.erfinv, x)

    def sin(self, x: Lane) -> Lane:
        return self._elementary(elementary.circular.sin, x)

    def cos(self, x: Lane) -> Lane:
        return self._elementary(elementary.circular.cos, x)

    def tan(self, x: Lane) -> Lane:
        return self._elementary(elementary.circular.tan, x)

    def asin(self, x: Lane) -> Lane:
        return self._elementary(elementary.inverse_circular.asin, x)

    def acos(self, x: Lane) -> Lane:
        return self._elementary(elementary.inverse_circular.acos, x)

    def atan(self, x: Lane) -> Lane:
        return self._elementary(elementary.inverse_circular.atan, x)

    def atan2(self, y: Lane, x: Lane) -> Lane:
        return Lane(elementary.inverse_circular.atan2(self._num(y), self._num(x)).value, x.dtype)

    def sinh(self, x: Lane) -> Lane:
        return self._elementary(elementary.exponential.sinh, x)

    def cosh(self, x: Lane) -> Lane:
        return self._elementary(elementary.exponential.cosh, x)

    def pow(self, x: Lane, y: Lane) -> Lane:
        if _is_float(x.dtype):
            return Lane(elementary.power.power(self._num(x), self._num(y)).value, x.dtype)
        if x.dtype == BOOL:
            return self.logical_or(x, self.logical_not(y))
        return self._integer_power(x, y)

    def _integer_power(self, x: Lane, y: Lane) -> Lane:
        """By squaring, a turn for each bit of the largest exponent; then negative exponents are put right."""
        one, zero = self.const(1, x.dtype), self.const(0, x.dtype)
        if not _is_signed(x.dtype):
            return self._power_by_squaring(x, y)
        minus_one = self.const(-1, x.dtype)
        negative = self.lt(y, zero)
        result = self._power_by_squaring(x, self.select(negative, zero, y))
        odd = self.ne(self.bit_and(y, one), zero)
        alternating = self.select(odd, minus_one, one)
        inverse = self.select(self.eq(x, minus_one), alternating, self.select(self.eq(x, one), one, zero))
        return self.select(negative, inverse, result)

    def _power_by_squaring(self, x: Lane, y: Lane) -> Lane:
        f, dtype, type_ = self.function, x.dtype, x.value.type
        one, zero = self.const(1, dtype), self.const(0, dtype)
        before, head, body, done = f.current_block, f.label("power"), f.label("square"), f.label("powered")
        f.branch(head)
        f.block(head)
        names = [f"%{head}.{part}" for part in ("result", "base", "rest")]
        result, base, rest = (Lane(Value(name, type_), dtype) for name in names)
        following = [f"%{body}.{part}" for part in ("result", "base", "rest")]
        for name, start, step in zip(names, (one, x, y), following, strict=True):
            f.line(f"{name} = phi {type_} [ {start.value.text}, %{before} ], [ {step}, %{body} ]")
        more = any_lane(self._num(self.ne(rest, zero)))
        f.branch_if(more, body, done)
        f.block(body)
        odd = self.ne(self.bit_and(rest, one), zero)
        product = self.select(odd, self.mul(result, base), result)
        square = self.mul(base, base)
        shifted = Lane(f.binary("lshr", rest.value, one.value), dtype)
        for name, value in zip(following, (product, square, shifted), strict=True):
            f.line(f"{name} = or {value.value}, {zero.value.text}")
        f.branch(head)
        f.block(done)
        return result

    # -- random bits --------------------------------------------------------------------------------------------

    def threefry(self, key0: Lane, key1: Lane, counter_hi: Lane, counter_lo: Lane) -> tuple[Lane, Lane]:
        """Threefry-2x32, 20 rounds: Salmon, Moraes, Dror & Shaw, "Parallel random numbers: as easy as 1, 2, 3"."""
        parity = self.const(0x1BD11BDA, UINT32)
        keys = (key0, key1, self.bit_xor(parity, self.bit_xor(key0, key1)))
        x0, x1 = self.add(counter_hi, keys[0]), self.add(counter_lo, keys[1])
        rotations = (13, 15, 26, 6, 17, 29, 16, 24)
        for turn in range(20):
            x0 = self.add(x0, x1)
            x1 = self.bit_xor(self._rotate_left(x1, rotations[turn % 8]), x0)
            if turn % 4 == 3:
                group = turn // 4 + 1
                x0 = self.add(x0, keys[group % 3])
                x1 = self.add(x1, self.add(keys[(group + 1) % 3], self.const(group, UINT32)))
        # LLVM looks through all rounds for where a word could be extended to 64 bits, again on each path: for a second.
        words = [self.function.opaque(word.value) for word in (x0, x1)]
        return Lane(words[0], UINT32), Lane(words[1], UINT32)

    def _rotate_left(self, x: Lane, count: int) -> Lane:
        name = f"llvm.fshl.{self.function.suffix(x.value.type)}"
        by = self.const(count, x.dtype).value
        return Lane(self.function.intrinsic(name, x.value.type, x.value, x.value, by), x.dtype)

    def bits_to_unit(self, word: Lane) -> Lane:
        upper = self.function.binary("lshr", word.value, self.const(8, UINT32).value)
        return self.mul(self.cast(Lane(upper, INT32), FLOAT32), self.const(2.0**-24, FLOAT32))

    def bits_to_unit64(self, word0: Lane, word1: Lane) -> Lane:
        high = Lane(self.function.binary("lshr", word0.value, self.const(5, UINT32).value), INT32)
        low = Lane(self.function.binary("lshr", word1.value, self.const(6, UINT32).value), INT32)
        scaled_high = self.mul(self.cast(high, FLOAT64), self.const(2.0**-27, FLOAT64))
        scaled_low = self.mul(self.cast(low, FLOAT64), self.const(2.0**-53, FLOAT64))
        return self.add(scaled_high, scaled_low)
