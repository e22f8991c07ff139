"""The small parts of a graph's text: tokens, values that wait for a type, and the classes that a text may name.

The grammar is in ``staticgrad.text``; ``staticgrad.parser`` puts these parts together. Nothing in a text is executed:
a class is one of a closed set, and every field of it gets a value of its annotated type.
"""

from __future__ import annotations

import ast
import base64
import binascii
import functools
import importlib
import inspect
import re
import types
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import numpy as np

from staticgrad import init
from staticgrad.errors import FormatError
from staticgrad.frozen import frozen
from staticgrad.nn.layers import affine
from staticgrad.ops import MODULES
from staticgrad.optable import Array
from staticgrad.text import SUFFIX, array_of
from staticgrad.types import Dim, Shape, Size, sizes

ELEMENTS: dict[str, tuple[type, ...]] = {"b": (bool,), "i": (int,), "u": (int,), "f": (float, int), "V": (float, int)}

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


class Tokens:
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


# -- values that need a type to become what they are ------------------------------------------------------------------


@frozen
class Listed:
    values: tuple[Any, ...]

    def array(self, dtype: np.dtype, shape: Shape) -> Array:
        for value in self.values:
            if type(value) not in ELEMENTS[dtype.kind]:
                raise FormatError(f"{value!r} is no {dtype.name}")
        return array_of(self.values, dtype, shape)


@frozen
class Full:
    value: Any

    def array(self, dtype: np.dtype, shape: Shape) -> Array:
        one = Listed((self.value,)).array(dtype, ())
        return np.full(sizes(shape), one, dtype)


@frozen
class Encoded:
    text: str

    def array(self, dtype: np.dtype, shape: Shape) -> Array:
        try:
            data = base64.b64decode(self.text.encode("ascii"), validate=True)
        except (UnicodeEncodeError, binascii.Error) as error:
            raise FormatError(f"bad base64: {error}") from error
        return np.frombuffer(data, dtype).reshape(sizes(shape)).copy()


Literals = Listed | Full | Encoded


@frozen
class Made:
    """A class by name with the values of its fields, before the class is known to fit."""

    name: str
    values: dict[str, Any]


def as_size(value: Any) -> Size:
    if type(value) is int or isinstance(value, Dim):
        return value
    raise FormatError(f"expected a size, actual {value!r}")


# -- classes --------------------------------------------------------------------------------------------------------


@functools.cache
def classes() -> dict[str, type]:
    """Every class that a text may name: attributes of ops, and initializers."""
    found = {}
    for module in (*map(importlib.import_module, MODULES), init, affine):
        for name, value in vars(module).items():
            if isinstance(value, type) and is_dataclass(value) and value.__module__ == module.__name__:
                found[name.removesuffix(SUFFIX)] = value
    return found


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
