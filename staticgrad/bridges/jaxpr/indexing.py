"""XLA's gather and scatter: windows of an array at starts that an array of indices has.

    operand  axes that the windows span, those that are indexed, batch axes that indices have as well
    indices  [..., n]: for each window the start along n axes of the operand
    windows  results of a gather, updates of a scatter: axes of the indices and of a window, in some order

Each is brought to one form: along axes of the operand that an index moves, coordinates of one common shape; the other
axes are whole. A window that does not fit is moved ("clip"), or read as a fill value and not written.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.base.types import Size, int64, is_floating
from staticgrad.bridges.arrays import as_tensor, as_tensors
from staticgrad.bridges.jaxpr.conversion import JaxScope, converts
from staticgrad.bridges.jaxpr.views import as_bound, clipped, deeper
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


@frozen
class Windows:
    """The places of windows in an array.

    Attributes:
        sizes: of the operand's axes.
        window: the size of a window along each of these.
        starts: for each column of the indices, the operand's axis.
        batch: pairs of batch axes, of the operand and of the indices.
        spanned: the operand's axes that windows have as axes, in order.
        places: their axes among those of the windows' array; the others are the axes of the indices.
    """

    sizes: tuple[Size, ...]
    window: tuple[Size, ...]
    starts: tuple[int, ...]
    batch: tuple[tuple[int, int], ...]
    spanned: tuple[int, ...]
    places: tuple[int, ...]

    @property
    def moved(self) -> list[int]:
        """The axes of the operand that windows do not span from end to end: along these there are coordinates."""
        whole = {axis for axis in self.spanned if self.window[axis] == self.sizes[axis]}
        return [axis for axis in range(len(self.sizes)) if axis not in whole]

    def order(self, rank: int) -> tuple[int, ...]:
        """The axes of the windows' array in canonical order: those of the indices, then of windows along axes that are
        moved, then along whole ones."""
        moved = self.moved
        pairs = list(zip(self.spanned, self.places))
        free = [n for n in range(rank) if n not in self.places]
        return (*free, *(p for a, p in pairs if a in moved), *(p for a, p in pairs if a not in moved))


def _outside(index: Tensor, windows: Windows) -> Tensor:
    """For each window True if it does not fit."""
    room = [as_bound(windows.sizes[axis] - windows.window[axis]) for axis in windows.starts]
    most = o.stack(as_tensors(room)) if any(isinstance(each, Tensor) for each in room) else np.asarray(room)
    return o.any((index < 0) | (index > most), -1)


def _coordinates(index: Tensor, windows: Windows) -> list[Tensor]:
    """Coordinates along the axes that are moved, in order, of the shape of the indices and of what windows span of
    these axes; clipped."""
    moved = windows.moved
    inner = [axis for axis in windows.spanned if axis in moved]
    free = index.shape[:-1]
    found = []
    sizes: list[Any]
    for axis in moved:
        whole: Tensor = o.zeros((), dtype=int64)
        if axis in windows.starts:
            room = as_bound(windows.sizes[axis] - windows.window[axis])
            start = o.clip(index[..., windows.starts.index(axis)], 0, room)
            whole = o.reshape(start, (*free, *[1] * len(inner)))
        for own, theirs in windows.batch:
            if own == axis:
                sizes = [1] * (len(free) + len(inner))
                sizes[theirs] = free[theirs]
                whole = o.reshape(o.iota((free[theirs],)), tuple(sizes))
        if axis in inner:
            sizes = [1] * (len(free) + len(inner))
            sizes[len(free) + inner.index(axis)] = windows.window[axis]
            whole = whole + o.reshape(o.iota((windows.window[axis],)), tuple(sizes))
        found.append(o.broadcast_to(whole, (*free, *(windows.window[a] for a in inner))))
    return found


def _indices(at: JaxScope, variable: Any) -> Tensor:
    value = at.value(variable)
    return clipped(value) if isinstance(value, Tensor) else as_tensor(value.astype(int64))


def _fill_value(node: Any, dtype: np.dtype) -> Any:
    value = node.params["fill_value"]
    if value is not None:
        return value
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max)
    return True if dtype.kind == "b" else math.nan


def _drops(at: JaxScope, node: Any, windows: Windows) -> bool:
    """True if a window may not fit, and is then filled or not written. A promise that all fit is believed, but what
    breaks it touches no other memory."""
    return "FILL" in str(node.params["mode"]).upper() and not _all_fit(at, node.invars[1], windows)


def _all_fit(at: JaxScope, variable: Any, windows: Windows) -> bool:
    """True if that is known of the indices."""
    value = at.value(variable)
    if isinstance(value, Tensor):
        return not windows.starts
    room = [windows.sizes[axis] - windows.window[axis] for axis in windows.starts]
    if all(isinstance(each, int) for each in room):
        return bool(np.all((value >= 0) & (value <= np.asarray(room, int64))))
    return not value.any()  # windows begin where the array does, whatever its size


@converts("gather")
def gather(at: JaxScope, node: Any) -> Tensor:
    x, index, dims = at.tensor(node.invars[0]), _indices(at, node.invars[1]), node.params["dimension_numbers"]
    batch = tuple(zip(dims.operand_batching_dims, dims.start_indices_batching_dims))
    spanned = [a for a in range(x.ndim) if a not in (*dims.collapsed_slice_dims, *dims.operand_batching_dims)]
    window = at.open.shape(node.params["slice_sizes"])
    windows = Windows(x.shape, window, tuple(dims.start_index_map), batch, tuple(spanned), tuple(dims.offset_dims))
    coordinates = _coordinates(index, windows)
    found = o.gather(x, *coordinates, axes=tuple(windows.moved)) if coordinates else x
    if not coordinates:
        found = o.broadcast_to(x, (*index.shape[:-1], *x.shape))
    order = windows.order(found.ndim)
    result = o.permute_dims(found, tuple(np.argsort(order).tolist()))
    drops = _drops(at, node, windows)
    promised = "PROMISE" in str(node.params["mode"]).upper() and is_floating(x.dtype)
    if not drops and (not promised or _all_fit(at, node.invars[1], windows)):
        return result
    outside = _outside(index, windows)
    shape = iter(outside.shape)
    spread = [1 if n in windows.places else next(shape) for n in range(result.ndim)]
    # Of a promise that is broken the value is clipped, and the gradient goes nowhere, as in XLA.
    other = _fill_value(node, x.dtype) if drops else o.stop_gradient(result)
    return o.where(o.reshape(outside, tuple(spread)), other, result)


SCATTERS = ("scatter", *(f"scatter{sep}{mode}" for sep in "-_" for mode in ("add", "sub", "mul", "min", "max")))


@converts(*SCATTERS)
def scatter(at: JaxScope, node: Any) -> Tensor:
    mode = str(node.primitive.name).removeprefix("scatter")[1:] or "set"
    x, new = at.tensor(node.invars[0]), at.tensor(node.invars[2])
    index, dims = _indices(at, node.invars[1]), node.params["dimension_numbers"]
    if mode == "sub":
        mode, new = "add", -new
    if math.prod(new.shape) == 0:
        return x
    batch = tuple(zip(dims.operand_batching_dims, dims.scatter_indices_batching_dims))
    spanned = [a for a in range(x.ndim) if a not in (*dims.inserted_window_dims, *dims.operand_batching_dims)]
    window: list[Size] = [1] * x.ndim
    for axis, place in zip(spanned, dims.update_window_dims):
        window[axis] = new.shape[place]
    windows = Windows(
        x.shape, tuple(window), tuple(dims.scatter_dims_to_operand_dims), batch, tuple(spanned),
        tuple(dims.update_window_dims),
    )  # fmt: skip
    new = o.permute_dims(new, windows.order(new.ndim))
    outside = _outside(index, windows) if _drops(at, node, windows) else None
    return _written(x, new, index, windows, outside, mode)


def _written(x: Tensor, new: Tensor, index: Tensor, windows: Windows, outside: Tensor | None, mode: str) -> Tensor:
    """Updates in their places, save those that are outside."""
    moved, coordinates = windows.moved, _coordinates(index, windows)
    front = (*moved, *(axis for axis in range(x.ndim) if axis not in moved))
    y = o.permute_dims(x, front)
    count = math.prod(y.shape[: len(moved)])
    rows = o.reshape(y, (count, *y.shape[len(moved) :]))
    place: Tensor = o.zeros(index.shape[:-1], dtype=int64)
    for axis, coordinate in zip(moved, coordinates):
        place = coordinate if axis == moved[0] else place * as_bound(x.shape[axis]) + coordinate
    if mode == "add" and x.dtype != bool and outside is None:
        done = o.scatter_add(rows, new, place)
    else:
        place = place if outside is None else o.where(deeper(outside, place.ndim), as_bound(count), place)
        mode = "max" if mode == "add" and x.dtype == bool else mode
        done = o.scatter(rows, place, new, mode=mode, bounds="clip" if outside is None else "drop")
    return o.permute_dims(o.reshape(done, y.shape), tuple(np.argsort(front).tolist()))
