"""Minimum cut: which values to keep, so that all that is read later can be computed from them, at the least cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from staticgrad.graph import Tensor


def minimum_cut(
    edges: Mapping[Tensor, Sequence[Tensor]], sources: set[Tensor], sinks: set[Tensor], cost: Mapping[Tensor, int]
) -> set[Tensor]:
    """The cheapest set of tensors that every way from a source to a sink meets; ``edges`` lead to operands."""
    chosen: set[Tensor] = set()
    for part in _components(edges):
        chosen |= _of_component({x: edges[x] for x in part}, sources, sinks, cost)
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


def _of_component(
    edges: Mapping[Tensor, Sequence[Tensor]], sources: set[Tensor], sinks: set[Tensor], cost: Mapping[Tensor, int]
) -> set[Tensor]:
    """As ``minimum_cut``, of tensors that hang together."""
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
