"""Reductions, running sums and orders: their converters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from staticgrad.bridges.arrays import cast
from staticgrad.bridges.aten.dialect import AtenCall, as_bools, as_given, converts, entries, in_result
from staticgrad.bridges.aten.views import keyed
from staticgrad.bridges.importer import RefusedError
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


def along(function: Callable[..., Any], x: Tensor, dim: int, *rest: Any, **options: Any) -> Any:
    """A function along an axis; a tensor without axes is one of a single element."""
    if x.ndim:
        return function(x, dim, *rest, **options)
    found = function(o.reshape(x, (1,)), 0, *rest, **options)
    return o.reshape(found, ()) if isinstance(found, Tensor) else [o.reshape(y, ()) for y in found]


def reduced(function: Callable[..., Tensor], x: Tensor, dim: Any, keepdim: Any, **options: Any) -> Tensor:
    """A function over axes; None and an empty list are all of them."""
    axes = None if x.ndim == 0 or dim == () else dim
    return function(x, axes, **options, keepdims=bool(keepdim) and x.ndim > 0)


def _enter_reduction(prepare: Callable[..., Any], name: str, own: str) -> None:
    def converter(at: AtenCall, x: Tensor, dim: Any, keepdim: Any) -> Tensor:
        (x,) = prepare(at, x)
        return cast(reduced(getattr(o, own), x, dim, keepdim), at.dtype)

    converts(name)(converter)


for _prepare, _names in (
    (in_result, "sum mean prod logsumexp"),
    (as_bools, "any all"),
    (as_given, "amax=max amin=min"),
):
    for _name, _, _own in (_entry.partition("=") for _entry in _names.split()):
        _enter_reduction(_prepare, _name, _own or _name)


@converts("var", "std", "var_mean", "std_mean")
def var(at: AtenCall, x: Tensor, dim: Any, unbiased: Any, correction: Any, keepdim: Any) -> Any:
    freedom = float(unbiased is not False) if correction is None else float(correction)
    spread = reduced(o.var if "var" in at.op else o.std, x, dim, keepdim, correction=freedom)
    return [spread, reduced(o.mean, x, dim, keepdim)] if "mean" in at.op else spread


@converts("linalg_vector_norm", "norm")
def vector_norm(at: AtenCall, x: Tensor, ord: Any, p: Any, dim: Any, keepdim: Any) -> Tensor:
    order = next((n for n in (ord, p) if n is not None), 2)
    return reduced(o.vector_norm, at.cast(x), dim, keepdim, ord=float(order))


def _chosen(x: Tensor, dim: int, places: Tensor, keepdim: Any) -> list[Tensor]:
    """The elements at these places of an axis, of size 1, and the places; the gradient goes to them alone."""
    values = o.take_along_axis(x, places, axis=dim)
    return [values, places] if keepdim else [o.squeeze(y, dim) for y in (values, places)]


@converts("max", "min")
def extreme(at: AtenCall, x: Tensor, dim: int | None, keepdim: Any, other: Any) -> Any:
    """The greatest or least: of two tensors, of all elements, or along an axis with the places."""
    if other is not None:
        return getattr(o, f"{at.op}imum")(at.tensor(x), at.tensor(other))
    if dim is None:
        return getattr(o, at.op)(x)
    position = getattr(o, f"arg{at.op}")
    return along(lambda x, dim: _chosen(x, dim, position(x, dim, keepdims=True), keepdim), x, dim)


@converts("argmax", "argmin")
def position(at: AtenCall, x: Tensor, dim: int | None, keepdim: bool) -> Any:
    function = getattr(o, at.op)
    if dim is None:
        place = function(o.reshape(x, (-1,)), 0)
        return o.reshape(place, (1,) * x.ndim) if keepdim else place
    return along(function, x, dim, keepdims=keepdim)


# -- along an axis -----------------------------------------------------------------------------------------------------


def _sorted(x: Tensor, dim: int, descending: bool) -> list[Tensor]:
    places = o.argsort(x, dim, descending=descending)
    return [o.take_along_axis(x, places, axis=dim), places]


def _smallest(x: Tensor, dim: int, k: int, keepdim: bool) -> list[Tensor]:
    return _chosen(x, dim, o.argsort(x, dim)[keyed(x.ndim, dim, slice(k - 1, k))], keepdim)


def _median(x: Tensor, dim: int, keepdim: Any) -> list[Tensor]:
    """The lower of the two in the middle; of what has a NaN, NaN."""
    size = x.shape[dim]
    if not isinstance(size, int):
        raise RefusedError("the median along an axis of open size is not converted")
    values, places = _smallest(x, dim, (size + 1) // 2, keepdim)
    if x.dtype.kind != "f":
        return [values, places]
    return [o.where(o.any(o.isnan(x), dim, keepdims=keepdim), math.nan, values), places]


@converts("median")
def median(x: Tensor, dim: int | None, keepdim: Any) -> Any:
    return _median(o.reshape(x, (-1,)), 0, False)[0] if dim is None else along(_median, x, dim, keepdim)


entries({
    "aminmax": lambda x, dim, keepdim: [reduced(function, x, dim, keepdim) for function in (o.min, o.max)],
    "count_nonzero": lambda at, x, dim: cast(reduced(o.count_nonzero, x, dim, False), at.dtype),
    "cumsum": lambda at, x, dim: along(o.cumulative_sum, at.cast(x), dim, dtype=at.dtype),
    "cumprod": lambda at, x, dim: along(o.cumulative_prod, at.cast(x), dim, dtype=at.dtype),
    "cummax": lambda x, dim: along(o.cummax, x, dim, return_indices=True),
    "cummin": lambda x, dim: along(o.cummin, x, dim, return_indices=True),
    "logcumsumexp": lambda x, dim: along(o.logcumsumexp, x, dim),
    "softmax _softmax special_softmax": lambda at, x, dim: along(o.softmax, at.cast(x), dim),
    "log_softmax _log_softmax special_log_softmax": lambda at, x, dim: along(o.log_softmax, at.cast(x), dim),
    "sort": lambda x, dim, descending, stable: along(_sorted, x, dim, descending),
    "argsort": lambda x, dim, descending, stable: along(_sorted, x, dim, descending)[1],
    "topk": lambda x, k, dim, largest, sorted: along(lambda x, dim: o.topk(x, k, dim, largest, sorted), x, dim),
    "kthvalue": lambda x, k, dim, keepdim: along(_smallest, x, dim, k, keepdim),
})  # fmt: skip
