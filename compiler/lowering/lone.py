"""Nodes that become a step, or a few, of their own: checks, calls, collective operations and routines.

A node of a region and the places of tensors go in; its steps come out, the last of which is the one that others wait
for.
"""

from __future__ import annotations

from collections.abc import Callable

from staticgrad.base.types import bool_, int64, sizes
from staticgrad.compiler.kernels.access import Affine, behind_reshapes, broadcast_map
from staticgrad.compiler.kernels.nest import Reduce
from staticgrad.compiler.kernels.routines import lone_kernel
from staticgrad.compiler.lowering.builder import NestBuilder, nest_step
from staticgrad.compiler.lowering.places import Places
from staticgrad.compiler.program.memories import Memory, Operand, Temp
from staticgrad.compiler.program.slots import CallbackSlot, Check, CheckKind, collective_slot
from staticgrad.compiler.program.step import Step
from staticgrad.graph.graph import Node, Tensor
from staticgrad.graph.optable import Op
from staticgrad.ops.collectives import REDUCE_WAIT
from staticgrad.ops.effects import ASSERTION, BOUNDS_CHECK, NUMERICS_CHECK, PRINT

CHECKS: dict[Op, CheckKind] = {BOUNDS_CHECK: "bounds", ASSERTION: "assertion", NUMERICS_CHECK: "numerics"}


def check_steps(node: Node, places: Places) -> list[Step]:
    """The steps that reduce an operand to two int64 and test these: the extremes of an index, or whether a condition
    holds everywhere."""
    kind, x = CHECKS[node.op], node.inputs[0]
    shape = sizes(x.shape)
    builder = NestBuilder(places, shape, tuple(range(len(shape))))
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
    step = nest_step(builder, f"check_{kind}", "reduce", [node])
    wraps = kind == "bounds" and node.attrs.wraps
    check = Check(kind, message, node.source, size, wraps=wraps)
    tested = Step(f"test_{kind}", "check", None, (Operand(found),), (found,), (), check=check, source=node.source,
                  serial=node.serial)  # fmt: skip
    tested.after.append(step)
    return [step, tested]


def call_step(node: Node, places: Places) -> Step:
    """The step that calls a function of Python. A print fails late: state need not wait for it, so that it keeps no
    gradient alive that is to be added."""
    inputs = [places.memory(x) for x in node.inputs]
    outputs: list[Memory] = []
    check: Check | None = None
    if node.op is PRINT:
        from staticgrad.ops.interpreter import print_value

        text = node.attrs.text
        slot = CallbackSlot(lambda x: print_value(text, x), (node.inputs[0].type,), (), node.source, late=True)
    else:
        types = tuple(y.type for y in node.outputs)
        slot = CallbackSlot(node.attrs.function, tuple(x.type for x in node.inputs), types, node.source)
        outputs = [places.memory(y) for y in node.outputs]
        check = Check("callback", f"{node.op.name} ({node.name!r}) raised", node.source)
    places.add(slot)
    memories = (*inputs, *outputs)
    return Step(
        node.op.name, "call", None, tuple(Operand(m) for m in memories), tuple(dict.fromkeys(inputs)),
        tuple(outputs), check=check, callback=slot, source=node.source,
        serial=node.serial,
    )  # fmt: skip


def collective_step(node: Node, places: Places) -> Step:
    """A collective operation. What one has started reads its operand and writes its result until it has ended."""
    inputs = [places.memory(behind_reshapes(x)) for x in node.inputs]
    outputs = written = [places.memory(y) for y in node.outputs]
    reads = inputs
    if node.op is REDUCE_WAIT:
        started, outputs = node.inputs[0].op, []
        reads = [*inputs, *(places.memory(behind_reshapes(x)) for x in started.inputs)]
    slot = collective_slot(node)
    places.add(slot)
    return Step(
        node.op.name, "collective", None, tuple(Operand(m) for m in (*inputs, *outputs)),
        tuple(dict.fromkeys(reads)), tuple(written), callback=slot, source=node.source, serial=node.serial,
        check=Check("collective", f"{node.op.name} ({node.name!r})", node.source),
    )  # fmt: skip


def routine_step(node: Node, places: Places, is_read: Callable[[Tensor], bool]) -> Step:
    """The step of a kernel over plain row-major memory, with the results of the node that it writes."""
    kernel = lone_kernel(node, list(map(is_read, node.outputs)))
    inputs = [places.memory(behind_reshapes(x)) for x in node.inputs]
    outputs = [places.memory(node.outputs[number]) for number in kernel.results]
    assert len(inputs) + len(outputs) == len(kernel.args)
    return Step(
        node.op.name, "routine", kernel, tuple(Operand(m) for m in (*inputs, *outputs)),
        tuple(dict.fromkeys(inputs)), tuple(outputs), source=node.source, serial=node.serial, flops=kernel.flops,
    )  # fmt: skip
