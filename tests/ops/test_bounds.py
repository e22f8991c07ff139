"""Reads and writes at indices that may be out of range, and what becomes of updates that meet, beside loops."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import staticgrad as sg

MODES = ("set", "add", "mul", "mean", "max", "min")
X = np.random.default_rng(0).standard_normal((4, 5, 3))
INDICES = np.array([[0, -1, 9], [4, 2, -9], [2, 2, 0]])


@pytest.fixture(autouse=True)
def references(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The definitions of ops; that compiled programs compute the same is tested for every op, and at the end."""
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    with sg.Graph():
        yield


def run(fetches: Any, feeds: Any = None) -> Any:
    return sg.Session().run(fetches, feeds)


@pytest.mark.parametrize("fed", [False, True], ids=["constant", "fed"])
@pytest.mark.parametrize("free", [False, True], ids=["known size", "open size"])
def test_reads_out_of_range_are_clipped_or_filled(fed: bool, free: bool) -> None:
    x = sg.placeholder((4, None, 3) if free else X.shape, sg.float64)
    at = sg.placeholder(INDICES.shape, sg.int64) if fed else sg.constant(INDICES)
    feeds = {x: X, at: INDICES} if fed else {x: X}
    clipped, filled = sg.take(x, at, 1, bounds="clip"), sg.take(x, at, 1, bounds="fill", fill_value=7.0)
    along = sg.take_along_axis(x, sg.reshape(at, (1, 9, 1)), 1, bounds="fill")
    slopes = [sg.gradients(y, [x])[0] for y in (clipped, filled)]
    got = run([clipped, filled, along, *slopes], feeds)
    inside = (INDICES >= 0) & (INDICES < 5)
    near = np.clip(INDICES, 0, 4)
    np.testing.assert_array_equal(got[0], X[:, near])
    np.testing.assert_array_equal(got[1], np.where(inside[..., None], X[:, near], 7.0))
    np.testing.assert_array_equal(got[2], np.where(inside.reshape(1, 9, 1), X[:, near.ravel()], np.nan))
    for slope, counted in zip(got[3:], (np.ones(INDICES.shape), inside), strict=True):
        want = np.zeros(5)
        np.add.at(want, near, counted)
        np.testing.assert_array_equal(slope, np.broadcast_to(want[None, :, None], X.shape))


def written(x: Any, at: Any, updates: Any, mode: str, bounds: str, include_self: bool) -> Any:
    """Update by update, in order; sums and products of what meets are made first."""
    result, met = x.copy(), {}  # type: ignore[var-annotated]
    for place, update in zip(at.ravel(), updates.reshape(-1, *x.shape[1:]), strict=True):
        if bounds == "clip":
            place = min(max(place, 0), len(x) - 1)
        elif bounds == "error" and place < 0:
            place += len(x)
        if 0 <= place < len(x):
            met.setdefault(int(place), []).append(update)
    for place, rows in met.items():
        group = np.stack(([x[place]] if include_self and mode != "set" else []) + rows)
        total = group.sum(0)
        mean = total / len(group) if x.dtype.kind == "f" else total // len(group)
        ways = {
            "set": rows[-1],
            "add": total,
            "mul": group.prod(0),
            "mean": mean,
            "max": group.max(0),
            "min": group.min(0),
        }
        result[place] = ways[mode]
    return result


@pytest.mark.parametrize("dtype", [np.float64, np.int32])
@pytest.mark.parametrize("mode", MODES)
def test_writes_are_those_of_a_loop(mode: str, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    x, u = (rng.integers(-4, 5, (n, 3)).astype(dtype) for n in (5, 9))
    fetches, wanted = {}, {}
    feeds: dict[Any, Any] = {}
    for bounds, include, free in itertools.product(("error", "clip", "drop"), (True, False), (True, False)):
        at = rng.integers(-5, 5, 9) if bounds == "error" else rng.integers(-7, 9, 9)
        base = sg.placeholder((None, 3) if free else (5, 3), dtype)
        fed = sg.placeholder((9,), sg.int64)
        feeds |= {base: x, fed: at}
        key = bounds, include, free
        fetches[key] = [
            sg.scatter(base, where, u, mode, bounds=bounds, include_self=include) for where in (fed, sg.constant(at))
        ]
        wanted[key] = written(x, at, u, mode, bounds, include)
    got = run(fetches, feeds)
    for key, pair in got.items():
        for one in pair:
            np.testing.assert_allclose(one, wanted[key], rtol=1e-12, atol=1e-12, err_msg=str(key))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("include", [True, False])
def test_derivatives_of_writes_are_those_of_differences(mode: str, include: bool) -> None:
    rng = np.random.default_rng(2)
    values = rng.permutation(np.linspace(-2, 2, 14 * 2)).reshape(14, 2)
    values[[1, 6, 7]] = 0.0 if mode == "mul" else values[[1, 6, 7]]  # where factors are zero
    start, updates = values[:5], values[5:]
    at = np.array([1, 1, 0, 4, -1, 7, 3, 3, 1])

    def fn(x: Any, u: Any) -> Any:
        return sg.scatter(x, at, u, mode, bounds="drop", include_self=include)

    sg.check_gradients(fn, [start, updates])


@pytest.mark.parametrize("mode", MODES)
def test_a_promise_that_no_updates_meet_saves_looking_for_them(mode: str) -> None:
    x, u, at = X[:, 0, 0], np.array([3.0, -1.0, 0.5, 7.0]), np.array([2, 9, 0, -8])
    fed = sg.placeholder((4,), sg.int64)
    y = sg.scatter(x, fed, u, mode, bounds="drop", unique_indices=True)
    assert not [node for node in y.graph.nodes if node.op.name.startswith("sort")]
    np.testing.assert_allclose(run(y, {fed: at}), written(x, at, u, mode, "drop", True))


def test_equal_ones_share_the_gradient_of_an_extreme() -> None:
    x, u = sg.constant([1.0, 2.0, 3.0]), sg.constant([2.0, 2.0, 1.0, 5.0, 5.0])
    y = sg.scatter(x, [1, 1, 1, 2, 2], u, "max")
    found = run([*sg.gradients(y, [x, u]), sg.jvp(y, [x, u], [np.ones(3, np.float32), np.ones(5, np.float32)])[0]])
    np.testing.assert_allclose(found[0], [1, 1 / 3, 0])
    np.testing.assert_allclose(found[1], [1 / 3, 1 / 3, 0, 1 / 2, 1 / 2])
    np.testing.assert_allclose(found[2], [1, 1, 1])


def test_two_axes_and_slices_beside_indices() -> None:
    rows, columns = np.array([0, 3, 9, 1]), np.array([1, -1, 2, 4])
    u = np.random.default_rng(3).standard_normal((4, 2))
    got = run([
        sg.scatter(X, (rows, columns, slice(0, 2)), u, "mul", bounds="drop"),
        sg.scatter(X, (rows, columns, slice(0, 2)), u, bounds="clip"),
        sg.scatter(X, (slice(1, 3), ..., 0), 3.0, "mean"), sg.scatter(X, (0, 1), 3.0, "mul", include_self=False),
        sg.scatter(X, (slice(0, 2), rows % 5, ..., np.array([0, 2, 1, 1])), u, "max"),
    ])  # fmt: skip
    want = [X.copy() for _ in range(5)]
    np.maximum.at(want[4], (slice(0, 2), rows % 5, np.array([0, 2, 1, 1])), u.T)
    want[0][0, 1, :2] *= u[0]
    want[0][1, 4, :2] *= u[3]
    for row, column, update in zip(np.clip(rows, 0, 3), np.clip(columns, 0, 4), u, strict=True):
        want[1][row, column, :2] = update
    want[2][1:3, ..., 0] = (want[2][1:3, ..., 0] + 3.0) / 2
    want[3][0, 1] = 3.0
    for one, expected in zip(got, want, strict=True):
        np.testing.assert_allclose(one, expected)


def test_axes_without_places() -> None:
    empty = sg.zeros((0, 2))
    assert run(sg.take(empty, [1], axis=0, bounds="fill")).tolist() == [[pytest.approx(np.nan, nan_ok=True)] * 2]
    assert run(sg.scatter(empty, [3], 1.0, bounds="drop")).shape == (0, 2)
    with pytest.raises(sg.BoundsError, match="no place to read"):
        sg.take(empty, [1], axis=0, bounds="clip")


def test_what_is_no_way_out_of_range_is_refused() -> None:
    with pytest.raises(sg.GraphError, match="take: bounds is one of 'error', 'clip', 'fill', not 'drop'"):
        sg.take(sg.zeros(3), [0], bounds="drop")
    with pytest.raises(sg.GraphError, match="scatter: bounds is one of 'error', 'clip', 'drop', not 'fill'"):
        sg.scatter(sg.zeros(3), [0], 1.0, bounds="fill")


def test_compiled_programs_read_and_write_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x, at = sg.placeholder((None, 3)), sg.placeholder((None,), sg.int32)
    u = sg.placeholder((None, 3))
    fetches = [sg.scatter(x, at, u, mode, bounds="drop") for mode in MODES]
    fetches += [sg.take(x, at, 0, bounds=bounds) for bounds in ("clip", "fill")]
    fetches += [g for y in fetches for g in sg.gradients(y, [x])]
    rng = np.random.default_rng(4)
    for n in (6, 40):
        feeds = {x: rng.standard_normal((n, 3)), at: rng.integers(-3, n + 3, 2 * n), u: rng.standard_normal((2 * n, 3))}
        feeds = {k: np.asarray(v, k.dtype) for k, v in feeds.items()}
        monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
        want = run(fetches, feeds)
        monkeypatch.setenv("STATICGRAD_BACKEND", "compiled")
        for one, expected in zip(run(fetches, feeds), want, strict=True):
            np.testing.assert_allclose(one, expected, rtol=1e-5, atol=1e-6)
