"""Reductions over windows, and what selects an element of each window and gives it, or adds to it, a value.

A tensor's windows are declared as one more axis, in the order of the elements of a window. Sums, and extremes of
images, have ops of their own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.bridges.arrays import cast, spread
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.jaxpr import versions
from staticgrad.bridges.jaxpr.conversion import JaxScope, converts
from staticgrad.bridges.jaxpr.reductions import folded
from staticgrad.bridges.jaxpr.views import padded
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

MOST_IN_A_WINDOW = 4096  # elements, each of which is a slice of its own


@frozen
class JaxWindows:
    """Windows over all axes of an array."""

    window: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    base: tuple[int, ...]
    dilation: tuple[int, ...]

    @classmethod
    def of(cls, node: Any) -> JaxWindows:
        p = node.params
        ones = (1,) * len(p["window_dimensions"])
        padding = tuple(tuple(pair) for pair in p["padding"])
        return cls(
            tuple(map(int, p["window_dimensions"])), tuple(map(int, p["window_strides"])), padding,
            tuple(p.get("base_dilation", ones)), tuple(p.get("window_dilation", ones)),
        )  # fmt: skip

    @property
    def count(self) -> int:
        return math.prod(self.window)

    def padded(self, x: Tensor, value: Any) -> Tensor:
        return padded(x, [(*pair, step - 1) for pair, step in zip(self.padding, self.base)], value)

    def elements(self, x: Tensor) -> list[Tensor]:
        """For each element of a window its value in all windows of a tensor that is padded."""
        if self.count > MOST_IN_A_WINDOW:
            raise RefusedError(f"windows of {self.count} elements")
        sizes = [
            (int(size) - (n - 1) * d - 1) // s + 1
            for size, n, s, d in zip(x.shape, self.window, self.strides, self.dilation)
        ]
        found = []
        for place in itertools.product(*map(range, self.window)):
            starts = [n * d for n, d in zip(place, self.dilation)]
            key = [slice(a, a + (n - 1) * s + 1, s) for a, n, s in zip(starts, sizes, self.strides)]
            found.append(x[tuple(key)])
        return found

    def along(self, axis: int) -> JaxWindows:
        """The windows along one axis alone, of what is padded."""

        def only(values: Sequence[int]) -> tuple[int, ...]:
            return tuple(value if n == axis else 1 for n, value in enumerate(values))

        return JaxWindows(
            only(self.window), only(self.strides), ((0, 0),) * len(self.window), (1,) * len(self.window),
            only(self.dilation),
        )  # fmt: skip


@converts("reduce_window_sum")
def reduce_window_sum(at: JaxScope, node: Any) -> Tensor:
    """Axis by axis; a window along a whole axis is a difference of no sums, so that nothing is lost to rounding."""
    geometry = JaxWindows.of(node)
    x = geometry.padded(at.tensor(node.invars[0]), 0)
    for axis, size in enumerate(geometry.window):
        if size > 1 or geometry.strides[axis] > 1:
            x = o.sum(o.stack(geometry.along(axis).elements(x), -1), -1)
    return x


@converts("reduce_window_max", "reduce_window_min")
def reduce_window_extreme(at: JaxScope, node: Any) -> Tensor:
    """The first of equal elements has the slope."""
    geometry, name = JaxWindows.of(node), node.primitive.name[-3:]
    x = at.tensor(node.invars[0])
    (chosen,) = _chosen(geometry, x, [x], largest=name == "max")
    return chosen


def _least(dtype: np.dtype) -> float | int:
    return int(np.iinfo(dtype).min) if dtype.kind in "iu" else -math.inf


def _greatest(dtype: np.dtype) -> float | int:
    return int(np.iinfo(dtype).max) if dtype.kind in "iu" else math.inf


def _chosen(geometry: JaxWindows, by: Tensor, xs: Sequence[Tensor], *, largest: bool) -> list[Tensor]:
    """For each of several tensors the element of each window at which ``by`` is extreme."""
    value = _least(by.dtype) if largest else _greatest(by.dtype)
    seen = o.stack(geometry.elements(geometry.padded(by, value)), -1)
    place = o.expand_dims((o.argmax if largest else o.argmin)(seen, -1), -1)
    stacks = [o.stack(geometry.elements(geometry.padded(x, value if x is by else 0)), -1) for x in xs]
    return [o.squeeze(o.take_along_axis(stack, place, -1), -1) for stack in stacks]


@converts("reduce_window")
def reduce_window(at: JaxScope, node: Any) -> list[Tensor]:
    """By a function of the user's, in the order of the elements of a window."""
    geometry, count = JaxWindows.of(node), len(node.invars) // 2
    xs, init = at.tensors(node.invars[:count]), [at.value(v) for v in node.invars[count:]]
    columns = [geometry.elements(geometry.padded(x, value)) for x, value in zip(xs, init)]
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
    (chosen,) = _chosen(JaxWindows.of(node), by, [given], largest=_selects_largest(node))
    return chosen


@converts("select_and_scatter_add", "select_and_scatter")
def select_and_scatter_add(at: JaxScope, node: Any) -> Tensor:
    """To the element of each window at which the operand is extreme, the window's value is added."""
    given, by = at.tensors(node.invars[:2])
    if node.primitive.name == "select_and_scatter" and _lone(node.params["scatter_jaxpr"]) not in ("add", "add_any"):
        raise RefusedError("windows whose values are scattered by another function than add")
    geometry = JaxWindows.of(node)
    sizes = [int(size) for size in by.shape]
    places = o.reshape(o.iota((math.prod(sizes),)), tuple(sizes))
    (place,) = _chosen(geometry, by, [places], largest=_selects_largest(node))
    flat = o.zeros((math.prod(sizes),), dtype=given.dtype)
    done = o.scatter_add(flat, o.reshape(given, (-1,)), o.reshape(cast(place, np.int64), (-1,)))
    init = at.tensor(node.invars[2]) if len(node.invars) > 2 else None
    result = o.reshape(done, by.shape)
    return result if init is None else result + init
