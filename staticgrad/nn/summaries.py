"""A network as a table: its modules, what they give, their parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from staticgrad.base.frozen import frozen
from staticgrad.base.tables import byte_text, count_text, table
from staticgrad.graph.graph import Node, Tensor
from staticgrad.graph.html import markup
from staticgrad.graph.html.boxes import modules_of
from staticgrad.graph.naming import Place
from staticgrad.nn.module import Module

HEADER = ("module", "kind", "gives", "parameters", "of them trained", "bytes")


@frozen
class ModuleRow:
    """A module of a network.

    Attributes:
        name: the path of attributes that leads to it, "" for the network itself.
        kind: the name of its class.
        gives: the type of what its last call gave, such as ``float32[batch, 10]``; "" if it was not called.
        parameters: elements of its parameters, with those of the modules in it. ``trained``: those of them that require
            a gradient. ``nbytes``: of its parameters and buffers.
    """

    name: str
    kind: str
    gives: str
    parameters: int
    trained: int
    nbytes: int


@frozen
class NetworkSummary:
    """A network as a table, which prints and shows itself in notebooks: ``rows`` has a row for each module, the network
    itself first."""

    rows: tuple[ModuleRow, ...]

    def __str__(self) -> str:
        return table(HEADER, [self._cells(row, "  " * _depth(row)) for row in self.rows], right=(3, 4, 5))

    def __repr__(self) -> str:
        return f"<summary: {self._head}>"

    def _repr_html_(self) -> str:
        cells = [self._cells(row, "\N{NO-BREAK SPACE}" * 4 * _depth(row)) for row in self.rows]
        return markup.block("network", self._head, markup.table(HEADER, cells, right=(3, 4, 5)))

    @property
    def _head(self) -> str:
        whole = self.rows[0]
        return f"{whole.kind}, {count_text(whole.parameters)} parameters, {byte_text(whole.nbytes)}"

    def _cells(self, row: ModuleRow, indent: str) -> tuple[str, ...]:
        last = row.name.rpartition(".")[2] or row.kind
        return indent + last, row.kind, row.gives, f"{row.parameters:,}", f"{row.trained:,}", byte_text(row.nbytes)


def _depth(row: ModuleRow) -> int:
    return row.name.count(".") + 1 if row.name else 0


def summary(module: Module) -> NetworkSummary:
    """A table of a network: its modules with what they give, their parameters, and bytes.

    What a module gives is the type of the last op that its last call declared: call the network before. Sizes that are
    open stand there by their names. A variable that several modules hold counts in each of them once.

    Example:
        >>> net = sg.nn.Sequential(sg.nn.Linear(4, 8), sg.nn.ReLU(), sg.nn.Linear(8, 2))
        >>> y = net(sg.placeholder((sg.dim("batch"), 4)))
        >>> print(sg.nn.summary(net))
        module      kind        gives              parameters  of them trained  bytes
        Sequential  Sequential  float32[batch, 2]          58               58  232 B
          0         Linear      float32[batch, 8]          40               40  160 B
          1         ReLU        float32[batch, 8]           0                0    0 B
          2         Linear      float32[batch, 2]          18               18   72 B
    """
    modules = dict(module.named_modules())
    given = _given(module)
    return NetworkSummary(tuple(_row(name, inner, given.get(inner._holder_place)) for name, inner in modules.items()))


def _given(module: Module) -> dict[Place, Tensor]:
    """By module, the result of the last op that a call of it declared."""
    found: dict[Place, Tensor] = {}
    chains: dict[Place | None, list[Place]] = {}
    for node in _forward_nodes(module.parameters()):
        if node.module not in chains:
            chains[node.module] = modules_of(node)
        found.update(dict.fromkeys(chains[node.module], node.outputs[0]))
    return found


def _forward_nodes(parameters: Iterable[Tensor]) -> Iterator[Node]:
    """The nodes of the parameters' graph that users have declared and that give something, in their order."""
    first = next(iter(parameters), None)
    if first is not None:
        yield from (x for x in first.graph.nodes if x.primal is None and x.outputs and x.op.name != "assign")


def _row(name: str, module: Module, given: Tensor | None) -> ModuleRow:
    parameters, buffers = list(dict.fromkeys(module.parameters())), list(dict.fromkeys(module.buffers()))
    return ModuleRow(
        name, type(module).__name__, "" if given is None else str(given.type), sum(map(_elements, parameters)),
        sum(_elements(x) for x in parameters if x.requires_grad),
        sum(_elements(x) * x.dtype.itemsize for x in parameters + buffers),
    )  # fmt: skip


def _elements(variable: Tensor) -> int:
    return math.prod(map(int, variable.shape))
