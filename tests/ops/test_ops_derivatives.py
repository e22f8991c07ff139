"""Derivatives where they are delicate: behind a ``where``, at ties, kinks, zeros and infinities, in second order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import staticgrad as sg


@pytest.fixture(autouse=True)
def references(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    with sg.Graph():
        yield


def slope(fn: Callable[[Any], Any], at: Any) -> Any:
    at = np.asarray(at, np.float64)
    x = sg.placeholder(at.shape, sg.float64)
    return sg.Session().run(sg.gradients(fn(x), [x]), {x: at})[0]


@pytest.mark.parametrize(
    "fn",
    [
        sg.log, sg.sqrt, sg.rsqrt, sg.reciprocal, sg.acosh, lambda x: x * sg.log(x), lambda x: x / x, lambda x: x**0.5,
        lambda x: x**x, lambda x: sg.exp(1000 / x), lambda x: sg.exp(-1e6 * x + 1e6), lambda x: sg.log(sg.sqrt(x) * x),
        lambda x: sg.logsumexp(sg.stack([sg.log(x), x]), 0), lambda x: sg.erfinv(x + 1.0), lambda x: sg.atan2(x, x),
        lambda x: sg.hypot(x, x) / x, lambda x: 1 / sg.sqrt(x * x),
    ],
)  # fmt: skip
def test_the_branch_not_chosen_contributes_zero_in_every_order(fn: Callable[[Any], Any]) -> None:
    x = sg.placeholder((3,), sg.float64)
    y = sg.where(x > 0.5, 3.0 * x * x, fn(x))
    y = sg.where(x > 0.5, y, 3.0 * x * x)
    (first,) = sg.gradients(y, [x])
    (second,) = sg.gradients(first, [x])
    (tangent,) = sg.jvp(y, [x], [np.ones(3)])
    at = np.array([0.0, -1.0, 2.0])
    got = sg.Session().run([first, second, tangent], {x: at})
    np.testing.assert_array_equal(got[0], 6 * at)
    np.testing.assert_array_equal(got[1], np.full(3, 6.0))
    np.testing.assert_array_equal(got[2], 6 * at)


def test_a_cotangent_that_is_zero_by_chance_still_varies() -> None:
    """At the minimum of a square the first derivative is zero and the second is not."""
    x = sg.placeholder((2,), sg.float64)
    curvature = sg.hessian(sg.sum((sg.sqrt(x) - 2.0) ** 2), x)
    got = sg.Session().run(curvature, {x: np.array([4.0, 4.0])})
    np.testing.assert_allclose(got, np.eye(2) / 8)


@pytest.mark.parametrize(
    ("fn", "at", "expected"),
    [
        (lambda x: sg.maximum(x, 1.0), [0.0, 1.0, 2.0], [0, 0.5, 1]),
        (lambda x: sg.minimum(x, 1.0), [0.0, 1.0, 2.0], [1, 0.5, 0]),
        (sg.max, [1.0, 3.0, 3.0, 3.0], [0, 1 / 3, 1 / 3, 1 / 3]),
        (sg.min, [1.0, 1.0, 3.0], [0.5, 0.5, 0]),
        (sg.abs, [-2.0, 0.0, 2.0], [-1, 0, 1]),
        (sg.sign, [-2.0, 0.0, 2.0], [0, 0, 0]),
        (sg.nn.relu, [-1.0, 0.0, 1.0], [0, 0, 1]),
        (sg.nn.relu6, [0.0, 3.0, 6.0], [0, 1, 0]),
        (lambda x: sg.clip(x, -1, 1), [-2.0, -1.0, 0.0, 1.0, 2.0], [0, 1, 1, 1, 0]),
        (lambda x: sg.clip(x, 1, -1), [-2.0, 0.0, 2.0], [0, 0, 0]),
        (lambda x: x**2, [0.0, -3.0], [0, -6]),
        (lambda x: x**0, [0.0, 2.0], [0, 0]),
        (lambda x: x**3, [0.0, 2.0], [0, 12]),
        (lambda x: 0.0**x, [0.0, 2.0], [0, 0]),
        (sg.sqrt, [0.0, 4.0], [math.inf, 0.25]),
        (lambda x: sg.std(x), [2.0, 2.0, 2.0], [0, 0, 0]),
        (lambda x: sg.hypot(x, x), [0.0], [0]),
        (sg.prod, [0.0, 2.0, 3.0], [6, 0, 0]),
        (sg.prod, [0.0, 2.0, 0.0], [0, 0, 0]),
        (sg.logsumexp, [-math.inf, -math.inf], [0, 0]),
        (sg.logsumexp, [-math.inf, 1.0], [0, 1]),
        (sg.logsumexp, [1.0, math.inf], [0, 1]),
        (lambda x: sg.where(x > 0, x, 0.0), [-1.0, 2.0], [0, 1]),
    ],
)  # fmt: skip
def test_ties_kinks_and_limits(fn: Callable[[Any], Any], at: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(slope(fn, at), expected, rtol=1e-14)


@pytest.mark.parametrize("at", [[2.0, 3.0, 5.0], [0.0, 3.0, 5.0], [0.0, 3.0, 0.0], [0.0, 0.0, 0.0]])
def test_the_second_derivative_of_a_product_is_right_at_zeros(at: list[float]) -> None:
    x = sg.placeholder((3,), sg.float64)
    got = sg.Session().run(sg.hessian(sg.prod(x), x), {x: np.array(at)})
    a, b, c = at
    np.testing.assert_array_equal(got, [[0, c, b], [c, 0, a], [b, a, 0]])


@pytest.mark.parametrize("at", [[2.0, 3.0, 5.0], [0.0, 3.0, 5.0], [0.0, 3.0, 0.0], [7.0], []])
def test_the_second_derivative_of_a_product_over_an_open_size_is_right_at_zeros(at: list[float]) -> None:
    x, t = (sg.placeholder((None,), sg.float64) for _ in range(2))
    (slope,) = sg.gradients(sg.prod(x), x)
    ways = [sg.jvp(slope, x, t)[0], sg.gradients(slope, x, t)[0]]
    u = np.arange(1.0, len(at) + 1)
    others = [[0.0 if i == j else np.prod(np.delete(at, [i, j])) for j in range(len(at))] for i in range(len(at))]
    for got in sg.Session().run(ways, {x: np.array(at), t: u}):
        np.testing.assert_allclose(got, np.array(others).reshape(len(at), len(at)) @ u)


def test_the_running_product_of_an_open_size_that_is_zero_has_a_derivative() -> None:
    x = sg.placeholder((None,), sg.float64)
    (slope,) = sg.gradients(sg.cumulative_prod(x), x)
    assert sg.Session().run(slope, {x: np.zeros(0)}).shape == (0,)


def test_a_flat_standard_deviation_has_second_derivatives_of_zero_in_every_mode() -> None:
    x, t = (sg.placeholder((3,), sg.float64) for _ in range(2))
    slopes = [sg.gradients(sg.std(x), x)[0], sg.jvp(sg.std(x), x, t)[0]]
    ways = [*(sg.gradients(slope, x)[0] for slope in slopes), *(sg.jvp(slope, x, t)[0] for slope in slopes)]
    for got in sg.Session().run(ways, {x: np.full(3, 2.0), t: np.array([1.0, -1.0, 3.0])}):
        np.testing.assert_array_equal(got, np.zeros_like(got))


def test_a_norm_below_one_has_the_derivative_zero_by_elements_that_are_zero() -> None:
    np.testing.assert_allclose(slope(lambda x: sg.linalg.vector_norm(x, ord=0.5), [0.0, 4.0, 9.0]), [0, 2.5, 5 / 3])


def test_the_angle_of_the_origin_has_the_derivative_zero() -> None:
    np.testing.assert_array_equal(slope(lambda x: sg.atan2(x, x * 2), [0.0, 1.0]), [0, 0])


def test_reductions_over_sizes_that_feeds_bind() -> None:
    x = sg.placeholder((None, 2), sg.float64)
    at = np.array([[1.0, 2.0], [0.0, 5.0], [4.0, 3.0]])
    for fn, expected in (
        (lambda v: sg.mean(v, 0), np.full((3, 2), 1 / 3)),
        (lambda v: sg.var(v, 0, correction=1), at - at.mean(0)),
        (lambda v: sg.prod(v, 0), np.array([[0, 15.0], [4, 6], [0, 10]])),
        (lambda v: sg.max(v, 0), np.array([[0, 0.0], [0, 1], [1, 0]])),
    ):
        (dx,) = sg.gradients(fn(x), [x])
        np.testing.assert_allclose(sg.Session().run(dx, {x: at}), expected, rtol=1e-14)


def _sigmoid(x: Any) -> Any:
    decay = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, decay) / (1 + decay)


@pytest.mark.parametrize("backend", ["compiled", "reference"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_loss_of_a_confident_logit_has_the_derivative_of_what_is_missing(
    backend: str, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """σ(40) - 1 was 0 and not -4.2e-18: the difference of two numbers that round to one."""
    monkeypatch.setenv("STATICGRAD_BACKEND", backend)
    at = np.array([-80.0, -40.0, -20.0, -1.0, 0.0, 1.0, 20.0, 40.0, 80.0])
    near, far = _sigmoid(at), _sigmoid(-at)
    x = sg.placeholder(at.shape, dtype)
    fetches, expected = [], []
    for t, weight, positive in ((0.0, 1.0, 1.0), (1.0, 1.0, 1.0), (1.0, 0.5, 3.0), (0.25, 2.0, 1.0), (0.75, 1.0, 4.0)):
        loss = sg.nn.binary_cross_entropy_with_logits(x, np.full(9, t, dtype), weight, "sum", positive)
        (first,) = sg.gradients(loss, [x])
        fetches += [first, *sg.gradients(first, [x])]
        expected += [
            weight * ((1 - t) * near - positive * t * far),
            weight * (1 - t + positive * t) * near * far,
        ]
    (kept,) = sg.gradients(sg.nn.log_sigmoid(x), [x])
    (risen,) = sg.gradients(sg.nn.softplus(x, threshold=1e3), [x])
    got = sg.Session().run([*fetches, kept, risen], {x: at.astype(dtype)})
    for value, want in zip(got, [*expected, far, near], strict=True):
        np.testing.assert_allclose(value, want, rtol=20 * float(np.finfo(dtype).eps), atol=np.finfo(dtype).tiny)


@pytest.mark.parametrize(
    ("dtype", "scale"), [("float32", 1e-25), ("float32", 1e25), ("float64", 1e-200), ("float64", 1e200)]
)
def test_the_derivative_of_an_angle_does_not_vanish_with_the_square_of_the_length(dtype: str, scale: float) -> None:
    y, x = (sg.placeholder((), dtype) for _ in range(2))
    found = sg.Session().run(sg.gradients(sg.atan2(y, x), [y, x]), {y: 3 * scale, x: 4 * scale})
    np.testing.assert_allclose(np.array(found, np.float64) * scale, [0.16, -0.12], rtol=1e-5)
