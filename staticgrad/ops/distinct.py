"""Elements of which there are as many as values say, in results of a given size: which are not zero, which differ.

A result's size is part of the program, so it is given: what does not fit is left out, and what is left over is filled.
"""

from __future__ import annotations

from staticgrad.base.types import bool_, int64, integer, is_floating
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift
from staticgrad.graph.optable import FUNCTIONS, public
from staticgrad.ops.cumulative import CUMULATIVE_SUM, CumulativeAttributes
from staticgrad.ops.declare import declare
from staticgrad.ops.elementwise.copies import widened

Number = bool | int | float


def _numbered(mask: Tensor) -> Tensor:
    """For each element of a mask (n,), how many hold up to it."""
    return declare(CUMULATIVE_SUM, (FUNCTIONS.astype(mask, int64),), CumulativeAttributes(0, False))


def _collected(x: Tensor, mask: Tensor, number: Tensor, size: int) -> Tensor:
    """The numbers ``x`` (n,) where the mask holds, one after the other: (size,), zeros where there are fewer."""
    place = FUNCTIONS.where(mask, number - 1, size)
    return FUNCTIONS.index_add(FUNCTIONS.zeros((size,), dtype=x.dtype), x, place, bounds="drop")


def _total(number: Tensor) -> Tensor:
    """The last of the numbers, 0 of none."""
    return FUNCTIONS.max(FUNCTIONS.concat([FUNCTIONS.zeros((1,), dtype=int64), number]))


@public
def nonzero(x: TensorLike, *, size: int, fill_value: int = 0) -> tuple[Tensor, ...]:
    """The indices of the elements that are not zero, row by row. NaN is not zero.

    Args:
        x: of at least one axis.
        size: how many there is room for.
        fill_value: the index in what is left over.

    Returns:
        For each axis of ``x`` int64 indices (size,).

    Raises:
        GraphError: ``x`` has no axis.

    Example:
        >>> sg.Session().run(sg.nonzero([[0, 3], [5, 0]], size=3, fill_value=-1))
        (array([ 0,  1, -1]), array([ 1,  0, -1]))
    """
    o, tensor = FUNCTIONS, lift(x)
    size = integer(size, "nonzero: size", 0)
    mask = o.reshape(o.astype(tensor, bool_), (-1,))
    number = _numbered(mask)
    there = o.less(o.iota((size,), 0), _total(number))
    found = []
    for axis in range(o.expand_dims(tensor, 0).ndim - 1):
        places = o.reshape(o.iota(tensor.shape, axis), (-1,))
        found.append(o.where(there, _collected(places, mask, number, size), fill_value))
    return tuple(found)


@public
def unique(
    x: TensorLike,
    *,
    size: int,
    fill_value: Number | None = None,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Tensor | tuple[Tensor, ...]:
    """The elements that differ, in ascending order. All NaN are one, the last.

    Args:
        x: of any shape.
        size: how many there is room for: the least ones.
        fill_value: the element in what is left over; default: the least one.
        return_index: also the place of the first of each among the elements, row by row; of what is left over 0.
        return_inverse: also for each element of ``x`` the place of its like in the result, which may not be there.
        return_counts: also how many of each there are, 0 of what is left over.

    Returns:
        (size,), or a tuple of that and the int64 tensors asked for, in this order.

    Raises:
        GraphError: the size is no number.

    Example:
        >>> values, counts = sg.unique([3, 1, 3, 2], size=5, fill_value=0, return_counts=True)
        >>> sg.Session().run([values, counts])
        [array([1, 2, 3, 0, 0]), array([1, 1, 2, 0, 0])]
    """
    o, tensor = FUNCTIONS, lift(x)
    size = integer(size, "unique: size", 0)
    (line,) = widened([o.reshape(tensor, (-1,))])
    order = o.argsort(line)
    ordered = o.gather(line, order)
    before = o.take(ordered, o.iota(ordered.shape, 0) - 1, axis=0, bounds="clip") if line.shape[0] != 0 else ordered
    begins = o.not_equal(ordered, before)
    if is_floating(line.dtype):
        begins = o.logical_and(begins, o.logical_not(o.logical_and(o.isnan(ordered), o.isnan(before))))
    begins = o.logical_or(begins, o.equal(o.iota(ordered.shape, 0), 0))
    number = _numbered(begins)
    there = o.less(o.iota((size,), 0), _total(number))
    first = _collected(order, begins, number, size)
    values = o.take(line, first, axis=0, bounds="fill", fill_value=0)
    least = o.take(ordered, [0] * min(size, 1), axis=0, bounds="fill", fill_value=0)
    made = [o.astype(o.where(there, values, least if fill_value is None else fill_value), tensor.dtype)]
    if return_index:
        made.append(o.where(there, first, 0))
    if return_inverse:
        inverse = o.index_add(o.zeros(line.shape, dtype=int64), number - 1, order)
        made.append(o.reshape(inverse, tensor.shape))
    if return_counts:
        ones = o.ones(line.shape, dtype=int64)
        made.append(o.index_add(o.zeros((size,), dtype=int64), ones, number - 1, bounds="drop"))
    return made[0] if len(made) == 1 else tuple(made)
