"""Floats rounded to integral ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from staticgrad.base.types import is_floating
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import Array, Range
from staticgrad.ops.declare import FLOAT, NUMERIC, accepted, declare
from staticgrad.ops.elementwise.entry import Example, elementwise, publish, unary_cases

_BETWEEN_INTEGERS = Range(-2.8, 2.8, kinks=(-2.0, -1.0, 0.0, 1.0, 2.0))
_BETWEEN_HALVES = Range(-2.8, 2.8, kinks=(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5))


def _rounding(
    name: str, doc: str, reference: Callable[..., Array], values: Range, *, example: Example
) -> Callable[[TensorLike], Tensor]:
    """A rounding to integral floats; integers are returned as they are."""
    op = elementwise(name, doc, name, lambda attrs, x: reference(x), FLOAT, (None,), unary_cases(values))

    def function(x: TensorLike) -> Tensor:
        x = accepted(name, NUMERIC, x)[0]
        return declare(op, (x,)) if is_floating(x.dtype) else x

    return publish(function, name, doc, "Elementwise. Integers are returned as they are; bools are refused.", example)


floor = _rounding(
    "floor", "The largest integer not above x.", np.floor, _BETWEEN_INTEGERS,
    example=("sg.floor([1.7, -1.2])", "array([ 1., -2.], dtype=float32)"),
)  # fmt: skip
ceil = _rounding(
    "ceil", "The smallest integer not below x.", np.ceil, _BETWEEN_INTEGERS,
    example=("sg.ceil([1.2, -1.2])", "array([ 2., -1.], dtype=float32)"),
)  # fmt: skip
trunc = _rounding(
    "trunc", "The integer next to x towards 0: x without its fraction.", np.trunc, _BETWEEN_INTEGERS,
    example=("sg.trunc([1.7, -1.7])", "array([ 1., -1.], dtype=float32)"),
)  # fmt: skip
round = _rounding(
    "round", "The nearest integer, halves to the even one.", np.rint, _BETWEEN_HALVES,
    example=("sg.round([0.5, 1.5, -1.2])", "array([ 0.,  2., -1.], dtype=float32)"),
)  # fmt: skip
