"""Elementwise ops as nodes of ONNX: a builder, to which every op's own expression is handed.

Each method gives the value of all elements. Kernels that runtimes lack (of small integers, of bool) are taken of wider
integers; the division of integers by zero, at which runtimes end the process, is guarded as NumPy's is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from staticgrad.base.types import bool_, int32, int64, is_floating
from staticgrad.bridges.onnx.writing.text import ARITHMETIC, GraphWriter, OnnxValue, Unwritable

# Methods of the builder that are one operator, of floats.
OPERATORS = {
    "floor": "Floor", "ceil": "Ceil", "round": "Round", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "tanh": "Tanh",
    "sigmoid": "Sigmoid", "erf": "Erf", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos",
    "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "div": "Div",
}  # fmt: skip
ONLY_FLOAT32 = {"Erf", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh"}  # kernels that not all runtimes have of float64
COMPARISONS = {"lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}
WITHOUT = ("erfinv", "threefry", "bits_to_unit", "bits_to_unit64", "loop", "bitcast")


Made = Callable[..., OnnxValue]


class OnnxBuilder:
    """The operations on one element (``staticgrad.graph.scalar.ScalarBuilder``), on all of them at once."""

    # By ``__getattr__``:
    floor: Made
    ceil: Made
    exp: Made
    log: Made
    sqrt: Made
    tanh: Made
    sigmoid: Made
    erf: Made
    atan: Made
    div: Made
    lt: Made
    ge: Made

    def __init__(self, writer: GraphWriter) -> None:
        self.w = writer

    def __getattr__(self, name: str) -> Any:
        if name in OPERATORS:
            return lambda *xs: self.w.add(OPERATORS[name], xs, xs[0].dtype)
        if name in COMPARISONS:
            return lambda x, y: self._compared(COMPARISONS[name], x, y)
        if name in WITHOUT or not name.startswith("_"):
            return lambda *xs: self._refuse(name)
        raise AttributeError(name)

    def _refuse(self, name: str) -> NoReturn:
        raise Unwritable(f"{name} has no counterpart")

    # -- constants, arithmetic ----------------------------------------------------------------------------------------

    def const(self, value: Any, dtype: Any) -> OnnxValue:
        return self.w.constant(np.asarray(value).astype(dtype))

    def cast(self, x: OnnxValue, dtype: Any) -> OnnxValue:
        return self.w.cast(x, dtype)

    def add(self, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        return self.logical_or(x, y) if x.dtype == bool_ else self.w.wide("Add", [x, y])

    def sub(self, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        return self.logical_xor(x, y) if x.dtype == bool_ else self.w.wide("Sub", [x, y])

    def mul(self, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        return self.logical_and(x, y) if x.dtype == bool_ else self.w.wide("Mul", [x, y])

    def neg(self, x: OnnxValue) -> OnnxValue:
        return self.w.wide("Neg", [x])

    def abs(self, x: OnnxValue) -> OnnxValue:
        return self.w.wide("Abs", [x])

    def sign(self, x: OnnxValue) -> OnnxValue:
        return self.w.wide("Sign", [x])

    def copysign(self, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        size = self.abs(x)
        return self.select(self._is_signed(y), self.neg(size), size)

    def _is_signed(self, y: OnnxValue) -> OnnxValue:
        """True where the sign bit of a float is set; of a NaN it is not."""
        zero = self.const(0, y.dtype)
        return self.lt(self.select(self.eq(y, zero), self.div(self.const(1, y.dtype), y), y), zero)

    def floor_divide(self, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        if is_floating(x.dtype):
            return self.floor(self.div(x, y))
        if x.dtype not in (int32, int64):
            return self.cast(self.floor_divide(self.cast(x, int64), self.cast(y, int64)), x.dtype)
        zero, one = self.const(0, x.dtype), self.const(1, x.dtype)
        is_zero = self.eq(y, zero)
        by = self.select(is_zero, one, y)
        quotient = self.w.add("Div", [x, by], x.dtype)
        rest = self.sub(x, self.mul(quotient, by))
        is_off = self.logical_and(self.ne(rest, zero), self.ne_bool(self.lt(rest, zero), self.lt(by, zero)))
        return self.select(is_zero, zero, self.select(is_off, self.sub(quotient, one), quotient))

    def remainder(self, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        zero = self.const(0, x.dtype)
        if is_floating(x.dtype):
            rest = self.w.add("Mod", [x, y], x.dtype, fmod=1)
            is_off = self.logical_and(self.ne(rest, zero), self.ne_bool(self.lt(rest, zero), self.lt(y, zero)))
            return self.select(is_off, self.add(rest, y), rest)
        is_zero = self.eq(y, zero)
        by = self.select(is_zero, self.const(1, x.dtype), y)
        return self.select(is_zero, zero, self.w.wide("Mod", [x, by]))

    def minimum(self, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        return self.logical_and(x, y) if x.dtype == bool_ else self._extreme("Min", x, y)

    def maximum(self, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        return self.logical_or(x, y) if x.dtype == bool_ else self._extreme("Max", x, y)

    def _extreme(self, operator: str, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        a, b = self.w.ordered(x), self.w.ordered(y)
        return self.w.back(self.w.add(operator, [a, b], a.dtype), x.dtype)

    def fma(self, x: OnnxValue, y: OnnxValue, z: OnnxValue) -> OnnxValue:
        return self.add(self.mul(x, y), z)

    # -- comparison and choice ----------------------------------------------------------------------------------------

    def _compared(self, operator: str, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        return self.w.add(operator, [self.w.ordered(x), self.w.ordered(y)], bool_)

    def eq(self, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        return self.logical_not(self.logical_xor(x, y)) if x.dtype == bool_ else self._compared("Equal", x, y)

    def ne(self, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        return self.logical_xor(x, y) if x.dtype == bool_ else self.logical_not(self.eq(x, y))

    def ne_bool(self, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        return self.logical_xor(x, y)

    def equals(self, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        return self.eq(x, y)

    def select(self, condition: OnnxValue, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        if x.dtype == bool_:
            chosen = self.logical_and(condition, x)
            return self.logical_or(chosen, self.logical_and(self.logical_not(condition), y))
        if x.dtype not in ARITHMETIC:
            return self.cast(self.select(condition, self.cast(x, int64), self.cast(y, int64)), x.dtype)
        return self.w.add("Where", [condition, x, y], x.dtype)

    def either(
        self, condition: OnnxValue, then: Callable[[], OnnxValue], otherwise: Callable[[], OnnxValue]
    ) -> OnnxValue:
        return self.select(condition, then(), otherwise())

    def outlined(self, write: Callable[..., OnnxValue], how: tuple[Any, ...], *values: OnnxValue) -> OnnxValue:
        return write(self, *how, *values)

    def logical_and(self, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        return self.w.add("And", [x, y], bool_)

    def logical_or(self, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        return self.w.add("Or", [x, y], bool_)

    def logical_xor(self, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        return self.w.add("Xor", [x, y], bool_)

    def logical_not(self, x: OnnxValue) -> OnnxValue:
        return self.w.add("Not", [x], bool_)

    def _bits(self, operator: str, logical: Callable[..., OnnxValue], *xs: OnnxValue) -> OnnxValue:
        return logical(*xs) if xs[0].dtype == bool_ else self.w.add(operator, xs, xs[0].dtype)

    def bit_and(self, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        return self._bits("BitwiseAnd", self.logical_and, x, y)

    def bit_or(self, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        return self._bits("BitwiseOr", self.logical_or, x, y)

    def bit_xor(self, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        return self._bits("BitwiseXor", self.logical_xor, x, y)

    def bit_not(self, x: OnnxValue) -> OnnxValue:
        return self._bits("BitwiseNot", self.logical_not, x)

    def shift_left(self, x: OnnxValue, count: OnnxValue) -> OnnxValue:
        return self._within_width(x, count, self.cast(self._shifted("LEFT", x, count), x.dtype), self.const(0, x.dtype))

    def shift_right(self, x: OnnxValue, count: OnnxValue) -> OnnxValue:
        zero = self.const(0, x.dtype)
        if x.dtype.kind == "u":
            return self._within_width(x, count, self._shifted("RIGHT", x, count), zero)
        is_negative = self.lt(x, zero)  # then the bits that are not set are shifted
        bits = self.select(is_negative, self.bit_not(x), x)
        shifted = self._within_width(x, count, self.cast(self._shifted("RIGHT", bits, count), x.dtype), zero)
        return self.select(is_negative, self.bit_not(shifted), shifted)

    def _shifted(self, direction: str, x: OnnxValue, count: OnnxValue) -> OnnxValue:
        unsigned = np.dtype(f"u{x.dtype.name.removeprefix('u')}")
        xs = [self.cast(x, unsigned), self.cast(count, unsigned)]
        wide = np.dtype(np.uint32) if unsigned.itemsize < 4 else unsigned
        return self.cast(self.w.add("BitShift", [self.cast(y, wide) for y in xs], wide, direction=direction), unsigned)

    def _within_width(self, x: OnnxValue, count: OnnxValue, shifted: OnnxValue, other: OnnxValue) -> OnnxValue:
        zero, width = self.const(0, count.dtype), self.const(x.dtype.itemsize * 8, count.dtype)
        is_within = self.lt(count, width)
        if count.dtype.kind == "i":
            is_within = self.logical_and(is_within, self.ge(count, zero))
        return self.select(is_within, shifted, other)

    # -- floats -------------------------------------------------------------------------------------------------------

    def isnan(self, x: OnnxValue) -> OnnxValue:
        return self.w.add("IsNaN", [x], bool_)

    def isinf(self, x: OnnxValue) -> OnnxValue:
        return self.w.add("IsInf", [x], bool_)

    def isfinite(self, x: OnnxValue) -> OnnxValue:
        return self.logical_not(self.logical_or(self.isnan(x), self.isinf(x)))

    def trunc(self, x: OnnxValue) -> OnnxValue:
        return self.select(self.lt(x, self.const(0, x.dtype)), self.ceil(x), self.floor(x))

    def exp2(self, x: OnnxValue) -> OnnxValue:
        return self.w.add("Pow", [self.const(2, x.dtype), x], x.dtype)

    def expm1(self, x: OnnxValue) -> OnnxValue:
        """2·t / (1 - t) with t = tanh(x / 2) near 0, where exp(x) - 1 cancels."""
        one, half = self.const(1, x.dtype), self.const(0.5, x.dtype)
        t = self.tanh(self.mul(x, half))
        near = self.div(self.add(t, t), self.sub(one, t))
        return self.select(self.lt(self.abs(x), half), near, self.sub(self.exp(x), one))

    def log1p(self, x: OnnxValue) -> OnnxValue:
        """log(u)·x / (u - 1) with u = 1 + x, whose rounding errors cancel."""
        one = self.const(1, x.dtype)
        u = self.add(one, x)
        far = self.sub(u, one)
        is_small = self.eq(far, self.const(0, x.dtype))
        value = self.mul(self.log(u), self.div(x, self.select(is_small, one, far)))
        return self.select(is_small, x, self.select(self.isinf(u), u, value))

    def log2(self, x: OnnxValue) -> OnnxValue:
        return self.mul(self.log(x), self.const(1 / math.log(2), x.dtype))

    def log10(self, x: OnnxValue) -> OnnxValue:
        return self.mul(self.log(x), self.const(1 / math.log(10), x.dtype))

    def rsqrt(self, x: OnnxValue) -> OnnxValue:
        return self.w.add("Reciprocal", [self.sqrt(x)], x.dtype)

    def silu(self, x: OnnxValue) -> OnnxValue:
        return self.mul(x, self.sigmoid(x))

    def erfc(self, x: OnnxValue) -> OnnxValue:
        return self.sub(self.const(1, x.dtype), self.erf(x))

    def normal(self, x: OnnxValue) -> OnnxValue:
        half = self.const(0.5, x.dtype)
        return self.add(half, self.mul(half, self.erf(self.mul(x, self.const(math.sqrt(0.5), x.dtype)))))

    def gaussian(self, x: OnnxValue) -> OnnxValue:
        return self.exp(self.mul(self.const(-0.5, x.dtype), self.mul(x, x)))

    def atan2(self, y: OnnxValue, x: OnnxValue) -> OnnxValue:
        zero, turn = self.const(0, x.dtype), self.const(math.pi, x.dtype)
        quarter = self.const(math.pi / 2, x.dtype)
        angle = self.atan(self.div(y, self.select(self.eq(x, zero), self.const(1, x.dtype), x)))
        half_turn = self.select(self._is_signed(y), self.neg(turn), turn)
        beside = self.select(self.eq(y, zero), zero, self.select(self.lt(y, zero), self.neg(quarter), quarter))
        left = self.select(self._is_signed(x), self.add(angle, half_turn), angle)
        on_axis = self.select(self.eq(y, zero), self.select(self._is_signed(x), half_turn, y), beside)
        return self.select(self.eq(x, zero), on_axis, left)

    def pow(self, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        if not is_floating(x.dtype):
            raise Unwritable("powers of integers wrap around here")
        return self.w.add("Pow", [x, y], x.dtype)


def elementwise(writer: GraphWriter, node: Any, operands: Sequence[OnnxValue]) -> OnnxValue:
    """The result of an elementwise op."""
    if not operands:
        raise Unwritable("its numbers are made of the session's seed")
    start, (output,) = len(writer.nodes), node.outputs
    result: OnnxValue = node.op.scalar(OnnxBuilder(writer), node.attrs, *operands)
    assert result.dtype == output.dtype, (node, result)
    read = _read_by(result, writer.nodes[start:])
    if all(y.name in read for x, y in zip(node.inputs, operands, strict=True) if x.ndim):
        return result
    return writer.add("Expand", [result, writer.numbers(output.shape)], result.dtype)  # one that it ignores is larger


def _read_by(result: OnnxValue, nodes: Sequence[Any]) -> set[str]:
    """The names that a value is made of by nodes, the latest of which is last."""
    read = {result.name}
    for node in reversed(nodes):
        if not read.isdisjoint(node.output):
            read.update(node.input)
    return read
