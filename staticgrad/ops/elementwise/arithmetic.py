"""Sums, products, quotients, powers, signs and extremes of the elements at one place.

What holds at ties and kinks: ``maximum`` and ``minimum`` give half to each of two equal operands, ``abs``, ``sign`` and
``copysign`` have derivative 0 at 0.
"""

from __future__ import annotations

import numpy as np

from staticgrad.base.types import bool_
from staticgrad.graph.graph import Node, Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import Array, Case, Namespace, Range, public
from staticgrad.graph.scalar import ScalarBuilder, V
from staticgrad.ops.declare import ANY, FLOAT, NUMERIC, accepted
from staticgrad.ops.elementwise.entry import (
    AWAY_FROM_ZERO,
    NEGATE,
    NOT_DIFFERENTIABLE,
    PASS,
    binary,
    binary_cases,
    constant_value,
    is_number,
    scaled,
    unary,
    weighted,
)

add = binary(
    "add", "The sum x1 + x2; of bools: or.", "add", np.add, ANY, (PASS, PASS), cheap=True,
    example=("sg.add([[1.0], [2.0]], [10.0, 20.0])", "array([[11., 21.], [12., 22.]], dtype=float32)"),
)  # fmt: skip

subtract = binary(
    "subtract", "The difference x1 - x2.", "sub", np.subtract, NUMERIC, (PASS, NEGATE), grad_name="Sub", cheap=True,
    example=("sg.subtract(10, [1, 2, 3])", "array([9, 8, 7])"),
)  # fmt: skip

multiply = binary(
    "multiply", "The product x1 * x2; of bools: and.", "mul", np.multiply, ANY,
    (scaled(lambda o, y, a, b: b), scaled(lambda o, y, a, b: a)), grad_name="Mul", cheap=True,
    example=("sg.multiply([1, 2, 3], 0.5)", "array([0.5, 1. , 1.5])"),
)  # fmt: skip


def _scalar_zero_wins(b: ScalarBuilder[V], zero: V, x: V, y: V) -> V:
    return b.select(zero, b.const(0, x.dtype), b.mul(x, y))


multiply_no_nan = binary(
    "multiply_no_nan",
    "x1 * x2, and 0 where x2 is 0, even if x1 is infinite or NaN there: how a cotangent is multiplied.",
    lambda b, attrs, x, y: _scalar_zero_wins(b, b.eq(y, b.const(0, y.dtype)), x, y),
    lambda x, y: np.where(y == 0, 0, x * y), NUMERIC,
    (lambda o, t, y, a, b: o.multiply_zeros(b, t), scaled(lambda o, y, a, b: a)),
)  # fmt: skip

multiply_zeros = binary(
    "multiply_zeros",
    "x1 * x2, and 0 where either is 0, even if the other is infinite or NaN: products of two cotangents.",
    lambda b, attrs, x, y: _scalar_zero_wins(
        b, b.logical_or(b.eq(x, b.const(0, x.dtype)), b.eq(y, b.const(0, y.dtype))), x, y
    ),
    lambda x, y: np.where((x == 0) | (y == 0), 0, x * y), NUMERIC,
    (lambda o, t, y, a, b: o.multiply_zeros(b, t), lambda o, t, y, a, b: o.multiply_zeros(a, t)),
)  # fmt: skip


def _divide_dividend(o: Namespace, t: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    values = constant_value(b)
    if values is not None and np.isfinite(values).all() and (values != 0).all():
        return o.divide(t, b)
    return o.multiply_no_nan(o.reciprocal(b), t)


def _divide_divisor(o: Namespace, t: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """-y·(t/b), so that what both operands' derivatives need is one product, and nothing but 1/b is kept beside y."""
    return o.negative(o.multiply_no_nan(y, o.multiply_no_nan(o.reciprocal(b), t)))


divide = binary(
    "divide", "The quotient x1 / x2, also of integers (true division).", "div", np.divide, FLOAT,
    (_divide_dividend, _divide_divisor),
    binary_cases(Range(), AWAY_FROM_ZERO), grad_name="Div",
    example=("sg.divide([1, -7], [2, 0])", "array([ 0.5, -inf])"),
)  # fmt: skip

floor_divide = binary(
    "floor_divide", "The largest integer not above x1 / x2; integers divided by zero give 0.",
    "floor_divide", np.floor_divide, NUMERIC, (None, None),
    binary_cases(Range(-7.3, 7.7), Range(0.7, 3.0)),
    example=("sg.floor_divide([7, -7, 7], [2, 2, 0])", "array([ 3, -4,  0])"),
)  # fmt: skip

remainder = binary(
    "remainder", "x1 - floor_divide(x1, x2) * x2, with the sign of x2; of integers by zero it is 0.",
    "remainder", np.remainder, NUMERIC,
    (PASS, scaled(lambda o, y, a, b: o.negative(o.floor_divide(a, b)))),
    (Case(((3, 4), (3, 4)), ranges=(Range(3.2, 3.8), Range(1.7, 2.4))),
     *binary_cases(Range(0.1, 0.9), Range(1.1, 3.0))),
    grad_name=lambda node: f"RemainderBackward{0 if is_number(node.inputs[1]) else 1}",
    example=("sg.remainder([7, -7, 7], [3, 3, -3])", "array([ 1,  2, -2])"),
)  # fmt: skip


def _constant_exponent(exponent: Tensor) -> float | None:
    """The value of an exponent that is one constant number."""
    value = constant_value(exponent)
    return float(value) if value is not None and value.ndim == 0 else None


def _pow_base(o: Namespace, t: Tensor, y: Tensor, x: Tensor, exponent: Tensor) -> Tensor | None:
    power = _constant_exponent(exponent)
    if power is None:
        slope = o.multiply_no_nan(o.pow(x, exponent - 1), exponent)  # 0 at exponent 0, where it varies with it
    elif power == 0:
        return None
    elif power == 1:
        return t
    else:
        slope = x * 2.0 if power == 2 else o.pow(x, power - 1) * power
    return weighted(o, slope, t)


def _pow_exponent(o: Namespace, t: Tensor, y: Tensor, x: Tensor, exponent: Tensor) -> Tensor:
    zero = o.logical_and(o.equal(x, 0), o.greater_equal(exponent, 0))
    return weighted(o, o.where(zero, 0, y * o.log(x)), t)


def _name_of_pow(node: Node) -> str:
    """PyTorch numbers the overloads: a number as exponent, none, a number as base."""
    base, exponent = node.inputs
    return f"PowBackward{0 if is_number(exponent) else 2 if is_number(base) else 1}"


def _reference_pow(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.power(x.astype(np.float64), y.astype(np.float64))
    negative = np.where(x == 1, 1, np.where(x == -1, np.where(y % 2 == 0, 1, -1), 0)) if x.dtype.kind == "i" else x
    return np.where(y < 0, negative, np.power(x, np.maximum(y, 0)))


pow = binary(
    "pow", "x1 to the power x2; integers to a negative power give the truncated value.", "pow", _reference_pow,
    NUMERIC, (_pow_base, _pow_exponent), binary_cases(Range(0.2, 2.0), Range(-2.0, 3.0)), grad_name=_name_of_pow,
    tolerance=2.0,
    example=("sg.pow([2.0, 3.0, 0.0], [3.0, -1.0, 0.0])", "array([8. , 0.3333..., 1. ], dtype=float32)"),
)  # fmt: skip

negative = unary(
    "negative", "The negative of x.", "neg", np.negative, NUMERIC, NEGATE, grad_name="Neg", cheap=True,
    example=("sg.negative([1.0, -2.0])", "array([-1.,  2.], dtype=float32)"),
)  # fmt: skip

abs = unary(
    "abs", "The absolute value; its derivative at 0 is 0.", "abs", np.absolute, NUMERIC,
    scaled(lambda o, y, x: o.sign(x)), AWAY_FROM_ZERO, cheap=True,
    example=("sg.abs([-1.5, 0.0, 2.0])", "array([1.5, 0. , 2. ], dtype=float32)"),
)  # fmt: skip

sign = unary(
    "sign", "The sign of x: -1, 0 or 1; NaN for NaN. Its derivative is 0.",
    "sign", np.sign, NUMERIC, None, AWAY_FROM_ZERO,
    example=("sg.sign([-3.0, 0.0, 2.0, sg.nan])", "array([-1.,  0.,  1., nan], dtype=float32)"),
)  # fmt: skip

copysign = binary(
    "copysign", "The magnitude of x1 with the sign of x2, also of zeros and NaNs.", "copysign", np.copysign, FLOAT,
    (scaled(lambda o, y, a, b: o.sign(a) * o.sign(y)), None), binary_cases(AWAY_FROM_ZERO, AWAY_FROM_ZERO),
    example=("sg.copysign([1.0, -2.0], [-0.0, 3.0])", "array([-1.,  2.], dtype=float32)"),
)  # fmt: skip

signbit = unary(
    "signbit", "True where the sign of x is negative, also of zeros and NaNs.",
    lambda b, attrs, x: b.lt(b.copysign(b.const(1, x.dtype), x), b.const(0, x.dtype)),
    np.signbit, FLOAT, NOT_DIFFERENTIABLE, result=bool_,
    example=("sg.signbit([-3.0, -0.0, 0.0])", "array([ True,  True, False])"),
)  # fmt: skip

square = unary(
    "square", "The square x * x.", lambda b, attrs, x: b.mul(x, x), np.square, NUMERIC,
    scaled(lambda o, y, x: x * 2), grad_name="Pow", cheap=True,
    example=("sg.square([-3, 2])", "array([9, 4])"),
)  # fmt: skip

reciprocal = unary(
    "reciprocal", "The reciprocal 1 / x; infinite at 0.",
    lambda b, attrs, x: b.div(b.const(1, x.dtype), x), np.reciprocal, FLOAT,
    scaled(lambda o, y, x: o.negative(y * y)), AWAY_FROM_ZERO,
    example=("sg.reciprocal([4.0, -0.5, 0.0])", "array([ 0.25, -2.  ,   inf], dtype=float32)"),
)  # fmt: skip


@public
def positive(x: TensorLike) -> Tensor:
    """+x: the tensor itself.

    Elementwise. Bools are refused.

    Example:
        >>> sg.Session().run(sg.positive([1.0, -2.0]))
        array([ 1., -2.], dtype=float32)
    """
    return accepted("positive", NUMERIC, x)[0]


def _at_tie(o: Namespace, loses: Tensor, ties: Tensor, t: Tensor) -> Tensor:
    return o.where(loses, 0, o.where(ties, t * 0.5, t))


maximum = binary(
    "maximum", "The larger of x1 and x2; NaN if either is NaN. Equal operands get half of the gradient each.",
    "maximum", np.maximum, ANY,
    (lambda o, t, y, a, b: _at_tie(o, o.less(a, b), o.equal(a, b), t),
     lambda o, t, y, a, b: _at_tie(o, o.less(b, a), o.equal(a, b), t)),
    binary_cases(Range(), Range(-1.97, 2.13), distinct=True), cheap=True,
    example=("sg.maximum([1.0, 5.0, sg.nan], 2.0)", "array([ 2.,  5., nan], dtype=float32)"),
)  # fmt: skip

minimum = binary(
    "minimum", "The smaller of x1 and x2; NaN if either is NaN. Equal operands get half of the gradient each.",
    "minimum", np.minimum, ANY,
    (lambda o, t, y, a, b: _at_tie(o, o.greater(a, b), o.equal(a, b), t),
     lambda o, t, y, a, b: _at_tie(o, o.greater(b, a), o.equal(a, b), t)),
    binary_cases(Range(), Range(-1.97, 2.13), distinct=True), cheap=True,
    example=("sg.minimum([1.0, 5.0, sg.nan], 2.0)", "array([ 1.,  2., nan], dtype=float32)"),
)  # fmt: skip
