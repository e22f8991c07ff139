"""Order statistics, counts and moments under NumPy's names: quantiles, histograms, weighted means, covariances.

All are compositions; derivatives of quantiles go to the elements between which they lie.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.types import Size, int64, integer, is_short_float, normalize_axis
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift
from staticgrad.graph.optable import FUNCTIONS, public
from staticgrad.ops.declare import FLOAT, NUMERIC, accepted
from staticgrad.ops.elementwise.copies import rounded_once, widened
from staticgrad.ops.reductions import Axis
from staticgrad.ops.sizes import size_value

# -- quantiles ------------------------------------------------------------------------------------------------------

_METHODS = ("linear", "lower", "higher", "nearest", "midpoint")


def _in_last_axis(what: str, x: Tensor, axis: Axis) -> tuple[Tensor, tuple[int, ...]]:
    """The reduced axes as one, which comes last, and which they were."""
    if axis is None:
        return FUNCTIONS.reshape(x, (-1,)), tuple(range(x.ndim))
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    places = tuple(normalize_axis(one, x.ndim, what) for one in axes)
    kept = [i for i in range(x.ndim) if i not in places]
    moved = FUNCTIONS.permute_dims(x, (*kept, *places))
    if len(places) == 1:
        return moved, places
    return FUNCTIONS.reshape(moved, (*(x.shape[i] for i in kept), -1)), places


def _last_place(size: Size, dtype: np.dtype) -> Any:
    return size - 1 if isinstance(size, int) else FUNCTIONS.subtract(size_value(size, dtype), 1)


def _quantile(
    what: str, x: TensorLike, q: TensorLike, axis: Axis, method: str, keepdims: bool, whole: float = 1
) -> Tensor:
    """The quantiles of ``x`` at ``q`` parts, of which ``whole`` are all."""
    o = FUNCTIONS
    if method not in _METHODS:
        raise GraphError(f"{what}: method is one of {', '.join(map(repr, _METHODS))}, not {method!r}")
    (tensor,) = accepted(what, FLOAT, x)
    wanted = o.astype(q, tensor.dtype)

    def compose(tensor: Tensor, wanted: Tensor) -> Tensor:
        rows, places = _in_last_axis(what, tensor, axis)
        if rows.shape[-1] == 0:
            raise GraphError(f"{what}: {tensor.name!r} {tensor.type} has no elements along axis {axis}")
        ordered = o.sort(rows)
        wanted = wanted if whole == 1 else wanted / whole
        place = wanted * o.astype(_last_place(rows.shape[-1], wanted.dtype), wanted.dtype)
        low, high = o.floor(place), o.ceil(place)
        nearer = o.round(place)
        ends = {"lower": (low, low), "higher": (high, high), "nearest": (nearer, nearer)}.get(method, (low, high))
        below, above = (o.take(ordered, o.astype(end, int64), axis=-1, bounds="clip") for end in ends)
        part = place - low if method == "linear" else o.full((), 0.5, dtype=place.dtype)
        y = below if ends[0] is ends[1] else below + (above - below) * part
        y = o.where(o.isinf(below), below + above, y)  # not -inf + inf * part, nor inf - inf
        nan = o.isnan(ordered[..., -1])
        y = o.where(o.reshape(nan, (*nan.shape, *(1,) * wanted.ndim)), math.nan, y)
        front = y.ndim - wanted.ndim
        y = o.permute_dims(y, (*range(front, y.ndim), *range(front)))
        shape = [1 if i in places else n for i, n in enumerate(tensor.shape)]
        return o.reshape(y, (*wanted.shape, *shape)) if keepdims else y

    return rounded_once(compose, tensor, wanted)


@public
def quantile(
    x: TensorLike, q: TensorLike, axis: Axis = None, *, method: str = "linear", keepdims: bool = False
) -> Tensor:
    """The values below which a part ``q`` of the elements along ``axis`` lie. With a NaN among them it is NaN.

    Integers and bools are computed as float64.

    Args:
        q: numbers from 0 to 1, of any shape.
        axis: one axis, several, or None for all.
        method: where the quantile lies between two elements: ``"linear"`` between them, ``"lower"``, ``"higher"`` or
            ``"nearest"`` one of them, ``"midpoint"`` in the middle.

    Returns:
        The shape of ``q``, followed by that of ``x`` without the axes, or with ``keepdims`` with axes of size 1.

    Raises:
        GraphError: another method, or an axis of size 0.

    Example:
        >>> sg.Session().run(sg.quantile([3.0, 1.0, 2.0, 4.0], [0.5, 0.25]))
        array([2.5 , 1.75], dtype=float32)
    """
    return _quantile("quantile", x, q, axis, method, keepdims)


@public
def percentile(
    x: TensorLike, q: TensorLike, axis: Axis = None, *, method: str = "linear", keepdims: bool = False
) -> Tensor:
    """``sg.quantile`` with ``q`` from 0 to 100.

    Example:
        >>> sg.Session().run(sg.percentile([[3.0, 1.0], [2.0, 4.0]], 50, axis=0))
        array([2.5, 2.5], dtype=float32)
    """
    return _quantile("percentile", x, q, axis, method, keepdims, 100)


@public
def median(x: TensorLike, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The element in the middle along ``axis`` (one, several, or None for all), or the mean of the two that are. With a
    NaN among the elements it is NaN. Integers and bools are computed as float64.

    Raises:
        GraphError: an axis of size 0.

    Example:
        >>> sg.Session().run(sg.median([3.0, 1.0, 2.0, 10.0]))
        array(2.5, dtype=float32)
    """
    return _quantile("median", x, 0.5, axis, "linear", keepdims)


@public
def ptp(x: TensorLike, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The largest element along ``axis`` less the smallest one.

    Example:
        >>> sg.Session().run(sg.ptp([3, 1, 7]))
        array(6)
    """
    (tensor,) = accepted("ptp", NUMERIC, x)

    def compose(x: Tensor) -> Tensor:
        high, low = (end(x, axis=axis, keepdims=keepdims) for end in (FUNCTIONS.max, FUNCTIONS.min))
        return FUNCTIONS.subtract(high, low)

    return rounded_once(compose, tensor)


# -- counts ---------------------------------------------------------------------------------------------------------


@public
def bincount(x: TensorLike, weights: TensorLike | None = None, *, length: int) -> Tensor:
    """The number of times that each of 0, 1, …, ``length`` − 1 occurs in ``x``; other numbers are not counted.

    Args:
        x: integers of any shape.
        weights: of the shape of ``x``; what is added up in the place of ones.
        length: of the result, which is not known from values as NumPy's is.

    Returns:
        (length,), int64 or the dtype of the weights.

    Raises:
        GraphError: ``x`` is no tensor of integers, or weights of another shape.

    Example:
        >>> sg.Session().run(sg.bincount([0, 2, 2, 9], length=4))
        array([1, 0, 2, 0])
        >>> sg.Session().run(sg.bincount([0, 2, 2], [0.5, 1.0, 2.0], length=3))
        array([0.5, 0. , 3. ], dtype=float32)
    """
    o, tensor = FUNCTIONS, lift(x)
    ones = o.ones(tensor.shape, dtype=int64) if weights is None else lift(weights)
    if ones.ndim != tensor.ndim:
        raise GraphError(f"bincount: expected weights of the shape of {tensor.type}, actual {ones.type}")
    length = integer(length, "bincount: length", 0)
    line, added = o.reshape(tensor, (-1,)), o.reshape(ones, (-1,))
    return o.index_add(o.zeros((length,), dtype=added.dtype), added, line, what="bincount", bounds="drop")


@public
def digitize(x: TensorLike, bins: TensorLike, right: bool = False) -> Tensor:
    """The number of the bin of each element: of the edges ``bins``, in ascending order, how many lie at or below it
    (``right``: below it).

    Example:
        >>> sg.Session().run(sg.digitize([0.2, 1.0, 6.4], [0.0, 1.0, 2.5, 4.0]))
        array([1, 2, 4])
    """
    return FUNCTIONS.searchsorted(bins, x, side="left" if right else "right")


@public
def histogram(
    x: TensorLike,
    bins: int | TensorLike = 10,
    range: tuple[float, float] | None = None,
    weights: TensorLike | None = None,
    density: bool = False,
) -> tuple[Tensor, Tensor]:
    """The number of elements in each bin; the last bin has both its edges, the others their lower one.

    Args:
        x: of any shape.
        bins: how many, equally wide, or their edges in ascending order.
        range: the lowest and the highest edge; default: the least and the greatest element.
        weights: of the shape of ``x``; what is added up in the place of ones.
        density: divide by the sum and by the width of each bin.

    Returns:
        The counts (n,), int64, or floats where there are weights or a density, and the edges (n + 1,).

    Raises:
        GraphError: no bin, edges of more than one axis, or weights of another shape.

    Example:
        >>> counts, edges = sg.histogram([1.0, 2.0, 1.0, 5.0], bins=4)
        >>> sg.Session().run([counts, edges])
        [array([2, 1, 0, 1]), array([1., 2., 3., 4., 5.], dtype=float32)]
    """
    o = FUNCTIONS
    (tensor,) = accepted("histogram", FLOAT, x)
    (values,) = widened([o.reshape(tensor, (-1,))])
    if isinstance(bins, int | np.integer):
        edges, bin_ = _uniform(values, integer(bins, "histogram: bins", 1), range)
    else:
        (edges,) = widened([lift(bins)])
        if edges.ndim != 1:
            raise GraphError(f"histogram: expected edges of one axis, actual {edges.type}")
        bin_ = o.searchsorted(edges, values, side="right") - 1
        bin_ = o.where(o.equal(values, edges[-1]), _last_place(edges.shape[0], int64) - 1, bin_)
    size = edges.shape[0]
    if not isinstance(size, int) or size < 2:
        raise GraphError(f"histogram: expected two edges or more, whose number is known, actual {edges.type}")
    bin_ = o.where(o.isnan(values), -1, bin_)
    counted = None if weights is None else o.reshape(weights, (-1,))
    counts = bincount(bin_, counted, length=size - 1)
    if density:
        widths = o.diff(edges)
        counts = o.astype(counts, widths.dtype) / widths / o.astype(o.sum(counts), widths.dtype)
    rounded = [o.astype(y, tensor.dtype) if is_short_float(tensor.dtype) else y for y in (counts, edges)]
    return (rounded[0] if density else counts), rounded[1]


def _uniform(values: Tensor, bins: int, range: tuple[float, float] | None) -> tuple[Tensor, Tensor]:
    """The edges of equally wide bins, and the bin of each value: by its distance from the lowest edge, put right by a
    comparison with the edges, which are rounded."""
    o = FUNCTIONS
    ends = (o.min(values), o.max(values)) if range is None else range
    low, high = (o.astype(end, values.dtype) for end in ends)
    flat = o.equal(low, high)
    low, high = o.where(flat, low - 0.5, low), o.where(flat, high + 0.5, high)
    steps = o.astype(np.arange(bins + 1), values.dtype)
    edges = o.where(o.equal(steps, bins), high, low + steps * ((high - low) / bins))
    guess = o.clip(o.floor((values - low) / (high - low) * bins), 0, bins - 1)
    found = o.astype(o.where(o.isnan(guess), 0, guess), int64)
    found = o.where(o.less(values, o.gather(edges, found)), found - 1, found)
    above = o.greater_equal(values, o.take(edges, found + 1, axis=0, bounds="clip"))
    found = o.where(o.logical_and(above, o.not_equal(found, bins - 1)), found + 1, found)
    return edges, o.where(o.logical_or(o.less(values, low), o.greater(values, high)), -1, found)


# -- moments --------------------------------------------------------------------------------------------------------


@public
def average(x: TensorLike, axis: Axis = None, weights: TensorLike | None = None, *, keepdims: bool = False) -> Tensor:
    """The mean along ``axis``, weighted where there are ``weights``, which broadcast against ``x``; of one axis for one
    ``axis`` they lie along it.

    Example:
        >>> sg.Session().run(sg.average([1.0, 2.0, 4.0], weights=[1.0, 1.0, 2.0]))
        array(2.75, dtype=float32)
    """
    o = FUNCTIONS
    if weights is None:
        return o.mean(x, axis=axis, keepdims=keepdims)
    tensor, factors = accepted("average", FLOAT, x, weights)
    if factors.ndim == 1 and isinstance(axis, int | np.integer):
        place = normalize_axis(axis, tensor.ndim, "average")
        factors = o.reshape(factors, tuple(-1 if i == place else 1 for i in range(tensor.ndim)))

    def compose(tensor: Tensor, factors: Tensor) -> Tensor:
        factors = o.broadcast_to(factors, tensor.shape)
        total = o.sum(factors, axis=axis, keepdims=keepdims)
        return o.sum(tensor * factors, axis=axis, keepdims=keepdims) / total

    return rounded_once(compose, tensor, factors)


@public
def cov(x: TensorLike, y: TensorLike | None = None, rowvar: bool = True, *, ddof: int = 1) -> Tensor:
    """The covariances of variables: of the rows of ``x``, or its columns without ``rowvar``, and then of those of
    ``y``.

    Args:
        x: (variables, observations) or (observations,).
        y: further variables of as many observations.
        ddof: the number that is subtracted from that of the observations to give the divisor.

    Returns:
        (variables, variables), or () for one variable.

    Raises:
        GraphError: more than two axes.

    Example:
        >>> sg.Session().run(sg.cov([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
        array([[ 1., -1.], [-1.,  1.]], dtype=float32)
    """
    parts = accepted("cov", FLOAT, *([x] if y is None else [x, y]))
    return rounded_once(lambda *parts: _covariance("cov", parts, rowvar, ddof), *parts)


def _covariance(what: str, parts: Sequence[Tensor], rowvar: bool, ddof: int) -> Tensor:
    o = FUNCTIONS
    rows = []
    for part in parts:
        if part.ndim not in (1, 2):
            raise GraphError(f"{what}: expected one axis or two, actual {part.name!r} {part.type}")
        rows.append(o.expand_dims(part, 0) if part.ndim == 1 else part if rowvar else o.matrix_transpose(part))
    table = o.concat(rows, axis=0)
    centred = table - o.mean(table, axis=1, keepdims=True)
    size = table.shape[1]
    number = size if isinstance(size, int) else size_value(size, table.dtype)
    products = o.matmul(centred, o.matrix_transpose(centred)) / o.astype(number - ddof, table.dtype)
    return o.reshape(products, ()) if products.shape == (1, 1) else products


@public
def corrcoef(x: TensorLike, y: TensorLike | None = None, rowvar: bool = True) -> Tensor:
    """The correlations of variables, as ``sg.cov`` takes them: covariances over the roots of both variances.

    Example:
        >>> sg.Session().run(sg.corrcoef([0.0, 0.0, 2.0, 2.0], [0.0, 2.0, 0.0, 2.0]))
        array([[1., 0.], [0., 1.]], dtype=float32)
    """
    o, parts = FUNCTIONS, accepted("corrcoef", FLOAT, *([x] if y is None else [x, y]))

    def compose(*parts: Tensor) -> Tensor:
        products = _covariance("corrcoef", parts, rowvar, 0)
        if products.ndim == 0:
            return products / products
        roots = o.sqrt(FUNCTIONS.diagonal(products))
        return o.clip(products / o.expand_dims(roots, 1) / o.expand_dims(roots, 0), -1.0, 1.0)

    return rounded_once(compose, *parts)
