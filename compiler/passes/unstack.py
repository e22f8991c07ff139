"""Unstack: tensors with a last axis of few elements become as many tensors, where sums are over that axis and over
others.

    x (…, 3) = f(a (…, 3), b (…, 1))      =>   x₀ = f(a₀, b), x₁ = f(a₁, b), x₂ = f(a₂, b)
    sum over the last axis x              =>   x₀ + x₁ + x₂
    sum over the others x                 =>   the sums of x₀, x₁ and x₂, side by side

A nest reduces over one set of axes, so colours, coordinates or classes that are summed over their axis here and over
all points there are stored between two kernels each time: an unrolled graph of 30 layers of a picture stores 90 tensors
of its size. In three tensors everything is computed at the points, in vectors along them, and nothing is stored.

Input: a region whose reductions keep their axes. Output: the same values, where a sum over the short axis adds its
elements in their order. What else reads such a tensor, or is fetched, reads a concat of the parts. Parts are loaded and
stored a few elements apart, so a component of elementwise ops and reductions stays as it is unless sums of both kinds,
of the rarer kind, are more than what crosses its border.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from staticgrad.base.extents import is_open, is_same, largest
from staticgrad.base.frozen import frozen
from staticgrad.base.types import sizes
from staticgrad.compiler.kernels.access import is_reshape
from staticgrad.compiler.kernels.body import STEP_OF
from staticgrad.compiler.regions.region import Region, rebuild, users_of
from staticgrad.graph.graph import Node, Tensor, get_default_graph
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.ops.sources import FULL
from staticgrad.ops.views.slicing import declare_slice

Shape = tuple[int, ...]

MOST_PARTS = 4
LEAST_POINTS = 512  # fewer lie in registers and the nearest cache, however many kernels there are
CROSSING = 2  # tensors that need not be stored for each that is loaded or stored in parts


def unstack(region: Region) -> Region:
    """Unstack the components of elementwise ops and reductions for which that pays."""
    found = _Components(region).worthwhile() if any(map(_is_short_sum, region.graph.nodes)) else set[Node]()
    if not found:
        return region
    parts: dict[Tensor, tuple[Tensor, ...]] = {}  # of the tensors of the new graph that were unstacked
    known: dict[tuple[Tensor, int], Tensor] = {}  # parts of others

    def part(x: Tensor, number: int) -> Tensor:
        """Part ``number`` of an operand, which every part finds in it where its last axis is broadcast."""
        if x in parts:
            return parts[x][number if len(parts[x]) > 1 else 0]
        if not x.ndim:
            return x
        number = 0 if is_same(x.shape[-1], 1) else number
        if (x, number) not in known:
            shape = sizes(x.shape)
            cut = declare_slice(x, (*(0 for _ in shape[1:]), number), (*shape[:-1], number + 1), (1,) * x.ndim)
            known[x, number] = _shown(cut, shape[:-1])
        return known[x, number]

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        result = node.outputs[0] if node.outputs else None
        if result is not None and is_reshape(node) and len(parts.get(inputs[0], ())) == 1:
            (only,) = parts[inputs[0]]
            return (_shown(only, sizes(result.shape)),)
        if node not in found or result is None:
            return None
        if node.op.elementwise:
            count = sizes(result.shape)[-1]
            made = tuple([_again(node, [part(x, number) for x in inputs]) for number in range(count)])
        else:
            made = _reduced(node, [part(inputs[0], number) for number in range(sizes(node.inputs[0].shape)[-1])])
        stacked = [o.reshape(x, (*x.shape, 1)) for x in made]
        whole = o.concat(stacked, axis=-1) if len(stacked) > 1 else stacked[0]
        parts[whole] = made
        return (whole,)

    return rebuild(region, visit)


def _shown(x: Tensor, shape: Shape) -> Tensor:
    """``x`` in another shape: what a reshape shows, where that has it."""
    base = x.op.inputs[0] if is_reshape(x.op) else x
    return base if is_same(base.shape, shape) else o.reshape(base, shape)


def _again(node: Node, inputs: Sequence[Tensor], attrs: object = None) -> Tensor:
    return get_default_graph().add(node.op, inputs, node.attrs if attrs is None else attrs).outputs[0]


def _reduced(node: Node, terms: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The parts of a reduction of an operand with the parts ``terms``."""
    axes = tuple([axis for axis in node.attrs.axes if axis < terms[0].ndim])
    if len(axes) < len(node.attrs.axes):
        total = terms[0]
        for term in terms[1:]:
            total = getattr(o, STEP_OF[node.op.name])(total, term)  # type: ignore[index]
        terms = [total]
    return tuple([_again(node, [x], replace(node.attrs, axes=axes)) if axes else x for x in terms])


# -- where it pays --------------------------------------------------------------------------------------------------


def _is_short_sum(node: Node) -> bool:
    """True for a reduction over the last axis alone, of few elements, at many points."""
    return _reduces(node) and node.attrs.axes == (node.inputs[0].ndim - 1,) and _is_long(node.inputs[0])


def _reduces(node: Node) -> bool:
    return node.op.role == "reduction" and node.op.name in STEP_OF and node.inputs[0].dtype == node.outputs[0].dtype


def _is_long(x: Tensor) -> bool:
    """True if a tensor has many points and a last axis of few elements."""
    shape = sizes(x.shape)
    if len(shape) < 2 or is_open(shape[-1]) or not 1 < shape[-1] <= MOST_PARTS:
        return False
    return largest(math.prod(shape[:-1])) >= LEAST_POINTS


@frozen
class _Border:
    """The reductions of a component, and the tensors of its own shape that come in and go out."""

    short: set[Tensor]  # that are reduced over the last axis alone
    others: set[Tensor]  # that are reduced over other axes
    crossing: set[Tensor]

    @property
    def pays(self) -> bool:
        return min(len(self.short), len(self.others)) > CROSSING * len(self.crossing)


class _Components:
    """Nodes that hang together by values of one shape with a short last axis, and by such with 1 in its place."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.users = users_of(region)
        self.fetched = set(region.fetches)
        self.leader: dict[Node, Node] = {}
        self.shape_of: dict[Node, Shape] = {}  # of the whole component, by its leader
        for node in region.graph.nodes:
            if node.control or len(node.outputs) != 1 or node.op.draws:
                continue
            if node.op.elementwise and _is_long(node.outputs[0]):
                self._enter(node, sizes(node.outputs[0].shape))
            elif _reduces(node) and _is_long(node.inputs[0]):
                self._enter(node, sizes(node.inputs[0].shape))
        self._enter_narrow()

    def _enter(self, node: Node, shape: Shape) -> None:
        self.leader[node], self.shape_of[node] = node, shape
        for x in node.inputs:
            if x.op in self.leader and is_same(self._whole(x.op), shape) and is_same(x.shape, shape):
                self._unite(x.op, node)

    def _enter_narrow(self) -> None:
        """Elementwise nodes at the points of a component, beside its members. Those next to them come in, too."""
        points = {(*shape[:-1], 1) for shape in self.shape_of.values()}
        for node in self.region.graph.nodes:
            if node in self.leader or node.control or not node.op.elementwise or len(node.outputs) != 1:
                continue
            shape = sizes(node.outputs[0].shape)
            if shape not in points or node.op.draws:
                continue
            beside = [x.op for x in node.inputs] + self.users[node.outputs[0]]
            near = [n for n in beside if n in self.leader and is_same(self._whole(n)[:-1], shape[:-1])]
            if near:
                self.leader[node] = self._find(near[0])
                for other in near[1:]:
                    if is_same(self._whole(other), self._whole(node)):
                        self._unite(other, node)

    def _find(self, node: Node) -> Node:
        while self.leader[node] is not node:
            self.leader[node] = node = self.leader[self.leader[node]]
        return node

    def _unite(self, a: Node, b: Node) -> None:
        self.leader[self._find(a)] = self._find(b)

    def _whole(self, node: Node) -> Shape:
        return self.shape_of[self._find(node)]

    def worthwhile(self) -> set[Node]:
        """The nodes of the components that are better unstacked."""
        members: dict[Node, list[Node]] = defaultdict(list)
        for node in self.leader:
            members[self._find(node)].append(node)
        paying = [nodes for nodes in members.values() if self._border(nodes).pays]
        return set().union(*paying)

    def _border(self, nodes: Sequence[Node]) -> _Border:
        border, inside = _Border(set(), set(), set()), set(nodes)
        whole = self._whole(nodes[0])
        for node in nodes:
            border.crossing.update(x for x in node.inputs if x.op not in inside and _has_size(x, whole))
            if node.op.role == "reduction":
                (border.short if _is_short_sum(node) else border.others).add(node.inputs[0])
                continue
            (y,) = node.outputs
            if is_same(y.shape, whole) and (y in self.fetched or any(user not in inside for user in self.users[y])):
                border.crossing.add(y)
        return border


def _has_size(x: Tensor, shape: Shape) -> bool:
    """True if the tensor that ``x`` shows is as large as one of ``shape``."""
    while x.op.op.view:
        x = x.op.inputs[0]
    return x.op.op is not FULL and largest(math.prod(sizes(x.shape))) >= largest(math.prod(shape))
