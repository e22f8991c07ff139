"""Residuals: the values of a forward that derivatives read, what computing them again takes, and which are kept.

    residual       a value that a derivative reads and that depends on no cotangent
    kept           it lies in memory from the forward to the derivative: in the block of a tape, or stacked by a loop,
                   one row a turn
    rematerialized it is computed again where it is read, from kept values and from what is there anyway

One order of work, ``Remat``, decides what may be rematerialized: a tape goes up to views, and up to elementwise ops in
what derivative rules declare, under a budget further (``tapes/choice.py``); a loop likewise, and where its stacks
outgrow the caches through what is ``AS_READ`` (``autodiff/loops.py``); a checkpoint through all that can be repeated
(``autodiff/again.py``). Which values are kept then is one minimum cut, ``select``. What a whole program rematerializes
to fit a budget, ``steps/recompute.py`` decides later, by the time that its steps take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum

from staticgrad.graph.graph import Node, Tensor
from staticgrad.ops.control.bodies import bodies_of, draws
from staticgrad.ops.control.loops import LoopAttributes


class Remat(IntEnum):
    """The work of computing a node's results again, from least to most."""

    FREE = 0  # nothing: they follow from the program or from sizes
    VIEW = 1  # another index map
    CHEAP = 2  # elementwise, about as long as reading them
    ELEMENTWISE = 3
    COPY = 4  # about as long as reading them, but they may need memory
    KERNEL = 5
    BODIES = 6  # a loop or branches
    DRAW = 7  # the random numbers that were drawn
    NEVER = 8  # effects, loops and branches that draw or have effects, values that are given


AS_READ = frozenset({Remat.VIEW, Remat.CHEAP, Remat.COPY})  # that take no longer than reading them from far memory


def remat(node: Node) -> Remat:
    """The work of computing the results of ``node`` again from its operands."""
    op = node.op
    if op.rematerializable:
        return Remat.FREE
    if op.draws:
        return Remat.DRAW
    if op.effect or not node.inputs:
        return Remat.NEVER
    if op.view:
        return Remat.VIEW
    if op.cheap:
        return Remat.CHEAP if op.elementwise else Remat.COPY
    if op.elementwise:
        return Remat.ELEMENTWISE
    bodies = bodies_of(node)
    if any(n.op.effect or draws(n) for body in bodies for n in body.graph.nodes):
        return Remat.NEVER
    return Remat.BODIES if bodies else Remat.KERNEL


def keeps_little(node: Node) -> bool:
    """True for a loop with a ``checkpoint``: what derivatives have it stack is not kept, neither in a tape nor in a
    stack of a loop around it, but the loop is run again for them."""
    return isinstance(node.attrs, LoopAttributes) and node.attrs.checkpoint is not None


def select(
    wanted: Iterable[Tensor], operands: Callable[[Tensor], Sequence[Tensor] | None], cost: Callable[[Tensor], int]
) -> set[Tensor]:
    """The values to keep, so that all that is wanted can be computed from them: those that cost least in all.

    Args:
        operands: from which a value is rematerialized, without those that need not be kept; None where it must not be.
        cost: of keeping a value.
    """
    edges: dict[Tensor, tuple[Tensor, ...]] = {}
    sources: set[Tensor] = set()
    stack = [*wanted]
    sinks = set(stack)
    while stack:
        x = stack.pop()
        if x not in edges:
            found = operands(x)
            if found is None:
                sources.add(x)
            edges[x] = tuple(dict.fromkeys(found or ()))
            stack.extend(edges[x])
    costs = {x: cost(x) for x in edges}
    chosen: set[Tensor] = set()
    for part in _components(edges):
        chosen |= _minimum_cut({x: edges[x] for x in part}, sources, sinks, costs)
    return chosen


def _components(edges: Mapping[Tensor, Sequence[Tensor]]) -> list[list[Tensor]]:
    """The tensors that hang together, each in order."""
    root: dict[Tensor, Tensor] = {x: x for x in edges}

    def find(x: Tensor) -> Tensor:
        while root[x] is not x:
            root[x] = root[root[x]]
            x = root[x]
        return x

    for x, operands in edges.items():
        for y in operands:
            root[find(x)] = find(y)
    parts: dict[Tensor, list[Tensor]] = {}
    for x in edges:
        parts.setdefault(find(x), []).append(x)
    return list(parts.values())


def _minimum_cut(
    edges: Mapping[Tensor, Sequence[Tensor]], sources: set[Tensor], sinks: set[Tensor], cost: Mapping[Tensor, int]
) -> set[Tensor]:
    """The cheapest set that every way from a source to a sink meets; ``edges``, of tensors that hang together, lead to
    operands."""
    here = [x for x in edges if x in sources]
    if len(here) == len(edges):
        return {x for x in edges if x in sinks}
    if not here:
        return set()
    if len(here) == 1 and (here[0] in sinks or all(cost[x] >= cost[here[0]] for x in edges)):
        return {here[0]}
    import networkx as nx

    number = {x: 2 * index for index, x in enumerate(edges)}  # even: where a tensor begins, odd: where it is read
    network = nx.DiGraph()
    for x, operands in edges.items():
        network.add_edge(number[x], number[x] + 1, capacity=cost[x])
        if x in sources:
            network.add_edge("source", number[x])
        if x in sinks:
            network.add_edge(number[x] + 1, "sink")
        for y in operands:
            network.add_edge(number[y] + 1, number[x])
    _, (near, _far) = nx.minimum_cut(network, "source", "sink")
    return {x for x in edges if number[x] in near and number[x] + 1 not in near}
