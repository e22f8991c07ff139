"""Memory of a nest: how its accesses become vector loads and stores, gathers and scatters.

Input: a ``NestPlan`` and a ``LoopScope`` that says which loops are open around the place where code is written; output:
LLVM values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from staticgrad.compiler.emit import masked
from staticgrad.compiler.emit.lanes import prefetch
from staticgrad.compiler.emit.llvm import Function, Value, lanes_of, memory_type, vector
from staticgrad.compiler.emit.nest.addresses import Addresses
from staticgrad.compiler.emit.nest.elements import added, from_memory, to_memory
from staticgrad.compiler.emit.nest.scope import LoopScope
from staticgrad.compiler.emit.nest.staged import StagedRows
from staticgrad.compiler.emit.nest.strided import StridedLanes
from staticgrad.compiler.emit.nest.tiles import Tiles
from staticgrad.compiler.emit.scalars.lane import Lane
from staticgrad.compiler.kernels.nest import Access
from staticgrad.compiler.machine.machine import LINE
from staticgrad.compiler.plans.nest.axes import is_far, is_turned
from staticgrad.compiler.plans.nest.plan import AHEAD, NestPlan


class Memory:
    """Loads and stores of one nest in one function."""

    def __init__(self, f: Function, plan: NestPlan, pointers: Sequence[Value], scratch: Value | None) -> None:
        self.f = f
        self.plan = plan
        self.addresses = Addresses(f, plan, pointers, scratch)
        self.staged = StagedRows(f, plan, self.addresses)
        self.strided = StridedLanes(f, self.addresses)

    # -- loads --------------------------------------------------------------------------------------------------

    def load(
        self, scope: LoopScope, access: Access, dtype: np.dtype, lanes: int, copy: int = 0, guard: Value | None = None
    ) -> Lane:
        """The element at ``access``, or ``lanes`` of them along the vector axis; zero where ``guard`` is off."""
        access = self.staged.found(scope, access)
        if lanes == 1:
            return self._load_scalar(scope, access, dtype, copy, guard)
        mask = self._mask(scope, guard)
        type_ = vector(memory_type(dtype), lanes)
        if not self.addresses.is_contiguous(scope, access):
            if guard is None and self.strided.reaches(scope, access, dtype):
                return from_memory(self.f, self.strided.load(scope, access, dtype, copy), dtype)
            if mask is None and self.strided.is_lane_by_lane(scope, access):
                return from_memory(self.f, self.strided.load_lanes(scope, access, dtype, copy), dtype)
            addresses = self.addresses.of_lanes(scope, access, dtype, copy)
            return from_memory(self.f, masked.gather(self.f, memory_type(dtype), addresses, mask), dtype)
        address, mask = self._run(scope, access, dtype, copy, mask)
        if copy * lanes * dtype.itemsize % LINE == 0:  # once for each line, which several vectors may share
            self._prefetch(access, dtype, address)
        found = masked.load(self.f, type_, address, mask)
        return from_memory(self.f, self._turned(found, access), dtype)

    def _prefetch(self, access: Access, dtype: np.dtype, address: Value) -> None:
        """Prefetch what a later turn loads, where that is too far away for the hardware prefetcher."""
        ahead = self.plan.ahead
        if ahead is not None and access.arg >= 0 and is_far(self.plan.nest, access, ahead, self.f.target):
            place = self.f.offset(address, AHEAD * access.strides[ahead], memory_type(dtype))
            prefetch(self.f, place, near=self.plan.panel is None)

    def load_tile(self, scope: LoopScope, access: Access, dtype: np.dtype) -> list[Lane] | None:
        """All copies of a load that is contiguous across the vectors: rows of a tile, transposed in registers. None
        where the load is of another form."""
        block, axis = scope.block, self.plan.vector
        if block.across is None or axis is None or not is_turned(access, axis, block.across):
            return None
        tile = Tiles(self.f, dtype, block.lanes, block.copies, access.strides[axis])
        first = self.addresses.at(scope, access, dtype, 0)
        return [from_memory(self.f, column, dtype) for column in tile.columns(first)]

    def _load_scalar(self, scope: LoopScope, access: Access, dtype: np.dtype, copy: int, guard: Value | None) -> Lane:
        address = self.addresses.at(scope, access, dtype, copy)
        if guard is not None:
            # No branch: where the guard is off, a zero is read instead.
            zero = self.f.symbol(self.f.module.table("nest_zero", np.zeros(1)))
            address = self.f.select(guard, address, zero)
        return from_memory(self.f, self.f.load(memory_type(dtype), address), dtype)

    # -- stores -------------------------------------------------------------------------------------------------

    def store(
        self,
        scope: LoopScope,
        access: Access,
        value: Lane,
        copy: int = 0,
        guard: Value | None = None,
        *,
        add: bool = False,
    ) -> None:
        """Write a scalar or a vector, or add it to what is there; where ``guard`` is off memory is not touched."""
        lanes, dtype = lanes_of(value.value.type), value.dtype
        access = self.staged.found(scope, access)
        if lanes == 1:
            address = self.addresses.at(scope, access, dtype, copy)
            if guard is None:
                self._store_scalar(address, value, add)
            else:
                with self.f.when(guard):
                    self._store_scalar(address, value, add)
            return
        mask = self._mask(scope, guard)
        if guard is None and self.strided.reaches(scope, access, dtype):
            self.strided.store(scope, access, value, copy, add)
            return
        if not self.addresses.is_contiguous(scope, access):
            if mask is None and not add and self.strided.is_lane_by_lane(scope, access):
                self.strided.store_lanes(scope, access, value, copy)
                return
            addresses = self.addresses.of_lanes(scope, access, dtype, copy)
            if add:
                old = masked.gather(self.f, memory_type(dtype), addresses, mask)
                value = added(self.f, from_memory(self.f, old, dtype), value)
            masked.scatter(self.f, to_memory(self.f, value.value), addresses, mask)
            return
        address, mask = self._run(scope, access, dtype, copy, mask)
        new = self._turned(to_memory(self.f, value.value), access)
        if add:
            old = masked.load(self.f, new.type, address, mask)
            turned = from_memory(self.f, new, dtype)
            new = to_memory(self.f, added(self.f, from_memory(self.f, old, dtype), turned).value)
        masked.store(self.f, new, address, mask)

    def _store_scalar(self, address: Value, value: Lane, add: bool) -> None:
        if add:
            old = self.f.load(memory_type(value.dtype), address)
            value = added(self.f, from_memory(self.f, old, value.dtype), value)
        self.f.store(to_memory(self.f, value.value), address)

    # -- lanes side by side -----------------------------------------------------------------------------------------

    def _run(
        self, scope: LoopScope, access: Access, dtype: np.dtype, copy: int, mask: Value | None
    ) -> tuple[Value, Value | None]:
        """The first address of lanes side by side, and the mask in the order of the addresses."""
        address = self.addresses.at(scope, access, dtype, copy)
        if self.addresses.step(access) == 1:
            return address, mask
        address = self.f.offset(address, 1 - scope.block.lanes, memory_type(dtype))
        return address, None if mask is None else self._reversed(mask)

    def _turned(self, value: Value, access: Access) -> Value:
        return value if self.addresses.step(access) == 1 else self._reversed(value)

    def _reversed(self, value: Value) -> Value:
        return self.f.shuffle(value, None, range(lanes_of(value.type) - 1, -1, -1))

    def _mask(self, scope: LoopScope, guard: Value | None) -> Value | None:
        mask = scope.block.mask
        if mask is None or guard is None:
            return guard if mask is None else mask
        return self.f.binary("and", mask, guard)
