"""Memory of a nest: how its accesses become addresses, vector loads and stores, gathers and scatters.

Input: a ``NestPlan`` and a ``LoopScope`` that says which loops are open around the place where code is written; output:
LLVM values. What an address has in common with others, or from turn to turn, is computed once, in the outermost
loop where it is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

import numpy as np

from staticgrad.base.extents import is_open
from staticgrad.base.frozen import frozen, record
from staticgrad.compiler.emit.lanes import leading_lanes, mask_of, prefetch
from staticgrad.compiler.emit.llvm import Function, Index, Value, element_of, lanes_of, memory_type, vector
from staticgrad.compiler.emit.nest.tiles import Tiles
from staticgrad.compiler.emit.scalars import Lane
from staticgrad.compiler.kernels.nest import Access
from staticgrad.compiler.machine.machine import LINE
from staticgrad.compiler.plans.nest.axes import is_far, is_near, is_turned
from staticgrad.compiler.plans.nest.plan import AHEAD, NestPlan


@frozen
class VectorBlock:
    """The elements that one turn of the innermost loops covers: ``copies`` vectors of ``lanes``, of which ``mask`` are
    inside (the first ``count``, or all of them if it is larger). The vectors follow each other along the vector axis,
    or stand side by side along the axis ``across``. With ``rows`` the lanes are the rows of a group, whatever the
    vector axis is."""

    lanes: int = 1
    copies: int = 1
    mask: Value | None = None
    across: int | None = None
    rows: bool = False
    count: Index | None = None


PointerKey = tuple[int, tuple[int, ...], tuple[tuple[int, int], ...]]


@frozen
class _Pointer:
    """An address as far as it is known: with the dimensions and the indirect terms that are already in it."""

    value: Value
    dims: frozenset[int] = frozenset()
    terms: frozenset[int] = frozenset()


@record
class LoopScope:
    """The values that are known at one place of the code. ``values[n]`` holds the copies of instruction n, one where
    all are the same; scalars where the lanes are the same."""

    index: dict[int, Index] = field(default_factory=dict)
    values: dict[int, list[Lane]] = field(default_factory=dict)
    splats: dict[tuple[int, int], Lane] = field(default_factory=dict)  # by instruction and copy
    pointers: dict[PointerKey, _Pointer] = field(default_factory=dict)
    products: dict[tuple[int, int], Index] = field(default_factory=dict)
    block: VectorBlock = field(default_factory=VectorBlock)

    def nested(self, block: VectorBlock | None = None) -> LoopScope:
        """The scope inside a loop: all that is known here, and what is found there does not come out."""
        inner = replace(
            self,
            index=dict(self.index),
            values=dict(self.values),
            splats=dict(self.splats),
            pointers=dict(self.pointers),
            products=dict(self.products),
        )
        if block is not None and block != self.block:
            inner.block = block
            inner.splats = {}
        return inner


def to_memory(f: Function, value: Value) -> Value:
    """The element in the form in which it is stored: a bool is a byte."""
    return f.cast("zext", value, "i8") if element_of(value.type) == "i1" else value


def from_memory(f: Function, value: Value, dtype: np.dtype) -> Lane:
    """A loaded element as it is computed with: a bool is one bit."""
    if dtype.kind == "b":
        return Lane(f.compare("icmp ne", value, f.const(0, value.type)), dtype)
    return Lane(value, dtype)


class Memory:
    """Loads and stores of one nest in one function."""

    def __init__(self, f: Function, plan: NestPlan, pointers: Sequence[Value], scratch: Value | None) -> None:
        self.f = f
        self.plan = plan
        self.split = len(plan.nest.outer)
        self.roots: dict[int, Value] = dict(enumerate(pointers))
        if scratch is not None:
            self.roots |= {-1 - i: f.offset(scratch, at, "i8") for i, at in enumerate(plan.scratch)}

    def own_scratch(self, scope: LoopScope, row: int) -> None:
        """Have row ``row`` of a group keep its values in scratch memory of its own."""
        for access in self.plan.kept.values():
            if access.arg < 0:
                root = self.f.offset(self.roots[access.arg], row * self.plan.row_bytes, "i8")
                scope.pointers[access.arg, access.strides, access.terms] = _Pointer(root)

    # -- addresses ----------------------------------------------------------------------------------------------

    def prepare(self, scope: LoopScope, access: Access, dtype: np.dtype) -> None:
        """Compute now what is known of an address that is used in a deeper loop."""
        self._pointer(scope, access, dtype)

    def _pointer(self, scope: LoopScope, access: Access, dtype: np.dtype) -> Value:
        """The address of ``access`` for lane 0 of copy 0, without its constant offset, with all that is known."""
        key = (access.arg, access.strides, access.terms)
        known = scope.pointers.get(key) or _Pointer(self.roots[access.arg])
        dims = {d for d, stride in enumerate(access.strides) if stride and d in scope.index and d not in known.dims}
        if access.arg < 0:
            # Scratch memory holds one row, or one block of rows: where that row is does not matter.
            dims = {d for d in dims if d >= self.split}
        terms = {v for v, _ in access.terms if v not in known.terms and self._is_scalar(scope, v)}
        if not dims and not terms:
            return known.value
        index: Index = 0
        for dim in sorted(dims):
            index = self.f.add(index, self._product(scope, dim, access.strides[dim]))
        for value, stride in access.terms:
            if value in terms:
                index = self.f.add(index, self.f.mul(scope.values[value][0].value, stride))
        found = self.f.offset(known.value, index, memory_type(dtype))
        scope.pointers[key] = _Pointer(found, known.dims | dims, known.terms | terms)
        return found

    def _product(self, scope: LoopScope, dim: int, stride: int) -> Index:
        key = (dim, stride)
        if key not in scope.products:
            scope.products[key] = self.f.mul(scope.index[dim], stride)
        return scope.products[key]

    def _is_scalar(self, scope: LoopScope, value: int) -> bool:
        return value in scope.values and not scope.values[value][0].value.type.startswith("<")

    def _address(self, scope: LoopScope, access: Access, dtype: np.dtype, copy: int) -> Value:
        base = self._pointer(scope, access, dtype)
        block = scope.block
        shift = block.lanes * self._step(access) if block.across is None else access.strides[block.across]
        return self.f.offset(base, access.offset + copy * shift, memory_type(dtype))

    def _step(self, access: Access) -> int:
        return 0 if self.plan.vector is None else access.strides[self.plan.vector]

    def _lane_addresses(self, scope: LoopScope, access: Access, dtype: np.dtype, copy: int) -> Value:
        """A vector of addresses."""
        f, lanes = self.f, scope.block.lanes
        base = self._address(scope, access, dtype, copy)
        step = self._step(access)
        if is_open(step):
            index = f.binary("mul nsw", f.lane_numbers(vector(f.word, lanes)), f.splat(f.index(step), lanes))
        else:
            numbers = ", ".join(f"{f.word} {lane * step}" for lane in range(lanes))
            index = Value(f"<{numbers}>", vector(f.word, lanes))
        for value, stride in access.terms:
            if not self._is_scalar(scope, value):
                copies = scope.values[value]
                term = copies[copy if len(copies) > 1 else 0].value
                if element_of(term.type) != f.word:
                    term = f.cast("trunc", term, f.word)
                if stride != 1:
                    factor = f.splat(f.index(stride), lanes) if is_open(stride) else f.const(stride, term.type)
                    term = f.binary("mul nsw", term, factor)
                index = f.binary("add nsw", index, term)
        return f.emit(f"<{lanes} x ptr>", f"getelementptr {memory_type(dtype)}, {base}, {index}")

    def _is_contiguous(self, scope: LoopScope, access: Access) -> bool:
        """True if the lanes lie side by side, forwards or backwards."""
        return abs(self._step(access)) == 1 and all(self._is_scalar(scope, value) for value, _ in access.terms)

    # -- short rows ---------------------------------------------------------------------------------------------

    def take_rows(self, scope: LoopScope) -> None:
        """Transpose the rows of a block that are loaded to scratch memory."""
        for access, tiles in self._tiles(scope, self.plan.loaded):
            tiles.take(self._address(scope, access, self._dtype(access), 0), self._staged_root(access))

    def give_rows(self, scope: LoopScope) -> None:
        """Transpose the rows of a block that are stored back from scratch memory."""
        for access, tiles in self._tiles(scope, self.plan.stored):
            tiles.give(self._staged_root(access), self._address(scope, access, self._dtype(access), 0))

    def _tiles(self, scope: LoopScope, accesses: frozenset[Access]) -> list[tuple[Access, Tiles]]:
        if not self._is_staging(scope):
            return []
        size, lanes = self.plan.nest.dims[-1], scope.block.lanes
        chosen = [access for access in self.plan.staged if access in accesses]
        return [(x, Tiles(self.f, self._dtype(x), lanes, size, self._step(x))) for x in chosen]

    def _is_staging(self, scope: LoopScope) -> bool:
        return bool(self.plan.staged) and scope.block.mask is None and scope.block.lanes == self.plan.lanes

    def _dtype(self, access: Access) -> np.dtype:
        return self.plan.nest.args[access.arg]

    def _staged_root(self, access: Access) -> Value:
        return self.roots[self.plan.staged[access].arg]

    def _found(self, scope: LoopScope, access: Access) -> Access:
        """The access to the elements of ``access`` while a block of rows is worked on: the staged copy, if there is
        one."""
        return self.plan.staged.get(access, access) if self._is_staging(scope) else access

    # -- loads --------------------------------------------------------------------------------------------------

    def load(
        self, scope: LoopScope, access: Access, dtype: np.dtype, lanes: int, copy: int = 0, guard: Value | None = None
    ) -> Lane:
        """The element at ``access``, or ``lanes`` of them along the vector axis; zero where ``guard`` is off."""
        access = self._found(scope, access)
        if lanes == 1:
            return self._load_scalar(scope, access, dtype, copy, guard)
        mask = self._mask(scope, guard)
        type_ = vector(memory_type(dtype), lanes)
        if not self._is_contiguous(scope, access):
            if guard is None and self._is_strided(scope, access, dtype):
                return from_memory(self.f, self._load_strided(scope, access, dtype, copy), dtype)
            if mask is None and self._is_lane_by_lane(scope, access):
                return from_memory(self.f, self._load_lanes(scope, access, dtype, copy), dtype)
            addresses = self._lane_addresses(scope, access, dtype, copy)
            return from_memory(self.f, self.f.gather(memory_type(dtype), addresses, mask), dtype)
        address, mask = self._run(scope, access, dtype, copy, mask)
        if copy * lanes * dtype.itemsize % LINE == 0:  # once for each line, which several vectors may share
            self._prefetch(access, dtype, address)
        found = self.f.load(type_, address) if mask is None else self.f.masked_load(type_, address, mask)
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
        return [from_memory(self.f, column, dtype) for column in tile.columns(self._address(scope, access, dtype, 0))]

    def _load_scalar(self, scope: LoopScope, access: Access, dtype: np.dtype, copy: int, guard: Value | None) -> Lane:
        address = self._address(scope, access, dtype, copy)
        if guard is not None:
            # No branch: where the guard is off, a zero is read instead.
            zero = self.f.symbol(self.f.module.table("nest_zero", np.zeros(1)))
            address = self.f.select(guard, address, zero)
        return from_memory(self.f, self.f.load(memory_type(dtype), address), dtype)

    # -- every second element, every third, … -----------------------------------------------------------------------

    def _is_strided(self, scope: LoopScope, access: Access, dtype: np.dtype) -> bool:
        """True if the lanes are so near each other that vectors and shuffles reach them with fewer instructions."""
        block = scope.block
        near = is_near(self._step(access), block.lanes) and all(self._is_scalar(scope, v) for v, _ in access.terms)
        return near and (block.mask is None or (block.count is not None and dtype.itemsize >= 4))

    def _load_strided(self, scope: LoopScope, access: Access, dtype: np.dtype, copy: int) -> Value:
        """Overlapping vectors that end with the last lane, of which lanes are chosen."""
        lanes, step = scope.block.lanes, self._step(access)
        address, type_ = self._address(scope, access, dtype, copy), vector(memory_type(dtype), lanes)
        end = (lanes - 1) * step + 1
        found: Value | None = None
        for first in range(0, end, lanes):
            start = min(first, end - lanes)
            place, mask = self.f.offset(address, start, memory_type(dtype)), self._mask_of_strided(scope, step, start)
            part = self.f.load(type_, place) if mask is None else self.f.masked_load(type_, place, mask)
            if found is not None:
                before = [i if first > lanes else i * step for i in range(lanes)]
                new = [lanes + min(i * step - start, lanes - 1) for i in range(lanes)]
                part = self.f.shuffle(found, part, [n if i * step >= first else before[i] for i, n in enumerate(new)])
            found = part
        assert found is not None
        return found

    def _store_strided(self, scope: LoopScope, access: Access, value: Lane, copy: int, add: bool) -> None:
        """Vectors of which the lanes in between are masked out; lane by lane where such a store is no single
        instruction."""
        lanes, step, dtype = scope.block.lanes, self._step(access), value.dtype
        address = self._address(scope, access, dtype, copy)
        if not self.f.target.isa.predicated:
            if add:
                value = self._sum(from_memory(self.f, self._load_strided(scope, access, dtype, copy), dtype), value)
            self._store_lanes(scope, access, value, copy)
            return
        new = to_memory(self.f, value.value)
        for start in range(0, lanes * step, lanes):
            place = self.f.offset(address, start, memory_type(dtype))
            numbers = range(start, start + lanes)
            mask = mask_of(n % step == 0 for n in numbers)
            if (inside := self._mask_of_strided(scope, step, start)) is not None:
                mask = self.f.binary("and", mask, inside)
            part = self.f.shuffle(new, None, [n // step for n in numbers])
            if add:
                old = from_memory(self.f, self.f.masked_load(part.type, place, mask), dtype)
                part = to_memory(self.f, self._sum(old, from_memory(self.f, part, dtype)).value)
            self.f.masked_store(part, place, mask)

    # -- lane by lane -----------------------------------------------------------------------------------------------

    def _is_lane_by_lane(self, scope: LoopScope, access: Access) -> bool:
        """True if lanes that do not lie side by side have constant distances, on a target without instructions that
        gather and scatter them: then no vector of addresses is needed."""
        return not self.f.target.isa.gathers and all(self._is_scalar(scope, value) for value, _ in access.terms)

    def _load_lanes(self, scope: LoopScope, access: Access, dtype: np.dtype, copy: int) -> Value:
        lanes, step, element = scope.block.lanes, self._step(access), memory_type(dtype)
        address, found = self._address(scope, access, dtype, copy), Value("poison", vector(element, scope.block.lanes))
        for lane in range(lanes):
            found = self.f.insert(found, self.f.load(element, self.f.offset(address, lane * step, element)), lane)
        return found

    def _store_lanes(self, scope: LoopScope, access: Access, value: Lane, copy: int) -> None:
        step, element = self._step(access), memory_type(value.dtype)
        address, new = self._address(scope, access, value.dtype, copy), to_memory(self.f, value.value)
        for lane in range(scope.block.lanes):
            self.f.store(self.f.extract(new, lane), self.f.offset(address, lane * step, element))

    def _mask_of_strided(self, scope: LoopScope, step: int, start: int) -> Value | None:
        """The lanes of the vector at ``start`` that do not lie past the last element of the block."""
        block = scope.block
        if block.mask is None:
            return None
        assert block.count is not None
        return leading_lanes(self.f, block.lanes, self.f.sub(self.f.mul(block.count, step), step - 1 + start))

    def _run(
        self, scope: LoopScope, access: Access, dtype: np.dtype, copy: int, mask: Value | None
    ) -> tuple[Value, Value | None]:
        """The first address of lanes side by side, and the mask in the order of the addresses."""
        address = self._address(scope, access, dtype, copy)
        if self._step(access) == 1:
            return address, mask
        address = self.f.offset(address, 1 - scope.block.lanes, memory_type(dtype))
        return address, None if mask is None else self._reversed(mask)

    def _turned(self, value: Value, access: Access) -> Value:
        return value if self._step(access) == 1 else self._reversed(value)

    def _reversed(self, value: Value) -> Value:
        return self.f.shuffle(value, None, range(lanes_of(value.type) - 1, -1, -1))

    def _mask(self, scope: LoopScope, guard: Value | None) -> Value | None:
        mask = scope.block.mask
        if mask is None or guard is None:
            return guard if mask is None else mask
        return self.f.binary("and", mask, guard)

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
        access = self._found(scope, access)
        if lanes == 1:
            address = self._address(scope, access, dtype, copy)
            if guard is None:
                self._store_scalar(address, value, add)
            else:
                with self.f.when(guard):
                    self._store_scalar(address, value, add)
            return
        mask = self._mask(scope, guard)
        if guard is None and self._is_strided(scope, access, dtype):
            self._store_strided(scope, access, value, copy, add)
            return
        if not self._is_contiguous(scope, access):
            if mask is None and not add and self._is_lane_by_lane(scope, access):
                self._store_lanes(scope, access, value, copy)
                return
            addresses = self._lane_addresses(scope, access, dtype, copy)
            if add:
                value = self._sum(from_memory(self.f, self.f.gather(memory_type(dtype), addresses, mask), dtype), value)
            self.f.scatter(to_memory(self.f, value.value), addresses, mask)
            return
        address, mask = self._run(scope, access, dtype, copy, mask)
        new = self._turned(to_memory(self.f, value.value), access)
        if add:
            old = self.f.load(new.type, address) if mask is None else self.f.masked_load(new.type, address, mask)
            turned = from_memory(self.f, new, dtype)
            new = to_memory(self.f, self._sum(from_memory(self.f, old, dtype), turned).value)
        if mask is None:
            self.f.store(new, address)
        else:
            self.f.masked_store(new, address, mask)

    def _store_scalar(self, address: Value, value: Lane, add: bool) -> None:
        if add:
            old = self.f.load(memory_type(value.dtype), address)
            value = self._sum(from_memory(self.f, old, value.dtype), value)
        self.f.store(to_memory(self.f, value.value), address)

    def _sum(self, a: Lane, b: Lane) -> Lane:
        op = {"f": "fadd", "b": "or"}.get(a.dtype.kind, "add")
        return Lane(self.f.binary(op, a.value, b.value), a.dtype)
