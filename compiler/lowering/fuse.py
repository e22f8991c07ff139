"""Fuse: which nodes share a kernel.

Input: a region of primitives. Output: groups in topological order,
each of which becomes one kernel (or, for writes, the fill before it). A nest group has a *domain*, the shape over which
it loops, and the axes it reduces; a member is an element value (of the domain's shape) or a row value (reduced axes of
size 1). Groups grow greedily: a node joins its operands' group if its shape fits, no cycle arises (``order``) and the
kernel stays small enough, and groups that meet in a node are united.

After that an elementwise group becomes the epilogue of a matrix kernel whose result it reads in place.

A nest stores what it makes for a pad, fold or scatter_add right into the result, after that has been filled. So it
depends on all that the fill depends on, a base and control edges, and on the indices, which it reads from memory: it
shares a kernel with none of them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import field
from typing import Literal

from staticgrad.base.extents import is_same, largest
from staticgrad.base.frozen import record
from staticgrad.base.phases import phase
from staticgrad.base.types import sizes
from staticgrad.compiler.kernels.access import is_view, source_of
from staticgrad.compiler.lowering.order import Order, Ordered
from staticgrad.compiler.plans.nest.facts import node_cost
from staticgrad.compiler.regions.region import Region, users_of
from staticgrad.graph.graph import Node, Tensor
from staticgrad.ops.effects import ASSIGN_ROWS

Kind = Literal["nest", "matrix", "write", "effect"]

# Instructions of one body. Values that are used far from where they are made leave the registers anyway, and short
# bodies are sooner equal to others, which saves the code generator work. So where what passes between two kernels stays
# in the cache next to the core they are short; over more elements each kernel more is another pass over memory.
LARGEST_NEAR = 250
LARGEST = 2000
NEAR_ELEMENTS = 1 << 15


@record
class Group(Ordered):
    """Nodes that share a kernel. ``anchor`` is the matrix, write or effect node; ``nodes`` are those of the nest."""

    kind: Kind = "nest"
    nodes: list[Node] = field(default_factory=list)
    domain: tuple[int, ...] = ()
    axes: tuple[int, ...] | None = None
    anchor: Node | None = None
    cost: int = 0
    last: int = 0  # the highest serial number of a member
    product: Tensor | None = None  # the result of a matrix kernel that only a member reads: this can be its epilogue

    @property
    def row_shape(self) -> tuple[int, ...]:
        axes = self.axes or ()
        return tuple(1 if axis in axes else size for axis, size in enumerate(self.domain))

    def fits(self, shape: tuple[int, ...]) -> bool:
        return is_same(shape, self.domain) or (self.axes is not None and is_same(shape, self.row_shape))

    @property
    def members(self) -> list[Node]:
        return [*self.nodes, self.anchor] if self.anchor is not None else self.nodes


def producers(x: Tensor) -> Tensor:
    """The tensor that a kernel writes or that is a source, of which a tensor is a view or an alias."""
    while True:
        x = source_of(x)
        if not x.op.op.view:
            return x
        x = x.op.inputs[0]


def is_soft(node: Node, x: Tensor) -> bool:
    """True if ``node`` may find operand ``x`` in a register: it is computed by a nest and read without a view."""
    return node.op.role != "gather" and not is_view(x) and x.op.op.nest


def new_group(node: Node) -> Group:
    """A group of one node."""
    if node.op.nest:
        reduces = node.op.role == "reduction"
        shape = sizes(node.inputs[0].shape if reduces else node.outputs[0].shape)
        return Group(
            nodes=[node],
            domain=shape,
            axes=node.attrs.axes if reduces else None,
            cost=node_cost(node),
            last=node.serial,
        )
    kind: Kind = node.op.role if node.op.role in ("matrix", "write") else "effect"
    return Group(kind=kind, anchor=node, last=node.serial)


def _largest(domain: tuple[int, ...]) -> int:
    return LARGEST_NEAR if largest(math.prod(domain)) <= NEAR_ELEMENTS else LARGEST


class Fuser:
    """The greedy grouping; ``groups()`` is its result."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.users = users_of(region)
        self.group_of: dict[Node, Group] = {}
        self.order = Order()

    def run(self) -> list[Group]:
        for node, target in self._nodes():
            group = new_group(node)
            group.product = self._product(node)
            before = self._dependencies(node)
            if target is not None:
                before |= dict.fromkeys(self._dependencies(target, but=target.op.filled or 0), True)
            self.order.add(group, before)
            self.group_of[node] = group
            if group.kind == "nest":
                self._place(node, group)
        for group in self.groups():
            if group.kind == "matrix":
                self._attach_epilogue(group)
        return self.groups()

    def groups(self) -> list[Group]:
        """All groups; the nodes of each in the order of the graph."""
        groups = list(dict.fromkeys(self.group_of.values()))
        for group in groups:
            group.nodes.sort(key=lambda node: node.serial)
        return sorted(groups, key=lambda group: group.last)

    # -- what depends on what -------------------------------------------------------------------------------------

    def _nodes(self) -> Iterator[tuple[Node, Node | None]]:
        """The nodes that kernels compute, each with the write into whose filled result it is stored, where the fill
        depends on something. Such a node comes right before the write, which alone needs it (materialize sees to that):
        what the fill depends on has a group by then."""
        stored: dict[Node, Node] = {}
        for node in self.region.graph.nodes:
            if node.op.filled is not None and (node.control or len(node.inputs) > 1):
                stored[node.inputs[node.op.filled].op] = node
            elif node.op is ASSIGN_ROWS:
                stored[node.inputs[0].op] = node
        targets = {target: node for node, target in stored.items()}
        for node in self.region.graph.nodes:
            if node in stored or node.op.role in ("source", "view"):
                continue
            if node in targets:
                yield targets[node], node
            yield node, None

    def _dependencies(self, node: Node, but: int | None = None) -> dict[Ordered, bool]:
        """The groups that a node depends on, leaving out operand number ``but``; True where it has to find them in
        memory (see ``Ordered``)."""
        found: dict[Ordered, bool] = {}

        def note(before: Node, through_memory: bool) -> None:
            if before.op.role != "source":
                group = self.group_of[before]
                found[group] = found.get(group, False) or through_memory

        for position, x in enumerate(node.inputs):
            if position == but:
                continue
            base = producers(x).op
            note(base, base is not x.op or node.op.role == "gather")
        for control in node.control:
            for before in self._real(control):
                note(before, True)
        return found

    @staticmethod
    def _real(node: Node) -> list[Node]:
        """A control edge to a view is one to what it shows."""
        if node.op.view:
            return [producers(x).op for x in node.inputs]
        return [node]

    # -- growing --------------------------------------------------------------------------------------------------

    def _place(self, node: Node, home: Group) -> None:
        """Unite the new group of a node with those of its operands, the latest first."""
        found = [self.group_of[x.op] for x in node.inputs if is_soft(node, x)]
        for other in sorted(dict.fromkeys(found), key=lambda group: -group.last):
            small, large = (home, other) if len(home.nodes) < len(other.nodes) else (other, home)
            if home is other or home.cost + other.cost > _largest(other.domain) or not self._go_together(home, other):
                continue
            if not self.order.merge(large, small):
                continue
            large.domain = other.domain
            large.axes = home.axes if other.axes is None else other.axes
            large.nodes += small.nodes
            large.cost += small.cost
            large.product = home.product if other.product is None else other.product
            large.last = max(large.last, small.last)
            for moved in small.nodes:
                self.group_of[moved] = large
            home = large

    def _product(self, node: Node) -> Tensor | None:
        """The product of a matrix kernel that ``node`` alone reads, whose epilogue it can begin; None if there is
        none."""
        for x in node.inputs if node.op.elementwise else ():
            if x.op.op.role == "matrix" and is_same(x.shape, node.outputs[0].shape) and len(self.users[x]) == 1:
                return x
        return None

    @staticmethod
    def _go_together(home: Group, other: Group) -> bool:
        """True if one nest shall compute both; a node by itself may be a row value of the other group. Two epilogues
        stay apart: united they would be that of one kernel, and the other would have to store its result."""
        if home.product is not None and other.product is not None:
            return False
        if len(home.nodes) == 1 and home.axes is None:
            return other.fits(home.domain)
        same_axes = home.axes is None or other.axes is None or home.axes == other.axes
        return same_axes and is_same(home.domain, other.domain)

    # -- epilogues ------------------------------------------------------------------------------------------------

    def _attach_epilogue(self, group: Group) -> None:
        assert group.anchor is not None
        result = group.anchor.outputs[0]
        for reader in self._readers(result):
            if (
                reader.kind != "nest"
                or reader.axes is not None
                or not is_same(reader.domain, sizes(result.shape))
                or any(node.op.role == "gather" for node in reader.nodes)
                or not self.order.merge(group, reader)
            ):
                continue
            group.nodes = reader.nodes
            group.domain = reader.domain
            group.last = max(group.last, reader.last)
            for node in reader.nodes:
                self.group_of[node] = group
            return

    def _readers(self, x: Tensor) -> list[Group]:
        return list(dict.fromkeys(self.group_of[node] for node in self.users.get(x, ()) if node in self.group_of))


def escaping(region: Region, group_of: dict[Node, Group], deferred: set[Node]) -> dict[Group, set[Tensor]]:
    """For each group the tensors that others need: operands of other groups or through views, and fetches.

    A variable's new value is stored by the kernel that makes it, so ``assign`` needs no other memory of it, except a
    deferred one, which copies at the end.
    """
    result: dict[Group, set[Tensor]] = defaultdict(set)

    def note(x: Tensor, reader: Group | None, through_view: bool) -> None:
        base = producers(x)
        group = group_of.get(base.op)
        if group is not None and (group is not reader or through_view):
            result[group].add(base)

    for node in region.graph.nodes:
        if node.op.role in ("source", "view"):
            continue
        if node.op.role == "store" and node not in deferred:  # of which its operand's kernel reads the other operands
            for x in node.inputs[1:]:
                note(x, None, True)
            continue
        for x in node.inputs:
            note(x, group_of[node], is_view(x))
    for x in region.fetches:
        note(x, None, True)
    return result


@phase("fuse")
def fuse(region: Region, *, enabled: bool = True) -> tuple[list[Group], dict[Node, Group]]:
    """The groups of a region. With ``enabled=False`` every node has a kernel of its own."""
    fuser = Fuser(region)
    if enabled:
        return fuser.run(), fuser.group_of
    for node in region.graph.nodes:
        if node.op.role not in ("source", "view"):
            fuser.group_of[node] = new_group(node)
    return fuser.groups(), fuser.group_of
