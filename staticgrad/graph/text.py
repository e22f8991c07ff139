"""Graphs as text, a line a node. ``graph.text(full=True)`` holds everything but source lines, and ``sg.parse`` reads it
back. So does ``str(graph)``, save that arrays of more than ``LARGEST`` elements are elided, which ``sg.parse`` refuses.

    graph      ::= (line "\\n" | body | entry "\\n")*                 lines that begin with # are passed over
    line       ::= node "=" op "(" [tensor ("," tensor)*] ")" [attributes] ["after" node ("," node)*]
                   ["again(" number ["," node] ")"] ["checkpoint(" number ("," number)* ")"] ["no_grad"]
                   ":" ("()" | type ("," type)*)
    body       ::= "body" number ["of" number] "{" "\\n" graph "}" "(" tensors ")" "->" "(" tensors ")"
                   ["effects" "(" nodes ")"] "\\n"                     what it is given, hands out and does
    entry      ::= "entry" string "(" [fed ("," fed)*] ")" "->" nest  what is compiled under a name
    fed        ::= tensor ["[" sizes "]"]                             its shape, where that is not the declared one
    nest       ::= tensor | "op" node | None | "(" nests ")" | "[" nests "]" | "{" [string ":" nest ("," …)*] "}"
    node       ::= "%" name                                          a name that is no plain word stands in quotes
    tensor     ::= node [":" number]                                 number of the output, 0 if it is left out
    attributes ::= class ["(" field "=" value ("," …)* ")"]          the class without "Attributes"; ``shape`` and
                                                                     ``dtype`` are left out where the type says them
    type       ::= dtype "[" size ("," size)* "]" word*
    size       ::= number | symbol | sums, products, "//", "max(" size "," size ")" and "min(…)" of sizes
    symbol     ::= name | "dim(" string ["," number] ["," "(" number, … ")"] ")"
                   the number tells symbols of one name apart; those in brackets end the ranges of the size
    value      ::= number | inf | nan | string | True | False | None | dtype | type | size | "(" values ")"
                 | class "(" field "=" value … ")" | array | "body(" number ")"
    array      ::= "[" values "]" | "full(" number ")" | "base64(" string ")"          in row-major order, of its type
                 | "array(" string ")"                               one that lies beside the text, by its name there
                 | "<…" type "sha256" digits ">"                     elided: the first digits of its bytes' digest

A body is a graph that an op runs; what it reads of the graphs around it is among its parameters, and names are its own.
``of`` says which body it continues: nodes of that one come first. ``again`` numbers recomputations, and names the node
that is computed again; ``checkpoint`` numbers the calls of ``sg.checkpoint`` that a node was declared in, outermost
first. Words after a type: ``requires_grad`` (asked for, a leaf), ``retains_grad``, ``hooked``; ``ignores_grad`` and
``passes_grad`` where a tensor's operands came to require a gradient, or ceased to, after it was declared. ``<…>``
stands for a Python object, which is not text; so does ``hooked``.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from staticgrad.base.depth import all_levels
from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import record
from staticgrad.base.types import DTYPE_NAMES, Dim, Shape, Symbol, TensorType, is_floating, size_text, sizes
from staticgrad.graph.graph import Computation, Graph, GraphEntry, Node, Tensor
from staticgrad.graph.optable import Array
from staticgrad.graph.scopes import Checkpoint

COMPARED = 1 << 16  # elements that are compared at a time
LISTED = 16  # elements up to which an array is listed; larger ones are encoded
LARGEST = 4096  # elements of an array that is encoded for people, who would read more in vain
MOST_EXPANDED = 1 << 26  # bytes that the constants of a text have where it says one number for all their elements
PLAIN_NAME = re.compile(r"[\w./~-]+")
PLAIN_SYMBOL = re.compile(r"[^\W\d]\w*(?:\.\w+)*")
ELIDED = "…"  # begins what stands for the elements of an array
SUFFIX = "Attributes"  # of the classes of attributes
RESERVED = {"True", "False", "None", "inf", "nan", "body", "dim", "full", "base64", "array", "max", "min"} | DTYPE_NAMES


@all_levels()
def print_graph(graph: Graph, full: bool = False) -> str:
    """All of a graph, in the form that ``parse`` reads; unless ``full``, without the elements of large arrays."""
    graph.settle_names()
    printer = _Printer(whole=True, full=full)
    return "\n".join([*printer.lines(graph.nodes), *printer.entries(graph.entries)])


@record
class ArraysBeside:
    """The arrays of a graph that are not in its text, by the names that they have there: those of more than ``least``
    elements."""

    least: int
    arrays: dict[str, Array]

    def take(self, name: str, array: Array) -> str:
        """Keep an array under this name, or a similar one. Returns which."""
        name = name.encode(errors="backslashreplace").decode()  # which UTF-8 has
        free, number = name, 1
        while free in self.arrays:
            number += 1
            free = f"{name}~{number}"
        self.arrays[free] = array
        return free


@all_levels()
def print_saved(graph: Graph, entries: Mapping[str, GraphEntry], beside: ArraysBeside) -> str:
    """All of a graph, for a file: large arrays go to ``beside``.

    Raises:
        GraphError: Python functions are a part of the graph, which are no text.
    """
    graph.settle_names()
    printer = _Printer(whole=True, full=True, beside=beside)
    return "".join(f"{line}\n" for line in (*printer.lines(graph.nodes), *printer.entries(entries)))


@all_levels()
def print_nodes(nodes: Iterable[Node]) -> str:
    """Nodes for people: large arrays are left out, and what is about gradients."""
    return "\n".join(_Printer(whole=False).lines(nodes))


def print_node(node: Node) -> str:
    """One node for people."""
    return _Printer(whole=False).node(node)


class _Printer:
    """Prints nodes in order, and remembers how nodes and symbols are called: no two of them the same."""

    def __init__(self, whole: bool, full: bool = False, beside: ArraysBeside | None = None) -> None:
        self.whole = whole
        self.full = full
        self.beside = beside
        self.expanded = 0  # bytes
        self.nodes: dict[Node, str] = {}
        self.taken: set[str] = set()
        self.symbols: dict[str, list[Symbol]] = {}
        self.bodies: dict[int, tuple[int, frozenset[str]]] = {}  # by id: number, and names that are taken in it
        self.checkpoints: dict[Checkpoint, int] = {}
        self.epochs: dict[int, int] = {}

    # -- lines ------------------------------------------------------------------------------------------------------

    def lines(self, nodes: Iterable[Node]) -> Iterator[str]:
        """A line a node, and before it the bodies that it is the first to run."""
        for node in nodes:
            for body in _bodies_of(node.attrs):
                yield from self.body(body)
            yield self.node(node)

    def body(self, body: Computation) -> Iterator[str]:
        if id(body) in self.bodies:
            return
        origin: Computation | None = getattr(body, "origin", None)
        shared = 0 if origin is None else len(origin.graph.nodes)
        if origin is None or body.graph.nodes[:shared] != origin.graph.nodes:
            origin, shared = None, 0
        continued = ""
        if origin is not None:
            yield from self.body(origin)
            continued = f" of {self.bodies[id(origin)][0]}"
        number = len(self.bodies) + 1
        self.bodies[id(body)] = number, frozenset()
        around, self.taken = self.taken, set() if origin is None else set(self.bodies[id(origin)][1])
        yield f"body {number}{continued} {{"
        for line in self.lines(body.graph.nodes[shared:]):
            yield f"  {line}"
        given, handed = (", ".join(map(self._tensor, tensors)) for tensors in (body.feeds, body.fetches))
        effects = f" effects ({', '.join(map(self._name, body.effects))})" if body.effects else ""
        yield f"}} ({given}) -> ({handed}){effects}"
        self.bodies[id(body)] = number, frozenset(self.taken)
        self.taken = around

    def node(self, node: Node) -> str:
        name = self._define(node)
        operands = ", ".join(map(self._tensor, node.inputs))
        try:
            attributes = self._attributes(node)
        except _NoTextError as error:
            raise GraphError(f"{node.name!r} cannot be saved: {error} is no text", source=node.source) from None
        after = f" after {', '.join(map(self._name, node.control))}" if node.control else ""
        apart = self._apart(node)
        types = ", ".join(self.type(y.type) + self._words(y) for y in node.outputs) or "()"
        return f"{name} = {node.op.name}({operands}){attributes}{after}{apart} : {types}"

    def _apart(self, node: Node) -> str:
        """The marks that keep a node apart from others: it is computed again, or shall be, or passes no gradient."""
        text = ""
        if node.epoch:
            number = self.epochs.setdefault(node.epoch, len(self.epochs) + 1)
            text += f" again({number}" + (f", {self._name(node.original)})" if node.original in self.nodes else ")")
        if node.checkpoint is not None and self.whole:
            path = [node.checkpoint]
            while path[0].outer is not None:
                path.insert(0, path[0].outer)
            numbers = [str(self.checkpoints.setdefault(one, len(self.checkpoints) + 1)) for one in path]
            text += f" checkpoint({', '.join(numbers)})"
        return text + (" no_grad" if node.blocked and self.whole else "")

    def _define(self, node: Node) -> str:
        name, number = node.name, 1
        while name in self.taken:  # in a graph that was rewritten
            number += 1
            name = f"{node.name}~{number}"
        self.taken.add(name)
        self.nodes[node] = quoted(name)
        return self.nodes[node]

    def _name(self, node: Node) -> str:
        return self.nodes.get(node) or quoted(node.name)

    def _tensor(self, x: Tensor) -> str:
        return self._name(x.op) + (f":{x.index}" if x.index else "")

    def type(self, type_: TensorType) -> str:
        return f"{type_.dtype.name}[{', '.join(map(self.size, type_.shape))}]"

    def _words(self, x: Tensor) -> str:
        if not self.whole:
            return ""
        words = []
        trainable = x.op.op.name == "variable" and x.op.attrs.trainable
        if x._requires and not trainable:
            words.append("requires_grad")
        elif x.requires_grad != (trainable or follows_grad(x)):
            words.append("passes_grad" if x.requires_grad else "ignores_grad")
        if x.retains_grad:
            words.append("retains_grad")
        if x.hooks:
            if self.beside is not None:
                raise GraphError(
                    f"{x.name!r} cannot be saved: it has hooks, which are Python functions", source=x.source
                )
            words.append("hooked")
        return "".join(f" {word}" for word in words)

    # -- attributes -------------------------------------------------------------------------------------------------

    def _attributes(self, node: Node) -> str:
        attrs = node.attrs
        if not is_dataclass(attrs) or not fields(attrs):
            return ""
        if self.whole and hasattr(attrs, "without_functions"):
            attrs = attrs.without_functions()
        said: dict[str, Any] = {"shape": node.outputs[0].shape, "dtype": node.outputs[0].dtype} if node.outputs else {}
        shown = []
        for field in fields(attrs):
            value = getattr(attrs, field.name)
            if (field.name in said and said[field.name] == value) or (value in ("", None) and field.default == value):
                continue
            if isinstance(value, bytes | memoryview):
                array = np.frombuffer(value, said["dtype"]).reshape(sizes(said["shape"]))
                text = self._array(node, array, self._expands(array.nbytes))
            elif field.name == "initial":
                text = self._initial(node, value)
            else:
                text = self.value(value)
            shown.append(f"{field.name}={text}")
        return f" {class_name(attrs)}" + (f"({', '.join(shown)})" if shown else "")

    def _initial(self, node: Node, initial: Any) -> str:
        """The first value of a variable: an array, or what makes one."""
        if isinstance(getattr(initial, "value", None), np.ndarray):
            return self._array(node, initial.value, True)  # which takes no memory until a session makes it
        return self.value(getattr(initial, "initializer", initial))

    def _expands(self, nbytes: int) -> bool:
        """True if a constant of that size in bytes may be said by one number: a text that is short makes no large
        graph."""
        return self.expanded + nbytes <= MOST_EXPANDED

    def _array(self, node: Node, array: Array, expands: bool) -> str:
        one = expands and array.size > LISTED and is_uniform(array)
        if one or array.size <= LISTED:
            shown = array.flat[:1] if one else array.ravel()
            texts = list(map(str, shown))  # the shortest digits that tell neighbours apart
            if _survives(texts, shown):
                if one and node.op.name != "variable":
                    self.expanded += array.nbytes
                return f"full({texts[0]})" if one else f"[{', '.join(texts)}]"
        if not self.whole:
            return f"<{array.nbytes} bytes>"
        if self.beside is not None and array.size > self.beside.least:
            return f"array({self.beside.take(node.name, array)!r})"
        data = np.ascontiguousarray(array).tobytes()
        if array.size > LARGEST and not self.full:
            type_ = self.type(TensorType(array.shape, array.dtype))
            return f"<{ELIDED} {type_} sha256 {hashlib.sha256(data).hexdigest()[:12]}>"
        return f"base64('{base64.b64encode(data).decode()}')"

    def value(self, value: Any) -> str:
        """Any value in the attributes of an op."""
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, np.dtype):
            return str(value.name)
        if isinstance(value, TensorType):
            return self.type(value)
        if isinstance(value, Dim):
            return self.size(value)
        if value is None or isinstance(value, (int, float, str)):
            return repr(value)
        if _is_body(value):
            return f"body({self.bodies[id(value)][0]})" if id(value) in self.bodies else "<body>"
        if isinstance(value, tuple):
            return f"({', '.join(map(self.value, value))}{',' if len(value) == 1 else ''})"
        if is_dataclass(value) and not isinstance(value, type):
            shown = ", ".join(f"{f.name}={self.value(getattr(value, f.name))}" for f in fields(value))
            return f"{class_name(value)}({shown})"
        text = f"<{type(value).__name__} {getattr(value, '__name__', '')}".rstrip() + ">"
        if self.beside is not None:
            raise _NoTextError(text)
        return text

    # -- entries ----------------------------------------------------------------------------------------------------

    def entries(self, entries: Mapping[str, GraphEntry]) -> Iterator[str]:
        """A line for each entry."""
        for name, (fetches, feeds) in entries.items():
            fed = ", ".join(self._tensor(x) + self._fed_shape(x, shape) for x, shape in feeds.items())
            yield f"entry {name!r} ({fed}) -> {self.nest(fetches)}"

    def _fed_shape(self, x: Tensor, shape: Shape) -> str:
        return "" if shape == x.shape else f"[{', '.join(map(self.size, shape))}]"

    def nest(self, nest: Any) -> str:
        """A nest of tensors and ops.

        Raises:
            GraphError: something else is in it.
        """
        match nest:
            case None:
                return "None"
            case Tensor():
                return self._tensor(nest)
            case Node():
                return f"op {self._name(nest)}"
        parts: Any = nest.values() if type(nest) is dict else nest if type(nest) in (list, tuple) else ()
        texts = list(map(self.nest, parts))
        if type(nest) is list:
            return f"[{', '.join(texts)}]"
        if type(nest) is tuple:
            return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
        if type(nest) is dict and all(type(key) is str for key in nest):
            return "{" + ", ".join(f"{key!r}: {text}" for key, text in zip(nest, texts, strict=True)) + "}"
        raise GraphError(
            f"cannot be saved: expected a nest of tuples, lists and dicts with texts as keys, actual {nest!r}"
        )

    # -- sizes ------------------------------------------------------------------------------------------------------

    def size(self, size: Any) -> str:
        """A size; terms of a higher degree come first, else in the order of their letters."""
        return size_text(size, self._symbol)

    def _symbol(self, symbol: Symbol) -> str:
        alike = self.symbols.setdefault(symbol.name, [])
        if symbol not in alike:
            alike.append(symbol)
        number = alike.index(symbol) + 1
        if symbol.ends:
            return f"dim({symbol.name!r}, {number}, {symbol.ends})"
        if number == 1 and PLAIN_SYMBOL.fullmatch(symbol.name) and symbol.name not in RESERVED:
            return symbol.name
        return f"dim({symbol.name!r})" if number == 1 else f"dim({symbol.name!r}, {number})"


class _NoTextError(Exception):
    """A Python object that is no text."""


def quoted(name: str) -> str:
    """A node as it is named in a text."""
    return f"%{name}" if PLAIN_NAME.fullmatch(name) else f"%{name!r}"


def _is_body(value: Any) -> bool:
    return hasattr(value, "graph") and hasattr(value, "fetches")


def _bodies_of(attrs: Any) -> list[Computation]:
    """The graphs among the attributes of an op."""
    if not is_dataclass(attrs):
        return []
    return [value for f in fields(attrs) if _is_body(value := getattr(attrs, f.name))]


def class_name(value: Any) -> str:
    return type(value).__name__.removesuffix(SUFFIX)


def follows_grad(x: Tensor) -> bool:
    """True if a tensor requires a gradient because its operands do."""
    node = x.op
    follows = not node.blocked and node.op.differentiable and any(y.requires_grad for y in node.inputs)
    return follows and is_floating(x.dtype)


def array_of(values: Sequence[bool | int | float], dtype: np.dtype, shape: Shape) -> Array:
    """Listed values as an array."""
    return np.array(values, dtype).reshape(sizes(shape))


def _survives(texts: list[str], array: Array) -> bool:
    """True if what is listed gives the array back to the bit; a NaN with a payload does not."""
    kind = array.dtype.kind
    values = [float(text) if kind in "fV" else text == "True" if kind == "b" else int(text) for text in texts]
    return array_of(values, array.dtype, array.shape).tobytes() == array.tobytes()


def is_uniform(array: Array) -> bool:
    """True if there are elements and all have the same bits. Most others are told by the first few of them."""
    if array.size and not any(array.strides):
        return True
    elements = np.ascontiguousarray(array).reshape(-1, 1).view(np.uint8)
    parts = (elements[start : start + COMPARED] for start in range(0, len(elements), COMPARED))
    return bool(elements.size) and all((some == elements[0]).all() for some in (elements[:LISTED], *parts))
