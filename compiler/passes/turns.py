"""Loops out of stretches that repeat: the nodes of a turn that go into the loop, and what kind of operand each reads.

Input: a graph's nodes in a row and stretches of it that repeat (``regions.repeats``). Output: a loop for each stretch
of which enough can be one, with what each operand is, in every turn the same kind:

    TurnValue    the value of the turn, or of one some turns before
    TurnRows     a tensor of its own for each turn, or one for all

Each tensor has a number, its code, so what turns read is compared as arrays. Nothing is written here.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.access import is_reshape
from staticgrad.compiler.regions import repeats
from staticgrad.compiler.regions.repeats import Repetition
from staticgrad.graph.graph import Node, Tensor
from staticgrad.ops.views.slicing import SLICE

MOST_CARRIES = 256
MOST_TURNS_BACK = 64  # from which a turn reads a value
MOST_SHIFTED_BYTES = 4096  # of a value that is carried through more than one turn, which costs a copy in each
MOST_STACKED_BYTES = 4096  # of a tensor that is copied to be a row
MOST_IRREGULAR = 4  # turns at each end that are left out since they read other places, but for those of turns before
INDEX_BITS = 16  # of the number of a node's output in the code of a tensor
LAST_INDEX = (1 << INDEX_BITS) - 1

Codes = NDArray[np.int64]  # of tensors: the place of the node, and the number of the output


@frozen
class TurnValue:
    """The value of node ``node`` of the turn that is ``back`` turns before."""

    node: int
    output: int
    back: int


@frozen
class TurnRows:
    """A tensor of its own for each turn, or one for all (``same``)."""

    codes: tuple[int, ...]

    @property
    def same(self) -> bool:
        return self.codes[0] == self.codes[-1] and len(set(self.codes)) == 1


Operand = TurnValue | TurnRows


def _rows(column: Codes) -> TurnRows:
    return TurnRows(tuple(column.tolist()))


@frozen(eq=False)
class TurnLoop:
    """A stretch that becomes a loop: the numbers of the nodes of a turn that are ``inside``, with their operands, and
    of those that are left ``before`` it. All others are left after it."""

    stretch: Repetition
    inside: dict[int, tuple[Operand, ...]]
    before: frozenset[int]

    def home(self, code: int) -> tuple[int, int, int] | None:
        """The turn, the node and the output of a tensor that the loop computes."""
        place = (code >> INDEX_BITS) - self.stretch.start
        if not 0 <= place < self.stretch.period * self.stretch.turns:
            return None
        turn, node = divmod(place, self.stretch.period)
        return (turn, node, code & LAST_INDEX) if node in self.inside else None

    def rows(self) -> list[TurnRows]:
        """The operands from other parts of the graph."""
        return list(dict.fromkeys(x for found in self.inside.values() for x in found if isinstance(x, TurnRows)))

    def carried(self) -> list[TurnValue]:
        """The values that a turn reads of those before: each from the last turn on to the one that is read."""
        back: dict[tuple[int, int], int] = {}
        for x in (x for found in self.inside.values() for x in found if isinstance(x, TurnValue) and x.back):
            back[x.node, x.output] = max(back.get((x.node, x.output), 0), x.back)
        return [TurnValue(*key, turns) for key, most in back.items() for turns in range(1, most + 1)]

    def initial(self) -> list[tuple[int, int]]:
        """The place and the output of each of ``carried`` before the first turn."""
        period = self.stretch.period
        return [(self.stretch.start + x.node - x.back * period, x.output) for x in self.carried()]


def loop_of(loops: Sequence[TurnLoop], code: int) -> TurnLoop | None:
    """The loop that computes a tensor, if one does."""
    return next((loop for loop in loops if loop.home(code) is not None), None)


class NumberedNodes:
    """The nodes of a graph, and a number for each tensor, its code: the node's place and the output."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self._places = {node: place for place, node in enumerate(nodes)}

    def code(self, x: Tensor) -> int:
        return (self._places[x.op] << INDEX_BITS) | x.index

    def tensor(self, code: int) -> Tensor:
        return self.nodes[code >> INDEX_BITS].outputs[code & LAST_INDEX]


class Matcher:
    """Finds what the operands of the nodes of a stretch are, turn by turn."""

    def __init__(self, graph: NumberedNodes, loops: Sequence[TurnLoop]) -> None:
        self.graph, self.loops = graph, loops

    def loop(self, stretch: Repetition) -> TurnLoop | None:
        """The loop of a stretch, or None if too little of it is one."""
        codes = [self._codes(stretch, node) for node in range(stretch.period)]
        first, last = self._irregular(stretch, codes)
        stretch = stretch.without(first, last)
        if stretch.turns < repeats.LEAST_TURNS:
            return None
        columns = [list(table[first : first + stretch.turns].T) for table in codes]
        operands = [[self._operand(stretch, column) for column in read] for read in columns]
        before, after = self._left(stretch, operands, columns)
        inside: dict[int, tuple[Operand, ...]] = {}
        for node, found in enumerate(operands):
            if node in before or node in after:
                continue
            read = list(found)
            for position, x in enumerate(found):
                if isinstance(x, TurnValue) and x.node in before:
                    read[position] = _rows(columns[node][position])
            inside[node] = tuple([x for x in read if x is not None])
        loop = TurnLoop(stretch, inside, frozenset(before))
        enough = len(inside) * (stretch.turns - 1) >= repeats.LEAST_REPEATED and len(loop.carried()) <= MOST_CARRIES
        return loop if enough else None

    def _codes(self, stretch: Repetition, node: int) -> Codes:
        """The codes of a node's operands: (turns, operands)."""
        turns = self.graph.nodes[stretch.start + node : stretch.end : stretch.period]
        table = [[self.graph.code(x) for x in turn.inputs] for turn in turns]
        return np.array(table, np.int64).reshape(len(turns), -1)

    def _irregular(self, stretch: Repetition, codes: Sequence[Codes]) -> tuple[int, int]:
        """The numbers of first and of last turns that read other places than those in the middle."""
        middle, inner = stretch.turns // 2, stretch.period << INDEX_BITS
        first, last = 0, stretch.turns
        for column in (column for table in codes for column in table.T):
            step = int(column[middle] - column[middle - 1])
            fits = np.diff(column) == step
            home = loop_of(self.loops, int(column[middle]))
            if home is not None and step:
                low, high = home.stretch.start << INDEX_BITS, home.stretch.end << INDEX_BITS
                inside = (column >= low) & (column < high)
                fits &= inside[1:] & inside[:-1]
            breaks = np.flatnonzero(~fits)
            early, late = breaks[breaks < middle], breaks[breaks >= middle]
            low, high = int(early[-1]) + 1 if len(early) else 0, int(late[0]) + 1 if len(late) else stretch.turns
            if step == inner or max(low, stretch.turns - high) <= MOST_IRREGULAR:
                first, last = max(first, low), min(last, high)
        return first, stretch.turns - last

    def _operand(self, stretch: Repetition, column: Codes) -> Operand | None:
        """The operand whose tensors are ``column``, turn by turn; None if a loop cannot read it."""
        start, inner = stretch.start << INDEX_BITS, stretch.period << INDEX_BITS
        if column[-1] < start:
            return None if np.any(column >= start) else _rows(column)
        if np.any(np.diff(column) != inner):
            return None
        place = (int(column[0]) >> INDEX_BITS) - stretch.start
        back = -(place // stretch.period)
        if back > MOST_TURNS_BACK:
            return None
        return TurnValue(place % stretch.period, int(column[0]) & LAST_INDEX, back)

    def _left(
        self, stretch: Repetition, operands: Sequence[Sequence[Operand | None]], columns: Sequence[Sequence[Codes]]
    ) -> tuple[set[int], set[int]]:
        """The nodes of a turn that stay before the loop, and after it."""
        before = {node for node in range(stretch.period) if self._differs(stretch, node)}
        after = {node for node, found in enumerate(operands) if not all(map(self._fits, found))}
        before -= after
        while True:
            more = set[int]()
            for node, found in enumerate(operands):
                if node in after:
                    continue
                inner = [
                    (x, column) for x, column in zip(found, columns[node], strict=True) if isinstance(x, TurnValue)
                ]
                if node in before:
                    leaves = any(x.node not in before for x, _ in inner)
                else:
                    leaves = not all(self._may_read(stretch, x, column, before, after) for x, column in inner)
                if leaves:
                    more.add(node)
            if not more:
                return before, after
            after |= more
            before -= more

    def _differs(self, stretch: Repetition, node: int) -> bool:
        """True if the attributes of a node are not the same in all turns."""
        turns = self.graph.nodes[stretch.start + node : stretch.end : stretch.period]
        attrs = turns[0].attrs
        return any(turn.attrs is not attrs and turn.attrs != attrs for turn in turns)

    def _fits(self, operand: Operand | None) -> bool:
        """True if an operand may be captured or a row."""
        if operand is None or isinstance(operand, TurnValue) or operand.same:
            return operand is not None
        tensors = [self.graph.tensor(code) for code in operand.codes]
        if any(x.type is not tensors[0].type and x.type != tensors[0].type for x in tensors):
            return False
        small = tensors[0].type.nbytes <= MOST_STACKED_BYTES
        return small or unit_slices(tensors) is not None or stacked_in(self.loops, operand.codes) is not None

    def _may_read(self, stretch: Repetition, x: TurnValue, column: Codes, before: set[int], after: set[int]) -> bool:
        """True if a node of the loop can read a value of a turn: a row if its node stays before the loop."""
        if x.node in before:
            return self._fits(_rows(column))
        return x.node not in after and (not x.back or self._may_carry(stretch, x))

    def _may_carry(self, stretch: Repetition, x: TurnValue) -> bool:
        """True if what stands where a value is before the first turn has its type."""
        type_ = self.graph.nodes[stretch.start + x.node].outputs[x.output].type
        if x.back > 1 and type_.nbytes > MOST_SHIFTED_BYTES:
            return False
        for back in range(1, x.back + 1):
            place = stretch.start + x.node - back * stretch.period
            outputs = self.graph.nodes[place].outputs if place >= 0 else ()
            if x.output >= len(outputs) or outputs[x.output].type != type_:
                return False
        return True


@frozen
class StackedValue:
    """Tensors that are the values of one node of a loop, from turn ``first`` on, ``step`` (1 or -1) turns apart."""

    loop: TurnLoop
    node: int
    output: int
    first: int
    step: int


def stacked_in(loops: Sequence[TurnLoop], codes: Sequence[int]) -> StackedValue | None:
    """The rows of a loop's results that these tensors are, if they are some."""
    for loop in loops:
        one, other = loop.home(codes[0]), loop.home(codes[1])
        if one is None or other is None or one[1:] != other[1:]:
            continue
        step = other[0] - one[0]
        last = one[0] + (len(codes) - 1) * step
        apart = (step * loop.stretch.period) << INDEX_BITS
        if abs(step) == 1 and 0 <= last < loop.stretch.turns and not np.any(np.diff(np.asarray(codes)) != apart):
            return StackedValue(loop, one[1], one[2], one[0], step)
    return None


@frozen
class UnitSlices:
    """Slices of a tensor ``x`` of one index each along axis 0, ``step`` apart, or reshapes of such; ``rest`` is what
    they take of other axes."""

    x: Tensor
    first: int
    step: int
    rest: tuple[slice, ...]


def unit_slices(tensors: Sequence[Tensor]) -> UnitSlices | None:
    """The slices that tensors are, if they can be cut at once."""
    nodes = [x.op.inputs[0].op if is_reshape(x.op) else x.op for x in tensors]
    x = nodes[0].inputs[0] if nodes[0].inputs else None
    if x is None or any(node.op is not SLICE or node.inputs[0] is not x for node in nodes):
        return None
    if any(y.shape != tensors[0].shape for y in tensors):
        return None
    first, starts = nodes[0].attrs, [node.attrs.starts[0] for node in nodes]
    others = [(node.attrs.starts[1:], node.attrs.stops[1:], node.attrs.steps) for node in nodes]
    step = starts[1] - starts[0]
    if nodes[0].outputs[0].shape[0] != 1 or min(first.steps) < 1 or any(other != others[0] for other in others):
        return None
    if step == 0 or any(b - a != step for a, b in itertools.pairwise(starts)):
        return None
    return UnitSlices(x, starts[0], step, tuple(map(slice, first.starts[1:], first.stops[1:], first.steps[1:])))


@frozen
class StackedPiece:
    """A part of a series, from number ``first`` on: one of each of ``parts`` in turn, ``length`` times."""

    first: int
    length: int
    parts: tuple[StackedValue, ...]

    @property
    def end(self) -> int:
        return self.first + self.length * len(self.parts)


@frozen
class RowSeries:
    """Tensors in a row, of which loops stack those of ``pieces``."""

    codes: tuple[int, ...]
    pieces: tuple[StackedPiece, ...]

    @property
    def parts(self) -> list[StackedValue]:
        return [part for piece in self.pieces for part in piece.parts]

    def gaps(self) -> list[tuple[int, ...]]:
        """The codes before each piece and after the last one, which are no rows of a loop's results."""
        ends = [0, *(piece.end for piece in self.pieces)]
        starts = [*(piece.first for piece in self.pieces), len(self.codes)]
        return [self.codes[end:start] for end, start in zip(ends, starts, strict=True)]

    @property
    def apart(self) -> list[int]:
        return [code for gap in self.gaps() for code in gap]


def series_of(loops: Sequence[TurnLoop], codes: Sequence[int], together: int) -> RowSeries | None:
    """The series that tensors are, where a turn of a loop stands for ``together`` pieces of the graph; None if no loop
    stacks some of them."""
    pieces, first = list[StackedPiece](), 0
    for home, group in itertools.groupby(loop_of(loops, code) for code in codes):
        end = first + len(list(group))
        piece = None if home is None else _piece(home, codes, first, end, together)
        if piece is not None:
            pieces.append(piece)
        first = end
    return RowSeries(tuple(codes), tuple(pieces)) if pieces else None


def _piece(loop: TurnLoop, codes: Sequence[int], first: int, end: int, together: int) -> StackedPiece | None:
    """The rows of a loop's results that tensors from number ``first`` on are, as far as they make whole turns."""
    for count in dict.fromkeys((1, together)):
        length = (end - first) // count
        if length >= repeats.LEAST_TURNS:
            stacked = [stacked_in([loop], codes[first + k : first + length * count : count]) for k in range(count)]
            parts = [part for part in stacked if part is not None]
            if len(parts) == count:
                return StackedPiece(first, length, tuple(parts))
    return None
