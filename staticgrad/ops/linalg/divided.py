"""Divided differences of functions of numbers, also where these are equal or nearly so.

    f[a, b]       (f(b) − f(a))/(b − a), f'(a) where they are equal
    f[a, b, c]    (f[b, c] − f[a, b])/(c − a), symmetric in all three, f''(a)/2 where they are equal

A quotient loses digits where numbers are near each other. There the differences are means of the derivatives, by
Gauss's rule (the formula of C. Hermite and A. Genocchi, in C. de Boor, Divided differences, Surveys in Approximation
Theory 1, 2005):

    f[a, b]       ∫ f'(a + u(b − a)) du
    f[a, b, c]    ∫∫ f''(a + u(b − a) + u t(c − b)) u dt du           u and t in [0, 1]

Of the two that one is taken whose error is estimated to be less: of the quotient by the rounding of what is subtracted,
of the integral by its distance from one with fewer points. So no distance need be chosen, which would depend on f.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import Array, Namespace

Function: TypeAlias = Callable[[Tensor], Tensor]  # of each element by itself
Difference: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # f[a, b]
POINTS = (4, 6)  # of Gauss's rules in one dimension, of which the second gives the value
POINTS_IN_TWO = (3, 4)  # along each axis; a pair of axes has the square


def _gauss(number: int) -> tuple[Array, Array]:
    """Points in [0, 1] and weights that add up to 1."""
    points, weights = np.polynomial.legendre.leggauss(number)
    return (points + 1) / 2, weights / 2


def _triangle(number: int) -> tuple[Array, Array, Array]:
    """Points (u, u·t), and weights that add up to 1/2."""
    points, weights = _gauss(number)
    u, t = (x.ravel() for x in np.meshgrid(points, points, indexing="ij"))
    return u, u * t, np.outer(weights * points, weights).ravel()


def _rules(columns: list[tuple[Array, ...]]) -> tuple[Array, ...]:
    """The points of two rules in a row, weights (2, points) with one row for each rule."""
    *places, weights = zip(*columns, strict=True)
    rows = np.zeros((2, sum(len(w) for w in weights)))
    rows[0, : len(weights[0])], rows[1, len(weights[0]) :] = weights
    return *(np.concatenate(x) for x in places), rows


def _better(o: Namespace, quotient: tuple[Tensor, Tensor], values: Tensor, weights: Array, equal: Tensor) -> Tensor:
    """The quotient (with its error) or the mean of ``values``, at points along the last axis."""

    def mean(row: Array) -> Tensor:
        return o.sum(o.multiply(values, o.constant(row, dtype=values.dtype)), axis=-1)

    rough, fine = (mean(row) for row in weights)
    near = o.logical_or(equal, o.less_equal(o.abs(o.subtract(fine, rough)), quotient[1]))
    return o.where(near, fine, quotient[0])


def _quotient(o: Namespace, x: Tensor, y: Tensor, distance: Tensor) -> tuple[Tensor, Tensor]:
    """(y − x)/distance, and about what rounding makes of it; 0 where the distance is 0."""
    over = o.divide(1, o.where(o.equal(distance, 0), 1, distance))
    rounding = o.multiply(o.add(o.abs(x), o.abs(y)), float(np.finfo(x.dtype).eps))
    return o.multiply(o.subtract(y, x), over), o.abs(o.multiply(rounding, over))


def difference(o: Namespace, f: Function, slope: Function, a: Tensor, b: Tensor) -> Tensor:
    """f[a, b], of a function and its derivative."""
    distance = o.subtract(b, a)
    places, weights = _rules([_gauss(number) for number in POINTS])
    points = _along(o, a, (distance, places))
    equal = o.equal(distance, 0)
    return _better(o, _quotient(o, f(a), f(b), distance), slope(points), weights, equal)


def second_difference(o: Namespace, first: Difference, curvature: Function, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """f[a, b, c], of a function's first divided differences and its second derivative."""
    low, high = o.minimum(o.minimum(a, b), c), o.maximum(o.maximum(a, b), c)
    middle = o.maximum(o.minimum(a, b), o.minimum(o.maximum(a, b), c))
    whole = o.subtract(high, low)
    *places, weights = _rules([_triangle(number) for number in POINTS_IN_TWO])
    steps = (o.subtract(middle, low), o.subtract(high, middle))
    points = _along(o, low, *zip(steps, places, strict=True))
    quotient = _quotient(o, first(low, middle), first(middle, high), whole)
    return _better(o, quotient, curvature(points), weights, o.equal(whole, 0))


def _along(o: Namespace, start: Tensor, *steps: tuple[Tensor, Any]) -> Tensor:
    """Points at ``start`` plus the steps times their places, along a new last axis."""
    points = o.expand_dims(start, -1)
    for step, places in steps:
        points = o.add(points, o.multiply(o.expand_dims(step, -1), o.constant(places, dtype=start.dtype)))
    return points
