"""Ranges: one region for many sizes.

Input: a graph, fetches, feeds with the sizes of a call. Output: a region whose open sizes are extents of the ranges in
which those sizes lie, and which sizes of a call are which. Left to others: what cannot be compiled for a range
(``OpenSizeError``, wherever it is met; here a ``RangeError``), which is then compiled for a part of the range or for
the size of the call (``runtime.session.compiler``).

Two sizes with names of their own may have to be equal, as where a batch of images meets a batch of labels. An op that
asks says so; then they are one open size, and the region serves the calls in which they are equal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from staticgrad.base.extents import OpenSize, OpenSizeError, extent_of
from staticgrad.base.frozen import frozen
from staticgrad.base.types import Bindings, Symbol, TensorType, bind
from staticgrad.compiler.regions.cut import cut
from staticgrad.compiler.regions.region import Region
from staticgrad.graph.graph import Graph, Node, Tensor

T = TypeVar("T")
Groups = Sequence[tuple[Symbol, ...]]  # by the numbers of open sizes, the symbols that are one
Ranges = Mapping[Symbol, tuple[int, int]]  # of the sizes of a call, from the first one to the last


class RangeError(Exception):
    """A program cannot be compiled for ranges of the sizes ``symbols``; the message says why. Those that are
    ``unequal`` in this call could be ranges if they were equal; those with ``cuts``, if the range were cut before these
    numbers."""

    def __init__(self, why: str, symbols: frozenset[Symbol]) -> None:
        super().__init__(why)
        self.symbols = symbols
        self.unequal: tuple[tuple[Symbol, Symbol], ...] = ()
        self.cuts: dict[Symbol, tuple[int, ...]] = {}


@contextlib.contextmanager
def naming(groups: Groups) -> Iterator[None]:
    """Let what is refused inside name the symbols of its open sizes; all of them where it speaks of none."""
    try:
        yield
    except OpenSizeError as error:
        numbers = {size.number for size in error.sizes} or range(len(groups))
        refused = RangeError(str(error), frozenset(s for number in numbers for s in groups[number]))
        refused.cuts = {symbol: cuts for size, cuts in error.cuts.items() for symbol in groups[size.number]}
        raise refused from error


@frozen
class RangedRegion:
    """A region for ranges of sizes. ``groups[i]`` are the symbols that are its open size number ``i``."""

    region: Region
    groups: tuple[tuple[Symbol, ...], ...]


def numbers_of(groups: Groups, bindings: Bindings) -> tuple[int, ...] | None:
    """The open sizes in a call; None where sizes differ that have to be equal."""
    found = [{bindings[symbol] for symbol in group} for group in groups]
    return tuple([next(iter(sizes)) for sizes in found]) if all(len(sizes) == 1 for sizes in found) else None


def common(ranges: Ranges, groups: Groups) -> Ranges:
    """The ranges of the symbols in groups, of which all have one size."""
    found: dict[Symbol, tuple[int, int]] = {}
    for group in groups:
        lows, highs = zip(*(ranges[symbol] for symbol in group), strict=True)
        found.update(dict.fromkeys(group, (max(lows), min(highs))))
    return found


def parts_of(ranges: Ranges, cuts: Mapping[Symbol, tuple[int, ...]], bindings: Bindings) -> Ranges:
    """The parts of ranges, cut before some numbers, in which the sizes of a call lie."""
    parts = dict(ranges)
    for symbol, firsts in cuts.items():
        low, high = parts[symbol]
        starts = [first for first in firsts if low < first <= high]
        low = max([low, *(first for first in starts if first <= bindings[symbol])])
        parts[symbol] = low, min([high, *(first - 1 for first in starts if first > bindings[symbol])])
    return parts


def cut_for_ranges(
    graph: Graph,
    fetches: Sequence[Tensor | Node],
    feeds: Mapping[Tensor, TensorType],
    bindings: Bindings,
    ranges: Ranges,
    *,
    check_numerics: bool = False,
) -> RangedRegion:
    """``cut`` for ranges of the sizes in ``bindings``.

    Raises:
        RangeError: that leaves something open which has to be known.
        FetchError, FeedError, GraphError: as ``cut``.
    """

    def made(types: Mapping[Tensor, TensorType], sizes: Bindings) -> Region:
        return cut(graph, fetches, types, check_numerics=check_numerics, known=sizes)

    return RangedRegion(*made_for_ranges(feeds, bindings, ranges, made))


def made_for_ranges(
    feeds: Mapping[Tensor, TensorType],
    bindings: Bindings,
    ranges: Ranges,
    make: Callable[[Mapping[Tensor, TensorType], Bindings], T],
) -> tuple[T, tuple[tuple[Symbol, ...], ...]]:
    """Make something, by ``make``, of the types of feeds and of the sizes that they bind, which are extents of the
    ranges of the sizes in ``bindings``, but for ranges of one size. Returns it, and which symbols its open sizes are.

    Raises:
        RangeError: that leaves something open which has to be known.
    """
    groups: list[tuple[Symbol, ...]] = [(symbol,) for symbol, (low, high) in ranges.items() if low < high]
    while True:
        sizes = dict(bindings)
        for number, group in enumerate(groups):
            low, high = common(ranges, [group])[group[0]]
            sizes.update(dict.fromkeys(group, extent_of(OpenSize(number, low, high, group[0].name))))
        types = {x: TensorType(bind(x.shape, sizes), fed.dtype) for x, fed in feeds.items()}
        try:
            with naming(groups):
                value = make(types, sizes)
        except RangeError as error:
            joined = _joined(error, groups, bindings)
            if joined is None:
                raise
            groups = joined
        else:
            return value, tuple(groups)


def _joined(error: RangeError, groups: Groups, bindings: Bindings) -> list[tuple[Symbol, ...]] | None:
    """The groups with some of them made one, if the error asks whether they are equal and in this call they are. It is
    told where they are not."""
    cause = error.__cause__
    if not isinstance(cause, OpenSizeError) or cause.equation is None:
        return None
    found = list(groups)
    pairs = tuple((groups[a.number][0], groups[b.number][0]) for a, b in cause.equation)
    if any(bindings[a] != bindings[b] for a, b in pairs):
        error.unequal = pairs
        return None
    for pair in pairs:
        a, b = (next(group for group in found if symbol in group) for symbol in pair)
        if a is not b:
            found = [(*a, *b) if group is a else group for group in found if group is not b]
    return found
