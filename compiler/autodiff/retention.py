"""Retention: which backwards may still run, and which saved values nothing can read any more.

Comes in: the declared outputs of a tape, what the tape holds and which nodes read it, and every backward that is asked
for. Goes out: a refusal, or what can be given back. Nothing is derived or run here.

The rule is PyTorch's, on the graph as declared: a backward passes every node between its outputs and the leaves that
require a gradient. Without ``retain_graph`` it spends the nodes that it passes. A backward that would pass a spent
node that saves (``saves``) is refused before anything changes; spent nodes that save nothing are passed again.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from staticgrad.compiler.autodiff.saves import saves
from staticgrad.errors import BuffersFreedError, FetchError, GradientError
from staticgrad.frozen import frozen
from staticgrad.graph import Node, Tensor
from staticgrad.reach import reach
from staticgrad.types import Shape, product

H = TypeVar("H", bound=Hashable)


def passed_nodes(outputs: Iterable[Tensor], ends: Collection[Tensor] = frozenset()) -> list[Node]:
    """The nodes that a backward of ``outputs`` passes, in the order of the graph: all between the outputs and the
    leaves that require a gradient. ``ends`` are further tensors where gradients end (fed ones)."""

    def passed(tensors: Iterable[Tensor]) -> list[Node]:
        return [x.op for x in tensors if x.requires_grad and not x.is_leaf and x not in ends]

    nodes = reach(passed(outputs), lambda node: passed(x.original for x in node.inputs))
    return sorted(nodes, key=lambda n: n.serial)


def saved_tensors(outputs: Iterable[Tensor]) -> dict[Tensor, frozenset[Node]]:
    """The operands and results that backwards of ``outputs`` read, each with the nodes that save it."""
    found: dict[Tensor, set[Node]] = {}
    for node in passed_nodes(outputs):
        saved = saves(node)
        for x in (*(node.inputs[i] for i in saved.operands), *(node.outputs[i] for i in saved.results)):
            found.setdefault(x, set()).add(node)
    return {x: frozenset(nodes) for x, nodes in found.items()}


@frozen
class Passage:
    """A backward that may run: the nodes that it passes, and those of them that it spends unless it retains."""

    outputs: tuple[Tensor, ...]
    nodes: tuple[Node, ...]
    spends: tuple[Node, ...]


@frozen
class _Call:
    number: int
    outputs: str

    def __str__(self) -> str:
        return f"backward number {self.number} (of {self.outputs})"


class Ledger(Generic[H]):
    """What one tape's backwards have spent.

    Args:
        outputs: whose backwards may be asked for.
        held: what the tape keeps, with the declared nodes whose derivatives read it. What no node reads (hooks do)
            is never given back. Default: ``saved_tensors``.
        order: the backwards that will be asked for, one entry a call (a tensor or several): each then spends only
            what no later one passes, and a call out of that order is refused.
        shapes: of outputs whose declared shape is not the bound one.
        ends: fed tensors, where gradients end.
        passed: the nodes that backwards pass, as far as they were looked for: ledgers of the same graph, with the same
            ``ends``, may share it.
    """

    def __init__(
        self,
        outputs: Sequence[Tensor],
        held: Mapping[H, frozenset[Node]],
        *,
        order: Sequence[Tensor | Sequence[Tensor]] | None = None,
        shapes: Mapping[Tensor, Shape] | None = None,
        ends: Collection[Tensor] = (),
        passed: dict[tuple[Tensor, ...], list[Node]] | None = None,
    ) -> None:
        self._outputs = set(outputs)
        self._held = dict(held)
        self._shapes = dict(shapes or {})
        self._ends = frozenset(ends)
        self._passed: dict[tuple[Tensor, ...], list[Node]] = {} if passed is None else passed
        self._order = None if order is None else [(y,) if isinstance(y, Tensor) else tuple(y) for y in order]
        self._spent: dict[Node, _Call] = {}
        self._calls = 0
        for later in self._order or ():
            self._check_known(later)

    @property
    def held(self) -> tuple[H, ...]:
        """What has not been given back yet."""
        return tuple(self._held)

    @property
    def spent(self) -> frozenset[Node]:
        return frozenset(self._spent)

    @property
    def calls(self) -> int:
        """How many backwards were counted as done."""
        return self._calls

    @property
    def later(self) -> tuple[tuple[Tensor, ...], ...] | None:
        """The backwards that a declared order has after the one that is next; None without an order."""
        return None if self._order is None else tuple(self._order[self._calls + 1 :])

    def admit(self, outputs: Sequence[Tensor], grad_shapes: Sequence[Shape | None] | None = None) -> Passage:
        """Check a backward; nothing changes.

        Args:
            outputs: of this tape.
            grad_shapes: parallel to ``outputs``; None where no gradient is given.

        Raises:
            FetchError: not an output of this tape.
            GradientError: an output doesn't require a gradient, is no scalar and has no gradient given, or one of
                another shape; or the call is out of the declared order.
            BuffersFreedError: a node that saves is spent.
        """
        self._check_known(outputs)
        self._check_outputs(outputs, grad_shapes or [None] * len(outputs))
        self._check_order(outputs)
        nodes = self._nodes(outputs)
        for node in reversed(nodes):
            call = self._spent.get(node)
            if call is not None and saves(node):
                raise self._freed(node, call)
        later = {node for ys in (self._order or [])[self._calls + 1 :] for node in self._nodes(ys)}
        return Passage(tuple(outputs), tuple(nodes), tuple(node for node in nodes if node not in later))

    def _nodes(self, outputs: Sequence[Tensor]) -> list[Node]:
        """The nodes that a backward of ``outputs`` passes."""
        nodes = self._passed.get(ys := tuple(outputs))
        if nodes is None:
            nodes = self._passed[ys] = passed_nodes(ys, self._ends)
        return nodes

    def commit(self, passage: Passage, retain_graph: bool = False) -> tuple[H, ...]:
        """Count an admitted backward as done, and give back what nothing can read any more."""
        if not retain_graph:
            call = _Call(self._calls + 1, ", ".join(repr(y.name) for y in passage.outputs))
            for node in passage.spends:
                self._spent.setdefault(node, call)
        freed = self._readable_by(self._spent)
        for item in freed:
            del self._held[item]
        self._calls += 1  # last: whoever sees the number sees what the backward has spent
        return freed

    def backward(
        self,
        outputs: Sequence[Tensor],
        grad_shapes: Sequence[Shape | None] | None = None,
        retain_graph: bool = False,
    ) -> tuple[H, ...]:
        """``admit`` and ``commit`` in one."""
        return self.commit(self.admit(outputs, grad_shapes), retain_graph)

    def would_free(self, passage: Passage) -> tuple[H, ...]:
        """What ``commit`` would give back without ``retain_graph``: what retaining costs."""
        return self._readable_by(self._spent.keys() | set(passage.spends))

    def _readable_by(self, spent: Iterable[Node]) -> tuple[H, ...]:
        gone = set(spent)
        return tuple(item for item, readers in self._held.items() if readers and readers <= gone)

    # -- refusals ---------------------------------------------------------------------------------------------------

    def _check_known(self, outputs: Sequence[Tensor]) -> None:
        if not outputs:
            raise FetchError("backward: expected an output of this tape, actual none")
        for y in outputs:
            if y not in self._outputs:
                names = ", ".join(sorted(repr(x.name) for x in self._outputs))
                raise FetchError(f"{y!r} is no output of this tape, whose outputs are {names}")

    def _check_outputs(self, outputs: Sequence[Tensor], grad_shapes: Sequence[Shape | None]) -> None:
        if len(grad_shapes) != len(outputs):
            raise GradientError(
                f"backward: expected a gradient (or None) for each output: {len(outputs)}, actual {len(grad_shapes)}"
            )
        for y, given in zip(outputs, grad_shapes, strict=True):
            shape = self._shapes.get(y, y.shape)
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

    def _check_order(self, outputs: Sequence[Tensor]) -> None:
        if self._order is None:
            return
        expected = self._order[self._calls] if self._calls < len(self._order) else ()
        if set(expected) != set(outputs):
            wanted = ", ".join(repr(y.name) for y in expected) or "none, all were done"
            actual = ", ".join(repr(y.name) for y in outputs)
            raise GradientError(f"backward out of the declared backward_order: expected {wanted}, actual {actual}")

    def _freed(self, node: Node, call: _Call) -> BuffersFreedError:
        return BuffersFreedError(
            f"Trying to backward through the graph a second time: the op {node.name!r} ({node.op.name}) needs values"
            f" that {call} gave back; pass retain_graph=True to that call to keep them",
            source=node.source,
        )


def ledger_of(outputs: Sequence[Tensor], order: Sequence[Tensor | Sequence[Tensor]] | None = None) -> Ledger[Tensor]:
    """A ledger that speaks of the declared graph alone: what is held is what nodes save."""
    return Ledger(outputs, saved_tensors(outputs), order=order)
