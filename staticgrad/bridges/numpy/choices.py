"""NumPy's functions that choose, sort and search, and its products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from staticgrad.bridges.arrays import cast
from staticgrad.bridges.numpy.namespace import n
from staticgrad.bridges.numpy.tables import (
    FUNCTIONS,
    Unconverted,
    common,
    converts,
    refuse_others,
    tensor_of,
    weak,
    written,
)
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


def _along(x: Tensor, axis: int | None) -> tuple[Tensor, int]:
    """The tensor and an axis of it; flattened without one."""
    return (o.reshape(x, (-1,)), 0) if axis is None else (x, axis)


def _float(x: Any) -> Tensor:
    t = tensor_of(x)
    return t if t.dtype.kind == "f" else cast(t, np.float64)


FUNCTIONS |= {
    "numpy.fix": lambda x: o.trunc(x),
    "numpy.sort": lambda x, axis=-1, kind=None, **_: o.sort(*_along(x, axis)),
    "numpy.argsort": lambda x, axis=-1, kind=None, **_: o.argsort(*_along(x, axis)),
    "numpy.partition": lambda x, kth, axis=-1, **_: o.sort(*_along(x, axis)),
    "numpy.searchsorted": lambda x, v, side="left", sorter=None: o.searchsorted(
        *common(x, v), side=side, sorter=sorter
    ),
    "numpy.isin": lambda x, tests, unique=False, invert=False, **_: o.isin(*common(x, tests), invert=invert),
    "numpy.vdot": lambda a, b: o.sum(math.prod(o.reshape(x, (-1,)) for x in common(a, b))),
    "numpy.outer": lambda a, b, **_: math.prod(map(o.reshape, common(a, b), ((-1, 1), (1, -1)))),
    "numpy.kron": lambda a, b: o.kron(*common(a, b)),
}
FUNCTIONS |= {
    "numpy.lexsort": lambda keys, axis=-1: o.lexsort(common(*keys) if isinstance(keys, (list, tuple)) else keys, axis),
    "numpy.interp": lambda x, xp, fp, left=None, right=None, period=None: o.interp(
        *map(_double, (x, xp, fp)), left=left, right=right, period=period
    ),
    "numpy.nan_to_num": lambda x, copy=True, nan=0.0, posinf=None, neginf=None: o.nan_to_num(
        x, nan=nan, posinf=posinf, neginf=neginf
    ),
    "numpy.isclose": lambda a, b, *rest, **named: o.isclose(*common(a, b), *rest, **named),
    "numpy.allclose": lambda a, b, *rest, **named: o.allclose(*common(a, b), *rest, **named),
    "numpy.median": lambda x, axis=None, out=None, overwrite_input=False, keepdims=False: o.median(
        _float(x), axis, keepdims=keepdims is True
    ),
    "numpy.quantile": lambda x, q, axis=None, **named: _quantile(x, tensor_of(q), axis, **named),
    "numpy.percentile": lambda x, q, axis=None, **named: _quantile(x, tensor_of(q) / 100, axis, **named),
    "numpy.gradient": lambda f, *spacing, axis=None, edge_order=1: o.gradient(
        f, *spacing, axis=axis, edge_order=edge_order
    ),
}
FUNCTIONS["numpy.linalg.outer"] = FUNCTIONS["numpy.outer"]


def _double(x: Any) -> Tensor:
    return cast(tensor_of(x), np.float64)


def _quantile(x: Any, q: Tensor, axis: Any, **named: Any) -> Tensor:
    keep = named.pop("keepdims", False) is True
    method = named.pop("method", "linear")
    refuse_others("quantile", **{name: value or None for name, value in named.items()})
    if method not in ("linear", "lower", "higher", "nearest", "midpoint"):
        raise Unconverted(f"the method {method!r} is not converted")
    return o.quantile(_float(x), q, axis, method=method, keepdims=keep)


@converts("where")
def _where(condition: Any, *choices: Any) -> Tensor:
    if len(choices) != 2:
        raise Unconverted("the places where it holds depend on values: np.where(condition, a, b) keeps the size")
    chosen = tensor_of(condition)
    return o.where(chosen if chosen.dtype.kind == "b" else o.not_equal(chosen, 0), *weak(choices))


@converts("clip")
def _clip(x: Any, a_min: Any = None, a_max: Any = None, out: Any = None, **named: Any) -> Tensor:
    t, ends = tensor_of(x), (named.get("min", a_min), named.get("max", a_max))
    given = [weak([t, end])[1] if end is not None else None for end in ends]
    dtype = np.result_type(t.dtype, *(end.dtype for end in given if end is not None))
    return o.clip(cast(t, dtype), *[None if end is None else cast(end, dtype) for end in given])


@converts("round", "around", "round_")
def _round(x: Tensor, decimals: int = 0, **_: Any) -> Tensor:
    if not decimals or x.dtype.kind != "f":
        return o.round(x)
    scale = np.asarray(10.0 ** abs(decimals), x.dtype)
    return o.round(x * scale) / scale if decimals > 0 else o.round(x / scale) * scale


@converts("digitize")
def _digitize(x: Any, bins: Any, right: bool = False) -> Tensor:
    if isinstance(bins, Tensor) or bins[0] > bins[-1]:
        raise Unconverted("bins that are traced or descend are not converted")
    return o.searchsorted(*common(bins, x), side="left" if right else "right")


@converts("take")
def _take(x: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise") -> Any:
    x, axis = _along(tensor_of(x), axis)
    size = int(x.shape[axis])
    if mode != "raise":
        places = tensor_of(indices)
        indices = o.clip(places, 0, size - 1) if mode == "clip" else o.remainder(places, size)
    key = indices if isinstance(indices, Tensor) else np.asarray(indices)
    return x[(*(slice(None),) * (axis % x.ndim), key)]


@converts("take_along_axis")
def _take_along_axis(x: Any, indices: Any, axis: int | None = -1) -> Tensor:
    x, axis = _along(tensor_of(x), axis)
    return o.take_along_axis(x, indices, axis=axis)


@converts("choose")
def _choose(places: Any, choices: Any, **_: Any) -> Tensor:
    *others, found = o.broadcast_arrays(*common(*choices))
    for number, choice in reversed(list(enumerate(others))):
        found = o.where(o.equal(places, number), choice, found)
    return found


@converts("select")
def _select(conditions: Any, choices: Any, default: Any = 0) -> Tensor:
    *parts, found = weak([*choices, default])
    for condition, part in zip(reversed(list(conditions)), reversed(parts), strict=True):
        found = o.where(condition, part, found)
    return found


@written("piecewise")
def _piecewise(x: Any, conditions: Any, functions: Any, *arguments: Any, **named: Any) -> Any:
    conditions = list(conditions) if isinstance(conditions, (list, tuple)) else [conditions]
    values = [f(x, *arguments, **named) if callable(f) else f for f in functions]
    default = values.pop() if len(values) > len(conditions) else 0
    found = n.full_like(x, default)
    for condition, value in zip(conditions, values, strict=True):  # later ones win
        found = n.where(condition, value, found)
    return found.astype(x.dtype)


@converts("dot")
def _dot(a: Any, b: Any, **_: Any) -> Any:
    a, b = common(a, b)
    if not a.ndim or not b.ndim:
        return a * b
    return o.matmul(a, b) if b.ndim <= 2 else o.tensordot(a, b, axes=([a.ndim - 1], [b.ndim - 2]))


@converts("inner")
def _inner(a: Any, b: Any) -> Any:
    a, b = common(a, b)
    return a * b if not a.ndim or not b.ndim else o.tensordot(a, b, axes=([a.ndim - 1], [b.ndim - 1]))


@converts("tensordot", "linalg.tensordot")
def _tensordot(a: Any, b: Any, axes: Any = 2) -> Tensor:
    if isinstance(axes, (tuple, list)):
        axes = tuple([each] if isinstance(each, (int, np.integer)) else list(each) for each in axes)
    return o.tensordot(*common(a, b), axes=axes)


@converts("einsum")
def _einsum(text: str, *xs: Any, **_: Any) -> Tensor:
    if not isinstance(text, str):
        raise Unconverted("einsum with lists of axes is not converted: write the subscripts as text")
    return o.einsum(text, *common(*xs))


@converts("cross", "linalg.cross")
def _cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Tensor:
    if axis is None and not axisa == axisb == axisc:
        raise Unconverted("different axes of the operands are not converted")
    return o.cross(*o.broadcast_arrays(*common(a, b)), axis=axisa if axis is None else axis)


@converts("convolve")
def _convolve(a: Any, v: Any, mode: str = "full") -> Any:
    """Sums of shifted products, by a matrix of places in the longer one."""
    short, long = sorted(common(a, v), key=lambda x: int(x.shape[0]))
    least, most = int(short.shape[0]), int(long.shape[0])
    places = np.arange(most + least - 1)[:, None] - np.arange(least)[None, :] + least - 1
    full = o.matmul(o.pad(long, [(least - 1, least - 1)])[places], short)
    first, count = {"full": (0, most + least - 1), "same": ((least - 1) // 2, most)}.get(
        mode, (least - 1, most - least + 1)
    )
    return full[first : first + count]


@written("correlate")
def _correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    a, v = n.asarray(a), n.asarray(v)
    return n.flip(n.convolve(v, n.flip(a), mode)) if v.shape[0] > a.shape[0] else n.convolve(a, n.flip(v), mode)
