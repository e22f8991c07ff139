"""Text to graph: what ``graph.text(full=True)`` printed comes in, a graph comes out: see ``staticgrad.graph.text``.

Nothing in a text is executed: names of classes are looked up in a closed set, values are checked against the types of
the fields they stand for, the type of every tensor is inferred again and compared with the one printed.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from staticgrad.base.depth import all_levels
from staticgrad.base.errors import FormatError
from staticgrad.base.frozen import record
from staticgrad.base.types import Shape, TensorType
from staticgrad.graph.graph import Graph, GraphEntry, Node, Tensor
from staticgrad.graph.optable import OPS, Array, Op
from staticgrad.graph.scopes import Checkpoint, no_grad
from staticgrad.graph.text import SUFFIX
from staticgrad.ops.control.bodies import Body
from staticgrad.ops.own import OwnAttributes, checked, entry
from staticgrad.ops.sources import VariableAttributes
from staticgrad.saving.bodies import GraphScopes, know_bodies
from staticgrad.saving.literals import Made, Tokens, resolve
from staticgrad.saving.values import TextValues

OWN = OwnAttributes.__name__.removesuffix(SUFFIX)  # the class of attributes that say what an op is
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


@record
class _ParsedOutput:
    type: TensorType
    words: list[str]


class _GraphReader:
    """Reads lines in order into a graph, by the ``scopes`` in which they are and the ``values`` in them."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self.scopes = GraphScopes()
        self.values = TextValues(arrays, self.scopes.body)
        self.checkpoints: dict[int, Checkpoint] = {}
        self.epochs: dict[int, int] = {}
        self.own: dict[tuple[str, str], Op] = {}  # ops of the user's own, by name and by whence their derivative comes

    @property
    def root(self) -> Graph:
        return self.scopes.root

    def finished(self) -> Graph:
        graph = self.scopes.finished()
        if self.values.arrays:
            raise FormatError(f"the text does not read the array {min(self.values.arrays)!r} beside it")
        return graph

    def line(self, line: str) -> None:
        t = Tokens(line)
        if t.accept("body"):
            self.scopes.open(t)
        elif t.accept("}"):
            self.scopes.close(t)
        elif t.accept("entry"):
            self.entry(t)
        else:
            self.definition(t)
        if t.kind:
            t.fail("expected the end of the line")

    def entry(self, t: Tokens) -> None:
        name = t.string()
        if self.scopes.is_in_body or name in self.root.entries:
            raise FormatError(f"there are two entries {name!r}" if name in self.root.entries else "an entry in a body")
        t.expect("(")
        feeds: dict[Tensor, Shape] = {}
        for x, shape in t.sequence(")", self.fed):
            if x in feeds:
                raise FormatError(f"%{x.name} is fed twice")
            feeds[x] = shape
        t.expect("->")
        self.root.entries[name] = GraphEntry(self.nest(t), feeds)

    def fed(self, t: Tokens) -> tuple[Tensor, Shape]:
        x = self.scopes.tensor(t)
        shape = tuple(t.sequence("]", self.values.size)) if t.accept("[") else x.shape
        if not fits_declared(shape, x.shape):
            raise FormatError(f"%{x.name} of type {x.type} cannot be fed the shape {shape}")
        return x, shape

    def nest(self, t: Tokens) -> Any:
        with t.nested():
            if t.accept("None"):
                return None
            if t.accept("op"):
                return self.scopes.node(t)
            if t.accept("["):
                return t.sequence("]", self.nest)
            if t.accept("{"):
                pairs = t.sequence("}", self.pair)
                if len(dict(pairs)) < len(pairs):
                    raise FormatError("a key of a nest is there twice")
                return dict(pairs)
            if t.accept("("):
                return tuple(t.sequence(")", self.nest))
            return self.scopes.tensor(t)

    def pair(self, t: Tokens) -> tuple[str, Any]:
        key = t.string()
        t.expect(":")
        return key, self.nest(t)

    def definition(self, t: Tokens) -> None:
        name = t.node_name()
        t.expect("=")
        word = t.take("name")
        t.expect("(")
        inputs = t.sequence(")", self.scopes.tensor)
        made = self.values.attributes(t) if t.kind == "name" and t.text not in WORDS else None
        op = self.op(word, made)
        control = [self.scopes.node(t)] if t.accept("after") else []
        while control and t.accept(","):
            control.append(self.scopes.node(t))
        epoch, original = self.again(t) if t.accept("again") else (0, None)
        checkpoint = self.checkpoint(t) if t.accept("checkpoint") else None
        blocked = t.accept("no_grad")
        t.expect(":")
        outputs = self.outputs(t)
        arities = {len(case.shapes) for case in op.cases}
        if op.elementwise and arities - {0} and len(inputs) not in arities:  # such ops broadcast any operands they get
            raise FormatError(f"{op.name} does not take {len(inputs)} operands")
        with self.scopes.graph, no_grad() if blocked else contextlib.nullcontext():
            attrs = self.values.build(op, made, [output.type for output in outputs])
            node = self.scopes.graph.add(op, inputs, attrs, name=name, control=control)
        node.epoch, node.original, node.checkpoint = epoch, original, checkpoint
        self.check(node, name, outputs)
        self.register(node)
        for y, output in zip(node.outputs, outputs, strict=True):
            _mark(y, output.words)

    def op(self, word: str, made: Made | None) -> Op:
        """The op of a name, or the one of the user's own that its attributes say."""
        if made is not None and made.name == OWN:
            attrs = resolve(made)
            kind = "rule" if isinstance(attrs.derivative, Body) else attrs.derivative
            return self.own.setdefault((word, kind), entry(word, checked(word, attrs)))
        try:
            return OPS[word]
        except KeyError:
            raise FormatError(f"there is no op {word!r}") from None

    def again(self, t: Tokens) -> tuple[int, Node | None]:
        """The recomputation that a node belongs to, and the node that it computes again."""
        t.expect("(")
        epoch = self.epochs.setdefault(t.integer(), next(_epochs))
        original = self.scopes.node(t) if t.accept(",") else None
        t.expect(")")
        return epoch, original

    def checkpoint(self, t: Tokens) -> Checkpoint | None:
        """The innermost checkpoint; those around it come before it."""
        t.expect("(")
        inside: Checkpoint | None = None
        for number in t.sequence(")", Tokens.integer):
            known = self.checkpoints.setdefault(number, Checkpoint(inside))
            if known.outer is not inside:
                raise FormatError(f"checkpoint {number} is inside of another one than before")
            inside = known
        return inside

    def outputs(self, t: Tokens) -> list[_ParsedOutput]:
        if t.accept("("):
            t.expect(")")
            return []
        found = [self.output(t)]
        while t.accept(","):
            found.append(self.output(t))
        return found

    def output(self, t: Tokens) -> _ParsedOutput:
        type_ = self.values.type(t, t.take("name"))
        words = []
        while t.kind == "name":
            words.append(t.next())
        return _ParsedOutput(type_, words)

    def check(self, node: Node, name: str, outputs: list[_ParsedOutput]) -> None:
        if node.name != name or name in self.scopes.nodes:
            raise FormatError(f"%{name} is defined twice")
        stated = [output.type for output in outputs]
        if stated != [y.type for y in node.outputs]:
            inferred = ", ".join(str(y.type) for y in node.outputs) or "()"
            raise FormatError(f"expected the type {inferred}, actual {', '.join(map(str, stated)) or '()'}")

    def register(self, node: Node) -> None:
        self.scopes.nodes[node.name] = node
        if self.scopes.is_in_body and node.op.state:
            raise FormatError(f"{node.op.name} has no place in a body")
        know_bodies(node)
        if isinstance(node.attrs, VariableAttributes):
            if node.attrs.key in self.root.variables:
                raise FormatError(f"there are two variables {node.attrs.key!r}")
            self.root.variables[node.attrs.key] = node.outputs[0]
            if node.attrs.trainable:
                node.outputs[0].requires_grad_()
        if node.op.draws and node.attrs.seed is None:
            self.root.random_ops = max(self.root.random_ops, node.attrs.place + 1)


def _mark(x: Tensor, words: list[str]) -> None:
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
