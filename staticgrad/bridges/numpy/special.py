"""NumPy's ufuncs with those of ``scipy.special``, and functions of numbers of ``math`` and ``scipy.special``.

Ufuncs are functions of tensors in the dtypes of the loop that NumPy chooses. Formulas: Abramowitz and Stegun, Handbook
of Mathematical Functions, chapters 6 and 26.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.bridges.arrays import cast
from staticgrad.bridges.forms import truncated_remainder
from staticgrad.bridges.numpy.namespace import n
from staticgrad.bridges.numpy.tables import FUNCTIONS, UFUNCS, WRITTEN, enter, entry_of, same, tensor_of
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

same(UFUNCS, "", """
    add subtract multiply divide floor_divide remainder negative positive sign exp exp2 expm1 log log2 log10 log1p sqrt
    square reciprocal cbrt sin cos tan sinh cosh tanh hypot logaddexp maximum minimum floor ceil trunc isnan isinf
    isfinite equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor logical_not
    bitwise_and bitwise_or bitwise_xor copysign signbit nextafter clip matmul vecdot
    power=pow float_power=pow absolute=abs fabs=abs arcsin=asin arccos=acos arctan=atan arcsinh=asinh arccosh=acosh
    arctanh=atanh arctan2=atan2 rint=round invert=bitwise_invert left_shift=bitwise_left_shift
    right_shift=bitwise_right_shift conjugate=identity
    erf erfc erfinv erfcinv erfcx polygamma zeta betainc betaln gammainc gammaincc ndtr ndtri log_ndtr xlogy xlog1py i0
    i0e i1 i1e iv ive gammaln=lgamma loggamma=lgamma psi=digamma digamma expit=sigmoid
""")  # fmt: skip


def _without_nan(choose: str) -> Callable[..., Tensor]:
    return lambda x, y: o.where(o.isnan(x), y, o.where(o.isnan(y), x, getattr(o, choose)(x, y)))


def _gamma(x: Tensor) -> Tensor:
    odd = o.not_equal(o.remainder(o.floor(x), 2), 0)
    sign = o.where(o.logical_and(x < 0, odd), -o.ones_like(x), o.ones_like(x))
    return o.where(o.logical_and(x < 0, o.equal(x, o.floor(x))), o.full_like(x, math.nan), sign * o.exp(o.lgamma(x)))


def _modf(x: Tensor) -> tuple[Tensor, Tensor]:
    whole = o.trunc(x)
    return o.where(o.isinf(x), o.copysign(o.zeros_like(x), x), o.copysign(x - whole, x)), whole


def _exprel(x: Tensor) -> Tensor:
    small = o.abs(x) < 1e-8
    safe = _ones_where(small, x)
    return o.where(small, 1 + x / 2, o.expm1(safe) / safe)


def _rel_entr(x: Tensor, y: Tensor) -> Tensor:
    outside = o.logical_or(x <= 0, y <= 0)
    safe, other = _ones_where(outside, x), _ones_where(outside, y)
    is_zero = o.logical_and(o.equal(x, 0), y >= 0)
    return o.where(is_zero, o.zeros_like(x), o.where(outside, o.full_like(x, math.inf), safe * o.log(safe / other)))


def _boxcox(x: Tensor, power: Tensor) -> Tensor:
    zero = o.equal(power, 0)
    safe = _ones_where(zero, power)
    return o.where(zero, o.log(x), o.expm1(safe * o.log(x)) / safe)


def _stdtr(df: Tensor, t: Tensor) -> Tensor:
    tail = o.betainc(df / 2, o.full_like(df, 0.5), df / (df + o.square(t))) / 2
    return o.where(t < 0, tail, 1 - tail)


def _ones_where(mask: Tensor, x: Tensor) -> Tensor:
    """An operand without the elements for which a formula, or its derivative, is not finite."""
    return o.where(mask, o.ones_like(x), x)


UFUNCS |= {
    "fmax": _without_nan("maximum"),
    "fmin": _without_nan("minimum"),
    "fmod": truncated_remainder,
    "modf": _modf,
    "heaviside": lambda x, h: o.where(o.isnan(x), x, o.where(o.equal(x, 0), h, cast(x > 0, x.dtype))),
    "logaddexp2": lambda x, y: o.logaddexp(x * math.log(2), y * math.log(2)) / math.log(2),
    "divmod": lambda x, y: (o.floor_divide(x, y), o.remainder(x, y)),
    "ldexp": lambda x, k: x * o.exp2(cast(k, x.dtype)),
    **dict.fromkeys(("deg2rad", "radians"), lambda x: x * (math.pi / 180)),
    **dict.fromkeys(("rad2deg", "degrees"), lambda x: x * (180 / math.pi)),
    # scipy.special
    "log_expit": lambda x: -o.softplus(-x),
    "logit": lambda x: o.log(x) - o.log1p(-x),
    "gamma": _gamma,
    "rgamma": lambda x: 1 / _gamma(x),
    "gammasgn": lambda x: o.sign(_gamma(o.stop_gradient(x))),
    "beta": lambda a, b: o.exp(o.betaln(a, b)),
    "binom": lambda m, k: o.exp(o.lgamma(m + 1) - o.lgamma(k + 1) - o.lgamma(m - k + 1)),
    "poch": lambda x, m: o.exp(o.lgamma(x + m) - o.lgamma(x)),
    "exp10": lambda x: o.exp(x * math.log(10)),
    "exprel": _exprel,
    "cosm1": lambda x: -2 * o.square(o.sin(x / 2)),
    "entr": lambda x: o.where(x < 0, o.full_like(x, -math.inf), -o.xlogy(x, x)),
    "rel_entr": _rel_entr,
    "kl_div": lambda x, y: _rel_entr(x, y) - x + y,
    "boxcox": _boxcox,
    "huber": lambda delta, r: o.where(o.abs(r) <= delta, o.square(r) / 2, delta * (o.abs(r) - delta / 2)),
    "pseudo_huber": lambda delta, r: o.square(delta) * (o.sqrt(1 + o.square(r / delta)) - 1),
    "stdtr": _stdtr,
    "chdtr": lambda df, x: o.gammainc(df / 2, x / 2),
    "chdtrc": lambda df, x: o.gammaincc(df / 2, x / 2),
    "pdtr": lambda k, mean: o.gammaincc(o.floor(k) + 1, mean),
}


# -- functions of numbers ----------------------------------------------------------------------------------------------


def _of_floats(ufunc: str) -> Callable[..., Tensor]:
    return lambda *xs: entry_of(UFUNCS, ufunc)(*map(_double, xs))


def _double(x: Any) -> Tensor:
    return cast(tensor_of(x), np.float64)


_MATH = """
    exp exp2 expm1 log2 log10 log1p sqrt cbrt sin cos tan sinh cosh tanh floor ceil trunc erf erfc gamma degrees radians
    fmod copysign isnan isinf isfinite asin=arcsin acos=arccos atan=arctan asinh=arcsinh acosh=arccosh atanh=arctanh
    atan2=arctan2 pow=power fabs=absolute lgamma=gammaln
"""
for _name in _MATH.split():
    _theirs, _, _ufunc = _name.partition("=")
    FUNCTIONS[f"math.{_theirs}"] = _of_floats(_ufunc or _theirs)
FUNCTIONS |= {
    "math.log": lambda x, *base: o.log(_double(x)) / (o.log(_double(base[0])) if base else 1),
    "math.hypot": lambda *coordinates: o.vector_norm(_double(coordinates)),
    "math.dist": lambda p, q: o.vector_norm(_double(p) - _double(q)),
    "math.fsum": lambda seq: o.sum(_double(seq)),
    "math.prod": lambda iterable, start=1: o.prod(_double(iterable)) * start,
}
same(FUNCTIONS, "scipy.special.", "polygamma")


@enter(FUNCTIONS, "math.isclose")
def _isclose(a: Any, b: Any, rel_tol: float = 1e-9, abs_tol: float = 0.0) -> Tensor:
    x, y = _double(a), _double(b)
    return o.abs(x - y) <= o.maximum(rel_tol * o.maximum(o.abs(x), o.abs(y)), np.float64(abs_tol))


@enter(FUNCTIONS, "scipy.special.logsumexp")
def _logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False) -> Any:
    x = tensor_of(a)
    if b is None:
        return o.logsumexp(x, axis, keepdims=keepdims)
    top = o.stop_gradient(o.max(x, axis, keepdims=True))
    total = o.log(o.sum(tensor_of(b) * o.exp(x - top), axis, keepdims=True)) + top
    return total if keepdims else o.sum(total, axis)


@enter(FUNCTIONS, "scipy.special.log_softmax")
def _log_softmax(x: Any, axis: Any = None) -> Tensor:
    return tensor_of(x) - o.logsumexp(tensor_of(x), axis, keepdims=True)


WRITTEN |= {
    "scipy.special.factorial": lambda k: n.gamma(k + 1.0),
    "scipy.special.comb": lambda m, k: n.binom(m, k),
    "scipy.special.multigammaln": lambda a, d: (
        d * (d - 1) / 4 * math.log(math.pi) + sum(n.gammaln(a - i / 2) for i in range(d))
    ),
}
