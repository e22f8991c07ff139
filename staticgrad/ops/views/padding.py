"""Pads: a value around and between the elements of a tensor, or its own elements repeated around it, or parts of it
taken away.

Repeated elements are slices side by side, so that a kernel writes each into its place, and the gradient is a sum of
slices; only more of them than an axis has are gathered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.types import Dim, Size, integer, to_array
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift
from staticgrad.graph.optable import FUNCTIONS, Array, public
from staticgrad.ops.declare import shown_as
from staticgrad.ops.views.slicing import declare_slice, pad_with, slice_axis

Mode = Literal["constant", "edge", "replicate", "reflect", "symmetric", "wrap", "circular"]
MODES = ("constant", "edge", "reflect", "symmetric", "wrap")
OTHER_NAMES = {"replicate": "edge", "circular": "wrap"}  # PyTorch's


def _name_of_pad(x: TensorLike, pad_width: Any, value: Any = 0, *, mode: str = "constant", interior: Any = 0) -> str:
    kinds = {"edge": "ReplicationPad", "replicate": "ReplicationPad", "reflect": "ReflectionPad"}
    return f"{kinds[mode]}NdBackward0" if mode in kinds else "ConstantPadNdBackward0"


@public
@shown_as(_name_of_pad)
def pad(
    x: TensorLike,
    pad_width: Size | Sequence[Size] | Sequence[Sequence[Size]],
    value: float | int | bool = 0,
    *,
    mode: Mode = "constant",
    interior: int | Sequence[int] = 0,
) -> Tensor:
    """Elements around a tensor, as ``np.pad``, and between them, as ``jax.lax.pad``.

    Args:
        pad_width: ``(before, after)`` for each axis, one such pair for all, or one int for both sides of all axes. A
            negative width takes elements away.
        value: what is added with mode "constant".
        mode: "constant"; "edge" (or "replicate") repeats the first and the last element; "reflect" mirrors at them,
            "symmetric" at the borders before and after them; "wrap" (or "circular") goes on at the other end.
        interior: how many times ``value`` comes between two elements, for all axes or each; before what
            ``pad_width`` adds or takes away.

    Raises:
        GraphError: another number of pairs than of axes, an unknown mode, more taken away than there is, or elements to
            repeat of an empty axis, or more than an axis of open size has.

    Example:
        >>> sg.Session().run(sg.pad([1, 2], (1, 2), value=9))
        array([9, 1, 2, 9, 9])
        >>> sg.Session().run(sg.pad([1, 2, 3], 2, mode="reflect"))
        array([3, 2, 1, 2, 3, 2, 1])
        >>> sg.Session().run(sg.pad([1, 2, 3], (-1, 1), interior=1))
        array([0, 2, 0, 3, 0])
        >>> sg.pad(sg.zeros((2, 3)), ((0, 1), (2, 2))).shape
        (3, 7)
    """
    x = operand = lift(x)
    widths = _widths(x, pad_width)
    mode_ = OTHER_NAMES.get(mode, mode)
    if mode_ not in MODES:
        raise GraphError(f"pad: expected a mode of {', '.join((*MODES, *OTHER_NAMES))}, actual {mode!r}")
    gaps = _gaps(x, interior)
    if any(gaps) and mode_ != "constant":
        raise GraphError(f'pad: interior={interior!r} goes with mode "constant", actual {mode!r}')
    low, high = (tuple(_added(pair[side]) for pair in widths) for side in (0, 1))
    if mode_ == "constant":
        x = pad_with(x, low, high, gaps, to_array(value, x.dtype).item())
        return cropped("pad", x, widths) if _crops(widths) else _own(x, operand)
    x = cropped("pad", x, widths) if _crops(widths) else x
    for axis, (before, after) in enumerate(zip(low, high, strict=True)):
        x = extended("pad", x, axis, before, after, mode_)
    return _own(x, operand)


def _own(x: Tensor, operand: Tensor) -> Tensor:
    """``x``, or where it is the operand itself a view of it, which has hooks of its own."""
    return FUNCTIONS.reshape(x, x.shape) if x is operand else x


def _widths(x: Tensor, pad_width: Any) -> list[tuple[Size, Size]]:
    """The pair of widths of each axis."""
    items: list[Any] = list(pad_width) if np.iterable(pad_width) else [pad_width]
    flat = not any(np.iterable(item) for item in items)
    if flat and len(items) in (1, 2):
        pairs = [(items[0], items[-1])] * x.ndim
    elif not flat and len(items) in (1, x.ndim) and all(np.iterable(item) and len(list(item)) == 2 for item in items):
        pairs = [tuple(item) for item in items] * (x.ndim if len(items) == 1 else 1)
    else:
        raise GraphError(f"pad: expected a pair of widths for each axis of {x.name!r} {x.type}, actual {pad_width!r}")
    return [(_width(before), _width(after)) for before, after in pairs]


def _width(width: Any) -> Size:
    return width if isinstance(width, Dim) else integer(width, "pad: pad_width")


def _gaps(x: Tensor, interior: Any) -> tuple[int, ...]:
    """The number of values between two elements of each axis; none on axes that are known to be empty."""
    given: tuple[Any, ...] = tuple(interior) if np.iterable(interior) else (interior,) * x.ndim
    if len(given) != x.ndim:
        raise GraphError(f"pad: expected an interior for each axis of {x.name!r} {x.type}, actual {interior!r}")
    gaps = [integer(gap, "pad: interior", 0) for gap in given]
    return tuple(0 if size == 0 else gap for gap, size in zip(gaps, x.shape, strict=True))


def _added(width: Size) -> Size:
    return width if isinstance(width, Dim) else max(width, 0)


def _crops(widths: Sequence[tuple[Size, Size]]) -> bool:
    return any(isinstance(width, int) and width < 0 for pair in widths for width in pair)


def cropped(what: str, x: Tensor, widths: Sequence[tuple[Size, Size]]) -> Tensor:
    """``x`` without what negative widths take away.

    Raises:
        GraphError: they take more than there is.
    """
    taken = [tuple(-w if isinstance(w, int) and w < 0 else 0 for w in pair) for pair in widths]
    for axis, ((before, after), size) in enumerate(zip(taken, x.shape, strict=True)):
        if isinstance(size, int) and size < before + after:
            raise GraphError(
                f"{what}: expected to take at most {size} elements away from axis {axis} of {x.name!r} {x.type},"
                f" actual {(-before, -after)}"
            )
    stops = [size - after for (_, after), size in zip(taken, x.shape, strict=True)]
    return declare_slice(x, [before for before, _ in taken], stops, [1] * x.ndim)


# -- elements of the tensor itself ------------------------------------------------------------------------------------


def most_repeated(size: int, mode: str) -> int:
    """The number of elements that a slice of an axis can add to one side of it."""
    return size - 1 if mode == "reflect" else size


def extended(what: str, x: Tensor, axis: int, low: Size, high: Size, mode: str) -> Tensor:
    """``x`` with ``low`` elements more before an axis and ``high`` after it, which are elements of that axis.

    Raises:
        GraphError: the axis has none.
    """
    o, size = FUNCTIONS, x.shape[axis]
    if low == 0 and high == 0:
        return x
    if size == 0:
        raise GraphError(f"{what}: mode={mode!r} has no elements to repeat on axis {axis} of {x.name!r} {x.type}")
    match size, low, high:
        case int(), int(), int() if mode != "edge" and max(low, high) > most_repeated(size, mode):
            return o.take(x, _sources(size, low, high, mode), axis=axis)
    parts = [_before(x, axis, low, mode)] if low != 0 else []
    parts.append(x)
    if high != 0:
        parts.append(_after(x, axis, high, mode))
    return o.concat(parts, axis=axis)


def _repeated(x: Tensor, axis: int, place: Size, count: Size) -> Tensor:
    """The element at one place of an axis, a number of times."""
    one = slice_axis(x, axis, place, place + 1)
    return FUNCTIONS.broadcast_to(one, (*x.shape[:axis], count, *x.shape[axis + 1 :]))


def _before(x: Tensor, axis: int, count: Size, mode: str) -> Tensor:
    if mode == "edge":
        return _repeated(x, axis, 0, count)
    if mode == "wrap":
        return slice_axis(x, axis, x.shape[axis] - count, x.shape[axis])
    first = count if mode == "reflect" else count - 1
    return slice_axis(x, axis, first, first - count, -1)


def _after(x: Tensor, axis: int, count: Size, mode: str) -> Tensor:
    size = x.shape[axis]
    if mode == "edge":
        return _repeated(x, axis, size - 1, count)
    if mode == "wrap":
        return slice_axis(x, axis, 0, count)
    first = size - 2 if mode == "reflect" else size - 1
    return slice_axis(x, axis, first, first - count, -1)


def _sources(size: int, low: int, high: int, mode: str) -> Array:
    """The index of the element of an axis that stands at each place of the one that is extended."""
    places = np.arange(-low, size + high)
    if mode == "wrap":
        return places % size
    if mode == "symmetric":
        folded = places % (2 * size)
        return np.where(folded < size, folded, 2 * size - 1 - folded)
    period = max(2 * (size - 1), 1)  # reflect
    folded = np.abs(places) % period
    return np.where(folded < size, folded, period - folded)
