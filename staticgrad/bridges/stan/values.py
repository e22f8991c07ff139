"""Values while a Stan program is converted, and functions of them that are declared or computed.

A value is known (a Python number, or a NumPy array) or a tensor. Arrays have the axes of Stan's arrays in front of
those of their vectors or matrices, in row-major order; a vector and a row vector both have one axis. ``m`` has the
elementwise functions of the op table and some others: of known values they are computed with NumPy, by the references
of the ops, else declared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.base.types import dtype_of
from staticgrad.bridges.arrays import as_tensor
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.graph.optable import NO_ATTRIBUTES, OPS

F64 = dtype_of(np.dtype(np.float64))
INTS = (int, np.integer)
Value = Any  # a number, an array or a tensor
Index = Any  # of one axis: a number, a slice, an array of numbers


def known(*values: Value) -> bool:
    """True if no value is a tensor."""
    return not any(isinstance(value, Tensor) for value in values)


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


def either(computed: Callable[..., Any], declared: Callable[..., Any], count: int = 1) -> Callable[..., Value]:
    """A function that is computed if its first ``count`` arguments are known, else declared of tensors."""

    def function(*values: Value, **options: Any) -> Value:
        given, rest = values[:count], values[count:]
        if known(*given):
            return number(computed(*(real(value) for value in given), *rest, **options))
        return declared(*(tensor(value) for value in given), *rest, **options)

    return function


def _logsumexp(x: Any, axis: Any = None) -> Any:
    top = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    total = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
    return total.reshape(()) if axis is None else np.squeeze(total, axis)


def _solve_lower(a: Any, b: Any, upper: bool = False) -> Any:
    return np.linalg.solve(np.triu(a) if upper else np.tril(a), b)


def _declared(name: str) -> Callable[..., Any]:
    return lambda *xs, **options: getattr(o, name)(*xs, **options)


class _Functions:
    """Functions of known values and of tensors, by the op's name."""

    sum = staticmethod(either(np.sum, _declared("sum")))
    prod = staticmethod(either(np.prod, _declared("prod")))
    max = staticmethod(either(np.max, _declared("max")))
    min = staticmethod(either(np.min, _declared("min")))
    mean = staticmethod(either(np.mean, _declared("mean")))
    logsumexp = staticmethod(either(_logsumexp, _declared("logsumexp")))
    matmul = staticmethod(either(np.matmul, _declared("matmul"), 2))
    outer = staticmethod(either(np.multiply.outer, lambda a, b: o.reshape(a, (-1, 1)) * b, 2))
    cumsum = staticmethod(either(np.cumsum, lambda x: o.cumulative_sum(x, axis=0)))
    cholesky = staticmethod(either(np.linalg.cholesky, _declared("cholesky")))
    inv = staticmethod(either(np.linalg.inv, lambda x: o.inv(x)))
    solve = staticmethod(either(np.linalg.solve, _declared("solve"), 2))
    solve_triangular = staticmethod(either(_solve_lower, _declared("solve_triangular"), 2))
    logdet = staticmethod(either(lambda x: np.linalg.slogdet(x)[1], lambda x: o.slogdet(x)[1]))
    diagonal = staticmethod(either(lambda x: np.diagonal(x, 0, -2, -1), lambda x: o.diagonal(x)))
    tril = staticmethod(either(np.tril, _declared("tril")))

    def softplus(self, x: Value) -> Value:
        """log(1 + exp(x)) without a threshold."""
        return self.logaddexp(x, 0.0)

    def __getattr__(self, name: str) -> Callable[..., Value]:
        op = OPS[name]
        if not op.elementwise:
            raise AttributeError(name)

        def function(*values: Value) -> Value:
            if known(*values):
                with np.errstate(all="ignore"):
                    found = op.reference(NO_ATTRIBUTES, *(np.asarray(real(value)) for value in values))
                return number(np.asarray(found))
            return getattr(o, name)(*(value if isinstance(value, Tensor) else real(value) for value in values))

        self.__dict__[name] = function
        return function


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
    if known(value):
        return np.reshape(value, tuple(sizes))
    return value if shape(value) == tuple(sizes) else o.reshape(value, tuple(sizes))


def transpose(value: Value) -> Value:
    """The value with its last two axes exchanged; itself if it has fewer."""
    if ndim(value) < 2:
        return value
    return np.swapaxes(value, -1, -2) if known(value) else o.swapaxes(value, -1, -2)


def moveaxis(value: Value, source: int, place: int) -> Value:
    """The value with one axis moved."""
    return np.moveaxis(value, source, place) if known(value) else o.moveaxis(value, source, place)


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
    if not all(isinstance(each, slice) and each == slice(None) for each in basic):
        value = value[tuple(basic)]
    axis = 0
    for each in index:
        if isinstance(each, np.ndarray):
            value = o.take(value, each, axis=axis)
        axis += not isinstance(each, INTS)
    return value
