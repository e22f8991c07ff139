"""Drawn programs that repeat themselves: a piece of some ops, turn by turn, on operands of each kind that a loop reads.

A turn reads values of its own, of turns before, what is the same for all, slices of a feed that walk along it in either
direction, and constants of its own. Some turns are not like the others: another op, operand or constant, an operand
from another turn, a type that differs. A draw's derivative repeats itself as well, in the opposite order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

import staticgrad as sg

UNARY: tuple[Callable[[sg.Tensor], sg.Tensor], ...] = (
    sg.tanh, sg.nn.sigmoid, sg.sin, sg.nn.softplus, lambda x: x * 0.5, lambda x: sg.abs(x) + 0.25, sg.atan,
)  # fmt: skip
BINARY: tuple[Callable[[sg.Tensor, sg.Tensor], sg.Tensor], ...] = (
    lambda x, y: x + 0.5 * y, lambda x, y: x * sg.tanh(y), sg.maximum, lambda x, y: (x - y) * 0.5,
    lambda x, y: sg.where(x > y, x * 0.5, y),
)  # fmt: skip
WHOLE_UNARY: tuple[Callable[[sg.Tensor], sg.Tensor], ...] = (
    lambda x: x * 3, lambda x: -x, sg.abs, lambda x: x + 1, lambda x: sg.where(x > 0, x, 2 - x),
)  # fmt: skip
WHOLE_BINARY: tuple[Callable[[sg.Tensor, sg.Tensor], sg.Tensor], ...] = (
    lambda x, y: x + y, lambda x, y: x * y, sg.maximum, lambda x, y: sg.where(sg.logical_or(x > y, y == 0), x, y),
)  # fmt: skip


@dataclass
class Repeats:
    """A program, its feeds, and how many turns it was drawn with."""

    graph: sg.Graph
    fetches: list[sg.Tensor]
    feeds: list[sg.Tensor]
    arrays: list[np.ndarray]
    turns: int


def repeats(seed: int, dtype: np.dtype = sg.float64) -> Repeats:
    """The program of a seed; one of integers has no derivative."""
    draw = np.random.default_rng(seed)
    whole = np.dtype(dtype).kind in "iu"
    turns, ops = int(draw.integers(8, 30)), int(draw.integers(2, 9))
    shape = ((), (3,), (2, 2))[int(draw.integers(3))]
    first = [_Op.drawn(draw, ops, whole) for _ in range(ops)]
    odd = {int(draw.integers(turns)): int(draw.integers(ops)) for _ in range(int(draw.integers(3)))}
    graph = sg.Graph()
    with graph:
        start = sg.placeholder(shape, dtype, name="start")
        rows = sg.placeholder((turns, *shape), dtype, name="rows")
        values: list[sg.Tensor] = [
            start,
            *(start * (k + 1 if whole else 0.1 * k + 0.1) for k in range(int(draw.integers(1, 4)))),
        ]
        fixed = [sg.abs(start) if whole else sg.tanh(start), values[-1] + 1]
        last: list[list[sg.Tensor]] = [values[-3:]]
        for turn in range(turns):
            new: list[sg.Tensor] = []
            for number, op in enumerate(first):
                drawn = _Op.drawn(draw, ops, whole) if odd.get(turn) == number else op
                new.append(drawn.declared(turn, turns, new, last, fixed, rows, draw))
            last.append(new)
        kind = int(draw.integers(4))
        if kind == 0:
            result = last[-1][-1]
        elif kind == 1:
            result = sg.stack([values[-1] for values in last[1:]])
        elif kind == 2:
            result = last[1][0]
            for values in last[2:]:
                result = result + values[-1]
        else:
            result = last[-1][-1] * last[len(last) // 2][0] + last[1][-1]
        loss = sg.sum(result * result)
        gradients = [] if whole else sg.gradients(loss, [start, rows], unconnected_gradients="zero")
    arrays = [draw.normal(size=shape), draw.normal(size=(turns, *shape))]
    arrays = [np.rint(a * 4) if whole else a for a in arrays]
    return Repeats(graph, [result, loss, *gradients], [start, rows], arrays, turns)


@dataclass
class _Op:
    """One op of a turn: which it is, and what each of its operands is."""

    function: Callable[..., sg.Tensor]
    operands: list[tuple[str, int, int]]

    @staticmethod
    def drawn(draw: np.random.Generator, ops: int, whole: bool) -> _Op:
        binary = bool(draw.integers(2))
        tables = (WHOLE_UNARY, WHOLE_BINARY) if whole else (UNARY, BINARY)
        table: Sequence[Callable[..., sg.Tensor]] = tables[binary]
        kinds = ("new", "new", "before", "before", "fixed", "row", "back", "own", "constant", "mirror")
        operands = [
            (str(draw.choice(kinds)), int(draw.integers(ops)), int(draw.integers(1, 4))) for _ in range(1 + binary)
        ]
        return _Op(table[int(draw.integers(len(table)))], operands)

    def declared(
        self, turn: int, turns: int, new: list[sg.Tensor], last: list[list[sg.Tensor]], fixed: list[sg.Tensor],
        rows: sg.Tensor, draw: np.random.Generator,
    ) -> sg.Tensor:  # fmt: skip
        found = []
        for kind, number, back in self.operands:
            before = last[max(0, len(last) - back)]
            if kind == "new" and new:
                found.append(new[number % len(new)])
            elif kind == "row":
                found.append(rows[turn])
                if number % 2:  # turns after this one may read it
                    new.append(found[-1])
            elif kind == "back":
                found.append(rows[turns - 1 - turn])
            elif kind == "fixed":
                found.append(fixed[number % len(fixed)])
            elif kind == "own":  # a constant of this turn
                x = before[number % len(before)]
                found.append(x * (turn % 5 if x.dtype.kind in "iu" else float(0.1 + 0.01 * turn)))
            elif kind == "constant":
                x = before[number % len(before)]
                found.append(x + (7 if x.dtype.kind in "iu" else 0.125))
            elif kind == "mirror":  # of the opposite turn, if that has been; as a backward reads
                there = last[max(0, min(len(last) - 1, turns - turn))]
                found.append(there[number % len(there)])
            else:
                found.append(before[number % len(before)])
        return self.function(*found)
