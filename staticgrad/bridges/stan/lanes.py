"""Loops whose turns are independent, declared for all turns at once.

The body is run once. What a turn reads of its own becomes a *lane*: the number of the turn and what follows from it and
from data are known for each turn (``LaneValue``); elements of arrays at such indices are gathered for all turns. Then
what was declared is batched, as ``sg.vmap`` does. Where turns differ in a branch, a size or a category, they are split
into groups (``Split``); in a branch within a loop of the body both sides are run and selected from. What turns assign to
arrays around the loop is written there in the end.

A loop is run turn by turn if ``axes_of`` finds that a turn reads what another one assigns.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from staticgrad.base.errors import StaticGradError
from staticgrad.bridges.stan.boxes import Box
from staticgrad.bridges.stan.form import Act, Expr, Kind, Stmt, expressions, statements, within
from staticgrad.bridges.stan.values import Value, known, number, real, reshape, shape, tensor
from staticgrad.compiler.autodiff.batching import Examples
from staticgrad.graph.graph import Graph, Tensor, around, get_default_graph
from staticgrad.graph.optable import FUNCTIONS as o

FEWEST_TURNS = 6  # of a loop that is batched: fewer make a small graph when they are unrolled
MOST_GROUPS = 12  # of turns that differ, beside one for every eight turns
ASKS_FOR_TERMS = ("target", "FnTarget", "get_lp")


class Split(Exception):
    """Turns have to be declared in several groups: those whose ``keys`` are equal."""

    def __init__(self, keys: Sequence[Hashable]) -> None:
        self.keys = keys


class LaneValue:
    """What is known for each turn, along the first axis."""

    def __init__(self, data: Any) -> None:
        self.data = data

    @property
    def uniform(self) -> bool:
        return bool(np.all(self.data == self.data[:1]))

    def split(self) -> Split:
        return Split([each.tobytes() for each in np.ascontiguousarray(self.data)])


class Slice:
    """What one turn assigns to an array around the loop: that array's slice at the turn's number along ``axis``."""

    def __init__(self, box: Box, axis: int) -> None:
        self.box, self.axis = box, axis

    def index(self, index: Sequence[Any]) -> list[Any]:
        return [each for axis, each in enumerate(index) if axis != self.axis]


class Lanes:
    """The turns of a loop that are declared at once.

    Attributes:
        turns: their numbers.
        base: the graph around.
        examples: what is declared of one turn.
    """

    def __init__(self, name: str, turns: Any) -> None:
        self.name, self.turns = name, turns
        self.base: Graph = get_default_graph()
        self.examples = Examples(self.base, len(turns))
        self.depth = 0  # loops inside of the body that are being run
        self._tensors: dict[int, tuple[LaneValue, Tensor]] = {}

    def tensor(self, value: LaneValue) -> Tensor:
        """A known value of one turn, as a tensor."""
        if id(value) not in self._tensors:
            with around(self.base):
                all_turns = tensor(value.data)
            self._tensors[id(value)] = value, self.examples.one(all_turns)
        return self._tensors[id(value)][1]

    def known(self, scope: Any, expr: Expr) -> LaneValue | None:
        """The value of an expression by turn, if it follows from data and the number of the turn alone."""
        names = _free(expr)
        if names is None:
            return None
        varying = []
        for name in names:
            found = scope.variables.get(name)
            if isinstance(found, LaneValue):
                varying.append((name, found))
            elif isinstance(found, Tensor | Slice) or (isinstance(found, Box) and not found.known):
                return None
            elif found is None and name not in scope.own:
                return None
        if not varying:
            return None
        if expr.kind is Kind.NAME:
            return varying[0][1]
        plain = scope.plain({name: scope.variables.get(name) for name in names if name in scope.variables})
        values = []
        for turn in range(len(self.turns)):
            for name, value in varying:
                each = value.data[turn]
                plain.variables[name] = Box(each.shape, each.dtype.kind in "iu", each) if np.ndim(each) else number(each)
            values.append(plain.value(expr))
        if not known(*values):
            return None
        if len({shape(value) for value in values}) > 1:
            raise Split([shape(value) for value in values])
        return LaneValue(np.stack([np.asarray(value) for value in values]))

    def gathered(self, box: Box, indices: Sequence[Sequence[Any]]) -> Tensor:
        """The elements of an array of the graph around at an index for each turn."""
        at = [np.asarray(box.flat(index)) for index in indices]
        if len({each.shape for each in at}) > 1:
            raise Split([each.shape for each in at])
        if not all(isinstance(piece, np.ndarray | float | int) or self.base.holds(piece) for piece in box.pieces()):
            raise Split([each.tobytes() for each in at])
        places = np.stack(at)
        with around(self.base):
            found = tensor(reshape(box.join(places.reshape(-1)), places.shape))
        return self.examples.one(found)


def _free(expr: Expr) -> frozenset[str] | None:
    """The variables of an expression; None if it reads the log density."""
    found = _FREE.get(id(expr))
    if found is None or found[0] is not expr:
        parts = list(within(expr))
        reads = any(part.kind is Kind.CALL and part.name in ASKS_FOR_TERMS for part in parts)
        names = None if reads else frozenset(part.name for part in parts if part.kind is Kind.NAME)
        found = _FREE[id(expr)] = expr, names
        if len(_FREE) > 100_000:
            _FREE.clear()
    return found[1]


_FREE: dict[int, tuple[Expr, frozenset[str] | None]] = {}


# -- which loops ------------------------------------------------------------------------------------------------------


def axes_of(loop: Stmt, variables: Mapping[str, Any]) -> dict[str, int | None] | None:
    """For each variable around a loop that its turns assign, the axis along which each turn has its own slice, or None
    for a number to which turns add. None if turns depend on each other, or nothing depends on parameters."""
    body = [stmt for inner in loop.body for stmt in statements(inner)]
    if any(stmt.kind in (Act.RETURN, Act.UNSUPPORTED, Act.WHILE) for stmt in body):
        return None
    exprs = [expr for stmt in body for expr in expressions(stmt)]
    if all(expr.data for expr in exprs if expr.kind is not Kind.CALL or not expr.name.startswith("Index")):
        return None
    own = {stmt.name for stmt in body if stmt.kind is Act.DECLARE}
    found: dict[str, int | None] = {}
    sums: list[Expr] = []
    for stmt in body:
        if stmt.kind is not Act.ASSIGN or stmt.name in own:
            continue
        axis = _axis(stmt.args, loop.name) if stmt.args else None
        if stmt.args and axis is None:
            return None
        if stmt.name in found and found[stmt.name] != axis:
            return None
        found[stmt.name] = axis
        if not stmt.args:
            value = stmt.value
            assert value is not None
            if value.kind is not Kind.CALL or value.name != "Plus__" or not _is_name(value.args[0], stmt.name):
                return None
            if isinstance(variables.get(stmt.name), Box) or _reads_name(value.args[1], stmt.name):
                return None
            sums.append(value.args[0])
        else:
            box = variables.get(stmt.name)
            if not isinstance(box, Box) or box.integer:
                return None
    for expr in exprs:
        if not all(_fits(*read, found, loop.name, sums) for read in _reads(expr)):
            return None
    return found


def _is_name(expr: Expr, name: str) -> bool:
    return expr.kind is Kind.NAME and expr.name == name


def _reads_name(expr: Expr, name: str) -> bool:
    return any(_is_name(part, name) for part in within(expr))


def _axis(index: Sequence[Expr], name: str) -> int | None:
    """The axis of an index that is the loop's variable."""
    for axis, each in enumerate(index):
        if each.name == "IndexSingle" and _is_name(each.args[0], name):
            return axis
    return None


def _reads(expr: Expr) -> Iterator[tuple[Expr, Sequence[Expr]]]:
    """Each variable that an expression reads, with the index at which it does."""
    if expr.kind is Kind.NAME:
        yield expr, ()
        return
    rest = expr.args
    if expr.kind is Kind.INDEXED and expr.args[0].kind is Kind.NAME:
        yield expr.args[0], expr.args[1:]
        rest = expr.args[1:]
    for arg in rest:
        yield from _reads(arg)


def _fits(read: Expr, index: Sequence[Expr], assigned: Mapping[str, int | None], name: str, sums: Sequence[Expr]) -> bool:
    if read.name not in assigned or any(read is each for each in sums):
        return True
    axis = assigned[read.name]
    return axis is not None and len(index) > axis and _axis(index, name) == axis


# -- running them -----------------------------------------------------------------------------------------------------


def run(scope: Any, loop: Stmt, turns: Any, axes: Mapping[str, int | None]) -> None:
    """Run the turns of a loop at once, in groups where they differ; by themselves where that cannot be."""
    waiting, left = [turns], MOST_GROUPS + len(turns) // 8
    while waiting:
        group = waiting.pop()
        if len(group) < FEWEST_TURNS or left <= 0:
            scope.turns(loop, group)
            continue
        left -= 1
        try:
            _together(scope, loop, group, axes)
        except Split as split:
            keys = list(split.keys)
            groups = [group[[key == mine for mine in keys]] for key in dict.fromkeys(keys)]
            if len(groups) == 1 or len(groups) > left + 1:
                scope.turns(loop, group)
            else:
                waiting += groups
        except StaticGradError:  # also an index out of range in a branch that no turn takes
            scope.turns(loop, group)


def _together(scope: Any, loop: Stmt, turns: Any, axes: Mapping[str, int | None]) -> None:
    for name in {part.name for stmt in statements(loop) for expr in expressions(stmt) for part in within(expr)}:
        if name not in axes and isinstance(box := scope.variables.get(name), Box):
            box.whole()  # joined in the graph around
    lanes = Lanes(loop.name, turns)
    with around(lanes.base):
        starts = {name: _start(lanes, scope.variables[name], axis) for name, axis in axes.items() if axis is not None}
    with lanes.examples.trace:
        inner = scope.inside(lanes)
        inner.variables[loop.name] = LaneValue(np.asarray(turns))
        inner.variables |= {name: Slice(start, axes[name] or 0) for name, start in starts.items()}
        inner.variables |= {name: 0.0 for name, axis in axes.items() if axis is None}
        inner.run(loop.body)
        results: dict[str, Value] = {"": inner.total()}
        for name, axis in axes.items():
            found = inner.variables[name]
            results[name] = found.box.whole() if axis is not None else found
        tensors = {name: value for name, value in results.items() if isinstance(value, Tensor)}
    made = dict(zip(tensors, lanes.examples.all(list(tensors.values())), strict=True))
    with around(lanes.base):
        count = len(turns)
        for name, value in results.items():
            axis = axes.get(name)
            if name == "" or axis is None:
                total = o.sum(made[name], axis=0) if name in made else value * count
                if name == "":
                    scope.add(total)
                else:
                    scope.variables[name] = scope.variables[name] + total
                continue
            if name in made:
                value = o.moveaxis(made[name], 0, axis) if axis else made[name]
            else:
                value = np.broadcast_to(np.expand_dims(value, axis), (*value.shape[:axis], count, *value.shape[axis:]))
            scope.variables[name].write([*[slice(None)] * axis, _places(turns)], value)


def _places(turns: Any) -> Any:
    first = int(turns[0]) - 1
    return slice(first, first + len(turns)) if np.array_equal(turns, turns[0] + np.arange(len(turns))) else turns - 1


def _start(lanes: Lanes, box: Box, axis: int) -> Box:
    """What one turn's slice holds before the turn."""
    rest = (*box.shape[:axis], *box.shape[axis + 1 :])
    whole = box.read([*[slice(None)] * axis, _places(lanes.turns)])
    if known(whole) and np.all(np.isnan(whole)):
        return Box(rest)
    moved = np.moveaxis(whole, axis, 0) if known(whole) else o.moveaxis(whole, axis, 0)
    if known(moved) and np.array_equal(moved, np.broadcast_to(moved[:1], moved.shape), equal_nan=True):
        return Box(rest, False, real(moved[0]))
    return Box(rest, False, lanes.examples.one(tensor(moved)))
