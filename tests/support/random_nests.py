"""Nests drawn by chance, over small whole numbers, so that every order of summation gives the same result."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest

from staticgrad.compiler.kernels.nest import Access, Instr, Iota, Load, Nest, Reduce, Store
from staticgrad.compiler.plans.nest.facts import analyse
from staticgrad.graph.optable import OPS
from support.nests import F32, F64, I32, I64, U8, Array, B, op


class Draw:
    """A random nest over small whole numbers, so that every order of summation gives the same result."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.outer = self._sizes(3)
        self.inner = self._sizes(2)
        self.dims = self.outer + self.inner
        self.args: list[np.dtype] = []
        self.data: list[Array] = []
        self.body: list[Instr] = []
        self.dtype: list[np.dtype | None] = []
        self.bound: list[int] = []  # the largest magnitude of each value

    def _sizes(self, most: int) -> tuple[int, ...]:
        choice = [1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 24, 33, 70]
        if self.rng.random() < 0.03:
            choice = [0, 3]
        sizes = [int(self.rng.choice(choice)) for _ in range(self.rng.integers(0, most + 1))]
        while math.prod(sizes) > 300:
            sizes[int(np.argmax(sizes))] //= 3
        return tuple(sizes)

    def push(self, instr: Instr, dtype: np.dtype | None, bound: int) -> int:
        self.body.append(instr)
        self.dtype.append(dtype)
        self.bound.append(bound)
        return len(self.body) - 1

    def layout(self, dims: list[int]) -> tuple[int, list[int], int]:
        """Distinct addresses over ``dims``, in some order, with gaps, some backwards: offset, strides, size."""
        strides = [0] * len(self.dims)
        size = 1
        for dim in self.rng.permutation(dims):
            size *= int(self.rng.choice([1, 1, 1, 2, 3]))
            strides[dim] = size
            size *= max(1, self.dims[dim])
        offset = int(self.rng.integers(0, 3))
        for dim in dims:
            if self.rng.random() < 0.15:
                offset += strides[dim] * max(0, self.dims[dim] - 1)
                strides[dim] = -strides[dim]
        return offset, strides, size + offset + 3

    def argument(self, dtype: np.dtype, size: int, bound: int) -> int:
        values = self.rng.integers(0 if dtype in (U8, B) else -bound, bound + 1, size)
        self.args.append(dtype)
        self.data.append(values.astype(dtype))
        return len(self.args) - 1

    def load(self) -> int:
        dims = [d for d in range(len(self.dims)) if self.rng.random() < 0.75]
        offset, strides, size = self.layout(dims)
        dtype = self.pick([F32, F32, F32, F64, I32, I64, U8, B])
        if len(dims) == 2 and self.rng.random() < 0.3:
            strides[dims[0]] = strides[dims[1]] = 1  # a window
            offset = 0
        terms: tuple[tuple[int, int], ...] = ()
        if self.rng.random() < 0.2:
            index = self.index()
            terms = ((index, 2),)
            size += 2 * self.bound[index]
        guard = self.any_of(B) if self.rng.random() < 0.3 else None
        arg = self.argument(dtype, size, 1 if dtype == B else 3)
        return self.push(Load(Access(arg, offset, tuple(strides), terms), dtype, guard), dtype, 1 if dtype == B else 3)

    def index(self) -> int:
        """An int64 value in [0, 5]."""
        dims = [d for d in range(len(self.dims)) if self.rng.random() < 0.5]
        offset, strides, size = self.layout(dims)
        arg = self.argument(I64, size, 5)
        self.data[arg] = np.abs(self.data[arg])
        return self.push(Load(Access(arg, offset, tuple(strides)), I64), I64, 5)

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def any_of(self, dtype: np.dtype) -> int | None:
        found = [n for n, d in enumerate(self.dtype) if d is not None and d == dtype]
        return self.pick(found) if found else None

    def value(self) -> int:
        found = [n for n, d in enumerate(self.dtype) if d is not None]
        return int(self.pick(found[-3:] if self.rng.random() < 0.5 else found))

    def compute(self) -> None:
        a = self.value()
        dtype = self.dtype[a]
        assert dtype is not None
        b = self.any_of(dtype)
        assert b is not None
        kind = self.pick(["add", "multiply", "less", "where", "slow"])
        if kind == "less" and dtype != B:
            self.push(op("less", a, b, dtype=B), B, 1)
        elif kind == "where" and (c := self.any_of(B)) is not None:
            self.push(op("where", c, a, b, dtype=dtype), dtype, max(self.bound[a], self.bound[b]))
        elif kind == "slow" and dtype.kind == "f":
            for _ in range(3):
                a = self.push(op("test_slow", a, dtype=dtype), dtype, self.bound[a])
        elif kind == "multiply" and self.bound[a] * self.bound[b] < 120 and dtype != B:
            self.push(op("multiply", a, b, dtype=dtype), dtype, self.bound[a] * self.bound[b])
        elif self.bound[a] + self.bound[b] < 250 and dtype != B:
            self.push(op("add", a, b, dtype=dtype), dtype, self.bound[a] + self.bound[b])

    def reduce(self) -> None:
        a = self.value()
        dtype = self.dtype[a]
        assert dtype is not None
        kind = self.pick(["any", "all"] if dtype == B else ["sum", "sum", "max", "min"])
        if math.prod(self.inner) == 0 and kind != "sum":
            return
        bound = self.bound[a] * (max(1, math.prod(self.inner)) if kind == "sum" else 1)
        if bound < 100_000 and (dtype != U8 or bound < 250):
            self.push(Reduce(kind, a, dtype), dtype, bound)

    def normalize(self) -> None:
        """A value in many instructions, its reduction, and both together: a second sweep."""
        floats = [n for n, d in enumerate(self.dtype) if d is not None and d.kind == "f" and self.bound[n] < 100]
        if floats and math.prod(self.inner):
            a = self.pick(floats)
            dtype = self.dtype[a]
            assert dtype is not None
            slow = self.push(op("test_slow", a, dtype=dtype), dtype, self.bound[a])
            top = self.push(Reduce("max", slow, dtype), dtype, self.bound[a])
            self.push(op("add", slow, top, dtype=dtype), dtype, 2 * self.bound[a])

    def store(self, element: bool) -> None:
        dims = list(range(len(self.dims) if element else len(self.outer)))
        number = self.value()
        if not element and self.is_element(number):
            return
        dtype = self.dtype[number]
        assert dtype is not None
        guard = self.any_of(B) if self.rng.random() < 0.25 else None
        if guard is not None and not element and self.is_element(guard):
            guard = None
        add = self.rng.random() < 0.3 and dtype != B
        offset, strides, size = self.layout(dims)
        terms: tuple[tuple[int, int], ...] = ()
        if add:
            for dim in dims:
                if self.rng.random() < 0.3:
                    strides[dim] = 0
            offset = sum(-s * max(0, n - 1) for s, n in zip(strides, self.dims, strict=True) if s < 0)
            if element and self.rng.random() < 0.4:
                index = self.index()
                terms = ((index, 1),)
                size += self.bound[index]
        arg = self.argument(dtype, size, 1 if dtype == B else 5)
        access = Access(arg, offset, tuple(strides), terms)
        self.push(Store(access, number, "add" if add else "set", guard), None, 0)

    def is_element(self, number: int) -> bool:
        return analyse(self.nest()).element[number]

    def nest(self) -> Nest:
        return Nest(self.outer, self.inner, tuple(self.args), tuple(self.body))


def draw(seed: int) -> Draw:
    d = Draw(seed)
    for _ in range(int(d.rng.integers(1, 4))):
        d.load()
    if d.dims and d.rng.random() < 0.3:
        dim = int(d.rng.integers(len(d.dims)))
        d.push(Iota(dim), I64, max(1, d.dims[dim]))
    for _ in range(int(d.rng.integers(2, 10))):
        step = d.rng.random()
        if step < 0.5:
            d.compute()
        elif step < 0.7 and d.inner:
            d.reduce()
        elif step < 0.75 and d.inner:
            d.normalize()
        elif step < 0.9:
            d.load()
        else:
            d.store(element=bool(d.rng.random() < 0.7))
    d.store(element=True)
    d.store(element=False)
    return d


@pytest.fixture
def slow_op() -> Iterator[None]:
    """An op that computes nothing in many instructions: values of it are kept, not computed again."""

    def scalar(b: Any, attrs: Any, x: Any) -> Any:
        y = x
        for _ in range(3):
            y = b.sub(b.add(b.add(y, x), b.mul(x, x)), b.add(x, b.mul(x, x)))
        return y

    @dataclass
    class Entry:
        scalar: Any
        reference: Any
        draws: bool = False

    OPS["test_slow"] = cast(Any, Entry(scalar, lambda attrs, x: x))
    yield
    del OPS["test_slow"]
