"""Ops on the bits of an element: in another dtype, counted, and the next float.

``bitcast`` between dtypes of one size is an element for an element. A narrower dtype adds a trailing axis and a wider
one takes it away, the lowest bits first: those are compositions by way of unsigned integers, since an element of a
kernel comes from one place. None of these has a derivative.
"""

from __future__ import annotations

import functools

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import (
    FLOATS,
    INTEGERS,
    DTypeLike,
    TensorType,
    bool_,
    dtype_of,
    float32,
    is_short_float,
    takes,
)
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift
from staticgrad.graph.optable import FUNCTIONS, Array, Case, Op, Range, public, register
from staticgrad.graph.scalar import ScalarBuilder, V
from staticgrad.ops.batch_rules import broadcasting
from staticgrad.ops.declare import accepted, declare
from staticgrad.ops.elementwise.entry import NOT_DIFFERENTIABLE, broadcast_types, unary

# -- the same bits --------------------------------------------------------------------------------------------------


@frozen
class BitcastAttributes:
    """The dtype that the bits are read as."""

    dtype: np.dtype


def _bitcast_type(attrs: BitcastAttributes, x: TensorType) -> TensorType:
    if attrs.dtype.itemsize != x.dtype.itemsize or bool_ in (attrs.dtype, x.dtype):
        raise GraphError(f"bitcast: expected numbers of {attrs.dtype.itemsize} bytes, actual {x}")
    return TensorType(x.shape, attrs.dtype)


def _same_size(one: np.dtype) -> list[np.dtype]:
    return [other for other in (*INTEGERS, *FLOATS) if other.itemsize == one.itemsize and other != one]


BITCAST = register(
    Op(
        "bitcast",
        "The bits of each element as an element of another dtype of the same size.",
        infer=_bitcast_type,
        reference=lambda attrs, x: x.view(attrs.dtype) if x.ndim else x.reshape(1).view(attrs.dtype).reshape(()),
        role="elementwise",
        scalar=lambda b, attrs, x: b.bit_cast(x, attrs.dtype),
        moves=True,
        cheap=True,
        differentiable=False,
        dtypes=(float32,),
        cases=tuple(
            Case(((3, 4),), BitcastAttributes(to), dtypes=(given,))
            for given in (*INTEGERS, *FLOATS)
            for to in _same_size(given)
        ),
        batch=broadcasting,
    )
)


@public
def bitcast(x: TensorLike, dtype: DTypeLike) -> Tensor:
    """The bits of ``x`` as numbers of another dtype.

    Returns:
        For a dtype of the same size, a tensor of the shape of ``x``. For a narrower one, a trailing axis is added, in
        which the lowest bits come first; for a wider one, the last axis of ``x`` holds the parts of each number and is
        taken away. There is no derivative. Bools are read as 8 bits, 0 or 1, and are no result.

    Raises:
        GraphError: bools are asked for, or the last axis of ``x`` is not as long as the wider dtype has parts.

    Example:
        >>> sg.Session().run(sg.bitcast([1.0, -2.0], sg.int32))
        array([ 1065353216, -1073741824], dtype=int32)
        >>> sg.Session().run(sg.bitcast(np.array([0x01020304], np.int32), sg.uint8))
        array([[4, 3, 2, 1]], dtype=uint8)
        >>> sg.Session().run(sg.bitcast(np.array([4, 3, 2, 1], np.uint8), sg.int32))
        array(16909060, dtype=int32)
    """
    x, target = lift(x), dtype_of(dtype)
    if target == bool_ and x.dtype != bool_:
        raise GraphError(f"bitcast: bools have one bit: {x.type} is no tensor of them; compare with zero instead")
    x = FUNCTIONS.astype(x, np.uint8) if x.dtype == bool_ and target != bool_ else x
    if x.dtype == target:
        return x
    have, want = x.dtype.itemsize, target.itemsize
    if have == want:
        return declare(BITCAST, (x,), BitcastAttributes(target))
    parts = max(have, want) // min(have, want)
    x = bitcast(x, f"uint{8 * have}")
    shifts = np.arange(parts) * 8 * min(have, want)
    if have > want:
        moved = FUNCTIONS.bitwise_right_shift(FUNCTIONS.expand_dims(x, -1), shifts.astype(x.dtype))
        return bitcast(FUNCTIONS.astype(moved, f"uint{8 * want}"), target)
    if x.ndim == 0 or x.shape[-1] != parts:
        raise GraphError(f"bitcast: expected a last axis of {parts} for {target.name}, actual {x.type}")
    wide = FUNCTIONS.astype(x, f"uint{8 * want}")
    placed = [FUNCTIONS.bitwise_left_shift(wide[..., i], wide.dtype.type(shift)) for i, shift in enumerate(shifts)]
    return bitcast(functools.reduce(FUNCTIONS.bitwise_or, placed), target)


# -- counted bits ---------------------------------------------------------------------------------------------------

_BYTES = np.array([bin(byte).count("1") for byte in range(256)], np.uint8)


def _bytes_of(x: Array) -> Array:
    """The bytes of each element along a new axis, the highest first."""
    return np.ascontiguousarray(x.astype(x.dtype.newbyteorder(">"))).reshape(*x.shape, 1).view(np.uint8)


def _leading_zeros(x: Array) -> Array:
    bits = np.unpackbits(_bytes_of(x), axis=-1)
    return np.asarray(np.where(bits.any(-1), bits.argmax(-1), bits.shape[-1]))


clz = unary(
    "clz", "The number of zeros above the highest bit that is set; for 0 the number of bits of the dtype.",
    "bit_leading_zeros", _leading_zeros, INTEGERS, NOT_DIFFERENTIABLE, Range(-9, 100),
    example=("sg.clz(np.array([1, 255, 0, -1], np.int32))", "array([31, 24, 32,  0], dtype=int32)"),
)  # fmt: skip

popcount = unary(
    "popcount", "The number of bits that are set; of negative numbers in two's complement.", "bit_count",
    lambda x: _BYTES[_bytes_of(x)].sum(-1), INTEGERS, NOT_DIFFERENTIABLE, Range(-9, 100),
    example=("sg.popcount(np.array([7, 8, 0, -1], np.int32))", "array([ 3,  1,  0, 32], dtype=int32)"),
)  # fmt: skip

# -- the next float -------------------------------------------------------------------------------------------------


def _next_type(attrs: object, x: TensorType, y: TensorType) -> TensorType:
    if x.dtype != y.dtype or not takes(FLOATS, x.dtype):
        raise GraphError(f"nextafter: expected floats of one dtype, actual {x}, {y}")
    return TensorType(broadcast_types((x, y), "nextafter"), x.dtype)


def _scalar_next(b: ScalarBuilder[V], attrs: object, x: V, y: V) -> V:
    """The bits of a float as an integer grow with its magnitude."""
    whole = np.dtype(f"int{8 * x.dtype.itemsize}")
    one, sign = b.const(1, whole), b.const(int(np.iinfo(whole).min), whole)
    wide = [b.cast(z, float32) if is_short_float(z.dtype) else z for z in (x, y)]
    zero = b.const(0, wide[0].dtype)
    bits, towards = b.bit_cast(x, whole), b.bit_cast(y, whole)
    away = b.logical_not(b.logical_xor(b.lt(*wide), b.gt(wide[0], zero)))
    moved = b.select(away, b.add(bits, one), b.sub(bits, one))
    moved = b.select(b.eq(wide[0], zero), b.bit_or(b.bit_and(towards, sign), one), moved)
    moved = b.select(b.eq(*wide), towards, moved)
    nan = b.logical_or(b.isnan(wide[0]), b.isnan(wide[1]))
    return b.select(nan, b.const(np.nan, x.dtype), b.bit_cast(moved, x.dtype))


NEXTAFTER = register(
    Op(
        "nextafter",
        "The float after x1 in the direction of x2.",
        infer=_next_type,
        reference=lambda attrs, x, y: np.nextafter(x, y),
        role="elementwise",
        scalar=_scalar_next,
        moves=True,  # the next short float is not that of a float32
        differentiable=False,
        dtypes=FLOATS,
        cases=(
            Case(((3, 4), (4,))), Case(((), (2, 3)), ranges=(Range(0, 0), Range())), Case(((0, 3), (3,))),
            Case(((33,), (33,))),
        ),
        batch=broadcasting,
    )
)  # fmt: skip


@public
def nextafter(x1: TensorLike, x2: TensorLike) -> Tensor:
    """The float of the dtype that comes after ``x1`` in the direction of ``x2``; ``x2`` where both are equal.

    Elementwise, with NumPy's broadcasting and promotion. Integers and bools are computed as float64. There is no
    derivative.

    Example:
        >>> sg.Session().run(sg.nextafter([1.0, 0.0], [2.0, -1.0]))
        array([ 1.0000001e+00, -1.4012985e-45], dtype=float32)
    """
    return declare(NEXTAFTER, accepted("nextafter", FLOATS, x1, x2))
