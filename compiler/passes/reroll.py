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

Left alone: graphs of few nodes, nodes with an effect, a body, a random draw or control edges, sizes that are open, and
what would save less than a fifth of the nodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from staticgrad.base.errors import at_source
from staticgrad.base.frozen import frozen
from staticgrad.compiler.regions.region import Region
from staticgrad.compiler.regions.repeats import Stretch, stretches
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.ops.control.bodies import Body, bodies_of
from staticgrad.ops.control.loops import SCAN, LoopAttributes
from staticgrad.ops.sources import CONSTANT
from staticgrad.ops.views.slicing import SLICE

LEAST_TURNS = 8
LEAST_REPEATED = 1000  # nodes after the first turn; with fewer a graph is compiled in less time than one notices
MOST_CARRIES = 256
MOST_TURNS_BACK = 64  # from which a turn reads a value
MOST_SHIFTED_BYTES = 4096  # of a value that is carried through more than one turn, which costs a copy in each
MOST_STACKED_BYTES = 4096  # of a tensor that is copied to be a row
MOST_LEFT = 0.8  # of the nodes, else the graph stays as it is
MOST_IRREGULAR = 4  # turns at each end that are left out since they read other places, but for those of turns before
WIDTH = 48  # nodes of a turn: shorter ones are put together, as a turn costs about as much as ten small ops
INDEX_BITS = 16  # of the number of a node's output in the code of a tensor
LAST_INDEX = (1 << INDEX_BITS) - 1

Codes = NDArray[np.int64]  # of tensors: the place of the node, and the number of the output


def reroll(region: Region) -> Region:
    """Put loops where the graph repeats itself."""
    if len(region.graph.nodes) < LEAST_REPEATED:
        return region
    graph = _Numbered(region.graph.nodes)
    found = stretches(_keys(region), LEAST_TURNS, LEAST_REPEATED)
    if not found:
        return region
    # One number for all: a backward then reads what a turn of the forward has stacked, whole turns apart.
    together = max(1, min(max(-(-WIDTH // s.period) for s in found), *(s.turns // LEAST_TURNS for s in found)))
    loops: list[_Loop] = []
    for stretch in found:
        loop = _Matcher(graph, loops).loop(stretch.joined(together))
        if loop is not None:
            loops.append(loop)
    if not loops:
        return region
    rewriter = _Rewriter(region, graph, loops)
    return rewriter.region() if rewriter.left() <= MOST_LEFT * len(region.graph.nodes) else region


def _keys(region: Region) -> NDArray[np.int64]:
    """A number for each node: equal for nodes that may be the same one in two turns."""
    fixed = {x.op for x in region.feeds} | set(region.effects)
    for node in region.graph.nodes:
        fixed.update(node.control)
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
    if node.op.effect or node.op.draws or node.control or node.epoch or bodies_of(node):
        return True
    if node.op.role == "source" and node.op is not CONSTANT:
        return True
    return len(node.outputs) > LAST_INDEX or not all(type(n) is int for y in node.outputs for n in y.type.shape)


# -- matching ---------------------------------------------------------------------------------------------------------


@frozen
class _Inside:
    """The value of node ``node`` of the turn that is ``back`` turns before."""

    node: int
    output: int
    back: int


@frozen
class _Rows:
    """A tensor of its own for each turn, or one for all (``same``)."""

    codes: tuple[int, ...]

    @property
    def same(self) -> bool:
        return self.codes[0] == self.codes[-1] and len(set(self.codes)) == 1


Operand = _Inside | _Rows


@frozen
class _Loop:
    """A stretch that becomes a loop: the numbers of the nodes of a turn that are ``inside``, with their operands, and
    of those that are left ``before`` it. All others are left after it."""

    stretch: Stretch
    inside: dict[int, tuple[Operand, ...]]
    before: frozenset[int]

    def home(self, code: int) -> tuple[int, int, int] | None:
        """The turn, the node and the output of a tensor that the loop computes."""
        place = (code >> INDEX_BITS) - self.stretch.start
        if not 0 <= place < self.stretch.period * self.stretch.turns:
            return None
        turn, node = divmod(place, self.stretch.period)
        return (turn, node, code & LAST_INDEX) if node in self.inside else None

    def rows(self) -> list[_Rows]:
        """What the loop reads of other parts of the graph."""
        return list(dict.fromkeys(x for found in self.inside.values() for x in found if isinstance(x, _Rows)))

    def carried(self) -> list[_Inside]:
        """What a turn reads of those before: each value from the last turn on to the one that is read."""
        back: dict[tuple[int, int], int] = {}
        for x in (x for found in self.inside.values() for x in found if isinstance(x, _Inside) and x.back):
            back[x.node, x.output] = max(back.get((x.node, x.output), 0), x.back)
        return [_Inside(*key, turns) for key, most in back.items() for turns in range(1, most + 1)]

    def initial(self) -> list[tuple[int, int]]:
        """The place and the output of each of ``carried`` before the first turn."""
        period = self.stretch.period
        return [(self.stretch.start + x.node - x.back * period, x.output) for x in self.carried()]


class _Numbered:
    """The nodes of a graph, and a number for each tensor, its code: the node's place and the output."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self._places = {node: place for place, node in enumerate(nodes)}

    def code(self, x: Tensor) -> int:
        return (self._places[x.op] << INDEX_BITS) | x.index

    def tensor(self, code: int) -> Tensor:
        return self.nodes[code >> INDEX_BITS].outputs[code & LAST_INDEX]


class _Matcher:
    """Finds what the operands of the nodes of a stretch are, turn by turn."""

    def __init__(self, graph: _Numbered, loops: Sequence[_Loop]) -> None:
        self.graph, self.loops = graph, loops

    def loop(self, stretch: Stretch) -> _Loop | None:
        """The loop of a stretch, or None if too little of it is one."""
        codes = [self._codes(stretch, node) for node in range(stretch.period)]
        first, last = self._irregular(stretch, codes)
        stretch = stretch.without(first, last)
        if stretch.turns < LEAST_TURNS:
            return None
        columns = [list(table[first : first + stretch.turns].T) for table in codes]
        operands = [[self._operand(stretch, column) for column in read] for read in columns]
        before, after = self._left(stretch, operands)
        inside: dict[int, tuple[Operand, ...]] = {}
        for node, found in enumerate(operands):
            if node in before or node in after:
                continue
            read = list(found)
            for position, x in enumerate(found):
                if isinstance(x, _Inside) and x.node in before:
                    read[position] = _Rows(tuple(columns[node][position].tolist()))
            inside[node] = tuple([x for x in read if x is not None])
        loop = _Loop(stretch, inside, frozenset(before))
        enough = len(inside) * (stretch.turns - 1) >= LEAST_REPEATED and len(loop.carried()) <= MOST_CARRIES
        return loop if enough else None

    def _codes(self, stretch: Stretch, node: int) -> Codes:
        """The codes of a node's operands: (turns, operands)."""
        turns = self.graph.nodes[stretch.start + node : stretch.end : stretch.period]
        table = [[self.graph.code(x) for x in turn.inputs] for turn in turns]
        return np.array(table, np.int64).reshape(len(turns), -1)

    def _irregular(self, stretch: Stretch, codes: Sequence[Codes]) -> tuple[int, int]:
        """How many of the first and of the last turns read other places than those in the middle."""
        middle, inner = stretch.turns // 2, stretch.period << INDEX_BITS
        first, last = 0, stretch.turns
        for column in (column for table in codes for column in table.T):
            step = int(column[middle] - column[middle - 1])
            fits = np.diff(column) == step
            home = next((loop for loop in self.loops if loop.home(int(column[middle])) is not None), None)
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

    def _operand(self, stretch: Stretch, column: Codes) -> Operand | None:
        """What an operand is; None if it can be nothing in a loop."""
        start, inner = stretch.start << INDEX_BITS, stretch.period << INDEX_BITS
        if column[-1] < start:
            return None if np.any(column >= start) else _Rows(tuple(column.tolist()))
        if np.any(np.diff(column) != inner):
            return None
        place = (int(column[0]) >> INDEX_BITS) - stretch.start
        back = -(place // stretch.period)
        if back > MOST_TURNS_BACK:
            return None
        return _Inside(place % stretch.period, int(column[0]) & LAST_INDEX, back)

    def _left(self, stretch: Stretch, operands: Sequence[Sequence[Operand | None]]) -> tuple[set[int], set[int]]:
        """The nodes of a turn that stay before the loop, and after it."""
        before = {node for node in range(stretch.period) if self._differs(stretch, node)}
        after = {node for node, found in enumerate(operands) if not all(map(self._fits, found))}
        before -= after
        while True:
            more = set[int]()
            for node, found in enumerate(operands):
                inner = [x for x in found if isinstance(x, _Inside)]
                read = {x.node for x in inner}
                if node in after:
                    continue
                if node in before:
                    leaves = not read <= before
                else:
                    carried = [x for x in inner if x.back and x.node not in before]
                    leaves = bool(read & after) or not all(self._may_carry(stretch, x) for x in carried)
                if leaves:
                    more.add(node)
            if not more:
                return before, after
            after |= more
            before -= more

    def _differs(self, stretch: Stretch, node: int) -> bool:
        """True if the attributes of a node are not the same in all turns."""
        turns = self.graph.nodes[stretch.start + node : stretch.end : stretch.period]
        attrs = turns[0].attrs
        return any(turn.attrs is not attrs and turn.attrs != attrs for turn in turns)

    def _fits(self, operand: Operand | None) -> bool:
        """True if an operand may be captured or a row."""
        if operand is None or isinstance(operand, _Inside) or operand.same:
            return operand is not None
        tensors = [self.graph.tensor(code) for code in operand.codes]
        if any(x.type is not tensors[0].type and x.type != tensors[0].type for x in tensors):
            return False
        small = tensors[0].type.nbytes <= MOST_STACKED_BYTES
        return small or windows(tensors) is not None or rows_of(self.loops, operand.codes) is not None

    def _may_carry(self, stretch: Stretch, x: _Inside) -> bool:
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
class _Stacked:
    """Tensors that are the values of one node of a loop, from turn ``first`` on, ``step`` (1 or -1) turns apart."""

    loop: _Loop
    node: int
    output: int
    first: int
    step: int


def rows_of(loops: Sequence[_Loop], codes: Sequence[int]) -> _Stacked | None:
    """How a loop stacks these tensors, if one does."""
    for loop in loops:
        one, other = loop.home(codes[0]), loop.home(codes[1])
        if one is None or other is None or one[1:] != other[1:]:
            continue
        step = other[0] - one[0]
        last = one[0] + (len(codes) - 1) * step
        apart = (step * loop.stretch.period) << INDEX_BITS
        if abs(step) == 1 and 0 <= last < loop.stretch.turns and not np.any(np.diff(np.asarray(codes)) != apart):
            return _Stacked(loop, one[1], one[2], one[0], step)
    return None


@frozen
class _Windows:
    """Slices of a tensor ``x`` of one index each along axis 0, ``step`` apart; ``rest`` is what they take of others."""

    x: Tensor
    first: int
    step: int
    rest: tuple[slice, ...]


def windows(tensors: Sequence[Tensor]) -> _Windows | None:
    """The slices that tensors are, if they can be cut at once."""
    nodes = [x.op for x in tensors]
    x = nodes[0].inputs[0] if nodes[0].inputs else None
    if x is None or any(node.op is not SLICE or node.inputs[0] is not x for node in nodes):
        return None
    first, starts = nodes[0].attrs, [node.attrs.starts[0] for node in nodes]
    others = [(node.attrs.starts[1:], node.attrs.stops[1:], node.attrs.steps) for node in nodes]
    step = starts[1] - starts[0]
    if tensors[0].shape[0] != 1 or min(first.steps) < 1 or step == 0 or any(other != others[0] for other in others):
        return None
    if any(b - a != step for a, b in itertools.pairwise(starts)):
        return None
    return _Windows(x, starts[0], step, tuple(map(slice, first.starts[1:], first.stops[1:], first.steps[1:])))


# -- rewriting --------------------------------------------------------------------------------------------------------


class _Rewriter:
    """Makes the region with its loops."""

    def __init__(self, region: Region, graph: _Numbered, loops: Sequence[_Loop]) -> None:
        self.old, self.graph, self.loops = region, graph, loops
        self.starts = {loop.stretch.start: loop for loop in loops}
        self.stacked = {x: rows_of(loops, x.codes) for loop in loops for x in loop.rows()}
        self.read = self._read()
        self.nodes: dict[Node, Node] = {}
        self.tensors: dict[Tensor, Tensor] = {}
        self.stacks: dict[tuple[int, int, int], Tensor] = {}  # by the start of a loop, the node and its output
        self.reverse: dict[int, bool] = {}  # by the start of a loop: whether it goes from the last row to the first

    def _outside(self) -> Iterator[Node | _Loop]:
        """The nodes that are in no loop, and the loops, in the order in which they are written."""
        place = 0
        while place < len(self.graph.nodes):
            loop = self.starts.get(place)
            if loop is None:
                yield self.graph.nodes[place]
                place += 1
                continue
            turns = [loop.stretch.turn(number) for number in range(loop.stretch.turns)]
            yield from (self.graph.nodes[turn[node]] for turn in turns for node in sorted(loop.before))
            yield loop
            after = [n for n in range(loop.stretch.period) if n not in loop.inside and n not in loop.before]
            yield from (self.graph.nodes[turn[node]] for turn in turns for node in after)
            place = loop.stretch.end

    def _read(self) -> set[Tensor]:
        """The tensors that are read one by one: by nodes outside of loops, and as rows that no loop has stacked."""
        read = set[Tensor](self.old.fetches)
        for item in self._outside():
            if isinstance(item, Node):
                read.update(item.inputs)
                continue
            for x in item.rows():
                if x.same or self.stacked[x] is None:
                    read.update(map(self.graph.tensor, x.codes))
            read.update(self.graph.nodes[place].outputs[output] for place, output in item.initial())
        return read

    def left(self) -> int:
        """About how many nodes the new region has."""
        apart = sum(isinstance(item, Node) for item in self._outside())
        rows = 2 * sum(self._loop_of(x) is not None for x in self.read)
        return apart + rows + sum(len(loop.inside) for loop in self.loops)

    def _loop_of(self, x: Tensor) -> _Loop | None:
        code = self.graph.code(x)
        return next((loop for loop in self.loops if loop.home(code) is not None), None)

    def region(self) -> Region:
        graph = Graph()
        graph.hands_over = self.old.graph.hands_over
        with graph, at_source(None) as declared:
            for item in self._outside():
                if isinstance(item, _Loop):
                    declared.move(self.graph.nodes[item.stretch.start].source)
                    self._write(graph, item)
                else:
                    declared.move(item.source)
                    control = tuple([self.nodes[before] for before in item.control])
                    new = graph.clone(item, tuple(map(self._value, item.inputs)), control)
                    self.nodes[item] = new
                    self.tensors.update(zip(item.outputs, new.outputs, strict=True))
            fetches = tuple(map(self._value, self.old.fetches))
        feeds = tuple([self.tensors[x] for x in self.old.feeds])
        return Region(graph, feeds, fetches, tuple([self.nodes[node] for node in self.old.effects]))

    def _value(self, x: Tensor) -> Tensor:
        """What stands for a tensor: a row of a loop's results if it is computed there."""
        if x not in self.tensors:
            loop = self._loop_of(x)
            home = None if loop is None else loop.home(self.graph.code(x))
            assert loop is not None and home is not None
            turn, node, output = home
            row = self._row(loop, turn)
            self.tensors[x] = o.reshape(self.stacks[loop.stretch.start, node, output][row : row + 1], x.shape)
        return self.tensors[x]

    def _row(self, loop: _Loop, turn: int) -> int:
        return loop.stretch.turns - 1 - turn if self.reverse[loop.stretch.start] else turn

    def _write(self, graph: Graph, loop: _Loop) -> None:
        """Declare a loop, and what it reads."""
        start = loop.stretch.start
        captured = [x for x in loop.rows() if x.same]
        rows = [x for x in loop.rows() if not x.same]
        self.reverse[start] = self._goes_back(rows)
        initial = [self._value(self.graph.nodes[place].outputs[output]) for place, output in loop.initial()]
        sequences = [self._sequence(x, self.reverse[start]) for x in rows]
        handed = [
            (node, y.index)
            for node in loop.inside
            for y in self.graph.nodes[start + node].outputs
            if self._is_read(loop, node, y.index)
        ]
        body = self._body(loop, captured, rows, handed)
        attrs = LoopAttributes(body, None, len(initial), len(rows), loop.stretch.turns, self.reverse[start])
        operands = [*initial, *sequences, *(self._value(self.graph.tensor(x.codes[0])) for x in captured)]
        results = graph.add(SCAN, operands, attrs).outputs[len(initial) :]
        self.stacks.update({(start, *key): y for key, y in zip(handed, results, strict=True)})

    def _goes_back(self, rows: Sequence[_Rows]) -> bool:
        """True if more of what a loop reads is stacked against the order of its turns than along it."""
        stacked = [found for found in map(self.stacked.__getitem__, rows) if found is not None]
        return sum(-x.step if self.reverse[x.loop.stretch.start] else x.step for x in stacked) < 0

    def _sequence(self, x: _Rows, reverse: bool) -> Tensor:
        """The rows that a loop reads, in their order."""
        tensors = [self.graph.tensor(code) for code in x.codes]
        found, cut = self.stacked[x], windows(tensors)
        if found is not None:
            stack = self.stacks[found.loop.stretch.start, found.node, found.output]
            ends = [self._row(found.loop, found.first + found.step * turn) for turn in (0, len(tensors) - 1)]
            rows, upward = stack[min(ends) : max(ends) + 1], ends[0] < ends[1]
        elif cut is not None:
            last = cut.first + cut.step * (len(tensors) - 1)
            rows = self._value(cut.x)[slice(min(cut.first, last), max(cut.first, last) + 1, abs(cut.step)), *cut.rest]
            rows, upward = o.reshape(rows, (len(tensors), *tensors[0].shape)), cut.step > 0
        elif all(y.op.op is CONSTANT for y in tensors):
            rows, upward = o.constant(np.stack([y.op.attrs.value for y in tensors])), True
        else:
            rows, upward = o.stack(list(map(self._value, tensors)), axis=0), True
        return rows if upward != reverse else rows[::-1]

    def _is_read(self, loop: _Loop, node: int, output: int) -> bool:
        """True if the values of a node are handed out by its loop."""
        if any(x.loop is loop and (x.node, x.output) == (node, output) for x in self.stacked.values() if x is not None):
            return True
        turns = self.graph.nodes[loop.stretch.start + node : loop.stretch.end : loop.stretch.period]
        return any(turn.outputs[output] in self.read for turn in turns)

    def _body(
        self, loop: _Loop, captured: Sequence[_Rows], rows: Sequence[_Rows], handed: Sequence[tuple[int, int]]
    ) -> Body:
        """A turn: carries and the tensors that it is given, to carries and the values that are handed out."""
        graph, new = Graph(), dict[tuple[int, int], Tensor]()
        template = self.graph.nodes[loop.stretch.start : loop.stretch.start + loop.stretch.period]

        def given(x: Tensor) -> Tensor:
            return o.placeholder(x.shape, x.dtype)

        with graph, at_source(None) as declared:
            turn = o.placeholder((), np.int64)
            old = {x: given(template[x.node].outputs[x.output]) for x in loop.carried()}
            read: dict[Operand, Tensor] = {x: given(self.graph.tensor(x.codes[0])) for x in (*rows, *captured)}
            feeds = (turn, *old.values(), *read.values())
            read.update(old)
            for node, operands in loop.inside.items():
                inputs = tuple([read[x] if x in read else new[x.node, x.output] for x in operands])
                declared.move(template[node].source)
                new.update({(node, y.index): y for y in graph.clone(template[node], inputs).outputs})
        carries = [
            new[x.node, x.output] if x.back == 1 else old[_Inside(x.node, x.output, x.back - 1)] for x in loop.carried()
        ]
        return Body(graph, feeds, (*carries, *(new[key] for key in handed)))
