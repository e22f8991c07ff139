"""Control flow: ops that run a graph of their own, once for each step (scan, while_loop) or not at all (cond).

    Body ::= graph, feeds, fetches, effects

What a user's function declares goes into a ``BodyGraph``, in which every tensor from outside becomes a parameter the
first time it is used (it is *captured*). The op's operands are then all that its bodies read:

    loop   operands  [count], carries, sequences, captured         results  carries, [count], stacked results
           body      turn, carries, rows, captured  ->  carries, rows of the results
           condition turn, carries, rows, captured  ->  bool
    cond   operands  predicate, captured                           results  results of the branch that ran
           branch    captured  ->  results

``turn`` is the number of the row, int64. A loop takes ``length`` turns, or as many as its operand ``count`` says
(``counted``), or as long as its condition holds; then it says how many it took. Derivatives are written by
``staticgrad.compiler.autodiff.loops``, as loops again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from staticgrad import nest
from staticgrad.errors import GraphError, at_source
from staticgrad.frozen import frozen
from staticgrad.graph import Derivation, Graph, Node, Tensor, get_default_graph, in_body, needed_nodes
from staticgrad.lifting import graph_of, lift
from staticgrad.ops.sources import PLACEHOLDER, SourceAttributes
from staticgrad.optable import FUNCTIONS, Array, Op, public, register
from staticgrad.types import (
    Size,
    Symbol,
    TensorType,
    bind,
    bind_size,
    bool_,
    int64,
    is_floating,
    is_weak,
    require_number,
)

CARRIED_OUT = frozenset({"print", "py_call", "assertion"})  # effects that a body has once a turn, used or not
STATEFUL = frozenset({"variable", "assign", "accumulate_grad", "accumulated_grad"})


# -- bodies -------------------------------------------------------------------------------------------------------


class BodyGraph(Derivation):
    """The graph of a body while it is written: what it reads of the graphs around it becomes a parameter."""

    def __init__(self, outer: Graph, base: Graph | None = None) -> None:
        super().__init__(Graph() if base is None else base)
        self.outer = outer
        known = isinstance(base, BodyGraph)
        self.captured: dict[Tensor, Tensor] = dict(base.captured) if isinstance(base, BodyGraph) else {}
        self.turn: Tensor | None = base.turn if isinstance(base, BodyGraph) else None
        self.first_capture = len(self.captured) if known else 0

    def continues(self, graph: Graph) -> bool:
        outer = self.outer
        return super().continues(graph) or outer is graph or (isinstance(outer, Derivation) and outer.continues(graph))

    def parameter(self, type_: TensorType, name: str) -> Tensor:
        """A new tensor that a turn is given."""
        attrs = SourceAttributes(type_.shape, type_.dtype)
        node = Node(self, PLACEHOLDER, (), attrs, (type_,), self.unique_name(name), (), None, False)
        self.nodes.append(node)
        return node.outputs[0]

    def adopt(self, x: Tensor, what: str) -> Tensor:
        if self.holds(x):
            return x
        known = self.captured.get(x)
        if known is None:
            outside = self.outer.adopt(x, what)
            known = self.captured.get(outside)
            if known is None:
                known = self.parameter(outside.type, outside.op.name)
                known.requires_grad = outside.requires_grad
                self.captured[outside] = known
        return known

    def take_place(self) -> int:
        return self.outer.take_place()

    def loop_indices(self) -> tuple[Tensor, ...]:
        around = tuple(self.adopt(x, "random") for x in self.outer.loop_indices())
        return around if self.turn is None else (*around, self.turn)


@dataclass(frozen=True, eq=False)
class Body:
    """A finished body, in the form of a region. ``origin`` is the body whose results these fetches begin with: the same
    computation handing out more of its values."""

    graph: Graph
    feeds: tuple[Tensor, ...]
    fetches: tuple[Tensor, ...]
    effects: tuple[Node, ...] = ()
    origin: Body | None = None
    memo: dict[Any, Any] = field(default_factory=dict, repr=False)  # what was derived from it

    def __repr__(self) -> str:
        return f"<body of {len(self.graph.nodes)} ops>"

    @property
    def root(self) -> Body:
        return self if self.origin is None else self.origin.root

    def bind_sizes(self, bindings: Mapping[Symbol, int]) -> Body:
        """The body with every size a number."""
        key = ("sizes", tuple(sorted((s.serial, n) for s, n in bindings.items())))
        if key not in self.memo:
            self.memo[key] = _bound(self, bindings, self.root.memo.setdefault(("nodes", *key), {}))
        made: Body = self.memo[key]
        return made


def _bound(body: Body, bindings: Mapping[Symbol, int], nodes: dict[Node, Node]) -> Body:
    """``nodes`` are those that were bound before, for another body with the same root."""
    attributes = {node: bind(node.attrs, bindings) for node in body.graph.nodes}
    if all(y.type.static for n in body.graph.nodes for y in n.outputs) and all(
        attrs == node.attrs for node, attrs in attributes.items()
    ):
        return body
    graph = Graph()
    tensors: dict[Tensor, Tensor] = {}
    for node in body.graph.nodes:
        if node in nodes:
            graph.nodes.append(nodes[node])
            tensors.update(zip(node.outputs, nodes[node].outputs, strict=True))
            continue
        attrs, inputs = attributes[node], tuple(tensors[x] for x in node.inputs)
        with at_source(node.source):
            inferred = node.op.infer(attrs, *(x.type for x in inputs))
        types = inferred if isinstance(inferred, tuple) else (inferred,)
        control = tuple(nodes[n] for n in node.control)
        new = Node(graph, node.op, inputs, attrs, types, node.name, control, node.source, node.blocked)
        graph.nodes.append(new)
        nodes[node] = new
        tensors.update(zip(node.outputs, new.outputs, strict=True))
    return Body(
        graph,
        tuple(tensors[x] for x in body.feeds),
        tuple(tensors[x] for x in body.fetches),
        tuple(nodes[n] for n in body.effects),
        None if body.origin is None else body.origin.bind_sizes(bindings),
    )


def close(graph: BodyGraph, feeds: Sequence[Tensor], fetches: Sequence[Tensor], what: str) -> Body:
    """Finish a body: its effects are found and put in order.

    Raises:
        GraphError: it has state of its own or writes some.
    """
    last: Node | None = None
    ordered = []
    for node in graph.nodes:
        if node.op.name in STATEFUL:
            raise GraphError(f"{what}: variables are declared and written outside of a body, not {node.name!r}")
        if node.op.name in CARRIED_OUT or (node.op.effect and bodies_of(node)):
            if last is not None:
                node.control = tuple(dict.fromkeys((*node.control, last)))
            last = node
            ordered.append(node)
    graph.finalized = True
    return Body(graph, tuple(feeds), tuple(fetches), effects_of(graph.nodes, fetches, ordered))


def effects_of(nodes: Sequence[Node], fetches: Sequence[Tensor], always: Sequence[Node] = ()) -> tuple[Node, ...]:
    """The effects that ``fetches`` need, and those that happen ``always``."""
    needed = needed_nodes(fetches, always)
    return tuple(node for node in nodes if node in needed and node.op.effect)


def bodies_of(node: Node) -> tuple[Body, ...]:
    """The bodies that a node runs."""
    attrs = node.attrs
    if isinstance(attrs, LoopAttributes):
        return (attrs.body,) if attrs.condition is None else (attrs.body, attrs.condition)
    return (attrs.then, attrs.otherwise) if isinstance(attrs, CondAttributes) else ()


def with_bodies(attrs: Any, bodies: Sequence[Body]) -> Any:
    """The attributes over other bodies, in the order of ``bodies_of``."""
    if isinstance(attrs, LoopAttributes):
        return replace(attrs, body=bodies[0], condition=bodies[1] if len(bodies) > 1 else None)
    return replace(attrs, then=bodies[0], otherwise=bodies[1])


# -- loops --------------------------------------------------------------------------------------------------------


@frozen
class LoopAttributes:
    """A loop of ``length`` turns at most (None: no bound); ``carries`` and ``sequences`` count operands."""

    body: Body
    condition: Body | None
    carries: int
    sequences: int
    length: Size | None
    reverse: bool = False
    counted: bool = False

    @property
    def first_result(self) -> int:
        """The number of the first stacked result."""
        return self.carries + (self.condition is not None)


def _loop_types(attrs: LoopAttributes, *types: TensorType) -> tuple[TensorType, ...]:
    carries = types[attrs.counted : attrs.counted + attrs.carries]
    rows = [x.type for x in attrs.body.fetches[attrs.carries :]]
    count = (TensorType((), int64),) if attrs.condition is not None else ()
    stacked = () if attrs.length is None else tuple(TensorType((attrs.length, *t.shape), t.dtype) for t in rows)
    return (*carries, *count, *stacked)


RunBody = Callable[[Body, Sequence[Array]], Sequence[Array]]


def run_loop(attrs: LoopAttributes, inputs: Sequence[Array], run: RunBody) -> list[Array]:
    """What a loop means. Rows of stacked results that no turn writes are zero."""
    most = None if attrs.length is None else bind_size(attrs.length, {})
    if attrs.counted:
        most, inputs = int(inputs[0]), inputs[1:]
    carries = list(inputs[: attrs.carries])
    sequences = inputs[attrs.carries : attrs.carries + attrs.sequences]
    captured = inputs[attrs.carries + attrs.sequences :]
    rows = [x.type for x in attrs.body.fetches[attrs.carries :]]
    length = () if attrs.length is None else (attrs.length,)
    stacked = [np.zeros((*length, *t.shape), t.dtype) for t in rows] if length else []
    taken = 0
    while most is None or taken < most:
        turn = most - 1 - taken if attrs.reverse and most is not None else taken
        operands = [np.asarray(turn, np.int64), *carries, *(x[turn] for x in sequences), *captured]
        if attrs.condition is not None and not run(attrs.condition, operands)[0]:
            break
        results = run(attrs.body, operands)
        carries = list(results[: attrs.carries])
        for stack, row in zip(stacked, results[attrs.carries :], strict=False):
            stack[turn] = row
        taken += 1
    count = [np.asarray(taken, np.int64)] if attrs.condition is not None else []
    return [*carries, *count, *stacked]


def _run_alone(body: Body, arrays: Sequence[Array]) -> Sequence[Array]:
    from staticgrad.interpreter import evaluate

    def no_variable(attrs: Any) -> Array:
        raise GraphError(f"a body reads variable {attrs.key!r}")

    return evaluate(body, arrays, no_variable, np.zeros(2, np.int64)).values


def _loop(name: str, doc: str, effect: bool, grad_name: str) -> Op:
    return register(
        Op(
            name,
            doc,
            infer=_loop_types,
            reference=lambda attrs, *inputs: tuple(run_loop(attrs, inputs, _run_alone)),
            effect=effect,
            grad_name=grad_name,
            tags=frozenset({"primitive", "loop"}),
        )
    )


SCAN = _loop("scan", "Turns of a body that carries values and reads and writes rows.", False, "Scan")
WHILE = _loop("while_loop", "Turns of a body as long as a condition holds.", False, "WhileLoop")
EFFECTFUL_SCAN = _loop("effectful_scan", "A scan whose body has effects.", True, "Scan")
EFFECTFUL_WHILE = _loop("effectful_while_loop", "A while_loop whose body has effects.", True, "WhileLoop")


@public
def scan(
    fn: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    *,
    length: Size | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """``carry, y = fn(carry, x)`` for each row x of ``xs``, inside the compiled program.

    ``fn`` is called once, with tensors that stand for the values of one turn. It may use any tensor or variable from
    outside, and gradients flow to them.

    Args:
        fn: gets the carry and a row (None where ``xs`` is None); returns the next carry, of equal structure, shapes and
            dtypes, and what is stacked.
        init: a nest, the carry before the first turn.
        xs: a nest of tensors of one length along axis 0.
        length: how many turns; needed where ``xs`` is None.
        reverse: from the last row to the first; stacked results keep the order of the rows.

    Returns:
        The last carry (``init`` where there is no turn) and the nest of the ys, stacked along axis 0.

    Raises:
        GraphError: the carry changes its structure or a type, lengths differ, or a variable is written in ``fn``.
    """
    leaves, rows = nest.flatten(init), nest.flatten(xs)
    outer = graph_of([*leaves, *rows])
    with outer:
        carries = [lift(x, outer) for x in leaves]
        sequences = [lift(x, outer) for x in rows]
    turns = _length(sequences, length)
    graph = BodyGraph(outer)
    with graph, in_body():
        turn = _turn(graph)
        old = [_carried(graph, x) for x in carries]
        row = [_row(graph, x) for x in sequences]
        answer = fn(nest.pack(init, old), nest.pack(xs, row))
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise GraphError(f"scan: expected the function to return (carry, y), actual {answer!r}")
        new = _next_carry("scan", graph, init, answer[0], carries)
        ys = [graph.adopt(lift(y, graph), "scan") for y in nest.flatten(answer[1])]
    body = close(graph, [turn, *old, *row, *graph.captured.values()], [*new, *ys], "scan")
    attrs = LoopAttributes(body, None, len(carries), len(sequences), turns, bool(reverse))
    op = EFFECTFUL_SCAN if body.effects else SCAN
    node = outer.add(op, [*carries, *sequences, *graph.captured], attrs)
    last, stacked = node.outputs[: len(carries)], node.outputs[len(carries) :]
    return nest.pack(init, last), nest.pack(answer[1], stacked)


def map_(fn: Callable[[Any], Any], xs: Any) -> Any:
    """``fn`` of each row of ``xs``, stacked: a scan that carries nothing.

    Raises:
        GraphError: as ``scan``.
    """
    _, ys = scan(lambda carry, x: (carry, fn(x)), (), xs)
    return ys


map_.__name__ = map_.__qualname__ = "map"
FUNCTIONS.register(map_, "map")


@public
def while_loop(
    cond_fn: Callable[[Any], Any], body_fn: Callable[[Any], Any], init: Any, *, max_steps: int | None = None
) -> Any:
    """``state = body_fn(state)`` as long as ``cond_fn(state)`` holds, inside the compiled program.

    Args:
        cond_fn: gives a bool of shape ().
        body_fn: the next state, of equal structure, shapes and dtypes.
        init: a nest, the first state.
        max_steps: after so many steps the loop stops; gradients in reverse need this bound.

    Returns:
        The last state.

    Raises:
        GraphError: the state changes its structure or a type, or the condition is no bool of shape ().
    """
    if max_steps is not None and (not isinstance(max_steps, (int, np.integer)) or max_steps < 0):
        raise GraphError(f"while_loop: max_steps={max_steps!r}: expected a number of steps")
    leaves = nest.flatten(init)
    outer = graph_of(leaves)
    with outer:
        carries = [lift(x, outer) for x in leaves]
    graphs = (BodyGraph(outer), BodyGraph(outer))
    parts: list[tuple[list[Tensor], list[Tensor]]] = []
    for graph in graphs:
        with graph, in_body():
            turn = _turn(graph)
            old = [_carried(graph, x) for x in carries]
            state = nest.pack(init, old)
            if graph is graphs[0]:
                results = _next_carry("while_loop", graph, init, body_fn(state), carries)
            else:
                results = [_predicate("while_loop", graph, cond_fn(state))]
            parts.append(([turn, *old], results))
    captured = list(dict.fromkeys(x for graph in graphs for x in graph.captured))
    bodies = []
    for graph, (feeds, results) in zip(graphs, parts, strict=True):
        params = [graph.adopt(x, "while_loop") for x in captured]
        bodies.append(close(graph, [*feeds, *params], results, "while_loop"))
    attrs = LoopAttributes(bodies[0], bodies[1], len(carries), 0, None if max_steps is None else int(max_steps))
    op = EFFECTFUL_WHILE if any(body.effects for body in bodies) else WHILE
    node = outer.add(op, [*carries, *captured], attrs)
    return nest.pack(init, node.outputs[: len(carries)])


def _length(sequences: Sequence[Tensor], length: Size | None) -> Size:
    for x in sequences:
        if x.ndim == 0:
            raise GraphError(f"scan: xs are read row by row, but {x.name!r} has no axis", source=x.source)
    found = [x.shape[0] for x in sequences] + ([] if length is None else [length])
    if not found:
        raise GraphError("scan: without xs, length= says how many turns there are")
    known = [size for size in found if isinstance(size, int)]
    if len(set(known)) > 1 or any(size < 0 for size in known):
        raise GraphError(f"scan: expected one length, actual {', '.join(map(str, found))}")
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


def _next_carry(what: str, graph: BodyGraph, init: Any, answer: Any, carries: Sequence[Tensor]) -> list[Tensor]:
    try:
        leaves: list[Any] = []
        nest.map(lambda _, new: leaves.append(new), init, answer)
        if any(new is None or nest.children(new) is not None for new in leaves):
            raise GraphError(f"expected the structure of {init!r}, actual {answer!r}")
    except GraphError as error:
        raise GraphError(f"{what}: the carry changes its structure: {error}") from None
    return [_fitted(what, graph, new, x.type) for new, x in zip(leaves, carries, strict=True)]


def _fitted(what: str, graph: BodyGraph, value: Any, type_: TensorType) -> Tensor:
    """A leaf of the next carry; numbers and arrays take the dtype of their place."""
    if isinstance(value, (Tensor, Node)):
        x = graph.adopt(lift(value, graph), what)
    elif is_weak(value) or isinstance(value, (np.ndarray, np.generic)):
        x = _literal(f"{what}: the carry", value, type_.dtype)
    else:
        raise GraphError(f"{what}: {value!r} in the carry cannot be used as a tensor")
    same = len(x.shape) == len(type_.shape) and all(
        m == n or not (isinstance(m, int) and isinstance(n, int)) for m, n in zip(x.shape, type_.shape, strict=True)
    )
    if not same or x.dtype != type_.dtype:
        raise GraphError(f"{what}: the carry keeps its types\n  expected {type_}\n  actual   {x.type}")
    return x


def _literal(what: str, value: Any, dtype: np.dtype) -> Tensor:
    """A number or array in the dtype of its place.

    Raises:
        GraphError: that would change what kind of number it is, or its value.
    """
    if is_weak(value):
        require_number(value, dtype, what)
    elif not np.can_cast(value.dtype, dtype, "same_kind"):
        raise GraphError(f"{what}: expected {dtype.name}, actual {value!r}")
    return FUNCTIONS.constant(np.asarray(value).astype(dtype))


def _predicate(what: str, graph: Graph, value: Any) -> Tensor:
    x = graph.adopt(lift(value, graph), what)
    if x.dtype != bool_ or x.shape != ():
        raise GraphError(f"{what}: expected a condition of type bool[], actual {x.type}")
    return x


# -- cond ---------------------------------------------------------------------------------------------------------


@frozen
class CondAttributes:
    """The branch for true and the one for false."""

    then: Body
    otherwise: Body


def run_cond(attrs: CondAttributes, inputs: Sequence[Array], run: RunBody) -> list[Array]:
    """What a cond means."""
    return list(run(attrs.then if inputs[0] else attrs.otherwise, inputs[1:]))


def _cond(name: str, doc: str, effect: bool) -> Op:
    return register(
        Op(
            name,
            doc,
            infer=lambda attrs, *types: tuple(x.type for x in attrs.then.fetches),
            reference=lambda attrs, *inputs: tuple(run_cond(attrs, inputs, _run_alone)),
            effect=effect,
            grad_name="Cond",
            tags=frozenset({"primitive", "loop"}),
        )
    )


COND = _cond("cond", "One of two bodies.", False)
EFFECTFUL_COND = _cond("effectful_cond", "A cond whose branches have effects.", True)

LOOPS = frozenset({"scan", "effectful_scan", "while_loop", "effectful_while_loop"})
CONDS = frozenset({"cond", "effectful_cond"})


@public
def cond(pred: Any, then_fn: Callable[[], Any], else_fn: Callable[[], Any]) -> Any:
    """``then_fn()`` where ``pred`` holds, else ``else_fn()``; only that branch runs.

    Args:
        pred: a bool of shape ().
        then_fn: gives a nest of tensors; it may use any tensor from outside, and gradients flow to them.
        else_fn: gives a nest of equal structure, shapes and dtypes.

    Raises:
        GraphError: the branches differ, or the predicate is no bool of shape ().
    """
    outer = graph_of((pred,)) if isinstance(pred, (Tensor, Node)) else get_default_graph()
    with outer:
        predicate = _predicate("cond", outer, lift(bool(pred) if isinstance(pred, np.bool_) else pred, outer))
    graphs = (BodyGraph(outer), BodyGraph(outer))
    answers = []
    for graph, fn in zip(graphs, (then_fn, else_fn), strict=True):
        with graph, in_body():
            answers.append(fn())
    results = _branches(graphs, answers)
    captured = list(dict.fromkeys(x for graph in graphs for x in graph.captured))
    bodies = []
    for graph, leaves in zip(graphs, results, strict=True):
        bodies.append(close(graph, [graph.adopt(x, "cond") for x in captured], leaves, "cond"))
    op = EFFECTFUL_COND if any(body.effects for body in bodies) else COND
    node = outer.add(op, [predicate, *captured], CondAttributes(*bodies))
    return nest.pack(answers[0], node.outputs)


def _branches(graphs: Sequence[BodyGraph], answers: Sequence[Any]) -> list[list[Tensor]]:
    """The leaves of both branches, of equal types; numbers and arrays take the dtype of the other branch's tensor."""
    pairs: list[tuple[Any, Any]] = []
    try:
        nest.map(lambda a, b: pairs.append((a, b)), *answers)
        if any(b is None or nest.children(b) is not None for _, b in pairs):
            raise GraphError(f"expected the structure of {answers[0]!r}, actual {answers[1]!r}")
    except GraphError as error:
        raise GraphError(f"cond: the branches differ in structure: {error}") from None
    results: list[list[Tensor]] = [[], []]
    for pair in pairs:
        typed = sorted((v for v in pair if hasattr(v, "dtype")), key=lambda v: not isinstance(v, Tensor))
        for graph, value, found in zip(graphs, pair, results, strict=True):
            with graph, in_body():
                fits = typed and (is_weak(value) or isinstance(value, (np.ndarray, np.generic)))
                x = _literal("cond: a branch", value, typed[0].dtype) if fits else lift(value, graph)
                found.append(graph.adopt(x, "cond"))
        a, b = found_types = results[0][-1].type, results[1][-1].type
        if a.dtype != b.dtype or a.ndim != b.ndim or (a.static and b.static and a != b):
            raise GraphError(f"cond: the branches differ in a type\n  expected {found_types[0]}\n  actual   {b}")
    return results
