"""Primitives on elements: arithmetic, functions, comparisons, choices, casts, bits.

Where JAX's derivative at a kink is another than ours, the function is composed of others that have it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.base.types import dtype_of
from staticgrad.bridges.arrays import cast, functions
from staticgrad.bridges.forms import truncated_quotient, truncated_remainder
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.jaxpr.conversion import CONVERTERS, JaxScope, converts
from staticgrad.bridges.jaxpr.rules import ruled_tensor
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

Function = Callable[..., Tensor]

# Primitives that are functions of ours, of all operands.
NAMES: dict[str, str] = {
    "acos": "acos", "acosh": "acosh", "add": "add", "add_any": "add", "and": "bitwise_and", "asin": "asin",
    "asinh": "asinh", "atan": "atan", "atan2": "atan2", "atanh": "atanh", "bessel_i0e": "i0e", "bessel_i1e": "i1e",
    "cbrt": "cbrt", "ceil": "ceil", "clz": "clz", "cos": "cos", "cosh": "cosh", "digamma": "digamma", "eq": "equal",
    "erf": "erf", "erf_inv": "erfinv", "erfc": "erfc", "exp": "exp", "exp2": "exp2", "expm1": "expm1",
    "floor": "floor", "ge": "greater_equal", "gt": "greater", "igamma": "gammainc", "igamma_grad_a": "gammainc_by_a",
    "igammac": "gammaincc", "is_finite": "isfinite", "le": "less_equal", "lgamma": "lgamma", "log": "log",
    "log1p": "log1p", "logistic": "sigmoid", "lt": "less", "mul": "multiply", "ne": "not_equal", "neg": "negative",
    "nextafter": "nextafter", "not": "bitwise_invert", "or": "bitwise_or", "population_count": "popcount",
    "reciprocal": "reciprocal", "regularized_incomplete_beta": "betainc", "rsqrt": "rsqrt",
    "shift_left": "bitwise_left_shift", "sign": "sign", "sin": "sin", "sinh": "sinh", "sqrt": "sqrt",
    "square": "square", "stop_gradient": "stop_gradient", "sub": "subtract", "tan": "tan", "tanh": "tanh",
    "xor": "bitwise_xor", "zeta": "zeta",
}  # fmt: skip


def _same(x: Tensor) -> Tensor:
    return x


def _abs(x: Tensor) -> Tensor:
    """JAX's slope at 0 is 1."""
    return o.where(x < 0, -x, x + 0) if x.dtype.kind != "u" else x


def _div(x: Tensor, y: Tensor) -> Tensor:
    """Integers are truncated; of a division by 0 all bits are set."""
    if x.dtype.kind not in "iu":
        return o.divide(x, y)
    return o.where(y == 0, ~o.zeros_like(y), truncated_quotient(x, y))


def _rem(x: Tensor, y: Tensor) -> Tensor:
    """The remainder of a truncated division, which has the sign of x; of a division by 0 it is x, NaN for floats."""
    rest = truncated_remainder(x, y)
    return o.where(y == 0, x, rest) if x.dtype.kind in "iu" else rest


def _on_bools(function: str, of_bools: str) -> Function:
    return lambda x, y: getattr(o, of_bools if x.dtype == bool else function)(x, y)


def _clamp(low: Tensor, x: Tensor, high: Tensor) -> Tensor:
    """Elements at a bound have no slope."""
    inside = (x > low) & (x < high)
    held = o.where(inside, x, o.stop_gradient(x))
    return o.where(o.maximum(x, low) > high, high, o.where(x < low, low, held))


def _shifted_right(kind: str) -> Function:
    """Shifts that fill with 0 or with the sign, which unsigned integers have as well."""

    def shift(x: Tensor, count: Tensor) -> Tensor:
        dtype = dtype_of(f"{kind}{8 * x.dtype.itemsize}")
        return cast(o.bitwise_right_shift(cast(x, dtype), cast(count, dtype)), x.dtype)

    return shift


def _mulhi(x: Tensor, y: Tensor) -> Tensor:
    """The upper half of a product."""
    bits = 8 * x.dtype.itemsize
    if bits == 64:
        raise RefusedError("the upper half of a product of 128 bits")
    wide = dtype_of(f"{'int' if x.dtype.kind == 'i' else 'uint'}64")
    return cast(o.bitwise_right_shift(cast(x, wide) * cast(y, wide), bits), x.dtype)


COMPOSED: dict[str, Function] = {
    "abs": _abs,
    "clamp": _clamp,
    "copy": _same,
    "copy_p": _same,
    "div": _div,
    "eq_to": lambda x, y: _total(x) == _total(y),
    "le_to": lambda x, y: _total(x) <= _total(y),
    "lt_to": lambda x, y: _total(x) < _total(y),
    "max": _on_bools("maximum", "logical_or"),
    "min": _on_bools("minimum", "logical_and"),
    "mulhi": _mulhi,
    "real": _same,
    "conj": _same,
    "rem": _rem,
    "shift_right_arithmetic": _shifted_right("int"),
    "shift_right_logical": _shifted_right("uint"),
    "zeros_like": lambda x: o.zeros_like(x),
}


def _total(x: Tensor) -> Tensor:
    """Floats as integers that are in the order of IEEE 754's totalOrder."""
    if x.dtype.kind != "f":
        return x
    bits = o.bitcast(x, dtype_of(f"int{8 * x.dtype.itemsize}"))
    return o.where(bits < 0, bits ^ int(np.iinfo(bits.dtype).max), bits)


def _function(function: Function) -> Callable[[JaxScope, Any], Tensor]:
    return lambda at, node: function(*at.tensors(node.invars))


for _name, _ours in functions(**NAMES).items():
    CONVERTERS[_name] = _function(_ours)
for _name, _made in COMPOSED.items():
    CONVERTERS[_name] = _function(_made)


@converts("integer_pow")
def integer_pow(at: JaxScope, node: Any) -> Tensor:
    x, y = at.tensor(node.invars[0]), int(node.params["y"])
    if y in (0, 1, 2) or x.dtype.kind in "iu":
        return o.ones_like(x) if y == 0 else x if y == 1 else o.square(x) if y == 2 else o.pow(x, y)
    return o.pow(x, float(y))


@converts("pow")
def pow_(at: JaxScope, node: Any) -> Tensor:
    """JAX's slopes at 0 differ from ours where the exponent may be 0."""
    x, y = at.tensor(node.invars[0]), cast(at.tensor(node.invars[1]), node.invars[0].aval.dtype)
    if at.is_known(node.invars[1]) and np.all(at.value(node.invars[1]) != 0):
        return o.pow(x, y)
    return ruled_tensor(at, node, lambda: o.pow(x, y))


@converts("round")
def round_(at: JaxScope, node: Any) -> Tensor:
    """Halves go away from zero, or to even numbers."""
    x = at.tensor(node.invars[0])
    if int(node.params["rounding_method"]):
        return o.round(x)
    whole = o.trunc(x)
    return o.where(o.abs(x - whole) >= 0.5, whole + o.sign(x), whole)


@converts("select_n")
def select_n(at: JaxScope, node: Any) -> Tensor:
    which, *cases = at.tensors(node.invars)
    result = cases[0]
    for number, case in enumerate(cases[1:], 1):
        result = o.where(which if which.dtype == bool else which == number, case, result)
    return result


@converts("polygamma")
def polygamma(at: JaxScope, node: Any) -> Tensor:
    order = np.unique(at.known(node.invars[0], "the order of a polygamma"))
    if order.size != 1 or order[0] % 1:
        raise RefusedError("polygamma is converted for one order, an integer")
    return o.polygamma(int(order[0]), at.tensor(node.invars[1]))


# -- dtypes and bits ---------------------------------------------------------------------------------------------------


@converts("convert_element_type")
def convert_element_type(at: JaxScope, node: Any) -> Tensor:
    """Floats become the nearest integer that the dtype has, and NaN 0; integers keep their lowest bits."""
    x, dtype = at.tensor(node.invars[0]), dtype_of(node.params["new_dtype"])
    floats = x.dtype.kind not in "biu"
    return o.astype(x, dtype, saturating=True) if floats and dtype.kind in "iu" else cast(x, dtype)


@converts("reduce_precision")
def reduce_precision(at: JaxScope, node: Any) -> Tensor:
    x, bits = at.tensor(node.invars[0]), (node.params["exponent_bits"], node.params["mantissa_bits"])
    names = {(5, 10): "float16", (8, 7): "bfloat16", (8, 23): "float32", (11, 52): "float64"}
    if bits not in names:
        raise RefusedError(f"no dtype has {bits[0]} bits of exponent and {bits[1]} of mantissa")
    narrow = dtype_of(names[bits])
    return cast(cast(x, narrow), x.dtype) if narrow.itemsize < x.dtype.itemsize else x


@converts("bitcast_convert_type")
def bitcast_convert_type(at: JaxScope, node: Any) -> Tensor:
    return o.bitcast(at.tensor(node.invars[0]), dtype_of(node.params["new_dtype"]))
