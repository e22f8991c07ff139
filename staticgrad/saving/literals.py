"""The small parts of a graph's text: tokens, values that wait for a type, and the classes that a text may name.

The grammar is in ``staticgrad.graph.text``; ``staticgrad.saving.parser`` puts these parts together. Nothing in a text
is executed: a class is one of a closed set, and every field of it gets a value of its annotated type.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import functools
import importlib
import inspect
import re
import types
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import numpy as np

from staticgrad.base.errors import FormatError
from staticgrad.base.frozen import defined_in, frozen
from staticgrad.base.types import Dim, Shape, Size, TensorType, sizes, sizes_in
from staticgrad.graph.optable import Array
from staticgrad.graph.text import SUFFIX, array_of
from staticgrad.nn import initializers as init
from staticgrad.nn.layers import affine
from staticgrad.ops import MODULES

ELEMENTS: dict[str, tuple[type, ...]] = {"b": (bool,), "i": (int,), "u": (int,), "f": (float, int), "V": (float, int)}
NESTING = 50  # parentheses within parentheses, bodies within bodies; no graph comes near it

TOKEN = re.compile(
    r"""[ \t]*(?:
      (?P<string>'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*")
    | (?P<node>%[\w./~-]+ | %(?='|"))
    | (?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)
    | (?P<name>[^\W\d]\w*(?:\.\w+)*)
    | (?P<object><[^>]*>)
    | (?P<mark>//|->|[-+*=(),:{}\[\]])
    )""",
    re.VERBOSE,
)


ESCAPE = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|.)?", re.DOTALL)
ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"'}


def _unescaped(found: re.Match[str]) -> str:
    text = found[0][1:]
    if text[:1] in ("x", "u", "U") and len(text) > 1:
        return chr(int(text[1:], 16))
    if text not in ESCAPES:
        raise FormatError(f"{found[0]!r} is no escape of a text")
    return ESCAPES[text]


class Tokens:
    """The tokens of one line, one ahead."""

    def __init__(self, line: str) -> None:
        self._line = line
        self._depth = 0
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
        """The text that a literal of Python's stands for; its escapes are those that ``repr`` writes."""
        return ESCAPE.sub(_unescaped, self.take("string")[1:-1])

    def node_name(self) -> str:
        text = self.take("node")
        return self.string() if text == "%" else text[1:]

    def integer(self) -> int:
        text = self.take("number")
        if not text.isdecimal():
            raise FormatError(f"expected a whole number, actual {text}")
        return int(text)

    def sequence(self, end: str, item: Callable[[Tokens], Any]) -> list[Any]:
        """Items with commas between them up to ``end``; the opening mark has been read."""
        items: list[Any] = []
        while not self.accept(end):
            if items:
                self.expect(",")
                if self.accept(end):
                    break
            items.append(item(self))
        return items

    @contextlib.contextmanager
    def nested(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > NESTING:
            raise FormatError("parentheses are nested too deeply")
        yield
        self._depth -= 1

    def fail(self, message: str) -> NoReturn:
        rest = self._line[self._start :].strip()
        raise FormatError(f"{message} at {rest[:40]!r}" if rest else f"{message} at the end of the line")


# -- values that need a type to become what they are ------------------------------------------------------------------


@frozen
class Listed:
    values: tuple[Any, ...]

    def array(self, dtype: np.dtype, shape: Shape) -> Array:
        for value in self.values:
            if type(value) not in ELEMENTS[dtype.kind]:
                raise FormatError(f"{value!r} is no {dtype.name}")
        with np.errstate(over="ignore"):  # not all dtypes tell
            array = array_of(self.values, dtype, shape)
        if dtype.kind in "fV" and (np.isinf(array).ravel() != np.isinf(np.array(self.values, np.float64))).any():
            raise FormatError(f"a number is too large for {dtype.name}")
        return array


@frozen
class Full:
    value: Any

    def array(self, dtype: np.dtype, shape: Shape) -> Array:
        """One element, which stands in every place; whoever needs more memory makes a copy."""
        return np.broadcast_to(Listed((self.value,)).array(dtype, ()), sizes(shape))


@frozen
class Encoded:
    text: str

    def array(self, dtype: np.dtype, shape: Shape) -> Array:
        try:
            data = base64.b64decode(self.text.encode("ascii"), validate=True)
        except (UnicodeEncodeError, binascii.Error) as error:
            raise FormatError(f"bad base64: {error}") from error
        return _checked(np.frombuffer(data, dtype).reshape(sizes(shape)).copy())


@frozen(eq=False)
class LyingBeside:
    """An array that lies beside the text, under this name."""

    name: str
    value: Array

    def array(self, dtype: np.dtype, shape: Shape) -> Array:
        if self.value.dtype != dtype or self.value.shape != shape:
            expected, actual = TensorType(shape, dtype), TensorType(self.value.shape, self.value.dtype)
            raise FormatError(f"array {self.name!r}: expected {expected}, actual {actual}")
        return _checked(self.value)


def _checked(array: Array) -> Array:
    """An array whose elements are ones of its dtype: of a byte, a truth value is 0 or 1."""
    if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise FormatError("a byte above 1 is no truth value")
    return array


Literals = Listed | Full | Encoded | LyingBeside


@frozen
class Made:
    """A class by name with the values of its fields, before the class is known to fit."""

    name: str
    values: dict[str, Any]


MOST_TERMS = 64  # of a size, and factors in a term
MOST_NESTED = 16  # quotients and positive parts within others
MOST_ATOMS = 256  # of a size, those within others too
MOST_ELEMENTS = 1 << 63  # that a size, or a factor in one, stands for


def as_size(value: Any) -> Size:
    """The value, if it is a size, and one whose sums and products are found at once."""
    if type(value) is int and abs(value) <= MOST_ELEMENTS:
        return value
    if isinstance(value, Dim) and len(value.terms) <= MOST_TERMS:
        if all(len(atoms) <= MOST_TERMS and abs(factor) <= MOST_ELEMENTS for atoms, factor in value.terms):
            if _count(value, MOST_NESTED) > MOST_ATOMS:
                raise FormatError("a size has too many terms")
            return value
        raise FormatError("a size has too many factors")
    raise FormatError(f"expected a size, actual {repr(value)[:80]}")


def _count(size: Size, left: int) -> int:
    """The atoms in a size, and in what they are made of, ``left`` deep at most."""
    if left < 0:
        raise FormatError("a size has too many quotients or positive parts within others")
    atoms = [atom for atoms, _ in size.terms for atom in atoms] if isinstance(size, Dim) else []
    return len(atoms) + sum(_count(inner, left - 1) for atom in atoms for inner in sizes_in(atom))


# -- classes --------------------------------------------------------------------------------------------------------


@functools.cache
def classes() -> dict[str, type]:
    """Every class that a text may name: attributes of ops, and initializers."""
    modules = (*map(importlib.import_module, MODULES), init, affine)
    return {name.removesuffix(SUFFIX): cls for module in modules for name, cls in defined_in(module).items()}


def class_of(name: str) -> Any:
    if name not in classes():
        raise FormatError(f"there is no class {name!r} of attributes or first values")
    return classes()[name]


@functools.cache
def hints_of(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def resolve(made: Made) -> Any:
    """The value, if every field has one of its type."""
    cls, hints = class_of(made.name), hints_of(class_of(made.name))
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
    """True if a value is of the annotated type; numbers as annotations mean them: an int is a float, a bool is none."""
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
