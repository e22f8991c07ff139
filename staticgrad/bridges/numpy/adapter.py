"""Functions that are written for NumPy as functions of tensors, which ``sg.function`` and its kin take.

The function is called with traced arrays, one for each tensor (``array``), in a copy that has stand-ins around it
(``rebuild``). The values at the example arguments come from the call that declares (``at_examples``); a call with
tensors has none, so there nothing can be frozen.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from staticgrad.base import nests
from staticgrad.base.errors import GraphError
from staticgrad.bridges.arrays import cast
from staticgrad.bridges.numpy import trace
from staticgrad.bridges.numpy.array import TracedArray, traced
from staticgrad.bridges.numpy.rebuild import Rebuilding
from staticgrad.bridges.numpy.tables import of_tensor
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import graph_of
from staticgrad.graph.optable import FUNCTIONS as o

_examples: ContextVar[Mapping[Tensor, Any]] = ContextVar("examples")


@contextmanager
def at_examples(tensors: Sequence[Tensor], values: Sequence[Any]) -> Iterator[None]:
    """A block in which these tensors have these values, when a function of NumPy is declared."""
    token = _examples.set(dict(zip(tensors, values, strict=True)))
    try:
        yield
    finally:
        _examples.reset(token)


def of_tensors(fn: Callable[..., Any], freeze: bool = False) -> Callable[..., Any]:
    """A function of tensors that declares what a function of NumPy computes.

    Args:
        fn: takes arrays, numbers and nests of them, and gives such.
        freeze: what depends on values has those at the examples, with a warning.

    Returns:
        A function of nests of tensors; what is no tensor is handed on as it is.
    """

    @functools.wraps(fn)
    def declared(*arguments: Any, **named: Any) -> Any:
        graph = graph_of(nests.flatten([list(arguments), named]))
        with graph, trace.tracing(freeze) as current:
            rebuilding = Rebuilding(fn)
            current.rebuild = rebuilding.function
            given = nests.map(functools.partial(_given, rebuilding), [list(arguments), named])
            result = rebuilding.of(fn)(*given[0], **given[1])
            return nests.map(_tensor_of, result)

    return declared


def _given(rebuilding: Rebuilding, x: Any) -> Any:
    """An argument as the function gets it: arrays for tensors, stand-ins for functions and objects."""
    if not isinstance(x, Tensor):
        return rebuilding.of(x)
    known = _examples.get({})
    value = known.get(x.op.inputs[0] if x.op.op.name == "identity" and x not in known else x)
    if value is None:
        if not all(isinstance(size, int) for size in x.shape):
            raise GraphError(f"numpy: expected known sizes, actual {x.name!r} {x.type}", source=x.source)
        return of_tensor(x)
    return traced(value.copy() if isinstance(value, np.ndarray) else value, x)


def _tensor_of(x: Any) -> Any:
    if type(x) is TracedArray:
        return x.tensor()
    if x is None or isinstance(x, Tensor):
        return x
    return cast(o.constant(np.asarray(x)), np.asarray(x).dtype)
