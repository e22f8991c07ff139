"""Lower: groups of nodes become steps, each with a kernel and the memory that it reads and writes.

Input: a region of primitives, materialized, and its groups. Output: steps (unordered but for what they read and
write), the slots of the caller's memory. Left to others: order (schedule), offsets (memory), code (emit).

Writes (concat, pad, fold, scatter_add) have no kernel of their own but a fill: the nests that make their operands store
straight into the result. A variable's new value is stored by the nest that makes it, and a gradient added to the
session's by the one that makes that, unless that nest also reads the variable at other places, or something that may
fail runs after it; then the write is *deferred* to a copy at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from staticgrad.base.frozen import frozen
from staticgrad.base.phases import phase
from staticgrad.base.types import Precision, sizes
from staticgrad.compiler.kernels.access import Affine, behind_reshapes, broadcast_map, dot_address, row_major
from staticgrad.compiler.kernels.matrix import Blocking, Contraction, Convolution
from staticgrad.compiler.lowering.builder import NestBuilder, Raw, nest_step
from staticgrad.compiler.lowering.control import LowerPart, control_steps
from staticgrad.compiler.lowering.fuse import Group, escaping, fuse
from staticgrad.compiler.lowering.lone import CHECKS, call_step, check_steps, collective_step, routine_step
from staticgrad.compiler.lowering.matrices import contraction_of, convolution_of, grouped_contraction_of
from staticgrad.compiler.lowering.places import Places
from staticgrad.compiler.plans.planner import KernelPlanner
from staticgrad.compiler.program.memories import Memory, Operand
from staticgrad.compiler.program.schedule import ancestors, dependencies, unordered
from staticgrad.compiler.program.slots import Slot
from staticgrad.compiler.program.step import Step
from staticgrad.compiler.regions.region import Region, users_of
from staticgrad.graph.graph import Node, Tensor
from staticgrad.graph.optable import Op
from staticgrad.ops.collectives import COLLECTIVES
from staticgrad.ops.contraction import DOT
from staticgrad.ops.effects import ASSIGN, ASSIGN_ROWS, GROUP, PRINT, PY_CALL
from staticgrad.ops.grouped import GROUPED_DOT
from staticgrad.ops.windows import FOLD


@frozen
class Steps:
    """The result of lowering, and where tensors that have memory lie, with which strides."""

    steps: tuple[Step, ...]
    slots: tuple[Slot, ...]
    places: Mapping[Tensor, tuple[Memory, tuple[int, ...]]]


class Lowering:
    """One attempt to lower a region, with a set of deferred writes."""

    def __init__(
        self,
        region: Region,
        planner: KernelPlanner,
        part: LowerPart,
        groups: list[Group],
        group_of: dict[Node, Group],
        deferred: set[Node],
        blockings: Mapping[Contraction, Blocking],
        precision: Precision,
    ) -> None:
        self.region, self.planner, self.part = region, planner, part
        self.blockings, self.precision = blockings, precision
        self.groups, self.group_of, self.deferred = groups, group_of, deferred
        self.steps: list[Step] = []
        self.users = users_of(self.region)
        self.places = Places(self.region, self.users)
        self.escaping = escaping(self.region, self.group_of, self.deferred)
        self.fetched = set(map(behind_reshapes, self.region.fetches))
        self.clashing: set[Node] = set()  # writes of state that cannot happen where their values are made
        self._step_of: dict[Node, Step] = {}

    # -- all groups -------------------------------------------------------------------------------------------------

    def run(self) -> Steps:
        for group in self.groups:
            {"nest": self._nest, "matrix": self._matrix, "write": self._fill, "effect": self._effect}[group.kind](group)
        for node in {_state_key(n): n for n in sorted(self.deferred, key=lambda n: n.serial)}.values():
            self._commit(node)  # of several writes of one variable the last
        self._order_effects()
        return Steps(tuple(self.steps), tuple(self.places.slots), self.places.found())

    def _fill_builder(self, group: Group, builder: NestBuilder) -> None:
        """The nodes of a group, then the stores of what others need."""
        needed = dict.fromkeys(self.escaping.get(group, ()))
        for node in group.nodes:
            builder.add_node(node)
        for node in group.nodes:
            x = node.outputs[0]
            sink = self._sink(x)
            if sink is not None:
                builder.store_into_write(x, sink)
            elif x in needed:
                address = dot_address(builder.place_of(x), self.places.strides_of(x))
                builder.store(builder.values[x], self.places.memory(x), x.dtype, address)
            for user in self.users[x]:
                if user.op.role == "store" and user.inputs[0] is x and user not in self.deferred:
                    self._store_state(builder, x, user)

    def _sink(self, x: Tensor) -> Node | None:
        users = self.users[x]
        if len(users) != 1 or users[0].op.role != "write" or x in self.fetched:
            return None
        node = users[0]
        return node if node.op.filled is None or node.inputs[node.op.filled] is x else None

    def _store_state(self, builder: NestBuilder, x: Tensor, node: Node) -> None:
        memory = self._write_state(builder, x, node, builder.values[x], builder.place_of(x))
        if not builder.check_in_place(memory):
            self.clashing.add(node)

    def _write_state(
        self, builder: NestBuilder, x: Tensor, node: Node, value: int, where: tuple[Affine, ...]
    ) -> Memory:
        """Store the element ``value`` of ``x``, which is at ``where``, as ``node`` says: in a variable, in a row of one
        or, added to what is there, in a gradient."""
        memory: Memory
        if node.op is ASSIGN_ROWS:
            memory = self.places.state(node.attrs.key)
            builder.store_row(value, memory, x.dtype, where, node)
            return memory
        address = dot_address(where, row_major(sizes(x.shape)))
        if node.op is ASSIGN:
            memory = self.places.state(node.attrs.key)
        else:
            memory = self.places.gradient(node.attrs.key, x.type)
            value = builder.accumulated(memory, address, value, x.dtype)
        builder.store(value, memory, x.dtype, address)
        return memory

    def _nest(self, group: Group) -> None:
        builder = NestBuilder(self.places, group.domain, group.axes or ())
        self._fill_builder(group, builder)
        family = "row" if group.axes and len(group.nodes) > 1 else "reduce" if group.axes else "pointwise"
        self._add_nest(builder, _name(group.nodes), family, group.nodes)

    def _add_nest(
        self, builder: NestBuilder, name: str, family: str, nodes: Sequence[Node], fills: bool = False
    ) -> None:
        self._append(nest_step(builder, name, family, nodes, fills), nodes)

    def _append(self, step: Step, nodes: Sequence[Node]) -> None:
        self.steps.append(step)
        for node in nodes:
            self._step_of[node] = step

    # -- matrix kernels ---------------------------------------------------------------------------------------------

    def _matrix(self, group: Group) -> None:
        node = group.anchor
        assert node is not None
        result = node.outputs[0]
        needed = result in self.escaping.get(group, set()) or not group.nodes
        kernel: Contraction | Convolution
        if node.op is DOT:
            kernel, operands = contraction_of(node, self.places, needed, self.blockings, self.precision)
        elif node.op is GROUPED_DOT:
            kernel, operands = grouped_contraction_of(node, self.places, needed, self.blockings)
        else:
            kernel, operands = convolution_of(node, self.places, self.precision)
        builder: NestBuilder | None = None
        store_raw = needed
        if group.nodes:
            strides = self.places.strides_of(result)
            if not needed:
                strides = self.planner.plan(replace(kernel, store_raw=False)).raw_strides
            raw = Raw(result, strides, tuple(operand.memory for operand in operands))
            builder = NestBuilder(self.places, group.domain, raw=raw)
            self._fill_builder(group, builder)
            kernel = replace(kernel, epilogue=builder.nest(), store_raw=store_raw)
        reads = [operand.memory for operand in operands]
        writes: list[Memory] = []
        if store_raw:
            operands.append(Operand(self.places.memory(result)))
            writes.append(self.places.memory(result))
        adds: list[Memory] = []
        if builder is not None:
            operands.extend(Operand(m) for m in builder.args if not isinstance(m, Raw))
            reads.extend(builder.loaded())
            writes.extend(builder.stored)
            adds.extend(builder.added)
        step = Step(
            _name([node, *group.nodes]), kernel.family, kernel, tuple(operands), tuple(dict.fromkeys(reads)),
            tuple(dict.fromkeys(writes)), tuple(dict.fromkeys(adds)), source=node.source,
            serial=group.last, flops=kernel.flops,
        )  # fmt: skip
        self._append(step, group.members)

    # -- writes -----------------------------------------------------------------------------------------------------

    def _fill(self, group: Group) -> None:
        node = group.anchor
        assert node is not None
        result = node.outputs[0]
        if node.op.filled is None or (node.op is FOLD and _covers(node)):
            return
        shape = sizes(result.shape)
        builder = NestBuilder(self.places, shape)
        where = broadcast_map(shape, shape)
        if node.op.filled:  # with the operand before
            value = builder.load(node.inputs[0], where)
        else:
            value = builder.constant(0 if node.op is FOLD else node.attrs.value, result.dtype)
        builder.store(
            value, self.places.memory(result), result.dtype, dot_address(where, self.places.strides_of(result))
        )
        self._add_nest(builder, f"fill_{node.op.name}", "pointwise", [node], fills=True)

    # -- effects ----------------------------------------------------------------------------------------------------

    def _effect(self, group: Group) -> None:
        node = group.anchor
        assert node is not None
        for step in self._lone(node):
            self._append(step, [node])

    def _lone(self, node: Node) -> list[Step]:
        """The steps of a node that no other is fused with; what stores state, or groups others, has none."""
        if node.op in CHECKS:
            return check_steps(node, self.places)
        if node.op in (PRINT, PY_CALL):
            return [call_step(node, self.places)]
        if node.op in COLLECTIVES:
            return [collective_step(node, self.places)]
        if node.op.role == "control":
            return control_steps(node, self.places, self.part)
        if node.op.role == "routine":
            return [routine_step(node, self.places, lambda y: y in self.fetched or bool(self.users[y]))]
        assert node.op is GROUP or node.op.role == "store", f"{node.op} has no lowering"
        return []

    def _commit(self, node: Node) -> None:
        """Copy a deferred write's value into the variable, or add it to the gradient. What was declared after the write
        need not come after this: it reads the value where it was made."""
        x = node.inputs[0]
        shape = sizes(x.shape)
        builder = NestBuilder(self.places, shape)
        where = broadcast_map(shape, shape)
        self._write_state(builder, x, node, builder.load(x, where), where)
        self._add_nest(builder, f"commit_{node.attrs.key}", "pointwise", [node])
        del self._step_of[node]

    def writers_before_failures(self) -> set[Node]:
        """Writes of state that are not deferred, in steps that something that may fail comes after."""
        return self._writers(ancestors([step for step in self.steps if step.can_fail], dependencies(self.steps)))

    def writers_in_cycles(self) -> set[Node]:
        """Writes whose step would have to run both before and after a reader of the state."""
        return self._writers(unordered(self.steps))

    def _writers(self, steps: Collection[Step]) -> set[Node]:
        """The writes of state that are not deferred, in one of the steps."""
        stores = [n for n in self.region.graph.nodes if n.op.role == "store" and n not in self.deferred]
        return {node for node in stores if self._step_of.get(node.inputs[0].op) in steps}

    def _order_effects(self) -> None:
        """Control edges between nodes become edges between their steps."""
        for node in self.region.graph.nodes:
            step = self._step_of.get(node)
            if step is None:
                continue
            for before in _reached(node.control, self._step_of):
                if before is not step:
                    step.after.append(before)


def _reached(nodes: Sequence[Node], step_of: dict[Node, Step]) -> list[Step]:
    """The steps of nodes, looking through those that have none (groups, views, writes of state)."""
    found: dict[Step, None] = {}
    stack, seen = list(nodes), set(nodes)
    while stack:
        node = stack.pop()
        if node in step_of:
            found[step_of[node]] = None
            continue
        for other in (*node.control, *(x.op for x in node.inputs)):
            if other not in seen:
                seen.add(other)
                stack.append(other)
    return list(found)


def _name(nodes: Sequence[Node]) -> str:
    own = [node.part for node in nodes if node.part]  # come first
    names = list(dict.fromkeys([*own, *(node.op.name for node in nodes if not node.part)]))
    return "_".join(names[:4]) + ("_etc" if len(names) > 4 else "")


def _covers(fold: Node) -> bool:
    """True if the windows of a fold lie side by side over the whole image: then nothing needs to be filled."""
    window = fold.attrs.window
    counts = sizes(fold.inputs[0].shape)[-4:-2]
    sides = zip(counts, window.kernel, (fold.attrs.height, fold.attrs.width), strict=True)
    return (
        window.stride == window.kernel
        and window.dilation == (1, 1)
        and all(n * k == size and pad[0] == 0 for (n, k, size), pad in zip(sides, window.padding, strict=True))
    )


def _state_key(node: Node) -> tuple[Op, str]:
    return node.op, node.attrs.key


@phase("lower")
def lower(
    region: Region,
    planner: KernelPlanner,
    part: LowerPart,
    blockings: Mapping[Contraction, Blocking],
    precision: Precision,
    *,
    fusion: bool = True,
) -> Steps:
    """Lower a region; writes of state that turn out to be in the way are deferred, and it is tried again. Products
    among the ``blockings`` get these, and all products the ``precision``."""
    groups, group_of = fuse(region, enabled=fusion)
    deferred: set[Node] = set()
    while True:
        keys = {_state_key(node) for node in deferred}
        deferred = {n for n in region.graph.nodes if n.op.role == "store" and _state_key(n) in keys}
        lowering = Lowering(region, planner, part, groups, group_of, deferred, blockings, precision)
        steps = lowering.run()
        clashing = lowering.clashing or lowering.writers_in_cycles() | lowering.writers_before_failures()
        if not clashing:
            return steps
        deferred.update(clashing)
