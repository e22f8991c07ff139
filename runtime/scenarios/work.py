"""Work of a thread or a worker: a block of scenarios comes in, its sums or its results go out. NumPy alone.

A *leaf* is the scenarios of one call of the program, of which the last leaf may have fewer; it never depends on how
scenarios are shared out. A *block* is a number of leaves that one thread or worker computes, one after the other.

    ``ScenarioWork``   what is the same for all blocks: the program, the arrays that all scenarios share
    ``run_block``      what executors are asked to do; ``ScenarioWork`` is kept by its digest in the worker

Sums are kept in float64, those of integers in int64, in the tree of ``tree``. A program that draws random numbers draws
in each leaf as in a run of its own: leaf ``k`` as the run ``k`` later than the next one of the session.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from staticgrad.base.errors import StaticGradError
from staticgrad.base.forks import reentrant_lock
from staticgrad.base.frozen import frozen
from staticgrad.base.types import sizes
from staticgrad.graph.optable import Array
from staticgrad.runtime.export.loaded import LoadedEntry, renewed, run_ready
from staticgrad.runtime.scenarios.tree import TreeSum

Reduce: TypeAlias = Literal["sum", "mean"]
FLOAT, INTEGER = np.dtype(np.float64), np.dtype(np.int64)
KEPT = 4  # works in a worker


def sum_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype in which numbers of a dtype are added up."""
    return INTEGER if dtype.kind in "biu" else FLOAT


@frozen
class SumPlace:
    """A result that is summed: its shape, and where its sum lies among those of its dtype."""

    dtype: np.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


@frozen(eq=False)
class ScenarioWork:
    """See the module's docstring.

    Attributes:
        entry: the program for a leaf.
        rest: the same for the last leaf where that has fewer scenarios and results are sums; else these are filled up
            with the last one, and what is computed too much is left out.
        rows: scenarios of a leaf.
        is_single: whether the program is of one scenario, whose arrays lack the axis.
        shared: for each feed the array that all scenarios share, None for one that has the scenarios' axis.
        reduces: whether results are sums over the scenarios of a leaf, that are to be added up; else each has the axis.
        weighs: for each result that is a mean over a leaf, True: it counts as often as the leaf has scenarios.
        random: the seed, and the number of the run as which the first leaf draws; None where the program does not draw.
    """

    entry: LoadedEntry
    rest: LoadedEntry | None
    rows: int
    is_single: bool
    shared: tuple[Array | None, ...]
    reduces: bool
    weighs: tuple[bool, ...]
    random: tuple[int, int] | None = None

    def sums(self) -> tuple[SumPlace, ...]:
        """The places of the sums of results."""
        ends, found = {FLOAT: 0, INTEGER: 0}, []
        for result in self.entry.results:
            dtype, shape = sum_dtype(result.type.dtype), sizes(result.type.shape)
            begin = ends[dtype]
            ends[dtype] += int(np.prod(shape, dtype=np.int64))
            found.append(SumPlace(dtype, shape, begin, ends[dtype]))
        return tuple(found)

    def result_shape(self, number: int, count: int) -> tuple[int, ...]:
        """The shape of a result of ``count`` scenarios."""
        return (count, *sizes(self.entry.results[number].type.shape)[int(not self.is_single) :])

    def run(self, first: int, arrays: Sequence[Array], outs: Sequence[Array] | None = None) -> Sequence[Array]:
        """The results of a block: its sums, in float64 and in int64, or for each fetch an array of all its scenarios.

        Args:
            first: the number of the first leaf.
            arrays: the scenarios of the block of each feed that has some, in order; readable by the program.
            outs: memory for the results, where these are not summed.
        """
        return _Run(self, first, arrays).results(outs)


class _Run:
    """A block that is computed."""

    def __init__(self, work: ScenarioWork, first: int, arrays: Sequence[Array]) -> None:
        self._work = work
        self._first = first
        given = iter(arrays)
        self._arrays = [next(given) if array is None else array for array in work.shared]
        self._mapped = [place for place, array in enumerate(work.shared) if array is None]
        self._count = len(arrays[0])
        self._lengths = {FLOAT: 0, INTEGER: 0}  # of the sums of a leaf
        self._entries = work.entry, work.rest
        if work.random is not None:  # which is state of an instance: threads have one each
            self._entries = renewed(work.entry), None if work.rest is None else renewed(work.rest)

    def results(self, outs: Sequence[Array] | None) -> Sequence[Array]:
        work, rows = self._work, self._work.rows
        leaves = range(-(-self._count // rows))
        if not work.reduces:
            if outs is None:
                outs = [
                    np.empty(work.result_shape(number, self._count), x.type.dtype)
                    for number, x in enumerate(work.entry.results)
                ]
            for leaf in leaves:
                self._fill(leaf, outs)
            return outs
        layout, tree = work.sums(), TreeSum()
        self._lengths |= {x.dtype: x.end for x in layout}
        for leaf in leaves:
            tree.add(self._summed(leaf, layout))
        return tree.total()

    def _fill(self, leaf: int, outs: Sequence[Array]) -> None:
        """Have a leaf write its results into those of the block."""
        rows, begin = self._work.rows, leaf * self._work.rows
        count = min(rows, self._count - begin)
        if self._work.is_single:
            self._call(leaf, count, [out[begin, ...] for out in outs])
        elif count == rows:
            self._call(leaf, count, [out[begin : begin + rows] for out in outs])
        else:
            padded = [np.empty((rows, *out.shape[1:]), out.dtype) for out in outs]
            self._call(leaf, count, padded)
            for out, found in zip(outs, padded, strict=True):
                out[begin:] = found[:count]

    def _summed(self, leaf: int, layout: Sequence[SumPlace]) -> Sequence[Array]:
        """The sums of a leaf: an array of float64, one of int64."""
        work = self._work
        count = min(work.rows, self._count - leaf * work.rows)
        sums = {dtype: np.empty(length, dtype) for dtype, length in self._lengths.items()}
        outs = [sums[place.dtype][place.begin : place.end].reshape(place.shape) for place in layout]
        made = [
            out if result.type.dtype is out.dtype else np.empty(out.shape, result.type.dtype)
            for out, result in zip(outs, work.entry.results, strict=True)
        ]
        self._call(leaf, count, made)
        for out, one, weighs in zip(outs, made, work.weighs, strict=True):
            if one is not out:
                out[...] = one
            if weighs:
                out *= count
        return tuple(sums.values())

    def _entry(self, count: int) -> LoadedEntry:
        """The program for a leaf of ``count`` scenarios."""
        entry, rest = self._entries
        return rest if rest is not None and count < self._work.rows else entry

    def _call(self, leaf: int, count: int, results: list[Array]) -> None:
        work, arrays, begin, entry = self._work, list(self._arrays), leaf * self._work.rows, self._entry(count)
        for place in self._mapped:
            array = arrays[place]
            if work.is_single:
                arrays[place] = array[begin, ...]
            else:
                arrays[place] = part = array[begin : begin + work.rows]
                if count < work.rows and work.rest is None:
                    arrays[place] = np.concatenate([part, *[part[-1:]] * (work.rows - count)])
        random = None if work.random is None else (work.random[0], work.random[1] + self._first + leaf)
        try:
            run_ready(entry, arrays, results, random)
        except StaticGradError as error:
            start = (self._first * work.rows) + begin
            error.add_note(f"  in scenarios {start} to {start + count - 1}" if count > 1 else f"  in scenario {start}")
            raise


# -- in a worker ------------------------------------------------------------------------------------------------------

_known: OrderedDict[str, ScenarioWork] = OrderedDict()  # by digest, the latest last
_lock = reentrant_lock()


def run_block(digest: str, content: bytes | None, first: int, arrays: Sequence[Array]) -> Sequence[Any] | None:
    """The results of a block, computed in a worker; None where this one has not been given the work yet.

    Args:
        digest: of the pickled work; ``content`` the work, or None.
    """
    with _lock:
        work = _known.get(digest)
        if work is None:
            if content is None:
                return None
            work = _known[digest] = pickle.loads(content)
        _known.move_to_end(digest)
        while len(_known) > KEPT:
            _known.popitem(last=False)
    return work.run(first, arrays)
