"""Transposed convolutions over one and three axes, made of the one over two.

conv_transpose1d    images one row high
conv_transpose3d    what each layer of the kernel makes of each layer of the input, and the sum where they belong
"""

from __future__ import annotations

from staticgrad.base.errors import GraphError
from staticgrad.base.types import integer
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import FUNCTIONS, public
from staticgrad.ops.contraction import require_equal
from staticgrad.ops.convolution import (
    Sizes,
    along,
    batched_operands,
    biased,
    transposed_ends,
    transposed_images,
    transposed_size,
    unbatched,
)
from staticgrad.ops.declare import shown_as
from staticgrad.ops.elementwise.copies import rounded_once
from staticgrad.ops.windows import WindowAttributes


@public
def conv_transpose1d(
    input: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """The transpose of ``conv1d``: ``conv_transpose2d`` of images one row high.

    Args:
        input: (N, C, L) or (C, L).
        weight: (C, O / groups, K).
        bias: (O,) or None.
        output_padding: elements added at the end, where a stride leaves several sizes possible.

    Returns:
        (N, O, M) with M = (L − 1)·stride − 2·padding + dilation·(K − 1) + output_padding + 1.

    Raises:
        GraphError: sizes that do not agree, or an output padding that is not below the stride or the dilation.

    Example:
        >>> sg.Session().run(sg.nn.conv_transpose1d(sg.constant([[1.0, 2.0]]), [[[1.0, 10.0]]], stride=2))
        array([[ 1., 10.,  2., 20.]], dtype=float32)
    """
    o, what = FUNCTIONS, "conv_transpose1d"
    y, w, given, added = batched_operands(what, 3, input, weight, bias)
    (step,), (spread,) = along(stride, 1, f"{what}: stride", 1), along(dilation, 1, f"{what}: dilation", 1)
    (zeros,), (extra,) = along(padding, 1, f"{what}: padding"), along(output_padding, 1, f"{what}: output_padding")
    x = transposed_images(
        what, o.expand_dims(y, 2), o.expand_dims(w, 2), given, (1, step), (0, zeros), (0, extra),
        integer(groups, f"{what}: groups", 1), (1, spread),
    )  # fmt: skip
    return unbatched(o.reshape(x, (x.shape[0], x.shape[1], x.shape[3])), added)


@public
@shown_as("ConvolutionBackward0")
def conv_transpose3d(
    input: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """The transpose of ``conv3d``: one ``conv_transpose2d`` that gives what each layer of the kernel makes of each
    layer of the input, and the sum of these where they belong.

    Args:
        input: (N, C, D, H, W) or (C, D, H, W).
        weight: (C, O / groups, KD, KH, KW).
        bias: (O,) or None.
        output_padding: elements added at the end of each axis, where a stride leaves several sizes possible.

    Returns:
        (N, O, P, Q, R), each size as in ``conv_transpose2d``.

    Raises:
        GraphError: sizes that do not agree, or an output padding that is not below the stride or the dilation.

    Example:
        >>> x, weight = sg.zeros((2, 16, 4, 7, 7)), sg.zeros((16, 4, 3, 3, 3))
        >>> sg.nn.conv_transpose3d(x, weight, stride=2, padding=1, output_padding=1).shape
        (2, 4, 8, 14, 14)
    """
    o, what = FUNCTIONS, "conv_transpose3d"
    y, w, given, added = batched_operands(what, 5, input, weight, bias)
    (sd, sh, sw), (dd, dh, dw) = along(stride, 3, f"{what}: stride", 1), along(dilation, 3, f"{what}: dilation", 1)
    pd, ph, pw = along(padding, 3, f"{what}: padding")
    ed, eh, ew = along(output_padding, 3, f"{what}: output_padding")
    groups, layers = integer(groups, f"{what}: groups", 1), w.shape[2]
    if not isinstance(layers, int) or layers < 1:
        raise GraphError(f"{what}: expected a weight of known depth that is not empty, actual {w.name!r} {w.type}")
    require_equal(w.shape[0], y.shape[1], what, f"channels of {y.type} for the weight {w.type}")
    ((end, behind),) = transposed_ends(what, (pd,), (ed,), (sd,), (dd,))
    total = transposed_size(y.shape[2], layers, sd, pd, ed, dd) - behind
    if isinstance(total, int) and total < 1:
        raise GraphError(f"{what}: the padding {(pd, end)} leaves no layer of the result of an input {y.type}")
    window = WindowAttributes((layers, 1), (sd, 1), ((pd, end), (0, 0)), (dd, 1))

    def transposed(y: Tensor, w: Tensor, *bias: Tensor) -> Tensor:
        n, channels, depth, height, width = y.shape
        images = o.reshape(o.permute_dims(y, (0, 2, 1, 3, 4)), (n * depth, channels, height, width))
        weights = o.reshape(w, (w.shape[0], w.shape[1] * layers, *w.shape[3:]))
        made = transposed_images(what, images, weights, (), (sh, sw), (ph, pw), (eh, ew), groups, (dh, dw))
        filters, (rows, columns) = w.shape[1] * groups, made.shape[2:]
        taps = o.permute_dims(o.reshape(made, (n, depth, filters, layers, rows * columns)), (0, 2, 1, 4, 3))
        folded = o.fold(o.expand_dims(taps, -1), window, total, rows * columns)
        x = o.reshape(folded, (n, filters, total, rows, columns))
        return biased(o, o.pad(x, ((0, 0), (0, 0), (0, behind), (0, 0), (0, 0))) if behind else x, bias)[0]

    return unbatched(rounded_once(transposed, y, w, *given), added)
