"""Windows as columns, and images read at places: beside NumPy's sliding windows and SciPy's interpolation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.ndimage

import staticgrad as sg

RNG = np.random.default_rng(13)


def run(fetches: Any, feeds: Any = None) -> Any:
    return sg.Session(sg.get_default_graph()).run(fetches, feeds)


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Derivatives are right in graphs; what these are compiled to is right by tests of their ops."""
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")


def test_columns_are_the_windows_and_their_sum_is_the_transpose() -> None:
    x = RNG.normal(size=(2, 3, 7, 6))
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (2, 2)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 2), (2, 3))[:, :, ::2, :, ::2, :]
    want = windows.transpose(0, 1, 4, 5, 2, 3).reshape(2, 18, -1)
    how: dict[str, Any] = {"dilation": (2, 1), "padding": (1, 2), "stride": (2, 1)}
    columns = sg.nn.unfold(x, (3, 2), **how)
    y = RNG.normal(size=want.shape)
    back = sg.nn.fold(y, (7, 6), (3, 2), **how)
    got, there, here = run([columns, sg.sum(columns * y), sg.sum(back * x)])
    np.testing.assert_array_equal(got, want)
    np.testing.assert_allclose(there, here, rtol=1e-12)


def test_columns_of_open_batches() -> None:
    x = sg.placeholder((sg.dim("n"), 2, 5, 5), sg.float64)
    columns = sg.nn.unfold(x, 2)
    value = RNG.normal(size=(3, 2, 5, 5))
    got, back = run([columns, sg.nn.fold(columns, 5, 2)], {x: value})
    assert got.shape == (3, 8, 16)
    counts = np.pad(np.full((3, 3), 4.0), 1, constant_values=2.0)
    counts[[0, 0, -1, -1], [0, -1, 0, -1]] = 1.0
    np.testing.assert_allclose(back, value * counts, rtol=1e-12)


SCIPYS = {  # names of modes, by padding and alignment of corners
    ("zeros", False): "grid-constant", ("zeros", True): "grid-constant", ("border", False): "nearest",
    ("border", True): "nearest", ("reflection", False): "reflect", ("reflection", True): "mirror",
}  # fmt: skip


@pytest.mark.parametrize("axes", [2, 3])
def test_places_of_images_and_volumes_are_read_as_scipy_does(axes: int) -> None:
    shape = (2, 2, 4, 5, 3)[: axes + 2]
    x = RNG.normal(size=shape)
    grid = RNG.uniform(-1.7, 1.7, size=(2, *(6, 3, 2)[:axes], axes))
    feeds = sg.placeholder(shape, sg.float64), sg.placeholder(grid.shape, sg.float64)
    fetches = {
        (mode, *way): sg.nn.grid_sample(*feeds, mode, *way) for mode in ("bilinear", "nearest") for way in SCIPYS
    }
    for (mode, padding, corners), got in run(fetches, dict(zip(feeds, (x, grid), strict=True))).items():
        places = [
            (grid[..., -1 - a] + 1) / 2 * (n - 1) if corners else ((grid[..., -1 - a] + 1) * n - 1) / 2
            for a, n in enumerate(shape[2:])
        ]
        for image, channel in np.ndindex(2, 2):
            want = scipy.ndimage.map_coordinates(
                x[image, channel], [place[image] for place in places], order=int(mode == "bilinear"),
                mode=SCIPYS[padding, corners],
            )  # fmt: skip
            np.testing.assert_allclose(got[image, channel], want, rtol=1e-11, atol=1e-12, err_msg=f"{mode} {padding}")


def test_cubic_places_of_a_cubic_image_are_nearly_its_values_and_whole_ones_its_elements() -> None:
    x = RNG.normal(size=(1, 1, 6, 7))
    rows, columns = np.meshgrid(np.linspace(-1, 1, 6), np.linspace(-1, 1, 7), indexing="ij")
    whole = np.stack([columns, rows], -1)[None]
    np.testing.assert_allclose(run(sg.nn.grid_sample(x, whole, "bicubic", "border", True)), x, atol=1e-12)
    resized = sg.nn.interpolate(x, (11, 5), mode="bicubic")
    middle = sg.nn.affine_grid(np.array([[[1.0, 0, 0], [0, 1.0, 0]]]), (1, 1, 11, 5))
    np.testing.assert_allclose(*run([sg.nn.grid_sample(x, middle, "bicubic", "border"), resized]), atol=1e-12)


def test_places_that_are_no_numbers_or_far_away_read_no_memory_outside() -> None:
    x, grid = np.ones((1, 1, 3, 3)), np.array([[[[np.nan, 0.0], [np.inf, 0.0], [-1e300, 1e300], [0.0, 0.0]]]])
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            assert run(sg.nn.grid_sample(x, grid, mode, padding))[0, 0, 0, 3] == pytest.approx(1.0)


@pytest.mark.usefixtures("interpreted")
def test_places_have_derivatives_in_both_modes_and_go_over_examples() -> None:
    x, grid = RNG.normal(size=(1, 2, 4, 5)), RNG.uniform(-0.9, 0.9, size=(1, 3, 2, 2))
    for mode in ("bilinear", "bicubic"):
        sg.check_gradients(lambda x, g, mode=mode: sg.sum(sg.sin(sg.nn.grid_sample(x, g, mode, "border"))), [x, grid])
    sg.check_gradients(lambda t: sg.sum(sg.sin(sg.nn.affine_grid(t, (2, 1, 3, 2)))), [RNG.normal(size=(2, 2, 3))])
    many = RNG.normal(size=(3, *x.shape))
    got = run(sg.vmap(lambda x: sg.nn.grid_sample(x, grid))(sg.constant(many)))
    np.testing.assert_allclose(got, np.stack(run([sg.nn.grid_sample(one, grid) for one in many])), rtol=1e-12)


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda: sg.nn.unfold(sg.zeros((4, 4)), 2), "unfold: expected an image"),
        (lambda: sg.nn.unfold(sg.zeros((1, 4, 4)), 5), "unfold: a window does not fit"),
        (lambda: sg.nn.fold(sg.zeros((6, 9)), 4, 2), r"fold: expected an input \(N, C·4, L\)"),
        (lambda: sg.nn.fold(sg.zeros((8, 8)), 4, 2), "number of columns"),
        (lambda: sg.nn.grid_sample(sg.zeros((1, 2, 4, 4)), sg.zeros((1, 3, 3, 3))), "a grid of 2 numbers a place"),
        (lambda: sg.nn.grid_sample(sg.zeros((1, 2, 4, 4)), sg.zeros((2, 3, 3, 2))), "number of images of the grid"),
        (lambda: sg.nn.grid_sample(sg.zeros((1, 2, 4, 4, 4)), sg.zeros((1, 3, 3, 3, 3)), "bicubic"), "mode='bicubic'"),
        (lambda: sg.nn.affine_grid(sg.zeros((1, 2, 2)), (1, 1, 3, 3)), "affine_grid: expected maps"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(declare: Callable[[], Any], words: str) -> None:
    with pytest.raises(sg.GraphError, match=words):
        declare()
