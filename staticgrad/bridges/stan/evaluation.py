"""Statements of a Stan program, run while it is converted.

Sizes, branches and loops on data are run here and now: a loop turn by turn (the compiler puts loops where an unrolled
graph repeats itself), or all turns at once (``batches``). A branch on a parameter runs both ways and selects.

Where Stan rejects a draw, because a check fails or ``reject`` is called, the log density is -infinity.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from staticgrad.base.errors import StaticGradError
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.stan import batches
from staticgrad.bridges.stan.batches import LaneValue, Slice
from staticgrad.bridges.stan.elements import StanArray, boxed, within
from staticgrad.bridges.stan.expressions import DrawnError, Expressions, Returned, Unavailable, copies
from staticgrad.bridges.stan.form import Act, Constraint, Sized, Stmt
from staticgrad.bridges.stan.loops import parts_of, scan
from staticgrad.bridges.stan.values import Value, known, shape, some, where
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

FEWEST_TURNS = 6  # of a loop that is batched: fewer make a small graph when they are unrolled
FEWEST_SCANNED = 24  # turns of a loop that becomes a loop of the program
LARGEST_WHILE = 10_000_000  # turns of a loop after which it counts as endless


class _Left(Exception):
    """A loop is left, or (``again``) its next turn begins."""

    def __init__(self, again: bool) -> None:
        self.again = again


class StanScope(Expressions):
    """The variables of a program, or of a call of a function, and what its statements do to them."""

    only_turn = False  # in a loop that turns once, so that leaving it is going on

    def run(self, stmts: Sequence[Stmt]) -> None:
        for at, stmt in enumerate(stmts):
            try:
                if stmt.leaves and stmt.kind is Act.IF:
                    self._if(stmt, stmts[at + 1 :])  # what follows is run by the sides that do not leave
                    return
                if stmt.leaves and stmt.kind in (Act.BLOCK, Act.LIST):
                    self.run((*stmt.body, *stmts[at + 1 :]))
                    return
                self._run(stmt)
            except RefusedError as error:
                if not self.lenient:
                    raise
                for name in assigned(stmt):
                    self.variables[name] = Unavailable(error.reason, isinstance(error, DrawnError))

    def _run(self, stmt: Stmt) -> None:
        match stmt.kind:
            case Act.DECLARE:
                self._declare(stmt)
            case Act.ASSIGN:
                self._assign(stmt)
            case Act.TARGET:
                self.add(self.value(some(stmt.value)))
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
                raise Returned(None if stmt.value is None else self.value(stmt.value))
            case Act.BREAK | Act.CONTINUE:
                raise _Left(stmt.kind is Act.CONTINUE)

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
            sized = some(stmt.sized)
            if "Complex" in sized.base + sized.element + sized.raw or "Tuple" in sized.base + sized.element + sized.raw:
                raise RefusedError(f"{stmt.name}: complex numbers and tuples are not converted", stmt)
            number_of = sized.base in ("", "SInt", "SReal")
            self.variables[stmt.name] = None if number_of else StanArray(self.sizes(sized), sized.integer)

    def _bind(self, stmt: Stmt, value: Value) -> None:
        self.variables[stmt.name] = boxed(value, stmt.sized is not None and stmt.sized.integer)

    def _assign(self, stmt: Stmt) -> None:
        old = self.variables.get(stmt.name)
        value = self.by_turn(some(stmt.value)) if not stmt.args else self.value(some(stmt.value))
        if isinstance(value, LaneValue):
            self.variables[stmt.name] = value
            return
        if not stmt.args:
            sizes = old.shape if isinstance(old, StanArray) else shape(value)
            if sizes != shape(value) and 0 not in sizes:  # empty: results of inlined functions
                raise StaticGradError(f"stan: {stmt.name}: expected the shape {sizes}, actual {shape(value)}")
            self.variables[stmt.name] = boxed(value, isinstance(old, StanArray) and old.integer)
            return
        if isinstance(old, Unavailable):
            return
        index = self.index(stmt.args)
        if isinstance(old, Slice):
            old, index = old.part(index, some(self.lanes).turns)
        differing = [arg for _, args in index for arg in args if isinstance(arg, LaneValue)]
        if differing:
            raise differing[0].split()
        if not isinstance(old, StanArray):
            raise RefusedError(f"{stmt.name} has no elements to assign", stmt)
        old.write(within(index, old.shape, stmt.name), value)

    def _for(self, stmt: Stmt) -> None:
        first, last = (int(self.known(arg, "a bound of a loop")) for arg in stmt.args)
        turns = np.arange(first, last + 1)
        if self.batches and self.lanes is None and len(turns) >= FEWEST_TURNS:
            parts = parts_of(stmt, self.variables)
            if parts is not None and not any(lag for _, lag in parts.values()):
                batches.run(self, stmt, turns, {name: axis for name, (axis, _) in parts.items()}, FEWEST_TURNS)
                return
        self.in_order(stmt, turns)

    def in_order(self, stmt: Stmt, turns: Any) -> None:
        """Run turns of a loop in a loop of the program if they make a recurrence, else one after the other."""
        if self.batches and self.lanes is None and len(turns) >= FEWEST_SCANNED:
            parts = parts_of(stmt, self.variables)
            if parts is not None and scan(self, stmt, turns, parts):
                return
        self.turns(stmt, turns)

    def turns(self, stmt: Stmt, numbers: Any) -> None:
        """Run turns of a loop one after the other."""
        if self.lanes is not None:
            self.lanes.depth += 1
        for turn in numbers:
            self.variables[stmt.name] = int(turn)
            if not self._goes_on(stmt, len(numbers) == 1):
                break
        if self.lanes is not None:
            self.lanes.depth -= 1

    def _goes_on(self, loop: Stmt, only_turn: bool = False) -> bool:
        """Run the body of a loop; False if it leaves the loop."""
        outer, self.only_turn = self.only_turn, only_turn
        try:
            self.run(loop.body)
        except _Left as left:
            return left.again
        finally:
            self.only_turn = outer
        return True

    def _while(self, stmt: Stmt) -> None:
        for _ in range(LARGEST_WHILE):
            if not self.known(some(stmt.value), "how often a loop turns") or not self._goes_on(stmt):
                return
        raise RefusedError(f"a loop takes more than {LARGEST_WHILE} turns", stmt)

    def _if(self, stmt: Stmt, rest: Sequence[Stmt] = ()) -> None:
        holds = self.by_turn(some(stmt.value))
        if isinstance(holds, LaneValue):
            lanes, holds = some(self.lanes), LaneValue(holds.data != 0)
            if not holds.uniform and not lanes.depth:
                raise holds.split()
            holds = bool(holds.data[0]) if holds.uniform else lanes.tensor(holds)
        if known(holds):
            self.run((*(stmt.body[:1] if holds else stmt.body[1:]), *rest))
            return
        before, terms = self.variables, self.terms
        sides, ends = [], []
        for side in (stmt.body[:1], stmt.body[1:]):
            self.variables, self.terms = copies(before), []
            end: Returned | _Left | None = None
            try:
                self.run((*side, *rest))
            except (Returned, _Left) as left:
                end = left
            sides.append((self.variables, self.total()))
            ends.append(end)
        (yes, more), (no, less) = sides
        self.variables, self.terms = before, terms
        if not (known(more, less) and more == less):
            self.terms.append(where(holds, more, less))
        for name in dict.fromkeys((*yes, *no)):
            a, b = yes.get(name, before.get(name)), no.get(name, before.get(name))
            if a is not b:
                self.variables[name] = _merged(holds, a, b)
        self._end(holds, ends, stmt)

    def _end(self, holds: Tensor, ends: Sequence[Any], stmt: Stmt) -> None:
        """Leave the loop or the function that both sides of a branch on a parameter have left, each with what follows
        it."""
        if all(isinstance(end, Returned) for end in ends):
            raise Returned(where(holds, *(end.value for end in ends)))
        if any(isinstance(end, Returned) for end in ends) or not (
            self.only_turn or all(end is None or end.again for end in ends)
        ):
            raise RefusedError("a branch on a parameter leaves a loop or a function", stmt.value)

    def _act(self, stmt: Stmt) -> None:
        match stmt.name:
            case "FnReject" | "FnFatalError":
                self.add(-np.inf)
            case "FnCheck":
                self._check(some(stmt.constraint), stmt)
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
            raise StaticGradError(
                f"stan: {stmt.subject}: expected {constraint.name.lower()} bound {bound}, actual {value}"
            )


def assigned(stmt: Stmt) -> Iterable[str]:
    """The names of all variables that a statement declares or assigns."""
    if stmt.kind in (Act.DECLARE, Act.ASSIGN):
        yield stmt.name
    for inner in stmt.body:
        yield from assigned(inner)


def _merged(holds: Tensor, a: Any, b: Any) -> Any:
    """The value of a variable after a branch on a parameter."""
    if isinstance(a, Unavailable) or isinstance(b, Unavailable):
        return a if isinstance(a, Unavailable) else b
    if a is None or b is None or isinstance(a, str):
        return b if a is None else a
    if isinstance(a, Slice):
        return Slice(_merged(holds, a.box, b.box), a.axis, a.before)
    if isinstance(a, LaneValue) or isinstance(b, LaneValue):
        raise RefusedError("a branch on a parameter assigns what differs between turns")
    if not isinstance(a, StanArray):
        return a if known(a, b) and a == b else where(holds, a, b)
    if a.state is b.state or (known(a.whole(), b.whole()) and np.array_equal(a.whole(), b.whole(), equal_nan=True)):
        return a
    return StanArray(a.shape, a.integer, where(holds, a.whole(), b.whole()))
