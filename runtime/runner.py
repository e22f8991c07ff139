"""The runner: what runs one program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from staticgrad.optable import Array
from staticgrad.types import TensorType

if TYPE_CHECKING:
    from staticgrad.runtime.kept import Kept


class Runner(Protocol):
    """What runs one program: a loaded one, or the interpreter."""

    @property
    def types(self) -> tuple[TensorType, ...]: ...

    def run(
        self, arrays: Sequence[Array], outs: Sequence[Array | None] | None = None, kept: Kept | None = None
    ) -> list[Array]: ...
