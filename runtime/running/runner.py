"""The runner: what runs one program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from staticgrad.base.types import TensorType
from staticgrad.graph.optable import Array

if TYPE_CHECKING:
    from staticgrad.runtime.running.kept import TapeContext


class Runner(Protocol):
    """An object that runs one program: a loaded one, or the interpreter."""

    @property
    def types(self) -> tuple[TensorType, ...]: ...

    def run(
        self, arrays: Sequence[Array], outs: Sequence[Array | None] | None = None, tape: TapeContext | None = None
    ) -> list[Array]: ...

    def at(self, numbers: tuple[int, ...]) -> Runner:
        """The runner for these open sizes of its program, which it shares everything else with."""
        ...


class LoadedRunner(Runner, Protocol):
    """The interface of an object that runs one region."""

    @property
    def arena_bytes(self) -> int:
        """Bytes of the planned arena; none where nothing is planned."""

    def at(self, numbers: tuple[int, ...]) -> LoadedRunner: ...

    @property
    def may_be_interrupted(self) -> bool:
        """True if a signal handler can end a run after it began."""

    @property
    def may_fail(self) -> bool:
        """True if a run can end in an error after it began."""
