"""Callbacks of searches: what the program tells after each iteration, and whether it goes on.

Input: tensors of an iteration. Output: a bool that says whether to stop. The call is declared in the program, as a
``py_call`` of one function for all searches, so that another callback compiles nothing: whom it calls is said for the
time of the run, in the thread of the run. An error of the callback ends the search and is raised by it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.types import bool_
from staticgrad.functions.minimization.results import IntermediateResult
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as O
from staticgrad.graph.optable import Array

Callback = Callable[..., Any]


class _Told:
    """The callback of one run, and what came of it."""

    def __init__(self, callback: Callback, shaped: Callable[[list[Array]], Any], what: str) -> None:
        self._callback, self._shaped = callback, shaped
        self._by_name = _takes_results(callback, what)
        self.error: BaseException | None = None

    def told(self, fun: Array, cost: Array, nit: Array, nfev: Array, *x: Array) -> bool:
        point = self._shaped([part.copy() for part in x])
        try:
            if self._by_name:
                counts = int(nit), int(nfev)
                answer = self._callback(intermediate_result=IntermediateResult(point, fun.copy(), float(cost), *counts))
            else:
                answer = self._callback(point)
        except StopIteration:
            return True
        except BaseException as error:
            self.error = error
            return True
        return answer is True


_CURRENT: ContextVar[_Told | None] = ContextVar("a search that is watched", default=None)


def _takes_results(callback: Callback, what: str) -> bool:
    """True if a callback is called with all that is known; SciPy tells by the name of its argument."""
    if not callable(callback):
        raise GraphError(f"{what}: callback: expected a function, actual {callback!r}")
    try:
        return set(inspect.signature(callback).parameters) == {"intermediate_result"}
    except (TypeError, ValueError):  # a function without a signature
        return False


def _tell(*values: Array) -> Array:
    watch = _CURRENT.get()
    return np.array(watch is not None and watch.told(*values))


def told(
    fun: Tensor, cost: Tensor, nit: Tensor, nfev: Tensor, x: Sequence[Tensor], goes_on: Tensor | None = None
) -> Tensor:
    """True if the callback stops the search; it is called where the search goes on, if that is given."""

    def call() -> Tensor:
        found: Any = O.py_call(_tell, [fun, cost, nit, nfev, *x], [(bool_, ())])
        stop: Tensor = found[0]
        return stop

    if goes_on is None:
        return call()
    found: Tensor = O.cond(goes_on, call, lambda: O.logical_and(goes_on, False))
    return found


def watched(
    run: Callable[[], Mapping[str, Any]], callback: Callback | None, shaped: Callable[[list[Array]], Any], what: str
) -> Mapping[str, Any]:
    """The results of a run, with the callback told of its iterations. ``shaped``: the point as the user knows it."""
    if callback is None:
        return run()
    watch = _Told(callback, shaped, what)
    token = _CURRENT.set(watch)
    try:
        found = run()
    finally:
        _CURRENT.reset(token)
    if watch.error is not None:
        raise watch.error
    return found
