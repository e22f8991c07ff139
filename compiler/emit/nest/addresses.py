"""Addresses of a nest: what several of them share, or all turns of a loop, is computed once, where it is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from staticgrad.base.extents import is_open
from staticgrad.compiler.emit.llvm import Function, Index, Value, element_of, memory_type, vector
from staticgrad.compiler.emit.nest.scope import LoopScope, Pointer
from staticgrad.compiler.kernels.nest import Access
from staticgrad.compiler.plans.nest.plan import NestPlan


class Addresses:
    """The addresses of the accesses of one nest in one function."""

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
                scope.pointers[access.arg, access.strides, access.terms] = Pointer(root)

    def prepare(self, scope: LoopScope, access: Access, dtype: np.dtype) -> None:
        """Compute now what is known of an address that is used in a deeper loop."""
        self._pointer(scope, access, dtype)

    def _pointer(self, scope: LoopScope, access: Access, dtype: np.dtype) -> Value:
        """The address of ``access`` for lane 0 of copy 0, without its constant offset, with all that is known."""
        key = (access.arg, access.strides, access.terms)
        known = scope.pointers.get(key) or Pointer(self.roots[access.arg])
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
        scope.pointers[key] = Pointer(found, known.dims | dims, known.terms | terms)
        return found

    def _product(self, scope: LoopScope, dim: int, stride: int) -> Index:
        key = (dim, stride)
        if key not in scope.products:
            scope.products[key] = self.f.mul(scope.index[dim], stride)
        return scope.products[key]

    def _is_scalar(self, scope: LoopScope, value: int) -> bool:
        return value in scope.values and not scope.values[value][0].value.type.startswith("<")

    def is_affine(self, scope: LoopScope, access: Access) -> bool:
        """True if the address is an affine one: all lanes share its indirect terms."""
        return all(self._is_scalar(scope, value) for value, _ in access.terms)

    def at(self, scope: LoopScope, access: Access, dtype: np.dtype, copy: int) -> Value:
        """The address of the first lane of a copy."""
        base = self._pointer(scope, access, dtype)
        block = scope.block
        shift = block.lanes * self.step(access) if block.across is None else access.strides[block.across]
        return self.f.offset(base, access.offset + copy * shift, memory_type(dtype))

    def step(self, access: Access) -> int:
        """The distance of neighbouring lanes, in elements."""
        return 0 if self.plan.vector is None else access.strides[self.plan.vector]

    def of_lanes(self, scope: LoopScope, access: Access, dtype: np.dtype, copy: int) -> Value:
        """A vector of addresses."""
        f, lanes = self.f, scope.block.lanes
        base = self.at(scope, access, dtype, copy)
        step = self.step(access)
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

    def is_contiguous(self, scope: LoopScope, access: Access) -> bool:
        """True if the lanes lie side by side, forwards or backwards."""
        return abs(self.step(access)) == 1 and self.is_affine(scope, access)
