"""Exponentials against their sum along an axis: ``softmax``, ``log_softmax``, ``logsumexp``.

Derivatives are closed forms: the softmax stands in all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.base.types import FLOATS, DTypeLike, normalize_axis
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import FUNCTIONS, Array, Case, Namespace, Op, Primal, Range, public, register
from staticgrad.ops.batch_rules import leading
from staticgrad.ops.declare import FLOAT, accepted, floating
from staticgrad.ops.moments import float_type
from staticgrad.ops.reductions import (
    Axis,
    ReduceAttributes,
    along_axes,
    kept_shape,
    reduce_cases,
    reduced,
    reduced_shape,
    reduced_size,
    spread,
)


@frozen
class AxisAttributes:
    """The axis along which an op works."""

    axis: int


# -- softmax ------------------------------------------------------------------------------------------------------


def shifted_exp(o: Namespace, x: Tensor, axis: int) -> tuple[Tensor, Tensor, Tensor]:
    """x - max, its exponential, and that one's sum along the axis, which stays with size 1.

    The maximum only keeps the exponential in range: the results do not depend on it, and no derivative is taken of it.
    An axis without elements has none.
    """
    shifted = o.subtract(x, o.max(o.stop_gradient(x), axis=axis, keepdims=True)) if x.shape[axis] != 0 else x
    e = o.exp(shifted)
    return shifted, e, o.sum(e, axis=axis, keepdims=True)


def _softmax_expand(o: Namespace, node: Primal[AxisAttributes]) -> Sequence[Tensor]:
    _, e, total = shifted_exp(o, node.inputs[0], node.attrs.axis)
    return [o.multiply(e, o.reciprocal(total))]  # one division a row; the sum is at least one


def _softmax_rule(o: Namespace, node: Primal[AxisAttributes], t: Tensor) -> Sequence[Tensor | None]:
    """diag(y) - y·yᵀ: symmetric, so the vjp is the jvp."""
    (y,) = node.outputs
    inner = o.sum(o.multiply(t, y), axis=node.attrs.axis, keepdims=True)
    return (o.multiply(y, o.subtract(t, inner)),)


def softmax_reference(x: Array, axis: int) -> Array:
    """exp(x) over its sum along an axis."""
    with np.errstate(invalid="ignore"):
        e = np.exp(x - np.max(x, axis=axis, keepdims=True, initial=-np.inf))
        return np.asarray(e / np.sum(e, axis=axis, keepdims=True))


def log_softmax_reference(x: Array, axis: int) -> Array:
    """The logarithm of the softmax, without the detour."""
    with np.errstate(invalid="ignore", divide="ignore"):
        shifted = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
        return np.asarray(shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True)))


def _log_softmax_expand(o: Namespace, node: Primal[AxisAttributes]) -> Sequence[Tensor]:
    shifted, _, total = shifted_exp(o, node.inputs[0], node.attrs.axis)
    return [o.subtract(shifted, o.log(total))]


def _log_softmax_vjp(o: Namespace, node: Primal[AxisAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    (y,) = node.outputs
    return (o.subtract(ct, o.multiply(o.exp(y), o.sum(ct, axis=node.attrs.axis, keepdims=True))),)


def _log_softmax_jvp(o: Namespace, node: Primal[AxisAttributes], dx: Tensor) -> Sequence[Tensor | None]:
    (y,) = node.outputs
    return (o.subtract(dx, o.sum(o.multiply(o.exp(y), dx), axis=node.attrs.axis, keepdims=True)),)


_ROW_CASES = tuple(
    Case((shape,), AxisAttributes(axis))
    for shape, axis in (((4, 7), 1), ((5,), 0), ((3, 0), 1), ((3, 4, 5), 1), ((2, 3, 17), 2), ((1, 1), 1), ((6, 33), 0))
)

SOFTMAX = register(
    Op(
        "softmax",
        "exp(x) / Σ exp(x) along an axis.",
        infer=lambda attrs, x: x,
        reference=lambda attrs, x: softmax_reference(x, attrs.axis),
        expand=_softmax_expand,
        vjp=_softmax_rule,
        jvp=_softmax_rule,
        dtypes=FLOATS,
        cases=_ROW_CASES,
    )
)

LOG_SOFTMAX = register(
    Op(
        "log_softmax",
        "x - log Σ exp(x) along an axis.",
        infer=lambda attrs, x: x,
        reference=lambda attrs, x: log_softmax_reference(x, attrs.axis),
        expand=_log_softmax_expand,
        vjp=_log_softmax_vjp,
        jvp=_log_softmax_jvp,
        dtypes=FLOATS,
        cases=_ROW_CASES,
    )
)


def _along(op: Op, input: TensorLike, dim: int) -> Tensor:
    """An op along one axis; a scalar is a row of one element, as in PyTorch."""
    x = floating(input, op.name)
    row = x if x.ndim else FUNCTIONS.reshape(x, (1,))
    y = row.graph.add(op, (row,), AxisAttributes(normalize_axis(dim, row.ndim, op.name))).outputs[0]
    return y if x.ndim else FUNCTIONS.reshape(y, ())


@public
def softmax(input: TensorLike, dim: int = -1, *, dtype: DTypeLike | None = None) -> Tensor:
    """exp(x) / Σ exp(x) along ``dim``, computed after subtracting the largest element; with ``dtype`` of the input in
    that dtype.

    Raises:
        GraphError: the input is not floating, or ``dim`` out of range.

    Example:
        >>> sg.Session().run(sg.nn.softmax([[0.0, 1.0], [1000.0, 1000.0]])).round(3)
        array([[0.269, 0.731],
               [0.5  , 0.5  ]], dtype=float32)
        >>> sg.Session().run(sg.nn.softmax([[0.0, 1.0], [0.0, -sg.inf]], dim=0)).round(3)
        array([[0.5, 1. ],
               [0.5, 0. ]], dtype=float32)
    """
    return _along(SOFTMAX, input if dtype is None else FUNCTIONS.astype(input, dtype), dim)


@public
def log_softmax(input: TensorLike, dim: int = -1, *, dtype: DTypeLike | None = None) -> Tensor:
    """log(softmax(x)) along ``dim``, accurate also where the softmax is tiny; with ``dtype`` of the input in that
    dtype.

    Raises:
        GraphError: the input is not floating, or ``dim`` out of range.

    Example:
        >>> sg.Session().run(sg.nn.log_softmax([0.0, 0.0, 100.0])).round(2)
        array([-100., -100.,    0.], dtype=float32)
    """
    return _along(LOG_SOFTMAX, input if dtype is None else FUNCTIONS.astype(input, dtype), dim)


# -- log-sum-exp --------------------------------------------------------------------------------------------------


def _logsumexp_reference(attrs: ReduceAttributes, x: Array) -> Array:
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        for axis in attrs.axes:
            wide = np.logaddexp.reduce(wide, axis=axis, keepdims=True)
    return np.asarray(wide.reshape(reduced_shape(x.shape, attrs.axes, attrs.keepdims))).astype(x.dtype)


def _expand_logsumexp(o: Namespace, node: Primal[ReduceAttributes]) -> Sequence[Tensor]:
    x, attrs = node.inputs[0], node.attrs
    if reduced_size(x.shape, attrs.axes) == 0:
        y = o.full(kept_shape(x.shape, attrs.axes), -math.inf, dtype=x.dtype)
    else:
        largest = o.max(x, axis=attrs.axes, keepdims=True)
        shift = o.where(o.isfinite(largest), largest, 0)
        y = o.log(o.sum(o.exp(x - shift), axis=attrs.axes, keepdims=True)) + shift
    return [y if attrs.keepdims else o.reshape(y, reduced_shape(x.shape, attrs.axes, attrs.keepdims))]


def _softmax_terms(o: Namespace, node: Primal[ReduceAttributes]) -> Tensor:
    """exp(x - y): 1 for an infinite x that decides, 0 where every x is -infinity."""
    x = node.inputs[0]
    y = spread(o, node.outputs[0], x, node.attrs.axes)
    shift = o.where(o.equal(y, -math.inf), 0, y)
    decides = o.logical_and(o.equal(x, shift), o.isinf(shift))
    return o.exp(o.where(decides, 0, x - shift))


def _vjp_logsumexp(o: Namespace, node: Primal[ReduceAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    return (o.multiply_no_nan(_softmax_terms(o, node), spread(o, ct, node.inputs[0], node.attrs.axes)),)


def _jvp_logsumexp(o: Namespace, node: Primal[ReduceAttributes], t: Tensor) -> Sequence[Tensor | None]:
    weighted = o.multiply_no_nan(_softmax_terms(o, node), t)
    return (o.sum(weighted, axis=node.attrs.axes, keepdims=node.attrs.keepdims),)


LOGSUMEXP = register(
    Op(
        "logsumexp",
        "log(sum(exp(x))) along axes, without overflow.",
        infer=float_type("logsumexp"),
        reference=_logsumexp_reference,
        expand=_expand_logsumexp,
        vjp=_vjp_logsumexp,
        jvp=_jvp_logsumexp,
        dtypes=FLOATS,
        cases=reduce_cases(Range(-6.0, 6.0), neutral=False),
        tolerance=2.0,
        batch=leading,
    )
)


@along_axes()
def logsumexp(x: TensorLike, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))) along ``axis``, without overflow; its gradient is the softmax, finite at infinities too.

    Of no elements it is -infinity.

    Example:
        >>> sg.Session().run(sg.logsumexp([[0.0, 0.0], [99.0, 99.0]], axis=1)).round(3)
        array([ 0.693, 99.693], dtype=float32)
    """
    return reduced(LOGSUMEXP, accepted("logsumexp", FLOAT, x)[0], axis, keepdims)
