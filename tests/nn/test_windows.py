"""Windows over one, two and three axes beside loops over all places: pools, transposed convolutions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import staticgrad as sg

Array = np.ndarray[Any, np.dtype[Any]]
RNG = np.random.default_rng(11)


def run(fetches: Any, feeds: Any = None) -> Any:
    return sg.Session(sg.get_default_graph()).run(fetches, feeds)


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Derivatives are right in graphs; what these are compiled to is right by tests of their ops."""
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")


def windows(x: Array, kernel: int, stride: int, padding: int, dilation: int) -> Iterator[tuple[Any, list[Any]]]:
    """For each place of a pooling of (N, C, …) the places that its window has in the image."""
    axes = x.ndim - 2
    counts = [(n + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1 for n in x.shape[2:]]
    for place in itertools.product(*map(range, counts)):
        taps = itertools.product(range(kernel), repeat=axes)
        found = [tuple(p * stride + t * dilation - padding for p, t in zip(place, tap, strict=True)) for tap in taps]
        yield place, [at for at in found if all(0 <= i < n for i, n in zip(at, x.shape[2:], strict=True))]


def pooled(x: Array, reduce: Callable[[Array], Array], *how: int) -> Array:
    made = {place: reduce(np.stack([x[(..., *at)] for at in there])) for place, there in windows(x, *how)}
    result = np.zeros((*x.shape[:2], *(max(p[a] for p in made) + 1 for a in range(x.ndim - 2))))
    for place, value in made.items():
        result[(..., *place)] = value
    return result


@pytest.mark.parametrize("axes", [1, 3])
def test_pools_reduce_each_window(axes: int) -> None:
    x = RNG.normal(size=(2, 2, 7, 6, 5)[: axes + 2])
    largest, average = getattr(sg.nn, f"max_pool{axes}d"), getattr(sg.nn, f"avg_pool{axes}d")
    feed = sg.placeholder(x.shape, sg.float64)
    ways = [(2, 2, 0, 1), (3, 2, 1, 1), (2, 1, 1, 2)]
    maxima = [largest(feed, kernel, stride, padding, dilation, return_indices=True)
              for kernel, stride, padding, dilation in ways]  # fmt: skip
    means = [average(feed, kernel, stride, padding, count_include_pad=False) for kernel, stride, padding, _ in ways]
    for way, (value, place), mean in zip(ways, *run([maxima, means], {feed: x}), strict=True):
        np.testing.assert_array_equal(value, pooled(x, lambda window: window.max(0), *way))
        flat = x.reshape(*x.shape[:2], -1)
        np.testing.assert_array_equal(np.take_along_axis(flat, place.reshape(2, 2, -1), 2).reshape(value.shape), value)
        np.testing.assert_allclose(mean, pooled(x, lambda window: window.mean(0), *way[:3], 1), rtol=1e-12)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_adaptive_pools_share_an_image_out(axes: int) -> None:
    x = RNG.normal(size=(2, 2, 7, 5, 4)[: axes + 2])
    counts = (3, 2, 3)[:axes]
    largest, average = getattr(sg.nn, f"adaptive_max_pool{axes}d"), getattr(sg.nn, f"adaptive_avg_pool{axes}d")
    (value, place), mean = run([largest(x, counts, True), average(x, counts)])
    for at in np.ndindex(*counts):
        bounds = [slice(i * n // m, -(-(i + 1) * n // m)) for i, n, m in zip(at, x.shape[2:], counts, strict=True)]
        window = x[(..., *bounds)].reshape(2, 2, -1)
        np.testing.assert_array_equal(value[(..., *at)], window.max(-1))
        np.testing.assert_allclose(mean[(..., *at)], window.mean(-1), rtol=1e-12)
    flat = x.reshape(2, 2, -1)
    np.testing.assert_array_equal(np.take_along_axis(flat, place.reshape(2, 2, -1), 2).reshape(value.shape), value)


@pytest.mark.parametrize("axes", [1, 3])
def test_a_transposed_convolution_is_the_transpose(axes: int) -> None:
    """⟨conv(x), y⟩ = ⟨x, transposed(y)⟩ in all options, at sizes that one of them leaves open."""
    forward, back = getattr(sg.nn, f"conv{axes}d"), getattr(sg.nn, f"conv_transpose{axes}d")
    for stride, padding, dilation, groups in ((1, 0, 1, 1), (2, 1, 1, 2), (3, 2, 2, 1)):
        x, w = RNG.normal(size=(2, 4, *(8, 7, 9)[:axes])), RNG.normal(size=(6, 4 // groups, *(3, 2, 3)[:axes]))
        made = forward(x, w, None, stride, padding, dilation, groups)
        y = RNG.normal(size=made.shape)
        least = back(y, w, None, stride, padding, 0, groups, dilation)
        extra = tuple(int(n) - int(m) for n, m in zip(x.shape[2:], least.shape[2:], strict=True))
        there, here = run([sg.sum(made * y), sg.sum(back(y, w, None, stride, padding, extra, groups, dilation) * x)])
        np.testing.assert_allclose(here, there, rtol=1e-11)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("axes", [1, 3])
def test_pools_and_transposes_have_derivatives_in_both_modes_and_go_over_examples(axes: int) -> None:
    shape = (1, 2, 5, 4, 5)[: axes + 2]
    x, w = sg.placeholder(shape, sg.float64), RNG.normal(size=(2, 3, *(2,) * axes))
    value = RNG.permutation(np.prod(shape)).reshape(shape) / 7.0
    for function in (
        lambda x: getattr(sg.nn, f"max_pool{axes}d")(x, 3, 2, 1),
        lambda x: getattr(sg.nn, f"avg_pool{axes}d")(x, 3, 2, 1, count_include_pad=False),
        lambda x: getattr(sg.nn, f"adaptive_max_pool{axes}d")(x, 3),
        lambda x: getattr(sg.nn, f"conv_transpose{axes}d")(x, w, None, 2, 1, 1),
    ):
        sg.check_gradients(lambda x, f=function: sg.sum(sg.sin(f(x))), [value])
        many = np.stack([value, -value, value[..., ::-1]])
        got = run(sg.vmap(function)(sg.constant(many)))
        np.testing.assert_allclose(got, np.stack(run([function(sg.constant(one)) for one in many])), rtol=1e-12)
    assert function(x).shape[:2] == (1, 3)


def test_pools_and_transposes_of_open_sizes() -> None:
    n, depth = sg.dim("n"), sg.dim("depth")
    x = sg.placeholder((n, 2, depth, 6, 6), sg.float64)
    fetches = [sg.nn.max_pool3d(x, 2), sg.nn.avg_pool3d(x, 2),
               sg.nn.conv_transpose3d(x, np.ones((2, 1, 2, 2, 2)), stride=2)]  # fmt: skip
    for count, layers in ((1, 4), (3, 7)):
        largest, mean, back = run(fetches, {x: np.ones((count, 2, layers, 6, 6))})
        assert largest.shape == mean.shape == (count, 2, layers // 2, 3, 3)
        np.testing.assert_array_equal(back, np.full((count, 1, 2 * layers, 12, 12), 2.0))


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda: sg.nn.max_pool1d(sg.zeros((3,)), 2), r"max_pool1d: expected a floating image \(N, C, L\)"),
        (lambda: sg.nn.max_pool3d(sg.zeros((1, 2, 3, 4)), 5), "max_pool3d: a window does not fit"),
        (lambda: sg.nn.avg_pool3d(sg.zeros((1, 2, 3, 4)), (2, 2)), "avg_pool3d: kernel_size"),
        (lambda: sg.nn.adaptive_max_pool2d(sg.zeros((1, 4, 4)), (2, 2, 2)), "adaptive_max_pool2d: output_size"),
        (lambda: sg.nn.conv_transpose1d(sg.zeros((1, 2, 4)), sg.zeros((2, 1, 3)), output_padding=1), "output_padding"),
        (lambda: sg.nn.conv_transpose3d(sg.zeros((1, 2, 4, 4, 4)), sg.zeros((3, 1, 2, 2, 2))), "channels"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(declare: Callable[[], Any], words: str) -> None:
    with pytest.raises(sg.GraphError, match=words):
        declare()
