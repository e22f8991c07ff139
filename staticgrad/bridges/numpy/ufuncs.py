"""NumPy's ufuncs, and SciPy's special functions, by name: functions of tensors in the dtypes of NumPy's loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from staticgrad.bridges.arrays import cast
from staticgrad.bridges.forms import truncated_remainder
from staticgrad.bridges.numpy.tables import UFUNCS, enter
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


def _ufunc(*names: str) -> Callable[[F], F]:
    return enter(UFUNCS, *names)


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


_ufunc("fmod")(truncated_remainder)


@_ufunc("modf")
def _modf(x: Tensor) -> tuple[Tensor, Tensor]:
    whole = o.trunc(x)
    return o.where(o.isinf(x), o.copysign(o.zeros_like(x), x), o.copysign(x - whole, x)), whole


# -- scipy.special ----------------------------------------------------------------------------------------------------


@_ufunc("gamma")
def _gamma(x: Tensor) -> Tensor:
    odd = o.not_equal(o.remainder(o.floor(x), 2), 0)
    sign = o.where(o.logical_and(x < 0, odd), -o.ones_like(x), o.ones_like(x))
    return o.where(o.logical_and(x < 0, o.equal(x, o.floor(x))), o.full_like(x, math.nan), sign * o.exp(o.lgamma(x)))


@_ufunc("exprel")
def _exprel(x: Tensor) -> Tensor:
    small = o.abs(x) < 1e-8
    safe = o.where(small, o.ones_like(x), x)
    return o.where(small, 1 + x / 2, o.expm1(safe) / safe)


@_ufunc("rel_entr")
def _rel_entr(x: Tensor, y: Tensor) -> Tensor:
    known_good = o.logical_and(x > 0, y > 0)
    safe = o.where(known_good, x, o.ones_like(x)), o.where(known_good, y, o.ones_like(y))
    zero = o.logical_and(o.equal(x, 0), y >= 0)
    rest = o.where(zero, o.zeros_like(x), o.full_like(x, math.inf))
    return o.where(known_good, safe[0] * o.log(safe[0] / safe[1]), rest)


@_ufunc("boxcox")
def _boxcox(x: Tensor, power: Tensor) -> Tensor:
    zero = o.equal(power, 0)
    safe = o.where(zero, o.ones_like(power), power)
    return o.where(zero, o.log(x), o.expm1(safe * o.log(x)) / safe)


@_ufunc("stdtr")
def _stdtr(df: Tensor, t: Tensor) -> Tensor:
    tail = o.betainc(df / 2, o.full_like(df, 0.5), df / (df + o.square(t))) / 2
    return o.where(t < 0, tail, 1 - tail)


UFUNCS |= {
    "clip": lambda x, low, high: o.clip(x, low, high),
    "cbrt": lambda x: o.cbrt(x),
    "nextafter": lambda x, y: o.nextafter(x, y),
    "zeta": lambda x, q: o.zeta(x, q),
    "logaddexp2": lambda x, y: o.logaddexp(x * math.log(2), y * math.log(2)) / math.log(2),
    "divmod": lambda x, y: (o.floor_divide(x, y), o.remainder(x, y)),
    "ldexp": lambda x, k: x * o.exp2(cast(k, x.dtype)),
    **dict.fromkeys(("deg2rad", "radians"), lambda x: x * (math.pi / 180)),
    **dict.fromkeys(("rad2deg", "degrees"), lambda x: x * (180 / math.pi)),
    # scipy.special
    "expit": lambda x: o.sigmoid(x),
    "log_expit": lambda x: -o.softplus(-x),
    "logit": lambda x: o.log(x) - o.log1p(-x),
    "rgamma": lambda x: 1 / _gamma(x),
    "gammasgn": lambda x: o.sign(_gamma(o.stop_gradient(x))),
    "beta": lambda a, b: o.exp(o.betaln(a, b)),
    "binom": lambda m, k: o.exp(o.lgamma(m + 1) - o.lgamma(k + 1) - o.lgamma(m - k + 1)),
    "poch": lambda x, m: o.exp(o.lgamma(x + m) - o.lgamma(x)),
    "exp10": lambda x: o.exp(x * math.log(10)),
    "cosm1": lambda x: -2 * o.square(o.sin(x / 2)),
    "entr": lambda x: o.where(x < 0, o.full_like(x, -math.inf), -o.xlogy(x, x)),
    "kl_div": lambda x, y: _rel_entr(x, y) - x + y,
    "huber": lambda delta, r: o.where(o.abs(r) <= delta, o.square(r) / 2, delta * (o.abs(r) - delta / 2)),
    "pseudo_huber": lambda delta, r: o.square(delta) * (o.sqrt(1 + o.square(r / delta)) - 1),
    "chdtr": lambda df, x: o.gammainc(df / 2, x / 2),
    "chdtrc": lambda df, x: o.gammaincc(df / 2, x / 2),
    "pdtr": lambda k, mean: o.gammaincc(o.floor(k) + 1, mean),
}
