"""The windows of an image as columns of a matrix, and the sum of such windows as an image: ``unfold`` and ``fold``."""

from __future__ import annotations

import math

from staticgrad.base.errors import GraphError
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift
from staticgrad.graph.optable import FUNCTIONS
from staticgrad.ops.contraction import require_equal
from staticgrad.ops.convolution import Sizes, pair, window_count
from staticgrad.ops.declare import shown_as
from staticgrad.ops.windows import WindowAttributes


def _window(what: str, kernel_size: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> WindowAttributes:
    rows, columns = pair(padding, f"{what}: padding")
    return WindowAttributes(
        pair(kernel_size, f"{what}: kernel_size", 1),
        pair(stride, f"{what}: stride", 1),
        ((rows, rows), (columns, columns)),
        pair(dilation, f"{what}: dilation", 1),
    )


@shown_as("Im2ColBackward0")
def unfold(input: TensorLike, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1) -> Tensor:
    """Each window of an image as a column.

    Args:
        input: (N, C, H, W) or (C, H, W).
        padding: zeros around the image.

    Returns:
        (N, C·KH·KW, L), L windows row by row.

    Raises:
        GraphError: no image, or a window that does not fit.

    Example:
        >>> x = sg.constant([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]])
        >>> sg.Session().run(sg.nn.unfold(x, 2))
        array([[1., 2.],
               [2., 3.],
               [4., 5.],
               [5., 6.]], dtype=float32)
    """
    o, what = FUNCTIONS, "unfold"
    x = lift(input)
    if x.ndim not in (3, 4):
        raise GraphError(f"{what}: expected an image (N, C, H, W) or (C, H, W), actual {x.name!r} {x.type}")
    window = _window(what, kernel_size, dilation, padding, stride)
    window.require_windows(what, x.type)
    made = o.window(x, window)
    first = x.ndim - 3
    batch, (rows, columns) = x.shape[:first], made.shape[first + 1 : first + 3]
    order = (*range(first + 1), first + 3, first + 4, first + 1, first + 2)
    shape = (*batch, x.shape[first] * math.prod(window.kernel), rows * columns)
    return o.reshape(o.permute_dims(made, order), shape)


@shown_as("Col2ImBackward0")
def fold(
    input: TensorLike,
    output_size: Sizes,
    kernel_size: Sizes,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    stride: Sizes = 1,
) -> Tensor:
    """The transpose of ``unfold``: columns as windows of an image, added up where they overlap.

    Args:
        input: (N, C·KH·KW, L) or (C·KH·KW, L).
        output_size: height and width of the image.
        padding: rows and columns around the image that are left out.

    Returns:
        (N, C, H, W) or (C, H, W).

    Raises:
        GraphError: rows or columns of the input that do not agree with the windows of such an image.

    Example:
        >>> columns = sg.nn.unfold(sg.ones((1, 2, 3)), 2)
        >>> sg.Session().run(sg.nn.fold(columns, (2, 3), 2))
        array([[[1., 2., 1.],
                [1., 2., 1.]]], dtype=float32)
    """
    o, what = FUNCTIONS, "fold"
    y = lift(input)
    height, width = pair(output_size, f"{what}: output_size", 1)
    window = _window(what, kernel_size, dilation, padding, stride)
    rows, columns = (
        window_count(what, size, window.kernel[a], window.stride[a], window.padding[a], window.dilation[a])
        for a, size in enumerate((height, width))
    )
    taps = math.prod(window.kernel)
    channels = y.shape[-2] if y.ndim in (2, 3) else None
    if channels is None or (isinstance(channels, int) and channels % taps):
        raise GraphError(
            f"{what}: expected an input (N, C·{taps}, L) or (C·{taps}, L) for windows of {taps} elements, actual"
            f" {y.name!r} {y.type}"
        )
    require_equal(y.shape[-1], rows * columns, what, f"number of columns of {y.type} for {rows}·{columns} windows")
    batch = y.shape[:-2]
    parts = o.reshape(y, (*batch, channels // taps, *window.kernel, rows, columns))
    first = len(batch)
    order = (*range(first + 1), first + 3, first + 4, first + 1, first + 2)
    return o.fold(o.permute_dims(parts, order), window, height, width)
