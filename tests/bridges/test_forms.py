"""Compositions that several dialects share, beside what C and NumPy do."""

from __future__ import annotations

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.bridges.forms import truncated_quotient, truncated_remainder

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
