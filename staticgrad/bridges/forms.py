"""Compositions that several dialects have as ops of their own: division as C has it, pads, windows over any axes.

Our own division and remainder are rounded down, as NumPy's and Python's; their operands have one dtype.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.base.types import Size, bool_, is_floating
from staticgrad.bridges.arrays import cast
from staticgrad.compiler.autodiff.reverse import gradients
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.ops.windows import WindowAttributes

Pair = tuple[int, int]

# -- division ----------------------------------------------------------------------------------------------------------


def truncated_quotient(x: Tensor, y: Tensor) -> Tensor:
    """The quotient of integers, rounded towards zero; of a division by 0 that of ``floor_divide``."""
    quotient = o.floor_divide(x, y)
    return quotient if x.dtype.kind != "i" else quotient + cast(_is_apart(o.remainder(x, y), x, y), x.dtype)


def truncated_remainder(x: Tensor, y: Tensor) -> Tensor:
    """The remainder of a division that is rounded towards zero, as C's ``%`` and ``fmod``: it has the sign of ``x`` and
    is exact. Of a division by 0 it is NaN for floats, and that of ``remainder`` for integers."""
    if is_floating(x.dtype):
        size = o.remainder(o.where(o.signbit(x), -x, x), o.where(y < 0, -y, y))
        return o.where(o.signbit(x), -size, size)
    rest = o.remainder(x, y)
    return rest if x.dtype.kind != "i" else o.where(_is_apart(rest, x, y), rest - y, rest)


def _is_apart(rest: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """A mask of the elements for which rounding down and towards zero differ."""
    return o.logical_and(o.not_equal(rest, 0), o.not_equal(x < 0, y < 0))


# -- the ends of dtypes, pads ------------------------------------------------------------------------------------------


def least(dtype: np.dtype) -> float | int:
    """A number of a dtype to which no other is smaller: what a maximum of nothing is."""
    return -math.inf if is_floating(dtype) else int(np.iinfo(dtype).min)


def greatest(dtype: np.dtype) -> float | int:
    """A number of a dtype to which no other is larger: what a minimum of nothing is."""
    return math.inf if is_floating(dtype) else int(np.iinfo(dtype).max)


def padded(x: Tensor, widths: Sequence[tuple[Any, Any]], value: Any = 0, interior: Sequence[int] = ()) -> Tensor:
    """A tensor with a value, known or a tensor of one element, around and between the elements of each axis.

    Args:
        widths: for each axis what is added before and after; a negative width takes elements away, the value too.
        interior: how many times the value comes between two elements of each axis.
    """
    if all(width == (0, 0) for width in widths) and not any(interior):
        return x
    grow = functools.partial(o.pad, pad_width=widths, interior=interior or 0)
    if not isinstance(value, Tensor):
        return grow(x, value=np.asarray(value).item())
    own = grow(o.full(x.shape, True, dtype=bool_), value=False)
    return o.where(own, grow(x, value=0), o.reshape(value, ()))


# -- windows -----------------------------------------------------------------------------------------------------------


@frozen
class SlidingWindows:
    """Windows over the axes of a tensor.

    Attributes:
        sizes: the elements of a window along each axis.
        strides: the steps from one window to the next.
        dilations: the steps from one element of a window to the next.
        pads: what is added before and after each axis; negative: taken away.
        interior: what is added between two elements of each axis, before it is padded.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[Pair, ...]
    interior: tuple[int, ...]

    MOST_AT_ONCE = 9  # elements: 3 × 3 take half as long in one nest, 5 × 5 axis by axis (images of 56 × 56, measured)

    @property
    def count(self) -> int:
        """The elements of a window."""
        return math.prod(self.sizes)

    @property
    def axes(self) -> list[int]:
        """The axes along which there is more to a window than the element itself."""
        rows = zip(self.sizes, self.strides, self.pads, self.interior, strict=True)
        return [axis for axis, row in enumerate(rows) if row != (1, 1, (0, 0), 0)]

    def along(self, axes: Iterable[int]) -> SlidingWindows:
        """The windows along some of the axes alone."""
        kept = set(axes)

        def only(values: Sequence[Any], other: Any) -> tuple[Any, ...]:
            return tuple(value if axis in kept else other for axis, value in enumerate(values))

        return SlidingWindows(
            only(self.sizes, 1), only(self.strides, 1), only(self.dilations, 1), only(self.pads, (0, 0)),
            only(self.interior, 0),
        )  # fmt: skip

    def view(self, x: Tensor, value: Any = 0) -> Tensor:
        """All windows of a tensor, whose pads have a value: the number of windows along each axis, and after these the
        size of a window along each of ``axes``."""
        pads = self.pads
        if (
            not is_floating(x.dtype)
            or isinstance(value, Tensor)
            or any(self.interior)
            or min(sum(pads, ()), default=0) < 0
        ):
            x, pads, value = padded(x, pads, value, self.interior), ((0, 0),) * x.ndim, 0
        axes, rank = self.axes, x.ndim
        order = list(range(rank))  # for each axis of the result so far: an axis, or where in a window, plus the rank
        for first in reversed(range(0, len(axes), 2)):
            pair = axes[first : first + 2]
            others = [axis for axis in order if axis not in pair]
            x = _permuted(x, [order.index(axis) for axis in (*others, *pair)])
            rows = [(self.sizes[a], self.strides[a], pads[a], self.dilations[a]) for a in pair]
            if len(pair) == 1:
                x, rows = o.expand_dims(x, -2), [(1, 1, (0, 0), 1), *rows]
            kernel, strides, widths, dilations = map(_pair, zip(*rows))
            x = o.window(x, WindowAttributes(kernel, strides, widths, dilations, np.asarray(value).item()))
            x = x if len(pair) == 2 else o.squeeze(x, (-4, -2))
            order = [*others, *pair, *(axis + rank for axis in pair)]
        return _permuted(x, [order.index(axis) for axis in sorted(order)])

    def elements(self, x: Tensor, value: Any = 0) -> Tensor:
        """The elements of all windows, in their order along one more axis, the last."""
        windows = self.view(x, value)
        return o.reshape(windows, (*windows.shape[: x.ndim], self.count))

    def reduced(self, x: Tensor, value: Any, reduce: Callable[[Tensor, tuple[int, ...]], Tensor]) -> Tensor:
        """A reduction of each window by a function of a tensor and axes, as sums and maxima are. No window is a
        difference of sums, so that nothing is lost to rounding."""
        for axes in [self.axes] if self.count <= self.MOST_AT_ONCE else [[axis] for axis in self.axes]:
            x = reduce(self.along(axes).view(x, value), tuple(range(x.ndim, x.ndim + len(axes))))
        return x

    def chosen(self, by: Tensor, xs: Sequence[Tensor], *, largest: bool) -> list[Tensor]:
        """For each of several tensors the element of each window at which ``by`` is extreme, the first of equal ones.
        No element of the pads is, unless a window has no other."""
        value = least(by.dtype) if largest else greatest(by.dtype)
        seen = self.elements(by, value)
        place = o.expand_dims((o.argmax if largest else o.argmin)(seen, -1), -1)
        found = [seen if x is by else self.elements(x) for x in xs]
        return [o.squeeze(o.take_along_axis(each, place, -1), -1) for each in found]

    def folded(self, windows: Tensor, shape: Sequence[Size]) -> Tensor:
        """The transpose of ``view``: a tensor of a shape to which every window is added where it is."""
        x = o.zeros(tuple(shape), dtype=windows.dtype)
        return gradients(self.view(x), [x], [windows], "error")[0]


def _pair(values: Any) -> tuple[Any, Any]:
    first, second = values
    return first, second


def _permuted(x: Tensor, order: Sequence[int]) -> Tensor:
    return x if list(order) == sorted(order) else o.permute_dims(x, tuple(order))
