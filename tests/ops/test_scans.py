"""Running extremes and log-sums at ties, NaN and infinities, and scans of associative functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import staticgrad as sg

INF, NAN = math.inf, math.nan


@pytest.fixture(autouse=True)
def _graph() -> None:
    sg.reset_default_graph()


def run(fetches: Any, feeds: Any = None) -> Any:
    return sg.Session().run(fetches, feeds)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("largest", [True, False])
def test_running_extremes_go_to_the_last_of_equal_ones(largest: bool, reverse: bool) -> None:
    """As the loop that remembers where it has found the extreme: a later equal one, or a NaN, takes its place."""
    drawn = np.random.default_rng(7).integers(-3, 4, (4, 3, 41)).astype(np.float64)
    drawn[1, 2, 20], drawn[2, 0, 5], drawn[2, 0, 30] = NAN, NAN, NAN
    for axis in (0, 1, 2):
        function, better = (sg.cummax, np.greater_equal) if largest else (sg.cummin, np.less_equal)
        x = np.moveaxis(drawn, axis, 0)[:: -1 if reverse else 1]
        values, places = x.copy(), np.zeros(x.shape, np.int64)
        for k in range(1, len(x)):
            with np.errstate(invalid="ignore"):
                taken = np.isnan(x[k]) | (better(x[k], values[k - 1]) & ~np.isnan(values[k - 1]))
            values[k] = np.where(taken, x[k], values[k - 1])
            places[k] = np.where(taken, k, places[k - 1])
        weights = np.random.default_rng(8).standard_normal(drawn.shape)
        moved = np.moveaxis(weights, axis, 0)[:: -1 if reverse else 1]
        slope = np.zeros_like(x)
        np.add.at(slope, (places, *np.indices(x.shape)[1:]), moved)

        def back(y: Any, axis: int = axis) -> Any:
            return np.moveaxis(y[:: -1 if reverse else 1], 0, axis)

        p = sg.placeholder(drawn.shape, sg.float64)
        y, found = function(p, axis, reverse=reverse, return_indices=True)
        got = run([y, found, *sg.gradients(y, [p], [sg.constant(weights)])], {p: drawn})
        np.testing.assert_array_equal(got[0], back(values))
        np.testing.assert_array_equal(got[1], back(len(x) - 1 - places if reverse else places))
        np.testing.assert_allclose(got[2], back(slope), atol=1e-12)


def test_running_extremes_of_bools_and_over_open_sizes() -> None:
    flags = sg.placeholder((None,), sg.bool)
    x = sg.placeholder((None, None), sg.float32)
    fetches = [
        sg.cummax(flags),
        sg.cummin(flags),
        sg.cummax(x, 1),
        sg.cummin(x, 0, reverse=True),
        sg.logcumsumexp(x, 1),
    ]
    for n in (0, 1, 7, 40):
        a = np.random.default_rng(n).standard_normal((3, n)).astype(np.float32)
        b = a[0] > 0.5 if n else np.zeros(0, bool)
        got = run(fetches, {flags: b, x: a})
        np.testing.assert_array_equal(got[0], np.maximum.accumulate(b))
        np.testing.assert_array_equal(got[1], np.minimum.accumulate(b))
        np.testing.assert_array_equal(got[2], np.maximum.accumulate(a, 1))
        np.testing.assert_array_equal(got[3], np.minimum.accumulate(a[::-1], 0)[::-1])
        np.testing.assert_allclose(got[4], np.logaddexp.accumulate(a, 1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "row",
    [
        [1.0, 2.0, 3.0], [-INF, -INF, 1.0, -INF, 2.0], [1.0, INF, 3.0], [-INF, -INF], [-1000.0, 1000.0, -1000.0],
        [-INF, -800.0, 800.0, 0.0], [1.0, NAN, 2.0], [700.0] * 5,
    ],
)  # fmt: skip
def test_running_log_sums_at_infinities_and_their_derivatives(row: list[float]) -> None:
    x = sg.placeholder((len(row),), sg.float64)
    y = sg.logcumsumexp(x)
    shares = sg.jacobian(y, x)
    got, jacobian = run([y, shares], {x: np.array(row)})
    with np.errstate(all="ignore"):
        want = np.logaddexp.accumulate(np.array(row))
        np.testing.assert_allclose(got, want, rtol=1e-14, atol=1e-14)
        parts = np.exp(np.array(row)[None, :] - want[:, None])
    expected = np.tril(np.where(np.array(row)[None, :] == -INF, 0.0, parts))
    expected[~np.isfinite(want)[:, None] & (np.array(row)[None, :] == want[:, None]) & ~np.isneginf(want)[:, None]] = 1
    if not np.isnan(row).any():
        np.testing.assert_allclose(jacobian, np.tril(expected), rtol=1e-12, atol=1e-14)


def test_running_sums_and_products_from_the_end() -> None:
    a = np.random.default_rng(2).standard_normal((3, 9))
    got = run([sg.cumulative_sum(a, 1, reverse=True), sg.cumulative_prod(a, 0, reverse=True, include_initial=True)])
    np.testing.assert_allclose(got[0], np.cumsum(a[:, ::-1], 1)[:, ::-1])
    np.testing.assert_allclose(got[1], np.concatenate([np.cumprod(a[::-1], 0)[::-1], np.ones((1, 9))]))


def recurrence(f: Any, g: Any) -> Any:
    return f[0] * g[0], g[0] * f[1] + g[1]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 8, 13])
def test_scans_of_associative_functions(size: int, reverse: bool) -> None:
    rng = np.random.default_rng(size)
    a, b, m = rng.uniform(-1, 1, (2, size)), rng.standard_normal((2, size)), rng.standard_normal((size, 3, 3))
    made, known = sg.placeholder((2, None), sg.float64), sg.placeholder((2, size), sg.float64)
    scans = [sg.associative_scan(recurrence, (x, sg.constant(b)), 1, reverse=reverse)[1] for x in (known, made)]
    products = sg.associative_scan(lambda x, y: sg.matmul(x, y), sg.constant(m), reverse=reverse)
    pairs = zip(scans, (known, made), strict=True)
    slopes = [sg.gradients(y, [x], unconnected_gradients="zero")[0] for y, x in pairs]
    got = run([*scans, *slopes, products], {known: a, made: a})
    state, rows = np.zeros(2), []
    order = range(size)[:: -1 if reverse else 1]
    for k in order:
        state = a[:, k] * state + b[:, k]
        rows.append(state)
    want = np.stack(rows, 1)[:, :: -1 if reverse else 1]
    np.testing.assert_allclose(got[0], want, atol=1e-12)
    np.testing.assert_allclose(got[1], want, atol=1e-12)
    np.testing.assert_allclose(got[2], got[3], atol=1e-12)
    product = np.eye(3)
    for k in order:
        product = product @ m[k]
        np.testing.assert_allclose(got[4][k], product, atol=1e-9)


def test_a_scan_refuses_what_does_not_fit() -> None:
    with pytest.raises(sg.GraphError, match="expected tensors of one length along axis 0, actual"):
        sg.associative_scan(recurrence, (sg.zeros(3), sg.zeros(4)))
    with pytest.raises(sg.GraphError, match="fn changes types"):
        sg.associative_scan(lambda x, y: sg.sum(x + y), sg.zeros(4))
