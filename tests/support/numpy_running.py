"""Functions for NumPy declared at example arguments, and run by the interpreter of graphs beside NumPy."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

import staticgrad as sg
from staticgrad.bridges.numpy.adapter import at_examples, of_tensors
from staticgrad.graph.graph import Computation
from staticgrad.ops.interpreter import evaluate

Array = np.ndarray[Any, Any]


def declared(fn: Callable[..., Any], arguments: tuple[Any, ...], freeze: bool = False) -> tuple[Any, list[Any]]:
    """The results of a function at placeholders like the arguments, and these."""
    with sg.Graph():
        xs = [sg.placeholder(np.shape(a), np.asarray(a).dtype) for a in arguments]
        with at_examples(xs, arguments):
            return of_tensors(fn, freeze)(*xs), xs


def interpreted(fetches: list[Any], xs: list[Any], arguments: tuple[Any, ...]) -> list[Array]:
    """The values of tensors, by the interpreter."""
    computation = SimpleNamespace(graph=xs[0].graph, feeds=tuple(xs), fetches=tuple(fetches), effects=())
    values = evaluate(cast(Computation, computation), [np.asarray(a) for a in arguments], lambda _: np.zeros(0)).values
    return list(values)


def own(argument: Any) -> Any:
    return argument.copy() if isinstance(argument, np.ndarray) else argument


def same(fn: Callable[..., Any], *arguments: Any) -> None:
    """The function gives NumPy's values, shapes and dtypes, and leaves its arguments alone."""
    before = [own(a) for a in arguments]
    results, xs = declared(fn, arguments)
    found = interpreted(sg.nest.flatten(results), xs, arguments)
    for a, b in zip(arguments, before, strict=True):
        np.testing.assert_array_equal(a, b)
    expected = sg.nest.flatten(fn(*map(own, arguments)))
    assert len(found) == len(expected)
    for got, want in zip(found, expected, strict=True):
        assert (got.shape, got.dtype) == (np.shape(want), np.asarray(want).dtype)
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
