"""Windows that slide over the last two axes: the view ``window``, its transpose ``fold``, and pooling.

    window   (…, H, W) -> (…, OH, OW, KH, KW)    a view; what hangs over the border is ``value``
    fold     (…, OH, OW, KH, KW) -> (…, H, W)    adds up what overlaps

A pooling is a reduction of the two last axes of a window, so it is one nest whose reduced axes are the last two.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, overload

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import (
    Dim,
    Size,
    TensorType,
    computed,
    float32,
    float64,
    int32,
    int64,
    integer,
    is_floating,
    sizes,
)
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift
from staticgrad.graph.optable import FUNCTIONS, Array, Case, Namespace, Op, Primal, public, register
from staticgrad.graph.scopes import no_grad
from staticgrad.ops.batch_rules import last_axes
from staticgrad.ops.convolution import Padding, Pair, Sizes, pair, steps_of, window_count
from staticgrad.ops.declare import shown_as
from staticgrad.ops.elementwise.copies import rounded_once


@frozen
class WindowAttributes:
    """Geometry of a window: its size, steps, places (before, after) outside of each axis, and their value."""

    kernel: Pair
    stride: Pair
    padding: Padding
    dilation: Pair
    value: float = 0.0

    def counts(self, height: Size, width: Size) -> tuple[Size, Size]:
        """The number of windows along each axis; none of an empty image."""
        rows, columns = (
            steps_of(size, self.kernel[a], self.stride[a], self.padding[a], self.dilation[a])
            for a, size in enumerate((height, width))
        )
        return rows if isinstance(rows, Dim) else max(rows, 0), columns if isinstance(columns, Dim) else max(columns, 0)

    def require_windows(self, what: str, image: TensorType) -> None:
        """Check that there are windows, as a pooling needs.

        Raises:
            GraphError: they are larger than the image.
        """
        for a, size in enumerate(image.shape[-2:]):
            window_count(what, size, self.kernel[a], self.stride[a], self.padding[a], self.dilation[a], image)

    def places(self, counts: Sequence[int]) -> Iterator[tuple[int, int, slice, slice]]:
        """Each position in the window, and which rows and columns of the padded image all windows see there."""
        (sh, sw), (dh, dw) = self.stride, self.dilation
        for i in range(self.kernel[0]):
            for j in range(self.kernel[1]):
                rows = slice(i * dh, i * dh + (counts[0] - 1) * sh + 1, sh) if counts[0] else slice(0, 0)
                columns = slice(j * dw, j * dw + (counts[1] - 1) * sw + 1, sw) if counts[1] else slice(0, 0)
                yield i, j, rows, columns


@frozen
class FoldAttributes:
    """The window whose transpose is meant, and the height and width of the result."""

    window: WindowAttributes
    height: Size
    width: Size


def _window_type(attrs: WindowAttributes, x: TensorType) -> TensorType:
    if x.ndim < 2:
        raise GraphError(f"window: expected a tensor of at least 2 dimensions, actual {x}")
    return TensorType((*x.shape[:-2], *attrs.counts(*x.shape[-2:]), *attrs.kernel), x.dtype)


def _fold_type(attrs: FoldAttributes, y: TensorType) -> TensorType:
    result = TensorType((*y.shape[:-4], attrs.height, attrs.width), y.dtype)
    attrs.window.require_windows("pooling", result)
    expected = (*attrs.window.counts(attrs.height, attrs.width), *attrs.window.kernel)
    if y.ndim < 4 or any(
        isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(expected, y.shape[-4:], strict=True)
    ):
        raise GraphError(f"fold: expected (…, {', '.join(map(str, expected))}), actual {y}")
    return result


def _pad_last(x: Array, padding: Padding, value: float) -> Array:
    widths = [(0, 0)] * (x.ndim - 2) + list(padding)
    return np.pad(x, widths, constant_values=np.asarray(value).astype(x.dtype))


def _window_reference(attrs: WindowAttributes, x: Array) -> Array:
    counts = [int(n) for n in attrs.counts(*x.shape[-2:])]
    padded = _pad_last(x, attrs.padding, attrs.value)
    y = np.empty((*x.shape[:-2], *counts, *attrs.kernel), x.dtype)
    for i, j, rows, columns in attrs.places(counts):
        y[..., i, j] = padded[..., rows, columns]
    return y


def _fold_reference(attrs: FoldAttributes, y: Array) -> Array:
    height, width = int(attrs.height), int(attrs.width)
    (top, bottom), (left, right) = attrs.window.padding
    x = np.zeros((*y.shape[:-4], height + top + bottom, width + left + right), y.dtype)
    for i, j, rows, columns in attrs.window.places(y.shape[-4:-2]):
        x[..., rows, columns] += y[..., i, j]
    return x[..., top : top + height, left : left + width].copy()


_GEOMETRIES: tuple[tuple[tuple[int, ...], WindowAttributes], ...] = (
    ((2, 3, 6, 6), WindowAttributes((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1))),
    ((2, 7, 5), WindowAttributes((3, 2), (2, 1), ((1, 1), (0, 1)), (1, 1))),
    ((6, 8), WindowAttributes((2, 3), (1, 2), ((0, 0), (1, 1)), (2, 2))),
    ((1, 2, 5, 5), WindowAttributes((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 0.5)),
    ((1, 2, 7, 7), WindowAttributes((2, 2), (3, 3), ((0, 1), (0, 1)), (1, 1))),
)


def _folded(geometry: tuple[tuple[int, ...], WindowAttributes]) -> Case:
    shape, attrs = geometry
    height, width = shape[-2:]
    operand = (*shape[:-2], *sizes(attrs.counts(height, width)), *attrs.kernel)
    return Case((operand,), FoldAttributes(replace(attrs, value=0.0), height, width))


WINDOW = register(
    Op(
        "window",
        "Every window over the last two axes, as two more axes: (…, H, W) to (…, OH, OW, KH, KW).",
        infer=_window_type,
        reference=_window_reference,
        vjp=lambda o, node, ct: (o.fold(ct, node.attrs, *node.inputs[0].shape[-2:]),),
        jvp=lambda o, node, dx: (o.window(dx, replace(node.attrs, value=0.0)),),
        dtypes=(float32, float64),
        cases=tuple(Case((shape,), attrs) for shape, attrs in _GEOMETRIES),
        grad_name="Im2Col",
        role="view",
        batch=last_axes,
    )
)

FOLD = register(
    Op(
        "fold",
        "The transpose of ``window``: adds each window back to the places that it was taken from.",
        infer=_fold_type,
        reference=_fold_reference,
        vjp=lambda o, node, ct: (o.window(ct, node.attrs.window),),
        linear=True,
        dtypes=(float32, float64),
        cases=tuple(map(_folded, _GEOMETRIES)),
        grad_name="Col2Im",
        role="write",
        filled=0,
        batch=last_axes,
    )
)


@public
def window(x: Tensor, attrs: WindowAttributes) -> Tensor:
    """Every window over the last two axes of ``x``."""
    return x.graph.add(WINDOW, (x,), attrs).outputs[0]


@public
def fold(y: Tensor, attrs: WindowAttributes, height: Size, width: Size) -> Tensor:
    """Add windows back to an image (…, height, width)."""
    return y.graph.add(FOLD, (y,), FoldAttributes(replace(attrs, value=0.0), height, width)).outputs[0]


# -- max pooling --------------------------------------------------------------------------------------------------


def _pool_type(what: str, attrs: WindowAttributes, x: TensorType) -> TensorType:
    attrs.require_windows(what, x)
    return TensorType(_window_type(attrs, x).shape[:-2], x.dtype)


def _max_pool_reference(attrs: WindowAttributes, x: Array) -> Array:
    """The largest in each window, one position of the window at a time; NaN wins."""
    counts = [int(n) for n in attrs.counts(*x.shape[-2:])]
    padded = _pad_last(x, attrs.padding, -math.inf)
    y = np.full((*x.shape[:-2], *counts), -math.inf, x.dtype)
    for _, _, rows, columns in attrs.places(counts):
        y = np.maximum(y, padded[..., rows, columns])
    return y


def _first_maximum(o: Namespace, node: Primal[WindowAttributes]) -> Tensor:
    """True at the first largest element (or the first NaN) of each window, row by row: where the gradient goes."""
    kernel = node.attrs.kernel
    candidate = _candidates(o, node.inputs[0], node.outputs[0], node.attrs)
    places = o.constant(np.arange(math.prod(kernel), dtype=np.int32).reshape((1,) * (candidate.ndim - 2) + kernel))
    first = o.min(o.where(candidate, places, math.prod(kernel)), axis=(-2, -1), keepdims=True)
    return o.equal(places, first)


def _candidates(o: Namespace, x: Tensor, y: Tensor, attrs: WindowAttributes) -> Tensor:
    """True at the largest elements of each window, and at NaN; never in the padding, whose -inf may be as large."""
    windows = o.window(x, attrs)
    found = o.logical_or(o.equal(windows, _per_window(o, y)), o.isnan(windows))
    if attrs.padding == ((0, 0), (0, 0)):
        return found
    places = zip(_image_places(o, attrs, y, int32), x.shape[-2:], strict=True)
    return functools.reduce(o.logical_and, [found, *(_within(o, place, size) for place, size in places)])


def _within(o: Namespace, place: Tensor, size: Size) -> Tensor:
    return o.logical_and(o.greater_equal(place, 0), o.less(place, size))


def _image_places(o: Namespace, attrs: WindowAttributes, y: Tensor, dtype: np.dtype) -> tuple[Tensor, Tensor]:
    """The row (OH, 1, KH, 1) and the column (1, OW, 1, KW) of the image that each place of each window has; outside
    of the image in the padding."""

    def along(axis: int) -> Tensor:
        shape = (y.shape[-2 + axis], attrs.kernel[axis])
        start = o.subtract(o.multiply(o.iota(shape, 0, dtype=dtype), attrs.stride[axis]), attrs.padding[axis][0])
        return o.add(start, o.multiply(o.iota(shape, 1, dtype=dtype), attrs.dilation[axis]))

    return o.expand_dims(along(0), (1, 3)), o.expand_dims(along(1), (0, 2))


def _per_window(o: Namespace, x: Tensor) -> Tensor:
    """(…, OH, OW) as (…, OH, OW, 1, 1): the same for the whole window."""
    return o.reshape(x, (*x.shape, 1, 1))


def _max_pool_vjp(o: Namespace, node: Primal[WindowAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    chosen = o.where(_first_maximum(o, node), _per_window(o, ct), 0)
    return (o.fold(chosen, node.attrs, *node.inputs[0].shape[-2:]),)


def _max_pool_jvp(o: Namespace, node: Primal[WindowAttributes], dx: Tensor) -> Sequence[Tensor | None]:
    tangents = o.window(dx, replace(node.attrs, value=0.0))
    return (o.sum(o.where(_first_maximum(o, node), tangents, 0), axis=(-2, -1)),)


MAX_POOL2D = register(
    Op(
        "max_pool2d",
        "The largest element of each window; its gradient goes to the first of several.",
        infer=functools.partial(_pool_type, "max_pool2d"),
        reference=_max_pool_reference,
        expand=lambda o, node: [o.max(o.window(node.inputs[0], node.attrs), axis=(-2, -1))],
        vjp=_max_pool_vjp,
        jvp=_max_pool_jvp,
        dtypes=(float32, float64),
        cases=tuple(Case((shape,), replace(attrs, value=-math.inf), distinct=True) for shape, attrs in _GEOMETRIES),
        grad_name="MaxPool2DWithIndices",
    )
)


def _overhang(size: Size, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool, what: str) -> int:
    """Places past the end of an axis. With ``ceil_mode`` a last window may hang over it, if it starts before it."""
    if not ceil_mode:
        return padding
    if isinstance(size, Dim):
        raise GraphError(f"{what}: ceil_mode needs an image of known size")
    span = dilation * (kernel - 1) + 1
    count = -(-(size + 2 * padding - span) // stride) + 1
    if (count - 1) * stride >= size + padding:
        count -= 1
    return max(padding, (count - 1) * stride + span - size - padding)


def _pool_window(
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    value: float,
    what: str,
) -> WindowAttributes:
    if x.ndim not in (3, 4) or not is_floating(x.dtype):
        raise GraphError(f"{what}: expected a floating image (N, C, H, W) or (C, H, W), actual {x.type}")
    kernel = pair(kernel_size, f"{what}: kernel_size", 1)
    steps = kernel if stride is None else pair(stride, f"{what}: stride", 1)
    low, spread = pair(padding, f"{what}: padding"), pair(dilation, f"{what}: dilation", 1)
    if any(2 * p > k for p, k in zip(low, kernel, strict=True)):
        raise GraphError(f"{what}: padding {low} must be at most half the kernel {kernel}")
    rows, columns = (
        (low[a], _overhang(x.shape[-2 + a], kernel[a], steps[a], low[a], spread[a], ceil_mode, what)) for a in range(2)
    )
    return WindowAttributes(kernel, steps, (rows, columns), spread, value)


@overload
def max_pool2d(
    input: TensorLike,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: Literal[False] = False,
) -> Tensor: ...


@overload
def max_pool2d(
    input: TensorLike,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    *,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]: ...


@overload
def max_pool2d(
    input: TensorLike,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]: ...


@overload
def max_pool2d(
    input: TensorLike,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]: ...


@public
def max_pool2d(
    input: TensorLike,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest element of each window.

    Args:
        input: (N, C, H, W) or (C, H, W).
        stride: default: the kernel's size.
        padding: places around the image that never win; at most half the kernel.
        ceil_mode: also a last window that hangs over the end.
        return_indices: a pair: also where each of them is, row·W + column as int64.

    Returns:
        (…, OH, OW). The gradient goes to the first of several equal elements.

    Raises:
        GraphError: a window that does not fit.

    Example:
        >>> x = sg.constant([[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 8.0, 7.0]]])
        >>> values, places = sg.nn.max_pool2d(x, 2, return_indices=True)
        >>> sg.Session().run([values, places])
        [array([[[6., 8.]]], dtype=float32), array([[[5, 6]]])]
        >>> sg.nn.max_pool2d(sg.zeros((8, 3, 32, 32)), 3, stride=2, padding=1).shape
        (8, 3, 16, 16)
    """
    pooled = maxima(lift(input), kernel_size, stride, padding, dilation, ceil_mode, return_indices, "max_pool2d")
    return pooled if return_indices else pooled[0]


def maxima(
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    with_places: bool,
    what: str,
) -> tuple[Tensor, Tensor]:
    """``max_pool2d`` of images under the name of the function that asks, and where the maxima are; without
    ``with_places`` the maxima once more in their place."""
    attrs = _pool_window(x, kernel_size, stride, padding, dilation, ceil_mode, -math.inf, what)
    y = x.graph.add(MAX_POOL2D, (x,), attrs).outputs[0]
    if not with_places:
        return y, y
    with x.graph, no_grad():
        return y, _places_of_maxima(x, y, attrs)


def _places_of_maxima(x: Tensor, y: Tensor, attrs: WindowAttributes) -> Tensor:
    """row·W + column of the first largest element in each window; of NaN the first."""
    o = FUNCTIONS
    rows, columns = _image_places(o, attrs, y, int64)
    place = o.add(o.multiply(rows, x.shape[-1]), columns)
    return o.min(o.where(_candidates(o, x, y, attrs), place, np.iinfo(np.int64).max), axis=(-2, -1))


# -- average pooling ----------------------------------------------------------------------------------------------


@frozen
class AveragePoolAttributes:
    """A window; the zeros that ``padding`` puts around the image; by what each sum is divided.

    ``divisor`` None: by the elements of the window that lie in the image, or (``count_include_pad``) also in its
    padding; what a window has beyond that is never counted.
    """

    window: WindowAttributes
    padding: Pair
    count_include_pad: bool
    divisor: int | None


def _elements(attrs: AveragePoolAttributes, axis: int, size: int, count: int) -> Array:
    """The number of elements of each window that are counted along one axis."""
    start = np.arange(count) * attrs.window.stride[axis] - attrs.padding[axis]
    end = np.minimum(start + attrs.window.kernel[axis], size + attrs.padding[axis])
    if not attrs.count_include_pad:
        start, end = np.maximum(start, 0), np.minimum(end, size)
    return np.asarray(end - start)


def _average_reference(attrs: AveragePoolAttributes, x: Array) -> Array:
    counts = [int(n) for n in attrs.window.counts(*x.shape[-2:])]
    padded = _pad_last(x, attrs.window.padding, 0)
    y = np.zeros((*x.shape[:-2], *counts), x.dtype)
    for _, _, rows, columns in attrs.window.places(counts):
        y += padded[..., rows, columns]
    if attrs.divisor is not None:
        return np.asarray(y / attrs.divisor, x.dtype)
    rows_in, columns_in = (_elements(attrs, a, x.shape[-2 + a], counts[a]) for a in range(2))
    return np.asarray(y / (rows_in[:, None] * columns_in), x.dtype)


def _even(attrs: AveragePoolAttributes) -> bool:
    """True if every window counts all of its elements."""
    inside = all(high <= pad for (_, high), pad in zip(attrs.window.padding, attrs.padding, strict=True))
    return inside and (attrs.count_include_pad or attrs.padding == (0, 0))


def _average_expand(o: Namespace, node: Primal[AveragePoolAttributes]) -> Sequence[Tensor]:
    (x,) = node.inputs
    attrs: AveragePoolAttributes = node.attrs
    total = o.sum(o.window(x, attrs.window), axis=(-2, -1))
    if attrs.divisor is not None:
        return [o.multiply(total, 1 / attrs.divisor)]
    if _even(attrs):
        return [o.multiply(total, 1 / math.prod(attrs.window.kernel))]
    rows, columns = (_elements(attrs, a, int(x.shape[-2 + a]), int(total.shape[-2 + a])) for a in range(2))
    return [o.divide(total, (rows[:, None] * columns).astype(x.dtype))]


AVG_POOL2D = register(
    Op(
        "avg_pool2d",
        "The mean of each window.",
        infer=lambda attrs, x: _pool_type("avg_pool2d", attrs.window, x),
        reference=_average_reference,
        expand=_average_expand,
        dtypes=(float32, float64),
        cases=tuple(
            Case(((2, 3, 6, 7),), AveragePoolAttributes(attrs, padding, include, divisor))
            for attrs, padding, include, divisor in (
                (WindowAttributes((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1)), (0, 0), True, None),
                (WindowAttributes((3, 3), (2, 1), ((1, 1), (1, 1)), (1, 1)), (1, 1), True, None),
                (WindowAttributes((3, 3), (2, 1), ((1, 1), (1, 1)), (1, 1)), (1, 1), False, None),
                (WindowAttributes((3, 2), (2, 2), ((1, 2), (1, 2)), (1, 1)), (1, 1), True, None),
                (WindowAttributes((3, 2), (2, 2), ((0, 0), (0, 0)), (1, 1)), (0, 0), True, 5),
            )
        ),
        grad_name="AvgPool2D",
    )
)


@public
def avg_pool2d(
    input: TensorLike,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window.

    Args:
        input: (N, C, H, W) or (C, H, W).
        stride: default: the kernel's size.
        padding: zeros around the image; at most half the kernel.
        ceil_mode: also a last window that hangs over the end.
        count_include_pad: divide by the padded elements too.
        divisor_override: divide by this number instead.

    Raises:
        GraphError: a window that does not fit, or a divisor of zero.

    Example:
        >>> x = sg.constant([[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]])
        >>> sg.Session().run(sg.nn.avg_pool2d(x, 2))
        array([[[3.5, 5.5]]], dtype=float32)
        >>> sg.nn.avg_pool2d(sg.zeros((8, 3, 32, 32)), 3, stride=2, padding=1).shape
        (8, 3, 16, 16)
    """
    return means(
        lift(input), kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, "avg_pool2d"
    )


def means(
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
    what: str,
) -> Tensor:
    """``avg_pool2d`` of images under the name of the function that asks."""
    if divisor_override is not None and integer(divisor_override, f"{what}: divisor_override") == 0:
        raise GraphError(f"{what}: divisor_override must not be zero")
    attrs = _pool_window(x, kernel_size, stride, padding, 1, ceil_mode, 0.0, what)
    low = pair(padding, f"{what}: padding")
    average = AveragePoolAttributes(attrs, low, count_include_pad, divisor_override)
    if not _even(average) and divisor_override is None and any(isinstance(n, Dim) for n in x.shape[-2:]):
        raise GraphError(f"{what}: windows of unequal counts need an image of known size, actual {x.type}")
    return x.graph.add(AVG_POOL2D, (x,), average).outputs[0]


def averaging_matrix(size: int, count: int) -> Array:
    """(count, size) weights of the means over ``[⌊i·size/count⌋, ⌈(i+1)·size/count⌉)``."""
    weights = np.zeros((count, size))
    for i in range(count):
        start, end = i * size // count, -(-(i + 1) * size // count)
        weights[i, start:end] = 1 / (end - start)
    return weights


def shares(size: int, count: int) -> Array:
    """(count, most) indices of the elements of the windows of an adaptive pooling, the last one repeated where a window
    has fewer than the others."""
    number = np.arange(count)
    start, end = number * size // count, -(-(number + 1) * size // count)
    return np.minimum(start[:, None] + np.arange((end - start).max()), end[:, None] - 1)


def _name_of_adaptive(input: TensorLike, output_size: int | Sequence[int | None] | None) -> str:
    return "MeanBackward1" if _adaptive_counts(output_size) == [1, 1] else "AdaptiveAvgPool2DBackward0"


def _adaptive_counts(output_size: int | Sequence[int | None] | None) -> list[int | None]:
    """Height and width of a result; None keeps that of the image."""
    return adaptive_counts(output_size, 2, "adaptive_avg_pool2d")


def adaptive_counts(output_size: int | Sequence[int | None] | None, axes: int, what: str) -> list[int | None]:
    """The size of each pooled axis of a result; None keeps that of the image."""
    what = f"{what}: output_size"
    counts = tuple(output_size) if np.iterable(output_size) else (output_size,) * axes
    if len(counts) != axes:
        raise GraphError(f"{what}: expected one of an int and None, or {axes} of them, actual {output_size!r}")
    return [count if count is None else integer(count, what, 1) for count in counts]


@public
@shown_as(_name_of_adaptive)
def adaptive_avg_pool2d(input: TensorLike, output_size: int | Sequence[int | None] | None) -> Tensor:
    """Means over windows that share an image out evenly.

    Where the sizes divide this is ``avg_pool2d``; elsewhere window i covers [⌊i·H/OH⌋, ⌈(i+1)·H/OH⌉).

    Args:
        input: (N, C, H, W) or (C, H, W).
        output_size: (OH, OW), or one number for both; None keeps an axis.

    Raises:
        GraphError: an image whose size is not known, or an empty result.

    Example:
        >>> x = sg.constant(np.arange(12.0).reshape(1, 1, 3, 4))
        >>> sg.Session().run(sg.nn.adaptive_avg_pool2d(x, (1, 2)))
        array([[[[4.5, 6.5]]]])
        >>> sg.nn.adaptive_avg_pool2d(sg.zeros((8, 16, 7, 7)), 1).shape
        (8, 16, 1, 1)
    """
    o, what = FUNCTIONS, "adaptive_avg_pool2d"
    x = lift(input)
    if x.ndim not in (3, 4) or not is_floating(x.dtype):
        raise GraphError(f"{what}: expected a floating image (N, C, H, W) or (C, H, W), actual {x.type}")
    given = _adaptive_counts(output_size)
    height, width = x.shape[-2:]
    if given == [1, 1]:
        return o.mean(x, axis=(-2, -1), keepdims=True)
    if isinstance(height, Dim) or isinstance(width, Dim):
        raise GraphError(f"{what}: expected an image of known size, actual {x.type}")
    wanted = [size if count is None else count for size, count in zip((height, width), given, strict=True)]
    if min(height, width) < 1:
        raise GraphError(f"{what}: output size {tuple(wanted)} for an image {x.type}")
    if height % wanted[0] == 0 and width % wanted[1] == 0:
        return avg_pool2d(x, (height // wanted[0], width // wanted[1]))
    rows = averaging_matrix(height, wanted[0]).astype(computed(x.dtype))
    columns = averaging_matrix(width, wanted[1]).T.astype(computed(x.dtype))
    return rounded_once(lambda x: o.matmul(rows, o.matmul(x, columns)), x)
