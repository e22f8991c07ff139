"""Distributions of ``scipy.stats`` by their formulas, as ordinary functions of arrays that are traced.

``DISTRIBUTIONS`` has for each name functions of the standardised x and the shape parameters: ``logpdf`` (``logpmf``),
``cdf``, ``sf`` and ``ppf``. Location and scale, and what follows from these (``pdf``, ``logcdf``, ``logsf``, ``isf``),
are the same for all. Formulas: Abramowitz and Stegun, Handbook of Mathematical Functions, chapter 26.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.bridges.numpy import trace
from staticgrad.bridges.numpy.array import arrays_in, is_traced, known, value_of
from staticgrad.bridges.numpy.namespace import linalg, n
from staticgrad.bridges.numpy.tables import is_example

Function = Callable[..., Any]


@frozen
class Distribution:
    """Functions of the standardised x, which lies in ``support``, and of the shape parameters."""

    logpdf: Function
    cdf: Function | None = None
    sf: Function | None = None
    ppf: Function | None = None
    support: tuple[float, float] = (-math.inf, math.inf)
    discrete: bool = False

    @property
    def shapes(self) -> tuple[str, ...]:
        """The names of the shape parameters."""
        return tuple(name.rstrip("_") for name in inspect.signature(self.logpdf).parameters)[1:]


def _symmetric(logpdf: Function, cdf: Function, ppf: Function | None = None) -> Distribution:
    """A distribution of which x and -x have the same density."""
    return Distribution(logpdf, cdf, lambda x, *shapes: cdf(-x, *shapes), ppf)


def _by_hazard(hazard: Function, log_rate: Function, inverse: Function, start: float = 0.0) -> Distribution:
    """A distribution by its cumulative hazard H = -log sf, the logarithm of the slope of H, and the inverse of H."""

    @functools.wraps(hazard)
    def logpdf(x: Any, *shapes: Any) -> Any:
        return log_rate(x, *shapes) - hazard(x, *shapes)

    return Distribution(
        logpdf,
        lambda x, *shapes: -n.expm1(-hazard(x, *shapes)),
        lambda x, *shapes: n.exp(-hazard(x, *shapes)),
        lambda q, *shapes: inverse(-n.log1p(-q), *shapes),
        (start, math.inf),
    )


_LOG_ROOT = math.log(2 * math.pi) / 2
_POSITIVE, _UNIT = (0.0, math.inf), (0.0, 1.0)
DISTRIBUTIONS: dict[str, Distribution] = {
    "norm": _symmetric(lambda x: -x * x / 2 - _LOG_ROOT, lambda x: n.ndtr(x), lambda q: n.ndtri(q)),
    "logistic": _symmetric(lambda x: -n.abs(x) - 2 * n.log1p(n.exp(-n.abs(x))), lambda x: n.expit(x),
                           lambda q: n.logit(q)),
    "laplace": _symmetric(lambda x: -n.abs(x) - math.log(2),
                          lambda x: n.where(x > 0, 1 - n.exp(-n.abs(x)) / 2, n.exp(-n.abs(x)) / 2),
                          lambda q: n.where(q > 0.5, -n.log(2 * (1 - q)), n.log(2 * q))),
    "cauchy": _symmetric(lambda x: -n.log(math.pi * (1 + x * x)), lambda x: 0.5 + n.arctan(x) / math.pi,
                         lambda q: n.tan(math.pi * (q - 0.5))),
    "t": _symmetric(lambda x, df: n.gammaln((df + 1) / 2) - n.gammaln(df / 2) - n.log(df * math.pi) / 2
                    - (df + 1) / 2 * n.log1p(x * x / df), lambda x, df: n.stdtr(df, x)),
    "expon": _by_hazard(lambda x: x, lambda x: x * 0.0, lambda h: h),
    "rayleigh": _by_hazard(lambda x: x * x / 2, lambda x: n.log(x), lambda h: n.sqrt(2 * h)),
    "weibull_min": _by_hazard(lambda x, c: x**c, lambda x, c: n.log(c) + n.xlogy(c - 1, x), lambda h, c: h ** (1 / c)),
    "pareto": _by_hazard(lambda x, b: b * n.log(x), lambda x, b: n.log(b) - n.log(x), lambda h, b: n.exp(h / b), 1.0),
    "gumbel_r": Distribution(lambda x: -x - n.exp(-x), lambda x: n.exp(-n.exp(-x)), lambda x: -n.expm1(-n.exp(-x)),
                             lambda q: -n.log(-n.log(q))),
    "uniform": Distribution(lambda x: x * 0.0, lambda x: x, lambda x: 1 - x, lambda q: q, _UNIT),
    "halfnorm": Distribution(lambda x: -x * x / 2 + math.log(2) - _LOG_ROOT, lambda x: n.erf(x / math.sqrt(2)),
                             lambda x: n.erfc(x / math.sqrt(2)), lambda q: math.sqrt(2) * n.erfinv(q), _POSITIVE),
    "lognorm": Distribution(lambda x, s: -((n.log(x) / s) ** 2) / 2 - n.log(s * x) - _LOG_ROOT,
                            lambda x, s: n.ndtr(n.log(x) / s), lambda x, s: n.ndtr(-n.log(x) / s),
                            lambda q, s: n.exp(s * n.ndtri(q)), _POSITIVE),
    "gamma": Distribution(lambda x, a: n.xlogy(a - 1, x) - x - n.gammaln(a), lambda x, a: n.gammainc(a, x),
                          lambda x, a: n.gammaincc(a, x), None, _POSITIVE),
    "invgamma": Distribution(lambda x, a: -(a + 1) * n.log(x) - n.gammaln(a) - 1 / x,
                             lambda x, a: n.gammaincc(a, 1 / x), lambda x, a: n.gammainc(a, 1 / x), None, _POSITIVE),
    "chi2": Distribution(lambda x, df: n.xlogy(df / 2 - 1, x) - x / 2 - n.gammaln(df / 2) - math.log(2) * df / 2,
                         lambda x, df: n.chdtr(df, x), lambda x, df: n.chdtrc(df, x), None, _POSITIVE),
    "beta": Distribution(lambda x, a, b: n.xlogy(a - 1, x) + n.xlog1py(b - 1, -x) - n.betaln(a, b),
                         lambda x, a, b: n.betainc(a, b, x), lambda x, a, b: n.betainc(b, a, 1 - x), None, _UNIT),
    "poisson": Distribution(lambda k, mu: n.xlogy(k, mu) - n.gammaln(k + 1) - mu, lambda k, mu: n.pdtr(k, mu),
                            support=_POSITIVE, discrete=True),
    "binom": Distribution(lambda k, n_, p: n.gammaln(n_ + 1) - n.gammaln(k + 1) - n.gammaln(n_ - k + 1)
                          + n.xlogy(k, p) + n.xlog1py(n_ - k, -p), support=_POSITIVE, discrete=True),
    "bernoulli": Distribution(lambda k, p: n.xlogy(k, p) + n.xlog1py(1 - k, -p), support=_UNIT, discrete=True),
    "geom": Distribution(lambda k, p: n.xlog1py(k - 1, -p) + n.log(p), support=(1.0, math.inf), discrete=True),
}  # fmt: skip


def _log_density(d: Distribution, x: Any, shapes: list[Any], scale: Any) -> Any:
    low, high = d.support
    log_scale = 0.0 if d.discrete else n.log(scale)
    if low == -math.inf:
        return d.logpdf(x, *shapes) - log_scale
    outside = (x < low) | (x > high)
    return n.where(outside, -math.inf, d.logpdf(n.where(outside, low + 0.5, x), *shapes) - log_scale)


def _probability(d: Distribution, function: Function, x: Any, shapes: list[Any]) -> Any:
    """A cdf or sf inside of the support; 0 and 1 outside."""
    low, high = d.support
    if low == -math.inf:
        return function(x, *shapes)
    below = 0.0 if function is d.cdf else 1.0
    inside = function(n.clip(x, low if low or d.discrete else 1e-300, high), *shapes)
    found = n.where(x < low if d.discrete else x <= low, below, inside)
    return n.where(x >= high, 1 - below, found) if high < math.inf else found


def _of(method: str, d: Distribution, x: Any, shapes: list[Any], loc: Any, scale: Any) -> Any:
    """A method of a distribution by its formulas; NotImplemented without one."""
    if method in ("ppf", "isf"):
        return NotImplemented if d.ppf is None else d.ppf(x if method == "ppf" else 1 - x, *shapes) * scale + loc
    y, base, is_log = (x - loc) / scale, method.removeprefix("log"), method.startswith("log")
    if base in ("pdf", "pmf"):
        found = _log_density(d, y, shapes, scale)
        return found if is_log else n.exp(found)
    function = d.cdf if base == "cdf" else d.sf
    if function is None:
        return NotImplemented
    if is_log and d is DISTRIBUTIONS["norm"]:
        return n.log_ndtr(y if base == "cdf" else -y)
    found = _probability(d, function, y, shapes)
    return n.log(found) if is_log else found


def _normal_of_several(x: Any, mean: Any = 0.0, cov: Any = 1.0, **_: Any) -> Any:
    """The logarithm of the density of a normal distribution with a covariance matrix."""
    apart = n.asarray(x) - mean
    size = 1 if not apart.ndim else apart.shape[-1]
    cov = cov * np.eye(size) if not np.ndim(value_of(cov)) else cov
    flat = apart.reshape(-1, size)
    squares = (flat * linalg.solve(cov, flat.T).T).sum(axis=1)
    found = -(squares + linalg.slogdet(cov)[1]) / 2 - size * _LOG_ROOT
    return found.reshape(apart.shape[:-1])[()]


class DistributionStandIn:
    """In the place of a distribution of ``scipy.stats``, or of one with its parameters (``norm(0, 1)``)."""

    def __init__(self, name: str, real: Any, given: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})) -> None:
        self._name, self._real, self._given = name, real, given

    def __call__(self, *arguments: Any, **named: Any) -> DistributionStandIn:
        return DistributionStandIn(self._name, self._real, (arguments, named))

    def __getattr__(self, method: str) -> Any:
        if not callable(getattr(self._real, method)):
            return getattr(self._real, method)
        parameters, by_name = self._given
        return lambda *arguments, **named: self._result(method, [*arguments, *parameters], by_name | named)

    def _result(self, method: str, arguments: list[Any], named: dict[str, Any]) -> Any:
        what = f"scipy.stats.{self._name}.{method}"
        if method == "rvs":
            trace.current().depends(what, trace.DRAWS)
        elif any(map(is_traced, arrays_in([arguments, named]))):
            found = self._converted(method, arguments, named)
            if found is not NotImplemented:
                return found
            trace.current().refuse(what, "this method is not converted", is_example([arguments, named]))
        return known(getattr(self._real, method)(*value_of(arguments), **value_of(named)))

    def _converted(self, method: str, arguments: list[Any], named: dict[str, Any]) -> Any:
        if "multivariate_normal" in self._name and method in ("pdf", "logpdf"):
            found = _normal_of_several(*arguments, **named)
            return found if method == "logpdf" else n.exp(found)
        d = DISTRIBUTIONS.get(self._name)
        if d is None:
            return NotImplemented
        is_moment = self._name == "norm" and method in ("mean", "std", "var")
        given = dict(zip((*([] if is_moment else ["x"]), *d.shapes, "loc", "scale"), arguments)) | named
        loc, scale = given.get("loc", 0.0), given.get("scale", 1.0)
        if is_moment:
            return {"mean": loc, "std": scale, "var": scale * scale}[method]
        kinds = ("pmf", "logpmf") if d.discrete else ("pdf", "logpdf")
        if method not in (*kinds, "cdf", "logcdf", "sf", "logsf", "ppf", "isf"):
            return NotImplemented
        x = given.get("x", given.get("q", given.get("k")))
        x = n.asarray(x) if isinstance(x, (list, tuple)) else x
        return _of(method, d, x, [given[shape] for shape in d.shapes], loc, scale)
