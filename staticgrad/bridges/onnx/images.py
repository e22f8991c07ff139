"""ONNX's resizing and sampling of images. Along an axis that is resized a result is a product with weights."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from staticgrad.base.types import computed, int64, is_floating
from staticgrad.bridges.arrays import cast
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.onnx.binding import Numbers, Value
from staticgrad.bridges.onnx.dialect import OnnxScope, converts
from staticgrad.bridges.onnx.program import OnnxNode
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.nn.resizing import cubic_convolution, multiplied
from staticgrad.nn.sampling import sampled
from staticgrad.ops.elementwise.copies import rounded_once


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
    old = [int(x.shape[axis]) for axis in axes]
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
        kept = (places >= 0) & (places <= size - 1)
        if crops and not kept.all():
            kept = np.reshape(kept, [-1 if a == axis else 1 for a in range(x.ndim)])
            wide = o.where(o.constant(kept), wide, extrapolation_value)
    return cast(wide, x.dtype)


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
