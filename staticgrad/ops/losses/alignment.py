"""Connectionist temporal classification: ``ctc_loss``, the loss of a sequence of labels without an alignment.

A. Graves, S. Fernández, F. Gomez & J. Schmidhuber, Connectionist temporal classification (2006): the probability of all
alignments by one loop over time, here over logarithms, on the labels with a blank before, between and after them. The
gradient is that of the loop.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.types import Size, int64, integer, is_floating
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift
from staticgrad.graph.optable import FUNCTIONS, Namespace, public
from staticgrad.ops.contraction import require_equal
from staticgrad.ops.declare import shown_as
from staticgrad.ops.elementwise.copies import rounded_once
from staticgrad.ops.losses.reduction import check_reduction

NEVER = -math.inf  # the logarithm of the probability of what does not happen


def _log_of_sum(o: Namespace, terms: Sequence[Tensor]) -> Tensor:
    """The logarithm of a sum of probabilities from theirs, with a derivative where all are 0."""
    largest = o.stop_gradient(functools.reduce(o.maximum, terms))
    dead = o.equal(largest, NEVER)
    shift = o.where(dead, 0, largest)
    total = functools.reduce(o.add, [o.exp(o.subtract(term, shift)) for term in terms])
    return o.where(dead, NEVER, o.add(shift, o.log(o.where(dead, 1, total))))


def _after(o: Namespace, x: Tensor, places: int) -> Tensor:
    """The elements a number of places before each one along the last axis; nothing at the front."""
    widths = [(0, 0)] * (x.ndim - 1) + [(places, -places)]
    return o.pad(x, widths, value=NEVER)


def _extended(o: Namespace, targets: Tensor, blank: int) -> Tensor:
    """(N, S) labels as (N, 2·S + 1) with a blank before, between and after them."""
    n, count = targets.shape
    pairs = o.stack([o.full_like(targets, blank), targets], axis=-1)
    return o.pad(o.reshape(pairs, (n, 2 * count)), ((0, 0), (0, 1)), value=blank)


def _losses(
    o: Namespace, log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int
) -> Tensor:
    """The loss of each of (T, N, C) sequences."""
    labels = _extended(o, targets, blank)
    turns, n = log_probs.shape[:2]
    width = labels.shape[1]
    emitted = o.take_along_axis(log_probs, o.broadcast_to(o.expand_dims(labels, 0), (turns, n, width)), 2)
    place = o.iota((n, width), 1)
    before = o.pad(labels, ((0, 0), (2, -2)), value=blank)
    skips = o.logical_and(o.not_equal(labels, blank), o.not_equal(labels, before))  # a blank between may be left out
    start = o.where(o.equal(place, 0), o.zeros((n, width), dtype=log_probs.dtype), NEVER)  # before the first turn

    def turn(alpha: Tensor, row: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[()]]:
        probabilities, number = row
        skipped = o.where(skips, _after(o, alpha, 2), NEVER)
        following = o.add(_log_of_sum(o, [alpha, _after(o, alpha, 1), skipped]), probabilities)
        inside = o.expand_dims(o.less(number, input_lengths), -1)
        return o.where(inside, following, alpha), ()

    alpha, _ = o.scan(turn, start, (emitted, o.iota((turns,), 0)))
    end = o.multiply(o.expand_dims(target_lengths, -1), 2)
    last, blank_before = (o.max(o.where(o.equal(place, o.subtract(end, k)), alpha, NEVER), axis=-1) for k in (0, 1))
    return o.subtract(0, _log_of_sum(o, [last, blank_before]))  # 0 and not -0 where it is certain


def _lengths(what: str, value: TensorLike, n: Size) -> Tensor:
    lengths = lift(value)
    if is_floating(lengths.dtype) or lengths.ndim > 1:
        raise GraphError(f"ctc_loss: expected {what} (N,) of integers, actual {lengths.name!r} {lengths.type}")
    lengths = FUNCTIONS.astype(FUNCTIONS.reshape(lengths, (1,)) if lengths.ndim == 0 else lengths, int64)
    require_equal(n, lengths.shape[0], "ctc_loss", f"number of {what} {lengths.type} for the batch")
    return lengths


def _padded_targets(targets: Tensor, target_lengths: TensorLike, n: Size) -> Tensor:
    """Labels one after the other, (ΣS,), as rows (N, S)."""
    if isinstance(target_lengths, Tensor) or not isinstance(n, int):
        raise GraphError(
            f"ctc_loss: expected target_lengths that are known for targets one after the other, {targets.name!r}"
            f" {targets.type}, actual {target_lengths!r} (or targets (N, S))"
        )
    lengths = np.asarray(target_lengths, np.int64).reshape(-1)
    total = int(lengths.sum())
    if len(lengths) != n or targets.shape[0] != total:
        raise GraphError(f"ctc_loss: expected {total} targets for target_lengths {lengths}, actual {targets.type}")
    starts = np.cumsum(lengths) - lengths
    places = starts[:, None] + np.arange(int(lengths.max(initial=0)))
    if total == 0:
        return FUNCTIONS.zeros((n, 0), dtype=targets.dtype)
    return FUNCTIONS.take(targets, np.minimum(places, total - 1), axis=0)


@public
@shown_as("CtcLossBackward0")
def ctc_loss(
    log_probs: TensorLike,
    targets: TensorLike,
    input_lengths: TensorLike,
    target_lengths: TensorLike,
    blank: int = 0,
    reduction: Literal["none", "mean", "sum"] = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """The negative logarithm of the probability that sequences say their labels, whatever the alignment.

    The gradient is by ``log_probs`` themselves; PyTorch's has the derivative of a ``log_softmax`` in it already, which
    makes no difference to what this is taken of.

    Args:
        log_probs: (T, N, C) or (T, C), logarithms of probabilities, as ``log_softmax`` gives.
        targets: (N, S) labels, of each row the first ``target_lengths``; or all of them one after the other; without
            the batch (S,).
        input_lengths: (N,) numbers of turns that count, at most T.
        target_lengths: (N,) numbers of labels.
        blank: the class that is no label.
        reduction: ``"mean"`` divides each loss by its number of labels (at least 1) and takes the mean of the batch;
            ``"sum"``; ``"none"``.
        zero_infinity: losses of labels that no alignment says, as there are too few turns, are 0 instead of infinite,
            and so are their gradients.

    Returns:
        A number, or with ``"none"`` (N,), without the batch ().

    Raises:
        GraphError: sizes that do not agree, a blank that is no class, or labels that are no integers.

    Example:
        >>> log_probs = sg.log(sg.constant([[[0.6, 0.4]], [[0.5, 0.5]]]))
        >>> loss = sg.nn.ctc_loss(log_probs, [[1]], [2], [1])
        >>> sg.Session().run(sg.exp(-sg.stack([loss]))).round(3)  # 1 and 1, 0 and 1, 1 and 0
        array([0.7], dtype=float32)
    """
    o, what = FUNCTIONS, "ctc_loss"
    x, labels = lift(log_probs), lift(targets)
    check_reduction(reduction, what)
    if x.ndim not in (2, 3) or not is_floating(x.dtype):
        raise GraphError(f"{what}: expected floating log_probs (T, N, C) or (T, C), actual {x.name!r} {x.type}")
    if is_floating(labels.dtype) or labels.ndim not in (1, 2):
        raise GraphError(f"{what}: expected targets (N, S) of integers, actual {labels.name!r} {labels.type}")
    single = x.ndim == 2
    x = o.expand_dims(x, 1) if single else x
    n, classes = x.shape[1:]
    blank = integer(blank, f"{what}: blank", 0)
    if isinstance(classes, int) and blank >= classes:
        raise GraphError(f"{what}: expected a blank below the number of classes of {x.type}, actual {blank}")
    if labels.ndim == 1:
        labels = o.expand_dims(labels, 0) if single else _padded_targets(labels, target_lengths, n)
    require_equal(n, labels.shape[0], what, f"number of rows of the targets {labels.type} for the batch of {x.type}")
    turns, counts = _lengths("input_lengths", input_lengths, n), _lengths("target_lengths", target_lengths, n)
    labels = o.astype(labels, int64)
    # What stands after the labels of a row is read, and counts for nothing.
    labels = o.where(o.less(o.iota(labels.shape, 1), o.expand_dims(counts, -1)), labels, blank)

    def loss(x: Tensor) -> Tensor:
        rows = _losses(o, x, labels, turns, counts, blank)
        if zero_infinity:
            rows = o.where(o.equal(rows, math.inf), 0, rows)
        if reduction == "mean":
            return o.mean(o.divide(rows, o.astype(o.maximum(counts, 1), rows.dtype)))
        if reduction == "sum":
            return o.sum(rows)
        return o.squeeze(rows, 0) if single else rows

    return rounded_once(loss, x)
