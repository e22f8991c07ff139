"""The compiler of a session: programs for its graph and its state, by what they compute from which feeds.

Input: fetches with the types of their feeds, or a region that is cut already, and options. Output: runners, which
run on the session's state. They are kept in an LRU cache, by graph version, fetches, feeds with their types, and
options. Sessions, executables and tapes stand on this module and know nothing of each other's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from staticgrad import config
from staticgrad.collection import importing
from staticgrad.graph import Node, Tensor
from staticgrad.runtime.locks import Lock
from staticgrad.runtime.recent import KEPT_PROGRAMS, Recent
from staticgrad.runtime.state import SessionState
from staticgrad.types import TensorType

if TYPE_CHECKING:
    from staticgrad.compiler.memory.problems import Pinned
    from staticgrad.compiler.options import CompileOptions
    from staticgrad.compiler.regions.region import Region
    from staticgrad.runtime.native import NativeRunner
    from staticgrad.runtime.runner import LoadedRunner, Runner

V = TypeVar("V")


class Compiler:
    """Compiles what a session is asked for, one program at a time: ``lock`` is held meanwhile, ``count`` says how many
    there were. Programs run on ``store``, the state of the session."""

    def __init__(self, store: SessionState, *, num_threads: int, check_numerics: bool) -> None:
        self.lock = Lock()
        self.count = 0
        self.store = store
        self._num_threads = num_threads
        self._check_numerics = check_numerics
        self._runners: Recent[Runner] = Recent(KEPT_PROGRAMS)

    def forget(self) -> None:
        """Give up the programs."""
        self._runners.clear()

    def options(self) -> CompileOptions:
        """The session's options, with the switches as they are now."""
        from staticgrad.compiler.options import CompileOptions

        options = CompileOptions.from_environment()
        return replace(options, workers=self._num_threads, check_numerics=self._check_numerics)

    def once(self, known: Recent[V], key: object, make: Callable[[], V]) -> V:
        """The value that is known under ``key``; where there is none, one thread calls ``make``, which enters it."""

        def made() -> V:
            value = known.get(key)  # another thread may have been quicker
            return make() if value is None else value

        value = known.get(key)
        return self.lock.exclusive(made) if value is None else value

    def runner(
        self,
        leaves: Sequence[Tensor | Node],
        tensors: Sequence[Tensor],
        feeds: Mapping[Tensor, TensorType],
        options: CompileOptions,
    ) -> Runner:
        """The program that computes ``tensors`` (and the ops among ``leaves``) from feeds of these types. What follows
        from variables alone is kept from call to call."""
        ops = tuple({id(leaf): leaf for leaf in leaves if isinstance(leaf, Node)}.values())
        key = (
            self.store.graph.version,
            tuple(map(id, tensors)),
            tuple(map(id, ops)),
            tuple((id(x), t) for x, t in feeds.items()),
            repr(options),  # a budget of 1 byte is not 1.0, the whole
        )

        def compiled() -> Runner:
            region = self._region([*tensors, *ops], feeds, options)
            return self._runners.put(key, self._runner(region, replace(options, prepares=True)))

        return self.once(self._runners, key, compiled)

    def timed_runner(
        self, fetches: Sequence[Tensor | Node], feeds: Mapping[Tensor, TensorType], options: CompileOptions
    ) -> NativeRunner:
        """The program that computes ``fetches`` and notes the time after each step, on a copy of the state."""
        from staticgrad.compiler.binary import binary
        from staticgrad.compiler.regions.region import gradients_read
        from staticgrad.runtime.gradients import without
        from staticgrad.runtime.native import NativeRunner

        region = self._region(fetches, feeds, options)
        store = self.store.copy()
        absent = [key for key in gradients_read(region) if not store.has_gradient(key)]
        region = without(region, absent) if absent else region
        timed = replace(self._tuned(region, options), timed=True, prepares=True)
        return NativeRunner(binary(region, timed), store)

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
        from staticgrad.runtime.gradients import GradientReader

        reader = GradientReader(region, self.store, load)
        reader.current()
        return reader

    def load(self, region: Region, options: CompileOptions, pinned: Sequence[Pinned] = ()) -> LoadedRunner:
        """Compile a region for the session's state; what is ``pinned`` lies in its arena, which is then a tape's."""
        self.store.check_open()

        def loaded() -> LoadedRunner:
            if config.get("BACKEND") == "reference":
                from staticgrad.runtime.reference import ReferenceRunner

                return ReferenceRunner(region, self.store)
            with importing():
                from staticgrad.compiler.binary import binary
                from staticgrad.runtime.native import NativeRunner

            return NativeRunner(binary(region, self._tuned(region, options), pinned), self.store)

        def counted() -> LoadedRunner:
            runner = loaded()
            self.count += 1
            return runner

        return self.lock.exclusive(counted)

    def _tuned(self, region: Region, options: CompileOptions) -> CompileOptions:
        """The options, with what was measured for the products of a region if that is wanted."""
        if not options.autotune:
            return options
        from staticgrad.runtime.autotune import tuned

        found = tuned(region, replace(options, autotune=False, prepares=False), self.store)
        return replace(found, prepares=options.prepares)
