"""Distributions of ``scipy.stats`` by their formulas, as ordinary functions of arrays that are traced.

``DISTRIBUTIONS`` has for each name the shape parameters and functions of the standardised x: ``logpdf`` (``logpmf``),
``cdf``, ``sf`` and ``ppf``. Location and scale, and what follows from these (``pdf``, ``logcdf``, ``logsf``, ``isf``),
are the same for all. Formulas: Abramowitz and Stegun, Handbook of Mathematical Functions, chapter 26.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.bridges.numpy import trace
from staticgrad.bridges.numpy.array import arrays_in, is_traced, known, value_of
from staticgrad.bridges.numpy.namespace import linalg, n

Function = Callable[..., Any]


@frozen
class Distribution:
    """The names of the shape parameters, and functions of the standardised x and these; x lies in ``support``."""

    shapes: tuple[str, ...]
    logpdf: Function
    cdf: Function | None = None
    sf: Function | None = None
    ppf: Function | None = None
    support: tuple[float, float] = (-math.inf, math.inf)
    discrete: bool = False


_LOG_ROOT = math.log(2 * math.pi) / 2
_POSITIVE = (0.0, math.inf)


def _t_logpdf(x: Any, df: Any) -> Any:
    return (n.gammaln((df + 1) / 2) - n.gammaln(df / 2) - n.log(df * math.pi) / 2
            - (df + 1) / 2 * n.log1p(x * x / df))  # fmt: skip


def _beta_logpdf(x: Any, a: Any, b: Any) -> Any:
    return n.xlogy(a - 1, x) + n.xlog1py(b - 1, -x) - n.betaln(a, b)


DISTRIBUTIONS: dict[str, Distribution] = {
    "norm": Distribution((), lambda x: -x * x / 2 - _LOG_ROOT, lambda x: n.ndtr(x), lambda x: n.ndtr(-x),
                         lambda q: n.ndtri(q)),
    "lognorm": Distribution(("s",), lambda x, s: -((n.log(x) / s) ** 2) / 2 - n.log(s * x) - _LOG_ROOT,
                            lambda x, s: n.ndtr(n.log(x) / s), lambda x, s: n.ndtr(-n.log(x) / s),
                            lambda q, s: n.exp(s * n.ndtri(q)), _POSITIVE),
    "expon": Distribution((), lambda x: -x, lambda x: -n.expm1(-x), lambda x: n.exp(-x), lambda q: -n.log1p(-q),
                          _POSITIVE),
    "uniform": Distribution((), lambda x: x * 0.0, lambda x: x, lambda x: 1 - x, lambda q: q, (0.0, 1.0)),
    "logistic": Distribution((), lambda x: -n.abs(x) - 2 * n.log1p(n.exp(-n.abs(x))), lambda x: n.expit(x),
                             lambda x: n.expit(-x), lambda q: n.log(q) - n.log1p(-q)),
    "laplace": Distribution((), lambda x: -n.abs(x) - math.log(2),
                            lambda x: n.where(x > 0, 1 - n.exp(-n.abs(x)) / 2, n.exp(-n.abs(x)) / 2),
                            lambda x: n.where(x > 0, n.exp(-n.abs(x)) / 2, 1 - n.exp(-n.abs(x)) / 2),
                            lambda q: n.where(q > 0.5, -n.log(2 * (1 - q)), n.log(2 * q))),
    "cauchy": Distribution((), lambda x: -n.log(math.pi * (1 + x * x)), lambda x: 0.5 + n.arctan(x) / math.pi,
                           lambda x: 0.5 - n.arctan(x) / math.pi, lambda q: n.tan(math.pi * (q - 0.5))),
    "gumbel_r": Distribution((), lambda x: -x - n.exp(-x), lambda x: n.exp(-n.exp(-x)),
                             lambda x: -n.expm1(-n.exp(-x)), lambda q: -n.log(-n.log(q))),
    "halfnorm": Distribution((), lambda x: -x * x / 2 + math.log(2) / 2 - math.log(math.pi) / 2,
                             lambda x: n.erf(x / math.sqrt(2)), lambda x: n.erfc(x / math.sqrt(2)),
                             lambda q: math.sqrt(2) * n.erfinv(q), _POSITIVE),
    "rayleigh": Distribution((), lambda x: n.log(x) - x * x / 2, lambda x: -n.expm1(-x * x / 2),
                             lambda x: n.exp(-x * x / 2), lambda q: n.sqrt(-2 * n.log1p(-q)), _POSITIVE),
    "pareto": Distribution(("b",), lambda x, b: n.log(b) - (b + 1) * n.log(x), lambda x, b: 1 - x ** (-b),
                           lambda x, b: x ** (-b), lambda q, b: (1 - q) ** (-1 / b), (1.0, math.inf)),
    "weibull_min": Distribution(("c",), lambda x, c: n.log(c) + n.xlogy(c - 1, x) - x**c,
                                lambda x, c: -n.expm1(-(x**c)), lambda x, c: n.exp(-(x**c)),
                                lambda q, c: (-n.log1p(-q)) ** (1 / c), _POSITIVE),
    "gamma": Distribution(("a",), lambda x, a: n.xlogy(a - 1, x) - x - n.gammaln(a), lambda x, a: n.gammainc(a, x),
                          lambda x, a: n.gammaincc(a, x), None, _POSITIVE),
    "invgamma": Distribution(("a",), lambda x, a: -(a + 1) * n.log(x) - n.gammaln(a) - 1 / x,
                             lambda x, a: n.gammaincc(a, 1 / x), lambda x, a: n.gammainc(a, 1 / x), None, _POSITIVE),
    "chi2": Distribution(("df",), lambda x, df: n.xlogy(df / 2 - 1, x) - x / 2 - n.gammaln(df / 2)
                         - math.log(2) * df / 2, lambda x, df: n.gammainc(df / 2, x / 2),
                         lambda x, df: n.gammaincc(df / 2, x / 2), None, _POSITIVE),
    "beta": Distribution(("a", "b"), _beta_logpdf, lambda x, a, b: n.betainc(a, b, x),
                         lambda x, a, b: n.betainc(b, a, 1 - x), None, (0.0, 1.0)),
    "t": Distribution(("df",), _t_logpdf, lambda x, df: n.stdtr(df, x), lambda x, df: n.stdtr(df, -x)),
    "poisson": Distribution(("mu",), lambda k, mu: n.xlogy(k, mu) - n.gammaln(k + 1) - mu,
                            lambda k, mu: n.pdtr(k, mu), None, None, _POSITIVE, True),
    "binom": Distribution(("n", "p"), lambda k, m, p: n.gammaln(m + 1) - n.gammaln(k + 1) - n.gammaln(m - k + 1)
                          + n.xlogy(k, p) + n.xlog1py(m - k, -p), None, None, None, _POSITIVE, True),
    "bernoulli": Distribution(("p",), lambda k, p: n.xlogy(k, p) + n.xlog1py(1 - k, -p), None, None, None,
                              (0.0, 1.0), True),
    "geom": Distribution(("p",), lambda k, p: n.xlog1py(k - 1, -p) + n.log(p), None, None, None, (1.0, math.inf),
                         True),
}  # fmt: skip


def _density(d: Distribution, x: Any, shapes: list[Any], scale: Any) -> Any:
    low, high = d.support
    outside = (x < low) | (x > high)
    inside = n.where(outside, (low if low > -math.inf else 0.0) + 0.5, x) if d.support != (-math.inf, math.inf) else x
    found = d.logpdf(inside, *shapes) - n.log(scale)
    return n.where(outside, -math.inf, found) if inside is not x else found


def _between(d: Distribution, function: Function, x: Any, shapes: list[Any], below: float) -> Any:
    """A function inside of the support; 0 or 1 below and above it."""
    low, high = d.support
    if low == -math.inf:
        return function(x, *shapes)
    inside = function(n.clip(x, low if low or d.discrete else 1e-300, high), *shapes)
    found = n.where(x < low if d.discrete else x <= low, below, inside)
    return n.where(x >= high, 1 - below, found) if high < math.inf else found


def _of(name: str, d: Distribution, x: Any, shapes: list[Any], loc: Any, scale: Any) -> Any:
    """A method of a distribution by its formulas; NotImplemented without one."""
    if name in ("ppf", "isf"):
        if d.ppf is None:
            return NotImplemented
        return d.ppf(x if name == "ppf" else 1 - x, *shapes) * scale + loc
    y = (x - loc) / scale
    base = name.removeprefix("log")
    if base in ("pdf", "pmf"):
        found = _density(d, y, shapes, 1.0 if d.discrete else scale)
    else:
        function = d.cdf if base == "cdf" else d.sf
        if function is None:
            return NotImplemented
        if name == "logcdf" and d is DISTRIBUTIONS["norm"]:
            return n.log_ndtr(y)
        if name == "logsf" and d is DISTRIBUTIONS["norm"]:
            return n.log_ndtr(-y)
        found = _between(d, function, y, shapes, 0.0 if base == "cdf" else 1.0)
        return n.log(found) if name.startswith("log") else found
    return found if name.startswith("log") else n.exp(found)


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

    def __init__(self, name: str, real: Any, given: tuple[tuple[Any, ...], dict[str, Any]] | None = None) -> None:
        self._name, self._real, self._given = name, real, given

    def __call__(self, *arguments: Any, **named: Any) -> DistributionStandIn:
        return DistributionStandIn(self._name, self._real, (arguments, named))

    def __getattr__(self, method: str) -> Any:
        if not callable(getattr(self._real, method)):
            return getattr(self._real, method)

        def call_method(*arguments: Any, **named: Any) -> Any:
            if self._given is not None:
                arguments, named = (*arguments, *self._given[0]), {**self._given[1], **named}
            return self._result(method, arguments, named)

        return call_method

    def _result(self, method: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        what = f"scipy.stats.{self._name}.{method}"
        if method == "rvs":
            trace.current().depends(what, trace.DRAWS)
        elif any(map(is_traced, arrays_in([list(arguments), named]))):
            found = self._converted(method, arguments, named)
            if found is not NotImplemented:
                return found
            is_example = all(x.is_example for x in arrays_in([list(arguments), named]))
            trace.current().refuse(what, "this method is not converted", is_example)
        return known(getattr(self._real, method)(*value_of(list(arguments)), **value_of(named)))

    def _converted(self, method: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if "multivariate_normal" in self._name and method in ("pdf", "logpdf"):
            found = _normal_of_several(*arguments, **named)
            return found if method == "logpdf" else n.exp(found)
        d = DISTRIBUTIONS.get(self._name)
        moments = {"mean", "std", "var"}
        kinds = ("pmf", "logpmf") if d is not None and d.discrete else ("pdf", "logpdf")
        if self._name == "norm" and method in moments:
            loc, scale = self._parameters((), (0.0, *arguments), named)[2:]
            return {"mean": loc, "std": scale, "var": scale * scale}[method]
        if d is None or method not in (*kinds, "cdf", "logcdf", "sf", "logsf", "ppf", "isf"):
            return NotImplemented
        x, shapes, loc, scale = self._parameters(d.shapes, arguments, named)
        return _of(method, d, n.asarray(x) if isinstance(x, (list, tuple)) else x, shapes, loc, scale)

    @staticmethod
    def _parameters(
        shapes: tuple[str, ...], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Any, list[Any], Any, Any]:
        given = dict(zip(("x", *shapes, "loc", "scale"), arguments)) | named
        x = given.get("x", given.get("q", given.get("k")))
        return x, [given[shape] for shape in shapes], given.get("loc", 0.0), given.get("scale", 1.0)
