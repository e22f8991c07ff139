"""Retention: which backwards may still run, and which saved values nothing can read any more.

Input: the declared outputs of a tape, what the tape keeps and which nodes read it, and every backward that is asked
for. Output: a refusal, or what can be released. Nothing is derived or run here.

The rule is PyTorch's, on the graph as declared: a backward passes every node between its outputs and the leaves that
require a gradient. Without ``retain_graph`` it spends the nodes that it passes. A backward that would pass a spent
node that saves (``saves``) is refused before anything changes; spent nodes that save nothing are passed again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from staticgrad.base.errors import BuffersFreedError, FetchError, GradientError
from staticgrad.base.extents import at_sizes
from staticgrad.base.frozen import frozen
from staticgrad.base.reach import reach
from staticgrad.base.types import Shape, product
from staticgrad.compiler.autodiff.saves import saves
from staticgrad.graph.graph import Node, Tensor

H = TypeVar("H", bound=Hashable)


def passed_nodes(
    outputs: Iterable[Tensor], ends: Collection[Tensor] = frozenset(), inputs: Collection[Tensor] | None = None
) -> list[Node]:
    """The nodes that a backward of ``outputs`` passes, in the order of the graph: all between the outputs and the
    leaves that require a gradient, or those of them that lead to ``inputs``. ``ends`` are further tensors where
    gradients end (fed ones)."""

    def passed(tensors: Iterable[Tensor]) -> list[Node]:
        return [x.op for x in tensors if x.requires_grad and not x.is_leaf and x not in ends]

    reached = reach(passed(outputs), lambda node: passed(x.original for x in node.inputs))
    nodes = sorted(reached, key=lambda n: n.serial)
    if inputs is None:
        return nodes
    leading: set[Node] = set()
    for node in nodes:
        operands = [x.original for x in node.inputs if x.requires_grad]
        if any(x in inputs for x in operands) or not leading.isdisjoint(passed(operands)):
            leading.add(node)
    return [node for node in nodes if node in leading]


def saved_tensors(outputs: Iterable[Tensor]) -> dict[Tensor, frozenset[Node]]:
    """The operands and results that backwards of ``outputs`` read, each with the nodes that save it."""
    found: dict[Tensor, set[Node]] = {}
    for node in passed_nodes(outputs):
        saved = saves(node)
        for x in (*(node.inputs[i] for i in saved.operands), *(node.outputs[i] for i in saved.results)):
            found.setdefault(x, set()).add(node)
    return {x: frozenset(nodes) for x, nodes in found.items()}


@frozen(eq=False)
class Spent(Generic[H]):
    """The state that the backwards of a tape have reached: the nodes that they spent, what is still kept, and how many
    of a declared order are done."""

    nodes: frozenset[Node]
    kept: tuple[H, ...]
    done: int


@frozen(eq=False)
class Passage(Generic[H]):
    """A backward that may run: what was spent ``before`` it and is ``after`` it, one object where it spends nothing.
    Nothing can read what is ``released`` once it has run. ``inputs`` are the tensors that accumulate, where not all
    leaves do."""

    outputs: tuple[Tensor, ...]
    inputs: frozenset[Tensor] | None
    retain_graph: bool
    before: Spent[H]
    after: Spent[H]
    released: frozenset[H]


class Retention(Generic[H]):
    """The rule for tapes of one kind, each of which begins with ``start``.

    Args:
        outputs: whose backwards may be asked for.
        kept: what a tape keeps, with the declared nodes whose derivatives read it. What no node reads (hooks do) is
            never released, unless an order is declared.
        order: the backwards that will be asked for, one entry a call (a tensor or several): each then spends only
            what no later one passes and releases what no later one reads, and a call out of that order is refused.
        shapes: of outputs whose declared shape is not the bound one, which may have open sizes.
        ends: fed tensors, where gradients end.
        reads: what a backward of some outputs reads; default: what any of the nodes reads that it passes.
    """

    def __init__(
        self,
        outputs: Sequence[Tensor],
        kept: Mapping[H, frozenset[Node]],
        *,
        order: Sequence[Tensor | Sequence[Tensor]] | None = None,
        shapes: Mapping[Tensor, Shape] | None = None,
        ends: Collection[Tensor] = (),
        reads: Callable[[Sequence[Tensor]], Collection[H]] | None = None,
    ) -> None:
        self._outputs = set(outputs)
        self._readers = dict(kept)
        self._shapes = dict(shapes or {})
        self._ends = frozenset(ends)
        self._reads = reads or self._read_by_nodes
        self._passed: dict[tuple[tuple[Tensor, ...], frozenset[Tensor] | None], tuple[Node, ...]] = {}
        self._order = None if order is None else [(y,) if isinstance(y, Tensor) else tuple(y) for y in order]
        self.start: Spent[H] = Spent(frozenset(), tuple(kept), 0)
        for later in self._order or ():
            self._check_known(later)

    def passage(
        self,
        before: Spent[H],
        outputs: Sequence[Tensor],
        retain_graph: bool,
        inputs: frozenset[Tensor] | None = None,
    ) -> Passage[H]:
        """The passage of a backward that ``check`` and ``blocked`` have nothing against."""
        nodes = before.nodes if retain_graph else before.nodes.union(self._spends(before, outputs, inputs))
        released = frozenset[H]() if retain_graph else self._unreadable(before, nodes)
        if self._order is None and nodes == before.nodes:
            after = before
        else:
            kept = tuple(item for item in before.kept if item not in released)
            after = Spent(nodes, kept, before.done + (self._order is not None))
        return Passage(tuple(outputs), inputs, retain_graph, before, after, released)

    def _spends(
        self, before: Spent[H], outputs: Sequence[Tensor], inputs: frozenset[Tensor] | None
    ) -> Collection[Node]:
        """The nodes that a backward passes and no later one of a declared order does."""
        return set(self._nodes(outputs, inputs)).difference(*map(self._nodes, self._later(before)))

    def _unreadable(self, before: Spent[H], nodes: frozenset[Node]) -> frozenset[H]:
        """The kept items that nothing can read after the next backward, when ``nodes`` are spent."""
        if self._order is None:
            return frozenset(item for item in before.kept if (readers := self._readers[item]) and readers <= nodes)
        return frozenset(before.kept).difference(*map(self._reads, self._later(before)))

    def _later(self, before: Spent[H]) -> Sequence[Sequence[Tensor]]:
        """The backwards that a declared order has after the next one."""
        return () if self._order is None else self._order[before.done + 1 :]

    def blocked(
        self, before: Spent[H], outputs: Sequence[Tensor], inputs: frozenset[Tensor] | None = None
    ) -> Node | None:
        """The last node on the way that is spent and saves."""
        spent = (node for node in reversed(self._nodes(outputs, inputs)) if node in before.nodes)
        return next((node for node in spent if saves(node)), None)

    def _nodes(self, outputs: Sequence[Tensor], inputs: frozenset[Tensor] | None = None) -> tuple[Node, ...]:
        """The nodes that a backward of ``outputs`` passes, which ends at ``inputs`` or all leaves."""
        key = (tuple(outputs), inputs)
        nodes = self._passed.get(key)
        if nodes is None:
            nodes = self._passed[key] = tuple(passed_nodes(key[0], self._ends, inputs))
        return nodes

    def _read_by_nodes(self, outputs: Sequence[Tensor]) -> list[H]:
        nodes = self._nodes(outputs)
        return [item for item, readers in self._readers.items() if not readers.isdisjoint(nodes)]

    # -- refusals ---------------------------------------------------------------------------------------------------

    def check(
        self,
        before: Spent[H],
        outputs: Sequence[Tensor],
        grad_shapes: Sequence[Shape | None] | None,
        sizes: Sequence[int] = (),
    ) -> None:
        """Refuse what is wrong whatever is spent; see ``Ledger.admit``. ``sizes`` are the open ones of the tape."""
        self._check_known(outputs)
        self._check_outputs(outputs, grad_shapes or [None] * len(outputs), sizes)
        self._check_order(before, outputs)

    def _check_known(self, outputs: Sequence[Tensor]) -> None:
        if not outputs:
            raise FetchError("backward: expected an output of this tape, actual none")
        for y in outputs:
            if y not in self._outputs:
                names = ", ".join(sorted(repr(x.name) for x in self._outputs))
                raise FetchError(f"{y!r} is no output of this tape, whose outputs are {names}")

    def _check_outputs(
        self, outputs: Sequence[Tensor], grad_shapes: Sequence[Shape | None], sizes: Sequence[int]
    ) -> None:
        if len(grad_shapes) != len(outputs):
            raise GradientError(
                f"backward: expected a gradient (or None) for each output: {len(outputs)}, actual {len(grad_shapes)}"
            )
        for y, given in zip(outputs, grad_shapes, strict=True):
            shape = at_sizes(self._shapes.get(y, y.shape), sizes)
            if given is None and y.requires_grad and product(shape) != 1:
                raise GradientError(
                    f"grad can be implicitly created only for scalar outputs: {y.name!r} has shape {shape};"
                    " pass grad= of that shape",
                    source=y.source,
                )
            if given is not None and tuple(given) != tuple(shape):
                raise GradientError(
                    f"the gradient of output {y.name!r}: expected shape {shape}, actual {tuple(given)}", source=y.source
                )
        for index, y in enumerate(outputs):
            if not y.requires_grad:
                raise GradientError(
                    f"element {index} of tensors does not require grad and does not have a grad_fn: {y.name!r}",
                    source=y.source,
                )

    def _check_order(self, before: Spent[H], outputs: Sequence[Tensor]) -> None:
        if self._order is None:
            return
        expected = self._order[before.done] if before.done < len(self._order) else ()
        if set(expected) != set(outputs):
            wanted = ", ".join(repr(y.name) for y in expected) or "none, all were done"
            actual = ", ".join(repr(y.name) for y in outputs)
            raise GradientError(f"backward out of the declared backward_order: expected {wanted}, actual {actual}")


class Ledger(Generic[H]):
    """The record of what the backwards of one tape have spent, and which call spent what. Whoever runs one appends its
    passage to ``ran`` in one step with what it changes, so that it counts even where an exception ends the call right
    after; and to ``begun`` in one step with its beginning, if it may be interrupted when it has overwritten what was
    donated to it: the tape is then torn."""

    __slots__ = ("_calls", "_changes", "_rule", "_sizes", "begun", "ran", "state")

    def __init__(self, rule: Retention[H], sizes: Sequence[int] = ()) -> None:
        self._rule = rule
        self._sizes = sizes  # the open ones, where the rule is for tapes of many sizes
        self._calls = 0
        self._changes: list[tuple[int, Passage[H]]] = []  # the calls that changed the state
        self.begun: deque[Passage[H]] = deque()  # an admitted backward that has begun, and is not yet counted
        self.ran: deque[Passage[H]] = deque()  # admitted backwards that are done and not yet counted
        self.state = rule.start

    def admit(
        self,
        outputs: Sequence[Tensor],
        grad_shapes: Sequence[Shape | None] | None = None,
        retain_graph: bool = False,
        inputs: frozenset[Tensor] | None = None,
    ) -> Passage[H]:
        """Check a backward; nothing changes.

        Args:
            outputs: of this tape.
            grad_shapes: parallel to ``outputs``; None where no gradient is given.
            inputs: the tensors that shall accumulate; None: all leaves.

        Raises:
            FetchError: not an output of this tape.
            GradientError: an output doesn't require a gradient, is no scalar and has no gradient given, or one of
                another shape; or the call is out of the declared order.
            BuffersFreedError: a node that saves is spent.
        """
        before = self.state
        self.check(outputs, grad_shapes)
        node = self._rule.blocked(before, outputs, inputs)
        if node is not None:
            raise self._freed(node)
        return self._rule.passage(before, outputs, retain_graph, inputs)

    def check(self, outputs: Sequence[Tensor], grad_shapes: Sequence[Shape | None] | None = None) -> None:
        """Refuse what ``admit`` refuses whatever is spent."""
        self._rule.check(self.state, outputs, grad_shapes, self._sizes)

    def settle(self) -> None:
        """Count the backwards that ran."""
        while self.ran:
            self.commit(self.ran[0])
            self.begun.clear()
            self.ran.popleft()

    def commit(self, passage: Passage[H]) -> None:
        """Count an admitted backward as done."""
        self._calls += 1
        if passage.before is not self.state:  # a function that it called has run another one
            passage = self._rule.passage(self.state, passage.outputs, passage.retain_graph, passage.inputs)
        if passage.after is not self.state:
            self._changes.append((self._calls, passage))
            self.state = passage.after

    def torn(self) -> BuffersFreedError:
        """The refusal of a backward after one that has begun and did not come to its end."""
        return BuffersFreedError(
            "an earlier backward was interrupted (Ctrl-C, a time limit) while it used up this tape's values; no"
            " gradient has changed: run the forward again, or pass retain_graph=True"
        )

    def _freed(self, node: Node) -> BuffersFreedError:
        number, passage = next((n, p) for n, p in self._changes if node in p.after.nodes)
        outputs = ", ".join(repr(y.name) for y in passage.outputs)
        return BuffersFreedError(
            f"Trying to backward through the graph a second time: the op {node.name!r} ({node.op.name}) needs values"
            f" that backward number {number} (of {outputs}) gave back; pass retain_graph=True to that call to keep"
            " them",
            source=node.source,
        )


def ledger_of(outputs: Sequence[Tensor], order: Sequence[Tensor | Sequence[Tensor]] | None = None) -> Ledger[Tensor]:
    """A ledger that speaks of the declared graph alone: what is kept is what nodes save."""
    return Ledger(Retention(outputs, saved_tensors(outputs), order=order))
