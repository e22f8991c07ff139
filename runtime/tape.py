"""The tape: one forward that ran, and the backwards that may follow.

Input: a plan of the compiler (which values live between the programs) and fed arrays. Output: the outputs'
values, gradients added up in the session. Whether a backward may run is decided by the ledger on the declared graph;
what is kept in memory is what the compiled backwards read.

What is kept lies in one block of memory, the outputs apart. A backward that retains reads it there and works in an
arena of its own. A backward that consumes is another program: its arena is the block, in which what it is the last to
read is a buffer that dies like others, and its temporaries take that place. The block goes on to the next tape.

Tapes of one kind are a state machine. A state says what earlier backwards have spent (``retention.Spent``); a *step* is
a backward from a state: the program that runs, what it may do to the block, and the state after it. Steps are kept, so
a backward that another tape has had from the same state looks at no graph.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from staticgrad import config
from staticgrad.boundary import boundary
from staticgrad.compiler.autodiff.retention import Ledger, Passage, Retention
from staticgrad.compiler.memory.problems import Pinned
from staticgrad.compiler.tapes.plan import BackwardPlan, SavedTensor, TapePlan
from staticgrad.errors import BuffersFreedError, FetchError, GradientError, StateChangedError, refuse_copies
from staticgrad.frozen import frozen
from staticgrad.graph import Tensor
from staticgrad.ops.effects import ACCUMULATE_GRAD
from staticgrad.optable import Array
from staticgrad.runtime.binding import as_gradient
from staticgrad.runtime.compiler import Compiler
from staticgrad.runtime.kept import Blocks, Kept
from staticgrad.runtime.recent import KEPT_PROGRAMS, Recent
from staticgrad.runtime.reference import ReferenceRunner
from staticgrad.runtime.reports import SavedBuffer, TapeMemory
from staticgrad.runtime.runner import LoadedRunner
from staticgrad.tables import abridged, byte_text

if TYPE_CHECKING:
    from staticgrad.compiler.prices import Price

Order = Sequence[Tensor | Sequence[Tensor]]
GradShapes = tuple[tuple[int, ...] | None, ...]  # parallel to outputs; None where no gradient is given
Inputs = frozenset[Tensor] | None  # the tensors that accumulate; None: all leaves
BackwardKey = tuple[tuple[int, ...], GradShapes, Inputs]  # the outputs by id


@frozen
class Use:
    """The effect of a backward on the block: which values it uses up, and which others lie there meanwhile."""

    used_up: frozenset[SavedTensor] = frozenset()
    held: frozenset[SavedTensor] = frozenset()


@frozen(eq=False)
class BackwardStep:
    """A backward from a state, and what follows from the two."""

    passage: Passage[SavedTensor]
    runner: LoadedRunner
    reads: tuple[int, ...]  # places of values: in the block, or below zero among the outputs, from their end
    variables: tuple[str, ...]  # that it takes to be those of the forward
    block_bytes: int  # that it needs in the block
    peak_bytes: int  # of all that is kept and its arena
    is_last: bool  # nothing in the block can be read after it
    may_tear: bool  # it works in the block, and may be interrupted there


class TapePrograms:
    """The compiled forward of some outputs, and the backwards compiled so far. Shared by all tapes of one kind."""

    def __init__(self, compiler: Compiler, plan: TapePlan) -> None:
        self.compiler = compiler
        self.options = compiler.options()
        self.plan = plan
        self.outputs = {y: number for number, y in reversed([*enumerate(plan.outputs)])}
        self.forward = compiler.load(plan.forward, self.options)
        self._inside = tuple(s for s in plan.saved if not s.is_output)
        self._places = {s: s.index - len(plan.outputs) for s in plan.saved if s.is_output}
        self._places.update((s, place) for place, s in enumerate(self._inside))
        self._fed = [(place, s.index) for place, s in enumerate(self._inside) if s.origin == "fed"]
        self._fetched = [place for place, s in enumerate(self._inside) if s.origin == "fetched"]
        self.blocks = Blocks([s.type for s in self._inside])
        self.peak_bytes = self._block_bytes(plan.saved) + self.forward.arena_bytes
        self.runners: dict[tuple[BackwardKey, Use], LoadedRunner] = {}
        self._backwards: dict[BackwardKey, BackwardPlan] = {}
        self._rules: Recent[Retention[SavedTensor]] = Recent(KEPT_PROGRAMS)
        self._steps: Recent[BackwardStep] = Recent(KEPT_PROGRAMS)
        self._works_in_block = config.get("BACKEND") != "reference"
        self._poison = config.get("MEMORY") == "poison"

    def tape(self, arrays: Sequence[Array], order: Order | None) -> Tape:
        return Tape(self, arrays, order)

    def run(self, arrays: Sequence[Array], kept: Kept) -> list[Array]:
        """Run the forward: gives the values of the outputs, all else that is saved goes to the block."""
        values = kept.block.values
        if self._poison:
            kept.block.poison()
        for place, feed in self._fed:
            values[place][...] = arrays[feed]
        outs = [*[None] * len(self.plan.outputs), *[values[place] for place in self._fetched]]
        return self.forward.run(arrays, outs, kept)[: len(self.plan.outputs)]

    def freed(self, kept: Kept, held: Sequence[SavedTensor]) -> None:
        """Note that nothing but ``held`` can be read any more."""
        if self._poison:
            kept.block.poison(keep=[self._places[s] for s in held if not s.is_output])

    def rule(self, order: Order | None) -> Retention[SavedTensor]:
        """The rule of what backwards spend when they come in this declared order."""
        key = None if order is None else tuple(id(y) if isinstance(y, Tensor) else tuple(map(id, y)) for y in order)
        return self._rules.get(key) or self._rules.put(key, self.plan.retention(order))

    # -- steps ------------------------------------------------------------------------------------------------------

    def step(
        self,
        ledger: Ledger[SavedTensor],
        outputs: Sequence[Tensor],
        shapes: GradShapes,
        retain_graph: bool,
        alone: bool,
        inputs: Inputs,
    ) -> BackwardStep:
        """The backward of ``outputs`` where ``ledger`` stands. The session's lock must not be held: another thread may
        compile and wait for it.

        Args:
            alone: whether no other backward of the tape is running, which may still read what this one uses up.

        Raises:
            GradientError, BuffersFreedError: it is refused; nothing is compiled for that.
        """
        backward = (tuple(map(id, outputs)), shapes, inputs)
        step = self._steps.get((ledger.state, backward, retain_graph, alone))
        if step is None:
            passage = ledger.admit(outputs, shapes, retain_graph, inputs)
            compiled = self.compiler.lock.exclusive(self._compile, backward, passage, alone)
            step = self._steps.put((passage.before, backward, retain_graph, alone), compiled)
        return step

    def _compile(self, key: BackwardKey, passage: Passage[SavedTensor], alone: bool) -> BackwardStep:
        plan = self._backwards.get(key)
        if plan is None:
            given = [shape is not None for shape in key[1]]
            plan = self._backwards[key] = self.plan.backward(passage.outputs, given, passage.inputs)
        use = self._use(plan, passage) if alone else Use()
        runner = self.runners.get((key, use))
        if runner is None:
            runner = self.runners[key, use] = self._load(plan, use)
        arena = runner.arena_bytes
        uses_up = bool(use.used_up) and not runner.may_fail
        return BackwardStep(
            passage,
            runner,
            reads=tuple(self._places[s] for s in plan.reads),
            variables=plan.variables,
            block_bytes=arena if uses_up else 0,
            peak_bytes=arena if uses_up else arena + self._block_bytes(passage.before.held),
            is_last=all(s.is_output for s in passage.after.held),
            may_tear=runner.may_be_interrupted and uses_up,
        )

    def _use(self, plan: BackwardPlan, passage: Passage[SavedTensor]) -> Use:
        """The effect that a backward may have on the block: none where it may fail (in a callback, say), as it can be
        tried again then."""
        calls_out = any(node.op is not ACCUMULATE_GRAD for node in plan.region.effects)
        if calls_out or not self._works_in_block:
            return Use()
        here = frozenset(s for s in passage.before.held if not s.is_output)
        used_up = here.intersection(plan.reads).difference(passage.after.held)
        return Use(used_up, here.intersection(passage.after.held)) if used_up else Use()

    def _load(self, plan: BackwardPlan, use: Use) -> LoadedRunner:
        """Compile a backward; one that turns out to be able to fail leaves the block alone."""
        if use.used_up:
            runner = self.compiler.load(plan.region, self.options, self._held(plan, use))
            if not runner.may_fail:
                return runner
        return self.compiler.load(plan.region, self.options)

    def _held(self, plan: BackwardPlan, use: Use) -> list[Pinned]:
        """The values in the block: each value that the backward reads by each of its feeds, and those that it does not
        read."""
        read = [(saved, number) for number, saved in enumerate(plan.reads) if not saved.is_output]
        others = [(saved, None) for saved in self._inside if saved in use.held.difference(plan.reads)]
        return [
            Pinned(s.name, self.blocks.offsets[self._places[s]], s.nbytes, feed, s in use.used_up)
            for s, feed in [*read, *others]
            if s.nbytes
        ]

    def _block_bytes(self, saved: Sequence[SavedTensor]) -> int:
        """The bytes that some values take in the block."""
        return sum(self.blocks.rooms[self._places[s]] for s in saved if not s.is_output)


class Tape:
    """A forward that ran. ``tape[output]`` is an output's value; ``backward`` adds gradients to the session.

    Use it in ``with``, or let it go: either gives back everything it keeps.

    Example:
        >>> w = sg.Variable([1.0, 2.0])
        >>> loss = sg.sum(w**2)
        >>> sess = sg.Session()
        >>> tape = sess.forward(loss)
        >>> tape[loss]
        array(5., dtype=float32)
        >>> tape.backward(loss)
        >>> sess.grad(w)
        array([2., 4.], dtype=float32)
    """

    __slots__ = (
        "__weakref__", "_begun", "_closed", "_kept", "_ledger", "_peak_bytes", "_programs", "_running", "_store",
        "_values",
        "_writes",
    )  # fmt: skip

    __reduce_ex__ = refuse_copies("a tape", "run sess.forward again, or keep the values of its outputs (tape[output])")

    def __init__(self, programs: TapePrograms, arrays: Sequence[Array], order: Order | None = None) -> None:
        """Tapes are made by ``sess.forward``."""
        self._store = programs.compiler.store
        self._programs = programs
        self._ledger = Ledger(programs.rule(order))
        self._closed = False
        self._running = 0  # backwards: one that a hook calls runs inside of another
        self._begun: list[bool] = []  # not empty from when a backward that can be torn begins until it has run
        # A variable written between here and the forward counts as changed since: on the safe side of the race.
        self._writes = self._store.writes
        self._kept = programs.blocks.take()
        self._values = programs.run(arrays, self._kept)  # of the outputs
        self._peak_bytes = programs.peak_bytes
        self._kept.raise_late()

    def __enter__(self) -> Tape:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back everything; later use is refused.

        Example:
            >>> w = sg.Variable(3.0)
            >>> tape = sg.Session().forward(loss := w**2)
            >>> tape.close()
            >>> tape.backward(loss)
            Traceback (most recent call last):
                ...
            staticgrad.errors.BuffersFreedError: the tape is closed: its values were given back
        """
        self._closed = True
        self._kept, self._values = self._kept.without_block(), []

    def _check_open(self) -> None:
        self._store.check_open()
        if self._closed:
            raise BuffersFreedError("the tape is closed: its values were given back")

    @boundary
    def __getitem__(self, output: Tensor) -> Array:
        """The value of one of the outputs that the tape was made for, a fresh array.

        Raises:
            FetchError: any other tensor.
        """
        values = self._values
        self._check_open()
        number = self._programs.outputs.get(output) if isinstance(output, Tensor) else None
        if number is None:
            names = ", ".join(repr(x.name) for x in self._programs.outputs)
            source = getattr(output, "source", None)
            raise FetchError(f"the tape holds no value of {output!r}, only of its outputs {names}", source=source)
        return values[number].copy()

    # -- backward ---------------------------------------------------------------------------------------------------

    @boundary
    def backward(
        self,
        output: Tensor | Sequence[Tensor] | None = None,
        grad: Any = None,
        retain_graph: bool = False,
        *,
        inputs: Tensor | Sequence[Tensor] | None = None,
        create_graph: bool = False,
    ) -> None:
        """Add the gradients of one output, or of several in one traversal, to those of the session.

        They are those of the leaves that require one, of tensors with ``retain_grad``, and of fed tensors that require
        one, which are leaves of this tape.

        Args:
            output: one of the outputs that the tape was made for, or several; default: the one that it has.
            grad: the output's cotangent (a sequence parallel to a list of outputs); None is one, for an output of a
                single element.
            retain_graph: keep what this backward read, so that it may be repeated.
            inputs: add to the gradients of these tensors alone, leaves or not. Only what leads to them is passed and
                spent, hooks on the way included.
            create_graph: refused: what is derived is derived again by ``sg.gradients``, before anything runs.

        Raises:
            FetchError: it is no output of this tape, or it is left out and the tape has several.
            GradientError: no gradient flows to the output, it has several elements and no ``grad``, or ``grad`` has
                another shape or dtype; an input does not require a gradient.
            BuffersFreedError: an earlier backward gave back what this one would read.
            StateChangedError: a variable that it reads was written since the forward. Nothing has run or changed.

        Example:
            >>> w = sg.Variable([1.0, 2.0])
            >>> y = w * w
            >>> sess = sg.Session()
            >>> with sess.forward(y) as tape:
            ...     tape.backward(y, grad=[1.0, 0.0], retain_graph=True)
            ...     tape.backward(y, grad=[0.0, 10.0])
            >>> sess.grad(w)
            array([ 2., 40.], dtype=float32)
        """
        self._check_open()
        if create_graph:
            raise GradientError(
                "backward runs a compiled program and creates no graph: declare sg.gradients(output, xs), whose"
                " results are tensors that can be derived again, and make the tape of these"
            )
        outputs, grads = self._arguments(self._only_output() if output is None else output, grad)
        ends = None if inputs is None else self._ends(inputs)
        shapes = tuple([None if g is None else g.shape for g in grads])
        given, is_done = [g for g in grads if g is not None], False
        while not is_done:
            step = self._programs.step(self._ledger, outputs, shapes, bool(retain_graph), not self._running, ends)
            is_done = self._store.lock.exclusive(self._take, step, given)

    def _take(self, step: BackwardStep, grads: Sequence[Array]) -> bool:
        """Run a backward; the state's lock is held. False where it begins from another state than the tape's: another
        thread has called a backward meanwhile."""
        kept, values, ledger = self._kept, self._values, self._ledger
        if ledger.ran:  # done, though an exception ended its call before it was counted
            ledger.settle()
            self._begun.clear()
        if step.passage.before is not ledger.state:
            return False
        self._check_open()
        if self._begun:
            raise BuffersFreedError(
                "an earlier backward was interrupted (Ctrl-C, a time limit) while it used up this tape's values; no"
                " gradient has changed: run the forward again, or pass retain_graph=True"
            )
        self._check_unchanged(step.variables)
        if step.block_bytes > kept.block.memory.nbytes:
            self._programs.blocks.grow(kept, step.block_bytes)
        values = [*kept.block.values, *values]
        kept.then = partial(ledger.ran.append, step.passage)
        kept.first = partial(self._begun.append, True) if step.may_tear else None
        self._running += 1
        try:
            step.runner.run([*[values[place] for place in step.reads], *grads], None, kept)
        finally:
            self._running -= 1
        ledger.settle()
        self._begun.clear()
        if not self._running:
            self._programs.freed(kept, ledger.state.held)
        self._peak_bytes = max(self._peak_bytes, step.peak_bytes)
        if step.is_last:
            self._kept = kept.without_block()
        kept.raise_late()
        return True

    def _only_output(self) -> Tensor:
        outputs = [*dict.fromkeys(self._programs.plan.outputs)]
        if len(outputs) != 1:
            names = ", ".join(repr(x.name) for x in outputs)
            raise FetchError(f"backward: the tape has {len(outputs)} outputs: pass one of them ({names}), or a list")
        return outputs[0]

    def _arguments(
        self, output: Tensor | Sequence[Tensor], grad: Any
    ) -> tuple[Sequence[Tensor], Sequence[Array | None]]:
        if isinstance(output, Tensor):
            outputs, given = [output], [grad]
        else:
            outputs = list(output) if isinstance(output, Sequence) else [output]
            given = [None] * len(outputs) if grad is None else list(grad)
            if len(given) != len(outputs):
                raise GradientError(f"grad: expected {len(outputs)} of them, actual {len(given)}")
        for y in outputs:
            if not isinstance(y, Tensor) or y not in self._programs.outputs:
                names = ", ".join(repr(x.name) for x in self._programs.outputs)
                source = getattr(y, "source", None)
                raise FetchError(f"backward of {y!r}: the tape was made for {names}", source=source)
        named = zip(outputs, given, strict=True)
        return outputs, [None if g is None else as_gradient(y, g, f"gradient of output {y.name!r}") for y, g in named]

    def _ends(self, inputs: Tensor | Sequence[Tensor]) -> frozenset[Tensor]:
        """The tensors that shall accumulate."""
        found = [inputs] if isinstance(inputs, Tensor) else list(inputs)
        if not found:
            raise GradientError("backward: inputs cannot be empty: leave them out to accumulate for all leaves")
        for x in found:
            if not isinstance(x, Tensor) or x.op.graph is not self._store.graph:
                raise FetchError(f"inputs: {x!r} is no tensor of this graph", source=getattr(x, "source", None))
            if not x.requires_grad:
                raise GradientError(f"one of the inputs does not require grad: {x.name!r}", source=x.source)
        return frozenset(found)

    def _check_unchanged(self, variables: Sequence[str]) -> None:
        store = self._store
        if store.writes == self._writes:
            return
        for name in variables:
            if (last := store.version(name)) > self._writes:
                raise StateChangedError(
                    f"variable {name!r} was written after this tape's forward, and the backward reads it\n"
                    f"  expected write number {self._writes} or an earlier one to be its last\n"
                    f"  actual   number {last}",
                    source=store.graph.variables[name].source,
                )

    # -- reports ----------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        names = abridged([y.name for y in self._programs.outputs])
        if self._closed:
            return f"<tape of {names}, closed>"
        live, saved = (sum(s.nbytes for s in values) for values in (self._held, self._programs.plan.saved))
        return f"<tape of {names}, {byte_text(live)} live of {byte_text(saved)} saved>"

    @property
    def _held(self) -> frozenset[SavedTensor]:
        return frozenset(() if self._closed else self._ledger.state.held)

    @property
    def memory(self) -> TapeMemory:
        """A report of what the tape keeps now, with ``saved_bytes``, ``live_bytes``, ``retain_bytes`` (what
        ``retain_graph=True`` costs), ``buffers``; ``str()`` is a table, ``plot(path)`` draws it.

        Example:
            >>> w = sg.Variable(np.ones(1000, np.float32))
            >>> loss = sg.sum(sg.exp(w))
            >>> tape = sg.Session().forward(loss)
            >>> tape.memory.saved_bytes
            4000
            >>> tape.backward(loss)
            >>> tape.memory.live_bytes
            0
        """
        saved, held = self._programs.plan.saved, self._held
        return TapeMemory(
            saved_bytes=sum(s.nbytes for s in saved),
            live_bytes=sum(s.nbytes for s in held),
            retain_bytes=sum(s.nbytes for s in held if s.readers),
            peak_bytes=self._peak_bytes,
            buffers=tuple(SavedBuffer(s.name, s.nbytes, s in held, s.reason, s.source) for s in saved),
            find_prices=functools.cache(self._prices),
        )

    def _prices(self) -> tuple[Price, ...]:
        from staticgrad.compiler.prices import tape_prices

        if isinstance(self._programs.forward, ReferenceRunner):
            return ()  # the interpreter plans nothing
        return tape_prices(self._programs.plan, self._programs.options)
