"""The compiler of a session: programs for its graph and its state, by what they compute from which feeds.

Comes in: fetches with the types of their feeds, or a region that is cut already. Goes out: runners, which run on the
session's state. They are kept, the least recently used given up first, by graph version, fetches, feeds with their
types, and options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from staticgrad import config
from staticgrad.collection import importing
from staticgrad.graph import Node, Tensor
from staticgrad.runtime.locks import Lock
from staticgrad.runtime.recent import KEPT_PROGRAMS, Recent
from staticgrad.runtime.state import SessionState
from staticgrad.types import TensorType

if TYPE_CHECKING:
    from staticgrad.compiler.memory.problems import Held
    from staticgrad.compiler.options import Options
    from staticgrad.compiler.program import Program
    from staticgrad.compiler.regions.region import Region
    from staticgrad.runtime.native import NativeRunner
    from staticgrad.runtime.runner import Runner


class Compiler:
    """Compiles what a session is asked for, one program at a time: ``lock`` is held meanwhile, ``count`` says how many
    there were."""

    def __init__(self, store: SessionState, *, num_threads: int, check_numerics: bool) -> None:
        self.lock = Lock()
        self.count = 0
        self._store = store
        self._num_threads = num_threads
        self._check_numerics = check_numerics
        self._runners: Recent[Runner] = Recent(KEPT_PROGRAMS)

    def forget(self) -> None:
        """Give up the programs."""
        self._runners.clear()

    def runner(
        self,
        leaves: Sequence[Tensor | Node],
        tensors: Sequence[Tensor],
        feeds: Mapping[Tensor, TensorType],
        planning_seconds: float = 0.0,
        memory_budget: int | float | None = None,
        autotune: bool = False,
    ) -> Runner:
        """The program that computes ``tensors`` (and the ops among ``leaves``) from feeds of these types."""
        ops = tuple({id(leaf): leaf for leaf in leaves if isinstance(leaf, Node)}.values())
        key = (
            self._store.graph.version,
            tuple(map(id, tensors)),
            tuple(map(id, ops)),
            tuple((id(x), t) for x, t in feeds.items()),
            planning_seconds,
            repr(memory_budget),  # 1 byte is not 1.0, the whole
            autotune,
        )
        runner = self._runners.get(key)
        if runner is None:

            def compiled() -> Runner:
                known = self._runners.get(key)  # another thread may have been quicker
                if known is not None:
                    return known
                region = self._region([*tensors, *ops], feeds)
                return self._runners.put(key, self._runner(region, planning_seconds, memory_budget, autotune))

            runner = self.lock.exclusive(compiled)
        return runner

    def timed_runner(
        self,
        fetches: Sequence[Tensor | Node],
        feeds: Mapping[Tensor, TensorType],
        planning_seconds: float = 0.0,
        memory_budget: int | float | None = None,
        autotune: bool = False,
    ) -> NativeRunner:
        """The program that computes ``fetches`` and notes the time after each step, on a copy of the state."""
        from staticgrad.compiler.binary import binary
        from staticgrad.compiler.regions.region import gradients_read
        from staticgrad.runtime.gradients import without
        from staticgrad.runtime.native import NativeRunner

        region = self._region(fetches, feeds)
        store = self._store.copy()
        absent = [key for key in gradients_read(region) if not store.has_gradient(key)]
        region = without(region, absent) if absent else region
        options = self._tuned(region, self._options(planning_seconds, memory_budget), autotune)
        return NativeRunner(binary(region, replace(options, timed=True, prepares=True)), store)

    def _region(self, fetches: Sequence[Tensor | Node], feeds: Mapping[Tensor, TensorType]) -> Region:
        with importing():
            from staticgrad.compiler.regions.cut import cut
        return cut(self._store.graph, fetches, feeds, check_numerics=self._check_numerics)

    def _runner(
        self, region: Region, planning_seconds: float, memory_budget: int | float | None, autotune: bool
    ) -> Runner:
        from staticgrad.compiler.regions.region import gradients_read

        def load(region: Region) -> Runner:
            return self.load(region, planning_seconds, memory_budget, autotune=autotune, prepares=True)

        if not gradients_read(region):
            return load(region)
        from staticgrad.runtime.gradients import GradientReader

        reader = GradientReader(region, self._store, load)
        reader.current()
        return reader

    def load(
        self,
        region: Region,
        planning_seconds: float = 0.0,
        memory_budget: int | float | None = None,
        held: Sequence[Held] = (),
        *,
        autotune: bool = False,
        prepares: bool = False,
    ) -> Runner:
        """Compile a region for the session's state; ``held`` lies in its arena, which is then a tape's. With
        ``prepares`` what follows from variables alone is kept from call to call."""
        self._store.check_open()

        def loaded() -> Runner:
            if config.get("BACKEND") == "reference":
                from staticgrad.runtime.reference import ReferenceRunner

                return ReferenceRunner(region, self._store)
            with importing():
                from staticgrad.compiler.binary import binary
                from staticgrad.runtime.native import NativeRunner

            options = self._tuned(region, self._options(planning_seconds, memory_budget), autotune)
            return NativeRunner(binary(region, replace(options, prepares=prepares), held), self._store)

        def counted() -> Runner:
            runner = loaded()
            self.count += 1
            return runner

        return self.lock.exclusive(counted)

    def program(
        self,
        region: Region,
        planning_seconds: float = 0.0,
        memory_budget: int | float | None = None,
        held: Sequence[Held] = (),
    ) -> Program:
        """Compile a region with the session's options, without loading it."""
        from staticgrad.compiler.pipeline import compile_region

        return compile_region(region, self._options(planning_seconds, memory_budget), held)

    def _tuned(self, region: Region, options: Options, autotune: bool) -> Options:
        """The options, with what was measured for the products of a region if that is wanted."""
        if not autotune:
            return options
        from staticgrad.runtime.autotune import tuned

        return tuned(region, options, self._store)

    def _options(self, planning_seconds: float, memory_budget: int | float | None) -> Options:
        from staticgrad.compiler.options import Options

        return Options.from_environment(
            planning_seconds=planning_seconds, memory_budget=memory_budget, workers=self._num_threads
        )
