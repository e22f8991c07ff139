"""Functions that are given at points: values between them, slopes at them, areas below them.

All are compositions; along an axis whose size feeds bind, as far as they need no size.
"""

from __future__ import annotations

from collections.abc import Sequence

from staticgrad.base.errors import GraphError
from staticgrad.base.types import integers, normalize_axis
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import FUNCTIONS, public
from staticgrad.ops.declare import FLOAT, accepted
from staticgrad.ops.elementwise.copies import rounded_once
from staticgrad.ops.views.slicing import bounds_within, slice_axis


@public
def interp(
    x: TensorLike,
    xp: TensorLike,
    fp: TensorLike,
    left: TensorLike | None = None,
    right: TensorLike | None = None,
    period: float | None = None,
) -> Tensor:
    """The piecewise linear function through the points (xp, fp), at ``x``.

    Args:
        x: of any shape.
        xp: (n,), in ascending order, or with ``period`` in any order.
        fp: (n,).
        left, right: the values below xp[0] and above xp[-1]; default: fp[0] and fp[-1].
        period: the function repeats itself after so much; ``left`` and ``right`` are without effect.

    Returns:
        The shape of ``x``.

    Raises:
        GraphError: points of more than one axis, or no point.

    Example:
        >>> sg.Session().run(sg.interp([0.5, 2.5, 9.0], [1.0, 2.0, 3.0], [10.0, 20.0, 40.0]))
        array([10., 30., 40.], dtype=float32)
    """
    o = FUNCTIONS
    given = accepted("interp", FLOAT, x, xp, fp, *(end for end in (left, right) if end is not None))
    if given[1].ndim != 1 or given[2].ndim != 1 or 0 in (given[1].shape[0], given[2].shape[0]):
        raise GraphError(f"interp: expected points (n,) and values (n,), actual {given[1].type} and {given[2].type}")

    def compose(x: Tensor, xp: Tensor, fp: Tensor, *ends: Tensor) -> Tensor:
        if period is not None:
            x, xp = o.remainder(x, period), o.remainder(xp, period)
            order = o.argsort(xp)
            xp, fp = o.gather(xp, order), o.gather(fp, order)
            xp = o.concat([xp[-1:] - period, xp, xp[:1] + period])
            fp = o.concat([fp[-1:], fp, fp[:1]])
        above = o.searchsorted(xp, x, side="right")
        x0, x1 = (o.take(xp, place, axis=0, bounds="clip") for place in (above - 1, above))
        f0, f1 = (o.take(fp, place, axis=0, bounds="clip") for place in (above - 1, above))
        flat = o.equal(x0, x1)
        part = o.where(flat, 0, (x - x0) / o.where(flat, 1, x1 - x0))
        y = o.where(o.isnan(x), x, f0 + o.where(flat, 0, part * (f1 - f0)))
        rest = list(ends)
        if period is not None:
            return y
        y = y if left is None else o.where(o.less(x, xp[0]), rest.pop(0), y)
        return y if right is None else o.where(o.greater(x, xp[-1]), rest.pop(0), y)

    return rounded_once(compose, *given)


@public
def gradient(
    f: TensorLike, *spacing: TensorLike, axis: int | Sequence[int] | None = None, edge_order: int = 1
) -> Tensor | list[Tensor]:
    """The slopes of a function that is given at points of a grid: central differences inside, one-sided ones at the
    edges. Derivatives of what a program computes are ``sg.gradients``.

    Args:
        f: at least ``edge_order`` + 1 points along each axis.
        spacing: nothing (1), a number for all axes, or for each axis a number or the coordinates (n,) of its points.
        axis: one axis, several, or None for all.
        edge_order: 1 or 2, the order of the differences at the edges.

    Returns:
        A tensor of the shape of ``f``; a list of one for each axis where there are several.

    Raises:
        GraphError: too few points, another number of spacings, another order, a size that is not known.

    Example:
        >>> sg.Session().run(sg.gradient([1.0, 2.0, 4.0, 7.0], 0.5))
        array([2., 3., 5., 6.], dtype=float32)
    """
    (tensor,) = accepted("gradient", FLOAT, f)
    axes = range(tensor.ndim) if axis is None else integers(axis, "gradient: axis")
    places = [normalize_axis(one, tensor.ndim, "gradient") for one in axes]
    steps = list(spacing) * (len(places) if len(spacing) == 1 else 1) or [1.0] * len(places)
    if len(steps) != len(places) or edge_order not in (1, 2):
        raise GraphError(
            f"gradient: expected {len(places)} spacings and edge_order 1 or 2, actual {len(steps)} and {edge_order!r}"
        )
    made = [_slopes(tensor, place, step, edge_order) for place, step in zip(places, steps, strict=True)]
    return made[0] if len(made) == 1 else made


def _slopes(f: Tensor, place: int, step: TensorLike, order: int) -> Tensor:
    size = f.shape[place]
    if not isinstance(size, int) or size <= order:
        raise GraphError(f"gradient: expected {order + 1} points or more along axis {place}, actual {f.type}")
    f, distance = accepted("gradient", FLOAT, f, step)
    if distance.ndim > 1 or (distance.ndim == 1 and distance.shape[0] != size):
        raise GraphError(
            f"gradient: expected a number or ({size},) coordinates of axis {place}, actual {distance.type}"
        )
    return rounded_once(lambda f, distance: _differences(f, place, distance, order), f, distance)


def _differences(f: Tensor, place: int, distance: Tensor, order: int) -> Tensor:
    o, size = FUNCTIONS, f.shape[place]
    assert isinstance(size, int)
    steps = o.diff(distance) if distance.ndim else o.broadcast_to(distance, (size - 1,))
    line = [1] * f.ndim

    def at(start: int, stop: int) -> Tensor:
        return slice_axis(f, place, start, stop)

    def step(start: int, stop: int) -> Tensor:
        line[place] = stop - start
        return o.reshape(steps[start:stop], tuple(line))

    def edge(first: int, inner: int, h0: Tensor, h1: Tensor) -> Tensor:
        """By three points that begin at an edge; backwards both distances are negative."""
        y0, y1, y2 = (at(i, i + 1) for i in (first, first + inner, first + 2 * inner))
        return -(2 * h0 + h1) / (h0 * (h0 + h1)) * y0 + (h0 + h1) / (h0 * h1) * y1 - h0 / (h1 * (h0 + h1)) * y2

    first, last = step(0, 1), step(size - 2, size - 1)
    if order == 1:
        begin, end = (at(1, 2) - at(0, 1)) / first, (at(size - 1, size) - at(size - 2, size - 1)) / last
    else:
        begin = edge(0, 1, first, step(1, 2))
        end = edge(size - 1, -1, -last, -step(size - 3, size - 2))
    parts = [begin, end]
    if size > 2:
        h0, h1 = step(0, size - 2), step(1, size - 1)
        low, middle, high = at(0, size - 2), at(1, size - 1), at(2, size)
        if distance.ndim == 0:
            inside = (high - low) / (2 * distance)
        else:
            inside = (h0 * h0 * high + (h1 * h1 - h0 * h0) * middle - h1 * h1 * low) / (h0 * h1 * (h0 + h1))
        parts.insert(1, inside)
    return o.concat(parts, axis=place)


@public
def trapezoid(y: TensorLike, x: TensorLike | None = None, dx: float = 1.0, axis: int = -1) -> Tensor:
    """The integral along ``axis`` by the trapezoidal rule, of points at ``x``, or ``dx`` apart.

    Args:
        x: the coordinates, of the shape of ``y`` or (n,).

    Raises:
        GraphError: a tensor without axes.

    Example:
        >>> sg.Session().run(sg.trapezoid([1.0, 2.0, 3.0], [0.0, 1.0, 3.0]))
        array(6.5, dtype=float32)
    """
    o = FUNCTIONS
    given = accepted("trapezoid", FLOAT, *([y] if x is None else [y, x]))
    place = normalize_axis(axis, given[0].ndim, "trapezoid")

    def compose(y: Tensor, *points: Tensor) -> Tensor:
        size = y.shape[place]
        low = slice_axis(y, place, *bounds_within(None, -1, 1, size))
        high = slice_axis(y, place, *bounds_within(1, None, 1, size))
        middles = (low + high) * 0.5
        if not points:
            return o.sum(middles, axis=place) * dx
        (at,) = points
        steps = o.diff(at, axis=place if at.ndim == y.ndim else 0)
        shape = (*(1 for _ in y.shape[:place]), -1, *(1 for _ in y.shape[place + 1 :]))
        return o.sum(middles * (steps if at.ndim == y.ndim else o.reshape(steps, shape)), axis=place)

    return rounded_once(compose, *given)
