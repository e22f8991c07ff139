"""Functions of ``math`` and of ``scipy.special`` that are no ufuncs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from staticgrad.bridges.arrays import cast
from staticgrad.bridges.numpy.array import is_traced
from staticgrad.bridges.numpy.calls import FUNCTIONS, UFUNCS, WRITTEN, Unconverted, call, enter, tensor_of
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


@enter(FUNCTIONS, "math.hypot")
def _hypot(*xs: Any) -> Tensor:
    return o.sqrt(o.sum(o.square(o.stack(_floats(xs)))))


@enter(FUNCTIONS, "math.fsum")
def _fsum(xs: Any) -> Tensor:
    return o.sum(o.stack(_floats(xs)) if isinstance(xs, (list, tuple)) else xs)


@enter(FUNCTIONS, "math.prod")
def _prod(xs: Any, *, start: Any = 1) -> Any:
    return o.prod(o.stack(_floats(xs)) if isinstance(xs, (list, tuple)) else xs) * start


@enter(FUNCTIONS, "math.dist")
def _dist(p: Any, q: Any) -> Tensor:
    return o.sqrt(o.sum(o.square(o.stack(_floats(p)) - o.stack(_floats(q)))))


@enter(FUNCTIONS, "math.isclose")
def _isclose(a: Any, b: Any, *, rel_tol: float = 1e-9, abs_tol: float = 0.0) -> Tensor:
    a, b = _floats([a, b])
    return o.abs(a - b) <= o.maximum(rel_tol * o.maximum(o.abs(a), o.abs(b)), np.float64(abs_tol))


@enter(FUNCTIONS, "numpy.i0")
def _i0(x: Any) -> Tensor:
    return o.i0(cast(tensor_of(x), np.float64))


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
    below = x - call(np.max, (x, axis), {"keepdims": True})
    return below - call(np.log, (call(np.sum, (call(np.exp, (below,), {}), axis), {"keepdims": True}),), {})


@enter(WRITTEN, "scipy.special.factorial")
def _factorial(n: Any, exact: bool = False, **_: Any) -> Any:
    return call(_special("gamma"), (n + 1.0,), {})


@enter(WRITTEN, "scipy.special.comb")
def _comb(n: Any, k: Any, *_: Any, **__: Any) -> Any:
    return call(_special("binom"), (n, k), {})


@enter(WRITTEN, "scipy.special.multigammaln")
def _multigammaln(a: Any, d: int) -> Any:
    parts = [call(_special("gammaln"), (a - i / 2,), {}) for i in range(d)]
    return d * (d - 1) / 4 * math.log(math.pi) + sum(parts[1:], parts[0])


@enter(FUNCTIONS, "scipy.special.polygamma")
def _polygamma(n: Any, x: Any) -> Tensor:
    return o.polygamma(n, cast(tensor_of(x), np.float64))


def _special(name: str) -> Any:
    import scipy.special

    return getattr(scipy.special, name)


def extreme(real: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Python's ``max`` or ``min`` of numbers of which some are traced: the first extreme one, as ``where`` chooses it.

    Gives NotImplemented for what else the two are called with.
    """
    items = list(arguments[0]) if len(arguments) == 1 else list(arguments)
    if named or not any(map(is_traced, items)) or any(np.ndim(getattr(x, "value", x)) for x in items):
        return NotImplemented
    best = items[0]
    for item in items[1:]:
        best = call(np.where, (item > best if real is max else item < best, item, best), {})[()]
    return best
