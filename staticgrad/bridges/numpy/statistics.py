"""NumPy's functions that follow from others, in NumPy's own terms: they are traced like the user's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.bridges.numpy import array, trace
from staticgrad.bridges.numpy.array import is_traced, value_of
from staticgrad.bridges.numpy.calls import WRITTEN, Unconverted, call, enter
from staticgrad.bridges.numpy.shared import written


@written("average")
def _average(x: Any, axis: Any = None, weights: Any = None, returned: bool = False, **named: Any) -> Any:
    x = call(np.asarray, (x,), {})
    if weights is None:
        mean = call(np.mean, (x,), {"axis": axis, **named})
        return (mean, mean * 0.0 + x.size / np.size(value_of(mean))) if returned else mean
    weights = call(np.asarray, (weights,), {})
    if weights.ndim != x.ndim:
        weights = weights.reshape((1,) * (axis % x.ndim) + (-1,) + (1,) * (x.ndim - 1 - axis % x.ndim))
        weights = weights * np.ones(x.shape)
    total = call(np.sum, (weights,), {"axis": axis, **named})
    mean = call(np.sum, (x * weights,), {"axis": axis, **named}) / total
    return (mean, total) if returned else mean


@written("interp")
def _interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """Linear between the two points around x; the ends, or ``left`` and ``right``, outside."""
    x, xp, fp = (call(np.asarray, (each, np.float64), {}) for each in (x, xp, fp))
    if period is not None:
        raise Unconverted("np.interp with a period")
    upper = call(np.clip, (call(np.searchsorted, (xp, x, "right"), {}), 1, xp.shape[0] - 1), {})
    x0, x1, y0, y1 = xp[upper - 1], xp[upper], fp[upper - 1], fp[upper]
    inside = y0 + (y1 - y0) * ((x - x0) / (x1 - x0))
    inside = call(np.where, (x < xp[0], fp[0] if left is None else left, inside), {})
    return call(
        np.where,
        (x >= xp[-1], call(np.where, (x > xp[-1], fp[-1] if right is None else right, fp[-1]), {}), inside),
        {},
    )


@written("ediff1d")
def _ediff1d(x: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    middle = call(np.diff, (x.reshape(-1),), {})
    parts = [call(np.ravel, (part,), {}) for part in (to_begin, middle, to_end) if part is not None]
    return call(np.concatenate, (parts,), {})


@written("gradient")
def _gradient(f: Any, *spacing: Any, axis: Any = None, edge_order: int = 1) -> Any:
    axes = range(f.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    steps = list(spacing) * (len(list(axes)) if len(spacing) == 1 else 1) or [1.0] * len(list(axes))
    found = [_slope(f, step, each % f.ndim, edge_order) for step, each in zip(steps, axes, strict=True)]
    return found[0] if len(found) == 1 else tuple(found)


def _slope(f: Any, step: Any, axis: int, edge_order: int) -> Any:
    """Second-order differences inside, of the given order at both ends."""
    f = call(np.moveaxis, (f, axis, -1), {})
    h = call(np.diff, (step,), {}) if np.ndim(value_of(step)) else step * np.ones(f.shape[-1] - 1)
    low, high = h[:-1], h[1:]
    inner = (low**2 * f[..., 2:] + (high**2 - low**2) * f[..., 1:-1] - high**2 * f[..., :-2]) / (
        low * high * (low + high)
    )
    if edge_order == 1:
        first, last = (f[..., 1] - f[..., 0]) / h[0], (f[..., -1] - f[..., -2]) / h[-1]
    else:
        first = _edge(f[..., 0], f[..., 1], f[..., 2], h[0], h[1])
        last = -_edge(f[..., -1], f[..., -2], f[..., -3], h[-1], h[-2])
    parts = [first[..., None], inner, last[..., None]]
    return call(np.moveaxis, (call(np.concatenate, (parts, -1), {}), -1, axis), {})


def _edge(f0: Any, f1: Any, f2: Any, a: Any, b: Any) -> Any:
    return -(2 * a + b) / (a * (a + b)) * f0 + (a + b) / (a * b) * f1 - a / (b * (a + b)) * f2


@written("median")
def _median(x: Any, axis: Any = None, **named: Any) -> Any:
    return _quantile(x, 0.5, axis, **named)


@written("percentile")
def _percentile(x: Any, q: Any, axis: Any = None, **named: Any) -> Any:
    return _quantile(x, q / 100 if not isinstance(q, (list, tuple)) else np.asarray(q) / 100, axis, **named)


@written("quantile")
def _quantile(x: Any, q: Any, axis: Any = None, **named: Any) -> Any:
    """Linear between the two sorted elements around q."""
    if named.pop("method", "linear") != "linear" or isinstance(axis, tuple):
        raise Unconverted("np.quantile by another method than linear, or along several axes")
    keep = named.pop("keepdims", False) is True
    x = call(np.asarray, (x,), {})
    ordered = call(np.sort, (x.reshape(-1) if axis is None else call(np.moveaxis, (x, axis, 0), {}), 0), {})
    n = ordered.shape[0]
    place = call(np.asarray, (q,), {}) * (n - 1.0)
    low = call(np.clip, (call(np.floor, (place,), {}), 0, max(n - 2, 0)), {}).astype(np.int64)
    rest = (place - low).reshape(np.shape(value_of(q)) + (1,) * (ordered.ndim - 1))
    found = ordered[low] + (ordered[call(np.minimum, (low + 1, n - 1), {})] - ordered[low]) * rest
    if np.shape(value_of(q)) == () and hasattr(found, "shape") and found.shape == ():
        found = found[()]
    if keep:
        found = found.reshape((1,) * x.ndim) if axis is None else call(np.expand_dims, (found, axis), {})
    return found


@written("nan_to_num")
def _nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    limits = np.finfo(x.dtype)
    ends = limits.max if posinf is None else posinf, limits.min if neginf is None else neginf
    found = call(np.where, (call(np.isnan, (x,), {}), x.dtype.type(nan), x), {})
    found = call(np.where, (found == np.inf, x.dtype.type(ends[0]), found), {})
    return call(np.where, (found == -np.inf, x.dtype.type(ends[1]), found), {})


@written("allclose")
def _allclose(*arguments: Any, **named: Any) -> Any:
    return call(np.all, (call(np.isclose, arguments, named),), {})


@written("array_equal", "array_equiv")
def _array_equal(a: Any, b: Any, **_: Any) -> Any:
    if np.shape(value_of(a)) != np.shape(value_of(b)):
        return False
    return call(np.all, (call(np.equal, (a, b), {}),), {})


@written("isneginf")
def _isneginf(x: Any) -> Any:
    return x == -np.inf


@written("isposinf")
def _isposinf(x: Any) -> Any:
    return x == np.inf


@written("copyto")
def _copyto(target: Any, source: Any, where: Any = True, **_: Any) -> None:
    if not isinstance(value_of(target), np.ndarray):
        raise TypeError("copyto() argument 1 must be numpy.ndarray")
    target[...] = source if where is True else call(np.where, (where, source, target), {})


@written("putmask")
def _putmask(x: Any, mask: Any, values: Any) -> None:
    x[...] = call(np.where, (mask, values, x), {})


@written("put")
def _put(x: Any, places: Any, values: Any, mode: str = "raise") -> None:
    x.reshape(-1)[places] = values


@written("insert")
def _insert(x: Any, place: Any, values: Any, axis: int | None = None) -> Any:
    if not isinstance(place, (int, np.integer)):
        raise Unconverted("np.insert at several places")
    x, axis = (x.reshape(-1), 0) if axis is None else (call(np.moveaxis, (x, axis, 0), {}), axis)
    new = call(np.atleast_1d, (values,), {}) if x.ndim == 1 else call(np.asarray, (values,), {})[None]
    return call(np.moveaxis, (call(np.concatenate, ([x[:place], new, x[place:]],), {}), 0, axis), {})


@written("apply_along_axis")
def _apply_along_axis(function: Any, axis: int, x: Any, *arguments: Any, **named: Any) -> Any:
    rows = call(np.moveaxis, (x, axis, -1), {})
    found = [function(rows[place], *arguments, **named) for place in np.ndindex(rows.shape[:-1])]
    stacked = call(np.stack, (found,), {})
    stacked = stacked.reshape(rows.shape[:-1] + stacked.shape[1:])
    return call(np.moveaxis, (stacked, -1, axis), {}) if stacked.ndim == x.ndim else stacked


def _counted(name: str) -> Callable[..., Any]:
    way_out = {"extract": trace.SELECTION, "compress": trace.SELECTION, "arange": trace.COUNT}.get(name, trace.SEARCH)

    def counted(*arguments: Any, **named: Any) -> Any:
        traced = next(x for x in array.arrays_in([list(arguments), named]) if not x.is_known)
        traced.asked(f"np.{name}, whose size follows from values,", way_out)
        return array.known(getattr(np, name)(*value_of(list(arguments)), **value_of(named)))

    return counted


for _name in ("arange", "nonzero", "argwhere", "flatnonzero", "unique", "extract", "compress"):
    WRITTEN[f"numpy.{_name}"] = _counted(_name)


@written("nanmax")
def _nanmax(x: Any, axis: Any = None, **named: Any) -> Any:
    return call(np.max, (_without_nan(x, -np.inf),), {"axis": axis, **named})


@written("nanmin")
def _nanmin(x: Any, axis: Any = None, **named: Any) -> Any:
    return call(np.min, (_without_nan(x, np.inf),), {"axis": axis, **named})


@written("nanmean")
def _nanmean(x: Any, axis: Any = None, **named: Any) -> Any:
    return _total(x, axis, **named) / _count(x, axis, **named)


@written("nanvar")
def _nanvar(x: Any, axis: Any = None, ddof: int = 0, **named: Any) -> Any:
    apart = x - _total(x, axis, keepdims=True) / _count(x, axis, keepdims=True)
    return _total(apart**2, axis, **named) / (_count(x, axis, **named) - ddof)


@written("nanstd")
def _nanstd(x: Any, axis: Any = None, ddof: int = 0, **named: Any) -> Any:
    return call(np.sqrt, (_nanvar(x, axis, ddof, **named),), {})


def _total(x: Any, axis: Any, **named: Any) -> Any:
    return call(np.sum, (_without_nan(x, 0.0),), {"axis": axis, **named})


def _without_nan(x: Any, number: float) -> Any:
    return call(np.where, (call(np.isnan, (x,), {}), number, x), {})


def _count(x: Any, axis: Any, **named: Any) -> Any:
    return call(np.sum, (~call(np.isnan, (x,), {}),), {"axis": axis, **named})


@written("bincount")
def _bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    if is_traced(x):
        x.asked("np.bincount, whose size follows from values,", "np.zeros(n) and np.add.at(counts, x, 1) keep the size")
    places = value_of(x)
    counts = np.zeros(max(minlength, int(places.max(initial=-1)) + 1))
    total = array.known(counts)
    call_at = array.known(places)
    np.add.at(total, call_at, 1.0 if weights is None else weights)
    return total


@enter(WRITTEN, "scipy.signal.lfilter")
def _lfilter(b: Any, a: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    """A rational filter, turn by turn."""
    if zi is not None or np.ndim(value_of(x)) != 1:
        raise Unconverted("lfilter with zi, or of several rows, is not converted")
    b, a = (call(np.atleast_1d, (each,), {}) / a[0] for each in (b, a))
    driven = call(np.convolve, (b, x), {})[: x.shape[0]]
    y: list[Any] = []
    for n in range(x.shape[0]):
        past = [a[k] * y[n - k] for k in range(1, min(a.shape[0], n + 1))]
        y.append(driven[n] - sum(past[1:], past[0]) if past else driven[n])
    return call(np.stack, (y,), {})
