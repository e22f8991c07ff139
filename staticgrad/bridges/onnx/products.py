"""ONNX's products of matrices and convolutions, of floats and of quantized integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from staticgrad.base.types import float32, float64, int32
from staticgrad.bridges.arrays import cast
from staticgrad.bridges.forms import padded
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.onnx.casts import along, centred, quantized
from staticgrad.bridges.onnx.dialect import converts
from staticgrad.bridges.onnx.program import OnnxNode
from staticgrad.bridges.onnx.windows import Geometry, geometry
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


@converts("MatMul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    return cast(o.matmul(a, b), a.dtype)


@converts("Gemm")
def gemm(a: Tensor, b: Tensor, c: Tensor | None, *, alpha: float, beta: float, transA: int, transB: int) -> Tensor:
    y = o.matmul(a.T if transA else a, b.T if transB else b)
    y = y if alpha == 1 else cast(y * alpha, a.dtype)
    return y if c is None else y + (c if beta == 1 else cast(c * beta, a.dtype))


@converts("Einsum")
def einsum(*xs: Tensor, equation: str) -> Tensor:
    return o.einsum(equation, *xs)


@converts("MatMulInteger")
def matmul_integer(a: Tensor, b: Tensor, a_zero: Tensor | None, b_zero: Tensor | None) -> Tensor:
    return cast(o.matmul(_centred(a, a_zero, a.ndim - 2), _centred(b, b_zero, b.ndim - 1)), int32)


def _centred(x: Tensor, zero: Tensor | None, axis: int) -> Tensor:
    """Integers minus their zero points, one for all or one for each place along an axis."""
    return centred(x, None if zero is None else along(zero, x, axis))


@converts("QLinearMatMul")
def matmul_quantized(
    a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor, y_scale: Tensor,
    y_zero: Tensor,
) -> Tensor:  # fmt: skip
    product = cast(matmul_integer(a, b, a_zero, b_zero), float32)
    scales = (along(cast(s, float32), product, product.ndim - back) for s, back in ((a_scale, 2), (b_scale, 1)))
    return quantized(product * o.multiply(*scales), y_scale, y_zero, y_zero.dtype)


# -- convolutions ------------------------------------------------------------------------------------------------------


def _convolution(x: Tensor, w: Tensor, bias: Tensor | None, at: Geometry, groups: int) -> Tensor:
    rank = _rank(at)
    padding: Any = tuple(before for before, _ in at.pads)
    if any(before != after or before < 0 for before, after in at.pads):
        x, padding = padded(x, [(0, 0), (0, 0), *at.pads]), (0,) * rank
    function: Any = (o.conv1d, o.conv2d, o.conv3d)[rank - 1]
    return function(x, w, bias, tuple(at.strides), padding, tuple(at.dilations), groups)


def _rank(at: Geometry) -> int:
    rank = len(at.kernel)
    if rank not in (1, 2, 3):
        raise RefusedError(f"a convolution of {rank} dimensions is not converted")
    return rank


@converts("Conv")
def conv(node: OnnxNode, x: Tensor, w: Tensor, bias: Tensor | None, *, group: int) -> Tensor:
    return _convolution(x, w, bias, geometry(node, w.shape[2:], x.shape[2:]), group)


@converts("ConvInteger")
def conv_integer(
    node: OnnxNode, x: Tensor, w: Tensor, x_zero: Tensor | None, w_zero: Tensor | None, *, group: int
) -> Tensor:
    """A convolution of centred bytes; sums are exact in float64."""
    x, w = (cast(_centred(*each), float64) for each in ((x, x_zero, 1), (w, w_zero, 0)))
    return cast(conv(node, x, w, None, group=group), int32)


@converts("QLinearConv")
def conv_quantized(
    node: OnnxNode, x: Tensor, x_scale: Tensor, x_zero: Tensor, w: Tensor, w_scale: Tensor, w_zero: Tensor,
    y_scale: Tensor, y_zero: Tensor, bias: Tensor | None, *, group: int,
) -> Tensor:  # fmt: skip
    y = conv_integer(node, x, w, x_zero, w_zero, group=group)
    if bias is not None:
        y = y + along(bias, y, 1)
    return quantized(cast(y, float32) * (o.reshape(x_scale, ()) * along(w_scale, y, 1)), y_scale, y_zero, y_zero.dtype)


@converts("ConvTranspose")
def conv_transpose(
    node: OnnxNode, x: Tensor, w: Tensor, bias: Tensor | None, *, group: int, output_padding: Sequence[int] | None,
    output_shape: Sequence[int] | None, auto_pad: str,
) -> Tensor:  # fmt: skip
    at = geometry(node, w.shape[2:], x.shape[2:])
    rank, extra = _rank(at), output_padding or [0] * (x.ndim - 2)
    if output_shape is None and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        output_shape = [size * s for size, s in zip(x.shape[2:], at.strides)]
    pads = at.pads
    if output_shape is not None:
        lengths = [s * (size - 1) + e + n for size, s, n, e in zip(x.shape[2:], at.strides, at.spans, extra)]
        cut = [int(length - wanted) for length, wanted in zip(lengths, output_shape[-rank:])]
        pads = [(int(n / 2), n - int(n / 2)) for n in cut]  # towards zero
        pads = [(b, a) for a, b in pads] if auto_pad == "SAME_LOWER" else pads
    function: Any = (o.conv_transpose1d, o.conv_transpose2d, o.conv_transpose3d)[rank - 1]
    strides, dilations = tuple(at.strides), tuple(at.dilations)
    if all(a == b and a >= 0 for a, b in pads) and all(e < s for e, s in zip(extra, strides)):
        return function(x, w, bias, strides, tuple(a for a, _ in pads), tuple(extra), group, dilations)
    y = function(x, w, None, strides, 0, 0, group, dilations)
    y = padded(y, [(0, 0), (0, 0), *((-a, e - b) for (a, b), e in zip(pads, extra))])
    return y if bias is None else y + along(bias, y, 1)
