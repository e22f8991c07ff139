"""The graphs that a text is read into: the one that comes out, and in it the bodies of loops and branches.

The lines that open and close a body go in. What is defined has a name in the graph that is open, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence

from staticgrad.base.errors import FormatError
from staticgrad.base.frozen import record
from staticgrad.base.types import TensorType, bool_, int64
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.ops.control.bodies import Body, BodyGraph, bodies_of, same_type
from staticgrad.ops.control.branches import CondAttributes
from staticgrad.ops.control.loops import LoopAttributes
from staticgrad.saving.literals import NESTING, Tokens

MOST_CONTINUED = 4_000_000  # nodes of bodies that other bodies begin with, all together
_INDEX, _BOOL = TensorType((), int64), TensorType((), bool_)


@record
class GraphScope:
    """A graph that is being read, its nodes by name; the number of the body that it is, and of the one it continues."""

    graph: Graph
    nodes: dict[str, Node]
    number: int = 0
    origin: int = 0


class GraphScopes:
    """The graphs that are open, from the outermost to the innermost, and the bodies that have ended."""

    def __init__(self) -> None:
        self.scopes = [GraphScope(Graph(), {})]
        self.read: dict[int, tuple[Body, dict[str, Node]]] = {}  # bodies, and their nodes by name
        self.continued = 0

    @property
    def root(self) -> Graph:
        return self.scopes[0].graph

    @property
    def graph(self) -> Graph:
        return self.scopes[-1].graph

    @property
    def nodes(self) -> dict[str, Node]:
        return self.scopes[-1].nodes

    @property
    def is_in_body(self) -> bool:
        return len(self.scopes) > 1

    def finished(self) -> Graph:
        if self.is_in_body:
            raise FormatError(f"body {self.scopes[-1].number} does not end")
        return self.root

    def open(self, t: Tokens) -> None:
        number = t.integer()
        origin = t.integer() if t.accept("of") else 0
        t.expect("{")
        if number in self.read or number in [scope.number for scope in self.scopes]:
            raise FormatError(f"there are two bodies {number}")
        if len(self.scopes) > NESTING:
            raise FormatError("bodies are nested too deeply")
        self.continued += len(self.body(origin).graph.nodes) if origin else 0
        if self.continued > MOST_CONTINUED:
            raise FormatError(f"bodies continue others of more than {MOST_CONTINUED} nodes in all")
        known, nodes = (None, {}) if not origin else (self.body(origin).graph, dict(self.read[origin][1]))
        self.scopes.append(GraphScope(BodyGraph(self.graph, known), nodes, number, origin))

    def close(self, t: Tokens) -> None:
        if not self.is_in_body:
            raise FormatError("no body ends here")
        t.expect("(")
        feeds = t.sequence(")", self.tensor)
        t.expect("->")
        t.expect("(")
        fetches = t.sequence(")", self.tensor)
        effects: list[Node] = []
        if t.accept("effects"):
            t.expect("(")
            effects = t.sequence(")", self.node)
        for x in feeds:
            if x.op.op.name != "placeholder":
                raise FormatError(f"%{x.name} is no placeholder: a body can't be given it")
        scope = self.scopes.pop()
        scope.graph.finalize()
        origin = self.body(scope.origin) if scope.origin else None
        body = Body(scope.graph, tuple(feeds), tuple(fetches), tuple(effects), origin)
        self.read[scope.number] = body, scope.nodes

    def body(self, number: int) -> Body:
        if number not in self.read:
            raise FormatError(f"there is no body {number} before this")
        return self.read[number][0]

    def node(self, t: Tokens) -> Node:
        name = t.node_name()
        if name not in self.nodes:
            raise FormatError(f"%{name} is used before it is defined")
        return self.nodes[name]

    def tensor(self, t: Tokens) -> Tensor:
        node = self.node(t)
        index = t.integer() if t.accept(":") else 0
        if index >= len(node.outputs):
            raise FormatError(f"%{node.name} has {len(node.outputs)} outputs, there is no number {index}")
        return node.outputs[index]


def know_bodies(node: Node) -> None:
    """Check the bodies of a node against its operands, and tell them what of these they capture."""
    attrs = node.attrs
    if isinstance(attrs, LoopAttributes):
        _check_loop(node, attrs)
        given = [x.type for x in attrs.body.feeds[: 1 + attrs.carries + attrs.sequences]]
        captured = node.inputs[attrs.counted + len(given) - 1 :]
    else:
        given, captured = [], node.inputs[1:]
    if isinstance(attrs, CondAttributes):
        _expect("predicate", node.inputs[:1], [_BOOL])
        _expect("other branch", attrs.otherwise.fetches, [x.type for x in attrs.then.fetches])
    for body in bodies_of(node):
        _expect("body", body.feeds, [*given, *(x.type for x in captured)])
        if isinstance(body.graph, BodyGraph):
            body.graph.turn = body.feeds[0] if given else None
            for x, parameter in zip(captured, body.feeds[len(given) :], strict=True):
                body.graph.capture(x, parameter)


def _check_loop(node: Node, attrs: LoopAttributes) -> None:
    """Check that the types of a turn, of carries and of rows are the same outside and inside."""
    if attrs.counted:
        _expect("count", node.inputs[:1], [_INDEX])
    operands = [x.type for x in node.inputs[attrs.counted :]]
    carries, rows = operands[: attrs.carries], operands[attrs.carries :][: attrs.sequences]
    inside = [_INDEX, *carries, *(TensorType(t.shape[1:], t.dtype) for t in rows)]
    _expect("turn", attrs.body.feeds[: len(inside)], inside)
    _expect("next carry", attrs.body.fetches[: attrs.carries], carries)
    if attrs.condition is not None:
        _expect("condition", attrs.condition.fetches, [_BOOL])


def _expect(what: str, found: Sequence[Tensor], expected: Sequence[TensorType]) -> None:
    types = [x.type for x in found]
    if len(types) != len(expected) or not all(map(same_type, types, expected)):
        wanted, actual = (", ".join(map(str, types)) for types in (expected, types))
        raise FormatError(f"expected a {what} of type {wanted}, actual {actual}")
