"""The tables of NumPy's functions, and what their entries are made with.

    UFUNCS      by name: a function of tensors in the dtypes of the loop that NumPy chooses
    FUNCTIONS   by path (``numpy.sum``): a function of the same arguments, with tensors in the place of arrays
    WRITTEN     by path: the function written in NumPy's own terms, which is traced
    SEQUENCES   paths of functions whose first argument is a sequence of arrays; a list is an array to all others

A path is the module and name under which a function is documented.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from staticgrad.bridges.arrays import cast
from staticgrad.bridges.numpy.array import TracedArray
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

F = TypeVar("F", bound=Callable[..., Any])
Table = dict[str, Callable[..., Any]]

UFUNCS: Table = {}
FUNCTIONS: Table = {}
WRITTEN: Table = {}
SEQUENCES = {f"numpy.{name}" for name in ("array", "asarray", "asanyarray", "concatenate", "concat", "stack", "vstack",
                                          "row_stack", "hstack", "dstack", "column_stack", "select", "block", "choose",
                                          "linalg.multi_dot")}  # fmt: skip
_PATHS: dict[Any, str] = {}  # of functions that tables have


class Unconverted(Exception):
    """A converter finds arguments that it has nothing for."""


def enter(table: Table, *paths: str) -> Callable[[F], F]:
    """A decorator that enters a function under these paths."""

    def enter(function: F) -> F:
        for path in paths:
            if path in table:
                raise ValueError(f"{path} is converted twice")
            table[path] = function
        return function

    return enter


def converts(*names: str) -> Callable[[F], F]:
    """Enter a converter of NumPy's functions of these names."""
    return enter(FUNCTIONS, *(f"numpy.{name}" for name in names))


def written(*names: str) -> Callable[[F], F]:
    """Enter a function in NumPy's own terms for NumPy's functions of these names."""
    return enter(WRITTEN, *(f"numpy.{name}" for name in names))


def register(path: str, function: Any) -> None:
    """Say which path a function of NumPy, and what it wraps, has in the tables."""
    for each in (function, getattr(function, "_implementation", function)):
        _PATHS.setdefault(each, path)


def path_of(function: Any) -> str:
    """The path of a function, without the private modules in which it is defined."""
    known_path = _PATHS.get(function)
    if known_path is not None:
        return known_path
    home = (getattr(function, "__module__", None) or "numpy").split(".")
    return ".".join([*(name for name in home if name[0] != "_"), getattr(function, "__name__", str(function))])


# -- operands ---------------------------------------------------------------------------------------------------------


def tensor_of(x: Any) -> Tensor:
    """Any operand as a tensor of NumPy's dtype for it."""
    if type(x) is TracedArray:
        return x.tensor()
    return x if isinstance(x, Tensor) else o.constant(np.asarray(x))


def common(*xs: Any) -> list[Tensor]:
    """Operands in the dtype to which NumPy promotes theirs."""
    tensors = [tensor_of(x) for x in xs]
    dtype = np.result_type(*(x.dtype for x in tensors))
    return [cast(x, dtype) for x in tensors]


def weak(xs: Sequence[Any]) -> list[Tensor]:
    """Operands in one dtype, where numbers that came from Python take that of the others."""
    tensors = [x for x in xs if isinstance(x, (Tensor, np.ndarray)) and x.ndim] or list(xs)
    dtype = np.result_type(*(tensor_of(x).dtype for x in tensors))
    if any(tensor_of(x).dtype.kind == "f" for x in xs) and dtype.kind != "f":
        dtype = np.dtype(np.float64)
    return [cast(tensor_of(x), dtype) for x in xs]


def refuse_others(where: str, **named: Any) -> None:
    """Refuse keywords that a converter has nothing for.

    Raises:
        Unconverted: one is given.
    """
    given = [name for name, value in named.items() if value is not None and value is not np._NoValue]
    if given:
        raise Unconverted(f"the argument {given[0]} of {where} is not converted")
