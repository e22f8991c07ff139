"""Random numbers that depend on nothing but a key and a place: counter-based, the same on any number of threads.

Everything is Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw: *Parallel random numbers: as easy as 1, 2, 3*,
SC'11), written T(key0, key1; counter0, counter1) and giving two words of 32 bits:

    key of an op       k0, k1 = T(low(seed), high(seed); low(run), place)
    element i of it    w0, w1 = T(k0, k1; high(i), low(i))             i is the flat index in the result
    float32            (w0 >> 8) / 2**24
    float64            ((w0 >> 5) * 2**26 + (w1 >> 6)) / 2**53

    in turn i of a loop        k0, k1 = T(k0, k1; low(i), high(i))     before that, once for each loop, outermost first

``low`` and ``high`` are the halves of 64 bits. ``seed`` is the session's, ``place`` counts the graph's random ops in
order of declaration; with ``seed=`` that seed replaces the session's and the place is 0. ``run`` counts the earlier
runs of the session whose program draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import (
    DTypeLike,
    Shape,
    ShapeLike,
    Size,
    TensorType,
    bool_,
    broadcast_shapes,
    computed,
    dtype_of,
    float16,
    float32,
    float64,
    int64,
    is_floating,
    is_short_float,
    is_weak,
    to_array,
)
from staticgrad.graph.graph import Tensor, get_default_graph
from staticgrad.graph.lifting import TensorLike, graph_of, lift
from staticgrad.graph.optable import FUNCTIONS, Array, BatchedNode, Case, Namespace, Op, Range, public, register
from staticgrad.graph.scalar import ScalarBuilder, V
from staticgrad.ops.batch_rules import again, broadcasting, by_example
from staticgrad.ops.declare import refuse_in_place
from staticgrad.ops.sources import IOTA, as_shape

Words = npt.NDArray[np.uint32]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
_ROUNDS = 20
_LOW = 0xFFFFFFFF
_UINT32 = np.dtype("uint32")


def threefry2x32(key0: Words, key1: Words, counter0: Words, counter1: Words) -> tuple[Words, Words]:
    """Threefry-2x32-20: two words of random bits for each counter (uint32 arrays that broadcast)."""
    keys = (key0, key1, key0 ^ key1 ^ _PARITY)
    x0, x1 = counter0 + key0, counter1 + key1
    for step in range(_ROUNDS):
        count = np.uint32(_ROTATIONS[step // 4 % 2][step % 4])
        x0 = x0 + x1
        x1 = ((x1 << count) | (x1 >> (np.uint32(32) - count))) ^ x0
        if step % 4 == 3:
            block = step // 4 + 1
            x0 = x0 + keys[block % 3]
            x1 = x1 + keys[(block + 1) % 3] + np.uint32(block)
    return x0, x1


def _word(value: int) -> Words:
    return np.array([value & _LOW], np.uint32)


def threefry_key(seed: int, run: int, place: int) -> tuple[int, int]:
    """The key words of one random op in one run: see the module's docstring."""
    k0, k1 = threefry2x32(_word(seed), _word(seed >> 32), _word(run), _word(place))
    return int(k0[0]), int(k1[0])


def stream_seed(seed: int | None, number: int) -> int | None:
    """The seed of one of several draws of an op that has a seed of its own."""
    if seed is None:
        return None
    high, low = threefry2x32(_word(seed), _word(seed >> 32), _word(number), _word(1))
    return int(high[0]) << 32 | int(low[0])


def turn_key(key0: int, key1: int, turn: int) -> tuple[int, int]:
    """The key words of a random op in one turn of the loop around it, from those outside."""
    k0, k1 = threefry2x32(_word(key0), _word(key1), _word(turn), _word(turn >> 32))
    return int(k0[0]), int(k1[0])


def uniform_reference(shape: tuple[int, ...], dtype: np.dtype, key0: int, key1: int) -> Array:
    """Uniform numbers in [0, 1) for the key words of an op."""
    return uniform_at(np.arange(math.prod(shape)), dtype, _word(key0), _word(key1)).reshape(shape)


def uniform_at(index: Array, dtype: np.dtype, key0: Array, key1: Array) -> Array:
    """The uniform numbers at flat indices, for key words that broadcast with them; all are integers."""
    index = index.astype(np.uint64)
    high, low = (index >> np.uint64(32)).astype(np.uint32), index.astype(np.uint32)
    w0, w1 = threefry2x32(key0.astype(np.uint32), key1.astype(np.uint32), high, low)
    if dtype == float32:
        return np.asarray((w0 >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24))
    unit = (w0 >> np.uint32(5)).astype(np.float64) * 2.0**26 + (w1 >> np.uint32(6)).astype(np.float64)
    return np.asarray(unit * 2.0**-53)


@frozen
class RandomAttributes:
    """Type of the result, the op's place among the graph's random ops, and its own seed if it has one."""

    shape: Shape
    dtype: np.dtype
    place: int
    seed: int | None = None


def _random_reference(attrs: RandomAttributes, key: Sequence[int] | Array = (0, 0), *turns: Array) -> Array:
    """``key`` is what a run hands over as int64[2]: the session's seed and the run number."""
    seed = int(key[0]) if attrs.seed is None else attrs.seed
    shape = tuple(int(size) for size in attrs.shape)
    words = threefry_key(seed, int(key[1]), attrs.place)
    for turn in turns:
        words = turn_key(*words, int(turn))
    return uniform_reference(shape, attrs.dtype, *words)


def _random_scalar(b: ScalarBuilder[V], attrs: RandomAttributes, key0: V, key1: V, index: V) -> V:
    """One element, from the key words and the flat index (int64)."""
    high = b.cast(b.shift_right(index, b.const(32, int64)), _UINT32)
    w0, w1 = b.threefry(b.cast(key0, _UINT32), b.cast(key1, _UINT32), high, b.cast(index, _UINT32))
    return b.bits_to_unit(w0) if attrs.dtype == float32 else b.bits_to_unit64(w0, w1)


def _over_examples(o: Namespace, node: BatchedNode[RandomAttributes]) -> Sequence[Tensor]:
    """All numbers at once where the last index is that of the example; in a body, whose turn comes after it, those of
    each example."""
    *around, number = node.inputs
    if number.op.op is not IOTA or any(node.batched[:-1]):
        return by_example(o, node)
    return again(node, around, replace(node.attrs, shape=(node.size, *node.attrs.shape)))


RANDOM_UNIFORM = register(
    Op(
        "random_uniform",
        "Uniform numbers in [0, 1), from the session's seed, the run number and the op's place.",
        infer=lambda a, *turns: TensorType(a.shape, a.dtype),
        reference=_random_reference,
        scalar=_random_scalar,
        vjp=lambda o, node, ct: (None,) * len(node.inputs),
        dtypes=(float32, float64),
        cases=(
            Case((), RandomAttributes((3, 5), float32, 0)),
            Case((), RandomAttributes((7,), float64, 3)),
            Case((), RandomAttributes((40,), float32, 0, seed=2**40 + 1)),
        ),
        role="elementwise",
        draws=True,
        batch=_over_examples,
    )
)


# -- the key, as compiled programs compute it -----------------------------------------------------------------------


@frozen
class KeyAttributes:
    """A random op's place and own seed (halves of it, None: the session's), and which of the two key words is meant."""

    place: int
    seed: tuple[int, int] | None
    word: int


def key_attributes(attrs: RandomAttributes, word: int) -> KeyAttributes:
    """The attributes by which key word 0 or 1 of a random op is made of the session's seed and the run number."""
    own = None if attrs.seed is None else (attrs.seed & _LOW, attrs.seed >> 32 & _LOW)
    return KeyAttributes(attrs.place, own, word)


def _key_scalar(b: ScalarBuilder[V], attrs: KeyAttributes, seed: V, run: V) -> V:
    if attrs.seed is None:
        low, high = b.cast(seed, _UINT32), b.cast(b.shift_right(seed, b.const(32, int64)), _UINT32)
    else:
        low, high = b.const(attrs.seed[0], _UINT32), b.const(attrs.seed[1], _UINT32)
    words = b.threefry(low, high, b.cast(run, _UINT32), b.const(attrs.place & _LOW, _UINT32))
    return b.cast(words[attrs.word], int64)


def _key_reference(attrs: KeyAttributes, seeds: Array, runs: Array) -> Array:
    def word(seed: int, run: int) -> int:
        own = seed if attrs.seed is None else attrs.seed[0] | attrs.seed[1] << 32
        return threefry_key(own, run, attrs.place)[attrs.word]

    seeds, runs = np.broadcast_arrays(seeds, runs)
    words = [word(int(seed), int(run)) for seed, run in zip(seeds.flat, runs.flat, strict=True)]
    return np.array(words, np.int64).reshape(seeds.shape)


register(
    Op(
        "random_key",
        "A key word of a random op from the session's seed and the run number, both int64.",
        infer=lambda attrs, seed, run: TensorType(broadcast_shapes([seed.shape, run.shape], "random_key"), int64),
        reference=_key_reference,
        role="elementwise",
        scalar=_key_scalar,
        differentiable=False,
        dtypes=(int64,),
        cases=(
            Case(((3,), (3,)), KeyAttributes(0, None, 0), (Range(-(2.0**40), 2.0**40), Range(0, 1000))),
            Case(((), ()), KeyAttributes(5, None, 1), (Range(0, 100), Range(0, 100))),
            Case(((2,), (2,)), KeyAttributes(0, (3, 2**32 - 1), 1), (Range(0, 100), Range(0, 100))),
        ),
        batch=broadcasting,
    )
)


def _turn_scalar(b: ScalarBuilder[V], attrs: KeyAttributes, key0: V, key1: V, turn: V) -> V:
    low, high = b.cast(turn, _UINT32), b.cast(b.shift_right(turn, b.const(32, int64)), _UINT32)
    return b.cast(b.threefry(b.cast(key0, _UINT32), b.cast(key1, _UINT32), low, high)[attrs.word], int64)


def _turn_reference(attrs: KeyAttributes, *operands: Array) -> Array:
    rows = np.broadcast_arrays(*operands)
    words = [turn_key(*map(int, row))[attrs.word] for row in zip(*(r.flat for r in rows), strict=True)]
    return np.array(words, np.int64).reshape(rows[0].shape)


register(
    Op(
        "random_turn",
        "A key word of a random op in one turn of a loop, from both key words outside and the turn, all int64.",
        infer=lambda attrs, *types: TensorType(broadcast_shapes([t.shape for t in types], "random_turn"), int64),
        reference=_turn_reference,
        role="elementwise",
        scalar=_turn_scalar,
        differentiable=False,
        dtypes=(int64,),
        cases=(
            Case(((3,),) * 3, KeyAttributes(0, None, 0), (*[Range(0, 2.0**32 - 1)] * 2, Range(0, 1000))),
            Case(((),) * 3, KeyAttributes(0, None, 1), (Range(0, 100), Range(0, 100), Range(2.0**33, 2.0**34))),
        ),
        batch=broadcasting,
    )
)


# -- declaring ----------------------------------------------------------------------------------------------------


def random_uniform(shape: ShapeLike, dtype: DTypeLike = float32, seed: int | None = None) -> Tensor:
    """The primitive: uniform numbers in [0, 1); in float32 for a short float.

    Raises:
        GraphError: a dtype that is not floating, or a seed that is no int of 64 bits.
    """
    kind = dtype_of(dtype)
    if not is_floating(kind):
        raise GraphError(f"random numbers are floating: dtype {kind.name} is not")
    if seed is not None and not (isinstance(seed, (int, np.integer)) and -(2**63) <= seed < 2**64):
        raise GraphError(f"a seed is an int of 64 bits, not {seed!r}")
    graph = get_default_graph()
    place = 0
    if seed is None:
        place = graph.take_place()
    attrs = RandomAttributes(as_shape(shape, "random"), computed(kind), place, None if seed is None else int(seed))
    return graph.add(RANDOM_UNIFORM, graph.loop_indices(), attrs).outputs[0]


def dtype_of_parameters(dtype: DTypeLike | None, *parameters: TensorLike) -> np.dtype:
    """The dtype of numbers drawn with these parameters: the one that is given, else theirs, float32 of numbers."""
    if dtype is not None:
        return dtype_of(dtype)
    strong = [p.dtype for p in parameters if hasattr(p, "dtype")]
    kind = np.result_type(*strong) if strong else float32
    return kind if is_floating(kind) else float32


def uniform(
    shape: ShapeLike,
    low: TensorLike = 0.0,
    high: TensorLike = 1.0,
    *,
    dtype: DTypeLike | None = None,
    seed: int | None = None,
) -> Tensor:
    """Uniform numbers in [low, high).

    Args:
        shape: of the result.
        low: a number or a tensor that broadcasts to the shape; gradients flow to it.
        high: likewise.
        dtype: float32 (default) or float64.
        seed: draw from this seed instead of the session's, whatever the op's place.

    Raises:
        GraphError: a dtype that is not floating.

    Example:
        >>> sess = sg.Session(seed=0)
        >>> x = sg.random.uniform((3,), -1.0, 1.0)
        >>> sess.run(x).round(3)
        array([ 0.94 , -0.37 ,  0.322], dtype=float32)
        >>> sess.run(x).round(3)
        array([0.356, 0.625, 0.837], dtype=float32)
    """
    o = FUNCTIONS
    with graph_of((low, high)):
        kind = dtype_of_parameters(dtype, low, high)
        u = random_uniform(shape, kind, seed)
        if is_short_float(kind):  # of its own number of bits: more would be rounded to 1
            steps = 2.0**8 if kind != float16 else 2.0**11
            u = o.multiply(o.floor(o.multiply(u, steps)), 1 / steps)
        if is_weak(low) and is_weak(high) and (low, high) == (0, 1):
            return o.astype(u, kind)
        first, last = parameter(low, u.dtype), parameter(high, u.dtype)
        both = isinstance(first, float) and isinstance(last, float)
        scaled = o.multiply(u, last - first if both else o.subtract(last, first))
        drawn = scaled if is_weak(low) and low == 0 else o.add(scaled, first)
        if isinstance(first, float) and isinstance(last, float) and first < last and is_short_float(kind):
            drawn = o.minimum(drawn, _below(last, kind))  # what is next to high would be rounded to it
        return o.astype(drawn, kind)


def _below(value: float, dtype: np.dtype) -> float:
    """The largest number of a dtype below ``value``."""
    rounded = np.asarray(value).astype(dtype)
    return float(rounded if rounded < value else np.nextafter(rounded, np.asarray(-math.inf, dtype)))


def require_range(what: str, value: TensorLike, low: float, high: float) -> None:
    """Refuse numbers and arrays with elements out of a range; what a tensor holds is not known yet."""
    if isinstance(value, Tensor):
        return
    try:
        array = to_array(value)
        inside = bool(np.all((array >= low) & (array <= high)))
    except GraphError:
        inside = False
    if not inside:
        raise GraphError(f"{what}: expected numbers from {low:g} to {high:g}, actual {value!r}")


def parameter(value: TensorLike, dtype: np.dtype) -> float | Tensor:
    """A parameter in the dtype that is drawn; Python scalars take it by themselves."""
    if is_weak(value):
        return float(value)
    x = lift(value, dtype=dtype)
    return x if x.dtype == dtype else FUNCTIONS.astype(x, dtype)


def normal(
    shape: ShapeLike,
    mean: TensorLike = 0.0,
    std: TensorLike = 1.0,
    *,
    dtype: DTypeLike | None = None,
    seed: int | None = None,
) -> Tensor:
    """Normally distributed numbers: √2·erfinv(v) of v uniform in (-1, 1).

    Args:
        shape: of the result.
        mean: a number or a tensor that broadcasts to the shape; gradients flow to it.
        std: likewise.
        dtype: float32 (default) or float64.
        seed: draw from this seed instead of the session's, whatever the op's place.

    Raises:
        GraphError: a dtype that is not floating, or a number below zero as ``std``.

    Example:
        >>> x = sg.random.normal((3,), mean=[0.0, 10.0, 20.0], std=0.1)
        >>> sg.Session(seed=0).run(x).round(2)
        array([ 0.19,  9.95, 20.04], dtype=float32)
    """
    o = FUNCTIONS
    require_range("normal: std", std, 0.0, math.inf)
    with graph_of((mean, std)):
        kind = dtype_of_parameters(dtype, mean, std)
        u = random_uniform(shape, kind, seed)
        half_step = 2.0**-24 if u.dtype == float32 else 2.0**-53
        # 2u - 1 is exact and lies in [-1, 1); half a step more makes it symmetrical, still exact, and never ±1
        v = o.add(o.subtract(o.multiply(u, 2.0), 1.0), half_step)
        x = o.multiply(o.erfinv(v), math.sqrt(2.0))
        if not (is_weak(std) and std == 1):
            x = o.multiply(x, parameter(std, u.dtype))
        return o.astype(x if is_weak(mean) and mean == 0 else o.add(x, parameter(mean, u.dtype)), kind)


def bernoulli(p: TensorLike, shape: ShapeLike | None = None, *, seed: int | None = None) -> Tensor:
    """True with probability ``p``.

    Args:
        p: a number, or a tensor that broadcasts to the shape.
        shape: of the result; default: the shape of ``p``.

    Raises:
        GraphError: a number that is no probability.

    Example:
        >>> sg.Session(seed=0).run(sg.random.bernoulli(0.5, (4,)))
        array([False,  True, False, False])
        >>> sg.Session().run(sg.random.bernoulli([0.0, 1.0]))
        array([False,  True])
    """
    o = FUNCTIONS
    require_range("bernoulli: p", p, 0.0, 1.0)
    with graph_of((p,)):
        if shape is None:
            shape = () if is_weak(p) else lift(p).shape
        u = random_uniform(shape, dtype_of_parameters(None, p), seed)
        return o.less(u, parameter(p, u.dtype))


def permutation(n: Size, *, seed: int | None = None) -> Tensor:
    """The numbers 0, …, n-1 in random order, int64 (n,): the rank of each of n random numbers.

    The ranks are counted pair by pair, n² comparisons.

    Example:
        >>> order = sg.random.permutation(5, seed=1)
        >>> sg.Session().run(order)
        array([3, 2, 1, 0, 4])
    """
    o = FUNCTIONS
    (size,) = as_shape(n, "permutation")
    u = random_uniform((size,), float64, seed)
    mine, other = o.reshape(u, (size, 1)), o.reshape(u, (1, size))
    earlier = o.less(o.iota((1, size), 1), o.iota((size, 1), 0))
    before = o.logical_or(o.less(other, mine), o.logical_and(o.equal(other, mine), earlier))
    return o.sum(o.astype(before, "int64"), axis=1)


# -- dropout ------------------------------------------------------------------------------------------------------


@frozen
class DropoutAttributes:
    """The probability that an element is dropped."""

    p: float

    @property
    def scale(self) -> float:
        """The factor by which kept elements are multiplied, so that the mean stays."""
        return 1.0 / (1.0 - self.p) if self.p < 1.0 else 0.0


def _dropout_type(attrs: DropoutAttributes, x: TensorType, keep: TensorType) -> TensorType:
    if keep.dtype != bool_ or keep.ndim != x.ndim:
        raise GraphError(f"dropout: expected a bool mask of the shape of {x}, actual {keep}")
    return x


DROPOUT = register(
    Op(
        "dropout",
        "Zero where a mask is false, elsewhere x / (1 - p). The mask serves the value and the gradient.",
        infer=_dropout_type,
        reference=lambda a, x, keep: np.where(keep, x * np.asarray(a.scale, x.dtype), np.zeros((), x.dtype)),
        expand=lambda o, node: [o.where(node.inputs[1], o.multiply(node.inputs[0], node.attrs.scale), 0)],
        vjp=lambda o, node, ct: (o.apply_dropout(ct, node.inputs[1], node.attrs.p), None),
        jvp=lambda o, node, dx, _: (None if dx is None else o.apply_dropout(dx, node.inputs[1], node.attrs.p),),
        dtypes=(float32, float64),
        cases=(
            Case(((4, 5), (4, 5)), DropoutAttributes(0.25), dtypes=(None, bool_)),
            Case(((7,), (7,)), DropoutAttributes(1.0), dtypes=(None, bool_)),
        ),
        grad_name="NativeDropout",
    )
)


def probability(value: Any, what: str) -> float:
    """A number in [0, 1].

    Raises:
        GraphError: it is something else.
    """
    if not (isinstance(value, Real) and 0 <= float(value) <= 1):
        raise GraphError(f"{what}={value!r}: expected a probability")
    return float(value)


@public
def apply_dropout(x: Tensor, keep: Tensor, p: float) -> Tensor:
    """Dropout with a given mask of what is kept."""
    return x.graph.add(DROPOUT, (x, keep), DropoutAttributes(p)).outputs[0]


@public
def dropout(
    input: TensorLike, p: float = 0.5, training: bool = True, inplace: bool = False, *, seed: int | None = None
) -> Tensor:
    """Zero each element with probability ``p`` and scale the others by 1 / (1 - p); without ``training`` the identity.

    Raises:
        GraphError: ``p`` is no probability, or the input is not floating.

    Example:
        >>> x = sg.ones(6)
        >>> sg.Session(seed=0).run(sg.nn.dropout(x, p=0.5))
        array([2., 0., 2., 2., 0., 0.], dtype=float32)
        >>> sg.Session().run(sg.nn.dropout(x, training=False))
        array([1., 1., 1., 1., 1., 1.], dtype=float32)
    """
    x = lift(input)
    refuse_in_place("dropout", inplace)
    p = probability(p, "dropout: p")
    if not is_floating(x.dtype):
        raise GraphError(f"dropout: expected a floating tensor, actual {x.type}")
    if not training or p == 0:
        return x
    with x.graph:
        keep = FUNCTIONS.greater_equal(random_uniform(x.shape, x.dtype, seed), p)
    return apply_dropout(x, keep, p)
