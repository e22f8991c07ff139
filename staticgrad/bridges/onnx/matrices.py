"""ONNX's products of matrices, of floats and of quantized integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from staticgrad.base.types import int32
from staticgrad.bridges.arrays import cast
from staticgrad.bridges.onnx.casts import along, quantized
from staticgrad.bridges.onnx.dialect import OnnxScope, converts
from staticgrad.bridges.onnx.program import OnnxNode
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


@converts("MatMul")
def matmul(at: OnnxScope, node: OnnxNode) -> Tensor:
    a, b = at.operands(node)
    return cast(o.matmul(a, b), a.dtype)


@converts("Gemm")
def gemm(at: OnnxScope, node: OnnxNode) -> Tensor:
    a, b, c = at.operands(node, 3)
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    y = o.matmul(a.T if node.attr("transA", 0) else a, b.T if node.attr("transB", 0) else b)
    y = y if alpha == 1 else cast(y * alpha, a.dtype)
    if c is None:
        return y
    return y + (c if beta == 1 else cast(c * beta, a.dtype))


@converts("Einsum")
def einsum(at: OnnxScope, node: OnnxNode) -> Tensor:
    return o.einsum(node.attr("equation"), *at.tensors(node.inputs))


def centred(x: Tensor, zero: Tensor | None, axis: int) -> Tensor:
    """Integers minus their zero points, as int32."""
    wide = cast(x, int32)
    return wide if zero is None else wide - along(cast(zero, int32), x, axis)


@converts("MatMulInteger")
def matmul_integer(at: OnnxScope, node: OnnxNode) -> Tensor:
    a, b, a_zero, b_zero = at.operands(node, 4)
    return cast(o.matmul(centred(a, a_zero, a.ndim - 2), centred(b, b_zero, b.ndim - 1)), int32)


@converts("QLinearMatMul")
def matmul_quantized(at: OnnxScope, node: OnnxNode) -> Tensor:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = at.operands(node)
    product = o.matmul(centred(a, a_zero, a.ndim - 2), centred(b, b_zero, b.ndim - 1))

    def row(x: Any, axis: int) -> Any:
        return cast(along(x, product, axis % product.ndim), np.float32)

    wide = cast(product, np.float32) * (row(a_scale, -2) * row(b_scale, -1))
    return quantized(wide, y_scale, y_zero, y_zero.dtype)
