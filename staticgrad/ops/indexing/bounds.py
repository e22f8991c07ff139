"""Indices that may be out of range: what reads and writes at them do, by ``bounds``.

    "error"    negative ones count from the end once, others are a BoundsError
    "clip"     the first or the last place: negative ones are limited to 0
    "fill"     (reads) a given value; negative ones are out of range
    "drop"     (writes) nothing; negative ones are out of range

Input: index tensors and the sizes of the axes that they index. Output: indices that are in range, and a mask of those
that were, None where all are known to be.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from staticgrad.base.errors import BoundsError, GraphError, user_source
from staticgrad.base.types import Size, bool_, int64, is_floating
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS
from staticgrad.ops.sizes import size_value
from staticgrad.ops.sources import known_extremes

READS, WRITES = ("error", "clip", "fill"), ("error", "clip", "drop")


def require_bounds(what: str, bounds: str, allowed: Sequence[str]) -> None:
    """Raises:
    GraphError: bounds of another name.
    """
    if bounds not in allowed:
        raise GraphError(f"{what}: bounds is one of {', '.join(map(repr, allowed))}, not {bounds!r}")


def known_inside(index: Tensor, size: Size) -> bool:
    """True if all values of an index are known, and are places of an axis of ``size``."""
    known = known_extremes(index)
    return known is not None and isinstance(size, int) and not known[0] < 0 and bool(known[1] < size)


def limited(index: Tensor, size: Size) -> Tensor:
    """The place of an axis that is nearest to each index; 0 in an axis without places."""
    last = size - 1 if isinstance(size, int) else FUNCTIONS.subtract(size_value(size, int64), 1)
    return index if known_inside(index, size) else FUNCTIONS.maximum(FUNCTIONS.minimum(index, last), 0)


def inside(indices: Sequence[Tensor], sizes: Sequence[Size]) -> Tensor | None:
    """A mask of the indices that all are places of their axes; None if all are known to be."""
    o = FUNCTIONS
    tests = [
        test
        for index, size in zip(indices, sizes, strict=True)
        if not known_inside(index, size)
        for test in (
            o.greater_equal(index, 0),
            o.less(index, size if isinstance(size, int) else size_value(size, int64)),
        )
    ]
    return functools.reduce(o.logical_and, tests) if tests else None


def read(
    what: str, x: Tensor, indices: Sequence[Tensor], axes: tuple[int, ...], bounds: str, fill_value: Any
) -> Tensor:
    """The elements at int64 indices of one shape along axes; the axes of the indices come first. ``bounds`` is "clip"
    or "fill"; without a ``fill_value`` floats are filled with NaN, others with 0.

    Raises:
        BoundsError: there are indices of an axis without places, and bounds are "clip"; of one whose size feeds bind,
            in the run.
    """
    o, sizes = FUNCTIONS, [x.shape[axis] for axis in axes]
    if fill_value is None:
        fill_value = math.nan if is_floating(x.dtype) else 0
    fill = o.full((), fill_value, dtype=x.dtype)
    if 0 in sizes and indices[0].size != 0:
        if bounds == "clip":
            raise BoundsError(f"{what}: an axis of {x.type} has no place to read", source=user_source())
        rest = [size for axis, size in enumerate(x.shape) if axis not in axes]
        return o.broadcast_to(fill, (*indices[0].shape, *rest))
    reader = o.gather if all(isinstance(size, int) for size in sizes) else functools.partial(o.index, what=what)
    y = reader(x, *(limited(index, size) for index, size in zip(indices, sizes, strict=True)), axes=axes)
    there = inside(indices, sizes) if bounds == "fill" else None
    if there is None:
        return y
    return o.where(o.reshape(there, (*there.shape, *(1,) * (y.ndim - there.ndim))), y, fill)


def some(mask: Tensor | None, x: Tensor) -> Tensor:
    """``x`` where the mask of its first axes holds, else 0; all of it without a mask."""
    if mask is None:
        return x
    zero = FUNCTIONS.full((), False if x.dtype == bool_ else 0, dtype=x.dtype)
    return FUNCTIONS.where(FUNCTIONS.reshape(mask, (*mask.shape, *(1,) * (x.ndim - mask.ndim))), x, zero)
