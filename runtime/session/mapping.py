"""Executables over scenarios: ``exe.map``.

Input: an executable's programs, arrays of which some have an axis of scenarios, how results are reduced and who
computes. Output: the nest of the fetches, of all scenarios or summed over them.

**Which arrays have scenarios** is told by their shapes, beside those that the feeds were declared with:

    one scenario     arrays that have one axis more than their feed: each element of axis 0 is a scenario. The program
                     is declared for one scenario; what is compiled is the program over many at once, by the batch rules
                     of its ops (``compiler.autodiff.batching``)
    rows             feeds whose first size is open, one and the same size in all of them: axis 0 of their arrays has
                     the scenarios. The program is declared for any number of scenarios, and called with many at a time
    shared           all other arrays: they are given to every call as they are

Where the size was given as a number when the executable was compiled, calls have that number of scenarios. Otherwise a
leaf has what ``scenarios.leaf`` chooses. Programs of one scenario that draw random numbers, or with ops that do not go
over many, run scenario by scenario: then a leaf is one.

**Results.** One whose first size is that of the scenarios (of a program of one scenario: every one) has a value for
each. ``reduce`` sums these, or takes their mean. One without it is what the program itself makes of the scenarios that
it is called with: ``"sum"`` adds these up, ``"mean"`` weighs each by its number of scenarios; so ``v.sum()`` is mapped
with ``"sum"``, ``v.mean()`` with ``"mean"``. Without ``reduce`` results need the axis, and come back whole.

Left to others: the sums (``scenarios.tree``), what one call needs (``scenarios.work``), threads, executors and what
goes wrong there (``scenarios.spread``).
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from staticgrad.base import config, log
from staticgrad.base.errors import FeedError, FetchError, GraphError, StaticGradError
from staticgrad.base.frozen import frozen
from staticgrad.base.recent import Recent
from staticgrad.base.types import Dim, Symbol, TensorType, as_declared, integer, symbols_of
from staticgrad.graph.graph import Derivation, Graph, Tensor
from staticgrad.graph.optable import FUNCTIONS, Array
from staticgrad.graph.scopes import isolated
from staticgrad.runtime.running.binding import as_array, bind_sizes, types_of
from staticgrad.runtime.running.fetches import filled, flatten_like
from staticgrad.runtime.scenarios.bar import Told, told
from staticgrad.runtime.scenarios.leaf import FIRST_ROWS, LeafProgram, leaf_program, rows_of_leaf
from staticgrad.runtime.scenarios.rows import Rows, shape_of, shaped
from staticgrad.runtime.scenarios.spread import ScenarioBlock, Spreader
from staticgrad.runtime.scenarios.tree import TreeSum
from staticgrad.runtime.scenarios.work import FLOAT, INTEGER, Reduce, ScenarioWork, run_block, sum_dtype
from staticgrad.runtime.session import exporting
from staticgrad.runtime.session.programs import Programs

if TYPE_CHECKING:
    from staticgrad.compiler.options import CompileOptions
    from staticgrad.compiler.regions.region import Region
    from staticgrad.runtime.export.source import ExportSource

Summed: TypeAlias = tuple[bool, ...] | None  # for each result whether a leaf sums it; None where nothing is reduced
REDUCTIONS = (None, "sum", "mean")
KEPT_LEAVES = 16  # programs of an executable
BLOCKS_A_THREAD = 8  # so that threads end together
BLOCKS = 64  # for an executor, of whose workers nothing is known
WORTH_THREADS = 1e-3  # seconds of all scenarios, by a lower bound of their time
BLOCK_BYTES = 1 << 24  # of the arrays of a block that are sent, or read from a file
WINDOW_BYTES = 1 << 26  # of the blocks that are handed out
MOST_HANDED_OUT = 1024  # blocks
SMALL = 1 << 20  # bytes of the work that go with every block


@frozen(eq=False)
class Arrangement:
    """The arrays of a call, arranged: which have scenarios, and how the program is called for them.

    Attributes:
        is_single: whether the program is of one scenario.
        size: of a program of rows, the open size.
        rows: the scenarios of each feed that has some, None for a shared one.
        shared: the other arrays.
        given: how many scenarios a leaf has, where that was given when it was compiled.
        count: the number of scenarios.
    """

    is_single: bool
    size: Dim | None
    rows: tuple[Rows | None, ...]
    shared: tuple[Array | None, ...]
    given: int | None
    count: int

    @property
    def of_one(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the arrays of one scenario."""
        return tuple(
            one.shape if one is not None else () if array is None else array.shape
            for one, array in zip(self.rows, self.shared, strict=True)
        )

    def shapes(self, rows: int) -> tuple[tuple[int, ...], ...]:
        """The shapes of the arrays of a leaf."""
        return tuple(
            shape if one is None or not rows else (rows, *shape)
            for one, shape in zip(self.rows, self.of_one, strict=True)
        )

    def arrays(self, block: ScenarioBlock) -> list[Array]:
        """The arrays of a block, of the feeds that have scenarios."""
        return [one.block(block.start, block.stop) for one in self.rows if one is not None]


def arranged(programs: Programs, values: Sequence[Any]) -> Arrangement:
    """The arrays of a call: see the module's docstring.

    Raises:
        FeedError: a wrong number of arrays, a wrong shape or dtype, none with scenarios, different numbers of them.
    """
    feeds = programs.feeds
    if len(values) != len(feeds):
        names = ", ".join(repr(x.name) for x in feeds) or "none"
        raise FeedError(f"map: expected {len(feeds)} arrays (for {names}), actual {len(values)}")
    found = [shaped(x, value) for x, value in zip(feeds, values, strict=True)]
    shapes = [shape_of(value) for value in found]
    flags = [len(shape) == x.ndim + 1 for x, shape in zip(feeds, shapes, strict=True)]
    is_single, size, given = any(flags), None, None
    if not is_single:
        size, given = _open_size(programs, shapes)
        flags = [x.ndim > 0 and x.shape[0] == size for x in feeds]
    rows: list[Rows | None] = []
    shared: list[Array | None] = []
    for x, value, shape, original, flag in zip(feeds, found, shapes, values, flags, strict=True):
        wanted = x.shape if is_single else x.shape[1:]
        if not flag:
            rows.append(None)
            shared.append(as_array(x, original))
            continue
        inner = shape[1:]
        if len(inner) != len(wanted) or any(isinstance(a, int) and a != b for a, b in zip(wanted, inner, strict=True)):
            raise FeedError(
                f"map: feed of {x.name!r}: wrong shape\n  expected {('scenarios', *as_declared(wanted))}"
                f"\n  actual   {shape}",
                source=x.source,
            )
        rows.append(Rows(x, inner, value, original))
        shared.append(None)
    counts = {one.count: x for one, x in zip(rows, feeds, strict=True) if one is not None}
    if len(counts) != 1:
        said = ", ".join(f"{x.name!r} has {count}" for count, x in counts.items())
        raise FeedError(f"map: the numbers of scenarios differ: {said}")
    (count,) = counts
    if not count:
        raise FeedError("map: expected scenarios, actual none: axis 0 has size 0")
    return Arrangement(is_single, size, tuple(rows), tuple(shared), given, count)


def _open_size(programs: Programs, shapes: Sequence[tuple[int, ...]]) -> tuple[Dim, int | None]:
    """The size of the scenarios' axis of a program of rows, and the number that was given for it when it was
    compiled."""
    feeds = programs.feeds
    latest = programs.latest_shapes
    known = {} if latest is None else bind_sizes(feeds, latest)
    strong: dict[Symbol, int | None] = {}
    weak: dict[Symbol, int | None] = {}
    for x, shape in zip(feeds, shapes, strict=True):
        symbol = _lone_symbol(x.shape[0]) if x.ndim and len(shape) == x.ndim else None
        if symbol is None:
            continue
        given = known.get(symbol) if symbol in programs.fixed else None
        (strong if given != shape[0] else weak)[symbol] = given
    found = strong or weak
    if not strong and len(weak) > 1:  # one call, whichever axis has the scenarios: one that results have, if one has
        led = [s for y in programs.fetched.tensors if y.ndim and (s := _lone_symbol(y.shape[0])) in weak]
        found = {symbol: weak[symbol] for symbol in dict.fromkeys(led or list(weak)[:1])}
    if not found:
        described = ", ".join(f"{x.name!r} {as_declared(x.shape)}" for x in feeds) or "none"
        raise FeedError(
            "map: no array has an axis of scenarios: expected one axis more than that of a feed, or a feed whose first"
            f" size is open\n  feeds    {described}\n  actual   {', '.join(map(str, shapes))}"
        )
    if len(found) > 1:
        names = ", ".join(
            f"{x.name!r} {as_declared(x.shape)}" for x in feeds if x.ndim and _lone_symbol(x.shape[0]) in found
        )
        raise FeedError(
            f"map: the first sizes of several feeds are open, and not the same: {names}. Declare that of the scenarios"
            ' with one name, sg.dim("scenarios"), and give the others as numbers: sess.compile(fetches, {x: (80,)})'
        )
    ((symbol, given),) = found.items()
    size = next(x.shape[0] for x in feeds if x.ndim and _lone_symbol(x.shape[0]) == symbol)
    assert isinstance(size, Dim)
    for x in feeds:
        if symbol in symbols_of(x.shape[1:]) or (x.ndim and symbol in symbols_of(x.shape[:1]) and x.shape[0] != size):
            raise FeedError(
                f"map: feed of {x.name!r}: the number of scenarios, {size}, is to be the size of axis 0 alone, actual"
                f" {as_declared(x.shape)}",
                source=x.source,
            )
    return size, given


def _lone_symbol(size: object) -> Symbol | None:
    """The symbol that a size is, if it is nothing else."""
    match size:
        case Dim(terms=(((Symbol() as symbol,), 1),)):
            return symbol
    return None


class Mapping:
    """The runs of an executable over scenarios; it keeps the programs of leaves.

    A leaf of 0 rows is the program of one scenario as it is declared, without an axis.
    """

    __slots__ = ("_known", "_programs", "_rows")

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._known: Recent[LeafProgram] = Recent(KEPT_LEAVES)
        self._rows: Recent[tuple[int]] = Recent(KEPT_LEAVES)  # of leaves, by what is fed

    def run(
        self,
        values: Sequence[Any],
        reduce: Reduce | None,
        block: int | None,
        executor: Any,
        progress: bool | Told | None,
        out: Any,
    ) -> Any:
        """The results of all scenarios, in the nest of the fetches."""
        programs, fetched = self._programs, self._programs.fetched
        store = programs.compiler.store
        store.check_open()
        _check(reduce, block, out)
        if not fetched.tensors or -1 in fetched.places:
            raise FetchError("map: expected tensors, actual ops: scenarios have no order in which ops could write")
        given = arranged(programs, values)
        by_row = self._by_row(given, reduce)
        leaf, rest = self._leaves(given, by_row if reduce is not None else None)
        if executor is not None and not leaf.is_file:
            raise StaticGradError("map: executor: on this machine programs have no files that workers could load")
        rows = max(leaf.rows, 1)
        outs = None if reduce is not None else self._outs(given, leaf, out)
        with self._drawing(leaf, -(-given.count // rows)) as random:
            entries = leaf.entry(store), None if rest is None else rest.entry(store)
            reduces = reduce is not None
            weighs = tuple(reduce == "mean" and not flag for flag in by_row)
            work = ScenarioWork(*entries, rows, leaf.rows == 0, given.shared, reduces, weighs, random)
            run = _MappedRun(work, given, outs, executor, programs.options.workers, leaf.seconds)
            found = run.results(block, progress)
        if reduces:
            divisor = given.count if reduce == "mean" else None
            found = [_as_result(x, total, divisor) for x, total in zip(fetched.tensors, found, strict=True)]
        results = fetched.spread(found, None if out is None else self._flat(out))
        if out is None:
            return results[0] if fetched.is_single else fetched.pack(results)
        made = [x if y is None else y for x, y in zip(results, self._flat(out), strict=True)]
        return filled(fetched.nest, out, iter(made))

    def _flat(self, out: Any) -> list[Any]:
        """The arrays of ``out``, one for each leaf of the fetches."""
        fetched = self._programs.fetched
        return [out] if fetched.is_single else flatten_like(fetched.nest, out, "out")

    def _by_row(self, given: Arrangement, reduce: Reduce | None) -> tuple[bool, ...]:
        """For each result whether it has an axis of scenarios."""
        tensors, size = self._programs.fetched.tensors, given.size
        if size is None:
            return (True,) * len(tensors)
        symbol, found = _lone_symbol(size), []
        for y in tensors:
            by_row = y.ndim > 0 and y.shape[0] == size
            if any(other == symbol for other in symbols_of(y.shape[int(by_row) :])):
                raise FetchError(
                    f"map: {y.name!r}: the number of scenarios, {size}, is to be the size of axis 0 alone, actual"
                    f" {as_declared(y.shape)}",
                    source=y.source,
                )
            if not by_row and reduce is None:
                raise FetchError(
                    f"map: {y.name!r} {as_declared(y.shape)} has no axis of scenarios, of size {size}: it is reduced"
                    " over those that the program is called with. Say how to go on: reduce='sum' or reduce='mean'",
                    source=y.source,
                )
            found.append(by_row)
        return tuple(found)

    def _outs(self, given: Arrangement, leaf: LeafProgram, out: Any) -> list[Array]:
        """Memory for the results of all scenarios: what the caller gives, or new."""
        fetched, axis = self._programs.fetched, int(leaf.rows > 0)
        types = [
            TensorType((given.count, *result.type.shape[axis:]), result.type.dtype)
            for result in leaf.code.file.interface.entries[0].results
        ]
        lying: list[Array | None] = [None] * len(types)
        if out is not None:
            fed = [one.array for one in given.rows if one is not None and one.array is not None]
            fed += [array for array in given.shared if array is not None]
            lying = fetched.out_by_tensor(fetched.out_arrays(self._flat(out)), types, fed)
        return [np.empty(t.shape, t.dtype) if array is None else array for t, array in zip(types, lying, strict=True)]

    @contextmanager
    def _drawing(self, leaf: LeafProgram, leaves: int) -> Iterator[tuple[int, int] | None]:
        """The seed, and the number of the run as which the first leaf draws; the session's next run comes after the
        last one. None of a program that does not draw."""
        if not leaf.draws:
            yield None
            return
        store = self._programs.compiler.store
        number = store.take_run_number(leaves)
        try:
            yield store.seed, number
        except BaseException:
            store.return_run_number(number, leaves)
            raise

    # -- programs -----------------------------------------------------------------------------------------------------

    def _leaves(self, given: Arrangement, summed: Summed) -> tuple[LeafProgram, LeafProgram | None]:
        """The program of a leaf, and that of a last one with fewer scenarios where these cannot be filled up."""
        flags = tuple(one is not None for one in given.rows)
        key = given.is_single, given.of_one, given.given, flags, summed
        once = self._programs.compiler.once

        def leaf(rows: int) -> LeafProgram:
            return once(self._known, (key, rows), lambda: self._compiled(given, key, rows, summed))

        (rows,) = once(self._rows, key, lambda: self._rows.put(key, (self._sized(given, key, summed),)))
        left = given.count % max(rows, 1)
        return leaf(rows), leaf(left) if left and summed is not None else None

    def _sized(self, given: Arrangement, key: object, summed: Summed) -> int:
        """The number of scenarios of a leaf."""
        if given.given is not None:
            return given.given
        try:
            source, region = self._source(given, FIRST_ROWS, summed)
        except GraphError as error:
            if not given.is_single:
                raise
            log.tell("compile", log.INFO, f"map: scenario by scenario, as the program does not go over many: {error}")
            return 0
        program = self._programs.compiler.unloaded_of(region, self._options)
        rows = rows_of_leaf(program)
        if rows == FIRST_ROWS:
            self._known.put((key, rows), leaf_program(source, program, rows))
        return rows

    def _compiled(self, given: Arrangement, key: object, rows: int, summed: Summed) -> LeafProgram:
        source, region = self._source(given, rows, summed)
        program = self._programs.compiler.unloaded_of(region, self._options)
        return self._known.put((key, rows), leaf_program(source, program, rows))

    @property
    def _options(self) -> CompileOptions:
        """Those of the executable, for one thread: a leaf is computed by one."""
        return replace(self._programs.options, workers=1, tiers=False)

    def _source(self, given: Arrangement, rows: int, summed: Summed) -> tuple[ExportSource, Region]:
        """The program of a leaf as exports see it, and its region.

        Raises:
            GraphError: the program of one scenario does not go over many.
        """
        programs = self._programs
        compiler, options = programs.compiler, self._options
        tensors, feeds = list(programs.fetched.tensors), list(programs.feeds)
        graph: Graph = Derivation(compiler.store.graph)
        if given.is_single and rows:
            from staticgrad.compiler.autodiff.batching import over_examples

            varying = [x for x, one in zip(feeds, given.rows, strict=True) if one is not None]
            graph, tensors, feeds = over_examples(compiler.store.graph, tensors, feeds, varying, rows)
        if summed is not None and rows:
            with graph, isolated():
                tensors = [_sum(y) if flag else y for y, flag in zip(tensors, summed, strict=True)]
        from staticgrad.compiler.regions.cut import cut

        types = types_of(feeds, given.shapes(rows))
        region = cut(graph, tensors, types, check_numerics=options.check_numerics)
        source = replace(
            exporting.export_source(programs, _unasked, _unasked),
            feeds=tuple(feeds),
            fetches=tensors,
            fetched=[(y, place) for place, y in enumerate(tensors)],
            has_ops=False,
            types=lambda: types,
        )
        return source, region


def _sum(y: Tensor) -> Tensor:
    """The sum over the scenarios of a leaf."""
    dtype = sum_dtype(y.dtype)
    return FUNCTIONS.sum(y if y.dtype == dtype else FUNCTIONS.astype(y, dtype), axis=0)


def _as_result(x: Tensor, total: Array, divisor: int | None) -> Array:
    """A sum, or a mean, as a result: floats in the dtype of the program's, integers in int64, their means in
    float64."""
    value = total if divisor is None else total / divisor
    return np.array(value, None if x.dtype.kind in "biu" else x.dtype)


def _unasked(*_: Any) -> ExportSource:
    raise AssertionError("the program of a leaf is compiled as it is")


def _check(reduce: Any, block: Any, out: Any) -> None:
    """Refuse arguments that say nothing, and the backend that has no machine code."""
    if config.get("BACKEND") == "reference":
        raise StaticGradError("map: the reference backend compiles nothing: there is no program for scenarios")
    if reduce not in REDUCTIONS:
        raise StaticGradError(f"map: reduce: expected None, 'sum' or 'mean', actual {reduce!r}")
    if block is not None and integer(block, "block") < 1:
        raise StaticGradError(f"map: block: expected a number of scenarios, actual {block}")
    if out is not None and reduce is not None:
        raise StaticGradError("map: out: what is reduced comes back in fresh arrays, without out")


class _MappedRun:
    """One run over all scenarios."""

    def __init__(
        self,
        work: ScenarioWork,
        given: Arrangement,
        outs: list[Array] | None,
        executor: Any,
        threads: int,
        seconds: float,
    ) -> None:
        self._work = work
        self._given = given
        self._outs = outs
        self._executor = executor
        self._threads = threads
        self._leaves = -(-given.count // work.rows)
        self._is_short = self._leaves * seconds < WORTH_THREADS
        self._leaf_bytes = work.rows * sum(one.nbytes for one in given.rows if one is not None)
        if outs is not None:
            self._leaf_bytes += work.rows * sum(out[:1].nbytes for out in outs)

    def results(self, block: int | None, progress: bool | Told | None) -> list[Array]:
        """An array for each fetched tensor."""
        tree, outs = TreeSum(), self._outs
        with told(progress, self._given.count) as tell:
            for one, found in self._computed(self._blocks(block)):
                if outs is None:
                    tree.add(found)
                else:
                    for out, part in zip(outs, found, strict=True):
                        if not np.may_share_memory(out, part):
                            out[one.start : one.stop] = part
                tell(one.stop)
        return self._sums(tree.total()) if outs is None else outs

    def _blocks(self, block: int | None) -> range:
        """The first leaf of each block. A block has a power of two of them: it is a subtree of the sum."""
        if block is not None:
            leaves = 1 << (-(-block // self._work.rows) - 1).bit_length()
        else:
            parts = BLOCKS if self._executor is not None else BLOCKS_A_THREAD * self._threads
            most = max(1, min(self._leaves // parts, BLOCK_BYTES // max(self._leaf_bytes, 1)))
            leaves = 1 << most.bit_length() - 1
        return range(0, self._leaves, leaves)

    def _computed(self, firsts: range) -> Iterator[tuple[ScenarioBlock, Sequence[Array]]]:
        """Blocks with their results, in order."""
        rows, count = self._work.rows, self._given.count
        blocks = (ScenarioBlock(first, first * rows, min((first + firsts.step) * rows, count)) for first in firsts)
        if self._executor is None and (self._threads < 2 or self._is_short):
            for block in blocks:
                yield block, self._here(block)
            return
        window = BLOCKS_A_THREAD * self._threads
        content, digest = b"", ""
        if self._executor is not None:
            nbytes = max(1, firsts.step * self._leaf_bytes)
            window = max(window, min(MOST_HANDED_OUT, WINDOW_BYTES // nbytes))
            content = pickle.dumps(self._work, 5)
            digest = hashlib.sha256(content).hexdigest()

        def there(block: ScenarioBlock, whole: bool) -> tuple[Any, ...]:
            sent = content if whole or len(content) <= SMALL or not block.first else None
            return run_block, digest, sent, block.first, self._given.arrays(block)

        yield from Spreader(self._executor, self._here, there, self._threads, window).results(blocks)

    def _here(self, block: ScenarioBlock) -> Sequence[Array]:
        """The results of a block, computed by this thread."""
        outs = None if self._outs is None else [out[block.start : block.stop] for out in self._outs]
        return self._work.run(block.first, self._given.arrays(block), outs)

    def _sums(self, sums: Sequence[Array]) -> list[Array]:
        """The sum of each result."""
        totals = dict(zip((FLOAT, INTEGER), sums, strict=True))
        return [totals[x.dtype][x.begin : x.end].reshape(x.shape) for x in self._work.sums()]
