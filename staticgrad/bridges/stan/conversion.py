"""A Stan program with its data as tensors: the log density of unconstrained numbers, and what a trace has of a draw.

The log density has all constants and the Jacobians of the constraints (BridgeStan's ``log_density(propto=False,
jacobian=True)``): constants cost nothing once they are folded, and models can be compared by them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from staticgrad.base.errors import SourceLine, StaticGradError
from staticgrad.bridges.importer import Dialect, RefusedError, SourceBody
from staticgrad.bridges.stan import counts, densities, form, functions, making, matrices, multivariate
from staticgrad.bridges.stan.elements import StanArray, boxed
from staticgrad.bridges.stan.evaluation import StanScope
from staticgrad.bridges.stan.expressions import Unavailable, copies
from staticgrad.bridges.stan.form import Act, Expr, ExprKind, Sized, StanFunction, StanProgram, Stmt
from staticgrad.bridges.stan.table import FUNCTIONS, REFUSED, refused
from staticgrad.bridges.stan.transforms import Parameters
from staticgrad.bridges.stan.values import Value, number, tensor
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import Array

OPERATORS = {
    "Less__": "<", "Leq__": "<=", "Greater__": ">", "Geq__": ">=", "Equals__": "==", "NEquals__": "!=", "Plus__": "+",
    "Minus__": "-", "Times__": "*", "Divide__": "/", "PNot__": "!", "IntDivide__": "%/%", "Modulo__": "%",
}  # fmt: skip
TABLES = (counts, densities, functions, making, matrices, multivariate)  # they fill the table


class StanDialect(Dialect):
    """A reader of programs, in which nodes are calls of functions; it finds those that are not converted."""

    system = "Stan"
    converters = FUNCTIONS

    def __init__(self, code: str | None = None, file: str = "<stan>") -> None:
        self.file = file
        # without comments and texts, which keep their lines
        self.lines = [] if code is None else re.sub(r"//[^\n]*|/\*.*?\*/", _blank, code, flags=re.DOTALL).split("\n")

    def name(self, node: Expr) -> str:
        return node.name

    def source(self, node: Any) -> SourceLine | None:
        """The first line of the source that has the function's name, or its distribution's after a tilde; of an
        operator the first one with most of the variables that it is of. Forms say no lines."""
        parts = list(form.within(node)) if isinstance(node, Expr) else []
        names = [part.name for part in parts if part.kind in (ExprKind.NAME, ExprKind.CALL)] or [node.name]
        names = names[:1] if node.name and node.name not in OPERATORS else names
        found = [sum(bool(re.search(_mention(name), line)) for name in names) for line in self.lines]
        best = max(found, default=0)
        return SourceLine(self.file, found.index(best) + 1, "model") if best else None

    def objects_to(self, node: Expr) -> Iterator[tuple[str, str]]:
        if node.library != 2 and (node.name not in FUNCTIONS or node.name in REFUSED):
            yield node.name, refused(node.name)


def _mention(name: str) -> str:
    """A pattern of the places where a line may have a function, a variable or an operator."""
    if name in OPERATORS:
        return re.escape(OPERATORS[name])
    stem = re.escape(re.sub(r"_l?(u?pdf|u?pmf|cdf|ccdf)$", "", name))
    return rf"\b{re.escape(name)}\b|~\s*{stem}\s*\("


def _blank(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


def read_data(data: Any) -> Mapping[str, Any]:
    """Data by name: a mapping, JSON text, or the path of a JSON file.

    Raises:
        StaticGradError: it is none of these.
    """
    if data is None:
        return {}
    if isinstance(data, Mapping):
        return data
    if isinstance(data, str) and data.lstrip().startswith("{"):
        return dict(json.loads(data))
    if isinstance(data, (str, os.PathLike)):
        with open(data) as file:
            return dict(json.load(file))
    raise StaticGradError(f"stan: expected data as a mapping, JSON text or a path, actual {type(data).__name__}")


def bind(data: Mapping[str, Any], name: str, sized: Sized, sizes: tuple[int, ...]) -> Any:
    """The value of a variable of the data: a number, or an array of the declared sizes.

    Raises:
        StaticGradError: it is missing, or of another shape or kind.
    """
    if name not in data:
        raise StaticGradError(f"stan: the data have no {name!r}, which the program declares")
    if "Complex" in sized.base + sized.element or "Tuple" in sized.base + sized.element + sized.raw:
        raise StaticGradError(f"stan: {name}: complex numbers and tuples are not converted")
    try:
        found: Array = np.asarray(data[name], np.float64)
    except (TypeError, ValueError):
        raise StaticGradError(f"stan: {name}: expected numbers in an array of the shape {sizes}") from None
    if found.size != int(np.prod(sizes, dtype=np.int64)) or (found.ndim > 1 and found.size and found.shape != sizes):
        raise StaticGradError(f"stan: {name}: expected the shape {sizes}, actual {found.shape}")
    if sized.integer:
        whole = found.astype(np.int64)
        if not np.array_equal(whole, found):
            raise StaticGradError(f"stan: {name}: expected integers")
        found = whole
    return number(found.reshape(sizes))


class Model:
    """A program and its data, of which the transformed data are computed once.

    Attributes:
        n: the number of unconstrained numbers.
        unconstrained: their names.
        left_out: for each variable that a trace leaves out the reason.
    """

    def __init__(self, program: StanProgram, data: Mapping[str, Any], dialect: StanDialect) -> None:
        self.program, self.dialect = program, dialect
        self.own: dict[str, list[StanFunction]] = {}
        for function in program.functions:
            self.own.setdefault(function.name, []).append(function)
        dialect.require(SourceBody((), list(self._reachable()), ()))
        self.data = self._scope({})
        self._bind(data)
        counting = self._scope(dict(self.data.variables))
        counting.parameter = parameters = Parameters(None)
        for stmt in program.log_prob:
            if stmt.kind is Act.DECLARE and stmt.constraint is not None:
                counting._run(stmt)
        self.n, self.unconstrained = parameters.used, parameters.names
        self.left_out: dict[str, str] = {}

    def _scope(self, variables: Mapping[str, Any]) -> StanScope:
        scope = StanScope(self.own)
        scope.variables.update(copies(variables))
        return scope

    def _reachable(self) -> Iterator[Expr]:
        """The calls of what the data and the log density are computed by."""
        waiting, seen = [*self.program.data, *self.program.log_prob], set[str]()
        while waiting:
            for call in form.calls_in(waiting.pop(0)):
                if call.name not in ("FnReadData", "FnReadParam") and not call.name.startswith("Index"):
                    yield call
                named = [call.name, *(arg.name for arg in call.args if arg.kind is ExprKind.NAME)]
                for name in named:
                    if name in self.own and name not in seen:
                        seen.add(name)
                        waiting += [stmt for function in self.own[name] for stmt in function.body]

    def _bind(self, data: Mapping[str, Any]) -> None:
        inputs, scope = dict(self.program.inputs), self.data
        for stmt in self.program.data:
            if stmt.kind is Act.DECLARE and stmt.name in inputs:
                sized = inputs[stmt.name]
                scope.variables[stmt.name] = boxed(bind(data, stmt.name, sized, scope.sizes(sized)), sized.integer)
            elif not _reads(stmt, inputs):
                scope._run(stmt)

    def log_density(self, x: Tensor) -> Tensor:
        """The log density of the unconstrained numbers ``x``, a vector."""
        scope = self._scope(self.data.variables)
        scope.parameter, scope.batches = Parameters(x), True
        try:
            scope.run(self.program.log_prob)
        except RefusedError as error:
            raise error if error.node is None else self.dialect.refused_at(error.node, error) from error
        return tensor(scope.total())

    def quantities(self, x: Tensor) -> dict[str, Value]:
        """Parameters, transformed parameters and generated quantities by name. Those that are drawn at random, or
        cannot be converted, are ``left_out``."""
        scope = self._scope(self.data.variables)
        scope.parameter = Parameters(x, jacobian=False)
        scope.lenient = scope.batches = True
        scope.run(self.program.quantities)
        found: dict[str, Value] = {}
        for name in self.program.outputs:
            value = scope.variables.get(name, Unavailable("it is not computed"))
            if isinstance(value, Unavailable):
                self.left_out[name] = value.reason
            elif value is not None:
                found[name] = value.whole() if isinstance(value, StanArray) else value
        return found


def _reads(stmt: Stmt, inputs: Mapping[str, Any]) -> bool:
    """True if a statement of the data reads an input, which is bound already."""
    return (
        (stmt.kind is Act.ASSIGN and stmt.name in inputs)
        or stmt.name == "pos__"
        or any(
            inner.name.removesuffix("_flat__") in inputs and inner.name.endswith("_flat__") for inner in stmt.body[:1]
        )
    )
