"""Text to graph: what ``str(graph)`` printed comes in, a graph comes out. The grammar is in ``staticgrad.text``.

Nothing in a text is executed: names of classes are looked up in a closed set, values are checked against the types of
the fields they stand for, the type of every tensor is inferred again and compared with the one printed.
"""

from __future__ import annotations

import ast
import base64
import binascii
import contextlib
import functools
import inspect
import re
import types
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import numpy as np

import staticgrad.ops
from staticgrad import init
from staticgrad.errors import FormatError
from staticgrad.graph import Graph, Node, Tensor, no_grad
from staticgrad.nn import layers
from staticgrad.ops.sources import VariableAttributes
from staticgrad.ops.variables import Fixed, Initial
from staticgrad.optable import NO_ATTRIBUTES, OPS, Array, Op
from staticgrad.text import SUFFIX, array_of, class_name
from staticgrad.types import DTYPES, Dim, Shape, Size, TensorType, dim, sizes

DTYPE_NAMES = {dtype.name: dtype for dtype in DTYPES}
CONSTANTS = {"True": True, "False": False, "None": None, "inf": float("inf"), "nan": float("nan")}
ELEMENTS: dict[str, tuple[type, ...]] = {"b": (bool,), "i": (int,), "u": (int,), "f": (float, int)}
NESTING = 50  # parentheses within parentheses; no attribute comes near it

TOKEN = re.compile(
    r"""[ \t]*(?:
      (?P<string>'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*")
    | (?P<node>%[\w./~-]+ | %(?='|"))
    | (?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)
    | (?P<name>[^\W\d]\w*(?:\.\w+)*)
    | (?P<object><[^>]*>)
    | (?P<mark>//|[-+*=(),:\[\]])
    )""",
    re.VERBOSE,
)


def parse(text: str) -> Graph:
    """The graph that a text describes, with the same names, variables, gradients' flags and random places.

    Raises:
        FormatError: the text is damaged or not of this kind, or speaks of Python functions; the line is named.
    """
    reader = _Reader()
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            with _said_of_line(number):
                reader.line(line.rstrip())
    return reader.graph


@contextlib.contextmanager
def _said_of_line(number: int) -> Iterator[None]:
    """Whatever goes wrong in a line is an error of format: a damaged attribute may upset an op's rule in any way."""
    try:
        yield
    except FormatError as error:
        raise FormatError(f"line {number}: {error}") from None
    except Exception as error:
        raise FormatError(f"line {number}: {error}") from error


# -- values that need a type to become what they are ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Listed:
    values: tuple[Any, ...]

    def array(self, dtype: np.dtype, shape: Shape) -> Array:
        for value in self.values:
            if type(value) not in ELEMENTS[dtype.kind]:
                raise FormatError(f"{value!r} is no {dtype.name}")
        return array_of(self.values, dtype, shape)


@dataclass(frozen=True, slots=True)
class _Full:
    value: Any

    def array(self, dtype: np.dtype, shape: Shape) -> Array:
        one = _Listed((self.value,)).array(dtype, ())
        return np.full(sizes(shape), one, dtype)


@dataclass(frozen=True, slots=True)
class _Encoded:
    text: str

    def array(self, dtype: np.dtype, shape: Shape) -> Array:
        try:
            data = base64.b64decode(self.text.encode("ascii"), validate=True)
        except (UnicodeEncodeError, binascii.Error) as error:
            raise FormatError(f"bad base64: {error}") from error
        return np.frombuffer(data, dtype).reshape(sizes(shape)).copy()


Literals = _Listed | _Full | _Encoded


@dataclass(frozen=True, slots=True)
class _Made:
    """A class by name with the values of its fields, before the class is known to fit."""

    name: str
    values: dict[str, Any]


# -- one line -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Output:
    type: TensorType
    words: list[str]


class _Tokens:
    """The tokens of one line, one ahead."""

    def __init__(self, line: str) -> None:
        self._line = line
        self._end = 0
        self.kind, self.text = "", ""
        self.next()

    def next(self) -> str:
        """Give the current token and go on to the next; ``kind`` is "" at the end."""
        token, self._start = self.text, self._end
        found = TOKEN.match(self._line, self._end)
        if found is None and self._line[self._end :].strip():
            self.fail("expected a word, number or mark")
        self.kind, self.text = (str(found.lastgroup), found[str(found.lastgroup)]) if found else ("", "")
        self._end = found.end() if found else self._end
        return token

    def accept(self, text: str) -> bool:
        if self.text != text:
            return False
        self.next()
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.fail(f"expected {text!r}")

    def take(self, kind: str) -> str:
        if self.kind != kind:
            self.fail(f"expected a {kind}")
        return self.next()

    def string(self) -> str:
        return str(ast.literal_eval(self.take("string")))  # the token is a string literal and nothing else

    def fail(self, message: str) -> NoReturn:
        rest = self._line[self._start :].strip()
        raise FormatError(f"{message} at {rest[:40]!r}" if rest else f"{message} at the end of the line")


class _Reader:
    """Reads lines in order into a graph."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.nodes: dict[str, Node] = {}
        self.symbols: dict[tuple[str, int], Dim] = {}
        self.depth = 0

    def line(self, line: str) -> None:
        t = _Tokens(line)
        name = self.name(t)
        t.expect("=")
        op = OPS.get(word := t.take("name"))
        if op is None:
            raise FormatError(f"there is no op {word!r}")
        t.expect("(")
        inputs = self.sequence(t, ")", self.tensor)
        made = self.attributes(t) if t.kind == "name" and t.text not in ("after", "no_grad") else None
        control = [self.node(t)] if t.accept("after") else []
        while control and t.accept(","):
            control.append(self.node(t))
        blocked = t.accept("no_grad")
        t.expect(":")
        outputs = self.outputs(t)
        if op.elementwise and op.cases and len(inputs) not in {len(case.shapes) for case in op.cases}:
            raise FormatError(f"{op.name} does not take {len(inputs)} operands")
        if t.kind:
            t.fail("expected the end of the line")
        with self.graph, no_grad() if blocked else contextlib.nullcontext():
            attrs = self.build(op, made, outputs)
            node = self.graph.add(op, inputs, attrs, name=name, control=control)
        self.check(node, name, outputs)
        self.register(node)
        for y, output in zip(node.outputs, outputs, strict=True):
            self.mark(y, output.words)

    # -- parts of a line ------------------------------------------------------------------------------------------

    def name(self, t: _Tokens) -> str:
        text = t.take("node")
        return t.string() if text == "%" else text[1:]

    def node(self, t: _Tokens) -> Node:
        name = self.name(t)
        if name not in self.nodes:
            raise FormatError(f"%{name} is used before it is defined")
        return self.nodes[name]

    def tensor(self, t: _Tokens) -> Tensor:
        node = self.node(t)
        index = self.integer(t) if t.accept(":") else 0
        if index >= len(node.outputs):
            raise FormatError(f"%{node.name} has {len(node.outputs)} outputs, there is no number {index}")
        return node.outputs[index]

    def integer(self, t: _Tokens) -> int:
        text = t.take("number")
        if not text.isdecimal():
            raise FormatError(f"expected a whole number, actual {text}")
        return int(text)

    def sequence(self, t: _Tokens, end: str, item: Callable[[_Tokens], Any]) -> list[Any]:
        """Items with commas between them up to ``end``; the opening mark is behind us."""
        items: list[Any] = []
        while not t.accept(end):
            if items:
                t.expect(",")
                if t.accept(end):
                    break
            items.append(item(t))
        return items

    def outputs(self, t: _Tokens) -> list[_Output]:
        if t.accept("("):
            t.expect(")")
            return []
        found = [self.output(t)]
        while t.accept(","):
            found.append(self.output(t))
        return found

    def output(self, t: _Tokens) -> _Output:
        type_ = self.type(t, t.take("name"))
        words = []
        while t.kind == "name":
            words.append(t.next())
        return _Output(type_, words)

    def type(self, t: _Tokens, dtype: str) -> TensorType:
        if dtype not in DTYPE_NAMES:
            raise FormatError(f"there is no dtype {dtype!r}")
        t.expect("[")
        return TensorType(tuple(self.sequence(t, "]", self.size)), DTYPE_NAMES[dtype])

    def size(self, t: _Tokens) -> Size:
        return _as_size(self.value(t))

    # -- values -----------------------------------------------------------------------------------------------------

    def attributes(self, t: _Tokens) -> _Made:
        name = t.next()
        return _Made(name, self.fields(t) if t.accept("(") else {})

    def fields(self, t: _Tokens) -> dict[str, Any]:
        values: dict[str, Any] = {}

        def field(t: _Tokens) -> None:
            name = t.take("name")
            t.expect("=")
            if name in values:
                raise FormatError(f"{name} is given twice")
            values[name] = self.value(t)

        self.sequence(t, ")", field)
        return values

    def value(self, t: _Tokens) -> Any:
        """A value, or a sum of sizes."""
        self.depth += 1
        if self.depth > NESTING:
            raise FormatError("parentheses are nested too deeply")
        total = self.product(t)
        while t.text in ("+", "-") and t.kind == "mark":
            plus = t.next() == "+"
            term = _as_size(self.product(t))
            total = _as_size(total) + term if plus else _as_size(total) - term
        self.depth -= 1
        return total

    def product(self, t: _Tokens) -> Any:
        total = self.factor(t)
        while t.text in ("*", "//") and t.kind == "mark":
            times = t.next() == "*"
            factor = _as_size(self.factor(t))
            total = _as_size(total) * factor if times else _as_size(total) // factor
        return total

    def factor(self, t: _Tokens) -> Any:
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
            return _Listed(tuple(self.sequence(t, "]", self.value)))
        if t.kind == "number":
            text = t.next()
            return int(text) if text.isdecimal() else float(text)
        if t.kind == "string":
            return t.string()
        if t.kind == "object":
            raise FormatError(f"{t.text} stands for something that was left out of the text")
        return self.named(t, t.take("name"))

    def parenthesis(self, t: _Tokens) -> Any:
        """``()``, ``(a,)`` and ``(a, b)`` are tuples, ``(a)`` is a."""
        if t.accept(")"):
            return ()
        first = self.value(t)
        if t.accept(")"):
            return first
        t.expect(",")
        return (first, *self.sequence(t, ")", self.value))

    def named(self, t: _Tokens, name: str) -> Any:
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name in DTYPE_NAMES:
            return self.type(t, name) if t.text == "[" else DTYPE_NAMES[name]
        if not t.accept("("):
            return self.symbol(name, 1)
        if name == "dim":
            symbol = t.string(), self.integer(t) if t.accept(",") else 1
            t.expect(")")
            return self.symbol(*symbol)
        if name in ("full", "base64"):
            literal = _Full(self.value(t)) if name == "full" else _Encoded(t.string())
            t.expect(")")
            return literal
        return _resolve(_Made(name, self.fields(t)))

    def symbol(self, name: str, number: int) -> Dim:
        return self.symbols.setdefault((name, number), dim(name))

    # -- the node -----------------------------------------------------------------------------------------------------

    def build(self, op: Op, made: _Made | None, outputs: list[_Output]) -> Any:
        """The attributes of an op, what its type says filled in."""
        known = {type(case.attrs) for case in op.cases}
        if made is None:
            attrs: Any = NO_ATTRIBUTES
        else:
            said = {"shape": outputs[0].type.shape, "dtype": outputs[0].type.dtype} if outputs else {}
            names = {f.name for f in fields(_class(made.name))}
            values = {**{name: value for name, value in said.items() if name in names}, **made.values}
            if made.name == "Constant" and "data" in values:
                values["data"] = self.array(values["data"], values).tobytes()
            if made.name == "Variable" and "initial" in values:
                values["initial"] = self.initial(values["initial"], values)
            attrs = _resolve(_Made(made.name, values))
        if known and type(attrs) not in known:
            raise FormatError(f"{op.name} has no attributes {class_name(attrs)}")
        return attrs

    def array(self, literal: Any, values: dict[str, Any]) -> Array:
        if not isinstance(literal, Literals):
            raise FormatError("expected an array")
        return literal.array(values["dtype"], values["shape"])

    def initial(self, value: Any, values: dict[str, Any]) -> Callable[[np.random.Generator], Array]:
        if isinstance(value, Literals):
            return Fixed(self.array(value, values))
        if not init.is_initializer(value):
            raise FormatError("expected an array or an initializer as first value")
        return Initial(value, values["shape"], values["dtype"])

    def check(self, node: Node, name: str, outputs: list[_Output]) -> None:
        if node.name != name or name in self.nodes:
            raise FormatError(f"%{name} is defined twice")
        stated = [output.type for output in outputs]
        if stated != [y.type for y in node.outputs]:
            inferred = ", ".join(str(y.type) for y in node.outputs) or "()"
            raise FormatError(f"expected the type {inferred}, actual {', '.join(map(str, stated)) or '()'}")

    def register(self, node: Node) -> None:
        self.nodes[node.name] = node
        if isinstance(node.attrs, VariableAttributes):
            if node.attrs.key in self.graph.variables:
                raise FormatError(f"there are two variables {node.attrs.key!r}")
            self.graph.variables[node.attrs.key] = node.outputs[0]
            if node.attrs.trainable:
                node.outputs[0].requires_grad_()
        if node.op.name == "random_uniform" and node.attrs.seed is None:
            self.graph.random_ops = max(self.graph.random_ops, node.attrs.place + 1)

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


def _as_size(value: Any) -> Size:
    if type(value) is int or isinstance(value, Dim):
        return value
    raise FormatError(f"expected a size, actual {value!r}")


# -- classes --------------------------------------------------------------------------------------------------------


@functools.cache
def _classes() -> dict[str, type]:
    """Every class that a text may name: attributes of ops, and initializers."""
    modules = [getattr(staticgrad.ops, name) for name in staticgrad.ops.__all__]
    found = {}
    for module in (*modules, init, layers):
        for name, value in vars(module).items():
            if isinstance(value, type) and is_dataclass(value) and value.__module__ == module.__name__:
                found[name.removesuffix(SUFFIX)] = value
    return found


def _class(name: str) -> Any:
    if name not in _classes():
        raise FormatError(f"there is no class {name!r} of attributes or first values")
    return _classes()[name]


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _resolve(made: _Made) -> Any:
    """The value, if every field has one of its type."""
    cls, hints = _class(made.name), _hints(_class(made.name))
    names = [f.name for f in fields(cls)]
    for name, value in made.values.items():
        if name not in names:
            raise FormatError(f"{made.name} has no field {name!r}")
        if not fits(value, hints[name]):
            raise FormatError(f"{made.name}: {name}={value!r} is not {inspect.formatannotation(hints[name])}")
    missing = [f.name for f in fields(cls) if f.default is MISSING and f.name not in made.values]
    if missing:
        raise FormatError(f"{made.name} lacks {', '.join(missing)}")
    return cls(**made.values)


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the annotated type; numbers as annotations mean them: an int is a float, a bool is none."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in arguments)
    if origin is Literal:
        return value in arguments
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return all(fits(item, arguments[0]) for item in value)
        return len(value) == len(arguments) and all(map(fits, value, arguments))
    if hint is float:
        return type(value) in (int, float)
    if hint is int:
        return type(value) is int
    if hint is None or hint is type(None):
        return value is None
    if origin is not None:
        return callable(value)
    if hint is init.Initializer:
        return init.is_initializer(value)
    return isinstance(value, hint)
