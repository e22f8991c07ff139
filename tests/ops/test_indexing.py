"""Indexing against NumPy's own: values, gradients and scatters; indices out of range found in the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import staticgrad as sg

LINE, TABLE = np.array([0, -1, 2]), np.array([[1, 0, -2], [3, 3, 1]])
X = np.random.default_rng(0).standard_normal((4, 5, 6))
ALL = slice(None)

KEYS: list[Any] = [
    1, -1, (1, -2, 3), slice(1, 3), slice(None, None, -1), (ALL, slice(4, 0, -2)), (..., 2), (1, None, ..., None),
    slice(3, 1), (slice(-2, None), slice(None, -1), slice(5, None, -3)), LINE, (LINE, LINE), (ALL, LINE),
    (LINE, ALL, LINE), (0, ALL, LINE), (ALL, 0, LINE), (slice(1, None), TABLE, LINE), (TABLE, slice(1, 4), 0),
    (..., LINE), (LINE, None, LINE), (ALL, None, LINE, slice(None, None, 2)), (ALL, LINE, None, 2), [0, 1], [],
    (np.array(1), ALL, LINE), (ALL, ALL, TABLE),
]  # fmt: skip


@pytest.fixture(autouse=True)
def references(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What indexing means; that compiled programs mean the same is tested for every op."""
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    with sg.Graph():
        yield


def with_tensors(key: Any, feeds: dict[sg.Tensor, Any]) -> Any:
    """The key with every array of it fed."""
    parts = key if isinstance(key, tuple) else (key,)
    result = []
    for part in parts:
        if isinstance(part, np.ndarray | list):
            array = np.asarray(part, np.int64)
            part = sg.placeholder(array.shape, sg.int64)
            feeds[part] = array
        result.append(part)
    return tuple(result)


@pytest.mark.parametrize("free", [False, True], ids=["known sizes", "free size"])
@pytest.mark.parametrize("fed", [False, True], ids=["constant", "fed"])
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_reading_and_its_gradient(key: Any, fed: bool, free: bool) -> None:
    feeds: dict[sg.Tensor, Any] = {}
    x = sg.placeholder((None, 5, 6) if free else X.shape, sg.float64)
    feeds[x] = X
    y = x[with_tensors(key, feeds) if fed else key]
    weights = np.random.default_rng(1).standard_normal(X[key].shape)
    (dx,) = sg.gradients(y, [x], [weights])
    value, gradient = sg.Session().run([y, dx], feeds)
    np.testing.assert_array_equal(value, X[key])
    expected = np.zeros_like(X)
    np.add.at(expected, key, weights)
    np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mode", ["set", "add", "max", "min"])
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_scatter(key: Any, mode: str) -> None:
    updates = np.random.default_rng(1).standard_normal(X[key].shape)
    expected = X.copy()
    if mode == "set":
        expected[key] = updates
    else:
        {"add": np.add, "max": np.maximum, "min": np.minimum}[mode].at(expected, key, updates)
    x = sg.placeholder(X.shape, sg.float64)
    feeds: dict[sg.Tensor, Any] = {x: X}
    results = [sg.scatter(x, key, updates, mode), sg.scatter(x, with_tensors(key, feeds), updates, mode)]
    for value in sg.Session().run(results, feeds):
        np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("shape", "key"), [((1,), 0), ((1,), -1), ((), ()), ((3,), ...), ((3,), slice(None))])
def test_a_scatter_over_all_elements_still_requires_the_gradient_of_what_it_replaces(shape: Any, key: Any) -> None:
    x = sg.placeholder(shape, sg.float64, requires_grad=True)
    y = sg.sum(sg.scatter(x, key, 5.0))
    assert y.requires_grad
    (dx,) = sg.gradients(y, x, unconnected_gradients="error")
    sess = sg.Session()
    sess.forward(y, {x: np.ones(shape)}).backward(y)
    np.testing.assert_array_equal(sess.grad(x), np.zeros(shape))
    np.testing.assert_array_equal(sess.run(dx, {x: np.ones(shape)}), np.zeros(shape))


def test_results_that_are_constant_still_require_the_gradient_of_their_operand() -> None:
    x = sg.placeholder((3, 3), sg.float64, requires_grad=True)
    for y in (sg.linalg.matrix_power(x, 0), sg.linalg.vector_norm(x, ord=0)):
        assert y.requires_grad
        (dx,) = sg.gradients(y, x, unconnected_gradients="error")
        np.testing.assert_array_equal(sg.Session().run(dx, {x: np.ones((3, 3))}), np.zeros((3, 3)))


def test_scatter_broadcasts_and_keeps_narrow_dtypes() -> None:
    flags = sg.placeholder((4,), sg.bool)
    got = sg.Session().run(sg.scatter(flags, [1, -1], True), {flags: np.zeros(4, bool)})
    np.testing.assert_array_equal(got, [False, True, False, True])


def test_the_gradient_of_a_scatter_goes_where_the_value_comes_from() -> None:
    x, u = sg.placeholder((3,), sg.float64), sg.placeholder((2,), sg.float64)
    i = sg.placeholder((2,), sg.int64)
    weights = np.array([1.0, 10.0, 100.0])
    feeds = {x: np.ones(3), u: np.array([5.0, 7.0]), i: np.array([1, 1])}
    for mode, dx, du in (("set", [1, 0, 100], [0, 10]), ("add", [1, 10, 100], [10, 10]), ("max", [1, 0, 100], [0, 10])):
        y = sg.scatter(x, i, u, mode)
        got = sg.Session().run(sg.gradients(y, [x, u], [weights]), feeds)
        np.testing.assert_array_equal(got[0], dx)
        np.testing.assert_array_equal(got[1], du)


@pytest.mark.parametrize(
    "key", [np.s_[:, np.array(2)], np.s_[1:3, :, np.array(-1)], np.s_[np.array([3]), :, 0]], ids=str
)
def test_one_place_is_written_by_one_pass_over_a_copy(key: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", "compiled")
    x, u = sg.placeholder(X.shape, sg.float64), sg.placeholder(X[key].shape, sg.float64)
    feeds: dict[sg.Tensor, Any] = {x: X, u: -X[key] - 1}
    y = sg.scatter(x, with_tensors(key, feeds), u)
    write = sg.Session().compile([y, *sg.gradients(y, [x, u], [X])], list(feeds))
    expected, dx = X.copy(), X.copy()
    expected[key], dx[key] = feeds[u], 0
    for value, want in zip(write(*feeds.values()), [expected, dx, X[key]], strict=True):
        np.testing.assert_allclose(value, want, rtol=1e-12)
    alone = sg.Session().compile(y, list(feeds))
    alone(*feeds.values())
    assert alone.memory.arena_bytes < X.nbytes


def test_take_and_take_along_axis() -> None:
    x = sg.constant(X)
    order = np.argsort(X, axis=1)
    got = sg.Session().run(
        [sg.take(x, TABLE, axis=1), sg.take(x, LINE), sg.take_along_axis(x, order, axis=1),
         sg.take_along_axis(x, order[:, :2, :1], axis=1)]
    )  # fmt: skip
    expected = [np.take(X, TABLE, axis=1), np.take(X, LINE), np.take_along_axis(X, order, axis=1),
                np.take_along_axis(X, order[:, :2, :1], axis=1)]  # fmt: skip
    for value, want in zip(got, expected, strict=True):
        np.testing.assert_array_equal(value, want)


@pytest.mark.parametrize("wrong", [3, -4])
def test_indices_out_of_range_are_found_in_the_run_also_by_gradients_alone(wrong: int) -> None:
    x, i = sg.placeholder((3, 2)), sg.placeholder((2,), sg.int32)
    feeds = {x: np.zeros((3, 2), np.float32), i: np.array([0, wrong], np.int32)}
    fetches = [x[i], *sg.gradients(x[i], [x]), sg.scatter(x, i, 1.0, "add"), sg.scatter(x, i, 1.0)]
    for fetch in fetches:
        with pytest.raises(sg.BoundsError):
            sg.Session().run(fetch, feeds)


def test_labels_out_of_range_are_found_in_the_run() -> None:
    labels = sg.placeholder((2,), sg.int64)
    hot = sg.nn.one_hot(labels, 3)
    np.testing.assert_array_equal(sg.Session().run(hot, {labels: [0, 2]}), [[1, 0, 0], [0, 0, 1]])
    for wrong in (3, -1):
        with pytest.raises(sg.BoundsError):
            sg.Session().run(hot, {labels: [0, wrong]})


def test_an_index_that_repeats_one_row_adds_each_of_its_uses_to_the_gradient() -> None:
    """The rows are all the same, so the kernel that also sums them computes one; the gradient still counts them all."""
    with sg.Graph() as graph:
        x = sg.placeholder((1, 1), sg.float64)
        y = sg.take(x, sg.constant(np.array([0, 0, 0])), axis=0)
        loss = sg.sum(y * y)
        (gradient,) = sg.gradients(loss, [x])
        value, got = sg.Session(graph).run([loss, gradient], {x: np.array([[2.0]])})
    assert (value, got[0, 0]) == (12.0, 12.0)
