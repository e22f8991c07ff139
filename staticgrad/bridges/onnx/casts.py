"""ONNX's casts and quantizations, and its products of matrices, which of quantized integers are quantized, too.

Elements of less than a byte, and floats of a byte, are kept in a wider dtype, in which each has the very same value: a
cast to one of them rounds to what it has.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.base.types import bool_, float32, int32, is_integer, uint8
from staticgrad.bridges.arrays import cast
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.onnx.binding import Value
from staticgrad.bridges.onnx.dialect import OnnxScope, converts, converts_all
from staticgrad.bridges.onnx.program import OnnxNode, dtype_for, element_name, short_bits
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


@frozen
class ShortFormat:
    """A float of a byte or less: bits of the mantissa, exponent of the least normal number, largest number, the value
    of what is larger where it is not limited, and whether there is a -0."""

    mantissa: int
    exponent: int
    largest: float
    beyond: float = math.nan
    has_signed_zero: bool = True


FORMATS = {
    "float8_e4m3fn": ShortFormat(3, -6, 448.0),
    "float8_e4m3fnuz": ShortFormat(3, -7, 240.0, has_signed_zero=False),
    "float8_e5m2": ShortFormat(2, -14, 57344.0, math.inf),
    "float8_e5m2fnuz": ShortFormat(2, -15, 57344.0, has_signed_zero=False),
    "float4e2m1": ShortFormat(1, 0, 6.0, 6.0),
}
MANTISSA, BIAS = 23, 127  # of a float32


def rounded_to(x: Tensor, format: ShortFormat, saturate: bool) -> Tensor:
    """Float32 numbers as the format has them, rounded half to even."""
    size = o.abs(x)
    exponent = o.maximum(o.bitwise_right_shift(o.bitcast(size, int32), MANTISSA) - BIAS, format.exponent)
    step = o.bitcast(o.bitwise_left_shift(exponent + (BIAS - format.mantissa), MANTISSA), float32)
    size = o.round(size / step) * step
    size = o.where(size > format.largest, format.largest if saturate else format.beyond, size)
    signed = o.copysign(size, x)
    return signed if format.has_signed_zero else signed + 0.0


# -- casts -------------------------------------------------------------------------------------------------------------


def target(elem_type: int) -> np.dtype:
    """The dtype in which elements of a type that an attribute names are kept."""
    dtype = dtype_for(elem_type)
    if dtype is None:
        raise RefusedError(f"elements of {element_name(elem_type)} are not supported")
    return dtype


def converted(x: Tensor, dtype: Any) -> Tensor:
    """The tensor in another dtype: floats towards zero, of anything True where it is not 0."""
    return o.not_equal(x, 0) if dtype == bool_ and x.dtype != bool_ else cast(x, dtype)


def as_element(x: Tensor, elem_type: int, saturate: bool = True) -> Tensor:
    """Elements of an ONNX type. Of integers of few bits the low bits are kept."""
    y, bits, format = converted(x, target(elem_type)), short_bits(elem_type), FORMATS.get(element_name(elem_type))
    if format is not None:
        return rounded_to(y, format, saturate)
    if not bits:
        return y
    half = 2 ** (bits - 1) if y.dtype.kind == "i" else 0
    return cast(o.bitwise_and(cast(y, int32) + half, 2**bits - 1) - half, y.dtype)


@converts("CastLike")
def to_element_of(at: OnnxScope, node: OnnxNode, x: Tensor, like: Value, *, saturate: int = 1) -> Tensor:
    elem_type = at.element(node.inputs[1])
    return as_element(x, elem_type, bool(saturate)) if elem_type else converted(x, like.dtype)


converts_all({
    "BitCast": lambda x, *, to: o.bitcast(x, target(to)),
    "Cast": lambda x, *, to, saturate=1: as_element(x, to, bool(saturate)),
    "Einsum": lambda *xs, equation: o.einsum(equation, *xs),
    "MatMul": lambda a, b: cast(o.matmul(a, b), a.dtype),
})  # fmt: skip


# -- quantization ------------------------------------------------------------------------------------------------------


def along(x: Tensor, like: Tensor, axis: int, block: int = 0) -> Tensor:
    """Parameters of a quantization in the shape of what is quantized: one for all, one for each place along an axis,
    or one for each block of places."""
    if block:
        return o.repeat(x, block, axis=axis)[tuple(slice(0, size) for size in like.shape)]
    if (x.ndim == 1 and like.ndim != 1) or x.size != 1:
        shape: list[Any] = [1] * like.ndim
        shape[axis] = x.shape[0]
        return o.reshape(x, tuple(shape)) if x.ndim == 1 else x
    return o.reshape(x, ())


def _axis_of(x: Tensor, axis: int) -> int:
    """The axis along which parameters differ; of a vector its own."""
    return axis if -x.ndim <= axis < x.ndim else 0


@converts("QuantizeLinear")
def quantize(
    at: OnnxScope, node: OnnxNode, x: Tensor, scale: Tensor, zero: Tensor | None, *, output_dtype: int = 0,
    axis: int = 0, block_size: int = 0, saturate: int = 1,
) -> Tensor:  # fmt: skip
    dtype = target(output_dtype) if output_dtype else uint8 if zero is None else zero.dtype
    axis, elem_type = _axis_of(x, axis), at.element(node.outputs[0])
    if is_integer(dtype):
        return quantized(x, scale, zero, dtype, axis, block_size, short_bits(elem_type))
    format = FORMATS.get(element_name(elem_type))
    if format is None:
        raise RefusedError(f"a quantization to {dtype.name} is not converted")
    return rounded_to(cast(x, float32) / along(cast(scale, float32), x, axis, block_size), format, bool(saturate))


def quantized(
    x: Tensor, scale: Tensor, zero: Tensor | None, dtype: Any, axis: int = 0, block: int = 0, bits: int = 0
) -> Tensor:
    """x / scale, rounded half to even, + the zero point, as the nearest integer of a dtype, or of few bits of it."""
    wide = o.round(cast(x, float32) / along(cast(scale, float32), x, axis, block))
    if zero is not None:
        wide = wide + along(cast(zero, float32), x, axis, block)
    y = o.astype(wide, dtype, saturating=True)
    if not bits:
        return y
    low = -(2 ** (bits - 1)) if y.dtype.kind == "i" else 0
    return o.clip(y, low, low + 2**bits - 1)


@converts("DequantizeLinear")
def dequantize(
    x: Tensor, scale: Tensor, zero: Tensor | None, *, axis: int = 0, block_size: int = 0, output_dtype: int = 0
) -> Tensor:
    axis = _axis_of(x, axis)
    wide = x
    if is_integer(x.dtype):
        wide = centred(x, zero, axis, block_size)
    y = cast(wide, float32) * along(cast(scale, float32), x, axis, block_size)
    return cast(y, target(output_dtype) if output_dtype else scale.dtype)


def centred(x: Tensor, zero: Tensor | None, axis: int, block: int = 0) -> Tensor:
    """Integers minus their zero points, as int32: one for all, for each place along an axis or for each block."""
    return cast(x, int32) if zero is None else cast(x, int32) - cast(along(zero, x, axis, block), int32)


# -- products of matrices ----------------------------------------------------------------------------------------------


@converts("Gemm")
def gemm(a: Tensor, b: Tensor, c: Tensor | None, *, alpha: float, beta: float, transA: int, transB: int) -> Tensor:
    y = o.matmul(a.T if transA else a, b.T if transB else b)
    y = y if alpha == 1 else cast(y * alpha, a.dtype)
    return y if c is None else y + (c if beta == 1 else cast(c * beta, a.dtype))


@converts("MatMulInteger")
def matmul_integer(a: Tensor, b: Tensor, a_zero: Tensor | None, b_zero: Tensor | None) -> Tensor:
    return cast(o.matmul(centred(a, a_zero, a.ndim - 2), centred(b, b_zero, b.ndim - 1)), int32)


@converts("QLinearMatMul")
def matmul_quantized(
    a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor, y_scale: Tensor,
    y_zero: Tensor,
) -> Tensor:  # fmt: skip
    product = cast(matmul_integer(a, b, a_zero, b_zero), float32)
    scales = (along(cast(s, float32), product, product.ndim - back) for s, back in ((a_scale, 2), (b_scale, 1)))
    return quantized(product * o.multiply(*scales), y_scale, y_zero, y_zero.dtype)
