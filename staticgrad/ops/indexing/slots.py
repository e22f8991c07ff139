"""Slots: indices sorted, equal ones together, so that what is added at each can be added up once.

    index   7 2 7 0     slot   2 1 2 0         of each index, the place of the first that equals it when they are sorted
    row     0 2 7 7     kept   yes yes yes no  of each slot, and whether it is the first of its row

What is scattered to its slots lies in a slot that is kept, in the order of the indices; the others stay zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from staticgrad.base.types import Size, int64
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


class Slots(NamedTuple):
    """``row`` and ``kept`` of each slot; ``slots``, those of the indices that were given, in a vector for each."""

    row: Tensor
    kept: Tensor
    slots: tuple[Tensor, ...]


def slots_of(indices: Sequence[Tensor]) -> Slots:
    """The slots of int64 vectors of indices, a slot for each of these, of which there is at least one."""
    index = indices[0] if len(indices) == 1 else o.concat(indices)
    (count,) = index.shape
    order = o.argsort(index)
    row = o.gather(index, order)
    number = o.iota((count,), 0)
    before = o.gather(row, o.maximum(o.subtract(number, 1), 0))
    kept = o.logical_or(o.equal(number, 0), o.not_equal(row, before))
    first = o.cummax(o.where(kept, number, 0))
    slot = o.scatter_add(o.zeros((count,), dtype=int64), first, order)
    if len(indices) == 1:
        return Slots(row, kept, (slot,))
    parts: list[Tensor] = []
    at: Size = 0
    for own in indices:
        end = at + own.shape[0]
        parts.append(slot[at:end])
        at = end
    return Slots(row, kept, tuple(parts))
