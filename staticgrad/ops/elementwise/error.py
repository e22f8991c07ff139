"""The error function, its complement and its inverse."""

from __future__ import annotations

import math

import numpy as np

from staticgrad.graph import Tensor
from staticgrad.ops.declare import FLOAT
from staticgrad.ops.elementwise.entry import INSIDE_UNIT, scaled, unary
from staticgrad.optable import Namespace


def _bell(o: Namespace, x: Tensor) -> Tensor:
    """2/sqrt(pi) exp(-x²), the derivative of erf."""
    return o.exp(o.negative(x * x)) * (2.0 / math.sqrt(math.pi))


math_erf = np.vectorize(math.erf, otypes=[np.float64])
_math_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _exact_erfinv(x: float) -> float:
    """Wichura's quantile of the normal distribution (AS 241), then a step of Newton's method against ``math.erf``."""
    if not -1 < x < 1:
        return math.copysign(math.inf, x) if x in (-1, 1) else math.nan
    if x == 0:
        return x
    import statistics  # slow to import, and only the oracle needs it

    tail = (1 - math.fabs(x)) / 2
    y = -statistics.NormalDist().inv_cdf(tail) / math.sqrt(2)
    missing = math.erf(y) - math.fabs(x) if math.fabs(x) < 0.5 else 2 * tail - math.erfc(y)
    y -= missing * math.sqrt(math.pi) / 2 * math.exp(y * y)
    return math.copysign(y, x)


erf = unary(
    "erf", "The error function: 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x.",
    "erf", math_erf, FLOAT, scaled(lambda o, y, x: _bell(o, x)),
    example=("sg.erf([0.0, 1.0, sg.inf])", "array([0. , 0.8427..., 1. ], dtype=float32)"),
)  # fmt: skip

erfc = unary(
    "erfc", "1 - erf(x), accurate where it is tiny.", "erfc", _math_erfc, FLOAT,
    scaled(lambda o, y, x: o.negative(_bell(o, x))),
    example=("sg.erfc([0.0, 5.0])", "array([1.000...e+00, 1.537...e-12], dtype=float32)"),
)  # fmt: skip

erfinv = unary(
    "erfinv", "The inverse of erf; infinite at -1 and 1.", "erfinv",
    np.vectorize(_exact_erfinv, otypes=[np.float64]), FLOAT,
    scaled(lambda o, y, x: o.exp(y * y) * (math.sqrt(math.pi) / 2)), INSIDE_UNIT, tolerance=2.0,
    example=("sg.erfinv([0.0, 0.5, 1.0])", "array([0. , 0.4769..., inf], dtype=float32)"),
)  # fmt: skip
