"""A graph as a few boxes: its ops, or where these are many, runs of ops of one module, line or function.

Input: the nodes of a graph in the order of declaration. Output: at most ``MOST`` boxes, each a run of consecutive
nodes, so that no two of them wait for each other; the arrows between them; rows, such that arrows lead downwards.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from staticgrad.base.frozen import frozen
from staticgrad.graph.graph import Graph, Node
from staticgrad.graph.naming import Place, way_out

MOST = 48
IN_A_ROW = 6
OPERANDS = frozenset({"constant", "variable"})  # what belongs to the ops that read it, where these are in runs


@frozen(eq=False)
class Box:
    """Consecutive nodes. ``module`` is the one that it stands for, to which all of them belong, or None."""

    nodes: tuple[Node, ...]
    module: Place | None


@frozen(eq=False)
class Layers:
    """Boxes in rows from top to bottom, and arrows as pairs of boxes."""

    rows: tuple[tuple[Box, ...], ...]
    arrows: tuple[tuple[Box, Box], ...]


def modules_of(node: Node) -> list[Place]:
    """The modules whose calls the op belongs to, from the innermost to the root."""
    place = node.module
    return [] if place is None else [place, *(home.place for home in way_out(place.held))]


def layers_of(graph: Graph) -> Layers:
    """The whole graph as boxes in rows."""
    boxes = _boxes(graph.nodes)
    place = {node: box for box in boxes for node in box.nodes}
    arrows: dict[tuple[Box, Box], None] = {}
    for box in boxes:
        for node in box.nodes:
            for before in node.before:
                source = place.get(before)
                if source is not None and source is not box:
                    arrows[source, box] = None
    return Layers(tuple(_rows(boxes, list(arrows))), tuple(arrows))


# -- boxes ----------------------------------------------------------------------------------------------------------


def _boxes(nodes: Sequence[Node]) -> list[Box]:
    """A box for each node but constants, or for runs of nodes that are as short as the number of boxes allows."""
    alone = [node for node in nodes if node.op.name != "constant"]
    if len(alone) <= MOST:
        return [Box((node,), None) for node in alone]
    nodes = [node for node in nodes if node.op.name not in OPERANDS]
    modules = {node.module: modules_of(node) for node in nodes}
    deepest = max(map(len, modules.values()), default=0)

    def at_depth(depth: int) -> Callable[[Node], Place | None]:
        shown = {module: path[-depth:][0] if path else None for module, path in modules.items()}
        return lambda node: shown[node.module]

    for depth in range(deepest, 0, -1):
        runs = _runs(nodes, at_depth(depth), _line)
        if len(runs) <= MOST:
            return runs
    for key in (_line, _function):
        runs = _runs(nodes, at_depth(1), key)
        if len(runs) <= MOST:
            return runs
    return _merged(runs)


def _line(node: Node) -> Hashable:
    return node.source and (node.source.file, node.source.line)


def _function(node: Node) -> Hashable:
    return node.source and (node.source.file, node.source.function)


def _runs(
    nodes: Sequence[Node], module: Callable[[Node], Place | None], other: Callable[[Node], Hashable]
) -> list[Box]:
    """Consecutive nodes of the same module, or in none of the same ``other``; derivatives apart from what they are
    derived of, placeholders apart from ops."""
    runs: list[tuple[Hashable, Place | None, list[Node]]] = []
    for node in nodes:
        place = module(node)
        is_fed = node.op.name == "placeholder"
        key = (is_fed, node.primal is None, place if place is not None else None if is_fed else other(node))
        if not runs or runs[-1][0] != key:
            runs.append((key, place, []))
        runs[-1][2].append(node)
    return [Box(tuple(members), place) for _, place, members in runs]


def _merged(runs: Sequence[Box]) -> list[Box]:
    """The boxes with neighbours joined, in groups of the size that it takes."""
    share = -(-len(runs) // MOST)
    together = [runs[first : first + share] for first in range(0, len(runs), share)]
    return [Box(tuple(node for box in boxes for node in box.nodes), None) for boxes in together]


# -- rows -----------------------------------------------------------------------------------------------------------


def _rows(boxes: Sequence[Box], arrows: Sequence[tuple[Box, Box]]) -> list[tuple[Box, ...]]:
    """Boxes below all that lead to them, each row in the order that its arrows come from, long rows as several."""
    before: dict[Box, list[Box]] = {box: [] for box in boxes}
    for source, box in arrows:
        before[box].append(source)
    depth: dict[Box, int] = {}
    rows: dict[int, list[Box]] = {}
    for box in boxes:  # consecutive runs: all that leads to one comes before it
        depth[box] = 1 + max((depth[source] for source in before[box]), default=-1)
        rows.setdefault(depth[box], []).append(box)
    _sink_sources(rows, depth, before, arrows)
    place: dict[Box, float] = {}
    ordered: list[tuple[Box, ...]] = []
    for number in sorted(rows):
        row = rows[number]
        middle = {box: _mean([place[source] for source in before[box]]) for box in row}
        row.sort(key=middle.__getitem__)
        place |= {box: (column + 0.5) / len(row) for column, box in enumerate(row)}
        ordered += [tuple(row[first : first + IN_A_ROW]) for first in range(0, len(row), IN_A_ROW)]
    return ordered


def _sink_sources(
    rows: dict[int, list[Box]], depth: dict[Box, int], before: dict[Box, list[Box]], arrows: Sequence[tuple[Box, Box]]
) -> None:
    """Put what nothing leads to right above the first box that reads it."""
    first: dict[Box, int] = {}
    for source, box in arrows:
        if not before[source]:
            first[source] = min(first.get(source, depth[box]), depth[box])
    for source, below in first.items():
        if below - 1 > depth[source]:
            rows[depth[source]].remove(source)
            rows.setdefault(below - 1, []).append(source)
            depth[source] = below - 1
    for number in [number for number, row in rows.items() if not row]:
        del rows[number]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.5
