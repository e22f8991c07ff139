"""Bodies: the graphs that loops and branches hold as attributes.

    Body ::= graph, feeds, fetches, effects

What a user's function declares goes into a ``BodyGraph``, in which every tensor from outside becomes a parameter the
first time it is used (it is *captured*).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Self

import numpy as np

from staticgrad.base.errors import GraphError, SourceLine, at_source, user_source
from staticgrad.base.frozen import frozen
from staticgrad.base.types import (
    Symbol,
    TensorType,
    bind,
    bool_,
    float64,
    infer_again,
    is_integer,
    is_weak,
    require_number,
)
from staticgrad.graph.graph import Derivation, Graph, Node, Tensor, needed_nodes
from staticgrad.graph.lifting import lift
from staticgrad.graph.naming import put_back
from staticgrad.graph.optable import FUNCTIONS, Array
from staticgrad.ops.sources import PLACEHOLDER, SourceAttributes

# How the body of each function hands out a tensor.
HANDED_OUT = {
    "scan": "as a part of the carry, or as y, which is stacked over the turns",
    "map": "results are stacked over the rows",
    "while_loop": "as a part of the state",
    "cond": "both branches return as much",
}


class BodyGraph(Derivation):
    """The graph of a body while it is written: what it reads of the graphs around it becomes a parameter. ``what`` is
    the function whose body it is, ``source`` the user's line that calls it."""

    keeps_gradients = False

    def __init__(self, outer: Graph, base: Graph | None = None, what: str = "") -> None:
        super().__init__(Graph() if base is None else base)
        self.outer = outer
        self.what: str = base.what if isinstance(base, BodyGraph) else what
        self.source: SourceLine | None = base.source if isinstance(base, BodyGraph) else user_source()
        known = isinstance(base, BodyGraph)
        self.captured: dict[Tensor, Tensor] = dict(base.captured) if isinstance(base, BodyGraph) else {}
        self._outside = {parameter: x for x, parameter in self.captured.items()}
        self.turn: Tensor | None = base.turn if isinstance(base, BodyGraph) else None
        self.first_capture = len(self.captured) if known else 0

    def around(self) -> tuple[Graph, ...]:
        return self.base, self.outer

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
                self.capture(outside, known)
        return known

    def whereabouts(self, item: Tensor | Node, other: str) -> str:
        function = self.what or "loop or branch"
        made = f"\n  made at {item.source}" if item.source is not None else ""
        how = f": {HANDED_OUT[self.what]}" if self.what else ""
        return (
            f"{item.name!r} belongs to the body of a {function}, and has a value only there{made}"
            f"\n  in the {function} at {self.source}\n  return it from the body{how}"
        )

    def why_final(self, operands: Sequence[Tensor]) -> str:
        for x in operands:
            if self.holds(x):
                return self.whereabouts(x, "")
        return f"the body of the {self.what or 'loop or branch'} at {self.source} is complete, no op can be added"

    def check_readable(self, x: Tensor) -> None:
        raise GraphError(self.whereabouts(x, ""))

    def capture(self, outside: Tensor, parameter: Tensor) -> None:
        """Let ``parameter`` be what this body reads of a tensor ``outside``."""
        self.captured.setdefault(outside, parameter)
        self._outside[parameter] = outside

    def outermost(self, x: Tensor) -> Tensor:
        return self.outer.outermost(self._outside.get(x, x))

    def take_place(self) -> int:
        return self.outer.take_place()

    def loop_indices(self) -> tuple[Tensor, ...]:
        around = tuple(self.adopt(x, "random") for x in self.outer.loop_indices())
        return around if self.turn is None else (*around, self.turn)


@frozen(eq=False)
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
        key = ("sizes", frozenset(bindings.items()))
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
            types = infer_again(node.op.infer, attrs, (x.type for x in node.inputs), (x.type for x in inputs))
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
        GraphError: it has state of its own or writes some, or leaves its tensors in the place of variables.
    """
    put_back(graph, what)
    last: Node | None = None
    ordered = []
    for node in graph.nodes:
        if node.op.state:
            why = why_written(graph.nodes)
            raise GraphError(f"{what}: variables are declared and written outside of a body, not {node.name!r}{why}")
        if is_ordered(node):
            if last is not None:
                node.control = tuple(dict.fromkeys((*node.control, last)))
            last = node
            ordered.append(node)
    graph.finalized = True
    return Body(graph, tuple(feeds), tuple(fetches), effects_of(graph.nodes, fetches, ordered))


def why_written(nodes: Iterable[Node]) -> str:
    """For messages: what may write variables among these nodes without the user's saying so; "" if nothing does."""
    if all(node.op.name != "batch_norm" for node in nodes):
        return ""
    return (
        ": batch norm in training mode updates its running statistics. Call it outside, or after eval(), or take"
        " sg.nn.GroupNorm or sg.nn.LayerNorm, which keep none"
    )


def effects_of(nodes: Sequence[Node], fetches: Sequence[Tensor], always: Sequence[Node] = ()) -> tuple[Node, ...]:
    """The effects that ``fetches`` need, and those that happen ``always``."""
    needed = needed_nodes(fetches, always)
    return tuple(node for node in nodes if node in needed and node.op.effect)


class Bodied:
    """Attributes that hold bodies."""

    __slots__ = ()

    @property
    def bodies(self) -> tuple[Body, ...]:
        raise NotImplementedError

    def with_bodies(self, bodies: Sequence[Body]) -> Self:
        """The same over other bodies, in their order."""
        raise NotImplementedError

    def evaluate(self, inputs: Sequence[Array], run: RunBody) -> list[Array]:
        """The results of the op for arrays as operands, where ``run`` gives those of a body: its reference."""
        raise NotImplementedError


def bodies_of(node: Node) -> tuple[Body, ...]:
    """The bodies that a node runs."""
    return node.attrs.bodies if isinstance(node.attrs, Bodied) else ()


def is_ordered(node: Node) -> bool:
    """True if a node keeps its order among those that do something that is seen."""
    return node.op.ordered or (node.op.effect and bool(bodies_of(node)))


def draws(node: Node) -> bool:
    """True if an op takes random numbers, so that a run of it counts."""
    return node.op.draws or any(draws(n) for body in bodies_of(node) for n in body.graph.nodes)


RunBody = Callable[[Body, Sequence[Array]], Sequence[Array]]


def run_alone(body: Body, arrays: Sequence[Array]) -> Sequence[Array]:
    from staticgrad.ops.interpreter import evaluate

    def no_variable(attrs: Any) -> Array:
        raise GraphError(f"a body reads variable {attrs.key!r}")

    return evaluate(body, arrays, no_variable, np.zeros(2, np.int64)).values


def require_function(what: str, fn: Any, *arguments: str) -> None:
    """Check before anything is declared that a function of the user's can be called with ``arguments``, by position.

    Raises:
        GraphError: it cannot, or it is no function; the message gives what it would be called with.
    """
    expected = f"{what}: expected a function of ({', '.join(arguments)}), actual"
    if not callable(fn):
        raise GraphError(f"{expected} {fn!r}")
    try:
        signature = inspect.signature(fn)
    except ValueError:  # of some functions written in C nothing is known
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        where = "; init, and so the state, is one nest" if "state" in arguments else ""
        raise GraphError(f"{expected} one of {signature}{where}") from None


def fitted(what: str, graph: BodyGraph, value: Any, type_: TensorType, path: str) -> Tensor:
    """A leaf of the next carry, at ``path`` in its nest; numbers and arrays take the dtype of their place."""
    if isinstance(value, (Tensor, Node)):
        x = graph.adopt(lift(value, graph), what)
    elif is_weak(value) or isinstance(value, (np.ndarray, np.generic)):
        x = literal(f"{what}: carry{path}", value, type_.dtype)
    else:
        raise GraphError(f"{what}: {value!r} as carry{path} cannot be used as a tensor")
    if not same_type(x.type, type_):
        raise GraphError(
            f"{what}: the carry keeps its types, which carry{path} does not"
            f"\n  expected {type_}, as init{path}\n  actual   {x.type}, {x.name!r} that the body returns"
            f"\n  {_remedy(x.type, type_, path)}"
        )
    return x


def _remedy(actual: TensorType, expected: TensorType, path: str) -> str:
    """The remedy for a carry whose type differs from that which the body returns: change the initial value or the
    body."""
    if actual.dtype != expected.dtype:
        old, new, why = expected.dtype.name, actual.dtype.name, ""
        if is_integer(expected.dtype) and actual.dtype == float64:
            new, why = "float32", " or dtype=sg.float64, that of what it meets (integers and float32 make float64)"
        return f"give init{path} dtype=sg.{new}{why}: sg.astype(init{path}, sg.{new}); or return .astype(sg.{old})"
    return f"give init{path} the shape {actual.shape}, or let the body return {expected.shape}"


def same_type(actual: TensorType, expected: TensorType) -> bool:
    """True if types are equal where their sizes are known."""
    return (
        actual.dtype == expected.dtype
        and len(actual.shape) == len(expected.shape)
        and all(
            m == n or not (isinstance(m, int) and isinstance(n, int))
            for m, n in zip(actual.shape, expected.shape, strict=True)
        )
    )


def require_type(actual: TensorType, expected: TensorType, rule: str) -> None:
    """Types are equal where their sizes are known.

    Raises:
        GraphError: they are not.
    """
    if not same_type(actual, expected):
        raise GraphError(f"{rule}\n  expected {expected}\n  actual   {actual}")


def literal(what: str, value: Any, dtype: np.dtype) -> Tensor:
    """A number or array in the dtype of its place.

    Raises:
        GraphError: that would change what kind of number it is, or its value.
    """
    if is_weak(value):
        require_number(value, dtype, what)
    elif not np.can_cast(value.dtype, dtype, "same_kind"):
        raise GraphError(f"{what}: expected {dtype.name}, actual {value!r}")
    return FUNCTIONS.constant(np.asarray(value).astype(dtype))


def predicate_of(what: str, graph: Graph, value: Any) -> Tensor:
    x = graph.adopt(lift(value, graph), what)
    if x.dtype != bool_ or x.shape != ():
        raise GraphError(f"{what}: expected a condition of type bool[], actual {x.type}")
    return x
