"""Fourier transforms over pairs of reals beside NumPy's: sizes of every way, lengths, axes, factors, derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staticgrad as sg

RNG = np.random.default_rng(23)


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Derivatives and ways to call are right in graphs; what these are compiled to is right by tests of products."""
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")


def run(fetches: Any, feeds: Any = None) -> Any:
    return sg.Session(sg.get_default_graph()).run(fetches, feeds)


def as_complex(pair: Any) -> np.ndarray:
    real, imag = pair
    assert real.dtype == imag.dtype
    return np.asarray(real.astype(float) + 1j * imag.astype(float))


def numbers(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape) + 1j * RNG.normal(size=shape)


def all_four(x: np.ndarray, dtype: np.dtype) -> tuple[Any, dict[sg.Tensor, np.ndarray], list[np.ndarray]]:
    """The four transforms of rows, their feeds, and NumPy's results."""
    n = x.shape[-1]
    real, imag = sg.placeholder(x.shape, dtype), sg.placeholder(x.shape, dtype)
    half = n // 2 + 1
    fetches = [sg.fft(real, imag), sg.ifft(real, imag), sg.rfft(real), sg.irfft(real[:, :half], imag[:, :half], n)]
    want = [np.fft.fft(x), np.fft.ifft(x), np.fft.rfft(x.real), np.fft.irfft(x[:, :half], n)]
    return fetches, {real: x.real.astype(dtype), imag: x.imag.astype(dtype)}, want


@pytest.mark.parametrize("n", [1, 2, 5, 48, 49, 97, 100, 360, 422, 499, 1024, 3000])
def test_transforms_are_numpys_for_small_smooth_and_prime_sizes(n: int) -> None:
    """By one product, by two and more, and by a convolution; to the last digits of the largest element."""
    fetches, feeds, want = all_four(numbers(3, n), np.dtype(np.float64))
    for got, right in zip(run(fetches, feeds), want, strict=True):
        value = as_complex(got) if isinstance(got, tuple) else got
        np.testing.assert_allclose(value, right, rtol=0, atol=1e-13 * np.abs(right).max())


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("dtype", [sg.float32, sg.float16, sg.bfloat16])
def test_transforms_of_narrower_floats_have_their_digits(dtype: np.dtype) -> None:
    fetches, feeds, want = all_four(numbers(2, 60), dtype)
    for got, right in zip(run(fetches, feeds), want, strict=True):
        value = as_complex(got) if isinstance(got, tuple) else got.astype(float)
        np.testing.assert_allclose(value, right, rtol=0, atol=4 * float(sg.finfo(dtype).eps) * np.abs(right).max())


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_lengths_axes_and_factors_are_numpys(norm: Any) -> None:
    x = numbers(2, 6, 5)
    for axis in (0, 1, -1):
        for n in (None, 4, 9):
            got = run([sg.fft(x.real, x.imag, n, axis, norm=norm), sg.ifft(x.real, x.imag, n, axis, norm=norm),
                       sg.rfft(x.real, n, axis, norm=norm), sg.fft(x.real, None, n, axis, norm=norm)])  # fmt: skip
            want = [np.fft.fft(x, n, axis, norm), np.fft.ifft(x, n, axis, norm), np.fft.rfft(x.real, n, axis, norm),
                    np.fft.fft(x.real, n, axis, norm)]  # fmt: skip
            for one, right in zip(got, want, strict=True):
                np.testing.assert_allclose(as_complex(one), right, atol=1e-12)
            back = run(sg.irfft(x.real, x.imag, n, axis, norm=norm))
            np.testing.assert_allclose(back, np.fft.irfft(x, n, axis, norm), atol=1e-12)


def test_transforms_of_open_batches() -> None:
    x = sg.placeholder((sg.dim("n"), 30), sg.float64)
    real, imag = sg.rfft(x)
    again = sg.irfft(real, imag, 30)
    with sg.Session() as session:
        for count in (1, 5):
            value = RNG.normal(size=(count, 30))
            np.testing.assert_allclose(session.run(again, {x: value}), value, atol=1e-13)


@pytest.mark.usefixtures("interpreted")
def test_transforms_have_derivatives_in_both_modes_and_go_over_examples() -> None:
    x = numbers(2, 9)
    for n in (9, 60, 211):
        sg.check_gradients(lambda a, b, n=n: [sg.sum(sg.sin(y)) for y in sg.fft(a, b, n)], [x.real, x.imag])
    sg.check_gradients(lambda a: [sg.sum(sg.sin(y)) for y in sg.rfft(a, 64)], [x.real])
    sg.check_gradients(lambda a, b: sg.sum(sg.sin(sg.irfft(a, b, 15))), [x.real, x.imag])
    real, imag = run(sg.vmap(lambda a: tuple(sg.fft(a)))(sg.constant(x.real)))
    np.testing.assert_allclose(real + 1j * imag, np.fft.fft(x.real), atol=1e-13)


def test_a_convolution_by_transforms_is_the_convolution() -> None:
    a, b = RNG.normal(size=40), RNG.normal(size=25)
    (p, q), (r, s) = sg.rfft(a, 64), sg.rfft(b, 64)
    got = run(sg.irfft(p * r - q * s, p * s + q * r))
    np.testing.assert_allclose(got, np.convolve(a, b), atol=1e-12)


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda: sg.fft(np.ones(3), np.ones(4)), "imaginary parts of the shape"),
        (lambda: sg.rfft(sg.placeholder((2, None))), "known when declared"),
        (lambda: sg.fft(np.ones((2, 0))), "expected elements on axis 1"),
        (lambda: sg.fft(np.ones(3), n=0), "n"),
        (lambda: sg.fft(np.ones(3), norm="none"), "norm='none'"),
        (lambda: sg.irfft(np.ones(1), np.ones(1)), "two elements or more"),
    ],
)
def test_what_has_no_transform_is_refused(declare: Callable[[], Any], words: str) -> None:
    with pytest.raises(sg.GraphError, match=words):
        declare()
