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
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from staticgrad.base.errors import SourceLine
from staticgrad.base.extents import largest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.program.slots import Check, Slot

if TYPE_CHECKING:
    from staticgrad.compiler.kernels.matrix import Contraction
    from staticgrad.compiler.program.memories import Memory, Temp
    from staticgrad.compiler.program.step import Step
    from staticgrad.compiler.regions.region import Region
    from staticgrad.graph.graph import Tensor

T = TypeVar("T")
POISON = 0xFF  # the byte that dead memory is filled with, when asked for: NaN for floats, -1 for integers


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
    0 in their order, its slots after them."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    text: str


@frozen(eq=False)
class Interface:
    """The part of a program that whoever runs it needs in addition to its code: fields of ``Program``, and the sums of
    its costs."""

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
    """The data for comparing each step of a program with its reference: the steps, the offsets of their buffers, the
    region that was lowered, and the memory and strides of its tensors. The function of step k is ``step<k>``."""

    steps: tuple[Step, ...]
    offsets: Mapping[Temp, int]
    region: Region
    places: Mapping[Tensor, tuple[Memory, tuple[int, ...]]]


class Later(Generic[T]):
    """A value that is made when it is first asked for; then what it is made of is let go."""

    __slots__ = ("_make", "_value")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make: Callable[[], T] | None = make
        self._value: T | None = None

    @property
    def value(self) -> T:
        """The value."""
        make = self._make
        if make is not None:
            self._value, self._make = make(), None
        return cast(T, self._value)


@frozen(eq=False)
class Program:
    """Compiled, but not loaded: a value without addresses."""

    slots: tuple[Slot, ...]
    arena_bytes: int
    lower_bound_bytes: int
    buffers: tuple[BufferPlan, ...]
    checks: tuple[Check, ...]
    costs: tuple[KernelCost, ...]
    modules: tuple[str, ...]  # LLVM text; of a long program several, which refer to each other
    target: str
    later_flows: Later[tuple[StepFlow, ...]]
    later_graph_text: Later[str]
    borrows: bool = False  # its arena is memory of the caller's, in which values lie that are donated to it
    workers: int = 1  # threads that a pool may have; 1 also if nothing in the program is worth a second one
    polls: bool = False  # it takes long, or an unknown time, and looks whether it shall end
    hot_modules: int | None = None  # optimised from the start, the first ones; None where all had better be
    products: tuple[tuple[Contraction, ...], ...] = ()  # by step, those inside of loops too; without epilogues
    stepwise: Stepwise | None = None

    @property
    def flows(self) -> tuple[StepFlow, ...]:
        """The texts of its steps and the memories that they touch."""
        return self.later_flows.value

    @property
    def graph_text(self) -> str:
        """The text of the region that was lowered."""
        return self.later_graph_text.value

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
