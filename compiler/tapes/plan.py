"""Tapes: one forward, then any number of backwards, planned before anything runs.

Input: a declared graph, the outputs whose backwards may follow, what is fed and with which sizes. Output: regions
to compile, and which values live between them. Nothing here runs, and the user's graph stays as it is: gradients are
written into a private continuation of it (``Derivation``), hooks included.

How the runtime uses it::

    plan = plan_tape(graph, outputs, {fed tensor: TensorType})   # once for (graph version, outputs, feeds' types)
    plan.forward                 # Region: compile and run once a tape; feeds in the order of the mapping
    plan.forward.fetches         # the outputs, then plan.residuals[i].index for each residual of origin "fetched"
    plan.residuals               # what a tape keeps, with bytes, source line and the declared nodes that save it
    rule = plan.retention(order) # what backwards spend (retention.Retention); for all tapes with this declared order
    ledger = Ledger(rule)        # one for each tape: what is spent, and the residuals that are still kept

    passage = ledger.admit(ys, [None or grad.shape, …], retain_graph)  # raises if it is refused; changes nothing
    back = plan.backward(ys, [grad is not None, …])      # BackwardPlan; derived on first demand, then remembered
    run(back.region, [value of s for s in back.reads] + grads that are given)
    ledger.commit(passage)       # nothing can read what is passage.released any more

Where the value of a residual is found (``Residual.origin``): ``"fetched"``: fetch number ``index`` of the
forward (an output that is read as well has its place there, and costs nothing more); ``"fed"``: the fed array number
``index``, which the tape has to copy. Variables are not saved: a backward reads them as variables, and
``BackwardPlan.variables`` says which, so that the runtime can refuse it when their version changed since the forward
(``plan.variables`` is the union over single outputs). A variable that the forward itself writes is fetched instead.

Effects of the forward (print, py_call, statistics, assigns) are in ``plan.forward`` alone, so they happen once.
The effects of a backward region, in order, are those that hooks declared and ``accumulate_grad`` nodes, whose keys are
``gradient_key(tensor)``: leaves that require a gradient and tensors with ``retain_grad``, after their hooks.
Hooks and the retained set are read when ``plan_tape`` is called.

Sizes may be extents: the plan is then one for all sizes of their ranges. What is kept is chosen by the greatest bytes,
and the open sizes of all regions have the numbers that they have in the feeds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from typing import Literal

from staticgrad.base.errors import GradientError, SourceLine
from staticgrad.base.extents import highest, largest, open_sizes
from staticgrad.base.forks import reentrant_lock
from staticgrad.base.frozen import frozen
from staticgrad.base.types import Bindings, TensorType, bind
from staticgrad.compiler.autodiff.retention import Retention
from staticgrad.compiler.regions.cut import bind_feeds, check_fetches, cut, needed_for
from staticgrad.compiler.regions.interventions import Intervention, interventions
from staticgrad.compiler.regions.region import Region, rebuild
from staticgrad.compiler.tapes.backwards import Backwards
from staticgrad.compiler.tapes.choice import ResidualChoice, choose_within
from staticgrad.compiler.tapes.reads import Derived, Reads
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.optable import FUNCTIONS
from staticgrad.graph.scopes import unscoped
from staticgrad.ops.effects import ACCUMULATE_GRAD, ASSIGN
from staticgrad.ops.sources import FULL, VARIABLE

Origin = Literal["fetched", "fed"]


@frozen(eq=False)
class Residual:
    """A value of the forward that a tape keeps for its backwards.

    ``index`` is a position among the forward's fetches or feeds, as ``origin`` says. ``readers`` are the declared nodes
    whose derivatives read it; when all are spent, nothing can. Without readers it lives as long as its tape (a hook
    reads it, and no rule of retention protects that).
    """

    tensor: Tensor
    type: TensorType
    nbytes: int  # at the greatest sizes
    origin: Origin
    index: int
    readers: frozenset[Node]
    is_output: bool  # the same array as an output of the tape, which lives on with the tape

    @property
    def name(self) -> str:
        return self.tensor.name

    @property
    def source(self) -> SourceLine | None:
        return self.tensor.source

    @property
    def reason(self) -> str:
        """Why it is kept, for reports."""
        if not self.readers:
            return "read by a hook"
        names = sorted(self.readers, key=lambda n: n.serial)
        listed = ", ".join(f"{n.name} ({n.op.backward_name(n)})" for n in names[:3])
        return f"saved by {listed}" + (f" and {len(names) - 3} more" if len(names) > 3 else "")


@frozen(eq=False)
class BackwardPlan:
    """The backward of some outputs: a region whose feeds are ``reads``, each once, then the gradients that are given.

    It fetches nothing; its effects add to the gradients under ``keys``. ``variables`` are the keys of the variables
    that it reads and whose values must be those of the forward.
    """

    outputs: tuple[Tensor, ...]
    region: Region
    reads: tuple[Residual, ...]
    keys: tuple[str, ...]
    variables: tuple[str, ...]


@unscoped()
def plan_tape(
    graph: Graph,
    outputs: Sequence[Tensor],
    feeds: Mapping[Tensor, TensorType],
    *,
    check_numerics: bool = False,
    memory_budget: int | float | None = None,
    without: Intervention | None = None,
    sizes: Bindings | None = None,
) -> TapePlan:
    """Plan a forward of ``outputs`` and everything that their backwards will read.

    Args:
        memory_budget: bytes that saved values should not exceed, or as a float the part of what would be saved
            otherwise; where they would, more is rematerialized in the backward, chosen by minimum cut.
        without: plan as though this hook, retained gradient, print or callback had not been declared.
        sizes: what the feeds bind, where these are extents.

    Raises:
        FetchError, FeedError, GraphError: as ``cut``.
        OpenSizeError: a size has to be known.
        StaticGradError: no choice meets the budget.
    """
    check_fetches(graph, outputs)
    return TapePlan(graph, outputs, feeds, check_numerics, memory_budget, without, sizes)


class TapePlan:
    """See the module's docstring. Holds no values and may be shared by any number of tapes and threads."""

    def __init__(
        self,
        graph: Graph,
        outputs: Sequence[Tensor],
        feeds: Mapping[Tensor, TensorType],
        check_numerics: bool,
        memory_budget: int | float | None,
        without: Intervention | None = None,
        sizes: Bindings | None = None,
    ) -> None:
        self.outputs = tuple(outputs)
        self._base = graph
        self._feeds = dict(feeds)
        self._budget = memory_budget
        self._check_numerics = check_numerics
        self._without = without
        self._lock = reentrant_lock()
        self._fed = {x: index for index, x in enumerate(feeds)}
        self._backwards = Backwards(graph, self._fed, without)
        self._graph = self._backwards.graph
        self._sizes = bind_feeds(self._graph, feeds, sizes)
        derived = self._backwards.of_all(self.outputs)
        written = self._written_variables(feeds)
        self._reads = Reads(self._graph, self._backwards.owners, self._backwards.drawn)
        wanted = self._reads.of(derived)

        def tried(level: int, before: int, outputs: Collection[Tensor]) -> ResidualChoice:
            made = ResidualChoice(self._graph, self._reads, self._fed, outputs, written, level, before)
            made.choose(wanted, self.nbytes)
            return made

        # A plan that is compared with another may need more than its budget.
        choice = choose_within(memory_budget, tried, set(self.outputs), self._graph.first, self.nbytes, without is None)
        self._fetched = [x for x in choice.kept if x not in self._fed and x not in set(self.outputs)]
        self.forward: Region = self._cut_forward()
        self._kept = self._place(choice, wanted, feeds)
        self._choice = choice
        self.residuals: tuple[Residual, ...] = tuple(self._kept.values())
        self.variables: tuple[str, ...] = tuple(
            x.op.attrs.key for x in choice.base_of(wanted) if x.op.op is VARIABLE and choice.is_free(x)
        )

    def interventions(self) -> list[Intervention]:
        """The hooks, retained gradients, prints and callbacks of the forward and of the backward of all outputs."""
        ys = tuple(y for y in dict.fromkeys(self.outputs) if y.requires_grad)
        with self._lock:
            sinks = self._backwards.of(ys).sinks if ys else ()
            return interventions(self._graph, needed_for(self._graph, [*self.outputs, *sinks], self._feeds))

    def without(self, what: Intervention) -> TapePlan:
        """The plan as though ``what`` had not been declared. Hooks and retained gradients are left out where backwards
        are derived, which is done again; any other may be among what a rule has derived here, and is left out where
        regions are cut."""
        if what.hooked is not None or what.retained is not None:
            return TapePlan(
                self._base, self.outputs, self._feeds, self._check_numerics, self._budget, what, self._sizes
            )
        made = copy(self)
        made._without = what
        with self._lock:
            made.forward = made._cut_forward()
        return made

    def at_greatest(self) -> TapePlan:
        """The plan for the greatest sizes of its ranges."""
        types = tuple(self._feeds.values())
        if not open_sizes(types):
            return self
        feeds = dict(zip(self._feeds, largest(types), strict=True))
        return TapePlan(self._base, self.outputs, feeds, self._check_numerics, self._budget, self._without)

    def _cut_forward(self) -> Region:
        fed = set(() if self._without is None else self._without.fed)  # by a callback that is left out, kept as fed
        fetches = [*self.outputs, *(x for x in self._fetched if x not in fed)]
        return cut(
            self._graph, fetches, self._feeds, check_numerics=self._check_numerics, known=self._sizes,
            without=self._without,
        )  # fmt: skip

    def retention(self, order: Sequence[Tensor | Sequence[Tensor]] | None = None) -> Retention[Residual]:
        """The rule of what backwards spend and release. ``order`` is a declared ``backward_order``."""
        shapes = {y: fetch.shape for y, fetch in zip(self.outputs, self.forward.fetches, strict=False)}
        kept = {residual: residual.readers for residual in self.residuals}
        return Retention(self.outputs, kept, order=order, shapes=shapes, ends=self._fed, reads=self.reads)

    @unscoped()
    def backward(
        self,
        outputs: Sequence[Tensor],
        given: Sequence[bool] | None = None,
        inputs: frozenset[Tensor] | None = None,
        known: Bindings | None = None,
    ) -> BackwardPlan:
        """The backward of ``outputs`` in one traversal.

        Args:
            given: parallel to ``outputs``: whether a gradient is handed in (fed after the residuals), or is ones.
            inputs: the tensors that accumulate, leaves or not; None: all leaves.
            known: the numbers of sizes for which it is made, where the plan is one for ranges of them.

        Raises:
            GradientError: an op without a derivative is on the way, or a hook gives no gradient, or reads something
                else than when the tape was planned.
            OpenSizeError: a size has to be known.
        """
        ys = tuple(outputs)
        sizes = {**self._sizes, **known} if known else self._sizes
        with self._lock:
            derived = self._backwards.of(ys, inputs)
            wanted = self._bases(derived)
            first: dict[Residual, Tensor] = {}
            same = {x: first.setdefault(residual, x) for x, residual in wanted.items()}
            feeds: dict[Tensor, TensorType] = {x: residual.type for x, residual in wanted.items()}
            for x in (*(feeds if known else ()), *derived.cotangents):
                feeds[x] = TensorType(bind(x.shape, sizes), x.dtype)
            made = cut(
                self._graph, derived.sinks, feeds, check_numerics=self._check_numerics, known=sizes,
                without=self._without, same=same,
            )  # fmt: skip
        if self._choice.runs_loops_again:
            from staticgrad.compiler.passes.rewind import Level, keeping

            made = keeping(made, Level(most=2, fewer=1))
        region = _with_ones(made, len(first), given or [True] * len(ys))
        keys = (n.attrs.key for n in region.effects if n.op is ACCUMULATE_GRAD)
        return BackwardPlan(
            ys, region, tuple(first), tuple(dict.fromkeys(keys)), self._backwards.variables(derived, feeds)
        )

    def reads(self, outputs: Sequence[Tensor]) -> frozenset[Residual]:
        """The residuals that the backward of ``outputs`` reads."""
        ys = tuple(outputs)
        with self._lock:
            return frozenset(self._bases(self._backwards.of(ys)).values())

    def _bases(self, derived: Derived) -> dict[Tensor, Residual]:
        """The tensors where a backward begins, each with the residual that has its value."""
        found = {}
        for x in self._choice.base_of(self._reads.of([derived]), strict=False):
            residual = self._kept.get(self._reads.same(x))
            if residual is not None:
                found[x] = residual
            elif not self._choice.is_free(x):
                who = "a hook" if self._backwards.hooked else "the backward of these outputs together"
                raise GradientError(
                    f"{who} reads {x.name!r}, which was not read when the tape was planned", source=x.source
                )
        return found

    def _written_variables(self, feeds: Mapping[Tensor, TensorType]) -> frozenset[str]:
        needed = needed_for(self._graph, self.outputs, feeds)
        return frozenset(n.attrs.key for n in needed if n.op is ASSIGN)

    def nbytes(self, x: Tensor) -> int:
        """The bytes of a declared tensor with the sizes of the feeds, at most."""
        return highest(TensorType(bind(x.shape, self._sizes), x.dtype).nbytes)

    def _place(
        self,
        choice: ResidualChoice,
        wanted: Mapping[Tensor, set[Node | None]],
        feeds: Mapping[Tensor, TensorType],
    ) -> dict[Tensor, Residual]:
        readers = choice.readers(wanted)
        position = {x: index for index, x in reversed([*enumerate([*self.outputs, *self._fetched])])}
        placed: dict[Tensor, Residual] = {}
        for x in choice.kept:
            who = readers[x]
            nodes = frozenset() if None in who else frozenset(n for n in who if n is not None)
            if x in self._fed:
                placed[x] = Residual(x, feeds[x], self.nbytes(x), "fed", self._fed[x], nodes, False)
            else:
                type_ = self.forward.fetches[position[x]].type
                is_output = position[x] < len(self.outputs)
                placed[x] = Residual(x, type_, highest(type_.nbytes), "fetched", position[x], nodes, is_output)
        return placed


def _with_ones(region: Region, first: int, given: Sequence[bool]) -> Region:
    """The region without those of its last feeds, from number ``first`` on, that are not given: they are ones."""
    missing = {x.op for x, there in zip(region.feeds[first:], given, strict=False) if not there}  # more: left out
    if not missing:
        return region

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        if node not in missing:
            return None
        (x,) = node.outputs
        return (FUNCTIONS.full(x.shape, 1, dtype=x.dtype),)

    made = rebuild(region, visit)
    feeds = tuple(x for x in made.feeds if x.op.op is not FULL)
    return Region(made.graph, feeds, made.fetches, made.effects)
