"""Bits read as another dtype, the next float, and numbers that become the nearest integer."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.base.types import FLOATS, INTEGERS

SHORT = [np.dtype("float16"), sg.bfloat16]
NUMBERS = [*INTEGERS, *FLOATS, *SHORT]


@pytest.fixture(autouse=True)
def _graph() -> None:
    sg.reset_default_graph()


def run(fetches: Any) -> Any:
    return sg.Session().run(fetches)


def test_bits_are_those_of_numpy_s_view_in_every_pair_of_dtypes() -> None:
    raw = np.random.default_rng(3).integers(0, 256, (5, 3, 8)).astype(np.uint8)
    ways, wanted = {}, {}
    for given, to in itertools.product(NUMBERS, NUMBERS):
        x = (
            raw.view(given)[..., 0]
            if to.itemsize <= given.itemsize
            else raw.view(given)[..., : to.itemsize // given.itemsize]
        )
        x = np.ascontiguousarray(x)
        viewed = x[..., None].view(to) if to.itemsize < given.itemsize else x.view(to)
        wanted[given, to] = viewed if to.itemsize < given.itemsize else viewed.reshape(5, 3)
        ways[given, to] = sg.bitcast(x, to)
    got = run(ways)
    for key, want in wanted.items():
        assert got[key].dtype == key[1]
        assert np.array_equal(got[key].view(np.uint8), np.ascontiguousarray(want).view(np.uint8)), key


def test_bits_of_bools_are_a_byte_and_no_bits_are_bools() -> None:
    assert run(sg.bitcast([True, False], sg.int8)).tolist() == [1, 0]
    with pytest.raises(sg.GraphError, match="bools have one bit"):
        sg.bitcast(np.uint8(1), sg.bool)
    with pytest.raises(sg.GraphError, match="expected a last axis of 4 for int32, actual uint8"):
        sg.bitcast(np.zeros((4, 3), np.uint8), sg.int32)


def test_no_gradient_passes_through_bits() -> None:
    x = sg.constant([2.0, 3.0])
    again = sg.bitcast(sg.bitcast(x, sg.int32), sg.float32)
    assert run(sg.gradients(sg.sum(again * x), [x]))[0].tolist() == [2.0, 3.0]


@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_the_next_short_float_is_that_of_its_own_dtype(dtype: np.dtype) -> None:
    most = float(sg.finfo(dtype).max)
    edges = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, most, -most, 1e-5, 2.0], dtype)
    x, y = (side.ravel() for side in np.meshgrid(edges, edges))
    got = run(sg.nextafter(x, y))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got.astype(np.float64), np.nextafter(x, y).astype(np.float64))


def test_numbers_without_an_integer_of_their_own_become_the_nearest() -> None:
    floats = [1e30, -1e30, np.nan, 2.9, -2.9, np.inf, -np.inf, 65504.0]
    for dtype in INTEGERS:
        limits = np.iinfo(dtype)
        for kind in (*FLOATS, *SHORT):
            with np.errstate(over="ignore"):
                x = np.array(floats, kind)
            want = [0 if n != n else int(min(max(n, limits.min), limits.max)) for n in x.astype(np.float64).tolist()]
            assert run(sg.astype(x, dtype, saturating=True)).tolist() == want, (kind, dtype)
        for kind in INTEGERS:
            given = np.array([np.iinfo(kind).min, np.iinfo(kind).max, 7], kind)
            want = [min(max(int(n), limits.min), limits.max) for n in given]
            assert run(sg.astype(given, dtype, saturating=True)).tolist() == want, (kind, dtype)
    with np.errstate(over="ignore"):
        assert run(sg.astype([1e30, -1.5], sg.float16, saturating=True)).tolist() == [np.inf, -1.5]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_cube_roots_are_within_about_one_unit_of_the_last_place(dtype: np.dtype) -> None:
    low, high = (-700.0, 700.0) if dtype == np.float64 else (-87.0, 87.0)
    x = np.exp(np.random.default_rng(1).uniform(low, high, 5000)).astype(dtype)
    x = np.concatenate([x, -x, np.array([0.0, -0.0, np.inf, -np.inf, np.finfo(dtype).smallest_subnormal], dtype)])
    got, want = run(sg.cbrt(x)), np.cbrt(x.astype(np.longdouble))
    finite = np.isfinite(want) & (want != 0)
    assert float(np.max(np.abs(got[finite] - want[finite]) / np.spacing(np.abs(got[finite])))) < 1.3
    np.testing.assert_array_equal(got[~finite], want[~finite].astype(dtype))
