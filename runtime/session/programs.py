"""The programs of an executable, by the shapes of its feeds.

Input: what is fetched from which feeds with which options, and the compiler of a session. Output: ``Programs``, which
asks the compiler for another one for each new combination of shapes, and knows the latest that was called.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from staticgrad.base import log, phases
from staticgrad.base.errors import GraphError, StaticGradError
from staticgrad.base.frozen import frozen
from staticgrad.base.recent import KEPT_PROGRAMS
from staticgrad.base.types import Symbol, TensorType
from staticgrad.graph.graph import Tensor
from staticgrad.graph.warned import warn_of_sizes
from staticgrad.runtime.running.binding import bind_sizes, types_of
from staticgrad.runtime.session.compiler import Chosen, Compiler
from staticgrad.runtime.session.fetched import Fetched

if TYPE_CHECKING:
    from staticgrad.compiler.native.tiers import TieredCode
    from staticgrad.compiler.options import CompileOptions
    from staticgrad.runtime.measured.setup import SetupReport
    from staticgrad.runtime.running.entries import FastEntry
    from staticgrad.runtime.running.native import NativeRunner
    from staticgrad.runtime.running.runner import Runner

Shapes = tuple[tuple[int, ...], ...]
ALL_ELSE = "all else"  # the phase of what no other one counts
MANY_SIZES = 5  # that have programs of their own, though they are open: from then on it is warned of


@frozen(eq=False)
class Way:
    """The way in which an executable is called for feeds of some types.

    Attributes:
        function: the fastest function that does it.
        point: where one function serves several types, lets it take these; it gives False while that is in use.
        fast: the function's memory, where it serves these types alone.
    """

    function: Callable[..., Any]
    point: Callable[[], bool] | None = None
    fast: FastEntry | None = None


@frozen(eq=False)
class SizedProgram:
    """A program for feeds of some shapes, how the compiler chose it, and how the executable is called then."""

    shapes: Shapes
    runner: Runner
    chosen: Chosen
    way: Way


class Programs:
    """The programs of one executable. ``latest`` is the one of the latest call, or None before there was one; ``fixed``
    are sizes that were open when declared and that were given as numbers when it was compiled."""

    __slots__ = (
        "_exact", "_found", "_phases", "by_shapes", "compiler", "feeds", "fetched", "fixed", "latest", "options",
    )  # fmt: skip

    def __init__(
        self, compiler: Compiler, fetched: Fetched, feeds: tuple[Tensor, ...], options: CompileOptions
    ) -> None:
        self.compiler = compiler
        self.fetched = fetched
        self.feeds = feeds
        self.options = options
        self.fixed: frozenset[Symbol] = frozenset()
        self.by_shapes: dict[Shapes, SizedProgram] = {}
        self.latest: SizedProgram | None = None
        self._phases: dict[str, float] = {}
        self._found = Counter[str]()  # programs that were compiled, found in memory and on disk, and what phases count
        self._exact: dict[Shapes, None] | None = {}  # shapes whose sizes had to be known; None once that was warned of

    def compiled(self, shapes: Shapes, enter: Callable[[Chosen, Sequence[TensorType]], Way]) -> SizedProgram:
        """The program for these shapes, compiled now. ``enter`` makes the way in which the executable is called, of the
        program and the types of the feeds.

        Raises:
            FeedError: two feeds disagree about a shared size.
        """
        bind_sizes(self.feeds, shapes)
        return self.compiler.lock.exclusive(self._compile, shapes, enter)

    def _compile(self, shapes: Shapes, enter: Callable[[Chosen, Sequence[TensorType]], Way]) -> SizedProgram:
        chosen = self._noted(shapes)
        if len(self.by_shapes) >= KEPT_PROGRAMS:
            self.by_shapes.pop(next(iter(self.by_shapes)), None)
        self._warn_of_sizes(chosen, shapes)
        way = enter(chosen, tuple(types_of(self.feeds, shapes).values()))
        program = self.by_shapes[shapes] = SizedProgram(shapes, chosen.runner, chosen, way)
        return program

    def _noted(self, shapes: Shapes) -> Chosen:
        """``choose``, with a note of what that took."""
        compiled, begun = self.compiler.count, time.perf_counter()
        with phases.watched() as seconds, phases.counted() as counts:
            chosen = self.choose(shapes)
        seconds[ALL_ELSE] = time.perf_counter() - begun - sum(seconds.values())
        for name, spent in seconds.items():
            self._phases[name] = self._phases.get(name, 0.0) + spent
        self._found.update(counts)
        native = native_of(chosen.runner)
        if self.compiler.count == compiled:
            self._found["memory"] += 1
        elif native is not None:
            self._found["disk" if native.was_kept else "compiled"] += 1
            if native.was_kept:  # of what is compiled the compiler tells
                of = ", ".join(x.name for x in self.feeds) or "no feeds"
                log.tell("compile", log.INFO, f"program of {of}: found on disk, {sum(seconds.values()):.3f} s")
        return chosen

    def choose(self, shapes: Shapes) -> Chosen:
        """The runner for feeds of these shapes, which is compiled if the session has none."""
        fetched, types = self.fetched, types_of(self.feeds, shapes)
        return self.compiler.runner(fetched.leaves, fetched.tensors, types, self.options, self.fixed)

    def _warn_of_sizes(self, chosen: Chosen, shapes: Shapes) -> None:
        """Warn once where sizes go on needing programs of their own."""
        if not chosen.refused or self._exact is None:
            return
        self._exact[shapes] = None
        if len(self._exact) >= MANY_SIZES:
            warn_of_sizes(self.feeds, chosen.refused, list(self._exact))
            self._exact = None

    # -- the latest program -------------------------------------------------------------------------------------------

    @property
    def latest_shapes(self) -> Shapes | None:
        """The shapes of the feeds of the latest program; None before there was one."""
        return None if self.latest is None else self.latest.shapes

    def latest_types(self, caller: str) -> dict[Tensor, TensorType]:
        """The types of the feeds of the latest program; before there was one those that are declared.

        Raises:
            GraphError: these have open sizes; ``caller`` is named.
        """
        if self.latest is not None:
            return types_of(self.feeds, self.latest.shapes)
        if all(x.type.static for x in self.feeds):
            return {x: x.type for x in self.feeds}
        raise GraphError(
            f"{caller}: the sizes of the feeds are open and there was no call yet: say them when you compile, as in"
            " sess.compile(fetches, {x: (100,)})"
        )

    def native(self) -> NativeRunner:
        """The runner of the latest program in machine code.

        Raises:
            StaticGradError: there was no program yet, or it is interpreted.
        """
        if self.latest is None:
            raise StaticGradError("nothing is compiled yet: the feeds of the first call bind the sizes")
        native = _current_native(self.latest)
        if native is None:
            raise StaticGradError("the reference backend compiles nothing: no plan, no costs, no code")
        return native

    @property
    def bound(self) -> str:
        """The open sizes of the feeds that the latest program is for, and why not for more of them: ``batch from 33 to
        64, steps = 10 (the number of steps is needed)``."""
        if self.latest is None:
            return ""
        chosen, bindings = self.latest.chosen, bind_sizes(self.feeds, self.latest.shapes)
        why = {symbol: error for error in chosen.refused for symbol in error.symbols}
        said = []
        for symbol, number in bindings.items():
            if symbol in chosen.ranges:
                said.append("{} from {} to {}".format(symbol, *chosen.ranges[symbol]))
            else:
                said.append(f"{symbol} = {number}{f' ({why[symbol]})' if symbol in why else ''}")
        return ", ".join(said)

    # -- all of them --------------------------------------------------------------------------------------------------

    def setup(self) -> SetupReport:
        """The report on what was done before they could be called, and how long it took."""
        from staticgrad.runtime.measured.setup import SetupReport

        found = self._found
        return SetupReport(
            phases=dict(self._phases),
            compiled=found["compiled"],
            found_in_memory=found["memory"],
            found_on_disk=found["disk"],
            kernels_compiled=found[phases.COMPILED],
            kernels_found_in_memory=found[phases.IN_MEMORY],
            kernels_found_on_disk=found[phases.ON_DISK],
            templates=found[phases.TEMPLATES],
            optimized_seconds=sum(code.seconds for code in self._tiers()),
            is_ready=self.is_ready,
        )

    def _tiers(self) -> list[TieredCode]:
        """The code of those that had quick code at first."""
        natives = map(_current_native, self.by_shapes.values())
        codes = {id(code): code for native in natives if native is not None and (code := native.tiers) is not None}
        return list(codes.values())

    @property
    def is_ready(self) -> bool:
        """True if the next call of each runs optimised code."""
        return all(code.is_ready for code in self._tiers())

    def wait(self) -> None:
        """Return when each has optimised code.

        Raises:
            RuntimeError: it could not be made.
        """
        for code in self._tiers():
            code.wait()


def _current_native(program: SizedProgram) -> NativeRunner | None:
    """The runner in machine code of a program, that for the gradients which are there now; None if it is
    interpreted."""
    from staticgrad.runtime.running.gradients import current_of

    return native_of(current_of(program.runner))


def native_of(runner: Runner) -> NativeRunner | None:
    """The runner itself if it is one of machine code, else None."""
    from staticgrad.runtime.running.native import NativeRunner

    return runner if isinstance(runner, NativeRunner) else None
