"""Accumulators of a nest: the registers in which the reductions of a sweep gather elements.

Input: the values of the nest, and a ``LoopScope`` whose ``sweep`` says which accumulators there are. Output: their LLVM
values after a turn, after two parts of a loop, or after panels of rows, which leave them in scratch memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from staticgrad.compiler.emit.llvm import Function, Value, lanes_of, memory_type, value_type, vector
from staticgrad.compiler.emit.nest.elements import from_memory, to_memory
from staticgrad.compiler.emit.nest.reduction import across_lanes, combine, combine_all, combine_pair, neutral
from staticgrad.compiler.emit.nest.scope import LoopScope, OpenSweep
from staticgrad.compiler.emit.nest.values import NestValues
from staticgrad.compiler.emit.scalars.lane import Lane
from staticgrad.compiler.kernels.nest import Reduce, ReduceKind, accumulator_dtype
from staticgrad.compiler.plans.nest.facts import dtype_of
from staticgrad.compiler.plans.nest.plan import NestPlan
from staticgrad.compiler.plans.nest.sweeps import Sweep


def _slots(scope: LoopScope) -> tuple[tuple[int, str], ...]:
    return () if scope.sweep is None else scope.sweep.slots


class Accumulators:
    """The accumulators of one nest's sweeps in one function."""

    def __init__(self, f: Function, plan: NestPlan, values: NestValues) -> None:
        self.f = f
        self.plan = plan
        self.body = plan.nest.body
        self.values = values
        self.roots = values.memory.addresses.roots

    def opened(self, scope: LoopScope, sweep: Sweep) -> LoopScope:
        """The scope of a sweep that is begun here."""
        inner = scope.nested()
        inner.sweep = OpenSweep(
            sweep, tuple((n, t) for n in sweep.reductions for t in self._slot_types(scope, sweep, n))
        )
        return inner

    def by_reduction(self, scope: LoopScope, gathered: Sequence[Value]) -> dict[int, list[Value]]:
        """The accumulators of the open sweep, of each of its reductions."""
        assert scope.sweep is not None
        found: dict[int, list[Value]] = {number: [] for number in scope.sweep.plan.reductions}
        for (number, _), value in zip(scope.sweep.slots, gathered, strict=True):
            found[number].append(value)
        return found

    def row_values(self, scope: LoopScope, gathered: dict[int, list[Value]]) -> None:
        """Make row values of the reductions whose accumulators these are."""
        for number, found in gathered.items():
            kind, _, dtype = self.reduce(number)
            if self.plan.vector_is_inner:
                whole = [value for value in found if lanes_of(value.type) == self.plan.lanes]
                total = combine_all(self.f, kind, dtype, whole)
                found = [across_lanes(self.f, kind, dtype, total, *found[len(whole) :])]
            wanted = dtype_of(self.plan.nest, number)
            scope.values[number] = [self.values.cast(Lane(value, dtype), wanted) for value in found]

    def reduce(self, number: int) -> tuple[ReduceKind, int, np.dtype]:
        """Kind, operand and the dtype of the accumulators of a reduction."""
        reduce = self.body[number]
        assert isinstance(reduce, Reduce)
        return reduce.kind, reduce.arg, accumulator_dtype(reduce.kind, reduce.dtype)

    def _slot_types(self, scope: LoopScope, sweep: Sweep, number: int) -> list[str]:
        """The accumulators of one reduction: a vector for each copy, and one for each shorter vector of a tail."""
        _, arg, dtype = self.reduce(number)
        element = value_type(dtype)
        if self.plan.vector_is_inner:
            copies = max(span.copies for span in sweep.spans)
            shorter = [span.lanes for span in sweep.spans if span.lanes < self.plan.lanes]
            return [vector(element, lanes) for lanes in (*[self.plan.lanes] * copies, *shorter)]
        lanes, found = self.values.lanes_and_copies(scope, arg)
        return [vector(element, lanes)] * len(found)

    def are_floating(self, scope: LoopScope) -> bool:
        """True if the open sweep adds up floats."""
        reduces = [self.reduce(number) for number, _ in _slots(scope)]
        return any(kind == "sum" and dtype.kind == "f" for kind, _, dtype in reduces)

    def neutral(self, scope: LoopScope) -> list[Value]:
        """The accumulators before the first turn."""
        reduces = [(*self.reduce(number), type_) for number, type_ in _slots(scope)]
        return [neutral(self.f, kind, dtype, type_) for kind, _, dtype, type_ in reduces]

    def added(self, scope: LoopScope, total: Sequence[Value], part: Sequence[Value]) -> list[Value]:
        """The accumulators of two parts of the turns, combined."""
        reduces = [self.reduce(number) for number, _ in _slots(scope)]
        each = zip(reduces, total, part, strict=True)
        return [combine(self.f, kind, dtype, a, b) for (kind, _, dtype), a, b in each]

    def take(self, scope: LoopScope, accumulators: Sequence[Value]) -> list[Value]:
        """Take this turn's elements into the accumulators."""
        assert scope.sweep is not None
        new = list(accumulators)
        for number in scope.sweep.plan.reductions:
            kind, arg, dtype = self.reduce(number)
            lanes, copies, mask = scope.block.lanes, range(scope.block.copies), scope.block.mask
            if not self.plan.vector_is_inner:
                # Lanes are rows: what a row beyond the end gathers is never stored.
                (lanes, copies), mask = self.values.lanes_and_copies(scope, arg), None
            slots = [i for i, (n, type_) in enumerate(scope.sweep.slots) if n == number and lanes_of(type_) == lanes]
            if self._in_pairs(number, lanes, len(copies)) and mask is None:
                values = [
                    self.values.cast(self.values.operand(scope, arg, lanes, copy), dtype).value for copy in copies
                ]
                for i in range(0, len(copies), 2):
                    both = new[slots[i]], new[slots[i + 1]]
                    stepped_both = combine_pair(self.f, kind, both, (values[i], values[i + 1]))
                    new[slots[i]], new[slots[i + 1]] = stepped_both
                continue
            for copy in copies:
                old = new[slots[copy]]
                if number in self.plan.contracted:
                    a, b = self.values.factors(scope, arg, lanes, copy)
                    stepped = self.f.fma(a.value, b.value, old)
                else:
                    x = self.values.cast(self.values.operand(scope, arg, lanes, copy), dtype)
                    stepped = combine(self.f, kind, dtype, old, x.value)
                new[slots[copy]] = stepped if mask is None else self.f.select(mask, stepped, old)
        return new

    def _in_pairs(self, number: int, lanes: int, copies: int) -> bool:
        """True if the accumulators of a reduction are floating extremes that become one in the end, two and two."""
        kind, _, dtype = self.reduce(number)
        is_extreme = kind in ("max", "min") and dtype.kind == "f"
        return is_extreme and self.plan.vector_is_inner and lanes == self.plan.lanes and copies % 2 == 0

    # -- panels of rows -----------------------------------------------------------------------------------------

    def save_panel(self, scope: LoopScope, gathered: dict[int, list[Value]]) -> None:
        """Combine what a panel gave with what the panels before have left in scratch memory."""
        assert scope.panel is not None
        for number, values in gathered.items():
            kind, _, dtype = self.reduce(number)
            for copy, value in enumerate(values):
                if scope.panel[0] != 0:
                    value = combine(self.f, kind, dtype, self._saved(scope, number, copy, value.type), value)
                self.f.store(to_memory(self.f, value), self._saved_at(scope, number, copy))

    def load_panels(self, scope: LoopScope, sweep: Sweep) -> dict[int, list[Value]]:
        """Load what all panels have left in scratch memory, as ``_gather`` does."""
        types = {number: self._slot_types(scope, sweep, number) for number in sweep.reductions}
        return {n: [self._saved(scope, n, copy, type_) for copy, type_ in enumerate(types[n])] for n in types}

    def _saved(self, scope: LoopScope, number: int, copy: int, type_: str) -> Value:
        dtype = self.reduce(number)[2]
        found = self.f.load(vector(memory_type(dtype), lanes_of(type_)), self._saved_at(scope, number, copy))
        return from_memory(self.f, found, dtype).value

    def _saved_at(self, scope: LoopScope, number: int, copy: int) -> Value:
        """The address in scratch memory that holds an accumulator between two panels."""
        assert self.plan.panel is not None
        assert self.plan.vector is not None
        column = self.f.add(scope.index[self.plan.vector], copy * scope.block.lanes)
        return self.f.offset(self.roots[self.plan.panel[number].arg], column, memory_type(self.reduce(number)[2]))
