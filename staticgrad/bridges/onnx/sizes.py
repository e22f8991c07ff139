"""Vectors of sizes of which some are open: what a graph computes of them before it reshapes with them.

Such a value is an array of objects, integers and ``Dim``. ``COMPUTE`` has the operators that computations of shapes are
made of: the results of a node are known where its operands are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.base.types import Dim, int64
from staticgrad.bridges.onnx.binding import Number, Numbers, bound
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


def array(values: Any) -> np.ndarray:
    """Sizes as an array: of int64 if all are numbers, else of objects."""
    found = np.asarray(values, dtype=object)
    return found if any(isinstance(each, Dim) for each in found.ravel()) else found.astype(np.int64)


def is_open_array(value: Any) -> bool:
    """True if it is an array of sizes of which some are open."""
    return isinstance(value, np.ndarray) and value.dtype.kind == "O"


def as_tensor(values: np.ndarray) -> Tensor:
    """Sizes as an int64 tensor, which a run fills in."""
    parts = [
        o.size_value(each, int64) if isinstance(each, Dim) else o.constant(int(each), int64) for each in values.ravel()
    ]
    return o.reshape(o.stack(parts), values.shape)


def _squeeze(x: Any, axes: Numbers = None) -> Any:
    return np.squeeze(x, None if axes is None else tuple(axes))


def _unsqueeze(x: Any, axes: Numbers) -> Any:
    return np.expand_dims(x, tuple(axes))


def _slice(x: Any, starts: Number, ends: Number, axes: Number = 0, steps: Number = None) -> Any:
    return x[slice(*(each[0] if isinstance(each, list) else each for each in (starts, ends, steps)))]


def _concat(*xs: Any, axis: int) -> Any:
    return np.concatenate([np.asarray(x, object) for x in xs], axis=axis)


COMPUTE: dict[str, Callable[[Any, Any], list[Any]]] = {
    "Identity": bound(lambda x: x),
    "Cast": bound(lambda x, *, to: x if to in (6, 7) else None),
    "Gather": bound(lambda x, indices, *, axis: np.take(x, np.asarray(indices).astype(int), axis=axis)),
    "Concat": bound(_concat),
    "Squeeze": bound(_squeeze),
    "Unsqueeze": bound(_unsqueeze),
    "Slice": bound(_slice),
    "Reshape": bound(lambda x, shape: np.reshape(x, tuple(shape.tolist()))),
    "Add": bound(lambda a, b: np.asarray(a, object) + b),
    "Sub": bound(lambda a, b: np.asarray(a, object) - b),
    "Mul": bound(lambda a, b: np.asarray(a, object) * b),
    "Div": bound(lambda a, b: np.asarray(a, object) // b),
    "ReduceProd": bound(lambda x, *, keepdims: np.prod(x, keepdims=bool(keepdims))),
}
