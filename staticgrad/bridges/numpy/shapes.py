"""NumPy's functions of shapes: arrays from numbers, views, joins, pads."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.bridges.arrays import cast
from staticgrad.bridges.numpy.calls import FUNCTIONS, VIEWS, Unconverted, tensor_of
from staticgrad.bridges.numpy.shared import common, converts, refuse_others, written
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

# -- arrays from numbers, and copies ----------------------------------------------------------------------------------


@converts("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "copy")
def _array(x: Any, dtype: Any = None, ndmin: int = 0, **_: Any) -> Tensor:
    """Nested sequences, one tensor. The dtype that NumPy finds is given by the caller's cast, but for whole numbers."""
    if isinstance(x, (list, tuple)):
        parts = [_array(each) for each in x]
        kind = np.result_type(*(part.dtype for part in parts))
        x = o.stack([cast(part, kind) for part in parts])
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
    places = o.constant(steps.reshape(-1, *(1,) * max(start.ndim, stop.ndim)))
    return start + (stop - start) * places


@converts("zeros_like", "ones_like", "empty_like", "shape", "ndim", "size", "result_type", "iscomplexobj", "isscalar",
       "can_cast", "broadcast_shapes", "shares_memory", "may_share_memory", "isrealobj", "min_scalar_type",
       "common_type")  # fmt: skip
def _of_types(*_: Any, **__: Any) -> None:
    """Nothing to declare: NumPy's own result, of shapes and dtypes, is known."""
    return None


# -- shapes -----------------------------------------------------------------------------------------------------------

VIEWS |= {f"numpy.{name}": True for name in (
    "reshape", "ravel", "expand_dims", "squeeze", "atleast_1d", "atleast_2d", "atleast_3d", "asarray", "asanyarray",
    "ascontiguousarray", "real")}  # fmt: skip
VIEWS |= {f"numpy.{name}": False for name in ("transpose", "swapaxes", "moveaxis", "flip", "fliplr", "flipud", "rot90",
                                              "diagonal", "matrix_transpose", "rollaxis", "split", "array_split",
                                              "hsplit", "vsplit", "dsplit", "broadcast_to", "linalg.diagonal",
                                              "permute_dims", "unstack", "diag")}  # fmt: skip


@converts("reshape")
def _reshape(x: Tensor, shape: Any = None, order: str = "C", **named: Any) -> Tensor:
    shape = named.get("newshape", shape)
    if order not in "CA":
        raise Unconverted("an order of elements other than C is not converted")
    sizes = tuple(int(size) for size in shape) if isinstance(shape, (tuple, list, np.ndarray)) else (int(shape),)
    return o.reshape(x, sizes)


@converts("ravel")
def _ravel(x: Tensor, order: str = "C") -> Tensor:
    if order == "F":
        return o.reshape(o.transpose(x, None), (-1,))
    return o.reshape(x, (-1,))


@converts("real", "real_if_close", "require")
def _real(x: Tensor, *_: Any) -> Tensor:
    return o.identity(x)


@converts("expand_dims")
def _expand_dims(x: Tensor, axis: Any) -> Tensor:
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    ndim = x.ndim + len(axes)
    for each in sorted(each % ndim for each in axes):
        x = o.expand_dims(x, axis=each)
    return x


@converts("squeeze")
def _squeeze(x: Tensor, axis: Any = None) -> Tensor:
    axes = axis if isinstance(axis, (tuple, list)) else [axis]
    chosen = {a for a in range(x.ndim) if x.shape[a] == 1} if axis is None else {a % x.ndim for a in axes}
    return o.reshape(x, tuple(size for a, size in enumerate(x.shape) if a not in chosen))


@converts("atleast_1d")
def _atleast_1d(*xs: Tensor) -> Any:
    return _each(xs, lambda x: o.reshape(x, (1,)) if x.ndim == 0 else x)


@converts("atleast_2d")
def _atleast_2d(*xs: Tensor) -> Any:
    return _each(xs, lambda x: o.reshape(x, (*(1,) * (2 - x.ndim), *x.shape)) if x.ndim < 2 else x)


@converts("atleast_3d")
def _atleast_3d(*xs: Tensor) -> Any:
    before, after = (0, 1, 0), (3, 1, 1)  # axes of size 1, by the number of axes
    return _each(
        xs,
        lambda x: o.reshape(x, (*(1,) * before[x.ndim], *x.shape, *(1,) * after[x.ndim])) if x.ndim < 3 else x,
    )


def _each(xs: Sequence[Any], function: Callable[[Tensor], Tensor]) -> Any:
    found = tuple(function(tensor_of(x)) for x in xs)
    return found[0] if len(xs) == 1 else found


@converts("transpose", "permute_dims")
def _transpose(x: Tensor, axes: Any = None) -> Tensor:
    return o.permute_dims(x, tuple(reversed(range(x.ndim))) if axes is None else tuple(int(a) % x.ndim for a in axes))


@converts("matrix_transpose", "linalg.matrix_transpose")
def _matrix_transpose(x: Tensor) -> Tensor:
    return o.matrix_transpose(x)


@converts("swapaxes")
def _swapaxes(x: Tensor, a: int, b: int) -> Tensor:
    return o.swapaxes(x, a, b)


@converts("moveaxis")
def _moveaxis(x: Tensor, source: Any, destination: Any) -> Tensor:
    return o.moveaxis(x, source, destination)


@converts("flip")
def _flip(x: Tensor, axis: Any = None) -> Tensor:
    return o.flip(x, axis=axis)


def _placed(path: str) -> Callable[..., Any]:
    """A function that only moves elements: NumPy's own says where, of the numbers of the places."""

    def placed(x: Tensor, *arguments: Any, **named: Any) -> Any:
        home, _, name = path.rpartition(".")
        sizes: Any = x.shape
        function = getattr(importlib.import_module(home), name)
        places = function(np.arange(math.prod(sizes)).reshape(sizes), *arguments, **named)
        flat = o.reshape(x, (-1,))
        return [flat[each] for each in places] if isinstance(places, list) else flat[places]

    return placed


for _path in ("numpy.rollaxis", "numpy.fliplr", "numpy.flipud", "numpy.rot90", "numpy.dsplit", "numpy.delete",
              "numpy.resize", "numpy.lib.stride_tricks.sliding_window_view", "scipy.linalg.circulant"):  # fmt: skip
    FUNCTIONS[_path] = _placed(_path)


@converts("broadcast_to")
def _broadcast_to(x: Tensor, shape: Any, **_: Any) -> Tensor:
    return o.broadcast_to(x, tuple(shape) if isinstance(shape, (tuple, list)) else (shape,))


@converts("broadcast_arrays")
def _broadcast_arrays(*xs: Any, **_: Any) -> tuple[Tensor, ...]:
    return tuple(o.broadcast_arrays(*map(tensor_of, xs)))


@converts("concatenate", "concat")
def _concatenate(xs: Any, axis: int | None = 0, **_: Any) -> Tensor:
    parts = [tensor_of(x) for x in xs]
    parts = common([o.reshape(x, (-1,)) for x in parts] if axis is None else parts)
    return o.concat(parts, axis=axis or 0)


@converts("stack")
def _stack(xs: Any, axis: int = 0, **_: Any) -> Tensor:
    return o.stack(common([tensor_of(x) for x in xs]), axis=axis)


@converts("vstack", "row_stack")
def _vstack(xs: Any, **_: Any) -> Tensor:
    return o.concat(common([_atleast_2d(x) for x in xs]), axis=0)


@converts("hstack")
def _hstack(xs: Any, **_: Any) -> Tensor:
    parts = common([_atleast_1d(x) for x in xs])
    return o.concat(parts, axis=0 if parts[0].ndim == 1 else 1)


@converts("dstack")
def _dstack(xs: Any) -> Tensor:
    return o.concat(common([_atleast_3d(x) for x in xs]), axis=2)


@converts("column_stack")
def _column_stack(xs: Any) -> Tensor:
    columns = [tensor_of(x) for x in xs]
    return o.concat(common([o.reshape(x, (-1, 1)) if x.ndim < 2 else x for x in columns]), axis=1)


@converts("append")
def _append(x: Any, new: Any, axis: int | None = None) -> Tensor:
    return _concatenate([x, new], axis)


@converts("split", "array_split")
def _split(x: Tensor, sections: Any, axis: int = 0) -> list[Tensor]:
    size, axis = int(x.shape[axis]), axis % x.ndim
    parts = np.array_split(np.arange(size), sections)
    return [x[(*(slice(None),) * axis, slice(int(p[0]), int(p[-1]) + 1) if len(p) else slice(0, 0))] for p in parts]


@converts("vsplit")
def _vsplit(x: Tensor, sections: Any) -> list[Tensor]:
    return _split(x, sections, 0)


@converts("hsplit")
def _hsplit(x: Tensor, sections: Any) -> list[Tensor]:
    return _split(x, sections, 0 if x.ndim == 1 else 1)


@converts("unstack")
def _unstack(x: Tensor, axis: int = 0) -> tuple[Tensor, ...]:
    return tuple(o.unstack(x, axis=axis))


@converts("repeat")
def _repeat(x: Tensor, repeats: Any, axis: int | None = None) -> Tensor:
    if isinstance(repeats, Tensor):
        raise Unconverted("how often an element is repeated depends on a value that only a run knows")
    return o.repeat(x, repeats if isinstance(repeats, int) else np.asarray(repeats), axis=axis)


@converts("tile")
def _tile(x: Tensor, repetitions: Any) -> Tensor:
    return o.tile(x, tuple(repetitions) if isinstance(repetitions, (tuple, list)) else int(repetitions))


@converts("roll")
def _roll(x: Tensor, shift: Any, axis: Any = None) -> Tensor:
    return o.roll(x, shift, axis=axis)


@converts("pad")
def _pad(x: Tensor, width: Any, mode: str = "constant", **named: Any) -> Tensor:
    """Constants by ``pad``, edges and reflections by the places that NumPy's own pad of numbers finds."""
    widths = np.broadcast_to(np.asarray(width), (x.ndim, 2)).tolist()
    if mode == "constant":
        number = named.get("constant_values", 0)
        if np.ndim(number):
            raise Unconverted("several constant_values are not converted")
        mask = np.pad(np.zeros(x.shape, bool), widths, constant_values=True)
        padded = o.pad(x, widths)
        return (
            padded
            if not isinstance(number, Tensor) and number == 0
            else o.where(mask, cast(tensor_of(number), x.dtype), padded)
        )
    if mode not in ("edge", "reflect", "symmetric", "wrap"):
        raise Unconverted(f"the mode {mode!r} is not converted")
    sizes: Any = x.shape
    places = np.pad(np.arange(math.prod(sizes)).reshape(sizes), widths, mode=mode, **named)  # type: ignore[call-overload]
    return o.reshape(x, (-1,))[places]


@converts("meshgrid")
def _meshgrid(*xs: Any, indexing: str = "xy", sparse: bool = False, **_: Any) -> list[Tensor]:
    if sparse:
        raise Unconverted("sparse=True is not converted")
    return list(o.meshgrid(*[o.reshape(tensor_of(x), (-1,)) for x in xs], indexing=indexing))


@converts("tril")
def _tril(x: Tensor, k: int = 0) -> Tensor:
    return o.tril(x, k=k)


@converts("triu")
def _triu(x: Tensor, k: int = 0) -> Tensor:
    return o.triu(x, k=k)


@converts("diag")
def _diag(x: Tensor, k: int = 0) -> Tensor:
    if x.ndim == 2:
        return o.diagonal(x, offset=k)
    n = int(x.shape[0]) + abs(k)
    places = np.full((n, n), int(x.shape[0]))
    np.fill_diagonal(places[max(-k, 0) :, max(k, 0) :], np.arange(int(x.shape[0])))
    return o.pad(x, [(0, 1)])[places]


@converts("diagflat")
def _diagflat(x: Tensor, k: int = 0) -> Tensor:
    return _diag(o.reshape(x, (-1,)), k)


@converts("diagonal", "linalg.diagonal")
def _diagonal(x: Tensor, offset: int = 0, axis1: int | None = None, axis2: int | None = None) -> Tensor:
    first, second = (0, 1) if axis1 is None or axis2 is None else (axis1, axis2)
    return o.diagonal(o.moveaxis(x, (first, second), (-2, -1)), offset=offset)


@converts("trace")
def _trace(x: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1, **_: Any) -> Tensor:
    return o.sum(_diagonal(x, offset, axis1, axis2), axis=-1)


@written("fill_diagonal")
def _fill_diagonal(x: Any, number: Any, wrap: bool = False) -> None:
    least = min(x.shape)
    x[(np.arange(least),) * x.ndim] = number
