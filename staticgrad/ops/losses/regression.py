"""Losses of numbers: squared and absolute differences, and Huber's, which is both."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import number
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import FUNCTIONS, Array, Namespace, Op, Range, public
from staticgrad.ops.declare import shown_as
from staticgrad.ops.elementwise.copies import rounded_once
from staticgrad.ops.losses.reduction import check_reduction, declare_loss, elementwise_loss, loss_operands, reduced


@frozen
class LossAttributes:
    """The reduction of rows to a loss."""

    reduction: str


@frozen
class ThresholdLossAttributes:
    """The reduction of rows to a loss, and where its quadratic part ends."""

    reduction: str
    threshold: float


_EACH = tuple(LossAttributes(reduction) for reduction in ("mean", "sum", "none"))
_THRESHOLDS = tuple(ThresholdLossAttributes(r, t) for r, t in (("mean", 1.0), ("sum", 0.5), ("none", 2.0)))


def _square_rows(o: Namespace, attrs: LossAttributes, x: Tensor, t: Tensor) -> Tensor:
    return o.square(o.subtract(x, t))


def _huber_rows(o: Namespace, attrs: ThresholdLossAttributes, x: Tensor, t: Tensor) -> Tensor:
    delta = attrs.threshold
    difference = o.subtract(x, t)
    distance = o.abs(difference)
    quadratic = o.multiply(o.square(difference), 0.5)  # not of the distance, which has a kink at 0
    return o.where(o.less(distance, delta), quadratic, o.multiply(o.subtract(distance, 0.5 * delta), delta))


def _huber_reference(attrs: ThresholdLossAttributes, x: Array, t: Array) -> Array:
    distance, delta = np.abs(x - t), attrs.threshold
    return np.asarray(np.where(distance < delta, 0.5 * distance**2, delta * (distance - 0.5 * delta)))


MSE_LOSS = elementwise_loss(
    "mse_loss", "The squared difference.", _square_rows, lambda attrs, x, t: (x - t) ** 2, _EACH
)
L1_LOSS = elementwise_loss(
    "l1_loss",
    "The absolute difference.",
    lambda o, attrs, x, t: o.abs(o.subtract(x, t)),
    lambda attrs, x, t: np.abs(x - t),
    _EACH,
    lambda attrs: (Range(0.5, 2.0), Range(-2.0, 0.2)),
    grad_name=lambda node: {"mean": "MeanBackward0", "sum": "SumBackward0"}.get(node.attrs.reduction, "AbsBackward0"),
)
HUBER_LOSS = elementwise_loss(
    "huber_loss",
    "Quadratic up to a threshold, then linear (Huber 1964).",
    _huber_rows,
    _huber_reference,
    _THRESHOLDS,
    lambda attrs: (Range(0.0, 0.2), Range(-3.0, 3.0, (0.1 - attrs.threshold, 0.1 + attrs.threshold), margin=0.25)),
)


def _weighted(
    op: Op,
    rows: LossAttributes | ThresholdLossAttributes,
    operands: Sequence[Tensor],
    reduction: str,
    *,
    of_weights: bool,
) -> Tensor:
    """Rows, which the attributes ``rows`` leave as they are, times their weights, reduced; the mean is over the
    weights' sum or the rows' number."""
    o, what = FUNCTIONS, op.name
    if operands[2].shape != operands[0].shape:
        raise GraphError(f"{what}: expected weights of the input's type {operands[0].type}, actual {operands[2].type}")

    def compose(x: Tensor, t: Tensor, w: Tensor) -> Tensor:
        each = o.multiply(declare_loss(op, rows, (x, t)), w)
        if of_weights and reduction == "mean":
            return o.divide(o.sum(each), o.sum(w))
        return reduced(o, each, reduction)

    return rounded_once(compose, *operands)


def _loss_of_differences(
    op: Op, input: TensorLike, target: TensorLike, reduction: str, weight: TensorLike | None
) -> Tensor:
    """A loss without further attributes."""
    attrs = LossAttributes(check_reduction(reduction, op.name))
    if weight is None:
        return declare_loss(op, attrs, loss_operands(op.name, input, target))
    operands = loss_operands(op.name, input, target, weight)
    return _weighted(op, LossAttributes("none"), operands, reduction, of_weights=True)


@public
def mse_loss(
    input: TensorLike, target: TensorLike, reduction: str = "mean", weight: TensorLike | None = None
) -> Tensor:
    """(input - target)², broadcast; ``reduction``: ``"mean"``, ``"sum"`` or ``"none"``.

    With ``weight``, of their shape, each is multiplied by its own, and the mean is over the sum of the weights.

    Raises:
        GraphError: shapes that do not broadcast, or an unknown reduction.

    Example:
        >>> x = sg.constant([1.0, 2.0, 4.0])
        >>> sg.Session().run(sg.nn.mse_loss(x, [1.0, 2.0, 1.0]))
        array(3., dtype=float32)
        >>> sg.Session().run(sg.nn.mse_loss(x, [1.0, 2.0, 1.0], reduction="none"))
        array([0., 0., 9.], dtype=float32)
    """
    return _loss_of_differences(MSE_LOSS, input, target, reduction, weight)


@public
def l1_loss(input: TensorLike, target: TensorLike, reduction: str = "mean", weight: TensorLike | None = None) -> Tensor:
    """``|input - target|``, broadcast; ``reduction``: ``"mean"``, ``"sum"`` or ``"none"``.

    With ``weight``, of their shape, each is multiplied by its own, and the mean is over the sum of the weights.

    Raises:
        GraphError: shapes that do not broadcast, or an unknown reduction.

    Example:
        >>> x = sg.constant([1.0, 2.0, 4.0])
        >>> sg.Session().run(sg.nn.l1_loss(x, [1.0, 2.0, 1.0], reduction="sum"))
        array(3., dtype=float32)
    """
    return _loss_of_differences(L1_LOSS, input, target, reduction, weight)


@public
def huber_loss(
    input: TensorLike,
    target: TensorLike,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: TensorLike | None = None,
) -> Tensor:
    """``½d²`` where ``|d| < delta``, else ``delta·(|d| - ½delta)``, for d = input - target (Huber 1964).

    With ``weight``, of their shape, each is multiplied by its own; the mean is over their number.

    Raises:
        GraphError: shapes that do not broadcast, an unknown reduction, a delta that is not positive.

    Example:
        >>> x = sg.constant([0.5, 3.0])
        >>> sg.Session().run(sg.nn.huber_loss(x, sg.zeros(2), reduction="none"))
        array([0.125, 2.5  ], dtype=float32)
    """
    delta = number(delta, "huber_loss: delta")
    if not delta > 0:
        raise GraphError(f"huber_loss: delta={delta}: expected a positive number")
    attrs = ThresholdLossAttributes(check_reduction(reduction, "huber_loss"), delta)
    if weight is None:
        return declare_loss(HUBER_LOSS, attrs, loss_operands("huber_loss", input, target))
    operands = loss_operands("huber_loss", input, target, weight)
    return _weighted(HUBER_LOSS, ThresholdLossAttributes("none", delta), operands, reduction, of_weights=False)


@public
@shown_as("SmoothL1LossBackward0")
def smooth_l1_loss(input: TensorLike, target: TensorLike, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """``½d²/beta`` where ``|d| < beta``, else ``|d| - ½beta``, for d = input - target: Huber's loss over beta.

    Raises:
        GraphError: shapes that do not broadcast, an unknown reduction, a negative beta.

    Example:
        >>> x = sg.constant([0.5, 3.0])
        >>> sg.Session().run(sg.nn.smooth_l1_loss(x, sg.zeros(2), reduction="none", beta=0.5))
        array([0.25, 2.75], dtype=float32)
    """
    beta = number(beta, "smooth_l1_loss: beta", 0.0)
    check_reduction(reduction, "smooth_l1_loss")
    if beta == 0:
        return l1_loss(input, target, reduction)
    attrs, operands = ThresholdLossAttributes(reduction, beta), loss_operands("smooth_l1_loss", input, target)
    return rounded_once(lambda *xs: FUNCTIONS.divide(declare_loss(HUBER_LOSS, attrs, xs), beta), *operands)
