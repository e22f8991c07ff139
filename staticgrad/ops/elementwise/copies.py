"""The same values as another node: in another dtype, under another name, or without their gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import (
    DTYPES,
    INTEGERS,
    DTypeLike,
    TensorType,
    dtype_of,
    float32,
    float64,
    holds_numbers,
    int32,
    int64,
    is_floating,
    is_integer,
    is_short_float,
    to_array,
    uint32,
    uint64,
)
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, graph_of, lift
from staticgrad.graph.optable import FUNCTIONS, Array, Case, Op, Range, public, register
from staticgrad.graph.scalar import ScalarBuilder, V
from staticgrad.ops.batch_rules import broadcasting
from staticgrad.ops.declare import ANY, declare
from staticgrad.ops.elementwise.entry import PASS, elementwise, jvp_of, unary_cases, vjp_of

T = TypeVar("T", Tensor, "Tensor | None")


@frozen
class AstypeAttributes:
    """The dtype to convert to."""

    dtype: np.dtype


def _truncated(x: Array, dtype: np.dtype) -> Array:
    """Floats as signed integers; the smallest integer where that has no result, whatever the machine makes of it."""
    least = np.iinfo(dtype).min
    whole = np.trunc(x)
    fits = (whole >= float(least)) & (whole < -float(least))
    return np.where(fits, np.where(fits, whole, 0).astype(dtype), dtype.type(least))


def _whole(x: Array, dtype: np.dtype) -> Array:
    """Floats as integers, by way of int32, of int64 where that has too few bits, and only the lowest bits are kept."""
    if dtype != uint64:
        return _truncated(x, int64 if dtype in (int64, uint32) else int32).astype(dtype)
    half = 2.0**63  # what is not below is converted less this, which is added back to the bits
    above = x >= half
    bits = _truncated(np.where(above, x - half, x), int64)
    return np.where(above, bits ^ np.iinfo(int64).min, bits).astype(dtype)


def _converted(attrs: AstypeAttributes, x: Array) -> Array:
    with np.errstate(all="ignore"):
        if is_floating(x.dtype) and is_integer(attrs.dtype):
            return _whole(x.astype(float64), attrs.dtype)
        return x.astype(attrs.dtype)


_ASTYPE_RULES = (lambda o, t, y, x: o.astype(t, x.dtype if t.dtype == y.dtype else y.dtype),)

ASTYPE = register(
    Op(
        "astype",
        "The values in another dtype.",
        infer=lambda attrs, x: TensorType(x.shape, attrs.dtype),
        reference=_converted,
        role="elementwise",
        scalar=lambda b, attrs, x: b.cast(x, attrs.dtype),
        moves=True,
        cheap=True,
        vjp=vjp_of(_ASTYPE_RULES),
        jvp=jvp_of(_ASTYPE_RULES),
        dtypes=DTYPES,
        cases=tuple(
            Case(((3, 4),), AstypeAttributes(to), (Range(0.0, 9.0),), differentiable=None if to == float64 else ())
            for to in DTYPES
        ),
        grad_name="ToCopy",
        batch=broadcasting,
    )
)


def _saturated(attrs: AstypeAttributes, x: Array) -> Array:
    """By Python's numbers, which are exact and of any size."""
    limits = np.iinfo(attrs.dtype)
    numbers = [0 if number != number else min(max(number, limits.min), limits.max) for number in x.ravel().tolist()]
    return np.asarray([int(number) for number in numbers], attrs.dtype).reshape(x.shape)


def _scalar_saturated(b: ScalarBuilder[V], attrs: AstypeAttributes, x: V) -> V:
    """The conversion between the bounds, which a float of few digits has at the next power of two."""
    to, limits = attrs.dtype, np.iinfo(attrs.dtype)
    if is_floating(x.dtype):
        x = b.cast(x, float32) if is_short_float(x.dtype) else x
        result = b.cast(b.select(b.isnan(x), b.const(0, x.dtype), x), to)
        result = b.select(b.ge(x, b.const(float(limits.max), x.dtype)), b.const(int(limits.max), to), result)
        return b.select(b.le(x, b.const(float(limits.min), x.dtype)), b.const(int(limits.min), to), result)
    result, own = b.cast(x, to), (np.iinfo(x.dtype) if is_integer(x.dtype) else None)
    if own is not None and own.max > limits.max:
        result = b.select(b.gt(x, b.const(int(limits.max), x.dtype)), b.const(int(limits.max), to), result)
    if own is not None and own.min < limits.min:
        result = b.select(b.lt(x, b.const(int(limits.min), x.dtype)), b.const(int(limits.min), to), result)
    return result


def _saturated_type(attrs: AstypeAttributes, x: TensorType) -> TensorType:
    if not is_integer(attrs.dtype):
        raise GraphError(f"astype_saturating: expected a dtype of integers, actual {attrs.dtype.name}")
    return TensorType(x.shape, attrs.dtype)


ASTYPE_SATURATING = register(
    Op(
        "astype_saturating",
        "The values as integers; what is out of range becomes the nearest integer that is not, NaN 0.",
        infer=_saturated_type,
        reference=_saturated,
        role="elementwise",
        scalar=_scalar_saturated,
        moves=True,
        differentiable=False,
        dtypes=DTYPES,
        cases=tuple(Case(((3, 40),), AstypeAttributes(to), (Range(-300.0, 300.0),)) for to in INTEGERS),
        grad_name="ToCopy",
        batch=broadcasting,
    )
)


@public
def astype(x: TensorLike, dtype: DTypeLike, *, copy: bool = True, saturating: bool = False) -> Tensor:
    """The tensor in another dtype; the tensor itself where it has it already.

    Floats become integers by truncation, bools by comparison with zero (NaN is True). A float without an integer of
    its own (NaN, infinity, one that is too large) becomes what NumPy makes of it on x86: the smallest int32 or, for
    64 bits and uint32, int64, of which the lowest bits are kept; from 2**64 on it is 0 as uint64.

    Args:
        copy: without effect: nothing overwrites a tensor.
        saturating: a number without an integer of its own becomes the nearest one, NaN 0; integers that do not fit
            the other integers are limited, too. Without effect where the result is no integer.

    Example:
        >>> sg.Session().run(sg.astype([1.7, -1.7, 0.0], sg.int32))
        array([ 1, -1,  0], dtype=int32)
        >>> sg.Session().run(sg.astype([300.0, -1.0, sg.nan], sg.uint8, saturating=True))
        array([255,   0,   0], dtype=uint8)
        >>> sg.Session().run(sg.constant([1.7, 0.0]).astype(bool))
        array([ True, False])
    """
    target = dtype_of(dtype)
    if holds_numbers(x):  # of more digits than the dtype that they have as operands
        x = FUNCTIONS.constant(to_array(x, target if is_floating(target) else None))
    x = lift(x)
    op = ASTYPE_SATURATING if saturating and is_integer(target) else ASTYPE
    return x if x.dtype == target else declare(op, (x,), AstypeAttributes(target))


def widened(tensors: Sequence[T]) -> list[T]:
    """Short floats as float32, the others, and what is None, as they are."""
    return [x if x is None or not is_short_float(x.dtype) else astype(x, float32) for x in tensors]


def of_width(x: Tensor, dtype: np.dtype) -> Tensor:
    """A float as one of another width; what is no float stays, for a check to refuse."""
    return astype(x, dtype) if is_floating(x.dtype) and is_floating(dtype) else x


def rounded_once(compose: Callable[..., Tensor], *operands: Tensor) -> Tensor:
    """The result of ``compose(*operands)`` for operands of one dtype; of short floats it is composed in float32 and
    rounded once, so that it overflows only where the result itself does.

    Every function that declares more than one op that rounds goes through here.
    """
    result, dtype = compose(*widened(operands)), operands[0].dtype
    return astype(result, dtype) if is_short_float(dtype) else result


def rounded(tensors: Sequence[T], like: Sequence[Tensor]) -> list[T]:
    """Tensors, of which some may be None, in the dtypes of others."""
    return [x if x is None else astype(x, y.dtype) for x, y in zip(tensors, like, strict=True)]


IDENTITY = elementwise(
    "identity", "A copy.", lambda b, attrs, x: x, lambda attrs, x: x, ANY, (PASS,), unary_cases(), grad_name="Clone",
    cheap=True,
)  # fmt: skip


@public
def identity(x: TensorLike, *, name: str | None = None) -> Tensor:
    """The same values as a new node: something to name, to feed, or to order with ``sg.control_dependencies``.

    Example:
        >>> with sg.control_dependencies([sg.print([1.0, 2.0], "before:")]):
        ...     y = sg.identity([3.0], name="y")
        >>> sg.Session().run(y)
        before: [1. 2.]
        array([3.], dtype=float32)
    """
    x = lift(x)
    return graph_of((x,)).add(IDENTITY, (x,), name=name).outputs[0]


STOP_GRADIENT = elementwise(
    "stop_gradient", "The same values, through which no gradient passes.", lambda b, attrs, x: x, lambda attrs, x: x,
    ANY, None, unary_cases(),
)  # fmt: skip


@public
def stop_gradient(x: TensorLike) -> Tensor:
    """The same values; no gradient passes, and the result never requires one. ``x.detach()`` is this.

    Example:
        >>> x = sg.constant(3.0)
        >>> (dx,) = sg.gradients(x * sg.stop_gradient(x), [x])
        >>> sg.Session().run(dx)
        array(3., dtype=float32)
    """
    return declare(STOP_GRADIENT, (lift(x),))
