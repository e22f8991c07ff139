"""The compiler of a session: programs for its graph and its state, by what they compute from which feeds.

Input: fetches with the types of their feeds, or a region that is cut already, and options. Output: runners, which
run on the session's state. They are kept in an LRU cache, by graph version, fetches, feeds with their types, and
options. Sessions, executables and tapes stand on this module and know nothing of each other's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Generic, Literal, TypeVar
from weakref import WeakSet

from staticgrad.base import config
from staticgrad.base.collection import importing
from staticgrad.base.depth import all_levels
from staticgrad.base.errors import StaticGradError
from staticgrad.base.extents import open_sizes, range_of
from staticgrad.base.frozen import frozen
from staticgrad.base.recent import KEPT_PROGRAMS, Recent
from staticgrad.base.types import Bindings, Precision, Symbol, TensorType, bind, symbols_of
from staticgrad.base.world import OutOfStepError
from staticgrad.graph.graph import Node, Tensor
from staticgrad.runtime.parts.locks import Lock
from staticgrad.runtime.running.state import SessionState

if TYPE_CHECKING:
    from staticgrad.compiler.binary import Binary
    from staticgrad.compiler.native.tiers import TieredCode
    from staticgrad.compiler.options import CompileOptions
    from staticgrad.compiler.placement.problems import Pinned
    from staticgrad.compiler.program.program import Program
    from staticgrad.compiler.regions.ranges import RangeError, Ranges
    from staticgrad.compiler.regions.region import Region
    from staticgrad.runtime.running.native import NativeRunner
    from staticgrad.runtime.running.runner import LoadedRunner, Runner

V = TypeVar("V")
MOST_CUTS = 4  # of ranges for one call; then sizes become fixed


@frozen(eq=False)
class Chosen:
    """A runner for the sizes of a call, and, if its program serves others as well, what runs that at any of them.

    Attributes:
        ranges: of a program that serves others, the ranges of its open sizes.
        refused: why sizes have to be known to the program, in the order in which that was found.
    """

    runner: Runner
    served: Runner | None = None
    ranges: Ranges = field(default_factory=dict)
    refused: tuple[RangeError, ...] = ()


@frozen(eq=False)
class Served(Generic[V]):
    """A value that serves ranges of sizes, and the symbols that are its open size number i."""

    value: V
    groups: tuple[tuple[Symbol, ...], ...]


@frozen(eq=False)
class Serving(Generic[V]):
    """The value that serves the ranges of the sizes of a call, if any does, and the open sizes of the call.

    Attributes:
        ranges: the ranges of open sizes that are served.
        refused: why sizes have to be known, in the order in which that was found.
    """

    served: Served[V] | None
    numbers: tuple[int, ...] = ()
    ranges: Ranges = field(default_factory=dict)
    refused: tuple[RangeError, ...] = ()


class Compiler:
    """Compiles what a session is asked for, one program at a time: ``lock`` is held meanwhile, ``count`` says how many
    there were. Programs run on ``store``, the state of the session."""

    def __init__(
        self,
        store: SessionState,
        *,
        num_threads: int,
        check_numerics: bool,
        sizes: Literal["ranges", "exact"] = "ranges",
        precision: Precision = "highest",
    ) -> None:
        self.lock = Lock()
        self.count = 0
        self.store = store
        self._num_threads = num_threads
        self._check_numerics = check_numerics
        self._sizes = sizes
        self._precision = precision
        self._runners: Recent[Runner] = Recent(KEPT_PROGRAMS)
        # By the ranges of sizes, and the numbers of those that are known: a program, or the sizes that it needs known.
        self._served: Recent[Served[Runner] | RangeError] = Recent(KEPT_PROGRAMS)
        self._tiers: WeakSet[TieredCode] = WeakSet()  # the code of those that have quick code at first

    def forget(self) -> None:
        """Give up the programs, and what is still to be made of them."""
        self._runners.clear()
        self._served.clear()
        if self._tiers:
            from staticgrad.compiler.native.tiers import give_up

            give_up(list(self._tiers))

    def options(self) -> CompileOptions:
        """The session's options, with the switches as they are now. Quick code may run at first."""
        from staticgrad.compiler.options import CompileOptions

        options = CompileOptions.from_environment()
        options = replace(options, workers=self._num_threads, check_numerics=self._check_numerics, sizes=self._sizes)
        return replace(options, precision=self._precision, tiers=True)

    def once(self, known: Recent[V], key: object, make: Callable[[], V]) -> V:
        """The value that is known under ``key``; where there is none, one thread calls ``make``, which enters it."""

        def made() -> V:
            value = known.get(key)  # another thread may have been quicker
            if value is not None:
                return value
            with all_levels():
                return make()

        value = known.get(key)
        return self.lock.exclusive(made) if value is None else value

    def runner(
        self,
        leaves: Sequence[Tensor | Node],
        tensors: Sequence[Tensor],
        feeds: Mapping[Tensor, TensorType],
        options: CompileOptions,
        fixed: frozenset[Symbol] = frozenset(),
    ) -> Chosen:
        """The program that computes ``tensors`` (and the ops among ``leaves``) from feeds of these types. What follows
        from variables alone is kept from call to call. It serves the ranges in which open sizes lie, but for those that
        are ``fixed``, if that can be."""
        ops = tuple({id(leaf): leaf for leaf in leaves if isinstance(leaf, Node)}.values())
        fetches: list[Tensor | Node] = [*tensors, *ops]
        asked = (options, type(options.memory_budget))  # a budget of 1 byte is not 1.0, the whole
        key = (self.store.graph.version, tuple(map(id, tensors)), tuple(map(id, ops)), asked)
        serve = functools.partial(self._serve, fetches, feeds, options)
        serving = self.serving(self._served, key, feeds, options, serve, fixed)
        if (served := serving.served) is not None:
            return Chosen(served.value.at(serving.numbers), served.value, serving.ranges, serving.refused)
        exact = (*key, tuple((id(x), t) for x, t in feeds.items()))

        def compiled() -> Runner:
            region = self._region(fetches, feeds, options)
            return self._runners.put(exact, self._runner(region, replace(options, prepares=True)))

        return Chosen(self.once(self._runners, exact, compiled), refused=serving.refused)

    # -- ranges of sizes ----------------------------------------------------------------------------------------------

    def serving(
        self,
        known: Recent[Served[V] | RangeError],
        key: tuple[object, ...],
        feeds: Mapping[Tensor, TensorType],
        options: CompileOptions,
        serve: Callable[[Bindings, Ranges], Served[V]],
        fixed: frozenset[Symbol] = frozenset(),
    ) -> Serving[V]:
        """The value that serves the ranges of the sizes of a call; none where programs have to be compiled for these
        sizes alone.

        Ranges that cannot be served are cut, or their sizes become fixed, one after the other, always in the same
        order: what serves a call follows from its sizes, whatever was called before.

        Args:
            known: what was made under ``key``, by ranges.
            serve: makes it for ranges of sizes, which may be of one size, or raises ``RangeError``.
        """
        by_numbers = options.autotune or options.stepwise or config.get("BACKEND") == "reference"
        exact = options.sizes == "exact" or by_numbers
        if exact or all(x.type.static for x in feeds):
            return Serving(None)
        bindings = self._bindings(feeds)
        if bindings is None:
            return Serving(None)
        refused: tuple[RangeError, ...] = ()
        given, cuts = tuple((id(x), t.dtype) for x, t in feeds.items()), 0
        ranges: Ranges = {s: (n, n) if s in fixed else range_of(n, s.ends) for s, n in bindings.items()}
        while any(low < high for low, high in ranges.values()):
            place = (*key, given, tuple(ranges.items()))
            found = self.once(known, place, functools.partial(_attempt, known, place, serve, bindings, ranges))
            from staticgrad.compiler.regions.ranges import common, numbers_of, parts_of

            if isinstance(found, Served):
                numbers = numbers_of(found.groups, bindings)
                if numbers is None:
                    return Serving(None, refused=refused)
                return Serving(found, numbers, common(ranges, found.groups), refused)
            if found.unequal and all(bindings[a] == bindings[b] for a, b in found.unequal):
                key = (*key, found.unequal)  # in this call they are equal
            elif found.cuts and cuts < MOST_CUTS:
                ranges, cuts = parts_of(ranges, found.cuts, bindings), cuts + 1
            else:
                ranges = {s: (n, n) if s in found.symbols else ranges[s] for s, n in bindings.items()}
                refused = (*refused, found)
        return Serving(None, refused=refused)

    def _bindings(self, feeds: Mapping[Tensor, TensorType]) -> dict[Symbol, int] | None:
        """The open sizes of a call, with the ranges that any declaration gives them; None where they contradict what is
        declared, which is said elsewhere."""
        from staticgrad.compiler.regions.cut import bind_feeds

        try:
            bindings = bind_feeds(self.store.graph, feeds)
        except StaticGradError:
            return None
        ends = {symbol: symbol for x in feeds for symbol in symbols_of(x.shape) if symbol.ends}
        return {ends.get(symbol, symbol): number for symbol, number in bindings.items()}

    def _serve(
        self,
        fetches: Sequence[Tensor | Node],
        feeds: Mapping[Tensor, TensorType],
        options: CompileOptions,
        bindings: Bindings,
        ranges: Ranges,
    ) -> Served[Runner]:
        """The program for the ranges of sizes; a ``RangeError`` says which of them it needs known."""
        with importing():
            from staticgrad.compiler.regions.ranges import cut_for_ranges, naming
        ranged = cut_for_ranges(
            self.store.graph, fetches, feeds, bindings, ranges, check_numerics=options.check_numerics
        )
        with naming(ranged.groups):
            return Served(self._runner(ranged.region, replace(options, prepares=True)), ranged.groups)

    def timed_runner(
        self,
        fetches: Sequence[Tensor | Node],
        feeds: Mapping[Tensor, TensorType],
        options: CompileOptions,
        ranges: Ranges | None = None,
    ) -> NativeRunner:
        """The program that computes ``fetches`` and notes the time after each step, on a copy of the state; if there
        are ``ranges`` of open sizes for these, at those of the feeds."""
        from staticgrad.compiler.binary import binary
        from staticgrad.compiler.regions.region import gradients_read
        from staticgrad.runtime.running.gradients import without
        from staticgrad.runtime.running.native import NativeRunner

        region, numbers = self._region(fetches, feeds, options), tuple[int, ...]()
        if ranges:
            from staticgrad.compiler.regions.ranges import cut_for_ranges, numbers_of

            bindings = self._bindings(feeds) or {}
            ranged = cut_for_ranges(
                self.store.graph, fetches, feeds, bindings, ranges, check_numerics=options.check_numerics
            )
            region, numbers = ranged.region, numbers_of(ranged.groups, bindings) or ()
        store = self.store.copy()
        absent = [key for key in gradients_read(region) if not store.has_gradient(key)]
        region = without(region, absent) if absent else region
        timed = replace(self._tuned(region, options), timed=True, prepares=True, tiers=False)
        runner = NativeRunner(binary(region, timed), store)
        return runner.at(numbers) if numbers else runner

    def independent(
        self, fetches: Sequence[Tensor | Node], feeds: Mapping[Tensor, TensorType], options: CompileOptions
    ) -> Binary:
        """The program that computes ``fetches`` from feeds of these types, keeps nothing from call to call and has no
        other threads."""
        self.store.check_open()
        return self._counted(lambda: self._alone(self._region(fetches, feeds, options), options))

    def independent_of(self, region: Region, options: CompileOptions) -> Binary:
        """``independent`` for a region."""
        self.store.check_open()
        return self._counted(lambda: self._alone(region, options))

    def unloaded(
        self, fetches: Sequence[Tensor | Node], feeds: Mapping[Tensor, TensorType], options: CompileOptions
    ) -> Program:
        """The program of ``independent``, compiled and not loaded: for the target and threads of the options, which may
        be of any machine."""
        self.store.check_open()
        return self.unloaded_of(self._region(fetches, feeds, options), options)

    def unloaded_of(self, region: Region, options: CompileOptions) -> Program:
        """``unloaded`` for a region."""
        with importing():
            from staticgrad.compiler.pipeline import compile_region
        alone = replace(options, sizes="exact", prepares=False, autotune=False, stepwise=False)
        return self._counted(lambda: compile_region(region, alone))

    def _alone(self, region: Region, options: CompileOptions) -> Binary:
        with importing():
            from staticgrad.compiler.binary import binary
        alone = replace(self._tuned(region, options), sizes="exact", prepares=False, workers=1, tiers=False)
        return binary(region, alone)

    def region(
        self, fetches: Sequence[Tensor | Node], feeds: Mapping[Tensor, TensorType], options: CompileOptions
    ) -> Region:
        """The region of what computes ``fetches`` from feeds of these types, before any pass."""
        self.store.check_open()
        return self._region(fetches, feeds, options)

    def open_region(
        self,
        fetches: Sequence[Tensor | Node],
        feeds: Sequence[Tensor],
        options: CompileOptions,
        bindings: Bindings,
        ranges: Ranges,
    ) -> Region:
        """The region of what computes ``fetches``, before any pass, for ranges of the sizes of feeds.

        Raises:
            RangeError: a size has to be known.
        """
        self.store.check_open()
        with importing():
            from staticgrad.compiler.regions.ranges import cut_for_ranges
        types = {x: TensorType(bind(x.shape, bindings), x.dtype) for x in feeds}
        numerics = options.check_numerics
        return cut_for_ranges(self.store.graph, fetches, types, bindings, ranges, check_numerics=numerics).region

    def _region(
        self, fetches: Sequence[Tensor | Node], feeds: Mapping[Tensor, TensorType], options: CompileOptions
    ) -> Region:
        with importing():
            from staticgrad.compiler.regions.cut import cut
        return cut(self.store.graph, fetches, feeds, check_numerics=options.check_numerics)

    def _runner(self, region: Region, options: CompileOptions) -> Runner:
        from staticgrad.compiler.regions.region import gradients_read

        def load(region: Region) -> Runner:
            return self.load(region, options)

        if not gradients_read(region):
            return load(region)
        from staticgrad.runtime.running.gradients import GradientReader

        reader = GradientReader(region, self.store, load)
        reader.current()
        return reader

    def load(self, region: Region, options: CompileOptions, pinned: Sequence[Pinned] = ()) -> LoadedRunner:
        """Compile a region for the session's state; what is ``pinned`` lies in its arena, which is then a tape's."""
        self.store.check_open()

        def loaded() -> LoadedRunner:
            if config.get("BACKEND") == "reference":
                from staticgrad.runtime.running.reference import ReferenceRunner

                return ReferenceRunner(region, self.store)
            with importing():
                from staticgrad.compiler.binary import binary
                from staticgrad.runtime.running.native import NativeRunner

            tuned = replace(self._tuned(region, options), sizes="exact")  # the region says by now for which
            made = binary(region, tuned, pinned)
            if made.tiers is not None:
                self._tiers.add(made.tiers)
            return NativeRunner(made, self.store)

        return self._counted(loaded)

    def _counted(self, make: Callable[[], V]) -> V:
        """The result of ``make``, called by one thread at a time; only one that is made counts."""

        def counted() -> V:
            made = make()
            self.count += 1
            return made

        return self.lock.exclusive(counted)

    def _tuned(self, region: Region, options: CompileOptions) -> CompileOptions:
        """The options, with what was measured for the products of a region if that is wanted."""
        if not options.autotune or open_sizes(tuple([x.type.shape for x in region.feeds])):
            return options
        from staticgrad.runtime.session.autotune import tuned

        found = tuned(region, replace(options, autotune=False, prepares=False, tiers=False), self.store)
        return replace(found, prepares=options.prepares)


def _attempt(
    known: Recent[Served[V] | RangeError],
    place: object,
    serve: Callable[[Bindings, Ranges], Served[V]],
    bindings: Bindings,
    ranges: Ranges,
) -> Served[V] | RangeError:
    """Enter under ``place`` what serves ranges of sizes, or which of them it needs known. All of them where the graph
    refuses sizes: what is wrong is said by numbers."""
    with importing():
        from staticgrad.compiler.regions.ranges import RangeError
    found: Served[V] | RangeError
    try:
        found = serve(bindings, ranges)
    except RangeError as error:
        found = error
    except OutOfStepError:
        raise
    except StaticGradError as error:
        found = RangeError(str(error), frozenset(bindings))
    return known.put(place, found)
