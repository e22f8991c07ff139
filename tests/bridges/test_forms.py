"""Compositions that several dialects share, beside what C and NumPy do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.bridges.forms import SlidingWindows, padded, truncated_quotient, truncated_remainder

BYTES = np.arange(-128, 128).astype(np.int8)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_division_of_all_bytes_is_rounded_towards_zero(dtype: type) -> None:
    x, y = (z.ravel() for z in np.meshgrid(BYTES.astype(dtype), BYTES.astype(dtype)))
    x, y = x[y != 0], y[y != 0]
    with sg.Graph():
        a, b = sg.placeholder(x.shape, x.dtype), sg.placeholder(y.shape, y.dtype)
        results = [truncated_quotient(a, b), truncated_remainder(a, b)]
    quotient, rest = sg.Session(results[0].graph).compile(results, [a, b])(x, y)
    exact = np.trunc(x.astype(float) / y).astype(int)
    np.testing.assert_array_equal(quotient, exact.astype(dtype))
    np.testing.assert_array_equal(rest, (x.astype(int) - exact * y.astype(int)).astype(dtype))


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_the_remainder_of_the_least_integer_is_right(dtype: type) -> None:
    """Its absolute value is no integer of the dtype."""
    least = np.iinfo(dtype).min
    x, y = np.array([least, least, 5, least], dtype), np.array([3, -7, least, least], dtype)
    with sg.Graph():
        a, b = sg.placeholder(x.shape, x.dtype), sg.placeholder(y.shape, y.dtype)
        rest = truncated_remainder(a, b)
    np.testing.assert_array_equal(sg.Session(rest.graph).run(rest, {a: x, b: y}), np.fmod(x, y))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_remainder_of_floats_is_exact_and_keeps_the_sign(dtype: type) -> None:
    numbers = np.array([0.0, -0.0, 1.0, -1.0, 0.3, -7.75, 1e10, -1e-3, np.inf, -np.inf, np.nan], dtype)
    x, y = (z.ravel() for z in np.meshgrid(numbers, numbers))
    with sg.Graph():
        a, b = sg.placeholder(x.shape, x.dtype), sg.placeholder(y.shape, y.dtype)
        rest = truncated_remainder(a, b)
    actual = sg.Session(rest.graph).run(rest, {a: x, b: y})
    with np.errstate(invalid="ignore"):
        expected = np.fmod(x, y)
    np.testing.assert_array_equal(actual, expected)
    kept = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(actual[kept]), np.signbit(expected[kept]))


# -- pads and windows --------------------------------------------------------------------------------------------------

WINDOWS = {
    "two axes": SlidingWindows((2, 3), (1, 2), (1, 1), ((0, 0), (1, 1)), (0, 0)),
    "an axis of its own": SlidingWindows((1, 3, 1), (1, 1, 1), (1, 2, 1), ((0, 0), (2, 1), (0, 0)), (0, 0, 0)),
    "three axes": SlidingWindows((2, 1, 3, 2), (1, 1, 1, 2), (1, 1, 2, 1), ((1, 0), (0, 0), (0, 2), (0, 0)), (0,) * 4),
    "pads that take away": SlidingWindows((2, 2), (1, 1), (1, 1), ((-1, 2), (0, -2)), (0, 0)),
    "elements between": SlidingWindows((3, 2), (2, 1), (1, 1), ((0, 1), (1, -1)), (1, 2)),
    "no windows": SlidingWindows((1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)), (0, 0)),
}


def grown(x: np.ndarray, windows: SlidingWindows, value: float) -> np.ndarray:
    """An array with the pads of windows, in NumPy."""
    for axis, ((low, high), gap) in enumerate(zip(windows.pads, windows.interior)):
        x = np.moveaxis(x, axis, 0)
        spread = np.full(((len(x) - 1) * (gap + 1) + 1, *x.shape[1:]), value, x.dtype)
        spread[:: gap + 1] = x
        widths = [(max(low, 0), max(high, 0))] + [(0, 0)] * (x.ndim - 1)
        x = np.pad(spread, widths, constant_values=value)
        x = np.moveaxis(x[max(-low, 0) : len(x) - max(-high, 0)], 0, axis)
    return x


def elements(x: np.ndarray, windows: SlidingWindows, value: float) -> np.ndarray:
    """The elements of all windows along a last axis, by NumPy's views of windows."""
    spans = [(size - 1) * step + 1 for size, step in zip(windows.sizes, windows.dilations)]
    found = np.lib.stride_tricks.sliding_window_view(grown(x, windows, value), spans)
    found = found[tuple(slice(None, None, step) for step in (*windows.strides, *windows.dilations))]
    return found.reshape(*found.shape[: x.ndim], -1)


def ran(make: Callable[..., Any], *arrays: np.ndarray) -> Any:
    """What a program gives for arrays."""
    with sg.Graph() as graph:
        feeds = [sg.placeholder(array.shape, array.dtype) for array in arrays]
        results = make(*feeds)
    return sg.Session(graph).run(results, dict(zip(feeds, arrays)))


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_over_any_axes_are_numpy_s(name: str, dtype: type) -> None:
    windows, shape = WINDOWS[name], (5, 6, 7, 4)[: len(WINDOWS[name].sizes)]
    x = (np.random.default_rng(0).normal(size=shape) * 9).astype(dtype)
    least = -np.inf if dtype is np.float32 else np.iinfo(dtype).min
    many, total, largest, places = ran(
        lambda x: [
            windows.elements(x, 3),
            windows.reduced(x, 0, lambda y, axes: sg.sum(y, axes)),
            *windows.chosen(x, [x, sg.reshape(sg.arange(x.size), x.shape)], largest=True),
        ],
        x,
    )
    np.testing.assert_array_equal(many, elements(x, windows, 3))
    np.testing.assert_allclose(total, elements(x, windows, 0).sum(-1), rtol=1e-5, atol=1e-5)
    by = elements(x, windows, least)
    np.testing.assert_array_equal(largest, by.max(-1))
    numbers = elements(np.arange(x.size).reshape(shape), windows, 0)
    np.testing.assert_array_equal(places, np.take_along_axis(numbers, by.argmax(-1)[..., None], -1)[..., 0])


def test_windows_of_many_elements_are_reduced_axis_by_axis() -> None:
    windows = SlidingWindows((9, 12), (1, 3), (1, 1), ((8, 0), (0, 0)), (0, 0))
    assert windows.count > SlidingWindows.MOST_AT_ONCE
    x = np.random.default_rng(0).normal(size=(9, 15))
    total = ran(lambda x: windows.reduced(x, 0, lambda y, axes: sg.sum(y, axes)), x)
    np.testing.assert_allclose(total, elements(x, windows, 0).sum(-1), rtol=1e-12)


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_folded_by_the_transpose(name: str) -> None:
    windows, shape, rng = WINDOWS[name], (5, 6, 7, 4)[: len(WINDOWS[name].sizes)], np.random.default_rng(0)
    x = rng.normal(size=shape)
    seen = ran(windows.view, x)
    y = rng.normal(size=seen.shape)
    back = ran(lambda y: windows.folded(y, shape), y)
    np.testing.assert_allclose((back * x).sum(), (y * seen).sum(), rtol=1e-12)


def test_a_pad_s_value_may_be_a_tensor() -> None:
    x, widths, gaps = np.arange(6.0).reshape(2, 3), [(1, 0), (-1, 2)], (0, 1)
    windows = SlidingWindows((1, 1), (1, 1), (1, 1), ((1, 0), (-1, 2)), gaps)
    actual = ran(lambda x, value: padded(x, widths, value, gaps), x, np.array([7.0]))
    np.testing.assert_array_equal(actual, grown(x, windows, 7.0))
