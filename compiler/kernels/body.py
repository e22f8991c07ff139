"""Nests rewritten: instructions are copied from one nest into the body of another, under another index.

Input: a nest and, for each of its dimensions, an affine expression of the new nest's indices. Output: numbers of
instructions in a ``BodyBuilder``, which holds each value once. What is worth rewriting is left to others
(``unroll.py``, ``inline.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import numpy as np

from staticgrad.compiler.kernels.access import Affine
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
    Running,
    Store,
)
from staticgrad.graph.optable import NO_ATTRIBUTES

INT64 = np.dtype(np.int64)

# The op that takes two elements to what a reduction of them gives.
STEP_OF: dict[ReduceKind, str] = {
    "sum": "add",
    "prod": "multiply",
    "max": "maximum",
    "min": "minimum",
    "any": "logical_or",
    "all": "logical_and",
}


class BodyBuilder:
    """Instructions of a nest of ``rank`` dimensions in order; a value that is already there is not added again."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.instrs: list[Instr] = []
        self._known: dict[object, int] = {}

    def add(self, instr: Instr) -> int:
        """The number of the instruction. Stores are always new."""
        if isinstance(instr, Store):
            self.instrs.append(instr)
            return len(self.instrs) - 1
        key = _key(instr)
        if key not in self._known:
            self.instrs.append(instr)
            self._known[key] = len(self.instrs) - 1
        return self._known[key]

    def compute(self, op: str, *args: int, dtype: np.dtype) -> int:
        return self.add(Compute(op, NO_ATTRIBUTES, args, dtype))

    def index(self, index: Affine) -> int:
        """An index expression as an int64 value."""
        total = None if index.terms and not index.offset else self.add(Constant(index.offset, INT64))
        for dim, factor in index.terms:
            term = self.add(Iota(dim))
            if factor != 1:
                term = self.compute("multiply", term, self.add(Constant(factor, INT64)), dtype=INT64)
            total = term if total is None else self.compute("add", total, term, dtype=INT64)
        assert total is not None
        return total


def _key(instr: Instr) -> object:
    """A key that tells values apart: numbers count by their text, as 0.0 equals -0.0, and 1 True."""
    match instr:
        case Constant(value, dtype):
            return "constant", repr(value), dtype
        case Compute(op, attrs, args, dtype):
            return op, repr(attrs), args, dtype
        case _:
            return instr


class InstructionCopier:
    """Copies instructions of ``nest`` into ``body``: dimension d becomes ``where[d]``, argument a becomes ``args[a]``.
    Of the inner dimensions in ``unrolled`` (dimension: size) every index is unrolled."""

    def __init__(
        self, body: BodyBuilder, nest: Nest, where: Sequence[Affine], args: Sequence[int], unrolled: Sequence[int] = ()
    ) -> None:
        self.body = body
        self.nest = nest
        self.where = where
        self.args = args
        sizes = [range(nest.dims[dim]) for dim in unrolled]
        self.points = [dict(zip(unrolled, point, strict=True)) for point in product(*sizes)]
        self.values: dict[int, list[int]] = {}  # the new numbers of an old one, for each point or for all

    def copy(self, numbers: Iterable[int], moving: frozenset[int]) -> None:
        """Copy ``numbers``, in order; those in ``moving`` vary along what is unrolled."""
        for number in numbers:
            points = self.points if number in moving else self.points[:1]
            self.values[number] = [self._copied(number, i, point) for i, point in enumerate(points)]

    def _new(self, number: int, point: int) -> int:
        found = self.values[number]
        return found[point if len(found) > 1 else 0]

    def _copied(self, number: int, i: int, point: Mapping[int, int]) -> int:
        match self.nest.body[number]:
            case Iota(dim):
                return self.body.index(self._index(dim, point))
            case Load(access, dtype, guard):
                guard = None if guard is None else self._new(guard, i)
                return self.body.add(Load(self._access(access, i, point), dtype, guard))
            case Store(access, value, mode, guard):
                guard = None if guard is None else self._new(guard, i)
                return self.body.add(Store(self._access(access, i, point), self._new(value, i), mode, guard))
            case Compute(op, attrs, args, dtype):
                return self.body.add(Compute(op, attrs, tuple([self._new(a, i) for a in args]), dtype))
            case Reduce(kind, arg, dtype):
                if self.points == [{}]:
                    return self.body.add(Reduce(kind, self._new(arg, i), dtype))
                return self._reduced(kind, [self._new(arg, p) for p in range(len(self.points))], dtype)
            case Running(kind, arg, dtype):
                if self.where[0] != Affine.index(0):
                    raise ValueError("what runs along dimension 0 stays there")
                return self.body.add(Running(kind, self._new(arg, i), dtype))
            case constant:
                return self.body.add(constant)

    def _reduced(self, kind: ReduceKind, terms: Sequence[int], dtype: np.dtype) -> int:
        total = terms[0]
        for term in terms[1:]:
            total = self.body.compute(STEP_OF[kind], total, term, dtype=dtype)
        return total

    def _index(self, dim: int, point: Mapping[int, int]) -> Affine:
        return Affine(point[dim]) if dim in point else self.where[dim]

    def _access(self, access: Access, i: int, point: Mapping[int, int]) -> Access:
        offset, strides = access.offset, [0] * self.body.rank
        for old, stride in enumerate(access.strides):
            if stride:
                index = self._index(old, point)
                offset += stride * index.offset
                for dim, factor in index.terms:
                    strides[dim] += stride * factor
        terms = tuple([(self._new(value, i), stride) for value, stride in access.terms])
        return Access(self.args[access.arg], offset, tuple(strides), terms)
