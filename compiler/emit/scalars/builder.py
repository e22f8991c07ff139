"""The scalar builder over LLVM IR: values of lanes go in, instructions are written, values of lanes come out.

``Scalars`` is the backend of ``staticgrad.graph.scalar.ScalarBuilder`` for machine code. The same code serves one lane
and many. Bool lanes are i1, those of short floats their bits, which are only converted and chosen. Where LLVM leaves a
result undefined (division by zero, wide shifts, float to integer out of range) operands are guarded first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.compiler.emit import elementary
from staticgrad.compiler.emit.elementary.number import Num
from staticgrad.compiler.emit.llvm import Function, Value, suffix, value_type, vector
from staticgrad.compiler.emit.scalars import choice, control, conversion, integers, randoms
from staticgrad.compiler.emit.scalars.lane import BOOL, Lane, is_float, is_signed, literal


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
        op = real if is_float(x.dtype) else boolean if x.dtype == BOOL else whole
        return Lane(self.function.binary(op, x.value, y.value), x.dtype)

    def _compare(self, real: str, whole: str, x: Lane, y: Lane) -> Lane:
        if is_float(x.dtype):
            op = f"fcmp {real}"
        elif whole in ("eq", "ne"):
            op = f"icmp {whole}"
        else:
            op = f"icmp {'s' if is_signed(x.dtype) else 'u'}{whole}"
        return Lane(self.function.compare(op, x.value, y.value), BOOL)

    # -- constants and conversions ------------------------------------------------------------------------------

    def const(self, value: float | int | bool, dtype: np.dtype) -> Lane:
        return Lane(self.function.const(literal(value, dtype), self._type(dtype)), dtype)

    def cast(self, x: Lane, dtype: np.dtype) -> Lane:
        return conversion.cast(self, x, dtype)

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
        if is_float(x.dtype):
            return Lane((-self._num(x)).value, x.dtype)
        return self.sub(self.const(0, x.dtype), x)

    def abs(self, x: Lane) -> Lane:
        if is_float(x.dtype):
            return Lane(abs(self._num(x)).value, x.dtype)
        if not is_signed(x.dtype):
            return x
        name = f"llvm.abs.{suffix(x.value.type)}"
        return Lane(self.function.intrinsic(name, x.value.type, x.value, Value("false", "i1")), x.dtype)

    def sign(self, x: Lane) -> Lane:
        return choice.sign(self, x)

    def copysign(self, x: Lane, y: Lane) -> Lane:
        return Lane(self._num(x).copysign(self._num(y)).value, x.dtype)

    def minimum(self, x: Lane, y: Lane) -> Lane:
        return choice.minimum(self, x, y)

    def maximum(self, x: Lane, y: Lane) -> Lane:
        return choice.maximum(self, x, y)

    def fma(self, x: Lane, y: Lane, z: Lane) -> Lane:
        return Lane(self.function.fma(x.value, y.value, z.value), x.dtype)

    # -- division with a floor ----------------------------------------------------------------------------------

    def floor_divide(self, x: Lane, y: Lane) -> Lane:
        if is_float(x.dtype):
            return Lane(elementary.remainder.floor_divide(self._num(x), self._num(y)).value, x.dtype)
        return integers.divided(self, x, y)[0]

    def remainder(self, x: Lane, y: Lane) -> Lane:
        if is_float(x.dtype):
            return Lane(elementary.remainder.remainder(self._num(x), self._num(y)).value, x.dtype)
        return integers.divided(self, x, y)[1]

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
        return control.either(self, condition, then, otherwise)

    def loop(
        self, turns: int, start: Sequence[Lane], turn: Callable[[Sequence[Lane]], tuple[Lane, Sequence[Lane]]]
    ) -> list[Lane]:
        return control.loop(self, turns, start, turn)

    def outlined(self, write: Callable[..., Lane], how: tuple[Any, ...], *values: Lane) -> Lane:
        return control.outlined(self, Scalars, write, how, *values)

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
        return integers.shift_left(self, x, count)

    def shift_right(self, x: Lane, count: Lane) -> Lane:
        return integers.shift_right(self, x, count)

    def bit_cast(self, x: Lane, dtype: np.dtype) -> Lane:
        same = value_type(dtype) == value_type(x.dtype)
        return Lane(x.value if same else self.function.cast("bitcast", x.value, value_type(dtype)), dtype)

    def bit_leading_zeros(self, x: Lane) -> Lane:
        name = f"llvm.ctlz.{suffix(x.value.type)}"
        return Lane(self.function.intrinsic(name, x.value.type, x.value, Value("false", "i1")), x.dtype)

    def bit_count(self, x: Lane) -> Lane:
        name = f"llvm.ctpop.{suffix(x.value.type)}"
        return Lane(self.function.intrinsic(name, x.value.type, x.value), x.dtype)

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
        if is_float(x.dtype):
            return Lane(elementary.power.power(self._num(x), self._num(y)).value, x.dtype)
        if x.dtype == BOOL:
            return self.logical_or(x, self.logical_not(y))
        return integers.power(self, x, y)

    # -- random bits --------------------------------------------------------------------------------------------

    def threefry(self, key0: Lane, key1: Lane, counter_hi: Lane, counter_lo: Lane) -> tuple[Lane, Lane]:
        return randoms.threefry(self, key0, key1, counter_hi, counter_lo)

    def bits_to_unit(self, word: Lane) -> Lane:
        return randoms.unit(self, word)

    def bits_to_unit64(self, word0: Lane, word1: Lane) -> Lane:
        return randoms.unit64(self, word0, word1)
