"""The program: kernels over planned buffers, and everything that whoever runs it must hand over.

    Program  ::= slots, steps, buffers with offsets, checks, texts of LLVM modules
    Step     ::= kernel applied to operands | check | call out
    Operand  ::= a slot (memory of the caller) or a buffer in the arena, plus its dtype

The compiled entry is ``i32 @main(ptr slots, ptr arena, ptr pool)``: ``slots`` is a table of pointers in the order of
``Program.slots``, ``arena`` is 64-byte aligned memory of ``arena_bytes``, ``pool`` is null or a pool of threads
(``emit.parallel``), at most ``workers`` of them; for a program that ``polls`` null or a context (``emit.polls``). It
returns 0, or 1 + the number of the check or callback that failed, or -1 if it was interrupted; then no state has been
written. A program with a ``PreparedSlot`` finds in the arena what its last call left there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from staticgrad.base.errors import SourceLine
from staticgrad.base.extents import OpenSize, largest
from staticgrad.base.frozen import frozen
from staticgrad.base.types import TensorType, bool_
from staticgrad.compiler.machine.machine import RATES
from staticgrad.graph.optable import Array
from staticgrad.ops.collectives import COLLECTIVES, REDUCE_SCATTER
from staticgrad.ops.control.bodies import bodies_of

if TYPE_CHECKING:
    from staticgrad.compiler.kernels.matrix import Contraction
    from staticgrad.compiler.program.step import Memory, Step, Temp
    from staticgrad.compiler.regions.region import Region
    from staticgrad.graph.graph import Graph, Node, Tensor

SCRATCH = "scratch"  # the first word of the reasons of buffers in which kernels work
POISON = 0xFF  # the byte that dead memory is filled with, when asked for: NaN for floats, -1 for integers


def least_seconds(flops: int, nbytes: int) -> float:
    """A rough lower bound of the time that so many operations over so many bytes take one core."""
    return max(flops / RATES.least_flops, nbytes / RATES.least_bytes)


# -- the slots: memory that the caller hands over, C-contiguous -----------------------------------------------------


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


@frozen
class BufferPlan:
    """One buffer of the arena: live from step ``first`` until before step ``last``, and why."""

    name: str
    nbytes: int
    offset: int
    first: int
    last: int
    reason: str
    source: SourceLine | None


@frozen
class KernelCost:
    """The cost of one step, for reports; an extent where sizes are open."""

    name: str
    family: str
    flops: int
    bytes: int
    source: SourceLine | None
    dtype: str = "float32"


@frozen
class StepFlow:
    """The numbers of the memories that one step reads and writes, and its text. The program's buffers are numbered from
    0 in their order, its slots behind them."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    text: str


@frozen(eq=False)
class Interface:
    """The part of a program that whoever runs it needs beside its code: fields of ``Program``, and the sums of its
    costs."""

    slots: tuple[Slot, ...]
    arena_bytes: int
    checks: tuple[Check, ...]
    borrows: bool
    workers: int
    flops: int
    bytes: int
    polls: bool


@frozen(eq=False)
class Stepwise:
    """The data for running a program step by step beside its reference: the steps, the offsets of their buffers, the
    region that was lowered, and the memory and strides of its tensors. The function of step k is ``step<k>``."""

    steps: tuple[Step, ...]
    offsets: Mapping[Temp, int]
    region: Region
    places: Mapping[Tensor, tuple[Memory, tuple[int, ...]]]


@frozen(eq=False)
class Program:
    """Compiled, but not loaded: a value without addresses."""

    slots: tuple[Slot, ...]
    arena_bytes: int
    lower_bound_bytes: int
    buffers: tuple[BufferPlan, ...]
    checks: tuple[Check, ...]
    costs: tuple[KernelCost, ...]
    flows: tuple[StepFlow, ...]
    graph_text: str
    modules: tuple[str, ...]  # LLVM text; of a long program several, which refer to each other
    target: str
    borrows: bool = False  # its arena is memory of the caller's, in which values lie that are donated to it
    workers: int = 1  # threads that a pool may have; 1 also if nothing in the program is worth a second one
    polls: bool = False  # it takes long, or nobody knows how long, and looks whether it shall end
    products: tuple[tuple[Contraction, ...], ...] = ()  # by step, those inside of loops too; without epilogues
    stepwise: Stepwise | None = None

    @property
    def llvm_text(self) -> str:
        """The text of its module, or of its modules one after the other, each below a line with its number."""
        if len(self.modules) == 1:
            return self.modules[0]
        count = len(self.modules)
        return "\n".join(f"; module {number} of {count}\n{text}" for number, text in enumerate(self.modules, 1))

    @property
    def kernels_text(self) -> str:
        """The text of all steps, a paragraph each."""
        return "\n".join(flow.text for flow in self.flows)

    @property
    def interface(self) -> Interface:
        costs = largest(self.costs)
        flops, moved = sum(cost.flops for cost in costs), sum(cost.bytes for cost in costs)
        sums = (flops, moved, self.polls)
        return Interface(self.slots, self.arena_bytes, self.checks, self.borrows, self.workers, *sums)
