"""Tensors and known arrays, as the converters of all dialects handle them.

A value is a tensor, or a NumPy array that is known when a program is converted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import Size, dtype_of
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.lifting import graph_of
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.ops.interpreter import evaluate

LARGEST_KNOWN = 1024  # elements of an array that is computed while a program is converted


def as_tensor(value: Any) -> Tensor:
    """The tensor itself, or a constant of the dtype that the array has."""
    return value if isinstance(value, Tensor) else o.constant(value, dtype_of(np.asarray(value).dtype))


def as_tensors(values: Iterable[Any]) -> list[Tensor]:
    return [as_tensor(value) for value in values]


@frozen(eq=False)
class ConstantGraph:
    """A graph of constants, as the interpreter of graphs takes it."""

    graph: Graph
    fetches: tuple[Tensor, ...]
    feeds: tuple[Tensor, ...] = ()
    effects: tuple[Node, ...] = ()


def evaluated(tensors: Sequence[Tensor]) -> list[np.ndarray]:
    """Tensors of one graph that depend on constants alone, as arrays.

    Raises:
        GraphError: one of them depends on a variable.
    """

    def refuse(attributes: Any) -> Any:
        raise GraphError("a constant depends on a variable")

    return evaluate(ConstantGraph(graph_of(tensors), tuple(tensors)), (), refuse).values if tensors else []


def cast(x: Tensor, dtype: Any) -> Tensor:
    """The tensor in another dtype; itself if it has that one."""
    dtype = dtype_of(dtype)
    return x if x.dtype == dtype else o.astype(x, dtype)


def promoted(*xs: Tensor) -> list[Tensor]:
    """Tensors in the dtype to which NumPy promotes theirs."""
    dtype = np.result_type(*(x.dtype for x in xs))
    return [cast(x, dtype) for x in xs]


def spread(x: Tensor, shape: Sequence[Size]) -> Tensor:
    """The tensor broadcast to a shape; itself if it has that one."""
    return x if x.shape == tuple(shape) else o.broadcast_to(x, tuple(shape))


def functions(**names: str) -> dict[str, Callable[..., Tensor]]:
    """For each key a function of tensors: the one of staticgrad's that is named."""

    def function(name: str) -> Callable[..., Tensor]:
        return lambda *xs: getattr(o, name)(*xs)

    return {key: function(name) for key, name in names.items()}
