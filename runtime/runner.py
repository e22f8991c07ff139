"""The runner: what runs one program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from staticgrad.optable import Array
from staticgrad.types import TensorType

if TYPE_CHECKING:
    from staticgrad.runtime.kept import Kept


class Runner(Protocol):
    """What runs a program: a loaded one, the interpreter, or a reader of gradients, which has several."""

    @property
    def types(self) -> tuple[TensorType, ...]: ...

    def run(
        self, arrays: Sequence[Array], outs: Sequence[Array | None] | None = None, kept: Kept | None = None
    ) -> list[Array]: ...


class LoadedRunner(Runner, Protocol):
    """What runs one region."""

    @property
    def arena_bytes(self) -> int:
        """Bytes of the planned arena; none where nothing is planned."""

    @property
    def may_be_interrupted(self) -> bool:
        """Whether a signal handler can end a run after it began."""

    @property
    def may_fail(self) -> bool:
        """Whether a run can end in an error after it began."""
