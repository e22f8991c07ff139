"""Common parts of the tables of NumPy's functions: their decorators, and operands in NumPy's dtypes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from staticgrad.bridges.arrays import cast
from staticgrad.bridges.numpy.calls import FUNCTIONS, WRITTEN, Unconverted, enter, tensor_of
from staticgrad.graph.graph import Tensor

F = TypeVar("F", bound=Callable[..., Any])


def converts(*names: str) -> Callable[[F], F]:
    """Enter a converter of NumPy's functions of these names: it takes tensors in the place of arrays, and gives one."""
    return enter(FUNCTIONS, *(f"numpy.{name}" for name in names))


def written(*names: str) -> Callable[[F], F]:
    """Enter a function in NumPy's own terms, which is traced, for NumPy's functions of these names."""
    return enter(WRITTEN, *(f"numpy.{name}" for name in names))


def refuse_others(where: str, **named: Any) -> None:
    """Refuse keywords that a converter has nothing for.

    Raises:
        Unconverted: one is given.
    """
    given = [name for name, value in named.items() if value is not None and value is not np._NoValue]
    if given:
        raise Unconverted(f"the argument {given[0]} of {where} is not converted")


def common(xs: Sequence[Tensor]) -> list[Tensor]:
    dtype = np.result_type(*(x.dtype for x in xs))
    return [cast(x, dtype) for x in xs]


def weak(xs: Sequence[Any]) -> list[Tensor]:
    """Operands in one dtype, where numbers that came from Python take that of the others."""
    tensors = [x for x in xs if isinstance(x, (Tensor, np.ndarray)) and x.ndim] or list(xs)
    dtype = np.result_type(*(tensor_of(x).dtype for x in tensors))
    if any(tensor_of(x).dtype.kind == "f" for x in xs) and dtype.kind != "f":
        dtype = np.dtype(np.float64)
    return [cast(tensor_of(x), dtype) for x in xs]
