"""Values of a nest: an instruction becomes the lanes of its value at one place of the code.

Input: a ``NestPlan``, the memory of the nest, and a ``LoopScope`` that says what is known at the place. Output: LLVM
values in the scope: one lane where all lanes are the same, else a vector for each copy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from staticgrad.base.extents import is_open
from staticgrad.compiler.emit import masked
from staticgrad.compiler.emit.llvm import Function, lanes_of, memory_type, value_type, vector
from staticgrad.compiler.emit.nest.memory import Memory
from staticgrad.compiler.emit.nest.reduction import combine, starting
from staticgrad.compiler.emit.nest.scope import LoopScope
from staticgrad.compiler.emit.scalars.builder import Scalars
from staticgrad.compiler.emit.scalars.lane import Lane, literal
from staticgrad.compiler.kernels.nest import (
    Compute,
    Constant,
    Iota,
    Load,
    Reduce,
    ReduceKind,
    Running,
    Store,
    accumulator_dtype,
)
from staticgrad.compiler.plans.nest.facts import access_of, dtype_of, lane_operands
from staticgrad.compiler.plans.nest.plan import NestPlan
from staticgrad.graph.optable import OPS

INT64 = np.dtype(np.int64)
COLUMN = 1  # the dimension beside that in which an ordered nest runs


class NestValues:
    """The values of one nest in one function."""

    def __init__(self, f: Function, plan: NestPlan, memory: Memory) -> None:
        self.f = f
        self.plan = plan
        self.nest = plan.nest
        self.body = plan.nest.body
        self.memory = memory
        self.absorbed = frozenset(plan.contracted.values())
        self._scalars: dict[int, Scalars] = {}

    def instructions(self, scope: LoopScope, numbers: Sequence[int]) -> None:
        """Write these instructions in turn; their values are known at this place from then on."""
        sweep = None if scope.sweep is None else scope.sweep.plan
        for number in numbers:
            if number in self.absorbed:
                continue  # its only user computes it
            if sweep is not None and number in sweep.reloads:
                scope.values[number] = self._reload(scope, number)
                continue
            match self.body[number]:
                case Store() as store:
                    self._store(scope, store)
                case Constant():
                    pass
                case _:
                    scope.values[number] = self.compute(scope, number)
            if sweep is not None and number in sweep.saves:
                self._save(scope, number)

    def lanes_and_copies(self, scope: LoopScope, number: int) -> tuple[int, range]:
        block = scope.block
        if block.rows:
            return block.lanes, range(1)
        axis = self.plan.vector if block.across is None else block.across
        copies = block.copies if axis in self.plan.facts.depends[number] else 1
        return block.lanes if self.plan.varies(number) else 1, range(copies)

    def compute(self, scope: LoopScope, number: int) -> list[Lane]:
        """The value of an instruction: one lane where all lanes are the same, else each copy's vector."""
        lanes, copies = self.lanes_and_copies(scope, number)
        match self.body[number]:
            case Iota(dim, dtype):
                return [self._iota(scope, dim, lanes, copy, dtype) for copy in copies]
            case Load(access, dtype, None) if tile := self.memory.load_tile(scope, access, dtype):
                return tile
            case Load(access, dtype, guard):
                guards = [None if guard is None else self.operand(scope, guard, lanes, copy) for copy in copies]
                return [
                    self.memory.load(scope, access, dtype, lanes, copy, None if g is None else g.value)
                    for copy, g in zip(copies, guards, strict=True)
                ]
            case Compute(op, _, args) if number in self.plan.contracted:
                return [self._contracted(scope, number, op, args, lanes, copy) for copy in copies]
            case Compute(op, attrs, args):
                rule = OPS[op].scalar
                if rule is None:
                    raise ValueError(f"op {op} is not elementwise")
                builder = self._builder(lanes)
                return [rule(builder, attrs, *(self.operand(scope, a, lanes, copy) for a in args)) for copy in copies]
            case Reduce(kind, arg, dtype):
                # Without inner dimensions a reduction is over one element.
                gathered = accumulator_dtype(kind, dtype)
                return [self.cast(self.cast(self.operand(scope, arg, lanes, c), gathered), dtype) for c in copies]
            case Running():
                return [self._advanced(scope, number, lanes, copy) for copy in copies]
            case other:
                raise TypeError(f"{other} has no value")

    def _contracted(self, scope: LoopScope, number: int, op: str, args: tuple[int, ...], lanes: int, copy: int) -> Lane:
        """A sum or difference with the product that it takes in."""
        product = self.plan.contracted[number]
        a, b = self.factors(scope, product, lanes, copy)
        other = self.operand(scope, args[0] if args[1] == product else args[1], lanes, copy)
        builder = self._builder(lanes)
        if op == "subtract":
            if args[1] == product:
                a = builder.neg(a)
            else:
                other = builder.neg(other)
        return builder.fma(a, b, other)

    def factors(self, scope: LoopScope, product: int, lanes: int, copy: int) -> tuple[Lane, Lane]:
        multiply = self.body[product]
        assert isinstance(multiply, Compute)
        a, b = (self.operand(scope, factor, lanes, copy) for factor in multiply.args)
        return a, b

    # -- running combinations ---------------------------------------------------------------------------------------

    def begin_running(self) -> None:
        """Write what every column has combined before the first row."""
        for number, place in (self.plan.running or {}).items():
            kind, dtype = self._running(number)
            lanes = self.f.target.lanes(dtype)
            nothing = self.f.const(starting(kind, dtype), vector(memory_type(dtype), lanes))
            columns = -(-math.prod(self.nest.dims[1:]) // lanes) * lanes  # pieces of scratch memory fill whole lines
            with self.f.loop(0, columns, lanes) as loop:
                self.f.store(
                    nothing, self.f.offset(self.memory.addresses.roots[place.arg], loop.index, memory_type(dtype))
                )

    def _advanced(self, scope: LoopScope, number: int, lanes: int, copy: int) -> Lane:
        """The combination of a column up to this row, which is kept for the next row."""
        assert self.plan.running is not None
        kind, dtype = self._running(number)
        column = self.f.add(scope.index[COLUMN], copy * lanes)
        root = self.memory.addresses.roots[self.plan.running[number].arg]
        address = self.f.offset(root, column, memory_type(dtype))
        mask = scope.block.mask if lanes > 1 else None
        before = masked.load(self.f, vector(memory_type(dtype), lanes), address, mask)
        (arg,) = lane_operands(self.body[number])
        own = self.operand(scope, arg, lanes, copy)
        after = combine(self.f, kind, dtype, before, own.value)
        masked.store(self.f, after, address, mask)
        return Lane(after, dtype)

    def _running(self, number: int) -> tuple[ReduceKind, np.dtype]:
        running = self.body[number]
        assert isinstance(running, Running)
        return running.kind, running.dtype

    # -- lanes --------------------------------------------------------------------------------------------------

    def _builder(self, lanes: int) -> Scalars:
        if lanes not in self._scalars:
            self._scalars[lanes] = Scalars(self.f, lanes)
        return self._scalars[lanes]

    def constant(self, constant: Constant, lanes: int) -> Lane:
        type_ = vector(value_type(constant.dtype), lanes)
        if isinstance(constant.value, int) and is_open(constant.value):
            number = self.f.index(constant.value)
            if constant.dtype.kind == "f":
                number = self.f.cast("sitofp", number, value_type(constant.dtype))
            else:
                number = self.f.resized(number, value_type(constant.dtype))
            return Lane(self.f.splat(number, lanes), constant.dtype)
        return Lane(self.f.const(literal(constant.value, constant.dtype), type_), constant.dtype)

    def _iota(self, scope: LoopScope, dim: int, lanes: int, copy: int, dtype: np.dtype) -> Lane:
        block = scope.block
        apart = {self.plan.vector: block.lanes, None: 0} if block.across is None else {block.across: 1}
        ahead = copy * apart.get(dim, 0)
        value = self.f.index(scope.index[dim] if lanes > 1 else self.f.add(scope.index[dim], ahead))
        value = self.f.resized(value, value_type(dtype))
        if lanes > 1:  # the copies share the vector of the first index
            numbers = self.f.lane_numbers(vector(value_type(dtype), lanes), ahead)
            value = self.f.binary("add nsw" if dtype == INT64 else "add", self.f.splat(value, lanes), numbers)
        return Lane(value, dtype)

    def operand(self, scope: LoopScope, number: int, lanes: int, copy: int) -> Lane:
        """A value as ``lanes`` lanes of the vector ``copy``."""
        instr = self.body[number]
        if isinstance(instr, Constant):
            return self.constant(instr, lanes)
        copies = scope.values[number]
        copy = copy if len(copies) > 1 else 0
        value = copies[copy]
        if lanes_of(value.value.type) == lanes:
            return value
        if (number, copy) not in scope.splats:
            scope.splats[number, copy] = Lane(self.f.splat(value.value, lanes), value.dtype)
        return scope.splats[number, copy]

    def splat(self, scope: LoopScope) -> None:
        """Make vectors of the values that a vector loop uses and that are the same in all lanes, before the loop."""
        if scope.block.lanes == 1:
            return
        is_sweep = scope.sweep is not None
        for number in sorted(self.plan.facts.needed if scope.sweep is None else scope.sweep.plan.members):
            is_vector = self.plan.varies(number) or isinstance(self.body[number], Store | Reduce)
            if is_vector and not (self.nest.inner and not is_sweep and isinstance(self.body[number], Reduce)):
                for operand in lane_operands(self.body[number]):
                    if operand in scope.values:
                        self.operand(scope, operand, scope.block.lanes, 0)

    # -- memory -------------------------------------------------------------------------------------------------

    def prepare(self, scope: LoopScope, numbers: Iterable[int], level: int) -> None:
        """Addresses of deeper loops, as far as they are known here."""
        sweep = None if scope.sweep is None else scope.sweep.plan
        reloads, saves = (frozenset[int](),) * 2 if sweep is None else (sweep.reloads, sweep.saves)
        for number in sorted(numbers):
            if self.plan.levels[number] > level:
                access = access_of(self.body[number])
                if access is not None and number not in reloads:
                    self.memory.addresses.prepare(scope, access, self._memory_dtype(number))
                if number in reloads | saves:
                    self.memory.addresses.prepare(scope, self.plan.kept[number], self._memory_dtype(number))

    def _memory_dtype(self, number: int) -> np.dtype:
        instr = self.body[number]
        return dtype_of(self.nest, instr.value if isinstance(instr, Store) else number)

    def _store(self, scope: LoopScope, store: Store) -> None:
        lanes = scope.block.lanes
        for copy in range(scope.block.copies):
            value = self.operand(scope, store.value, lanes, copy)
            guard = None if store.guard is None else self.operand(scope, store.guard, lanes, copy).value
            self.memory.store(scope, store.access, value, copy, guard, add=store.mode == "add")

    def _reload(self, scope: LoopScope, number: int) -> list[Lane]:
        lanes, copies = self.lanes_and_copies(scope, number)
        access, dtype = self.plan.kept[number], self._memory_dtype(number)
        return [self.memory.load(scope, access, dtype, lanes, copy) for copy in copies]

    def _save(self, scope: LoopScope, number: int) -> None:
        for copy, value in enumerate(scope.values[number]):
            self.memory.store(scope, self.plan.kept[number], value, copy)

    def cast(self, x: Lane, dtype: np.dtype) -> Lane:
        return x if x.dtype == dtype else self._builder(lanes_of(x.value.type)).cast(x, dtype)
