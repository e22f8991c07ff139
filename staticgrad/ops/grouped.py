"""Products of short numbers, several terms of which fill 32 bits, and linear maps of numbers quantised to 8 bits.

``grouped_dot`` is what processors multiply by one instruction: its operands hold ``terms`` numbers, consecutive in k,
where others hold one float32. A compiled program declares it for products of bfloat16, and of float32 where that may be
rounded (``compiler/passes/grouping.py``); ``quantized_linear`` is composed of it.

    kind       terms  A          B          sums      instructions
    bfloat16   2      bfloat16   bfloat16   float32   AVX512_BF16's vdpbf16ps
    int8       4      uint8      int8       int32     AVX512_VNNI's and AVX_VNNI's vpdpbusd

A sum of bfloat16 takes the terms of a group one after the other, the second first: each product is exact, each sum is
rounded to nearest, even. The instruction takes denormal numbers for zero and makes none; code without it has them. Sums
of int8 are exact, modulo 2³².
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import (
    Dim,
    Size,
    TensorType,
    dtype_of,
    float32,
    int8,
    int32,
    is_floating,
    product,
    uint8,
)
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift_all
from staticgrad.graph.optable import Array, Case, Namespace, NoAttributes, Op, Primal, Range, public, register
from staticgrad.ops.batch_rules import last_axes
from staticgrad.ops.contraction import require_equal

Kind = Literal["bfloat16", "int8"]

MOST_TERMS = (2**31 - 1) // (255 * 127)  # of a sum of int8 that no value makes overflow
LEVELS = 127  # of a quantised number, to each side of zero
LEAST = 1e-36  # magnitude of a row that is not taken for zero
MIDDLE = 128  # the uint8 that stands for zero


@frozen
class Grouping:
    """The form of a product's operands: the numbers in 32 bits, the dtypes of A, B and sums."""

    terms: int
    a: str
    b: str
    sums: np.dtype


GROUPINGS: dict[str, Grouping] = {
    "bfloat16": Grouping(2, "bfloat16", "bfloat16", float32),
    "int8": Grouping(4, "uint8", "int8", int32),
}


# -- the product ----------------------------------------------------------------------------------------------------


@frozen
class GroupAttributes:
    """The kind of numbers that are multiplied."""

    kind: Kind


def _groups_of(x: TensorType, dtype: str, terms: int) -> tuple[Size, ...]:
    """The sizes of an operand by groups: of int32 each element is one, else the last axis is."""
    if x.dtype == int32 and x.ndim >= 2:
        return x.shape
    if x.dtype.name != dtype or x.ndim < 3 or x.shape[-1] != terms:
        raise GraphError(f"grouped_dot: expected {dtype} in groups of {terms}, or int32, actual {x}")
    return x.shape[:-1]


def _grouped_type(attrs: GroupAttributes, a: TensorType, b: TensorType) -> TensorType:
    grouping = GROUPINGS[attrs.kind]
    left, right = _groups_of(a, grouping.a, grouping.terms), _groups_of(b, grouping.b, grouping.terms)
    if len(left) != len(right):
        raise GraphError(f"grouped_dot: expected operands of one rank, actual {a} and {b}")
    for one, other in zip((*left[:-2], left[-1]), (*right[:-2], right[-2]), strict=True):
        require_equal(one, other, "grouped_dot", f"batch sizes and groups of {a} and {b}")
    return TensorType((*left[:-1], right[-1]), grouping.sums)


def in_order(a: Array, b: Array, grouping: Grouping) -> tuple[Array, Array]:
    """Operands in groups as matrices of short numbers, (*batch, m, k) and (*batch, k, n)."""

    def apart(x: Array, dtype: str) -> Array:
        return np.ascontiguousarray(x)[..., None].view(dtype_of(dtype)) if x.dtype.itemsize == 4 else x

    left, right = apart(a, grouping.a), np.swapaxes(apart(b, grouping.b), -1, -2)  # … m, g, t and … g, t, n
    k = left.shape[-2] * grouping.terms
    return left.reshape(*left.shape[:-2], k), right.reshape(*right.shape[:-3], k, right.shape[-1])


def _grouped_reference(attrs: GroupAttributes, a: Array, b: Array) -> Array:
    """Exact sums of int8; sums of bfloat16 by NumPy's product."""
    grouping = GROUPINGS[attrs.kind]
    wide = np.dtype(np.float64 if grouping.sums == float32 else np.int64)
    left, right = in_order(a, b, grouping)
    with np.errstate(all="ignore"):
        return np.asarray(np.matmul(left.astype(wide), right.astype(wide)).astype(grouping.sums))


GROUPED_DOT = register(
    Op(
        "grouped_dot",
        "Products ``(*batch, m, g, t) x (*batch, g, n, t)`` of short numbers in groups, of int32 that hold one each.",
        infer=_grouped_type,
        reference=_grouped_reference,
        role="matrix",
        moves=True,  # the sums of short floats are float32
        differentiable=False,
        dtypes=(int8,),
        cases=(
            Case(((3, 5, 4), (5, 2, 4)), GroupAttributes("int8"), (Range(0, 255), Range(-127, 127)), (uint8, int8)),
            Case(((2, 3, 5, 4), (2, 5, 17, 4)), GroupAttributes("int8"), (Range(0, 9), Range(-9, 9)), (uint8, int8)),
            Case(((3, 5), (5, 33)), GroupAttributes("int8"), (Range(-9999, 9999),) * 2, (int32, int32)),
        ),
        tolerance=4.0,
        batch=last_axes,
    )
)  # fmt: skip


def grouped_dot(a: Tensor, b: Tensor, kind: Kind) -> Tensor:
    """The products of two operands in groups."""
    return a.graph.add(GROUPED_DOT, (a, b), GroupAttributes(kind)).outputs[0]


def are_groups(strides: Sequence[int], terms: int) -> bool:
    """True if an operand with these strides lies as groups of ``terms`` numbers."""
    *outer, unit = strides
    return unit == 1 and all(stride % terms == 0 for stride in outer)


def groups(o: Namespace, x: Tensor, terms: int) -> Tensor:
    """The last axis of a tensor as groups, the last one filled up with zeros: (…, k) to (…, ⌈k / terms⌉, terms)."""
    size = x.shape[-1]
    assert isinstance(size, int)
    lacks = -size % terms
    if lacks:
        x = o.pad(x, ((0, 0),) * (x.ndim - 1) + ((0, lacks),))
    return o.reshape(x, (*x.shape[:-1], (size + lacks) // terms, terms))


# -- quantised linear maps --------------------------------------------------------------------------------------------


def _linear_type(attrs: NoAttributes, x: TensorType, w: TensorType, *b: TensorType) -> TensorType:
    if x.ndim < 1 or w.ndim != 2 or any(y.ndim != 1 for y in b):
        raise GraphError(f"quantized_linear: expected an input (*, in), a weight (out, in), actual {x}, {w}")
    if isinstance(w.shape[1], Dim) or not 0 < w.shape[1] <= MOST_TERMS:
        raise GraphError(f"quantized_linear: expected 1 to {MOST_TERMS} inputs, actual a weight {w}")
    require_equal(w.shape[1], x.shape[-1], "quantized_linear", f"size of the input's last axis for the weight {w}")
    if b:
        require_equal(w.shape[0], b[0].shape[0], "quantized_linear", "size of the bias")
    return TensorType((*x.shape[:-1], w.shape[0]), x.dtype)


def _quantised(o: Namespace, x: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of a matrix as whole numbers in -127 … 127, and the step of each row; rows of nothing but zeros, or of
    numbers next to it, are zero."""
    largest = o.max(o.abs(x), axis=-1, keepdims=True)
    rate = o.where(o.greater(largest, LEAST), o.divide(LEVELS, largest), 0)
    return o.round(o.multiply(x, rate)), o.divide(largest, LEVELS)


def _linear_expand(o: Namespace, node: Primal[NoAttributes]) -> Sequence[Tensor]:
    x, w, *b = node.inputs
    rows = o.reshape(x, (product(x.shape[:-1]), x.shape[-1])) if x.ndim != 2 else x
    left, row_step = _quantised(o, rows)
    right, column_step = _quantised(o, w)
    # The processor multiplies numbers without sign by numbers with one: 128 more in each term of a column.
    more = o.multiply(o.sum(right, axis=1), MIDDLE)
    terms = GROUPINGS["int8"].terms
    a = groups(o, o.astype(o.add(left, MIDDLE), uint8), terms)
    by_row = groups(o, o.astype(right, int8), terms)
    sums = grouped_dot(a, o.permute_dims(by_row, (1, 0, 2)), "int8")
    exact = o.astype(o.subtract(sums, o.astype(more, int32)), x.dtype)
    y = o.multiply(o.multiply(exact, row_step), o.reshape(column_step, (w.shape[0],)))
    y = o.add(y, b[0]) if b else y
    return [o.reshape(y, (*x.shape[:-1], w.shape[0])) if x.ndim != 2 else y]


def _linear_reference(attrs: NoAttributes, x: Array, w: Array, *b: Array) -> Array:
    def quantised(x: Array) -> tuple[Array, Array]:
        largest = np.abs(x).max(-1, keepdims=True, initial=0)
        one = x.dtype.type(LEVELS)
        with np.errstate(all="ignore"):
            return np.rint(x * np.where(largest > LEAST, one / largest, x.dtype.type(0))), largest / one

    (left, row_step), (right, column_step) = quantised(x), quantised(w)
    exact = np.matmul(left.astype(np.int64), right.astype(np.int64).T).astype(x.dtype)
    y = exact * row_step * column_step[:, 0]
    return np.asarray(y + b[0] if b else y)


QUANTIZED_LINEAR = register(
    Op(
        "quantized_linear",
        "``x @ w.T + b`` of rows and weights that are quantised to 8 bits.",
        infer=_linear_type,
        reference=_linear_reference,
        expand=_linear_expand,
        differentiable=False,
        dtypes=(float32,),
        cases=(
            Case(((5, 8), (3, 8), (3,))),
            Case(((5, 7), (3, 7))),
            Case(((4,), (3, 4), (3,))),
            Case(((2, 3, 4), (5, 4), (5,))),
        ),
        tolerance=4.0,
    )
)


@public
def quantized_linear(input: TensorLike, weight: TensorLike, bias: TensorLike | None = None) -> Tensor:
    """``input @ weight.T + bias``, multiplied in integers of 8 bits (dynamic quantisation).

    Each row of the input, and the weights of each output, are divided into steps of 1/127 of their greatest magnitude,
    s, and rounded to whole steps; their products are summed exactly, and scaled. So an output is off by no more than
    ``Σ (sₓ·|w| + s_w·|x|)/2 + sₓ·s_w/4`` over the inputs, and by the rounding of float32. There is no derivative.

    Args:
        input: (…, in), float32.
        weight: (out, in), float32. Where it is a variable it is quantised when that has changed, not at each call.
        bias: (out,), or None.

    Returns:
        (…, out).

    Raises:
        GraphError: sizes that do not agree, more than 66,311 inputs, another dtype.

    Example:
        >>> x = sg.constant([[1.0, 2.0]])
        >>> sg.Session().run(sg.nn.quantized_linear(x, [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        array([[1.007874, 2.      , 3.007874]], dtype=float32)
    """
    operands = lift_all((input, weight) if bias is None else (input, weight, bias), what="quantized_linear")
    if operands[0].dtype != float32 or not is_floating(operands[1].dtype):
        raise GraphError(f"quantized_linear: expected float32, actual {', '.join(str(x.type) for x in operands)}")
    return operands[0].graph.add(QUANTIZED_LINEAR, operands).outputs[0]
