"""Places: where the tensors of a region lie.

Input: a region of primitives. Output, as lowering asks: for each tensor a slot of the caller's memory (what is fed
and fetched, state, constants, keys) or a buffer of the arena, and the strides of its axes there. Where in the arena a
buffer lies is decided by placement.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from staticgrad.base.types import TensorType, sizes
from staticgrad.compiler.kernels.access import Path, behind_reshapes, broadcast_map, resolve, source_of
from staticgrad.compiler.kernels.layout import strides_with
from staticgrad.compiler.program.memories import Memory, Operand, Temp
from staticgrad.compiler.program.slots import ConstantSlot, FeedSlot, FetchSlot, GradSlot, KeySlot, Slot, StateSlot
from staticgrad.compiler.regions.region import Region
from staticgrad.graph.graph import Node, Tensor
from staticgrad.ops.effects import ASSIGN, ASSIGN_ROWS
from staticgrad.ops.sources import ACCUMULATED_GRAD, CONSTANT, VARIABLE
from staticgrad.ops.views.joining import BUCKET


class Places:
    """The memories of one program. ``slots`` are the caller's, in the order in which the program takes them."""

    def __init__(self, region: Region, users: Mapping[Tensor, Sequence[Node]]) -> None:
        self.strides_of = strides_with(region.layouts)
        self.slots: list[Slot] = []
        self._known: set[Slot] = set()
        self._users = users
        self._memory: dict[Tensor, Memory] = {}
        self._gradients: dict[str, GradSlot] = {}
        self._keys: dict[bool, KeySlot] = {}
        self._states: dict[str, StateSlot] = {}
        self._starts: dict[Node, dict[Tensor, int]] = {}
        for index, x in enumerate(region.feeds):
            self._memory[x] = self.add(FeedSlot(index, x.type))
        for index, x in enumerate(region.fetches):
            self._memory[behind_reshapes(x)] = self.add(FetchSlot(index, x.type))
        self._add_states(region.graph.nodes)

    def _add_states(self, nodes: Sequence[Node]) -> None:
        written = {n.attrs.key for n in nodes if n.op in (ASSIGN, ASSIGN_ROWS)}
        for node in nodes:
            if node.op not in (VARIABLE, ASSIGN):
                continue
            key = node.attrs.key
            x = node.outputs[0] if node.op is VARIABLE else node.inputs[0]
            if key not in self._states:
                self._states[key] = StateSlot(key, x.type, key in written)
                self.add(self._states[key])
            if node.op is VARIABLE:
                self._memory[x] = self._states[key]

    def add(self, slot: Slot) -> Slot:
        """A memory of the caller's, which is one more unless it is known already."""
        if slot in self._known:
            return slot
        self._known.add(slot)
        self.slots.append(slot)
        if isinstance(slot, GradSlot):
            self._gradients[slot.key] = slot
        return slot

    def key(self, again: bool = False) -> KeySlot:
        """The key of random numbers: this run's, or that of the run whose values are computed again."""
        if again not in self._keys:
            self._keys[again] = KeySlot(again)
            self.add(self._keys[again])
        return self._keys[again]

    def state(self, key: str) -> StateSlot:
        """The memory of a variable that the region reads or writes."""
        return self._states[key]

    def gradient(self, key: str, type_: TensorType) -> GradSlot:
        """The memory of an accumulated gradient."""
        if key not in self._gradients:
            self.add(GradSlot(key, type_))
        return self._gradients[key]

    def is_read_once(self, x: Tensor) -> bool:
        """True if a tensor has a buffer of the arena to itself that one node alone reads."""
        return behind_reshapes(x) is x and len(self._users[x]) == 1 and isinstance(self.memory(x), Temp)

    def memory(self, x: Tensor) -> Memory:
        """The memory in which a tensor lies: the caller's for sources and fetches, else a buffer of the arena."""
        x = source_of(x)
        if x not in self._memory:
            if x.op.op is CONSTANT:
                self._memory[x] = self.add(ConstantSlot(x.op.attrs.value))
            elif x.op.op is ACCUMULATED_GRAD:
                self._memory[x] = self.gradient(x.op.attrs.key, x.type)
            else:
                nbytes = math.prod(sizes(x.shape)) * x.dtype.itemsize
                reason = ", ".join(dict.fromkeys(user.name for user in self._users[x])) or "result"
                self._memory[x] = Temp(x.name, nbytes, f"read by {reason}", x.source)
        return self._memory[x]

    def found(self) -> dict[Tensor, tuple[Memory, tuple[int, ...]]]:
        """The memory of each tensor that has been asked for, and its strides there."""
        return {x: (memory, tuple(self.strides_of(x))) for x, memory in self._memory.items()}

    def start_in(self, concat: Node, x: Tensor) -> int:
        """The index at which operand ``x`` begins in the result of a concat, along its axis, or of a bucket."""
        if concat not in self._starts:
            starts, start = self._starts.setdefault(concat, {}), 0
            for y in concat.inputs:
                starts.setdefault(y, start)
                shape = sizes(y.shape)
                start += math.prod(shape) if concat.op is BUCKET else shape[concat.attrs.axis]
        return self._starts[concat][x]

    def strided(self, x: Tensor) -> tuple[Operand, tuple[int, ...]]:
        """The memory in which an operand of a matrix kernel lies, through views, and its strides by axis."""
        shape = sizes(x.shape)
        path = resolve(x, broadcast_map(shape, shape), self.strides_of)
        assert isinstance(path, Path)
        assert not path.guards
        factors = dict(path.address.terms)
        strides = tuple(factors.get(axis, 0) for axis in range(len(shape)))
        return Operand(self.memory(path.base), path.address.offset * x.dtype.itemsize), strides
