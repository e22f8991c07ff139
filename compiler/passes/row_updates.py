"""Row updates: an update of a variable that changes few of its rows reads and writes those alone.

    G = scatter_add(zeros, updates, index)           C = scatter_add(zeros, updates, slot of each index)
    assign(v, f(v, G, …))                       =>   assign_rows(v, f(v[row of each slot], C, …), …)
    sum(g(G))                                   =>   sum(g(C))

The gradient of a table of embeddings is a ``scatter_add`` into zeros, as large as the table. Where nothing else needs
it, ``f`` leaves a row as it is whose gradient is zero, and ``g`` of zero is zero (the square, of which the norms are
made that gradients are clipped to), nothing of the table's size is computed. The indices are sorted, equal ones share
the slot of the first, and rows of the other slots are not kept. The terms of a row are added in the order in which the
whole gradient adds them, so the bits are the same; sums over rows may be added up in another order. Several gradients
of one table share slots; the state of an optimizer is a variable like the table, and all are updated so, or none.

Input: a region of primitives. Indices may be an open number of a range, of whose greatest the rows are a multiple.
Left alone: gradients that something else reads, as a fetch or an accumulated gradient does, and what is computed for
every shard; updates in which a row depends on others; tables that a loop carries; indices in a number that is a
large part of that of the rows, where the whole is sooner done; an open number of rows.

That ``f`` keeps rows is found by rules that hold for finite rates and norms and quotients that are no 0 / 0:
0·a = 0 / a = √0 = -0 = 0 and a ± 0 = a, of bounds max(0, a) = 0 where a <= 0, and of masks 0 > 0 is false and
where(false, a, b) = b.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from staticgrad.base.extents import highest, is_open, is_same, lowest
from staticgrad.base.types import sizes
from staticgrad.compiler.passes.cse import cse
from staticgrad.compiler.passes.dce import dce
from staticgrad.compiler.passes.expand import expand
from staticgrad.compiler.passes.simplify import uniform
from staticgrad.compiler.regions.region import Region, rebuild, users_of
from staticgrad.graph.graph import Node, Tensor, get_default_graph
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.ops.effects import ASSIGN, ASSIGN_ROWS
from staticgrad.ops.indexing.gathering import SCATTER_ADD
from staticgrad.ops.indexing.slots import slots_of
from staticgrad.ops.sources import VARIABLE

ROWS_FOR_INDEX = 4  # of the table for each index, from which on its rows are updated alone
LEAST_ELEMENTS = 1 << 14  # of a table; a smaller one is updated at once

ZERO_STAYS = frozenset({"negative", "identity", "astype", "sqrt", "abs", "square", "sign"})


def row_updates(region: Region) -> Region:
    """Rewrite the updates of tables of which few rows have a gradient."""
    gradients = [node for node in region.graph.nodes if _is_gradient(node)]
    found = _RowSearch(region).ends(gradients) if gradients else set()
    if not found:
        return region
    slots: dict[tuple[Node, ...], _SlotRows] = {}

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        if node not in found:
            return None
        value = inputs[0]
        read = tuple(gradients_of(value))
        if read not in slots:
            slots[read] = _SlotRows(read)
        return slots[read].write(node, value) if node.op is ASSIGN else slots[read].total(node, value)

    return dce(cse(expand(rebuild(region, visit))))


def _is_gradient(node: Node) -> bool:
    """True of few rows that are added to zeros."""
    if node.op is not SCATTER_ADD or node.attrs.axes != (0,) or uniform(node.inputs[0]) != 0:
        return False
    shape, count = sizes(node.outputs[0].shape), math.prod(sizes(node.inputs[2].shape))
    if any(map(is_open, shape)):
        return False
    return lowest(count) > 0 and shape[0] >= ROWS_FOR_INDEX * highest(count)


def gradients_of(x: Tensor) -> list[Node]:
    """The gradients of a table from which its new value ``x`` is computed element by element."""
    found: list[Node] = []
    seen, stack = {x}, [x]
    while stack:
        node = stack.pop().op
        if _is_gradient(node):
            found.append(node)
        elif node.op.elementwise:
            new = [y for y in dict.fromkeys(node.inputs) if y not in seen and _is_table(y, x)]
            seen.update(new)
            stack += new
    return sorted(found, key=lambda node: node.serial)


def _is_table(y: Tensor, x: Tensor) -> bool:
    """True if ``y``, an operand of ``x``, has a row for each of its rows, if of fewer elements."""
    return y.ndim == x.ndim and is_same(y.shape[:1], x.shape[:1])


# -- what can be done by rows -----------------------------------------------------------------------------------------

# A value where the gradient is zero: a number (of false 0), that of a variable, by its key, another.
AtZero = float | str | None


class _RowSearch:
    """Finds the ends of gradients that can be done by rows: writes, and reductions of all rows."""

    def __init__(self, region: Region) -> None:
        self.users = users_of(region)
        self.fetched = set(region.fetches)
        self.by_rows: dict[Tensor, bool] = {}
        self.at_zero: dict[Tensor, AtZero] = {}

    def ends(self, gradients: Sequence[Node]) -> set[Node]:
        found: set[Node] = set()
        tried: set[Node] = set()
        for gradient in gradients:
            if gradient not in tried:
                found.update(self._ends_of(gradient, tried) or ())
        return found

    def _ends_of(self, gradient: Node, tried: set[Node]) -> list[Node] | None:
        """The ends to which a gradient leads, and others that lead there; None where one has to be done whole."""
        table = gradient.outputs[0]
        ends: list[Node] = []
        seen: set[Node] = set()
        stack = [gradient]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            y = node.outputs[0]
            if _is_total(node):
                ends.append(node)
                stack += gradients_of(node.inputs[0])
                continue
            if y in self.fetched or not _is_table(y, table):
                return None
            if node.op is ASSIGN:
                if self.users[y]:
                    return None
                ends.append(node)
                stack += gradients_of(node.inputs[0])
                continue
            if _is_gradient(node):
                tried.add(node)
            elif not node.op.elementwise:
                return None
            stack += self.users[y]
        return ends if all(map(self._is_fit, ends)) else None

    def _is_fit(self, end: Node) -> bool:
        x = end.inputs[0]
        is_large = math.prod(sizes(x.shape)) >= LEAST_ELEMENTS
        kept = end.attrs.key if end.op is ASSIGN else 0
        return is_large and self._is_by_rows(x) and self._at_zero(x) == kept

    def _is_by_rows(self, x: Tensor) -> bool:
        """True if each row of ``x`` follows from that row of tables, and from what all rows share."""
        if x not in self.by_rows:
            node = x.op
            self.by_rows[x] = node.op is VARIABLE or _is_gradient(node) or (
                node.op.elementwise and all(_is_shared(y, x) or self._is_by_rows(y) for y in node.inputs)
            )  # fmt: skip
        return self.by_rows[x]

    def _at_zero(self, x: Tensor) -> AtZero:
        if x not in self.at_zero:
            node = x.op
            value: AtZero = None
            if _is_gradient(node):
                value = 0
            elif (number := uniform(x)) is not None:
                value = number
            elif node.op is VARIABLE:
                value = node.attrs.key
            elif node.op.elementwise:
                value = _of_operands(node, [self._at_zero(y) for y in node.inputs])
            self.at_zero[x] = value
        return self.at_zero[x]


def _is_total(node: Node) -> bool:
    """True of a reduction of all rows, in which zeros may be left out."""
    return node.op.name in ("sum", "max", "min") and 0 in node.attrs.axes


def _is_shared(x: Tensor, of: Tensor) -> bool:
    """True if all rows of ``of``, of which ``x`` is an operand, read the same of it."""
    return x.ndim < of.ndim or x.shape[0] == 1 or uniform(x) is not None


def _of_operands(node: Node, values: Sequence[AtZero]) -> AtZero:
    """The value of an elementwise node, where those of its operands are known."""
    match node.op.name, values:
        case name, [0] if name in ZERO_STAYS:
            return 0
        case "identity" | "astype", [value]:  # an update is computed in a wider dtype, and comes back
            return value
        case "multiply", [0, _] | [_, 0]:
            return 0
        case "maximum", [0, float(bound)] | [float(bound), 0] if bound <= 0:
            return 0
        case "minimum", [0, float(bound)] | [float(bound), 0] if bound >= 0:
            return 0
        case "clip", [0, float(low), float(high)] if low <= 0 <= high:
            return 0
        case "greater" | "logical_or", [0, 0]:
            return 0
        case "where", [0, _, value]:
            return value
        case "divide", [0, _]:
            return 0
        case "add" | "subtract", [value, 0]:
            return value
        case "add", [0, value]:
            return value
    return None


# -- the rows ---------------------------------------------------------------------------------------------------------


class _SlotRows:
    """Places for the rows that gradients name, and what is computed there."""

    def __init__(self, gradients: Sequence[Node]) -> None:
        self.control = tuple(dict.fromkeys(before for node in gradients for before in node.control))
        self.rows: dict[Tensor, Tensor] = {}
        start = len(get_default_graph().nodes)
        indices = [o.reshape(node.inputs[2], (math.prod(sizes(node.inputs[2].shape)),)) for node in gradients]
        found = slots_of(indices)
        self.index, self.kept = found.row, found.kept
        for node, slot in zip(gradients, found.slots, strict=True):
            updates, rest = node.inputs[1], sizes(node.outputs[0].shape)[1:]
            zeros = o.zeros((*found.row.shape, *rest), dtype=updates.dtype)
            self.rows[node.outputs[0]] = o.scatter_add(zeros, o.reshape(updates, (*slot.shape, *rest)), slot)
        self._wait(start)

    def write(self, node: Node, value: Tensor) -> Sequence[Tensor]:
        """Write the rows of a variable's new value."""
        graph = get_default_graph()
        start = len(graph.nodes)
        rows = self._rows_of(value)
        variable = next(n.outputs[0] for n in graph.nodes if n.op is VARIABLE and n.attrs.key == node.attrs.key)
        self._wait(start)
        return graph.add(ASSIGN_ROWS, (rows, self.index, self.kept, variable), node.attrs).outputs

    def total(self, node: Node, value: Tensor) -> Sequence[Tensor]:
        """Reduce the rows of ``value``, beside which there are zeros."""
        graph = get_default_graph()
        start = len(graph.nodes)
        y = graph.add(node.op, (self._rows_of(value),), node.attrs).outputs[0]
        self._wait(start)
        if node.op.name == "sum":
            return (y,)
        return (o.maximum(y, 0) if node.op.name == "max" else o.minimum(y, 0),)

    def _wait(self, start: int) -> None:
        """Have what was declared, which reads at indices, come after the checks of these."""
        for node in get_default_graph().nodes[start:]:
            node.control = tuple(dict.fromkeys((*node.control, *self.control)))

    def _rows_of(self, x: Tensor) -> Tensor:
        """The rows of a tensor that have a slot."""
        if x not in self.rows:
            node = x.op
            if node.op is VARIABLE:
                self.rows[x] = o.gather(x, self.index)
            else:
                operands = [self._operand(y, x) for y in node.inputs]
                self.rows[x] = get_default_graph().add(node.op, operands, node.attrs, control=node.control).outputs[0]
        return self.rows[x]

    def _operand(self, y: Tensor, x: Tensor) -> Tensor:
        if not _is_shared(y, x):
            return self._rows_of(y)
        if (number := uniform(y)) is not None:
            return o.full((), number, dtype=y.dtype)
        return y
