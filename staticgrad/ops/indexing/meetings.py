"""Updates that meet in one place: which is the last of them, their extreme, their product.

A stable sort makes neighbours of the updates of one place, so n updates cost a sort and not n² comparisons. Places are
numbers, of which there are ``extent``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.base.types import Size, TensorType, int32, int64, is_floating
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS, Array, Case, Namespace, Op, Primal, Range, register
from staticgrad.ops.cumulative import CumulativeAttributes, recurrence
from staticgrad.ops.declare import NUMERIC, declare


@frozen
class MeetingAttributes:
    """The number of places, and whether the largest or the smallest update of each is wanted."""

    extent: Size
    largest: bool


def last_of_place(places: Tensor) -> Tensor:
    """A mask of the updates, one for each place in a line, that are the last of their place."""
    column = FUNCTIONS.expand_dims(places, 1)
    return FUNCTIONS.squeeze(_last(column, FUNCTIONS.argsort(column, axis=0)), 1)


def _last(places: Tensor, order: Tensor) -> Tensor:
    """A mask of the rows that are the last of their place, column by column, where ``order`` makes neighbours of those
    of one place."""
    o = FUNCTIONS
    row, column = o.iota(places.shape, 0), o.iota(places.shape, 1)
    behind = places.shape[0] - 1
    ordered = o.gather(places, order, column)
    following = o.gather(ordered, o.minimum(o.add(row, 1), behind), column)
    ends = o.logical_or(o.not_equal(ordered, following), o.equal(row, behind))
    return o.greater(o.scatter_add(o.zeros(places.shape, dtype=int32), o.astype(ends, int32), order, column), 0)


def _extreme_type(attrs: MeetingAttributes, updates: TensorType, places: TensorType) -> TensorType:
    return TensorType((attrs.extent, updates.shape[1]), updates.dtype)


def _extreme_reference(attrs: MeetingAttributes, updates: Array, places: Array) -> Array:
    kind = updates.dtype
    least, most = (-np.inf, np.inf) if is_floating(kind) else (np.iinfo(kind).min, np.iinfo(kind).max)
    result = np.full((attrs.extent, updates.shape[1]), least if attrs.largest else most, kind)
    (np.maximum if attrs.largest else np.minimum).at(result, places, updates)
    hit = np.zeros((attrs.extent, 1), np.bool_)
    hit[places] = True
    return np.where(hit, result, kind.type(0))


def _expand_extreme(o: Namespace, node: Primal[MeetingAttributes]) -> Sequence[Tensor]:
    """Sorted by value and then by place, the last of each place is its extreme."""
    updates, places = node.inputs
    key = updates
    if not node.attrs.largest:
        key = o.negative(key) if is_floating(key.dtype) else o.bitwise_invert(key)
    by_value = o.argsort(key, axis=0)
    by_place = o.argsort(o.gather(places, by_value), axis=0)
    order = o.gather(by_value, by_place, o.iota(updates.shape, 1))
    last = _last(o.broadcast_to(o.expand_dims(places, 1), updates.shape), order)
    return [_summed(o, node, o.where(last, updates, 0))]


def _summed(o: Namespace, node: Primal[MeetingAttributes], updates: Tensor) -> Tensor:
    shape = (node.attrs.extent, updates.shape[1])
    return o.index_add(o.zeros(shape, dtype=updates.dtype), updates, node.inputs[1])


def _winners(o: Namespace, node: Primal[MeetingAttributes]) -> tuple[Tensor, Tensor]:
    """A mask of the updates that are the extreme of their place, and the number of them at each place, 1 at least."""
    updates, places = node.inputs
    wins = o.equal(updates, o.index(node.outputs[0], places))
    return wins, o.maximum(_summed(o, node, o.astype(wins, updates.dtype)), 1)


def _vjp_extreme(o: Namespace, node: Primal[MeetingAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    wins, ties = _winners(o, node)
    return o.where(wins, o.index(ct / ties, node.inputs[1]), 0), None


def _jvp_extreme(
    o: Namespace, node: Primal[MeetingAttributes], t: Tensor | None, _: Tensor | None
) -> Sequence[Tensor | None]:
    if t is None:
        return (None,)
    wins, ties = _winners(o, node)
    return (_summed(o, node, o.where(wins, t, 0)) / ties,)


EXTREME_OF_PLACE = register(
    Op(
        "extreme_of_place",
        "The largest or smallest of the rows that go to each place, 0 where none goes; ties share the derivative.",
        infer=_extreme_type,
        reference=_extreme_reference,
        expand=_expand_extreme,
        vjp=_vjp_extreme,
        jvp=_jvp_extreme,
        dtypes=NUMERIC,
        cases=tuple(
            Case(
                ((count, columns), (count,)), MeetingAttributes(extent, largest), (Range(), Range(0, extent - 1)),
                (None, int64), distinct=True,
            )
            for count, columns, extent in ((7, 3, 4), (40, 1, 5), (1, 2, 3), (0, 2, 3), (5, 0, 2), (200, 2, 90))
            for largest in (True, False)
        ),
    )
)  # fmt: skip


def extreme_of_place(updates: Tensor, places: Tensor, extent: Size, mode: str) -> Tensor:
    """The ``"max"`` or ``"min"`` of the updates (n, c) of each place: (extent, c)."""
    return declare(EXTREME_OF_PLACE, (updates, places), MeetingAttributes(extent, mode == "max"))


# -- and what was there ---------------------------------------------------------------------------------------------


def _with_type(attrs: MeetingAttributes, base: TensorType, updates: TensorType, places: TensorType) -> TensorType:
    return base


def _with_reference(attrs: MeetingAttributes, base: Array, updates: Array, places: Array) -> Array:
    result = base.copy()
    (np.maximum if attrs.largest else np.minimum).at(result, places, updates)
    return result


def _expand_with(o: Namespace, node: Primal[MeetingAttributes]) -> Sequence[Tensor]:
    base, updates, places = node.inputs
    found = declare(EXTREME_OF_PLACE, (updates, places), node.attrs)
    ones = o.ones(places.shape, dtype=int32)
    hit = o.greater(o.index_add(o.zeros((base.shape[0],), dtype=int32), ones, places), 0)
    return [o.where(o.expand_dims(hit, 1), (o.maximum if node.attrs.largest else o.minimum)(base, found), base)]


def _shares(o: Namespace, node: Primal[MeetingAttributes]) -> tuple[Tensor, Tensor, Tensor]:
    """Masks of the elements of the base and of the updates that are the extreme of their place, and the number of both
    at each place, 1 at least."""
    base, updates, places = node.inputs
    y = node.outputs[0]
    stays, wins = o.equal(base, y), o.equal(updates, o.index(y, places))
    number = o.index_add(o.astype(stays, y.dtype), o.astype(wins, y.dtype), places)
    return stays, wins, o.maximum(number, 1)


def _vjp_with(o: Namespace, node: Primal[MeetingAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    stays, wins, number = _shares(o, node)
    each = ct / number
    return o.where(stays, each, 0), o.where(wins, o.index(each, node.inputs[2]), 0), None


def _jvp_with(
    o: Namespace, node: Primal[MeetingAttributes], t_base: Tensor | None, t: Tensor | None, _: Tensor | None
) -> Sequence[Tensor | None]:
    stays, wins, number = _shares(o, node)
    total = o.zeros_like(node.inputs[0]) if t_base is None else o.where(stays, t_base, 0)
    return ((total if t is None else o.index_add(total, o.where(wins, t, 0), node.inputs[2])) / number,)


EXTREME_WITH_PLACE = register(
    Op(
        "extreme_with_place",
        "The largest or smallest of a row and of those that go to its place; ties share the derivative.",
        infer=_with_type,
        reference=_with_reference,
        expand=_expand_with,
        vjp=_vjp_with,
        jvp=_jvp_with,
        dtypes=NUMERIC,
        cases=tuple(
            Case(
                ((extent, columns), (count, columns), (count,)), MeetingAttributes(extent, largest),
                (Range(), Range(), Range(0, extent - 1)), (None, None, int64), distinct=True,
            )
            for count, columns, extent in ((7, 3, 4), (40, 1, 5), (1, 2, 3), (0, 2, 3), (5, 0, 2), (200, 2, 90))
            for largest in (True, False)
        ),
    )
)  # fmt: skip


def extreme_with_place(base: Tensor, updates: Tensor, places: Tensor, mode: str) -> Tensor:
    """The ``"max"`` or ``"min"`` of each row of the base (m, c) and of the updates (n, c) that go to its place."""
    return declare(EXTREME_WITH_PLACE, (base, updates, places), MeetingAttributes(base.shape[0], mode == "max"))


# -- products -------------------------------------------------------------------------------------------------------


def product_of_place(updates: Tensor, places: Tensor, extent: Size) -> Tensor:
    """The product of the updates (n, c) of each place: (extent, c), 0 where none goes. A running product that begins
    again at each place is a recurrence, whose derivatives are right where factors are zero."""
    o = FUNCTIONS
    order = o.argsort(places)
    ordered, rows = o.gather(places, order), o.gather(updates, order)
    row, behind = o.iota(ordered.shape, 0), places.shape[0] - 1
    begins = o.logical_or(o.equal(row, 0), o.not_equal(ordered, o.gather(ordered, o.maximum(o.add(row, -1), 0))))
    ends = o.logical_or(o.equal(row, behind), o.not_equal(ordered, o.gather(ordered, o.minimum(o.add(row, 1), behind))))
    begins, ends = o.expand_dims(begins, 1), o.expand_dims(ends, 1)
    running = recurrence(o.where(begins, 0, rows), o.where(begins, rows, 0), CumulativeAttributes(0, False))
    zeros = o.zeros((extent, updates.shape[1]), dtype=updates.dtype)
    return o.index_add(zeros, o.where(ends, running, 0), ordered)
