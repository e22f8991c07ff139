"""The programs of a session's tapes, by what is kept of which feeds.

Input: the outputs of a forward and the types of what it is fed. Output: ``TapePrograms``, compiled for the ranges of
the feeds' sizes or for them alone. ``tape`` says what a tape does with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from staticgrad.base.errors import FetchError
from staticgrad.base.recent import KEPT_PROGRAMS, Recent
from staticgrad.base.types import Bindings, TensorType
from staticgrad.graph.graph import Node, Tensor
from staticgrad.runtime.running.binding import types_of
from staticgrad.runtime.session.compiler import Compiler, Served

if TYPE_CHECKING:
    from staticgrad.compiler.regions.ranges import RangeError, Ranges
    from staticgrad.compiler.tapes.plan import TapePlan
    from staticgrad.runtime.session.tape import TapePrograms

Kind = tuple[object, ...]  # of tapes: the graph's version, the outputs, what is fed, the budget


class Tapes(Recent["TapePrograms"]):
    """The programs by their kind and the shapes of their feeds, which follow it in the key. ``kinds`` are those of
    which some tape was made."""

    def __init__(self, compiler: Compiler, check_numerics: bool) -> None:
        super().__init__(KEPT_PROGRAMS)
        self.kinds: Recent[bool] = Recent(KEPT_PROGRAMS)
        self._compiler = compiler
        self._check_numerics = check_numerics
        self._ranged: Recent[Served[TapePrograms] | RangeError] = Recent(KEPT_PROGRAMS)

    def clear(self) -> None:
        super().clear()
        self.kinds.clear()
        self._ranged.clear()

    def make(
        self,
        kind: Kind,
        leaves: Sequence[Tensor | Node],
        fed: Sequence[Tensor],
        shapes: tuple[tuple[int, ...], ...],
        memory_budget: int | float | None,
        note_use: Callable[[], None] | None,
    ) -> TapePrograms:
        """The programs of this kind for feeds of these shapes, which are kept; ``note_use`` is called when they are
        used again."""
        key = (*kind, shapes)

        def made() -> TapePrograms:
            return self.put(key, self._programs(kind, leaves, types_of(fed, shapes), memory_budget), note_use)

        return self._compiler.once(self, key, made)

    def _programs(
        self,
        kind: Kind,
        leaves: Sequence[Tensor | Node],
        feeds: Mapping[Tensor, TensorType],
        memory_budget: int | float | None,
    ) -> TapePrograms:
        """The programs for feeds of these types: those for the ranges of their sizes, or for them alone."""
        from staticgrad.runtime.session.tape import TapePrograms

        compiler = self._compiler
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        for leaf in leaves:
            if not isinstance(leaf, Tensor):
                raise FetchError(f"a tape holds tensors, {leaf!r} is an op without a value")

        def plan(types: Mapping[Tensor, TensorType], sizes: Bindings | None = None) -> TapePlan:
            from staticgrad.compiler.tapes.plan import plan_tape

            graph, checks = compiler.store.graph, self._check_numerics
            return plan_tape(graph, tensors, types, check_numerics=checks, memory_budget=memory_budget, sizes=sizes)

        def serve(bindings: Bindings, ranges: Ranges) -> Served[TapePrograms]:
            from staticgrad.compiler.regions.ranges import made_for_ranges, naming

            made, groups = made_for_ranges(feeds, bindings, ranges, plan)
            with naming(groups):
                return Served(TapePrograms(compiler, made, groups), groups)

        if memory_budget is None:
            serving = compiler.serving(self._ranged, kind, feeds, compiler.options(), serve)
            if serving.served is not None:
                return serving.served.value.at(serving.numbers)
        return TapePrograms(compiler, plan(feeds))
