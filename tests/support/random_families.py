"""Families of public functions whose options matter: modes, bounds, axes, strides, numbers of keys.

A family is a function of a maker and a tensor of its pool: it declares one function with options drawn, and gives the
result, or None where the tensor does not suit. Sizes may be open: what asks for a number looks whether it is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import staticgrad as sg
from staticgrad.graph.graph import Tensor
from support.random_graphs import Maker

Made = Tensor | None
Family = Callable[[Maker, Tensor], Made]
BITS = {"float16": "int16", "bfloat16": "uint16", "float32": "uint32", "float64": "int64"}


def _one(m: Maker, choices: Sequence[Any]) -> Any:
    return choices[m.number(len(choices))]


def _flag(m: Maker) -> bool:
    return m.number(2) == 1


def _is_known(x: Tensor) -> bool:
    return all(isinstance(size, int) for size in x.shape)


def _number(m: Maker, x: Tensor) -> Tensor:
    """Integers or bools as small floats of the dtype of ``x``."""
    return sg.astype(x, m.pool[0].dtype) * 0.1


def _image(m: Maker, x: Tensor, axes: int) -> Made:
    """A tensor seen as a batch of one image, with some channels, of ``axes`` axes, none of which is short."""
    if not _is_known(x) or x.ndim < axes or min(x.shape[x.ndim - axes :]) < 3:
        return None
    sizes = [int(size) for size in x.shape]
    return sg.reshape(x, (1, -1, *sizes[x.ndim - axes :])) if x.size else None


# -- pools, convolutions, patches --------------------------------------------------------------------------------------


def pools(m: Maker, x: Tensor) -> Made:
    """A pool of rows or volumes, or one that adapts."""
    axes = _one(m, (1, 3, 1, 2))
    y = _image(m, x, axes)
    if y is None:
        return None
    kind, stride, padding = m.number(3), m.number(1, 4), m.number(2)
    if axes == 2 or kind == 2:
        size = m.number(1, 4)
        adaptive = {
            1: (sg.nn.adaptive_max_pool1d, sg.nn.adaptive_avg_pool1d),
            2: (sg.nn.adaptive_max_pool2d, sg.nn.adaptive_avg_pool2d),
            3: (sg.nn.adaptive_max_pool3d, sg.nn.adaptive_avg_pool3d),
        }
        return _one(m, adaptive[axes])(y, size)
    ceil = _flag(m)
    if kind == 0:
        wide, function = m.number(1, 3), sg.nn.max_pool1d if axes == 1 else sg.nn.max_pool3d
        y, places = function(y, 2, stride, padding, wide, ceil, return_indices=True)
        return y if _flag(m) else y + _number(m, places) * 0.1
    counts, function = _flag(m), sg.nn.avg_pool1d if axes == 1 else sg.nn.avg_pool3d
    return function(y, _one(m, (2, 3)), stride, padding, ceil, count_include_pad=counts)


def convolutions(m: Maker, x: Tensor) -> Made:
    """A convolution, or the transpose of one, of rows or volumes."""
    axes = _one(m, (1, 3))
    y = _image(m, x, axes)
    if y is None or y.shape[1] > 12:
        return None
    channels, stride, padding, spread = int(y.shape[1]), m.number(1, 3), m.number(2), m.number(1, 3)
    dtype = y.dtype
    if axes == 3 and _flag(m):
        w = (m.rng.normal(size=(2, channels, 2, 3, 2)) * 0.3).astype(dtype)
        return sg.tanh(sg.nn.conv3d(y, w, None, stride, padding, 1))
    groups = channels if _flag(m) else 1
    w = (m.rng.normal(size=(channels, 2, *(3, 2, 2)[:axes])) * 0.3).astype(dtype)
    bias = m.rng.normal(size=2 * groups).astype(dtype) if _flag(m) else None
    function = sg.nn.conv_transpose1d if axes == 1 else sg.nn.conv_transpose3d
    return sg.tanh(function(y, w, bias, stride, padding, m.number(stride), groups, spread))


def patches(m: Maker, x: Tensor) -> Made:
    """Patches as columns, and their sums back in an image."""
    y = _image(m, x, 2)
    if y is None or y.size > 300:
        return None
    options = {"kernel_size": (2, 3), "dilation": 1, "padding": m.number(2), "stride": m.number(1, 3)}
    columns = sg.nn.unfold(y, **options)
    if columns.size > 1500:
        return None
    height, width = (int(size) for size in y.shape[2:])
    return columns if _flag(m) else sg.tanh(sg.nn.fold(columns * 0.5, (height, width), **options))


def samples(m: Maker, x: Tensor) -> Made:
    """An image read at places that another tensor gives."""
    y = _image(m, x, 2)
    if y is None:
        return None
    places = sg.reshape(sg.tile(sg.reshape(x, (-1,)), (2,))[: 2 * (int(x.size) // 2)], (1, 1, -1, 2))
    if _flag(m):
        theta = sg.reshape(sg.tanh(sg.reshape(x, (-1,))[:6]), (1, 2, 3)) + np.eye(2, 3).astype(x.dtype)
        places = sg.nn.affine_grid(theta, (1, 1, 3, m.number(2, 6)), align_corners=_flag(m))
    mode, padding = _one(m, ("bilinear", "bicubic", "nearest")), _one(m, ("zeros", "border", "reflection"))
    # Away from the borders between elements, at which the choice of the nearest is nobody's to promise.
    return sg.nn.grid_sample(y, sg.tanh(places) * 1.31 + 0.0137, mode, padding, align_corners=_flag(m))


def pads(m: Maker, x: Tensor) -> Made:
    """A pad that repeats elements, parts them, or takes some away."""
    kind, value = m.number(3), _one(m, (0.0, 0.5))
    if kind == 0:
        return sg.pad(x, [(m.number(3), m.number(3)) for _ in x.shape], value, interior=m.number(3))
    if not _is_known(x) or min(x.shape) < 3:
        return None
    if kind == 1:
        return sg.pad(x, [(m.number(-1, 2), m.number(-1, 3)) for _ in x.shape], value)
    mode = _one(m, ("edge", "replicate", "reflect", "symmetric", "wrap", "circular"))
    return sg.pad(x, [(m.number(3), m.number(3)) for _ in x.shape], mode=mode)


# -- reads and writes at indices ---------------------------------------------------------------------------------------


def reads(m: Maker, x: Tensor) -> Made:
    """Elements at indices of which some are out of range."""
    axis, bounds = m.number(x.ndim), _one(m, ("clip", "fill"))
    fill = _one(m, (None, 0.25)) if bounds == "fill" else None
    if fill is None and bounds == "fill":
        fill = -0.5  # without one it is NaN
    if _flag(m) or not _is_known(x):
        index = m.rng.integers(-9, 9, size=m.number(1, 9))
        at = sg.constant(index) if _flag(m) else sg.astype(sg.floor(sg.constant(index + 0.5)), sg.int64)
        return sg.take(x, at, axis=axis, bounds=bounds, fill_value=fill)
    index = m.rng.integers(-3, 9, size=x.shape)
    return sg.take_along_axis(x, sg.constant(index), axis=axis, bounds=bounds, fill_value=fill)


def writes(m: Maker, x: Tensor) -> Made:
    """Updates of rows, of which some meet and some are out of range."""
    mode, bounds = _one(m, ("set", "add", "mul", "mean", "max", "min")), _one(m, ("error", "clip", "drop"))
    rows = x.shape[0]
    if not isinstance(rows, int) or not rows:
        return None
    count = m.number(1, 9)
    low, high = (-rows, rows) if bounds == "error" else (-2, rows + 3)
    index, is_alone = m.rng.integers(low, high, size=count), False
    if _flag(m):
        index, is_alone = m.rng.permutation(rows)[:count], _flag(m)
    read = sg.constant(m.rng.integers(0, rows, size=len(index)))
    updates = sg.tanh(x[read]) * 0.5 + 0.3
    own = mode == "set" or _flag(m)
    return m.squash(
        sg.scatter(x, sg.constant(index), updates, mode, bounds=bounds, include_self=own, unique_indices=is_alone)
    )


def selections(m: Maker, x: Tensor) -> Made:
    """What is not zero, what differs, how often: a given number of them."""
    size, flat = m.number(1, 12), sg.reshape(x, (-1,))
    coarse = sg.floor(sg.tanh(x) * 2.0 + 0.013)  # few values, each several times
    kind = m.number(5)
    if kind == 0:
        (places,) = sg.nonzero(flat > 0.1013, size=size, fill_value=0)
        return sg.take(flat, places, bounds="clip")
    if kind == 1:
        found = sg.unique(coarse, size=size, fill_value=0.5, return_index=True, return_counts=True)
        return sg.stack([found[0], *(_number(m, y) for y in found[1:])])
    if kind == 2:
        found = sg.unique(coarse, size=size, return_inverse=True)
        return _number(m, found[1])
    numbers = sg.astype(coarse + 2.0, sg.int64)
    if kind == 3:
        return sg.tanh(sg.bincount(sg.reshape(numbers, (-1,)), weights=flat if _flag(m) else None, length=size) * 0.1)
    return _number(m, sg.isin(numbers, [0, 3], invert=_flag(m)))


# -- orders ------------------------------------------------------------------------------------------------------------


def runs(m: Maker, x: Tensor) -> Made:
    """Running extremes, log-sums, and any associative function."""
    axis, reverse, kind = m.number(x.ndim), _flag(m), m.number(6)
    if kind < 2:
        y, places = (sg.cummax, sg.cummin)[kind](x, axis, reverse=reverse, return_indices=True)
        return y if _flag(m) else y + _number(m, places)
    if kind == 2:
        return sg.logcumsumexp(x, axis, reverse=reverse)
    if kind == 3:
        return m.squash(sg.cumulative_sum(x, axis=axis, reverse=True, include_initial=_flag(m)))
    if kind == 4:
        return sg.cumulative_prod(sg.tanh(x), axis=axis, reverse=True)
    if not isinstance(x.shape[axis], int):
        return None
    half = sg.tanh(x) * 0.5
    return sg.associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (half, x), axis, reverse=reverse)[1]


def sorts(m: Maker, x: Tensor) -> Made:
    """By several keys, the first of which are coarse."""
    axis = m.number(x.ndim)
    keys = [x, *[sg.floor(sg.tanh(x) * (k + 1.0) + 0.013) for k in range(m.number(1, 3))]]
    order = sg.lexsort(keys, axis=axis)
    return sg.take_along_axis(x, order, axis=axis)


def ranks(m: Maker, x: Tensor) -> Made:
    """Medians, quantiles and histograms."""
    axis, keep, kind = m.number(x.ndim), _flag(m), m.number(6)
    if not _is_known(x):
        return None
    if kind == 0:
        return sg.median(x, _one(m, (axis, None)), keepdims=keep)
    # Not where a quantile is just between two elements, of which rounding chooses the nearer one.
    method = _one(m, ("linear", "lower", "higher", "nearest", "midpoint"))
    if kind == 1:
        return sg.quantile(x, _one(m, (0.137, [0.137, 0.871])), axis, method=method, keepdims=keep)
    if kind == 2:
        return sg.percentile(x, 37.1, axis, method=method, keepdims=keep)
    if kind == 3:
        return sg.tanh(0.1 * sg.histogram(x, m.number(1, 9), (-1.5, 1.5), weights=sg.tanh(x))[0])
    if kind == 4:
        return _number(m, sg.digitize(x, sg.constant(np.linspace(-1.013, 1, 7).astype(x.dtype)), right=_flag(m)))
    return sg.ptp(x, axis, keepdims=keep)


def moments(m: Maker, x: Tensor) -> Made:
    """Averages and covariances; sums of what is not NaN."""
    axis, keep, kind = m.number(x.ndim), _flag(m), m.number(5)
    if kind == 0:
        return sg.average(x, axis, sg.nn.sigmoid(x), keepdims=keep)
    if kind == 1:
        rows = sg.reshape(x, (x.shape[0], -1)) if _is_known(x) else None
        return None if rows is None or min(rows.shape) < 2 else sg.tanh(sg.cov(rows, rowvar=_flag(m), ddof=m.number(2)))
    missing = sg.where(x > 0.413, sg.nan, x)
    if kind == 2:
        return sg.nan_to_num(missing, nan=0.3)
    if kind == 3:
        some = sg.concat([missing, sg.tanh(x)], axis=axis)  # of each one is a number
        function = _one(m, (sg.nanmax, sg.nanmin, sg.nanmean, sg.nanvar, sg.nanstd))
        return sg.tanh(function(some, axis, keepdims=keep)) if function is not sg.nanstd else sg.nanmean(some, axis)
    return m.squash(_one(m, (sg.nansum, sg.nanprod))(sg.tanh(missing), axis, keepdims=keep))


def curves(m: Maker, x: Tensor) -> Made:
    """Functions that are given at points."""
    kind, axis = m.number(3), m.number(x.ndim)
    if kind == 0:
        at = np.cumsum(m.rng.uniform(0.2, 1.0, 7)).astype(x.dtype)
        values, ends = m.rng.normal(size=7).astype(x.dtype), _one(m, ((None, None), (-0.5, 0.25)))
        period = 4.0 if _flag(m) and ends[0] is None else None
        return sg.interp(x * 2.0 + 1.0, sg.constant(at), sg.constant(values), *ends, period=period)
    if not isinstance(x.shape[axis], int) or x.shape[axis] < 3:
        return None
    if kind == 1:
        return sg.tanh(sg.trapezoid(x, dx=0.25, axis=axis))
    return sg.gradient(x, 0.5, axis=axis, edge_order=m.number(1, 3))


# -- bits and casts ----------------------------------------------------------------------------------------------------


def bits(m: Maker, x: Tensor) -> Made:
    """Floats as bits and back, counts of bits, neighbours."""
    kind = m.number(5)
    number = BITS[x.dtype.name]
    if kind == 0:
        return sg.bitcast(sg.bitwise_xor(sg.bitcast(x, number), 1), x.dtype)
    if kind == 1:
        return sg.nextafter(x, sg.flip(x))
    coarse = sg.floor(sg.tanh(x) * 500.0 + 0.013)
    dtype = _one(m, (sg.int8, sg.uint8, sg.int16, sg.int32, sg.int64, sg.uint64))
    whole = sg.astype(coarse, dtype, saturating=True)
    if kind == 2:
        return _number(m, whole) * 0.01
    return _number(m, (sg.clz, sg.popcount)[kind - 3](whole))


def choices(m: Maker, x: Tensor) -> Made:
    """Special functions by all of their arguments, and near ones."""
    kind, y = m.number(6), sg.nn.sigmoid(x)
    ways: list[Callable[[], Tensor]] = [
        lambda: sg.cbrt(x * x * x + 0.1013),
        lambda: sg.tanh(sg.zeta(sg.stop_gradient(2.0 + y), 1.0 + sg.flip(y))),
        lambda: sg.betainc(0.5 + y, 1.0 + sg.flip(y), sg.nn.sigmoid(0.7 * x)),
        lambda: sg.gammainc(0.5 + y, 1.0 + sg.flip(y)),
        lambda: _number(m, sg.isclose(x, sg.flip(x), rtol=0.1, atol=0.01)),
        lambda: sg.where(sg.allclose(x, sg.flip(x), atol=0.1), x, x * 0.3),
    ]
    return ways[kind]()


# -- joins -------------------------------------------------------------------------------------------------------------


def stacks(m: Maker, x: Tensor) -> Made:
    kind, other = m.number(6), sg.tanh(x) * 0.5
    if kind < 4:
        return (sg.vstack, sg.hstack, sg.dstack, sg.column_stack)[kind]([x, other])
    if kind == 4:
        return sg.diag(x, m.number(-1, 2)) if x.ndim <= 2 and _is_known(x) and x.size < 33 else None
    return sg.kron(x, other[..., :2]) if x.ndim == 2 and _is_known(x) and x.size < 100 else None


# -- matrices and transforms -------------------------------------------------------------------------------------------


def factors(m: Maker, x: Tensor) -> Made:
    """Factors of small matrices that are far from singular, and what solves with them."""
    if x.ndim < 2 or not _is_known(x) or max(x.shape[-2:]) > 17 or not x.size:
        return None
    height, size = (int(s) for s in x.shape[-2:])
    square = sg.matmul(sg.matrix_transpose(sg.tanh(x)), sg.tanh(x)) + np.diag(1.0 + np.arange(size)).astype(x.dtype)
    right, kind = sg.matrix_transpose(x), m.number(6)
    if kind == 0:
        lu, _, permutation = sg.linalg.lu_factor(square)
        return sg.linalg.lu_solve(lu, permutation, right, transposed=_flag(m))
    if kind == 1:
        _, lower, upper = sg.linalg.lu(square)
        return sg.tanh(sg.matmul(upper, lower) * 0.1)
    if kind == 2:
        return sg.tanh(sg.linalg.lstsq(sg.concat([square, sg.tanh(x)], axis=-2), sg.concat([right, sg.matmul(
            sg.tanh(x), right)], axis=-2) * 0.1)[0])  # fmt: skip
    if kind == 3:
        d = sg.linalg.diagonal(square)
        off = sg.tanh(x[..., 0, :]) * 0.3
        return sg.linalg.tridiagonal_solve(off, d, sg.flip(off, axis=-1), right)
    if kind == 4:
        if height < size:
            return None
        return sg.tanh(sg.linalg.householder_product(sg.tanh(x), sg.nn.sigmoid(x[..., 0, :])))
    return sg.linalg.qr(square)[1]


def transforms(m: Maker, x: Tensor) -> Made:
    """Fourier transforms of pairs, forward and back."""
    axis, norm, kind = m.number(x.ndim), _one(m, ("backward", "ortho", "forward")), m.number(4)
    if not isinstance(x.shape[axis], int) or not 1 < x.shape[axis] <= 64:
        return None
    n = _one(m, (None, None, m.number(2, 9)))
    if kind == 0:
        real, imag = sg.fft(x, sg.tanh(x) if _flag(m) else None, n, axis, norm=norm)
    elif kind == 1:
        real, imag = sg.ifft(x, sg.tanh(x), n, axis, norm=norm)
    elif kind == 2:
        real, imag = sg.rfft(x, n, axis, norm=norm)
    else:
        return sg.tanh(sg.irfft(x, sg.tanh(x), n, axis, norm=norm))
    return sg.tanh(0.3 * (real - 0.5 * imag))


def alignments(m: Maker, x: Tensor) -> Made:
    """The loss of sequences of labels."""
    if x.ndim != 2 or not _is_known(x) or x.shape[0] < 3 or x.shape[1] < 3:
        return None
    turns, classes = int(x.shape[0]), int(x.shape[1])
    scores = sg.nn.log_softmax(sg.stack([x, sg.flip(x)], axis=1), -1)
    blank = m.number(classes)
    labels = [label for label in range(classes) if label != blank]
    targets = sg.constant(m.rng.permutation(np.resize(labels, 4)).reshape(2, 2))
    lengths = sg.constant(m.rng.integers(1, 2 if turns < 5 else 3, size=2))
    reduction = _one(m, ("none", "mean", "sum"))
    inputs = sg.constant([turns, turns - (turns > 5)])
    return sg.nn.ctc_loss(scores, targets, inputs, lengths, blank, reduction, zero_infinity=True)


FAMILIES: tuple[Family, ...] = (
    pools, convolutions, patches, samples, pads, reads, writes, selections, runs, sorts, ranks, moments, curves, bits,
    choices, stacks, factors, transforms, alignments,
)  # fmt: skip


def of_a_family(m: Maker, number: int | None = None) -> Made:
    """A function of one of the families, perhaps of the one of a number."""
    x = m.pick(lambda t: t.ndim > 0)
    family = _one(m, FAMILIES) if number is None else FAMILIES[number % len(FAMILIES)]
    return None if x is None else family(m, x)
