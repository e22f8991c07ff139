"""Reductions, running results and orders of what holds NaN, infinities, zeros of both signs and subnormal numbers.

Rows with such elements at drawn places are computed by every kind of kernel: along the last axis, along the first one,
of all elements, and shorter and longer than a vector. NumPy says in float64 what comes out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.sampling import Array, rng_for
from support.selection import rotating
from support.targets import EVERY

import staticgrad as sg
from staticgrad.ops.positions import BLOCK, LONG

SIZES = (1, 2, 3, 7, 16, 17, 33, 64, 100, 700)
DTYPES = ("float16", "float32", "float64")
NAN, INF = np.nan, np.inf
# What is put into rows of ordinary numbers, at drawn places; a row of one of FULL has nothing else.
SCATTERED = [(NAN,), (INF,), (-INF,), (NAN, INF), (NAN, -INF), (INF, -INF), (0.0, -0.0), (NAN, 0.0, INF, -INF)]
FULL = [(NAN,), (INF,), (-INF,), (0.0,), (-0.0,), ("tiny",), ("tiny", "-tiny", 0.0), (NAN, -INF), (INF, -INF)]


def rows(n: int, dtype: np.dtype, *salt: object) -> Array:
    """A row of each kind."""
    rng = rng_for("edges", n, dtype, *salt)
    tiny = float(np.finfo(dtype).smallest_subnormal)
    known = {"tiny": 3 * tiny, "-tiny": -5 * tiny}

    def number(x: Any) -> float:
        return known[x] if isinstance(x, str) else x

    made = []
    for values in SCATTERED:
        row = rng.choice([1.0, -1.0, 0.5, -2.0, 1.25, -0.75], n)
        for value in values:
            row[rng.integers(0, n, rng.integers(1, 3))] = number(value)
        made.append(row)
        at_ends = row.copy()
        at_ends[[0, -1]] = number(values[0])
        made.append(at_ends)
    made += [rng.choice([number(x) for x in values], n) for values in FULL]
    return np.asarray(made).astype(dtype)


def logsumexp(x: Array, axis: int) -> Array:
    greatest = np.max(x, axis, keepdims=True)
    base = np.where(np.isfinite(greatest), greatest, 0)
    return np.log(np.sum(np.exp(x - base), axis)) + np.squeeze(base, axis)


def descending(x: Array, axis: int) -> Array:
    """NaN first."""
    return np.flip(np.sort(x, axis), axis)


def places_descending(x: Array, axis: int) -> Array:
    """Of equal elements, and of NaN, the first one first."""
    ranks = np.unique(x, return_inverse=True)[1].reshape(x.shape)
    return np.argsort(-ranks, axis, kind="stable")


def first(x: Array, axis: int, k: int) -> Array:
    return np.take(x, range(min(k, x.shape[axis])), axis)


# The function, NumPy's of float64, and whether it computes with the elements or only compares them.
FUNCTIONS: dict[str, tuple[Callable[[Any, int], Any], Callable[[Array, int], Array], bool]] = {
    "sum": (lambda x, axis: sg.sum(x, axis), np.sum, True),
    "prod": (lambda x, axis: sg.prod(x, axis), np.prod, True),
    "mean": (lambda x, axis: sg.mean(x, axis), np.mean, True),
    "var": (lambda x, axis: sg.var(x, axis), np.var, True),
    "std": (lambda x, axis: sg.std(x, axis), np.std, True),
    "logsumexp": (lambda x, axis: sg.logsumexp(x, axis), logsumexp, True),
    "max": (lambda x, axis: sg.max(x, axis), np.max, False),
    "min": (lambda x, axis: sg.min(x, axis), np.min, False),
    "max of a sum": (lambda x, axis: sg.max(x + x, axis), lambda x, axis: np.max(x + x, axis), False),
    "argmax": (lambda x, axis: sg.argmax(x, axis), np.argmax, False),
    "argmin": (lambda x, axis: sg.argmin(x, axis), np.argmin, False),
    "any": (lambda x, axis: sg.any(x != 0, axis), np.any, False),
    "count_nonzero": (lambda x, axis: sg.count_nonzero(x, axis), lambda x, axis: np.sum(x != 0, axis), False),
    "ptp": (lambda x, axis: sg.ptp(x, axis), np.ptp, True),
    "median": (lambda x, axis: sg.median(x, axis), np.median, True),
    "nansum": (lambda x, axis: sg.nansum(x, axis), np.nansum, True),
    "nanmax": (lambda x, axis: sg.nanmax(x, axis), np.nanmax, False),
    "nanmin": (lambda x, axis: sg.nanmin(x, axis), np.nanmin, False),
    "nanmean": (lambda x, axis: sg.nanmean(x, axis), np.nanmean, True),
    "cumulative_sum": (lambda x, axis: sg.cumulative_sum(x, axis), np.cumsum, True),
    "cumulative_prod": (lambda x, axis: sg.cumulative_prod(x, axis), np.cumprod, True),
    "cummax": (lambda x, axis: sg.cummax(x, axis), np.maximum.accumulate, False),
    "cummin": (lambda x, axis: sg.cummin(x, axis), np.minimum.accumulate, False),
    "cummax from the end": (
        lambda x, axis: sg.cummax(x, axis, reverse=True),
        lambda x, axis: np.flip(np.maximum.accumulate(np.flip(x, axis), axis), axis),
        False,
    ),
    "sort": (lambda x, axis: sg.sort(x, axis), np.sort, False),
    "sort descending": (lambda x, axis: sg.sort(x, axis, descending=True), descending, False),
    "argsort": (
        lambda x, axis: sg.argsort(x, axis),
        lambda x, axis: np.argsort(x, axis, kind="stable"),
        False,
    ),
    "argsort descending": (lambda x, axis: sg.argsort(x, axis, descending=True), places_descending, False),
    "topk": (
        lambda x, axis: sg.topk(x, min(3, x.shape[axis]), axis)[0],
        lambda x, axis: first(descending(x, axis), axis, 3),
        False,
    ),
    "places of topk": (
        lambda x, axis: sg.topk(x, min(3, x.shape[axis]), axis)[1],
        lambda x, axis: first(places_descending(x, axis), axis, 3),
        False,
    ),
    "smallest of topk": (
        lambda x, axis: sg.topk(x, min(3, x.shape[axis]), axis, largest=False)[0],
        lambda x, axis: first(np.sort(x, axis), axis, 3),
        False,
    ),
}


@pytest.mark.parametrize(("name", "target"), rotating(itertools.product(FUNCTIONS, EVERY), len(EVERY) + 1))
@pytest.mark.filterwarnings("ignore:(All-NaN|Mean of empty|invalid value|divide by zero|overflow):RuntimeWarning")
def test_edge_values_of_reductions_scans_and_orders(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    function, reference, computes = FUNCTIONS[name]
    feeds: dict[sg.Tensor, Array] = {}
    fetches: dict[str, sg.Tensor] = {}
    wanted: dict[str, Array] = {}
    arrays: dict[str, Array] = {}
    with sg.Graph() as graph:
        for dtype, n in itertools.product(map(np.dtype, DTYPES), SIZES):
            values = rows(n, dtype, name, target)
            for axis, array in ((1, values), (0, np.ascontiguousarray(values.T))):
                x = sg.placeholder(array.shape, dtype)
                key = f"{dtype.name}, {n} elements along axis {axis}"
                feeds[x], arrays[key], fetches[key] = array, array, function(x, axis)
                with np.errstate(all="ignore"):
                    wanted[key] = reference(array.astype(np.float64), axis)
    results = sg.Session(graph).run(fetches, feeds)
    for key, want in wanted.items():
        got = results[key]
        if got.dtype.kind != "f":
            np.testing.assert_array_equal(got, want, err_msg=f"{name} of {key}")
            continue
        with np.errstate(all="ignore"):
            rounded = want.astype(got.dtype)
        if not computes:
            np.testing.assert_array_equal(got, rounded, err_msg=f"{name} of {key}")
            continue
        info, given, axis = np.finfo(got.dtype), arrays[key], int(key[-1])
        size = np.abs(np.where(np.isfinite(given), given, 0)).max(axis, keepdims=want.ndim == 2).astype(np.float64)
        terms = given.shape[axis] * float(info.eps) * (np.maximum(size, 1) if name == "logsumexp" else size)
        atol = terms + 4 * float(info.smallest_subnormal)
        close = np.isclose(got, rounded, rtol=4 * float(info.eps), atol=atol, equal_nan=True)
        assert close.all(), f"{name} of {key}:\n{got[~close]} expected\n{rounded[~close]}"


def test_the_median_of_a_negative_infinity_and_a_number_is_not_nan() -> None:
    pairs = np.array([[-np.inf, 1.0], [1.0, np.inf], [-np.inf, -np.inf], [-np.inf, np.inf]])
    medians, quantiles = sg.Session().run([sg.median(pairs, 1), sg.quantile(pairs, [0.25, 0.75], 1)])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(medians, np.median(pairs, 1))
    np.testing.assert_array_equal(quantiles[:, :3], [[-np.inf, np.inf, -np.inf]] * 2)


@pytest.mark.parametrize("size", [LONG, LONG + 1, LONG + BLOCK - 1, LONG - 1])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "float16"])
@pytest.mark.parametrize("name", EVERY)
def test_positions_in_long_rows_are_of_the_first_of_equal_ones(
    name: str, dtype: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also at the bounds of blocks, in the rest that fills none, and where all elements are equal or the least."""
    monkeypatch.setenv("STATICGRAD_TARGET", name)
    rng, least = np.random.default_rng(size), {"float32": -INF, "float16": -INF, "int64": np.iinfo(np.int64).min}
    places = [(), (0,), (size - 1,), (BLOCK - 1, BLOCK), (size - 2, size - 1), (3 * BLOCK, 5 * BLOCK), (size // 2,)]
    x = np.zeros((2 * len(places), size), dtype)
    for row, where in enumerate(places):
        x[row, list(where)] = 1
        x[len(places) + row] = least.get(dtype, 0)
        x[len(places) + row, list(where)] = NAN if dtype.startswith("float") else 1
    x[0] = rng.integers(0, 2, size)
    with sg.Graph() as graph:
        fed = sg.placeholder(x.shape, x.dtype)
        flat = sg.reshape(fed, (-1,))
        fetches = [
            sg.argmax(fed, 1),
            sg.argmin(fed, 1, keepdims=True),
            sg.argmax(flat),
            sg.argmin(sg.logical_not(fed), 1),
        ]
        got = sg.Session(graph).run(fetches, {fed: x})
    np.testing.assert_array_equal(got[0], np.argmax(x, 1))
    np.testing.assert_array_equal(got[1], np.argmin(x, 1, keepdims=True))
    np.testing.assert_array_equal(got[2], np.argmax(x))
    np.testing.assert_array_equal(got[3], np.argmin(x == 0, 1))
