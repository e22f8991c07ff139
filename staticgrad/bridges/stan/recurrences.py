"""Loops whose turns read what the turns just before have assigned, as one loop of the program (``sg.scan``).

The state is the last slices of arrays of which each turn assigns one, and what is handed on as a whole. The body is run
twice: once to meet the rows that turns read of what is known and of arrays around the loop, then for the scan, which is
given them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from staticgrad.base.errors import StaticGradError
from staticgrad.bridges.stan.batches import (
    BatchedTurns,
    LaneValue,
    Slice,
    TurnsDiffer,
    places_of,
    start_of,
)
from staticgrad.bridges.stan.elements import StanArray
from staticgrad.bridges.stan.expressions import boxed
from staticgrad.bridges.stan.form import Stmt
from staticgrad.bridges.stan.values import Value, m, real, shape, tensor
from staticgrad.graph.graph import Tensor, get_default_graph
from staticgrad.graph.optable import FUNCTIONS as o

MOST_RUNS = 4  # of consecutive turns that take the same branches; of more the loop is unrolled
MOST_HANDED_ON = 4096  # elements of an array that is handed from turn to turn as a whole

Lags = Mapping[str, tuple[int, int]]


def run(scope: Any, loop: Stmt, turns: Any, lags: Lags) -> bool:
    """Run the turns of a loop in a loop of the program; False if that cannot be, and nothing has been done."""
    handed_on = [scope.variables.get(name) for name, (axis, _) in lags.items() if axis < 0]
    if not all(_can_be_handed_on(value) for value in handed_on):
        return False
    try:
        _scan(scope, loop, turns, lags)
    except TurnsDiffer as differ:
        keys = list(differ.keys)
        ends = [k + 1 for k in range(len(keys) - 1) if keys[k] != keys[k + 1]]
        if not 0 < len(ends) < MOST_RUNS:
            return False
        for part in np.split(turns, ends):
            scope.in_order(loop, part)
    except (StaticGradError, TypeError, ValueError):
        return False
    return True


def _can_be_handed_on(value: Any) -> bool:
    if isinstance(value, StanArray):
        return not value.integer and value.size <= MOST_HANDED_ON
    return isinstance(value, float | Tensor | None)


def _scan(scope: Any, loop: Stmt, turns: Any, lags: Lags) -> None:
    base = get_default_graph()
    first = [tensor(value) for name, (axis, lag) in lags.items() for value in _first(scope, name, axis, lag, turns)]

    def turn(lanes: BatchedTurns, state: Sequence[Tensor]) -> tuple[list[Value], list[Value]]:
        """The state after a turn, and the rows that it gives: slices, then the terms of the log density."""
        inner, given = scope.inside(lanes), iter(state)
        inner.variables[loop.name] = LaneValue(np.asarray(turns))
        for name, (axis, lag) in lags.items():
            if axis < 0:
                inner.variables[name] = boxed(next(given))
                continue
            part = start_of(lanes, scope.variables[name], axis)
            before = [StanArray(shape(x), False, x) for x in itertools.islice(given, lag)]
            inner.variables[name] = Slice(part.box, axis, before)
        inner.run(loop.body)
        following: list[Value] = []
        rows: list[Value] = []
        for name, (_, lag) in lags.items():
            value = inner.variables[name]
            if isinstance(value, Slice):
                rows.append(value.box.whole())
                following += [each.whole() for each in (value.box, *value.before)][:lag]
            else:
                following.append(value.whole() if isinstance(value, StanArray) else value)
        return [tensor(x) for x in following], [tensor(x) for x in (*rows, inner.total())]

    met = BatchedTurns(loop.name, turns, base)
    with met.examples.trace:
        turn(met, [o.zeros(x.shape, dtype=x.dtype) for x in first])

    def body(state: Sequence[Tensor], rows: Sequence[Tensor]) -> tuple[Any, Any]:
        after, made = turn(BatchedTurns(loop.name, turns, base, rows), state)
        return tuple(after), tuple(made)

    last, made = o.scan(body, tuple(first), tuple(met.inputs), length=len(turns))
    *slices, terms = made
    scope.add(terms)
    ends, rows = iter(last), iter(slices)
    for name, (axis, lag) in lags.items():
        if axis < 0:
            scope.variables[name] = boxed(next(ends))
            continue
        for _ in range(lag):
            next(ends)
        scope.variables[name].write([*[slice(None)] * axis, places_of(turns)], m.moveaxis(next(rows), 0, axis))


def _first(scope: Any, name: str, axis: int, lag: int, turns: Any) -> list[Value]:
    """The part of the state that a variable has before the first turn."""
    value = scope.variables.get(name)
    if axis < 0:
        return [np.nan if value is None else value.whole() if isinstance(value, StanArray) else value]
    rest = (*value.shape[:axis], *value.shape[axis + 1 :])
    places = [int(turns[0]) - 1 - k for k in range(1, lag + 1)]
    before = [value.read([*[slice(None)] * axis, at]) if at >= 0 else np.full(rest, np.nan) for at in places]
    return [real(each) for each in before]
