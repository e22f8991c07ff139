"""Elementwise ops as nodes of ONNX: a builder, to which every op's own expression is handed.

Each method gives the value of all elements. Kernels that runtimes lack (of small integers, of bool) are taken of wider
integers; the division of integers by zero, at which runtimes end the process, is guarded as NumPy's is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.base.types import bool_, int32, int64, is_floating
from staticgrad.bridges.onnx.writing.text import ARITHMETIC, GraphWriter, OnnxValue, Unwritable

Made = Callable[..., OnnxValue]

# Methods of the builder that are one operator, whose result has the dtype of the operands: of floats, and of bits.
OPERATORS = {
    "floor": "Floor", "ceil": "Ceil", "round": "Round", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "tanh": "Tanh",
    "sigmoid": "Sigmoid", "erf": "Erf", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos",
    "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "div": "Div", "reciprocal": "Reciprocal", "power": "Pow",
    "bit_and": "BitwiseAnd", "bit_or": "BitwiseOr", "bit_xor": "BitwiseXor", "bit_not": "BitwiseNot",
}  # fmt: skip
# Of arithmetic, for which small integers are widened; of comparisons; of bools, or of floats whose result is one.
ARITHMETICAL = {"add": "Add", "sub": "Sub", "mul": "Mul", "neg": "Neg", "abs": "Abs", "sign": "Sign"}
COMPARISONS = {"lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual", "eq": "Equal",
               "equals": "Equal"}  # fmt: skip
LOGICAL = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor", "logical_not": "Not", "isnan": "IsNaN",
           "isinf": "IsInf"}  # fmt: skip
EXTREMES = {"minimum": "Min", "maximum": "Max"}
OF_BOOLS = {"add": "Or", "sub": "Xor", "mul": "And", "minimum": "And", "maximum": "Or", "ne": "Xor", "bit_and": "And",
            "bit_or": "Or", "bit_xor": "Xor", "bit_not": "Not"}  # fmt: skip
# And of several operators, by those of the builder.
COMPOSED: dict[str, Made] = {
    "ne": lambda b, x, y: b.logical_not(b.eq(x, y)),
    "fma": lambda b, x, y, z: b.add(b.mul(x, y), z),
    "either": lambda b, condition, then, otherwise: b.select(condition, then(), otherwise()),
    "isfinite": lambda b, x: b.logical_not(b.logical_or(b.isnan(x), b.isinf(x))),
    "trunc": lambda b, x: b.select(b.lt(x, b.like(0, x)), b.ceil(x), b.floor(x)),
    "exp2": lambda b, x: b.power(b.like(2, x), x),
    "log2": lambda b, x: b.mul(b.log(x), b.like(1 / math.log(2), x)),
    "log10": lambda b, x: b.mul(b.log(x), b.like(1 / math.log(10), x)),
    "rsqrt": lambda b, x: b.reciprocal(b.sqrt(x)),
    "silu": lambda b, x: b.mul(x, b.sigmoid(x)),
    "erfc": lambda b, x: b.sub(b.like(1, x), b.erf(x)),
    "normal": lambda b, x: b.fma(b.erf(b.mul(x, b.like(math.sqrt(0.5), x))), b.like(0.5, x), b.like(0.5, x)),
    "gaussian": lambda b, x: b.exp(b.mul(b.like(-0.5, x), b.mul(x, x))),
}


class OnnxBuilder:
    """The operations on one element (``staticgrad.graph.scalar.ScalarBuilder``), on all of them at once."""

    def __init__(self, writer: GraphWriter) -> None:
        self.w = writer

    def __getattr__(self, name: str) -> Made:
        if name.startswith("_"):
            raise AttributeError(name)
        return functools.partial(self._made, name)

    def _made(self, name: str, *xs: Any) -> OnnxValue:
        """The result of a method that is an entry of a table."""
        w: GraphWriter = self.w
        dtype: Any = getattr(xs[0], "dtype", None)
        if dtype == bool_ and name in OF_BOOLS:
            return w.add(OF_BOOLS[name], xs, bool_)
        if name in OPERATORS:
            return w.add(OPERATORS[name], xs, dtype)
        if name in ARITHMETICAL:
            return w.wide(ARITHMETICAL[name], xs)
        if name in COMPARISONS:
            return w.add(COMPARISONS[name], list(map(w.ordered, xs)), bool_)
        if name in LOGICAL:
            return w.add(LOGICAL[name], xs, bool_)
        if name in EXTREMES:
            ordered = list(map(w.ordered, xs))
            return w.back(w.add(EXTREMES[name], ordered, ordered[0].dtype), dtype)
        if name in COMPOSED:
            return COMPOSED[name](self, *xs)
        raise Unwritable(f"{name} has no counterpart")

    # -- constants, arithmetic ----------------------------------------------------------------------------------------

    def const(self, value: Any, dtype: Any) -> OnnxValue:
        return self.w.constant(np.asarray(value).astype(dtype))

    def like(self, value: Any, x: OnnxValue) -> OnnxValue:
        """A constant of the dtype of a value."""
        return self.const(value, x.dtype)

    def cast(self, x: OnnxValue, dtype: Any) -> OnnxValue:
        return self.w.cast(x, dtype)

    def copysign(self, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        size = self.abs(x)
        return self.select(self._is_signed(y), self.neg(size), size)

    def _is_signed(self, y: OnnxValue) -> OnnxValue:
        """True where the sign bit of a float is set; of a NaN it is not."""
        zero = self.like(0, y)
        return self.lt(self.select(self.eq(y, zero), self.div(self.like(1, y), y), y), zero)

    def floor_divide(self, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        if is_floating(x.dtype):
            return self.floor(self.div(x, y))
        if x.dtype not in (int32, int64):
            return self.cast(self.floor_divide(self.cast(x, int64), self.cast(y, int64)), x.dtype)
        zero, one = self.like(0, x), self.like(1, x)
        is_zero = self.eq(y, zero)
        by = self.select(is_zero, one, y)
        quotient = self.w.add("Div", [x, by], x.dtype)
        rest = self.sub(x, self.mul(quotient, by))
        is_off = self.logical_and(self.ne(rest, zero), self.logical_xor(self.lt(rest, zero), self.lt(by, zero)))
        return self.select(is_zero, zero, self.select(is_off, self.sub(quotient, one), quotient))

    def remainder(self, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        zero = self.like(0, x)
        if is_floating(x.dtype):
            rest = self.w.add("Mod", [x, y], x.dtype, fmod=1)
            is_off = self.logical_and(self.ne(rest, zero), self.logical_xor(self.lt(rest, zero), self.lt(y, zero)))
            return self.select(is_off, self.add(rest, y), rest)
        is_zero = self.eq(y, zero)
        by = self.select(is_zero, self.like(1, x), y)
        return self.select(is_zero, zero, self.w.wide("Mod", [x, by]))

    def select(self, condition: OnnxValue, x: OnnxValue, y: OnnxValue) -> OnnxValue:
        if x.dtype == bool_:
            chosen = self.logical_and(condition, x)
            return self.logical_or(chosen, self.logical_and(self.logical_not(condition), y))
        if x.dtype not in ARITHMETIC:
            return self.cast(self.select(condition, self.cast(x, int64), self.cast(y, int64)), x.dtype)
        return self.w.add("Where", [condition, x, y], x.dtype)

    def outlined(self, write: Callable[..., OnnxValue], how: tuple[Any, ...], *values: OnnxValue) -> OnnxValue:
        return write(self, *how, *values)

    def shift_left(self, x: OnnxValue, count: OnnxValue) -> OnnxValue:
        return self._within_width(x, count, self.cast(self._shifted("LEFT", x, count), x.dtype), self.like(0, x))

    def shift_right(self, x: OnnxValue, count: OnnxValue) -> OnnxValue:
        zero = self.like(0, x)
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
        zero, width = self.like(0, count), self.like(x.dtype.itemsize * 8, count)
        is_within = self.lt(count, width)
        if count.dtype.kind == "i":
            is_within = self.logical_and(is_within, self.ge(count, zero))
        return self.select(is_within, shifted, other)

    # -- functions of floats that are exact near 0, and at the ends ----------------------------------------------------

    def expm1(self, x: OnnxValue) -> OnnxValue:
        """2·t / (1 - t) with t = tanh(x / 2) near 0, where exp(x) - 1 cancels."""
        one, half = self.like(1, x), self.like(0.5, x)
        t = self.tanh(self.mul(x, half))
        near = self.div(self.add(t, t), self.sub(one, t))
        return self.select(self.lt(self.abs(x), half), near, self.sub(self.exp(x), one))

    def log1p(self, x: OnnxValue) -> OnnxValue:
        """log(u)·x / (u - 1) with u = 1 + x, whose rounding errors cancel."""
        one = self.like(1, x)
        u = self.add(one, x)
        far = self.sub(u, one)
        is_small = self.eq(far, self.like(0, x))
        value = self.mul(self.log(u), self.div(x, self.select(is_small, one, far)))
        return self.select(is_small, x, self.select(self.isinf(u), u, value))

    def atan2(self, y: OnnxValue, x: OnnxValue) -> OnnxValue:
        zero, turn = self.like(0, x), self.like(math.pi, x)
        quarter = self.like(math.pi / 2, x)
        angle = self.atan(self.div(y, self.select(self.eq(x, zero), self.like(1, x), x)))
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
