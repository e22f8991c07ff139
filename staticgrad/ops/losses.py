"""Losses: how far predictions are from targets, as one number or one for each example.

    rows   ::= an elementwise loss, or one that is reduced along the class axis (which stays with size 1)
    loss   ::= rows | sum of rows | mean of rows          reduction = "none" | "sum" | "mean"

Class labels are never used as addresses: a label is compared with the index of each class, so that a loss is one loop
nest over the logits, forward and backward. Labels are checked before that all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.errors import GraphError
from staticgrad.frozen import frozen
from staticgrad.graph import Node, Tensor, control_dependencies, lift, lift_all
from staticgrad.ops.contraction import require_equal
from staticgrad.ops.declare import FLOAT, binary_cases, elementwise, scaled
from staticgrad.ops.neural import FLOATS, as_index, checked, floating, log_softmax_reference, shifted_exp
from staticgrad.ops.reductions import count
from staticgrad.optable import FUNCTIONS, Array, Case, Namespace, Op, Primal, Range, public, register
from staticgrad.types import Shape, TensorType, broadcast_shapes, int32, int64, is_floating

REDUCTIONS = ("none", "mean", "sum")
_ANY = Range()
_CLASSES = Range(0, 3)
_PROBABILITY = Range(0.05, 0.95)


def check_reduction(reduction: str, what: str, allowed: Sequence[str] = REDUCTIONS) -> str:
    """Refuse a reduction that the loss does not have."""
    if reduction not in allowed:
        raise GraphError(f"{what}: reduction={reduction!r}: expected one of {', '.join(map(repr, allowed))}")
    return reduction


def reduced(o: Namespace, rows: Tensor, reduction: str) -> Tensor:
    """Rows, their sum or their mean."""
    if reduction == "mean":
        return o.mean(rows)
    return o.sum(rows) if reduction == "sum" else rows


def reduced_reference(rows: Array, reduction: str) -> Array:
    """Rows, their sum or their mean, of arrays."""
    with np.errstate(invalid="ignore", divide="ignore"):
        result = np.mean(rows) if reduction == "mean" else np.sum(rows) if reduction == "sum" else rows
    return np.asarray(result, rows.dtype)


# -- losses of class labels ---------------------------------------------------------------------------------------


@frozen
class ClassLossAttributes:
    """Where the classes lie, the label that does not count, the reduction, the share given to all classes alike."""

    axis: int
    ignore_index: int
    reduction: str
    label_smoothing: float = 0.0


def _class_type(what: str) -> Callable[..., TensorType]:
    def infer(attrs: ClassLossAttributes, x: TensorType, target: TensorType, *weight: TensorType) -> TensorType:
        classes = x.shape[attrs.axis]
        rows = (*x.shape[: attrs.axis], *x.shape[attrs.axis + 1 :])
        expected: Shape = x.shape if is_floating(target.dtype) else rows
        if target.ndim != len(expected):
            raise GraphError(f"{what}: expected targets of shape {expected} for an input {x}, actual {target}")
        for wanted, got in zip(expected, target.shape, strict=True):
            require_equal(wanted, got, what, f"the targets {target} for an input {x}")
        if weight:
            if weight[0].ndim != 1:
                raise GraphError(f"{what}: expected a weight ({classes},), actual {weight[0]}")
            require_equal(classes, weight[0].shape[0], what, "size of the weight, one for each class")
        return TensorType(rows if attrs.reduction == "none" else (), x.dtype)

    return infer


@frozen
class _Rows:
    """What a loss of labels is made of, all shaped to broadcast against the logits.

    ``hit`` marks the label's class, ``valid`` the examples that count, ``weight`` the weight of each class (None: 1),
    ``share`` the weight of each example (0 where it does not count).
    """

    hit: Any
    valid: Any
    weight: Any
    share: Any


def _class_weight(o: Namespace, x: Any, weight: Sequence[Any], axis: int) -> Any:
    if not weight:
        return None
    return o.reshape(weight[0], tuple(x.shape[axis] if i == axis else 1 for i in range(x.ndim)))


def _rows(o: Namespace, node: Primal) -> _Rows:
    x, target, *weight = node.inputs
    attrs: ClassLossAttributes = node.attrs
    label = o.astype(o.expand_dims(target, attrs.axis), int32)
    places = o.iota(
        tuple(x.shape[attrs.axis] if i == attrs.axis else 1 for i in range(x.ndim)), attrs.axis, dtype=int32
    )
    hit, valid = o.equal(places, label), o.not_equal(label, attrs.ignore_index)
    by_class = _class_weight(o, x, weight, attrs.axis)
    if by_class is None:
        return _Rows(hit, valid, None, o.astype(valid, x.dtype))
    of_label = o.sum(o.where(hit, by_class, 0), axis=attrs.axis, keepdims=True)
    return _Rows(hit, valid, by_class, o.where(valid, of_label, 0))


def _without_classes(o: Namespace, x: Any, axis: int) -> Any:
    return o.reshape(x, (*x.shape[:axis], *x.shape[axis + 1 :]))


def _finish(o: Namespace, rows: Any, share: Any, attrs: ClassLossAttributes) -> Any:
    """Rows (class axis of size 1) to the loss. A mean is weighted by what each example counts (None: all alike)."""
    if attrs.reduction == "none":
        return _without_classes(o, rows, attrs.axis)
    if share is None:
        return reduced(o, rows, attrs.reduction)
    total = o.sum(rows)
    return total if attrs.reduction == "sum" else o.divide(total, o.sum(share))


def _weighted(o: Namespace, x: Any, weight: Any) -> Any:
    return x if weight is None else o.multiply(x, weight)


def _cross_entropy_expand(o: Namespace, node: Primal) -> Sequence[Any]:
    x, target, *weight = node.inputs
    attrs: ClassLossAttributes = node.attrs
    shifted, _, total = shifted_exp(o, x, attrs.axis)
    log_total = o.log(total)
    if is_floating(target.dtype):
        surprise = o.subtract(log_total, shifted)
        wanted = _wanted(o, node)
        return [_finish(o, o.sum(o.multiply(wanted, surprise), axis=attrs.axis, keepdims=True), None, attrs)]
    parts = _rows(o, node)
    chosen = o.sum(o.where(parts.hit, shifted, 0), axis=attrs.axis, keepdims=True)
    rows = o.subtract(log_total, chosen)
    if weight:
        rows = o.multiply(rows, parts.share)
    if attrs.label_smoothing:
        surprise = _weighted(o, o.subtract(log_total, shifted), parts.weight)
        even = o.multiply(o.sum(surprise, axis=attrs.axis, keepdims=True), _even_share(o, x, attrs))
        rows = o.add(o.multiply(rows, 1 - attrs.label_smoothing), even)
    return [_finish(o, o.where(parts.valid, rows, 0), parts.share, attrs)]


def _even_share(o: Namespace, x: Any, attrs: ClassLossAttributes) -> Any:
    """What label smoothing gives to each class: a Python float, or a tensor where the number of classes is fed."""
    return attrs.label_smoothing / count(o, x, (attrs.axis,))


def _wanted(o: Namespace, node: Primal) -> Any:
    """The distribution that probabilities as targets ask for: smoothed, and weighted by class."""
    x, target, *weight = node.inputs
    attrs: ClassLossAttributes = node.attrs
    if attrs.label_smoothing:
        target = o.add(o.multiply(target, 1 - attrs.label_smoothing), _even_share(o, x, attrs))
    return _weighted(o, target, _class_weight(o, x, weight, attrs.axis))


def _row_cotangent(o: Namespace, node: Primal, ct: Any, share: Any) -> Any:
    """What the row before its reduction receives: the cotangent, over the sum of shares where a mean is taken."""
    x, attrs = node.inputs[0], node.attrs
    if attrs.reduction == "none":
        return o.expand_dims(ct, attrs.axis)
    if attrs.reduction == "sum":
        return ct
    if share is not None:
        return o.divide(ct, o.sum(share))
    return ct / count(o, x, tuple(axis for axis in range(x.ndim) if axis != attrs.axis))


def _cross_entropy_vjp(o: Namespace, node: Primal, ct: Any) -> Sequence[Any]:
    """For each row Σ q·(-log p): p·Σq - q for the logits, -log p for q and what q is made of."""
    if is_floating(node.inputs[1].dtype):
        return _soft_vjp(o, node, ct)
    x, index, *weight = node.inputs
    attrs: ClassLossAttributes = node.attrs
    parts = _rows(o, node)
    probability = o.softmax(x, attrs.axis)
    rows = _row_cotangent(o, node, ct, parts.share)
    check = checked(index, x.shape[attrs.axis], "cross_entropy: label", attrs.ignore_index)
    if not attrs.label_smoothing:
        factor = o.where(parts.valid, rows if parts.weight is None else o.multiply(rows, parts.share), 0)
        with control_dependencies(check):  # a program may need the gradient alone
            dx = o.multiply(o.where(parts.hit, o.subtract(probability, 1), probability), factor)
        return [dx, None, *(_weight_vjp(o, node, ct, parts, o.where(parts.hit, rows, 0)) for _ in weight)]
    even = _even_share(o, x, attrs)
    valid_rows = o.where(parts.valid, rows, 0)
    base = o.add(o.where(parts.hit, 1 - attrs.label_smoothing, o.zeros((), dtype=x.dtype)), even)
    wanted = _weighted(o, base, parts.weight)
    everything = o.sum(wanted, axis=attrs.axis, keepdims=True)
    with control_dependencies(check):
        dx = o.multiply(o.subtract(o.multiply(probability, everything), wanted), valid_rows)
    return [dx, None, *(_weight_vjp(o, node, ct, parts, o.multiply(base, valid_rows)) for _ in weight)]


def _weight_vjp(o: Namespace, node: Primal, ct: Any, parts: _Rows, base: Any) -> Any:
    """The weight of a class gets the surprise at it, times ``base``, what it has in each row; a mean also divides by
    the sum of weights."""
    x = node.inputs[0]
    attrs: ClassLossAttributes = node.attrs
    gained = o.multiply(base, o.negative(o.log_softmax(x, attrs.axis)))
    if attrs.reduction == "mean":
        lost = o.multiply(o.divide(ct, o.sum(parts.share)), node.outputs[0])
        counted = o.logical_and(parts.hit, parts.valid)
        gained = o.subtract(gained, o.where(counted, lost, 0))
    others = tuple(axis for axis in range(x.ndim) if axis != attrs.axis)
    return o.sum(o.where(parts.valid, gained, 0), axis=others)


def _soft_vjp(o: Namespace, node: Primal, ct: Any) -> Sequence[Any]:
    x, target, *weight = node.inputs
    attrs: ClassLossAttributes = node.attrs
    rows = _row_cotangent(o, node, ct, None)
    wanted = _wanted(o, node)
    everything = o.sum(wanted, axis=attrs.axis, keepdims=True)
    dx = o.multiply(o.subtract(o.multiply(o.softmax(x, attrs.axis), everything), wanted), rows)
    surprise = o.multiply(o.negative(o.log_softmax(x, attrs.axis)), rows)
    by_class = _class_weight(o, x, weight, attrs.axis)
    dtarget = _weighted(o, o.multiply(surprise, 1 - attrs.label_smoothing), by_class)
    if not weight:
        return [dx, dtarget]
    plain = target
    if attrs.label_smoothing:
        plain = o.add(o.multiply(target, 1 - attrs.label_smoothing), _even_share(o, x, attrs))
    others = tuple(axis for axis in range(x.ndim) if axis != attrs.axis)
    return [dx, dtarget, o.sum(o.multiply(surprise, plain), axis=others)]


def _class_loss_reference(log_probability: Callable[[Array, int], Array]) -> Callable[..., Array]:
    """The definition, on a matrix (examples, classes), label by label."""

    def evaluate(attrs: ClassLossAttributes, x: Array, target: Array, *weight: Array) -> Array:
        classes = x.shape[attrs.axis]
        logp = np.moveaxis(log_probability(x, attrs.axis), attrs.axis, -1).reshape(-1, classes)
        w = weight[0] if weight else np.ones(classes, x.dtype)
        rest = tuple(size for axis, size in enumerate(x.shape) if axis != attrs.axis)
        smoothing = attrs.label_smoothing
        if target.dtype.kind == "f":
            wanted = np.moveaxis(target, attrs.axis, -1).reshape(-1, classes) * (1 - smoothing) + smoothing / classes
            rows = -np.sum(w * wanted * logp, axis=1)
            return reduced_reference(rows.reshape(rest).astype(x.dtype), attrs.reduction)
        labels = target.reshape(-1)
        rows, shares = np.zeros(len(labels)), np.zeros(len(labels))
        for i, label in enumerate(labels):
            if label != attrs.ignore_index:
                shares[i] = w[label]
                rows[i] = -(1 - smoothing) * w[label] * logp[i, label]
                if smoothing:
                    rows[i] -= smoothing / classes * np.sum(w * logp[i])
        if attrs.reduction == "none":
            return rows.reshape(rest).astype(x.dtype)
        with np.errstate(invalid="ignore", divide="ignore"):
            total = np.sum(rows) / (np.sum(shares) if attrs.reduction == "mean" else 1)
        return np.asarray(total, x.dtype)

    return evaluate


def _label_cases() -> tuple[Case, ...]:
    labels = ((None, int64), (_ANY, _CLASSES))
    weighted = ((None, int64, None), (_ANY, _CLASSES, Range(0.2, 2.0)))
    return tuple(
        Case(shapes, ClassLossAttributes(axis, ignored, reduction, smoothing), ranges, dtypes)
        for shapes, axis, ignored, reduction, smoothing, (dtypes, ranges) in (
            (((5, 4), (5,)), 1, -100, "mean", 0.0, labels),
            (((4,), ()), 0, -100, "mean", 0.0, labels),
            (((5, 4), (5,)), 1, 2, "none", 0.0, labels),
            (((2, 4, 3), (2, 3)), 1, -100, "sum", 0.0, labels),
            (((6, 4), (6,)), 1, 1, "mean", 0.2, labels),
            (((5, 4), (5,), (4,)), 1, -100, "mean", 0.0, weighted),
            (((6, 4), (6,), (4,)), 1, 3, "mean", 0.1, weighted),
            (((2, 4, 3), (2, 3), (4,)), 1, -100, "none", 0.1, weighted),
        )
    )


def _soft_cases() -> tuple[Case, ...]:
    return (
        Case(((5, 4), (5, 4)), ClassLossAttributes(1, -100, "mean"), (_ANY, _PROBABILITY)),
        Case(((4,), (4,)), ClassLossAttributes(0, -100, "none", 0.1), (_ANY, _PROBABILITY)),
        Case(
            ((2, 4, 3), (2, 4, 3), (4,)),
            ClassLossAttributes(1, -100, "mean", 0.1),
            (_ANY, _PROBABILITY, _PROBABILITY),
        ),
    )


CROSS_ENTROPY = register(
    Op(
        "cross_entropy",
        "-log softmax(x) at the label, or its mean under class probabilities.",
        infer=_class_type("cross_entropy"),
        reference=_class_loss_reference(log_softmax_reference),
        expand=_cross_entropy_expand,
        vjp=_cross_entropy_vjp,
        dtypes=FLOATS,
        cases=_label_cases() + _soft_cases(),
        grad_name="NllLoss",
        tolerance=2.0,
    )
)


def _nll_expand(o: Namespace, node: Primal) -> Sequence[Any]:
    attrs: ClassLossAttributes = node.attrs
    parts = _rows(o, node)
    chosen = o.sum(o.where(parts.hit, node.inputs[0], 0), axis=attrs.axis, keepdims=True)
    rows = o.where(parts.valid, o.negative(o.multiply(chosen, parts.share)), 0)
    return [_finish(o, rows, parts.share, attrs)]


NLL_LOSS = register(
    Op(
        "nll_loss",
        "Minus the log-probability at the label.",
        infer=_class_type("nll_loss"),
        reference=_class_loss_reference(lambda x, axis: x),
        expand=_nll_expand,
        dtypes=FLOATS,
        cases=tuple(case for case in _label_cases() if not case.attrs.label_smoothing),
    )
)


def _class_operands(
    what: str, input: Any, target: Any, weight: Any, ignore_index: int
) -> tuple[tuple[Tensor, ...], int, list[Node]]:
    """Logits, targets and weight, the class axis, and the checks of the labels."""
    x, *by_class = lift_all((input,) if weight is None else (input, weight), what=what)
    floating(x, what)
    if x.ndim == 0:
        raise GraphError(f"{what}: expected an input (N, C, *) or (C,), actual {x.type}")
    axis = 1 if x.ndim > 1 else 0
    o = FUNCTIONS
    with x.graph:
        labels = lift(target, x.graph)
        if is_floating(labels.dtype):
            probabilities = labels if labels.dtype == x.dtype else o.astype(labels, x.dtype)
            return (x, probabilities, *by_class), axis, []
        index = as_index(labels, what)
        rows = x.ndim - 1
        if index.ndim != rows:
            expected = (*x.shape[:axis], *x.shape[axis + 1 :])
            raise GraphError(f"{what}: expected labels of shape {expected} for an input {x.type}, actual {index.type}")
        return (x, index, *by_class), axis, checked(index, x.shape[axis], f"{what}: label", ignore_index)


@public
def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log softmax(input) at the target class.

    Args:
        input: logits (N, C, \\*) or (C,).
        target: labels (N, \\*) or () of int32 or int64 in [0, C), or class probabilities of the input's shape.
        weight: (C,), a weight for each class, or None.
        ignore_index: a label whose example counts neither in the sum nor in the mean.
        reduction: ``"mean"`` (weighted by the labels' weights), ``"sum"`` or ``"none"``.
        label_smoothing: the share of the target that is spread over all classes (Szegedy et al. 2016).

    Raises:
        GraphError: shapes that do not agree, an unknown reduction, a smoothing outside of [0, 1].
    """
    what = "cross_entropy"
    check_reduction(reduction, what)
    if not 0 <= label_smoothing <= 1:
        raise GraphError(f"{what}: label_smoothing={label_smoothing}: expected a number in [0, 1]")
    operands, axis, checks = _class_operands(what, input, target, weight, ignore_index)
    attrs = ClassLossAttributes(axis, int(ignore_index), reduction, float(label_smoothing))
    return operands[0].graph.add(CROSS_ENTROPY, operands, attrs, control=checks).outputs[0]


@public
def nll_loss(input: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean") -> Tensor:
    """Minus the log-probability ``input`` at the target class; arguments as for ``cross_entropy``.

    Raises:
        GraphError: shapes that do not agree, an unknown reduction, or targets that are not labels.
    """
    what = "nll_loss"
    check_reduction(reduction, what)
    operands, axis, checks = _class_operands(what, input, target, weight, ignore_index)
    if is_floating(operands[1].dtype):
        raise GraphError(f"{what}: expected integer labels, actual {operands[1].type}")
    attrs = ClassLossAttributes(axis, int(ignore_index), reduction)
    return operands[0].graph.add(NLL_LOSS, operands, attrs, control=checks).outputs[0]


# -- losses of numbers --------------------------------------------------------------------------------------------


@frozen
class LossAttributes:
    """How rows become a loss."""

    reduction: str


@frozen
class ThresholdLossAttributes:
    """How rows become a loss, and where its quadratic part ends."""

    reduction: str
    threshold: float


def _elementwise_type(what: str) -> Callable[..., TensorType]:
    def infer(attrs: Any, *types: TensorType) -> TensorType:
        shape = broadcast_shapes([t.shape for t in types], what)
        return TensorType(shape if attrs.reduction == "none" else (), types[0].dtype)

    return infer


def _loss(
    name: str,
    doc: str,
    rows: Callable[..., Any],
    reference: Callable[..., Array],
    attributes: Sequence[Any],
    ranges: Callable[[Any], tuple[Range, ...] | None] = lambda attrs: None,
    **options: Any,
) -> Op:
    """A loss that is elementwise before its reduction: ``rows(o, attrs, *inputs)``, ``reference(attrs, *arrays)``."""
    shapes = (((3, 4), (3, 4)), ((5,), (5,)), ((2, 3, 4), (3, 1)))
    cases = tuple(
        Case(shapes[i % len(shapes)], attrs, ranges(attrs), distinct=True) for i, attrs in enumerate(attributes)
    )

    def expand(o: Namespace, node: Primal) -> Sequence[Any]:
        return [reduced(o, rows(o, node.attrs, *node.inputs), node.attrs.reduction)]

    def evaluate(attrs: Any, *xs: Array) -> Array:
        with np.errstate(invalid="ignore", divide="ignore"):
            return reduced_reference(np.asarray(reference(attrs, *xs), xs[0].dtype), attrs.reduction)

    return register(
        Op(
            name,
            doc,
            infer=_elementwise_type(name),
            reference=evaluate,
            expand=expand,
            dtypes=FLOATS,
            cases=cases,
            **options,
        )
    )


_EACH = tuple(LossAttributes(reduction) for reduction in ("mean", "sum", "none"))
_THRESHOLDS = tuple(ThresholdLossAttributes(r, t) for r, t in (("mean", 1.0), ("sum", 0.5), ("none", 2.0)))


def _square_rows(o: Namespace, attrs: LossAttributes, x: Any, t: Any) -> Any:
    return o.square(o.subtract(x, t))


def _huber_rows(o: Namespace, attrs: ThresholdLossAttributes, x: Any, t: Any) -> Any:
    delta = attrs.threshold
    difference = o.subtract(x, t)
    distance = o.abs(difference)
    quadratic = o.multiply(o.square(difference), 0.5)  # not of the distance, which has a kink at 0
    return o.where(o.less(distance, delta), quadratic, o.multiply(o.subtract(distance, 0.5 * delta), delta))


def _huber_reference(attrs: ThresholdLossAttributes, x: Array, t: Array) -> Array:
    distance, delta = np.abs(x - t), attrs.threshold
    return np.asarray(np.where(distance < delta, 0.5 * distance**2, delta * (distance - 0.5 * delta)))


MSE_LOSS = _loss("mse_loss", "The squared difference.", _square_rows, lambda attrs, x, t: (x - t) ** 2, _EACH)
L1_LOSS = _loss(
    "l1_loss",
    "The absolute difference.",
    lambda o, attrs, x, t: o.abs(o.subtract(x, t)),
    lambda attrs, x, t: np.abs(x - t),
    _EACH,
    lambda attrs: (Range(0.5, 2.0), Range(-2.0, 0.2)),
    grad_name="L1Loss",
)
HUBER_LOSS = _loss(
    "huber_loss",
    "Quadratic up to a threshold, then linear (Huber 1964).",
    _huber_rows,
    _huber_reference,
    _THRESHOLDS,
    lambda attrs: (Range(0.0, 0.2), Range(-3.0, 3.0, (0.1 - attrs.threshold, 0.1 + attrs.threshold), margin=0.25)),
)


@public
def mse_loss(input: Any, target: Any, reduction: str = "mean") -> Tensor:
    """(input - target)², broadcast; ``reduction``: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        GraphError: shapes that do not broadcast, or an unknown reduction.
    """
    return _declare(MSE_LOSS, LossAttributes(check_reduction(reduction, "mse_loss")), input, target)


@public
def l1_loss(input: Any, target: Any, reduction: str = "mean") -> Tensor:
    """|input - target|, broadcast; ``reduction``: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        GraphError: shapes that do not broadcast, or an unknown reduction.
    """
    return _declare(L1_LOSS, LossAttributes(check_reduction(reduction, "l1_loss")), input, target)


@public
def huber_loss(input: Any, target: Any, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """½d² where |d| < delta, else delta·(|d| - ½delta), for d = input - target (Huber 1964).

    Raises:
        GraphError: shapes that do not broadcast, an unknown reduction, a delta that is not positive.
    """
    if not delta > 0:
        raise GraphError(f"huber_loss: delta={delta}: expected a positive number")
    attrs = ThresholdLossAttributes(check_reduction(reduction, "huber_loss"), float(delta))
    return _declare(HUBER_LOSS, attrs, input, target)


@public
def smooth_l1_loss(input: Any, target: Any, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """½d²/beta where |d| < beta, else |d| - ½beta, for d = input - target: Huber's loss over beta.

    Raises:
        GraphError: shapes that do not broadcast, an unknown reduction, a negative beta.
    """
    if beta == 0:
        return l1_loss(input, target, reduction)
    return FUNCTIONS.divide(huber_loss(input, target, reduction, beta), float(beta))


def _declare(op: Op, attrs: Any, *values: Any) -> Tensor:
    operands = lift_all(values, what=op.name)
    floating(operands[0], op.name)
    return operands[0].graph.add(op, operands, attrs).outputs[0]


# -- binary cross-entropy -----------------------------------------------------------------------------------------

# max(x, 0) - x·t + log(1 + exp(-|x|)) in one piece: exact for both targets however large the logit is
SIGMOID_CROSS_ENTROPY = elementwise(
    "sigmoid_cross_entropy",
    "-t·log σ(x) - (1 - t)·log(1 - σ(x)).",
    lambda b, attrs, x, t: b.add(
        b.sub(b.maximum(x, b.const(0, x.dtype)), b.mul(x, t)), b.log1p(b.exp(b.neg(b.abs(x))))
    ),
    lambda attrs, x, t: np.maximum(x, 0) - x * t + np.log1p(np.exp(-np.abs(x))),
    FLOAT,
    (scaled(lambda o, y, x, t: o.subtract(o.sigmoid(x), t)), scaled(lambda o, y, x, t: o.negative(x))),
    binary_cases(Range(-5.0, 5.0), Range(0.0, 1.0)),
    grad_name="BinaryCrossEntropyWithLogits",
)


@frozen
class BinaryLossAttributes:
    """How rows become a loss, and which of weight and weight of positives follow."""

    reduction: str
    weight: bool
    pos_weight: bool


def _binary_rows(o: Namespace, attrs: BinaryLossAttributes, x: Any, t: Any, *weights: Any) -> Any:
    rest = list(weights)
    weight = rest.pop(0) if attrs.weight else None
    if attrs.pos_weight:  # (1 - t)·softplus(x) + pos_weight·t·softplus(-x)
        zero = o.zeros((), dtype=x.dtype)
        positive = o.multiply(o.multiply(o.apply_sigmoid_cross_entropy(x, zero + 1.0), rest.pop(0)), t)
        rows = o.add(o.multiply(o.subtract(1.0, t), o.apply_sigmoid_cross_entropy(x, zero)), positive)
    else:
        rows = o.apply_sigmoid_cross_entropy(x, t)
    return _weighted(o, rows, weight)


def _binary_reference(attrs: BinaryLossAttributes, x: Array, t: Array, *weights: Array) -> Array:
    rest = list(weights)
    weight = rest.pop(0) if attrs.weight else 1
    pos_weight = rest.pop(0) if attrs.pos_weight else 1
    return np.asarray(weight * (pos_weight * t * np.logaddexp(0, -x) + (1 - t) * np.logaddexp(0, x)))


BINARY_CROSS_ENTROPY_WITH_LOGITS = register(
    Op(
        "binary_cross_entropy_with_logits",
        "-t·log σ(x) - (1 - t)·log(1 - σ(x)), weighted and reduced.",
        infer=_elementwise_type("binary_cross_entropy_with_logits"),
        reference=lambda attrs, *xs: reduced_reference(
            np.asarray(_binary_reference(attrs, *xs), xs[0].dtype), attrs.reduction
        ),
        expand=lambda o, node: [reduced(o, _binary_rows(o, node.attrs, *node.inputs), node.attrs.reduction)],
        dtypes=FLOATS,
        cases=(
            Case(((3, 4), (3, 4)), BinaryLossAttributes("mean", False, False), (_ANY, _PROBABILITY)),
            Case(((5,), (5,), (5,)), BinaryLossAttributes("sum", True, False), (_ANY, _PROBABILITY, _PROBABILITY)),
            Case(
                ((3, 4), (3, 4), (3, 1), (4,)),
                BinaryLossAttributes("none", True, True),
                (_ANY, _PROBABILITY, _PROBABILITY, Range(0.5, 3.0)),
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
    input: Any, target: Any, weight: Any = None, reduction: str = "mean", pos_weight: Any = None
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
    """
    what = "binary_cross_entropy_with_logits"
    attrs = BinaryLossAttributes(check_reduction(reduction, what), weight is not None, pos_weight is not None)
    extra = [w for w in (weight, pos_weight) if w is not None]
    return _declare(BINARY_CROSS_ENTROPY_WITH_LOGITS, attrs, input, target, *extra)


@public
def binary_cross_entropy(input: Any, target: Any, weight: Any = None, reduction: str = "mean") -> Tensor:
    """-target·log(input) - (1 - target)·log(1 - input) of probabilities, each logarithm at least -100.

    Raises:
        GraphError: shapes that do not broadcast, or an unknown reduction.
    """
    o, what = FUNCTIONS, "binary_cross_entropy"
    check_reduction(reduction, what)
    operands = lift_all((input, target) if weight is None else (input, target, weight), what=what)
    x, t = floating(operands[0], what), operands[1]
    positive = o.multiply(t, o.maximum(o.log(x), -100.0))
    negative = o.multiply(o.subtract(1.0, t), o.maximum(o.log1p(o.negative(x)), -100.0))
    rows = _weighted(o, o.negative(o.add(positive, negative)), operands[2] if weight is not None else None)
    return reduced(o, rows, reduction)


# -- divergence ---------------------------------------------------------------------------------------------------


@frozen
class DivergenceAttributes:
    """How rows become a loss, and whether the target is given as logarithms."""

    reduction: str
    log_target: bool


def _divergence_rows(o: Namespace, attrs: DivergenceAttributes, x: Any, t: Any) -> Any:
    if attrs.log_target:
        return o.multiply(o.exp(t), o.subtract(t, x))
    there = o.greater(t, 0)
    return o.subtract(o.where(there, o.multiply(t, o.log(o.where(there, t, 1))), 0), o.multiply(t, x))


def _divergence_reference(attrs: DivergenceAttributes, x: Array, t: Array) -> Array:
    if attrs.log_target:
        return np.asarray(np.exp(t) * (t - x))
    return np.asarray(np.where(t > 0, t * np.log(np.where(t > 0, t, 1)), 0) - t * x)


KL_DIV = _loss(
    "kl_div",
    "t·(log t - x) for log-probabilities x: the divergence of Kullback and Leibler (1951), before its sum.",
    _divergence_rows,
    _divergence_reference,
    tuple(DivergenceAttributes(r, log) for r, log in (("mean", False), ("sum", True), ("none", False))),
    lambda attrs: (_ANY, _PROBABILITY),
)


@public
def kl_div(input: Any, target: Any, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """target·(log(target) - input), 0 where the target is 0: the Kullback-Leibler divergence before its sum.

    Args:
        input: log-probabilities.
        target: probabilities, or with ``log_target`` their logarithms.
        reduction: ``"batchmean"`` (the sum over the first size: the divergence itself), ``"mean"`` (over all
            elements), ``"sum"`` or ``"none"``.

    Raises:
        GraphError: shapes that do not broadcast, or an unknown reduction.
    """
    what = "kl_div"
    check_reduction(reduction, what, (*REDUCTIONS, "batchmean"))
    attrs = DivergenceAttributes("sum" if reduction == "batchmean" else reduction, bool(log_target))
    loss = _declare(KL_DIV, attrs, input, target)
    if reduction == "batchmean":
        x = lift(input, loss.graph)
        if x.ndim == 0:
            raise GraphError(f"{what}: reduction='batchmean' needs a batch axis, actual {x.type}")
        with loss.graph:
            return FUNCTIONS.divide(loss, count(FUNCTIONS, x, (0,)))
    return loss
