"""NumPy's reductions and cumulative sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.bridges.arrays import cast
from staticgrad.bridges.numpy.tables import FUNCTIONS, Unconverted, converts, refuse_others, tensor_of
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


def _reduce(name: str, *, keeps_dtype: bool = True) -> Callable[..., Tensor]:
    def reduce(x: Any, axis: Any = None, dtype: Any = None, keepdims: Any = False, **rest: Any) -> Tensor:
        initial, where = rest.pop("initial", None), rest.pop("where", None)
        refuse_others(name, initial=initial, **rest)
        keep = keepdims is not np._NoValue and bool(keepdims)
        x = tensor_of(x) if not isinstance(x, Tensor) else x
        if where is not None and where is not True and where is not np._NoValue:
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
        refuse_others(name, **rest)
        x = cast(x, dtype) if dtype is not None else x if x.dtype.kind == "f" else cast(x, np.float64)
        return getattr(o, name)(x, axis, correction=ddof if correction is None else correction, keepdims=keep is True)  # type: ignore[no-any-return]

    return spread


for _name in ("var", "std"):
    FUNCTIONS[f"numpy.{_name}"] = _spread(_name)


@converts("ptp")
def _ptp(x: Tensor, axis: Any = None, **_: Any) -> Tensor:
    return o.max(x, axis) - o.min(x, axis)


@converts("argmax")
def _argmax(x: Tensor, axis: int | None = None, keepdims: Any = False, **_: Any) -> Tensor:
    return o.argmax(x, axis, keepdims=keepdims is True)


@converts("argmin")
def _argmin(x: Tensor, axis: int | None = None, keepdims: Any = False, **_: Any) -> Tensor:
    return o.argmin(x, axis, keepdims=keepdims is True)


@converts("cumsum", "cumulative_sum")
def _cumsum(x: Tensor, axis: int | None = None, dtype: Any = None, **_: Any) -> Tensor:
    x = o.reshape(x, (-1,)) if axis is None else x
    return o.cumulative_sum(x, axis=axis or 0, dtype=dtype)


@converts("cumprod", "cumulative_prod")
def _cumprod(x: Tensor, axis: int | None = None, dtype: Any = None, **_: Any) -> Tensor:
    x = o.reshape(x, (-1,)) if axis is None else x
    return o.cumulative_prod(x, axis=axis or 0, dtype=dtype)


@converts("diff")
def _diff(x: Tensor, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    ends = [None if end is None or end is np._NoValue else _end(end, x, axis) for end in (prepend, append)]
    return o.diff(x, axis, n=n, prepend=ends[0], append=ends[1])


def _end(end: Any, x: Tensor, axis: int) -> Tensor:
    t = cast(tensor_of(end), x.dtype)
    if t.ndim:
        return t
    shape = [int(size) for size in x.shape]
    shape[axis] = 1
    return o.broadcast_to(t, tuple(shape))
