"""Random programs over every dtype, each drawn together with what NumPy makes of it.

A program is grown op by op, twice: as tensors, and as the arrays that NumPy's own functions give. Numbers are integers
so small that floats hold them exactly, whatever the order of a sum, so that results are compared to the bit, dtypes
too. Guards are everywhere: pads, concats, rolls, flips, strided slices, triangles and wheres become loads and stores of
which some lanes are off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import staticgrad as sg
from staticgrad.graph.graph import Graph, Tensor

Array = np.ndarray[Any, np.dtype[Any]]

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
DTYPES = (*INTEGERS, "bool", *FLOATS)
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33)
MOST = 1500  # elements of a tensor
EXACT = {"float16": 1 << 10, "bfloat16": 1 << 7, "float32": 1 << 22, "float64": 1 << 50}  # sums stay below


@dataclass
class DrawnProgram:
    """A declared graph, its placeholders with what they are fed, and its results with what NumPy gives for each."""

    graph: Graph
    placeholders: list[Tensor] = field(default_factory=list)
    feeds: list[Array] = field(default_factory=list)
    results: list[Tensor] = field(default_factory=list)
    expected: list[Array] = field(default_factory=list)


@dataclass
class _Pair:
    """A tensor and the array that NumPy has in its place."""

    tensor: Tensor
    array: Array


class _Grower:
    def __init__(self, seed: int, dtypes: Sequence[str]) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtypes = [sg.bfloat16 if name == "bfloat16" else np.dtype(name) for name in dtypes]
        self.pool: list[_Pair] = []

    # -- choices ------------------------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def one(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def pick(self, test: Callable[[Array], bool] = lambda a: True) -> _Pair | None:
        """One of the pool, rather a late one."""
        found = [pair for pair in self.pool if test(pair.array)]
        return found[-1 - int(len(found) * self.rng.random() ** 2)] if found else None

    def axis(self, array: Array) -> int:
        return int(self.rng.integers(-array.ndim, array.ndim))

    def shape(self) -> tuple[int, ...]:
        while True:
            shape = tuple(int(self.one(SIZES)) for _ in range(int(self.rng.integers(1, 4))))
            if np.prod(shape) <= MOST // 3:
                return shape

    def numbers(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """Small numbers; of integers some that are the ends of their range."""
        low = 0 if dtype.kind in "ub" else -7
        array = self.rng.integers(low, 2 if dtype.kind == "b" else 8, shape).astype(dtype)
        if dtype.kind in "iu" and self.chance(0.3):
            ends = np.iinfo(dtype)
            wild = self.rng.choice(np.array([ends.min, ends.max, ends.max - 1], dtype), shape)
            array = np.where(self.rng.random(shape) < 0.2, wild, array)
        return array

    # -- ops: each gives a pair, or None where none suits -----------------------------------------------------------

    def feed(self, program: DrawnProgram, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        array = self.numbers(shape, dtype)
        tensor = sg.placeholder(shape, dtype)
        program.placeholders.append(tensor)
        program.feeds.append(array)
        self.pool.append(_Pair(tensor, array))

    def pads(self) -> _Pair | None:
        pair = self.pick(lambda a: a.ndim > 0)
        if pair is None:
            return None
        widths = [(int(self.rng.integers(4)), int(self.rng.integers(4))) for _ in pair.array.shape]
        return _Pair(sg.pad(pair.tensor, widths), np.pad(pair.array, widths))

    def blocks(self) -> _Pair | None:
        """The sum of two or three tensors of one dtype along a diagonal, each padded to the whole."""
        first = self.pick(lambda a: a.ndim == 2 and a.dtype.kind != "b")
        if first is None:
            return None
        pairs = [first]
        for _ in range(int(self.rng.integers(1, 3))):
            other = self.pick(lambda a: a.ndim == 2 and a.dtype == first.array.dtype)
            pairs.append(other or first)
        high, wide = (sum(p.array.shape[i] for p in pairs) for i in (0, 1))
        tensor, array, row, column = None, np.zeros((high, wide), first.array.dtype), 0, 0
        for pair in pairs:
            h, w = pair.array.shape
            padded = sg.pad(pair.tensor, ((row, high - row - h), (column, wide - column - w)))
            tensor = padded if tensor is None else tensor + padded
            array[row : row + h, column : column + w] = pair.array
            row, column = row + h, column + w
        assert tensor is not None
        return _Pair(tensor, array)

    def slices(self) -> _Pair | None:
        pair = self.pick(lambda a: a.ndim > 0)
        if pair is None:
            return None
        index: list[Any] = []
        for size in pair.array.shape:
            step = int(self.one((1, 1, 2, 3, -1, -1, -2)))
            start, stop = sorted(int(i) for i in self.rng.integers(0, size + 1, 2))
            if stop == start:
                start, stop = 0, size
            index.append(slice(start, stop, step) if step > 0 else slice(stop - 1, start - 1 if start else None, step))
        return _Pair(pair.tensor[tuple(index)], pair.array[tuple(index)])

    def joins(self) -> _Pair | None:
        """A concat along an axis, or a stack, of tensors of one dtype, perhaps the same one."""
        pair = self.pick(lambda a: a.ndim > 0)
        if pair is None:
            return None
        axis = self.axis(pair.array) % pair.array.ndim

        def fits(a: Array) -> bool:
            same = a.ndim == pair.array.ndim and a.dtype == pair.array.dtype
            return same and all(m == n for i, (m, n) in enumerate(zip(a.shape, pair.array.shape)) if i != axis)

        others = [self.pick(fits) or pair for _ in range(int(self.rng.integers(1, 4)))]
        pairs = [pair, *others] if self.chance(0.5) else [*others, pair]
        if self.chance(0.2):
            return _Pair(sg.stack([pair.tensor] * 2, axis=axis), np.stack([pair.array] * 2, axis=axis))
        return _Pair(
            sg.concat([p.tensor for p in pairs], axis=axis), np.concatenate([p.array for p in pairs], axis=axis)
        )

    def turns(self) -> _Pair | None:
        """A roll, flip, permutation, reshape, repetition or triangle."""
        pair = self.pick(lambda a: a.ndim > 0)
        if pair is None:
            return None
        x, a, axis = pair.tensor, pair.array, self.axis(pair.array)
        kind = int(self.rng.integers(7))
        if kind == 0:
            by = int(self.rng.integers(-9, 10))
            return _Pair(sg.roll(x, by, axis=axis), np.roll(a, by, axis=axis))
        if kind == 1:
            return _Pair(sg.flip(x, axis=axis), np.flip(a, axis=axis))
        if kind == 2:
            order = tuple(int(i) for i in self.rng.permutation(a.ndim))
            return _Pair(sg.permute_dims(x, order), a.transpose(order))
        if kind == 3:
            factors = [f for f in range(1, a.size + 1) if a.size and a.size % f == 0] or [1]
            f = int(self.one(factors))
            return _Pair(sg.reshape(x, (f, a.size // f)), a.reshape(f, a.size // f))
        if kind == 4:
            count = int(self.rng.integers(1, 4))
            return _Pair(sg.repeat(x, count, axis=axis), np.repeat(a, count, axis=axis))
        if kind == 5:
            counts = tuple(int(n) for n in self.rng.integers(1, 3, a.ndim))
            return _Pair(sg.tile(x, counts), np.tile(a, counts))
        if a.ndim < 2:
            return None
        k = int(self.rng.integers(-2, 3))
        return self.one(
            [lambda: _Pair(sg.tril(x, k=k), np.tril(a, k)), lambda: _Pair(sg.triu(x, k=k), np.triu(a, k))]
        )()

    def takes(self) -> _Pair | None:
        """Rows at constant or computed indices."""
        pair = self.pick(lambda a: a.ndim > 0 and 0 not in a.shape)
        if pair is None:
            return None
        axis = self.axis(pair.array) % pair.array.ndim
        size = pair.array.shape[axis]
        index = self.pick(lambda a: a.dtype.kind in "iu" and a.ndim == 1 and a.size and a.min() >= 0 and a.max() < size)
        if index is None or self.chance(0.5):
            at = self.rng.integers(0, size, int(self.rng.integers(1, 9)))
            index = _Pair(sg.constant(at), at)
        return _Pair(sg.take(pair.tensor, index.tensor, axis=axis), np.take(pair.array, index.array, axis=axis))

    def unary(self) -> _Pair | None:
        pair = self.pick()
        if pair is None:
            return None
        x, a, kind = pair.tensor, pair.array, pair.array.dtype.kind
        if kind == "b":
            return _Pair(sg.logical_not(x), np.logical_not(a))
        number = int(self.rng.integers(0 if kind == "u" else -5, 6))
        ways: list[Callable[[], tuple[Any, Any]]] = [
            lambda: (sg.square(x), np.square(a)), lambda: (x + number, a + a.dtype.type(number)),
            lambda: (x * number, a * a.dtype.type(number)),
            lambda: (sg.maximum(x, number), np.maximum(a, a.dtype.type(number))),
            lambda: (sg.clip(x, 1, 5), np.clip(a, a.dtype.type(1), a.dtype.type(5))), lambda: (sg.sign(x), np.sign(a)),
            lambda: (x % 7, np.remainder(a, a.dtype.type(7))), lambda: (x > number, a > a.dtype.type(number)),
            lambda: (x == number, a == a.dtype.type(number)),
        ]  # fmt: skip
        if kind != "u":
            ways += [lambda: (-x, -a), lambda: (sg.abs(x), np.abs(a))]
        if kind in "iu":
            shift = int(self.rng.integers(8))
            ways += [
                lambda: (~x, ~a), lambda: (x // 3, a // a.dtype.type(3)),
                lambda: (x << shift, a << a.dtype.type(shift)), lambda: (x >> shift, a >> a.dtype.type(shift)),
            ]  # fmt: skip
        tensor, found = self.one(ways)()
        # ml_dtypes raises bfloat16 to float32 in some of NumPy's functions.
        return _Pair(tensor, found if found.dtype.kind == "b" else found.astype(a.dtype))

    def casts(self) -> _Pair | None:
        pair = self.pick()
        if pair is None:
            return None
        to = self.one(self.dtypes)
        if pair.array.dtype.kind not in "biu" and to.kind in "iu":
            ends = np.iinfo(to)
            if pair.array.size and not (ends.min <= float(pair.array.min()) and float(pair.array.max()) <= ends.max):
                return None
        return _Pair(sg.astype(pair.tensor, to), pair.array.astype(to))

    def binary(self) -> _Pair | None:
        first = self.pick()
        if first is None:
            return None

        def fits(a: Array) -> bool:
            if not _promote(first.array, a):
                return False
            try:
                return bool(np.prod(np.broadcast_shapes(first.array.shape, a.shape)) <= MOST)
            except ValueError:
                return False

        second = self.pick(fits)
        if second is None:
            return None
        x, y, a, b = first.tensor, second.tensor, first.array, second.array
        kinds = a.dtype.kind + b.dtype.kind
        ways: list[Callable[[], tuple[Any, Any]]] = [
            lambda: (sg.equal(x, y), a == b), lambda: (sg.less(x, y), a < b), lambda: (x >= y, a >= b),
        ]  # fmt: skip
        if "b" in kinds:
            if kinds == "bb":
                ways += [lambda: (x & y, a & b), lambda: (x | y, a | b), lambda: (x ^ y, a ^ b)]
        else:
            ways += 2 * [
                lambda: (x + y, a + b), lambda: (x - y, a - b), lambda: (x * y, a * b),
                lambda: (sg.maximum(x, y), np.maximum(a, b)), lambda: (sg.minimum(x, y), np.minimum(a, b)),
            ]  # fmt: skip
            if a.dtype.kind in "iu" and b.dtype.kind in "iu" and np.result_type(a, b).kind in "iu":
                ways += [
                    lambda: (x & y, a & b), lambda: (x | y, a | b), lambda: (x ^ y, a ^ b), lambda: (x // y, a // b),
                    lambda: (x % y, a % b),
                ]  # fmt: skip
        return _Pair(*self.one(ways)())

    def wheres(self) -> _Pair | None:
        """A choice by a condition between a tensor and another, or a number."""
        pair = self.pick()
        if pair is None:
            return None
        shape = pair.array.shape
        condition = self.pick(lambda a: a.dtype.kind == "b" and a.shape in (shape, shape[1:], shape[-1:]))
        if condition is None:
            at = self.rng.random(shape) < 0.5
            condition = _Pair(sg.constant(at), at)
        other = self.pick(
            lambda a: a.shape == shape and "b" not in (a.dtype.kind, pair.array.dtype.kind) and _promote(a, pair.array)
        )
        if other is None or self.chance(0.3):
            zero = pair.array.dtype.type(0)
            return _Pair(
                sg.where(condition.tensor, pair.tensor, False if pair.array.dtype.kind == "b" else 0),
                np.where(condition.array, pair.array, zero),
            )
        return _Pair(
            sg.where(condition.tensor, pair.tensor, other.tensor), np.where(condition.array, pair.array, other.array)
        )

    def reductions(self) -> _Pair | None:
        pair = self.pick(lambda a: a.ndim > 0 and 0 not in a.shape and _sum_is_exact(a))
        if pair is None:
            return None
        x, a, kind = pair.tensor, pair.array, pair.array.dtype.kind
        axis = None if self.chance(0.2) else self.axis(a)
        keep = self.chance(0.5)
        if kind == "b":
            ways = [(sg.any, np.any), (sg.all, np.all), (sg.sum, np.sum)]
        else:
            ways = [
                (sg.sum, np.sum),
                (sg.max, np.max),
                (sg.min, np.min),
                (sg.argmax, np.argmax),
                (sg.argmin, np.argmin),
            ]
            ways += [(sg.prod, np.prod)] if kind in "iu" else []
        of_tensor, of_array = self.one(ways)
        found = of_array(a, axis=axis, keepdims=keep)
        if kind not in "iub" and of_array is np.sum:
            found = np.asarray(np.sum(a.astype(np.float64), axis=axis, keepdims=keep)).astype(a.dtype)
        return _Pair(of_tensor(x, axis, keepdims=keep), np.asarray(found))

    def orders(self) -> _Pair | None:
        """Running sums, sorts and their indices along an axis."""
        pair = self.pick(lambda a: a.ndim > 0 and 0 not in a.shape and a.dtype.kind != "b" and _sum_is_exact(a))
        if pair is None:
            return None
        x, a, axis = pair.tensor, pair.array, self.axis(pair.array)
        kind = int(self.rng.integers(3))
        if kind == 0:
            total = (
                np.cumsum(a, axis=axis)
                if a.dtype.kind in "iu"
                else np.cumsum(a.astype(np.float64), axis=axis).astype(a.dtype)
            )
            return _Pair(sg.cumulative_sum(x, axis=axis), total)
        if kind == 1:
            return _Pair(sg.sort(x, axis=axis), np.sort(a, axis=axis, kind="stable"))
        return _Pair(sg.argsort(x, axis=axis), np.argsort(a, axis=axis, kind="stable"))

    def products(self) -> _Pair | None:
        first = self.pick(lambda a: a.ndim == 2 and 0 not in a.shape and a.dtype.kind != "b")
        if first is None:
            return None

        def fits(a: Array) -> bool:
            suits = a.ndim == 2 and a.shape[0] == first.array.shape[1] and a.dtype.kind != "b" and a.size > 0
            return suits and _promote(first.array, a)

        second = self.pick(fits)
        if second is None:
            at = self.numbers((first.array.shape[1], int(self.one(SIZES))), first.array.dtype)
            second = _Pair(sg.constant(at), at)
        a, b = first.array, second.array
        dtype = np.result_type(a, b)
        if dtype.kind not in "iu":
            total = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
            if total.max() > EXACT[dtype.name]:
                return None
            return _Pair(first.tensor @ second.tensor, (a.astype(np.float64) @ b.astype(np.float64)).astype(dtype))
        with np.errstate(all="ignore"):
            return _Pair(first.tensor @ second.tensor, a.astype(dtype) @ b.astype(dtype))

    # -- the whole ----------------------------------------------------------------------------------------------

    def grow(self, ops: int) -> DrawnProgram:
        program = DrawnProgram(Graph())
        with program.graph, np.errstate(all="ignore"):
            shape = self.shape()
            for number in range(int(self.rng.integers(2, 4))):
                alike = number and self.chance(0.6)
                self.feed(program, self.one(self.dtypes), shape if alike else self.shape())
            ways = (
                self.pads, self.blocks, self.slices, self.joins, self.turns, self.takes, self.unary, self.casts,
                self.binary, self.binary, self.wheres, self.reductions, self.orders, self.products,
            )  # fmt: skip
            tries = 0
            while tries < 8 * ops and len(self.pool) < ops + len(program.feeds):
                tries += 1
                pair = self.one(ways)()
                if pair is not None and 0 < pair.array.size <= MOST and _is_exact(pair.array):
                    assert pair.tensor.dtype == pair.array.dtype, f"{pair.tensor.op.op.name}: {pair.tensor.dtype}"
                    assert pair.tensor.shape == pair.array.shape, f"{pair.tensor.op.op.name}: {pair.tensor.shape}"
                    self.pool.append(pair)
            late = self.pool[-int(self.rng.integers(1, 4)) :]
            program.results, program.expected = [p.tensor for p in late], [np.asarray(p.array) for p in late]
        return program


def _promote(a: Array, b: Array) -> bool:
    """Whether two arrays have a common dtype: a short float has one with the float dtypes alone."""
    try:
        dtype = np.result_type(a, b)
    except np.exceptions.DTypePromotionError:
        return False
    return dtype.kind in "biu" or all(x.dtype.kind not in "iu" or _fits(x, dtype) for x in (a, b))


def _is_exact(array: Array) -> bool:
    if array.dtype.kind in "iub":
        return True
    wide = array.astype(np.float64)
    return bool(np.isfinite(wide).all() and np.abs(wide).max() <= EXACT[array.dtype.name])


def _sum_is_exact(array: Array) -> bool:
    if array.dtype.kind in "iub":
        return True
    return bool(np.abs(array.astype(np.float64)).sum() <= EXACT[array.dtype.name])


def _fits(array: Array, dtype: np.dtype) -> bool:
    """Whether integers are so small that a float dtype holds them exactly."""
    return not array.size or int(max(abs(int(array.max())), abs(int(array.min())))) <= EXACT[dtype.name]


def drawn(seed: int, dtypes: Sequence[str] = DTYPES, ops: int | None = None) -> DrawnProgram:
    """The program of a seed, over some dtypes, of about ``ops`` ops (2 to 9 as drawn)."""
    grower = _Grower(seed, dtypes)
    return grower.grow(int(grower.rng.integers(2, 10)) if ops is None else ops)
