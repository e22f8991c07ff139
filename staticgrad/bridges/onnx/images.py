"""ONNX's operators on images and signals: resizing, where a result is a product with weights along each axis, samples
at places, and Fourier transforms of numbers whose parts are the last axis.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.base.types import Dim, Size, computed, int64, is_floating
from staticgrad.bridges.arrays import cast
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.onnx.binding import Number, Numbers, Value
from staticgrad.bridges.onnx.casts import target
from staticgrad.bridges.onnx.dialect import OnnxScope, converts
from staticgrad.bridges.onnx.program import OnnxNode
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.nn.resizing import cubic_convolution, multiplied
from staticgrad.nn.sampling import sampled
from staticgrad.ops.elementwise.copies import rounded_once

# -- images ------------------------------------------------------------------------------------------------------------


def source_places(mode: str, size: int, count: int, scale: float, region: tuple[float, float]) -> np.ndarray:
    """The places of a result's elements on an axis of ``size``, by the transformation of coordinates."""
    at = np.arange(count, dtype=np.float64)
    if mode == "align_corners":
        length = scale * size  # no whole number, where a scale is given
        return at * ((size - 1) / (length - 1) if length != 1 else 0.0)
    if mode == "asymmetric":
        return at / scale
    if mode == "tf_half_pixel_for_nn":
        return (at + 0.5) / scale
    if mode == "tf_crop_and_resize":
        start, end = region
        if count == 1:
            return np.array([0.5 * (start + end) * (size - 1)])
        return start * (size - 1) + at * (end - start) * (size - 1) / (count - 1)
    if mode == "pytorch_half_pixel" and count == 1:
        return np.zeros(1)
    if mode not in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"):
        raise RefusedError(f"the coordinates {mode} are not converted")
    moved = size / 2 * (1 - count / (scale * size)) if mode == "half_pixel_symmetric" else 0.0
    return moved + (at + 0.5) / scale - 0.5


NEAREST: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@converts("Resize", "Upsample")
def resize(
    at: OnnxScope, node: OnnxNode, x: Tensor, roi: Value, scales: Numbers, sizes: Numbers, *, mode: str,
    coordinate_transformation_mode: str = "asymmetric", nearest_mode: str = "floor", extrapolation_value: float = 0.0,
    cubic_coeff_a: float = -0.75, antialias: int = 0, exclude_outside: int = 0, axes: Sequence[int] | None,
    keep_aspect_ratio_policy: str = "stretch",
) -> Tensor:  # fmt: skip
    crops = coordinate_transformation_mode == "tf_crop_and_resize"
    axes = [axis % x.ndim for axis in (range(x.ndim) if axes is None else axes)]
    if node.operator == "Upsample" or node.opset < 11:
        scales = scales or at.numbers(node, 1)
    regions = [(0.0, 1.0)] * len(axes)
    if crops and (found := at.numbers(node, 1)):
        regions = list(zip(found[: len(axes)], found[len(axes) :]))
    kept = [not crops and (sizes[k] == x.shape[a] if sizes else scales[k] == 1) for k, a in enumerate(axes)]
    old = [_known(x.shape[axis], is_kept) for axis, is_kept in zip(axes, kept)]
    sizes = [1 if isinstance(size, Dim) else size for size in sizes or ()]
    if sizes and keep_aspect_ratio_policy != "stretch":
        extreme = min if keep_aspect_ratio_policy == "not_larger" else max
        scales = [extreme(new / n for new, n in zip(sizes, old))] * len(old)
        sizes = [math.floor(scales[0] * n + 0.5) for n in old]
    elif sizes:
        scales = [new / n for new, n in zip(sizes, old)]
    else:
        sizes = [math.floor(n * f * (b - a)) for n, f, (a, b) in zip(old, scales, regions)]
    wide = x if mode == "nearest" or is_floating(x.dtype) else cast(x, np.float32)
    wide = cast(wide, computed(wide.dtype))
    for axis, size, count, scale, region in zip(axes, old, sizes, scales, regions):
        if count == size and scale == 1 and not crops:
            continue
        places = source_places(coordinate_transformation_mode, size, int(count), scale, region)
        if mode == "nearest":
            wide = o.take(wide, np.clip(NEAREST[nearest_mode](places), 0, size - 1).astype(np.int64), axis=axis)
        else:
            a, narrow = cubic_coeff_a if mode == "cubic" else None, min(scale, 1.0) if antialias else 1.0
            wide = multiplied(wide, axis, weights_of(size, places, a, narrow, bool(exclude_outside)))
        inside = (places >= 0) & (places <= size - 1)
        if crops and not inside.all():
            inside = np.reshape(inside, [-1 if a == axis else 1 for a in range(x.ndim)])
            wide = o.where(o.constant(inside), wide, extrapolation_value)
    return cast(wide, x.dtype)


def _known(size: Size, is_kept: bool) -> int:
    """A size of an image; 1 in the place of an open one, which only an axis that is kept may have."""
    if isinstance(size, Dim) and not is_kept:
        raise RefusedError(f"the size {size} of an axis that is resized is open")
    return 1 if isinstance(size, Dim) else size


def weights_of(size: int, places: np.ndarray, a: float | None, narrow: float, only_inside: bool) -> np.ndarray:
    """(count, size) weights of the elements of an axis in results at these places of it: cubic ones with the
    coefficient ``a``, or linear ones; distances are multiplied by ``narrow``."""
    reach = math.ceil((1 if a is None else 2) / narrow)
    taps = (np.floor(places)[:, None] + np.arange(1 - reach, reach + 1)).astype(int)
    distance = np.abs(taps - places[:, None]) * narrow
    value = np.maximum(1 - distance, 0) if a is None else cubic_convolution(distance, a)
    if only_inside:
        value = np.where((taps >= 0) & (taps < size), value, 0.0)
    value = value / value.sum(1, keepdims=True)
    weights = np.zeros((len(places), size))
    np.add.at(weights, (np.arange(len(places))[:, None], np.clip(taps, 0, size - 1)), value)
    return weights


# -- samples at places that are computed -------------------------------------------------------------------------------

SAMPLE_MODES = {"linear": "bilinear", "cubic": "bicubic"}  # opset 20's names, which hold for any number of axes


@converts("GridSample")
def grid_sample(x: Tensor, grid: Tensor, *, mode: str, padding_mode: str, align_corners: int) -> Tensor:
    mode, corners = SAMPLE_MODES.get(mode, mode), bool(align_corners)
    return rounded_once(lambda x, grid: sampled(o, x, grid, mode, padding_mode, corners), x, cast(grid, x.dtype))


@converts("RoiAlign")
def roi_align(
    node: OnnxNode, x: Tensor, rois: Tensor, batch: Tensor, *, output_height: int, output_width: int,
    sampling_ratio: int, spatial_scale: float, mode: str, coordinate_transformation_mode: str = "output_half_pixel",
) -> Tensor:  # fmt: skip
    if sampling_ratio <= 0:
        raise RefusedError("how many samples a region has depends on values that only a run knows")
    half = 0.5 if coordinate_transformation_mode == "half_pixel" else 0.0
    corners = rois * spatial_scale - half
    axes = []
    for first, last, bins, size in ((1, 3, output_height, x.shape[2]), (0, 2, output_width, x.shape[3])):
        extent = corners[:, last] - corners[:, first]
        extent = extent if half else o.maximum(extent, 1.0)
        steps = (np.arange(bins * sampling_ratio) + 0.5) / (bins * sampling_ratio)
        axes.append(_region_taps(corners[:, first, None] + extent[:, None] * steps.astype(x.dtype), int(size)))
    images = o.permute_dims(x, (0, 2, 3, 1))
    parts = []
    for (row, down, row_in), (column, right, column_in) in itertools.product(*axes):
        weight = o.where(row_in, down, 0)[:, :, None] * o.where(column_in, right, 0)[:, None, :]
        value = images[(batch[:, None, None], row[:, :, None], column[:, None, :])]
        parts.append(value * o.expand_dims(weight, -1))
    merge, reduce = (o.add, o.mean) if mode == "avg" else (o.maximum, o.max)
    grouped = (rois.shape[0], output_height, sampling_ratio, output_width, sampling_ratio, x.shape[1])
    y = reduce(o.reshape(functools.reduce(merge, parts), grouped), (2, 4))
    return o.permute_dims(y, (0, 3, 1, 2))


def _region_taps(place: Tensor, size: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """The two neighbours of places on an axis, their weights, and whether a place is near enough to count."""
    inside = o.logical_and(place >= -1, place <= size)
    place = o.clip(place, 0, size - 1)
    low = o.minimum(o.floor(place), size - 1)
    t = place - low
    high = o.minimum(low + 1, size - 1)
    return [(cast(low, int64), 1 - t, inside), (cast(high, int64), t, inside)]


# -- signals -----------------------------------------------------------------------------------------------------------


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
    return o.take(y, np.arange(int(y.shape[axis]) // 2 + 1), axis=axis)


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
