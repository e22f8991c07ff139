"""ONNX's operators on signals. A discrete Fourier transform is a product with a matrix of cosines and sines."""

from __future__ import annotations

from typing import Any

import numpy as np

from staticgrad.bridges.onnx.casts import target
from staticgrad.bridges.onnx.dialect import OnnxScope, converts
from staticgrad.bridges.onnx.program import OnnxNode
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


def _parts(x: Tensor) -> tuple[Tensor, Tensor | None]:
    """The real part, and the imaginary one if there is one, of numbers that are the last axis."""
    return x[..., 0], x[..., 1] if x.shape[-1] == 2 else None


def transformed(x: Tensor, length: int, *, inverse: bool, onesided: bool) -> Tensor:
    """The transform of (…, n, 1 or 2) along the last axis but one, of ``length`` places: (…, frequencies, 1 or 2).

    A real signal has half of its frequencies where it is ``onesided``; the inverse of these is real.
    """
    size = int(x.shape[-2])
    if inverse and onesided:
        x = _whole(x, length)
        size = length
    if size > length:
        x = x[..., :length, :]
    elif size < length:
        x = o.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, length - size), (0, 0)])
    count = length // 2 + 1 if onesided and not inverse else length
    turns = np.outer(np.arange(length), np.arange(count)) % length * (2 * np.pi / length)
    scale = 1 / length if inverse else 1.0
    cosine = (np.cos(turns) * scale).astype(x.dtype)
    sine = (np.sin(turns) * (scale if inverse else -scale)).astype(x.dtype)
    real, imaginary = _parts(x)
    y_real, y_imaginary = o.matmul(real, cosine), o.matmul(real, sine)
    if imaginary is not None:
        y_real, y_imaginary = y_real - o.matmul(imaginary, sine), y_imaginary + o.matmul(imaginary, cosine)
    if inverse and onesided:
        return o.expand_dims(y_real, -1)
    return o.stack([y_real, y_imaginary], axis=-1)


def _whole(x: Tensor, length: int) -> Tensor:
    """All frequencies of a real signal, of which ``x`` has half: the others are their conjugates."""
    places = np.arange(length)
    half = np.minimum(places, length - places)
    y = o.take(x, half, axis=-2)
    signs = np.where(places <= length // 2, 1, -1).astype(x.dtype)
    return o.stack([y[..., 0], y[..., 1] * signs], axis=-1)


@converts("DFT")
def fourier(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, inverse, onesided = at.tensor(node.inputs[0]), bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    axis = node.attr("axis", 1) if node.opset < 20 else at.number(node, 2, what="the axis of a transform")
    axis = (-2 if axis is None else axis) % x.ndim
    size = int(x.shape[axis])
    length = at.number(node, 1, what="the length of a transform") or (2 * (size - 1) if inverse and onesided else size)
    y = transformed(o.moveaxis(x, axis, -2), length, inverse=inverse, onesided=onesided)
    return o.moveaxis(y, -2, axis)


@converts("STFT")
def short_time_fourier(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, window = at.tensor(node.inputs[0]), at.operand(node, 2)
    step, length = at.number(node, 1), at.number(node, 3)
    length = int(length if length is not None else window.shape[0] if window is not None else x.shape[1])
    count = 1 + (int(x.shape[1]) - length) // step
    frames = o.take(x, np.arange(count)[:, None] * step + np.arange(length), axis=1)  # (batch, frame, place, part)
    frames = frames if window is None else frames * o.reshape(window, (length, 1))
    return transformed(frames, length, inverse=False, onesided=bool(node.attr("onesided", 1)))


@converts("MelWeightMatrix")
def mel_weights(at: OnnxScope, node: OnnxNode) -> Any:
    bands, length, rate, low, high = (at.number(node, place, what="the weights of bands") for place in range(5))
    ends = np.log10(1 + np.array([low, high]) / 700) * 2595
    mels = ends[0] + np.arange(bands + 2) * ((ends[1] - ends[0]) / (bands + 2))
    places = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(int)
    left, centre, right = places[:-2], places[1:-1], places[2:]
    bins = np.arange(length // 2 + 1)[:, None]
    rising = (bins - left) / np.maximum(centre - left, 1)
    falling = (right - bins) / np.maximum(right - centre, 1)
    weights = np.where((bins >= left) & (bins <= centre), np.where(centre == left, 1.0, rising), 0.0)
    weights = np.where((bins >= centre) & (bins < right), falling, weights)
    return weights.astype(target(node.attr("output_datatype", 1)))
