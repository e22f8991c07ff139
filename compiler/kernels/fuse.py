"""Fuse: which nodes share a kernel.

Comes in: a region of primitives. Goes out: groups in topological order, each of which becomes one kernel (or, for
writes, the fill before it). A nest group has a *domain*, the shape over which it loops, and the axes it reduces; a
member is an element value (of the domain's shape) or a row value (reduced axes of size 1). Groups grow greedily: a node
joins its operands' group if its shape fits and no cycle arises, and groups that meet in a node are united.

After that an elementwise group becomes the epilogue of a matrix kernel whose result it reads in place.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal

from staticgrad.compiler.kernels.access import VIEWS, is_view, source_of
from staticgrad.compiler.kernels.families import MATRIX, REDUCTIONS, SOURCES, STORED, WRITES, is_nest, users_of
from staticgrad.compiler.region import Region
from staticgrad.graph import Node, Tensor
from staticgrad.phases import phase
from staticgrad.types import sizes

Kind = Literal["nest", "matrix", "write", "effect"]


@dataclass(eq=False, slots=True)
class Group:
    """Nodes that share a kernel. ``anchor`` is the matrix, write or effect node; ``nodes`` are those of the nest."""

    kind: Kind
    nodes: list[Node] = field(default_factory=list)
    domain: tuple[int, ...] = ()
    axes: tuple[int, ...] | None = None
    anchor: Node | None = None

    @property
    def row_shape(self) -> tuple[int, ...]:
        axes = self.axes or ()
        return tuple(1 if axis in axes else size for axis, size in enumerate(self.domain))

    def fits(self, shape: tuple[int, ...]) -> bool:
        return shape == self.domain or (self.axes is not None and shape == self.row_shape)

    @property
    def members(self) -> list[Node]:
        return [*self.nodes, self.anchor] if self.anchor is not None else self.nodes

    @property
    def first(self) -> int:
        return min(node.serial for node in self.members)

    @property
    def last(self) -> int:
        return max(node.serial for node in self.members)


def producers(x: Tensor) -> Tensor:
    """The tensor that a kernel writes or that is a source, behind views and aliases."""
    while True:
        x = source_of(x)
        if x.op.op.name not in VIEWS:
            return x
        x = x.op.inputs[0]


def is_soft(node: Node, x: Tensor) -> bool:
    """Whether ``node`` may find operand ``x`` in a register: it is computed by a nest and read without a view."""
    if node.op.name == "gather" or is_view(x):
        return False
    return is_nest(x.op)


class Fuser:
    """The greedy grouping; ``groups()`` is its result."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.users = users_of(region)
        self.group_of: dict[Node, Group] = {}
        self.before: dict[Node, list[Node]] = {}
        for node in region.graph.nodes:
            before = [producers(x).op for x in node.inputs]
            for control in node.control:
                before.extend(self._real(control))
            self.before[node] = [b for b in before if b.op.name not in SOURCES]

    def _real(self, node: Node) -> list[Node]:
        """A control edge to a view or alias is one to what it shows."""
        if node.op.name in VIEWS:
            return [producers(x).op for x in node.inputs]
        return [node]

    # -- growing --------------------------------------------------------------------------------------------------

    def run(self) -> list[Group]:
        for node in self.region.graph.nodes:
            if node.op.name in SOURCES or node.op.name in VIEWS:
                continue
            if is_nest(node):
                self._place(node)
            else:
                kind: Kind = "matrix" if node.op.name in MATRIX else "write" if node.op.name in WRITES else "effect"
                self.group_of[node] = Group(kind, anchor=node)
        for group in self.groups():
            if group.kind == "matrix":
                self._attach_epilogue(group)
        return self.groups()

    def groups(self) -> list[Group]:
        return sorted(dict.fromkeys(self.group_of.values()), key=lambda g: g.last)

    def _place(self, node: Node) -> None:
        reduces = node.op.name in REDUCTIONS
        shape = sizes(node.inputs[0].shape if reduces else node.outputs[0].shape)
        axes = node.attrs.axes if reduces else None
        home: Group | None = None
        for other in self._operand_groups(node):
            if not self._may_join(node, other, shape, axes):
                continue
            if home is None:
                home = other
                if axes is not None:
                    home.axes = axes
            elif self._may_unite(home, other):
                home = self._unite(home, other)
        if home is None:
            home = Group("nest", domain=shape, axes=axes)
        home.nodes.append(node)
        self.group_of[node] = home

    def _operand_groups(self, node: Node) -> list[Group]:
        found = [self.group_of[x.op] for x in node.inputs if is_soft(node, x)]
        return sorted(dict.fromkeys(found), key=lambda g: -g.last)

    def _may_join(self, node: Node, group: Group, shape: tuple[int, ...], axes: tuple[int, ...] | None) -> bool:
        if axes is not None:
            if shape != group.domain or group.axes not in (None, axes):
                return False
        elif not group.fits(shape):
            return False
        soft = {x.op for x in node.inputs if is_soft(node, x)}
        for before in self.before[node]:
            if self.group_of[before] is group:
                if before not in soft or self._reads_through_view(node, before):
                    return False
            elif self._reaches(group, self.group_of[before]):
                return False
        return True

    @staticmethod
    def _reads_through_view(node: Node, before: Node) -> bool:
        return any(is_view(x) and producers(x).op is before for x in node.inputs) or before in node.control

    def _may_unite(self, a: Group, b: Group) -> bool:
        if a.domain != b.domain or (a.axes is not None and b.axes is not None and a.axes != b.axes):
            return False
        return not (self._path_between(a, b) or self._path_between(b, a))

    def _path_between(self, a: Group, b: Group) -> bool:
        """Whether b depends on a by a way that leaves both, or by an edge that must go through memory."""
        for node in b.nodes:
            for before in self.before[node]:
                other = self.group_of[before]
                if other is a:
                    if self._reads_through_view(node, before) or not any(
                        x.op is before and is_soft(node, x) for x in node.inputs
                    ):
                        return True
                elif other is not b and self._reaches(a, other):
                    return True
        return False

    def _unite(self, a: Group, b: Group) -> Group:
        a.nodes = sorted((*a.nodes, *b.nodes), key=lambda n: n.serial)
        a.axes = a.axes if a.axes is not None else b.axes
        for node in b.nodes:
            self.group_of[node] = a
        return a

    def _reaches(self, target: Group, start: Group) -> bool:
        """Whether ``start`` depends on ``target``."""
        if start is target:
            return True
        oldest = target.first
        stack, seen = [start], {start}
        while stack:
            group = stack.pop()
            if group.last < oldest:
                continue
            for node in group.members:
                for before in self.before[node]:
                    other = self.group_of[before]
                    if other is target:
                        return True
                    if other not in seen:
                        seen.add(other)
                        stack.append(other)
        return False

    # -- epilogues ------------------------------------------------------------------------------------------------

    def _attach_epilogue(self, group: Group) -> None:
        assert group.anchor is not None
        result = group.anchor.outputs[0]
        for reader in self._readers(result):
            if (
                reader.kind != "nest"
                or reader.axes is not None
                or reader.domain != sizes(result.shape)
                or any(node.op.name in ("gather",) for node in reader.nodes)
                or any(is_view(x) and producers(x) is result for node in reader.nodes for x in node.inputs)
                or self._other_way(group, reader)
            ):
                continue
            group.nodes = reader.nodes
            group.domain = reader.domain
            for node in reader.nodes:
                self.group_of[node] = group
            return

    def _readers(self, x: Tensor) -> list[Group]:
        return list(dict.fromkeys(self.group_of[node] for node in self.users.get(x, ()) if node in self.group_of))

    def _other_way(self, group: Group, reader: Group) -> bool:
        for node in reader.nodes:
            for before in self.before[node]:
                other = self.group_of[before]
                if other is not group and other is not reader and self._reaches(group, other):
                    return True
                if other is group and before in node.control:
                    return True
        return False


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
        if node.op.name in VIEWS or node.op.name in SOURCES or (node.op.name in STORED and node not in deferred):
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
        if node.op.name in SOURCES or node.op.name in VIEWS:
            continue
        kind: Kind = "matrix" if node.op.name in MATRIX else "write" if node.op.name in WRITES else "effect"
        if is_nest(node):
            reduces = node.op.name in REDUCTIONS
            shape = sizes(node.inputs[0].shape if reduces else node.outputs[0].shape)
            group = Group("nest", [node], shape, node.attrs.axes if reduces else None)
        else:
            group = Group(kind, anchor=node)
        fuser.group_of[node] = group
    return fuser.groups(), fuser.group_of
