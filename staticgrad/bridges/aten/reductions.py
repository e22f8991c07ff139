"""Reductions, running sums and orders: their converters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.bridges.arrays import cast
from staticgrad.bridges.aten.dialect import AtenCall, converts
from staticgrad.bridges.aten.elementwise import as_bool
from staticgrad.bridges.importer import RefusedError
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


def axes(x: Tensor, dim: Any) -> Any:
    """Axes; None and an empty list are all of them."""
    if x.ndim == 0 or dim is None or dim == []:
        return None
    return tuple(dim) if isinstance(dim, list) else dim


def _kept(x: Tensor, keepdim: bool) -> dict[str, bool]:
    return {"keepdims": keepdim and x.ndim > 0}


@converts("sum")
def sum_(at: AtenCall, x: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    return o.sum(at.cast(x), axes(x, dim), **_kept(x, keepdim), dtype=at.dtype)


@converts("mean")
def mean(at: AtenCall, x: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    return o.mean(at.cast(x), axes(x, dim), **_kept(x, keepdim))


@converts("prod")
def prod(at: AtenCall, x: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    return o.prod(at.cast(x), axes(x, dim), **_kept(x, keepdim), dtype=at.dtype)


@converts("any")
def any_(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return o.any(as_bool(x), axes(x, dim), **_kept(x, keepdim))


@converts("all")
def all_(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return o.all(as_bool(x), axes(x, dim), **_kept(x, keepdim))


@converts("amax")
def amax(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return o.max(x, axes(x, dim), **_kept(x, keepdim))


@converts("amin")
def amin(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return o.min(x, axes(x, dim), **_kept(x, keepdim))


@converts("aminmax")
def aminmax(x: Tensor, dim: Any = None, keepdim: bool = False) -> list[Tensor]:
    return [amin(x, dim, keepdim), amax(x, dim, keepdim)]


def _chosen(x: Tensor, places: Tensor, dim: int, keepdim: bool) -> list[Tensor]:
    """The elements at these places of an axis, of size 1, and the places; the gradient goes to them alone."""
    values = o.take_along_axis(x, places, axis=dim)
    return [values, places] if keepdim else [o.squeeze(y, dim) for y in (values, places)]


def _extreme(
    whole: Callable[..., Tensor], position: Callable[..., Tensor], x: Tensor, dim: int | None, keepdim: bool
) -> Any:
    if dim is None:
        return whole(x)
    if x.ndim == 0:
        return [x, o.zeros((), dtype=np.dtype(np.int64))]
    return _chosen(x, position(x, dim, keepdims=True), dim, keepdim)


@converts("max")
def max_(at: AtenCall, x: Tensor, dim: int | None = None, keepdim: bool = False, other: Any = None) -> Any:
    if other is not None:
        return o.maximum(at.tensor(x), at.tensor(other))
    return _extreme(o.max, o.argmax, x, dim, keepdim)


@converts("min")
def min_(at: AtenCall, x: Tensor, dim: int | None = None, keepdim: bool = False, other: Any = None) -> Any:
    if other is not None:
        return o.minimum(at.tensor(x), at.tensor(other))
    return _extreme(o.min, o.argmin, x, dim, keepdim)


def _position(function: Callable[..., Tensor], x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    if x.ndim == 0:
        return o.zeros((), dtype=np.dtype(np.int64))
    if dim is None:
        place = function(o.reshape(x, (-1,)), 0)
        return o.reshape(place, (1,) * x.ndim) if keepdim else place
    return function(x, dim, keepdims=keepdim)


@converts("argmax")
def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return _position(o.argmax, x, dim, keepdim)


@converts("argmin")
def argmin(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return _position(o.argmin, x, dim, keepdim)


@converts("var")
def var(x: Tensor, dim: Any = None, unbiased: bool = True, correction: Any = None, keepdim: bool = False) -> Tensor:
    return o.var(x, axes(x, dim), correction=_correction(unbiased, correction), **_kept(x, keepdim))


@converts("std")
def std(x: Tensor, dim: Any = None, unbiased: bool = True, correction: Any = None, keepdim: bool = False) -> Tensor:
    return o.std(x, axes(x, dim), correction=_correction(unbiased, correction), **_kept(x, keepdim))


@converts("var_mean")
def var_mean(x: Tensor, dim: Any = None, unbiased: bool = True, correction: Any = None, keepdim: bool = False) -> Any:
    return [var(x, dim, unbiased, correction, keepdim), o.mean(x, axes(x, dim), **_kept(x, keepdim))]


@converts("std_mean")
def std_mean(x: Tensor, dim: Any = None, unbiased: bool = True, correction: Any = None, keepdim: bool = False) -> Any:
    return [std(x, dim, unbiased, correction, keepdim), o.mean(x, axes(x, dim), **_kept(x, keepdim))]


def _correction(unbiased: bool, correction: Any) -> float:
    return (1.0 if unbiased else 0.0) if correction is None else float(correction)


@converts("logsumexp")
def logsumexp(at: AtenCall, x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    return o.logsumexp(at.cast(x), axes(x, dim), **_kept(x, keepdim))


@converts("linalg_vector_norm", "norm")
def vector_norm(
    at: AtenCall, x: Tensor, ord: Any = None, p: Any = None, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    order = 2 if ord is None and p is None else p if ord is None else ord
    return o.vector_norm(at.cast(x), axes(x, dim), ord=float(order), **_kept(x, keepdim))


@converts("count_nonzero")
def count_nonzero(at: AtenCall, x: Tensor, dim: Any = None) -> Tensor:
    return cast(o.count_nonzero(x, axes(x, dim)), at.dtype)


# -- along an axis -----------------------------------------------------------------------------------------------------


@converts("cumsum")
def cumsum(at: AtenCall, x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    return o.cumulative_sum(at.cast(x), dim, dtype=at.dtype) if x.ndim else at.cast(x)


@converts("cumprod")
def cumprod(at: AtenCall, x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    return o.cumulative_prod(at.cast(x), dim, dtype=at.dtype) if x.ndim else at.cast(x)


@converts("cummax")
def cummax(x: Tensor, dim: int) -> list[Tensor]:
    return _running(o.cummax, x, dim)


@converts("cummin")
def cummin(x: Tensor, dim: int) -> list[Tensor]:
    return _running(o.cummin, x, dim)


def _running(function: Callable[..., Any], x: Tensor, dim: int) -> list[Tensor]:
    if x.ndim == 0:
        return [x, o.zeros((), dtype=np.dtype(np.int64))]
    return list(function(x, dim, return_indices=True))


@converts("logcumsumexp")
def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    return o.logcumsumexp(x, dim) if x.ndim else x


@converts("sort")
def sort(x: Tensor, dim: int = -1, descending: bool = False, stable: Any = None) -> list[Tensor]:
    if x.ndim == 0:
        return [x, o.zeros((), dtype=np.dtype(np.int64))]
    places = o.argsort(x, dim, descending=descending)
    return [o.take_along_axis(x, places, axis=dim), places]


@converts("argsort")
def argsort(x: Tensor, dim: int = -1, descending: bool = False, stable: Any = None) -> Tensor:
    return o.argsort(x, dim, descending=descending)


@converts("topk")
def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> list[Tensor]:
    if x.ndim == 0:
        return [x, o.zeros((), dtype=np.dtype(np.int64))]
    return list(o.topk(x, k, dim, largest, sorted))


@converts("kthvalue")
def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> list[Tensor]:
    places = o.argsort(x, dim)
    key = (*[slice(None)] * (dim % x.ndim), slice(k - 1, k))
    return _chosen(x, places[key], dim, keepdim)


@converts("median")
def median(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower of the two in the middle; of what has a NaN, NaN."""
    if dim is None:
        return median(o.reshape(x, (-1,)), 0)[0]
    size = x.shape[dim]
    if not isinstance(size, int):
        raise RefusedError("the median along an axis of open size is not converted")
    values, places = kthvalue(x, (size + 1) // 2, dim, keepdim)
    if x.dtype.kind != "f":
        return [values, places]
    return [o.where(o.any(o.isnan(x), dim, keepdims=keepdim), math.nan, values), places]
