"""Complex numbers within a function: pairs of tensors.

The key of a primitive with a complex operand or result is its name after ``complex``. Results of a function are real.
"""

from __future__ import annotations

import copy
import functools
from collections import ChainMap
from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.bridges.arrays import as_tensor, as_tensors, cast
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.jaxpr import control, elementwise, indexing, reductions, views  # noqa: F401  for the table
from staticgrad.bridges.jaxpr.conversion import CONVERTERS, ComplexPair, JaxScope, converts
from staticgrad.bridges.jaxpr.products import contracted
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

# Primitives that treat both parts alike.
BY_PARTS = (
    "add", "add_any", "broadcast_in_dim", "concatenate", "copy", "copy_p", "cumsum", "device_put", "dynamic_slice",
    "dynamic_update_slice", "expand_dims", "gather", "neg", "optimization_barrier", "pad", "reduce_sum", "reshape",
    "rev", "scatter", "scatter-add", "scatter_add", "select_n", "slice", "split", "squeeze", "stack", "stop_gradient",
    "sub", "tile", "transpose",
)  # fmt: skip


def _part(at: JaxScope, part: str) -> JaxScope:
    """The scope in which complex values are one part of theirs."""
    scope = copy.copy(at)
    scope.values, scope._constants, scope.part = ChainMap(*at.values.maps), {}, part
    return scope


def _by_parts(name: str) -> Callable[[JaxScope, Any], list[ComplexPair]]:
    def convert(at: JaxScope, node: Any) -> list[ComplexPair]:
        parts = []
        for part in ("real", "imag"):
            found = CONVERTERS[name](_part(at, part), node)
            parts.append(as_tensors(found if isinstance(found, (list, tuple)) else [found]))
        return [ComplexPair(*pair) for pair in zip(*parts, strict=True)]

    return convert


for _name in BY_PARTS:
    CONVERTERS[f"complex {_name}"] = _by_parts(_name)


def _pair(at: JaxScope, variable: Any) -> ComplexPair:
    value = at.value(variable)
    if isinstance(value, ComplexPair):
        return value
    if isinstance(value, Tensor) or value.dtype.kind != "c":
        x = as_tensor(value)
        return ComplexPair(x, o.zeros_like(x))
    return ComplexPair(as_tensor(value.real), as_tensor(value.imag))


def _of_pairs(function: Callable[..., Any]) -> Callable[[JaxScope, Any], Any]:
    return lambda at, node: function(*(_pair(at, v) for v in node.invars))


def _product(x: ComplexPair, y: ComplexPair) -> ComplexPair:
    return ComplexPair(x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real)


def _quotient(x: ComplexPair, y: ComplexPair) -> ComplexPair:
    """The divisor is scaled by its greater part, so that squares do not overflow; the scale cancels in derivatives."""
    scale = o.stop_gradient(o.maximum(o.abs(y.real), o.abs(y.imag)))
    a, b = y.real / scale, y.imag / scale
    below = a * y.real + b * y.imag
    return ComplexPair((x.real * a + x.imag * b) / below, (x.imag * a - x.real * b) / below)


def _magnitude(x: ComplexPair) -> Tensor:
    """As in JAX, the slope at 0 is 0."""
    is_zero = (x.real == 0) & (x.imag == 0)
    return o.where(is_zero, 0, o.hypot(o.where(is_zero, 1, x.real), x.imag))


def _sign(x: ComplexPair) -> ComplexPair:
    """The number divided by its magnitude; JAX has no slope of it."""
    size = _magnitude(x)
    whole = o.where(size == 0, 1, size)
    return ComplexPair(o.stop_gradient(x.real / whole), o.stop_gradient(x.imag / whole))


def _exp(x: ComplexPair) -> ComplexPair:
    size = o.exp(x.real)
    return ComplexPair(size * o.cos(x.imag), size * o.sin(x.imag))


def _root(x: ComplexPair) -> ComplexPair:
    """The root whose real part is not negative: the greater of its parts is computed by a sum, the other of it."""
    greater = o.sqrt((_magnitude(x) + o.abs(x.real)) / 2)
    lesser = x.imag / o.where(greater == 0, 1, 2 * greater)
    is_right = x.real >= 0
    return ComplexPair(
        o.where(is_right, greater, o.abs(lesser)), o.where(is_right, lesser, o.copysign(greater, x.imag))
    )


def _equal(x: ComplexPair, y: ComplexPair) -> Tensor:
    return (x.real == y.real) & (x.imag == y.imag)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": _magnitude,
    "conj": lambda x: ComplexPair(x.real, -x.imag),
    "cos": lambda x: ComplexPair(o.cos(x.real) * o.cosh(x.imag), -o.sin(x.real) * o.sinh(x.imag)),
    "div": _quotient,
    "eq": _equal,
    "exp": _exp,
    "imag": lambda x: x.imag,
    "log": lambda x: ComplexPair(o.log(_magnitude(x)), o.atan2(x.imag, x.real)),
    "mul": _product,
    "ne": lambda x, y: ~_equal(x, y),
    "real": lambda x: x.real,
    "sign": _sign,
    "sin": lambda x: ComplexPair(o.sin(x.real) * o.cosh(x.imag), o.cos(x.real) * o.sinh(x.imag)),
    "sqrt": _root,
    "square": lambda x: _product(x, x),
}
for _name, _function in FUNCTIONS.items():
    CONVERTERS[f"complex {_name}"] = _of_pairs(_function)


@converts("complex complex")
def complex_(at: JaxScope, node: Any) -> ComplexPair:
    return ComplexPair(*at.tensors(node.invars))


@converts("complex convert_element_type")
def convert_element_type(at: JaxScope, node: Any) -> Any:
    """The dtype of parts is half as wide; to a real dtype only the real part is cast."""
    x, dtype = _pair(at, node.invars[0]), np.dtype(node.params["new_dtype"])
    if dtype.kind != "c":
        return cast(x.real, dtype)
    part = np.empty(0, dtype).real.dtype
    return ComplexPair(cast(x.real, part), cast(x.imag, part))


@converts("complex integer_pow")
def integer_pow(at: JaxScope, node: Any) -> ComplexPair:
    x, y = _pair(at, node.invars[0]), int(node.params["y"])
    result = ComplexPair(o.ones_like(x.real), o.zeros_like(x.imag))
    square = x
    for bit in reversed(bin(abs(y))[2:]):
        result = _product(result, square) if bit == "1" else result
        square = _product(square, square)
    return result if y >= 0 else _quotient(ComplexPair(o.ones_like(x.real), o.zeros_like(x.imag)), result)


@converts("complex reduce_prod")
def reduce_prod(at: JaxScope, node: Any) -> ComplexPair:
    x = _pair(at, node.invars[0])
    for axis in sorted(node.params["axes"], reverse=True):
        rows = [ComplexPair(*parts) for parts in zip(o.unstack(x.real, axis), o.unstack(x.imag, axis))]
        one = o.ones_like(o.sum(x.real, axis))
        x = functools.reduce(_product, rows, ComplexPair(one, o.zeros_like(one)))
    return x


@converts("complex dot_general")
def dot_general(at: JaxScope, node: Any) -> ComplexPair:
    x, y = (_pair(at, v) for v in node.invars)

    def product(a: Tensor, b: Tensor) -> Tensor:
        return contracted(a, b, node.params["dimension_numbers"])

    real = product(x.real, y.real) - product(x.imag, y.imag)
    return ComplexPair(real, product(x.real, y.imag) + product(x.imag, y.real))


@converts("complex fft")
def fft(at: JaxScope, node: Any) -> Any:
    """Along the last axes; the one that is real on one side is the last of all there."""
    kind, sizes = int(node.params["fft_type"]), node.params["fft_lengths"]
    axes = range(-len(sizes), 0)
    if any(not isinstance(n, int) or n == 0 for n in sizes):
        raise RefusedError("a transform of a size that is open, or 0")
    if kind == 2:
        x = ComplexPair(*o.rfft(at.tensor(node.invars[0]), int(sizes[-1])))
    else:
        x = _pair(at, node.invars[0])
    transform = o.fft if kind in (0, 2) else o.ifft
    for axis in axes if kind < 2 else axes[:-1]:
        x = ComplexPair(*transform(x.real, x.imag, axis=axis))
    return o.irfft(x.real, x.imag, int(sizes[-1])) if kind == 3 else x
