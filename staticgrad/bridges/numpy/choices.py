"""NumPy's functions that choose, sort and search, and its products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from staticgrad.bridges.arrays import cast
from staticgrad.bridges.numpy.calls import Unconverted, call, tensor_of
from staticgrad.bridges.numpy.shared import common, converts, weak, written
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

# -- choice, order ----------------------------------------------------------------------------------------------------


@converts("where")
def _where(condition: Any, *choices: Any) -> Tensor:
    if len(choices) != 2:
        raise Unconverted(
            "the places where a condition holds depend on values: np.where(condition, a, b) keeps the size"
        )
    a, b = weak(choices)
    chosen = tensor_of(condition)
    return o.where(chosen if chosen.dtype.kind == "b" else o.not_equal(chosen, 0), a, b)


@converts("clip")
def _clip(x: Any, a_min: Any = None, a_max: Any = None, out: Any = None, **named: Any) -> Tensor:
    low, high = named.get("min", a_min), named.get("max", a_max)
    t = tensor_of(x)
    given = [weak([t, end])[1] if end is not None else None for end in (low, high)]
    kinds = [t.dtype, *(end.dtype for end in given if end is not None)]
    t = cast(t, np.result_type(*kinds))
    return o.clip(t, *[None if end is None else cast(end, t.dtype) for end in given])


@converts("round", "around", "round_")
def _round(x: Tensor, decimals: int = 0, **_: Any) -> Tensor:
    if not decimals or x.dtype.kind != "f":
        return o.round(x)
    scale = np.asarray(10.0 ** abs(decimals), x.dtype)
    return o.round(x * scale) / scale if decimals > 0 else o.round(x / scale) * scale


@converts("fix")
def _fix(x: Tensor) -> Tensor:
    return o.trunc(x)


@converts("sort")
def _sort(x: Tensor, axis: int | None = -1, kind: Any = None, **_: Any) -> Tensor:
    return o.sort(o.reshape(x, (-1,))) if axis is None else o.sort(x, axis)


@converts("argsort")
def _argsort(x: Tensor, axis: int | None = -1, kind: Any = None, **_: Any) -> Tensor:
    return o.argsort(o.reshape(x, (-1,))) if axis is None else o.argsort(x, axis)


@converts("partition")
def _partition(x: Tensor, kth: Any, axis: int = -1, **_: Any) -> Tensor:
    return o.sort(x, axis)


@converts("searchsorted")
def _searchsorted(x: Any, v: Any, side: str = "left", sorter: Any = None) -> Tensor:
    x, v = common([tensor_of(x), tensor_of(v)])
    return o.searchsorted(x, v, side=side, sorter=sorter)


@converts("digitize")
def _digitize(x: Any, bins: Any, right: bool = False) -> Tensor:
    if isinstance(bins, Tensor) or bins[0] > bins[-1]:
        raise Unconverted("bins that are traced or descend are not converted")
    return _searchsorted(bins, x, "left" if right else "right")


@converts("isin")
def _isin(x: Any, tests: Any, assume_unique: bool = False, invert: bool = False, **_: Any) -> Tensor:
    return o.isin(*common([tensor_of(x), tensor_of(tests)]), invert=invert)


@converts("take")
def _take(x: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise") -> Any:
    x = tensor_of(x)
    size = math.prod(x.shape) if axis is None else x.shape[axis]
    if mode == "clip":
        indices = o.clip(tensor_of(indices), 0, int(size) - 1)
    elif mode == "wrap":
        indices = o.remainder(tensor_of(indices), int(size))
    key = indices if isinstance(indices, (Tensor, np.ndarray)) else np.asarray(indices)
    if axis is None:
        return o.reshape(x, (-1,))[key]
    return x[(*(slice(None),) * (axis % x.ndim), key)]


@converts("take_along_axis")
def _take_along_axis(x: Any, indices: Any, axis: int | None = -1) -> Tensor:
    if axis is None:
        return o.take_along_axis(o.reshape(tensor_of(x), (-1,)), indices, axis=0)
    return o.take_along_axis(x, indices, axis=axis)


@converts("choose")
def _choose(places: Any, choices: Any, **_: Any) -> Tensor:
    stacked = o.broadcast_arrays(*common([tensor_of(x) for x in choices]))
    found = stacked[-1]
    for number in range(len(stacked) - 2, -1, -1):
        found = o.where(o.equal(places, number), stacked[number], found)
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
    functions = list(functions)
    values = [f(x, *arguments, **named) if callable(f) else f for f in functions]
    default = values.pop() if len(values) > len(conditions) else 0
    found = default + np.zeros(x.shape, x.dtype)
    for condition, value in zip(conditions, values, strict=True):  # later ones win
        found = call(np.where, (condition, value, found), {})
    return found.astype(x.dtype) if hasattr(found, "astype") else found


# -- products ---------------------------------------------------------------------------------------------------------


@converts("dot")
def _dot(a: Any, b: Any, **_: Any) -> Any:
    a, b = common([tensor_of(a), tensor_of(b)])
    if not a.ndim or not b.ndim:
        return a * b
    if b.ndim <= 2:
        return o.matmul(a, b)
    return o.tensordot(a, b, axes=([a.ndim - 1], [b.ndim - 2]))


@converts("vdot")
def _vdot(a: Any, b: Any) -> Tensor:
    a, b = common([tensor_of(a), tensor_of(b)])
    return o.sum(o.reshape(a, (-1,)) * o.reshape(b, (-1,)))


@converts("inner")
def _inner(a: Any, b: Any) -> Tensor:
    a, b = common([tensor_of(a), tensor_of(b)])
    return a * b if not a.ndim or not b.ndim else o.tensordot(a, b, axes=([a.ndim - 1], [b.ndim - 1]))


@converts("outer", "linalg.outer")
def _outer(a: Any, b: Any, **_: Any) -> Tensor:
    a, b = common([tensor_of(a), tensor_of(b)])
    return o.reshape(a, (-1, 1)) * o.reshape(b, (1, -1))


@converts("tensordot", "linalg.tensordot")
def _tensordot(a: Any, b: Any, axes: Any = 2) -> Tensor:
    if isinstance(axes, (tuple, list)):
        axes = tuple([each] if isinstance(each, (int, np.integer)) else list(each) for each in axes)
    return o.tensordot(*common([tensor_of(a), tensor_of(b)]), axes=axes)


@converts("einsum")
def _einsum(text: str, *xs: Any, **_: Any) -> Tensor:
    if not isinstance(text, str):
        raise Unconverted("einsum with lists of axes is not converted: write the subscripts as text")
    return o.einsum(text, *common([tensor_of(x) for x in xs]))


@converts("kron")
def _kron(a: Any, b: Any) -> Tensor:
    return o.kron(*common([tensor_of(a), tensor_of(b)]))


@converts("cross", "linalg.cross")
def _cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Tensor:
    at = axis if axis is not None else axisa
    if axis is None and not axisa == axisb == axisc:
        raise Unconverted("different axes of the operands are not converted")
    return o.cross(*o.broadcast_arrays(*common([tensor_of(a), tensor_of(b)])), axis=at)


@converts("convolve")
def _convolve(a: Any, v: Any, mode: str = "full") -> Tensor:
    """Sums of shifted products, by a matrix of places in the longer one."""
    a, v = common([tensor_of(a), tensor_of(v)])
    if v.size > a.size:
        a, v = v, a
    n, m = int(a.size), int(v.size)
    places = np.arange(n + m - 1)[:, None] - np.arange(m)[None, :] + m - 1
    full = o.matmul(o.pad(a, [(m - 1, m - 1)])[places], v)
    if mode == "full":
        return full
    if mode == "same":
        return full[(m - 1) // 2 : (m - 1) // 2 + n]
    return full[m - 1 : n]


@written("correlate")
def _correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    a, v = (x if hasattr(x, "shape") else np.asarray(x) for x in (a, v))
    if v.shape[0] > a.shape[0]:
        return call(np.flip, (call(np.convolve, (v, call(np.flip, (a,), {}), mode), {}),), {})
    return call(np.convolve, (a, call(np.flip, (v,), {}), mode), {})
