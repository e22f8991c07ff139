"""The loops of a Stan program whose turns do not depend on each other, or on the turns just before alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from staticgrad.bridges.stan.elements import StanArray
from staticgrad.bridges.stan.form import Act, Expr, ExprKind, Stmt, expressions, statements
from staticgrad.graph.graph import Tensor

SUM, OWN = -1, -2  # in the place of an axis
MOST_LAGS = 8  # earlier turns that a recurrence may read
MOST_HANDED_ON = 4096  # elements of an array that is handed from turn to turn as a whole


def axes_of(loop: Stmt, variables: Mapping[str, Any]) -> dict[str, int] | None:
    """For each variable around a loop that its turns assign, the axis along which each turn has its own slice; or SUM,
    of a number to which turns add; or OWN, of what each turn assigns before it reads it. None if turns depend on each
    other, or nothing depends on parameters."""
    parts = _parts(loop)
    if parts is None:
        return None
    writes, reads = parts
    found: dict[str, int] = {}
    for name, stmts in writes.items():
        axes = {_axis(stmt.args, loop.name) if stmt.kind is Act.ASSIGN else None for stmt in stmts}
        mine = [(read, index) for read, index in reads if read.name == name]
        box = variables.get(name)
        sums = [stmt.value.args[0] for stmt in stmts if stmt.value is not None and _adds(stmt)]
        if None not in axes:
            (axis,) = axes if len(axes) == 1 else (None,)
            if not isinstance(box, StanArray) or box.integer or axis is None:
                return None
            if not all(len(index) > axis and _axis(index, loop.name) == axis for _, index in mine):
                return None
            found[name] = axis
        elif (
            len(sums) == len(stmts)
            and not isinstance(box, StanArray)
            and all(any(r is s for s in sums) for r, _ in mine)
        ):
            found[name] = SUM
        else:
            found[name] = OWN
    return found


def recurrence_of(loop: Stmt, variables: Mapping[str, Any]) -> dict[str, tuple[int, int]] | None:
    """For each variable around a loop that its turns assign, the axis along which each turn has its own slice, and how
    many earlier slices a turn reads; or OWN and 0, of what is handed from turn to turn as a whole. None if turns read
    other slices, or nothing depends on parameters."""
    parts = _parts(loop)
    if parts is None:
        return None
    writes, reads = parts
    found: dict[str, tuple[int, int]] = {}
    for name, stmts in writes.items():
        box = variables.get(name)
        if any(stmt.kind is Act.FOR for stmt in stmts):
            continue  # of a loop inside
        axes = {_axis(stmt.args, loop.name) for stmt in stmts}
        if isinstance(box, StanArray) and (box.integer or (None in axes and box.size > MOST_HANDED_ON)):
            return None
        if not isinstance(box, StanArray | float | Tensor | None):
            return None
        (axis,) = axes if len(axes) == 1 else (None,)
        if axis is None or not isinstance(box, StanArray):
            found[name] = OWN, 0
            continue
        lags = [_lag(index, axis, loop.name) for read, index in reads if read.name == name]
        if any(lag is None for lag in lags):
            return None
        found[name] = axis, max((lag for lag in lags if lag is not None), default=0)
    return found


def _parts(loop: Stmt) -> tuple[dict[str, list[Stmt]], list[tuple[Expr, Sequence[Expr]]]] | None:
    """The assignments of a loop's body to variables around it, by name, and all that it reads; None if it ends early,
    or depends on data alone."""
    body = [stmt for inner in loop.body for stmt in statements(inner)]
    if any(stmt.kind in (Act.RETURN, Act.BREAK, Act.CONTINUE, Act.WHILE) for stmt in body):
        return None
    exprs = [expr for stmt in body for expr in expressions(stmt)]
    if all(expr.data for expr in exprs if expr.kind is not ExprKind.CALL or not expr.name.startswith("Index")):
        return None
    local = {stmt.name for stmt in body if stmt.kind is Act.DECLARE}
    writes: dict[str, list[Stmt]] = {}
    for stmt in body:
        if (stmt.kind is Act.ASSIGN and stmt.name not in local) or stmt.kind is Act.FOR:
            writes.setdefault(stmt.name, []).append(stmt)
    return writes, [read for expr in exprs for read in _reads(expr)]


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
