"""Images and volumes read at given places: ``grid_sample``, and the places of an affine map, ``affine_grid``.

A place between elements is a sum over neighbours, each a gather of all channels times a weight for each axis; the
derivative by the places is that of the weights.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Literal

from staticgrad.base.errors import GraphError
from staticgrad.base.types import Size, int64, integers, is_floating
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift
from staticgrad.graph.optable import FUNCTIONS, Namespace
from staticgrad.ops.contraction import require_equal
from staticgrad.ops.declare import operands, shown_as
from staticgrad.ops.elementwise.copies import rounded_once

SampleMode = Literal["bilinear", "nearest", "bicubic"]
PaddingMode = Literal["zeros", "border", "reflection"]
CUBIC = -0.75  # the parameter of cubic convolution, PyTorch's


def _elements(o: Namespace, place: Tensor, size: Size, align_corners: bool) -> Tensor:
    """Places from −1 to 1 as positions of elements, from 0 to size − 1 where the corners are those of elements' centres
    and from −½ to size − ½ where they are the image's."""
    if align_corners:
        return o.multiply(o.multiply(o.add(place, 1), 0.5), size - 1)
    return o.multiply(o.subtract(o.multiply(o.add(place, 1), size), 1), 0.5)


def _limited(o: Namespace, x: Tensor, size: Size) -> Tensor:
    """Positions that are no further than the first and the last element, whose derivative is 0 from these on."""
    inside = o.logical_and(o.greater(x, 0), o.less(x, size - 1))
    return o.where(inside, x, o.stop_gradient(o.minimum(o.maximum(x, 0), size - 1)))


def _reflected(o: Namespace, x: Tensor, low: float, span: Size) -> Tensor:
    """Positions mirrored at ``low`` and ``low`` + ``span`` until they are between these."""
    if span == 0:
        return o.zeros_like(x)
    distance = o.subtract(x, low)
    distance = o.where(o.less(distance, 0), o.negative(distance), distance)
    turns = o.stop_gradient(o.floor(o.divide(distance, span)))
    rest = o.subtract(distance, o.multiply(turns, span))
    even = o.equal(o.remainder(turns, 2), 0)
    return o.add(o.where(even, rest, o.subtract(span, rest)), low)


def _padded(o: Namespace, x: Tensor, size: Size, padding_mode: str, align_corners: bool) -> Tensor:
    """Positions outside of an axis as the padding has them: as they are for zeros."""
    if padding_mode == "reflection":
        low, span = (0.0, size - 1) if align_corners else (-0.5, size)
        x = _reflected(o, x, low, span)
    return x if padding_mode == "zeros" else _limited(o, x, size)


def _cubic_weights(o: Namespace, t: Tensor) -> list[Tensor]:
    """The weights of cubic convolution (Keys 1981) of the neighbours −1, 0, 1 and 2 of a position ``t`` after one."""

    def near(d: Tensor) -> Tensor:
        return o.add(o.multiply(o.multiply(o.subtract(o.multiply(d, CUBIC + 2), CUBIC + 3), d), d), 1)

    def far(d: Tensor) -> Tensor:
        inner = o.subtract(o.multiply(o.add(o.multiply(o.subtract(d, 5), d), 8), d), 4)
        return o.multiply(inner, CUBIC)

    return [far(o.add(t, 1)), near(t), near(o.subtract(1, t)), far(o.subtract(2, t))]


def _neighbours(
    o: Namespace, place: Tensor, size: Size, mode: str, padding_mode: str, align_corners: bool
) -> list[tuple[Tensor, Tensor | None]]:
    """The positions along one axis that a place is made of, whole numbers, with the weight of each."""
    x = _elements(o, place, size, align_corners)
    if mode == "bicubic":
        low = o.stop_gradient(o.floor(x))
        positions = [o.add(low, step) for step in (-1, 0, 1, 2)]
        padded = [o.stop_gradient(_padded(o, p, size, padding_mode, align_corners)) for p in positions]
        return list(zip(padded, _cubic_weights(o, o.subtract(x, low)), strict=True))
    x = _padded(o, x, size, padding_mode, align_corners)
    if mode == "nearest":
        return [(o.stop_gradient(o.round(x)), None)]
    low = o.stop_gradient(o.floor(x))
    fraction = o.subtract(x, low)
    return [(low, o.subtract(1, fraction)), (o.add(low, 1), fraction)]


def sampled(o: Namespace, x: Tensor, grid: Tensor, mode: str, padding_mode: str, align_corners: bool) -> Tensor:
    """``grid_sample`` over any number of axes: each tap a gather of all channels, (N, …, C), times the product of its
    weights; zero outside of the image."""
    sizes = x.shape[2:]
    axes = len(sizes)
    choices = [
        _neighbours(o, grid[..., axes - 1 - axis], size, mode, padding_mode, align_corners)
        for axis, size in enumerate(sizes)
    ]
    example = o.iota(grid.shape[:-1], 0)
    total: Tensor | None = None
    for taps in itertools.product(*choices):
        indices, inside, weight = [], [], None
        for (position, factor), size in zip(taps, sizes, strict=True):
            limited = o.minimum(o.maximum(position, 0), size - 1)
            indices.append(o.minimum(o.maximum(o.astype(limited, int64), 0), size - 1))  # NaN is some element
            if padding_mode == "zeros" or mode == "bilinear":  # whose second neighbour may be past the last element
                inside.append(o.equal(position, limited))
            if factor is not None:
                weight = factor if weight is None else o.multiply(weight, factor)
        values = o.gather(x, example, *indices, axes=(0, *range(2, 2 + axes)))
        if weight is not None:
            values = o.multiply(values, o.expand_dims(weight, -1))
        if inside:
            values = o.where(o.expand_dims(functools.reduce(o.logical_and, inside), -1), values, 0)
        total = values if total is None else o.add(total, values)
    assert total is not None
    return o.moveaxis(total, -1, 1)


@shown_as(lambda input, *args, **kwargs: f"GridSampler{lift(input).ndim - 2}DBackward0")
def grid_sample(
    input: TensorLike,
    grid: TensorLike,
    mode: SampleMode = "bilinear",
    padding_mode: PaddingMode = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """The elements of images, or of volumes, at given places.

    Args:
        input: (N, C, H, W) or (N, C, D, H, W).
        grid: (N, P, Q, 2), the column and the row of each place, from −1 to 1, or (N, P, Q, R, 3) with the depth third.
        mode: ``"bilinear"`` (of volumes over all three axes), ``"nearest"`` or ``"bicubic"`` (of images).
        padding_mode: what is read outside: ``"zeros"``, the nearest element (``"border"``), or the image mirrored at
            its borders (``"reflection"``).
        align_corners: −1 and 1 are the centres of the first and the last element, and not the borders of the image;
            None is False.

    Returns:
        (N, C, P, Q), or (N, C, P, Q, R).

    Raises:
        GraphError: sizes that do not agree, or an unknown mode.

    Example:
        >>> x, places = sg.constant([[[[1.0, 3.0]]]]), sg.constant([[[[0.0, 0.0], [0.5, 0.0]]]])
        >>> sg.Session().run(sg.nn.grid_sample(x, places, padding_mode="border"))
        array([[[[2., 3.]]]], dtype=float32)
    """
    what = "grid_sample"
    x, places = operands(what, input, grid)
    axes = x.ndim - 2
    if axes not in (2, 3) or not is_floating(x.dtype):
        raise GraphError(
            f"{what}: expected a floating image (N, C, H, W) or volume (N, C, D, H, W), actual {x.name!r} {x.type}"
        )
    if places.ndim != x.ndim or places.shape[-1] != axes:
        raise GraphError(
            f"{what}: expected a grid of {axes} numbers a place, (N, {', '.join('PQR'[:axes])}, {axes}), actual"
            f" {places.name!r} {places.type}"
        )
    require_equal(x.shape[0], places.shape[0], what, f"number of images of the grid {places.type} for {x.type}")
    if mode not in ("bilinear", "nearest", "bicubic") or (mode == "bicubic" and axes == 3):
        raise GraphError(f"{what}: mode={mode!r}: expected 'bilinear', 'nearest', or of images 'bicubic'")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise GraphError(f"{what}: padding_mode={padding_mode!r}: expected 'zeros', 'border' or 'reflection'")
    if 0 in x.shape[2:]:
        raise GraphError(f"{what}: expected an image with elements, actual {x.name!r} {x.type}")

    return rounded_once(
        lambda x, places: sampled(FUNCTIONS, x, places, mode, padding_mode, bool(align_corners)), x, places
    )


@shown_as("AffineGridGeneratorBackward0")
def affine_grid(theta: TensorLike, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid for ``grid_sample`` that reads images through affine maps.

    Args:
        theta: (N, 2, 3), or (N, 3, 4) for volumes: maps from places of the result to places of the input, coordinates
            from −1 to 1, columns before rows.
        size: the shape of the result, (N, C, H, W) or (N, C, D, H, W).
        align_corners: as for ``grid_sample``.

    Returns:
        (N, H, W, 2), or (N, D, H, W, 3).

    Raises:
        GraphError: sizes that do not agree.

    Example:
        >>> grid = sg.nn.affine_grid(sg.constant([[[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]]]), (1, 1, 1, 2))
        >>> sg.Session().run(grid)
        array([[[[0., 0.],
                 [1., 0.]]]], dtype=float32)
    """
    o, what = FUNCTIONS, "affine_grid"
    maps = lift(theta)
    shape = integers(size, f"{what}: size", 1)
    axes = len(shape) - 2
    if axes not in (2, 3) or maps.ndim != 3 or maps.shape[1:] != (axes, axes + 1) or not is_floating(maps.dtype):
        raise GraphError(
            f"{what}: expected maps (N, 2, 3) for a size (N, C, H, W) or (N, 3, 4) for (N, C, D, H, W), actual"
            f" {maps.name!r} {maps.type} and {shape}"
        )
    require_equal(maps.shape[0], shape[0], what, f"number of maps of {maps.type} for the size {shape}")

    def places(maps: Tensor) -> Tensor:
        grid = shape[2:]
        columns = []
        for axis in reversed(range(axes)):
            count = grid[axis]
            place = o.iota(grid, axis, dtype=maps.dtype)
            if align_corners:
                step = 2 / (count - 1) if count > 1 else 0.0
                columns.append(o.subtract(o.multiply(place, step), 1 if count > 1 else 0))
            else:
                columns.append(o.subtract(o.multiply(place, 2 / count), 1 - 1 / count))
        columns.append(o.ones(grid, dtype=maps.dtype))
        points = o.reshape(o.stack(columns, axis=-1), (1, -1, axes + 1))
        found = o.matmul(points, o.matrix_transpose(maps))
        return o.reshape(found, (maps.shape[0], *grid, axes))

    return rounded_once(places, maps)
