"""The loops of a Stan program whose turns do not depend on each other, or on the turns just before alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from staticgrad.bridges.stan.elements import StanArray
from staticgrad.bridges.stan.form import Act, Expr, ExprKind, Stmt, expressions, statements

SUM, OWN = -1, -2  # in the place of an axis
MOST_LAGS = 8  # earlier turns that a recurrence may read


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
