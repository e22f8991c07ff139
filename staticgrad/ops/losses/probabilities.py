"""Losses of probabilities: binary cross-entropy, and the divergence of two distributions."""

from __future__ import annotations

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import FLOATS
from staticgrad.graph.graph import Node, Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import FUNCTIONS, REAL, Array, Case, Namespace, NoAttributes, Op, Range, public, register
from staticgrad.graph.scalar import ScalarBuilder, V
from staticgrad.ops.declare import FLOAT, declare, shown_as
from staticgrad.ops.elementwise.copies import rounded_once
from staticgrad.ops.elementwise.entry import NEGATE, binary_cases, elementwise, scaled
from staticgrad.ops.losses.reduction import (
    PROBABILITY,
    REDUCTIONS,
    check_reduction,
    declare_loss,
    elementwise_loss,
    elementwise_type,
    loss_operands,
    reduced,
    reduced_reference,
    weighted,
)
from staticgrad.ops.reductions import count

# -- binary cross-entropy -----------------------------------------------------------------------------------------


def _residual_scalar(b: ScalarBuilder[V], attrs: NoAttributes, x: V, t: V) -> V:
    one = b.const(1, x.dtype)
    decay = b.exp(b.neg(b.abs(x)))
    near = b.div(one, b.add(one, decay))  # σ(|x|)
    far = b.mul(decay, near)  # σ(-|x|)
    above = b.ge(x, b.const(0, x.dtype))
    missed = b.mul(b.sub(one, t), b.select(above, near, far))
    return b.sub(missed, b.mul(t, b.select(above, far, near)))


def _residual_reference(attrs: NoAttributes, x: Array, t: Array) -> Array:
    near = 1 / (1 + np.exp(-np.abs(x)))
    far = np.exp(-np.abs(x)) * near
    return np.asarray((1 - t) * np.where(x >= 0, near, far) - t * np.where(x >= 0, far, near))


# σ(x) - t rounds to 0 where a confident σ(x) rounds to its target; σ(-x) is what 1 - σ(x) is, to all digits
SIGMOID_RESIDUAL = elementwise(
    "sigmoid_residual",
    "σ(x) - t, as (1 - t)·σ(x) - t·σ(-x).",
    _residual_scalar,
    _residual_reference,
    FLOAT,
    (scaled(lambda o, y, x, t: o.multiply(o.sigmoid(x), o.sigmoid(o.negative(x)))), NEGATE),
    binary_cases(Range(-5.0, 5.0), Range(0.0, 1.0)),
)

# max(x, 0) - x·t + log(1 + exp(-|x|)) in one piece: exact for both targets however large the logit is
SIGMOID_CROSS_ENTROPY = elementwise(
    "sigmoid_cross_entropy",
    "-t·log σ(x) - (1 - t)·log(1 - σ(x)).",
    lambda b, attrs, x, t: b.add(
        b.sub(b.maximum(x, b.const(0, x.dtype)), b.mul(x, t)), b.log1p(b.exp(b.neg(b.abs(x))))
    ),
    lambda attrs, x, t: np.maximum(x, 0) - x * t + np.log1p(np.exp(-np.abs(x))),
    FLOAT,
    (scaled(lambda o, y, x, t: declare(SIGMOID_RESIDUAL, (x, t))), scaled(lambda o, y, x, t: o.negative(x))),
    binary_cases(Range(-5.0, 5.0), Range(0.0, 1.0)),
    grad_name="BinaryCrossEntropyWithLogits",
)


def _probability_scalar(b: ScalarBuilder[V], attrs: NoAttributes, x: V, t: V) -> V:
    least, one = b.const(-100, x.dtype), b.const(1, x.dtype)
    positive = b.mul(t, b.maximum(b.log(x), least))
    return b.neg(b.add(positive, b.mul(b.sub(one, t), b.maximum(b.log1p(b.neg(x)), least))))


def _probability_reference(attrs: NoAttributes, x: Array, t: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(-t * np.maximum(np.log(x), -100) - (1 - t) * np.maximum(np.log1p(-x), -100))


def _input_partial(o: Namespace, y: Tensor, x: Tensor, t: Tensor) -> Tensor:
    return o.divide(o.subtract(x, t), o.maximum(o.multiply(x, o.subtract(1.0, x)), 1e-12))


def _target_partial(o: Namespace, y: Tensor, x: Tensor, t: Tensor) -> Tensor:
    return o.subtract(o.maximum(o.log1p(o.negative(x)), -100.0), o.maximum(o.log(x), -100.0))


PROBABILITY_CROSS_ENTROPY = elementwise(
    "probability_cross_entropy",
    "-t·log x - (1 - t)·log(1 - x), each logarithm at least -100.",
    _probability_scalar,
    _probability_reference,
    FLOAT,
    (scaled(_input_partial), scaled(_target_partial)),
    binary_cases(PROBABILITY, PROBABILITY),
    grad_name="BinaryCrossEntropy",
)


@frozen
class BinaryLossAttributes:
    """The reduction of rows to a loss, and which of weight and weight of positives follow."""

    reduction: str
    weight: bool
    pos_weight: bool


def _binary_rows(o: Namespace, attrs: BinaryLossAttributes, x: Tensor, t: Tensor, *weights: Tensor) -> Tensor:
    rest = list(weights)
    weight = rest.pop(0) if attrs.weight else None
    if attrs.pos_weight:  # (1 - t)·softplus(x) + pos_weight·t·softplus(-x)
        zero = o.zeros((), dtype=x.dtype)
        positive = o.multiply(o.multiply(o.apply_sigmoid_cross_entropy(x, zero + 1.0), rest.pop(0)), t)
        rows = o.add(o.multiply(o.subtract(1.0, t), o.apply_sigmoid_cross_entropy(x, zero)), positive)
    else:
        rows = o.apply_sigmoid_cross_entropy(x, t)
    return weighted(o, rows, weight)


def _binary_reference(attrs: BinaryLossAttributes, x: Array, t: Array, *weights: Array) -> Array:
    rest = list(weights)
    weight = rest.pop(0) if attrs.weight else 1
    pos_weight = rest.pop(0) if attrs.pos_weight else 1
    return np.asarray(weight * (pos_weight * t * np.logaddexp(0, -x) + (1 - t) * np.logaddexp(0, x)))


BINARY_CROSS_ENTROPY_WITH_LOGITS = register(
    Op(
        "binary_cross_entropy_with_logits",
        "-t·log σ(x) - (1 - t)·log(1 - σ(x)), weighted and reduced.",
        infer=elementwise_type("binary_cross_entropy_with_logits"),
        reference=lambda attrs, *xs: reduced_reference(
            np.asarray(_binary_reference(attrs, *xs), xs[0].dtype), attrs.reduction
        ),
        expand=lambda o, node: [reduced(o, _binary_rows(o, node.attrs, *node.inputs), node.attrs.reduction)],
        dtypes=FLOATS,
        cases=(
            Case(((3, 4), (3, 4)), BinaryLossAttributes("mean", False, False), (REAL, PROBABILITY)),
            Case(((5,), (5,), (5,)), BinaryLossAttributes("sum", True, False), (REAL, PROBABILITY, PROBABILITY)),
            Case(
                ((3, 4), (3, 4), (3, 1), (4,)),
                BinaryLossAttributes("none", True, True),
                (REAL, PROBABILITY, PROBABILITY, Range(0.5, 3.0)),
            ),
        ),
        tolerance=2.0,
    )
)


@public
def apply_sigmoid_cross_entropy(x: Tensor, t: Tensor) -> Tensor:
    """-t·log σ(x) - (1 - t)·log(1 - σ(x)), elementwise."""
    return x.graph.add(SIGMOID_CROSS_ENTROPY, (x, t)).outputs[0]


@public
def binary_cross_entropy_with_logits(
    input: TensorLike,
    target: TensorLike,
    weight: TensorLike | None = None,
    reduction: str = "mean",
    pos_weight: TensorLike | None = None,
) -> Tensor:
    """-target·log σ(input) - (1 - target)·log(1 - σ(input)), accurate for logits of any size.

    Args:
        input: logits.
        target: probabilities; broadcasts.
        weight: of each example; broadcasts.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        pos_weight: multiplies the first term; broadcasts.

    Raises:
        GraphError: shapes that do not broadcast, or an unknown reduction.

    Example:
        >>> logits = sg.constant([2.0, 0.0, -50.0])
        >>> sg.Session().run(sg.nn.binary_cross_entropy_with_logits(logits, [1.0, 0.0, 1.0], reduction="none")).round(3)
        array([ 0.127,  0.693, 50.   ], dtype=float32)
    """
    what = "binary_cross_entropy_with_logits"
    attrs = BinaryLossAttributes(check_reduction(reduction, what), weight is not None, pos_weight is not None)
    extra = [w for w in (weight, pos_weight) if w is not None]
    return declare_loss(BINARY_CROSS_ENTROPY_WITH_LOGITS, attrs, loss_operands(what, input, target, *extra))


@public
@shown_as("BinaryCrossEntropyBackward0")
def binary_cross_entropy(
    input: TensorLike, target: TensorLike, weight: TensorLike | None = None, reduction: str = "mean"
) -> Tensor:
    """-target·log(input) - (1 - target)·log(1 - input) of probabilities, each logarithm at least -100.

    The gradient is (input - target) / (input·(1 - input)), the divisor at least 1e-12: large, not zero, where a
    probability is 0 and should be 1.

    Raises:
        GraphError: shapes that do not broadcast, or an unknown reduction.

    Example:
        >>> p = sg.constant([0.9, 0.5, 0.0])
        >>> sg.Session().run(sg.nn.binary_cross_entropy(p, [1.0, 0.0, 1.0], reduction="none")).round(3)
        array([  0.105,   0.693, 100.   ], dtype=float32)
    """
    o, what = FUNCTIONS, "binary_cross_entropy"
    check_reduction(reduction, what)
    operands = loss_operands(what, input, target, *([] if weight is None else [weight]))

    def compose(x: Tensor, t: Tensor, *weight: Tensor) -> Tensor:
        rows = x.graph.add(PROBABILITY_CROSS_ENTROPY, (x, t)).outputs[0]
        return reduced(o, weighted(o, rows, weight[0] if weight else None), reduction)

    return rounded_once(compose, *operands)


# -- divergence ---------------------------------------------------------------------------------------------------


@frozen
class DivergenceAttributes:
    """The reduction of rows to a loss, and whether the target is given as logarithms."""

    reduction: str
    log_target: bool


def _divergence_rows(o: Namespace, attrs: DivergenceAttributes, x: Tensor, t: Tensor) -> Tensor:
    if attrs.log_target:
        return o.multiply(o.exp(t), o.subtract(t, x))
    there = o.greater(t, 0)
    return o.subtract(o.where(there, o.multiply(t, o.log(o.where(there, t, 1))), 0), o.multiply(t, x))


def _divergence_reference(attrs: DivergenceAttributes, x: Array, t: Array) -> Array:
    if attrs.log_target:
        return np.asarray(np.exp(t) * (t - x))
    return np.asarray(np.where(t > 0, t * np.log(np.where(t > 0, t, 1)), 0) - t * x)


def _name_of_divergence(node: Node) -> str:
    """PyTorch composes it, and the last op is its reduction."""
    each = "MulBackward0" if node.attrs.log_target else "SubBackward0"
    return {"mean": "MeanBackward0", "sum": "SumBackward0"}.get(node.attrs.reduction, each)


KL_DIV = elementwise_loss(
    "kl_div",
    "t·(log t - x) for log-probabilities x: the divergence of Kullback and Leibler (1951), before its sum.",
    _divergence_rows,
    _divergence_reference,
    tuple(DivergenceAttributes(r, log) for r, log in (("mean", False), ("sum", True), ("none", False))),
    lambda attrs: (REAL, PROBABILITY),
    grad_name=_name_of_divergence,
)


@public
def kl_div(input: TensorLike, target: TensorLike, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """target·(log(target) - input), 0 where the target is 0: the Kullback-Leibler divergence before its sum.

    Args:
        input: log-probabilities.
        target: probabilities, or with ``log_target`` their logarithms.
        reduction: ``"batchmean"`` (the sum over the first size: the divergence itself), ``"mean"`` (over all
            elements), ``"sum"`` or ``"none"``.

    Raises:
        GraphError: shapes that do not broadcast, or an unknown reduction.

    Example:
        >>> p, q = sg.constant([[0.5, 0.5]]), sg.constant([[0.9, 0.1]])
        >>> print(sg.Session().run(sg.nn.kl_div(sg.log(q), p, reduction="batchmean")).round(3))
        0.511
    """
    what = "kl_div"
    check_reduction(reduction, what, (*REDUCTIONS, "batchmean"))
    attrs = DivergenceAttributes("sum" if reduction == "batchmean" else reduction, bool(log_target))
    operands = loss_operands(what, input, target)
    if reduction != "batchmean":
        return declare_loss(KL_DIV, attrs, operands)
    if operands[0].ndim == 0:
        raise GraphError(f"{what}: reduction='batchmean' needs a batch axis, actual {operands[0].type}")

    def compose(x: Tensor, t: Tensor) -> Tensor:
        with x.graph:
            return FUNCTIONS.divide(declare_loss(KL_DIV, attrs, (x, t)), count(FUNCTIONS, x, (0,)))

    return rounded_once(compose, *operands)
