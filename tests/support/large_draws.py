"""Draws what large programs are made of: sizes, fed arrays, and operands that are views of them.

Sizes are those at which memory behaves in ways of its own: rows a multiple of a page apart, one element off a number of
vectors, primes, tiny beside huge. An operand is fed as it is, or read in another order, backwards, in steps, along
broadcast axes, or is an earlier value of the program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import staticgrad as sg
from staticgrad.graph.graph import Tensor

Array = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[int, ...]
PRIMES = (11, 13, 17, 23, 31, 37, 53, 61, 97, 101, 127, 131, 211, 257, 307, 509, 521, 1021, 1031, 2053, 4099)
TINY = (1, 2, 2, 3, 3, 4, 5, 6, 7, 9)
ALIGNED_BYTES = (512, 1024, 1024, 2048, 4096, 4096, 8192)  # rows so long lie in few sets of a cache
PLAIN = (8, 10, 12, 16, 20, 24, 25, 32, 40, 48, 64, 96, 100, 128, 192, 256, 300, 400, 512, 768, 1000)


@dataclass
class Maker:
    """Draws sizes, operands and choices; remembers what it declared.

    ``elements`` is the size that arrays should have, ``most`` what none may exceed, ``flops`` the multiply-adds of a
    product. Where ``wide``, float64 is declared, whatever the program's dtype is.
    """

    rng: np.random.Generator
    dtype: np.dtype[Any]
    wide: bool
    elements: int
    scale: int
    feeds: dict[Tensor, Array] = field(default_factory=dict)
    leaves: list[Tensor] = field(default_factory=list)
    variables: list[Tensor] = field(default_factory=list)
    pool: list[Tensor] = field(default_factory=list)

    @property
    def most(self) -> int:
        return 2 * self.elements

    @property
    def flops(self) -> int:
        return (150 if self.scale == 1 else 600) * self.elements

    @property
    def declared(self) -> np.dtype[Any]:
        return np.dtype(np.float64) if self.wide else self.dtype

    # -- choices -------------------------------------------------------------------------------------------------------

    def number(self, low: int, high: int) -> int:
        """One of ``low`` … ``high``, both included."""
        return int(self.rng.integers(low, max(low, high) + 1))

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def choose(self, values: Sequence[Any]) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def axis(self, x: Tensor) -> int:
        return self.number(0, x.ndim - 1)

    def axes(self, x: Tensor) -> tuple[int, ...]:
        """Some axes, at least one."""
        chosen = tuple(int(a) for a in np.flatnonzero(self.rng.random(x.ndim) < 0.5))
        return chosen or (self.axis(x),)

    def permutation(self, ndim: int) -> tuple[int, ...]:
        return tuple(int(a) for a in self.rng.permutation(ndim))

    # -- sizes ---------------------------------------------------------------------------------------------------------

    def size(self, limit: int) -> int:
        """A size of at most ``limit``: tiny, aligned, near a number of vectors, prime, plain or any."""
        kind = self.number(0, 9)
        if limit < 4 or kind < 2:
            drawn = self.choose(TINY)
        elif kind < 4:
            drawn = max(2, self.choose(ALIGNED_BYTES) // self.dtype.itemsize // self.scale) * self.number(1, 2)
        elif kind < 6:
            drawn = 16 * self.number(1, 20) + self.choose((-1, 0, 1))
        elif kind == 6:
            drawn = self.choose(PRIMES)
        elif kind < 9:
            drawn = self.choose(PLAIN)
        else:
            drawn = round(limit ** self.rng.random())
        while drawn > limit:
            drawn = max(1, drawn // self.choose((2, 3, 4)))
        return int(drawn)

    def shape(self, ndim: int, elements: int | None = None) -> Shape:
        """A shape of about so many elements: all axes but one are drawn, that one takes what is left."""
        left = self.elements if elements is None else elements
        sizes: list[int] = []
        for _ in range(ndim - 1):
            size = sizes[-1] if sizes and self.chance(0.1) and sizes[-1] <= left else self.size(left)
            sizes.append(size)
            left = max(1, left // size)
        last = left // 16 * 16 + self.choose((-1, 0, 1)) if left > 32 and self.chance(0.5) else left
        sizes.append(last)
        return tuple(sizes[a] for a in self.permutation(ndim))

    # -- sources -------------------------------------------------------------------------------------------------------

    def values(self, shape: Shape, deviation: float = 1.0) -> Array:
        """Normal values, of the program's dtype also where a wider one is declared."""
        drawn = self.rng.standard_normal(shape, dtype=self.dtype)
        if deviation != 1.0:
            drawn *= self.dtype.type(deviation)
        return drawn.astype(self.declared, copy=False)

    def feed(self, shape: Shape, deviation: float = 1.0) -> Tensor:
        """A placeholder with normal values."""
        x = sg.placeholder(shape, self.declared)
        self.feeds[x] = self.values(shape, deviation)
        self.leaves.append(x)
        return x

    def weight(self, shape: Shape, deviation: float = 1.0) -> Tensor:
        """A placeholder or now and then a variable."""
        if self.chance(0.65):
            return self.feed(shape, deviation)
        x = sg.Variable(self.values(shape, deviation))
        self.leaves.append(x)
        self.variables.append(x)
        return x

    def indices(self, shape: Shape, bound: int, low: int = 0) -> Tensor:
        """Fed indices in [low, bound)."""
        x = sg.placeholder(shape, self.choose((sg.int32, sg.int64)))
        self.feeds[x] = self.rng.integers(low, bound, size=shape).astype(x.dtype)
        return x

    def operand(self, shape: Shape) -> Tensor:
        """A tensor that broadcasts to ``shape``: fed as it is, a view of what is fed, or of an earlier value."""
        kind = self.number(0, 11)
        if kind < 3 and len(shape) > 1:
            return self.permuted(shape)
        if kind < 5:
            found = self.earlier(shape)
            return self.permuted(shape) if found is None else found
        if kind == 5:
            return self.feed(tuple(1 if self.chance(0.5) else s for s in shape)[self.number(0, len(shape)) :])
        if kind == 6:
            return self.sliced(shape)
        if kind == 7:
            return sg.flip(self.feed(shape), axis=self.number(0, len(shape) - 1)) if shape else self.feed(shape)
        if kind == 8 and len(shape) > 1:
            a = self.number(0, len(shape) - 2)
            return sg.reshape(self.feed((*shape[:a], shape[a] * shape[a + 1], *shape[a + 2 :])), shape)
        return self.feed(shape)

    def whole(self, shape: Shape) -> Tensor:
        """An operand of exactly this shape."""
        x = self.operand(shape)
        return x if x.shape == shape else sg.broadcast_to(x, shape)

    def permuted(self, shape: Shape) -> Tensor:
        """Of the given shape, read in another order of its axes."""
        order = self.permutation(len(shape))
        back = tuple(int(a) for a in np.argsort(order))
        return sg.permute_dims(self.feed(tuple(shape[a] for a in order)), back)

    def sliced(self, shape: Shape) -> Tensor:
        """Of the given shape, a part of a larger array along one or two axes."""
        whole, picked = list(shape), [slice(None)] * len(shape)
        for a in {self.number(0, len(shape) - 1) for _ in range(self.number(1, 2))} if shape else ():
            step, first = self.choose((1, 1, 2, 3, -1)), self.number(0, 3)
            if math.prod(whole) * abs(step) > self.most:
                step = 1
            whole[a] = first + (shape[a] - 1) * abs(step) + 1
            last = first + shape[a] * abs(step)
            picked[a] = (
                slice(first, last, step) if step > 0 else slice(whole[a] - 1, first - 1 if first else None, step)
            )
        return self.feed(tuple(whole))[tuple(picked)]

    def earlier(self, shape: Shape) -> Tensor | None:
        """An earlier value that broadcasts to ``shape`` as it is or with its axes in another order."""
        fitting: list[Tensor] = []
        for x in self.pool:
            if sg.isdtype(x.dtype, "real floating"):
                if sorted(x.shape) == sorted(shape) and x.shape != shape:
                    fitting.append(sg.permute_dims(x, _order(x.shape, shape)))
                elif broadcasts(x.shape, shape):
                    fitting.append(x)
        return self.choose(fitting) if fitting else None

    # -- common compositions -------------------------------------------------------------------------------------------

    def squash(self, x: Tensor) -> Tensor:
        return sg.tanh(x) if self.chance(0.7) else sg.nn.sigmoid(x)

    def exact(self, x: Tensor) -> Tensor:
        """``x`` if its elements are fed ones, so that comparing them is free of rounding; else another such tensor of
        its shape."""
        if is_moved(x):
            return x
        found = self.permuted(x.shape) if self.chance(0.5) and x.ndim > 1 else self.feed(x.shape)
        return sg.flip(found, axis=0) if x.ndim and self.chance(0.2) else found

    def peaked(self, x: Tensor) -> Tensor:
        """``x``, or a sum with it, whose extremes are not flat: in float32 many values of a sine lie within a rounding
        of 1, and which of them share the gradient of a maximum is nobody's to promise."""
        return x if is_moved(x) or self.dtype == np.float64 else x + self.permuted(x.shape)


def _order(have: Shape, want: Shape) -> Shape:
    """The axes of ``have`` in the order that gives the sizes ``want``."""
    left = list(range(len(have)))
    order = []
    for size in want:
        axis = next(a for a in left if have[a] == size)
        left.remove(axis)
        order.append(axis)
    return tuple(order)


def broadcasts(shape: Shape, to: Shape) -> bool:
    """Whether ``shape`` broadcasts to ``to`` and the result is no larger."""
    if len(shape) > len(to):
        return False
    return all(a in (1, b) for a, b in zip(reversed(shape), reversed(to)))


def is_moved(x: Tensor) -> bool:
    """Whether the elements of ``x`` are elements of placeholders, in other places."""
    if x.op.op.name == "placeholder":
        return True
    return (x.op.op.moves or x.op.op.view) and bool(x.op.inputs) and all(is_moved(y) for y in x.op.inputs)
