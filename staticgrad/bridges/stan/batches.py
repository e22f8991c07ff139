"""Loops whose turns are independent, declared for all turns at once.

The body is run once. What a turn reads of its own becomes a *lane*: the number of the turn and what follows from it and
from data are known for each turn (``LaneValue``); elements of arrays at such indices are gathered for all turns. Then
what was declared is batched, as ``sg.vmap`` does. Where turns differ in a branch, a size or a category, they are split
into groups (``TurnsDiffer``); in a branch within a loop of the body both sides are run and selected from. What turns
assign to arrays around the loop is written there in the end.

Of posteriordb's models, gpcm_latent_reg_irt has 223 nodes so, 88,073 if its loop is unrolled, 112,571 without groups;
radon_county_intercept takes 42 µs a gradient, 223 µs as a loop of the program. Elements of known arrays are looked up
for all turns at once (``places``): turn by turn ldaK5 takes thirty times as long to convert.

A loop is run turn by turn if ``loops`` finds that a turn reads what another one assigns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from staticgrad.base.errors import StaticGradError
from staticgrad.bridges.stan.elements import StanArray, boxed
from staticgrad.bridges.stan.form import Expr, ExprKind, Stmt
from staticgrad.bridges.stan.values import Value, known, m, number, real, reshape, shape, tensor
from staticgrad.compiler.autodiff.batching import Examples
from staticgrad.graph.graph import Graph, Tensor, around, get_default_graph
from staticgrad.graph.optable import FUNCTIONS as o

SUM, OWN = -1, -2  # in the place of an axis
MOST_GROUPS = 12  # of turns that differ, beside one for every eight turns


class TurnsDiffer(Exception):
    """Turns have to be declared in several groups: those whose ``keys`` are equal."""

    def __init__(self, keys: Sequence[Hashable]) -> None:
        self.keys = keys


class LaneValue:
    """A known value for each turn, along the first axis."""

    def __init__(self, data: Any) -> None:
        self.data = data

    @property
    def uniform(self) -> bool:
        """True if it is the same for all turns."""
        return bool(np.all(self.data == self.data[:1]))

    @property
    def first(self) -> Value:
        """The value of the first turn."""
        return number(self.data[0])

    def split(self) -> TurnsDiffer:
        return TurnsDiffer([each.tobytes() for each in np.ascontiguousarray(self.data)])


class Slice:
    """The part of an array around the loop that one turn assigns: the slice at the turn's number along ``axis``."""

    def __init__(self, box: StanArray, axis: int, before: Sequence[StanArray] = ()) -> None:
        self.box, self.axis = box, axis
        self.before = before  # the slices of earlier turns, from the last one on

    def copy(self) -> Slice:
        return Slice(self.box.copy(), self.axis, self.before)

    def part(self, index: Sequence[tuple[str, Any]], turns: Any) -> tuple[StanArray, list[tuple[str, Any]]]:
        """The slice that an index is of, and the rest of the index."""
        (place,) = index[self.axis][1]
        lag = int(np.max(turns - _by_turn(place)))  # found to be constant by ``loops``
        rest = [each for axis, each in enumerate(index) if axis != self.axis]
        return (self.before[lag - 1] if lag else self.box), rest


class BatchedTurns:
    """The turns of a loop that are declared at once.

    Attributes:
        turns: their numbers.
        base: the graph around.
        examples: what is declared of one turn.
    """

    def __init__(self, name: str, turns: Any, base: Graph | None = None, rows: Sequence[Tensor] | None = None) -> None:
        self.name, self.turns = name, turns
        self.base = get_default_graph() if base is None else base
        self.examples = Examples(self.base, len(turns))
        self.rows = None if rows is None else iter(rows)  # of the inputs, where they are known already
        self.inputs: list[Tensor] = []
        self.depth = 0  # loops inside of the body that are being run
        self._tensors: dict[int, tuple[LaneValue, Tensor]] = {}

    def tensor(self, value: LaneValue) -> Tensor:
        """A known value of one turn, as a tensor."""
        if id(value) not in self._tensors:
            self._tensors[id(value)] = value, self.one(lambda: tensor(value.data))
        return self._tensors[id(value)][1]

    def one(self, made: Callable[[], Tensor]) -> Tensor:
        """One turn's row of a tensor of the graph around."""
        if self.rows is not None:
            return next(self.rows)
        with around(self.base):
            self.inputs.append(made())
        return self.examples.one(self.inputs[-1])

    def lane_of(self, x: Any) -> LaneValue | None:
        """The known value that a tensor of one turn stands for, if it stands for one."""
        return next((value for value, made in self._tensors.values() if made is x), None)

    def known(self, scope: Any, expr: Expr) -> LaneValue | None:
        """The value of an expression by turn, if it follows from data and the number of the turn alone."""
        names = expr.reads
        varying = []
        for name in names:
            found = scope.variables.get(name)
            if isinstance(found, LaneValue):
                varying.append((name, found))
            elif (
                isinstance(found, Tensor | Slice)
                or (isinstance(found, StanArray) and not found.known)
                or (found is None and name not in scope.own)
            ):
                return None
        if not varying:
            return None
        if expr.kind is ExprKind.NAME:
            return varying[0][1]
        if (quick := self._elements(scope, expr)) is not None:
            return quick
        plain = scope.plain({name: scope.variables.get(name) for name in names if name in scope.variables})
        values = []
        for turn in range(len(self.turns)):
            plain.variables.update((name, boxed(value.data[turn])) for name, value in varying)
            values.append(plain.value(expr))
        if not known(*values):
            return None
        if len({shape(value) for value in values}) > 1:
            raise TurnsDiffer([shape(value) for value in values])
        return LaneValue(np.stack([np.asarray(value) for value in values]))

    def _elements(self, scope: Any, expr: Expr) -> LaneValue | None:
        """The value by turn of an element of a known array, all turns at once; None of any other expression."""
        if expr.kind is not ExprKind.INDEXED or expr.args[0].kind is not ExprKind.NAME:
            return None
        box = scope.variables[expr.args[0].name]
        if not isinstance(box, StanArray) or not all(each.name == "IndexSingle" for each in expr.args[1:]):
            return None
        index = []
        for each in expr.args[1:]:
            found = self.known(scope, each.args[0])
            index.append(scope.known(each.args[0], "an index") if found is None else found)
        places = self.places(box.shape, [("IndexSingle", [each]) for each in index])
        return None if places is None else LaneValue(np.reshape(box.whole(), (-1,))[places])

    def places(self, sizes: Sequence[int], index: Sequence[tuple[str, Sequence[Any]]]) -> Any:
        """The row-major numbers of the elements at an index that is a number for each of the first axes, by turn; None
        of any other index, and of one out of range."""
        if not all(kind == "IndexSingle" and np.ndim(_by_turn(args[0])) < 2 for kind, args in index):
            return None
        at = np.zeros(len(self.turns), np.int64)
        for (_, args), count in zip(index, sizes):
            place = np.asarray(_by_turn(args[0]))
            if np.any(place < 1) or np.any(place > count):
                return None
            at = at * count + place - 1
        rest = tuple(sizes[len(index) :])
        count = int(np.prod(rest, dtype=np.int64))
        return at if not rest else at.reshape(-1, *(1,) * len(rest)) * count + np.arange(count).reshape(rest)

    def gathered(self, box: StanArray, index: Sequence[tuple[str, Sequence[Any]]], within: Any) -> Tensor:
        """The elements of an array of the graph around at an index for each turn. ``within`` checks the index of a
        turn."""
        places = self.places(box.shape, index)
        if places is None:
            turns = range(len(self.turns))
            at = [
                np.asarray(box.flat(within([(k, [_in_turn(a, turn) for a in args]) for k, args in index])))
                for turn in turns
            ]
            if len({each.shape for each in at}) > 1:
                raise TurnsDiffer([each.shape for each in at])
            places = np.stack(at)
        if not all(isinstance(piece, np.ndarray | float | int) or self.base.holds(piece) for piece in box.pieces()):
            raise TurnsDiffer([each.tobytes() for each in places])
        return self.one(lambda: tensor(reshape(box.join(places.reshape(-1)), places.shape)))


def _by_turn(value: Any) -> Any:
    return value.data if isinstance(value, LaneValue) else value


def _in_turn(value: Any, turn: int) -> Any:
    return number(value.data[turn]) if isinstance(value, LaneValue) else value


# -- running them -----------------------------------------------------------------------------------------------------


def run(scope: Any, loop: Stmt, turns: Any, axes: Mapping[str, int], fewest: int) -> None:
    """Run the turns of a loop at once, in groups where they differ; by themselves where that cannot be, or where a
    group has less than ``fewest``."""
    scope.last_turn = turns[-1]
    waiting, left = [turns], MOST_GROUPS + len(turns) // 8
    while waiting:
        group = waiting.pop()
        if len(group) < fewest or left <= 0:
            scope.in_order(loop, group)
            continue
        left -= 1
        try:
            _together(scope, loop, group, axes)
        except TurnsDiffer as split:
            keys = list(split.keys)
            groups = [group[[key == mine for mine in keys]] for key in dict.fromkeys(keys)]
            if len(groups) == 1 or len(groups) > left + 1:
                scope.in_order(loop, group)
            else:  # the group of the last turn is run last: what it assigns stays
                last = next(k for k, each in enumerate(groups) if each[-1] == group[-1])
                if group[-1] == scope.last_turn:
                    waiting.insert(0, groups.pop(last))
                waiting += groups
        except (StaticGradError, TypeError, ValueError):  # a size that turns differ in, an index of a branch not taken
            scope.in_order(loop, group)


def _together(scope: Any, loop: Stmt, turns: Any, axes: Mapping[str, int]) -> None:
    lanes = BatchedTurns(loop.name, turns)
    starts = {name: start_of(lanes, scope.variables.get(name), axis) for name, axis in axes.items()}
    with lanes.examples.trace:
        inner = scope.inside(lanes)
        inner.variables[loop.name] = LaneValue(np.asarray(turns))
        for name, start in starts.items():
            inner.variables.pop(name, None)
            if start is not None:
                inner.variables[name] = start
        inner.run(loop.body)
        results: dict[str, Value] = {"": inner.total()}
        places: dict[str, Any] = {}
        for name in axes:
            value = inner.variables.get(name)
            if isinstance(value, Slice):
                value = value.box.whole()
            elif isinstance(value, StanArray):
                places[name], value = value.assigned()
            if value is not None:
                results[name] = value
        tensors = {name: value for name, value in results.items() if isinstance(value, Tensor)}
    made = dict(zip(tensors, lanes.examples.all(list(tensors.values())), strict=True))
    with around(lanes.base):
        for name, value in results.items():
            by_turn = made[name] if name in made else _every(value, len(turns))
            if name == "":
                scope.add(_total(by_turn))
            elif axes[name] >= 0:
                axis = axes[name]
                moved = m.moveaxis(by_turn, 0, axis)
                scope.variables[name].write([*[slice(None)] * axis, places_of(turns)], moved)
            elif axes[name] == SUM:
                scope.variables[name] = scope.variables[name] + _total(by_turn)
            elif turns[-1] == scope.last_turn and name in places:
                scope.variables[name].put(places[name], by_turn[-1])
            elif turns[-1] == scope.last_turn:
                scope.variables[name] = by_turn[-1] if not known(by_turn) else number(np.asarray(by_turn)[-1])


def _every(value: Any, count: int) -> Any:
    """A known value for each turn."""
    if isinstance(value, LaneValue):
        return value.data
    return np.broadcast_to(np.asarray(value), (count, *np.shape(value)))


def _total(by_turn: Value) -> Value:
    return number(np.sum(by_turn)) if known(by_turn) else o.sum(by_turn, axis=0)


def places_of(turns: Any) -> Any:
    first = int(turns[0]) - 1
    return slice(first, first + len(turns)) if np.array_equal(turns, turns[0] + np.arange(len(turns))) else turns - 1


def start_of(lanes: BatchedTurns, box: Any, axis: int) -> Any:
    """The value at the start of a turn of a variable that turns assign."""
    if axis == SUM:
        return 0 if isinstance(box, int) else 0.0
    if axis == OWN:
        return StanArray.unassigned(box.shape, box.integer) if isinstance(box, StanArray) else None
    rest = (*box.shape[:axis], *box.shape[axis + 1 :])
    whole = box.read([*[slice(None)] * axis, places_of(lanes.turns)])
    moved = m.moveaxis(whole, axis, 0)
    if known(moved) and np.array_equal(moved, np.broadcast_to(moved[:1], moved.shape), equal_nan=True):
        return Slice(StanArray(rest, False, real(moved[0])), axis)
    return Slice(StanArray(rest, False, lanes.one(lambda: tensor(moved))), axis)
