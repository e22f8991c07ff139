"""A graph for a notebook: its sizes, a sketch of at most some fifty boxes, its modules, what it is fed.

Input: a graph. Output: HTML whose size does not grow with the graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from staticgrad.base.frozen import frozen
from staticgrad.base.tables import abridged, byte_text, count_text
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.html.boxes import Box, layers_of, modules_of
from staticgrad.graph.html.markup import (
    Markup,
    block,
    drawing,
    element,
    escaped,
    folded,
    label,
    more,
    shortened,
    source_cell,
    table,
    tooltip,
)
from staticgrad.graph.naming import Place, way_out

ROWS = 40  # of a table
WIDTH, HEIGHT, GAP, RISE, EDGE = 136, 34, 14, 26, 8  # of boxes, between them, around them; in pixels
SIDE, REACH = 120, 1500  # room for arrows that pass by rows, and how many pixels down one leads that takes all of it
LETTERS = 21  # that fit into a box
LINES = 12  # of the tooltip of a box
HUES = {"placeholder": "#4a90d9", "variable": "#3fa66b", "module": "#d98a3d", "effect": "#c9504c", "": "#8a8a8a"}


def graph_html(graph: Graph) -> str:
    """All that a notebook shows of a graph."""
    graph.settle_names()
    variables = list(graph.variables.values())
    said = (
        f"{len(graph.nodes)} ops, {len(variables)} variables of {count_text(_elements(variables))} elements"
        f" ({byte_text(_bytes(variables))})"
    )
    counts = Counter(node.op.name for node in graph.nodes)
    fed = [node.outputs[0] for node in graph.nodes if node.op.name == "placeholder"]
    kinds = abridged([f"{name} {count}" for name, count in counts.most_common()], ROWS)
    parts: list[Markup] = [folded("sketch", sketch(graph), open_=True)] if graph.nodes else []
    if any(node.module is not None for node in graph.nodes):
        parts.append(folded("modules", _modules(graph), open_=True))
    if fed:
        parts.append(folded("placeholders", _tensors(fed, "placeholders")))
    if variables:
        parts.append(folded("variables", _tensors(variables, "variables")))
    if counts:
        parts.append(folded("ops", element("div", kinds)))
    return block("graph", said, *parts)


def _elements(variables: Iterable[Tensor]) -> int:
    return sum(x.size for x in variables if isinstance(x.size, int))


def _bytes(variables: Iterable[Tensor]) -> int:
    return sum(x.size * x.dtype.itemsize for x in variables if isinstance(x.size, int))


def _tensors(tensors: Sequence[Tensor], what: str) -> Markup:
    rows = [(shortened(x.name, 60), x.type, source_cell(x.source)) for x in tensors[:ROWS]]
    return element("div", table(("name", "type", "line"), rows), more(tensors, ROWS, what))


# -- modules --------------------------------------------------------------------------------------------------------


class _ModuleSummary:
    """The figures of one module: its path and kind, and the ops, derived ops and variables that its calls and those of
    the modules in it declare."""

    def __init__(self, place: Place) -> None:
        self.path = [home.name for home in reversed(way_out(place.held))]
        self.kind = place.kind
        self.ops = self.derived = 0
        self.variables: dict[Tensor, None] = {}


def _modules(graph: Graph) -> Markup:
    """A row for each module, or for those of the upper levels where they are many."""
    known: dict[Place, _ModuleSummary] = {}
    chains: dict[Place | None, list[Place]] = {}
    outside = 0
    for node in graph.nodes:
        chain = chains.get(node.module)
        if chain is None:
            chain = chains[node.module] = modules_of(node)
        outside += not chain and node.op.name != "variable"
        read = [x for x in node.inputs if x.op.op.name == "variable"]
        for place in chain:
            module = known.get(place) or known.setdefault(place, _ModuleSummary(place))
            module.ops += node.primal is None
            module.derived += node.primal is not None
            module.variables.update(dict.fromkeys(read))
    modules = _in_tree(known)
    rows = [_row(module) for module in modules[:ROWS]]
    rows.append(("outside of modules", "", outside, "", "", ""))
    header = ("module", "kind", "ops", "of derivatives", "parameters", "bytes")
    return element("div", table(header, rows, right=(2, 3, 4, 5)), more(modules, ROWS, "modules"))


def _in_tree(known: dict[Place, _ModuleSummary]) -> list[_ModuleSummary]:
    """Modules in the order of their first calls, those inside of another one after it; upper levels where a table would
    not hold all."""
    inside: dict[Place | None, list[Place]] = {}
    for place in known:
        path = way_out(place.held)
        inside.setdefault(path[0].place if path else None, []).append(place)

    def listed(place: Place | None, depth: int) -> list[_ModuleSummary]:
        own = [] if place is None else [known[place]]
        return own + [m for inner in inside.get(place, ()) if depth for m in listed(inner, depth - 1)]

    deepest = max(len(module.path) for module in known.values()) + 1
    for depth in range(deepest, 0, -1):
        modules = listed(None, depth)
        if len(modules) <= ROWS:
            break
    return modules


def _row(module: _ModuleSummary) -> tuple[object, ...]:
    indent = element("span", shortened(module.path[-1] if module.path else module.kind, 60),
                     style=f"padding-left:{1.2 * len(module.path):.6g}em")  # fmt: skip
    size = count_text(_elements(module.variables))
    return indent, module.kind, module.ops, module.derived or "", size, byte_text(_bytes(module.variables))


# -- the sketch -----------------------------------------------------------------------------------------------------


def sketch(graph: Graph) -> Markup:
    """The graph as boxes in rows from top to bottom, with arrows between them."""
    layers = layers_of(graph)
    widest = max(map(len, layers.rows), default=1)
    width = widest * (WIDTH + GAP) - GAP + 2 * EDGE
    spots: dict[Box, tuple[float, float]] = {}
    for number, row in enumerate(layers.rows):
        left = (width - len(row) * (WIDTH + GAP) + GAP) / 2
        for column, box in enumerate(row):
            spots[box] = left + column * (WIDTH + GAP), EDGE + number * (HEIGHT + RISE)
    height = len(layers.rows) * (HEIGHT + RISE) - RISE + 2 * EDGE
    arrows = [_arrow(spots[source], spots[box], width) for source, box in layers.arrows]
    boxes = [_box(box, *spots[box]) for row in layers.rows for box in row]
    return drawing(width + SIDE, height, *arrows, *boxes)


def _arrow(source: tuple[float, float], target: tuple[float, float], edge: float) -> Markup:
    """From a box to one in the next row; to one farther below around what is between, right of ``edge``."""
    x, y = source[0] + WIDTH / 2, source[1] + HEIGHT
    to_x, to_y = target[0] + WIDTH / 2, target[1]
    if to_y - y <= RISE:
        path = f"M{x:g} {y:g}C{x:g} {y + RISE / 2:g} {to_x:g} {to_y - RISE / 2:g} {to_x:g} {to_y:g}"
        return element("path", d=path, fill="none", stroke="currentColor", stroke_opacity=0.45)
    x, y, to_x, to_y = source[0] + WIDTH, y - HEIGHT / 2, target[0] + WIDTH, to_y + HEIGHT / 2
    aside = edge + SIDE * min(1.0, 0.15 + (to_y - y) / REACH)  # a curve gets three quarters of the way there
    path = f"M{x:g} {y:g}C{aside:g} {y:g} {aside:g} {to_y:g} {to_x:g} {to_y:g}"
    return element("path", d=path, fill="none", stroke="currentColor", stroke_opacity=0.25)


@frozen
class _Said:
    """The text of a box: two lines in it, its colour, the lines of its tooltip."""

    first: str
    second: str
    hue: str
    tip: Sequence[str]


def _box(box: Box, x: float, y: float) -> Markup:
    said = _said(box)
    frame = element("rect", x=x, y=y, width=WIDTH, height=HEIGHT, rx=4, fill=said.hue, fill_opacity=0.22,
                    stroke=said.hue)  # fmt: skip
    middle = x + WIDTH / 2
    return element(
        "g",
        element("title", *(Markup(escaped(line) + "\n") for line in map(tooltip, said.tip))),
        frame,
        label(shortened(said.first, LETTERS), middle, y + 14),
        label(shortened(said.second, LETTERS + 3), middle, y + 27, font_size=9, opacity=0.7),
    )


def _said(box: Box) -> _Said:
    first = box.nodes[0]
    mark = "" if first.primal is None else "∂ "
    if len(box.nodes) == 1 and box.module is None:
        return _said_of_op(first, mark)
    counts = Counter(node.op.name for node in box.nodes)
    tip = [f"{name} {count}" for name, count in counts.most_common(LINES)]
    tip += [f"… {len(counts) - LINES} more"] if len(counts) > LINES else []
    second = f"{len(box.nodes)} op{'s' * (len(box.nodes) > 1)}"
    if first.op.name == "placeholder" and len(counts) == 1:
        names = [repr(node.name) for node in box.nodes]
        return _Said("placeholders", abridged(names), HUES["placeholder"], names[:LINES])
    if box.module is not None:
        name = ".".join(home.name for home in reversed(way_out(box.module.held))) or box.module.kind
        return _Said(
            mark + _end(name), f"{box.module.kind}, {second}", HUES["module"], [f"{name} ({box.module.kind})", *tip]
        )
    hue = HUES["effect" if any(node.op.effect for node in box.nodes) else ""]
    sources = dict.fromkeys(str(node.source) for node in box.nodes if node.source is not None)
    where = first.source
    title = where.text or where.function if where is not None else "ops"
    if len(sources) > 1:
        title = f"{where.function if where is not None else ''} … {len(sources)} lines"
    return _Said(mark + title, second, hue, [*list(sources)[:LINES], *tip])


def _end(name: str) -> str:
    """A path, its beginning left out where it is long: modules differ in their ends."""
    return name if len(name) <= LETTERS - 2 else "…" + name[3 - LETTERS :]


def _said_of_op(node: Node, mark: str) -> _Said:
    kind = node.op.name
    hue = HUES[kind if kind in HUES else "effect" if node.op.effect else ""]
    types = abridged([str(y.type) for y in node.outputs])
    is_named = node.name.rstrip("_0123456789") != kind
    second = f"{kind} {types}" if is_named and kind not in HUES else types
    tip = [f"{node.name!r} = {kind}", types, *([str(node.source)] if node.source is not None else [])]
    return _Said(mark + (node.name if is_named else kind), second, hue, tip)
