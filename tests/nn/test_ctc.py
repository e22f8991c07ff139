"""``ctc_loss`` beside the sum over all alignments, its derivatives, and what it refuses."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import staticgrad as sg

RNG = np.random.default_rng(17)


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Derivatives are right in graphs; what these are compiled to is right by tests of their ops."""
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")


def said(alignment: tuple[int, ...], blank: int) -> list[int]:
    """The labels of an alignment: repeated ones once, then without blanks."""
    return [label for label, _ in itertools.groupby(alignment) if label != blank]


def summed(log_probs: np.ndarray, labels: list[int], blank: int) -> float:
    """The loss of one sequence (T, C), by all alignments."""
    turns, classes = log_probs.shape
    total = -np.inf
    for alignment in itertools.product(range(classes), repeat=turns):
        if said(alignment, blank) == labels:
            total = np.logaddexp(total, sum(log_probs[t, label] for t, label in enumerate(alignment)))
    return float(-total)


def log_probabilities(*shape: int) -> np.ndarray:
    x = RNG.normal(size=shape)
    return np.asarray(x - scipy.special.logsumexp(x, axis=-1, keepdims=True))


ROWS = [([1, 2], 5), ([2, 2], 5), ([], 4), ([0], 1), ([1, 1], 2), ([], 0), ([2], 0), ([2, 0, 2], 5)]


@pytest.mark.parametrize("blank", [0, 3])
def test_the_loss_sums_over_all_alignments(blank: int) -> None:
    """Of rows that end early and labels that repeat, with too few turns for them, or none."""
    log_probs = log_probabilities(5, len(ROWS), 4)
    rows = [[label + (blank == 0) for label in labels] for labels, _ in ROWS]
    targets = np.array([(row + [blank + 17] * 3)[:3] for row in rows])  # what stands after the labels is not read
    turns, counts = [turns for _, turns in ROWS], [len(row) for row in rows]
    want = np.array([
        summed(log_probs[:turn, number], row, blank) for number, (row, turn) in enumerate(zip(rows, turns, strict=True))
    ])  # fmt: skip
    x = sg.placeholder(log_probs.shape, sg.float64)

    def loss(*options: Any) -> sg.Tensor:
        return sg.nn.ctc_loss(x, targets, turns, counts, blank, *options)

    finite = np.where(np.isinf(want), 0, want)
    one_after_the_other = sg.nn.ctc_loss(x, np.concatenate(rows).astype(int), turns, counts, blank, "none")
    each, same, zeroed, mean, total = sg.Session().run(
        [loss("none"), one_after_the_other, loss("none", True), loss("mean", True), loss("sum", True)], {x: log_probs}
    )
    assert np.isinf(want).sum() == 2
    np.testing.assert_allclose(each, want, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(each, same)
    np.testing.assert_allclose(zeroed, finite, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(mean, np.mean(finite / np.maximum(counts, 1)), rtol=1e-12)
    np.testing.assert_allclose(total, finite.sum(), rtol=1e-12)


@pytest.mark.usefixtures("interpreted")
def test_the_loss_has_derivatives_in_both_modes_and_none_where_no_alignment_is() -> None:
    x, targets = log_probabilities(4, 3, 3), np.array([[1, 2], [2, 2], [2, 2]])
    sg.check_gradients(lambda x: sg.nn.ctc_loss(x[:, :2], targets[:2], [4, 3], [2, 2]), [x])
    feed = sg.placeholder(x.shape, sg.float64)
    (slope,) = sg.gradients(
        sg.nn.ctc_loss(feed, targets, [4, 3, 2], [2, 2, 2], reduction="sum", zero_infinity=True), feed
    )
    got = sg.Session().run(slope, {feed: x})
    assert np.isfinite(got).all()
    assert not got[:, 2].any()
    assert not got[3, 1].any()  # beyond the turns that count
    np.testing.assert_allclose(got[:, 0].sum(-1), -1, rtol=1e-12)  # in each turn some label is said


@pytest.mark.usefixtures("interpreted")
def test_the_loss_of_one_sequence_and_over_examples() -> None:
    x = log_probabilities(3, 5, 4)
    losses = [sg.nn.ctc_loss(sg.constant(one), [1, 3], 5, 2) for one in x]
    many = sg.vmap(lambda one: sg.nn.ctc_loss(one, [1, 3], 5, 2))(sg.constant(x))
    one_by_one, together = sg.Session().run([losses, many])
    np.testing.assert_allclose(one_by_one, together, rtol=1e-12)
    np.testing.assert_allclose(together, [summed(one, [1, 3], 0) / 2 for one in x], rtol=1e-12)


def test_the_lengths_may_be_fed_and_the_batch_is_open() -> None:
    n = sg.dim("n")
    x, targets = sg.placeholder((5, n, 4), sg.float64), sg.placeholder((n, 2), sg.int32)
    turns, counts = sg.placeholder((n,), sg.int32), sg.placeholder((n,), sg.int32)
    loss = sg.nn.ctc_loss(x, targets, turns, counts, reduction="none")
    with sg.Session() as session:
        for size in (1, 4):
            value, rows = log_probabilities(5, size, 4), RNG.integers(1, 4, size=(size, 2))
            got = session.run(loss, {x: value, targets: rows.astype(np.int32), turns: [5] * size, counts: [2] * size})
            np.testing.assert_allclose(got, [summed(value[:, i], list(rows[i]), 0) for i in range(size)], rtol=1e-12)


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda x: sg.nn.ctc_loss(x, [[1]], [5], [1], blank=4), "a blank below the number of classes"),
        (lambda x: sg.nn.ctc_loss(x, [[1.0]], [5], [1]), "targets .* of integers"),
        (lambda x: sg.nn.ctc_loss(x, [[1]], [5.0], [1]), "input_lengths .* of integers"),
        (lambda x: sg.nn.ctc_loss(x, [[1], [2]], [5], [1]), "number of rows of the targets"),
        (lambda x: sg.nn.ctc_loss(x, [1, 2], [5], [1]), "expected 1 targets"),
        (lambda x: sg.nn.ctc_loss(x, [1], [5], sg.placeholder((1,), sg.int64)), "target_lengths that are known"),
        (lambda x: sg.nn.ctc_loss(x, [[1]], [5], [1], reduction="all"), "reduction='all'"),
        (lambda x: sg.nn.ctc_loss(x[0, 0], [[1]], [5], [1]), "expected floating log_probs"),
    ],
)
def test_what_makes_no_loss_is_refused(declare: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(sg.GraphError, match=words):
        declare(sg.zeros((5, 1, 4)))
