"""Functions of NumPy and SciPy that follow from others, in NumPy's own terms: they are traced like the user's.

Those are here which libraries write in C, or with questions about values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.bridges.numpy import array, trace
from staticgrad.bridges.numpy.array import value_of
from staticgrad.bridges.numpy.namespace import n
from staticgrad.bridges.numpy.tables import WRITTEN, Table, Unconverted, enter, written


@written("average")
def _average(x: Any, axis: Any = None, weights: Any = None, returned: bool = False, **named: Any) -> Any:
    x = n.asarray(x)
    if weights is None:
        mean = n.mean(x, axis=axis, **named)
        return (mean, mean * 0.0 + x.size / np.size(value_of(mean))) if returned else mean
    weights = n.asarray(weights)
    if weights.ndim != x.ndim:
        weights = n.moveaxis(n.broadcast_to(weights, n.moveaxis(x, axis, -1).shape), -1, axis)
    total = n.sum(weights, axis=axis, **named)
    mean = n.sum(x * weights, axis=axis, **named) / total
    return (mean, total) if returned else mean


@written("ediff1d")
def _ediff1d(x: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    parts = to_begin, n.diff(x.reshape(-1)), to_end
    return n.concatenate([n.ravel(part) for part in parts if part is not None])


@written("nanvar")
def _nanvar(x: Any, axis: Any = None, ddof: int = 0, **named: Any) -> Any:
    apart = x - n.nansum(x, axis=axis, keepdims=True) / _count(x, axis, keepdims=True)
    return n.nansum(apart**2, axis=axis, **named) / (_count(x, axis, **named) - ddof)


def _without_nan(x: Any, number: float) -> Any:
    return n.where(n.isnan(x), number, x)


def _count(x: Any, axis: Any, **named: Any) -> Any:
    return n.sum(~n.isnan(x), axis=axis, **named)


@written("copyto")
def _copyto(target: Any, source: Any, where: Any = True, **_: Any) -> None:
    target[...] = source if where is True else n.where(where, source, target)


@written("putmask")
def _putmask(x: Any, mask: Any, values: Any) -> None:
    x[...] = n.where(mask, values, x)


@written("put")
def _put(x: Any, places: Any, values: Any, mode: str = "raise") -> None:
    x.reshape(-1)[places] = values


@written("insert")
def _insert(x: Any, place: Any, values: Any, axis: int | None = None) -> Any:
    if not isinstance(place, (int, np.integer)):
        raise Unconverted("several places are not converted")
    x, axis = (x.reshape(-1), 0) if axis is None else (n.moveaxis(x, axis, 0), axis)
    new = n.atleast_1d(values) if x.ndim == 1 else n.asarray(values)[None]
    return n.moveaxis(n.concatenate([x[:place], new, x[place:]]), 0, axis)


@written("apply_along_axis")
def _apply_along_axis(function: Any, axis: int, x: Any, *arguments: Any, **named: Any) -> Any:
    rows = n.moveaxis(x, axis, -1)
    stacked = n.stack([function(rows[place], *arguments, **named) for place in np.ndindex(rows.shape[:-1])])
    stacked = n.reshape(stacked, rows.shape[:-1] + stacked.shape[1:])
    return n.moveaxis(stacked, -1, axis) if stacked.ndim == x.ndim else stacked


@written("bincount")
def _bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    way_out = "np.zeros(count) and np.add.at(counts, x, 1) keep the size"
    places = array.known(np.asarray(x.known("np.bincount, whose size follows from values,", way_out)
                                    if type(x) is array.TracedArray else x))  # fmt: skip
    total = array.known(np.zeros(max(minlength, int(places.value.max(initial=-1)) + 1)))
    np.add.at(total, places, 1.0 if weights is None else weights)
    return total


def _counted(name: str) -> Callable[..., Any]:
    """A function whose result has a size that follows from values, which is asked for."""
    way_out = {"extract": trace.SELECTION, "compress": trace.SELECTION, "arange": trace.COUNT}.get(name, trace.SEARCH)

    def counted(*arguments: Any, **named: Any) -> Any:
        traced = next(x for x in array.arrays_in([list(arguments), named]) if not x.is_known)
        traced.asked(f"np.{name}, whose size follows from values,", way_out)
        return array.known(getattr(np, name)(*value_of(list(arguments)), **value_of(named)))

    return counted


for _name in ("arange", "nonzero", "argwhere", "flatnonzero", "unique", "extract", "compress"):
    WRITTEN[f"numpy.{_name}"] = _counted(_name)


@enter(WRITTEN, "scipy.signal.lfilter")
def _lfilter(b: Any, a: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    """A rational filter, turn by turn."""
    if zi is not None or np.ndim(value_of(x)) != 1:
        raise Unconverted("lfilter with zi, or of several rows, is not converted")
    b, a = (n.atleast_1d(each) / a[0] for each in (b, a))
    driven = n.convolve(b, x)[: x.shape[0]]
    y: list[Any] = []
    for t in range(x.shape[0]):
        past = [a[k] * y[t - k] for k in range(1, min(a.shape[0], t + 1))]
        y.append(driven[t] - sum(past[1:], past[0]) if past else driven[t])
    return n.stack(y)


_LINES: Table = {
    "array_equal": lambda a, b, **_: np.shape(value_of(a)) == np.shape(value_of(b)) and n.all(n.equal(a, b)),
    "isneginf": lambda x, **_: x == -np.inf,
    "isposinf": lambda x, **_: x == np.inf,
    "nanmax": lambda x, axis=None, **named: n.max(_without_nan(x, -np.inf), axis=axis, **named),
    "nanmin": lambda x, axis=None, **named: n.min(_without_nan(x, np.inf), axis=axis, **named),
    "nanmean": lambda x, axis=None, **named: n.nansum(x, axis=axis, **named) / _count(x, axis, **named),
    "nanstd": lambda x, axis=None, **named: n.sqrt(_nanvar(x, axis, **named)),
}
WRITTEN |= {f"numpy.{name}": function for name, function in _LINES.items()}
