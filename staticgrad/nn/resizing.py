"""Images made larger and smaller: ``interpolate``. Along each axis that is a product with a matrix of weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, Literal

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.types import Dim, integers, is_floating
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift
from staticgrad.graph.optable import FUNCTIONS, Array
from staticgrad.nn.padding import own
from staticgrad.ops.declare import shown_as
from staticgrad.ops.elementwise.copies import rounded_once
from staticgrad.ops.indexing.subscripts import take
from staticgrad.ops.windows import averaging_matrix

InterpolationMode = Literal["nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "area"]


def _source_places(size: int, count: int, align_corners: bool, scale: float | None) -> Array:
    """The positions of the centres of ``count`` elements on an axis of ``size``."""
    if align_corners:
        return np.arange(count) * ((size - 1) / (count - 1) if count > 1 else 0.0)
    return (np.arange(count) + 0.5) * (size / count if scale is None else 1 / scale) - 0.5


def cubic_convolution(t: Array, a: float) -> Array:
    """Cubic convolution (Keys 1981) at the distances ``t``."""
    near, far = ((a + 2) * t - (a + 3)) * t * t + 1, a * (((t - 5) * t + 8) * t - 4)
    return np.where(t <= 1, near, np.where(t < 2, far, 0))


def _cubic_weights(size: int, count: int, align_corners: bool, scale: float | None) -> Array:
    """(count, size) weights of cubic convolution, a = -3/4; what lies outside is the nearest element."""
    source = _source_places(size, count, align_corners, scale)
    low = np.floor(source).astype(int)
    weights = np.zeros((count, size))
    for neighbour in range(-1, 3):
        value = cubic_convolution(np.abs(source - low - neighbour), -0.75)
        np.add.at(weights, (np.arange(count), np.clip(low + neighbour, 0, size - 1)), value)
    return weights


def _linear_weights(size: int, count: int, align_corners: bool, scale: float | None) -> Array:
    """(count, size) weights of linear interpolation between neighbours; what lies outside is the nearest element."""
    places = np.arange(count)
    source = np.maximum(_source_places(size, count, align_corners, scale), 0)
    low = np.minimum(np.floor(source).astype(int), size - 1)
    high = np.minimum(low + 1, size - 1)
    fraction = np.minimum(source - low, 1.0)
    weights = np.zeros((count, size))
    np.add.at(weights, (places, low), 1 - fraction)
    np.add.at(weights, (places, high), fraction)
    return weights


def _smooth_weights(size: int, count: int, align_corners: bool, scale: float | None, cubic: bool) -> Array:
    """(count, size) weights of a triangle, or of cubic convolution with a = -1/2, that is as wide as what one element
    of a smaller result stands for; what lies outside has no weight."""
    ratio = size / count if scale is None else 1 / scale
    if align_corners:
        ratio = (size - 1) / (count - 1) if count > 1 else 0.0
    width = max(ratio, 1.0)
    centre, reach = (np.arange(count)[:, None] + 0.5) * ratio, width * (2 if cubic else 1)
    place = np.arange(size)
    distance = np.abs(place + 0.5 - centre) / width
    weights = cubic_convolution(distance, -0.5) if cubic else np.maximum(1 - distance, 0)
    inside = (place >= np.trunc(centre - reach + 0.5)) & (place < np.trunc(centre + reach + 0.5))
    weights = np.where(inside, weights, 0)
    weights /= weights.sum(1, keepdims=True)
    return weights


def multiplied(x: Tensor, axis: int, weights: Array) -> Tensor:
    """Multiply one axis by a matrix (count, size)."""
    o = FUNCTIONS
    moved = o.moveaxis(x, axis, -1)
    return o.moveaxis(o.matmul(moved, weights.T.astype(x.dtype)), -1, axis)


def _resized(
    x: Tensor, size: int | Sequence[int] | None, scale_factor: float | Sequence[float] | None
) -> tuple[list[int], list[float | None]]:
    """The new sizes of the axes after the second, and the factor that coordinates are scaled by (None: of sizes)."""
    rank = x.ndim - 2
    old = x.shape[2:]
    if any(isinstance(s, Dim) for s in old) or rank < 1:
        raise GraphError(f"interpolate: expected an image (N, C, *) of known size, actual {x.type}")
    if (size is None) == (scale_factor is None):
        raise GraphError("interpolate: give either size or scale_factor")
    if size is not None:
        new = list(integers(size, "interpolate: size")) * (1 if np.iterable(size) else rank)
        factors: list[float | None] = [None] * rank
    else:
        given: list[Any] = list(scale_factor) if np.iterable(scale_factor) else [scale_factor] * rank
        if not all(isinstance(f, Real) and 0 < float(f) < math.inf for f in given) or len(given) != rank:
            raise GraphError(f"interpolate: scale_factor={scale_factor!r}: expected {rank} positive numbers, or one")
        factors = [float(f) for f in given]
        new = [math.floor(s * f) for s, f in zip(old, factors, strict=True) if isinstance(s, int) and f is not None]
    if len(new) != rank or min(new) < 1:
        raise GraphError(f"interpolate: new sizes {tuple(new)} for an input {x.type}")
    return new, factors


_MODES = {"nearest": "Nearest", "nearest-exact": "NearestExact", "linear": "Linear", "bilinear": "Bilinear",
          "trilinear": "Trilinear", "bicubic": "Bicubic"}  # fmt: skip


def _name_of_interpolate(
    input: TensorLike, size: Any = None, scale_factor: Any = None, mode: str = "nearest", *rest: Any, **options: Any
) -> str:
    """PyTorch's backward node, by the mode and the number of axes."""
    antialias = (rest[2] if len(rest) > 2 else options.get("antialias", False)) and mode in ("bilinear", "bicubic")
    axes = f"{lift(input).ndim - 2}D"
    if mode == "area":
        return f"AdaptiveAvgPool{axes}Backward0"
    return f"Upsample{_MODES[mode]}{axes}{'Aa' if antialias else ''}Backward0"


@shown_as(_name_of_interpolate)
def interpolate(
    input: TensorLike,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: InterpolationMode = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resize the axes after the second.

    Args:
        input: (N, C, …) with one to three more axes of known size.
        size: new sizes, or one for all.
        scale_factor: instead of sizes: by what the old ones are multiplied (rounded down).
        mode: ``"nearest"``, ``"nearest-exact"``, ``"linear"`` (of images ``"bilinear"``, of volumes ``"trilinear"``),
            ``"bicubic"`` (of images) or ``"area"``.
        align_corners: for linear and cubic modes: the centres of the corner elements stay where they are.
        recompute_scale_factor: with ``scale_factor``: coordinates are scaled as if the new sizes had been given.
        antialias: with ``"bilinear"`` and ``"bicubic"``: a smaller image averages all that it stands for.

    Raises:
        GraphError: sizes that are not known or empty, an unknown mode, or one that averages an image of integers.

    Example:
        >>> x = sg.constant([[[1.0, 3.0]]])
        >>> sg.Session().run(sg.nn.interpolate(x, scale_factor=2))
        array([[[1., 1., 3., 3.]]], dtype=float32)
        >>> sg.Session().run(sg.nn.interpolate(x, size=4, mode="linear"))
        array([[[1. , 1.5, 2.5, 3. ]]], dtype=float32)
    """
    x = lift(input)
    new, factors = _resized(x, size, scale_factor)
    if recompute_scale_factor:
        new, factors = _resized(x, new, None)
    modes = {3: ("linear",), 4: ("bilinear", "bicubic"), 5: ("trilinear",)}
    if mode not in ("nearest", "nearest-exact", "area", *modes.get(x.ndim, ())):
        raise GraphError(f"interpolate: mode={mode!r} for an input of {x.ndim} dimensions")
    if align_corners is not None and mode in ("nearest", "nearest-exact", "area"):
        raise GraphError(f"interpolate: align_corners has no meaning with mode={mode!r}")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise GraphError(f"interpolate: antialias has no meaning with mode={mode!r}")
    if mode not in ("nearest", "nearest-exact") and not is_floating(x.dtype):
        raise GraphError(f"interpolate: mode={mode!r} needs a floating image (astype makes one), actual {x.type}")
    resized = rounded_once(lambda x: _resample(x, new, factors, mode, bool(align_corners), antialias), x)
    return own(resized, input)


def _resample(
    x: Tensor,
    new: Sequence[int],
    factors: Sequence[float | None],
    mode: InterpolationMode,
    align_corners: bool,
    antialias: bool,
) -> Tensor:
    """``x`` with the axes after the second resized, one after the other."""
    for axis, (count, factor) in enumerate(zip(new, factors, strict=True), 2):
        old = int(x.shape[axis])
        if old == count and factor in (None, 1.0):
            continue
        if mode in ("nearest", "nearest-exact"):
            ratio = old / count if factor is None else 1 / factor
            places = (np.arange(count) + (0.5 if mode == "nearest-exact" else 0.0)) * ratio
            x = take(x, np.minimum(np.floor(places).astype(np.int64), old - 1), axis=axis)
        elif mode == "area":
            x = multiplied(x, axis, averaging_matrix(old, count))
        elif antialias:
            x = multiplied(x, axis, _smooth_weights(old, count, align_corners, factor, mode == "bicubic"))
        else:
            weights = _cubic_weights if mode == "bicubic" else _linear_weights
            x = multiplied(x, axis, weights(old, count, align_corners, factor))
    return x
