"""Distributions that are made of uniform and normal numbers: of categories, integers and elements, exponential, gamma.

All of them declare ``random_uniform`` and what follows from its results, so that a draw depends on the keys of these
ops alone (see ``staticgrad.ops.randoms``). Those that declare several of them with a seed of their own give each a seed
that follows from it.
"""

from __future__ import annotations

import math
import sys

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.types import (
    Dim,
    DTypeLike,
    Shape,
    ShapeLike,
    Size,
    bool_,
    dtype_of,
    float32,
    float64,
    int64,
    is_floating,
    is_integer,
    is_weak,
    normalize_axis,
    product,
)
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, graph_of, lift
from staticgrad.graph.optable import FUNCTIONS
from staticgrad.ops.randoms import (
    dtype_of_parameters,
    normal,
    parameter,
    random_uniform,
    require_range,
    stream_seed,
)
from staticgrad.ops.sources import as_shape


def _one_minus(u: Tensor) -> Tensor:
    """-log(1 - u) of u uniform in [0, 1): exponentially distributed, exact also where it is tiny."""
    return FUNCTIONS.negative(FUNCTIONS.log1p(FUNCTIONS.negative(u)))


def exponential(
    shape: ShapeLike, scale: TensorLike = 1.0, *, dtype: DTypeLike | None = None, seed: int | None = None
) -> Tensor:
    """Exponentially distributed numbers with mean ``scale``: -scale·log(1 - u) of u uniform in [0, 1).

    Args:
        shape: of the result.
        scale: the mean, a number or a tensor that broadcasts to the shape; gradients flow to it.
        dtype: a floating dtype; default: that of ``scale``, float32 for a number.
        seed: draw from this seed instead of the session's, whatever the op's place.

    Raises:
        GraphError: a dtype that is not floating, or a number below zero as ``scale``.

    Example:
        >>> waits = sg.random.exponential((1000,), scale=2.0)
        >>> bool(1.8 < sg.Session().run(sg.mean(waits)) < 2.2)
        True
    """
    o = FUNCTIONS
    require_range("exponential: scale", scale, 0.0, math.inf)
    with graph_of((scale,)):
        kind = dtype_of_parameters(dtype, scale)
        x = _one_minus(random_uniform(shape, kind, seed))
        return o.astype(x if is_weak(scale) and scale == 1 else o.multiply(x, parameter(scale, x.dtype)), kind)


def randint(
    shape: ShapeLike, low: TensorLike, high: TensorLike, *, dtype: DTypeLike = int64, seed: int | None = None
) -> Tensor:
    """Integers of low, low + 1, …, high - 1, each equally often.

    They are low + floor(u·(high - low)) of u uniform among the multiples of 2⁻⁵³ in [0, 1), so that probabilities
    differ from each other by at most 2⁻⁵³.

    Args:
        shape: of the result.
        low: the least that is drawn, an integer or a tensor of integers that broadcasts to the shape.
        high: one more than the largest, likewise; at most 2⁵³ more than ``low``.
        dtype: an integer dtype.
        seed: draw from this seed instead of the session's, whatever the op's place.

    Raises:
        GraphError: a dtype that is none of integers, bounds that are no integers or do not fit in it, or no integer
            between them.

    Example:
        >>> dice = sg.random.randint((1000,), 1, 7)
        >>> int(sg.Session().run(sg.min(dice))), int(sg.Session().run(sg.max(dice)))
        (1, 6)
    """
    o = FUNCTIONS
    kind = dtype_of(dtype)
    if not is_integer(kind):
        raise GraphError(f"randint: expected an integer dtype, actual {kind.name}")
    with graph_of((low, high)):
        first, last = (lift(_word(x)) for x in (low, high))
        if not (is_integer(first.dtype) and is_integer(last.dtype)):
            raise GraphError(f"randint: expected integers as bounds, actual {first.type} and {last.type}")
        _check_bounds(low, high, kind)
        u = random_uniform(shape, float64, seed)
        first = o.astype(first, int64)
        span = o.subtract(o.astype(last, int64), first)
        steps = o.astype(o.floor(o.multiply(u, o.astype(span, float64))), int64)
        return o.astype(o.add(steps, first), kind)


def _word(bound: TensorLike) -> TensorLike:
    """A bound of ``randint`` that no int64 holds as the one of the same 64 bits: what is added to it wraps around."""
    return (bound + 2**63) % 2**64 - 2**63 if type(bound) is int else bound


def _check_bounds(low: TensorLike, high: TensorLike, kind: np.dtype) -> None:
    """Refuse bounds of ``randint`` that are known and impossible."""
    known = [np.asarray(x, object) for x in (low, high) if not isinstance(x, Tensor | Dim)]
    info = np.iinfo(kind)
    inside = all(np.all((x >= info.min) & (x <= info.max + 1)) for x in known)
    span = known[1] - known[0] if len(known) == 2 else np.asarray(1, object)
    if not inside or not np.all((span > 0) & (span <= 2**53)):
        raise GraphError(
            f"randint: expected low < high, at most 2**53 apart and in the range of {kind.name},"
            f" actual {low!r} and {high!r}"
        )


def categorical(
    logits: TensorLike, axis: int = -1, shape: ShapeLike | None = None, *, seed: int | None = None
) -> Tensor:
    """The category that was drawn, int64: category i with probability softmax(logits)[i] along ``axis``.

    The largest of logits[i] + g[i] with g of the Gumbel distribution, g = -log(-log(u)), computed in float64 (Gumbel
    1954). No gradient passes.

    Args:
        logits: logarithms of probabilities, up to a common constant; -inf for what is never drawn.
        axis: the axis of the categories.
        shape: of the result, which ends in the shape of ``logits`` without ``axis`` (the default): axes before it are
            draws from the same logits.
        seed: draw from this seed instead of the session's, whatever the op's place.

    Raises:
        GraphError: logits without axes, or a shape that ends otherwise.

    Example:
        >>> logits = sg.log(sg.constant([0.0, 1.0, 3.0]))
        >>> drawn = sg.Session().run(sg.random.categorical(logits, shape=(1000,)))
        >>> np.bincount(drawn, minlength=3).tolist()
        [0, ..., ...]
    """
    o = FUNCTIONS
    with graph_of((logits,)):
        x = o.astype(logits, float64)
        if x.ndim == 0:
            raise GraphError(f"categorical: {x.name!r} {x.type} has no axis of categories")
        x = o.moveaxis(x, normalize_axis(axis, x.ndim, "categorical"), -1)
        rest = x.shape[:-1]
        drawn = rest if shape is None else as_shape(shape, "categorical")
        if len(drawn) < len(rest) or drawn[len(drawn) - len(rest) :] != rest:
            raise GraphError(f"categorical: expected a shape that ends in {rest}, actual {drawn}")
        noise = _one_minus(_positive(random_uniform((*drawn, x.shape[-1]), float64, seed)))
        return o.argmax(o.subtract(x, o.log(noise)), axis=-1)


def _positive(u: Tensor) -> Tensor:
    """Uniform numbers of which 0 became half a step, so that logarithms are finite."""
    return FUNCTIONS.maximum(u, 2.0**-25 if u.dtype == float32 else 2.0**-54)


def choice(
    a: TensorLike,
    shape: ShapeLike = (),
    replace: bool = True,
    p: TensorLike | None = None,
    *,
    axis: int = 0,
    seed: int | None = None,
) -> Tensor:
    """Random elements of ``a``.

    With replacement each draw is independent: ``randint``, or where the running sum of ``p`` passes a uniform number.
    Without, they are the first of a random order: elements sorted by a uniform number, or by an exponential one divided
    by p (Efraimidis and Spirakis 2006).

    Args:
        a: a tensor or array, of which elements are taken along ``axis``; an integer n stands for 0, …, n-1.
        shape: how many.
        replace: whether an element may be drawn again.
        p: a weight for each element, of at least 0; equal ones by default. Weights need not add up to 1.
        axis: the axis of ``a`` along which elements lie.
        seed: draw from this seed instead of the session's, whatever the op's place.

    Returns:
        The shape of ``a`` with ``shape`` in the place of the axis.

    Raises:
        GraphError: no element to draw, fewer than are drawn without replacement, or weights of another shape or
            negative.

    Example:
        >>> hand = sg.Session().run(sg.random.choice(32, (5,), replace=False))
        >>> len(set(hand.tolist()))
        5
    """
    o = FUNCTIONS
    with graph_of((a, p)):
        values: Tensor | None = None
        place = 0
        if isinstance(a, int | np.integer | Dim):
            (size,) = as_shape(a, "choice")
        else:
            values = lift(a)
            if values.ndim == 0:
                raise GraphError(f"choice: expected an integer or elements along an axis, actual {values.type}")
            place = normalize_axis(axis, values.ndim, "choice")
            size = values.shape[place]
        drawn = as_shape(shape, "choice")
        weights = None if p is None else _weights(p, size)
        if not replace:
            index = _without_replacement(drawn, size, weights, seed)
        elif size == 0 and 0 not in drawn:
            raise GraphError("choice: there is no element to draw")
        elif weights is None:
            index = randint(drawn, 0, size, seed=seed)
        else:
            sums = o.cumulative_sum(weights)
            index = o.searchsorted(sums, o.multiply(random_uniform(drawn, float64, seed), sums[-1]), side="right")
        if values is None:
            return index
        taken = o.take(values, o.reshape(index, (-1,)), axis=place)
        return o.reshape(taken, (*values.shape[:place], *drawn, *values.shape[place + 1 :]))


def _weights(p: TensorLike, size: Size) -> Tensor:
    """The weights of ``choice`` as float64, checked as far as they are known."""
    require_range("choice: p", p, 0.0, sys.float_info.max)
    weights = FUNCTIONS.astype(p, float64)
    if weights.shape != (size,):
        raise GraphError(f"choice: expected a weight for each of {size} elements, actual {weights.type}")
    return weights


def _without_replacement(drawn: Shape, size: Size, weights: Tensor | None, seed: int | None) -> Tensor:
    """Indices of which none occurs twice."""
    o = FUNCTIONS
    count = product(drawn)
    if not isinstance(count, int) or (isinstance(size, int) and count > size):
        raise GraphError(f"choice: {count} of {size} elements can't be drawn without replacement")
    order = random_uniform((size,), float64, seed)
    if weights is not None:
        order = o.divide(_one_minus(_positive(order)), weights)
    return o.reshape(o.topk(order, count, largest=False)[1], drawn)


def gamma(
    alpha: TensorLike,
    shape: ShapeLike | None = None,
    scale: TensorLike = 1.0,
    *,
    dtype: DTypeLike | None = None,
    seed: int | None = None,
) -> Tensor:
    """Numbers of the gamma distribution with the density x**(alpha - 1)·exp(-x/scale), up to a factor.

    By rejection (Marsaglia and Tsang 2000), in float64: each element takes the first of its proposals that is accepted,
    one a turn of a loop that ends when all have one; 95 to 100 in a hundred are. Of ``alpha`` below 1 it is the draw of
    alpha + 1 times u**(1/alpha).

    Args:
        alpha: the shape parameter, a number or a tensor that broadcasts to the shape. Where it is negative the result
            is NaN. Gradients flow to it, too: with the value of the distribution function kept (M. Figurnov, S.
            Mohamed & A. Mnih, Implicit reparameterization gradients, 2018); by ``alpha`` there is one derivative.
        shape: of the result; default: the shape of ``alpha``.
        scale: a number or a tensor that broadcasts to the shape; gradients flow to it.
        dtype: a floating dtype; default: that of the parameters, float32 for numbers.
        seed: draw from this seed instead of the session's, whatever the op's place.

    Raises:
        GraphError: a number below zero as a parameter, or a dtype that is not floating.

    Example:
        >>> x = sg.random.gamma(3.0, (1000,))
        >>> bool(2.8 < sg.Session().run(sg.mean(x)) < 3.2)
        True
    """
    o = FUNCTIONS
    for name, value in (("alpha", alpha), ("scale", scale)):
        require_range(f"gamma: {name}", value, 0.0, math.inf)
    with graph_of((alpha, scale)):
        kind = dtype_of_parameters(dtype, alpha, scale)
        if not is_floating(kind):
            raise GraphError(f"random numbers are floating: dtype {kind.name} is not")
        given = o.astype(alpha, float64)
        wanted = as_shape(given.shape if shape is None else shape, "gamma")
        a = o.broadcast_to(given, wanted)
        x = o.gamma_draw(_standard_gamma(o.stop_gradient(a), seed), a)
        return o.astype(x if is_weak(scale) and scale == 1 else o.multiply(x, parameter(scale, float64)), kind)


def _standard_gamma(alpha: Tensor, seed: int | None) -> Tensor:
    """A draw for each element of ``alpha``, which is float64."""
    o = FUNCTIONS
    small = o.less(alpha, 1.0)
    # with d and c of the paper, and t = c·x: d·v for v = (1 + t)³, accepted if log u < x²/2 + d·(1 - v + log v)
    d = o.subtract(o.where(small, o.maximum(alpha, 0.0) + 1.0, alpha), 1 / 3)
    c = o.rsqrt(9.0 * d)

    def propose(state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        found, accepted = state
        x = normal(alpha.shape, dtype=float64, seed=stream_seed(seed, 0))
        u = random_uniform(alpha.shape, float64, stream_seed(seed, 1))
        t = c * x
        odds = x * x * 0.5 + d * (3.0 * (o.log1p(t) - t) - t * t * (t + 3.0))
        rejected = o.logical_or(o.less_equal(t, -1.0), o.greater_equal(o.log(u), odds))  # false where alpha is NaN
        proposal = d * o.pow(t + 1.0, 3)
        return o.where(accepted, found, proposal), o.logical_or(accepted, o.logical_not(rejected))

    start = (o.zeros_like(alpha), o.zeros_like(alpha, dtype=bool_))
    drawn = o.while_loop(lambda state: o.logical_not(o.all(state[1])), propose, start)[0]
    u = _positive(random_uniform(alpha.shape, float64, stream_seed(seed, 2)))
    drawn = o.where(small, drawn * o.exp(o.log(u) / alpha), drawn)
    return o.where(o.less(alpha, 0.0), math.nan, drawn)
