"""Lower: groups of nodes become steps, each with a kernel and the memory that it reads and writes.

Input: a region of primitives, materialized, and its groups. Output: steps (unordered but for what they read and
write), the slots of the caller's memory. Left to others: order (schedule), offsets (memory), code (emit).

Writes (concat, pad, fold, scatter_add) have no kernel of their own but a fill: the nests that make their operands store
straight into the result. A variable's new value is stored by the nest that makes it, and a gradient added to the
session's by the one that makes that, unless that nest also reads the variable at other places, or something that may
fail runs after it; then the write is *deferred* to a copy at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from staticgrad.base.extents import is_open, largest
from staticgrad.base.frozen import frozen
from staticgrad.base.phases import phase
from staticgrad.base.types import bool_, int64, sizes
from staticgrad.compiler.kernels.access import Affine, behind_reshapes, broadcast_map, dot_address, row_major
from staticgrad.compiler.kernels.matrix import Blocking, Contraction, Convolution, Direction
from staticgrad.compiler.kernels.nest import Compute, Reduce
from staticgrad.compiler.kernels.routines import lone_kernel
from staticgrad.compiler.lowering.builder import NestBuilder, Raw
from staticgrad.compiler.lowering.fuse import Group, escaping, fuse
from staticgrad.compiler.lowering.places import Places
from staticgrad.compiler.plans.planner import KernelPlanner
from staticgrad.compiler.program.memories import Memory, Operand, Temp
from staticgrad.compiler.program.schedule import ancestors, dependencies, unordered
from staticgrad.compiler.program.slots import CallbackSlot, Check, CheckKind, Slot, collective_slot
from staticgrad.compiler.program.step import Branch, Loop, PackedFeed, Part, Step, lent_slots
from staticgrad.compiler.regions.region import Region, users_of
from staticgrad.graph.graph import Node, Tensor
from staticgrad.graph.optable import Op
from staticgrad.ops.collectives import COLLECTIVES, REDUCE_WAIT
from staticgrad.ops.contraction import DOT
from staticgrad.ops.control.bodies import bodies_of
from staticgrad.ops.control.loops import LoopAttributes
from staticgrad.ops.convolution import CONVOLUTION, CONVOLUTION_INPUT_GRAD, CONVOLUTION_WEIGHT_GRAD
from staticgrad.ops.effects import ASSERTION, ASSIGN, BOUNDS_CHECK, GROUP, NUMERICS_CHECK, PRINT, PY_CALL
from staticgrad.ops.windows import FOLD

# Makes a function of its own of a body whose feeds from a number on, if one is given, are the same in many turns.
LowerPart = Callable[[Region, int | None], Part]
ENOUGH_TURNS = 8  # of a loop: what is saved in them is a multiple of what packing an operand costs

# What a convolution computes, and which of the product's three tensors its operands and its result are.
_CONVOLUTIONS: dict[Op, tuple[Direction, str]] = {
    CONVOLUTION: ("forward", "xwy"),
    CONVOLUTION_INPUT_GRAD: ("input_grad", "ywx"),
    CONVOLUTION_WEIGHT_GRAD: ("weight_grad", "xyw"),
}
_CHECKS: dict[Op, CheckKind] = {BOUNDS_CHECK: "bounds", ASSERTION: "assertion", NUMERICS_CHECK: "numerics"}


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
    ) -> None:
        self.region, self.planner, self.part, self.blockings = region, planner, part, blockings
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
                if user.op.role == "store" and user not in self.deferred:
                    self._store_state(builder, x, user)

    def _sink(self, x: Tensor) -> Node | None:
        users = self.users[x]
        if len(users) != 1 or users[0].op.role != "write" or x in self.fetched:
            return None
        node = users[0]
        return node if node.op.filled is None or node.inputs[node.op.filled] is x else None

    def _store_state(self, builder: NestBuilder, x: Tensor, node: Node) -> None:
        address = dot_address(builder.place_of(x), row_major(sizes(x.shape)))
        value = builder.values[x]
        if node.op is ASSIGN:
            memory: Memory = self.places.state(node.attrs.key)
        else:
            memory = self.places.gradient(node.attrs.key, x.type)
            value = builder.accumulated(memory, address, value, x.dtype)
        builder.store(value, memory, x.dtype, address)
        if not builder.check_in_place(memory):
            self.clashing.add(node)

    def _nest(self, group: Group) -> None:
        builder = NestBuilder(self.places, group.domain, group.axes or ())
        self._fill_builder(group, builder)
        family = "row" if group.axes and len(group.nodes) > 1 else "reduce" if group.axes else "pointwise"
        self._add_nest(builder, _name(group.nodes), family, group.nodes)

    def _add_nest(
        self, builder: NestBuilder, name: str, family: str, nodes: Sequence[Node], fills: bool = False
    ) -> Step:
        nest = builder.nest()
        computes = sum(isinstance(instr, (Compute, Reduce)) for instr in nest.body)
        step = Step(
            name, family, nest, tuple(Operand(m) for m in builder.args if not isinstance(m, Raw)),
            tuple(builder.loaded()), tuple(dict.fromkeys(builder.stored)), tuple(dict.fromkeys(builder.added)),
            fills=fills, source=nodes[-1].source, serial=nodes[-1].serial, flops=computes * math.prod(nest.dims),
        )  # fmt: skip
        self._append(step, nodes)
        return step

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
        kernel, operands = self._contraction(node, needed) if node.op is DOT else self._convolution(node)
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

    def _contraction(self, node: Node, stored: bool) -> tuple[Contraction | Convolution, list[Operand]]:
        a, b = node.inputs
        *batch, m, k = sizes(a.shape)
        n = sizes(b.shape)[-1]
        (a_operand, a_strides), (b_operand, b_strides) = self.places.strided(a), self.places.strided(b)
        c_strides = self.places.strides_of(node.outputs[0])
        kernel = Contraction(a.dtype, tuple(batch), m, n, k, a_strides, b_strides, c_strides)
        blocking = self.blockings.get(replace(kernel, store_raw=stored))
        return replace(kernel, blocking=blocking), [a_operand, b_operand]

    def _convolution(self, node: Node) -> tuple[Contraction | Convolution, list[Operand]]:
        attrs = node.attrs
        direction, roles = _CONVOLUTIONS[node.op]
        (first, first_strides), (second, second_strides) = map(self.places.strided, node.inputs)
        result_strides = self.places.strides_of(node.outputs[0])
        operands = (*node.inputs, *node.outputs)
        tensors = dict(zip(roles, operands, strict=True))
        found = map(_four, map(sizes, (x.shape for x in operands)), (first_strides, second_strides, result_strides))
        strides = dict(zip(roles, found, strict=True))
        n, c, height, width = sizes(tensors["x"].shape)
        filters, _, kh, kw = sizes(tensors["w"].shape)
        _, _, out_height, out_width = sizes(tensors["y"].shape)
        kernel = Convolution(
            direction, tensors["x"].dtype, n, c, height, width, filters, (kh, kw), out_height, out_width,
            attrs.stride, (attrs.padding[0][0], attrs.padding[1][0]), attrs.dilation, attrs.groups,
            strides["x"], strides["w"], strides["y"],
        )  # fmt: skip
        return kernel, [first, second]

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
        if node.op in _CHECKS:
            self._check(node, _CHECKS[node.op])
        elif node.op in (PRINT, PY_CALL):
            self._call(node)
        elif node.op in COLLECTIVES:
            self._collect(node)
        elif node.op.role == "control":
            self._run_parts(node)
        elif node.op.role == "routine":
            self._lone(node)
        elif node.op is not GROUP and node.op.role != "store":
            raise AssertionError(f"{node.op} has no lowering")

    def _check(self, node: Node, kind: CheckKind) -> None:
        """Reduce the operand to two int64: the extremes of an index, or whether a condition holds everywhere."""
        x = node.inputs[0]
        shape = sizes(x.shape)
        builder = NestBuilder(self.places, shape, tuple(range(len(shape))))
        value = builder.load(x, broadcast_map(shape, shape))
        if kind == "bounds":
            value = builder.cast(value, x.dtype, int64)
        else:
            if kind == "numerics":
                value = builder.compute("isfinite", value, dtype=bool_)
            value = builder.cast(value, bool_, int64)
        found = Temp(f"{node.name}.found", 16, "read by the check", node.source)
        extremes = (value, value)
        if shape:
            extremes = (builder.emit(Reduce("min", value, int64)), builder.emit(Reduce("max", value, int64)))
        for position, extreme in enumerate(extremes):
            builder.store(extreme, found, int64, Affine(position))
        size = node.attrs.size if kind == "bounds" else 0
        message = node.attrs.what if kind == "bounds" else node.attrs.message
        step = self._add_nest(builder, f"check_{kind}", "reduce", [node])
        wraps = kind == "bounds" and node.attrs.wraps
        check = Check(kind, message, node.source, size, wraps=wraps)
        tested = Step(f"test_{kind}", "check", None, (Operand(found),), (found,), (), check=check, source=node.source,
                      serial=node.serial)  # fmt: skip
        tested.after.append(step)
        self._append(tested, [node])

    def _call(self, node: Node) -> None:
        """A print fails late: state need not wait for it, so that it keeps no gradient alive that is to be added."""
        inputs = [self.places.memory(x) for x in node.inputs]
        outputs: list[Memory] = []
        check: Check | None = None
        if node.op is PRINT:
            from staticgrad.ops.interpreter import print_value

            text = node.attrs.text
            slot = CallbackSlot(lambda x: print_value(text, x), (node.inputs[0].type,), (), node.source, late=True)
        else:
            types = tuple(y.type for y in node.outputs)
            slot = CallbackSlot(node.attrs.function, tuple(x.type for x in node.inputs), types, node.source)
            outputs = [self.places.memory(y) for y in node.outputs]
            check = Check("callback", f"{node.op.name} ({node.name!r}) raised", node.source)
        self.places.add(slot)
        memories = (*inputs, *outputs)
        step = Step(
            node.op.name, "call", None, tuple(Operand(m) for m in memories), tuple(dict.fromkeys(inputs)),
            tuple(outputs), check=check, callback=slot, source=node.source,
            serial=node.serial,
        )  # fmt: skip
        self._append(step, [node])

    def _collect(self, node: Node) -> None:
        """A collective operation. What one has started reads its operand and writes its result until it has ended."""
        inputs = [self.places.memory(behind_reshapes(x)) for x in node.inputs]
        outputs = written = [self.places.memory(y) for y in node.outputs]
        reads = inputs
        if node.op is REDUCE_WAIT:
            started, outputs = node.inputs[0].op, []
            reads = [*inputs, *(self.places.memory(behind_reshapes(x)) for x in started.inputs)]
        slot = collective_slot(node)
        self.places.add(slot)
        step = Step(
            node.op.name, "collective", None, tuple(Operand(m) for m in (*inputs, *outputs)),
            tuple(dict.fromkeys(reads)), tuple(written), callback=slot, source=node.source, serial=node.serial,
            check=Check("collective", f"{node.op.name} ({node.name!r})", node.source),
        )  # fmt: skip
        self._append(step, [node])

    def _lone(self, node: Node) -> None:
        """A kernel over plain row-major memory, with the results of the node that it writes."""
        wanted = [y in self.fetched or bool(self.users[y]) for y in node.outputs]
        kernel = lone_kernel(node, wanted)
        inputs = [self.places.memory(behind_reshapes(x)) for x in node.inputs]
        outputs = [self.places.memory(node.outputs[number]) for number in kernel.results]
        assert len(inputs) + len(outputs) == len(kernel.args)
        step = Step(
            node.op.name, "routine", kernel, tuple(Operand(m) for m in (*inputs, *outputs)),
            tuple(dict.fromkeys(inputs)), tuple(outputs), source=node.source, serial=node.serial, flops=kernel.flops,
        )  # fmt: skip
        self._append(step, [node])

    def _run_parts(self, node: Node) -> None:
        """A loop or branch: its bodies are lowered by themselves, and lie in memory of the one step that runs them."""
        attrs, bodies = node.attrs, bodies_of(node)
        captured = _captured(attrs) if isinstance(attrs, LoopAttributes) else None
        parts = [self.part(Region(b.graph, b.feeds, b.fetches, b.effects), captured) for b in bodies]
        inputs = [self.places.memory(behind_reshapes(x)) for x in node.inputs]
        inputs += [self._packed(feed, inputs[feed.index - 1], node) for feed in parts[0].packed]
        kernel: Loop | Branch
        if isinstance(attrs, LoopAttributes):
            first, last = attrs.counted + attrs.carries, attrs.counted + attrs.carries + attrs.sequences
            kernel = Loop(
                parts[0], parts[1] if len(parts) > 1 else None,
                tuple(map(_nbytes, attrs.body.fetches[: attrs.carries])),
                tuple(map(_nbytes, attrs.body.feeds[1 + attrs.carries : 1 + attrs.carries + attrs.sequences])),
                len(inputs) - last, tuple(map(_nbytes, attrs.body.fetches[attrs.carries :])),
                _turns(attrs), attrs.reverse, attrs.counted,
            )  # fmt: skip
            assert first <= last
        else:
            kernel = Branch(parts[0], parts[1], len(node.inputs) - 1, len(node.outputs))
        lent = lent_slots(parts)
        for slot in lent:
            self.places.add(slot)
        outputs = [self.places.memory(y) for y in node.outputs]
        scratch = Temp(f"{node.name}.turn", kernel.scratch_bytes, "memory of a turn", node.source)
        step = Step(
            node.op.name, "loop", None, tuple(Operand(m) for m in (*inputs, *outputs, *lent)),
            tuple(dict.fromkeys((*inputs, *lent))), tuple(outputs), loop=kernel, scratch=scratch, source=node.source,
            serial=node.serial, flops=kernel.flops,
        )  # fmt: skip
        self._append(step, [node])

    def _packed(self, feed: PackedFeed, memory: Memory, node: Node) -> Temp:
        """The buffer in which an operand that all turns of a loop read is packed, by a step before the loop."""
        packed = Temp(f"{node.name}.packed", feed.nbytes, "packed for all turns", node.source)
        step = Step(
            f"pack_{node.name}", "pack", feed.kernel, (Operand(memory, feed.offset), Operand(packed)), (memory,),
            (packed,), source=node.source, serial=node.serial,
        )  # fmt: skip
        self._append(step, [])
        return packed

    def _commit(self, node: Node) -> None:
        """Copy a deferred write's value into the variable, or add it to the gradient. What was declared after the write
        need not come after this: it reads the value where it was made."""
        x = node.inputs[0]
        shape = sizes(x.shape)
        builder = NestBuilder(self.places, shape)
        where = broadcast_map(shape, shape)
        value, address = builder.load(x, where), dot_address(where, row_major(shape))
        memory: Memory
        if node.op is ASSIGN:
            memory = self.places.state(node.attrs.key)
        else:
            memory = self.places.gradient(node.attrs.key, x.type)
            value = builder.accumulated(memory, address, value, x.dtype)
        builder.store(value, memory, x.dtype, address)
        self._add_nest(builder, f"commit_{node.attrs.key}", "pointwise", [node])
        del self._step_of[node]

    def writers_before_failures(self) -> set[Node]:
        """Writes of state that are not deferred, in steps that something that may fail comes after."""
        early = ancestors([step for step in self.steps if step.can_fail], dependencies(self.steps))
        return {
            node
            for node in self.region.graph.nodes
            if node.op.role == "store" and node not in self.deferred and self._step_of.get(node.inputs[0].op) in early
        }

    def writers_in_cycles(self) -> set[Node]:
        """Writes whose step would have to run both before and after a reader of the state."""
        stuck = unordered(self.steps)
        return {
            node
            for node in self.region.graph.nodes
            if node.op.role == "store" and node not in self.deferred and self._step_of.get(node.inputs[0].op) in stuck
        }

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


def _turns(attrs: LoopAttributes) -> int | None:
    """The number of turns of a loop at most, if there is one."""
    if attrs.length is None:
        return None
    (turns,) = sizes((attrs.length,))
    return turns if is_open(turns) else int(turns)


def _captured(attrs: LoopAttributes) -> int | None:
    """The number of the first feed of a loop's body from which on all are invariant, if there are many turns; None if
    they are few, or it is not known how many."""
    known = not attrs.counted and attrs.condition is None and attrs.length is not None
    return 1 + attrs.carries + attrs.sequences if known and largest(attrs.length or 0) >= ENOUGH_TURNS else None


def _name(nodes: Sequence[Node]) -> str:
    names = list(dict.fromkeys(node.op.name for node in nodes))
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


def _four(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int, int, int]:
    """The strides of four axes. A single row has any stride; it gets that of rows side by side, since kernels take from
    it how much memory some rows are."""
    a, b, c, d = strides
    return a, b, c if shape[2] != 1 else shape[3] * d, d


def _nbytes(x: Tensor) -> int:
    return math.prod(sizes(x.shape)) * x.dtype.itemsize


def _state_key(node: Node) -> tuple[Op, str]:
    return node.op, node.attrs.key


@phase("lower")
def lower(
    region: Region,
    planner: KernelPlanner,
    part: LowerPart,
    blockings: Mapping[Contraction, Blocking],
    *,
    fusion: bool = True,
) -> Steps:
    """Lower a region; writes of state that turn out to be in the way are deferred, and it is tried again. Products
    among the ``blockings`` get these."""
    groups, group_of = fuse(region, enabled=fusion)
    deferred: set[Node] = set()
    while True:
        keys = {_state_key(node) for node in deferred}
        deferred = {n for n in region.graph.nodes if n.op.role == "store" and _state_key(n) in keys}
        lowering = Lowering(region, planner, part, groups, group_of, deferred, blockings)
        steps = lowering.run()
        clashing = lowering.clashing or lowering.writers_in_cycles() | lowering.writers_before_failures()
        if not clashing:
            return steps
        deferred.update(clashing)
