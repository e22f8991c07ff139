"""ONNX's operators on signals: Fourier transforms of numbers whose parts are the last axis, and weights of bands."""

from __future__ import annotations

from typing import Any

import numpy as np

from staticgrad.bridges.onnx.binding import Number
from staticgrad.bridges.onnx.casts import target
from staticgrad.bridges.onnx.dialect import converts
from staticgrad.bridges.onnx.program import OnnxNode
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


def transformed(x: Tensor, axis: int, length: int | None, *, inverse: bool, onesided: bool) -> Tensor:
    """The transform of (…, n, …, 1 or 2) along an axis, of ``length`` places, by default n, with as many
    frequencies in its place.

    A real signal has half of its frequencies where it is ``onesided``; the inverse of these is real.
    """
    real, imaginary = x[..., 0], x[..., 1] if x.shape[-1] == 2 else None
    if inverse and onesided:
        zero = o.zeros_like(real) if imaginary is None else imaginary
        return o.expand_dims(o.irfft(real, zero, length, axis), -1)
    if onesided and imaginary is None:
        return o.stack(o.rfft(real, length, axis), axis=-1)
    y = o.stack((o.ifft if inverse else o.fft)(real, imaginary, length, axis), axis=-1)
    if not onesided:
        return y
    return o.take(y, np.arange(y.shape[axis] // 2 + 1), axis=axis)


@converts("DFT")
def fourier(node: OnnxNode, x: Tensor, dft_length: Number, axis: Number, *, inverse: int, onesided: int) -> Tensor:
    axis = (-2 if axis is None else axis) if node.opset >= 20 else node.attr("axis", 1)
    return transformed(x, axis % x.ndim, dft_length, inverse=bool(inverse), onesided=bool(onesided))


@converts("STFT")
def short_time_fourier(x: Tensor, step: Number, window: Tensor | None, length: Number, *, onesided: int) -> Tensor:
    length = int(length if length is not None else window.shape[0] if window is not None else x.shape[1])
    count = 1 + (int(x.shape[1]) - length) // step
    frames = o.take(x, np.arange(count)[:, None] * step + np.arange(length), axis=1)  # (batch, frame, place, part)
    frames = frames if window is None else frames * o.reshape(window, (length, 1))
    return transformed(frames, 2, None, inverse=False, onesided=bool(onesided))


@converts("MelWeightMatrix")
def mel_weights(bands: Number, length: Number, rate: Number, low: Number, high: Number, *, output_datatype: int) -> Any:
    ends = np.log10(1 + np.array([low, high]) / 700) * 2595
    mels = ends[0] + np.arange(bands + 2) * ((ends[1] - ends[0]) / (bands + 2))
    places = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(int)
    left, centre, right = places[:-2], places[1:-1], places[2:]
    bins = np.arange(length // 2 + 1)[:, None]
    rising = (bins - left) / np.maximum(centre - left, 1)
    falling = (right - bins) / np.maximum(right - centre, 1)
    weights = np.where((bins >= left) & (bins <= centre), np.where(centre == left, 1.0, rising), 0.0)
    weights = np.where((bins >= centre) & (bins < right), falling, weights)
    return weights.astype(target(output_datatype))
