"""The loops of a Stan program whose turns do not depend on each other, or on the turns just before alone.

``parts_of`` finds them. The former are declared at once (``batches``). The latter become one loop of the program
(``sg.scan``): its state is the last slices of arrays of which each turn assigns one, and what is handed on as a whole.
The body is run twice: once to meet the rows that turns read of what is known and of arrays around the loop, then for
the scan, which is given them.

Unrolled, loops over observations and hidden Markov models of some hundred turns have up to a thousand times the nodes
(posteriordb's hmm_gaussian 88,394 beside 71), and take minutes to compile.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from staticgrad.base.errors import StaticGradError
from staticgrad.bridges.stan.batches import OWN, SUM, BatchedTurns, LaneValue, Slice, TurnsDiffer, places_of, start_of
from staticgrad.bridges.stan.elements import StanArray, boxed
from staticgrad.bridges.stan.form import Act, Expr, ExprKind, Stmt, expressions, statements
from staticgrad.bridges.stan.values import Value, m, real, shape, tensor
from staticgrad.graph.graph import Tensor, get_default_graph
from staticgrad.graph.optable import FUNCTIONS as o

MOST_LAGS = 8  # earlier turns that a recurrence may read
MOST_RUNS = 4  # of consecutive turns that take the same branches; of more the loop is unrolled
MOST_HANDED_ON = 4096  # elements of an array that is handed from turn to turn as a whole


def parts_of(loop: Stmt, variables: Mapping[str, Any]) -> dict[str, tuple[int, int]] | None:
    """For each variable around a loop that its turns assign, the axis along which each turn has its own slice, and how
    many earlier slices a turn reads; or, with 0, SUM, of a number to which turns add; or OWN, of what each turn assigns
    before it reads it, or is handed from turn to turn as a whole. None if turns read other slices, the loop ends early,
    or nothing depends on parameters."""
    body = [stmt for inner in loop.body for stmt in statements(inner)]
    if any(inner.leaves for inner in loop.body) or any(stmt.kind is Act.WHILE for stmt in body):
        return None
    exprs = [expr for stmt in body for expr in expressions(stmt)]
    if all(expr.data for expr in exprs if expr.kind is not ExprKind.CALL or not expr.name.startswith("Index")):
        return None
    local = {stmt.name for stmt in body if stmt.kind is Act.DECLARE}
    reads = [read for expr in exprs for read in _reads(expr)]
    writes: dict[str, list[Stmt]] = {}
    for stmt in body:
        if stmt.kind is Act.ASSIGN and stmt.name not in local:
            writes.setdefault(stmt.name, []).append(stmt)
    found: dict[str, tuple[int, int]] = {}
    for name, stmts in writes.items():
        box, axes = variables.get(name), {_axis(stmt.args, loop.name) for stmt in stmts}
        mine = [(read, index) for read, index in reads if read.name == name]
        sums = [stmt.value.args[0] for stmt in stmts if stmt.value is not None and _adds(stmt)]
        axis = axes.pop() if len(axes) == 1 else None
        if axis is not None and isinstance(box, StanArray):
            lags = [_lag(index, axis, loop.name) for _, index in mine]
            if box.integer or None in lags:
                return None
            found[name] = axis, max((lag for lag in lags if lag is not None), default=0)
        elif len(sums) == len(stmts) and not isinstance(box, StanArray):
            found[name] = (SUM if all(any(r is s for s in sums) for r, _ in mine) else OWN), 0
        else:
            found[name] = OWN, 0
    return found


def _lag(index: Sequence[Expr], axis: int, name: str) -> int | None:
    """The number of turns before this one that the place of an index along an axis is from."""
    if len(index) <= axis or index[axis].name != "IndexSingle":
        return None
    at = index[axis].args[0]
    if _is_name(at, name):
        return 0
    if at.kind is ExprKind.CALL and at.name == "Minus__" and _is_name(at.args[0], name):
        by = at.args[1]
        if by.kind is ExprKind.INT and isinstance(by.value, int) and 0 < by.value <= MOST_LAGS:
            return by.value
    return None


def _adds(stmt: Stmt) -> bool:
    """True if a statement adds to the number that it assigns."""
    value = stmt.value
    assert value is not None
    return (
        not stmt.args and value.kind is ExprKind.CALL and value.name == "Plus__" and _is_name(value.args[0], stmt.name)
    )


def _is_name(expr: Expr, name: str) -> bool:
    return expr.kind is ExprKind.NAME and expr.name == name


def _axis(index: Sequence[Expr], name: str) -> int | None:
    """The axis of an index that is the loop's variable."""
    for axis, each in enumerate(index):
        if each.name == "IndexSingle" and _is_name(each.args[0], name):
            return axis
    return None


def _reads(expr: Expr) -> Iterator[tuple[Expr, Sequence[Expr]]]:
    """Each variable that an expression reads, with the index at which it does."""
    if expr.kind is ExprKind.NAME:
        yield expr, ()
        return
    rest = expr.args
    if expr.kind is ExprKind.INDEXED and expr.args[0].kind is ExprKind.NAME:
        yield expr.args[0], expr.args[1:]
        rest = expr.args[1:]
    for arg in rest:
        yield from _reads(arg)


# -- recurrences ------------------------------------------------------------------------------------------------------

Lags = Mapping[str, tuple[int, int]]


def scan(scope: Any, loop: Stmt, turns: Any, lags: Lags) -> bool:
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
