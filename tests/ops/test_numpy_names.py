"""Functions under NumPy's names, beside NumPy's own, and their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import staticgrad as sg

RNG = np.random.default_rng(5)
A, B = RNG.standard_normal((2, 4, 5))
LINE, WEIGHTS = RNG.standard_normal(17), RNG.uniform(0.1, 1.0, 17)
NAN_LINE = np.where(np.arange(17) == 6, np.nan, LINE)
HOLES = np.where(RNG.uniform(size=(5, 4)) < 0.4, np.nan, RNG.standard_normal((5, 4)))
HOLES[2], HOLES[3, 1:] = np.nan, np.nan
POINTS, VALUES = np.sort(RNG.uniform(-2, 2, 8)), RNG.standard_normal(8)
PLACES = np.concatenate([RNG.uniform(-3, 3, 20), POINTS[[0, 3, -1]], [np.nan, np.inf]])
ODD = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, 1.0 + 1e-9, 1e300])
WHOLE = RNG.integers(-3, 9, 30)
TIES = RNG.integers(0, 3, (3, 4, 6))
GRID = np.cumsum(RNG.uniform(0.2, 1.0, 5))

# A call of both, of a module ``np`` or ``sg``.
CALLS: dict[str, Callable[[Any], Any]] = {
    "median": lambda m: [
        m.median(A), m.median(A, axis=0), m.median(LINE), m.median(NAN_LINE), m.median(WHOLE, keepdims=True),
    ],
    "quantile": lambda m: [
        *(m.quantile(A, q, axis=axis, method=method, keepdims=kept)
          for q in (0.3, [0.0, 0.25, 1.0], [[0.5], [0.9]]) for axis in (None, 1, (0, 1)) for kept in (True, False)
          for method in ("linear", "lower", "higher", "nearest", "midpoint")),
        m.quantile(ODD[3:], [0.0, 0.1, 1.0], method="lower"),
    ],
    "percentile": lambda m: m.percentile(A, [5, 50.0], axis=0),
    "ptp": lambda m: [m.ptp(A), m.ptp(WHOLE), m.ptp(A, axis=1)],
    "average": lambda m: [m.average(A), m.average(A, 1, weights=WEIGHTS[:5]), m.average(A, 0, weights=B + 3.0)],
    "cov": lambda m: [m.cov(A), m.cov(A, B, rowvar=False), m.cov(LINE), m.cov(LINE, WEIGHTS, ddof=0)],
    "corrcoef": lambda m: [m.corrcoef(A), m.corrcoef(LINE, WEIGHTS), m.corrcoef(A, rowvar=False)],
    "digitize": lambda m: [m.digitize(LINE, POINTS), *(m.digitize(POINTS, POINTS, right=way) for way in (True, False))],
    "histogram": lambda m: [
        *m.histogram(LINE), *m.histogram(LINE, 7, weights=WEIGHTS), *m.histogram(LINE, 5, (-1.0, 0.7), density=True),
        *m.histogram(np.full(3, 2.0), 4), *m.histogram(LINE, POINTS), *m.histogram(POINTS, POINTS),
        *m.histogram(np.arange(11) * 0.1, 10), *m.histogram(WHOLE, 3),
    ],
    "interp": lambda m: [
        m.interp(PLACES, POINTS, VALUES), m.interp(PLACES[:20], POINTS, VALUES, left=-1.0, right=2.0),
        m.interp(PLACES[:20], POINTS[::-1], VALUES, period=1.5), m.interp(0.3, POINTS, VALUES, right=9.0),
    ],
    "gradient": lambda m: [
        m.gradient(LINE), m.gradient(LINE, 0.1, edge_order=2), *m.gradient(A), *m.gradient(A, 2.0, GRID, edge_order=2),
        m.gradient(A, GRID, axis=1), m.gradient(WHOLE), m.gradient(A[:, :2], axis=1),
    ],
    "trapezoid": lambda m: [
        m.trapezoid(A), m.trapezoid(A, None, 0.5, 0), m.trapezoid(A, GRID), m.trapezoid(A, B, axis=0),
    ],
    "isclose": lambda m: [m.isclose(ODD[:, None], ODD), m.isclose(ODD, ODD, 0, 0, True), m.isclose(WHOLE, 2, 0.2)],
    "allclose": lambda m: [m.allclose(A, A + 1e-9), m.allclose(A, B), m.allclose(ODD, ODD, equal_nan=True)],
    "nan_to_num": lambda m: [m.nan_to_num(ODD), m.nan_to_num(ODD, True, 2.0, 3.0, 4.0), m.nan_to_num(WHOLE)],
    "vstack": lambda m: [m.vstack([LINE, WEIGHTS]), m.vstack([A, B]), m.vstack([*ODD[5:]]), m.vstack([A, WHOLE[:5]])],
    "hstack": lambda m: [m.hstack([LINE, WEIGHTS[:3]]), m.hstack([A, B]), m.hstack([ODD[5], ODD[6]])],
    "dstack": lambda m: [m.dstack([LINE, WEIGHTS]), m.dstack([A, B]), m.dstack([A[..., None], B[..., None]])],
    "column_stack": lambda m: [m.column_stack([LINE, WEIGHTS]), m.column_stack([A, A[:, 0]])],
    "diag": lambda m: [*(m.diag(LINE[:3], k) for k in (0, 2, -1)), *(m.diag(A, k) for k in (0, 1, -2))],
    **{
        name: lambda m, name=name: [
            getattr(m, name)(HOLES), *(getattr(m, name)(HOLES, axis=axis, keepdims=axis == 0) for axis in (0, 1)),
            *([getattr(m, name)(HOLES, axis=1, correction=1)] if name in ("nanvar", "nanstd") else []),
        ]
        for name in ("nansum", "nanprod", "nanmean", "nanvar", "nanstd", "nanmax", "nanmin")
    },
    "lexsort": lambda m: [m.lexsort(list(TIES[:, 0])), m.lexsort(list(TIES)), m.lexsort(list(TIES), axis=0)],
}  # fmt: skip


@pytest.fixture(autouse=True)
def references(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The definitions of ops: that programs compute the same is tested for every op."""
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    with sg.Graph():
        yield


def run(fetches: Any, feeds: Any = None) -> Any:
    return sg.Session().run(fetches, feeds)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's of rows without elements
@pytest.mark.parametrize("name", CALLS)
def test_results_are_numpy_s(name: str) -> None:
    with np.errstate(all="ignore"):
        wanted, got = CALLS[name](np), run(CALLS[name](sg))
        wanted, got = ([y] if isinstance(y, np.ndarray) else y for y in (wanted, got))
        assert len(got) == len(wanted)
        for number, (one, want) in enumerate(zip(got, wanted, strict=True)):
            assert one.dtype == np.asarray(want).dtype, (number, one, want)
            np.testing.assert_allclose(one, want, rtol=1e-13, atol=1e-14, err_msg=f"{name}, result {number}")


def test_counts_of_a_given_length() -> None:
    got = run([sg.bincount(WHOLE, length=6), sg.bincount(WHOLE, RNG.uniform(size=30) * 0 + 0.5, length=12)])
    inside = WHOLE[WHOLE >= 0]
    assert got[0].tolist() == np.bincount(inside, minlength=9)[:6].tolist()
    assert got[1].tolist() == (np.bincount(inside, minlength=12) * 0.5).tolist()


@pytest.mark.parametrize("free", [False, True], ids=["known size", "open size"])
def test_elements_that_are_not_zero_and_that_differ(free: bool) -> None:
    a = np.where(RNG.uniform(size=(3, 8)) < 0.5, 0.0, RNG.integers(1, 4, (3, 8)))
    a[1, 2] = a[2, 5] = np.nan
    x = sg.placeholder((3, None) if free else (3, 8), sg.float64)
    places = {size: sg.nonzero(x, size=size, fill_value=-1) for size in (0, 4, 30)}
    options = {"return_index": True, "return_inverse": True, "return_counts": True}
    differing = {size: sg.unique(x, size=size, fill_value=9.0, **options) for size in (0, 2, 7)}
    got, found, rest = run([places, differing, sg.unique(x, size=7)], {x: a})
    wanted = np.nonzero(a)
    for size, pair in got.items():
        for one, want in zip(pair, wanted, strict=True):
            assert one.tolist() == [*want, *[-1] * 30][:size]
    values, index, inverse, counts = np.unique(a, return_index=True, return_inverse=True, return_counts=True)
    for size, (value, first, back, number) in found.items():
        np.testing.assert_array_equal(value, [*values, *[9.0] * 9][:size])
        assert first.tolist() == [*index, *[0] * 9][:size]
        assert number.tolist() == [*counts, *[0] * 9][:size]
        np.testing.assert_array_equal(back, inverse.reshape(a.shape))
    np.testing.assert_array_equal(rest, [*values, *[values[0]] * 9][:7])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("size", [1, 256, 257, 700])
def test_searches_among_many_boundaries_and_in_rows(size: int, side: Any) -> None:
    for dtype in (np.float64, np.int32):
        edges = np.sort(RNG.integers(-50, 50, size).astype(dtype))
        wanted = np.concatenate([RNG.integers(-60, 60, 40).astype(dtype), edges[:1], edges[-1:]])
        if dtype == np.float64:
            edges[-(size // 5) - 1 :] = np.nan
            wanted[:4] = [np.nan, np.inf, -np.inf, 0.5]
        rows, places = np.stack([edges, edges[::-1].copy()]), np.stack([wanted, wanted])
        rows[1] = np.sort(rows[1])
        got = run([sg.searchsorted(edges, wanted, side=side), sg.searchsorted(rows, places, side=side)])
        np.testing.assert_array_equal(got[0], np.searchsorted(edges, wanted, side))
        np.testing.assert_array_equal(got[1], [np.searchsorted(row, wanted, side) for row in rows])


def test_what_there_is_none_of() -> None:
    assert [y.tolist() for y in run([*sg.nonzero(sg.zeros((0, 2)), size=2), sg.unique(sg.zeros(0), size=2)])] == [
        [0, 0], [0, 0], [0.0, 0.0],
    ]  # fmt: skip
    with pytest.raises(sg.GraphError, match="no elements along axis 0"):
        sg.median(sg.zeros((0, 2)), axis=0)
    with pytest.raises(sg.GraphError, match="expected keys of one shape, actual"):
        sg.lexsort([sg.zeros(2), sg.zeros(3)])


@pytest.mark.parametrize(
    "call",
    [
        lambda x: sg.median(x, axis=1), lambda x: sg.quantile(x, [0.2, 0.77], axis=0),
        lambda x: sg.average(x, 1, B + 3.0),
        lambda x: sg.cov(x), lambda x: sg.corrcoef(x), lambda x: sg.interp(x, POINTS, VALUES),
        lambda x: sg.interp(PLACES[:9], POINTS, sg.reshape(x, -1)[:8]), lambda x: sg.trapezoid(x, B),
        lambda x: sg.gradient(x, 0.5, axis=1, edge_order=2), lambda x: sg.ptp(x), lambda x: sg.diag(x[0], 1) * x[0, 0],
        lambda x: sg.histogram(LINE, 5, weights=sg.reshape(x, -1)[:17])[0], lambda x: sg.nan_to_num(1.0 / x),
    ],
)  # fmt: skip
def test_derivatives_are_those_of_differences(call: Callable[[Any], Any]) -> None:
    sg.check_gradients(call, [A])


@pytest.mark.parametrize("call", [sg.nansum, sg.nanprod, sg.nanmean, sg.nanvar, sg.nanmax])
def test_missing_elements_have_no_gradient(call: Callable[..., Any]) -> None:
    x, dense = sg.constant(HOLES[[0, 1, 4]]), sg.constant(A)
    slope, plain, own = run([
        *sg.gradients(call(x, axis=1), [x]), *sg.gradients(call(dense, axis=1), [dense]),
        *sg.gradients(getattr(sg, call.__name__[3:])(dense, axis=1), [dense]),
    ])  # fmt: skip
    assert (slope[np.isnan(HOLES[[0, 1, 4]])] == 0).all()
    assert np.isfinite(slope).all()
    np.testing.assert_allclose(plain, own, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_floats_keep_their_dtype(dtype: Any) -> None:
    x = A.astype(dtype)
    made = [sg.median(x), sg.quantile(x, 0.3, axis=1), sg.cov(x), sg.trapezoid(x),
            sg.interp(x, np.arange(5, dtype=dtype), x[0]), *sg.gradient(x), sg.nan_to_num(x),
            sg.average(x)]  # fmt: skip
    assert {y.dtype for y in made} == {np.dtype(dtype)}


def test_compiled_programs_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = sg.placeholder((None,), sg.float32), sg.placeholder((None,), sg.int32)
    fetches = [
        sg.median(x), sg.quantile(x, [0.1, 0.5]), *sg.histogram(x, 6), sg.unique(w, size=5),
        sg.interp(x, *(np.asarray(a, np.float32) for a in (POINTS, VALUES))),
        *sg.nonzero(w, size=9), sg.lexsort([x, w]), sg.bincount(w, length=4), sg.trapezoid(x), sg.cov(x),
    ]  # fmt: skip
    for n in (5, 33):
        feeds = {x: RNG.standard_normal(n).astype(np.float32), w: RNG.integers(0, 4, n).astype(np.int32)}
        monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
        wanted = run(fetches, feeds)
        monkeypatch.setenv("STATICGRAD_BACKEND", "compiled")
        for one, want in zip(run(fetches, feeds), wanted, strict=True):
            np.testing.assert_allclose(one, want, rtol=1e-5, atol=1e-6)
