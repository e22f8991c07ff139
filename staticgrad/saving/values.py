"""The values in a graph's text: attributes of ops, sizes, types of tensors, and the arrays that a text stands for.

Tokens go in, values come out, as ``staticgrad.saving.literals`` checks them; sums and products of sizes are worked out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from staticgrad.base.errors import FormatError
from staticgrad.base.types import DTYPE_NAMES, Dim, Size, TensorType, dim, dtype_of, larger, open_size, smaller
from staticgrad.graph.optable import NO_ATTRIBUTES, Array, Op
from staticgrad.graph.text import ELIDED, MOST_EXPANDED, class_name
from staticgrad.nn import initializers as init
from staticgrad.ops.control.bodies import Body
from staticgrad.ops.sources import content_of
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


class TextValues:
    """Reads the values of one text, in which a name of an open size means the same wherever it stands.

    Args:
        arrays: those that lie beside the text, each of which is read once.
        body: gives the body of a number.
    """

    def __init__(self, arrays: Mapping[str, Array], body: Callable[[int], Body]) -> None:
        self.arrays = dict(arrays)  # that are not read yet
        self.body = body
        self.symbols: dict[tuple[str, int], Dim] = {}
        self.expanded = 0  # bytes of constants of equal elements

    def type(self, t: Tokens, dtype: str) -> TensorType:
        if dtype not in DTYPE_NAMES:
            raise FormatError(f"there is no dtype {dtype!r}")
        t.expect("[")
        return TensorType(tuple(t.sequence("]", self.size)), dtype_of(dtype))

    def size(self, t: Tokens) -> Size:
        return as_size(self.value(t))

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

        t.sequence(")", field)
        return values

    def value(self, t: Tokens) -> Any:
        """A value, or a sum of sizes."""
        with t.nested():
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
            return Listed(tuple(t.sequence("]", self.value)))
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
        return (first, *t.sequence(")", self.value))

    def named(self, t: Tokens, name: str) -> Any:
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name in DTYPE_NAMES:
            return self.type(t, name) if t.text == "[" else dtype_of(name)
        if not t.accept("("):
            return self.symbol(name, 1)
        if name == "body":
            body = self.body(t.integer())
            t.expect(")")
            return body
        if name == "dim":
            symbol, number = t.string(), t.integer() if t.accept(",") else 1
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
        """Two values up to a bracket; the opening one has been read."""
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

    def build(self, op: Op, made: Made | None, outputs: Sequence[TensorType]) -> Any:
        """The attributes of an op, what its type says filled in."""
        known = {type(case.attrs) for case in op.cases}
        if made is None:
            attrs: Any = NO_ATTRIBUTES
        else:
            said = {"shape": outputs[0].shape, "dtype": outputs[0].dtype} if outputs else {}
            names = {f.name for f in fields(class_of(made.name))}
            values = {**{name: value for name, value in said.items() if name in names}, **made.values}
            if made.name == "Constant" and "data" in values:
                values["data"] = self._data(values["data"], values)
            if made.name == "Variable" and "initial" in values:
                values["initial"] = _initial(values["initial"], values)
            attrs = resolve(Made(made.name, values))
        if known and type(attrs) not in known:
            raise FormatError(f"{op.name} has no attributes {class_name(attrs)}")
        return attrs

    def _data(self, literal: Any, values: dict[str, Any]) -> bytes | memoryview:
        """The elements of a constant: no more than a text of this length may stand for."""
        array = _array(literal, values)
        self.expanded += array.nbytes if isinstance(literal, Full) else 0
        if self.expanded > MOST_EXPANDED:
            raise FormatError(f"constants of equal elements of more than {MOST_EXPANDED} bytes in all")
        return content_of(array)


def _array(literal: Any, values: dict[str, Any]) -> Array:
    if not isinstance(literal, Literals):
        raise FormatError("expected an array")
    return literal.array(values["dtype"], values["shape"])


def _initial(value: Any, values: dict[str, Any]) -> Callable[[np.random.Generator], Array]:
    if isinstance(value, Literals):
        return Fixed(_array(value, values))
    if not init.is_initializer(value):
        raise FormatError("expected an array or an initializer as first value")
    return Initial(value, values["shape"], values["dtype"])
