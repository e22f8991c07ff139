"""NumPy's functions of shapes: arrays from numbers, joins, parts, pads; ``moves`` has those that only move elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from staticgrad.bridges.arrays import cast
from staticgrad.bridges.numpy.tables import (
    FUNCTIONS,
    Table,
    Unconverted,
    common,
    converts,
    refuse_others,
    tensor_of,
    weak,
    written,
)
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


def _concat(xs: Any, axis: int, at_least: int, columns: bool = False) -> Tensor:
    """Tensors of at least so many axes, joined; vectors are columns, or rows."""

    def padded(x: Tensor) -> Tensor:
        if x.ndim >= at_least:
            return x
        if at_least == 3:  # np.atleast_3d
            return o.reshape(x, [(1, 1, 1), (1, *x.shape, 1), (*x.shape, 1)][x.ndim])
        return o.reshape(x, (-1, 1) if columns else (*(1,) * (at_least - x.ndim), *x.shape))

    parts = [padded(x) for x in common(*xs)]
    return o.concat(parts, axis=min(axis, parts[0].ndim - 1))


@converts("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "copy")
def _array(x: Any, dtype: Any = None, ndmin: int = 0, **_: Any) -> Tensor:
    """A tensor, one also for nested sequences."""
    if isinstance(x, (list, tuple)):
        x = o.stack(weak([_array(each) for each in x]) if dtype is None else [cast(_array(e), dtype) for e in x])
    x = o.identity(x) if isinstance(x, Tensor) else tensor_of(x)
    return o.reshape(x, (*(1,) * (ndmin - x.ndim), *x.shape)) if ndmin > x.ndim else x


@converts("full", "full_like")
def _full(shape: Any, number: Any, dtype: Any = None, **_: Any) -> Tensor:
    sizes = shape.shape if isinstance(shape, (Tensor, np.ndarray)) else shape
    return o.broadcast_to(tensor_of(number), tuple(np.atleast_1d(np.asarray(sizes, int)).tolist()))


@converts("linspace")
def _linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, **rest: Any) -> Any:
    refuse_others("linspace", retstep=rest.get("retstep") or None, axis=rest.get("axis") or None)
    steps = np.arange(num) / max(num - 1 if endpoint else num, 1)
    start, stop = tensor_of(start), tensor_of(stop)
    return start + (stop - start) * o.constant(steps.reshape(-1, *(1,) * max(start.ndim, stop.ndim)))


@converts("zeros_like", "ones_like", "empty_like", "shape", "ndim", "size", "result_type", "iscomplexobj", "isscalar",
          "can_cast", "broadcast_shapes", "shares_memory", "may_share_memory", "isrealobj", "min_scalar_type",
          "common_type")  # fmt: skip
def _of_types(*_: Any, **__: Any) -> None:
    """Nothing to declare: NumPy's own result, of shapes and dtypes, is known."""
    return None


@converts("split", "array_split")
def _split(x: Tensor, sections: Any, axis: int = 0) -> list[Any]:
    size: Any = x.shape[axis]
    parts = np.array_split(np.arange(size), sections)
    before = (slice(None),) * (axis % x.ndim)
    return [x[(*before, slice(int(p[0]), int(p[-1]) + 1) if len(p) else slice(0, 0))] for p in parts]


@converts("repeat")
def _repeat(x: Tensor, repeats: Any, axis: int | None = None) -> Tensor:
    if isinstance(repeats, Tensor):
        raise Unconverted("how often an element is repeated depends on a value that only a run knows")
    return o.repeat(x, repeats if isinstance(repeats, int) else np.asarray(repeats), axis=axis)


@converts("pad")
def _pad(x: Tensor, width: Any, mode: str = "constant", **named: Any) -> Any:
    """Constants by ``pad``, edges and reflections by the places that NumPy's own pad of numbers finds."""
    widths: Any = np.broadcast_to(np.asarray(width), (x.ndim, 2)).tolist()
    sizes: Any = x.shape
    if mode in ("edge", "reflect", "symmetric", "wrap"):
        places = np.pad(np.arange(math.prod(sizes)).reshape(sizes), widths, mode=mode, **named)  # type: ignore[call-overload]
        return o.reshape(x, (-1,))[places]
    number = named.get("constant_values", 0)
    if mode != "constant" or np.ndim(number):
        raise Unconverted(f"the mode {mode!r}, or several constants, are not converted")
    mask = np.pad(np.zeros(sizes, bool), widths, constant_values=True)
    return o.where(mask, cast(tensor_of(number), x.dtype), o.pad(x, widths))


@converts("meshgrid")
def _meshgrid(*xs: Any, indexing: str = "xy", sparse: bool = False, **_: Any) -> list[Tensor]:
    if sparse:
        raise Unconverted("sparse=True is not converted")
    return list(o.meshgrid(*[o.reshape(tensor_of(x), (-1,)) for x in xs], indexing=indexing))


@written("fill_diagonal")
def _fill_diagonal(x: Any, number: Any, wrap: bool = False) -> None:
    x[(np.arange(min(x.shape)),) * x.ndim] = number


_LINES: Table = {
    "real_if_close": lambda x, *_: o.identity(x),
    "require": lambda x, *_: o.identity(x),
    "flip": lambda x, axis=None: o.flip(x, axis=axis),
    "broadcast_to": lambda x, shape, **_: o.broadcast_to(x, tuple(np.atleast_1d(shape).tolist())),
    "broadcast_arrays": lambda *xs, **_: tuple(o.broadcast_arrays(*map(tensor_of, xs))),
    "concatenate": lambda xs, axis=0, **_: (
        o.concat([o.reshape(x, (-1,)) for x in common(*xs)]) if axis is None else o.concat(common(*xs), axis=axis)),
    "stack": lambda xs, axis=0, **_: o.stack(common(*xs), axis=axis),
    "vstack": lambda xs, **_: _concat(xs, 0, 2),
    "hstack": lambda xs, **_: _concat(xs, 1, 1),
    "dstack": lambda xs: _concat(xs, 2, 3),
    "column_stack": lambda xs: _concat(xs, 1, 2, columns=True),
    "append": lambda x, new, axis=None: FUNCTIONS["numpy.concatenate"]([x, new], axis),
    "vsplit": lambda x, sections: _split(x, sections, 0),
    "hsplit": lambda x, sections: _split(x, sections, 0 if x.ndim == 1 else 1),
    "tile": lambda x, repetitions: o.tile(x, tuple(np.atleast_1d(repetitions).tolist())),
    "roll": lambda x, shift, axis=None: o.roll(x, shift, axis=axis),
    "tril": lambda x, k=0: o.tril(x, k=k),
    "triu": lambda x, k=0: o.triu(x, k=k),
    "diag": lambda x, k=0: o.diag(x, k),
    "diagflat": lambda x, k=0: o.diag(o.reshape(x, (-1,)), k),
    "trace": lambda x, offset=0, axis1=0, axis2=1, **_: o.sum(
        o.diagonal(o.moveaxis(x, (axis1, axis2), (-2, -1)), offset=offset), axis=-1),
}  # fmt: skip
FUNCTIONS |= {f"numpy.{name}": converter for name, converter in _LINES.items()}
FUNCTIONS |= {"numpy.concat": FUNCTIONS["numpy.concatenate"], "numpy.row_stack": FUNCTIONS["numpy.vstack"]}
