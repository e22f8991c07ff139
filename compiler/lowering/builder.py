"""The body of a nest, instruction by instruction: nodes of one group come in, one ``Nest`` goes out.

A builder knows the shape over which the nest loops and how elements of tensors are found in memory through views; which
memory that is, and in what order of axes, ``Places`` say. Equal instructions are written once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np

from staticgrad.base.extents import at_most, proven
from staticgrad.base.frozen import record
from staticgrad.base.types import bool_, float32, int64, is_short_float, sizes
from staticgrad.compiler.kernels.access import (
    ZERO,
    Affine,
    Path,
    broadcast_map,
    dot_address,
    is_view,
    resolve,
    row_major,
    source_of,
)
from staticgrad.compiler.kernels.layout import overlaps
from staticgrad.compiler.kernels.nest import (
    Access,
    Compute,
    Constant,
    Instr,
    Iota,
    Load,
    Nest,
    Reduce,
    ReduceKind,
    Store,
)
from staticgrad.compiler.lowering.places import Places
from staticgrad.compiler.program.memories import Memory, Operand
from staticgrad.compiler.program.step import Step
from staticgrad.graph.graph import Node, Tensor
from staticgrad.graph.optable import NO_ATTRIBUTES
from staticgrad.ops.elementwise.copies import AstypeAttributes
from staticgrad.ops.randoms import key_attributes
from staticgrad.ops.sources import CONSTANT, FULL, IOTA


@record
class Raw:
    """The argument of an epilogue that stands for the matrix kernel's result, and what that kernel reads."""

    result: Tensor
    strides: tuple[int, ...]
    operands: tuple[Memory, ...]


class NestBuilder:
    """Writes the body of one nest over ``domain`` with reduced ``axes``."""

    def __init__(self, places: Places, domain: tuple[int, ...], axes: tuple[int, ...] = (), raw: Raw | None = None):
        self.places = places
        self.domain = domain
        outer = [axis for axis in range(len(domain)) if axis not in axes]
        self.order = [*outer, *axes]
        self.dim = {axis: position for position, axis in enumerate(self.order)}
        self.n_outer = len(outer)
        self.axes = axes
        self.raw = raw
        self.args: dict[Memory | Raw, int] = {}
        self.dtypes: list[np.dtype] = []
        self.body: list[Instr] = []
        self.memo: dict[Instr, int] = {}
        self.values: dict[Tensor, int] = {}
        self.stored: list[Memory] = []
        self.added: list[Memory] = []
        if raw is not None:
            self._arg(raw, raw.result.dtype)

    # -- instructions -----------------------------------------------------------------------------------------------

    def emit(self, instr: Instr) -> int:
        known = self.memo.get(instr)
        if known is not None:
            return known
        self.body.append(instr)
        self.memo[instr] = len(self.body) - 1
        return len(self.body) - 1

    def _arg(self, memory: Memory | Raw, dtype: np.dtype) -> int:
        if memory not in self.args:
            self.args[memory] = len(self.args)
            self.dtypes.append(dtype)
        return self.args[memory]

    def access(self, memory: Memory | Raw, dtype: np.dtype, address: Affine, values: Sequence[int] = ()) -> Access:
        """``address`` is in terms of the domain's axes; terms beyond them name ``values`` (indirect indices)."""
        strides = [0] * len(self.domain)
        terms: list[tuple[int, int]] = []
        for axis, factor in address.terms:
            if axis < len(self.domain):
                strides[self.dim[axis]] = factor
            else:
                terms.append((values[axis - len(self.domain)], factor))
        return Access(self._arg(memory, dtype), address.offset, tuple(strides), tuple(terms))

    def compute(self, op: str, *args: int, dtype: np.dtype, attrs: object = NO_ATTRIBUTES) -> int:
        return self.emit(Compute(op, attrs, args, dtype))

    def constant(self, value: float | int | bool, dtype: np.dtype) -> int:
        return self.emit(Constant(value, dtype))

    def cast(self, value: int, have: np.dtype, want: np.dtype) -> int:
        return value if have == want else self.compute("astype", value, dtype=want, attrs=AstypeAttributes(want))

    def accumulated(self, memory: Memory, address: Affine, value: int, dtype: np.dtype) -> int:
        """The sum of a value and what is there; of short floats in float32."""
        wide = float32 if is_short_float(dtype) else dtype
        before = self.cast(self.emit(Load(self.access(memory, dtype, address), dtype)), dtype, wide)
        return self.cast(self.compute("add", before, self.cast(value, dtype, wide), dtype=wide), wide, dtype)

    def affine(self, index: Affine, values: Sequence[int] = ()) -> int:
        """An index expression as an int64 value."""
        begins = not index.terms or not proven(lambda: index.offset == 0)
        total: int | None = self.constant(index.offset, int64) if begins else None
        for axis, factor in index.terms:
            inner = axis < len(self.domain)
            term = self.emit(Iota(self.dim[axis])) if inner else values[axis - len(self.domain)]
            if factor != 1:
                term = self.compute("multiply", term, self.constant(factor, int64), dtype=int64)
            total = term if total is None else self.compute("add", total, term, dtype=int64)
        assert total is not None
        return total

    # -- values -----------------------------------------------------------------------------------------------------

    def load(self, x: Tensor, indices: tuple[Affine, ...], values: Sequence[int] = ()) -> int:
        """The element of ``x`` at ``indices`` (in terms of the domain's axes)."""
        path = resolve(x, indices, self.places.strides_of)
        assert isinstance(path, Path), f"{x!r} has no affine address: materialize left it out"
        guard: int | None = None
        fill = 0.0
        for g in path.guards:
            fill = g.fill
            for test in self._bounds(g.index, g.size):
                guard = test if guard is None else self.compute("logical_and", guard, test, dtype=bool_)
        base = path.base
        source = base.op.op
        value: int
        if source is FULL:
            value = self.constant(base.op.attrs.value, base.dtype)
        elif source is CONSTANT and base.size == 1:
            value = self.constant(base.op.attrs.value.item(), base.dtype)
        elif source is IOTA:
            value = self.cast(self.affine(path.address, values), int64, base.dtype)
        else:
            memory: Memory | Raw
            address = path.address
            if self.raw is not None and base is self.raw.result:
                memory = self.raw
                address = dot_address(indices, self.raw.strides)
            else:
                memory = self.places.memory(base)
            access = self.access(memory, base.dtype, address, values)
            value = self.emit(Load(access, base.dtype, guard))
            if guard is None or fill == 0:
                return value
        if guard is None:
            return value
        return self.compute("where", guard, value, self.constant(fill, base.dtype), dtype=base.dtype)

    def _bounds(self, index: Affine, size: int) -> list[int]:
        low = high = index.offset
        for axis, factor in index.terms:
            span = factor * (self.domain[axis] - 1)
            low, high = (low + span, high) if factor < 0 else (low, high + span)
        tests = []
        if not at_most(0, low):
            zero = self.constant(0, int64)
            tests.append(self.compute("greater_equal", self.affine(index), zero, dtype=bool_))
        if not at_most(high + 1, size):
            tests.append(self.compute("less", self.affine(index), self.constant(size, int64), dtype=bool_))
        return tests

    def operand(self, x: Tensor) -> int:
        """A member of the nest is in a register, everything else is loaded."""
        source = source_of(x)
        if source in self.values and not is_view(x):
            return self.values[source]
        return self.load(x, broadcast_map(sizes(x.shape), self.domain))

    def add_node(self, node: Node) -> None:
        result = node.outputs[0]
        name = node.op.name
        if node.op.role == "reduction":
            operand = node.inputs[0]
            value = self.operand(operand)
            if result.dtype != bool_:  # any and all compare with zero themselves
                value = self.cast(value, operand.dtype, result.dtype)
            number = self.emit(Reduce(cast(ReduceKind, name), value, result.dtype))
        elif node.op.role == "gather":
            number = self._gather(node)
        elif node.op.draws:
            key = self.places.key(again=node.epoch > 0)
            seed, run = (self.emit(Load(self.access(key, int64, Affine(i)), int64)) for i in (0, 1))
            words = [
                self.compute("random_key", seed, run, dtype=int64, attrs=key_attributes(node.attrs, word))
                for word in (0, 1)
            ]
            for turn in map(self.operand, node.inputs):
                words = [
                    self.compute("random_turn", *words, turn, dtype=int64, attrs=key_attributes(node.attrs, word))
                    for word in (0, 1)
                ]
            flat = dot_address(broadcast_map(self.domain, self.domain), row_major(self.domain))
            number = self.compute(name, *words, self.affine(flat), dtype=result.dtype, attrs=node.attrs)
        else:
            args = tuple(self.operand(x) for x in node.inputs)
            number = self.emit(Compute(name, node.attrs, args, result.dtype))
        self.values[result] = number

    def _gather(self, node: Node) -> int:
        x, *indices = node.inputs
        axes = node.attrs.axes
        rank = indices[0].ndim
        values = self.indices(indices)
        rest = iter(range(rank, len(self.domain)))
        position = {axis: len(self.domain) + i for i, axis in enumerate(axes)}
        where = tuple(Affine.index(position[a] if a in position else next(rest)) for a in range(x.ndim))
        return self.load(x, where, values)

    def indices(self, indices: Sequence[Tensor]) -> list[int]:
        """Index tensors over the leading axes of the domain."""
        values = []
        for index in indices:
            shape = sizes(index.shape)
            where = tuple(ZERO if size == 1 else Affine.index(axis) for axis, size in enumerate(shape))
            values.append(self.cast(self.load(index, where), index.dtype, int64))
        return values

    # -- stores -----------------------------------------------------------------------------------------------------

    def place_of(self, x: Tensor) -> tuple[Affine, ...]:
        return broadcast_map(sizes(x.shape), self.domain)

    def store(self, value: int, memory: Memory, dtype: np.dtype, address: Affine) -> None:
        self.body.append(Store(self.access(memory, dtype, address), value))
        self.stored.append(memory)

    def store_row(self, value: int, memory: Memory, dtype: np.dtype, where: Sequence[Affine], node: Node) -> None:
        """Store an element of one of the rows of ``assign_rows`` in its variable, if the row is kept."""
        _, index, kept, variable = node.inputs
        values = self.indices([index])
        guard = self.load(kept, (where[0],))
        target = (Affine.index(len(self.domain)), *where[1:])
        access = self.access(memory, dtype, dot_address(target, row_major(sizes(variable.shape))), values)
        self.body.append(Store(access, value, "set", guard))
        self.stored.append(memory)

    def store_into_write(self, x: Tensor, node: Node) -> None:
        """Store ``x`` where it belongs in the result of a concat, bucket, pad, fold or scatter_add."""
        value, result = self.values[x], node.outputs[0]
        memory = self.places.memory(result)
        strides = self.places.strides_of(result)
        where = list(self.place_of(x))
        guard: int | None = None
        name, attrs = node.op.name, node.attrs
        if name == "concat":
            where[attrs.axis] = where[attrs.axis].plus(self.places.start_in(node, x))
            access = self.access(memory, x.dtype, dot_address(where, strides))
        elif name == "bucket":
            flat = dot_address(where, row_major(sizes(x.shape))).plus(self.places.start_in(node, x))
            access = self.access(memory, x.dtype, flat)
        elif name == "pad":
            where = [w.times(i + 1).plus(low) for w, i, low in zip(where, attrs.interior, attrs.low, strict=True)]
            access = self.access(memory, x.dtype, dot_address(where, strides))
        elif name == "fold":
            *lead, oh, ow, kh, kw = where
            window = attrs.window
            size = (attrs.height, attrs.width)
            target = list(lead)
            for axis, (outer, inner) in enumerate(((oh, kh), (ow, kw))):
                index = outer.times(window.stride[axis]) + inner.times(window.dilation[axis])
                index = index.plus(-window.padding[axis][0])
                for test in self._bounds(index, size[axis]):
                    guard = test if guard is None else self.compute("logical_and", guard, test, dtype=bool_)
                target.append(index)
            access = self.access(memory, x.dtype, dot_address(target, strides))
        else:
            base, _, *indices = node.inputs
            values = self.indices(indices)
            rest = iter(where[indices[0].ndim :])
            position = {axis: len(self.domain) + i for i, axis in enumerate(attrs.axes)}
            target = [Affine.index(position[a]) if a in position else next(rest) for a in range(base.ndim)]
            access = self.access(memory, x.dtype, dot_address(target, strides), values)
        adding = name == "scatter_add" or (name == "fold" and overlaps(attrs.window))
        if adding and sizes(x.shape) == self.domain and not self._sweeps(value, access, guard):
            # A nest does once what is the same along its inner dimensions, but every element counts in a sum.
            count = math.prod(self.domain[axis] for axis in self.axes)
            value = self.compute("multiply", value, self.constant(count, x.dtype), dtype=x.dtype)
        self.body.append(Store(access, value, "add" if adding else "set", guard))
        self.added.append(memory)

    def _sweeps(self, value: int, access: Access, guard: int | None) -> bool:
        """True if a store does something else at each element along the inner dimensions."""
        inner = {self.dim[axis] for axis in self.axes if self.domain[axis] != 1}
        moving: set[int] = set()
        for number, instr in enumerate(self.body):
            match instr:
                case Iota():
                    moves = instr.dim in inner
                case Load():
                    moves = self._moves(instr.access, inner, moving) or instr.guard in moving
                case Compute():
                    moves = any(argument in moving for argument in instr.args)
                case _:
                    moves = False
            if moves:
                moving.add(number)
        return not inner or value in moving or guard in moving or self._moves(access, inner, moving)

    @staticmethod
    def _moves(access: Access, inner: set[int], moving: set[int]) -> bool:
        strided = any(access.strides[dim] for dim in inner)
        return strided or any(value in moving for value, _ in access.terms)

    def nest(self) -> Nest:
        dims = tuple(self.domain[axis] for axis in self.order)
        return Nest(dims[: self.n_outer], dims[self.n_outer :], tuple(self.dtypes), tuple(self.body))

    def loaded(self) -> list[Memory]:
        numbers = {instr.access.arg for instr in self.body if isinstance(instr, Load)}
        return [m for m, number in self.args.items() if number in numbers and not isinstance(m, Raw)]

    def check_in_place(self, memory: Memory) -> bool:
        """True if everything loaded from a memory that is also stored is loaded by the iteration that stores it."""
        if self.raw is not None and memory in self.raw.operands:
            return False
        arg = self.args[memory]
        stores = {i.access for i in self.body if isinstance(i, Store) and i.access.arg == arg}
        loads = {i.access for i in self.body if isinstance(i, Load) and i.access.arg == arg}
        return loads <= stores


def nest_step(builder: NestBuilder, name: str, family: str, nodes: Sequence[Node], fills: bool = False) -> Step:
    """The step of a finished nest, which computes some nodes."""
    nest = builder.nest()
    computes = sum(isinstance(instr, (Compute, Reduce)) for instr in nest.body)
    return Step(
        name, family, nest, tuple(Operand(m) for m in builder.args if not isinstance(m, Raw)),
        tuple(builder.loaded()), tuple(dict.fromkeys(builder.stored)), tuple(dict.fromkeys(builder.added)),
        fills=fills, source=nodes[-1].source, serial=nodes[-1].serial, flops=computes * math.prod(nest.dims),
    )  # fmt: skip
