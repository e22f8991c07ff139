"""Reductions over windows, and what selects an element of each window and gives it, or adds to it, a value."""

from __future__ import annotations

import math
from typing import Any

from staticgrad.bridges.arrays import spread
from staticgrad.bridges.forms import SlidingWindows
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.jaxpr import versions
from staticgrad.bridges.jaxpr.conversion import JaxScope, converts
from staticgrad.bridges.jaxpr.reductions import folded
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

MOST_IN_A_WINDOW = 4096  # elements, each of which is an operand of a function of the user's


def windows_of(node: Any) -> SlidingWindows:
    """The windows over all axes that a node describes."""
    p = node.params
    ones = (1,) * len(p["window_dimensions"])
    sizes, strides, dilations, base = (
        tuple(map(int, p.get(name, ones)))
        for name in ("window_dimensions", "window_strides", "window_dilation", "base_dilation")
    )
    pads = tuple((int(low), int(high)) for low, high in p["padding"])
    return SlidingWindows(sizes, strides, dilations, pads, tuple(step - 1 for step in base))


@converts("reduce_window_sum")
def reduce_window_sum(at: JaxScope, node: Any) -> Tensor:
    x = at.tensor(node.invars[0])
    return windows_of(node).reduced(x, 0, lambda windows, axes: o.sum(windows, axes, dtype=x.dtype))


@converts("reduce_window_max", "reduce_window_min")
def reduce_window_extreme(at: JaxScope, node: Any) -> Tensor:
    """The first of equal elements has the slope."""
    x = at.tensor(node.invars[0])
    (chosen,) = windows_of(node).chosen(x, [x], largest=node.primitive.name.endswith("max"))
    return chosen


@converts("reduce_window")
def reduce_window(at: JaxScope, node: Any) -> list[Tensor]:
    """By a function of the user's, in the order of the elements of a window."""
    windows, count = windows_of(node), len(node.invars) // 2
    if windows.count > MOST_IN_A_WINDOW:
        raise RefusedError(f"windows of {windows.count} elements")
    xs, init = at.tensors(node.invars[:count]), [at.value(v) for v in node.invars[count:]]
    columns = [o.unstack(windows.elements(x, value), -1) for x, value in zip(xs, init)]
    start = [spread(at.tensor(v), column[0].shape) for v, column in zip(node.invars[count:], columns)]
    return folded(at, node.params["jaxpr"], start, [list(row) for row in zip(*columns)])


def _selects_largest(node: Any) -> bool:
    """True if a window's element is selected by ``>=``, False if by ``<=``."""
    select = node.params.get("select_prim")
    name = select.name if select is not None else _lone(node.params["select_jaxpr"])
    if name not in ("ge", "gt", "le", "lt"):
        raise RefusedError(f"windows whose element is selected by {name}")
    return bool(name[0] == "g")


def _lone(body: Any) -> str:
    """The name of the one primitive of a function."""
    equations = versions.parts_of(body)[0].eqns
    return str(equations[0].primitive.name) if len(equations) == 1 else "a function of several primitives"


@converts("select_and_gather_add")
def select_and_gather_add(at: JaxScope, node: Any) -> Tensor:
    given, by = at.tensors(node.invars)
    (chosen,) = windows_of(node).chosen(by, [given], largest=_selects_largest(node))
    return chosen


@converts("select_and_scatter_add", "select_and_scatter")
def select_and_scatter_add(at: JaxScope, node: Any) -> Tensor:
    """To the element of each window at which the operand is extreme, the window's value is added."""
    given, by = at.tensors(node.invars[:2])
    if node.primitive.name == "select_and_scatter" and _lone(node.params["scatter_jaxpr"]) not in ("add", "add_any"):
        raise RefusedError("windows whose values are scattered by another function than add")
    count = math.prod(int(size) for size in by.shape)
    places = o.reshape(o.iota((count,)), by.shape)
    (place,) = windows_of(node).chosen(by, [places], largest=_selects_largest(node))
    flat = o.zeros((count,), dtype=given.dtype)
    done = o.scatter_add(flat, o.reshape(given, (-1,)), o.reshape(place, (-1,)))
    init = at.tensor(node.invars[2]) if len(node.invars) > 2 else None
    result = o.reshape(done, by.shape)
    return result if init is None else result + init
