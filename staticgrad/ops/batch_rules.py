"""Batch rules: how an op goes over many examples at once (``vmap``), as far as ops share it.

Input: a node over ``size`` examples, whose operands have an axis of examples in front or are the same for all. Output:
its results with that axis in front, declared into the current graph. An op names its rule in its entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from staticgrad.base.types import Size
from staticgrad.graph.graph import Tensor, get_default_graph
from staticgrad.graph.optable import BatchedNode, Namespace


class Leading(Protocol):
    """Attributes of an op that can make room for one more axis in front of every operand and result."""

    def leading(self, size: Size) -> Any: ...


def again(node: BatchedNode[Any], inputs: Sequence[Tensor], attrs: Any) -> Sequence[Tensor]:
    """The results of the same op with other operands and attributes."""
    return get_default_graph().add(node.op, inputs, attrs).outputs


def each(o: Namespace, node: BatchedNode[Any], position: int) -> Tensor:
    """An operand for each example."""
    x = node.inputs[position]
    return x if node.batched[position] else o.broadcast_to(x, (node.size, *x.shape))


def every(o: Namespace, node: BatchedNode[Any], first: int = 0) -> list[Tensor]:
    """The operands for each example, from number ``first`` on."""
    return [each(o, node, position) for position in range(first, len(node.inputs))]


def aligned(o: Namespace, node: BatchedNode[Any], position: int, rank: int) -> Tensor:
    """An operand that broadcasts against others of ``rank`` axes in addition to that of the examples."""
    x = node.inputs[position]
    if not node.batched[position] or x.ndim == rank + 1:
        return x
    return o.reshape(x, (x.shape[0], *(1,) * (rank + 1 - x.ndim), *x.shape[1:]))


def broadcasting(o: Namespace, node: BatchedNode[Any]) -> Sequence[Tensor]:
    """The rule of an elementwise op: its operands broadcast."""
    rank = max(x.ndim - flag for x, flag in zip(node.inputs, node.batched, strict=True))
    return again(node, [aligned(o, node, position, rank) for position in range(len(node.inputs))], node.attrs)


def last_axes(o: Namespace, node: BatchedNode[Any]) -> Sequence[Tensor]:
    """The rule of an op over the last axes of its operands: more axes in front change nothing."""
    return again(node, every(o, node), node.attrs)


def leading(o: Namespace, node: BatchedNode[Leading]) -> Sequence[Tensor]:
    """The rule of an op whose attributes make room for one more axis in front."""
    return again(node, every(o, node), node.attrs.leading(node.size))


def by_example(o: Namespace, node: BatchedNode[Any]) -> Sequence[Tensor]:
    """The rule of an op that goes example by example, in a loop of the compiled program."""

    def one(rows: Sequence[Tensor]) -> Sequence[Tensor]:
        rest = iter(rows)
        inputs = [next(rest) if flag else x for x, flag in zip(node.inputs, node.batched, strict=True)]
        return tuple(again(node, inputs, node.attrs))

    made: Sequence[Tensor] = o.map(one, tuple(x for x, flag in zip(node.inputs, node.batched, strict=True) if flag))
    return made
