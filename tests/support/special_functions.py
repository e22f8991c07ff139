"""Special functions by mpmath, where mpmath has no such function or is slow at it."""

from __future__ import annotations

from typing import Any

import mpmath
import scipy.special


def lower_gamma(a: Any, x: Any) -> Any:
    return mpmath.gammainc(a, 0, x, regularized=True)


def upper_gamma(a: Any, x: Any) -> Any:
    return mpmath.gammainc(a, x, mpmath.inf, regularized=True)


def log_beta(a: Any, b: Any) -> Any:
    return mpmath.loggamma(a) + mpmath.loggamma(b) - mpmath.loggamma(a + b)


def scaled_bessel(v: Any, x: Any) -> Any:
    return mpmath.besseli(v, x) * mpmath.exp(-abs(x))


def quantile(p: Any) -> Any:
    """Newton's method from SciPy's value."""
    y = mpmath.mpf(float(scipy.special.ndtri(float(p))))
    for _ in range(4):
        y -= (mpmath.erfc(-y / mpmath.sqrt(2)) / 2 - p) * mpmath.exp(y * y / 2) * mpmath.sqrt(2 * mpmath.pi)
    return y
