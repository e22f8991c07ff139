"""Primitives along axes: reductions, positions of extremes, running results, sorts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.bridges.arrays import as_tensors, cast, spread
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.jaxpr.conversion import CONVERTERS, JaxScope, converts
from staticgrad.compiler.autodiff.batching import vmap
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


def _axes(node: Any) -> tuple[int, ...]:
    return tuple(node.params["axes"])


def _reducer(function: str, of_bools: str = "") -> Callable[[JaxScope, Any], Tensor]:
    def convert(at: JaxScope, node: Any) -> Tensor:
        x = at.tensor(node.invars[0])
        name = of_bools if x.dtype == bool and of_bools else function
        return getattr(o, name)(x, _axes(node)) if _axes(node) else x

    return convert


for _name, _function in {
    "reduce_sum": _reducer("sum"), "reduce_prod": _reducer("prod"), "reduce_max": _reducer("max", "any"),
    "reduce_min": _reducer("min", "all"), "reduce_and": _reducer("all", "all"), "reduce_or": _reducer("any", "any"),
}.items():  # fmt: skip
    CONVERTERS[_name] = _function


@converts("argmax", "argmin")
def position(at: JaxScope, node: Any) -> Tensor:
    (axis,) = _axes(node)
    found = getattr(o, node.primitive.name)(at.tensor(node.invars[0]), axis)
    return cast(found, node.params["index_dtype"])


# -- functions of the user's -------------------------------------------------------------------------------------------


def on_elements(at: JaxScope, body: Any, operands: Sequence[Tensor], count: int) -> list[Tensor]:
    """The results of a jaxpr of ``count`` results that is one of numbers, for each element of operands of one shape."""
    shape = operands[0].shape
    flat = [o.reshape(x, (-1,)) for x in operands]
    found = vmap(lambda *xs: tuple(as_tensors(at.run(body, xs))))(*flat)
    return [o.reshape(y, shape) for y in found[:count]]


def folded(at: JaxScope, body: Any, init: Sequence[Tensor], rows: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """The last state of a fold by a function of two nests of numbers, from ``init`` over ``rows``."""
    state = list(init)
    for row in rows:
        state = on_elements(at, body, [*(spread(s, x.shape) for s, x in zip(state, row)), *row], len(state))
    return state


@converts("reduce", "reduce_xor")
def reduce(at: JaxScope, node: Any) -> list[Tensor]:
    """By a function of the user's; the order is that of the elements."""
    if node.primitive.name == "reduce_xor":
        return [_reduced_xor(at.tensor(node.invars[0]), _axes(node))]
    count = len(node.invars) // 2
    xs, init = at.tensors(node.invars[:count]), at.tensors(node.invars[count:])
    axes = tuple(node.params["dimensions"])
    kept = [axis for axis in range(xs[0].ndim) if axis not in axes]
    shape = [xs[0].shape[axis] for axis in kept]
    flat = [o.reshape(o.permute_dims(x, (*axes, *kept)), (-1, *shape)) for x in xs]
    length = flat[0].shape[0]
    init = [spread(x, shape) for x in init]
    body = node.params["jaxpr"]

    def turn(state: list[Tensor], rows: list[Tensor]) -> tuple[list[Tensor], None]:
        return folded(at, body, state, [rows]), None

    return list(o.scan(turn, init, flat, length=length)[0])


def _reduced_xor(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    for axis in sorted(axes, reverse=True):
        whole = o.moveaxis(x, axis, 0)
        size = int(whole.shape[0])
        x = functools.reduce(o.bitwise_xor, [whole[n] for n in range(size)], o.zeros(whole.shape[1:], dtype=x.dtype))
    return x


# -- running results ---------------------------------------------------------------------------------------------------


def _running(name: str) -> Callable[[JaxScope, Any], Tensor]:
    def convert(at: JaxScope, node: Any) -> Tensor:
        x, axis = at.tensor(node.invars[0]), node.params["axis"]
        run: Callable[..., Tensor] = getattr(o, name)
        return o.flip(run(o.flip(x, axis), axis), axis) if node.params["reverse"] else run(x, axis)

    return convert


for _name, _ours in {
    "cumsum": "cumulative_sum", "cumprod": "cumulative_prod", "cummax": "cummax", "cummin": "cummin",
    "cumlogsumexp": "logcumsumexp",
}.items():  # fmt: skip
    CONVERTERS[_name] = _running(_ours)


# -- sorts -------------------------------------------------------------------------------------------------------------


@converts("sort")
def sort(at: JaxScope, node: Any) -> list[Tensor]:
    """By the first operands, the keys; sorts are stable, so the last key is sorted by first."""
    xs, axis, keys = at.tensors(node.invars), node.params["dimension"], node.params["num_keys"]
    if len(xs) == 1:
        return [o.sort(xs[0], axis)]
    order: Tensor | None = None
    for key in reversed(xs[:keys]):
        if order is None:
            order = o.argsort(key, axis)
        else:
            order = o.take_along_axis(order, o.argsort(o.take_along_axis(key, order, axis), axis), axis)
    assert order is not None
    return [o.take_along_axis(x, order, axis) for x in xs]


@converts("top_k")
def top_k(at: JaxScope, node: Any) -> list[Tensor]:
    x, k, axis = at.tensor(node.invars[0]), node.params["k"], node.params.get("axis", -1)
    values, places = o.topk(x, k, axis)
    return [values, cast(places, np.int32)]


@converts("approx_top_k")
def approx_top_k(at: JaxScope, node: Any) -> list[Tensor]:
    """The extremes themselves, which is the best approximation."""
    x, p = at.tensor(node.invars[0]), node.params
    if p["reduction_input_size_override"] != -1 and not p["aggregate_to_topk"]:
        raise RefusedError("approx_top_k of a part of what is sorted elsewhere")
    values, places = o.topk(x, p["k"], p["reduction_dimension"], largest=p["is_max_k"])
    return [values, cast(places, np.int32)]
