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

import contextlib
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from typing import Literal

from staticgrad.base.errors import GradientError, MemoryBudgetWarning, SourceLine, at_source, warn
from staticgrad.base.extents import highest, largest, open_sizes
from staticgrad.base.forks import reentrant_lock
from staticgrad.base.frozen import frozen
from staticgrad.base.types import Bindings, TensorType, bind
from staticgrad.compiler.autodiff.residuals import Remat, remat
from staticgrad.compiler.autodiff.retention import Retention, passed_nodes
from staticgrad.compiler.autodiff.reverse import backpropagate, finisher
from staticgrad.compiler.autodiff.saves import saves
from staticgrad.compiler.regions.cut import bind_feeds, check_fetches, cut, needed_for
from staticgrad.compiler.regions.interventions import Intervention, interventions
from staticgrad.compiler.regions.region import Region, rebuild
from staticgrad.compiler.tapes.choice import ResidualChoice
from staticgrad.compiler.tapes.reads import Derived, Reads
from staticgrad.graph.graph import Derivation, Graph, Node, Tensor
from staticgrad.graph.hooks import AccumulationHook, HookCall
from staticgrad.graph.optable import FUNCTIONS
from staticgrad.graph.scopes import isolated, unscoped
from staticgrad.ops.effects import ACCUMULATE_GRAD, ASSIGN, BOUNDS_CHECK
from staticgrad.ops.sources import ACCUMULATED_GRAD, FULL, PLACEHOLDER, VARIABLE, SourceAttributes, accumulated_grad

_APART = 8  # outputs up to which each is derived by itself when a tape is planned
_BISECTIONS = 6  # of where in the graph repeating ends; each costs a minimum cut

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
        self._graph = Derivation(graph)
        self._fed = {x: index for index, x in enumerate(feeds)}
        self._sizes = bind_feeds(self._graph, feeds, sizes)
        tensors = [y for node in self._graph.nodes for y in node.outputs]
        self._hooks = {x: x.hooks for x in tensors if x.hooks}
        self._after = {x: x.accumulation_hooks for x in tensors if x.accumulation_hooks}
        self._retained = {x for x in tensors if x.retains_grad}
        if without is not None:
            self._leave_out(without)
        self._owners: dict[Node, Node | None] = {}  # of derived nodes: the declared node whose rule made it
        self._hooked: set[Node] = set()  # what hooks declared
        self._drawn: set[Node] = set()  # effects and draws of hooks: they happen in the backward
        self._again: dict[Node, Node] = {}  # what hooks declared, as the traversal that is derived now has it
        self._known: dict[tuple[tuple[Tensor, ...], frozenset[Tensor]], Derived] = {}
        derived = self._derive_all()
        self._written = self._written_variables(feeds)
        self._reads = Reads(self._graph, self._owners, self._drawn)
        wanted = self._reads.of(derived)
        choice = self._choose(wanted, memory_budget)
        self._fetched = [x for x in choice.kept if x not in self._fed and x not in set(self.outputs)]
        self.forward: Region = self._cut_forward()
        self._kept = self._place(choice, wanted, feeds)
        self._choice = choice
        self.residuals: tuple[Residual, ...] = tuple(self._kept.values())
        self.variables: tuple[str, ...] = tuple(
            x.op.attrs.key for x in choice.base_of(wanted) if x.op.op is VARIABLE and choice.is_free(x)
        )

    def _leave_out(self, what: Intervention) -> None:
        self._retained.discard(what.retained)
        if what.hooked in self._hooks:
            self._hooks[what.hooked] = tuple(h for h in self._hooks[what.hooked] if h is not what.hook)
        if what.hooked in self._after:
            self._after[what.hooked] = tuple(h for h in self._after[what.hooked] if h.function is not what.hook)

    def interventions(self) -> list[Intervention]:
        """The hooks, retained gradients, prints and callbacks of the forward and of the backward of all outputs."""
        ys = tuple(y for y in dict.fromkeys(self.outputs) if y.requires_grad)
        with self._lock:
            sinks = self._derived(ys).sinks if ys else ()
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
            derived = self._derived(ys, inputs)
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
        region = _with_ones(made, len(first), given or [True] * len(ys))
        keys = (n.attrs.key for n in region.effects if n.op is ACCUMULATE_GRAD)
        return BackwardPlan(ys, region, tuple(first), tuple(dict.fromkeys(keys)), self._variables(derived, feeds))

    def _variables(self, derived: Derived, feeds: Collection[Tensor]) -> tuple[str, ...]:
        """The variables whose values a backward takes to be those of the forward. What a hook itself reads is no such
        variable: hooks belong to the backward, and may count in one."""
        found: dict[str, None] = {}
        stack, seen = list(derived.sinks), set(derived.sinks)
        while stack:
            node = stack.pop()
            operands = [x for x in node.value_inputs if x not in feeds]
            if node not in self._hooked:
                found.update((x.op.attrs.key, None) for x in operands if x.op.op is VARIABLE)
            for before in (*(x.op for x in operands), *node.control):
                if before not in seen:
                    seen.add(before)
                    stack.append(before)
        return tuple(found)

    def reads(self, outputs: Sequence[Tensor]) -> frozenset[Residual]:
        """The residuals that the backward of ``outputs`` reads."""
        ys = tuple(outputs)
        with self._lock:
            return frozenset(self._bases(self._derived(ys)).values())

    def _bases(self, derived: Derived) -> dict[Tensor, Residual]:
        """The tensors where a backward begins, each with the residual that has its value."""
        found = {}
        for x in self._choice.base_of(self._reads.of([derived]), strict=False):
            residual = self._kept.get(self._reads.same(x))
            if residual is not None:
                found[x] = residual
            elif not self._choice.is_free(x):
                who = "a hook" if self._hooked else "the backward of these outputs together"
                raise GradientError(
                    f"{who} reads {x.name!r}, which was not read when the tape was planned", source=x.source
                )
        return found

    # -- deriving -------------------------------------------------------------------------------------------------

    def _derive_all(self) -> list[Derived]:
        """The backwards that together read all that a backward of any of the outputs can read: each output's is derived
        by itself, as it is most often asked for, so that its hooks need not run again; very many are derived together.
        So are those that lead to different results of one op, whose derivative may read more of it, or choose otherwise
        what is stacked. Where an op has no derivative a backward will say so, if one is asked for."""
        ys = tuple(y for y in dict.fromkeys(self.outputs) if y.requires_grad)
        if len(ys) > _APART:
            with contextlib.suppress(GradientError):
                return [self._derived(ys)]
        derived = []
        groups = self._meeting(ys) if len(ys) > 1 else []
        for asked in (*groups, *((y,) for y in ys)):
            with contextlib.suppress(GradientError):
                derived.append(self._derived(asked))
        return derived

    def _meeting(self, outputs: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
        """The groups of outputs whose backwards come to different results of one op."""
        results: list[dict[Node, set[int]]] = []
        for y in outputs:
            found: dict[Node, set[int]] = {}
            for x in self._passed((y,)):
                if len(x.op.outputs) > 1:
                    found.setdefault(x.op, set()).add(x.index)
            results.append(found)
        groups: list[set[int]] = []
        for number, found in enumerate(results):
            met = [g for g in groups if any(_differ(found, results[other]) for other in g)]
            groups = [g for g in groups if g not in met] + [set.union({number}, *met)]
        return [tuple(outputs[number] for number in sorted(g)) for g in groups if len(g) > 1]

    def _derived(self, outputs: tuple[Tensor, ...], inputs: frozenset[Tensor] | None = None) -> Derived:
        """The cotangent graph of ``outputs``. One that accumulates for ``inputs`` alone is part of that for all leaves,
        so that it reads nothing else."""
        more = frozenset(x for x in inputs or () if not self._accumulates(x))
        found = self._known.get((outputs, more)) or self._derive(outputs, more)
        if inputs is None:
            return found
        leading = set(passed_nodes(outputs, self._fed, inputs))
        return found.only({*inputs, *(x for x in found.owners if self._flows(x) and x.op in leading)})

    def _accumulates(self, x: Tensor) -> bool:
        """True if a backward adds to the gradient of a tensor that it passes. What is fed is a leaf of this tape."""
        return x.is_leaf or x in self._retained or x in self._fed

    def _derive(self, outputs: tuple[Tensor, ...], more: frozenset[Tensor]) -> Derived:
        """Write the cotangent graph of ``outputs`` into the private continuation of the user's graph; ``more`` are
        tensors that accumulate beside those that always do."""
        graph = self._graph
        self._again = {}
        passed = self._passed(outputs)
        kept = {x for x in passed if self._accumulates(x) or x in more}
        seen = {*kept, *(x for x in passed if x in self._hooks)}
        sinks: list[Node] = []
        owners: list[Tensor] = []
        finish = finisher(graph, lambda x: self._hooks.get(x, ()), kept.__contains__, self._note_hook)

        def on_tensor(x: Tensor, ct: Tensor) -> Tensor:
            """Hooks run and gradients are accumulated also where the gradient goes no further."""
            start = len(graph.nodes)
            result = finish(x, ct)
            if x.is_leaf:
                for hook in self._after.get(x, ()):
                    self._run_after(x, result.op.inputs[0], hook)
            effects = [n for n in graph.nodes[start:] if n.op.effect]
            sinks.extend(effects)
            owners.extend([x] * len(effects))
            return result

        with graph, isolated():
            cotangents = tuple(self._cotangent(y) for y in outputs)
            seeds: dict[Tensor, Tensor] = {}
            for y, ct in zip(outputs, cotangents, strict=True):
                seeds[y] = ct if y not in seeds else FUNCTIONS.add(seeds[y], ct)
            backpropagate(
                graph, seeds, kept, flows=self._flows, on_tensor=on_tensor, on_node=self._note_rule, always=seen
            )
        derived = self._known[outputs, more] = Derived(cotangents, tuple(sinks), tuple(owners))
        return derived

    def _run_after(self, x: Tensor, ct: Tensor, hook: AccumulationHook) -> None:
        """Declare again what a hook declared, for the gradient with the cotangent that is accumulated now."""
        graph, start = self._graph, len(self._graph.nodes)
        with at_source(x.source):
            total = FUNCTIONS.add(accumulated_grad(x), ct)
        for node in hook.nodes:
            if node.op is ACCUMULATED_GRAD:
                self._again[node] = total.op
            else:
                self._declare_again(node)
        made = tuple(graph.nodes[start:])
        graph.hook_calls.append(HookCall(x, hook.function, ct, ct, made, "post accumulate grad hook"))
        self._note_hook(x.op, made)

    def _declare_again(self, node: Node) -> None:
        if node.inputs or node.control or not _is_source(node):
            inputs = [self._now(y.op).outputs[y.index] for y in node.inputs]
            control = tuple([self._now(before) for before in node.control])
            self._again[node] = self._graph.clone(node, inputs, control)

    def _now(self, node: Node) -> Node:
        """The node whose results a hook reads in the traversal that is derived now."""
        if node in self._base.shared_by_updates and node not in self._again:
            self._declare_again(node)
        return self._again.get(node, node)

    def _cotangent(self, y: Tensor) -> Tensor:
        with at_source(y.source):
            attrs = SourceAttributes(y.shape, y.dtype)
            return self._graph.add(PLACEHOLDER, (), attrs, name=f"grad of {y.name}").outputs[0]

    def _flows(self, x: Tensor) -> bool:
        return x.requires_grad and not x.is_leaf and x not in self._fed

    def _passed(self, outputs: tuple[Tensor, ...]) -> list[Tensor]:
        """The tensors that a backward of ``outputs`` passes, the last first: PyTorch's rule, on the declared graph."""
        operands = (x.original for n in passed_nodes(outputs, self._fed) for x in n.inputs)
        passed = {*outputs, *(x for x in operands if x.requires_grad)}
        return sorted(passed, key=lambda x: (x.op.serial, x.index), reverse=True)

    def _note_rule(self, node: Node, made: Sequence[Node]) -> None:
        """A rule checks indices again for programs that need a gradient alone; here the forward has checked them."""
        self._owners.update((n, node) for n in made)
        for n in made:
            n.control = tuple(before for before in n.control if before.op is not BOUNDS_CHECK)

    def _note_hook(self, node: Node, made: Sequence[Node]) -> None:
        """Note the nodes that a hook declared. What a hook reads may go when its node is spent, if a later backward is
        refused for that node's sake. What it makes of variables is of the backward, which may come when they have
        changed."""
        owner = node if node.inputs and saves(node) else None
        self._hooked.update(made)
        for n in made:
            self._owners[n] = owner
            reads_state = any(x.op.op is VARIABLE for x in n.inputs)
            if n.op.effect or reads_state or n.control or not (n.inputs or _is_source(n)):
                self._drawn.add(n)

    # -- what is kept ---------------------------------------------------------------------------------------------

    def _written_variables(self, feeds: Mapping[Tensor, TensorType]) -> frozenset[str]:
        needed = needed_for(self._graph, self.outputs, feeds)
        return frozenset(n.attrs.key for n in needed if n.op is ASSIGN)

    def _choose(self, wanted: Mapping[Tensor, set[Node | None]], budget: int | float | None) -> ResidualChoice:
        """The choice of what to keep; over the budget, the least that has to be repeated to meet it: cheap ops before
        others, and those that come first in the graph before later ones, since their values would be kept longest; at
        last in the place of outputs too, which are there anyway but count as kept.
        """

        def choice(level: int, before: int, outputs: Collection[Tensor]) -> ResidualChoice:
            made = ResidualChoice(self._graph, self._reads, self._fed, outputs, self._written, level, before)
            made.choose(wanted, self.nbytes)
            return made

        def size(made: ResidualChoice) -> int:
            return sum(map(self.nbytes, made.kept))

        outputs, everything = set(self.outputs), self._graph.first
        tried = [choice(0, 0, outputs)]
        if budget is None:
            return tried[0]
        limit = int(budget * size(tried[0])) if isinstance(budget, float) else budget
        if size(tried[0]) <= limit:
            return tried[0]
        for level, free in ((1, outputs), (2, outputs), (2, set[Tensor]())):
            best = choice(level, everything, free)
            if size(best) <= limit:
                low, high = 0, everything
                for _ in range(_BISECTIONS):
                    middle = (low + high) // 2
                    made = choice(level, middle, free)
                    if size(made) <= limit:
                        best, high = made, middle
                    else:
                        low = middle
                return best
            tried.append(best)
        least = min(tried, key=size)
        if self._without is None:  # a plan that is compared with another may need more
            self._warn_of_budget(limit, least, size(least), size(tried[0]))
        return least

    def _warn_of_budget(self, limit: int, least: ResidualChoice, least_bytes: int, whole: int) -> None:
        largest = max(least.kept, key=self.nbytes)
        warn(
            MemoryBudgetWarning,
            f"memory_budget of {limit} bytes: the least found is {least_bytes} bytes ({whole} bytes with nothing"
            f" computed again), {self.nbytes(largest)} of them for {largest.name!r}, declared at {largest.source}: the"
            " tape keeps the least",
        )

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


def _is_source(node: Node) -> bool:
    """True if a node has the same value whenever it is asked for, or is a variable."""
    return remat(node) is Remat.FREE or node.op is VARIABLE


def _differ(some: Mapping[Node, set[int]], others: Mapping[Node, set[int]]) -> bool:
    """True if different results of one op are among those of the two."""
    return any(numbers != others.get(node, numbers) for node, numbers in some.items())


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
