"""Values while a Stan program is converted, and functions of them that are declared or computed.

A value is known (a Python number, or a NumPy array) or a tensor. Arrays have the axes of Stan's arrays in front of
those of their vectors or matrices, in row-major order; a vector and a row vector both have one axis. ``m`` has the
elementwise functions of the op table and some others: of known values they are computed with NumPy, by the references
of the ops, else declared.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.base.types import dtype_of
from staticgrad.bridges.arrays import as_tensor, evaluated
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.graph.optable import NO_ATTRIBUTES, OPS

F64 = dtype_of(np.dtype(np.float64))
INTS = (int, np.integer)
Value = Any  # a number, an array or a tensor
Index = Any  # of one axis: a number, a slice, an array of numbers


def known(*values: Value) -> bool:
    """True if no value is a tensor."""
    return not any(isinstance(value, Tensor) for value in values)


def some(value: Any) -> Any:
    """A value that is not None."""
    assert value is not None
    return value


def number(value: Value) -> Value:
    """A known value of one element as a Python number, so that it is weak."""
    return value.item() if not isinstance(value, Tensor) and np.ndim(value) == 0 and hasattr(value, "item") else value


def real(value: Value) -> Value:
    """The value in float64."""
    if isinstance(value, Tensor):
        return value if value.dtype == F64 else o.astype(value, F64)
    return float(value) if np.ndim(value) == 0 else np.asarray(value, np.float64)


def tensor(value: Value) -> Tensor:
    """The value as a tensor of float64."""
    return as_tensor(real(value))


def shape(value: Value) -> tuple[int, ...]:
    return tuple(int(size) for size in (value.shape if isinstance(value, Tensor) else np.shape(value)))


def size(value: Value) -> int:
    return int(np.prod(shape(value), dtype=np.int64))


def ndim(value: Value) -> int:
    return len(shape(value))


class _Functions:
    """Functions by the name that the table of ops has: of known values computed, else declared of tensors.

    What is known is computed by the reference of an elementwise op, else by NumPy's function of the name, else by the
    interpreter of graphs.
    """

    def __getattr__(self, name: str) -> Callable[..., Value]:
        declare, compute = getattr(o, name), _computed(name)

        def function(*values: Value, **options: Any) -> Value:
            if known(*values):
                with np.errstate(all="ignore"):
                    found = compute(*values, **options)
                return found if isinstance(found, tuple) else number(found)
            return declare(*map(_lifted, values), **options)

        self.__dict__[name] = function
        return function

    def softplus(self, x: Value) -> Value:
        """log(1 + exp(x)) without a threshold."""
        return self.logaddexp(x, 0.0)


def _computed(name: str) -> Callable[..., Any]:
    """A function of known values."""
    op = OPS.get(name)
    if op is not None and op.elementwise:
        reference = op.reference
        return lambda *values: np.asarray(reference(NO_ATTRIBUTES, *(np.asarray(real(value)) for value in values)))
    numpys: Callable[..., Any] | None = getattr(np.linalg, name, None) or getattr(np, name, None)
    return numpys or functools.partial(_interpreted, name)


def _interpreted(name: str, *values: Value, **options: Any) -> Value:
    with Graph():
        found = getattr(o, name)(*map(_lifted, values), **options)
        return evaluated([found])[0]


def _lifted(value: Value) -> Value:
    """An operand of an op: truth values stay what they are, and integers, for they may be an axis."""
    return value if isinstance(value, (int, tuple)) or getattr(value, "dtype", F64) == np.bool_ else tensor(value)


m = _Functions()


def where(condition: Value, a: Value, b: Value) -> Value:
    """``a`` where the condition holds, else ``b``."""
    if known(condition):
        if np.ndim(condition) == 0:
            return a if condition else b
        condition = np.asarray(condition, bool)
        if known(a, b):
            return np.where(condition, a, b)
        return o.where(as_tensor(condition), tensor(a), tensor(b))
    return o.where(condition, tensor(a), tensor(b))


def reshape(value: Value, sizes: Sequence[int]) -> Value:
    return value if shape(value) == tuple(sizes) else m.reshape(value, tuple(sizes))


def transpose(value: Value) -> Value:
    """The value with its last two axes exchanged; itself if it has fewer."""
    return value if ndim(value) < 2 else m.swapaxes(value, -1, -2)


def concat(values: Sequence[Value], axis: int = 0) -> Value:
    values = [value for value in values if size(value)] or list(values[:1])
    if known(*values):
        return np.concatenate([np.asarray(value) for value in values], axis=axis)
    return values[0] if len(values) == 1 else o.concat([tensor(value) for value in values], axis=axis)


def stack(values: Sequence[Value]) -> Value:
    """Values of one shape along a new first axis."""
    if known(*values):
        return np.stack([np.asarray(value) for value in values]) if values else np.zeros(0)
    return o.stack([tensor(value) for value in values])


def spread(value: Value, sizes: Sequence[int]) -> Value:
    """The value broadcast to a shape."""
    if known(value):
        return np.array(np.broadcast_to(value, tuple(sizes)))
    return value if shape(value) == tuple(sizes) else o.broadcast_to(value, tuple(sizes))


def take(value: Value, index: Sequence[Index]) -> Value:
    """The elements at an index for each of the first axes; several arrays of numbers select a grid."""
    if known(value):
        value, axis = np.asarray(value), 0
        for each in index:
            value = value[(slice(None),) * axis + (each,)]
            axis += not isinstance(each, INTS)
        return number(value)
    basic = [slice(None) if isinstance(each, np.ndarray) else each for each in index]
    if not all(isinstance(each, slice) and each in (slice(None), slice(0, n)) for each, n in zip(basic, shape(value))):
        value = value[tuple(basic)]
    axis = 0
    for each in index:
        if isinstance(each, np.ndarray):
            value = o.take(value, each, axis=axis)
        axis += not isinstance(each, INTS)
    return value
