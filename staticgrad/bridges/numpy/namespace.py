"""NumPy's functions of traced arrays: as operators, as methods, and by name in a namespace: ``n.where(x > 0, x, 0)``.

Functions that are written in NumPy's own terms use the namespaces; they are traced like the user's.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.bridges.numpy.array import TracedArray, call, call_ufunc


def _operator(ufunc: np.ufunc, apply: Callable[..., Any]) -> Callable[..., Any]:
    """A method that is an operator; ``apply`` computes its value."""
    return lambda *operands: call_ufunc(ufunc, "__call__", operands, {}, apply)


def _swapped(ufunc: np.ufunc, apply: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: call_ufunc(ufunc, "__call__", (other, self), {}, apply)


def _in_place(ufunc: np.ufunc, apply: Callable[..., Any]) -> Callable[..., Any]:
    """A method that writes into the array; of a number, which is no memory, the operator."""

    def method(self: TracedArray, other: Any) -> Any:
        is_memory = isinstance(self.value, np.ndarray)
        options, compute = ({"out": (self,)}, None) if is_memory else ({}, apply)
        return call_ufunc(ufunc, "__call__", (self, other), options, compute)

    return method


def _function(function: Any) -> Callable[..., Any]:
    """A method that is the function of NumPy, of the array and further arguments."""
    return lambda *arguments, **named: call(function, *arguments, **named)


_BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide, "floordiv": np.floor_divide,
    "mod": np.remainder, "pow": np.power, "matmul": np.matmul, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "lshift": np.left_shift, "rshift": np.right_shift, "divmod": np.divmod,
}  # fmt: skip
_OTHERS = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert, "floor": np.floor, "ceil": np.ceil,
    "trunc": np.trunc,
}  # fmt: skip
for _name, _ufunc in (_BINARY | _OTHERS).items():
    _apply = divmod if _name == "divmod" else getattr(operator, f"__{_name}__", None) or getattr(math, _name)
    setattr(TracedArray, f"__{_name}__", _operator(_ufunc, _apply))
    if _name in _BINARY:
        setattr(TracedArray, f"__r{_name}__", _swapped(_ufunc, _apply))
        setattr(TracedArray, f"__i{_name}__", _in_place(_ufunc, _apply))
_METHODS = """
    sum prod mean std var any all min max argmin argmax ptp cumsum cumprod round ravel swapaxes squeeze repeat take
    diagonal trace dot argsort searchsorted nonzero compress choose conj conjugate
"""
for _name in _METHODS.split():
    setattr(TracedArray, _name, _function(getattr(np, _name)))
_IN_PLACE: dict[str, Callable[..., Any]] = {  # sorted elements are a partition too
    "fill": lambda x, number: x.__setitem__(..., number),
    "sort": lambda x, axis=-1, **_: x.__setitem__(..., call(np.sort, x, axis)),
    "partition": lambda x, kth, axis=-1, **_: x.sort(axis),
    "argpartition": lambda x, kth, axis=-1, **_: x.argsort(axis),
}
for _name, _method in _IN_PLACE.items():
    setattr(TracedArray, _name, _method)


class NumpyNamespace:
    """Functions by their names in a module of NumPy, or else in ``scipy.special``."""

    def __init__(self, home: Any) -> None:
        self._home = home

    def __getattr__(self, name: str) -> Callable[..., Any]:
        real = getattr(self._home, name, None)
        if real is None:
            import scipy.special

            real = getattr(scipy.special, name)
        return lambda *arguments, **named: call(real, *arguments, **named)


n = NumpyNamespace(np)
linalg = NumpyNamespace(np.linalg)
