"""Kernels as text that parses back, for tests and for whoever asks how a kernel would be run.

    kernel ::= class(field=value, …)      Nest, Contraction, Convolution, Packing, Batch
    value  ::= number | inf | nan | True | False | None | 'text' | dtype | (value, …) | class(field=value, …)

Fields that have their default are left out. The instructions of a nest stand on a line each. The text is Python's
notation, of which nothing is executed: a class is one of a closed set (kernels, routines, instructions, attributes of
ops), a dtype is its name. What runs a kernel outside its family, the function of a batch, is no part of the text;
extents are refused, as their numbers mean nothing in another program.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import math
from typing import Any

import numpy as np

from staticgrad.base.errors import FormatError
from staticgrad.base.extents import is_open
from staticgrad.base.frozen import defined_in
from staticgrad.base.types import dtype_of
from staticgrad.compiler.kernels import matrix, nest, routines
from staticgrad.compiler.kernels.kernel import Kernel
from staticgrad.graph import optable
from staticgrad.ops import MODULES

NUMBERS = {"inf": math.inf, "nan": math.nan}


def print_kernel(kernel: Kernel) -> str:
    """The text of a kernel.

    Raises:
        FormatError: a size is an extent, or a value has no text.
    """
    return _written(kernel, 0)


def parse_kernel(text: str) -> Kernel:
    """The kernel of a text.

    Raises:
        FormatError: the text is no kernel's.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise FormatError(f"a kernel's text, line {error.lineno}: {error.msg}") from None
    found = _read(tree)
    if not isinstance(found, nest.Nest | matrix.Contraction | matrix.Convolution | matrix.Packing | routines.Batch):
        raise FormatError(f"a kernel's text: expected a kernel, actual {type(found).__name__}")
    return found


@functools.cache
def _classes() -> dict[str, type]:
    """The classes that a text may name."""
    modules = (nest, matrix, routines, optable, *map(importlib.import_module, MODULES))
    return {name: cls for module in modules for name, cls in defined_in(module).items()}


def _written(value: Any, depth: int) -> str:
    match value:
        case None | bool() | str():
            return repr(value)
        case int() | float() if not is_open(value):
            return repr(value)
        case np.dtype():
            return value.name
        case tuple():
            return f"({', '.join(_written(item, depth) for item in value)}{',' * (len(value) == 1)})"
    if type(value).__name__ not in _classes():
        raise FormatError(f"{value!r} has no text in a kernel")
    parts = []
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if not field.compare or repr(item) == repr(field.default):  # 0.0 equals -0.0, and 1 True
            continue
        if isinstance(value, nest.Nest) and field.name == "body":
            lines = [f"{_indent(depth + 2)}{_written(instr, depth + 2)}," for instr in item]
            text = f"body=({''.join(lines)}{_indent(depth + 1)})"
            parts.append(_indent(depth + 1) + text)
        elif isinstance(item, nest.Nest):
            parts.append(f"{_indent(depth + 1)}{field.name}={_written(item, depth + 1)}")
        else:
            parts.append(f" {field.name}={_written(item, depth)}")
    return f"{type(value).__name__}({','.join(parts).removeprefix(' ')})"


def _indent(depth: int) -> str:
    return "\n" + "  " * depth


def _read(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=None | bool() | int() | float() | str() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(_read(operand))
        case ast.Name(id=name) if name in NUMBERS:
            return NUMBERS[name]
        case ast.Name(id=name):
            return _dtype(name)
        case ast.Tuple(elts=items):
            return tuple(map(_read, items))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in _classes():
            try:
                return _classes()[name](*map(_read, args), **{str(k.arg): _read(k.value) for k in keywords})
            except TypeError as error:
                raise FormatError(f"a kernel's text, line {node.lineno}: {error}") from None
    raise FormatError(f"a kernel's text, line {node.lineno}: expected a value, actual {ast.unparse(node)!r:.80}")


def _number(value: Any) -> Any:
    if type(value) not in (int, float):
        raise FormatError(f"a kernel's text: expected a number after a minus, actual {value!r:.80}")
    return value


def _dtype(name: str) -> np.dtype:
    try:
        return dtype_of(name)
    except Exception:
        raise FormatError(f"a kernel's text: {name!r} is neither a dtype nor a class of a kernel") from None
