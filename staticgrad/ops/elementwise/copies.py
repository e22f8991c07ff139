"""The same values as another node: in another dtype, under another name, or without their gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from staticgrad.frozen import frozen
from staticgrad.graph import Tensor
from staticgrad.lifting import TensorLike, graph_of, lift
from staticgrad.ops.declare import ANY, declare
from staticgrad.ops.elementwise.entry import PASS, elementwise, jvp_of, unary_cases, vjp_of
from staticgrad.optable import Array, Case, Op, Range, public, register
from staticgrad.types import DTYPES, DTypeLike, TensorType, dtype_of, float32, float64, is_short_float

T = TypeVar("T", Tensor, "Tensor | None")


@frozen
class AstypeAttributes:
    """The dtype to convert to."""

    dtype: np.dtype


def _converted(attrs: AstypeAttributes, x: Array) -> Array:
    with np.errstate(all="ignore"):
        return x.astype(attrs.dtype)


_ASTYPE_RULES = (lambda o, t, y, x: o.astype(t, x.dtype if t.dtype == y.dtype else y.dtype),)

ASTYPE = register(
    Op(
        "astype",
        "The values in another dtype.",
        infer=lambda attrs, x: TensorType(x.shape, attrs.dtype),
        reference=_converted,
        scalar=lambda b, attrs, x: b.cast(x, attrs.dtype),
        moves=True,
        vjp=vjp_of(_ASTYPE_RULES),
        jvp=jvp_of(_ASTYPE_RULES),
        dtypes=DTYPES,
        cases=tuple(
            Case(((3, 4),), AstypeAttributes(to), (Range(0.0, 9.0),), differentiable=None if to == float64 else ())
            for to in DTYPES
        ),
        grad_name="ToCopy",
    )
)


@public
def astype(x: TensorLike, dtype: DTypeLike) -> Tensor:
    """The tensor in another dtype; the tensor itself where it has it already.

    Floats become integers by truncation, bools by comparison with zero (NaN is True).
    """
    x = lift(x)
    target = dtype_of(dtype)
    return x if x.dtype == target else declare(ASTYPE, (x,), AstypeAttributes(target))


def widened(tensors: Sequence[T]) -> list[T]:
    """Short floats as float32, the others, and what is None, as they are."""
    return [x if x is None or not is_short_float(x.dtype) else astype(x, float32) for x in tensors]


def rounded(tensors: Sequence[T], like: Sequence[Tensor]) -> list[T]:
    """Tensors, of which some may be None, in the dtypes of others."""
    return [x if x is None else astype(x, y.dtype) for x, y in zip(tensors, like, strict=True)]


IDENTITY = elementwise(
    "identity", "A copy.", lambda b, attrs, x: x, lambda attrs, x: x, ANY, (PASS,), unary_cases(), grad_name="Clone"
)


@public
def identity(x: TensorLike, *, name: str | None = None) -> Tensor:
    """The same values as a new node: something to name, to feed, or to order with ``sg.control_dependencies``."""
    x = lift(x)
    return graph_of((x,)).add(IDENTITY, (x,), name=name).outputs[0]


STOP_GRADIENT = elementwise(
    "stop_gradient", "The same values, through which no gradient passes.", lambda b, attrs, x: x, lambda attrs, x: x,
    ANY, None, unary_cases(),
)  # fmt: skip


@public
def stop_gradient(x: TensorLike) -> Tensor:
    """The same values; no gradient passes, and the result never requires one. ``x.detach()`` is this."""
    return declare(STOP_GRADIENT, (lift(x),))
