"""Reroll: equal pieces of an unrolled graph become the turns of a loop, so a program costs as much to compile as one.

    h0 -> [mul w0, add, tanh] -> h1 -> [mul w1, add, tanh] -> h2 -> …    =>    scan(h, w: mul, add, tanh)

A sequence of nodes that repeats (the same ops on operands of the same types, turn by turn) is found by
``regions.repeats``, in the declared part and in the backward. What a turn reads decides the rest:

    the value of the turn, or of one some turns before     a carry; of ``d`` turns before, ``d`` carries
    one tensor in all turns                                captured
    a tensor of its own in each turn                       a row: of what another loop has stacked, of a slice, or of
                                                           small tensors that are stacked for it

A node whose attributes differ from turn to turn stays as it is, before the loop if nothing in there makes its operands,
else after it, and so does what reads that. What is read elsewhere of a turn's values is a row of the loop's results.
First and last turns that do not fit are left out. Each op is done on the same operands as before, in each turn, so
values are the same; what a loop adds up may be added in another order (``sums``).

Left alone: graphs of few nodes, nodes with an effect, a body, a random draw or control edges, large values, sizes that
are open, and what would save less than half of the nodes; programs with a budget of memory, which no plan can meet
inside of loops.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from staticgrad.base import phases
from staticgrad.base.errors import at_source
from staticgrad.base.frozen import frozen
from staticgrad.compiler.passes import turns
from staticgrad.compiler.passes.pads import plus_zero
from staticgrad.compiler.passes.turns import (
    Matcher,
    NumberedNodes,
    Operand,
    RowSeries,
    StackedPiece,
    StackedValue,
    TurnLoop,
    TurnRows,
    TurnValue,
    loop_of,
    series_of,
    unit_slices,
)
from staticgrad.compiler.regions import repeats
from staticgrad.compiler.regions.region import Region, awaited_in
from staticgrad.compiler.regions.repeats import repetitions
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.ops.control.bodies import Body, bodies_of
from staticgrad.ops.control.loops import SCAN, LoopAttributes
from staticgrad.ops.sources import CONSTANT
from staticgrad.ops.views.joining import STACK
from staticgrad.ops.views.slicing import PAD, PadAttributes

MOST_BYTES = 1 << 15  # of a value: rows of larger ones go through memory once more, which costs more than is saved
MOST_LEFT = 0.5  # of the nodes, else the graph stays as it is
NODES_OF_COPY = 4  # as much as it costs to copy a small tensor to be a row
NODES_OF_ROW = 6  # as much as reading one row of a loop's results costs: a slice, a reshape and in most cases a copy
MOST_PADS = 8  # of one tensor's gradient in a turn
WIDTH = 48  # nodes of a turn: shorter ones are put together, as a turn costs about as much as ten small ops


def reroll(region: Region) -> Region:
    """Put loops where the graph repeats itself."""
    graph = NumberedNodes(region.graph.nodes)
    found = repetitions(_keys(region), repeats.LEAST_TURNS, repeats.LEAST_REPEATED)
    if not found:
        return region
    # One number for all: a backward then reads what a turn of the forward has stacked, whole turns apart.
    together = max(1, min(-(-WIDTH // max(s.period for s in found)), *(s.turns // repeats.LEAST_TURNS for s in found)))
    loops: list[TurnLoop] = []
    for stretch in found:
        loop = Matcher(graph, loops).loop(stretch.joined(together))
        if loop is not None:
            loops.append(loop)
    if not loops:
        return region
    rewriter = _RerolledRegion(region, graph, loops, together)
    if rewriter.left() > MOST_LEFT * len(region.graph.nodes):
        return region
    phases.count(phases.TEMPLATES, len(loops))
    return rewriter.region()


def _keys(region: Region) -> NDArray[np.int64]:
    """A number for each node: equal for nodes that may be the same one in two turns."""
    fixed = {x.op for x in region.feeds} | awaited_in(region)
    known: dict[object, int] = {}
    keys = []
    for place, node in enumerate(region.graph.nodes):
        if node in fixed or _stays(node):
            keys.append(-1 - place)
        else:
            types = tuple([y.type for y in node.outputs])
            keys.append(known.setdefault((node.op, types, len(node.inputs)), len(known)))
    return np.array(keys, np.int64)


def _stays(node: Node) -> bool:
    """True if a node is never put into a loop."""
    if node.op.effect or node.op.draws or node.control or node.epoch or bodies_of(node):
        return True
    if node.op.role in ("source", "store", "alias", "control", "effect") and node.op is not CONSTANT:
        return True
    if len(node.outputs) > turns.LAST_INDEX or not all(type(n) is int for y in node.outputs for n in y.type.shape):
        return True
    return any(y.type.nbytes > MOST_BYTES for y in node.outputs)


@frozen
class _PadSum:
    """A sum of pads whose windows lie along axis 0: those of each of ``series`` side by side, ``step`` apart, from one
    of ``lows`` on; and of ``base``, if there is another term. It is the sum of a pad of rows with gaps for each series:
    the gradient of a tensor of which each turn reads indices of its own. Each row is added to a zero, as it was."""

    series: tuple[RowSeries, ...]
    lows: tuple[int, ...]
    step: int
    base: Tensor | None
    zero: float  # around the windows
    nodes: tuple[Node, ...]  # that it stands for, the last sum first


class _Outside:
    """The nodes that are in no loop: those that stay, and those that read rows of loops' results as a whole.

    ``joined`` has the series that a node is the stack of, ``sums`` the sum that a node is the end of.
    """

    def __init__(self, region: Region, graph: NumberedNodes, loops: Sequence[TurnLoop], together: int) -> None:
        self.graph, self.loops, self.together = graph, loops, together
        self.starts = {loop.stretch.start: loop for loop in loops}
        self.users = Counter([*region.fetches, *(x for node in graph.nodes for x in node.inputs)])
        self.fixed = awaited_in(region)
        self.joined: dict[Node, RowSeries] = {}
        self.sums: dict[Node, _PadSum] = {}
        self.dropped: set[Node] = set()
        nodes = [item for item in self if isinstance(item, Node)]
        for node in nodes:
            if node.op is STACK and node.attrs.axis == 0 and self._may_go(node):
                series = self._series([graph.code(x) for x in node.inputs])
                if series is not None:
                    self.joined[node] = series
        passed = set[Node]()
        for node in reversed(nodes):
            if node.op.name == "add" and node not in passed:
                additions, pads, base = self._chain(node)
                passed.update(additions)
                found = self._pad_sum(additions, pads, base) if pads else None
                if found is not None:
                    self.sums[node] = found
                    self.dropped.update(found.nodes[1:])

    def __iter__(self) -> Iterator[Node | TurnLoop]:
        """Nodes and loops in the order in which they are written."""
        place = 0
        while place < len(self.graph.nodes):
            loop = self.starts.get(place)
            if loop is None:
                items: list[Node | TurnLoop] = [self.graph.nodes[place]]
                place += 1
            else:
                places = [loop.stretch.turn(number) for number in range(loop.stretch.turns)]
                after = [n for n in range(loop.stretch.period) if n not in loop.inside and n not in loop.before]
                items = [self.graph.nodes[turn[node]] for turn in places for node in sorted(loop.before)]
                items += [loop, *(self.graph.nodes[turn[node]] for turn in places for node in after)]
                place = loop.stretch.end
            yield from (item for item in items if item not in self.dropped)

    def inputs(self, node: Node) -> Sequence[Tensor]:
        """The tensors that a node reads one by one."""
        if node in self.joined:
            return [self.graph.tensor(code) for code in self.joined[node].apart]
        if node in self.sums:
            found = self.sums[node]
            apart = [self.graph.tensor(code) for series in found.series for code in series.apart]
            return apart if found.base is None else [*apart, found.base]
        return node.inputs

    def series(self) -> list[RowSeries]:
        return [*self.joined.values(), *(series for found in self.sums.values() for series in found.series)]

    def _series(self, codes: Sequence[int]) -> RowSeries | None:
        return series_of(self.loops, codes, self.together) if len(codes) >= repeats.LEAST_TURNS else None

    def _chain(self, node: Node) -> tuple[list[Node], list[Node], Tensor | None]:
        """The additions that a sum ends with, the last one first, the pads that they add, the first one first, and what
        these are added to, if it is no pad."""
        additions, pads = list[Node](), list[Node]()
        base: Tensor | None = node.outputs[0]
        while base is not None and base.op.op is node.op and (base.op is node or self.users[base] == 1):
            other, pad = sorted(base.op.inputs, key=self._is_lone_pad)
            if (
                self._is_inside(base)
                or not self._may_go(base.op)
                or not self._is_lone_pad(pad)
                or other.type != pad.type
            ):
                break
            additions.append(base.op)
            pads.append(pad.op)
            base = other
            if self._is_lone_pad(other):
                pads.append(other.op)
                base = None
        return additions, pads[::-1], base

    def _pad_sum(self, additions: Sequence[Node], pads: Sequence[Node], base: Tensor | None) -> _PadSum | None:
        """The sum of pads, if loops stack what they pad; of several in a turn each is a series of its own."""
        if any(pad.inputs[0].type != pads[0].inputs[0].type for pad in pads):
            return None
        lows = [pad.attrs.low[0] for pad in pads]
        for count in range(1, MOST_PADS + 1):
            steps = {b - a for a, b in zip(lows, lows[count:], strict=False)}
            if len(steps) == 1 and steps != {0}:
                codes = [self.graph.code(pad.inputs[0]) for pad in pads]
                found = [self._series(codes[k::count]) for k in range(count)]
                series = tuple([x for x in found if x is not None])
                if len(series) == count:
                    nodes = (*additions, *pads)
                    return _PadSum(series, tuple(lows[:count]), steps.pop(), base, pads[0].attrs.value, nodes)
        return None

    def _is_lone_pad(self, x: Tensor) -> bool:
        """True if ``x`` is an index along axis 0 between zeros, outside of loops, that is read once."""
        if x.op.op is not PAD or self.users[x] != 1 or self._is_inside(x) or not self._may_go(x.op):
            return False
        attrs, shape = x.op.attrs, x.op.inputs[0].shape
        plain = not any(attrs.interior) and attrs.value == 0 and not math.copysign(1, attrs.value) < 0
        return plain and bool(shape) and shape[0] == 1 and not any((*attrs.low[1:], *attrs.high[1:]))

    def _may_go(self, node: Node) -> bool:
        """True if another node may stand for a node: nothing but its values is asked for."""
        return node not in self.fixed and not node.control and not node.epoch

    def _is_inside(self, x: Tensor) -> bool:
        return loop_of(self.loops, self.graph.code(x)) is not None


class _RerolledRegion:
    """Makes the region with its loops."""

    def __init__(self, region: Region, graph: NumberedNodes, loops: Sequence[TurnLoop], together: int) -> None:
        self.old, self.graph, self.loops = region, graph, loops
        self.outside = _Outside(region, graph, loops, together)
        rows = [x for loop in loops for x in loop.rows() if not x.same]
        self.series = {x: series_of(loops, x.codes, together) for x in rows}
        self.read = self._read()
        known = [*self.outside.series(), *(found for found in self.series.values() if found is not None)]
        parts = [part for series in known for part in series.parts]
        self.handed = {(part.loop, part.node, part.output) for part in parts}
        self.nodes: dict[Node, Node] = {}
        self.tensors: dict[Tensor, Tensor] = {}
        self.stacks: dict[tuple[TurnLoop, int, int], Tensor] = {}  # by the loop, the node and its output
        self.reverse: dict[TurnLoop, bool] = {}  # whether it goes from the last row to the first

    def _read(self) -> set[Tensor]:
        """The tensors that are read one by one: by nodes outside of loops, and as rows that no loop has stacked."""
        read = set[Tensor](self.old.fetches)
        for item in self.outside:
            if isinstance(item, Node):
                read.update(self.outside.inputs(item))
                continue
            for x in item.rows():
                series = self.series.get(x)
                read.update(map(self.graph.tensor, x.codes if series is None else series.apart))
            read.update(self.graph.nodes[place].outputs[output] for place, output in item.initial())
        return read

    def left(self) -> int:
        """About how many nodes the new region has."""
        apart = sum(isinstance(item, Node) for item in self.outside)
        rows = NODES_OF_ROW * sum(loop_of(self.loops, self.graph.code(x)) is not None for x in self.read)
        stacked = [x for x, series in self.series.items() if series is None and not self._is_at_hand(x)]
        copies = NODES_OF_COPY * sum(len(x.codes) for x in stacked)
        return apart + rows + copies + sum(len(loop.inside) for loop in self.loops)

    def _is_at_hand(self, x: TurnRows) -> bool:
        """True if rows are cut from one tensor or constants, so that none is copied in a call."""
        tensors = [self.graph.tensor(code) for code in x.codes]
        return all(y.op.op is CONSTANT for y in tensors) or unit_slices(tensors) is not None

    def region(self) -> Region:
        graph = Graph()
        with graph, at_source(None) as declared:
            for item in self.outside:
                if isinstance(item, TurnLoop):
                    declared.move(self.graph.nodes[item.stretch.start].source)
                    self._write(graph, item)
                    continue
                declared.move(item.source)
                if item in self.outside.joined:
                    self.tensors[item.outputs[0]] = self._joined(self.outside.joined[item])
                elif item in self.outside.sums:
                    self.tensors[item.outputs[0]] = self._pad_sum(graph, self.outside.sums[item], item.outputs[0])
                else:
                    control = tuple([self.nodes[before] for before in item.control])
                    new = graph.clone(item, tuple(map(self._value, item.inputs)), control)
                    self.nodes[item] = new
                    self.tensors.update(zip(item.outputs, new.outputs, strict=True))
            fetches = tuple(map(self._value, self.old.fetches))
        feeds = tuple([self.tensors[x] for x in self.old.feeds])
        return Region(graph, feeds, fetches, tuple([self.nodes[node] for node in self.old.effects]))

    def _value(self, x: Tensor) -> Tensor:
        """The tensor that stands for another one: a row of a loop's results if it is computed there."""
        if x not in self.tensors:
            code = self.graph.code(x)
            loop = loop_of(self.loops, code)
            assert loop is not None
            home = loop.home(code)
            assert home is not None
            turn, node, output = home
            row = self._row(loop, turn)
            self.tensors[x] = o.reshape(self.stacks[loop, node, output][row : row + 1], x.shape)
        return self.tensors[x]

    def _row(self, loop: TurnLoop, turn: int) -> int:
        return loop.stretch.turns - 1 - turn if self.reverse[loop] else turn

    def _write(self, graph: Graph, loop: TurnLoop) -> None:
        """Declare a loop, and what it reads."""
        captured = [x for x in loop.rows() if x.same]
        rows = [x for x in loop.rows() if not x.same]
        self.reverse[loop] = self._goes_back(rows)
        initial = [self._value(self.graph.nodes[place].outputs[output]) for place, output in loop.initial()]
        sequences = [self._sequence(x, self.reverse[loop]) for x in rows]
        handed = [
            (node, y.index)
            for node in loop.inside
            for y in self.graph.nodes[loop.stretch.start + node].outputs
            if (loop, node, y.index) in self.handed or self._is_read(loop, node, y.index)
        ]
        body = self._body(loop, captured, rows, handed)
        attrs = LoopAttributes(body, None, len(initial), len(rows), loop.stretch.turns, self.reverse[loop])
        operands = [*initial, *sequences, *(self._value(self.graph.tensor(x.codes[0])) for x in captured)]
        results = graph.add(SCAN, operands, attrs).outputs[len(initial) :]
        self.stacks.update({(loop, *key): y for key, y in zip(handed, results, strict=True)})

    def _goes_back(self, rows: Sequence[TurnRows]) -> bool:
        """True if more of what a loop reads is stacked against the order of its turns than along it."""
        known = [series for series in map(self.series.__getitem__, rows) if series is not None]
        parts = [part for series in known for part in series.parts]
        return sum(-x.step if self.reverse[x.loop] else x.step for x in parts) < 0

    def _sequence(self, x: TurnRows, reverse: bool) -> Tensor:
        """The rows that a loop reads, in their order."""
        tensors = [self.graph.tensor(code) for code in x.codes]
        series, cut = self.series[x], unit_slices(tensors)
        upward = True
        if series is not None:
            return self._joined(series, reverse)
        if cut is not None:
            last = cut.first + cut.step * (len(tensors) - 1)
            rows = self._value(cut.x)[slice(min(cut.first, last), max(cut.first, last) + 1, abs(cut.step)), *cut.rest]
            rows, upward = o.reshape(rows, (len(tensors), *tensors[0].shape)), cut.step > 0
        elif all(y.op.op is CONSTANT for y in tensors):
            rows = o.constant(np.stack([y.op.attrs.value for y in tensors]))
        else:
            rows = o.stack(list(map(self._value, tensors)), axis=0)
        return rows if upward != reverse else rows[::-1]

    def _joined(self, series: RowSeries, reverse: bool = False) -> Tensor:
        """The tensors of a series as rows, in their order or the opposite one."""
        found: list[Tensor] = []
        gaps = series.gaps()
        for gap, piece in itertools.zip_longest(gaps, series.pieces):
            if gap:
                apart = [self._value(self.graph.tensor(code)) for code in gap]
                found.append(o.stack(apart[::-1] if reverse else apart, axis=0))
            if piece is not None:
                found.append(self._piece(piece, reverse))
        return o.concat(found[::-1] if reverse else found, axis=0) if len(found) > 1 else found[0]

    def _piece(self, piece: StackedPiece, reverse: bool) -> Tensor:
        parts = [self._part(part, piece.length, reverse) for part in piece.parts]
        if len(parts) == 1:
            return parts[0]
        rows = o.stack(parts[::-1] if reverse else parts, axis=1)
        return o.reshape(rows, (piece.length * len(parts), *rows.shape[2:]))

    def _part(self, part: StackedValue, length: int, reverse: bool) -> Tensor:
        """``length`` rows of a loop's results, from the first turn of a part on or towards it."""
        stack = self.stacks[part.loop, part.node, part.output]
        ends = [self._row(part.loop, part.first + part.step * turn) for turn in (0, length - 1)]
        rows = stack[min(ends) : max(ends) + 1]
        return rows if (ends[0] < ends[1]) != reverse else rows[::-1]

    def _pad_sum(self, graph: Graph, found: _PadSum, like: Tensor) -> Tensor:
        """A pad for each series in the place of a sum of them."""
        total = None if found.base is None else self._value(found.base)
        apart = abs(found.step)
        for series, first in zip(found.series, found.lows, strict=True):
            count = len(series.codes)
            low = min(first, first + found.step * (count - 1))
            rows = self._joined(series, reverse=found.step < 0)
            rows = plus_zero(o.reshape(rows, (count, *rows.shape[2:])))
            rest = (0,) * (rows.ndim - 1)
            high = like.shape[0] - low - (count - 1) * apart - 1
            attrs = PadAttributes((low, *rest), (high, *rest), (apart - 1, *rest), found.zero)
            padded = graph.add(PAD, (rows,), attrs).outputs[0]
            total = padded if total is None else o.add(total, padded)
        assert total is not None
        return total

    def _is_read(self, loop: TurnLoop, node: int, output: int) -> bool:
        """True if a value of a node is read in any turn by what is no turn."""
        nodes = self.graph.nodes[loop.stretch.start + node : loop.stretch.end : loop.stretch.period]
        return any(turn.outputs[output] in self.read for turn in nodes)

    def _body(
        self, loop: TurnLoop, captured: Sequence[TurnRows], rows: Sequence[TurnRows], handed: Sequence[tuple[int, int]]
    ) -> Body:
        """A turn: carries and the tensors that it is given, to carries and the values that are handed out."""
        graph, new = Graph(), dict[tuple[int, int], Tensor]()
        template = self.graph.nodes[loop.stretch.start : loop.stretch.start + loop.stretch.period]

        def given(x: Tensor) -> Tensor:
            return o.placeholder(x.shape, x.dtype)

        def operand(x: Operand) -> Tensor:
            if isinstance(x, TurnRows):
                return read[x]
            return old[x] if x.back else new[x.node, x.output]

        with graph, at_source(None) as declared:
            turn = o.placeholder((), np.int64)
            old = {x: given(template[x.node].outputs[x.output]) for x in loop.carried()}
            read = {x: given(self.graph.tensor(x.codes[0])) for x in (*rows, *captured)}
            for node, operands in loop.inside.items():
                declared.move(template[node].source)
                again = graph.clone(template[node], tuple(map(operand, operands)))
                new.update({(node, y.index): y for y in again.outputs})
        carries = [
            new[x.node, x.output] if x.back == 1 else old[TurnValue(x.node, x.output, x.back - 1)]
            for x in loop.carried()
        ]
        return Body(graph, (turn, *old.values(), *read.values()), (*carries, *(new[key] for key in handed)))
