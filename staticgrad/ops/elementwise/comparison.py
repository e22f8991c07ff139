"""Ops whose results are bools or bits: what kind of float it is, comparisons, logic, operations on bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from staticgrad.base.types import INTEGERS, bool_, is_floating
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import FUNCTIONS, Array, Range
from staticgrad.ops.declare import ANY, BOOL, FLOAT, INTEGRAL, declare, operands
from staticgrad.ops.elementwise.entry import (
    NOT_DIFFERENTIABLE,
    Example,
    binary,
    binary_cases,
    elementwise,
    publish,
    unary,
    unary_cases,
)


def _classification(
    name: str, doc: str, reference: Callable[..., Array], of_integers: bool, *, example: Example
) -> Callable[[TensorLike], Tensor]:
    op = elementwise(
        name, doc, name, lambda attrs, x: reference(x), FLOAT, None, unary_cases(), result=bool_
    )  # fmt: skip

    def function(x: TensorLike) -> Tensor:
        x = operands(name, x)[0]
        if is_floating(x.dtype):
            return declare(op, (x,))
        return FUNCTIONS.full_like(x, of_integers, dtype=bool_)

    notes = f"Elementwise; the result is bool. Of integers and bools: {of_integers}."
    return publish(function, name, doc, notes, example)


isnan = _classification(
    "isnan", "True where x is NaN (not a number).", np.isnan, False,
    example=("sg.isnan([1.0, sg.inf, sg.nan])", "array([False, False,  True])"),
)  # fmt: skip
isfinite = _classification(
    "isfinite", "True where x is neither infinite nor NaN.", np.isfinite, True,
    example=("sg.isfinite([1.0, sg.inf, sg.nan])", "array([ True, False, False])"),
)  # fmt: skip
isinf = _classification(
    "isinf", "True where x is infinite.", np.isinf, False,
    example=("sg.isinf([1.0, -sg.inf, sg.nan])", "array([False,  True, False])"),
)  # fmt: skip

# -- comparison, logic, bits ----------------------------------------------------------------------------------------

_TIES = binary_cases(Range(-2, 2), Range(-2, 2))


def _comparison(
    name: str, doc: str, method: str, reference: Callable[..., Array], *, example: Example
) -> Callable[[TensorLike, TensorLike], Tensor]:
    return binary(name, doc, method, reference, ANY, None, _TIES, result=bool_, cheap=True, example=example)


equal = _comparison(
    "equal", "True where x1 == x2; never for NaN.", "eq", np.equal,
    example=("sg.equal([1.0, 2.0, sg.nan], [1.0, 3.0, sg.nan])", "array([ True, False, False])"),
)  # fmt: skip
not_equal = _comparison(
    "not_equal", "True where x1 != x2, and where either is NaN.", "ne", np.not_equal,
    example=("sg.not_equal([1.0, 2.0, sg.nan], [1.0, 3.0, sg.nan])", "array([False,  True,  True])"),
)  # fmt: skip
less = _comparison(
    "less", "True where x1 < x2; never for NaN.", "lt", np.less,
    example=("sg.less([1.0, 2.0, 3.0], 2.0)", "array([ True, False, False])"),
)  # fmt: skip
less_equal = _comparison(
    "less_equal", "True where x1 <= x2; never for NaN.", "le", np.less_equal,
    example=("sg.less_equal([1.0, 2.0, 3.0], 2.0)", "array([ True,  True, False])"),
)  # fmt: skip
greater = _comparison(
    "greater", "True where x1 > x2; never for NaN.", "gt", np.greater,
    example=("sg.greater([1.0, 2.0, 3.0], 2.0)", "array([False, False,  True])"),
)  # fmt: skip
greater_equal = _comparison(
    "greater_equal", "True where x1 >= x2; never for NaN.", "ge", np.greater_equal,
    example=("sg.greater_equal([1.0, 2.0, 3.0], 2.0)", "array([False,  True,  True])"),
)  # fmt: skip


def _logic(
    name: str, doc: str, reference: Callable[..., Array], *, example: Example
) -> Callable[[TensorLike, TensorLike], Tensor]:
    return binary(name, doc, name, reference, BOOL, None, binary_cases(), cheap=True, example=example)


logical_and = _logic(
    "logical_and", "True where both operands are true.", np.logical_and,
    example=("sg.logical_and([True, True], [True, False])", "array([ True, False])"),
)  # fmt: skip
logical_or = _logic(
    "logical_or", "True where at least one operand is true.", np.logical_or,
    example=("sg.logical_or([0, 2], [0, 0])", "array([False,  True])"),
)  # fmt: skip
logical_xor = _logic(
    "logical_xor", "True where exactly one operand is true.", np.logical_xor,
    example=("sg.logical_xor([True, True], [True, False])", "array([False,  True])"),
)  # fmt: skip
logical_not = unary(
    "logical_not", "True where x is false.", "logical_not", np.logical_not, BOOL, NOT_DIFFERENTIABLE, cheap=True,
    example=("sg.logical_not([True, False])", "array([False,  True])"),
)  # fmt: skip


def _bits(
    name: str, doc: str, method: str, reference: Callable[..., Array], *, example: Example
) -> Callable[[TensorLike, TensorLike], Tensor]:
    return binary(
        name, doc, method, reference, INTEGRAL, None, binary_cases(Range(0, 100), Range(0, 100)), example=example
    )


bitwise_and = _bits(
    "bitwise_and", "The bits that are set in both operands.", "bit_and", np.bitwise_and,
    example=("sg.bitwise_and(0b1100, [0b1010, 0b0111])", "array([8, 4])"),
)  # fmt: skip
bitwise_or = _bits(
    "bitwise_or", "The bits that are set in at least one operand.", "bit_or", np.bitwise_or,
    example=("sg.bitwise_or(0b1100, [0b1010, 0b0001])", "array([14, 13])"),
)  # fmt: skip
bitwise_xor = _bits(
    "bitwise_xor", "The bits that are set in exactly one operand.", "bit_xor", np.bitwise_xor,
    example=("sg.bitwise_xor(0b1100, [0b1010, 0b1100])", "array([6, 0])"),
)  # fmt: skip
bitwise_invert = unary(
    "bitwise_invert", "Every bit flipped; of bools: not.", "bit_not", np.invert, INTEGRAL, NOT_DIFFERENTIABLE,
    Range(0, 100),
    example=("sg.bitwise_invert(np.array([0, 15], np.uint8))", "array([255, 240], dtype=uint8)"),
)  # fmt: skip


def _shifted(shift: np.ufunc, x: Array, count: Array) -> Array:
    """NumPy's shift with the counts that C leaves undefined made definite: everything is shifted out."""
    width = x.dtype.itemsize * 8
    out = (count < 0) | (count >= width)
    if shift is np.left_shift:
        return np.where(out, 0, np.left_shift(x, np.where(out, 0, count)))
    return np.right_shift(x, np.where(out, width - 1, count)) if x.dtype.kind == "i" else np.where(
        out, 0, np.right_shift(x, np.where(out, 0, count))
    )  # fmt: skip


def _shift(
    name: str, doc: str, method: str, shift: np.ufunc, *, example: Example
) -> Callable[[TensorLike, TensorLike], Tensor]:
    return binary(
        name, doc, method, lambda x, count: _shifted(shift, x, count), INTEGERS, None,
        binary_cases(Range(0, 100), Range(0, 40)), example=example,
    )  # fmt: skip


bitwise_left_shift = _shift(
    "bitwise_left_shift", "x1 shifted up by x2 bits; 0 where x2 is negative or not below the width of the dtype.",
    "shift_left", np.left_shift,
    example=("sg.bitwise_left_shift(1, [0, 3, 10])", "array([   1,    8, 1024])"),
)  # fmt: skip
bitwise_right_shift = _shift(
    "bitwise_right_shift", "x1 shifted down by x2 bits, which keeps its sign; a negative x2 shifts everything out.",
    "shift_right", np.right_shift,
    example=("sg.bitwise_right_shift([20, -20], 2)", "array([ 5, -5])"),
)  # fmt: skip
