"""Reductions for which NaN is a missing element, under NumPy's names: each is one without NaN's of what stands there.

Gradients by missing elements are 0.
"""

from __future__ import annotations

import math

from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import FUNCTIONS, public
from staticgrad.ops.declare import FLOAT, accepted
from staticgrad.ops.elementwise.copies import rounded_once
from staticgrad.ops.reductions import Axis


def _filled(x: Tensor, value: float) -> Tensor:
    return FUNCTIONS.where(FUNCTIONS.isnan(x), value, x)


def _number(x: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    """The number of elements along the axes that are not NaN, as floats."""
    there = FUNCTIONS.logical_not(FUNCTIONS.isnan(x))
    return FUNCTIONS.astype(FUNCTIONS.count_nonzero(there, axis=axis, keepdims=keepdims), x.dtype)


@public
def nansum(x: TensorLike, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The sum along ``axis`` (one, several, or None for all) of what is not NaN. Integers and bools are computed as
    float64.

    Example:
        >>> sg.Session().run(sg.nansum([1.0, sg.nan, 2.0]))
        array(3., dtype=float32)
    """
    (tensor,) = accepted("nansum", FLOAT, x)
    return rounded_once(lambda x: FUNCTIONS.sum(_filled(x, 0.0), axis=axis, keepdims=keepdims), tensor)


@public
def nanprod(x: TensorLike, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The product along ``axis`` (one, several, or None for all) of what is not NaN. Integers and bools are computed as
    float64.

    Example:
        >>> sg.Session().run(sg.nanprod([3.0, sg.nan, 2.0]))
        array(6., dtype=float32)
    """
    (tensor,) = accepted("nanprod", FLOAT, x)
    return rounded_once(lambda x: FUNCTIONS.prod(_filled(x, 1.0), axis=axis, keepdims=keepdims), tensor)


@public
def nanmean(x: TensorLike, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The mean along ``axis`` (one, several, or None for all) of what is not NaN; of nothing it is NaN. Integers and
    bools are computed as float64.

    Example:
        >>> sg.Session().run(sg.nanmean([1.0, sg.nan, 2.0]))
        array(1.5, dtype=float32)
    """
    (tensor,) = accepted("nanmean", FLOAT, x)
    return rounded_once(lambda x: _mean(x, axis, keepdims), tensor)


def _mean(x: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    return FUNCTIONS.sum(_filled(x, 0.0), axis=axis, keepdims=keepdims) / _number(x, axis, keepdims)


@public
def nanvar(x: TensorLike, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The variance along ``axis`` (one, several, or None for all) of what is not NaN. Integers and bools are computed
    as float64.

    Args:
        correction: the number that is subtracted from that of the elements to give the divisor; where that is not
            positive the result is NaN.

    Example:
        >>> sg.Session().run(sg.nanvar([1.0, sg.nan, 3.0]))
        array(1., dtype=float32)
    """
    (tensor,) = accepted("nanvar", FLOAT, x)
    return rounded_once(lambda x: _variance(x, axis, correction, keepdims), tensor)


def _variance(x: Tensor, axis: Axis, correction: float, keepdims: bool) -> Tensor:
    o = FUNCTIONS
    squares = o.square(_filled(x - _mean(x, axis, True), 0.0))
    divisor = _number(x, axis, keepdims) - correction
    return o.sum(squares, axis=axis, keepdims=keepdims) / o.where(o.greater(divisor, 0), divisor, math.nan)


@public
def nanstd(x: TensorLike, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The standard deviation along ``axis`` (one, several, or None for all) of what is not NaN, the root of
    ``sg.nanvar``.

    Example:
        >>> sg.Session().run(sg.nanstd([1.0, sg.nan, 3.0]))
        array(1., dtype=float32)
    """
    (tensor,) = accepted("nanstd", FLOAT, x)
    return rounded_once(lambda x: FUNCTIONS.sqrt(_variance(x, axis, correction, keepdims)), tensor)


def _extreme(name: str, x: TensorLike, axis: Axis, keepdims: bool, worst: float) -> Tensor:
    o = FUNCTIONS
    (tensor,) = accepted(name, FLOAT, x)

    def compose(x: Tensor) -> Tensor:
        found = getattr(o, name.removeprefix("nan"))(_filled(x, worst), axis=axis, keepdims=keepdims)
        return o.where(o.all(o.isnan(x), axis=axis, keepdims=keepdims), math.nan, found)

    return rounded_once(compose, tensor)


@public
def nanmax(x: TensorLike, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The largest along ``axis`` (one, several, or None for all) of what is not NaN; of nothing it is NaN. Integers and
    bools are computed as float64.

    Example:
        >>> sg.Session().run(sg.nanmax([1.0, sg.nan, 2.0]))
        array(2., dtype=float32)
    """
    return _extreme("nanmax", x, axis, keepdims, -math.inf)


@public
def nanmin(x: TensorLike, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The smallest along ``axis`` (one, several, or None for all) of what is not NaN; of nothing it is NaN. Integers
    and bools are computed as float64.

    Example:
        >>> sg.Session().run(sg.nanmin([1.0, sg.nan, 2.0]))
        array(1., dtype=float32)
    """
    return _extreme("nanmin", x, axis, keepdims, math.inf)
