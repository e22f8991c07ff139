"""The public contract of indexing: keys, indices out of range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staticgrad as sg

pytestmark = pytest.mark.usefixtures("g")

KEYS: tuple[Any, ...] = (
    0, -1, slice(None), slice(1, None), slice(None, None, -1), slice(3, 0, -2), slice(-2, 100), ..., None,
    (0, 1, 2), (..., 0), (slice(None), None, 1), (None, ..., None), (slice(0, 0),), (1, ..., slice(None, None, 2)),
    [0, 2, -1], (slice(None), [2, 0]), ([0, 1], [1, 2]), ([[0], [1]], [1, 2]), (slice(None), [0, 1], [1, 1]),
    ([0, 1], slice(None), [1, 0]), (0, slice(None), [1, 0]), ([0, 1], ..., 1), (np.array([1, 1, 0]), None),
    (slice(1, 3), [0, 1], ..., 1), (None, [2, 0], ..., 1, slice(None)), (slice(1, 3), -1, [0, 3, -4]), np.int64(2),
    np.array(1), np.zeros((0,), np.int64),
)  # fmt: skip


def as_key(key: Any) -> Any:
    if isinstance(key, list):
        return np.array(key)
    return tuple(map(as_key, key)) if isinstance(key, tuple) else key


def test_indexing_is_numpys(backend: str) -> None:
    x = sg.placeholder((4, 3, 4), requires_grad=True)
    a = np.random.default_rng(0).normal(size=(4, 3, 4)).astype(np.float32)
    results = [x[as_key(key)] for key in KEYS]
    gradients = sg.gradients([sg.sum(r * r) for r in results], x)
    *values, gradient = sg.Session(x.graph).run([*results, *gradients], {x: a})
    expected = np.zeros_like(a)
    for key, got, result in zip(KEYS, values, results, strict=True):
        wanted = a[as_key(key)]
        assert got.shape == result.shape == wanted.shape, key
        np.testing.assert_array_equal(got, wanted)
        np.add.at(expected, as_key(key), 2 * wanted)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5)


def test_indexing_by_tensors(backend: str) -> None:
    x = sg.placeholder((4, 3))
    i, j = sg.placeholder((2,), sg.int64), sg.placeholder((), sg.int32)
    a = np.arange(12, dtype=np.float32).reshape(4, 3)
    results = [x[i], x[j], x[:, j], x[i, i], x[1:, i], x[i[:, None], sg.arange(3)], x[j, ::-1], x[..., j, None]]
    vi, vj = np.array([2, -3]), np.int32(-2)
    wanted = [a[vi], a[vj], a[:, vj], a[vi, vi], a[1:, vi], a[vi[:, None], np.arange(3)], a[vj, ::-1], a[..., vj, None]]
    for got, expected in zip(sg.Session(x.graph).run(results, {x: a, i: vi, j: vj}), wanted, strict=True):
        np.testing.assert_array_equal(got, expected)


BAD: dict[str, Callable[[sg.Tensor], Any]] = {
    "too many": lambda x: x[0, 0, 0],
    "mask": lambda x: x[np.array([True, False, True])],
    "mask tensor": lambda x: x[x > 0],
    "mask of a row": lambda x: x[0, np.array([True, False, True])],
    "floats": lambda x: x[np.array([0.5])],
    "text": lambda x: x["name"],
    "two ellipses": lambda x: x[..., ...],
    "float": lambda x: x[1.0],
}


@pytest.mark.parametrize("kind", BAD)
def test_keys_that_are_refused(kind: str) -> None:
    x = sg.placeholder((3, 3))
    with pytest.raises((sg.GraphError, IndexError, TypeError)) as caught:
        BAD[kind](x)
    if "mask" in kind:
        assert isinstance(caught.value, sg.GraphError)
        assert "sg.where" in str(caught.value)


@pytest.mark.parametrize(
    "declare",
    [
        lambda x: x[3], lambda x: x[-4], lambda x: x[:, 5], lambda x: x[np.array([0, 3])], lambda x: x[0, [0, -4]],
        lambda x: sg.take(x, np.array([9]), axis=0), lambda x: x[np.int64(7)],
        lambda x: sg.nn.cross_entropy(x, np.array([0, 1, 3])),
    ],
)  # fmt: skip
def test_constant_indices_are_checked_when_declared(declare: Callable[[sg.Tensor], Any]) -> None:
    x = sg.placeholder((3, 3))
    with pytest.raises(sg.BoundsError, match=r"test_contract_indexing\.py") as caught:
        declare(x)
    assert isinstance(caught.value, IndexError)


RUNTIME: dict[str, Callable[[sg.Tensor, sg.Tensor], sg.Tensor]] = {
    "index": lambda x, i: x[i],
    "column": lambda x, i: x[:, i],
    "take": lambda x, i: sg.take(x, i, axis=1),
    "along": lambda x, i: sg.take_along_axis(x, i[:, None], axis=1),
    "label": lambda x, i: sg.nn.cross_entropy(x, i),
    "embedding": lambda x, i: sg.nn.embedding(i, x),
    "scatter": lambda x, i: sg.scatter(x, i, x),
    "gradient": lambda x, i: sg.gradients(sg.sum(x[i] * x[i]), x)[0],
}


@pytest.mark.parametrize("kind", RUNTIME)
def test_fed_indices_are_checked_before_memory_is_touched(backend: str, kind: str) -> None:
    x, i = sg.placeholder((3, 3), name="x"), sg.placeholder((3,), sg.int64)
    y = RUNTIME[kind](x, i)
    sess = sg.Session(x.graph)
    a = np.ones((3, 3), np.float32)
    sess.run(y, {x: a, i: [0, 2, 1]})
    for bad in (3, 2**62, -(2**62), -4):
        with pytest.raises(sg.BoundsError, match=rf"(?s){bad} is out of range.*test_contract_indexing\.py"):
            sess.run(y, {x: a, i: [0, bad, 1]})
    sess.run(y, {x: a, i: [0, 2, 1]})


def test_ignored_labels_and_other_bad_ones(backend: str) -> None:
    x, t = sg.placeholder((3, 4), requires_grad=True), sg.placeholder((3,), sg.int32)
    loss = sg.nn.cross_entropy(x, t)
    (dx,) = sg.gradients(loss, x)
    sess = sg.Session(x.graph)
    a = np.zeros((3, 4), np.float32)
    value, gradient = sess.run([loss, dx], {x: a, t: np.array([1, -100, 3], np.int32)})
    np.testing.assert_allclose(value, np.log(4), rtol=1e-6)
    np.testing.assert_allclose(gradient, np.array([[1, -3, 1, 1], [0] * 4, [1, 1, 1, -3]]) / 8, rtol=1e-6)
    for bad in (-1, 4, -99):
        with pytest.raises(sg.BoundsError):
            sess.run(loss, {x: a, t: np.array([1, bad, 3], np.int32)})
