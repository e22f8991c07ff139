"""Every second element, every third, …: lanes near each other by vectors and shuffles, others lane by lane."""

from __future__ import annotations

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit import masked
from staticgrad.compiler.emit.lanes import leading_lanes, mask_of
from staticgrad.compiler.emit.llvm import Function, Value, memory_type, vector
from staticgrad.compiler.emit.nest.addresses import Addresses
from staticgrad.compiler.emit.nest.elements import added, from_memory, to_memory
from staticgrad.compiler.emit.nest.scope import LoopScope
from staticgrad.compiler.emit.scalars.lane import Lane
from staticgrad.compiler.kernels.nest import Access
from staticgrad.compiler.plans.nest.axes import is_near


@frozen
class StridedLanes:
    """Loads and stores of one nest whose lanes do not lie side by side."""

    f: Function
    addresses: Addresses

    def reaches(self, scope: LoopScope, access: Access, dtype: np.dtype) -> bool:
        """True if the lanes are so near each other that vectors and shuffles reach them with fewer instructions."""
        block = scope.block
        near = is_near(self.addresses.step(access), block.lanes) and self.addresses.is_affine(scope, access)
        return near and (block.mask is None or (block.count is not None and dtype.itemsize >= 4))

    def load(self, scope: LoopScope, access: Access, dtype: np.dtype, copy: int) -> Value:
        """Overlapping vectors that end with the last lane, of which lanes are chosen."""
        lanes, step = scope.block.lanes, self.addresses.step(access)
        address, type_ = self.addresses.at(scope, access, dtype, copy), vector(memory_type(dtype), lanes)
        end = (lanes - 1) * step + 1
        found: Value | None = None
        for first in range(0, end, lanes):
            start = min(first, end - lanes)
            place, mask = self.f.offset(address, start, memory_type(dtype)), self._mask(scope, step, start)
            part = masked.load(self.f, type_, place, mask)
            if found is not None:
                before = [i if first > lanes else i * step for i in range(lanes)]
                new = [lanes + min(i * step - start, lanes - 1) for i in range(lanes)]
                part = self.f.shuffle(found, part, [n if i * step >= first else before[i] for i, n in enumerate(new)])
            found = part
        assert found is not None
        return found

    def store(self, scope: LoopScope, access: Access, value: Lane, copy: int, add: bool) -> None:
        """Vectors of which the lanes in between are masked out; lane by lane where such a store is no single
        instruction."""
        lanes, step, dtype = scope.block.lanes, self.addresses.step(access), value.dtype
        address = self.addresses.at(scope, access, dtype, copy)
        if not self.f.target.isa.predicated:
            if add:
                value = added(self.f, from_memory(self.f, self.load(scope, access, dtype, copy), dtype), value)
            self.store_lanes(scope, access, value, copy)
            return
        new = to_memory(self.f, value.value)
        for start in range(0, lanes * step, lanes):
            place = self.f.offset(address, start, memory_type(dtype))
            numbers = range(start, start + lanes)
            mask = mask_of(n % step == 0 for n in numbers)
            if (inside := self._mask(scope, step, start)) is not None:
                mask = self.f.binary("and", mask, inside)
            part = self.f.shuffle(new, None, [n // step for n in numbers])
            if add:
                old = from_memory(self.f, masked.load(self.f, part.type, place, mask), dtype)
                part = to_memory(self.f, added(self.f, old, from_memory(self.f, part, dtype)).value)
            masked.store(self.f, part, place, mask)

    def _mask(self, scope: LoopScope, step: int, start: int) -> Value | None:
        """The lanes of the vector at ``start`` that do not lie past the last element of the block."""
        block = scope.block
        if block.mask is None:
            return None
        assert block.count is not None
        return leading_lanes(self.f, block.lanes, self.f.sub(self.f.mul(block.count, step), step - 1 + start))

    # -- lane by lane -----------------------------------------------------------------------------------------------

    def is_lane_by_lane(self, scope: LoopScope, access: Access) -> bool:
        """True if lanes that do not lie side by side have constant distances, on a target without instructions that
        gather and scatter them: then no vector of addresses is needed."""
        return not self.f.target.isa.gathers and self.addresses.is_affine(scope, access)

    def load_lanes(self, scope: LoopScope, access: Access, dtype: np.dtype, copy: int) -> Value:
        lanes, step, element = scope.block.lanes, self.addresses.step(access), memory_type(dtype)
        address, found = (
            self.addresses.at(scope, access, dtype, copy),
            Value("poison", vector(element, scope.block.lanes)),
        )
        for lane in range(lanes):
            found = self.f.insert(found, self.f.load(element, self.f.offset(address, lane * step, element)), lane)
        return found

    def store_lanes(self, scope: LoopScope, access: Access, value: Lane, copy: int) -> None:
        step, element = self.addresses.step(access), memory_type(value.dtype)
        address, new = self.addresses.at(scope, access, value.dtype, copy), to_memory(self.f, value.value)
        for lane in range(scope.block.lanes):
            self.f.store(self.f.extract(new, lane), self.f.offset(address, lane * step, element))
