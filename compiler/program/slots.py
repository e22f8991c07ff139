"""Slots: the memory that whoever runs a program hands over, and the ways in which a run can end early."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from staticgrad.base.errors import SourceLine
from staticgrad.base.extents import OpenSize
from staticgrad.base.frozen import frozen
from staticgrad.base.types import TensorType, bool_
from staticgrad.graph.graph import Graph, Node
from staticgrad.graph.optable import Array
from staticgrad.ops.collectives import COLLECTIVES, REDUCE_SCATTER
from staticgrad.ops.control.bodies import bodies_of

# All are C-contiguous.


@frozen
class FeedSlot:
    """The fed array number ``index``; read only."""

    index: int
    type: TensorType


@frozen
class FetchSlot:
    """The place of result number ``index``: fresh memory or the caller's ``out``."""

    index: int
    type: TensorType


@frozen
class StateSlot:
    """A variable of the session, by name. ``written`` says that the program changes it in place."""

    name: str
    type: TensorType
    written: bool


@frozen
class GradSlot:
    """An accumulated gradient of the session, by the key that the tape gave it. ``fresh`` says whether the program
    sets it (no gradient yet) or adds to it."""

    key: str
    type: TensorType


@frozen(eq=False)
class ConstantSlot:
    """An array of the program's own."""

    value: Array


@frozen
class KeySlot:
    """int64[2]: the session's seed and the run number, from which random numbers follow. ``again``: of the forward
    whose draws are repeated, where that was another run."""

    again: bool = False


@frozen(eq=False)
class CallbackSlot:
    """A Python function called in the middle of a run: words of which the first is the address of ``i32 (*)(ptr words,
    ptr operands)``, where ``operands`` is a table of pointers, inputs first, then outputs. ``function`` gets NumPy
    arrays and returns a sequence of them. A non-zero return ends the run. If ``late`` it is never returned: what the
    function raises ends a program that polls, as long as that has not begun to write state, and is raised after the run
    of any other."""

    function: Callable[..., Any]
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    source: SourceLine | None
    late: bool = False


@frozen(eq=False)
class CollectiveSlot:
    """A collective operation of ``ranks`` processes: words of which the first is the address of ``i32 (*)(ptr words,
    ptr operands)``, where ``operands`` is a table of the number of elements of ``type``, then pointers, inputs first.
    A non-zero return ends the run. ``name`` is the op's, ``equalizes`` as ``CollectiveAttributes`` has it."""

    name: str
    type: TensorType
    ranks: int
    reduction: str
    root: int
    equalizes: bool = False

    @property
    def text(self) -> str:
        """The line by which ranks find out that they do the same."""
        equal = ", variables equalized" if self.equalizes else ""
        return f"{self.name}({self.reduction}, root {self.root}) of {self.type}{equal}"


def collectives_of(graph: Graph) -> list[Node]:
    """The collective ops of a graph, those of bodies too."""
    found = []
    for node in graph.nodes:
        found += [node] if node.op in COLLECTIVES else []
        found += [inner for body in bodies_of(node) for inner in collectives_of(body.graph)]
    return found


def collective_slot(node: Node) -> CollectiveSlot:
    """The slot of a collective op."""
    attrs = node.attrs
    counted = node.outputs if node.op is REDUCE_SCATTER else node.inputs
    type_ = counted[0].type if counted else TensorType((0,), bool_)
    return CollectiveSlot(node.op.name, type_, attrs.ranks, attrs.reduction, attrs.root, attrs.equalizes)


@frozen
class SizesSlot:
    """int64[len(sizes)]: the numbers that the feeds of a call give the open sizes of the program."""

    sizes: tuple[OpenSize, ...]


@frozen
class VersionSlot:
    """int64: how many writes a variable of the session has seen."""

    name: str


@frozen
class PreparedSlot:
    """int64[count], kept with the arena from call to call: the versions of the variables from which the first steps
    computed what still lies in the arena, -1 while it does not. The program compares them and writes them."""

    count: int


Slot = (
    FeedSlot
    | FetchSlot
    | StateSlot
    | GradSlot
    | ConstantSlot
    | KeySlot
    | CallbackSlot
    | CollectiveSlot
    | SizesSlot
    | VersionSlot
    | PreparedSlot
)


@frozen
class Prepared:
    """The preparation of a program: how many of the first steps follow from variables alone, the versions of those, and
    the place of the versions that the steps saw when they ran last."""

    steps: int
    versions: tuple[VersionSlot, ...]
    seen: PreparedSlot

    @property
    def slots(self) -> tuple[Slot, ...]:
        return (*self.versions, self.seen)


# -- what can go wrong in a run -------------------------------------------------------------------------------------


CheckKind = Literal["bounds", "assertion", "numerics", "callback", "collective"]


@frozen
class Check:
    """Why a run ended early. For ``bounds`` the extremes that were found lie in the arena at ``offset`` as int64[2]
    (smallest and largest index), allowed is [0, size); with ``wraps`` negative ones had been added to the size.
    ``assertion`` and ``numerics`` carry their message."""

    kind: CheckKind
    message: str
    source: SourceLine | None
    size: int = 0
    offset: int = 0
    wraps: bool = False


INTERRUPTED = -1  # the status of a program that was told to end


class ContextWord:
    """The words of a context (``emit.polls``) that programs know."""

    RUN = 0  # address of run: what kernels call, as a pool's
    POLL = 1  # address of i32 poll(ptr context): whether the program shall end
    STOPPED = 2  # whether it was told so
    COMMITTED = 3  # whether it has begun to write state
