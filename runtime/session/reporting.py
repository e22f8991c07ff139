"""Reports on the latest program of an executable, as values and as texts.

Input: the programs of an executable. Output: ``Reports``: memory and cost, a profile, the page for a browser, the
program as text.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from staticgrad.base import config
from staticgrad.base.errors import StaticGradError
from staticgrad.base.extents import largest
from staticgrad.base.tables import abridged, byte_text
from staticgrad.graph.optable import Array
from staticgrad.runtime.running.binding import bind_sizes, types_of
from staticgrad.runtime.session.programs import Programs, native_of

if TYPE_CHECKING:
    from staticgrad.compiler.prices import Price
    from staticgrad.runtime.measured.profile import Profile
    from staticgrad.runtime.measured.reports import CostReport, MemoryReport
    from staticgrad.runtime.session.programs import Shapes

Level = Literal["graph", "kernels", "llvm", "asm"]
LEVELS: tuple[Level, ...] = ("graph", "kernels", "llvm", "asm")


class Reports:
    """The reports on the latest of an executable's programs."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs

    def memory(self) -> MemoryReport:
        """The memory plan; prices are found when they are asked for, of the program that is the latest now."""
        from staticgrad.runtime.measured.reports import MemoryReport

        programs = self._programs
        program, shapes = programs.native().program, programs.latest_shapes
        assert shapes is not None
        prices = functools.cache(functools.partial(_prices, programs, shapes))
        return MemoryReport(program.arena_bytes, program.lower_bound_bytes, program.buffers, programs.bound, prices)

    def cost(self) -> CostReport:
        """The cost of each kernel."""
        from staticgrad.runtime.measured.reports import CostReport

        return CostReport(largest(self._programs.native().program.costs), self._programs.bound)

    def profile(self, given: Sequence[Array]) -> Profile:
        """The time of each kernel on these arrays, by a program that is compiled for that.

        Raises:
            StaticGradError: the reference backend has no kernels.
        """
        from staticgrad.runtime.measured.profile import profile

        if config.get("BACKEND") == "reference":
            raise StaticGradError("the reference backend compiles nothing: there are no kernels to time")
        programs, compiler, shapes = self._programs, self._programs.compiler, tuple([array.shape for array in given])
        bind_sizes(programs.feeds, shapes)
        types, ranges = types_of(programs.feeds, shapes), programs.choose(shapes).ranges
        leaves, options = programs.fetched.leaves, programs.options
        return profile(compiler.lock.exclusive(compiler.timed_runner, leaves, types, options, ranges), given)

    def page(self, profile: Profile | None) -> str:
        """The HTML of the page that shows the program, with the profile if one is given."""
        from staticgrad.runtime.measured.view import page

        programs, fetched = self._programs, self._programs.fetched
        names = [x.name for x in programs.feeds], [x.name for x in fetched.tensors]
        title = ", ".join(leaf.name for leaf in fetched.leaves)
        return page(programs.native().program, *names, title=title, prices=self.memory().prices, profile=profile)

    def text(self, level: Level) -> str:
        """The program as text.

        Raises:
            StaticGradError: there is no such level.
        """
        if level not in LEVELS:
            raise StaticGradError(f"text level {level!r}: expected one of {', '.join(map(repr, LEVELS))}")
        latest = self._programs.latest
        if level == "graph" and latest is not None:
            from staticgrad.runtime.running.reference import ReferenceRunner

            if isinstance(latest.runner, ReferenceRunner):
                return str(latest.runner.region.graph)
        native = self._programs.native()
        program = native.program
        if level == "asm":
            return native.assembly()
        return {"graph": program.graph_text, "kernels": program.kernels_text, "llvm": program.llvm_text}[level]

    def summary(self) -> str:
        """The feeds, the fetches and the state of an executable in a line."""
        feeds = abridged([f"{x.name} {x.type}" for x in self._programs.feeds])
        fetches = abridged([leaf.name for leaf in self._programs.fetched.leaves])
        return f"<executable ({feeds}) -> ({fetches}), {self._state}>"

    def html(self) -> str:
        """The executable for a notebook."""
        from staticgrad.runtime.measured.overview import executable_html

        feeds, leaves = self._programs.feeds, self._programs.fetched.leaves
        return executable_html(feeds, leaves, self._state, lambda: (self.memory(), self.cost()))

    @property
    def _state(self) -> str:
        """A text on the state of the program, made without compiling it."""
        latest = self._programs.latest
        if latest is None:
            return "not compiled yet"
        native, bound = native_of(latest.runner), self._programs.bound
        if native is None:
            return "interpreted"
        return f"arena {byte_text(native.interface.arena_bytes)}{bound and f' for {bound}'}"


def _prices(programs: Programs, shapes: Shapes) -> tuple[Price, ...]:
    from staticgrad.compiler.prices import program_prices

    graph, types = programs.compiler.store.graph, types_of(programs.feeds, shapes)
    return program_prices(graph, programs.fetched.leaves, types, programs.options)
