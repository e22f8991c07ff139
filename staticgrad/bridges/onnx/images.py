"""ONNX's resizing and sampling of images. Along an axis that is resized a result is a product with weights."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.base.types import computed, int64, is_floating
from staticgrad.bridges.arrays import cast
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.onnx.dialect import OnnxScope, converts
from staticgrad.bridges.onnx.program import OnnxNode
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


def cubic(t: Any, a: float) -> Any:
    """Cubic convolution (Keys 1981) at the distances ``t``, in NumPy."""
    t = np.abs(t)
    near, far = ((a + 2) * t - (a + 3)) * t * t + 1, a * (((t - 5) * t + 8) * t - 4)
    return np.where(t <= 1, near, np.where(t < 2, far, 0.0))


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


def weights_of(node: OnnxNode, size: int, places: np.ndarray, scale: float) -> np.ndarray:
    """(count, size) weights of the elements of an axis in results at these places of it."""
    is_cubic = node.attr("mode", "nearest") == "cubic"
    narrow = min(scale, 1.0) if node.attr("antialias", 0) else 1.0
    reach = math.ceil((2 if is_cubic else 1) / narrow)
    low = np.floor(places)[:, None]
    taps = (low + np.arange(1 - reach, reach + 1)).astype(int)
    distance = (taps - places[:, None]) * narrow
    value = cubic(distance, node.attr("cubic_coeff_a", -0.75)) if is_cubic else np.maximum(1 - np.abs(distance), 0)
    if node.attr("exclude_outside", 0):
        value = np.where((taps >= 0) & (taps < size), value, 0.0)
    value = value / value.sum(1, keepdims=True)
    weights = np.zeros((len(places), size))
    np.add.at(weights, (np.arange(len(places))[:, None], np.clip(taps, 0, size - 1)), value)
    return weights


@converts("Resize", "Upsample")
def resize(at: OnnxScope, node: OnnxNode) -> Tensor:
    x = at.tensor(node.inputs[0])
    factors, wanted, regions = _targets(at, node, x)
    mode = node.attr("coordinate_transformation_mode", "half_pixel" if node.operator == "Resize" else "asymmetric")
    mode = "asymmetric" if node.opset < 11 else mode
    axes = [axis % x.ndim for axis in node.attr("axes", range(x.ndim))]
    wide = x if node.attr("mode", "nearest") == "nearest" or is_floating(x.dtype) else cast(x, np.float32)
    wide = cast(wide, computed(wide.dtype))
    for place, axis in enumerate(axes):
        size, count, scale = int(wide.shape[axis]), wanted[place], factors[place]
        if count == size and scale == 1 and mode != "tf_crop_and_resize":
            continue
        places = source_places(mode, size, count, scale, regions[place])
        outside = (places < 0) | (places > size - 1) if mode == "tf_crop_and_resize" else np.zeros(count, bool)
        wide = _resampled(node, wide, axis, places, scale)
        if outside.any():
            kept = np.reshape(~outside, [-1 if a == axis else 1 for a in range(x.ndim)])
            wide = o.where(o.constant(kept), wide, node.attr("extrapolation_value", 0.0))
    return cast(wide, x.dtype)


def _resampled(node: OnnxNode, x: Tensor, axis: int, places: np.ndarray, scale: float) -> Tensor:
    size = int(x.shape[axis])
    if node.attr("mode", "nearest") == "nearest":
        rounding = node.attr("nearest_mode", "round_prefer_floor" if node.opset >= 11 else "floor")
        nearest = np.clip(NEAREST[rounding](places), 0, size - 1)
        return o.take(x, nearest.astype(np.int64), axis=axis)
    weights = weights_of(node, size, places, scale).T.astype(x.dtype)
    return o.moveaxis(o.matmul(o.moveaxis(x, axis, -1), weights), -1, axis)


def _targets(at: OnnxScope, node: OnnxNode, x: Tensor) -> tuple[list[float], list[int], list[tuple[float, float]]]:
    """For each axis that is resized its factor, its new size, and the part of it that is shown."""
    axes = [axis % x.ndim for axis in node.attr("axes", range(x.ndim))]
    old = [int(x.shape[axis]) for axis in axes]
    only_scales = node.operator == "Upsample" or node.opset < 11
    scales = at.numbers(node, 1 if only_scales else 2, "scales")
    sizes = None if only_scales else at.numbers(node, 3)
    roi = (
        None
        if only_scales or node.attr("coordinate_transformation_mode") != "tf_crop_and_resize"
        else at.numbers(node, 1)
    )
    regions = [(0.0, 1.0)] * len(axes) if not roi else list(zip(roi[: len(axes)], roi[len(axes) :]))
    if not sizes:
        crop = [b - a for a, b in regions]
        return scales, [math.floor(n * f * c) for n, f, c in zip(old, scales, crop)], regions
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        factor = (min if policy == "not_larger" else max)(new / n for new, n in zip(sizes, old))
        return [factor] * len(old), [math.floor(factor * n + 0.5) for n in old], regions
    return [new / n for new, n in zip(sizes, old)], [int(n) for n in sizes], regions


# -- samples at places that are computed -------------------------------------------------------------------------------


def _cubic_taps(t: Tensor, a: float = -0.75) -> list[Tensor]:
    """The weights of the four neighbours of a place that is ``t`` behind the second."""

    def near(d: Tensor) -> Tensor:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Tensor) -> Tensor:
        return (((d - 5) * d + 8) * d - 4) * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _reflected(x: Tensor, low: float, high: float) -> Tensor:
    """Places, reflected at the ends until they lie between."""
    span = high - low
    if span <= 0:
        return o.zeros_like(x)
    turned = o.remainder(o.abs(x - low), 2 * span)
    return o.minimum(turned, 2 * span - turned) + low


@converts("GridSample")
def grid_sample(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, grid = at.operands(node)
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(node.attr("mode", "linear"), node.attr("mode", "linear"))
    border, corners = node.attr("padding_mode", "zeros"), node.attr("align_corners", 0)
    rank, sizes = x.ndim - 2, [int(size) for size in x.shape[2:]]
    images = o.permute_dims(x, (0, *range(2, x.ndim), 1))
    rows: list[list[tuple[Tensor, Tensor]]] = []  # for each axis its taps: places and weights
    for axis, size in enumerate(sizes):
        place = grid[..., rank - 1 - axis]
        place = (place + 1) * ((size - 1) / 2) if corners else ((place + 1) * size - 1) / 2
        ends = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
        if mode != "cubic":
            place = _bordered(place, border, size, ends)
        rows.append(_taps(place, mode, border, size, ends))
    total: Any = None
    batch = o.iota(rows[0][0][0].shape, 0)
    for taps in itertools.product(*rows):
        inside = [o.logical_and(p >= 0, p <= size - 1) for (p, _), size in zip(taps, sizes)]
        key = tuple(cast(o.clip(p, 0, size - 1), int64) for (p, _), size in zip(taps, sizes))
        weight = functools.reduce(o.multiply, [w for _, w in taps])
        weight = o.where(functools.reduce(o.logical_and, inside), weight, 0)
        part = images[(batch, *key)] * o.expand_dims(cast(weight, x.dtype), -1)
        total = part if total is None else total + part
    return o.moveaxis(total, -1, 1)


def _bordered(place: Tensor, border: str, size: int, ends: tuple[float, float]) -> Tensor:
    if border == "reflection":
        place = _reflected(place, *ends)
    return place if border == "zeros" else o.clip(place, 0, size - 1)


def _taps(place: Tensor, mode: str, border: str, size: int, ends: tuple[float, float]) -> list[tuple[Tensor, Tensor]]:
    if mode == "nearest":
        return [(o.round(place), o.ones_like(place))]
    low = o.floor(place)
    t = place - low
    if mode == "linear":
        return [(low, 1 - t), (low + 1, t)]
    return [(_bordered(low + k - 1, border, size, ends), w) for k, w in enumerate(_cubic_taps(t))]


@converts("RoiAlign")
def roi_align(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, rois, batch = at.operands(node)
    height, width = node.attr("output_height", 1), node.attr("output_width", 1)
    ratio, scale = node.attr("sampling_ratio", 0), node.attr("spatial_scale", 1.0)
    half = (
        0.5 if node.attr("coordinate_transformation_mode", "half_pixel") == "half_pixel" and node.opset >= 16 else 0.0
    )
    if ratio <= 0:
        raise RefusedError("how many samples a region has depends on values that only a run knows")
    corners = rois * scale - half
    axes = []
    for first, last, bins, size in ((1, 3, height, x.shape[2]), (0, 2, width, x.shape[3])):
        extent = corners[:, last] - corners[:, first]
        extent = extent if half else o.maximum(extent, 1.0)
        steps = (np.arange(bins * ratio) + 0.5) / (bins * ratio)
        axes.append(_region_taps(corners[:, first, None] + extent[:, None] * steps.astype(x.dtype), int(size)))
    images = o.permute_dims(x, (0, 2, 3, 1))
    parts = []
    for (row, down, row_in), (column, right, column_in) in itertools.product(*axes):
        weight = o.where(row_in, down, 0)[:, :, None] * o.where(column_in, right, 0)[:, None, :]
        value = images[(batch[:, None, None], row[:, :, None], column[:, None, :])]
        parts.append(value * o.expand_dims(weight, -1))
    grouped = (rois.shape[0], height, ratio, width, ratio, x.shape[1])
    if node.attr("mode", "avg") == "avg":
        y = o.mean(o.reshape(functools.reduce(o.add, parts), grouped), (2, 4))
    else:
        y = o.max(o.reshape(functools.reduce(o.maximum, parts), grouped), (2, 4))
    return o.permute_dims(y, (0, 3, 1, 2))


def _region_taps(place: Tensor, size: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """The two neighbours of places on an axis, their weights, and whether a place is near enough to count."""
    inside = o.logical_and(place >= -1, place <= size)
    place = o.clip(place, 0, size - 1)
    low = o.minimum(o.floor(place), size - 1)
    t = place - low
    high = o.minimum(low + 1, size - 1)
    return [(cast(low, int64), 1 - t, inside), (cast(high, int64), t, inside)]
