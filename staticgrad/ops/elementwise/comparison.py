"""Ops whose results are bools or bits: what kind of float it is, comparisons, logic, operations on bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from staticgrad.graph import Tensor
from staticgrad.lifting import TensorLike
from staticgrad.ops.declare import ANY, BOOL, FLOAT, INTEGRAL, declare, operands
from staticgrad.ops.elementwise.entry import (
    NOT_DIFFERENTIABLE,
    binary,
    binary_cases,
    elementwise,
    publish,
    unary,
    unary_cases,
)
from staticgrad.optable import FUNCTIONS, Array, Range
from staticgrad.types import INTEGERS, bool_, is_floating


def _classification(
    name: str, doc: str, reference: Callable[..., Array], of_integers: bool
) -> Callable[[TensorLike], Tensor]:
    op = elementwise(
        name, doc, name, lambda attrs, x: reference(x), FLOAT, None, unary_cases(), result=bool_
    )  # fmt: skip

    def function(x: TensorLike) -> Tensor:
        x = operands(name, x)[0]
        if is_floating(x.dtype):
            return declare(op, (x,))
        return FUNCTIONS.full_like(x, of_integers, dtype=bool_)

    return publish(function, name, doc, f"Elementwise; the result is bool. Of integers and bools: {of_integers}.")


isnan = _classification("isnan", "Whether x is not a number.", np.isnan, False)
isfinite = _classification("isfinite", "Whether x is neither infinite nor NaN.", np.isfinite, True)
isinf = _classification("isinf", "Whether x is an infinity.", np.isinf, False)

# -- comparison, logic, bits ----------------------------------------------------------------------------------------

_TIES = binary_cases(Range(-2, 2), Range(-2, 2))


def _comparison(
    name: str, doc: str, method: str, reference: Callable[..., Array]
) -> Callable[[TensorLike, TensorLike], Tensor]:
    return binary(name, doc, method, reference, ANY, None, _TIES, result=bool_)


equal = _comparison("equal", "x1 == x2, as bool.", "eq", np.equal)
not_equal = _comparison("not_equal", "x1 != x2, as bool; true for NaN.", "ne", np.not_equal)
less = _comparison("less", "x1 < x2, as bool.", "lt", np.less)
less_equal = _comparison("less_equal", "x1 <= x2, as bool.", "le", np.less_equal)
greater = _comparison("greater", "x1 > x2, as bool.", "gt", np.greater)
greater_equal = _comparison("greater_equal", "x1 >= x2, as bool.", "ge", np.greater_equal)


def _logic(name: str, doc: str, reference: Callable[..., Array]) -> Callable[[TensorLike, TensorLike], Tensor]:
    return binary(name, doc, name, reference, BOOL, None, binary_cases())


logical_and = _logic("logical_and", "Whether both are true.", np.logical_and)
logical_or = _logic("logical_or", "Whether at least one is true.", np.logical_or)
logical_xor = _logic("logical_xor", "Whether exactly one is true.", np.logical_xor)
logical_not = unary("logical_not", "Whether x is false.", "logical_not", np.logical_not, BOOL, NOT_DIFFERENTIABLE)


def _bits(
    name: str, doc: str, method: str, reference: Callable[..., Array]
) -> Callable[[TensorLike, TensorLike], Tensor]:
    return binary(name, doc, method, reference, INTEGRAL, None, binary_cases(Range(0, 100), Range(0, 100)))


bitwise_and = _bits("bitwise_and", "The bits that both have.", "bit_and", np.bitwise_and)
bitwise_or = _bits("bitwise_or", "The bits that at least one has.", "bit_or", np.bitwise_or)
bitwise_xor = _bits("bitwise_xor", "The bits that exactly one has.", "bit_xor", np.bitwise_xor)
bitwise_invert = unary(
    "bitwise_invert", "Every bit flipped; of bools: not.", "bit_not", np.invert, INTEGRAL, NOT_DIFFERENTIABLE,
    Range(0, 100),
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


def _shift(name: str, doc: str, method: str, shift: np.ufunc) -> Callable[[TensorLike, TensorLike], Tensor]:
    return binary(
        name, doc, method, lambda x, count: _shifted(shift, x, count), INTEGERS, None,
        binary_cases(Range(0, 100), Range(0, 40)),
    )  # fmt: skip


bitwise_left_shift = _shift("bitwise_left_shift", "x1 shifted up by x2 bits.", "shift_left", np.left_shift)
bitwise_right_shift = _shift("bitwise_right_shift", "x1 shifted down by x2 bits.", "shift_right", np.right_shift)
