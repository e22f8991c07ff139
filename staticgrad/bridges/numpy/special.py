"""Functions of ``math`` and of ``scipy.special`` that are no ufuncs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from staticgrad.bridges.arrays import cast
from staticgrad.bridges.numpy.array import is_traced
from staticgrad.bridges.numpy.namespace import n
from staticgrad.bridges.numpy.tables import FUNCTIONS, UFUNCS, WRITTEN, Unconverted, enter, tensor_of
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

# Of one or two numbers, each under the name of the ufunc that has its meaning.
_MATH = {
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log2": "log2", "log10": "log10", "log1p": "log1p", "sqrt": "sqrt",
    "cbrt": "cbrt", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "arcsin", "acos": "arccos", "atan": "arctan",
    "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
    "atan2": "arctan2", "pow": "power", "fabs": "absolute", "floor": "floor", "ceil": "ceil", "trunc": "trunc",
    "erf": "erf", "erfc": "erfc", "gamma": "gamma", "lgamma": "gammaln", "degrees": "degrees", "radians": "radians",
    "fmod": "fmod", "copysign": "copysign", "isnan": "isnan", "isinf": "isinf", "isfinite": "isfinite",
}  # fmt: skip


def _floats(xs: Any) -> list[Tensor]:
    return [cast(tensor_of(x), np.float64) for x in xs]


for _name, _ufunc in _MATH.items():
    FUNCTIONS[f"math.{_name}"] = lambda *xs, name=_ufunc: UFUNCS[name](*_floats(xs))


@enter(FUNCTIONS, "math.log")
def _log(x: Any, base: Any = None) -> Tensor:
    logs = [o.log(t) for t in _floats([x] if base is None else [x, base])]
    return logs[0] if base is None else logs[0] / logs[1]


FUNCTIONS |= {
    "math.hypot": lambda *xs: o.sqrt(o.sum(o.square(_stacked(xs)))),
    "math.fsum": lambda xs: o.sum(_stacked(xs)),
    "math.prod": lambda xs, start=1: o.prod(_stacked(xs)) * start,
    "math.dist": lambda p, q: o.sqrt(o.sum(o.square(_stacked(p) - _stacked(q)))),
    "numpy.i0": lambda x: o.i0(cast(tensor_of(x), np.float64)),
    "scipy.special.polygamma": lambda k, x: o.polygamma(k, cast(tensor_of(x), np.float64)),
}


def _stacked(xs: Any) -> Tensor:
    return o.stack(_floats(xs)) if isinstance(xs, (list, tuple)) else tensor_of(xs)


@enter(FUNCTIONS, "math.isclose")
def _isclose(a: Any, b: Any, *, rel_tol: float = 1e-9, abs_tol: float = 0.0) -> Tensor:
    a, b = _floats([a, b])
    return o.abs(a - b) <= o.maximum(rel_tol * o.maximum(o.abs(a), o.abs(b)), np.float64(abs_tol))


@enter(FUNCTIONS, "scipy.special.logsumexp")
def _logsumexp(x: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False) -> Any:
    if return_sign:
        raise Unconverted("return_sign=True is not converted")
    if b is not None:
        top = o.stop_gradient(o.max(tensor_of(x), axis, keepdims=True))
        total = o.log(o.sum(tensor_of(b) * o.exp(tensor_of(x) - top), axis, keepdims=True)) + top
        return total if keepdims else o.sum(total, axis)
    return o.logsumexp(tensor_of(x), axis, keepdims=keepdims)


@enter(WRITTEN, "scipy.special.log_softmax")
def _log_softmax(x: Any, axis: Any = None) -> Any:
    below = x - n.max(x, axis, keepdims=True)
    return below - n.log(n.sum(n.exp(below), axis, keepdims=True))


WRITTEN |= {
    "scipy.special.factorial": lambda k, exact=False, **_: n.gamma(k + 1.0),
    "scipy.special.comb": lambda m, k, *_, **__: n.binom(m, k),
    "scipy.special.multigammaln": lambda a, d: (
        d * (d - 1) / 4 * math.log(math.pi) + sum(n.gammaln(a - i / 2) for i in range(d))
    ),
}


def extreme(real: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Python's ``max`` or ``min`` of numbers of which some are traced: the first extreme one, as ``where`` chooses it.

    Gives NotImplemented for what else the two are called with.
    """
    items = list(arguments[0]) if len(arguments) == 1 else list(arguments)
    if named or not any(map(is_traced, items)) or any(np.ndim(getattr(x, "value", x)) for x in items):
        return NotImplemented
    best = items[0]
    for item in items[1:]:
        best = n.where(item > best if real is max else item < best, item, best)[()]
    return best
