"""Elements in memory and in registers: a bool is a byte there and a bit here."""

from __future__ import annotations

import numpy as np

from staticgrad.compiler.emit.llvm import Function, Value, element_of
from staticgrad.compiler.emit.scalars.lane import Lane


def to_memory(f: Function, value: Value) -> Value:
    """The element in the form in which it is stored: a bool is a byte."""
    return f.cast("zext", value, "i8") if element_of(value.type) == "i1" else value


def from_memory(f: Function, value: Value, dtype: np.dtype) -> Lane:
    """A loaded element as it is computed with: a bool is one bit."""
    if dtype.kind == "b":
        return Lane(f.compare("icmp ne", value, f.const(0, value.type)), dtype)
    return Lane(value, dtype)


def added(f: Function, a: Lane, b: Lane) -> Lane:
    """The sum of elements, of bools whether any is true."""
    op = {"f": "fadd", "b": "or"}.get(a.dtype.kind, "add")
    return Lane(f.binary(op, a.value, b.value), a.dtype)
