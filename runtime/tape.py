"""The tape: one forward that ran, and the backwards that may follow.

Comes in: a plan of the compiler (which values live between the programs) and fed arrays. Goes out: the outputs'
values, gradients added up in the session. Whether a backward may run is decided by the ledger on the declared graph;
what is kept in memory is what the compiled backwards read.

What is kept lies in one block of memory, the outputs apart. A backward that retains reads it there and works in an
arena of its own. A backward that consumes is another program: its arena is the block, in which what it is the last to
read is a buffer that dies like others, and its temporaries take that place. The block goes on to the next tape.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any

from staticgrad import config
from staticgrad.compiler.autodiff.retention import Passage
from staticgrad.compiler.memory.plan import Held
from staticgrad.compiler.prices import Price, tape_prices
from staticgrad.compiler.program import BufferPlan
from staticgrad.compiler.tapes.plan import BackwardPlan, SavedTensor, TapePlan, plan_tape
from staticgrad.errors import BuffersFreedError, FeedError, FetchError, GradientError, SourceLine, StateChangedError
from staticgrad.frozen import frozen
from staticgrad.graph import Tensor
from staticgrad.optable import Array
from staticgrad.runtime.binding import as_array
from staticgrad.runtime.executable import Runner
from staticgrad.runtime.kept import Blocks
from staticgrad.runtime.reference import ReferenceRunner
from staticgrad.runtime.reports import byte_text, no_prices, plot_buffers, price_table, table
from staticgrad.types import TensorType, sizes

if TYPE_CHECKING:
    from staticgrad.runtime.session import Session


BackwardKey = tuple[tuple[int, bool], ...]  # the outputs by id, and whether a gradient is given
ALIGNMENT = 64


@frozen
class Use:
    """What a backward does to the block: which values it uses up, and which others lie there meanwhile."""

    used_up: frozenset[SavedTensor] = frozenset()
    held: frozenset[SavedTensor] = frozenset()


@dataclass(slots=True, eq=False)
class TapePrograms:
    """The compiled forward of some outputs, and the backwards compiled so far. Shared by all tapes of one kind."""

    plan: TapePlan
    outputs: tuple[Tensor, ...]
    forward: Runner
    places: dict[SavedTensor, int]  # where in the block each value lies; outputs are in none
    blocks: Blocks
    backwards: dict[BackwardKey, BackwardPlan]
    runners: dict[tuple[BackwardKey, Use], Runner]

    def held(self, plan: BackwardPlan, use: Use) -> list[Held]:
        """The block as a backward finds it."""
        feeds = {saved: number for number, saved in enumerate(plan.reads)}
        return [
            Held(s.name, place, s.nbytes, feeds.get(s), s in use.used_up)
            for s, place in self.places.items()
            if s in use.held or s in use.used_up
        ]


def plan_programs(
    session: Session,
    outputs: Sequence[Tensor],
    feeds: Mapping[Tensor, TensorType],
    memory_budget: int | float | None,
) -> TapePrograms:
    """Plan a tape and compile its forward."""
    plan = plan_tape(session.graph, outputs, feeds, check_numerics=session.check_numerics, memory_budget=memory_budget)
    places, end = {}, 0
    for saved in plan.saved:
        if not saved.is_output:
            places[saved] = end
            end += _room(saved)
    return TapePrograms(plan, tuple(outputs), session.load(plan.forward), places, Blocks(end), {}, {})


def _room(saved: SavedTensor) -> int:
    """The bytes that a value takes in a block, in which each begins at a multiple of the alignment."""
    return -(-saved.nbytes // ALIGNMENT) * ALIGNMENT


def arena_bytes(runner: Runner) -> int:
    """The planned arena of a program; the interpreter plans none."""
    if isinstance(runner, ReferenceRunner):
        return 0
    from staticgrad.runtime.native import NativeRunner

    return runner.interface.arena_bytes if isinstance(runner, NativeRunner) else 0


def may_fail(runner: Runner) -> bool:
    """Whether a run can end in an error after it began."""
    from staticgrad.runtime.native import NativeRunner

    return not isinstance(runner, NativeRunner) or bool(runner.interface.checks)


@frozen
class SavedBuffer:
    """One value that a tape keeps: its size in bytes, whether it is still there, why, and who declared it."""

    name: str
    nbytes: int
    live: bool
    reason: str
    source: SourceLine | None


@frozen
class TapeMemory:
    """What a tape keeps for its backwards, in bytes.

    ``saved_bytes`` was kept by the forward, ``live_bytes`` is still there, ``retain_bytes`` is what of it the backward
    of all outputs gives back and ``retain_graph=True`` keeps. ``peak_bytes`` is the most that was planned to be in use
    at once so far: what is kept and the arenas of the programs that ran, without outputs, feeds, gradients, variables.
    """

    saved_bytes: int
    live_bytes: int
    retain_bytes: int
    peak_bytes: int
    buffers: tuple[SavedBuffer, ...]
    find_prices: Callable[[], tuple[Price, ...]] = field(default=no_prices, repr=False, compare=False)

    @property
    def prices(self) -> tuple[Price, ...]:
        """What each hook, ``retain_grad``, print and ``py_call`` adds to the forward and to a retaining backward of all
        outputs in one traversal: each is left out in turn and the rest compiled again, when first asked for."""
        return self.find_prices()

    def __str__(self) -> str:
        head = (
            f"saved {byte_text(self.saved_bytes)}, live {byte_text(self.live_bytes)}, "
            f"retain_graph=True keeps {byte_text(self.retain_bytes)}, at most {byte_text(self.peak_bytes)} in use"
        )
        rows = [
            (b.name, str(b.nbytes), "live" if b.live else "given back", b.reason, str(b.source or ""))
            for b in self.buffers
        ]
        text = "\n" + table(("value", "bytes", "state", "why", "source"), rows, right=(1,)) if rows else ""
        return head + text + price_table(self.prices)

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
        self._kept = programs.blocks.take()
        self._give_back = weakref.finalize(self, programs.blocks.give, self._kept)
        self._give_back.atexit = False
        self._live: dict[SavedTensor, Array] = {s: self._view(s) for s in programs.places}
        outs: list[Array | None] = [None] * len(plan.forward.fetches)
        for saved, array in self._live.items():
            if saved.origin == "fetched":
                outs[saved.index] = array
            else:
                array[...] = arrays[saved.index]
        results = programs.forward.run(arrays, outs, self._kept)
        self._outputs = dict(zip(programs.outputs, results, strict=False))
        self._live.update((s, results[s.index]) for s in plan.saved if s.is_output)
        self._peak = self._block_bytes() + arena_bytes(programs.forward)

    def _initialized(self, names: Sequence[str]) -> Sequence[str]:
        for name in names:
            self._session.store.array(name)
        return names

    def _view(self, saved: SavedTensor) -> Array:
        place = self._programs.places[saved]
        part = self._kept.block[place : place + saved.nbytes]
        return part.view(saved.type.dtype).reshape(sizes(saved.type.shape))

    def _block_bytes(self) -> int:
        """What of the block is in use."""
        return sum(_room(s) for s in self._live if not s.is_output)

    def __enter__(self) -> Tape:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back everything; later use is refused."""
        self._closed = True
        self._live.clear()
        self._outputs.clear()
        self._give_back()

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
            source = getattr(output, "source", None)
            raise FetchError(f"the tape holds no value of {output!r}, only of its outputs {names}", source=source)
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
        given = [g is not None for g in grads]
        key = tuple(zip(map(id, outputs), given, strict=True))
        while True:
            calls = self._ledger.calls
            passage = self._ledger.admit(outputs, shapes)  # nothing is compiled for what is refused
            freed = self._freed(passage, retain_graph)
            plan, runner, use = self._compile(key, outputs, given, freed)
            with self._session.store.lock.exclusive():
                if self._ledger.calls != calls or (use.used_up and use != self._use(plan, freed)):
                    continue  # another thread has called a backward of this tape meanwhile
                self._check_versions(plan)
                self._run(plan, runner, use, [g for g in grads if g is not None])
                self._ledger.commit(passage, retain_graph)
                self._drop(freed)
                return

    def _freed(self, passage: Passage, retain_graph: bool) -> frozenset[SavedTensor]:
        """What nothing can read after a backward. In a declared order that is whatever the later ones don't read."""
        if retain_graph:
            return frozenset()
        later = self._ledger.later
        if later is None:
            return frozenset(self._ledger.would_free(passage))
        reads = {saved for outputs in later for saved in self._programs.plan.reads(outputs)}
        return frozenset(s for s in self._live if s not in reads)

    def _use(self, plan: BackwardPlan, freed: frozenset[SavedTensor]) -> Use:
        """What a backward may do to the block. Nothing where memory is not shared, or where it may fail (in a callback,
        say): it can be tried again then."""
        calls_out = any(node.op.name != "accumulate_grad" for node in plan.region.effects)
        if calls_out or config.get("MEMORY") != "plan" or config.get("BACKEND") == "reference":
            return Use()
        places = self._programs.places
        here = frozenset(s for s in self._live if s in places)
        used_up = freed & frozenset(plan.reads) & here
        return Use(used_up, here - freed) if used_up else Use()

    def _run(self, plan: BackwardPlan, runner: Runner, use: Use, grads: Sequence[Array]) -> None:
        needed = arena_bytes(runner)
        if use.used_up and needed > self._kept.block.nbytes:
            self._programs.blocks.grow(self._kept, needed)
            self._live.update((s, self._view(s)) for s in self._live if not s.is_output)
        runner.run([*(self._live[s] for s in plan.reads), *grads], None, self._kept)
        self._peak = max(self._peak, needed + (0 if use.used_up else self._block_bytes()))

    def _drop(self, freed: frozenset[SavedTensor]) -> None:
        for saved in freed:
            self._live.pop(saved, None)
        if all(s.is_output for s in self._live):
            self._give_back()

    def _arguments(self, output: Tensor | Sequence[Tensor], grad: Any) -> tuple[list[Tensor], list[Array | None]]:
        if isinstance(output, Tensor):
            outputs, given = [output], [grad]
        else:
            outputs = list(output) if isinstance(output, Sequence) else [output]
            given = [None] * len(outputs) if grad is None else list(grad)
            if len(given) != len(outputs):
                raise GradientError(f"grad: expected {len(outputs)} of them, actual {len(given)}")
        for y in outputs:
            if not isinstance(y, Tensor) or y not in self._outputs:
                names = ", ".join(repr(x.name) for x in self._outputs)
                source = getattr(y, "source", None)
                raise FetchError(f"backward of {y!r}: the tape was made for {names}", source=source)
        grads: list[Array | None] = []
        for y, value in zip(outputs, given, strict=True):
            grads.append(None if value is None else _cotangent(y, value))
        return outputs, grads

    def _compile(
        self, key: BackwardKey, outputs: Sequence[Tensor], given: Sequence[bool], freed: frozenset[SavedTensor]
    ) -> tuple[BackwardPlan, Runner, Use]:
        """Compile a backward, or find it. The state's lock must not be held: another thread may compile and wait for
        it."""
        programs = self._programs
        plan = programs.backwards.get(key)
        if plan is not None:
            use = self._use(plan, freed)
            runner = programs.runners.get((key, use))
            if runner is not None:
                return plan, runner, Use() if use.used_up and may_fail(runner) else use
        with self._session.compiling:
            if plan is None:
                plan = programs.backwards[key] = programs.backwards.get(key) or programs.plan.backward(outputs, given)
            use = self._use(plan, freed)
            runner = programs.runners.get((key, use))
            if runner is None:
                held = programs.held(plan, use) if use.used_up else []
                runner = self._session.load(plan.region, held=held)
                if held and may_fail(runner):
                    runner = self._session.load(plan.region)
                programs.runners[key, use] = runner
            return plan, runner, Use() if use.used_up and may_fail(runner) else use

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
            peak_bytes=self._peak,
            buffers=buffers,
            find_prices=functools.cache(self._prices),
        )

    def _prices(self) -> tuple[Price, ...]:
        if isinstance(self._programs.forward, ReferenceRunner):
            return ()  # the interpreter plans nothing
        return tape_prices(self._programs.plan, self._session.program)
