"""Loops and branches: their bodies are lowered by themselves, and one step runs them.

A node of a region and the places of tensors go in; its steps come out, the last of which is the one that runs bodies.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from staticgrad.base.extents import is_open, largest
from staticgrad.base.types import sizes
from staticgrad.compiler.kernels.access import behind_reshapes
from staticgrad.compiler.lowering.places import Places
from staticgrad.compiler.program.memories import Memory, Operand, Temp
from staticgrad.compiler.program.step import Branch, Loop, PackedFeed, Part, Rewind, Step, lent_slots
from staticgrad.compiler.regions.region import Region
from staticgrad.graph.graph import Node, Tensor
from staticgrad.ops.control.bodies import bodies_of
from staticgrad.ops.control.loops import LoopAttributes
from staticgrad.ops.control.rewinding import RewoundAttributes, SnapshotLoopAttributes

# Makes a function of its own of a body whose feeds from a number on, if one is given, are the same in many turns.
LowerPart = Callable[[Region, int | None], Part]
ENOUGH_TURNS = 8  # of a loop: what is saved in them is a multiple of what packing an operand costs


def control_steps(node: Node, places: Places, part: LowerPart) -> list[Step]:
    """A loop or branch: its bodies are lowered by themselves, and lie in memory of the one step that runs them."""
    attrs, bodies = node.attrs, bodies_of(node)
    if isinstance(attrs, RewoundAttributes):
        return [_rewind_step(node, attrs, places, part)]
    captured = _captured(attrs) if isinstance(attrs, LoopAttributes) else None
    parts = [part(Region(b.graph, b.feeds, b.fetches, b.effects), captured) for b in bodies]
    inputs = [places.memory(behind_reshapes(x)) for x in node.inputs]
    packs = [_pack_step(feed, inputs[feed.index - 1], node) for feed in parts[0].packed]
    inputs += [memory for step in packs for memory in step.writes]
    kernel: Loop | Branch
    if isinstance(attrs, LoopAttributes):
        first, last = attrs.counted + attrs.carries, attrs.counted + attrs.carries + attrs.sequences
        kernel = Loop(
            parts[0], parts[1] if len(parts) > 1 else None,
            tuple(map(_nbytes, attrs.body.fetches[: attrs.carries])),
            tuple(map(_nbytes, attrs.body.feeds[1 + attrs.carries : 1 + attrs.carries + attrs.sequences])),
            len(inputs) - last, tuple(map(_nbytes, attrs.body.fetches[attrs.carries :])),
            _turns(attrs), attrs.reverse, attrs.counted,
            *((attrs.kept, attrs.schedule.starts) if isinstance(attrs, SnapshotLoopAttributes) else ()),
        )  # fmt: skip
        assert first <= last
    else:
        kernel = Branch(parts[0], parts[1], len(node.inputs) - 1, len(node.outputs))
    lent = lent_slots(parts)
    for slot in lent:
        places.add(slot)
    outputs = [places.memory(y) for y in node.outputs]
    scratch = Temp(f"{node.name}.turn", kernel.scratch_bytes, "memory of a turn", node.source)
    step = Step(
        node.op.name, "loop", None, tuple(Operand(m) for m in (*inputs, *outputs, *lent)),
        tuple(dict.fromkeys((*inputs, *lent))), tuple(outputs), loop=kernel, scratch=scratch, source=node.source,
        serial=node.serial, flops=kernel.flops,
    )  # fmt: skip
    return [*packs, step]


def _rewind_step(node: Node, attrs: RewoundAttributes, places: Places, part: LowerPart) -> Step:
    """A rewound loop. Snapshots that nothing else reads are overwritten where they lie."""
    body, advance = (part(Region(b.graph, b.feeds, b.fetches, b.effects), None) for b in attrs.bodies)
    inputs = [places.memory(behind_reshapes(x)) for x in node.inputs]
    middle = attrs.counted + attrs.carries
    last = middle + attrs.states
    owns = all(places.is_read_once(x) for x in node.inputs[middle:last])
    states, rows = attrs.body.feeds[1 + attrs.carries :][: attrs.states], attrs.advance.feeds[1 + attrs.states :]
    kernel = Rewind(
        body, advance, tuple(map(_nbytes, attrs.body.fetches[: attrs.carries])), tuple(map(_nbytes, states)),
        tuple(map(_nbytes, rows[: attrs.sequences])), len(inputs) - last - attrs.sequences,
        tuple(map(_nbytes, attrs.body.fetches[attrs.carries :])), attrs.schedule, attrs.reverse, attrs.counted, owns,
    )  # fmt: skip
    lent = lent_slots(kernel.parts)
    for slot in lent:
        places.add(slot)
    outputs = [places.memory(y) for y in node.outputs]
    scratch = Temp(f"{node.name}.turn", kernel.scratch_bytes, "memory of a turn", node.source)
    return Step(
        node.op.name, "loop", None, tuple(Operand(m) for m in (*inputs, *outputs, *lent)),
        tuple(dict.fromkeys((*inputs, *lent))), tuple(outputs), tuple(inputs[middle:last]) if owns else (),
        loop=kernel, scratch=scratch, source=node.source, serial=node.serial, flops=kernel.flops,
    )  # fmt: skip


def _pack_step(feed: PackedFeed, memory: Memory, node: Node) -> Step:
    """The step before a loop that packs an operand that all turns read, into a buffer of its own."""
    packed = Temp(f"{node.name}.packed", feed.nbytes, "packed for all turns", node.source)
    return Step(
        f"pack_{node.name}", "pack", feed.kernel, (Operand(memory, feed.offset), Operand(packed)), (memory,),
        (packed,), source=node.source, serial=node.serial,
    )  # fmt: skip


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


def _nbytes(x: Tensor) -> int:
    return math.prod(sizes(x.shape)) * x.dtype.itemsize
