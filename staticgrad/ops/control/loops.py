"""Loops: ``scan``, ``map`` and ``while_loop`` run a body once for each turn.

    operands   [count], carries, sequences, captured         results  carries, [count], stacked results
    body       turn, carries, rows, captured  ->  carries, rows of the results
    condition  turn, carries, rows, captured  ->  bool

``turn`` is the number of the row, int64. A loop takes ``length`` turns, or the number that its operand ``count`` gives
(``counted``), or as long as its condition holds; then it says how many it took. Derivatives are written by
``staticgrad.compiler.autodiff.loops``, as loops again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from staticgrad.base import nests
from staticgrad.base.depth import one_level
from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import Size, TensorType, bind_size, int64, integer, is_floating
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import graph_of, lift
from staticgrad.graph.optable import FUNCTIONS, Array, Op, TypeRule, public, register
from staticgrad.graph.scopes import in_body
from staticgrad.ops.control.bodies import (
    Bodied,
    Body,
    BodyGraph,
    RunBody,
    close,
    fitted,
    predicate_of,
    require_function,
    require_type,
    run_alone,
)
from staticgrad.ops.sources import as_shape

C = TypeVar("C")  # the nest of a carry or state, as the body returns it
Y = TypeVar("Y")  # the nest that a turn gives, which comes back stacked


@frozen
class LoopAttributes(Bodied):
    """A loop of ``length`` turns at most (None: no bound); ``carries`` and ``sequences`` count operands. With a
    ``checkpoint`` its derivative in reverse keeps that number of states at a time (``compiler/passes/rewind.py``)."""

    body: Body
    condition: Body | None
    carries: int
    sequences: int
    length: Size | None
    reverse: bool = False
    counted: bool = False
    checkpoint: int | None = None

    @property
    def bodies(self) -> tuple[Body, ...]:
        return (self.body,) if self.condition is None else (self.body, self.condition)

    def with_bodies(self, bodies: Sequence[Body]) -> LoopAttributes:
        return replace(self, body=bodies[0], condition=bodies[1] if len(bodies) > 1 else None)

    @property
    def ends_early(self) -> bool:
        """It may take fewer turns than its results have rows."""
        return self.counted or self.condition is not None

    @property
    def first_result(self) -> int:
        """The number of the first stacked result."""
        return self.carries + (self.condition is not None)

    def evaluate(self, inputs: Sequence[Array], run: RunBody) -> list[Array]:
        """Its last carries, the number of turns if it has a condition, and the stacked results.
        Rows of stacked results that no turn writes are zero."""
        most = None if self.length is None else bind_size(self.length, {})
        if self.counted:
            most, inputs = int(inputs[0]), inputs[1:]
        carries = list(inputs[: self.carries])
        sequences = inputs[self.carries : self.carries + self.sequences]
        captured = inputs[self.carries + self.sequences :]
        rows = [x.type for x in self.body.fetches[self.carries :]]
        length = () if self.length is None else (self.length,)
        stacked = [np.zeros((*length, *t.shape), t.dtype) for t in rows] if length else []
        taken = 0
        while most is None or taken < most:
            turn = most - 1 - taken if self.reverse and most is not None else taken
            operands = [np.asarray(turn, np.int64), *carries, *(x[turn] for x in sequences), *captured]
            if self.condition is not None and not run(self.condition, operands)[0]:
                break
            results = run(self.body, operands)
            carries = list(results[: self.carries])
            for stack, row in zip(stacked, results[self.carries :], strict=False):
                stack[turn] = row
            taken += 1
        count = [np.asarray(taken, np.int64)] if self.condition is not None else []
        return [*carries, *count, *stacked]


def loop_types(attrs: LoopAttributes, *types: TensorType) -> tuple[TensorType, ...]:
    """The types of a loop's results from those of its operands."""
    types = types[attrs.counted :]
    carries = types[: attrs.carries]
    for carry, x in zip(carries, attrs.body.fetches, strict=False):
        require_type(x.type, carry, "loop: the carry keeps its types")
    for t in types[attrs.carries : attrs.carries + attrs.sequences]:
        if attrs.length is not None:
            require_type(t, replace(t, shape=(attrs.length, *t.shape[1:])), "scan: lengths differ")
    rows = [x.type for x in attrs.body.fetches[attrs.carries :]]
    count = (TensorType((), int64),) if attrs.condition is not None else ()
    stacked = () if attrs.length is None else tuple(TensorType((attrs.length, *t.shape), t.dtype) for t in rows)
    return (*carries, *count, *stacked)


def loop_op(name: str, doc: str, effect: bool, grad_name: str, infer: TypeRule = loop_types) -> Op:
    """The entry of an op that runs bodies, which its attributes evaluate."""
    return register(
        Op(
            name,
            doc,
            infer=infer,
            reference=lambda attrs, *inputs: tuple(attrs.evaluate(inputs, run_alone)),
            effect=effect,
            grad_name=grad_name,
            role="control",
        )
    )


SCAN = loop_op("scan", "Turns of a body that carries values and reads and writes rows.", False, "Scan")
WHILE = loop_op("while_loop", "Turns of a body as long as a condition holds.", False, "WhileLoop")
EFFECTFUL_SCAN = loop_op("effectful_scan", "A scan whose body has effects.", True, "Scan")
EFFECTFUL_WHILE = loop_op("effectful_while_loop", "A while_loop whose body has effects.", True, "WhileLoop")


@public
def scan(
    fn: Callable[[Any, Any], tuple[C, Y]],
    init: Any,
    xs: Any = None,
    *,
    length: Size | None = None,
    reverse: bool = False,
    checkpoint: int | None = None,
) -> tuple[C, Y]:
    """``carry, y = fn(carry, x)`` for each row x of ``xs``, inside the compiled program.

    ``fn`` is called once, with tensors that stand for the values of one turn. It may use any tensor or variable from
    outside, and gradients flow to them. A derivative declared in ``fn`` is the total one: it goes on through what
    ``fn`` uses from outside to the tensors that this is made of; the carry and the row are given, like arguments.

    Args:
        fn: gets the carry and a row (None where ``xs`` is None); returns the next carry, of equal structure, shapes and
            dtypes, and what is stacked.
        init: a nest, the carry before the first turn.
        xs: a nest of tensors of one length along axis 0.
        length: how many turns; needed where ``xs`` is None.
        reverse: from the last row to the first; stacked results keep the order of the rows.
        checkpoint: how many carries the derivative in reverse keeps at a time, where it would keep what it reads of
            every turn. It computes the others again from the nearest one before, with as few turns as possible
            (binomial checkpointing: A. Griewank and A. Walther, "Algorithm 799: revolve", ACM TOMS 26(1), 2000): with
            k of them n turns are run again at most r times each, where C(k + r, k) >= n. Results are the same
            but for rounding: sums over the turns are added up in another order, and small products in other kernels.

    Returns:
        The last carry (``init`` where there is no turn) and the nest of the ys, stacked along axis 0.

    Raises:
        GraphError: the carry changes its structure or a type, lengths differ, a variable is written in ``fn``, or
            ``checkpoint`` is less than 1.

    Example:
        >>> total, totals = sg.scan(lambda carry, x: (carry + x, carry + x), 0.0, sg.constant([1.0, 2.0, 3.0]))
        >>> sg.Session().run([total, totals])
        [array(6., dtype=float32), array([1., 3., 6.], dtype=float32)]
        >>> _, fibonacci = sg.scan(lambda c, _: ((c[1], c[0] + c[1]), c[0]), (1, 1), length=8)
        >>> sg.Session().run(fibonacci)
        array([ 1,  1,  2,  3,  5,  8, 13, 21])
        >>> x = sg.constant(0.5)
        >>> y, _ = sg.scan(lambda c, _: (sg.sin(c), ()), x, length=100, checkpoint=8)
        >>> sg.Session().run(sg.gradients(y, [x])[0]).round(4)
        np.float32(0.0328)
    """
    require_function("scan: fn", fn, "carry", "x")
    return _scan("scan", fn, init, xs, length, reverse, _snapshots("scan", checkpoint))


def _scan(
    what: str,
    fn: Callable[[Any, Any], tuple[C, Y]],
    init: Any,
    xs: Any,
    length: Size | None,
    reverse: bool,
    checkpoint: int | None = None,
) -> tuple[C, Y]:
    """The loop of ``scan``, for the function ``what``."""
    leaves, rows = nests.flatten(init), nests.flatten(xs)
    outer = graph_of([*leaves, *rows])
    with outer:
        carries = [lift(x, outer) for x in leaves]
        sequences = [lift(x, outer) for x in rows]
    turns = _length(what, sequences, length)
    graph = BodyGraph(outer, what=what)
    with one_level(what), graph, in_body():
        turn = _turn(graph)
        old = [_carried(graph, x) for x in carries]
        row = [_row(graph, x) for x in sequences]
        answer = fn(nests.pack(init, old), nests.pack(xs, row))
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise GraphError(f"scan: expected the function to return (carry, y), actual {answer!r}")
        new = next_carry(what, graph, init, answer[0], carries)
        ys = [graph.adopt(lift(y, graph), what) for y in nests.flatten(answer[1])]
    body = close(graph, [turn, *old, *row, *graph.captured.values()], [*new, *ys], what)
    attrs = LoopAttributes(body, None, len(carries), len(sequences), turns, bool(reverse), False, checkpoint)
    op = EFFECTFUL_SCAN if body.effects else SCAN
    node = outer.add(op, [*carries, *sequences, *graph.captured], attrs)
    last, stacked = node.outputs[: len(carries)], node.outputs[len(carries) :]
    carry: C = nests.pack(init, last)
    rows_of_results: Y = nests.pack(answer[1], stacked)
    return carry, rows_of_results


def map_(fn: Callable[[Any], Y], xs: Any) -> Y:
    """``fn`` of each row of ``xs``, stacked: a scan that carries nothing.

    Raises:
        GraphError: as ``scan``.

    Example:
        >>> rows = sg.constant([[1.0, 2.0], [3.0, 4.0]])
        >>> sg.Session().run(sg.map(lambda row: sg.sum(row), rows))
        array([3., 7.], dtype=float32)
    """
    require_function("map: fn", fn, "x")
    _, ys = _scan("map", lambda carry, x: (carry, fn(x)), (), xs, None, False)
    return ys


map_.__name__ = map_.__qualname__ = "map"
FUNCTIONS.register(map_, "map")


@public
def while_loop(
    cond_fn: Callable[[Any], Any],
    body_fn: Callable[[Any], C],
    init: Any,
    *,
    max_steps: int | None = None,
    checkpoint: int | None = None,
) -> C:
    """``state = body_fn(state)`` as long as ``cond_fn(state)`` holds, inside the compiled program.

    Args:
        cond_fn: gives a bool of shape ().
        body_fn: the next state, of equal structure, shapes and dtypes.
        init: a nest, the first state.
        max_steps: the loop stops after this number of steps; gradients in reverse need this bound.
        checkpoint: how many states the derivative in reverse keeps at a time; as in ``scan``. Which ones, is chosen for
            ``max_steps``.

    Returns:
        The last state.

    Raises:
        GraphError: the state changes its structure or a type, the condition is no bool of shape (), or ``checkpoint``
            is less than 1 or without ``max_steps``.

    Example:
        >>> steps, x = sg.while_loop(lambda s: s[1] > 1.0, lambda s: (s[0] + 1, s[1] / 2), (0, sg.constant(10.0)))
        >>> sg.Session().run([steps, x])
        [array(4), array(0.625, dtype=float32)]
        >>> x0 = sg.constant(3.0)
        >>> x = sg.while_loop(lambda x: x < 100.0, lambda x: x * x, x0, max_steps=10)
        >>> sg.Session().run([x, *sg.gradients(x, [x0])])
        [array(6561., dtype=float32), array(17496., dtype=float32)]
    """
    require_function("while_loop: cond_fn", cond_fn, "state")
    require_function("while_loop: body_fn", body_fn, "state")
    most = None if max_steps is None else integer(max_steps, "while_loop: max_steps", 0)
    if checkpoint is not None and most is None:
        raise GraphError("while_loop: checkpoint is for a derivative in reverse, which needs max_steps")
    checkpoint = _snapshots("while_loop", checkpoint)
    leaves = nests.flatten(init)
    outer = graph_of(leaves)
    with outer:
        carries = [lift(x, outer) for x in leaves]
    graphs = (BodyGraph(outer, what="while_loop"), BodyGraph(outer, what="while_loop"))
    parts: list[tuple[list[Tensor], list[Tensor]]] = []
    for graph in graphs:
        with one_level("while_loop"), graph, in_body():
            turn = _turn(graph)
            old = [_carried(graph, x) for x in carries]
            state = nests.pack(init, old)
            if graph is graphs[0]:
                results = next_carry("while_loop", graph, init, body_fn(state), carries)
            else:
                results = [predicate_of("while_loop", graph, cond_fn(state))]
            parts.append(([turn, *old], results))
    captured = list(dict.fromkeys(x for graph in graphs for x in graph.captured))
    bodies = []
    for graph, (feeds, results) in zip(graphs, parts, strict=True):
        params = [graph.adopt(x, "while_loop") for x in captured]
        bodies.append(close(graph, [*feeds, *params], results, "while_loop"))
    attrs = LoopAttributes(bodies[0], bodies[1], len(carries), 0, most, checkpoint=checkpoint)
    op = EFFECTFUL_WHILE if any(body.effects for body in bodies) else WHILE
    node = outer.add(op, [*carries, *captured], attrs)
    last: C = nests.pack(init, node.outputs[: len(carries)])
    return last


def _snapshots(what: str, checkpoint: int | None) -> int | None:
    return None if checkpoint is None else integer(checkpoint, f"{what}: checkpoint", 1)


def _length(what: str, sequences: Sequence[Tensor], length: Size | None) -> Size:
    for x in sequences:
        if x.ndim == 0:
            raise GraphError(f"{what}: xs are read row by row, but {x.name!r} has no axis", source=x.source)
    found = [x.shape[0] for x in sequences] + ([] if length is None else list(as_shape(length, what)))
    if not found and what == "map":
        raise GraphError("map: expected xs with a tensor of rows, actual a nest without any")
    if not found:
        raise GraphError("scan: without xs, length= says how many turns there are")
    known = [size for size in found if isinstance(size, int)]
    if len(set(known)) > 1:
        raise GraphError(f"{what}: expected one length, actual {', '.join(map(str, found))}")
    return known[0] if known else found[0]


def _turn(graph: BodyGraph) -> Tensor:
    graph.turn = graph.parameter(TensorType((), int64), "turn")
    return graph.turn


def _carried(graph: BodyGraph, x: Tensor) -> Tensor:
    parameter = graph.parameter(x.type, x.op.name)
    parameter.requires_grad = is_floating(x.dtype)
    return parameter


def _row(graph: BodyGraph, x: Tensor) -> Tensor:
    parameter = graph.parameter(TensorType(x.shape[1:], x.dtype), x.op.name)
    parameter.requires_grad = x.requires_grad
    return parameter


def next_carry(what: str, graph: BodyGraph, init: Any, answer: Any, carries: Sequence[Tensor]) -> list[Tensor]:
    try:
        leaves: list[Any] = []
        nests.map(lambda _, new: leaves.append(new), init, answer)
        if any(new is None or nests.children(new) is not None for new in leaves):
            raise GraphError(f"expected the structure of {init!r}, actual {answer!r}")
    except GraphError as error:
        raise GraphError(f"{what}: the carry changes its structure: {error.message}") from None
    places = zip(leaves, carries, nests.paths(init), strict=True)
    return [fitted(what, graph, new, x.type, path) for new, x, path in places]
