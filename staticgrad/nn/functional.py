"""Neural functions under PyTorch's names, with its argument names, order and defaults.

Images are (N, C, H, W), convolution weights (O, C / groups, KH, KW), ``linear`` weights (out, in). Most functions are
ops of the table and are only gathered here; what is written here is composed of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from staticgrad.errors import GraphError
from staticgrad.graph import Tensor, TensorLike, get_default_graph, lift
from staticgrad.ops.contraction import linear
from staticgrad.ops.convolution import conv1d, conv2d, conv3d, conv_transpose2d
from staticgrad.ops.elementwise.activations import (
    elu,
    gelu,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    log_sigmoid,
    mish,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    softplus,
    softsign,
)
from staticgrad.ops.indexing.labels import one_hot
from staticgrad.ops.indexing.subscripts import take
from staticgrad.ops.losses.classes import cross_entropy, nll_loss
from staticgrad.ops.losses.probabilities import binary_cross_entropy, binary_cross_entropy_with_logits, kl_div
from staticgrad.ops.losses.regression import huber_loss, l1_loss, mse_loss, smooth_l1_loss
from staticgrad.ops.neural.attention import scaled_dot_product_attention
from staticgrad.ops.neural.batch_norm import batch_norm
from staticgrad.ops.neural.embedding import embedding
from staticgrad.ops.neural.normalisation import group_norm, layer_norm, rms_norm
from staticgrad.ops.neural.softmax import log_softmax, softmax
from staticgrad.ops.randoms import dropout
from staticgrad.ops.windows import adaptive_avg_pool2d, averaging_matrix, avg_pool2d, max_pool2d
from staticgrad.optable import FUNCTIONS, Array
from staticgrad.types import Dim

logsigmoid = log_sigmoid

PadMode = Literal["constant", "reflect", "replicate", "circular"]
InterpolationMode = Literal["nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "area"]


def tanh(input: TensorLike) -> Tensor:
    """The hyperbolic tangent, elementwise."""
    return FUNCTIONS.tanh(input)


def normalize(input: TensorLike, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """Each vector along ``dim`` over its p-norm, which counts as at least ``eps``."""
    o = FUNCTIONS
    x = lift(input, get_default_graph())
    if p == 2:
        norm = o.sqrt(o.maximum(o.sum(o.square(x), axis=dim, keepdims=True), eps * eps))
        return o.divide(x, norm)
    norm = o.pow(o.sum(o.pow(o.abs(x), p), axis=dim, keepdims=True), 1 / p)
    return o.divide(x, o.maximum(norm, eps))


# -- padding ------------------------------------------------------------------------------------------------------


def _sources(size: int, low: int, high: int, mode: str) -> Array:
    """Which element of an axis stands at each place of the padded one."""
    places = np.arange(-low, size + high)
    if mode == "replicate":
        return np.clip(places, 0, size - 1)
    if mode == "circular":
        return places % size
    period = max(2 * (size - 1), 1)  # reflect
    folded = np.abs(places) % period
    return np.where(folded < size, folded, period - folded)


def pad(input: TensorLike, pad: Sequence[int], mode: PadMode = "constant", value: float = 0.0) -> Tensor:
    """Add elements at both ends of the last axes (negative counts: take away).

    Args:
        input: any tensor.
        pad: (before, after) of the last axis, then of the last but one, …
        mode: ``"constant"`` fills with ``value``; ``"reflect"``, ``"replicate"`` and ``"circular"`` repeat elements.

    Raises:
        GraphError: an odd number of counts or too many, more taken away than there is, or an axis that is too short.
    """
    o = FUNCTIONS
    x = lift(input, get_default_graph())
    widths = [int(width) for width in pad]
    if len(widths) % 2 or len(widths) > 2 * x.ndim:
        raise GraphError(f"pad: expected two counts for each of some last axes of {x.type}, actual {tuple(widths)}")
    pairs = [(0, 0)] * (x.ndim - len(widths) // 2) + [
        (widths[i], widths[i + 1]) for i in range(len(widths) - 2, -1, -2)
    ]
    if mode not in ("constant", "reflect", "replicate", "circular"):
        raise GraphError(f"pad: mode={mode!r}: expected 'constant', 'reflect', 'replicate' or 'circular'")
    for axis, (low, high) in enumerate(pairs):
        size = x.shape[axis]
        if isinstance(size, int) and size + min(low, 0) + min(high, 0) < 0:
            raise GraphError(f"pad: {(low, high)} takes more away than axis {axis} of {x.type} has")
        if low < 0 or high < 0:
            key = [slice(None)] * axis + [slice(max(-low, 0), size - max(-high, 0))]
            x = x[tuple(key)]
    grown = [(max(low, 0), max(high, 0)) for low, high in pairs]
    if mode == "constant":
        return o.pad(x, grown, value) if any(low or high for low, high in grown) else _own(x, input)
    for axis, (low, high) in enumerate(grown):
        if low or high:
            x = _pad_by_elements(x, axis, low, high, mode)
    return _own(x, input)


def _own(x: Tensor, operand: TensorLike) -> Tensor:
    """``x``, or where it is the operand itself a view of it: a hook on the result is no hook on the operand."""
    return FUNCTIONS.reshape(x, x.shape) if x is operand else x


def _pad_by_elements(x: Tensor, axis: int, low: int, high: int, mode: str) -> Tensor:
    size = x.shape[axis]
    if isinstance(size, Dim):
        raise GraphError(f"pad: mode={mode!r} needs an axis of known size, actual {x.type}")
    limit = size - 1 if mode == "reflect" else size if mode == "circular" else max(low, high) if size else 0
    if max(low, high) > limit:
        raise GraphError(f"pad: mode={mode!r} can add at most {limit} to an axis of size {size}, actual {(low, high)}")
    return take(x, _sources(size, low, high, mode), axis=axis)


# -- resizing -----------------------------------------------------------------------------------------------------


def _source_places(size: int, count: int, align_corners: bool, scale: float | None) -> Array:
    """Where the centres of ``count`` elements lie on an axis of ``size``."""
    if align_corners:
        return np.arange(count) * ((size - 1) / (count - 1) if count > 1 else 0.0)
    return (np.arange(count) + 0.5) * (size / count if scale is None else 1 / scale) - 0.5


def _cubic_weights(size: int, count: int, align_corners: bool, scale: float | None) -> Array:
    """(count, size) weights of cubic convolution (Keys 1981), a = -3/4; what lies outside is the nearest element."""
    a = -0.75
    source = _source_places(size, count, align_corners, scale)
    low = np.floor(source).astype(int)
    weights = np.zeros((count, size))
    for neighbour in range(-1, 3):
        t = np.abs(source - low - neighbour)
        near, far = ((a + 2) * t - (a + 3)) * t * t + 1, a * (((t - 5) * t + 8) * t - 4)
        np.add.at(weights, (np.arange(count), np.clip(low + neighbour, 0, size - 1)), np.where(t <= 1, near, far))
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


def _along(x: Tensor, axis: int, weights: Array) -> Tensor:
    """Multiply one axis by a matrix (count, size)."""
    o = FUNCTIONS
    moved = o.moveaxis(x, axis, -1)
    return o.moveaxis(o.matmul(moved, weights.T.astype(x.dtype)), -1, axis)


def _resized(
    x: Tensor, size: int | Sequence[int] | None, scale_factor: float | Sequence[float] | None
) -> tuple[list[int], list[float | None]]:
    """The new sizes of the axes behind the second, and the factor that coordinates are scaled by (None: of sizes)."""
    rank = x.ndim - 2
    old = x.shape[2:]
    if any(isinstance(s, Dim) for s in old) or rank < 1:
        raise GraphError(f"interpolate: expected an image (N, C, *) of known size, actual {x.type}")
    if (size is None) == (scale_factor is None):
        raise GraphError("interpolate: give either size or scale_factor")
    if size is not None:
        new = [int(size)] * rank if isinstance(size, (int, np.integer)) else [int(s) for s in size]
        factors: list[float | None] = [None] * rank
    else:
        given = scale_factor if isinstance(scale_factor, Sequence) else [scale_factor] * rank
        factors = [float(f) for f in given if f is not None]
        new = [math.floor(s * f) for s, f in zip(old, factors, strict=True) if isinstance(s, int) and f is not None]
    if len(new) != rank or min(new) < 1:
        raise GraphError(f"interpolate: new sizes {tuple(new)} for an input {x.type}")
    return new, factors


def interpolate(
    input: TensorLike,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: InterpolationMode = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """Resize the axes behind the second.

    Args:
        input: (N, C, \\*) with one to three more axes of known size.
        size: new sizes, or one for all.
        scale_factor: instead of sizes: by what the old ones are multiplied (rounded down).
        mode: ``"nearest"``, ``"nearest-exact"``, ``"linear"`` (of images ``"bilinear"``, of volumes ``"trilinear"``),
            ``"bicubic"`` (of images) or ``"area"``.
        align_corners: for linear and cubic modes: the centres of the corner elements stay where they are.

    Raises:
        GraphError: sizes that are not known or empty, or an unknown mode.
    """
    x = lift(input, get_default_graph())
    new, factors = _resized(x, size, scale_factor)
    modes = {3: ("linear",), 4: ("bilinear", "bicubic"), 5: ("trilinear",)}
    if mode not in ("nearest", "nearest-exact", "area", *modes.get(x.ndim, ())):
        raise GraphError(f"interpolate: mode={mode!r} for an input of {x.ndim} dimensions")
    if align_corners is not None and mode in ("nearest", "nearest-exact", "area"):
        raise GraphError(f"interpolate: align_corners has no meaning with mode={mode!r}")
    for axis, (count, factor) in enumerate(zip(new, factors, strict=True), 2):
        old = int(x.shape[axis])
        if old == count and factor in (None, 1.0):
            continue
        if mode in ("nearest", "nearest-exact"):
            ratio = old / count if factor is None else 1 / factor
            places = (np.arange(count) + (0.5 if mode == "nearest-exact" else 0.0)) * ratio
            x = take(x, np.minimum(np.floor(places).astype(np.int64), old - 1), axis=axis)
        elif mode == "area":
            x = _along(x, axis, averaging_matrix(old, count))
        else:
            weights = _cubic_weights if mode == "bicubic" else _linear_weights
            x = _along(x, axis, weights(old, count, bool(align_corners), factor))
    return _own(x, input)


__all__ = [
    "adaptive_avg_pool2d", "avg_pool2d", "batch_norm", "binary_cross_entropy", "binary_cross_entropy_with_logits",
    "conv1d", "conv2d", "conv3d", "conv_transpose2d", "cross_entropy", "dropout", "elu", "embedding", "gelu",
    "group_norm", "hardsigmoid", "hardswish", "hardtanh", "huber_loss", "interpolate", "kl_div", "l1_loss",
    "layer_norm", "leaky_relu", "linear", "log_sigmoid", "log_softmax", "logsigmoid", "max_pool2d", "mish", "mse_loss",
    "nll_loss", "normalize", "one_hot", "pad", "relu", "relu6", "rms_norm", "scaled_dot_product_attention", "selu",
    "sigmoid", "silu", "smooth_l1_loss", "softmax", "softplus", "softsign", "tanh",
]  # fmt: skip
