"""The tape: one forward that ran, and the backwards that may follow.

Input: a plan of the compiler (which residuals live between the programs) and fed arrays. Output: the outputs' values,
gradients added up in the session. Whether a backward may run is decided by the ledger on the declared graph; what is
kept in memory is what the compiled backwards read.

The residuals lie in one block of memory, the outputs apart. One after the other, a residual is

    kept      from the forward on: backwards read it in the block, and work in an arena of their own
    donated   to the backward that is the last to read it, as that begins: another program, whose arena is the block.
              There it is a buffer that dies like others, among those that stay kept, which are pinned
    released  when that backward has run: nothing can read it any more

The block is released with the last of them, or when the tape is closed. Nothing is donated to a backward that may fail
or runs inside of another one of the tape: residuals that it reads last are released, not donated. Where a backward is
interrupted that something was donated to, the tape is torn, and refuses all further ones.

A plan may serve ranges of sizes. Then so do its programs; residuals lie where they have room at the greatest sizes, for
tapes of all sizes alike, and a backward that cannot be compiled for the ranges is for the sizes of the tape.

Tapes of one kind are a state machine. A state says what earlier backwards have spent (``retention.Spent``); a
transition is a ``LoadedBackward``: the program that runs, what it may do to the block, and the state after it. They are
cached, so that a backward that another tape has had from the same state looks at no graph.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from staticgrad.base import config
from staticgrad.base.boundary import boundary
from staticgrad.base.errors import (
    BuffersFreedError,
    FetchError,
    GradientError,
    StateChangedError,
    StaticGradError,
    refuse_copies,
)
from staticgrad.base.extents import sizer
from staticgrad.base.frozen import frozen
from staticgrad.base.recent import KEPT_PROGRAMS, Recent
from staticgrad.base.tables import abridged, byte_text
from staticgrad.compiler.autodiff.retention import Ledger, Passage, Retention
from staticgrad.compiler.placement.problems import Pinned
from staticgrad.compiler.tapes.plan import BackwardPlan, Residual, TapePlan
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import Array
from staticgrad.ops.effects import ACCUMULATE_GRAD
from staticgrad.runtime.measured.reports import SavedBuffer, TapeMemory
from staticgrad.runtime.running.binding import as_gradient
from staticgrad.runtime.running.kept import Blocks, TapeContext
from staticgrad.runtime.running.reference import ReferenceRunner
from staticgrad.runtime.running.runner import LoadedRunner
from staticgrad.runtime.session.compiler import Compiler

if TYPE_CHECKING:
    from staticgrad.compiler.prices import Price
    from staticgrad.compiler.regions.ranges import Groups, RangeError

Order = Sequence[Tensor | Sequence[Tensor]]
GradShapes = tuple[tuple[int, ...] | None, ...]  # parallel to outputs; None where no gradient is given
Inputs = frozenset[Tensor] | None  # the tensors that accumulate; None: all leaves
BackwardKey = tuple[tuple[int, ...], tuple[bool, ...], Inputs]  # the outputs by id, whether a gradient is given
Known = tuple[int | None, ...]  # the open sizes of a plan, where a backward is for one number


@frozen(eq=False)
class LoadedBackward:
    """A backward from a state, and what follows from the two."""

    passage: Passage[Residual]
    runner: LoadedRunner
    reads: tuple[int, ...]  # places of residuals: in the block, or below zero among the outputs, from their end
    variables: tuple[str, ...]  # that it takes to be those of the forward
    block_bytes: int  # that it needs in the block, if anything is donated to it
    peak_bytes: int  # of all that is kept and its arena
    may_tear: bool  # it may be interrupted when it has overwritten what was donated to it


class TapePrograms:
    """The compiled forward of some outputs, and the backwards compiled so far. Shared by all tapes of one kind. Of a
    plan for ranges, ``groups`` are the symbols of its open sizes by number, and ``at`` gives the programs for some."""

    def __init__(self, compiler: Compiler, plan: TapePlan, groups: Groups = ()) -> None:
        self.compiler = compiler
        self.options = compiler.options()
        self.plan = plan
        self.groups = groups
        self.sizes: tuple[int, ...] = ()  # the open ones
        self.outputs = {y: number for number, y in reversed([*enumerate(plan.outputs)])}
        self.forward = compiler.load(plan.forward, self.options)
        inside = [r for r in plan.residuals if not r.is_output]
        self._places = {r: r.index - len(plan.outputs) for r in plan.residuals if r.is_output}
        self._places.update((r, place) for place, r in enumerate(inside))
        self._fed = [(place, r.index) for place, r in enumerate(inside) if r.origin == "fed"]
        self._fetched = [place for place, r in enumerate(inside) if r.origin == "fetched"]
        self.types = tuple([r.type for r in inside])
        self._types_at = sizer(self.types)
        self.blocks = Blocks(self.types)
        self.peak_bytes = self.blocks.nbytes + self.forward.arena_bytes
        self.runners: dict[tuple[BackwardKey, Known, tuple[Pinned, ...]], LoadedRunner] = {}
        self._plans: dict[tuple[BackwardKey, Known], BackwardPlan] = {}
        self._refused: dict[tuple[BackwardKey, Known, bool], RangeError] = {}
        self._rules: Recent[Retention[Residual]] = Recent(KEPT_PROGRAMS)
        self._backwards: Recent[LoadedBackward] = Recent(KEPT_PROGRAMS)
        self._ranged: Recent[LoadedBackward] = Recent(KEPT_PROGRAMS)  # those for all sizes of the ranges
        self._donates = config.get("BACKEND") != "reference"
        self._poison = config.get("MEMORY") == "poison"

    def at(self, sizes: tuple[int, ...]) -> TapePrograms:
        """The programs for these open sizes; all that is compiled or planned is shared."""
        sized = copy.copy(self)
        sized.sizes = sizes
        sized.types = self._types_at(sizes)
        sized.forward = self.forward.at(sizes)
        sized._backwards = Recent(KEPT_PROGRAMS)
        return sized

    def tape(self, arrays: Sequence[Array], order: Order | None) -> Tape:
        return Tape(self, arrays, order)

    def run(self, arrays: Sequence[Array], context: TapeContext) -> list[Array]:
        """Run the forward: gives the values of the outputs, all other residuals go to the block."""
        values = context.block.values
        if self._poison:
            context.block.poison()
        for place, feed in self._fed:
            values[place][...] = arrays[feed]
        outs = [*[None] * len(self.plan.outputs), *[values[place] for place in self._fetched]]
        return self.forward.run(arrays, outs, context)[: len(self.plan.outputs)]

    def release(self, context: TapeContext, kept: Sequence[Residual]) -> None:
        """Release all residuals but ``kept``; no program of the tape runs any more."""
        if self._poison:
            context.block.poison(keep=[self._places[r] for r in kept if not r.is_output])
        for residual in kept:
            if not residual.is_output:
                return  # it lies in the block
        context.release()

    def rule(self, order: Order | None) -> Retention[Residual]:
        """The rule of what backwards spend when they come in this declared order."""
        key = None if order is None else tuple(id(y) if isinstance(y, Tensor) else tuple(map(id, y)) for y in order)
        return self._rules.get(key) or self._rules.put(key, self.plan.retention(order))

    # -- backwards --------------------------------------------------------------------------------------------------

    def backward(
        self,
        ledger: Ledger[Residual],
        outputs: Sequence[Tensor],
        shapes: GradShapes,
        retain_graph: bool,
        alone: bool,
        inputs: Inputs,
    ) -> LoadedBackward:
        """The backward of ``outputs`` where ``ledger`` stands. The session's lock must not be held: another thread may
        compile and wait for it.

        Args:
            alone: whether no other backward of the tape is running, which may still read what would be donated.

        Raises:
            GradientError, BuffersFreedError: it is refused; nothing is compiled for that.
        """
        asked = (tuple(map(id, outputs)), shapes, inputs, retain_graph, alone)
        backward = self._backwards.get((ledger.state, *asked))
        if backward is None:
            key = (asked[0], tuple([shape is not None for shape in shapes]), inputs)
            found = self._ranged.get((ledger.state, key, retain_graph, alone))
            if found is None:
                passage = ledger.admit(outputs, shapes, retain_graph, inputs)
                found = self.compiler.lock.exclusive(self._compile, key, passage, alone)
            else:  # another tape has had it, of other sizes
                ledger.check(outputs, shapes)
            made = replace(found, runner=found.runner.at(self.sizes)) if self.sizes else found
            backward = self._backwards.put((found.passage.before, *asked), made)
        return backward

    def _compile(self, key: BackwardKey, passage: Passage[Residual], alone: bool) -> LoadedBackward:
        known, plan, pinned, runner = self._served(key, passage, alone)
        arena, is_donated_to = runner.arena_bytes, bool(pinned) and not runner.may_fail
        rooms = (self.blocks.rooms[self._places[r]] for r in passage.before.kept if not r.is_output)
        loaded = LoadedBackward(
            passage,
            runner,
            reads=tuple(self._places[r] for r in plan.reads),
            variables=plan.variables,
            block_bytes=arena if is_donated_to else 0,
            peak_bytes=arena if is_donated_to else arena + sum(rooms),
            may_tear=runner.may_be_interrupted and is_donated_to,
        )
        if known and set(known) == {None}:
            self._ranged.put((passage.before, key, passage.retain_graph, alone), loaded)
        return loaded

    def _served(
        self, key: BackwardKey, passage: Passage[Residual], alone: bool
    ) -> tuple[Known, BackwardPlan, tuple[Pinned, ...], LoadedRunner]:
        """A backward: for all sizes of the ranges; where it is refused for them, for the numbers that the sizes in
        question have in this tape, and so on."""
        known: Known = (None,) * len(self.sizes)
        while None in known:
            refused = self._refused.get((key, known, alone))
            if refused is None:
                from staticgrad.compiler.regions.ranges import RangeError, naming

                try:
                    with naming(self.groups):
                        return self._loaded(key, passage, alone, known)
                except RangeError as error:
                    refused = error
                except GradientError:
                    raise
                except StaticGradError as error:  # what is wrong is said by numbers
                    refused = RangeError(str(error), frozenset(symbol for group in self.groups for symbol in group))
                self._refused[key, known, alone] = refused
            numbers = zip(self.groups, self.sizes, known, strict=True)
            known = tuple([k if refused.symbols.isdisjoint(group) else n for group, n, k in numbers])
        return self._loaded(key, passage, alone, known)

    def _loaded(
        self, key: BackwardKey, passage: Passage[Residual], alone: bool, known: Known
    ) -> tuple[Known, BackwardPlan, tuple[Pinned, ...], LoadedRunner]:
        """A backward for the ranges of its sizes but for those that are known."""
        plan = self._plans.get((key, known))
        if plan is None:
            numbers = zip(self.groups, known, strict=True)
            bound = {symbol: number for group, number in numbers if number is not None for symbol in group}
            plan = self._plans[key, known] = self.plan.backward(passage.outputs, key[1], passage.inputs, bound)
        pinned = self._pinned(plan, passage) if alone else ()
        runner = self.runners.get((key, known, pinned))
        if runner is None:
            runner = self.runners[key, known, pinned] = self._load(plan, pinned)
        return known, plan, pinned, runner

    def _pinned(self, plan: BackwardPlan, passage: Passage[Residual]) -> tuple[Pinned, ...]:
        """The residuals in the block while a backward works there: those that it reads, released ones as donated, and
        those that stay kept. None where nothing is donated: it calls functions, in which it may fail, to be tried again
        then."""
        if not self._donates or any(node.op is not ACCUMULATE_GRAD for node in plan.region.effects):
            return ()
        read = {r: feed for feed, r in enumerate(plan.reads)}
        feeds: list[tuple[Residual, int | None]] = [*read.items()]
        feeds += [(r, None) for r in passage.after.kept if r not in read]
        pinned = tuple(
            Pinned(r.name, self.blocks.offsets[self._places[r]], r.nbytes, feed, r in passage.released)
            for r, feed in feeds
            if r.nbytes and not r.is_output
        )
        return pinned if any(value.donated for value in pinned) else ()

    def _load(self, plan: BackwardPlan, pinned: Sequence[Pinned]) -> LoadedRunner:
        """Compile a backward; one that turns out to be able to fail leaves the block alone."""
        runner = self.compiler.load(plan.region, self.options, pinned)
        return self.compiler.load(plan.region, self.options) if pinned and runner.may_fail else runner


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
        "__weakref__", "_closed", "_context", "_ledger", "_peak_bytes", "_programs", "_running", "_store", "_values",
        "_writes",
    )  # fmt: skip

    __reduce_ex__ = refuse_copies("a tape", "run sess.forward again, or keep the values of its outputs (tape[output])")

    def __init__(self, programs: TapePrograms, arrays: Sequence[Array], order: Order | None = None) -> None:
        """Tapes are made by ``sess.forward``."""
        self._store = programs.compiler.store
        self._programs = programs
        self._ledger = Ledger(programs.rule(order), programs.sizes)
        self._closed = False
        self._running = 0  # backwards: one that a hook calls runs inside of another
        # A variable written between here and the forward counts as changed since: on the safe side of the race.
        self._writes = self._store.writes
        self._context = programs.blocks.take(programs.types)
        self._values = programs.run(arrays, self._context)  # of the outputs
        self._peak_bytes = programs.peak_bytes
        self._context.raise_late()

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
        self._values = []
        if not self._running:  # or else the backward that runs will see that the tape is closed
            self._context.release()

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
            found = self._programs.backward(self._ledger, outputs, shapes, bool(retain_graph), not self._running, ends)
            is_done = self._store.lock.exclusive(self._run, found, given)

    def _run(self, backward: LoadedBackward, grads: Sequence[Array]) -> bool:
        """Run a backward; the state's lock is held. False where it begins from another state than the tape's: another
        thread has called a backward meanwhile."""
        context, values, ledger = self._context, self._values, self._ledger
        if ledger.ran:  # done, though an exception ended its call before it was counted
            ledger.settle()
        if backward.passage.before is not ledger.state:
            return False
        self._running += 1  # before it looks whether the tape is open: ``close`` does the two the other way round
        try:
            self._check_open()
            if ledger.begun:
                raise ledger.torn()
            self._check_unchanged(backward.variables)
            if backward.block_bytes > context.block.memory.nbytes:
                self._programs.blocks.grow(context, backward.block_bytes)
            values = [*context.block.values, *values]
            context.then = partial(ledger.ran.append, backward.passage)
            context.first = partial(ledger.begun.append, backward.passage) if backward.may_tear else None
            backward.runner.run([*[values[place] for place in backward.reads], *grads], None, context)
        finally:
            ledger.settle()
            if self._running == 1:
                self._programs.release(context, ledger.state.kept)
            self._running -= 1
            if self._closed and not self._running:
                context.release()
        if backward.peak_bytes > self._peak_bytes:
            self._peak_bytes = backward.peak_bytes
        context.raise_late()
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
        live, saved = (sum(r.nbytes for r in values) for values in (self._live, self._programs.plan.residuals))
        return f"<tape of {names}, {byte_text(live)} live of {byte_text(saved)} saved>"

    @property
    def _live(self) -> frozenset[Residual]:
        return frozenset(() if self._closed else self._ledger.state.kept)

    @property
    def memory(self) -> TapeMemory:
        """A report of what the tape keeps now, with ``saved_bytes``, ``live_bytes``, ``retain_bytes`` (what
        ``retain_graph=True`` costs), ``buffers``; ``str()`` is a table, ``plot(path)`` draws it. Of a tape whose
        programs serve a range of sizes bytes are those at its maximum, which is what the block has room for.

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
        residuals, live = self._programs.plan.residuals, self._live
        return TapeMemory(
            saved_bytes=sum(r.nbytes for r in residuals),
            live_bytes=sum(r.nbytes for r in live),
            retain_bytes=sum(r.nbytes for r in live if r.readers),
            peak_bytes=self._peak_bytes,
            buffers=tuple(SavedBuffer(r.name, r.nbytes, r in live, r.reason, r.source) for r in residuals),
            find_prices=functools.cache(self._prices),
        )

    def _prices(self) -> tuple[Price, ...]:
        from staticgrad.compiler.prices import tape_prices

        if isinstance(self._programs.forward, ReferenceRunner):
            return ()  # the interpreter plans nothing
        return tape_prices(self._programs.plan, self._programs.options)
