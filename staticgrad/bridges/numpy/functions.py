"""NumPy's array functions: converters of the same arguments, with tensors, and functions in NumPy's own terms.

``_path`` enters a converter, which takes and gives tensors; ``_written`` a function that is traced like the user's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.bridges.arrays import cast
from staticgrad.bridges.numpy import array
from staticgrad.bridges.numpy.array import is_traced, value_of
from staticgrad.bridges.numpy.calls import FUNCTIONS, VIEWS, WRITTEN, Unconverted, call, enter, tensor_of
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

_MISSING = object()


def _path(*names: str) -> Any:
    return enter(FUNCTIONS, *(f"numpy.{name}" for name in names))


def _written(*names: str) -> Any:
    return enter(WRITTEN, *(f"numpy.{name}" for name in names))


def _refuse_others(where: str, **named: Any) -> None:
    """Refuse keywords that a converter has nothing for.

    Raises:
        Unconverted: one is given.
    """
    given = [name for name, value in named.items() if value is not None and value is not np._NoValue]  # type: ignore[attr-defined]
    if given:
        raise Unconverted(f"the argument {given[0]} of {where} is not converted")


# -- arrays from numbers, and copies ------------------------------------------------------------------------------------


@_path("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "copy")
def _array(x: Any, dtype: Any = None, **_: Any) -> Tensor:
    """Nested sequences, one tensor. The dtype that NumPy finds is given by the caller's cast, but for whole numbers."""
    if isinstance(x, (list, tuple)):
        parts = [_array(each) for each in x]
        kind = np.result_type(*(part.dtype for part in parts))
        return o.stack([cast(part, kind) for part in parts])
    return o.identity(x) if isinstance(x, Tensor) else tensor_of(x)


@_path("full", "full_like")
def _full(shape: Any, number: Any, dtype: Any = None, **_: Any) -> Tensor:
    sizes = shape.shape if isinstance(shape, (Tensor, np.ndarray)) else shape
    return o.broadcast_to(tensor_of(number), tuple(np.atleast_1d(np.asarray(sizes, int)).tolist()))


@_path("linspace")
def _linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, **rest: Any) -> Tensor:
    _refuse_others("linspace", retstep=rest.get("retstep") or None, axis=rest.get("axis") or None)
    steps = np.arange(num) / max(num - 1 if endpoint else num, 1)
    start, stop = tensor_of(start), tensor_of(stop)
    places = o.constant(steps.reshape(-1, *(1,) * max(start.ndim, stop.ndim)))
    return start + (stop - start) * places


@_path("zeros_like", "ones_like", "empty_like", "shape", "ndim", "size", "result_type", "iscomplexobj", "isscalar",
       "can_cast", "broadcast_shapes", "shares_memory", "may_share_memory", "isrealobj", "min_scalar_type",
       "common_type")  # fmt: skip
def _of_types(*_: Any, **__: Any) -> None:
    """What NumPy computes of shapes and dtypes stays a value."""
    return None


# -- shapes -------------------------------------------------------------------------------------------------------------

VIEWS |= {f"numpy.{name}": True for name in ("reshape", "ravel", "expand_dims", "squeeze", "atleast_1d", "atleast_2d",
                                             "atleast_3d", "asarray", "asanyarray", "ascontiguousarray", "real")}  # fmt: skip
VIEWS |= {f"numpy.{name}": False for name in ("transpose", "swapaxes", "moveaxis", "flip", "fliplr", "flipud", "rot90",
                                              "diagonal", "matrix_transpose", "rollaxis", "split", "array_split",
                                              "hsplit", "vsplit", "dsplit", "broadcast_to", "linalg.diagonal",
                                              "permute_dims", "unstack", "diag")}  # fmt: skip


@_path("reshape")
def _reshape(x: Tensor, shape: Any = None, order: str = "C", **named: Any) -> Tensor:
    shape = named.get("newshape", shape)
    if order not in "CA":
        raise Unconverted("an order of elements other than C is not converted")
    sizes = tuple(int(size) for size in shape) if isinstance(shape, (tuple, list, np.ndarray)) else (int(shape),)
    return o.reshape(x, sizes)


@_path("ravel")
def _ravel(x: Tensor, order: str = "C") -> Tensor:
    if order == "F":
        return o.reshape(o.transpose(x, None), (-1,))
    return o.reshape(x, (-1,))


@_path("real", "real_if_close", "require")
def _real(x: Tensor, *_: Any) -> Tensor:
    return o.identity(x)


@_path("expand_dims")
def _expand_dims(x: Tensor, axis: Any) -> Tensor:
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    ndim = x.ndim + len(axes)
    for each in sorted(each % ndim for each in axes):
        x = o.expand_dims(x, axis=each)
    return x


@_path("squeeze")
def _squeeze(x: Tensor, axis: Any = None) -> Tensor:
    axes = axis if isinstance(axis, (tuple, list)) else [axis]
    chosen = {a for a in range(x.ndim) if x.shape[a] == 1} if axis is None else {a % x.ndim for a in axes}
    return o.reshape(x, tuple(size for a, size in enumerate(x.shape) if a not in chosen))


@_path("atleast_1d")
def _atleast_1d(*xs: Tensor) -> Any:
    return _each(xs, lambda x: o.reshape(x, (1,)) if x.ndim == 0 else x)


@_path("atleast_2d")
def _atleast_2d(*xs: Tensor) -> Any:
    return _each(xs, lambda x: o.reshape(x, (*(1,) * (2 - x.ndim), *x.shape)) if x.ndim < 2 else x)


@_path("atleast_3d")
def _atleast_3d(*xs: Tensor) -> Any:
    shapes = {0: lambda s: (1, 1, 1), 1: lambda s: (1, *s, 1), 2: lambda s: (*s, 1)}
    return _each(xs, lambda x: o.reshape(x, shapes[x.ndim](x.shape)) if x.ndim < 3 else x)


def _each(xs: Sequence[Any], function: Callable[[Tensor], Tensor]) -> Any:
    found = tuple(function(tensor_of(x)) for x in xs)
    return found[0] if len(xs) == 1 else found


@_path("transpose", "permute_dims")
def _transpose(x: Tensor, axes: Any = None) -> Tensor:
    return o.permute_dims(x, tuple(reversed(range(x.ndim))) if axes is None else tuple(int(a) % x.ndim for a in axes))


@_path("matrix_transpose", "linalg.matrix_transpose")
def _matrix_transpose(x: Tensor) -> Tensor:
    return o.matrix_transpose(x)


@_path("swapaxes")
def _swapaxes(x: Tensor, a: int, b: int) -> Tensor:
    return o.swapaxes(x, a, b)


@_path("moveaxis")
def _moveaxis(x: Tensor, source: Any, destination: Any) -> Tensor:
    return o.moveaxis(x, source, destination)


@_path("rollaxis")
def _rollaxis(x: Tensor, axis: int, start: int = 0) -> Tensor:
    axis, start = axis % x.ndim, start + x.ndim if start < 0 else start
    return o.moveaxis(x, axis, start - 1 if axis < start else start)


@_path("flip")
def _flip(x: Tensor, axis: Any = None) -> Tensor:
    return o.flip(x, axis=axis)


@_path("fliplr")
def _fliplr(x: Tensor) -> Tensor:
    return o.flip(x, axis=1)


@_path("flipud")
def _flipud(x: Tensor) -> Tensor:
    return o.flip(x, axis=0)


@_path("rot90")
def _rot90(x: Tensor, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Tensor:
    for _ in range(k % 4):
        x = o.swapaxes(o.flip(x, axis=axes[1]), *axes)
    return x


@_path("broadcast_to")
def _broadcast_to(x: Tensor, shape: Any, **_: Any) -> Tensor:
    return o.broadcast_to(x, tuple(shape) if isinstance(shape, (tuple, list)) else (shape,))


@_path("broadcast_arrays")
def _broadcast_arrays(*xs: Any, **_: Any) -> tuple[Tensor, ...]:
    return tuple(o.broadcast_arrays(*map(tensor_of, xs)))


@_path("concatenate", "concat")
def _concatenate(xs: Any, axis: int | None = 0, **_: Any) -> Tensor:
    parts = [tensor_of(x) for x in xs]
    parts = _common([o.reshape(x, (-1,)) for x in parts] if axis is None else parts)
    return o.concat(parts, axis=axis or 0)


@_path("stack")
def _stack(xs: Any, axis: int = 0, **_: Any) -> Tensor:
    return o.stack(_common([tensor_of(x) for x in xs]), axis=axis)


@_path("vstack", "row_stack")
def _vstack(xs: Any, **_: Any) -> Tensor:
    return o.concat(_common([_atleast_2d(x) for x in xs]), axis=0)


@_path("hstack")
def _hstack(xs: Any, **_: Any) -> Tensor:
    parts = _common([_atleast_1d(x) for x in xs])
    return o.concat(parts, axis=0 if parts[0].ndim == 1 else 1)


@_path("dstack")
def _dstack(xs: Any) -> Tensor:
    return o.concat(_common([_atleast_3d(x) for x in xs]), axis=2)


@_path("column_stack")
def _column_stack(xs: Any) -> Tensor:
    columns = [tensor_of(x) for x in xs]
    return o.concat(_common([o.reshape(x, (-1, 1)) if x.ndim < 2 else x for x in columns]), axis=1)


@_written("block")
def _block(rows: Any) -> Any:
    def joined(nest: Any, depth: int) -> Any:
        if isinstance(nest, list):
            return call(np.concatenate, ([joined(each, depth - 1) for each in nest], -depth), {})
        return call(np.atleast_1d if most == 1 else np.atleast_2d, (nest,), {})

    most = 0
    inner = rows
    while isinstance(inner, list):
        most, inner = most + 1, inner[0]
    return joined(rows, most)


def _common(xs: Sequence[Tensor]) -> list[Tensor]:
    dtype = np.result_type(*(x.dtype for x in xs))
    return [cast(x, dtype) for x in xs]


@_path("append")
def _append(x: Any, new: Any, axis: int | None = None) -> Tensor:
    return _concatenate([x, new], axis)


@_path("split", "array_split")
def _split(x: Tensor, sections: Any, axis: int = 0) -> list[Tensor]:
    size, axis = int(x.shape[axis]), axis % x.ndim  # type: ignore[arg-type]
    parts = np.array_split(np.arange(size), sections)
    return [x[(*(slice(None),) * axis, slice(int(p[0]), int(p[-1]) + 1) if len(p) else slice(0, 0))] for p in parts]


@_path("vsplit")
def _vsplit(x: Tensor, sections: Any) -> list[Tensor]:
    return _split(x, sections, 0)


@_path("hsplit")
def _hsplit(x: Tensor, sections: Any) -> list[Tensor]:
    return _split(x, sections, 0 if x.ndim == 1 else 1)


@_path("dsplit")
def _dsplit(x: Tensor, sections: Any) -> list[Tensor]:
    return _split(x, sections, 2)


@_path("unstack")
def _unstack(x: Tensor, axis: int = 0) -> tuple[Tensor, ...]:
    return tuple(o.unstack(x, axis=axis))


@_path("repeat")
def _repeat(x: Tensor, repeats: Any, axis: int | None = None) -> Tensor:
    if isinstance(repeats, Tensor):
        raise Unconverted("how often an element is repeated depends on a value that only a run knows")
    return o.repeat(x, repeats if isinstance(repeats, int) else np.asarray(repeats), axis=axis)


@_path("tile")
def _tile(x: Tensor, repetitions: Any) -> Tensor:
    return o.tile(x, tuple(repetitions) if isinstance(repetitions, (tuple, list)) else int(repetitions))


@_path("roll")
def _roll(x: Tensor, shift: Any, axis: Any = None) -> Tensor:
    return o.roll(x, shift, axis=axis)


@_path("pad")
def _pad(x: Tensor, width: Any, mode: str = "constant", **named: Any) -> Tensor:
    """Constants by ``pad``, edges and reflections by the places that NumPy's own pad of numbers finds."""
    widths = np.broadcast_to(np.asarray(width), (x.ndim, 2)).tolist()
    if mode == "constant":
        number = named.get("constant_values", 0)
        if np.ndim(number):
            raise Unconverted("several constant_values are not converted")
        mask = np.pad(np.zeros(x.shape, bool), widths, constant_values=True)  # type: ignore[arg-type]
        padded = o.pad(x, widths)
        return padded if not isinstance(number, Tensor) and number == 0 else o.where(mask, cast(tensor_of(number), x.dtype), padded)
    if mode not in ("edge", "reflect", "symmetric", "wrap"):
        raise Unconverted(f"the mode {mode!r} is not converted")
    places = np.pad(np.arange(math.prod(x.shape)).reshape(x.shape), widths, mode=mode, **named)  # type: ignore[arg-type]
    return o.reshape(x, (-1,))[places]


@_path("meshgrid")
def _meshgrid(*xs: Any, indexing: str = "xy", sparse: bool = False, **_: Any) -> list[Tensor]:
    if sparse:
        raise Unconverted("sparse=True is not converted")
    return list(o.meshgrid(*[o.reshape(tensor_of(x), (-1,)) for x in xs], indexing=indexing))


@_path("tril")
def _tril(x: Tensor, k: int = 0) -> Tensor:
    return o.tril(x, k=k)


@_path("triu")
def _triu(x: Tensor, k: int = 0) -> Tensor:
    return o.triu(x, k=k)


@_path("diag")
def _diag(x: Tensor, k: int = 0) -> Tensor:
    if x.ndim == 2:
        return o.diagonal(x, offset=k)
    n = int(x.shape[0]) + abs(k)  # type: ignore[arg-type]
    places = np.full((n, n), int(x.shape[0]))  # type: ignore[arg-type]
    np.fill_diagonal(places[max(-k, 0) :, max(k, 0) :], np.arange(int(x.shape[0])))  # type: ignore[arg-type]
    return o.pad(x, [(0, 1)])[places]


@_path("diagflat")
def _diagflat(x: Tensor, k: int = 0) -> Tensor:
    return _diag(o.reshape(x, (-1,)), k)


@_path("diagonal", "linalg.diagonal")
def _diagonal(x: Tensor, offset: int = 0, axis1: int | None = None, axis2: int | None = None) -> Tensor:
    first, second = (0, 1) if axis1 is None or axis2 is None else (axis1, axis2)
    return o.diagonal(o.moveaxis(x, (first, second), (-2, -1)), offset=offset)


@_path("trace")
def _trace(x: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1, **_: Any) -> Tensor:
    return o.sum(_diagonal(x, offset, axis1, axis2), axis=-1)


@_written("fill_diagonal")
def _fill_diagonal(x: Any, number: Any, wrap: bool = False) -> None:
    least = min(x.shape)
    x[(np.arange(least),) * x.ndim] = number


# -- reductions ---------------------------------------------------------------------------------------------------------


def _reduce(name: str, *, keeps_dtype: bool = True) -> Callable[..., Tensor]:
    def reduce(x: Any, axis: Any = None, dtype: Any = None, keepdims: Any = False, **rest: Any) -> Tensor:
        initial, where = rest.pop("initial", None), rest.pop("where", None)
        _refuse_others(name, initial=initial, **rest)
        keep = keepdims is not np._NoValue and bool(keepdims)  # type: ignore[attr-defined]
        x = tensor_of(x) if not isinstance(x, Tensor) else x
        if where is not None and where is not True:
            if name not in _NEUTRAL:
                raise Unconverted("the argument where is not converted")
            x = o.where(where, x, np.asarray(_NEUTRAL[name], x.dtype))
        x = cast(x, dtype) if dtype is not None else x
        axes = tuple(axis) if isinstance(axis, (list, tuple)) else axis
        return getattr(o, name)(x, axes, keepdims=keep)  # type: ignore[no-any-return]

    return reduce


_NEUTRAL = {"sum": 0, "prod": 1, "all": True, "any": False}
for _name, _ours in {"sum": "sum", "prod": "prod", "mean": "mean", "max": "max", "amax": "max", "min": "min",
                     "amin": "min", "any": "any", "all": "all", "count_nonzero": "count_nonzero"}.items():  # fmt: skip
    FUNCTIONS[f"numpy.{_name}"] = _reduce(_ours)


def _spread(name: str) -> Callable[..., Tensor]:
    def spread(x: Tensor, axis: Any = None, dtype: Any = None, **rest: Any) -> Tensor:
        ddof, correction, keep = rest.pop("ddof", 0), rest.pop("correction", None), rest.pop("keepdims", False)
        _refuse_others(name, **rest)
        x = cast(x, dtype) if dtype is not None else x if x.dtype.kind == "f" else cast(x, np.float64)
        return getattr(o, name)(x, axis, correction=ddof if correction is None else correction, keepdims=keep is True)  # type: ignore[no-any-return]

    return spread


for _name in ("var", "std"):
    FUNCTIONS[f"numpy.{_name}"] = _spread(_name)


@_path("ptp")
def _ptp(x: Tensor, axis: Any = None, **_: Any) -> Tensor:
    return o.max(x, axis) - o.min(x, axis)


@_path("argmax")
def _argmax(x: Tensor, axis: int | None = None, keepdims: Any = False, **_: Any) -> Tensor:
    return o.argmax(x, axis, keepdims=keepdims is True)


@_path("argmin")
def _argmin(x: Tensor, axis: int | None = None, keepdims: Any = False, **_: Any) -> Tensor:
    return o.argmin(x, axis, keepdims=keepdims is True)


@_path("cumsum", "cumulative_sum")
def _cumsum(x: Tensor, axis: int | None = None, dtype: Any = None, **_: Any) -> Tensor:
    x = o.reshape(x, (-1,)) if axis is None else x
    return o.cumulative_sum(x, axis=axis or 0, dtype=dtype)


@_path("cumprod", "cumulative_prod")
def _cumprod(x: Tensor, axis: int | None = None, dtype: Any = None, **_: Any) -> Tensor:
    x = o.reshape(x, (-1,)) if axis is None else x
    return o.cumulative_prod(x, axis=axis or 0, dtype=dtype)


@_path("diff")
def _diff(x: Tensor, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    ends = [None if end is None or end is np._NoValue else _end(end, x, axis) for end in (prepend, append)]  # type: ignore[attr-defined]
    return o.diff(x, axis, n=n, prepend=ends[0], append=ends[1])


def _end(end: Any, x: Tensor, axis: int) -> Tensor:
    t = cast(tensor_of(end), x.dtype)
    if t.ndim:
        return t
    shape = [int(size) for size in x.shape]  # type: ignore[arg-type]
    shape[axis] = 1
    return o.broadcast_to(t, tuple(shape))


# -- choice, order --------------------------------------------------------------------------------------------------------


@_path("where")
def _where(condition: Any, *choices: Any) -> Tensor:
    if len(choices) != 2:
        raise Unconverted("the places where a condition holds depend on values: np.where(condition, a, b) keeps the size")
    a, b = _weak(choices)
    chosen = tensor_of(condition)
    return o.where(chosen if chosen.dtype.kind == "b" else o.not_equal(chosen, 0), a, b)


def _weak(xs: Sequence[Any]) -> list[Tensor]:
    """Operands in one dtype, where numbers that came from Python take that of the others."""
    tensors = [x for x in xs if isinstance(x, (Tensor, np.ndarray)) and np.ndim(x)] or list(xs)
    dtype = np.result_type(*(tensor_of(x).dtype for x in tensors))
    if any(tensor_of(x).dtype.kind == "f" for x in xs) and dtype.kind != "f":
        dtype = np.dtype(np.float64)
    return [cast(tensor_of(x), dtype) for x in xs]


@_path("clip")
def _clip(x: Any, a_min: Any = None, a_max: Any = None, out: Any = None, **named: Any) -> Tensor:
    low, high = named.get("min", a_min), named.get("max", a_max)
    t = tensor_of(x)
    given = [_weak([t, end])[1] if end is not None else None for end in (low, high)]
    kinds = [t.dtype, *(end.dtype for end in given if end is not None)]
    t = cast(t, np.result_type(*kinds))
    return o.clip(t, *[None if end is None else cast(end, t.dtype) for end in given])


@_path("round", "around", "round_")
def _round(x: Tensor, decimals: int = 0, **_: Any) -> Tensor:
    if not decimals or x.dtype.kind != "f":
        return o.round(x)
    scale = np.asarray(10.0 ** abs(decimals), x.dtype)
    return o.round(x * scale) / scale if decimals > 0 else o.round(x / scale) * scale


@_path("fix")
def _fix(x: Tensor) -> Tensor:
    return o.trunc(x)


@_path("sort")
def _sort(x: Tensor, axis: int | None = -1, kind: Any = None, **_: Any) -> Tensor:
    return o.sort(o.reshape(x, (-1,))) if axis is None else o.sort(x, axis)


@_path("argsort")
def _argsort(x: Tensor, axis: int | None = -1, kind: Any = None, **_: Any) -> Tensor:
    return o.argsort(o.reshape(x, (-1,))) if axis is None else o.argsort(x, axis)


@_path("partition")
def _partition(x: Tensor, kth: Any, axis: int = -1, **_: Any) -> Tensor:
    return o.sort(x, axis)


@_path("searchsorted")
def _searchsorted(x: Any, v: Any, side: str = "left", sorter: Any = None) -> Tensor:
    x, v = _common([tensor_of(x), tensor_of(v)])
    return o.searchsorted(x, v, side=side, sorter=sorter)


@_path("digitize")
def _digitize(x: Any, bins: Any, right: bool = False) -> Tensor:
    if isinstance(bins, Tensor) or bins[0] > bins[-1]:
        raise Unconverted("bins that are traced or descend are not converted")
    return _searchsorted(bins, x, "left" if right else "right")


@_path("isin")
def _isin(x: Any, tests: Any, assume_unique: bool = False, invert: bool = False, **_: Any) -> Tensor:
    return o.isin(*_common([tensor_of(x), tensor_of(tests)]), invert=invert)


@_path("take")
def _take(x: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise") -> Tensor:
    x = tensor_of(x)
    size = math.prod(x.shape) if axis is None else x.shape[axis]  # type: ignore[arg-type]
    if mode == "clip":
        indices = o.clip(tensor_of(indices), 0, int(size) - 1)  # type: ignore[arg-type]
    elif mode == "wrap":
        indices = o.remainder(tensor_of(indices), int(size))  # type: ignore[arg-type]
    key = indices if isinstance(indices, (Tensor, np.ndarray)) else np.asarray(indices)
    if axis is None:
        return o.reshape(x, (-1,))[key]
    return x[(*(slice(None),) * (axis % x.ndim), key)]


@_path("take_along_axis")
def _take_along_axis(x: Any, indices: Any, axis: int | None = -1) -> Tensor:
    if axis is None:
        return o.take_along_axis(o.reshape(tensor_of(x), (-1,)), indices, axis=0)
    return o.take_along_axis(x, indices, axis=axis)


@_path("choose")
def _choose(places: Any, choices: Any, **_: Any) -> Tensor:
    stacked = o.broadcast_arrays(*_common([tensor_of(x) for x in choices]))
    found = stacked[-1]
    for number in range(len(stacked) - 2, -1, -1):
        found = o.where(o.equal(places, number), stacked[number], found)
    return found


@_path("select")
def _select(conditions: Any, choices: Any, default: Any = 0) -> Tensor:
    *parts, found = _weak([*choices, default])
    for condition, part in zip(reversed(list(conditions)), reversed(parts), strict=True):
        found = o.where(condition, part, found)
    return found


@_written("piecewise")
def _piecewise(x: Any, conditions: Any, functions: Any, *arguments: Any, **named: Any) -> Any:
    conditions = list(conditions) if isinstance(conditions, (list, tuple)) else [conditions]
    functions = list(functions)
    values = [f(x, *arguments, **named) if callable(f) else f for f in functions]
    default = values.pop() if len(values) > len(conditions) else 0
    found = default + np.zeros(x.shape, x.dtype)
    for condition, value in zip(conditions, values, strict=True):  # later ones win
        found = call(np.where, (condition, value, found), {})
    return found.astype(x.dtype) if hasattr(found, "astype") else found


# -- products -------------------------------------------------------------------------------------------------------------


@_path("dot")
def _dot(a: Any, b: Any, **_: Any) -> Tensor:
    a, b = _common([tensor_of(a), tensor_of(b)])
    if not a.ndim or not b.ndim:
        return a * b
    if b.ndim <= 2:
        return o.matmul(a, b)
    return o.tensordot(a, b, axes=([a.ndim - 1], [b.ndim - 2]))


@_path("vdot")
def _vdot(a: Any, b: Any) -> Tensor:
    a, b = _common([tensor_of(a), tensor_of(b)])
    return o.sum(o.reshape(a, (-1,)) * o.reshape(b, (-1,)))


@_path("inner")
def _inner(a: Any, b: Any) -> Tensor:
    a, b = _common([tensor_of(a), tensor_of(b)])
    return a * b if not a.ndim or not b.ndim else o.tensordot(a, b, axes=([a.ndim - 1], [b.ndim - 1]))


@_path("outer", "linalg.outer")
def _outer(a: Any, b: Any, **_: Any) -> Tensor:
    a, b = _common([tensor_of(a), tensor_of(b)])
    return o.reshape(a, (-1, 1)) * o.reshape(b, (1, -1))


@_path("tensordot", "linalg.tensordot")
def _tensordot(a: Any, b: Any, axes: Any = 2) -> Tensor:
    if isinstance(axes, (tuple, list)):
        axes = tuple([each] if isinstance(each, (int, np.integer)) else list(each) for each in axes)
    return o.tensordot(*_common([tensor_of(a), tensor_of(b)]), axes=axes)


@_path("einsum")
def _einsum(text: str, *xs: Any, **_: Any) -> Tensor:
    if not isinstance(text, str):
        raise Unconverted("einsum with lists of axes is not converted: write the subscripts as text")
    return o.einsum(text, *_common([tensor_of(x) for x in xs]))


@_path("kron")
def _kron(a: Any, b: Any) -> Tensor:
    return o.kron(*_common([tensor_of(a), tensor_of(b)]))


@_path("cross", "linalg.cross")
def _cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Tensor:
    at = axis if axis is not None else axisa
    if axis is None and not axisa == axisb == axisc:
        raise Unconverted("different axes of the operands are not converted")
    return o.cross(*o.broadcast_arrays(*_common([tensor_of(a), tensor_of(b)])), axis=at)


@_path("convolve")
def _convolve(a: Any, v: Any, mode: str = "full") -> Tensor:
    """Sums of shifted products, by a matrix of places in the longer one."""
    a, v = _common([tensor_of(a), tensor_of(v)])
    if v.size > a.size:  # type: ignore[operator]
        a, v = v, a
    n, m = int(a.size), int(v.size)  # type: ignore[arg-type]
    places = np.arange(n + m - 1)[:, None] - np.arange(m)[None, :] + m - 1
    full = o.matmul(o.pad(a, [(m - 1, m - 1)])[places], v)
    if mode == "full":
        return full
    if mode == "same":
        return full[(m - 1) // 2 : (m - 1) // 2 + n]
    return full[m - 1 : n]


@_written("correlate")
def _correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    a, v = (x if hasattr(x, "shape") else np.asarray(x) for x in (a, v))
    if v.shape[0] > a.shape[0]:
        return call(np.flip, (call(np.convolve, (v, call(np.flip, (a,), {}), mode), {}),), {})
    return call(np.convolve, (a, call(np.flip, (v,), {}), mode), {})


# -- in NumPy's own terms -------------------------------------------------------------------------------------------------


@_written("trapezoid", "trapz")
def _trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    y = call(np.moveaxis, (call(np.asarray, (y,), {}), axis, -1), {})
    if x is not None:
        dx = call(np.diff, (x,), {})
        dx = call(np.moveaxis, (dx, axis, -1), {}) if np.ndim(value_of(dx)) > 1 else dx
    return (dx * (y[..., 1:] + y[..., :-1]) / 2.0).sum(-1)


@_written("average")
def _average(x: Any, axis: Any = None, weights: Any = None, returned: bool = False, **named: Any) -> Any:
    x = call(np.asarray, (x,), {})
    if weights is None:
        return call(np.mean, (x,), {"axis": axis, **named})
    weights = call(np.asarray, (weights,), {})
    if weights.ndim != x.ndim:
        weights = weights.reshape((1,) * (axis % x.ndim) + (-1,) + (1,) * (x.ndim - 1 - axis % x.ndim))
        weights = weights * np.ones(x.shape)
    total = call(np.sum, (weights,), {"axis": axis, **named})
    mean = call(np.sum, (x * weights,), {"axis": axis, **named}) / total
    return (mean, total) if returned else mean


@_written("cov")
def _cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None, **_: Any) -> Any:
    x = call(np.atleast_2d, (m,), {})
    x = x.T if not rowvar and np.ndim(value_of(m)) > 1 else x
    if y is not None:
        other = call(np.atleast_2d, (y,), {})
        x = call(np.concatenate, ([x, other if rowvar else other.T],), {})
    x = x - x.mean(axis=1, keepdims=True)
    n = x.shape[1] - ((0 if bias else 1) if ddof is None else ddof)
    return call(np.squeeze, (x @ x.T / n,), {})


@_written("corrcoef")
def _corrcoef(x: Any, y: Any = None, rowvar: bool = True, **_: Any) -> Any:
    c = _cov(x, y, rowvar)
    if not c.ndim:
        return c / c
    scale = call(np.sqrt, (call(np.diagonal, (c,), {}),), {})
    return c / scale[:, None] / scale[None, :]


@_written("interp")
def _interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """Linear between the two points around x; the ends, or ``left`` and ``right``, outside."""
    x, xp, fp = (call(np.asarray, (each, np.float64), {}) for each in (x, xp, fp))
    if period is not None:
        raise NotImplementedError("np.interp with a period")
    upper = call(np.clip, (call(np.searchsorted, (xp, x, "right"), {}), 1, xp.shape[0] - 1), {})
    x0, x1, y0, y1 = xp[upper - 1], xp[upper], fp[upper - 1], fp[upper]
    inside = y0 + (y1 - y0) * ((x - x0) / (x1 - x0))
    inside = call(np.where, (x < xp[0], fp[0] if left is None else left, inside), {})
    return call(np.where, (x >= xp[-1], call(np.where, (x > xp[-1], fp[-1] if right is None else right, fp[-1]), {}), inside), {})


@_written("polyval")
def _polyval(p: Any, x: Any) -> Any:
    total: Any = call(np.zeros_like, (x,), {})
    for coefficient in p:
        total = total * x + coefficient
    return total


@_written("vander")
def _vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    n = x.shape[0] if N is None else N
    powers = np.arange(n) if increasing else np.arange(n)[::-1]
    columns = [x**int(power) if power else call(np.ones_like, (x,), {}) for power in powers]
    return call(np.stack, (columns, 1), {})


@_written("ediff1d")
def _ediff1d(x: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    middle = call(np.diff, (x.reshape(-1),), {})
    parts = [call(np.ravel, (part,), {}) for part in (to_begin, middle, to_end) if part is not None]
    return call(np.concatenate, (parts,), {})


@_written("gradient")
def _gradient(f: Any, *spacing: Any, axis: Any = None, edge_order: int = 1) -> Any:
    axes = range(f.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    steps = list(spacing) * (len(list(axes)) if len(spacing) == 1 else 1) or [1.0] * len(list(axes))
    found = [_slope(f, step, each % f.ndim, edge_order) for step, each in zip(steps, axes, strict=True)]
    return found[0] if len(found) == 1 else tuple(found)


def _slope(f: Any, step: Any, axis: int, edge_order: int) -> Any:
    """Second-order differences inside, of the given order at both ends."""
    f = call(np.moveaxis, (f, axis, -1), {})
    h = call(np.diff, (step,), {}) if np.ndim(value_of(step)) else step * np.ones(f.shape[-1] - 1)
    low, high = h[:-1], h[1:]
    inner = (low**2 * f[..., 2:] + (high**2 - low**2) * f[..., 1:-1] - high**2 * f[..., :-2]) / (
        low * high * (low + high)
    )
    if edge_order == 1:
        first, last = (f[..., 1] - f[..., 0]) / h[0], (f[..., -1] - f[..., -2]) / h[-1]
    else:
        first = _edge(f[..., 0], f[..., 1], f[..., 2], h[0], h[1])
        last = -_edge(f[..., -1], f[..., -2], f[..., -3], h[-1], h[-2])
    parts = [first[..., None], inner, last[..., None]]
    return call(np.moveaxis, (call(np.concatenate, (parts, -1), {}), -1, axis), {})


def _edge(f0: Any, f1: Any, f2: Any, a: Any, b: Any) -> Any:
    return -(2 * a + b) / (a * (a + b)) * f0 + (a + b) / (a * b) * f1 - a / (b * (a + b)) * f2


@_written("median")
def _median(x: Any, axis: Any = None, **named: Any) -> Any:
    return _quantile(x, 0.5, axis, **named)


@_written("percentile")
def _percentile(x: Any, q: Any, axis: Any = None, **named: Any) -> Any:
    return _quantile(x, q / 100 if not isinstance(q, (list, tuple)) else np.asarray(q) / 100, axis, **named)


@_written("quantile")
def _quantile(x: Any, q: Any, axis: Any = None, **named: Any) -> Any:
    """Linear between the two sorted elements around q."""
    if named.pop("method", "linear") != "linear" or isinstance(axis, tuple):
        raise NotImplementedError("np.quantile by another method than linear, or along several axes")
    keep = named.pop("keepdims", False) is True
    x = call(np.asarray, (x,), {})
    ordered = call(np.sort, (x.reshape(-1) if axis is None else call(np.moveaxis, (x, axis, 0), {}), 0), {})
    n = ordered.shape[0]
    place = call(np.asarray, (q,), {}) * (n - 1.0)
    low = call(np.clip, (call(np.floor, (place,), {}), 0, max(n - 2, 0)), {}).astype(np.int64)
    rest = (place - low).reshape(np.shape(value_of(q)) + (1,) * (ordered.ndim - 1))
    found = ordered[low] + (ordered[call(np.minimum, (low + 1, n - 1), {})] - ordered[low]) * rest
    if np.shape(value_of(q)) == () and hasattr(found, "shape") and found.shape == ():
        found = found[()]
    if keep:
        found = found.reshape((1,) * x.ndim) if axis is None else call(np.expand_dims, (found, axis), {})
    return found


@_written("nan_to_num")
def _nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    limits = np.finfo(x.dtype)
    ends = limits.max if posinf is None else posinf, limits.min if neginf is None else neginf
    found = call(np.where, (call(np.isnan, (x,), {}), x.dtype.type(nan), x), {})
    found = call(np.where, (found == np.inf, x.dtype.type(ends[0]), found), {})
    return call(np.where, (found == -np.inf, x.dtype.type(ends[1]), found), {})


@_written("isclose")
def _isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    near = call(np.less_equal, (call(np.abs, (a - b,), {}), atol + rtol * call(np.abs, (b,), {})), {})
    near = (near & call(np.isfinite, (b,), {})) | (a == b)
    return near | (call(np.isnan, (a,), {}) & call(np.isnan, (b,), {})) if equal_nan else near


@_written("allclose")
def _allclose(*arguments: Any, **named: Any) -> Any:
    return call(np.all, (_isclose(*arguments, **named),), {})


@_written("array_equal", "array_equiv")
def _array_equal(a: Any, b: Any, **_: Any) -> Any:
    if np.shape(value_of(a)) != np.shape(value_of(b)):
        return False
    return call(np.all, (call(np.equal, (a, b), {}),), {})


@_written("isneginf")
def _isneginf(x: Any) -> Any:
    return x == -np.inf


@_written("isposinf")
def _isposinf(x: Any) -> Any:
    return x == np.inf


@_written("sinc")
def _sinc(x: Any) -> Any:
    y = np.pi * call(np.where, (x == 0, 1.0e-20, x), {})
    return call(np.sin, (y,), {}) / y


@_written("copyto")
def _copyto(target: Any, source: Any, where: Any = True, **_: Any) -> None:
    if not isinstance(value_of(target), np.ndarray):
        raise TypeError("copyto() argument 1 must be numpy.ndarray")
    target[...] = source if where is True else call(np.where, (where, source, target), {})


@_written("put_along_axis")
def _put_along_axis(x: Any, indices: Any, values: Any, axis: int) -> None:
    grid = list(np.ix_(*(np.arange(size) for size in np.shape(value_of(indices)))))
    grid[axis] = indices
    x[tuple(grid)] = values


@_written("insert")
def _insert(x: Any, place: Any, values: Any, axis: int | None = None) -> Any:
    if not isinstance(place, (int, np.integer)):
        raise NotImplementedError("np.insert at several places")
    x, axis = (x.reshape(-1), 0) if axis is None else (call(np.moveaxis, (x, axis, 0), {}), axis)
    new = call(np.atleast_1d, (values,), {}) if x.ndim == 1 else call(np.asarray, (values,), {})[None]
    return call(np.moveaxis, (call(np.concatenate, ([x[:place], new, x[place:]],), {}), 0, axis), {})


@_written("delete")
def _delete(x: Any, places: Any, axis: int | None = None) -> Any:
    x = x.reshape(-1) if axis is None else x
    axis = (axis or 0) % x.ndim
    return x[(slice(None),) * axis + (np.delete(np.arange(x.shape[axis]), places),)]


@_written("apply_along_axis")
def _apply_along_axis(function: Any, axis: int, x: Any, *arguments: Any, **named: Any) -> Any:
    rows = call(np.moveaxis, (x, axis, -1), {})
    found = [function(rows[place], *arguments, **named) for place in np.ndindex(rows.shape[:-1])]
    stacked = call(np.stack, (found,), {})
    stacked = stacked.reshape(rows.shape[:-1] + stacked.shape[1:])
    return call(np.moveaxis, (stacked, -1, axis), {}) if stacked.ndim == x.ndim else stacked


@_written("nonzero", "argwhere", "flatnonzero", "unique", "extract", "compress")
def _of_unknown_size(x: Any, *rest: Any, **named: Any) -> Any:
    raise LookupError  # replaced below


def _counted(name: str) -> Callable[..., Any]:
    from staticgrad.bridges.numpy import trace

    way_out = trace.SELECTION if name in ("extract", "compress") else trace.SEARCH

    def counted(*arguments: Any, **named: Any) -> Any:
        for x in array.arrays_in([list(arguments), named]):
            x.asked(f"np.{name}, whose size follows from values,", way_out)
            break
        return array.known(getattr(np, name)(*value_of(list(arguments)), **value_of(named)))

    return counted


for _name in ("nonzero", "argwhere", "flatnonzero", "unique", "extract", "compress"):
    WRITTEN[f"numpy.{_name}"] = _counted(_name)


@_written("nansum")
def _nansum(x: Any, axis: Any = None, **named: Any) -> Any:
    return call(np.sum, (_without_nan(x, 0.0),), {"axis": axis, **named})


@_written("nanprod")
def _nanprod(x: Any, axis: Any = None, **named: Any) -> Any:
    return call(np.prod, (_without_nan(x, 1.0),), {"axis": axis, **named})


@_written("nanmax")
def _nanmax(x: Any, axis: Any = None, **named: Any) -> Any:
    return call(np.max, (_without_nan(x, -np.inf),), {"axis": axis, **named})


@_written("nanmin")
def _nanmin(x: Any, axis: Any = None, **named: Any) -> Any:
    return call(np.min, (_without_nan(x, np.inf),), {"axis": axis, **named})


@_written("nanmean")
def _nanmean(x: Any, axis: Any = None, **named: Any) -> Any:
    return _nansum(x, axis, **named) / _count(x, axis, **named)


@_written("nanvar")
def _nanvar(x: Any, axis: Any = None, ddof: int = 0, **named: Any) -> Any:
    apart = x - _nansum(x, axis, keepdims=True) / _count(x, axis, keepdims=True)
    return _nansum(apart**2, axis, **named) / (_count(x, axis, **named) - ddof)


@_written("nanstd")
def _nanstd(x: Any, axis: Any = None, ddof: int = 0, **named: Any) -> Any:
    return call(np.sqrt, (_nanvar(x, axis, ddof, **named),), {})


def _without_nan(x: Any, number: float) -> Any:
    return call(np.where, (call(np.isnan, (x,), {}), number, x), {})


def _count(x: Any, axis: Any, **named: Any) -> Any:
    return call(np.sum, (~call(np.isnan, (x,), {}),), {"axis": axis, **named})


@_written("bincount")
def _bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    if is_traced(x):
        x.asked("np.bincount, whose size follows from values,", "np.zeros(n) and np.add.at(counts, x, 1) keep the size")
    places = value_of(x)
    counts = np.zeros(max(minlength, int(places.max(initial=-1)) + 1))
    total = array.known(counts)
    call_at = array.known(places)
    np.add.at(total, call_at, 1.0 if weights is None else weights)
    return total
