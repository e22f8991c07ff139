"""Batch norm: each channel over the batch, whose running statistics a run in training updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.extents import is_exactly
from staticgrad.base.frozen import frozen
from staticgrad.base.types import FLOATS, TensorType, number, product
from staticgrad.graph.graph import Node, Tensor
from staticgrad.graph.lifting import TensorLike, lift_all
from staticgrad.graph.optable import FUNCTIONS, REAL, Array, Case, Namespace, Op, Primal, Range, public, register
from staticgrad.graph.scopes import control_dependencies, no_grad
from staticgrad.ops.elementwise.copies import widened
from staticgrad.ops.neural.normalisation import (
    affine,
    affine_reference,
    centered,
    per_channel_type,
    standardize_reference,
    with_parameters,
)
from staticgrad.ops.reductions import count
from staticgrad.ops.sources import VARIABLE


@frozen
class BatchNormAttributes:
    """The number that is added to the variance, and which of weight and bias follow."""

    eps: float
    weight: bool
    bias: bool


def _channel_axes(ndim: int) -> tuple[int, ...]:
    return (0, *range(2, ndim))


def _by_channel(o: Namespace, parameter: Tensor, ndim: int) -> Tensor:
    return o.reshape(parameter, (1, parameter.shape[0], *(1 for _ in range(ndim - 2))))


def _batch_norm_expand(o: Namespace, node: Primal[BatchNormAttributes]) -> Sequence[Tensor]:
    x, *parameters = node.inputs
    y = o.standardize(x, _channel_axes(x.ndim), node.attrs.eps)
    return [affine(o, y, [_by_channel(o, p, x.ndim) for p in parameters], node.attrs.weight, node.attrs.bias)]


def _batch_norm_reference(attrs: BatchNormAttributes, x: Array, *parameters: Array) -> Array:
    y = standardize_reference(x, _channel_axes(x.ndim), attrs.eps)
    shape = (-1, *(1 for _ in x.shape[2:]))
    return affine_reference(y, [p.reshape(shape) for p in parameters], attrs.weight, attrs.bias)


def _batch_norm_inference_expand(o: Namespace, node: Primal[BatchNormAttributes]) -> Sequence[Tensor]:
    x, *parameters = node.inputs
    mean, variance, *affine = (_by_channel(o, p, x.ndim) for p in parameters)
    scale = o.rsqrt(o.add(variance, node.attrs.eps))
    if node.attrs.weight:
        scale = o.multiply(scale, affine.pop(0))
    y = o.multiply(o.subtract(x, mean), scale)
    return [o.add(y, affine.pop(0)) if node.attrs.bias else y]


def _batch_norm_inference_reference(attrs: BatchNormAttributes, x: Array, *parameters: Array) -> Array:
    shape = (-1, *(1 for _ in x.shape[2:]))
    mean, variance, *affine = (p.reshape(shape) for p in parameters)
    y = (x - mean) / np.sqrt(variance + np.asarray(attrs.eps, x.dtype))
    return affine_reference(y, affine, attrs.weight, attrs.bias)


def _training_type(attrs: BatchNormAttributes, x: TensorType, *parameters: TensorType) -> TensorType:
    y = per_channel_type("batch_norm")(attrs, x, *parameters)
    if is_exactly(product(tuple(x.shape[axis] for axis in _channel_axes(x.ndim))), 1):
        raise GraphError(f"batch_norm: expected more than one value for each channel when training, actual {x}")
    return y


BATCH_NORM = register(
    Op(
        "batch_norm",
        "Mean 0 and variance 1 of each channel over the batch and all places, then weight and bias.",
        infer=_training_type,
        reference=_batch_norm_reference,
        expand=_batch_norm_expand,
        dtypes=FLOATS,
        cases=(
            Case(((5, 3, 2, 2), (3,), (3,)), BatchNormAttributes(1e-5, True, True)),
            Case(((6, 4),), BatchNormAttributes(1e-5, False, False)),
            Case(((4, 2, 7), (2,)), BatchNormAttributes(1e-2, False, True)),
        ),
        grad_name="NativeBatchNorm",
        tolerance=4.0,
    )
)

_POSITIVE = Range(0.2, 3.0)

BATCH_NORM_INFERENCE = register(
    Op(
        "batch_norm_inference",
        "Batch norm with a given mean and variance by channel.",
        infer=per_channel_type("batch_norm"),
        reference=_batch_norm_inference_reference,
        expand=_batch_norm_inference_expand,
        dtypes=FLOATS,
        cases=(
            Case(
                ((5, 3, 2, 2), (3,), (3,), (3,), (3,)),
                BatchNormAttributes(1e-5, True, True),
                (REAL, REAL, _POSITIVE, REAL, REAL),
            ),
            Case(((6, 4), (4,), (4,)), BatchNormAttributes(1e-5, False, False), (REAL, REAL, _POSITIVE)),
        ),
        grad_name="NativeBatchNorm",
        tolerance=4.0,
    )
)


def is_variable(value: object) -> TypeGuard[Tensor]:
    """True if a value is the tensor of a variable, so that it can be assigned to."""
    return isinstance(value, Tensor) and value.op.op is VARIABLE


def _update(variable: Tensor, statistic: Tensor, momentum: float | Tensor, n: float | Tensor) -> Node:
    o = FUNCTIONS
    (before,) = widened([o.latest_value(variable)])
    new = o.add(o.multiply(before, 1 - momentum), o.multiply(o.astype(statistic, before.dtype), momentum))
    if isinstance(n, Tensor):
        new = o.where(o.greater(n, 0), new, before)
    return o.assign(variable, o.astype(new, variable.dtype))


def _running_updates(
    x: Tensor, running_mean: TensorLike | None, running_var: TensorLike | None, momentum: float | Tensor
) -> list[Node]:
    """The assignments of running statistics: (1 - momentum)·old + momentum·new, the variance with n / (n - 1).
    No elements leave them as they are."""
    o = FUNCTIONS
    axes = _channel_axes(x.ndim)
    nodes: list[Node] = []
    with no_grad():
        (x,) = widened([x])
        n = count(o, x, axes)
        if not isinstance(n, Tensor) and n == 0:
            return nodes
        mean, _, variance = centered(o, x, axes)
        if is_variable(running_mean):
            nodes.append(_update(running_mean, o.reshape(mean, running_mean.shape), momentum, n))
        if is_variable(running_var):
            unbiased = o.multiply(o.reshape(variance, running_var.shape), n / (n - 1.0))
            nodes.append(_update(running_var, unbiased, momentum, n))
    return nodes


@public
def batch_norm(
    input: TensorLike,
    running_mean: TensorLike | None,
    running_var: TensorLike | None,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Batch normalisation (Ioffe and Szegedy 2015).

    With ``training`` the statistics are the batch's own. Where ``running_mean`` and ``running_var`` are variables, a
    run that computes the result also updates them, once for each call of this function in it: (1 - momentum)·old +
    momentum·new, the variance unbiased.

    Args:
        input: (N, C, …).
        running_mean: (C,); None or any tensor when training.
        running_var: (C,); likewise.
        weight: (C,) or None.
        bias: (C,) or None.

    Raises:
        GraphError: shapes that do not agree, or no statistics where they are needed.

    Example:
        >>> x = sg.constant([[1.0, 10.0], [3.0, 30.0]])
        >>> sg.Session().run(sg.nn.batch_norm(x, None, None, training=True)).round(2)
        array([[-1., -1.],
               [ 1.,  1.]], dtype=float32)
        >>> mean, var = sg.Variable([0.0, 0.0], trainable=False), sg.Variable([1.0, 1.0], trainable=False)
        >>> sess = sg.Session()
        >>> _ = sess.run(sg.nn.batch_norm(x, mean, var, training=True, momentum=0.5))
        >>> sess.run([mean, var])
        [array([ 1., 10.], dtype=float32), array([  1.5, 100.5], dtype=float32)]
    """
    o, what = FUNCTIONS, "batch_norm"
    x, *parameters = with_parameters(what, input, weight, bias)
    attrs = BatchNormAttributes(number(eps, f"{what}: eps"), weight is not None, bias is not None)
    if not isinstance(momentum, Tensor):
        momentum = number(momentum, f"{what}: momentum")
    if not training:
        if running_mean is None or running_var is None:
            raise GraphError(f"{what}: expected running_mean and running_var, unless training")
        operands = lift_all((x, running_mean, running_var, *parameters), what=what)
        return x.graph.add(BATCH_NORM_INFERENCE, operands, attrs).outputs[0]
    _training_type(attrs, x.type, *(p.type for p in parameters))
    for statistic in (running_mean, running_var):
        if isinstance(statistic, Tensor):
            per_channel_type(what)(attrs, x.type, statistic.type)
    with x.graph:
        updates = _running_updates(x, running_mean, running_var, momentum)
        y = x.graph.add(BATCH_NORM, (x, *parameters), attrs).outputs[0]
        if not updates:
            return y
        with control_dependencies(updates):
            return o.identity(y)
