"""NumPy's ufuncs, and SciPy's special functions, by name: functions of tensors in the dtypes of NumPy's loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from staticgrad.bridges.arrays import cast
from staticgrad.bridges.numpy.calls import UFUNCS, enter
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

F = TypeVar("F", bound=Callable[..., Any])


def _same(*names: str, **renamed: str) -> None:
    """Enter functions that have the same meaning here, under their own name or another one."""
    for name, ours in {**{name: name for name in names}, **renamed}.items():
        UFUNCS[name] = lambda *xs, ours=ours: getattr(o, ours)(*xs)


_same(
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "negative", "positive", "sign", "exp",
    "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "square", "reciprocal", "sin", "cos", "tan", "sinh",
    "cosh", "tanh", "hypot", "logaddexp", "maximum", "minimum", "floor", "ceil", "trunc", "isnan", "isinf", "isfinite",
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_xor",
    "logical_not", "bitwise_and", "bitwise_or", "bitwise_xor", "copysign", "signbit", "matmul",
    power="pow", float_power="pow", absolute="abs", fabs="abs", arcsin="asin", arccos="acos", arctan="atan",
    arcsinh="asinh", arccosh="acosh", arctanh="atanh", arctan2="atan2", rint="round", invert="bitwise_invert",
    left_shift="bitwise_left_shift", right_shift="bitwise_right_shift", conjugate="identity", vecdot="vecdot",
)  # fmt: skip
_same(  # scipy.special
    "erf", "erfc", "erfinv", "erfcinv", "erfcx", "polygamma", "betainc", "betaln", "gammainc", "gammaincc", "ndtr",
    "ndtri", "log_ndtr", "xlogy", "xlog1py", "i0", "i0e", "i1", "i1e", "iv", "ive",
    gammaln="lgamma", loggamma="lgamma", psi="digamma", digamma="digamma",
)  # fmt: skip
UFUNCS["expit"] = lambda x: o.sigmoid(x)


def _ufunc(*names: str) -> Callable[[F], F]:
    return enter(UFUNCS, *names)


@_ufunc("clip")
def _clip(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return o.clip(x, low, high)


@_ufunc("cbrt")
def _cbrt(x: Tensor) -> Tensor:
    return o.copysign(o.pow(o.abs(x), np.asarray(1 / 3, x.dtype)), x)


@_ufunc("logaddexp2")
def _logaddexp2(x: Tensor, y: Tensor) -> Tensor:
    return o.logaddexp(x * math.log(2), y * math.log(2)) / math.log(2)


@_ufunc("deg2rad", "radians")
def _radians(x: Tensor) -> Tensor:
    return x * (math.pi / 180)


@_ufunc("rad2deg", "degrees")
def _degrees(x: Tensor) -> Tensor:
    return x * (180 / math.pi)


@_ufunc("heaviside")
def _heaviside(x: Tensor, at_zero: Tensor) -> Tensor:
    step = o.where(x > 0, o.ones_like(x), o.zeros_like(x))
    return o.where(o.isnan(x), x, o.where(o.equal(x, 0), at_zero, step))


@_ufunc("fmax")
def _fmax(x: Tensor, y: Tensor) -> Tensor:
    return o.where(o.isnan(x), y, o.where(o.isnan(y), x, o.maximum(x, y))) if x.dtype.kind == "f" else o.maximum(x, y)


@_ufunc("fmin")
def _fmin(x: Tensor, y: Tensor) -> Tensor:
    return o.where(o.isnan(x), y, o.where(o.isnan(y), x, o.minimum(x, y))) if x.dtype.kind == "f" else o.minimum(x, y)


@_ufunc("fmod")
def _fmod(x: Tensor, y: Tensor) -> Tensor:
    rest = o.remainder(o.abs(x), o.abs(y))
    return o.copysign(rest, x) if x.dtype.kind == "f" else o.where(x < 0, -rest, rest)


@_ufunc("divmod")
def _divmod(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return o.floor_divide(x, y), o.remainder(x, y)


@_ufunc("modf")
def _modf(x: Tensor) -> tuple[Tensor, Tensor]:
    whole = o.trunc(x)
    return o.where(o.isinf(x), o.copysign(o.zeros_like(x), x), o.copysign(x - whole, x)), whole


@_ufunc("ldexp")
def _ldexp(x: Tensor, n: Tensor) -> Tensor:
    return x * o.exp2(cast(n, x.dtype))


# -- scipy.special ----------------------------------------------------------------------------------------------------


@_ufunc("gamma")
def _gamma(x: Tensor) -> Tensor:
    odd = o.not_equal(o.remainder(o.floor(x), 2), 0)
    sign = o.where(o.logical_and(x < 0, odd), -o.ones_like(x), o.ones_like(x))
    return o.where(o.logical_and(x < 0, o.equal(x, o.floor(x))), o.full_like(x, math.nan), sign * o.exp(o.lgamma(x)))


@_ufunc("rgamma")
def _rgamma(x: Tensor) -> Tensor:
    return 1 / _gamma(x)


@_ufunc("gammasgn")
def _gammasgn(x: Tensor) -> Tensor:
    return o.sign(_gamma(o.stop_gradient(x)))


@_ufunc("beta")
def _beta(a: Tensor, b: Tensor) -> Tensor:
    return o.exp(o.betaln(a, b))


@_ufunc("binom")
def _binom(n: Tensor, k: Tensor) -> Tensor:
    return o.exp(o.lgamma(n + 1) - o.lgamma(k + 1) - o.lgamma(n - k + 1))


@_ufunc("poch")
def _poch(x: Tensor, m: Tensor) -> Tensor:
    return o.exp(o.lgamma(x + m) - o.lgamma(x))


@_ufunc("logit")
def _logit(x: Tensor) -> Tensor:
    return o.log(x) - o.log1p(-x)


@_ufunc("log_expit")
def _log_expit(x: Tensor) -> Tensor:
    return -o.softplus(-x)


@_ufunc("exp10")
def _exp10(x: Tensor) -> Tensor:
    return o.exp(x * math.log(10))


@_ufunc("exprel")
def _exprel(x: Tensor) -> Tensor:
    small = o.abs(x) < 1e-8
    safe = o.where(small, o.ones_like(x), x)
    return o.where(small, 1 + x / 2, o.expm1(safe) / safe)


@_ufunc("cosm1")
def _cosm1(x: Tensor) -> Tensor:
    return -2 * o.square(o.sin(x / 2))


@_ufunc("entr")
def _entr(x: Tensor) -> Tensor:
    return o.where(x < 0, o.full_like(x, -math.inf), -o.xlogy(x, x))


@_ufunc("rel_entr")
def _rel_entr(x: Tensor, y: Tensor) -> Tensor:
    known_good = o.logical_and(x > 0, y > 0)
    safe = o.where(known_good, x, o.ones_like(x)), o.where(known_good, y, o.ones_like(y))
    zero = o.logical_and(o.equal(x, 0), y >= 0)
    rest = o.where(zero, o.zeros_like(x), o.full_like(x, math.inf))
    return o.where(known_good, safe[0] * o.log(safe[0] / safe[1]), rest)


@_ufunc("kl_div")
def _kl_div(x: Tensor, y: Tensor) -> Tensor:
    return _rel_entr(x, y) - x + y


@_ufunc("huber")
def _huber(delta: Tensor, r: Tensor) -> Tensor:
    size = o.abs(r)
    return o.where(size <= delta, o.square(r) / 2, delta * (size - delta / 2))


@_ufunc("pseudo_huber")
def _pseudo_huber(delta: Tensor, r: Tensor) -> Tensor:
    return o.square(delta) * (o.sqrt(1 + o.square(r / delta)) - 1)


@_ufunc("boxcox")
def _boxcox(x: Tensor, power: Tensor) -> Tensor:
    zero = o.equal(power, 0)
    safe = o.where(zero, o.ones_like(power), power)
    return o.where(zero, o.log(x), o.expm1(safe * o.log(x)) / safe)


@_ufunc("stdtr")
def _stdtr(df: Tensor, t: Tensor) -> Tensor:
    tail = o.betainc(df / 2, o.full_like(df, 0.5), df / (df + o.square(t))) / 2
    return o.where(t < 0, tail, 1 - tail)


@_ufunc("chdtr")
def _chdtr(df: Tensor, x: Tensor) -> Tensor:
    return o.gammainc(df / 2, x / 2)


@_ufunc("chdtrc")
def _chdtrc(df: Tensor, x: Tensor) -> Tensor:
    return o.gammaincc(df / 2, x / 2)


@_ufunc("pdtr")
def _pdtr(k: Tensor, mean: Tensor) -> Tensor:
    return o.gammaincc(o.floor(k) + 1, mean)
