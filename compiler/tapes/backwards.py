"""The backwards of a tape, derived: gradients are written into a private continuation of the user's graph.

A graph, what a tape is fed and what is left out go in. For some outputs a ``Derived`` comes out, the part of the
continuation that is their backward; it is remembered. Hooks and the retained set are read when this begins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence

from staticgrad.base.errors import GradientError, at_source
from staticgrad.compiler.autodiff.residuals import Remat, remat
from staticgrad.compiler.autodiff.retention import passed_nodes
from staticgrad.compiler.autodiff.reverse import backpropagate, finisher
from staticgrad.compiler.autodiff.saves import saves
from staticgrad.compiler.regions.interventions import Intervention
from staticgrad.compiler.tapes.reads import Derived
from staticgrad.graph.graph import Derivation, Graph, Node, Tensor
from staticgrad.graph.hooks import AccumulationHook, HookCall
from staticgrad.graph.optable import FUNCTIONS
from staticgrad.graph.scopes import isolated
from staticgrad.ops.effects import BOUNDS_CHECK
from staticgrad.ops.sources import ACCUMULATED_GRAD, PLACEHOLDER, VARIABLE, SourceAttributes, accumulated_grad

_APART = 8  # outputs up to which each is derived by itself when a tape is planned


class Backwards:
    """The backwards of one tape, and what is known of the nodes that they are made of.

    Args:
        base: the user's graph, which stays as it is.
        fed: the tensors at which all of them end.
        without: a hook or retained gradient that is left out.
    """

    def __init__(self, base: Graph, fed: Collection[Tensor], without: Intervention | None) -> None:
        self.graph = Derivation(base)
        self.owners: dict[Node, Node | None] = {}  # of derived nodes: the declared node whose rule made it
        self.hooked: set[Node] = set()  # what hooks declared
        self.drawn: set[Node] = set()  # effects and draws of hooks: they happen in the backward
        self._base = base
        self._fed = fed
        self._again: dict[Node, Node] = {}  # what hooks declared, as the traversal that is derived now has it
        self._known: dict[tuple[tuple[Tensor, ...], frozenset[Tensor]], Derived] = {}
        tensors = [y for node in self.graph.nodes for y in node.outputs]
        self._hooks = {x: x.hooks for x in tensors if x.hooks}
        self._after = {x: x.accumulation_hooks for x in tensors if x.accumulation_hooks}
        self._retained = {x for x in tensors if x.retains_grad}
        if without is not None:
            self._leave_out(without)

    def _leave_out(self, what: Intervention) -> None:
        self._retained.discard(what.retained)
        if what.hooked in self._hooks:
            self._hooks[what.hooked] = tuple(h for h in self._hooks[what.hooked] if h is not what.hook)
        if what.hooked in self._after:
            self._after[what.hooked] = tuple(h for h in self._after[what.hooked] if h.function is not what.hook)

    def of_all(self, outputs: Sequence[Tensor]) -> list[Derived]:
        """The backwards that together read all that a backward of any of the outputs can read: each output's is derived
        by itself, as it is most often asked for, so that its hooks need not run again; very many are derived together.
        So are those that lead to different results of one op, whose derivative may read more of it, or choose otherwise
        what is stacked. Where an op has no derivative a backward will say so, if one is asked for."""
        ys = tuple(y for y in dict.fromkeys(outputs) if y.requires_grad)
        if len(ys) > _APART:
            with contextlib.suppress(GradientError):
                return [self.of(ys)]
        derived = []
        groups = self._meeting(ys) if len(ys) > 1 else []
        for asked in (*groups, *((y,) for y in ys)):
            with contextlib.suppress(GradientError):
                derived.append(self.of(asked))
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

    def of(self, outputs: tuple[Tensor, ...], inputs: frozenset[Tensor] | None = None) -> Derived:
        """The cotangent graph of ``outputs``. One that accumulates for ``inputs`` alone is part of that for all leaves,
        so that it reads nothing else."""
        more = frozenset(x for x in inputs or () if not self._accumulates(x))
        found = self._known.get((outputs, more)) or self._derive(outputs, more)
        if inputs is None:
            return found
        leading = set(passed_nodes(outputs, self._fed, inputs))
        return found.only({*inputs, *(x for x in found.owners if self._flows(x) and x.op in leading)})

    def variables(self, derived: Derived, feeds: Collection[Tensor]) -> tuple[str, ...]:
        """The variables whose values a backward takes to be those of the forward. What a hook itself reads is no such
        variable: hooks belong to the backward, and may count in one."""
        found: dict[str, None] = {}
        stack, seen = list(derived.sinks), set(derived.sinks)
        while stack:
            node = stack.pop()
            operands = [x for x in node.value_inputs if x not in feeds]
            if node not in self.hooked:
                found.update((x.op.attrs.key, None) for x in operands if x.op.op is VARIABLE)
            for before in (*(x.op for x in operands), *node.control):
                if before not in seen:
                    seen.add(before)
                    stack.append(before)
        return tuple(found)

    def _accumulates(self, x: Tensor) -> bool:
        """True if a backward adds to the gradient of a tensor that it passes. What is fed is a leaf of this tape."""
        return x.is_leaf or x in self._retained or x in self._fed

    def _derive(self, outputs: tuple[Tensor, ...], more: frozenset[Tensor]) -> Derived:
        """Write the cotangent graph of ``outputs`` into the private continuation of the user's graph; ``more`` are
        tensors that accumulate beside those that always do."""
        graph = self.graph
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
        graph, start = self.graph, len(self.graph.nodes)
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
            self._again[node] = self.graph.clone(node, inputs, control)

    def _now(self, node: Node) -> Node:
        """The node whose results a hook reads in the traversal that is derived now."""
        if node in self._base.shared_by_updates and node not in self._again:
            self._declare_again(node)
        return self._again.get(node, node)

    def _cotangent(self, y: Tensor) -> Tensor:
        with at_source(y.source):
            attrs = SourceAttributes(y.shape, y.dtype)
            return self.graph.add(PLACEHOLDER, (), attrs, name=f"grad of {y.name}").outputs[0]

    def _flows(self, x: Tensor) -> bool:
        return x.requires_grad and not x.is_leaf and x not in self._fed

    def _passed(self, outputs: tuple[Tensor, ...]) -> list[Tensor]:
        """The tensors that a backward of ``outputs`` passes, the last first: PyTorch's rule, on the declared graph."""
        operands = (x.original for n in passed_nodes(outputs, self._fed) for x in n.inputs)
        passed = {*outputs, *(x for x in operands if x.requires_grad)}
        return sorted(passed, key=lambda x: (x.op.serial, x.index), reverse=True)

    def _note_rule(self, node: Node, made: Sequence[Node]) -> None:
        """A rule checks indices again for programs that need a gradient alone; here the forward has checked them."""
        self.owners.update((n, node) for n in made)
        for n in made:
            n.control = tuple(before for before in n.control if before.op is not BOUNDS_CHECK)

    def _note_hook(self, node: Node, made: Sequence[Node]) -> None:
        """Note the nodes that a hook declared. What a hook reads may go when its node is spent, if a later backward is
        refused for that node's sake. What it makes of variables is of the backward, which may come when they have
        changed."""
        owner = node if node.inputs and saves(node) else None
        self.hooked.update(made)
        for n in made:
            self.owners[n] = owner
            reads_state = any(x.op.op is VARIABLE for x in n.inputs)
            if n.op.effect or reads_state or n.control or not (n.inputs or _is_source(n)):
                self.drawn.add(n)


def _is_source(node: Node) -> bool:
    """True if a node has the same value whenever it is asked for, or is a variable."""
    return remat(node) is Remat.FREE or node.op is VARIABLE


def _differ(some: Mapping[Node, set[int]], others: Mapping[Node, set[int]]) -> bool:
    """True if different results of one op are among those of the two."""
    return any(numbers != others.get(node, numbers) for node, numbers in some.items())
