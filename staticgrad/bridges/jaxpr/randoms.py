"""JAX's random numbers, bit for bit: keys, and the bits of Threefry.

A key is one integer of 64 bits, its first word in the upper half (``versions.packed_keys``). What makes keys or numbers
of keys is converted as the function of JAX that it is defined by.

Source: J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.base.types import uint32, uint64
from staticgrad.bridges.arrays import as_tensors, cast
from staticgrad.bridges.jaxpr import versions
from staticgrad.bridges.jaxpr.conversion import JAX, JaxScope, body_of, converts
from staticgrad.bridges.jaxpr.rules import ruled_tensor
from staticgrad.bridges.jaxpr.versions import jax
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


@converts("threefry2x32")
def threefry2x32(at: JaxScope, node: Any) -> list[Tensor]:
    """The cipher of Threefry-2x32, of 20 rounds: two words of a key, two of a counter."""
    first, second, x, y = at.tensors(node.invars)
    keys = (first, second, first ^ second ^ PARITY)
    x, y = x + first, y + second
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            x = x + y
            y = (o.bitwise_left_shift(y, rotation) | o.bitwise_right_shift(y, 32 - rotation)) ^ x
        x, y = x + keys[(group + 1) % 3], y + keys[(group + 2) % 3] + (group + 1)
    return [x, y]


def _words(keys: Tensor) -> Tensor:
    return o.stack([cast(o.bitwise_right_shift(keys, 32), uint32), cast(keys, uint32)], -1)


def joined(words: Tensor) -> Tensor:
    """Keys of their two words."""
    return o.bitwise_left_shift(cast(words[..., 0], uint64), 32) | cast(words[..., 1], uint64)


@converts("random_wrap")
def random_wrap(at: JaxScope, node: Any) -> Tensor:
    return joined(at.tensor(node.invars[0]))


@converts("random_unwrap")
def random_unwrap(at: JaxScope, node: Any) -> Tensor:
    return _words(at.tensor(node.invars[0]))


@converts("random_clone")
def random_clone(at: JaxScope, node: Any) -> Any:
    return at.value(node.invars[0])


def _of_each(at: JaxScope, fn: Callable[..., Any], values: Sequence[Any], depth: int) -> Tensor:
    """The result of a function of JAX for each element along the first ``depth`` axes, which operands have in common:
    of words of keys, and other arrays."""
    for _ in range(depth):
        fn = jax.vmap(fn)
    body = jax.make_jaxpr(fn)(*(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in values))
    JAX.require(body_of(body.jaxpr))
    return as_tensors(at.run(body, values))[0]


def _made_of(at: JaxScope, node: Any, fn: Callable[..., Any]) -> Tensor:
    words = _words(at.tensor(node.invars[0]))
    return _of_each(at, fn, [words], words.ndim - 1)


def _implementation(node: Any) -> Any:
    """The functions by which a key's numbers are defined."""
    return node.invars[0].aval.dtype._impl


@converts("random_bits")
def random_bits(at: JaxScope, node: Any) -> Tensor:
    p, impl = node.params, _implementation(node)
    return _made_of(at, node, lambda words: impl.random_bits(words, p["bit_width"], tuple(p["shape"])))


@converts("random_split")
def random_split(at: JaxScope, node: Any) -> Tensor:
    impl = _implementation(node)
    return joined(_made_of(at, node, lambda words: impl.split(words, tuple(node.params["shape"]))))


@converts("random_fold_in")
def random_fold_in(at: JaxScope, node: Any) -> Tensor:
    words, number = _words(at.tensor(node.invars[0])), at.tensor(node.invars[1])
    shape = np.broadcast_shapes(words.shape[:-1], number.shape)
    operands = [o.broadcast_to(words, (*shape, 2)), o.broadcast_to(cast(number, uint32), shape)]
    return joined(_of_each(at, _implementation(node).fold_in, operands, len(shape)))


@converts("random_seed")
def random_seed(at: JaxScope, node: Any) -> Tensor:
    seed, impl = at.value(node.invars[0]), node.params["impl"]
    return joined(_of_each(at, impl.seed, [seed], len(seed.shape)))


@converts("iota_2x32_shape")
def counters(at: JaxScope, node: Any) -> list[Tensor]:
    """The numbers of the elements of an array, in two words."""
    shape = at.open.shape(node.params["shape"])
    numbers = o.reshape(o.iota((math.prod(shape),), dtype=uint64), shape)
    return [cast(o.bitwise_right_shift(numbers, 32), uint32), cast(numbers, uint32)]


@converts("random_gamma")
def random_gamma(at: JaxScope, node: Any) -> Tensor:
    def made() -> Tensor:
        return as_tensors(at.run_function(lambda *xs: versions.gamma_of(*xs, **node.params), node))[0]

    return ruled_tensor(at, node, made)
