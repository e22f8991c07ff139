"""Expressions of a Stan program, evaluated while it is converted, and the scope in which they are.

One evaluator has both what is known and what depends on parameters: the functions of ``values`` compute the former and
declare the latter. A function of the user's is inlined at each call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.stan.batches import BatchedTurns, LaneValue, Slice
from staticgrad.bridges.stan.elements import StanArray, boxed, within
from staticgrad.bridges.stan.form import Expr, ExprKind, Leaf, StanFunction, Stmt
from staticgrad.bridges.stan.table import FUNCTIONS, refused
from staticgrad.bridges.stan.values import Value, known, m, ndim, some, tensor, where
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

FLAGS = {"emit_transformedparameter_ofs__": 1, "emit_generated_quantities__": 1}


class DrawnError(RefusedError):
    """A value is drawn at random, or cannot be converted: whatever reads it is left out of a trace."""


class Returned(Exception):
    def __init__(self, value: Value) -> None:
        self.value = value


class Unavailable:
    """The value of a variable that a trace leaves out, with the reason."""

    def __init__(self, reason: str, inherited: bool = False) -> None:
        self.reason, self.inherited = reason, inherited  # from a variable that it would be computed of


class Expressions:
    """The variables of a program, or of a call of a function, and the terms of the log density.

    Attributes:
        own: the user's functions by name.
        variables: for each variable a value, or a ``StanArray``.
        terms: what the log density is the sum of.
        lenient: True if a statement that cannot be converted makes what it assigns unavailable.
    """

    def __init__(self, own: Mapping[str, Sequence[StanFunction]], variables: dict[str, Any] | None = None) -> None:
        self.own = own
        self.variables: dict[str, Any] = dict(FLAGS) if variables is None else variables
        self.terms: list[Value] = []
        self.lenient = False
        self.parameter: Any = None  # reads a parameter of a declaration
        self.batches = False  # loops, where it can be
        self.lanes: BatchedTurns | None = None  # the turns that are declared at once
        self.last_turn: Any = None  # of the loop that is being batched

    def plain(self, variables: dict[str, Any]) -> Self:
        """A scope of these variables alone."""
        return type(self)(self.own, variables)

    def inside(self, lanes: BatchedTurns) -> Self:
        """The scope of one of several turns."""
        inner = type(self)(self.own, copies(self.variables))
        inner.lanes = lanes
        return inner

    # -- expressions --------------------------------------------------------------------------------------------------

    def value(self, expr: Expr) -> Value:
        """The value of an expression: known, or a tensor."""
        if self.lanes is not None and (by_turn := self.lanes.known(self, expr)) is not None:
            return by_turn.first if by_turn.uniform else self.lanes.tensor(by_turn)
        match expr.kind:
            case ExprKind.NAME:
                found = self.variable(expr.name)
                return found.whole() if isinstance(found, StanArray) else found
            case ExprKind.INT:
                return float(expr.value) if expr.leaf is Leaf.REAL else expr.value
            case ExprKind.REAL | ExprKind.TEXT:
                return expr.value
            case ExprKind.CALL:
                return self._call(expr)
            case ExprKind.PROMOTED:
                return self.value(expr.args[0])
            case ExprKind.INDEXED:
                return self._indexed(expr)
            case ExprKind.IF:
                return self._chosen(*expr.args)
            case ExprKind.OR | ExprKind.AND:
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
            raise DrawnError(found.reason if found.inherited else f"{name}: {found.reason}")
        if isinstance(found, Slice):
            raise RefusedError(f"{name} is read as a whole where its parts are assigned")
        return found

    def known(self, expr: Expr, what: str) -> Value:
        """The known value of an expression; ``what`` depends on it.

        Raises:
            RefusedError: it depends on parameters.
            TurnsDiffer: it differs between turns.
        """
        value = self.by_turn(expr)
        if isinstance(value, LaneValue):
            if not value.uniform:
                raise value.split()
            return value.first
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
        if expr.name not in FUNCTIONS:
            raise RefusedError(f"{expr.name}: {refused(expr.name)}", expr)
        try:
            with np.errstate(all="ignore"):
                return FUNCTIONS[expr.name](self, expr)
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
        inner = type(self)(self.own, dict(zip(function.parameters, map(boxed, args), strict=True)))
        inner.terms, inner.lanes, inner.batches = self.terms, self.lanes, self.batches
        try:
            inner.run(function.body)
        except Returned as returned:
            return returned.value
        return None

    def _indexed(self, expr: Expr) -> Value:
        base, index = expr.args[0], self.index(expr.args[1:])
        if base.kind is ExprKind.NAME:
            found = self.variables.get(base.name)
            if isinstance(found, Slice):
                found, index = found.part(index, some(self.lanes).turns)
            else:
                found = self.variable(base.name)
            if isinstance(found, StanArray):
                return self._read(found, index, base)
        return self._read(boxed(self.value(base), False), index, base)

    def _read(self, box: StanArray, index: Sequence[tuple[str, Any]], name: Any) -> Value:
        if self.lanes is not None and any(isinstance(arg, LaneValue) for _, args in index for arg in args):
            return self.lanes.gathered(box, index, lambda at: within(at, box.shape, name))
        return box.read(within(index, box.shape, name))

    def index(self, exprs: Sequence[Expr]) -> list[tuple[str, Any]]:
        """Numbers from 1 on by axis, each after the kind of the index."""
        return [(expr.name, [self._place(arg) for arg in expr.args]) for expr in exprs]

    def _place(self, expr: Expr) -> Any:
        value = self.by_turn(expr)
        if isinstance(value, Tensor):
            raise RefusedError(f"an index depends on parameters: {expr}", expr)
        return value.first if isinstance(value, LaneValue) and value.uniform else value

    def _chosen(self, condition: Expr, yes: Expr, no: Expr) -> Value:
        holds = self.value(condition)
        if known(holds):
            return self.value(yes if holds else no)
        return where(holds, self.value(yes), self.value(no))

    def _logical(self, expr: Expr) -> Value:
        decides = expr.kind is ExprKind.OR  # the value of an operand that the other one does not matter beside
        first = self.value(expr.args[0])
        if known(first) and bool(first) is decides:
            return int(decides)
        second = self.value(expr.args[1])
        if known(first):
            return int(bool(second)) if known(second) else second
        if known(second):
            return int(decides) if bool(second) is decides else first
        return (o.logical_or if decides else o.logical_and)(first, second)

    # -- the log density ----------------------------------------------------------------------------------------------

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

    def run(self, stmts: Sequence[Stmt]) -> None:
        """Run statements; ``StanScope`` does."""
        raise NotImplementedError


def copies(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Variables of their own that now hold the same."""
    return {name: v.copy() if isinstance(v, StanArray | Slice) else v for name, v in variables.items()}
