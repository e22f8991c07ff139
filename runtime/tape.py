"""The tape: one forward that ran, and the backwards that may follow.

Comes in: a plan of the compiler (which values live between the programs) and fed arrays. Goes out: the outputs'
values, gradients added up in the session. Whether a backward may run is decided by the ledger on the declared graph;
what is kept in memory is what the compiled backwards read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

from staticgrad.compiler.kernels.program import BufferPlan
from staticgrad.compiler.tapes import BackwardPlan, SavedTensor, TapePlan, plan_tape
from staticgrad.errors import BuffersFreedError, FeedError, FetchError, GradientError, SourceLine, StateChangedError
from staticgrad.graph import Tensor
from staticgrad.optable import Array
from staticgrad.runtime.binding import as_array
from staticgrad.runtime.executable import Runner
from staticgrad.runtime.reports import byte_text, plot_buffers, table
from staticgrad.types import TensorType

if TYPE_CHECKING:
    from staticgrad.runtime.session import Session


BackwardKey = tuple[tuple[int, bool], ...]  # the outputs by id, and whether a gradient is given


@dataclass(slots=True, eq=False)
class TapePrograms:
    """The compiled forward of some outputs, and the backwards compiled so far. Shared by all tapes of one kind."""

    plan: TapePlan
    outputs: tuple[Tensor, ...]
    forward: Runner
    backwards: dict[BackwardKey, tuple[BackwardPlan, Runner]]


def plan_programs(
    session: Session,
    outputs: Sequence[Tensor],
    feeds: Mapping[Tensor, TensorType],
    memory_budget: int | None,
) -> TapePrograms:
    """Plan a tape and compile its forward."""
    plan = plan_tape(session.graph, outputs, feeds, check_numerics=session.check_numerics, memory_budget=memory_budget)
    return TapePrograms(plan, tuple(outputs), session.load(plan.forward), {})


@dataclass(frozen=True, slots=True)
class SavedBuffer:
    """One value that a tape keeps: its size in bytes, whether it is still there, why, and who declared it."""

    name: str
    nbytes: int
    live: bool
    reason: str
    source: SourceLine | None


@dataclass(frozen=True, slots=True)
class TapeMemory:
    """What a tape keeps for its backwards, in bytes.

    ``saved_bytes`` was kept by the forward, ``live_bytes`` is still there, ``retain_bytes`` is what of it the backward
    of all outputs gives back and ``retain_graph=True`` keeps.
    """

    saved_bytes: int
    live_bytes: int
    retain_bytes: int
    buffers: tuple[SavedBuffer, ...]

    def __str__(self) -> str:
        head = (
            f"saved {byte_text(self.saved_bytes)}, live {byte_text(self.live_bytes)}, "
            f"retain_graph=True keeps {byte_text(self.retain_bytes)}"
        )
        rows = [
            (b.name, str(b.nbytes), "live" if b.live else "given back", b.reason, str(b.source or ""))
            for b in self.buffers
        ]
        return head + ("\n" + table(("value", "bytes", "state", "why", "source"), rows, right=(1,)) if rows else "")

    def plot(self, path: str | PathLike[str]) -> None:
        """Write a picture: the saved values stacked by size, from the forward (0) to when they are given back (1)
        or still there (2)."""
        plans, offset = [], 0
        for b in self.buffers:
            plans.append(BufferPlan(b.name, b.nbytes, offset, 0, 2 if b.live else 1, b.reason, b.source))
            offset += b.nbytes
        plot_buffers(path, plans, offset, self.live_bytes)


def _cotangent(y: Tensor, value: Any) -> Array:
    try:
        return as_array(y, value)
    except FeedError as error:
        text = str(error).replace(f"feed of {y.name!r}", f"the gradient of output {y.name!r}")
        raise GradientError(text) from error


class Tape:
    """A forward that ran. ``tape[output]`` is an output's value; ``backward`` adds gradients to the session.

    Use it in ``with``, or let it go: either gives back everything it keeps.
    """

    def __init__(
        self,
        session: Session,
        programs: TapePrograms,
        arrays: Sequence[Array],
        order: Sequence[Tensor | Sequence[Tensor]] | None = None,
    ) -> None:
        plan = programs.plan
        self._session = session
        self._programs = programs
        self._ledger = plan.ledger(order)
        self._closed = False
        # A variable written between here and the forward counts as changed since: on the safe side of the race.
        self._versions = {name: session.store.version(name) for name in self._initialized(plan.variables)}
        results = programs.forward.run(arrays)
        self._outputs = dict(zip(programs.outputs, results, strict=False))
        self._live: dict[SavedTensor, Array] = {
            s: results[s.index] if s.origin == "fetched" else arrays[s.index].copy() for s in plan.saved
        }

    def _initialized(self, names: Sequence[str]) -> Sequence[str]:
        for name in names:
            self._session.store.array(name)
        return names

    def __enter__(self) -> Tape:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back everything; later use is refused."""
        self._closed = True
        self._live.clear()
        self._outputs.clear()

    def _check_open(self) -> None:
        self._session.check_open()
        if self._closed:
            raise BuffersFreedError("the tape is closed: its values were given back")

    def __getitem__(self, output: Tensor) -> Array:
        """The value of one of the outputs that the tape was made for, a fresh array.

        Raises:
            FetchError: any other tensor.
        """
        self._check_open()
        if not isinstance(output, Tensor) or output not in self._outputs:
            names = ", ".join(repr(x.name) for x in self._outputs)
            raise FetchError(f"the tape holds no value of {output!r}, only of its outputs {names}")
        return self._outputs[output].copy()

    # -- backward ---------------------------------------------------------------------------------------------------

    def backward(self, output: Tensor | Sequence[Tensor], grad: Any = None, retain_graph: bool = False) -> None:
        """Add the gradients of one output, or of several in one traversal, to those of the session.

        Args:
            grad: the output's cotangent (a sequence parallel to a list of outputs); None is one, for an output of a
                single element.
            retain_graph: keep what this backward read, so that it may be repeated.

        Raises:
            GradientError: no gradient flows to the output, it has several elements and no ``grad``, or ``grad`` has
                another shape or dtype.
            BuffersFreedError: an earlier backward gave back what this one would read.
            StateChangedError: a variable that it reads was written since the forward. Nothing has run or changed.
        """
        self._check_open()
        outputs, grads = self._arguments(output, grad)
        shapes = [None if g is None else g.shape for g in grads]
        key = tuple(zip(map(id, outputs), [g is not None for g in grads], strict=True))
        known = self._programs.backwards.get(key)
        if known is None:
            self._ledger.admit(outputs, shapes)  # nothing is compiled for what is refused
            known = self._compile(key, outputs, [g is not None for g in grads])
        plan, runner = known
        store = self._session.store
        with store.lock.exclusive():
            passage = self._ledger.admit(outputs, shapes)
            self._check_versions(plan)
            values = [self._live[s] for s in plan.reads]
            runner.run([*values, *(g for g in grads if g is not None)])
            for saved in self._ledger.commit(passage, retain_graph):
                self._live.pop(saved, None)

    def _arguments(self, output: Tensor | Sequence[Tensor], grad: Any) -> tuple[list[Tensor], list[Array | None]]:
        if isinstance(output, Tensor):
            outputs, given = [output], [grad]
        else:
            outputs = list(output)
            given = [None] * len(outputs) if grad is None else list(grad)
            if len(given) != len(outputs):
                raise GradientError(f"grad: expected {len(outputs)} of them, actual {len(given)}")
        for y in outputs:
            if not isinstance(y, Tensor) or y not in self._outputs:
                names = ", ".join(repr(x.name) for x in self._outputs)
                raise FetchError(f"backward of {y!r}: the tape was made for {names}")
        grads: list[Array | None] = []
        for y, value in zip(outputs, given, strict=True):
            grads.append(None if value is None else _cotangent(y, value))
        return outputs, grads

    def _compile(
        self, key: BackwardKey, outputs: Sequence[Tensor], given: Sequence[bool]
    ) -> tuple[BackwardPlan, Runner]:
        """Compile a backward. The state's lock must not be held: another thread may compile and wait for it."""
        with self._session.compiling:
            known = self._programs.backwards.get(key)
            if known is None:
                plan = self._programs.plan.backward(outputs, given)
                known = self._programs.backwards[key] = (plan, self._session.load(plan.region))
            return known

    def _check_versions(self, plan: BackwardPlan) -> None:
        for name in plan.variables:
            if self._session.store.version(name) != self._versions[name]:
                raise StateChangedError(
                    f"variable {name!r} was written after this tape's forward, and the backward reads it\n"
                    f"  expected version {self._versions[name]}\n"
                    f"  actual   version {self._session.store.version(name)}",
                    source=self._session.graph.variables[name].source,
                )

    # -- reports ----------------------------------------------------------------------------------------------------

    @property
    def memory(self) -> TapeMemory:
        """What the tape keeps now."""
        saved = self._programs.plan.saved
        buffers = tuple(SavedBuffer(s.name, s.nbytes, s in self._live, s.reason, s.source) for s in saved)
        live = [s for s in saved if s in self._live]
        return TapeMemory(
            saved_bytes=sum(s.nbytes for s in saved),
            live_bytes=sum(s.nbytes for s in live),
            retain_bytes=sum(s.nbytes for s in live if s.readers),
            buffers=buffers,
        )
