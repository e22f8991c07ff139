"""Rewind: loops in reverse compute what they read of each turn of another loop again, where it would be stacked.

    stacked = loop₁(…)                       _, snapshots = loop₁(…)
    …                                   =>   …
    loop₂(…, rows of stacked)                rewound(…, snapshots)

Input: a region in which a loop with a ``checkpoint`` of k hands out stacked results that only loops in the opposite
order read, row by row: its derivatives in reverse, or theirs. Output: the region in which the first loop hands out k
snapshots of what it carries, and the others have turns in which a row is computed from such a state, by the body of the
first (``ops/control/rewinding.py``). Nothing is known of derivatives here. Bodies have passed all passes before, and
those that are made here pass them too, so loops in loops are rewound in turn.

Left alone: stacked results that something else reads, which are there anyway; loops whose bodies call Python; those
whose states take no less memory than what is stacked. What a body prints or asserts happens in the first loop alone.
Random numbers are those of the turn, and so the same each time.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import replace

from staticgrad.base.extents import OpenSizeError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import Size, sizes
from staticgrad.compiler.passes.dce import dce
from staticgrad.compiler.regions.region import Region, rebuild, users_of
from staticgrad.graph.graph import Graph, Node, Tensor, get_default_graph, needed_nodes
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.ops.control.bodies import Body, bodies_of
from staticgrad.ops.control.loops import LoopAttributes
from staticgrad.ops.control.rewinding import (
    EFFECTFUL_SNAPSHOT_LOOP,
    REWOUND,
    SNAPSHOT_LOOP,
    RewoundAttributes,
    SnapshotLoopAttributes,
    fewest_slots,
    least_repeats,
)
from staticgrad.ops.effects import ASSERTION, BOUNDS_CHECK, NUMERICS_CHECK, PRINT
from staticgrad.ops.sources import PLACEHOLDER, SourceAttributes

HAPPENED = frozenset({PRINT, ASSERTION, BOUNDS_CHECK, NUMERICS_CHECK})  # effects that give their operand

Rewrite = Callable[[Body], Body]


@frozen(eq=False)
class _LoopPair:
    """A loop, its sequences and captured operands, the numbers of its stacked results that are computed again and of
    the carries that this takes, and a body of its next carries and these results without effects. ``snapshots`` it
    hands out in the region that is made."""

    first: Node
    given: tuple[Tensor, ...]
    rows: tuple[int, ...]
    states: tuple[int, ...]
    body: Body
    snapshots: tuple[Tensor, ...] = ()

    @property
    def attrs(self) -> LoopAttributes:
        attrs: LoopAttributes = self.first.attrs
        return attrs

    @property
    def stacked(self) -> dict[Tensor, int]:
        """The stacked results that are computed again, and their numbers among the fetches of ``body``."""
        place = self.attrs.first_result
        return {self.first.outputs[place + k]: self.attrs.carries + k for k in self.rows}


def _longest_loop(region: Region) -> int:
    """The greatest number of turns of a loop of a known length, in bodies too; 0: there is none."""
    found = 0
    for node in region.graph.nodes:
        if isinstance(node.attrs, LoopAttributes) and isinstance(node.attrs.length, int):
            found = max(found, node.attrs.length)
        for body in bodies_of(node):
            found = max(found, _longest_loop(Region(body.graph, body.feeds, body.fetches)))
    return found


@frozen
class Level:
    """A number of states that loops keep: the least with which no turn runs more than ``most`` times, and of what is
    missing to that with which none runs more than ``fewer`` times the part ``share``."""

    most: int
    fewer: int
    share: float = 0.0

    def slots(self, turns: int) -> int:
        low, high = fewest_slots(turns, self.most), fewest_slots(turns, self.fewer)
        return low + int(self.share * (high - low))


def levels(region: Region) -> list[Level]:
    """Levels at which the loops of a region keep fewer and fewer states."""
    turns = _longest_loop(region)
    found, slots, last = [], turns, 1
    while slots > 1:
        repeats = least_repeats(turns, max(1, 3 * slots // 4))
        slots = fewest_slots(turns, repeats)
        found.append(Level(repeats, last))
        last = repeats
    return found


def keeping(region: Region, level: Level) -> Region:
    """The region whose loops, in bodies too, keep the number of states that a level says, unless their user has said
    one."""

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        if not bodies_of(node):
            return None
        new = get_default_graph().clone(node, inputs)
        new.attrs = new.attrs.with_bodies([_keeping_body(body, level) for body in bodies_of(node)])
        if isinstance(new.attrs, LoopAttributes) and new.attrs.checkpoint is None and isinstance(new.attrs.length, int):
            new.attrs = replace(new.attrs, checkpoint=level.slots(new.attrs.length))
        return new.outputs

    return rebuild(region, visit)


def _keeping_body(body: Body, level: Level) -> Body:
    made = keeping(Region(body.graph, body.feeds, body.fetches, body.effects), level)
    return Body(made.graph, made.feeds, made.fetches, made.effects)


def rewind(region: Region, rewrite: Rewrite) -> Region:
    """Rewrite every pair of loops; ``rewrite`` has a body pass all passes."""
    users, fetched = users_of(region), set(region.fetches)
    pairs: dict[Node, _LoopPair] = {}  # by both loops
    for node in region.graph.nodes:
        pair = _pair(node, users, fetched, pairs) if node not in pairs else None
        if pair is not None:
            pairs[node] = pair
            pairs.update((reader, pair) for y in pair.stacked for reader in users[y])
    if not pairs:
        return region
    made: dict[Node, _LoopPair] = {}  # by the first loops

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        pair = pairs.get(node)
        if pair is None:
            return None
        if node is not pair.first:
            return _rewound(made[pair.first], node, inputs, rewrite)
        outputs, made[node] = _with_snapshots(pair, inputs)
        return outputs

    return dce(rebuild(region, visit))


def _pair(
    node: Node, users: dict[Tensor, list[Node]], fetched: set[Tensor], others: Container[Node]
) -> _LoopPair | None:
    """The pairs of loops of which a node is the first; None if it is of none. Loops of ``others`` are of another."""
    attrs = node.attrs
    if not isinstance(attrs, LoopAttributes) or isinstance(attrs, SnapshotLoopAttributes):
        return None
    if attrs.checkpoint is None or attrs.length is None:
        return None

    def is_again(y: Tensor) -> bool:
        readers = users[y] if y not in fetched else ()
        return bool(readers) and all(x not in others and _reads_backwards(x, y, node) for x in readers)

    rows = [k for k, y in enumerate(node.outputs[attrs.first_result :]) if is_again(y)]
    if not rows:
        return None
    turns = _known(node, attrs.length)
    body = _silent(attrs.body)
    states = _states(body, attrs.carries, rows)
    if any(n.op.effect for n in needed_nodes(_fetches(body, states, [attrs.carries + k for k in rows]), ())):
        return None
    kept = sum(body.feeds[1 + j].type.nbytes for j in states)
    if turns * sum(body.fetches[attrs.carries + k].type.nbytes for k in rows) <= min(attrs.checkpoint, turns) * kept:
        return None
    given = node.inputs[attrs.counted + attrs.carries :]
    return _LoopPair(node, given, tuple(rows), states, body)


def _known(node: Node, length: Size) -> int:
    """The number of turns of a loop, which has to be known, as the schedule follows from it."""
    (turns,) = sizes((length,))
    try:
        return int(turns)
    except OpenSizeError as error:
        error.asked_by(node.name, node.source)
        raise


def _reads_backwards(reader: Node, stacked: Tensor, first: Node) -> bool:
    """True if a loop takes the turns of the ``first`` in the opposite order, and reads ``stacked`` row by row alone."""
    attrs, other = reader.attrs, first.attrs
    if not isinstance(attrs, LoopAttributes) or isinstance(attrs, SnapshotLoopAttributes):
        return False
    if attrs.condition is not None or attrs.length != other.length or attrs.reverse == other.reverse:
        return False
    if attrs.counted != other.ends_early:
        return False
    count = first.outputs[other.carries] if other.condition is not None else first.inputs[0]
    if attrs.counted and reader.inputs[0] is not count:
        return False
    begin = attrs.counted + attrs.carries
    places = [i for i, x in enumerate(reader.inputs) if x is stacked]
    return all(begin <= i < begin + attrs.sequences for i in places)


def _silent(body: Body) -> Body:
    """The body without what it prints and checks, which has happened when it is computed again."""

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        return inputs[: len(node.outputs)] if node.op in HAPPENED else None

    made = rebuild(Region(body.graph, body.feeds, body.fetches), visit)
    return Body(made.graph, made.feeds, made.fetches)


def _states(body: Body, carries: int, rows: Sequence[int]) -> tuple[int, ...]:
    """The numbers of the carries that some stacked results depend on, turn after turn."""
    states: set[int] = set()
    while True:
        needed = needed_nodes(_fetches(body, sorted(states), [carries + k for k in rows]), ())
        found = {j for j in range(carries) if body.feeds[1 + j].op in needed}
        if found <= states:
            return tuple(sorted(states))
        states |= found


def _fetches(body: Body, *numbers: Sequence[int]) -> list[Tensor]:
    return [body.fetches[i] for group in numbers for i in group]


def _with_snapshots(pair: _LoopPair, inputs: tuple[Tensor, ...]) -> tuple[list[Tensor], _LoopPair]:
    """The results of the first loop, zeros for those that are no longer stacked, and the pair in the new region."""
    attrs, first = pair.attrs, pair.attrs.first_result
    left = [i for i in range(len(attrs.body.fetches)) if i - attrs.carries not in pair.rows]
    old = attrs.body
    made = dce(Region(old.graph, old.feeds, tuple(old.fetches[i] for i in left), old.effects))
    new = SnapshotLoopAttributes(
        Body(made.graph, made.feeds, made.fetches, made.effects), attrs.condition, attrs.carries, attrs.sequences,
        attrs.length, attrs.reverse, attrs.counted, attrs.checkpoint, pair.states,
    )  # fmt: skip
    op = EFFECTFUL_SNAPSHOT_LOOP if pair.first.op.effect else SNAPSHOT_LOOP
    outputs = get_default_graph().add(op, inputs, new, name=pair.first.name).outputs
    split = len(outputs) - len(pair.states)
    found = iter(outputs[:split])
    again = {first + k for k in pair.rows}
    results = [o.zeros_like(y) if i in again else next(found) for i, y in enumerate(pair.first.outputs)]
    given = inputs[attrs.counted + attrs.carries :]
    return results, replace(pair, given=given, snapshots=tuple(outputs[split:]))


def _rewound(pair: _LoopPair, node: Node, inputs: tuple[Tensor, ...], rewrite: Rewrite) -> Sequence[Tensor]:
    """The results of a loop that reads stacked results, by one that reads snapshots."""
    attrs: LoopAttributes = node.attrs
    first, stacked = pair.attrs, pair.stacked
    middle = attrs.counted + attrs.carries
    end = middle + attrs.sequences
    old, again = attrs.body.feeds[1 + attrs.carries :], pair.body.feeds[1 + first.carries :]
    graph = Graph()
    turn = _parameter(graph, attrs.body.feeds[0])
    carries = [_parameter(graph, x) for x in attrs.body.feeds[1 : 1 + attrs.carries]]
    states = [_parameter(graph, pair.body.feeds[1 + j]) for j in pair.states]
    tensors = dict(zip(attrs.body.feeds, [turn, *carries], strict=False))
    known = dict(
        zip([pair.body.feeds[0], *(pair.body.feeds[1 + j] for j in pair.states)], [turn, *states], strict=True)
    )
    needed = needed_nodes(_fetches(pair.body, pair.states, tuple(stacked.values())), ())
    rows: dict[Tensor, Tensor] = {}  # by what is read, the parameters that stand for it
    captured: dict[Tensor, Tensor] = {}
    for i, (x, parameter) in enumerate(zip(inputs[middle:], old, strict=True)):
        if node.inputs[middle + i] not in stacked:
            tensors[parameter] = _read(graph, rows if middle + i < end else captured, x, parameter)
    for i, (x, parameter) in enumerate(zip(pair.given, again, strict=True)):
        if parameter.op in needed:
            known[parameter] = _read(graph, rows if i < first.sequences else captured, x, parameter)
    _copy(pair.body.graph, needed, graph, known)
    for x, parameter in zip(node.inputs[middle:end], old, strict=False):
        if x in stacked:
            tensors[parameter] = known[pair.body.fetches[stacked[x]]]
    nodes = _copy(attrs.body.graph, needed_nodes(attrs.body.fetches, attrs.body.effects), graph, tensors)
    given = (*states, *rows.values(), *captured.values())
    fetches, effects = (tensors[x] for x in attrs.body.fetches), tuple(nodes[n] for n in attrs.body.effects)
    body = Body(graph, (turn, *carries, *given), tuple(fetches), effects)
    advance = Body(graph, (turn, *given), tuple(known[pair.body.fetches[j]] for j in pair.states))
    assert isinstance(attrs.length, int)
    new = RewoundAttributes(
        rewrite(body), rewrite(advance), attrs.carries, len(states), len(rows), attrs.length, first.checkpoint or 1,
        attrs.reverse, attrs.counted,
    )  # fmt: skip
    operands = [*inputs[:middle], *pair.snapshots, *rows, *captured]
    return get_default_graph().add(REWOUND, operands, new, name=node.name).outputs


def _parameter(graph: Graph, like: Tensor) -> Tensor:
    return graph.add(PLACEHOLDER, (), SourceAttributes(like.shape, like.dtype), name=like.op.name).outputs[0]


def _read(graph: Graph, parameters: dict[Tensor, Tensor], x: Tensor, like: Tensor) -> Tensor:
    """The parameter that stands for what is read of ``x``."""
    if x not in parameters:
        parameters[x] = _parameter(graph, like)
    return parameters[x]


def _copy(source: Graph, needed: set[Node], graph: Graph, tensors: dict[Tensor, Tensor]) -> dict[Node, Node]:
    """Copy the nodes of a body; ``tensors`` has what stands for its parameters, and learns the rest."""
    nodes: dict[Node, Node] = {}
    for node in source.nodes:
        if node in needed and node.op is not PLACEHOLDER:
            control = tuple(nodes[n] for n in node.control if n in nodes)
            nodes[node] = graph.clone(node, tuple(tensors[x] for x in node.inputs), control)
            tensors.update(zip(node.outputs, nodes[node].outputs, strict=True))
    return nodes
