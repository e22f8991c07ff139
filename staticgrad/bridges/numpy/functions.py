"""NumPy's functions of arrays, each by the op that has its meaning.

``moves`` has those that only move elements, ``written`` those in NumPy's own terms, ``matrices`` linear algebra.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.bridges.arrays import cast
from staticgrad.bridges.numpy.tables import FUNCTIONS, Unconverted, enter, of_selected, same, tensor_of, weak
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

same(FUNCTIONS, "numpy.", """
    argmax argmin count_nonzero ptp median quantile percentile nansum nanprod nanmean nanmax nanmin cumulative_sum
    cumulative_prod trapezoid lexsort searchsorted isin digitize interp isclose allclose nan_to_num fix=trunc i0
    real_if_close=identity require=identity concatenate=concat concat stack vstack row_stack=vstack hstack dstack
    column_stack broadcast_arrays broadcast_to roll tile tril triu diag outer kron tensordot gradient
""")  # fmt: skip


def _reduced(name: str) -> Callable[..., Any]:
    def reduced(a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False, where: Any = True) -> Any:
        x = tensor_of(a) if dtype is None else cast(tensor_of(a), dtype)
        if where is True:
            return getattr(o, name)(x, axis, keepdims=keepdims)
        if name in ("max", "min"):
            raise Unconverted("the argument where is not converted")
        return of_selected(name, x, tensor_of(where), axis=axis, keepdims=keepdims)

    return reduced


def _spread(name: str) -> Callable[..., Any]:
    """Variances and their roots."""

    def spread(
        a: Any, axis: Any = None, dtype: Any = None, ddof: float = 0, correction: Any = None, keepdims: bool = False
    ) -> Any:
        x = tensor_of(a) if dtype is None else cast(tensor_of(a), dtype)
        return getattr(o, name)(x, axis, correction=ddof if correction is None else correction, keepdims=keepdims)

    return spread


FUNCTIONS |= {f"numpy.{name}": _reduced(name) for name in ("sum", "prod", "mean", "max", "min", "any", "all")}
FUNCTIONS |= {"numpy.amax": FUNCTIONS["numpy.max"], "numpy.amin": FUNCTIONS["numpy.min"]}
FUNCTIONS |= {f"numpy.{name}": _spread(name) for name in ("var", "std", "nanvar", "nanstd")}


def _along(x: Any, axis: int | None) -> tuple[Tensor, int]:
    """A tensor and an axis of it; flattened without one."""
    return (o.reshape(tensor_of(x), (-1,)), 0) if axis is None else (tensor_of(x), axis)


FUNCTIONS |= {
    "numpy.cumsum": lambda a, axis=None, dtype=None: o.cumulative_sum(*_along(a, axis), dtype=dtype),
    "numpy.cumprod": lambda a, axis=None, dtype=None: o.cumulative_prod(*_along(a, axis), dtype=dtype),
    "numpy.sort": lambda a, axis=-1: o.sort(*_along(a, axis)),
    "numpy.argsort": lambda a, axis=-1: o.argsort(*_along(a, axis)),
    "numpy.partition": lambda a, kth, axis=-1: o.sort(*_along(a, axis)),
    "numpy.take_along_axis": lambda arr, indices, axis=-1: _take_along_axis(*_along(arr, axis), indices),
    "numpy.append": lambda arr, values, axis=None: o.concat([tensor_of(arr), tensor_of(values)], axis),
    "numpy.full": lambda shape, fill_value, dtype=None: o.full(shape, tensor_of(fill_value)),
    "numpy.full_like": lambda a, fill_value, dtype=None: o.full(np.shape(a), tensor_of(fill_value)),
    "numpy.meshgrid": lambda *xi, indexing="xy": o.meshgrid(*(_along(x, None)[0] for x in xi), indexing=indexing),
    "numpy.diagflat": lambda v, k=0: o.diag(o.reshape(tensor_of(v), (-1,)), k),
    "numpy.trace": lambda a, offset=0, axis1=0, axis2=1: o.trace(
        o.moveaxis(tensor_of(a), (axis1, axis2), (-2, -1)), offset=offset
    ),
    "numpy.clip": lambda a, a_min=None, a_max=None, min=None, max=None: o.clip(
        *weak([a, a_min if min is None else min, a_max if max is None else max])
    ),
    "numpy.isposinf": lambda x: o.equal(tensor_of(x), np.inf),
    "numpy.isneginf": lambda x: o.equal(tensor_of(x), -np.inf),
    "numpy.vdot": lambda a, b: o.sum(_along(a, None)[0] * _along(b, None)[0]),
    "numpy.inner": lambda a, b: _product(tensor_of(a), tensor_of(b), -1),
    "numpy.dot": lambda a, b: _product(tensor_of(a), tensor_of(b), -2),
}


def _take_along_axis(x: Tensor, axis: int, indices: Any) -> Tensor:
    return o.take_along_axis(x, tensor_of(indices), axis)


def _product(a: Tensor, b: Tensor, axis: int) -> Tensor:
    """Sums of products along the last axis of a and an axis of b; of a number the product."""
    if not a.ndim or not b.ndim:
        return a * b
    return o.matmul(a, b) if axis == -2 and b.ndim <= 2 else o.tensordot(a, b, axes=([-1], [max(axis, -b.ndim)]))


@enter(FUNCTIONS, *(f"numpy.{name}array" for name in ("", "as", "asany", "ascontiguous", "asfortran")), "numpy.copy")
def _array(a: Any, dtype: Any = None, ndmin: int = 0) -> Tensor:
    x = o.identity(tensor_of(a))
    return o.reshape(x, (*(1,) * (ndmin - x.ndim), *x.shape)) if ndmin > x.ndim else x


@enter(FUNCTIONS, "numpy.linspace")
def _linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None) -> Any:
    steps, first, last = np.linspace(0.0, 1.0, num, endpoint), tensor_of(start), tensor_of(stop)
    return first + (last - first) * steps.reshape(-1, *(1,) * max(first.ndim, last.ndim))


@enter(FUNCTIONS, "numpy.repeat")
def _repeat(a: Any, repeats: Any, axis: int | None = None) -> Tensor:
    if isinstance(repeats, Tensor):
        raise Unconverted("how often an element is repeated depends on a value that only a run knows")
    return o.repeat(tensor_of(a), repeats, axis)


@enter(FUNCTIONS, "numpy.pad")
def _pad(array: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Any:
    x = tensor_of(array)
    widths: Any = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2)).tolist()
    if mode != "constant":
        return o.pad(x, widths, mode=mode)
    if np.ndim(constant_values):
        raise Unconverted("several constants are not converted")
    if not isinstance(constant_values, Tensor):
        return o.pad(x, widths, np.asarray(constant_values).item())
    return o.where(o.pad(o.ones_like(x, np.bool_), widths), o.pad(x, widths), cast(constant_values, x.dtype))


@enter(FUNCTIONS, "numpy.diff")
def _diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    x = tensor_of(a)
    one = list(x.shape)
    one[axis] = 1

    def end(number: Any) -> Tensor | None:
        t = None if number is None else cast(tensor_of(number), x.dtype)
        return o.broadcast_to(t, tuple(one)) if t is not None and not t.ndim else t

    return o.diff(x, axis, n=n, prepend=end(prepend), append=end(append))


@enter(FUNCTIONS, "numpy.average")
def _average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, keepdims: bool = False) -> Any:
    x, factors = tensor_of(a), None if weights is None else tensor_of(weights)
    mean = o.average(x, axis, factors, keepdims=keepdims)
    if not returned:
        return mean
    factors = o.ones_like(x) if factors is None else factors
    return mean, o.ones_like(mean) * o.sum(factors, axis if factors.ndim == x.ndim else None, keepdims=keepdims)


@enter(FUNCTIONS, "numpy.nanmedian")
def _nanmedian(a: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The middle of what is not NaN: a sort puts that first."""
    x = tensor_of(a)
    if x.dtype.kind != "f":
        return o.median(x, axis, keepdims=keepdims)
    axes = range(x.ndim) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    reduced = sorted(one % x.ndim for one in axes)
    kept = [i for i in range(x.ndim) if i not in reduced]
    sizes = [x.shape[i] for i in kept]
    rows = o.sort(o.reshape(o.permute_dims(x, (*kept, *reduced)), (*sizes, math.prod(x.shape[i] for i in reduced))))
    count = o.count_nonzero(o.logical_not(o.isnan(rows)), axis=-1, keepdims=True)
    below, above = (o.take_along_axis(rows, o.maximum(place // 2, 0), -1) for place in (count - 1, count))
    middle = o.where(o.equal(below, above), below, below / 2 + above / 2)  # of two infinities as well
    return o.reshape(middle, [1 if i in reduced else n for i, n in enumerate(x.shape)] if keepdims else sizes)


# -- choices ----------------------------------------------------------------------------------------------------------


@enter(FUNCTIONS, "numpy.where")
def _where(condition: Any, x: Any = None, y: Any = None) -> Tensor:
    if x is None:
        raise Unconverted("the places where it holds depend on values: np.where(condition, a, b) keeps the size")
    chosen = tensor_of(condition)
    return o.where(chosen if chosen.dtype.kind == "b" else o.not_equal(chosen, 0), *weak([x, y]))


@enter(FUNCTIONS, "numpy.select")
def _select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    *parts, found = weak([*choicelist, default])
    for condition, part in zip(reversed(list(condlist)), reversed(parts), strict=True):
        found = o.where(tensor_of(condition), part, found)
    return found


@enter(FUNCTIONS, "numpy.choose")
def _choose(a: Any, choices: Any) -> Any:
    return _select([o.equal(tensor_of(a), number) for number in range(len(choices))], choices)


@enter(FUNCTIONS, "numpy.round", "numpy.around")
def _round(a: Any, decimals: int = 0) -> Tensor:
    x = tensor_of(a)
    if not decimals or x.dtype.kind != "f":
        return o.round(x)
    scale = np.asarray(10.0 ** abs(decimals), x.dtype)
    return o.round(x * scale) / scale if decimals > 0 else o.round(x / scale) * scale


@enter(FUNCTIONS, "numpy.take")
def _take(a: Any, indices: Any, axis: int | None = None, mode: str = "raise") -> Any:
    x, axis = _along(a, axis)
    places = tensor_of(indices)
    places = o.remainder(places, x.shape[axis]) if mode == "wrap" else places
    return o.take(x, places, axis, bounds="clip" if mode == "clip" else "error")


# -- products ---------------------------------------------------------------------------------------------------------


@enter(FUNCTIONS, "numpy.einsum")
def _einsum(text: str, *operands: Any) -> Tensor:
    if not isinstance(text, str):
        raise Unconverted("einsum with lists of axes is not converted: write the subscripts as text")
    return o.einsum(text, *map(tensor_of, operands))


@enter(FUNCTIONS, "numpy.cross")
def _cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Tensor:
    places = (axisa, axisb, axisc) if axis is None else (axis,) * 3
    product = o.cross(o.moveaxis(tensor_of(a), places[0], -1), o.moveaxis(tensor_of(b), places[1], -1))
    return o.moveaxis(product, -1, places[2])


@enter(FUNCTIONS, "numpy.convolve")
def _convolve(a: Any, v: Any, mode: str = "full") -> Any:
    short, long = sorted((tensor_of(a), tensor_of(v)), key=lambda x: int(x.shape[0]))
    dtype = np.result_type(short.dtype, long.dtype, np.float32)
    least, most = int(short.shape[0]), int(long.shape[0])
    full = o.conv1d(cast(long, dtype)[None, None], o.flip(cast(short, dtype))[None, None], padding=least - 1)[0, 0]
    first, count = {"full": (0, most + least - 1), "same": ((least - 1) // 2, most)}.get(
        mode, (least - 1, most - least + 1)
    )
    return full[first : first + count]
