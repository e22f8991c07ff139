"""Losses of class labels and of distributions over classes: ``cross_entropy`` and ``nll_loss``.

Class labels are never used as addresses: a label is compared with the index of each class, so that a loss is one loop
nest over the logits, forward and backward. Labels are checked before that all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import FLOATS, Shape, TensorType, as_declared, int32, int64, integer, is_floating, number
from staticgrad.graph.graph import Node, Tensor
from staticgrad.graph.lifting import TensorLike, lift_all, lift_floats
from staticgrad.graph.optable import FUNCTIONS, REAL, Array, Case, Namespace, Op, Primal, Range, public, register
from staticgrad.graph.scopes import control_dependencies
from staticgrad.ops.contraction import require_equal
from staticgrad.ops.declare import floating
from staticgrad.ops.indexing.labels import as_index, checked
from staticgrad.ops.losses.reduction import PROBABILITY, check_reduction, reduced, reduced_reference, weighted
from staticgrad.ops.neural.softmax import log_softmax_reference, shifted_exp
from staticgrad.ops.reductions import count

_CLASSES = Range(0, 3)


# -- losses of class labels ---------------------------------------------------------------------------------------


@frozen
class ClassLossAttributes:
    """The axis of the classes, the label that does not count, the reduction, the share given to all classes alike."""

    axis: int
    ignore_index: int
    reduction: str
    label_smoothing: float = 0.0


def _class_type(what: str) -> Callable[..., TensorType]:
    def infer(attrs: ClassLossAttributes, x: TensorType, target: TensorType, *weight: TensorType) -> TensorType:
        classes = x.shape[attrs.axis]
        if classes == 0:
            raise GraphError(f"{what}: expected at least one class, actual {x} with classes along axis {attrs.axis}")
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
class _LabelledRows:
    """The tensors of which a loss of labels is made, all shaped to broadcast against the logits.

    ``hit`` marks the label's class, ``valid`` the examples that count, ``weight`` the weight of each class (None: 1),
    ``share`` the weight of each example (0 where it does not count).
    """

    hit: Tensor
    valid: Tensor
    weight: Tensor | None
    share: Tensor


def _class_weight(o: Namespace, x: Tensor, weight: Sequence[Tensor], axis: int) -> Tensor | None:
    if not weight:
        return None
    return o.reshape(weight[0], tuple(x.shape[axis] if i == axis else 1 for i in range(x.ndim)))


def _rows(o: Namespace, node: Primal[ClassLossAttributes]) -> _LabelledRows:
    x, target, *weight = node.inputs
    attrs = node.attrs
    label = o.astype(o.expand_dims(target, attrs.axis), int32)
    places = o.iota(
        tuple(x.shape[attrs.axis] if i == attrs.axis else 1 for i in range(x.ndim)), attrs.axis, dtype=int32
    )
    hit, valid = o.equal(places, label), o.not_equal(label, attrs.ignore_index)
    by_class = _class_weight(o, x, weight, attrs.axis)
    if by_class is None:
        return _LabelledRows(hit, valid, None, o.astype(valid, x.dtype))
    of_label = o.sum(o.where(hit, by_class, 0), axis=attrs.axis, keepdims=True)
    return _LabelledRows(hit, valid, by_class, o.where(valid, of_label, 0))


def _without_classes(o: Namespace, x: Tensor, axis: int) -> Tensor:
    return o.reshape(x, (*x.shape[:axis], *x.shape[axis + 1 :]))


def _finish(o: Namespace, rows: Tensor, share: Tensor | None, attrs: ClassLossAttributes) -> Tensor:
    """Rows (class axis of size 1) to the loss. A mean is weighted by what each example counts (None: all alike)."""
    if attrs.reduction == "none":
        return _without_classes(o, rows, attrs.axis)
    if share is None:
        return reduced(o, rows, attrs.reduction)
    total = o.sum(rows)
    return total if attrs.reduction == "sum" else o.divide(total, o.sum(share))


def _cross_entropy_expand(o: Namespace, node: Primal[ClassLossAttributes]) -> Sequence[Tensor]:
    x, target, *weight = node.inputs
    attrs = node.attrs
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
        surprise = weighted(o, o.subtract(log_total, shifted), parts.weight)
        even = o.multiply(o.sum(surprise, axis=attrs.axis, keepdims=True), _even_share(o, x, attrs))
        rows = o.add(o.multiply(rows, 1 - attrs.label_smoothing), even)
    return [_finish(o, o.where(parts.valid, rows, 0), parts.share, attrs)]


def _even_share(o: Namespace, x: Tensor, attrs: ClassLossAttributes) -> float | Tensor:
    """The share that label smoothing gives to each class: a Python float, or a tensor where the number of classes is
    fed."""
    return attrs.label_smoothing / count(o, x, (attrs.axis,))


def _wanted(o: Namespace, node: Primal[ClassLossAttributes]) -> Tensor:
    """The distribution that probabilities as targets ask for: smoothed, and weighted by class."""
    x, target, *weight = node.inputs
    attrs = node.attrs
    if attrs.label_smoothing:
        target = o.add(o.multiply(target, 1 - attrs.label_smoothing), _even_share(o, x, attrs))
    return weighted(o, target, _class_weight(o, x, weight, attrs.axis))


def _row_cotangent(o: Namespace, node: Primal[ClassLossAttributes], ct: Tensor, share: Tensor | None) -> Tensor:
    """The cotangent of the row before its reduction: that of the loss, over the sum of shares where a mean is taken."""
    x, attrs = node.inputs[0], node.attrs
    if attrs.reduction == "none":
        return o.expand_dims(ct, attrs.axis)
    if attrs.reduction == "sum":
        return ct
    if share is not None:
        return o.divide(ct, o.sum(share))
    return ct / count(o, x, tuple(axis for axis in range(x.ndim) if axis != attrs.axis))


def _cross_entropy_vjp(o: Namespace, node: Primal[ClassLossAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    """For each row Σ q·(-log p): p·Σq - q for the logits, -log p for q and what q is made of."""
    if is_floating(node.inputs[1].dtype):
        return _soft_vjp(o, node, ct)
    x, index, *weight = node.inputs
    attrs = node.attrs
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
    wanted = weighted(o, base, parts.weight)
    everything = o.sum(wanted, axis=attrs.axis, keepdims=True)
    with control_dependencies(check):
        dx = o.multiply(o.subtract(o.multiply(probability, everything), wanted), valid_rows)
    return [dx, None, *(_weight_vjp(o, node, ct, parts, o.multiply(base, valid_rows)) for _ in weight)]


def _weight_vjp(
    o: Namespace, node: Primal[ClassLossAttributes], ct: Tensor, parts: _LabelledRows, base: Tensor
) -> Tensor:
    """The weight of a class gets the surprise at it, times ``base``, what it has in each row; a mean also divides by
    the sum of weights."""
    x = node.inputs[0]
    attrs = node.attrs
    gained = o.multiply(base, o.negative(o.log_softmax(x, attrs.axis)))
    if attrs.reduction == "mean":
        lost = o.multiply(o.divide(ct, o.sum(parts.share)), node.outputs[0])
        counted = o.logical_and(parts.hit, parts.valid)
        gained = o.subtract(gained, o.where(counted, lost, 0))
    others = tuple(axis for axis in range(x.ndim) if axis != attrs.axis)
    return o.sum(o.where(parts.valid, gained, 0), axis=others)


def _soft_vjp(o: Namespace, node: Primal[ClassLossAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    x, target, *weight = node.inputs
    attrs = node.attrs
    rows = _row_cotangent(o, node, ct, None)
    wanted = _wanted(o, node)
    everything = o.sum(wanted, axis=attrs.axis, keepdims=True)
    dx = o.multiply(o.subtract(o.multiply(o.softmax(x, attrs.axis), everything), wanted), rows)
    surprise = o.multiply(o.negative(o.log_softmax(x, attrs.axis)), rows)
    by_class = _class_weight(o, x, weight, attrs.axis)
    dtarget = weighted(o, o.multiply(surprise, 1 - attrs.label_smoothing), by_class)
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
        if is_floating(target.dtype):
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
    labels = ((None, int64), (REAL, _CLASSES))
    weighted = ((None, int64, None), (REAL, _CLASSES, Range(0.2, 2.0)))
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
        Case(((5, 4), (5, 4)), ClassLossAttributes(1, -100, "mean"), (REAL, PROBABILITY)),
        Case(((4,), (4,)), ClassLossAttributes(0, -100, "none", 0.1), (REAL, PROBABILITY)),
        Case(
            ((2, 4, 3), (2, 4, 3), (4,)),
            ClassLossAttributes(1, -100, "mean", 0.1),
            (REAL, PROBABILITY, PROBABILITY),
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


def _nll_expand(o: Namespace, node: Primal[ClassLossAttributes]) -> Sequence[Tensor]:
    attrs = node.attrs
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
    what: str, input: TensorLike, target: TensorLike, weight: TensorLike | None, ignore_index: int
) -> tuple[tuple[Tensor, ...], int, list[Node]]:
    """Logits, targets and weight, the class axis, and the checks of the labels."""
    x, *by_class = lift_all((input,) if weight is None else (input, weight), what=what)
    floating(x, what)
    if x.ndim == 0:
        raise GraphError(f"{what}: expected an input (N, C, *) or (C,), actual {x.type}")
    axis = 1 if x.ndim > 1 else 0
    o = FUNCTIONS
    with x.graph:
        labels = lift_floats(target, x.graph, x.dtype)
        if is_floating(labels.dtype) and (what == "nll_loss" or labels.ndim == x.ndim - 1):
            raise _no_labels(what, x, axis, labels)
        if is_floating(labels.dtype):
            probabilities = labels if labels.dtype == x.dtype else o.astype(labels, x.dtype)
            return (x, probabilities, *by_class), axis, []
        index = as_index(labels, what)
        rows = x.ndim - 1
        if index.ndim != rows:
            expected = (*x.shape[:axis], *x.shape[axis + 1 :])
            raise GraphError(f"{what}: expected labels of shape {expected} for an input {x.type}, actual {index.type}")
        return (x, index, *by_class), axis, checked(index, x.shape[axis], f"{what}: label", ignore_index)


def _no_labels(what: str, x: Tensor, axis: int, labels: Tensor) -> GraphError:
    """The error of floats in the place of labels."""
    rows = as_declared((*x.shape[:axis], *x.shape[axis + 1 :]))
    probabilities = f", or probabilities {as_declared(x.shape)}" if what == "cross_entropy" else ""
    return GraphError(
        f"{what}: floats as labels\n  expected integers {rows}{probabilities}"
        f"\n  actual   {labels.dtype.name} {as_declared(labels.shape)}, {labels.name!r}"
        f"\n  class indices are integers: declare them by sg.placeholder({rows}, sg.int64), or cast them by"
        " .astype(sg.int64)"
    )


@public
def cross_entropy(
    input: TensorLike,
    target: TensorLike,
    weight: TensorLike | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log softmax(input) at the target class.

    Args:
        input: logits (N, C, …) or (C,).
        target: labels (N, …) or () of int32 or int64 in [0, C), or class probabilities of the input's shape.
        weight: (C,), a weight for each class, or None.
        ignore_index: a label whose example counts neither in the sum nor in the mean.
        reduction: ``"mean"`` (weighted by the labels' weights), ``"sum"`` or ``"none"``.
        label_smoothing: the share of the target that is spread over all classes (Szegedy et al. 2016).

    Raises:
        GraphError: shapes that do not agree, an unknown reduction, a smoothing outside of [0, 1].

    Example:
        >>> logits = sg.constant([[2.0, 0.0, 0.0], [0.0, 3.0, 0.0]])
        >>> loss = sg.nn.cross_entropy(logits, [0, 2])
        >>> print(sg.Session().run(loss).round(3))
        1.667
        >>> sg.Session().run(sg.gradients(loss, [logits])[0]).round(2)
        array([[-0.11,  0.05,  0.05],
               [ 0.02,  0.45, -0.48]], dtype=float32)
        >>> sg.Session().run(sg.nn.cross_entropy(logits, [0, -100], reduction="none")).round(3)
        array([0.24, 0.  ], dtype=float32)
    """
    what = "cross_entropy"
    check_reduction(reduction, what)
    label_smoothing = number(label_smoothing, f"{what}: label_smoothing")
    if not 0 <= label_smoothing <= 1:
        raise GraphError(f"{what}: label_smoothing={label_smoothing}: expected a number in [0, 1]")
    operands, axis, checks = _class_operands(what, input, target, weight, ignore_index)
    attrs = ClassLossAttributes(axis, integer(ignore_index, f"{what}: ignore_index"), reduction, label_smoothing)
    return operands[0].graph.add(CROSS_ENTROPY, operands, attrs, control=checks).outputs[0]


@public
def nll_loss(
    input: TensorLike,
    target: TensorLike,
    weight: TensorLike | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Minus the log-probability ``input`` at the target class; arguments as for ``cross_entropy``.

    Raises:
        GraphError: shapes that do not agree, an unknown reduction, or targets that are not labels.

    Example:
        >>> log_p = sg.nn.log_softmax([[2.0, 0.0, 0.0], [0.0, 3.0, 0.0]])
        >>> sg.Session().run(sg.nn.nll_loss(log_p, [0, 2], reduction="none")).round(3)
        array([0.24 , 3.095], dtype=float32)
    """
    what = "nll_loss"
    check_reduction(reduction, what)
    operands, axis, checks = _class_operands(what, input, target, weight, ignore_index)
    attrs = ClassLossAttributes(axis, integer(ignore_index, f"{what}: ignore_index"), reduction)
    return operands[0].graph.add(NLL_LOSS, operands, attrs, control=checks).outputs[0]
