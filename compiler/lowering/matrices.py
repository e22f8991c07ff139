"""The kernels of nodes that are products: contractions and convolutions, of operands as they lie in memory.

A node of a region and the places of tensors go in; a kernel without an epilogue and its two operands come out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from staticgrad.base.types import Precision, int32, sizes
from staticgrad.compiler.kernels.matrix import Blocking, Contraction, Convolution, Direction
from staticgrad.compiler.lowering.places import Places
from staticgrad.compiler.program.memories import Operand
from staticgrad.graph.graph import Node, Tensor
from staticgrad.graph.optable import Op
from staticgrad.ops.convolution import CONVOLUTION, CONVOLUTION_INPUT_GRAD, CONVOLUTION_WEIGHT_GRAD
from staticgrad.ops.grouped import GroupAttributes, are_groups

# What a convolution computes, and which of the product's three tensors its operands and its result are.
_CONVOLUTIONS: dict[Op, tuple[Direction, str]] = {
    CONVOLUTION: ("forward", "xwy"),
    CONVOLUTION_INPUT_GRAD: ("input_grad", "ywx"),
    CONVOLUTION_WEIGHT_GRAD: ("weight_grad", "xyw"),
}


def contraction_of(
    node: Node, places: Places, stored: bool, blockings: Mapping[Contraction, Blocking], precision: Precision
) -> tuple[Contraction, list[Operand]]:
    """The product of batches of matrices, blocked as its entry among the ``blockings`` says; ``stored``: others read
    the result itself."""
    a, b = node.inputs
    *batch, m, k = sizes(a.shape)
    n = sizes(b.shape)[-1]
    (a_operand, a_strides), (b_operand, b_strides) = places.strided(a), places.strided(b)
    c_strides = places.strides_of(node.outputs[0])
    kernel = Contraction(
        a.dtype, tuple(batch), m, n, k, a_strides, b_strides, c_strides, precision=precision
    )  # fmt: skip
    blocking = blockings.get(replace(kernel, store_raw=stored))
    return replace(kernel, blocking=blocking), [a_operand, b_operand]


def grouped_contraction_of(
    node: Node, places: Places, stored: bool, blockings: Mapping[Contraction, Blocking]
) -> tuple[Contraction, list[Operand]]:
    """The same of a product of short numbers in groups, whose sizes and strides count groups."""
    assert isinstance(node.attrs, GroupAttributes)
    (a_operand, a_strides), (b_operand, b_strides) = (_by_groups(x, places) for x in node.inputs)
    result = node.outputs[0]
    *batch, m, n = sizes(result.shape)
    a = node.inputs[0]
    k = sizes(a.shape)[-1 if a.dtype == int32 else -2]
    kernel = Contraction(
        result.dtype, tuple(batch), m, n, k, a_strides, b_strides, places.strides_of(result),
        grouping=node.attrs.kind,
    )  # fmt: skip
    blocking = blockings.get(replace(kernel, store_raw=stored))
    return replace(kernel, blocking=blocking), [a_operand, b_operand]


def _by_groups(x: Tensor, places: Places) -> tuple[Operand, tuple[int, ...]]:
    """The memory of an operand in groups, and its strides in these."""
    operand, strides = places.strided(x)
    if x.dtype == int32:
        return operand, strides
    terms = sizes(x.shape)[-1]
    assert are_groups(strides, terms)
    return operand, tuple(stride // terms for stride in strides[:-1])


def convolution_of(node: Node, places: Places, precision: Precision) -> tuple[Convolution, list[Operand]]:
    """The convolution, or the transpose of one, that a node is."""
    attrs = node.attrs
    direction, roles = _CONVOLUTIONS[node.op]
    (first, first_strides), (second, second_strides) = map(places.strided, node.inputs)
    result_strides = places.strides_of(node.outputs[0])
    operands = (*node.inputs, *node.outputs)
    tensors = dict(zip(roles, operands, strict=True))
    found = map(_four, map(sizes, (x.shape for x in operands)), (first_strides, second_strides, result_strides))
    strides = dict(zip(roles, found, strict=True))
    n, c, height, width = sizes(tensors["x"].shape)
    filters, _, kh, kw = sizes(tensors["w"].shape)
    _, _, out_height, out_width = sizes(tensors["y"].shape)
    kernel = Convolution(
        direction, tensors["x"].dtype, n, c, height, width, filters, (kh, kw), out_height, out_width,
        attrs.stride, (attrs.padding[0][0], attrs.padding[1][0]), attrs.dilation, attrs.groups,
        strides["x"], strides["w"], strides["y"], precision=precision,
    )  # fmt: skip
    return kernel, [first, second]


def _four(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int, int, int]:
    """The strides of four axes. A single row has any stride; it gets that of rows side by side, since kernels take from
    it how much memory some rows are."""
    a, b, c, d = strides
    return a, b, c if shape[2] != 1 else shape[3] * d, d
