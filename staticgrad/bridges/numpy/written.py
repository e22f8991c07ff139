"""Functions of NumPy and SciPy in NumPy's own terms, which are traced like the user's.

Those are here that libraries write in C, or with questions about values, or that write into an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.bridges.numpy import trace
from staticgrad.bridges.numpy.array import TracedArray, arrays_in, known, value_of
from staticgrad.bridges.numpy.namespace import linalg, n
from staticgrad.bridges.numpy.tables import WRITTEN, Unconverted, enter


@enter(WRITTEN, "numpy.copyto")
def _copyto(dst: Any, src: Any, where: Any = True) -> None:
    dst[...] = src if where is True else n.where(where, src, dst)


@enter(WRITTEN, "numpy.putmask")
def _putmask(a: Any, mask: Any, values: Any) -> None:
    a[...] = n.where(mask, values, a)


@enter(WRITTEN, "numpy.put")
def _put(a: Any, ind: Any, v: Any) -> None:
    a.reshape(-1)[ind] = v


@enter(WRITTEN, "numpy.fill_diagonal")
def _fill_diagonal(a: Any, val: Any) -> None:
    a[(np.arange(min(a.shape)),) * a.ndim] = val


@enter(WRITTEN, "numpy.piecewise")
def _piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    conditions = list(condlist) if isinstance(condlist, (list, tuple)) else [condlist]
    values = [f(x, *args, **kw) if callable(f) else f for f in funclist]
    found = n.full_like(x, values.pop() if len(values) > len(conditions) else 0)
    for condition, value in zip(conditions, values, strict=True):  # later ones win
        found = n.where(condition, value, found)
    return found.astype(x.dtype)


@enter(WRITTEN, "numpy.ediff1d")
def _ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    parts = to_begin, n.diff(ary.reshape(-1)), to_end
    return n.concatenate([n.ravel(part) for part in parts if part is not None])


@enter(WRITTEN, "numpy.insert")
def _insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    if not isinstance(obj, (int, np.integer)):
        raise Unconverted("several places are not converted")
    x, axis = (arr.reshape(-1), 0) if axis is None else (n.moveaxis(arr, axis, 0), axis)
    new = n.atleast_1d(values) if x.ndim == 1 else n.asarray(values)[None]
    return n.moveaxis(n.concatenate([x[:obj], new, x[obj:]]), 0, axis)


@enter(WRITTEN, "numpy.apply_along_axis")
def _apply_along_axis(func1d: Any, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    rows = n.moveaxis(arr, axis, -1)
    stacked = n.stack([func1d(rows[place], *args, **kwargs) for place in np.ndindex(rows.shape[:-1])])
    stacked = n.reshape(stacked, rows.shape[:-1] + stacked.shape[1:])
    return n.moveaxis(stacked, -1, axis) if stacked.ndim == arr.ndim else stacked


@enter(WRITTEN, "numpy.correlate")
def _correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    a, v = n.asarray(a), n.asarray(v)
    return n.flip(n.convolve(v, n.flip(a), mode)) if v.shape[0] > a.shape[0] else n.convolve(a, n.flip(v), mode)


@enter(WRITTEN, "numpy.polyfit")
def _polyfit(x: Any, y: Any, deg: int, rcond: Any = None, w: Any = None) -> Any:
    powers, y = n.vander(x, deg + 1), n.asarray(y)
    if w is not None:
        powers, y = powers * w[:, None], (y.T * w).T
    scale = n.sqrt((powers * powers).sum(0))
    return (linalg.lstsq(powers / scale, y, rcond)[0].T / scale).T


@enter(WRITTEN, "numpy.array_equal")
def _array_equal(a1: Any, a2: Any) -> Any:
    return np.shape(value_of(a1)) == np.shape(value_of(a2)) and n.all(n.equal(a1, a2))


@enter(WRITTEN, "scipy.signal.lfilter")
def _lfilter(b: Any, a: Any, x: Any, axis: int = -1) -> Any:
    """A rational filter, turn by turn."""
    if np.ndim(value_of(x)) != 1:
        raise Unconverted("lfilter of several rows is not converted")
    b, a = (n.atleast_1d(each) / a[0] for each in (b, a))
    driven = n.convolve(b, x)[: x.shape[0]]
    y: list[Any] = []
    for t in range(x.shape[0]):
        past = [a[k] * y[t - k] for k in range(1, min(a.shape[0], t + 1))]
        y.append(driven[t] - sum(past[1:], past[0]) if past else driven[t])
    return n.stack(y)


# -- sizes that follow from values -------------------------------------------------------------------------------------


def _counted(name: str, way_out: str) -> Callable[..., Any]:
    """A function whose result has a size that follows from values, which is asked for."""

    def counted(*arguments: Any, **named: Any) -> Any:
        traced = next(x for x in arrays_in([list(arguments), named]) if not x.is_known)
        traced.asked(f"np.{name}, whose size follows from values,", way_out)
        return known(getattr(np, name)(*value_of(list(arguments)), **value_of(named)))

    return counted


for _way_out, _names in {
    trace.SEARCH: "nonzero argwhere flatnonzero unique", trace.SELECTION: "extract compress", trace.COUNT: "arange",
}.items():  # fmt: skip
    WRITTEN |= {f"numpy.{name}": _counted(name, _way_out) for name in _names.split()}


@enter(WRITTEN, "numpy.bincount")
def _bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    way_out = "np.zeros(count) and np.add.at(counts, x, 1) keep the size"
    places = np.asarray(
        x.known("np.bincount, whose size follows from values,", way_out) if type(x) is TracedArray else x
    )
    if weights is None:
        return known(np.bincount(places, None, minlength))
    total = n.zeros(max(minlength, int(places.max(initial=-1)) + 1))
    np.add.at(total, places, weights)
    return total
