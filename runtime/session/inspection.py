"""Inspections: a session looks at each program that is new to it, and warns of what it would silently do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from staticgrad.base.recent import KEPT_PROGRAMS, Recent
from staticgrad.graph.graph import Node, Tensor
from staticgrad.runtime.running.state import SessionState

if TYPE_CHECKING:
    from staticgrad.graph.warned import Growth


class Inspection:
    """The inspections of one session, which know what earlier programs were made of."""

    def __init__(self, store: SessionState) -> None:
        self._store = store
        self._growths: Recent[Growth] = Recent(KEPT_PROGRAMS)

    def look(self, leaves: Sequence[Tensor | Node], fed: Sequence[Tensor]) -> Callable[[], None] | None:
        """Warn of what the program of these fetches would silently do. Called by the session's method that the user has
        called. Returns what is to be called when the program is used again."""
        from staticgrad.graph.warned import check_growth, check_program

        graph = self._store.graph
        graph.settle_names()
        graph.programs += 1
        growth = check_growth(graph, self._growths)
        check_program(graph, leaves, fed, lambda x: self._store.is_written(x.op.attrs.key))
        return None if growth is None else growth.note_use
