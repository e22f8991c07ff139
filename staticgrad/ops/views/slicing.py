"""Parts of a tensor, and a tensor as part of one: slices, and pads, which are their transposes. Also flips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.extents import highest, is_open, is_same
from staticgrad.base.frozen import frozen
from staticgrad.base.types import (
    DTYPES,
    Dim,
    Shape,
    Size,
    Symbol,
    TensorType,
    bind_size,
    larger,
    normalize_axes,
    positive_part,
    sizes,
    smaller,
    symbols_of,
)
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift
from staticgrad.graph.optable import Array, Case, Namespace, Op, Primal, public, register
from staticgrad.ops.batch_rules import leading
from staticgrad.ops.declare import declare, shown_as
from staticgrad.ops.views.reshaping import reshape

# -- slices ---------------------------------------------------------------------------------------------------------


@frozen
class SliceAttributes:
    """For each axis the first index, the one before which to stop, and the step.

    Positive steps have 0 <= start <= stop <= size, negative ones -1 <= stop <= start < size, where -1 means before the
    first element. Bounds of a graph's own ops may be others where nothing lies between them.
    """

    starts: tuple[Size, ...]
    stops: tuple[Size, ...]
    steps: tuple[int, ...]

    def leading(self, size: Size) -> SliceAttributes:
        return SliceAttributes((0, *self.starts), (size, *self.stops), (1, *self.steps))


def slice_length(start: Size, stop: Size, step: int) -> Size:
    """The number of indices from ``start`` to before ``stop``."""
    span = stop - start if step > 0 else start - stop
    return span if step in (1, -1) else (span + (abs(step) - 1)) // abs(step)


def bounds_within(start: Size | None, stop: Size | None, step: int, size: Size) -> tuple[Size, Size, int]:
    """The bounds that Python's ``slice(start, stop, step)`` has in a sequence of ``size``, in the form of
    ``SliceAttributes``. They are right at every number of open sizes: what reaches past an end becomes the end there.

    Raises:
        OpenSizeError: of a range of sizes, a bound is inside at some and outside at others.
    """
    known: list[Any] = [start, stop, size]
    if not any(isinstance(value, Dim) or is_open(value) for value in known):
        numbers = range(*slice(start, stop, step).indices(known[2]))
        return (numbers.start, numbers.stop, step) if numbers else (0, 0, 1)
    low: Size = 0 if step > 0 else -1
    high: Size = size if step > 0 else size - 1
    first, last = (low, high) if step > 0 else (high, low)
    if start is not None:
        first = _inside(start, low, high, size)
    if stop is not None:
        last = _inside(stop, low, high, size)
    if start is not None and stop is not None:
        last = larger(first, last) if step > 0 else smaller(first, last)
    return (0, 0, 1) if is_same(first, last) else (first, last, step)


def _inside(bound: Size, low: Size, high: Size, size: Size) -> Size:
    """A bound of a slice, counted from the front and moved to the end that it is past."""
    if isinstance(bound, int) and not is_open(bound):
        return larger(low, bound + size) if bound < 0 else smaller(high, bound)
    return larger(low, smaller(high, _from_the_front(bound, size)))


def _from_the_front(bound: Size, size: Size) -> Size:
    """A bound that counts from the end where it is negative, counted from the front."""
    if isinstance(bound, int):
        return bound + size if bound < 0 else bound
    below = positive_part(-bound)
    if below == 0 or _is_before_the_front(bound, size):
        return bound
    return bound + size * (below - positive_part(-bound - 1))  # the size as often as the bound is negative, 1 or 0


MOST_TRIED = 64  # numbers at which a bound is negative


def _is_before_the_front(bound: Dim, size: Size) -> bool:
    """True if a bound that is negative is so from the end, too, as n - 1 in a sequence of n is where n is 0."""
    match bound.terms:
        case (((), int(constant)), ((Symbol() as symbol,), int(factor))) if {*symbols_of((size,))} == {symbol}:
            numbers = range(-(constant // factor)) if factor > 0 else range(MOST_TRIED)
            if len(numbers) < MOST_TRIED:
                return all(bind_size(bound + size, {symbol: number}) <= 0 for number in numbers)
    return False


def _slice_type(attrs: SliceAttributes, x: TensorType) -> TensorType:
    if not len(attrs.starts) == len(attrs.stops) == len(attrs.steps) == x.ndim:
        raise GraphError(f"slice: expected bounds for {x.ndim} axes of {x}")
    lengths = []
    for start, stop, step, size in zip(attrs.starts, attrs.stops, attrs.steps, x.shape, strict=True):
        _check_slice(start, stop, step, size, x)
        lengths.append(slice_length(start, stop, step))
    return TensorType(tuple(lengths), x.dtype)


def _check_slice(start: Size, stop: Size, step: int, size: Size, x: TensorType) -> None:
    if isinstance(start, Dim) or isinstance(stop, Dim) or isinstance(size, Dim):
        return  # checked again when feeds have bound the sizes
    inside = 0 <= start <= stop <= size if step > 0 else -1 <= stop <= start < size and step < 0
    if not inside and slice_length(start, stop, step) != 0:
        raise GraphError(f"slice: {start}:{stop}:{step} is out of range for size {size} of {x}")


def _slice_index(attrs: SliceAttributes) -> tuple[slice, ...]:
    return tuple(
        np.s_[start : (None if stop == -1 and step < 0 else stop) : step]
        for start, stop, step in zip(attrs.starts, attrs.stops, attrs.steps, strict=True)
    )


def _slice_reference(attrs: SliceAttributes, x: Array) -> Array:
    shape = sizes(_slice_type(attrs, TensorType(x.shape, x.dtype)).shape)
    return x[_slice_index(attrs)] if 0 not in shape else np.zeros(shape, x.dtype)


def unslice(y: Tensor, attrs: SliceAttributes, shape: Shape) -> Tensor:
    """``y`` in the places of a tensor of ``shape`` that the slice reads, zeros elsewhere.

    A pad around and between, of ``y`` flipped where the slice counts down.
    """
    down = tuple(axis for axis, step in enumerate(attrs.steps) if step < 0)
    low: list[Size] = []
    high: list[Size] = []
    for start, stop, step, size in zip(attrs.starts, attrs.stops, attrs.steps, shape, strict=True):
        before, after = _unread(start, stop, step, size)
        low.append(before)
        high.append(after)
    interior = tuple(abs(step) - 1 for step in attrs.steps)
    return pad_with(flip(y, axis=down) if down else y, tuple(low), tuple(high), interior)


def _unread(start: Size, stop: Size, step: int, size: Size) -> tuple[Size, Size]:
    """The numbers of elements that come before the first and after the last that a slice reads."""
    if step == 1:
        return start, size - stop
    reach = (slice_length(start, stop, step) - 1) * abs(step)
    first = start if step > 0 else start - reach
    return first, size - first - reach - 1


def _vjp_slice(o: Namespace, node: Primal[SliceAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    return (unslice(ct, node.attrs, node.inputs[0].shape),)


SLICE = register(
    Op(
        "slice",
        "Every so-many-th element between bounds, along each axis.",
        infer=_slice_type,
        reference=_slice_reference,
        vjp=_vjp_slice,
        linear=True,
        dtypes=DTYPES,
        cases=(
            Case(((5, 6),), SliceAttributes((1, 0), (4, 6), (1, 1))),
            Case(((5, 6),), SliceAttributes((0, 1), (5, 6), (2, 3))),
            Case(((5, 6),), SliceAttributes((4, 4), (-1, 0), (-1, -2))),
            Case(((2, 3, 4),), SliceAttributes((1, 0, 3), (2, 3, -1), (1, 1, -3))),
            Case(((4,),), SliceAttributes((2,), (2,), (1,))),
            Case(((0, 3),), SliceAttributes((0, 0), (0, 2), (1, 1))),
        ),
        role="view",
        batch=leading,
    )
)


def declare_slice(x: Tensor, starts: Sequence[Size], stops: Sequence[Size], steps: Sequence[int]) -> Tensor:
    """A slice of every axis; the tensor itself where everything is taken."""
    attrs = SliceAttributes(tuple(starts), tuple(stops), tuple(steps))
    if attrs == SliceAttributes((0,) * x.ndim, x.shape, (1,) * x.ndim):
        return x
    return declare(SLICE, (x,), attrs)


def slice_axis(x: Tensor, axis: int, start: Size, stop: Size, step: int = 1) -> Tensor:
    """A slice of one axis (not negative), everything of the others."""
    starts, stops, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
    bounds: list[Size] = list(starts)
    bounds[axis], stops[axis], steps[axis] = start, stop, step
    return declare_slice(x, bounds, stops, steps)


@public
@shown_as("FlipBackward0")
def flip(x: TensorLike, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """The elements in reverse order along ``axis`` (one or several), or along all axes.

    Raises:
        GraphError: an axis that is out of range.

    Example:
        >>> sg.Session().run(sg.flip([[1, 2], [3, 4]]))
        array([[4, 3],
               [2, 1]])
        >>> sg.Session().run(sg.flip([[1, 2], [3, 4]], axis=1))
        array([[2, 1],
               [4, 3]])
    """
    x = y = lift(x)
    for i in normalize_axes(axis, y.ndim, "flip"):
        if y.shape[i] != 0:
            y = slice_axis(y, i, y.shape[i] - 1, -1, -1)
    return reshape(x, x.shape) if y is x else y


# -- padding --------------------------------------------------------------------------------------------------------


@frozen
class PadAttributes:
    """For each axis how much of ``value`` comes before, after, and between two elements; none is negative.

    There is a gap fewer than there are elements, for no elements too, so that sizes are polynomials: an empty axis has
    ``low + high - interior`` places.
    """

    low: tuple[Size, ...]
    high: tuple[Size, ...]
    interior: tuple[int, ...]
    value: float | int | bool

    def leading(self, size: Size) -> PadAttributes:
        return PadAttributes((0, *self.low), (0, *self.high), (0, *self.interior), self.value)


def _padded_size(size: Size, low: Size, high: Size, interior: int) -> Size:
    return low + size + high if interior == 0 else low + size + (size - 1) * interior + high


def _pad_type(attrs: PadAttributes, x: TensorType) -> TensorType:
    if not len(attrs.low) == len(attrs.high) == len(attrs.interior) == x.ndim:
        raise GraphError(f"pad: expected widths for {x.ndim} axes of {x}")
    if any(isinstance(width, int) and width < 0 for width in (*attrs.low, *attrs.high, *attrs.interior)):
        raise GraphError(f"pad: widths of {x} are negative: before {attrs.low}, after {attrs.high}")
    axes = zip(x.shape, attrs.low, attrs.high, attrs.interior, strict=True)
    shape = tuple(_padded_size(*axis) for axis in axes)
    if any(isinstance(size, int) and highest(size) < 0 for size in shape):
        raise GraphError(f"pad: no elements of {x} are fewer than the gaps between them, {attrs.interior}")
    return TensorType(shape, x.dtype)


def _pad_reference(attrs: PadAttributes, x: Array) -> Array:
    shape = _pad_type(attrs, TensorType(x.shape, x.dtype)).shape
    result = np.full(sizes(shape), attrs.value, x.dtype)
    result[_pad_index(attrs, x.shape)] = x
    return result


def _pad_index(attrs: PadAttributes, shape: tuple[int, ...]) -> tuple[slice, ...]:
    widths = zip(attrs.low, attrs.interior, shape, strict=True)
    return tuple(np.s_[low : low + size + max(size - 1, 0) * gap : gap + 1] for low, gap, size in widths)


def _vjp_pad(o: Namespace, node: Primal[PadAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    x, attrs = node.inputs[0], node.attrs
    stops = tuple(
        low + (size if gap == 0 else (size - 1) * (gap + 1) + 1)
        for low, gap, size in zip(attrs.low, attrs.interior, x.shape, strict=True)
    )
    return (declare_slice(ct, attrs.low, stops, tuple(gap + 1 for gap in attrs.interior)),)


PAD = register(
    Op(
        "pad",
        "One value around and between the elements.",
        infer=_pad_type,
        reference=_pad_reference,
        vjp=_vjp_pad,
        jvp=lambda o, node, t: (o.pad_with(t, node.attrs.low, node.attrs.high, node.attrs.interior),),
        moves=True,
        dtypes=DTYPES,
        cases=(
            Case(((3, 4),), PadAttributes((1, 0), (2, 1), (0, 0), 0)),
            Case(((3, 4),), PadAttributes((0, 1), (0, 0), (1, 2), 1)),
            Case(((2, 3, 2),), PadAttributes((0, 0, 3), (0, 2, 0), (0, 1, 0), 0)),
            Case(((),), PadAttributes((), (), (), 0)),
            Case(((0,),), PadAttributes((2,), (1,), (0,), 1)),
        ),
        grad_name="ConstantPadNd",
        role="write",
        filled=0,
        cheap=True,
        batch=leading,
    )
)


@public
def pad_with(
    x: Tensor, low: tuple[Size, ...], high: tuple[Size, ...], interior: tuple[int, ...], value: float | int | bool = 0
) -> Tensor:
    """``value`` before, after and between the elements of each axis: the op as it is, all widths given."""
    if not any(width != 0 for width in (*low, *high, *interior)) and not x.requires_grad:
        return x
    return declare(PAD, (x,), PadAttributes(tuple(low), tuple(high), tuple(interior), value))
