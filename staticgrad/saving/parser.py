"""Text to graph: what ``graph.text(full=True)`` printed comes in, a graph comes out: see ``staticgrad.graph.text``.

Nothing in a text is executed: names of classes are looked up in a closed set, values are checked against the types of
the fields they stand for, the type of every tensor is inferred again and compared with the one printed.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from staticgrad.base.depth import all_levels
from staticgrad.base.errors import FormatError
from staticgrad.base.frozen import record
from staticgrad.base.types import (
    DTYPE_NAMES,
    Dim,
    Shape,
    Size,
    TensorType,
    bool_,
    dim,
    dtype_of,
    int64,
    larger,
    open_size,
    smaller,
)
from staticgrad.graph.graph import Graph, GraphEntry, Node, Tensor
from staticgrad.graph.optable import NO_ATTRIBUTES, OPS, Array, Op
from staticgrad.graph.scopes import Checkpoint, no_grad
from staticgrad.graph.text import ELIDED, MOST_EXPANDED, class_name
from staticgrad.nn import initializers as init
from staticgrad.ops.control.bodies import Body, BodyGraph, bodies_of, same_type
from staticgrad.ops.control.branches import CondAttributes
from staticgrad.ops.control.loops import LoopAttributes
from staticgrad.ops.sources import VariableAttributes, content_of
from staticgrad.ops.variables import Fixed, Initial
from staticgrad.saving.literals import (
    Encoded,
    Full,
    Listed,
    Literals,
    LyingBeside,
    Made,
    Tokens,
    as_size,
    class_of,
    resolve,
)

CONSTANTS = {"True": True, "False": False, "None": None, "inf": float("inf"), "nan": float("nan")}
NESTING = 50  # parentheses within parentheses, bodies within bodies; no graph comes near it
MOST_CONTINUED = 4_000_000  # nodes of bodies that other bodies begin with, all together
WORDS = frozenset({"after", "again", "checkpoint", "no_grad"})  # that follow the attributes in a line
_epochs = itertools.count(-1, -1)  # numbers of recomputations that no derivative of this process gives


@all_levels()
def parse(text: str) -> Graph:
    """The graph that a text describes, with the same names, variables, gradients' flags and random places.

    Raises:
        FormatError: the text is damaged or not of this kind, large arrays were elided from it (``str(graph)`` does
            that, ``graph.text(full=True)`` does not), or it speaks of Python functions; the line is named.

    Example:
        >>> x = sg.placeholder((2,), name="x")
        >>> y = sg.exp(x) * 2
        >>> graph = sg.parse(str(x.graph))
        >>> str(graph) == str(x.graph)
        True
    """
    return parse_saved(text, {})


@all_levels()
def parse_saved(text: str, arrays: Mapping[str, Array]) -> Graph:
    """The graph that a text describes with the arrays that lie beside it, each of which is read once.

    Raises:
        FormatError: as ``parse``, or an array is not there, of another type, or left over.
    """
    reader = _GraphReader(arrays)
    number = 0
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            with _said_of_line(number):
                reader.line(line.rstrip())
    with _said_of_line(number):
        return reader.finished()


@contextlib.contextmanager
def _said_of_line(number: int) -> Iterator[None]:
    """Whatever goes wrong in a line is an error of format: a damaged attribute may upset an op's rule in any way."""
    try:
        yield
    except FormatError as error:
        raise FormatError(f"line {number}: {error}") from None
    except Exception as error:
        raise FormatError(f"line {number}: {error}") from error


# -- one line -------------------------------------------------------------------------------------------------------


@record
class _GraphScope:
    """A graph that is being read, its nodes by name; the number of the body that it is, and of the one it continues."""

    graph: Graph
    nodes: dict[str, Node]
    number: int = 0
    origin: int = 0


@record
class _ParsedOutput:
    type: TensorType
    words: list[str]


class _GraphReader:
    """Reads lines in order into a graph."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self.arrays = dict(arrays)  # that are not read yet
        self.expanded = self.continued = 0
        self.scopes = [_GraphScope(Graph(), {})]
        self.read: dict[int, tuple[Body, dict[str, Node]]] = {}  # bodies, and their nodes by name
        self.symbols: dict[tuple[str, int], Dim] = {}
        self.checkpoints: dict[int, Checkpoint] = {}
        self.epochs: dict[int, int] = {}
        self.depth = 0

    @property
    def root(self) -> Graph:
        return self.scopes[0].graph

    @property
    def graph(self) -> Graph:
        return self.scopes[-1].graph

    @property
    def nodes(self) -> dict[str, Node]:
        return self.scopes[-1].nodes

    def finished(self) -> Graph:
        if len(self.scopes) > 1:
            raise FormatError(f"body {self.scopes[-1].number} does not end")
        if self.arrays:
            raise FormatError(f"the text does not read the array {min(self.arrays)!r} beside it")
        return self.root

    def line(self, line: str) -> None:
        t = Tokens(line)
        if t.accept("body"):
            self.open(t)
        elif t.accept("}"):
            self.close(t)
        elif t.accept("entry"):
            self.entry(t)
        else:
            self.definition(t)
        if t.kind:
            t.fail("expected the end of the line")

    # -- bodies -----------------------------------------------------------------------------------------------------

    def open(self, t: Tokens) -> None:
        number = self.integer(t)
        origin = self.integer(t) if t.accept("of") else 0
        t.expect("{")
        if number in self.read or number in [scope.number for scope in self.scopes]:
            raise FormatError(f"there are two bodies {number}")
        if len(self.scopes) > NESTING:
            raise FormatError("bodies are nested too deeply")
        self.continued += len(self.body(origin).graph.nodes) if origin else 0
        if self.continued > MOST_CONTINUED:
            raise FormatError(f"bodies continue others of more than {MOST_CONTINUED} nodes in all")
        known, nodes = (None, {}) if not origin else (self.body(origin).graph, dict(self.read[origin][1]))
        self.scopes.append(_GraphScope(BodyGraph(self.graph, known), nodes, number, origin))

    def close(self, t: Tokens) -> None:
        if len(self.scopes) == 1:
            raise FormatError("no body ends here")
        t.expect("(")
        feeds = self.sequence(t, ")", self.tensor)
        t.expect("->")
        t.expect("(")
        fetches = self.sequence(t, ")", self.tensor)
        effects: list[Node] = []
        if t.accept("effects"):
            t.expect("(")
            effects = self.sequence(t, ")", self.node)
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

    # -- entries ----------------------------------------------------------------------------------------------------

    def entry(self, t: Tokens) -> None:
        name = t.string()
        if len(self.scopes) > 1 or name in self.root.entries:
            raise FormatError(f"there are two entries {name!r}" if name in self.root.entries else "an entry in a body")
        t.expect("(")
        feeds: dict[Tensor, Shape] = {}
        for x, shape in self.sequence(t, ")", self.fed):
            if x in feeds:
                raise FormatError(f"%{x.name} is fed twice")
            feeds[x] = shape
        t.expect("->")
        self.root.entries[name] = GraphEntry(self.nest(t), feeds)

    def fed(self, t: Tokens) -> tuple[Tensor, Shape]:
        x = self.tensor(t)
        shape = tuple(self.sequence(t, "]", self.size)) if t.accept("[") else x.shape
        if not fits_declared(shape, x.shape):
            raise FormatError(f"%{x.name} of type {x.type} cannot be fed the shape {shape}")
        return x, shape

    def nest(self, t: Tokens) -> Any:
        with self.nested():
            if t.accept("None"):
                return None
            if t.accept("op"):
                return self.node(t)
            if t.accept("["):
                return self.sequence(t, "]", self.nest)
            if t.accept("{"):
                pairs = self.sequence(t, "}", self.pair)
                if len(dict(pairs)) < len(pairs):
                    raise FormatError("a key of a nest is there twice")
                return dict(pairs)
            if t.accept("("):
                return tuple(self.sequence(t, ")", self.nest))
            return self.tensor(t)

    def pair(self, t: Tokens) -> tuple[str, Any]:
        key = t.string()
        t.expect(":")
        return key, self.nest(t)

    @contextlib.contextmanager
    def nested(self) -> Iterator[None]:
        self.depth += 1
        if self.depth > NESTING:
            raise FormatError("parentheses are nested too deeply")
        yield
        self.depth -= 1

    # -- nodes ------------------------------------------------------------------------------------------------------

    def definition(self, t: Tokens) -> None:
        name = self.name(t)
        t.expect("=")
        word = t.take("name")
        try:
            op = OPS[word]
        except KeyError:
            raise FormatError(f"there is no op {word!r}") from None
        t.expect("(")
        inputs = self.sequence(t, ")", self.tensor)
        made = self.attributes(t) if t.kind == "name" and t.text not in WORDS else None
        control = [self.node(t)] if t.accept("after") else []
        while control and t.accept(","):
            control.append(self.node(t))
        epoch, original = self.again(t) if t.accept("again") else (0, None)
        checkpoint = self.checkpoint(t) if t.accept("checkpoint") else None
        blocked = t.accept("no_grad")
        t.expect(":")
        outputs = self.outputs(t)
        arities = {len(case.shapes) for case in op.cases}
        if op.elementwise and arities - {0} and len(inputs) not in arities:  # such ops broadcast any operands they get
            raise FormatError(f"{op.name} does not take {len(inputs)} operands")
        with self.graph, no_grad() if blocked else contextlib.nullcontext():
            attrs = self.build(op, made, outputs)
            node = self.graph.add(op, inputs, attrs, name=name, control=control)
        node.epoch, node.original, node.checkpoint = epoch, original, checkpoint
        self.check(node, name, outputs)
        self.register(node)
        for y, output in zip(node.outputs, outputs, strict=True):
            self.mark(y, output.words)

    # -- parts of a line ------------------------------------------------------------------------------------------

    def name(self, t: Tokens) -> str:
        text = t.take("node")
        return t.string() if text == "%" else text[1:]

    def node(self, t: Tokens) -> Node:
        name = self.name(t)
        if name not in self.nodes:
            raise FormatError(f"%{name} is used before it is defined")
        return self.nodes[name]

    def tensor(self, t: Tokens) -> Tensor:
        node = self.node(t)
        index = self.integer(t) if t.accept(":") else 0
        if index >= len(node.outputs):
            raise FormatError(f"%{node.name} has {len(node.outputs)} outputs, there is no number {index}")
        return node.outputs[index]

    def integer(self, t: Tokens) -> int:
        text = t.take("number")
        if not text.isdecimal():
            raise FormatError(f"expected a whole number, actual {text}")
        return int(text)

    def again(self, t: Tokens) -> tuple[int, Node | None]:
        """The recomputation that a node belongs to, and the node that it computes again."""
        t.expect("(")
        epoch = self.epochs.setdefault(self.integer(t), next(_epochs))
        original = self.node(t) if t.accept(",") else None
        t.expect(")")
        return epoch, original

    def checkpoint(self, t: Tokens) -> Checkpoint | None:
        """The innermost checkpoint; those around it come before it."""
        t.expect("(")
        inside: Checkpoint | None = None
        for number in self.sequence(t, ")", self.integer):
            known = self.checkpoints.setdefault(number, Checkpoint(inside))
            if known.outer is not inside:
                raise FormatError(f"checkpoint {number} is inside of another one than before")
            inside = known
        return inside

    def sequence(self, t: Tokens, end: str, item: Callable[[Tokens], Any]) -> list[Any]:
        """Items with commas between them up to ``end``; the opening mark is behind us."""
        items: list[Any] = []
        while not t.accept(end):
            if items:
                t.expect(",")
                if t.accept(end):
                    break
            items.append(item(t))
        return items

    def outputs(self, t: Tokens) -> list[_ParsedOutput]:
        if t.accept("("):
            t.expect(")")
            return []
        found = [self.output(t)]
        while t.accept(","):
            found.append(self.output(t))
        return found

    def output(self, t: Tokens) -> _ParsedOutput:
        type_ = self.type(t, t.take("name"))
        words = []
        while t.kind == "name":
            words.append(t.next())
        return _ParsedOutput(type_, words)

    def type(self, t: Tokens, dtype: str) -> TensorType:
        if dtype not in DTYPE_NAMES:
            raise FormatError(f"there is no dtype {dtype!r}")
        t.expect("[")
        return TensorType(tuple(self.sequence(t, "]", self.size)), dtype_of(dtype))

    def size(self, t: Tokens) -> Size:
        return as_size(self.value(t))

    # -- values -----------------------------------------------------------------------------------------------------

    def attributes(self, t: Tokens) -> Made:
        name = t.next()
        return Made(name, self.fields(t) if t.accept("(") else {})

    def fields(self, t: Tokens) -> dict[str, Any]:
        values: dict[str, Any] = {}

        def field(t: Tokens) -> None:
            name = t.take("name")
            t.expect("=")
            if name in values:
                raise FormatError(f"{name} is given twice")
            values[name] = self.value(t)

        self.sequence(t, ")", field)
        return values

    def value(self, t: Tokens) -> Any:
        """A value, or a sum of sizes."""
        with self.nested():
            total = self.product(t)
            while t.text in ("+", "-") and t.kind == "mark":
                plus = t.next() == "+"
                term = as_size(self.product(t))
                total = as_size(as_size(total) + term if plus else as_size(total) - term)
            return total

    def product(self, t: Tokens) -> Any:
        total = self.factor(t)
        while t.text in ("*", "//") and t.kind == "mark":
            times = t.next() == "*"
            factor = as_size(self.factor(t))
            total = as_size(as_size(total) * factor if times else as_size(total) // factor)
        return total

    def factor(self, t: Tokens) -> Any:
        if t.accept("-"):
            value = self.factor(t)
            if isinstance(value, Dim):
                return value * -1
            if type(value) not in (int, float):
                raise FormatError("a minus stands before a number or a size")
            return -value
        if t.accept("("):
            return self.parenthesis(t)
        if t.accept("["):
            return Listed(tuple(self.sequence(t, "]", self.value)))
        if t.kind == "number":
            text = t.next()
            return int(text) if text.isdecimal() else float(text)
        if t.kind == "string":
            return t.string()
        if t.kind == "object":
            is_array = t.text.startswith(f"<{ELIDED}")
            how = ": print the graph with graph.text(full=True), which elides no array" if is_array else ""
            raise FormatError(f"{t.text} stands for something that was left out of the text{how}")
        return self.named(t, t.take("name"))

    def parenthesis(self, t: Tokens) -> Any:
        """``()``, ``(a,)`` and ``(a, b)`` are tuples, ``(a)`` is a."""
        if t.accept(")"):
            return ()
        first = self.value(t)
        if t.accept(")"):
            return first
        t.expect(",")
        return (first, *self.sequence(t, ")", self.value))

    def named(self, t: Tokens, name: str) -> Any:
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name in DTYPE_NAMES:
            return self.type(t, name) if t.text == "[" else dtype_of(name)
        if not t.accept("("):
            return self.symbol(name, 1)
        if name == "body":
            body = self.body(self.integer(t))
            t.expect(")")
            return body
        if name == "dim":
            symbol, number = t.string(), self.integer(t) if t.accept(",") else 1
            ends = self.value(t) if t.accept(",") else ()
            t.expect(")")
            return self.symbol(symbol, number, ends)
        if name in ("max", "min"):
            a, b = (as_size(size) for size in self.operands(t))
            return as_size(larger(a, b) if name == "max" else smaller(a, b))
        if name in ("full", "base64", "array"):
            literal = Full(self.value(t)) if name == "full" else self.stored(name, t.string())
            t.expect(")")
            return literal
        return resolve(Made(name, self.fields(t)))

    def operands(self, t: Tokens) -> tuple[Any, Any]:
        """Two values up to a bracket; the opening one is behind us."""
        first = self.value(t)
        t.expect(",")
        second = self.value(t)
        t.expect(")")
        return first, second

    def stored(self, how: str, text: str) -> Literals:
        """An array in base64, or the one of a name."""
        if how == "base64":
            return Encoded(text)
        if text not in self.arrays:
            raise FormatError(f"there is no array {text!r} beside the text, or it was read before")
        return LyingBeside(text, self.arrays.pop(text))

    def symbol(self, name: str, number: int, ends: tuple[int, ...] = ()) -> Dim:
        made = dim(name, ranges=ends)
        if number > 1:
            made = open_size(name, ends)
        return self.symbols.setdefault((name, number), made)

    # -- the node -----------------------------------------------------------------------------------------------------

    def build(self, op: Op, made: Made | None, outputs: list[_ParsedOutput]) -> Any:
        """The attributes of an op, what its type says filled in."""
        known = {type(case.attrs) for case in op.cases}
        if made is None:
            attrs: Any = NO_ATTRIBUTES
        else:
            said = {"shape": outputs[0].type.shape, "dtype": outputs[0].type.dtype} if outputs else {}
            names = {f.name for f in fields(class_of(made.name))}
            values = {**{name: value for name, value in said.items() if name in names}, **made.values}
            if made.name == "Constant" and "data" in values:
                values["data"] = self.data(values["data"], values)
            if made.name == "Variable" and "initial" in values:
                values["initial"] = self.initial(values["initial"], values)
            attrs = resolve(Made(made.name, values))
        if known and type(attrs) not in known:
            raise FormatError(f"{op.name} has no attributes {class_name(attrs)}")
        return attrs

    def array(self, literal: Any, values: dict[str, Any]) -> Array:
        if not isinstance(literal, Literals):
            raise FormatError("expected an array")
        return literal.array(values["dtype"], values["shape"])

    def data(self, literal: Any, values: dict[str, Any]) -> bytes | memoryview:
        """The elements of a constant: no more than a text of this length may stand for."""
        array = self.array(literal, values)
        self.expanded += array.nbytes if isinstance(literal, Full) else 0
        if self.expanded > MOST_EXPANDED:
            raise FormatError(f"constants of equal elements of more than {MOST_EXPANDED} bytes in all")
        return content_of(array)

    def initial(self, value: Any, values: dict[str, Any]) -> Callable[[np.random.Generator], Array]:
        if isinstance(value, Literals):
            return Fixed(self.array(value, values))
        if not init.is_initializer(value):
            raise FormatError("expected an array or an initializer as first value")
        return Initial(value, values["shape"], values["dtype"])

    def check(self, node: Node, name: str, outputs: list[_ParsedOutput]) -> None:
        if node.name != name or name in self.nodes:
            raise FormatError(f"%{name} is defined twice")
        stated = [output.type for output in outputs]
        if stated != [y.type for y in node.outputs]:
            inferred = ", ".join(str(y.type) for y in node.outputs) or "()"
            raise FormatError(f"expected the type {inferred}, actual {', '.join(map(str, stated)) or '()'}")

    def register(self, node: Node) -> None:
        self.nodes[node.name] = node
        if len(self.scopes) > 1 and node.op.state:
            raise FormatError(f"{node.op.name} has no place in a body")
        self.know_bodies(node)
        if isinstance(node.attrs, VariableAttributes):
            if node.attrs.key in self.root.variables:
                raise FormatError(f"there are two variables {node.attrs.key!r}")
            self.root.variables[node.attrs.key] = node.outputs[0]
            if node.attrs.trainable:
                node.outputs[0].requires_grad_()
        if node.op.draws and node.attrs.seed is None:
            self.root.random_ops = max(self.root.random_ops, node.attrs.place + 1)

    def know_bodies(self, node: Node) -> None:
        """Check the bodies of a node against its operands, and tell them what of these they capture."""
        attrs = node.attrs
        if isinstance(attrs, LoopAttributes):
            self.check_loop(node, attrs)
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

    def check_loop(self, node: Node, attrs: LoopAttributes) -> None:
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

    def mark(self, x: Tensor, words: list[str]) -> None:
        for word in words:
            match word:
                case "requires_grad":
                    x.requires_grad = False  # else it would be no leaf
                    x.requires_grad_()
                case "passes_grad" | "ignores_grad":
                    x.requires_grad = word == "passes_grad"
                    x._requires = x._requires and x.requires_grad
                case "retains_grad":
                    x.retains_grad = True
                case "hooked":
                    raise FormatError("the tensor has hooks, which are Python functions and not text")
                case _:
                    raise FormatError(f"there is no word {word!r} of types")


def fits_declared(shape: Shape, declared: Shape) -> bool:
    """True if feeds of a declared shape may have this one: open sizes are the same, or numbers in their place."""
    return len(shape) == len(declared) and all(
        a == b or (isinstance(a, int) and a >= 0 and not isinstance(b, int)) for a, b in zip(shape, declared)
    )


_INDEX, _BOOL = TensorType((), int64), TensorType((), bool_)


def _expect(what: str, found: Sequence[Tensor], expected: Sequence[TensorType]) -> None:
    types = [x.type for x in found]
    if len(types) != len(expected) or not all(map(same_type, types, expected)):
        wanted, actual = (", ".join(map(str, types)) for types in (expected, types))
        raise FormatError(f"expected a {what} of type {wanted}, actual {actual}")
