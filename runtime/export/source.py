"""Sources of exports: what an export needs of an executable, as a value that the executable gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from staticgrad.base.frozen import frozen

if TYPE_CHECKING:
    from staticgrad.base.types import TensorType
    from staticgrad.compiler.machine.target import Target
    from staticgrad.compiler.program.program import Program
    from staticgrad.compiler.regions.region import Region
    from staticgrad.graph.graph import Tensor
    from staticgrad.runtime.running.state import SessionState


@runtime_checkable
class Exportable(Protocol):
    """An executable, or the source that it is: whatever can be exported."""

    def _export_source(self) -> ExportSource: ...


@frozen(eq=False)
class ExportSource:
    """An executable as exports see it.

    ``fetched`` are the tensors of the nest ``fetches``, as often as they are mentioned, and which result each is;
    ``has_ops`` says that there are ops among the fetches. ``types`` gives the types of the feeds; ``program`` the
    program for a target and a number of threads; ``with_gradient`` the source of the value and its gradient where a
    signature wants both, else the same; ``compile`` the source of other fetches and feeds in the session, whose state
    is ``store``. ``region`` is what the program is made of; ``open_region`` the same for all sizes that are open, which
    raises ``RangeError`` where it needs one known, or None where none is open.
    """

    feeds: tuple[Tensor, ...]
    fetches: Any
    fetched: Sequence[tuple[Tensor, int]]
    has_ops: bool
    store: SessionState
    types: Callable[[], Mapping[Tensor, TensorType]]
    program: Callable[[Target, int], Program]
    with_gradient: Callable[[str, Tensor | None], ExportSource]
    compile: Callable[[Sequence[Tensor], Sequence[Tensor]], ExportSource]
    region: Callable[[], Region]
    open_region: Callable[[], Region | None]

    def _export_source(self) -> ExportSource:
        return self
