"""Statements and expressions of a Stan program, run while it is converted.

What depends on data alone is computed with NumPy: sizes, branches, loops, whole arrays. What depends on parameters is
declared. So a loop is run turn by turn (the compiler puts loops where an unrolled graph repeats itself), a function of
the user's is inlined, and a branch on a parameter runs both ways and selects.

Where Stan rejects a draw, because a check fails or ``reject`` is called, the log density is -infinity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from staticgrad.base.errors import StaticGradError
from staticgrad.bridges.importer import Converters, RefusedError
from staticgrad.bridges.stan.boxes import Box
from staticgrad.bridges.stan.form import Act, Constraint, Expr, Function, Kind, Leaf, Sized, Stmt
from staticgrad.bridges.stan import lanes
from staticgrad.bridges.stan.lanes import FEWEST_TURNS, Lanes, LaneValue, Slice, axes_of
from staticgrad.bridges.stan.table import refused
from staticgrad.bridges.stan.values import (
    INTS, Index, Value, known, m, ndim, number, real, reshape, shape, size, take, tensor, where,
)  # fmt: skip
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

FLAGS = {"emit_transformed_parameters__": 1, "emit_generated_quantities__": 1}
LARGEST_WHILE = 10_000_000  # turns of a loop after which it counts as endless


class DrawnError(RefusedError):
    """A value is drawn at random, or cannot be converted: whatever reads it is left out of a trace."""


class _Returned(Exception):
    def __init__(self, value: Value) -> None:
        self.value = value


class _Left(Exception):
    """A loop is left, or (``again``) its next turn begins."""

    def __init__(self, again: bool) -> None:
        self.again = again


class Unavailable:
    """What a variable holds that a trace leaves out, and why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Scope:
    """The variables of a program, or of a call of a function, and the terms of the log density.

    Attributes:
        functions: the table of Stan's own functions.
        own: the user's functions by name.
        variables: for each variable a value, or a ``Box``.
        terms: what the log density is the sum of.
        lenient: True if a statement that cannot be converted makes what it assigns unavailable.
    """

    def __init__(
        self, functions: Converters, own: Mapping[str, Sequence[Function]], variables: dict[str, Any] | None = None
    ) -> None:
        self.functions, self.own = functions, own
        self.variables: dict[str, Any] = dict(FLAGS) if variables is None else variables
        self.terms: list[Value] = []
        self.lenient = False
        self.parameter: Any = None  # reads a parameter of a declaration
        self.batches = False  # loops, where it can be
        self.lanes: Lanes | None = None  # the turns that are declared at once
        self.last_turn: Any = None  # of the loop that is being batched

    def plain(self, variables: dict[str, Any]) -> Scope:
        """A scope of these variables alone."""
        return Scope(self.functions, self.own, variables)

    def inside(self, lanes: Lanes) -> Scope:
        """The scope of one of several turns."""
        inner = Scope(self.functions, self.own, _copies(self.variables))
        inner.lanes = lanes
        return inner

    # -- expressions --------------------------------------------------------------------------------------------------

    def value(self, expr: Expr) -> Value:
        """What an expression is."""
        if self.lanes is not None and (by_turn := self.lanes.known(self, expr)) is not None:
            return self.lanes.tensor(by_turn)
        match expr.kind:
            case Kind.NAME:
                found = self.variable(expr.name)
                return found.whole() if isinstance(found, Box) else found
            case Kind.INT:
                return float(expr.value) if expr.leaf is Leaf.REAL else expr.value
            case Kind.REAL | Kind.TEXT:
                return expr.value
            case Kind.CALL:
                return self._call(expr)
            case Kind.PROMOTED:
                return self.value(expr.args[0])
            case Kind.INDEXED:
                return self._indexed(expr)
            case Kind.IF:
                return self._chosen(*expr.args)
            case Kind.OR | Kind.AND:
                return self._logical(expr)
        raise RefusedError(f"an expression of a kind that is not converted: {expr.raw}", expr)

    def values(self, exprs: Iterable[Expr]) -> list[Value]:
        return [self.value(expr) for expr in exprs]

    def variable(self, name: str) -> Any:
        if name not in self.variables:
            if name in self.own:
                return name  # handed to a function
            raise RefusedError(f"{name} is read before it is declared")
        found = self.variables[name]
        if isinstance(found, Unavailable):
            raise DrawnError(f"{name}: {found.reason}")
        if isinstance(found, Slice):
            raise RefusedError(f"{name} is read as a whole where its parts are assigned")
        return found

    def known(self, expr: Expr, what: str) -> Value:
        """The known value of an expression; ``what`` depends on it.

        Raises:
            RefusedError: it depends on parameters.
            Split: it differs between turns.
        """
        value = self.by_turn(expr)
        if isinstance(value, LaneValue):
            if not value.uniform:
                raise value.split()
            return number(value.data[0])
        if isinstance(value, Tensor):
            raise RefusedError(f"{what} depends on parameters: {expr}", expr)
        return value

    def by_turn(self, expr: Expr) -> Value:
        """The value of an expression, or a ``LaneValue``."""
        found = None if self.lanes is None else self.lanes.known(self, expr)
        return self.value(expr) if found is None else found

    def _call(self, expr: Expr) -> Value:
        if expr.library == 2:
            return self.call(expr.name, [self.by_turn(arg) for arg in expr.args], expr)
        if expr.name not in self.functions:
            raise RefusedError(f"{expr.name}: {refused(expr.name)}", expr)
        try:
            with np.errstate(all="ignore"):
                return self.functions[expr.name](self, expr)
        except RefusedError as error:
            if self.lanes is not None and (differs := self.lanes.lane_of(error.needs)) is not None:
                raise differs.split() from None
            error.node = expr if error.node is None else error.node
            raise

    def call(self, name: str, args: Sequence[Value], node: Any = None) -> Value:
        """The result of a function of the user's."""
        name = name.replace("_lupdf", "_lpdf").replace("_lupmf", "_lpmf")  # no constant is dropped
        found = [function for function in self.own.get(name, ()) if len(function.parameters) == len(args)]
        exact = [function for function in found if function.takes(node.args)] if node is not None else found
        if not found:
            raise RefusedError(f"the user's function {name} has no definition for {len(args)} arguments", node)
        function = (exact or found)[0]
        inner = Scope(self.functions, self.own, dict(zip(function.parameters, map(_parameter, args), strict=True)))
        inner.terms, inner.lanes, inner.batches = self.terms, self.lanes, self.batches
        try:
            inner.run(function.body)
        except _Returned as returned:
            return returned.value
        return None

    def _indexed(self, expr: Expr) -> Value:
        base, index = expr.args[0], self.index(expr.args[1:])
        if base.kind is Kind.NAME:
            found = self.variables.get(base.name)
            if isinstance(found, Slice):
                found, index = found.box, found.index(index)
                if not index:
                    return found.whole()
            else:
                found = self.variable(base.name)
            if isinstance(found, Box):
                return self._read(found, index, base)
        value = self.value(base)
        return self._read(Box(shape(value), False, value), index, base)

    def _read(self, box: Box, index: Sequence[tuple[str, Any]], name: Any) -> Value:
        if self.lanes is not None and any(isinstance(arg, LaneValue) for _, args in index for arg in args):
            return self.lanes.gathered(box, index, lambda at: _within(at, box.shape, name))
        return box.read(_within(index, box.shape, name))

    def index(self, exprs: Sequence[Expr]) -> list[tuple[str, Any]]:
        """Numbers from 1 on by axis, each after the kind of the index."""
        return [(expr.name, [self._place(arg) for arg in expr.args]) for expr in exprs]

    def _place(self, expr: Expr) -> Any:
        value = self.by_turn(expr)
        if isinstance(value, Tensor):
            raise RefusedError(f"an index depends on parameters: {expr}", expr)
        return number(value.data[0]) if isinstance(value, LaneValue) and value.uniform else value

    def _chosen(self, condition: Expr, yes: Expr, no: Expr) -> Value:
        holds = self.value(condition)
        if known(holds):
            return self.value(yes if holds else no)
        return where(holds, self.value(yes), self.value(no))

    def _logical(self, expr: Expr) -> Value:
        is_or = expr.kind is Kind.OR
        first = self.value(expr.args[0])
        if known(first) and bool(first) is is_or:
            return int(is_or)
        second = self.value(expr.args[1])
        if known(first):
            return int(bool(second)) if known(second) else second
        if known(second):
            return int(is_or) if bool(second) is is_or else first
        return (o.logical_or if is_or else o.logical_and)(first, second)

    # -- statements ---------------------------------------------------------------------------------------------------

    def run(self, stmts: Iterable[Stmt]) -> None:
        for stmt in stmts:
            if not self.lenient:
                self._run(stmt)
                continue
            try:
                self._run(stmt)
            except RefusedError as error:
                for name in assigned(stmt):
                    self.variables[name] = Unavailable(error.reason)

    def _run(self, stmt: Stmt) -> None:
        match stmt.kind:
            case Act.DECLARE:
                self._declare(stmt)
            case Act.ASSIGN:
                self._assign(stmt)
            case Act.TARGET:
                self.add(self.value(_some(stmt.value)))
            case Act.BLOCK | Act.LIST:
                self.run(stmt.body)
            case Act.FOR:
                self._for(stmt)
            case Act.IF:
                self._if(stmt)
            case Act.WHILE:
                self._while(stmt)
            case Act.CALL:
                self._act(stmt)
            case Act.RETURN:
                raise _Returned(None if stmt.value is None else self.value(stmt.value))
            case Act.BREAK | Act.CONTINUE:
                raise _Left(stmt.kind is Act.CONTINUE)

    def add(self, value: Value) -> None:
        """A term of the log density; of an array its sum."""
        self.terms.append(m.sum(value) if ndim(value) else value)

    def total(self) -> Value:
        """The log density so far."""
        constant = float(np.sum([float(term) for term in self.terms if known(term)]))
        tensors = [tensor(term) for term in self.terms if not known(term)]
        if not tensors:
            return constant
        total = tensors[0] if len(tensors) == 1 else o.sum(o.stack(tensors))
        return total + constant if constant else total

    def sizes(self, sized: Sized) -> tuple[int, ...]:
        return tuple(int(self.known(dim, "a size")) for dim in sized.dims)

    def _declare(self, stmt: Stmt) -> None:
        if stmt.constraint is not None and stmt.value is not None and stmt.value.name == "FnReadParam":
            if self.parameter is None:
                raise RefusedError(f"the parameter {stmt.name} is read where none can be", stmt)
            self._bind(stmt, self.parameter(self, stmt))
        elif stmt.value is not None:
            self._bind(stmt, self.value(stmt.value))
        else:
            sized = _some(stmt.sized)
            if "Complex" in sized.base + sized.element + sized.raw or "Tuple" in sized.base + sized.element + sized.raw:
                raise RefusedError(f"{stmt.name}: complex numbers and tuples are not converted", stmt)
            if sized.base in ("", "SInt", "SReal"):
                self.variables[stmt.name] = None
            else:
                self.variables[stmt.name] = Box(self.sizes(sized), sized.integer)

    def _bind(self, stmt: Stmt, value: Value) -> None:
        integer = stmt.sized is not None and stmt.sized.integer
        self.variables[stmt.name] = Box(shape(value), integer, value) if ndim(value) else number(value)

    def _assign(self, stmt: Stmt) -> None:
        old = self.variables.get(stmt.name)
        if self.lanes is not None and not stmt.args and isinstance(value := self.by_turn(_some(stmt.value)), LaneValue):
            self.variables[stmt.name] = value
            return
        value = self.value(_some(stmt.value))
        if not stmt.args:
            integer = isinstance(old, Box) and old.integer
            if isinstance(old, Box) and old.shape != shape(value) and 0 not in old.shape:  # results of inlined functions
                raise StaticGradError(f"stan: {stmt.name}: expected the shape {old.shape}, actual {shape(value)}")
            self.variables[stmt.name] = Box(shape(value), integer, value) if ndim(value) else number(value)
            return
        if isinstance(old, Unavailable):
            return
        index = self.index(stmt.args)
        if isinstance(old, Slice):
            old, index = old.box, old.index(index)
            if not index:
                old.write([], value)
                return
        for _, args in index:
            for arg in args:
                if isinstance(arg, LaneValue):
                    raise arg.split()
        if not isinstance(old, Box):
            raise RefusedError(f"{stmt.name} has no elements to assign", stmt)
        old.write(_within(index, old.shape, stmt.name), value)

    def _for(self, stmt: Stmt) -> None:
        first, last = (int(self.known(arg, "a bound of a loop")) for arg in stmt.args)
        turns = np.arange(first, last + 1)
        if self.batches and self.lanes is None and len(turns) >= FEWEST_TURNS:
            axes = axes_of(stmt, self.variables)
            if axes is not None:
                lanes.run(self, stmt, turns, axes)
                return
        self.turns(stmt, turns)

    def turns(self, stmt: Stmt, numbers: Iterable[Any]) -> None:
        """Run turns of a loop one after the other."""
        if self.lanes is not None:
            self.lanes.depth += 1
        for turn in numbers:
            self.variables[stmt.name] = int(turn)
            try:
                self.run(stmt.body)
            except _Left as left:
                if not left.again:
                    break
        if self.lanes is not None:
            self.lanes.depth -= 1

    def _while(self, stmt: Stmt) -> None:
        for _ in range(LARGEST_WHILE):
            if not self.known(_some(stmt.value), "how often a loop turns"):
                return
            try:
                self.run(stmt.body)
            except _Left as left:
                if not left.again:
                    return
        raise RefusedError(f"a loop takes more than {LARGEST_WHILE} turns", stmt)

    def _if(self, stmt: Stmt) -> None:
        holds = self.by_turn(_some(stmt.value))
        if isinstance(holds, LaneValue):
            assert self.lanes is not None
            holds = LaneValue(holds.data != 0)
            if not holds.uniform and not self.lanes.depth:
                raise holds.split()
            holds = bool(holds.data[0]) if holds.uniform else self.lanes.tensor(holds)
        if known(holds):
            self.run(stmt.body[:1] if holds else stmt.body[1:])
            return
        before, terms = self.variables, self.terms
        sides = []
        for side in (stmt.body[:1], stmt.body[1:]):
            self.variables, self.terms = _copies(before), []
            try:
                self.run(side)
            except (_Returned, _Left):
                raise RefusedError("a branch on a parameter leaves a loop or a function", stmt) from None
            sides.append((self.variables, self.total()))
        (yes, more), (no, less) = sides
        self.variables, self.terms = before, terms
        if not (known(more, less) and more == less):
            self.terms.append(where(holds, more, less))
        for name in dict.fromkeys((*yes, *no)):
            a, b = yes.get(name, before.get(name)), no.get(name, before.get(name))
            if a is not b:
                self.variables[name] = _merged(holds, a, b)

    def _act(self, stmt: Stmt) -> None:
        match stmt.name:
            case "FnReject" | "FnFatalError":
                self.add(-np.inf)
            case "FnCheck":
                self._check(_some(stmt.constraint), stmt)
            case "FnPrint" | "FnValidateSize" | "FnValidateSizeSimplex" | "FnWriteParam" | "FnDeepCopy":
                pass
            case _ if stmt.name in self.own or any(stmt.name == name.split("(")[0] for name in self.own):
                self.call(stmt.name, self.values(stmt.args))
            case _ if stmt.name.startswith(("FnValidate", "check_")):
                pass
            case _:
                raise RefusedError(f"a call of {stmt.name} as a statement", stmt)

    def _check(self, constraint: Constraint, stmt: Stmt) -> None:
        """Bounds of data, and of what follows from parameters; other constraints are taken to hold."""
        if constraint.name not in ("Lower", "Upper"):
            return
        value, bound = self.values(stmt.args[:2])
        holds = value >= bound if constraint.name == "Lower" else value <= bound
        if isinstance(holds, Tensor):
            self.add(where(o.all(holds) if holds.ndim else holds, 0.0, -np.inf))
        elif not np.all(holds):
            raise StaticGradError(f"stan: {stmt.subject}: expected {constraint.name.lower()} bound {bound}, actual {value}")


def assigned(stmt: Stmt) -> Iterable[str]:
    """The names of all variables that a statement declares or assigns."""
    if stmt.kind in (Act.DECLARE, Act.ASSIGN):
        yield stmt.name
    for inner in stmt.body:
        yield from assigned(inner)


def _some(value: Any) -> Any:
    assert value is not None
    return value


def _parameter(value: Value) -> Any:
    return Box(shape(value), not isinstance(value, Tensor) and np.asarray(value).dtype.kind in "iu", value) if (
        isinstance(value, (Tensor, np.ndarray)) and ndim(value)
    ) else value  # fmt: skip


def _copies(variables: Mapping[str, Any]) -> dict[str, Any]:
    def copied(value: Any) -> Any:
        return Slice(value.box.copy(), value.axis) if isinstance(value, Slice) else (
            value.copy() if isinstance(value, Box) else value
        )  # fmt: skip

    return {name: copied(value) for name, value in variables.items()}


def _merged(holds: Tensor, a: Any, b: Any) -> Any:
    """What a variable is after a branch on a parameter."""
    if isinstance(a, Unavailable) or isinstance(b, Unavailable):
        return a if isinstance(a, Unavailable) else b
    if a is None or b is None or isinstance(a, str):
        return b if a is None else a
    if isinstance(a, Slice):
        return Slice(_merged(holds, a.box, b.box), a.axis)
    if isinstance(a, LaneValue) or isinstance(b, LaneValue):
        raise RefusedError("a branch on a parameter assigns what differs between turns")
    if not isinstance(a, Box):
        return a if known(a, b) and a == b else where(holds, a, b)
    same = a.value is b.value and a._pieces is None and b._pieces is None
    if same or (known(a.whole(), b.whole()) and np.array_equal(a.whole(), b.whole(), equal_nan=True)):
        return a
    return Box(a.shape, a.integer, where(holds, a.whole(), b.whole()))


def _within(index: Sequence[tuple[str, Any]], sizes: Sequence[int], name: Any) -> list[Index]:
    """The index of the first axes of an array, from 0 on.

    Raises:
        StaticGradError: it is out of range.
    """
    if len(index) > len(sizes):
        raise StaticGradError(f"stan: {name} has {len(sizes)} axes, the index {len(index)}")
    found: list[Index] = []
    for (kind, args), count in zip(index, sizes):
        match kind:
            case "IndexAll":
                found.append(slice(None))
                continue
            case "IndexSingle" | "IndexMulti":
                at = args[0]
            case "IndexUpfrom":
                at = slice(int(args[0]), count)
            case "IndexDownfrom":
                at = slice(1, int(args[0]))
            case "IndexBetween":
                at = slice(int(args[0]), int(args[1]))
            case _:
                raise RefusedError(f"an index of the kind {kind}")
        if isinstance(at, slice):
            low, high, at = at.start, at.stop, slice(at.start - 1, max(at.stop, at.start - 1))
            if low > high:
                at = slice(0, 0)
                low = high = 1 if count else 0
        elif np.ndim(at) == 0:
            low = high = int(at)
            at = low - 1
        else:
            at = np.asarray(at, np.int64)
            low, high = (int(at.min()), int(at.max())) if at.size else (1, count)
            at = at - 1
            if at.size and np.array_equal(at, np.arange(at[0], at[0] + at.size)):
                at = slice(int(at[0]), int(at[0]) + at.size)
        if (low < 1 or high > count) and not (low == high == 0):
            raise StaticGradError(f"stan: an index of {name} is out of range: expected 1 to {count}, actual {low} to {high}")
        found.append(at)
    return found
